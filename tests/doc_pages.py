"""The README and the pages of docs/, taken apart: blocks, commands, and the files that a page adds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.programs import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "RESULTS.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
_FILE = re.compile(r"^`([\w./]+)`:\n\n((?:```\w+\n.*?```\n\s*)+)", flags=re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


class PageFile(NamedTuple):
    """A file that a page shows: new, or the changes of one that is there."""

    path: str
    language: str
    content: str


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of these languages, but for those that are files."""
    text = _FILE.sub("", page.read_text(encoding="utf-8"))
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def page_files(page: Path) -> list[PageFile]:
    """Each block under a line that is a path in backticks and a colon."""
    return [
        PageFile(path, language, content)
        for path, fenced in _FILE.findall(page.read_text(encoding="utf-8"))
        for language, content in re.findall(r"^```(\w+)\n(.*?)^```", fenced, flags=re.DOTALL | re.MULTILINE)
    ]


def inline(page: Path) -> list[str]:
    """What stands in backticks, each on one line."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [" ".join(code.split()) for code in _INLINE.findall(text)]


def shell_lines(page: Path) -> list[str]:
    """Lines of the `sh` blocks and of workflows' steps (continued ones joined, comments left out), and inline
    commands."""
    lines = []
    steps = (step for block in blocks(page, "yaml") for step in _steps(yaml.safe_load(block)))
    for block in (*blocks(page, "sh"), *steps):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            line = re.sub(r"(^|\s)#.*", "", line).strip()
            if line:
                lines.append(line)
    return lines + [
        code
        for code in inline(page)
        if re.match(r"(python|make|accelerate|torchrun) |idiomtune [a-z]+( |$)", code)
    ]


def _steps(content: Any) -> Iterator[str]:
    """What each `run:` of a workflow runs."""
    if isinstance(content, dict):
        if isinstance(content.get("run"), str):
            yield content["run"]
        content = list(content.values())
    if isinstance(content, list):
        for part in content:
            yield from _steps(part)


def put_into(folder: Path, files: list[PageFile]) -> list[Path]:
    """Write the files, and apply the changes, in a copy of the project; returns what was written or changed.

    A change is a run of lines of the file, each with a blank, - or + before it, as `diff` shows them.

    Raises:
        AssertionError: if a change does not fit the file exactly once, or a new file is there already.
    """
    touched = []
    for path, language, content in files:
        target = folder / path
        touched.append(target)
        if language != "diff":
            assert not target.exists(), f"{path} is no new file"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")
            continue
        lines = [line or " " for line in content.splitlines()]
        before, after = (
            "".join(f"{line[1:]}\n" for line in lines if line[0] in kept) for kept in (" -", " +")
        )
        text = target.read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{path} has this {text.count(before)} times:\n{before}"
        target.write_text(text.replace(before, after), encoding="utf-8")
    return touched


def messages() -> list[str]:
    """Every string in the code of `idiomtune/`, with … for each value that is put into it."""
    found = []
    for path in sorted((ROOT / "idiomtune").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(str(part) for part in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found
