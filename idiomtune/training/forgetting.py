"""Remedies against forgetting: the weights that are trained, and those that are scored and saved."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from idiomloss import distillation_loss
from idiomtune.config import ForgettingSettings, TrainSettings
from idiomtune.encoder.device import DeviceAndPrecision
from idiomtune.encoder.facts import weights_digest
from idiomtune.encoder.forward import evaluation_mode
from idiomtune.encoder.sharding import local_shard, shard_like
from idiomtune.encoder.trained_parts import Adapters, check_peft
from idiomtune.errors import UserError
from idiomtune.glossaries.build import build_encoder
from idiomtune.glossaries.encoder import GlossaryEncoder
from idiomtune.io.processes import Processes
from idiomtune.io.run_files import TRAINED
from idiomtune.io.terminal import progress_bar
from idiomtune.objectives import Batch, Mean, Objective, ObjectiveLoss
from idiomtune.requests import EmbeddingRequest

log = logging.getLogger(__name__)

ADAPTER = "adapter"  # in a checkpoint and in best/: the adapters, in peft's own format


@dataclass(eq=False)
class Remedies:
    """The trained encoder, with remedies against forgetting, if any.

    The exported weights are those that are scored and saved: the trained ones, unless there is a remedy.
    With interpolation, for each weight

        W = W_base + a (W_trained - W_base), in float32

    and with adapters they are the base model's with the adapters merged in.

    Args:
        encoder: with the base model's weights, if there is a remedy; :meth:`load` gives it trained ones.
        interpolation: a.
        adapters: of the encoder, if only they are trained; not together with interpolation.
        distillation: a term added to the objective's loss.
        base: digest of the base model's weights, for the run's record.

    References:
        Interpolation of base and tuned weights: Wortsman et al. 2022 (arXiv 2109.01903).
    """

    encoder: GlossaryEncoder
    interpolation: float = 1.0
    adapters: Adapters | None = None
    distillation: Distillation | None = None
    base: str | None = None

    def __post_init__(self) -> None:
        self._base_weights: dict[str, Tensor] = {}
        if self.interpolation != 1.0:  # in main memory: only evaluations need it
            self._base_weights = {name: p.detach().cpu().clone() for name, p in self._parameters()}

    def add_distillation(self, result: ObjectiveLoss, embeddings: Tensor, batch: Batch) -> ObjectiveLoss:
        """The objective's loss plus the term that keeps some of the batch's rows near the base model's.

        Args:
            embeddings: (R, D), row i for `batch.requests[i]`.
        """
        if self.distillation is None:
            return result
        term, num_terms = self.distillation.term(embeddings, batch)
        means = {**result.means, "distillation": Mean(term.item(), num_terms)}
        return replace(result, loss=result.loss + self.distillation.weight * term, means=means)

    @contextmanager
    def exported_weights(self) -> Iterator[None]:
        """Within this context the encoder has the exported weights; afterwards the trained ones again."""
        if self.adapters is not None:
            with self.adapters.merging():
                yield
            return
        # In place: sharding holds on to the memory of the weights.
        named = self._parameters() if self._base_weights else []
        before = [local_shard(p).clone() for _, p in named]
        try:
            for name, p in named:
                base = local_shard(shard_like(self._base_weights[name], p)).to(p.device).float()
                moved = base + self.interpolation * (local_shard(p).float() - base)
                local_shard(p).copy_(moved.to(p.dtype))
            yield
        finally:
            for (_, p), trained in zip(named, before, strict=True):
                local_shard(p).copy_(trained)  # a copy: undoing the sum would round

    def save(self, folder: Path) -> None:
        """Write the exported model and, if they differ, the weights that training resumes from."""
        with self.exported_weights():
            self.encoder.save(folder, overwrite=True)
        if self.adapters is not None:
            self.adapters.save(folder / ADAPTER)
        elif self._base_weights:
            save_file({name: p.detach().contiguous() for name, p in self._parameters()}, folder / TRAINED)

    def load(self, checkpoint: Path) -> None:
        """Replace the base model's weights in the encoder by the trained ones from :meth:`save`."""
        if self.adapters is not None:
            self.adapters.load(checkpoint / ADAPTER)
            return
        tensors = load_file(checkpoint / TRAINED)
        with torch.no_grad():
            for name, p in self._parameters():
                p.copy_(tensors[name])

    def _parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        return [(name, p) for name, p in self.encoder.named_parameters() if p.requires_grad]


class Distillation:
    """Keeps embeddings of whole sentences without an idiom near the base model's.

    Args:
        base: it embeds all requests here, once, in evaluation mode and float32.
        requests: every request that may be compared.
        weight: of the term, which is added to the objective's loss.
        processes: among which the requests are divided.
    """

    def __init__(
        self,
        base: GlossaryEncoder,
        requests: Sequence[EmbeddingRequest],
        weight: float,
        processes: Processes | None = None,
    ) -> None:
        self.weight = weight
        distinct = list(dict.fromkeys(requests))
        self._numbers = {request: number for number, request in enumerate(distinct)}
        num_texts = base.reader.num_texts(distinct)
        bar = progress_bar("embedding by the base model", num_texts)
        with torch.no_grad(), evaluation_mode(base), bar as advance:
            embeddings: Tensor = base(distinct, advance, processes=processes, with_readings=False)
        self._embeddings = embeddings.float()
        message = "distillation: %d embeddings of %d dimensions are kept in memory (%.1f MB)"
        log.info(message, *self._embeddings.shape, self._embeddings.nbytes / 1e6)

    def term(self, embeddings: Tensor, batch: Batch) -> tuple[Tensor, int]:
        """The mean over the batch's plain rows of 1 - cosine with the base model's, and their number."""
        device = embeddings.device
        rows = torch.tensor(batch.plain_rows, dtype=torch.long, device=device)  # (P,)
        numbers = [self._numbers[batch.requests[row]] for row in batch.plain_rows]
        base = self._embeddings[torch.tensor(numbers, dtype=torch.long, device=device)]  # (P, D)
        return distillation_loss(embeddings[rows], base), len(rows)


def check_remedies(forgetting: ForgettingSettings, objective: Objective) -> None:
    """Check that the remedies can work, before any computation.

    Raises:
        UserError: if a package is missing, or if no batch of the first epoch embeds a whole sentence without
            an idiom, which distillation needs.
    """
    if forgetting.lora.rank is not None:
        check_peft()
    micro_steps = (anchors for step in objective.epoch_steps(0, 1) for anchors in step)
    if forgetting.distillation and not any(objective.batch(0, anchors).plain_rows for anchors in micro_steps):
        raise UserError(
            "forgetting.distillation: no batch of this objective embeds a whole sentence without an idiom, "
            "so there is nothing to keep near the base model: set objective.document_mode=sentence, or "
            "forgetting.distillation=0"
        )


def build_trained_model(
    settings: TrainSettings,
    placement: DeviceAndPrecision,
    objective: Objective,
    checkpoint: Path | None,
    expressions: Sequence[str] = (),
    processes: Processes | None = None,
    *,
    untrained: GlossaryEncoder | None = None,
) -> Remedies:
    """The encoder to train, with the base model's or the checkpoint's weights, and the remedies around it.

    Args:
        expressions: those that get idiom tokens; the base model then has these tokens, untrained.
        processes: among which the texts that the base model embeds are divided.
        untrained: the base model, if it is loaded already; not with a checkpoint or idiom tokens.
    """
    forgetting = settings.forgetting
    # With a remedy the base model, also for a run that is resumed.
    saved = None if forgetting.is_on else checkpoint
    model, seed = settings.model, settings.seed
    encoder = untrained or build_encoder(model, placement, saved, expressions=expressions, seed=seed)
    _ = encoder.transformer  # a table of token vectors has none, and says that it cannot be trained
    if not forgetting.is_on:
        return Remedies(encoder)
    base = weights_digest(encoder)
    distillation, adapters = None, None
    if forgetting.distillation:
        requests = objective.plain_requests
        distillation = Distillation(encoder, requests, forgetting.distillation, processes)
    if checkpoint is not None and not forgetting.moves_back:
        encoder = build_encoder(model, placement, checkpoint)
    if forgetting.lora.rank is not None:
        adapters = Adapters(encoder, forgetting.lora, seed=seed, base_model=model.path)
    remedies = Remedies(encoder, forgetting.weight_interpolation, adapters, distillation, base)
    if checkpoint is not None and forgetting.moves_back:
        remedies.load(checkpoint)
    return remedies
