"""Planted mistakes: options or spoiled files, and what the program's message must name.

Each `tests/test_mistakes_*.py` has a table of :class:`Mistake` for one subject, and of sound configurations
that must pass without a warning. A row is run as a user would run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess

from tests.own_data import write
from tests.programs import run

OWN = ("+experiment=own", "device=cpu", "data.train=train.csv", "data.val_share=0.25")
PAIRS = "question,answer\n" + "".join(f"Where is number {i}?,It is at home {i}.\n" for i in range(48))


@dataclass(frozen=True)
class Mistake:
    """A mistake, and what its message must say.

    Attributes:
        name: of the test.
        options: of the program; `{tiny}` stands for the folder of a tiny model.
        says: parts of the message: the option, file, row or field, and the remedy.
        files: written to the working folder before: name → content.
        program: `train.check` refuses what `train` would, without a step of training.
        status: exit status; 0 for a warning.
    """

    name: str
    options: Sequence[str]
    says: Sequence[str]
    files: Mapping[str, str] = field(default_factory=dict)
    program: str = "train.check"
    status: int = 2


def run_mistake(mistake: Mistake, folder: Path, tiny: Path) -> CompletedProcess[str]:
    """Run the program in the folder, and assert status and message."""
    done = run_sound(mistake.options, folder, tiny, mistake.files, mistake.program)
    printed = done.stdout + done.stderr
    assert done.returncode == mistake.status, printed
    assert "Traceback" not in printed, printed
    for part in mistake.says:
        assert part in printed, (part, printed)
    return done


def run_sound(
    options: Sequence[str],
    folder: Path,
    tiny: Path,
    files: Mapping[str, str] | None = None,
    program: str = "train.check",
) -> CompletedProcess[str]:
    """Write the files, and run the program in their folder, on the tiny model unless `options` name one."""
    for name, content in (files or {}).items():
        write(folder / name, content)
    model = ["model=pretrained", f"model.path={tiny}"]
    named = any(option.startswith(("model=", "model.path=")) for option in options)
    filled = [option.replace("{tiny}", str(tiny)) for option in options]
    return run(program, *filled, *([] if named else model), cwd=folder)
