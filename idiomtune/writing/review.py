"""Review by people: a spreadsheet of the texts, and what its marks say."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sklearn.metrics import accuracy_score, f1_score  # type: ignore[import-untyped]

from idiomtune.errors import UserError
from idiomtune.io.files import is_file
from idiomtune.io.tables import read_rows
from idiomtune.writing.rules import NOT_IN_XML

log = logging.getLogger(__name__)

SHEET = "review.xlsx"
_WIDTHS = {  # of the columns
    **{"id": 18, "expression": 18, "meaning": 24, "domain": 12, "usage": 14, "text": 70, "span": 24},
    **{"votes": 8, "accept": 8, "note": 20, "key": 8},
}
_READ = ("key", "text", "span", "accept")  # the others may be deleted
_ANSWERS = dict.fromkeys(("yes", "y", "1", "true"), True) | dict.fromkeys(("no", "n", "0", "false"), False)


class Review(NamedTuple):
    """A person's mark on a text.

    Attributes:
        accept: whether the text is in the data set.
        text, span: as the person left them.
    """

    accept: bool
    text: str
    span: str


class Agreement(NamedTuple):
    """How the judge agrees with people, on the texts that they reviewed.

    Attributes:
        num_reviewed: texts.
        accuracy: share of them that both accept or both refuse.
        macro_f1: mean of the F1 of valid and of invalid texts.
        num_invalid: texts that were not right as they were written.
        num_passed: those of them that the judge accepted.
    """

    num_reviewed: int
    accuracy: float
    macro_f1: float
    num_invalid: int
    num_passed: int

    def __str__(self) -> str:
        agrees = f"the judge agrees with them on {self.accuracy:.0%} (macro F1 {self.macro_f1:.2f})"
        return f"{agrees}, and accepted {self.num_passed} of {self.num_invalid} texts that were not right"


def update_sheet(folder: Path, texts: Sequence[Mapping[str, Any]]) -> Path:
    """Write the spreadsheet, a row for each text; rows that it has stay as they are.

    Args:
        texts: rows of `texts.jsonl`.

    Raises:
        UserError: if it cannot be written.
    """
    from openpyxl import Workbook, load_workbook
    from openpyxl.styles import Alignment, Font

    path = folder / SHEET
    present = {str(row.values["key"]) for row in _rows(path)}
    if not (missing := [text for text in texts if text["key"] not in present]):
        return path
    book = load_workbook(path) if is_file(path) else Workbook()
    sheet: Any = book.active
    if not is_file(path):
        sheet.append(list(_WIDTHS))
        sheet.freeze_panes = "A2"
        for cell in sheet[1]:
            cell.font = Font(bold=True)
            sheet.column_dimensions[cell.column_letter].width = _WIDTHS[cell.value]
    # The header, above which somebody may have put empty rows.
    columns = next(row for row in sheet.iter_rows(values_only=True) if any(row))
    for text in missing:
        votes = f"{sum(text['votes'])} of {len(text['votes'])}"
        values = {name: NOT_IN_XML.sub("", str(value)) for name, value in {**text, "votes": votes}.items()}
        sheet.append([values.get(column, "") for column in columns])
        for cell in sheet[sheet.max_row]:
            cell.data_type = "s"  # a text that begins with = is no formula
            cell.alignment = Alignment(wrap_text=True, vertical="top")
    partial = folder / f".{SHEET}"
    try:
        book.save(partial)
        partial.replace(path)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", file=path) from None
    return path


def read_reviews(folder: Path, texts: Sequence[Mapping[str, Any]]) -> dict[str, Review]:
    """A text's key → its mark, of the rows whose cell `accept` is filled; {} without a spreadsheet.

    Args:
        texts: of the data set. Marks on texts that it has no longer are left in the spreadsheet.

    Raises:
        UserError: naming the row, for another word in `accept`, or a span that is not in its text.
    """
    path = folder / SHEET
    keys, reviews, num_others = {text["key"] for text in texts}, dict[str, Review](), 0
    for row in _rows(path):
        key, text, span, mark = (str(row.values[name]).strip() for name in _READ)
        if not (mark := mark.casefold()):
            continue
        if mark not in _ANSWERS:
            raise UserError(f"must be yes or no, is {mark!r}", file=path, row=row.number, field="accept")
        if _ANSWERS[mark] and (not span or text.count(span) != 1):
            problem = f"{span!r} must stand in the text once"
            raise UserError(problem, file=path, row=row.number, field="span")
        if key in reviews:
            problem = "marks a text that an earlier row marks: delete one"
            raise UserError(problem, file=path, row=row.number, field="key")
        if key in keys:
            reviews[key] = Review(_ANSWERS[mark], text, span)
        num_others += key not in keys
    if num_others:
        log.warning("%s: %d marks are on texts that the data set has no longer", path, num_others)
    return reviews


def _rows(path: Path) -> Any:
    return read_rows(path, columns=_READ) if is_file(path) else ()


def agreement_of(texts: Sequence[Mapping[str, Any]], reviews: Mapping[str, Review]) -> Agreement | None:
    """How the judge agrees with the reviews of these texts; None without any.

    Args:
        texts: rows of `texts.jsonl`, with `accepted`: whether the judge accepts the text.
        reviews: key → mark. A text that a person had to correct was not right.
    """
    marked = [(text, reviews[text["key"]]) for text in texts if text["key"] in reviews]
    if not marked:
        return None
    right = [review == Review(True, text["text"], text["span"]) for text, review in marked]
    accepted = [bool(text["accepted"]) for text, _ in marked]
    passed = [accept for accept, is_right in zip(accepted, right, strict=True) if not is_right]
    macro_f1 = float(f1_score(right, accepted, average="macro", zero_division=0))
    return Agreement(len(marked), float(accuracy_score(right, accepted)), macro_f1, len(passed), sum(passed))
