"""A folder to start from: `idiomtune new <folder>`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from train.errors import UserError
from train.io.files import expanded, printable, write_text
from train.programs.ending import names_and_options, run_plain

HELP = """Write a small folder to start from, in which everything runs as it is.

  idiomtune new <folder>

sentences.csv    sentences with idioms, to train on: put yours in their place
glossary.tsv     what the idioms mean
config.yaml      the options of a run
notebook.ipynb   from the check to new sentences, step by step

Nothing is overwritten."""
TEMPLATES = Path(__file__).parent / "start"


def new(folder: Path) -> None:
    """Write the files into a folder, which need not exist.

    Raises:
        UserError: if it has one of them already, or is none.
    """
    templates = sorted(path for path in TEMPLATES.iterdir() if path.is_file())
    if there := [path.name for path in templates if (folder / path.name).exists()]:
        raise UserError(f"{folder} has {', '.join(there)} already: name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in templates:
            write_text(folder / path.name, path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error}") from error


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    return run_plain(_run, arguments, HELP)


def _run(arguments: Sequence[str]) -> int:
    folders, _ = names_and_options(arguments, ())
    if len(folders) != 1:
        raise UserError("give one folder: idiomtune new <folder>")
    new(expanded(folders[0], "folder"))
    print(f"{printable(folders[0])}: write your sentences into sentences.csv; then, in that folder:")
    print("  idiomtune check +experiment=config.yaml\n  idiomtune train +experiment=config.yaml")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
