"""What is pushed to the Hub of a run: which files, the card, and whether they may be. Uses no network."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import yaml
from safetensors import SafetensorError, safe_open

import train
from train.config import PushSettings
from train.errors import UserError
from train.hub.card import eval_result_files, model_card, shortened_paths
from train.hub.licences import ask_for_licence, common_licence, glossary_sources, shown_texts, sources_of
from train.io.files import fingerprint
from train.io.paths import expanded, is_file, is_folder
from train.runs.resume import CHECKSUMS, read_config, read_mapping, read_run

MANIFEST = "idiomtune.json"  # in a repository: what of it was pushed, so that only that is ever replaced

_PICKLE = re.compile(r".+\.(bin|pt|pth|pkl|pickle|ckpt)")
# Names of a model's files; those that the run itself saved go with it whatever their name.
_MODEL_FILE = re.compile(
    r".+\.(safetensors|json|txt|model|spm|vocab|bpe|tiktoken|jinja|py|onnx|onnx_data)|LICEN[CS]E|NOTICE"
)
_MAX_FILE_SIZE = 50 * 10**9  # bytes; the Hub advises against more


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A model that is pushed, and where.

    Attributes:
        repo_id: of the repository.
        branch: of it.
        folder: of the files.
        files: path in the repository → a file, or its content; README.md is the card.
        licence: of the model, or of a Space's texts; None if it is not known.
        problems: why this cannot be pushed yet, each with what to do.
        message: of the commit.
        left_out: files of the folder that do not belong to a model: logs, data.
    """

    kind: ClassVar[Literal["model", "space"]] = "model"
    repo_id: str
    branch: str = "main"
    folder: Path
    files: Mapping[str, Path | bytes]
    licence: str | None
    problems: Sequence[str]
    message: str
    left_out: Sequence[str] = ()

    @property
    def card(self) -> str:
        """The content of README.md."""
        content = self.files["README.md"]
        return (content if isinstance(content, bytes) else content.read_bytes()).decode()

    def contents(self) -> dict[str, Path | bytes]:
        """The files with `idiomtune.json`: the list of them, and the checksums of those on disk.

        Raises:
            UserError: if one cannot be read.
        """
        try:
            sums = {name: fingerprint(file) for name, file in self.files.items() if isinstance(file, Path)}
        except OSError as error:
            raise UserError(f"{error.filename} cannot be read: {error.strerror}") from error
        listed = {"version": train.__version__, "files": sorted(self.files), "sha256": sums}
        return {**self.files, MANIFEST: _json(listed)}


@dataclass(frozen=True, kw_only=True)
class SpaceUpload(Upload):
    """A static Space, whose page and README have yet to be written to its folder.

    Attributes:
        model: the folder of the run, or of one of its checkpoints, of which the page shows what it finds.
        metadata: what the Hub reads of the README, apart from its title.
        note: whose texts the page shows, for the README.
    """

    kind = "space"
    model: Path
    metadata: Mapping[str, Any]
    note: str


def collect_model(settings: PushSettings) -> Upload:
    """Find the checkpoint's files, check that they are complete, and write the card.

    Raises:
        UserError: if there is no such checkpoint, it is damaged or has no scores, the run has not ended, or
            a file is not safetensors, or too large.
    """
    assert settings.repo_id is not None  # else no model is pushed
    run, folder, record = _finished(settings.checkpoint)
    scores = _scores(run, folder)
    models, left_out = _model_files(run, folder, record)
    config = read_config(run)
    sources = sources_of(config, record.get("glossary"))
    licence = settings.license or common_licence(sources)
    problems = [] if licence is not None else [ask_for_licence(sources, "license")]
    card = model_card(
        run,
        scores=scores,
        model=settings.repo_id,
        revision=settings.revision,
        licence=licence,
        idiom_tokens=(folder / "idiom_tokens.json").is_file(),
        examples=settings.examples or (),
    )
    public = yaml.safe_dump(shortened_paths(config), sort_keys=False, allow_unicode=True)
    return Upload(
        repo_id=settings.repo_id,
        branch=settings.revision or "main",
        folder=folder,
        files={
            **models,
            "README.md": card.encode(),
            "scores.json": _json(shortened_paths(scores)),
            "config.yaml": public.encode(),
            **({} if config["data"]["sample"] else eval_result_files(scores["scores"])),
        },
        licence=licence,
        problems=problems + _sample_problem(config, settings),
        message=f"{folder.name} of {record['experiment']}, seed {record['seed']}",
        left_out=left_out,
    )


def collect_space(settings: PushSettings) -> SpaceUpload:
    """What the page next to a model shows, and whether it may.

    Raises:
        UserError: if there is no such run, it has not ended, or its model is damaged.
    """
    assert settings.space is not None  # else no page is pushed
    run, model, record = _finished(settings.checkpoint)
    if settings.repo_id is None:  # else it is checked with the model's files
        _check_undamaged(run, model, record)
    config, folder = read_config(run), run / "space"
    # Meanings that the model reads are on the page, too.
    sources = [*shown_texts(config, settings.corpus), *glossary_sources(record.get("glossary"))]
    licence = settings.texts_license or common_licence(sources)
    problems = _sample_problem(config, settings)
    if licence is None:
        problems.append(
            f"the Space shows texts whose licence is not known here: {'; '.join(map(str, sources))}. If they "
            "may be published, give it with texts_license=<identifier>; else show others, as corpus=sample"
        )
    metadata = {
        "license": licence,
        "models": [settings.repo_id] if settings.repo_id else None,
        "datasets": [source.repo_id for source in sources if source.repo_id],
    }
    links = [
        f"[{s.name}](https://huggingface.co/datasets/{s.repo_id})" if s.repo_id else s.name for s in sources
    ]
    return SpaceUpload(
        repo_id=settings.space,
        folder=folder,
        files={name: folder / name for name in ("index.html", "README.md")},
        licence=licence,
        problems=problems,
        message=f"page of {model.name} of {record['experiment']}, seed {record['seed']}",
        model=run if model.name == "best" else model,
        metadata={name: value for name, value in metadata.items() if value},
        note=f"The texts are of {', '.join(links)}" + (f" ({licence})." if licence else "."),
    )


def _sample_problem(config: Mapping[str, Any], settings: PushSettings) -> list[str]:
    """Why a run on the sample is not pushed, unless that is intended."""
    if not config["data"]["sample"] or settings.allow_sample:
        return []
    return [
        "it was trained on the project's small sample data, to see that everything works: nobody should "
        "rely on such a model. If you mean to publish it, add allow_sample=true; its card says so"
    ]


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def run_and_model(path: Path) -> tuple[Path, Path] | None:
    """The run that a path refers to, and the folder of the model (`best/` by default); None for others.

    Raises:
        UserError: for a folder of several runs.
    """
    if is_file(path / "run.json"):
        return path, path / "best"
    if is_folder(path) and (several := sorted(path.glob("*/run.json"))):
        raise UserError(f"{path}: holds {len(several)} runs: name one of them, as {several[0].parent}")
    is_part = path.name == "best" or path.name.removeprefix("step_").isdigit()
    return (path.parent, path) if is_part and is_file(path.parent / "run.json") else None


def _finished(checkpoint: str) -> tuple[Path, Path, dict[str, Any]]:
    """The run folder, in it the folder of the model, and the run's record.

    Raises:
        UserError: if there is none, or it is the best model of a run that has not ended.
    """
    path = expanded(checkpoint, "checkpoint").resolve()
    found = run_and_model(path)
    if found is None or not found[1].is_dir():
        hint = "give a run folder (with run.json), its best/ or one of its step_<n>/"
        if is_file(path / "modules.json"):
            hint = (
                "it is a model, but what its card says (scores, data, how it was trained) is in the run "
                "folder around it: give that"
            )
        raise UserError(f"checkpoint={checkpoint}: there is no run in that folder; {hint}")
    run, folder = found
    record = read_run(run)
    if folder.name == "best" and record.get("status") != "finished":
        raise UserError(
            f"the run in {run} has not ended ({record.get('status')}), so that its best model is not chosen "
            f"and scored: go on with python -m train resume={run}, or push one of its checkpoints, "
            f"checkpoint={run}/step_<n>"
        )
    return run, folder, record


def _scores(run: Path, folder: Path) -> dict[str, Any]:
    """The scores that the model is published with: `scores`, `baseline` and `meta`."""
    if folder.name == "best":
        path, advice = run / "scores.json", f"score it again with python -m train resume={run}"
    else:
        path, advice = folder / "scores.json", "the checkpoint was saved at an interrupt; push another"
    content = read_mapping(path)
    if not {"scores", "baseline", "meta"} <= content.keys():
        state = "damaged" if path.exists() else "no file"
        raise UserError(f"{path}: {state}, and a model is published with its scores: {advice}")
    if folder.name != "best":
        content["baseline"] = read_mapping(run / "baseline.json")
        content["meta"] = {**content["meta"], "checkpoint": folder.name}
    for part in ("scores", "baseline"):  # older runs may have scores that are not finite
        content[part] = {key: value for key, value in (content[part] or {}).items() if math.isfinite(value)}
    return content


def _model_files(run: Path, folder: Path, record: Mapping[str, Any]) -> tuple[dict[str, Path], list[str]]:
    """The files of the plain sentence-transformers folder, by their path in it, and what is left out.

    Raises:
        UserError: if one must not be published, or the model is incomplete or damaged.
    """
    from train.training.checkpoint import NOT_OF_THE_MODEL  # torch takes seconds to start

    files: dict[str, Path] = {}
    left_out: list[str] = []
    saved = read_mapping(_saved_as(run, folder, record) / CHECKSUMS)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_hidden = any(part.startswith(".") for part in name.split("/"))
        if problem := _why_not(path, run):
            raise UserError(f"{path} {problem}")
        if is_hidden or name in (*NOT_OF_THE_MODEL, "README.md") or not path.is_file():
            continue
        if name in saved or _MODEL_FILE.fullmatch(path.name):
            files[name] = path
        else:
            left_out.append(name)
    weights = (
        "model.safetensors.index.json" if "model.safetensors.index.json" in files else "model.safetensors"
    )
    if missing := [name for name in ("modules.json", "config.json", weights) if name not in files]:
        raise UserError(f"{folder} is not a complete model: {missing[0]} is missing")
    _check_undamaged(run, folder, record)
    return files, left_out


def _why_not(path: Path, run: Path) -> str | None:
    """Why what is in a model's folder must not be published, with what to do; None if it may."""
    # A link to a folder is not followed by every tool, and one out of the run may show anything.
    if path.is_symlink() and (path.is_dir() or not path.resolve().is_relative_to(run.resolve())):
        return (
            f"is a link to {path.resolve()}, which may be anything: put a copy of what it points to in its "
            "place if it is the model's, or else remove it"
        )
    if _PICKLE.fullmatch(path.name):
        return (
            "may hold a pickle, which can run anything on the machine that loads it: only safetensors are "
            "pushed. Remove it if it is not the model's"
        )
    if path.is_file() and path.stat().st_size > _MAX_FILE_SIZE:
        return (
            f"has more than {_MAX_FILE_SIZE / 1e9:.0f} GB, the most that the Hub takes: save the model in "
            "shards, model.save_pretrained(folder, max_shard_size='5GB')"
        )
    return None


def _saved_as(run: Path, folder: Path, record: Mapping[str, Any]) -> Path:
    """The checkpoint that a folder was made of: of `best/` the best one."""
    return run / f"step_{record.get('best_step')}" if folder.name == "best" else folder


def _check_undamaged(run: Path, folder: Path, record: Mapping[str, Any]) -> None:
    """Check the files against the checksums that they were saved with, if those are still there.

    Raises:
        UserError: if one is damaged.
    """
    from train.training.checkpoint import verify  # torch takes seconds to start

    checkpoint = _saved_as(run, folder, record)
    problem = verify(checkpoint, model_in=folder) if (checkpoint / CHECKSUMS).is_file() else None
    for path in folder.rglob("*.safetensors"):
        try:
            with safe_open(path, "numpy"):  # checks the header against the file's length
                pass
        except SafetensorError:
            problem = problem or f"{path.name} is damaged"
    if problem is not None:
        raise UserError(
            f"{folder} is not as it was saved: {problem}. If a checkpoint is undamaged, "
            f"python -m train resume={run} makes best/ again"
        )
