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

from train.data.datasets import NCIMP
from train.data.download import PublishedFile, published_files
from train.data.names import EPSILON_CLASSES, EpsilonLanguage
from train.data.sources import DataFiles, GitHubData
from train.errors import UserError
from train.io.records import parse_list, raise_problems
from train.io.tables import read_rows

FOLDER = NCIMP.name
NUM_SENTENCES = 3
SCORES_FILE = "human_compositionality scores.xlsx"
_SCORE_COLUMNS = ("language", "compound", "ClassType", "ClassToken")
_SYNONYMS = ("synonym", *(f"synonym alt{i}" for i in range(1, 5)))
_SENTENCE = "original sentence"
_SENTENCE_COLUMNS = ("compound", _SENTENCE, f"{_SENTENCE}_tag")
_SENTENCES = [f"naturalistics_examplesent{i}.csv" for i in range(1, NUM_SENTENCES + 1)]

Word = Literal["modifier", "head"]
WORDS: tuple[Word, ...] = ("modifier", "head")
_OTHER: dict[Word, Word] = {"modifier": "head", "head": "modifier"}
_NEUTRAL_COLUMNS = [  # that every language has; further synonyms are read where there are any
    "compound",
    "compound noun modifier",
    "compound noun head",
    *(f"{word} synonym{tag}" for word in WORDS for tag in ("", "_tag")),
]

FILES = GitHubData(
    NCIMP,
    "risehnhew/Finding-Idiomaticity-in-Word-Representations",
    "EN/ (PT/) and the human scores",
    {
        **published_files(
            "425c397338e803c98cf27aa143a2194f21c1d721",
            {SCORES_FILE: "09589faf25fcdf7f55b018efcac1e8059ae19f0afe3a8d9588973f5eddb19838"},
            path="dataset/{}".format,
        ),
        **published_files(
            "00e34dda54912e048adb08c7a6ecb49c5b79f7f6",
            {
                "EN/neutral.csv": "4e93142734aee84d18b91eb5c4c934ce44be163cad5a69b630ab2ec6313570d4",
                "PT/neutral.csv": "11e18b9d5920abcb6cd73e38435dba5ae6751d7697fac994ee860538bd23662f",
                f"PT/{_SENTENCES[0]}": "cd61ce72c5c713cfaa8218038771a72d0e7753578722eafc63ca4ed6d55920f6",
                f"PT/{_SENTENCES[1]}": "2a28a938daa0950d7e75f0a5a14065ccec57bab463d0d14c91663dd4a1748152",
                f"PT/{_SENTENCES[2]}": "760d958c09734d56d64b27200baf993fce2048b96545acd1c61349940cc48413",
            },
            path="dataset/{}".format,
        ),
        **{
            f"EN/{name}": PublishedFile(f"dataset/EN/{name}", "HEAD", columns=_SENTENCE_COLUMNS)
            for name in _SENTENCES
        },
    },
)


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


def read_ncimp(files: DataFiles, language: EpsilonLanguage) -> Ncimp:
    """The compounds of a language, in the order of `neutral.csv`.

    Left out, and counted, are compounds without a human score and those that are not in each of their
    sentences in the singular (case aside; `case studies` is no `case study`). A synonym that repeats one
    before it, or the word itself, is left out too. Sentences get the singular in place of what was inflected.

    Raises:
        UserError: naming file, row and field of what is wrong.
    """
    folder = language.upper()
    scores, neutral = files(SCORES_FILE), files(f"{folder}/neutral.csv")
    classes = read_classes(scores, language)
    rows = _compounds(neutral, _NEUTRAL_COLUMNS)
    sentence_files = [files(f"{folder}/{name}") for name in _SENTENCES]
    sentences = [_sentences(path, list(rows)) for path in sentence_files]

    read = Ncimp(language, files=[*sentence_files, neutral, scores])
    problems: list[str] = []
    for name, (number, row) in rows.items():
        words: dict[Word, str] = {word: row[f"compound noun {word}"].strip() for word in WORDS}
        synonyms = {word: _read_synonyms(row, words, word, language) for word in WORDS}
        found = _word_problems(name, words, language) + [p for s in synonyms.values() for p in s.problems]
        problems += [f"row {number} (compound {name}), {problem}" for problem in found]
        for cells in synonyms.values():
            read.counts.update(cells.counts)
        if name.lower() not in classes:
            read.unscored.append(name)
            continue
        in_sentences = [by_compound[name] for by_compound in sentences]
        read.num_scored_sentences += len(in_sentences)
        read.num_inflected += sum(s.compound.lower() != name.lower() for s in in_sentences)
        if not all(name.lower() in s.text.lower() for s in in_sentences):
            read.inflected.append(name)
            continue
        contexts = tuple(dict.fromkeys((s.before, s.after) for s in in_sentences))
        read.counts["sentences left out because the compound has them twice"] += NUM_SENTENCES - len(contexts)
        versions = {word: synonyms[word].versions for word in WORDS}
        read.compounds.append(Compound(name, *classes[name.lower()], words, versions, contexts))
    raise_problems(problems, neutral)
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
    raise_problems(problems, path)
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


def _compounds(path: Path, columns: Sequence[str]) -> dict[str, tuple[int, dict[str, str]]]:
    """Compound → number and row."""
    rows: dict[str, tuple[int, dict[str, str]]] = {}
    problems = []
    for number, row in read_rows(path, columns=columns):
        name = row["compound"].strip()
        if not name:
            problems.append(f"row {number}, field 'compound': is empty")
        elif name in rows:
            problems.append(
                f"row {number} (compound {name}), field 'compound': row {rows[name][0]} has it too"
            )
        rows.setdefault(name, (number, row))
    raise_problems(problems, path)
    return rows


def _marked(row: dict[str, str], column: str) -> tuple[list[str], list[str], list[str]]:
    """The tokens before, of and after the compound, in the sentence of a column.

    Raises:
        ValueError: naming the field, if its marks are missing or unclear.
    """
    tag_column = f"{column}_tag"
    if tag_column not in row:
        raise ValueError(f"field {column!r}: there is no column {tag_column!r} to it")
    tokens, tags = row[column].split(), parse_list(row[tag_column])
    if tags is None or not all(isinstance(tag, bool) for tag in tags):
        raise ValueError(f"field {tag_column!r}: {row[tag_column]!r} is not a list of True and False")
    if len(tags) != len(tokens):
        raise ValueError(
            f"field {tag_column!r}: has {len(tags)} marks for the {len(tokens)} tokens of {row[column]!r}"
        )
    marked = [i for i, tag in enumerate(tags) if tag]
    if not marked or marked != list(range(marked[0], marked[-1] + 1)):
        raise ValueError(f"field {tag_column!r}: does not mark one run of tokens in {row[column]!r}")
    start, end = marked[0], marked[-1] + 1
    return tokens[:start], tokens[start:end], tokens[end:]


@dataclass(frozen=True)
class _Sentence:
    before: str
    compound: str  # as it stands there
    after: str

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.before, self.compound, self.after) if part)


def _sentences(path: Path, names: Sequence[str]) -> dict[str, _Sentence]:
    """Compound → its sentence, for each of `names`."""
    problems: list[str] = []
    sentences: dict[str, _Sentence] = {}
    rows = _compounds(path, _SENTENCE_COLUMNS)
    for name, (number, row) in rows.items():
        where = f"row {number} (compound {name})"
        if name not in names:
            problems.append(f"{where}, field 'compound': is not in neutral.csv")
        try:
            before, compound, after = map(" ".join, _marked(row, _SENTENCE))
        except ValueError as error:
            problems.append(f"{where}, {error}")
        else:
            sentences[name] = _Sentence(before, compound, after)
    problems += [f"the compound {name} of neutral.csv has no row" for name in names if name not in rows]
    raise_problems(problems, path)
    return sentences


def _word_problems(name: str, words: dict[Word, str], language: EpsilonLanguage) -> list[str]:
    problems = [f"field 'compound noun {word}': is empty" for word in WORDS if not words[word]]
    both = f"{words['modifier']} {words['head']}"
    if language == "en" and both != name:
        problems.append(
            f"field 'compound': is not 'compound noun modifier' and 'compound noun head' ({both})"
        )
    return problems


@dataclass(frozen=True)
class _Synonyms:
    """What the cells with synonyms of a word hold.

    Attributes:
        versions: the compound with each distinct synonym, in the order of the columns.
        counts: what was left out or is worth knowing.
        problems: what is wrong, by field.
    """

    versions: tuple[Version, ...]
    counts: Counter[str]
    problems: list[str]


def _read_synonyms(
    row: dict[str, str], words: dict[Word, str], word: Word, language: EpsilonLanguage
) -> _Synonyms:
    versions: dict[str, Version] = {}
    counts: Counter[str] = Counter()
    problems: list[str] = []
    for column in (f"{word} {synonym}" for synonym in _SYNONYMS):
        if not row.get(column, "").strip():
            continue
        try:
            before, compound, _ = _marked(row, column)
        except ValueError as error:
            problems.append(str(error))
            continue
        version = _version(compound, words, word, language)
        if version is None:
            problems.append(
                f"field {column!r}: {' '.join(compound)!r} is not a synonym of {words[word]!r} with the "
                f"{_OTHER[word]} {words[_OTHER[word]]!r}"
            )
            continue
        if version.synonym == "nan":
            counts["cells whose synonym is missing (nan)"] += 1
            continue
        if version.synonym is not None:
            counts["synonyms of two words"] += " " in version.synonym
            counts["cells with 'nan' for an article"] += "nan" in before
        phrase = version.phrase.lower()
        if phrase == row["compound"].strip().lower():
            counts["synonyms left out that are the word itself"] += 1
        elif phrase in versions:
            counts["synonyms left out that repeat one of their compound"] += 1
        else:
            versions[phrase] = version
    return _Synonyms(tuple(versions.values()), counts, problems)


def _version(
    compound: list[str], words: dict[Word, str], word: Word, language: EpsilonLanguage
) -> Version | None:
    """The version whose tokens in a sentence are `compound`, with a synonym of `word`.

    None if that is not the other word with something in place of `word`.
    """
    if language == "pt":  # words agree in gender, and either may come first
        return Version(None, " ".join(compound).lower())
    kept, synonym = (compound[-1], compound[:-1]) if word == "modifier" else (compound[0], compound[1:])
    if not synonym or kept.lower() != words[_OTHER[word]].lower():
        return None
    parts = {**words, word: " ".join(synonym).lower()}
    return Version(parts[word], f"{parts['modifier']} {parts['head']}")
