"""What is measured: elapsed and processor time, peak memory."""

from __future__ import annotations

import os
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TURNS = "BENCH_TURNS"  # set where several ways take their steps in turn, each in a process of its own
STEP_ENDED = "step"


@dataclass(frozen=True)
class Time:
    """Seconds.

    Attributes:
        wall: by the clock, with whatever else the machine did meanwhile.
        cpu: of the processor, all threads of this process together; other programs hardly change it.
    """

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Time:
        return cls(time.perf_counter(), time.process_time())

    def __sub__(self, other: Time) -> Time:
        return Time(self.wall - other.wall, self.cpu - other.cpu)

    def __add__(self, other: Time) -> Time:
        return Time(self.wall + other.wall, self.cpu + other.cpu)


@dataclass
class Measured:
    """One way, once.

    Attributes:
        times: of each training step but the first, in which libraries and caches warm up, without loading and
            saving; or of the whole task, if it is not training.
        losses: of each step.
        scores: flat key → number.
        memory: the most that the process has held, in MiB.
    """

    times: list[Time]
    losses: list[float] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    memory: float = field(default_factory=lambda: peak_memory())


class Steps:
    """Takes the time of training steps, and lets other ways take theirs in between."""

    def __init__(self) -> None:
        self._start = Time.now()
        self._each: list[Time] = []

    def ended(self) -> None:
        """A step is over."""
        self._each.append(Time.now() - self._start)
        if TURNS in os.environ:
            print(STEP_ENDED, flush=True)
            sys.stdin.readline()
        self._start = Time.now()

    @property
    def times(self) -> list[Time]:
        """Of each step but the first."""
        return self._each[1:]


def peak_memory() -> float:
    """The most memory that this process has held so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
