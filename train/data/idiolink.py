"""IdioLink: records, their checks, relevance, and how a query is put to a model.

Hashiloni et al. 2026, arXiv 2605.22247; Hugging Face dataset `Intellexus/IdioLink`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, StringConstraints, field_validator, model_validator

from train.data.folds import held_out
from train.data.names import QueryMode, TrainDocumentMode, TrainQueryMode
from train.errors import UserError
from train.expressions import expression_words, plain_expression
from train.io.paths import is_folder
from train.io.records import name_record, raise_problems, read_records
from train.requests import Pooling, Request, Role, find_span

Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
Meaning = Literal["literal", "idiomatic"]

# "literal/idiomatic" is this very string for every query: the gold usage is not given away.
INSTRUCTION = (
    "Based on the literal/idiomatic usage of the span '{span}' in the query, retrieve documents "
    "that contain a span conveying the same conceptual meaning."
)


class Document(BaseModel):
    """A sentence of the corpus."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: Text
    sentence: Text
    idiom: Text
    span: Text
    subject: str
    usage: Literal["literal", "idiomatic", "simplification", "sense"]
    is_gold: bool

    @model_validator(mode="after")
    def _span_in_sentence(self) -> Self:
        if self.span not in self.sentence:
            raise ValueError(f"field 'span': {self.span!r} does not occur in the sentence {self.sentence!r}")
        return self

    @field_validator("idiom")
    @classmethod
    def _idiom_is_of_words(cls, idiom: str) -> str:
        expression_words(idiom)
        return idiom

    @property
    def span_offsets(self) -> tuple[int, int]:
        """Character offsets of the span: its first occurrence as whole words, else the first."""
        found = find_span(self.sentence, self.span)
        assert found is not None  # checked when the record was read
        return found

    @property
    def meaning(self) -> Meaning:
        """Which of the idiom's two meanings the sentence conveys."""
        return "literal" if self.usage == "literal" else "idiomatic"


class Query(Document):
    """A sentence to search with; it uses the idiom itself."""

    usage: Literal["literal", "idiomatic"]


@dataclass(frozen=True)
class Split:
    """Documents and queries of one split, or of several joined (`val+train`).

    Attributes:
        name: `val`, or `val+train`: val's queries over the documents of both.
        files: the files that were read.
    """

    name: str
    documents: tuple[Document, ...]
    queries: tuple[Query, ...]
    files: tuple[Path, ...]


def load_split(root: Path, name: str) -> Split:
    """Read and check a split.

    Args:
        root: folder with one sub-folder a split, each with `indexes.json` and `queries.json`.
        name: a split, or several joined by `+`: the queries of the first over the documents of all.

    Raises:
        UserError: for anything that is wrong with the files, naming file, record and field.
    """
    names = name.split("+")
    if len(set(names)) < len(names):
        raise UserError(f"split {name!r} names a split twice")
    parts = [_read_split(root, part) for part in names]
    check_disjoint(parts)
    split = Split(
        name,
        tuple(document for part in parts for document in part.documents),
        parts[0].queries,
        tuple(path for part in parts for path in part.files),
    )
    _check_relevance(split)
    return split


def is_relevant(query: Document, document: Document) -> bool:
    """Same idiom in the same meaning."""
    return query.idiom == document.idiom and query.meaning == document.meaning


def query_request(record: Document, mode: QueryMode) -> Request:
    """How a sentence with its span is embedded as a query in one of the four modes."""
    with_instruction = mode.startswith("instruction_")
    pooling: Pooling = "span" if mode.endswith("span") else "sentence"
    return Request(
        record.sentence,
        record.span_offsets,
        role="query",
        instruction=INSTRUCTION.replace("{span}", record.span) if with_instruction else None,
        pooling=pooling,
    )


def document_request(record: Document) -> Request:
    """Documents are always embedded as plain sentences."""
    return Request(record.sentence, role="document")


def training_request(
    record: Document, mode: TrainQueryMode | TrainDocumentMode, role: Role, mask: str = "[MASK]"
) -> Request:
    """How a sentence is embedded in training, as a query or as a document.

    Beside the benchmark's modes, a document may be embedded by its `span`, and either by its sentence
    with the span hidden: `masked_sentence`, or `masked_span`, the embedding of what stands in its place.
    """
    pooling: Pooling = "span" if mode.endswith("span") else "sentence"
    start, end = record.span_offsets
    if mode in ("masked_sentence", "masked_span"):
        if end - start < len(record.sentence):  # else nothing would be left: it stays
            text = record.sentence[:start] + mask + record.sentence[end:]
            return Request(text, (start, start + len(mask)), role=role, pooling=pooling)
    elif role == "query":
        return query_request(record, cast(QueryMode, mode))
    elif mode == "sentence":
        return document_request(record)
    return Request(record.sentence, (start, end), role=role, pooling=pooling)


def fold_splits(root: Path, fold: int, folds: int) -> tuple[Split, Split]:
    """Cross-validation over the idioms of train and val: what fold number `fold` trains on and scores.

    The idioms, sorted by name, are shuffled with a fixed seed and dealt out, so that a fold is the same
    in every run. Scored are the fold's queries over the documents of *all* idioms (as `val+train` does
    for val's queries); trained on is everything of the other folds' idioms.

    Returns:
        The training split and the scored split, both named `cv`.
    """
    parts = [_read_split(root, name) for name in ("train", "val")]
    check_disjoint(parts)
    documents = tuple(d for part in parts for d in part.documents)
    queries = tuple(q for part in parts for q in part.queries)
    files = tuple(path for part in parts for path in part.files)
    scored_idioms = held_out((d.idiom for d in documents), fold, folds, "idioms in train and val")
    training = Split(
        "cv",
        tuple(d for d in documents if d.idiom not in scored_idioms),
        tuple(q for q in queries if q.idiom not in scored_idioms),
        files,
    )
    scored = Split("cv", documents, tuple(q for q in queries if q.idiom in scored_idioms), files)
    _check_relevance(scored)
    return training, scored


def check_disjoint(splits: Sequence[Split]) -> None:
    """No id and no idiom in two splits: idioms must be unseen when they are scored.

    Raises:
        UserError: naming what occurs twice, and where.
    """
    problems = []
    home: dict[tuple[str, str], str] = {}
    for split in splits:
        records = (*split.documents, *split.queries)
        idioms = dict.fromkeys(("idiom", record.idiom) for record in records)
        for what, name in (*idioms, *(("id", record.id) for record in records)):
            # An idiom in another spelling is the same one.
            key = what, plain_expression(name) if what == "idiom" else name
            other = home.setdefault(key, split.name)
            if other != split.name:
                problems.append(f"{what} {name!r} is in the splits {other} and {split.name}")
    raise_problems(problems, "splits overlap (field 'idiom' or 'id')")


def available_splits(root: Path) -> list[str]:
    """Names of the splits that lie in `root`."""
    if not root.is_dir():
        return []
    return sorted(p.name for p in root.iterdir() if (p / "indexes.json").is_file())


def _read_split(root: Path, name: str) -> Split:
    folder = root / name
    if not name or not is_folder(folder):
        found = ", ".join(available_splits(root)) or "none"
        raise UserError(f"IdioLink split {name!r} is not in {root} (splits there: {found})")
    files = folder / "indexes.json", folder / "queries.json"
    for path in files:
        if not path.is_file():
            raise UserError(f"{path}: there is no such file; a split needs indexes.json and queries.json")
    documents = read_records(files[0], Document)
    queries = read_records(files[1], Query)
    first: dict[str, str] = {}
    for path, records in ((files[0], documents), (files[1], queries)):
        if not records:
            raise UserError(f"{path}: the split is empty (no records)")
        problems = []
        for position, record in enumerate(records):
            where = name_record(position, {"id": record.id})
            earlier = first.setdefault(record.id, f"record {position + 1} of {path.name}")
            if earlier != f"record {position + 1} of {path.name}":
                problems.append(f"{where}, field 'id': already used by {earlier}")
        raise_problems(problems, path)
    return Split(name, tuple(documents), tuple(queries), files)


def _check_relevance(split: Split) -> None:
    meanings = {(d.idiom, d.meaning) for d in split.documents}
    problems = [
        f"{name_record(i, {'id': q.id})}, field 'idiom': no document uses {q.idiom!r} in the "
        f"{q.meaning} meaning, so the query has no relevant document"
        for i, q in enumerate(split.queries)
        if (q.idiom, q.meaning) not in meanings
    ]
    raise_problems(problems, split.files[1])
