"""From measured runs to printed lines, and whether both ways came to the same."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from tests.bench.measure import Measured

# Without dropout both ways compute the same function in another order: rounding alone, which Adam
# amplifies, parts them. A swap of two neighbouring ranks moves a mean over queries by less than this.
LOSS_TOLERANCE = 1e-3
SCORE_TOLERANCE = 5e-3
# With dropout each way draws other random numbers, and losses cannot be compared step by step.
SCORE_TOLERANCE_DROPOUT = 3e-2


@dataclass(frozen=True)
class Run:
    """One way, once, in a process of its own.

    Attributes:
        peak_memory: MiB, of the whole process.
        rate: the machine's sgemm, operations a second, beside this very run.
    """

    measured: Measured
    peak_memory: float
    rate: float

    @property
    def seconds(self) -> float:
        return self.measured.train_seconds + self.measured.score_seconds


def disagreements(ours: Measured, theirs: Measured, *, dropout: bool) -> tuple[str, list[str]]:
    """How near losses and scores are, in words; and what is further apart than it may be."""
    problems = []
    shared = sorted(ours.scores.keys() & theirs.scores.keys())
    if len(shared) != len(theirs.scores) or len(ours.losses) != len(theirs.losses):
        problems.append("the two ways took other steps, or gave other scores")
    loss = max((abs(a - b) for a, b in zip(ours.losses, theirs.losses, strict=False)), default=0.0)
    gaps = {key: abs(ours.scores[key] - theirs.scores[key]) for key in shared}
    score = max(gaps.values(), default=0.0)
    limit = SCORE_TOLERANCE_DROPOUT if dropout else SCORE_TOLERANCE
    if not dropout and not loss <= LOSS_TOLERANCE:
        problems.append(f"losses differ by {loss:.2g}, more than {LOSS_TOLERANCE:g}")
    problems += [
        f"{key}: ours {ours.scores[key]:.5f}, predecessor's {theirs.scores[key]:.5f}"
        for key in shared
        if not gaps[key] <= limit
    ]
    allowed = "not compared: other dropout" if dropout else f"may be {LOSS_TOLERANCE:g}"
    near = (
        f"largest difference of {len(ours.losses)} losses {loss:.1e} ({allowed}), "
        f"of {len(shared)} scores {score:.1e} (may be {limit:g})"
    )
    return near, problems


def table(ours: list[Run], theirs: list[Run], train_operations: float, score_operations: float) -> str:
    """The comparison: `ours[i]` and `theirs[i]` ran one after the other."""

    def ratio(what: str) -> str:
        parts = [(getattr(t.measured, what), getattr(o.measured, what)) for t, o in pairs]
        return _spread([theirs_ / ours_ for theirs_, ours_ in parts])

    pairs = list(zip(theirs, ours, strict=True))
    whole = _spread([t.seconds / o.seconds for t, o in pairs])
    lines = [
        f"times as fast as the predecessor's way, median of {len(pairs)} pairs (min–max):",
        f"  whole run {whole}; training {ratio('train_seconds')}; scoring {ratio('score_seconds')}",
        "",
        f"{'medians':<14}{'whole':>10}{'training':>10}{'scoring':>10}{'peak memory':>14}"
        f"{'training':>13}{'scoring':>13}",
        f"{'':<14}{'s':>10}{'s':>10}{'s':>10}{'MiB':>14}{'% of sgemm':>13}{'% of sgemm':>13}",
    ]
    for name, runs in (("ours", ours), ("predecessor's", theirs)):
        train_share = median(train_operations / r.measured.train_seconds / r.rate for r in runs)
        score_share = median(score_operations / r.measured.score_seconds / r.rate for r in runs)
        lines.append(
            f"{name:<14}{median(r.seconds for r in runs):>10.1f}"
            f"{median(r.measured.train_seconds for r in runs):>10.1f}"
            f"{median(r.measured.score_seconds for r in runs):>10.1f}"
            f"{median(r.peak_memory for r in runs):>14.0f}"
            f"{100 * train_share:>13.0f}{100 * score_share:>13.0f}"
        )
    rates = [r.rate / 1e9 for r in (*ours, *theirs)]
    lines += [
        "",
        f"sgemm measured beside each run: median {median(rates):.0f} GFLOP/s "
        f"({min(rates):.0f}–{max(rates):.0f}); useful work: {train_operations / 1e9:.0f} GFLOP of training, "
        f"{score_operations / 1e9:.0f} of scoring",
        "% of sgemm = useful work / seconds / that rate. Useful: each distinct text of a step (or of all",
        "modes) once, without padding, forward 2·P·T + 4·L·T²·D (P weights of linear layers, T tokens,",
        "L layers, width D), times 3 in training.",
    ]
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    return f"{median(values):.2f}× ({min(values):.2f}–{max(values):.2f})"
