"""`idiomtune push`: a run's model, card and scores to the Hugging Face Hub, and a page about it."""

from idiomtune.config import ExploreSettings, PushSettings
from idiomtune.data.idioms import idioms_folder, is_idioms
from idiomtune.data.names import WRITTEN
from idiomtune.io.files import is_file, user_path, write_text
from idiomtune.io.outputs import reserved_output
from idiomtune.io.secrets import refuse_files


def push(settings: PushSettings) -> list[str | None]:
    """Push the model, the page, or both; or write the page, and show what would be pushed.

    Problems are reported before a text is embedded. The last line that is printed is the address of the last
    commit.

    Returns:
        The addresses of the commits; None for a dry run's.

    Raises:
        UserError: for everything that the user can fix.
    """
    # Heavy: after the configuration is checked.
    from idiomtune.hub.push import (
        check_can_send,
        collect_data,
        collect_model,
        collect_space,
        send,
        space_card,
    )
    from idiomtune.programs.explore import page_without_server

    if is_idioms(settings.checkpoint):
        settings = settings.model_copy(update={"checkpoint": str(idioms_folder())})
    is_data = is_file(user_path(settings.checkpoint, "checkpoint") / WRITTEN)
    models = [] if settings.repo_id is None else [(collect_data if is_data else collect_model)(settings)]
    spaces = [] if settings.space is None else [collect_space(settings)]
    if not settings.dry_run:
        check_can_send([problem for upload in [*models, *spaces] for problem in upload.problems])
    for space in spaces:
        name = (settings.repo_id or space.repo_id).rpartition("/")[2]
        options = ExploreSettings(models=[str(space.model)], corpus=settings.corpus, name=name)
        with (
            reserved_output("space", space.folder / "index.html", overwrite=True) as file,
            reserved_output("space", space.folder / "README.md", overwrite=True) as card,
        ):
            page, title, corpus = page_without_server(options)
            write_text(file, page)
            write_text(card, space_card(title, corpus, space.metadata, space.note))
    for upload in [*models, *spaces]:  # all of them, before the first is sent
        refuse_files(upload.folder, upload.files)
    return [send(upload, settings) for upload in [*models, *spaces]]
