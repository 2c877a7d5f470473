"""Device and precision: what `auto` becomes on each kind of machine, and what is refused."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest
import torch

from idiomtune.encoder import device as device_module
from idiomtune.encoder.device import log_placement, place, times_as_fast_in_bf16
from idiomtune.errors import UserError


def machine(
    monkeypatch: pytest.MonkeyPatch, *, cuda: bool = False, mps: bool = False, bf16: bool = True
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: bf16)
    monkeypatch.setattr(device_module, "has_bf16_instructions", lambda: False)


@pytest.mark.parametrize(
    ("there", "device", "precision"),
    [
        ({}, "cpu", "fp32"),
        ({"mps": True}, "mps", "fp32"),
        ({"cuda": True, "mps": True}, "cuda", "bf16"),
        ({"cuda": True, "bf16": False}, "cuda", "fp32"),
    ],
)
def test_auto(monkeypatch: pytest.MonkeyPatch, there: dict[str, bool], device: str, precision: str) -> None:
    machine(monkeypatch, **there)
    placement = place("auto", "auto")
    assert (placement.device, placement.precision) == (device, precision)
    assert device in placement.reason
    assert precision in placement.reason


@pytest.mark.parametrize(
    ("has_bf16", "times", "has_peers", "precision"),
    [
        (True, 2.0, False, "bf16"),
        (True, 1.1, False, "fp32"),
        (False, 2.0, False, "fp32"),
        (True, 1.1, True, "bf16"),  # not measured: each process would for itself
    ],
)
def test_a_cpu_takes_the_faster(
    monkeypatch: pytest.MonkeyPatch, has_bf16: bool, times: float, has_peers: bool, precision: str
) -> None:
    monkeypatch.setattr(device_module, "has_bf16_instructions", lambda: has_bf16)
    monkeypatch.setattr(device_module, "times_as_fast_in_bf16", lambda: times)
    monkeypatch.setattr(device_module, "has_peers", lambda: has_peers)
    assert place("cpu", "auto").precision == precision
    assert place("cpu", "fp32").precision == "fp32"
    for before in ("bf16", "fp32"):  # of the run that is resumed: kept, if this processor can
        assert place("cpu", "auto", before).precision == (before if has_bf16 else "fp32")


def test_measuring_a_layer_changes_nothing() -> None:
    before = torch.get_rng_state(), torch.get_num_threads()
    times_as_fast_in_bf16.cache_clear()
    assert 0.01 < times_as_fast_in_bf16() < 100
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
        log_placement(place(device, precision))
    assert not caplog.records
    placement = place("cpu", "bf16")
    log_placement(placement)
    assert placement.device == "cpu"
    for precision, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        with place("cpu", precision).autocast():
            assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == dtype
    assert ["precision=fp32" in record.getMessage() for record in caplog.records] == [True] * (not has_bf16)


@pytest.mark.parametrize(
    ("there", "device", "precision", "expected"),
    [
        ({}, "cuda", "auto", "not available on this machine .available: cpu"),
        ({}, "cpu", "fp16", "not for the CPU"),
        ({"cuda": True, "bf16": False}, "cuda", "bf16", "does not have it; use precision=fp16 or fp32"),
    ],
)
def test_what_cannot_be_is_refused(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, bool], device: str, precision: str, expected: str
) -> None:
    machine(monkeypatch, **there)
    with pytest.raises(UserError, match=expected):
        place(device, precision)


FAULTS = """
import os, resource
from idiomtune.encoder.device import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        bytearray(b"1" * 2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
for arenas in ({"MALLOC_ARENA_MAX": "8"}, {}):
    os.environ.update(arenas)
    keep_freed_memory()
    faults()
    print(faults())
    os.environ.pop("MALLOC_ARENA_MAX", None)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="an option of glibc's allocator alone")
def test_freed_memory_is_kept_for_the_next_pass() -> None:
    """Unless the user says otherwise."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    program = [sys.executable, "-c", FAULTS]
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=True, timeout=120)
    without, of_the_user, kept = map(int, done.stdout.split())
    assert without > 3_000, "each block of 16 MB is of fresh pages"
    assert of_the_user > 0.9 * without
    assert kept < without / 30
