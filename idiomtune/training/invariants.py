"""Training invariants, checked while a run trains: they find bugs that no score or loss shows.

In the first steps, and then seldom, a step is compared with what its own definition says: the gradient with
differences of embeddings, the loss with the same loss again, the batch's rows with texts that are embedded
alone. What fails is named, with what it may mean; `trainer.invariants` chooses the checks.

What cannot happen in sound code ends the run. What unusual data may bring about too is a warning. Comparisons
are relative: to the quantity itself, or to what it is for random rows, which have nothing in common.

References:
    Invariants find most silent errors within a step, monitors of loss and gradient few: Jiang et al. 2025,
    TrainCheck (OSDI, arXiv 2506.14813).
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from idiomtune.encoder.forward import evaluation_mode
from idiomtune.encoder.parallel import embed_all
from idiomtune.encoder.sharding import is_sharded, local_shard
from idiomtune.errors import InvariantError
from idiomtune.io.files import list_names
from idiomtune.objectives import Batch, ObjectiveLoss
from idiomtune.objectives.steps import repeated_anchors
from idiomtune.training.embedder import TrainableEmbedder, seed_everything

log = logging.getLogger(__name__)

_FIRST, _EVERY = 5, 100  # the first steps of a run, or after it was resumed; and then every hundredth
_SAMPLE, _TEXTS = 16, 8  # elements of a parameter that are looked at; texts of a batch, once more
_MAX_MOVED, _NUM_MOVED = 4_000_000, 12  # elements, and number, of parameters that are moved
_DIRECTIONS = 8  # in which the loss's gradient is compared
# Precision → the noise of embeddings, relative, and how far differences may be from gradients, relative.
_EXACT = {"fp32": (1e-6, 0.05), "fp16": (2e-3, 0.25), "bf16": (1e-2, 0.25)}


class Invariants:
    """The checks of one training.

    The public methods without arguments are the invariants. Each returns what is wrong, "" if nothing is; its
    docstring has the invariant, then likely causes of a violation. All processes check the same
    steps, and nothing that is drawn or computed here changes the run.

    Args:
        training: a :class:`~idiomtune.training.step.Training`, built as far as its optimizer.
    """

    def __init__(self, training: Any) -> None:
        self._training, self._trainer, self._encoder = training, training.trainer, training.encoder
        self._start, self._is_due, self._is_replanned = training.state.step, False, False
        self._findings: dict[str, str] = {}
        self._is_trainable = isinstance(training.embed, TrainableEmbedder)
        self._is_sharded = is_sharded(training.encoder)
        self._noise, self._tolerance = _EXACT[training.context.placement.precision]
        self._after: Tensor | None = None  # a sample of the weights after a step that was checked
        self._warned: set[str] = set()
        self._num_updates = self._random_loss = self._random_slope = 0.0
        self._counts: Counter[str] = Counter()  # of findings of a name, running

    # ---------------------------------------------------------------- when

    def begin(self, micro_batches: Sequence[Sequence[int]]) -> None:
        """Look at everything before a step, if it is one that is checked."""
        state = self._training.state
        since = state.step - self._start
        self._is_first = since == 0
        self._is_thorough = since < 2 or state.step % _EVERY == 0  # with texts embedded once more
        is_planned = self._is_thorough or since < _FIRST or state.step_in_epoch == 0
        self._is_due = bool(self._trainer.invariants) and is_planned
        if not self._is_due:
            self._after = None
            return
        self._micro_batches = micro_batches
        self._seen: list[tuple[Batch, Tensor, Tensor]] = []  # of each part: its rows and their gradient
        # Some parameters, the same in all processes, to see what their gradients say.
        trained = [p for p in self._encoder.parameters() if p.requires_grad and p.numel() <= _MAX_MOVED]
        self._moved = trained[:: max(1, len(trained) // _NUM_MOVED)][:_NUM_MOVED]
        scaler = self._training.accelerator.scaler  # of the loss, under fp16
        self._scale = 1.0 if scaler is None else float(scaler.get_scale())
        self._look("modes", "optimizer", "precision", "schedule", "plan")
        self._look("resumed", "zeroed", "still")

    def after_backward(self, batch: Batch, rows: Tensor, result: ObjectiveLoss) -> None:
        """Look at a micro-step's rows (R, D) and loss."""
        if not self._is_due:
            return
        self._micro, self._batch, self._result = len(self._seen), batch, result
        sizes = [len(anchors) for anchors in self._micro_batches]
        self._share = sizes[self._micro] / sum(sizes) * self._scale  # of the loss in what is backpropagated
        self._rows = rows.detach().float()
        self._gradient = torch.zeros_like(self._rows) if rows.grad is None else rows.grad.float()
        self._seen.append((batch, self._rows, self._gradient))
        if not len(rows):
            return
        if self._is_trainable:
            self._measure_random_rows()
        self._look("labels", "pulls", "loss", *["rows"] * (self._micro == 0 and self._is_thorough))

    def before_update(self, norm: float) -> None:
        """Look at the step's gradients, after clipping.

        Args:
            norm: before it.
        """
        if self._is_due:
            self._norm = norm
            self._look("gradient")
            self._raise()
            self._before = _sample(self._parameters(trained=False))

    def after_update(self) -> None:
        """Look at what the optimizer has done."""
        if self._is_due:
            self._look("frozen", "processes")
            self._after = _sample(self._parameters(trained=True))
            self._is_due = False
            self._raise()

    @contextmanager
    def while_scoring(self) -> Iterator[None]:
        """Within this context the encoder is scored."""
        if not self._trainer.checks("scoring"):
            yield
            return
        before, modes = _sample(self._parameters()), set()
        # Of what is called: the transformer in it may not be.
        hook = self._encoder.model[0].register_forward_pre_hook(lambda m, _: modes.add(m.training))
        try:
            yield
        finally:
            hook.remove()
        self._scored = _find_change(before, self._parameters()) or "dropout was on" * (True in modes)
        self._look("scoring")
        self._raise()

    def _look(self, *names: str) -> None:
        for name in names:
            if self._trainer.checks(name) and (finding := getattr(self, name)()):
                self._findings.setdefault(name, finding)

    def _raise(self) -> None:
        findings, self._findings = self._findings, {}
        meanings = {name: describe(getattr(self, name)) for name in findings}
        lines = [f"  - {name}: {meanings[name]} Found: {finding}\n" for name, finding in findings.items()]
        if findings:
            raise InvariantError(
                f"step {self._training.state.step + 1}: what must hold in every training does not. That is "
                "an error in code (the objective's, this project's or a library's), not in the data:\n"
                f"{''.join(lines)}  To train all the same: {without(*findings)}"
            )

    def _warn(self, name: str, finding: str, times: int = 1) -> str:
        """Warn, once a run, of a finding that unusual data can cause too; it does not end the run.

        Args:
            times: how often it must come, running.
        """
        self._counts[name] = self._counts[name] + 1 if finding else 0
        if self._counts[name] == times and name not in self._warned and self._training.processes.is_main:
            self._warned.add(name)
            text = f"{name}: {describe(getattr(self, name))} Here: {finding}"
            step = self._training.state.step + 1
            log.warning("step %d: %s. The run goes on (%s: no such warning)", step, text, without(name))
        return ""

    def _measure_random_rows(self) -> None:
        """The loss, and the length of its gradient, at random rows of the same length.

        Rounding is relative to these: at rows that are learned well, a loss and its gradient are differences
        of such numbers, of which little more than rounding is left.
        """
        draw = torch.Generator().manual_seed(0)
        rows = normalize(torch.randn(self._rows.shape, generator=draw), dim=1).to(self._rows)
        value, gradient = self._loss_at(rows * self._rows.norm(dim=1).mean())
        self._random_loss, self._random_slope = abs(float(value)), float(gradient.double().norm())

    def _loss_at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The batch's loss at other rows, and its gradient."""
        training, leaf = self._training, rows.detach().requires_grad_()
        with torch.enable_grad():
            seed_everything(training.seed, training.state.step, self._micro)
            value: Tensor = training.loss(leaf, self._batch).loss
            unused = not value.requires_grad
            gradient = None if unused else torch.autograd.grad(value, leaf, allow_unused=True)[0]
        return value.detach(), torch.zeros_like(leaf) if gradient is None else gradient

    def _is_rounding(self, gradient: Tensor) -> bool:
        """Whether a gradient of the micro-step's rows is so small that rounding decides it."""
        return float(gradient.double().norm()) <= 10 * self._noise * self._random_slope

    def _parameters(self, *, trained: bool | None = None) -> list[tuple[str, nn.Parameter]]:
        modules = self._encoder, self._training.objective.modules
        named = {id(p): (name, p) for module in modules for name, p in module.named_parameters()}
        return [(name, p) for name, p in named.values() if trained in (None, p.requires_grad)]

    # ---------------------------------------------------------------- the model and its optimizer

    def modes(self) -> str:
        """Dropout is on while training, if there is any.

        Some code has called train() or eval(): restore the mode it found.
        """
        expected = self._training.dropout
        modules = self._encoder.named_modules()
        return _first([n or "the model" for n, m in modules if m.training != expected], "in the wrong mode")

    def optimizer(self) -> str:
        """The optimizer has every trained parameter, once, AdamW's options, and makes an update each step.

        It may have been built before parameters were added, replaced or frozen, or steps are left out.
        """
        groups, usual = self._training.optimizer.param_groups, torch.optim.AdamW([torch.zeros(1)]).defaults
        usual["weight_decay"] = self._trainer.weight_decay  # or 0
        counts = Counter(id(p) for group in groups for p in group["params"])
        missing = [name for name, p in self._parameters(trained=True) if counts[id(p)] != 1]
        own = [(name, group[name]) for group in groups for name in ("betas", "eps", "decoupled_weight_decay")]
        own += [("weight_decay", group["weight_decay"] or self._trainer.weight_decay) for group in groups]
        other = [f"{name} {value}" for name, value in own if value != usual[name]]
        states, before = self._training.optimizer.state.values(), self._num_updates
        self._num_updates = sum(float(state.get("step", 0.0)) for state in states)  # of all parameters
        is_left_out = self._after is not None and self._norm > 0 and self._num_updates == before
        left_out = "the step before was none" * (is_left_out and self._training.accelerator.scaler is None)
        return _first(missing, "not in it, or not once") or _first(other, "not AdamW's") or left_out

    def precision(self) -> str:
        """Trained weights and the optimizer's moments are float32.

        In 16 bits small updates are lost: load the model in float32, and let autocast compute in 16.
        """
        moments = (item for values in self._training.optimizer.state.values() for item in values.items())
        tensors = [*self._parameters(trained=True), *moments]
        wrong = [name for name, t in tensors if t.is_floating_point() and t.dtype != torch.float32]
        return _first(wrong, "in another type")

    def schedule(self) -> str:
        """The learning rate is 0 before the warm-up, then above 0, and at its peak as the warm-up ends.

        A scheduler may have stepped twice or not at all, or was not restored.
        """
        trainer, step, warmup = self._trainer, self._training.state.step, self._trainer.warmup_steps
        warmup = round(trainer.warmup_ratio * self._training.num_steps) if warmup is None else warmup
        groups, has_begun, more = self._training.optimizer.param_groups, step > 0 or not warmup, 1.0 + 1e-6
        shares = [group["lr"] / group["lr_scale"] / trainer.learning_rate for group in groups]
        wrong = [s for s in shares if (s > 0) != has_begun or s > more or (step == warmup and s * more < 1.0)]
        return _first([*map(str, wrong)], f"of the peak, {warmup - step} steps before the warm-up ends")

    def frozen(self) -> str:
        """Frozen weights do not move.

        They may be in an optimizer, or were changed in place.
        """
        return _find_change(self._before, self._parameters(trained=False))

    def still(self) -> str:
        """Between two steps the weights stay the same.

        Something beside the optimizer changes them.
        """
        before, self._after = self._after, None
        return "" if before is None else _find_change(before, self._parameters(trained=True))

    # ---------------------------------------------------------------- the plan

    def plan(self) -> str:
        """Steps are a function of seed and epoch: each anchor comes once, no step is left out.

        Something may draw from a generator with a state, or the epoch is left out of the seed.
        """
        objective, state = self._training.objective, self._training.state
        plan = objective.epoch_steps(state.epoch, self._trainer.accumulation)
        digest = hashlib.sha256(repr(plan).encode()).hexdigest()[:16]
        earlier, state.plan = state.plan, (state.epoch, digest)
        self._is_replanned = earlier is not None and earlier[0] == state.epoch and earlier != state.plan
        if self._is_replanned and not self._is_first:
            return "the epoch's plan is another than when the epoch began"
        if plan[state.step_in_epoch] != self._micro_batches:
            return f"step {state.step_in_epoch + 1} of the epoch is not the planned one"
        if repeats := repeated_anchors(objective, plan):
            return f"{len(repeats)} anchors come several times (repeats_anchors = True means it)"
        a, b = (list(objective.batch(state.epoch, plan[state.step_in_epoch][0]).requests) for _ in "12")
        return "a batch has other texts when drawn again" * (a != b)

    def resumed(self) -> str:
        """A resumed run goes on with the weights, the optimizer's moments and the plan that were saved.

        A part of the checkpoint may not have been loaded, or into another model than the one that is
        trained.
        """
        state = self._training.state
        pairs = zip(("weights", "moments"), state.sums, self.sums(), strict=False)
        wrong = [name for name, saved, current in pairs if not math.isclose(saved, current, rel_tol=1e-6)]
        wrong += ["plan"] * self._is_replanned
        return _first(wrong * (self._is_first and state.step > 0), "are others than when they were saved")

    def sums(self) -> tuple[float, ...]:
        """Checksums of the trained weights and their moments, for a resumed run; empty for shards."""
        trained, state = [p for _, p in self._parameters(trained=True)], self._training.optimizer.state
        moments = [state[p][name] for p in trained if state.get(p) for name in ("exp_avg", "exp_avg_sq")]
        lists = () if self._is_sharded else (trained, moments)
        return tuple(sum(float(_elements(t).double().abs().sum()) for t in tensors) for tensors in lists)

    def processes(self) -> str:
        """All processes have the same weights and the same plan.

        One of them may have drawn, loaded or stepped otherwise.
        """
        training, count = self._training, self._training.processes.count
        if count == 1 or self._is_sharded:
            return ""
        sample = _sample(self._parameters()).double()
        plan = int(training.state.plan[1][:6], 16) if training.state.plan else 0
        sums = torch.stack([sample.sum(), sample.square().sum(), sample.new_tensor(plan)])[None].float()
        every = training.processes.gather(sums, [1] * count)
        return f"sums of weights, and plan: {every.tolist()}" * bool((every != every[0]).any())

    # ---------------------------------------------------------------- the batch's rows and loss

    def labels(self) -> str:
        """An anchor's positives have its meaning, and its negatives do not.

        Labels and rows may be out of step, or false negatives are not masked.
        """
        batch, meanings = self._batch, self._batch.meanings
        pairs = torch.tensor(batch.pairs, dtype=torch.long).view(-1, 2)
        for kind, rows, is_wrong in (("negative", batch.negatives, True), ("positive", pairs, False)):
            if meanings is not None and rows is not None:
                is_same = (meanings[rows[:, 0]] == meanings[rows[:, 1]]).all(1)
                for anchor, other in rows[is_same == is_wrong].tolist():
                    anchor, other = (batch.requests[row].text for row in (anchor, other))
                    return f"{other!r} is a {kind} of {anchor!r}"
        return ""

    def pulls(self) -> str:
        """The loss moves anchors and their positives together.

        Labels and rows may be out of step, a sign wrong, or the positives detached.
        """
        gradient, pairs, rows = self._gradient.double(), self._batch.pairs, self._rows.double()
        if not len(pairs) or self._is_rounding(gradient / self._share):
            return ""
        a, p = torch.tensor(pairs, device=gradient.device).T
        if not (gradient[a].any() and gradient[p].any()):
            return self._warn("pulls", "the gradient of all anchors, or of all positives, is zero")
        distance = normalize(rows[a], dim=1) - normalize(rows[p], dim=1)
        pull = ((gradient[a] - gradient[p]) * distance).sum()  # > 0: descending brings them together
        size = ((gradient[a].norm(dim=1) + gradient[p].norm(dim=1)) * distance.norm(dim=1)).sum()
        share = float(pull / size) if size else 0.0  # all pairs are alike
        pushed = f"they are pushed apart ({share:.2f} of the gradient)" * (share < -0.05)
        return self._warn("pulls", pushed, 2)

    def loss(self) -> str:
        """The loss that is reported is the one of these embeddings, and its gradient is their derivative.

        The loss may have a detached part, or keep a state.
        """
        rows = self._rows
        if not self._is_trainable or self._result.is_empty:
            return ""
        recomputed, reported = float(self._loss_at(rows)[0]), float(self._result.loss.detach())
        room = self._noise * max(self._random_loss, abs(recomputed))
        if not math.isclose(recomputed, reported, rel_tol=10 * self._noise, abs_tol=room):
            return f"{reported:.6g} was reported, and {recomputed:.6g} is computed again"
        if not self._is_first or rows.device.type == "mps":
            return ""
        # In float64, so that steps are too small for a mined triplet to come or go.
        value, gradient = self._loss_at(rows.double())
        size = 1e-6 * float(rows.norm(dim=1).mean()) / math.sqrt(rows.shape[1])
        draw = torch.Generator().manual_seed(0)
        directions = (size * torch.randn(rows.shape, generator=draw).double() for _ in range(_DIRECTIONS))
        differences, expected = directional_derivatives(
            lambda values: self._loss_at(values)[0], rows.double(), gradient, directions
        )
        # Losses may hold some terms fixed, as the adaptive triplet loss does. Below 1e-13 is rounding.
        is_exact = value.dtype == torch.float64
        is_exact &= bool(differences.norm() > 1e-13 * max(self._random_loss, abs(float(value))))
        if is_exact and (alike := cosine(differences, expected)) < 0.3:
            return f"its gradient has cosine {alike:.2f} with differences of the loss"
        if self._is_rounding(gradient) or cosine(self._loss_at(rows)[1].double(), gradient) < 0.9:
            return ""  # as at a temperature of .001, where rounding of cosines decides
        step = self._gradient.double()
        alike, ratio = cosine(step, gradient), float(step.norm() / gradient.norm()) / self._share
        is_wrong = alike < 0.3 or (alike > 0.99 and abs(ratio - 1) > 0.1)
        return f"the step's gradient has cosine {alike:.2f} with it, and {ratio:.3g} its length" * is_wrong

    def _distinct_rows(self) -> list[int]:
        """Rows of a few distinct texts, from all over the batch."""
        requests = self._batch.requests
        rows = list({r.text: i for i, r in enumerate(requests) if r.pooling in ("sentence", "span")}.values())
        return rows[:: max(1, -(-len(rows) // _TEXTS))]

    def rows(self) -> str:
        """Row i is the embedding of request i, whatever other texts are in the batch.

        Rows may have been gathered or sorted in another order, or padding is pooled.
        """
        encoder, chosen = self._encoder, self._distinct_rows()
        requests = [self._batch.requests[row] for row in chosen]
        if not self._is_trainable or not requests:
            return ""
        shortest = min(range(len(requests)), key=lambda i: len(requests[i].text))
        with evaluation_mode(encoder):
            pair = (requests, [requests[shortest]])
            parts = (embed_all(encoder, texts, self._training.processes, with_gate=False) for texts in pair)
            together, single = (embedded.float() for embedded in parts)
        off = float((normalize(single, dim=1) - normalize(together, dim=1)[shortest]).abs().max())
        if off > 1e-3:
            return f"{requests[shortest].text!r} differs by {off:.2g} from itself in company"
        if len(chosen) < _TEXTS - 2 or (encoder.meanings is not None and encoder.meanings.dropout):
            return ""
        # Beside the step's own rows, which have dropout; texts that are read alike have the same.
        old, new = (normalize(texts - texts.mean(0), dim=1) for texts in (self._rows[chosen], together))
        right = int(((old * new).sum(1) >= (old @ new.T).amax(1) - 1e-3).sum())
        few = f"{right} of {len(chosen)} rows are most like their own text"
        return self._warn("rows", few * (4 * right < len(chosen)), 2)  # chance may do so once

    # ---------------------------------------------------------------- the gradient

    def zeroed(self) -> str:
        """A step begins without gradients.

        Those of the step before were not set to zero.
        """
        left = [name for name, p in self._parameters(trained=True) if p.grad is not None and p.grad.any()]
        return _first(left, "still have some")

    def gradient(self) -> str:
        """The gradient is the derivative of the step's embeddings, summed over micro-steps and processes.

        The second pass of gradient caching may draw other dropout, a micro-step or a process have another
        weight, or the gradient was changed before the step.
        """
        # Others than a CPU draw other masks in other precisions.
        is_exact = self._encoder.device.type == "cpu" or self._tolerance == _EXACT["fp32"][1]
        is_here = self._is_trainable and not self._is_sharded and any(len(rows) for _, rows, _ in self._seen)
        if not (self._is_first and is_exact and is_here and math.isfinite(self._norm)):
            return ""
        has_gradient = any(p.grad is not None for p in self._moved) or not self._moved
        if not has_gradient and any(bool(g.any()) for *_, g in self._seen):
            return "no weight has one"
        # Move a few parameters by s d: with G the gradient of the rows E, and g that of the parameters, the
        # sum of G (E(s) - E(-s)) / 2s is g d. In float32, since in 16 bits differences are noise.
        embed, step = replace(self._training.embed, caching=False, autocast=False), self._training.state.step
        factor = max(1.0, self._norm / (self._trainer.clip_norm or math.inf)) * self._scale  # of G to g
        starts, directions, expected = [p.detach().clone() for p in self._moved], [], 0.0
        for p, start in zip(self._moved, starts, strict=True):
            # Without a gradient along itself: the rows must not depend on it.
            step_ = start if p.grad is None else p.grad.detach()
            length = max(float(start.norm()), 0.01 * math.sqrt(p.numel()))
            norm = float(step_.double().norm())  # squares of small numbers are 0 in float32
            directions.append(step_ * (length / norm if norm else 0.0))
            expected += 0.0 if p.grad is None else float((p.grad.double() * directions[-1]).sum()) * factor

        def total(s: float) -> float:
            """The sum of G E(s)."""
            for p, start, direction in zip(self._moved, starts, directions, strict=True):
                p.copy_(start + s * direction)
            pieces = (embed(b.requests, step, n).rows.cpu().double() for n, (b, *_) in enumerate(self._seen))
            return sum(float((e * g.cpu()).sum()) for e, (*_, g) in zip(pieces, self._seen, strict=True))

        reach = sum(float((rows.double() * g.double()).norm()) for _, rows, g in self._seen)
        noise, slopes = _EXACT["fp32"][0], [0.0]
        with torch.no_grad():
            for s in (math.sqrt(noise), math.sqrt(noise) / 4, 4 * math.sqrt(noise)):
                slopes.append((total(s) - total(-s)) / (2 * s))
                if abs(slopes[-1] - expected) <= self._tolerance * abs(expected) + 10 * noise * reach / s:
                    expected = slopes[-1]
                    break
            for p, start in zip(self._moved, starts, strict=True):
                p.copy_(start)
        return f"{slopes[-1]:.3g} by differences, {expected:.3g} by the gradient" * (slopes[-1] != expected)

    # ---------------------------------------------------------------- scoring

    def scoring(self) -> str:
        """What is scored is the model that is saved, without dropout; scoring changes no weight.

        A benchmark may train, or call train(), or other weights are saved than were scored.
        """
        return self._scored


# -------------------------------------------------------------------- what checks of objectives share


def describe(check: Any) -> str:
    """A check's docstring, in one line."""
    return " ".join((inspect.getdoc(check) or "").split())


def without(*names: str) -> str:
    """The option that leaves checks out."""
    return f"trainer.invariants=[{','.join(f'-{name}' for name in names)}]"


def cosine(a: Tensor, b: Tensor) -> float:
    """The cosine of float64 tensors, exact for short vectors (torch's function clamps them); 0 for zeros."""
    product = float(a.norm() * b.norm())
    return float((a * b).sum()) / product if product else 0.0


def directional_derivatives(
    loss: Callable[[Tensor], Tensor], rows: Tensor, gradient: Tensor, directions: Iterable[Tensor]
) -> tuple[Tensor, Tensor]:
    """(W,) each: by how much a loss of rows grows along small ways, by differences and by its gradient."""
    steps = [direction.to(rows) for direction in directions]
    differences = [(loss(rows + step) - loss(rows - step)).item() / 2 for step in steps]
    expected = [(gradient * step).sum().item() for step in steps]
    return torch.tensor(differences, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64)


# -------------------------------------------------------------------- tensors


def _elements(tensor: Tensor) -> Tensor:
    """(16,), float32, evenly spread over a tensor (its shard here), and zeros if it is short."""
    flat = local_shard(tensor).reshape(-1)
    sample = flat[:: max(1, len(flat) // _SAMPLE)][:_SAMPLE].float()
    return torch.cat([sample, sample.new_zeros(_SAMPLE - len(sample))])


def _sample(named: Sequence[tuple[str, Tensor]]) -> Tensor:
    """(P, 16), :func:`_elements` of each parameter."""
    return torch.stack([_elements(p) for _, p in named]) if named else torch.zeros(0, _SAMPLE)


def _find_change(before: Tensor, named: Sequence[tuple[str, Tensor]]) -> str:
    """The parameters that differ from an earlier sample."""
    is_same = torch.isclose(before, _sample(named), rtol=0, atol=0, equal_nan=True).all(1)
    return _first([named[i][0] for i in (~is_same).nonzero().flatten().tolist()], "changed")


def _first(names: Sequence[str], problem: str) -> str:
    """The first of these names with a problem; "" without any."""
    return f"{list_names(names, 4)} {problem}" if names else ""
