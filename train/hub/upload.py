"""What is pushed to the Hub of a run: which files, the card, and whether they may be. Asks no network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError, safe_open

import train
from train.config import PushSettings
from train.errors import UserError
from train.hub.card import eval_result_files, model_card
from train.hub.licences import ask_for_licence, common_licence, sources_of
from train.hub.paths import shortened_paths
from train.io.files import fingerprint
from train.io.paths import expanded
from train.runs.resume import read_config, read_run

MANIFEST = "idiomtune.json"  # in a repository: what of it was pushed, so that only that is ever replaced

_PICKLE = re.compile(r".+\.(bin|pt|pth|pkl|pickle|ckpt)")
# Names of a model's files; those that the run itself saved go with it whatever their name.
_MODEL_FILE = re.compile(
    r".+\.(safetensors|json|txt|model|spm|vocab|bpe|tiktoken|jinja|py|onnx|onnx_data)|LICEN[CS]E|NOTICE"
)
_MAX_FILE_SIZE = 50 * 10**9  # bytes; the Hub advises against more


@dataclass(frozen=True)
class Upload:
    """What is pushed.

    Attributes:
        folder: of the model.
        files: path in the repository → a file, or its content.
        card: README.md, which is among the files.
        licence: of the model, or None where it is not known.
        problems: why this cannot be pushed as it is, each with what to do.
        message: of the commit.
        left_out: files that lie there, and are no model's: logs, data.
    """

    folder: Path
    files: dict[str, Path | bytes]
    card: str
    licence: str | None
    problems: list[str]
    message: str
    left_out: Sequence[str] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file."""
        return {n: len(f) if isinstance(f, bytes) else f.stat().st_size for n, f in self.files.items()}


def collect(settings: PushSettings) -> Upload:
    """Find the checkpoint's files, check that they are whole, and write the card.

    Raises:
        UserError: if there is no such checkpoint, it is damaged or has no scores, the run has not ended, or
            a file is no safetensors, or too large.
    """
    assert settings.repo_id is not None  # else no model is pushed
    run, folder = find_checkpoint(settings.checkpoint)
    record = read_run(run)
    scores = _scores(run, folder, record)
    checkpoint = saved_as(run, folder, record)
    models, left_out = _model_files(run, folder, checkpoint)
    check_whole(run, folder, checkpoint)
    config = read_config(run)
    sources = sources_of(config, record.get("glossary"))
    licence = settings.license or common_licence(sources)
    problems = []
    if licence is None:
        problems.append(ask_for_licence(sources, "license"))
    problems += sample_problem(config, settings)
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
    files: dict[str, Path | bytes] = {
        **models,
        "README.md": card.encode(),
        "scores.json": _json(shortened_paths(scores)),
        "config.yaml": public.encode(),
        **({} if config["data"]["sample"] else eval_result_files(scores["scores"])),
    }
    files[MANIFEST] = manifest(files, models)
    message = f"{folder.name} of {record['experiment']}, seed {record['seed']}"
    return Upload(folder, files, card, licence, problems, message, left_out)


def sample_problem(config: Mapping[str, Any], settings: PushSettings) -> list[str]:
    """Why a run on the sample is not pushed, where it is one and that was not meant."""
    if not config["data"]["sample"] or settings.allow_sample:
        return []
    return [
        "it was trained on the project's small sample data, to see that everything works: nobody should "
        "rely on such a model. If you mean to publish it, add allow_sample=true; its card says so"
    ]


def manifest(names: Iterable[str], files: Mapping[str, Path]) -> bytes:
    """The list of what is pushed, with the checksums of these files."""
    sums = {name: fingerprint(path) for name, path in files.items()}
    return _json({"version": train.__version__, "files": sorted(names), "sha256": sums})


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def find_checkpoint(checkpoint: str) -> tuple[Path, Path]:
    """The run folder, and in it the folder of the model.

    Raises:
        UserError: if there is none.
    """
    path = expanded(checkpoint, "checkpoint").resolve()
    if (path / "run.json").is_file():
        return path, path / "best"
    is_part = path.name == "best" or path.name.removeprefix("step_").isdigit()
    if is_part and path.is_dir() and (path.parent / "run.json").is_file():
        return path.parent, path
    several = sorted(found.parent.name for found in path.glob("*/run.json"))
    if several:
        hint = f"it holds {len(several)} runs: name one of them, as {checkpoint}/{several[0]}"
    elif (path / "modules.json").is_file():
        hint = (
            "it is a model, but what its card says (scores, data, how it was trained) is in the run folder "
            "around it: give that"
        )
    else:
        hint = "give a run folder (with run.json), its best/ or one of its step_<n>/"
    raise UserError(f"checkpoint={checkpoint}: there is no run in that folder; {hint}")


def saved_as(run: Path, folder: Path, record: Mapping[str, Any]) -> Path:
    """The checkpoint that a folder was made of: of `best/` the best one."""
    return run / f"step_{record.get('best_step')}" if folder.name == "best" else folder


def check_finished(run: Path, folder: Path, record: Mapping[str, Any]) -> None:
    """Check that the best model is chosen, if that is what is pushed.

    Raises:
        UserError: if the run has not ended.
    """
    if folder.name == "best" and record.get("status") != "finished":
        raise UserError(
            f"the run in {run} has not ended ({record.get('status')}), so that its best model is not chosen "
            f"and scored: go on with python -m train resume={run}, or push one of its checkpoints, "
            f"checkpoint={run}/step_<n>"
        )


def _scores(run: Path, folder: Path, record: dict[str, Any]) -> dict[str, Any]:
    """The scores that the model is published with: `scores`, `baseline` and `meta`."""
    if folder.name != "best":
        content = _read_scores(
            folder / "scores.json", "the checkpoint was saved at an interrupt; push another"
        )
        baseline = _finite(_read_json(run / "baseline.json"))
        return {**content, "baseline": baseline, "meta": {**content["meta"], "checkpoint": folder.name}}
    check_finished(run, folder, record)
    return _read_scores(run / "scores.json", f"score it again with python -m train resume={run}")


def _read_scores(path: Path, advice: str) -> dict[str, Any]:
    if not path.exists():
        raise UserError(f"there is no {path}, and a model is published with its scores: {advice}")
    content = _read_json(path)
    if not isinstance(content, dict) or not {"scores", "baseline", "meta"} <= content.keys():
        raise UserError(f"{path} is damaged: {advice}")
    return content | {part: _finite(content[part]) for part in ("scores", "baseline")}


def _read_json(path: Path) -> Any:
    """The content of a file; None if it is missing or damaged, and for numbers that are not finite."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (FileNotFoundError, ValueError):
        return None


def _finite(scores: Any) -> dict[str, float]:
    """Scores without those that are not finite, which older runs may have kept, and JSON cannot."""
    return {k: v for k, v in scores.items() if v is not None} if isinstance(scores, dict) else {}


def _model_files(run: Path, folder: Path, checkpoint: Path) -> tuple[dict[str, Path], list[str]]:
    """The files of the plain sentence-transformers folder, by their path in it, and what is left out.

    Args:
        checkpoint: that the folder was made of; what the run saved there has a checksum.

    Raises:
        UserError: if one must not be published, or the model is not whole.
    """
    from train.training.checkpoint import NOT_OF_THE_MODEL  # torch takes seconds to start

    files: dict[str, Path] = {}
    left_out: list[str] = []
    saved = _read_json(checkpoint / "checksums.json") or ()  # pruned or damaged: see `check_whole`
    for path in sorted(folder.rglob("*")):
        _check_link(path, run)
        name = path.relative_to(folder).as_posix()
        is_hidden = any(part.startswith(".") for part in name.split("/"))
        if is_hidden or name in (*NOT_OF_THE_MODEL, "README.md") or not path.is_file():
            continue
        _check_no_pickle(path)
        if name in saved or _MODEL_FILE.fullmatch(path.name):
            _check_size(path)
            files[name] = path
        else:
            left_out.append(name)
    for needed in ("modules.json", "config.json"):
        if needed not in files:
            raise UserError(f"{folder} is no whole model: {needed} is missing")
    if not {"model.safetensors", "model.safetensors.index.json"} & files.keys():
        raise UserError(f"{folder} is no whole model: model.safetensors is missing")
    return files, left_out


def _check_link(path: Path, run: Path) -> None:
    """A link to a folder is not followed by every tool, and one out of the run may show anything."""
    if path.is_symlink() and (path.is_dir() or not path.resolve().is_relative_to(run.resolve())):
        raise UserError(
            f"{path} is a link to {path.resolve()}, which may be anything: put a copy of what it points to "
            "in its place if it is the model's, or else remove it"
        )


def _check_no_pickle(path: Path) -> None:
    if _PICKLE.fullmatch(path.name):
        raise UserError(
            f"{path} may hold a pickle, which can run anything on the machine that loads it: only "
            "safetensors are pushed. Remove it if it is not the model's"
        )


def _check_size(path: Path) -> None:
    size = path.stat().st_size
    if size > _MAX_FILE_SIZE:
        raise UserError(
            f"{path} has {size / 1e9:.1f} GB, and the Hub takes {_MAX_FILE_SIZE / 1e9:.0f} GB a file at "
            "most: save the model in shards, model.save_pretrained(folder, max_shard_size='5GB')"
        )


def check_whole(run: Path, folder: Path, checkpoint: Path) -> None:
    """Check the files against the checksums that they were saved with, where those are still there.

    Raises:
        UserError: if one is damaged.
    """
    from train.training.checkpoint import verify  # torch takes seconds to start

    has_sums = (checkpoint / "checksums.json").is_file()
    problem = verify(checkpoint, model_in=folder) if has_sums else None
    for path in folder.rglob("*.safetensors"):
        try:
            with safe_open(path, "numpy"):  # checks the header against the file's length
                pass
        except SafetensorError:
            problem = problem or f"{path.name} is damaged"
    if problem is not None:
        raise UserError(
            f"{folder} is not as it was saved: {problem}. If a checkpoint is whole, "
            f"python -m train resume={run} makes best/ anew"
        )
