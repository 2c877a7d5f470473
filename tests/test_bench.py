"""The benchmark: all ways agree, a difference is an error, figures are what they are named."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers import SentenceTransformer

from bench import __main__ as program
from bench import growth as growth_program
from bench import library, ours, predecessor
from bench import workload as workloads
from bench.cases import grown, own_files
from bench.measure import Measured, Time, useful_operations
from bench.report import Run, Work, disagreements, summary, table
from bench.workload import Kind, Workload, splits
from idiomtune.encoder.encoder import Encoder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workload(tiny_path: Path) -> Workload:
    return Workload("sample", model=str(tiny_path), steps=4, batch_size=8)


def test_all_ways_give_the_same_losses_and_scores(workload: Workload) -> None:
    """So the library's loss is InfoNCE with every positive and negative of the batch, unmasked."""
    mine, theirs, library_run = (way.run(workload) for way in (ours, predecessor, library))
    assert len(mine.losses) == 4
    assert max(mine.losses) - min(mine.losses) > 1e-2  # other texts, changed weights
    for other in (theirs, library_run):
        assert mine.losses == pytest.approx(other.losses, abs=1e-4)
        near, problems = disagreements(mine, other, dropout=False, bf16=False)
        assert not problems
        assert ("of 8 scores" in near) == bool(other.scores) == (other is theirs)
        assert other.train is not None
        assert other.train.cpu > 0


@pytest.mark.parametrize("kind", ["pairs", "scored"])
def test_a_users_own_file_gives_the_trainers_losses(workload: Workload, tmp_path: Path, kind: Kind) -> None:
    """Of pairs `MultipleNegativesRankingLoss`, of scored pairs `CoSENTLoss`, also after several steps."""
    (case,) = own_files(workload, [kind])
    assert case.ways == ("ours", "sentence_transformers")
    on_file = case.prepared(tmp_path)
    mine, theirs = ours.run(on_file), library.run(on_file)
    near, problems = disagreements(mine, theirs, dropout=False, bf16=False, own=True)
    assert not problems
    assert "1e-05" in near
    assert max(mine.losses) - min(mine.losses) > 1e-2


def _measured(train: float, score: float | None = None) -> Measured:
    scores, time = ({}, None) if score is None else ({"a/b": 0.5}, Time(2 * score, score))
    return Measured([2.0, 1.0], scores, [Time(2 * train, train)], 100.0, time)


def test_a_difference_is_an_error() -> None:
    mine, theirs = _measured(1.0, 1.0), _measured(2.0, 3.0)
    assert not disagreements(mine, theirs, dropout=False, bf16=False)[1]
    other = dataclasses.replace(mine, losses=[2.0, 1.01])
    assert "losses differ" in disagreements(other, theirs, dropout=False, bf16=False)[1][0]
    assert not disagreements(other, theirs, dropout=False, bf16=True)[1]
    assert not disagreements(other, theirs, dropout=True, bf16=False)[1]
    other = dataclasses.replace(mine, scores={"a/b": float("nan")})
    assert "a/b" in disagreements(other, theirs, dropout=False, bf16=False)[1][0]
    assert disagreements(dataclasses.replace(mine, losses=[]), theirs, dropout=True, bf16=False)[1]


def test_figures_by_hand() -> None:
    """Work of 12 operations in 2, 4 and 3 seconds of a machine that makes 4, 2 and 4 a second."""
    mine = [Run(_measured(t, 1.0), 200.0, rate, 1.0) for t, rate in ((2.0, 4.0), (4.0, 2.0), (3.0, 4.0))]
    theirs = [Run(_measured(t), 300.0, 1.0, 1.0) for t in (3.0, 4.0, 6.0)]
    figures = summary(Work(6, 12.0, 1.0, 0, 0), {"ours": mine, "sentence_transformers": theirs})
    assert figures["ours"]["train_cpu_s"] == 3.0
    assert figures["ours"]["train_wall_s"] == 6.0
    assert figures["ours"]["tuples_per_cpu_s"] == 2.0
    assert figures["ours"]["train_of_matmul_rate"] == pytest.approx(1.5)  # of 1.5, 1.5 and 1
    assert figures["sentence_transformers"]["train_times_ours_cpu"] == [1.5, 1.0, 2.0]
    assert "score_cpu_s" not in figures["sentence_transformers"]
    assert "faster than sentence_transformers: training 1.50× (1.00–2.00) cpu" in table(figures)


def test_useful_operations_by_hand(tiny: Encoder) -> None:
    """Two layers of width 32: 4 · 32² + 2 · 32 · 64 weights each. "a b" has 4 tokens, and counts once."""
    model: SentenceTransformer = tiny.model
    linear, attention = 2 * 4 * 2 * (4 * 32**2 + 2 * 32 * 64), 4 * 2 * 4**2 * 32
    assert useful_operations(model, ["a b", "a b"]) == linear + attention


def test_a_grown_corpus_has_more_documents_and_no_text_twice(workload: Workload, tmp_path: Path) -> None:
    _, before = splits(workload.settings())
    _, after = splits(grown(workload, 16, tmp_path).settings())
    assert len(after.documents) == 16 * len(before.documents)
    assert len({d.sentence for d in after.documents}) == len(after.documents)
    assert after.queries == before.queries


def test_it_compares_and_writes(workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With runs made up: the program's way from options to the table, the file and the picture."""
    calls: list[str] = []

    def made_up(ways: Sequence[str], _: Workload) -> list[Run]:
        calls.extend(ways)
        return [Run(_measured(3.0 if way == "ours" else 6.0, 1.0), 9.0, 1e9, 1e9) for way in ways]

    monkeypatch.setattr(program, "run_in_turn", made_up)
    monkeypatch.setattr(program, "processor_times", lambda _: {"imports": 2.0, "train --help": 1.0})
    monkeypatch.setattr(workloads, "has_bf16_instructions", lambda: True)
    options = ["--data=sample", f"--model={workload.model}", "--steps=2", "--pairs=2", f"--output={tmp_path}"]
    assert program.main(options) == 0
    (tmp_path / "bench.png").stat()
    results = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    names = ["training fp32, batch 8", "training bf16, batch 8", "dropout off and scorecard"]
    assert [case["name"] for case in results["cases"]] == [*names, "a CSV of pairs", "a CSV of scored pairs"]
    assert results["cases"][0]["work"]["tuples"] == 8  # one timed step
    assert results["cases"][0]["figures"]["predecessor"]["train_times_ours_cpu"] == [2.0, 2.0]
    assert calls.count("predecessor") == 2 * 2  # not in the second precision
    assert calls.count("sentence_transformers") == 2 * 3 + 2  # own files once
    assert results["start"] == [{"imports": 2.0, "train --help": 1.0}] * 2
    assert results["machine"]["threads"] == torch.get_num_threads()


def test_settings_arrive_whole(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Workload] = []

    def made_up(_: object, given: Workload) -> Run:
        seen.append(given)
        return Run(_measured(1.0), 1.0, 1.0, 1.0)

    monkeypatch.setattr(program, "run_here", made_up)
    changes: Any = {"dropout": True, "score": False, "precision": "bf16", "kind": "pairs"}
    threads = torch.get_num_threads()  # others would stay, and hang in a fork
    other = dataclasses.replace(workload, steps=3, threads=threads, **changes)
    assert program.main(["--way=ours", *other.arguments()]) == 0
    assert seen == [other]


def test_a_run_in_a_process_gives_what_one_here_gives(workload: Workload) -> None:
    small = dataclasses.replace(workload, steps=3, threads=torch.get_num_threads())
    (apart,), here = program.run_in_turn(["ours"], small), ours.run(small)
    assert len(apart.measured.steps) == small.steps - 1
    assert (apart.measured.losses, apart.measured.scores) == (here.losses, here.scores)
    assert apart.measured.score is not None
    assert apart.peak_memory >= (apart.measured.train_memory or 0) > 0
    assert apart.train_rate > 0


def test_growth_by_hand_and_measured(
    workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert growth_program.exponent({1: 2.0, 4: 8.0, 16: 32.0}) == pytest.approx(1.0)
    assert growth_program.exponent({10: 3.0, 100: 300.0}) == pytest.approx(2.0)
    sizes = {"COPIES": (1, 2), "BATCH_SIZES": (4, 32), "GLOSSARIES": (10, 100), "PROCESSES": (1,)}
    for name, values in sizes.items():
        monkeypatch.setattr(growth_program, name, values)
    assert growth_program.processes(workload)[1] > 0
    monkeypatch.setattr(growth_program, "processes", lambda _: {1: 2.0, 2: 1.0})
    rows: list[int] = []

    def here(_: Sequence[str], given: Workload) -> list[Run]:
        if given.kind == "pairs":
            rows.append(len(set(Path(given.data).read_text(encoding="utf-8").splitlines())) - 1)
        return [Run(ours.run(given), 1.0, 1.0, 1.0)]

    assert len(growth_program.growth(workload, here, tmp_path).splitlines()) == 2 + 4
    assert rows[0] >= 32  # all different
    measured = json.loads((tmp_path / "growth.json").read_text(encoding="utf-8"))
    assert [len(seconds) for seconds in measured.values()] == [2] * 4
    assert all(value > 0 for seconds in measured.values() for value in seconds.values())
