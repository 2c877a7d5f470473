"""A glossary into a model: each expression becomes a token that is taught what it means."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from train.config import LearnSettings
from train.distributed.device import place
from train.encoder.encoder import Encoder
from train.encoder.glossary_files import Glossary, meanings_of, read_glossary
from train.errors import Interrupted, UserError
from train.expressions import ExpressionIndex, find_expression
from train.factory import build_encoder, glossary_path, leave_transparent, resolve_model_path
from train.hub.learnt_card import learnt_card
from train.io.files import fingerprint, fingerprints, seal, sync, write_json, write_text
from train.io.paths import expanded
from train.io.progress import progress_bar
from train.io.records import read_text
from train.io.text import first_of, text_lines
from train.runs.folder import code_version
from train.training.run_end import what_failed
from train.training.signals import stopped_by_sigterm
from train.training.token_distillation import Carrier, Teaching, distil, targets

log = logging.getLogger(__name__)

RECORD = "learnt.json"
_STATE, _VECTORS = ".learning.json", ".learning.safetensors"
_KEPT_MEANWHILE = {_STATE, _VECTORS, f"{_VECTORS}.partial", f".{_STATE}.partial"}
_LITERAL = 0.3  # of a model that was not trained, by meanings beside expressions, to tell literal uses apart
_CHUNK = 8  # expressions that are learnt together
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
    with _resumable(output):
        _learn(settings, output)
    return output


@contextmanager
def _resumable(output: Path) -> Iterator[None]:
    """Whatever ends it early says how to resume it: what was learnt by then is in the folder."""
    hint = f"repeat the command to resume it (output={output})"
    try:
        with stopped_by_sigterm():
            yield
    except KeyboardInterrupt as error:
        raise Interrupted(f"{error or 'stopped'}; {hint}") from None
    except SafetensorError as error:  # its own exception for a full disk
        raise UserError(f"a file could not be written: {error}; {hint}") from error
    except OSError as error:
        what = what_failed(error)
        if what is None:
            raise
        raise UserError(f"{what}; {hint}") from error


def _learn(settings: LearnSettings, output: Path) -> None:
    source = resolve_model_path(settings.model.path)
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
            for name in ("sentences", "steps", "learning_rate", "literal", "remove")
        },
    }
    done = _open(output, source, facts)
    for note in glossary.notes:
        log.info("glossary: %s", note)

    placement = place(settings.device, "fp32")
    encoder = build_encoder(settings.model, placement)
    encoder.requires_grad_(False)
    read = encoder.meanings  # what the model was trained to read
    in_place = read is None or read.form == "in_place"
    literal = settings.literal if settings.literal is not None else _LITERAL * in_place
    never = glossary.never_literal
    teaching = Teaching(settings.steps, settings.learning_rate, literal, in_place, never)
    if literal and never:
        log.info("never used literally by the glossary, so literal=0: %s", first_of(sorted(never)))
    num_senses = read.num_senses if read else settings.model.glossary_senses
    meanings = meanings_of(glossary, num_senses=num_senses, brief=settings.model.glossary_brief)
    encoder.meanings = None
    encoder.drop_idiom_tokens([*settings.remove, *glossary.senses])
    leave_transparent(encoder, meanings, settings.model.glossary_max_similarity)
    glossary = replace(glossary, senses={name: glossary.senses[name] for name in meanings.senses})
    if not glossary.senses and not settings.remove:
        raise UserError(
            f"model.glossary_max_similarity={settings.model.glossary_max_similarity}: leaves out every "
            "expression of the glossary, so there is nothing to learn: raise it"
        )
    unlearnt = encoder.idiom_tokens
    carriers = find_carriers(glossary, corpus, settings.sentences, meanings.left_out)

    start = time.monotonic()
    if glossary.senses:
        encoder.add_idiom_tokens(glossary.senses)
    learnt = encoder.idiom_tokens
    reached: dict[str, float] = done["reached"]
    vectors: dict[str, torch.Tensor] = done["vectors"]
    _put(encoder, vectors)
    todo = [name for name in glossary.senses if name not in reached]
    if len(todo) < len(glossary.senses):
        log.info("%d of %d expressions were learnt before: going on", len(reached), len(glossary.senses))
    with progress_bar("expressions", len(todo)) as advance:
        for chunk in (todo[i : i + _CHUNK] for i in range(0, len(todo), _CHUNK)):
            some = [carrier for name in chunk for carrier in carriers[name]]
            encoder.idiom_tokens = unlearnt
            goal = targets(encoder, some, meanings, teaching)
            encoder.idiom_tokens = learnt
            cosines = distil(encoder, some, goal, teaching)
            for name in chunk:
                own = [
                    c for c, carrier in zip(cosines.tolist(), some, strict=True) if carrier.expression == name
                ]
                reached[name] = round(sum(own) / len(own), 4)
            vectors |= _rows(encoder, chunk)
            _save_state(output, facts, reached, vectors)
            advance(len(chunk))
            log.info("%d of %d expressions learnt", len(reached), len(glossary.senses))
    seconds = time.monotonic() - start
    if todo:
        log.info(
            "%d expressions learnt in %.0f s (%.1f s each); mean cosine with what they were to mean: %.3f",
            *(len(todo), seconds, seconds / len(todo), sum(reached.values()) / len(reached)),
        )
    _save(
        encoder, output, facts | {"reached": reached, "sentences_found": _found(carriers)}, glossary, settings
    )


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


def _open(output: Path, source: str, facts: dict[str, Any]) -> dict[str, Any]:
    """What an interrupted start with the same inputs has learnt; nothing for a new one.

    Raises:
        UserError: if the folder is the model's own, or holds something else.
    """
    new: dict[str, Any] = {"reached": {}, "vectors": {}}
    if Path(source).is_dir() and output.resolve() == Path(source).resolve():
        raise UserError(f"output={output}: is the model's own folder, which stays as it is: name another")
    if output.is_file():
        raise UserError(f"output={output}: is a file; name a new folder")
    if not output.exists() or not any(output.iterdir()):
        return new
    try:
        state = json.loads((output / _STATE).read_text(encoding="utf-8"))
        vectors = load_file(output / _VECTORS)
    except (OSError, ValueError, SafetensorError):
        if {path.name for path in output.iterdir()} <= _KEPT_MEANWHILE:  # cut off before the first was kept
            return new
        state, vectors = None, {}
    if not isinstance(state, dict) or state.get("facts") != json.loads(json.dumps(facts)):
        if (output / RECORD).is_file():
            raise UserError(
                f"output={output}: holds a finished model. To teach it more, give model={output} and another "
                "output="
            )
        raise UserError(f"output={output}: that folder holds something else: name another, or empty it")
    # One more may have vectors than is on record, where it was cut off in between: it is learnt again.
    reached = {name: value for name, value in state["reached"].items() if name in vectors}
    return {"reached": reached, "vectors": {name: vectors[name] for name in reached}}


def _save_state(
    output: Path, facts: dict[str, Any], reached: dict[str, float], vectors: dict[str, torch.Tensor]
) -> None:
    partial = output / f"{_VECTORS}.partial"
    output.mkdir(parents=True, exist_ok=True)
    save_file(vectors, partial)
    sync(partial)
    partial.replace(output / _VECTORS)
    write_json(output / _STATE, {"facts": facts, "reached": reached})


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
    encoder: Encoder, output: Path, record: dict[str, Any], glossary: Glossary, settings: LearnSettings
) -> None:
    encoder.save(output)
    write_json(output / RECORD, record | {"code": code_version()})
    write_text(output / "README.md", learnt_card(settings.model.model_dump(), glossary))
    seal(output)
    for name in _KEPT_MEANWHILE:
        (output / name).unlink(missing_ok=True)
