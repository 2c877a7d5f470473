"""Mining hard negatives for a user's own pairs, by sentence-transformers; kept in the cache by content."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from idiomloss import cosine_similarity, paired_cosine_similarity
from train.config import TrainSettings
from train.data.own.mined import read_corpus, read_mined
from train.data.own.store import Examples
from train.declarations.own_data import Negatives, OwnData
from train.declarations.registry import build_objective as build_declared
from train.distributed.device import place
from train.distributed.processes import Processes
from train.encoder.encoder import Encoder
from train.encoder.fingerprint import model_digest
from train.encoder.parallel import embed_all
from train.errors import UserError
from train.factory.encoder import build_encoder
from train.io.files import write_jsonl
from train.io.paths import cache_folder
from train.io.progress import progress_bar
from train.objectives import Objective
from train.objectives.mixture import MixtureOptions
from train.objectives.own import OwnOptions, own_splits
from train.requests import Request, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

D = TypeVar("D", bound=OwnData)

_OPTION = "data.negatives.corpus"


def build_objective(settings: TrainSettings) -> Objective:
    """The objective, its data read and checked against the splits that are scored, hard negatives mined."""
    mined = with_mined_negatives(settings)
    objective: Objective = build_declared(mined, mined.objective)
    return objective


def without_mining(settings: TrainSettings) -> TrainSettings:
    """The same settings without mined negatives, the corpus read and checked: no model is loaded for them.

    Raises:
        UserError: if the corpus is wrong.
    """

    def without(data: OwnData, _: TrainSettings, __: str | None) -> Negatives:
        assert data.negatives.corpus is not None
        read_corpus(data.negatives.corpus)
        return data.negatives.model_copy(update={"corpus": None})

    return _with_negatives(settings, without)


def with_mined_negatives(settings: TrainSettings) -> TrainSettings:
    """The same settings, each pair that is trained on with negatives from the corpus that they name.

    They are mined by the base model, once: the cache keeps them under sums of the pairs, the corpus, the
    model and the options.

    Raises:
        UserError: if the data are no pairs, the corpus is wrong, or a package is missing.
    """
    return _with_negatives(settings, _mined_negatives)


def _with_negatives(
    settings: TrainSettings, change: Callable[[OwnData, TrainSettings, str | None], Negatives]
) -> TrainSettings:
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
    return settings.model_copy(
        update={"objective": objective.model_copy(update={"parts": {**objective.parts, **parts}})}
    )


def _mined_negatives(data: OwnData, settings: TrainSettings, instruction: str | None) -> Negatives:
    options, splits = data.negatives, own_splits(data)
    assert options.corpus is not None
    if splits.train.form != "pairs":
        raise UserError(f"{_OPTION} is for pairs, but the training data are {splits.train.form}")
    _check_datasets()
    corpus, files = read_corpus(options.corpus)
    pairs = _pairs(splits.train, corpus)
    encoder = build_encoder(settings.model, place(settings.device, settings.precision))
    content: list[Any] = [options.model_dump(exclude={"corpus"}), instruction, model_digest(encoder)]
    content += [pairs, corpus]
    key = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    path = cache_folder() / "negatives" / f"{key[:16]}.jsonl"
    if path.is_file():
        log.info("hard negatives: as mined before, %s", path)
    else:
        write_jsonl(path, _mined(options, encoder, pairs, corpus, instruction))
    mined = read_mined(path)
    log.info(
        "hard negatives: %d for %d of %d anchors, from %d texts (%s)",
        sum(map(len, mined.values())),
        len(mined),
        len({anchor for anchor, _ in pairs}),
        len(corpus),
        ", ".join(options.corpus),
    )
    return options.with_mined([*files, path])


def _check_datasets() -> None:
    try:
        import datasets  # noqa: F401
    except ImportError:
        raise UserError(f"{_OPTION} needs the package datasets: pip install 'idiomtune[data]'") from None


def _pairs(examples: Examples, corpus: Sequence[str]) -> list[tuple[str, str]]:
    """Each anchor with all that is no negative of it.

    These are its positives, in whichever row; itself and what has its group and meaning, where found.
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


def _mined(
    options: Negatives,
    encoder: Encoder,
    pairs: Sequence[tuple[str, str]],
    corpus: Sequence[str],
    instruction: str | None,
) -> list[dict[str, Any]]:
    """Rows of pairs with negatives; an anchor for which nothing was found has none."""
    from datasets import Dataset
    from sentence_transformers.util import mine_hard_negatives

    found = mine_hard_negatives(
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
    negatives = {row["anchor"]: row["positive"][1:] for row in found}  # the first is the positive
    return [
        {"query": anchor, "pos": positives[anchor] or [anchor], "neg": texts}
        for anchor, texts in negatives.items()
    ]


class _Embedder:
    """An encoder as `mine_hard_negatives` asks one: anchors are queries, all else documents."""

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
            embeddings: NDArray[Any] = (
                embed_all(self._encoder, requests, Processes(), advance).float().cpu().numpy()
            )
        return embeddings

    def similarity(self, a: Any, b: Any) -> Tensor:
        return cosine_similarity(torch.as_tensor(a), torch.as_tensor(b))

    def similarity_pairwise(self, a: Any, b: Any) -> Tensor:
        return paired_cosine_similarity(torch.as_tensor(a), torch.as_tensor(b))
