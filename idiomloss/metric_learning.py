"""Losses and miners for pytorch-metric-learning, which take (embeddings, labels).

InfoNCE by idiom and meaning, and the restriction of a miner to triplets within a relabelled group. The
triplet loss itself is that library's: see the example of :class:`WithinGroupMiner`. Ranking losses,
distillation and the property term of :class:`~idiomloss.AdaptiveTripletLoss` need more than one label a text,
and are not here.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.miners import BaseMiner
from pytorch_metric_learning.utils.loss_and_miner_utils import convert_to_pairs
from torch import Tensor

from idiomloss.infonce import CandidateMasks, Denominator, InfoNCELoss, Positives
from idiomloss.similarity import cosine_similarity

NUM_MEANINGS = 2  # of an idiom: literal, idiomatic


def meaning_labels(idioms: Tensor | Sequence[Hashable], meanings: Tensor | Sequence[Hashable]) -> Tensor:
    """One label for each idiom in each meaning, (B,) from (B,) and (B,): 2 idiom + meaning.

    Names become numbers from 0, in the order in which they first occur in this call.

    Raises:
        ValueError: if there are not as many meanings as idioms, or other meanings than 0 and 1.
    """
    first, second = _numbers(idioms), _numbers(meanings)
    if len(first) != len(second) or not {*second.tolist()} <= {*range(NUM_MEANINGS)}:
        raise ValueError(f"each of {len(first)} idioms needs one of {NUM_MEANINGS} meanings, got {second}")
    return NUM_MEANINGS * first + second


def _numbers(names: Tensor | Sequence[Hashable]) -> Tensor:
    """Numbers unchanged; names as numbers in the order of their first occurrence."""
    try:
        return torch.as_tensor(names)
    except (TypeError, ValueError):
        indexes = {name: index for index, name in enumerate(dict.fromkeys(names))}
        return torch.tensor([indexes[name] for name in names])


class IdiomInfoNCELoss(BaseMetricLossFunction):  # type: ignore[misc]
    """:class:`~idiomloss.InfoNCELoss` of every text with all others: positives are those of the same label.

    Of the others, those of the same idiom are the hard negatives. With a miner's `indices_tuple` only its
    pairs count; with `ref_emb` the references are the candidates.

    Args:
        temperature, denominator, hard_weight, soft_weight, positives: see :class:`~idiomloss.InfoNCELoss`.
        **kwargs: pytorch-metric-learning's: `reducer`, `embedding_regularizer`.

    Labels are those of :func:`meaning_labels`. Embeddings are always compared by cosine.

    Raises:
        TypeError: if a `distance` is given.

    Example:
        >>> import torch
        >>> from idiomloss.metric_learning import IdiomInfoNCELoss, meaning_labels
        >>> labels = meaning_labels(["break the ice"] * 3, ["idiomatic", "idiomatic", "literal"])
        >>> together, apart = torch.eye(3)[[0, 0, 1]], torch.eye(3)[[0, 1, 0]]
        >>> loss = IdiomInfoNCELoss(temperature=0.05)
        >>> assert loss(together, labels) < 1e-6 < loss(apart, labels)
    """

    def __init__(
        self,
        temperature: float = 0.05,
        denominator: Denominator = "own_positive",
        hard_weight: float = 1.0,
        soft_weight: float = 1.0,
        positives: Positives = "mean",
        **kwargs: object,
    ) -> None:
        if "distance" in kwargs:
            raise TypeError("IdiomInfoNCELoss compares by cosine similarity: leave distance out")
        super().__init__(**kwargs)
        self.infonce = InfoNCELoss(temperature, denominator, hard_weight, soft_weight, positives)

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: tuple[Tensor, ...] | None,
        ref_emb: Tensor,
        ref_labels: Tensor,
    ) -> dict[str, Any]:
        """The loss of each text that has one; called by the library."""
        pairs = convert_to_pairs(indices_tuple, labels, ref_labels)
        positive = torch.zeros(len(labels), len(ref_labels), dtype=torch.bool, device=embeddings.device)
        negative = positive.clone()
        positive[pairs[0], pairs[1]] = True
        negative[pairs[2], pairs[3]] = True
        same_idiom = (labels // NUM_MEANINGS)[:, None] == ref_labels // NUM_MEANINGS
        masks = CandidateMasks(positive, negative, same_idiom & (labels[:, None] != ref_labels), 0)
        terms, valid = self.infonce.terms(cosine_similarity(embeddings, ref_emb), masks)
        if not valid.any():
            zero: dict[str, Any] = self.zero_losses()
            return zero
        indices = valid.nonzero().squeeze(1)
        return {"loss": {"losses": terms[valid], "indices": indices, "reduction_type": "element"}}


class WithinGroupMiner(BaseMiner):  # type: ignore[misc]
    """Keeps those of another miner's triplets whose negative is in the anchor's group.

    Args:
        miner: gives triplets.
        group_of_label: int (number of labels,), the group of each label, from :func:`group_of_label`.
        **kwargs: pytorch-metric-learning's.

    Example:
        >>> import torch
        >>> from pytorch_metric_learning.distances import CosineSimilarity
        >>> from pytorch_metric_learning.losses import TripletMarginLoss
        >>> from pytorch_metric_learning.miners import TripletMarginMiner
        >>> from idiomloss import label_groups
        >>> from idiomloss.metric_learning import WithinGroupMiner, group_of_label
        >>> groups = label_groups([(1, 2), (1, 1)])  # correct and incorrect paraphrases of two sentences
        >>> miner = TripletMarginMiner(margin=0.4, distance=CosineSimilarity())
        >>> miner = WithinGroupMiner(miner, group_of_label(groups.labels, groups.groups))
        >>> loss = TripletMarginLoss(margin=0.3, distance=CosineSimilarity())
        >>> embeddings = torch.eye(8)[[0, 1, 0, 2, 0, 4, 5]]  # a wrong paraphrase is alike
        >>> anchors, _, negatives = miner(embeddings, groups.labels)
        >>> assert all(groups.groups[anchors] == groups.groups[negatives])  # none of another group
        >>> assert loss(embeddings, groups.labels, miner(embeddings, groups.labels)) > 0
    """

    def __init__(self, miner: BaseMiner, group_of_label: Tensor, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.miner = miner
        self.register_buffer("group_of_label", group_of_label)

    def mine(
        self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor, ref_labels: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Indices (anchors, positives, negatives); called by the library."""
        anchors, positives, negatives = self.miner(embeddings, labels, ref_emb, ref_labels)
        groups = self.group_of_label.to(labels.device)
        within = groups[labels[anchors]] == groups[ref_labels[negatives]]
        return anchors[within], positives[within], negatives[within]


def group_of_label(labels: Tensor, groups: Tensor) -> Tensor:
    """Int (number of labels,), the group of each label (-1: no text has it), from labels and groups (N,)."""
    table = groups.new_full((int(labels.max()) + 1,), -1)
    table[labels] = groups
    return table
