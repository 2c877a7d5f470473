"""The losses for the trainer of sentence-transformers, as its `loss=`, and a sampler as its `batch_sampler=`.

The texts of a row, in this order, and its `label`:

- `InfoNCETrainerLoss`: anchor, positive, any number of negatives; [idiom, meaning], or none
- `AdaptiveTripletTrainerLoss`: sentence; [label, group, is it the sentence with the idiom]
- `RankingTrainerLoss`: query, its candidates; the rank of each candidate, 0 = best
- `DistillationTrainerLoss`: sentence; the other model's embedding of it

The trainer finds the column of labels by its name, `label`, and takes all other columns for texts, also one
that was left over: :func:`~idiomloss.trainer_data.check_dataset` detects it before training. Imports
nothing of sentence-transformers: a loss gets its model, and the sampler is one of torch's. With several
processes each takes negatives from its own batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler

from idiomloss.groups import GroupLabels, group_steps, label_groups
from idiomloss.infonce import FalseNegatives, InBatch, InfoNCELoss, candidate_masks, flatten_tuples
from idiomloss.ranking import PairwiseHingeLoss
from idiomloss.similarity import distillation_loss, paired_cosine_similarity
from idiomloss.triplet import AdaptiveTripletLoss

# The columns of texts that a loss takes: anchor, positive and negatives; one; a query and its candidates.
Texts = Literal["tuple", "one", "candidates"]
Features = Iterable[dict[str, Tensor]]  # the tokenised texts of one column each

_ABSENT = -1  # label of a negative that is not there


class _TrainerLoss(nn.Module):
    """A loss on the embeddings of columns of texts, which the trainer's model gives."""

    texts: ClassVar[Texts]

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def _embed(self, sentence_features: Features) -> list[Tensor]:
        """(B, D) for each column."""
        columns = [self.model(features)["sentence_embedding"] for features in sentence_features]
        if self.texts == "one" and len(columns) != 1:
            raise ValueError(
                f"expected one column of texts, got {len(columns)}: leave others out, dataset.remove_columns"
            )
        return columns


class InfoNCETrainerLoss(_TrainerLoss):
    """:class:`~idiomloss.InfoNCELoss` on rows of anchor, positive and negatives, masked by idiom and meaning.

    Args:
        model: gives each column's `sentence_embedding`.
        loss: with its options; by default with temperature 0.05.
        in_batch, false_negatives: see :func:`~idiomloss.candidate_masks`. `all`, and a weight of hard
            negatives other than 1, need the negatives' labels too.

    Example:
        >>> import torch
        >>> from idiomloss.sentence_transformers import InfoNCETrainerLoss
        >>> model = torch.nn.Identity()  # in place of a SentenceTransformer: features are embeddings already
        >>> columns = [{"sentence_embedding": x} for x in (torch.eye(2), torch.eye(2), torch.eye(2).flip(0))]
        >>> assert InfoNCETrainerLoss(model)(columns) < 1e-6  # anchor, positive, negative
    """

    texts: ClassVar[Texts] = "tuple"

    def __init__(
        self,
        model: nn.Module,
        loss: InfoNCELoss | None = None,
        *,
        in_batch: InBatch = "positives",
        false_negatives: FalseNegatives = "mask",
    ) -> None:
        super().__init__(model)
        self.loss = loss or InfoNCELoss()
        self.in_batch: InBatch = in_batch
        self.false_negatives: FalseNegatives = false_negatives

    def forward(self, sentence_features: Features, labels: Tensor | None = None) -> Tensor:
        """A scalar.

        Args:
            sentence_features: columns anchor, positive, K negatives, of B rows.
            labels: int (B, 2), (idiom, meaning) of the anchor and its positive; or (B, 1 + K, 2), followed by
                those of each negative, (-1, -1) where a row has none: the text there is ignored.

        Raises:
            ValueError: if there is no positive, or the labels are of another shape.
        """
        columns = self._embed(sentence_features)
        if len(columns) < 2:
            raise ValueError(f"expected columns anchor, positive and any negatives, got {len(columns)}")
        anchors, positives, *rest = columns
        batch, num_negatives = len(anchors), len(rest)  # B, K
        negatives = torch.stack(rest, 1) if rest else anchors.new_zeros(batch, 0, anchors.shape[1])
        present = torch.ones(negatives.shape[:2], dtype=torch.bool, device=anchors.device)
        anchor_labels = candidate_labels = None
        if labels is not None:
            if labels.shape == (batch, 2):
                anchor_labels = labels
                negative_labels = labels.new_full((batch, num_negatives, 2), _ABSENT)
            elif labels.shape == (batch, 1 + num_negatives, 2):
                anchor_labels, negative_labels = labels[:, 0], labels[:, 1:]
                present = negative_labels[..., 0] != _ABSENT
            else:
                raise ValueError(
                    f"label: expected (idiom, meaning) of each anchor, ({batch}, 2), or also of its "
                    f"negatives, ({batch}, {1 + num_negatives}, 2), got {tuple(labels.shape)}"
                )
            if (anchor_labels < 0).any():
                raise ValueError("label: an anchor's idiom and meaning are numbers from 0")
            candidate_labels = torch.cat([anchor_labels, negative_labels[present]])  # (M, 2)
        candidates, owner, is_positive = flatten_tuples(positives, negatives, present)
        masks = candidate_masks(
            len(anchors),
            owner,
            is_positive,
            anchor_labels=anchor_labels,
            candidate_labels=candidate_labels,
            in_batch=self.in_batch,
            false_negatives=self.false_negatives,
        )
        return self.loss(anchors, candidates, masks)  # type: ignore[no-any-return]

    def get_config_dict(self) -> dict[str, Any]:
        """For the model card."""
        return {
            "temperature": self.loss.temperature,
            "denominator": self.loss.denominator,
            "in_batch": self.in_batch,
            "false_negatives": self.false_negatives,
        }


class AdaptiveTripletTrainerLoss(_TrainerLoss):
    """:class:`~idiomloss.AdaptiveTripletLoss` on the rows of :func:`group_columns`, a sentence each.

    Needs :class:`GroupBatchSampler`: in shuffled rows most anchors have no positive in their batch.

    Args:
        model: gives the column's `sentence_embedding`.
        loss: with its options.
        max_empty: training batches in a row with nothing to learn from (no triplet, and no paraphrases for
            the other terms) after which an error is raised, since a loss of zero would go unnoticed. None =
            never.

    Attributes:
        num_within, num_across: mined triplets of the last batch, see :class:`~idiomloss.TripletResult`.

    Example:
        >>> import torch
        >>> from idiomloss.sentence_transformers import AdaptiveTripletTrainerLoss, group_columns
        >>> rows = group_columns([("He broke the ice.", ["He made them relax."], ["He split the ice."])])
        >>> embeddings = torch.eye(2)[[0, 1, 0]]  # the incorrect paraphrase is where the correct one belongs
        >>> loss = AdaptiveTripletTrainerLoss(torch.nn.Identity())
        >>> assert loss([{"sentence_embedding": embeddings}], torch.tensor(rows["label"])) > 0.3
    """

    texts: ClassVar[Texts] = "one"

    def __init__(
        self, model: nn.Module, loss: AdaptiveTripletLoss | None = None, *, max_empty: int | None = 20
    ) -> None:
        super().__init__(model)
        self.loss = loss or AdaptiveTripletLoss()
        self.max_empty = max_empty
        self.num_within = self.num_across = self._num_empty = 0

    def forward(self, sentence_features: Features, labels: Tensor) -> Tensor:
        """A scalar.

        Args:
            sentence_features: one column of B sentences.
            labels: int (B, 3), (label, group, is it the sentence with the idiom).

        Raises:
            ValueError: if the labels are of another shape, or there is more than one column of texts.
            RuntimeError: if too many batches in a row had nothing to learn from.
        """
        embeddings = self._embed(sentence_features)[0]
        if labels.shape != (len(embeddings), 3):
            raise ValueError(
                f"label: expected (label, group, is_sentence) of each sentence, ({len(embeddings)}, 3), got "
                f"{tuple(labels.shape)}; group_columns makes such rows"
            )
        result = self.loss(embeddings, GroupLabels(labels[:, 0], labels[:, 1], labels[:, 2].bool()))
        self.num_within, self.num_across = result.num_within, result.num_across
        if torch.is_grad_enabled():
            self._num_empty = self._num_empty + 1 if result.is_empty else 0
            if self.max_empty is not None and self._num_empty >= self.max_empty:
                raise RuntimeError(
                    f"no triplet was mined in {self._num_empty} batches in a row: nothing is learned. Either "
                    "all keep the mining margin (stop here, or raise it), or batches hold no positives "
                    "(batch_sampler=GroupBatchSampler)"
                )
        return result.loss  # type: ignore[no-any-return]

    def get_config_dict(self) -> dict[str, Any]:
        """For the model card."""
        weights = {f"{name}_weight": getattr(self.loss, f"{name}_weight") for name in ("property", "correct")}
        return {"scope": self.loss.scope, **weights}


class RankingTrainerLoss(_TrainerLoss):
    """A ranking loss on rows of a query and its N candidates, scored by cosine / temperature.

    Args:
        model: gives each column's `sentence_embedding`.
        loss: of scores and ranks, both (B, N), such as :class:`~idiomloss.ListwiseSoftmaxLoss`; by default
            :class:`~idiomloss.PairwiseHingeLoss`.
        temperature: divides the cosines: a margin is in units of the scores.

    Raises:
        ValueError: if the temperature is not positive.

    Example:
        >>> import torch
        >>> from idiomloss.sentence_transformers import RankingTrainerLoss
        >>> query, near, far = torch.eye(3)[:1], torch.eye(3)[:1], torch.eye(3)[1:2]
        >>> columns = [{"sentence_embedding": x} for x in (query, near, far)]
        >>> loss = RankingTrainerLoss(torch.nn.Identity())
        >>> assert loss(columns, torch.tensor([[0, 1]])) == 0 < loss(columns, torch.tensor([[1, 0]]))
    """

    texts: ClassVar[Texts] = "candidates"

    def __init__(self, model: nn.Module, loss: nn.Module | None = None, *, temperature: float = 0.05) -> None:
        super().__init__(model)
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        self.loss = loss or PairwiseHingeLoss()
        self.temperature = temperature

    def forward(self, sentence_features: Features, labels: Tensor) -> Tensor:
        """A scalar.

        Args:
            sentence_features: columns query and N candidates, of B rows.
            labels: int (B, N), each candidate's rank, 0 = best.
        """
        query, *candidates = self._embed(sentence_features)
        scores = torch.stack([paired_cosine_similarity(query, candidate) for candidate in candidates], 1)
        return self.loss(scores / self.temperature, labels)  # type: ignore[no-any-return]

    def get_config_dict(self) -> dict[str, Any]:
        """For the model card."""
        return {"loss": repr(self.loss), "temperature": self.temperature}


class DistillationTrainerLoss(_TrainerLoss):
    """:func:`~idiomloss.distillation_loss`: sentences held to another model's embeddings of them.

    Args:
        model: gives the column's `sentence_embedding`.

    Example:
        >>> import torch
        >>> from idiomloss.sentence_transformers import DistillationTrainerLoss
        >>> loss = DistillationTrainerLoss(torch.nn.Identity())
        >>> assert loss([{"sentence_embedding": torch.eye(2)}], torch.eye(2)) == 0
    """

    texts: ClassVar[Texts] = "one"

    def forward(self, sentence_features: Features, labels: Tensor) -> Tensor:
        """A scalar from one column of B sentences, and the other model's embeddings (B, D)."""
        return distillation_loss(self._embed(sentence_features)[0], labels)


def group_columns(groups: Iterable[tuple[str, Sequence[str], Sequence[str]]]) -> dict[str, list[Any]]:
    """Columns of a dataset of relabelled groups, for `datasets.Dataset.from_dict`.

    Args:
        groups: (sentence with the idiom, its correct, its incorrect paraphrases) each.

    Returns:
        `sentence`: all of them, one a row; `label`: (label, group, is it the sentence with the idiom). No
        label occurs in two groups, see :func:`~idiomloss.label_groups`.
    """
    groups = list(groups)
    sample = label_groups([(len(correct), len(incorrect)) for _, correct, incorrect in groups])
    label = torch.stack([sample.labels, sample.groups, sample.is_sentence.long()], 1).tolist()
    texts = [text for sentence, *others in groups for text in (sentence, *others[0], *others[1])]
    return {"sentence": texts, "label": label}


class GroupBatchSampler(BatchSampler):
    """Batches of whole groups, at most `batch_size` sentences each: no group is ever split.

    Give it as `SentenceTransformerTrainingArguments(batch_sampler=GroupBatchSampler)`, which calls it with
    the arguments below; each process's batch size is `per_device_train_batch_size`. Batches are a function of
    seed and epoch, and equally many in every epoch. Several processes take turns; if the last turn does not
    reach all of them, the others repeat a batch.

    Args:
        dataset: with a column of labels as :func:`group_columns` makes them.
        batch_size: sentences a batch, at most.
        drop_last: must be False, since no batch is incomplete.
        valid_label_columns: names that the column of labels may have; the first that is there counts.
        generator: not used.
        seed: of the order.

    Raises:
        ValueError: if there is no such column, a group is larger than a batch, or `drop_last` is set.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        drop_last: bool = False,
        valid_label_columns: Sequence[str] | None = None,
        generator: torch.Generator | None = None,  # noqa: ARG002
        seed: int = 0,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last)
        if drop_last:
            raise ValueError(
                "dataloader_drop_last=True: batches of whole groups are about equally full, and none is "
                "incomplete; leave it out"
            )
        names = valid_label_columns or ("label",)
        column = next((name for name in names if name in dataset.column_names), None)
        rows: dict[int, list[int]] = {}
        for number, label in enumerate(dataset[column] if column is not None else []):
            if not isinstance(label, Sequence) or len(label) != 3:
                rows = {}
                break
            rows.setdefault(int(label[1]), []).append(number)
        if not rows:
            raise ValueError(
                f"the dataset (columns {', '.join(dataset.column_names)}) needs a column label of (label, "
                "group, is_sentence) each: group_columns makes it"
            )
        largest = max(rows, key=lambda group: len(rows[group]))
        if len(rows[largest]) > batch_size:
            raise ValueError(
                f"per_device_train_batch_size={batch_size} cannot hold group {largest}, which has "
                f"{len(rows[largest])} sentences, and a group is never split"
            )
        self._rows = list(rows.values())
        self._sizes = [len(numbers) for numbers in self._rows]
        self._size = batch_size
        self.seed = seed
        self.epoch = 0
        self._length = len(self._steps())
        # accelerate reads both. Given a number, it takes shorter batches for incomplete ones, and fills them
        # up or drops them; given None, it hands out whole batches. Where it wraps this sampler (several
        # processes, or a resume), it passes the epoch on to `sampler` only.
        self.batch_size = None  # type: ignore[assignment]
        self.sampler = self  # type: ignore[assignment]

    def set_epoch(self, epoch: int) -> None:
        """Called by the trainer before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[list[int]]:
        for step in self._steps():
            yield [row for group in step for row in self._rows[group]]

    def _steps(self) -> list[list[int]]:
        return group_steps(self._sizes, self._size, np.random.default_rng([self.seed, int(self.epoch)]))
