"""A program that is harmed at one of its file operations.

    python -m tools.harmed '{"watch": ["out"], "at": 7, "how": "kill"}' idiomtune learn option=value …

Each opening for writing, write, sync, folder made, rename and removal of what begins with one of `watch`
(relative to the working folder) is a numbered point; where that is asked for, each opening for reading too.
What libraries write without Python (weights, tokenizers, search indexes) is one write a file.
"""

from __future__ import annotations

import atexit
import builtins
import errno
import io
import json
import os
import runpy
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Literal

_EVENTS = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate", "os.chmod")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Harm:
    """What happens to the program, and when.

    Attributes:
        watch: what paths begin with, whose operations are points.
        reads: openings for reading are points too.
        at: the point, by its number, or the first of a name such as `mkdir run/.step_2`; None = none.
        after: seconds until SIGKILL, wherever the program then is.
        how: `kill` is SIGKILL; `put` writes `content` to the file `path`, whose folder is made; `raise` lets
            the operation fail with `error`, a write in its middle.
        error: `EIO`, `ENOSPC`, `EINTR`, or `MemoryError`.
        count: a file that gets a line for each point, at the end.
    """

    watch: list[str] = field(default_factory=list)
    reads: bool = False
    at: int | str | None = None
    after: float | None = None
    how: Literal["kill", "put", "raise"] = "kill"
    path: str = ""
    content: str = ""
    error: str = ""
    count: str | None = None

    def failure(self, path: str | None) -> BaseException:
        """Args: path: None where the system does not name the file, as in a write."""
        if self.error == "MemoryError":
            return MemoryError()
        number = getattr(errno, self.error)
        return OSError(number, os.strerror(number), *([] if path is None else [path]))


class Points:
    """Counts them, and does the harm."""

    def __init__(self, harm: Harm) -> None:
        self._harm = harm
        self._watch = tuple(os.path.realpath(name) for name in harm.watch)
        self.passed: list[str] = []
        self._is_harming = self._is_done = False

    def watch(self) -> None:
        sys.addaudithook(self._on_event)
        open_ = io.open

        @wraps(open_)
        def opened(path: Any, *arguments: Any, **named: Any) -> Any:
            file = open_(path, *arguments, **named)
            if file.writable() and isinstance(path, str | os.PathLike) and self._is_watched(path):
                raw = getattr(file, "buffer", file)
                raw = getattr(raw, "raw", raw)
                raw.write = self._partly(path, raw.write)
            return file

        io.open = builtins.open = opened  # type: ignore[assignment]
        fsync = os.fsync

        def synced(descriptor: int) -> None:
            path = Path(f"/proc/self/fd/{descriptor}")
            if self._is_watched(path):
                self._reach("sync", path.readlink(), named=False)
            fsync(descriptor)

        os.fsync = synced  # type: ignore[assignment]
        self._watch_libraries()

    def _watch_libraries(self) -> None:
        """Those that write a file by themselves: their own errors, after half of a file."""
        import safetensors.torch as library
        from safetensors import SafetensorError
        from transformers import PreTrainedTokenizerFast

        weights: Any = library  # whose names it does not export
        serialize, save = weights.serialize_file, PreTrainedTokenizerFast._save_pretrained

        @contextmanager
        def half(path: Path, kind: type[Exception]) -> Any:
            try:
                if self._is_watched(path):
                    self._reach("write", path, named=False)
            except OSError as error:
                path.write_bytes(b"half of")
                raise kind(f"I/O error: {error.strerror} (os error {error.errno})") from None
            yield

        def serialized(tensors: Any, path: Any, *more: Any, **named: Any) -> None:
            with half(Path(path), SafetensorError):
                serialize(tensors, path, *more, **named)

        def saved(tokenizer: Any, save_directory: Any, *more: Any, **named: Any) -> Any:
            with half(Path(save_directory, "tokenizer.json"), Exception):
                return save(tokenizer, save_directory, *more, **named)

        weights.serialize_file = serialized
        PreTrainedTokenizerFast._save_pretrained = saved

    def _partly(self, path: Any, write: Callable[[Any], int]) -> Callable[[Any], int]:
        def written(data: Any) -> int:
            content = memoryview(data)
            try:
                self._reach("write", path, named=False)
            except BaseException as error:
                if not isinstance(error, InterruptedError):  # which means that nothing was written
                    write(content[: len(content) // 2])
                raise
            return write(data)

        return written

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        path = arguments[0] if arguments else None
        if event not in ("open", *_EVENTS) or not isinstance(path, str | bytes | os.PathLike):
            return
        if event == "open":
            event = "create" if arguments[2] & _WRITES else "read"
            if event == "read" and not self._harm.reads:
                return
        if self._is_watched(path):
            self._reach(event.removeprefix("os."), path)

    def _is_watched(self, path: Any) -> bool:
        return not self._is_harming and os.path.realpath(os.fsdecode(path)).startswith(self._watch)

    def _reach(self, what: str, path: Any, *, named: bool = True) -> None:
        if self._is_harming:
            return
        self.passed.append(f"{what} {os.path.relpath(os.fsdecode(path))}")
        if self._harm.at not in (len(self.passed), self.passed[-1]) or self._is_done:
            return
        self._is_harming = self._is_done = True
        if self._harm.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            if self._harm.how == "raise":
                raise self._harm.failure(os.fsdecode(path) if named else None)
            put = Path(self._harm.path)
            put.parent.mkdir(parents=True, exist_ok=True)
            put.write_text(self._harm.content, encoding="utf-8")
        finally:
            self._is_harming = False


def main() -> None:
    harm = Harm(**json.loads(sys.argv[1]))
    sys.argv = sys.argv[2:]
    points = Points(harm)
    if harm.count is not None:
        counted = Path(harm.count).absolute()
        atexit.register(lambda: counted.write_text("\n".join(points.passed), encoding="utf-8"))
    if harm.after is not None:
        timer = threading.Timer(harm.after, os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
    tempfile.tempdir = None  # where it was looked up before this program's environment was known
    points.watch()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
