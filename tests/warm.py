"""Programs in processes of their own, without waiting for torch: forked from one that has imported it.

A cold `python -m train` spends most of a short test's time on imports. The first test that starts a program
starts a server beside it, which imports once; each program is then forked from it and runs as `__main__`,
with its own arguments, folder, environment and standard streams. All processes of a test session share it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import resource
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NoReturn

from filelock import FileLock

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = "IDIOM_TESTS_WARM"  # the server's socket, of the session
# Read where a library is imported: a program for which they differ is started cold.
_READ_AT_IMPORT = (
    *("HF_", "HUGGINGFACE_", "TRANSFORMERS_", "TORCH_", "OMP_", "MKL_", "ATEN_", "ONEDNN_"),
    *("XDG_", "HOME", "LANG", "LC_", "PYTHON"),
)
# But these the Hub's client reads again in a program for which they differ.
_READ_AGAIN = {"HF_ENDPOINT", "HF_HOME", "HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_DISABLE_XET"}
_SIZE = 8  # bytes of the length that goes before a request
_NOTHING, _END = ((2**64 - n).to_bytes(_SIZE, "big") for n in (1, 2))  # in the place of a length
_START = 120  # seconds for the server to import all


class Program:
    """A running program, used as :class:`subprocess.Popen` is.

    Args:
        arguments: of Python: `-m <module> …` or `<script> …`.
        streams: its standard input, output and errors.
        file_size: bytes beyond which no file can grow, as where the disk is full.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        streams: Sequence[IO[Any]],
        file_size: int | None = None,
    ) -> None:
        if names := _differing(env):
            raise ValueError(f"{names} are read when libraries are imported: start this program cold")
        reading, writing = os.pipe()
        wanted = {"arguments": list(arguments), "cwd": str(cwd), "env": dict(env), "file_size": file_size}
        request = json.dumps(wanted).encode()
        with _connected() as server:
            descriptors = [*(stream.fileno() for stream in streams), writing]
            socket.send_fds(server, [len(request).to_bytes(_SIZE, "big")], descriptors)
            server.sendall(request)
        os.close(writing)
        self.args = list(arguments)
        self.returncode: int | None = None
        self._status = os.fdopen(reading, "rb", buffering=0)
        self.pid = int(self._status.readline())

    def poll(self) -> int | None:
        """Its exit status if it has ended, which is minus the number of a signal that ended it."""
        return self._end_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status.

        Raises:
            subprocess.TimeoutExpired: if it runs on after `timeout` seconds.
        """
        status = self._end_within(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _end_within(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode


def run(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    file_size: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """`python <arguments>` to its end; see :class:`Program`.

    Raises:
        subprocess.TimeoutExpired: after `timeout` seconds; the program is ended.
    """
    pipes = [os.pipe(), os.pipe()]
    with ExitStack() as held:
        outputs = [held.enter_context(os.fdopen(reading, "rb")) for reading, _ in pipes]
        with ExitStack() as given:
            streams: list[IO[bytes]] = [given.enter_context(Path(os.devnull).open("rb"))]
            streams += [given.enter_context(os.fdopen(writing, "wb")) for _, writing in pipes]
            program = Program(arguments, cwd=cwd, env=env, streams=streams, file_size=file_size)
        # A full pipe would stop the program, so both are read while it runs.
        readers = held.enter_context(ThreadPoolExecutor(2))
        texts = [readers.submit(output.read) for output in outputs]
        try:
            code = program.wait(timeout)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
            raise
        said = [text.result().decode(errors="backslashreplace") for text in texts]
    return subprocess.CompletedProcess([sys.executable, *arguments], code, *said)


class Piped:
    """A program of tests that answers lines by lines; of one thread, since it forks in its turn."""

    def __init__(self, arguments: Sequence[str]) -> None:
        to_read, to_write = os.pipe(), os.pipe()
        self._lines, self._answers = os.fdopen(to_read[1], "w"), os.fdopen(to_write[0])
        env = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
        with (
            os.fdopen(to_read[0], "rb") as stdin,
            os.fdopen(to_write[1], "wb") as stdout,
            os.fdopen(os.dup(2), "wb") as stderr,
        ):
            self._program = Program(arguments, cwd=ROOT, env=env, streams=(stdin, stdout, stderr))

    def ask(self, line: str) -> str:
        self._lines.write(f"{line}\n")
        self._lines.flush()
        return self.answer()

    def answer(self) -> str:
        return self._answers.readline()

    def close(self) -> None:
        self._lines.close()
        self._program.wait(60)
        self._answers.close()


_STAND_IN = "--stand-in"


def stand_in(command: Sequence[str]) -> list[str]:
    """For what starts `python …` itself: a command with the program's streams, signals and exit status."""
    with _connected() as server:  # the process that starts it must outlive the command
        server.sendall(_NOTHING)
    return [command[0], str(Path(__file__).resolve()), _STAND_IN, *command[1:]]


def _stand_in(arguments: Sequence[str]) -> int:
    program = Program(arguments, cwd=Path.cwd(), env=os.environ, streams=[sys.stdin, sys.stdout, sys.stderr])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: program.send_signal(number))
    return program.wait()


def is_same_world(env: Mapping[str, str]) -> bool:
    """Whether a program with this environment imports what it would import here."""
    return not _differing(env)


def _differing(env: Mapping[str, str]) -> list[str]:
    names = {name for name in (*env, *os.environ) if name.startswith(_READ_AT_IMPORT)}
    names -= {"PYTHONPATH"} | _READ_AGAIN
    return sorted(name for name in names if env.get(name) != os.environ.get(name))


def _connected() -> socket.socket:
    if ADDRESS not in os.environ:  # not in pytest
        os.environ[ADDRESS] = open_session()
        atexit.register(close_session, os.environ[ADDRESS])
    address = os.environ[ADDRESS]
    with FileLock(f"{address}.lock"):
        try:
            return _connect(address)
        except OSError:
            _start_server(address)
            return _connect(address)


def _connect(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


_server: subprocess.Popen[bytes] | None = None  # where it was this process that started it


@atexit.register
def _leave_server() -> None:
    """It may outlive a process that started it, and ends by itself: no reason for a warning."""
    if _server is not None and _server.returncode is None:
        _server.returncode = 0


def _start_server(address: str) -> None:
    global _server
    Path(address).unlink(missing_ok=True)  # of one that died
    log = Path(f"{address}.log")
    with log.open("wb") as said:
        _server = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", address],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,  # Ctrl-C is for the tests
        )
    end = time.monotonic() + _START
    while not Path(address).exists():
        if _server.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the server of programs did not start:\n{log.read_text()}")
        time.sleep(0.05)


def open_session() -> str:
    """A new address for the session's server, which starts with the first program."""
    return str(Path(tempfile.mkdtemp(prefix="idiom-tests-"), "warm"))


def close_session(address: str) -> None:
    """End the session's server, if it was started."""
    with contextlib.suppress(OSError), _connect(address) as server:
        server.sendall(_END)
    if _server is not None:
        _server.wait()
    shutil.rmtree(Path(address).parent, ignore_errors=True)


# ------------------------------------------------------------------------------- in the server


def serve(address: str) -> None:
    """Fork a program for each connection, until one asks for nothing."""
    import accelerate
    import optuna
    import sentence_transformers
    import torch

    import idiomtune.commands.report
    import idiomtune.programs.evaluate
    import idiomtune.programs.fine_tune
    import idiomtune.training.sweeper  # noqa: F401

    del accelerate, optuna, sentence_transformers
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    _warm_up(Path(address).parent)
    gc.collect()
    gc.freeze()  # else a fork's first collection would copy all of this
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for the forks here
    parent = os.getppid()
    listening = socket.socket(socket.AF_UNIX)
    partial = f"{address}.partial"
    listening.bind(partial)
    listening.listen()
    listening.settimeout(10)
    Path(partial).rename(address)  # it appears when it can be connected to
    while os.getppid() == parent:  # else the tests are gone
        try:
            connection = listening.accept()[0]
        except TimeoutError:
            continue
        with connection:
            head, descriptors, _, _ = socket.recv_fds(connection, _SIZE, 4)
            if head == _END:
                return
            if head in (_NOTHING, b""):
                continue
            size = int.from_bytes(head, "big")
            request = json.loads(connection.recv(size, socket.MSG_WAITALL))
            if os.fork() == 0:
                listening.close()
                connection.close()
                _watch(request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)


def _warm_up(folder: Path) -> None:
    """Do once what is slow the first time it is done in a process; nothing that starts a thread."""
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    from idiomtune.config.compose import compose_config
    from idiomtune.hub.card import card
    from idiomtune.reports.page import page
    from idiomtune.reports.plots import Curves, learning_curve
    from tests.kept_configs import keep_configs

    get_checkpoint_conversion_mapping("bert")
    keep_configs()
    compose_config("config", "+experiment=idiolink_ft")
    learning_curve([Curves("", [], "")], 1, "", folder / "curve.png")
    card("learnt", {}, model="", into="tokens", glossary={"expressions": 0}, about="", rows=[])
    page([], [], [], [])


def _watch(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """In a fork: fork once more, and report the end of that process; only that one returns from here."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, status = descriptors
    child = os.fork()
    if child:
        for descriptor in streams:
            os.close(descriptor)
        os.write(status, f"{child}\n".encode())
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(status, f"{code}\n".encode())
        os._exit(0)
    os.close(status)
    os.setsid()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    raise _Forked(request)


class _Forked(BaseException):
    """In the child: leaves the server's loop, with what to run."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request


def become(request: dict[str, Any]) -> NoReturn:
    """Run the program as if Python had just been started with it."""
    arguments: list[str] = request["arguments"]
    env: dict[str, str] = request["env"]
    differing = {name for name in _READ_AGAIN if env.get(name) != os.environ.get(name)}
    os.environ.clear()
    os.environ.update(env)
    if differing:
        _read_hub_variables()
    os.chdir(request["cwd"])
    if (size := request["file_size"]) is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    added = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    if request["cwd"] != str(ROOT):  # a folder may have `tests` of its own
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
    status = 0
    try:
        if arguments[0] == "-m":
            sys.path[0:1] = [request["cwd"], *added]
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.path[0:1] = [str(Path(arguments[0]).resolve().parent), *added]
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        status = _status(end)
    except Exception:
        sys.excepthook(*sys.exc_info())
        status = 1
    _leave(status)


def _read_hub_variables() -> None:
    """As the Hub's client does where it is imported."""
    from huggingface_hub import constants, hf_api

    importlib.reload(constants)
    hf_api.api.endpoint = constants.ENDPOINT


def _status(end: SystemExit) -> int:
    """The exit status that Python gives it; what is no number is said."""
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _leave(status: int) -> NoReturn:
    """End as Python does, but leave its objects to the system.

    To free those that a fork shares with the server it would have to copy them first: seconds a program.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    forked = None
    if sys.argv[1] == _STAND_IN:
        sys.exit(_stand_in(sys.argv[2:]))
    try:
        serve(sys.argv[1])
    except _Forked as one:
        forked = one.request
    if forked is not None:
        become(forked)
