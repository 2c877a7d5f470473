"""A glossary into a model: each expression becomes a token that is taught what it means."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Iterator, Sequence
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
from train.hub.learnt_card import learnt_card
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
from train.training.token_distillation import Carrier, Teaching, as_they_are, distil, targets
from train.training.weight_distillation import WeightTeaching, distil_into_weights

log = logging.getLogger(__name__)

_LITERAL = 0.3  # of a model that was not trained, by meanings beside expressions, to tell literal uses apart
_CHUNK = 8  # expressions whose tokens are learnt together
_SENTENCES = {"tokens": 16, "weights": 64}
_LEARNING_RATE = {"tokens": 0.01, "weights": 2e-4}
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


def learn(settings: LearnSettings) -> Path:
    """Teach a model the expressions of a glossary, and save it as a plain sentence-transformers model.

    An interrupted start is gone on with by the same command.

    Returns:
        The folder of the new model. The old one is not touched.

    Raises:
        UserError: for everything that the user can mend.
        KeyboardInterrupt: at SIGINT or SIGTERM.
    """
    output = _output(settings)
    with claimed("output", output, record=RECORD) as folder, explained("repeat the command to resume it"):
        _learn(settings, folder)
    return output


def _learn(settings: LearnSettings, folder: Path) -> None:
    source = resolve_model_path(settings.model.path)
    num_sentences = settings.sentences or _SENTENCES[settings.into]
    learning_rate = settings.learning_rate or _LEARNING_RATE[settings.into]
    glossary = read_glossary([glossary_path(named, "glossary") for named in settings.glossary])
    corpus = _corpus(settings)
    facts = {
        "model": settings.model.path,
        "options": settings.model.model_dump(exclude={"path", "about", "tokens_per_forward"}),
        "weights": fingerprints(sorted(Path(source).rglob("*.safetensors"))) if Path(source).is_dir() else {},
        "glossary": glossary.describe(),
        "corpus": None if settings.corpus is None else fingerprint(expanded(settings.corpus, "corpus")),
        **{
            name: getattr(settings, name)
            for name in ("into", "steps", "epochs", "precision", "literal", "remove")
        },
        "sentences": num_sentences,
        "learning_rate": learning_rate,
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
    teaching = _teaching(settings, learning_rate, read, glossary)
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
    carriers = find_carriers(glossary, corpus, num_sentences, meanings.left_out)
    if settings.into == "weights":
        meanings = meanings.override(gate=read.gate if read else None)
        dtype = placement.autocast_dtype
        autocast = torch.autocast(placement.device, dtype) if dtype else contextlib.nullcontext()
        how = WeightTeaching(settings.epochs, learning_rate, autocast)
        others = _others(corpus, carriers, meanings)
        _into_weights(encoder, carriers, others, meanings, teaching, how, state)
    else:
        _into_tokens(encoder, carriers, meanings, teaching, state)
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


def _teaching(
    settings: LearnSettings, learning_rate: float, read: Meanings | None, glossary: Glossary
) -> Teaching:
    """How the model is taught, by what it was trained to read."""
    in_place = read is None or read.form == "in_place"
    literal = settings.literal if settings.literal is not None else _LITERAL * in_place
    never = glossary.never_literal
    if literal and never:
        log.info("never used literally by the glossary, so literal=0: %s", first_of(sorted(never)))
    return Teaching(settings.steps, learning_rate, literal, in_place, never)


def _into_tokens(
    encoder: Encoder,
    carriers: dict[str, list[Carrier]],
    meanings: Meanings,
    teaching: Teaching,
    state: LearningState,
) -> None:
    """Teach each expression's token; the encoder is frozen."""
    unlearnt, start = encoder.idiom_tokens, time.monotonic()
    if carriers:
        encoder.add_idiom_tokens(carriers)
    learnt = encoder.idiom_tokens
    # One more may have a vector than is on record, where it was cut off in between: it is learnt again.
    reached = state.reached = {name: value for name, value in state.reached.items() if name in state.tensors}
    state.tensors = {name: state.tensors[name] for name in reached}
    _put(encoder, state.tensors)
    todo = [name for name in carriers if name not in reached]
    if len(todo) < len(carriers):
        log.info("%d of %d expressions were learnt before: going on", len(reached), len(carriers))
    with progress_bar("expressions", len(todo)) as advance:
        for chunk in (todo[i : i + _CHUNK] for i in range(0, len(todo), _CHUNK)):
            some = [carrier for name in chunk for carrier in carriers[name]]
            encoder.idiom_tokens = unlearnt
            goal = targets(encoder, some, meanings, teaching)
            encoder.idiom_tokens = learnt
            reached |= _mean_cosines(some, distil(encoder, some, goal, teaching))
            state.tensors |= _rows(encoder, chunk)
            state.keep()
            advance(len(chunk))
            log.info("%d of %d expressions learnt", len(reached), len(carriers))
    if todo:
        _tell(len(todo), time.monotonic() - start, reached)


def _into_weights(
    encoder: Encoder,
    carriers: dict[str, list[Carrier]],
    others: Sequence[str],
    meanings: Meanings,
    teaching: Teaching,
    how: WeightTeaching,
    state: LearningState,
) -> None:
    """Teach the encoder to embed expressions as it does with their meanings, and other texts as before."""
    start = time.monotonic()
    some = [carrier for own in carriers.values() for carrier in own]
    taught, kept = as_they_are(some), [Request(text) for text in others]
    log.info(
        "%d sentences of %d expressions, and %d others, which are to keep their embeddings",
        *(len(some), len(carriers), len(kept)),
    )
    if not kept:
        log.warning(
            "the corpus has no sentence without an expression, so nothing keeps the embeddings of other "
            "texts as they are: add as many such sentences as there are with one"
        )
    with torch.no_grad(), how.autocast:
        goal = targets(encoder, some, meanings, teaching)  # (2C, D)
        if kept:
            goal = torch.cat([goal, normalize(encoder(kept).float(), dim=1)])
    with progress_bar("texts", how.epochs * len(goal)) as advance:
        distil_into_weights(encoder, [*taught, *kept], goal, how, state.tensors, state.keep, advance)
    with torch.no_grad(), how.autocast:
        cosines = cosine_similarity(encoder(taught).float(), goal[: len(taught)])  # (2C,)
    state.reached |= _mean_cosines(some, cosines.view(2, -1).mean(0))
    _tell(len(carriers), time.monotonic() - start, state.reached)


def _mean_cosines(carriers: Sequence[Carrier], cosines: torch.Tensor) -> dict[str, float]:
    """Expression → how close its sentences came to their goal."""
    by_name: dict[str, list[float]] = {}
    for carrier, cosine in zip(carriers, cosines.tolist(), strict=True):
        by_name.setdefault(carrier.expression, []).append(cosine)
    return {name: round(sum(some) / len(some), 4) for name, some in by_name.items()}


def _tell(number: int, seconds: float, reached: dict[str, float]) -> None:
    log.info(
        "%d expressions learnt in %.0f s (%.1f s each); mean cosine with what they were to mean: %.3f",
        *(number, seconds, seconds / number, sum(reached.values()) / len(reached)),
    )


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
        left_out: expressions that are not learnt; nothing is learnt from where one stands within them either.
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


def _ids(encoder: Encoder, expressions: Sequence[str]) -> Iterator[tuple[str, int]]:
    if not expressions:  # a model may have no idiom tokens then
        return
    assert encoder.idiom_tokens is not None
    embedder: Any = encoder.model[0]
    vocabulary = embedder.tokenizer.get_vocab()
    for name in expressions:
        yield name, vocabulary[encoder.idiom_tokens.token_of(name)]


def _rows(encoder: Encoder, expressions: Sequence[str]) -> dict[str, torch.Tensor]:
    """Expression → its token's embedding."""
    embedder: Any = encoder.model[0]
    weight = embedder.auto_model.get_input_embeddings().weight
    return {name: weight[id_].detach().cpu().clone() for name, id_ in _ids(encoder, expressions)}


def _put(encoder: Encoder, vectors: dict[str, torch.Tensor]) -> None:
    embedder: Any = encoder.model[0]
    weight = embedder.auto_model.get_input_embeddings().weight
    with torch.no_grad():
        for name, id_ in _ids(encoder, list(vectors)):
            weight[id_] = vectors[name].to(weight.device)


def _save(
    encoder: Encoder, folder: Path, record: dict[str, Any], glossary: Glossary, settings: LearnSettings
) -> None:
    encoder.save(folder)
    write_json(folder / RECORD, record | {"code": code_version()})
    write_text(folder / "README.md", learnt_card(settings.model.model_dump(), glossary, settings.into))
