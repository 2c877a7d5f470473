"""AdMIRe's experts: small heads on embeddings that predict a compound's sense and rank an item's images.

Shared by the objective that trains them and the benchmark that scores them; knows no model class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from train.data.admire import NUM_IMAGES, Item, first_words
from train.data.names import ADMIRE_SENSES, ExpertsMode
from train.errors import UserError
from train.experts.usage import NUM_USAGE_REQUESTS, SenseFeatures, usage_features, usage_requests
from train.io.files import write_json
from train.io.hub import first_line
from train.io.records import read_json
from train.requests import Request

FOLDER = "experts"  # in a checkpoint and in best/
_WEIGHTS, _OPTIONS = "experts.safetensors", "experts.json"
FILES = (f"{FOLDER}/{_OPTIONS}", f"{FOLDER}/{_WEIGHTS}")
# Options that earlier versions did not write, as they were then, or unknown.
_BEFORE: dict[str, Any] = {"sense_features": "sentence", "mask": "[MASK]", "astitch": None}


class Towers(Protocol):
    """Encoders of texts and images into one space, as in CLIP; its parameters are those that are trained."""

    @property
    def width(self) -> int:
        """W."""
        ...

    @property
    def path(self) -> str:
        """Where they were loaded from."""
        ...

    @property
    def revision(self) -> str | None:
        """Branch, tag or commit on the Hub."""
        ...

    @property
    def trained_layers(self) -> int:
        """How many of the text tower's last layers are trained."""
        ...

    @property
    def module(self) -> nn.Module:
        """The part that is trained, and saved."""
        ...

    def texts(self, texts: Sequence[str]) -> Tensor:
        """(N, W), with a graph where gradients are on."""
        ...

    def images(self, paths: Sequence[Path]) -> Tensor:
        """(N, W), without a graph."""
        ...


@dataclass(frozen=True)
class ExpertsOptions:
    """What the experts are made of.

    Attributes:
        width: D, of the encoder's embeddings.
        hidden: size that each input vector is mapped to.
        head: `linear` = as published, a weighted sum of the concatenated values. An item's sentence then adds
            the same to the score of all its images and *cannot* change their order, which depends on
            captions and images alone (and on the cosines, if used). `hidden` = a hidden layer over the
            concatenated values, so that sentence and caption can interact.
        cosine: add the cosine of the sentence with the caption (and the image), times this, to the score. All
            else starts at zero: experts begin as plain cosine and learn what to change. The sense vector's
            cosine is added too, at first with weight 0, if it lies in the captions' space. None = none.
        captions: whether experts see captions, or only images.
        literal: the literal expert: `trained`, or the plain `cosine` of the sentence with the image (the
            caption, if there are no images), which has no parameters.
        sense_encoder: whether the idiomatic expert sees the sense vector.
        caption_words: captions are cut after so many words.
        separator: between phrase and sentence in the input for the sense.
        sense_features: what sense logits are a linear map of: `sentence` = the sense vector; `usage` = the
            embeddings of the compound's span, of the sentence without it, and of the compound alone.
        mask: hides the compound, for `usage`.
        astitch: files of AStitchInLanguageModels that taught the senses, so cannot test them; None = unknown.
    """

    width: int
    hidden: int = 128
    head: Literal["linear", "hidden"] = "linear"
    cosine: float | None = None
    captions: bool = True
    literal: Literal["trained", "cosine"] = "trained"
    sense_encoder: bool = True
    caption_words: int = 60
    separator: str = "[SEP]"
    sense_features: SenseFeatures = "sentence"
    mask: str = "[MASK]"
    astitch: tuple[str, ...] | None = ()


class ExpertScores(NamedTuple):
    """What the experts give for Q items.

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


class Expert(nn.Module):
    """Scores candidates: each input vector → `hidden` numbers with ReLU, concatenated → one score.

    Vectors are scaled to length sqrt(width) first, so it does not matter whether a checkpoint normalises.

    Args:
        widths: of the input vectors: those of the item, then those of a candidate.
        num_item: how many of them are the item's.
        start: initial weights (A, C) of the cosine of each item vector with each candidate vector, in units
            of `options.cosine`; None where the two do not lie in one space.
        options: see :class:`ExpertsOptions`.
    """

    def __init__(
        self,
        widths: Sequence[int],
        num_item: int,
        start: Sequence[Sequence[float | None]],
        options: ExpertsOptions,
    ) -> None:
        super().__init__()
        self.num_item = num_item
        self.cosine = options.cosine
        self.inputs = nn.ModuleList(nn.Linear(width, options.hidden) for width in widths)
        concatenated = options.hidden * len(widths)
        self.middle: nn.Module = nn.Identity()
        if options.head == "hidden":
            self.middle = nn.Sequential(nn.Linear(concatenated, options.hidden), nn.ReLU())
            concatenated = options.hidden
        self.score = nn.Linear(concatenated, 1, bias=False)  # a bias would move all candidates alike
        self.cosine_weights: nn.Parameter | None = None
        if options.cosine is not None:
            nn.init.zeros_(self.score.weight)
            self._pairs = [
                (a, c) for a, row in enumerate(start) for c, value in enumerate(row) if value is not None
            ]
            self.cosine_weights = nn.Parameter(torch.tensor([start[a][c] or 0.0 for a, c in self._pairs]))

    def forward(self, item: Sequence[Tensor], candidates: Sequence[Tensor]) -> Tensor:
        """(Q, N) from item vectors (Q, W) and candidate vectors (Q, N, W')."""
        num = candidates[0].shape[1]
        vectors = [*(v[:, None].expand(-1, num, -1) for v in item), *candidates]  # (Q, N, W)
        hidden = [
            functional.relu(layer(functional.normalize(v, dim=2) * v.shape[2] ** 0.5))
            for layer, v in zip(self.inputs, vectors, strict=True)
        ]
        scores: Tensor = self.score(self.middle(torch.cat(hidden, 2)))[:, :, 0]
        if self.cosine_weights is not None:
            assert self.cosine is not None
            for weight, (a, c) in zip(self.cosine_weights, self._pairs, strict=True):
                cosine = functional.cosine_similarity(vectors[a], candidates[c], dim=2)
                scores = scores + self.cosine * weight * cosine
        return scores


class Experts(nn.Module):
    """The sense classifier, the idiomatic and the literal expert.

    The sense vector of a sentence is a linear map, at first the identity, of the encoder's embedding of
    `phrase [SEP] sentence`; sense logits are a linear map of it, or of `usage` features. The idiomatic expert
    ranks by the sense vector, the sentence, the caption and the image; the literal one by the same without
    the sense vector.
    Without towers there are no images, and the encoder embeds sentences and captions (*text-only*); with
    towers, the encoder is used for the sense only, and the towers for everything else.

    Args:
        options: see :class:`ExpertsOptions`.
        towers: encoders of texts and images.

    Raises:
        UserError: if the experts would see neither captions nor images.

    References:
        Rasouli et al. 2025, AIMA at SemEval-2025 Task 1, sections 3 and 6. The start from plain cosine
        (`cosine`), the hidden layer (`head`) and the map of the sense vector are ours; there the sense
        encoder is a separate model, here it is the one encoder that is trained.
    """

    def __init__(self, options: ExpertsOptions, towers: Towers | None = None) -> None:
        super().__init__()
        if towers is None and not options.captions:
            raise UserError(
                "objective.captions=false needs objective.clip.path: without captions and images there is "
                "nothing to rank by"
            )
        self.options = options
        # In a list, so that only the trained part of them is a submodule.
        self.towers = [towers] if towers is not None else []
        self.trained_towers = towers.module if towers is not None else nn.Module()
        width = options.width
        self.sense_map = nn.Linear(width, width)
        nn.init.eye_(self.sense_map.weight)
        nn.init.zeros_(self.sense_map.bias)
        self.num_sense_requests = 1
        num_features = width
        if options.sense_features == "usage":
            self.num_sense_requests += NUM_USAGE_REQUESTS
            num_features = NUM_USAGE_REQUESTS * width
        self.sense_head = nn.Linear(num_features, len(ADMIRE_SENSES))
        # Few steps would not wear off random weights of so many features.
        if options.sense_features == "usage":
            nn.init.zeros_(self.sense_head.weight)
            nn.init.zeros_(self.sense_head.bias)
        text_width = towers.width if towers is not None else width
        candidates = [text_width] * (options.captions + (towers is not None))
        sentence_start: list[float | None] = [1 / len(candidates)] * len(candidates)
        sense_start: list[float | None] = [None if towers is not None else 0.0] * len(candidates)
        if options.sense_encoder:
            start = [sense_start, sentence_start]
            self.idiomatic = Expert([width, text_width, *candidates], 2, start, options)
        else:
            self.idiomatic = Expert([text_width, *candidates], 1, [sentence_start], options)
        self.literal: Expert | None = None
        if options.literal == "trained":
            self.literal = Expert([text_width, *candidates], 1, [sentence_start], options)

    @property
    def pretrained(self) -> nn.Module:
        """The trained part of the towers."""
        return self.trained_towers

    @property
    def mode(self) -> ExpertsMode:
        """What its scores are called."""
        return "experts_image" if self.towers else "experts_text"

    def sense_requests(self, phrase: str, sentence: str, span: tuple[int, int] | None) -> list[Request]:
        """What the encoder embeds for a compound's sense: `num_sense_requests`."""
        requests = [Request(f"{phrase} {self.options.separator} {sentence}")]
        if self.options.sense_features == "usage":
            requests += usage_requests(phrase, sentence, span, self.options.mask)
        return requests

    def item_requests(self, item: Item) -> list[Request]:
        """What the encoder embeds for an item: equally many requests for each.

        First those for its sense; without towers then its sentence, and the captions.
        """
        requests = self.sense_requests(item.compound, item.sentence, item.span)
        if not self.towers:
            requests.append(Request(item.sentence, role="query"))
            requests += [Request(self.caption(candidate.caption)) for candidate in item.candidates]
        return requests

    def caption(self, caption: str) -> str:
        """A caption as the experts read it."""
        return first_words(caption, self.options.caption_words)

    def sense(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Sense vectors (N, D) and logits (N, 2) from the embeddings (N, S, D) of S sense requests each."""
        weight = self.sense_map.weight
        embeddings = embeddings.to(weight.device, weight.dtype)
        vectors: Tensor = self.sense_map(functional.normalize(embeddings[:, 0], dim=1))
        features = vectors * self.options.width**0.5
        if self.options.sense_features == "usage":
            features = usage_features(embeddings[:, 1:])
        return vectors, self.sense_head(features)

    def forward(self, items: Sequence[Item], embeddings: Tensor) -> ExpertScores:
        """Scores of Q items from embeddings (Q, R, D), row [i, j] for `item_requests(items[i])[j]`."""
        vectors, logits = self.sense(embeddings[:, : self.num_sense_requests])
        sentence, candidates = self._vectors(items, embeddings.to(vectors.device, vectors.dtype))
        item_vectors = [vectors, sentence] if self.options.sense_encoder else [sentence]
        idiomatic = self.idiomatic(item_vectors, candidates)
        if self.literal is not None:
            literal = self.literal([sentence], candidates)
        else:  # the last candidate vector: the image, if there is one
            literal = functional.cosine_similarity(sentence[:, None], candidates[-1], dim=2)
        return ExpertScores(logits, vectors, torch.stack([idiomatic, literal]))

    def _vectors(self, items: Sequence[Item], embeddings: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Sentences (Q, W), and the candidates' captions and images, each (Q, 5, W)."""
        if not self.towers:
            first = self.num_sense_requests
            return embeddings[:, first], [embeddings[:, first + 1 :]]
        (towers,) = self.towers
        texts = [item.sentence for item in items]
        if self.options.captions:
            texts += [self.caption(c.caption) for item in items for c in item.candidates]
        embedded = towers.texts(texts)
        paths = [c.path for item in items for c in item.candidates]
        images = towers.images([path for path in paths if path is not None])
        shape = (len(items), NUM_IMAGES, towers.width)
        captions = [embedded[len(items) :].view(shape)] if self.options.captions else []
        return embedded[: len(items)], [*captions, images.view(shape)]

    # ---------------------------------------------------------------- saving and loading

    def publish(self, folder: Path) -> None:
        """Write `experts/` into a model's folder: weights as safetensors, options as JSON."""
        folder = folder / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: t.detach().cpu().contiguous() for name, t in self.state_dict().items()}
        save_file(tensors, folder / _WEIGHTS)
        clip = None
        if self.towers:
            (towers,) = self.towers
            clip = {
                "path": towers.path,
                "revision": towers.revision,
                "trained_layers": towers.trained_layers,
            }
        write_json(folder / _OPTIONS, {**asdict(self.options), "clip": clip})


LoadTowers = Callable[[str, int, str | None], Towers]


def load_experts(folder: Path, load_towers: LoadTowers) -> Experts:
    """The experts that :meth:`Experts.publish` wrote into a model's folder.

    Args:
        load_towers: (path, trained layers, revision) → the towers they were trained with.

    Raises:
        UserError: if one of their files is missing or damaged.
    """
    options_file, weights_file = folder / FOLDER / _OPTIONS, folder / FOLDER / _WEIGHTS
    options = read_json(options_file)
    damaged = UserError(f"{options_file}: is not what was saved there: get the file again")
    if not isinstance(options, dict) or "clip" not in options:
        raise damaged
    clip = options.pop("clip")
    if clip is not None and not (isinstance(clip, dict) and {"path", "trained_layers"} <= clip.keys()):
        raise damaged
    options = _BEFORE | options
    if options.keys() != {field.name for field in fields(ExpertsOptions)} or not _are_options(options):
        raise damaged
    if options["astitch"] is not None:
        options["astitch"] = tuple(options["astitch"])
    # Files of earlier versions name no revision: the main branch, as it was loaded then.
    towers = load_towers(clip["path"], clip["trained_layers"], clip.get("revision")) if clip else None
    experts = Experts(ExpertsOptions(**options), towers)
    try:
        experts.load_state_dict(load_file(weights_file))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UserError(
            f"{weights_file}: cannot be loaded ({first_line(error)}): the file is damaged, or belongs "
            "to other experts than the options beside it: get both again"
        ) from error
    return experts


def _are_options(options: Mapping[str, Any]) -> bool:
    """Whether each has a value of its kind."""
    whole = ("width", "hidden", "caption_words")
    flags = ("captions", "sense_encoder")
    return (
        all(type(options[name]) is int and options[name] > 0 for name in whole)
        and all(isinstance(options[name], bool) for name in flags)
        and options["head"] in ("linear", "hidden")
        and options["literal"] in ("trained", "cosine")
        and (options["cosine"] is None or isinstance(options["cosine"], int | float))
        and options["sense_features"] in get_args(SenseFeatures)
        and isinstance(options["astitch"], list | None)
        and all(
            isinstance(text, str)
            for text in (options["separator"], options["mask"], *(options["astitch"] or []))
        )
    )
