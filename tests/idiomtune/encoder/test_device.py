"""Device and precision: what `auto` becomes on each kind of machine, and what is refused."""

import pytest
import torch

from idiomtune.encoder import device as device_module
from idiomtune.encoder.device import choose_device, log_placement
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


def test_a_cpu_takes_bf16_if_it_has_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    for has_bf16, before, expected in (  # before: of the run that is resumed
        *((True, None, "bf16"), (True, "bf16", "bf16"), (True, "fp32", "fp32")),
        *((False, None, "fp32"), (False, "bf16", "fp32")),
    ):
        monkeypatch.setattr(device_module, "has_bf16_instructions", lambda has_bf16=has_bf16: has_bf16)
        assert choose_device("cpu", "auto", before).precision == expected


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
