"""A base class for users' objectives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from idiomtune.objectives import Objective
from idiomtune.requests import EmbeddingRequest


class BaseObjective(Objective):
    """An objective whose anchors are rows, each once an epoch, in an order of the seed and the epoch.

    A class of it has two methods, `batch` and `loss`; what else :class:`idiomtune.objectives.Objective` asks
    for is here, and can be another. What is drawn in `batch` has to follow from the seed and the epoch too.

    Args:
        num_anchors: how many there are.
        batch_size: anchors of an optimizer step.
        seed: of the run.
        files: that were read, for the run's record.
        plain_requests: every request that a batch's `plain_rows` can name.
        idiom_sentences: each training sentence that should contain an expression, (expression, sentence).
    """

    def __init__(
        self,
        num_anchors: int,
        *,
        batch_size: int,
        seed: int,
        files: Sequence[Path] = (),
        plain_requests: Sequence[EmbeddingRequest] = (),
        idiom_sentences: Sequence[tuple[str, str]] = (),
    ) -> None:
        from torch import nn

        self.num_anchors, self.batch_size, self.seed = num_anchors, batch_size, seed
        self.files, self.plain_requests, self.idiom_sentences = files, plain_requests, idiom_sentences
        self.head = nn.Module()

    def describe(self) -> str:
        """One line for the log, the scores and the model card."""
        return f"{self.num_anchors} anchors"

    def epoch_steps(self, epoch: int, num_parts: int) -> list[list[list[int]]]:
        """The epoch's optimizer steps, each cut into `num_parts` lists of anchor numbers."""
        import numpy as np

        from idiomtune.objectives.batching import shuffled_steps, split_micro_steps

        rng = np.random.default_rng([self.seed, epoch, 0])
        return split_micro_steps(shuffled_steps(range(self.num_anchors), self.batch_size, rng), num_parts)
