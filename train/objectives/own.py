"""A user's own data: pairs, scored pairs or labelled sentences, each with a loss of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from train.declarations.options import Count, Section, Temperature, Text, Weight, as_list, or_empty
from train.declarations.own_data import NO_DATA, OWN, OwnData
from train.declarations.registry import objective
from train.errors import UserError
from train.objectives.shared import ContrastiveOptions, InfoNCESection, TripletSection

if TYPE_CHECKING:
    from train.data.own.load import OwnSplits
    from train.objectives import Objective

log = logging.getLogger(__name__)

OwnMode = Literal["span", "sentence", "masked_span", "masked_sentence"]
OwnModes = Annotated[list[OwnMode], BeforeValidator(as_list), Field(min_length=1)]
OwnLoss = Literal["infonce", "cosent", "cosine", "triplet"]

_FORMS: dict[OwnLoss, str] = {
    "infonce": "pairs or sentences",
    "cosent": "scored",
    "cosine": "scored",
    "triplet": "sentences",
}


class GradedSection(Section):
    temperature: Temperature
    low: float
    high: float

    def problems(self) -> Iterator[str]:
        if not self.low < self.high:
            yield f"low={self.low:g} must be less than high={self.high:g}"


@objective("own", datasets=lambda _: [OWN])
class OwnOptions(ContrastiveOptions):
    loss_option: ClassVar[str] = "infonce"
    groups_option: ClassVar[str] = "groups_per_batch"

    name: Literal["own"]
    loss: OwnLoss | None
    query_mode: OwnModes | None
    document_mode: OwnModes | None
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
        from train.data.own.store import number_for

        return {str(number_for(usage)): weight for usage, weight in self.positive_weights.items()}

    def check_with(self, settings: Any, section: str = "objective") -> None:
        super().check_with(settings, section)
        if settings.data.train is None:
            raise ValueError(NO_DATA)
        if section == "objective" and settings.data.extra is not None:
            raise ValueError(f"data.extra={settings.data.extra} adds to IdioLink's data: leave it out")

    def check_files(self, settings: Any) -> None:
        from train.data.own.load import check_heads  # NumPy takes a moment

        check_heads(settings.data.own)

    def build(self, settings: Any) -> Objective:
        """The objective, by the form of the data.

        Raises:
            UserError: if the loss is for data of another form, or its options do not fit the data.
        """
        from train.objectives.own_rows import contrastive_rows, labelled_rows, scored_rows

        splits = own_splits(settings.data.own)
        form, has_labels = splits.train.form, splits.train.store.has_labels
        default: OwnLoss = "triplet" if form == "sentences" and has_labels else "infonce"
        loss: OwnLoss = self.loss or ("cosent" if form == "scored" else default)
        if form not in _FORMS[loss]:
            raise UserError(
                f"objective.loss={loss} is for {_FORMS[loss]}, but the training data are {form}; "
                "objective.loss=null takes the one that fits"
            )
        options = self.model_copy(update={"loss": loss})
        if loss == "infonce":
            return contrastive_rows(splits, options, settings)
        if loss == "triplet":
            return labelled_rows(splits, options, settings)
        return scored_rows(splits, options, settings)


def own_splits(data: OwnData) -> OwnSplits:
    """The user's tables, with the negatives that were mined for them, read once a program."""
    return _read(data.model_dump_json(), data.negatives.mined)


def forget_own_data() -> None:
    """Let go of the tables that an earlier job of this process has read; they may also have changed since."""
    _read.cache_clear()


@lru_cache(maxsize=32)
def _read(data: str, mined: tuple[Path, ...]) -> OwnSplits:
    from train.data.own.load import load_own
    from train.data.own.mined import read_mined

    options = OwnData.model_validate_json(data)
    if mined:
        splits = load_own(options, negatives=read_mined(mined[-1]))
        return replace(splits, files=[*splits.files, *mined])
    splits = load_own(options)
    for note in splits.notes:
        log.info("%s", note)
    return splits
