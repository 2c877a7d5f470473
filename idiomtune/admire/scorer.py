"""AdMIRe's scorer: a sense classifier chooses which of two experts ranks an item's five images.

Our system and AIMA's as its paper prints it are two settings of it; :class:`ExpertsBenchmark` scores either.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from idiomtune.admire import FILES, CaptionOptions, ExpertsOptions, PrintedOptions, ScorerOptions
from idiomtune.admire.pretrained import Captions, ClipTowers, SenseEncoder
from idiomtune.benchmarks import Embed, Result
from idiomtune.benchmarks.admire import GOLD_SENSE, MAJORITY, add_order, add_scores
from idiomtune.config import Common
from idiomtune.data import astitch
from idiomtune.data.admire import NUM_IMAGES, Item, ItemSplit
from idiomtune.data.astitch import UsageCorpus, read_usages
from idiomtune.data.names import ADMIRE_SENSES, AdmireSplit, AStitchSplit, unseen_astitch
from idiomtune.data.places import admire_split, data_files
from idiomtune.encoder.device import Placement
from idiomtune.encoder.forward import evaluating
from idiomtune.errors import DataMissingError, UserError
from idiomtune.expressions import expression_pattern
from idiomtune.io.files import read_json, write_json
from idiomtune.io.hub import first_line
from idiomtune.requests import Request

log = logging.getLogger(__name__)

Inputs = tuple[Tensor, list[Tensor]]  # sentences (Q, W); captions and images, or one of them, each (Q, 5, W)

_ITEMS_AT_ONCE = 8
_NUM_USAGE_REQUESTS = 3


class RankingNetwork(nn.Module):
    """Scores candidates: each input vector → `hidden` numbers with ReLU, concatenated → one score.

    With one linear layer over the concatenated values, as published, what an item has (its sentence, its
    sense) adds the same to all of its candidates and *cannot* change their order.

    Args:
        widths: of the input vectors: those of the item, then those of a candidate.
        hidden: numbers that each of them becomes.
        hidden_layer: whether there is one over the concatenated values, so that item and candidate interact.
        scaled: vectors are scaled to length sqrt(width) first, so that it does not matter whether a
            checkpoint normalises, and the score has no bias, which would move all candidates alike. As AIMA
            prints it, neither is so.
        cosine: also add the cosine of item and candidate vectors, weighted, times this. All else starts at
            zero: the network begins as plain cosine and learns what to change. None = it is not added.
        start: (item vector, candidate vector) → first weight of their cosine; of those in one space.
    """

    def __init__(
        self,
        widths: Sequence[int],
        hidden: int,
        *,
        hidden_layer: bool = False,
        scaled: bool = True,
        cosine: float | None = None,
        start: Mapping[tuple[int, int], float] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self._scaled, self._cosine, self._pairs = scaled, cosine, list(start)
        self.inputs = nn.ModuleList(nn.Linear(width, hidden) for width in widths)
        concatenated = hidden * len(widths)
        self.middle: nn.Module = nn.Identity()
        if hidden_layer:
            self.middle = nn.Sequential(nn.Linear(concatenated, hidden), nn.ReLU())
            concatenated = hidden
        self.score = nn.Linear(concatenated, 1, bias=not scaled)
        if cosine is not None:
            nn.init.zeros_(self.score.weight)
            self.cosine_weights = nn.Parameter(torch.tensor(list(start.values())))

    def forward(self, item: Sequence[Tensor], candidates: Sequence[Tensor]) -> Tensor:
        """(Q, N) from item vectors (Q, W) and candidate vectors (Q, N, W')."""
        num = candidates[0].shape[1]
        vectors = [*(v[:, None].expand(-1, num, -1) for v in item), *candidates]  # (Q, N, W)
        hidden = [
            functional.relu(layer(functional.normalize(v, dim=2) * v.shape[2] ** 0.5 if self._scaled else v))
            for layer, v in zip(self.inputs, vectors, strict=True)
        ]
        scores: Tensor = self.score(self.middle(torch.cat(hidden, 2)))[:, :, 0]
        if self._cosine is not None:
            for weight, (a, c) in zip(self.cosine_weights, self._pairs, strict=True):
                cosine = functional.cosine_similarity(vectors[a], candidates[c], dim=2)
                scores = scores + self._cosine * weight * cosine
        return scores


class Scores(NamedTuple):
    """What a scorer gives for Q items.

    Attributes:
        sense: logits (Q, 2), idiomatic and literal.
        vectors: sense vectors (Q, D).
        by_expert: (2, Q, 5), the scores that the idiomatic and the literal expert give the images.
    """

    sense: Tensor
    vectors: Tensor
    by_expert: Tensor

    def routed(self, sense: Tensor) -> Tensor:
        """(Q, 5): each item's scores by the expert of its sense, int (Q,), 0 = idiomatic."""
        return self.by_expert[sense, torch.arange(len(sense), device=sense.device)]


class Scorer(nn.Module, ABC):
    """The sense classifier, the idiomatic and the literal expert.

    The run's encoder embeds what tells an item's sense. The idiomatic expert ranks by a sense vector, the
    sentence, the caption and the image; the literal one by the same without the sense vector. The predicted
    sense chooses between them; in training the gold sense does.

    Args:
        options: see :class:`idiomtune.admire.ScorerOptions`.
        width: D, of the encoder's embeddings.
        captions: shorten captions; None if experts see images alone.
        towers: CLIP, which embeds sentences, captions and images: none, one, or one for each expert. Without
            CLIP there are no images, and the encoder embeds sentences and captions.

    References:
        Rasouli et al. 2025, AIMA at SemEval-2025 Task 1.
    """

    scored_by = "admire"
    system: ClassVar[str]  # in experts.json
    section: ClassVar[type[ScorerOptions]]  # those of an objective's options that are saved with it
    num_sense_requests = 1
    idiomatic: RankingNetwork
    literal: RankingNetwork | None  # None = the cosine of the sentence with the last candidate vector

    def __init__(
        self, options: ScorerOptions, width: int, captions: Captions | None, towers: Sequence[ClipTowers]
    ) -> None:
        super().__init__()
        self.options, self.width, self.captions = options, width, captions
        self.towers = list(towers)  # each system names those that it trains
        self.sense_encoder: SenseEncoder | None = None

    @property
    def pretrained(self) -> nn.Module:
        """The trained parts that are pretrained."""
        encoders = [self.sense_encoder.transformer] if self.sense_encoder else []
        return nn.ModuleList([*self.towers, *encoders])

    def sense_text(self, phrase: str, sentence: str) -> str:
        """The text that shows in which sense a compound is used."""
        return f"{phrase} {self.options.separator} {sentence}"

    def sense_requests(self, phrase: str, sentence: str, span: tuple[int, int] | None) -> list[Request]:
        """What the encoder embeds for a compound's sense: `num_sense_requests`."""
        del span
        return [Request(self.sense_text(phrase, sentence))]

    def item_requests(self, item: Item) -> list[Request]:
        """What the encoder embeds for an item: equally many requests for each.

        First those for its sense; without CLIP then its sentence, and the captions.
        """
        requests = self.sense_requests(item.compound, item.sentence, item.span)
        if not self.towers:
            requests.append(Request(item.sentence, role="query"))
            requests += [Request(caption) for caption in self._captions_of([item])]
        return requests

    @abstractmethod
    def sense(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors (N, D) and logits (N, 2) from the embeddings (N, S, D) of S sense requests each."""

    @abstractmethod
    def sense_inputs(self, items: Sequence[Item], vectors: Tensor | None) -> Tensor | None:
        """The sense vectors (Q, W) that the idiomatic expert sees; None if it sees none.

        Args:
            vectors: (Q, D), those of the classifier.
        """

    def forward(self, items: Sequence[Item], embeddings: Tensor) -> Scores:
        """Scores of Q items from embeddings (Q, R, D), row [i, j] for `item_requests(items[i])[j]`."""
        vectors, logits = self.sense(embeddings[:, : self.num_sense_requests])
        rest = embeddings[:, self.num_sense_requests :].to(vectors.device, vectors.dtype)
        inputs = [self.see(towers, items) for towers in self.towers] or [(rest[:, 0], [rest[:, 1:]])]
        ranked = [self.rank(number, items, inputs[number % len(inputs)], vectors) for number in (0, 1)]
        return Scores(logits, vectors, torch.stack(ranked))

    def see(self, towers: ClipTowers, items: Sequence[Item]) -> Inputs:
        """What CLIP's towers make of the items' sentences, captions and images."""
        embedded = towers.texts([*(item.sentence for item in items), *self._captions_of(items)])
        images = towers.images([c.path for item in items for c in item.candidates if c.path is not None])
        candidates = [*([embedded[len(items) :]] if self.captions else []), images]
        shape = (len(items), NUM_IMAGES, towers.width)
        return embedded[: len(items)], [each.view(shape) for each in candidates]

    def rank(
        self, number: int, items: Sequence[Item], inputs: Inputs, vectors: Tensor | None = None
    ) -> Tensor:
        """(Q, 5), the scores that an expert gives the items' images.

        Args:
            number: of the expert, 0 = idiomatic, 1 = literal.
            vectors: as :meth:`sense_inputs` takes them.
        """
        sentences, candidates = inputs
        expert = (self.idiomatic, self.literal)[number]
        if expert is None:
            return functional.cosine_similarity(sentences[:, None], candidates[-1], dim=2)
        sense = self.sense_inputs(items, vectors) if number == 0 else None
        scores: Tensor = expert([sentences] if sense is None else [sense, sentences], candidates)
        return scores

    def _captions_of(self, items: Sequence[Item]) -> list[str]:
        return [self.captions(c.caption) for item in items for c in item.candidates] if self.captions else []

    def prepare(self, items: Sequence[Item]) -> list[Path]:
        """Summarise the items' captions, if that is done; returns the files of the summaries."""
        return self.captions.prepare(c.caption for i in items for c in i.candidates) if self.captions else []

    def benchmark(self, settings: Common) -> ExpertsBenchmark:
        """On the splits of AdMIRe that are scored, and those of AStitch that taught it nothing."""
        scored, has_images = settings.splits("admire"), bool(self.towers)
        names = [name for name in get_args(AdmireSplit) if name in scored]
        splits = [admire_split(settings, name, check_images=has_images) for name in names]
        usages: dict[AStitchSplit, UsageCorpus] = {}
        try:
            files = data_files(settings, astitch.FILES)
            for split in unseen_astitch(self.options.astitch or ()):
                usages[split] = read_usages(files, ["dev" if split == "astitch_dev" else "test"])
        except DataMissingError as error:
            log.warning("the sense classifier is NOT SCORED on AStitchInLanguageModels: %s", error)
            usages = {}
        return ExpertsBenchmark(self, splits, usages)

    def publish(self, folder: Path) -> None:
        """Write `experts/` into a model's folder: weights as safetensors, options as JSON."""
        options_file, weights_file = (folder / name for name in FILES)
        options_file.parent.mkdir(parents=True, exist_ok=True)
        save_file({k: t.detach().cpu().contiguous() for k, t in self.state_dict().items()}, weights_file)
        options = self.options.model_dump(include=set(self.section.model_fields))
        write_json(options_file, {"system": self.system, "width": self.width, "options": options})


class Experts(Scorer):
    """Our experts: small heads that start as plain cosine, with or without CLIP.

    The sense vector of a sentence is a linear map, at first the identity, of the encoder's embedding of
    `phrase [SEP] sentence`; sense logits are a linear map of it, or of `usage` features: the embeddings of
    the compound's span, of the sentence without it, and of the compound alone.
    """

    system = "admire"
    section = ExpertsOptions
    options: ExpertsOptions

    def __init__(self, options: ExpertsOptions, width: int, device: str) -> None:
        cut = CaptionOptions(words=options.caption_words, summariser=None, revision=None)
        towers = [ClipTowers.load(options.clip)] if options.clip.path is not None else []
        super().__init__(options, width, Captions(cut, device) if options.captions else None, towers)
        self.trained_towers = towers[0] if towers else nn.Module()
        self.sense_map = nn.Linear(width, width)
        nn.init.eye_(self.sense_map.weight)
        nn.init.zeros_(self.sense_map.bias)
        self._by_usage = options.sense_features == "usage"
        self.num_sense_requests = 1 + _NUM_USAGE_REQUESTS * self._by_usage
        num_features = _NUM_USAGE_REQUESTS if self._by_usage else 1
        self.sense_head = nn.Linear(num_features * width, len(ADMIRE_SENSES))
        if self._by_usage:  # few steps would not wear off random weights of so many features
            nn.init.zeros_(self.sense_head.weight)
            nn.init.zeros_(self.sense_head.bias)
        self.idiomatic = self._expert(sees_sense=options.sense_encoder)
        self.literal = self._expert(sees_sense=False) if options.literal == "trained" else None

    def _expert(self, *, sees_sense: bool) -> RankingNetwork:
        width = self.towers[0].width if self.towers else self.width
        num = (self.captions is not None) + len(self.towers)  # vectors of a candidate
        start = {(int(sees_sense), c): 1 / num for c in range(num)}
        if sees_sense and not self.towers:  # the encoder embeds the captions too: one space
            start = {(0, c): 0.0 for c in range(num)} | start
        return RankingNetwork(
            [*[self.width] * sees_sense, *[width] * (1 + num)],
            self.options.hidden,
            hidden_layer=self.options.head == "hidden",
            cosine=self.options.cosine,
            start=start,
        )

    def sense_requests(self, phrase: str, sentence: str, span: tuple[int, int] | None) -> list[Request]:
        """`phrase [SEP] sentence`, and with `usage` features the span, the sentence without it, the phrase.

        All occurrences of the phrase are hidden. The whole sentence replaces what is missing: the span if
        the expression was not found, and the rest if the sentence is the expression alone.
        """
        requests = super().sense_requests(phrase, sentence, span)
        if self._by_usage:
            in_sentence = rest = Request(sentence)
            if span is not None:
                in_sentence = Request(sentence, span, pooling="span")
                if span[1] - span[0] < len(sentence):
                    mask = str(self.options.mask)
                    rest = Request(expression_pattern(phrase).sub(lambda _: mask, sentence))
            requests += [in_sentence, rest, Request(phrase)]
        return requests

    def sense(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        weight = self.sense_map.weight
        embeddings = functional.normalize(embeddings.to(weight.device, weight.dtype), dim=2)
        vectors: Tensor = self.sense_map(embeddings[:, 0])
        features = embeddings[:, 1:].flatten(1) if self._by_usage else vectors
        return vectors, self.sense_head(features * self.width**0.5)

    def sense_inputs(self, items: Sequence[Item], vectors: Tensor | None) -> Tensor | None:
        del items
        return vectors if self.options.sense_encoder else None


class PrintedExperts(Scorer):
    """AIMA's system as its paper prints it: nothing is scaled, and parts share no trained weights.

    The run's encoder is the classifier's BERT, of which one logit tells the sense. The idiomatic expert sees
    the vector of a sense encoder of its own, and each expert has a CLIP text tower of its own.
    """

    system = "aima"
    section = PrintedOptions
    options: PrintedOptions

    def __init__(self, options: PrintedOptions, width: int, device: str) -> None:
        captions = Captions(options.captions, device) if options.ablation != "clip_cosine" else None
        towers = ClipTowers.load(options.clip)
        super().__init__(options, width, captions, [towers, towers.twin()])
        self.text_layers = nn.ModuleList(self.towers)
        if options.ablation != "no_sense_encoder":
            self.sense_encoder = SenseEncoder(options.sense_encoder, towers.width)
        self.classifier = nn.Linear(width, 1)
        widths = [towers.width] * (3 if captions else 2)
        with_sense = [towers.width] * (self.sense_encoder is not None)
        self.idiomatic = RankingNetwork([*with_sense, *widths], options.hidden, scaled=False)
        self.literal = RankingNetwork(widths, options.hidden, scaled=False) if captions else None

    def classify(self, embeddings: Tensor) -> Tensor:
        """Logits (N,) of the idiomatic sense from the encoder's embeddings (N, D)."""
        weight = self.classifier.weight
        logits: Tensor = self.classifier(embeddings.to(weight.device, weight.dtype))
        return logits[:, 0]

    def sense(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.classify(embeddings[:, 0])
        return embeddings[:, 0], torch.stack([logits, torch.zeros_like(logits)], 1)

    def sense_inputs(self, items: Sequence[Item], vectors: Tensor | None) -> Tensor | None:
        """Of the sense encoder, with a graph if the ranking loss trains it; it does not see `vectors`."""
        del vectors
        encoder = self.sense_encoder
        if encoder is None:
            return None
        was_training, is_trained = encoder.training, self.options.sense_encoder.stage == "beside"
        encoder.train(was_training and is_trained)
        with torch.set_grad_enabled(torch.is_grad_enabled() and is_trained):
            inputs: Tensor = encoder([self.sense_text(i.compound, i.sentence) for i in items])[0]
        encoder.train(was_training)
        return inputs


def load(folder: Path, placement: Placement) -> Scorer:
    """The scorer that :meth:`Scorer.publish` wrote into a model's folder.

    Raises:
        UserError: if one of its files is missing or damaged, or a model that it names cannot be loaded.
    """
    options_file, weights_file = (folder / name for name in FILES)
    content = read_json(options_file)
    path = options_file
    try:
        saved = _today(content) if "clip" in content else content
        kind: Any = {each.system: each for each in (Experts, PrintedExperts)}[saved["system"]]
        scorer: Scorer = kind(kind.section.model_validate(saved["options"]), saved["width"], placement.device)
        path = weights_file
        scorer.load_state_dict(load_file(weights_file))
    except (AttributeError, KeyError, TypeError, ValueError, OSError, SafetensorError, RuntimeError) as error:
        raise UserError(
            f"{path}: cannot be loaded ({first_line(error)}): the file is damaged, or belongs to another "
            "system than the file next to it: get both again"
        ) from error
    return scorer


def _today(content: dict[str, Any]) -> dict[str, Any]:
    """What earlier versions saved, in the form in which :meth:`Scorer.publish` saves."""
    clip = {"path": None, "trained_layers": 0, "revision": None, **(content["clip"] or {})}
    if content.get("system") == "aima":
        options = {**content["options"], "clip": clip, "captions": content["captions"]}
        sense = content["sense_encoder"] or {"path": "-", "revision": None}  # with `no_sense_encoder`: none
        options["sense_encoder"] = {**sense, "stage": options.pop("sense_stage"), "epochs": 1}
    else:  # the first of them without some options, whose values were these, or unknown
        options = {"sense_features": "sentence", "mask": "[MASK]", "astitch": None, **content, "clip": clip}
    return {"system": content.get("system", "admire"), "width": options.pop("width"), "options": options}


class ExpertsBenchmark:
    """Ranks items' images by the expert of the predicted sense, and scores the prediction of senses.

    `experts_text` or `experts_image` is the whole system. With the suffix `_gold_sense`, items go to their
    expert by the gold sense: the slice `/idiomatic` is the idiomatic expert alone, `/literal` the literal
    one. `majority` is the sense accuracy of always predicting the split's most frequent sense.

    It holds the module that is trained, so it always scores the experts as they are.

    Args:
        scorer: put into evaluation mode while it scores, then back.
        splits: of items, as :class:`idiomtune.benchmarks.admire.AdmireBenchmark` takes them.
        usages: sentences of AStitchInLanguageModels whose sense is predicted, by split.

    References:
        Rasouli et al. 2025, AIMA at SemEval-2025 Task 1: tables 1 and 2.
    """

    name = "admire"
    takes_whole_embeddings = True  # the experts are of their width

    def __init__(
        self, scorer: Scorer, splits: Sequence[ItemSplit], usages: Mapping[AStitchSplit, UsageCorpus]
    ) -> None:
        self.scorer, self.splits, self.usages = scorer, splits, usages
        self.files = [path for split in splits for path in split.files]
        self.files += [path for corpus in usages.values() for path in corpus.files]
        self.files += scorer.prepare([item for split in splits for item in split.items])
        self.without_gold = [split.name for split in splits if not split.has_gold]

    @property
    def announced(self) -> list[Request]:
        """What the scorer reads of items, and of sentences."""
        items = [r for split in self.splits for item in split.items for r in self.scorer.item_requests(item)]
        return items + [r for corpus in self.usages.values() for r in self._of_usages(corpus)]

    def _of_usages(self, corpus: UsageCorpus) -> list[Request]:
        requests = self.scorer.sense_requests
        return [r for usage in corpus.usages for r in requests(usage.phrase, usage.sentence, usage.span)]

    def score(self, embed: Embed) -> Result:
        """The scores of all splits, and predictions for them."""
        result = Result()
        if self.usages and self.scorer.options.astitch is None:
            result.notes.append(
                f"{', '.join(self.usages)}: an earlier version saved these experts without the names of "
                "AStitch's files that taught them, which may hold compounds that are scored here."
            )
        with evaluating(self.scorer), torch.no_grad():
            for split in self.splits:
                self._score_items(embed, split, result)
            for name, corpus in self.usages.items():
                width = self.scorer.num_sense_requests
                rows = embed(self._of_usages(corpus)).view(len(corpus.usages), width, -1)
                predicted = self.scorer.sense(rows)[1].argmax(1).tolist()
                ids = [(f"astitch_{usage.id}", usage.phrase) for usage in corpus.usages]
                gold = [int(not usage.is_idiomatic) for usage in corpus.usages]
                result.per_query.extend(_senses(name, self.scorer.options.mode, ids, predicted, gold))
                result.per_query.extend(_senses(name, MAJORITY, ids, None, gold))
        add_scores(result)
        return result

    def _score_items(self, embed: Embed, split: ItemSplit, result: Result) -> None:
        items, mode = split.items, self.scorer.options.mode
        requests = [request for item in items for request in self.scorer.item_requests(item)]
        rows = embed(requests).view(len(items), len(requests) // len(items), -1)  # (Q, R, D)
        starts = range(0, len(items), _ITEMS_AT_ONCE)
        parts = [self.scorer(items[i : i + _ITEMS_AT_ONCE], rows[i : i + _ITEMS_AT_ONCE]) for i in starts]
        sense, vectors, by_expert = zip(*parts, strict=True)
        scores = Scores(torch.cat(sense), torch.cat(vectors), torch.cat(by_expert, 1))
        predicted = scores.sense.argmax(1)
        records = add_order(split, mode, scores.routed(predicted).double().cpu(), result)
        for record, number in zip(records, predicted.tolist(), strict=True):
            record["predicted_sense"] = ADMIRE_SENSES[number]
        if all(item.sense is not None for item in items):
            gold = [int(item.sense == "literal") for item in items]
            by_gold = scores.routed(torch.tensor(gold, device=predicted.device)).double().cpu()
            add_order(split, f"{mode}_{GOLD_SENSE}", by_gold, result)
            ids = [(item.id, item.compound) for item in items]
            result.per_query.extend(_senses(split.name, MAJORITY, ids, None, gold))


def _senses(
    split: str,
    mode: str,
    ids: Iterable[tuple[str, str]],
    predicted: Sequence[int] | None,
    gold: Sequence[int],
) -> list[dict[str, Any]]:
    """Records of ids and compounds with their senses, 0 = idiomatic; None predicts the most frequent one."""
    if predicted is None:
        predicted = [int(torch.tensor(gold).mode().values)] * len(gold)
    return [
        {
            "split": split,
            "mode": mode,
            "id": id_,
            "compound": compound,
            "sense": ADMIRE_SENSES[is_literal],
            "predicted_sense": ADMIRE_SENSES[given],
        }
        for (id_, compound), given, is_literal in zip(ids, predicted, gold, strict=True)
    ]
