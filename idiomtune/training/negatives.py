"""Hard negatives for a user's own pairs, mined by sentence-transformers."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from idiomtune.config import TrainSettings
from idiomtune.data.user.load import read_corpus, user_splits
from idiomtune.data.user.text_table import UserExamples
from idiomtune.encoder.device import choose_device
from idiomtune.encoder.loading import model_settings
from idiomtune.errors import UserError
from idiomtune.glossaries.encoder import GlossaryEncoder
from idiomtune.io.files import write_jsonl
from idiomtune.objectives.mixture import MixtureOptions
from idiomtune.plugins.dataset import UserData

log = logging.getLogger(__name__)

_OPTION = "data.negatives.number"

D = TypeVar("D", bound=UserData)


def mines_negatives(settings: TrainSettings) -> bool:
    """Whether hard negatives are mined, in a mixture for any part."""
    return any(data.negatives.number for data in settings.objective.own_data(settings.data).values())


def with_negatives(settings: TrainSettings, folder: Path | None) -> TrainSettings:
    """The settings with the negatives of the user's own data, or of the parts of a mixture with such."""

    def with_file(data: D, name: str) -> D:
        if not (data.train and data.negatives.number):
            return data
        file = folder and folder / name
        if file is None or not file.exists():
            _mine(settings, getattr(data, "user_data", data), file)
        return data.model_copy(update={"negatives": data.negatives.with_file(file)})

    data, objective = with_file(settings.data, "negatives.jsonl"), settings.objective
    if isinstance(objective, MixtureOptions):
        parts = dict(objective.parts)
        for name, part in parts.items():
            parts[name] = part.model_copy(update={"data": with_file(part.data, f"negatives_{name}.jsonl")})
        objective = objective.model_copy(update={"parts": parts})
    return settings.model_copy(update={"data": data, "objective": objective})


def _mine(settings: TrainSettings, data: UserData, file: Path | None) -> None:
    """Write each anchor's negatives, by sentence-transformers; without a file only read the corpus."""
    corpus = read_corpus(data.negatives.corpus or [])
    if file is None:
        return
    try:
        from datasets import Dataset
    except ImportError:
        raise UserError(f"{_OPTION} needs the package datasets: pip install 'idiomtune[data]'") from None
    from sentence_transformers.util import mine_hard_negatives

    options, examples = data.negatives, user_splits(data).train
    if examples.form != "pairs":
        raise UserError(f"{_OPTION} is for pairs, but the training data are {examples.form}")
    model = settings.model if options.model is None else model_settings(options.model, {})
    device = choose_device(settings.device, settings.precision).device
    encoder = GlossaryEncoder.from_pretrained(model, device=device)
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


def _not_negatives(examples: UserExamples, corpus: Sequence[str]) -> list[tuple[str, str]]:
    """Each anchor with its positives in any row, and with texts of its group and meaning."""
    store, read = examples.store, examples.store.read_text
    alike: dict[bytes, dict[str, None]] = defaultdict(dict)  # group and meaning → texts
    counts = store.num_positives[examples.rows].tolist()
    rows = [list(examples.texts(row)[: 1 + count]) for row, count in enumerate(counts)]
    for text in chain.from_iterable(rows):
        alike[store.labels[text].tobytes()][read(text)] = None
    documents = {*corpus, *(read(text) for _, *positives in rows for text in positives)}
    pairs: dict[tuple[str, str], None] = {}
    for anchor, *positives in rows:
        texts = chain(map(read, positives), alike[store.labels[anchor].tobytes()])
        pairs |= {(read(anchor), text): None for text in texts if text in documents}
    return list(pairs)
