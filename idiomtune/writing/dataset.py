"""The data set: its splits in IdioLink's form, and its card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from idiomtune.data.idiolink import Document, is_relevant, load_split
from idiomtune.errors import UserError
from idiomtune.io.files import write_json, write_text
from idiomtune.io.pages import template
from idiomtune.version import __version__
from idiomtune.writing.review import Agreement

CARD = "README.md"


def split_expressions(refused: Mapping[str, float], shares: Mapping[str, float]) -> dict[str, str]:
    """Expression → split, so that each split has easy and hard expressions alike.

    Args:
        refused: expression → the share of its texts that were refused.
        shares: split → its share of the expressions; each with a share has one at least.

    Raises:
        UserError: if there are fewer expressions than splits.
    """
    splits = {name: share for name, share in shares.items() if share > 0}
    if len(refused) < len(splits):
        raise UserError(
            f"{len(refused)} expressions have texts, for {len(splits)} splits: give more expressions"
        )
    counts = Counter[str]()
    split_of = {}
    order = sorted(refused, key=lambda name: (refused[name], name))
    for number, name in enumerate(order, 1):
        empty = [split for split in splits if not counts[split]]
        if len(order) - number < len(empty):  # the last ones
            split = empty[0]
        else:
            split = max(splits, key=lambda split: splits[split] * number - counts[split])
        split_of[name] = split
        counts[split] += 1
    return split_of


def write_splits(folder: Path, records: Sequence[Document], split_of: Mapping[str, str]) -> dict[str, Any]:
    """Write `<split>/indexes.json` and `queries.json`, and read them as training does.

    A query without a document that conveys its meaning is left out.

    Returns:
        Split → its numbers of idioms, documents and queries.
    """
    counts = {}
    for split in dict.fromkeys(split_of.values()):
        own = [record for record in records if split_of[record.idiom] == split]
        documents = [record for record in own if not record.id.startswith("q_")]
        queries = [
            record
            for record in own
            if record.id.startswith("q_") and any(is_relevant(record, document) for document in documents)
        ]
        for name, part in (("indexes", documents), ("queries", queries)):
            write_json(folder / split / f"{name}.json", [record.model_dump() for record in part])
        idioms = {record.idiom for record in documents}
        counts[split] = {"idioms": len(idioms), "documents": len(documents), "queries": len(queries)}
        if not documents or not queries:
            problem = "has too few accepted texts for a split (they are in texts.jsonl)"
            raise UserError(problem, file=folder / split)
        load_split(folder, split)
    return counts


def write_card(folder: Path, facts: Mapping[str, Any], agreement: Agreement | None) -> None:
    """Write the card, which the Hugging Face Hub shows.

    Args:
        facts: as `write.json` has them.
        agreement: of the judge with people who reviewed texts.
    """
    card = template(Path(__file__).parent / "card.md.j2", keep_trailing_newline=True)
    names = {"name": folder.absolute().name, "agreement": agreement, "version": __version__}
    write_text(folder / CARD, card.render(**facts, **names))
