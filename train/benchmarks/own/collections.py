"""Reading a corpus, queries and relevance judgements in the layouts of BEIR, TREC and mteb."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from train.benchmarks.own import Mode
from train.benchmarks.own.fields import OwnText
from train.benchmarks.own.streamed import Check, Documents, StreamedDocuments, have_spans
from train.data.own.forms import DOCUMENTS, JUDGEMENTS, QUERIES, Form, normalised
from train.data.own.sources import Source
from train.data.own.table import Record, Table, unique
from train.errors import UserError
from train.io.paths import is_file, is_folder
from train.io.records import Problems
from train.io.tables import Row, read_rows, text_lines_of

_CORPUS = ("corpus", "collection", "documents", "docs")
_QUERIES = ("queries", "topics")
_JUDGEMENTS = ("qrels", "default", "judgements", "judgments")
_TABLES = (".jsonl", ".ndjson", ".tsv", ".csv", ".parquet")
_PLAIN = (".tsv", ".txt", ".trec", ".qrels")  # lines of fields between tabs or blanks
_SHARD = re.compile(r"-\d+-of-\d+$")
_USUAL_SPLIT = "test"

T = TypeVar("T")


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
        streamed: keep no document's text in memory: they are read again when needed.

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
        ids, documents = [], []
        for id_, document in _each_document(corpus, unique()):
            ids.append(id_)
            documents.append(document)
        find = {id_: position for position, id_ in enumerate(ids)}.get
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


def _each_document(files: Sequence[Path], check: Check | None = None) -> Iterator[tuple[str, OwnText]]:
    """Id and text of each document; `check` is called with each row and id."""
    without_header = {2: ("id", "text"), 3: ("id", "title", "text")}

    def document(record: Record) -> tuple[str, OwnText]:
        id_ = record.name("id")
        return check(record, id_) if check else id_, OwnText.of(record)

    for path in files:
        yield from _read(path, DOCUMENTS, without_header, document)


def _read_queries(files: Sequence[Path], instruction: str | None) -> dict[str, tuple[OwnText, str | None]]:
    """Id → text and group."""
    check = unique()

    def query(record: Record) -> tuple[str, tuple[OwnText, str | None]]:
        id_ = check(record, record.name("id"))
        return id_, (OwnText.of(record, instruction=instruction), record.optional_name("group"))

    return dict(made for path in files for made in _read(path, QUERIES, {2: ("id", "text")}, query))


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
    without_header = {
        2: ("query", "document"),
        3: ("query", "document", "relevance"),
        4: ("query", "iteration", "document", "relevance"),
    }

    def judge(record: Record) -> None:
        query, document = record.name("query"), record.name("document")
        grade = record.number_in("relevance") if "relevance" in record.names else 1.0
        if query not in queries:
            raise record.error("query", f"there is no query {query!r}")
        position = find(document)
        if position is None:
            raise record.error("document", f"there is no document {document!r} in the corpus")
        if position in found.setdefault(query, {}):
            raise record.error("document", f"{document!r} is judged twice for the query {query!r}")
        found[query][position] = grade

    for path in files:
        for _ in _read(path, JUDGEMENTS, without_header, judge):
            pass
    return {query: {d: g for d, g in grades.items() if g > 0} for query, grades in found.items()}


def _read(
    path: Path, form: Form, without_header: Mapping[int, Sequence[str]], make: Callable[[Record], T]
) -> Iterator[T]:
    """What `make` makes of each row; without a header, columns are known by the number of fields.

    Args:
        without_header: number of fields → roles.

    Raises:
        UserError: after the last row of a file, naming all that are wrong in it.
    """
    plain = _suffix(path) in (*_PLAIN, "") and _plain_rows(path, form, without_header)
    yield from Table(Source(str(path), path), [form]).read(make, plain or None)


def _plain_rows(path: Path, form: Form, without_header: Mapping[int, Sequence[str]]) -> Iterator[Row]:
    """Rows of fields between tabs, of judgements also between blanks, with or without a header."""
    first = _fields(next(text_lines_of(path), ""), form)
    header = [*map(normalised, first)] if form.recognise(first, {}).keys() >= set(form.required) else []
    if header and _suffix(path) == ".tsv":
        yield from read_rows(path)
        return
    problems = Problems(path)
    for number, line in enumerate(text_lines_of(path), 1):
        fields = _fields(line, form)
        roles = header or without_header.get(len(fields), ())
        if not line.strip() or (header and number == 1):
            continue
        if len(roles) != len(fields):
            expected = str(len(header)) if header else " or ".join(map(str, without_header))
            problems.add(f"row {number}: has {len(fields)} fields, not {expected}")
        else:
            yield Row(number, dict(zip(roles, fields, strict=True)))
    problems.raise_if_any()


def _fields(line: str, form: Form) -> list[str]:
    line = line.rstrip("\r\n")
    return line.split() if form is JUDGEMENTS and "\t" not in line else line.split("\t")
