"""What a data set declares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DatasetType:
    """A data set: its names, and its licence.

    Attributes:
        name: of its folder in the layout of `IDIOM_DATA`, and in the cache.
        option: `data.<option>` names its folder or file; "" if `data.<name>` does.
        title: for people.
        licence: an identifier of the Hub's list (SPDX in lower case); None if unknown.
        hub: its name on the Hugging Face Hub, if it has one.
        allows_custom: its option may name anybody's data in this form, of which no licence is known.
        in_sample: `data=sample` has a small one of it.
    """

    name: str
    option: str = ""
    title: str = ""
    licence: str | None = None
    hub: str | None = None
    allows_custom: bool = False
    in_sample: bool = False

    @property
    def setting(self) -> str:
        """The option that names its folder or file."""
        return f"data.{self.option or self.name}"
