"""Sound configurations, which must be neither refused nor warned about."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.own_data import write
from tests.test_mistakes_training import LABELLED, SCORED
from tests.tiny_clip import save_tiny_clip
from tests.tiny_runs import composed, train
from train.config import TrainSettings, check
from train.programs.prepare import check_data


def rows(head: str, row: Callable[[int], str], num: int = 48) -> str:
    """A table as CSV."""
    return f"{head}\n" + "".join(f"{row(i)}\n" for i in range(num))


SIDES = ("Up", "Down")
FILES = {
    "pairs": rows("question,answer", lambda i: f"Where is number {i}?,It is at home {i}."),
    "simcse": rows("anchor,positive", lambda i: f"Sentence number {i}.,Sentence number {i}."),
    "symmetric": rows("anchor,positive", lambda i: f"{SIDES[i % 2]} {i // 2}.,{SIDES[i % 2 - 1]} {i // 2}."),
    "itself_too": rows("anchor,positive", lambda i: f"Is {i // 2} up?,{['Is', 'So is'][i % 2]} {i // 2} up?"),
    "triples": rows("anchor,positive,negative", lambda i: f"Where is {i}?,It is home {i}.,It is far {i}."),
    "weighted": rows("question,answer,weight", lambda i: f"Where is {i}?,Home {i}.,{i % 3}"),
    "few_answers": rows("question,answer", lambda i: f"Is {i} even?,{['Yes', 'No'][i % 2]}"),
    "six": rows("question,answer", lambda i: f"Where is {i}?,Home {i}.", 6),
    "spans": rows("anchor,positive,span", lambda i: f"He broke the ice {i}.,All relaxed {i}.,broke the ice"),
    "groups": rows("text,group,meaning", lambda i: f"Sentence {i}.,g{i // 8},{i % 2}"),
    "one_meaning": rows("text,group", lambda i: f"Sentence {i}.,g{i // 8}"),
    "scored": SCORED,
    "ratings": rows("sentence1,sentence2,score", lambda i: f"Cat {i} sat.,Cat {i} lay.,{i % 2}"),
    "labelled": LABELLED,
    "grouped": rows("text,label,group", lambda i: f"Sentence {i}.,{i // 3},{i // 6}"),
}  # fmt: skip
SAMPLE = ("data=sample",)
# name → file (or None) and options; with `train`, it is also trained for a step or two.
SOUND: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "pairs": ("pairs", ()),
    "simcse": ("simcse", ()),
    "simcse, positives in the batch": ("simcse", ("objective.infonce.in_batch=positives",)),
    "symmetric pairs": ("symmetric", ()),
    "questions under themselves": ("itself_too", ()),
    "few different answers": ("few_answers", ()),
    "tiny": ("six", ("trainer.batch_size=2",)),
    "a batch larger than the data": ("six", ("trainer.batch_size=64",)),
    "own negatives": ("triples", ()),
    "own negatives alone": ("triples", ("objective.infonce.in_batch=none",)),
    "own negatives, a batch of one": ("triples", ("trainer.batch_size=1",)),
    "soft negatives alone": ("pairs", ("objective.infonce.hard_weight=0",)),
    "all positives": ("groups", ("objective.infonce.denominator=all_positives",)),
    "one group a batch": ("groups", ("objective.groups_per_batch=1", "trainer.batch_size=8")),
    "one group a batch, competing": (
        "one_meaning",
        (
            *("objective.groups_per_batch=1", "trainer.batch_size=8"),
            "objective.infonce.denominator=all_positives",
        ),
    ),
    "weights, some 0": ("weighted", ()),
    "as printed": ("pairs", ("objective.infonce.denominator=negatives", "objective.infonce.temperature=1")),
    "false negatives kept": ("few_answers", ("objective.infonce.false_negatives=keep",)),
    "spans": ("spans", ()),
    "masked spans": ("spans", ("objective.query_mode=[span,masked_span]",)),
    "groups and meanings": ("groups", ()),
    "groups": ("one_meaning", ()),
    "scored": ("scored", ()),
    "scored, by cosine": ("ratings", ("objective.loss=cosine",)),
    "scored by cosine, one at a time": ("ratings", ("objective.loss=cosine", "trainer.batch_size=1")),
    "labelled": ("labelled", ()),
    "labels in groups": ("grouped", ()),
    "hard triplets": ("labelled", ("objective.triplet.triplets=hard",)),
    "easy triplets with a margin": (
        "labelled",
        (
            *("objective.triplet.triplets=easy", "objective.triplet.margin=0.5"),
            "objective.triplet.mining_margin=0.1",
        ),
    ),
    "accumulation": ("pairs", ("trainer.accumulation=4", "trainer.batch_size=16")),
    "gradient caching": ("pairs", ("trainer.gradient_caching=true",)),
    "lora": ("pairs", ("retain.lora.rank=4", "trainer.learning_rate=1e-3")),
    "interpolation": ("pairs", ("retain.interpolation=0.5",)),
    "matryoshka": ("pairs", ("trainer.matryoshka=[16]",)),
    "distillation": ("spans", ("retain.distillation=0.5", "objective.document_mode=sentence")),
    "a teacher alone": (
        "pairs",
        (
            *("objective.infonce.in_batch=none", "retain.distillation=1"),
            *("retain.teacher={tiny}", "retain.teacher_texts=all"),
        ),
    ),
    "mixture": (
        None,
        (
            *("+experiment=mixture", "+objective.parts.faq.data.train={pairs}"),
            "+objective.parts.rated.data.train={scored}",
        ),
    ),
    "mixture with an experiment": (
        None,
        (
            *(*SAMPLE, "+experiment=mixture", "+objective.parts.faq.data.train={pairs}"),
            "+objective.parts.idioms.experiment=idiolink_ft",
        ),
    ),
    **{
        experiment: (None, (*SAMPLE, f"+experiment={experiment}", *more))
        for experiment, more in {
            "idiolink_ft": (),
            "idiolink_paper": ("trainer.batch_size=8",),
            "idiolink_released": ("trainer.batch_size=8",),
            "adaptive_triplet": (),
            "adaptive_triplet_paper": ("model.max_length=64",),  # what the tiny model has
            "joint": (),
            "admire_experts": (),
            "admire_aima": (
                *("objective.clip.path={clip}", "objective.sense_encoder.path={tiny}"),
                "objective.captions.summariser=null",
            ),
        }.items()
    },
}  # fmt: skip
TRAINED: tuple[str, ...] = (
    "pairs",
    "simcse",
    "symmetric pairs",
    "questions under themselves",
    "own negatives alone",
    "scored",
)
TRAINED += ("labelled", "labels in groups", "lora", "matryoshka", "interpolation", "a teacher alone")


def options_of(name: str, folder: Path, tiny: Path) -> list[str]:
    """The options, the files that they name written to the folder."""
    paths = {file: write(folder / f"{file}.csv", content) for file, content in FILES.items()}
    file, options = SOUND[name]
    clip = save_tiny_clip(folder / "clip") if name == "admire_aima" else None
    own = [] if file is None else ["+experiment=own", f"data.train={paths[file]}", "data.val_share=0.25"]
    model = ["device=cpu", "model=pretrained", f"model.path={tiny}", "eval.cache=false"]
    small = [] if any("batch_size" in o for o in options) or file is None else ["trainer.batch_size=12"]
    return [
        *own,
        *model,
        *small,
        *(o.format(tiny=tiny, clip=clip, **paths) if "={" in o else o for o in options),
    ]


@pytest.mark.parametrize("name", SOUND)
def test_it_is_in_order(
    name: str,
    tmp_path: Path,
    tiny_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("train.programs.prepare.describe_memory", lambda *_: [])  # takes longer than the rest
    check_data(check(TrainSettings, composed("config", *options_of(name, tmp_path, tiny_path))))
    assert "in order" in capsys.readouterr().out
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("name", TRAINED)
def test_it_learns(name: str, tmp_path: Path, tiny_path: Path) -> None:
    """Two steps move the weights, and none is empty."""
    steps = ["trainer.max_steps=2", "trainer.warmup_ratio=0", "trainer.learning_rate=1e-3"]
    train(tmp_path / "run", [*options_of(name, tmp_path, tiny_path), *steps])
    meta = json.loads((tmp_path / "run" / "scores.json").read_text(encoding="utf-8"))["meta"]
    assert not any("weights" in warning for warning in meta["warnings"])
    assert not any("learnt nothing" in note for note in meta["notes"])
