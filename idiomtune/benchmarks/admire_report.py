"""AdMIRe's items for reports: sentences, and how the model orders their images."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from pydantic import BaseModel

from idiomtune.data.admire import FOLDER, find_image, folder_of, read_items
from idiomtune.data.names import ADMIRE_CV_SPLIT, AdmireSplit
from idiomtune.errors import UserError
from idiomtune.reports.benchmark_report import Answer, BenchmarkReport, Example, RecordsOfRun, worst_and_best


def report(run: RecordsOfRun) -> BenchmarkReport | None:
    """Items that were ordered worst and best, with their images; None without gold."""
    items = [item for item in run.read(_ItemRecord) if item.gold]
    if not items:
        return None
    scored = list(dict.fromkeys((item.split, item.mode) for item in items))
    # A system that was trained for it says more than plain captions.
    split, mode = next((pair for pair in scored if pair[1].startswith("experts_")), scored[0])
    items = [item for item in items if (item.split, item.mode) == (split, mode)]
    table = "train" if split == ADMIRE_CV_SPLIT else split
    captions, folder, notes = _captions(run.run.files, table)
    lists = worst_and_best(
        [(item, None) for item in items],
        lambda item: -item.rank_difference,
        lambda item, _: _example(item, table, captions, folder),
    )
    subtitle = f"AdMIRe {split}, {mode}; best first, with the rank each should have"
    return BenchmarkReport("Images it orders", subtitle, lists, notes, as_pictures=True)


class _ItemRecord(BaseModel, strict=True):
    """A record of the per-query file."""

    id: str
    split: str
    mode: str
    compound: str
    sense: str | None = None
    # Missing if the sense alone was predicted.
    sentence: str = ""
    order: list[str] = []
    gold: list[str] | None = None
    rank_difference: float = 0.0


def _captions(
    files: Mapping[str, str], split: str
) -> tuple[dict[tuple[str, str], str], Path | None, list[str]]:
    """(compound, image) → caption, and the data's folder, if it is on this machine."""
    if folder := folder_of(map(Path, files), split):
        with suppress(UserError):
            items = read_items(folder, cast(AdmireSplit, split)).items
            return {(i.compound, c.name): c.caption for i in items for c in i.candidates}, folder, []
    return {}, None, [f"images are shown by their names: {FOLDER}'s table of {split} is not here"]


def _example(
    item: _ItemRecord, split: str, captions: Mapping[tuple[str, str], str], folder: Path | None
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
