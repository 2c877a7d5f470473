"""What an export says of itself: its card, and `export.json`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling

from train.config import ExportSettings
from train.config.model import named_model
from train.declarations.models import model_names, model_values
from train.encoder.encoder import Encoder
from train.encoder.idiom_tokens import IdiomTokens
from train.encoder.tokenizer_rules import reads_alike
from train.errors import UserError
from train.hub.card import TAGS, card
from train.hub.licences import Source, base_model, common_licence, glossary_sources, sources_of
from train.io.files import write_json, write_text
from train.io.paths import is_file
from train.recipes.knowledge import describe_glossary
from train.reports.export_screen import Comparison
from train.runs.folder import code_version, package_versions
from train.runs.resume import read_config, read_run

RECORD = "export.json"
_NO_LIMIT = 10**9  # tokens; tokenizers without a maximum length give 10^30
# Of a model's options those that decide no embedding, and the path, which the command names by itself.
_NOT_IN_COMMAND = ("path", "about", "convert_weights", "tokens_per_forward", "glossary_dropout")


def source_of(settings: ExportSettings) -> Source:
    """The model: its name, its licence, and on the Hub that of the model it was trained from.

    Of a run's checkpoint they are on record in its card or its run; of a run whose record is damaged, no more
    is known than of a folder.
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
    compared: Comparison,
    notes: Sequence[str],
    source: Source,
    files: Mapping[str, str],
    folder: Path,
) -> None:
    """`README.md`, and all of it as `export.json`, in the form of what `train.evaluate` writes.

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
    write_json(folder / RECORD, {"scores": after.scores, "baseline": before.scores, "meta": meta})


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
    """The command line, without where things lie on this machine."""
    known = next((n for n in model_names() if model_values(n)["path"] == settings.model.path), None)
    usual = named_model(known or "any/model").model_dump(mode="json")
    options = {
        f"model.{option}": value
        for option, value in settings.model.model_dump(mode="json").items()
        if option not in _NOT_IN_COMMAND and value != usual[option]
    }
    cut = {} if settings.truncate_dim is None else {"truncate_dim": settings.truncate_dim}
    options |= {"format": settings.format, **cut}
    given = [f"{option}={_value(option, value)}" for option, value in options.items()]
    words = [f"model={known or name}", *given]
    return " ".join(["python -m train.export", *map(shlex.quote, words), "output=<folder>"])


def _value(option: str, value: Any) -> str:
    """An option's value as the command line takes it; of files their names alone."""
    if isinstance(value, list):
        return f"[{','.join(_value(option, entry) for entry in value)}]"
    if isinstance(value, str):
        text = Path(value).name if option == "model.glossary" else value
        return text if text.replace("_", "").isalnum() else "'" + text.replace("'", "\\'") + "'"
    return "null" if value is None else str(value).lower()
