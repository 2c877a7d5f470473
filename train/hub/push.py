"""Pushing a checkpoint, or a Space, to the Hugging Face Hub: one commit, which a second call completes."""

from __future__ import annotations

import json
import logging
import shlex
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    ModelInfo,
    SpaceInfo,
    get_session,
    get_token,
    is_offline_mode,
)
from huggingface_hub.errors import RepositoryNotFoundError

from train.config import HubSettings, PushSettings
from train.errors import UserError
from train.hub.failures import ADVICE_ON_CREATION, explain, explained, http_status, reason_for
from train.hub.licences import ask_for_licence, common_licence, sources_of
from train.hub.upload import MANIFEST, Upload, collect
from train.io.hub import CLIENT_ERRORS, without_secrets
from train.io.text import printable

log = logging.getLogger(__name__)

# Seconds without any answer. The client has no limit of its own, and where it tries again it waits
# 23 s in all in between.
_QUESTION_TIMEOUT = 15.0
_UPLOAD_TIMEOUT = 120.0
_MAIN = "main"
_ASKING_WHO = "asking whose the token is"


@dataclass(frozen=True)
class Target:
    """A repository on the Hub, and what is allowed there."""

    repo_id: str
    private: bool
    overwrite: bool
    branch: str = _MAIN
    kind: Literal["model", "space"] = "model"


def push_checkpoint(settings: PushSettings) -> str | None:
    """Push, or show what would be pushed; the last line that is printed is the commit's address.

    Returns:
        That address; None for a dry run.

    Raises:
        UserError: for everything that the user can mend.
    """
    return send(collected(settings), model_target(settings), dry_run=settings.dry_run)


def send(upload: Upload, target: Target, *, dry_run: bool) -> str | None:
    """Push what was collected; arguments, Returns, Raises: as of :func:`push_checkpoint`."""
    if dry_run:
        _show(upload, target)
        return None
    url = without_secrets(_push(upload, target))
    print(url)
    return url


def model_target(settings: PushSettings) -> Target:
    """Where the model goes."""
    assert settings.repo_id is not None  # else no model is pushed
    return Target(settings.repo_id, settings.private, settings.overwrite, settings.revision or _MAIN)


def check_can_send(problems: Sequence[str]) -> None:
    """What would fail for certain, before anything long is done.

    Raises:
        UserError: if there are problems or no token.
    """
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in dict.fromkeys(problems))
        raise UserError(f"this cannot be pushed as it is:\n{listed}")
    _check_token("a push")


def check_can_push(
    hub: HubSettings, config: dict[str, Any], glossary: Mapping[str, Any] | None = None
) -> None:
    """At the start of a training that is to push: what would fail at its end for certain.

    Args:
        glossary: what is known of the one that `model.glossary` names.

    Raises:
        UserError: if the licence is unknown, there is no token, or the Hub rejects it.
    """
    if hub.push is None:
        return
    sources = sources_of(config, glossary)
    if hub.license is None and common_licence(sources) is None:
        raise UserError(f"hub.push={hub.push}: {ask_for_licence(sources, 'hub.license')}")
    _check_token(f"hub.push={hub.push}")
    try:
        with _time_limit(_QUESTION_TIMEOUT):
            name = HfApi().whoami()["name"]
    except CLIENT_ERRORS as error:
        if http_status(error) in (401, 403):
            raise explain(error, _ASKING_WHO, hub.repo_id or "") from error
        log.warning(
            "the Hub does not answer (%s): what is trained is pushed if it does later", reason_for(error)
        )
        return
    log.info("pushing %s to %s as %s", hub.push, hub.repo_id, name)


def push_or_warn(hub: HubSettings, checkpoint: Path, revision: str | None = None) -> None:
    """Push from a training run. A failure neither ends nor harms it: it is said, and how to complete it."""
    settings = PushSettings(
        **hub.model_dump(exclude={"push"}),
        checkpoint=str(checkpoint),
        revision=revision,
        examples=None,
        space=None,
        corpus=None,
        texts_license=None,
        dry_run=False,
    )
    try:
        url = _push(collected(settings), model_target(settings))
    except UserError as error:
        reason = str(error)
    except Exception as error:  # a bug, but hours of training are worth more: it is shown as one
        reason = without_secrets("unexpected " + "".join(traceback.format_exception(error)).strip())
    else:
        log.info("pushed %s: %s", checkpoint.name, without_secrets(url))
        return
    log.warning(
        "%s was NOT pushed to %s: %s\nThe run is not touched by that. To push it: %s",
        checkpoint,
        hub.repo_id,
        reason,
        push_command(settings),
    )


def push_command(settings: PushSettings) -> str:
    """The command line of a push."""
    options = {
        "checkpoint": settings.checkpoint,
        "repo_id": settings.repo_id,
        "revision": settings.revision,
        "private": None if settings.private else "false",
        "license": settings.license,
        "overwrite": "true" if settings.overwrite else None,
        "allow_sample": "true" if settings.allow_sample else None,
    }
    given = [shlex.quote(f"{name}={value}") for name, value in options.items() if value]
    return " ".join(["python -m train.push", *given])


def collected(settings: PushSettings) -> Upload:
    """The model's files.

    Raises:
        UserError: if they are not there, or not to be pushed.
    """
    try:
        return collect(settings)
    except OSError as error:  # it asks no network
        raise UserError(
            f"checkpoint={settings.checkpoint}: {error.filename} cannot be read: {error.strerror}"
        ) from error


def _show(upload: Upload, target: Target) -> None:
    """The dry run."""
    for problem in upload.problems:
        print(f"Before this can be pushed: {problem}\n")
    sizes = upload.sizes
    where = f"the Space {target.repo_id}" if target.kind == "space" else target.repo_id
    print(printable(f"{upload.folder} would be pushed to {where}, {target.branch}"))
    print(f"(made {'private' if target.private else 'public'} if it is not there yet; nobody was asked)\n")
    for name, size in sizes.items():
        print(printable(f"{size:>15,}  {name}"))
    for name in upload.left_out:
        print(printable(f"{'left out':>15}  {name}"))
    print(f"{sum(sizes.values()):>15,}  bytes in {len(sizes)} files\n")
    print(f"licence: {upload.licence or 'NOT KNOWN'}\n")
    print(printable(f"README.md:\n\n{upload.card}"))


def _push(upload: Upload, target: Target) -> str:
    """Push, and give the commit's address."""
    check_can_send(upload.problems)
    api, repo_id, branch = HfApi(), target.repo_id, target.branch
    with _time_limit(_QUESTION_TIMEOUT):
        with explained(_ASKING_WHO, repo_id):
            user = str(api.whoami()["name"])
        step = partial(explained, repo_id=repo_id, user=user)
        with step(f"looking for the repository {repo_id}"):
            exists = _check_existing(api, target)
        if not exists:
            with step(f"making the repository {repo_id}", advice=ADVICE_ON_CREATION):
                sdk = "static" if target.kind == "space" else None
                api.create_repo(repo_id, repo_type=target.kind, private=target.private, space_sdk=sdk)
        if branch != _MAIN:
            with step(f"making the branch {branch}"):
                api.create_branch(repo_id, repo_type=target.kind, branch=branch, exist_ok=True)
        with step(f"listing what {repo_id} has on {branch}"):
            stale = _pushed_before(api, target) - upload.files.keys()
    if upload.left_out:
        log.warning("left out, for no model has such files: %s", ", ".join(upload.left_out))
    # In a commit alone the client wraps what it meets in these, and its Rust part raises them.
    with (
        _time_limit(_UPLOAD_TIMEOUT),
        step("uploading", errors=(*CLIENT_ERRORS, RuntimeError, ValueError)),
    ):
        size, number = sum(upload.sizes.values()) / 1e6, len(upload.files)
        log.info("uploading %.1f MB in %d files to %s, %s", size, number, repo_id, branch)
        # Not `upload_folder`, which makes several commits of a large folder.
        additions = [CommitOperationAdd(name, content) for name, content in upload.files.items()]
        deletions = [CommitOperationDelete(name) for name in sorted(stale)]
        done = api.create_commit(
            repo_id,
            [*additions, *deletions],
            commit_message=upload.message,
            revision=branch,
            repo_type=target.kind,
        )
    return str(done.commit_url)


def _info(api: HfApi, target: Target, branch: str | None = None) -> ModelInfo | SpaceInfo:
    """What the Hub says of the repository."""
    ask = api.space_info if target.kind == "space" else api.model_info
    return ask(target.repo_id, revision=branch, timeout=_QUESTION_TIMEOUT)


def _check_existing(api: HfApi, target: Target) -> bool:
    """Whether the repository is there. If so, it must be empty or pushed by this program.

    Raises:
        UserError: if it holds something else, or is public where it was to be private.
    """
    try:
        info = _info(api, target)
    except RepositoryNotFoundError:
        return False
    if target.private and info.private is False:
        raise UserError(
            f"the repository {target.repo_id} is there and public, and a push is private by default: add "
            f"private=false if everybody may see this {target.kind}, or make the repository private on its "
            "page"
        )
    if info.private and not target.private:
        log.warning("the repository %s is private and stays so: its page can change that", target.repo_id)
    names = {sibling.rfilename for sibling in info.siblings or []} - {".gitattributes"}
    if names and MANIFEST not in names and not target.overwrite:
        shown = ", ".join(sorted(names)[:5]) + (", …" if len(names) > 5 else "")
        raise UserError(
            f"the repository {target.repo_id} is there and holds something that was not pushed from here "
            f"({shown}): choose another name, or add overwrite=true to put this {target.kind} among it "
            "(files of the same name are replaced)"
        )
    return True


def _pushed_before(api: HfApi, target: Target) -> set[str]:
    """The files on a branch that an earlier push has left: those alone may be removed."""
    info = _info(api, target, target.branch)
    names = {sibling.rfilename for sibling in info.siblings or []}
    if MANIFEST not in names:
        return set()
    with tempfile.TemporaryDirectory() as folder:
        path = api.hf_hub_download(
            target.repo_id, MANIFEST, repo_type=target.kind, revision=target.branch, local_dir=folder
        )
        try:
            manifest = json.loads(Path(path).read_text(encoding="utf-8"))
            return set(manifest["files"]) & names
        except (ValueError, KeyError, TypeError):
            return set()


def _check_token(what: str) -> None:
    if is_offline_mode():
        raise UserError(
            f"{what} needs the Hub, and HF_HUB_OFFLINE forbids to ask it: unset it, or push later with "
            "python -m train.push"
        )
    try:
        token = get_token()
    except CLIENT_ERRORS as error:  # a token that had to be fetched
        raise UserError(f"{what} needs a token, and it could not be had: {reason_for(error)}") from error
    if token is None:
        raise UserError(
            f"{what} needs a token with write access: put it into the environment variable HF_TOKEN, or log "
            "in once with `hf auth login`"
        )


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """In here the client gives up on a server that says nothing for so long."""
    session = get_session()
    before = session.timeout
    session.timeout = seconds
    try:
        yield
    finally:
        session.timeout = before
