"""Why a push failed, as a message: what was being done, what was answered, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from train.errors import UserError
from train.io.hub import CLIENT_ERRORS, NETWORK_ERRORS, causes, first_line, without_secrets

_AGAIN = "run the command again"
_ACCOUNT = "the account's storage or plan does not allow it: see its settings"
# HTTP status → what to do. `who` is the token, `owner` the first part of `repo_id`.
_ADVICE = {
    401: "the Hub rejected the token (HF_TOKEN goes before what `hf auth login` saved): make a new one, with "
    "write access, in the settings of your account",
    402: _ACCOUNT,
    403: "{who} has no right to that: it needs write access, and {owner} has to be you or an organisation of "
    "yours",
    404: "{who} sees no such repository: is {repo_id} spelt right, and may it be seen?",
    409: f"something else was written there at the same time: {_AGAIN}",
    413: _ACCOUNT,
    429: f"the Hub asks to wait: {_AGAIN} in some minutes",
}
# The same where a repository is made.
ADVICE_ON_CREATION = {409: "the name {repo_id} is taken by something that {who} does not see: choose another"}
_NO_ANSWER = (
    f"the Hub did not answer, or the connection broke: {_AGAIN}. Files that were uploaded whole are not "
    "uploaded twice, and nobody sees a push until it is complete"
)
_REFUSED = "the Hub did not take it"
_FILE_IS_MISSING = f"Nobody sees a push until it is complete: {_AGAIN} once the file is there"


@contextmanager
def explained(
    doing: str,
    repo_id: str,
    user: str | None = None,
    *,
    advice: Mapping[int, str] | None = None,
    errors: tuple[type[Exception], ...] = CLIENT_ERRORS,
) -> Iterator[None]:
    """In here an error of the client becomes a message.

    Args:
        doing: what fails then.
        user: whose the token is, once that is known.
        advice: HTTP status → what to do, where it means something else than usual.
        errors: those that become a message.

    Raises:
        UserError: instead of them.
    """
    try:
        yield
    except errors as error:
        raise explain(error, doing, repo_id, user, advice) from error


def explain(
    error: Exception,
    doing: str,
    repo_id: str,
    user: str | None = None,
    advice: Mapping[int, str] | None = None,
) -> UserError:
    """What happened and what to do; for the arguments see :func:`explained`."""
    if (file_error := _file_error(error)) is not None:
        reason, what_to_do = f"{file_error.filename} cannot be read: {file_error.strerror}", _FILE_IS_MISSING
    else:
        reason = reason_for(error)
        status = http_status(error) or 503  # where no answer came
        known = _ADVICE | dict(advice or {})
        what_to_do = _NO_ANSWER if status >= 500 else known.get(status, _REFUSED)
    who = f"the token of {user}" if user else "the token"
    told = what_to_do.format(who=who, owner=repo_id.partition("/")[0], repo_id=repo_id)
    return UserError(f"{doing} failed: {reason}\n  {told}")


def http_status(error: BaseException) -> int | None:
    """The HTTP status that an error came of."""
    statuses = (getattr(getattr(one, "response", None), "status_code", None) for one in causes(error))
    return next((status for status in statuses if isinstance(status, int)), None)


def reason_for(error: BaseException) -> str:
    """The error that the server answered with, else the first cause, in one line without secrets."""
    chain = list(causes(error))
    one = next((e for e in chain if getattr(e, "response", None) is not None), chain[-1])
    told = str(getattr(one, "server_message", None) or "")
    text = first_line(one)
    return text if told in text else without_secrets(f"{text} {told.splitlines()[0]}")


def _file_error(error: BaseException) -> OSError | None:
    """The file error that an error came of, where no network error is in between."""
    chain = list(causes(error))
    if any(isinstance(one, NETWORK_ERRORS) for one in chain):
        return None
    return next((one for one in chain if isinstance(one, OSError) and one.filename is not None), None)
