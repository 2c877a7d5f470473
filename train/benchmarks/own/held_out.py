"""What is held out of the user's own training data: retrieval of positives, or correlation with scores."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from train.benchmarks import Embeddings, Result, Score
from train.benchmarks.own import HELD_OUT, Mode, OwnValOptions, own_key
from train.benchmarks.own.collections import Collection, OwnQuery
from train.benchmarks.own.fields import OwnText
from train.benchmarks.own.pair_files import OwnPair, PairFile
from train.benchmarks.own.pairs import OwnPairBenchmark, correlations
from train.benchmarks.own.retrieval import OwnRetrievalBenchmark
from train.data.own.store import Examples
from train.errors import UserError
from train.requests import Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger(__name__)


class OwnValBenchmark:
    """The held-out rows, scored as `own_retrieval` or `own_sts` score a user's files.

    Pairs: each anchor searches all held-out positives and negatives for its positives. Sentences: each
    searches all others for those of its label, or of its group and meaning. What has the query's very text
    and is not relevant is left out of its search. Scored pairs: correlation of cosine and score.

    Args:
        parts: name in score keys ("" for none) → held-out rows. `own_val/score` is the mean over parts.
        files: that were read.
        options: how many queries and documents are taken, at most.
    """

    name = HELD_OUT
    without_gold: Sequence[str] = ()

    def __init__(self, parts: dict[str, Examples], files: Sequence[Path], options: OwnValOptions) -> None:
        self.files = list(files)
        self._parts = [
            (name, examples.store.has_spans, _benchmark(name, examples, options))
            for name, examples in parts.items()
        ]

    @property
    def announced(self) -> list[Request]:
        """What the parts announce."""
        return [request for _, _, part in self._parts for request in part.announced]

    def score(self, embed: Embeddings) -> Result:
        """The scores of all parts, and their mean."""
        result = Result()
        main_scores = []
        for name, has_spans, part in self._parts:
            scored = part.score(embed)
            result.scores.extend(scored.scores)
            result.notes.extend(scored.notes)
            mode: Mode = "span" if has_spans else "sentence"
            metric = "spearman" if isinstance(part, OwnPairBenchmark) else "ndcg@10"
            value = scored.by_key[own_key(HELD_OUT, name, mode, metric)]
            main_scores.append(Score(HELD_OUT, name, "", "score", value=value))
            result.per_query.extend({**item, "is_main": item["mode"] == mode} for item in scored.per_query)
        result.scores.extend(main_scores)
        if [name for name, _, _ in self._parts] != [""]:
            mean = float(np.mean([score.value for score in main_scores]))
            result.scores.append(Score(HELD_OUT, "", "", "score", value=mean))
        return result


def _benchmark(
    name: str, examples: Examples, options: OwnValOptions
) -> OwnRetrievalBenchmark | OwnPairBenchmark:
    section = f"objective.parts.{name}.data" if name else "data"
    if examples.form == "scored":
        return OwnPairBenchmark(HELD_OUT, [_pairs(name, examples, section)], correlations)
    collected = _of_pairs if examples.form == "pairs" else _of_sentences
    collection = collected(name, examples, options)
    queries = collection.queries
    if not queries:
        raise UserError(
            "the held-out rows contain nothing similar that a query could find: set "
            f"{section}.val= to other data"
        )
    is_certain = all(len(q.relevance) + len(q.left_out) == len(collection.document_ids) for q in queries)
    if is_certain or len(queries) == 1:
        why = "all that its queries can find is relevant" if is_certain else "it is one query"
        log.warning(
            "what is held out cannot choose a checkpoint: %s; hold out more with %s.val=", why, section
        )
    return OwnRetrievalBenchmark([collection], name=HELD_OUT)


def _text(examples: Examples, text: int, row: int | None = None) -> OwnText:
    store = examples.store
    instruction = None if row is None else store.instruction(int(examples.rows[row]))
    return OwnText(store.read_text(text), store.span(text), instruction)


def _pairs(part: str, examples: Examples, section: str) -> PairFile:
    store = examples.store
    pairs = []
    for row, first in enumerate(examples.anchors.tolist()):
        name = examples.names([row])[0]
        gold = float(store.scores[examples.rows[row]])
        pairs.append(OwnPair(name, _text(examples, first), _text(examples, first + 1), gold, name))
    if len({pair.gold for pair in pairs}) < 2:
        raise UserError(f"of what is held out, all scores are equal: name other data with {section}.val=")
    return PairFile(part, Path(), pairs)


def _sampled(numbers: NDArray[Any], limit: int) -> NDArray[Any]:
    """At most this many, the same in every run, in their order."""
    if len(numbers) <= limit:
        return numbers
    return np.sort(np.random.default_rng(0).choice(numbers, limit, replace=False))


def _of_pairs(part: str, examples: Examples, options: OwnValOptions) -> Collection:
    """Queries are the distinct anchors; documents all distinct positives and negatives."""
    store = examples.store
    ids = store.text_ids
    _, which, row_query = np.unique(ids[examples.anchors], return_index=True, return_inverse=True)
    chosen = set(_sampled(np.arange(len(which)), options.max_queries).tolist())
    # Rows of the chosen queries first: what is relevant to them is in any case among the documents.
    order = sorted(range(len(examples)), key=lambda row: (int(row_query[row]) not in chosen, row))
    documents: dict[tuple[int, tuple[int, int] | None], int] = {}  # text, span → its position
    texts: list[int] = []
    relevant: dict[int, dict[int, float]] = {}
    for row in order:
        query = int(row_query[row])
        if query not in chosen and len(texts) >= options.max_documents:
            break
        num_positives = int(store.num_positives[examples.rows[row]])
        for place, text in enumerate(examples.texts(row)[1:]):
            position = documents.setdefault((int(ids[text]), store.span(text)), len(texts))
            if position == len(texts):
                texts.append(text)
            if query in chosen and place < num_positives:
                relevant.setdefault(query, {})[position] = 1.0
    document_ids = ids[texts]
    queries = []
    for query, found in sorted(relevant.items()):
        row = int(which[query])
        anchor = _text(examples, int(examples.anchors[row]), row)
        group = str(store.groups[examples.rows[row]])
        same = np.flatnonzero(document_ids == ids[examples.anchors[row]]).tolist()
        left_out = [position for position in same if position not in found]
        queries.append(OwnQuery(examples.names([row])[0], anchor, found, group, left_out))
    return _collection(part, examples, texts, queries)


def _of_sentences(part: str, examples: Examples, options: OwnValOptions) -> Collection:
    """Every sentence is a document, and those with another one alike are queries."""
    rows = _sampled(np.arange(len(examples)), options.max_documents)
    kept = replace(examples, rows=examples.rows[rows])
    store = kept.store
    labels = store.label_ids[kept.rows][:, None] if store.has_labels else store.labels[kept.anchors]
    _, label = np.unique(labels, axis=0, return_inverse=True)
    label = label.ravel()
    alike = {int(k): np.flatnonzero(label == k) for k in np.unique(label)}
    candidates = np.flatnonzero(np.bincount(label)[label] > 1)
    names = kept.names(range(len(kept)))
    ids = store.text_ids[kept.anchors]
    queries = []
    for row in _sampled(candidates, options.max_queries).tolist():
        found = {int(other): 1.0 for other in alike[int(label[row])] if other != row}
        group = str(store.groups[kept.rows[row]])
        left_out = [same for same in np.flatnonzero(ids == ids[row]).tolist() if same not in found]
        queries.append(OwnQuery(names[row], _text(kept, int(kept.anchors[row]), row), found, group, left_out))
    return _collection(part, kept, kept.anchors.tolist(), queries, len(kept) - len(candidates))


def _collection(
    part: str, examples: Examples, texts: Sequence[int], queries: list[OwnQuery], num_left_out: int = 0
) -> Collection:
    """Documents are called by text and span, so that ties do not depend on the order of rows."""
    store = examples.store
    names = [f"{store.text_ids[text]} {store.span(text)}" for text in texts]
    documents = [_text(examples, text) for text in texts]
    return Collection(part, names, documents, queries, num_left_out, [])
