"""Any task of mteb by its name, scored by mteb itself (the extra `mteb`)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator

from idiomtune.declarations.benchmark import BenchmarkOptions
from idiomtune.declarations.options import Names
from idiomtune.declarations.registry import benchmark
from idiomtune.declarations.score import Score

if TYPE_CHECKING:
    from idiomtune.benchmarks.mteb.scoring import MtebBenchmark


@contextmanager
def unchanged_generators() -> Iterator[None]:
    """Keeps the state of the random generators of Python, NumPy and torch.

    mteb seeds them with 42 when it is imported, and whenever a task is made or scored.
    """
    import numpy as np
    import torch

    pythons, numpys = random.getstate(), np.random.get_state()
    # A check of options must not start CUDA, after which no process can be forked.
    is_pending = torch.cuda.is_available() and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=[] if is_pending else None):
        try:
            yield
        finally:
            random.setstate(pythons)
            np.random.set_state(numpys)
    if is_pending:  # until it starts torch only notes a seed for it
        torch.cuda.manual_seed_all(torch.initial_seed())


def _refined(score: Score) -> Score:
    """A subset of a task, `mteb/<task>/<subset>/<metric>`, is a detail."""
    return replace(score, role="detail", is_drawn=False) if score.mode else score


@benchmark("mteb", title="mteb", refine=_refined, percent=True, rows="subset")
class MtebOptions(BenchmarkOptions):
    """Options of the benchmark. In score keys its tasks take the place of splits."""

    name: Literal["mteb"]
    tasks: Names | None
    languages: Names | None
    splits: Names | None

    @model_validator(mode="after")
    def _tasks_are_known(self) -> Self:
        self.chosen()
        return self

    def chosen(self) -> list[Any]:
        """The tasks, as objects of mteb's, not loaded yet.

        Raises:
            ValueError: if a task does not exist or is not only about text, or mteb is not installed.
        """
        if not self.tasks:
            raise ValueError("names no task: benchmark.mteb.tasks=[STS12,SciFact]")
        with unchanged_generators():
            try:
                from idiomtune.benchmarks.mteb.scoring import tasks_named  # takes seconds
            except ImportError as error:
                raise ValueError(f"needs the package mteb: pip install 'idiomtune[mteb]' ({error})") from None
            return tasks_named(self.tasks, self.languages, self.splits)

    def score_keys(self, splits: Sequence[str]) -> list[str]:
        from idiomtune.benchmarks.mteb.scoring import keys_of

        del splits
        return [key for task in self.chosen() for key in keys_of(task)]

    def build(self, settings: Any) -> MtebBenchmark:  # noqa: ARG002
        from idiomtune.benchmarks.mteb.scoring import MtebBenchmark, load

        for task in (tasks := self.chosen()):
            with unchanged_generators():
                load(task)
        return MtebBenchmark(tasks)
