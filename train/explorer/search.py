"""A query's nearest documents by each model, as the page shows them."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from train.benchmarks.embeddings import embed_or_read
from train.benchmarks.own import MODES, Mode
from train.benchmarks.retrieval import ndcg, rank, rank_in_parts, tie_break
from train.encoder.attribution import word_rows
from train.encoder.encoder import Encoder
from train.explorer.corpus import Corpus, Text
from train.io.processes import Processes
from train.io.progress import progress_bar
from train.requests import Request

_NDCG = 10
_CHUNK = 64  # documents whose words are looked at together
_DIGITS = 4


@dataclass(frozen=True)
class Model:
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
    def embedding(cls, name: str, about: str, encoder: Encoder, corpus: Corpus) -> Model:
        """Embed a corpus, unless that was done before: embeddings are cached as those of runs."""

        def embedded(requests: Sequence[Request], what: str) -> Tensor:
            rows = embed_or_read(encoder, requests, Processes(), f"{what}, {name}")
            return normalize(rows, dim=1).to(encoder.device)

        documents = embedded([Request(document.text) for document in corpus.documents], "documents")
        modes = MODES if corpus.has_spans else MODES[:1]
        requests = [_request(query, mode) for mode in modes for query in corpus.queries]
        queries = torch.split(embedded(requests, "queries"), len(corpus.queries))
        return cls(name, about, encoder, documents, dict(zip(modes, queries, strict=True)))


class Explorer:
    """Searches a corpus with several models.

    Args:
        models: in the order of the page's columns.
        num_shown: documents that are shown of a query.
    """

    def __init__(self, corpus: Corpus, models: Sequence[Model], num_shown: int) -> None:
        self.corpus, self.models = corpus, models
        self._num_shown = min(num_shown, len(corpus.documents))

    @property
    def modes(self) -> list[Mode]:
        """`sentence`, and `span` if something is marked in each query of the corpus."""
        return list(self.models[0].queries)

    @torch.no_grad()
    def search(self, query: Text, mode: Mode, number: int | None = None) -> dict[str, Any]:
        """The answer to a query: what each model read, and the documents nearest to it.

        Args:
            number: of the query, if it is one of the corpus'.
        """
        request = _request(query, mode)
        return self._answer(query, request, [_unit(m.encoder, request) for m in self.models], number)

    @torch.no_grad()
    def why(self, query: Text, mode: Mode, model: int, document: int) -> dict[str, Any]:
        """The words of a document, and each one's share in its cosine with a query (:class:`WordRows`)."""
        encoder = self.models[model].encoder
        (rows,) = word_rows(encoder, [self.corpus.documents[document].text])
        return {"words": rows.words, "shares": _rounded(rows.shares(_unit(encoder, _request(query, mode))))}

    @torch.no_grad()
    def scores(self) -> dict[str, list[list[float]]] | None:
        """Mode → of each query nDCG@10 by each model; None if it is not known what is relevant."""
        relevant, num_queries = self.corpus.relevant, len(self.corpus.queries)
        if not relevant:
            return None
        number = torch.tensor([len(relevant.get(i, ())) for i in range(num_queries)])
        ties = tie_break(document.text for document in self.corpus.documents)

        def of_model(model: Model, mode: Mode) -> list[float]:
            documents, queries = model.documents, model.queries[mode]
            parts = [(len(documents), lambda chunk: queries[chunk] @ documents.T)]
            ranking, _ = rank_in_parts(parts, num_queries, _NDCG, ties)
            hits = [[d in relevant.get(i, ()) for d in first] for i, first in enumerate(ranking.tolist())]
            return _rounded(ndcg(torch.tensor(hits), number, _NDCG).tolist())

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
        asked: list[dict[int, list[Any]]] = [defaultdict(list) for _ in self.models]
        with progress_bar("answers", len(self.modes) * len(self.corpus.queries)) as advance:
            for mode in self.modes:
                for i, query in enumerate(self.corpus.queries):
                    vectors = [model.queries[mode][i] for model in self.models]
                    answers[mode].append(self._answer(query, _request(query, mode), vectors, number=i))
                    for of_model, column, vector in zip(
                        asked, answers[mode][-1]["models"], vectors, strict=True
                    ):
                        for row in column["rows"]:
                            of_model[row["document"]].append((row, vector.cpu()))
                    advance(1)
        return answers, [self._add_shares(*one) for one in zip(self.models, asked, strict=True)]

    def _answer(
        self, query: Text, request: Request, vectors: Sequence[Tensor], number: int | None = None
    ) -> dict[str, Any]:
        """See :meth:`search`.

        Args:
            vectors: of the query, by each model.
            number: of the query among the corpus', of which it is known what is relevant.
        """
        similarities = [m.documents @ vector for m, vector in zip(self.models, vectors, strict=True)]  # (N,)
        if query.position is not None:
            for values in similarities:
                values[query.position] = -torch.inf
        relevant = None if number is None else self.corpus.relevant.get(number)
        columns = []
        for model, values in zip(self.models, similarities, strict=True):
            first = rank(values[None], self._num_shown)[0]  # (K,)
            first = first[values[first] > -torch.inf]
            ranks = [(other > other[first][:, None]).sum(1).add(1).tolist() for other in similarities]
            rows = [
                {"document": document, "cosine": round(values[document].item(), _DIGITS), "ranks": places}
                | ({} if relevant is None else {"relevant": document in relevant})
                for document, *places in zip(first.tolist(), *ranks, strict=True)
            ]
            columns.append({"read": _as_read(query.text, model.encoder, request), "rows": rows})
        return {"models": columns}

    def _add_shares(
        self, model: Model, asked: Mapping[int, Sequence[tuple[dict[str, Any], Tensor]]]
    ) -> dict[int, list[str]]:
        """Add its words' shares to each row of an answer; gives each document's words.

        Args:
            asked: document → the rows that show it, each with the query's vector.
        """
        texts = {document: self.corpus.documents[document].text for document in asked}
        order = sorted(texts, key=lambda document: len(texts[document]))  # alike in length: little padding
        words = {}
        with progress_bar(f"words, {model.name}", len(order)) as advance:
            for chunk in (order[i : i + _CHUNK] for i in range(0, len(order), _CHUNK)):
                found = word_rows(model.encoder, [texts[document] for document in chunk])
                for document, some in zip(chunk, found, strict=True):
                    words[document] = some.words
                    for row, vector in asked[document]:
                        row["shares"] = _rounded(some.shares(vector))
                advance(len(chunk))
        return words


def _request(text: Text, mode: Mode) -> Request:
    """A query by its whole text, or by what is marked in it."""
    return Request(text.text, text.span, role="query", pooling=mode)


def _unit(encoder: Encoder, request: Request) -> Tensor:
    """(D,), a query's embedding, of unit length."""
    return normalize(encoder([request]).float(), dim=1)[0]


def _as_read(text: str, encoder: Encoder, request: Request) -> list[tuple[str, bool]] | None:
    """The pieces of a query as the model reads it, each with whether the model added it; None if none is."""
    (read,) = encoder.reader.read([request])
    if read.text == text:
        return None
    own, whole = (re.findall(r"\w+|\s+|[^\w\s]", part) for part in (text, read.text))
    matches = difflib.SequenceMatcher(None, own, whole, autojunk=False).get_opcodes()
    return [("".join(whole[i:j]), tag != "equal") for tag, _, _, i, j in matches if j > i]


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, _DIGITS) for value in values]
