"""What an interrupted `train.learn` goes on from, in the new model's folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from train.errors import Interrupted, UserError
from train.io.files import sync, write_json
from train.io.paths import is_file
from train.io.records import read_json
from train.training.run_end import what_failed
from train.training.signals import stopped_by_sigterm

RECORD = "learnt.json"
_STATE, _TENSORS = ".learning.json", ".learning.safetensors"
_KEPT_MEANWHILE = {_STATE, _TENSORS, f"{_TENSORS}.partial", f".{_STATE}.partial"}


@dataclass
class LearningState:
    """What was learnt so far.

    Attributes:
        output: the new model's folder.
        facts: what is learnt, from what, how: only the same can be gone on with.
        reached: expression → how close its sentences came to their goal.
        tensors: what goes with it. They are written first, so one more may be there than is on record.
    """

    output: Path
    facts: dict[str, Any]
    reached: dict[str, float] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def keep(self) -> None:
        """Write it."""
        partial = self.output / f"{_TENSORS}.partial"
        self.output.mkdir(parents=True, exist_ok=True)
        save_file(self.tensors, partial)
        sync(partial)
        partial.replace(self.output / _TENSORS)
        write_json(self.output / _STATE, {"facts": self.facts, "reached": self.reached})

    def remove(self) -> None:
        """Nothing is left to go on with: the model is finished."""
        for name in _KEPT_MEANWHILE:
            (self.output / name).unlink(missing_ok=True)


def read_record(folder: Path) -> dict[str, Any] | None:
    """What `train.learn` recorded of the model in a folder; None if it taught none there.

    Raises:
        UserError: if the record is damaged.
    """
    path = folder / RECORD
    if not is_file(path):
        return None
    record = read_json(path)
    parts = [record.get(name) for name in ("glossary", "options")] if isinstance(record, dict) else [None]
    if not all(isinstance(part, dict) for part in parts) or "files" not in parts[0] or "model" not in record:
        raise UserError(
            f"{path}: is damaged: expected an object with the fields model, options and glossary. Restore "
            "the file that was saved with the model"
        )
    return dict(record)


def open_state(output: Path, source: str, facts: dict[str, Any]) -> LearningState:
    """What an interrupted start with the same facts has learnt; nothing for a new one.

    Args:
        source: the folder of the model that is taught, or its name.

    Raises:
        UserError: if the folder is the model's own, or holds something else; of other facts it says which.
    """
    if Path(source).is_dir() and output.resolve() == Path(source).resolve():
        raise UserError(f"output={output}: is the model's own folder, which stays as it is: name another")
    if output.is_file():
        raise UserError(f"output={output}: is a file; name a new folder")
    if not output.exists() or not any(output.iterdir()):
        return LearningState(output, facts)
    try:
        state = json.loads((output / _STATE).read_text(encoding="utf-8"))
        tensors = load_file(output / _TENSORS)
    except (OSError, ValueError, SafetensorError):
        if {path.name for path in output.iterdir()} <= _KEPT_MEANWHILE:  # cut off before the first was kept
            return LearningState(output, facts)
        state, tensors = None, {}
    if (output / RECORD).is_file() and state is None:
        raise UserError(
            f"output={output}: holds a finished model. To teach it more, give model={output} and another "
            "output="
        )
    if not isinstance(state, dict) or not isinstance(begun := state.get("facts"), dict):
        raise UserError(f"output={output}: that folder holds something else: name another, or empty it")
    ours = json.loads(json.dumps(facts))
    if changed := [name for name in ours if begun.get(name) != ours[name]]:
        raise UserError(
            f"output={output}: holds an interrupted start of another command ({', '.join(changed)} differ): "
            "repeat that one to resume it, name another folder, or delete this one"
        )
    return LearningState(output, facts, state["reached"], tensors)


@contextmanager
def resumable(output: Path) -> Iterator[None]:
    """Whatever ends it early says how to resume it: what was learnt by then is in the folder."""
    hint = f"repeat the command to resume it (output={output})"
    try:
        with stopped_by_sigterm():
            yield
    except KeyboardInterrupt as error:
        raise Interrupted(f"{error or 'stopped'}; {hint}") from None
    except SafetensorError as error:  # its own exception for a full disk
        raise UserError(f"a file could not be written: {error}; {hint}") from error
    except OSError as error:
        what = what_failed(error)
        if what is None:
            raise
        raise UserError(f"{what}; {hint}") from error
