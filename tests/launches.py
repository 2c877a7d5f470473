"""Several processes of one launch on this machine, forked from that of the tests, which talk by gloo."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import time
from functools import partial
from typing import Any

from tests.forks import Child
from tests.tiny_runs import composed

EVALUATION = "tests.process_jobs:evaluation"  # the job whose options are those of `idiomtune evaluate`


def launch(count: int, function: str, *, limit: float = 500, **arguments: Any) -> list[tuple[int, str]]:
    """Exit status and output of each process, by number; a negative status is a signal's.

    Args:
        function: `module:name`, which each runs with the same arguments.
        limit: seconds after which the launch is ended.
    """
    for job in arguments.get("jobs", [arguments]):
        if function != EVALUATION and "options" in job:
            composed("train", *job["options"])  # kept here, so that it is there in the children
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    places = [
        {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        for rank in range(count)
    ]
    children = [Child(partial(_run, function, arguments, {**place, **address})) for place in places]
    deadline = time.monotonic() + limit
    while None in (statuses := [child.poll() for child in children]):
        if any(statuses):  # as a launcher does: one has failed, so all are to end
            deadline = min(deadline, time.monotonic() + 120)
        if time.monotonic() > deadline:
            for child in children:
                child.send_signal(signal.SIGKILL)
        time.sleep(0.02)
    return [(child.wait(0), "".join(child.said())) for child in children]


def _run(function: str, arguments: dict[str, Any], place: dict[str, Any]) -> None:
    os.environ |= {name: str(value) for name, value in place.items()}
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(**arguments)
