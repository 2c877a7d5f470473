"""Items that a model orders worst and best, with their images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from train.data.admire import FOLDER, find_image, read_items
from train.data.names import ADMIRE_CV_SPLIT
from train.declarations.examples import Answer, Example, Examples, QueryRecords
from train.errors import UserError

_PER_LIST = 3  # items shown as worst and best


class _Item(BaseModel):
    """A record of the per-query file."""

    model_config = ConfigDict(strict=True)

    id: str
    split: str
    mode: str
    compound: str
    sense: str | None = None
    # Neither where the sense alone was predicted.
    sentence: str = ""
    order: list[str] = []
    gold: list[str] | None = None
    rank_difference: float = 0.0

    @model_validator(mode="after")
    def _gold_comes_with_the_rest(self) -> Self:
        if self.gold and not {"sentence", "rank_difference"} <= self.model_fields_set:
            raise ValueError("an item with gold has no sentence or no rank_difference")
        return self


def examples(run: QueryRecords) -> Examples | None:
    """Items that were ordered worst and best; None without gold."""
    items = [item for item in run.read(_Item) if item.gold]
    if not items:
        return None
    scored = list(dict.fromkeys((item.split, item.mode) for item in items))
    # A system that was trained for it says more than plain captions.
    split, mode = next((pair for pair in scored if pair[1].startswith("experts_")), scored[0])
    items = [item for item in items if (item.split, item.mode) == (split, mode)]
    items.sort(key=lambda item: item.rank_difference)
    number = min(_PER_LIST, len(items) // 2) or 1
    table = "train" if split == ADMIRE_CV_SPLIT else split
    captions, folder, notes = _captions(run.files, table)
    lists = {
        heading: [_example(item, table, captions, folder) for item in chosen]
        for heading, chosen in (("Worst", items[::-1][:number]), ("Best", items[:number]))
    }
    subtitle = f"AdMIRe {split}, {mode}; best first, with the rank each should have"
    return Examples("Images it orders", subtitle, lists, notes, as_pictures=True)


def _captions(
    files: Mapping[str, str], split: str
) -> tuple[dict[tuple[str, str], str], Path | None, list[str]]:
    """(compound, image) → caption, and the data's folder, where it is here."""
    table = f"subtask_a_{split}.tsv"
    paths = [Path(path) for path in files if Path(path).name == table]
    try:
        if not paths or split not in ("train", "dev"):
            raise OSError
        folder = paths[0].parent.parent if paths[0].parent.name == split else paths[0].parent
        items = read_items(folder, "train" if split == "train" else "dev").items
    except (OSError, UserError):
        return {}, None, [f"images are shown by their names: {FOLDER}'s {table} is not here"]
    return {(i.compound, c.name): c.caption for i in items for c in i.candidates}, folder, []


def _example(
    item: _Item, split: str, captions: Mapping[tuple[str, str], str], folder: Path | None
) -> Example:
    gold = item.gold or []
    answers = []
    for rank, name in enumerate(item.order, 1):
        gold_rank = gold.index(name) + 1 if name in gold else 0
        should_be = " ✓" if rank == gold_rank else f" ✗ should be {gold_rank}" if gold_rank else ""
        caption = captions.get((item.compound, name), name)
        image = find_image(folder, split, item.compound, name) if folder else None
        answers.append(Answer(caption, f"{rank}{should_be}", rank == gold_rank, image=image))
    return Example(
        item.sentence,
        kind=item.sense or "",
        topic=f"compound “{item.compound}”",
        metric="rank difference",
        score=f"{item.rank_difference:g}",
        remark=" (0 is right)",
        answers=answers,
    )
