"""What trains AdMIRe's two scorers: their data, their steps and their losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, count, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from idiomloss import (
    ListwiseSoftmaxLoss,
    PairwiseHingeLoss,
    PairwisePrintedLoss,
    Top1HingeLoss,
    Top1PrintedLoss,
    cosine_similarity,
)
from idiomtune.admire import AdmireOptions, AimaOptions, RankLoss, TrainedScorer
from idiomtune.admire.scorer import Experts, PrintedExperts, Scorer
from idiomtune.config import TrainSettings
from idiomtune.data import astitch
from idiomtune.data.admire import Item
from idiomtune.data.astitch import Usage, read_senses, read_usages
from idiomtune.data.places import admire_split, data_files
from idiomtune.encoder.building import empty_encoder
from idiomtune.encoder.device import place
from idiomtune.errors import UserError
from idiomtune.expressions import plain_expression
from idiomtune.objectives import Batch, Mean, ObjectiveLoss
from idiomtune.objectives.steps import in_shards, shuffled_steps
from idiomtune.requests import Request


def ranking_loss(loss: RankLoss) -> nn.Module:
    """The loss of an item's scores that the option `rank` selects."""
    losses: dict[str, nn.Module] = {
        "pairwise": PairwiseHingeLoss(loss.margin),
        "listwise": ListwiseSoftmaxLoss(loss.gold_temperature),
        "top1": Top1HingeLoss(loss.margin, bounded=loss.bounded),
        "pairwise_printed": PairwisePrintedLoss(loss.margin),
        "top1_printed": Top1PrintedLoss(loss.margin, loss.sum_weight),
    }
    return losses[loss.rank]


class ScorerObjective:
    """What both objectives have in common: a scorer that is trained with the encoder, and its data.

    It learns from items, and from sentences of AStitch (*usages*), for AIMA also repeated ones, as printed.
    Of a fold, the compounds that are held out are in neither, nor are their meanings.

    Args:
        settings: of the run.
        options: of the objective, and of its scorer.
        kind: the scorer.

    Raises:
        UserError: if the data is wrong, an item has no sense or no gold order, no sentence is left, or a
            model cannot be loaded.
    """

    plain_requests: Sequence[Request] = ()

    def __init__(
        self, settings: TrainSettings, options: TrainedScorer, kind: Callable[[Any, int, str], Scorer]
    ) -> None:
        is_fold = options.fold_split is not None
        items = admire_split(
            settings, options.split, training=True, check_images=options.clip.path is not None
        )
        without = [item.id for item in items.items if item.sense is None or item.gold_ranks is None]
        if without or not items.items:
            raise UserError(f"AdMIRe: items without sense or gold order: {', '.join(without) or 'all'}")
        files = data_files(settings, astitch.FILES)
        corpus = read_usages(files, options.astitch, keep_repeated=options.name == "aima")
        scored = admire_split(settings, options.split).items if is_fold else ()
        held_out = {plain_expression(item.compound) for item in scored}
        self._items = list(items.items)
        self._of_items = [
            Usage(item.id, item.compound, item.sentence, item.span, item.sense == "idiomatic")
            for item in self._items
        ]
        self._usages = [each for each in corpus.usages if plain_expression(each.phrase) not in held_out]
        if not self._usages:
            raise UserError("objective.astitch: no sentence is left to learn senses from")
        self._by_compound = {
            compound: (meanings.non_literal, (meanings.literal,))
            for compound, meanings in read_senses(files(astitch.SENSES_FILE)).items()
            if compound not in held_out and meanings.non_literal
        }

        width = empty_encoder(settings.model).dimension
        torch.manual_seed(settings.seed)  # of the scorer's first weights
        scorer = kind(options, width, place(settings.device, settings.precision).device)
        self.modules: nn.Module = scorer
        self.batch_size, self.seed = settings.trainer.batch_size, settings.seed
        self.files = [*items.files, *corpus.files, files(astitch.SENSES_FILE), *scorer.prepare(self._items)]
        self.special_tokens = {name: getattr(options, name) for name in options.special_tokens}
        sentences = [*self._of_items, *self._usages]
        self.idiom_sentences = [(each.phrase, each.sentence) for each in sentences]
        self._rank_loss = ranking_loss(options.loss)
        compounds = {plain_expression(each.phrase) for each in sentences}
        num_without = sum(not any(self._meanings(each.phrase)) for each in sentences)
        self._notes = [
            f"{len(self._items)} items",
            f"{len(sentences)} sentences ({len(self._usages)} of AStitch) of {len(compounds)} compounds for "
            f"the sense, {num_without} of them without meanings of both senses",
            scorer.captions.note if scorer.captions else "no captions",
        ]
        if is_fold:
            self._notes.append(
                f"held out: {len(held_out)} compounds of fold {settings.data.fold} of {settings.data.folds}, "
                f"and {len(corpus.usages) - len(self._usages)} sentences of AStitch with them"
            )

    def describe(self) -> str:
        """One line for the log."""
        return "; ".join(self._notes)

    def _meanings(self, phrase: str) -> tuple[Sequence[str], Sequence[str]]:
        """What a compound means as an idiom and literally; nothing unless both are known."""
        return self._by_compound.get(plain_expression(phrase), ((), ()))


class _Targets(NamedTuple):
    """What a batch is compared with. Its requests are those of Q items, of U usages, and M meanings.

    Attributes:
        senses: int (Q + U,), 0 = idiomatic, of items, then usages.
        correct, wrong: bool (Q + U, M), which meanings are the right ones, and which the others of the
            compound; both all false where it has none.
    """

    items: Sequence[Item]
    senses: Tensor
    correct: Tensor
    wrong: Tensor


class AdmireObjective(ScorerObjective):
    """Trains our experts and the encoder on AdMIRe's items and, for the sense, AStitch's sentences.

        L = a · rank(scores of the expert of the gold sense) + b · cross-entropy(sense)
            + c · meaning,   meaning = -log( sum over the sense's meanings of e^{cos/t}
                                            / sum over all the compound's meanings of e^{cos/t} )

    The rank term is the mean over items, the sense term over items and usages. The meaning term compares the
    sense vector with the encoder's embeddings of the compound's meanings; it is the mean over those items and
    usages whose compound has meanings of both senses. An anchor is an item; with each come some usages, which
    take turns over the epochs.
    """

    modules: Experts

    def __init__(self, settings: TrainSettings, options: AdmireOptions) -> None:
        super().__init__(settings, options, Experts)
        self._loss = options.loss
        self._usages_per_item = min(options.usages_per_item, len(self._usages))
        self._first_caption = self.modules.num_sense_requests + 1  # among an item's requests
        self.plain_requests = [
            r for item in self._items for r in self.modules.item_requests(item)[self._first_caption :]
        ]

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps: all items in an order drawn from seed and epoch, then cut."""
        rng = np.random.default_rng([self.seed, epoch, 0])
        return in_shards(shuffled_steps(range(len(self._items)), self.batch_size, rng), shards)

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:
        """Requests of these items, of their usages, and of the meanings of all their compounds."""
        items = [self._items[i] for i in anchors]
        usages = [usage for i in anchors for usage in self._usages_with(epoch, i)]
        requests = [request for item in items for request in self.modules.item_requests(item)]
        width = len(requests) // len(items)
        captions = [i * width + j for i in range(len(items)) for j in range(self._first_caption, width)]
        requests += [r for u in usages for r in self.modules.sense_requests(u.phrase, u.sentence, u.span)]
        sentences = [*(self._of_items[i] for i in anchors), *usages]
        senses = torch.tensor([int(not each.is_idiomatic) for each in sentences])
        known = [self._meanings(each.phrase) for each in sentences]
        texts = list(dict.fromkeys(text for both in known for one in both for text in one))
        meant = torch.tensor([[[text in one for text in texts] for one in both] for both in known]).bool()
        rows = torch.arange(len(sentences))
        targets = _Targets(items, senses, meant[rows, senses], meant[rows, 1 - senses])
        requests += [Request(text) for text in texts]
        return Batch(requests, [item.id for item in items], targets, plain_rows=captions)

    def _usages_with(self, epoch: int, item: int) -> list[Usage]:
        """The usages that come with an item in this epoch; each is used once before any comes again."""
        total, number = len(self._usages), self._usages_per_item
        start = (epoch * len(self._items) + item) * number
        rounds = range(start // total, (start + number - 1) // total + 1)
        orders = [np.random.default_rng([self.seed, round_, 3]).permutation(total) for round_ in rounds]
        chosen = np.concatenate(orders)[start % total :][:number]
        return [self._usages[i] for i in chosen.tolist()]

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The weighted sum of the three terms."""
        targets: _Targets = batch.targets
        scorer, device, width = self.modules, embeddings.device, self.modules.num_sense_requests
        num_items, num_meanings = len(targets.items), targets.correct.shape[1]
        num_usages = len(targets.senses) - num_items
        rest = width * num_usages + num_meanings
        sizes = [len(embeddings) - rest, width * num_usages, num_meanings]
        of_items, of_usages, meanings = torch.split(embeddings.float(), sizes)
        scores = scorer(targets.items, of_items.view(num_items, -1, of_items.shape[1]))  # (Q, R, D)
        vectors, logits = scorer.sense(of_usages.view(num_usages, width, -1))
        vectors, logits = torch.cat([scores.vectors, vectors]), torch.cat([scores.sense, logits])
        senses = targets.senses.to(device)

        ranks = torch.tensor([item.gold_ranks for item in targets.items], device=device)
        rank = self._rank_loss(scores.routed(senses[:num_items]), ranks)
        sense = functional.cross_entropy(logits, senses)
        meaning, num_with = meaning_loss(
            vectors, meanings, targets.correct.to(device), targets.wrong.to(device), self._loss.temperature
        )
        terms = self._loss.rank_weight * rank + self._loss.sense_weight * sense
        total = terms + self._loss.meaning_weight * meaning
        accuracy = (logits.argmax(1) == senses).float().mean().item()
        means = {
            "rank_loss": Mean(rank.item(), num_items),
            "sense_loss": Mean(sense.item(), len(senses)),
            "meaning_loss": Mean(meaning.item(), num_with),
            "sense_accuracy": Mean(accuracy, len(senses)),
        }
        return ObjectiveLoss(total, {"with_meanings": float(num_with)}, means)


class AimaObjective(ScorerObjective):
    """Trains the classifier, the sense encoder and both experts, each on its own data.

    *Sense steps* read sentences (AStitch's and the items'):

        L = bce(classifier) + bce(sense encoder) + contrast,
        contrast = mean of 1 - cos(v, right) + max(0, cos(v, wrong))

    with v the sense vector, and CLIP's text embeddings of what the compound means there (its first such
    meaning) and of its other meaning; over sentences whose compound has both. *Ranking steps* read items; the
    expert of the gold sense scores the images. The two kinds share no trained weights, unless the sense
    encoder is trained `beside` the experts.

    An epoch has as many steps as one pass over the sentences and one over the items. With `first`, all
    `sense_encoder.epochs` passes over the sentences come before the first item; with `beside`, the ranking
    steps of an epoch are spread evenly among its sense steps. Anchors are the sentences, then the items.
    """

    modules: PrintedExperts
    repeats_anchors = True

    def __init__(self, settings: TrainSettings, options: AimaOptions) -> None:
        super().__init__(settings, options, PrintedExperts)
        sense = self._sense = options.sense_encoder
        self._notes.append(
            f"the senses are learnt first, {sense.epochs} epochs"
            if sense.stage == "first"
            else "senses and orders are learnt side by side"
        )
        self._sentences = [*self._usages, *self._of_items]
        if self.modules.literal is None:  # without parameters it learns nothing from its items
            self._items = [item for item in self._items if item.sense == "idiomatic"]
            if not self._items:
                raise UserError("objective.ablation=clip_cosine: no idiomatic item is left to learn from")

    def epoch_steps(self, epoch: int, shards: int) -> list[list[list[int]]]:
        """The epoch's steps, a function of seed and epoch."""
        if self._sense.stage == "beside":
            spread = [
                ((i + 1) / len(part), step)
                for part in (self._pass(epoch, 0), self._pass(epoch, 1))
                for i, step in enumerate(part)
            ]
            return in_shards([step for _, step in sorted(spread, key=lambda placed: placed[0])], shards)
        passes = chain(
            (self._pass(number, 0) for number in range(self._sense.epochs)),
            (self._pass(number, 1) for number in count()),
        )
        length = len(self._pass(0, 0)) + len(self._pass(0, 1))
        steps = islice(chain.from_iterable(passes), epoch * length, (epoch + 1) * length)
        return in_shards(list(steps), shards)

    def _pass(self, number: int, kind: int) -> list[list[int]]:
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
        requests = [r for u in sentences for r in self.modules.sense_requests(u.phrase, u.sentence, u.span)]
        return Batch(requests, [each.id for each in sentences], sentences)

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The ranking loss, or the sum of the senses' losses."""
        if batch.requests:
            return self._sense_loss(embeddings, batch.targets)
        items: Sequence[Item] = batch.targets
        by_expert = [[i for i in items if i.sense == sense] for sense in ("idiomatic", "literal")]
        scorer = self.modules
        scores = torch.cat(  # (Q, 5)
            [scorer.rank(n, own, scorer.see(scorer.towers[n], own)) for n, own in enumerate(by_expert) if own]
        )
        gold = [item.gold_ranks for own in by_expert for item in own]
        loss = self._rank_loss(scores, torch.tensor(gold, device=scores.device))
        return ObjectiveLoss(loss, means={"rank_loss": Mean(loss.item(), len(items))}, part="rank")

    def _sense_loss(self, embeddings: Tensor, sentences: Sequence[Usage]) -> ObjectiveLoss:
        scorer, num = self.modules, len(sentences)
        logits = scorer.classify(embeddings.float())
        senses = torch.tensor([float(each.is_idiomatic) for each in sentences], device=logits.device)
        loss = functional.binary_cross_entropy_with_logits(logits, senses)
        accuracy = ((logits > 0) == (senses > 0)).float().mean().item()
        means = {"classifier_loss": Mean(loss.item(), num), "sense_accuracy": Mean(accuracy, num)}
        if scorer.sense_encoder is not None:
            texts = [scorer.sense_text(each.phrase, each.sentence) for each in sentences]
            vectors, logits = scorer.sense_encoder(texts)
            encoder = functional.binary_cross_entropy_with_logits(logits, senses)
            contrast = vectors.sum() * 0.0
            both = {row: self._meanings(each.phrase) for row, each in enumerate(sentences)}
            meanings = {
                row: each if sentences[row].is_idiomatic else each[::-1]
                for row, each in both.items()
                if any(each)
            }
            if meanings:
                with torch.no_grad():  # sense vectors do not draw the meanings
                    right, wrong = (
                        scorer.towers[0].texts([one[0] for one in side])
                        for side in zip(*meanings.values(), strict=True)
                    )
                contrast = contrast_loss(vectors[list(meanings)], right, wrong)
            loss = loss + encoder + contrast
            means["encoder_loss"] = Mean(encoder.item(), num)
            means["contrast_loss"] = Mean(contrast.item(), len(meanings))
        return ObjectiveLoss(loss, means=means, part="sense")


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


def contrast_loss(vectors: Tensor, right: Tensor, wrong: Tensor) -> Tensor:
    """Mean of 1 - cos(vector, right) + max(0, cos(vector, wrong)), of three (N, W)."""
    near = functional.cosine_similarity(vectors, right)
    far = functional.cosine_similarity(vectors, wrong)
    return (1 - near + far.clamp(min=0)).mean()
