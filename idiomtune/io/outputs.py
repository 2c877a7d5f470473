"""Outputs: each belongs to one program while it works, and appears complete or not at all."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from idiomtune.errors import UserError
from idiomtune.io.files import free_name, seal, sync

log = logging.getLogger(__name__)

LOCK = ".lock"
_NEW, _REPLACED = "new", "replaced"  # in the hidden folder
_MAX_VANISHED = 10  # times that a folder may vanish between being made and locked


class TakenError(UserError):
    """Another process is working on an output, or it contains what must not be overwritten."""


@contextmanager
def lock(folder: Path, name: str) -> Iterator[None]:
    """Keep other processes from working in a folder, made if missing, until the block or the process ends.

    Args:
        name: of the folder or the output, for messages.

    Raises:
        TakenError: if another process has locked it.
        UserError: if the folder cannot be written.
    """
    lock = FileLock(folder / LOCK, timeout=0)
    for attempt in range(_MAX_VANISHED + 1):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
            break
        except Timeout:
            raise TakenError(f"{name}: another process is working there") from None
        except OSError as error:
            # Not found: another start has just removed the folder.
            if not isinstance(error, FileNotFoundError) or attempt == _MAX_VANISHED:
                raise UserError(f"{name} cannot be written: {error}") from None
    try:
        yield
    finally:
        lock.release()


def check_output(option: str, path: Path, *, overwrite: bool | None = None) -> None:
    """Raises UserError for a file that :func:`reserved_output` would refuse, before anything heavy starts."""
    if problem := _problem(Path(os.path.realpath(path)), None, overwrite):
        raise UserError(f"{option}={path}: {problem}")


@contextmanager
def reserved_output(
    option: str,
    path: Path,
    *,
    record: str | None = None,
    overwrite: bool | None = None,
    resumed: Collection[str] = (),
) -> Iterator[Path]:
    """Reserve an output before any computation, and move it to its path when the block has ended.

    Until then it is made in the hidden folder `.<name>.partial` next to it, which is locked. A block that
    fails leaves only the files there that the next start resumes from.
    What a killed process leaves is removed by the next start with the same output.

    Args:
        option: that names the output, for messages.
        path: of a file, or with `record` of a folder. Nothing is there, or something empty.
        record: a file by which the program knows the folders that it has made; "" = it replaces none.
        overwrite: replaces any file, or a folder with the record; None = the program has no such option.
        resumed: names of the files and folders that a failing block leaves to resume from.

    Yields:
        The path to write: of a file, or of an empty folder.

    Raises:
        TakenError: if another process is working on the output.
        UserError: if something is there already, or the output cannot be written.

    What somebody else puts there meanwhile stays: the output gets the first free name of `<name>-2`,
    `<name>-3`, …, and a warning names it.
    """
    target = Path(os.path.realpath(path))  # what a link leads to is replaced, not the link
    work, name = target.parent / f".{target.name}.partial", f"{option}={path}"
    new, destination = work / _NEW / target.name, target
    with lock(work, name):
        try:
            _clear(work, target)
            if problem := _problem(target, record, overwrite):
                raise UserError(f"{name}: {problem}")
            was_there = target.exists()
            (new.parent if record is None else new).mkdir(parents=True)
            yield new
            seal(new.parent)
            for state in resumed:
                shutil.rmtree(work / state, ignore_errors=True)
                (work / state).unlink(missing_ok=True)  # it was a file
            may_replace = was_there and not _problem(target, record, overwrite)
            if may_replace and record:
                target.rename(work / _REPLACED)
            elif not may_replace:
                destination = next(p for p in free_name(target) if not os.path.lexists(p))
            new.replace(destination)
            sync(destination.parent)
        except OSError as error:
            if not str(error.filename).startswith(str(work)):
                raise
            raise UserError(f"{name} cannot be written: {error.strerror}") from None
        finally:
            _clear(work, target)
            with suppress(OSError):  # another start has the folder now, or it contains what is resumed from
                (work / LOCK).unlink()
                work.rmdir()
    if destination != target:
        log.warning("%s: something else was put there meanwhile: the output is %s", name, destination)


def _problem(target: Path, record: str | None, overwrite: bool | None) -> str | None:
    """The reason why an output cannot be written there, if any."""
    if not target.exists():
        return None
    if record is None:
        is_right_kind, is_empty = target.is_file(), target.is_file() and not target.stat().st_size
    else:
        is_empty = target.is_dir() and not any(target.iterdir())
        is_right_kind = is_empty or (bool(record) and (target / record).is_file())
    if not is_right_kind or target.is_mount():
        return f"contains something else: choose a new {'file' if record is None else 'folder'}"
    if is_empty or overwrite:
        return None
    return "already exists: choose another" + ("" if overwrite is None else ", or overwrite=true replaces it")


def _clear(work: Path, target: Path) -> None:
    """Remove an unfinished output, and move back the folder that it was to replace."""
    with suppress(OSError):  # the new one is there, or nothing was to be replaced
        (work / _REPLACED).rename(target)
    for name in (_NEW, _REPLACED):
        shutil.rmtree(work / name, ignore_errors=True)
