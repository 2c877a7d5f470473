"""Sharded weights: two processes with half a model each compute, score and save what one computes."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch import nn

from tests import process_jobs
from tests.doc_pages import blocks
from tests.launches import ROOT, Launches
from tests.process_jobs import FSDP
from tests.tiny_families import FAMILIES, tiny_checkpoint
from tests.tiny_runs import WholeRun, assert_same_run, composed, metrics, resume, train, weights
from tests.train.training.test_processes import SHORT, assert_close, experiment_options
from train.config import TrainSettings, check
from train.encoder.device import place, start_processes
from train.encoder.encoder import Encoder
from train.encoder.sharding import Sharding, sharding_of_launch
from train.errors import UserError
from train.training.step import parameter_groups, restore_optimizer

RUN = "tests.process_jobs:whole_run"


@pytest.fixture(scope="module")
def launches() -> Iterator[Launches]:
    started = Launches()
    yield started
    started.close()


def succeeded(ended: list[tuple[int, str]]) -> list[tuple[int, str]]:
    assert [status for status, _ in ended] == [0] * len(ended), ended
    return ended


# ------------------------------------------------------------------ gradients


def test_gradients_are_those_of_one_process(launches: Launches, tiny_path: Path, tmp_path: Path) -> None:
    """With dropout, masked negatives or mined triplets, in equal and unequal numbers of passes; the last also
    by way of what keeps a GPU's shards in main memory."""
    of_idiolink, of_triplets = (
        [*experiment_options(name, tiny_path), "trainer.max_steps=2"]
        for name in ("idiolink", "adaptive_triplet")
    )
    lean = [*of_idiolink, "trainer.activation_checkpointing=true"]
    jobs: list[dict[str, Any]] = [
        {"options": of_idiolink, "output": str(tmp_path / "two"), "cached": str(tmp_path / "cached")},
        {"options": lean, "output": str(tmp_path / "lean")},
        {"options": of_triplets, "output": str(tmp_path / "triplets"), "offloaded": True},
    ]
    sharded = [{**job, "sharded": True} for job in jobs]
    succeeded(launches(2, "tests.process_jobs:gradients_of_all", jobs=sharded))
    process_jobs.gradients(of_idiolink, str(tmp_path / "one"))
    process_jobs.gradients(of_triplets, str(tmp_path / "one_of_triplets"))
    for two, one in (("two", "one"), ("cached", "one"), ("lean", "one"), ("triplets", "one_of_triplets")):
        assert_close(load_file(tmp_path / two), load_file(tmp_path / one), two)


def test_who_has_no_texts_keeps_the_others_company(
    launches: Launches, tiny_path: Path, tmp_path: Path
) -> None:
    """One pass a step: two of three processes have nothing to embed."""
    options = [o for o in experiment_options("idiolink", tiny_path) if o != SHORT]
    options += ["model.tokens_per_forward=100000", "trainer.batch_size=2", "trainer.max_steps=2"]
    process_jobs.gradients(options, str(tmp_path / "one"))
    three = {"options": options, "output": str(tmp_path / "three"), "sharded": True}
    succeeded(launches(3, "tests.process_jobs:gradients", **three))
    assert_close(load_file(tmp_path / "three"), load_file(tmp_path / "one"))


def test_every_architecture_can_be_sharded(launches: Launches, tmp_path: Path) -> None:
    folders = [str(tiny_checkpoint(family, tmp_path / name)) for name, family in FAMILIES.items()]
    succeeded(launches(2, "tests.process_jobs:families", folders=folders))


# ------------------------------------------------------------------ whole runs


@pytest.fixture(scope="module")
def run_options(options: list[str]) -> list[str]:
    return [*options, SHORT]


@pytest.fixture(scope="module")
def one(whole_run: WholeRun, run_options: list[str]) -> Path:
    """A run of one process."""
    return whole_run(run_options)


@pytest.fixture(scope="module")
def sharded(launches: Launches, tmp_path_factory: pytest.TempPathFactory, run_options: list[str]) -> Path:
    """The same of two, sharded; what they said is in `said`."""
    folder = tmp_path_factory.mktemp("sharded") / "run"
    ended = succeeded(launches(2, RUN, folder=str(folder), options=run_options, environment=FSDP))
    (folder.parent / "said").write_text("\n".join(said for _, said in ended))
    return folder


def files_of(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


# Shards are summed in another order, so that two documents of nearly equal similarity may swap ranks, which
# changes a mean over the queries by less than this.
SCORE_TOLERANCE = 5e-3


def assert_same_weights(ours: Path, theirs: Path, moved: float) -> None:
    """After steps of Adam that were rounded differently.

    Adam divides each gradient by its own size. A gradient of the size of rounding moves its weight by up to a
    learning rate, in a direction that rounding decides; such gradients are few, wherever the run is computed.

    Args:
        moved: the sum of the steps' learning rates.
    """
    a, b = load_file(ours), load_file(theirs)
    assert a.keys() == b.keys()
    for key, expected in b.items():
        apart = (a[key] - expected).abs()
        num_other = int((apart > 1e-6 + 1e-3 * expected.abs()).sum())
        assert num_other <= 1 + expected.numel() // 50, (ours, key)
        assert float(apart.max()) <= 2 * moved, (ours, key)


def assert_same_moments(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    """Means of gradients and of their squares, which depend on rounding by the weights before them."""
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}
    for name, expected in theirs.items():
        assert float((ours[name] - expected).norm()) <= 1e-3 * float(expected.norm()) + 1e-7, name


def assert_close_runs(ours: Path, theirs: Path) -> None:
    for name in ("best/model.safetensors", "step_6/model.safetensors"):
        assert_same_weights(ours / name, theirs / name, moved=6e-3)
    scores = [json.loads((folder / "scores.json").read_text()) for folder in (ours, theirs)]
    for part in ("scores", "baseline"):
        assert scores[0][part] == pytest.approx(scores[1][part], abs=SCORE_TOLERANCE)
    for a, b in zip(metrics(ours), metrics(theirs), strict=True):
        assert a.get("loss", 0.0) == pytest.approx(b.get("loss", 0.0), rel=1e-5)
        assert a.get("grad_norm", 0.0) == pytest.approx(b.get("grad_norm", 0.0), rel=1e-4)
    assert files_of(ours) == files_of(theirs)


def test_a_run_is_that_of_one_process(one: Path, sharded: Path) -> None:
    assert_close_runs(sharded, one)
    for name in ("config.json", "modules.json"):  # with the names of classes
        assert (one / "best" / name).read_bytes() == (sharded / "best" / name).read_bytes()


def test_each_process_holds_its_share(sharded: Path) -> None:
    said = (sharded.parent / "said").read_text()
    found = re.findall(r"sharded: ([\d.]+) of ([\d.]+) million", said)
    shares, (whole, _) = zip(*found, strict=True)
    assert sum(map(float, shares)) == pytest.approx(float(whole), rel=1e-3)
    assert max(map(float, shares)) == pytest.approx(float(whole) / 2, rel=0.02)


def test_best_is_a_plain_model(sharded: Path) -> None:
    texts = ["He broke the ice.", "Rain fell on the harbour all day long."]
    plain = torch.as_tensor(SentenceTransformer(str(sharded / "best"), device="cpu").encode(texts))
    torch.testing.assert_close(Encoder.from_pretrained(sharded / "best", device="cpu").encode(texts), plain)


def test_one_process_loads_what_was_saved(one: Path, sharded: Path, run_options: list[str]) -> None:
    """All of the optimizer's state, bit for bit, each part for the parameter that it is of."""
    saved = load_file(sharded / "step_6" / "optimizer.safetensors")
    assert_same_moments(saved, load_file(one / "step_6" / "optimizer.safetensors"))
    encoder = Encoder.from_pretrained(sharded / "step_6", device="cpu")
    settings = check(TrainSettings, composed("config", *run_options))
    optimizer = torch.optim.AdamW(parameter_groups(encoder, nn.Module(), settings.trainer))
    restore_optimizer(optimizer, saved)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    num_checked = 0
    for number, p in enumerate(parameters):
        for name, value in optimizer.state.get(p, {}).items():
            assert torch.equal(value, saved[f"{number}.{name}"])
            assert name == "step" or value.shape == p.shape
            num_checked += 1
    assert num_checked == len(saved) > 50


def test_a_stopped_run_goes_on(
    launches: Launches, sharded: Path, tmp_path: Path, run_options: list[str]
) -> None:
    """Sharded, exactly; and in one process, to the same model."""
    stopped = tmp_path / "stopped"
    ended = launches(2, RUN, folder=str(stopped), options=run_options, environment=FSDP, stop_in=2)
    assert all("stopped after step 2, which is saved" in said for _, said in ended), ended
    shutil.copytree(stopped, tmp_path / "alone")
    succeeded(launches(2, RUN, folder=str(stopped), options=[], go_on=True, environment=FSDP))
    assert_same_run(stopped, sharded)
    resume(tmp_path / "alone")
    assert_close_runs(tmp_path / "alone", sharded)


@pytest.mark.parametrize(
    "remedies",
    [
        ["retain.lora.rank=4", "retain.lora.dropout=0.1", "trainer.gradient_caching=true"],
        [
            *("retain.interpolation=0.7", "retain.distillation=0.5", "model.idiom_tokens=train"),
            *("trainer.idiom_tokens_learning_rate=0.01", "eval.every=1"),
            "trainer.activation_checkpointing=true",
        ],
        pytest.param(["trainer.freeze_encoder=true", "benchmark=[admire]"], marks=pytest.mark.slow),
        pytest.param(["trainer.freeze_encoder=false", "benchmark=[admire]"], marks=pytest.mark.slow),
    ],
    ids=["adapters", "interpolation", "frozen", "experts"],
)
def test_what_else_is_trained(
    launches: Launches, tmp_path: Path, run_options: list[str], tiny_path: Path, remedies: list[str]
) -> None:
    """Remedies against forgetting, where other weights are scored and saved than are trained; between two
    steps too, with weights that stay together after a forward pass.
    """
    options = [*run_options, *remedies, "trainer.max_steps=2"]
    if "benchmark=[admire]" in remedies:  # weights of its own, which are whole in every process
        options = [*experiment_options("pairwise", tiny_path), *remedies, "trainer.max_steps=2"]
        options += ["trainer.dropout_masks=torch"]
    train(tmp_path / "one", options)
    environment = FSDP | ({"FSDP_RESHARD_AFTER_FORWARD": "false"} if "eval.every=1" in remedies else {})
    succeeded(launches(2, RUN, folder=str(tmp_path / "two"), options=options, environment=environment))
    assert files_of(tmp_path / "two") == files_of(tmp_path / "one")
    for path in (tmp_path / "one" / "step_2").rglob("*.safetensors"):
        other = tmp_path / "two" / path.relative_to(tmp_path / "one")
        if path.name == "optimizer.safetensors":  # means of gradients, in which nothing is divided
            assert_same_moments(load_file(other), load_file(path))
        else:
            assert_same_weights(other, path, moved=0.02)  # of idiom tokens, which learn fastest
    ours, theirs = (json.loads((tmp_path / n / "scores.json").read_text()) for n in ("one", "two"))
    assert ours["scores"] == pytest.approx(theirs["scores"], abs=SCORE_TOLERANCE)
    assert weights(tmp_path / "two" / "best").keys() == weights(tmp_path / "one" / "best").keys()


# ------------------------------------------------------------------ how it is asked for


def test_the_configuration_in_the_docs_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As accelerate's own launcher hands it on."""
    (config,) = (b for b in blocks(ROOT / "docs" / "cluster.md", "yaml") if "fsdp_config" in b)
    (tmp_path / "fsdp.yaml").write_text(config)
    arguments = ["--config_file", str(tmp_path / "fsdp.yaml"), "-m", "train"]
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        launch, *_ = _validate_launch_command(launch_command_parser().parse_args(arguments))
        environment = prepare_multi_gpu_env(launch)
    for name in ("ACCELERATE_USE_FSDP", *(n for n in environment if n.startswith("FSDP_"))):
        monkeypatch.setenv(name, environment[name])
    assert sharding_of_launch() == Sharding(reshard_after_forward=True)
    assert launch.num_processes == yaml.safe_load(config)["num_processes"] == 8


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({"FSDP_VERSION": "1"}, "set fsdp_version: 2"),
        ({"FSDP_OFFLOAD_PARAMS": "true"}, "fsdp_offload_params: true"),
        ({"FSDP_ACTIVATION_CHECKPOINTING": "true"}, r"trainer\.activation_checkpointing=true"),
        ({"FSDP_AUTO_WRAP_POLICY": "SIZE_BASED_WRAP"}, "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"),
        ({"FSDP_IGNORED_MODULES": "x"}, "fsdp_ignored_modules"),
        ({"ACCELERATE_USE_PARALLELISM_CONFIG": "true"}, "parallelism_config is not supported"),
    ],
)
def test_what_would_have_no_effect_is_refused(
    monkeypatch: pytest.MonkeyPatch, wishes: dict[str, str], expected: str
) -> None:
    for name, value in (FSDP | wishes).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=expected):
        start_processes(place("cpu", "fp32"))


def test_wishes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sharding_of_launch() is None
    wishes: dict[str, Any] = {"RESHARD_AFTER_FORWARD": "false", "TRANSFORMER_CLS_TO_WRAP": "BertLayer"}
    for name, value in (FSDP | {f"FSDP_{n}": v for n, v in wishes.items()}).items():
        monkeypatch.setenv(name, value)
    assert sharding_of_launch() == Sharding(reshard_after_forward=False, blocks=("BertLayer",))
    with monkeypatch.context() as patch:
        patch.setenv("FSDP_OFFLOAD_PARAMS", "true")
        asked = sharding_of_launch()
    assert asked is not None
    assert asked.offload
    _, alone = start_processes(place("cpu", "fp32"))
    assert alone.sharding is None  # one process has the whole model
    assert os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "false"
