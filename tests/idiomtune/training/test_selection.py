"""Best checkpoint and patience, by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from idiomtune.benchmarks import Embed, Result
from idiomtune.benchmarks.idiolink.scoring import IdioLinkBenchmark
from idiomtune.errors import UserError
from idiomtune.io.run_files import checkpoints, verify
from idiomtune.training.checkpoint import TrainerState
from idiomtune.training.loop import has_no_patience, monitored_scores, settled_epoch, update_best
from tests.programs import refused
from tests.tiny_runs import KEY, metrics, resume, train, trainer

KEYS = ["idiolink/val/sentence/ndcg@10", "idiolink/val/span/ndcg@10"]


# Scores of the evaluations, and of each: is it the best, the best step, evaluations without improvement.
NAN = math.nan
SEEN: dict[str, tuple[list[float], list[tuple[bool, int | None, int]]]] = {
    # Two gains of 0.04 are each under min_delta, but together above it; 0.60 < 0.58 + 0.05.
    "any improvement": (
        [0.50, 0.54, 0.58, 0.57, 0.60],
        [(True, 1, 0), (True, 2, 1), (True, 3, 0), (False, 3, 1), (True, 5, 2)],
    ),
    "a tie": ([0.5, 0.5], [(True, 1, 0), (False, 1, 1)]),
    "not finite": (
        [NAN, 0.5, math.inf, 0.6, -math.inf, NAN],
        [(False, None, 1), (True, 2, 0), (False, 2, 1), (True, 4, 0), (False, 4, 1), (False, 4, 2)],
    ),
}


@pytest.mark.parametrize("what", SEEN)
def test_best_is_any_improvement_patience_wants_min_delta(what: str) -> None:
    """A score that is not finite is never the best, nor an improvement; a tie leaves the earlier one."""
    options, without = (
        trainer(f"trainer.patience={patience}", "trainer.min_delta=0.05") for patience in (2, "null")
    )
    state = TrainerState()
    scores, expected = SEEN[what]
    for state.step, (score, outcome) in enumerate(zip(scores, expected, strict=True), 1):
        improved = update_best(state, {KEYS[0]: score}, options)
        assert (improved, state.best_step, state.num_without_improvement) == outcome
        assert has_no_patience(state, options) == (outcome[2] == 2)
        assert not has_no_patience(state, without)


def test_several_keys_are_averaged_and_missing_ones_named() -> None:
    options = trainer(f"trainer.monitor=[{','.join(KEYS)}]")
    assert monitored_scores({KEYS[0]: 0.2, KEYS[1]: 0.6}, options) == pytest.approx(0.4)
    with pytest.raises(UserError, match=KEYS[1]):
        monitored_scores({KEYS[0]: 0.2}, options)


def breaks(monkeypatch: pytest.MonkeyPatch, *evaluations: int) -> None:
    """Let the monitored score be NaN in these evaluations, of which the first is the untrained model's.

    In all of them if none is named.
    """
    real, calls = IdioLinkBenchmark.score, 0

    def score(self: IdioLinkBenchmark, embed: Embed) -> Result:
        nonlocal calls
        calls += 1
        result = real(self, embed)
        if calls in evaluations or not evaluations:
            scores = [replace(s, value=math.nan) if str(s) == KEY else s for s in result.scores]
            return replace(result, scores=scores)
        return result

    monkeypatch.setattr(IdioLinkBenchmark, "score", score)


def no_nan(path: Path) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{path.name}: {constant}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def test_a_run_goes_on_over_a_score_that_is_nan(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    breaks(monkeypatch, 1, 2)  # untrained, and the first of two checkpoints
    folder = tmp_path / "run"
    best = train(folder, [*options])
    assert math.isfinite(best)
    card = no_nan(folder / "scores.json")
    assert card["meta"]["checkpoint"] == "step_6"
    assert KEY not in card["baseline"]
    for path in (folder / "baseline.json", *folder.glob("step_*/s*.json")):
        no_nan(path)
    assert [KEY in line["scores"] for line in metrics(folder) if "scores" in line] == [False, True]
    assert any(KEY in r.getMessage() and "nan" in r.getMessage() for r in caplog.records)


def test_a_run_without_any_finite_score_ends_with_its_checkpoints_and_goes_on_once_mended(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as broken:
        breaks(broken)
        chosen = [*options, "trainer.patience=1", "eval.every=2"]
        refused(lambda: train(folder, chosen), KEY, "benchmark idiolink", "nan", "step_2", f"resume={folder}")
    assert no_nan(folder / "run.json")["status"] == "failed"
    assert [verify(path) for path in checkpoints(folder)] == [None]
    assert math.isfinite(resume(folder))
    assert no_nan(folder / "run.json")["status"] == "finished"
    assert no_nan(folder / "run.json")["steps"] > 2  # patience began anew


def test_the_loss_that_is_logged_is_of_the_last_epoch(
    tmp_path: Path, options: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Not of the whole run, but of its steps since the last evaluation."""
    caplog.set_level("INFO")
    train(tmp_path / "run", [*options, "trainer.log_every=1", "eval.every=2"])
    losses = [record["loss"] for record in metrics(tmp_path / "run") if "loss" in record]
    assert len(losses) == 6
    (line,) = [r.getMessage() for r in caplog.records if r.getMessage().startswith("epoch 2, step 6: ")]
    logged = float(line.partition(": loss ")[2].partition(",")[0])
    assert logged == pytest.approx(sum(losses[-2:]) / 2, abs=6e-5)


@pytest.mark.parametrize(
    ("losses", "epoch"),
    [
        ([2.0, 0.5, 0.01, 0.0, 0.01], 3),
        ([2.0, 1.9, 1.9, 1.9], 2),  # at a level above 0, too
        ([], 1),
    ],
)
def test_the_epoch_since_which_the_loss_has_hardly_changed(losses: list[float], epoch: int) -> None:
    assert settled_epoch(losses) == epoch
