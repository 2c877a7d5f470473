"""One module per objective: options, data, drawing of batches, loss.

Nothing here knows a loop or a model. What is heavy is imported where it is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from idiomtune.plugins.inputs import RunInputs
from idiomtune.requests import EmbeddingRequest

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Batch:
    """The requests of one micro-step, and the targets for the loss.

    Attributes:
        requests: everything to embed, in one forward call.
        anchors: ids of the anchors, for messages.
        targets: what the objective compares the embeddings with: labels, masks, which rows are what.
        plain_rows: rows of `requests` that are whole sentences without an idiom, whose embeddings
            distillation keeps near the base model's.
        skip_reason: why the objective cannot learn from it, whatever the embeddings are, with the option
            that cures it; "" where it can, or where that is unknown.
        pairs: rows of `requests` with an anchor and one of its positives, as far as these are known.
        negatives: int (K, 2), the same with an anchor and one of its negatives.
        meanings: int (R, k), what a request's text says; where all columns are equal, two say the same, and
            are never an anchor and its negative.
    """

    requests: Sequence[EmbeddingRequest]
    anchors: Sequence[str]
    targets: Any
    plain_rows: Sequence[int] = ()
    skip_reason: str = ""
    pairs: Sequence[tuple[int, int]] = ()
    negatives: Tensor | None = None
    meanings: Tensor | None = None


@dataclass(frozen=True)
class Mean:
    """A mean to be logged, and the number of values it is taken over (0: there is no mean)."""

    value: float
    num: int


@dataclass(frozen=True)
class ObjectiveLoss:
    """Loss of a batch (mean over its anchors), with counts and means for the log.

    Attributes:
        counts: name → count; summed over the micro-steps of a step.
        means: name → mean over part of the batch; logged as the mean over all such parts of the step.
        is_empty: nothing to learn from was found in this batch: the loss and its gradient are zero.
        part: of a mixture, the name of the part that this step trains; its loss is also logged under
            it.
    """

    loss: Tensor
    counts: Mapping[str, float] = field(default_factory=dict)
    means: Mapping[str, Mean] = field(default_factory=dict)
    is_empty: bool = False
    part: str | None = None


class StepLog:
    """Sums and averages the logs of a step's micro-steps."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = defaultdict(float)
        self._sums: dict[str, float] = defaultdict(float)
        self._nums: dict[str, int] = defaultdict(int)

    def add(self, result: ObjectiveLoss) -> None:
        """Add what one micro-step logs."""
        for name, count in result.counts.items():
            self._counts[name] += count
        for name, mean in result.means.items():
            self._sums[name] += mean.value * mean.num
            self._nums[name] += mean.num

    def values(self) -> dict[str, float | None]:
        """Name → the count of the step, or its mean; None for a mean over nothing."""
        means = {name: self._sums[name] / num if num else None for name, num in self._nums.items()}
        return {**self._counts, **means}


@runtime_checkable
class SavesFiles(Protocol):
    """A module of an objective that users need along with the trained encoder (heads, experts)."""

    def publish(self, folder: Path) -> None:
        """Write it to its own subfolder of a model's folder, as safetensors and JSON."""


@runtime_checkable
class ScoredModule(Protocol):
    """A module of an objective that is scored, together with the trained encoder.

    Attributes:
        scored_by: the benchmark to whose scores it adds; it is scored where that is.
    """

    scored_by: str

    def benchmark(self, inputs: RunInputs) -> Any:
        """The :class:`idiomtune.benchmarks.Benchmark` that scores it, as it is then."""


@runtime_checkable
class WithPretrainedPart(Protocol):
    """A module of an objective with a part that is pretrained, as the encoder is."""

    @property
    def pretrained(self) -> nn.Module:
        """The pretrained part, which is trained at the encoder's learning rate."""


@dataclass(frozen=True)
class Part:
    """One objective of a mixture.

    Attributes:
        objective: whose steps they are.
        proportion: weight of its steps among all; those of all parts need not sum to 1.
        weight: factor of its loss.
        section: where its options are, for messages.
    """

    objective: Objective
    proportion: float
    weight: float = 1.0
    section: str = "objective"


class Objective(ABC):
    """A training objective.

    Everything drawn is a function of the seed and the epoch, so a resumed run draws what an uninterrupted
    one would have drawn.

    Attributes:
        head: the modules trained in addition to the encoder; an empty module without any. The loop optimises
            it, checkpoints hold it, and resuming restores it. A submodule that :class:`SavesFiles` is also
            written to the model's folder; one that is :class:`ScoredModule` brings a benchmark of its own.
        files: the data files that were read, for the run's record.
        plain_requests: every request that a batch's `plain_rows` can name.
        idiom_sentences: each training sentence that should contain an expression, as (expression, sentence).
        usages: sentences with an expression, and whether they use it idiomatically.
        special_tokens: those of the model that it puts into texts (or plain words in their place), by the
            option that names them, whose last part is their purpose: `mask` or `separator`.
        repeats_anchors: whether an anchor may come several times in an epoch.
        parts: of a mixture, by name.
    """

    head: nn.Module
    files: Sequence[Path] = ()
    plain_requests: Sequence[EmbeddingRequest] = ()
    idiom_sentences: Sequence[tuple[str, str]] = ()
    usages: Sequence[tuple[str, bool]] = ()
    special_tokens: Mapping[str, str] = {}
    repeats_anchors: bool = False
    parts: Mapping[str, Part] = {}

    @abstractmethod
    def describe(self) -> str:
        """One line for the log, the scores and the model card: how many anchors, from what data."""

    @abstractmethod
    def epoch_steps(self, epoch: int, num_parts: int) -> list[list[list[int]]]:
        """The epoch's optimizer steps, each cut into `num_parts` micro-steps: lists of anchor numbers."""

    @abstractmethod
    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:
        """The batch of these anchors in this epoch."""

    @abstractmethod
    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The loss from embeddings (R, D), row i for `batch.requests[i]`."""


def matryoshka_loss(
    objective: Objective,
    embeddings: Tensor,
    batch: Batch,
    dimensions: Sequence[int],
) -> ObjectiveLoss:
    """The mean of the objective's loss over the full embeddings and their first dimensions::

        L = mean over n of  L(embeddings[:, :n]),     n in D, *dimensions

    Args:
        embeddings: (R, D), row i for `batch.requests[i]`.
        dimensions: each less than D; none leaves the objective's own loss.

    Returns:
        The counts and means of the full embeddings, and the loss at each of the dimensions.

    References:
        Kusupati et al. 2022 (arXiv 2205.13147). sentence-transformers' `MatryoshkaLoss` is the sum of which
        this is the mean.
    """
    full = objective.loss(embeddings, batch)
    if not dimensions:
        return full
    loss, is_empty, means = full.loss, full.is_empty, dict(full.means)
    for dimension in dimensions:
        part = objective.loss(embeddings[:, :dimension], batch)
        loss = loss + part.loss
        is_empty = is_empty and part.is_empty
        means[f"loss/dim={dimension}"] = Mean(part.loss.item(), len(batch.anchors))
    return replace(full, loss=loss / (1 + len(dimensions)), is_empty=is_empty, means=means)
