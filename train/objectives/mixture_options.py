"""Options of the objective `mixture`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, model_validator

from train.benchmarks.own import HELD_OUT
from train.declarations.objective import ObjectiveOptions
from train.declarations.objective_section import ObjectiveSettings
from train.declarations.options import Count, Factor, Section, Text
from train.declarations.own_data import OwnData
from train.errors import UserError
from train.objectives.options import about_extra


def _is_name(name: str) -> str:
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"{name!r} is no name of a part, which has letters, digits, _ and - alone")
    return name


# A name is a part of options, of score keys and of names of weights.
PartName = Annotated[str, AfterValidator(_is_name)]


class EachPart(Section):
    """What a part has unless it says otherwise."""

    objective: Text
    data: OwnData
    proportion: Factor
    weight: Factor
    batch_size: Count | None


class PartSettings(EachPart):
    """A part, all of its options filled in (:mod:`train.config.parts`).

    Attributes:
        experiment: whose objective it is, for the record; None = named by `objective`.
        options: of the objective.
    """

    experiment: Text | None
    options: ObjectiveSettings

    @property
    def is_own(self) -> bool:
        """Whether it is trained on the user's own data."""
        return self.options.name == "own"

    @model_validator(mode="after")
    def _the_data_fits(self) -> Self:
        if self.options.name != self.objective:
            raise ValueError(f"options.name={self.options.name} is not objective={self.objective}")
        if self.is_own and self.data.train is None:
            raise ValueError(
                "has no data: name your files with data.train=<file>, one of our experiments with "
                "experiment=<name>, or another objective with objective=<name>"
            )
        if not self.is_own and (self.data.train or self.data.val):
            raise ValueError(
                f"data.train and data.val are for parts on your own data; the objective {self.objective} has "
                "data of its own: leave them out"
            )
        return self

    def seen_by(self, settings: Any) -> Any:
        """The run's :class:`train.config.TrainSettings` with this part's data and batch size."""
        trainer = settings.trainer
        return settings.model_copy(
            update={
                "data": settings.data.model_copy(update=dict(self.data)),
                "trainer": trainer.model_copy(update={"batch_size": self.batch_size or trainer.batch_size}),
            }
        )


class MixtureSettings(ObjectiveOptions):
    """Any number of parts; a part's experiment or objective cannot be a mixture itself.

    Attributes:
        each_part: what a part has unless it says otherwise.
        parts: by name.
    """

    name: Literal["mixture"]
    each_part: EachPart
    parts: dict[PartName, PartSettings]

    @property
    def trains_modules(self) -> bool:
        return any(part.options.trains_modules for part in self.parts.values())

    @property
    def fold_split(self) -> str | None:
        return next((split for part in self.parts.values() if (split := part.options.fold_split)), None)

    def splits(self, benchmark: str) -> list[str]:
        """Of what is held out of the user's own data: the parts on such data."""
        return [name for name, part in self.parts.items() if part.is_own] if benchmark == HELD_OUT else []

    def score_keys(self, splits: Callable[[str], Sequence[str]]) -> list[str]:
        return [key for part in self.parts.values() for key in part.options.score_keys(splits)]

    def check_with(self, settings: Any, section: str = "objective") -> None:
        if settings.data.train or settings.data.val:
            raise ValueError(
                "data.train and data.val are for one objective alone: of a mixture each part names its own, "
                f"{section}.parts.<name>.data.train="
            )
        for name, part in self.parts.items():
            place = f"{section}.parts.{name}"
            accumulation = settings.trainer.accumulation
            if part.batch_size is not None and part.batch_size % accumulation:
                raise ValueError(
                    f"{place}.batch_size={part.batch_size} cannot be cut into "
                    f"trainer.accumulation={accumulation} equal parts"
                )
            try:
                part.options.check_with(part.seen_by(settings), f"{place}.options")
            except ValueError as error:
                raise ValueError(of_part(str(error), name)) from None
        if settings.data.extra and not any(p.objective in ("idiolink", "joint") for p in self.parts.values()):
            raise ValueError(about_extra(settings.data.extra))
        if HELD_OUT in settings.benchmark.names and not self.splits(HELD_OUT):
            raise ValueError(
                f"benchmark=[{HELD_OUT}] scores what is held out of your own data, and no part has such: "
                "choose what is scored, as benchmark=[idiolink] trainer.monitor=idiolink/val/sentence/ndcg@10"
            )

    def check_files(self, settings: Any) -> None:
        for name, part in self.parts.items():
            try:
                part.options.check_files(part.seen_by(settings))
            except UserError as error:
                raise UserError(of_part(str(error), name)) from error

    @model_validator(mode="after")
    def _there_are_parts(self) -> Self:
        if not self.parts:
            raise ValueError(
                "parts: a mixture has one part or more: +objective.parts.<name>.data.train=<file> or "
                "+objective.parts.<name>.experiment=<name>"
            )
        with_modules = [name for name, part in self.parts.items() if part.options.trains_modules]
        if len(with_modules) > 1:
            raise ValueError(
                f"parts: {' and '.join(with_modules)} train experts, of which a model has one kind: leave "
                "out all but one"
            )
        return self


def of_part(message: str, name: str) -> str:
    """A message about options of a whole run, with the options of a part instead."""
    place = f"objective.parts.{name}"
    message = re.sub(r"(?<![.\w])objective\.(?!parts\.)", f"{place}.options.", message)
    own = "|".join(OwnData.model_fields)
    message = re.sub(rf"(?<![.\w])data\.(?=({own})\b)", f"{place}.data.", message)
    message = message.replace("trainer.batch_size", f"{place}.batch_size")
    return message if place in message else f"{place}: {message}"
