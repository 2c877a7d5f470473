"""Writes another corpus of idioms as a table of sentences, to train on beside IdioLink:

    python runs/external_idioms.py pie <data_cleaned.csv> > pie.jsonl
    python runs/external_idioms.py astitch > astitch.jsonl
    python runs/external_idioms.py magpie > magpie.jsonl
    idiomtune train +experiment=mixture +objective.parts.idioms.experiment=idiolink_ft \
        +objective.parts.external.data.train=pie.jsonl benchmark=[idiolink] \
        trainer.monitor=idiolink/val/span/ndcg@10

Such a model is trained with external idiom data: never compare it with the published protocol. All idioms of
IdioLink are left out. MAGPIE and AStitchInLanguageModels are those in $IDIOM_DATA, or downloaded.

- PIE (Zhou et al. 2021, GitHub `zhjjn/MWE_PIE`): idiomatic sentences, their paraphrases, and senses; each
  sense is a group.
- AStitchInLanguageModels: its training sentences, and the only meaning of a compound.
- MAGPIE: the sentences that a gate learns from, and `magpie_senses.tsv`: our own (CC0) about the same
  expressions, which say in other words what these mean.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from idiomtune.data import astitch, magpie
from idiomtune.data.astitch import read_senses, read_usages
from idiomtune.data.names import ASTITCH, MAGPIE
from idiomtune.data.sources import DataFiles, GitHubData, dataset_folder
from idiomtune.expressions import is_among, plain_expression
from idiomtune.glossaries.tables import GLOSSARIES, read_glossary
from idiomtune.io.terminal import log_to_stderr
from idiomtune.requests import LabelledUse

Row = dict[str, Any]
_NO_SPACE_BEFORE = re.compile(r"[.,!?;:%)\]…]+|n['’]t|['’](s|re|ve|ll|d|m)?", re.IGNORECASE)


def sentence(text: str, start: int, end: int, group: str, *, is_literal: bool = False) -> Row:
    """A row: what is between the offsets is used in one of the group's two meanings."""
    meaning = "literal" if is_literal else "idiomatic"
    return {"text": text, "span_start": start, "span_end": end, "group": group, "meaning": meaning}


def pie(path: str) -> Iterator[Row]:
    """Rows of PIE, whose tokens have labels: B and I are of the idiom, or of its paraphrase."""
    senses: set[str] = set()
    with Path(path).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            idiom, sense = row["Idiom"].strip(), row["Sense"].strip(" ,")
            group = f"{idiom}: {sense}"
            for kind in ("Idiomatic", "Literal"):  # a literal paraphrase has the idiom's meaning
                labels = row[f"{kind}_Label"].split()
                marked = [number for number, label in enumerate(labels) if label in ("B", "I")]
                if marked:
                    yield sentence(*detokenised(row[f"{kind}_Sent"].split(), marked[0], marked[-1]), group)
            if group not in senses:
                senses.add(group)
                yield sentence(sense, 0, len(sense), group)


def detokenised(tokens: list[str], first: int, last: int) -> tuple[str, int, int]:
    """Text as people write it, and the offsets of the tokens `first` to `last` in it."""
    text, start, end = "", 0, 0
    for number, token in enumerate(tokens):
        word = '"' if token in ("``", "''") else token
        text += word if not text or _NO_SPACE_BEFORE.fullmatch(token) or text[-1] in "([$" else f" {word}"
        start = len(text) - len(word) if number == first else start
        end = len(text) if number == last else end
    return text, start, end


def of_usages(usages: list[LabelledUse]) -> Iterator[Row]:
    """Rows of labelled sentences."""
    for usage in usages:
        if usage.span is not None:
            group = plain_expression(usage.phrase)
            yield sentence(usage.sentence, *usage.span, group, is_literal=not usage.is_idiomatic)


def local_or_published(source: GitHubData) -> DataFiles:
    """The files of a data set."""
    dataset = {"astitch": ASTITCH, "magpie": MAGPIE}[source.dataset.name]
    return DataFiles(source, dataset_folder(dataset, None, None, sample=False))


def astitch_rows() -> Iterator[Row]:
    """Rows of AStitchInLanguageModels: which of several meanings a sentence has is not known."""
    files = local_or_published(astitch.FILES)
    usages = list(read_usages(files, ["train_zero_shot"]).usages)
    yield from of_usages(usages)
    compounds = {plain_expression(usage.phrase) for usage in usages if usage.is_idiomatic}
    for name, meanings in read_senses(files(astitch.SENSES_FILE)).items():
        if name in compounds and len(meanings.non_literal) == 1:
            yield sentence(meanings.non_literal[0], 0, len(meanings.non_literal[0]), name)


def magpie_rows(unseen: list[str]) -> Iterator[Row]:
    """Rows of MAGPIE, and of the project's own sentences; their spans are in brackets."""
    usages = magpie.read_magpie(local_or_published(magpie.FILES), unseen)
    yield from of_usages(usages)
    expressions = {usage.phrase for usage in usages}
    with Path(__file__).with_name("magpie_senses.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["expression"] in expressions:
                before, span, after = re.split(r"[\[\]]", row["sentence"])
                start = len(before)
                group = plain_expression(row["expression"])
                yield sentence(before + span + after, start, start + len(span), group)


def main(corpus: str, path: str = "") -> None:
    """Print the table."""
    log_to_stderr()
    unseen = list(read_glossary([GLOSSARIES / "idiolink.tsv"]).senses)
    rows = {"pie": lambda: pie(path), "astitch": astitch_rows, "magpie": lambda: magpie_rows(unseen)}
    for row in rows[corpus]():
        if not is_among(row["group"].partition(": ")[0], unseen):
            print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
