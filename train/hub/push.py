"""Pushing a checkpoint to the Hugging Face Hub: one commit, which a second call completes if it failed."""

from __future__ import annotations

import json
import logging
import shlex
import tempfile
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import (
    CommitInfo,
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    get_session,
    get_token,
    is_offline_mode,
)
from huggingface_hub.errors import RepositoryNotFoundError

from train.config import HubSettings, PushSettings
from train.errors import UserError
from train.hub.licences import ask_for_licence, base_model, common_licence, glossary_sources, training_data
from train.hub.upload import MANIFEST, Upload, collect
from train.io.hub import CLIENT_ERRORS, NETWORK_ERRORS, first_line, without_secrets

log = logging.getLogger(__name__)

# Seconds without any answer. The client has no limit of its own, and where it tries again it waits
# 23 s in all in between.
_QUESTION_TIMEOUT = 15.0
_UPLOAD_TIMEOUT = 120.0
_MAIN = "main"


def push_checkpoint(settings: PushSettings) -> str | None:
    """Push, or show what would be pushed; the last line that is printed is the commit's address.

    Returns:
        That address; None for a dry run.

    Raises:
        UserError: for everything that the user can mend.
    """
    upload = _collected(settings)
    if settings.dry_run:
        _show(upload, settings)
        return None
    url = without_secrets(_push(upload, settings))
    print(url)
    return url


def _collected(settings: PushSettings) -> Upload:
    try:
        return collect(settings)
    except OSError as error:  # it asks no network
        raise UserError(
            f"checkpoint={settings.checkpoint}: {error.filename} cannot be read: {error.strerror}"
        ) from error


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
    sources = [base_model(config), *training_data(config), *glossary_sources(glossary)]
    if hub.license is None and common_licence(sources) is None:
        raise UserError(f"hub.push={hub.push}: {ask_for_licence(sources, 'hub.license')}")
    _check_token(f"hub.push={hub.push}")
    try:
        with _limited(_QUESTION_TIMEOUT):
            name = HfApi().whoami()["name"]
    except CLIENT_ERRORS as error:
        if _status(error) in (401, 403):
            raise _explained(error, "asking whose the token is", hub.repo_id or "", None) from error
        log.warning(
            "the Hub does not answer (%s): what is trained is pushed if it does later", _reason(error)
        )
        return
    log.info("pushing %s to %s as %s", hub.push, hub.repo_id, name)


def push_or_warn(hub: HubSettings, checkpoint: Path, revision: str | None = None) -> None:
    """Push from a training run. A failure neither ends nor harms it: it is said, and how to complete it."""
    assert hub.repo_id is not None
    settings = PushSettings(
        checkpoint=str(checkpoint),
        repo_id=hub.repo_id,
        revision=revision,
        private=hub.private,
        license=hub.license,
        overwrite=hub.overwrite,
        allow_sample=hub.allow_sample,
        examples=None,
        dry_run=False,
    )
    try:
        url = _push(_collected(settings), settings)
    except UserError as error:
        reason = str(error)
    except Exception as error:  # a bug, but hours of training are worth more: it is shown as one
        reason = without_secrets("unexpected " + "".join(traceback.format_exception(error)).strip())
    else:
        log.info("pushed %s: %s", checkpoint.name, without_secrets(url))
        return
    log.warning(
        "%s was NOT pushed to %s: %s\nThe run is not touched by that. To push it: %s",
        *(checkpoint, hub.repo_id, reason, push_command(settings)),
    )


def push_command(settings: PushSettings) -> str:
    """The command line of a push."""
    options = {"checkpoint": settings.checkpoint, "repo_id": settings.repo_id}
    options |= {"revision": settings.revision} if settings.revision else {}
    options |= {"private": "false"} if not settings.private else {}
    options |= {"license": settings.license} if settings.license else {}
    options |= {"overwrite": "true"} if settings.overwrite else {}
    options |= {"allow_sample": "true"} if settings.allow_sample else {}
    return " ".join(["python -m train.push", *(shlex.quote(f"{k}={v}") for k, v in options.items())])


def _show(upload: Upload, settings: PushSettings) -> None:
    """The dry run."""
    for problem in upload.problems:
        print(f"Before this can be pushed: {problem}\n")
    sizes = upload.sizes
    print(f"{upload.folder} would be pushed to {settings.repo_id}, {settings.revision or _MAIN}")
    print(f"(made {'private' if settings.private else 'public'} if it is not there yet; nobody was asked)\n")
    for name, size in sizes.items():
        print(f"{size:>15,}  {name}")
    for name in upload.left_out:
        print(f"{'left out':>15}  {name}")
    print(f"{sum(sizes.values()):>15,}  bytes in {len(sizes)} files\n")
    print(f"licence: {upload.licence or 'NOT KNOWN'}\n")
    print(f"README.md:\n\n{upload.card}")


def _push(upload: Upload, settings: PushSettings) -> str:
    if upload.problems:
        raise UserError("this cannot be pushed as it is:\n" + "\n".join(f"  - {p}" for p in upload.problems))
    _check_token("a push")
    api, repo_id, branch = HfApi(), settings.repo_id, settings.revision or _MAIN
    user, doing = None, "asking whose the token is"
    try:
        with _limited(_QUESTION_TIMEOUT):
            user = str(api.whoami()["name"])
            doing = f"looking for the repository {repo_id}"
            found = _check_existing(api, settings)
            if not found:
                doing = f"making the repository {repo_id}"
                api.create_repo(repo_id, private=settings.private)
            if branch != _MAIN:
                doing = f"making the branch {branch}"
                api.create_branch(repo_id, branch=branch, exist_ok=True)
            doing = f"listing what {repo_id} has on {branch}"
            stale = _pushed_before(api, repo_id, branch) - upload.files.keys()
        with _limited(_UPLOAD_TIMEOUT):
            doing = "uploading"
            if upload.left_out:
                log.warning("left out, for no model has such files: %s", ", ".join(upload.left_out))
            log.info("uploading %s to %s, %s", _megabytes(upload), repo_id, branch)
            done = _committed(api, settings, upload, stale)
    except _PUSH_ERRORS as error:
        raise _explained(error, doing, repo_id, user) from error
    return str(done.commit_url)


class _UploadError(Exception):
    """An upload that failed in the client's own words."""


_PUSH_ERRORS: tuple[type[Exception], ...] = (*CLIENT_ERRORS, _UploadError)


def _committed(api: HfApi, settings: PushSettings, upload: Upload, stale: Collection[str]) -> CommitInfo:
    try:
        return api.create_commit(
            settings.repo_id,
            [
                *(CommitOperationAdd(name, content) for name, content in upload.files.items()),
                *(CommitOperationDelete(name) for name in sorted(stale)),
            ],
            commit_message=upload.message,
            revision=settings.revision or _MAIN,
        )
    # Here alone the client wraps what it meets in these, and its Rust part raises them.
    except (RuntimeError, ValueError) as error:
        raise _UploadError(str(error)) from error


def _megabytes(upload: Upload) -> str:
    return f"{sum(upload.sizes.values()) / 1e6:.1f} MB in {len(upload.files)} files"


def _check_existing(api: HfApi, settings: PushSettings) -> bool:
    """Whether the repository is there. If so, it must be empty or pushed by this program.

    Raises:
        UserError: if it holds something else, or is public where it was to be private.
    """
    try:
        info = api.model_info(settings.repo_id, timeout=_QUESTION_TIMEOUT)
    except RepositoryNotFoundError:
        return False
    if settings.private and info.private is False:
        raise UserError(
            f"the repository {settings.repo_id} is there and public, and a push is private by default: add "
            "private=false if everybody may see this model, or make the repository private on its page"
        )
    if info.private and not settings.private:
        log.warning("the repository %s is private and stays so: its page can change that", settings.repo_id)
    names = {sibling.rfilename for sibling in info.siblings or []} - {".gitattributes"}
    if names and MANIFEST not in names and not settings.overwrite:
        shown = ", ".join(sorted(names)[:5]) + (", …" if len(names) > 5 else "")
        raise UserError(
            f"the repository {settings.repo_id} is there and holds something that was not pushed from here "
            f"({shown}): choose another name, or add overwrite=true to put this model among it (files of the "
            "same name are replaced)"
        )
    return True


def _pushed_before(api: HfApi, repo_id: str, branch: str) -> set[str]:
    """The files on a branch that an earlier push has left: those alone may be removed."""
    info = api.model_info(repo_id, revision=branch, timeout=_QUESTION_TIMEOUT)
    names = {sibling.rfilename for sibling in info.siblings or []}
    if MANIFEST not in names:
        return set()
    with tempfile.TemporaryDirectory() as folder:
        path = api.hf_hub_download(repo_id, MANIFEST, revision=branch, local_dir=folder)
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
        raise UserError(f"{what} needs a token, and it could not be had: {_reason(error)}") from error
    if token is None:
        raise UserError(
            f"{what} needs a token with write access: put it into the environment variable HF_TOKEN, or log "
            "in once with `hf auth login`"
        )


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """In here the client gives up on a server that says nothing for so long."""
    session = get_session()
    before = session.timeout
    session.timeout = seconds
    try:
        yield
    finally:
        session.timeout = before


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it came of: the client wraps some."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _status(error: BaseException) -> int | None:
    """The HTTP status that an error came of."""
    for one in _chain(error):
        status = getattr(getattr(one, "response", None), "status_code", None)
        if isinstance(status, int):
            return status
    return None


def _reason(error: BaseException) -> str:
    """The error at the bottom in one line, without anything secret that a library may have put there."""
    chain = list(_chain(error))
    answered = [one for one in chain if getattr(one, "response", None) is not None]
    one = (answered or chain[-1:])[0]
    said = getattr(one, "server_message", None)
    text = first_line(one)
    return without_secrets(f"{text} {str(said).splitlines()[0]}") if said and str(said) not in text else text


def _of_a_file(error: BaseException) -> OSError | None:
    """The file error that an error came of, where no network error is in between."""
    chain = list(_chain(error))
    if any(isinstance(one, NETWORK_ERRORS) for one in chain):
        return None
    return next((one for one in chain if isinstance(one, OSError) and one.filename is not None), None)


def _explained(error: Exception, doing: str, repo_id: str, user: str | None) -> UserError:
    """What happened and what to do."""
    of_file = _of_a_file(error)
    if of_file is not None:
        return UserError(
            f"{doing} failed: {of_file.filename} cannot be read: {of_file.strerror}\n"
            "  Nobody sees a push until it is complete: run the command again once the file is there"
        )
    status = _status(error)
    owner = repo_id.partition("/")[0]
    who = f"the token of {user}" if user else "the token"
    if status == 401:
        advice = (
            "the Hub rejected the token (HF_TOKEN goes before what `hf auth login` saved): make a new one, "
            "with write access, in the settings of your account"
        )
    elif status == 403:
        advice = (
            f"{who} has no right to that: it needs write access, and {owner} has to be you or an "
            "organisation of yours"
        )
    elif status == 404:
        advice = f"{who} sees no such repository: is {repo_id} spelt right, and may it be seen?"
    elif status == 409:
        advice = (
            f"the name {repo_id} is taken by something that {who} does not see: choose another"
            if doing.startswith("making the repository")
            else "something else was written there at the same time: run the command again"
        )
    elif status in (402, 413):
        advice = "the account's storage or plan does not allow it: see its settings"
    elif status == 429:
        advice = "the Hub asks to wait: run the command again in some minutes"
    elif status is None or status >= 500:
        advice = (
            "the Hub did not answer, or the connection broke: run the command again. Files that were "
            "uploaded whole are not uploaded twice, and nobody sees a push until it is complete"
        )
    else:
        advice = "the Hub did not take it"
    return UserError(f"{doing} failed: {_reason(error)}\n  {advice}")
