"""Several objectives, one model: each step belongs to one of them, in fixed proportions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from idiomtune.errors import UserError
from idiomtune.objectives import Batch, Objective, ObjectiveLoss, Part
from idiomtune.objectives.contrastive import ContrastiveObjective
from idiomtune.plugins.dataset import OWN_VAL, DataSettings, UserData
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.objective import ObjectiveOptions
from idiomtune.plugins.options import ConfigSection, Count, Factor, Text
from idiomtune.plugins.registry import ObjectiveSettings, build_objective, objective, objective_types
from idiomtune.plugins.score import Score

if TYPE_CHECKING:
    from torch import Tensor

_LEAST_PROPORTION = 0.001


def _datasets(objective: Mapping[str, Any]) -> list[str]:
    """Those of each part; for a part that declares none, a name that no data set has."""
    names: list[str] = []
    for name, part in objective["parts"].items():
        declared = objective_types().get(part["objective"])
        datasets_of = declared is not None and declared.datasets
        names += datasets_of(part["options"]) if datasets_of else [f"the data of the part {name}"]
    return names


class EachPart(ConfigSection):
    """The defaults of a part."""

    objective: Text
    data: UserData
    proportion: Factor
    weight: Factor
    batch_size: Count | None


class PartSettings(EachPart):
    """A part, all of its options filled in (:mod:`idiomtune.config.compose`).

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
                "has no data: give your files with data.train=<file>, one of our experiments with "
                "experiment=<name>, or another objective with objective=<name>"
            )
        if not self.is_own and (self.data.train or self.data.val):
            yield (
                f"data.train and data.val are for parts on your own data; the objective {self.objective} has "
                "its own data: leave them out"
            )

    def data_in(self, data: DataSettings) -> DataSettings:
        """The run's section `data`, with this part's own data."""
        return data.model_copy(update=dict(self.data))

    def inputs_in(self, inputs: RunInputs) -> RunInputs:
        """The run's inputs, with this part's data and batch size."""
        batch_size = self.batch_size or inputs.batch_size
        return replace(inputs, data=self.data_in(inputs.data), batch_size=batch_size)


@objective("mixture", datasets=_datasets)
class MixtureOptions(ObjectiveOptions):
    """Any number of parts; a part's experiment or objective cannot be a mixture itself.

    Attributes:
        each_part: the defaults of a part.
        parts: by name.
    """

    name: Literal["mixture"]
    each_part: EachPart
    parts: dict[str, PartSettings]

    @property
    def trains_head(self) -> bool:
        return any(part.options.trains_head for part in self.parts.values())

    @property
    def fold_split(self) -> str | None:
        return next((split for part in self.parts.values() if (split := part.options.fold_split)), None)

    def splits(self, benchmark: str) -> list[str]:
        """Of what is held out of the user's own data: the parts on such data."""
        return [name for name, part in self.parts.items() if part.is_own] if benchmark == OWN_VAL else []

    def possible_scores(self, splits: Callable[[str], Sequence[str]]) -> list[Score]:
        return [score for part in self.parts.values() for score in part.options.possible_scores(splits)]

    def own_data(self, data: DataSettings) -> Mapping[str, UserData]:  # noqa: ARG002  each part has its own
        return {name: part.data for name, part in self.parts.items() if part.is_own}

    def check_with(self, inputs: RunInputs, section: str = "objective") -> None:
        if inputs.data.train or inputs.data.val:
            raise ValueError(
                "data.train and data.val are for a single objective: in a mixture, each part gives its own, "
                f"{section}.parts.<name>.data.train="
            )
        accumulation = inputs.accumulation
        for name, part in self.parts.items():
            part_section = f"{section}.parts.{name}"
            if part.batch_size is not None and part.batch_size % accumulation:
                raise ValueError(
                    f"{part_section}.batch_size={part.batch_size} cannot be cut into "
                    f"trainer.accumulation={accumulation} equal parts"
                )
            with _problems_of(name):
                part.options.check_with(part.inputs_in(inputs), f"{part_section}.options")
        if OWN_VAL in inputs.scored and not self.splits(OWN_VAL):
            raise ValueError(
                f"benchmark=[{OWN_VAL}] scores held-out rows of your own data, but no part has any: "
                "choose what to score, as benchmark=[idiolink] trainer.monitor=idiolink/val/sentence/ndcg@10"
            )

    def check_files(self, data: DataSettings) -> None:
        for name, part in self.parts.items():
            with _problems_of(name):
                part.options.check_files(part.data_in(data))

    def build(self, inputs: RunInputs) -> MixtureObjective:
        """The mixture, each part with its data and batch size.

        Raises:
            UserError: naming the part whose data is wrong.
        """
        parts = {}
        for name, part in self.parts.items():
            with _problems_of(name):
                built = build_objective(part.inputs_in(inputs), part.options)
            if isinstance(built, ContrastiveObjective):
                built.single_positive_every = (
                    0  # its epochs are not the mixture's, which batches are drawn for
                )
            parts[name] = Part(built, part.proportion, part.weight, f"objective.parts.{name}.options")
        return MixtureObjective(parts, inputs.seed)

    def problems(self) -> Iterator[str]:
        for name in self.parts:  # it is a part of options, of score keys and of names of weights
            if not re.fullmatch(r"[\w-]+", name):
                yield f"parts: {name!r} cannot be the name of a part: use only letters, digits, _ and -"
        if not self.parts:
            yield (
                "parts: a mixture has one part or more: +objective.parts.<name>.data.train=<file> or "
                "+objective.parts.<name>.experiment=<name>"
            )
        with_modules = [name for name, part in self.parts.items() if part.options.trains_head]
        if len(with_modules) > 1:
            yield (
                f"parts: {' and '.join(with_modules)} train experts, of which a model has one kind: leave "
                "out all but one"
            )


class MixtureObjective(Objective):
    """Draws each optimizer step from one of several objectives.

    An epoch lasts until every part has given all its steps at least once. Parts that run out before begin
    again, and continue in the next epoch where they stopped.

    Args:
        parts: by name.
        seed: of the order of steps.

    Raises:
        UserError: if a part is so rare that the others would begin again thousands of times in an epoch.

    >>> from idiomtune.testing import check_objective
    >>> assert "resume" in check_objective("joint", skip=["gradient"])
    """

    repeats_anchors = True

    def __init__(self, parts: Mapping[str, Part], seed: int) -> None:
        from torch.nn import ModuleDict

        self.parts, self.seed = parts, seed
        proportions = {name: part.proportion for name, part in parts.items()}
        rarest, largest = min(proportions, key=proportions.__getitem__), max(proportions.values())
        if proportions[rarest] < _LEAST_PROPORTION * largest:
            raise UserError(
                f"the part {rarest} has proportion={proportions[rarest]:g}, which must be at least "
                f"{_LEAST_PROPORTION:g} times the largest, {largest:g}: an epoch lasts until every part has "
                "given all its steps"
            )
        total = sum(proportions.values())
        self._shares = {name: proportion / total for name, proportion in proportions.items()}  # of all steps
        objectives = [part.objective for part in parts.values()]
        self.files = [path for o in objectives for path in o.files]
        # torch refuses the name of a method, such as `train`.
        names = [f"{name}_" if hasattr(ModuleDict, name) else name for name in parts]
        modules = [o.head for o in objectives]
        self.head = ModuleDict(dict(zip(names, modules, strict=True)))
        self.plain_requests = [request for o in objectives for request in o.plain_requests]
        self.idiom_sentences = [pair for o in objectives for pair in o.idiom_sentences]
        self.usages = [usage for o in objectives for usage in o.usages]
        self.special_tokens = {
            f"{part.section.removeprefix('objective.')}.{option}": text
            for part in parts.values()
            for option, text in part.objective.special_tokens.items()
        }
        # Part and number of micro-steps → one of the part's own epochs, and the number of its first step.
        self._reached: dict[tuple[str, int], tuple[int, int]] = {}

    def describe(self) -> str:
        """One line for the log."""
        return "; ".join(
            f"{self._shares[name]:.0%} {name}"
            + (f" (loss times {part.weight:g})" if part.weight != 1 else "")
            + f": {part.objective.describe()}"
            for name, part in self.parts.items()
        )

    def epoch_steps(self, epoch: int, num_parts: int) -> list[list[list[int]]]:
        """The epoch's steps, of all parts, in an order drawn from seed and epoch.

        Part i of n numbers its anchors i, i + n, i + 2n, …
        """
        from numpy.random import default_rng

        lengths = {name: len(part.objective.epoch_steps(0, num_parts)) for name, part in self.parts.items()}
        total = max(lengths[name] / share for name, share in self._shares.items())
        steps = []
        for number, (name, share) in enumerate(self._shares.items()):
            count = max(round(share * total), 1)
            for step in self._steps(name, epoch * count, (epoch + 1) * count, num_parts):
                steps.append([[a * len(self.parts) + number for a in shard] for shard in step])
        order = default_rng([self.seed, epoch, 2]).permutation(len(steps)).tolist()
        return [steps[i] for i in order]

    def _steps(self, name: str, start: int, end: int, num_parts: int) -> list[list[list[int]]]:
        """Steps `start` to `end` of a part, counted through all its epochs.

        Epochs are planned again rather than kept, from the one in which the steps before these began.
        """
        epoch, first = self._reached.get((name, num_parts), (0, 0))
        if start < first:
            epoch, first = 0, 0
        steps: list[list[list[int]]] = []
        while first < end:
            planned = self.parts[name].objective.epoch_steps(epoch, num_parts)
            if first <= start:
                self._reached[name, num_parts] = epoch, first
            steps += planned[max(start - first, 0) : end - first]
            epoch, first = epoch + 1, first + len(planned)
        return steps

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:
        """The part's batch; what a part redraws each epoch, it redraws each epoch of the mixture."""
        names = list(self.parts)
        name = names[anchors[0] % len(names)]
        batch = self.parts[name].objective.batch(epoch, [a // len(names) for a in anchors])
        return replace(batch, targets=(name, batch))

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The part's loss times its weight; logged under its name."""
        name, part_batch = batch.targets
        part = self.parts[name]
        result = part.objective.loss(embeddings, part_batch)
        counts = {f"{name}/{key}": count for key, count in result.counts.items()}
        means = {f"{name}/{key}": mean for key, mean in result.means.items()}
        return replace(result, loss=part.weight * result.loss, counts=counts, means=means, part=name)


def in_section(message: str, section: str) -> str:
    """A message about options of a run with one objective, with the options of a part instead.

    Args:
        section: of the objective's options: `objective`, or of a part's `objective.parts.<name>.options`.
    """
    message = re.sub(r"(?<![.\w])objective\.(?!parts\.)", f"{section}.", message)
    part = section.removesuffix(".options")
    if part != section:
        own = "|".join(UserData.model_fields)
        message = re.sub(rf"(?<![.\w])data\.(?=({own})\b)", f"{part}.data.", message)
        message = message.replace("trainer.batch_size", f"{part}.batch_size")
    return message


@contextmanager
def _problems_of(name: str) -> Iterator[None]:
    """An error in it names the part, and its options."""
    try:
        yield
    except (UserError, ValueError) as error:
        message = in_section(str(error), f"objective.parts.{name}.options")
        part_section = f"objective.parts.{name}"
        kind = UserError if isinstance(error, UserError) else ValueError
        raise kind(message if part_section in message else f"{part_section}: {message}") from error
