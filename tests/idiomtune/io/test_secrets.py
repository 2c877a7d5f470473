"""Secrets: what is one, who refuses it, and that none is shown, recorded or published."""

import os
from functools import partial
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import idiomtune as it
from idiomtune.cli import print_error, read_settings
from idiomtune.config.compose import by_hydra, fill
from idiomtune.config.words import overrides_of
from idiomtune.errors import UserError
from idiomtune.io.secrets import hide_secrets, refuse_files, refuse_values
from tests.programs import main_of, refused

VALUE = "swordfish/a+b&99"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", VALUE)


def test_a_variable_is_secret_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        *("AWS_SECRET_ACCESS_KEY", "GITHUB_PAT", "MY_PASSWORD_2", "HF_TOKEN", "PGPASSWORD", "api_keys"),
        *("X_TOKENS", "OPENAI_APIKEY", "DB_PASSWD_OLD", "GOOGLE_CREDENTIALS", "PAT2", "KEY"),
    ):
        monkeypatch.setenv(name, f"swordfish-{name}")
        assert hide_secrets(f"x/swordfish-{name}/y") == "x/***/y"
    for name in ("KEYBOARD_LAYOUT", "MONKEY", "XDG_SEAT_PATH", "TOKENIZERS_X"):
        monkeypatch.setenv(name, "swordfish-17")
    monkeypatch.setenv("USE_TOKEN", "true")  # too short to be looked for
    monkeypatch.setenv("SSH_KEY", os.fspath(Path(__file__).parent))  # a folder, not what it holds
    refuse_values({"run_dir": f"swordfish-17{Path(__file__).parent}/run true false"})


def test_an_option_that_is_named_for_a_secret() -> None:
    """Whatever it holds, but nothing; a commit is none, which looks like a key of wandb."""
    for name in ("tracking.api_key", "hydra.job.env_set.HF_TOKEN", "password"):
        assert "0a0a" not in str(refused(partial(refuse_values, {name: "0a" * 20}), name))
    refuse_values({"model": {"revision": "0a" * 20, "token": None}, "keys": ["sk-1"]})


def test_programs_refuse_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for argument in ("{}", "model=x/{}/y", "--name={}", "+a.b=[{}]"):
        error = refused(lambda: read_settings("train", [argument.format(VALUE)]))  # noqa: B023
        assert "swordfish" not in str(error)
    assert main_of("new")([f"output={VALUE}"]) == 2
    print_error(f"error: {VALUE} at https://me:pass@host/x and https://host/a@b")
    shown, message = capsys.readouterr().err.splitlines()
    assert "AWS_SECRET_ACCESS_KEY" in shown
    assert "swordfish" not in shown
    assert message == "error: *** at https://***@host/x and https://host/a@b"
    assert not any(tmp_path.iterdir())


def test_functions_refuse_it(tmp_path: Path) -> None:
    for function in (
        lambda: it.train("own", name=VALUE),
        lambda: it.explore(VALUE),
        lambda: it.glossary("wordnet", VALUE),
        lambda: it.learn("minilm", "a.tsv", output=VALUE),
    ):
        assert VALUE not in str(refused(function, "AWS_SECRET_ACCESS_KEY"))
    assert not any(tmp_path.iterdir())


def test_a_file_of_the_users_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the value comes into it."""
    monkeypatch.setenv("WHICH", "AWS_SECRET_ACCESS_KEY")
    for value in ("${oc.env:${oc.env:WHICH}}", VALUE, [{VALUE: 1}]):
        config = by_hydra("train", [])
        OmegaConf.update(config, "name", value)
        assert VALUE not in str(refused(partial(fill, config), "name"))
    (tmp_path / "mine.yaml").write_text(f"name: {VALUE}\n", encoding="utf-8")
    with pytest.raises(UserError, match="AWS_SECRET_ACCESS_KEY"):
        overrides_of(["+experiment=mine.yaml"], "train", "")


def test_no_file_that_is_published_has_one(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_bytes(b"\xff" + VALUE.encode() + b"\0")
    for file in (VALUE.encode(), tmp_path / "model.json"):
        published = partial(refuse_files, Path("m"), {"ordinary": b"it's", "m/model.json": file})
        assert VALUE not in str(refused(published, "m/model.json", "AWS_SECRET_ACCESS_KEY"))
    with pytest.raises(UserError, match="AWS_SECRET_ACCESS_KEY"):
        refuse_files(Path("m"), {f"a{VALUE}": b"x"})
    refuse_files(Path("m"), {"model.json": VALUE.replace("99", "98").encode()})
