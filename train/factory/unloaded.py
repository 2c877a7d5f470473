"""What a checkpoint's files say without its weights: the configuration, and how long texts are."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

import torch
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedConfig

from train.config import ModelSettings
from train.encoder.loading import fetch_file, loading_explained, locate_checkpoint, silence_libraries
from train.encoder.meanings import Meanings
from train.encoder.named import resolve_model_path
from train.encoder.prompts import prompts_of
from train.encoder.reading import Reader, Tokenizer
from train.encoder.spans import tokens_of_span
from train.io.records import read_json
from train.requests import Request


class UnloadedModel:
    """A model of which only the settings files and the tokenizer are read.

    Args:
        settings: of the model.
        meanings: that it reads beside expressions.

    Raises:
        UserError: if there is no such model, or it cannot be reached.
    """

    def __init__(self, settings: ModelSettings, meanings: Meanings | None = None) -> None:
        self._settings = settings
        self._meanings = meanings
        self._found, self._offline = locate_checkpoint(resolve_model_path(settings.path), settings.revision)
        self._modules = self._read("modules.json") or []
        self._folder: str = self._modules[0]["path"] if self._modules else ""
        self._options: dict[str, Any] = {
            "revision": settings.revision,
            "local_files_only": self._offline,
            "trust_remote_code": settings.trust_remote_code,
            "subfolder": self._folder,
        }

    @cached_property
    def config(self) -> PreTrainedConfig:
        """Of its transformer."""
        with silence_libraries():
            config: PreTrainedConfig = AutoConfig.from_pretrained(self._found, **self._options)
        if self._settings.bidirectional is not None:
            config.is_causal = not self._settings.bidirectional
        return config

    @property
    def width(self) -> int | None:
        """The width D of the model's embeddings; None if its files do not say."""
        with loading_explained(self._found):
            for module in reversed(self._modules if self._settings.pooling is None else []):
                kind = str(module["type"]).rpartition(".")[2]
                if kind == "Dense":
                    return int(self._read(f"{module['path']}/config.json")["out_features"])
                if kind == "Pooling":
                    return int(self._pooling_module(module).pooling_output_dimension)
                if kind not in ("Normalize", "Dropout"):
                    return None
            return getattr(self.config, "hidden_size", None) or getattr(self.config, "d_model", None)

    def lengths(self, requests: Sequence[Request]) -> list[int]:
        """The numbers of tokens of the distinct texts of these requests, prompts included."""
        texts = list(dict.fromkeys(text for text, _ in self.reader.render(requests)))
        return [len(tokens.input_ids) for tokens in self.reader.tokenizer(texts)]

    @property
    def pooling(self) -> str | None:
        """The pooling that the files name; None if they name none."""
        for module in self._modules:
            if module["type"].endswith("Pooling"):
                mode = self._pooling_module(module).pooling_mode
                return mode if isinstance(mode, str) else "+".join(mode)
        return None

    def _pooling_module(self, module: dict[str, Any]) -> Pooling:
        options = {name: self._options[name] for name in ("revision", "local_files_only")}
        pooling: Pooling = Pooling.load(self._found, subfolder=module["path"], **options)
        return pooling

    def tokens_of_span(self, request: Request) -> list[int]:
        """The positions of the tokens of a request's span.

        Raises:
            UserError: if it has none within the maximum length.
        """
        ((text, span),) = self.reader.render([request])
        return tokens_of_span(self.reader.tokenizer([text])[0], span, request)

    @cached_property
    def reader(self) -> Reader:
        """How the model reads requests."""
        settings = self._settings
        with silence_libraries():
            tokenizer = AutoTokenizer.from_pretrained(self._found, **self._options)
        said = self._read(str(PurePosixPath(self._folder) / "sentence_bert_config.json")) or {}
        limits = [
            settings.max_length or said.get("max_seq_length"),
            getattr(self.config, "max_position_embeddings", None),
            tokenizer.model_max_length,
        ]
        limit = min(limit for limit in limits if limit and limit > 0)
        prompts = (self._read("config_sentence_transformers.json") or {}).get("prompts") or {}
        model: Any = _TokenizerAlone(tokenizer, limit)
        return Reader(Tokenizer(model), limit, prompts_of(prompts, settings), True, None, self._meanings)

    def _read(self, name: str) -> Any:
        path = fetch_file(self._found, name, self._settings.revision, local_files_only=self._offline)
        return None if path is None else read_json(path)


class _TokenizerAlone:
    """Stands for a model where texts are read."""

    def __init__(self, tokenizer: Any, max_seq_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length

    def __getitem__(self, number: int) -> _TokenizerAlone:
        return self


def empty_transformer(config: PreTrainedConfig, *, trust_remote_code: bool = False) -> nn.Module:
    """The transformer that the encoder has for this configuration, its weights without data."""
    auto: Any = AutoModel
    with torch.device("meta"):
        model = auto.from_config(copy.deepcopy(config), trust_remote_code=trust_remote_code)
    encoder: nn.Module = model.get_encoder() if config.is_encoder_decoder else model
    return encoder
