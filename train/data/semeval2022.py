"""SemEval-2022 Task 2B: training pairs as groups, scored pairs with their gold, submission forms.

Tayyar Madabushi et al. 2022, arXiv 2204.10050; GitHub `H-TayyarMadabushi/SemEval_2022_Task2-idiomaticity`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from train.data.datasets import SEMEVAL2022
from train.data.download import published_files
from train.data.fields import Filled, TableRow
from train.data.folds import shuffled_part
from train.data.names import SemEvalSplit
from train.data.sources import DataFiles, GitHubData
from train.expressions import find_expression
from train.io.records import raise_problems
from train.io.tables import read_table

FOLDER = SEMEVAL2022.name
TRAIN_FILE = "SubTaskB/TrainData/train_data.csv"
ONE_SHOT_FILE = "SubTaskB/TestData/train_one_shot.csv"
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
_NO_EXPRESSION = ("", "None")

FILES = GitHubData(
    SEMEVAL2022,
    "H-TayyarMadabushi/SemEval_2022_Task2-idiomaticity",
    "SubTaskB/",
    {
        **published_files(
            "bef04f0c95e1652d2d8d15bf41ca1b04adbc871f",
            {
                TRAIN_FILE: "484463ceb7170451876922f2051e7b0d56614520b56886b9b3cd884823c303bb",
                _PAIRS["dev"]: "f7a36a4077e3c979b45d3be97732ebd591268ed15c6a7996c806e43ca4b6c4da",
                _GOLD["dev"]: "69c724ea45a82e0fd6dc76a18332be5a2fc6ee08af246470b7f2c6e59ddfd511",
                _FORMS["dev"]: "50fef75276ac48cb35db46a219a962a7b506c96ca1b7d3791672427cb5141380",
                _PAIRS["eval"]: "488827fb64815e3eaf6eed38357b4bc4b961644a2e4889b241f85e5a39dbf530",
                _FORMS["eval"]: "9d1c668bd81c6cb463a5b1222f26f40a54da053f74c3038cea2cb7f1350b7125",
            },
        ),
        **published_files(
            "460ef20f62eba560bb4d7c5b87434ddf29095dee",
            {
                _PAIRS["test"]: "4bc8379419f748f62a3e978b05b20a3bf344b6357781807935a3717151fe8d56",
                ONE_SHOT_FILE: "c3a19617d4b3153008000e46028964a9a48cac5507bf86d236e09c452390c984",
            },
        ),
        **published_files(
            "1771a637e96722289194ae37e3effacf23ce8d19",
            {_FORMS["test"]: "ae6cc6c7cbff05d26822de953bffff3a6a1d356a857f3dbf5198a83241341efd"},
        ),
    },
)


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


def _similarity(value: Any) -> float | None:
    """A similarity from 0 to 1; None for an empty cell."""
    if value == "":
        return None
    try:
        similarity = float(value)
    except ValueError:
        similarity = math.nan
    if not 0 <= similarity <= 1:
        raise ValueError(f"{value!r} is no number from 0 to 1")
    return similarity


Language = Literal["EN", "PT", "GL"]


class _TrainRow(TableRow):
    id: Filled = Field(alias="ID")
    expression: Filled = Field(alias="MWE1")
    language: Language = Field(alias="Language")
    sentence: Filled = Field(alias="sentence_1")
    paraphrase: Filled = Field(alias="sentence_2")
    sim: Literal["1", "None"]

    @model_validator(mode="after")
    def _expression_in_sentence(self) -> Self:
        try:
            found = find_expression(self.sentence, self.expression)
        except ValueError as error:
            raise ValueError(f"field 'MWE1': {error}") from None
        if found is None:
            raise ValueError(f"field 'MWE1': {self.expression!r} is not in {self.sentence!r}")
        return self


class _PairRow(TableRow):
    id: Filled = Field(alias="ID")
    language: Language = Field(alias="Language")
    expression: str = Field(alias="MWE1")
    sentence1: Filled
    sentence2: Filled


class _FormRow(TableRow):
    id: str = Field(alias="ID")
    language: str = Field(alias="Language")
    setting: Literal["pre_train", "fine_tune"] = Field(alias="Setting")
    sim: str = Field(alias="Sim")


class _GoldRow(TableRow):
    id: str = Field(alias="ID")
    data_id: Filled = Field(alias="DataID")
    similarity: Annotated[float | None, BeforeValidator(_similarity)] = Field(alias="sim")
    other: str = Field(alias="otherID")


def read_groups(path: Path) -> list[Group]:
    """Training pairs as groups, one a distinct `sentence_1`, in the order of the file.

    `sim` is `1` for a correct paraphrase and the string `None` for an incorrect one.

    Raises:
        UserError: naming file, row and field of what is wrong: missing columns, an empty sentence, an unknown
            language, another `sim`, an expression that is not in its sentence.
    """
    problems: list[str] = []
    row_of_id: dict[str, int] = {}
    by_sentence: dict[str, list[_TrainRow]] = {}
    for number, row in read_table(path, _TrainRow):
        where = f"row {number} (ID {row.id})"
        first_row = row_of_id.setdefault(row.id, number)
        if first_row != number:
            problems.append(f"{where}, field 'ID': row {first_row} has it too")
        rows = by_sentence.setdefault(row.sentence, [])
        if rows and (rows[0].expression, rows[0].language) != (row.expression, row.language):
            problems.append(f"{where}: the row with ID {rows[0].id} has its sentence, but another MWE1")
        rows.append(row)
    groups = [_group(rows) for rows in by_sentence.values()]
    for group in groups:
        if both := set(group.correct) & set(group.incorrect):
            problems.append(f"the group of ID {group.id}: {both.pop()!r} is both correct and incorrect")
    raise_problems(problems, path)
    return groups


def _group(rows: Sequence[_TrainRow]) -> Group:
    first = rows[0]
    return Group(
        first.id,
        first.expression,
        first.language,
        first.sentence,
        correct=tuple(dict.fromkeys(row.paraphrase for row in rows if row.sim == "1")),
        incorrect=tuple(dict.fromkeys(row.paraphrase for row in rows if row.sim == "None")),
    )


def read_pairs(files: DataFiles, split: SemEvalSplit) -> PairSplit:
    """A split's pairs and, where there is one, its gold.

    `dev_a` and `dev_b` are the expressions of dev in two halves, and its STS pairs likewise, drawn once.

    Raises:
        UserError: naming file, row and field of what is wrong.
    """
    whole = split.partition("_")[0]
    path, form_path = files(_PAIRS[whole]), files(_FORMS[whole])
    gold_path = files(_GOLD[whole]) if whole in _PUBLIC_GOLD else files.optional(_GOLD[whole])
    pairs = [
        Pair(
            row.id,
            row.language,
            None if row.expression in _NO_EXPRESSION else row.expression,
            row.sentence1,
            row.sentence2,
        )
        for _, row in read_table(path, _PairRow)
    ]
    uses = Counter(pair.id for pair in pairs)
    raise_problems([f"field 'ID': the ID {id_} occurs twice" for id_, n in uses.items() if n > 1], path)
    by_id = {pair.id: pair for pair in pairs}
    gold = _read_gold(gold_path, by_id) if gold_path is not None else None
    form = _read_form(form_path, by_id, path.name)
    if split != whole:
        assert gold is not None
        gold = _half(by_id, gold, split)
    read = [path, form_path] + ([gold_path] if gold_path is not None else [])
    return PairSplit(split, tuple(pairs), gold, form, tuple(read))


def _read_form(path: Path, pairs: Mapping[str, Pair], pairs_name: str) -> tuple[tuple[str, str, str], ...]:
    """The (ID, Language, Setting) of each row of a submission."""
    form: dict[tuple[str, str], tuple[str, str, str]] = {}
    problems = []
    for number, row in read_table(path, _FormRow):
        where = f"row {number} (ID {row.id})"
        pair = pairs.get(row.id)
        if pair is None:
            problems.append(f"{where}, field 'ID': {row.id} is not in {pairs_name}")
        elif row.language != pair.language:
            problems.append(f"{where}, field 'Language': {row.language!r}, but the pair's is {pair.language}")
        if (row.id, row.setting) in form:
            problems.append(f"{where}, field 'ID': it occurs twice in its setting")
        form[row.id, row.setting] = row.id, row.language, row.setting
    raise_problems(problems, path)
    return tuple(form.values())


def _read_gold(path: Path, pairs: Mapping[str, Pair]) -> tuple[Gold, ...]:
    gold: dict[str, Gold] = {}
    problems = []
    for number, row in read_table(path, _GoldRow):
        where = f"row {number} (ID {row.id})"
        if row.similarity is None and row.other not in pairs:
            problems.append(f"{where}, field 'otherID': {row.other!r} is no ID of a pair, and sim is empty")
        elif row.similarity is None and row.other == row.id:
            problems.append(f"{where}, field 'otherID': is the pair itself")
        is_sts, pair = ".sts." in row.data_id, pairs.get(row.id)
        if pair is None:
            problems.append(f"{where}, field 'ID': there is no such pair")
        elif is_sts != (pair.expression is None):
            problems.append(
                f"{where}, field 'DataID': {row.data_id!r} is {'an' if is_sts else 'no'} STS pair, but in "
                f"the pairs' file its MWE1 is {pair.expression or 'None'}"
            )
        if row.id in gold:
            problems.append(f"{where}, field 'ID': it occurs twice")
        gold[row.id] = Gold(row.id, is_sts, row.similarity, row.other or None)
    raise_problems(problems, path)
    return tuple(gold.values())


def _half(pairs: Mapping[str, Pair], gold: Sequence[Gold], split: SemEvalSplit) -> tuple[Gold, ...]:
    """Half of the expressions, and of the STS pairs, language by language."""
    names: dict[tuple[str, bool], set[str]] = {}
    for item in gold:
        names.setdefault((pairs[item.id].language, item.is_sts), set()).add(_half_name(pairs, item))
    part = ("dev_a", "dev_b").index(split)
    halves = {group: shuffled_part(members, part, 2) for group, members in names.items()}
    return tuple(
        item for item in gold if _half_name(pairs, item) in halves[pairs[item.id].language, item.is_sts]
    )


def _half_name(pairs: Mapping[str, Pair], item: Gold) -> str:
    """What goes to a half as a whole: an expression in any spelling, or a single STS pair."""
    if item.is_sts:
        return item.id
    return " ".join(re.split(r"[\s\-]+", (pairs[item.id].expression or item.id).lower()))
