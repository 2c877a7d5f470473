"""Settings of a push to the Hugging Face Hub: those of `train.push`, and a training's section `hub`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, field_validator

from train.declarations.options import Section


def _is_identifier(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", value):
        raise ValueError(
            f"must be an identifier of the Hub's, such as apache-2.0 or cc-by-nc-sa-4.0, got {value!r}"
        )
    return value


def _is_repository(repo_id: str) -> str:
    from huggingface_hub.errors import HFValidationError  # takes half a second to start
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    if repo_id.count("/") != 1:
        raise ValueError(f"must be <user or organisation>/<name>, got {repo_id!r}")
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"{error}") from None
    return repo_id


def _is_branch(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)*", value) or ".." in value:
        raise ValueError(f"must be the name of a branch (letters, digits, . _ - /), got {value!r}")
    if re.fullmatch(r"[0-9a-f]{40}", value):
        raise ValueError("is a commit, and a push makes a new one: give the name of a branch")
    return value


def _is_comparison(value: list[str]) -> list[str]:
    if len(value) < 2:
        raise ValueError("the page compares a sentence with others: give two sentences or more")
    return value


RepositoryName = Annotated[str, AfterValidator(_is_repository)]


class _Target(Section):
    """Visibility, licence, and what is allowed."""

    private: bool
    license: Annotated[str, AfterValidator(_is_identifier)] | None
    overwrite: bool
    allow_sample: bool


class HubSettings(_Target):
    push: Literal["best", "every"] | None
    repo_id: RepositoryName | None

    def problems(self) -> Iterator[str]:
        if self.push is not None and self.repo_id is None:
            yield f"push={self.push} needs hub.repo_id=<user/name>"


class PushSettings(_Target):
    checkpoint: str
    repo_id: RepositoryName | None
    space: RepositoryName | None
    corpus: str | None
    texts_license: Annotated[str, AfterValidator(_is_identifier)] | None
    revision: Annotated[str, AfterValidator(_is_branch)] | None
    examples: Annotated[list[str], AfterValidator(_is_comparison)] | None
    dry_run: bool

    @field_validator("checkpoint", mode="before")
    @classmethod
    def _is_given(cls, value: object) -> object:
        if value is None:
            raise ValueError("is needed: checkpoint=<run folder>")
        return value

    def problems(self) -> Iterator[str]:
        if self.repo_id is None and self.space is None:
            yield "repo_id=<user/name> is needed, or space=<user/name> for the page alone"
        of_model = {"license": self.license, "revision": self.revision, "examples": self.examples}
        if self.repo_id is None and (
            given := [name for name, value in of_model.items() if value is not None]
        ):
            yield (
                f"{', '.join(given)}: of the model, which is not pushed without repo_id=<user/name>. The "
                "licence of a Space's texts is texts_license="
            )
        if self.space is None and (self.corpus, self.texts_license) != (None, None):
            yield "corpus and texts_license are of a Space: give its name too, space=<user/name>"
