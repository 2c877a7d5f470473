"""What is held out of a user's own training data, as a benchmark; and the revisions of what is read."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from train.benchmarks.own import HELD_OUT, OwnValOptions
from train.benchmarks.own.held_out import OwnValBenchmark
from train.config import Common
from train.data.own.load import OwnSplits
from train.objectives.mixture import MixtureOptions
from train.objectives.own import OwnOptions, own_splits

log = logging.getLogger(__name__)


def own_revisions(settings: Common) -> dict[str, str]:
    """Data set of the Hub → its commit, of those of the user's own data that are read."""
    objective = getattr(settings, "objective", None)
    reading = [settings] if isinstance(objective, OwnOptions) or HELD_OUT in settings.benchmark.names else []
    if isinstance(objective, MixtureOptions):
        reading = [part.seen_by(settings) for part in objective.parts.values() if part.is_own]
    found: dict[str, str] = {}
    for each in reading:
        if any(name.startswith("hf:") for name in [*(each.data.train or []), *(each.data.val or [])]):
            found |= own_splits(each.data.own).revisions
    return found


def held_out_benchmark(settings: Common, options: OwnValOptions) -> OwnValBenchmark:
    """What is held out of the training data: of a mixture, of each part on the user's own."""
    names = settings.splits(HELD_OUT)
    if not names:
        splits = own_splits(settings.data.own)
        return OwnValBenchmark({"": splits.val}, splits.files, options)
    mixture = settings.objective  # type: ignore[attr-defined]  # it alone brings such splits
    loaded = {name: own_splits(mixture.parts[name].data) for name in names}
    _warn_of_shared(loaded)
    files = [path for splits in loaded.values() for path in splits.files]
    return OwnValBenchmark({name: splits.val for name, splits in loaded.items()}, files, options)


def _warn_of_shared(loaded: Mapping[str, OwnSplits]) -> None:
    """Tell which parts train on what others hold out: their scores are of rows that the model has seen."""
    for name, splits in loaded.items():
        held_out = splits.val.store.text_ids[splits.val.anchors]
        for other, others in loaded.items():
            shared = np.isin(held_out, others.train.store.text_ids[others.train.anchors]).sum()
            if other != name and shared:
                log.warning("%d rows that are held out of part %s are trained on in %s", shared, name, other)
