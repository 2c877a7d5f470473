"""Tasks of mteb as a benchmark: mteb computes the scores, and asks for embeddings meanwhile."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import mteb
import torch
from datasets.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from mteb import AbsTask, TaskResult
from mteb.abstasks.aggregated_task import AbsTaskAggregate
from mteb.models.model_meta import ModelMeta
from mteb.types import PromptType
from torch import Tensor

from idiomloss import cosine_similarity, paired_cosine_similarity
from train.benchmarks import Embed, Result, Score
from train.benchmarks.mteb import MtebOptions
from train.benchmarks.mteb.generators import unchanged_generators
from train.benchmarks.mteb.tasks import load, parts_of, score_of
from train.errors import UserError
from train.requests import Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH_SIZE = 1024  # texts that mteb hands over at once


class MtebBenchmark:
    """Tasks of mteb, each with its main score.

    Args:
        tasks: with their data loaded.
    """

    name = "mteb"
    files: Sequence[Path] = ()
    without_gold: Sequence[str] = ()

    def __init__(self, tasks: Sequence[AbsTask]) -> None:
        self._tasks = list(tasks)

    def score(self, embed: Embed) -> Result:
        """The scores of all tasks.

        Raises:
            UserError: if mteb cannot score one of them.
        """
        result = Result()
        for task in self._tasks:
            try:
                of_task = _result(task, _Model(embed))
            except UserError:
                raise
            except Exception as error:  # such as a split that it does not have
                raise UserError(
                    f"benchmark.mteb.tasks: mteb cannot score {task.metadata.name} on "
                    f"{', '.join(task.eval_splits)}: {type(error).__name__}: {error}"
                ) from error
            result.scores.extend(_scores(task, of_task))
            sources = {f"{p.metadata.dataset['path']} at {p.metadata.revision[:12]}" for p in parts_of(task)}
            splits = ", ".join(of_task.scores)
            result.notes.append(
                f"{score_of(task)}: on {splits}; mteb {mteb.__version__}, {', '.join(sorted(sources))}"
            )
        return result


def build(_settings: Any, options: MtebOptions) -> MtebBenchmark:
    """The benchmark on the tasks that the options name."""
    for task in (tasks := options.chosen()):
        with unchanged_generators():
            load(task)
    return MtebBenchmark(tasks)


class _Model:
    """What mteb needs of a model."""

    mteb_model_meta = ModelMeta.create_empty()

    def __init__(self, embed: Embed) -> None:
        self._embed = embed

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, prompt_type: PromptType | None = None, **_: Any
    ) -> NDArray[Any]:
        """(N, D) of batches of texts."""
        role = "query" if prompt_type == PromptType.query else "document"
        texts = [text for batch in inputs for text in batch["text"]]
        return self._embed([Request(text, role=role) for text in texts]).numpy()  # type: ignore[arg-type]

    def similarity(self, a: Any, b: Any) -> Tensor:
        return cosine_similarity(torch.as_tensor(a), torch.as_tensor(b))

    def similarity_pairwise(self, a: Any, b: Any) -> Tensor:
        return paired_cosine_similarity(torch.as_tensor(a), torch.as_tensor(b))


def _result(task: AbsTask, model: _Model) -> TaskResult:
    """mteb's scores of a task.

    It runs on a copy: a task draws from generators of its own, which would give other samples the next time.
    """
    if isinstance(task, AbsTaskAggregate):
        return task.combine_task_results([_result(part, model) for part in task.tasks])
    with _unnoticed():
        (result,) = mteb.evaluate(
            model,
            copy.deepcopy(task),
            cache=None,
            overwrite_strategy="always",
            co2_tracker=False,
            encode_kwargs={"batch_size": _BATCH_SIZE, "show_progress_bar": False},
            show_progress_bar=False,
        ).task_results
    return result


@contextmanager
def _unnoticed() -> Iterator[None]:
    """Leaves generators as they are, and datasets' progress bars off."""
    had_no_bars = are_progress_bars_disabled()
    disable_progress_bars()
    with unchanged_generators():
        try:
            yield
        finally:
            if not had_no_bars:
                enable_progress_bars()


def _scores(task: AbsTask, result: TaskResult) -> list[Score]:
    """The mean over splits and subsets, as mteb has it; of several subsets, also the mean of each."""
    by_subset: dict[str, list[float]] = {}
    for of_split in result.scores.values():
        for scores in of_split:
            by_subset.setdefault(scores["hf_subset"], []).append(scores["main_score"])
    means = {"": fmean(value for values in by_subset.values() for value in values)}
    if len(by_subset) > 1:
        means |= {subset: fmean(values) for subset, values in by_subset.items()}
    return [replace(score_of(task, subset), value=mean) for subset, mean in means.items()]
