"""A query's nearest documents by each model, as the page shows them."""

from __future__ import annotations

import difflib
import logging
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from idiomtune.benchmarks.embeddings import embed_or_read
from idiomtune.benchmarks.retrieval import ndcg, rank, rank_in_blocks, tie_break
from idiomtune.benchmarks.user import MODES, Mode
from idiomtune.benchmarks.user.collections import read_collection
from idiomtune.data.idiolink import Split
from idiomtune.data.user.examples import ExampleTable
from idiomtune.data.user.forms import TEXTS, TRAINED
from idiomtune.data.user.source import Source
from idiomtune.data.user.table import UserRecord, UserTable
from idiomtune.data.user.text_table import normal_text
from idiomtune.data.user.texts import read_texts
from idiomtune.encoder.encoder import Encoder
from idiomtune.errors import UserError
from idiomtune.io.files import is_file, is_folder
from idiomtune.io.processes import Processes
from idiomtune.io.tables import is_table, shown_path
from idiomtune.io.terminal import progress_bar
from idiomtune.plugins.dataset import Form
from idiomtune.requests import EmbeddingRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Passage:
    """A document or a query.

    Attributes:
        span: offsets [start, end) of what is marked in it, if anything.
        usage: its colour on the page: IdioLink's `idiomatic`, `literal`, …, or a word of the user's own.
        group: such as its idiom.
        left_out: of a query, positions of documents that are not searched for, such as itself.
    """

    text: str
    span: tuple[int, int] | None = None
    usage: str = ""
    group: str = ""
    left_out: tuple[int, ...] = ()


@dataclass(frozen=True)
class Corpus:
    """Documents to search, with queries.

    Attributes:
        name: for people.
        relevant: position of a query → positions of the documents that answer it, if that is known.
    """

    name: str
    documents: Sequence[Passage]
    queries: Sequence[Passage]
    relevant: Mapping[int, frozenset[int]] = field(default_factory=dict)

    @property
    def has_spans(self) -> bool:
        """Whether every query has a span."""
        return bool(self.queries) and all(query.span for query in self.queries)

    def with_queries(self, limit: int) -> Corpus:
        """At most `limit` queries, taken evenly from all; without any, the documents that have an answer."""
        queries = self.queries or [replace(d, left_out=(i,)) for i, d in enumerate(self.documents)]
        numbers = sorted(self.relevant) if self.relevant and not self.queries else range(len(queries))
        number = min(limit, len(numbers))
        chosen = [numbers[i * len(numbers) // number] for i in range(number)]
        relevant = {new: self.relevant[old] for new, old in enumerate(chosen) if old in self.relevant}
        return Corpus(self.name, self.documents, [queries[i] for i in chosen], relevant)


def idiolink_corpus(split: Split, name: str) -> Corpus:
    """A split's documents and queries."""
    documents, queries = (
        [Passage(r.sentence, r.span_offsets, r.usage, r.idiom) for r in records]
        for records in (split.documents, split.queries)
    )
    by_meaning: dict[tuple[str, str], list[int]] = {}
    for i, document in enumerate(split.documents):
        by_meaning.setdefault((document.idiom, document.meaning), []).append(i)
    relevant = {i: frozenset(by_meaning[q.idiom, q.meaning]) for i, q in enumerate(split.queries)}
    return Corpus(name, documents, queries, relevant)


def user_corpus(path: Path) -> Corpus:
    """Texts of the user's own: a text file, a table, or a folder with corpus, queries and judgements.

    Raises:
        UserError: naming file, row and field of what is wrong.
    """
    if is_folder(path):
        collection = read_collection(path.name, path)
        return Corpus(
            path.name,
            [Passage(document.text, document.span) for document in collection.documents],
            [
                Passage(q.text.text, q.text.span, group=q.group or "", left_out=tuple(q.left_out))
                for q in collection.queries
            ],
            {i: frozenset(query.grades) for i, query in enumerate(collection.queries)},
        )
    if not is_file(path):
        raise UserError(f"corpus={path}: there is no such file or folder")
    if is_table(path):
        source = Source(shown_path(path), path)
        table = UserTable(source, TRAINED)
        try:
            next(table.read(lambda record: record.number))
        except UserError:
            pass  # no table to train on, but it may be one of texts
        else:
            # Single sentences are texts, too, if some rows do not say what they mean.
            with suppress(UserError) if table.form.name == "sentences" else nullcontext():
                return training_corpus([source], Path(shown_path(path)).name)
        documents = list(UserTable(source, [TEXTS]).read(_text))
    else:
        documents = [Passage(text) for text, *_ in read_texts(str(path), "corpus")]
    distinct: dict[str, Passage] = {}
    for text in documents:
        distinct.setdefault(normal_text(text.text), text)
    if num_copies := len(documents) - len(distinct):
        log.info("%s: texts that are copies of others, left out: %d", shown_path(path), num_copies)
    return Corpus(Path(shown_path(path)).name, [*distinct.values()], [])


def _text(record: UserRecord) -> Passage:
    text, span = record.marked_text()
    return Passage(text, span, record.optional_name("usage") or "", record.optional_name("group") or "")


def training_corpus(
    sources: Iterable[Source], name: str, columns: Mapping[str, str] | None = None, form: Form | None = None
) -> Corpus:
    """The texts of tables to train on: of pairs, anchors search among positives and negatives.

    Relevant to a sentence are those of its label, or of its group and meaning, as where held-out rows are
    scored.

    Args:
        columns, form: as for :func:`idiomtune.data.user.load.load_user_data`.

    Raises:
        UserError: naming file, row and field of what is wrong.
    """
    documents: dict[str, Passage] = {}
    positions: dict[str, int] = {}
    relevant: dict[Passage, set[int]] = {}
    alike: dict[tuple[str | None, ...], set[int]] = {}
    for source in sources:
        table = ExampleTable(source, columns or {}, form)
        for example in table.examples():
            usage = example.usage or example.label or ""
            texts = [
                Passage(s.text, s.span, usage or s.meaning or "", s.group or "") for s in example.sentences
            ]
            answers = texts[1:] if table.form.name == "pairs" else texts
            for text in answers:
                documents.setdefault(normal_text(text.text), text)
                positions.setdefault(normal_text(text.text), len(positions))
            if table.form.name == "pairs":
                positives = answers[: example.num_positives]
                answered = {positions[normal_text(text.text)] for text in positives}
                relevant.setdefault(texts[0], set()).update(answered)
            elif table.form.name == "sentences":
                (sentence,) = example.sentences
                meaning = (example.label,) if example.label else (sentence.group, sentence.meaning)
                alike.setdefault(meaning, set()).add(positions[normal_text(sentence.text)])
    matches = {i: frozenset(of_query) for i, of_query in enumerate(relevant.values())}
    matches = matches or {i: frozenset(same - {i}) for same in alike.values() for i in same if len(same) > 1}
    return Corpus(name, list(documents.values()), list(relevant), matches)


_NDCG = 10
_CHUNK = 64  # documents whose words are looked at together
_DIGITS = 4


@dataclass(frozen=True)
class SearchedModel:
    """A model with the corpus embedded.

    Attributes:
        name: heading of its column.
        about: which files it is.
        documents: (N, D), of unit length.
        queries: mode → (Q, D), of unit length too.
    """

    name: str
    about: str
    encoder: Encoder
    documents: Tensor
    queries: dict[Mode, Tensor]

    @classmethod
    def embedding(cls, name: str, about: str, encoder: Encoder, corpus: Corpus) -> SearchedModel:
        """Embed a corpus; embeddings are cached, as those of runs."""

        def embed(requests: Sequence[EmbeddingRequest], title: str) -> Tensor:
            rows = embed_or_read(encoder, requests, Processes(), f"{title}, {name}")
            encoder.warn_of_truncated(requests)
            return normalize(rows, dim=1).to(encoder.device)

        documents = embed([EmbeddingRequest(document.text) for document in corpus.documents], "documents")
        modes = MODES if corpus.has_spans else MODES[:1]
        requests = [_request(query, mode) for mode in modes for query in corpus.queries]
        queries = torch.split(embed(requests, "queries"), len(corpus.queries))
        return cls(name, about, encoder, documents, dict(zip(modes, queries, strict=True)))


class Explorer:
    """Searches a corpus with several models.

    Args:
        models: in the order of the page's columns.
        num_shown: documents that are shown of a query.
    """

    def __init__(self, corpus: Corpus, models: Sequence[SearchedModel], num_shown: int) -> None:
        self.corpus, self.models = corpus, models
        self._num_shown = min(num_shown, len(corpus.documents))

    @property
    def modes(self) -> list[Mode]:
        """`sentence`, and `span` if every query of the corpus has a span."""
        return list(self.models[0].queries)

    @torch.no_grad()
    def search(self, query: Passage, mode: Mode, number: int | None = None) -> dict[str, Any]:
        """The answer to a query: what each model read, and the documents nearest to it.

        Args:
            number: of the query, if it is one of the corpus'.
        """
        request = _request(query, mode)
        return self._answer(query, request, [_unit_vector(m.encoder, request) for m in self.models], number)

    @torch.no_grad()
    def explain(self, query: Passage, mode: Mode, model: int, document: int) -> dict[str, Any]:
        """The words of a document, and each one's share in its cosine with a query (:class:`WordRows`)."""
        encoder = self.models[model].encoder
        (rows,) = word_rows(encoder, [self.corpus.documents[document].text])
        return {
            "words": rows.words,
            "shares": _round(rows.shares(_unit_vector(encoder, _request(query, mode)))),
        }

    @torch.no_grad()
    def scores(self) -> dict[str, list[list[float]]] | None:
        """Mode → nDCG@10 of each query by each model; None without relevance judgements."""
        relevant, num_queries = self.corpus.relevant, len(self.corpus.queries)
        if not relevant:
            return None
        number = torch.tensor([len(relevant.get(i, ())) for i in range(num_queries)])
        ties = tie_break(document.text for document in self.corpus.documents)

        def of_model(model: SearchedModel, mode: Mode) -> list[float]:
            vectors, queries = model.queries[mode], self.corpus.queries
            ranking, _ = rank_in_blocks(partial(_cosines, model, vectors, queries), num_queries, _NDCG, ties)
            hits = [[d in relevant.get(i, ()) for d in first] for i, first in enumerate(ranking.tolist())]
            return _round(ndcg(torch.tensor(hits), number, _NDCG).tolist())

        return {
            mode: [list(row) for row in zip(*(of_model(m, mode) for m in self.models), strict=True)]
            for mode in self.modes
        }

    @torch.no_grad()
    def answers(self) -> tuple[dict[str, list[dict[str, Any]]], list[dict[int, list[str]]]]:
        """The answers to all of the corpus' queries, for a page without a server.

        Returns:
            Mode → the answer to each query, each document with its words' `shares`; and of each model,
            document → its words.
        """
        answers: dict[str, list[dict[str, Any]]] = {mode: [] for mode in self.modes}
        columns_of: list[dict[int, list[Any]]] = [defaultdict(list) for _ in self.models]
        with progress_bar("answers", len(self.modes) * len(self.corpus.queries)) as advance:
            for mode in self.modes:
                for i, query in enumerate(self.corpus.queries):
                    vectors = [model.queries[mode][i] for model in self.models]
                    answers[mode].append(self._answer(query, _request(query, mode), vectors, number=i))
                    columns = answers[mode][-1]["models"]
                    for of_model, column, vector in zip(columns_of, columns, vectors, strict=True):
                        for row in column["rows"]:
                            of_model[row["document"]].append((row, vector.cpu()))
                    advance(1)
        return answers, [self._add_shares(*parts) for parts in zip(self.models, columns_of, strict=True)]

    def _answer(
        self, query: Passage, request: EmbeddingRequest, vectors: Sequence[Tensor], number: int | None = None
    ) -> dict[str, Any]:
        """See :meth:`search`.

        Args:
            vectors: of the query, by each model.
            number: of the query among the corpus', of which it is known what is relevant.
        """
        similarities = [_cosines(m, v[None], [query])[0] for m, v in zip(self.models, vectors, strict=True)]
        relevant = None if number is None else self.corpus.relevant.get(number)
        columns = []
        for model, values in zip(self.models, similarities, strict=True):
            first = rank(values[None], self._num_shown)[0]  # (K,)
            first = first[values[first] > -torch.inf]
            ranks = [(other > other[first][:, None]).sum(1).add(1).tolist() for other in similarities]
            rows = [
                {"document": document, "cosine": round(values[document].item(), _DIGITS), "ranks": ranks_of}
                | ({} if relevant is None else {"relevant": document in relevant})
                for document, *ranks_of in zip(first.tolist(), *ranks, strict=True)
            ]
            columns.append({"read": _as_read(query.text, model.encoder, request), "rows": rows})
        return {"models": columns, "num_relevant": len(relevant or ())}

    def _add_shares(
        self, model: SearchedModel, columns_of: Mapping[int, Sequence[tuple[dict[str, Any], Tensor]]]
    ) -> dict[int, list[str]]:
        """Add its words' shares to each row of an answer; gives each document's words.

        Args:
            columns_of: document → the rows that show it, each with the query's vector.
        """
        texts = {document: self.corpus.documents[document].text for document in columns_of}
        order = sorted(texts, key=lambda document: len(texts[document]))  # alike in length: little padding
        words = {}
        with progress_bar(f"words, {model.name}", len(order)) as advance:
            for chunk in (order[i : i + _CHUNK] for i in range(0, len(order), _CHUNK)):
                word_rows_of = word_rows(model.encoder, [texts[document] for document in chunk])
                for document, rows_of in zip(chunk, word_rows_of, strict=True):
                    words[document] = rows_of.words
                    for row, vector in columns_of[document]:
                        row["shares"] = _round(rows_of.shares(vector))
                advance(len(chunk))
        return words


def _request(text: Passage, mode: Mode) -> EmbeddingRequest:
    """The request for a query, by its whole text or its span."""
    return EmbeddingRequest(text.text, text.span, role="query", pooling=mode)


def _cosines(
    model: SearchedModel, vectors: Tensor, queries: Sequence[Passage], chunk: slice = slice(None)
) -> Tensor:
    """(Q, N), of some of the queries' vectors and the documents; a query does not find what it leaves out."""
    values = vectors[chunk] @ model.documents.T
    for row, query in zip(values, queries[chunk], strict=True):
        row[list(query.left_out)] = -torch.inf
    return values


def _unit_vector(encoder: Encoder, request: EmbeddingRequest) -> Tensor:
    """(D,), a query's embedding, of unit length."""
    return normalize(encoder([request]).float(), dim=1)[0]


def _as_read(text: str, encoder: Encoder, request: EmbeddingRequest) -> list[tuple[str, bool]] | None:
    """The pieces of a query as the model reads it, each with whether the model added it; None if none is."""
    (read,) = encoder.reader.read([request])
    if read.text == text:
        return None
    own, whole = (re.findall(r"\w+|\s+|[^\w\s]", part) for part in (text, read.text))
    matches = difflib.SequenceMatcher(None, own, whole, autojunk=False).get_opcodes()
    return [("".join(whole[i:j]), tag != "equal") for tag, _, _, i, j in matches if j > i]


def _round(values: Sequence[float]) -> list[float]:
    return [round(value, _DIGITS) for value in values]


# ------------------------------------------------------------ which words make a text similar to a query

# Thai, Lao, kana, Han: no blanks between words
_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]\s*|[^\s{_UNSPACED}]+\s*|\s+")


class WordRows(NamedTuple):
    """The words of a text, and their shares in its similarities.

    Attributes:
        words: pieces that make up the text, each with the blanks after it. Where shares are exact, it is the
            text as the model reads it, with prompt and meanings.
        rows: (W + 1, D), a row a word; the last one is of tokens that belong to no word, such as [CLS].
    """

    words: list[str]
    rows: Tensor

    def shares(self, query: Tensor) -> list[float]:
        """Of each word and, last, of the other tokens, with a query's unit vector (D,)."""
        shares: list[float] = (self.rows @ query.to(self.rows)).tolist()
        return shares


@torch.no_grad()
def word_rows(encoder: Encoder, texts: Sequence[str]) -> list[WordRows]:
    """The word rows of each document, on the CPU.

    Where a text's embedding is the mean of its tokens' embeddings (`encoder.averages_tokens`), its cosine
    with a query is a sum over these tokens, so each word's share is exact, and they add up to the cosine.
    Elsewhere a share is by how much the cosine falls when the word is left out. Both are linear in the
    query: a row a word, whose product with the query's unit vector is the word's share.
    """
    return (_shares_of_tokens if encoder.averages_tokens else _losses_without)(encoder, texts)


def _shares_of_tokens(encoder: Encoder, texts: Sequence[str]) -> list[WordRows]:
    requests, reader = list(map(EmbeddingRequest, texts)), encoder.reader
    read = reader.read(requests)
    embeddings = encoder.embed_tokens([part.tokens.input_ids for part in read]).float().cpu()  # (B, T, D)
    rows_of = []
    for request, part, tokens in zip(requests, read, embeddings, strict=True):
        num_skipped = reader.num_skipped(part.tokens, request)
        pooled = tokens[num_skipped : len(part.tokens.input_ids)]  # (P, D)
        words = _WORD.findall(part.text)
        ends = list(accumulate(map(len, words)))
        rows = pooled.new_zeros(len(words) + 1, pooled.shape[1])
        # By its last character, since with some tokenizers a token begins with the blank before its word.
        offsets = part.tokens.offsets[num_skipped:]
        owner = [bisect_left(ends, end) if start < end else len(words) for start, end in offsets]
        rows.index_add_(0, torch.tensor(owner), pooled)
        rows_of.append(WordRows(words, rows / pooled.sum(0).norm().clamp(min=1e-12)))
    return rows_of


def _losses_without(encoder: Encoder, texts: Sequence[str]) -> list[WordRows]:
    split = [_WORD.findall(text) for text in texts]
    without = [["".join(words[:i] + words[i + 1 :]) for i in range(len(words))] for words in split]
    requests = [
        EmbeddingRequest(text) for text, rest in zip(texts, without, strict=True) for text in (text, *rest)
    ]
    vectors = normalize(encoder(requests).float().cpu(), dim=1)
    embeddings = torch.split(vectors, [len(rest) + 1 for rest in without])
    return [
        WordRows(words, torch.cat([of_text[0] - of_text[1:], torch.zeros_like(of_text[:1])]))
        for words, of_text in zip(split, embeddings, strict=True)
    ]
