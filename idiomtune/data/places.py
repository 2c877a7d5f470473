"""Where each data set is, by the section `data`, and what a fold leaves of it.

`settings` are those of a program, a :class:`idiomtune.config.Common`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from idiomtune.data import magpie
from idiomtune.data.admire import PUBLISHED_AT, WEBSITE, ItemSplit, fold_items, read_items
from idiomtune.data.astitch import Usage
from idiomtune.data.idiolink import Split, available_splits, fold_splits, idiolink_root, load_split
from idiomtune.data.names import ADMIRE, ADMIRE_CV_SPLIT, CV_SPLIT, MAGPIE, AdmireSplit
from idiomtune.data.sources import DataFiles, GitHubData, dataset_folder
from idiomtune.declarations.registry import dataset_types
from idiomtune.errors import DataMissingError, UserError
from idiomtune.io.hub import first_line

log = logging.getLogger(__name__)


def folder_of(settings: Any, dataset: str) -> Path | None:
    """Where a data set is; None if it has to be downloaded, or is nowhere.

    The first that applies: the sample, its option, a folder with its name in `data.root`, one in
    `$IDIOM_DATA`.

    Args:
        dataset: its declared name.

    Raises:
        UserError: if its option names something other than a folder.
    """
    data, declared = settings.data, dataset_types()[dataset]
    sample = data.sample and declared.in_sample
    return dataset_folder(declared, data.place(dataset), data.place("idiolink"), sample=sample)


def idiolink_folder(settings: Any) -> Path:
    """Where IdioLink's splits are, downloaded if need be."""
    return idiolink_root(settings.data.place("idiolink"), sample=settings.data.sample)


def data_files(settings: Any, source: GitHubData) -> DataFiles:
    """Where the files of a data set are, or are downloaded from."""
    return DataFiles(source, folder_of(settings, source.dataset.name))


def labelled_usages(unseen: Iterable[str], settings: Any = None, *, whole: bool = False) -> list[Usage]:
    """The sentences that a gate is fitted to, without IdioLink's idioms: MAGPIE's and the project's own.

    Where MAGPIE cannot be downloaded, the project's own alone, unless the `whole` is needed.

    Args:
        unseen: idioms of IdioLink's that are left out; those of all splits on disk are, too.
        settings: None: `$IDIOM_DATA` or the download.

    Raises:
        DataMissingError: if the `whole` is needed, and MAGPIE cannot be downloaded.
        UserError: if MAGPIE is damaged, or not where `settings` say.
    """
    named, root = ("", "") if settings is None else map(settings.data.place, ("magpie", "idiolink"))
    files = DataFiles(magpie.FILES, dataset_folder(MAGPIE, named or None, root or None, sample=False))
    idioms = set(unseen)
    with suppress(DataMissingError):  # IdioLink is neither here nor scored
        if root or os.environ.get("IDIOM_DATA") or (settings is not None and settings.splits("idiolink")):
            folder = idiolink_root(root or None, sample=False)
            for name in available_splits(folder):
                idioms |= {document.idiom for document in load_split(folder, name).documents}
    own = magpie.read_own_uses(idioms)
    try:
        return magpie.read_magpie(files, idioms) + own
    except DataMissingError as error:
        if whole:
            raise
        message = "the gate of meanings learns from the project's own %d sentences alone: %s"
        log.warning(message, len(own), first_line(error))
        return own


def held_out_idioms(settings: Any) -> set[str]:
    """IdioLink's idioms that count as unseen: of all its splits on disk but train; none of the sample."""
    if settings.data.sample or not settings.splits("idiolink"):
        return set()
    folder = idiolink_folder(settings)
    names = [name for name in available_splits(folder) if name != "train"]
    return {document.idiom for name in names for document in load_split(folder, name).documents}


def admire_folder(settings: Any) -> Path:
    """Where AdMIRe's tables and images are.

    Raises:
        DataMissingError: if no folder is named, or it is not there: it cannot be downloaded.
    """
    folder = folder_of(settings, ADMIRE.name)
    if folder is None:
        raise DataMissingError(
            "the AdMIRe data (SemEval-2025 Task 1, subtask A) is not here; programs cannot follow its links\n"
            f"  - fetch all splits from {PUBLISHED_AT}, or Training and Development Data from {WEBSITE}, and "
            "name the folder with EN/ and PT/, or with subtask_a_train.tsv and subtask_a_dev.tsv (or train/ "
            f"and dev/): data.admire=<folder>, or IDIOM_DATA=<folder with {ADMIRE.name}/>\n"
            "  - no data at hand: data=sample runs on the small set that comes with the project"
        )
    return folder


def admire_split(
    settings: Any, name: AdmireSplit, *, training: bool = False, check_images: bool = False
) -> ItemSplit:
    """AdMIRe's items of a split on disk, or those that a fold trains on or scores."""
    folder = admire_folder(settings)
    if name != ADMIRE_CV_SPLIT:
        return read_items(folder, name, check_images=check_images)
    assert settings.data.fold is not None  # checked by the settings
    everything = read_items(folder, "train", check_images=check_images)
    training_items, scored_items = fold_items(everything, settings.data.fold, settings.data.folds)
    return training_items if training else scored_items


def idiolink_split(settings: Any, root: Path, name: str, *, training: bool = False) -> Split:
    """A split on disk, or what a fold trains on or scores."""
    if name != CV_SPLIT:
        return load_split(root, name)
    if settings.data.fold is None:
        raise UserError("split=cv is a fold of the idioms of train and val: name it with data.fold=<number>")
    training_split, scored_split = fold_splits(root, settings.data.fold, settings.data.folds)
    return training_split if training else scored_split
