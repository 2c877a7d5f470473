"""Run folders with planted scores, as a run leaves them, for what reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from idiomtune.plugins.registry import benchmark_type, score_declaration
from idiomtune.plugins.score import Score, ScoreTable, score_card

SCORES = {
    "idiolink/val/sentence/r_precision": 0.5,
    "idiolink/val/sentence/ndcg@10": 0.6,
    "idiolink/val/sentence/ndcg@10/literal": 0.7,
}


def table_of(scores: Mapping[str, float]) -> ScoreTable:
    """Scores as their benchmarks give them, by their keys."""
    return score_declaration(replace(score_at(key), value=value) for key, value in scores.items())


def score_at(key: str) -> Score:
    """What a benchmark's key says, as its benchmark would: the only reader of keys, for what tests plant."""
    whole, _, size = key.partition("/dim=")
    name, *parts = whole.split("/")
    names = {metric.name for metric in benchmark_type(name).metrics}
    has_splits = name not in ("epsilon", "own_val")
    unlisted = min(2 if has_splits else 1, len(parts) - 1)
    at = max((number for number, part in enumerate(parts) if part in names), default=unlisted)
    split = parts[:1] if has_splits and at else []
    mode, slice_ = parts[len(split) : at], parts[at + 1 :]
    score = Score(name, "".join(split), "/".join(mode), parts[at], "/".join(slice_))
    return replace(score, dimension=int(size) if size else None)


def plant(
    folder: Path,
    *,
    scores: Mapping[str, float] | None = None,
    baseline: Mapping[str, float] | None = None,
    seed: int = 42,
    status: str = "finished",
    experiment: str = "idiolink_ft",
    files: Mapping[str, str] | None = None,
    **options: Any,
) -> Path:
    """A run folder; `files` are data and their checksums, `options` sections of its configuration."""
    folder.mkdir(parents=True)
    config = {"model": {"path": "base"}, "trainer": {"learning_rate": 1e-4}, "seed": seed, **options}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    run = {"status": status, "experiment": experiment, "seed": seed, "data": dict(files or {})}
    (folder / "run.json").write_text(json.dumps(run))
    meta = {"monitor": ["idiolink/val/sentence/ndcg@10"], "model": "base"}
    before = baseline if baseline is not None else dict.fromkeys(SCORES, 0.25)
    card = score_card(table_of(SCORES if scores is None else scores), before, meta)
    if status == "finished":
        (folder / "scores.json").write_text(json.dumps(card))
    steps: list[dict[str, Any]] = [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
    steps.append({"step": 2, "scores": card["scores"]})
    write_lines(folder / "metrics.jsonl", steps)
    return folder


def write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def query(id_: str, value: float, **facts: Any) -> dict[str, Any]:
    """A record of `per_query/idiolink.jsonl` whose metrics are all `value`."""
    return {
        "split": "val",
        "mode": "sentence",
        "id": id_,
        "idiom": id_[0],
        "sentence": f"sentence of {id_}",
        "usage": "idiomatic",
        "r_precision": value,
        "ndcg@10": value,
        "top": [{"id": "d1", "usage": "literal", "relevant": False}],
        **facts,
    }


def plant_queries(
    folder: Path, values: Mapping[str, float], before: Mapping[str, float] | None = None, **options: Any
) -> Path:
    """A run whose scores are the means of these values of its queries, with the records of them."""
    mean = sum(values.values()) / len(values)
    keys = ("idiolink/val/sentence/r_precision", "idiolink/val/sentence/ndcg@10")
    baseline = dict.fromkeys(keys, sum(before.values()) / len(before)) if before else {}
    plant(folder, scores=dict.fromkeys(keys, mean), baseline=baseline, **options)
    write_lines(folder / "per_query" / "idiolink.jsonl", [query(i, v) for i, v in values.items()])
    if before:
        records = [query(i, v) for i, v in before.items()]
        write_lines(folder / "per_query_baseline" / "idiolink.jsonl", records)
    return folder
