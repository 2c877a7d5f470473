"""AdMIRe's experts: their ranking loss, the sense classifier's, and the sense vectors' pull to meanings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from idiomloss import cosine_similarity
from train.data.admire import Item
from train.data.astitch import Meanings, Usage
from train.errors import UserError
from train.experts.heads import Experts
from train.expressions import plain_expression
from train.objectives import Batch, Mean, ObjectiveLoss
from train.objectives.steps import in_shards, shuffled_steps
from train.requests import Request


@dataclass(frozen=True)
class _Targets:
    """What a batch is compared with. Its requests are those of Q items, of U usages, and M meanings.

    Attributes:
        senses: int (Q + U,), 0 = idiomatic, of items, then usages.
        correct, wrong: bool (Q + U, M), which meanings are the right ones, and which the others of the
            compound; both all false where it has none.
    """

    items: list[Item]
    num_usages: int
    senses: Tensor
    correct: Tensor
    wrong: Tensor


class AdmireObjective:
    """Trains the experts and the encoder on AdMIRe's items and, for the sense, AStitch's sentences.

        L = a · rank(scores of the expert of the gold sense) + b · cross-entropy(sense)
            + c · meaning,   meaning = -log( sum over the sense's meanings of e^{cos/t}
                                            / sum over all the compound's meanings of e^{cos/t} )

    The rank term is the mean over items, the sense term over items and usages. The meaning term compares the
    sense vector with the encoder's embeddings of the compound's meanings; it is the mean over those items and
    usages whose compound has meanings of both senses. An anchor is an item; with each come some sentences of
    AStitch (*usages*), which take turns over the epochs.

    Args:
        experts: trained together with the encoder.
        items: with sense and gold order.
        usages: without those of compounds that must stay unseen.
        meanings: by compound, as :func:`train.expressions.plain_expression` spells it.
        rank_loss: scores (B, 5), gold ranks (B, 5) → scalar.
        batch_size: items an optimizer step.
        usages_per_item: sentences of AStitch that come with an item.
        temperature: t.
        weights: a, b and c.
        seed: of the orders of items and usages.
        files: the data files that were read.
        note: what was left out, for the log.

    Raises:
        UserError: if an item has no sense or no gold order, or there are no items.
    """

    def __init__(
        self,
        experts: Experts,
        items: Sequence[Item],
        usages: Sequence[Usage],
        meanings: Mapping[str, Meanings],
        rank_loss: Callable[[Tensor, Tensor], Tensor],
        *,
        batch_size: int,
        seed: int,
        usages_per_item: int,
        temperature: float,
        weights: tuple[float, float, float],
        files: Sequence[Path] = (),
        note: str = "",
    ) -> None:
        without = [item.id for item in items if item.sense is None or item.gold_ranks is None]
        if without or not items:
            raise UserError(
                f"AdMIRe's experts: items without sense or gold order: {', '.join(without) or 'all'}"
            )
        self.modules: nn.Module = experts
        self._experts = experts
        self._items = list(items)
        self._usages = list(usages)
        self._meanings = meanings
        self._rank_loss = rank_loss
        self.batch_size = batch_size
        self.seed = seed
        self._usages_per_item = min(usages_per_item, len(usages))
        self._temperature = temperature
        self._weights = weights
        self.files = list(files)
        self._note = note
        self.idiom_sentences = [(item.compound, item.sentence) for item in items]
        self.idiom_sentences += [(usage.phrase, usage.sentence) for usage in usages]
        self._first_caption = experts.num_sense_requests + 1  # among an item's requests
        self.plain_requests: list[Request] = [
            r for item in items for r in experts.item_requests(item)[self._first_caption :]
        ]
        self._orders: dict[int, list[int]] = {}
        self.num_without_meanings = sum(not self._find_meanings(item.compound) for item in items)

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """The separator of phrase and sentence, and what hides the phrase."""
        options = self._experts.options
        mask = {"mask": options.mask} if options.sense_features == "usage" else {}
        return {"separator": options.separator, **mask}

    def describe(self) -> str:
        """One line for the log."""
        compounds = len({plain_expression(item.compound) for item in self._items})
        without = sum(not self._find_meanings(usage.phrase) for usage in self._usages)
        return (
            f"{len(self._items)} items of {compounds} compounds, {len(self._usages)} sentences of "
            f"{len({plain_expression(usage.phrase) for usage in self._usages})} compounds for the sense; "
            f"without meanings of both senses {self.num_without_meanings} items and {without} sentences"
            + (f"; {self._note}" if self._note else "")
        )

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps: all items in an order drawn from seed and epoch, then cut."""
        rng = np.random.default_rng([self.seed, epoch, 0])
        steps = shuffled_steps(range(len(self._items)), self.batch_size, rng)
        return in_shards(steps, shards)

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:
        """Requests of these items, of their usages, and of the meanings of all their compounds."""
        items = [self._items[i] for i in anchors]
        usages = [usage for i in anchors for usage in self._usages_with(epoch, i)]
        requests = [request for item in items for request in self._experts.item_requests(item)]
        width = len(requests) // len(items)
        captions = [i * width + j for i in range(len(items)) for j in range(self._first_caption, width)]
        requests += [r for u in usages for r in self._experts.sense_requests(u.phrase, u.sentence, u.span)]
        texts: dict[str, int] = {}
        right: list[list[int]] = []
        wrong: list[list[int]] = []
        sentences = [(item.compound, item.sense == "idiomatic") for item in items]
        sentences += [(usage.phrase, usage.is_idiomatic) for usage in usages]
        for phrase, is_idiomatic in sentences:
            meanings = self._find_meanings(phrase)
            idiomatic = [texts.setdefault(m, len(texts)) for m in (meanings.non_literal if meanings else ())]
            literal = [texts.setdefault(m, len(texts)) for m in ([meanings.literal] if meanings else ())]
            right.append(idiomatic if is_idiomatic else literal)
            wrong.append(literal if is_idiomatic else idiomatic)
        requests += [Request(text) for text in texts]
        senses = [int(item.sense == "literal") for item in items]
        senses += [int(not usage.is_idiomatic) for usage in usages]
        targets = _Targets(
            items, len(usages), torch.tensor(senses), _mask(right, len(texts)), _mask(wrong, len(texts))
        )
        return Batch(requests, [item.id for item in items], targets, plain_rows=captions)

    def _usages_with(self, epoch: int, item: int) -> list[Usage]:
        """The usages that come with an item in this epoch; each is used once before any comes again."""
        number = self._usages_per_item
        start = (epoch * len(self._items) + item) * number
        chosen = []
        for turn in range(start, start + number):
            round_, place = divmod(turn, len(self._usages))
            if round_ not in self._orders:
                rng = np.random.default_rng([self.seed, round_, 3])
                self._orders = {
                    **{r: order for r, order in self._orders.items() if r == round_ - 1},
                    round_: rng.permutation(len(self._usages)).tolist(),
                }
            chosen.append(self._usages[self._orders[round_][place]])
        return chosen

    def _find_meanings(self, compound: str) -> Meanings | None:
        """The compound's meanings, if it has some of both senses."""
        meanings = self._meanings.get(plain_expression(compound))
        return meanings if meanings is not None and meanings.non_literal else None

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The weighted sum of the three terms."""
        targets: _Targets = batch.targets
        device = embeddings.device
        embeddings = embeddings.float()
        num_items = len(targets.items)
        num_meanings, num_sense = targets.correct.shape[1], self._experts.num_sense_requests
        sizes = [targets.num_usages * num_sense, num_meanings]
        of_items, of_usages, meanings = torch.split(embeddings, [len(embeddings) - sum(sizes), *sizes])
        scores = self._experts(targets.items, torch.unflatten(of_items, 0, (num_items, -1)))  # (Q, R, D)
        vectors, logits = self._experts.sense(torch.unflatten(of_usages, 0, (targets.num_usages, num_sense)))
        vectors, logits = torch.cat([scores.vectors, vectors]), torch.cat([scores.sense, logits])
        senses = targets.senses.to(device)

        ranks = torch.tensor([item.gold_ranks for item in targets.items], device=device)
        rank = self._rank_loss(scores.routed(senses[:num_items]), ranks)
        sense = functional.cross_entropy(logits, senses)
        meaning, num_with = meaning_loss(
            vectors, meanings, targets.correct.to(device), targets.wrong.to(device), self._temperature
        )
        total = sum(w * t for w, t in zip(self._weights, (rank, sense, meaning), strict=True))
        assert isinstance(total, Tensor)
        accuracy = (logits.argmax(1) == senses).float().mean().item()
        means = {
            "rank_loss": Mean(rank.item(), num_items),
            "sense_loss": Mean(sense.item(), len(senses)),
            "meaning_loss": Mean(meaning.item(), num_with),
            "sense_accuracy": Mean(accuracy, len(senses)),
        }
        return ObjectiveLoss(total, {"with_meanings": float(num_with)}, means)


def meaning_loss(
    vectors: Tensor, meanings: Tensor, correct: Tensor, wrong: Tensor, temperature: float
) -> tuple[Tensor, int]:
    """-log of the share of the correct meanings among all of a compound's, by e^{cosine / temperature}.

    Args:
        vectors: sense vectors (N, D).
        meanings: embeddings (M, D).
        correct, wrong: bool (N, M); rows without a correct and a wrong one are skipped.
        temperature: in units of the cosine.

    Returns:
        The mean over rows that are not skipped (zero, with a graph, if there are none), and their number.
    """
    usable = correct.any(1) & wrong.any(1)
    if not usable.any():
        return vectors.sum() * 0.0, 0
    cosine = cosine_similarity(vectors[usable], meanings) / temperature  # (usable, M)
    lowest = torch.finfo(cosine.dtype).min  # in place of meanings that do not count
    is_correct, is_any = correct[usable], (correct | wrong)[usable]
    log_correct = cosine.masked_fill(~is_correct, lowest).logsumexp(1)
    log_any = cosine.masked_fill(~is_any, lowest).logsumexp(1)
    return (log_any - log_correct).mean(), int(usable.sum())


def _mask(members: Sequence[Sequence[int]], width: int) -> Tensor:
    """Bool (len(members), width), set in each row at its members."""
    mask = torch.zeros(len(members), width, dtype=torch.bool)
    for row, columns in enumerate(members):
        mask[row, columns] = True
    return mask
