"""AdMIRe by captions: scores by hand, the real zero-shot figures, predictions, and missing data."""

import ast
import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from idiomtune import Encoder
from idiomtune.benchmarks.admire import AdmireBenchmark, AdmireMode, admire_scores
from idiomtune.benchmarks.suite import Suite
from idiomtune.config import EvaluateSettings, validate
from idiomtune.data.admire import Candidate, Item, ItemSplit, read_items
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.errors import UserError
from tests.benchmarks import benchmarks_of, in_turn
from tests.tiny_runs import composed

MODES: list[AdmireMode] = ["caption", "caption_span"]


def item(number: int, sense: str | None, gold: tuple[int, ...] | None) -> Item:
    candidates = tuple(Candidate(f"{number}{k}.png", f"caption {number}{k}", None) for k in range(5))
    return Item(f"train_{number}", "cold feet", "Cold feet.", (0, 9), sense, candidates, gold)  # type: ignore[arg-type]


def test_scores_by_hand() -> None:
    """Item 0 is predicted 1, 0, 2, 3, 4 by its sentence and as gold by its span; item 1 as gold by both."""
    items = (item(0, "idiomatic", (0, 1, 2, 3, 4)), item(1, "literal", (4, 3, 2, 1, 0)))
    benchmark = AdmireBenchmark([ItemSplit("train", items, ())], MODES)
    asked = [(r.pooling, r.role) for r in benchmark.requests[:3]]
    assert asked == [("sentence", "query"), ("span", "query"), ("sentence", "document")]
    # Degrees of sentence, span and five captions, of both items; lengths make no difference.
    degrees = torch.tensor([0, 350, 349, 5, 40, 60, 80, 0, 0, 80, 60, 40, 20, 5.0]).deg2rad()
    result = benchmark.score(in_turn(torch.stack([degrees.cos(), degrees.sin()], 1) * 3))
    assert set(result.by_key) == set(map(str, admire_scores(["train"], MODES)))
    expected = {
        **{"caption/top1_accuracy": 0.5, "caption/top1_accuracy/idiomatic": 0.0},
        **{"caption/top1_accuracy/literal": 1.0, "caption/rank_difference": 1.0},  # 2 and 0
        **{"caption_span/rank_difference": 0.0, "caption_span/ndcg@5/idiomatic": 1.0},
    }
    assert {key: result.by_key[f"admire/train/{key}"] for key in expected} == pytest.approx(expected)
    row = result.per_query[0]
    assert (row["id"], row["mode"], row["rank_difference"]) == ("train_0", "caption", 2.0)
    assert row["order"] == ["01.png", "00.png", "02.png", "03.png", "04.png"]
    assert row["gold"] == sorted(row["order"])


def test_without_gold_there_are_predictions_only(tiny: Encoder) -> None:
    splits = [read_items(SAMPLE_ROOT / "admire", name) for name in ("train", "dev")]
    scorecard = Suite([AdmireBenchmark(splits, MODES)]).run(tiny)
    assert set(scorecard.scores) == set(map(str, admire_scores(["train"], MODES)))
    files = {f"admire_{split}_{mode}.tsv" for split in ("train", "dev") for mode in MODES}
    assert scorecard.predictions.keys() == files
    rows = csv.DictReader(io.StringIO(scorecard.predictions["admire_dev_caption.tsv"]), delimiter="\t")
    for row, dev_item in zip(rows, splits[1].items, strict=True):
        assert row["compound"] == dev_item.compound
        assert sorted(ast.literal_eval(row["expected_order"])) == [c.name for c in dev_item.candidates]


def test_a_compound_that_was_not_found_is_its_sentence() -> None:
    found, missing = item(0, None, None), replace(item(1, None, None), span=None)
    benchmark = AdmireBenchmark([ItemSplit("dev", (found, missing), ())], ["caption_span"])
    assert [benchmark.requests[i].pooling for i in (0, 6)] == ["span", "sentence"]


def settings_of(*options: str) -> EvaluateSettings:
    settings: EvaluateSettings = validate(EvaluateSettings, composed("evaluate", *options))
    return settings


def test_splits_are_scored_where_their_tables_are(
    tiny: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the data's order, by their own keys; without any table the option is named, or it is left out."""
    ((built,), missing) = benchmarks_of(settings_of("data=sample", "split=[dev,train]"), ["admire"])
    assert [path.name for path in built.files] == ["subtask_a_train.tsv", "subtask_a_dev.tsv"]
    assert missing == {}
    for table in ("EN/test/subtask_a_test.tsv", "PT/xeval/subtask_a_xp.tsv"):
        (tmp_path / table).parent.mkdir(parents=True)
        (tmp_path / table).write_bytes((SAMPLE_ROOT / "admire" / "subtask_a_train.tsv").read_bytes())
    later = settings_of(f"data.admire={tmp_path}", "split=[extended_pt,test]")
    scores = Suite(benchmarks_of(later, ["admire"])[0]).run(tiny).scores
    assert set(scores) == set(map(str, admire_scores(["test", "extended_pt"], MODES)))
    others, missing = benchmarks_of(
        settings_of("data=sample", "benchmark=[admire,semeval2022]", "split=test")
    )
    assert [benchmark.name for benchmark in others] == ["semeval2022"]
    assert "subtask_a_test.tsv" in missing["admire"]
    monkeypatch.setenv("IDIOM_DATA", str(tmp_path / "nothing"))
    with pytest.raises(UserError, match=r"data\.admire="):
        benchmarks_of(settings_of(), ["admire"])


@pytest.mark.figures
@pytest.mark.usefixtures("figures_cache")
def test_real_figures_of_the_untrained_model(real_data: Path, minilm: Encoder) -> None:
    """Measured independently: top-1 .380, rank difference 5.60, idiomatic .138, literal .714."""
    split = read_items(real_data / "admire", "train")
    scores = Suite([AdmireBenchmark([split], MODES)]).run(minilm, keep=True).scores
    expected = {
        **{"caption/top1_accuracy": 19 / 50, "caption/rank_difference": 5.60},
        **{"caption/top1_accuracy/idiomatic": 4 / 29, "caption/top1_accuracy/literal": 15 / 21},
        **{"caption_span/top1_accuracy": 16 / 50, "caption_span/rank_difference": 6.40},
    }
    found = {metric: scores[f"admire/train/{metric}"] for metric in expected}
    assert found == pytest.approx(expected, abs=1e-9)
