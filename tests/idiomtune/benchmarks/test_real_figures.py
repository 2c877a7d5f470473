"""IdioLink's figures of untrained MiniLM on the real data, from one pass over its texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from idiomtune.benchmarks import Benchmark
from idiomtune.benchmarks.own.collections import read_collection
from idiomtune.benchmarks.own.retrieval import OwnRetrievalBenchmark
from idiomtune.benchmarks.suite import Suite
from idiomtune.data.idiolink import load_split
from idiomtune.encoder.encoder import Encoder
from tests.benchmarks import idiolink
from tests.own_data import write_beir

# Percent, R-Precision and nDCG@10: all, literal, idiomatic.
REFERENCE = {
    "sentence": [(40.64, 63.91), (51.35, 72.08), (29.93, 55.74)],
    "span": [(52.80, 67.18), (73.62, 89.39), (31.98, 44.97)],
    "instruction_sentence": [(48.54, 66.65), (68.40, 88.59), (28.68, 44.70)],
    "instruction_span": [(51.67, 59.41), (72.70, 88.46), (30.65, 30.36)],
}
REFERENCE_VAL_TRAIN = {"sentence": (27.42, 48.26), "span": (46.90, 64.23)}


@pytest.mark.slow
@pytest.mark.usefixtures("figures_cache")
def test_figures_of_untrained_minilm(tmp_path: Path, real_data: Path, minilm: Encoder) -> None:
    val, both = (load_split(real_data / "idiolink", name) for name in ("val", "val+train"))
    modes = list(REFERENCE)
    benchmarks: list[Benchmark] = [
        idiolink([val, both], *modes),
        OwnRetrievalBenchmark([read_collection("mine", write_beir(tmp_path, val))]),
    ]
    scores = Suite(benchmarks).run(minilm, keep=True).scores
    check_the_reference(scores)
    check_as_a_users_own(scores)


def check_the_reference(scores: dict[str, float]) -> None:
    """Independent runs of the published system, float32 on a CPU: to 0.05 points in every slice."""
    for mode, slices in REFERENCE.items():
        for suffix, pair in zip(("", "/literal", "/idiomatic"), slices, strict=True):
            for metric, expected in zip(("r_precision", "ndcg@10"), pair, strict=True):
                got = 100 * scores[f"idiolink/val/{mode}/{metric}{suffix}"]
                assert got == pytest.approx(expected, abs=0.05), (mode, metric, suffix)
    for mode, pair in REFERENCE_VAL_TRAIN.items():
        for metric, expected in zip(("r_precision", "ndcg@10"), pair, strict=True):
            got = 100 * scores[f"idiolink/val+train/{mode}/{metric}"]
            assert got == pytest.approx(expected, abs=0.05), (mode, metric)


def check_as_a_users_own(scores: dict[str, float]) -> None:
    """Its val in BEIR's layout."""
    for mode, between in (("sentence", ""), ("span", "span/")):
        got = scores[f"own_retrieval/mine/{between}ndcg@10"]
        assert got == pytest.approx(scores[f"idiolink/val/{mode}/ndcg@10"], abs=1e-6)
    assert 100 * scores["own_retrieval/mine/ndcg@10"] == pytest.approx(63.91, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "expected"),
    [("minilm", (69.36, 91.63)), ("minilm_idioms", (72.92, 92.40))],
    ids=["gate", "adapters"],
)
def test_figures_of_what_ships_to_read_meanings(
    model: str, expected: tuple[float, float], real_data: Path
) -> None:
    """Val by sentence, percent; nothing is trained."""
    encoder = Encoder(model, glossary="idiolink", device="cpu")
    scores = Suite([idiolink([load_split(real_data / "idiolink", "val")], "sentence")]).run(encoder).scores
    got = [100 * scores[f"idiolink/val/sentence/{metric}"] for metric in ("r_precision", "ndcg@10")]
    assert got == pytest.approx(expected, abs=0.3)
