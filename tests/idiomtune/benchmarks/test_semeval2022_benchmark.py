"""SemEval-2022 Task 2B: scores by hand, submissions in the task's form, the published untrained figures."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor

from idiomtune import Encoder
from idiomtune.benchmarks import Result
from idiomtune.benchmarks.semeval2022 import SemEvalBenchmark
from idiomtune.benchmarks.suite import Suite
from idiomtune.benchmarks.user.pairs import UserPairBenchmark
from idiomtune.benchmarks.user.pairs import read_pairs as read_own_pairs
from idiomtune.data.semeval2022 import Gold, PairSplit, SentencePair, read_pairs
from idiomtune.data.sources import DataFiles
from tests.benchmarks import in_turn, section
from tests.benchmarks import with_cosines as embedded


def split(gold: list[Gold] | None, num: int = 5, name: str = "dev") -> PairSplit:
    """Pairs 0, 1, … of English, the last of Portuguese."""
    pairs = [SentencePair(str(i), "EN" if i < num - 1 else "PT", "x", f"a{i}", f"b{i}") for i in range(num)]
    form = tuple((pair.id, pair.language, s) for s in ("pre_train", "fine_tune") for pair in pairs)
    return PairSplit(name, tuple(pairs), tuple(gold) if gold is not None else None, form, ())  # type: ignore[arg-type]


def scored(gold: list[Gold] | None, rows: Tensor, name: str = "dev", **options: str) -> Result:
    benchmark = SemEvalBenchmark([split(gold, name=name)], section("semeval2022", **options))
    return benchmark.score(in_turn(rows))


def keyed(**scores: float) -> Any:
    return pytest.approx(
        {f"semeval2022/dev/{key.replace('_', '/')}/spearman": v for key, v in scores.items()}
    )


def test_scores_by_hand() -> None:
    """Ranks 1 2 3 against 1 3 2: 1 - 6 * 2 / 24 = 0.5."""
    gold = [Gold(str(i), True, similarity, None) for i, similarity in enumerate([0.1, 0.9, 0.5])]
    result = scored(gold, embedded([0.2, 0.3, 0.7, 0.0, 0.0]))
    assert result.by_key == keyed(en_sts=0.5, en_all=0.5, all_sts=0.5, all_all=0.5)


def test_rounding_of_float32_is_no_difference() -> None:
    """Three pairs that are one sentence each to the model, one of them by the last bit of float32 below."""
    gold = [Gold(str(i), False, similarity, None) for i, similarity in enumerate([1.0, 0.9, 0.8, 0.2])]
    exact = embedded([1.0, 1.0, 1.0, 0.5, 0.0])
    rounded = exact.clone()
    rounded[0, 1], rounded[1, 1] = 2e-4, 1e-4
    scores = [scored(gold, rows).by_key for rows in (exact, rounded)]
    assert scores[0] == scores[1]
    key = "semeval2022/dev/en/idiom/spearman"
    assert scores[0][key] == pytest.approx(spearmanr([1, 1, 1, 0.5], [1, 0.9, 0.8, 0.2]).statistic)


def test_empty_gold_is_the_models_own_similarity_of_the_other_pair() -> None:
    """Pair 0's gold is what the model gives for pair 3, pair 1's what it gives for itself."""
    gold = [Gold("0", False, None, "3"), Gold("1", False, None, "1"), Gold("2", False, 1.0, None)]
    gold.append(Gold("4", True, 0.3, None))
    cosines = [0.8, 0.1, 0.5, 0.6, -0.2]
    result = scored(gold, embedded(cosines))
    predicted, golds = [0.8, 0.1, 0.5, -0.2], [0.6, 0.1, 1.0, 0.3]
    of_idioms = spearmanr(predicted[:3], golds[:3]).statistic
    everything = spearmanr(predicted, golds).statistic
    assert result.by_key == keyed(
        en_idiom=of_idioms, en_all=of_idioms, all_idiom=of_idioms, all_all=everything
    )
    assert [row["gold"] for row in result.per_query] == pytest.approx(golds, abs=1e-6)


@pytest.mark.parametrize("constant", ["predictions", "gold", "one pair"])
def test_where_there_is_no_correlation_there_is_no_key(constant: str) -> None:
    gold = [Gold(str(i), False, 1.0 if constant == "gold" else i / 4, None) for i in range(4)]
    cosines = [0.5] * 5 if constant == "predictions" else [0.1, 0.2, 0.3, 0.4, 0.5]
    kept = gold[:1] if constant == "one pair" else gold
    assert scored(kept, embedded(cosines)).by_key == {}


def test_without_gold_there_are_predictions_only() -> None:
    benchmark = SemEvalBenchmark([split([]), split(None, name="test")], section("semeval2022"))
    assert benchmark.without_gold == ["test"]
    result = benchmark.score(in_turn(embedded([0.5] * 10)))
    assert (result.by_key, result.per_query) == ({}, [])
    assert result.predictions.keys() == {"semeval2022_dev.csv", "semeval2022_test.csv"}


@pytest.mark.parametrize(
    ("setting", "filled"), [("pre_train", {"pre_train"}), ("both", {"pre_train", "fine_tune"})]
)
def test_which_rows_are_filled(setting: str, filled: set[str]) -> None:
    result = scored(None, embedded([0.5, 0.25, 0.0, -0.5, 1.0]), setting=setting)
    rows = list(csv.DictReader(result.predictions["semeval2022_dev.csv"].splitlines()))
    assert {row["Setting"] for row in rows if row["Sim"]} == filled
    got = [float(row["Sim"]) for row in rows if row["Sim"]][:5]
    assert got == pytest.approx([0.5, 0.25, 0.0, -0.5, 1.0], abs=1e-6)


def test_a_submission_is_the_tasks_own_form_filled(semeval_real: DataFiles) -> None:
    """Byte for byte, but for the numbers."""
    form = "SubTaskB/TestData/test_submission_format.csv"
    benchmark = SemEvalBenchmark([read_pairs(semeval_real, "test")], section("semeval2022"))
    rows = torch.randn(len(benchmark.requests), 4, generator=torch.Generator().manual_seed(0))
    text = benchmark.score(in_turn(rows)).predictions["semeval2022_test.csv"]
    lines, given = text.split("\r\n"), semeval_real(form).read_bytes().decode().split("\r\n")
    assert len(lines) == len(given)
    for line, as_given in zip(lines, given, strict=True):
        if line.rpartition(",")[0].endswith("fine_tune"):
            assert as_given == line.rpartition(",")[0] + ","
            assert -1 <= float(line.rpartition(",")[2]) <= 1
        else:
            assert line == as_given


PUBLISHED = {"en": (0.763, 0.005, 0.851), "pt": (0.686, 0.274, 0.629), "all": (0.712, 0.099, 0.834)}


@pytest.mark.figures
@pytest.mark.usefixtures("figures_cache")
def test_the_untrained_model_has_its_published_scores(
    tmp_path: Path, semeval_real: DataFiles, minilm: Encoder, minilm_path: str
) -> None:
    """MiniLM, dev: all, idiom, STS, by the mean of the last two layers, of 128 tokens.

    By that of the last, of 256 tokens, the English STS pairs as a CSV of the user's own.
    """
    last2 = Encoder.from_pretrained(
        minilm_path, device="cpu", pooling="last2", max_length=128, tokens_per_forward=512
    )
    dev = read_pairs(semeval_real, "dev")
    scores = Suite([SemEvalBenchmark([dev], section("semeval2022"))]).run(last2, keep=True).scores
    for language, figures in PUBLISHED.items():
        found = [
            scores[f"semeval2022/dev/{language}/{subset}/spearman"] for subset in ("all", "idiom", "sts")
        ]
        assert found == pytest.approx(figures, abs=0.001), language
    own = UserPairBenchmark("own_sts", {"sts": read_own_pairs(write_sts(tmp_path / "sts.csv", dev))})
    scores = Suite([own]).run(minilm, keep=True).scores
    assert round(scores["own_sts/sts/spearman"], 4) == 0.8552


def write_sts(path: Path, split: PairSplit) -> Path:
    pairs = {pair.id: pair for pair in split.pairs if pair.language == "EN"}
    items = [(pairs[item.id], item) for item in split.gold or () if item.is_sts and item.id in pairs]
    rows = [[pair.id, pair.sentence1, pair.sentence2, item.similarity] for pair, item in items]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["id", "sentence1", "sentence2", "score"], *rows])
    return path
