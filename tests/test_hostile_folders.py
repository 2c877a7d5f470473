"""Folders that somebody else made: no program runs their code, or reads what is not theirs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import save_file

import idiomtune as it
from idiomtune.io.records import refuse_recorded_options
from tests.planted_runs import plant
from tests.programs import program_env, refused
from tests.tiny_runs import composed

CANARY = Path("canary")
SECRET = b"a secret"
PAYLOAD = 'import pathlib; pathlib.Path("canary").write_text("it ran")\n'
CODE = PAYLOAD + (
    "from transformers import BertConfig, BertModel\nfrom sentence_transformers.models import Pooling\n"
    "class Config(BertConfig): pass\nclass Model(BertModel): config_class = Config\n"
    "class Evil(Pooling): pass\n"
)
AUTO = {"AutoConfig": "payload.Config", "AutoModel": "payload.Model", "AutoTokenizer": ["payload.T", None]}


@pytest.fixture(autouse=True)
def here(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs also search for modules in the folder that they work in."""
    monkeypatch.syspath_prepend(str(in_folder))
    Path("secret.txt").write_bytes(SECRET)


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def with_code(model: Path) -> Path:
    """Code beside the model that transformers would run, if it were told to."""
    (model / "payload.py").write_text(CODE)
    for name in ("config.json", "tokenizer_config.json"):
        rewrite(model / name, lambda content: content | {"auto_map": AUTO})
    return model


def adapters(folder: Path, base: Any, **config: Any) -> Path:
    folder.mkdir(parents=True)
    save_file({}, folder / "adapter_model.safetensors")
    values = {"base_model_name_or_path": base, "peft_type": "LORA", "r": 2, "lora_alpha": 2} | config
    (folder / "adapter_config.json").write_text(json.dumps(values))
    return folder


def learned(folder: Path, tiny: Path, model: Any, **options: Any) -> Path:
    shutil.copytree(tiny, folder)
    record = {"model": model, "options": options, "glossary": {"files": []}}
    (folder / "learned.json").write_text(json.dumps(record))
    return folder


def run_of(folder: Path, tiny: Path, model: dict[str, Any], **sections: Any) -> Path:
    """A finished run of this model, with the configuration of the sample."""
    config = composed("train", "+experiment=idiolink_ft", "data=sample") | sections
    config["model"] = config["model"] | {"path": str(tiny)} | model
    plant(folder, **{"model": config["model"], "data": config["data"], "objective": config["objective"]})
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    shutil.copytree(tiny, folder / "best")
    return folder


def recorded(name: str, **fields: Any) -> Callable[[Path, Path], Path]:
    """A run whose record has these fields."""

    def made(folder: Path, tiny: Path) -> Path:
        rewrite(run_of(folder, tiny, {}) / name, lambda content: content | fields)
        return folder

    return made


def arguments(**fields: Any) -> Callable[[Path, Path], Path]:
    """A model with code, and with these arguments of its transformer."""

    def made(folder: Path, tiny: Path) -> Path:
        with_code(Path(shutil.copytree(tiny, folder)))
        rewrite(folder / "sentence_bert_config.json", lambda content: content | fields)
        return folder

    return made


def module(folder: Path, tiny: Path, **fields: str) -> Path:
    """A model whose second module is another one."""
    shutil.copytree(tiny, folder)
    rewrite(folder / "modules.json", lambda listed: [listed[0], listed[1] | fields, *listed[2:]])
    return folder


def _pickled(folder: Path, tiny: Path) -> Path:
    shutil.copytree(tiny, folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cpathlib\nPath\n(S'canary'\ntR.")
    return folder


def _trusting_run(folder: Path, tiny: Path) -> Path:
    run = run_of(folder, tiny, {"trust_remote_code": True})
    with_code(run / "best")
    return run


def _outside(folder: Path, tiny: Path) -> Path:
    shutil.copytree(tiny / "1_Pooling", "elsewhere")
    return module(folder, tiny, path="../elsewhere")


def _shards(folder: Path, tiny: Path) -> Path:
    shutil.copytree(tiny, folder)
    (folder / "model.safetensors").rename("other.safetensors")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../other.safetensors"}}')
    return folder


def _list(folder: Path, tiny: Path) -> Path:
    run = run_of(folder, tiny, {})
    (run / "config.yaml").write_text(yaml.safe_dump({"model": [str(tiny)], "trainer": {}}))
    return run


def _base_with_code(folder: Path, tiny: Path) -> Path:
    with_code(Path(shutil.copytree(tiny, "base")))
    return learned(folder, tiny, "base", trust_remote_code=True)


TRUST = {"trust_remote_code": True}
FOLDERS: dict[str, Callable[[Path, Path], Path]] = {
    "rank 0": lambda folder, tiny: adapters(folder, str(tiny), r=0),
    "base is itself": lambda folder, _: adapters(folder, str(folder)),
    "base is a list": lambda folder, tiny: adapters(folder, [str(tiny)]),
    "run with a list": _list,
    "run's sums": recorded("run.json", sums={"best/../../secret.txt": hashlib.sha256(SECRET).hexdigest()}),
    "odd meta": recorded("scores.json", meta={"monitor": {"a": 1}, "glossary": [1], "notes": 5}),
    "package": lambda folder, _: adapters(folder, "package:evil.payload.x/model"),
    "package outside": lambda folder, _: adapters(folder, "package:idiomtune/../../evil"),
    "learned with code": _base_with_code,
    "learned from itself": lambda folder, tiny: learned(folder, tiny, str(folder)),
    "run with code": _trusting_run,
    "run with extensions": lambda folder, tiny: run_of(folder, tiny, {}, extensions=["evil.payload"]),
    "run with a package": lambda folder, tiny: run_of(folder, tiny, {"path": "package:evil.payload/x"}),
    "module of its own": lambda folder, tiny: with_code(module(folder, tiny, type="payload.Evil")),
    "module of another": lambda folder, tiny: module(folder, tiny, type="evil.payload.Evil"),
    "module outside": _outside,
    "shards outside": _shards,
    "arguments": arguments(model_kwargs=TRUST, config_kwargs=TRUST),
    "tokenizer outside": arguments(tokenizer_name_or_path="/tmp"),
    "pickle": _pickled,
}
PROGRAMS: dict[str, Callable[[Path], Any]] = {
    "report": lambda folder: it.report(folder),
    "push": lambda folder: it.push(folder, "me/it", dry_run=True, allow_sample=True, license="mit"),
    "resume": lambda folder: it.resume(folder, trainer={"max_steps": 1}),
    "Encoder": lambda folder: it.Encoder(folder).encode(["a"]),
}
# These load a folder as `Encoder` does, and take longer: two folders with code stand for the others.
LOADING: dict[str, Callable[[Path], Any]] = {
    "evaluate": lambda folder: it.evaluate(folder, ["semeval2022"], data="sample", device="cpu"),
    "explore": lambda folder: it.explore(folder, corpus=["Ice."], output="page.html", overwrite=True),
    "learn": lambda folder: it.learn(folder, {"cold feet": "fear"}, output="taught", sentences=2, epochs=1),
    "train": lambda folder: it.check("idiolink_ft", "benchmark=[idiolink]", data="sample", model=folder),
}
LOADED = ("learned with code", "module of its own")


REFUSED = {  # a folder → what loading it names
    "rank 0": ("adapter_config.json", "'r'"),
    "base is itself": ("the base of its adapters",),
    "base is a list": ("adapter_config.json", "base_model_name_or_path"),
    "package": ("package:evil.payload.x/model",),
    "module of its own": ("modules.json", "payload.Evil", "trust_remote_code"),
    "module outside": ("modules.json", "'1.path'"),
    "shards outside": ("model.safetensors.index.json", "'weight_map.a'"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FOLDERS)
def test_nothing_runs(kind: str, tiny_path: Path, tmp_path: Path) -> None:
    """Whatever the program, it works without the code, or names what is wrong; and a second time."""
    Path("evil").mkdir()
    Path("evil/payload.py").write_text(CODE)
    folder = FOLDERS[kind](tmp_path / "stranger", tiny_path)
    for name, program in (PROGRAMS | LOADING if kind in LOADED else PROGRAMS).items():
        if kind == "odd meta" and name == "resume":  # which trains
            continue
        with contextlib.suppress(it.UserError):
            program(folder)
        assert not CANARY.exists(), name
        assert not any(module == "evil" or module.startswith("evil.") for module in sys.modules), name
    if kind in REFUSED:
        refused(lambda: it.Encoder(folder), *REFUSED[kind])


def test_code_runs_only_if_this_command_says_so(tiny_path: Path, tmp_path: Path) -> None:
    folder = _trusting_run(tmp_path / "stranger", tiny_path)
    options: dict[str, Any] = {"corpus": ["He broke the ice."], "output": "page.html", "overwrite": True}
    error = refused(lambda: it.explore(folder, **options), "trust_remote_code")
    assert error.option == "trust_remote_code=true"
    assert not CANARY.exists()
    with contextlib.suppress(it.UserError):  # its tokenizer has no class
        it.explore(folder, **options, trust_remote_code=True)
    assert CANARY.exists()


def test_a_file_of_options_or_a_resumed_run_does_not_run_code(tiny_path: Path, tmp_path: Path) -> None:
    """Also of an experiment of one's own: the command says so."""
    with_code(Path(shutil.copytree(tiny_path, "model")))
    Path("theirs.yaml").write_text("model: {path: model, trust_remote_code: true}\n")
    refused(lambda: it.check("theirs.yaml", data="sample"), "trust_remote_code")
    run = _trusting_run(tmp_path / "run", tiny_path)
    refused(lambda: it.resume(run), "trust_remote_code")
    assert not CANARY.exists()


def test_extensions_are_named(tmp_path: Path) -> None:
    """A module in a run's record is imported if this command names it; the user's own cells are running."""
    run = tmp_path / "run"
    refuse_recorded_options(run, {"extensions": ["mine", "__main__"]}, {"extensions": ["mine", "other"]})
    recorded = {"extensions": ["mine", "more"]}
    for named in ([], ["more"], ["other"]):
        current = {"extensions": named}
        refused(lambda: refuse_recorded_options(run, recorded, current), "extensions=[mine,more]")  # noqa: B023


def test_what_a_strangers_run_names_is_neither_read_nor_published(tiny_path: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", tiny_path, {"idiom_tokens": str(Path("secret.txt").absolute())})
    refused(lambda: it.resume(run), "secret.txt")
    hub = composed("train")["hub"] | {"push": "best", "repo_id": "evil/repo", "license": "mit"}
    other = run_of(tmp_path / "other", tiny_path, {}, hub=hub)
    assert refused(lambda: it.resume(other), "evil/repo").option == "hub.push=best"


@pytest.mark.slow
def test_the_current_folder_has_no_packages(tmp_path: Path) -> None:
    """A module there that has the name of one is not imported, unless `extensions=` names it."""
    (tmp_path / "hydra_plugins").mkdir()
    for name in ("hydra_plugins/evil.py", "brotli.py", "yaml.py"):
        (tmp_path / name).write_text(PAYLOAD)
    program = str(Path(sys.executable).with_name("idiomtune"))
    command = [program, "train", "idiolink_ft", "data=sample", "--cfg", "job"]  # imports nothing heavy
    done = subprocess.run(command, env=program_env(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not CANARY.exists()
