"""A model as a table of token vectors, which needs no transformer: for search where speed counts most.

After Model2Vec (Tulkens and van Dongen, 2024, https://github.com/MinishLab/model2vec): each token is embedded
alone, the principal components of all of them are kept, and each is weighted by how rare it is (SIF: Arora et
al., "A simple but tough-to-beat baseline for sentence embeddings", ICLR 2017). Frequencies follow Zipf's law
over the tokenizer's vocabulary, whose order most tokenizers learn from them. Ours differs in that a token's
vector is what the model itself gives for a text of that token, by its own pooling.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from torch import Tensor

from train.encoder.encoder import Encoder
from train.encoder.expression_files import save_expressions
from train.encoder.loading import silence_libraries
from train.encoder.token_models import bare_tokenizer
from train.io.progress import progress_bar

log = logging.getLogger(__name__)

DIMENSIONS = 256  # as published
_SIF = 1e-4  # as published
_BATCH = 256  # tokens


def write_static(encoder: Encoder, folder: Path, dimensions: int | None = None) -> None:
    """Write a model of static embeddings, which plain sentence-transformers reads.

    Its tokenizer has the model's rules for expressions, and their tokens have vectors. Prompts that come
    before every query or document are left out: without context they would only be words that all share.

    Args:
        dimensions: of an embedding; None = 256, or as many as the model has.

    Raises:
        UserError: if the tokenizer cannot do without special tokens.
    """
    tokenizer = bare_tokenizer(encoder.model.tokenizer.backend_tokenizer)
    vectors = token_vectors(encoder)
    table = weighted(principal_components(vectors, dimensions or min(DIMENSIONS, vectors.shape[1])))
    static = StaticEmbedding(tokenizer, embedding_weights=table)
    left_out = [prompt for prompt in (encoder.prompts.query, encoder.prompts.document) if prompt]
    if left_out:
        log.info(
            "static: without %s, which without context would only be words that all texts share",
            " and ".join(map(repr, dict.fromkeys(left_out))),
        )
    prompts = {"query": "", "document": "", "instruction": encoder.prompts.instruction}
    model = SentenceTransformer(modules=[static, Normalize()], prompts=prompts, device="cpu")
    with silence_libraries():
        model.save_pretrained(str(folder), create_model_card=False, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    save_expressions(folder, tokenizer, encoder.idiom_tokens, encoder.meanings)


def token_vectors(encoder: Encoder) -> Tensor:
    """(V, D), each token's embedding as a text of its own."""
    tokenizer: Any = encoder.model.tokenizer
    num_tokens = max(tokenizer.get_vocab().values()) + 1
    encoder.eval()
    pieces = []
    with progress_bar("tokens", num_tokens) as advance:
        for start in range(0, num_tokens, _BATCH):
            ids = range(start, min(start + _BATCH, num_tokens))
            pieces.append(encoder.embed_token_texts(ids).float().cpu())
            advance(len(ids))
    return torch.cat(pieces)


def principal_components(vectors: Tensor, dimensions: int) -> Tensor:
    """(V, `dimensions`), the vectors (V, D) less their mean, along the directions in which they vary most."""
    centred = vectors - vectors.mean(0)
    _, directions = torch.linalg.eigh((centred.T @ centred).double())  # ascending
    components: Tensor = centred @ directions.flip(1)[:, :dimensions].to(centred)
    return components


def weighted(vectors: Tensor) -> Tensor:
    """The vectors (V, D) times a / (a + p), with a token's probability p by its rank, after Zipf's law."""
    inverse_ranks = 1 / torch.arange(2, len(vectors) + 2, dtype=torch.float64)
    weights = _SIF / (_SIF + inverse_ranks / inverse_ranks.sum())
    return vectors * weights[:, None].to(vectors)
