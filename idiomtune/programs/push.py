"""`idiomtune push`: a run's model, card and scores to the Hugging Face Hub, and a page about it."""

from idiomtune.config import ExploreSettings, PushSettings
from idiomtune.data.names import WRITTEN
from idiomtune.io.files import is_file, user_path
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
    from idiomtune.hub.push import check_can_send, collect_data, collect_model, collect_space, send
    from idiomtune.programs.explore import write_space

    is_data = is_file(user_path(settings.checkpoint, "checkpoint") / WRITTEN)
    models = [] if settings.repo_id is None else [(collect_data if is_data else collect_model)(settings)]
    spaces = [] if settings.space is None else [collect_space(settings)]
    if not settings.dry_run:
        check_can_send([problem for upload in [*models, *spaces] for problem in upload.problems])
    for space in spaces:
        name = (settings.repo_id or space.repo_id).rpartition("/")[2]
        options = ExploreSettings(
            models=[str(space.model)], corpus=settings.corpus, name=name, overwrite=True
        )
        write_space(options, space.folder, space.metadata, space.note)
    for upload in [*models, *spaces]:  # all of them, before the first is sent
        refuse_files(upload.folder, upload.files)
    return [send(upload, settings) for upload in [*models, *spaces]]
