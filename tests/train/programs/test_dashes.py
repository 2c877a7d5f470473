"""Options with dashes are refused with the form that they have here; Hydra's own flags stay."""

from __future__ import annotations

import pytest

from train.errors import UserError
from train.programs.launch import rewrite_arguments


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--experiment=own", "data.train=a.csv"], "without dashes: +experiment=own"),  # a flag's beginning
        (
            ["+experiment=own", "--data", "sample"],
            "--data: options are written name=value, without dashes: data=…",
        ),
        (["-model=minilm"], "without dashes: model=minilm"),
        (["--trainer.max-epochs=2"], "without dashes: trainer.max_epochs=2"),
        (["--config_dir=mine"], "Did you mean --config-dir?"),
    ],
)
def test_an_option_with_dashes_is_told_as_it_is_written_here(arguments: list[str], expected: str) -> None:
    with pytest.raises(UserError) as caught:
        rewrite_arguments(arguments, [])
    assert expected in str(caught.value)


def test_flags_of_hydra_stay() -> None:
    given = ["-m", "--config-dir", "mine", "--config-dir=mine", "--cfg", "job", "--package=trainer", "-cn=x"]
    assert rewrite_arguments(given, []) == given


@pytest.mark.parametrize("arguments", [["--hf-token=abc"], ["--token", "abc"]])
def test_a_token_is_not_shown(arguments: list[str]) -> None:
    with pytest.raises(UserError, match="Put a token into the environment variable") as caught:
        rewrite_arguments(arguments, [])
    assert "abc" not in str(caught.value)
