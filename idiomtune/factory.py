"""From settings to objects: objectives, with hard negatives mined for a user's own pairs; saved modules."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import cache as cache_call
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, TypeVar

from torch import nn

from idiomtune.benchmarks import Benchmark
from idiomtune.config import Common, TrainSettings
from idiomtune.data.own.load import own_splits, read_corpus
from idiomtune.data.own.store import Examples
from idiomtune.declarations.dataset import HELD_OUT, OwnData
from idiomtune.declarations.options import Section
from idiomtune.declarations.registry import build_objective as build_declared
from idiomtune.declarations.registry import objective_types, resolve
from idiomtune.encoder.building import empty_encoder
from idiomtune.encoder.device import Placement, place
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.loading import fetch_file, locate_checkpoint, model_settings
from idiomtune.errors import UserError
from idiomtune.io.files import write_jsonl
from idiomtune.objectives import Objective, Scored
from idiomtune.objectives.mixture import MixtureOptions
from idiomtune.objectives.own import OwnOptions

log = logging.getLogger(__name__)

_OPTION = "data.negatives.number"

D = TypeVar("D", bound=OwnData)
S = TypeVar("S", bound=Section)


def build_objective(settings: TrainSettings, folder: Path | None = None) -> Objective:
    """The objective, its data read and checked against the splits that are scored.

    Args:
        folder: the run's, which keeps the hard negatives that are mined for the user's own pairs; a resumed
            run finds them there. None: none are mined.

    Raises:
        UserError: if the data is wrong, or negatives are asked for data that are not pairs.
    """
    settings = _with_own_tokens(_with_negatives(settings, folder))
    objective: Objective = build_declared(settings, settings.objective)
    return objective


# ------------------------------------------------------------------ hard negatives


def mines_negatives(settings: TrainSettings) -> bool:
    """Whether hard negatives are mined, in a mixture for any part."""
    parts = getattr(settings.objective, "parts", {}).values()
    return any(data.train and data.negatives.number for data in [settings.data, *(p.data for p in parts)])


def _with_negatives(settings: TrainSettings, folder: Path | None) -> TrainSettings:
    """The settings with the negatives of the user's own data, or of the parts of a mixture with such."""

    def mined(data: D, name: str) -> D:
        if not (data.train and data.negatives.number):
            return data
        file = folder and folder / name
        if file is None or not file.exists():
            _mine(settings, getattr(data, "own", data), file)
        return data.model_copy(update={"negatives": data.negatives.mined(file)})

    data, objective = mined(settings.data, "negatives.jsonl"), settings.objective
    if isinstance(objective, MixtureOptions):
        parts = dict(objective.parts)
        for name, part in parts.items():
            parts[name] = part.model_copy(update={"data": mined(part.data, f"negatives_{name}.jsonl")})
        objective = objective.model_copy(update={"parts": parts})
    return settings.model_copy(update={"data": data, "objective": objective})


def _mine(settings: TrainSettings, data: OwnData, file: Path | None) -> None:
    """Write each anchor's negatives, by sentence-transformers; without a file only read the corpus."""
    corpus = read_corpus(data.negatives.corpus or [])
    if file is None:
        return
    try:
        from datasets import Dataset
    except ImportError:
        raise UserError(f"{_OPTION} needs the package datasets: pip install 'idiomtune[data]'") from None
    from sentence_transformers.util import mine_hard_negatives

    options, examples = data.negatives, own_splits(data).train
    if examples.form != "pairs":
        raise UserError(f"{_OPTION} is for pairs, but the training data are {examples.form}")
    model = settings.model if options.model is None else model_settings(options.model, {})
    encoder = Encoder.load(model, device=place(settings.device, settings.precision).device)
    anchors, others = zip(*_not_negatives(examples, corpus), strict=True)
    pairs = Dataset.from_dict({"anchor": anchors, "positive": others})
    more: dict[str, Any] = {"range_min": options.range_min, "range_max": options.range_max}
    more |= {"absolute_margin": options.margin, "num_negatives": options.number}
    more |= {"query_prompt": encoder.prompts.query, "corpus_prompt": encoder.prompts.document}
    more |= {"output_format": "labeled-list", "verbose": False}
    rows = mine_hard_negatives(pairs, encoder.model, corpus=corpus, **more)
    negatives = {row["anchor"]: row["positive"][1:] for row in rows}  # the first is the positive
    counts = sum(map(len, negatives.values())), len(negatives), len(set(anchors))
    log.info("hard negatives: %d for %d of %d anchors", *counts)
    write_jsonl(file, ({"anchor": anchor, "negatives": texts} for anchor, texts in negatives.items()))


def _not_negatives(examples: Examples, corpus: Sequence[str]) -> list[tuple[str, str]]:
    """Each anchor with what can be found of its positives in any row, and of its group and meaning."""
    store, read = examples.store, examples.store.read_text
    alike: dict[bytes, dict[str, None]] = defaultdict(dict)  # group and meaning → texts
    counts = store.num_positives[examples.rows].tolist()
    rows = [list(examples.texts(row)[: 1 + count]) for row, count in enumerate(counts)]
    for text in chain.from_iterable(rows):
        alike[store.labels[text].tobytes()][read(text)] = None
    found = {*corpus, *(read(text) for _, *positives in rows for text in positives)}
    pairs: dict[tuple[str, str], None] = {}
    for anchor, *positives in rows:
        texts = chain(map(read, positives), alike[store.labels[anchor].tobytes()])
        pairs |= {(read(anchor), text): None for text in texts if text in found}
    return list(pairs)


# ------------------------------------------------------------------ special tokens


def _with_own_tokens(settings: TrainSettings) -> TrainSettings:
    """The settings with the model's own mask and separator for those that texts get and no option names."""
    own = cache_call(lambda: _own_tokens(settings))

    def completed(section: S) -> S:
        changes: dict[str, Any] = {}
        for name, value in section:
            if isinstance(value, Section):
                changes[name] = completed(value)
            elif isinstance(value, dict) and any(isinstance(part, Section) for part in value.values()):
                changes[name] = {key: completed(part) for key, part in value.items()}
        for name in getattr(section, "special_tokens", ()):
            if getattr(section, name) is None:
                changes[name] = own()[name]
        return section.model_copy(update=changes)

    return settings.model_copy(update={"objective": completed(settings.objective)})


def _own_tokens(settings: TrainSettings) -> dict[str, str]:
    """The special tokens of the model, or of a resumed run's best; else BERT's.

    A model that has none, or that is out of reach, is refused where the model is checked or loaded.
    """
    berts = {"mask": "[MASK]", "separator": "[SEP]"}
    best = str(Path(settings.resume or "", "best"))
    for model in (settings.model, settings.model.model_copy(update={"path": best, "revision": None})):
        with suppress(UserError):
            tokenizer: Any = empty_encoder(model).model.tokenizer
            own = {"mask": tokenizer.mask_token, "separator": tokenizer.sep_token}
            return {name: own[name] or token for name, token in berts.items()}
    return berts


def own_revisions(settings: Common) -> dict[str, str]:
    """Data set of the Hub → its commit, of those of the user's own data that are read."""
    objective = getattr(settings, "objective", None)
    reading = [settings] if isinstance(objective, OwnOptions) or HELD_OUT in settings.benchmark else []
    if isinstance(objective, MixtureOptions):
        reading = [part.seen_by(settings) for part in objective.parts.values() if part.is_own]
    found: dict[str, str] = {}
    for each in reading:
        if any(name.startswith("hf:") for name in [*(each.data.train or []), *(each.data.val or [])]):
            found |= own_splits(each.data.own).revisions
    return found


# ------------------------------------------------------------------ an objective's modules


def module_benchmarks(
    settings: Common, modules: nn.Module | None, benchmarks: Sequence[Benchmark]
) -> list[Benchmark]:
    """The benchmarks of what an objective trains in addition to the encoder, in a mixture of its parts.

    A module is scored where the benchmark is to whose scores it adds.
    """
    names = {benchmark.name for benchmark in benchmarks}
    parts = modules.modules() if modules is not None else ()
    return [
        part.benchmark(settings) for part in parts if isinstance(part, Scored) and part.scored_by in names
    ]


def saved_modules(path: str, placement: Placement, revision: str | None = None) -> nn.Module | None:
    """The modules of an objective that were saved with a model, or None.

    Args:
        path: a folder, or the name of a model on the Hub.

    Raises:
        UserError: if they are damaged, or could not be downloaded.
    """
    name, offline = locate_checkpoint(path, revision)
    for files, load in {(tuple(one.saved), one.load) for one in objective_types().values() if one.saved}:
        first, *_ = [fetch_file(name, file, revision, local_files_only=offline) for file in files]
        if first is not None:
            folder = first.parents[len(PurePath(files[0]).parts) - 1]  # on the Hub, of what was downloaded
            modules: nn.Module = resolve(load)(folder, placement)
            return modules.to(placement.device)
    return None
