"""Texts for cells that people open in a spreadsheet."""


def spreadsheet_text(text: str) -> str:
    """A text, rather than a number, for a cell of a CSV file: no spreadsheet takes it for a formula.

    Names and texts come from users, folders and models; in some programs, `=` or `@` at their start runs
    commands.
    """
    return f"'{text}" if text.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text
