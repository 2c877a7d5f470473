"""What runs of single kinds leave: of triplets, parts, a glossary, and a user's own benchmarks."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accelerate import Accelerator

from idiomtune import Encoder
from idiomtune.config import EvaluateSettings, TrainSettings, validate
from idiomtune.data import sources
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.errors import Interrupted, UserError
from idiomtune.glossaries.meanings import GlossaryReader
from idiomtune.io.processes import Processes
from idiomtune.objectives.triplets import TripletObjective
from idiomtune.programs.evaluate import evaluate as score_model
from idiomtune.reports.compare import compare
from idiomtune.reports.frames import group_runs
from idiomtune.reports.runs import read_runs
from idiomtune.requests import EmbeddingRequest
from idiomtune.training.embedder import TrainableEmbedder
from tests.own_data import STS, write, write_collection
from tests.tiny_runs import KEY, WholeRun, at_loss, composed, metrics, resume, terminate, train

Scores = Callable[..., dict[str, float]]


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@pytest.fixture
def scores_of(tiny_path: Path) -> Scores:
    def scores(*overrides: str, model: Path = tiny_path, data: str = "data=sample") -> dict[str, float]:
        config = composed(
            *("evaluate", data, "device=cpu", "model=pretrained", f"model.path={model}"),
            *("precision=fp32", *overrides),
        )
        return score_model(validate(EvaluateSettings, config))

    return scores


def steps_of(folder: Path) -> list[dict[str, float]]:
    return [line for line in metrics(folder) if "loss" in line]


def test_a_joint_run_is_scored_and_logged_by_part(joint_options: list[str], whole_run: WholeRun) -> None:
    """Checkpoints are scored on what is monitored, the best and the untrained model on all."""
    whole = whole_run(joint_options)
    scored = [line["scores"] for line in metrics(whole) if "scores" in line]
    assert {key.partition("/")[0] for scores in scored for key in scores} == {"idiolink"}
    final = read(whole / "scores.json")
    for scores in (final["scores"], final["baseline"]):
        assert {key.partition("/")[0] for key in scores} == {"idiolink", "semeval2022"}
    found = set()
    for line in steps_of(whole):
        (part,) = {key.partition("/")[0] for key in line if "/" in key}
        assert line[f"{part}/loss"] == line["loss"]
        found.add(part)
    assert found == {"idiolink", "adaptive_triplet"}


NOTHING_MINED = [
    *("objective.loss.mining_margin=0.0", "objective.loss.triplets=semihard", "trainer.clip_norm=null"),
    *("objective.loss.property_weight=0", "objective.loss.correct_weight=0"),  # a loss in every step
]


def test_steps_without_a_mined_triplet_end_the_run_with_a_message(
    tmp_path: Path, joint_options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it was interrupted in between: what was counted goes on to count.

    In a joint run steps of the other part, which learn, do not begin the count anew.
    """
    section = "objective.parts.adaptive_triplet.options"
    mined = [option.replace("objective.loss", f"++{section}.loss") for option in NOTHING_MINED]
    at_loss(monkeypatch, 1, terminate, TripletObjective)
    with pytest.raises(Interrupted):
        train(tmp_path, [*joint_options, *mined, "trainer.max_empty_steps=2"])
    monkeypatch.undo()
    with pytest.raises(UserError, match=rf"(?s) 2 .*mining_margin.*{section}"):
        resume(tmp_path)
    assert read(tmp_path / "run.json")["status"] == "failed"
    # Logged are the steps before the one that ended it: one of the triplets, and what came between.
    assert len([line for line in steps_of(tmp_path) if "adaptive_triplet/loss" in line]) == 1
    resume(tmp_path, "trainer.max_empty_steps=70")
    assert read(tmp_path / "run.json")["status"] == "finished"


SEMEVAL = "benchmarks=[semeval2022]"


def test_predictions_are_written_in_the_form_of_the_task(
    tmp_path: Path, triplet_options: list[str], scores_of: Scores, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a split without gold, which alone is an error without them, and beside one with gold is not."""
    with pytest.raises(UserError, match=r"eval.*predictions=<folder>"):
        scores_of(SEMEVAL, "split=eval")
    caplog.set_level("INFO")
    splits = "benchmark.semeval2022.split=[dev,eval]"
    train(tmp_path / "run", [*triplet_options, "eval.predictions=true", "trainer.max_steps=1", splits])
    written = tmp_path / "run" / "predictions"
    assert sorted(p.name for p in written.iterdir()) == ["semeval2022_dev.csv", "semeval2022_eval.csv"]
    scores_of(SEMEVAL, "split=eval", f"predictions={tmp_path / 'out'}", model=tmp_path / "run" / "best")
    assert "semeval2022 has no gold on eval" in caplog.text
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == "semeval2022_eval.csv"
    form = SAMPLE_ROOT / "semeval2022_task2b/SubTaskB/EvaluationData/eval.submission_format.csv"
    files = (form, path, written / path.name)
    given, evaluated, trained = (
        [line.rpartition(b",") for line in f.read_bytes().split(b"\r\n")] for f in files
    )
    assert [line[0] for line in given] == [line[0] for line in evaluated] == [line[0] for line in trained]
    numbers = [[float(line[2]) for line in lines[1:] if line[2]] for lines in (evaluated, trained)]
    assert len(numbers[0]) == 8
    assert numbers[0] == pytest.approx(numbers[1], abs=1e-6)


@pytest.fixture
def without_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample_root: Path, options: list[str]
) -> list[str]:
    """Options of a run where there is IdioLink alone; SemEval's files cannot be downloaded."""
    shutil.copytree(sample_root, tmp_path / "data" / "idiolink")
    monkeypatch.setattr(sources, "GITHUB_FILES", "http://127.0.0.1:9")
    monkeypatch.setenv("IDIOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IDIOM_DATA", str(tmp_path / "data"))
    return [o for o in options if o != "data=sample" and not o.startswith("benchmark=")]


def test_a_benchmark_without_data_is_reported_and_never_ends_a_training(
    tmp_path: Path, without_data: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    train(tmp_path / "run", [*without_data, "trainer.max_steps=1"])
    assert "semeval2022 is NOT SCORED" in caplog.text
    card = read(tmp_path / "run" / "scores.json")
    for not_scored in (card["meta"]["not_scored"], read(tmp_path / "run" / "run.json")["not_scored"]):
        assert list(not_scored) == ["semeval2022", "epsilon", "admire"]
        assert "data.semeval2022=" in not_scored["semeval2022"]
    assert KEY in card["scores"]
    assert all(key.startswith("idiolink/") for key in card["scores"])


def test_what_is_monitored_or_asked_for_must_have_its_data(
    tmp_path: Path, without_data: list[str], scores_of: Scores
) -> None:
    monitor = "trainer.monitor=semeval2022/dev/all/all/spearman"
    with pytest.raises(UserError, match=r"trainer\.monitor: 'semeval2022/dev/all/all/spearman'"):
        train(tmp_path / "run", [*without_data, monitor])
    assert not (tmp_path / "run" / "baseline.json").exists()
    with pytest.raises(UserError, match=r"data\.semeval2022="):
        scores_of(SEMEVAL, data="data=public")


GLOSSARY = ["model.glossary=sample", "model.glossary_dropout=0.5", "model.glossary_gate=true"]


def test_a_model_with_a_glossary_is_recorded_and_reads_as_it_was_trained_to(
    whole_run: WholeRun, options: list[str], scores_of: Scores
) -> None:
    whole = whole_run([*options, *GLOSSARY])
    record, card = read(whole / "run.json"), read(whole / "scores.json")
    facts = record["glossary"]
    assert (facts["files"], facts["licences"], facts["gate"]) == (["sample.tsv"], ["CC0-1.0"], True)
    assert facts["occurs"]["training"] == {"expressions": 6, "texts": 96}
    assert any(path.endswith("sample.tsv") for path in record["data"])
    assert "(sample.tsv)" in card["meta"]["data"]
    assert "CC0-1.0" in (whole / "best" / "README.md").read_text(encoding="utf-8")

    scored = [o for o in options if o.startswith(("benchmark.idiolink.bm25", "benchmark.idiolink.query"))]
    scored += ["benchmark=[idiolink]", "split=[val]"]
    assert scores_of(*scored, model=whole / "best") == pytest.approx(card["scores"], abs=1e-9)
    without = scores_of(*scored, "model.glossary=[]", model=whole / "best")
    assert without != pytest.approx(card["scores"], abs=1e-3)
    gate = Encoder.from_pretrained(whole / "best", device="cpu").meanings.gate  # type: ignore[union-attr]
    assert gate is not None


def test_meanings_are_left_out_of_the_share_of_texts_that_is_asked_for(tiny: Encoder) -> None:
    tiny.meanings = GlossaryReader({"break the ice": ["make people relax"]}, dropout=0.25)
    embed = TrainableEmbedder(tiny, Accelerator(cpu=True), Processes(), seed=3)
    requests = [EmbeddingRequest(f"They broke the ice {n} times.") for n in range(400)]
    dropped, again, other = (
        [not r.with_meanings for r in embed._drop_meanings(requests, step=step, micro=0)]
        for step in (1, 1, 2)
    )
    assert 70 < sum(dropped) < 130
    assert dropped == again != other
    twice = embed._drop_meanings([requests[0], requests[0]], step=1, micro=0)
    assert twice[0] == twice[1]


OWN = "benchmark=[own_retrieval,own_sts]"


@pytest.fixture
def own_data(tmp_path: Path) -> list[str]:
    """Options that name a small file of each kind, two of them for scored pairs."""
    spans = STS.replace("score", "score,span1", 1).replace(".5\n", ".5,cat\n")
    spans = spans.replace(",0\n", ",0,\n").replace(",2\n", ",2,\n")
    files = f"mine:{write(tmp_path / 'mine.csv', STS)},spans:{write(tmp_path / 'spans.csv', spans)}"
    return [
        f"benchmark.own_sts.path={{{files}}}",
        f"benchmark.own_retrieval.path={write_collection(tmp_path / 'log')}",
    ]


def test_a_run_is_scored_and_compared_on_own_files(
    tmp_path: Path, options: list[str], own_data: list[str]
) -> None:
    others = [o for o in options if not o.startswith(("benchmark", "trainer.m"))]
    chosen = [*others, OWN, *own_data, "trainer.max_steps=2", "eval.every=1"]
    best = train(tmp_path / "run", [*chosen, "trainer.monitor=own_sts/mine/spearman"])
    scores = read(tmp_path / "run" / "scores.json")["scores"]
    assert scores["own_sts/mine/spearman"] == best
    assert {"own_sts/spans/span/pearson", "own_retrieval/log/ndcg@10"} <= scores.keys()
    known = validate(TrainSettings, composed("train", *chosen, "trainer.monitor=own_sts/mine/pearson"))
    assert set(scores) <= set(known.possible_scores(None))

    paired = compare(group_runs(read_runs([tmp_path / "run"]))[0])
    problems = {why for d in paired.differences for why, _ in d.problems}
    assert problems <= {"too few pairs for an interval"}, "per-query records give the scores"
    assert "own_sts/mine/spearman" in {d.key for d in paired.differences}
