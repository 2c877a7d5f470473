"""Contrastive training by InfoNCE: anchors against candidates, whatever data they come from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from idiomtune.errors import UserError
from idiomtune.objectives import Batch, Objective, ObjectiveLoss
from idiomtune.objectives.batching import balanced_steps, shuffled_steps, split_micro_steps
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.objective import ObjectiveOptions
from idiomtune.plugins.options import ConfigSection, Count, Factor, Temperature, Text, Weight
from idiomtune.requests import EmbeddingRequest, Role

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    from idiomloss import CandidateMasks


class InfoNCESection(ConfigSection):
    temperature: Temperature
    denominator: Literal["negatives", "own_positive", "all_positives"]
    in_batch: Literal["none", "positives", "all"]
    false_negatives: Literal["keep", "mask", "positive"]
    hard_weight: Weight
    soft_weight: Weight
    positives: Literal["mean", "hardest"]


class ContrastiveOptions(ObjectiveOptions):
    """Common options of contrastive objectives: batches of anchors, and modes of texts.

    Attributes:
        loss_option: the name of the section with the options of the loss.
        groups_option: the name of the option with the number of groups in a batch.
        chooses_groups: this number is chosen by the data, where shuffled batches would have few positives.
    """

    loss_option: ClassVar[str]
    groups_option: ClassVar[str]
    chooses_groups: ClassVar[bool] = False

    query_mode: Sequence[str] | None
    query_weights: list[Factor] | None
    document_mode: Sequence[str] | None
    mask: Text | None
    drop_last: bool

    @property
    def special_tokens(self) -> Sequence[str]:
        modes = (*(self.query_mode or ()), *(self.document_mode or ()))
        return ["mask"] if any(mode.startswith("masked_") for mode in modes) else []

    @property
    def num_groups(self) -> Count | None:
        """Steps are made of this many groups with equally many anchors; None = shuffled."""
        number: int | None = getattr(self, self.groups_option)
        return number

    @property
    def usage_weights(self) -> Mapping[str, float]:
        """Usage → weight of a positive; empty if all weigh the same."""
        return {}

    def check_with(self, inputs: RunInputs, section: str = "objective") -> None:
        super().check_with(inputs, section)
        num, batch_size = self.num_groups, inputs.batch_size
        if num is not None and batch_size % num:
            raise ValueError(
                f"{section}.{self.groups_option}={num}: as many groups cannot have equally many of "
                f"trainer.batch_size={batch_size} anchors"
            )

    def problems(self) -> Iterator[str]:
        weights, modes = self.query_weights, self.query_mode or ["span"]
        if weights is not None and len(weights) != len(modes):
            yield f"query_weights has {len(weights)} numbers for the {len(modes)} modes of query_mode"
        if self.drop_last and self.num_groups is not None:
            yield (
                f"drop_last=true needs shuffled batches: with {self.groups_option} any batch of an epoch may "
                "be smaller than the others"
            )


@dataclass(frozen=True)
class _Targets:
    """A batch of B anchors and M candidates.

    Its requests are the anchors, mode by mode, then the candidates, mode by mode.

    Attributes:
        masks: which pairs are positive, negative and hard, each (B, M).
        positive_weights: (B, M), or None if all weigh the same.
        anchor_weights: (B,), or None if all weigh the same.
    """

    num_anchors: int
    masks: CandidateMasks
    positive_weights: Tensor | None
    anchor_weights: Tensor | None


class ContrastiveObjective(Objective):
    """Anchors against their own candidates and those of others, or against each other.

    Anchors and candidates are records, by number. With several query modes the loss is their weighted mean,
    with several document modes their mean; modes that read the same text share its forward pass.

    Args:
        options: of loss, batches and modes.
        name: of the data, for messages.
        files: that were read.
        anchors: int (A,), the record of each anchor. One without a positive is left out (`num_skipped`), or
            in a batch whose anchors are the candidates, a negative of its group's other meanings alone.
        labels: int (N, 2), group and meaning of each record.
        ids: int (N,), equal for records that are the same.
        weights: (A,), of the anchors in the loss; None = all the same.
        from_batch: the candidates of an anchor are all other anchors of its micro-batch.
        single_positive_every: of `from_batch`: in each such epoch, from the first, anchors have candidates
            of their own and batches are shuffled; 0 = in none.
        groups_name: what groups are called in the log; "" if there are none.
        batch_size: anchors an optimizer step.
        seed: of the order of anchors.

    Raises:
        UserError: if no anchor has a positive, or `drop_last` leaves no batch.
    """

    def __init__(
        self,
        options: ContrastiveOptions,
        *,
        name: str,
        files: Sequence[Path],
        anchors: ArrayLike,
        labels: ArrayLike,
        ids: ArrayLike,
        weights: NDArray[Any] | None = None,
        from_batch: bool,
        single_positive_every: int = 0,
        groups_name: str,
        batch_size: int,
        seed: int,
    ) -> None:
        import numpy as np
        import torch

        from idiomloss import InfoNCELoss

        section: InfoNCESection = getattr(options, options.loss_option)
        self.options = options
        self.files = files
        self.special_tokens = {name: getattr(options, name) for name in options.special_tokens}
        self.batch_size, self.seed = batch_size, seed
        self.head = torch.nn.Module()  # trains nothing in addition to the encoder
        self.query_modes, self.document_modes = options.query_mode or (), options.document_mode or ()
        self.single_positive_every = single_positive_every
        self._groups_name, self._from_batch = groups_name, from_batch
        self._in_batch = "all" if from_batch else section.in_batch
        self._false_negatives = "positive" if from_batch else section.false_negatives
        # The other two choose the candidates that it is given.
        self._loss = InfoNCELoss(**section.model_dump(exclude={"in_batch", "false_negatives"}))
        self._anchors, self._weights = np.asarray(anchors), weights
        self._labels, self._ids = torch.as_tensor(labels), torch.as_tensor(ids)
        if from_batch:
            classes = self._labels.numpy()[self._anchors]  # (A, 2)
            _, class_of, counts = np.unique(classes, axis=0, return_inverse=True, return_counts=True)
            self._classes = class_of.ravel()
            has_positive = counts[self._classes] > 1
        else:
            has_positive = np.array([len(self.candidates(0, i)[0]) > 0 for i in range(len(self._anchors))])
        is_usable = self._has_positive = has_positive
        if from_batch and not single_positive_every:
            groups = classes[:, 0]
            is_usable = np.isin(groups, groups[has_positive])
        self._usable = np.flatnonzero(is_usable)
        self._num_groups = options.num_groups
        self.num_skipped = len(self._anchors) - len(self._usable)
        if not len(self._usable):
            raise UserError(f"{name}: no anchor has a positive")
        if options.drop_last and len(self._usable) < batch_size:
            raise UserError(
                f"{name} has {len(self._usable)} anchors, fewer than trainer.batch_size={batch_size}, "
                "and objective.drop_last leaves out every batch that is not full: lower the batch size or "
                "set objective.drop_last=false"
            )
        if from_batch and options.chooses_groups:
            self._choose_num_groups()

    def share_with_positive(self) -> float:
        """The share of an epoch's anchors that have a positive in their batch."""
        import numpy as np

        epoch = 1 if self.single_positive_every else 0
        if self._has_own_candidates(epoch):
            return 1.0
        steps = self.epoch_steps(epoch, 1)
        batches = [self._classes[step[0]] for step in steps]
        sizes = np.concatenate([np.unique(classes, return_counts=True)[1] for classes in batches])
        return float(sizes[sizes > 1].sum() / sum(self._has_positive[step[0]].sum() for step in steps))

    def _choose_num_groups(self) -> None:
        """Choose the number of groups per batch, if few anchors of shuffled batches meet a positive."""
        size = self.batch_size
        if self._num_groups is not None or self.share_with_positive() >= 0.5:
            return
        shares: dict[int, float] = {}
        for self._num_groups in (size // n for n in range(2, size // 2 + 1) if size % n == 0):
            shares[self._num_groups] = self.share_with_positive()
        enough = [num for num, share in shares.items() if share >= 0.9 * max(shares.values())]
        self._num_groups = max(enough, default=None)  # many groups have many negatives

    @abstractmethod
    def candidates(self, epoch: int, anchor: int) -> tuple[Sequence[int], Sequence[int]]:
        """Records that are positives, and that are negatives, of anchor number `anchor` in an epoch."""

    def _has_pairs(self, epoch: int) -> bool:
        """Whether it is one of `single_positive_every`."""
        return self.single_positive_every > 0 and epoch % self.single_positive_every == 0

    def _has_own_candidates(self, epoch: int) -> bool:
        """Whether each anchor has its own in this epoch."""
        return not self._from_batch or self._has_pairs(epoch)

    @abstractmethod
    def request(self, record: int, mode: str, role: Role) -> EmbeddingRequest:
        """The request for a record."""

    @abstractmethod
    def is_unmarked(self, request: EmbeddingRequest) -> bool:
        """Whether it is one of `plain_requests`."""

    @abstractmethod
    def usage(self, record: int) -> str:
        """The kind of a record, for shares in batches and weights of positives."""

    @abstractmethod
    def record_name(self, record: int) -> str:
        """For messages."""

    def describe(self) -> str:
        """One line for the log."""
        num_groups = len(set(self._labels[self._anchors[self._usable], 0].tolist()))
        num_anchors = int(self._has_positive.sum())
        about = f"{num_anchors} anchors"
        if self._groups_name:
            about += f" of {num_groups} {self._groups_name}"
        if num_negatives := len(self._usable) - num_anchors:
            about += f", {num_negatives} more sentences without a positive as their hard negatives"
        if self.num_skipped:
            about += f", {self.num_skipped} without a positive left out"
        if (limit := self._num_groups) is not None and limit > num_groups:
            about += f", fewer than the {limit} that a batch can hold"
        if self._from_batch:
            about += f"; {self.share_with_positive():.0%} have a positive in their batch"
        if limit != self.options.num_groups:
            about += f" with {self.options.groups_option}={limit}, chosen so"
        return f"{about}; queries as {' and '.join(self.query_modes)}"

    def epoch_steps(self, epoch: int, num_parts: int) -> list[list[list[int]]]:
        """The epoch's steps: all anchors in an order drawn from seed and epoch, then cut."""
        import numpy as np

        rng = np.random.default_rng([self.seed, epoch, 0])
        if (num_groups := self._num_groups) is None:
            steps = shuffled_steps(self._usable, self.batch_size, rng)
        else:
            anchors, records = self._usable.tolist(), self._anchors[self._usable].tolist()
            groups = self._labels[records, 0].tolist()
            usages = map(self.usage, records)
            classes = dict(zip(anchors, zip(groups, usages, strict=True), strict=True))
            steps = balanced_steps(anchors, self.batch_size, num_groups, classes, rng)
            if self._has_pairs(epoch):  # every epoch has as many steps
                shuffled = iter(np.random.default_rng([self.seed, epoch, 0]).permutation(anchors).tolist())
                steps = [list(islice(shuffled, size)) for size in sorted(map(len, steps), reverse=True)]
        if self.options.drop_last:
            steps = [step for step in steps if len(step) == self.batch_size]
        return split_micro_steps(steps, num_parts)

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:
        """Requests and masks of these anchors."""
        import torch

        from idiomloss import candidate_masks

        records = self._anchors[list(anchors)].tolist()  # B
        # Each candidate's record, the anchor for which it was drawn (-1 = none), whether as its positive.
        drawn = [(record, -1, False) for record in records]
        if self._has_own_candidates(epoch):
            drawn = [
                (candidate, owner, is_positive)
                for owner, anchor in enumerate(anchors)
                for of_kind, is_positive in zip(self.candidates(epoch, anchor), (True, False), strict=True)
                for candidate in of_kind
            ]
        candidates = [record for record, _, _ in drawn]  # M
        masks = candidate_masks(
            len(records),
            torch.tensor([owner for _, owner, _ in drawn]),
            torch.tensor([is_positive for _, _, is_positive in drawn]),
            anchor_labels=self._labels[records],
            candidate_labels=self._labels[candidates],
            anchor_ids=self._ids[records],
            candidate_ids=self._ids[candidates],
            in_batch=self._in_batch,
            false_negatives=self._false_negatives,
        )
        requests = [self.request(record, mode, "query") for mode in self.query_modes for record in records]
        first = len(requests)  # row of the first candidate
        requests += [self.request(c, mode, "document") for mode in self.document_modes for c in candidates]
        # A positive that is its anchor's own text is read once more, with dropout of its own, as SimCSE does.
        is_itself = self._ids[records][:, None] == self._ids[candidates]
        repeats = (masks.positive & is_itself).any(0).repeat(len(self.document_modes))
        for i in (repeats.nonzero() + first).flatten().tolist():
            requests[i] = replace(requests[i], dropout_pass=1)
        positive_weights = anchor_weights = None
        if weights := self.options.usage_weights:
            of_candidates = [weights.get(self.usage(candidate), 1.0) for candidate in candidates]
            positive_weights = torch.tensor(of_candidates).expand(len(records), -1)
        if self._weights is not None:
            anchor_weights = torch.from_numpy(self._weights[list(anchors)]).float()
        targets = _Targets(len(records), masks, positive_weights, anchor_weights)
        negatives = masks.negative.nonzero() + torch.tensor([0, first])
        read = [*records * len(self.query_modes), *candidates * len(self.document_modes)]
        return Batch(
            requests,
            [self.record_name(record) for record in records],
            targets,
            plain_rows=[row for row, request in enumerate(requests) if self.is_unmarked(request)],
            skip_reason=self._why_empty(targets),
            pairs=[(anchor, first + candidate) for anchor, candidate in masks.positive.nonzero().tolist()],
            negatives=None if self._false_negatives == "keep" else negatives,
            meanings=self._labels[read],
        )

    def _why_empty(self, targets: _Targets) -> str:
        """The reason why no anchor of a batch can learn, with a remedy; "" if some anchor can."""
        import torch

        masks, loss, section = targets.masks, self._loss, f"objective.{self.options.loss_option}"
        positive = masks.positive
        if targets.positive_weights is not None:
            positive = positive & (targets.positive_weights > 0)
        has_weight = positive.any(1)
        if targets.anchor_weights is not None:
            has_weight = has_weight & (targets.anchor_weights > 0)
        negative = masks.negative & (torch.where(masks.hard, loss.hard_weight, loss.soft_weight) > 0)
        compete = (masks.positive.sum(1) > 1) & (loss.denominator == "all_positives")
        if (has_weight & (negative.any(1) | compete)).any():
            return ""
        if masks.positive.any() and not has_weight.any():
            return "the weights are 0: raise some in the column weight, or in objective.positive_weights"
        if masks.negative.any() and not negative.any():
            return f"the negatives have the weight 0: raise {section}.hard_weight or {section}.soft_weight"
        if targets.num_anchors == 1:
            return "one anchor has no negatives: raise trainer.batch_size or lower trainer.accumulation"
        if self._in_batch == "none":
            return f"no anchor has negatives: set {section}.in_batch to positives or all, or add some"
        groups, more = f"objective.{self.options.groups_option}", "raise trainer.batch_size"
        if masks.positive.any():
            return f"a batch has no negative: {more} or {groups}; with one group and meaning, add another"
        number = self._num_groups or max(1, targets.num_anchors // 4)
        fewer = f"{groups}={max(1, number // 2 if self._num_groups else number)}"
        return f"no anchor has a positive in its batch of {targets.num_anchors}: {more}, or give {fewer}"

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """Mean over query modes (weighted) and document modes of the InfoNCE loss."""
        import torch

        targets: _Targets = batch.targets
        masks = targets.masks.to(embeddings.device)
        pair = (targets.positive_weights, targets.anchor_weights)
        weights = [tensor if tensor is None else tensor.to(embeddings.device) for tensor in pair]
        query_weights = self.options.query_weights or [1.0] * len(self.query_modes)
        first = targets.num_anchors * len(query_weights)
        queries_by_mode = embeddings[:first].chunk(len(query_weights))  # (B, D) each
        documents_by_mode = embeddings[first:].chunk(len(self.document_modes))  # (M, D) each
        terms = [
            weight * self._loss(queries, documents, masks, *weights)
            for queries, weight in zip(queries_by_mode, query_weights, strict=True)
            for documents in documents_by_mode
        ]
        loss = torch.stack(terms).sum() / (sum(query_weights) * len(self.document_modes))
        counts = {"false_negatives": float(masks.num_false_negatives)}
        return ObjectiveLoss(loss, counts, is_empty=bool(batch.skip_reason))
