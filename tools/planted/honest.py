"""Honest runs: data of every form and size that somebody may have, and options that go with it.

Each is a function of its number. None has an error in code, so no check may end one: unusual data is not one
(duplicates, one group, pairs that are learned already, losses near zero).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_TEXT = """
he she they we broke missed spilled cut hit kicked the a ice boat beans corners sack bucket joke party house
people secret early late never always in on at barn harbour office garden
"""
_WORDS = _TEXT.split()


class Honest(NamedTuple):
    """A run.

    Attributes:
        options: beside the model and the folder.
        num_processes: that train side by side.
        stopped_after: the step after which it is resumed; None = it runs through.
    """

    options: list[str]
    num_processes: int
    stopped_after: int | None


def honest_run(number: int, folder: Path) -> Honest:
    """The run of this number; its data are written to the folder."""
    rng = np.random.default_rng(number)

    def choose(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    num_rows = int(choose(3, 4, 6, 9, 16, 30, 60, 150))
    num_groups = int(min(choose(1, 2, 3, 4, 8, 40), num_rows))
    is_easy, share_again = bool(rng.random() < 0.4), choose(0.0, 0.0, 0.2, 0.6)

    def text(group: int, length: int = 6) -> str:
        if is_easy:
            return " ".join([_WORDS[group % len(_WORDS)]] * length + [_WORDS[int(rng.integers(len(_WORDS)))]])
        return " ".join(rng.choice(_WORDS, int(rng.integers(1, length + 1))))

    def pair(row: int) -> dict[str, Any]:
        anchor = f"{text(row % num_groups)} {row if rng.random() < 0.5 else ''}".strip()
        return {"anchor": anchor, "positive": anchor if is_easy else f"{text(row % num_groups)} {row}"}

    def sentence(row: int) -> dict[str, Any]:
        return {"text": f"{text(row % num_groups)} {row // 2}"}

    kinds: dict[str, Callable[[int], dict[str, Any]]] = {
        "pairs": pair,
        "pairs of groups": lambda row: pair(row) | {"group": f"g{row % num_groups}"},
        "negatives": lambda row: pair(row) | {"negative": f"{text(row + 1)} not {row}"},
        "meanings": lambda row: (
            sentence(row) | {"group": f"g{row % num_groups}", "meaning": "il"[row // 2 % 2]}
        ),
        "groups": lambda row: sentence(row) | {"group": f"g{row % num_groups}"},
        "labels": lambda row: sentence(row) | {"label": f"l{row % max(2, num_groups)}"},
        "labels of groups": lambda row: (
            sentence(row) | {"group": f"g{row % num_groups}", "label": f"l{row % num_groups}{row // 2 % 2}"}
        ),
        "scored": lambda row: {
            **{f"sentence{n}": f"{text(row)} {row}" for n in (1, 2)},
            "score": float(rng.integers(0, 6)) / 5,
        },
    }
    kind = choose(*kinds)
    if kind == "labels of groups":  # whole groups fit into a batch
        num_groups = max(num_groups, num_rows // 8)
    elif kind in ("groups", "meanings", "labels"):
        num_groups = max(num_groups, 2)
    rows = [kinds[kind](row) for row in range(num_rows)]
    rows += [rows[int(rng.integers(num_rows))] for _ in range(int(share_again * num_rows))]
    held_out = [kinds[kind](1000 + row) for row in range(16)]
    for name, content in (("train", rows), ("val", held_out)):
        lines = "".join(json.dumps(row) + "\n" for row in content)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    options = [
        *("+experiment=own", f"data.train={folder}/train.jsonl", f"data.val={folder}/val.jsonl"),
        *("device=cpu", "eval.cache=false", "eval.every=end", "trainer.max_steps=5"),
        f"seed={number}",
        f"precision={choose('fp32', 'fp32', 'bf16')}",
        f"trainer.batch_size={choose(8, 16, 64) if 'labels' in kind else choose(2, 3, 4, 8, 14, 16, 32, 64)}",
        f"trainer.learning_rate={choose('0.0001', '0.001', '0.02')}",
        f"trainer.warmup_ratio={choose(0, 0.1, 0.5)}",
        f"trainer.max_epochs={choose(1, 3, 60)}",
        f"trainer.gradient_caching={choose('true', 'false')}",
        f"trainer.clip_norm={choose('null', '1.0', '0.01')}",
        f"objective.infonce.temperature={choose(0.001, 0.01, 0.05, 1.0)}",
        f"objective.graded.temperature={choose(0.001, 0.05, 1.0)}",
    ]
    if rng.random() < 0.15:
        options.append("trainer.matryoshka=[16]")
    num_processes = 2 if rng.random() < 0.1 else 1
    stopped_after = int(rng.integers(1, 5)) if num_processes == 1 and rng.random() < 0.2 else None
    return Honest(options, num_processes, stopped_after)
