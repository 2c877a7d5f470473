"""SemEval-2022 Task 2B: training pairs as groups, scored pairs with their gold, submission forms.

Tayyar Madabushi et al. 2022, arXiv 2204.10050; GitHub `H-TayyarMadabushi/SemEval_2022_Task2-idiomaticity`.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train.data.download import github_file
from train.data.names import SemEvalSplit
from train.data.published import SEMEVAL2022
from train.errors import UserError
from train.expressions import find_expression
from train.io.records import describe, read_table

FOLDER = "semeval2022_task2b"
TRAIN_FILE = "SubTaskB/TrainData/train_data.csv"
ONE_SHOT_FILE = "SubTaskB/TestData/train_one_shot.csv"
_LANGUAGES = ("EN", "PT", "GL")
_NO_EXPRESSION = ("", "None")
_PAIRS = {
    "dev": "SubTaskB/EvaluationData/dev.csv",
    "eval": "SubTaskB/EvaluationData/eval.csv",
    "test": "SubTaskB/TestData/test.csv",
}
_GOLD = {
    "dev": "SubTaskB/EvaluationData/dev.gold.csv",
    "eval": "SubTaskB/EvaluationData/eval.gold.csv",
    "test": "SubTaskB/TestData/test.gold.csv",
}
_FORMS = {
    "dev": "SubTaskB/EvaluationData/dev.submission_format.csv",
    "eval": "SubTaskB/EvaluationData/eval.submission_format.csv",
    "test": "SubTaskB/TestData/test_submission_format.csv",
}
_PUBLIC_GOLD = ("dev",)
_SETTINGS = ("pre_train", "fine_tune")


@dataclass(frozen=True)
class Group:
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
class Pair:
    """Two sentences whose similarity is asked for.

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
    """The gold similarity of the pair `id`: a number, or what the model gives for the pair `other`."""

    id: str
    is_sts: bool
    similarity: float | None
    other: str | None


@dataclass(frozen=True)
class PairSplit:
    """Pairs to score; `gold` is None where it is not public."""

    name: SemEvalSplit
    pairs: tuple[Pair, ...]
    gold: tuple[Gold, ...] | None
    form: tuple[tuple[str, str, str], ...]  # (ID, Language, Setting), the rows of a submission
    files: tuple[Path, ...]


class SemEvalFiles:
    """The task's files in a local folder, or downloaded one by one.

    Args:
        folder: with `SubTaskB/` in it; None = download.
        cache: where downloads go.
    """

    def __init__(self, folder: Path | None, cache: Path) -> None:
        self.folder = folder
        self.cache = cache

    def __call__(self, path: str) -> Path:
        """A file that the task publishes.

        Raises:
            UserError: if the folder has no such file, or it cannot be downloaded.
        """
        if self.folder is None:
            where = self.cache / FOLDER / Path(path).parent
            return github_file(
                *(SEMEVAL2022, path, where),
                otherwise="a local copy: data.semeval2022=<folder with SubTaskB/>, or "
                f"IDIOM_DATA=<folder with {FOLDER}/>",
            )
        found = self.folder / path
        if not found.is_file():
            raise UserError(f"{found}: there is no such file; {self.folder} is to be the task's folder")
        return found

    def optional(self, path: str) -> Path | None:
        """A file that the task does not publish, where the user has it."""
        found = (self.folder or self.cache / FOLDER) / path
        return found if found.is_file() else None


def read_groups(path: Path) -> list[Group]:
    """Training pairs as groups, one a distinct `sentence_1`, in the order of the file.

    `sim` is `1` for a correct paraphrase and the string `None` for an incorrect one.

    Raises:
        UserError: naming file, row and field of what is wrong: missing columns, an empty sentence, an unknown
            language, another `sim`, an expression that is not in its sentence.
    """
    columns = ("ID", "MWE1", "Language", "sentence_1", "sentence_2", "sim")
    rows = read_table(path, columns, named_by="ID")
    problems: list[str] = []
    row_of: dict[str, int] = {}
    by_sentence: dict[str, list[dict[str, str]]] = {}
    for number, row in rows:
        where = f"row {number} (ID {row['ID']})"
        problems += [f"{where}, field {f!r}: is empty" for f in columns[:5] if not row[f].strip()]
        if row["Language"] not in _LANGUAGES:
            problems.append(f"{where}, field 'Language': {row['Language']!r} is not one of EN, PT, GL")
        if row["sim"] not in ("1", "None"):
            problems.append(f"{where}, field 'sim': {row['sim']!r} is neither 1 nor None")
        first = row_of.setdefault(row["ID"], number)
        if first != number:
            problems.append(f"{where}, field 'ID': row {first} has it too")
        if row["MWE1"].strip() and row["sentence_1"].strip():
            try:
                if find_expression(row["sentence_1"], row["MWE1"]) is None:
                    problems.append(f"{where}, field 'MWE1': {row['MWE1']!r} is not in {row['sentence_1']!r}")
            except ValueError as error:
                problems.append(f"{where}, field 'MWE1': {error}")
        group = by_sentence.setdefault(row["sentence_1"], [])
        if group and (group[0]["MWE1"], group[0]["Language"]) != (row["MWE1"], row["Language"]):
            problems.append(f"{where}: the row with ID {group[0]['ID']} has its sentence, but another MWE1")
        group.append(row)
    if problems:
        raise describe(problems, str(path))
    groups = [
        Group(
            *(first["ID"], first["MWE1"], first["Language"], sentence),
            correct=tuple(dict.fromkeys(r["sentence_2"] for r in of_it if r["sim"] == "1")),
            incorrect=tuple(dict.fromkeys(r["sentence_2"] for r in of_it if r["sim"] == "None")),
        )
        for sentence, of_it in by_sentence.items()
        for first in of_it[:1]
    ]
    for made in groups:
        if shared := set(made.correct) & set(made.incorrect):
            problems.append(f"the group of ID {made.id}: {shared.pop()!r} is both correct and incorrect")
    if problems or not groups:
        raise describe(problems or ["there is no row"], str(path))
    return groups


def read_pairs(files: SemEvalFiles, split: SemEvalSplit) -> PairSplit:
    """A split's pairs and, where there is one, its gold.

    `dev_a` and `dev_b` are the expressions of dev in two halves, and its STS pairs likewise, drawn once.

    Raises:
        UserError: naming file, row and field of what is wrong.
    """
    whole = split.partition("_")[0]
    path, form = files(_PAIRS[whole]), files(_FORMS[whole])
    gold_path = files(_GOLD[whole]) if whole in _PUBLIC_GOLD else files.optional(_GOLD[whole])
    pairs, problems = [], []
    for number, row in read_table(path, ("ID", "Language", "MWE1", "sentence1", "sentence2"), named_by="ID"):
        where = f"row {number} (ID {row['ID']})"
        problems += [
            f"{where}, field {f!r}: is empty" for f in ("ID", "sentence1", "sentence2") if not row[f].strip()
        ]
        if row["Language"] not in _LANGUAGES:
            problems.append(f"{where}, field 'Language': {row['Language']!r} is not one of EN, PT, GL")
        expression = None if row["MWE1"] in _NO_EXPRESSION else row["MWE1"]
        pairs.append(Pair(row["ID"], row["Language"], expression, row["sentence1"], row["sentence2"]))
    of_id = {pair.id: pair for pair in pairs}
    if len(of_id) < len(pairs):
        twice = next(id_ for id_, count in Counter(pair.id for pair in pairs).items() if count > 1)
        problems.append(f"field 'ID': the ID {twice} occurs twice")
    if problems or not pairs:
        raise describe(problems or ["there is no row"], str(path))
    gold = _read_gold(gold_path, of_id) if gold_path is not None else None
    asked = _read_form(form, of_id, path.name)
    if split != whole:
        assert gold is not None
        gold = _half(pairs, gold, split)
    read = [path, form] + ([gold_path] if gold_path is not None else [])
    return PairSplit(split, tuple(pairs), gold, asked, tuple(read))


def _read_form(path: Path, pairs: Mapping[str, Pair], pairs_name: str) -> tuple[tuple[str, str, str], ...]:
    asked, problems = [], []
    seen: set[tuple[str, str]] = set()
    for number, row in read_table(path, ("ID", "Language", "Setting", "Sim"), named_by="ID"):
        where = f"row {number} (ID {row['ID']})"
        pair = pairs.get(row["ID"])
        if pair is None:
            problems.append(f"{where}, field 'ID': {row['ID']} is not in {pairs_name}")
        elif row["Language"] != pair.language:
            problems.append(
                f"{where}, field 'Language': {row['Language']!r}, but the pair's is {pair.language}"
            )
        if row["Setting"] not in _SETTINGS:
            problems.append(
                f"{where}, field 'Setting': {row['Setting']!r} is not one of {', '.join(_SETTINGS)}"
            )
        if (row["ID"], row["Setting"]) in seen:
            problems.append(f"{where}, field 'ID': it occurs twice in its setting")
        seen.add((row["ID"], row["Setting"]))
        asked.append((row["ID"], row["Language"], row["Setting"]))
    if problems or not asked:
        raise describe(problems or ["there is no row"], str(path))
    return tuple(asked)


def _read_gold(path: Path, pairs: Mapping[str, Pair]) -> tuple[Gold, ...]:
    gold, problems = [], []
    seen: set[str] = set()
    for number, row in read_table(path, ("ID", "DataID", "sim", "otherID"), named_by="ID"):
        where = f"row {number} (ID {row['ID']})"
        similarity: float | None = None
        if row["sim"]:
            with contextlib.suppress(ValueError):
                similarity = float(row["sim"])
            if similarity is None or not 0 <= similarity <= 1:
                problems.append(f"{where}, field 'sim': {row['sim']!r} is no number from 0 to 1")
        elif row["otherID"] not in pairs:
            problems.append(
                f"{where}, field 'otherID': {row['otherID']!r} is no ID of a pair, and sim is empty"
            )
        elif row["otherID"] == row["ID"]:
            problems.append(f"{where}, field 'otherID': is the pair itself")
        is_sts, pair = ".sts." in row["DataID"], pairs.get(row["ID"])
        if pair is None:
            problems.append(f"{where}, field 'ID': there is no such pair")
        elif not row["DataID"].strip():
            problems.append(f"{where}, field 'DataID': is empty")
        elif is_sts != (pair.expression is None):
            problems.append(
                f"{where}, field 'DataID': {row['DataID']!r} is {'an' if is_sts else 'no'} STS pair, but in "
                f"the pairs' file its MWE1 is {pair.expression or 'None'}"
            )
        if row["ID"] in seen:
            problems.append(f"{where}, field 'ID': it occurs twice")
        seen.add(row["ID"])
        gold.append(Gold(row["ID"], is_sts, similarity, row["otherID"] or None))
    if problems or not gold:
        raise describe(problems or ["there is no row"], str(path))
    return tuple(gold)


def _half(pairs: Sequence[Pair], gold: Sequence[Gold], split: SemEvalSplit) -> tuple[Gold, ...]:
    """Expressions, and STS pairs, sorted, shuffled with a fixed seed and dealt out, language by language."""
    of_pair = {pair.id: pair for pair in pairs}

    def unit(item: Gold) -> tuple[str, str]:
        pair = of_pair[item.id]
        return pair.language, f"sts {item.id}" if item.is_sts else _plain(pair.expression or item.id)

    units = sorted({unit(item) for item in gold})
    chosen = set()
    for language in _LANGUAGES:
        for sts in (False, True):
            some = [u for u in units if u[0] == language and u[1].startswith("sts ") == sts]
            order = np.random.default_rng(0).permutation(len(some)).tolist()
            chosen |= {some[i] for i in order[("dev_a", "dev_b").index(split) :: 2]}
    return tuple(item for item in gold if unit(item) in chosen)


def _plain(expression: str) -> str:
    return " ".join(re.split(r"[\s\-]+", expression.lower()))
