"""mteb's tasks: found by name, loaded, and what their scores are called."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Sequence

import mteb
from mteb import AbsTask
from mteb.abstasks.aggregated_task import AbsTaskAggregate
from mteb.get_tasks import TASK_LIST

from train.errors import DataMissingError

log = logging.getLogger(__name__)

logging.getLogger("mteb").setLevel(logging.WARNING)  # it tells of every step


def tasks_named(
    names: Sequence[str], languages: Sequence[str] | None = None, splits: Sequence[str] | None = None
) -> list[AbsTask]:
    """Tasks, not loaded yet.

    Args:
        languages: of the subsets to score, as `eng` or `eng-Latn`; None = all.
        splits: to score; None = those that mteb scores.

    Raises:
        ValueError: if there is no such task or language, or it is not about text alone.
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
            raise ValueError(f"tasks: {name} is about {' and '.join(task.modalities)}, not about text alone")
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
        DataMissingError: if they cannot be had.
    """
    hub = logging.getLogger("huggingface_hub")
    for part in parts_of(task):
        log.info("loading the data of %s", part.metadata.name)
        level = hub.level
        hub.setLevel(logging.ERROR)  # without a network it tells of each try
        try:
            part.load_data()
        except Exception as error:  # datasets raises dozens of kinds
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise DataMissingError(
                f"benchmark.mteb.tasks: the data of {part.metadata.name} ({part.metadata.dataset['path']}) "
                f"cannot be loaded from the Hugging Face Hub, nor from its cache: {reason}"
            ) from None
        finally:
            hub.setLevel(level)


def key_of(task: AbsTask, subset: str = "") -> str:
    """`mteb/<task>/<metric>`; of one of several subsets `mteb/<task>/<subset>/<metric>`."""
    return "/".join(filter(None, ["mteb", task.metadata.name, subset, task.metadata.main_score]))


def keys_of(task: AbsTask) -> list[str]:
    """Every score that it gives: its own, and that of each subset where it has several."""
    is_one = isinstance(task, AbsTaskAggregate) or len(task.hf_subsets) == 1
    return [key_of(task), *([] if is_one else [key_of(task, subset) for subset in task.hf_subsets])]
