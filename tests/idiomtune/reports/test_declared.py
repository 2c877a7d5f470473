"""Reports ask a benchmark's declaration: what is a fact, what no training changes, which queries to show."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from idiomtune.io.files import write_json
from idiomtune.plugins import registry
from idiomtune.plugins.benchmark import BenchmarkOptions, BenchmarkType
from idiomtune.plugins.score import Metric, Score, ScoreTable, read_scores, score_card
from idiomtune.reports.benchmark_report import Answer, BenchmarkReport, Example, RecordsOfRun
from idiomtune.reports.frames import group_runs
from idiomtune.reports.runs import read_runs
from idiomtune.reports.score_tables import changeable, changes, paper_tables
from idiomtune.reports.screens import show_finished_run
from tests.planted_runs import plant, score_at, table_of, write_lines


class Record(BaseModel):
    id: str
    right: bool


def report(run: RecordsOfRun) -> BenchmarkReport:
    before = {record.id: record.right for record in run.read(Record, untrained=True)}
    answers = [Answer("x", "✓", True)]
    shown = [
        Example(f"<{r.id}>", "", "a topic", "right", str(r.right), f", was {before[r.id]}", answers)
        for r in run.read(Record)
    ]
    return BenchmarkReport("Rewordings", "of val", {"All": shown})


@pytest.fixture
def somebodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark of a package outside of this project."""
    metrics = [Metric("accuracy", better=""), Metric("chance", better="", role="constant")]
    declared = BenchmarkType("rewording", BenchmarkOptions, metrics=metrics, report=__name__)
    monkeypatch.setitem(registry._added, "outside", [declared])


def test_facts_are_not_judged() -> None:
    table = changes(table_of({"epsilon/C/p_value": 0.5}), {"epsilon/C/p_value": 0.25})
    assert table.rows == [["epsilon/C/p_value", "0.2500", "0.5000", "+0.2500"]]
    scores = table_of({"idiolink/val/sentence/ndcg@10": 0.5, "own_val/median_rank": 1}).parts
    assert [score.verdict(0.1) for score in scores.values()] == ["better", "worse"]
    assert [score.verdict(0.0) for score in scores.values()] == ["", ""]


def test_a_file_of_scores_has_their_parts() -> None:
    key = "idiolink/val/span/ndcg@10/literal/dim=8"
    content = score_card(table_of({key: 0.5, "epsilon/C/p_value": 0.1}), {key: 0.25}, {})
    parts = {"benchmark": "idiolink", "split": "val", "mode": "span", "metric": "ndcg@10", "slice": "literal"}
    expected = parts | {"dimension": 8, "value": 0.5, "untrained": 0.25}
    assert content["records"][0] == expected
    assert content["records"][1]["untrained"] is None
    (read, _) = read_scores(content["scores"], content["records"])
    assert (str(read), read.split, read.slice, read.dimension, read.value) == (key, "val", "literal", 8, 0.5)


@pytest.mark.usefixtures("somebodys")
def test_a_benchmark_of_a_users_package_shows_its_queries(tmp_path: Path) -> None:
    constant = (
        "idiolink/val/bm25_span/ndcg@10",
        "admire/dev/majority/sense_accuracy",
        "rewording/val/chance",
    )
    scores = dict.fromkeys([*constant, "rewording/val/accuracy"], 0.5)
    assert list(changeable(table_of(scores))) == ["rewording/val/accuracy"]  # by training
    folder = plant(tmp_path / "run", scores={"rewording/val/accuracy": 0.5})
    write_lines(folder / "per_query" / "rewording.jsonl", [{"id": "one", "right": True}, {"id": 3}])
    write_lines(folder / "per_query_baseline" / "rewording.jsonl", [{"id": "one", "right": False}])
    show_finished_run(folder, all_scores=False)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "&lt;one&gt;" in page
    assert "right <b>True</b>, was False" in page
    assert "per_query/rewording.jsonl: 1 lines are damaged" in page


def test_what_is_held_out_has_a_table(tmp_path: Path) -> None:
    """By part and by mode, without the scores of other rows; of those that a part lacks there is none."""
    scores = {"own_val/score": 0.75, "own_val/faq/score": 0.5, "own_val/faq/ndcg@10": 0.5}
    scores |= {"own_val/rated/score": 1.0, "own_val/rated/spearman": 1.0, "own_val/rated/span/spearman": 0.25}
    plant(tmp_path / "run", scores=scores, baseline={})
    (table,) = paper_tables(group_runs(read_runs([tmp_path / "run"])))
    assert table.columns == ["model", "part and mode", "ndcg@10", "spearman"]
    assert [row[1:] for row in table.rows] == [
        ["faq", "0.500", "–"],
        ["rated", "–", "1.000"],
        ["rated/span", "–", "0.250"],
    ]


def test_a_benchmark_without_splits_has_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._added, "outside", [BenchmarkType("rewording", BenchmarkOptions)])
    folder = plant(tmp_path / "run", baseline={})
    scores = [Score("rewording", "", mode, "accuracy", value=v) for mode, v in (("", 0.5), ("word", 0.25))]
    write_json(folder / "scores.json", score_card(ScoreTable(scores), {}, {}))
    (table,) = paper_tables(group_runs(read_runs([tmp_path / "run"])))
    assert (table.columns, table.title) == (["model", "mode", "accuracy"], "rewording")
    assert [row[1:] for row in table.rows] == [["", "0.500"], ["word", "0.250"]]


def test_a_score_says_what_it_is() -> None:
    """Parts, direction and role, by the declared metrics; slices and cut embeddings are details."""
    expected = {
        "idiolink/val/span/ndcg@10": ("val", "span", "", "higher", "headline", True),
        "idiolink/val/span/ndcg@10/literal": ("val", "span", "literal", "higher", "detail", False),
        "idiolink/val/bm25_span/ndcg@10": ("val", "bm25_span", "", "higher", "constant", False),
        "idiolink/val/span/recall_at_r/sense": ("val", "span", "sense", "higher", "detail", False),
        "semeval2022/dev/all/idiom/spearman": ("dev", "all/idiom", "", "higher", "headline", True),
        "semeval2022/dev_a/pt/idiom/spearman": ("dev_a", "pt/idiom", "", "higher", "compared", False),
        "epsilon/pt/C/p_value/head": ("", "pt/C", "head", "", "detail", False),
        "admire/dev/caption/rank_difference": ("dev", "caption", "", "lower", "headline", False),
        "own_sts/pearson/span/pearson": ("pearson", "span", "", "higher", "headline", False),
        "own_val/faq/span/ndcg@10": ("", "faq/span", "", "higher", "headline", False),
        "own_val/score": ("", "", "", "higher", "compared", True),
        "theirs/val/fast/rank_difference": ("val", "fast", "", "lower", "headline", True),
    }
    for key, parts in expected.items():
        (score,) = registry.score_declaration([score_at(key)]).parts.values()
        assert str(score) == key
        assert (score.split, score.mode, score.slice, score.better, score.role, score.is_drawn) == parts, key
