"""The project's own texts about idioms (CC0), as a folder in IdioLink's form."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any

from idiomtune.data.names import WRITTEN
from idiomtune.io.files import cache_folder, fingerprints, is_folder, json_text, write_json, write_text

NAME = "idioms"  # of the data set, as data.idiolink= takes it
TEXTS = Path(__file__).parent / NAME
_USAGES = ("literal", "idiomatic", "simplification", "sense")


def is_idioms(root: str | None) -> bool:
    """Whether `data.idiolink` or the like names this data set; a folder of that name here counts instead."""
    return root == NAME and not is_folder(Path(NAME))


def idioms_folder() -> Path:
    """The folder with `train` (319 expressions) and `val` (80), written into the cache at the first call."""
    files = sorted(TEXTS.iterdir())
    folder = cache_folder() / f"{NAME}-{'-'.join(sum_[:6] for sum_ in fingerprints(files).values())}"
    if not is_folder(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            new = Path(temporary) / NAME
            write_json(new / WRITTEN, {"licence": "cc0-1.0", "model": "a language model"})
            write_text(new / "README.md", (TEXTS / "README.md").read_text(encoding="utf-8"))
            for path in TEXTS.glob("*.tsv"):
                documents, queries = _records(path)
                write_text(new / path.stem / "indexes.json", json_text(documents))
                write_text(new / path.stem / "queries.json", json_text(queries))
            if not is_folder(folder):  # another process's, meanwhile
                new.rename(folder)
    return folder


def _records(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Documents and queries of a table.

    An expression's first literal and first idiomatic text are its queries. What replaces the expression in
    that idiomatic text is no document: it would differ from the query in the span alone.
    """
    documents: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []
    queried: set[tuple[str, str]] = set()
    with path.open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
            is_first = (row["expression"], "idiomatic") not in queried and bool(row["idiomatic"])
            for usage in _USAGES:
                before, _, rest = row[usage].partition("[[")
                span, _, after = rest.partition("]]")
                if not span or (is_first and usage == "simplification"):
                    continue
                is_query = usage in _USAGES[:2] and (row["expression"], usage) not in queried
                queried.add((row["expression"], usage))
                (queries if is_query else documents).append(
                    {
                        "id": f"{'q_' * is_query}own_{path.stem}_{number:04}_{usage}",
                        "sentence": before + span + after,
                        "idiom": row["expression"],
                        "span": span,
                        "subject": row["domain"],
                        "usage": usage,
                        "is_gold": False,
                    }
                )
    return documents, queries
