"""A step's memory, said before a run starts, and refused where it clearly cannot fit."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.tiny_runs import composed
from train.config import TrainSettings, check
from train.distributed import limits
from train.distributed.device import Placement, place
from train.distributed.limits import Memory, device_memory
from train.distributed.processes import Processes
from train.errors import UserError
from train.factory import build_objective
from train.objectives import Objective
from train.recipes import memory
from train.recipes.forecast import Forecast
from train.recipes.memory import check_memory, describe_memory, gigabytes

CPU, GPU = place("cpu", "fp32"), Placement("cuda", "bf16", "as a test has it")


@pytest.fixture(scope="module")
def settings(options: list[str]) -> TrainSettings:
    checked: TrainSettings = check(TrainSettings, composed("config", *options))
    return checked


@pytest.fixture(scope="module")
def objective(settings: TrainSettings) -> Objective:
    return build_objective(settings)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is free on any device, in bytes; to be changed."""
    found = [24 * 10**9]
    monkeypatch.setattr(memory, "device_memory", lambda _: Memory(24 * 10**9, found[0]))
    return found


def with_check(settings: TrainSettings, value: str) -> TrainSettings:
    return settings.model_copy(
        update={"trainer": settings.trainer.model_copy(update={"memory_check": value})}
    )


@pytest.mark.usefixtures("free")
def test_what_fits_is_said(
    settings: TrainSettings, objective: Objective, caplog: pytest.LogCaptureFixture
) -> None:
    """On a GPU; on a CPU only where it is not little."""
    caplog.set_level(logging.INFO)
    check_memory(settings, objective, CPU, Processes())
    assert not caplog.records
    check_memory(settings, objective, GPU, Processes())
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "of this GPU's 24 GB (24 GB free)" in record.message


def test_what_cannot_fit_is_refused_with_what_would(
    settings: TrainSettings, objective: Objective, free: list[int], options: list[str]
) -> None:
    needed = Forecast(settings, objective, CPU, Processes()).step().total
    free[0] = needed // 2
    with pytest.raises(UserError) as told:
        check_memory(settings, objective, CPU, Processes())
    assert "trainer.memory_check=warn" in str(told.value)
    proposed = re.findall(r"  - (.*): about", str(told.value))[0].split()
    assert "trainer.gradient_caching=true" in proposed
    check_memory(check(TrainSettings, composed("config", *options, *proposed)), objective, CPU, Processes())


def test_what_is_near_is_warned_of_and_all_else_if_asked(
    settings: TrainSettings,
    objective: Objective,
    free: list[int],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = Forecast(settings, objective, CPU, Processes()).step()
    monkeypatch.setattr(Forecast, "step", lambda *_: needed)
    monkeypatch.setattr(Forecast, "what_would_fit", lambda *_: [])
    for value, room in (("stop", 1.0), ("warn", 0.5), ("off", 0.5)):
        caplog.clear()
        free[0] = int(room * needed.total)
        check_memory(with_check(settings, value), objective, CPU, Processes())
        assert [record.levelno for record in caplog.records] == [logging.WARNING] * (value != "off")
    with pytest.raises(UserError, match="a smaller model or a larger device"):
        check_memory(settings, objective, CPU, Processes())
    swap = Memory(24 * 10**9, free[0], swap=needed.total // 2)
    monkeypatch.setattr(memory, "device_memory", lambda _: swap)
    check_memory(settings, objective, CPU, Processes())


def test_on_a_gpu_shards_are_proposed(settings: TrainSettings, objective: Objective) -> None:
    forecast = Forecast(settings, objective, GPU, Processes())
    names = [name for name, _ in forecast.what_would_fit(10**12)]
    assert any("retain.lora.rank" in name for name in names)
    assert any("sharded over 2 GPUs" in name for name in names)
    assert any("fsdp_offload_params" in name for name in names)


def test_a_check_says_both_devices(settings: TrainSettings, objective: Objective) -> None:
    here, there, operations = describe_memory(settings, objective, CPU)
    assert "this machine's" in here
    assert "weights" in here
    assert "on a GPU in bfloat16 about" in there
    assert "operations" in operations


def test_a_model_that_cannot_be_predicted_is_trained_all_the_same(
    settings: TrainSettings, objective: Objective, free: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no meta kernel")

    monkeypatch.setattr("train.training.memory.measure_pass", fail)
    free[0] = 1000
    check_memory(settings, objective, CPU, Processes())
    (line,) = describe_memory(settings, objective, CPU)
    assert "cannot be predicted" in line


def test_a_model_out_of_reach_is_left_to_the_run(
    settings: TrainSettings, objective: Objective, free: list[int], tmp_path: Path
) -> None:
    """A resumed run does not load it again, and a check of the data needs none."""
    model = settings.model.model_copy(update={"path": str(tmp_path / "gone")})
    away = settings.model_copy(update={"model": model})
    free[0] = 1000
    check_memory(away, objective, CPU, Processes())
    (line,) = describe_memory(away, objective, CPU)
    assert "cannot be predicted" in line
    assert str(tmp_path / "gone") in line


def test_advice_that_fails_stops_nothing(
    settings: TrainSettings,
    objective: Objective,
    free: list[int],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free[0] = Forecast(settings, objective, CPU, Processes()).step().total
    monkeypatch.setattr(Forecast, "what_would_fit", Mock(side_effect=UserError("no linear layers")))
    check_memory(settings, objective, CPU, Processes())
    (record,) = caplog.records
    assert record.levelno == logging.WARNING


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What files that were read occupy is free; processes of one machine share."""
    meminfo = "MemTotal:       16000 kB\nMemFree: 1 kB\nMemAvailable:   8000 kB\nSwapFree: 400 kB\n"
    (tmp_path / "meminfo").write_text(meminfo)
    monkeypatch.setattr(limits, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(limits, "_CGROUP", tmp_path)
    monkeypatch.setattr(limits, "_OWN_CGROUP", tmp_path / "none")
    assert device_memory("cpu") == Memory(16000 * 1024, 8000 * 1024, 400 * 1024)
    (tmp_path / "memory.max").write_text("5000000\n")
    (tmp_path / "memory.current").write_text("4000000\n")
    (tmp_path / "memory.stat").write_text("anon 7\ninactive_file 600000\nactive_file 400000\n")
    assert device_memory("cpu") == Memory(5000000, 2000000)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert device_memory("cpu") == Memory(2500000, 1000000)
    (tmp_path / "memory.max").write_text("max\n")
    assert device_memory("cpu") == Memory(8000 * 1024, 4000 * 1024, 200 * 1024)


def test_the_limit_of_a_clusters_job_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of a control group around the process', whose own has none."""
    (tmp_path / "meminfo").write_text("MemTotal: 16000 kB\nMemAvailable: 8000 kB\n")
    (tmp_path / "own").write_text("4:memory:/old\n0::/slurm/job_1/step_0\n")
    job, step = tmp_path / "slurm" / "job_1", tmp_path / "slurm" / "job_1" / "step_0"
    step.mkdir(parents=True)
    for group, most, used in ((job, "3000000", "1000000"), (step, "max", "900000")):
        (group / "memory.max").write_text(most)
        (group / "memory.current").write_text(used)
        (group / "memory.stat").write_text("anon 5\n")
    for name, there in (("_MEMINFO", "meminfo"), ("_CGROUP", ""), ("_OWN_CGROUP", "own")):
        monkeypatch.setattr(limits, name, tmp_path / there)
    assert device_memory("cpu") == Memory(3000000, 2000000)


def test_what_torch_keeps_of_freed_tensors_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a sweep's earlier run."""
    for name, value in (("mem_get_info", (5, 24)), ("memory_reserved", 17), ("memory_allocated", 3)):
        monkeypatch.setattr(f"torch.cuda.{name}", Mock(return_value=value))
    assert device_memory("cuda") == Memory(24, 19)
    for name, value in (("recommended_max_memory", 20), ("current_allocated_memory", 3)):
        monkeypatch.setattr(f"torch.mps.{name}", Mock(return_value=value))
    assert device_memory("mps") == Memory(20, 17, swap=14)


@pytest.mark.parametrize(
    ("size", "said"), [(21e6, "0.021 GB"), (3.14e9, "3.1 GB"), (23.6e9, "24 GB"), (114e9, "114 GB")]
)
def test_sizes_are_short(size: float, said: str) -> None:
    assert gigabytes(size) == said
