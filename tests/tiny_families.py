"""A checkpoint as small as it can be of every architecture in conf/model: random weights, own tokenizers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "He broke the ice with a joke about the weather.",
    "The ice broke, and the boat went down.",
    "Don't let the cat out of the bag, she said, because nobody else may know about the party yet.",
    "It's raining cats and dogs: bring an umbrella.",
    "Based on the literal/idiomatic usage of the span in the query, retrieve documents that mean the same.",
    "Instruct: Query: passage: Represent this sentence for searching relevant passages:",
]
WIDTH = 32


def wordpiece(cls: str, sep: str, pad: str, unk: str) -> Tokenizer:
    """BERT's: lower case, continuations marked by ##."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=unk))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = [cls, pad, sep, unk, "[MASK]"]
    tokenizer.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=150, special_tokens=specials, show_progress=False)
    )
    return framed(tokenizer, [cls], [sep])


def byte_level(specials: list[str], before: list[str], after: list[str]) -> Tokenizer:
    """GPT-2's: bytes, a space belongs to the word after it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return framed(tokenizer, before, after)


def unigram(specials: list[str], unk: str, before: list[str], after: list[str]) -> Tokenizer:
    """SentencePiece's: a piece holds the space before its word, and so do its offsets."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Strip(left=False, right=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=specials, unk_token=unk, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return framed(tokenizer, before, after)


def metaspace_bpe(specials: list[str], before: list[str], after: list[str]) -> Tokenizer:
    """Llama's, Mistral's and Gemma's: BPE on words with their space, unknown characters as bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=250, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return framed(tokenizer, before, after)


def framed(tokenizer: Tokenizer, before: list[str], after: list[str]) -> Tokenizer:
    """With special tokens around every text."""
    if before or after:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after],
            pair=[*before, "$A", *after, "$B", *after],
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in {*before, *after}],
        )
    return tokenizer


@dataclass(frozen=True)
class Family:
    """How a family's checkpoints are made, and how they pool.

    Attributes:
        model: class in transformers.
        tokenizer: builds its tokenizer.
        special: tokens by their role, as `pad_token`.
        pooling: what it is loaded with.
        decoder: whether each token sees those before it only.
        config: what the architecture needs beyond width, layers and heads.
        side: on which the tokenizer pads.
        promises_end: tokenizer_config.json says that an end token is added, and the tokenizer adds none.
    """

    model: str
    tokenizer: Callable[[], Tokenizer]
    special: dict[str, str]
    pooling: str
    decoder: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    side: str = "right"
    promises_end: bool = False


BERT = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
ROBERTA = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
ROBERTA |= {"pad_token": "<pad>", "unk_token": "<unk>"}
PIECES = ["<s>", "<pad>", "</s>", "<unk>"]  # as in RoBERTa and XLM-R: padding is token 1
LLAMA = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
END = "<|endoftext|>"
GROUPED = {"num_key_value_heads": 1}
POSITIONS = 256

FAMILIES: dict[str, Family] = {
    "bert": Family("BertModel", lambda: wordpiece("[CLS]", "[SEP]", "[PAD]", "[UNK]"), BERT, "cls"),
    "bert_cls_sep": Family(
        "BertModel", lambda: wordpiece("[CLS]", "[SEP]", "[PAD]", "[UNK]"), BERT, "cls+sep"
    ),
    "nomic_bert": Family(
        "NomicBertModel", lambda: wordpiece("[CLS]", "[SEP]", "[PAD]", "[UNK]"), BERT, "mean"
    ),
    "mpnet": Family(
        "MPNetModel",
        lambda: wordpiece("<s>", "</s>", "<pad>", "[UNK]"),
        {**ROBERTA, "unk_token": "[UNK]"},
        "mean",
    ),
    "roberta": Family("RobertaModel", lambda: byte_level(PIECES, ["<s>"], ["</s>"]), ROBERTA, "last2"),
    "xlm_roberta": Family(
        "XLMRobertaModel", lambda: unigram(PIECES, "<unk>", ["<s>"], ["</s>"]), ROBERTA, "last2"
    ),
    "modernbert": Family(
        "ModernBertModel",
        lambda: byte_level(["[CLS]", "[PAD]", "[SEP]", "[UNK]"], ["[CLS]"], ["[SEP]"]),
        BERT,
        "mean",
        config={
            "local_attention": 16,
            "global_attn_every_n_layers": 2,
            "cls_token_id": 0,
            "sep_token_id": 2,
        },
    ),
    "deberta_v3": Family(
        "DebertaV2Model",
        lambda: unigram(["[CLS]", "[PAD]", "[SEP]", "[UNK]"], "[UNK]", ["[CLS]"], ["[SEP]"]),
        BERT,
        "mean",
        config={
            "relative_attention": True,
            "position_buckets": 8,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
            "type_vocab_size": 0,
        },
    ),
    "gpt_neo": Family(
        "GPTNeoModel",
        lambda: byte_level([END, "[PAD]"], [], []),
        {"bos_token": END, "eos_token": END, "unk_token": END, "pad_token": "[PAD]"},
        "weightedmean",
        decoder=True,
        config={"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 16},
    ),
    "t5": Family(
        "T5ForConditionalGeneration",
        lambda: unigram(["<pad>", "</s>", "<unk>"], "<unk>", [], ["</s>"]),
        {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"},
        "mean",
        config={
            "d_model": WIDTH,
            "d_kv": 16,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 2,
            "decoder_start_token_id": 0,
        },
    ),
    # Its tokenizer promises an end token which its template does not add, as that of E5-Mistral.
    "mistral": Family(
        "MistralModel",
        lambda: metaspace_bpe(["<unk>", "<s>", "</s>", "<pad>"], ["<s>"], []),
        LLAMA,
        "lasttoken",
        decoder=True,
        config={**GROUPED, "sliding_window": 16},
        side="left",
        promises_end=True,
    ),
    "llama": Family(
        "LlamaModel",
        lambda: byte_level(["<s>", "</s>", "<pad>"], ["<s>"], ["</s>"]),
        {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"},
        "lasttoken",
        decoder=True,
        config=GROUPED,
        side="left",
    ),
    "qwen2": Family(
        "Qwen2Model",
        lambda: byte_level([END, "<|im_end|>"], [], [END]),
        {"eos_token": END, "pad_token": END},
        "lasttoken",
        decoder=True,
        config=GROUPED,
        side="left",
    ),
    "qwen3": Family(
        "Qwen3Model",
        lambda: byte_level([END, "<|im_end|>"], [], [END]),
        {"eos_token": "<|im_end|>", "pad_token": END},  # ends with its padding token, not with its end
        "lasttoken",
        decoder=True,
        config={**GROUPED, "head_dim": 16},
        side="left",
    ),
    "gemma2": Family(
        "Gemma2Model",
        lambda: metaspace_bpe(["<pad>", "<eos>", "<bos>", "<unk>"], ["<bos>"], ["<eos>"]),
        {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"},
        "lasttoken",
        decoder=True,
        config={**GROUPED, "head_dim": 16, "sliding_window": 16},
        side="left",
    ),
}


def tiny_checkpoint(family: Family, folder: Path) -> Path:
    """A plain transformers checkpoint of the family, which knows 256 positions where it counts them."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=family.tokenizer(), padding_side=family.side, **family.special
    )
    kind: Any = getattr(transformers, family.model)
    config: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 2 * WIDTH,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if "T5" not in family.model:  # which counts none
        counts_from_two = family.model in ("MPNetModel", "RobertaModel", "XLMRobertaModel")
        config["max_position_embeddings"] = POSITIONS + 2 * counts_from_two
    torch.manual_seed(0)
    model = kind(kind.config_class(**{**config, **family.config}))
    with torch.no_grad():  # far from zero, so that no token's part in an embedding is lost in rounding
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if family.promises_end:
        path = folder / "tokenizer_config.json"
        config = json.loads(path.read_text(encoding="utf-8")) | {"add_bos_token": True, "add_eos_token": True}
        path.write_text(json.dumps(config), encoding="utf-8")
    return folder
