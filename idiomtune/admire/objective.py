"""The objectives of AdMIRe's scorer, ours and AIMA's as printed: data, steps and losses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count, islice
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import idiomloss
from idiomtune.admire import AdmireOptions
from idiomtune.admire.scorer import Scorer, new_scorer, route, usage_of
from idiomtune.data import astitch
from idiomtune.data.admire import Item
from idiomtune.data.astitch import read_senses, read_usages
from idiomtune.data.locations import admire_split, data_files
from idiomtune.data.names import ADMIRE_SENSES
from idiomtune.encoder.device import choose_device
from idiomtune.errors import UserError
from idiomtune.expressions import plain_expression
from idiomtune.glossaries.build import empty_encoder
from idiomtune.objectives import Batch, Mean, ObjectiveLoss
from idiomtune.objectives.base import BaseObjective
from idiomtune.objectives.batching import shuffled_steps, split_micro_steps
from idiomtune.plugins.inputs import RunInputs
from idiomtune.requests import EmbeddingRequest, LabelledUse


class AdmireObjective(BaseObjective):
    """Trains the scorer and the encoder on AdMIRe's items and, for the sense, AStitch's sentences (*usages*).

    Of a fold, the compounds that are held out are in neither, nor are their meanings.

        L = a · rank(scores of the expert of the gold sense) + b · cross-entropy(sense)
            + c · meaning,   meaning = -log( sum over the sense's meanings of e^{cos/t}
                                            / sum over all the compound's meanings of e^{cos/t} )

    The rank term is the mean over items, the sense term over items and usages. The meaning term compares the
    sense vector with the encoder's embeddings of the compound's meanings; it is the mean over those items and
    usages whose compound has meanings of both senses. An anchor is an item; with each come some usages, which
    take turns over the epochs.

    Raises:
        UserError: if the data is wrong, an item has no sense or no gold order, no sentence is left, or a
            model cannot be loaded.

    >>> from idiomtune.testing import check_objective
    >>> assert "loss" in check_objective("admire_experts", skip=["gradient"])
    """

    head: Scorer

    def __init__(self, inputs: RunInputs, options: AdmireOptions) -> None:
        self._options, is_fold = options, options.fold_split is not None
        items = admire_split(inputs, options.split, training=True, check_images=options.clip.path is not None)
        without = [item.id for item in items.items if item.sense is None or item.gold_ranks is None]
        if without or not items.items:
            raise UserError(f"AdMIRe: items without sense or gold order: {', '.join(without) or 'all'}")
        files = data_files(inputs, astitch.FILES)
        corpus = read_usages(files, options.astitch, keep_repeated=self.repeats_anchors)
        scored = admire_split(inputs, options.split).items if is_fold else ()
        held_out = {plain_expression(item.compound) for item in scored}
        self._items = list(items.items)
        self._usages = [usage for usage in corpus.usages if plain_expression(usage.phrase) not in held_out]
        if not self._usages:
            raise UserError("objective.astitch: no sentence is left to learn senses from")
        self._by_compound = {
            compound: (meanings.non_literal, (meanings.literal,))
            for compound, meanings in read_senses(files(astitch.SENSES_FILE)).items()
            if compound not in held_out and meanings.non_literal
        }

        width = empty_encoder(inputs.model).dimension
        torch.manual_seed(inputs.seed)  # of the scorer's first weights
        scorer = new_scorer(options, width, choose_device(inputs.device, inputs.precision).device)
        read = [*items.files, *corpus.files, files(astitch.SENSES_FILE), *scorer.prepare(self._items)]
        self.special_tokens = {name: getattr(options, name) for name in options.special_tokens}
        loss = options.loss
        self._rank_loss = {
            "pairwise": idiomloss.PairwiseHingeLoss(loss.margin),
            "listwise": idiomloss.ListwiseSoftmaxLoss(loss.gold_temperature),
            "top1": idiomloss.Top1HingeLoss(loss.margin, bounded=loss.bounded),
            "pairwise_printed": idiomloss.PairwisePrintedLoss(loss.margin),
            "top1_printed": idiomloss.Top1PrintedLoss(loss.margin, loss.sum_weight),
        }[loss.rank]
        captions = [] if scorer.towers else scorer.captions_of(self._items)
        of_items = [usage_of(item) for item in self._items]
        self._sentences = [*self._usages, *of_items]
        super().__init__(
            len(self._items),
            batch_size=inputs.batch_size,
            seed=inputs.seed,
            files=read,
            plain_requests=[EmbeddingRequest(caption) for caption in captions],
            idiom_sentences=[(usage.phrase, usage.sentence) for usage in (*of_items, *self._usages)],
        )
        self.head = scorer
        self._plain = set(self.plain_requests)
        compounds = {plain_expression(phrase) for phrase, _ in self.idiom_sentences}
        num_without = sum(not any(self._meanings(usage)) for usage in self._sentences)
        self._notes = [
            f"{len(self._items)} items",
            f"{len(self._sentences)} sentences ({len(self._usages)} of AStitch) of {len(compounds)} compounds"
            f" for the sense, {num_without} of them without meanings of both senses",
        ]
        if is_fold:
            self._notes.append(
                f"held out: {len(held_out)} compounds of fold {inputs.data.fold} of {inputs.data.folds}, "
                f"and {len(corpus.usages) - len(self._usages)} sentences of AStitch with them"
            )

    def describe(self) -> str:
        """One line for the log."""
        return "; ".join(self._notes)

    def _meanings(self, usage: LabelledUse) -> tuple[Sequence[str], Sequence[str]]:
        """A compound's meanings in a sentence and in its other sense; empty unless both are known."""
        idiomatic, literal = self._by_compound.get(plain_expression(usage.phrase), ((), ()))
        return (idiomatic, literal) if usage.is_idiomatic else (literal, idiomatic)

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:
        """Requests of these items, of their usages, and of the meanings of all their compounds."""
        scorer = self.head
        items = [self._items[anchor] for anchor in anchors]
        usages = [usage for anchor in anchors for usage in self._usages_with(epoch, anchor)]
        sentences = [*map(usage_of, items), *usages]
        of_usages = (self._by_compound.get(plain_expression(usage.phrase), ()) for usage in sentences)
        meanings = list(dict.fromkeys(text for sides in of_usages for texts in sides for text in texts))
        requests = [request for item in items for request in scorer.item_requests(item)]
        captions = [row for row, request in enumerate(requests) if request in self._plain]
        requests += [request for usage in usages for request in scorer.sense_requests(usage)]
        requests += map(EmbeddingRequest, meanings)
        ids = [item.id for item in items]
        return Batch(requests, ids, (items, sentences, meanings), plain_rows=captions)

    def _usages_with(self, epoch: int, item: int) -> list[LabelledUse]:
        """The usages drawn with an item in this epoch; each is used once before any repeats."""
        total = len(self._usages)
        number = min(self._options.usages_per_item, total)
        start = (epoch * len(self._items) + item) * number
        rounds = range(start // total, (start + number - 1) // total + 1)
        orders = [np.random.default_rng([self.seed, round_, 3]).permutation(total) for round_ in rounds]
        chosen = np.concatenate(orders)[start % total :][:number]
        return [self._usages[i] for i in chosen.tolist()]

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The weighted sum of the terms."""
        items, sentences, texts = batch.targets
        embeddings = embeddings.float()
        scorer, weights, num = self.head, self._options.loss, len(items)
        num_of_usages = scorer.num_sense_requests * (len(sentences) - num)
        sizes = [len(embeddings) - num_of_usages - len(texts), num_of_usages, len(texts)]
        of_items, of_usages, meanings = torch.split(embeddings, sizes)
        item_vectors, item_logits, by_expert = scorer(items, of_items.view(num, -1, of_items.shape[1]))
        vectors, logits = scorer.sense(of_usages.view(len(sentences) - num, -1, of_usages.shape[1]))
        vectors, logits = torch.cat([item_vectors, vectors]), torch.cat([item_logits, logits])
        senses = torch.tensor([int(not usage.is_idiomatic) for usage in sentences], device=logits.device)
        rank = self._rank_loss(route(by_expert, senses[:num]), _gold_ranks(items, logits.device))
        sense = functional.cross_entropy(logits, senses)
        of_sentences = [self._meanings(usage) for usage in sentences]
        is_in = [[[text in side for text in texts] for side in sides] for sides in of_sentences]
        correct, wrong = torch.tensor(is_in, device=logits.device).bool().unbind(1)  # (N, M)
        meaning, num_with = meaning_loss(vectors, meanings, correct, wrong, weights.temperature)
        total = weights.rank_weight * rank + weights.sense_weight * sense + weights.meaning_weight * meaning
        means = {
            "rank_loss": Mean(rank.item(), num),
            "sense_loss": Mean(sense.item(), len(senses)),
            "meaning_loss": Mean(meaning.item(), num_with),
            "sense_accuracy": Mean((logits.argmax(1) == senses).float().mean().item(), len(senses)),
        }
        return ObjectiveLoss(total, {"with_meanings": float(num_with)}, means)


class PublishedObjective(AdmireObjective):
    """AIMA's, as printed: classifier, sense encoder and experts learn each from its own data.

    *Sense steps* read sentences (AStitch's, also repeated ones, and the items'), *ranking steps* items; the
    two kinds share no trained weights, unless the sense encoder is trained `beside` the experts:

        L = b · (cross-entropy(classifier) + cross-entropy(sense encoder)) + c · contrast,
            contrast = mean of 1 - cos(v, right) + max(0, cos(v, wrong))
        L = a · rank(scores of the expert of the gold sense)

    with v the sense encoder's vector, and CLIP's text embeddings of what the compound means there (its first
    such meaning) and of its other meaning; over sentences whose compound has both. An epoch has as many steps
    as one pass over the sentences and one over the items. With `first`, all `sense_encoder.epochs` passes
    over the sentences come before the first item; with `beside`, the ranking steps of an epoch are spread
    evenly among its sense steps. Anchors are the sentences, then the items.

    >>> assert PublishedObjective.repeats_anchors  # an epoch's steps may be of two passes
    """

    repeats_anchors = True

    def __init__(self, inputs: RunInputs, options: AdmireOptions) -> None:
        super().__init__(inputs, options)
        if self.head.literal is None:  # without parameters it learns nothing from its items
            self._items = [item for item in self._items if item.sense == "idiomatic"]
            if not self._items:
                raise UserError("objective.ablation=clip_cosine: no idiomatic item is left to learn from")
        num = len(self._sentences)
        self._anchors = range(num), range(num, num + len(self._items))  # sentences, items

    def epoch_steps(self, epoch: int, num_parts: int) -> list[list[list[int]]]:
        def one_pass(kind: int, number: int) -> list[list[int]]:
            """The steps of one pass over the anchors of a kind."""
            rng = np.random.default_rng([self.seed, number, kind])
            return shuffled_steps(self._anchors[kind], self.batch_size, rng)

        passes = [one_pass(kind, epoch) for kind in (0, 1)]
        if self._options.sense_encoder.stage == "first":
            in_order = chain(
                (one_pass(0, number) for number in range(self._options.sense_encoder.epochs)),
                (one_pass(1, number) for number in count()),
            )
            length = sum(map(len, passes))
            steps = list(islice(chain.from_iterable(in_order), epoch * length, (epoch + 1) * length))
        else:
            spread = [((i + 1) / len(part), step) for part in passes for i, step in enumerate(part)]
            steps = [step for _, step in sorted(spread, key=itemgetter(0))]
        return split_micro_steps(steps, num_parts)

    def batch(self, epoch: int, anchors: Sequence[int]) -> Batch:  # noqa: ARG002  nothing is drawn
        """The sentences' requests for the classifier; or items, for which nothing is embedded."""
        first = self._anchors[1].start
        items = [self._items[anchor - first] for anchor in anchors if anchor >= first]
        sentences = [self._sentences[anchor] for anchor in anchors if anchor < first]
        requests = [request for usage in sentences for request in self.head.sense_requests(usage)]
        return Batch(requests, [part.id for part in (items or sentences)], (items, sentences))

    def loss(self, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The weighted sum of the terms of the step's kind."""
        items, sentences = batch.targets
        return self._sense_loss(embeddings.float(), sentences) if sentences else self._order_loss(items)

    def _order_loss(self, items: Sequence[Item]) -> ObjectiveLoss:
        scorer, scores, gold = self.head, [], []
        for number, sense in enumerate(ADMIRE_SENSES):
            if own := [item for item in items if item.sense == sense]:
                scores.append(scorer.rank(number, own, scorer.see(scorer.towers[number], own)))
                gold += own
        loss = self._rank_loss(torch.cat(scores), _gold_ranks(gold, scores[0].device))
        means = {"rank_loss": Mean(loss.item(), len(items))}
        return ObjectiveLoss(self._options.loss.rank_weight * loss, means=means, part="rank")

    def _sense_loss(self, embeddings: Tensor, sentences: Sequence[LabelledUse]) -> ObjectiveLoss:
        scorer, weights, num = self.head, self._options.loss, len(sentences)
        logits = scorer.sense(embeddings.view(num, -1, embeddings.shape[1]))[1][:, 0]
        senses = torch.tensor([float(usage.is_idiomatic) for usage in sentences], device=logits.device)
        sense = functional.binary_cross_entropy_with_logits(logits, senses)
        accuracy = ((logits > 0) == (senses > 0)).float().mean().item()
        means = {"classifier_loss": Mean(sense.item(), num), "sense_accuracy": Mean(accuracy, num)}
        contrast = logits.sum() * 0.0
        if scorer.sense_encoder is not None:
            vectors, logits = scorer.sense_encoder([scorer.sense_text(usage) for usage in sentences])
            encoder = functional.binary_cross_entropy_with_logits(logits, senses)
            meanings = {row: self._meanings(usage) for row, usage in enumerate(sentences)}
            pairs = {row: (right[0], wrong[0]) for row, (right, wrong) in meanings.items() if right}
            if pairs:
                with torch.no_grad():  # sense vectors do not draw the meanings
                    right, wrong = map(scorer.towers[0].texts, zip(*pairs.values(), strict=True))
                contrast = contrast_loss(vectors[list(pairs)], right, wrong)
            sense = sense + encoder
            means["encoder_loss"] = Mean(encoder.item(), num)
            means["contrast_loss"] = Mean(contrast.item(), len(pairs))
        total = weights.sense_weight * sense + weights.meaning_weight * contrast
        return ObjectiveLoss(total, means=means, part="sense")


def build(inputs: RunInputs, options: AdmireOptions) -> AdmireObjective:
    """The objective of these options: ours, or AIMA's as printed."""
    return (PublishedObjective if options.as_published else AdmireObjective)(inputs, options)


def _gold_ranks(items: Sequence[Item], device: torch.device) -> Tensor:
    return torch.tensor([item.gold_ranks for item in items], device=device)


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
    cosine = idiomloss.cosine_similarity(vectors[usable], meanings) / temperature  # (usable, M)
    lowest = torch.finfo(cosine.dtype).min  # in place of meanings that do not count
    log_correct = cosine.masked_fill(~correct[usable], lowest).logsumexp(1)
    log_any = cosine.masked_fill(~(correct | wrong)[usable], lowest).logsumexp(1)
    return (log_any - log_correct).mean(), int(usable.sum())


def contrast_loss(vectors: Tensor, right: Tensor, wrong: Tensor) -> Tensor:
    """Mean of 1 - cos(vector, right) + max(0, cos(vector, wrong)), of three (N, W)."""
    near = functional.cosine_similarity(vectors, right)
    far = functional.cosine_similarity(vectors, wrong)
    return (1 - near + far.clamp(min=0)).mean()
