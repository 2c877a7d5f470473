"""A composed configuration as YAML, each option with its comment in `conf/`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from idiomtune.declarations.models import CONF
from idiomtune.io.files import parse_yaml

_OPTION = re.compile(r"( *)([\w.@+-]+):(?: (.*)|$)")
_COMMENT = re.compile(r"(?:^|\s)#\s?(.*)$")


def add_comments(config: DictConfig, program: str, choices: Mapping[str, str | None]) -> str:
    """The configuration with comments; an experiment's comments precede those of defaults.

    Args:
        program: the name of its file in `conf/`.
        choices: config group → what is chosen of it, as Hydra has it.
    """
    files = [(CONF / f"{program}.yaml", ""), (CONF / "program.yaml", "")]
    files += [(CONF / "benchmark" / f"{name}.yaml", "") for name in config.get("benchmark") or ()]
    files += [(CONF / "model" / "pretrained.yaml", "model.")]  # every option of a model
    for group, name in choices.items():
        if group != "experiment" and (CONF / group / f"{name}.yaml").is_file():
            files += _with_parts(CONF / group / f"{name}.yaml", f"{group}.")
    comments: dict[str, str] = {}
    for path, section in files:
        for option, comment in _comments(path, section):
            comments.setdefault(option, comment)
    lines: list[str] = []
    for path in _experiments(choices.get("experiment")):
        comments |= dict(_comments(path, ""))
        text = path.read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line.startswith("# ") and "@package" not in line]
    for option, line in _options(OmegaConf.to_yaml(config)):
        if option and "." not in option and line.endswith(":"):
            lines.append("")  # before a section
        lines.append(f"{line}  # {comments[option]}" if comments.get(option) else line)
    return "\n".join(lines)


def _with_parts(path: Path, section: str) -> Iterator[tuple[Path, str]]:
    """A file and those that it inherits from a folder below, `loss/infonce@loss`, with their sections."""
    yield path, section
    for entry in (parse_yaml(path.read_text(encoding="utf-8")) or {}).get("defaults", []):
        if isinstance(entry, str) and "@" in entry:
            name, _, package = entry.partition("@")
            part = path.parent / f"{name.removeprefix('/')}.yaml"
            if part.is_file():
                yield part, section if package == "_here_" else f"{section}{package}."


def _experiments(name: str | None) -> Iterator[Path]:
    """An experiment's file, after those that it builds on."""
    path = CONF / "experiment" / f"{name}.yaml"
    if name is not None and path.is_file():
        for entry in (parse_yaml(path.read_text(encoding="utf-8")) or {}).get("defaults", []):
            if isinstance(entry, str) and entry != "_self_" and "/" not in entry:
                yield from _experiments(entry)
        yield path


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Each line, with the dotted option that it begins, "" if it begins none."""
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        if match := _OPTION.fullmatch(line):
            indent = len(match[1])
            above = [*((depth, name) for depth, name in above if depth < indent), (indent, match[2])]
            yield ".".join(name for _, name in above), line
        else:
            yield "", line


def _comments(path: Path, section: str) -> Iterator[tuple[str, str]]:
    """Option → its comment, which may go on in indented lines below it."""
    option, parts = "", list[str]()
    for name, line in [*_options(path.read_text(encoding="utf-8")), (" ", "")]:
        if name:
            if parts:
                yield f"{section}{option}", " ".join(parts)
            option, comment = name, _COMMENT.search(line.partition(":")[2])
            parts = [comment[1]] if comment else []
        elif parts and (more := re.fullmatch(r"\s+# ?(.*)", line)):
            parts.append(more[1].strip())
