"""A model for serving: ONNX, 8-bit weights or a table of token vectors, scored next to the model itself."""

from __future__ import annotations

import logging
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from idiomtune.benchmarks import build_benchmarks
from idiomtune.benchmarks.suite import Suite
from idiomtune.config import ExportSettings
from idiomtune.config.sections import named_model
from idiomtune.declarations.models import model_names, model_values
from idiomtune.encoder.building import build_encoder, empty_encoder
from idiomtune.encoder.device import place
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.exports import check_onnx, check_packages, quantize, write_onnx, write_static
from idiomtune.encoder.idiom_tokens import IdiomTokens, TokenModel
from idiomtune.encoder.loading import resolve_model_path
from idiomtune.encoder.saved_expressions import reads_alike
from idiomtune.errors import UserError
from idiomtune.factory import own_revisions
from idiomtune.hub.card import TAGS, Source, base_model, card, common_licence, glossary_sources, sources_of
from idiomtune.io.claims import claimed
from idiomtune.io.files import (
    changed_files,
    code_version,
    expanded,
    files_in,
    fingerprint,
    fingerprints,
    first_of,
    is_file,
    is_folder,
    package_versions,
    write_json,
    write_text,
)
from idiomtune.io.records import read_record, readable_record
from idiomtune.programs.knowledge import describe_glossary, glossary_files
from idiomtune.programs.launch import as_override
from idiomtune.reports.runs import SAMPLE_NOTE
from idiomtune.reports.screens import ExportComparison, Measured, show_export
from idiomtune.training.ending import explained
from idiomtune.training.run_folder import read_config, read_run

log = logging.getLogger(__name__)

RECORD = "export.json"
_NO_LIMIT = 10**9  # tokens; tokenizers without a maximum length give 10^30
# Of a model's options those that decide no embedding, and the path, which the command names by itself.
_NOT_IN_COMMAND = ("path", "about", "convert_weights", "tokens_per_forward", "glossary_dropout")


def source_of(settings: ExportSettings) -> Source:
    """The model: its name, its licence, and on the Hub that of the model it was trained from.

    Of a run's checkpoint they are on record in its card or its run; of a run whose record is damaged, as for
    any folder.
    """
    folder, model = Path(settings.model.path), base_model({"model": settings.model.model_dump()})
    run = folder.parent
    if not is_file(run / "run.json"):
        return model
    name = f"{run.name}/{folder.name}"
    try:
        made_of = sources_of(read_config(run), read_run(run).get("glossary"))
    except UserError:
        return Source(name, model.licence)
    return Source(name, model.licence or common_licence(made_of), made_of[0].repo_id)


def write_card(
    settings: ExportSettings,
    exported: Encoder,
    compared: ExportComparison,
    notes: Sequence[str],
    source: Source,
    files: Mapping[str, str],
    folder: Path,
) -> None:
    """`README.md`, and all of it as `export.json`, in the form of what `idiomtune evaluate` writes.

    Args:
        notes: on the scores, a sentence each.
        source: the model that was exported.
        files: that were read to score it, with their checksums.
    """
    meanings, idioms, tokenizer = exported.meanings, exported.idiom_tokens, exported.model.tokenizer
    sources = [source, *glossary_sources(None if meanings is None else meanings.about)]
    text = card(
        "exported",
        {
            "tags": [*TAGS, compared.format],
            "license": common_licence(sources),
            "base_model": source.repo_id,
        },
        compared=compared,
        notes=notes,
        command=_command(settings, source.name),
        max_tokens=None if (exported.reader.limit or _NO_LIMIT) >= _NO_LIMIT else exported.reader.limit,
        pad_id=tokenizer.pad_token_id,
        prompts=exported.prompts,
        pools_prompts=exported.pools_prompts,
        idiom_tokens=idioms is not None and idioms.replace,
        glossary=meanings.form if meanings is not None else "",
        # Whether the saved tokenizer puts expressions and meanings into texts by itself.
        tokenizer_does=reads_alike(folder, tokenizer, idioms or IdiomTokens({}), meanings),
        only_encoder=_only_encoder(exported),
    )
    before, after = compared.original, compared.export
    meta = {
        "model": settings.model.path,
        "config": settings.model_dump(mode="json"),
        "format": settings.format,
        "dimension": compared.dimension,
        "num_threads": compared.num_threads,
        "num_bytes": {"model": before.num_bytes, "export": after.num_bytes},
        "texts_per_second": {"model": before.texts_per_second, "export": after.texts_per_second},
        "notes": list(notes),
        "glossary": describe_glossary(settings.model, exported, {}),
        "files": dict(files),
        "code": code_version(),
        "packages": package_versions(),
    }
    write_text(folder / "README.md", text)
    sums = {name: fingerprint(folder / name) for name in files_in(folder)}
    scored = {"scores": after.scores, "baseline": before.scores, "meta": meta}
    write_json(folder / RECORD, {**scored, "exported": sums})


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


def _command(settings: ExportSettings, name: str) -> str:
    """The command line, without where things lie on this machine: of files their names alone."""
    known = next((n for n in model_names() if model_values(n)["path"] == settings.model.path), None)
    usual = named_model(known or "any/model").model_dump(mode="json")
    given = settings.model.model_dump(mode="json")
    given["glossary"] = given["glossary"] and [Path(file).name for file in given["glossary"]]
    options = {
        f"model.{option}": value
        for option, value in given.items()
        if option not in _NOT_IN_COMMAND and value != usual[option]
    }
    cut = {} if settings.truncate_dim is None else {"truncate_dim": settings.truncate_dim}
    options |= {"format": settings.format, **cut}
    words = [f"model={known or name}", *(f"{name}={as_override(value)}" for name, value in options.items())]
    return " ".join(["idiomtune export", *map(shlex.quote, words), "output=<folder>"])


# ------------------------------------------------------------------ the export itself


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
    own = Path(resolve_model_path(settings.model.path))
    if is_folder(own) and output.resolve().is_relative_to(own.resolve()):
        raise UserError(f"output={output}: is the model's own folder, or in it: name another")
    claim = claimed("output", output, record=RECORD, overwrite=settings.overwrite)
    with claim as folder, explained("nothing was exported"):
        _refuse_others(output)
        _export(settings, folder)
        _refuse_others(output)  # again, before it is replaced
    return output


def _refuse_others(folder: Path) -> None:
    """Refuse to replace files that no export has made, or that are not as it made them."""
    sums = readable_record(folder / RECORD).get("exported", {})  # earlier versions recorded none
    there = {*files_in(folder)} - {RECORD}
    if others := sorted(there - {*sums} | there.intersection(changed_files(folder, sums))):
        raise UserError(f"output={folder}: {first_of(others)} is not as an export wrote it: move it")


def _export(settings: ExportSettings, folder: Path) -> None:
    """Score the model, write its export to an empty folder, and score that."""
    naming = glossary_files(settings.model)  # a typo is reported before anything is downloaded
    benchmarks, not_scored = build_benchmarks(settings)
    if settings.truncate_dim is not None:
        width = empty_encoder(settings.model).dimension
        most = width if settings.format == "static" else width - 1  # static may keep all principal components
        if settings.truncate_dim > most:
            raise UserError(
                f"truncate_dim={settings.truncate_dim}: embeddings of {width} dimensions cannot be cut to "
                f"{settings.truncate_dim}: name {most} or fewer, or leave it out"
            )
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
    compared = ExportComparison(
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


def _check_can_be_exported(settings: ExportSettings, encoder: Encoder) -> None:
    """Refuse a model of which an export would embed in another way.

    Raises:
        UserError: naming the reason and what to do.
    """
    if isinstance(encoder.model[0], TokenModel):
        raise UserError(f"model {settings.model.path} is an export already: name the model it was made of")
    meanings, is_static = encoder.meanings, settings.format == "static"
    gate = meanings and meanings.gate
    if gate and (gate.layers or is_static or settings.truncate_dim):
        what = (
            f"format={settings.format}"
            if gate.layers or is_static
            else f"truncate_dim={settings.truncate_dim}"
        )
        raise UserError(
            f"{what}: the model weighs its glossary's meanings by usage, with a gate that needs its hidden "
            "layers, or full embeddings: give model.glossary_gate=false, or model.glossary=[] to read none"
        )
    if encoder.raw_spans and (settings.truncate_dim or not isinstance(encoder.model[1], Pooling)):
        raise UserError(
            "model.span=raw: spans are the last hidden states, which an export with truncate_dim, or with "
            "pooling over several layers, does not have: leave model.span unset"
        )
    if is_folder(Path(resolve_model_path(settings.model.path)) / "experts"):
        log.warning("%s/experts is left out: an export only embeds texts", settings.model.path)


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
    modules = read_record(folder / "modules.json")
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
