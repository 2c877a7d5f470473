"""Which words of a text make it similar to a query.

Where a text's embedding is the mean of its tokens' embeddings, its cosine with a query is a sum over these
tokens, so each word's share is exact. Elsewhere it is by how much the cosine falls when the word is left out.
Both are linear in the query: a row a word, whose product with the query's unit vector is the word's share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from idiomtune.encoder.encoder import Encoder
from idiomtune.requests import Request

_UNSPACED = (
    "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # Thai, Lao, kana, Han: no blanks between words
)
_WORD = re.compile(rf"[{_UNSPACED}]\s*|[^\s{_UNSPACED}]+\s*|\s+")


class WordRows(NamedTuple):
    """The words of a text, and what they add to its similarities.

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
    """Of each document, the rows of its words, on the CPU.

    With `encoder.averages_tokens` a document's shares add up to its cosine with the query.
    """
    find = _shares_of_tokens if encoder.averages_tokens else _losses_without
    return find(encoder, texts)


def _shares_of_tokens(encoder: Encoder, texts: Sequence[str]) -> list[WordRows]:
    read = encoder.reader.read([Request(text) for text in texts])
    embeddings = encoder.embed_tokens([one.tokens.input_ids for one in read]).float().cpu()  # (B, T, D)
    rows_of = []
    for one, tokens in zip(read, embeddings, strict=True):
        pooled = tokens[one.num_skipped : len(one.tokens.input_ids)]  # (P, D)
        words, ends = _words(one.text)
        rows = pooled.new_zeros(len(words) + 1, pooled.shape[1])
        # By its last character, since with some tokenizers a token begins with the blank before its word.
        owner = [
            int(torch.searchsorted(ends, end - 1, right=True)) if start < end else len(words)
            for start, end in one.tokens.offsets[one.num_skipped :]
        ]
        rows.index_add_(0, torch.tensor(owner), pooled)
        rows_of.append(WordRows(words, rows / pooled.sum(0).norm().clamp(min=1e-12)))
    return rows_of


def _losses_without(encoder: Encoder, texts: Sequence[str]) -> list[WordRows]:
    split = [_words(text)[0] for text in texts]
    without = [["".join(words[:i] + words[i + 1 :]) for i in range(len(words))] for words in split]
    requests = [Request(text) for text, rest in zip(texts, without, strict=True) for text in (text, *rest)]
    embeddings = torch.split(
        normalize(encoder(requests).float().cpu(), dim=1), [len(rest) + 1 for rest in without]
    )
    return [
        WordRows(words, torch.cat([some[0] - some[1:], torch.zeros_like(some[:1])]))
        for words, some in zip(split, embeddings, strict=True)
    ]


def _words(text: str) -> tuple[list[str], Tensor]:
    """The pieces of a text, and where each ends, (W,)."""
    matches = list(_WORD.finditer(text))
    return [match[0] for match in matches], torch.tensor([match.end() for match in matches])
