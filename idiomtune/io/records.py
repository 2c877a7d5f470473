"""Checked reading of records in folders of unknown origin: runs, models, adapters.

Every reader of these files asks here. A record gives fields of known types, and no path out of its folder but
that of a base model. It runs nothing: neither a model's code nor an extension is loaded because a record says
so, but because this command line or this call does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PureWindowsPath
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt, TypeAdapter, ValidationError

from idiomtune.errors import UserError, resume_command
from idiomtune.io.files import (
    UNREADABLE,
    changed_files,
    fingerprint,
    is_file,
    is_folder,
    list_names,
    one_line,
    parse_json,
    parse_yaml,
    read_text,
    user_path,
)

LEARNED = "learned.json"  # of a model that `idiomtune learn` made
ADAPTER_CONFIG, ADAPTER = "adapter_config.json", "adapter_model.safetensors"
_MODULES, _SHARDS = "modules.json", "model.safetensors.index.json"
_TRANSFORMERS = [
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
]
_LIBRARY = "sentence_transformers."  # whose modules need no code of the folder


def _check_inside(name: str) -> str:
    """A path that leads to something in the record's folder, on any system."""
    path = PureWindowsPath(name)
    if path.drive or path.root or ".." in path.parts or "\0" in name:
        raise ValueError("leads out of the folder")
    return name


Inside = Annotated[str, AfterValidator(_check_inside)]
Sums = dict[Inside, str]  # file → SHA-256
_Section = dict[str, Any] | None


class _Fields(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())


class _ModelSection(_Fields):
    path: str = ""
    trust_remote_code: bool = False
    about: dict[str, Any] | None = None


class _Configuration(_Fields):
    model: _ModelSection = _ModelSection()
    extensions: list[str] = []
    benchmark: dict[str, _Section] | None = None
    data: _Section = None
    eval: _Section = None
    hub: _Section = None
    objective: _Section = None
    forgetting: _Section = None
    tracking: _Section = None
    trainer: _Section = None


class _RecordedGlossary(_Fields):
    files: list[str] = []
    sums: dict[str, str] = {}


class _RunFile(_Fields):
    status: str | None = None
    experiment: str | None = None
    best_step: int | None = None
    data: dict[str, str] = {}
    glossary: _RecordedGlossary | None = None
    sums: Sums = {}


class _Snapshot(_Fields):
    config: _Configuration
    run: _RunFile
    metrics: list[dict[str, Any]] = []


class _Meta(_Fields):
    monitor: str | list[str] = []
    glossary: _RecordedGlossary | None = None
    glossary_learned: list[_RecordedGlossary] = []
    notes: list[str] = []


class _ScoreRecord(_Fields):
    benchmark: str
    split: str
    mode: str
    metric: str
    slice: str
    dimension: int | None


class _ScoreFile(_Fields):
    scores: dict[str, float]
    baseline: dict[str, float] | None
    meta: _Meta
    records: list[_ScoreRecord] = []


class _LearnedFile(_Fields):
    model: str
    options: dict[str, Any]
    glossary: _RecordedGlossary
    learned_before: list[_RecordedGlossary] = []


class _Adapter(_Fields):
    base_model_name_or_path: str
    r: PositiveInt
    lora_alpha: Annotated[float, Field(allow_inf_nan=False)]


class _Module(_Fields):
    path: Inside
    type: str


def _names_no_file(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of sentence-transformers, of earlier versions too."""
    values = [arguments, *(value for value in arguments.values() if isinstance(value, dict))]
    for name in ("tokenizer_name_or_path", "gguf_file"):
        if any(of.get(name) is not None for of in values):
            raise ValueError(f"names a file: {name}")
    return arguments


class _Shards(_Fields):
    weight_map: dict[str, Inside]


_SHAPES: dict[str, Any] = {
    "config.yaml": _Configuration,
    "run.json": _RunFile,
    "record.json": _Snapshot,
    "checksums.json": Sums,
    "scores.json": _ScoreFile,
    "baseline.json": dict[str, float],
    LEARNED: _LearnedFile,
    ADAPTER_CONFIG: _Adapter,
    _MODULES: list[_Module],
    _SHARDS: _Shards,
    **dict.fromkeys(_TRANSFORMERS, Annotated[dict[str, Any], AfterValidator(_names_no_file)]),
}


def read_record(path: Path) -> Any:
    """The content of a record, with the types of all used fields checked.

    Args:
        path: of a file with one of the known names; for others nothing but the syntax is checked.

    Raises:
        UserError: if it cannot be read, or a field is wrong; it names the first.
    """
    try:
        return _check_record(path, read_text(path), parse_json)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"])) or None
        message = f"is damaged: {problem['msg']}, got {one_line(repr(problem['input'])[:80])}"
        raise UserError(f"{message}: bring the file back as it was", file=path, field=field) from None
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"is damaged: {one_line(str(error))}", file=path) from None


def readable_record(path: Path) -> dict[str, Any]:
    """As :func:`read_record`; {} if it is missing, damaged or no mapping. A failing disk is an OSError."""
    if not is_file(path):  # a pipe would never end
        return {}
    try:
        content = _check_record(path, path.read_text(encoding="utf-8"), json.loads)
    except (*UNREADABLE, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def _check_record(path: Path, text: str, parse: Callable[[str], Any]) -> Any:
    content = parse_yaml(text) if path.suffix == ".yaml" else parse(text)
    if (shape := _SHAPES.get(path.name)) is not None:
        TypeAdapter(shape).validate_python(content)
    return content


def score_records(card: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of each score of a scorecard, of any file's name; none if they are damaged."""
    try:
        records = TypeAdapter(list[_ScoreRecord]).validate_python(card.get("records", []))
    except ValidationError:
        return []
    return [record.model_dump() for record in records]


# ------------------------------------------------------------------ models


def model_folder(path: str) -> str:
    """The folder of a model: of a run its best checkpoint. Any other path or name is returned as it is.

    Raises:
        UserError: if the run has none yet, or it is not as the run left it.
    """
    run = user_path(path, "model")
    if not is_file(run / "run.json"):
        return path
    if not is_folder(run / "best"):
        raise UserError(f"{run}: the run has no best/ yet; name one of its checkpoints, {run}/step_<n>")
    sums = readable_record(run / "run.json").get("sums", {})
    if changed := changed_files(run, {n: s for n, s in sums.items() if n.startswith("best/")}):
        raise UserError(
            f"{run}: {list_names(changed)} is missing, or not as the run saved it. To make best/ again: "
            f"{resume_command(run)}. If it is meant to be another, name the folder itself: {run}/best"
        )
    return str(run / "best")


def module_folders(folder: Path, *, trusts_code: bool = False) -> list[Path]:
    """The folder of a model, and those in it that its modules are loaded from; their records are checked.

    Raises:
        UserError: if one leads out of the folder, names code other than the library's, or is damaged.
    """
    modules = read_record(folder / _MODULES) if is_file(folder / _MODULES) else []
    for number, module in enumerate(modules):
        if not trusts_code and not module["type"].startswith(_LIBRARY):
            problem = f"names the class {one_line(module['type'])}, Python code that comes with the model"
            message = f"{problem}: read it, then model.trust_remote_code=true runs it"
            raise UserError(message, file=folder / _MODULES, field=f"{number}.type")
    folders = list(dict.fromkeys([folder, *(folder / module["path"] for module in modules)]))
    for part in folders:
        for name in (_SHARDS, ADAPTER_CONFIG, *_TRANSFORMERS):
            if is_file(part / name):
                read_record(part / name)
        if is_file(part / ADAPTER_CONFIG) and not is_file(part / ADAPTER):
            message = f"{ADAPTER} is missing beside it, and pickles are not read"
            raise UserError(message, file=part / ADAPTER_CONFIG)
    return folders


# ------------------------------------------------------------------ what a record alone never starts


def refuse_recorded_code(
    model: Mapping[str, Any] | None, record: Path | str, *, repeats: bool, option: str
) -> None:
    """Refuse a model's code that only a file, not the user, allows.

    Args:
        model: a section `model`.
        record: the file.
        repeats: whether this command line, or this call, says so too.
        option: with which it does.

    Raises:
        UserError: if it does not.
    """
    if model and model.get("trust_remote_code") and not repeats:
        raise UserError(
            f"{record} has trust_remote_code: true, which runs Python code that comes with the model. It "
            f"counts only on the command line, or in the call from Python: read the code, then {option}",
            option=option,
        )


def refuse_recorded_options(run: Path, recorded: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Refuse dangerous options that only a run's record names.

    Args:
        recorded: its configuration.
        current: that of this command line.

    Raises:
        UserError: for modules to import, a model to publish, files that it was not trained on.
    """
    modules, named = recorded.get("extensions") or (), current.get("extensions") or ()
    if unnamed := [module for module in modules if module not in (*named, "__main__")]:  # the user's cells
        raise UserError(
            f"the run in {run} needs Python code, which is run only if you name it: "
            f"extensions=[{','.join(map(one_line, modules))}]",
            option="extensions",
            field=list_names(list(map(one_line, unnamed))),
        )
    hub, model = recorded.get("hub") or {}, recorded.get("model") or {}
    if hub.get("push") and not (current.get("hub") or {}).get("push"):
        push = f"hub.push={one_line(str(hub['push']))}"
        raise UserError(
            f"the run in {run} publishes models as {one_line(str(hub.get('repo_id')))}, which it does only "
            f"if you say so again: {push}, or hub.push=null",
            option=push,
        )
    of_command = current.get("model") or {}
    options = [
        model.get(name) for name in ("glossary", "idiom_tokens") if model.get(name) != of_command.get(name)
    ]
    texts = [text for value in options for text in ([value] if isinstance(value, str) else value or ())]
    check_recorded_files(map(Path.expanduser, map(Path, texts)), run)


def check_recorded_files(files: Iterable[Path], run: Path) -> None:
    """Check, by checksum, that files named only by a run's record are those of its training.

    Whoever made the record knows what is in them: no other file is shown to anybody.

    Raises:
        UserError: naming one that is not.
    """
    record = readable_record(run / "run.json")
    sums = {*record.get("data", {}).values(), *((record.get("glossary") or {}).get("sums") or {}).values()}
    for file in files:
        if is_file(file) and fingerprint(file) not in sums:
            problem = f"the run in {run} names this file, but was not trained on it (by its SHA-256)"
            raise UserError(f"{problem}: name it on the command line if you mean it", file=file)
