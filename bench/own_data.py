"""What reading a large table of pairs takes: `python -m bench.own_data 2000000`.

Writes a Parquet file of so many pairs and reads it as training does; prints seconds and growth of memory.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow
import pyarrow.parquet

from idiomtune.config.compose import compose_config
from idiomtune.data.user.load import UserSplits, load_user_data
from idiomtune.declarations.dataset import UserData

CHUNK = 50_000
LENGTH = 200  # characters of a text


class Cost(NamedTuple):
    """Of reading: seconds, and bytes that the process grew by."""

    seconds: float
    memory: int
    splits: UserSplits


def write_pairs(path: Path, num_rows: int) -> None:
    """Pairs of different texts, a chunk at a time."""
    filler = " word" * (LENGTH // 5)
    schema = pyarrow.schema([("anchor", pyarrow.string()), ("positive", pyarrow.string())])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, num_rows, CHUNK):
            rows = range(start, min(start + CHUNK, num_rows))
            columns = [[f"{kind} {row}{filler}" for row in rows] for kind in ("question", "answer")]
            writer.write_table(pyarrow.table(columns, schema=schema))


def resident() -> int:
    """Bytes of memory that this process holds (on Linux)."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def read(path: Path) -> Cost:
    """Read the file as training data."""
    before, start = resident(), time.perf_counter()
    data = compose_config("config")["data"]
    options = UserData(**{name: data[name] for name in UserData.model_fields} | {"train": [str(path)]})
    splits = load_user_data(options)
    seconds = time.perf_counter() - start
    return Cost(seconds, resident() - before, splits)


def main() -> None:
    num_rows = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.parquet"
        write_pairs(path, num_rows)
        cost = read(path)
        print(
            f"{num_rows} pairs of {2 * LENGTH} characters: read in {cost.seconds:.0f} s, memory grew by "
            f"{cost.memory / 2**20:.0f} MiB ({cost.memory / num_rows:.0f} bytes a row; texts are "
            f"{num_rows * 2 * LENGTH / 2**20:.0f} MiB)"
        )


if __name__ == "__main__":
    main()
