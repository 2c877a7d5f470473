"""What an interrupted `train.learn` resumes from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from train.errors import UserError
from train.io.files import sync
from train.io.paths import is_file
from train.io.records import read_json

RECORD = "learnt.json"
_STATE = ".learnt.safetensors"


@dataclass
class LearningState:
    """What was learnt so far.

    Attributes:
        folder: where it is saved.
        facts: what is learnt, from what, how: only an identical command can resume.
        reached: expression → how close its sentences came to their goal.
        tensors: expression → its token's embedding; or weights and an optimizer's state.
    """

    folder: Path
    facts: dict[str, Any]
    reached: dict[str, float] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def save(self) -> None:
        """Write it to one file, completely or not at all."""
        partial = self.folder / f"{_STATE}.partial"
        recorded = {"facts": json.dumps(self.facts), "reached": json.dumps(self.reached)}
        save_file(self.tensors, partial, metadata=recorded)
        sync(partial)
        partial.replace(self.folder / _STATE)


def read_record(folder: Path) -> dict[str, Any] | None:
    """What `train.learn` recorded of the model in a folder; None if it taught none there.

    Raises:
        UserError: if the record is damaged.
    """
    path = folder / RECORD
    if not is_file(path):
        return None
    record = read_json(path)
    record = record if isinstance(record, dict) else {}
    glossary, options = record.get("glossary"), record.get("options")
    is_whole = isinstance(glossary, dict) and "files" in glossary and isinstance(options, dict)
    if not is_whole or "model" not in record:
        raise UserError(
            f"{path}: is damaged: expected an object with the fields model, options and glossary. Restore "
            "the file that was saved with the model"
        )
    return record


def open_state(folder: Path, facts: dict[str, Any]) -> LearningState:
    """What an interrupted start with the same facts has learnt; nothing for a new one.

    Raises:
        UserError: if a start with other facts was interrupted; it names them.
    """
    try:
        with safe_open(folder / _STATE, "pt") as file:
            before, reached = (json.loads(file.metadata()[name]) for name in ("facts", "reached"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, KeyError, SafetensorError):  # interrupted before the first was saved
        return LearningState(folder, facts)
    ours = json.loads(json.dumps(facts))
    if changed := [name for name in ours if before.get(name) != ours[name]]:
        raise UserError(
            f"output: another command with this output was interrupted ({', '.join(changed)} differ): repeat "
            f"that one to resume it, name another output, or delete {folder}"
        )
    return LearningState(folder, facts, reached, tensors)
