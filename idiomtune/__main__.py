"""`idiomtune <program> …` or `python -m idiomtune <program> …`: the programs as one console command.

The current folder is searched, last, for what `extensions=` names, and for nothing else: somebody else may
have put modules there that have the names of packages.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

from idiomtune.io.secrets import hide_secrets
from idiomtune.version import __version__

PROGRAMS = {
    "new": "write a small folder to start from: sentences, glossary, options, a notebook",
    "train": "fine-tune a model, and score every checkpoint",
    "check": "check a configuration and its data, in seconds",
    "evaluate": "score any model, without training",
    "learn": "make a model learn what the expressions of a glossary mean",
    "glossary": "make a glossary from dictionaries: Wiktionary, WordNet, any table",
    "find": "list the expressions of a glossary in texts, with meaning and usage",
    "search": "list the texts of a corpus that are nearest to a query",
    "write": "write a benchmark and training data for your own expressions, by language models",
    "report": "compare runs: page, tables, plots; judge one by exit status",
    "explore": "search a corpus with models side by side, on a page",
    "push": "publish a checkpoint on the Hugging Face Hub",
}


def main(words: Sequence[str] | None = None) -> None:
    """The program that the first word names, with the others (of the command line, if none are given)."""
    name, *arguments = (sys.argv[1:] if words is None else words) or ["--help"]
    if name in ("-h", "--help"):
        print(_help())
    elif name == "--version":
        print(f"idiomtune {__version__}")
    elif name in PROGRAMS:
        try:
            from idiomtune.programs.run import main as run  # imports Hydra: help does not wait for it

            run(name, arguments)
        except KeyboardInterrupt:  # before the program could say so itself
            print("interrupted", file=sys.stderr)
            sys.exit(130)
    else:
        near = difflib.get_close_matches(name, PROGRAMS, n=1)
        guess = f"did you mean idiomtune {near[0]}?" if near else f"there are {', '.join(PROGRAMS)}"
        print(f"error: idiomtune has no program {hide_secrets(name)!r}: {guess}", file=sys.stderr)
        sys.exit(2)


def _help() -> str:
    lines = [f"  {name:9} {purpose}" for name, purpose in PROGRAMS.items()]
    return "\n".join(["idiomtune <program> [option=value ...]", "", *lines, "", "idiomtune <program> --help"])


if __name__ == "__main__":
    main()
