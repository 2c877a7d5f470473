"""IdioLink: queries against documents of their idiom and meaning, by InfoNCE."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from train.data import astitch
from train.data.astitch_idioms import read_astitch_idioms
from train.data.external import ExternalIdioms
from train.data.idiolink import (
    Document,
    Split,
    available_splits,
    check_disjoint,
    document_request,
    load_split,
    training_request,
)
from train.data.names import CV_SPLIT, TrainDocumentMode, TrainQueryMode
from train.data.pie import pie_file, read_pie
from train.data.places import data_files, idiolink_folder, idiolink_split
from train.declarations.options import Count, CountFromZero, Section, Text, Weight, as_list
from train.declarations.registry import objective
from train.objectives.shared import ContrastiveData, ContrastiveOptions, InfoNCESection, about_extra
from train.requests import Request, Role

if TYPE_CHECKING:
    from train.data.tuples import TrainingTuple
    from train.objectives.contrastive import ContrastiveObjective

log = logging.getLogger(__name__)


class PositiveWeights(Section):
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
    tuples: Literal["released", "drawn", "batch"]
    num_positives: Count
    num_hard: CountFromZero
    num_soft: CountFromZero
    redraw: bool
    documents_as_queries: bool
    idioms_per_batch: Count | None
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

    def check_with(self, settings: Any, section: str = "objective") -> None:
        super().check_with(settings, section)
        idioms, parts = self.idioms_per_batch, settings.trainer.accumulation
        if self.tuples == "batch" and idioms is not None and (idioms % parts or idioms // parts < 2):
            raise ValueError(
                f"trainer.accumulation={parts} cuts a batch of {section}.idioms_per_batch={idioms} idioms "
                "into parts without two whole idioms, but tuples=batch takes negatives from the same part: "
                "choose an accumulation that leaves two idioms or more in each"
            )
        if settings.data.extra and (self.tuples == "released" or not self.documents_as_queries):
            raise ValueError(about_extra(settings.data.extra))
        if self.fold_split and self.tuples == "released":
            raise ValueError("objective.tuples=released are of the train split, not of a fold's idioms")

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.tuples == "batch" and (self.loss.in_batch, self.loss.false_negatives) != ("all", "positive"):
            yield (
                "tuples=batch takes positives and negatives from the batch alone, which needs "
                "loss.in_batch=all and loss.false_negatives=positive"
            )
        if not any(self.positive_weights.model_dump().values()):
            yield "positive_weights: with all weights 0 idiomatic anchors would have no loss"
        if self.tuples == "released":
            for field in ("redraw", "documents_as_queries"):
                if getattr(self, field):
                    yield f"{field}=true needs tuples=drawn: the released ones are fixed"

    def build(self, settings: Any) -> ContrastiveObjective:
        """The objective, its data checked against the splits that are scored."""
        from train.data.tuples import released_file
        from train.objectives.contrastive import ContrastiveObjective

        root = idiolink_folder(settings)
        split = idiolink_split(settings, root, self.split, training=True)
        # All splits in the folder, scored now or not: what is trained on must be unseen in all others.
        check_disjoint([load_split(root, name) for name in available_splits(root)])
        for name in settings.splits("idiolink"):
            if name != CV_SPLIT and name.split("+")[0] in self.split.split("+"):
                log.warning(
                    "objective.split=%s is trained on and its queries are scored (split=%s): these scores "
                    "are of idioms that the model has seen",
                    self.split,
                    name,
                )
        released = released_file(root, self.split)
        files, note = [released] if self.tuples == "released" else [], ""
        records = (*split.documents, *split.queries)
        idiom_records = [record for record in records if record.usage in ("literal", "idiomatic")]
        if settings.data.extra is not None:
            external = _external(settings, root, split)
            split = replace(split, documents=(*split.documents, *external.documents))
            files, note = [*files, *external.files], external.describe()
        data = IdioLinkData(
            split,
            _tuples(self, split, released, settings.seed),
            self.plain_usages,
            idiom_records,
            from_batch=self.tuples == "batch",
            extra_files=files,
        )
        return ContrastiveObjective(
            data, self, batch_size=settings.trainer.batch_size, seed=settings.seed, note=note
        )


def _external(settings: Any, root: Path, split: Split) -> ExternalIdioms:
    """The corpus `data.extra` without the idioms of any other split."""
    corpus = settings.data.extra
    trained = {d.idiom for d in split.documents}
    names = available_splits(root)
    if "test" not in names:
        log.warning(
            "data.extra=%s: there is no test split in %s, so its idioms could not be left out of the "
            "external data; a model trained here must not be scored on test",
            corpus,
            root,
        )
    idioms = {document.idiom for name in names for document in load_split(root, name).documents}
    unseen, shared = sorted(idioms - trained), sorted(trained)
    if corpus == "pie":
        return read_pie(pie_file(settings.data.place("pie")), unseen=unseen, trained=shared)
    return read_astitch_idioms(data_files(settings, astitch.FILES), unseen=unseen, trained=shared)


def _tuples(
    options: IdioLinkOptions, split: Split, released: Path, seed: int
) -> Callable[[int], list[TrainingTuple]]:
    """Epoch → training tuples."""
    from train.data.tuples import TrainingTuple, draw_tuples, read_released

    anchors = [*split.queries, *(split.documents if options.documents_as_queries else ())]
    if options.tuples == "drawn":
        return lambda epoch: draw_tuples(
            anchors,
            split.documents,
            num_positives=options.num_positives,
            num_hard=options.num_hard,
            num_soft=options.num_soft,
            seed=[seed, epoch if options.redraw else 0, 1],
        )
    if options.tuples == "released":
        fixed = read_released(released, split)
    else:
        fixed = [TrainingTuple(anchor.id, (), (), ()) for anchor in anchors]
    return lambda _epoch: fixed


class IdioLinkData(ContrastiveData):
    """A split's records, and the tuples drawn from them.

    Args:
        split: the training split.
        tuples: epoch → one tuple an anchor, in the same order in each epoch.
        plain_usages: documents without the idiom, by usage: those of `plain_requests`.
        idiom_records: the split's records with their idiom.
        from_batch: the candidates of an anchor are the batch's other anchors.
        extra_files: files in addition to the split's that were read (released tuples, external data).
    """

    groups_name = "idioms"

    def __init__(
        self,
        split: Split,
        tuples: Callable[[int], list[TrainingTuple]],
        plain_usages: Sequence[str] = (),
        idiom_records: Sequence[Document] = (),
        *,
        from_batch: bool = False,
        extra_files: Sequence[Path] = (),
    ) -> None:
        self.name = f"training split {split.name}"
        self.files = [*split.files, *extra_files]
        self.from_batch = from_batch
        self.idiom_sentences = [(record.idiom, record.sentence) for record in idiom_records]
        self.usages = [(record.sentence, record.usage == "idiomatic") for record in idiom_records]
        self._tuples = tuples
        self._records: list[Document] = [*split.documents, *split.queries]
        self._number = {record.id: i for i, record in enumerate(self._records)}
        idioms = {record.idiom: i for i, record in enumerate(self._records)}
        self.labels = [(idioms[r.idiom], int(r.meaning == "idiomatic")) for r in self._records]
        self.ids = range(len(self._records))
        self._epoch_tuples = 0, tuples(0)
        self.anchors = [self._number[t.anchor] for t in self._epoch_tuples[1]]
        self.plain_requests = [document_request(r) for r in self._records if r.usage in plain_usages]
        self._plain = set(self.plain_requests)

    def candidates(self, epoch: int, anchor: int) -> tuple[list[int], list[int]]:
        """Positives, and hard and soft negatives, of an anchor's tuple."""
        if self._epoch_tuples[0] != epoch:
            self._epoch_tuples = epoch, self._tuples(epoch)
        drawn = self._epoch_tuples[1][anchor]
        positives, negatives = drawn.positives, (*drawn.hard, *drawn.soft)
        return [self._number[id_] for id_ in positives], [self._number[id_] for id_ in negatives]

    def request(self, record: int, mode: str, role: Role, mask: str) -> Request:
        return training_request(self._records[record], mode, role, mask)  # type: ignore[arg-type]

    def is_plain(self, request: Request) -> bool:
        return request in self._plain

    def usage(self, record: int) -> str:
        """literal, idiomatic, simplification or sense."""
        return self._records[record].usage

    def record_name(self, record: int) -> str:
        """Its id."""
        return self._records[record].id
