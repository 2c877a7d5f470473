"""The exceptions that users see."""


class UserError(Exception):
    """An error that the user can fix: its message says what is wrong, where, and what to do.

    The entry points print the message without a traceback and exit with a non-zero status.
    """


class DataMissingError(UserError):
    """A dataset is nowhere and cannot be downloaded: a benchmark on it can be skipped, with a warning."""


class Interrupted(KeyboardInterrupt):
    """The run was asked to stop; a training has saved a checkpoint by then."""


class Pruned(Exception):  # noqa: N818  an outcome, no error
    """A search stopped the run after an evaluation, which is saved: other trials were better by then."""
