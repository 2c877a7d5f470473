"""Review by people: a spreadsheet of the texts, and what its marks say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sklearn.metrics import accuracy_score, f1_score  # type: ignore[import-untyped]

from idiomtune.errors import UserError
from idiomtune.io.files import is_file
from idiomtune.io.outputs import reserved_output
from idiomtune.io.tables import read_rows

SHEET = "review.xlsx"
_COLUMNS = [
    "id",
    "expression",
    "meaning",
    "domain",
    "usage",
    "text",
    "span",
    "votes",
    "accept",
    "note",
    "written",
]
_WIDTHS = [18, 18, 24, 12, 14, 70, 24, 8, 8, 20, 8]  # of the columns
_ANSWERS = {
    "yes": True,
    "y": True,
    "1": True,
    "true": True,
    "no": False,
    "n": False,
    "0": False,
    "false": False,
}


class Review(NamedTuple):
    """A person's mark on a text.

    Attributes:
        accept: whether it is in the data set, as it is now.
        text, span: as it is now.
        written: as the model wrote it: text and span.
    """

    accept: bool
    text: str
    span: str
    written: str

    @property
    def was_valid(self) -> bool:
        """Whether the text was right as the model wrote it."""
        return self.accept and self.written == written_form(self.text, self.span)


class Agreement(NamedTuple):
    """How the judge agrees with people, on the texts that they reviewed.

    Attributes:
        num_reviewed: texts.
        accuracy: share of them that both accept or both refuse.
        macro_f1: mean of the F1 of valid and of invalid texts.
        passed: share of the invalid texts that the judge accepted.
    """

    num_reviewed: int
    accuracy: float
    macro_f1: float
    passed: float

    def __str__(self) -> str:
        return (
            f"the judge agrees with them on {self.accuracy:.0%} (macro F1 {self.macro_f1:.2f}), and let "
            f"{self.passed:.0%} of the invalid texts pass"
        )


def written_form(text: str, span: str) -> str:
    """Text and span as one cell, by which a row is known though both are edited."""
    return f"{text} [{span}]"


def write_sheet(folder: Path, texts: Sequence[Mapping[str, Any]], reviews: Mapping[str, Review]) -> Path:
    """Write the spreadsheet, a row for each text, with the marks that there are.

    Args:
        texts: rows of `texts.jsonl`.
        reviews: id → mark.
    """
    from openpyxl import Workbook
    from openpyxl.styles import Alignment, Font
    from openpyxl.worksheet.datavalidation import DataValidation

    book = Workbook()
    sheet: Any = book.active
    sheet.append(_COLUMNS)
    for text in texts:
        review = reviews.get(text["id"])
        now = {"text": review.text, "span": review.span} if review else {}
        mark = {} if review is None else {"accept": "yes" if review.accept else "no"}
        votes = f"{sum(text['votes'])} of {len(text['votes'])}"
        row = {**text, **now, **mark, "votes": votes, "written": written_form(text["text"], text["span"])}
        sheet.append([row.get(column, "") for column in _COLUMNS])
        for cell in sheet[sheet.max_row]:
            cell.data_type = "s"  # a text that begins with = is no formula
            cell.alignment = Alignment(wrap_text=True, vertical="top")
    for cell, width in zip(sheet[1], _WIDTHS, strict=True):
        cell.font = Font(bold=True)
        sheet.column_dimensions[cell.column_letter].width = width
    sheet.freeze_panes = "A2"
    choice = DataValidation("list", formula1='"yes,no"', allow_blank=True)
    sheet.add_data_validation(choice)
    choice.add(f"I2:I{max(2, sheet.max_row)}")
    path = folder / SHEET
    with reserved_output("folder", path, begins=b"PK", overwrite=True) as file:
        book.save(file)
    return path


def read_reviews(folder: Path) -> dict[str, Review]:
    """Id → mark, of the rows whose cell `accept` is filled; {} without a spreadsheet.

    Raises:
        UserError: naming the row, for another word in `accept`, or a span that is not in its text.
    """
    path = folder / SHEET
    reviews = {}
    for row in read_rows(path, columns=_COLUMNS) if is_file(path) else ():
        values = {name: str(value).strip() for name, value in row.values.items()}
        if not (mark := values["accept"].casefold()):
            continue
        if mark not in _ANSWERS:
            raise UserError(f"must be yes or no, is {mark!r}", file=path, row=row.number, field="accept")
        if _ANSWERS[mark] and (not values["span"] or values["text"].count(values["span"]) != 1):
            problem = f"{values['span']!r} must stand in the text once"
            raise UserError(problem, file=path, row=row.number, field="span")
        reviews[values["id"]] = Review(
            _ANSWERS[mark], values["text"], values["span"], row.values["written"].strip()
        )
    return reviews


def agreement_of(judged: Mapping[str, bool], reviews: Mapping[str, Review]) -> Agreement | None:
    """How a judge agrees with the reviews of these texts; None without any.

    Args:
        judged: id → whether the judge accepted the text.
    """
    ids = [id_ for id_ in reviews if id_ in judged]
    if not ids:
        return None
    valid, accepted = [reviews[id_].was_valid for id_ in ids], [judged[id_] for id_ in ids]
    passed = [accept for accept, is_valid in zip(accepted, valid, strict=True) if not is_valid]
    return Agreement(
        len(ids),
        float(accuracy_score(valid, accepted)),
        float(f1_score(valid, accepted, average="macro", zero_division=0)),
        sum(passed) / max(1, len(passed)),
    )
