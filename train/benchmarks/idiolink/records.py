"""What reports read of IdioLink's per-query file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field


class QueryRecord(BaseModel):
    """A query in one mode."""

    model_config = ConfigDict(strict=True)

    id: str
    split: str
    mode: str
    idiom: str
    usage: str
    ndcg: float = Field(alias="ndcg@10")


Query = TypeVar("Query", bound=QueryRecord)


def shown(queries: Sequence[Query], monitor: Sequence[str]) -> tuple[str, str]:
    """The split and mode that picked the best checkpoint, else the first that was scored."""
    scored = {("idiolink", query.split, query.mode) for query in queries}
    monitored = (tuple(key.split("/")[:3]) for key in monitor)
    _, split, mode = next((found for found in monitored if found in scored), ("", "", ""))
    return (split, mode) if split else (queries[0].split, queries[0].mode)
