"""The exceptions that are meant for people."""


class UserError(Exception):
    """Something the user can mend: its message says what is wrong, where, and what to do.

    The entry points print the message without a traceback and exit with a non-zero status.
    """


class DataMissingError(UserError):
    """A dataset lies nowhere and cannot be downloaded: a benchmark on it can be left out, and said so."""


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop; in training it has saved a checkpoint."""


class Pruned(Exception):  # noqa: N818  an outcome, no error
    """A search gave the run up after an evaluation that is saved: others were better by then."""
