"""Reports ask a benchmark's declaration: what is a fact, what no training changes, which queries to show."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.planted_runs import plant, write_lines
from train.declarations import registry
from train.declarations.benchmark import BenchmarkOptions, BenchmarkType
from train.declarations.examples import Answer, Example, Examples, QueryRecords
from train.declarations.registry import judge
from train.reports import write_run_page
from train.reports.console import print_comparison
from train.reports.scorecard import score_rows


class Record(BaseModel):
    id: str
    right: bool


def examples(run: QueryRecords) -> Examples:
    before = {record.id: record.right for record in run.read(Record, untrained=True)}
    shown = [
        Example(
            f"<{r.id}>",
            "",
            "a topic",
            "right",
            str(r.right),
            f", was {before[r.id]}",
            [Answer("x", "✓", True)],
        )
        for r in run.read(Record)
    ]
    return Examples("Rewordings", "of val", {"All": shown})


@pytest.fixture
def somebodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark of a package outside of this project."""
    declared = BenchmarkType(
        "rewording",
        BenchmarkOptions,
        "nowhere:build",
        is_fact=lambda _: True,
        is_constant=lambda key: key.endswith("/chance"),
        examples=examples,
    )
    monkeypatch.setitem(registry._added, "outside", [declared])


def test_facts_are_not_judged() -> None:
    assert judge("idiolink/val/sentence/ndcg@10", 0.1) == "better"
    assert judge("idiolink/val/sentence/median_rank/sense", 0.1) == "worse"
    assert judge("idiolink/val/sentence/ndcg@10", 0.0) == ""
    assert judge("epsilon/C/p_value", 0.1) == ""
    (row,) = score_rows({"epsilon/C/p_value": 0.5}, {"epsilon/C/p_value": 0.25})
    assert (row.cells, row.verdict) == (("0.2500", "0.5000", "+0.2500"), "")


@pytest.mark.usefixtures("somebodys")
def test_what_training_cannot_change_is_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    constant = [
        "idiolink/val/bm25_span/ndcg@10",
        "admire/dev/majority/sense_accuracy",
        "rewording/val/chance",
    ]
    scores = dict.fromkeys([*constant, "rewording/val/accuracy"], 0.5)
    print_comparison(scores, scores, "[a title]")
    told = capsys.readouterr().out
    assert "[a title]" in told
    assert "rewording/val/accuracy" in told
    assert not [key for key in constant if key in told]


@pytest.mark.usefixtures("somebodys")
def test_a_benchmark_of_a_users_package_shows_its_queries(tmp_path: Path) -> None:
    folder = plant(tmp_path / "run", scores={"rewording/val/accuracy": 0.5})
    write_lines(folder / "per_query" / "rewording.jsonl", [{"id": "one", "right": True}, {"id": 3}])
    write_lines(folder / "per_query_baseline" / "rewording.jsonl", [{"id": "one", "right": False}])
    write_run_page(folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "&lt;one&gt;" in page
    assert "right <b>True</b>, was False" in page
    assert "per_query/rewording.jsonl: 1 lines are damaged" in page
