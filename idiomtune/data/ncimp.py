"""NCIMP: noun compounds with synonyms of their words, sentences, and classes by people.

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
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from idiomtune.data.names import EPSILON_CLASSES, NCIMP, EpsilonLanguage
from idiomtune.data.sources import DataFiles, published_files
from idiomtune.errors import UserError
from idiomtune.io.files import list_names, parse_list
from idiomtune.io.tables import Row, read_checked_table, read_rows

FOLDER = NCIMP.name
NUM_SENTENCES = 3
SCORES_FILE = "human_compositionality scores.xlsx"
_SCORE_COLUMNS = ("language", "compound", "ClassType", "ClassToken")
_SYNONYMS = ("synonym", *(f"synonym alt{i}" for i in range(1, 5)))
_SENTENCE = "original sentence"
_SENTENCE_COLUMNS = ("compound", _SENTENCE, f"{_SENTENCE}_tag")
_SENTENCES = [f"naturalistics_examplesent{i}.csv" for i in range(1, NUM_SENTENCES + 1)]

_UNSCORED, _INFLECTED = "without a human score", "not in the singular in each sentence"

Word = Literal["modifier", "head"]
WORDS: tuple[Word, ...] = ("modifier", "head")
_OTHER: dict[Word, Word] = {"modifier": "head", "head": "modifier"}
_NEUTRAL_COLUMNS = [  # that every language has; further synonyms are read where there are any
    "compound",
    "compound noun modifier",
    "compound noun head",
    *(f"{word} synonym{tag}" for word in WORDS for tag in ("", "_tag")),
]

FILES = published_files(NCIMP)


@dataclass(frozen=True)
class Version:
    """A compound with a synonym in place of one of its words.

    Attributes:
        synonym: lower-case, seldom of two words; None in Portuguese, where it can change the other word too.
        phrase: the complete compound with it.
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
        contexts: its sentences, each as what comes before and after it.
    """

    name: str
    class_type: str
    class_token: str
    words: dict[Word, str]
    versions: dict[Word, tuple[Version, ...]]
    contexts: tuple[tuple[str, str], ...]


@dataclass
class Ncimp:
    """The compounds of a language that can be scored, and counts of the others.

    Attributes:
        left_out: reason → compounds that are left out for it.
        counts: what → how many, of sentences and cells that are odd.
    """

    language: EpsilonLanguage
    compounds: list[Compound] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=lambda: {_UNSCORED: [], _INFLECTED: []})
    counts: Counter[str] = field(default_factory=Counter)

    def describe(self) -> str:
        """Counts of compounds, and the reasons for those left out."""
        classes = Counter(c.class_type for c in self.compounds)
        counts = ", ".join(f"{name} {classes[name]}" for name in EPSILON_CLASSES)
        num_sentences = sum(len(c.contexts) for c in self.compounds)
        parts = [f"{len(self.compounds)} compounds ({counts}), {num_sentences} sentences"]
        parts += [f"left out {len(n)} {reason} ({list_names(n)})" for reason, n in self.left_out.items() if n]
        parts += [f"{kind}: {count}" for kind, count in self.counts.items() if count]
        return f"NCIMP {self.language.upper()}: " + "; ".join(parts)


def read_ncimp(files: DataFiles, language: EpsilonLanguage) -> Ncimp:
    """The compounds of a language, in the order of `neutral.csv`.

    Left out, and counted, are compounds without a human score and those that are not in each of their
    sentences in the singular (case aside; `case studies` is no `case study`). A synonym that repeats one
    before it, or the word itself, is left out too. Sentences get the singular in place of what was inflected.

    Raises:
        UserError: naming file and row of what cannot be read.
    """
    folder = language.upper()
    scores, neutral = files(SCORES_FILE), files(f"{folder}/neutral.csv")
    paths = [files(f"{folder}/{name}") for name in _SENTENCES]
    read = Ncimp(language, files=[*paths, neutral, scores])
    classes = _read_classes(scores, language)
    words_of = partial(_words_of, language=language, counts=read.counts)
    rows = list(read_checked_table(neutral, _NEUTRAL_COLUMNS, lambda row: words_of(row.values)))
    sentences = [dict(read_checked_table(path, _SENTENCE_COLUMNS, _sentence)) for path in paths]
    for path, of_file in zip(paths, sentences, strict=True):
        if of_file.keys() != {name for name, *_ in rows}:
            raise UserError(f"its compounds are not those of {neutral.name}", file=path)
    for name, words, versions in rows:
        if name.lower() not in classes:
            read.left_out[_UNSCORED].append(name)
            continue
        marked = [of_file[name] for of_file in sentences]
        inflected = sum(compound.lower() != name.lower() for _, compound, _ in marked)
        read.counts["sentences of scored compounds that have it inflected"] += inflected
        if not all(name.lower() in " ".join(parts).lower() for parts in marked):
            read.left_out[_INFLECTED].append(name)
            continue
        contexts = tuple(dict.fromkeys((before, after) for before, _, after in marked))
        read.counts["sentences left out because the compound has them twice"] += NUM_SENTENCES - len(contexts)
        read.compounds.append(Compound(name, *classes[name.lower()], words, versions, contexts))
    if not read.compounds:
        raise UserError(f"no compound can be scored. {read.describe()}", file=neutral)
    return read


def _read_classes(path: Path, language: EpsilonLanguage) -> dict[str, tuple[str, str]]:
    """Lower-case compound → its class as a type and as a token, by people."""
    classes: dict[str, tuple[str, str]] = {}
    for number, cells in read_rows(path, columns=_SCORE_COLUMNS):
        row_language, name, *pair = (cells[column].strip() for column in _SCORE_COLUMNS)
        if row_language.lower() == language:
            if unknown := {*pair} - {*EPSILON_CLASSES}:
                message = f"a class of {name!r} must be one of {', '.join(EPSILON_CLASSES)}"
                raise UserError(f"{message}, got {min(unknown)!r}", file=path, row=number)
            classes.setdefault(name.lower(), (pair[0], pair[1]))
    return classes


def _mark_compound(row: dict[str, str], column: str) -> tuple[list[str], list[str], list[str]]:
    """The tokens before, of and after the compound, in the sentence of a column.

    Raises:
        ValueError: naming the field, if its marks are not a run of as many tokens.
    """
    tokens, tags = row[column].split(), parse_list(row.get(f"{column}_tag", ""))
    marked = [i for i, tag in enumerate(tags or ()) if tag is True]
    if not tags or len(tags) != len(tokens) or not marked or len(marked) != marked[-1] + 1 - marked[0]:
        raise ValueError(f"field '{column}_tag': does not mark one run of tokens in {row[column]!r}")
    start, end = marked[0], marked[-1] + 1
    return tokens[:start], tokens[start:end], tokens[end:]


def _sentence(row: Row) -> tuple[str, tuple[str, str, str]]:
    """A compound with the tokens before, of and after it in its sentence."""
    before, compound, after = map(" ".join, _mark_compound(row.values, _SENTENCE))
    return row.values["compound"].strip(), (before, compound, after)


def _words_of(
    row: dict[str, str], language: EpsilonLanguage, counts: Counter[str]
) -> tuple[str, dict[Word, str], dict[Word, tuple[Version, ...]]]:
    """A compound, its words, and its distinct versions.

    Args:
        counts: gets what was left out, or is worth knowing of the cells.
    """
    name = row["compound"].strip()
    words: dict[Word, str] = {word: row[f"compound noun {word}"].strip() for word in WORDS}
    versions: dict[Word, tuple[Version, ...]] = {}
    for word in WORDS:
        by_phrase: dict[str, Version] = {}
        for column in (f"{word} {synonym}" for synonym in _SYNONYMS):
            if not row.get(column, "").strip():
                continue
            before, compound, _ = _mark_compound(row, column)
            version = _version(compound, words, word, language)
            if version.synonym == "nan":
                counts["cells whose synonym is missing (nan)"] += 1
                continue
            if version.synonym is not None:
                counts["synonyms of two words"] += " " in version.synonym
                counts["cells with 'nan' for an article"] += "nan" in before
            if (phrase := version.phrase.lower()) == name.lower():
                counts["synonyms left out that are the word itself"] += 1
            elif phrase in by_phrase:
                counts["synonyms left out that repeat one of their compound"] += 1
            else:
                by_phrase[phrase] = version
        versions[word] = tuple(by_phrase.values())
    return name, words, versions


def _version(compound: list[str], words: dict[Word, str], word: Word, language: EpsilonLanguage) -> Version:
    """The version whose tokens in a sentence are `compound`, with a synonym of `word`.

    Raises:
        ValueError: if that is not the other word with something in place of `word`.
    """
    if language == "pt":  # words agree in gender, and either may come first
        return Version(None, " ".join(compound).lower())
    same, synonym = (compound[-1], compound[:-1]) if word == "modifier" else (compound[0], compound[1:])
    if not synonym or same.lower() != words[_OTHER[word]].lower():
        raise ValueError(f"{' '.join(compound)!r} is not a synonym of {words[word]!r} with the other word")
    parts = {**words, word: " ".join(synonym).lower()}
    return Version(parts[word], f"{parts['modifier']} {parts['head']}")
