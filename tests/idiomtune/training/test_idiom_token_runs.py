"""Idiom tokens in runs: which expressions, how they are trained: with the rest, at their own rate, alone."""

import csv
import json
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch.nn import functional

from idiomtune import Encoder
from idiomtune.config import TrainSettings, validate
from idiomtune.data.idiolink import load_split
from idiomtune.data.semeval2022 import TRAIN_FILE
from idiomtune.encoder.idiom_tokens import FILE
from idiomtune.encoder.trained_parts import IdiomTokenRows
from idiomtune.errors import UserError
from idiomtune.glossaries.build import idiom_expressions
from idiomtune.training.objective import build_objective
from tests.idiomtune.encoder.test_idiom_tokens import rows
from tests.tiny_runs import WholeRun, composed, train


def expressions(*overrides: str) -> tuple[list[str], list[Path]]:
    settings = validate(TrainSettings, composed("train", *overrides))
    return idiom_expressions(settings.model, build_objective(settings))


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A folder of the task with three groups; the expression of the second is not as the table names it."""
    path = tmp_path / "semeval2022_task2b" / TRAIN_FILE
    path.parent.mkdir(parents=True)
    table = [
        ("home run", "She scored a Home Run there.", "She scored a clear win there.", "1"),
        ("home run", "She scored a Home Run there.", "She scored a house run there.", "None"),
        ("case study", "Two case studies were read.", "Two reports were read.", "1"),
        ("case study", "Two case studies were read.", "Two box studies were read.", "None"),
        ("big fish", "He is a big fish.", "He is somebody.", "1"),
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ID", "MWE1", "Language", "sentence_1", "sentence_2", "sim"])
        writer.writerows([[i, name, "EN", a, b, sim] for i, (name, a, b, sim) in enumerate(table)])
    return path.parents[2]


def test_the_training_datas_expressions(pairs: Path, sample_root: Path) -> None:
    """Those of a mixture's part, if it is named."""
    data = (f"data.semeval2022={pairs}", f"data.idiolink={sample_root}")
    tokens, part = "model.idiom_tokens=train", "model.idiom_tokens=train/adaptive_triplet"
    idioms = list(dict.fromkeys(d.idiom for d in load_split(sample_root, "train").documents))
    triplets = "objective=adaptive_triplet"
    assert expressions(triplets, *data, tokens) == (["home run", "case study"], [])
    every = expressions(triplets, "objective.groups=all", *data, tokens)[0]
    assert every == ["home run", "case study", "big fish"]
    assert expressions(*data, tokens) == (idioms, [])
    names = ("idiolink", "adaptive_triplet")
    both = ("objective=mixture", *(f"+objective.parts.{name}.objective={name}" for name in names))
    assert expressions(*both, *data, tokens)[0] == [*idioms, "home run", "case study"]
    assert expressions(*both, *data, part) == (["home run", "case study"], [])
    for chosen, wrong in ((both, "idiolonk"), ((triplets,), "adaptive_triplet")):
        with pytest.raises(UserError, match=f"no part {wrong}"):
            expressions(*chosen, *data, f"model.idiom_tokens=train/{wrong}")


def test_expressions_of_a_list_and_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "idioms.txt"
    path.write_text("home run\n\n  má-fé \n", encoding="utf-8")
    assert expressions("data=sample", f"model.idiom_tokens={path}") == (["home run", "má-fé"], [path])
    assert expressions("data=sample", "model.idiom_tokens=[home run,'má-fé']")[0] == ["home run", "má-fé"]
    for content, named in (("home run\n…\n", r"idioms\.txt, line 2: '…'"), ("\n", r"idioms\.txt")):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=named):
            expressions("data=sample", f"model.idiom_tokens={path}")
    with pytest.raises(UserError, match=r"none\.txt: there is no such file"):
        expressions("data=sample", f"model.idiom_tokens={tmp_path / 'none.txt'}")


def test_a_run_with_tokens_trains_and_saves_them(
    options: list[str], whole_run: WholeRun, tiny_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At their own rate: in six steps the rest moves by at most six times its own."""
    caplog.set_level("INFO")
    rates = ["trainer.learning_rate=1e-4", "trainer.idiom_tokens_learning_rate=1e-2"]
    run = whole_run([*options, "model.idiom_tokens=train", *rates])
    assert "6 expressions have 6 tokens; of " in caplog.text
    best = Encoder.from_pretrained(run / "best", device="cpu")
    assert best.idiom_tokens is not None
    names = [each[0] for each in best.idiom_tokens.expressions.values()]
    start = Encoder.from_pretrained(tiny_path, device="cpu")
    start.add_idiom_tokens(names)
    change = (rows(best) - rows(start)).abs()
    assert change[: -len(names)].max() <= 6.1e-4
    assert change[-len(names) :].mean() > 4e-3
    token = list(best.idiom_tokens.expressions)[-1]
    text = f"So {names[-1]} it is."
    plain = SentenceTransformer(str(run / "best"), device="cpu")
    theirs = plain.encode([f"So {token} it is."], convert_to_tensor=True)
    torch.testing.assert_close(best.encode([text]), theirs, atol=1e-6, rtol=0)
    assert FILE in (run / "best" / "README.md").read_text(encoding="utf-8")
    # The untrained model is the one that was named, without tokens.
    baselines = [json.loads((r / "baseline.json").read_text()) for r in (run, whole_run(options))]
    assert baselines[0] == baselines[1]


TOKENS = ["model.idiom_tokens=train", "trainer.max_steps=4", "forgetting.distillation=0"]


def with_tokens(tiny_path: Path, *expressions: str) -> Encoder:
    encoder = Encoder.from_pretrained(tiny_path, device="cpu", pooling="last2")
    encoder.add_idiom_tokens(expressions)
    return encoder


def steps(encoder: Encoder, factor: float | None, learning_rate: float) -> torch.Tensor:
    weight = dict(encoder.model.named_parameters())["0.model.embeddings.word_embeddings.weight"]
    optimizer = torch.optim.AdamW([weight], lr=learning_rate, weight_decay=0.1)
    if factor is not None:
        IdiomTokenRows(encoder, "x").scale_steps(optimizer, factor)
    for number in range(3):
        target = torch.randn(weight.shape, generator=torch.Generator().manual_seed(number))
        optimizer.zero_grad()
        functional.mse_loss(weight, target, reduction="sum").backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return rows(encoder).clone()


def test_a_factor_is_a_learning_rate_of_the_tokens_rows(tiny_path: Path) -> None:
    """As if each row had an optimizer with its own rate, decay included."""
    scaled, low, high = (
        steps(with_tokens(tiny_path, "home run", "red tape"), factor, rate)
        for factor, rate in ((20.0, 1e-3), (None, 1e-3), (None, 2e-2))
    )
    torch.testing.assert_close(scaled[:-2], low[:-2], rtol=0, atol=0)
    torch.testing.assert_close(scaled[-2:], high[-2:], rtol=1e-5, atol=1e-6)
    assert (scaled[-2:] - low[-2:]).abs().max() > 1e-2


def test_tokens_alone_leave_sentences_without_an_idiom_where_they_were(
    tmp_path: Path, triplet_options: list[str], tiny_path: Path
) -> None:
    run_options = [*triplet_options, *TOKENS, "trainer.only_idiom_tokens=true", "trainer.learning_rate=1e-2"]
    train(tmp_path, run_options)
    best = Encoder.from_pretrained(tmp_path / "best", device="cpu")
    start = Encoder.from_pretrained(tiny_path, device="cpu", pooling="last2")
    texts = ["They sat in the garden until it was dark.", "He got cold feet before the wedding."]
    before, after = ([e.encode([text])[0] for text in texts] for e in (start, best))
    torch.testing.assert_close(after[0], before[0], rtol=0, atol=0)
    assert (after[1] - before[1]).abs().max() > 1e-3
    ours, theirs = dict(best.model.named_parameters()), dict(start.model.named_parameters())
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name][: len(weight)], weight, rtol=0, atol=0)
