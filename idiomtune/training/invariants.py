"""What must hold in every training, checked while it runs: mistakes in code that no score or loss shows.

In the first steps, and then seldom, a step is compared with what its own definition says: the gradient with
differences of embeddings, the optimizer's update with AdamW's formula, the batch's rows with texts that are
embedded alone. What fails is named, with what it may mean; `trainer.invariants` switches each check off.

References:
    Invariants find most silent errors within a step, monitors of loss and gradient few: Jiang et al. 2025,
    TrainCheck (OSDI, arXiv 2506.14813).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from idiomtune.encoder.parallel import embed_all
from idiomtune.encoder.sharding import is_sharded, local_shard
from idiomtune.errors import UserError
from idiomtune.io.files import first_of
from idiomtune.objectives import Batch, ObjectiveLoss
from idiomtune.training.embedder import TrainableEmbedder, seed_everything

_FIRST, _EVERY = 5, 100  # the first steps of a run, or after it was resumed; and then every hundredth
_SAMPLE = 16  # elements of a parameter that are looked at
_TEXTS = 8  # of a batch that are embedded again
_MAX_MOVED = 4_000_000  # elements of a parameter that is moved to see what its gradient says
_NUM_MOVED = 12
_DIRECTIONS = 8  # in which the loss's gradient is compared
_NOISE = {"fp32": 1e-6, "fp16": 2e-3, "bf16": 1e-2}  # of embeddings, relative
_TOLERANCE = {"fp32": 0.05, "fp16": 0.25, "bf16": 0.25}  # of differences, relative to gradients

# Name → what must hold, and what else it may mean.
INVARIANTS = {
    "modes": (
        "dropout is on while training and off while scoring",
        "some code has called train() or eval(): restore the mode that was found",
    ),
    "dropout": (
        "two passes over the same texts differ by dropout alone: not at all with one seed",
        "something is drawn without the step's seed, or keeps a state between passes",
    ),
    "optimizer": (
        "every trained parameter is in the optimizer, once, and nothing else is",
        "the optimizer was built before parameters were added, replaced or frozen",
    ),
    "precision": (
        "trained weights and the optimizer's moments are float32",
        "small updates are lost in 16 bits: load the model in float32, and let autocast compute in 16",
    ),
    "tied": ("tied weights stay tied", "one of them was replaced by a copy"),
    "gradients": (
        "every trained parameter that embeddings depend on has a gradient",
        "a part of the model is detached, or computed under no_grad",
    ),
    "gradient": (
        "the gradient is the derivative of the step's embeddings, summed over its micro-steps and processes",
        "the second pass of gradient caching draws other dropout, a micro-step or a process has another "
        "weight, or the gradient was changed before the step",
    ),
    "loss": (
        "the loss that is reported is the one of these embeddings, and its gradient is their derivative",
        "the loss has a detached part, changes its input, or keeps a state",
    ),
    "pulls": (
        "the loss moves anchors and their positives together",
        "labels and rows are out of step, a sign is wrong, or the positives are detached",
    ),
    "updates": (
        "parameters move as AdamW says, by their gradient and learning rate",
        "the optimizer has other parameters than the model, weights were changed beside it, or rounded",
    ),
    "frozen": ("frozen weights do not move", "they are in an optimizer, or were changed in place"),
    "schedule": (
        "the learning rate is what warm-up and schedule say for this step",
        "a scheduler stepped twice, not at all, or was not restored",
    ),
    "plan": (
        "an epoch's steps are a function of seed and epoch, each anchor comes once, and no step is left out",
        "something draws from a generator with a state",
    ),
    "resumed": (
        "a resumed run goes on with the weights, the optimizer's moments and the plan that were saved",
        "a part of the checkpoint was not loaded, or went into another model than the one that is trained",
    ),
    "labels": (
        "an anchor's positives have its meaning, and its negatives do not",
        "labels and rows are out of step, or false negatives are not masked",
    ),
    "rows": (
        "row i is the embedding of request i, whatever other texts are in the batch",
        "rows were gathered or sorted in another order, or padding is pooled",
    ),
    "spread": (
        "different texts have different embeddings",
        "the embeddings have collapsed: lower the learning rate, or look for what makes all texts alike",
    ),
    "processes": (
        "all processes have the same weights and the same plan",
        "one of them has drawn, loaded or stepped otherwise",
    ),
    "scoring": (
        "scoring changes no weight, and is done without dropout",
        "a benchmark trains, or leaves the model in another mode",
    ),
}


class InvariantError(UserError):
    """Something that must hold in every training does not: an error in code, not in data or options."""


class Invariants:
    """The checks of one training.

    All processes check the same steps. What is drawn and computed here changes nothing of the run.

    Args:
        training: a :class:`~idiomtune.training.step.Training`, built as far as its optimizer.
    """

    def __init__(self, training: Any) -> None:
        chosen = training.trainer.invariants
        self._training = training
        self._names = {name for name, is_on in chosen if is_on} if chosen else set()
        self._start = training.state.step
        self._is_due = False
        self._found: dict[str, str] = {}
        self._is_trainable = isinstance(training.embed, TrainableEmbedder)
        self._is_sharded = is_sharded(training.encoder)
        self._needed: set[str] | None = None  # names of parameters that embeddings depend on
        self._spread: float | None = None  # of the first rows
        self._after: Any = None  # a sample of the weights after a step that was checked
        self._moved: list[nn.Parameter] = []  # that are moved to see what their gradients say
        self._of_part: list[Tensor] = []  # their gradients after the first part of the first step
        self._doubts: Counter[str] = Counter()  # what chance may break once, but not twice

    # ---------------------------------------------------------------- a step

    def begin(self, micro_batches: Sequence[Sequence[int]]) -> None:
        """Look at everything before a step, if it is one that is checked."""
        state = self._training.state
        since = state.step - self._start
        self._is_first = since == 0
        self._is_due = bool(self._names) and (
            since < _FIRST or state.step % _EVERY == 0 or state.step_in_epoch == 0
        )
        if not self._is_due:
            return
        self._seen: list[tuple[Batch, Tensor, Tensor | None]] = []
        self._check("modes", self._wrong_modes)
        self._check("optimizer", self._wrong_optimizer)
        self._check("precision", self._wrong_precision)
        self._check("tied", lambda: _untied(self._training.encoder))
        self._check("schedule", self._wrong_rate)
        self._check("plan", lambda: self._wrong_plan(micro_batches))
        if self._is_first and state.step:
            self._check("resumed", self._not_resumed)
        self._check("gradient", self._left_gradients)
        if self._after is not None:
            self._check("updates", lambda: _changed(self._after, self._parameters(trained=True)))
            self._after = None
        self._num_anchors, self._num_parts = sum(map(len, micro_batches)), len(micro_batches)

    def before_backward(self, rows: Tensor) -> None:
        """Keep the gradient of a micro-step's rows."""
        if self._is_due and rows.requires_grad:
            rows.retain_grad()

    def after_backward(self, batch: Batch, rows: Tensor, result: ObjectiveLoss, micro: int) -> None:
        """Look at a micro-step's rows (R, D) and loss."""
        if not self._is_due:
            return
        gradient = None if rows.grad is None else rows.grad.detach().float()
        values = rows.detach().float()
        self._seen.append((batch, values, gradient))
        if self._is_first and self._is_trainable and not self._is_sharded and not self._moved:
            self._moved = _few([p for p in self._training.encoder.parameters() if p.requires_grad])
            if self._num_parts > 1:
                self._of_part = [p.grad.detach().clone() for p in self._moved if p.grad is not None]
        if not len(rows):
            return
        self._check("labels", lambda: _wrong_labels(batch))
        self._check("pulls", lambda: self._pushed_positives(batch, values, gradient))
        self._check("loss", lambda: self._wrong_loss(batch, values, gradient, result, micro))
        self._check("spread", lambda: self._collapsed(batch, values))
        if micro == 0 and self._is_trainable:
            self._check("rows", lambda: self._wrong_rows(batch, values))
            self._check("dropout", lambda: self._wrong_dropout(batch))

    def before_update(self, norm: float) -> None:
        """Look at the step's gradients, after clipping.

        Args:
            norm: before it.
        """
        if not self._is_due:
            return
        if self._is_trainable and any(batch.requests for batch, *_ in self._seen):
            self._check("gradients", self._missing_gradients)
            if self._is_first and not self._is_sharded:
                self._check("gradient", lambda: self._wrong_gradient(norm))
        self._raise()
        self._before = _sample(self._parameters(trained=False))
        self._expected = self._adamw() if math.isfinite(norm) else None

    def after_update(self) -> None:
        """Look at what the optimizer has done."""
        if not self._is_due:
            return
        self._check("frozen", lambda: _changed(self._before, self._parameters(trained=False)))
        self._check("updates", self._wrong_updates)
        self._check("processes", self._apart)
        self._after = _sample(self._parameters(trained=True))
        self._is_due = False
        self._raise()

    @contextmanager
    def scoring(self) -> Iterator[None]:
        """Within this context the encoder is scored."""
        if "scoring" not in self._names:
            yield
            return
        encoder, modes = self._training.encoder, set()
        parameters = [*self._parameters(trained=True), *self._parameters(trained=False)]
        before, mode = _sample(parameters), encoder.training
        first = encoder.model[0]  # which is called, while the transformer in it may not be
        hook = first.register_forward_pre_hook(lambda module, _: modes.add(module.training))
        try:
            yield
        finally:
            hook.remove()
        self._check("scoring", lambda: _changed(before, parameters))
        self._check("scoring", lambda: "texts were scored with dropout" if True in modes else "")
        self._check("modes", lambda: "" if encoder.training == mode else "scoring has left another mode")
        self._raise()

    # ---------------------------------------------------------------- reporting

    def _check(self, name: str, find: Any) -> None:
        """Note what is found, if this invariant is on; "" = it holds."""
        if name in self._names and (what := find()):
            self._found.setdefault(name, what)

    def _raise(self) -> None:
        if not (found := self._found):
            return
        self._found = {}
        lines = []
        for name, what in found.items():
            sentence, cause = INVARIANTS[name]
            lines.append(f"  - {name}: {sentence}. Found: {what}. If it is true, {cause}.")
        names = " ".join(f"trainer.invariants.{name}=false" for name in found)
        raise InvariantError(
            f"step {self._training.state.step + 1}: what must hold in every training does not. That is an "
            "error in code (the objective's, this project's or a library's), not in the data:\n"
            + "\n".join(lines)
            + f"\n  To train all the same: {names}"
        )

    def _doubt(self, name: str, what: str) -> str:
        """The finding, once it came twice running."""
        self._doubts[name] = self._doubts[name] + 1 if what else 0
        return what if self._doubts[name] > 1 else ""

    # ---------------------------------------------------------------- the model and its optimizer

    def _parameters(self, *, trained: bool) -> list[tuple[str, nn.Parameter]]:
        modules = self._training.encoder, self._training.objective.modules
        named = {id(p): (name, p) for module in modules for name, p in module.named_parameters()}
        return [(name, p) for name, p in named.values() if p.requires_grad == trained]

    def _wrong_modes(self) -> str:
        expected = not self._training.trainer.freeze_encoder
        modules = self._training.encoder.named_modules()
        wrong = [name or "the model" for name, module in modules if module.training != expected]
        mode = "training" if not expected else "evaluation"
        return f"{first_of(wrong, 4)} in {mode} mode" if wrong else ""

    def _wrong_optimizer(self) -> str:
        groups = self._training.optimizer.param_groups
        counts = Counter(id(p) for group in groups for p in group["params"])
        trained = {id(p): name for name, p in self._parameters(trained=True)}
        missing = [name for key, name in trained.items() if not counts[key]]
        several = [name for key, name in trained.items() if counts[key] > 1]
        foreign = len(counts.keys() - trained.keys())
        return "; ".join(
            [f"{first_of(missing, 4)} not in it"] * bool(missing)
            + [f"{first_of(several, 4)} in it several times"] * bool(several)
            + [f"{foreign} of its parameters are not of the model, or are frozen"] * bool(foreign)
        )

    def _wrong_precision(self) -> str:
        state = self._training.optimizer.state
        wrong = [name for name, p in self._parameters(trained=True) if p.dtype != torch.float32]
        moments = [
            key
            for values in state.values()
            for key, value in values.items()
            if isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float32
        ]
        return f"{first_of([*wrong, *moments], 4)} in another type" if wrong or moments else ""

    def _wrong_rate(self) -> str:
        """The formula of the schedule, written once more."""
        trainer, state, total = self._training.trainer, self._training.state, self._training.num_steps
        warmup = trainer.warmup_steps
        warmup = round(trainer.warmup_ratio * total) if warmup is None else warmup
        done = min(max((state.step - warmup) / max(total - warmup, 1), 0.0), 1.0)
        shape = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
        factor = min(state.step / warmup, 1.0) if state.step < warmup else shape[trainer.schedule]
        for group in self._training.optimizer.param_groups:
            expected = trainer.learning_rate * factor * group["lr_scale"]
            if not math.isclose(group["lr"], expected, rel_tol=1e-6, abs_tol=1e-15):
                return f"{group['lr']:.3g} in place of {expected:.3g}"
        return ""

    def _missing_gradients(self) -> str:
        encoder = self._training.encoder
        if self._needed is None:
            self._needed = set() if self._is_sharded else _dependencies(encoder)
        missing = [name for name, p in encoder.named_parameters() if name in self._needed and p.grad is None]
        return f"none for {first_of(missing, 4)}" if missing else ""

    def _adamw(self) -> tuple[list[str], Tensor, Tensor, Tensor]:
        """Of a sample of the trained parameters' elements: whose they are, before the step, as expected after
        it, and the largest step that is expected of the parameter.
        """
        names = {id(p): name for name, p in self._parameters(trained=True)}
        rescaled = self._training.trainer.idiom_tokens_learning_rate is not None
        transformer: Any = self._training.encoder.transformer
        embeddings = transformer.get_input_embeddings() if rescaled else None
        rows: list[tuple[str, Tensor, Tensor]] = []
        state = self._training.optimizer.state
        for group in self._training.optimizer.param_groups:
            rate, (beta1, beta2) = group["lr"], group["betas"]
            for p in group["params"]:
                if id(p) not in names or (embeddings is not None and p is embeddings.weight):
                    continue
                before = _elements(p)
                if p.grad is None:
                    rows.append((names[id(p)], before, before))
                    continue
                g, moments = _elements(p.grad), state.get(p, {})
                m, v = (_elements(moments[k]) if moments else 0 * g for k in ("exp_avg", "exp_avg_sq"))
                number = float(moments["step"]) + 1 if moments else 1.0
                m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
                step = (m / (1 - beta1**number)) / ((v / (1 - beta2**number)).sqrt() + group["eps"])
                rows.append((names[id(p)], before, before * (1 - rate * group["weight_decay"]) - rate * step))
        return (
            [name for name, *_ in rows for _ in range(_SAMPLE)],
            torch.cat([before for _, before, _ in rows]),
            torch.cat([expected for *_, expected in rows]),
            torch.cat([(e - b).abs().max().expand(_SAMPLE) for _, b, e in rows]),
        )

    def _wrong_updates(self) -> str:
        if self._expected is None:  # under fp16 the gradient had overflowed, and the step was skipped
            return ""
        names, before, expected, step = self._expected
        by_name = dict(self._parameters(trained=True))
        after = torch.cat([_elements(by_name[name]) for name in dict.fromkeys(names)])
        # What the weight itself is rounded by, and the ratio of the moments where both are small.
        off = (after - expected).abs() > 0.02 * step + 4e-7 * before.abs() + 1e-12
        wrong = dict.fromkeys(name for name, is_off in zip(names, off.tolist(), strict=True) if is_off)
        return f"not so {first_of(list(wrong), 4)}" if wrong else ""

    # ---------------------------------------------------------------- the plan

    def _wrong_plan(self, micro_batches: Sequence[Sequence[int]]) -> str:
        training, state = self._training, self._training.state
        objective = training.objective
        plan = objective.epoch_steps(state.epoch, training.trainer.accumulation)
        digest = hashlib.sha256(repr(plan).encode()).hexdigest()[:16]
        self._planned, state.plan = state.plan, (state.epoch, digest)
        if not self._is_first and self._has_moved_on():
            return "the epoch's plan is another than when the epoch began"
        if plan[state.step_in_epoch] != micro_batches:
            return f"step {state.step_in_epoch + 1} of the epoch is not the planned one"
        counts = Counter(anchor for step in plan for part in step for anchor in part)
        again = sum(n > 1 for n in counts.values())
        if again and not getattr(objective, "repeats_anchors", False):
            return (
                f"{again} anchors come several times in an epoch (an objective that means it has the "
                "attribute repeats_anchors = True)"
            )
        one, other = (objective.batch(state.epoch, micro_batches[0]) for _ in range(2))
        return (
            "" if list(one.requests) == list(other.requests) else "a batch has other texts when drawn again"
        )

    def _has_moved_on(self) -> bool:
        """Whether the epoch is planned otherwise than it was."""
        known, plan = self._planned, self._training.state.plan
        return bool(known and plan and known[0] == plan[0] and known != plan)

    def _not_resumed(self) -> str:
        training, state = self._training, self._training.state
        if "plan" in self._names and self._has_moved_on():
            return "the epoch's plan is another than when it was saved"
        if not training.optimizer.state:
            return "the optimizer has no moments"
        saved, now = state.weights, self.sum_of_weights()
        if saved is not None and now is not None and not math.isclose(saved, now, rel_tol=1e-6):
            return "the weights are others than when they were saved"
        return ""

    def sum_of_weights(self) -> float | None:
        """Of a sample of the trained weights, by which a resumed run knows them; None for shards."""
        total = math.nan if self._is_sharded else _sample(self._parameters(trained=True)).double().abs().sum()
        return float(total) if math.isfinite(total) else None

    def _left_gradients(self) -> str:
        left = [name for name, p in self._parameters(trained=True) if p.grad is not None and p.grad.any()]
        return f"{first_of(left, 4)} still have that of the step before" if left else ""

    def _apart(self) -> str:
        """Whether processes have gone apart: sums of a sample of their weights, and their plans."""
        training = self._training
        if training.processes.count == 1 or self._is_sharded:
            return ""
        modules = training.encoder, training.objective.modules
        tensors = [t for m in modules for t in (*m.parameters(), *m.buffers()) if t.is_floating_point()]
        sample = torch.cat([_elements(t) for t in tensors])
        plan = int(training.state.plan[1][:6], 16) if training.state.plan else 0
        sums = torch.tensor([[sample.double().sum(), sample.double().square().sum(), plan]])
        every = training.processes.gather(
            sums.to(training.encoder.device, torch.float32), [1] * training.processes.count
        )
        return "" if bool((every == every[0]).all()) else f"sums of weights, and plan: {every.tolist()}"

    # ---------------------------------------------------------------- the batch's rows and loss

    def _collapsed(self, batch: Batch, rows: Tensor) -> str:
        units = normalize(rows, dim=1)
        spread = float(1 - units.mean(0).square().sum())  # mean of 1 - cosine over pairs
        first = self._spread = spread if self._spread is None else self._spread
        if spread < 1e-3 * first and len({r.text for r in batch.requests}) >= _TEXTS:
            return f"the mean distance of a batch's rows has fallen from {first:.2g} to {spread:.2g}"
        keys = [(r.text, r.span, r.pooling) for r in batch.requests]
        hashes = (
            rows.double() @ torch.arange(1, rows.shape[1] + 1, device=rows.device).double().sqrt()
        ).tolist()
        first_of_hash: dict[float, int] = {}
        for i, value in enumerate(hashes):
            other = first_of_hash.setdefault(value, i)
            if keys[other] != keys[i] and self._read_otherwise(batch, other, i):
                return f"{batch.requests[other].text!r} and {batch.requests[i].text!r} have the same"
        return ""

    def _read_otherwise(self, batch: Batch, *rows: int) -> bool:
        """Whether two requests are other tokens to the model: long texts are cut, and unknown words alike."""
        one, other = (self._training.encoder.forward_batches([batch.requests[row]])[0] for row in rows)
        return bool(one.texts != other.texts or one.spans != other.spans)

    def _pushed_positives(self, batch: Batch, rows: Tensor, gradient: Tensor | None) -> str:
        if gradient is None or not len(batch.pairs) or not gradient.any():
            return ""
        a, p = torch.tensor(batch.pairs, device=rows.device).T
        for what, which in (("anchors", a), ("positives", p)):
            if not gradient[which].any():
                return f"the gradient of all {what} is zero"
        units = normalize(rows, dim=1)
        apart = units[a] - units[p]
        pull = ((gradient[a] - gradient[p]) * apart).sum(1)  # (P,), > 0: descending brings them together
        size = ((gradient[a].norm(dim=1) + gradient[p].norm(dim=1)) * apart.norm(dim=1)).sum()
        share = float(pull.sum() / size) if size > 0 else 0.0
        return self._doubt(
            "pulls", f"they are pushed apart ({share:.2f} of the gradient)" if share < -0.05 else ""
        )

    def _wrong_loss(
        self, batch: Batch, rows: Tensor, gradient: Tensor | None, result: ObjectiveLoss, micro: int
    ) -> str:
        """By the same rows again, and by differences in a few random directions."""
        training = self._training
        if not self._is_trainable or result.is_empty:
            return ""

        def loss(values: Tensor) -> Tensor:
            seed_everything(training.settings.seed, training.state.step, micro)
            with torch.no_grad():
                value: Tensor = training.loss(values, batch).loss
                return value

        noise, kept = _NOISE[self._precision], rows.clone()
        again, reported = float(loss(rows)), float(result.loss.detach())
        if not torch.equal(kept, rows):
            return "it changes the embeddings"
        if not math.isclose(again, reported, rel_tol=10 * noise, abs_tol=noise):
            return f"{reported:.6g} was reported, and {again:.6g} is computed again"
        if gradient is None or not self._is_first:
            return ""
        # In float64 steps are so small that no mined triplet comes or goes.
        generator = torch.Generator().manual_seed(0)
        size = 1e-6 * float(rows.norm(dim=1).mean()) / math.sqrt(rows.shape[1])
        values, pairs = rows.double(), []
        for _ in range(_DIRECTIONS if values.device.type != "mps" else 0):
            direction = size * torch.randn(rows.shape, generator=generator).double().to(rows.device)
            up, down = loss(values + direction), loss(values - direction)
            if up.dtype == torch.float64:
                pairs.append((float(up - down) / 2, float((gradient * direction).sum())))
        if not pairs or not any(difference for difference, _ in pairs):
            return ""
        found, expected = torch.tensor(pairs, dtype=torch.float64).T
        alike = float(torch.cosine_similarity(found, expected, dim=0))
        # Losses may hold some terms fixed, as the adaptive triplet loss does.
        if alike < 0.3:
            return f"its gradient has cosine {alike:.2f} with differences of the loss"
        weight, scaler = len(batch.anchors) / self._num_anchors, training.accelerator.scaler
        weight *= 1.0 if scaler is None else scaler.get_scale()
        ratio = float(found @ expected / found.square().sum()) / weight
        if alike > 0.99 and abs(ratio - 1) > 0.1:
            return f"its gradient is {ratio:.3g} times as large as the loss's share in the step says"
        return ""

    @property
    def _precision(self) -> str:
        precision: str = self._training.context.placement.precision
        return precision

    def _some(self, batch: Batch) -> list[int]:
        """Rows of a few distinct texts, from all over the batch."""
        rows = {r.text: i for i, r in enumerate(batch.requests) if r.pooling in ("sentence", "span")}
        distinct = list(rows.values())
        return distinct[:: -(-len(distinct) // _TEXTS)] if distinct else []

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        encoder = self._training.encoder
        modes = [(module, module.training) for module in encoder.modules()]
        encoder.eval()
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode

    def _wrong_rows(self, batch: Batch, rows: Tensor) -> str:
        """A few texts once more: without dropout, in company and alone; then beside the step's rows."""
        training, chosen = self._training, self._some(batch)
        requests = [batch.requests[row] for row in chosen]
        with self._evaluating():
            together = embed_all(training.encoder, requests, training.processes, with_gate=False).float()
            if not self._is_sharded:
                shortest = min(range(len(requests)), key=lambda i: len(requests[i].text))
                alone = embed_all(training.encoder, [requests[shortest]], training.processes, with_gate=False)
                off = float(
                    (normalize(alone.float(), dim=1) - normalize(together, dim=1)[shortest]).abs().max()
                )
                if off > 1e-3:
                    return f"{requests[shortest].text!r} differs by {off:.2g} from itself in company"
        meanings = training.encoder.meanings
        if len(chosen) < _TEXTS - 2 or (meanings is not None and meanings.dropout):
            return ""
        both = [normalize(each - each.mean(0), dim=1) for each in (rows[chosen], together)]
        found = (both[0] @ both[1].T).argmax(1)  # (N,)
        right = int((found == torch.arange(len(chosen), device=found.device)).sum())
        what = (
            f"{right} of {len(chosen)} rows are most like their own text" if 4 * right < len(chosen) else ""
        )
        return self._doubt("rows", what)

    def _wrong_dropout(self, batch: Batch) -> str:
        training = self._training
        requests = [batch.requests[row] for row in self._some(batch)][:4]
        if self._is_sharded or training.encoder.meanings is not None:  # meanings are left out at random too
            return ""
        step = training.state.step
        with torch.no_grad():
            one, again, other = (
                training.embed(requests, step, micro).rows.detach().float()
                for micro in (10**6, 10**6, 10**6 + 1)
            )
        limit = 1e-5 if training.encoder.device.type == "cpu" else 1e-2
        if float((one - again).abs().max()) > limit * float(one.abs().max()):
            return "two passes with one seed differ"
        rates = [m.p for m in training.encoder.modules() if isinstance(m, nn.Dropout)]
        if any(rate > 0.004 for rate in rates) and torch.equal(one, other):
            return "two passes with different seeds are equal"
        return ""

    # ---------------------------------------------------------------- the gradient

    def _wrong_gradient(self, norm: float) -> str:
        """Move a few parameters along their gradients: do the step's embeddings move as these say?

        With G the gradient of the rows E, and parameters at t + s d: the sum of G (E(s) - E(-s)) / 2s is g d.
        """
        training, trainer = self._training, self._training.trainer
        if (
            not self._moved
            or any(gradient is None for _, rows, gradient in self._seen if len(rows))
            or not norm > 0
        ):
            return ""
        clip, scaler = trainer.clip_norm or math.inf, training.accelerator.scaler
        factor = max(1.0, norm / clip) * (1.0 if scaler is None else scaler.get_scale())
        along = [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in self._moved]
        said = self._compare_along(along, factor)
        # Parts of a step may be at right angles: the first part's own direction tells whether it counts.
        return said or (self._compare_along(self._of_part, factor) if self._of_part else "")

    def _compare_along(self, along: Sequence[Tensor], factor: float) -> str:
        """By differences, and by the gradient, with the parameters moved along these directions.

        Args:
            factor: by which clipping and fp16's scale make the loss's gradient larger than the step's.
        """
        training, moved = self._training, self._moved
        directions, expected = [], 0.0
        for p, direction in zip(moved, along, strict=True):
            size = max(float(p.detach().norm()), 0.01 * math.sqrt(p.numel()))
            directions.append(direction * (size / direction.norm().clamp(min=1e-30)))
            expected += 0.0 if p.grad is None else float((p.grad * directions[-1]).sum()) * factor
        kept = [p.detach().clone() for p in moved]
        noise, tolerance = _NOISE[self._precision], _TOLERANCE[self._precision]
        found = math.nan

        def total(size: float) -> float:
            """The sum of G E, with the parameters so far along their directions."""
            value = 0.0
            with torch.no_grad():
                for p, start, direction in zip(moved, kept, directions, strict=True):
                    p.copy_(start + size * direction)
                for micro, (batch, _, gradient) in enumerate(self._seen):
                    if gradient is not None:
                        rows = training.embed(batch.requests, training.state.step, micro).rows
                        value += float((rows.double() * gradient.double()).sum())
            return value

        reach = sum(float((rows * g).norm()) for _, rows, g in self._seen if g is not None)
        try:
            for size in (math.sqrt(noise), math.sqrt(noise) / 4, 4 * math.sqrt(noise)):
                found = (total(size) - total(-size)) / (2 * size)
                if abs(found - expected) <= tolerance * abs(expected) + 10 * noise * reach / size:
                    return ""
        finally:
            with torch.no_grad():
                for p, start in zip(moved, kept, strict=True):
                    p.copy_(start)
        return f"{found:.3g} by differences, {expected:.3g} by the gradient"


# -------------------------------------------------------------------- tensors


def _few(parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """Some of those that have a gradient, evenly chosen, none of them large if there are others."""
    some = [p for p in parameters if p.grad is not None and p.grad.norm() > 1e-20]
    small = [p for p in some if p.numel() <= _MAX_MOVED] or sorted(some, key=lambda p: p.numel())[:1]
    return small[:: max(1, len(small) // _NUM_MOVED)][:_NUM_MOVED]


def _elements(tensor: Tensor) -> Tensor:
    """(16,), float32, evenly spread over a tensor (its shard here); the last again if it is short."""
    flat = local_shard(tensor).reshape(-1)
    if not len(flat):
        return flat.new_zeros(_SAMPLE, dtype=torch.float32)
    some = flat[:: max(1, len(flat) // _SAMPLE)][:_SAMPLE].float()
    return torch.cat([some, some[-1:].expand(_SAMPLE - len(some))])


def _sample(named: Sequence[tuple[str, Tensor]]) -> Tensor:
    """(P, 16), :func:`_elements` of each parameter."""
    return torch.stack([_elements(p).clone() for _, p in named]) if named else torch.zeros(0, _SAMPLE)


def _changed(before: Tensor, named: Sequence[tuple[str, Tensor]]) -> str:
    """Which of the parameters differ from the sample of them that was taken before."""
    after = _sample(named)
    same = ((before == after) | (before.isnan() & after.isnan())).all(1).tolist()
    wrong = [name for (name, _), is_same in zip(named, same, strict=True) if not is_same]
    return f"{first_of(wrong, 4)} changed" if wrong else ""


def _untied(encoder: Any) -> str:
    """Parameters that the transformer says are one, and are not."""
    declared = getattr(encoder.transformer, "all_tied_weights_keys", None) or {}
    named = dict(encoder.transformer.named_parameters(remove_duplicate=False))
    both = [(a, b) for a, b in declared.items() if a in named and b in named]
    return "; ".join(f"{a} is not {b}" for a, b in both if named[a] is not named[b])


def _dependencies(encoder: Any) -> set[str]:
    """Names of trained parameters that an embedding depends on, by the library's own forward pass."""
    features = encoder.model.preprocess(["He broke the ice with a joke."])
    features = {k: v.to(encoder.device) if isinstance(v, Tensor) else v for k, v in features.items()}
    trained = [(name, p) for name, p in encoder.named_parameters() if p.requires_grad]
    with torch.enable_grad():
        total = encoder.model(features)["sentence_embedding"].float().sum()
        gradients = torch.autograd.grad(total, [p for _, p in trained], allow_unused=True)
    return {name for (name, _), gradient in zip(trained, gradients, strict=True) if gradient is not None}


def _wrong_labels(batch: Batch) -> str:
    """A negative with its anchor's meaning, or a positive without."""
    if batch.meanings is None:
        return ""
    pairs = torch.tensor(batch.pairs, dtype=torch.long).view(-1, 2)
    for what, rows, is_wrong in (("negative", batch.negatives, True), ("positive", pairs, False)):
        if rows is None or not len(rows):
            continue
        same = (batch.meanings[rows[:, 0]] == batch.meanings[rows[:, 1]]).all(1)
        if wrong := (same == is_wrong).nonzero().flatten().tolist():
            anchor, other = (batch.requests[row].text for row in rows[wrong[0]].tolist())
            return f"{len(wrong)} times, such as {other!r} as a {what} of {anchor!r}"
    return ""
