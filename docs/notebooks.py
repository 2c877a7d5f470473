"""Runs the notebooks and keeps what they show: `python docs/notebooks.py notebooks/1_twelve_idioms.ipynb …`.

The real data is read from `IDIOM_DATA`. Times, paths of this machine and pages are left out of the outputs.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
_CLOCK = re.compile(r"^\d\d:\d\d:\d\d ", re.MULTILINE)
_OF_THIS_MACHINE = re.compile(
    r"\d (s|min)\b|/s\b|\bGB\b|\belapsed\b|\.cache/|\bdevice cpu:|texts per second"  # in a line
)
_MAX_HTML = 100_000  # characters; a page to be explored has more


def read(path: Path, **parameters: object) -> Any:
    """A notebook, with other values in its cell tagged `parameters`."""
    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    for name, value in parameters.items():
        (cell,) = (c for c in notebook.cells if "parameters" in c.metadata.get("tags", ()))
        cell.source, count = re.subn(rf"^{name} = .*", f"{name} = {value!r}", cell.source, flags=re.MULTILINE)
        assert count == 1, name
    return notebook


def execute(notebook: Any, folder: Path) -> None:
    """Run a notebook in a folder: its cells get their outputs.

    Raises:
        CellExecutionError: if a cell fails.
    """
    # The checkout's packages, and nobody's profile or history.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder / ".ipython")}
    client = NotebookClient(
        notebook,
        timeout=3600,
        startup_timeout=600,  # of a busy machine
        iopub_timeout=600,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=environment)


def clean(notebook: Any, folder: Path) -> None:
    """Take out of the outputs what would be otherwise elsewhere, and what is too large."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                output.text = _without(folder, _CLOCK.sub("", output.text))
            else:
                kept = {k: v for k, v in output.data.items() if k != "text/html" or len(v) < _MAX_HTML}
                output.data = {k: _without(folder, v) for k, v in kept.items()}
        if "outputs" in cell:
            cell.outputs = [o for o in cell.outputs if o.get("text") or any(o.get("data", {}).values())]


def _without(folder: Path, text: str) -> str:
    lines = text.replace(f"{folder}/", "").splitlines(keepends=True)
    return "".join(line for line in lines if line[-1] != "\n" or not _OF_THIS_MACHINE.search(line))


def main(names: list[str]) -> None:
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            notebook = read(Path(name))
            execute(notebook, Path(folder))
            clean(notebook, Path(folder))
        nbformat.write(notebook, name)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(sys.argv[1:])
