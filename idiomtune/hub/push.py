"""Pushing a checkpoint or a data set to the Hugging Face Hub: its files, its permission, one commit."""

from __future__ import annotations

import json
import logging
import re
import shlex
import tempfile
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_session
from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError

from idiomtune.config import HubSettings, PushSettings, TrainSettings, validate
from idiomtune.data.names import WRITTEN
from idiomtune.errors import UserError, resume_command
from idiomtune.hub.model_card import ask_for_licence, common_licence, model_card, shortened_paths, sources_of
from idiomtune.io import run_files
from idiomtune.io.files import find_links, list_names, printable, read_json, read_text, user_path
from idiomtune.io.hub import CLIENT_ERRORS, is_network_error, reason_for, without_secrets
from idiomtune.io.records import readable_record
from idiomtune.io.secrets import refuse_files
from idiomtune.io.version import __version__

log = logging.getLogger(__name__)

MANIFEST = "idiomtune.json"  # in a repository: what of it was pushed, so that only that is ever replaced

_PICKLE = re.compile(r".+\.(bin|pt|pth|pkl|pickle|ckpt)")
# Names of a model's files; those that the run itself saved go with it whatever their name.
_MODEL_FILE = re.compile(
    r".+\.(safetensors|json|txt|model|spm|vocab|bpe|tiktoken|jinja|py|onnx|onnx_data)|LICEN[CS]E|NOTICE"
)
_DATA_FILES = "README.md", WRITTEN, "texts.jsonl", "prompts/*.txt", "[tv]*/indexes.json", "[tv]*/queries.json"
# Seconds without an answer: the client itself has no limit.
_QUESTION_TIMEOUT = 15.0
_UPLOAD_TIMEOUT = 120.0
# In a commit the client wraps errors in the last two, and its Rust part raises them.
_PUSH_ERRORS: tuple[type[Exception], ...] = (*CLIENT_ERRORS, RuntimeError, ValueError)


# ------------------------------------------------------------------------------------- what is pushed


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A model or data set that is pushed.

    Attributes:
        folder: of the files.
        files: path in the repository → a file, or its content; README.md is the card.
        licence: None if it is not known.
        problems: why this cannot be pushed yet, each with what to do.
        message: of the commit.
        left_out: files of the folder that do not belong to a model: logs, data.
    """

    kind: Literal["model", "dataset"] = "model"
    folder: Path
    files: Mapping[str, Path | bytes]
    licence: str | None
    problems: list[str]
    message: str
    left_out: list[str]

    @property
    def card(self) -> str:
        """The content of README.md."""
        content = self.files["README.md"]
        return (content if isinstance(content, bytes) else content.read_bytes()).decode()

    def contents(self) -> dict[str, Path | bytes]:
        """The files with `idiomtune.json`, the list of them."""
        return {**self.files, MANIFEST: _json({"version": __version__, "files": sorted(self.files)})}


def collect_model(settings: PushSettings) -> Upload:
    """Find the checkpoint's files, check that they are complete, and write the card. Uses no network.

    Raises:
        UserError: if there is no such checkpoint, it is damaged or has no scores, the run has not ended, or
            a file is not safetensors.
    """
    run, folder, record, saved = _check_finished(settings.checkpoint)
    scores = _scores(run, folder)
    models, left_out = _model_files(folder, saved)
    config = run_files.read_config(run)
    sources = sources_of(config, record.get("glossary"))
    licence = settings.license or common_licence(sources)
    card = model_card(
        run,
        scores=scores,
        model=settings.repo_id,
        revision=settings.revision,
        licence=licence,
        idiom_tokens=(folder / "idiom_tokens.json").is_file(),
    )
    problems = [] if licence else [ask_for_licence(sources, "license")]
    if config["data"].get("sample") and not settings.allow_sample:
        reason = "it was trained on the project's small sample data: do not rely on it"
        problems.append(f"{reason}. To publish it anyway, add allow_sample=true; its card says so")
    public = yaml.safe_dump(shortened_paths(config), sort_keys=False, allow_unicode=True)
    return Upload(
        folder=folder,
        files={
            **models,
            "README.md": card.encode(),
            "scores.json": _json(shortened_paths(scores)),
            "config.yaml": public.encode(),
        },
        licence=licence,
        problems=problems,
        message=f"{folder.name} of {record['experiment']}, seed {record['seed']}",
        left_out=left_out,
    )


def collect_data(settings: PushSettings) -> Upload:
    """The files of a data set that `idiomtune write` made.

    Raises:
        UserError: if it is none.
    """
    folder = user_path(settings.checkpoint, "checkpoint")
    record = read_json(folder / WRITTEN)
    if not isinstance(record, dict) or "licence" not in record:
        raise UserError("is not the record of a data set", file=folder / WRITTEN)
    _refuse_links(folder)
    licence = settings.license or record["licence"]
    paths = [path for pattern in _DATA_FILES for path in sorted(folder.glob(pattern))]
    files: dict[str, Path | bytes] = {path.relative_to(folder).as_posix(): path for path in paths}
    card = re.sub(r"(?m)\Alicense: .*", f'license: "{licence}"', read_text(folder / "README.md")[4:])
    named = {name.split("/")[0] for name in files}
    return Upload(
        kind="dataset",
        folder=folder,
        files=files | {"README.md": f"---\n{card}".encode()},
        licence=licence,
        problems=[] if licence else ["license=<id>, such as cc-by-4.0: the licence of the texts"],
        message=f"{folder.name}: written by {record.get('model')}",
        left_out=sorted({path.name for path in folder.glob("[!.]*")} - named),
    )


def _json(content: object) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _check_finished(checkpoint: str) -> tuple[Path, Path, dict[str, Any], Collection[str]]:
    """The run folder, in it the folder of the model, the run's record, and the files that were saved.

    Raises:
        UserError: if there is none, it is the best model of a run that has not ended, or a file is not as it
            was saved, by the checksums of its checkpoint if those are still there.
    """
    path = user_path(checkpoint, "checkpoint").resolve()
    run, folder = run_files.run_and_model(path) or (path, path)
    if run == folder or not folder.is_dir():
        hint = "there is no run in that folder; give a run folder, its best/ or one of its step_<n>/"
        raise UserError(f"checkpoint={checkpoint}: {hint}")
    record = run_files.read_run_json(run)
    if folder.name == "best" and record.get("status") != "finished":
        hint = f"continue it with {resume_command(run)}, or push a checkpoint, checkpoint={run}/step_<n>"
        raise UserError(f"the run in {run} has not ended ({record.get('status')}): {hint}")
    saved_as = run / f"step_{record.get('best_step')}" if folder.name == "best" else folder
    sums = saved_as / run_files.CHECKSUMS
    if sums.is_file() and (problem := run_files.verify(saved_as, model_in=folder)):
        hint = f"if a checkpoint is undamaged, {resume_command(run)} makes best/ again"
        raise UserError(f"{folder} is not as it was saved: {problem}; {hint}")
    return run, folder, record, readable_record(sums)


def _scores(run: Path, folder: Path) -> dict[str, Any]:
    """The scores that the model is published with: `scores`, `baseline` and `meta`."""
    path = (run if folder.name == "best" else folder) / "scores.json"
    content = readable_record(path)
    if not {"scores", "baseline", "meta"} <= content.keys():
        hint = f"score it again with {resume_command(run)}, or push another checkpoint"
        raise UserError(f"{path} is missing or damaged, and a model is published with its scores: {hint}")
    if folder.name != "best":
        content["baseline"] = readable_record(run / "baseline.json")
        content["meta"] = {**content["meta"], "checkpoint": folder.name}
    return {**content, "baseline": content["baseline"] or {}}


def _refuse_links(folder: Path) -> None:
    """Raises UserError for a link: tools follow links differently, and one may lead to anything."""
    if links := find_links(folder):
        problem = f"{links[0]} is a link to {links[0].resolve()}: put a copy there"
        raise UserError(problem, option="checkpoint", file=folder)


def _model_files(folder: Path, saved: Collection[str]) -> tuple[dict[str, Path], list[str]]:
    """The files of the plain sentence-transformers folder, by their path in it, and what is left out.

    Raises:
        UserError: if one must not be published, or the model is incomplete.
    """
    _refuse_links(folder)
    files: dict[str, Path] = {}
    left_out: list[str] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if _PICKLE.fullmatch(path.name):
            reason = "may hold a pickle, which can run anything on the machine that loads it"
            raise UserError(f"{path} {reason}: only safetensors are pushed")
        is_hidden = any(part.startswith(".") for part in name.split("/"))
        if is_hidden or name in (*run_files.NOT_OF_THE_MODEL, "README.md") or not path.is_file():
            continue
        if name in saved or _MODEL_FILE.fullmatch(path.name):
            files[name] = path
        else:
            left_out.append(name)
    index = "model.safetensors.index.json"
    for name in ("modules.json", "config.json", index if index in files else "model.safetensors"):
        if name not in files:
            raise UserError(f"{folder} is not a complete model: {name} is missing")
    return files, left_out


# ------------------------------------------------------------------------------------------- sending


def check_can_push(settings: TrainSettings, glossary: Mapping[str, Any] | None = None) -> None:
    """Check, at the start of a training, for certain failures of the push at its end.

    Args:
        glossary: what is known of the one that `model.glossary` names.

    Raises:
        UserError: if the licence is unknown, there is no token, or the Hub rejects it.
    """
    hub = settings.hub
    if hub.push is None:
        return
    sources = sources_of(settings.record, glossary)
    if hub.license is None and common_licence(sources) is None:
        raise UserError(f"hub.push={hub.push}: {ask_for_licence(sources, 'hub.license')}")
    _check_token(f"hub.push={hub.push}", may_be_silent=True)


def _check_token(action: str, *, may_be_silent: bool = False) -> None:
    """Check that the Hub accepts the token.

    Args:
        may_be_silent: a network that fails is logged.

    Raises:
        UserError: if there is no token, the Hub rejects it, or must not be asked.
    """
    try:
        with _time_limit(_QUESTION_TIMEOUT):
            log.info("the Hub's token is that of %s", HfApi().whoami()["name"])
    except CLIENT_ERRORS as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        is_silent = is_network_error(error) and status not in (401, 403)
        if may_be_silent and is_silent and not isinstance(error, OfflineModeIsEnabled):
            log.warning("the Hub does not answer (%s): it is asked again for the push", reason_for(error))
            return
        hint = "put it into the environment variable HF_TOKEN, or log in once with `hf auth login`"
        message = f"{action} needs the Hub, and a token with write access: {hint}. {reason_for(error)}"
        raise UserError(message) from error


def send(upload: Upload, settings: PushSettings) -> str | None:
    """Push, or print what a push would send.

    Returns:
        The commit's address; None for a dry run.

    Raises:
        UserError: for everything that the user can fix.
    """
    refuse_files(upload.folder, upload.files)
    if settings.dry_run:
        _show(upload, settings)
        return None
    if listed := "\n".join(f"  - {problem}" for problem in upload.problems):
        raise UserError(f"this cannot be pushed:\n{listed}")
    _check_token("a push")
    return _push(upload, settings)


def push_or_warn(hub: HubSettings, checkpoint: Path, revision: str | None = None) -> None:
    """Push from a training run. A failure is logged with instructions; the run continues."""
    options = hub.model_dump(exclude={"push"}) | {"checkpoint": str(checkpoint), "revision": revision}
    settings: PushSettings = validate(PushSettings, {**options, "dry_run": False})
    try:
        url = send(collect_model(settings), settings)
    except UserError as error:
        reason = str(error)
    except Exception as error:  # a bug, but hours of training are worth more: it is shown as one
        reason = without_secrets("unexpected " + "".join(traceback.format_exception(error)).strip())
    else:
        log.info("pushed %s: %s", checkpoint.name, url)
        return
    options = settings.model_dump(exclude_none=True, exclude={"dry_run"})
    overrides = [shlex.quote(f"{name}={value}") for name, value in options.items()]
    message = "%s was NOT pushed to %s: %s\nThe run continues. To push it: idiomtune push %s"
    log.warning(message, checkpoint, hub.repo_id, reason, " ".join(overrides))


def _show(upload: Upload, settings: PushSettings) -> None:
    """The dry run."""
    for problem in upload.problems:
        print(f"Before this can be pushed: {problem}\n")
    sizes = {n: len(f) if isinstance(f, bytes) else f.stat().st_size for n, f in upload.contents().items()}
    visibility = "private" if settings.private else "public"
    print(printable(f"{upload.folder} would be pushed to {settings.repo_id}, {settings.revision or 'main'}"))
    print(f"(dry run: the Hub was not contacted; a new repository would be {visibility})\n")
    lines = [(f"{size:,}", name) for name, size in sizes.items()]
    for size, name in [*lines, *(("left out", name) for name in upload.left_out)]:
        print(printable(f"{size:>15}  {name}"))
    print(f"{sum(sizes.values()):>15,}  bytes in {len(sizes)} files\n")
    print(f"licence: {upload.licence or 'NOT KNOWN'}\n")
    print(printable(f"README.md:\n\n{upload.card}"))


def _push(upload: Upload, settings: PushSettings) -> str:
    """Push, and give the commit's address.

    Raises:
        UserError: for everything that the user can fix.
    """
    contents = upload.contents()
    if upload.left_out:
        log.warning("left out, being no files of a %s: %s", upload.kind, ", ".join(upload.left_out))
    api, branch = HfApi(), settings.revision or "main"
    try:
        with _time_limit(_UPLOAD_TIMEOUT):
            stale = _pushed_before(api, upload, settings) - contents.keys()
            log.info("uploading %d files to %s, %s", len(contents), settings.repo_id, branch)
            added = [CommitOperationAdd(name, content) for name, content in contents.items()]
            deleted = [CommitOperationDelete(name) for name in sorted(stale)]
            # Not `upload_folder`: it makes several commits, and half a model would be visible.
            done = api.create_commit(
                settings.repo_id,
                [*added, *deleted],
                commit_message=upload.message,
                revision=branch,
                repo_type=upload.kind,
            )
    except _PUSH_ERRORS as error:
        hint = "Nobody sees a push until it is complete, and large files are not sent again: run it again"
        message = f"{settings.repo_id}: the push failed: {reason_for(error)}\n  {hint}"
        raise UserError(message) from error
    return without_secrets(str(done.commit_url))


def _pushed_before(api: HfApi, upload: Upload, settings: PushSettings) -> set[str]:
    """The files on the branch that an earlier push has left: those alone may be removed.

    The repository and the branch are made if they are missing.

    Raises:
        UserError: if the repository has something else, or is public although it should be private.
    """
    repo, branch = settings.repo_id, settings.revision or "main"
    target: dict[str, Any] = {"repo_id": repo, "repo_type": upload.kind}

    def names(info: Any) -> set[str]:
        return {sibling.rfilename for sibling in info.siblings or []} - {".gitattributes"}

    try:
        info: Any = api.repo_info(**target)
    except RepositoryNotFoundError:
        api.create_repo(**target, private=settings.private)
    else:
        if settings.private and info.private is False:
            hint = "add private=false if everybody may see it, or make the repository private"
            raise UserError(f"the repository {repo} is public, and a push is private by default: {hint}")
        if info.private and not settings.private:
            log.warning("the repository %s is private and stays so: its page can change that", repo)
        if (present := names(info)) and MANIFEST not in present and not settings.overwrite:
            files = list_names(sorted(present), 5)
            hint = "choose another name, or add overwrite=true (files of the same name are replaced)"
            raise UserError(f"the repository {repo} has files that no push from here left ({files}): {hint}")
    if branch != "main":
        api.create_branch(**target, branch=branch, exist_ok=True)
    present = names(api.repo_info(**target, revision=branch))
    if MANIFEST not in present:
        return set()
    with tempfile.TemporaryDirectory() as folder:  # the client's cache may be read-only
        api.hf_hub_download(**target, filename=MANIFEST, revision=branch, local_dir=folder)
        return present & set(json.loads(Path(folder, MANIFEST).read_text(encoding="utf-8"))["files"])


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """In here the client gives up on a server that says nothing for this many seconds."""
    session = get_session()
    before, session.timeout = session.timeout, seconds
    try:
        yield
    finally:
        session.timeout = before
