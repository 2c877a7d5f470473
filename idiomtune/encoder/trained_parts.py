"""Parts that are trained instead of all weights: low-rank adapters (LoRA), or rows of idiom tokens."""

from __future__ import annotations

import copy
import importlib.util
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from idiomtune.config.sections import LoraSettings
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.sharding import local_shard, shard_like
from idiomtune.errors import UserError
from idiomtune.io.records import ADAPTER

if TYPE_CHECKING:
    from peft import LoraConfig

_NAME = "default"  # peft's name for a model's only adapter
_PREFIX = "base_model.model."  # of tensors in peft's files
_TARGETS = "forgetting.lora.target_modules"


def checkpoint_activations(transformer: PreTrainedModel) -> None:
    """Keep no activations within layers in training: the backward pass computes them again.

    Raises:
        UserError: if the architecture does not support it.
    """
    # Renamed in transformers 5.x; the old name is to be removed in 6.
    new_name, old_name = "activation_checkpointing_enable", "gradient_checkpointing_enable"
    try:
        enable = getattr(transformer, new_name, None) or getattr(transformer, old_name)
        # The reentrant form needs inputs that have a gradient, which token ids do not.
        enable({"use_reentrant": False})
    except (AttributeError, ValueError) as error:
        reason = f"{type(transformer).__name__} cannot ({error})"
        raise UserError(reason, option="trainer.activation_checkpointing=true") from None


class Adapters:
    """Adapters that are trained instead of the encoder's weights, which are frozen.

    A linear layer x → W x becomes x → W x + (alpha / rank) B A x, with A (rank, in) drawn and B (out, rank)
    zero, so that nothing changes at first.

    Args:
        encoder: gets the adapters; its other parameters require no gradient any more.
        settings: rank and alpha as above (by default twice the rank); dropout of x on its way to A;
            `target_modules` are names of modules, or the ends of their names: by default all linear layers
            in the transformer's blocks, those of attention and feed-forward.
        seed: of A.
        base_model: name of the base model, for peft's file.

    Raises:
        UserError: if peft is not installed, or the transformer has no such modules.

    References:
        Hu et al. 2021 (arXiv 2106.09685), equation 3.
    """

    def __init__(self, encoder: Encoder, settings: LoraSettings, *, seed: int, base_model: str) -> None:
        self._model: PreTrainedModel = encoder.transformer
        encoder.requires_grad_(False)
        torch.manual_seed(seed)
        self._config = add_adapters(self._model, settings, base_model)
        from peft.tuners.lora import LoraLayer

        self._layers: list[tuple[nn.Module, str, Any]] = []
        for name, module in self._model.named_modules():
            if isinstance(module, LoraLayer):
                parent, _, child = name.rpartition(".")
                self._layers.append((self._model.get_submodule(parent), child, module))
        encoder.eval()

    @contextmanager
    def merging(self) -> Iterator[None]:
        """Within this context the transformer is a plain one, with W + (alpha / rank) B A for W."""
        weights = [layer.get_base_layer().weight for *_, layer in self._layers]
        before = [local_shard(weight).clone() for weight in weights]
        try:
            with torch.no_grad():
                for parent, child, layer in self._layers:
                    plain = layer.get_base_layer()
                    # In place: sharding holds on to the memory of the weights.
                    delta = shard_like(layer.get_delta_weight(_NAME), plain.weight)
                    local_shard(plain.weight).add_(local_shard(delta))
                    setattr(parent, child, plain)
            yield
        finally:
            for parent, child, layer in self._layers:
                setattr(parent, child, layer)
            for weight, old in zip(weights, before, strict=True):  # a copy: undoing the sum would round
                local_shard(weight).copy_(old)

    def save(self, folder: Path) -> None:
        """Write the adapters as peft does: `PeftModel.from_pretrained` puts them onto the base model."""
        from peft import get_peft_model_state_dict

        folder.mkdir(parents=True, exist_ok=True)
        tensors = get_peft_model_state_dict(self._model, adapter_name=_NAME, save_embedding_layers=False)
        weights = {_PREFIX + name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(weights, folder / ADAPTER)
        config = copy.copy(self._config)
        config.inference_mode = True
        config.target_modules = sorted(config.target_modules or ())  # a set, in any order
        config.save_pretrained(str(folder))

    def load(self, folder: Path) -> None:
        """Give the adapters the weights that :meth:`save` wrote."""
        from peft import set_peft_model_state_dict

        tensors = load_file(folder / ADAPTER)
        weights = {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items()}
        set_peft_model_state_dict(self._model, weights, adapter_name=_NAME)


def add_adapters(
    transformer: PreTrainedModel, settings: LoraSettings, base_model: str | None = None
) -> LoraConfig:
    """Put adapters, drawn by torch's generator, into a transformer whose own weights are trained no longer.

    Args:
        settings, base_model: see :class:`Adapters`.

    Returns:
        peft's `LoraConfig`.

    Raises:
        UserError: if peft is not installed, or the transformer has no such modules.
    """
    check_peft()
    from peft import LoraConfig, inject_adapter_in_model

    rank = settings.rank or 1
    config = LoraConfig(
        r=rank,
        lora_alpha=settings.alpha or 2 * rank,  # type: ignore[arg-type]  # an int by its annotation alone
        lora_dropout=settings.dropout,
        target_modules=_targets(transformer, settings.target_modules),
        task_type="FEATURE_EXTRACTION",
        base_model_name_or_path=base_model,
    )
    transformer.requires_grad_(False)
    with warnings.catch_warnings():  # peft asks transformers by a name that has since changed
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        try:
            inject_adapter_in_model(config, transformer, _NAME)
        except ValueError as error:  # a module that is not a linear layer
            raise UserError(str(error).splitlines()[0], option=_TARGETS) from None
    return config


def check_peft() -> None:
    """Raises UserError without the package that adapters come from."""
    if importlib.util.find_spec("peft") is None:
        message = "needs the package peft: pip install peft, or leave it out"
        raise UserError(message, option="forgetting.lora.rank")


def _targets(model: nn.Module, wanted: Sequence[str] | None) -> list[str]:
    """The names of the modules that get an adapter."""
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if wanted is None:
        # Those of the blocks, which are numbered; embeddings do not pass through a pooler or a head.
        inside = [name for name in linear if any(part.isdigit() for part in name.split(".")[:-1])]
        if not inside:
            message = "this model's transformer has no linear layers in numbered blocks"
            raise UserError(f"{message}: name the modules to adapt", option=_TARGETS)
        return inside
    names = [f".{name}" for name, _ in model.named_modules()]
    for end in wanted:
        if not any(name.endswith(f".{end}") for name in names):
            ends = ", ".join(sorted({name.rpartition(".")[2] for name in linear}))
            message = f"the model has no module {end!r}; its linear layers' names end in {ends}"
            raise UserError(message, option=_TARGETS)
    return list(wanted)


class IdiomTokenRows:
    """The rows of the token embedding matrix that belong to idiom tokens.

    A new token occurs in few sentences: at the encoder's learning rate it hardly moves in a run.

    Args:
        encoder: with idiom tokens.
        expressions: those whose tokens are meant; None = all.

    Raises:
        UserError: if it has none; the message names `option`.
    """

    def __init__(self, encoder: Encoder, option: str, expressions: Iterable[str] | None = None) -> None:
        if encoder.idiom_tokens is None:
            message = "the model has no idiom tokens: model.idiom_tokens=train gives it some"
            raise UserError(message, option=option)
        transformer: PreTrainedModel = encoder.transformer
        self._encoder = encoder
        self._weight: nn.Parameter = transformer.get_input_embeddings().weight
        vocabulary = encoder.model.tokenizer.get_vocab()
        token_of = encoder.idiom_tokens.token_of
        ids = [vocabulary[token_of[name]] for name in (token_of if expressions is None else expressions)]
        self._is_idiom_token = torch.zeros(len(self._weight), 1, dtype=torch.bool, device=self._weight.device)
        self._is_idiom_token[torch.tensor(ids, device=self._weight.device)] = True
        self._before: Tensor | None = None

    def train_rows_only(self) -> None:
        """Train these rows only; freeze all else of the encoder."""
        self._encoder.requires_grad_(False)
        self._weight.requires_grad_(True)
        is_other = ~self._is_idiom_token
        self._weight.register_hook(lambda gradient: gradient.masked_fill(is_other, 0.0))  # type: ignore[no-untyped-call]

    def scale_steps(self, optimizer: torch.optim.Optimizer, factor: float) -> None:
        """Multiply the steps of these rows by a factor.

        AdamW's step, decay included, is proportional to its learning rate, so this multiplies their learning
        rate.
        """
        in_this_process = local_shard(shard_like(self._is_idiom_token, self._weight))  # (rows here, 1)
        rows = in_this_process[:, 0].nonzero()[:, 0]

        def before(*_: object) -> None:
            self._before = local_shard(self._weight)[rows]

        def after(*_: object) -> None:
            assert self._before is not None
            weight = local_shard(self._weight)
            weight[rows] = self._before + factor * (weight[rows] - self._before)

        optimizer.register_step_pre_hook(before)
        optimizer.register_step_post_hook(after)
