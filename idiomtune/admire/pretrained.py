"""Pretrained models of a scorer, besides the run's encoder: CLIP, a BERT, a summariser of captions.

Only safetensors are loaded, and no code from the checkpoint.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from idiomtune.admire import CaptionOptions, ClipOptions, SenseEncoderOptions
from idiomtune.encoder.checks import check_complete
from idiomtune.encoder.loading import locate_checkpoint, silence_libraries, why_not_loaded
from idiomtune.errors import UserError
from idiomtune.io import cache
from idiomtune.io.files import write_text

log = logging.getLogger(__name__)

_IMAGES_AT_ONCE = 32


def load_pretrained(option: str, path: str | None, revision: str | None, *kinds: Any) -> list[Any]:
    """A model in float32 with its tokenizer or processor, loaded by transformers' classes.

    Args:
        option: of the objective, that names the model.
        path: a local folder, or the name of a model on the Hugging Face Hub.
        revision: branch, tag or commit on the Hub.
        kinds: classes of the model, of its tokenizer, and of further parts.

    Raises:
        UserError: why it cannot be loaded, or that it is incomplete.
    """
    model_class, *others = kinds
    try:
        name, offline = locate_checkpoint(str(path), revision)
        options = {"revision": revision, "trust_remote_code": False, "local_files_only": offline}
        weights = {"use_safetensors": True, "dtype": torch.float32, "ignore_mismatched_sizes": True}
        with silence_libraries():
            model, report = model_class.from_pretrained(name, output_loading_info=True, **weights, **options)
            rest = [part.from_pretrained(name, **options) for part in others]
        check_complete(name, model, report, rest[0])
    except MemoryError:
        raise
    except Exception as error:
        reason = error if isinstance(error, UserError) else why_not_loaded(error)
        kind = model_class.__name__.removeprefix("Auto")
        raise UserError(f"objective.{option}={path}: could not be loaded as a {kind}: {reason}") from error
    return [model, *rest]


class ClipTowers(nn.ModuleList):
    """A CLIP model: texts and images in one space of W dimensions.

    Of its parts only the last layers of the text tower are trained. As a module it is these layers, so that
    nothing else is saved.

    Raises:
        UserError: if there is no such model, it cannot be reached, it is not a CLIP, or its text tower has
            fewer layers than are to be trained.
    """

    def __init__(self, clip: ClipOptions) -> None:
        kinds = (transformers.CLIPModel, transformers.CLIPTokenizer, transformers.CLIPImageProcessorPil)
        model, *others = load_pretrained("clip.path", clip.path, clip.revision, *kinds)
        layers, trained = model.text_model.encoder.layers, clip.trained_layers
        if trained > len(layers):
            raise UserError(
                f"objective.clip.trained_layers={trained}: the text tower of {clip.path} has {len(layers)}"
            )
        model.eval().requires_grad_(False)  # published models have no dropout
        super().__init__(layers[len(layers) - trained :])
        self.requires_grad_(True)
        self.register_buffer("_place", torch.empty(0), persistent=False)  # moves, as the trained layers do
        self._parts = (model, *others)  # in a tuple, they are not submodules
        self._images: dict[Path, Tensor] = {}  # embeddings computed so far, by file
        self.width: int = model.config.projection_dim

    @property
    def model(self) -> Any:
        """The whole model, which follows its trained layers to their device."""
        return self._parts[0].to(self._place.device)

    def twin(self) -> ClipTowers:
        """The same model with a text tower of its own; the frozen image tower and its images are shared."""
        model, *others = self._parts
        shared = (model.vision_model, model.visual_projection, *others, self._images)
        return deepcopy(self, {id(part): part for part in shared})

    def texts(self, texts: Sequence[str]) -> Tensor:
        """(N, W), each distinct text embedded once; texts are truncated at the model's positions (77)."""
        model, distinct = self.model, list(dict.fromkeys(texts))
        limit = model.config.text_config.max_position_embeddings
        tokens = _tokens(self._parts[1], distinct, limit, model.device)
        features = model.get_text_features(**tokens).pooler_output
        rows: Tensor = features[[distinct.index(text) for text in texts]]
        return rows

    def images(self, paths: Sequence[Path]) -> Tensor:
        """(N, W), without a graph; each image is read and embedded once in a run.

        Raises:
            UserError: if a file is not an image.
        """
        model = self.model
        new = [path for path in dict.fromkeys(paths) if path not in self._images]
        for start in range(0, len(new), _IMAGES_AT_ONCE):
            chunk = new[start : start + _IMAGES_AT_ONCE]
            pixels = self._parts[2](images=[_image(path) for path in chunk], return_tensors="pt")
            with torch.no_grad():
                images = model.get_image_features(**pixels.to(model.device)).pooler_output.cpu()
            self._images.update(zip(chunk, images, strict=True))
        return torch.stack([self._images[path] for path in paths]).to(model.device)


class SenseEncoder(nn.Module):
    """A BERT of its own: texts to sense vectors, in CLIP's space, and the logit of the idiomatic sense.

    The first token's (`[CLS]`) last state counts, H numbers.

    Args:
        sense: names the model.
        width: W, of CLIP. Where H differs, a linear layer maps to it: the paper's are both 768.

    Raises:
        UserError: if there is no such model, or it cannot be loaded.
    """

    def __init__(self, sense: SenseEncoderOptions, width: int) -> None:
        super().__init__()
        self.transformer, self._tokenizer = load_pretrained(
            "sense_encoder.path",
            sense.path,
            sense.revision,
            transformers.AutoModel,
            transformers.AutoTokenizer,
        )
        hidden: int = self.transformer.config.hidden_size
        self.logit = nn.Linear(hidden, 1)
        self.map: nn.Module = nn.Identity() if hidden == width else nn.Linear(hidden, width)

    def forward(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Sense vectors (N, W) and logits (N,), positive = idiomatic; longer texts are truncated."""
        limit = self.transformer.config.max_position_embeddings
        inputs = _tokens(self._tokenizer, texts, limit, self.logit.weight.device)
        first = self.transformer(**inputs).last_hidden_state[:, 0]  # (N, H)
        vectors: Tensor = self.map(first)
        return vectors, self.logit(first)[:, 0]


def summarise(captions: Sequence[str], options: CaptionOptions, device: str) -> Path:
    """The cached file of summaries (caption → summary), made if it is missing.

    A summary is the model's own (beam search, nothing is drawn), each caption alone.

    Raises:
        UserError: if the summariser cannot be loaded.
    """

    name = options.summariser

    @torch.no_grad()
    def make(path: Path) -> None:
        kinds = (transformers.AutoModelForSeq2SeqLM, transformers.AutoTokenizer)
        model, tokenizer = load_pretrained("captions.summariser", name, options.revision, *kinds)
        log.info("summarising %d captions by %s", len(captions), name)
        summaries = {}
        for caption in captions:
            inputs = _tokens(tokenizer, [caption], model.config.max_position_embeddings, device)
            written = model.to(device).eval().generate(**inputs, do_sample=False, num_beams=4)
            summaries[caption] = tokenizer.decode(written[0], skip_special_tokens=True) or caption
        write_text(path, json.dumps(summaries, indent=1))

    return cache.cached_file("summaries", [options.model_dump(), list(captions)], make, suffix=".json")


def _tokens(tokenizer: Any, texts: Sequence[str], limit: int, device: Any) -> dict[str, Tensor]:
    tokens = tokenizer(list(texts), padding=True, truncation=True, max_length=limit, return_tensors="pt")
    return {name: tokens[name].to(device) for name in ("input_ids", "attention_mask")}


def _image(path: Path) -> Any:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except OSError as error:
        raise UserError(f"{path}: is not an image that can be read ({error})") from error
