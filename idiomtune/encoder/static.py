"""Published models of static embeddings: a table of token vectors instead of a transformer."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.module import Module
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedTokenizerFast

from idiomtune.errors import UserError


class StaticTokens(Module):
    """A table of token vectors (V, D): each token's embedding is its own, whatever is next to it.

    Args:
        static: the library's module; the mean of its rows is what it gives for a text.

    Attributes:
        tokenizer: of transformers, with character offsets.
        max_seq_length: tokens kept of a text; None = all.

    Raises:
        UserError: if the tokenizer has no special token that could fill up batches.
    """

    max_seq_length: int | None = None

    def __init__(self, static: StaticEmbedding) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        weight = static.embedding.weight.detach()
        self.table: nn.Embedding = nn.Embedding.from_pretrained(weight, freeze=True)  # type: ignore[no-untyped-call]
        self.tokenizer = _bare_tokenizer(static.tokenizer)

    def forward(self, features: dict[str, Any], **_: object) -> dict[str, Any]:
        return dict(features, token_embeddings=self.table(features["input_ids"]))

    def get_embedding_dimension(self) -> int:
        return int(self.table.embedding_dim)

    @property
    def auto_model(self) -> NoReturn:
        """Raises UserError: a static model has no transformer to train."""
        raise UserError("this model is a table of token vectors: name a model with a transformer")

    def save(self, *_: object, **__: object) -> None:
        """Raises UserError."""
        self.auto_model  # noqa: B018


def _bare_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """The tokenizer without special tokens around a text, and without a limit.

    Raises:
        UserError: if it has no special token at all: one is needed to fill up batches.
    """
    content = json.loads(tokenizer.to_str())
    bare = Tokenizer.from_str(json.dumps(content | {"post_processor": None}))
    bare.no_padding()
    bare.no_truncation()
    special = [token.content for token in bare.get_added_tokens_decoder().values() if token.special]
    if not special:
        raise UserError("the model's tokenizer has no special token, which batches of texts need for padding")
    padding = next((token for token in special if "pad" in token.lower()), special[0])
    return PreTrainedTokenizerFast(
        tokenizer_object=bare, pad_token=padding, model_input_names=["input_ids", "attention_mask"]
    )


def with_token_table(model: SentenceTransformer) -> SentenceTransformer:
    """A model of static embeddings, whose tokens can also be pooled by themselves."""
    static, *others = model
    assert isinstance(static, StaticEmbedding)
    tokens = StaticTokens(static)
    return SentenceTransformer(
        modules=[tokens, Pooling(tokens.get_embedding_dimension(), pooling_mode="mean"), *others],
        prompts={name: prompt for name, prompt in model.prompts.items() if prompt is not None},
        similarity_fn_name=model.similarity_fn_name,
        device=str(model.device),
    )
