"""What a Space of the Hub is pushed with: which texts its page shows, and whether they may be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.config import PushSettings
from train.hub.licences import Source, common_licence, glossary_sources, shown_texts
from train.hub.upload import (
    MANIFEST,
    Upload,
    check_finished,
    check_whole,
    find_checkpoint,
    manifest,
    sample_problem,
    saved_as,
)
from train.runs.resume import read_config, read_run

_README = "README.md"


@dataclass(frozen=True)
class Shown:
    """What a Space is to show of a run.

    Attributes:
        model: the folder of the run, or of one of its checkpoints.
        folder: where the page is written.
        sources: of its texts.
        licence: of its texts, or None where it is not known.
        problems: why this cannot be pushed as it is, each with what to do.
        message: of the commit.
    """

    model: Path
    folder: Path
    sources: Sequence[Source]
    licence: str | None
    problems: list[str]
    message: str

    @property
    def note(self) -> str:
        """Whose texts the page shows, for its README."""
        named = [
            f"[{s.name}](https://huggingface.co/datasets/{s.repo_id})" if s.repo_id else s.name
            for s in self.sources
        ]
        return f"The texts are of {', '.join(named)}" + (f" ({self.licence})." if self.licence else ".")


def shown_by(settings: PushSettings) -> Shown:
    """What a push is to show of its run.

    Raises:
        UserError: if there is no such run, it has not ended, or its model is damaged.
    """
    run, model = find_checkpoint(settings.checkpoint)
    record = read_run(run)
    check_finished(run, model, record)
    if settings.repo_id is None:  # else it is checked where the model is collected
        check_whole(run, model, saved_as(run, model, record))
    config = read_config(run)
    # Meanings that the model reads are on the page, too.
    sources = [*shown_texts(config, settings.corpus), *glossary_sources(record.get("glossary"))]
    licence = settings.texts_license or common_licence(sources)
    problems = sample_problem(config, settings)
    if licence is None:
        problems.append(
            f"the Space shows texts whose licence is not known here: {'; '.join(map(str, sources))}. If they "
            "may be published, give it with texts_license=<identifier>; else show others, as corpus=sample"
        )
    return Shown(
        run if model.name == "best" else model,
        run / "space",
        sources,
        licence,
        problems,
        f"page of {model.name} of {record['experiment']}, seed {record['seed']}",
    )


def metadata(shown: Shown, settings: PushSettings) -> Mapping[str, Any]:
    """What the Hub reads of the Space's README, beside its title."""
    facts = {
        "license": shown.licence,
        "models": [settings.repo_id] if settings.repo_id else None,
        "datasets": [source.repo_id for source in shown.sources if source.repo_id],
    }
    return {name: value for name, value in facts.items() if value}


def collect_space(shown: Shown, page: Path) -> Upload:
    """The files of the folder that was written: the page and its README."""
    readme = shown.folder / _README
    files: dict[str, Path | bytes] = {path.name: path for path in (page, readme)}
    files[MANIFEST] = manifest(files, {path.name: path for path in (page, readme)})
    card = readme.read_text(encoding="utf-8")
    return Upload(shown.folder, files, card, shown.licence, shown.problems, shown.message)
