"""Reading queries with candidates to be ranked, from a table of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from train.benchmarks.own import Mode
from train.benchmarks.own.fields import OwnText
from train.data.own.forms import RANKINGS
from train.data.own.sources import Source
from train.data.own.table import Record, Table, as_number, unique
from train.errors import UserError


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
    queries: dict[str, _Query] = {}
    check = unique()

    def add(record: Record) -> None:
        query = OwnText.of(record, "query", instruction=instruction)
        group = record.optional_name("group")
        if table.form.name == "by pair":
            id_ = record.name("id") if "id" in record.names else query.text
            candidate, grade = record.text("candidate"), record.number_in("grade")
            known = queries.setdefault(id_, _Query(query, group, {}))
            if (known.query, known.group) != (query, group):
                raise record.error("query", f"is not that of the first row of {id_!r} (query, span, group)")
            if candidate in known.grades:
                raise record.error("candidate", f"{candidate!r} occurs twice for the query {id_!r}")
            known.grades[candidate] = grade
        else:
            named = [record.name(role) for role in ("id", "row_id") if role in record.names]
            id_ = check(record, named[0] if named else str(record.number))
            queries[id_] = _Query(query, group, _grades(record, table.form.name))

    table = Table(Source(str(path), path), RANKINGS, columns, "benchmark.own_ranking.columns")
    for _ in table.read(add):
        pass
    found = [query.ranked(id_) for id_, query in queries.items()]
    scored = [query for query in found if len(query.grades) > 1 and max(query.grades) > 0]
    if not scored:
        raise UserError(
            f"{path}: no query has two candidates or more, one of them relevant (a grade above 0): nothing "
            "can be scored"
        )
    return RankingFile(name, path, scored, table.form.name == "ordered", len(found) - len(scored))


@dataclass
class _Query:
    """A query, and the grade of each candidate."""

    query: OwnText
    group: str | None
    grades: dict[str, float]

    def ranked(self, id_: str) -> RankedQuery:
        """With its candidates sorted by their texts."""
        order = sorted(self.grades)
        return RankedQuery(
            id_, self.query, tuple(order), tuple(self.grades[text] for text in order), self.group
        )


def _grades(record: Record, form: str) -> dict[str, float]:
    """The grade of each candidate of a row that has all of a query."""
    role = "positives" if form == "relevant" else "candidates"
    candidates = _texts(record, role)
    grades = [float(len(candidates) - 1 - i) for i in range(len(candidates))]
    if form == "relevant":
        negatives = _texts(record, "negatives") if record.has("negatives") else []
        grades = [1.0] * len(candidates) + [0.0] * len(negatives)
        candidates += negatives
    elif form == "graded":
        grades = _numbers(record, "grades")
        if len(grades) != len(candidates):
            raise record.error("grades", f"{len(grades)} grades of {len(candidates)} candidates")
    if len(set(candidates)) < len(candidates):
        twice = next(text for text in candidates if candidates.count(text) > 1)
        raise record.error(role, f"{twice!r} occurs twice among the candidates")
    return dict(zip(candidates, grades, strict=True))


def _texts(record: Record, role: str) -> list[str]:
    texts = list(record.list_in(role))
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise record.error(role, f"{text!r} is not a text")
    return texts


def _numbers(record: Record, role: str) -> list[float]:
    numbers = []
    for value in record.list_in(role):
        number = as_number(value)
        if number is None:
            raise record.error(role, f"{value!r} is not a number")
        numbers.append(number)
    return numbers
