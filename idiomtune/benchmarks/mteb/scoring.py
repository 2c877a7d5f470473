"""Tasks of mteb as a benchmark: mteb computes the scores, and asks for embeddings meanwhile."""

from __future__ import annotations

import copy
import difflib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import mteb
import torch
from datasets import get_dataset_config_names, get_dataset_split_names
from datasets.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from mteb import AbsTask, TaskResult
from mteb.abstasks.aggregated_task import AbsTaskAggregate
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.get_tasks import TASK_LIST
from mteb.models.model_meta import ModelMeta
from mteb.types import PromptType
from torch import Tensor

from idiomloss import cosine_similarity, paired_cosine_similarity
from idiomtune.benchmarks import Embed, Result, Score
from idiomtune.benchmarks.mteb import unchanged_generators
from idiomtune.errors import DataMissingError, UserError
from idiomtune.io.hub import NETWORK_ERRORS, causes, without_secrets
from idiomtune.requests import Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

logging.getLogger("mteb").setLevel(logging.WARNING)  # it logs every step

# datasets reports data that is missing, or not public, by a kind of FileNotFoundError, …
_MISSING = (*NETWORK_ERRORS, FileNotFoundError)
# … and in a ValueError that without a network it has another part of the data set only.
_NOT_CACHED = "Couldn't find cache for"
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


class _Model:
    """What mteb needs of a model."""

    mteb_model_meta = ModelMeta.create_empty()

    def __init__(self, embed: Embed) -> None:
        self._embed = embed

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, prompt_type: PromptType | None = None, **_: Any
    ) -> NDArray[Any]:
        """(N, D) of batches of texts; those of a task without documents are all queries."""
        role = "document" if prompt_type == PromptType.document else "query"
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


def tasks_named(
    names: Sequence[str], languages: Sequence[str] | None = None, splits: Sequence[str] | None = None
) -> list[AbsTask]:
    """Tasks, not loaded yet.

    Args:
        languages: of the subsets to score, as `eng` or `eng-Latn`; None = all.
        splits: to score; None = those that mteb scores.

    Raises:
        ValueError: if a task or language does not exist, is not only about text, or is scored on other
            splits only.
    """
    tasks = []
    for name in dict.fromkeys(names):
        try:
            task = mteb.get_task(name, languages=languages, eval_splits=splits)
        except KeyError:
            raise ValueError(_unknown(name)) from None
        except ValueError as error:
            raise ValueError(f"languages={languages}, task {name}: {error}") from None
        if list(task.modalities) != ["text"]:
            raise ValueError(f"tasks: {name} is about {' and '.join(task.modalities)}, not only about text")
        if splits and isinstance(task, AbsTaskAggregate) and set(splits) != set(task.metadata.eval_splits):
            raise ValueError(
                f"splits={splits}: {name} is made of other tasks, which mteb scores together only on "
                f"{', '.join(task.metadata.eval_splits)}"
            )
        tasks.append(task)
    return tasks


def _unknown(name: str) -> str:
    known = {task.metadata.name.casefold(): task.metadata.name for task in TASK_LIST}
    near = [known[match] for match in difflib.get_close_matches(name.casefold(), known, n=5)]
    guess = f"did you mean {' or '.join(near)}?" if near else "mteb.get_tasks() in Python lists them"
    return f"tasks: mteb {mteb.__version__} has no task {name!r}; {guess}"


def parts_of(task: AbsTask) -> list[AbsTask]:
    """The tasks that an aggregate is made of; else the task itself."""
    return list(task.tasks) if isinstance(task, AbsTaskAggregate) else [task]


def load(task: AbsTask) -> None:
    """Load its data, from the Hugging Face Hub or its cache.

    Raises:
        DataMissingError: if they are unavailable: no network and not in the cache, not found, or no access.
        UserError: if they are faulty, or lack a split that is to be scored.
    """
    hub = logging.getLogger("huggingface_hub")
    for part in parts_of(task):
        log.info("loading the data of %s", part.metadata.name)
        level = hub.level
        hub.setLevel(logging.ERROR)  # without a network it logs each try
        try:
            part.load_data()
            there = _splits_of(part)
        except Exception as error:  # datasets raises dozens of kinds
            raise _explained(error, part, task) from error
        finally:
            hub.setLevel(level)
        if there and not set(part.eval_splits) <= set(there):
            raise UserError(
                f"benchmark.mteb: {part.metadata.name} cannot be scored on {', '.join(part.eval_splits)}: "
                f"its data have {', '.join(there)}; benchmark.mteb.splits chooses among them"
            )


def _explained(error: Exception, part: AbsTask, task: AbsTask) -> UserError:
    """Why the data of a task, or of a part of it, could not be loaded, and what to do."""
    reason = without_secrets(" ".join(str(error).split()))[:300]
    data = f"benchmark.mteb.tasks: the data of {part.metadata.name} ({part.metadata.dataset['path']})"
    if any(isinstance(one, _MISSING) for one in causes(error)) or _NOT_CACHED in str(error):
        return DataMissingError(
            f"{data} cannot be loaded from the Hugging Face Hub, nor from its cache: "
            f"{reason or type(error).__name__}; without {task.metadata.name} the other tasks can be scored"
        )
    return UserError(
        f"{data} cannot be loaded to be scored on {', '.join(part.eval_splits)}: "
        f"{type(error).__name__}: {reason}"
    )


def _splits_of(task: AbsTask) -> list[str]:
    """The splits that each subset of its data has; [] if they show only when mteb scores them."""
    if isinstance(task, AbsTaskRetrieval) and not set(task.eval_splits) <= set(task.metadata.eval_splits):
        found = [_judged_splits(task, subset) for subset in task.hf_subsets]
    else:
        data = task.dataset or {}
        found = [list(data[subset]) for subset in task.hf_subsets if subset in data] or [list(data)]
    return [split for split in found[0] if all(split in others for others in found)]


def _judged_splits(task: AbsTask, subset: str) -> list[str]:
    """The splits of its judgements on the Hub: the only one there is mteb takes in place of any other."""
    path, revision = task.metadata.dataset["path"], task.metadata.revision
    configs = get_dataset_config_names(path, revision)
    names = ["default", "qrels"] if subset == "default" else [f"{subset}-qrels"]
    name = next((name for name in names if name in configs), None)
    return [str(split) for split in get_dataset_split_names(path, name, revision=revision)] if name else []


def score_of(task: AbsTask, subset: str = "") -> Score:
    """`mteb/<task>/<metric>`; of one of several subsets `mteb/<task>/<subset>/<metric>`."""
    return Score("mteb", task.metadata.name, subset, task.metadata.main_score)


def keys_of(task: AbsTask) -> list[str]:
    """Every score that it gives: its own, and that of each subset if it has several."""
    is_one = isinstance(task, AbsTaskAggregate) or len(task.hf_subsets) == 1
    return [str(score_of(task, subset)) for subset in ("", *([] if is_one else task.hf_subsets))]
