"""Sharded weights: two processes with half a model each compute, score and save what one computes."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from idiomtune import Encoder
from idiomtune.encoder.device import choose_device, start_processes
from idiomtune.encoder.sharding import Sharding, sharding_of_launch
from idiomtune.errors import UserError
from tests.doc_pages import blocks
from tests.idiomtune.training.test_processes import RUN, SEVERAL, succeeded
from tests.launches import launch
from tests.process_jobs import FSDP
from tests.programs import ROOT
from tests.tiny_runs import assert_same_run, files_of, resume, train


@pytest.fixture(scope="module")
def run_options(options: list[str]) -> list[str]:
    return [*options, SEVERAL, "trainer.max_steps=4", "eval.every=2"]


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory, run_options: list[str]) -> Path:
    """A run of two, sharded; what they said is in `said`."""
    folder = tmp_path_factory.mktemp("sharded") / "run"
    ended = succeeded(launch(2, RUN, folder=str(folder), options=run_options, environment=FSDP))
    (folder.parent / "said").write_text("\n".join(said for _, said in ended))
    return folder


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


def test_each_process_holds_its_share_and_what_is_published_is_a_plain_model(sharded: Path) -> None:
    found = re.findall(r"sharded: ([\d.]+) of ([\d.]+) million", (sharded.parent / "said").read_text())
    shares, (whole, _) = zip(*found, strict=True)
    assert sum(map(float, shares)) == pytest.approx(float(whole), rel=1e-3)
    assert max(map(float, shares)) == pytest.approx(float(whole) / 2, rel=0.02)
    texts = ["He broke the ice.", "Rain fell on the harbour all day long."]
    plain = torch.as_tensor(SentenceTransformer(str(sharded / "best"), device="cpu").encode(texts))
    torch.testing.assert_close(Encoder.from_pretrained(sharded / "best", device="cpu").encode(texts), plain)


def test_a_stopped_run_goes_on(sharded: Path, tmp_path: Path, run_options: list[str]) -> None:
    """Sharded, exactly; and in one process, to the same model."""
    stopped, alone = tmp_path / "stopped", tmp_path / "alone"
    ended = launch(2, RUN, folder=str(stopped), options=run_options, environment=FSDP, stop_in=1)
    assert all("after step 1" in said for _, said in ended), ended
    shutil.copytree(stopped, alone)
    succeeded(launch(2, RUN, folder=str(stopped), options=[], go_on=True, environment=FSDP))
    assert_same_run(stopped, sharded)
    resume(alone)
    assert_same_weights(alone / "best/model.safetensors", sharded / "best/model.safetensors", moved=6e-3)
    assert files_of(alone) == files_of(sharded)


@pytest.mark.parametrize(
    "remedies",
    [
        ["forgetting.lora.rank=4", "forgetting.lora.dropout=0.1", "trainer.gradient_caching=true"],
        # Between two steps too; and with weights that stay together after a forward pass.
        [
            *(
                "forgetting.weight_interpolation=0.7",
                "forgetting.distillation=0.5",
                "model.idiom_tokens=train",
            ),
            *("trainer.idiom_tokens_learning_rate=0.01", "eval.every=1"),
            "trainer.activation_checkpointing=true",
        ],
    ],
    ids=["adapters", "interpolation"],
)
def test_what_else_is_trained(tmp_path: Path, run_options: list[str], remedies: list[str]) -> None:
    """Remedies, where other weights are scored and saved than are trained."""
    options = [*run_options, *remedies, "trainer.max_steps=2"]
    train(tmp_path / "one", options)
    environment = FSDP | ({"FSDP_RESHARD_AFTER_FORWARD": "false"} if "eval.every=1" in remedies else {})
    succeeded(launch(2, RUN, folder=str(tmp_path / "two"), options=options, environment=environment))
    assert files_of(tmp_path / "two") == files_of(tmp_path / "one")

    for path in (tmp_path / "one" / "step_2").rglob("*.safetensors"):
        other = tmp_path / "two" / path.relative_to(tmp_path / "one")
        if path.name == "optimizer.safetensors":  # means of gradients, in which nothing is divided
            assert_same_moments(load_file(other), load_file(path))
        else:
            assert_same_weights(other, path, moved=0.02)  # of idiom tokens, which learn fastest
    ours, theirs = (json.loads((tmp_path / n / "scores.json").read_text()) for n in ("one", "two"))
    assert ours["scores"] == pytest.approx(theirs["scores"], abs=SCORE_TOLERANCE)


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
    ("name", "value", "expected"),
    [
        ("FSDP_VERSION", "1", "fsdp_version: 2"),
        ("FSDP_ACTIVATION_CHECKPOINTING", "true", r"trainer\.activation_checkpointing=true"),
        ("FSDP_AUTO_WRAP_POLICY", "SIZE_BASED_WRAP", "TRANSFORMER_BASED_WRAP"),
        ("ACCELERATE_USE_PARALLELISM_CONFIG", "true", "parallelism_config"),
    ],
)
def test_what_would_have_no_effect_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    for variable, given in (FSDP | {name: value}).items():
        monkeypatch.setenv(variable, given)
    with pytest.raises(UserError, match=expected):
        start_processes(choose_device("cpu", "fp32"))


def test_wishes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sharding_of_launch() is None
    wishes = {
        "RESHARD_AFTER_FORWARD": "false",
        "TRANSFORMER_CLS_TO_WRAP": "BertLayer",
        "OFFLOAD_PARAMS": "true",
    }
    for name, value in (FSDP | {f"FSDP_{name}": value for name, value in wishes.items()}).items():
        monkeypatch.setenv(name, value)
    assert sharding_of_launch() == Sharding(reshard_after_forward=False, blocks=("BertLayer",), offload=True)
    monkeypatch.delenv("FSDP_OFFLOAD_PARAMS")
    assert (
        start_processes(choose_device("cpu", "fp32"))[1].sharding is None
    )  # one process has the whole model
    assert os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "false"
