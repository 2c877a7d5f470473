"""Several objectives, one model: each step is one of them, in given proportions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from train.objectives import Batch, Objective, ObjectiveLoss, UsesSpecialTokens
from train.requests import Request


class JointObjective:
    """Draws each optimizer step from one of several objectives.

    An epoch lasts until every part has given all its steps at least once. Parts that run out before begin
    again, and continue in the next epoch where they stopped.

    Args:
        parts: name → objective.
        proportions: name → weight of its steps among all (they need not sum to 1).
        seed: of the order of steps.
    """

    def __init__(self, parts: Mapping[str, Objective], proportions: Mapping[str, float], seed: int) -> None:
        self.parts = {name: parts[name] for name in proportions}
        self.seed = seed
        total = sum(proportions.values())
        self.proportions = {name: weight / total for name, weight in proportions.items()}
        self.files: list[Path] = [path for part in self.parts.values() for path in part.files]
        self.modules = nn.ModuleDict({name: part.modules for name, part in self.parts.items()})
        self.plain_requests: list[Request] = [r for part in self.parts.values() for r in part.plain_requests]
        self.idiom_sentences = [pair for part in self.parts.values() for pair in part.idiom_sentences]
        self._streams: dict[str, list[list[list[int]]]] = {name: [] for name in self.parts}
        self._planned: dict[str, int] = dict.fromkeys(self.parts, 0)
        self._shards = 0

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Those of all parts."""
        return {
            f"{name}.{option}": text
            for name, part in self.parts.items()
            if isinstance(part, UsesSpecialTokens)
            for option, text in part.special_tokens.items()
        }

    def describe(self) -> str:
        """One line for the log."""
        return "; ".join(
            f"{proportion:.0%} {name}: {self.parts[name].describe()}"
            for name, proportion in self.proportions.items()
        )

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps, of all parts, in an order drawn from seed and epoch.

        Part i of n numbers its anchors i, i + n, i + 2n, …
        """
        if shards != self._shards:
            self._shards = shards
            self._streams = {name: [] for name in self.parts}
            self._planned = dict.fromkeys(self.parts, 0)
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
        """Steps `start` to `end` of a part, counted through all its epochs."""
        stream = self._streams[name]
        while len(stream) < end:
            stream += self.parts[name].epoch_steps(self._planned[name], shards)
            self._planned[name] += 1
        return stream[start:end]

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:
        """The part's batch; what a part redraws each epoch, it redraws each epoch of the joint objective."""
        names = list(self.parts)
        name = names[anchors[0] % len(names)]
        batch = self.parts[name].batch(epoch, [a // len(names) for a in anchors])
        return replace(batch, targets=(name, batch))

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The part's loss; logged under its name."""
        name, part_batch = batch.targets
        result = self.parts[name].loss(embeddings, part_batch)
        counts = {f"{name}/{key}": count for key, count in result.counts.items()}
        means = {f"{name}/{key}": mean for key, mean in result.means.items()}
        return replace(result, counts=counts, means=means, part=name)
