"""What must hold in every training, checked while it runs: mistakes in code that no score or loss shows.

In the first steps, and then seldom, a step is compared with what its own definition says: the gradient with
differences of embeddings, the optimizer's update with AdamW's formula, the batch's rows with texts that are
embedded alone. What fails is named, with what it may mean; `trainer.invariants` switches each check off.

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
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from idiomtune.config.sections import Invariant
from idiomtune.encoder.forward import evaluating
from idiomtune.encoder.parallel import embed_all
from idiomtune.encoder.sharding import is_sharded, local_shard
from idiomtune.errors import InvariantError
from idiomtune.io.files import first_of
from idiomtune.objectives import Batch, Objective, ObjectiveLoss
from idiomtune.requests import Request
from idiomtune.training.embedder import TrainableEmbedder, seed_everything

log = logging.getLogger(__name__)

_FIRST, _EVERY = 5, 100  # the first steps of a run, or after it was resumed; and then every hundredth
_SAMPLE = 16  # elements of a parameter that are looked at
_TEXTS = 8  # of a batch that are embedded again
_MAX_MOVED, _NUM_MOVED = 4_000_000, 12  # elements, and number, of parameters that are moved
_DIRECTIONS = 8  # in which the loss's gradient is compared
_EPOCHS = 16  # whose plans are compared: by chance, all of two groups are alike once in 30,000 runs
_DROPS = 5  # numbers that dropout should have dropped, before two equal passes say that it drops none
# Precision → the noise of embeddings, relative, and how far differences may be from gradients, relative.
_EXACT = {"fp32": (1e-6, 0.05), "fp16": (2e-3, 0.25), "bf16": (1e-2, 0.25)}

T = TypeVar("T", bound=Hashable)
Named = list[tuple[str, nn.Parameter]]


class Invariants:
    """The checks of one training.

    The public methods without arguments are the invariants. Each returns what is wrong, "" if nothing is; its
    docstring says what must hold, and then what it may mean if it does not. All processes check the same
    steps, and nothing that is drawn or computed here changes the run.

    Args:
        training: a :class:`~idiomtune.training.step.Training`, built as far as its optimizer.
    """

    def __init__(self, training: Any) -> None:
        self._training, self._trainer, self._encoder = training, training.trainer, training.encoder
        self._start = training.state.step
        self._is_due = self._is_replanned = False
        self._found: dict[str, str] = {}
        self._is_trainable = isinstance(training.embed, TrainableEmbedder)
        self._is_sharded = is_sharded(training.encoder)
        self._noise, self._tolerance = _EXACT[training.context.placement.precision]
        self._spread: float | None = None  # of the first rows
        self._after: Tensor | None = None  # a sample of the weights after a step that was checked
        self._warned: set[str] = set()
        self._random_loss = self._random_slope = 0.0
        self._doubts: Counter[str] = Counter()  # what chance may break once, but not twice
        best = training.state.best_score
        self._best = -math.inf if best is None else best
        self._num_updates = 0.0

    # ---------------------------------------------------------------- when

    def begin(self, micro_batches: Sequence[Sequence[int]]) -> None:
        """Look at everything before a step, if it is one that is checked."""
        state = self._training.state
        since = state.step - self._start
        self._is_first = since == 0
        self._is_thorough = since < 2 or state.step % _EVERY == 0  # with texts embedded once more
        is_planned = self._is_thorough or since < _FIRST or state.step_in_epoch == 0
        self._is_due = self._trainer.invariants is not None and is_planned
        if not self._is_due:
            self._after = None
            return
        self._micro_batches = micro_batches
        self._seen: list[tuple[Batch, Tensor, Tensor]] = []  # of each part: its rows and their gradient
        # Some parameters, the same in all processes, to see what their gradients say.
        trained = [p for p in self._encoder.parameters() if p.requires_grad]
        small = [p for p in trained if p.numel() <= _MAX_MOVED] or trained[:1]
        self._moved = small[:: max(1, len(small) // _NUM_MOVED)][:_NUM_MOVED]
        self._look(
            "modes", "optimizer", "precision", "tied", "schedule", "plan", "resumed", "zeroed", "still"
        )

    def after_backward(self, batch: Batch, rows: Tensor, result: ObjectiveLoss) -> None:
        """Look at a micro-step's rows (R, D) and loss."""
        if not self._is_due:
            return
        self._micro = len(self._seen)
        self._batch, self._result, self._rows = batch, result, rows.detach().float()
        self._gradient = torch.zeros_like(self._rows) if rows.grad is None else rows.grad.float()
        self._seen.append((batch, self._rows, self._gradient))
        if self._micro == 0 and len(self._micro_batches) > 1:
            self._of_part = [None if p.grad is None else p.grad.clone() for p in self._moved]
        if len(rows):
            if self._is_trainable:
                self._measure_random_rows()
            self._look("labels", "pulls", "loss", "spread")
            if self._micro == 0 and self._is_trainable and self._is_thorough:
                self._look("rows", "dropout")

    def before_update(self, norm: float) -> None:
        """Look at the step's gradients, after clipping.

        Args:
            norm: before it.
        """
        if not self._is_due:
            return
        self._norm = norm
        if self._is_trainable and any(batch.requests for batch, *_ in self._seen):
            self._look("gradients", "gradient")
        self._raise()
        self._before = _sample(self._parameters(trained=False))
        self._expected = self._adamw() if math.isfinite(norm) else []

    def after_update(self) -> None:
        """Look at what the optimizer has done."""
        if not self._is_due:
            return
        self._look("frozen", "updates", "processes")
        self._after = _sample(self._parameters(trained=True))
        self._is_due = False
        self._raise()

    @contextmanager
    def while_scoring(self) -> Iterator[None]:
        """Within this context the encoder is scored."""
        if not self._trainer.checks("scoring"):
            yield
            return
        before, modes, self._scored = _sample(self._parameters()), set(), ""
        self._has_adapters = self._training.retention.adapters is not None
        self._apart = self._embed_fixed() if self._has_adapters else torch.zeros(0)
        first = self._encoder.model[0]  # which is called, while the transformer in it may not be
        hook = first.register_forward_pre_hook(lambda module, _: modes.add(module.training))
        try:
            yield
        finally:
            hook.remove()
        found = self._scored or _changed(before, self._parameters())
        self._look_at_scoring(found or "dropout was on" * (True in modes))

    def exported(self) -> None:
        """Look at the exported weights, before they are scored."""
        self._sum_scored = self._sum(self._encoder.parameters())
        if self._trainer.checks("scoring") and self._has_adapters:
            off = float((self._embed_fixed() - self._apart).abs().max())
            limit = 1e-5 if self._encoder.device.type == "cpu" else 1e-3
            self._scored = f"with its adapters merged, a text differs by {off:.2g}" * (off > limit)

    def saved(self) -> None:
        """Look at the exported weights once more, after they were saved."""
        is_same = _near(self._sum_scored, self._sum(self._encoder.parameters()))
        self._look_at_scoring("other weights were saved than were scored" * (not is_same))

    def best(self, score: float | None) -> None:
        """Look at the best score so far, after one more."""
        self._best = max(self._best, -math.inf if score is None else score)
        kept = self._training.state.best_score
        is_lost = self._best > (-math.inf if kept is None else kept)
        self._look_at_scoring(f"the best score is {kept}, and {self._best} was seen" * is_lost)

    def _look_at_scoring(self, found: str) -> None:
        self._scored = found
        self._look("scoring")
        self._raise()

    def _embed_fixed(self) -> Tensor:
        """(2, D), of two texts, in evaluation mode."""
        requests = [Request("He broke the ice with a joke."), Request("The train left at nine.")]
        with evaluating(self._encoder):
            return embed_all(self._encoder, requests, self._training.processes, with_gate=False).float()

    def _look(self, *names: Invariant) -> None:
        for name in names:
            if self._trainer.checks(name) and (what := getattr(self, name)()):
                self._found.setdefault(name, what)

    def _raise(self) -> None:
        found, self._found, lines = self._found, {}, []
        for name, what in found.items():
            sentence, _, cause = describe(getattr(self, name)).partition(". ")
            lines.append(f"  - {name}: {sentence}. Found: {what}. {cause}")
        if not found:
            return
        raise InvariantError(
            f"step {self._training.state.step + 1}: what must hold in every training does not. That is an "
            "error in code (the objective's, this project's or a library's), not in the data:\n"
            + "\n".join(lines)
            + "\n  To train all the same: "
            + " ".join(f"trainer.invariants.{name}=false" for name in found)
        )

    def _doubt(self, name: str, what: str) -> str:
        """Warn of the finding, once it came twice running."""
        self._doubts[name] = self._doubts[name] + 1 if what else 0
        return self._warn(name, what if self._doubts[name] > 1 else "")

    def _warn(self, name: str, what: str) -> str:
        """Warn, once a run, of what sound code may do with unusual data; nothing is found then."""
        if what and name not in self._warned and self._training.processes.is_main:
            log.warning(
                "step %d: %s: %s Here: %s. The run goes on (trainer.invariants.%s=false: no such warning)",
                *(self._training.state.step + 1, name, describe(getattr(self, name)), what, name),
            )
        self._warned |= {name} if what else set()
        return ""

    def _measure_random_rows(self) -> None:
        """The loss, and the length of its gradient, at random rows of the same length.

        Rounding is relative to these: at rows that are learnt well, a loss and its gradient are differences
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
            seed_everything(training.settings.seed, training.state.step, self._micro)
            value: Tensor = training.loss(leaf, self._batch).loss
            (gradient,) = (
                torch.autograd.grad(value, leaf, allow_unused=True) if value.requires_grad else (None,)
            )
        return value.detach(), torch.zeros_like(leaf) if gradient is None else gradient

    @property
    def _share(self) -> float:
        """The factor of the micro-step's loss in what is backpropagated."""
        sizes = [len(anchors) for anchors in self._micro_batches]
        return sizes[self._micro] / sum(sizes) * self._grad_scale

    def _is_rounding(self, gradient: Tensor) -> bool:
        """Whether a gradient of the micro-step's rows is so small that rounding decides it."""
        return float(gradient.double().norm()) <= 10 * self._noise * self._random_slope

    def _parameters(self, *, trained: bool | None = None) -> Named:
        modules = self._encoder, self._training.objective.modules
        named = {id(p): (name, p) for module in modules for name, p in module.named_parameters()}
        return [(name, p) for name, p in named.values() if trained in (None, p.requires_grad)]

    # ---------------------------------------------------------------- the model and its optimizer

    def modes(self) -> str:
        """Dropout is on while training.

        Some code has called train() or eval(): restore the mode it found.
        """
        expected = not self._trainer.freeze_encoder
        modules = self._encoder.named_modules()
        return _first([n or "the model" for n, m in modules if m.training != expected], "in the wrong mode")

    def optimizer(self) -> str:
        """The optimizer has every trained parameter, once, AdamW's options, and has counted each update.

        It may have been built before parameters were added, replaced or frozen, or has lost its state.
        """
        counts = Counter(id(p) for group in self._training.optimizer.param_groups for p in group["params"])
        trained = {id(p): name for name, p in self._parameters(trained=True)}
        missing = [name for key, name in trained.items() if counts[key] != 1]
        foreign = len(counts.keys() - trained.keys())
        return (
            _first(missing, "not in it, or not once")
            or f"{foreign} of its parameters are not of the model, or are frozen" * bool(foreign)
            or self._other_options()
        )

    def _other_options(self) -> str:
        """Whether it has other options than AdamW's and the trainer's, or has counted other updates."""
        optimizer = self._training.optimizer
        usual = torch.optim.AdamW([torch.zeros(1)]).defaults
        for group in optimizer.param_groups:
            if group["weight_decay"] not in (0.0, self._trainer.weight_decay):
                return f"its weight decay is {group['weight_decay']}"
            if any(group[name] != usual[name] for name in ("eps", "betas")):
                return f"eps {group['eps']}, betas {group['betas']}"
        before, self._num_updates = self._num_updates, self._count_updates()
        is_less = self._num_updates < before
        return f"it has counted {self._num_updates:.0f} updates, and {before:.0f} before" * is_less

    def _count_updates(self) -> float:
        """The most that any parameter has had."""
        return max(
            (float(v["step"]) for v in self._training.optimizer.state.values() if "step" in v), default=0.0
        )

    def precision(self) -> str:
        """Trained weights and the optimizer's moments are float32.

        In 16 bits small updates are lost: load the model in float32, and let autocast compute in 16.
        """
        moments = (item for values in self._training.optimizer.state.values() for item in values.items())
        tensors = [*self._parameters(trained=True), *moments]
        wrong = [name for name, t in tensors if t.is_floating_point() and t.dtype != torch.float32]
        return _first(wrong, "in another type")

    def tied(self) -> str:
        """Weights that the transformer ties are one.

        One of them may have been replaced by a copy.
        """
        transformer = self._encoder.transformer
        declared = getattr(transformer, "all_tied_weights_keys", None) or {}
        named = dict(transformer.named_parameters(remove_duplicate=False))
        both = [(a, b) for a, b in declared.items() if a in named and b in named]
        return "; ".join(f"{a} is not {b}" for a, b in both if named[a] is not named[b])

    def schedule(self) -> str:
        """The learning rate is what warm-up and schedule say for this step.

        A scheduler may have stepped twice or not at all, or was not restored.
        """
        trainer, step, total = self._trainer, self._training.state.step, self._training.num_steps
        # The formula, written once more.
        warmup = trainer.warmup_steps
        warmup = round(trainer.warmup_ratio * total) if warmup is None else warmup
        done = min(max((step - warmup) / max(total - warmup, 1), 0.0), 1.0)
        shape = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}
        factor = step / warmup if step < warmup else shape[trainer.schedule]
        for group in self._training.optimizer.param_groups:
            expected = trainer.learning_rate * factor * group["lr_scale"]
            if not math.isclose(group["lr"], expected, rel_tol=1e-6, abs_tol=1e-9 * trainer.learning_rate):
                return f"{group['lr']:.3g} in place of {expected:.3g}"
        return ""

    def frozen(self) -> str:
        """Frozen weights do not move.

        They may be in an optimizer, or were changed in place.
        """
        return _changed(self._before, self._parameters(trained=False))

    def still(self) -> str:
        """Between two steps the weights stay the same.

        Something beside the optimizer changes them.
        """
        before, self._after = self._after, None
        return "" if before is None else _changed(before, self._parameters(trained=True))

    def updates(self) -> str:
        """Parameters move as AdamW says, by their gradient and learning rate.

        The optimizer may have other parameters than the model, or weights were changed beside it, or
        rounded.
        """
        wrong = []
        for name, p, before, expected in self._expected:
            # What the weight itself is rounded by, and the ratio of the moments where both are small.
            room = 0.02 * (expected - before).abs().max() + 4e-7 * before.abs()
            if bool(((_elements(p) - expected).abs() > room).any()):
                wrong.append(name)
        return _first(wrong, "otherwise")

    def _adamw(self) -> list[tuple[str, nn.Parameter, Tensor, Tensor]]:
        """Each trained parameter, and 16 of its elements before the step and as expected after it.

        The rows of idiom tokens, which have a rate of their own, are left out.
        """
        names = {id(p): name for name, p in self._parameters(trained=True)}
        if self._trainer.idiom_tokens_learning_rate is not None:
            names.pop(id(self._encoder.transformer.get_input_embeddings().weight), None)
        found, state = [], self._training.optimizer.state
        for group in self._training.optimizer.param_groups:
            options = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}
            for p in (p for p in group["params"] if id(p) in names):
                twin = nn.Parameter(_elements(p))
                twin.grad = None if p.grad is None else _elements(p.grad)
                adamw = torch.optim.AdamW([twin], **options)
                adamw.state[twin] = {
                    name: _elements(value) if value.dim() else torch.tensor(float(value))
                    for name, value in state.get(p, {}).items()
                }
                adamw.step()
                found.append((names[id(p)], p, _elements(p), twin.detach()))
        return found

    # ---------------------------------------------------------------- the plan

    def plan(self) -> str:
        """Steps are a function of seed and epoch: each anchor comes once, no step is left out, epochs differ.

        Something may draw from a generator with a state, or the epoch is left out of the seed.
        """
        objective, state = self._training.objective, self._training.state
        plan = objective.epoch_steps(state.epoch, self._trainer.accumulation)
        digest = hashlib.sha256(repr(plan).encode()).hexdigest()[:16]
        known, state.plan = state.plan, (state.epoch, digest)
        self._is_replanned = known is not None and known[0] == state.epoch and known != state.plan
        if self._is_replanned and not self._is_first:
            return "the epoch's plan is another than when the epoch began"
        if plan[state.step_in_epoch] != self._micro_batches:
            return f"step {state.step_in_epoch + 1} of the epoch is not the planned one"
        if again := repeated_anchors(objective, plan):
            return (
                f"{len(again)} anchors come several times in an epoch (an objective that means it has the "
                "attribute repeats_anchors = True)"
            )
        is_drawn = sum(len(part) for step in plan for part in step) >= _TEXTS
        if is_drawn and self._is_first and not getattr(objective, "keeps_order", False):
            others = (objective.epoch_steps(epoch, self._trainer.accumulation) for epoch in range(_EPOCHS))
            are_alike = all(plan == other for other in others)
            self._warn("plan", "all epochs have one order (keeps_order = True means it)" * are_alike)
        one, other = (list(objective.batch(state.epoch, plan[state.step_in_epoch][0]).requests) for _ in "12")
        return "a batch has other texts when drawn again" * (one != other)

    def resumed(self) -> str:
        """A resumed run goes on with the weights, the optimizer's moments and the plan that were saved.

        A part of the checkpoint may not have been loaded, or into another model than the one that is
        trained.
        """
        state = self._training.state
        if not self._is_first or not state.step:
            return ""
        if self._is_replanned:
            return "the epoch's plan is another than when it was saved"
        if not self._training.optimizer.state:
            return "the optimizer has no moments"
        pairs = zip(("weights", "moments", "numbers of updates"), state.sums, self.sums(), strict=False)
        wrong = [what for what, saved, now in pairs if not _near(saved, now)]
        return _first(wrong, "are others than when they were saved")

    def sums(self) -> tuple[float | None, ...]:
        """By which a resumed run knows the trained weights, their moments, and how many updates they had."""
        trained, state = [p for _, p in self._parameters(trained=True)], self._training.optimizer.state
        moments = (state[p][name] for p in trained if state.get(p) for name in ("exp_avg", "exp_avg_sq"))
        return self._sum(trained), self._sum(moments), self._count_updates()

    def _sum(self, tensors: Iterable[Tensor]) -> float | None:
        """Of the absolute values of some of their elements; None for shards."""
        total = 0.0 if not self._is_sharded else math.nan
        for tensor in () if self._is_sharded else tensors:
            total += float(_elements(tensor).double().abs().sum())
        return total if math.isfinite(total) else None

    def processes(self) -> str:
        """All processes have the same weights and the same plan.

        One of them may have drawn, loaded or stepped otherwise.
        """
        training, count = self._training, self._training.processes.count
        if count == 1 or self._is_sharded:
            return ""
        modules = self._encoder, training.objective.modules
        tensors = [t for m in modules for t in (*m.parameters(), *m.buffers()) if t.is_floating_point()]
        sample = torch.cat([_elements(t) for t in tensors]).cpu().double()
        plan = int(training.state.plan[1][:6], 16) if training.state.plan else 0
        sums = torch.tensor([[sample.sum(), sample.square().sum(), plan]], dtype=torch.float32)
        every = training.processes.gather(sums.to(self._encoder.device), [1] * count)
        return f"sums of weights, and plan: {every.tolist()}" * bool((every != every[0]).any())

    # ---------------------------------------------------------------- the batch's rows and loss

    def labels(self) -> str:
        """An anchor's positives have its meaning, and its negatives do not.

        Labels and rows may be out of step, or false negatives are not masked.
        """
        batch = self._batch
        pairs = torch.tensor(batch.pairs, dtype=torch.long).view(-1, 2)
        both = [(batch.requests[a], batch.requests[p]) for a, p in batch.pairs]
        if itself := [a.text for a, p in both if a == p and a.view == p.view]:  # or is a row twice
            self._warn(
                "labels",
                f"in {len(itself)} of {len(both)} pairs, such as {itself[0]!r}, both are the same text",
            )
        for what, rows, is_wrong in (("negative", batch.negatives, True), ("positive", pairs, False)):
            if batch.meanings is None or rows is None:
                continue
            same = (batch.meanings[rows[:, 0]] == batch.meanings[rows[:, 1]]).all(1)
            if wrong := (same == is_wrong).nonzero().flatten().tolist():
                anchor, other = (batch.requests[row].text for row in rows[wrong[0]].tolist())
                return f"{len(wrong)} times, such as {other!r} as a {what} of {anchor!r}"
        return ""

    def pulls(self) -> str:
        """The loss moves anchors and their positives together.

        Labels and rows may be out of step, a sign wrong, or the positives detached.
        """
        gradient, pairs = self._gradient.double(), self._batch.pairs
        if not len(pairs) or self._is_rounding(gradient / self._share):
            return ""
        a, p = torch.tensor(pairs, device=gradient.device).T
        for what, which in (("anchors", a), ("positives", p)):
            if not gradient[which].any():
                return self._warn("pulls", f"the gradient of all {what} is zero")
        units = normalize(self._rows.double(), dim=1)
        apart = units[a] - units[p]
        pull = ((gradient[a] - gradient[p]) * apart).sum(1)  # (P,), > 0: descending brings them together
        size = ((gradient[a].norm(dim=1) + gradient[p].norm(dim=1)) * apart.norm(dim=1)).sum()
        share = float(pull.sum() / size) if size else 0.0  # all pairs are alike
        return self._doubt("pulls", f"they are pushed apart ({share:.2f} of the gradient)" * (share < -0.05))

    def loss(self) -> str:
        """The loss that is reported is the one of these embeddings, and its gradient is their derivative.

        The loss may have a detached part, change its input, or keep a state.
        """
        rows = self._rows
        if not self._is_trainable or self._result.is_empty:
            return ""
        kept, again, reported = rows.clone(), float(self._loss_at(rows)[0]), float(self._result.loss.detach())
        if not torch.equal(kept, rows):
            return "it changes the embeddings"
        room = self._noise * max(self._random_loss, abs(again))
        if not math.isclose(again, reported, rel_tol=10 * self._noise, abs_tol=room):
            return f"{reported:.6g} was reported, and {again:.6g} is computed again"
        if not self._is_first or rows.device.type == "mps":
            return ""
        # In float64, so that steps are too small for a mined triplet to come or go.
        value, gradient = self._loss_at(rows.double())
        if value.dtype != torch.float64:
            return ""
        size = 1e-6 * float(rows.norm(dim=1).mean()) / math.sqrt(rows.shape[1])
        draw = torch.Generator().manual_seed(0)
        ways = (size * torch.randn(rows.shape, generator=draw).double() for _ in range(_DIRECTIONS))
        found, expected = slopes(lambda values: self._loss_at(values)[0], rows.double(), gradient, ways)
        # What rounding alone makes of differences of two losses.
        is_rounding = found.norm() <= 1e-13 * max(self._random_loss, abs(float(value)))
        # Losses may hold some terms fixed, as the adaptive triplet loss does.
        if not is_rounding and (alike := cosine(found, expected)) < 0.3:
            return f"its gradient has cosine {alike:.2f} with differences of the loss"
        if self._is_rounding(gradient) or cosine(self._loss_at(rows)[1].double(), gradient) < 0.9:
            return ""  # as at a temperature of .001, where rounding of cosines decides
        step = self._gradient.double()
        alike, ratio = cosine(step, gradient), float(step.norm() / gradient.norm()) / self._share
        if alike < 0.3:
            return f"the step's gradient has cosine {alike:.2f} with the loss's"
        is_wrong = alike > 0.99 and abs(ratio - 1) > 0.1
        return f"its gradient is {ratio:.3g} times as large as the loss's share in the step says" * is_wrong

    def spread(self) -> str:
        """Different texts have different embeddings.

        They may have collapsed: lower the learning rate, or look for what makes all texts alike.
        """
        requests, rows = self._batch.requests, self._rows
        spread = float(1 - normalize(rows, dim=1).mean(0).square().sum())  # mean of 1 - cosine over pairs
        first = self._spread = spread if self._spread is None else self._spread
        if spread < 1e-3 * first and len({r.text for r in requests}) >= _TEXTS:
            fallen = f"the mean distance of a batch's rows has fallen from {first:.2g} to {spread:.2g}"
            return self._warn("spread", fallen)
        first_with: dict[tuple[float, ...], Request] = {}
        for request, row in zip(requests, rows.tolist(), strict=True):
            if request != (other := first_with.setdefault(tuple(row), request)):
                # As the model reads them: long texts are cut, and unknown words are alike.
                a, b = (self._encoder.forward_batches([each])[0] for each in (request, other))
                if a.texts != b.texts or a.spans != b.spans:
                    return self._warn("spread", f"{other.text!r} and {request.text!r} have the same")
        return ""

    @property
    def _grad_scale(self) -> float:
        scaler = self._training.accelerator.scaler
        return 1.0 if scaler is None else float(scaler.get_scale())

    def _some(self) -> list[int]:
        """Rows of a few distinct texts, from all over the batch."""
        requests = self._batch.requests
        rows = list({r.text: i for i, r in enumerate(requests) if r.pooling in ("sentence", "span")}.values())
        return rows[:: max(1, -(-len(rows) // _TEXTS))]

    def rows(self) -> str:
        """Row i is the embedding of request i, whatever other texts are in the batch.

        Rows may have been gathered or sorted in another order, or padding is pooled.
        """
        encoder, processes, chosen = self._encoder, self._training.processes, self._some()
        requests = [self._batch.requests[row] for row in chosen]
        shortest = min(range(len(requests)), key=lambda i: len(requests[i].text))
        with evaluating(encoder):
            together, alone = (
                embed_all(encoder, each, processes, with_gate=False).float()
                for each in (requests, [requests[shortest]])
            )
        off = float((normalize(alone, dim=1) - normalize(together, dim=1)[shortest]).abs().max())
        if off > 1e-3:
            return f"{requests[shortest].text!r} differs by {off:.2g} from itself in company"
        if len(chosen) < _TEXTS - 2 or (encoder.meanings is not None and encoder.meanings.dropout):
            return ""
        # Beside the step's own rows, which have dropout.
        ours, theirs = (normalize(each - each.mean(0), dim=1) for each in (self._rows[chosen], together))
        cosines = ours @ theirs.T  # (n, n); texts that are read alike have the same
        right = int((cosines.diagonal() >= cosines.amax(1) - 1e-3).sum())
        few = f"{right} of {len(chosen)} rows are most like their own text"
        return self._doubt("rows", few * (4 * right < len(chosen)))

    def dropout(self) -> str:
        """Two passes over the same texts differ by dropout alone: not at all with one seed.

        Something may be drawn without the step's seed, or keep a state between passes.
        """
        training = self._training
        requests = [self._batch.requests[row] for row in self._some()][:4]
        if self._is_sharded or self._encoder.meanings is not None:  # meanings are left out at random too
            return ""
        with torch.no_grad():
            one, again, other = (
                training.embed(requests, training.state.step, micro).rows.detach().float()
                for micro in (10**6, 10**6, 10**6 + 1)
            )
        limit = 1e-5 if one.device.type == "cpu" else 1e-2
        if float((one - again).abs().max()) > limit * float(one.abs().max()):
            return "two passes with one seed differ"
        rates = [m.p for m in self._encoder.modules() if isinstance(m, nn.Dropout)]
        is_dropped = max(rates, default=0.0) * one.numel() > _DROPS
        return "two passes with different seeds are equal" * (is_dropped and torch.equal(one, other))

    # ---------------------------------------------------------------- the gradient

    def zeroed(self) -> str:
        """A step begins without gradients.

        Those of the step before were not set to zero.
        """
        left = [name for name, p in self._parameters(trained=True) if p.grad is not None and p.grad.any()]
        return _first(left, "still have some")

    def gradients(self) -> str:
        """What embeddings depend on is trained, unless options say otherwise, and has a gradient.

        A part of the model may be frozen, detached, or computed under no_grad.
        """
        without = {name for name, p in self._encoder.named_parameters() if p.grad is None}
        trainer, retain = self._trainer, self._training.settings.retain
        is_whole = not trainer.only_idiom_tokens and retain.lora.rank is None
        frozen = [
            name
            for name, p in self._encoder.transformer.named_parameters()
            if is_whole and not p.requires_grad and p.dim() > 1 and "pos" not in name
        ]
        return _first(sorted(without & self._needed), "have none") or _first(frozen, "frozen")

    @cached_property
    def _needed(self) -> set[str]:
        """Names of trained parameters that an embedding depends on, by the library's own forward pass."""
        encoder = self._encoder
        if self._is_sharded:
            return set()
        # A text of the step: others may take other ways through a mixture of experts.
        text, _ = encoder.reader.render(self._seen[0][0].requests)[0]
        features = encoder.model.preprocess([text])
        features = {k: v.to(encoder.device) if isinstance(v, Tensor) else v for k, v in features.items()}
        trained = {name: p for name, p in encoder.named_parameters() if p.requires_grad}
        total = encoder.model(features)["sentence_embedding"].float().sum()
        gradients = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
        return {name for name, gradient in zip(trained, gradients, strict=True) if gradient is not None}

    def gradient(self) -> str:
        """The gradient is the derivative of the step's embeddings, summed over micro-steps and processes.

        The second pass of gradient caching may draw other dropout, a micro-step or a process have another
        weight, or the gradient was changed before the step.
        """
        if not self._is_first or self._is_sharded or not self._norm > 0:
            return ""
        if self._moved[0].device.type != "cpu" and self._training.context.placement.precision != "fp32":
            return ""  # other devices draw other masks in other precisions
        clip = self._trainer.clip_norm or math.inf
        factor = max(1.0, self._norm / clip) * self._grad_scale  # by which the loss's gradient is larger
        ways = [[torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in self._moved]]
        if len(self._micro_batches) > 1:
            # Parts of a step may be at right angles: the first part's own direction tells whether it counts.
            twins = [nn.Parameter(torch.zeros_like(p)) for p in self._moved]
            for twin, of_part in zip(twins, self._of_part, strict=True):
                twin.grad = of_part
            self._training.processes.sum_gradients(twins)
            ways.append([twin if twin.grad is None else twin.grad for twin in twins])
        return next(filter(None, (self._compare_along(way, factor) for way in ways)), "")

    def _compare_along(self, way: Sequence[Tensor], factor: float) -> str:
        """Move a few parameters in a direction: do the step's embeddings move as the gradient says?

        With G the gradient of the rows E, g that of the parameters: sum of G (E(s) - E(-s)) / 2s is g d,
        where E(s) are the rows with the parameters s d away.
        """
        # In float32, also where the step was in 16 bits, whose differences would be noise.
        embed, step = replace(self._training.embed, caching=False, autocast=False), self._training.state.step
        moved, kept = self._moved, [p.detach().clone() for p in self._moved]
        directions, expected, found, is_near = [], 0.0, math.nan, False
        for p, start, direction in zip(moved, kept, way, strict=True):
            length = max(float(start.norm()), 0.01 * math.sqrt(p.numel()))
            norm = float(direction.double().norm())  # squares of small numbers are 0 in float32
            directions.append(direction.detach() * (length / norm if norm else 0.0))
            expected += 0.0 if p.grad is None else float((p.grad.double() * directions[-1]).sum()) * factor

        def total(s: float) -> float:
            """The sum of G E(s)."""
            for p, start, direction in zip(moved, kept, directions, strict=True):
                p.copy_(start + s * direction)
            return sum(
                float((embed(batch.requests, step, micro).rows.cpu().double() * g.cpu()).sum())
                for micro, (batch, _, g) in enumerate(self._seen)
            )

        reach = sum(float((rows.double() * g.double()).norm()) for _, rows, g in self._seen)
        size = math.sqrt(_EXACT["fp32"][0])
        with torch.no_grad():
            for s in (size, size / 4, 4 * size):
                found = (total(s) - total(-s)) / (2 * s)
                room = self._tolerance * abs(expected) + 10 * _EXACT["fp32"][0] * reach / s
                if is_near := abs(found - expected) <= room:
                    break
            for p, start in zip(moved, kept, strict=True):
                p.copy_(start)
        return f"{found:.3g} by differences, {expected:.3g} by the gradient" * (not is_near)

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


def repeated_anchors(objective: Objective, steps: Iterable[Iterable[Iterable[int]]]) -> list[int]:
    """Those that come several times in an epoch's steps, unless the objective means it."""
    is_meant = getattr(objective, "repeats_anchors", False)
    return [] if is_meant else repeated(chain.from_iterable(chain.from_iterable(steps)))


def repeated(values: Iterable[T]) -> list[T]:
    """The values that come several times."""
    return [value for value, count in Counter(values).items() if count > 1]


def cosine(a: Tensor, b: Tensor) -> float:
    """Of float64 tensors of any length, where torch's function takes short ones for longer; 0 for zeros."""
    product = float(a.norm() * b.norm())
    return float((a * b).sum()) / product if product else 0.0


def slopes(
    loss: Callable[[Tensor], Tensor], rows: Tensor, gradient: Tensor, ways: Iterable[Tensor]
) -> tuple[Tensor, Tensor]:
    """(W,) each: by how much a loss of rows grows along small ways, by differences and by its gradient."""
    pairs = [
        ((loss(rows + way) - loss(rows - way)).item() / 2, (gradient * way).sum().item())
        for way in (way.to(rows) for way in ways)
    ]
    found, expected = torch.tensor(pairs, dtype=torch.float64).T
    return found, expected


# -------------------------------------------------------------------- tensors


def _elements(tensor: Tensor) -> Tensor:
    """(16,), float32, evenly spread over a tensor (its shard here); the last again if it is short."""
    flat = local_shard(tensor).reshape(-1)
    if not len(flat):
        return flat.new_zeros(_SAMPLE, dtype=torch.float32)
    some = flat[:: max(1, len(flat) // _SAMPLE)][:_SAMPLE].float()
    return torch.cat([some, some[-1:].expand(_SAMPLE - len(some))])


def _sample(named: Sequence[tuple[str, Tensor]]) -> Tensor:
    """(P, 16), :func:`_elements` of each parameter."""
    return torch.stack([_elements(p) for _, p in named]) if named else torch.zeros(0, _SAMPLE)


def _near(saved: float | None, now: float | None) -> bool:
    """Whether two sums are of the same values, as far as that is known."""
    return saved is None or now is None or math.isclose(saved, now, rel_tol=1e-6)


def _changed(before: Tensor, named: Sequence[tuple[str, Tensor]]) -> str:
    """Which of the parameters differ from the sample of them that was taken before."""
    is_same = torch.isclose(before, _sample(named), rtol=0, atol=0, equal_nan=True).all(1)
    return _first([named[i][0] for i in (~is_same).nonzero().flatten().tolist()], "changed")


def _first(names: Sequence[str], what: str) -> str:
    """What the first of these names are, and how many there are; "" for none."""
    return f"{first_of(names, 4)} {what}" if names else ""
