"""The folder of a data set: its record, and which files in it are `idiomtune write`'s own."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from idiomtune.data.names import WRITTEN
from idiomtune.errors import UserError
from idiomtune.io.files import (
    fingerprint,
    is_file,
    json_text,
    list_names,
    read_checked,
    read_json,
    write_text,
)

log = logging.getLogger(__name__)


class Record(BaseModel):
    """What `write.json` says. Until the first texts are written, it has `split_of` and `files` alone.

    Attributes:
        split_of: expression → its split.
        files: file → SHA-256 of each content that was written there.
    """

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    split_of: dict[str, str]
    files: dict[str, list[str]] = {}
    expressions: dict[str, list[str]] = {}
    refused: dict[str, int] = {}
    broken: list[tuple[str, str, int]] = []
    val: float = Field(default=0.3, gt=0, lt=1)
    test: float = Field(default=0, ge=0, lt=1)
    judged: int = 0
    accepted: int = 0
    agreement_of_votes: float = 0


class Folder:
    """A folder that is new, or has a record. What `write` has not written there stays as it is.

    A file is known by its content: one that somebody has edited is not overwritten, nor removed.

    Args:
        option: that names the folder, for messages.
        hide: stars a secret out of what is written.

    Raises:
        UserError: if the folder has other files and no record, or a record that cannot be read.
    """

    def __init__(self, path: Path, option: str, hide: Callable[[str], str] = str) -> None:
        self.path, self._hide, self._strangers = path, hide, list[str]()
        self.record = Record(split_of={})
        if is_file(path / WRITTEN):
            content = [read_json(path / WRITTEN)]
            (self.record,) = read_checked(content, Record.model_validate, path / WRITTEN, lambda _: "record")
        elif strays := [entry.name for entry in path.glob("*") if entry.name[0] not in ".~"]:
            problem = f"has {min(strays)}, and no record of idiomtune write ({WRITTEN}): choose a new folder"
            raise UserError(problem, option=option, file=path)

    def update(self, **facts: object) -> None:
        """Add facts to the record, and save it."""
        self.record = self.record.model_copy(update=facts)
        content = json_text(self.record.model_dump(mode="json", exclude_unset=True))
        write_text(self.path / WRITTEN, self._hide(content))

    def write(self, texts: Mapping[str, str | None]) -> None:
        """Write files, by their names; None removes one. A file with another content than `write`'s stays."""
        for name, text in texts.items():
            path, sums = self.path / name, self.record.files.get(name, [])
            present = fingerprint(path) if is_file(path) else None
            content = self._hide(text or "")
            checksum = hashlib.sha256(content.encode()).hexdigest()
            if path.exists() and present not in (sums if text is None else [checksum, *sums]):
                self._strangers.append(name)
            elif text is None:
                path.unlink(missing_ok=True)
                with suppress(OSError):  # other files are there, or the folder is not
                    path.parent.rmdir()
            elif present != checksum:
                files = {**self.record.files, name: [*sums, checksum]}
                self.update(files=files)  # first: what a killed process leaves is known then
                write_text(path, content)

    def warn_of_strangers(self) -> None:
        """Tell which files were neither overwritten nor removed."""
        if self._strangers:
            problem = "were edited, or are not of idiomtune write, and stay"
            hint = "delete them to have them written anew; prompts=<folder> asks with other prompts"
            log.warning("%s: %s %s: %s", self.path, list_names(self._strangers), problem, hint)
