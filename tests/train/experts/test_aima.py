"""AIMA as printed: its parts by hand, then whole runs with tiny models of the published classes."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from tests.tiny_bart import save_tiny_bart
from tests.tiny_clip import save_tiny_clip
from tests.tiny_runs import assert_same_run, at_loss, composed, metrics, resume, train
from train.config import EvaluateSettings, TrainSettings, check
from train.data.admire import read_items
from train.data.sources import SAMPLE_ROOT
from train.errors import Interrupted, UserError
from train.experts.aima import AimaSystem, RankingNetwork, load_aima
from train.experts.captions import CaptionOptions, Captions
from train.experts.clip import ClipTowers
from train.experts.heads import FOLDER
from train.expressions import plain_expression
from train.factory import build_objective
from train.objectives.aima import AimaObjective, contrast_loss
from train.recipes.evaluate import score_model

ITEMS = read_items(SAMPLE_ROOT / "admire", "train", check_images=True).items


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tiny_path: Path, minilm_path: str) -> list[str]:
    """The options that name tiny models in place of CLIP, BART and both BERTs."""
    folder = tmp_path_factory.mktemp("models")
    bert = tiny_path.parent / "bert"  # a plain one: its [CLS] is not normalised
    clip, bart = save_tiny_clip(folder / "clip"), save_tiny_bart(folder / "bart", minilm_path)
    return [
        *(f"model.path={bert}", f"objective.sense_encoder.path={bert}"),
        *(f"objective.clip.path={clip}", f"objective.captions.summariser={bart}"),
    ]


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDIOM_CACHE", str(tmp_path_factory.getbasetemp() / "aima_cache"))


def short(models: list[str], *more: str) -> list[str]:
    """Two epochs on the sample, of sentences of one file, in which captions are summarised."""
    return [
        *("+experiment=admire_aima", "data=sample", "benchmark=[admire]", "device=cpu", *models),
        "eval.cache=false",
        *("objective.astitch=[train_one_shot]", "objective.captions.words=6", "trainer.max_epochs=2"),
        *("trainer.learning_rate=1e-3", *more),
    ]


def built(options: list[str]) -> AimaObjective:
    objective = build_objective(check(TrainSettings, composed("config", *options)))
    assert isinstance(objective, AimaObjective)
    return objective


def system_of(objective: AimaObjective) -> AimaSystem:
    assert isinstance(objective.modules, AimaSystem)
    return objective.modules


def test_the_settings_are_the_papers() -> None:
    """The command of the documentation, which names the published models."""
    settings = check(TrainSettings, composed("config", "+experiment=admire_aima"))
    assert (settings.model.path, settings.model.pooling) == ("google-bert/bert-base-uncased", "cls")
    options = settings.objective.model_dump()
    assert options["clip"]["path"] == "openai/clip-vit-large-patch14"
    assert options["loss"]["rank"] == "pairwise_printed"
    assert options["captions"] == {"words": 60, "summariser": "facebook/bart-large-cnn", "revision": None}
    trainer = settings.trainer
    assert (trainer.learning_rate, trainer.modules_learning_rate) == (3e-6, None)
    assert (trainer.weight_decay, trainer.batch_size, trainer.max_epochs) == (1e-4, 4, 30)
    assert (trainer.schedule, trainer.warmup_ratio, trainer.clip_norm) == ("constant", 0.0, None)


def test_all_printed_sentences_are_learnt_from(
    models: list[str], real_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,645 of AStitch, repeated rows included, and an item's own; dev and test then test nothing."""
    monkeypatch.setenv("IDIOM_DATA", str(real_data))
    options = ["+experiment=admire_aima", *models, "objective.captions.summariser=null"]
    objective = built(options)
    assert "4695 sentences (4645 of AStitch)" in objective.describe()
    assert "captions cut after 60 words" in objective.describe()
    assert sum(map(len, objective.epoch_steps(0, 1))) == math.ceil(4695 / 4) + math.ceil(50 / 4)
    settings = check(TrainSettings, composed("config", *options))
    keys = settings.objective.score_keys(settings.splits)
    assert keys
    assert not [key for key in keys if "astitch" in key]


@pytest.mark.slow
def test_a_folds_compounds_are_nowhere_in_training(models: list[str]) -> None:
    fold = ["+protocol=cross_validation_admire", "data.fold=1", "data.folds=4"]
    objective = built([*short(models)[:1], *fold, *short(models)[1:]])
    compounds = {plain_expression(compound) for compound, _ in objective.idiom_sentences}
    assert "held out: 2 compounds of fold 1 of 4" in objective.describe()
    assert len({plain_expression(item.compound) for item in ITEMS} - compounds) == 2


def test_a_ranking_network_by_hand() -> None:
    """Nothing is normalised: twice the input is another score."""
    torch.manual_seed(0)
    network, vectors = RankingNetwork(2, 6, 4), list(torch.randn(2, 1, 5, 6))
    by_hand = network.score.bias.item()
    for number, vector in enumerate(vectors):
        hidden = functional.relu(network.inputs[number](vector[0, 3]))
        by_hand += (network.score.weight[0, 4 * number : 4 * number + 4] @ hidden).item()
    assert network(vectors)[0, 3].item() == pytest.approx(by_hand, abs=1e-6)
    assert not torch.allclose(network([2 * v for v in vectors]), network(vectors))


def test_the_contrast_by_hand() -> None:
    torch.manual_seed(0)
    v, right, wrong = torch.randn(3, 7, 5)
    terms = [
        1
        - math.cos(math.acos(functional.cosine_similarity(v[i], right[i], dim=0).item()))
        + max(0.0, functional.cosine_similarity(v[i], wrong[i], dim=0).item())
        for i in range(7)
    ]
    assert contrast_loss(v, right, wrong).item() == pytest.approx(sum(terms) / 7, abs=1e-5)


@pytest.mark.slow
def test_senses_come_first_then_items(models: list[str]) -> None:
    """Each sentence and each item once an epoch of its own; `beside`: both in every epoch."""
    for stage in ("first", "beside"):
        objective = built(short(models, f"objective.sense_encoder.stage={stage}"))
        num = len(objective._sentences)
        epochs = [[step for (step,) in objective.epoch_steps(epoch, 1)] for epoch in (0, 1)]
        steps = [step for epoch in epochs for step in epoch]
        assert len(epochs[0]) == len(epochs[1])
        kinds = [{anchor >= num for anchor in step} for step in steps]
        assert all(len(kind) == 1 for kind in kinds)
        anchors = sorted(anchor for step in steps for anchor in step)
        assert anchors == sorted(2 * list(range(num + len(ITEMS))))
        if stage == "first":
            assert kinds == sorted(kinds, key=lambda kind: True in kind)
        else:
            assert all({True} in kinds[i : i + len(epochs[0])] for i in (0, len(epochs[0])))


def test_each_kind_of_step_trains_its_own_weights(models: list[str]) -> None:
    """Ranking leaves the sense encoder alone, and by gold sense trains one expert; `beside` it does not."""
    for stage in ("first", "beside"):
        objective = built(short(models, f"objective.sense_encoder.stage={stage}"))
        system, num = system_of(objective), len(objective._sentences)
        sense_steps, ranked = (
            [0, 1, 2, num - 1],
            [num + i for i, it in enumerate(ITEMS) if it.sense == "idiomatic"],
        )
        batch = objective.batch(0, sense_steps)
        embeddings = torch.randn(4, 32, requires_grad=True)
        objective.loss(embeddings, batch).loss.backward()  # type: ignore[no-untyped-call]
        assert embeddings.grad is not None
        trained = {name for name, p in system.named_parameters() if p.grad is not None}
        assert {name.split(".")[0] for name in trained} == {"classifier", "sense_encoder"}
        system.zero_grad()
        batch = objective.batch(0, ranked)
        assert not batch.requests
        objective.loss(torch.zeros(0, 32), batch).loss.backward()  # type: ignore[no-untyped-call]
        trained = {".".join(n.split(".")[:2]) for n, p in system.named_parameters() if p.grad is not None}
        own = {"text_layers.0", "idiomatic.inputs", "idiomatic.score"}
        assert {name for name in trained if not name.startswith("sense_encoder")} == own
        assert bool(trained - own) == (stage == "beside")


def test_one_logit_decides_the_expert(models: list[str]) -> None:
    system = system_of(built(short(models)))
    with torch.no_grad():
        system.classifier.weight.zero_()
        system.classifier.bias.fill_(0.5)
        scores = system.eval()(ITEMS[:3], torch.randn(3, 1, 32))
        assert scores.sense.argmax(1).tolist() == [0, 0, 0]
        system.classifier.bias.fill_(-0.5)
        assert system(ITEMS[:3], torch.randn(3, 1, 32)).sense.argmax(1).tolist() == [1, 1, 1]
        torch.testing.assert_close(scores.by_expert[1], system.rank(ITEMS[:3], 1))


@pytest.mark.slow
def test_runs_reload_and_resume_bit_for_bit(
    tmp_path: Path, models: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parts are trained; cut in a ranking step, the run ends as the whole one; reloaded, it scores so."""
    options = short(models)
    train(tmp_path / "whole", options)
    lines = [line for line in metrics(tmp_path / "whole") if "loss" in line]
    num_ranking = sum("rank_loss" in line for line in lines)
    assert 0 < num_ranking < len(lines)
    at_loss(
        monkeypatch,
        len(lines) - num_ranking + 2,
        lambda: os.kill(os.getpid(), signal.SIGTERM),
        AimaObjective,
    )
    with pytest.raises(Interrupted):
        train(tmp_path / "cut", options)
    monkeypatch.undo()
    monkeypatch.setenv("IDIOM_CACHE", str(tmp_path.parent / "aima_cache"))
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    ours, theirs = (
        load_file(tmp_path / run / "best" / FOLDER / "experts.safetensors") for run in ("whole", "cut")
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)

    config = composed(
        *("evaluate", "data=sample", "device=cpu", "model=pretrained"),
        *(f"model.path={tmp_path / 'whole/best'}", "benchmarks=[admire]", "split=train"),
    )
    scores = score_model(check(EvaluateSettings, config), config)
    ran = json.loads((tmp_path / "whole" / "scores.json").read_text())
    assert "summarised by" in ran["meta"]["trained_on"]
    experts = {key: value for key, value in ran["scores"].items() if "experts_image" in key}
    assert "admire/train/experts_image/top1_accuracy" in experts
    assert {key: scores[key] for key in experts} == pytest.approx(experts)


@pytest.mark.slow
def test_beside_without_sense_encoder_and_by_plain_clip(tmp_path: Path, models: list[str]) -> None:
    """Each ablation and each loss by one option; the literal expert is CLIP as published, untrained."""
    varied = {
        "clip_cosine": ["objective.ablation=clip_cosine", "objective.loss.rank=listwise"],
        "no_sense_encoder": ["objective.ablation=no_sense_encoder", "objective.loss.rank=top1_printed"],
        "beside": ["objective.sense_encoder.stage=beside", "trainer.gradient_caching=true"],
    }
    for name, more in varied.items():
        train(tmp_path / name, short(models, *more, "trainer.max_epochs=1"))
        names = load_file(tmp_path / name / "best" / FOLDER / "experts.safetensors")
        parts = {key.split(".")[0] for key in names}
        assert ("sense_encoder" in parts) == (name != "no_sense_encoder")
        assert ("literal" in parts) == (name != "clip_cosine")
        assert (
            sum(key.startswith("idiomatic.inputs") for key in names)
            == ({"clip_cosine": 6, "no_sense_encoder": 6, "beside": 8}[name])
        )

    def load(path: str, trained_layers: int, revision: str | None) -> ClipTowers:
        return ClipTowers.from_pretrained(path, revision=revision, trained_layers=trained_layers)

    system = load_aima(tmp_path / "clip_cosine" / "best", load, lambda o: Captions(o, tmp_path)).eval()
    with torch.no_grad():
        clip = load(system.towers[0].path, 2, None)
        images = clip.images([c.path for c in ITEMS[0].candidates if c.path is not None])
        plain = torch.cosine_similarity(clip.texts([ITEMS[0].sentence]), images)
        torch.testing.assert_close(system.rank(ITEMS[:1], 1)[0], plain, atol=1e-6, rtol=0)


def test_twins_share_images_alone(models: list[str]) -> None:
    first, second = system_of(built(short(models))).towers
    own = {id(p) for p in first.module.parameters()}
    assert not own & {id(p) for p in second.module.parameters()}
    assert first._model.vision_model is second._model.vision_model
    torch.testing.assert_close(first.texts(["a dog"]), second.texts(["a dog"]))


def test_summaries_are_made_once(models: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short captions stay; a cached one needs no model; a damaged file is made anew."""
    path = models[-1].partition("=")[2]
    options = CaptionOptions(4, path)
    long, short_one = "one two three four five six", "a small dog"
    captions = Captions(options, tmp_path)
    (file,) = captions.prepare([long, short_one])
    summary = captions(long)
    assert captions(short_one) == short_one
    assert 0 < len(summary.split()) <= 4
    assert json.loads(file.read_text(encoding="utf-8")).keys() == {long}

    def fail(*_: object) -> None:
        raise AssertionError("the summariser is loaded again")

    monkeypatch.setattr("train.experts.captions.load_pretrained", fail)
    again = Captions(options, tmp_path)
    assert again.prepare([long]) == [file]
    assert again(long) == summary
    monkeypatch.undo()
    content = file.read_bytes()
    file.write_bytes(b"{}")
    assert Captions(options, tmp_path).prepare([long]) == [file]
    assert file.read_bytes() == content


def test_without_the_summariser_captions_are_cut_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    captions = Captions(CaptionOptions(3, str(tmp_path / "no_bart")), tmp_path)
    assert captions.prepare(["one two three four"]) == []
    assert captions("one two three four") == "one two three"
    assert "objective.captions.summariser" in caplog.text
    assert "1 captions cut after 3 words" in captions.note
    assert captions.prepare(["short"]) == []


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        (["objective.clip.path=null"], "clip.path"),
        (["trainer.max_epochs=2", "objective.sense_encoder.epochs=3"], r"sense_encoder\.epochs=3"),
        (["objective.ablation=none_such"], "ablation"),
    ],
)
def test_settings_that_do_not_fit(wrong: list[str], option: str) -> None:
    with pytest.raises(UserError, match=option):
        check(TrainSettings, composed("config", "+experiment=admire_aima", *wrong))


def test_a_wrong_sense_encoder_is_named(models: list[str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"objective\.sense_encoder\.path="):
        built(short(models, f"objective.sense_encoder.path={tmp_path}"))
