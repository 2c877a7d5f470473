"""What is searched, and with what: IdioLink's splits, or texts of the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from train.benchmarks.own.collections import read_collection
from train.benchmarks.own.fields import OwnText
from train.data.idiolink import Document, Split
from train.data.own.forms import TEXTS, TRAINED
from train.data.own.rows import OwnTable
from train.data.own.sources import Source
from train.data.own.table import Record, Table
from train.declarations.own_data import Form
from train.errors import UserError
from train.io.paths import is_file, is_folder
from train.io.records import read_text
from train.io.tables import is_table
from train.io.text import text_lines


@dataclass(frozen=True, slots=True)
class Text:
    """A document or a query.

    Attributes:
        span: offsets [start, end) of what is marked in it, if anything.
        usage: its colour on the page: IdioLink's `idiomatic`, `literal`, …, or a word of the user's own.
        group: what it is about, as its idiom.
        position: of a query that is itself a document, its place in the corpus; it is not searched for.
    """

    text: str
    span: tuple[int, int] | None = None
    usage: str = ""
    group: str = ""
    position: int | None = None


@dataclass(frozen=True)
class Corpus:
    """What is searched.

    Attributes:
        name: for people.
        relevant: position of a query → positions of the documents that answer it, where that is known.
    """

    name: str
    documents: Sequence[Text]
    queries: Sequence[Text]
    relevant: Mapping[int, frozenset[int]] = field(default_factory=dict)

    @property
    def has_spans(self) -> bool:
        """Whether something is marked in each query."""
        return bool(self.queries) and all(query.span for query in self.queries)

    def with_queries(self, limit: int) -> Corpus:
        """Of more queries than `limit` that many, taken evenly from all; without any, the documents."""
        queries, relevant = self.queries, self.relevant
        if not queries:
            queries = [Text(d.text, d.span, d.usage, d.group, i) for i, d in enumerate(self.documents)]
        kept = (
            [i * len(queries) // limit for i in range(limit)] if len(queries) > limit else range(len(queries))
        )
        places = {old: new for new, old in enumerate(kept)}
        return Corpus(
            self.name,
            self.documents,
            [queries[i] for i in kept],
            {places[i]: documents for i, documents in relevant.items() if i in places},
        )


def idiolink_corpus(split: Split, name: str) -> Corpus:
    """A split's documents and queries."""
    by_meaning: dict[tuple[str, str], list[int]] = {}
    for i, document in enumerate(split.documents):
        by_meaning.setdefault((document.idiom, document.meaning), []).append(i)
    relevant = {i: frozenset(by_meaning[q.idiom, q.meaning]) for i, q in enumerate(split.queries)}
    return Corpus(name, _records(split.documents), _records(split.queries), relevant)


def _records(records: Iterable[Document]) -> list[Text]:
    return [Text(r.sentence, r.span_offsets, r.usage, r.idiom) for r in records]


def own_corpus(path: Path) -> Corpus:
    """Texts of the user's own: a text file, a table, or a folder with corpus, queries and judgements.

    Raises:
        UserError: naming file, row and field of what is wrong.
    """
    if is_folder(path):
        found = read_collection(path.name, path)
        return Corpus(
            path.name,
            [_own(text) for text in found.documents],
            [_own(query.text, query.group) for query in found.queries],
            {i: frozenset(query.relevance) for i, query in enumerate(found.queries)},
        )
    if not is_file(path):
        raise UserError(f"corpus={path}: there is no such file or folder")
    if is_table(path):
        source = Source(str(path), path)
        if _holds_pairs(source):
            return training_corpus([source], path.name)
        documents = list(Table(source, [TEXTS]).read(_text))
    else:
        documents = [Text(line.strip()) for line in text_lines(read_text(path)) if line.strip()]
    if not documents:
        raise UserError(f"corpus={path}: holds no text; one a line is expected")
    return Corpus(path.name, documents, [])


def training_corpus(
    sources: Iterable[Source], name: str, columns: Mapping[str, str] | None = None, form: Form | None = None
) -> Corpus:
    """The texts of tables to train on: of pairs, anchors search among positives and negatives.

    Args:
        columns, form: as for :func:`train.data.own.load.load_own`.

    Raises:
        UserError: naming file, row and field of what is wrong.
    """
    documents: dict[str, Text] = {}
    places: dict[str, int] = {}
    relevant: dict[Text, set[int]] = {}
    for source in sources:
        table = OwnTable(source, columns or {}, form)
        for example in table.examples():
            usage = example.usage or example.label or ""
            texts = [Text(s.text, s.span, usage or s.meaning or "", s.group or "") for s in example.sentences]
            answers = texts[1:] if table.form == "pairs" else texts
            for text in answers:
                documents.setdefault(text.text, text)
                places.setdefault(text.text, len(places))
            if table.form == "pairs":
                found = relevant.setdefault(texts[0], set())
                found.update(places[text.text] for text in answers[: example.num_positives])
    return Corpus(
        name,
        list(documents.values()),
        list(relevant),
        {i: frozenset(found) for i, found in enumerate(relevant.values())},
    )


def _holds_pairs(source: Source) -> bool:
    """Whether it is a table to train on whose rows hold several texts."""
    table = Table(source, TRAINED)
    try:
        next(table.read(lambda record: record.number))
    except UserError:
        return False
    return table.form.name != "sentences"


def _text(record: Record) -> Text:
    text, span = record.marked()
    return Text(text, span, record.optional_name("usage") or "", record.optional_name("group") or "")


def _own(text: OwnText, group: str | None = None, usage: str = "") -> Text:
    return Text(text.text, text.span, usage, group or "")
