"""IdioLink's figures of untrained MiniLM, and of what ships, on the real data."""

from pathlib import Path

import pytest

from idiomtune import Encoder
from idiomtune.benchmarks.suite import Suite
from idiomtune.data.idiolink import load_split
from tests.benchmarks import idiolink

# Percent, R-Precision and nDCG@10, of independent runs of the published system, float32 on a CPU.
REFERENCE = {
    "val": {
        "sentence": {"": (40.64, 63.91), "/literal": (51.35, 72.08), "/idiomatic": (29.93, 55.74)},
        "span": {"": (52.80, 67.18), "/literal": (73.62, 89.39), "/idiomatic": (31.98, 44.97)},
        "instruction_sentence": {"": (48.54, 66.65)},
        "instruction_span": {"": (51.67, 59.41)},
    },
    "val+train": {"sentence": {"": (27.42, 48.26)}, "span": {"": (46.90, 64.23)}},
}


@pytest.mark.slow
@pytest.mark.usefixtures("figures_cache")
@pytest.mark.parametrize(
    ("split", "modes"),
    [
        ("val", ["sentence"]),
        *(
            pytest.param(split, list(of_split), marks=pytest.mark.figures)
            for split, of_split in REFERENCE.items()
        ),
    ],
)
def test_figures_of_untrained_minilm(split: str, modes: list[str], real_data: Path, minilm: Encoder) -> None:
    """In every run those of the plain sentences."""
    benchmark = idiolink([load_split(real_data / "idiolink", split)], *modes)
    scores = Suite([benchmark]).run(minilm, keep=True).scores
    for mode in modes:
        for end, pair in REFERENCE[split][mode].items():
            keys = [f"idiolink/{split}/{mode}/{metric}{end}" for metric in ("r_precision", "ndcg@10")]
            assert [100 * scores[key] for key in keys] == pytest.approx(pair, abs=0.05), keys


@pytest.mark.figures
@pytest.mark.usefixtures("figures_cache")
def test_figures_of_what_ships_to_read_meanings(real_data: Path) -> None:
    """Val by sentence, percent; nothing is trained."""
    encoder = Encoder("minilm", glossary="idiolink", device="cpu")
    suite = Suite([idiolink([load_split(real_data / "idiolink", "val")], "sentence")])
    scores = suite.run(encoder, keep=True).scores
    got = [100 * scores[f"idiolink/val/sentence/{metric}"] for metric in ("r_precision", "ndcg@10")]
    assert got == pytest.approx((69.36, 91.63), abs=0.3)
