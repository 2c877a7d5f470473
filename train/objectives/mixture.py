"""Several objectives, one model: each step is one of them, in given proportions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from train.errors import UserError
from train.objectives import Batch, HasUsages, Objective, ObjectiveLoss, UsesSpecialTokens
from train.requests import Request

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
        self.modules = nn.ModuleDict({_module_name(name): part.modules for name, part in self.parts.items()})
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
        lengths = {name: len(part.epoch_steps(0, shards)) for name, part in self.parts.items()}
        total = max(lengths[name] / proportion for name, proportion in self.proportions.items())
        counts = {name: max(round(proportion * total), 1) for name, proportion in self.proportions.items()}
        steps = []
        for number, (name, count) in enumerate(counts.items()):
            for step in self._steps(name, epoch * count, (epoch + 1) * count, shards):
                steps.append([[a * len(self.parts) + number for a in shard] for shard in step])
        order = np.random.default_rng([self.seed, epoch, 2]).permutation(len(steps)).tolist()
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
    return f"{part}_" if hasattr(nn.ModuleDict, part) else part


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
