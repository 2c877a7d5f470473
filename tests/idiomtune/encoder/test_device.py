"""Device and precision: what `auto` becomes on each kind of machine, and what is refused."""

import os

import pytest
import torch

from idiomtune.encoder import device as device_module
from idiomtune.encoder.device import choose_device, has_bf16_instructions, log_placement
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


@pytest.mark.parametrize("has_bf16", [True, False])
def test_a_cpu_takes_bf16_if_it_has_instructions(monkeypatch: pytest.MonkeyPatch, *, has_bf16: bool) -> None:
    monkeypatch.setattr(device_module, "has_bf16_instructions", lambda: has_bf16)
    assert choose_device("cpu", "auto").precision == ("bf16" if has_bf16 else "fp32")
    assert choose_device("cpu", "fp32").precision == "fp32"
    for before in ("bf16", "fp32"):  # of the run that is resumed: kept, if this processor can
        assert choose_device("cpu", "auto", before).precision == (before if has_bf16 else "fp32")


@pytest.mark.parametrize(
    ("machine_name", "library", "instructions", "amx", "expected"),
    [
        *(("x86_64", True, True, False, True), ("AMD64", True, False, True, True)),
        ("x86_64", True, False, False, False),  # AVX-512 alone emulates it
        ("x86_64", False, True, True, False),  # kept from it by the user, say
        *(("aarch64", True, False, False, True), ("aarch64", False, False, False, False)),
    ],
)
def test_which_processors_have_bf16(
    monkeypatch: pytest.MonkeyPatch,
    machine_name: str,
    *,
    library: bool,
    instructions: bool,
    amx: bool,
    expected: bool,
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine_name)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: library)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: instructions)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert has_bf16_instructions() == expected


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
