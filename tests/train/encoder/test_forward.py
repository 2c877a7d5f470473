"""Forward batches: padding is the tokenizer's own, on the right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tiny_families import CORPUS, FAMILIES, tiny_checkpoint
from train.encoder.encoder import Encoder
from train.encoder.reading import Tokenizer
from train.errors import UserError


@pytest.mark.parametrize("family", ["bert", "xlm_roberta", "qwen2"])
def test_padding_equals_the_tokenizers(family: str, tmp_path: Path) -> None:
    """Ids, mask and segments, whatever the padding token's id is."""
    encoder = Encoder.from_pretrained(tiny_checkpoint(FAMILIES[family], tmp_path), device="cpu")
    tokenizer = Tokenizer(encoder.model)
    ids = [tokens.input_ids for tokens in tokenizer([*CORPUS, "It"])]
    assert len({len(row) for row in ids}) > 2
    ours = tokenizer.pad(ids, torch.device("cpu"))
    theirs: Any = tokenizer.wrapped.pad(
        {"input_ids": ids, "attention_mask": [[1] * len(row) for row in ids]},
        padding_side="right",
        return_tensors="pt",
    )
    for name, expected in theirs.items():
        assert torch.equal(ours[name], expected), name
    if "token_type_ids" in ours:
        assert not ours["token_type_ids"].any()


def test_a_tokenizer_without_a_padding_token_is_refused(tiny: Encoder) -> None:
    tiny.model.tokenizer.pad_token = None
    with pytest.raises(UserError, match=r"no padding token.*tokenizer_config\.json"):
        Tokenizer(tiny.model)
