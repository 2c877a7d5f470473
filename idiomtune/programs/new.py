"""A folder to start from: `idiomtune new <folder>`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from idiomtune.config.settings import NewSettings
from idiomtune.errors import UserError
from idiomtune.io.files import printable, user_path

TEMPLATES = Path(__file__).parent.parent / "start"


def new(settings: NewSettings) -> str:
    """Copy the templates into the folder; returns what to do next.

    Raises:
        UserError: if one of the files is there already, or cannot be written.
    """
    folder = user_path(settings.folder, "folder")
    if present := [path.name for path in sorted(TEMPLATES.iterdir()) if os.path.lexists(folder / path.name)]:
        raise UserError(f"{folder} has {', '.join(present)} already: name another folder")
    try:
        shutil.copytree(TEMPLATES, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error}") from error
    return (
        f"write your own sentences into {printable(str(folder))}/sentences.csv; then, in that folder:\n"
        "  idiomtune check config.yaml\n  idiomtune train config.yaml"
    )
