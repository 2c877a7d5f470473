"""Where IdioLink is: a folder that the user names, `IDIOM_DATA`, the sample, or one verified download."""

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path

from train.data.datasets import DECLARED, IDIOLINK
from train.data.download import check_sum
from train.data.sources import SAMPLE_ROOT
from train.errors import DataMissingError, UserError
from train.io.files import fingerprint, write_json
from train.io.paths import cache_folder, expanded, is_file, is_folder
from train.io.records import read_json

log = logging.getLogger(__name__)

REPO = str(IDIOLINK.hub)
REVISION = "main"  # all files are fetched from the commit that it means at the time
REVISION_BY = "IDIOM_IDIOLINK_REVISION"  # names another; its files have no known sums
SHA256 = {  # of the public files at the default revision; others have no known sum
    "data/train/indexes.json": "9f43e6283f1b6848637402b8ce3c9ca33d4368be1b140a44d126dc9f4bbae802",
    "data/train/queries.json": "4d812bec88305b65193995edca2072601d23e00a12abb68af23c5ff8453a21f7",
    "data/train/triplets_train_full.jsonl": (
        "fd1af6e3f25ae709574145d644548dc31ac1cb56396f1edb8439c194fc6ed054"
    ),
    "data/train/triplets_train_span.jsonl": (
        "392be542db3588f02ed22cf8c72947987195cc272817fb0109ba8d5606f63481"
    ),
    "data/val/indexes.json": "6e6e014bc3db4b2acfd06c2aef7492e4ed5a1a36e8038065a1eefa4f522278dc",
    "data/val/queries.json": "7f3db8377ad83d14880afd346aaf016eececf5f166aec7e74734048ed3a43538",
    "data/val/triplets_val_full.jsonl": ("6fd9e86680fa3edab8c9bfd6800c49f653cbf2a316b924a23ec9b3ac0cc20b79"),
}
_IDIOLINK_FILE = re.compile(r"data/[\w-]+/(indexes\.json|queries\.json|triplets_[\w-]+\.jsonl)", re.ASCII)
_CHECKSUMS = "checksums.json"
_TIMEOUT = 10.0  # seconds
_OTHER_DATASETS = [dataset.name for dataset in DECLARED if dataset is not IDIOLINK]


def idiolink_root(root: str | None, *, sample: bool) -> Path:
    """The folder that holds IdioLink's splits.

    The first that applies: the sample; `root`; `$IDIOM_DATA`; the download. `root` and `IDIOM_DATA`
    may be the folder with the splits, or one with `idiolink/` (or, inside it, `data/`) above them.

    Raises:
        UserError: if the folder named is none.
        DataMissingError: if nothing is named and the download fails, or the folder has other datasets only.
    """
    if sample:
        return SAMPLE_ROOT / "idiolink"
    for named, by in ((root, "data.root"), (os.environ.get("IDIOM_DATA"), "IDIOM_DATA")):
        if named:
            return _descend(expanded(named, by), by)
    return _download_idiolink()


def _descend(folder: Path, named_by: str) -> Path:
    if not is_folder(folder):
        raise UserError(f"{named_by}={folder}: there is no such folder")
    for candidate in (folder / "idiolink", folder, folder / "data", folder / "idiolink" / "data"):
        if candidate.is_dir() and any(candidate.glob("*/indexes.json")):
            return candidate
    # A folder of other datasets is not a mistake.
    others = named_by == "IDIOM_DATA" or any((folder / name).is_dir() for name in _OTHER_DATASETS)
    raise (DataMissingError if others else UserError)(
        f"{named_by}={folder}: found no IdioLink split there; expected <split>/indexes.json and "
        "<split>/queries.json, directly or under idiolink/"
    )


def _download_idiolink() -> Path:
    """IdioLink's splits from the cache, or from the Hub.

    `checksums.json` is written last: its presence says that the download is complete.
    """
    revision, known = _idiolink_revision()
    folder = cache_folder() / ("idiolink" if known else f"idiolink-{revision}")
    recorded = folder / _CHECKSUMS
    if not is_file(recorded):
        log.info("downloading the dataset %s from the Hugging Face Hub to %s", REPO, folder)
        _fetch_idiolink(folder, revision, known)
    advice = f"delete the folder {folder}"
    sums = read_json(recorded)
    if not isinstance(sums, dict):
        raise UserError(f"{recorded} is damaged: {advice} to download it again")
    for name, expected in {**sums, **known}.items():
        check_sum(folder / name, expected, advice)
    return folder / "data"


def _idiolink_revision() -> tuple[str, Mapping[str, str]]:
    """The revision to fetch, and the known sums of its files: none if the user names a revision."""
    named = os.environ.get(REVISION_BY)
    if not named:
        return REVISION, SHA256
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", named):
        raise UserError(f"{REVISION_BY}={named}: is neither a commit nor the name of a branch or tag")
    return named, {}


def _fetch_idiolink(folder: Path, revision: str, known: Mapping[str, str]) -> None:
    """Download the files of all splits, all of one commit, and record their sums.

    Raises:
        DataMissingError: if they cannot be downloaded, or one is not the published file.
    """
    from huggingface_hub import HfApi, hf_hub_download  # heavy, and needed once

    from train.io.hub import CLIENT_ERRORS, reason_for

    sums: dict[str, str] = {}
    try:
        info = HfApi().dataset_info(REPO, revision=revision, timeout=_TIMEOUT)
        published = {file.rfilename for file in info.siblings or ()}
        wanted = sorted(name for name in published | known.keys() if _IDIOLINK_FILE.fullmatch(name))
        if not wanted:
            raise FileNotFoundError(f"the dataset on the Hub (revision {revision}) has no split")
        for name in wanted:
            hf_hub_download(REPO, name, repo_type="dataset", revision=info.sha, local_dir=folder)
            sums[name] = fingerprint(folder / name)
            if sums[name] != known.get(name, sums[name]):
                (folder / name).unlink()  # the next start would take it for the right one
                raise OSError(f"{name} (revision {info.sha}): its SHA-256 is {sums[name]}, not {known[name]}")
        write_json(folder / _CHECKSUMS, sums)
    except CLIENT_ERRORS as error:
        raise DataMissingError(
            "the IdioLink data is not here and could not be downloaded from the Hugging Face Hub "
            f"({REPO}).\n"
            "  - a local copy: data.root=<folder with train/ and val/>, or the environment variable "
            "IDIOM_DATA=<folder with idiolink/>\n"
            "  - another revision of the dataset: the environment variable "
            f"{REVISION_BY}=<commit or branch>\n"
            "  - no data at hand: data=sample runs on the small set that comes with the project\n"
            f"  Reason: {reason_for(error)}"
        ) from error
    log.info("downloaded %d files; checksums in %s", len(sums), folder / _CHECKSUMS)
