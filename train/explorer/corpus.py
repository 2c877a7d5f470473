"""What is searched, and with what: IdioLink's splits, or texts of the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from train.benchmarks.own.collections import read_collection
from train.data.idiolink import Split
from train.data.own.forms import TEXTS, TRAINED
from train.data.own.rows import OwnTable
from train.data.own.table import Record, Source, Table
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
        relevant: position of a query → positions of the documents that answer it, if that is known.
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
        """At most `limit` queries, taken evenly from all; without any, the documents."""
        queries = self.queries or [replace(d, position=i) for i, d in enumerate(self.documents)]
        number = min(limit, len(queries))
        chosen = [i * len(queries) // number for i in range(number)]
        relevant = {new: self.relevant[old] for new, old in enumerate(chosen) if old in self.relevant}
        return Corpus(self.name, self.documents, [queries[i] for i in chosen], relevant)


def idiolink_corpus(split: Split, name: str) -> Corpus:
    """A split's documents and queries."""
    documents, queries = (
        [Text(r.sentence, r.span_offsets, r.usage, r.idiom) for r in records]
        for records in (split.documents, split.queries)
    )
    by_meaning: dict[tuple[str, str], list[int]] = {}
    for i, document in enumerate(split.documents):
        by_meaning.setdefault((document.idiom, document.meaning), []).append(i)
    relevant = {i: frozenset(by_meaning[q.idiom, q.meaning]) for i, q in enumerate(split.queries)}
    return Corpus(name, documents, queries, relevant)


def own_corpus(path: Path) -> Corpus:
    """Texts of the user's own: a text file, a table, or a folder with corpus, queries and judgements.

    Raises:
        UserError: naming file, row and field of what is wrong.
    """
    if is_folder(path):
        collection = read_collection(path.name, path)
        return Corpus(
            path.name,
            [Text(document.text, document.span) for document in collection.documents],
            [Text(q.text.text, q.text.span, group=q.group or "") for q in collection.queries],
            {i: frozenset(query.grades) for i, query in enumerate(collection.queries)},
        )
    if not is_file(path):
        raise UserError(f"corpus={path}: there is no such file or folder")
    if is_table(path):
        source = Source(str(path), path)
        table = Table(source, TRAINED)
        try:
            next(table.read(lambda record: record.number))
        except UserError:
            pass  # no table to train on, but it may be one of texts
        else:
            if table.form.name != "sentences":  # its rows have several texts
                return training_corpus([source], path.name)
        documents = list(Table(source, [TEXTS]).read(_text))
    else:
        documents = [Text(line.strip()) for line in text_lines(read_text(path)) if line.strip()]
    if not documents:
        raise UserError(f"corpus={path}: contains no text; one per line is expected")
    return Corpus(path.name, documents, [])


def _text(record: Record) -> Text:
    text, span = record.marked()
    return Text(text, span, record.optional_name("usage") or "", record.optional_name("group") or "")


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
            answers = texts[1:] if table.form.name == "pairs" else texts
            for text in answers:
                documents.setdefault(text.text, text)
                places.setdefault(text.text, len(places))
            if table.form.name == "pairs":
                positives = answers[: example.num_positives]
                relevant.setdefault(texts[0], set()).update(places[text.text] for text in positives)
    found = {i: frozenset(of_query) for i, of_query in enumerate(relevant.values())}
    return Corpus(name, list(documents.values()), list(relevant), found)
