"""The rows of a user's own data, as each of the losses takes them.

`options` is :class:`train.objectives.own.OwnOptions`, whose method `build` calls these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from idiomloss import CoSENTLoss, CosineMSELoss
from train.data.own.load import OwnSplits
from train.data.own.store import Examples, Store
from train.errors import UserError
from train.objectives import Batch, ObjectiveLoss
from train.objectives.contrastive import ContrastiveObjective
from train.objectives.shared import ContrastiveData
from train.objectives.steps import in_shards, shuffled_steps
from train.objectives.triplets import Sentences, TripletObjective
from train.requests import Request, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray


def contrastive_rows(splits: OwnSplits, options: Any, settings: Any) -> ContrastiveObjective:
    """Pairs, or sentences with groups, by InfoNCE.

    Raises:
        UserError: if a mode reads spans, and no row has one.
    """
    if splits.train.store.has_spans:
        modes = {name: getattr(options, name) or ["span"] for name in ("query_mode", "document_mode")}
        options = options.model_copy(update=modes)
    else:
        for name in ("query_mode", "document_mode"):
            modes_named = getattr(options, name) or ["sentence"]
            if modes_named != ["sentence"] and settings.resume is None:
                raise UserError(
                    f"objective.{name}={','.join(modes_named)}: no row of the data has a span: leave it out"
                )
        plain = {"query_mode": ["sentence"], "document_mode": ["sentence"], "query_weights": None}
        options = options.model_copy(update=plain)
    data = OwnContrastiveData(splits.train, splits.files, options)
    return ContrastiveObjective(data, options, batch_size=settings.trainer.batch_size, seed=settings.seed)


def labelled_rows(splits: OwnSplits, options: Any, settings: Any) -> TripletObjective:
    """Sentences with a label, by mined triplets."""
    examples = splits.train
    store = examples.store
    labels = np.unique(store.label_ids[examples.rows], return_inverse=True)[1]
    groups, in_groups = None, ""
    if store.has_groups:
        _, first, which = np.unique(store.groups[examples.rows], return_index=True, return_inverse=True)
        groups, in_groups = np.argsort(np.argsort(first))[which], f" in {len(first)} groups"
    counts = np.bincount(labels)
    return TripletObjective(
        Sentences(
            labels,
            groups,
            request=lambda row: own_request(store, int(examples.anchors[row])),
            names=examples.names,
            summary=(
                f"{len(examples)} sentences{in_groups} of {len(counts)} labels, {int((counts == 1).sum())} "
                "of them with one sentence"
            ),
            files=splits.files,
            idiom_sentences=examples.marked,
        ),
        options.triplet.build(),
        "objective.triplet",
        batch_size=settings.trainer.batch_size,
        seed=settings.seed,
        shuffled=options.order == "shuffled",
        per_label=options.per_label,
    )


def scored_rows(splits: OwnSplits, options: Any, settings: Any) -> ScoredPairsObjective:
    """Pairs with a score.

    Raises:
        UserError: if scores are far from those that stand for the cosines 0 and 1.
    """
    graded, scores = options.graded, splits.train.store.scores[splits.train.rows]
    if options.loss == "cosine" and np.abs(scores - graded.low).max() > graded.high - graded.low:
        raise UserError(
            f"objective.graded.low={graded.low:g} and high={graded.high:g} are the cosines 0 and 1, "
            f"but the data has scores from {scores.min():g} to {scores.max():g}: set both to fit"
        )
    return ScoredPairsObjective(splits, options, batch_size=settings.trainer.batch_size, seed=settings.seed)


class OwnContrastiveData(ContrastiveData):
    """Each row is an anchor; texts are numbered as in the store.

    Args:
        options: how many positives and negatives of a row count in one epoch (the next ones in the next), and
            the instruction that is put before an anchor whose row has none.
    """

    name = "the training data"

    def __init__(self, examples: Examples, files: Sequence[Path], options: Any) -> None:
        self.examples = examples
        self.files = files
        self.groups_name = "groups" if examples.store.has_groups else ""
        self.from_batch = examples.form == "sentences"
        self.anchors = examples.anchors
        self.labels, self.ids = examples.store.labels, examples.store.text_ids
        self._options = options
        weights = examples.store.weights[examples.rows]
        self.weights = None if (weights == 1.0).all() else weights

    @cached_property
    def plain_requests(self) -> Sequence[Request]:  # type: ignore[override]
        """Texts without a span, where others have one."""
        store = self.examples.store
        if not store.has_spans:
            return []
        texts = [text for row in range(len(self.examples)) for text in self.examples.texts(row)]
        return [Request(store.read_text(text)) for text in texts if store.span(text) is None]

    @property
    def idiom_sentences(self) -> Sequence[tuple[str, str]]:  # type: ignore[override]
        """(What its span says, sentence) of each anchor with a span."""
        return self.examples.marked()

    def candidates(self, epoch: int, anchor: int) -> tuple[Sequence[int], Sequence[int]]:
        """Texts of the anchor's row that are positives, and that are negatives."""
        texts = self.examples.texts(anchor)[1:]
        num_positives = int(self.examples.store.num_positives[self.examples.rows[anchor]])
        return (
            _in_turn(texts[:num_positives], self._options.num_positives, epoch),
            _in_turn(texts[num_positives:], self._options.num_negatives, epoch),
        )

    def request(self, record: int, mode: str, role: Role, mask: str) -> Request:
        """How a text is embedded; one without a span as a whole, whatever the mode."""
        store = self.examples.store
        text, span = store.read_text(record), store.span(record)
        instruction = None
        if role == "query" and not mode.startswith("masked_"):
            instruction = store.instruction(self._row(record)) or self._options.instruction
        if span is None or mode == "sentence":
            # The span goes along for queries, as with IdioLink's.
            return Request(text, span if role == "query" else None, role=role, instruction=instruction)
        start, end = span
        pooling = "span" if mode.endswith("span") else "sentence"
        if mode.startswith("masked_") and end - start < len(text):
            text, end = text[:start] + mask + text[end:], start + len(mask)
            return Request(text, (start, end), role=role, pooling=pooling)  # type: ignore[arg-type]
        return Request(text, span, role=role, instruction=instruction, pooling=pooling)  # type: ignore[arg-type]

    def _row(self, record: int) -> int:
        return int(np.searchsorted(self.examples.store.first, record, side="right")) - 1

    def is_plain(self, request: Request) -> bool:
        """Whether it is a whole text without a span, where others have one."""
        return self.examples.store.has_spans and request.span is None and request.role == "document"

    def usage(self, record: int) -> str:
        """The kind of sentence that its row says it is."""
        return str(self.examples.store.usage_ids[self._row(record)])

    def record_name(self, record: int) -> str:
        """Its file and row."""
        return self.examples.store.name(self._row(record))


def _in_turn(texts: range, limit: int | None, epoch: int) -> Sequence[int]:
    """At most `limit` of them, the next ones in the next epoch."""
    if limit is None or limit >= len(texts):
        return texts
    return [texts[(epoch * limit + i) % len(texts)] for i in range(limit)]


class ScoredPairsObjective:
    """Every row is a pair of texts with a score; both are embedded alike.

    The loss puts cosines in the order of the scores (`cosent`), or makes them equal to them (`cosine`).

    Args:
        batch_size: pairs an optimizer step.
        seed: of the order of pairs.
    """

    plain_requests: Sequence[Request] = ()
    idiom_sentences: Sequence[tuple[str, str]] = ()

    def __init__(self, splits: OwnSplits, options: Any, *, batch_size: int, seed: int) -> None:
        graded = options.graded
        self._examples = splits.train
        self._by_order = options.loss == "cosent"
        self._loss = (
            CoSENTLoss(graded.temperature) if self._by_order else CosineMSELoss(graded.low, graded.high)
        )
        self.batch_size = batch_size
        self.seed = seed
        self.files = list(splits.files)
        self.modules = nn.Module()  # trains nothing in addition to the encoder

    def describe(self) -> str:
        """One line for the log."""
        scores = self._scores(range(len(self._examples)))
        return f"{len(scores)} pairs with scores from {scores.min():g} to {scores.max():g}"

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps: all pairs in an order drawn from seed and epoch, then cut."""
        rng = np.random.default_rng([self.seed, epoch, 0])
        steps = shuffled_steps(np.arange(len(self._examples)), self.batch_size, rng)
        return in_shards(steps, shards)

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:  # noqa: ARG002
        """Requests of these pairs: all first texts, then all second ones."""
        firsts = self._examples.anchors[list(anchors)].tolist()
        requests = [own_request(self._examples.store, text + side) for side in (0, 1) for text in firsts]
        scores = self._scores(anchors)
        is_level = self._by_order and scores.min() == scores.max()
        why = "a batch needs pairs of different scores: raise trainer.batch_size" if is_level else ""
        return Batch(requests, self._examples.names(anchors), torch.from_numpy(scores), empty_because=why)

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The loss of the pairs' cosines and scores."""
        first, second = embeddings.chunk(2)
        loss = self._loss(first, second, batch.targets.to(embeddings.device))
        return ObjectiveLoss(loss, is_empty=bool(batch.empty_because))

    def _scores(self, rows: Sequence[int]) -> NDArray[np.float64]:
        return self._examples.store.scores[self._examples.rows[list(rows)]]


def own_request(store: Store, text: int) -> Request:
    """How text number `text` is embedded: by its span, where it has one."""
    span = store.span(text)
    return Request(store.read_text(text), span, pooling="sentence" if span is None else "span")
