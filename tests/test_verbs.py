"""From Python as from the command line: the same run, the same scores; data in memory; what results show."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra

import idiomtune as it
from tests.own_data import write, write_lines
from tests.programs import ROOT, refused, run
from tests.tiny_runs import KEY, assert_same_run

pytestmark = pytest.mark.usefixtures("in_folder")

PAIRS = [
    {"anchor": f"He {verb} the {noun}.", "positive": meaning, "span": f"{verb} the {noun}", "group": group}
    for group, (verb, noun) in enumerate([("missed", "boat"), ("broke", "ice"), ("spilled", "beans")])
    for meaning in ("He was late.", "He was too late for it.", "It was over.")
]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["options", "experts_options"])
def test_a_run_from_python_equals_the_commands(kind: str, request: pytest.FixtureRequest) -> None:
    """Weights, scores and steps bit for bit; and no state of Hydra's is left."""
    options: list[str] = request.getfixturevalue(kind)
    experiment = next(o.partition("=")[2] for o in options if o.startswith("+experiment="))
    others = [option for option in options if not option.startswith("+experiment=")]
    done = run("train", *options, "run_dir=shell", "trainer.max_steps=2", cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    trained = it.train(experiment, *others, run_dir="python", trainer={"max_steps": 2})
    assert_same_run(Path("shell"), Path("python"))
    assert trained.path == Path("python").absolute()
    assert dict(trained.scores) == json.loads(Path("shell/scores.json").read_text())["scores"]
    assert not GlobalHydra.instance().is_initialized()


@pytest.fixture
def trained(whole_run: Callable[[list[str]], Path], options: list[str]) -> it.Run:
    return it.Run(whole_run(options))


@pytest.mark.slow
def test_what_a_run_answers(trained: it.Run, tiny_path: Path) -> None:
    frame, key = trained.scores.to_pandas().set_index("score"), KEY
    assert [*frame.loc[key, ["value", "mode"]]] == [trained.scores[key], "sentence"]
    with pytest.raises(KeyError, match="nearest"):
        trained.scores["idiolink/val/sentence/ndcg"]
    compared = trained.compare()
    assert compared.differences[key].difference == pytest.approx(trained.scores[key] - trained.untrained[key])
    every = trained.examples(worst=10_000, score=key)
    assert every["after"].mean() == pytest.approx(trained.scores[key])
    assert every["before"].mean() == pytest.approx(trained.untrained[key])
    worst = trained.examples(worst=3, score=key)
    assert list(worst["difference"]) == sorted(worst["difference"])
    assert worst["after"].sub(worst["before"]).equals(worst["difference"])
    assert trained.best.encode(["He broke the ice."]).shape == (1, 32)
    for shown in (trained, trained.scores, compared):
        assert "sentence" in str(shown)
        assert "<table>" in shown._repr_html_()
    assert trained.plot().size[0] > 100
    with pytest.raises(it.UserError, match="no run"):
        it.Run(tiny_path)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_a_run_is_resumed_evaluated_and_judged(options: list[str]) -> None:
    """One run after another in one process; an error of one leaves nothing to the next."""
    others = [option for option in options if not option.startswith("+experiment=")]
    for wrong in ({"trainer": {"batch_size": 0}}, {"trainer": {"batch": 3}}):
        with pytest.raises(it.UserError, match="batch_size"):
            it.train("idiolink_ft", *others, **wrong)
    assert not Path("checkpoints").exists()
    it.check("idiolink_ft", *others)
    first = it.train("idiolink_ft", *others, trainer={"max_epochs": 1}, run_dir=Path("runs/a (1)"))
    again = first.resume(trainer={"max_epochs": 2})
    assert (again.path, again.status) == (first.path, "finished")
    chosen = ["split=val", "query_modes=[sentence]", "bm25_modes=[]"]
    words = [f"benchmark.idiolink.{option}" for option in chosen]
    scores = it.evaluate(again, ["idiolink"], *words, data="sample")
    assert scores[KEY] == again.scores[KEY]
    assert dict(it.evaluate(again.best, "idiolink", *words, data="sample")) == dict(scores)
    page = it.report(again, against="baseline", fail_below=[f"{KEY}:0.5", 0.9])
    assert (page.outcome, "idiolink" in page.path.read_text()) == ("passes", True)
    assert it.report(again).outcome is None
    page = it.explore(again, corpus=["He broke the ice.", "The ice broke."], device="cpu")
    assert "<iframe" in page._repr_html_()
    assert again.push("me/idioms", dry_run=True, license="mit", allow_sample=True) is None


def test_a_page_of_models_shows_itself_and_replaces_no_file(tiny_path: Path) -> None:
    """In the current folder; only a run's own page is replaced."""
    texts = ["He broke the ice.", "The ice broke.", "Nobody spoke."]
    Path("explore.html").write_text("mine")
    refused(lambda: it.explore(tiny_path, corpus=texts, device="cpu"), "explore.html")
    assert Path("explore.html").read_text() == "mine"
    Path("explore.html").unlink()
    page = it.explore(tiny_path, corpus=texts, device="cpu", neighbours=2)
    assert page.path == Path("explore.html")
    assert f'title="explore.html" srcdoc="{escape(page.path.read_text("utf-8"))}"' in page._repr_html_()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_own_data_in_memory(tiny_path: Path) -> None:
    """It lies next to the runs, by its digest, so that a run can be resumed."""
    data = pd.DataFrame(PAIRS)
    short = {"max_steps": 1, "batch_size": 3}
    same: dict[str, Any] = {"model": str(tiny_path), "device": "cpu", "eval": {"cache": False}}
    trained = it.train(data=data, val=PAIRS[:3], trainer=short, **same)
    config = json.loads((trained.path / "run.json").read_text())
    inputs = sorted(Path("checkpoints/inputs").glob("*.jsonl"))
    assert len(inputs) == 2
    assert {str(file.absolute()) for file in inputs} <= config["data"].keys()
    assert trained.resume(trainer={"max_steps": 2}).status == "finished"


def test_an_encoder_as_people_expect_it(tiny_path: Path) -> None:
    """By its name, with meanings in memory, spans by their dictionary form, texts compared and searched."""
    make: Any = partial(it.Encoder, tiny_path, device="cpu")
    plain = make()
    reads = make(glossary={"break the ice": "relax people"}, glossary_form="replace")
    assert not Path("checkpoints").exists()
    own = make(glossary="sample").meanings.senses
    both = make(glossary=["sample", {"no cap": "honestly", "Falcon": None}]).meanings.senses
    assert both == own | {"no cap": ["honestly"], "Falcon": []}
    replaced = plain.encode(["He relax people there."])
    assert torch.allclose(reads.encode(["He broke the ice there."]), replaced, atol=1e-6)
    texts = ["He broke the ice.", "Nobody spoke.", "She broke it."]
    by_form = plain.encode(texts[:1], ["break the ice"])
    assert torch.equal(by_form, plain.encode(texts[:1], [(3, 16)]))
    assert torch.allclose(plain.similarity(texts[0], texts), plain.similarity(plain.encode(texts))[:1])
    hits = plain.search("He broke the ice.", texts, k=2)
    assert hits[0].text == texts[0]
    assert hits[0].similarity == pytest.approx(1, abs=1e-5)
    assert hits[0].similarity >= hits[1].similarity
    assert plain.search("x", []) == []
    assert torch.equal(plain.encode(texts[0], "broke"), plain.encode(texts[:1], ["broke"])[0])
    assert plain.encode(texts[0], convert_to_numpy=True).shape == (plain.dimension,)
    stored = plain.encode(texts)
    for corpus, text in ((texts, texts[0]), (iter(texts), texts[0]), (stored.numpy(), "")):
        found = plain.search(stored[:2], corpus, k=1)
        assert [[hit.index for hit in hits] for hits in found] == [[0], [1]]
        assert found[0][0].text == text
    column = datasets.Dataset.from_dict({"text": texts})["text"]
    forms: list[Any] = [np.array(texts), np.array(texts, dtype=object), pd.Series(texts, index=[5, 6, 7])]
    forms += [pd.Series(texts, dtype="category"), tuple(texts), pa.chunked_array([texts]), column]
    for form in forms:
        assert torch.equal(plain.encode(form), stored)
        assert [hit.text for hit in plain.search(form, form)[1]][:1] == texts[1:2]
        assert torch.equal(plain.similarity(form), plain.similarity(texts, form))
        assert math.isnan(plain.usage(form, "ship")[0])
        assert [row.text for row in reads.find(form)] == [0]
    assert torch.equal(
        plain.encode(texts, pd.Series(["ice", None, None])), plain.encode(texts, ["ice", None, None])
    )
    (of_span,) = plain.search(texts[:1], texts, span=["broke the ice"])
    assert of_span == plain.search(texts[0], texts, span="broke the ice")
    assert make(tokens_per_forward=64).tokens_per_forward == 64
    with pytest.raises(TypeError, match="raw_spans"):
        it.Encoder(tiny_path, raw_spans=True)
    with pytest.raises(TypeError, match="pooling"):
        it.Encoder(plain.model, pooling="mean")


def test_the_package_shows_what_is_public_and_imports_fast() -> None:
    """No heavy library before it is used, though a module of the same name as a function is imported."""
    code = """
import sys, idiomtune.programs.report, idiomtune as it
assert callable(it.report) and callable(it.train), it.report
assert not {'torch', 'pandas', 'hydra', 'matplotlib'} & sys.modules.keys()
print(*dir(it))"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == sorted(it.__all__)
    assert all(getattr(it, name) for name in it.__all__)


IDIOMS = ["kick the bucket", "spill the beans", "break the ice", "hit the sack", "cut corners"]
IDIOMS += ["miss the boat"]
USES = [
    {"idiom": idiom, "text": f"{who} {idiom} {end}.", "sense": sense}
    for idiom in IDIOMS
    for sense, end in (("yes", "at last"), ("no", "in the barn"))
    for who in ("They", "We all")
]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_queries_of_own_data_are_shown_by_sentence_and_idiom(tiny_path: Path) -> None:
    """Not by a hash and the name of a file that nobody made; the card says that training did not help."""
    short: dict[str, Any] = {"eval": {"cache": False}, "trainer": {"max_steps": 1}}
    trained = it.train(data=USES, model=str(tiny_path), device="cpu", **short)
    examples = trained.examples(worst=5)
    assert set(examples["cluster"]) <= set(IDIOMS)
    assert set(examples["text"]) <= {row["text"] for row in USES}
    assert all(query.startswith("data.train, in memory row ") for query in examples.index)
    card = (trained.path / "best/README.md").read_text()
    scores, before = trained.scores, trained.untrained
    full = [key for key in scores if scores[key] == before[key] == 1.0]
    assert not any(f"name: {key}" in card for key in full)
    helped = trained.compare().differences["own_val/score"].verdict == "better"
    assert helped or "8 queries of 2 groups" in card


def test_a_check_writes_nothing_and_says_what_is_held_out(
    tiny_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    it.check(data=USES, model=str(tiny_path), device="cpu")
    assert not list(Path.cwd().iterdir())
    assert "rows in memory" in capfd.readouterr().out
    assert "8 of 24 rows" in caplog.text
    assert "data.val_share=0.1: whole groups" in caplog.text
    two_files = [USES, [{**row, "text": f"Well, {row['text']}"} for row in USES]]
    it.check("own", data={"train": two_files[0]}, val=two_files[1], model=str(tiny_path), device="cpu")
    assert not list(Path.cwd().iterdir())


@pytest.mark.slow
def test_an_interrupted_run_names_what_resumes_it_from_python(tiny_path: Path) -> None:
    """In Python's words, and without our insides in its traceback."""
    code = f"""
import os, signal, threading, time, traceback, idiomtune as it
from pathlib import Path
def stop():
    while not Path("runs/a/metrics.jsonl").exists():
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=stop, daemon=True).start()
try:
    trainer = dict(max_epochs=9999)
    it.train(data="rows.jsonl", model={str(tiny_path)!r}, device="cpu", run_dir="runs/a", trainer=trainer)
except KeyboardInterrupt as error:
    print("said", error)
    print("frames", len(traceback.extract_tb(error.__traceback__)), error.__cause__)
"""
    write_lines(Path("rows.jsonl"), USES)
    write(Path("script.py"), code)
    done = run("script.py", cwd=Path.cwd())
    said, frames = done.stdout.splitlines()[-2:]
    assert f"it.resume({str(Path.cwd() / 'runs/a')!r})" in said, done.stderr
    assert frames == "frames 2 None"


def test_a_table_that_has_changed_is_read_again(tiny_path: Path) -> None:
    path = write_lines(Path("pairs.jsonl"), PAIRS)
    it.check(data=path, model=tiny_path, device="cpu")
    path.write_text(json.dumps({"anchor": "a", "positive": "b"}) + "\n{}\n")
    with pytest.raises(it.UserError, match=r"(row|line) 2"):
        it.check(data=path, model=tiny_path, device="cpu")
