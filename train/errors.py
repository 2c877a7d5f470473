"""The exceptions that are meant for people."""


class UserError(Exception):
    """Something the user can mend: its message says what is wrong, where, and what to do.

    The entry points print the message without a traceback and exit with a non-zero status.
    """


class DataMissingError(UserError):
    """A dataset lies nowhere and cannot be downloaded: a benchmark on it can be left out, and said so."""
