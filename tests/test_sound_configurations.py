"""Sound configurations, which must be neither refused nor warned about; some are trained for two steps."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from unittest.mock import patch

import pytest

from idiomtune.cli import settings_of as checked_settings
from idiomtune.config import TrainSettings, validate
from idiomtune.programs.check import check as check_data
from idiomtune.programs.train import train
from idiomtune.training.run_folder import RunFolder
from tests.mistakes import configured

pytestmark = pytest.mark.usefixtures("in_folder")

Captured = pytest.CaptureFixture[str]
Log = pytest.LogCaptureFixture
INFONCE, TRIPLET = "objective.infonce", "objective.triplet"
MIXTURE = "+experiment=mixture +objective.parts.faq.data.train={pairs}"
FAR = "objective.query_mode=span objective.document_mode=span trainer.batch_size=8"
# One of FILES, and options separated by blanks.
LEARNS = [
    ("pairs", ""),
    ("simcse", ""),
    ("triples", f"{INFONCE}.in_batch=none"),
    ("scored", ""),
    ("labelled", ""),
    ("grouped", "data.columns={label:label}"),
    ("pairs", "forgetting.lora.rank=4 trainer.learning_rate=1e-3"),
]
SOUND = [
    *LEARNS,
    # Data
    ("itself", ""),
    ("yes_no", ""),
    ("six", "trainer.batch_size=2"),
    ("triples", "trainer.batch_size=1"),
    ("weighted", ""),
    ("spans", "objective.query_mode=[span,masked_span]"),
    ("groups", f"{INFONCE}.denominator=all_positives"),
    ("one_meaning", f"objective.groups_per_batch=1 trainer.batch_size=8 {INFONCE}.denominator=all_positives"),
    ("unit", "objective.loss=cosine trainer.batch_size=1"),
    ("scored", "objective.loss=cosine objective.graded.high=5"),
    ("sums", ""),
    ("marks", ""),
    ("numbered", ""),
    ("noted", ""),
    ("rated", "data.columns={score:rating}"),
    ("near.jsonl", f"{FAR} data.val={{partly_far}}"),
    # Options
    ("pairs", "trainer.matryoshka=[16]"),
    ("pairs", "forgetting.weight_interpolation=0.5"),
    ("pairs", f"{INFONCE}.denominator=negatives {INFONCE}.temperature=1"),
    ("pairs", "model.pooling=last2"),
    ("pairs", "model.max_length=64"),
    ("pairs", "model.glossary={glossary}"),
    ("pairs", "model.path=nobody/nothing model.pooling=zzz"),  # nothing is known of it
    ("labelled", f"{TRIPLET}.triplets=hard"),
    ("labelled", f"{TRIPLET}.triplets=easy {TRIPLET}.margin=0.5 {TRIPLET}.mining_margin=0.1"),
    ("spans", "forgetting.distillation=0.5 objective.document_mode=sentence"),
    # Mixtures, and what comes along
    ("", f"{MIXTURE} +objective.parts.rated.data.train={{scored}}"),
    ("", f"{MIXTURE} +objective.parts.faq.proportion=1e-300"),  # of one part it does not matter
    ("", f"data=sample {MIXTURE} +objective.parts.idioms.experiment=idiolink_ft"),
    ("", "data=sample +experiment=idiolink_paper trainer.batch_size=8"),
    ("", "data=sample +experiment=adaptive_triplet_paper model.max_length=64"),
    ("", "data=sample +experiment=joint"),
    ("", "data=sample +experiment=admire_experts"),
    (
        "",
        "data=sample +experiment=admire_aima objective.clip.path={clip} objective.sense_encoder.path={tiny} "
        "objective.captions.summariser=null",
    ),
]


def small(file: str, options: str) -> str:
    """The options, and a batch size for the user's own tables unless there is one."""
    return options if not file or "batch_size" in options else f"{options} trainer.batch_size=12"


@pytest.mark.parametrize(("file", "options"), SOUND)
def test_it_is_in_order(file: str, options: str, tiny_path: Path, caplog: Log, capsys: Captured) -> None:
    check_data(checked_settings(TrainSettings, configured(file, small(file, options), tiny_path)))
    assert "in order" in capsys.readouterr().out
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.slow
@pytest.mark.parametrize(("file", "options"), LEARNS)
def test_it_learns(file: str, options: str, tiny_path: Path, in_folder: Path) -> None:
    """Two steps move the weights, and none is empty."""
    quick = "trainer.max_steps=2 trainer.warmup_ratio=0 trainer.learning_rate=1e-3"
    config = configured(file, f"{small(file, options)} {quick}", tiny_path)
    with patch("idiomtune.reports.plots.draw_figures"):
        train(validate(TrainSettings, config), RunFolder(in_folder / "run", experiment="own"))
    meta = json.loads((in_folder / "run" / "scores.json").read_text(encoding="utf-8"))["meta"]
    assert not any("weights" in warning for warning in meta["warnings"])
    assert not any("learned nothing" in warning for warning in meta["warnings"])
