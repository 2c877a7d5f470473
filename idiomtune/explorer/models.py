"""The models and the corpus of an explorer's page."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from idiomtune.config import ModelSettings, validate
from idiomtune.config.settings import ExploreSettings
from idiomtune.data.idiolink import available_splits, idiolink_root, load_split
from idiomtune.data.names import CV_SPLIT
from idiomtune.data.usages import labelled_usages
from idiomtune.data.user.source import find_sources
from idiomtune.encoder.device import DeviceAndPrecision, choose_device
from idiomtune.errors import UserError
from idiomtune.explorer.search import (
    Corpus,
    Explorer,
    SearchedModel,
    idiolink_corpus,
    training_corpus,
    user_corpus,
)
from idiomtune.glossaries.build import build_encoder
from idiomtune.glossaries.encoder import GlossaryEncoder
from idiomtune.glossaries.records import describe_glossary, glossary_files
from idiomtune.glossaries.tables import glossary_path
from idiomtune.hub.model_card import base_model
from idiomtune.io.files import is_file, is_folder, user_path
from idiomtune.io.records import check_recorded_files, refuse_recorded_code
from idiomtune.io.run_files import read_config, run_and_model
from idiomtune.io.tables import shown_path
from idiomtune.plugins.models import model_settings_of
from idiomtune.plugins.options import as_list

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShownModel:
    """A model on the page.

    Attributes:
        settings: of its base model.
        saved: a checkpoint of a run; None for the model of the settings itself.
    """

    name: str
    about: str
    settings: ModelSettings
    saved: Path | None = None


def explorer_of(options: ExploreSettings) -> tuple[Explorer, str]:
    """All models with the corpus embedded, and the page's title."""
    models = [
        model
        for name in options.models
        for model in find_models(name, trust_remote_code=options.trust_remote_code)
    ]
    glossary = options.glossary and [str(glossary_path(name, "glossary")) for name in options.glossary]
    corpus = find_corpus(options).with_queries(options.queries)
    log.info("%s: %d documents, %d queries", corpus.name, len(corpus.documents), len(corpus.queries))
    placement = choose_device(options.device, "fp32")
    embedded = []
    for i, model in enumerate(models):
        if model not in models[:i]:
            encoder = _encoder(model, glossary, placement)
            describe_glossary(
                model.settings, encoder, {corpus.name: (text.text for text in corpus.documents)}
            )
            embedded.append(SearchedModel.embedding(model.name, model.about, encoder, corpus))
    name = " and ".join(dict.fromkeys(Path(name).name for name in options.models))
    return Explorer(corpus, embedded, options.neighbours), f"{name} on {corpus.name}"


def find_models(name: str, *, trust_remote_code: bool = False) -> list[ShownModel]:
    """The models of a name on the command line: of a run, its model before and after training.

    Args:
        trust_remote_code: run the Python code that comes with the models; no record decides that.

    Raises:
        UserError: if there is no such model, the run has none yet, or its model was loaded with its code.
    """
    path = user_path(name, "model")
    code: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    if (located := run_and_model(path)) is not None:
        run, saved = located
        if not saved.is_dir():
            raise UserError(
                f"{run}: the run has no {saved.name}/ yet; name one of its checkpoints, {run}/step_<n>"
            )
        config, option = read_config(run)["model"], "trust_remote_code=true"
        refuse_recorded_code(config, run / "config.yaml", repeats=trust_remote_code, option=option)
        recorded = _settings(str(config["path"])).model_dump() | config | code  # a record may lack options
        base = validate(ModelSettings, recorded, section="model")
        check_recorded_files(glossary_files(base), run)
        before = base_model({"model": base.model_dump()}).name
        return [
            ShownModel(f"untrained: {before.rpartition('/')[2]}", before, base),
            ShownModel(f"trained: {run.name}", f"{run.name}/{saved.name}", base, saved),
        ]
    settings = _settings(str(path) if is_folder(path) else name, **code)
    return [ShownModel(name, settings.path, settings)]


def _settings(name: str, **options: Any) -> ModelSettings:
    try:
        return model_settings_of(name, **options)
    except ValidationError as error:
        raise UserError(f"model {name}: {error.errors()[0]['msg']}") from None
    except ValueError as error:
        raise UserError(str(error)) from None


def _encoder(model: ShownModel, glossary: list[str] | None, placement: DeviceAndPrecision) -> GlossaryEncoder:
    """The model, with its own meanings or those of `glossary=`."""
    log.info("loading %s", model.name)
    settings = model.settings
    if glossary is None:
        return build_encoder(settings, placement, model.saved)
    defaults = dict.fromkeys(name for name in ModelSettings.model_fields if name.startswith("glossary_"))
    changes: dict[str, Any] = defaults | {"glossary": glossary, "glossary_dropout": 0.0}
    if model.saved is not None:  # as a model of its own, whose meanings can be replaced
        changes |= dict.fromkeys(("revision", "pooling", "include_prompt", "bidirectional", "idiom_tokens"))
        changes["path"] = str(model.saved)
    return build_encoder(settings.model_copy(update=changes), placement, labelled=labelled_usages)


def find_corpus(options: ExploreSettings) -> Corpus:
    """The corpus; by default the data that the first run was scored on: IdioLink, or the user's data.

    Raises:
        UserError: if it does not exist or is wrong.
    """
    if options.corpus == "sample":
        return _idiolink(idiolink_root(None, sample=True), options.split, "the sample")
    if options.corpus is not None:
        path = user_path(options.corpus, "corpus")
        if is_file(path / "indexes.json"):
            return _idiolink(path.parent, path.name, "IdioLink")
        if is_folder(path) and available_splits(path):
            return _idiolink(path, options.split, "IdioLink")
        return user_corpus(path)
    runs = (run_and_model(user_path(name, "model")) for name in options.models)
    trained = next((located for located in runs if located is not None), (Path(), Path()))
    config = read_config(trained[0]) if trained[0] != Path() else {}
    data, benchmark = config.get("data", {}), (config.get("benchmark") or {}).get("idiolink", {})
    for option in ("val", "train"):
        if own := as_list(data.get(option) or []):  # one file is no list in a run's config.yaml
            sources = find_sources(own, f"data.{option}")
            check_recorded_files([source.path for source in sources if source.path], trained[0])
            name = Path(shown_path(Path(own[0]))).name + " (training data)" * (option == "train")
            return training_corpus(sources, name, data.get("columns"), data.get("form"))
    sample = bool(data.get("sample"))
    try:
        root = idiolink_root(data.get("idiolink"), sample=sample)
    except UserError as error:
        raise UserError(f"{error}\n  - or another corpus: corpus=<file or folder>, corpus=sample") from None
    (scored, *_) = as_list(benchmark.get("split") or "val")
    split = options.split or ("val" if scored == CV_SPLIT else scored)
    return _idiolink(root, split, "the sample" if sample else "IdioLink")


def _idiolink(root: Path, split: str | None, name: str) -> Corpus:
    split = split or "val"
    return idiolink_corpus(load_split(root, split), f"{name}, {split}")
