"""A model's modules: from token ids to the embeddings of sentences and spans."""

from __future__ import annotations

from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor

from train.encoder.forward import ForwardBatch
from train.encoder.pooling import add_meanings, pool_sentences
from train.encoder.spans import pool_spans
from train.encoder.token_models import TokenModel
from train.errors import UserError


class Stack:
    """What is where among a model's modules: transformer → (token-level) → pooling → (embedding-level).

    Args:
        model: it is not kept, so that it can be replaced by one that is built alike.
        raw_spans: embed spans by the transformer's last hidden states alone.

    Attributes:
        pools_prompts: whether a prompt's tokens are pooled.
        raw_spans: as given.

    Raises:
        UserError: if the model has no transformer or no pooling; if raw spans would have another width than
            its embeddings.
    """

    def __init__(self, model: SentenceTransformer, *, raw_spans: bool) -> None:
        modules = list(model)
        poolings = [i for i, module in enumerate(modules) if isinstance(module, Pooling)]
        if not isinstance(modules[0], Transformer | TokenModel) or len(poolings) != 1:
            names = " → ".join(type(module).__name__ for module in modules)
            raise UserError(
                f"this model is {names}; span embeddings need a transformer followed by one pooling"
            )
        self._pooling_at = poolings[0]
        pooling: Any = modules[poolings[0]]
        self._num_pooled = pooling.pooling_output_dimension // pooling.embedding_dimension
        self.pools_prompts: bool = pooling.include_prompt
        self.raw_spans = raw_spans
        hidden, width = modules[0].get_embedding_dimension(), model.get_embedding_dimension()
        if raw_spans and hidden != width:
            raise UserError(
                f"model.span=raw: the model's hidden states have {hidden} dimensions and its embeddings "
                f"{width}, so they cannot be compared: leave model.span unset"
            )

    def embed(
        self, model: SentenceTransformer, features: dict[str, Any], batch: ForwardBatch, weight: float
    ) -> Tensor:
        """(n, D), row i for the i-th of the batch's `requests`: first its sentences, then its spans.

        Args:
            features: token ids and mask of the batch's texts, (B, T) each.
            weight: of the meanings that are added to sentences.
        """
        modules = list(model)
        features, hidden = self.embed_tokens(model, features)
        pooled = pool_sentences(modules[self._pooling_at], features, [*batch.sentences, *batch.meanings])
        if batch.spans and not self.raw_spans:
            means = pool_spans(features["token_embeddings"], batch.spans)  # (S, D)
            # Once for each of several concatenated poolings, such as those of [CLS] and [SEP].
            pooled.append(means.repeat(1, self._num_pooled))
        pieces: list[Tensor] = []
        if pooled:
            features = dict(features, sentence_embedding=torch.cat(pooled))
            for module in modules[self._pooling_at + 1 :]:
                features = module(features)
            rows = features["sentence_embedding"]
            if batch.meanings:
                n = len(batch.sentences)
                end = n + len(batch.meanings)
                rows = torch.cat([add_meanings(rows[:n], rows[n:end], batch.meanings_of, weight), rows[end:]])
            pieces.append(rows)
        if batch.spans and self.raw_spans:
            pieces.append(pool_spans(hidden, batch.spans))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def embed_tokens(
        self, model: SentenceTransformer, features: dict[str, Any]
    ) -> tuple[dict[str, Any], Tensor]:
        """Features with `token_embeddings` (B, T, D), which are pooled, and the last hidden states (B, T, D).

        Args:
            features: token ids and mask, (B, T) each.
        """
        modules = list(model)
        features = modules[0](features)
        hidden = features["token_embeddings"]
        for module in modules[1 : self._pooling_at]:
            features = module(features)
        return features, hidden

    def averages_tokens(self, model: SentenceTransformer) -> bool:
        """Whether embeddings are means of token embeddings, up to their length."""
        modules: list[Any] = list(model)
        after = modules[self._pooling_at + 1 :]
        is_mean = modules[self._pooling_at].pooling_mode == "mean"
        return is_mean and all(isinstance(module, Normalize) for module in after)
