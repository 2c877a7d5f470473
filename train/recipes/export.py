"""A model for serving: ONNX, 8-bit weights or a table of token vectors, scored beside the model itself."""

from __future__ import annotations

import logging
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from train.config import ExportSettings
from train.distributed.device import place
from train.encoder.encoder import Encoder
from train.encoder.idiom_tokens import IdiomTokens
from train.encoder.onnx_export import check_onnx, check_packages, quantize, write_onnx
from train.encoder.static import write_static
from train.encoder.token_models import TokenModel
from train.encoder.tokenizer_rules import reads_alike
from train.errors import UserError
from train.evaluation.suite import Suite
from train.factory import build_benchmarks, build_encoder, check_dimensions, resolve_model_path
from train.hub.export_card import Reading, export_card
from train.hub.licences import base_model, common_licence, glossary_sources
from train.io.files import seal, write_json, write_text
from train.io.paths import check_writable, expanded, is_file, is_folder
from train.io.records import read_json
from train.reports.export_screen import Comparison, Measured, show_export
from train.reports.runs import SAMPLE_NOTE
from train.runs.folder import code_version, package_versions
from train.training.run_end import what_failed
from train.training.signals import stopped_by_sigterm

log = logging.getLogger(__name__)

RECORD = "export.json"
_WORK, _MODEL, _EXPORT = ".export-", "model", "export"


def export(settings: ExportSettings) -> Path:
    """Export a model, score both, and leave the export with its card in a new folder.

    Returns:
        That folder.

    Raises:
        UserError: for everything that the user can mend; there is no new folder then.
    """
    if settings.format != "static":
        check_packages(f"format={settings.format}")
    output = expanded(settings.output, "output")
    path = _model_path(settings.model.path)
    _check_output(output, Path(resolve_model_path(path)), overwrite=settings.overwrite)
    model = settings.model.model_copy(update={"path": path})
    # Beside the new folder, which a rename then makes complete or not at all.
    beside = tempfile.TemporaryDirectory(prefix=_WORK, dir=output.parent)
    with _explained(), stopped_by_sigterm(), beside as work:
        _export(settings.model_copy(update={"model": model}), Path(work))
        if output.exists():
            shutil.rmtree(output)
        (Path(work) / _EXPORT).rename(output)
    return output


def _export(settings: ExportSettings, work: Path) -> None:
    """Score the model, write its export, and score that."""
    benchmarks, not_scored = build_benchmarks(settings)
    if settings.truncate_dim is not None:
        check_dimensions(settings.model, [settings.truncate_dim])
    suite = Suite(benchmarks)
    encoder = build_encoder(settings.model, place(settings.device, settings.precision))
    _check_can_be_exported(settings, encoder)
    log.info("scoring the model itself")
    encoder.save(work / _MODEL)
    original = _measured(suite, encoder, work / _MODEL)
    folder = work / _EXPORT
    if settings.format == "static":
        write_static(encoder, folder, settings.truncate_dim)
    else:
        _write_graph(encoder, folder, settings)
    log.info("scoring the export")
    exported = Encoder.from_pretrained(
        folder, device="cpu", span=settings.model.span, tokens_per_forward=encoder.tokens_per_forward
    )
    compared = Comparison(
        model=_name(settings),
        format=settings.format,
        dimension=exported.dimension,
        original=original,
        export=_measured(suite, exported, folder),
        num_threads=torch.get_num_threads(),
    )
    notes = [SAMPLE_NOTE] * settings.data.sample + [f"Not scored: {name}." for name in not_scored]
    _write_card(settings, exported, compared, notes, folder)
    seal(folder)
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


def _check_output(output: Path, model: Path, *, overwrite: bool) -> None:
    """Check that the folder is new, or an earlier export that may be replaced.

    Raises:
        UserError: otherwise; if it cannot be written.
    """
    check_writable("output", output / "any")
    if is_folder(model) and output.resolve() == model.resolve():
        raise UserError(f"output={output}: is the model's own folder, which stays as it is: name another")
    if not any(output.iterdir()):
        output.rmdir()  # was made just now, or is empty
    elif not is_file(output / RECORD):
        raise UserError(f"output={output}: that folder holds something else: name another, or empty it")
    elif not overwrite:
        raise UserError(f"output={output}: holds an export: overwrite=true replaces it, or name another")


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
    return Measured(card.scores, num_bytes, card.num_texts / card.encoder_seconds)


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
        prompts=encoder.model.prompts,
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


def _write_card(
    settings: ExportSettings,
    exported: Encoder,
    compared: Comparison,
    notes: Sequence[str],
    folder: Path,
) -> None:
    """`README.md`, and all of it as `export.json`, in the form of what `train.evaluate` writes."""
    meanings, idioms = exported.meanings, exported.idiom_tokens
    reads = exported.model.tokenizer
    reading = Reading(
        max_tokens=exported.reader.limit,
        pad_id=reads.pad_token_id,
        query_prompt=exported.prompts.query,
        document_prompt=exported.prompts.document,
        pools_prompts=exported.pools_prompts,
        idiom_tokens=idioms is not None and idioms.replace,
        glossary=meanings.form if meanings is not None else "",
        tokenizer_does=reads_alike(folder, reads, idioms or IdiomTokens({}), meanings),
        only_encoder=_only_encoder(exported),
    )
    base = base_model({"model": settings.model.model_dump()})
    sources = [base, *glossary_sources(None if meanings is None else meanings.about)]
    card = export_card(
        compared,
        reading,
        notes,
        base=base.repo_id,
        licence=common_licence(sources),
        command=_command(settings),
    )
    meta = {
        "model": settings.model.path,
        "config": settings.model_dump(mode="json"),
        "format": settings.format,
        "dimension": compared.dimension,
        "num_threads": compared.num_threads,
        "num_bytes": {"model": compared.original.num_bytes, "export": compared.export.num_bytes},
        "texts_per_second": {
            "model": compared.original.texts_per_second,
            "export": compared.export.texts_per_second,
        },
        "notes": list(notes),
        "code": code_version(),
        "packages": package_versions(),
    }
    write_text(folder / "README.md", card)
    scores, baseline = compared.export.scores, compared.original.scores
    write_json(folder / RECORD, {"scores": scores, "baseline": baseline, "meta": meta})


def _only_encoder(exported: Encoder) -> str:
    """What only `Encoder` does of how the model embeds, in words."""
    does = []
    if exported.meanings is not None and exported.meanings.gate is not None:
        does.append("weighs meanings by usage, literal or idiomatic")
    if exported.meanings is not None and exported.meanings.weight:
        does.append("adds a meaning's own embedding to its sentence's")
    modules = list(exported.model)
    pooling = next(i for i, module in enumerate(modules) if isinstance(module, Pooling))
    if any(not isinstance(module, Normalize) for module in modules[pooling + 1 :]):
        does.append("passes spans through the layers behind the pooling")
    return ", and ".join(does)


def _command(settings: ExportSettings) -> str:
    """The command line, without where things lie on this machine."""
    options = {"format": settings.format, "truncate_dim": settings.truncate_dim, "output": "<folder>"}
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    return f"python -m train.export model={shlex.quote(_name(settings))} {' '.join(given)}"


def _name(settings: ExportSettings) -> str:
    """The model's name on the Hub, or that of its folder; of a checkpoint with its run's."""
    path = Path(settings.model.path)
    if is_file(path.parent / "run.json"):
        return f"{path.parent.name}/{path.name}"
    return base_model({"model": settings.model.model_dump()}).name


@contextmanager
def _explained() -> Iterator[None]:
    """A full disk as an error for people.

    Raises:
        UserError: for a failure of the disk or network; any other error is raised as it is.
    """
    try:
        yield
    except SafetensorError as error:  # its own exception for a full disk
        raise UserError(f"a file could not be written: {error}; nothing was exported") from error
    except OSError as error:
        if (what := what_failed(error)) is None:
            raise
        raise UserError(f"{what}; nothing was exported") from error
