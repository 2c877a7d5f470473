"""AdMIRe's two systems: our experts, and AIMA's as its paper prints them. Two settings of one scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from train.admire import FILES, CaptionOptions, ExpertsOptions, PrintedOptions
from train.admire.captions import Captions
from train.admire.pretrained import ClipTowers, SenseEncoder
from train.admire.scorer import Scorer
from train.data.admire import Item
from train.data.names import ADMIRE_SENSES
from train.distributed.device import Placement
from train.errors import UserError
from train.expressions import expression_pattern
from train.io.hub import first_line
from train.io.records import read_json
from train.requests import Request

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
        self._scaled = scaled
        self._cosine = cosine
        self.inputs = nn.ModuleList(nn.Linear(width, hidden) for width in widths)
        concatenated = hidden * len(widths)
        self.middle: nn.Module = nn.Identity()
        if hidden_layer:
            self.middle = nn.Sequential(nn.Linear(concatenated, hidden), nn.ReLU())
            concatenated = hidden
        self.score = nn.Linear(concatenated, 1, bias=not scaled)
        self.cosine_weights: nn.Parameter | None = None
        if cosine is not None:
            nn.init.zeros_(self.score.weight)
            self._pairs = list(start)
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
        if self._cosine is not None and self.cosine_weights is not None:
            for weight, (a, c) in zip(self.cosine_weights, self._pairs, strict=True):
                cosine = functional.cosine_similarity(vectors[a], candidates[c], dim=2)
                scores = scores + self._cosine * weight * cosine
        return scores


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
        shortened = CaptionOptions(words=options.caption_words, summariser=None, revision=None)
        captions = Captions(shortened, device) if options.captions else None
        towers = [ClipTowers.load(options.clip)] if options.clip.path is not None else []
        super().__init__(options, width, captions, towers)
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

        The whole sentence replaces what is missing: the span where the expression was not found, and the
        rest where the sentence is the expression alone.

        Args:
            span: offsets of the expression's first occurrence; all of them are hidden.
        """
        requests = super().sense_requests(phrase, sentence, span)
        if self._by_usage:
            in_sentence = rest = Request(sentence)
            if span is not None:
                in_sentence = Request(sentence, span, pooling="span")
                if span[1] - span[0] < len(sentence):
                    rest = Request(expression_pattern(phrase).sub(lambda _: self.options.mask, sentence))
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
        encoder, texts = self.sense_encoder, [self.sense_text(i.compound, i.sentence) for i in items]
        if encoder is None:
            return None
        was_training = encoder.training
        is_trained = self.options.sense_encoder.stage == "beside"
        encoder.train(was_training and is_trained)
        with torch.set_grad_enabled(torch.is_grad_enabled() and is_trained):
            inputs: Tensor = encoder(texts)[0]
        encoder.train(was_training)
        return inputs


def load(folder: Path, placement: Placement) -> Scorer:
    """The scorer that :meth:`Scorer.publish` wrote into a model's folder.

    Raises:
        UserError: if one of its files is missing or damaged, or a model that it names cannot be loaded.
    """
    options_file, weights_file = (folder / name for name in FILES)
    content = read_json(options_file)
    try:
        saved = _today(content) if "clip" in content else content
        kind: Any = {each.system: each for each in (Experts, PrintedExperts)}[saved["system"]]
        scorer: Scorer = kind(kind.section.model_validate(saved["options"]), saved["width"], placement.device)
    except (AttributeError, KeyError, TypeError, ValidationError) as error:
        raise UserError(f"{options_file}: is not what was saved there: get the file again") from error
    try:
        scorer.load_state_dict(load_file(weights_file))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UserError(
            f"{weights_file}: cannot be loaded ({first_line(error)}): the file is damaged, or belongs "
            "to another system than the options next to it: get both again"
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
    system = content.get("system", "admire")
    return {"system": system, "width": options.pop("width"), "options": options}
