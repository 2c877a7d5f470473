"""`idiomtune push`: a run's model, card and scores to the Hugging Face Hub."""

from idiomtune.config import PushSettings
from idiomtune.data.idioms import idioms_folder, is_idioms
from idiomtune.data.names import WRITTEN
from idiomtune.io.files import is_file, user_path


def push(settings: PushSettings) -> str | None:
    """Push a model or a data set, or show what would be pushed.

    Returns:
        The address of the commit, which is also the last line that is printed; None for a dry run.

    Raises:
        UserError: for everything that the user can fix.
    """
    from idiomtune.hub.push import collect_data, collect_model, send  # heavy: after the checks of settings

    if is_idioms(settings.checkpoint):
        settings = settings.model_copy(update={"checkpoint": str(idioms_folder())})
    is_data = is_file(user_path(settings.checkpoint, "checkpoint") / WRITTEN)
    address = send((collect_data if is_data else collect_model)(settings), settings)
    if address is not None:
        print(address)
    return address
