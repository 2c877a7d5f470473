"""Secrets: what is one, who refuses it, and that none is shown, recorded or published."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import idiomtune as it
from idiomtune.config.command_line import rewrite_arguments
from idiomtune.config.compose import register_resolvers, to_dict
from idiomtune.errors import UserError
from idiomtune.io import secrets
from idiomtune.io.hub import without_secrets
from idiomtune.io.secrets import hide_secrets, refuse_files, refuse_values, secret_in
from idiomtune.programs.failures import print_error
from idiomtune.programs.run import main, run_task
from tests.programs import refused

VALUE = "it's/a=b+\\c\"d&99"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", VALUE)


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_SECRET_ACCESS_KEY", "GITHUB_PAT", "MY_PASSWORD_2", "HF_TOKEN", "PGPASSWORD", "api_keys"),
        *("X_TOKENS", "OPENAI_APIKEY", "DB_PASSWD_OLD", "GOOGLE_CREDENTIALS", "PAT2", "KEY"),
    ],
)
def test_a_variable_is_secret_by_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "swordfish-17")
    for option in ("name=swordfish-17", "model.path=x/swordfish-17/y", f"seed=${{ oc.env : '{name}' ,x}}"):
        error = refused(partial(rewrite_arguments, [option]), option.partition("=")[0])
        assert "swordfish" not in str(error)


def test_an_ordinary_variable_takes_no_option_away(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KEYBOARD_LAYOUT", "MONKEY", "XDG_SEAT_PATH", "TOKENIZERS_X"):
        monkeypatch.setenv(name, "swordfish-17")
    monkeypatch.setenv("USE_TOKEN", "true")  # too short to be looked for
    monkeypatch.setenv("SSH_KEY", os.fspath(Path(__file__).parent))  # a folder, not what it holds
    assert secret_in(f"run_dir=swordfish-17{Path(__file__).parent}/run true false") is None


@pytest.mark.parametrize(
    "text",
    [
        *("https://user:pw/x@host", "https://ghp_x@host", "postgresql://user:pw@host/db", "sqlite://u:p@/x"),
        *("git+ssh://git@host/x", "https://u:p@w@host", "s3://key:se/cr/et@bucket/x", "https://:pw@host"),
        *("ghp_" + "a1B" * 12, "github_pat_" + "a1" * 20, "sk-" + "aB1" * 12, "AKIA" + "ABCD" * 4),
        *("hf_" + "aB" * 17, "${oc.env:MY_TOKEN,x}", '${oc.decode:${oc.env:"A_KEY"}}'),
    ],
)
def test_what_is_a_secret_by_itself(text: str) -> None:
    assert secret_in(f"see {text} there") is not None
    if not text.startswith("$"):
        assert secret_in(hide_secrets(text)) in (None, "an address with a user or password")
        assert not any(part in without_secrets(text) for part in ("pw", "ghp_", "se/cr", "aB1", "a1"))


def test_what_only_looks_like_one() -> None:
    for text in (
        *("/data/a@b.csv", "https://example.org/a@b", "sqlite:///data/a@b.db", "hf://datasets/o/n@rev/f.csv"),
        *("hf:org/name@main", "https://host:8080/a@b.csv", "git@github.com:o/r", "mail me@host.org"),
        *("see https://a.org: b@c", "0a" * 20, "task-based-model-with-a-long-name", "${oc.env:HOME}"),
    ):
        assert secret_in(text) is None
        assert hide_secrets(text) == text


@pytest.mark.parametrize("program", ["config", "push"])
@pytest.mark.parametrize("argument", ["name={}", "{}", "model=x/{}/y", "--name={}", "+a.b=[{}]"])
def test_programs_with_a_configuration_refuse_it(program: str, argument: str) -> None:
    error = refused(lambda: run_task(program, print, [argument.format(VALUE)]))
    assert "it's/a" not in str(error)


@pytest.mark.parametrize("program", ["explore", "report", "gate", "new"])
@pytest.mark.parametrize("argument", ["output={}", "runs/{}"])
def test_programs_without_a_configuration_refuse_it(
    program: str, argument: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(program, [argument.format(VALUE)])
    assert ended.value.code == 2
    shown = "".join(capsys.readouterr())
    assert "AWS_SECRET_ACCESS_KEY" in shown
    assert "it's/a" not in shown
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "function",
    [
        *(lambda: it.train("own", name=VALUE), lambda: it.check("own", name=VALUE)),
        *(lambda: it.evaluate("minilm", output=VALUE), lambda: it.report(".", output=VALUE)),
        *(lambda: it.gate(".", output=VALUE, floor="a:1"), lambda: it.explore("a", output=VALUE)),
        *(lambda: it.explore(VALUE), lambda: it.glossary("wordnet", VALUE), lambda: it.push("a", VALUE)),
        lambda: it.learn("minilm", "a.tsv", output=VALUE),
    ],
)
def test_functions_refuse_it(function: Callable[[], object], tmp_path: Path) -> None:
    assert VALUE not in str(refused(function, "AWS_SECRET_ACCESS_KEY"))
    assert not any(tmp_path.iterdir())


def test_a_file_of_the_users_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names of variables and by their values, however they come into it."""
    register_resolvers()
    monkeypatch.setenv("WHICH", "AWS_SECRET_ACCESS_KEY")
    for value in ("${oc.env:SHORT_TOKEN,x}", "${oc.env:${oc.env:WHICH}}", VALUE, "u://a:b@c", [{VALUE: 1}]):
        config = OmegaConf.create({"name": value, "objective": {"name": "mixture", "parts": {"a": value}}})
        assert VALUE not in str(refused(partial(to_dict, config, throw_on_missing=False), "name"))
    with pytest.raises(UserError, match=r"tracking\.api_key"):
        refuse_values({"tracking": {"api_key": "0a" * 20}, "model": {"revision": "0a" * 20}})
    refuse_values({"model": {"revision": "0a" * 20}})
    (tmp_path / "mine.yaml").write_text("name: ${oc.env:GITHUB_PAT}\n", encoding="utf-8")
    with pytest.raises(UserError, match="GITHUB_PAT"):
        rewrite_arguments(["+experiment=mine.yaml"])


def test_a_message_shows_none(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(f"error: {VALUE} at https://me:pa/ss@host/x")
    assert capsys.readouterr().err == "error: *** at https://***@host/x\n"


@pytest.mark.parametrize("form", [VALUE, json.dumps(VALUE), "it&#x27;s/a=b+\\c&quot;d&amp;99"])
@pytest.mark.parametrize("before", [0, 11])
def test_no_file_that_is_published_has_one(
    form: str, before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In text or binary, also across the blocks that are read."""
    monkeypatch.setattr(secrets, "_BLOCK", 16)
    content = b"\xff" * before + form.encode() + b"\0" * 50
    (tmp_path / "model.safetensors").write_bytes(content)
    for file in (content, tmp_path / "model.safetensors"):
        published = partial(refuse_files, Path("m"), {"ordinary": b"it's", "m/model.safetensors": file})
        assert form not in str(refused(published, "m/model.safetensors", "AWS_SECRET_ACCESS_KEY"))
    with pytest.raises(UserError, match="AWS_SECRET_ACCESS_KEY"):
        refuse_files(Path("m"), {f"a{VALUE}": b"x"})
    refuse_files(Path("m"), {"model.safetensors": content.replace(b"99", b"98")})
