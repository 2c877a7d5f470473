"""A user's own data: pairs, scored pairs or labelled sentences, each with a loss of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from idiomtune.errors import UserError
from idiomtune.objectives import Batch, Objective, ObjectiveLoss
from idiomtune.objectives.base import BaseObjective
from idiomtune.objectives.contrastive import ContrastiveObjective, ContrastiveOptions, InfoNCESection
from idiomtune.objectives.triplets import TripletObjective, TripletSection
from idiomtune.plugins.dataset import MISSING_TRAIN_MESSAGE, OWN, DataSettings, UserData
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.options import ConfigSection, Count, Temperature, Text, Weight, as_list, or_empty
from idiomtune.plugins.registry import objective
from idiomtune.requests import EmbeddingRequest, Role, symmetric_query

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from idiomtune.data.user.load import UserSplits
    from idiomtune.data.user.text_table import TextTable

UserMode = Literal["span", "sentence", "masked_span", "masked_sentence"]
UserModes = Annotated[list[UserMode], BeforeValidator(as_list), Field(min_length=1)]

_MAX_KINDS = 6  # meanings of which the log says what their rows serve as
_FORMS = {"infonce": "pairs or sentences", "cosent": "scored", "cosine": "scored", "triplet": "sentences"}


class GradedSection(ConfigSection):
    temperature: Temperature
    low: float
    high: float

    def problems(self) -> Iterator[str]:
        if not self.low < self.high:
            yield f"low={self.low:g} must be less than high={self.high:g}"


@objective("own", datasets=lambda _: [OWN])
class UserDataOptions(ContrastiveOptions):
    loss_option: ClassVar[str] = "infonce"
    groups_option: ClassVar[str] = "groups_per_batch"
    chooses_groups: ClassVar[bool] = True

    name: Literal["own"]
    loss: Literal["infonce", "cosent", "cosine", "triplet"] | None
    query_mode: UserModes | None
    document_mode: UserModes | None
    instruction: Text | None
    num_positives: Count | None
    num_negatives: Count | None
    groups_per_batch: Count | None
    positive_weights: Annotated[dict[Text, Weight], BeforeValidator(or_empty)]
    infonce: InfoNCESection
    graded: GradedSection
    order: Literal["file", "shuffled"]
    per_label: Count
    triplet: TripletSection

    @property
    def usage_weights(self) -> Mapping[str, float]:
        from idiomtune.data.user.text_table import stable_hash

        return {str(stable_hash(usage)): weight for usage, weight in self.positive_weights.items()}

    def check_with(self, inputs: RunInputs, section: str = "objective") -> None:
        super().check_with(inputs, section)
        if inputs.data.train is None:
            raise ValueError(MISSING_TRAIN_MESSAGE)

    def own_data(self, data: DataSettings) -> Mapping[str, UserData]:
        return {"": data.user_data}

    def check_files(self, data: DataSettings) -> None:
        from idiomtune.data.user.load import check_heads  # NumPy takes a moment

        check_heads(data.user_data)

    def build(self, inputs: RunInputs) -> Objective:
        """The objective, by the form of the data.

        Raises:
            UserError: if the loss is for data of another form, or its options do not fit the data.
        """
        from idiomtune.data.user.load import user_splits

        splits = user_splits(inputs.data.user_data)
        form, store = splits.train.form, splits.train.store
        default = "triplet" if form == "sentences" and store.has_labels else "infonce"
        loss = self.loss or ("cosent" if form == "scored" else default)
        if form not in _FORMS[loss]:
            raise UserError(
                f"objective.loss={loss} is for {_FORMS[loss]}, but the training data are {form}; "
                "objective.loss=null takes the one that fits"
            )
        options = self.model_copy(update={"loss": loss})
        if loss == "infonce":
            options = options._with_modes(has_spans=store.has_spans, resumes=inputs.is_resumed)
        kinds: dict[str, Any] = {"infonce": UserContrastiveObjective, "triplet": LabelledObjective}
        kind = kinds.get(loss, ScoredPairsObjective)
        return kind(options, splits, batch_size=inputs.batch_size, seed=inputs.seed)  # type: ignore[no-any-return]

    def _with_modes(self, *, has_spans: bool, resumes: bool) -> UserDataOptions:
        """With the modes in which texts are read: without spans only one."""
        names, default = ("query_mode", "document_mode"), ["span" if has_spans else "sentence"]
        modes = {name: getattr(self, name) or default for name in names}
        if has_spans:
            return self.model_copy(update=modes)
        for name, of_texts in modes.items():
            if of_texts != default and not resumes:
                raise UserError(
                    f"objective.{name}={','.join(of_texts)}: no row of the data has a span: leave it out"
                )
        return self.model_copy(update=dict.fromkeys(names, default) | {"query_weights": None})


class UserContrastiveObjective(ContrastiveObjective):
    """Pairs, or sentences with groups, by InfoNCE. Each row is an anchor; records are its texts.

    Of a row's positives and negatives a limited number counts in one epoch, the next ones in the next. An
    anchor whose row has no instruction gets the one of the options.

    >>> from idiomtune.testing import check_objective
    >>> people = ["He", "She", "The boss", "Anna", "Our team", "Everybody"]
    >>> rows = [{"anchor": f"{who} broke the ice.", "positive": f"{who} made us relax."} for who in people]
    >>> assert "gradient" in check_objective("own", data={"train": rows, "val_share": 0.4})
    """

    options: UserDataOptions

    def __init__(self, options: UserDataOptions, splits: UserSplits, *, batch_size: int, seed: int) -> None:
        self.examples, self.store = splits.train, splits.train.store
        weights = self.store.weights[self.examples.rows]
        self._limits = options.num_positives, options.num_negatives
        super().__init__(
            options,
            name="the training data",
            files=splits.files,
            anchors=self.examples.anchors,
            labels=self.store.labels,
            ids=self.store.text_ids,
            weights=None if (weights == 1.0).all() else weights,
            from_batch=self.examples.form == "sentences",
            groups_name="groups" if self.store.has_groups else "",
            batch_size=batch_size,
            seed=seed,
        )

    def describe(self) -> str:
        """One line for the log, with what the rows of each meaning serve as."""
        return "; ".join([super().describe(), *self._roles()])

    def _roles(self) -> Iterator[str]:
        """What rows serve as: of sentences for each meaning, of pairs in all."""
        import numpy as np

        rows = self.examples.rows
        if self.examples.form == "pairs":
            num_positives = int(self.store.num_positives[rows].sum())
            num_negatives = int(np.diff(self.store.first)[rows].sum()) - len(rows) - num_positives
            yield f"{num_positives} positives, {num_negatives} negatives, and in_batch={self._in_batch}"
            return
        (groups, meanings), is_anchor = self.store.labels[self._anchors].T, self._has_positive
        group_of = np.unique(groups, return_inverse=True)[1]
        # Of each row, all rows and all anchors of its group, and of its group and meaning.
        (in_group, anchors_in_group), (in_class, anchors_in_class) = (
            (np.bincount(numbers)[numbers], np.bincount(numbers, weights=is_anchor)[numbers])
            for numbers in (group_of, self._classes)
        )
        roles = {
            "anchors and positives": is_anchor,
            "of them with a hard negative": is_anchor & (in_group > in_class),
            "hard negatives": anchors_in_group > anchors_in_class,
            "soft negatives": anchors_in_group < is_anchor.sum(),
        }
        kinds = {
            self.store.names.get(kind, "rows"): meanings == kind for kind in dict.fromkeys(meanings.tolist())
        }
        for name, of_kind in kinds.items() if len(kinds) <= _MAX_KINDS else [("rows", is_anchor | True)]:
            counts = (f"{int((rows & of_kind).sum())} {role}" for role, rows in roles.items())
            yield f"{name}: {', '.join(counts)}"

    @cached_property
    def plain_requests(self) -> Sequence[EmbeddingRequest]:  # type: ignore[override]
        """Texts without a span, if others have one."""
        if not self.store.has_spans:
            return []
        texts = [text for row in range(len(self.examples)) for text in self.examples.texts(row)]
        return [
            EmbeddingRequest(self.store.read_text(text)) for text in texts if self.store.span(text) is None
        ]

    @property
    def idiom_sentences(self) -> Sequence[tuple[str, str]]:  # type: ignore[override]
        """(The words of its span, sentence) of each anchor with a span."""
        return self.examples.marked_text()

    def candidates(self, epoch: int, anchor: int) -> tuple[Sequence[int], Sequence[int]]:
        """Texts of the anchor's row that are positives, and that are negatives."""
        texts = self.examples.texts(anchor)[1:]
        num = int(self.store.num_positives[self.examples.rows[anchor]])
        positives, negatives = (
            of_kind
            if limit is None or limit >= len(of_kind)
            else [of_kind[(epoch * limit + i) % len(of_kind)] for i in range(limit)]
            for of_kind, limit in zip((texts[:num], texts[num:]), self._limits, strict=True)
        )
        return positives, negatives

    def request(self, record: int, mode: str, role: Role) -> EmbeddingRequest:
        """The request for a text; without a span, the whole text in every mode."""
        text, span = self.store.read_text(record), self.store.span(record)
        instruction = None
        if role == "query" and not mode.startswith("masked_"):
            instruction = self.store.instruction(self._row(record)) or self.options.instruction
        if span is None or mode == "sentence":
            # The span goes along for queries, as with IdioLink's.
            return EmbeddingRequest(
                text, span if role == "query" else None, role=role, instruction=instruction
            )
        start, end = span
        if mode.startswith("masked_") and end - start < len(text):
            mask = self.options.mask
            assert mask is not None
            text, span = text[:start] + mask + text[end:], (start, start + len(mask))
        pooling: Literal["span", "sentence"] = "span" if mode.endswith("span") else "sentence"
        return EmbeddingRequest(text, span, role=role, instruction=instruction, pooling=pooling)

    def _row(self, record: int) -> int:
        return int(self.store.first.searchsorted(record, side="right")) - 1

    def is_unmarked(self, request: EmbeddingRequest) -> bool:
        return self.store.has_spans and request.span is None and request.role == "document"

    def usage(self, record: int) -> str:
        """The kind of sentence that its row names."""
        return str(self.store.usage_ids[self._row(record)])

    def record_name(self, record: int) -> str:
        return self.store.name(self._row(record))


class LabelledObjective(TripletObjective):
    """Sentences with a label, by mined triplets.

    >>> from idiomtune.testing import check_objective
    >>> words = ["a dog", "a cat", "a hen", "an axe", "a saw", "a file",
    ...          "tea", "milk", "beer", "red", "blue", "pink"]
    >>> rows = [{"text": f"It is {word}.", "label": str(i // 3)} for i, word in enumerate(words)]
    >>> assert "loss" in check_objective("own", data={"train": rows, "val_share": 0.3}, skip=["gradient"])
    """

    loss_section = "objective.triplet"

    def __init__(self, options: UserDataOptions, splits: UserSplits, *, batch_size: int, seed: int) -> None:
        import numpy as np

        self.files, self.idiom_sentences = splits.files, splits.train.marked_text()
        self._examples, store = splits.train, splits.train.store
        groups = None
        if store.has_groups:
            of_rows = store.groups[self._examples.rows]
            _, first, class_of = np.unique(of_rows, return_index=True, return_inverse=True)
            groups = np.argsort(np.argsort(first))[class_of]
        super().__init__(
            np.unique(store.label_ids[self._examples.rows], return_inverse=True)[1],
            groups,
            options.triplet,
            batch_size=batch_size,
            seed=seed,
            shuffled=options.order == "shuffled",
            per_label=options.per_label,
        )

    def describe(self) -> str:
        """One line for the log."""
        counts = Counter(self._labels.tolist())
        in_groups = f" in {len(self._members)} groups" if self._has_groups else ""
        return (
            f"{len(self._labels)} sentences{in_groups} of {len(counts)} labels, "
            f"{sum(count == 1 for count in counts.values())} of them with one sentence"
        )

    def request(self, number: int) -> EmbeddingRequest:
        return _request(self._examples.store, int(self._examples.anchors[number]))

    def names(self, numbers: Sequence[int]) -> list[str]:
        return self._examples.names(numbers)


class ScoredPairsObjective(BaseObjective):
    """Every row is a pair of texts with a score; both are embedded alike.

    The loss puts cosines in the order of the scores (`cosent`), or makes them equal to them (`cosine`).

    Raises:
        UserError: if scores are far from those that correspond to the cosines 0 and 1.

    >>> from idiomtune.testing import check_objective
    >>> texts = ["He relaxed.", "He was cold.", "It froze.", "She froze.", "We ate.", "They ran."]
    >>> rows = [{"sentence1": "We " + t[3:], "sentence2": t, "score": n} for n, t in enumerate(texts)]
    >>> assert "gradient" in check_objective("own", data={"train": rows, "val_share": 0.4})
    """

    def __init__(self, options: UserDataOptions, splits: UserSplits, *, batch_size: int, seed: int) -> None:
        import numpy as np

        from idiomloss import CoSENTLoss, CosineMSELoss

        graded = options.graded
        self._examples = splits.train
        self._scores: NDArray[np.float64] = splits.train.store.scores[splits.train.rows]
        self._by_order = options.loss == "cosent"
        if not self._by_order and np.abs(self._scores - graded.low).max() > graded.high - graded.low:
            raise UserError(
                f"objective.graded.low={graded.low:g} and high={graded.high:g} are the cosines 0 and 1, but "
                f"the data has scores from {self._scores.min():g} to {self._scores.max():g}: set both to fit"
            )
        losses = CosineMSELoss(graded.low, graded.high), CoSENTLoss(graded.temperature)
        self._loss = losses[self._by_order]
        super().__init__(len(self._scores), batch_size=batch_size, seed=seed, files=list(splits.files))

    def describe(self) -> str:
        """One line for the log."""
        scores = self._scores
        return f"{len(scores)} pairs with scores from {scores.min():g} to {scores.max():g}"

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:  # noqa: ARG002
        """Requests of these pairs: all first texts, then all second ones."""
        import torch

        firsts = self._examples.anchors[list(anchors)].tolist()
        requests = [_request(self._examples.store, text + side) for side in (0, 1) for text in firsts]
        scores = self._scores[list(anchors)]
        is_level = self._by_order and scores.min() == scores.max()
        reason = "a batch needs pairs of different scores: raise trainer.batch_size" if is_level else ""
        return Batch(requests, self._examples.names(anchors), torch.from_numpy(scores), skip_reason=reason)

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The loss of the pairs' cosines and scores."""
        loss = self._loss(*embeddings.chunk(2), batch.targets.to(embeddings.device))
        return ObjectiveLoss(loss, is_empty=bool(batch.skip_reason))


def _request(store: TextTable, text: int) -> EmbeddingRequest:
    """The request for text number `text`: by its span, if it has one."""
    span = store.span(text)
    return symmetric_query(store.read_text(text), span, "sentence" if span is None else "span")
