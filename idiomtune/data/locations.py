"""Locations of data sets by the section `data`; the part of a data set in a fold."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from idiomtune.data.admire import PUBLISHED_AT, WEBSITE, ItemSplit, fold_items, read_items
from idiomtune.data.idiolink import (
    Split,
    available_splits,
    fold_splits,
    idiolink_root,
    join_splits,
    load_split,
)
from idiomtune.data.names import ADMIRE, ADMIRE_CV_SPLIT, CV_SPLIT, IDIOLINK, AdmireSplit
from idiomtune.data.sources import DataFiles, GitHubData, dataset_folder
from idiomtune.errors import DataMissingError, UserError
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.registry import dataset_types

log = logging.getLogger(__name__)


def folder_of(inputs: RunInputs, dataset: str) -> Path | None:
    """The folder of a data set; None without a local copy.

    The first that applies: the sample, its option, a folder with its name in `data.idiolink`, one in
    `$IDIOM_DATA`.

    Args:
        dataset: its declared name.

    Raises:
        UserError: if its option names something other than a folder.
    """
    data, declared = inputs.data, dataset_types()[dataset]
    sample = data.sample and declared.in_sample
    return dataset_folder(declared, data.data_path(declared), data.data_path(IDIOLINK), sample=sample)


def idiolink_folder(inputs: RunInputs) -> Path:
    """The folder of IdioLink's splits, downloaded if need be."""
    return idiolink_root(inputs.data.data_path(IDIOLINK), sample=inputs.data.sample)


def idiolink_splits(inputs: RunInputs) -> list[Split]:
    """All splits of IdioLink's folder, and of the folders whose idioms are trained on besides."""
    folders = [idiolink_folder(inputs), *(idiolink_root(name, sample=False) for name in inputs.data.also)]
    return [load_split(folder, name) for folder in folders for name in available_splits(folder)]


def data_files(inputs: RunInputs, source: GitHubData) -> DataFiles:
    """The files of a data set, local or to download."""
    return DataFiles(source, folder_of(inputs, source.dataset.name))


def held_out_idioms(inputs: RunInputs) -> set[str]:
    """IdioLink's unseen idioms: of all splits on disk except train; none of the sample, or without data."""
    if inputs.data.sample or not inputs.splits("idiolink"):
        return set()
    try:
        splits = idiolink_splits(inputs)
    except DataMissingError:  # so it is not scored
        return set()
    return {document.idiom for split in splits if split.name != "train" for document in split.documents}


def admire_folder(inputs: RunInputs) -> Path:
    """The folder of AdMIRe's tables and images.

    Raises:
        DataMissingError: if no folder is named, or it is not there: it cannot be downloaded.
    """
    folder = folder_of(inputs, ADMIRE.name)
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
    inputs: RunInputs, name: AdmireSplit, *, training: bool = False, check_images: bool = False
) -> ItemSplit:
    """AdMIRe's items of a split on disk, or those that a fold trains on or scores."""
    folder = admire_folder(inputs)
    if name != ADMIRE_CV_SPLIT:
        return read_items(folder, name, check_images=check_images)
    assert inputs.data.fold is not None  # checked by the settings
    everything = read_items(folder, "train", check_images=check_images)
    training_items, scored_items = fold_items(everything, inputs.data.fold, inputs.data.folds)
    return training_items if training else scored_items


def idiolink_split(inputs: RunInputs, root: Path, name: str, *, training: bool = False) -> Split:
    """A split on disk, or the records that a fold trains on or scores; for training with `data.also`'s."""
    if name != CV_SPLIT:
        split = load_split(root, name)
    elif inputs.data.fold is None:
        raise UserError("split=cv is a fold of the idioms of train and val: name it with data.fold=<number>")
    else:
        split = fold_splits(root, inputs.data.fold, inputs.data.folds)[not training]
    if not training or not inputs.data.also:
        return split
    others = [load_split(idiolink_root(other, sample=False), "train") for other in inputs.data.also]
    return join_splits(name, [split, *(replace(other, name=name) for other in others)])
