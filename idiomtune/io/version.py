"""The version, which records, cards and the command line name."""

__version__ = "0.1.0"
