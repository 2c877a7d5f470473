"""Models as small as they can be, with random weights: the same ones every time."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoTokenizer, BertConfig, BertModel, PreTrainedTokenizerBase

from idiomtune.data.idiolink import INSTRUCTION
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.encoder.reading import Prompts
from idiomtune.glossaries.meanings import UsageClassifier

_TEXTS = {".json", ".csv"}
_COMMON = 4000  # BERT's tokens stand in the order of their frequency, after signs and letters


def small_tokenizer(folder: Path, tokenizer_of: str) -> PreTrainedTokenizerBase:
    """A BERT model's tokenizer with the commonest tokens and those of the sample, which it cuts alike.

    Loading, training and saving 30,000 rows of embeddings takes longer than all the rest of a tiny model.
    """
    whole = AutoTokenizer.from_pretrained(tokenizer_of)
    sample = [path.read_text(encoding="utf-8") for path in SAMPLE_ROOT.rglob("*") if path.suffix in _TEXTS]
    sample += [INSTRUCTION, Prompts().instruction]
    cut = whole(sample, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
    used = set(chain.from_iterable(cut))
    by_id = sorted((number, token) for token, number in whole.get_vocab().items())
    kept = [token for number, token in by_id if number < _COMMON or number in used]
    numbers = {token: number for number, token in enumerate(t for t in kept if not t.startswith("[unused"))}
    whole.save_pretrained(folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["model"]["vocab"] = numbers
    for added in content["added_tokens"]:
        added["id"] = numbers[added["content"]]
    for special in content["post_processor"]["special_tokens"].values():
        special["ids"] = [numbers[token] for token in special["tokens"]]
    path.write_text(json.dumps(content), encoding="utf-8")
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return tokenizer


def tiny_sentence_transformer(folder: Path, tokenizer_of: str, *, size: int = 32) -> Path:
    """A two-layer BERT of up to 64 tokens with such a tokenizer, as a sentence-transformers folder."""
    tokenizer = small_tokenizer(folder / "tokenizer", tokenizer_of)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=size,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * size,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    BertModel(config).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    transformer = Transformer(str(folder / "bert"), max_seq_length=64)
    model = SentenceTransformer(modules=[transformer, Pooling(size), Normalize()], device="cpu")
    model.save_pretrained(str(folder / "model"), create_model_card=False)
    return folder / "model"


def constant_gate(dimension: int, bias: float) -> UsageClassifier:
    """A gate that tells every use alike, of a model with hidden states of this width."""
    return UsageClassifier([0.0] * 3 * dimension, bias, (1,), (0.0,) * dimension)
