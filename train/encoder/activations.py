"""Less memory in training: activations that the backward pass computes again."""

from __future__ import annotations

from typing import Any

from train.errors import UserError


def checkpoint_activations(transformer: Any) -> None:
    """Keep no activations within a transformer's layers in training.

    Raises:
        UserError: if the architecture does not support it.
    """
    try:
        # Renamed in transformers 5.x; the old name is to be removed in 6.
        old_name = "gradient_checkpointing_enable"
        enable = getattr(transformer, "activation_checkpointing_enable", None)
        enable = enable or getattr(transformer, old_name)
        # The reentrant form needs inputs that have a gradient, which token ids do not.
        enable({"use_reentrant": False})
    except (AttributeError, ValueError) as error:
        raise UserError(
            f"trainer.activation_checkpointing=true: {type(transformer).__name__} cannot ({error})"
        ) from None
