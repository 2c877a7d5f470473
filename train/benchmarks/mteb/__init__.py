"""Any task of mteb by its name, scored by mteb itself (the extra `mteb`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import model_validator

from train.declarations.benchmark import BenchmarkOptions, BenchmarkType, Layout
from train.declarations.options import Names


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
            ValueError: if a task does not exist or is not about text alone, or mteb is not installed.
        """
        if not self.tasks:
            raise ValueError("names no task: benchmark.mteb.tasks=[STS12,SciFact]")
        from train.benchmarks.mteb.generators import unchanged_generators

        with unchanged_generators():
            try:
                from train.benchmarks.mteb.tasks import tasks_named  # takes seconds
            except ImportError as error:
                raise ValueError(f"needs the package mteb: pip install 'idiomtune[mteb]' ({error})") from None
            return tasks_named(self.tasks, self.languages, self.splits)

    def score_keys(self, splits: Sequence[str]) -> list[str]:
        from train.benchmarks.mteb.tasks import keys_of

        del splits
        return [key for task in self.chosen() for key in keys_of(task)]


def _is_of_a_task(key: str) -> bool:
    """Whether a score is of a whole task, `mteb/<task>/<metric>`, rather than of one of its subsets."""
    return key.count("/") == 2


def _layout(task: str, keys: Sequence[str]) -> Layout:
    """The task's score, and a row for each of its subsets."""
    there = [key for key in keys if key.split("/")[:2] == ["mteb", task]]
    labels = ["subset"] if len(there) > 1 else []
    return Layout(
        f"mteb-{task}",
        f"mteb {task}, in percent",
        [("", key.rpartition("/")[2]) for key in there[:1]],
        [(["/".join(key.split("/")[2:-1]) for _ in labels], [key]) for key in there],
        labels=labels,
        factor=100.0,
        digits=2,
    )


DECLARED = [
    BenchmarkType(
        "mteb",
        MtebOptions,
        "train.benchmarks.mteb.scoring:build",
        title="mteb",
        is_headline=_is_of_a_task,
        is_compared=_is_of_a_task,
        is_curve=_is_of_a_task,
        layout=_layout,
    )
]
