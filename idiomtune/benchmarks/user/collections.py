"""A corpus, queries and relevance judgements as BEIR, TREC and mteb lay them out."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from idiomtune.benchmarks.retrieval import tie_break
from idiomtune.benchmarks.user import Mode
from idiomtune.data.user.forms import DOCUMENTS, JUDGEMENTS, QUERIES, Form
from idiomtune.data.user.table import UserRecord, UserTable, unique
from idiomtune.data.user.text_table import normal_text
from idiomtune.errors import UserError
from idiomtune.io.files import is_file, is_folder, list_names, raise_problems
from idiomtune.io.tables import Row, normalise, read_rows, text_lines_of
from idiomtune.requests import EmbeddingRequest, Role


@dataclass(frozen=True)
class UserQuery:
    """A query, and the documents that were judged for it.

    Attributes:
        grades: position of a document → its grade; relevant are those above 0.
        group: what it belongs to in a resample; None if it is by itself.
        left_out: positions of documents that it does not search.
    """

    id: str
    text: EmbeddingRequest
    grades: dict[int, float]
    group: str | None = None
    left_out: Sequence[int] = ()


def request_of(record: UserRecord, instruction: str | None = None, role: Role = "query") -> EmbeddingRequest:
    """A text with its row's instruction, else the given one. Raises FieldError."""
    return EmbeddingRequest(*record.marked_text(), role, record.optional_text("instruction") or instruction)


def modes_of(requests: Iterable[EmbeddingRequest]) -> list[Mode]:
    """By whole sentences, and by spans if one of the texts has a span."""
    return ["sentence", "span"] if any(request.span for request in requests) else ["sentence"]


def in_mode(requests: Iterable[EmbeddingRequest], mode: Mode) -> Iterator[EmbeddingRequest]:
    """In the mode `span`, a text without a span is embedded whole."""
    return (replace(r, pooling="span") if mode == "span" and r.span else r for r in requests)


def span_note(requests: Iterable[EmbeddingRequest], key: str) -> list[str]:
    """The note on texts that the mode `span` embeds whole; empty if all texts have a span, or none."""
    have = [request.span is not None for request in requests]
    if all(have) or not any(have):
        return []
    return [f"{key}: {have.count(False)} of {len(have)} texts have no span and are embedded as a whole"]


_CORPUS = ("corpus", "collection", "documents", "docs")
_QUERIES = ("queries", "topics")
_JUDGEMENTS = ("qrels", "default", "judgements", "judgments")
_TABLES = (".jsonl", ".ndjson", ".tsv", ".csv", ".parquet", ".xlsx")
_PLAIN = (".tsv", ".txt", ".trec", ".qrels")  # lines of fields between tabs or blanks
_SHARD = re.compile(r"-\d+-of-\d+$")
_USUAL_SPLIT = "test"
_NO_ID = "N/A"  # in BRIGHT's lists of excluded documents: none

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Collection:
    """A folder's documents and queries, checked.

    Attributes:
        name: in score keys.
        ids: of the documents; only those of the user's own rows may occur twice.
        queries: those with a relevant document, by positions of documents; grades are above 0.
        num_left_out: queries without one, which are not scored.
    """

    name: str
    ids: Sequence[str]
    documents: Sequence[EmbeddingRequest]
    queries: list[UserQuery]
    num_left_out: int
    files: list[Path]

    @property
    def modes(self) -> list[Mode]:
        """Also by spans, if there is one."""
        return modes_of([*self.documents, *(query.text for query in self.queries)])

    def shown(self, position: int) -> dict[str, str]:
        """For a record of results: a document's id, and up to 300 characters of its text."""
        return {"id": self.ids[position], "text": self.documents[position].text[:300]}

    @cached_property
    def ties(self) -> Tensor:
        """(N,), see :func:`idiomtune.benchmarks.retrieval.tie_break`."""
        return tie_break(self.ids)


def warn_of_own_texts(name: str, collection: Collection, advice: str = "") -> None:
    """Warn of queries that find a copy of themselves: a document with their own text is relevant.

    Of held-out pairs not if all do, as in unsupervised SimCSE: the run then says that its score is full.
    """
    texts = [normal_text(document.text) for document in collection.documents]
    has_own = [normal_text(q.text.text) in {texts[n] for n in q.grades} for q in collection.queries]
    if any(has_own):
        level = logging.INFO if all(has_own) and not advice else logging.WARNING
        counts = f"{sum(has_own)} of {len(has_own)}"
        message = "%s: %s queries find their own text, which is relevant to them%s"
        log.log(level, message, name, counts, advice)


def read_collection(
    name: str,
    folder: Path,
    judgements: str | None = None,
    instruction: str | None = None,
    missing: str = "error",
    exclude_self: bool = False,
) -> Collection:
    """A corpus, its queries and their relevance judgements.

    Each is a file (`corpus.jsonl`, `queries.tsv`, `qrels.txt`, …) or a folder of that name; see
    docs/own-data-scoring.md for all names and columns. A document's text is its title and its text.

    Args:
        name: in score keys.
        judgements: which of several files of judgements, such as `test`; None for the only one, or `test`.
        instruction: before queries whose row has none.
        missing: `ignore` = leave out judgements of queries and documents that do not exist.
        exclude_self: a document with the query's id (as in BEIR, where some queries are documents of the
            corpus) or text is not a result of the query; a query with nothing else to find is not scored.

    Raises:
        UserError: naming file, row and field of all problems in a file.
    """
    if not is_folder(folder):
        raise UserError("there is no such folder, with corpus, queries and qrels in it", file=folder)
    corpus, query_files = _parts(folder, _CORPUS), _parts(folder, _QUERIES)
    judged = _judgement_files(folder, judgements)

    check, check_query = unique(), unique()
    ignored: dict[str, None] = {}

    def exists(record: UserRecord, role: str, id_: str, ids: Container[str]) -> bool:
        if id_ in ids:
            return True
        if missing != "ignore":
            noun = "query" if role == "query" else "document"
            advice = "benchmark.own_retrieval.missing=ignore leaves it out"
            raise record.error(role, f"there is no {noun} {id_!r}; {advice}")
        ignored[f"{role} {id_}"] = None
        return False

    def document(record: UserRecord) -> tuple[str, EmbeddingRequest]:
        return check(record, record.name("id")), request_of(record, role="document")

    def query(record: UserRecord) -> tuple[str, UserQuery]:
        id_ = check_query(record, record.name("id"))
        request = request_of(record, instruction=instruction)
        ids = map(str, record.list_in("excluded") if record.has("excluded") else ())
        left_out = {positions[d] for d in ids if d != _NO_ID and exists(record, "excluded", d, positions)}
        if exclude_self:
            left_out.update(same_text.get(normal_text(request.text), ()))
            left_out.update([positions[id_]] if id_ in positions else ())
        return id_, UserQuery(id_, request, {}, record.optional_name("group"), left_out=sorted(left_out))

    def judge(record: UserRecord) -> None:
        query, document = record.name("query"), record.name("document")
        grade = record.number_in("relevance") if "relevance" in record.names else 1.0
        if exists(record, "query", query, queries) and exists(record, "document", document, positions):
            first = queries[query].grades.setdefault(positions[document], grade)
            if first != grade:
                problem = f"{document!r} has the grades {first:g} and {grade:g} for the query {query!r}"
                raise record.error("document", problem)

    documents = dict(_read(corpus, DOCUMENTS, ("id text", "id title text"), document))
    positions = {id_: position for position, id_ in enumerate(documents)}
    same_text: dict[str, list[int]] = {}  # normal text → positions
    for position, request in enumerate(documents.values()):
        same_text.setdefault(normal_text(request.text), []).append(position)
    queries = dict(_read(query_files, QUERIES, ("id text",), query))
    layouts = ("query document", "query document relevance", "query iteration document relevance")
    num_judgements = sum(1 for _ in _read(judged, JUDGEMENTS, layouts, judge))
    if ignored:
        log.warning("%s: left out, since they do not exist: %s", folder, list_names([*ignored], 3))
    scored = []
    for searched in queries.values():
        if grades := {n: g for n, g in searched.grades.items() if g > 0 and n not in searched.left_out}:
            scored.append(replace(searched, grades=grades))
    if not scored:
        but = " other than itself (benchmark.own_retrieval.exclude_self=true)" if exclude_self else ""
        raise UserError(f"no query has a relevant document{but}: nothing can be scored", file=judged[0])
    files = [*corpus, *query_files, *judged]
    num_copies = len(documents) - len(same_text)
    about = f" ({num_copies} of them copies of others)" * bool(num_copies)
    about = f"{len(documents)} documents{about}, {len(queries)} queries, {num_judgements} judgements"
    log.info("%s: %s (%s)", folder, about, ", ".join(str(path.relative_to(folder)) for path in judged))
    if others := [*_other_files(folder, files)]:
        log.info("%s: not read: %s", folder, list_names(others))
    num_left_out = len(queries) - len(scored)
    collection = Collection(name, [*documents], [*documents.values()], scored, num_left_out, files)
    warn_of_own_texts(str(folder), collection, "; benchmark.own_retrieval.exclude_self=true leaves it out")
    return collection


def _other_files(folder: Path, files: Sequence[Path]) -> Iterator[str]:
    """What a folder has beside these files, such as another split; not hidden files and those about it."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and any(path in file.parents for file in files):
            yield from (f"{path.name}/{name}" for name in _other_files(path, files))
        elif path not in files and not path.name.startswith((".", "README", "LICENSE")):
            yield path.name


def _unpack(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def _parts(folder: Path, names: Sequence[str], suffixes: Sequence[str] = _TABLES) -> list[Path]:
    """The files of a part: those in a folder of its name, or the file of that name."""
    for name in names:
        part = folder / name
        if is_file(part):
            return [part]
        paths = part.iterdir() if is_folder(part) else folder.glob(f"{name}.*")
        files = sorted(p for p in paths if _unpack(p).suffix.lower() in suffixes and is_file(p))
        if len(files) > 1 and not is_folder(part) and names is not _JUDGEMENTS:
            several = " and ".join(path.name for path in files)
            raise UserError(f"{several} could each be the {names[0]}: keep only one of them", file=folder)
        if files:
            return files
    raise UserError(
        f"needs {' or '.join(names)}, as a file with one of {', '.join(suffixes)} or a folder of such files",
        file=folder,
    )


def _judgement_files(folder: Path, split: str | None) -> list[Path]:
    """The files of one split of the judgements."""
    by_split: dict[str, list[Path]] = {}
    for path in _parts(folder, _JUDGEMENTS, (*_TABLES, *_PLAIN)):
        by_split.setdefault(_SHARD.sub("", _unpack(path).stem.removeprefix("qrels.")), []).append(path)
    if split is None:
        split = next(iter(by_split)) if len(by_split) == 1 else _USUAL_SPLIT
    if split not in by_split:
        raise UserError(
            f"there are judgements for {', '.join(by_split)}, and none for {split}: choose with "
            "benchmark.own_retrieval.judgements=<one of them>",
            file=folder,
        )
    return by_split[split]


def _read(
    paths: Sequence[Path], form: Form, layouts: Sequence[str], make: Callable[[UserRecord], T]
) -> Iterator[T]:
    """The result of `make` for each row.

    Args:
        layouts: roles of the fields in files without a header, which their number tells apart.

    Raises:
        UserError: after the last row of a file, naming all problems in it.
    """
    for path in paths:
        is_plain = _unpack(path).suffix.lower() in (*_PLAIN, "")
        rows = _plain_rows(path, form, {layout.count(" ") + 1: layout.split() for layout in layouts})
        table = UserTable(path, [form])
        yield from table.read(make, rows if is_plain else None)
    table.log_unread()  # of shards the last: all of a data set have the same columns


def _plain_rows(path: Path, form: Form, layouts: dict[int, list[str]]) -> Iterator[Row]:
    """Rows of fields between tabs, of judgements also between blanks, with or without a header."""

    def fields(line: str) -> list[str]:
        return line.split() if form is JUDGEMENTS and "\t" not in line else line.rstrip("\r\n").split("\t")

    header = [*map(normalise, fields(next(text_lines_of(path), "")))]
    has_header = form.recognise(header, {}).keys() >= set(form.required)
    if has_header and _unpack(path).suffix.lower() == ".tsv":
        yield from read_rows(path)
        return
    if has_header:
        layouts = {len(header): header}
    problems: list[str] = []
    for number, line in enumerate(text_lines_of(path), 1):
        values = fields(line)
        if not line.strip() or (has_header and number == 1):
            continue
        if len(values) in layouts:
            yield Row(number, dict(zip(layouts[len(values)], values, strict=True)))
        else:
            problems.append(f"row {number}: needs {' or '.join(map(str, layouts))} fields, got {len(values)}")
    raise_problems(problems, path)
