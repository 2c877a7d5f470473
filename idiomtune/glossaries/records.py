"""Records of a model's glossary: files, occurrences in the data, learned glossaries."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from idiomtune.config import ModelSettings
from idiomtune.encoder.loading import resolve_model_path
from idiomtune.glossaries.encoder import GlossaryEncoder
from idiomtune.glossaries.tables import named_glossary
from idiomtune.io.files import is_file, list_names
from idiomtune.io.records import LEARNED, read_record

log = logging.getLogger(__name__)


def glossary_files(model: ModelSettings) -> list[Path]:
    """The files of `model.glossary`."""
    glossary = named_glossary(model)
    return [] if glossary is None else list(glossary.files)


def describe_glossary(
    model: ModelSettings, encoder: GlossaryEncoder, texts: Mapping[str, Iterable[str]]
) -> dict[str, Any] | None:
    """Log the glossary's contents and its occurrences in the data, and return them for records.

    Args:
        encoder: which reads it.
        texts: what the texts are for (`training`, a benchmark's name) → the texts.

    Returns:
        None for a model that reads no meanings.
    """
    meanings = encoder.meanings
    if meanings is None:
        return None
    facts: dict[str, Any] = {**meanings.about, "form": meanings.form, "dropout": meanings.dropout}
    if meanings.gate is not None or model.glossary_gate:
        facts["gate"] = True
    unseen = list(meanings.senses)
    for name, of_split in texts.items():
        occurring, num_texts = meanings.log_coverage(of_split, name)
        unseen = [expression for expression in unseen if expression not in occurring]
        facts.setdefault("occurs", {})[name] = {"expressions": len(occurring), "texts": num_texts}
    if texts and unseen:
        log.info("glossary: in none of these texts: %s", list_names(unseen))
    return facts


def learned_glossaries(model: ModelSettings) -> list[dict[str, Any]]:
    """The records of the glossaries that a model in a folder has learned, in their order.

    Raises:
        UserError: if the record that `idiomtune learn` wrote is damaged.
    """
    path = Path(resolve_model_path(model.path)) / LEARNED
    if not is_file(path):
        return []
    record = read_record(path)
    return [*record.get("learned_before", []), *([record["glossary"]] if record["glossary"]["files"] else [])]


def glossary_note(facts: Mapping[str, Any] | None, learned: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """The note on every table of scores of a model that reads a glossary, or has learned one.

    Args:
        facts: of the glossary that it reads.
        learned: from :func:`learned_glossaries`.
    """
    read = [] if facts is None else [f"with a glossary ({', '.join(facts.get('files', ['its own']))})"]
    if facts and facts.get("occurs") and not any(counts["texts"] for counts in facts["occurs"].values()):
        read = [f"{read[0]}, of which no expression occurs in these texts: the scores are those without it"]
    names = dict.fromkeys(name for glossary in learned for name in glossary["files"])
    return read + [f"with a glossary, learned ({', '.join(names)})"] * bool(names)
