"""What is pushed to the Hub of a run: which files, the card, and whether they may be. Asks no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from safetensors import SafetensorError, safe_open

import train
from train.config import PushSettings
from train.errors import UserError
from train.hub.card import model_card, shortened_paths
from train.hub.licences import ask_for_licence, base_model, common_licence, glossary_sources, training_data
from train.io.files import fingerprint
from train.runs.resume import read_config, read_run

MANIFEST = "idiomtune.json"  # in a repository: what of it was pushed, so that only that is ever replaced

_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
# What the files of a model end in; those that the run itself saved go with it whatever their name.
_OF_A_MODEL = (
    *(".safetensors", ".json", ".txt", ".model", ".spm", ".vocab", ".bpe", ".tiktoken", ".jinja", ".py"),
    *(".onnx", ".onnx_data"),
)
_ALSO_OF_A_MODEL = ("LICENSE", "LICENCE", "NOTICE")
_GREATEST_FILE = 50 * 10**9  # bytes; the Hub advises against more


@dataclass(frozen=True)
class Upload:
    """What is pushed.

    Attributes:
        folder: of the model.
        files: path in the repository → a file, or its content.
        card: README.md, which is among the files.
        licence: of the model, or None where it is not known.
        problems: why this cannot be pushed as it is, each with what to do.
        left_out: files that lie there, and are no model's: logs, data.
        message: of the commit.
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
    run, folder = _find(settings.checkpoint)
    record = read_run(run)
    scores = _scores(run, folder, record)
    models, left_out = _model_files(run, folder, record)
    _check_whole(run, folder, record)
    config = read_config(run)
    sources = [base_model(config), *training_data(config), *glossary_sources(record.get("glossary"))]
    licence = settings.license or common_licence(sources)
    problems = []
    if licence is None:
        problems.append(ask_for_licence(sources, "license"))
    if config["data"]["sample"] and not settings.allow_sample:
        problems.append(
            "it was trained on the project's small sample data, to see that everything works: nobody should "
            "rely on such a model. If you mean to publish it, add allow_sample=true; its card says so"
        )
    revision = settings.revision
    card = model_card(
        run,
        scores=scores,
        model=settings.repo_id,
        revision=revision,
        licence=licence,
        idiom_tokens=(folder / "idiom_tokens.json").is_file(),
        examples=settings.examples or (),
    )
    files: dict[str, Path | bytes] = dict(models)
    files["README.md"] = card.encode()
    files["scores.json"] = _json(shortened_paths(scores))
    public = yaml.safe_dump(shortened_paths(config), sort_keys=False, allow_unicode=True)
    files["config.yaml"] = public.encode()
    sums = {name: fingerprint(path) for name, path in models.items()}
    files[MANIFEST] = _json({"version": train.__version__, "files": sorted(files), "sha256": sums})
    return Upload(
        folder,
        files,
        card,
        licence,
        problems,
        f"{folder.name} of {record['experiment']}, seed {record['seed']}",
        left_out,
    )


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _find(checkpoint: str) -> tuple[Path, Path]:
    """The run folder, and in it the folder of the model."""
    path = Path(checkpoint).expanduser().resolve()
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


def _scores(run: Path, folder: Path, record: dict[str, Any]) -> dict[str, Any]:
    if folder.name != "best":
        content = _read_scores(
            folder / "scores.json", "the checkpoint was saved at an interrupt; push another"
        )
        baseline = run / "baseline.json"
        known = _read_baseline(baseline)
        return {**content, "baseline": known, "meta": {**content["meta"], "checkpoint": folder.name}}
    if record.get("status") != "finished":
        raise UserError(
            f"the run in {run} has not ended ({record.get('status')}), so that its best model is not chosen "
            f"and scored: go on with python -m train resume={run}, or push one of its checkpoints, "
            f"checkpoint={run}/step_<n>"
        )
    return _read_scores(run / "scores.json", f"score it again with python -m train resume={run}")


def _read_baseline(path: Path) -> dict[str, float]:
    """The untrained model's scores, or none: the model's own are what it is published with."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (FileNotFoundError, ValueError):
        return {}
    return {k: v for k, v in content.items() if v is not None} if isinstance(content, dict) else {}


def _read_scores(path: Path, advice: str) -> dict[str, Any]:
    try:
        # Older runs may have kept scores that are not finite, which JSON cannot.
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except FileNotFoundError:
        raise UserError(f"there is no {path}, and a model is published with its scores: {advice}") from None
    except ValueError:
        content = None
    if not isinstance(content, dict) or not {"scores", "baseline", "meta"} <= content.keys():
        raise UserError(f"{path} is damaged: {advice}")
    return content | {
        part: {key: value for key, value in content[part].items() if value is not None}
        for part in ("scores", "baseline")
    }


def _model_files(run: Path, folder: Path, record: dict[str, Any]) -> tuple[dict[str, Path], list[str]]:
    """The files of the plain sentence-transformers folder, by their path in it, and what is left out.

    Raises:
        UserError: if one must not be published, or the model is not whole.
    """
    from train.training.checkpoint import NOT_OF_THE_MODEL  # torch takes seconds to start

    files: dict[str, Path] = {}
    left_out: list[str] = []
    saved = _saved_files(_checkpoint_of(run, folder, record))
    for path in sorted(folder.rglob("*")):
        _check_no_way_out(path, run)
        if not path.is_file():
            continue
        name = path.relative_to(folder).as_posix()
        if name in (*NOT_OF_THE_MODEL, "README.md") or any(part.startswith(".") for part in name.split("/")):
            continue
        if path.suffix in _PICKLES:
            raise UserError(
                f"{path} may hold a pickle, which can run anything on the machine that loads it: only "
                "safetensors are pushed. Remove it if it is not the model's"
            )
        if name not in saved and path.suffix not in _OF_A_MODEL and path.name not in _ALSO_OF_A_MODEL:
            left_out.append(name)
            continue
        size = path.stat().st_size
        if size > _GREATEST_FILE:
            raise UserError(
                f"{path} has {size / 1e9:.1f} GB, and the Hub takes {_GREATEST_FILE / 1e9:.0f} GB a file at "
                "most: save the model in shards, model.save_pretrained(folder, max_shard_size='5GB')"
            )
        files[name] = path
    for needed in ("modules.json", "config.json"):
        if needed not in files:
            raise UserError(f"{folder} is no whole model: {needed} is missing")
    if not {"model.safetensors", "model.safetensors.index.json"} & files.keys():
        raise UserError(f"{folder} is no whole model: model.safetensors is missing")
    return files, left_out


def _check_no_way_out(path: Path, run: Path) -> None:
    """A link to a folder is not followed by every tool, and one out of the run may show anything."""
    if path.is_symlink() and (path.is_dir() or not path.resolve().is_relative_to(run.resolve())):
        raise UserError(
            f"{path} is a link to {path.resolve()}, which may be anything: put a copy of what it points to "
            "in its place if it is the model's, or else remove it"
        )


def _checkpoint_of(run: Path, folder: Path, record: dict[str, Any]) -> Path:
    """The checkpoint that a model's folder was made of."""
    return run / f"step_{record.get('best_step')}" if folder.name == "best" else folder


def _saved_files(checkpoint: Path) -> set[str]:
    """What the run saved in a checkpoint, by its list of checksums."""
    try:
        sums = json.loads((checkpoint / "checksums.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # pruned or damaged, of which `_check_whole` tells
        return set()
    return set(sums) if isinstance(sums, dict) else set()


def _check_whole(run: Path, folder: Path, record: dict[str, Any]) -> None:
    from train.training.checkpoint import verify  # torch takes seconds to start

    step = _checkpoint_of(run, folder, record)
    problem = verify(step, model_in=folder) if (step / "checksums.json").is_file() else None
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
