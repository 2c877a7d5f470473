"""The gate of a model's meanings, fitted to the training sentences as the model embeds them."""

from __future__ import annotations

from collections.abc import Sequence

from train.distributed.processes import Processes
from train.encoder.encoder import Encoder
from train.encoder.parallel import embed_all
from train.encoder.usage_gate import fit_usage_gate
from train.requests import Request


def renew_gate(encoder: Encoder, usages: Sequence[tuple[str, bool]], processes: Processes) -> None:
    """Fit the gate to the encoder as it stands.

    Args:
        encoder: with meanings; left in the mode in which it came.
        usages: sentences, and whether they use their expression idiomatically; without any nothing changes.
        processes: all of them fit it; each embeds a part of the sentences.
    """
    if not usages or encoder.meanings is None:
        return
    was_training = encoder.training
    encoder.eval()
    try:
        requests = [Request(text, with_meanings=False) for text, _ in usages]
        embeddings = embed_all(encoder, requests, processes)
    finally:
        encoder.train(was_training)
    gate = fit_usage_gate(embeddings, [is_idiomatic for _, is_idiomatic in usages])
    encoder.meanings = encoder.meanings.override(gate=gate)
