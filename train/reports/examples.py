"""Single queries on a run's page, as the benchmarks that it was scored on choose them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image
from pydantic import ValidationError

from train.declarations.examples import Examples, Record
from train.declarations.registry import benchmark_types, resolve
from train.reports.plots import data_uri
from train.reports.runs import Run, read_records

_THUMBNAIL = (120, 90)  # pixels


class RecordsOfRun:
    """A run's results of each query of a benchmark, and notes on those that cannot be shown."""

    def __init__(self, run: Run, benchmark: str) -> None:
        self.monitor: Sequence[str] = run.monitor
        self.files: Mapping[str, str] = run.files
        self.notes: list[str] = []
        self._benchmark = benchmark
        self._run = run

    @property
    def is_there(self) -> bool:
        sides = (False, True)
        return any(self._run.per_query_file(self._benchmark, untrained=side).exists() for side in sides)

    def read(self, kind: type[Record], *, untrained: bool = False, part: str = "") -> list[Record]:
        path = self._run.per_query_file(self._benchmark, untrained=untrained, part=part)
        lines, damaged = read_records(path, self._benchmark)
        records = []
        for line in lines:
            try:
                records.append(kind.model_validate(line))
            except ValidationError:
                damaged += 1
        if damaged:
            self.notes.append(f"{path.parent.name}/{path.name}: {damaged} lines are damaged")
        return records


def examples_of(run: Run) -> tuple[list[Examples], list[str]]:
    """Examples of each benchmark that has any, and notes on damaged records."""
    found, notes = [], []
    for benchmark in benchmark_types().values():
        records = RecordsOfRun(run, benchmark.name)
        if benchmark.examples is not None and records.is_there:
            found.append(resolve(benchmark.examples)(records))
            notes += records.notes
    return [examples for examples in found if examples is not None], notes


def thumbnail(path: Path | None) -> str | None:
    """A small JPEG as a data URI; None where there is no image that can be read."""
    if path is None:
        return None
    try:
        with Image.open(path, formats=("JPEG", "PNG")) as image:
            small = image.convert("RGB")
            small.thumbnail(_THUMBNAIL)
            file = io.BytesIO()
            small.save(file, "JPEG", quality=70)
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    return data_uri(file.getvalue(), "image/jpeg")
