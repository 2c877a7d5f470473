"""A data set for expressions of your own, written by language models: `idiomtune write <expressions> …`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from idiomtune.config import ReviewSettings, SelectSettings, WriteSettings, check
from idiomtune.declarations.options import Section
from idiomtune.errors import UserError
from idiomtune.io.terminal import log_to_stderr
from idiomtune.programs.failures import names_and_options, run_plain

HELP = """Write a benchmark and training data in IdioLink's form for expressions of your own.

  idiomtune write select from=magpie output=expressions.tsv        expressions that are used both ways
  idiomtune write <expressions> output=<folder> model=<name> licence=<licence> [option=value …]
  idiomtune write review folder=<folder>                           check texts in a spreadsheet
  idiomtune write uses <expressions> output=<folder> model=<name>  for learn corpus=: sentences with each

For each expression and domain, language models write 4 literal and 2 idiomatic texts, 2 without the
expression that convey its meaning, a simplification of each idiomatic one, and 2 queries. What breaks a rule
is asked for again. Another model judges each text. Then data.root=<folder> trains and scores on it. With
`uses` one model writes four literal and four idiomatic sentences of each expression, into sentences.txt.

<expressions>       a table: expression, and if you have them meaning, forms, keep (no = left out)
output=<folder>     a new folder, or its own of an earlier start: no answer is asked for (and paid) twice
model=<name>        writes documents; query_model=<name> writes queries, judge_model=<name> judges
endpoint=<address>  of a server that speaks OpenAI's protocol, such as http://127.0.0.1:8000/v1 (OpenAI's own)
key=OPENAI_API_KEY  the environment variable with the key, which is never stored
language=en         of the texts: a code, or an English name
domains=Politics,…  of the texts (IdioLink's ten)
prompts=<folder>    other prompts: copies of those that an output has in prompts/
temperature=1       of all models
tries=3             how often a text is asked for, if it breaks a rule
votes=3             of the judge on each text; more than half accept it
gate=true           MiniLM's usage gate judges literal and idiomatic texts too, at no cost; or gate=<model>
max_calls=<n>       ask no more questions, for the whole data set; max_tokens=<n>: use no more tokens
dry_run=true        ask nothing: show how many questions and tokens it takes, and a prompt of each kind
val=0.3  test=0     shares of the expressions, for the splits of these names
licence=<id>        of the data set, such as cc-by-4.0; publishing needs one
concurrency=8  timeout=120  answer_tokens=2000   questions at once; seconds, and tokens with those of the
                    model's reasoning, that an answer can take

select: from=magpie or a table with expression and usage (idiomatic, literal); min_uses=30,
idiomatic=25..75 (percent), confidence=1.0 (of a sentence's annotators, for it to count), overwrite=true"""
_ACTIONS: dict[str, type[Section]] = {"select": SelectSettings, "review": ReviewSettings}


def parse(arguments: Sequence[str]) -> WriteSettings | SelectSettings | ReviewSettings:
    """The command line, checked.

    Raises:
        UserError: for an unknown option or a value that it cannot have, or without a table.
    """
    kind: type[Section] = _ACTIONS.get(arguments[0], WriteSettings) if arguments else WriteSettings
    fields = {field.alias or name for name, field in kind.model_fields.items()} - {"expressions"}
    is_uses = arguments[:1] == ["uses"]
    names, values_of = names_and_options(arguments[is_uses:], sorted(fields - {"uses"}))
    values: dict[str, Any] = {name: values[-1] for name, values in values_of.items()}
    if kind is WriteSettings:
        if len(names) != 1:
            raise UserError("give one table of expressions (see --help)")
        values |= {"expressions": names[0], "uses": is_uses}
    return check(kind, values)  # type: ignore[return-value]


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    return run_plain(_run, arguments, HELP)


def _run(arguments: Sequence[str]) -> int:
    print(run(parse(arguments)))
    return 0


def run(settings: WriteSettings | SelectSettings | ReviewSettings) -> str:
    """Do what the settings say; returns the last line that is printed.

    Raises:
        UserError: for everything that the user can fix.
    """
    # Heavy: after the command line is known to be right.
    from idiomtune.writing.expressions import select_expressions
    from idiomtune.writing.run import review, write

    log_to_stderr()
    if isinstance(settings, SelectSettings):
        select_expressions(settings)
        return f"{settings.output}: strike out rows (column keep), add meanings; then idiomtune write"
    if isinstance(settings, ReviewSettings):
        return review(settings.folder)
    print(f"writing about the expressions of {settings.expressions}", file=sys.stderr, flush=True)
    return write(settings)
