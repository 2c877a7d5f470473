"""Benchmarks in tests: their options by name, and embeddings that are made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import yaml
from torch import Tensor

from idiomtune.benchmarks import Benchmark, build_benchmarks
from idiomtune.benchmarks.idiolink.scoring import IdioLinkBenchmark
from idiomtune.config import Common
from idiomtune.data.idiolink import Split
from idiomtune.plugins.registry import benchmark_types
from idiomtune.requests import EmbeddingRequest
from tests.programs import ROOT


def section(name: str, **changes: Any) -> Any:
    """The options of a benchmark: the defaults in `conf/`, but for these."""
    content = yaml.safe_load((ROOT / "conf" / "benchmark" / f"{name}.yaml").read_text(encoding="utf-8"))
    values = content["benchmark"][name] if "benchmark" in content else content
    return benchmark_types()[name].options.model_validate(values | changes)


def benchmarks_of(
    settings: Common, names: Sequence[str] | None = None
) -> tuple[list[Benchmark], dict[str, str]]:
    """The benchmarks that a program's settings choose, and why others are not scored."""
    return build_benchmarks(settings.benchmark, settings.inputs, names)


def idiolink(splits: Sequence[Split], *query_modes: str, **options: Any) -> IdioLinkBenchmark:
    """IdioLink in some modes, and no others."""
    return IdioLinkBenchmark(
        splits, section("idiolink", **{"query_modes": list(query_modes), "bm25_modes": [], **options})
    )


def in_turn(rows: Tensor | Sequence[Sequence[float]]) -> Any:
    """Embeddings: these rows, in the order in which a benchmark asks for them."""
    table = torch.as_tensor(rows)
    given = 0

    def embed(requests: Sequence[EmbeddingRequest]) -> Tensor:
        nonlocal given
        given += len(requests)
        return table[given - len(requests) : given]

    return embed


def with_cosines(cosines: Sequence[float]) -> Tensor:
    """Rows of all first sentences, then all second ones; the second are not of length 1."""
    second = [[cosine, (1 - cosine * cosine) ** 0.5] for cosine in cosines]
    return torch.cat([torch.eye(2)[[0] * len(cosines)], torch.tensor(second) * 3])


def by_text(vectors: Mapping[str, Any]) -> Any:
    """Embeddings: each text's vector."""

    def embed(requests: Sequence[EmbeddingRequest]) -> Tensor:
        if not requests:
            return torch.empty(0, len(next(iter(vectors.values()))))
        return torch.stack([torch.as_tensor(vectors[request.text]) for request in requests])

    return embed
