"""`idiomtune learn`: a glossary into a model, so that its expressions embed as their meanings do.

Either each expression becomes a token, which is taught while the encoder is frozen (every text without such
an expression keeps its embedding bit for bit), or all weights are trained: the model that reads the glossary,
with a gate that weighs meanings by usage, is then the teacher of the model that reads none.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from idiomtune.config import LearnSettings, ModelSettings
from idiomtune.data.usages import labelled_usages
from idiomtune.encoder.building import build_encoder
from idiomtune.encoder.choosing import weighed
from idiomtune.encoder.device import log_placement, place
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.forward import evaluating
from idiomtune.encoder.glossary import Glossary, Meanings, glossary_path, read_glossary
from idiomtune.encoder.glossary_record import learnt_glossaries
from idiomtune.encoder.loading import resolve_model_path
from idiomtune.errors import UserError
from idiomtune.expressions import Forms, find_expression, plain_expression
from idiomtune.hub.card import learnt_card
from idiomtune.io.claims import claimed
from idiomtune.io.files import (
    code_version,
    expanded,
    fingerprint,
    fingerprints,
    first_of,
    read_text,
    sync,
    text_lines,
    write_json,
    write_text,
)
from idiomtune.io.records import LEARNT
from idiomtune.io.terminal import progress_bar
from idiomtune.requests import Request
from idiomtune.training.ending import explained
from idiomtune.training.step import optimizer_tensors, restore_optimizer

log = logging.getLogger(__name__)

_LITERAL = 0.3  # unless a gate, or a model trained with meanings after expressions, tells literal uses apart
_CHUNK = 8  # expressions whose tokens are learnt together
_BATCH_SIZE, _WARMUP, _MAX_NORM = 64, 0.1, 1.0  # into weights
_SENTENCES = {"tokens": 16, "weights": 64}
_LEARNING_RATE = {"tokens": 0.01, "weights": 4e-4}
_STATE = ".learnt.safetensors"
_RECIPE = 2  # of what is learnt: what another version began is not resumed
_EPOCH, _WEIGHT = "epoch", "weight/"  # saved for resuming: epochs done; before a weight's name
# Options that are on record, and that the same command must repeat to resume.
_HOW = ("into", "steps", "epochs", "precision", "literal", "remove", "sentences", "learning_rate")
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
class Carrier:
    """A sentence that contains an expression.

    Attributes:
        text: the sentence.
        span: of the expression.
        expression: as the glossary lists it.
    """

    text: str
    span: tuple[int, int]
    expression: str


Goal = Callable[[Sequence[Carrier]], Tensor]  # (2C, D): what each sentence and expression should embed as


@dataclass
class LearningState:
    """What was learnt so far, in one file.

    Attributes:
        folder: where it is saved.
        facts: what is learnt, from what, how: only an identical command can resume.
        reached: expression → how close its sentences came to their goal.
        tensors: expression → its token's embedding; or weights and an optimizer's state.
    """

    folder: Path
    facts: dict[str, Any]
    reached: dict[str, float] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, facts: dict[str, Any]) -> LearningState:
        """The state that an interrupted start with the same facts saved; an empty one for a new start.

        Raises:
            UserError: if a start with other facts was interrupted; it names them.
        """
        try:
            with safe_open(folder / _STATE, "pt") as file:
                before, reached = (json.loads(file.metadata()[name]) for name in ("facts", "reached"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, ValueError, KeyError, SafetensorError):  # interrupted before the first was saved
            return cls(folder, facts)
        now = json.loads(json.dumps(facts))
        if changed := [name for name in now if before.get(name) != now[name]]:
            raise UserError(
                f"output: another command with this output was interrupted ({', '.join(changed)} differ): "
                f"repeat that one to resume it, name another output, or delete {folder}"
            )
        return cls(folder, before, reached, tensors)

    def save(self) -> None:
        """Write it to one file, completely or not at all."""
        partial = self.folder / f"{_STATE}.partial"
        recorded = {"facts": json.dumps(self.facts), "reached": json.dumps(self.reached)}
        save_file(self.tensors, partial, metadata=recorded)
        sync(partial)
        partial.replace(self.folder / _STATE)

    def add_reached(self, carriers: Sequence[Carrier], cosines: Tensor) -> None:
        """Add each expression's mean of the carriers' cosines, (C,)."""
        by_name: dict[str, list[float]] = {}
        for carrier, cosine in zip(carriers, cosines.tolist(), strict=True):
            by_name.setdefault(carrier.expression, []).append(cosine)
        self.reached |= {name: round(sum(some) / len(some), 4) for name, some in by_name.items()}


def learn(settings: LearnSettings) -> Path:
    """Teach a model the expressions of a glossary, and save it as a plain sentence-transformers model.

    The same command resumes an interrupted start.

    Returns:
        The folder of the new model. The old one is not touched.

    Raises:
        UserError: for everything that the user can fix.
        KeyboardInterrupt: at SIGINT or SIGTERM.
    """
    if settings.output is not None:
        output = expanded(settings.output, "output")
    else:  # a name that the same command gives again, so that it resumes
        names = [Path(path).stem for path in (settings.model.path, *settings.glossary)]
        output = Path("checkpoints/learnt") / "_".join(names or ["model"])
    claim = claimed("output", output, record=LEARNT, resumed=(_STATE, f"{_STATE}.partial"))
    with claim as folder, explained("repeat the command to resume it"):
        _learn(settings, folder)
    return output


def _learn(settings: LearnSettings, folder: Path) -> None:
    source = Path(resolve_model_path(settings.model.path))
    sentences = settings.sentences or _SENTENCES[settings.into]
    learning_rate = settings.learning_rate or _LEARNING_RATE[settings.into]
    settings = settings.model_copy(update={"sentences": sentences, "learning_rate": learning_rate})
    glossary = read_glossary([glossary_path(name, "glossary") for name in settings.glossary])
    corpus, corpus_sum = [], None
    if settings.corpus is not None:
        path = expanded(settings.corpus, "corpus")
        corpus = [line.strip() for line in text_lines(read_text(path)) if line.strip()]
        corpus_sum = fingerprint(path)
        if not corpus:
            raise UserError(f"corpus={path}: contains no sentences; one a line is expected")
    facts = {
        "recipe": _RECIPE,
        "model": settings.model.path,
        "options": settings.model.model_dump(exclude={"path", "about", "tokens_per_forward"}),
        "weights": fingerprints(sorted(source.rglob("*.safetensors"))) if source.is_dir() else {},
        "glossary": glossary.describe(),
        "corpus": corpus_sum,
        **{name: getattr(settings, name) for name in _HOW},
    }
    state = LearningState.open(folder.parents[1], facts)
    # Tokens are few, so their gradients are kept exact.
    asked = settings.precision if settings.into == "weights" else "fp32"
    placement = place(settings.device, asked, state.facts.get("arithmetic"))
    state.facts = state.facts | {"arithmetic": placement.precision}
    log_placement(placement)
    for note in glossary.notes:
        log.info("glossary: %s", note)
    glossary = glossary._replace(senses={name: some for name, some in glossary.senses.items() if some})

    encoder = build_encoder(settings.model, placement)
    _ = encoder.transformer  # a table of token vectors has none: its error says that it cannot be changed
    if settings.into == "tokens":
        encoder.requires_grad_(False)
    read = encoder.meanings  # what the model was trained to read
    meanings = glossary.meanings(brief=settings.model.glossary_brief)
    if read is not None:
        log.info("the new model will not read this model's own glossary (%d expressions)", len(read.senses))
    encoder.meanings = None
    tokens = encoder.idiom_tokens
    learnt = [name for names in tokens.expressions.values() for name in names] if tokens else []
    known = set(map(plain_expression, learnt))
    if unknown := [name for name in settings.remove if plain_expression(name) not in known]:
        has = f"it has tokens for {first_of(learnt)}" if learnt else "it has no tokens of expressions"
        raise UserError(f"remove: the model has no token for {first_of(unknown)}; {has}")
    encoder.drop_idiom_tokens([*settings.remove, *glossary.senses])
    if not glossary.senses and not settings.remove:
        raise UserError(
            "there is no expression with a meaning, so there is nothing to learn", option="glossary"
        )
    if settings.into == "weights":
        meanings = _weighed(encoder, meanings, read, settings.model)
    in_place = meanings.gate is None and (read is None or read.form == "in_place")
    carriers = find_carriers(glossary, corpus, sentences)
    # The share of the unchanged sentence in what an expression learns; 0 where literal uses are known apart.
    share = settings.literal if settings.literal is not None else _LITERAL * in_place
    if share and glossary.never_literal:
        names = first_of(sorted(glossary.never_literal))
        log.info("never used literally by the glossary, so literal=0: %s", names)
    literal = {name: 0.0 if name in glossary.never_literal else share for name in glossary.senses}

    def goal_of(some: Sequence[Carrier]) -> Tensor:
        return targets(encoder, some, meanings, literal, in_place=in_place)

    start = time.monotonic()
    if settings.into == "weights":
        others = _others(corpus, meanings, sum(map(len, carriers.values())))  # as many as with an expression
        num_new = _into_weights(encoder, carriers, others, goal_of, placement.autocast(), settings, state)
    else:
        num_new = _into_tokens(encoder, carriers, goal_of, settings, state, glossary.forms)
    if num_new:
        seconds = time.monotonic() - start
        log.info(
            "%d expressions learnt in %.0f s (%.1f s each); mean cosine with what they should mean: %.3f",
            *(num_new, seconds, seconds / num_new, sum(state.reached.values()) / len(state.reached)),
        )
    if corpus:
        occurring, _ = meanings.log_coverage(corpus, "the corpus")
        if never := [name for name in meanings.senses if name not in occurring]:
            log.warning(
                "glossary: in no sentence of the corpus, so learnt from neutral sentences alone: %s",
                first_of(never),
            )
    own = set(corpus)
    own_sentences = {name: sum(c.text in own for c in some) for name, some in carriers.items()}
    record = facts | {"precision": placement.precision, "reached": state.reached}
    record["sentences_found"] = own_sentences
    if before := learnt_glossaries(settings.model):
        record["taught_before"] = before
    encoder.save(folder)
    write_json(folder / LEARNT, record | {"code": code_version()})
    write_text(folder / "README.md", learnt_card(settings.model.model_dump(), glossary, settings.into))


def _weighed(encoder: Encoder, meanings: Meanings, read: Meanings | None, model: ModelSettings) -> Meanings:
    """The meanings as the teacher reads them: as it was trained to, else in place; weighed by usage.

    Args:
        read: what the model was trained to read.
    """
    if read is not None:
        meanings = meanings.override(form=read.form, gate=None if model.glossary_gate is False else read.gate)
    elif model.glossary_gate is None:  # without a gate an untrained model takes literal uses for idiomatic
        model = model.model_copy(update={"glossary_gate": True})
    return weighed(encoder, meanings, model, labelled_usages, is_trained=read is not None)


# ------------------------------------------------------------------ sentences and what they should embed as


def find_carriers(glossary: Glossary, corpus: Sequence[str], num_sentences: int) -> dict[str, list[Carrier]]:
    """Expression → the sentences to learn it from: the corpus' first, then neutral ones."""
    carriers: dict[str, list[Carrier]] = {name: [] for name in glossary.senses}
    meanings = glossary.meanings()
    for text in dict.fromkeys(corpus):
        for start, end, name in meanings.find(text):
            if len(carriers[name]) < num_sentences:
                carriers[name].append(Carrier(text, (start, end), name))
    for name, some in carriers.items():
        for frame in NEUTRAL[: max(0, min(num_sentences, len(NEUTRAL)) - len(some))]:
            text = frame.format(name)
            span = find_expression(text, name)
            assert span is not None
            some.append(Carrier(text, span, name))
    return carriers


def _others(corpus: Sequence[str], meanings: Meanings, number: int) -> list[str]:
    """At most this many random sentences of the corpus without an expression."""
    texts = list(dict.fromkeys(corpus))
    random.Random(0).shuffle(texts)
    return list(islice((text for text in texts if not meanings.find(text)), number))


def as_they_are(carriers: Sequence[Carrier]) -> list[Request]:
    """2C requests, without meanings: each carrier's sentence, then each expression in it."""
    return [
        *(Request(carrier.text) for carrier in carriers),
        *(Request(carrier.text, carrier.span, pooling="span") for carrier in carriers),
    ]


def targets(
    encoder: Encoder,
    carriers: Sequence[Carrier],
    meanings: Meanings,
    literal: Mapping[str, float],
    *,
    in_place: bool,
) -> Tensor:
    """(2C, D), of unit length: what each carrier's sentence, then each expression in it, should embed as.

    Args:
        literal: expression → share of the unchanged sentence in it; the rest is the meaning's. Without it
            a token takes on its meaning where it is used literally too.
        in_place: the meaning replaces the expression; else it is read after it, by encoders that were
            trained to read it there.
    """
    plain = taught = as_they_are(carriers)
    if in_place:
        replaced = []
        for carrier in carriers:
            (start, end), meaning = carrier.span, meanings.meaning(carrier.expression)
            text = carrier.text[:start] + meaning + carrier.text[end:]
            replaced.append(Carrier(text, (start, start + len(meaning)), carrier.expression))
        taught = as_they_are(replaced)
    read = None if in_place else meanings
    with torch.no_grad(), evaluating(encoder):
        with_meanings = normalize(encoder.reading(read)(taught).float(), dim=1)
    shares = [literal[c.expression] for c in carriers]
    if not any(shares):
        return with_meanings
    with torch.no_grad(), evaluating(encoder):
        bare = normalize(encoder.reading(None)(plain).float(), dim=1)
    weights = torch.tensor([*shares, *shares], device=bare.device)[:, None]  # (2C, 1)
    return normalize(torch.lerp(with_meanings, bare, weights), dim=1)


# ------------------------------------------------------------------ into tokens


def _into_tokens(
    encoder: Encoder,
    carriers: dict[str, list[Carrier]],
    goal_of: Goal,
    settings: LearnSettings,
    state: LearningState,
    forms: Forms,
) -> int:
    """Teach each expression's token; the encoder is frozen. Returns how many were not learnt before."""
    unlearnt = encoder.idiom_tokens
    if carriers:
        encoder.add_idiom_tokens(carriers, forms=forms)
    learnt, weight = encoder.idiom_tokens, _embedding_matrix(encoder).weight
    if state.reached:
        log.info("%d of %d expressions were learnt before", len(state.reached), len(carriers))
        before = list(state.reached)
        with torch.no_grad():
            weight[_token_ids(encoder, before)] = torch.stack([state.tensors[n] for n in before]).to(weight)
    todo = [name for name in carriers if name not in state.reached]
    with progress_bar("expressions", len(todo)) as advance:
        for chunk in (todo[i : i + _CHUNK] for i in range(0, len(todo), _CHUNK)):
            some = [carrier for name in chunk for carrier in carriers[name]]
            encoder.idiom_tokens = unlearnt
            goal = goal_of(some)
            encoder.idiom_tokens = learnt
            state.add_reached(some, _teach_tokens(encoder, some, goal, settings))
            rows = weight.detach()[_token_ids(encoder, chunk)].cpu()
            state.tensors |= {name: row.clone() for name, row in zip(chunk, rows, strict=True)}
            state.save()
            advance(len(chunk))
            log.info("%d of %d expressions learnt", len(state.reached), len(carriers))
    return len(todo)


def _teach_tokens(
    encoder: Encoder, carriers: Sequence[Carrier], goal: Tensor, settings: LearnSettings
) -> Tensor:
    """Learn the tokens of the carriers' expressions by Adam; they are in the encoder afterwards.

    Other expressions in a carrier, with tokens of their own, stay what they are.

    Args:
        encoder: has an idiom token for each of the expressions, and replaces them.
        goal: (2C, D), from :func:`targets`.

    Returns:
        (C,), the cosine that each carrier's sentence and expression reach with their goal, on average.
    """
    assert settings.learning_rate is not None
    matrix = _embedding_matrix(encoder)
    distinct = sorted(set(_token_ids(encoder, [c.expression for c in carriers])))
    ids = torch.tensor(distinct, device=encoder.device)  # (T,)
    rows = nn.Parameter(matrix.weight.detach()[ids].clone())  # (T, d)
    position = torch.full((matrix.num_embeddings,), -1, dtype=torch.long, device=ids.device)
    position[ids] = torch.arange(len(ids), device=ids.device)

    def replaced(_: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        places = position[arguments[0]]  # (B, T), -1 for other tokens
        learnt = rows[places.clamp(min=0)].to(output.dtype)  # (B, T, d)
        return torch.where((places >= 0)[..., None], learnt, output.detach())

    optimizer = torch.optim.Adam([rows], lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    requests = as_they_are(carriers)
    goal = goal.to(encoder.device)
    handle = matrix.register_forward_hook(replaced)  # only these rows are trained, and cost no more
    try:
        with evaluating(encoder):
            reader = encoder.reading(None)
            for _ in range(settings.steps):
                optimizer.zero_grad()
                loss = 1 - cosine_similarity(reader(requests).float(), goal).mean()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
            with torch.no_grad():
                reached = cosine_similarity(reader(requests).float(), goal)  # (2C,)
    finally:
        handle.remove()
    with torch.no_grad():
        matrix.weight[ids] = rows
    return reached.view(2, -1).mean(0).cpu()


def _token_ids(encoder: Encoder, expressions: Sequence[str]) -> list[int]:
    assert encoder.idiom_tokens is not None
    embedder: Any = encoder.model[0]
    vocabulary = embedder.tokenizer.get_vocab()
    return [vocabulary[encoder.idiom_tokens.token_of[name]] for name in expressions]


def _embedding_matrix(encoder: Encoder) -> nn.Embedding:
    embedder: Any = encoder.model[0]
    matrix: nn.Embedding = embedder.auto_model.get_input_embeddings()
    return matrix


# ------------------------------------------------------------------ into weights


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
            "the corpus has no sentence without an expression, so nothing would keep the embeddings of "
            "other texts unchanged: add as many such sentences as there are with one"
        )
    with torch.no_grad(), autocast:
        goal = goal_of(some)  # (2C, D)
        if unchanged:
            goal = torch.cat([goal, normalize(encoder(unchanged).float(), dim=1)])
    with progress_bar("texts", settings.epochs * len(goal)) as advance:
        _teach_weights(encoder, [*taught, *unchanged], goal, settings, state, autocast, advance)
    with torch.no_grad(), autocast:
        cosines = cosine_similarity(encoder(taught).float(), goal[: len(taught)])  # (2C,)
    state.add_reached(some, cosines.view(2, -1).mean(0))
    return len(carriers)


def _teach_weights(
    encoder: Encoder,
    requests: Sequence[Request],
    goal: Tensor,
    settings: LearnSettings,
    state: LearningState,
    autocast: AbstractContextManager[object],
    advance: Callable[[int], object],
) -> None:
    """Train the encoder, without dropout, by 1 - cosine with AdamW, and save the state after each epoch.

    The learning rate rises over a tenth of the steps, then falls to 0. Token embeddings stay as they are, and
    so does what is frozen already, such as the mean of some layers. A resumed start ends with the same
    weights, bit for bit.

    Args:
        requests: N of them.
        goal: (N, D), what each should embed as.

    Raises:
        UserError: if a gradient is not finite.
    """
    epochs, learning_rate, saved = settings.epochs, settings.learning_rate, state.tensors
    assert learning_rate is not None
    encoder.eval()
    _embedding_matrix(encoder).requires_grad_(False)
    weights = {name: weight for name, weight in encoder.named_parameters() if weight.requires_grad}
    optimizer = torch.optim.AdamW(weights.values(), lr=learning_rate, weight_decay=0.0)
    rows_of: dict[str, list[int]] = {}  # all that is embedded of a text is learnt from one pass
    for row, request in enumerate(requests):
        rows_of.setdefault(request.text, []).append(row)
    texts = list(rows_of.values())
    steps_per_epoch = min(-(-len(requests) // _BATCH_SIZE), len(texts))
    num_steps = steps_per_epoch * epochs
    warmup = max(1, round(_WARMUP * num_steps))
    first = int(saved.get(_EPOCH, 0))
    if first:
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(saved[f"{_WEIGHT}{name}"])
        others = (_EPOCH, _WEIGHT)
        restore_optimizer(optimizer, {name: t for name, t in saved.items() if not name.startswith(others)})
    advance(first * len(requests))
    goal = goal.to(encoder.device)
    for epoch in range(first, epochs):
        order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(epoch))
        for number, some in enumerate(torch.tensor_split(order, steps_per_epoch)):
            rows = [row for text in some.tolist() for row in texts[text]]
            step = epoch * steps_per_epoch + number
            share = min((step + 1) / warmup, (num_steps - step) / max(1, num_steps - warmup), 1.0)
            optimizer.param_groups[0]["lr"] = learning_rate * share
            with autocast:
                embeddings = encoder([requests[row] for row in rows])  # (B, D)
            loss = 1 - cosine_similarity(embeddings.float(), goal[rows]).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(weights.values(), _MAX_NORM)
            if not norm.isfinite():
                raise UserError(
                    f"the gradient norm is {norm.item()} in epoch {epoch + 1}. Usual causes: too high a "
                    f"learning_rate (it is {learning_rate:g}), or a model with weights that are not "
                    "finite. Start again with another output="
                )
            optimizer.step()
            advance(len(rows))
        saved |= {f"{_WEIGHT}{name}": weight.detach().cpu().clone() for name, weight in weights.items()}
        saved |= {_EPOCH: torch.tensor(epoch + 1), **optimizer_tensors(optimizer)}
        state.save()
    encoder.requires_grad_(False)
