"""docs/models.md, from the configs: `python -m tests.model_table` writes it anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "models.md"
HEAD = Path(__file__).with_suffix(".md")


def configs() -> dict[str, dict[str, Any]]:
    """Each config of conf/model with the options of conf/model/pretrained.yaml that it leaves as they are."""
    folder = ROOT / "conf" / "model"
    read = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in folder.glob("*.yaml")}
    defaults = read.pop("pretrained")

    def resolved(name: str) -> dict[str, Any]:
        (base,) = read[name]["defaults"]
        below = defaults if base == "pretrained" else resolved(base)
        about = {**(below["about"] or {}), **read[name]["about"]}
        return {**below, **read[name], "about": about}

    return {name: resolved(name) for name in sorted(read)}


def rows() -> list[list[str]]:
    return [
        [
            f"`{name}`",
            f"`{config['path']}`",
            f"`{config['revision'][:7]}`" if config["revision"] else "",
            about["parameters"],
            about.get("licence") or "not found",
            config["pooling"] or about.get("pooling") or "its own",
            str(config["max_length"] or about.get("max_tokens") or ""),
            "<br>".join(_prompts(config)),
            about.get("remote_code") or "",
            ", ".join(about["papers"]),
        ]
        for name, config in configs().items()
        for about in [config["about"]]
    ]


def _prompts(config: dict[str, Any]) -> list[str]:
    """The options that say how texts are written and read, where they differ from the default."""
    asked = ("query_prompt", "document_prompt", "instruction_prompt", "pool_prompts", "bidirectional")
    return [
        f"{key.removesuffix('_prompt')}: " + (f"`{_quoted(value)}`" if value != "" else "bare")
        for key in asked
        if (value := config[key]) is not None
    ]


def _quoted(value: str | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.replace("\n", "\\n").replace("|", "\\|")


def table() -> str:
    """The page."""
    columns = ["model=", "checkpoint", "revision", "parameters", "licence", "pooling", "tokens"]
    columns += ["prompts and reading", "own code", "papers"]
    lines = ["| " + " | ".join(cells) + " |" for cells in [columns, ["---"] * len(columns), *rows()]]
    return HEAD.read_text(encoding="utf-8") + "\n".join(["", *lines, ""])


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
