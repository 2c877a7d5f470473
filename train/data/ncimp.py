"""NCIMP: noun compounds with synonyms of their words, sentences, and the class that people gave them.

He et al. 2024, "Investigating Idiomaticity in Word Representations", arXiv 2411.02610; GitHub
`risehnhew/Finding-Idiomaticity-in-Word-Representations`, folder `dataset/`. The layout is

- `EN/neutral.csv`, `PT/neutral.csv`: a row a compound, with a neutral sentence for each synonym;
- `EN/naturalistics_examplesent{1,2,3}.csv`, and under `PT/`: a row a compound, with a sentence;
- `human_compositionality scores.xlsx` (or with an underscore for the space): a row a compound and file.

A column `<name>_tag` marks the tokens of the compound in the sentence of the column `<name>`. Other columns
and files are not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from train.data.download import github_file
from train.data.names import EPSILON_CLASSES, EpsilonLanguage
from train.data.published import NCIMP
from train.errors import UserError
from train.io.records import describe, parse_list, read_table

FOLDER = "ncimp"
NUM_SENTENCES = 3
SCORES_FILE = "human_compositionality scores.xlsx"
_SCORE_COLUMNS = ("language", "compound", "ClassType", "ClassToken")
_SYNONYMS = ("synonym", *(f"synonym alt{i}" for i in range(1, 5)))
_SENTENCE = "original sentence"

Word = Literal["modifier", "head"]
WORDS: tuple[Word, ...] = ("modifier", "head")


@dataclass(frozen=True)
class Version:
    """A compound with a synonym in place of one of its words.

    Attributes:
        synonym: lower-case, seldom of two words; None in Portuguese, where it can change the other word too.
        phrase: the whole compound with it.
    """

    synonym: str | None
    phrase: str


@dataclass(frozen=True)
class Compound:
    """A noun compound, as it is to be put into its sentences and compared.

    Attributes:
        name: in the singular.
        class_type: C, PC or NC (compositional, partly, not), of the compound as such.
        class_token: the same, of it in its sentences.
        words: modifier and head.
        versions: those with a synonym of the modifier, of the head, each in the order of the columns.
        contexts: its sentences, each as what stands before and after it.
    """

    name: str
    class_type: str
    class_token: str
    words: dict[Word, str]
    versions: dict[Word, tuple[Version, ...]]
    contexts: tuple[tuple[str, str], ...]


@dataclass
class Ncimp:
    """The compounds of a language that can be scored, and in words what could not."""

    language: EpsilonLanguage
    compounds: list[Compound] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    unscored: list[str] = field(default_factory=list)  # no class by people
    inflected: list[str] = field(default_factory=list)  # not in the singular in each sentence
    num_scored_sentences: int = 0  # of compounds with a class
    num_inflected: int = 0  # of those: put into the singular, or left out with their compound
    counts: Counter[str] = field(default_factory=Counter)

    def describe(self) -> str:
        """What was read, and what was left out and why."""
        classes = Counter(c.class_type for c in self.compounds)
        parts = [
            f"{len(self.compounds)} compounds ("
            + ", ".join(f"{name} {classes[name]}" for name in EPSILON_CLASSES)
            + f"), {sum(len(c.contexts) for c in self.compounds)} sentences"
        ]
        for names, why in ((self.unscored, "without a human score"), (self.inflected, _NOT_SINGULAR)):
            if names:
                more = ", …" if len(names) > _MAX_NAMES_SHOWN else ""
                parts.append(f"left out {len(names)} {why} ({', '.join(names[:_MAX_NAMES_SHOWN])}{more})")
        parts.append(f"{self.num_inflected} of {self.num_scored_sentences} sentences have it inflected")
        parts += [f"{what}: {count}" for what, count in self.counts.items()]
        return f"NCIMP {self.language.upper()}: " + "; ".join(parts)


_NOT_SINGULAR = "not in the singular in each sentence"
_MAX_NAMES_SHOWN = 6


class NcimpFiles:
    """The data set's files in a local folder, or downloaded one by one.

    Args:
        folder: with `EN/`, or the repository's with `dataset/EN/`; None = download.
        cache: where downloads go.
    """

    def __init__(self, folder: Path | None, cache: Path) -> None:
        inner = folder and folder / "dataset"
        self.folder = inner if inner and inner.is_dir() else folder
        self.cache = cache

    def __call__(self, path: str) -> Path:
        """A file of the data set.

        Raises:
            DataMissingError: if it cannot be downloaded.
            UserError: if the folder has no such file.
        """
        if self.folder is None:
            return github_file(
                *(NCIMP, f"dataset/{path}", self.cache / FOLDER / Path(path).parent),
                otherwise="a local copy: data.ncimp=<folder with EN/ and the human scores>, or "
                f"IDIOM_DATA=<folder with {FOLDER}/>",
            )
        for name in (path, path.replace(" ", "_")):
            if (found := self.folder / name).is_file():
                return found
        raise UserError(
            f"{self.folder / path}: there is no such file; {self.folder} is to hold EN/ (PT/) and the human "
            "scores of NCIMP"
        )


def read_ncimp(files: NcimpFiles, language: EpsilonLanguage) -> Ncimp:
    """The compounds of a language, in the order of `neutral.csv`.

    Left out, and counted, are compounds without a human score and those that are not in each of their
    sentences in the singular (case aside; `case studies` is no `case study`). A synonym that repeats one
    before it, or the word itself, is left out too. Sentences get the singular in place of what was inflected.

    Raises:
        UserError: naming file, row and field of what is wrong.
    """
    read = Ncimp(language)
    folder = language.upper()
    scores = files(SCORES_FILE)
    classes = read_classes(scores, language)
    neutral = files(f"{folder}/neutral.csv")
    rows = _compounds(neutral, _neutral_columns())
    if not rows:
        raise describe(["there is no row"], str(neutral))
    sentences = []
    for i in range(1, NUM_SENTENCES + 1):
        path = files(f"{folder}/naturalistics_examplesent{i}.csv")
        sentences.append(_contexts(path, list(rows)))
        read.files.append(path)
    read.files += [neutral, scores]

    problems: list[str] = []
    for name, (number, row) in rows.items():
        where = f"row {number} (compound {name})"
        words = _words(row, name, language, where, problems)
        versions: dict[Word, tuple[Version, ...]] = {
            word: tuple(_versions(row, words, word, name, language, where, problems, read.counts))
            for word in WORDS
        }
        if name.lower() not in classes:
            read.unscored.append(name)
            continue
        own = [of_file[name] for of_file in sentences]
        read.num_scored_sentences += len(own)
        read.num_inflected += sum(s.compound.lower() != name.lower() for s in own)
        if not all(name.lower() in s.text.lower() for s in own):
            read.inflected.append(name)
            continue
        contexts = tuple(dict.fromkeys((s.before, s.after) for s in own))
        read.counts["sentences left out because the compound has them twice"] += len(own) - len(contexts)
        class_type, class_token = classes[name.lower()]
        read.compounds.append(Compound(name, class_type, class_token, words, versions, contexts))
    if problems:
        raise describe(problems, str(neutral))
    if not read.compounds:
        raise UserError(f"{neutral}: no compound can be scored. {read.describe()}")
    read.counts = +read.counts  # those that are not zero
    return read


def read_classes(path: Path, language: EpsilonLanguage) -> dict[str, tuple[str, str]]:
    """Lower-case compound → its class as a type and as a token, by people.

    Raises:
        UserError: naming file, row and field of what is wrong.
    """
    header, *rows = _sheet(path)
    if twice := [c for c in _SCORE_COLUMNS if header.count(c) > 1]:
        raise UserError(f"{path}: the columns {', '.join(map(repr, twice))} are there twice")
    missing = [c for c in _SCORE_COLUMNS if c not in header]
    if missing:
        found = ", ".join(str(c) for c in header if c is not None)
        raise UserError(f"{path}: the columns {', '.join(missing)} are missing (found: {found})")
    problems: list[str] = []
    classes: dict[str, tuple[str, str]] = {}
    for number, values in enumerate(rows, 2):
        row = dict(zip(header, values, strict=False))
        if all(value is None for value in values) or str(row["language"]).strip().lower() != language:
            continue
        name = str(row["compound"] or "").strip()
        where = f"row {number} (compound {name or '?'})"
        if not name:
            problems.append(f"{where}, field 'compound': is empty")
        for column in ("ClassType", "ClassToken"):
            if row[column] not in EPSILON_CLASSES:
                allowed = ", ".join(EPSILON_CLASSES)
                problems.append(f"{where}, field {column!r}: {row[column]!r} is not one of {allowed}")
        found_here = str(row["ClassType"]), str(row["ClassToken"])
        if classes.setdefault(name.lower(), found_here) != found_here:
            problems.append(
                f"{where}, fields 'ClassType', 'ClassToken': another row of the compound has other classes"
            )
    if problems:
        raise describe(problems, str(path))
    return classes


def _sheet(path: Path) -> list[tuple[Any, ...]]:
    """The rows of the first sheet.

    Raises:
        UserError: if it is no such file.
    """
    from openpyxl import load_workbook  # slow to import; needed for this one file

    try:
        book = load_workbook(path, read_only=True, data_only=True)
        rows = list(book.worksheets[0].iter_rows(values_only=True))
        book.close()
    # A broken archive, or something else under the name, fails in many ways.
    except Exception as error:
        raise UserError(
            f"{path}: cannot be read as an Excel file (.xlsx): {type(error).__name__}: {error}"
        ) from None
    return rows or [()]


def _neutral_columns() -> list[str]:
    """Those that every language has; further synonyms are read where there are any."""
    own = ["compound", "compound noun modifier", "compound noun head"]
    return own + [f"{word} synonym{tag}" for word in WORDS for tag in ("", "_tag")]


def _compounds(path: Path, columns: Sequence[str]) -> dict[str, tuple[int, dict[str, str]]]:
    """Compound → number and row."""
    rows: dict[str, tuple[int, dict[str, str]]] = {}
    problems = []
    for number, row in read_table(path, columns, named_by="compound"):
        name = row["compound"].strip()
        if not name:
            problems.append(f"row {number}, field 'compound': is empty")
        elif name in rows:
            problems.append(
                f"row {number} (compound {name}), field 'compound': row {rows[name][0]} has it too"
            )
        rows.setdefault(name, (number, row))
    if problems:
        raise describe(problems, str(path))
    return rows


def _tagged(row: dict[str, str], column: str, where: str, problems: list[str]) -> tuple[int, int] | None:
    """The tokens of the compound, as a range, in the sentence of a column; None and a problem if unclear."""
    tokens = row[column].split()
    named = f"{where}, field {column + '_tag'!r}"
    tags = parse_list(row[f"{column}_tag"])
    if tags is None or not all(isinstance(tag, bool) for tag in tags):
        problems.append(f"{named}: {row[f'{column}_tag']!r} is not a list of True and False")
    elif len(tags) != len(tokens):
        problems.append(f"{named}: has {len(tags)} marks for the {len(tokens)} tokens of {row[column]!r}")
    else:
        marked = [i for i, tag in enumerate(tags) if tag]
        if marked and marked == list(range(marked[0], marked[-1] + 1)):
            return marked[0], marked[-1] + 1
        problems.append(f"{named}: does not mark one run of tokens in {row[column]!r}")
    return None


@dataclass(frozen=True)
class _Sentence:
    text: str
    before: str
    compound: str  # as it stands there
    after: str


def _contexts(path: Path, names: Sequence[str]) -> dict[str, _Sentence]:
    """Compound → its sentence, for each of `names`."""
    problems: list[str] = []
    sentences: dict[str, _Sentence] = {}
    rows = _compounds(path, ("compound", _SENTENCE, f"{_SENTENCE}_tag"))
    for name, (number, row) in rows.items():
        run = _tagged(row, _SENTENCE, f"row {number} (compound {name})", problems)
        if run is not None:
            tokens = row[_SENTENCE].split()
            before, inside, after = tokens[: run[0]], tokens[slice(*run)], tokens[run[1] :]
            sentences[name] = _Sentence(*(" ".join(part) for part in (tokens, before, inside, after)))
    problems += [f"the compound {name} of neutral.csv has no row" for name in names if name not in rows]
    problems += [
        f"row {number} (compound {name}), field 'compound': is not in neutral.csv"
        for name, (number, _) in rows.items()
        if name not in names
    ]
    if problems:
        raise describe(problems, str(path))
    return sentences


def _words(
    row: dict[str, str], name: str, language: EpsilonLanguage, where: str, problems: list[str]
) -> dict[Word, str]:
    words: dict[Word, str] = {word: row[f"compound noun {word}"].strip() for word in WORDS}
    for word in WORDS:
        if not words[word]:
            problems.append(f"{where}, field 'compound noun {word}': is empty")
    if language == "en" and f"{words['modifier']} {words['head']}" != name:
        problems.append(
            f"{where}, field 'compound': is not 'compound noun modifier' and 'compound noun head' "
            f"({words['modifier']} {words['head']})"
        )
    return words


def _versions(
    row: dict[str, str],
    words: dict[Word, str],
    word: Word,
    name: str,
    language: EpsilonLanguage,
    where: str,
    problems: list[str],
    counts: Counter[str],
) -> list[Version]:
    """The compound with each distinct synonym of a word, in the order of the columns."""
    versions: dict[str, Version] = {}
    for column in (f"{word} {synonym}" for synonym in _SYNONYMS):
        if not row.get(column, "").strip():
            continue
        if f"{column}_tag" not in row:
            problems.append(f"{where}, field {column!r}: there is no column {column + '_tag'!r} to it")
            continue
        run = _tagged(row, column, where, problems)
        if run is None:
            continue
        tokens = row[column].split()[slice(*run)]
        if language == "pt":  # words agree in gender, and either may come first
            version = Version(None, " ".join(tokens).lower())
            same = version.phrase == name.lower()
        else:
            other: Word = "head" if word == "modifier" else "modifier"
            kept, rest = (tokens[-1], tokens[:-1]) if word == "modifier" else (tokens[0], tokens[1:])
            if not rest or kept.lower() != words[other].lower():
                problems.append(
                    f"{where}, field {column!r}: {' '.join(tokens)!r} is not a synonym of "
                    f"{words[word]!r} with the {other} {words[other]!r}"
                )
                continue
            synonym = " ".join(rest).lower()
            if synonym == "nan":
                counts["cells whose synonym is missing (nan)"] += 1
                continue
            counts["synonyms of two words"] += len(rest) > 1
            counts["cells with 'nan' for an article"] += "nan" in row[column].split()[: run[0]]
            parts = {**words, word: synonym}
            version = Version(synonym, f"{parts['modifier']} {parts['head']}")
            same = synonym == words[word].lower()
        if same:
            counts["synonyms left out that are the word itself"] += 1
        elif version.phrase.lower() in versions:
            counts["synonyms left out that repeat one of their compound"] += 1
        else:
            versions[version.phrase.lower()] = version
    return list(versions.values())
