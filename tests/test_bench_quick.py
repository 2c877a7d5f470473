"""The short benchmark: what is recorded, and what counts as slower."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import quick as program
from bench import workload as workloads
from bench.measure import Measured, Time
from bench.quick import compare, quick
from bench.report import Run
from bench.start import FIRST_STEP, HELP, IMPORTS
from bench.workload import Workload
from tests.programs import run as run_program

pytestmark = pytest.mark.slow

_START = {IMPORTS: 4.0, HELP: 1.0, FIRST_STEP: 8.0}


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
        assert new.endswith("not recorded")


def test_it_records_and_then_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With runs made up, of which ours take a third as long when recorded, and half as long afterwards.

    Then on a processor without bfloat16: it is left out, and what was recorded of it is not compared.
    """
    asked: list[tuple[str, str, bool]] = []
    seconds = {"ours": 1.0}

    def made_up(ways: Sequence[str], workload: Workload) -> list[Run]:
        runs = []
        for way in ways:
            asked.append((way, workload.precision, workload.dropout))
            time = Time(9.0, seconds.get(way, 3.0))
            steps = [time] * (workload.steps - 1)
            runs.append(Run(Measured([], {}, steps, None, None if steps else time), 1.0, 1.0, 1.0))
        return runs

    monkeypatch.setattr(program, "processor_times", lambda _: _START)
    monkeypatch.setattr(workloads, "has_bf16_instructions", lambda: True)
    path, machine = tmp_path / "recorded.json", {"processor": "AMD AVX512", "cores": 2}
    work = Workload("sample")
    assert quick(work, 2, made_up, machine=machine, keeps=True, path=path) == 0
    ways = ("ours", "sentence_transformers")
    assert asked[:4] == [(way, precision, True) for precision in ("fp32", "bf16") for way in ways]
    assert asked[5][0] == "predecessor"
    assert len(json.loads(path.read_text(encoding="utf-8"))["AMD AVX512"]["ratios"]) == 5
    seconds["ours"] = 1.5
    capsys.readouterr()
    assert quick(work, 1, made_up, machine=machine | {"cores": 4}, keeps=False, path=path) == 1
    printed = capsys.readouterr().out
    assert printed.count("SLOWER by 33%\n") == 2  # each precision, of six steps
    assert printed.count("SLOWER by 33%, but of 1 only: no error") == 1
    assert "cores 2 (here 4)" in printed
    asked.clear()
    monkeypatch.setattr(workloads, "has_bf16_instructions", lambda: False)
    machine["processor"] = "Intel AVX2"  # what another kind reached is not compared with
    assert quick(work, 1, made_up, machine=machine, keeps=False, path=path) == 0
    assert {precision for _, precision, _ in asked} == {"fp32"}
    printed, errors = capsys.readouterr()
    assert "bfloat16" not in printed
    assert "SLOWER" not in printed
    assert all(kind in printed for kind in ("Intel AVX2", "AMD AVX512"))
    assert "bf16" in errors


def test_a_start_ends_with_the_first_step(tiny_path: Path, tmp_path: Path) -> None:
    model = ["model=pretrained", f"model.path='{tiny_path}'"]
    options = ["+experiment=idiolink_ft", "data=sample", "device=cpu", "benchmark=[idiolink]", *model]
    done = run_program("bench.start", *options, f"run_dir='{tmp_path / 'run'}'")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "baseline.json").is_file()
    assert not list((tmp_path / "run").glob("step_*"))
