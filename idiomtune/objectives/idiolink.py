"""IdioLink: queries against documents of their idiom and meaning, by InfoNCE."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from idiomtune.data.idiolink import (
    Document,
    Split,
    TrainingTuple,
    check_disjoint,
    document_request,
    document_splits,
    draw_tuples,
    query_splits,
    read_released,
    released_file,
    training_request,
)
from idiomtune.data.locations import idiolink_folder, idiolink_split, idiolink_splits
from idiomtune.data.names import CV_SPLIT, TrainDocumentMode, TrainQueryMode
from idiomtune.objectives.contrastive import ContrastiveObjective, ContrastiveOptions, InfoNCESection
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.options import ConfigSection, Count, CountFromZero, Text, Weight, as_list
from idiomtune.plugins.registry import objective
from idiomtune.requests import EmbeddingRequest, Role

log = logging.getLogger(__name__)


class PositiveWeights(ConfigSection):
    idiomatic: Weight
    simplification: Weight
    sense: Weight


@objective("idiolink", datasets=lambda _: ["idiolink"])
class IdioLinkOptions(ContrastiveOptions):
    loss_option: ClassVar[str] = "loss"
    groups_option: ClassVar[str] = "idioms_per_batch"

    name: Literal["idiolink"]
    split: Text
    query_mode: Annotated[list[TrainQueryMode], BeforeValidator(as_list), Field(min_length=1)]
    document_mode: Annotated[list[TrainDocumentMode], BeforeValidator(as_list), Field(min_length=1)]
    candidates: Literal["released", "sampled", "in_batch"]
    num_positives: Count
    num_hard: CountFromZero
    num_soft: CountFromZero
    redraw: bool
    documents_as_queries: bool
    idioms_per_batch: Count | None
    single_positive_every: CountFromZero
    positive_weights: PositiveWeights
    plain_usages: list[Literal["literal", "idiomatic", "simplification", "sense"]]
    loss: InfoNCESection

    @property
    def usage_weights(self) -> Mapping[str, float]:
        weights: dict[str, float] = self.positive_weights.model_dump()
        return {} if set(weights.values()) == {1.0} else weights

    @property
    def fold_split(self) -> str | None:
        return self.split if self.split == CV_SPLIT else None

    def check_with(self, inputs: RunInputs, section: str = "objective") -> None:
        super().check_with(inputs, section)
        idioms, parts = self.idioms_per_batch, inputs.accumulation
        if self.candidates == "in_batch" and idioms is not None and (idioms % parts or idioms // parts < 2):
            raise ValueError(
                f"trainer.accumulation={parts} cuts a batch of {section}.idioms_per_batch={idioms} idioms "
                "into parts without two complete idioms, but candidates=in_batch takes negatives from the "
                "same part: choose an accumulation that leaves two idioms or more in each"
            )
        if self.fold_split and self.candidates == "released":
            raise ValueError("objective.candidates=released are of the train split, not of a fold's idioms")

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.candidates == "in_batch" and (self.loss.in_batch, self.loss.false_negatives) != (
            "all",
            "positive",
        ):
            yield (
                "candidates=in_batch takes positives and negatives only from the batch, which needs "
                "loss.in_batch=all and loss.false_negatives=positive"
            )
        if self.single_positive_every and self.candidates != "in_batch":
            yield "single_positive_every needs candidates=in_batch; with others, every epoch has tuples"
        if not any(self.positive_weights.model_dump().values()):
            yield "positive_weights: with all weights 0 idiomatic anchors would have no loss"
        for field in ("redraw", "documents_as_queries"):
            if self.candidates == "released" and getattr(self, field):
                yield f"{field}=true needs candidates=sampled: the released ones are fixed"

    def build(self, inputs: RunInputs) -> IdioLinkObjective:
        """The objective, its data checked against the splits that are scored."""
        root = idiolink_folder(inputs)
        split = idiolink_split(inputs, root, self.split, training=True)
        # All splits in the folders, scored now or not: what is trained on must be unseen in all others.
        check_disjoint(idiolink_splits(inputs))
        for name in inputs.splits("idiolink"):
            if name != CV_SPLIT and set(query_splits(name)) & set(document_splits(self.split)):
                log.warning(
                    "objective.split=%s is trained on and its queries are scored (split=%s): these scores "
                    "are of idioms that the model has seen",
                    self.split,
                    name,
                )
        seed, fixed = inputs.seed, None
        idiom_records = [r for r in (*split.documents, *split.queries) if r.usage in ("literal", "idiomatic")]
        anchors = [*split.queries, *(split.documents if self.documents_as_queries else ())]
        if self.candidates == "released":
            released = released_file(root, self.split)
            fixed = read_released(released, split)
            split = replace(split, files=(*split.files, released))

        def tuples(epoch: int) -> list[TrainingTuple]:
            if fixed is not None:
                return fixed
            return draw_tuples(
                anchors,
                split.documents,
                num_positives=self.num_positives,
                num_hard=self.num_hard,
                num_soft=self.num_soft,
                seed=[seed, epoch if self.redraw else 0, 1],
            )

        return IdioLinkObjective(
            self,
            split,
            anchors if self.candidates == "in_batch" else tuples,
            idiom_records,
            batch_size=inputs.batch_size,
            seed=seed,
        )


class IdioLinkObjective(ContrastiveObjective):
    """A split's records, and the tuples drawn from them.

    Args:
        options: its options.
        split: what is trained on.
        tuples: epoch → one tuple an anchor, in the same order in each epoch; or the anchors, whose candidates
            are the batch's other anchors.
        idiom_records: the split's records with their idiom.
        batch_size, seed: as of :class:`ContrastiveObjective`.

    >>> from idiomtune.testing import check_objective
    >>> assert "gradient" in check_objective("idiolink_ft")  # that of finite differences
    """

    def __init__(
        self,
        options: IdioLinkOptions,
        split: Split,
        tuples: Callable[[int], list[TrainingTuple]] | Sequence[Document],
        idiom_records: Sequence[Document] = (),
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        self._records: list[Document] = [*split.documents, *split.queries]
        self._number = {record.id: i for i, record in enumerate(self._records)}
        self.plain_requests = [document_request(r) for r in self._records if r.usage in options.plain_usages]
        self._plain = set(self.plain_requests)
        self.idiom_sentences = [(record.idiom, record.sentence) for record in idiom_records]
        self.usages = [(record.sentence, record.usage == "idiomatic") for record in idiom_records]
        if callable(tuples):
            self._of_epoch = lru_cache(maxsize=1)(tuples)  # epoch → what it trains on
            anchors = [drawn.anchor for drawn in self._of_epoch(0)]
        else:
            records, counts = list(tuples), {"num_positives": 1, "num_hard": 0, "num_soft": 0}
            self._of_epoch = lru_cache(maxsize=1)(
                lambda epoch: draw_tuples(records, split.documents, **counts, seed=[seed, epoch, 1])
            )
            anchors = [record.id for record in records]
        idioms = {record.idiom: i for i, record in enumerate(self._records)}
        super().__init__(
            options,
            name=f"training split {split.name}",
            files=split.files,
            anchors=[self._number[id_] for id_ in anchors],
            labels=[(idioms[r.idiom], int(r.meaning == "idiomatic")) for r in self._records],
            ids=range(len(self._records)),
            from_batch=not callable(tuples),
            single_positive_every=options.single_positive_every,
            groups_name="idioms",
            batch_size=batch_size,
            seed=seed,
        )

    def candidates(self, epoch: int, anchor: int) -> tuple[list[int], list[int]]:
        """Positives, and hard and soft negatives, of an anchor's tuple."""
        drawn = self._of_epoch(epoch)[anchor]
        negatives = (*drawn.hard, *drawn.soft)
        return [self._number[id_] for id_ in drawn.positives], [self._number[id_] for id_ in negatives]

    def request(self, record: int, mode: str, role: Role) -> EmbeddingRequest:
        return training_request(self._records[record], mode, role, self.options.mask)  # type: ignore[arg-type]

    def is_unmarked(self, request: EmbeddingRequest) -> bool:
        return request in self._plain

    def usage(self, record: int) -> str:
        """literal, idiomatic, simplification or sense."""
        return self._records[record].usage

    def record_name(self, record: int) -> str:
        return self._records[record].id
