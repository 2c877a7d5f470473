"""AdMIRe (SemEval-2025 Task 1, subtask A, English): sentences with a compound, and five images each.

Pickard et al. 2025, arXiv 2503.15358; https://semeval2025-task1.github.io.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, create_model

from train.data.datasets import ADMIRE
from train.data.fields import NOT_BLANK, Cell, FilledCell, TableRow
from train.data.folds import held_out
from train.data.names import AdmireSplit
from train.errors import DataMissingError, UserError
from train.expressions import find_expression, plain_expression
from train.io.paths import is_file, is_plain_name, leads_out
from train.io.records import parse_list, raise_problems
from train.io.tables import read_table

log = logging.getLogger(__name__)

FOLDER = ADMIRE.name
WEBSITE = "https://semeval2025-task1.github.io"
NUM_IMAGES = 5
Sense = Literal["idiomatic", "literal"]

_MUST_HAVE_GOLD = ("train",)


def _one_line(caption: str) -> str:
    """Captions hold line breaks as a backslash and an n."""
    return " ".join(caption.replace("\\n", " ").split())


def _plain(name: str) -> str:
    if not is_plain_name(name):
        raise ValueError(f"{name!r} is not the name of a file or folder")
    return name


def _sense(value: str) -> str | None:
    if (sense := value.strip()) not in ("idiomatic", "literal", ""):
        raise ValueError(f"{value!r} is neither idiomatic nor literal")
    return sense or None


_Name = Annotated[FilledCell, AfterValidator(_plain)]
_Caption = Annotated[str, AfterValidator(_one_line), NOT_BLANK]
_IMAGES: dict[str, Any] = {
    f"image{i}_{what}": (cell, ...)
    for i in range(1, NUM_IMAGES + 1)
    for what, cell in (("name", _Name), ("caption", _Caption))
}


class _Sentence(TableRow):
    compound: _Name
    sentence: FilledCell
    sense: Annotated[Sense | None, BeforeValidator(_sense)] = Field(alias="sentence_type")
    expected_order: Cell


_Row = create_model("_Row", __base__=_Sentence, **_IMAGES)


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
    """A split's items; all of them have gold, or none."""

    name: AdmireSplit
    items: tuple[Item, ...]
    files: tuple[Path, ...]

    @property
    def has_gold(self) -> bool:
        return self.items[0].gold_ranks is not None


def not_here() -> DataMissingError:
    """What to do without a folder: the data has no plain address to download from."""
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
    `images/<split>/<compound>/<stem>.jpg` or `.png`, or is as published, in `<split>/<compound>/` or
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
    first_row: dict[tuple[str, str], int] = {}
    for number, row in read_table(path, _Row):
        where = f"row {number} (compound {row.compound})"
        if (first := first_row.setdefault((row.compound, row.sentence), number)) != number:
            problems.append(f"{where}: is the same item as row {first}")
        try:
            items.append(_item(f"{split}_{number}", row, folder, split, check_images=check_images))
        except ValueError as error:
            problems.append(f"{where}, {error}")
    if not problems and len({item.gold_ranks is None for item in items}) > 1:
        problems.append("field 'expected_order': is empty in some rows and not in others")
    raise_problems(problems, path)
    without = [item for item in items if item.span is None]
    if without:
        log.warning(
            "%s: the compound was not found in %d of %d sentences (the first: %r in %r)",
            *(path, len(without), len(items), without[0].compound, without[0].sentence),
        )
    return ItemSplit(split, tuple(items), (path,))


def _item(id_: str, row: _Sentence, folder: Path, split: str, *, check_images: bool) -> Item:
    """The item of a row.

    Raises:
        ValueError: naming the first field that is wrong.
    """
    names, captions = (
        [getattr(row, f"image{i}_{what}") for i in range(1, NUM_IMAGES + 1)] for what in ("name", "caption")
    )
    if len(set(names)) < NUM_IMAGES:
        raise ValueError("fields 'image1_name' to 'image5_name': an image is there twice")
    paths = [_place(folder, split, row.compound, name) for name in names]
    for i, (name, path) in enumerate(zip(names, paths, strict=True), 1):
        if path is not None and leads_out(path, folder):
            raise ValueError(f"field 'image{i}_name': {path} is a link to outside of {folder}")
        if path is None and check_images:
            expected = folder / "images" / split / _folder_name(row.compound)
            raise ValueError(f"field 'image{i}_name': there is no image {name} in {expected} or as published")
    has_gold = split in _MUST_HAVE_GOLD
    if row.sense is None and has_gold:
        raise ValueError("field 'sentence_type': '' is neither idiomatic nor literal")
    try:
        span = find_expression(row.sentence, row.compound)
    except ValueError as error:
        raise ValueError(f"field 'compound': {error}") from None
    ranks = _gold_ranks(row.expected_order, names) if row.expected_order or has_gold else None
    seen = paths if check_images else [None] * NUM_IMAGES
    candidates = tuple(map(Candidate, names, captions, seen))
    return Item(id_, row.compound, row.sentence, span, row.sense, candidates, ranks)


def fold_items(split: ItemSplit, fold: int, folds: int) -> tuple[ItemSplit, ItemSplit]:
    """Cross-validation over compounds: what fold number `fold` trains on, and what it scores.

    Compounds, sorted by name, are shuffled with a fixed seed and dealt out, so that a fold is the same in
    every run; all items of a compound go together.

    Returns:
        The training items, of the split's own name, and the held-out ones, named `train_cv`.

    Raises:
        UserError: if there is no such fold.
    """
    names = [plain_expression(item.compound) for item in split.items]
    scored = held_out(names, fold, folds, f"compounds in AdMIRe's {split.name}")

    def part(*, is_scored: bool) -> ItemSplit:
        items = tuple(i for i in split.items if (plain_expression(i.compound) in scored) == is_scored)
        return replace(split, items=items)

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
        f"{folder / name}: there is no such file, nor one in {folder / split}; {folder} must be the folder "
        f"with the tables of AdMIRe's subtask A (data.admire=, or {FOLDER}/ in IDIOM_DATA)"
    )


def find_image(folder: Path, split: str, compound: str, name: str) -> Path | None:
    """The file of an image, in any of the places of :func:`read_items`; None if it is missing.

    A file outside of `folder` counts as missing: only the data's own images are opened and shown.
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


def _folder_name(compound: str) -> str:
    return compound.replace("'", "_").replace("’", "_")


def _gold_ranks(order: str, names: Sequence[str]) -> tuple[int, ...]:
    """The rank of each image, 0 = best, from the table's list of names.

    Raises:
        ValueError: if it is not a list, or not of these images.
    """
    listed = parse_list(order)
    if listed is None or not all(isinstance(name, str) for name in listed):
        raise ValueError(f"field 'expected_order': {order!r} is not a list of image names")
    if sorted(listed) != sorted(names):
        raise ValueError(
            f"field 'expected_order': {order} is not an order of the item's images {', '.join(names)}"
        )
    return tuple(listed.index(name) for name in names)
