"""A checkpoint as small as it can be of every architecture in conf/model: random weights, own tokenizers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
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
QUIET: Any = {"show_progress": False}


def trained(tokenizer: Tokenizer, trainer: Any, before: Sequence[str], after: Sequence[str]) -> Tokenizer:
    """With special tokens around every text."""
    tokenizer.train_from_iterator(CORPUS, trainer)
    if before or after:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after],
            pair=[*before, "$A", *after, "$B", *after],
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in {*before, *after}],
        )
    return tokenizer


def wordpiece(cls: str = "[CLS]", sep: str = "[SEP]", pad: str = "[PAD]") -> Tokenizer:
    """BERT's: lower case, continuations marked by ##."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokens = [cls, pad, sep, "[UNK]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=tokens, show_progress=False)
    return trained(tokenizer, trainer, [cls], [sep])


def byte_level(tokens: list[str], before: Sequence[str] = (), after: Sequence[str] = ()) -> Tokenizer:
    """GPT-2's: bytes, a space belongs to the word after it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    options: dict[str, Any] = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), **QUIET}
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=tokens, **options)
    return trained(tokenizer, trainer, before, after)


def unigram(tokens: list[str], unk: str, before: Sequence[str], after: Sequence[str]) -> Tokenizer:
    """SentencePiece's: a piece holds the space before its word, and so do its offsets."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Strip(left=False, right=True)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=150, special_tokens=tokens, unk_token=unk, **QUIET)
    return trained(tokenizer, trainer, before, after)


def metaspace_bpe(tokens: list[str], before: Sequence[str], after: Sequence[str] = ()) -> Tokenizer:
    """Llama's, Mistral's and Gemma's: BPE on words with their space, unknown characters as bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=250, special_tokens=tokens, show_progress=False)
    return trained(tokenizer, trainer, before, after)


@dataclass(frozen=True)
class Family:
    """How a family's checkpoints are made, and how they pool."""

    model: str  # class in transformers
    tokenizer: Callable[[], Tokenizer]
    special: dict[str, str]  # tokens by their role, as `pad_token`
    pooling: str
    config: dict[str, Any] = field(default_factory=dict)  # besides width, layers and heads
    side: str = "right"  # on which the tokenizer pads
    promises_end: bool = False  # its configuration says that an end token is added, and it adds none


def special(**tokens: str) -> dict[str, str]:
    return {f"{role}_token": token for role, token in tokens.items()}


BERT = special(cls="[CLS]", sep="[SEP]", pad="[PAD]", unk="[UNK]")
ROBERTA = special(bos="<s>", cls="<s>", eos="</s>", sep="</s>", pad="<pad>", unk="<unk>")
PIECES = ["<s>", "<pad>", "</s>", "<unk>"]  # as in RoBERTa and XLM-R: padding is token 1
BERT_PIECES = ["[CLS]", "[PAD]", "[SEP]", "[UNK]"]
END, END_OF_TURN = "<|endoftext|>", "<|im_end|>"
LLAMA = special(bos="<s>", eos="</s>", pad="<pad>")
GEMMA = special(bos="<bos>", eos="<eos>", pad="<pad>", unk="<unk>")
POSITIONS = 256

mpnet_words = partial(wordpiece, "<s>", "</s>", "<pad>")
roberta_bytes = partial(byte_level, PIECES, ["<s>"], ["</s>"])
xlm_pieces = partial(unigram, PIECES, "<unk>", ["<s>"], ["</s>"])
modern_bytes = partial(byte_level, BERT_PIECES, ["[CLS]"], ["[SEP]"])
deberta_pieces = partial(unigram, BERT_PIECES, "[UNK]", ["[CLS]"], ["[SEP]"])
t5_pieces = partial(unigram, ["<pad>", "</s>", "<unk>"], "<unk>", [], ["</s>"])
mistral_pieces = partial(metaspace_bpe, ["<unk>", "<s>", "</s>", "<pad>"], ["<s>"])
llama_bytes = partial(byte_level, ["<s>", "</s>", "<pad>"], ["<s>"], ["</s>"])
qwen_bytes = partial(byte_level, [END, END_OF_TURN], [], [END])
gemma_pieces = partial(metaspace_bpe, ["<pad>", "<eos>", "<bos>", "<unk>"], ["<bos>"], ["<eos>"])

GROUPED: dict[str, Any] = {"num_key_value_heads": 1}
SLIDING = {**GROUPED, "sliding_window": 16}
HEADS = {**GROUPED, "head_dim": 16}
MODERN = {"local_attention": 16, "global_attn_every_n_layers": 2, "cls_token_id": 0, "sep_token_id": 2}
DEBERTA = {
    **{"position_buckets": 8, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False},
    **{"relative_attention": True, "share_att_key": True, "norm_rel_ebd": "layer_norm", "type_vocab_size": 0},
}
NEO = {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 16}
NEO_TOKENS = special(bos=END, eos=END, unk=END, pad="[PAD]")
T5 = {"d_model": WIDTH, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
T5_TOKENS = special(eos="</s>", pad="<pad>", unk="<unk>")

FAMILIES: dict[str, Family] = {
    "bert": Family("BertModel", wordpiece, BERT, "cls"),
    "bert_cls_sep": Family("BertModel", wordpiece, BERT, "cls+sep"),
    "nomic_bert": Family("NomicBertModel", wordpiece, BERT, "mean"),
    "mpnet": Family("MPNetModel", mpnet_words, ROBERTA | special(unk="[UNK]"), "mean"),
    "roberta": Family("RobertaModel", roberta_bytes, ROBERTA, "last2"),
    "xlm_roberta": Family("XLMRobertaModel", xlm_pieces, ROBERTA, "last2"),
    "modernbert": Family("ModernBertModel", modern_bytes, BERT, "mean", MODERN),
    "deberta_v3": Family("DebertaV2Model", deberta_pieces, BERT, "mean", DEBERTA),
    "gpt_neo": Family("GPTNeoModel", partial(byte_level, [END, "[PAD]"]), NEO_TOKENS, "weightedmean", NEO),
    "t5": Family("T5ForConditionalGeneration", t5_pieces, T5_TOKENS, "mean", T5),
    "mistral": Family(  # an end token is promised as in E5-Mistral's
        "MistralModel", mistral_pieces, LLAMA | special(unk="<unk>"), "lasttoken", SLIDING, "left", True
    ),
    "llama": Family("LlamaModel", llama_bytes, LLAMA, "lasttoken", GROUPED, "left"),
    "qwen2": Family("Qwen2Model", qwen_bytes, special(eos=END, pad=END), "lasttoken", GROUPED, "left"),
    "qwen3": Family(  # ends with its padding token, not with its end
        "Qwen3Model", qwen_bytes, special(eos=END_OF_TURN, pad=END), "lasttoken", HEADS, "left"
    ),
    "gemma2": Family("Gemma2Model", gemma_pieces, GEMMA, "lasttoken", SLIDING | HEADS, "left"),
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
        **{f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "pad")},
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
