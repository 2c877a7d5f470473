"""An idiom's documents in two dimensions, as `per_query/` stores them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from idiomloss.similarity import unit_vectors
from train.data.idiolink import Document, Split

_DIGITS = 4  # of a coordinate; unit vectors are 2 apart at most
_FEWEST = 3  # documents


def idiom_maps(split: Split, documents: Tensor) -> list[dict[str, Any]]:
    """A record for each idiom of the split's queries.

    It has the idiom's documents (`points`) in the plane of their first two principal components, and the
    share of variance that each of the two explains (`explained`). Unit vectors are taken, as cosine
    similarity takes them. On both axes the idiomatic meaning's mean is the greater.

    Args:
        documents: embeddings of the split's documents (N, D).
    """
    rows: dict[str, list[int]] = {query.idiom: [] for query in split.queries}
    for row, document in enumerate(split.documents):
        if document.idiom in rows:
            rows[document.idiom].append(row)
    return [
        {"split": split.name, "idiom": idiom, **_plane([split.documents[i] for i in of_it], documents[of_it])}
        for idiom, of_it in rows.items()
        if len(of_it) >= _FEWEST and documents.shape[1] > 1
    ]


def _plane(documents: Sequence[Document], embeddings: Tensor) -> dict[str, Any]:
    units = unit_vectors(embeddings)
    left, values, _ = torch.linalg.svd(units - units.mean(0), full_matrices=False)
    variance = values.square()
    places = left[:, :2] * values[:2]  # (N, 2)
    is_idiomatic = torch.tensor([document.meaning == "idiomatic" for document in documents])
    if is_idiomatic.any() and not is_idiomatic.all():  # else an axis' direction means nothing
        places *= torch.where(places[is_idiomatic].mean(0) < places[~is_idiomatic].mean(0), -1.0, 1.0)
    explained = variance[:2] / variance.sum().clamp_min(torch.finfo(variance.dtype).tiny)
    return {
        "explained": [round(share, _DIGITS) for share in explained.tolist()],
        "points": [
            {"id": document.id, "usage": document.usage, "x": round(x, _DIGITS), "y": round(y, _DIGITS)}
            for document, (x, y) in zip(documents, places.tolist(), strict=True)
        ],
    }
