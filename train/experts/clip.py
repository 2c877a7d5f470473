"""CLIP beside the text encoder: texts and images in one space, by the classes of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import CLIPImageProcessor, CLIPModel, CLIPTokenizer

from train.errors import UserError
from train.experts.loading import load_pretrained

_CHUNK_SIZE = 32  # images in a forward pass


class ClipTowers:
    """A CLIP model whose text tower's last layers are trained, and nothing else.

    Args:
        model: in float32; put into evaluation mode (published models have no dropout).
        tokenizer, image_processor: of the model.
        path, revision: where it was loaded from.
        trained_layers: how many of the text tower's last layers are trained.

    Raises:
        UserError: if the text tower has fewer layers.
    """

    def __init__(
        self,
        model: CLIPModel,
        tokenizer: Any,
        image_processor: Any,
        *,
        path: str,
        revision: str | None = None,
        trained_layers: int = 2,
    ) -> None:
        self._model: Any = model
        self._model.eval().requires_grad_(False)  # type: ignore[no-untyped-call]
        self._tokenizer = tokenizer
        self._image_processor = image_processor
        self._images: dict[Path, Tensor] = {}
        self.path = path
        self.revision = revision
        self.trained_layers = trained_layers
        layers = list(self._model.text_model.encoder.layers)
        if trained_layers > len(layers):
            raise UserError(
                f"objective.clip.trained_layers={trained_layers}: the text tower of {path} has {len(layers)}"
            )
        self.module: nn.Module = nn.ModuleList(layers[len(layers) - trained_layers :]).requires_grad_(True)

    @classmethod
    def from_pretrained(
        cls, path: str, *, revision: str | None = None, trained_layers: int = 2
    ) -> ClipTowers:
        """Load a CLIP model in transformers' format: only safetensors, and no code from the checkpoint.

        Args:
            path: a local folder, or the name of a model on the Hugging Face Hub.
            revision: branch, tag or commit on the Hub.

        Raises:
            UserError: if there is no such model, it cannot be reached, or it is no CLIP.
        """
        try:
            model, tokenizer, image_processor = load_pretrained(
                path, revision, CLIPModel, CLIPTokenizer, CLIPImageProcessor
            )
        except UserError as error:
            raise _no_clip(path, str(error)) from error
        return cls(
            model, tokenizer, image_processor, path=path, revision=revision, trained_layers=trained_layers
        )

    def twin(self) -> ClipTowers:
        """The same model with a text tower of its own; the frozen image tower and its images are shared."""
        shared = (self._model.vision_model, self._model.visual_projection)
        twin = ClipTowers(
            deepcopy(self._model, {id(module): module for module in shared}),
            self._tokenizer,
            self._image_processor,
            path=self.path,
            revision=self.revision,
            trained_layers=self.trained_layers,
        )
        twin._images = self._images
        return twin

    @property
    def width(self) -> int:
        """W, of both towers' projections."""
        width: int = self._model.config.projection_dim
        return width

    def texts(self, texts: Sequence[str]) -> Tensor:
        """(N, W), each distinct text embedded once; texts are truncated at the model's positions (77)."""
        distinct = list(dict.fromkeys(texts))
        tokens = self._tokenizer(
            distinct,
            padding=True,
            truncation=True,
            max_length=self._model.config.text_config.max_position_embeddings,
            return_tensors="pt",
        )
        inputs = {name: tokens[name].to(self._device()) for name in ("input_ids", "attention_mask")}
        numbers = {text: number for number, text in enumerate(distinct)}
        rows = torch.tensor([numbers[text] for text in texts], device=self._device())
        return _features(self._model.get_text_features(**inputs))[rows]

    def images(self, paths: Sequence[Path]) -> Tensor:
        """(N, W); the tower is frozen, so each image is read and embedded once in a run.

        Raises:
            UserError: if a file is no image.
        """
        new = [path for path in dict.fromkeys(paths) if path not in self._images]
        for start in range(0, len(new), _CHUNK_SIZE):
            chunk = new[start : start + _CHUNK_SIZE]
            pixels = self._image_processor(images=[_read(path) for path in chunk], return_tensors="pt")
            with torch.no_grad():
                features = _features(
                    self._model.get_image_features(pixels["pixel_values"].to(self._device()))
                )
            self._images |= dict(zip(chunk, features.cpu(), strict=True))
        return torch.stack([self._images[path] for path in paths]).to(self._device())

    def _device(self) -> torch.device:
        """The device of the trained layers, to which the rest of the model, no submodule, is moved."""
        device: torch.device = next(iter(self._model.text_model.encoder.layers[-1].parameters())).device
        if self._model.text_projection.weight.device != device:
            self._model.to(device)
        return device


def _no_clip(path: str, reason: str) -> UserError:
    return UserError(
        f"objective.clip.path={path}: could not be loaded as a CLIP model: {reason}\n"
        "  - name a folder with config.json, model.safetensors, the tokenizer's and the image "
        "processor's files, or such a model on the Hub (openai/clip-vit-base-patch32)\n"
        "  - without CLIP: objective.clip.path=null, the text-only experts"
    )


def _features(output: Any) -> Tensor:
    """transformers gives the features alone or, since version 5, in an output object."""
    features: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return features


def _read(path: Path) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise UserError(f"{path}: is no image that can be read ({error})") from error
