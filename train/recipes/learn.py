"""A glossary into a model: each expression becomes a token that is taught what it means."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cosine_similarity, normalize

from train.config import LearnSettings
from train.distributed.device import log_placement, place
from train.encoder.encoder import Encoder
from train.encoder.glossary_files import Glossary, meanings_of, read_glossary
from train.encoder.meanings import Meanings
from train.errors import UserError
from train.expressions import ExpressionIndex, find_expression, plain_expression
from train.factory import build_encoder, glossary_path, resolve_model_path, without_transparent
from train.hub.card import learnt_card
from train.io.claims import claimed
from train.io.files import fingerprint, fingerprints, write_json, write_text
from train.io.paths import expanded
from train.io.progress import progress_bar
from train.io.records import read_text
from train.io.text import first_of, text_lines
from train.recipes.knowledge import learnt_glossaries
from train.recipes.learning_state import RECORD, LearningState, open_state
from train.requests import Request
from train.runs.folder import code_version
from train.training.run_end import explained
from train.training.teaching import (
    Carrier,
    as_they_are,
    embedding_matrix,
    targets,
    teach_tokens,
    teach_weights,
    token_ids,
)

log = logging.getLogger(__name__)

_LITERAL = 0.3  # unless the model was trained, by meanings after expressions, to tell literal uses apart
_CHUNK = 8  # expressions whose tokens are learnt together
_SENTENCES = {"tokens": 16, "weights": 64}
_LEARNING_RATE = {"tokens": 0.01, "weights": 2e-4}
# Options that are on record, and that the same command must repeat to resume.
_HOW = ("into", "steps", "epochs", "precision", "literal", "remove", "sentences", "learning_rate")
# Sentences that say nothing of an expression, for where the corpus has too few; its form is the glossary's.
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


Goal = Callable[[Sequence[Carrier]], torch.Tensor]  # what each sentence and expression should embed as


def learn(settings: LearnSettings) -> Path:
    """Teach a model the expressions of a glossary, and save it as a plain sentence-transformers model.

    The same command resumes an interrupted start.

    Returns:
        The folder of the new model. The old one is not touched.

    Raises:
        UserError: for everything that the user can fix.
        KeyboardInterrupt: at SIGINT or SIGTERM.
    """
    output = _output(settings)
    with claimed("output", output, record=RECORD) as folder, explained("repeat the command to resume it"):
        _learn(settings, folder)
    return output


def _learn(settings: LearnSettings, folder: Path) -> None:
    source = resolve_model_path(settings.model.path)
    sentences = settings.sentences or _SENTENCES[settings.into]
    learning_rate = settings.learning_rate or _LEARNING_RATE[settings.into]
    settings = settings.model_copy(update={"sentences": sentences, "learning_rate": learning_rate})
    glossary = read_glossary([glossary_path(named, "glossary") for named in settings.glossary])
    corpus = _corpus(settings)
    facts = {
        "model": settings.model.path,
        "options": settings.model.model_dump(exclude={"path", "about", "tokens_per_forward"}),
        "weights": fingerprints(sorted(Path(source).rglob("*.safetensors"))) if Path(source).is_dir() else {},
        "glossary": glossary.describe(),
        "corpus": None if settings.corpus is None else fingerprint(expanded(settings.corpus, "corpus")),
        **{name: getattr(settings, name) for name in _HOW},
    }
    state = open_state(folder.parents[1], facts)
    for note in glossary.notes:
        log.info("glossary: %s", note)

    placement = place(settings.device, settings.precision)
    log_placement(placement)
    encoder = build_encoder(settings.model, placement)
    _ = encoder.transformer  # an export has none, and says that it cannot be changed
    if settings.into == "tokens":
        encoder.requires_grad_(False)
    read = encoder.meanings  # what the model was trained to read
    num_senses = read.num_senses if read else settings.model.glossary_senses
    meanings = meanings_of(glossary, num_senses=num_senses, brief=settings.model.glossary_brief)
    in_place = read is None or read.form == "in_place"
    encoder.meanings = None
    _check_removed(encoder, settings.remove)
    encoder.drop_idiom_tokens([*settings.remove, *glossary.senses])
    meanings = without_transparent(encoder, meanings, settings.model.glossary_max_similarity)
    glossary = replace(glossary, senses={name: glossary.senses[name] for name in meanings.senses})
    if not glossary.senses and not settings.remove:
        raise UserError(
            f"model.glossary_max_similarity={settings.model.glossary_max_similarity}: leaves out every "
            "expression of the glossary, so there is nothing to learn: raise it"
        )
    carriers = find_carriers(glossary, corpus, sentences, meanings.left_out)
    literal = _literal_shares(settings, glossary, in_place=in_place)

    def goal_of(some: Sequence[Carrier]) -> torch.Tensor:
        return targets(encoder, some, meanings, literal, in_place=in_place)

    start = time.monotonic()
    if settings.into == "weights":
        meanings = meanings.override(gate=read.gate if read else None)
        dtype = placement.autocast_dtype
        autocast = torch.autocast(placement.device, dtype) if dtype else contextlib.nullcontext()
        others = _others(corpus, carriers, meanings)
        num_new = _into_weights(encoder, carriers, others, goal_of, autocast, settings, state)
    else:
        num_new = _into_tokens(encoder, carriers, goal_of, settings, state)
    if num_new:
        seconds = time.monotonic() - start
        log.info(
            "%d expressions learnt in %.0f s (%.1f s each); mean cosine with what they should mean: %.3f",
            *(num_new, seconds, seconds / num_new, sum(state.reached.values()) / len(state.reached)),
        )
    record = facts | {"reached": state.reached, "sentences_found": _found(carriers)}
    if before := learnt_glossaries(settings.model):
        record["taught_before"] = before
    _save(encoder, folder, record, glossary, settings)


def _check_removed(encoder: Encoder, expressions: Sequence[str]) -> None:
    """Refuse to forget what was never learnt.

    Raises:
        UserError: if there is such an expression; it names those that the model knows.
    """
    tokens = encoder.idiom_tokens
    learnt = [name for names in tokens.expressions.values() for name in names] if tokens else []
    known = set(map(plain_expression, learnt))
    if unknown := [name for name in expressions if plain_expression(name) not in known]:
        has = f"it has tokens for {first_of(learnt)}" if learnt else "it has no tokens of expressions"
        raise UserError(f"remove: the model has no token for {first_of(unknown)}; {has}")


def _literal_shares(settings: LearnSettings, glossary: Glossary, *, in_place: bool) -> dict[str, float]:
    """Expression → how much of the unchanged sentence is in what it learns: 0 if it is never used literally.

    Args:
        in_place: whether the model was not trained to tell literal uses apart.
    """
    literal = settings.literal if settings.literal is not None else _LITERAL * in_place
    never = glossary.never_literal
    if literal and never:
        log.info("never used literally by the glossary, so literal=0: %s", first_of(sorted(never)))
    return {name: 0.0 if name in never else literal for name in glossary.senses}


def _into_tokens(
    encoder: Encoder,
    carriers: dict[str, list[Carrier]],
    goal_of: Goal,
    settings: LearnSettings,
    state: LearningState,
) -> int:
    """Teach each expression's token; the encoder is frozen. Returns how many were not learnt before."""
    unlearnt = encoder.idiom_tokens
    if carriers:
        encoder.add_idiom_tokens(carriers)
    learnt, weight = encoder.idiom_tokens, embedding_matrix(encoder).weight
    if state.reached:
        log.info("%d of %d expressions were learnt before", len(state.reached), len(carriers))
        before = list(state.reached)
        with torch.no_grad():
            weight[token_ids(encoder, before)] = torch.stack([state.tensors[n] for n in before]).to(weight)
    todo = [name for name in carriers if name not in state.reached]
    with progress_bar("expressions", len(todo)) as advance:
        for chunk in (todo[i : i + _CHUNK] for i in range(0, len(todo), _CHUNK)):
            some = [carrier for name in chunk for carrier in carriers[name]]
            encoder.idiom_tokens = unlearnt
            goal = goal_of(some)
            encoder.idiom_tokens = learnt
            cosines = teach_tokens(encoder, some, goal, settings)
            state.reached |= _mean_cosines(some, cosines)
            rows = weight.detach()[token_ids(encoder, chunk)].cpu()
            state.tensors |= {name: row.clone() for name, row in zip(chunk, rows, strict=True)}
            state.save()
            advance(len(chunk))
            log.info("%d of %d expressions learnt", len(state.reached), len(carriers))
    return len(todo)


def _into_weights(
    encoder: Encoder,
    carriers: dict[str, list[Carrier]],
    others: Sequence[str],
    goal_of: Goal,
    autocast: AbstractContextManager[object],
    settings: LearnSettings,
    state: LearningState,
) -> int:
    """Teach the encoder to embed expressions as it does with their meanings, and other texts as before.

    Returns:
        How many expressions there are.
    """
    some = [carrier for own in carriers.values() for carrier in own]
    taught, unchanged = as_they_are(some), [Request(text) for text in others]
    log.info(
        "%d sentences of %d expressions, and %d others, which should keep their embeddings",
        *(len(some), len(carriers), len(unchanged)),
    )
    if not unchanged:
        log.warning(
            "the corpus has no sentence without an expression, so nothing keeps the embeddings of other "
            "texts as they are: add as many such sentences as there are with one"
        )
    with torch.no_grad(), autocast:
        goal = goal_of(some)  # (2C, D)
        if unchanged:
            goal = torch.cat([goal, normalize(encoder(unchanged).float(), dim=1)])
    with progress_bar("texts", settings.epochs * len(goal)) as advance:
        teach_weights(
            *(encoder, [*taught, *unchanged], goal, settings, state.tensors),
            autocast=autocast,
            save=state.save,
            advance=advance,
        )
    with torch.no_grad(), autocast:
        cosines = cosine_similarity(encoder(taught).float(), goal[: len(taught)])  # (2C,)
    state.reached |= _mean_cosines(some, cosines.view(2, -1).mean(0))
    return len(carriers)


def _mean_cosines(carriers: Sequence[Carrier], cosines: torch.Tensor) -> dict[str, float]:
    """Expression → how close its sentences came to their goal."""
    by_name: dict[str, list[float]] = {}
    for carrier, cosine in zip(carriers, cosines.tolist(), strict=True):
        by_name.setdefault(carrier.expression, []).append(cosine)
    return {name: round(sum(some) / len(some), 4) for name, some in by_name.items()}


def _others(corpus: Sequence[str], carriers: dict[str, list[Carrier]], meanings: Meanings) -> list[str]:
    """Sentences of the corpus without an expression, from all over it, as many as there are with."""
    index = ExpressionIndex([*carriers, *meanings.left_out])
    texts = list(dict.fromkeys(corpus))
    random.Random(0).shuffle(texts)
    others = (text for text in texts if not index.find(text))
    return list(islice(others, sum(map(len, carriers.values()))))


def _output(settings: LearnSettings) -> Path:
    """`output=`, or a name that the same command gives again, so that it resumes."""
    if settings.output is not None:
        return expanded(settings.output, "output")
    names = [Path(named).stem for named in (settings.model.path, *settings.glossary)]
    return Path("checkpoints/learnt") / "_".join(names or ["model"])


def find_carriers(
    glossary: Glossary, corpus: Sequence[str], num_sentences: int, left_out: Sequence[str] = ()
) -> dict[str, list[Carrier]]:
    """Expression → the sentences to learn it from: the corpus' first, then neutral ones.

    Args:
        left_out: expressions that are not learnt; occurrences within them are not learnt from either.
    """
    found: dict[str, list[Carrier]] = {name: [] for name in glossary.senses}
    index = ExpressionIndex([*glossary.senses, *left_out])
    for text in dict.fromkeys(corpus):
        for start, end, name in index.find(text):
            if name in found and len(found[name]) < num_sentences:
                found[name].append(Carrier(text, (start, end), name))
    for name, carriers in found.items():
        for frame in NEUTRAL[: max(0, min(num_sentences, len(NEUTRAL)) - len(carriers))]:
            text = frame.format(name)
            span = find_expression(text, name)
            assert span is not None
            carriers.append(Carrier(text, span, name))
    return found


def _found(carriers: dict[str, list[Carrier]]) -> dict[str, int]:
    """Expression → how many of its sentences are the user's own."""
    neutral = {name: {frame.format(name) for frame in NEUTRAL} for name in carriers}
    return {name: sum(c.text not in neutral[name] for c in some) for name, some in carriers.items()}


def _corpus(settings: LearnSettings) -> list[str]:
    if settings.corpus is None:
        return []
    path = expanded(settings.corpus, "corpus")
    sentences = [line.strip() for line in text_lines(read_text(path)) if line.strip()]
    if not sentences:
        raise UserError(f"corpus={path}: holds no sentence; one a line is expected")
    return sentences


def _save(
    encoder: Encoder, folder: Path, record: dict[str, Any], glossary: Glossary, settings: LearnSettings
) -> None:
    encoder.save(folder)
    write_json(folder / RECORD, record | {"code": code_version()})
    write_text(folder / "README.md", learnt_card(settings.model.model_dump(), glossary, settings.into))
