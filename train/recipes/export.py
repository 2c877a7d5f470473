"""A model for serving: ONNX, 8-bit weights or a table of token vectors, scored next to the model itself."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from train.config import ExportSettings
from train.distributed.device import place
from train.encoder.encoder import Encoder
from train.encoder.onnx_export import check_onnx, check_packages, quantize, write_onnx
from train.encoder.static import write_static
from train.encoder.token_models import TokenModel
from train.errors import UserError
from train.evaluation.suite import Suite
from train.factory import build_benchmarks, build_encoder, embedding_width, own_revisions, resolve_model_path
from train.io.claims import claimed
from train.io.files import fingerprints, write_json
from train.io.paths import expanded, is_file, is_folder
from train.io.records import read_json
from train.recipes.export_record import RECORD, source_of, write_card
from train.recipes.knowledge import glossary_files
from train.reports.export_screen import Comparison, Measured, show_export
from train.reports.runs import SAMPLE_NOTE
from train.training.run_end import explained

log = logging.getLogger(__name__)


def export(settings: ExportSettings) -> Path:
    """Export a model, score both, and leave the export with its card in a new folder.

    Returns:
        That folder.

    Raises:
        UserError: for everything that the user can fix; there is no new folder then.
    """
    if settings.format != "static":
        check_packages(f"format={settings.format}")
    output = expanded(settings.output, "output")
    path = _model_path(settings.model.path)
    model = settings.model.model_copy(update={"path": path})
    own = Path(resolve_model_path(path))
    if is_folder(own) and output.resolve().is_relative_to(own.resolve()):
        raise UserError(f"output={output}: is the model's own folder, or in it: name another")
    claim = claimed("output", output, record=RECORD, overwrite=settings.overwrite)
    with claim as folder, explained("nothing was exported"):
        _export(settings.model_copy(update={"model": model}), folder)
    return output


def _export(settings: ExportSettings, folder: Path) -> None:
    """Score the model, write its export to an empty folder, and score that."""
    naming = glossary_files(settings.model)  # a typo is reported before anything is downloaded
    benchmarks, not_scored = build_benchmarks(settings)
    _check_dimension(settings)
    source = source_of(settings)
    suite = Suite(benchmarks)
    encoder = build_encoder(settings.model, place(settings.device, settings.precision))
    _check_can_be_exported(settings, encoder)
    log.info("scoring the model itself")
    encoder.save(folder)
    original = _measured(suite, encoder, folder)
    shutil.rmtree(folder)
    if settings.format == "static":
        write_static(encoder, folder, settings.truncate_dim)
    else:
        _write_graph(encoder, folder, settings)
    log.info("scoring the export")
    exported = Encoder.from_pretrained(
        folder, device="cpu", span=settings.model.span, tokens_per_forward=encoder.tokens_per_forward
    )
    compared = Comparison(
        model=source.name,
        format=settings.format,
        dimension=exported.dimension,
        original=original,
        export=_measured(suite, exported, folder),
        num_threads=torch.get_num_threads(),
    )
    notes = [SAMPLE_NOTE] * settings.data.sample + [f"Not scored: {name}." for name in not_scored]
    notes += compared.notes
    files = fingerprints([*naming, *(path for benchmark in benchmarks for path in benchmark.files)])
    files |= own_revisions(settings)
    write_card(settings, exported, compared, notes, source, files, folder)
    show_export(compared, notes, all_scores=settings.scores == "all")


def _model_path(named: str) -> str:
    """The path that was named; of a run that of its `best/`.

    Raises:
        UserError: if the run has none yet.
    """
    path = expanded(named, "model")
    if not is_file(path / "run.json"):
        return named
    if not is_folder(path / "best"):
        raise UserError(f"{path}: the run has no best/ yet; name one of its checkpoints, {path}/step_<n>")
    return str(path / "best")


def _check_dimension(settings: ExportSettings) -> None:
    """Check that the model has this many dimensions; `static` may keep all its principal components.

    Raises:
        UserError: otherwise.
    """
    if settings.truncate_dim is None:
        return
    width = embedding_width(settings.model)
    most = width if settings.format == "static" else width - 1
    if settings.truncate_dim > most:
        raise UserError(
            f"truncate_dim={settings.truncate_dim}: embeddings of {width} dimensions cannot be cut to "
            f"{settings.truncate_dim}: name {most} or fewer, or leave it out"
        )


def _check_can_be_exported(settings: ExportSettings, encoder: Encoder) -> None:
    """Refuse a model of which an export would embed in another way.

    Raises:
        UserError: naming the reason and what to do.
    """
    if isinstance(encoder.model[0], TokenModel):
        raise UserError(f"model {settings.model.path} is an export already: name the model it was made of")
    meanings, is_static = encoder.meanings, settings.format == "static"
    if meanings is not None and meanings.gate is not None and (is_static or settings.truncate_dim):
        what = f"format={settings.format}" if is_static else f"truncate_dim={settings.truncate_dim}"
        raise UserError(
            f"{what}: the model weighs its glossary's meanings by usage, with a gate that needs its whole "
            "embeddings: give model.glossary_gate=false, or model.glossary=[] to read none"
        )
    if encoder.raw_spans and (settings.truncate_dim or not isinstance(encoder.model[1], Pooling)):
        raise UserError(
            "model.span=raw: spans are the last hidden states, which an export with truncate_dim, or with "
            "pooling over several layers, does not have: leave model.span unset"
        )
    if is_folder(Path(resolve_model_path(settings.model.path)) / "experts"):
        log.warning("%s/experts is left out: an export embeds, and has no experts", settings.model.path)


def _measured(suite: Suite, encoder: Encoder, folder: Path) -> Measured:
    card = suite.run(encoder)
    num_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return Measured(card.scores, num_bytes, card.num_texts / card.encoder_seconds, card.notes)


def _write_graph(encoder: Encoder, folder: Path, settings: ExportSettings) -> None:
    """The model's folder with an ONNX graph in its weights' place."""
    cut = _cut(encoder, settings.truncate_dim) if settings.truncate_dim else encoder
    cut.save(folder)
    for weights in [*folder.glob("*.safetensors"), *folder.glob("*.safetensors.index.json")]:
        weights.unlink()
    modules = read_json(folder / "modules.json")
    pooling = next(i for i, module in enumerate(modules) if module["type"].endswith(".Pooling"))
    for gone in modules[1:pooling]:  # in the graph
        shutil.rmtree(folder / gone["path"])
    write_json(folder / "modules.json", [modules[0], *modules[pooling:]])
    write_onnx(cut, folder)
    check_onnx(cut, folder)
    if settings.format == "int8":
        quantize(folder)


def _cut(encoder: Encoder, dimensions: int) -> Encoder:
    """The encoder with a layer [I 0] behind its pooling, which any reader of the model has then."""
    modules: list[Any] = list(encoder.model)
    cut = Dense(encoder.dimension, dimensions, bias=False, activation_function=nn.Identity())
    cut.linear.weight.data = torch.eye(dimensions, encoder.dimension)
    at = len(modules) - isinstance(modules[-1], Normalize)
    model = SentenceTransformer(
        modules=[*modules[:at], cut, *modules[at:]],
        prompts={name: prompt for name, prompt in encoder.model.prompts.items() if prompt is not None},
        similarity_fn_name=encoder.model.similarity_fn_name,
        device="cpu",
    )
    return Encoder(
        model,
        encoder.prompts,
        tokens_per_forward=encoder.tokens_per_forward,
        idiom_tokens=encoder.idiom_tokens,
        meanings=encoder.meanings,
    )
