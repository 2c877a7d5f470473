"""Sentences that a model learns a glossary from, what they should embed as, and what changed."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from idiomtune.encoder.forward import evaluation_mode
from idiomtune.expressions import find_expression
from idiomtune.glossaries.encoder import GlossaryEncoder
from idiomtune.glossaries.meanings import GlossaryReader
from idiomtune.glossaries.tables import Glossary
from idiomtune.io.files import list_names
from idiomtune.reports.tables import Table, print_table
from idiomtune.requests import EmbeddingRequest

log = logging.getLogger(__name__)

_ENOUGH = 2000  # texts without an expression, which count for a third of the loss
_HELD_OUT = 200  # texts without an expression that are not trained on, to measure how far others move
_COMMON = 0.02  # share of ordinary sentences that have a word, or some, which are then no expression
_NUM_SHOWN = 10  # expressions in a table
# Sentences that do not hint at an expression's meaning, for expressions that the corpus has too few of.
NEUTRAL = (
    "{}",
    "It was {}.",
    "They said: {}.",
    "That is what {} means here.",
    "We heard about {} again yesterday.",
    "Nobody had thought of {} before.",
    "In the end it all came down to {}.",
    "She asked me about {}, and I told her.",
    "He wrote to us: {}!",
    "{}, as people say.",
    "There was {} in the morning and in the evening.",
    "I read of {} in the newspaper.",
    "My brother talked of {} all day.",
    "You could call it {}, I think.",
    "Then came {}, and everybody noticed.",
    "What do you make of {}?",
)


@dataclass(frozen=True)
class TemplateSentence:
    """A sentence that contains an expression.

    Attributes:
        text: the sentence.
        span: of the expression.
        expression: as the glossary lists it.
        is_found: in the corpus.
    """

    text: str
    span: tuple[int, int]
    expression: str
    is_found: bool = False


# ------------------------------------------------------------------ sentences and what they should embed as


def find_sentences(
    glossary: Glossary, corpus: Sequence[str], num_sentences: int, num_filled: int = len(NEUTRAL)
) -> list[TemplateSentence]:
    """Sentences to learn each expression from: the corpus' first, then neutral ones up to `num_filled`."""
    contexts: dict[str, list[TemplateSentence]] = {name: [] for name in glossary.senses}
    meanings = glossary.meanings()
    for text in dict.fromkeys(corpus):
        for start, end, name in meanings.find(text):
            if len(contexts[name]) < num_sentences:
                contexts[name].append(TemplateSentence(text, (start, end), name, is_found=True))
    for name, group in contexts.items():
        for frame in NEUTRAL[: max(0, min(num_sentences, num_filled) - len(group))]:
            text = frame.format(name)
            span = find_expression(text, name)
            assert span is not None
            group.append(TemplateSentence(text, span, name))
    return [context for group in contexts.values() for context in group]


def without_common_words(glossary: Glossary, ordinary: Sequence[str]) -> Glossary:
    """The expressions with a meaning, without words such as `the`, which would change most texts."""
    meanings = glossary.meanings()
    counts = Counter(name for text in ordinary for name in {name for *_, name in meanings.find(text)})
    if common := {name: n for name, n in counts.items() if n > _COMMON * len(ordinary)}:
        names = list_names([f"{name!r} ({n})" for name, n in common.items()])
        message = "glossary: left out as common words, of so many of %d ordinary sentences: %s"
        log.warning(message, len(ordinary), names)
    senses = {name: senses for name, senses in glossary.senses.items() if senses and name not in common}
    return glossary._replace(senses=senses)


def log_sentences(counts: Mapping[str, int]) -> None:
    """Log how many sentences each expression has, the fewest first."""
    fewest = sorted(counts, key=lambda name: counts[name])
    log.info("sentences: %s", list_names([f"{name} {counts[name]}" for name in fewest], _NUM_SHOWN))
    if absent := [name for name in fewest if not counts[name]]:
        message = (
            "learned from neutral sentences alone (%r), so add literal and idiomatic ones to corpus=: %s"
        )
        log.warning(message, NEUTRAL[1].format(absent[0]), list_names(absent))


def other_sentences(
    corpus: Sequence[str], ordinary: Sequence[str], meanings: GlossaryReader, number: int
) -> tuple[list[EmbeddingRequest], list[EmbeddingRequest]]:
    """Random sentences without an expression, of the corpus and then of the project.

    Returns:
        At most this many to train on, and others that are held out.
    """
    texts: list[str] = []
    for source in (corpus, ordinary):
        shuffled = list(dict.fromkeys(source))
        random.Random(0).shuffle(shuffled)
        texts += shuffled
    without = (EmbeddingRequest(text) for text in dict.fromkeys(texts) if not meanings.find(text))
    others = list(islice(without, number + _HELD_OUT))
    neutral, unseen = others[:-_HELD_OUT], others[-_HELD_OUT:]
    log.info("%d sentences without an expression should keep their embeddings", len(neutral))
    if len(neutral) < min(number / 2, _ENOUGH):
        log.warning("too few: other texts will change; add sentences without an expression to corpus=")
    return neutral, unseen


def plain_requests(contexts: Sequence[TemplateSentence]) -> list[EmbeddingRequest]:
    """2C requests without meanings: C template sentences, then the expressions in them."""
    return [
        *(EmbeddingRequest(context.text) for context in contexts),
        *(EmbeddingRequest(context.text, context.span, pooling="span") for context in contexts),
    ]


def targets(
    encoder: GlossaryEncoder,
    contexts: Sequence[TemplateSentence],
    meanings: GlossaryReader,
    literal: Mapping[str, float],
) -> Tensor:
    """(2C, D), unit vectors: goals of C template sentences, then of the expressions in them.

    Args:
        meanings: as the encoder reads them.
        literal: expression → share of the unchanged sentence in it; the rest is the meaning's. Without it
            a token takes on its meaning where it is used literally too.
    """
    requests = plain_requests(contexts)
    shares = torch.tensor(2 * [literal[context.expression] for context in contexts], device=encoder.device)
    with torch.no_grad(), evaluation_mode(encoder):
        goals = normalize(encoder.reading(meanings)(requests).float(), dim=1)
        if not shares.any():
            return goals
        bare = normalize(encoder.reading(None)(requests).float(), dim=1)
    return normalize(torch.lerp(goals, bare, shares[:, None]), dim=1)


# ------------------------------------------------------------------ what changed


def measure(
    encoder: GlossaryEncoder,
    contexts: Sequence[TemplateSentence],
    meanings: GlossaryReader,
    others: Sequence[EmbeddingRequest],
) -> tuple[list[float], Tensor]:
    """The cosine of each template sentence with its meaning as a text of its own; the others' embeddings."""
    texts = [c.text for c in contexts] + [meanings.meaning(c.expression) for c in contexts]
    with torch.no_grad(), evaluation_mode(encoder):
        rows = encoder.reading(None)([*map(EmbeddingRequest, texts), *others]).float().cpu()
    of_sentences, of_meanings, of_others = rows.tensor_split([len(contexts), len(texts)])
    return cosine_similarity(of_sentences, of_meanings).tolist(), of_others


def report_changes(
    contexts: Sequence[TemplateSentence],
    usages: Sequence[str],
    before: tuple[list[float], Tensor],
    after: tuple[list[float], Tensor],
) -> dict[str, Any]:
    """Print and return what changed: the expressions first whose idiomatic sentences are furthest off.

    Args:
        usages: of the sentences, `idiomatic` or `literal`.
        before, after: from :func:`measure`.
    """
    cosines = {"before": before[0], "after": after[0]}
    frame = pd.DataFrame({"usage": usages, "expression": [c.expression for c in contexts], **cosines})
    groups = frame.groupby(["usage", "expression"], as_index=False)
    means = groups.agg(sentences=("after", "size"), before=("before", "mean"), after=("after", "mean"))
    means = means.sort_values(["usage", "after"]).round(2)
    columns = [(time, usage) for usage in ("idiomatic", "literal") for time in ("before", "after")]
    wide = means.set_index(["expression", "usage"])[["before", "after"]].unstack().reindex(columns=columns)
    wide = wide.sort_values(("after", "idiomatic"))
    rows = [
        [name, *("–" if pd.isna(cosine) else f"{cosine:.2f}" for cosine in cosines)]
        for name, *cosines in wide.head(_NUM_SHOWN).itertuples()
    ]
    title = f"Cosine of sentences with their expression's meaning, {len(rows)} of {len(wide)} expressions"
    print_table(Table(title, ["expression", *(f"{usage}, {time}" for time, usage in columns)], rows))
    for usage, row in frame.groupby("usage")[["before", "after"]].mean().iterrows():
        log.info("%s sentences with their meaning: mean cosine %.2f before, %.2f after", usage, *row)
    unchanged = cosine_similarity(before[1], after[1]).mean().item() if len(before[1]) else 1.0
    log.info("texts without an expression: mean cosine %.3f with their embeddings before", unchanged)
    log.info("these sentences were learned from: score new ones (idiomtune evaluate)")
    return {"changes": means.to_dict("records"), "unchanged": round(unchanged, 4)}
