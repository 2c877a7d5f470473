"""What `train` and `check` both do first: read all data, and check it together with the options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from train.benchmarks import Benchmark
from train.config import TrainerSettings, TrainSettings
from train.errors import UserError
from train.factory import build_benchmarks, build_objective, check_dimensions, forget_own_data
from train.factory.model_options import check_model_options
from train.objectives import Objective
from train.objectives.mixture import MixtureObjective, in_section
from train.recipes.knowledge import gate_usages, glossary_files
from train.recipes.texts import check_pooling, check_texts
from train.training.early_stopping import check_monitor
from train.training.regularization import check_remedies


@dataclass(frozen=True)
class Prepared:
    """The data of a run, read and checked.

    Attributes:
        usages: that a glossary's gate is fitted to.
        not_scored: benchmark → why it is left out.
    """

    objective: Objective
    usages: Sequence[tuple[str, bool]]
    benchmarks: list[Benchmark]
    not_scored: Mapping[str, str]


def prepare(settings: TrainSettings, *, has_negatives: bool = True) -> Prepared:
    """Read all data of a run, and do every check that needs no weights.

    Args:
        has_negatives: False where hard negatives are still to be mined.

    Raises:
        UserError: for everything that the user can fix.
    """
    forget_own_data()
    glossary_files(settings.model)  # an error there is reported before anything is downloaded
    objective = build_objective(settings)
    check_remedies(settings.retain, objective)
    if has_negatives and settings.retain.teacher is None:  # a teacher teaches whatever the objective does
        _check_can_learn(objective, settings.trainer)
    usages = gate_usages(settings.model, objective)
    benchmarks, not_scored = build_benchmarks(settings)
    check_monitor(settings.trainer, not_scored)
    check_texts(settings, objective)
    check_pooling(settings.model)
    check_dimensions(settings.model, [*(settings.trainer.matryoshka or []), *settings.cut_dimensions])
    check_model_options(settings, objective, benchmarks)
    return Prepared(objective, usages, benchmarks, not_scored)


def _check_can_learn(objective: Objective, trainer: TrainerSettings, section: str = "objective") -> None:
    """Check that some batch of the first epoch has anything to learn from, in a mixture of each part.

    Looks no further than the first such step, or than the steps after which a run would end with an error
    (`trainer.max_empty_steps`). An objective that says nothing of its batches can learn.

    Args:
        section: where the objective's options are.

    Raises:
        UserError: with the reason, and the option that cures it.
    """
    if isinstance(objective, MixtureObjective):
        for name, part in objective.parts.items():
            _check_can_learn(part, trainer, objective.sections[name])
        return
    whys: list[str] = []
    for step in objective.epoch_steps(0, trainer.accumulation)[: trainer.max_empty_steps]:
        whys += [objective.batch(0, anchors).empty_because for anchors in step]
        if not all(whys):
            return
    if whys:
        raise UserError(f"{section}: no batch has anything to learn from: {in_section(whys[0], section)}")
