"""The page of options, made from the comments in `conf/` whenever the site is built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "options.rst"
# Which files, and the section that their options are in where the file does not say so (`# @package …`).
FILES = (
    *(("train", ""), ("trainer/default", "trainer"), ("model/pretrained", "model"), ("data/public", "data")),
    *(
        (f"objective/{name}", "objective")
        for name in ("idiolink", "own", "adaptive_triplet", "admire", "mixture")
    ),
    *(("objective/loss/infonce", f"objective.{section}") for section in ("loss", "infonce")),
    *(("objective/loss/triplet", f"objective.{section}") for section in ("loss", "triplet")),
    *(
        (f"benchmark/{name}", f"benchmark.{name}")
        for name in ("idiolink", "semeval2022", "epsilon", "admire")
    ),
    *((f"benchmark/own_{name}", f"benchmark.own_{name}") for name in ("val", "sts", "retrieval")),
    *((f"tracking/{name}", f"tracking.{name}") for name in ("wandb", "tensorboard")),
    *((name, "") for name in ("evaluate", "learn", "push")),
)
TITLE = """Options
=======

Every option with its default and meaning, as in the files of ``conf/``. The search of this site finds an
option by the words of its name: *learning rate*. :doc:`/docs/configuration` explains how options are given.
"""


class Option(NamedTuple):
    name: str
    default: str
    meaning: str


def options(path: Path, section: str) -> Iterator[Option]:
    """The options of one file, in its order; a section with a comment is one without a default."""
    found: list[list[str]] = []
    sections: list[tuple[int, str]] = []  # indentation, name
    text = path.read_text(encoding="utf-8").partition("\nhydra:")[0]
    if package := re.search(r"^# @package (\S+)$", text, re.MULTILINE):
        section = package[1]
    for line in text.splitlines():
        if found and (more := re.match(r" {12,}# ?(.*)$", line)):  # the comment goes on
            found[-1][2] += f" {more[1]}"
        if (key := re.match(r"( *)([a-z]\w*):(?: +([^#\s].*?))?(?: +# ?(.*))?$", line)) is None:
            continue
        while sections and sections[-1][0] >= len(key[1]):
            sections.pop()
        name = ".".join(filter(None, [section, *(one for _, one in sections), key[2]]))
        if key[3] is None:
            sections.append((len(key[1]), key[2]))
        if (key[3] or key[4]) and (key[2] != "name" or not section):  # which names the file
            found.append([name, key[3] or "", key[4] or ""])
    return (Option(*one) for one in found)


def write() -> None:
    """Write the page. An option that several files have is found in the first."""
    parts, known = [TITLE], set()
    for name, section in FILES:
        heading = f"``conf/{name}.yaml``"
        parts.append(f"{heading}\n{'-' * len(heading)}\n")
        for option in options(ROOT / "conf" / f"{name}.yaml", section):
            meaning = re.sub(
                r"`([^`]+)`|([*|\\]|_(?!\w))",
                lambda m: f"``{m[1]}``" if m[1] else f"\\{m[2]}",
                option.meaning,
            )
            default = "must be given" if option.default == "???" else f"``{option.default}``"
            again = "   :no-index:\n" if option.name in known else ""
            known.add(option.name)
            parts.append(
                f".. confval:: {option.name}\n   :default: {default}\n{again}\n   {meaning}\n"
                if option.default
                else f"``{option.name}``: {meaning}\n"
            )
    PAGE.write_text("\n".join(parts), encoding="utf-8")
