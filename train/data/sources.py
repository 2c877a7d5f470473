"""Where a dataset lies: an override, `IDIOM_DATA`, the sample, or one verified download."""

import json
import logging
import os
import re
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from train.data.download import LIMITS, DownloadError, differs, fetch, github_file, partial_file, refused_by
from train.data.published import IDIOLINK, PIE
from train.errors import DataMissingError, UserError
from train.io.files import fingerprint
from train.io.paths import cache_folder, expanded, is_file, is_folder
from train.io.records import parse_json, read_json, read_records, read_text

log = logging.getLogger(__name__)

SAMPLE_ROOT = Path(__file__).parent / "sample"
PIE_FILE = "data_cleaned.csv"
_IDIOLINK_FILE = re.compile(r"data/[\w-]+/(indexes\.json|queries\.json|triplets_[\w-]+\.jsonl)", re.ASCII)
_CHECKSUMS = "checksums.json"
_OTHER_DATASETS = ("semeval2022_task2b", "ncimp", "astitch", "admire")


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


def dataset_folder(
    name: str, named: str | None, option: str, root: str | None, *, sample: bool
) -> Path | None:
    """The folder of a dataset other than IdioLink, or None where it is to be downloaded.

    The first that applies: the sample; `named`; `<root>/<name>`; `$IDIOM_DATA/<name>`.

    Args:
        name: of the dataset's folder in the layout of `$IDIOM_DATA`.
        named: what the user gave for this very dataset, by the setting `option`: the folder, or one with
            `<name>/` in it.
        root: the setting `data.root`.

    Raises:
        UserError: if `named` is no folder.
    """
    if sample:
        return SAMPLE_ROOT / name
    if named is not None:
        folder = expanded(named, option)
        if not is_folder(folder):
            raise UserError(f"{option}={named}: there is no such folder")
        return folder / name if (folder / name).is_dir() else folder
    for above, by in ((root, "data.root"), (os.environ.get("IDIOM_DATA"), "IDIOM_DATA")):
        if above and is_folder(folder := expanded(above, by) / name):
            return folder
    return None


def pie_file(named: str | None) -> Path:
    """The PIE corpus: `data.pie` (the file, or a folder that holds it), `$IDIOM_DATA/pie`, the download.

    Raises:
        UserError: if nothing is there and the download fails.
    """
    folder = os.environ.get("IDIOM_DATA")
    for place, by in ((named, "data.pie"), (folder and str(Path(folder) / "pie"), "IDIOM_DATA")):
        if place:
            path = expanded(place, by)
            path = path / PIE_FILE if is_folder(path) else path
            if is_file(path):
                return path
            raise UserError(f"{by}: there is no file {path if path.suffix else path / PIE_FILE}")
    return github_file(
        PIE,
        PIE_FILE,
        cache_folder() / "pie",
        otherwise=f"a local copy: data.pie=<folder with {PIE_FILE}>",
    )


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
    log.info("downloading the dataset %s from the Hugging Face Hub to %s", IDIOLINK.repo, folder)
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
    named = os.environ.get(IDIOLINK.revision_by)
    if not named:
        return IDIOLINK.revision, IDIOLINK.sha256
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", named):
        raise UserError(
            f"{IDIOLINK.revision_by}={named}: is neither a commit nor the name of a branch or tag"
        )
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
        commit, names = dataset_files(IDIOLINK.repo, revision)
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
        url = hf_hub_url(IDIOLINK.repo, name, repo_type="dataset", revision=commit)
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
    for number, line in enumerate(read_text(path).split("\n"), 1):
        try:
            is_object = not line.strip() or isinstance(parse_json(line), dict)
        except ValueError:
            is_object = False
        if not is_object:
            raise UserError(f"{path}: line {number} is no JSON object")


def _not_downloaded(reason: str) -> DataMissingError:
    return DataMissingError(
        "the IdioLink data is not here and could not be downloaded from the Hugging Face Hub "
        f"({IDIOLINK.repo}).\n"
        "  - a local copy: data.root=<folder with train/ and val/>, or the environment variable "
        "IDIOM_DATA=<folder with idiolink/>\n"
        "  - another revision of the dataset: the environment variable "
        f"{IDIOLINK.revision_by}=<commit or branch>\n"
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
