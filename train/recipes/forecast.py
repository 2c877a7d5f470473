"""What a run's steps will need of a device's memory: from settings, data and the model's configuration."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace

from train.config import TrainSettings
from train.distributed.device import Placement
from train.distributed.processes import Processes
from train.encoder.forward import cut
from train.encoder.glossary_files import meanings_of
from train.encoder.reading import Tokens
from train.factory import named_glossary
from train.factory.unloaded import UnloadedModel
from train.objectives import Batch, Objective
from train.recipes.texts import some_steps
from train.training.memory import Model, Shape, StepMemory, Way, predict
from train.training.regularization import compared_requests

_RANK = 16  # of the adapters that are proposed
_NUM_PROCESSES = (2, 4, 8, 16)  # that are proposed
_BYTES_A_VALUE = 100  # of activations, for the rough guess: kept of a token by a block, by the model's width
_BYTES_A_PARAMETER = 20  # likewise: weight, gradient, two moments, and some


class Forecast:
    """Predicts what a step of a run needs, computed as the settings say or in another way.

    Args:
        objective: whose first epoch is looked at.

    Attributes:
        way: how the settings have a step computed.
        largest_step: the micro-steps of the step with the longest texts, of some.

    Raises:
        UserError: if the model is not there.
    """

    def __init__(
        self, settings: TrainSettings, objective: Objective, placement: Placement, processes: Processes
    ) -> None:
        self._settings = settings
        self._objective = objective
        glossary = named_glossary(settings.model)
        form, senses = settings.model.glossary_form, settings.model.glossary_senses
        meanings = None if glossary is None else meanings_of(glossary, form=form, num_senses=senses)
        self._unloaded = UnloadedModel(settings.model, meanings)
        self.model = Model(self._unloaded.config, trust_remote_code=settings.model.trust_remote_code)
        self.way = _way(settings, placement, processes)
        self._tokens_per_forward = settings.model.tokens_per_forward or placement.tokens_per_forward
        self._num_module_parameters = sum(p.numel() for p in objective.modules.parameters())
        drawn = some_steps(objective, settings.trainer.accumulation)
        self.largest_step = max(drawn, key=lambda step: sum(map(_num_letters, step)))
        self._lengths: list[list[int]] | None = None  # of the texts of each micro-step, in tokens

    def rough_guess(self) -> int:
        """Bytes that a step hardly exceeds, at no cost."""
        num_tokens = max(map(_num_letters, self.largest_step)) // 2  # padding included
        activations = num_tokens * self.model.num_blocks * self.model.width * _BYTES_A_VALUE
        num_parameters = self.model.num_parameters + self._num_module_parameters
        return activations + num_parameters * _BYTES_A_PARAMETER

    def step(self, way: Way | None = None, tokens_per_forward: int | None = None) -> StepMemory:
        """What the largest step needs.

        Args:
            way: how it is computed; by default as the settings say.
            tokens_per_forward: likewise.
        """
        way, limit = way or self.way, tokens_per_forward or self._tokens_per_forward
        if self._lengths is None:
            self._lengths = [self._unloaded.lengths(batch.requests) for batch in self.largest_step]
        return predict(
            self.model,
            [forward_shapes(lengths, limit, way.num_processes) for lengths in self._lengths],
            way,
            num_module_parameters=self._num_module_parameters,
            others=self._others(way),
        )

    def what_would_fit(self, free: float) -> list[tuple[str, StepMemory]]:
        """Options with which a step would fit into so many bytes, each with what it would then need."""
        limit = min(self._tokens_per_forward, 512 if self.way.on_cpu else 2048)
        lean, options = replace(self.way, caching=True), "trainer.gradient_caching=true"
        ways = [(options, self.step(lean))]
        if self.model.can_checkpoint:
            lean = replace(lean, checkpointing=True)
            options += " trainer.activation_checkpointing=true"
            ways.append((options, self.step(lean)))
        small = f"{options} model.tokens_per_forward={limit}"
        ways.append((small, self.step(lean, limit)))
        if self._takes_adapters:
            adapters = replace(lean, trained="adapters", lora_rank=_RANK)
            options = f"{small} retain.lora.rank={_RANK} trainer.learning_rate=2e-4"
            ways.append((options, self.step(adapters, limit)))
        if not self.way.on_cpu and self.way.trained in ("all", "adapters"):
            ways.append(self._sharded(small, replace(lean, sharded=True), limit, free))
            offloaded = replace(lean, sharded=True, offloaded=True)
            name, needed = self._sharded(small, offloaded, limit, free)
            ways.append((f"{name}, with fsdp_offload_params: true", needed))
        return [(name, needed) for name, needed in ways if needed.total <= free]

    def _sharded(self, options: str, way: Way, limit: int, free: float) -> tuple[str, StepMemory]:
        """Weights sharded over as few processes as are enough, or the most that are proposed."""
        for count in _NUM_PROCESSES:
            needed = self.step(replace(way, num_processes=count), limit)
            if needed.total <= free:
                break
        return f"{options} and weights sharded over {count} GPUs (docs/cluster.md)", needed

    @property
    def _takes_adapters(self) -> bool:
        settings = self._settings
        is_free = settings.model.idiom_tokens is None and settings.retain.interpolation == 1.0
        return is_free and self.way.trained == "all" and importlib.util.find_spec("peft") is not None

    def _others(self, way: Way) -> int:
        """What the remedies against forgetting keep: the teacher's embeddings, the base model's weights."""
        retain, kept = self._settings.retain, 0
        if retain.distillation and retain.teacher_texts == "plain":
            requests = compared_requests(self._objective, self._settings.trainer, "plain")
            kept += len(set(requests)) * self.model.width * 4
        if retain.interpolation != 1.0 and way.on_cpu:  # in main memory
            kept += self.model.num_parameters * 4
        return kept


def _num_letters(batch: Batch) -> int:
    """Of its distinct texts."""
    return sum(map(len, {request.text for request in batch.requests}))


def forward_shapes(lengths: Sequence[int], tokens_per_forward: int, num_processes: int = 1) -> list[Shape]:
    """The forward batches of distinct texts with so many tokens each, the longest first."""
    tokens = {str(number): Tokens([0] * length, []) for number, length in enumerate(lengths)}
    chunks = cut(list(tokens), tokens, tokens_per_forward, num_processes)
    return [Shape(len(chunk), len(tokens[chunk[0]].input_ids)) for chunk in chunks]


def _way(settings: TrainSettings, placement: Placement, processes: Processes) -> Way:
    trainer, lora, sharding = settings.trainer, settings.retain.lora, processes.sharding
    way = Way(
        on_cpu=placement.device == "cpu",
        dtype=placement.autocast_dtype,
        lora_rank=lora.rank or _RANK,
        lora_dropout=lora.dropout,
        lora_targets=None if lora.target_modules is None else tuple(lora.target_modules),
        bytes_masks=trainer.dropout_masks == "bytes",
        caching=trainer.gradient_caching,
        checkpointing=trainer.activation_checkpointing,
        num_processes=processes.count,
    )
    if trainer.freeze_encoder:
        return replace(way, trained="nothing")
    if trainer.only_idiom_tokens:
        return replace(way, trained="tokens")
    if sharding is not None:
        gathered = not sharding.reshard_after_forward
        way = replace(way, sharded=True, gathered=gathered, offloaded=sharding.offload)
    return way if lora.rank is None else replace(way, trained="adapters")
