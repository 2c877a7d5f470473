"""A BERT that reads `phrase [SEP] sentence`, beside the encoder of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from train.errors import UserError
from train.experts.loading import load_pretrained


class SenseEncoder(nn.Module):
    """Texts to sense vectors, in CLIP's space, and the logit of the idiomatic sense.

    Args:
        transformer: H numbers a token; the first token's (`[CLS]`) last state counts.
        tokenizer: of the transformer.
        width: W, of CLIP. Where H differs, a linear layer maps to it: the paper's are both 768.
        path, revision: where it was loaded from.
    """

    def __init__(
        self, transformer: Any, tokenizer: Any, *, width: int, path: str, revision: str | None = None
    ) -> None:
        super().__init__()
        self.transformer = transformer
        self._tokenizer = tokenizer
        self.path = path
        self.revision = revision
        hidden: int = transformer.config.hidden_size
        self.logit = nn.Linear(hidden, 1)
        self.map: nn.Module = nn.Identity() if hidden == width else nn.Linear(hidden, width)

    @classmethod
    def from_pretrained(cls, path: str, *, width: int, revision: str | None = None) -> SenseEncoder:
        """Load a BERT, or another model with such a first token.

        Raises:
            UserError: if there is no such model, or it cannot be loaded.
        """
        try:
            transformer, tokenizer = load_pretrained(path, revision, AutoModel, AutoTokenizer)
        except UserError as error:
            raise UserError(
                f"objective.sense_encoder.path={path}: could not be loaded as a BERT: {error}\n"
                "  - name a folder with config.json, model.safetensors and the tokenizer's files, or such a "
                "model on the Hub (google-bert/bert-base-uncased)"
            ) from error
        return cls(transformer, tokenizer, width=width, path=path, revision=revision)

    def forward(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Sense vectors (N, W) and logits (N,), positive = idiomatic; longer texts are truncated."""
        tokens = self._tokenizer(
            list(texts),
            padding=True,
            truncation=True,
            max_length=self.transformer.config.max_position_embeddings,
            return_tensors="pt",
        )
        device = self.logit.weight.device
        inputs = {name: tokens[name].to(device) for name in ("input_ids", "attention_mask")}
        first = self.transformer(**inputs).last_hidden_state[:, 0]  # (N, H)
        vectors: Tensor = self.map(first)
        return vectors, self.logit(first)[:, 0]
