"""Runs that would learn nothing: refused before they start, or reported at their end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mistakes import OWN, PAIRS, Mistake, run_mistake
from tests.own_data import write
from tests.tiny_runs import metrics, resume, train

NUMBERS = range(48)
PAIRS_FILE = {"train.csv": PAIRS}
EQUAL = "question,answer\n" + "".join(f"Where is number {i}?,It is at home.\n" for i in NUMBERS)
WEIGHTLESS = "question,answer,weight\n" + "".join(f"Where is {i}?,It is at home {i}.,0\n" for i in NUMBERS)
SCORED = "sentence1,sentence2,score\n" + "".join(f"Cat {i} sat.,Cat {i} lay.,{i % 3}\n" for i in NUMBERS)
LEVEL = "sentence1,sentence2,score\n" + "".join(f"Cat {i} sat.,Cat {i} lay.,1\n" for i in NUMBERS)
# Four groups of one label each, in the order of the labels.
GROUPED = "text,label,group\n" + "".join(f"Sentence {i}.,{i // 12},{i // 12}\n" for i in NUMBERS)
LABELLED = "text,label\n" + "".join(f"Sentence {i}.,{i % 4}\n" for i in NUMBERS)
ONE_GROUP = "text,group\n" + "".join(f"Sentence {i}.,one\n" for i in range(24))
VAL = ("data.val=val.csv",)
MIXTURE = ("+experiment=mixture", "device=cpu", "+objective.parts.faq.data.train=train.csv")

MISTAKES = [
    Mistake("batch of one", (*OWN, "trainer.batch_size=1"), ["trainer.batch_size"], PAIRS_FILE),
    Mistake(
        "micro-steps of one",
        (*OWN, "trainer.batch_size=4", "trainer.accumulation=4"),
        ["trainer.batch_size", "trainer.accumulation"],
        PAIRS_FILE,
    ),
    Mistake("equal answers", OWN, ["one text in all rows", "data.columns={positive:"], {"train.csv": EQUAL}),
    Mistake(
        "no negatives",
        (*OWN, "objective.infonce.in_batch=none"),
        ["objective.infonce.in_batch"],
        PAIRS_FILE,
    ),
    Mistake(
        "weights of negatives",
        (*OWN, "objective.infonce.hard_weight=0", "objective.infonce.soft_weight=0"),
        ["objective.infonce.hard_weight", "objective.infonce.soft_weight"],
        PAIRS_FILE,
    ),
    Mistake("weights of rows", OWN, ["column weight"], {"train.csv": WEIGHTLESS}),
    Mistake("one scored pair", (*OWN, "trainer.batch_size=1"), ["trainer.batch_size"], {"train.csv": SCORED}),
    Mistake("equal scores", OWN, ["different scores"], {"train.csv": LEVEL}),
    Mistake(
        "one label a batch",
        (*OWN, *VAL, "objective.order=file", "trainer.batch_size=12"),
        ["objective.order=shuffled"],
        {"train.csv": GROUPED, "val.csv": LABELLED.replace("Sentence", "Held")},
    ),
    Mistake(
        "easy triplets",
        (*OWN, "objective.triplet.triplets=easy"),
        ["objective.triplet.triplets"],
        {"train.csv": LABELLED},
    ),
    Mistake(
        "no term with a weight",
        (*OWN, "objective.triplet.triplet_weight=0"),
        ["objective.triplet.triplet_weight"],
        {"train.csv": LABELLED},
    ),
    Mistake(
        "one group",
        (*OWN, *VAL),
        ["groups"],
        {"train.csv": ONE_GROUP, "val.csv": ONE_GROUP.replace("Sentence", "Held")},
    ),
    Mistake(
        "part of a mixture",
        (*MIXTURE, "+objective.parts.faq.batch_size=1"),
        ["objective.parts.faq.batch_size"],
        PAIRS_FILE,
    ),
    Mistake(
        "option of a part",
        (*MIXTURE, "+objective.parts.faq.options.infonce.in_batch=none"),
        ["objective.parts.faq.options.infonce.in_batch"],
        PAIRS_FILE,
    ),
    Mistake(
        "idiolink without negatives",
        (
            *("+experiment=idiolink_ft", "data=sample", "device=cpu"),
            *("objective.loss.hard_weight=0", "objective.loss.soft_weight=0"),
        ),
        ["objective.loss.hard_weight"],
    ),
    Mistake("train refuses it too", (*OWN, "trainer.batch_size=1"), ["batch_size"], PAIRS_FILE, "train"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_run_that_cannot_learn_is_refused(mistake: Mistake, tmp_path: Path, tiny_path: Path) -> None:
    run_mistake(mistake, tmp_path, tiny_path)


def own_run(folder: Path, tiny_path: Path, content: str, *options: str) -> Path:
    """A run of two epochs on this file, with a high learning rate."""
    data = write(folder / "train.csv", content)
    defaults = [*OWN[:2], f"data.train={data}", "model=pretrained", f"model.path={tiny_path}"]
    defaults += ["data.val_share=0.25", "trainer.batch_size=12", "trainer.max_epochs=2", "eval.cache=false"]
    train(folder / "run", [*defaults, "trainer.learning_rate=1e-3", *options])
    return folder / "run"


def warnings_of(run: Path) -> list[str]:
    return list(json.loads((run / "scores.json").read_text(encoding="utf-8"))["meta"]["warnings"])


UNMOVED = [
    (["trainer.learning_rate=1e-30"], "trainer.learning_rate=1e-30"),
    (["trainer.clip_norm=1e-30", "trainer.weight_decay=0"], "trainer.clip_norm=1e-30"),
    (["trainer.warmup_steps=100000000"], "trainer.warmup_steps"),
    (["retain.interpolation=0"], "retain.interpolation=0"),
    (["retain.lora.rank=2", "trainer.learning_rate=1e-30"], "trainer.learning_rate"),
]


@pytest.mark.parametrize(("options", "named"), UNMOVED, ids=[options[0] for options, _ in UNMOVED])
def test_unmoved_weights_are_reported(
    tmp_path: Path, tiny_path: Path, options: list[str], named: str
) -> None:
    """In the scores, the last screen, the page and the card."""
    run = own_run(tmp_path, tiny_path, PAIRS, *options)
    (warning,) = warnings_of(run)
    assert "weights" in warning
    assert named in warning
    for place in ("report.html", "best/README.md"):
        assert "are the untrained ones" in (run / place).read_text(encoding="utf-8")


def test_scores_that_are_equal_in_all_digits_are_reported(tmp_path: Path, tiny_path: Path) -> None:
    """The weights have moved, by weight decay alone."""
    options = ("trainer.clip_norm=1e-30", "trainer.weight_decay=0.01")
    (warning,) = warnings_of(own_run(tmp_path, tiny_path, PAIRS, *options))
    assert "every score" in warning
    assert "trainer.clip_norm" in warning


def test_a_resumed_run_knows_the_untrained_weights(tmp_path: Path, tiny_path: Path) -> None:
    run = own_run(tmp_path, tiny_path, PAIRS, "trainer.learning_rate=1e-30", "trainer.max_epochs=1")
    resume(run, "trainer.max_epochs=2")
    assert "weights" in warnings_of(run)[0]


def test_a_positive_equal_to_its_anchor_moves_the_weights(tmp_path: Path, tiny_path: Path) -> None:
    """Unsupervised SimCSE: dropout makes the two views; with gradient caching the same."""
    content = "anchor,positive\n" + "".join(f"Where is number {i}?,Where is number {i}?\n" for i in NUMBERS)
    runs = {
        name: own_run(tmp_path / name, tiny_path, content, f"trainer.gradient_caching={name}")
        for name in ("false", "true")
    }
    for run in runs.values():
        losses = [line["loss"] for line in metrics(run) if "loss" in line]
        assert min(losses) > 0
        assert not any("weights" in warning for warning in warnings_of(run))
        assert "empty_steps" not in metrics(run)[-2]
    assert metrics(runs["false"])[0]["loss"] == pytest.approx(metrics(runs["true"])[0]["loss"], rel=1e-5)


def test_empty_steps_are_counted(tmp_path: Path, tiny_path: Path) -> None:
    """The last batch of an epoch has one row, and no negatives: 36 rows and a batch of 35."""
    run = own_run(tmp_path, tiny_path, PAIRS, "trainer.batch_size=35")
    lines = [line for line in metrics(run) if "loss" in line]
    assert [line.get("empty_steps", 0) for line in lines] == [0, 1, 1, 2]
    assert [line["loss"] == 0 for line in lines] == [False, True, False, True]
    notes = json.loads((run / "scores.json").read_text(encoding="utf-8"))["meta"]["notes"]
    assert any("2 of 4 steps learnt nothing" in note and "trainer.batch_size" in note for note in notes)
    assert json.loads((run / "run.json").read_text(encoding="utf-8"))["status"] == "finished"
