"""Planted mistakes: texts that a model cannot tell apart; held-out sets that choose no checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mistakes import OWN, PAIRS, Mistake, run_mistake, run_sound


def pairs(question: str, answer: str, num: int = 32) -> dict[str, str]:
    """A table of pairs; `{i}` is the number of the row."""
    rows = [f"{question},{answer}\n".replace("{i}", str(i)) for i in range(num)]
    return {"train.csv": "question,answer\n" + "".join(rows)}


PREAMBLE = "please read this with care " * 20
SENTENCES = "text,group,meaning\n" + "".join(f"It is at home {i}.,g{i % 8},m{i % 2}\n" for i in range(48))
SCORED = "sentence1,sentence2,score\n" + "".join(f"Cat {i} sat.,Cat {i} lay.,{i % 6}\n" for i in range(40))
COSINE = (*OWN, "objective.loss=cosine")

MISTAKES = [
    Mistake(
        "short",
        (*OWN, "model.max_length=3"),
        ["truncated at 3 tokens", "model.max_length"],
        {"train.csv": PAIRS},
    ),
    Mistake(
        "preamble",
        OWN,
        ["are truncated at 64 tokens", "anchors as their positives", "what all texts begin with"],
        pairs(f"{PREAMBLE} where is {{i}}?", f"{PREAMBLE} at home {{i}}."),
    ),
    Mistake(
        "case", OWN, ["24 of 24 anchors as their positives", "case"], pairs("where is {i}?", "WHERE is {i}?")
    ),
    Mistake(
        "blanks", OWN, ["24 of 24 anchors as their positives"], pairs("where is {i}?", "where  is {i} ?")
    ),
    Mistake(
        "row numbers",
        OWN,
        ["train.csv", "positive", "data.columns={positive:"],
        pairs("where is {i}?", "{i}"),
    ),
    Mistake(
        "anchors numbered", OWN, ["train.csv", "anchor", "data.columns={anchor:"], pairs("{i}", "at home {i}")
    ),
    Mistake("one value", OWN, ["train.csv", "positive", "one text"], pairs("where is {i}?", "at home")),
    Mistake(
        "one sentence",
        OWN,
        ["train.csv", "text", "one text"],
        {"train.csv": "text,label\n" + "".join(f"the same,l{i % 4}\n" for i in range(32))},
    ),
    Mistake(
        "invisible",
        OWN,
        ["train.csv", "row 50", "'answer'", "invisible"],
        {"train.csv": PAIRS + "Where is it?,\u200b \ufeff\n"},
    ),
    *(
        Mistake(
            f"{option} without spans",
            (*OWN, f"objective.{option}={mode}"),
            [f"objective.{option}={mode}", "no row of the data has a span"],
            {"train.csv": PAIRS},
        )
        for option, mode in (
            ("query_mode", "span"),
            ("query_mode", "masked_span"),
            ("document_mode", "masked_sentence"),
        )
    ),
    Mistake(
        "cosine",
        COSINE,
        ["objective.graded.low=0", "high=1", "scores from 0 to 5"],
        {"train.csv": SCORED},
    ),
    Mistake(
        "pooling",
        (*OWN, "model.pooling=cls"),
        ["model.pooling=cls", "mean pooling"],
        {"train.csv": PAIRS},
        status=0,
    ),
    Mistake(
        "its own negative",
        OWN,
        ["negatives that equal their anchor: row 2, row 7"],
        {
            "train.csv": "question,answer,negative\n"
            + "".join(
                f"Where is {i}?,At home {i}.,{f'Where is {i}?' if i % 5 == 0 else f'Away {i}.'}\n"
                for i in range(10)
            )
        },
        status=0,
    ),
    Mistake(
        "an answer in capitals",
        OWN,
        ["1 are read as the same tokens as others"],
        {"train.csv": PAIRS + "is it here?,IS IT HERE?\n"},
        status=0,
    ),
    Mistake(
        "one held-out query",
        (*OWN, "data.val=[val.csv]"),
        ["cannot choose a checkpoint", "one query", "data.val="],
        {"train.csv": PAIRS, "val.csv": "question,answer,negative\nwho?,nobody,somebody\n"},
        status=0,
    ),
    Mistake(
        "equal held-out answers",
        (*OWN, "data.val=[val.csv]"),
        ["cannot choose a checkpoint", "relevant"],
        {"train.csv": PAIRS, "val.csv": "question,answer\nwho?,nobody\nwhat?,nobody\n"},
        status=0,
    ),
    Mistake(
        "held-out answers are trained on",
        (*OWN, "data.val=[val.csv]"),
        ["held-out answers that are trained on too: 2 rows (val.csv row 2, val.csv row 4)"],
        {
            "train.csv": PAIRS,
            "val.csv": "question,answer\nwho?,It is at home 3.\nwhat?,nothing\nwhere?,It is at home 4.\n",
        },
        status=0,
    ),
]

# Neither refused nor warned of; what the line about texts says, where they are truncated.
SOUND: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "pairs": (OWN, {"train.csv": PAIRS}),
    "an anchor that is its positive": (OWN, pairs("where is {i}?", "where is {i}?")),
    "sums": (
        OWN,
        {
            "train.csv": "question,answer\n"
            + "".join(f"{i} and {i * i % 7},{i + i * i % 7}\n" for i in range(40))
        },
    ),
    "the checkpoint's pooling, named": ((*OWN, "model.pooling=mean"), {"train.csv": PAIRS}),
    "the last layers": ((*OWN, "model.pooling=last2"), {"train.csv": PAIRS}),
    "cosines below zero": (
        COSINE,
        {
            "train.csv": "sentence1,sentence2,score\n"
            + "".join(f"Cat {i}.,Dog {i}.,{i % 3 - 1}\n" for i in range(40))
        },
    ),
    "a scale that is named": ((*COSINE, "objective.graded.high=5"), {"train.csv": SCORED}),
    "sentences": (OWN, {"train.csv": SENTENCES}),
    "modes of whole texts": ((*OWN, "objective.query_mode=sentence"), {"train.csv": PAIRS}),
    "a model out of reach": ((*OWN, "model.path=nobody/nothing"), {"train.csv": PAIRS}),
    "invisible marks in a text": (OWN, {"train.csv": PAIRS + "Where\u200b is it?,Here\u00ad.\n"}),
    **{
        experiment: ((f"+experiment={experiment}", "data=sample", "device=cpu", "model.max_length=64"), {})
        for experiment in ("idiolink_ft", "adaptive_triplet", "adaptive_triplet_paper", "joint")
    },
}
_WARNINGS = ("as others", "pooling", "cannot choose", "equal their anchor")


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistakes(mistake: Mistake, tmp_path: Path, tiny_path: Path) -> None:
    run_mistake(mistake, tmp_path, tiny_path)


@pytest.mark.parametrize("name", SOUND)
def test_sound(name: str, tmp_path: Path, tiny_path: Path) -> None:
    options, files = SOUND[name]
    done = run_sound(options, tmp_path, tiny_path, files)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert not any(warning in line for line in printed.splitlines() for warning in _WARNINGS), printed


def test_a_negative_with_another_span_is_kept(tmp_path: Path, tiny_path: Path) -> None:
    """The same sentence, of which another stretch is marked."""
    rows = [
        {
            "anchor": f"a cat saw cat {i}",
            "span_start": 2,
            "span_end": 5,
            "positive": f"it saw {i}",
            "negative": {"text": f"a cat saw cat {i}", "span_start": 10, "span_end": 13},
        }
        for i in range(12)
    ]
    files = {"train.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}
    options = [option.replace("train.csv", "train.jsonl") for option in OWN]
    done = run_sound(options, tmp_path, tiny_path, files)
    assert done.returncode == 0, done.stderr
    assert "equal their anchor" not in done.stderr
