"""sentence-transformers' own way: its trainer with `MultipleNegativesRankingLoss`, and `encode`.

The library trains by its defaults in all that decides speed (how texts are collated, padded and merged into
forward passes); what decides the result is made the same as ours: the batches and their order, optimizer,
schedule, clipping, precision. It has no scorecard like ours: it embeds the same texts.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor
from torch.utils.data import SequentialSampler
from transformers import TrainerCallback

from bench.measure import Measured, Steps, Time
from bench.workload import (
    MODES,
    Texts,
    Workload,
    batches,
    optimizer_and_schedule,
    splits,
    temperature,
    without_dropout,
)
from idiomtune.data.idiolink import document_request, query_request
from idiomtune.encoder.loading import resolve_model_path
from idiomtune.encoder.reading import Prompts


class _LoggedLoss(MultipleNegativesRankingLoss):
    """Keeps each step's loss, unrounded."""

    def __init__(self, model: SentenceTransformer, scale: float) -> None:
        super().__init__(model, scale=scale)
        self.losses: list[float] = []

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        loss: Tensor = super().forward(sentence_features, labels)
        self.losses.append(loss.item())
        return loss


class _StepEnds(TrainerCallback):  # type: ignore[misc]
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._steps.ended()


def _in_order(sizes: Sequence[int]) -> type[DefaultBatchSampler]:
    """Batches of these sizes, in the order of the rows."""

    class InOrder(DefaultBatchSampler):
        def __init__(self, dataset: Dataset, batch_size: int, drop_last: bool, **options: Any) -> None:
            super().__init__(SequentialSampler(dataset), batch_size, drop_last, **options)

        def __iter__(self) -> Iterator[list[int]]:
            rows = iter(range(sum(sizes)))
            return (list(itertools.islice(rows, size)) for size in sizes)

        def __len__(self) -> int:
            return len(sizes)

    return InOrder


def run(workload: Workload) -> Measured:
    """Train, or embed the texts of the task."""
    settings = workload.settings()
    model = SentenceTransformer(resolve_model_path(settings.model.path), device=workload.device)
    if not workload.is_training:
        start = Time.now()
        model.encode(_texts_of(workload), batch_size=32, show_progress_bar=False)
        return Measured([Time.now() - start])
    steps = batches(workload)
    if not workload.dropout:
        without_dropout(model)
    loss, clock = _LoggedLoss(model, scale=1 / temperature(settings)), Steps()
    assert settings.trainer.clip_norm is not None
    with tempfile.TemporaryDirectory() as folder:
        trainer = SentenceTransformerTrainer(
            model=model,
            args=arguments(
                folder,
                max_steps=len(steps),
                per_device_train_batch_size=workload.batch_size,
                batch_sampler=_in_order([len(step) for step in steps]),
                max_grad_norm=settings.trainer.clip_norm,
                bf16=workload.precision == "bf16",
                use_cpu=workload.device == "cpu",
                seed=settings.seed,
                logging_strategy="no",
            ),
            train_dataset=_dataset([texts for step in steps for texts in step]),
            loss=loss,
            optimizers=optimizer_and_schedule(model, settings),
            callbacks=[_StepEnds(clock)],
        )
        trainer.train()
    return Measured(clock.times, loss.losses)


def arguments(folder: str, **options: Any) -> SentenceTransformerTrainingArguments:
    """The trainer's, without what it writes and shows."""
    options |= {"save_strategy": "no", "report_to": [], "disable_tqdm": True}
    options |= {"dataloader_pin_memory": False}  # there is no device to copy to
    return SentenceTransformerTrainingArguments(output_dir=folder, **options)


def _texts_of(workload: Workload) -> list[str]:
    """What the scorecard embeds: each different text once."""
    _, val = splits(workload.settings())
    requests = [document_request(document) for document in val.documents]
    requests += [query_request(query, mode) for mode in MODES for query in val.queries]
    return list(dict.fromkeys(Prompts().render(request)[0] for request in requests))


def _dataset(tuples: list[Texts]) -> Dataset:
    """Columns anchor, positive and a negative each."""
    columns = [[t.query for t in tuples], [t.positive for t in tuples]]
    columns += [list(column) for column in zip(*(t.negatives for t in tuples), strict=True)]
    names = ["anchor", "positive", *(f"negative_{i + 1}" for i in range(len(columns) - 2))]
    return Dataset.from_dict(dict(zip(names, columns, strict=True)))
