"""The short benchmark: what is recorded, and what counts as slower."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import quick as program
from bench import workload as workloads
from bench.measure import Measured, Time
from bench.quick import RECORDED, compare, quick
from bench.report import Run
from bench.start import FIRST_STEP, HELP, IMPORTS
from bench.workload import Workload
from tests.programs import run as run_program

pytestmark = pytest.mark.slow

_KNOWN = {"a": {"median": 2.0, "min": 1.9, "max": 2.2}}


@pytest.mark.parametrize(
    ("now", "verdict", "fails"),
    [
        ([1.95], "(1.90–2.20)", False),
        ([2.3], "faster", False),
        ([1.85], "  slower", False),  # beyond the noise, within what is allowed
        ([1.7, 1.5, 1.6], "SLOWER by 20%", True),
    ],
)
def test_slower_is_below_all_that_was_recorded(now: list[float], verdict: str, fails: bool) -> None:
    text, failed = compare({"a": now, "b": [1.0]}, _KNOWN)
    line, new = text.splitlines()[1:]
    assert line.endswith(verdict)
    assert failed == fails
    assert new.endswith("not recorded")


def test_a_noisy_ratio_is_no_error_within_its_noise() -> None:
    known = {"a": {"median": 2.0, "min": 1.5, "max": 2.5}}
    assert compare({"a": [1.6]}, known)[1] is False
    assert compare({"a": [1.4]}, known)[1] is True


def test_it_records_and_then_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With runs made up, of which ours take a third as long when recorded, and half as long afterwards."""
    asked: list[tuple[str, str, bool]] = []
    seconds = {"ours": 1.0}
    times = iter([{IMPORTS: 4.0, HELP: 1.0, FIRST_STEP: 8.0}] * 3)

    def made_up(way: str, workload: Workload) -> Run:
        asked.append((way, workload.precision, workload.dropout))
        time = Time(9.0, seconds.get(way, 3.0))
        is_scoring = workload.steps == 0
        return Run(Measured([], {}, None if is_scoring else time, None, time), 1.0, 1.0, 1.0)

    monkeypatch.setattr(program, "processor_times", lambda _: next(times))
    monkeypatch.setattr(workloads, "has_bf16_instructions", lambda: True)
    path, machine = tmp_path / "recorded.json", {"cores": 2}
    work = Workload("sample")
    assert quick(work, 2, made_up, machine=machine, keeps=True, path=path) == 0
    assert asked[:4] == [
        ("ours", "fp32", True),
        ("sentence_transformers", "fp32", True),
        ("ours", "bf16", True),
        ("sentence_transformers", "bf16", True),
    ]
    assert asked[5][0] == "predecessor"
    seconds["ours"] = 1.5
    capsys.readouterr()
    assert quick(work, 1, made_up, machine={"cores": 4}, keeps=False, path=path) == 1
    printed = capsys.readouterr().out
    assert printed.count("SLOWER by 33%") == 3
    assert "recorded elsewhere, where other things were: cores 2 (here 4)" in printed
    starts = [line for line in printed.splitlines() if "importing" in line]
    assert [line.split()[-3:-1] for line in starts] == [["4.00", "4.00"], ["0.50", "0.50"]]


def test_bfloat16_is_left_out_where_the_processor_has_no_instructions_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what was recorded of it elsewhere is not compared."""
    asked: list[str] = []

    def made_up(_: str, workload: Workload) -> Run:
        asked.append(workload.precision)
        return Run(Measured([], {}, Time(1.0, 1.0), None, Time(1.0, 1.0)), 1.0, 1.0, 1.0)

    monkeypatch.setattr(program, "processor_times", lambda _: {IMPORTS: 4.0, HELP: 1.0, FIRST_STEP: 8.0})
    monkeypatch.setattr(workloads, "has_bf16_instructions", lambda: False)
    (tmp_path / "recorded.json").write_text(json.dumps({"machine": {}, "ratios": {}}), encoding="utf-8")
    path = tmp_path / "recorded.json"
    assert quick(Workload("sample"), 1, made_up, machine={}, keeps=False, path=path) == 0
    assert set(asked) == {"fp32"}
    printed = capsys.readouterr()
    assert "bfloat16" not in printed.out
    assert "bf16 is left out" in printed.err


def test_what_is_recorded_is_what_is_measured() -> None:
    """Else a ratio could be renamed, and no longer be compared."""
    names = json.loads(RECORDED.read_text(encoding="utf-8"))["ratios"]
    assert len(names) == 5
    for values in names.values():
        assert 0 < values["min"] <= values["median"] <= values["max"]


def test_a_start_ends_with_the_first_step(tiny_path: Path, tmp_path: Path) -> None:
    model = ["model=pretrained", f"model.path='{tiny_path}'"]
    options = ["+experiment=idiolink_ft", "data=sample", "device=cpu", "benchmark=[idiolink]", *model]
    done = run_program("bench.start", *options, f"run_dir='{tmp_path / 'run'}'")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "baseline.json").is_file()
    assert not list((tmp_path / "run").glob("step_*"))
