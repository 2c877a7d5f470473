"""What does a model find, and why? `idiomtune explore <run or model>…`: a page on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from idiomtune.config import ExploreSettings, check
from idiomtune.errors import UserError
from idiomtune.io.files import printable, write_text
from idiomtune.io.outputs import reserved_output
from idiomtune.io.terminal import log_to_stderr
from idiomtune.programs.failures import names_and_options, run_plain

HELP = """Search a corpus with several models side by side, on a page in the browser.

  idiomtune explore <run or model>… [option=value …]

A model is a run folder (its model before and after training), a checkpoint or any model's folder, a name of
idiomtune evaluate --help, or a model on the Hugging Face Hub.

corpus=<path>       what to search: a text file (one text per line); a CSV, TSV, JSONL, Parquet or XLSX file
                    with a column text, or as for data.train=; a folder with corpus, queries and qrels, or
                    with IdioLink's splits; sample. By default the data that the run was scored on
split=<name>        of IdioLink's splits (val)
glossary=<file>     every model reads the meanings of this glossary (of several: a.tsv,b.tsv); none: no model
                    reads any. By default each reads its own
queries=300         how many of the corpus's queries are listed, the worst first
neighbours=10       how many texts are shown per query
trust_remote_code=true   run Python code that comes with a model: read it first
device=auto         auto | cpu | cuda | mps
port=8765           of the page, http://127.0.0.1:8765; another one if it is in use
output=<page.html>  write one file that needs neither server nor network, with the answers to the queries
overwrite=true      replace the file of output=

Embeddings are cached in the folder of the environment variable IDIOM_CACHE (by default ~/.cache/idiomtune),
under explore/, which may be deleted at any time. Ctrl-C ends the page."""


def explore(options: ExploreSettings) -> None:
    """Serve the page until Ctrl-C, or write it.

    Raises:
        UserError: for everything that the user can fix.
    """
    # Heavy: after the command line is checked.
    from idiomtune.explorer.models import explorer_of, find_models
    from idiomtune.explorer.server import bound_socket, check_can_serve, page, serve

    log_to_stderr()
    if options.output is not None:
        with reserved_output("output", options.output, overwrite=options.overwrite) as file:
            explorer, title = explorer_of(options)
            write_text(file, page(explorer, title, live=False))
        print(printable(str(options.output)))
    else:
        for name in options.models:  # a typo is reported before a package that is missing
            find_models(name, trust_remote_code=options.trust_remote_code)
        check_can_serve()
        with bound_socket(options.port) as listening:
            explorer, title = explorer_of(options)
            serve(explorer, page(explorer, title, live=True), listening)


def parse(arguments: Sequence[str]) -> ExploreSettings:
    """The command line, checked.

    Raises:
        UserError: for an unknown option or a value that it cannot have, or if no model is named.
    """
    names = [name for name in ExploreSettings.model_fields if name != "models"]
    models, values_of = names_and_options(arguments, names)
    if not models:
        raise UserError("give a run folder or a model (see --help)")
    options = {name: values[-1] for name, values in values_of.items()}
    return check(ExploreSettings, {"models": models, **options})


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    return run_plain(_run, arguments, HELP)


def _run(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    print(printable(f"exploring {', '.join(options.models)}"), file=sys.stderr, flush=True)
    explore(options)
    return 0
