"""What does a model find, and why? `python -m train.explore <run or model>…`: a page on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from train.cli.plain import run_plain
from train.cli.quick_imports import quick_imports
from train.errors import UserError
from train.explorer.options import PORT, Options
from train.io.paths import expanded
from train.io.text import printable

HELP = f"""Search a corpus with models side by side, on a page in the browser.

  python -m train.explore <run or model>… [option=value …]

A model is a run folder (its model before and after training), a checkpoint or any model's folder, a name of
python -m train.evaluate --help, or a model on the Hugging Face Hub.

corpus=<path>       what is searched: a text file (one text a line); a CSV, TSV, JSONL or Parquet file with a
                    column text, or as data.train= takes it; a folder with corpus, queries and qrels, or with
                    IdioLink's splits; sample. By default the data that the run was scored on
split=<name>        of IdioLink's splits (val)
glossary=<file>     every model reads the meanings of this glossary (of several: a.tsv,b.tsv); none: no model
                    reads any. By default each reads its own
queries=300         how many of the corpus's queries are listed, the worst first
neighbours=10       how many texts are shown of a query
device=auto         auto | cpu | cuda | mps
port={PORT}           of the page, http://127.0.0.1:{PORT}; any other if that one is in use
output=<page.html>  write one file that needs neither server nor network: it holds the answers to the queries
space=<folder>      write that file and a README.md as a static Space for the Hugging Face Hub
overwrite=true      replace the files of output= or space=

Embeddings are kept in the folder of the environment variable IDIOM_CACHE (by default ~/.cache/idiomtune),
under explore/, which may be deleted at any time. Ctrl-C ends the page."""

_CHOICES = {"device": ("auto", "cpu", "cuda", "mps"), "overwrite": ("false", "true")}
_NUMBERS = {"queries": 100_000, "neighbours": 100, "port": 65_535}  # option → its greatest value


def parse(arguments: Sequence[str]) -> Options:
    """The command line, checked.

    Raises:
        UserError: for an unknown option or a value that it cannot have, or where no model is named.
    """
    names = ("corpus", "split", "glossary", "device", "output", "space", "overwrite", *_NUMBERS)
    models: list[str] = []
    given: dict[str, Any] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        is_path = key not in names and Path(argument).exists()  # a folder's name may hold "="
        if (not equals or is_path) and not argument.startswith("-"):
            models.append(argument)
        elif key not in names:
            raise UserError(
                f"{argument}: unknown option; there are {', '.join(f'{name}=' for name in names)}"
            )
        elif not value:
            raise UserError(f"{key}=: is empty; leave it out, or name something")
        else:
            given[key] = value
    if not models:
        raise UserError("name a run folder or a model (--help says more)")
    for key, allowed in _CHOICES.items():
        if given.get(key, allowed[0]) not in allowed:
            raise UserError(f"{key}={given[key]}: must be one of {', '.join(allowed)}")
    given["overwrite"] = given.get("overwrite") == "true"
    if "output" in given and "space" in given:
        raise UserError("output= and space= write the same page: give one of them")
    for key, greatest in _NUMBERS.items():
        if key in given:
            if not given[key].isdecimal() or not 1 <= int(given[key]) <= greatest:
                raise UserError(f"{key}={given[key]}: is to be a whole number from 1 to {greatest}")
            given[key] = int(given[key])
    if "glossary" in given:
        files = given["glossary"].strip("[]")
        given["glossary"] = [] if files in ("", "none") else [name.strip() for name in files.split(",")]
    for key in {"output", "space"} & given.keys():
        given[key] = expanded(given[key], key)
    return Options(models, **given)


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    return run_plain(_run, arguments, HELP)


def _run(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    print(printable(f"exploring {', '.join(options.models)}"), file=sys.stderr, flush=True)
    with quick_imports():  # after the command line is known to be right
        from train.recipes.explore import explore

    explore(options)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
