"""Checks of users' objectives, benchmarks and data sets, to be called by a test.

Each function runs its checks on random embeddings and a tiny random model, without network, and returns the
names of those that passed. If some fail, one AssertionError lists them all, with what is wrong and what to
do. docs/adding-an-objective.md explains them.
"""

from __future__ import annotations

import atexit
import inspect
import math
import shutil
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from accelerate.utils import set_seed
from safetensors.torch import load, save
from torch import Tensor

from idiomtune.api import evaluation_options, run_alone, training_options
from idiomtune.benchmarks import Benchmark, Embed, build_benchmarks, requests_of
from idiomtune.benchmarks.suite import Suite
from idiomtune.cli import read_settings
from idiomtune.declarations.benchmark import BenchmarkOptions
from idiomtune.declarations.dataset import DatasetType
from idiomtune.declarations.objective import ObjectiveOptions
from idiomtune.declarations.registry import benchmark_type, score_declaration
from idiomtune.declarations.score import Score
from idiomtune.encoder.device import choose_device, start_processes
from idiomtune.encoder.encoder import Encoder
from idiomtune.errors import UserError
from idiomtune.io.hub import first_line
from idiomtune.objectives import Batch, Objective, ObjectiveLoss
from idiomtune.objectives.steps import repeat, repeated_anchors
from idiomtune.requests import Request
from idiomtune.statistics import statistic_of
from idiomtune.training.embedder import TrainableEmbedder, seed_everything
from idiomtune.training.objective import build_objective

_WIDTH = 32  # of embeddings
_NUM_BATCHES = 6  # of an epoch, evenly spread, that are looked at, and the last
_NUM_MODELS = 8  # random ones, for what chance gives
_TAKEN = {"step", "epoch", "loss", "lr", "grad_norm", "texts_per_second", "empty_steps"}  # in the loop's log


@run_alone
def check_objective(
    objective: ObjectiveOptions | str | Callable[[int], Objective],
    *overrides: str,
    data: Any = "sample",
    skip: Collection[str] = (),
    **options: Any,
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
    chosen = {"device": "cpu", "model": _tiny_model(), **declared, **options}
    settings = read_settings("train", *training_options(experiment, overrides, data, chosen))
    return _run(_ObjectiveChecks(lambda n: build_objective(settings.model_copy(update={"seed": n}))), skip)


@run_alone
def check_benchmark(
    benchmark: BenchmarkOptions | str | Benchmark,
    *overrides: str,
    perfect: Callable[[Request], Sequence[float]] | None = None,
    chance: Mapping[str, float] | None = None,
    reordered: Benchmark | None = None,
    skip: Collection[str] = (),
    **options: Any,
) -> list[str]:
    """Check a benchmark.

    >>> check_benchmark(RewordingOptions(name="rewording", split=["val"]), "+data.rewording=rewordings")

    Args:
        benchmark: its options, its name, or the benchmark itself.
        overrides, options: as of :func:`idiomtune.evaluate`.
        perfect: the embedding of a request by a model that makes no mistake.
        chance: metric → the mean score of random embeddings.
        reordered: the same benchmark, its data in another order.
        skip: names of checks that do not apply.

    Returns:
        As :func:`check_objective`, which says what is raised.
    """
    if isinstance(benchmark, BenchmarkOptions | str):
        chosen = {"device": "cpu", "data": "sample", **options}
        evaluation = evaluation_options(_tiny_model(), [benchmark], overrides, chosen)
        settings = read_settings("evaluate", *evaluation)
        name = benchmark if isinstance(benchmark, str) else benchmark.name
        (benchmark,), _ = build_benchmarks(settings, [name])
    functions = {"perfect": perfect, "chance": chance, "order": reordered}
    skip = {*skip, *(name for name, value in functions.items() if value is None)}
    return _run(_BenchmarkChecks(benchmark, functions), skip)


@run_alone
def check_dataset(
    dataset: DatasetType,
    read: Callable[[str], Iterable[Any]],
    splits: Sequence[str],
    *,
    requests: Callable[[Any], Iterable[Request]],
    id: Callable[[Any], Hashable] = lambda record: record.id,
    group: Callable[[Any], Hashable] | None = None,
    skip: Collection[str] = (),
) -> list[str]:
    """Check a data set.

    >>> check_dataset(DECLARED[0], read, ["train", "val"], requests=lambda row: [Request(row.sentence)])

    Args:
        read: a split → its records.
        requests: the texts of a record, with their spans.
        id: of a record.
        group: of a record, what no two splits may share, such as its idiom.
        skip: names of checks that do not apply.

    Returns:
        As :func:`check_objective`, which says what is raised.
    """
    skip = {*skip, *(["splits"] if group is None else [])}
    return _run(_DatasetChecks(dataset, read, splits, requests, id, group or id), skip)


def _run(checks: object, skip: Collection[str]) -> list[str]:
    """Run the public methods of an object: what one returns is wrong, and its docstring says why."""
    checked = {n: m for n, m in vars(type(checks)).items() if inspect.isfunction(m) and not n.startswith("_")}
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
            failed.append(f"\n  {name}: {_describe(checked[name])}{shown}")
    if failed:
        raise AssertionError(f"{len(failed)} of {len(names)} checks failed{''.join(failed)}") from cause
    return names


# ------------------------------------------------------------------ what the checks share


@cache
def _tiny_model() -> str:
    """The folder of a BERT with random weights that reads bytes, and so any text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tempfile.mkdtemp(prefix="idiomtune-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    alphabet = [*special.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer: Any = Tokenizer(models.BPE({token: n for n, token in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, ends)
    options: Any = {"tokenizer_object": tokenizer, "model_max_length": 512, **special}
    PreTrainedTokenizerFast(**options).save_pretrained(folder)
    sizes: Any = {"hidden_size": _WIDTH, "intermediate_size": _WIDTH, "num_hidden_layers": 1}
    set_seed(0)
    BertModel(BertConfig(vocab_size=len(alphabet), num_attention_heads=2, **sizes)).save_pretrained(folder)
    return folder


def _encoder(**options: Any) -> Encoder:
    return Encoder.from_pretrained(_tiny_model(), device="cpu", **options)


def _rows(requests: Sequence[Request], model: int = 0) -> Tensor:
    """(R, D) of a random model: each is a function of its request and of the model's number."""
    seeds = [zlib.crc32(f"{model} {request!r}".encode()) for request in requests]
    rows = [np.random.default_rng(seed).standard_normal(_WIDTH) for seed in seeds]
    return torch.tensor(np.array(rows).reshape(-1, _WIDTH)).float()


def _equal(requests: Sequence[Request]) -> Tensor:
    return torch.ones(len(requests), _WIDTH)


def _is_wrong(request: Request) -> bool:
    """Whether it has no text, or a span that is not in it, or lacks the span that it needs."""
    start, end = request.span or (0, len(request.text))
    is_inside = 0 <= start < end <= len(request.text) and request.text[start:end].strip()
    return not is_inside or (request.pooling == "span" and request.span is None)


def _describe(check: Callable[..., object]) -> str:
    """A check's docstring, in one line."""
    return " ".join((inspect.getdoc(check) or "").split())


def _directional_derivatives(
    loss: Callable[[Tensor], Tensor], rows: Tensor, gradient: Tensor, directions: Iterable[Tensor]
) -> tuple[Tensor, Tensor]:
    """(W,) each: by how much a loss of rows grows along small ways, by differences and by its gradient."""
    steps = [direction.to(rows) for direction in directions]
    differences = [(loss(rows + step) - loss(rows - step)).item() / 2 for step in steps]
    expected = [(gradient * step).sum().item() for step in steps]
    return torch.tensor(differences, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64)


_near = partial(math.isclose, rel_tol=1e-3, abs_tol=1e-4)  # two scores, which have units


# ------------------------------------------------------------------ objectives


class _ObjectiveChecks:
    def __init__(self, build: Callable[[int], Objective]) -> None:
        self._build = build
        self._objective = objective = self._new(1)
        steps = [list(chain(*step)) for step in objective.epoch_steps(0, 1)]
        self._anchors = [*steps[:-1][:: -(-len(steps) // _NUM_BATCHES)], steps[-1]]
        self._batches = [objective.batch(0, anchors) for anchors in self._anchors]
        self._single = [objective.batch(0, anchors[:1]) for anchors in self._anchors]
        self._trained = {n: p for n, p in objective.modules.named_parameters() if p.requires_grad}
        self._size = max(abs(self._loss(batch).loss.item()) for batch in self._batches)  # which has no unit

    def _new(self, seed: int) -> Objective:
        objective = self._build(seed)
        objective.modules.eval()
        return objective

    def _loss(
        self, batch: Batch, rows: Tensor | None = None, objective: Objective | None = None
    ) -> ObjectiveLoss:
        seed_everything(0)  # as the loop does, for what modules draw
        return (objective or self._objective).loss(_rows(batch.requests) if rows is None else rows, batch)

    def _is_same(self, value: float, expected: float) -> bool:
        return math.isclose(value, expected, rel_tol=1e-3, abs_tol=1e-4 * self._size)

    def _gradients(self, batch: Batch, rows: Tensor | None = None) -> tuple[ObjectiveLoss, list[Tensor]]:
        """The loss, and its gradients with respect to the embeddings and what is trained with them."""
        leaf = (_rows(batch.requests) if rows is None else rows).requires_grad_()
        result, inputs = self._loss(batch, leaf), [leaf, *self._trained.values()]
        grads = torch.autograd.grad(result.loss, inputs, allow_unused=True)
        return result, [torch.zeros_like(i) if g is None else g for i, g in zip(inputs, grads, strict=True)]

    def _is_finite(self, batch: Batch, rows: Tensor | None = None) -> bool:
        result, gradients = self._gradients(batch, rows)
        return all(bool(value.isfinite().all()) for value in (result.loss, *gradients))

    def steps(self) -> object:
        """A step has an empty part, or other anchors, if it is cut into three, or epochs have unequal numbers
        of steps: draw equally many in each epoch, then cut them, as idiomtune.objectives.steps.in_shards."""
        whole, resumed = (self._objective.epoch_steps(0, shards) for shards in (1, 3))
        anchors, of_parts = ([sorted(chain(*step)) for step in steps] for steps in (whole, resumed))
        lengths = {len(self._objective.epoch_steps(epoch, 1)) for epoch in range(4)}
        return anchors != of_parts or not all(map(all, resumed)) or (len(lengths) > 1 and lengths)

    def once(self) -> object:
        """An anchor comes twice in an epoch: draw a permutation, or set repeats_anchors = True."""
        return repeated_anchors(self._objective, self._objective.epoch_steps(0, 1))

    def shuffling(self) -> object:
        """Two seeds, or two epochs, have the same steps: draw with both. (If this is meant, skip it.)"""
        first, other = self._objective.epoch_steps(0, 1), self._new(2)
        return first in (other.epoch_steps(0, 1), self._objective.epoch_steps(1, 1))

    def resume(self) -> object:
        """In another process, or after resuming, an epoch is another: draw with
        np.random.default_rng([seed, epoch]), and keep nothing from earlier batches but in modules."""
        seen = []
        for past, epochs in ((0, (0, 1, 2)), (1, (2, 1, 0))):
            set_seed(past)  # other random numbers were drawn before
            objective = self._new(1)
            objective.modules.load_state_dict(load(save(self._objective.modules.state_dict())))
            seen.append({epoch: self._drawn(objective, epoch) for epoch in epochs})
        pairs = [(seen[0][epoch], seen[1][epoch]) for epoch in seen[0]]
        return sorted({name for whole, resumed in pairs for name in whole if whole[name] != resumed[name]})

    def _drawn(self, objective: Objective, epoch: int) -> dict[str, Any]:
        steps = objective.epoch_steps(epoch, 1)
        batch = objective.batch(epoch, steps[-1][0])
        loss = self._loss(batch, objective=objective).loss.item()
        return {"steps": steps, "anchors": batch.anchors, "texts": batch.requests, "loss": loss}

    def requests(self) -> object:
        """A text is empty, or a span is missing or not in its text: find it in the text as it is read."""
        return [r for batch in self._batches for r in batch.requests if _is_wrong(r)]

    def plain(self) -> object:
        """unmarked_rows must be numbers of requests that unmarked_requests lists."""
        rows = [batch.requests[row] for batch in self._batches for row in batch.unmarked_rows]
        return list({*rows} - {*self._objective.unmarked_requests})

    def loss(self) -> object:
        """The loss must be a finite scalar, the mean over the anchors, with a graph and a finite gradient."""
        losses = [self._loss(b, _rows(b.requests).requires_grad_()).loss for b in self._batches]
        wrong = [str(loss) for loss in losses if loss.ndim or not loss.requires_grad]
        return wrong[:1] or not all(map(self._is_finite, self._batches))

    def gradient(self) -> object:
        """The gradient is not that of finite differences: a part is detached, or computed without a graph.
        (If this is meant, skip it.) It differs most for this text:"""
        # The longer step is for losses that compute in float32.
        precisions = ((1e-6, 1e-4, torch.float64), (1e-3, 0.03, torch.float32))[bool(self._trained) :]
        for batch in (batch for batch in self._batches if batch.requests):
            signs = np.random.default_rng(0).choice([-1.0, 1.0], (3, len(batch.requests), _WIDTH))
            axes = torch.tensor(signs)
            if all(max(self._errors(batch, axes, step, kind)) > most for step, most, kind in precisions):
                by_row = axes[0] * torch.eye(len(batch.requests))[:, :, None]
                return batch.requests[int(np.argmax(self._errors(batch, by_row, 1e-3, torch.float32)))].text
        return None

    def _errors(self, batch: Batch, axes: Tensor, step: float, dtype: torch.dtype) -> list[float]:
        """Of the derivative in each direction, as a share of the gradient."""
        rows = _rows(batch.requests).to(dtype)
        gradient = self._gradients(batch, rows.clone())[1][0]
        changes, expected = _directional_derivatives(
            lambda at: self._loss(batch, at).loss, rows, gradient, step * axes
        )
        size = max(gradient.double().norm().item(), 1e-3 * self._size)
        errors: list[float] = ((changes - expected).abs() / (step * size or 1.0)).tolist()
        return errors

    def order(self) -> object:
        """The same anchors in reverse order have another loss: labels and rows must follow the anchors."""
        turned = [self._objective.batch(0, anchors[::-1]) for anchors in self._anchors]
        pairs = [tuple(self._loss(b).loss.item() for b in p) for p in zip(self._batches, turned, strict=True)]
        return [pair for pair in pairs if not self._is_same(*pair)]

    def tiny(self) -> object:
        """A batch of one anchor has no finite loss and gradient: with nothing to compare, give zero with a
        graph, as embeddings.sum() * 0."""
        return not all(map(self._is_finite, self._single))

    def collapse(self) -> object:
        """Equal embeddings have no finite loss and gradient: keep roots, logarithms and norms off zero."""
        return not all(self._is_finite(batch, _equal(batch.requests)) for batch in self._batches)

    def empty(self) -> object:
        """A batch must say that it is empty (ObjectiveLoss.is_empty), if and only if it has no gradient."""
        for batch in (*self._batches, *self._single):
            result, gradients = self._gradients(batch)
            has_gradient = any(bool(gradient.any()) for gradient in gradients)
            if has_gradient == result.is_empty or (has_gradient and batch.empty_because):
                return f"{'a' if has_gradient else 'no'} gradient of {len(batch.requests)} texts"
        return None

    def logs(self) -> object:
        """Every batch must log the same names, none of them the loop's own, with finite values; a mean over
        nothing is Mean(0.0, 0)."""
        names: dict[str | None, set[str]] = {}
        for result in map(self._loss, self._batches):
            logged = {**result.counts, **{name: mean.value for name, mean in result.means.items()}}
            wrong = {name for name, value in logged.items() if name in _TAKEN or not math.isfinite(value)}
            if wrong := wrong | (names.setdefault(result.part, {*logged}) ^ {*logged}):
                return sorted(wrong)
        return None

    def unused(self) -> object:
        """No batch gives these weights a gradient: use them, or freeze them with requires_grad_(False)."""
        for batch in self._batches:
            torch.autograd.backward(self._loss(batch, _rows(batch.requests).requires_grad_()).loss)
        return [name for name, p in self._trained.items() if p.grad is None]

    def processes(self) -> object:
        """Texts that are embedded one by one, as by several processes, have another loss or gradient: the
        loss must not change embeddings in place."""
        results = []
        for tokens, is_parted in ((2**20, False), (1, True)):
            encoder, running = (
                _encoder(tokens_per_forward=tokens),
                start_processes(choose_device("cpu", "fp32")),
            )
            embedded = TrainableEmbedder(encoder, *running, 0, is_parted)(self._batches[0].requests, 0)
            loss = self._loss(self._batches[0], embedded.rows).loss
            embedded.backward(loss)
            parts = [p.grad.flatten() for p in encoder.parameters() if p.grad is not None]
            results.append((loss.item(), torch.cat([torch.zeros(1), *parts])))
        (value, gradient), (other_value, other) = results
        off = (gradient.double() - other.double()).norm()  # squares of small numbers are 0 in float32
        is_same = self._is_same(value, other_value) and bool(off <= 1e-2 * gradient.double().norm())
        return not is_same and (value, other_value)


# ------------------------------------------------------------------ benchmarks


class _BenchmarkChecks:
    def __init__(self, benchmark: Benchmark, functions: Mapping[str, Any]) -> None:
        self._benchmark, self._functions = benchmark, functions
        self._parts: dict[str, Score] = {}
        self._random = defaultdict(list)  # score → its values for random models
        for number in range(_NUM_MODELS):
            for key, value in self._scores(partial(_rows, model=number)).items():
                self._random[key].append(value)

    def _scores(self, embed: Embed, benchmark: Benchmark | None = None) -> dict[str, float]:
        table = score_declaration((benchmark or self._benchmark).score(embed).scores)
        self._parts |= table.parts
        return {key: float(value) for key, value in table.items() if math.isfinite(value)}

    def _differ(self, embed: Embed, other: Embed, benchmark: Benchmark | None = None) -> list[Any]:
        """The first score that is another for the other model."""
        values, others = self._scores(embed), self._scores(other, benchmark)
        pairs = [(key, value, others.get(key, math.nan)) for key, value in values.items()]
        return [pair for pair in pairs if not _near(*pair[1:])]

    def suite(self) -> object:
        """A model has no score, or one that is not finite: leave a score without a value out, with a note."""
        card = Suite([self._benchmark]).run(_encoder())
        return sorted(card.undefined) or not (card.scores or self._benchmark.without_gold)

    def broken(self) -> object:
        """A model whose embeddings are NaN has scores: do not catch the errors of embed."""
        encoder = _encoder()
        encoder.load_state_dict({name: weight * math.nan for name, weight in encoder.state_dict().items()})
        with suppress(UserError):
            return Suite([self._benchmark]).run(encoder).scores
        return None

    def keys(self) -> object:
        """Scores must be of this benchmark, one of a declared metric, and the same for every model."""
        name, metrics = self._benchmark.name, {m.name for m in benchmark_type(self._benchmark.name).metrics}
        wrong = [key for key, score in self._parts.items() if score.benchmark != name or not score.metric]
        is_declared = not metrics or metrics & {score.metric for score in self._parts.values()}
        incomplete = [key for key, values in self._random.items() if len(values) < _NUM_MODELS]
        return wrong or incomplete or (not is_declared and metrics)

    def repeated(self) -> object:
        """A score is another if the same texts are scored again: draw with a seed of your own, and let last
        digits of embeddings decide nothing, since they depend on the forward batch."""
        set_seed(2)
        return self._differ(_rows, lambda texts: _rows(texts) * (1 + 1e-7 * _rows(texts, 1)))

    def untouched(self) -> object:
        """Embeddings are changed in place, and other benchmarks share them: change a copy."""
        rows_of: dict[tuple[Request, ...], Tensor] = {}
        self._scores(lambda requests: rows_of.setdefault(tuple(requests), _rows(requests)))
        return not all(torch.equal(_rows(requests), rows) for requests, rows in rows_of.items())

    def requests(self) -> object:
        """A text is empty, or a span is missing or not in its text: find it in the text as it is read."""
        return [request for request in requests_of(self._benchmark) if _is_wrong(request)]

    def records(self) -> object:
        """A score is not what its records by query say, or two of them have one id: comparisons use these."""
        result, of_type = self._benchmark.score(_rows), benchmark_type(self._benchmark.name)
        by_key = defaultdict(list)
        for record in chain.from_iterable(map(of_type.results, result.per_query)):
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
        for key, value in self._scores(_equal).items():
            values = self._random.get(key, [value])
            bound = min(float(np.mean(values) + 5 * np.std(values)), max(1.0, *values) - 1e-9)
            if self._parts[key].better == "higher" and value > bound and max(values) > min(values):
                return f"{key}: {value:.3g}, by chance {np.mean(values):.3g}"
        return None

    def order(self) -> object:
        """A score is another with the data in another order: order ties by a hash of the id, not by their
        place in the file."""
        reordered = self._functions["order"]
        return self._differ(_rows, _rows, reordered) or self._differ(_equal, _equal, reordered)

    def perfect(self) -> object:
        """The perfect model has less than 1, or is worse than chance by what Metric(better=) says: which item
        is counted as wrong?"""
        vector = self._functions["perfect"]
        for key, value in self._scores(lambda texts: torch.tensor([*map(vector, texts)]).float()).items():
            score, mean = self._parts[key], float(np.mean(self._random[key]))
            is_best = (_near(value, 1.0) and value > mean) if score.better == "higher" else value < mean
            if score.is_headline and score.better and not is_best:
                return f"{key}, better={score.better!r}: {value:.6g}, by chance {mean:.3g}"
        return None

    def chance(self) -> object:
        """Random models do not score what chance gives: what tells them the answer?"""
        for key, values in self._random.items():
            mean, error = np.mean(values), np.std(values) / math.sqrt(_NUM_MODELS)
            if abs(mean - self._functions["chance"].get(self._parts[key].metric, mean)) > 4 * error + 0.01:
                return f"{key}: {mean:.3g}"
        return None


# ------------------------------------------------------------------ data sets


class _DatasetChecks:
    def __init__(self, dataset: DatasetType, read: Any, splits: Sequence[str], *of_record: Any) -> None:
        self._dataset, self._read = dataset, read
        self._requests, self._id, self._group = of_record
        self._records = {split: list(read(split)) for split in splits}

    def records(self) -> object:
        """A split has no record: refuse a file without any, with a UserError."""
        return [split for split, records in self._records.items() if not records]

    def ids(self) -> object:
        """Ids are not unique over all splits: refuse or tell apart such records where the data is read."""
        return repeat(map(self._id, chain(*self._records.values())))

    def texts(self) -> object:
        """A text is empty, or a span is missing or not in its text: find it in the text as it is read."""
        return [r for r in chain(*self._records.values()) if any(map(_is_wrong, self._requests(r)))]

    def splits(self) -> object:
        """Two splits share a group, so that a model has seen what scores it: tell them apart."""
        return repeat(chain(*({*map(self._group, records)} for records in self._records.values())))

    def reading(self) -> object:
        """A split is another when it is read again: keep the order of the file, and draw nothing."""
        set_seed(2)
        reread = {split: [*map(repr, self._read(split))] for split in self._records}
        return [split for split, records in self._records.items() if reread[split] != [*map(repr, records)]]

    def licence(self) -> object:
        """No licence is declared, DatasetType(licence=): a model's follows from it. (If unknown, skip it.)"""
        return self._dataset.licence is None and self._dataset.name
