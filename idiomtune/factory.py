"""From settings to objects: objectives, with hard negatives mined for a user's own pairs; saved modules.

Mining is by sentence-transformers, and cached by content.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache as cache_call
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from idiomloss import cosine_similarity, paired_cosine_similarity
from idiomtune.benchmarks import Benchmark
from idiomtune.config import Common, TrainSettings
from idiomtune.data.own.load import Examples, own_splits, read_corpus, read_mined
from idiomtune.declarations.dataset import HELD_OUT, Negatives, OwnData
from idiomtune.declarations.options import Section
from idiomtune.declarations.registry import build_objective as build_declared
from idiomtune.declarations.registry import objective_types, resolve
from idiomtune.encoder.building import build_encoder, empty_encoder
from idiomtune.encoder.device import Placement, place
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.loading import fetch_file, locate_checkpoint
from idiomtune.encoder.parallel import embed_all
from idiomtune.errors import UserError
from idiomtune.io import cache
from idiomtune.io.files import write_jsonl
from idiomtune.io.processes import Processes
from idiomtune.io.terminal import progress_bar
from idiomtune.objectives import Objective, Scored
from idiomtune.objectives.mixture import MixtureOptions
from idiomtune.objectives.own import OwnOptions
from idiomtune.requests import Request, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

D = TypeVar("D", bound=OwnData)
S = TypeVar("S", bound=Section)
# A part's data, its settings, the instruction for its anchors → its options of negatives.
Change = Callable[[OwnData, TrainSettings, str | None], Negatives]

_OPTION = "data.negatives.corpus"


def build_objective(settings: TrainSettings) -> Objective:
    """The objective, its data read and checked against the splits that are scored, hard negatives mined.

    Each pair that is trained on gets negatives from the corpus that its data names. They are mined by the
    base model, once: the cache has them under sums of the pairs, the corpus, the model and the options.

    Raises:
        UserError: if the data is wrong, or a corpus is named for data that are not pairs or is wrong itself.
    """
    settings = _with_own_tokens(_with_negatives(settings, _mined))
    objective: Objective = build_declared(settings, settings.objective)
    return objective


def without_mining(settings: TrainSettings) -> TrainSettings:
    """The same settings without mined negatives, the corpus read and checked: no model is loaded for them.

    Raises:
        UserError: if the corpus is wrong.
    """

    def without(data: OwnData, _: TrainSettings, __: str | None) -> Negatives:
        read_corpus(data.negatives.corpus or [])
        return data.negatives.model_copy(update={"corpus": None})

    return _with_negatives(settings, without)


def _with_negatives(settings: TrainSettings, change: Change) -> TrainSettings:
    """The settings with other options of negatives, in each part of a mixture that names a corpus."""

    def changed(data: D, options: Any, seen: TrainSettings) -> D:
        if data.negatives.corpus is None:
            return data
        instruction = options.instruction if isinstance(options, OwnOptions) else None
        return data.model_copy(update={"negatives": change(seen.data.own, seen, instruction)})

    objective = settings.objective
    if not isinstance(objective, MixtureOptions):
        return settings.model_copy(update={"data": changed(settings.data, objective, settings)})
    parts = {
        name: part.model_copy(update={"data": changed(part.data, part.options, part.seen_by(settings))})
        for name, part in objective.parts.items()
        if part.is_own
    }
    objective = objective.model_copy(update={"parts": objective.parts | parts})
    return settings.model_copy(update={"objective": objective})


def _mined(data: OwnData, settings: TrainSettings, instruction: str | None) -> Negatives:
    options, splits = data.negatives, own_splits(data)
    if splits.train.form != "pairs":
        raise UserError(f"{_OPTION} is for pairs, but the training data are {splits.train.form}")
    try:
        from datasets import Dataset
    except ImportError:
        raise UserError(f"{_OPTION} needs the package datasets: pip install 'idiomtune[data]'") from None
    from sentence_transformers.util import mine_hard_negatives

    names = options.corpus or []
    corpus, files = read_corpus(names)
    pairs = _pairs(splits.train, corpus)
    encoder = build_encoder(settings.model, place(settings.device, settings.precision))

    def mine(path: Path) -> None:
        rows = mine_hard_negatives(
            Dataset.from_dict({"anchor": [a for a, _ in pairs], "positive": [p for _, p in pairs]}),
            _Embedder(encoder, instruction),  # type: ignore[arg-type]
            anchor_column_name="anchor",
            positive_column_name="positive",
            corpus=list(corpus),
            range_min=options.range_min,
            range_max=options.range_max,
            max_score=options.max_score,
            absolute_margin=options.margin,
            num_negatives=options.num,
            output_format="labeled-list",
            verbose=False,
        )
        positives: dict[str, list[str]] = defaultdict(list)
        for anchor, positive in pairs:
            if positive != anchor:
                positives[anchor].append(positive)
        negatives = {row["anchor"]: row["positive"][1:] for row in rows}  # the first is the positive
        write_jsonl(
            path,
            [{"query": a, "pos": positives[a] or [a], "neg": texts} for a, texts in negatives.items()],
        )

    content = [options.model_dump(exclude={"corpus"}), instruction, encoder.digest(), pairs, corpus]
    path = cache.get("negatives", content, mine, suffix=".jsonl")
    mined = read_mined(path)
    log.info(
        "hard negatives: %d for %d of %d anchors, from %d texts (%s)",
        sum(map(len, mined.values())),
        len(mined),
        len({anchor for anchor, _ in pairs}),
        len(corpus),
        ", ".join(names),
    )
    return options.with_mined([*files, path])


def _pairs(examples: Examples, corpus: Sequence[str]) -> list[tuple[str, str]]:
    """Each anchor with every text in reach of the search that is not a negative of it.

    These are its positives, in whichever row; itself; and texts of its group and meaning.
    """
    store = examples.store
    positives: dict[str, dict[str, None]] = defaultdict(dict)
    alike: dict[tuple[int, int], dict[str, None]] = defaultdict(dict)  # group, meaning → texts
    labels: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for row in range(len(examples)):
        num_positives = int(store.num_positives[examples.rows[row]])
        numbers = examples.texts(row)[: 1 + num_positives]
        anchor, *others = (store.read_text(number) for number in numbers)
        positives[anchor] |= dict.fromkeys(others)
        for number, text in zip(numbers, (anchor, *others), strict=True):
            label = (int(store.labels[number, 0]), int(store.labels[number, 1]))
            alike[label][text] = None
            labels[anchor].add(label)
    can_be_found = {*corpus, *(text for texts in positives.values() for text in texts)}
    return [
        (anchor, text)
        for anchor, texts in positives.items()
        for text in dict.fromkeys([*texts, *(t for label in sorted(labels[anchor]) for t in alike[label])])
        if text in can_be_found
    ]


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


class _Embedder:
    """An encoder as `mine_hard_negatives` calls it: anchors are queries, all else documents."""

    def __init__(self, encoder: Encoder, instruction: str | None) -> None:
        self._encoder = encoder.eval()
        self._instruction = instruction

    @property
    def device(self) -> torch.device:
        return self._encoder.device

    def encode_query(self, texts: Sequence[str], **_: Any) -> NDArray[Any]:
        return self._embed(texts, "query", self._instruction)

    def encode_document(self, texts: Sequence[str], **_: Any) -> NDArray[Any]:
        return self._embed(texts, "document", None)

    def _embed(self, texts: Sequence[str], role: Role, instruction: str | None) -> NDArray[Any]:
        requests = [Request(text, role=role, instruction=instruction) for text in texts]
        with progress_bar("mining hard negatives", len(texts)) as advance:
            rows = embed_all(self._encoder, requests, Processes(), advance)
        embeddings: NDArray[Any] = rows.float().cpu().numpy()
        return embeddings

    def similarity(self, a: Any, b: Any) -> Tensor:
        return cosine_similarity(torch.as_tensor(a), torch.as_tensor(b))

    def similarity_pairwise(self, a: Any, b: Any) -> Tensor:
        return paired_cosine_similarity(torch.as_tensor(a), torch.as_tensor(b))


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
