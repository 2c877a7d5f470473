"""The data set: its splits in IdioLink's form, and its card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from idiomtune.data.idiolink import Document, is_relevant, load_split
from idiomtune.errors import UserError
from idiomtune.io.files import json_text
from idiomtune.io.pages import template
from idiomtune.io.version import __version__
from idiomtune.writing.folder import Folder
from idiomtune.writing.review import Agreement

CARD = "README.md"


def split_expressions(
    refused: Mapping[str, float], sizes: Mapping[str, float], earlier: Mapping[str, str]
) -> dict[str, str]:
    """Expression → split, so that each split has easy and hard expressions alike.

    Args:
        refused: expression → the share of its texts that were refused.
        sizes: split → its share of the expressions; each with a share has one at least.
        earlier: of the last time, which stays as long as its splits exist.

    Raises:
        UserError: if there are fewer expressions than splits.
    """
    sizes = {name: size for name, size in sizes.items() if size > 0}
    split_of = {name: split for name, split in earlier.items() if split in sizes}
    new = sorted(refused.keys() - split_of, key=lambda name: (refused[name], name))
    counts = Counter(split for name, split in split_of.items() if name in refused)
    for number, name in enumerate(new):
        empty = [split for split in sizes if not counts[split]]
        if len(new) - number <= len(empty):  # the last ones
            split = empty[0]
        else:
            split = max(sizes, key=lambda name: sizes[name] * (counts.total() + 1) - counts[name])
        split_of[name] = split
        counts[split] += 1
    if lacking := [split for split in sizes if not counts[split]]:
        problem = f"{len(refused)} expressions have texts, and none is in the split {lacking[0]}"
        raise UserError(f"{problem}: give more expressions, or a new output=")
    return split_of


def write_splits(folder: Folder, records: Sequence[Document], split_of: Mapping[str, str]) -> dict[str, Any]:
    """Write `<split>/indexes.json` and `queries.json`, and read them as training does.

    A query without a document that conveys its meaning is left out.

    Returns:
        Split → its numbers of idioms, documents and queries.

    Raises:
        UserError: if a split would be empty, before anything is written.
    """
    parts: dict[str, dict[str, list[Document]]] = {}
    for split in dict.fromkeys(split_of[record.idiom] for record in records):
        own = [record for record in records if split_of[record.idiom] == split]
        documents = [record for record in own if not record.id.startswith("q_")]
        queries = [
            record
            for record in own
            if record.id.startswith("q_") and any(is_relevant(record, document) for document in documents)
        ]
        if not documents or not queries:
            problem = (
                "would have no query with a document that conveys its meaning: texts.jsonl has the votes"
            )
            raise UserError(problem, file=folder.path / split)
        parts[split] = {"indexes": documents, "queries": queries}
    for split in ("train", "val", "test"):
        for name in ("indexes", "queries"):
            part = parts.get(split, {}).get(name)  # None: the split is of an earlier start
            text = None if part is None else json_text([record.model_dump() for record in part])
            folder.write({f"{split}/{name}.json": text})
        if split in parts:
            load_split(folder.path, split)
    return {
        split: {
            "idioms": len({record.idiom for record in files["indexes"]}),
            "documents": len(files["indexes"]),
            "queries": len(files["queries"]),
        }
        for split, files in parts.items()
    }


def write_card(folder: Folder, agreement: Agreement | None) -> None:
    """Write the card, which the Hugging Face Hub shows.

    Args:
        folder: whose record has the facts.
        agreement: of the judge with people who reviewed texts.
    """
    card = template(Path(__file__).parent / "card.md.j2", keep_trailing_newline=True)
    names = {"name": folder.path.absolute().name, "agreement": agreement, "version": __version__}
    folder.write({CARD: card.render(**folder.record.model_dump(), **names)})
