"""AdMIRe (SemEval-2025 Task 1, subtask A): sentences with a compound, and five images each.

Pickard et al. 2025, arXiv 2503.15358; https://semeval2025-task1.github.io; data: doi
10.15131/shef.data.28436600.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from idiomtune.data.names import ADMIRE, ADMIRE_SENSES, AdmireSplit, held_out_names
from idiomtune.errors import DataMissingError, UserError
from idiomtune.expressions import find_expression, plain_expression
from idiomtune.io.files import is_file, is_plain_name, leads_out, parse_list
from idiomtune.io.tables import Row, read_checked_table

log = logging.getLogger(__name__)

FOLDER = ADMIRE.name
WEBSITE = "https://semeval2025-task1.github.io"
PUBLISHED_AT = "https://doi.org/10.15131/shef.data.28436600"  # all splits with gold
NUM_IMAGES = 5
Sense = Literal["idiomatic", "literal"]

_NAMES, _CAPTIONS = ([f"image{i}_{part}" for i in range(1, NUM_IMAGES + 1)] for part in ("name", "caption"))
_COLUMNS = ("compound", "sentence", "sentence_type", "expected_order", *_NAMES, *_CAPTIONS)
_PUBLISHED = {  # split → the folder of its language, its own folder in that one, its table
    "train": ("EN", "train", "subtask_a_train.tsv"),
    "dev": ("EN", "dev", "subtask_a_dev.tsv"),
    "test": ("EN", "test", "subtask_a_test.tsv"),
    "extended": ("EN", "xeval", "subtask_a_xe.tsv"),
    "test_pt": ("PT", "test", "subtask_a_test.tsv"),
    "extended_pt": ("PT", "xeval", "subtask_a_xp.tsv"),
}


@dataclass(frozen=True)
class Candidate:
    """An image that may show what the sentence means.

    Attributes:
        name: as the table has it.
        caption: machine-made; on one line.
        path: the image file, if images are needed.
    """

    name: str
    caption: str
    path: Path | None


@dataclass(frozen=True)
class Item:
    """A sentence with a compound, and the images to rank by how well they show its sense there.

    Attributes:
        id: split and row of the table.
        span: offsets of the compound in the sentence; None if it was not found.
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

    @property
    def gold_order(self) -> list[str] | None:
        """The images' names, best first."""
        if (ranks := self.gold_ranks) is None:
            return None
        return [self.candidates[i].name for i in sorted(range(len(ranks)), key=ranks.__getitem__)]


@dataclass(frozen=True)
class ItemSplit:
    """A split's items; all of them have gold, or none."""

    name: AdmireSplit
    items: tuple[Item, ...]
    files: tuple[Path, ...]

    @property
    def has_gold(self) -> bool:
        return self.items[0].gold_ranks is not None


def read_items(folder: Path, split: AdmireSplit, *, check_images: bool = False) -> ItemSplit:
    """A split's items.

    The table is as published, such as `<folder>/EN/xeval/subtask_a_xe.tsv`; an English one may also be in
    `<folder>/xeval` or `folder`. An image `<stem>.png` of it is `images/<split>/<compound>/<stem>.jpg` or
    `.png`, or is as published, in `<compound>/` next to the table; an apostrophe in a compound may be `_` in
    its folder's name.

    Args:
        check_images: find the images too; captions need none.

    Raises:
        DataMissingError: if there is no table of a split that is published apart from train and dev.
        UserError: naming file, row and field of what is wrong: an empty field, an unknown sense, an image
            twice, a gold order that is not one of the item's five images, gold for some items only, a missing
            image, a name that is a path. An image outside of `folder` counts as missing.
    """
    path = _table(folder, split)

    def item(row: Row) -> Item:
        cells = {column: row.values[column].strip() for column in _COLUMNS}
        # Captions have line breaks as a backslash and an n.
        cells |= {column: " ".join(cells[column].replace("\\n", " ").split()) for column in _CAPTIONS}
        for field in ("compound", "sentence", *_NAMES, *_CAPTIONS):
            if not cells[field]:
                raise ValueError(f"field {field!r}: is empty")
        for field in ("compound", *_NAMES):
            if not is_plain_name(cells[field]):
                raise ValueError(f"field {field!r}: {cells[field]!r} is not the name of a file or folder")
        compound, sentence, sense, order = (cells[column] for column in _COLUMNS[:4])
        has_gold = split == "train"
        if sense not in ADMIRE_SENSES and (sense or has_gold):
            raise ValueError(f"field 'sentence_type': must be idiomatic or literal, got {sense!r}")
        names = [cells[column] for column in _NAMES]
        if len(set(names)) < NUM_IMAGES:
            raise ValueError("fields 'image1_name' to 'image5_name': an image occurs twice")
        listed = parse_list(order) if order or has_gold else names
        if listed is None or sorted(map(repr, listed)) != sorted(map(repr, names)):
            raise ValueError(f"field 'expected_order': {order!r} is not an order of {', '.join(names)}")
        paths = [find_image(folder, split, compound, name) if check_images else None for name in names]
        if check_images and None in paths:
            field, name = _NAMES[paths.index(None)], names[paths.index(None)]
            expected = folder / "images" / split / _folder_name(compound)
            raise ValueError(f"field {field!r}: there is no image {name} in {expected} or as published")
        return Item(
            f"{split}_{row.number}",
            compound,
            sentence,
            find_expression(sentence, compound),
            cast(Sense, sense) if sense else None,
            tuple(map(Candidate, names, (cells[column] for column in _CAPTIONS), paths)),
            tuple(map(listed.index, names)) if order else None,
        )

    items = tuple(read_checked_table(path, _COLUMNS, item))
    if len({item.gold_ranks is None for item in items}) > 1:
        raise UserError("is empty in some rows and not in others", file=path, field="expected_order")
    without = [item for item in items if item.span is None]
    if without:
        log.warning(
            "%s: the compound was not found in %d of %d sentences (the first: %r in %r)",
            *(path, len(without), len(items), without[0].compound, without[0].sentence),
        )
    return ItemSplit(split, items, (path,))


def _tables(folder: Path, split: str) -> list[Path]:
    """Possible locations of a split's table; Portuguese ones are in PT/, since names repeat English ones."""
    language, own, table = _PUBLISHED[split]
    above = [folder, folder / language] if language == "EN" else [folder / language]
    return [parent / table for folder_ in above for parent in (folder_, folder_ / own)]


def _table(folder: Path, split: str) -> Path:
    tables = _tables(folder, split)
    if path := next(filter(Path.is_file, tables), None):
        return path
    error = UserError if split in ("train", "dev") else DataMissingError
    problem = (
        f"there is no such file, nor {tables[-1].relative_to(folder)}; {folder} must be the folder with "
    )
    problem += f"the tables of AdMIRe's subtask A ({ADMIRE.setting}=, or {FOLDER}/ in IDIOM_DATA)"
    raise error(problem, file=tables[0])


def folder_of(files: Iterable[Path], split: str) -> Path | None:
    """The folder of the data, if one of these files is the split's table in it."""
    folders = ((file, folder) for file in files for folder in reversed(file.parents[:3]))
    return next((f for file, f in folders if split in _PUBLISHED and file in _tables(f, split)), None)


def find_image(folder: Path, split: str, compound: str, name: str) -> Path | None:
    """The file of an image, in any of the places of :func:`read_items`; None if it is missing.

    A file outside of `folder` counts as missing: only the data's own images are opened and shown.
    """
    if split not in _PUBLISHED or not all(map(is_plain_name, (compound, name))):
        return None
    for above in (folder / "images" / split, *(table.parent for table in reversed(_tables(folder, split)))):
        for inside in (_folder_name(compound), compound):
            for file in (f"{Path(name).stem}.jpg", name):
                if is_file(path := above / inside / file) and not leads_out(path, folder):
                    return path
    return None


def _folder_name(compound: str) -> str:
    return compound.replace("'", "_").replace("’", "_")


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
    scored = held_out_names(names, fold, folds, f"compounds in AdMIRe's {split.name}")

    def part(*, is_scored: bool) -> ItemSplit:
        items = tuple(i for i in split.items if (plain_expression(i.compound) in scored) == is_scored)
        return replace(split, items=items)

    return part(is_scored=False), replace(part(is_scored=True), name="train_cv")
