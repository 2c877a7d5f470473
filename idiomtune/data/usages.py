"""Sentences labelled idiomatic or literal, to fit gates to."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress

from idiomtune.data import magpie
from idiomtune.data.idiolink import available_splits, idiolink_root, load_split
from idiomtune.data.idioms import is_idioms
from idiomtune.data.names import IDIOLINK, MAGPIE
from idiomtune.data.sources import DataFiles, dataset_folder
from idiomtune.errors import DataMissingError
from idiomtune.io.hub import first_line
from idiomtune.plugins.inputs import RunInputs
from idiomtune.requests import LabelledUse

log = logging.getLogger(__name__)


def labelled_usages(
    unseen: Iterable[str], inputs: RunInputs | None = None, *, whole: bool = False
) -> list[LabelledUse]:
    """The sentences that a gate is fitted to, without IdioLink's idioms: MAGPIE's and the project's own.

    The project's own alone where MAGPIE cannot be downloaded, unless the `whole` is needed; and in training
    on the project's own data set, whose folder is `idioms`.

    Args:
        unseen: idioms of IdioLink's that are left out; those of all splits on disk are, too.
        inputs: None: `$IDIOM_DATA` or the download.

    Raises:
        DataMissingError: if the `whole` is needed, and MAGPIE cannot be downloaded.
        UserError: if MAGPIE is damaged, or not where `inputs` say.
    """
    named, root = ("", "") if inputs is None else map(inputs.data.data_path, (MAGPIE, IDIOLINK))
    files = DataFiles(magpie.FILES, dataset_folder(MAGPIE, named or None, root or None, sample=False))
    idioms = set(unseen)
    with suppress(DataMissingError):  # IdioLink is neither here nor scored
        if root or os.environ.get("IDIOM_DATA") or (inputs is not None and inputs.splits("idiolink")):
            folder = idiolink_root(root or None, sample=False)
            for name in available_splits(folder):
                idioms |= {document.idiom for document in load_split(folder, name).documents}
    own = magpie.read_project_uses(idioms)
    if whole and is_idioms(
        root
    ):  # so that what is trained on the project's own data set is of CC0 data alone
        return own
    try:
        return magpie.read_magpie(files, idioms) + own
    except DataMissingError as error:
        if whole:
            raise
        message = "the gate of meanings learns from the project's own %d sentences alone: %s"
        log.warning(message, len(own), first_line(error))
        return own
