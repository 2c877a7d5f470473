"""Several objectives, one model: each step is one of them, in given proportions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from train.benchmarks.own import HELD_OUT
from train.declarations.objective import ObjectiveOptions
from train.declarations.options import Count, Factor, Section, Text
from train.declarations.own_data import OwnData
from train.declarations.registry import ObjectiveSettings, build_objective, objective, objective_types
from train.errors import UserError
from train.objectives import Batch, HasUsages, Objective, ObjectiveLoss, UsesSpecialTokens
from train.objectives.adaptive_triplet import AdaptiveTripletOptions
from train.objectives.idiolink import IdioLinkOptions
from train.objectives.shared import about_extra

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from train.requests import Request


def _datasets(objective: Mapping[str, Any]) -> list[str]:
    """Those of each part; of one that says nothing, a name that no data set has."""
    names: list[str] = []
    for name, part in objective["parts"].items():
        declared = objective_types().get(part["objective"])
        known = declared is not None and declared.datasets
        names += known(part["options"]) if known else [f"the data of the part {name}"]
    return names


def _is_name(name: str) -> str:
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"{name!r} is no name of a part, which has letters, digits, _ and - alone")
    return name


# A name is a part of options, of score keys and of names of weights.
PartName = Annotated[str, AfterValidator(_is_name)]


class EachPart(Section):
    """What a part has unless it says otherwise."""

    objective: Text
    data: OwnData
    proportion: Factor
    weight: Factor
    batch_size: Count | None


class PartSettings(EachPart):
    """A part, all of its options filled in (:mod:`train.config.parts`).

    Attributes:
        experiment: whose objective it is, for the record; None = named by `objective`.
        options: of the objective.
    """

    experiment: Text | None
    options: ObjectiveSettings

    @property
    def is_own(self) -> bool:
        """Whether it is trained on the user's own data."""
        return self.options.name == "own"

    def problems(self) -> Iterator[str]:
        if self.options.name != self.objective:
            yield f"options.name={self.options.name} is not objective={self.objective}"
        if self.is_own and self.data.train is None:
            yield (
                "has no data: name your files with data.train=<file>, one of our experiments with "
                "experiment=<name>, or another objective with objective=<name>"
            )
        if not self.is_own and (self.data.train or self.data.val):
            yield (
                f"data.train and data.val are for parts on your own data; the objective {self.objective} has "
                "data of its own: leave them out"
            )

    def seen_by(self, settings: Any) -> Any:
        """The run's :class:`train.config.TrainSettings` with this part's data and batch size."""
        trainer = settings.trainer
        return settings.model_copy(
            update={
                "data": settings.data.model_copy(update=dict(self.data)),
                "trainer": trainer.model_copy(update={"batch_size": self.batch_size or trainer.batch_size}),
            }
        )


@objective("mixture", datasets=_datasets)
class MixtureOptions(ObjectiveOptions):
    """Any number of parts; a part's experiment or objective cannot be a mixture itself.

    Attributes:
        each_part: what a part has unless it says otherwise.
        parts: by name.
    """

    name: Literal["mixture"]
    each_part: EachPart
    parts: dict[PartName, PartSettings]

    @property
    def trains_modules(self) -> bool:
        return any(part.options.trains_modules for part in self.parts.values())

    @property
    def fold_split(self) -> str | None:
        return next((split for part in self.parts.values() if (split := part.options.fold_split)), None)

    def splits(self, benchmark: str) -> list[str]:
        """Of what is held out of the user's own data: the parts on such data."""
        return [name for name, part in self.parts.items() if part.is_own] if benchmark == HELD_OUT else []

    def score_keys(self, splits: Callable[[str], Sequence[str]]) -> list[str]:
        return [key for part in self.parts.values() for key in part.options.score_keys(splits)]

    def check_with(self, settings: Any, section: str = "objective") -> None:
        if settings.data.train or settings.data.val:
            raise ValueError(
                "data.train and data.val are for one objective alone: of a mixture each part names its own, "
                f"{section}.parts.<name>.data.train="
            )
        for name, part in self.parts.items():
            place = f"{section}.parts.{name}"
            accumulation = settings.trainer.accumulation
            if part.batch_size is not None and part.batch_size % accumulation:
                raise ValueError(
                    f"{place}.batch_size={part.batch_size} cannot be cut into "
                    f"trainer.accumulation={accumulation} equal parts"
                )
            try:
                part.options.check_with(part.seen_by(settings), f"{place}.options")
            except ValueError as error:
                raise ValueError(of_part(str(error), name)) from None
        if settings.data.extra and not any(p.objective in ("idiolink", "joint") for p in self.parts.values()):
            raise ValueError(about_extra(settings.data.extra))
        if HELD_OUT in settings.benchmark.names and not self.splits(HELD_OUT):
            raise ValueError(
                f"benchmark=[{HELD_OUT}] scores what is held out of your own data, and no part has such: "
                "choose what is scored, as benchmark=[idiolink] trainer.monitor=idiolink/val/sentence/ndcg@10"
            )

    def check_files(self, settings: Any) -> None:
        for name, part in self.parts.items():
            try:
                part.options.check_files(part.seen_by(settings))
            except UserError as error:
                raise UserError(of_part(str(error), name)) from error

    def build(self, settings: Any) -> MixtureObjective:
        """The mixture, each part with its data and batch size.

        Raises:
            UserError: naming the part whose data is wrong.
        """
        parts = {}
        for name, part in self.parts.items():
            try:
                built = build_objective(part.seen_by(settings), part.options)
            except UserError as error:
                raise UserError(of_part(str(error), name)) from error
            parts[name] = Part(built, part.proportion, part.weight, f"objective.parts.{name}.options")
        return MixtureObjective(parts, settings.seed)

    def problems(self) -> Iterator[str]:
        if not self.parts:
            yield (
                "parts: a mixture has one part or more: +objective.parts.<name>.data.train=<file> or "
                "+objective.parts.<name>.experiment=<name>"
            )
        with_modules = [name for name, part in self.parts.items() if part.options.trains_modules]
        if len(with_modules) > 1:
            yield (
                f"parts: {' and '.join(with_modules)} train experts, of which a model has one kind: leave "
                "out all but one"
            )


def _datasets_of_joint(objective: Mapping[str, Any]) -> list[str]:
    datasets = {"idiolink": "idiolink", "adaptive_triplet": "semeval2022_task2b"}
    return [datasets[part] for part in objective["proportions"]]


@objective("joint", datasets=_datasets_of_joint)
class JointOptions(ObjectiveOptions):
    """A mixture of two known parts, whose options are under their names."""

    name: Literal["joint"]
    proportions: Annotated[dict[Literal["idiolink", "adaptive_triplet"], Factor], Field(min_length=1)]
    idiolink: IdioLinkOptions
    adaptive_triplet: AdaptiveTripletOptions

    @property
    def fold_split(self) -> str | None:
        return self.idiolink.fold_split

    def check_with(self, settings: Any, section: str = "objective") -> None:
        for part in (self.idiolink, self.adaptive_triplet):
            part.check_with(settings, f"{section}.{part.name}")

    def build(self, settings: Any) -> MixtureObjective:
        """The mixture, its data read and checked."""
        parts: dict[str, Part] = {
            name: Part(getattr(self, name).build(settings), proportion, 1.0, f"objective.{name}")
            for name, proportion in self.proportions.items()
        }
        return MixtureObjective(parts, settings.seed)


_LEAST_PROPORTION = 0.001


@dataclass(frozen=True)
class Part:
    """One objective of a mixture.

    Attributes:
        objective: whose steps they are.
        proportion: weight of its steps among all; those of all parts need not sum to 1.
        weight: factor of its loss.
        section: where its options stand, for messages.
    """

    objective: Objective
    proportion: float
    weight: float
    section: str


class MixtureObjective:
    """Draws each optimizer step from one of several objectives.

    An epoch lasts until every part has given all its steps at least once. Parts that run out before begin
    again, and continue in the next epoch where they stopped.

    Args:
        parts: by name.
        seed: of the order of steps.

    Raises:
        UserError: if a part is so rare that the others would begin again thousands of times in an epoch.

    Attributes:
        parts: name → objective.
        proportions: name → share of all steps; they sum to 1.
        weights: name → factor of its loss.
        sections: name → where its options stand, for messages.
    """

    def __init__(self, parts: Mapping[str, Part], seed: int) -> None:
        from torch.nn import ModuleDict

        self.parts = {name: part.objective for name, part in parts.items()}
        self.seed = seed
        least, largest = (pick(part.proportion for part in parts.values()) for pick in (min, max))
        if least < _LEAST_PROPORTION * largest:
            raise UserError(
                f"the part {next(name for name in parts if parts[name].proportion == least)} has "
                f"proportion={least:g}, which must be at least {_LEAST_PROPORTION:g} times the largest, "
                f"{largest:g}: an epoch lasts until every part has given all its steps"
            )
        total = sum(part.proportion for part in parts.values())
        self.proportions = {name: part.proportion / total for name, part in parts.items()}
        self.weights = {name: part.weight for name, part in parts.items()}
        self.sections = {name: part.section for name, part in parts.items()}
        self.files: list[Path] = [path for part in self.parts.values() for path in part.files]
        self.modules = ModuleDict({_module_name(name): part.modules for name, part in self.parts.items()})
        self.plain_requests: list[Request] = [r for part in self.parts.values() for r in part.plain_requests]
        self.idiom_sentences = [pair for part in self.parts.values() for pair in part.idiom_sentences]
        usages = (part.usages for part in self.parts.values() if isinstance(part, HasUsages))
        self.usages = list(chain.from_iterable(usages))
        # Part and shards → one of the part's own epochs, and the number of its first step.
        self._reached: dict[tuple[str, int], tuple[int, int]] = {}

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Those of all parts."""
        return {
            f"{self.sections[name].removeprefix('objective.')}.{option}": text
            for name, part in self.parts.items()
            if isinstance(part, UsesSpecialTokens)
            for option, text in part.special_tokens.items()
        }

    def describe(self) -> str:
        """One line for the log."""
        return "; ".join(
            f"{proportion:.0%} {name}{_weight_in_words(self.weights[name])}: {self.parts[name].describe()}"
            for name, proportion in self.proportions.items()
        )

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps, of all parts, in an order drawn from seed and epoch.

        Part i of n numbers its anchors i, i + n, i + 2n, …
        """
        from numpy.random import default_rng

        lengths = {name: len(part.epoch_steps(0, shards)) for name, part in self.parts.items()}
        total = max(lengths[name] / proportion for name, proportion in self.proportions.items())
        counts = {name: max(round(proportion * total), 1) for name, proportion in self.proportions.items()}
        steps = []
        for number, (name, count) in enumerate(counts.items()):
            for step in self._steps(name, epoch * count, (epoch + 1) * count, shards):
                steps.append([[a * len(self.parts) + number for a in shard] for shard in step])
        order = default_rng([self.seed, epoch, 2]).permutation(len(steps)).tolist()
        return [steps[i] for i in order]

    def _steps(self, name: str, start: int, end: int, shards: int) -> list[list[list[int]]]:
        """Steps `start` to `end` of a part, counted through all its epochs.

        Epochs are planned again rather than kept, from the one in which the steps before these began.
        """
        epoch, first = self._reached.get((name, shards), (0, 0))
        if start < first:
            epoch, first = 0, 0
        steps: list[list[list[int]]] = []
        while first < end:
            planned = self.parts[name].epoch_steps(epoch, shards)
            if first <= start:
                self._reached[name, shards] = epoch, first
            steps += planned[max(start - first, 0) : end - first]
            epoch, first = epoch + 1, first + len(planned)
        return steps

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:
        """The part's batch; what a part redraws each epoch, it redraws each epoch of the mixture."""
        names = list(self.parts)
        name = names[anchors[0] % len(names)]
        batch = self.parts[name].batch(epoch, [a // len(names) for a in anchors])
        return replace(batch, targets=(name, batch))

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The part's loss times its weight; logged under its name."""
        name, part_batch = batch.targets
        result = self.parts[name].loss(embeddings, part_batch)
        counts = {f"{name}/{key}": count for key, count in result.counts.items()}
        means = {f"{name}/{key}": mean for key, mean in result.means.items()}
        loss = self.weights[name] * result.loss
        return replace(result, loss=loss, counts=counts, means=means, part=name)


def _module_name(part: str) -> str:
    """A name that torch lets a module have: not that of one of its methods, such as `train`."""
    from torch.nn import ModuleDict

    return f"{part}_" if hasattr(ModuleDict, part) else part


def _weight_in_words(weight: float) -> str:
    return "" if weight == 1 else f" (loss times {weight:g})"


def in_section(message: str, section: str) -> str:
    """A message about options of an objective, as they are named where its section is another.

    Args:
        section: such as `objective.parts.<name>.options`; of a mixture's part also its batch size is named.
    """
    part = section.removesuffix("options")
    message = message.replace("objective.", f"{section}.")
    return message if part == section else message.replace("trainer.batch_size", f"{part}batch_size")


def of_part(message: str, name: str) -> str:
    """A message about options of a whole run, with the options of a part instead."""
    place = f"objective.parts.{name}"
    message = re.sub(r"(?<![.\w])objective\.(?!parts\.)", f"{place}.options.", message)
    own = "|".join(OwnData.model_fields)
    message = re.sub(rf"(?<![.\w])data\.(?=({own})\b)", f"{place}.data.", message)
    message = message.replace("trainer.batch_size", f"{place}.batch_size")
    return message if place in message else f"{place}: {message}"
