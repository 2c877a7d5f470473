"""Early ends of a program: signals, the recorded status, and errors with remedies."""

from __future__ import annotations

import errno
import logging
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from idiomtune.errors import Interrupted, Pruned, UserError, resume_command
from idiomtune.io.files import as_os_errors
from idiomtune.io.hub import first_line, is_network_error, without_secrets
from idiomtune.io.processes import Processes, is_lost_peer
from idiomtune.training.checkpoint import last_saved
from idiomtune.training.run_folder import RunFolder

log = logging.getLogger(__name__)

_NO_MEMORY = ("out of memory", "can't allocate memory")  # of CUDA and MPS; of main memory
# Also raised without a file name.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EINTR, errno.EFBIG)


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM set a flag, which is checked between steps; a second SIGINT stops at once.

    A second SIGTERM does not: a scheduler sends one to every process, and the launcher forwards its own.

    Yields:
        Whether the run was asked to stop.
    """
    received: list[int] = []

    def note(number: int, _frame: object) -> None:
        if number == signal.SIGINT and number in received:
            raise KeyboardInterrupt
        if not received:
            log.info("%s: stopping after this step", signal.Signals(number).name)
        received.append(number)

    with _handle(note, signal.SIGINT, signal.SIGTERM):
        yield lambda: bool(received)


@contextmanager
def stopping_at_sigterm() -> Iterator[None]:
    """Within this context SIGTERM raises :class:`Interrupted`, as SIGINT raises KeyboardInterrupt.

    Only the first one does: a scheduler sends one to every process, and the launcher forwards its own. The
    training loop finishes its step instead, see :func:`stop_requests`.
    """

    def stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise Interrupted("stopped by SIGTERM")

    with _handle(stop, signal.SIGTERM):
        yield


@contextmanager
def _handle(handler: Callable[[int, object], None], *numbers: signal.Signals) -> Iterator[None]:
    """Handle signals within this context; in the main thread, since others handle none."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if is_main}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def recording_end(run: RunFolder) -> Iterator[None]:
    """Record in `run.json` whatever ends the run early."""
    try:
        yield
    except KeyboardInterrupt as error:
        with suppress(OSError):  # a full disk must not hide what happened
            run.end("interrupted")
        raise Interrupted(f"{str(error) or 'stopped'}; resume it with {resume_command(run.path)}") from None
    except Pruned as error:
        run.end("pruned", reason=str(error))
        raise
    except BaseException as error:
        with suppress(OSError):
            run.end("failed", error=f"{type(error).__name__}: {error}")
            if isinstance(error, Exception) and not isinstance(error, UserError):
                run.write_traceback(error)
        raise


@contextmanager
def explaining_system_errors(run: RunFolder, processes: Processes, takes_less: str) -> Iterator[None]:
    """Turn failures of memory, disk, network and other processes into errors with remedies.

    Args:
        takes_less: options with which a step takes less memory.

    Raises:
        UserError: for such a failure; any other error is raised unchanged.
    """
    try:
        with as_os_errors():
            yield
    except (OSError, RuntimeError, MemoryError) as error:
        if isinstance(error, OSError) and (failed := what_failed(error)):
            message = f"{failed}. {last_saved(run.path)}"
        elif is_out_of_memory(error):
            message = f"{system_failure(error)}\n{takes_less}"
        elif processes.count > 1 and is_lost_peer(error):
            message = "another process of this launch ended; see its message. "
            message += f"Then: {resume_command(run.path)}"
        else:
            raise
        raise UserError(message) from error


@contextmanager
def explaining_errors(advice: str) -> Iterator[None]:
    """Add advice to interrupts, and to failures of disk and network.

    Raises:
        Interrupted: at SIGINT or SIGTERM.
        UserError: for such a failure; any other error is raised unchanged.
    """
    try:
        with stopping_at_sigterm(), as_os_errors():
            yield
    except OSError as error:
        if (failure := what_failed(error)) is None:
            raise
        raise UserError(f"{failure}; {advice}") from error
    except KeyboardInterrupt as error:
        raise Interrupted(f"{str(error) or 'stopped'}; {advice}") from None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device or the machine was out of memory."""
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY)


def system_failure(error: BaseException) -> str | None:
    """The message for a failure of disk or memory; None for another error."""
    if is_out_of_memory(error):
        return f"memory does not suffice: {first_line(error)}"
    return what_failed(error) if isinstance(error, OSError) and error.errno in _DISK_ERRORS else None


def what_failed(error: OSError) -> str | None:
    """The message for a failure of disk or network; None for another error."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        _, target, reason = error.args[0][0]  # from copying a folder
        return f"a file could not be written: {target}: {reason}"
    if error.filename is not None or error.errno in _DISK_ERRORS:
        return f"a file could not be read or written: {error}"
    if is_network_error(error):
        return f"the network failed: {without_secrets(str(error))}"
    return None
