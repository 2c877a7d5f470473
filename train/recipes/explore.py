"""Models, before and after training, and a corpus, into the page of `train.explore`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from train.config import ModelSettings, check
from train.config.model import named_model
from train.data.idiolink import available_splits, load_split
from train.data.idiolink_source import idiolink_root
from train.data.names import CV_SPLIT
from train.data.own.sources import find_sources
from train.declarations.options import as_list
from train.distributed.device import Placement, place
from train.encoder.encoder import Encoder
from train.errors import UserError
from train.explorer.corpus import Corpus, idiolink_corpus, own_corpus, training_corpus
from train.explorer.options import Options
from train.explorer.page import FILE, page, space_card
from train.explorer.search import Explorer, Model
from train.explorer.server import bound_socket, check_can_serve, serve
from train.factory import build_encoder, glossary_path
from train.hub.licences import base_model
from train.hub.upload import run_and_model
from train.io.claims import claimed
from train.io.files import write_text
from train.io.logs import log_to_stderr
from train.io.paths import expanded, is_file, is_folder
from train.io.text import printable
from train.recipes.learning_state import read_record
from train.runs.resume import read_config

log = logging.getLogger(__name__)

_SAMPLE = "sample"


@dataclass(frozen=True)
class Named:
    """A model that is to be shown.

    Attributes:
        settings: of its base model.
        saved: a checkpoint of a run; None for the model of the settings itself.
    """

    name: str
    about: str
    settings: ModelSettings
    saved: Path | None = None


def explore(options: Options) -> None:
    """Serve the page until Ctrl-C, or write it.

    Raises:
        UserError: for everything that the user can mend.
    """
    log_to_stderr()
    if options.space is not None:
        write_space(options, options.space)
        print(printable(str(options.space / FILE)))
    elif options.output is not None:
        with claimed("output", options.output, overwrite=options.overwrite) as file:
            explorer, title = _explorer(options)
            write_text(file, page(explorer, title, live=False))
        print(printable(str(options.output)))
    else:
        check_can_serve()
        with bound_socket(options.port) as listening:
            explorer, title = _explorer(options)
            serve(explorer, page(explorer, title, live=True), listening)


def write_space(
    options: Options, folder: Path, metadata: Mapping[str, Any] | None = None, note: str = ""
) -> None:
    """Write the page and its README as a static Space; `metadata`, `note`: as of :func:`space_card`.

    Raises:
        UserError: for everything that the user can mend.
    """
    with (
        claimed("space", folder / FILE, overwrite=options.overwrite) as file,
        claimed("space", folder / "README.md", overwrite=options.overwrite) as card,
    ):
        explorer, title = _explorer(options)
        write_text(file, page(explorer, title, live=False))
        write_text(card, space_card(title, explorer.corpus.name, metadata or {}, note))


def _explorer(options: Options) -> tuple[Explorer, str]:
    """All models with the corpus embedded, and the page's title."""
    named = [model for name in options.models for model in find_models(name)]
    glossary = options.glossary and [str(glossary_path(name, "glossary")) for name in options.glossary]
    corpus = find_corpus(options).with_queries(options.queries)
    log.info("%s: %d documents, %d queries", corpus.name, len(corpus.documents), len(corpus.queries))
    placement = place(options.device, "fp32")
    distinct = [model for i, model in enumerate(named) if model not in named[:i]]
    models = [
        Model.embedding(model.name, model.about, _encoder(model, glossary, placement), corpus)
        for model in distinct
    ]
    name = options.name or " and ".join(dict.fromkeys(Path(name).name for name in options.models))
    return Explorer(corpus, models, options.neighbours), f"{name} on {corpus.name}"


def find_models(name: str) -> list[Named]:
    """What a name on the command line stands for: of a run its model before and after training.

    Raises:
        UserError: if there is no such model, or the run has none yet.
    """
    path = expanded(name, "model")
    if (found := run_and_model(path)) is not None:
        run, saved = found
        if not saved.is_dir():
            raise UserError(
                f"{run}: the run has no {saved.name}/ yet; name one of its checkpoints, {run}/step_<n>"
            )
        config = read_config(run)["model"]
        defaults = _settings(str(config["path"])).model_dump()  # for options that are newer than the run
        settings: ModelSettings = check(ModelSettings, defaults | config, section="model")
        about = f"{run.name}/{saved.name}"
        return [_untrained(settings), Named(f"trained: {run.name}", about, settings, saved)]
    if (taught := read_record(path)) is not None:
        options = {key: value for key, value in taught["options"].items() if not key.startswith("glossary")}
        base = _settings(taught["model"]).model_copy(update=options)
        return [_untrained(base), Named(f"taught: {path.name}", str(path), _settings(str(path)))]
    settings = _settings(str(path) if is_folder(path) else name)
    return [Named(name, settings.path, settings)]


def _settings(name: str) -> ModelSettings:
    try:
        return named_model(name)
    except ValidationError as error:
        raise UserError(f"model {name}: {error.errors()[0]['msg']}") from None
    except ValueError as error:
        raise UserError(str(error)) from None


def _untrained(settings: ModelSettings) -> Named:
    name = base_model({"model": settings.model_dump()}).name
    return Named(f"untrained: {name.rpartition('/')[2]}", name, settings)


def _encoder(model: Named, glossary: list[str] | None, placement: Placement) -> Encoder:
    """The model, with its own meanings or those of `glossary=`."""
    log.info("loading %s", model.name)
    settings = model.settings
    if glossary is None:
        return build_encoder(settings, placement, model.saved)
    ours = dict.fromkeys(name for name in ModelSettings.model_fields if name.startswith("glossary_"))
    changes: dict[str, Any] = ours | {"glossary": glossary, "glossary_dropout": 0.0}
    if model.saved is not None:  # as a model of its own, whose meanings can be replaced
        changes |= dict.fromkeys(("revision", "pooling", "pool_prompts", "bidirectional", "idiom_tokens"))
        changes |= {"path": str(model.saved), "convert_weights": False}
    return build_encoder(settings.model_copy(update=changes), placement)


def find_corpus(options: Options) -> Corpus:
    """What is searched; by default what the first run was scored on: IdioLink, or the user's own data.

    Raises:
        UserError: if it is not there or wrong.
    """
    if options.corpus == _SAMPLE:
        return _idiolink(idiolink_root(None, sample=True), options.split, "the sample")
    if options.corpus is not None:
        path = expanded(options.corpus, "corpus")
        if is_file(path / "indexes.json"):
            return _idiolink(path.parent, path.name, "IdioLink")
        if is_folder(path) and available_splits(path):
            return _idiolink(path, options.split, "IdioLink")
        return own_corpus(path)
    found = (run_and_model(expanded(name, "model")) for name in options.models)
    config = next((read_config(one[0]) for one in found if one is not None), {})
    data, benchmark = config.get("data", {}), (config.get("benchmark") or {}).get("idiolink", {})
    if own := as_list(
        data.get("val") or data.get("train") or []
    ):  # one file is no list in a run's config.yaml
        option = f"data.{'val' if data.get('val') else 'train'}"
        columns, form = data.get("columns"), data.get("form")
        return training_corpus(find_sources(own, option), Path(own[0]).name, columns, form)
    sample = bool(data.get("sample"))
    scored = benchmark.get("split") or "val"
    split = scored if isinstance(scored, str) else scored[0]
    try:
        root = idiolink_root(data.get("root"), sample=sample)
    except UserError as error:
        raise UserError(f"{error}\n  - or another corpus: corpus=<file or folder>, corpus=sample") from None
    name = "the sample" if sample else "IdioLink"
    return _idiolink(root, options.split or ("val" if split == CV_SPLIT else split), name)


def _idiolink(root: Path, split: str | None, name: str) -> Corpus:
    split = split or "val"
    return idiolink_corpus(load_split(root, split), f"{name}, {split}")
