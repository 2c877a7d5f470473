"""AdMIRe's scorer: a sense classifier chooses which of two experts ranks an item's five images.

:class:`ExpertsBenchmark` scores it, whether it is ours or AIMA's as printed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from idiomtune.admire import FILES, AdmireOptions
from idiomtune.admire.pretrained import ClipTowers, SenseEncoder, summarise
from idiomtune.benchmarks import Embed, Result
from idiomtune.benchmarks.admire import GOLD_SENSE, MAJORITY, AdmireBenchmark, add_order
from idiomtune.data import astitch
from idiomtune.data.admire import NUM_IMAGES, Item, ItemSplit
from idiomtune.data.astitch import UsageCorpus, read_usages
from idiomtune.data.locations import admire_split, data_files
from idiomtune.data.names import ADMIRE_SENSES, AdmireSplit, AStitchFile, AStitchSplit, unseen_astitch
from idiomtune.encoder.device import DeviceAndPrecision
from idiomtune.encoder.forward import evaluation_mode
from idiomtune.errors import DataMissingError, UserError
from idiomtune.expressions import expression_pattern
from idiomtune.io.files import read_json, write_json
from idiomtune.io.hub import first_line
from idiomtune.plugins.inputs import RunInputs
from idiomtune.requests import EmbeddingRequest, LabelledUse

log = logging.getLogger(__name__)

Inputs = tuple[Tensor, list[Tensor]]  # sentences (Q, W); captions and images, or one of them, each (Q, 5, W)

_NUM_USAGE_REQUESTS = 3


class RankingNetwork(nn.Module):
    """Scores candidates: each input vector → `hidden` numbers with ReLU, concatenated → one score.

    With one linear layer over the concatenated values, as published, what an item has (its sentence, its
    sense) adds the same to all of its candidates and *cannot* change their order; with `head=hidden` there is
    a layer before it, so that item and candidate interact.

    Unless `as_printed`, vectors are scaled to length sqrt(width) first, so that it does not matter whether a
    checkpoint normalises, and the score has no bias, which would move all candidates alike. With `cosine`,
    the weighted cosines of item and candidate vectors are added, times this; all else starts at zero: the
    network begins as plain cosine and learns what to change.

    Args:
        widths: of the input vectors: those of the item, then those of a candidate.
        start: (item vector, candidate vector) → first weight of their cosine; of those in one space.
        as_printed: vectors are not scaled, and the score has a bias.
    """

    def __init__(
        self,
        widths: Sequence[int],
        options: AdmireOptions,
        start: Mapping[tuple[int, int], float],
        *,
        as_printed: bool = False,
    ) -> None:
        super().__init__()
        self._scaled, self._cosine, self._pairs = not as_printed, options.cosine, list(start)
        hidden = options.hidden
        self.inputs = nn.ModuleList(nn.Linear(width, hidden) for width in widths)
        concatenated = hidden * len(widths)
        self.middle: nn.Module = nn.Identity()
        if options.head == "hidden":
            self.middle = nn.Sequential(nn.Linear(concatenated, hidden), nn.ReLU())
            concatenated = hidden
        self.score = nn.Linear(concatenated, 1, bias=as_printed)
        if self._cosine is not None:
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


def route(by_expert: Tensor, sense: Tensor) -> Tensor:
    """(Q, 5): of the experts' scores (2, Q, 5) those of each item's sense, int (Q,), 0 = idiomatic."""
    return by_expert[sense, torch.arange(len(sense), device=sense.device)]


def usage_of(item: Item) -> LabelledUse:
    """An item's sentence as a :class:`~idiomtune.requests.LabelledUse`."""
    return LabelledUse(item.id, item.compound, item.sentence, item.span, item.sense == "idiomatic")


class Scorer(nn.Module):
    """The sense classifier, the idiomatic and the literal expert.

    The run's encoder embeds what tells an item's sense. The idiomatic expert ranks by a sense vector, the
    sentence, the caption and the image; the literal one by the same without the sense vector. The predicted
    sense chooses between them; in training the gold sense does. CLIP embeds sentences, captions and images;
    without it there are no images, and the encoder embeds sentences and captions.

    Ours: the sense vector is a linear map, at first the identity, of the encoder's embedding of
    `phrase [SEP] sentence`; the logits are a linear map of it, or of `usage` features: the embeddings of the
    compound's span, of the sentence without it, and of the compound alone.

    As AIMA prints it (`printed`), nothing is scaled, and parts share no trained weights: the encoder is the
    classifier's BERT, of which one logit tells the sense; the idiomatic expert sees the vector of a sense
    encoder of its own, and each expert has a CLIP text tower of its own.

    Args:
        width: D, of the encoder's embeddings.
        device: of the model that summarises captions.

    References:
        Rasouli et al. 2025, AIMA at SemEval-2025 Task 1.
    """

    scored_by = "admire"

    is_as_printed = False
    num_logits = len(ADMIRE_SENSES)

    def __init__(self, options: AdmireOptions, width: int, device: str) -> None:
        super().__init__()
        self.options, self.width, self._device = options, width, device
        self.reads_captions = options.ablation != "clip_cosine"
        self._summaries: dict[str, str] = {}
        self.towers: list[ClipTowers] = []
        self.sense_encoder: SenseEncoder | None = None
        self._load()
        inputs = self.towers[0].width if self.towers else width
        by_usage = options.sense_features == "usage"
        self.num_sense_requests = 1 + _NUM_USAGE_REQUESTS * by_usage
        num_features = _NUM_USAGE_REQUESTS if by_usage else 1
        self.sense_map = self._new_sense_map()
        self.sense_head = nn.Linear(num_features * width, self.num_logits)
        if by_usage:  # few steps would not wear off random weights of so many features
            nn.init.zeros_(self.sense_head.weight)
            nn.init.zeros_(self.sense_head.bias)

        def expert(*sense: int) -> RankingNetwork:
            num = self.reads_captions + bool(self.towers)  # vectors of a candidate
            start = {(len(sense), c): 1 / num for c in range(num)}
            if sense and not self.towers:  # the encoder embeds the captions too: one space
                start = {(0, c): 0.0 for c in range(num)} | start
            widths = [*sense, *[inputs] * (1 + num)]
            return RankingNetwork(widths, options, start, as_printed=self.is_as_printed)

        sense_width = width if self.sense_encoder is None else inputs
        self.idiomatic = expert(*[sense_width] * (options.ablation != "no_sense_encoder"))
        self.literal = expert() if self.reads_captions else None  # None: the sentence's cosine with the image

    def _load(self) -> None:
        """Load the pretrained parts."""
        if self.options.clip.path is not None:
            self.towers = [ClipTowers(self.options.clip)]
        self.text_layers = nn.ModuleList(self.towers)

    def _new_sense_map(self) -> nn.Module:
        linear = nn.Linear(self.width, self.width)
        nn.init.eye_(linear.weight)
        nn.init.zeros_(linear.bias)
        return linear

    @property
    def pretrained(self) -> nn.Module:
        """The trained parts that are pretrained."""
        return nn.ModuleList(self.towers)

    def sense_text(self, usage: LabelledUse) -> str:
        """The text that shows in which sense a compound is used."""
        return f"{usage.phrase} {self.options.separator} {usage.sentence}"

    def sense_requests(self, usage: LabelledUse) -> list[EmbeddingRequest]:
        """The requests for a compound's sense, `num_sense_requests` each: `phrase [SEP] sentence`.

        With `usage` features also the span, the sentence without all occurrences of the phrase, and the
        phrase. The whole sentence replaces what is missing: the span if the expression was not found, and the
        rest if the sentence is the expression alone.
        """
        requests = [EmbeddingRequest(self.sense_text(usage))]
        if self.options.sense_features == "usage":
            in_sentence = rest = EmbeddingRequest(usage.sentence)
            if usage.span is not None:
                in_sentence = EmbeddingRequest(usage.sentence, usage.span, pooling="span")
                if usage.span[1] - usage.span[0] < len(usage.sentence):
                    mask = str(self.options.mask)
                    rest = EmbeddingRequest(
                        expression_pattern(usage.phrase).sub(lambda _: mask, usage.sentence)
                    )
            requests += [in_sentence, rest, EmbeddingRequest(usage.phrase)]
        return requests

    def item_requests(self, item: Item) -> list[EmbeddingRequest]:
        """The requests for an item: equally many for each.

        First those for its sense; without CLIP then its sentence, and the captions.
        """
        requests = self.sense_requests(usage_of(item))
        if not self.towers:
            requests.append(EmbeddingRequest(item.sentence, role="query"))
            requests += map(EmbeddingRequest, self.captions_of([item]))
        return requests

    def sense(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors (N, D) and logits (N, 2) from the embeddings (N, S, D) of S sense requests each."""
        embeddings = embeddings.to(self.sense_head.weight.device, self.sense_head.weight.dtype)
        embeddings = functional.normalize(embeddings, dim=2)
        vectors: Tensor = self.sense_map(embeddings[:, 0])
        features = embeddings[:, 1:].flatten(1) if embeddings.shape[1] > 1 else vectors
        return vectors, self.sense_head(features * self.width**0.5)

    def forward(self, items: Sequence[Item], embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs for Q items from embeddings (Q, R, D), row [i, j] for `item_requests(items[i])[j]`.

        Returns:
            Sense vectors (Q, D), logits (Q, 2), and scores (2, Q, 5), the idiomatic expert's first.
        """
        vectors, logits = self.sense(embeddings[:, : self.num_sense_requests])
        rest = embeddings[:, self.num_sense_requests :].to(vectors.device, vectors.dtype)
        inputs = [self.see(towers, items) for towers in self.towers] or [(rest[:, 0], [rest[:, 1:]])]
        ranked = [self.rank(number, items, inputs[number % len(inputs)], vectors) for number in (0, 1)]
        return vectors, logits, torch.stack(ranked)

    def see(self, towers: ClipTowers, items: Sequence[Item]) -> Inputs:
        """CLIP's embeddings of the items' sentences, captions and images."""
        embedded = towers.texts([*(item.sentence for item in items), *self.captions_of(items)])
        images = towers.images([c.path for item in items for c in item.candidates if c.path is not None])
        candidates = [*([embedded[len(items) :]] if self.reads_captions else []), images]
        shape = (len(items), NUM_IMAGES, towers.width)
        return embedded[: len(items)], [vectors.view(shape) for vectors in candidates]

    def rank(
        self,
        number: int,
        items: Sequence[Item],  # noqa: ARG002  the published scorer's sense encoder reads them
        inputs: Inputs,
        vectors: Tensor | None = None,
    ) -> Tensor:
        """(Q, 5), the scores that an expert gives the items' images.

        Args:
            number: of the expert, 0 = idiomatic, 1 = literal.
            vectors: (Q, D), those of the classifier.
        """
        sentences, candidates = inputs
        expert = (self.idiomatic, self.literal)[number]
        if expert is None:
            return functional.cosine_similarity(sentences[:, None], candidates[-1], dim=2)
        sense = [vectors] * (number == 0 and self.options.ablation != "no_sense_encoder")
        scores: Tensor = expert([*sense, sentences], candidates)
        return scores

    def captions_of(self, items: Sequence[Item]) -> list[str]:
        """The captions, at most `captions.words` words each: summarised by :meth:`prepare`, or truncated."""
        captions = [c.caption for item in items for c in item.candidates if self.reads_captions]
        texts = (self._summaries.get(caption) or caption for caption in captions)
        return [" ".join(text.split()[: self.options.captions.words]) for text in texts]

    def prepare(self, items: Sequence[Item]) -> list[Path]:
        """Summarise the items' captions that are too long, if a model is named; returns the summaries' file.

        Raises:
            UserError: if that model cannot be loaded.
        """
        options = self.options.captions
        captions = {c.caption for item in items for c in item.candidates if self.reads_captions}
        long = sorted(caption for caption in captions if len(caption.split()) > options.words)
        if options.summariser is None or not long:
            return []
        path = summarise(long, options, self._device)
        self._summaries |= read_json(path)
        return [path]

    def benchmark(self, inputs: RunInputs) -> ExpertsBenchmark:
        """On the scored splits of AdMIRe, and the splits of AStitch that share no trained compound."""
        names = [name for name in get_args(AdmireSplit) if name in inputs.splits("admire")]
        splits = [admire_split(inputs, name, check_images=bool(self.towers)) for name in names]
        files: dict[AStitchSplit, AStitchFile] = {"astitch_dev": "dev", "astitch_test": "test"}
        unseen, usages = unseen_astitch(self.options.astitch), {}
        try:
            folder = data_files(inputs, astitch.FILES)
            usages = {split: read_usages(folder, [files[split]]) for split in unseen}
        except DataMissingError as error:
            log.warning("the sense classifier is NOT SCORED on AStitchInLanguageModels: %s", error)
        return ExpertsBenchmark(self, splits, usages)

    def publish(self, folder: Path) -> None:
        """Write `experts/` into a model's folder: weights as safetensors, options as JSON."""
        options_file, weights_file = (folder / name for name in FILES)
        options_file.parent.mkdir(parents=True, exist_ok=True)
        save_file({k: t.detach().cpu().contiguous() for k, t in self.state_dict().items()}, weights_file)
        write_json(options_file, {"width": self.width, "options": self.options.model_dump()})


class PublishedScorer(Scorer):
    """AIMA's, as printed: a sense encoder and a CLIP for each expert; the classifier has one logit."""

    is_as_printed = True
    num_logits = 1

    def _load(self) -> None:
        first = ClipTowers(self.options.clip)
        self.towers = [first, first.twin()]
        self.text_layers = nn.ModuleList(self.towers)
        if self.options.trains_sense_encoder:
            self.sense_encoder = SenseEncoder(self.options.sense_encoder, first.width)

    def _new_sense_map(self) -> nn.Module:
        return nn.Identity()

    @property
    def pretrained(self) -> nn.Module:
        encoders = [self.sense_encoder.transformer] if self.sense_encoder else []
        return nn.ModuleList([*self.towers, *encoders])

    def sense(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        embeddings = embeddings.to(self.sense_head.weight.device, self.sense_head.weight.dtype)
        vectors = embeddings[:, 0]
        features = embeddings[:, 1:].flatten(1) if embeddings.shape[1] > 1 else vectors
        logits: Tensor = self.sense_head(features)
        return vectors, torch.cat([logits, torch.zeros_like(logits)], 1)

    def rank(
        self, number: int, items: Sequence[Item], inputs: Inputs, vectors: Tensor | None = None
    ) -> Tensor:
        if number == 0 and self.sense_encoder is not None:
            is_fixed = self.options.sense_encoder.stage == "first"  # else the ranking loss trains it, too
            with evaluation_mode(self.sense_encoder) if is_fixed else nullcontext():
                vectors = self.sense_encoder([self.sense_text(usage_of(item)) for item in items])[0]
            vectors = vectors.detach() if is_fixed else vectors
        return super().rank(number, items, inputs, vectors)


def new_scorer(options: AdmireOptions, width: int, device: str) -> Scorer:
    """The scorer of these options, untrained."""
    return (PublishedScorer if options.as_published else Scorer)(options, width, device)


def load(folder: Path, placement: DeviceAndPrecision) -> Scorer:
    """The scorer that :meth:`Scorer.publish` wrote into a model's folder.

    Raises:
        UserError: if one of its files is missing or damaged, or a model that it names cannot be loaded.
    """
    path, weights_file = (folder / name for name in FILES)
    content = read_json(path)
    try:
        options = AdmireOptions.model_validate(content["options"])
        scorer = new_scorer(options, content["width"], placement.device)
        path = weights_file
        scorer.load_state_dict(load_file(weights_file))
    except (AttributeError, KeyError, TypeError, ValueError, OSError, SafetensorError, RuntimeError) as error:
        raise UserError(
            f"{path}: cannot be loaded ({first_line(error)}): the file is damaged, or does not belong to the "
            "file next to it: get both again"
        ) from error
    return scorer


class ExpertsBenchmark(AdmireBenchmark):
    """Ranks items' images by the expert of the predicted sense, and scores the prediction of senses.

    `experts_text` or `experts_image` is the whole system. With the suffix `_gold_sense`, items go to their
    expert by the gold sense: the slice `/idiomatic` is the idiomatic expert alone, `/literal` the literal
    one. `majority` is the sense accuracy of always predicting the split's most frequent sense.

    It holds the module that is trained, so it always scores the experts as they are.

    Args:
        scorer: put into evaluation mode while it scores, then back.
        splits: of items.
        usages: sentences of AStitchInLanguageModels whose sense is predicted, by split.

    References:
        Rasouli et al. 2025, AIMA at SemEval-2025 Task 1: tables 1 and 2.
    """

    takes_whole_embeddings = True  # the experts are of their width

    def __init__(
        self, scorer: Scorer, splits: Sequence[ItemSplit], usages: Mapping[AStitchSplit, UsageCorpus]
    ) -> None:
        super().__init__(splits, [])
        self.scorer, self.usages = scorer, usages
        items = [item for split in splits for item in split.items]
        of_usages = [path for corpus in usages.values() for path in corpus.files]
        self.files = [*self.files, *of_usages, *scorer.prepare(items)]

    @property
    def requests(self) -> list[EmbeddingRequest]:
        """The requests for items, and for sentences."""
        return super().requests + [r for corpus in self.usages.values() for r in self._of_usages(corpus)]

    def item_requests(self, item: Item) -> list[EmbeddingRequest]:
        return self.scorer.item_requests(item)

    def _of_usages(self, corpus: UsageCorpus) -> list[EmbeddingRequest]:
        return [request for usage in corpus.usages for request in self.scorer.sense_requests(usage)]

    def add_records(self, embed: Embed, result: Result) -> None:
        with evaluation_mode(self.scorer), torch.no_grad():
            super().add_records(embed, result)
            for name, corpus in self.usages.items():
                rows = embed(self._of_usages(corpus))
                rows = rows.view(len(corpus.usages), self.scorer.num_sense_requests, -1)
                predicted = self.scorer.sense(rows)[1].argmax(1).tolist()
                result.per_query.extend(_senses(name, self.scorer.options.mode, corpus.usages, predicted))
                result.per_query.extend(_senses(name, MAJORITY, corpus.usages))

    def add_items(self, split: ItemSplit, embeddings: Tensor, result: Result) -> None:
        items, mode = split.items, self.scorer.options.mode
        _, logits, scores = self.scorer(items, embeddings)
        predicted, by_expert = logits.argmax(1), scores.double()
        records = add_order(split, mode, route(by_expert, predicted).cpu(), result)
        for record, number in zip(records, predicted.tolist(), strict=True):
            record["predicted_sense"] = ADMIRE_SENSES[number]
        if all(item.sense is not None for item in items):
            gold = torch.tensor([int(item.sense == "literal") for item in items], device=predicted.device)
            add_order(split, f"{mode}_{GOLD_SENSE}", route(by_expert, gold).cpu(), result)
            result.per_query.extend(_senses(split.name, MAJORITY, [usage_of(item) for item in items]))


def _senses(
    split: str, mode: str, usages: Sequence[LabelledUse], predicted: Sequence[int] | None = None
) -> Iterator[dict[str, Any]]:
    """Records of the sentences' senses, 0 = idiomatic; without predictions the most frequent one is."""
    gold = [int(not usage.is_idiomatic) for usage in usages]
    if predicted is None:
        predicted = [int(torch.tensor(gold).mode().values)] * len(gold)
    prefix = "astitch_" if split in get_args(AStitchSplit) else ""
    for usage, *senses in zip(usages, gold, predicted, strict=True):
        record = {"split": split, "mode": mode, "id": prefix + usage.id, "compound": usage.phrase}
        sense, predicted_sense = (ADMIRE_SENSES[number] for number in senses)
        yield record | {"sense": sense, "predicted_sense": predicted_sense}
