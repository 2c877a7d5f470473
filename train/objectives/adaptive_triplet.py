"""Adaptive triplet: sentences with idioms and their paraphrases, by mined triplets of whole groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from train.data.places import data_files
from train.data.semeval2022 import FILES, ONE_SHOT_FILE, TRAIN_FILE, Group, read_groups
from train.declarations.objective import ObjectiveOptions
from train.declarations.options import Count
from train.declarations.registry import objective
from train.errors import UserError
from train.objectives.shared import TripletSection, about_extra
from train.requests import Request

if TYPE_CHECKING:
    from train.objectives.triplets import Sentences, TripletObjective


@objective("adaptive_triplet", datasets=lambda _: ["semeval2022_task2b"])
class AdaptiveTripletOptions(ObjectiveOptions):
    name: Literal["adaptive_triplet"]
    order: Literal["file", "shuffled"]
    whole_groups: bool
    groups: Literal["all", "usable"]
    groups_per_expression: Count | None
    one_shot: bool
    loss: TripletSection

    def check_with(self, settings: Any, section: str = "objective") -> None:
        if section == "objective" and settings.data.extra:
            raise ValueError(about_extra(settings.data.extra))

    def problems(self) -> Iterator[str]:
        if self.order == "shuffled" and not self.whole_groups:
            yield "whole_groups=false cuts the file's order into batches, which needs order=file"
        if self.order == "file" and self.groups_per_expression is not None:
            yield (
                f"groups_per_expression={self.groups_per_expression} takes other groups in each epoch, "
                "which needs order=shuffled"
            )

    def build(self, settings: Any) -> TripletObjective:
        """The objective on SemEval's training groups."""
        files = data_files(settings, FILES)
        paths = [files(name) for name in (TRAIN_FILE, *([ONE_SHOT_FILE] if self.one_shot else []))]
        groups = [group for path in paths for group in read_groups(path)]
        return self.of_groups(groups, paths, batch_size=settings.trainer.batch_size, seed=settings.seed)

    def of_groups(
        self, groups: Sequence[Group], files: Sequence[Path], *, batch_size: int, seed: int
    ) -> TripletObjective:
        """The objective on these groups.

        Raises:
            UserError: if none has both a correct and an incorrect paraphrase, or one is too large.
        """
        from train.objectives.triplets import TripletObjective

        return TripletObjective(
            _sentences(groups, files, only_usable=self.groups == "usable"),
            self.loss.build(),
            "objective.loss",
            batch_size=batch_size,
            seed=seed,
            shuffled=self.order == "shuffled",
            whole_groups=self.whole_groups,
            per_expression=self.groups_per_expression,
        )


def _sentences(groups: Sequence[Group], files: Sequence[Path], *, only_usable: bool) -> Sentences:
    """The texts of all groups: a sentence and its correct paraphrases are alike, the others are alone.

    Args:
        only_usable: leave out groups without an incorrect (or without a correct) paraphrase, which give no
            triplet by themselves.
    """
    import numpy as np

    from train.objectives.triplets import Sentences

    used = [group for group in groups if group.num_triplets or not only_usable]
    if not any(group.num_triplets for group in used):
        raise UserError("training groups: none has both a correct and an incorrect paraphrase")
    texts = [text for group in used for text in group.texts]
    numbers = [number for number, group in enumerate(used) for _ in group.texts]
    # A label for each group, then one for each incorrect paraphrase.
    is_alike = [alike for g in used for alike in [True] * (1 + len(g.correct)) + [False] * len(g.incorrect)]
    labels = np.where(is_alike, numbers, len(used) + np.arange(len(texts)))
    skipped = (
        f", {len(groups) - len(used)} groups without a triplet left out" if len(used) < len(groups) else ""
    )
    return Sentences(
        labels,
        np.array(numbers),
        request=lambda number: Request(texts[number]),
        names=lambda chosen: [used[i].id for i in dict.fromkeys(numbers[n] for n in chosen)],
        summary=(
            f"{len(texts)} sentences in {len(used)} groups of {len({g.expression for g in used})} "
            f"expressions{skipped}; {len(set(labels.tolist()))} labels, "
            f"{sum(group.num_triplets for group in used)} triplets within groups"
        ),
        files=files,
        expressions=[group.expression.casefold() for group in used],
        plain_requests=[Request(text) for g in used for text in (*g.correct, *g.incorrect)],
        idiom_sentences=lambda: [(group.expression, group.sentence) for group in used],
    )
