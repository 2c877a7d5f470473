"""SemEval-2022 Task 2B: training pairs as groups, scored pairs with their gold, submission forms.

Tayyar Madabushi et al. 2022, arXiv 2204.10050; GitHub `H-TayyarMadabushi/SemEval_2022_Task2-idiomaticity`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from idiomtune.data.names import SEMEVAL2022, SemEvalSplit, fold_part
from idiomtune.data.sources import DataFiles, published_files
from idiomtune.errors import UserError
from idiomtune.io.tables import Row, read_checked_table, read_rows

FOLDER = SEMEVAL2022.name
TRAIN_FILE = "SubTaskB/TrainData/train_data.csv"
ONE_SHOT_FILE = "SubTaskB/TestData/train_one_shot.csv"
_EVALUATION, _TEST = "SubTaskB/EvaluationData", "SubTaskB/TestData"
_PATHS = {"dev": f"{_EVALUATION}/dev", "eval": f"{_EVALUATION}/eval", "test": f"{_TEST}/test"}
_PUBLIC_GOLD = ("dev",)
_PAIR_COLUMNS = ("ID", "Language", "MWE1", "sentence1", "sentence2")
_FORM_COLUMNS = ("ID", "Language", "Setting", "Sim")
_NO_EXPRESSION = ("", "None")

FILES = published_files(SEMEVAL2022)


@dataclass(frozen=True)
class SentenceGroup:
    """A sentence with an idiom, and its paraphrases.

    Attributes:
        id: of its first row.
        expression: the idiom, as the table names it (not as it is inflected in the sentence).
        correct: paraphrases that keep the meaning; of one label with the sentence.
        incorrect: paraphrases that do not; each of a label of its own.
    """

    id: str
    expression: str
    language: str
    sentence: str
    correct: tuple[str, ...]
    incorrect: tuple[str, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The sentence, its correct, its incorrect paraphrases."""
        return (self.sentence, *self.correct, *self.incorrect)

    @property
    def num_triplets(self) -> int:
        """Triplets within the group: ordered pairs of one label, times incorrect paraphrases."""
        alike = 1 + len(self.correct)
        return alike * (alike - 1) * len(self.incorrect)


@dataclass(frozen=True)
class SentencePair:
    """Two sentences to compare.

    Attributes:
        expression: None in pairs of the STS benchmark.
    """

    id: str
    language: str
    expression: str | None
    sentence1: str
    sentence2: str


@dataclass(frozen=True)
class Gold:
    """The gold similarity of the pair `id`: a number, or the model's own similarity of the pair `other`."""

    id: str
    is_sts: bool
    similarity: float | None
    other: str | None


@dataclass(frozen=True)
class PairSplit:
    """Pairs to score; `gold` is None where it is not public."""

    name: SemEvalSplit
    pairs: tuple[SentencePair, ...]
    gold: tuple[Gold, ...] | None
    form: tuple[tuple[str, str, str], ...]  # (ID, Language, Setting), the rows of a submission
    files: tuple[Path, ...]


def read_groups(path: Path) -> list[SentenceGroup]:
    """Training pairs as groups, one a distinct `sentence_1`, in the order of the file.

    `sim` is `1` for a correct paraphrase and the string `None` for an incorrect one.

    Raises:
        UserError: if it cannot be read, or has another `sim`.
    """
    columns = ("ID", "MWE1", "Language", "sentence_1", "sentence_2", "sim")
    groups: dict[str, SentenceGroup] = {}
    for number, cells in read_rows(path, columns=columns):
        id_, expression, language, sentence, paraphrase, sim = (cells[column] for column in columns)
        if sim not in ("1", "None"):
            raise UserError(f"must be 1 or None, got {sim!r}", file=path, row=number, field="sim")
        group = groups.get(sentence) or SentenceGroup(id_, expression, language, sentence, (), ())
        if sim == "1":
            group = replace(group, correct=(*dict.fromkeys((*group.correct, paraphrase)),))
        else:
            group = replace(group, incorrect=(*dict.fromkeys((*group.incorrect, paraphrase)),))
        groups[sentence] = group
    return list(groups.values())


def read_pairs(files: DataFiles, split: SemEvalSplit) -> PairSplit:
    """A split's pairs and, where there is one, its gold.

    `dev_a` and `dev_b` are the expressions of dev in two halves, as are its STS pairs, drawn once.

    Raises:
        UserError: naming file, row and field of what is wrong.
    """
    name = split.partition("_")[0]
    path = files(f"{_PATHS[name]}.csv")
    form_path = files(f"{_PATHS[name]}{'_' if name == 'test' else '.'}submission_format.csv")
    gold_name = f"{_PATHS[name]}.gold.csv"
    gold_path = files(gold_name) if name in _PUBLIC_GOLD else files.optional(gold_name)
    pairs = [
        SentencePair(id_, language, None if expression in _NO_EXPRESSION else expression, *sentences)
        for id_, language, expression, *sentences in _cells(path, *_PAIR_COLUMNS)
    ]
    by_id = {pair.id: pair for pair in pairs}
    form = tuple((id_, language, setting) for id_, language, setting, _ in _cells(form_path, *_FORM_COLUMNS))
    if len(by_id) < len(pairs) or not {id_ for id_, *_ in form} <= by_id.keys():
        raise UserError(f"has an ID twice, or not all IDs of {form_path.name}", file=path)
    gold = None if gold_path is None else _read_gold(gold_path, by_id)
    if split != name:
        assert gold is not None
        gold = _half(by_id, gold, split)
    read = [path, form_path] + ([gold_path] if gold_path is not None else [])
    return PairSplit(split, tuple(pairs), gold, form, tuple(read))


def _cells(path: Path, *columns: str) -> Iterator[list[str]]:
    return ([row.values[column] for column in columns] for row in read_rows(path, columns=columns))


def _read_gold(path: Path, pairs: Mapping[str, SentencePair]) -> tuple[Gold, ...]:
    def item(row: Row) -> Gold:
        cells = row.values
        similarity = float(cells["sim"]) if cells["sim"] else None
        if similarity is not None and not 0 <= similarity <= 1:
            raise ValueError(f"field 'sim': must be from 0 to 1, got {similarity:g}")
        return Gold(cells["ID"], ".sts." in cells["DataID"], similarity, cells["otherID"] or None)

    gold = {item_.id: item_ for item_ in read_checked_table(path, ("ID", "DataID", "sim", "otherID"), item)}
    others = {item.other or "" for item in gold.values() if item.similarity is None}
    if unknown := sorted({*gold, *others} - pairs.keys()):
        raise UserError(f"the ID {unknown[0]!r} is not that of a pair", file=path)
    return tuple(gold.values())


def _half(pairs: Mapping[str, SentencePair], gold: Sequence[Gold], split: SemEvalSplit) -> tuple[Gold, ...]:
    """Half of the expressions, and of the STS pairs, language by language."""

    def group(item: Gold) -> tuple[str, bool]:
        return pairs[item.id].language, item.is_sts

    def name(item: Gold) -> str:
        """The unit of a half: an expression in any spelling, or a single STS pair."""
        expression = None if item.is_sts else pairs[item.id].expression
        return re.sub(r"[\s\-]+", " ", expression.lower()) if expression else item.id

    names: dict[tuple[str, bool], set[str]] = {}
    for item in gold:
        names.setdefault(group(item), set()).add(name(item))
    part = ("dev_a", "dev_b").index(split)
    halves = {of_group: fold_part(members, part, 2) for of_group, members in names.items()}
    return tuple(item for item in gold if name(item) in halves[group(item)])
