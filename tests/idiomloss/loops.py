"""Every loss as its docstring's formula says it: a pair or a triple at a time."""

import itertools
import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from idiomloss import CandidateMasks


def cosine(a: Tensor, b: Tensor) -> Tensor:
    similarity: Tensor = a @ b / (a.norm() * b.norm())
    return similarity


def hinge(value: Tensor) -> Tensor:
    return value if value > 0 else 0 * value


def mean(terms: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(terms)).mean()


def infonce(
    anchors: Tensor,
    candidates: Tensor,
    masks: CandidateMasks,
    temperature: float,
    denominator: str,
    hard_weight: float = 1.0,
    soft_weight: float = 1.0,
    positives_taken: str = "mean",
    positive_weights: Tensor | None = None,
) -> Tensor:
    losses = []
    for i, anchor in enumerate(anchors):
        e = [(cosine(anchor, candidate) / temperature).exp() for candidate in candidates]
        positives = masks.positive[i].nonzero().flatten().tolist()
        negatives = masks.negative[i].nonzero().flatten().tolist()
        counted = [p for p in positives if positive_weights is None or positive_weights[i, p] > 0]
        if not counted or (denominator == "negatives" and not negatives):
            continue
        if positives_taken == "hardest":
            counted = [min(counted, key=lambda p: e[p].item())]
        below = torch.zeros((), dtype=anchors.dtype)
        for j in negatives:
            below = below + (hard_weight if masks.hard[i, j] else soft_weight) * e[j]
        if denominator == "all_positives":
            below = below + torch.stack([e[q] for q in positives]).sum()
        total, shares = torch.zeros((), dtype=anchors.dtype), 0.0
        for p in counted:
            share = 1.0 if positive_weights is None else float(positive_weights[i, p])
            total = total - share * (e[p] / (below + (e[p] if denominator == "own_positive" else 0))).log()
            shares += share
        losses.append(total / shares)
    return mean(losses)


# One item's ranking loss, from its scores, its ranks and the option.


def pairwise(s: Tensor, r: list[int], margin: float) -> Tensor:
    pairs = [(i, j) for i in range(len(r)) for j in range(len(r)) if r[i] < r[j]]
    return mean(hinge(margin - (s[i] - s[j])) for i, j in pairs)


def listwise(s: Tensor, r: list[int], temperature: float) -> Tensor:
    weights = [math.exp((len(r) - 1 - rank) / temperature) for rank in r]
    total = torch.stack([score.exp() for score in s]).sum()
    return torch.stack([-w / sum(weights) * (s[i].exp() / total).log() for i, w in enumerate(weights)]).sum()


def top1(s: Tensor, r: list[int], margin: float, *, bounded: bool = True) -> Tensor:
    best = r.index(0)
    terms = [margin - (s[best] - s[j]) for j in range(len(r)) if j != best]
    return mean(hinge(term) if bounded else term for term in terms)


def pairwise_printed(s: Tensor, r: list[int], margin: float) -> Tensor:
    pairs = itertools.permutations(range(len(r)), 2)
    return mean(hinge(margin - (s[i] - s[j])) * (1 if r[j] > r[i] else -1) for i, j in pairs)


def top1_printed(s: Tensor, r: list[int], margin: float, *, sum_weight: float) -> Tensor:
    best = r.index(0)
    hinges = [hinge(margin + s[j] - s[best]) for j in range(len(r)) if j != best]
    return torch.stack(hinges).sum() - s[best] + sum_weight * s.sum()


# Losses on pairs of rows.


def cosent(first: Tensor, second: Tensor, scores: Sequence[float]) -> Tensor:
    alike = [cosine(a, b) for a, b in zip(first, second, strict=True)]
    total = torch.ones((), dtype=first.dtype)
    for i, j in itertools.permutations(range(len(scores)), 2):
        if scores[i] < scores[j]:
            total = total + torch.exp((alike[i] - alike[j]) / 0.05)
    return total.log()


def cosine_mse(first: Tensor, second: Tensor, scores: Sequence[float]) -> Tensor:
    return mean((cosine(a, b) - (s - 1) / 4) ** 2 for a, b, s in zip(first, second, scores, strict=True))


def distillation(student: Tensor, teacher: Tensor) -> Tensor:
    return mean(1 - cosine(s, t) for s, t in zip(student, teacher, strict=True))


def relational(student: Tensor, teacher: Tensor) -> Tensor:
    pairs = itertools.combinations(range(len(student)), 2)
    return mean((cosine(student[i], student[j]) - cosine(teacher[i], teacher[j])) ** 2 for i, j in pairs)


def adaptive_triplet(
    x: Tensor,
    rows: Sequence[tuple[int, str]],
    kind: str,
    scope: str,
    distance: str,
    weights: tuple[float, float, float],
    margins: tuple[float, float],
) -> tuple[Tensor, int, int]:
    """The loss, and how many triplets were mined within groups and across them.

    Args:
        rows: group and role (`sentence`, `correct` or `incorrect`) of each row.
        margins: of the loss, and of the mining.
    """
    margin, mining_margin = margins
    terms: list[Tensor] = []
    within = across = 0
    for a, p, n in itertools.permutations(range(len(rows)), 3):
        if rows[a][0] != rows[p][0] or "incorrect" in (rows[a][1], rows[p][1]):
            continue  # anchor and positive: the sentence and its correct paraphrases
        is_within = rows[n][0] == rows[a][0]
        if (is_within and rows[n][1] != "incorrect") or (scope == "within" and not is_within):
            continue
        sim_p, sim_n = cosine(x[a], x[p]), cosine(x[a], x[n])
        gap = (sim_p - sim_n).item()
        if distance == "euclidean":
            unit = [x[i] / x[i].norm() for i in (a, p, n)]
            gap = ((unit[0] - unit[2]).norm() - (unit[0] - unit[1]).norm()).item()
        is_mined = {
            "all": gap <= mining_margin,
            "hard": gap <= 0,
            "semihard": 0 < gap <= mining_margin,
            "easy": gap > mining_margin,
        }[kind]
        if is_mined:
            within, across = within + is_within, across + (not is_within)
            terms += [sim_n - sim_p + margin] if sim_n - sim_p + margin > 0 else []
    triplet = mean(terms) if terms else x.sum() * 0
    squares, gaps = [], []
    for i, c in itertools.permutations(range(len(rows)), 2):
        if rows[i][0] != rows[c][0] or (rows[i][1], rows[c][1]) != ("sentence", "correct"):
            continue
        gaps.append(1 - cosine(x[i], x[c]))
        for n in (n for n, row in enumerate(rows) if row == (rows[i][0], "incorrect")):
            squares.append((cosine(x[i], x[n]) - cosine(x[c], x[n]).detach()) ** 2)
    each = (triplet, mean(squares), mean(gaps))
    return torch.stack([w * t for w, t in zip(weights, each, strict=True)]).sum(), within, across
