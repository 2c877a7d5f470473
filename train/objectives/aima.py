"""AIMA as printed: senses from sentences, orders from items; see :mod:`train.experts.aima`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from train.data.admire import Item
from train.data.astitch import Meanings, Usage
from train.errors import UserError
from train.experts.aima import AimaSystem
from train.expressions import plain_expression
from train.objectives import Batch, Mean, ObjectiveLoss
from train.objectives.steps import in_shards, shuffled_steps
from train.requests import Request

Step = list[int]


@dataclass(frozen=True)
class _Sentence:
    """A sentence whose sense is learnt.

    Attributes:
        meanings: the right one, then the wrong one; None where they are not known.
    """

    id: str
    phrase: str
    sentence: str
    is_idiomatic: bool
    meanings: tuple[str, str] | None


class AimaObjective:
    """Trains the classifier, the sense encoder and both experts, each on its own data.

    *Sense steps* read sentences (AStitch's and the items'):

        L = bce(classifier) + bce(sense encoder) + contrast,
        contrast = mean of 1 - cos(v, right) + max(0, cos(v, wrong))

    with v the sense vector, and CLIP's text embeddings of what the compound means there and of its other
    meaning; over sentences whose compound has both. *Ranking steps* read items; the expert of the gold sense
    scores the images. The two kinds share no trained weights, unless the sense encoder is trained `beside`
    the experts.

    An epoch has as many steps as one pass over the sentences and one over the items. With `first`, all
    `sense_epochs` passes over the sentences come before the first item; with `beside`, the ranking steps of
    an epoch are spread evenly among its sense steps.

    Args:
        system: trained together with the encoder, which is the classifier's.
        items: with sense and gold order.
        usages: sentences of AStitch, without those of compounds that must stay unseen.
        meanings: by compound; the first idiomatic one counts.
        rank_loss: scores (B, 5), gold ranks (B, 5) → scalar.
        batch_size: sentences, or items, an optimizer step.
        seed: of the orders.
        sense_epochs: passes over the sentences that come first.
        files: the data files that were read.
        note: what was left out, and how captions are shortened, for the log.

    Raises:
        UserError: if an item has no sense or no gold order, or no item is left to rank.
    """

    def __init__(
        self,
        system: AimaSystem,
        items: Sequence[Item],
        usages: Sequence[Usage],
        meanings: Mapping[str, Meanings],
        rank_loss: Callable[[Tensor, Tensor], Tensor],
        *,
        batch_size: int,
        seed: int,
        sense_epochs: int,
        files: Sequence[Path] = (),
        note: str = "",
    ) -> None:
        without = [item.id for item in items if item.sense is None or item.gold_ranks is None]
        # A literal expert without parameters learns nothing from its items.
        ranked = [i for i in items if system.literal is not None or i.sense == "idiomatic"]
        if without or not ranked:
            raise UserError(f"AIMA: items without sense or gold order: {', '.join(without) or 'all'}")
        self.modules: nn.Module = system
        self._system = system
        self._items = ranked
        self._rank_loss = rank_loss
        self.batch_size = batch_size
        self.seed = seed
        self._sense_epochs = sense_epochs
        self.files = list(files)
        self._note = note
        self._sentences = [
            _Sentence(u.id, u.phrase, u.sentence, u.is_idiomatic, _two(meanings, u.phrase, u.is_idiomatic))
            for u in usages
        ]
        self._num_usages = len(usages)
        for item in items:
            is_idiomatic = item.sense == "idiomatic"
            two = _two(meanings, item.compound, is_idiomatic)
            self._sentences.append(_Sentence(item.id, item.compound, item.sentence, is_idiomatic, two))
        self.idiom_sentences = [(each.phrase, each.sentence) for each in self._sentences]
        self.plain_requests: list[Request] = []

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """The separator of phrase and sentence."""
        return {"separator": self._system.options.separator}

    def describe(self) -> str:
        """One line for the log."""
        compounds = {plain_expression(each.phrase) for each in self._sentences}
        without = sum(each.meanings is None for each in self._sentences)
        stage = {
            "first": f"the senses are learnt first, {self._sense_epochs} epochs",
            "beside": "senses and orders are learnt side by side",
        }
        parts = [
            f"{len(self._items)} items to rank",
            f"{len(self._sentences)} sentences ({self._num_usages} of AStitch) of {len(compounds)} compounds "
            f"for the sense, {without} of them without both meanings",
            stage[self._system.options.sense_stage],
            self._note,
        ]
        return "; ".join(part for part in parts if part)

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps, a function of seed and epoch; anchors are sentences, then items."""
        num_sense, num_rank = (len(self._pass(0, kind)) for kind in (0, 1))
        if self._system.options.sense_stage == "beside":
            spread = [
                ((i + 1) / len(part), step)
                for part in (self._pass(epoch, 0), self._pass(epoch, 1))
                for i, step in enumerate(part)
            ]
            steps = [step for _, step in sorted(spread, key=lambda placed: placed[0])]
        else:
            start = epoch * (num_sense + num_rank)
            before = self._sense_epochs * num_sense
            steps = []
            passes: dict[tuple[int, int], list[Step]] = {}
            for number in range(start, start + num_sense + num_rank):
                kind = int(number >= before)
                round_, place = divmod(number - kind * before, (num_sense, num_rank)[kind])
                if (round_, kind) not in passes:
                    passes[round_, kind] = self._pass(round_, kind)
                steps.append(passes[round_, kind][place])
        return in_shards(steps, shards)

    def _pass(self, number: int, kind: int) -> list[Step]:
        """The steps of one pass over all sentences (kind 0) or all items (kind 1)."""
        num = len(self._sentences)
        anchors = range(num) if kind == 0 else range(num, num + len(self._items))
        return shuffled_steps(anchors, self.batch_size, np.random.default_rng([self.seed, number, kind]))

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:  # noqa: ARG002  nothing is redrawn
        """The sentences, whose classifier's input is embedded; or the items, for which nothing is."""
        num = len(self._sentences)
        if anchors[0] >= num:
            items = [self._items[anchor - num] for anchor in anchors]
            return Batch([], [item.id for item in items], items)
        sentences = [self._sentences[anchor] for anchor in anchors]
        requests = [self._system.sense_request(each.phrase, each.sentence) for each in sentences]
        return Batch(requests, [each.id for each in sentences], sentences)

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The ranking loss, or the sum of the senses' losses."""
        return (
            self._sense_loss(embeddings, batch.targets) if batch.requests else self._order_loss(batch.targets)
        )

    def _order_loss(self, items: Sequence[Item]) -> ObjectiveLoss:
        by_expert = [[i for i in items if i.sense == sense] for sense in ("idiomatic", "literal")]
        scores = torch.cat([self._system.rank(own, n) for n, own in enumerate(by_expert) if own])  # (Q, 5)
        gold = [item.gold_ranks for own in by_expert for item in own]
        loss = self._rank_loss(scores, torch.tensor(gold, device=scores.device))
        return ObjectiveLoss(loss, means={"rank_loss": Mean(loss.item(), len(items))}, part="rank")

    def _sense_loss(self, embeddings: Tensor, sentences: Sequence[_Sentence]) -> ObjectiveLoss:
        logits = self._system.classify(embeddings.float())
        senses = torch.tensor([float(each.is_idiomatic) for each in sentences], device=logits.device)
        classifier = functional.binary_cross_entropy_with_logits(logits, senses)
        accuracy = ((logits > 0) == (senses > 0)).float().mean().item()
        num = len(sentences)
        means = {
            "classifier_loss": Mean(classifier.item(), num),
            "sense_accuracy": Mean(accuracy, num),
        }
        loss = classifier
        if self._system.sense_encoder is not None:
            texts = [self._system.sense_text(each.phrase, each.sentence) for each in sentences]
            vectors, encoder_logits = self._system.sense_encoder(texts)
            encoder = functional.binary_cross_entropy_with_logits(encoder_logits, senses)
            known = [i for i, each in enumerate(sentences) if each.meanings is not None]
            pairs = [each.meanings for each in sentences if each.meanings is not None]
            contrast = vectors.sum() * 0.0
            if known:
                right, wrong = (self._system.meanings([pair[i] for pair in pairs]) for i in (0, 1))
                contrast = contrast_loss(vectors[known], right, wrong)
            loss = classifier + encoder + contrast
            means["encoder_loss"] = Mean(encoder.item(), num)
            means["contrast_loss"] = Mean(contrast.item(), len(known))
        return ObjectiveLoss(loss, means=means, part="sense")


def contrast_loss(vectors: Tensor, right: Tensor, wrong: Tensor) -> Tensor:
    """Mean of 1 - cos(vector, right) + max(0, cos(vector, wrong)), of three (N, W)."""
    near = functional.cosine_similarity(vectors, right)
    far = functional.cosine_similarity(vectors, wrong)
    return (1 - near + far.clamp(min=0)).mean()


def _two(meanings: Mapping[str, Meanings], phrase: str, is_idiomatic: bool) -> tuple[str, str] | None:
    """The right and the wrong meaning, if the compound has both."""
    known = meanings.get(plain_expression(phrase))
    if known is None or not known.non_literal:
        return None
    both = (known.non_literal[0], known.literal)
    return both if is_idiomatic else both[::-1]
