"""Checks of users' objectives and benchmarks, to be called by a test.

Each function runs its checks on random embeddings, without network, and returns the names of those that
passed. If some fail, one AssertionError lists them all, with what is wrong and what to do.
docs/adding-an-objective.md explains them.
"""

from __future__ import annotations

import inspect
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from accelerate.utils import set_seed
from safetensors.torch import load, save
from torch import Tensor

from idiomtune.api import evaluation_options, run_alone, training_options
from idiomtune.benchmarks import Benchmark, Embed, build_benchmarks, requests_of
from idiomtune.cli import read_settings
from idiomtune.glossaries.build import empty_encoder
from idiomtune.io.hub import first_line
from idiomtune.objectives import Batch, Objective, ObjectiveLoss, StepLog
from idiomtune.objectives.batching import repeated_anchors
from idiomtune.plugins.benchmark import BenchmarkOptions
from idiomtune.plugins.objective import ObjectiveOptions
from idiomtune.plugins.registry import benchmark_type, score_declaration
from idiomtune.plugins.score import ScoreTable
from idiomtune.reports.statistics import statistic_of
from idiomtune.requests import EmbeddingRequest
from idiomtune.training.embedder import seed_everything
from idiomtune.training.objective import build_objective

_WIDTH = 32  # of embeddings


@run_alone
def check_objective(
    objective: ObjectiveOptions | str | Callable[[int], Objective],
    *overrides: str,
    data: object = "sample",
    skip: Collection[str] = (),
    **options: object,
) -> list[str]:
    """Check an objective.

    >>> check_objective(ContrastOptions(name="contrast", loss=...), trainer={"batch_size": 4})

    Args:
        objective: its options, or the name of an experiment; or a function of the seed that makes it, for
            embeddings of 32 numbers.
        overrides, data, options: as of :func:`idiomtune.train`.
        skip: names of checks that do not apply.

    Returns:
        The names of the checks that passed.

    Raises:
        AssertionError: naming each check that failed, and why.
        UserError: if the objective cannot be built.
        ValueError: if there is no check of a name in `skip`.
    """
    if callable(objective):
        return _run(_ObjectiveChecks(objective), skip)
    declared = {"objective": objective} if isinstance(objective, ObjectiveOptions) else {}
    experiment = None if declared else str(objective)
    chosen = {"device": "cpu", **declared, **options}
    settings = read_settings("train", *training_options(experiment, overrides, data, chosen))
    width = empty_encoder(settings.model).dimension
    checks = _ObjectiveChecks(lambda n: build_objective(settings.model_copy(update={"seed": n})), width)
    return _run(checks, skip)


@run_alone
def check_benchmark(
    benchmark: BenchmarkOptions | str | Benchmark,
    *overrides: str,
    skip: Collection[str] = (),
    **options: object,
) -> list[str]:
    """Check a benchmark.

    >>> check_benchmark(RewordingOptions(name="rewording", split=["val"]), "+data.rewording=rewordings")

    Args:
        benchmark: its options, its name, or the benchmark itself.
        overrides, options: as of :func:`idiomtune.evaluate`.
        skip: names of checks that do not apply.

    Returns:
        As :func:`check_objective`, which says what is raised.
    """
    if isinstance(benchmark, BenchmarkOptions | str):
        chosen = {"device": "cpu", "data": "sample", **options}
        settings = read_settings("evaluate", *evaluation_options("minilm", [benchmark], overrides, chosen))
        name = benchmark if isinstance(benchmark, str) else benchmark.name
        (benchmark,), _ = build_benchmarks(settings.benchmark, settings.inputs, [name])
    return _run(_BenchmarkChecks(benchmark), skip)


def _run(checks: object, skip: Collection[str]) -> list[str]:
    """Run the public methods of an object: what one returns is wrong, and its docstring says why."""
    checked = {n: m for n, m in vars(type(checks)).items() if not n.startswith("_")}
    if unknown := sorted({*skip} - checked.keys()):
        raise ValueError(f"skip: there is no check {', '.join(unknown)}; there are {', '.join(checked)}")
    failed, cause = [], None
    names = [name for name in checked if name not in skip]
    for name in names:
        try:
            problem = checked[name](checks)
        except Exception as error:
            cause, problem = error, f"stopped by {type(error).__name__}: {first_line(error)}"
        if problem:
            shown = "" if problem is True else f" {problem[:3] if isinstance(problem, list) else [problem]}"
            failed.append(f"\n  {name}: {' '.join((inspect.getdoc(checked[name]) or '').split())}{shown}")
    if failed:
        raise AssertionError(f"{len(failed)} of {len(names)} checks failed{''.join(failed)}") from cause
    return names


def _rows(requests: Sequence[EmbeddingRequest], model: int = 0, width: int = _WIDTH) -> Tensor:
    """(R, D) of a random model: each is a function of its request and of the model's number."""
    seeds = [zlib.crc32(f"{model} {request!r}".encode()) for request in requests]
    rows = [np.random.default_rng(seed).standard_normal(width) for seed in seeds]
    return torch.tensor(np.array(rows).reshape(-1, width)).float()


def _is_wrong(request: EmbeddingRequest) -> bool:
    """Whether it has no text, or a span that is not in it, or lacks the span that it needs."""
    start, end = request.span or (0, len(request.text))
    is_inside = 0 <= start < end <= len(request.text) and request.text[start:end].strip()
    return not is_inside or (request.pooling == "span" and request.span is None)


def _near(value: float, expected: float, size: float = 1.0) -> bool:
    return math.isclose(value, expected, rel_tol=1e-3, abs_tol=1e-4 * size)


# ------------------------------------------------------------------ objectives


class _ObjectiveChecks:
    def __init__(self, build: Callable[[int], Objective], width: int = _WIDTH) -> None:
        self._build, self._width = build, width
        self._objective = objective = self._new(1)
        steps = [list(chain(*step)) for step in objective.epoch_steps(0, 1)]
        self._anchors = [*steps[:-1][:: -(-len(steps) // 6)], steps[-1]]  # six of an epoch, and the last
        self._batches = [objective.batch(0, anchors) for anchors in self._anchors]
        self._single = [objective.batch(0, anchors[:1]) for anchors in self._anchors]
        self._trained = {n: p for n, p in objective.head.named_parameters() if p.requires_grad}
        self._size = max(abs(self._loss(batch).loss.item()) for batch in self._batches)  # which has no unit

    def _new(self, seed: int) -> Objective:
        objective = self._build(seed)
        objective.head.eval()
        return objective

    def _rows(self, batch: Batch) -> Tensor:
        return _rows(batch.requests, width=self._width)

    def _loss(self, batch: Batch, rows: Tensor | None = None, of: Objective | None = None) -> ObjectiveLoss:
        seed_everything(0)  # as the loop does, for what modules draw
        return (of or self._objective).loss(self._rows(batch) if rows is None else rows, batch)

    def _gradients(self, batch: Batch, rows: Tensor | None = None) -> tuple[ObjectiveLoss, list[Tensor]]:
        """The loss, and its gradients with respect to the embeddings and what is trained with them."""
        leaf = (self._rows(batch) if rows is None else rows).requires_grad_()
        result, inputs = self._loss(batch, leaf), [leaf, *self._trained.values()]
        grads = torch.autograd.grad(result.loss, inputs, allow_unused=True)
        return result, [torch.zeros_like(i) if g is None else g for i, g in zip(inputs, grads, strict=True)]

    def _is_finite(self, batch: Batch, rows: Tensor | None = None) -> bool:
        result, gradients = self._gradients(batch, rows)
        return all(bool(value.isfinite().all()) for value in (result.loss, *gradients))

    def steps(self) -> object:
        """A step has an empty part, or other anchors, if it is cut into three, epochs have unequal numbers of
        steps, or an anchor comes twice: draw a permutation (or set repeats_anchors = True), and cut its
        steps as idiomtune.objectives.batching.split_micro_steps does."""
        whole, parts, later = (self._objective.epoch_steps(*drawn) for drawn in ((0, 1), (0, 3), (1, 1)))
        anchors, of_parts = ([sorted(chain(*step)) for step in steps] for steps in (whole, parts))
        is_whole = anchors == of_parts and all(map(all, parts)) and len(whole) == len(later)
        return not is_whole or (not self._objective.repeats_anchors and repeated_anchors(whole))

    def shuffling(self) -> object:
        """Two seeds, or two epochs, have the same steps: draw with both. (If this is meant, skip it.)"""
        first, other = self._objective.epoch_steps(0, 1), self._new(2)
        return first in (other.epoch_steps(0, 1), self._objective.epoch_steps(1, 1))

    def resume(self) -> object:
        """In another process, or after resuming, an epoch is another: draw with
        np.random.default_rng([seed, epoch]), and keep nothing from earlier batches but in modules."""
        drawn: list[dict[int, Any]] = [{}, {}]
        for past, epochs in enumerate(((0, 1), (1, 0))):
            set_seed(past)  # other random numbers were drawn before
            objective = self._new(1)
            objective.head.load_state_dict(load(save(self._objective.head.state_dict())))
            for epoch in epochs:
                steps = objective.epoch_steps(epoch, 1)
                batch = objective.batch(epoch, steps[0][0])
                drawn[past][epoch] = steps, batch.requests, self._loss(batch, of=objective).loss.item()
        return drawn[0] != drawn[1]

    def requests(self) -> object:
        """A text is empty, or a span is missing or not in its text: find it in the text as it is read."""
        return [r for batch in self._batches for r in batch.requests if _is_wrong(r)]

    def loss(self) -> object:
        """The loss must be a finite scalar, the mean over the anchors, with a graph and a finite gradient;
        for one anchor, which has nothing to compare with, zero with a graph, as embeddings.sum() * 0."""
        results = [self._loss(b, self._rows(b).requires_grad_()) for b in self._batches]
        for result in results:
            StepLog().add(result)  # what it logs: counts, and a `Mean` each
        losses = [result.loss for result in results]
        wrong = [str(loss) for loss in losses if loss.ndim or not loss.requires_grad]
        return wrong[:1] or not all(map(self._is_finite, (*self._batches, *self._single)))

    def gradient(self) -> object:
        """The gradient is not that of finite differences: a part is detached, or computed without a graph.
        (If this is meant, skip it.) The batches begin with"""
        # The longer step is for losses that compute in float32.
        precisions = ((1e-6, 1e-4, torch.float64), (1e-3, 0.03, torch.float32))[bool(self._trained) :]
        return [
            batch.requests[0].text
            for batch in self._batches
            if batch.requests
            and all(self._error(batch, step, kind) > most for step, most, kind in precisions)
        ]

    def _error(self, batch: Batch, step: float, kind: torch.dtype) -> float:
        """Of the derivative in a random direction, as a share of the gradient."""
        rows = self._rows(batch).to(kind)
        way = torch.tensor(np.random.default_rng(0).choice([-step, step], rows.shape), dtype=kind)
        gradient = self._gradients(batch, rows.clone())[1][0]
        ahead, back = (self._loss(batch, rows + sign * way).loss.item() for sign in (1, -1))
        size = max(gradient.double().norm().item(), 1e-3 * self._size)
        return float(abs((ahead - back) / 2 - (gradient * way).sum().item()) / (step * size or 1.0))

    def order(self) -> object:
        """The same anchors in reverse order have another loss: labels and rows must follow the anchors."""
        turned = [self._objective.batch(0, anchors[::-1]) for anchors in self._anchors]
        pairs = [tuple(self._loss(b).loss.item() for b in p) for p in zip(self._batches, turned, strict=True)]
        return [pair for pair in pairs if not _near(pair[0], pair[1], self._size)]

    def empty(self) -> object:
        """A batch must say that it is empty (ObjectiveLoss.is_empty), if and only if it has no gradient."""
        for batch in (*self._batches, *self._single):
            result, gradients = self._gradients(batch)
            if result.is_empty == any(bool(gradient.any()) for gradient in gradients):
                return f"{len(batch.requests)} texts, is_empty={result.is_empty}"
        return None


# ------------------------------------------------------------------ benchmarks


class _BenchmarkChecks:
    def __init__(self, benchmark: Benchmark) -> None:
        self._benchmark = benchmark

    def _scores(self, embed: Embed = _rows) -> ScoreTable:
        return score_declaration(self._benchmark.score(embed).scores)

    def repeated(self) -> object:
        """There is no score, or it is another if the same texts are scored again: draw with a seed of your
        own, and let last digits of embeddings decide nothing, since they depend on the forward batch."""
        values = self._scores()
        again = self._scores(lambda requests: _rows(requests) * (1 + 1e-7 * _rows(requests, 1)))
        other = [key for key, value in values.items() if not _near(value, again.get(key, math.nan))]
        return other or not values

    def untouched(self) -> object:
        """Embeddings are changed in place, and other benchmarks share them: change a copy."""
        rows_of: dict[tuple[EmbeddingRequest, ...], Tensor] = {}
        self._scores(lambda requests: rows_of.setdefault(tuple(requests), _rows(requests)))
        return not all(torch.equal(_rows(requests), rows) for requests, rows in rows_of.items())

    def requests(self) -> object:
        """A text is empty, or a span is missing or not in its text: find it in the text as it is read."""
        return [request for request in requests_of(self._benchmark) if _is_wrong(request)]

    def records(self) -> object:
        """A score is not what its records by query say, or two of them have one id: comparisons use these."""
        result, by_key = self._benchmark.score(_rows), defaultdict(list)
        for record in chain.from_iterable(
            map(benchmark_type(self._benchmark.name).results, result.per_query)
        ):
            by_key[record.key].append(record)
        for key, of_key in by_key.items():
            pairs = np.array([record.pair or (record.value, 0.0) for record in of_key], dtype=float)
            value = statistic_of(of_key[0].statistic if of_key[0].pair else "mean", *pairs.T)
            ids = {record.query for record in of_key}
            if len(ids) < len(of_key) or not _near(result.by_key.get(key, value), value):
                return f"{key}: {result.by_key.get(key)}, by {len(of_key)} records of {len(ids)} ids {value}"
        return None

    def ties(self) -> object:
        """A model that gives all texts the same embedding beats chance: count ties as wrong, or order them
        by a hash of the id."""
        equal = self._scores(lambda requests: torch.ones(len(requests), _WIDTH))
        random = [self._scores(partial(_rows, model=number)) for number in range(8)]
        for key, value in equal.items():
            values = [scores.get(key, value) for scores in random]
            bound = min(float(np.mean(values) + 5 * np.std(values)), max(1.0, *values) - 1e-9)
            if equal.parts[key].better == "higher" and value > bound and max(values) > min(values):
                return f"{key}: {value:.3g}, by chance {np.mean(values):.3g}"
        return None
