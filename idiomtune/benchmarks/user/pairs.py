"""The user's own scored pairs of sentences: the cosine of each pair, and metrics of all."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from idiomtune.benchmarks import Benchmark, Embed, Result, Score
from idiomtune.benchmarks.pairs import cosines
from idiomtune.benchmarks.user import (
    KEY_MODES,
    MODES,
    STS_METRICS,
    HeldOutOptions,
    Mode,
    held_out_score,
    user_score,
)
from idiomtune.benchmarks.user.collections import (
    Collection,
    UserQuery,
    in_mode,
    modes_of,
    request_of,
    span_note,
    warn_of_own_texts,
)
from idiomtune.benchmarks.user.retrieval import UserRetrievalBenchmark
from idiomtune.data.user.forms import SPAN_PARTS, STS
from idiomtune.data.user.load import user_splits
from idiomtune.data.user.table import UserRecord, UserTable, unique
from idiomtune.data.user.text_table import UserExamples
from idiomtune.errors import UserError
from idiomtune.io.files import list_names
from idiomtune.plugins.dataset import OWN_VAL
from idiomtune.plugins.inputs import RunInputs
from idiomtune.reports.statistics import statistic_of
from idiomtune.requests import EmbeddingRequest, symmetric_query

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)


class Pair(NamedTuple):
    """Two sentences.

    Attributes:
        gold: their score.
        group: what it belongs to in a resample; None if it is by itself.
    """

    id: str
    first: EmbeddingRequest
    second: EmbeddingRequest
    gold: float
    group: str | None


def read_pairs(
    path: Path,
    benchmark: str = "own_sts",
    columns: Mapping[str, str] | None = None,
    instruction: str | None = None,
) -> list[Pair]:
    """Pairs with scores of any range: the greater, the more alike.

    Args:
        benchmark: whose option `columns` a message names.
        columns: role → column, where the names of the file's columns are not understood as they are.
        instruction: before sentences whose row has none.

    Raises:
        UserError: naming file, row and field of all problems.
    """
    check = unique()

    def pair(record: UserRecord) -> Pair:
        for role in SPAN_PARTS:
            if record.has(role):
                raise record.error(role, "of which sentence? Name the column as span1 or span2")
        id_ = check(record, record.name("id") if "id" in record.names else str(record.number))
        around = record.optional_text("instruction") or instruction
        first, second = (request_of(record.entries(f"sentence{n}")[0], around) for n in (1, 2))
        return Pair(id_, first, second, record.number_in("score"), record.optional_name("group"))

    table = UserTable(path, [STS], columns, f"benchmark.{benchmark}.columns")
    pairs = list(table.read(pair))
    table.log_unread()
    if len({pair.gold for pair in pairs}) < 2:
        raise UserError(f"all scores are {pairs[0].gold:g}: there is nothing to correlate with", file=path)
    return pairs


class UserPairBenchmark(Benchmark):
    """Do cosines order pairs as their scores do? By whole sentences, and by spans if there are any.

    Args:
        name: first part of the score keys.
        data: name in score keys → pairs.
        files: that were read.
    """

    def __init__(self, name: str, data: Mapping[str, Sequence[Pair]], files: Sequence[Path] = ()) -> None:
        self.name, self.data, self.files = name, data, files

    @property
    def requests(self) -> list[EmbeddingRequest]:
        """First and second sentences, by each mode."""
        sentences = map(_sentences, self.data.values())
        return [
            request for texts in sentences for mode in modes_of(texts) for request in in_mode(texts, mode)
        ]

    def score(self, embed: Embed) -> Result:
        """The scores of all data and modes."""
        result = Result()
        for name, pairs in self.data.items():
            sentences = _sentences(pairs)
            for mode in modes_of(sentences):
                requests = [*in_mode(sentences, mode)]
                predicted = cosines(embed(requests[: len(pairs)]), embed(requests[len(pairs) :]))
                self._score_mode(name, pairs, mode, predicted, result)
            result.notes.extend(span_note(sentences, "/".join(filter(None, (self.name, name, "span")))))
        return result

    def _score_mode(
        self, name: str, pairs: Sequence[Pair], mode: Mode, predicted: Sequence[float], result: Result
    ) -> None:
        gold = [pair.gold for pair in pairs]
        for metric in STS_METRICS:
            value = statistic_of(metric, predicted, gold)
            result.scores.append(user_score(self.name, name, mode, metric, value))
        for pair, cosine in zip(pairs, predicted, strict=True):
            item = {
                **{"split": name, "mode": KEY_MODES[mode], "id": pair.id, "group": pair.group},
                **{"sentence1": pair.first.text, "sentence2": pair.second.text},
                **{"predicted": cosine, "gold": pair.gold},
            }
            result.per_query.append(item)


def _sentences(pairs: Sequence[Pair]) -> list[EmbeddingRequest]:
    """All first ones, then all second ones."""
    return [pair.first for pair in pairs] + [pair.second for pair in pairs]


def build_held_out(inputs: RunInputs, options: HeldOutOptions) -> HeldOutBenchmark:
    """The benchmark on held-out rows: of the user's training data, or of each such part of a mixture."""
    splits = {name: user_splits(data) for name, data in inputs.own_data.items()}
    for (name, splits_of), (other, training) in permutations(splits.items(), 2):
        held_out, trained = (part.store.text_ids[part.anchors] for part in (splits_of.val, training.train))
        if shared := np.isin(held_out, trained).sum():  # their scores are of rows that the model has seen
            log.warning("%d rows that are held out of part %s are trained on in %s", shared, name, other)
    files = [path for part in splits.values() for path in part.files]
    return HeldOutBenchmark({name: part.val for name, part in splits.items()}, files, options)


class HeldOutBenchmark(Benchmark):
    """The held-out rows, scored as `own_retrieval` or `own_sts` score a user's files.

    Pairs: each anchor searches all held-out positives and negatives for its positives. Sentences: each
    searches all others for those of its label, or of its group and meaning. Copies of a text are one
    document, which its own query does not search, unless a pair has it as its positive. Scored pairs:
    correlation of cosine and score.

    Args:
        parts: name in score keys ("" for none) → held-out rows. `own_val/score` is the mean over parts.
        files: that were read.
        options: how many queries and documents are taken, at most.
    """

    name = OWN_VAL

    def __init__(
        self, parts: dict[str, UserExamples], files: Sequence[Path], options: HeldOutOptions
    ) -> None:
        self.files = list(files)
        self._parts = [
            (name, examples.store.has_spans, _benchmark(name, examples, options))
            for name, examples in parts.items()
        ]

    @property
    def requests(self) -> list[EmbeddingRequest]:
        """The requests of the parts."""
        return [request for _, _, part in self._parts for request in part.requests]

    def score(self, embed: Embed) -> Result:
        """The scores of all parts, and their mean."""
        result = Result()
        main_scores = []
        for name, has_spans, part in self._parts:
            scored = part.score(embed)
            result.scores.extend(scored.scores)
            result.notes.extend(scored.notes)
            for query_mode in MODES:  # not of scored pairs
                if ranks := [
                    record["rank"]
                    for record in scored.per_query
                    if record["mode"] == KEY_MODES[query_mode] and "rank" in record
                ]:
                    result.scores.append(user_score(OWN_VAL, name, query_mode, "median_rank", median(ranks)))
            mode: Mode = "span" if has_spans else "sentence"
            metric = "spearman" if isinstance(part, UserPairBenchmark) else "ndcg@10"
            value = scored.by_key[str(user_score(OWN_VAL, name, mode, metric))]
            main_scores.append(Score(OWN_VAL, name, "", "score", value=value))
            result.per_query.extend(
                {**item, "is_main": item["mode"] == KEY_MODES[mode]} for item in scored.per_query
            )
        result.scores.extend(main_scores)
        if [name for name, _, _ in self._parts] != [""]:
            mean = float(np.mean([score.value for score in main_scores]))
            result.scores.append(Score(OWN_VAL, "", "", "score", value=mean))
        return replace(result, scores=list(map(held_out_score, result.scores)))


def _benchmark(
    name: str, examples: UserExamples, options: HeldOutOptions
) -> UserRetrievalBenchmark | UserPairBenchmark:
    section = f"objective.parts.{name}.data" if name else "data"
    if examples.form == "scored":
        pairs = _pairs(examples)
        if len({pair.gold for pair in pairs}) < 2:
            raise UserError(f"all held-out scores are equal: name other data with {section}.val=")
        return UserPairBenchmark(OWN_VAL, {name: pairs})
    collected = _of_pairs if examples.form == "pairs" else _of_sentences
    collection = collected(name, examples, options)
    queries = collection.queries
    warn_of_own_texts(f"{section}.val", collection)
    if not queries:
        raise UserError(
            "the held-out rows contain nothing similar that a query could find: set "
            f"{section}.val= to other data"
        )
    is_certain = all(len(q.grades) + len(q.left_out) == len(collection.documents) for q in queries)
    if is_certain or len(queries) == 1:
        reason = "all that its queries can find is relevant" if is_certain else "it is one query"
        log.warning(
            "the held-out data cannot choose a checkpoint: %s; hold out more: %s.val=", reason, section
        )
    return UserRetrievalBenchmark([collection], name=OWN_VAL)


def _pairs(examples: UserExamples) -> list[Pair]:
    store, pairs = examples.store, []
    for row, first in enumerate(examples.anchors.tolist()):
        (name,) = examples.names([row])
        left, right = (
            symmetric_query(store.read_text(text), store.span(text)) for text in (first, first + 1)
        )
        pairs.append(Pair(name, left, right, float(store.scores[examples.rows[row]]), name))
    return pairs


def _query(examples: UserExamples, row: int, relevant: Sequence[int], same: NDArray[Any]) -> UserQuery:
    """The anchor of a row.

    Args:
        relevant: positions of documents.
        same: (N,), which documents have the anchor's own text: those that are not relevant are left out.
    """
    store, number = examples.store, int(examples.rows[row])
    anchor = int(examples.anchors[row])
    request = EmbeddingRequest(
        store.read_text(anchor), store.span(anchor), "query", store.instruction(number)
    )
    grades: dict[int, float] = dict.fromkeys(relevant, 1.0)
    left_out = [position for position in np.flatnonzero(same).tolist() if position not in grades]
    return UserQuery(store.name(number), request, grades, store.group(number), left_out=left_out)


def _sample(numbers: NDArray[Any], limit: int) -> NDArray[Any]:
    """A sample of at most this many, in order, the same in every run."""
    if len(numbers) <= limit:
        return numbers
    return np.sort(np.random.default_rng(0).choice(numbers, limit, replace=False))


def _of_pairs(part: str, examples: UserExamples, options: HeldOutOptions) -> Collection:
    """Queries are the distinct anchors; documents all distinct positives and negatives."""
    store = examples.store
    ids = store.text_ids
    _, first_rows, row_query = np.unique(ids[examples.anchors], return_index=True, return_inverse=True)
    chosen = set(_sample(np.arange(len(first_rows)), options.max_queries).tolist())
    # Rows of the chosen queries first: all that is relevant to them is then among the documents.
    order = sorted(range(len(examples)), key=lambda row: (int(row_query[row]) not in chosen, row))
    documents: dict[tuple[int, tuple[int, int] | None], int] = {}  # text, span → its position
    texts: list[int] = []
    relevant: dict[int, list[int]] = {}
    for row in order:
        query = int(row_query[row])
        if query not in chosen and len(texts) >= options.max_documents:
            break
        num_positives = int(store.num_positives[examples.rows[row]])
        for offset, text in enumerate(examples.texts(row)[1:]):
            position = documents.setdefault((int(ids[text]), store.span(text)), len(texts))
            if position == len(texts):
                texts.append(text)
            if query in chosen and offset < num_positives:
                relevant.setdefault(query, []).append(position)
    queries = [
        _query(examples, row, documents_of, ids[texts] == ids[examples.anchors[row]])
        for query, documents_of in sorted(relevant.items())
        for row in [int(first_rows[query])]
    ]
    return _collection(part, examples, texts, queries)


def _of_sentences(part: str, examples: UserExamples, options: HeldOutOptions) -> Collection:
    """Every distinct sentence is a document, and each one with another text of its label is a query."""
    store, anchors, ids = examples.store, examples.anchors, examples.store.text_ids
    labels = store.label_ids[examples.rows, None] if store.has_labels else store.labels[anchors]
    label_of = np.unique(labels, axis=0, return_inverse=True)[1].ravel().tolist()
    documents: dict[tuple[int, tuple[int, int] | None], int] = {}  # text, span → its document
    first_rows: dict[tuple[int, int], int] = {}  # document, label → its first row
    for row, (text, label) in enumerate(zip(anchors.tolist(), label_of, strict=True)):
        document = documents.setdefault((int(ids[text]), store.span(text)), len(documents))
        first_rows.setdefault((document, label), row)
    if num_copies := len(examples) - len(first_rows):
        log.info("held-out rows that are copies of others: %d, which count once", num_copies)
    left_out = _contradictory(examples, first_rows)
    chosen = _sample(np.setdiff1d(np.arange(len(documents)), left_out), options.max_documents)
    uses = np.array([(*use, row) for use, row in first_rows.items()])
    document, label, rows = uses[np.isin(uses[:, 0], chosen)].T  # (U,) each
    position = np.searchsorted(chosen, document)  # (U,), of the document of each use
    texts = anchors[rows[np.unique(position, return_index=True)[1]]]
    own = ids[texts]
    num_texts = np.bincount(np.unique(np.stack([label, own[position]]), axis=1)[0])  # of each label
    candidates = np.flatnonzero(num_texts[label] > 1)
    queries = []
    for use in _sample(candidates, options.max_queries).tolist():
        same, alike = own == own[position[use]], position[label == label[use]]
        queries.append(_query(examples, int(rows[use]), alike[~same[alike]].tolist(), same))
    return _collection(part, examples, texts.tolist(), queries, len(rows) - len(candidates))


def _contradictory(examples: UserExamples, first_rows: Mapping[tuple[int, int], int]) -> list[int]:
    """The documents with several meanings of one group; they, and texts with several labels, are warned of.

    Args:
        first_rows: of each document with each of its labels.
    """
    store = examples.store
    rows_of: dict[tuple[int, int], list[int]] = {}  # document, group → a row for each label
    for (document, _), row in first_rows.items():
        group = 0 if store.has_labels else int(store.labels[examples.anchors[row], 0])
        rows_of.setdefault((document, group), []).append(row)
    several = {document: rows for (document, _), rows in rows_of.items() if len(rows) > 1}
    if several:
        kind, use = ("labels", "each is right") if store.has_labels else ("meanings", "they are not scored")
        names = list_names([" and ".join(examples.names(rows)) for rows in several.values()], 3)
        log.warning("held-out texts with several %s: %d, %s (%s)", kind, len(several), use, names)
    return [] if store.has_labels else [*several]


def _collection(
    part: str, examples: UserExamples, texts: Sequence[int], queries: list[UserQuery], num_left_out: int = 0
) -> Collection:
    """Documents have ids made of text and span, so ties do not depend on the order of rows."""
    store = examples.store
    names = [f"{store.text_ids[text]} {store.span(text)}" for text in texts]
    requests = [EmbeddingRequest(store.read_text(text), store.span(text)) for text in texts]
    return Collection(part, names, requests, queries, num_left_out, [])
