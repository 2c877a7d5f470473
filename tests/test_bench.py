"""The benchmark: all ways agree, a difference is an error, figures are what they are named."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as program
from bench import library, ours, predecessor
from bench import workload as workloads
from bench.cases import LIBRARY, Case, Way
from bench.measure import STEP_ENDED, Measured, Time
from bench.report import compare, disagreements, ratios, table
from bench.workload import Workload
from tests.programs import run as run_program

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workload(tiny_path: Path) -> Workload:
    return Workload("sample", str(tiny_path), steps=4, batch_size=8)


def test_all_ways_give_the_same_losses_and_scores(workload: Workload) -> None:
    """So the library's loss is InfoNCE with every positive and negative of the batch, unmasked."""
    mine, theirs, library_run = (way.run(workload) for way in (ours, predecessor, library))
    assert len(mine.losses) == 4
    assert max(mine.losses) - min(mine.losses) > 1e-2  # other texts, changed weights
    for other in (theirs, library_run):
        assert mine.losses == pytest.approx(other.losses, abs=1e-4)
        assert not disagreements(mine, other, workload)
        assert len(other.times) == 3
    scoring = dataclasses.replace(workload, task="scorecard")
    mine, theirs = ours.run(scoring), predecessor.run(scoring)
    assert len(theirs.scores) == 8
    assert not disagreements(mine, theirs, scoring)


def _measured(*seconds: float, **options: Any) -> Measured:
    return Measured([Time(2 * value, value) for value in seconds], memory=100.0, **options)


def test_a_difference_is_an_error(workload: Workload) -> None:
    mine = _measured(1.0, losses=[2.0, 1.0])
    assert not disagreements(mine, mine, workload)
    other = dataclasses.replace(mine, losses=[2.0, 1.01])
    assert "losses differ" in disagreements(other, mine, workload)[0]
    for looser in ({"precision": "bf16"}, {"dropout": True}):
        changes: Any = looser
        assert not disagreements(other, mine, dataclasses.replace(workload, **changes))
    assert disagreements(dataclasses.replace(mine, losses=[]), mine, workload)
    scoring = dataclasses.replace(workload, task="scorecard")
    scored = _measured(1.0, scores={"a/b": 0.5})
    assert not disagreements(scored, scored, scoring)
    for wrong in ({"a/b": float("nan")}, {}):
        assert "a/b" in disagreements(_measured(1.0, scores=wrong), scored, scoring)[0]


def test_ratios_by_hand(workload: Workload) -> None:
    """Of two rounds with two timed steps each."""
    runs: dict[Way, Sequence[Measured]] = {
        "ours": [_measured(2.0, 4.0), _measured(3.0, 1.0)],
        "sentence_transformers": [_measured(3.0, 4.0), _measured(6.0, 4.0)],
    }
    case = Case("training", workload)
    assert ratios(case, runs) == {"training, against the trainer": [1.5, 1.0, 2.0, 4.0]}
    assert table(runs).splitlines()[1].split() == ["ours", "2.50", "5.00", "100"]
    scoring = Case("scorecard", dataclasses.replace(workload, task="scorecard"))
    assert list(ratios(scoring, runs)) == ["scorecard, against plain encoding"]


def test_slower_is_below_all_that_was_recorded() -> None:
    for now, low, high, verdict in (
        ([1.95], 1.9, 2.2, "(1.90–2.20)"),
        ([2.3], 1.9, 2.2, "faster"),
        ([1.85], 1.9, 2.2, "  slower"),  # beyond the noise, within what is allowed
        ([1.7, 1.5, 1.6], 1.9, 2.2, "SLOWER by 20%"),
        ([1.6], 1.5, 2.5, "(1.50–2.50)"),  # a noisy ratio within its noise
        ([1.4], 1.5, 2.5, "SLOWER by 30%, but of 1 only: no error"),
    ):
        text, failed = compare({"a": now, "b": [1.0]}, {"a": {"median": 2.0, "min": low, "max": high}})
        line, new = text.splitlines()[1:]
        assert line.endswith(verdict)
        assert failed == verdict.endswith("20%")
        assert new.endswith("1.00 (1.00–1.00)")


class _MadeUp:
    """Runs that take as long as they are told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: list[tuple[Way, Workload]] = []
        self.processor = "AMD AVX512 bfloat16"
        self.seconds = {"ours": 1.0}
        self.losses = {"ours": [1.0]}
        monkeypatch.setattr(program, "run_in_turn", self._run)
        monkeypatch.setattr(program, "start_ratios", lambda _, rounds: {"train --help": [2.0] * rounds})
        monkeypatch.setattr(program, "processor_kind", lambda: self.processor)
        monkeypatch.setattr(workloads, "has_bf16_instructions", lambda: "bfloat16" in self.processor)

    def _run(self, ways: Sequence[Way], workload: Workload) -> list[Measured]:
        self.runs += [(way, workload) for way in ways]
        number = workload.steps - 1 if workload.is_training else 1
        return [
            _measured(*[self.seconds.get(way, 3.0)] * number, losses=self.losses.get(way, [1.0]))
            for way in ways
        ]


def test_it_compares_and_writes(
    workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made_up = _MadeUp(monkeypatch)
    options = ["--data=sample", f"--model={workload.model}", "--steps=2", f"--output={tmp_path}"]
    assert program.main(options, tmp_path / "none.json") == 0
    cases = {case["name"]: case for case in json.loads((tmp_path / "bench.json").read_text())["cases"]}
    assert cases["training in bfloat16"]["ratios"] == {
        "training in bfloat16, against the trainer": [3.0, 3.0]
    }
    assert {"scorecard", "training without dropout"} <= cases.keys()
    ways = [way for way, given in made_up.runs if given.precision == "bf16" and given.model == workload.model]
    assert ways == [*LIBRARY, *LIBRARY]  # the predecessor not in the second precision
    assert "scorecard, against plain encoding" in capsys.readouterr().out
    made_up.losses["ours"] = [1.5]
    assert program.main([*options, "--task=tuples"], tmp_path / "none.json") == 1
    assert "NOT THE SAME: training without dropout, predecessor" in capsys.readouterr().out


def test_it_records_and_then_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours take a third as long when recorded, and half as long afterwards.

    Then on a processor without bfloat16: it is left out, and what was recorded of it is not compared.
    """
    made_up = _MadeUp(monkeypatch)
    path, options = tmp_path / "recorded.json", ["--data=sample", f"--output={tmp_path}"]
    assert program.main([*options, "--record", "--pairs=2"], path) == 0
    assert [(way, given.precision) for way, given in made_up.runs[:8:2]] == [
        *[("ours", "fp32")] * 2,
        *[("ours", "bf16")] * 2,
    ]
    assert all(given.dropout for _, given in made_up.runs[:8])
    assert made_up.runs[9][0] == "predecessor"
    assert len(json.loads(path.read_text(encoding="utf-8"))["AMD AVX512 bfloat16"]["ratios"]) == 4
    made_up.seconds["ours"] = 1.5
    capsys.readouterr()
    assert program.main([*options, "--quick"], path) == 1
    printed = capsys.readouterr().out
    assert printed.count("SLOWER by 33%\n") == 2  # each precision, of six steps
    assert printed.count("SLOWER by 33%, but of 1 only: no error") == 1
    made_up.runs.clear()
    made_up.processor = "Intel AVX2"  # what another kind reached is not compared with
    assert program.main([*options, "--quick"], path) == 0
    assert {given.precision for _, given in made_up.runs} == {"fp32"}
    printed, errors = capsys.readouterr()
    assert "bfloat16" not in printed.replace("AVX512 bfloat16", "")
    assert "SLOWER" not in printed
    assert all(kind in printed for kind in ("Intel AVX2", "AMD AVX512"))
    assert "bf16" in errors


def test_ways_take_steps_in_turn_in_processes_of_their_own(
    workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process prints what one here measures; in place of Python a script, which waits for its turn."""
    assert program.main(["--way=ours", f"--workload={json.dumps(dataclasses.asdict(workload))}"]) == 0
    printed = capsys.readouterr().out.splitlines()[-1]
    assert json.loads(printed)["losses"] == ours.run(workload).losses
    fake = tmp_path / "python"
    turn = f"echo {STEP_ENDED}; read turn; echo $3 >> {tmp_path / 'turns'};"
    fake.write_text(f"#!/bin/sh\n{turn} {turn}\necho '{printed}'\n")
    fake.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(fake))
    runs = program.run_in_turn(["ours", "predecessor"], workload)
    assert [len(run.times) for run in runs] == [workload.steps - 1] * 2
    assert all(run.memory > 0 for run in runs)
    assert (tmp_path / "turns").read_text().split() == ["--way=ours", "--way=predecessor"] * 2


def test_a_start_ends_with_the_first_step(tiny_path: Path, tmp_path: Path) -> None:
    model = ["model=pretrained", f"model.path='{tiny_path}'"]
    options = ["+experiment=idiolink_ft", "data=sample", "device=cpu", "benchmark=[idiolink]", *model]
    done = run_program("bench.start", *options, f"run_dir='{tmp_path / 'run'}'")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "baseline.json").is_file()
    assert not list((tmp_path / "run").glob("step_*"))
