"""Reading queries with candidates to be ranked, from a table of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.benchmarks.own import RANKING_COLUMNS, Mode
from train.benchmarks.own.fields import FieldError, OwnText, Record, Table, as_number
from train.errors import UserError
from train.io.records import parse_json, parse_list

_OPTION = "benchmark.own_ranking.columns"


@dataclass(frozen=True, slots=True)
class RankedQuery:
    """A query and its candidates.

    Attributes:
        candidates: different texts, sorted, so that their order says nothing of the gold order.
        grades: of each; the greater, the better. A candidate with a grade above 0 is relevant.
        group: what it belongs to in a resample; None if it is by itself.
    """

    id: str
    query: OwnText
    candidates: tuple[str, ...]
    grades: tuple[float, ...]
    group: str | None


@dataclass(frozen=True)
class RankingFile:
    """A file's queries, checked.

    Attributes:
        name: in score keys.
        is_ordered: candidates came in gold order, without grades: the first of N has the grade N - 1, and
            it alone is relevant.
        num_left_out: queries without a relevant candidate, or with one candidate alone; they are not scored.
    """

    name: str
    path: Path
    queries: list[RankedQuery]
    is_ordered: bool
    num_left_out: int

    @property
    def modes(self) -> list[Mode]:
        """Also by the queries' spans, if there is one."""
        has_spans = any(query.query.span for query in self.queries)
        return ["sentence", "span"] if has_spans else ["sentence"]


def read_ranking(
    name: str, path: Path, columns: Mapping[str, str] | None = None, instruction: str | None = None
) -> RankingFile:
    """Queries with candidates, in one of four forms, which the columns tell.

    - `query`, `candidates` (a list), `grades` (a list of as many numbers)
    - `query`, `candidates`, the best first
    - `query`, `positives`, `negatives` (lists, or one text each)
    - `query_id`, `query`, `candidate`, `grade`: a row a pair

    In CSV and TSV a list is written as in JSON.

    Args:
        name: in score keys.
        columns: role → column, where the names of the file's columns are not understood as they are.
        instruction: before queries whose row has none.

    Raises:
        UserError: naming file, row and field of all problems.
    """
    table = Table(path, RANKING_COLUMNS, ("query",), columns, _OPTION)
    found: list[RankedQuery] = []
    by_pair: dict[str, _Pairs] = {}
    forms: set[str] = set()
    for record in table.records():
        try:
            form = _form(record)
            forms.add(form)
            if form == "pairs":
                _add_pair(record, by_pair, instruction)
                continue
            id_ = record.name("id", record.name("row_id", str(record.number)))
            table.check_id(id_, record)
            candidates, grades = _lists(record, form)
            query = record.span_text("query", default=instruction)
            found.append(_query(id_, query, candidates, grades, record.group()))
        except FieldError as error:
            table.add(error)
    table.close()
    if len(forms) > 1:
        raise UserError(f"{path}: rows are of several forms ({', '.join(sorted(forms))}): keep to one")
    found += [_query(id_, p.query, p.candidates, p.grades, p.group) for id_, p in by_pair.items()]
    scored = [query for query in found if len(query.grades) > 1 and max(query.grades) > 0]
    if not scored:
        raise UserError(
            f"{path}: no query has two candidates or more, one of them relevant (a grade above 0): nothing "
            "can be scored"
        )
    return RankingFile(name, path, scored, forms == {"ordered"}, len(found) - len(scored))


@dataclass
class _Pairs:
    """What the rows of one query give."""

    query: OwnText
    group: str | None
    candidates: list[str]
    grades: list[float]


def _form(record: Record) -> str:
    if "candidates" in record.names:
        return "graded" if "grades" in record.names else "ordered"
    if "positives" in record.names:
        return "positives"
    if "candidate" in record.names:
        return "pairs"
    raise record.error("candidates", "is missing, and so are positives and candidate")


def _add_pair(record: Record, by_pair: dict[str, _Pairs], instruction: str | None) -> None:
    query, candidate = record.span_text("query", default=instruction), record.text("candidate")
    id_, grade = record.name("id", query.text), record.number_in("grade")
    group = record.group()
    pairs = by_pair.setdefault(id_, _Pairs(query, group, [], []))
    if (pairs.query, pairs.group) != (query, group):
        raise record.error("query", f"is not that of the first row of {id_!r} (query, span, group)")
    if candidate in pairs.candidates:
        raise record.error("candidate", f"{candidate!r} occurs twice for the query {id_!r}")
    pairs.candidates.append(candidate)
    pairs.grades.append(grade)


def _lists(record: Record, form: str) -> tuple[list[str], list[float]]:
    """Candidates and their grades."""
    if form == "positives":
        positives = _texts(record, "positives")
        negatives = _texts(record, "negatives") if record.has("negatives") else []
        candidates, grades = positives + negatives, [1.0] * len(positives) + [0.0] * len(negatives)
    else:
        candidates = _texts(record, "candidates")
        grades = [float(len(candidates) - 1 - i) for i in range(len(candidates))]
        if form == "graded":
            grades = _numbers(record, "grades")
            if len(grades) != len(candidates):
                raise record.error("grades", f"{len(grades)} grades of {len(candidates)} candidates")
    role = "positives" if form == "positives" else "candidates"
    if len(set(candidates)) < len(candidates):
        twice = next(text for text in candidates if candidates.count(text) > 1)
        raise record.error(role, f"{twice!r} occurs twice among the candidates")
    return candidates, grades


def _query(
    id_: str, query: OwnText, candidates: Sequence[str], grades: Sequence[float], group: str | None
) -> RankedQuery:
    order = sorted(range(len(candidates)), key=candidates.__getitem__)
    return RankedQuery(
        id_, query, tuple(candidates[i] for i in order), tuple(grades[i] for i in order), group
    )


def _texts(record: Record, role: str) -> list[str]:
    texts = _list(record, role)
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise record.error(role, f"{text!r} is no text")
    return texts


def _numbers(record: Record, role: str) -> list[float]:
    numbers = []
    for value in _list(record, role):
        number = as_number(value)
        if number is None:
            raise record.error(role, f"{value!r} is no number")
        numbers.append(number)
    return numbers


def _list(record: Record, role: str) -> list[Any]:
    """A list, also as text in JSON's or Python's notation; one plain text stands for a list of it."""
    value = record.raw(role)
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        raise record.error(role, f"must be a list, found {value!r}")
    if not value.lstrip().startswith("["):
        return [value]
    try:
        parsed = parse_json(value)
    except ValueError:
        parsed = parse_list(value)
    if not isinstance(parsed, list):
        raise record.error(role, f'is no list, as ["one", "two"]: {value!r}')
    return parsed
