"""AIMA's system as its paper prints it: sense classifier, sense encoder, two experts, each with its own CLIP.

:mod:`train.experts.heads` has the experts of this project, which normalise and start from plain cosine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from train.data.admire import NUM_IMAGES, Item
from train.data.names import ExpertsMode
from train.errors import UserError
from train.experts.captions import CaptionOptions, Captions
from train.experts.heads import FILES, ExpertScores
from train.experts.sense_encoder import SenseEncoder
from train.io.files import write_json
from train.io.hub import first_line
from train.io.records import read_json
from train.requests import Request

if TYPE_CHECKING:
    from train.experts.clip import ClipTowers

SYSTEM = "aima"  # in experts.json, which tells it from the experts of `heads`
Ablation = Literal["clip_cosine", "no_sense_encoder"]
Stages = Literal["first", "beside"]

_ITEMS_AT_ONCE = 8


@dataclass(frozen=True)
class AimaOptions:
    """What the system is made of.

    Attributes:
        width: D, of the classifier's [CLS] embedding.
        hidden: numbers that each of an expert's inputs becomes.
        ablation: `clip_cosine` = no captions, and the literal expert is the cosine of CLIP as published (the
            paper's 6.1); `no_sense_encoder` = the idiomatic expert without the sense vector (6.3).
        sense_stage: `first` = the sense encoder is trained before the experts, which see it as it then is;
            `beside` = with them, also by the ranking loss.
        separator: between phrase and sentence.
        astitch: files of AStitchInLanguageModels that taught the senses, so cannot test them.
    """

    width: int
    hidden: int
    ablation: Ablation | None
    sense_stage: Stages
    separator: str
    astitch: tuple[str, ...]


class RankingNetwork(nn.Module):
    """Each input vector → `hidden` numbers with ReLU, concatenated → one score. Nothing is normalised.

    Since the score is a sum over the inputs, an item's sentence (and its sense vector) adds the same to all
    of its images: it cannot change their order.
    """

    def __init__(self, num_inputs: int, width: int, hidden: int) -> None:
        super().__init__()
        self.inputs = nn.ModuleList(nn.Linear(width, hidden) for _ in range(num_inputs))
        self.score = nn.Linear(num_inputs * hidden, 1)

    def forward(self, vectors: Sequence[Tensor]) -> Tensor:
        """(Q, N) from as many (Q, N, W) as there are inputs."""
        hidden = [functional.relu(layer(v)) for layer, v in zip(self.inputs, vectors, strict=True)]
        scores: Tensor = self.score(torch.cat(hidden, 2))
        return scores[:, :, 0]


class AimaSystem(nn.Module):
    """The sense classifier's head, the sense encoder, and the two experts with their CLIP text layers.

    The run's encoder is the classifier's BERT. It chooses the expert at inference; in training the gold sense
    does.

    Args:
        options: see :class:`AimaOptions`.
        towers: CLIP; each expert has a text tower of its own, of which the last layers are trained.
        sense_encoder: None with the ablation `no_sense_encoder`.
        captions: shortens them.

    References:
        Rasouli et al. 2025, AIMA at SemEval-2025 Task 1.
    """

    mode: ExpertsMode = "experts_image"
    num_sense_requests = 1

    def __init__(
        self, options: AimaOptions, towers: ClipTowers, sense_encoder: SenseEncoder | None, captions: Captions
    ) -> None:
        super().__init__()
        self.options = options
        self.captions = captions
        self.towers = [towers, towers.twin()]  # of the idiomatic and the literal expert
        self.text_layers = nn.ModuleList(each.module for each in self.towers)
        self.sense_encoder = sense_encoder
        self.classifier = nn.Linear(options.width, 1)
        num_inputs = 3 if self.sees_captions else 2  # of the literal expert
        width, hidden = towers.width, options.hidden
        self.idiomatic = RankingNetwork(num_inputs + (sense_encoder is not None), width, hidden)
        self.literal: RankingNetwork | None = None
        if options.ablation != "clip_cosine":
            self.literal = RankingNetwork(num_inputs, width, hidden)

    @property
    def sees_captions(self) -> bool:
        """Whether experts see captions, or images alone."""
        return self.options.ablation != "clip_cosine"

    @property
    def pretrained(self) -> nn.Module:
        """What is pretrained of all that is trained here."""
        parts = [*self.text_layers, *([self.sense_encoder.transformer] if self.sense_encoder else [])]
        return nn.ModuleList(parts)

    def sense_text(self, phrase: str, sentence: str) -> str:
        """What classifier and sense encoder read."""
        return f"{phrase} {self.options.separator} {sentence}"

    def sense_request(self, phrase: str, sentence: str) -> Request:
        """The same, as the classifier's encoder is asked for it."""
        return Request(self.sense_text(phrase, sentence))

    def sense_requests(self, phrase: str, sentence: str, span: tuple[int, int] | None) -> list[Request]:
        """What the run's encoder embeds for a compound's sense."""
        del span
        return [self.sense_request(phrase, sentence)]

    def item_requests(self, item: Item) -> list[Request]:
        """What the run's encoder embeds for an item: what tells its sense."""
        return self.sense_requests(item.compound, item.sentence, item.span)

    def classify(self, embeddings: Tensor) -> Tensor:
        """Logits (N,) of the idiomatic sense from the encoder's embeddings (N, D)."""
        weight = self.classifier.weight
        logits: Tensor = self.classifier(embeddings.to(weight.device, weight.dtype))
        return logits[:, 0]

    def sense(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors (N, D) and logits (N, 2), the classifier's and 0, from the embeddings (N, 1, D)."""
        embeddings = embeddings[:, 0]
        logits = self.classify(embeddings)
        return embeddings, torch.stack([logits, torch.zeros_like(logits)], 1)

    def forward(self, items: Sequence[Item], embeddings: Tensor) -> ExpertScores:
        """Scores of Q items from embeddings (Q, 1, D), as :meth:`train.experts.heads.Experts.forward`."""
        vectors, logits = self.sense(embeddings)
        by_expert = []
        for expert in (0, 1):
            chunks = [items[i : i + _ITEMS_AT_ONCE] for i in range(0, len(items), _ITEMS_AT_ONCE)]
            by_expert.append(torch.cat([self.rank(chunk, expert) for chunk in chunks]))
        return ExpertScores(logits, vectors, torch.stack(by_expert))

    def rank(self, items: Sequence[Item], expert: int) -> Tensor:
        """(Q, 5), the scores that one expert gives the items' images; 0 = idiomatic, 1 = literal."""
        towers = self.towers[expert]
        texts = [item.sentence for item in items]
        if self.sees_captions:
            texts += [self.captions(c.caption) for item in items for c in item.candidates]
        embedded = towers.texts(texts)
        paths = [c.path for item in items for c in item.candidates]
        images = towers.images([path for path in paths if path is not None])
        shape = (len(items), NUM_IMAGES, towers.width)
        sentences = embedded[: len(items), None].expand(shape)  # (Q, 5, W), as all below
        images = images.view(shape)
        network = (self.idiomatic, self.literal)[expert]
        if network is None:
            return functional.cosine_similarity(sentences, images, dim=2)
        vectors = [sentences, images]
        if self.sees_captions:
            vectors.insert(1, embedded[len(items) :].view(shape))
        if expert == 0 and self.sense_encoder is not None:
            vectors.insert(0, self._sense_vectors(items, self.sense_encoder)[:, None].expand(shape))
        scores: Tensor = network(vectors)
        return scores

    def _sense_vectors(self, items: Sequence[Item], encoder: SenseEncoder) -> Tensor:
        """(Q, W); with a graph if the ranking loss trains the sense encoder."""
        texts = [self.sense_text(item.compound, item.sentence) for item in items]
        vectors: Tensor
        if self.options.sense_stage == "beside":
            vectors = encoder(texts)[0]
            return vectors
        with torch.no_grad(), _evaluating(encoder):
            vectors = encoder(texts)[0]
        return vectors

    def meanings(self, texts: Sequence[str]) -> Tensor:
        """(N, W), CLIP's embeddings of meanings, without a graph: sense vectors do not draw them."""
        with torch.no_grad():
            return self.towers[0].texts(texts)

    def publish(self, folder: Path) -> None:
        """Write `experts/` into a model's folder: weights as safetensors, options as JSON."""
        options_file, weights_file = (folder / name for name in FILES)
        options_file.parent.mkdir(parents=True, exist_ok=True)
        tensors = {name: t.detach().cpu().contiguous() for name, t in self.state_dict().items()}
        save_file(tensors, weights_file)
        clip, sense = self.towers[0], self.sense_encoder
        content = {
            "system": SYSTEM,
            "options": asdict(self.options),
            "clip": {
                "path": clip.path,
                "revision": clip.revision,
                "trained_layers": clip.trained_layers,
            },
            "sense_encoder": {"path": sense.path, "revision": sense.revision} if sense else None,
            "captions": asdict(self.captions.options),
        }
        write_json(options_file, content)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def load_aima(
    folder: Path,
    load_towers: Callable[[str, int, str | None], ClipTowers],
    make_captions: Callable[[CaptionOptions], Captions],
) -> AimaSystem:
    """The system that :meth:`AimaSystem.publish` wrote into a model's folder.

    Args:
        load_towers: (path, trained layers, revision) → CLIP as published.
        make_captions: its captions, by how they were shortened in training.

    Raises:
        UserError: if one of its files is missing or damaged, or a model that it names cannot be loaded.
    """
    options_file, weights_file = (folder / name for name in FILES)
    try:
        content: Any = read_json(options_file)
        options = AimaOptions(**{**content["options"], "astitch": tuple(content["options"]["astitch"])})
        clip, sense = content["clip"], content["sense_encoder"]
        captions = make_captions(CaptionOptions(**content["captions"]))
        given = (clip["path"], clip["trained_layers"], clip["revision"])
        named = (sense["path"], sense["revision"]) if sense is not None else None
    except (KeyError, TypeError) as error:
        raise UserError(f"{options_file}: is not what was saved there: get the file again") from error
    towers = load_towers(*given)
    encoder = None
    if named is not None:
        encoder = SenseEncoder.from_pretrained(named[0], revision=named[1], width=towers.width)
    system = AimaSystem(options, towers, encoder, captions)
    try:
        system.load_state_dict(load_file(weights_file))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UserError(
            f"{weights_file}: cannot be loaded ({first_line(error)}): the file is damaged, or belongs "
            "to another system than the options beside it: get both again"
        ) from error
    return system
