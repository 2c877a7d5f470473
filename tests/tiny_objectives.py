"""What `conf/objective/` makes the objectives of, for tests that change some of it."""

from __future__ import annotations

from typing import Any

from idiomloss import InfoNCELoss
from tests.tiny_runs import composed
from train.objectives.contrastive import ContrastiveOptions

_IDIOLINK = composed("config", "objective=idiolink")["objective"]
_TRIPLET = composed("config", "objective=adaptive_triplet")["objective"]

IDIOLINK_LOSS = InfoNCELoss(_IDIOLINK["loss"]["temperature"])
_IDIOLINK_OPTIONS: dict[str, Any] = {
    "query_modes": [_IDIOLINK["query_mode"]],
    "document_modes": [_IDIOLINK["document_mode"]],
    "batch_size": 2,
    "seed": 0,
    "candidates_from_batch": _IDIOLINK["tuples"] == "batch",
    "positive_weights": None,
    "groups_per_batch": _IDIOLINK["idioms_per_batch"],
    **{name: _IDIOLINK["loss"][name] for name in ("in_batch", "false_negatives")},
    **{name: _IDIOLINK[name] for name in ("query_weights", "mask", "drop_last")},
}
ADAPTIVE_TRIPLET: dict[str, Any] = {
    "batch_size": 2,
    "seed": 0,
    "shuffled": _TRIPLET["order"] == "shuffled",
    "whole_groups": _TRIPLET["whole_groups"],
    "only_usable": _TRIPLET["groups"] == "usable",
    "per_expression": _TRIPLET["groups_per_expression"],
}


def idiolink_options(**changes: Any) -> ContrastiveOptions:
    """The objective's defaults, in batches of two anchors."""
    return ContrastiveOptions(**(_IDIOLINK_OPTIONS | changes))
