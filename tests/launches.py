"""Several processes of one launch on this machine, without a launcher and without importing all anew.

`python -m tests.launches` imports torch and all the rest once (seconds) and forks the processes of a launch,
which talk to each other by gloo. Each runs a function `module:name` with the same arguments.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.warm import Piped

ROOT = Path(__file__).resolve().parent.parent
EVALUATION = "tests.process_jobs:evaluation"  # the job whose options are those of `idiomtune evaluate`


class Launches:
    """The forking process, seen from a test.

    Args:
        limit: seconds after which a launch is ended.
    """

    def __init__(self, limit: float = 120) -> None:
        self._server = Piped(["-m", "tests.launches", str(limit)])
        self._server.answer()  # all is imported

    def __call__(self, count: int, function: str, **arguments: Any) -> list[tuple[int, str]]:
        """Exit status and output of each process, by number; a negative status is a signal's."""
        answer = self.ask([count, function, arguments, os.environ.get("IDIOM_CACHE", "")])
        return [(status, said) for status, said in answer]

    def ask(self, request: Any) -> Any:
        """A launch, or an attempt: see :mod:`tests.attempts`."""
        return json.loads(self._server.ask(json.dumps(request)))

    def close(self) -> None:
        self._server.close()


def serve() -> None:
    import torch

    from tests.attempts import Attempt, fork
    from tests.tiny_runs import composed  # imported here, so that no child has to

    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 1)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if isinstance(request, dict):
            print(json.dumps(asdict(fork(Attempt(**request)))), file=answers, flush=True)
            continue
        count, function, arguments, os.environ["IDIOM_CACHE"] = request
        for job in arguments.get("jobs", [arguments]):
            if function != EVALUATION and "options" in job:
                composed("config", *job["options"])  # kept here, so that it is there in the children
        print(json.dumps(_launch(count, function, arguments)), file=answers, flush=True)


def _launch(count: int, function: str, arguments: dict[str, Any]) -> list[tuple[int, str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children, outputs = [], []
    for rank in range(count):
        output = tempfile.TemporaryFile()  # noqa: SIM115  a pipe would fill up
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 2)
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
            os.environ |= {name: str(value) for name, value in place.items()}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            os._exit(_run(function, arguments))
        children.append(child)
        outputs.append(output)
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + float(sys.argv[1])
    while len(statuses) < count:
        for child in set(children) - statuses.keys():
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                statuses[child] = os.waitstatus_to_exitcode(status)
                if statuses[child] != 0:  # as a launcher does: one has failed, so all are to end
                    deadline = min(deadline, time.monotonic() + 20)
        if time.monotonic() > deadline:
            for child in set(children) - statuses.keys():
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    said = []
    for output in outputs:
        with output:
            output.seek(0)
            said.append(output.read().decode(errors="replace"))
    return [(statuses[child], text) for child, text in zip(children, said, strict=True)]


def _run(function: str, arguments: dict[str, Any]) -> int:
    import logging

    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    module, _, name = function.partition(":")
    try:
        getattr(importlib.import_module(module), name)(**arguments)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        return 1
    return 0


if __name__ == "__main__":
    serve()
