"""Where each dataset lies, by the section `data`."""

from __future__ import annotations

from pathlib import Path

from train.config import Common
from train.data import admire, astitch, ncimp, semeval2022
from train.data.admire import ItemSplit, fold_items, read_items
from train.data.astitch import AStitchFiles
from train.data.idiolink import Split, fold_splits, load_split
from train.data.ncimp import NcimpFiles
from train.data.semeval2022 import SemEvalFiles
from train.data.sources import cache_folder, dataset_folder
from train.errors import UserError
from train.scores import ADMIRE_CV_SPLIT, CV_SPLIT, AdmireSplit


def semeval_files(settings: Common) -> SemEvalFiles:
    """Where the files of SemEval-2022 Task 2B are, or are downloaded to."""
    data = settings.data
    folder = dataset_folder(
        semeval2022.FOLDER, data.semeval2022, "data.semeval2022", data.root, sample=data.sample
    )
    return SemEvalFiles(folder, cache_folder())


def ncimp_files(settings: Common) -> NcimpFiles:
    """Where the files of NCIMP are, or are downloaded to."""
    data = settings.data
    folder = dataset_folder(ncimp.FOLDER, data.ncimp, "data.ncimp", data.root, sample=data.sample)
    return NcimpFiles(folder, cache_folder())


def admire_folder(settings: Common) -> Path:
    """Where AdMIRe's tables and images are.

    Raises:
        DataMissingError: if no folder is named, or it is not there: it cannot be downloaded.
    """
    data = settings.data
    folder = dataset_folder(admire.FOLDER, data.admire, "data.admire", data.root, sample=data.sample)
    if folder is None:
        raise admire.not_here()
    return folder


def astitch_files(settings: Common) -> AStitchFiles:
    """Where the files of AStitchInLanguageModels are, or are downloaded to."""
    data = settings.data
    folder = dataset_folder(astitch.FOLDER, data.astitch, "data.astitch", data.root, sample=data.sample)
    return AStitchFiles(folder, cache_folder())


def admire_split(
    settings: Common, name: AdmireSplit, *, training: bool = False, check_images: bool = False
) -> ItemSplit:
    """AdMIRe's items of a split on disk, or of one side of a fold."""
    folder = admire_folder(settings)
    if name != ADMIRE_CV_SPLIT:
        return read_items(folder, name, check_images=check_images)
    assert settings.data.fold is not None  # the settings see to it
    everything = read_items(folder, "train", check_images=check_images)
    of_training, scored = fold_items(everything, settings.data.fold, settings.data.folds)
    return of_training if training else scored


def idiolink_split(settings: Common, root: Path, name: str, *, training: bool = False) -> Split:
    """A split on disk, or one side of a fold."""
    if name != CV_SPLIT:
        return load_split(root, name)
    if settings.data.fold is None:
        raise UserError("split=cv is a fold of the idioms of train and val: name it with data.fold=<number>")
    of_training, scored = fold_splits(root, settings.data.fold, settings.data.folds)
    return of_training if training else scored
