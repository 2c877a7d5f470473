"""A run's model and the page of what it finds, to the Hugging Face Hub."""

from __future__ import annotations

from train.config import PushSettings
from train.explorer.options import Options
from train.explorer.page import FILE
from train.hub.push import Target, check_can_send, collected, model_target, send
from train.hub.space import collect_space, metadata, shown_by
from train.recipes.explore import write_space


def publish(settings: PushSettings) -> None:
    """Push both, or the page alone; or write the page, and show what would be pushed.

    What cannot be pushed is said before a text is embedded. The last line that is printed is the address of
    the Space's commit.

    Raises:
        UserError: for everything that the user can mend.
    """
    assert settings.space is not None  # else only the model is pushed
    model = collected(settings) if settings.repo_id is not None else None
    shown = shown_by(settings)
    if not settings.dry_run:
        check_can_send([*(model.problems if model is not None else []), *shown.problems])
    name = (settings.repo_id or settings.space).rpartition("/")[2]
    options = Options(models=[str(shown.model)], corpus=settings.corpus, name=name, overwrite=True)
    write_space(options, shown.folder, metadata(shown, settings), shown.note)
    if model is not None:
        send(model, model_target(settings), dry_run=settings.dry_run)
    target = Target(settings.space, settings.private, settings.overwrite, kind="space")
    send(collect_space(shown, shown.folder / FILE), target, dry_run=settings.dry_run)
