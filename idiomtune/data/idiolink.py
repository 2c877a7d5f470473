"""IdioLink: where it is, its records and splits, how they are embedded, and training tuples.

Hashiloni et al. 2026, arXiv 2605.22247; Hugging Face dataset `Intellexus/IdioLink`.
"""

from __future__ import annotations

import logging
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from idiomtune.data import idioms
from idiomtune.data.fields import TableRow
from idiomtune.data.names import (
    DECLARED,
    IDIOLINK,
    QueryMode,
    TrainDocumentMode,
    TrainQueryMode,
    held_out_names,
)
from idiomtune.data.sources import SAMPLE_ROOT, published_files, warn_if_altered
from idiomtune.errors import DataMissingError, UserError
from idiomtune.expressions import expression_words, plain_expression
from idiomtune.io.cache import store_file
from idiomtune.io.files import (
    cache_folder,
    fingerprint,
    is_folder,
    raise_problems,
    read_checked,
    read_json,
    user_path,
)
from idiomtune.io.tables import Row, read_checked_table
from idiomtune.requests import EmbeddingRequest, Pooling, Role, find_span

log = logging.getLogger(__name__)

Text = Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
Meaning = Literal["literal", "idiomatic"]
_D = TypeVar("_D", bound="Document")

# "literal/idiomatic" is this very string for every query: the gold usage is not given away.
INSTRUCTION = (
    "Based on the literal/idiomatic usage of the span '{span}' in the query, retrieve documents "
    "that contain a span conveying the same conceptual meaning."
)

ALL = "all"  # the name of train and val together
REPO = str(IDIOLINK.hub)
REVISION = "main"  # all files are fetched from the commit that it means at the time
REVISION_BY = "IDIOM_IDIOLINK_REVISION"  # names another; its files have no known sums
# Of the public files at the default revision; others have no known sum.
SHA256 = {file.path: str(file.sha256) for file in published_files(IDIOLINK).files.values()}
_FILE = re.compile(r"data/[\w-]+/(indexes\.json|queries\.json|triplets_[\w-]+\.jsonl)", re.ASCII)
_TIMEOUT = 10.0  # seconds


class Document(BaseModel):
    """A sentence of the corpus."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: Text
    sentence: Text
    idiom: Text
    span: Text
    subject: Annotated[str, StringConstraints(pattern="")]  # so that its Unicode is checked too
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
        offsets = find_span(self.sentence, self.span)
        assert offsets is not None  # checked when the record was read
        return offsets

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


def idiolink_root(root: str | None, *, sample: bool) -> Path:
    """The folder with IdioLink's splits.

    The first that applies: the sample; `root`, or the project's own data set if it is `idioms`;
    `$IDIOM_DATA`; the download. `root` and `IDIOM_DATA` may be the folder with the splits, or one with
    `idiolink/` (or, inside it, `data/`) above them.

    Raises:
        UserError: if what is named is not a folder.
        DataMissingError: if nothing is named and the download fails, or the folder has only other datasets.
    """
    if sample:
        return SAMPLE_ROOT / IDIOLINK.name
    if idioms.is_idioms(root):
        return idioms.idioms_folder()
    for named, source in ((root, IDIOLINK.setting), (os.environ.get("IDIOM_DATA"), "IDIOM_DATA")):
        if not named:
            continue
        folder = user_path(named, source)
        if not is_folder(folder):
            raise UserError("there is no such folder", option=source, file=folder)
        for candidate in (folder / "idiolink", folder, folder / "data", folder / "idiolink" / "data"):
            if any(candidate.glob("*/indexes.json")):
                return candidate
        # A folder of other datasets is not a mistake.
        others = source == "IDIOM_DATA" or any((folder / d.name).is_dir() for d in DECLARED if d != IDIOLINK)
        problem = "found no IdioLink split there: it needs <split>/indexes.json and <split>/queries.json, "
        problem += "directly or under idiolink/"
        raise (DataMissingError if others else UserError)(problem, option=source, file=folder)
    return _download_root()


def _download_root() -> Path:
    """IdioLink's splits from the cache, or from the Hub."""
    revision = os.environ.get(REVISION_BY)
    if revision and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", revision):
        problem = "is neither a commit nor the name of a branch or tag"
        raise UserError(problem, option=REVISION_BY, file=revision)
    folder = cache_folder() / (f"idiolink-{revision}" if revision else "idiolink")
    checksums = {} if revision else SHA256
    if not is_folder(folder):
        log.info("downloading the dataset %s from the Hugging Face Hub to %s", REPO, folder)
        _download(folder, revision or REVISION, checksums)
    for name, expected in checksums.items():
        warn_if_altered(folder / name, expected, f" Delete the folder {folder} to download it again.")
    return folder / "data"


def _download(target: Path, revision: str, checksums: Mapping[str, str]) -> None:
    """Download the files of all splits, all of one commit: the folder is complete or not there.

    Raises:
        DataMissingError: if they cannot be downloaded, or one is not the published file.
    """
    from huggingface_hub import HfApi, hf_hub_download  # heavy, and needed once

    from idiomtune.io.hub import CLIENT_ERRORS, reason_for

    def fetch(folder: Path) -> None:
        info = HfApi().dataset_info(REPO, revision=revision, timeout=_TIMEOUT)
        published = {file.rfilename for file in info.siblings or ()}
        names = sorted(filter(_FILE.fullmatch, published | checksums.keys()))
        for name in names:
            hf_hub_download(REPO, name, repo_type="dataset", revision=info.sha, local_dir=folder)
            if (sha256 := fingerprint(folder / name)) != checksums.get(name, sha256):
                expected = checksums[name]
                raise OSError(f"{name} (revision {info.sha}): its SHA-256 is {sha256}, not {expected}")
        if not names:
            raise FileNotFoundError(f"the dataset on the Hub (revision {revision}) has no split")

    try:
        store_file(target, fetch)
    except CLIENT_ERRORS as error:
        raise DataMissingError(
            f"the IdioLink data is not here and could not be downloaded from the Hugging Face Hub ({REPO}).\n"
            "  - a local copy: data.idiolink=<folder with train/, val/>, IDIOM_DATA=<folder with idiolink/>\n"
            f"  - another revision of the dataset: {REVISION_BY}=<commit or branch>\n"
            "  - no data at hand: data=sample runs on the small set that comes with the project\n"
            f"  Reason: {reason_for(error)}"
        ) from error


def load_split(root: Path, name: str) -> Split:
    """Read and check a split.

    Args:
        root: folder with one sub-folder a split, each with `indexes.json` and `queries.json`.
        name: a split, or several joined by `+`: the queries of the first over the documents of all. Or
            `all`: the queries and documents of train and val, 32 idioms, for models trained on none.

    Raises:
        UserError: for anything that is wrong with the files, naming file, record and field.
    """
    names = document_splits(name)
    if len(set(names)) < len(names):
        raise UserError(f"split {name!r} names a split twice")
    parts = [_read_split(root, part) for part in names]
    queries = tuple(query for part in parts[: len(query_splits(name))] for query in part.queries)
    split = replace(join_splits(name, parts), queries=queries)
    _check_relevance(split)
    return split


def document_splits(name: str) -> list[str]:
    """The splits whose documents `val+train` or `all` has."""
    return ["train", "val"] if name == ALL else name.split("+")


def query_splits(name: str) -> list[str]:
    """The splits whose queries `val+train` or `all` has, which come first among those of its documents."""
    return document_splits(name)[: None if name == ALL else 1]


def fold_splits(root: Path, fold: int, folds: int) -> tuple[Split, Split]:
    """Cross-validation over the idioms of train and val: what fold number `fold` trains on and scores.

    The idioms, sorted by name, are shuffled with a fixed seed and dealt out, so that a fold is the same
    in every run. Scored are the fold's queries over the documents of *all* idioms (as `val+train` does
    for val's queries); trained on is everything of the other folds' idioms.

    Returns:
        The training split and the scored split, both named `cv`.
    """
    whole = join_splits("cv", [_read_split(root, name) for name in ("train", "val")])
    scored_idioms = held_out_names((d.idiom for d in whole.documents), fold, folds, "idioms in train and val")
    documents = tuple(d for d in whole.documents if d.idiom not in scored_idioms)
    queries = tuple(q for q in whole.queries if q.idiom not in scored_idioms)
    training = replace(whole, documents=documents, queries=queries)
    scored = replace(whole, queries=tuple(q for q in whole.queries if q.idiom in scored_idioms))
    _check_relevance(scored)
    return training, scored


def join_splits(name: str, parts: Sequence[Split]) -> Split:
    """The records of several; no id or idiom may be in two with different names."""
    check_disjoint(parts)
    return Split(
        name,
        tuple(document for part in parts for document in part.documents),
        tuple(query for part in parts for query in part.queries),
        tuple(path for part in parts for path in part.files),
    )


def check_disjoint(splits: Sequence[Split]) -> None:
    """No id in two splits, and no idiom in two with different names: it must be unseen when it is scored.

    Raises:
        UserError: naming what occurs twice, and where.
    """
    problems = []
    home: dict[tuple[str, str], tuple[int, str]] = {}
    for number, split in enumerate(splits):
        records = (*split.documents, *split.queries)
        idioms = dict.fromkeys(("idiom", record.idiom) for record in records)
        for kind, name in (*idioms, *(("id", record.id) for record in records)):
            # An idiom in another spelling is the same one.
            key = kind, plain_expression(name) if kind == "idiom" else name
            other_number, other = home.setdefault(key, (number, split.name))
            if other != split.name or (kind == "id" and other_number != number):
                problems.append(f"{kind} {name!r} is in the splits {other} and {split.name}")
    raise_problems(problems, "splits overlap (field 'idiom' or 'id')")


def available_splits(root: Path) -> list[str]:
    """Names of the splits in `root`."""
    return sorted(path.parent.name for path in root.glob("*/indexes.json"))


def _read_split(root: Path, name: str) -> Split:
    folder = root / name
    if not name or not is_folder(folder):
        names = ", ".join(available_splits(root)) or "none"
        raise UserError(f"IdioLink split {name!r} is not in {root} (splits there: {names})")
    files = folder / "indexes.json", folder / "queries.json"
    first: dict[str, str] = {}
    documents, queries = _read_records(files[0], Document, first), _read_records(files[1], Query, first)
    return Split(name, tuple(documents), tuple(queries), files)


def _read_records(path: Path, kind: type[_D], first: dict[str, str]) -> list[_D]:
    """A JSON list of objects as records.

    Args:
        first: id → where it is used, of the records that were read before; gets those of the file.

    Raises:
        UserError: naming file, record (position and id) and field of each problem.
    """
    raw = read_json(path)
    if not isinstance(raw, list) or not raw:
        content = type(raw).__name__ if raw else "an empty one"
        raise UserError(f"expected a list of records, got {content}", file=path)

    def where(numbered: tuple[int, Any]) -> str:
        number, entry = numbered
        return _record_name(number, entry.get("id") if isinstance(entry, dict) else None)

    def record(numbered: tuple[int, Any]) -> _D:
        entry, origin = kind.model_validate(numbered[1]), f"record {numbered[0]} of {path.name}"
        if (other := first.setdefault(entry.id, origin)) != origin:
            raise ValueError(f"field 'id': already used by {other}")
        return entry

    return list(read_checked(enumerate(raw, 1), record, path, where))


def _record_name(number: int, id_: object) -> str:
    """`record 12 (id 017_s01_lit_01)`."""
    return f"record {number}" + (f" (id {id_})" if isinstance(id_, str) else "")


def _check_relevance(split: Split) -> None:
    meanings = {(d.idiom, d.meaning) for d in split.documents}
    problems = [
        f"{_record_name(number, q.id)}, field 'idiom': no document uses {q.idiom!r} in the {q.meaning} "
        "meaning, so the query has no relevant document"
        for number, q in enumerate(split.queries, 1)
        if (q.idiom, q.meaning) not in meanings
    ]
    raise_problems(problems, split.files[1])


def is_relevant(query: Document, document: Document) -> bool:
    """Same idiom in the same meaning."""
    return query.idiom == document.idiom and query.meaning == document.meaning


def query_request(record: Document, mode: QueryMode) -> EmbeddingRequest:
    """The request for a sentence as a query in one of the four modes."""
    pooling: Pooling = "span" if mode.endswith("span") else "sentence"
    instruction = INSTRUCTION.replace("{span}", record.span) if mode.startswith("instruction_") else None
    return EmbeddingRequest(record.sentence, record.span_offsets, "query", instruction, pooling)


def document_request(record: Document) -> EmbeddingRequest:
    """Documents are always embedded as plain sentences."""
    return EmbeddingRequest(record.sentence, role="document")


def training_request(
    record: Document, mode: TrainQueryMode | TrainDocumentMode, role: Role, mask: str = "[MASK]"
) -> EmbeddingRequest:
    """The request for a sentence in training, as a query or as a document.

    In addition to the benchmark's modes, a document may be embedded by its `span`, and either by its sentence
    with the span hidden: `masked_sentence`, or `masked_span`, the embedding of the mask in its place.
    """
    pooling: Pooling = "span" if mode.endswith("span") else "sentence"
    start, end = record.span_offsets
    if mode in ("masked_sentence", "masked_span"):
        if end - start < len(record.sentence):  # else nothing would be left: it stays
            text = record.sentence[:start] + mask + record.sentence[end:]
            return EmbeddingRequest(text, (start, start + len(mask)), role=role, pooling=pooling)
    elif role == "query":
        return query_request(record, cast(QueryMode, mode))
    elif mode == "sentence":
        return document_request(record)
    return EmbeddingRequest(record.sentence, (start, end), role=role, pooling=pooling)


@dataclass(frozen=True, slots=True)
class TrainingTuple:
    """Records by id, never by text.

    Attributes:
        anchor: id of the query (or of a document that serves as one).
        positives: ids of documents of the same idiom in the same meaning.
        hard: ids of documents of the same idiom in the opposite meaning.
        soft: ids of documents of other idioms.
    """

    anchor: str
    positives: tuple[str, ...]
    hard: tuple[str, ...]
    soft: tuple[str, ...]


class _Released(TableRow):
    query: str
    positive: str
    negatives: Annotated[list[str], Field(min_length=1)]


def released_file(root: Path, split: str) -> Path:
    """The file of the authors' released tuples of a split."""
    return root / split / f"triplets_{split}_full.jsonl"


def read_released(path: Path, split: Split) -> list[TrainingTuple]:
    """The authors' released tuples, their texts mapped to ids.

    Raises:
        UserError: if the file is missing, a line is not JSON, a field is missing, or a text is not
            that of a record of the split.
    """
    if not path.is_file():
        problem = (
            "there are no released training tuples: put the authors' there, or objective.candidates=sampled"
        )
        raise UserError(problem, file=path)
    by_text: dict[str, list[Document]] = defaultdict(list)
    for record in (*split.documents, *split.queries):
        by_text[record.sentence].append(record)

    def tuple_of(row: Row) -> TrainingTuple:
        released = _Released.model_validate(row.values)
        texts = [released.query, released.positive, *released.negatives]
        for text in texts:
            if (count := len(by_text.get(text, ()))) != 1:
                mismatch = "is the sentence of several records" if count else "is not a sentence"
                raise ValueError(f"{text!r} {mismatch} of split {split.name}")
        query, positive, *negatives = (by_text[text][0] for text in texts)
        relevant = [positive.id != query.id and is_relevant(query, positive)]
        relevant += [is_relevant(query, negative) for negative in negatives]
        if relevant != [True] + [False] * len(negatives):
            raise ValueError(f"has a positive or negative that is not one of {query.id}")
        hard = tuple(n.id for n in negatives if n.idiom == query.idiom)
        soft = tuple(n.id for n in negatives if n.idiom != query.idiom)
        return TrainingTuple(query.id, (positive.id,), hard, soft)

    return list(read_checked_table(path, ("query", "positive", "negatives"), tuple_of))


def draw_tuples(
    anchors: Sequence[Document],
    documents: Sequence[Document],
    *,
    num_positives: int,
    num_hard: int,
    num_soft: int,
    seed: Sequence[int],
) -> list[TrainingTuple]:
    """One tuple per anchor, drawn without replacement; a function of the seed alone.

    An anchor for which there are fewer documents of a kind than asked gets those there are; one
    without any positive gets a tuple without positives (the caller counts and leaves it out). An
    anchor is never its own positive.

    Args:
        anchors: queries, or documents that serve as queries.
        documents: where positives and negatives are drawn from.
        num_positives, num_hard, num_soft: how many of each an anchor gets at most.
        seed: non-negative integers, as for `numpy.random.default_rng`.
    """
    import numpy as np  # heavy; declarations import this module

    rng = np.random.default_rng(seed)
    by_class: dict[tuple[str, str], list[int]] = defaultdict(list)
    by_idiom: dict[str, list[int]] = defaultdict(list)
    for i, document in enumerate(documents):
        by_class[document.idiom, document.meaning].append(i)
        by_idiom[document.idiom].append(i)
    everything = np.arange(len(documents))
    others = {idiom: np.delete(everything, numbers) for idiom, numbers in by_idiom.items()}

    def draw(pool: Any, count: int) -> tuple[str, ...]:
        if not len(pool):
            return ()
        chosen = rng.choice(pool, size=min(count, len(pool)), replace=False)
        return tuple(documents[i].id for i in chosen.tolist())

    opposite = {"literal": "idiomatic", "idiomatic": "literal"}
    tuples = []
    for anchor in anchors:
        same_class = by_class.get((anchor.idiom, anchor.meaning), [])
        positives = [i for i in same_class if documents[i].id != anchor.id]
        hard = by_class.get((anchor.idiom, opposite[anchor.meaning]), [])
        drawn = (draw(positives, num_positives), draw(hard, num_hard))
        tuples.append(TrainingTuple(anchor.id, *drawn, draw(others.get(anchor.idiom, everything), num_soft)))
    return tuples
