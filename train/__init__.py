"""Contrastive fine-tuning and scoring of idiom-aware text-embedding models.

Programs: `python -m train`, `python -m train.evaluate`. From Python: `Encoder.from_pretrained(...)`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from idiomtune.encoder.encoder import Encoder

__version__ = "0.1.0"
__all__ = ["Encoder"]


def __getattr__(name: str) -> Any:
    # Lazily, so that `python -m train --help` need not wait for torch.
    if name == "Encoder":
        from idiomtune.encoder.encoder import Encoder

        return Encoder
    raise AttributeError(f"module 'train' has no attribute {name!r}")
