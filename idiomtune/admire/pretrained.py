"""The pretrained models that a scorer uses besides the run's encoder: CLIP, a BERT, a summariser of captions.

Only safetensors are loaded, and no code from the checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    CLIPImageProcessor,
    CLIPModel,
    CLIPTokenizer,
)

from idiomtune.admire import CaptionOptions, Clip, SenseModel
from idiomtune.data.admire import first_words
from idiomtune.encoder.checks import check_complete, loading_reports
from idiomtune.encoder.loading import (
    locate_checkpoint,
    silence_libraries,
    why_not_loaded,
)
from idiomtune.errors import UserError
from idiomtune.io.files import cache_folder, read_json, write_text
from idiomtune.io.terminal import progress_bar

log = logging.getLogger(__name__)

_IMAGES_AT_ONCE = 32


def load_pretrained(path: str, revision: str | None, model_class: Any, *others: Any) -> tuple[Any, ...]:
    """A model in float32, its tokenizer, and what else belongs to it, by the classes of transformers.

    Args:
        path: a local folder, or the name of a model on the Hugging Face Hub.
        revision: branch, tag or commit on the Hub.
        others: classes of the tokenizer, and of further parts.

    Raises:
        UserError: why it cannot be loaded, or that it is incomplete; the caller knows the option.
    """
    name, offline = locate_checkpoint(path, revision)
    options: dict[str, Any] = {"revision": revision, "trust_remote_code": False, "local_files_only": offline}
    try:
        with silence_libraries(), loading_reports() as reports:
            model = model_class.from_pretrained(name, use_safetensors=True, dtype=torch.float32, **options)
            rest = [each.from_pretrained(name, **options) for each in others]
    except MemoryError:
        raise
    except Exception as error:
        raise UserError(why_not_loaded(error)) from error
    check_complete(name, model, reports, rest[0])
    return (model, *rest)


class ClipTowers(nn.ModuleList):
    """A CLIP model: texts and images in one space of W dimensions.

    Of its parts only the last layers of the text tower are trained. As a module it is these layers, so that
    nothing else is saved.

    Args:
        parts: the model, its tokenizer and its image processor.
        trained_layers: number of text layers.
        images: embeddings computed so far, by file.
    """

    def __init__(self, parts: tuple[Any, Any, Any], trained_layers: int, images: dict[Path, Tensor]) -> None:
        layers = parts[0].text_model.encoder.layers
        super().__init__(layers[len(layers) - trained_layers :])
        self._parts = parts  # in a tuple, they are not submodules
        self._images = images
        self.width: int = parts[0].config.projection_dim

    @classmethod
    def load(cls, clip: Clip) -> Self:
        """The model that the options name.

        Raises:
            UserError: if there is no such model, it cannot be reached, it is not a CLIP, or its text tower
                has fewer layers than are to be trained.
        """
        assert clip.path is not None
        kinds = (CLIPModel, CLIPTokenizer, CLIPImageProcessor)
        try:
            model, tokenizer, processor = load_pretrained(clip.path, clip.revision, *kinds)
        except UserError as error:
            raise UserError(
                f"objective.clip.path={clip.path}: could not be loaded as a CLIP model (a folder, or a name "
                f"on the Hub such as openai/clip-vit-base-patch32): {error}\n"
                "  - without CLIP: objective=admire objective.clip.path=null, the text-only experts"
            ) from error
        num_layers = len(model.text_model.encoder.layers)
        if clip.trained_layers > num_layers:
            raise UserError(
                f"objective.clip.trained_layers={clip.trained_layers}: the text tower of {clip.path} has "
                f"{num_layers}"
            )
        model.eval().requires_grad_(False)  # published models have no dropout
        return cls((model, tokenizer, processor), clip.trained_layers, {}).requires_grad_(True)

    @property
    def model(self) -> Any:
        """The whole model."""
        return self._parts[0]

    def twin(self) -> ClipTowers:
        """The same model with a text tower of its own; the frozen image tower and its images are shared."""
        model, tokenizer, processor = self._parts
        shared = (model.vision_model, model.visual_projection)
        copied = deepcopy(model, {id(module): module for module in shared})
        return ClipTowers((copied, tokenizer, processor), len(self), self._images)

    def texts(self, texts: Sequence[str]) -> Tensor:
        """(N, W), each distinct text embedded once; texts are truncated at the model's positions (77)."""
        model, tokenizer, _ = self._parts
        distinct = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        limit, device = model.config.text_config.max_position_embeddings, self._device()
        features = model.get_text_features(**_tokens(tokenizer, list(distinct), limit, device)).pooler_output
        rows: Tensor = features[torch.tensor([distinct[text] for text in texts], device=device)]
        return rows

    def images(self, paths: Sequence[Path]) -> Tensor:
        """(N, W), without a graph; each image is read and embedded once in a run.

        Raises:
            UserError: if a file is not an image.
        """
        model, _, processor = self._parts
        device = self._device()
        new = [path for path in dict.fromkeys(paths) if path not in self._images]
        for start in range(0, len(new), _IMAGES_AT_ONCE):
            chunk = new[start : start + _IMAGES_AT_ONCE]
            pixels = processor(images=[_image(path) for path in chunk], return_tensors="pt")["pixel_values"]
            with torch.no_grad():
                images = model.get_image_features(pixels.to(device)).pooler_output.cpu()
            self._images |= dict(zip(chunk, images, strict=True))
        return torch.stack([self._images[path] for path in paths]).to(device)

    def _device(self) -> torch.device:
        """The device of the trained layers, to which the rest, which is not a submodule, is moved."""
        model = self.model
        device: torch.device = next(model.text_model.encoder.layers[-1].parameters()).device
        if model.text_projection.weight.device != device:
            model.to(device)
        return device


class SenseEncoder(nn.Module):
    """A BERT of its own: texts to sense vectors, in CLIP's space, and the logit of the idiomatic sense.

    The first token's (`[CLS]`) last state counts, H numbers.

    Args:
        sense: names the model.
        width: W, of CLIP. Where H differs, a linear layer maps to it: the paper's are both 768.

    Raises:
        UserError: if there is no such model, or it cannot be loaded.
    """

    def __init__(self, sense: SenseModel, width: int) -> None:
        super().__init__()
        try:
            self.transformer, self._tokenizer = load_pretrained(
                sense.path, sense.revision, AutoModel, AutoTokenizer
            )
        except UserError as error:
            raise UserError(
                f"objective.sense_encoder.path={sense.path}: could not be loaded as a BERT (a folder, or a "
                f"name on the Hub such as google-bert/bert-base-uncased): {error}"
            ) from error
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


class Captions:
    """Captions as experts read them: of at most `words` words.

    A summary is the model's own (beam search, nothing is drawn), each caption alone, cut if it is still too
    long. Summaries are cached, in a folder for each model: a file for each set of captions, named by the
    SHA-256 of its content. So no caption is summarised twice, and a resumed run, whose record has the file's
    sum, reads the same summaries.

    If the summariser cannot be loaded, captions without a summary are cut; a warning and `note` report it.

    Args:
        options: the words of a caption, and the sequence-to-sequence model that summarises (BART); without
            one, captions are cut.
        device: of the summariser.

    Attributes:
        note: how captions are shortened, for the log and the record.
    """

    def __init__(self, options: CaptionOptions, device: str) -> None:
        self._options, self._device = options, device
        self._summariser = options.summariser
        self.note = (
            f"captions cut after {options.words} words"
            if options.summariser is None
            else f"captions of more than {options.words} words summarised by {options.summariser}"
        )
        model = hashlib.sha256(json.dumps(options.model_dump()).encode()).hexdigest()[:16]
        self._folder = cache_folder() / "summaries" / model
        self._summaries: dict[str, str] = {}

    def __call__(self, caption: str) -> str:
        """A caption of at most `words` words; cut if it was not prepared."""
        return first_words(self._summaries.get(caption, caption), self._options.words)

    def prepare(self, captions: Iterable[str]) -> list[Path]:
        """Summarise those that are too long, unless the cache has them.

        Returns:
            The cached file of these summaries; none if captions are cut, or all short.
        """
        long = sorted({c for c in captions if len(c.split()) > self._options.words})
        if self._summariser is None or not long:
            return []
        if not self._summaries:
            for path in sorted(self._folder.glob("*.json")):
                self._summaries |= read_json(path)
        new = [caption for caption in long if caption not in self._summaries]
        try:
            self._summaries |= self._summarise(self._summariser, new) if new else {}
        except UserError as error:
            cut = f"{len(new)} captions cut after {self._options.words} words"
            self.note = f"{cut}: no summary by {self._summariser}"
            log.warning(
                "objective.captions.summariser=%s could not be loaded, %s: %s", self._summariser, cut, error
            )
            self._summariser = None
            return []
        content = json.dumps({caption: self._summaries[caption] for caption in long}, indent=1)
        path = self._folder / f"{hashlib.sha256(content.encode()).hexdigest()}.json"
        if not path.is_file():
            write_text(path, content)
        return [path]

    @torch.no_grad()
    def _summarise(self, path: str, captions: Sequence[str]) -> dict[str, str]:
        """Raises UserError if the summariser cannot be loaded."""
        model, tokenizer = load_pretrained(path, self._options.revision, AutoModelForSeq2SeqLM, AutoTokenizer)
        model.to(self._device).eval()
        limit: int = model.config.max_position_embeddings
        summaries = {}
        log.info("summarising %d captions by %s", len(captions), path)
        with progress_bar("summarising", len(captions)) as advance:
            for caption in captions:
                inputs = _tokens(tokenizer, [caption], limit, self._device)
                written = model.generate(**inputs, do_sample=False, num_beams=4)
                text = tokenizer.decode(written[0], skip_special_tokens=True)
                summaries[caption] = first_words(text, self._options.words) or caption
                advance(1)
        return summaries


def _tokens(
    tokenizer: Any, texts: Sequence[str], limit: int, device: torch.device | str
) -> dict[str, Tensor]:
    tokens = tokenizer(list(texts), padding=True, truncation=True, max_length=limit, return_tensors="pt")
    return {name: tokens[name].to(device) for name in ("input_ids", "attention_mask")}


def _image(path: Path) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise UserError(f"{path}: is not an image that can be read ({error})") from error
