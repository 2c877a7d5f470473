"""How a run ends early: its status in `run.json`, and an error that the user can act on."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from safetensors import SafetensorError

from train.distributed.processes import Processes, is_lost_peer
from train.errors import Interrupted, Pruned, UserError
from train.io.hub import first_line, is_network_error, without_secrets
from train.runs.folder import RunFolder
from train.training.checkpoint import last_saved
from train.training.signals import stopped_by_sigterm


@contextmanager
def recorded_end(run: RunFolder) -> Iterator[None]:
    """Record in `run.json` whatever ends the run early."""
    try:
        yield
    except KeyboardInterrupt as error:
        with suppress(OSError):  # a full disk must not hide what happened
            run.end("interrupted")
        raise Interrupted(
            f"{error or 'stopped'}; resume it with: python -m train resume={run.path}"
        ) from None
    except Pruned as error:
        run.end("pruned", reason=str(error))
        raise
    except BaseException as error:
        with suppress(OSError):
            run.end("failed", error=f"{type(error).__name__}: {error}")
        raise


@contextmanager
def system_errors_explained(run: RunFolder, processes: Processes, takes_less: str) -> Iterator[None]:
    """Turn failures of memory, disk, network and other processes into errors that say what to do.

    Args:
        takes_less: options with which a step takes less memory.

    Raises:
        UserError: for such a failure; any other error is raised as it is.
    """
    try:
        yield
    except OSError as error:
        what = what_failed(error)
        if what is None:
            raise
        raise UserError(f"{what}. {last_saved(run.path)}") from error
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise UserError(f"memory does not suffice: {first_line(error)}\n{takes_less}") from error
        if processes.count == 1 or not is_lost_peer(error):
            raise
        raise UserError(
            f"another process of this launch ended; see its message. Then resume with resume={run.path}"
        ) from error


@contextmanager
def explained(then: str) -> Iterator[None]:
    """Add to an interrupt, and to failures of disk and network, what becomes of the work, or what to do.

    Raises:
        Interrupted: at SIGINT or SIGTERM.
        UserError: for such a failure; any other error is raised unchanged.
    """
    try:
        with stopped_by_sigterm():
            yield
    except KeyboardInterrupt as error:
        raise Interrupted(f"{error or 'stopped'}; {then}") from None
    except SafetensorError as error:  # its own exception for a full disk
        raise UserError(f"a file could not be written: {error}; {then}") from error
    except OSError as error:
        if (what := what_failed(error)) is None:
            raise
        raise UserError(f"{what}; {then}") from error


_NO_MEMORY = ("out of memory", "can't allocate memory")  # of CUDA and MPS; of main memory


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device or the machine had not enough memory."""
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY)


_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)  # also raised without a file name


def what_failed(error: OSError) -> str | None:
    """What a failure of disk or network is in words; None for another error."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        _, target, reason = error.args[0][0]  # from copying a folder
        return f"a file could not be written: {target}: {reason}"
    if error.filename is not None or error.errno in _DISK_ERRORS:
        return f"a file could not be read or written: {error}"
    if is_network_error(error):
        return f"the network failed: {without_secrets(str(error))}"
    return None
