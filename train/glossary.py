"""`idiomtune glossary`: a glossary from dictionaries, in one command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import yaml

from train.config import check
from train.config.settings import GlossarySettings
from train.errors import UserError
from train.io.files import parse_yaml, printable
from train.programs.ending import names_and_options, names_in, run_plain

HELP = """Make a glossary from dictionaries: what expressions mean, for model.glossary= and idiomtune learn.

  idiomtune glossary from=<source> output=<file.tsv> [in=<your texts>] [option=value ...]

from=               wiktionary  kaikki.org's extract, downloaded once (English: 2.7 GB)
                    wordnet     WordNet 3.0, 3.1 or Open English WordNet: path=, or Debian's wordnet-base
                    hf:<owner>/<name>:<split>, or a table: CSV, TSV, JSONL or Parquet
                    several: from=[wiktionary,wordnet]; an expression has its meanings from the first that has it
output=<file>       .tsv, .csv or .parquet
in=<texts>          only expressions that occur in these texts, counted: a text file (one text per line), or a
                    table with a column text
language=en         of Wiktionary's words: a code, or the language's English name
path=<place>        where the source is: Wiktionary's extract (.jsonl, .jsonl.gz, or an address to download),
                    WordNet's folder, from=files a table. Of several sources a list in their order, in which
                    `default` stands for the source's own place
all_senses=true     also senses that Wiktionary does not tag as idiomatic, figurative, proverb, slang or
                    euphemistic
columns={expression: idiom, meaning: definition}    of tables with other names for their columns
licence=<name>      of tables whose rows state none
bad_rows=100        as many rows as can be skipped because they cannot be read
overwrite=true      replaces the output

Downloads are cached in the folder of the environment variable IDIOM_CACHE (by default ~/.cache/idiomtune), with
their address, date and SHA-256; an interrupted one is resumed by the same command."""


def parse(arguments: Sequence[str]) -> GlossarySettings:
    """The command line, checked.

    Raises:
        UserError: for an unknown option, or a value that it cannot have.
    """
    names = [field.alias or name for name, field in GlossarySettings.model_fields.items()]
    others, given = names_and_options(arguments, names)
    if others:
        raise UserError(f"{others[0]}: is not an option; there are {', '.join(f'{name}=' for name in names)}")
    values: dict[str, Any] = {name: some[-1] for name, some in given.items()}
    for name in {"from", "path"} & given.keys():
        values[name] = [part for value in given[name] for part in names_in(value)]
    if "columns" in values:
        try:
            values["columns"] = parse_yaml(values["columns"])
        except yaml.YAMLError:
            raise UserError(
                "must be {<role>: <column>, …}", option="columns", file=values["columns"]
            ) from None
    options: GlossarySettings = check(GlossarySettings, values)
    return options


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    return run_plain(_run, arguments, HELP)


def _run(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    from train.programs.glossary import glossary  # heavy: after the command line is known to be right

    print(printable(str(glossary(options))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
