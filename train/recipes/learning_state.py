"""What an interrupted `train.learn` resumes from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from train.errors import UserError
from train.io.files import sync, write_json
from train.io.paths import is_file
from train.io.records import read_json

RECORD = "learnt.json"
_STATE, _TENSORS = ".learning.json", ".learning.safetensors"


@dataclass
class LearningState:
    """What was learnt so far.

    Attributes:
        folder: where it is kept.
        facts: what is learnt, from what, how: only the same can be gone on with.
        reached: expression → how close its sentences came to their goal.
        tensors: what goes with it. They are written first, so one more may be there than is on record.
    """

    folder: Path
    facts: dict[str, Any]
    reached: dict[str, float] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def keep(self) -> None:
        """Write it."""
        partial = self.folder / f"{_TENSORS}.partial"
        save_file(self.tensors, partial)
        sync(partial)
        partial.replace(self.folder / _TENSORS)
        write_json(self.folder / _STATE, {"facts": self.facts, "reached": self.reached})


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
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        tensors = load_file(folder / _TENSORS)
        begun, reached = state["facts"], state["reached"]
    except (OSError, ValueError, SafetensorError, KeyError, TypeError):  # cut off before the first was kept
        return LearningState(folder, facts)
    ours = json.loads(json.dumps(facts))
    if changed := [name for name in ours if begun.get(name) != ours[name]]:
        raise UserError(
            f"output: another command with this output was interrupted ({', '.join(changed)} differ): repeat "
            f"that one to resume it, name another output, or delete {folder}"
        )
    return LearningState(folder, facts, reached, tensors)
