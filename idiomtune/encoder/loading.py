"""Checkpoints from a folder or the Hugging Face Hub, read as a section `model` says."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, WeightedLayerPooling
from sentence_transformers.util import load_file_path
from tokenizers import processors
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.tokenization_auto import get_tokenizer_config
from transformers.utils import logging as transformers_logging

from idiomtune.config import ModelSettings, validate
from idiomtune.config.validation import nearest
from idiomtune.encoder.checks import LoadingReport, check_complete
from idiomtune.encoder.forward import use_short_attention
from idiomtune.encoder.idiom_tokens import FILE as IDIOM_TOKENS
from idiomtune.encoder.idiom_tokens import saved_idiom_tokens
from idiomtune.encoder.reading import prompts_of, special_tokens_around
from idiomtune.encoder.saved_expressions import CONFIG, SAVED_WITH, remove_rules
from idiomtune.encoder.static import StaticTokens, with_token_table
from idiomtune.errors import ArgumentTypeError, UserError
from idiomtune.io.files import (
    is_file,
    is_folder,
    one_line,
    path_text,
    read_json,
    user_path,
)
from idiomtune.io.hub import first_line, is_cached, is_network_error, why_unavailable, without_secrets
from idiomtune.io.records import ADAPTER, ADAPTER_CONFIG, model_folder, module_folders, read_record
from idiomtune.plugins.models import model_names, model_values, near_model_names

log = logging.getLogger(__name__)

_MAX_REASON = 400  # characters
# Tensors of another shape than config.json says are reported by name, and refused, by ourselves.
_WEIGHTS_OPTIONS: dict[str, Any] = {
    "use_safetensors": True,
    "dtype": torch.float32,
    "ignore_mismatched_sizes": True,
}
_WEIGHTS = "model.safetensors"
# In peft's configuration, what makes of the tensors of plain LoRA something else than W + (alpha / rank) B A.
_NO_PLAIN_LORA = ("alpha_pattern", "fan_in_fan_out", "rank_pattern", "use_rslora")


# ---------------------------------------------------------------- where a model is


# Options of loading: the section `model` without options of training.
_NO_OPTIONS = {"path", "about", "idiom_tokens", "idiom_tokens_start", "glossary_dropout"}
T = TypeVar("T")


class Checkpoint(NamedTuple):
    """Where a model is loaded from.

    Attributes:
        path: the folder, or the name on the Hub.
        revision: on the Hub.
        offline: use only what was downloaded before.
    """

    path: str
    revision: str | None
    offline: bool

    def read(self, name: str, make: Callable[[Any], T]) -> T | None:
        """What is made of the content of a file that we saved with the model; None if it has none.

        Raises:
            UserError: if the file is damaged, or is missing though the model was saved with it.
        """
        file = fetch_file(self.path, name, self.revision, local_files_only=self.offline)
        if file is None:
            config = fetch_file(self.path, CONFIG, self.revision, local_files_only=self.offline)
            if config is not None and name in read_json(config).get(SAVED_WITH, []):
                problem = f"{name}, which it was saved with, is missing: bring the file back"
                raise UserError(f"model {self.path}: {problem}")
            return None
        content = read_json(file)
        try:
            return make(content)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = f"is damaged ({type(error).__name__}: {first_line(error)})"
            message = f"{reason}: bring the file back as it was saved with the model"
            raise UserError(message, file=f"{self.path}/{name}") from None


def load_settings(path: str | os.PathLike[str], options: Mapping[str, Any]) -> ModelSettings:
    """The section `model` of the arguments of `Encoder.from_pretrained`.

    Raises:
        UserError: naming an argument that is unknown or wrong.
    """
    names = [name for name in ModelSettings.model_fields if name not in _NO_OPTIONS]
    if others := options.keys() - set(names):
        name = min(others)
        near = "".join(f"; is it {other}?" for other in nearest(name, names))
        raise ArgumentTypeError(f"there is no such argument{near}", option=name)
    text = path_text(path, "path")
    values = {name: value.tolist() if hasattr(value, "dtype") else value for name, value in options.items()}
    return model_settings(text if isinstance(path, str) else Path(text), values)


def model_settings(path: str | Path, options: Mapping[str, Any]) -> ModelSettings:
    """The section `model` of a folder, a Hub id or a name that the command line knows (`conf/model/`).

    Args:
        options: of the section; where one is missing or None, what `conf/model/` has of the model counts.

    Raises:
        UserError: naming an option that is wrong.
    """
    is_name = path in model_names()  # a `Path` never is
    values = model_values(str(path)) if is_name else model_values("pretrained") | {"path": str(path)}
    values |= {name: value for name, value in options.items() if value is not None}
    settings: ModelSettings = validate(ModelSettings, values, section="model")
    return settings


def resolve_model_path(path: str) -> str:
    """`package:<name>/<folder>` as that folder of the installed package; anything else unchanged.

    The name has no dots: looking for a dotted name imports what is before the dot.

    Raises:
        UserError: if the package is not installed.
    """
    if not path.startswith("package:"):
        return path
    package, _, inside = path.removeprefix("package:").partition("/")
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or spec.origin is None:
        install = f"pip install {one_line(package).replace('_', '-')}"
        raise UserError(f"model {one_line(path)}: the package is not installed: {install}")
    return str(Path(spec.origin).parent / inside)


def locate_checkpoint(path: str, revision: str | None = None) -> tuple[str, bool]:
    """The local folder or the name on the Hub, and whether only what was downloaded before is available.

    Raises:
        UserError: if there is no such model, or it cannot be reached.
    """
    if (adapters := _adapter_folder(path)) is not None:
        path = str(_base_of(adapters))
    local = user_path(path := model_folder(resolve_model_path(path)), "model")
    # Where it was one of sentence-transformers, its modules are needed: others would be made up.
    has_modules = is_file(local / "config_sentence_transformers.json")
    if is_file(local / "modules.json") or (is_file(local / "config.json") and not has_modules):
        return str(local), False
    if is_folder(local) or is_file(local) or path.startswith((".", "/", "~")) or path.count("/") > 1:
        needed = "modules.json (sentence-transformers) or config.json (transformers)"
        raise UserError(f"model {path} is not a folder with {needed}, nor a name on the Hub")
    reason = why_unavailable(path, "model", revision)
    if reason is None:
        return path, False
    if is_cached(path, revision):
        log.info("the Hub does not answer (%s): using the copy of %s downloaded before", reason, path)
        return path, True
    near = near_model_names(path)
    raise UserError(
        f"model {path} is not a local folder, and the Hugging Face Hub did not give it (offline? misspelt? "
        f"private: `hf auth login`){': ' + near if near else ''}. Reason: {reason}"
    )


def _adapter_folder(path: str) -> Path | None:
    """The folder of low-rank adapters (peft's files) that a path names; None if it names another model."""
    folder = user_path(model_folder(resolve_model_path(path)), "model")
    is_whole = is_file(folder / "modules.json")
    is_adapter = is_file(folder / ADAPTER) and is_file(folder / ADAPTER_CONFIG)
    return folder if is_adapter and not is_whole else None


def _base_of(folder: Path) -> Path:
    """The folder of the model that adapters belong to.

    Raises:
        UserError: if it is not another folder here; for adapters of another kind than plain LoRA.
    """
    config = read_record(folder / ADAPTER_CONFIG)
    others = [name for name in _NO_PLAIN_LORA if config.get(name)]
    if not isinstance(config.get("init_lora_weights", True), bool):  # PiSSA and others change W too
        others.append("init_lora_weights")
    if others:
        problem = f"its adapters are not plain LoRA ({', '.join(others)})"
        raise UserError(f"model {folder}: {problem}: merge them with peft, and name the whole model's folder")
    base = Path(resolve_model_path(model_folder(config["base_model_name_or_path"])))
    if not is_file(base / _WEIGHTS):
        raise UserError(f"model {folder}: {base}, the base of its adapters, is no folder with {_WEIGHTS}")
    return base


@torch.no_grad()
def _merge_adapters(transformer: PreTrainedModel, folder: Path) -> None:
    """Make each weight W of a model W + (alpha / rank) B A, by the adapters in a folder.

    Raises:
        UserError: if they are damaged, of another kind, or of another model.
    """
    try:
        config, adapters = read_record(folder / ADAPTER_CONFIG), load_file(folder / ADAPTER)
        weights = dict(transformer.named_parameters())
        for name, a in adapters.items():  # (rank, in)
            layer, _, factor = name.removeprefix("base_model.model.").partition(".lora_")
            if factor == "A.weight":
                b = adapters[name.replace(".lora_A.", ".lora_B.")]  # (out, rank)
                weight = weights[f"{layer}.weight"]
                weight += (config["lora_alpha"] / config["r"] * b.float() @ a.float()).to(weight)
            elif factor != "B.weight":  # an embedding's, say
                raise KeyError(name)
    except (KeyError, TypeError, RuntimeError, SafetensorError) as error:
        problem = f"damaged, or not plain LoRA of {config['base_model_name_or_path']}: {first_line(error)}"
        raise UserError(f"model {folder}: its adapters are {problem}") from None


def fetch_file(path: str, name: str, revision: str | None, *, local_files_only: bool) -> Path | None:
    """A file of a checkpoint, downloaded if the checkpoint is on the Hub; None if there is no such file.

    Raises:
        UserError: if it could not be downloaded.
    """
    try:
        file = load_file_path(path, name, revision=revision, local_files_only=local_files_only)
    except Exception as error:
        if not is_network_error(error):
            raise
        raise UserError(f"model {path}: {name} could not be downloaded: {first_line(error)}") from error
    return None if file is None else Path(file)


# ---------------------------------------------------------------- loading


def load_arguments(
    settings: ModelSettings, device: str | None, *, empty: bool
) -> tuple[Checkpoint, dict[str, Any]]:
    """The checkpoint of a section `model`, and the arguments of `Encoder` for it.

    Args:
        empty: see :func:`load_model`.

    Raises:
        UserError: as `Encoder.from_pretrained`.
    """
    if device is not None:
        try:
            torch.empty(0, device=str(device)).tolist()
        except Exception as error:  # of many kinds
            raise UserError(f"must be cpu, cuda or mps: {one_line(str(error))}", option="device") from None
    folder, offline = locate_checkpoint(settings.path, settings.revision)
    checkpoint = Checkpoint(folder, settings.revision, offline)
    model = load_model(folder, settings, device=device, local_files_only=offline, empty=empty)
    tokenizer: PreTrainedTokenizerBase = model.tokenizer
    idioms = checkpoint.read(IDIOM_TOKENS, lambda content: saved_idiom_tokens(content, tokenizer.get_vocab()))
    if idioms is not None:
        remove_rules(tokenizer, idioms.expressions)
        if settings.replace_expressions is not None:
            idioms.replace = settings.replace_expressions
    elif settings.replace_expressions:
        message = f"the model {folder} has no idiom tokens to replace them with"
        raise UserError(message, option="model.replace_expressions=true")
    arguments = {
        "model": model,
        "prompts": prompts_of(model.prompts, settings),
        "tokens_per_forward": settings.tokens_per_forward,
        "idiom_tokens": idioms,
        "raw_spans": settings.span_from == "last_hidden_state",
    }
    return checkpoint, arguments


def load_model(
    path: str,
    settings: ModelSettings,
    *,
    device: str | None = None,
    local_files_only: bool = False,
    empty: bool = False,
) -> SentenceTransformer:
    """A sentence-transformers or plain transformers checkpoint, weights in float32.

    What checkpoints leave open is fixed here, and saved with the model: texts are truncated at its number of
    positions, and a tokenizer whose configuration promises an end token adds it.

    Only safetensors are read: pickles of untrusted files are never opened. Weights are in float32 whatever
    the file stores, because bfloat16 master weights lose small updates.

    Args:
        path: from :func:`locate_checkpoint`.
        settings: what of the model is read in another way than its files say.
        empty: read no weights: for checks of options, and of how texts are read.

    Raises:
        UserError: if it cannot be loaded, is incomplete, or an option does not fit it.
    """
    device = "meta" if empty else device
    if is_folder(Path(path)):
        module_folders(Path(path), trusts_code=settings.trust_remote_code)
    with silence_libraries():
        model = _load_plain(path, settings, device, local_files_only=local_files_only, empty=empty)
        if isinstance(model[0], StaticEmbedding):
            model = with_token_table(model)
        offline = {"local_files_only": local_files_only}
        tokenizer_config = get_tokenizer_config(path, revision=settings.revision, **offline)
    first = model[0]
    transformer: PreTrainedModel | None = first.auto_model if isinstance(first, Transformer) else None
    if not empty:
        tokenizer = first.tokenizer if isinstance(first, Transformer | StaticTokens) else None
        report = transformer and _loading_report(
            path, settings, transformer, local_files_only=local_files_only
        )
        check_complete(path, model, report, tokenizer, transformer)
        if transformer is not None and (adapters := _adapter_folder(settings.path)) is not None:
            _merge_adapters(transformer, adapters)
    for option in ("pooling", "bidirectional"):
        value = getattr(settings, option)
        if value is not None and transformer is None:
            message = f"the model {path} has no transformer to read in another way: leave it out"
            raise UserError(message, option=f"model.{option}={str(value).lower()}")
    if settings.pooling is not None:
        assert isinstance(first, Transformer)
        after = _pooling_modules(first, settings.pooling)
        prompts = {name: prompt for name, prompt in model.prompts.items() if prompt is not None}
        model = SentenceTransformer(modules=[first, *after], prompts=prompts, device=device)
    for module in model:
        if isinstance(module, Pooling) and settings.include_prompt is not None:
            module.include_prompt = settings.include_prompt
        # A plain mean of layers, and a sum of two tokens, are not trained.
        if isinstance(module, WeightedLayerPooling):
            module.layer_weights.requires_grad_(False)
        elif isinstance(module, Dense) and _is_sum(module):
            module.requires_grad_(False)
    if transformer is not None:
        if settings.bidirectional is not None:
            transformer.config.is_causal = not settings.bidirectional
        if _is_bidirectional(model):
            transformer.set_attn_implementation("eager")
        with silence_libraries():  # a class that does not support it keeps its attention, with a warning
            use_short_attention(transformer)
        _ensure_eos(model, tokenizer_config)
        own_code = getattr(transformer.config, "auto_map", None) or {}
        if not settings.trust_remote_code and "AutoModel" in own_code and not empty:
            message = (
                "model %s: its own code is not run; read it first, then model.trust_remote_code=true runs it"
            )
            log.warning(message, path)
    _limit_length(path, model, settings.max_length)
    return model


def _load_plain(
    path: str, settings: ModelSettings, device: str | None, *, local_files_only: bool, empty: bool
) -> SentenceTransformer:
    """The checkpoint as sentence-transformers loads it, from safetensors alone, in float32."""
    options: dict[str, Any] = {**_WEIGHTS_OPTIONS, **({"device_map": "meta"} if empty else {})}
    if local_files_only:  # adapters are looked up separately, with many retries if the Hub does not answer
        options["adapter_kwargs"] = {"local_files_only": True}
    return SentenceTransformer(
        path,
        device=None if empty else device,
        revision=settings.revision,
        local_files_only=local_files_only,
        trust_remote_code=settings.trust_remote_code,
        model_kwargs=options,
    )


def _loading_report(
    path: str, settings: ModelSettings, transformer: PreTrainedModel, *, local_files_only: bool
) -> LoadingReport:
    """What transformers says of the weights in a transformer's files.

    sentence-transformers does not pass it on. On torch's device `meta` no weight is read for it.
    """
    modules = fetch_file(path, "modules.json", settings.revision, local_files_only=local_files_only)
    with silence_libraries():
        _, report = type(transformer).from_pretrained(
            path,
            config=deepcopy(transformer.config),
            subfolder="" if modules is None else read_json(modules)[0]["path"],
            revision=settings.revision,
            local_files_only=local_files_only,
            trust_remote_code=settings.trust_remote_code,
            device_map="meta",
            output_loading_info=True,
            **_WEIGHTS_OPTIONS,
        )
    loaded: LoadingReport = report
    return loaded


@contextmanager
def explaining_loading(path: str) -> Iterator[None]:
    """Within this context, errors of the libraries about a checkpoint become one-line messages.

    A damaged file, or a value of a wrong type in it, makes them fail in any way (a TypeError, say).

    Raises:
        UserError: with the library's own reason.
    """
    try:
        yield
    except (UserError, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        raise UserError(f"could not load model {path}: {why_not_loaded(error)}") from error


def why_not_loaded(error: Exception) -> str:
    """A library's error in one line, with what to do about it."""
    message = f"{type(error).__name__}: {without_secrets(' '.join(str(error).split()))}"
    text = message if len(message) <= _MAX_REASON else message[: _MAX_REASON - 1] + "…"
    if is_network_error(error):
        return f"it could not be downloaded ({text}): try again when the Hub can be reached"
    if "trust_remote_code" in message:
        return "it needs Python code that comes with it: read it, then model.trust_remote_code=true runs it"
    if "safetensors" in message and re.search("does not appear to have a file|no file named", message):
        advice = "convert it (docs/troubleshooting.md), or give a converted one (model.revision=refs/pr/1)"
        return f"it has no safetensors file at this revision, and others may run code when opened: {advice}"
    if "sentencepiece" in message:
        return f"its tokenizer needs a package: pip install 'idiomtune[sentencepiece]' ({text})"
    return f"{text} (one of its files is missing, damaged, or for other versions of the libraries)"


def _pooling_modules(transformer: Transformer, pooling: str) -> list[nn.Module]:
    """The modules of a pooling by its name, for this transformer.

    `last2` is the mean over tokens of the mean of the last two layers (any number is possible); `cls+sep` the
    sum of the first and the last token; all others are the library's. All are modules of the library, so that
    a saved model pools the same way without our code. The sum is a dense layer [I I] on both tokens side by
    side, which is not trained.

    Raises:
        UserError: if there is no such pooling, or the model cannot have it.
    """
    dimension, config = transformer.get_embedding_dimension(), transformer.auto_model.config
    tokenizer: PreTrainedTokenizerBase = transformer.tokenizer
    option = f"model.pooling={pooling}"
    if pooling == "cls+sep":
        ids = tokenizer("a")["input_ids"]
        if ids[0] != tokenizer.cls_token_id or ids[-1] != tokenizer.sep_token_id:
            raise UserError("its tokenizer puts no [CLS] and [SEP] around a text", option=option)
        total = Dense(2 * dimension, dimension, bias=False, activation_function=nn.Identity())
        total.linear.weight.data = torch.eye(dimension).repeat(1, 2)
        return [Pooling(dimension, pooling_mode=("cls", "lasttoken")), total]
    if not (last := re.fullmatch(r"last(\d+)", pooling)):
        if pooling not in Pooling.POOLING_MODES:
            choices = ", ".join(("cls+sep", "last2 (any number)", *Pooling.POOLING_MODES))
            raise UserError(f"not one of {choices}", option=option)
        return [Pooling(dimension, pooling_mode=pooling)]
    num_layers, num_mean = config.num_hidden_layers, int(last[1])
    if not 1 <= num_mean <= num_layers:
        raise UserError(f"the model has {num_layers} layers", option=option)
    # Otherwise the library silently pools the last layer alone.
    config.output_hidden_states = True
    first = num_layers + 1 - num_mean
    layers = WeightedLayerPooling(dimension, num_hidden_layers=num_layers, layer_start=first)
    return [layers, Pooling(dimension, pooling_mode="mean")]


def _is_sum(dense: Dense) -> bool:
    """Whether a dense layer adds up two halves, as that of `cls+sep` does."""
    weight = dense.linear.weight.detach()
    half = weight.shape[0]
    if weight.is_meta or dense.linear.bias is not None or weight.shape[1] != 2 * half:
        return False
    return torch.equal(weight, torch.eye(half, device=weight.device).repeat(1, 2))


def _limit_length(path: str, model: SentenceTransformer, max_length: int | None) -> None:
    """Truncate texts after `max_length` tokens; by default at the checkpoint's limit, or where that is
    greater or missing, at its number of positions.

    Raises:
        UserError: if these are more than the positions, or leave no room for a word.
    """
    first = model[0]
    positions = _num_positions(first.auto_model) if isinstance(first, Transformer) else None
    own = model.max_seq_length
    if max_length is not None and positions is not None and max_length > positions:
        message = f"the model {path} has {positions} positions"
        raise UserError(message, option=f"model.max_length={max_length}")
    limit = own if max_length is None else max_length
    if isinstance(first, StaticTokens | Transformer) and limit is not None:
        needed = first.tokenizer.num_special_tokens_to_add() + 1
        if limit < needed:
            files = "max_seq_length in sentence_bert_config.json, model_max_length in tokenizer_config.json"
            message = f"{limit} tokens ({files}), and a text needs {needed} or more: give model.max_length="
            raise UserError(f"the model {path} reads {message}", option="model.max_length")
    if positions is not None and (limit is None or limit > positions):
        limit = positions
    if limit != own:
        model.max_seq_length = limit


def _num_positions(transformer: PreTrainedModel) -> int | None:
    """The number of token positions of a transformer; None without a limit."""
    limit: int = getattr(transformer.config, "max_position_embeddings", None) or -1
    for name, module in transformer.named_modules():
        # RoBERTa and its relatives count positions from the padding token's id + 1.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            limit -= module.padding_idx + 1
    return limit if limit > 0 else None


def _ensure_eos(model: SentenceTransformer, tokenizer_config: Mapping[str, Any]) -> None:
    """Have the tokenizer add the promised end token, if the last token is pooled.

    E5-Mistral's `tokenizer_config.json` says `add_eos_token`, but its `tokenizer.json` adds none.
    Transformers followed the former up to version 4 and follows the latter since, so the last word would be
    pooled.
    """
    tokenizer: PreTrainedTokenizerBase = model.tokenizer
    # "cls", or of several side by side ("cls", "lasttoken")
    is_last = any("lasttoken" in module.pooling_mode for module in model if isinstance(module, Pooling))
    if not is_last or not tokenizer_config.get("add_eos_token") or not tokenizer.is_fast:
        return
    before, after = special_tokens_around(tokenizer)
    if tokenizer.eos_token is None or tokenizer.eos_token_id in after[-1:]:
        return
    # A single template: with two processors in sequence, truncation counts the tokens of only one.
    after = [*after, tokenizer.eos_token_id]
    head, tail = (list(map(str, tokenizer.convert_ids_to_tokens(ids))) for ids in (before, after))
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=[*head, "$A", *tail],
        pair=[*head, "$A", *tail, "$B", *tail],
        special_tokens=list(dict(zip([*head, *tail], [*before, *after], strict=True)).items()),
    )


def keep_attention(model: SentenceTransformer, folder: Path) -> None:
    """Make sentence-transformers load a bidirectional decoder with attention that ignores padding.

    For a batch without padding transformers passes no mask, and PyTorch's fused attention then treats a
    decoder's layers as causal (transformers 5.23); the plain implementation does not.
    """
    if _is_bidirectional(model):
        path = folder / "sentence_bert_config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config["model_kwargs"] = {"attn_implementation": "eager"}
        path.write_text(json.dumps(config, indent=4), encoding="utf-8")


def _is_bidirectional(model: SentenceTransformer) -> bool:
    """Whether it is a decoder whose tokens attend to later ones."""
    first = model[0]
    return isinstance(first, Transformer) and getattr(first.auto_model.config, "is_causal", None) is False


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Hide the libraries' progress bars and messages while a model is loaded or saved, which is quick.

    Also their table of missing weights, where nobody reads "newly initialized" as "random": what matters of
    it is an error of ours.
    """
    logger = logging.getLogger("sentence_transformers")
    level, verbosity = logger.level, transformers_logging.get_verbosity()
    has_bars = transformers_logging.is_progress_bar_enabled()
    logger.setLevel(logging.WARNING)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(level)
        transformers_logging.set_verbosity(verbosity)
        if has_bars:
            transformers_logging.enable_progress_bar()
