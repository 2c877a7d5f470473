"""Labelled sentences by mined triplets: those of one label are alike, and groups of them stay together.

The base, and the objective on the training groups of SemEval-2022 Task 2B: sentences with idioms and their
paraphrases.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from idiomtune.data.locations import data_files
from idiomtune.data.semeval2022 import FILES, ONE_SHOT_FILE, TRAIN_FILE, SentenceGroup, read_groups
from idiomtune.errors import UserError
from idiomtune.objectives import Batch, Objective, ObjectiveLoss
from idiomtune.objectives.batching import balanced_steps, split_micro_steps
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.objective import ObjectiveOptions
from idiomtune.plugins.options import ConfigSection, Count, Factor, Weight
from idiomtune.plugins.registry import objective
from idiomtune.requests import EmbeddingRequest, symmetric_query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from idiomloss import GroupLabels


class TripletSection(ConfigSection):
    margin: Factor
    mining_margin: Weight
    mining_distance: Literal["cosine", "euclidean"]
    triplets: Literal["all", "hard", "semihard", "easy"]
    scope: Literal["all", "within"]
    triplet_weight: Weight
    property_weight: Weight
    correct_weight: Weight


@objective("adaptive_triplet", datasets=lambda _: ["semeval2022_task2b"])
class AdaptiveTripletOptions(ObjectiveOptions):
    name: Literal["adaptive_triplet"]
    order: Literal["file", "shuffled"]
    whole_groups: bool
    groups: Literal["all", "usable"]
    groups_per_expression: Count | None
    one_shot: bool
    loss: TripletSection

    def problems(self) -> Iterator[str]:
        if self.order == "shuffled" and not self.whole_groups:
            yield "whole_groups=false cuts the file's order into batches, which needs order=file"
        if self.order == "file" and self.groups_per_expression is not None:
            yield (
                f"groups_per_expression={self.groups_per_expression} takes other groups in each epoch, "
                "which needs order=shuffled"
            )

    def build(self, inputs: RunInputs) -> AdaptiveTripletObjective:
        """The objective on SemEval's training groups."""
        files = data_files(inputs, FILES)
        paths = [files(name) for name in (TRAIN_FILE, *([ONE_SHOT_FILE] if self.one_shot else []))]
        groups = [group for path in paths for group in read_groups(path)]
        batch_size = inputs.batch_size
        return AdaptiveTripletObjective(self, groups, paths, batch_size=batch_size, seed=inputs.seed)


class TripletObjective(Objective):
    """Every sentence is an anchor, and comes once an epoch.

    Sentences of a group stay together in a batch, unless groups may be cut. If there are no groups, a batch
    has equally many sentences of several labels.

    Args:
        labels: int (N,), equal for sentences that are alike.
        groups: int (N,), numbered in the order of their first sentences; None if there are no groups.
        loss: the options of the adaptive triplet loss.
        batch_size: sentences an optimizer step, at most.
        seed: of their order.
        shuffled: draw a new order of groups each epoch, instead of the file's.
        whole_groups: never split a group. Otherwise each step has exactly `batch_size` sentences in the
            file's order (the last one the rest), and the triplets of a group that is cut are lost.
        expressions: of each group, in lower case, for `per_expression`.
        per_expression: at most this many groups of an expression an epoch, and the next ones in the next
            epoch, so that expressions with many groups do not dominate. None = all groups.
        per_label: sentences of a label in a batch (without groups); divides `batch_size`.

    Raises:
        UserError: if a group that must not be split is larger than a batch, or a batch does not hold
            `per_label` sentences of two labels.
    """

    loss_section: ClassVar[str]  # where the options of the loss are, for messages

    def __init__(
        self,
        labels: NDArray[np.int64],
        groups: NDArray[np.int64] | None,
        loss: TripletSection,
        *,
        batch_size: int,
        seed: int,
        shuffled: bool,
        whole_groups: bool = True,
        expressions: Sequence[str] = (),
        per_expression: int | None = None,
        per_label: int = 1,
    ) -> None:
        import numpy as np
        from torch import nn

        from idiomloss import AdaptiveTripletLoss

        self.head = nn.Module()  # trains nothing in addition to the encoder
        self._loss = AdaptiveTripletLoss(**loss.model_dump())
        self.batch_size, self.seed = batch_size, seed
        self._shuffled, self._whole_groups = shuffled, whole_groups
        self._per_expression, self._per_label = per_expression, per_label
        self._labels, self._has_groups = labels, groups is not None
        self._groups = np.zeros(len(labels), dtype=np.int64) if groups is None else groups
        order = np.argsort(self._groups, kind="stable")
        self._members = [m.tolist() for m in np.split(order, np.cumsum(np.bincount(self._groups))[:-1])]
        self._is_first = np.zeros(len(labels), dtype=bool)
        self._is_first[[members[0] for members in self._members]] = True
        largest = max(self._members, key=len)
        if self._has_groups and whole_groups and len(largest) > batch_size:
            raise UserError(
                f"trainer.batch_size={batch_size} sentences a step cannot hold the group of "
                f"{self.names(largest)[0]}, which has {len(largest)}: a group is never cut in two"
            )
        if not self._has_groups and (batch_size % per_label or batch_size == per_label):
            raise UserError(
                f"trainer.batch_size={batch_size} sentences are not objective.per_label={per_label} of each "
                "of two labels or more: choose a batch size that is a multiple, and at least twice as many"
            )
        rng = np.random.default_rng([seed, 3])
        by_expression: dict[str, list[int]] = {}
        for number, expression in enumerate(expressions):
            by_expression.setdefault(expression, []).append(number)
        self._by_expression = [rng.permutation(numbers).tolist() for numbers in by_expression.values()]

    @abstractmethod
    def request(self, number: int) -> EmbeddingRequest:
        """The request for a sentence."""

    @abstractmethod
    def names(self, numbers: Sequence[int]) -> list[str]:
        """Sentences, for messages."""

    def epoch_steps(self, epoch: int, num_parts: int) -> list[list[list[int]]]:
        """The epoch's steps, equally many in every epoch, each cut between groups (or labels)."""
        import numpy as np

        from idiomloss import group_steps

        rng = np.random.default_rng([self.seed, epoch, 0])
        num, size = len(self._labels), self.batch_size
        if not self._has_groups:
            classes = {i: (label, "") for i, label in enumerate(self._labels.tolist())}
            return split_micro_steps(
                balanced_steps(range(num), size, size // self._per_label, classes, rng), num_parts
            )
        if not self._whole_groups:
            return split_micro_steps([range(i, min(i + size, num)) for i in range(0, num, size)], num_parts)
        sizes = [len(members) for members in self._members]
        if self._per_expression is not None:
            steps = self._steps_by_expression(sizes, self._per_expression, epoch, rng)
        elif self._shuffled:
            steps = group_steps(sizes, size, rng)
        else:
            steps, room = [], 0  # in their order, as many a step as fit
            for group, needed in enumerate(sizes):
                if needed > room:
                    steps.append([])
                    room = size
                steps[-1].append(group)
                room -= needed
        return split_micro_steps(steps, num_parts, self._members)

    def _steps_by_expression(
        self, sizes: Sequence[int], limit: int, epoch: int, rng: np.random.Generator
    ) -> list[list[int]]:
        """Steps of at most `limit` groups of each expression, other ones each epoch; always as many steps."""
        from idiomloss import group_steps

        max_sentences = 0  # that any epoch's groups have
        chosen: list[int] = []
        for numbers in self._by_expression:
            max_sentences += sum(sorted(sizes[n] for n in numbers)[-limit:])
            chosen += [numbers[(epoch * limit + i) % len(numbers)] for i in range(min(limit, len(numbers)))]
        # Enough steps for any choice: if one was too full for a group, all would be, and hold more than all.
        room = self.batch_size - max(sizes) + 1
        num_steps = min(-(-max_sentences // room), len(chosen))
        steps = group_steps([sizes[n] for n in chosen], self.batch_size, rng, num_steps=num_steps)
        return [[chosen[i] for i in step] for step in steps]

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:  # noqa: ARG002
        """Requests and labels of these sentences."""
        import torch

        from idiomloss import GroupLabels

        numbers = list(anchors)
        is_first = torch.from_numpy(self._is_first[numbers])
        if not self._has_groups:
            is_first = torch.arange(len(numbers)) == 0
        labels, groups = (torch.from_numpy(column[numbers]) for column in (self._labels, self._groups))
        targets = GroupLabels(labels, groups, is_first)
        alike = (labels[:, None] == labels).triu(1) & (groups[:, None] == groups)  # (B, B)
        return Batch(
            [self.request(n) for n in numbers],
            self.names(numbers),
            targets,
            plain_rows=(~is_first).nonzero().flatten().tolist() if self.plain_requests else (),
            skip_reason=self._why_no_triplet(targets),
            pairs=[(a, b) for a, b in alike.nonzero().tolist()],
        )

    def _why_no_triplet(self, labels: GroupLabels) -> str:
        """The reason why a batch of these texts cannot learn, with a remedy; "" if it can."""
        loss, section = self._loss, self.loss_section
        if loss.can_learn(labels):
            return ""
        if loss.mines_in_vain:
            return (
                f"{section}.triplets={loss.triplets} mines triplets that keep the loss's margin: choose all"
            )
        if not loss.triplet_weight:
            return f"no term with a weight has anything to learn from: raise {section}.triplet_weight"
        scope = f", or {section}.scope=all" if loss.scope == "within" else ""
        return (
            "a batch needs two sentences of one label and one of another: raise trainer.batch_size, or "
            f"choose objective.order=shuffled{scope}"
        )

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The loss of the batch's mined triplets."""
        targets: GroupLabels = batch.targets
        result = self._loss(embeddings, targets.to(embeddings.device))
        groups, labels = targets.groups.tolist(), targets.labels.tolist()
        sizes, alike = Counter(groups), Counter(zip(groups, labels, strict=True))
        possible = sum(k * (k - 1) * (sizes[group] - k) for (group, _), k in alike.items())
        counts = {
            "triplets_possible": float(possible),  # within the groups
            "triplets_within": float(result.num_within),
            "triplets_across": float(result.num_across),
        }
        return ObjectiveLoss(result.loss, counts, is_empty=result.is_empty)


class AdaptiveTripletObjective(TripletObjective):
    """Groups: a sentence and its correct paraphrases are alike, its incorrect ones are like no other.

    Args:
        options: its options.
        groups: all that were read; with `groups=usable` those without an incorrect (or without a correct)
            paraphrase, which give no triplet by themselves, are left out.
        files: that were read.
        batch_size, seed: as of :class:`TripletObjective`.

    Raises:
        UserError: if no group has both a correct and an incorrect paraphrase, or one is too large.

    >>> from idiomtune.testing import check_objective
    >>> assert "loss" in check_objective("adaptive_triplet_paper", skip=["shuffling", "gradient"])
    """

    loss_section = "objective.loss"

    def __init__(
        self,
        options: AdaptiveTripletOptions,
        groups: Sequence[SentenceGroup],
        files: Sequence[Path],
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        import numpy as np

        self.files = list(files)
        used = self._used = [group for group in groups if group.num_triplets or options.groups == "all"]
        if not any(group.num_triplets for group in used):
            raise UserError("training groups: none has both a correct and an incorrect paraphrase")
        self._num_skipped = len(groups) - len(used)
        self._texts = [text for group in used for text in group.texts]
        self._numbers = [number for number, group in enumerate(used) for _ in group.texts]
        self.plain_requests = [symmetric_query(text) for group in used for text in group.texts[1:]]
        self.idiom_sentences = [(group.expression, group.sentence) for group in used]
        # A label for each group, then one for each incorrect paraphrase.
        alike = [same for g in used for same in [True] * (1 + len(g.correct)) + [False] * len(g.incorrect)]
        super().__init__(
            np.where(alike, self._numbers, len(used) + np.arange(len(self._texts))),
            np.array(self._numbers),
            options.loss,
            batch_size=batch_size,
            seed=seed,
            shuffled=options.order == "shuffled",
            whole_groups=options.whole_groups,
            expressions=[group.expression.casefold() for group in used],
            per_expression=options.groups_per_expression,
        )

    def describe(self) -> str:
        """One line for the log."""
        skipped, limit = self._num_skipped, self._per_expression
        return (
            f"{len(self._texts)} sentences in {len(self._used)} groups of "
            f"{len({group.expression for group in self._used})} expressions"
            + (f", {skipped} groups without a triplet left out" if skipped else "")
            + f"; {len(set(self._labels.tolist()))} labels, "
            f"{sum(group.num_triplets for group in self._used)} triplets within groups"
            + (f"; {limit} groups of an expression an epoch" if limit else "")
        )

    def request(self, number: int) -> EmbeddingRequest:
        return symmetric_query(self._texts[number])

    def names(self, numbers: Sequence[int]) -> list[str]:
        return [self._used[i].id for i in dict.fromkeys(self._numbers[n] for n in numbers)]
