"""AdMIRe by captions: scores by hand, the real zero-shot figures, predictions, and missing data."""

from __future__ import annotations

import ast
import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from idiomtune.benchmarks import build_benchmarks
from idiomtune.benchmarks.admire import AdmireBenchmark, admire_keys, order_metrics
from idiomtune.benchmarks.retrieval import rank
from idiomtune.benchmarks.suite import Suite
from idiomtune.config import EvaluateSettings, check
from idiomtune.data.admire import Candidate, Item, ItemSplit, read_items
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.encoder.encoder import Encoder
from idiomtune.errors import UserError
from tests.benchmarks import in_turn
from tests.tiny_runs import composed


def item(number: int, sense: str | None, gold: tuple[int, ...] | None) -> Item:
    candidates = tuple(Candidate(f"{number}{k}.png", f"caption {number}{k}", None) for k in range(5))
    return Item(f"train_{number}", "cold feet", "Cold feet.", (0, 9), sense, candidates, gold)  # type: ignore[arg-type]


def angles(*degrees: float) -> torch.Tensor:
    radians = torch.tensor(degrees).deg2rad()
    return torch.stack([radians.cos(), radians.sin()], 1)


def test_scores_by_hand() -> None:
    """Item 0 is predicted 1, 0, 2, 3, 4 by its sentence and as gold by its span; item 1 as gold by both."""
    items = (item(0, "idiomatic", (0, 1, 2, 3, 4)), item(1, "literal", (4, 3, 2, 1, 0)))
    benchmark = AdmireBenchmark([ItemSplit("train", items, ())], ["caption", "caption_span"])
    assert [r.pooling for r in benchmark.announced[:3]] == ["sentence", "span", "sentence"]
    assert [r.role for r in benchmark.announced[:3]] == ["query", "query", "document"]
    first = angles(0, 350, 349, 5, 40, 60, 80)  # sentence, span, five captions
    second = angles(0, 0, 80, 60, 40, 20, 5)
    result = benchmark.score(in_turn(torch.cat([first, second]) * 3))  # lengths make no difference
    scores = result.by_key
    assert set(scores) == set(admire_keys(["train"], ["caption", "caption_span"]))
    assert scores["admire/train/caption/top1_accuracy"] == 0.5
    assert scores["admire/train/caption/top1_accuracy/idiomatic"] == 0
    assert scores["admire/train/caption/top1_accuracy/literal"] == 1
    assert scores["admire/train/caption/rank_difference"] == 1.0  # 2 and 0
    assert scores["admire/train/caption_span/rank_difference"] == 0.0
    assert scores["admire/train/caption_span/ndcg@5/idiomatic"] == pytest.approx(1.0)
    row = result.per_query[0]
    assert (row["id"], row["mode"], row["rank_difference"]) == ("train_0", "caption", 2.0)
    assert row["order"] == ["01.png", "00.png", "02.png", "03.png", "04.png"]
    assert row["gold"] == ["00.png", "01.png", "02.png", "03.png", "04.png"]


def test_metrics_of_an_order_by_hand() -> None:
    """Candidates b, a, c, d, e predicted as a, b, e, c, d; gold a, b, c, d, e."""
    order = rank(torch.tensor([[0.8, 0.9, 0.2, 0.1, 0.5]]))
    assert order.tolist() == [[1, 0, 4, 2, 3]]
    metrics = order_metrics(order, torch.tensor([[1, 0, 2, 3, 4]]))
    log2 = math.log2
    dcg = 4 / log2(2) + 3 / log2(3) + 0 / log2(4) + 2 / log2(5) + 1 / log2(6)
    best = 4 / log2(2) + 3 / log2(3) + 2 / log2(4) + 1 / log2(5)
    expected = {"top1_accuracy": 1.0, "rank_difference": 4.0, "ndcg@5": dcg / best}
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(expected, abs=1e-12)


def test_without_gold_there_are_predictions_only(tiny: Encoder) -> None:
    folder = SAMPLE_ROOT / "admire"
    splits = [read_items(folder, "train"), read_items(folder, "dev")]
    scorecard = Suite([AdmireBenchmark(splits, ["caption", "caption_span"])]).run(tiny)
    assert set(scorecard.scores) == set(admire_keys(["train"], ["caption", "caption_span"]))
    assert set(scorecard.predictions) == {
        f"admire_{split}_{mode}.tsv" for split in ("train", "dev") for mode in ("caption", "caption_span")
    }
    rows = list(csv.DictReader(io.StringIO(scorecard.predictions["admire_dev_caption.tsv"]), delimiter="\t"))
    assert [row["compound"] for row in rows] == [i.compound for i in splits[1].items]
    for row, dev_item in zip(rows, splits[1].items, strict=True):
        assert sorted(ast.literal_eval(row["expected_order"])) == [c.name for c in dev_item.candidates]


def test_a_compound_that_was_not_found_is_its_sentence() -> None:
    found, missing = item(0, None, None), replace(item(1, None, None), span=None)
    benchmark = AdmireBenchmark([ItemSplit("dev", (found, missing), ())], ["caption_span"])
    assert [benchmark.announced[i].pooling for i in (0, 6)] == ["span", "sentence"]


def test_built_from_the_sample_and_by_split() -> None:
    settings = check(EvaluateSettings, composed("evaluate", "data=sample", "split=[dev,train]"))
    ((built,), missing) = build_benchmarks(settings, ["admire"])
    assert isinstance(built, AdmireBenchmark)
    assert [split.name for split in built.splits] == ["train", "dev"]
    assert [path.name for path in built.files] == ["subtask_a_train.tsv", "subtask_a_dev.tsv"]
    assert missing == {}


def test_later_splits_are_scored_where_their_tables_are(tiny: Encoder, tmp_path: Path) -> None:
    """By their own keys; `split=test` of others says that AdMIRe's is missing, and ends nothing."""
    table = (SAMPLE_ROOT / "admire" / "subtask_a_train.tsv").read_bytes()
    for place in ("EN/test/subtask_a_test.tsv", "PT/xeval/subtask_a_xp.tsv"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_bytes(table)
    settings = check(
        EvaluateSettings, composed("evaluate", f"data.admire={tmp_path}", "split=[extended_pt,test]")
    )
    (built,), _ = build_benchmarks(settings, ["admire"])
    scores = Suite([built]).run(tiny).scores
    assert set(scores) == set(admire_keys(["test", "extended_pt"], ["caption", "caption_span"]))
    for key in admire_keys(["test"], ["caption"]):
        assert scores[key] == scores[key.replace("/test/", "/extended_pt/")]
    settings = check(
        EvaluateSettings, composed("evaluate", "data=sample", "benchmark=[admire,semeval2022]", "split=test")
    )
    built_others, missing = build_benchmarks(settings)
    assert [each.name for each in built_others] == ["semeval2022"]
    assert "subtask_a_test.tsv" in missing["admire"]


def test_missing_data_says_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDIOM_DATA", str(tmp_path))
    settings = check(EvaluateSettings, composed("evaluate"))
    with pytest.raises(UserError, match=r"data\.admire="):
        build_benchmarks(settings, ["admire"])


@pytest.mark.slow
@pytest.mark.usefixtures("figures_cache")
def test_real_figures_of_the_untrained_model(real_data: Path, minilm: Encoder) -> None:
    """Measured independently: top-1 .380, rank difference 5.60, idiomatic .138, literal .714."""
    split = read_items(real_data / "admire", "train")
    scores = Suite([AdmireBenchmark([split], ["caption", "caption_span"])]).run(minilm, keep=True).scores
    caption_scores = {
        "top1_accuracy": 19 / 50,
        "rank_difference": 5.60,
        "top1_accuracy/idiomatic": 4 / 29,
        "top1_accuracy/literal": 15 / 21,
    }
    for metric, expected in caption_scores.items():
        assert scores[f"admire/train/caption/{metric}"] == pytest.approx(expected, abs=1e-9), metric
    assert scores["admire/train/caption_span/top1_accuracy"] == pytest.approx(16 / 50, abs=1e-9)
    assert scores["admire/train/caption_span/rank_difference"] == pytest.approx(6.40, abs=1e-9)
