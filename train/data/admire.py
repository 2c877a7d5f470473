"""AdMIRe (SemEval-2025 Task 1, subtask A, English): sentences with a compound, and five images each.

Pickard et al. 2025, arXiv 2503.15358; https://semeval2025-task1.github.io.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from train.data.names import AdmireSplit
from train.errors import DataMissingError, UserError
from train.expressions import find_expression, plain_expression
from train.io.paths import is_file, is_plain_name, leads_out
from train.io.records import describe, parse_list, read_table

log = logging.getLogger(__name__)

FOLDER = "admire"
WEBSITE = "https://semeval2025-task1.github.io"
NUM_IMAGES = 5
Sense = Literal["idiomatic", "literal"]

_COLUMNS = (
    *("compound", "sentence_type", "sentence", "expected_order"),
    *(f"image{i}_{what}" for i in range(1, NUM_IMAGES + 1) for what in ("name", "caption")),
)
_MUST_HAVE_GOLD = ("train",)


@dataclass(frozen=True)
class Candidate:
    """An image that may show what the sentence means.

    Attributes:
        name: as the table has it.
        caption: machine-made; on one line.
        path: the file, where images were asked for.
    """

    name: str
    caption: str
    path: Path | None


@dataclass(frozen=True)
class Item:
    """A sentence with a compound, and the images to rank by how well they show its sense there.

    Attributes:
        id: split and row of the table.
        span: offsets of the compound in the sentence; None where it was not found.
        sense: None where it is not public.
        candidates: five, in the order of the table.
        gold_ranks: of each candidate, 0 = best; None where they are not public.
    """

    id: str
    compound: str
    sentence: str
    span: tuple[int, int] | None
    sense: Sense | None
    candidates: tuple[Candidate, ...]
    gold_ranks: tuple[int, ...] | None


@dataclass(frozen=True)
class ItemSplit:
    """A split's items; all of them have gold, or none.

    Attributes:
        num_without_span: items whose compound was not found in the sentence.
    """

    name: AdmireSplit
    items: tuple[Item, ...]
    files: tuple[Path, ...]
    num_without_span: int

    @property
    def has_gold(self) -> bool:
        return self.items[0].gold_ranks is not None


def not_here() -> DataMissingError:
    """What to do where no folder is named: there is no plain address to download from."""
    return DataMissingError(
        "the AdMIRe data (SemEval-2025 Task 1, subtask A, English) is not here, and its public links are not "
        "for programs\n"
        f"  - fetch Training and Development Data from {WEBSITE}, unpack them into one folder (each table, "
        "subtask_a_train.tsv and subtask_a_dev.tsv, there or in train/ and dev/), and name it: "
        f"data.admire=<folder>, or IDIOM_DATA=<folder with {FOLDER}/>\n"
        "  - no data at hand: data=sample runs on the small set that comes with the project"
    )


def read_items(folder: Path, split: AdmireSplit, *, check_images: bool = False) -> ItemSplit:
    """A split's items.

    The table is `subtask_a_<split>.tsv` in `folder` or in `<folder>/<split>`. An image `<stem>.png` of it is
    `images/<split>/<compound>/<stem>.jpg` or `.png`, or lies as published, in `<split>/<compound>/` or
    `<compound>/`; an apostrophe in a compound may be `_` in its folder's name.

    Args:
        check_images: find the images too; captions need none.

    Raises:
        UserError: naming file, row and field of what is wrong: an empty field, an unknown sense, an image
            twice, a gold order that is not one of the item's five images, gold for some items only, an item
            twice, a missing image, a name that is a path or an image that is a link to outside of `folder`.
    """
    path = _table(folder, split)
    items: list[Item] = []
    problems: list[str] = []
    row_of: dict[tuple[str, str], int] = {}
    for number, row in read_table(path, _COLUMNS, delimiter="\t", named_by="compound"):
        where = f"row {number} (compound {row['compound']})"
        filled = [f for f in _COLUMNS if f not in ("sentence_type", "expected_order")]
        empty = [f for f in filled if not _one_line(row[f])]
        problems += [f"{where}, field {f!r}: is empty" for f in empty]
        compound, sentence = row["compound"].strip(), row["sentence"].strip()
        first = row_of.setdefault((compound, sentence), number)
        if first != number:
            problems.append(f"{where}: is the same item as row {first}")
        names = [row[f"image{i}_name"].strip() for i in range(1, NUM_IMAGES + 1)]
        if len(set(names)) < NUM_IMAGES:
            problems.append(f"{where}, fields 'image1_name' to 'image5_name': an image is there twice")
        wrong = _names_that_are_none(folder, split, compound, names)
        problems += [f"{where}, {problem}" for problem in wrong]
        paths: Sequence[Path | None] = [None] * NUM_IMAGES
        if check_images and not wrong:
            paths = [find_image(folder, split, compound, name) for name in names]
            problems += [
                f"{where}, field 'image{i}_name': there is no image {name} in "
                f"{folder / 'images' / split / _folder_name(compound)} or as published"
                for i, (name, found) in enumerate(zip(names, paths, strict=True), 1)
                if found is None and name
            ]
        sense: Sense | None = None
        if (given := row["sentence_type"].strip()) in ("idiomatic", "literal"):
            sense = "idiomatic" if given == "idiomatic" else "literal"
        elif given or split in _MUST_HAVE_GOLD:
            problems.append(f"{where}, field 'sentence_type': {given!r} is neither idiomatic nor literal")
        ranks: tuple[int, ...] | None = None
        if (order := row["expected_order"].strip()) or split in _MUST_HAVE_GOLD:
            try:
                ranks = _gold_ranks(order, names)
            except ValueError as error:
                problems.append(f"{where}, field 'expected_order': {error}")
        candidates = tuple(
            Candidate(name, _one_line(row[f"image{i}_caption"]), found)
            for i, (name, found) in enumerate(zip(names, paths, strict=True), 1)
        )
        span: tuple[int, int] | None = None
        if compound:
            try:
                span = find_expression(sentence, compound)
            except ValueError as error:
                problems.append(f"{where}, field 'compound': {error}")
        items.append(Item(f"{split}_{number}", compound, sentence, span, sense, candidates, ranks))
    if not problems and len({item.gold_ranks is None for item in items}) > 1:
        problems.append("field 'expected_order': is empty in some rows and not in others")
    if problems or not items:
        raise describe(problems or ["there is no row"], str(path))
    without = [item for item in items if item.span is None]
    if without:
        log.warning(
            "%s: the compound was not found in %d of %d sentences (the first: %r in %r)",
            *(path, len(without), len(items), without[0].compound, without[0].sentence),
        )
    return ItemSplit(split, tuple(items), (path,), len(without))


def fold_items(split: ItemSplit, fold: int, folds: int) -> tuple[ItemSplit, ItemSplit]:
    """Cross-validation over compounds: what fold number `fold` trains on, and what it scores.

    Compounds, sorted by name, are shuffled with a fixed seed and dealt out, so that a fold is the same in
    every run; all items of a compound go together.

    Returns:
        The training items, of the split's own name, and the held-out ones, named `train_cv`.

    Raises:
        UserError: if there is no such fold.
    """
    compounds = sorted({plain_expression(item.compound) for item in split.items})
    if not 0 <= fold < folds <= len(compounds):
        raise UserError(
            f"data.fold={fold} of data.folds={folds}: AdMIRe's {split.name} has {len(compounds)} compounds; "
            "folds go from 0, and there are at most as many as compounds"
        )
    order = np.random.default_rng(0).permutation(len(compounds)).tolist()
    held_out = {compounds[i] for i in order[fold::folds]}

    def part(*, is_scored: bool) -> ItemSplit:
        items = tuple(i for i in split.items if (plain_expression(i.compound) in held_out) == is_scored)
        return replace(split, items=items, num_without_span=sum(item.span is None for item in items))

    return part(is_scored=False), replace(part(is_scored=True), name="train_cv")


def first_words(caption: str, number: int) -> str:
    """The caption's first `number` words."""
    return " ".join(caption.split()[:number])


def _table(folder: Path, split: str) -> Path:
    name = f"subtask_a_{split}.tsv"
    for path in (folder / name, folder / split / name):
        if path.is_file():
            return path
    raise UserError(
        f"{folder / name}: there is no such file, nor one in {folder / split}; {folder} is to be the folder "
        f"with the tables of AdMIRe's subtask A (data.admire=, or {FOLDER}/ in IDIOM_DATA)"
    )


def find_image(folder: Path, split: str, compound: str, name: str) -> Path | None:
    """The file of an image, in any of the places of :func:`read_items`; None where it is not there.

    Nor is it there if it lies outside of `folder`: only the data's own images are opened and shown.
    """
    path = _place(folder, split, compound, name)
    return None if path is None or leads_out(path, folder) else path


def _place(folder: Path, split: str, compound: str, name: str) -> Path | None:
    """As :func:`find_image`, wherever links lead."""
    if not all(map(is_plain_name, (split, compound, name))):
        return None
    for above in (folder / "images" / split, folder / split, folder):
        for inside in dict.fromkeys((_folder_name(compound), compound)):
            for file in dict.fromkeys((f"{Path(name).stem}.jpg", name)):
                if is_file(path := above / inside / file):
                    return path
    return None


def _names_that_are_none(folder: Path, split: str, compound: str, names: Sequence[str]) -> list[str]:
    """What is wrong with an item's names as names of a folder and of files in it (empty ones aside)."""
    if compound and not is_plain_name(compound):
        return [f"field 'compound': {compound!r} is no name of a folder, which its images lie in"]
    problems = []
    for i, name in enumerate(names, 1):
        if name and not is_plain_name(name):
            problems.append(f"field 'image{i}_name': {name!r} is no name of a file")
        elif (path := _place(folder, split, compound, name)) is not None and leads_out(path, folder):
            problems.append(f"field 'image{i}_name': {path} is a link to outside of {folder}")
    return problems


def _folder_name(compound: str) -> str:
    return compound.replace("'", "_").replace("’", "_")


def _one_line(caption: str) -> str:
    """Captions hold line breaks as a backslash and an n."""
    return " ".join(caption.replace("\\n", " ").split())


def _gold_ranks(order: str, names: Sequence[str]) -> tuple[int, ...]:
    """The rank of each image, 0 = best, from the table's list of names.

    Raises:
        ValueError: if it is none, or not of these images.
    """
    listed = parse_list(order)
    if listed is None or not all(isinstance(name, str) for name in listed):
        raise ValueError(f"{order!r} is no list of image names")
    if sorted(listed) != sorted(names):
        raise ValueError(f"{order} is not an order of the item's images {', '.join(names)}")
    return tuple(listed.index(name) for name in names)
