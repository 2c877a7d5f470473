"""Where IdioLink lies: a folder that the user names, `IDIOM_DATA`, the sample, or one verified download."""

import json
import logging
import os
import re
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from train.data.datasets import DECLARED, IDIOLINK
from train.data.download import LIMITS, DownloadError, differs, fetch, partial_file, refused_by
from train.data.sources import SAMPLE_ROOT
from train.errors import DataMissingError, UserError
from train.io.files import fingerprint
from train.io.paths import cache_folder, expanded, is_file, is_folder
from train.io.records import read_json, read_records
from train.io.tables import read_rows

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
    # A folder of other datasets is no slip.
    others = named_by == "IDIOM_DATA" or any((folder / name).is_dir() for name in _OTHER_DATASETS)
    raise (DataMissingError if others else UserError)(
        f"{named_by}={folder}: found no IdioLink split there; expected <split>/indexes.json and "
        "<split>/queries.json, directly or under idiolink/"
    )


def _download_idiolink() -> Path:
    """IdioLink's splits from the cache, or from the Hub.

    Files are fetched into a folder of their own and checked there: the cache holds all of them, or none.
    """
    revision, sums = _idiolink_revision()
    folder = cache_folder() / ("idiolink" if sums else f"idiolink-{revision}")
    recorded = folder / _CHECKSUMS
    if is_file(recorded) and _verify(folder, _read_sums(recorded), sums):
        return folder / "data"
    log.info("downloading the dataset %s from the Hugging Face Hub to %s", REPO, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as staged:
            found = _fetch_idiolink(Path(staged), revision, sums)
            recorded.unlink(missing_ok=True)  # never sums beside files that they are not of
            for name in found:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(staged) / name).replace(folder / name)
        # Written last and whole: its presence says that the download is complete.
        with partial_file(recorded, (json.dumps(found, indent=2) + "\n").encode()) as written:
            written.replace(recorded)
    except (OSError, DownloadError) as error:
        raise _not_downloaded(str(error)) from error
    log.info("downloaded %d files; checksums in %s", len(found), recorded)
    return folder / "data"


def _idiolink_revision() -> tuple[str, Mapping[str, str]]:
    """The revision to fetch, and the known sums of its files: none where the user names a revision."""
    named = os.environ.get(REVISION_BY)
    if not named:
        return REVISION, SHA256
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", named):
        raise UserError(f"{REVISION_BY}={named}: is neither a commit nor the name of a branch or tag")
    return named, {}


def _fetch_idiolink(staged: Path, revision: str, sums: Mapping[str, str]) -> dict[str, str]:
    """Fetch the files of all splits into a folder, and check them; the sum of each by its path.

    Raises:
        DownloadError: if they cannot be fetched, or one is not what it should be.
    """
    # Heavy, and needed once.
    from huggingface_hub import get_token, hf_hub_url

    from train.io.hub import HubError, dataset_files

    try:
        commit, names = dataset_files(REPO, revision)
    except HubError as error:
        raise DownloadError(str(error)) from error
    wanted = sorted(name for name in names if _IDIOLINK_FILE.fullmatch(name))
    missing = sorted(sums.keys() - set(wanted))
    if missing or not any(name.endswith("/indexes.json") for name in wanted):
        raise DownloadError(
            f"the dataset on the Hub (revision {revision}) has no {missing[0] if missing else 'split'}"
        )
    token = get_token()
    authorization = f"Bearer {token}" if token else None
    for name in wanted:
        url = hf_hub_url(REPO, name, repo_type="dataset", revision=commit)
        path = staged / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.write_bytes(fetch(url, authorization=authorization, limits=LIMITS))
            reason = differs(path, sums[name]) if name in sums else refused_by(partial(_check, path), path)
        except DownloadError as error:
            reason = str(error)
        if reason is not None:
            raise DownloadError(f"{name} (revision {commit}): {' '.join(reason.split())}")
    return {name: fingerprint(staged / name) for name in wanted}


def _check(path: Path) -> None:
    """That a file of IdioLink whose sum is not known has its form.

    Raises:
        UserError: if it has not.
    """
    from train.data.idiolink import Document, Query  # not needed where a folder is named

    if path.suffix == ".json":
        kind = Query if path.name == "queries.json" else Document
        if not read_records(path, kind):
            raise UserError(f"{path}: holds no record")
        return
    for _ in read_rows(path):
        pass


def _not_downloaded(reason: str) -> DataMissingError:
    return DataMissingError(
        "the IdioLink data is not here and could not be downloaded from the Hugging Face Hub "
        f"({REPO}).\n"
        "  - a local copy: data.root=<folder with train/ and val/>, or the environment variable "
        "IDIOM_DATA=<folder with idiolink/>\n"
        "  - another revision of the dataset: the environment variable "
        f"{REVISION_BY}=<commit or branch>\n"
        "  - no data at hand: data=sample runs on the small set that comes with the project\n"
        f"  Reason: {reason}"
    )


def _read_sums(recorded: Path) -> dict[str, str]:
    """The sums of what was downloaded.

    Raises:
        UserError: if they cannot be read.
    """
    advice = f"delete the folder {recorded.parent} to download it again"
    try:
        sums = read_json(recorded)
    except UserError as error:
        raise UserError(f"{error}: {advice}") from None
    if not isinstance(sums, dict) or not sums or not all(isinstance(value, str) for value in sums.values()):
        raise UserError(f"{recorded} is damaged: it does not hold the sums of files. {advice.capitalize()}")
    return sums


def _verify(folder: Path, recorded: Mapping[str, str], known: Mapping[str, str]) -> bool:
    """Whether the copy serves: False where it is as it was downloaded, but not what is published.

    Raises:
        UserError: if a file is missing or was changed since.
    """
    for name, expected in recorded.items():
        path = folder / name
        try:
            actual = fingerprint(path) if is_file(path) else None
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}") from None
        if actual != expected:
            state = "differs from what was downloaded" if actual else "is missing"
            raise UserError(f"{path} {state}: delete the folder {folder} to download it again")
    others = [name for name, expected in known.items() if recorded.get(name) != expected]
    if others:
        log.warning("IdioLink is downloaded again: %s in %s is not the published file", others[0], folder)
    return not others
