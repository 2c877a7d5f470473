"""Where a dataset lies: an override, `IDIOM_DATA`, the sample, or one verified download."""

import json
import logging
import os
from pathlib import Path

from train.data.download import github_file
from train.errors import DataMissingError, UserError
from train.files import fingerprint
from train.paths import expanded, is_file, is_folder

log = logging.getLogger(__name__)

SAMPLE_ROOT = Path(__file__).parent / "sample"
IDIOLINK_REPO = "Intellexus/IdioLink"
PIE_REPO = "zhjjn/MWE_PIE"
PIE_FILE = "data_cleaned.csv"
_IDIOLINK_PATTERNS = ("data/*/indexes.json", "data/*/queries.json", "data/*/triplets_*.jsonl")
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
        PIE_REPO,
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


def cache_folder() -> Path:
    """Where downloaded datasets are kept: `$IDIOM_CACHE`, else `idiomtune` in the user's cache."""
    named = os.environ.get("IDIOM_CACHE")
    if named:
        return expanded(named, "IDIOM_CACHE")
    return expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "XDG_CACHE_HOME") / "idiomtune"


def _download_idiolink() -> Path:
    folder = cache_folder() / "idiolink"
    recorded = folder / _CHECKSUMS
    if recorded.is_file():
        _verify(folder, json.loads(recorded.read_text(encoding="utf-8")))
        return folder / "data"
    from huggingface_hub import snapshot_download  # heavy; needed once

    from train.hub import first_line, why_unavailable

    reason = why_unavailable(IDIOLINK_REPO, "dataset")
    if reason is not None:
        raise _not_downloaded(reason)
    log.info("downloading the dataset %s from the Hugging Face Hub to %s", IDIOLINK_REPO, folder)
    try:
        snapshot_download(
            IDIOLINK_REPO,
            repo_type="dataset",
            allow_patterns=list(_IDIOLINK_PATTERNS),
            local_dir=folder,
        )
    # Interrupted, disk full, a file withdrawn: the way out is the same.
    except Exception as error:
        raise _not_downloaded(first_line(error)) from error
    files = sorted((folder / "data").glob("*/*.json*"))
    if not files:
        raise UserError(
            f"the dataset {IDIOLINK_REPO} on the Hub has no data/<split>/indexes.json; name a local "
            "copy with data.root=<folder>"
        )
    sums = {str(path.relative_to(folder)): fingerprint(path) for path in files}
    # Written last and whole: its presence says that the download is complete.
    partial = recorded.with_suffix(".partial")
    partial.write_text(json.dumps(sums, indent=2) + "\n", encoding="utf-8")
    partial.replace(recorded)
    log.info("downloaded %d files; checksums in %s", len(files), recorded)
    return folder / "data"


def _not_downloaded(reason: str) -> DataMissingError:
    return DataMissingError(
        "the IdioLink data is not here and could not be downloaded from the Hugging Face Hub "
        f"({IDIOLINK_REPO}).\n"
        "  - a local copy: data.root=<folder with train/ and val/>, or the environment variable "
        "IDIOM_DATA=<folder with idiolink/>\n"
        "  - no data at hand: data=sample runs on the small set that comes with the project\n"
        f"  Reason: {reason}"
    )


def _verify(folder: Path, sums: dict[str, str]) -> None:
    for name, expected in sums.items():
        path = folder / name
        if not path.is_file() or fingerprint(path) != expected:
            state = "differs from what was downloaded" if path.is_file() else "is missing"
            raise UserError(f"{path} {state}: delete the folder {folder} to download it again")
