"""Runs that are scored on the user's own files: any score is monitored, compared and reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.own_data import STS, write, write_collection, write_lines
from tests.tiny_runs import composed, train
from train.config import TrainSettings, check
from train.errors import UserError
from train.reports.compare import compare
from train.reports.frames import group_runs
from train.reports.runs import read_runs

OWN = "benchmark=[own_retrieval,own_sts,own_pairs,own_ranking]"


@pytest.fixture
def own_data(tmp_path: Path) -> list[str]:
    """Options that name a small file of each kind, two of them for scored pairs."""
    mine = write(tmp_path / "mine.csv", STS)
    spans = write(tmp_path / "spans.csv", STS.replace("score", "score,span1", 1).replace(".5\n", ".5,cat\n"))
    spans.write_text(spans.read_text().replace(",0\n", ",0,\n").replace(",2\n", ",2,\n"), encoding="utf-8")
    labels = STS.replace("score", "label").replace("4.5", "1").replace(",2\n", ",1\n")
    rows = [{"query": "a cat", "candidates": ["A cat sat.", "Rates rose.", "A dog."], "grades": [2, 0, 1]}]
    return [
        f"benchmark.own_sts.path={{mine:{mine},spans:{spans}}}",
        f"benchmark.own_pairs.path={write(tmp_path / 'labels.csv', labels)}",
        f"benchmark.own_ranking.path={write_lines(tmp_path / 'ranked.jsonl', rows)}",
        f"benchmark.own_retrieval.path={write_collection(tmp_path / 'log')}",
    ]


@pytest.mark.slow
def test_a_run_is_scored_monitored_and_reported(
    tmp_path: Path, options: list[str], own_data: list[str]
) -> None:
    kept = [o for o in options if not o.startswith(("benchmark", "trainer.m"))]
    chosen = [*kept, OWN, *own_data, "trainer.max_steps=2", "eval.every=1"]
    chosen += [f"benchmark.own_retrieval.store={tmp_path / 'store'}", "benchmark.own_retrieval.shard_size=2"]
    best = train(tmp_path / "run", [*chosen, "trainer.monitor=own_sts/mine/spearman"])
    card = json.loads((tmp_path / "run" / "scores.json").read_text(encoding="utf-8"))
    assert card["scores"]["own_sts/mine/spearman"] == best
    expected = {"own_sts/spans/span/pearson", "own_retrieval/log/ndcg@10", "own_ranking/ranked/spearman"}
    assert expected | {"own_pairs/labels/f1_threshold"} <= card["scores"].keys()
    known = check(TrainSettings, composed("config", *chosen, "trainer.monitor=own_sts/mine/pearson"))
    thresholds = {"own_pairs/labels/f1_threshold", "own_pairs/labels/accuracy_threshold"}
    assert set(card["scores"]) - thresholds <= set(known.score_keys(None))

    paired = compare(group_runs(read_runs([tmp_path / "run"]))[0])
    problems = {why for d in paired.differences for why, _ in d.problems}
    assert problems <= {"too few pairs for an interval"}, "per-query records give the scores"
    compared = {d.key: d for d in paired.differences}
    assert {
        "own_sts/mine/spearman",
        "own_pairs/labels/roc_auc",
        "own_retrieval/log/mrr@10",
    } <= compared.keys()
    assert compared["own_retrieval/log/ndcg@10"].p_query is not None
    assert compared["own_retrieval/log/ndcg@10"].clusters.empty, "queries without a group are by themselves"
    readme = (tmp_path / "run" / "best" / "README.md").read_text(encoding="utf-8")
    assert "own_retrieval/log/ndcg@10" in readme
    assert [path.name for path in (tmp_path / "store").rglob("*")] == ["log", "sentence"], "nothing is left"


def test_what_cannot_be_monitored_is_told_first(own_data: list[str]) -> None:
    """No file is read for it."""
    for key in ("own_sts/theirs/spearman", "own_pairs/labels/f1_threshold"):
        with pytest.raises(UserError, match=key):
            check(TrainSettings, composed("config", OWN, *own_data, f"trainer.monitor={key}"))
    key = "own_retrieval/anywhere/span/ndcg@10"
    check(
        TrainSettings,
        composed(
            "config",
            *("benchmark=[own_retrieval]", "benchmark.own_retrieval.path=no/such/folder/anywhere"),
            f"trainer.monitor={key}",
        ),
    )


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ((), ("benchmark.own_sts", "path")),
        (("benchmark.own_sts.path={a/b:x.csv}",), ("benchmark.own_sts", "'a/b'")),
    ],
)
def test_a_slip_in_the_options_is_told(given: tuple[str, ...], named: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as caught:
        check(TrainSettings, composed("config", "benchmark=[own_sts]", *given))
    assert all(part in str(caught.value) for part in named)
