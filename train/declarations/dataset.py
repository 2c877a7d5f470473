"""What a data set says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DatasetType:
    """A data set: what it is called, and under which terms it stands.

    Attributes:
        name: of its folder in the layout of `IDIOM_DATA`, and in the cache.
        option: `data.<option>` names its folder or file; "" where `data.<name>` does.
        title: for people.
        licence: an identifier of the Hub's list (SPDX in lower case); None where none is known.
        hub: its name on the Hugging Face Hub, where it has one.
        in_sample: `data=sample` has a small one of it.
        takes_other_data: its option may name anybody's data in its format, whose licence is not known.
    """

    name: str
    option: str = ""
    title: str = ""
    licence: str | None = None
    hub: str | None = None
    in_sample: bool = False
    takes_other_data: bool = False

    @property
    def setting(self) -> str:
        """The option that names where it lies."""
        return f"data.{self.option or self.name}"
