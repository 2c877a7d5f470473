"""`idiomtune learn`: a glossary into a model, so that its expressions embed as their meanings do.

By default all weights are trained: the model that reads the glossary, with a gate that weighs meanings by
usage, is the teacher of the model that reads none. Or each expression becomes a token, which is trained while
the encoder is frozen: every text without such an expression keeps its embedding bit for bit.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from idiomtune.benchmarks import Benchmark, Embed, Result, Score
from idiomtune.benchmarks.suite import Suite
from idiomtune.config import LearnSettings, ModelSettings, TrainerSettings
from idiomtune.config.sections import LoraSettings
from idiomtune.data.magpie import project_sentences
from idiomtune.data.usages import labelled_usages
from idiomtune.data.user.texts import read_texts
from idiomtune.encoder.device import DeviceAndPrecision, choose_device, log_placement, start_processes
from idiomtune.encoder.loading import resolve_model_path
from idiomtune.encoder.trained_parts import Adapters, IdiomTokenRows
from idiomtune.errors import UserError
from idiomtune.expressions import plain_expression
from idiomtune.glossaries.build import build_encoder
from idiomtune.glossaries.choose import with_gate
from idiomtune.glossaries.encoder import GlossaryEncoder
from idiomtune.glossaries.learning import (
    NEUTRAL,
    find_sentences,
    log_sentences,
    measure,
    other_sentences,
    plain_requests,
    report_changes,
    targets,
    without_common_words,
)
from idiomtune.glossaries.meanings import GlossaryReader
from idiomtune.glossaries.records import learned_glossaries
from idiomtune.glossaries.tables import Glossary, glossary_path, read_glossary
from idiomtune.hub.model_card import learned_card
from idiomtune.io.files import (
    code_version,
    fingerprint,
    fingerprints,
    is_file,
    list_names,
    user_path,
    write_json,
    write_text,
)
from idiomtune.io.outputs import reserved_output
from idiomtune.io.records import LEARNED, readable_record
from idiomtune.io.run_files import checkpoints
from idiomtune.objectives.goals import GoalObjective
from idiomtune.plugins.models import CONF, model_settings_of
from idiomtune.requests import EmbeddingRequest
from idiomtune.training.forgetting import ADAPTER, Remedies
from idiomtune.training.interrupts import explaining_errors
from idiomtune.training.loop import train_loop
from idiomtune.training.resume import start_or_resume
from idiomtune.training.run_folder import RunFolder
from idiomtune.training.step import Trainer

log = logging.getLogger(__name__)

_LITERAL = 0.3  # unless a gate, or a model trained with meanings after expressions, tells literal uses apart
_PART = 128  # texts of a micro-step into tokens, whose steps are of all texts
_BATCH_SIZE = 64  # embeddings of a step into weights
_SCORE_EVERY = 10  # steps, or an epoch if that is longer
_EPOCHS, _MIN_STEPS = 4, 150  # into weights: from few sentences more epochs, until there are these steps
_DEFAULTS = {
    "tokens": {"sentences": 16, "steps": 30, "learning_rate": 0.01},
    "weights": {"sentences": 64, "learning_rate": 4e-4},
}
_MIN_SENTENCES = 8  # into weights: an expression with fewer gets neutral ones
_MIN_NEUTRAL = 200  # texts without an expression that are trained on with fewer sentences
# Sentences of an expression → R-Precision by sentence, in percent, of MiniLM (docs/results/idioms.md)
_CURVE = {0: 20, 1: 31, 2: 33, 4: 41, 8: 50}
_RUN = "run"  # the folder of the training, as long as it is not finished
_RECIPE = 6  # of what is learned: what another version began is not resumed
# Options that are on record, and that the same command must repeat to resume.
_HOW = (
    *("into", "steps", "epochs", "precision", "literal", "remove", "sentences", "learning_rate"),
    *("teacher", "rank", "weight_interpolation"),
)


def learn(settings: LearnSettings) -> Path:
    """Make a model learn the expressions of a glossary, and save it as a plain sentence-transformers model.

    The same command resumes an interrupted start.

    Returns:
        The folder of the new model. The old one is not touched.

    Raises:
        UserError: for everything that the user can fix.
        KeyboardInterrupt: at SIGINT or SIGTERM.
    """
    if settings.output is not None:
        output = user_path(settings.output, "output")
    else:  # a name that the same command gives again, so that it resumes
        names = [Path(path).stem for path in (settings.model.path, *settings.glossary)]
        output = Path("checkpoints/learned") / "_".join(names or ["model"])
    defaults = _DEFAULTS[settings.into]
    chosen = {name: getattr(settings, name) or default for name, default in defaults.items()}
    claim = reserved_output("output", output, record=LEARNED, resumed=(_RUN,))
    with claim as folder, explaining_errors("repeat the command to resume it"):
        _learn(settings.model_copy(update=chosen), folder)
    return output


def _learn(settings: LearnSettings, folder: Path) -> None:
    # ---- what is learned, and from what
    glossary = read_glossary([glossary_path(name, "glossary") for name in settings.glossary])
    path = None if settings.corpus is None else user_path(settings.corpus, "corpus")
    if path is not None and not is_file(path):
        raise UserError("there is no such file", option="corpus", file=path)
    corpus = [] if path is None else [text for text, *_ in read_texts(str(path), "corpus")]
    teaching = None if settings.teacher is None else model_settings_of(settings.teacher)
    models = [settings.model] if teaching is None else [settings.model, teaching]
    sources = [Path(resolve_model_path(model.path)) for model in models]
    facts = {
        "recipe": _RECIPE,
        "model": settings.model.path,
        "options": settings.model.model_dump(exclude={"path", "about", "tokens_per_forward"}),
        "weights": fingerprints(file for path in sources for file in sorted(path.rglob("*.safetensors"))),
        "glossary": glossary.describe(),
        "corpus": None if path is None else fingerprint(path),
        **{name: getattr(settings, name) for name in _HOW},
    }
    run = RunFolder(folder.parents[1] / _RUN)
    _refuse_another(run.path, facts)
    glossary.log_notes()
    ordinary = project_sentences()
    glossary = without_common_words(glossary, ordinary)

    # ---- the model, and how it reads meanings
    # Tokens are few, so their gradients are kept exact.
    precision = settings.precision if settings.into == "weights" else "fp32"
    placement = choose_device(
        settings.device, precision, readable_record(run.path / "run.json").get("precision")
    )
    log_placement(placement)
    encoder = build_encoder(settings.model, placement)
    transformer: Any = encoder.transformer  # a static model has none, and raises
    teacher = encoder if teaching is None else build_encoder(teaching, placement)
    if teacher.dimension != encoder.dimension:
        problem = (
            f"its embeddings have {teacher.dimension} dimensions, those of the model {encoder.dimension}"
        )
        raise UserError(problem, option="teacher")
    trained = teacher.meanings  # what the model was trained to read
    if trained is not None:
        log.info(
            "the new model will not read this model's own glossary (%d expressions)", len(trained.senses)
        )
    encoder.meanings = teacher.meanings = None
    _drop_tokens(encoder, settings.remove, glossary)
    meanings = glossary.meanings()
    if settings.into == "weights":
        meanings = _weigh(teacher, meanings, trained, settings.model)
    in_place = meanings.gate is None and (trained is None or trained.form == "replace")
    if in_place:
        meanings = meanings.override(form="replace")

    # ---- sentences, what they should embed as, and the training
    is_whole = settings.into == "weights"
    searched, num_frames = ([*corpus, *ordinary], _MIN_SENTENCES) if is_whole else (corpus, len(NEUTRAL))
    contexts = find_sentences(glossary, searched, settings.sentences or 0, num_frames)
    counts = dict.fromkeys(glossary.senses, 0)
    for context in contexts:
        counts[context.expression] += context.is_found
    record: dict[str, Any] = {"precision": placement.precision, "sentences_found": counts}
    model = Remedies(encoder)
    if contexts:
        log_sentences(counts)
        if is_whole and min(counts.values()) < max(_CURVE):
            curve = ", ".join(f"{score} % with {number}" for number, score in _CURVE.items())
            log.info("sentences of an expression count: R-Precision was %s (docs/results/idioms.md)", curve)
        # The share of the unchanged sentence in what is learned; 0 where literal uses are known apart.
        share = settings.literal if settings.literal is not None else _LITERAL * in_place
        literal = {name: 0.0 if name in glossary.never_literal else share for name in glossary.senses}
        requests = plain_requests(contexts)
        num_neutral = max(len(contexts), _MIN_NEUTRAL) if is_whole else 0
        own = [*ordinary, *map(meanings.meaning, glossary.senses)]
        neutral, unseen = other_sentences(corpus, own, meanings, num_neutral) if is_whole else ([], [])
        project = {*ordinary}
        neutral.sort(key=lambda request: request.text in project)
        num_moved = sum(request.text not in project for request in neutral)
        log.info("the model that reads the glossary embeds %d sentences", len(contexts))
        with torch.no_grad(), placement.autocast():
            goals = targets(teacher, contexts, meanings, literal)
            benchmark = GoalBenchmark(requests, goals)
            # Those of the corpus, and meanings, lie among what is learned, so they follow the teacher, too.
            bare = teacher.reading(None)
            for source, texts in ((bare, neutral[:num_moved]), (encoder, neutral[num_moved:])):
                if texts:
                    goals = torch.cat([goals, normalize(source(texts).float(), dim=1)])  # (N, D)
        uses = teacher.reading(meanings).find([context.text for context in contexts])
        literal_uses = {(use.text, use.span) for use in uses if use.usage < 0.5}  # none without a gate
        usages = ["literal" if (i, c.span) in literal_uses else "idiomatic" for i, c in enumerate(contexts)]
        before = measure(encoder, contexts, meanings, unseen)
        if is_whole:
            transformer.get_input_embeddings().requires_grad_(False)
        else:
            encoder.add_idiom_tokens([*glossary.senses], forms=glossary.forms)
            IdiomTokenRows(encoder, "into=tokens", glossary.senses).train_rows_only()
        recipe = _recipe(settings, requests + neutral)
        weights = torch.ones(len(goals))
        weights[len(requests) :] = max(1.0, len(requests) / max(1, 2 * len(neutral)))  # a third of the loss
        objective = GoalObjective(
            requests + neutral, goals, batch_size=recipe.batch_size, seed=0, weights=weights
        )
        model = _train(encoder, objective, benchmark, settings, recipe, run, placement, facts)
        with model.exported_weights():
            after = measure(encoder, contexts, meanings, unseen)
        record |= report_changes(contexts, usages, before, after)

    # ---- the new model, its record and its card
    if earlier := learned_glossaries(settings.model):
        record["learned_before"] = earlier
    with model.exported_weights():
        encoder.save(folder, overwrite=True)
    if model.adapters is not None:
        model.adapters.save(folder / ADAPTER)
    write_json(folder / LEARNED, facts | record | {"code": code_version()})
    card = learned_card(
        settings.model.model_dump(),
        glossary.describe(),
        glossary.senses,
        settings.into,
        has_corpus=settings.corpus is not None,
        teacher=None if teaching is None else teaching.model_dump(),
    )
    write_text(folder / "README.md", card)


def _refuse_another(run: Path, facts: Mapping[str, Any]) -> None:
    """Refuse to resume a run that another command began.

    Raises:
        UserError: naming what differs.
    """
    recorded, current = readable_record(run / "config.yaml").get("learned", {}), json.loads(json.dumps(facts))
    if (changed := [name for name in current if recorded.get(name) != current[name]]) and checkpoints(run):
        raise UserError(
            f"output: another command with this output was interrupted ({', '.join(changed)} differ): "
            f"repeat that one to resume it, name another output, or delete {run.parent}"
        )


def _drop_tokens(encoder: GlossaryEncoder, removed: Sequence[str], glossary: Glossary) -> None:
    """Drop the tokens of expressions that are removed or learned anew.

    Raises:
        UserError: for an expression to remove that has no token; if nothing is removed or learned.
    """
    tokens = encoder.idiom_tokens
    learned = [name for names in tokens.expressions.values() for name in names] if tokens else []
    plain = set(map(plain_expression, learned))
    if unknown := [name for name in removed if plain_expression(name) not in plain]:
        has = f"it has tokens for {list_names(learned)}" if learned else "it has no tokens of expressions"
        raise UserError(f"remove: the model has no token for {list_names(unknown)}; {has}")
    if not glossary.senses and not removed:
        raise UserError(
            "there is no expression with a meaning, so there is nothing to learn", option="glossary"
        )
    if tokens is not None:
        encoder.idiom_tokens = tokens.drop([*removed, *glossary.senses])


def _weigh(
    encoder: GlossaryEncoder, meanings: GlossaryReader, trained: GlossaryReader | None, model: ModelSettings
) -> GlossaryReader:
    """The teacher's meanings: in its trained form, else in place; with a gate.

    Args:
        trained: what the model was trained to read.
    """
    if trained is not None:
        gate = None if model.glossary_gate is False else trained.gate
        meanings = meanings.override(form=trained.form, gate=gate)
    elif model.glossary_gate is None:  # without a gate an untrained model takes literal uses for idiomatic
        model = model.model_copy(update={"glossary_gate": True})
    return with_gate(encoder, meanings, model, labelled_usages, is_trained=trained is not None)


# ------------------------------------------------------------------ the training


class GoalBenchmark(Benchmark):
    """The mean cosine of requests with their goals: `learned/cosine`.

    Args:
        requests: R of them.
        goals: (R, D), what they should embed as.
    """

    name = "learned"

    def __init__(self, requests: Sequence[EmbeddingRequest], goals: Tensor) -> None:
        self._requests, self._goals = requests, goals.cpu()

    @property
    def requests(self) -> Sequence[EmbeddingRequest]:
        return self._requests

    def score(self, embed: Embed, /) -> Result:
        """The mean over all of them."""
        mean = cosine_similarity(embed(self._requests), self._goals).mean().item()
        return Result([Score(self.name, "", "", "cosine", value=mean)])


def _train(
    encoder: GlossaryEncoder,
    objective: GoalObjective,
    benchmark: GoalBenchmark,
    settings: LearnSettings,
    recipe: TrainerSettings,
    run: RunFolder,
    placement: DeviceAndPrecision,
    facts: Mapping[str, Any],
) -> Remedies:
    """Train what requires gradients of the encoder, or go on with that."""
    accelerator, processes = start_processes(placement)
    config = {
        "model": settings.model.model_dump(),
        "trainer": recipe.model_dump(),
        "seed": 0,
        "learned": facts,
    }
    resume, precision = bool(checkpoints(run.path)), placement.precision
    checkpoint = start_or_resume(run, config, "learn", resume=resume, precision=precision)
    adapters = None
    if settings.rank is not None:
        lora = LoraSettings(rank=settings.rank, alpha=None, dropout=0.0, target_modules=None)
        adapters = Adapters(encoder, lora, seed=0, base_model=settings.model.path)
    model = Remedies(encoder, settings.weight_interpolation, adapters)
    if checkpoint is not None and (adapters or settings.weight_interpolation != 1.0):
        model.load(checkpoint)
    elif checkpoint is not None:
        encoder.load_state_dict(build_encoder(settings.model, placement, checkpoint).state_dict())
    trainer = Trainer(
        run,
        accelerator,
        processes,
        recipe,
        model,
        objective,
        Suite([benchmark], processes),
        seed=0,
        score_every=max(_SCORE_EVERY, len(objective.epoch_steps(0, recipe.accumulation))),
        dropout=False,
        checkpoint=checkpoint,
    )
    train_loop(trainer)
    return model


def _recipe(settings: LearnSettings, requests: Sequence[EmbeddingRequest]) -> TrainerSettings:
    """The recipe: a step into tokens is of all texts, into weights of few; its rate falls to 0."""
    num_texts = len({request.text for request in requests})
    options: dict[str, Any] = {"learning_rate": settings.learning_rate, "weight_decay": 0.0}
    if settings.into == "tokens":
        num_parts = -(-num_texts // _PART)
        options |= {"max_epochs": settings.steps, "accumulation": num_parts, "batch_size": num_parts * _PART}
        options |= {"schedule": "cosine", "warmup_ratio": 0.0, "clip_norm": None}
    else:
        num_steps = min(-(-len(requests) // _BATCH_SIZE), num_texts)
        epochs = settings.epochs or max(_EPOCHS, -(-_MIN_STEPS // num_steps))
        options |= {"max_epochs": epochs, "batch_size": -(-num_texts // num_steps)}
    options |= {"monitor": ["learned/cosine"], "patience": None, "keep_checkpoints": 1}
    defaults = yaml.safe_load((CONF / "trainer" / "default.yaml").read_text(encoding="utf-8"))
    return TrainerSettings.model_validate(defaults | options)
