"""A folder to start from: `idiomtune new <folder>`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from idiomtune.errors import UserError
from idiomtune.io.files import printable, user_path
from idiomtune.programs.failures import names_and_options, run_plain

HELP = """Write a small folder to start from, in which everything runs as it is: sentences with idioms, to be
replaced by yours, what the idioms mean, the options of a run, and a notebook. Nothing is overwritten.

  idiomtune new <folder>"""
TEMPLATES = Path(__file__).parent.parent / "start"


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    return run_plain(_run, arguments, HELP)


def _run(arguments: Sequence[str]) -> int:
    folders, _ = names_and_options(arguments, ())
    if len(folders) != 1:
        raise UserError("give one folder: idiomtune new <folder>")
    folder = user_path(folders[0], "folder")
    if present := [path.name for path in sorted(TEMPLATES.iterdir()) if os.path.lexists(folder / path.name)]:
        raise UserError(f"{folder} has {', '.join(present)} already: name another folder")
    try:
        shutil.copytree(TEMPLATES, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error}") from error
    print(f"write your own sentences into {printable(str(folder))}/sentences.csv; then, in that folder:")
    print("  idiomtune check config.yaml\n  idiomtune train config.yaml")
    return 0
