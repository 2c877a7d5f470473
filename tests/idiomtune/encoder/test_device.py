"""Device and precision: what `auto` becomes on each kind of machine, and what is refused."""

import os
from unittest.mock import Mock, call

import pytest
import torch

from idiomtune.encoder import device as device_module
from idiomtune.encoder.device import choose_device, keep_freed_memory, log_placement, times_as_fast_in_bf16
from tests.programs import refused


def machine(
    monkeypatch: pytest.MonkeyPatch, *, cuda: bool = False, mps: bool = False, bf16: bool = True
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: bf16)
    monkeypatch.setattr(device_module, "has_bf16_instructions", lambda: False)


@pytest.mark.parametrize(
    ("there", "device", "precision", "becomes"),
    [
        ({}, "auto", "auto", ("cpu", "fp32")),
        ({"mps": True}, "auto", "auto", ("mps", "fp32")),
        ({"cuda": True, "mps": True}, "auto", "auto", ("cuda", "bf16")),
        ({"cuda": True, "bf16": False}, "cuda", "auto", ("cuda", "fp32")),
        ({}, "cuda", "auto", "device=cuda"),
        ({}, "cpu", "fp16", "precision=fp16"),
        ({"cuda": True, "bf16": False}, "cuda", "bf16", "precision=bf16"),
    ],
)
def test_what_a_choice_becomes(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, bool], device: str, precision: str, becomes: object
) -> None:
    """A device and a precision with the reason, or an error that names the option."""
    machine(monkeypatch, **there)
    if isinstance(becomes, str):
        assert refused(lambda: choose_device(device, precision)).option == becomes
        return
    placement = choose_device(device, precision)
    assert (placement.device, placement.precision) == becomes
    assert all(name in placement.reason for name in (placement.device, placement.precision))


@pytest.mark.parametrize(
    ("has_bf16", "times", "has_peers", "precision"),
    [
        *((True, 2.0, False, "bf16"), (True, 1.1, False, "fp32"), (False, 2.0, False, "fp32")),
        (True, 1.1, True, "bf16"),  # not measured: each process would for itself
    ],
)
def test_a_cpu_takes_the_faster(
    monkeypatch: pytest.MonkeyPatch, has_bf16: bool, times: float, has_peers: bool, precision: str
) -> None:
    monkeypatch.setattr(device_module, "has_bf16_instructions", lambda: has_bf16)
    monkeypatch.setattr(device_module, "times_as_fast_in_bf16", lambda: times)
    monkeypatch.setattr(device_module, "has_peers", lambda: has_peers)
    assert choose_device("cpu", "auto").precision == precision
    assert choose_device("cpu", "fp32").precision == "fp32"
    for before in ("bf16", "fp32"):  # of the run that is resumed: kept, if this processor can
        assert choose_device("cpu", "auto", before).precision == (before if has_bf16 else "fp32")


def test_threads_and_a_busy_machine_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    for load in (1.9, 3.5):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        log_placement(choose_device("cpu", "fp32"))
    quiet, busy = (record.getMessage() for record in caplog.records)
    assert f"{torch.get_num_threads()} thread" in quiet
    assert "1.9" not in quiet
    assert "3.5" in busy


def test_measuring_a_layer_changes_nothing() -> None:
    before = torch.get_rng_state(), torch.get_num_threads()
    times_as_fast_in_bf16.cache_clear()
    assert times_as_fast_in_bf16() > 0
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]


@pytest.mark.parametrize("has_bf16", [True, False])
def test_bf16_without_instructions_for_it_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_bf16: bool
) -> None:
    """On a CPU, and where it is asked for: `auto` takes float32 there."""
    machine(monkeypatch, cuda=True)
    monkeypatch.setattr(device_module, "has_bf16_instructions", lambda: has_bf16)
    for device, precision in (("cpu", "auto"), ("cpu", "fp32"), ("cuda", "auto"), ("cuda", "bf16")):
        log_placement(choose_device(device, precision))
    assert not caplog.records
    log_placement(choose_device("cpu", "bf16"))
    assert ["precision=fp32" in record.getMessage() for record in caplog.records] == [True] * (not has_bf16)
    for precision, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        with choose_device("cpu", precision).autocast():
            assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == dtype


def test_freed_memory_is_kept_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """M_TRIM_THRESHOLD and M_MMAP_MAX by the numbers of glibc's malloc.h."""
    glibc = Mock()
    monkeypatch.setattr("ctypes.CDLL", glibc)
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))]:
        monkeypatch.delenv(name)
    keep_freed_memory()
    assert glibc(None).mallopt.mock_calls == [call(-1, 2**31 - 1), call(-4, 0)]
    for name in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES"):
        with monkeypatch.context() as chosen:
            chosen.setenv(name, "8")
            keep_freed_memory()
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    keep_freed_memory()
    assert len(glibc(None).mallopt.mock_calls) == 2
