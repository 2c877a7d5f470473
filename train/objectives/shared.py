"""What several objectives have in common: sections, and what contrastive data has to say of itself.

Imports nothing heavy, so that a wrong option is reported at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from train.declarations.objective import ObjectiveOptions
from train.declarations.options import Count, Factor, Section, Temperature, Text, Weight
from train.requests import Request, Role

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from idiomloss import AdaptiveTripletLoss, InfoNCELoss


class InfoNCESection(Section):
    temperature: Temperature
    denominator: Literal["negatives", "own_positive", "all_positives"]
    in_batch: Literal["none", "positives", "all"]
    false_negatives: Literal["keep", "mask", "positive"]
    hard_weight: Weight
    soft_weight: Weight
    positives: Literal["mean", "hardest"]

    def build(self) -> InfoNCELoss:
        """The loss; which candidates it is given, `in_batch` and `false_negatives` say."""
        from idiomloss import InfoNCELoss

        return InfoNCELoss(**self.model_dump(exclude={"in_batch", "false_negatives"}))


class TripletSection(Section):
    margin: Factor
    mining_margin: Weight
    mining_distance: Literal["cosine", "euclidean"]
    triplets: Literal["all", "hard", "semihard", "easy"]
    scope: Literal["all", "within"]
    triplet_weight: Weight
    property_weight: Weight
    correct_weight: Weight

    def build(self) -> AdaptiveTripletLoss:
        """The loss."""
        from idiomloss import AdaptiveTripletLoss

        return AdaptiveTripletLoss(**self.model_dump())


class ContrastiveOptions(ObjectiveOptions):
    """What contrastive objectives have in common: how anchors are batched, and how texts are embedded.

    Attributes:
        loss_option: the name of the section with the options of the loss.
        groups_option: the name of the option that says of how many groups a batch is.
    """

    loss_option: ClassVar[str]
    groups_option: ClassVar[str]

    query_mode: Sequence[str] | None
    query_weights: list[Factor] | None
    document_mode: Sequence[str] | None
    mask: Text
    drop_last: bool

    @property
    def infonce_section(self) -> InfoNCESection:
        """The options of the loss."""
        section: InfoNCESection = getattr(self, self.loss_option)
        return section

    @property
    def num_groups(self) -> Count | None:
        """Steps are made of this many groups with equally many anchors; None = shuffled."""
        number: int | None = getattr(self, self.groups_option)
        return number

    @property
    def usage_weights(self) -> Mapping[str, float]:
        """Usage → weight of a positive; empty where all weigh the same."""
        return {}

    def check_with(self, settings: Any, section: str = "objective") -> None:
        num, batch_size = self.num_groups, settings.trainer.batch_size
        if num is not None and batch_size % num:
            raise ValueError(
                f"{section}.{self.groups_option}={num}: as many groups cannot have equally many of "
                f"trainer.batch_size={batch_size} anchors"
            )

    def problems(self) -> Iterator[str]:
        weights, modes = self.query_weights, self.query_mode or ["span"]
        if weights is not None and len(weights) != len(modes):
            yield (f"query_weights has {len(weights)} numbers for the {len(modes)} modes of query_mode")
        if self.drop_last and self.num_groups is not None:
            yield (
                f"drop_last=true needs shuffled batches: with {self.groups_option} any batch of an epoch may "
                "be smaller than the others"
            )


class ContrastiveData(ABC):
    """Records, by number, and which of them are compared with which.

    Attributes:
        name: for messages.
        groups_name: what its groups are called; "" where there are none.
        files: that were read.
        from_batch: the candidates of an anchor are all other anchors of its micro-batch.
        anchors: int (A,), the record of each anchor.
        labels: int (N, 2), group and meaning of each record.
        ids: int (N,), equal for records that are the same.
        weights: (A,), of the anchors in the loss; None = all the same.
        plain_requests: those for sentences without an expression.
        idiom_sentences: (expression, sentence) of each record with an expression.
        usages: sentences with an expression, and whether they use it idiomatically, where that is known.
    """

    name: str
    groups_name: str
    files: Sequence[Path]
    from_batch: bool
    anchors: ArrayLike
    labels: ArrayLike
    ids: ArrayLike
    weights: NDArray[Any] | None = None
    plain_requests: Sequence[Request]
    idiom_sentences: Sequence[tuple[str, str]]
    usages: Sequence[tuple[str, bool]] = ()

    @abstractmethod
    def candidates(self, epoch: int, anchor: int) -> tuple[Sequence[int], Sequence[int]]:
        """Records that are positives, and that are negatives, of anchor number `anchor` in an epoch."""

    @abstractmethod
    def request(self, record: int, mode: str, role: Role, mask: str) -> Request:
        """How a record is embedded."""

    @abstractmethod
    def is_plain(self, request: Request) -> bool:
        """Whether it is one of `plain_requests`."""

    @abstractmethod
    def usage(self, record: int) -> str:
        """A kind of record, of which batches get their share and positives their weight."""

    @abstractmethod
    def record_name(self, record: int) -> str:
        """For messages."""


def about_extra(extra: str) -> str:
    """Why `data.extra` does not go with an objective."""
    return (
        f"data.extra={extra} adds sentences that serve as anchors: it needs the objective "
        "idiolink, documents_as_queries=true, and tuples that are not the released ones"
    )
