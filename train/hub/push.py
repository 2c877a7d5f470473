"""Pushing a checkpoint, or a Space, to the Hugging Face Hub: one commit, which a second call completes."""

from __future__ import annotations

import json
import logging
import shlex
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_session
from huggingface_hub.errors import OfflineModeIsEnabled, RepositoryNotFoundError

from train.config import HubSettings, PushSettings, check
from train.errors import UserError
from train.hub.licences import ask_for_licence, common_licence, sources_of
from train.hub.upload import MANIFEST, Upload, collect_model
from train.io.hub import CLIENT_ERRORS, is_network_error, reason_for, without_secrets
from train.io.text import first_of, printable

log = logging.getLogger(__name__)

# Seconds without any answer: the client has no limit of its own.
_QUESTION_TIMEOUT = 15.0
_UPLOAD_TIMEOUT = 120.0
# In a commit the client wraps errors in the last two, and its Rust part raises them.
_PUSH_ERRORS: tuple[type[Exception], ...] = (*CLIENT_ERRORS, RuntimeError, ValueError)


def send(upload: Upload, settings: PushSettings) -> str | None:
    """Push what was checked, or show what would be pushed; the last printed line is the commit's address.

    Returns:
        That address; None for a dry run.

    Raises:
        UserError: for everything that the user can fix.
    """
    if settings.dry_run:
        _show(upload, settings)
        return None
    url = _push(upload, settings)
    print(url)
    return url


def check_can_send(problems: Iterable[str]) -> None:
    """Check what would fail for certain, before anything long is done.

    Raises:
        UserError: if there are problems, or the Hub does not accept the token.
    """
    if listed := "\n".join(f"  - {problem}" for problem in dict.fromkeys(problems)):
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
    _check_token(f"hub.push={hub.push}", may_be_silent=True)


def _check_token(what: str, *, may_be_silent: bool = False) -> None:
    """Check that the Hub knows whose the token is.

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
            log.warning(
                "the Hub does not answer (%s): what is trained is pushed if it does later", reason_for(error)
            )
            return
        raise UserError(
            f"{what} needs the Hub, and a token with write access: put it into the environment variable "
            f"HF_TOKEN, or log in once with `hf auth login`. {reason_for(error)}"
        ) from error


def push_or_warn(hub: HubSettings, checkpoint: Path, revision: str | None = None) -> None:
    """Push from a training run. A failure is logged with instructions; the run continues."""
    options = hub.model_dump(exclude={"push"}) | {"checkpoint": str(checkpoint), "revision": revision}
    others = dict.fromkeys(("examples", "space", "corpus", "texts_license"))
    settings: PushSettings = check(PushSettings, {**options, **others, "dry_run": False})
    try:
        upload = collect_model(settings)
        check_can_send(upload.problems)
        url = _push(upload, settings)
    except UserError as error:
        reason = str(error)
    except Exception as error:  # a bug, but hours of training are worth more: it is shown as one
        reason = without_secrets("unexpected " + "".join(traceback.format_exception(error)).strip())
    else:
        log.info("pushed %s: %s", checkpoint.name, url)
        return
    usual = {"private": True, "overwrite": False, "allow_sample": False, "dry_run": False}
    given = [
        shlex.quote(f"{name}={value if isinstance(value, str) else json.dumps(value)}")
        for name, value in settings.model_dump(exclude_none=True).items()
        if value != usual.get(name)
    ]
    log.warning(
        "%s was NOT pushed to %s: %s\nThe run continues. To push it: python -m train.push %s",
        *(checkpoint, hub.repo_id, reason, " ".join(given)),
    )


def _show(upload: Upload, settings: PushSettings) -> None:
    """The dry run."""
    for problem in upload.problems:
        print(f"Before this can be pushed: {problem}\n")
    contents = upload.contents()
    sizes = {n: len(f) if isinstance(f, bytes) else f.stat().st_size for n, f in contents.items()}
    where = f"the Space {upload.repo_id}" if upload.kind == "space" else upload.repo_id
    visibility = "private" if settings.private else "public"
    print(printable(f"{upload.folder} would be pushed to {where}, {upload.branch}"))
    print(f"(dry run: the Hub was not contacted; a new repository would be {visibility})\n")
    for name, size in sizes.items():
        print(printable(f"{size:>15,}  {name}"))
    for name in upload.left_out:
        print(printable(f"{'left out':>15}  {name}"))
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
        log.warning("left out, because they do not belong to a model: %s", ", ".join(upload.left_out))
    api = HfApi()
    try:
        with _time_limit(_UPLOAD_TIMEOUT):
            stale = _pushed_before(api, upload, settings) - contents.keys()
            log.info("uploading %d files to %s, %s", len(contents), upload.repo_id, upload.branch)
            additions = [CommitOperationAdd(name, content) for name, content in contents.items()]
            deletions = [CommitOperationDelete(name) for name in sorted(stale)]
            # Not `upload_folder`, which makes several commits: nobody may see half a model.
            done = api.create_commit(
                upload.repo_id,
                [*additions, *deletions],
                commit_message=upload.message,
                revision=upload.branch,
                repo_type=upload.kind,
            )
    except _PUSH_ERRORS as error:
        raise UserError(
            f"{upload.repo_id}: the push failed: {reason_for(error)}\n  Nobody sees a push until it is "
            "complete, and files that were uploaded completely are not sent again: run the command again"
        ) from error
    return without_secrets(str(done.commit_url))


def _pushed_before(api: HfApi, upload: Upload, settings: PushSettings) -> set[str]:
    """The files on the branch that an earlier push has left: those alone may be removed.

    The repository and the branch are made if they are missing.

    Raises:
        UserError: if the repository has something else, or is public although it should be private.
    """
    where: dict[str, Any] = {"repo_id": upload.repo_id, "repo_type": upload.kind}

    def names(info: Any) -> set[str]:
        return {sibling.rfilename for sibling in info.siblings or []} - {".gitattributes"}

    try:
        info: Any = api.repo_info(**where)
    except RepositoryNotFoundError:
        sdk = "static" if upload.kind == "space" else None
        api.create_repo(**where, private=settings.private, space_sdk=sdk)
    else:
        _check_existing(upload, settings, info.private, sorted(names(info)))
    if upload.branch != "main":
        api.create_branch(**where, branch=upload.branch, exist_ok=True)
    there = names(api.repo_info(**where, revision=upload.branch))
    if MANIFEST not in there:
        return set()
    with tempfile.TemporaryDirectory() as folder:  # the client's cache may be read-only
        api.hf_hub_download(**where, filename=MANIFEST, revision=upload.branch, local_dir=folder)
        return there & set(json.loads(Path(folder, MANIFEST).read_text(encoding="utf-8"))["files"])


def _check_existing(
    upload: Upload, settings: PushSettings, is_private: bool | None, names: Sequence[str]
) -> None:
    """Check that a repository is empty or pushed by this program.

    Raises:
        UserError: if it has something else, or is public although it should be private.
    """
    if settings.private and is_private is False:
        raise UserError(
            f"the repository {upload.repo_id} is there and public, and a push is private by default: add "
            f"private=false if everybody may see this {upload.kind}, or make the repository private on its "
            "page"
        )
    if is_private and not settings.private:
        log.warning("the repository %s is private and stays so: its page can change that", upload.repo_id)
    if names and MANIFEST not in names and not settings.overwrite:
        raise UserError(
            f"the repository {upload.repo_id} is there and holds something that was not pushed from here "
            f"({first_of(names, 5)}): choose another name, or add overwrite=true to put this {upload.kind} "
            "among it (files of the same name are replaced)"
        )


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """In here the client gives up on a server that says nothing for this many seconds."""
    session = get_session()
    before = session.timeout
    session.timeout = seconds
    try:
        yield
    finally:
        session.timeout = before
