"""Reading a corpus, queries and relevance judgements in the layouts of BEIR, TREC and mteb."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from train.benchmarks.own import DOCUMENT_COLUMNS, JUDGEMENT_COLUMNS, QUERY_COLUMNS, Mode
from train.benchmarks.own.fields import Columns, FieldError, OwnText, Record, Table
from train.benchmarks.own.streamed import Check, Documents, StreamedDocuments, have_spans
from train.data.own.cells import normalised
from train.errors import UserError
from train.io.paths import is_file, is_folder
from train.io.tables import Row, read_rows, text_lines_of

_CORPUS = ("corpus", "collection", "documents", "docs")
_QUERIES = ("queries", "topics")
_JUDGEMENTS = ("qrels", "default", "judgements", "judgments")
_TABLES = (".jsonl", ".ndjson", ".tsv", ".csv", ".parquet")
_PLAIN = (".tsv", ".txt", ".trec", ".qrels")  # lines of fields between tabs or blanks
_SHARD = re.compile(r"-\d+-of-\d+$")
_USUAL_SPLIT = "test"


@dataclass(frozen=True, slots=True)
class OwnQuery:
    """A query with what is relevant to it.

    Attributes:
        relevance: position of a document → its grade, above 0.
        group: what it belongs to in a resample; None if it is by itself.
        left_out: positions of documents that it does not search.
    """

    id: str
    text: OwnText
    relevance: dict[int, float]
    group: str | None
    left_out: Sequence[int] = ()


@dataclass(frozen=True)
class Collection:
    """A folder's documents and queries, checked.

    Attributes:
        name: in score keys.
        document_ids: of the documents, in their order.
        queries: those with a relevant document.
        num_left_out: queries without one, which are not scored.
    """

    name: str
    document_ids: Sequence[str]
    documents: Documents
    queries: list[OwnQuery]
    num_left_out: int
    files: list[Path]

    @property
    def modes(self) -> list[Mode]:
        """Also by spans, if there is one."""
        has_spans = any(q.text.span for q in self.queries) or have_spans(self.documents)
        return ["sentence", "span"] if has_spans else ["sentence"]


def read_collection(
    name: str,
    folder: Path,
    judgements: str | None = None,
    instruction: str | None = None,
    *,
    streamed: bool = False,
) -> Collection:
    """A corpus, its queries and their relevance judgements.

    Each is a file (`corpus.jsonl`, `queries.tsv`, `qrels.txt`, …) or a folder of that name; see
    docs/own-data-scoring.md for all names and columns. A document's text is its title and its text.

    Args:
        name: in score keys.
        judgements: which of several files of judgements, as `test`; None for the only one, or `test`.
        instruction: before queries whose row has none.
        streamed: hold no document's text: they are read anew where they are needed.

    Raises:
        UserError: naming file, row and field of all problems in a file.
    """
    if not is_folder(folder):
        raise UserError(f"{folder}: there is no such folder, with corpus, queries and qrels in it")
    corpus, asked = _parts(folder, _CORPUS), _parts(folder, _QUERIES)
    judged = _chosen(folder, _parts(folder, _JUDGEMENTS, are_judgements=True), judgements)
    ids: Sequence[str]
    documents: Documents
    find: Callable[[str], int | None]
    if streamed:
        documents = StreamedDocuments(partial(_each_document, corpus))
        ids, find = documents.ids, documents.ids.find
    else:
        positions, documents = _read_documents(corpus)
        ids = list(positions)
        find = positions.get
    queries = _read_queries(asked, instruction)
    relevance = _read_judgements(judged, queries, find)
    scored = [
        OwnQuery(id_, text, relevance[id_], group)
        for id_, (text, group) in queries.items()
        if relevance.get(id_)
    ]
    if not scored:
        raise UserError(f"{judged[0]}: no query has a relevant document: nothing can be scored")
    return Collection(name, ids, documents, scored, len(queries) - len(scored), [*corpus, *asked, *judged])


def _parts(folder: Path, names: Sequence[str], *, are_judgements: bool = False) -> list[Path]:
    """The files of a part: those in a folder of its name, or the file of that name."""
    suffixes = (*_TABLES, *_PLAIN) if are_judgements else _TABLES
    for name in names:
        part = folder / name
        if is_file(part):
            return [part]
        found = part.iterdir() if is_folder(part) else folder.glob(f"{name}.*")
        files = sorted(path for path in found if _suffix(path) in suffixes and is_file(path))
        if len(files) > 1 and not is_folder(part) and not are_judgements:
            shown = " and ".join(path.name for path in files)
            raise UserError(f"{folder}: {shown} could each be the {names[0]}: keep one of them there")
        if files:
            return files
    what = "qrels.tsv or qrels/<split>.tsv" if are_judgements else f"{names[0]}.jsonl"
    raise UserError(
        f"{folder}: there is no {what} (nor {' or '.join(names)} with another of {', '.join(suffixes)}, nor "
        "a folder of that name with such files)"
    )


def _chosen(folder: Path, files: Sequence[Path], wanted: str | None) -> list[Path]:
    """The files of one split of the judgements."""
    by_split: dict[str, list[Path]] = {}
    for path in files:
        by_split.setdefault(_SHARD.sub("", _stem(path).removeprefix("qrels.")), []).append(path)
    if wanted is None:
        wanted = next(iter(by_split)) if len(by_split) == 1 else _USUAL_SPLIT
    if wanted not in by_split:
        raise UserError(
            f"{folder}: there are judgements for {', '.join(by_split)}, and none for {wanted}: choose with "
            "benchmark.own_retrieval.judgements=<one of them>"
        )
    return by_split[wanted]


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


def _stem(path: Path) -> str:
    name = path.name[:-3] if path.suffix.lower() == ".gz" else path.name
    return name.removesuffix(Path(name).suffix)


def _read_documents(files: Sequence[Path]) -> tuple[dict[str, int], list[OwnText]]:
    """Id → position, and the texts."""
    positions: dict[str, int] = {}
    documents: list[OwnText] = []

    def check(id_: str, record: Record) -> None:
        if id_ in positions:
            raise record.error("id", f"{id_!r} occurs twice")

    for id_, document in _each_document(files, check):
        positions[id_] = len(positions)
        documents.append(document)
    return positions, documents


def _each_document(files: Sequence[Path], check: Check | None) -> Iterator[tuple[str, OwnText]]:
    """Id and text of each document.

    Args:
        check: called with each id and its row.

    Raises:
        UserError: after the last row of a file, naming all that are wrong in it.
    """
    for path in files:
        table = Table(path, DOCUMENT_COLUMNS, ("id", "text"))
        for record in table.records(
            _rows(path, DOCUMENT_COLUMNS, {2: ("id", "text"), 3: ("id", "title", "text")})
        ):
            try:
                id_ = record.name("id")
                if check is not None:
                    check(id_, record)
                document = _document(record)
            except FieldError as error:
                table.add(error)
            else:
                yield id_, document
        table.close()


def _document(record: Record) -> OwnText:
    """Its title, a blank and its text; either may be empty, but not both."""
    title = record.optional_text("title")
    if title is None:
        return record.span_text("text")
    return record.span_text("text", before=f"{title} ") if record.has("text") else OwnText(title)


def _read_queries(files: Sequence[Path], instruction: str | None) -> dict[str, tuple[OwnText, str | None]]:
    """Id → text and group."""
    queries: dict[str, tuple[OwnText, str | None]] = {}
    for path in files:
        table = Table(path, QUERY_COLUMNS, ("id", "text"))
        for record in table.records(_rows(path, QUERY_COLUMNS, {2: ("id", "text")})):
            try:
                id_ = record.name("id")
                if id_ in queries:
                    raise record.error("id", f"{id_!r} occurs twice")
                queries[id_] = record.span_text("text", default=instruction), record.group()
            except FieldError as error:
                table.add(error)
        table.close()
    return queries


def _read_judgements(
    files: Sequence[Path],
    queries: dict[str, tuple[OwnText, str | None]],
    find: Callable[[str], int | None],
) -> dict[str, dict[int, float]]:
    """Id of a query → position of a document → its grade, of those above 0.

    Args:
        find: a document's id → its position, None where there is no such document.
    """
    found: dict[str, dict[int, float]] = {}
    forms = {
        2: ("query", "document"),
        3: ("query", "document", "relevance"),
        4: ("query", "iteration", "document", "relevance"),
    }
    for path in files:
        table = Table(path, JUDGEMENT_COLUMNS, ("query", "document"))
        for record in table.records(_rows(path, JUDGEMENT_COLUMNS, forms)):
            try:
                query, document = record.name("query"), record.name("document")
                grade = record.number_in("relevance") if "relevance" in record.names else 1.0
                if query not in queries:
                    raise record.error("query", f"there is no query {query!r}")
                position = find(document)
                if position is None:
                    raise record.error("document", f"there is no document {document!r} in the corpus")
                of_query = found.setdefault(query, {})
                if position in of_query:
                    raise record.error("document", f"{document!r} is judged twice for the query {query!r}")
                of_query[position] = grade
            except FieldError as error:
                table.add(error)
        table.close()
    return {query: {d: g for d, g in grades.items() if g > 0} for query, grades in found.items()}


def _rows(path: Path, columns: Columns, forms: Mapping[int, Sequence[str]]) -> Iterator[Row]:
    """A file's rows; of one without a header, by the number of its fields.

    Args:
        forms: number of fields → roles.
    """
    suffix, are_judgements = _suffix(path), columns is JUDGEMENT_COLUMNS
    is_plain = suffix in (*_PLAIN, "")
    has_header = is_plain and _has_header(path, columns)
    if not is_plain or (has_header and suffix == ".tsv"):
        yield from read_rows(path)
        return
    problems = Table(path, columns, ())
    with text_lines_of(path) as rows:
        names = _fields(next(rows), are_judgements) if has_header else []
        num_rows = 0
        for number, line in enumerate(rows, 2 if has_header else 1):
            if not line.strip():
                continue
            num_rows += 1
            fields = _fields(line, are_judgements)
            roles = names or forms.get(len(fields), ())
            if len(roles) != len(fields):
                expected = str(len(names)) if names else " or ".join(map(str, forms))
                problems.add(f"row {number}: has {len(fields)} fields, not {expected}")
            else:
                yield Row(number, dict(zip(roles, fields, strict=True)))
    problems.close()
    if not num_rows:
        raise UserError(f"{path}: there is no row")


def _has_header(path: Path, columns: Columns) -> bool:
    """Whether the first line names columns."""
    with text_lines_of(path) as rows:
        names = {normalised(field) for field in _fields(next(rows, ""), columns is JUDGEMENT_COLUMNS)}
    needed = [known for role, known in columns.items() if role in ("id", "text", "query", "document")]
    return all(not names.isdisjoint(known) for known in needed)


def _fields(line: str, splits_at_blanks: bool) -> list[str]:
    line = line.rstrip("\r\n")
    return line.split() if splits_at_blanks and "\t" not in line else line.split("\t")
