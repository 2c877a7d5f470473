"""Queries that a model answers worst and best, with what it retrieved; AdMIRe's items with their images."""

from __future__ import annotations

import base64
import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from train.data.admire import FOLDER, find_image, read_items
from train.errors import UserError
from train.io.files import fingerprint
from train.reports.groups import data_files
from train.reports.runs import Run, read_lines
from train.scores import ADMIRE_CV_SPLIT

_PER_LIST = 4  # queries shown as worst, best, …
_FIRST = 5  # documents shown of each
_THUMBNAIL = (120, 90)  # pixels
_USAGES = ("idiomatic", "simplification", "sense", "literal")
OTHER = "other idiom"


@dataclass(frozen=True)
class Retrieved:
    """A document among a query's first.

    Attributes:
        text: its sentence, or its id where the data is not here.
        label: its usage, and whether it is of another idiom.
    """

    text: str
    usage: str
    label: str
    is_relevant: bool


@dataclass(frozen=True)
class Query:
    """A query, what it scored (before and after training) and what was retrieved."""

    sentence: str
    idiom: str
    usage: str
    score: float
    before: float | None
    documents: list[Retrieved]


@dataclass(frozen=True)
class Retrieval:
    """Examples of one split and mode.

    Attributes:
        lists: heading → queries.
        confusion: of each query usage (as a heading) the share of each kind in the first ten documents.
    """

    heading: str
    lists: dict[str, list[Query]]
    kinds: list[str]
    confusion: list[tuple[str, list[float]]]
    notes: list[str]


def damaged_records(run: Run) -> list[str]:
    """Notes on records that cannot be shown."""
    return [
        *_idiolink(run.per_query_file("idiolink"))[1],
        *_idiolink(run.per_query_file("idiolink", untrained=True))[1],
        *_admire(run.per_query_file("admire"))[1],
    ]


def retrieval(run: Run) -> Retrieval | None:
    """Worst and best queries by nDCG@10, and those that training changed most; None without records."""
    records, _ = _idiolink(run.per_query_file("idiolink"))
    if not records:
        return None
    split, mode = _chosen(run, records)
    records = [r for r in records if r["split"] == split and r["mode"] == mode]
    before = {
        r["id"]: float(r["ndcg@10"])
        for r in _idiolink(run.per_query_file("idiolink", untrained=True))[0]
        if r["split"] == split and r["mode"] == mode
    }
    documents, notes = _documents(run)
    ordered = sorted(records, key=lambda r: float(r["ndcg@10"]))
    number = min(_PER_LIST, len(ordered) // 2) or 1
    chosen = {"Worst": ordered[:number], "Best": ordered[::-1][:number]}
    changes = [(float(r["ndcg@10"]) - before[r["id"]], r) for r in ordered if r["id"] in before]
    changes.sort(key=lambda pair: pair[0])
    chosen["Lost most by training"] = [r for change, r in changes[:number] if change < 0]
    chosen["Gained most by training"] = [r for change, r in changes[::-1][:number] if change > 0]
    lists = {
        heading: [_query(r, before.get(r["id"]), documents) for r in of_list]
        for heading, of_list in chosen.items()
        if of_list
    }
    kinds = [*_USAGES, *([OTHER] if documents else [])]
    return Retrieval(f"{split}, {mode}", lists, kinds, _confusion(records, documents, kinds), notes)


def _idiolink(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    texts = ("id", "split", "mode", "idiom", "sentence", "usage")
    return _whole(path, lambda r: _has(r, texts, ("ndcg@10",)) and _is_list(r.get("top"), dict))


def _admire(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Records of items with gold."""
    texts = ("id", "split", "mode", "compound", "sentence")

    def is_whole(record: Mapping[str, Any]) -> bool:
        order, gold = record.get("order"), record.get("gold")
        with_gold = not gold or (_has(record, (), ("rank_difference",)) and _is_list(gold, str))
        return _has(record, texts, ()) and _is_list(order, str) and with_gold

    records, damaged = _whole(path, is_whole)
    return [record for record in records if record["gold"]], damaged


def _whole(
    path: Path, is_whole: Callable[[Mapping[str, Any]], bool]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Records that can be shown, and a note if there are others."""
    records, damaged = read_lines(path)
    whole = [record for record in records if is_whole(record)]
    damaged += len(records) - len(whole)
    return whole, [f"{path.parent.name}/{path.name}: {damaged} lines are damaged"] if damaged else []


def _has(record: Mapping[str, Any], texts: Sequence[str], numbers: Sequence[str]) -> bool:
    of_texts = all(isinstance(record.get(name), str) for name in texts)
    return of_texts and all(isinstance(record.get(name), int | float) for name in numbers)


def _is_list(value: Any, of: type) -> bool:
    return isinstance(value, list) and all(isinstance(part, of) for part in value)


def _chosen(run: Run, records: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """The split and mode that picked the best checkpoint, else the first that was scored."""
    there = {(r["split"], r["mode"]) for r in records}
    for key in run.monitor:
        parts = key.split("/")
        if parts[0] == "idiolink" and tuple(parts[1:3]) in there:
            return parts[1], parts[2]
    return str(records[0]["split"]), str(records[0]["mode"])


def _documents(run: Run) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Id → (sentence, idiom), of the run's own data files, where they are as they were."""
    found: dict[str, tuple[str, str]] = {}
    missing = []
    for name, sum_ in data_files(run).items():
        path = Path(name)
        if path.name != "indexes.json":
            continue
        try:
            if fingerprint(path) != sum_:
                missing.append(f"{path.parent.name}/{path.name} has changed since")
                continue
            for record in json.loads(path.read_text(encoding="utf-8")):
                found[record["id"]] = record["sentence"], record["idiom"]
        except (OSError, ValueError, KeyError, TypeError):
            missing.append(f"{path.parent.name}/{path.name} is not here")
    if missing:
        missing = [f"documents are shown by their ids: {', '.join(missing)}"]
    return found, missing


def _query(
    record: Mapping[str, Any], before: float | None, documents: Mapping[str, tuple[str, str]]
) -> Query:
    shown = [_retrieved(top, record, documents) for top in record["top"][:_FIRST]]
    return Query(
        *(record["sentence"], record["idiom"], record["usage"], float(record["ndcg@10"]), before, shown)
    )


def _retrieved(
    top: Mapping[str, Any], record: Mapping[str, Any], documents: Mapping[str, tuple[str, str]]
) -> Retrieved:
    id_, usage = str(top.get("id")), str(top.get("usage"))
    text, idiom = documents.get(id_, (id_, None))
    label = usage
    if idiom is not None and idiom != record["idiom"]:
        label = f"{usage}, of “{idiom}”"
    return Retrieved(text, usage, label, bool(top.get("relevant")))


def _confusion(
    records: Sequence[Mapping[str, Any]], documents: Mapping[str, tuple[str, str]], kinds: Sequence[str]
) -> list[tuple[str, list[float]]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        for top in record["top"]:
            idiom = documents.get(str(top.get("id")), ("", record["idiom"]))[1]
            kind = str(top.get("usage")) if idiom == record["idiom"] else OTHER
            counts[record["usage"]][kind] += 1
    return [
        (usage, [count[kind] / max(1, count.total()) for kind in kinds]) for usage, count in counts.items()
    ]


@dataclass(frozen=True)
class Picture:
    """An image in the model's order: `data` is a data URI, or None where the file is not here."""

    rank: int
    gold_rank: int
    caption: str
    data: str | None


@dataclass(frozen=True)
class PictureItem:
    """An item of AdMIRe."""

    compound: str
    sentence: str
    sense: str
    rank_difference: float
    pictures: list[Picture]


def pictures(run: Run) -> tuple[str, dict[str, list[PictureItem]], list[str]] | None:
    """AdMIRe's items that were ordered worst and best: heading, lists, notes; None without records."""
    records, _ = _admire(run.per_query_file("admire"))
    if not records:
        return None
    modes = list(dict.fromkeys((r["split"], r["mode"]) for r in records))
    # A system that was trained for it says more than plain captions.
    split, mode = next((pair for pair in modes if pair[1].startswith("experts_")), modes[0])
    records = [r for r in records if (r["split"], r["mode"]) == (split, mode)]
    ordered = sorted(records, key=lambda r: float(r["rank_difference"]))
    number = min(3, len(ordered) // 2) or 1
    captions, folder, notes = _captions(run, split)
    chosen = {"Worst": ordered[::-1][:number], "Best": ordered[:number]}
    lists = {
        heading: [_picture_item(r, captions, folder) for r in of_list] for heading, of_list in chosen.items()
    }
    return f"{split}, {mode}", lists, notes


def _captions(run: Run, split: str) -> tuple[dict[tuple[str, str], str], Path | None, list[str]]:
    """(compound, image) → caption, and the data's folder, where it is here."""
    name = "train" if split == ADMIRE_CV_SPLIT else split
    table = f"subtask_a_{name}.tsv"
    paths = [Path(path) for path in data_files(run) if Path(path).name == table]
    try:
        if not paths or name not in ("train", "dev"):
            raise OSError
        folder = paths[0].parent.parent if paths[0].parent.name == name else paths[0].parent
        items = read_items(folder, "train" if name == "train" else "dev").items
    except (OSError, UserError):
        return {}, None, [f"images are shown by their names: {FOLDER}'s {table} is not here"]
    return {(i.compound, c.name): c.caption for i in items for c in i.candidates}, folder, []


def _picture_item(
    record: Mapping[str, Any], captions: Mapping[tuple[str, str], str], folder: Path | None
) -> PictureItem:
    compound, gold = record["compound"], record["gold"]
    split = "train" if record["split"] == ADMIRE_CV_SPLIT else record["split"]
    shown = []
    for rank, name in enumerate(record["order"], 1):
        file = find_image(folder, split, compound, name) if folder else None
        gold_rank = gold.index(name) + 1 if name in gold else 0
        shown.append(Picture(rank, gold_rank, captions.get((compound, name), name), _thumbnail(file)))
    return PictureItem(
        *(compound, record["sentence"], str(record.get("sense") or "")),
        *(float(record["rank_difference"]), shown),
    )


def _thumbnail(path: Path | None) -> str | None:
    """A small JPEG as a data URI."""
    if path is None:
        return None
    try:
        with Image.open(path, formats=("JPEG", "PNG")) as image:
            small = image.convert("RGB")
            small.thumbnail(_THUMBNAIL)
            file = io.BytesIO()
            small.save(file, "JPEG", quality=70)
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    return data_uri(file.getvalue(), "image/jpeg")


def data_uri(content: bytes, kind: str) -> str:
    """A file's content to stand in a page."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
