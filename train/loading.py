"""Checkpoints from a folder or the Hugging Face Hub, with errors that say what to do."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling
from torch import nn
from transformers.utils import logging as transformers_logging

from train.errors import UserError
from train.hub import first_line, is_cached, why_unavailable

log = logging.getLogger(__name__)


def load_model(
    path: str,
    *,
    revision: str | None = None,
    device: str | None = None,
    pooling: str | None = None,
    trust_remote_code: bool = False,
) -> SentenceTransformer:
    """A sentence-transformers or plain transformers checkpoint, weights in float32.

    Only safetensors are read: no pickle of an untrusted file is ever opened. Float32 whatever the
    file stores, because bfloat16 master weights lose small updates.

    Raises:
        UserError: if there is no such model, it cannot be reached, or it cannot be loaded.
    """
    local = Path(path).expanduser()
    offline = False
    if local.is_dir():
        if not any((local / name).is_file() for name in ("modules.json", "config.json")):
            best = f"; the run's model is {local / 'best'}" if (local / "best").is_dir() else ""
            raise UserError(
                f"model folder {path} holds neither modules.json (sentence-transformers) nor "
                f"config.json (transformers): give the folder that a model was saved to{best}"
            )
        path = str(local)
    elif local.exists() or path.startswith((".", "/", "~")) or path.count("/") > 1:
        raise UserError(f"model {path} is not a folder; give a model folder or a name on the Hub")
    else:
        reason = why_unavailable(path, "model", revision)
        offline = reason is not None and is_cached(path, revision)
        if offline:
            log.info("the Hub does not answer (%s): using the copy of %s downloaded before", reason, path)
        elif reason is not None:
            raise UserError(
                f"model {path} is no local folder, and the Hugging Face Hub did not give it (offline? "
                f"misspelt? private: log in with `hf auth login`). Reason: {reason}"
            )
    try:
        with quiet():
            model = SentenceTransformer(
                path,
                revision=revision,
                device=device,
                trust_remote_code=trust_remote_code,
                local_files_only=offline,
                model_kwargs={"use_safetensors": True, "dtype": torch.float32},
            )
            if pooling is not None:
                transformer = model[0]
                assert isinstance(transformer, Transformer)
                replaced = _pooling_modules(transformer, pooling)
                prompts = {name: prompt for name, prompt in model.prompts.items() if prompt is not None}
                model = SentenceTransformer(modules=[transformer, *replaced], prompts=prompts, device=device)
        for module in model:
            if isinstance(module, WeightedLayerPooling):
                module.layer_weights.requires_grad_(False)  # a mean of layers, not something to train
    # A broken file can fail anywhere in three libraries, each with errors of its own.
    except Exception as error:
        raise UserError(f"could not load model {path}: {first_line(error)}") from error
    return model


def _pooling_modules(transformer: Transformer, pooling: str) -> list[nn.Module]:
    """`last2`: mean over tokens of the mean of the last two layers (any number); else one of the library's.

    The mean of layers is a module of the library, so that a saved model pools the same way without our code.
    """
    dimension = transformer.get_embedding_dimension()
    assert dimension is not None
    if not (last := re.fullmatch(r"last(\d+)", pooling)):
        return [Pooling(dimension, pooling_mode=pooling)]
    config: Any = transformer.auto_model.config
    num_layers, num_mean = config.num_hidden_layers, int(last[1])
    if not 1 <= num_mean <= num_layers:
        raise ValueError(f"model.pooling={pooling}: the model has {num_layers} layers")
    # Without this the library pools the last layer alone, and says nothing.
    config.output_hidden_states = True
    layers = WeightedLayerPooling(
        dimension, num_hidden_layers=num_layers, layer_start=num_layers + 1 - num_mean
    )
    layers.layer_weights.requires_grad_(False)
    return [layers, Pooling(dimension, pooling_mode="mean")]


@contextmanager
def quiet() -> Iterator[None]:
    """Loading and saving take a moment: the libraries' own bars and messages would only be noise."""
    level = logging.getLogger("sentence_transformers").level
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.getLogger("sentence_transformers").setLevel(logging.WARNING)
    try:
        yield
    finally:
        logging.getLogger("sentence_transformers").setLevel(level)
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
