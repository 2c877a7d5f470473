"""Options that were written with dashes, as most programs take them.

Hydra's parser would answer with its own usage, which names no option of ours, or take the beginning of a flag
for the flag: `--experiment=` for `--experimental-rerun`, which ignores the rest of the command line.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from train.config.credentials import refuse_arguments
from train.errors import UserError

_FLAGS = (
    *("--help", "--hydra-help", "--version", "--cfg", "--resolve", "--package", "--run", "--multirun"),
    *(
        "--shell-completion",
        "--config-path",
        "--config-name",
        "--config-dir",
        "--experimental-rerun",
        "--info",
    ),
    *("-h", "-c", "-p", "-r", "-m", "-sc", "-cp", "-cn", "-cd", "-i", "--"),
)
_ADDED = ("experiment", "debug", "protocol", "sweep")  # nothing is chosen of these unless the user does so
_ALIKE = 0.8


def refuse_dashes(arguments: Sequence[str]) -> None:
    """Refuse what begins with a dash and is no flag of Hydra's.

    Raises:
        UserError: with the option as it is written here.
    """
    for argument in arguments:
        flag, sign, value = argument.partition("=")
        if not flag.startswith("-") or flag in _FLAGS:
            continue
        if near := difflib.get_close_matches(flag, _FLAGS, n=1, cutoff=_ALIKE):
            raise UserError(f"{flag}: there is no such flag. Did you mean {near[0]}?")
        name = flag.lstrip("-").replace("-", "_")
        option = f"{'+' if name in _ADDED else ''}{name}={value if sign else '…'}"
        refuse_arguments([option])  # a token is not to be shown
        raise UserError(f"{flag}: options are written name=value, without dashes: {option}")
