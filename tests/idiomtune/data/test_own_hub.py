"""Data sets of the Hugging Face Hub as one's own data: at a commit, from the cache without a network."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fake_hub import commit_id, serve
from tests.programs import ROOT
from tests.tiny_runs import composed

# For each name the commit and the rows, or the message. The libraries read the address when imported.
CODE = """
import json, sys
from idiomtune.data.user.load import load_user_data
from idiomtune.plugins.dataset import UserData
from idiomtune.errors import UserError
defaults, names = json.loads(sys.argv[1]), sys.argv[2:]
for name in names:
    try:
        splits = load_user_data(UserData(**(defaults | {"train": [name]})))
        print(json.dumps([splits.revisions, len(splits.train) + len(splits.val), splits.train.names([0])]))
    except UserError as error:
        print(json.dumps(str(error)))
"""


def loaded(url: str, home: Path, *names: str, offline: bool = False) -> list[Any]:
    config = composed("train")["data"]
    defaults = {key: config[key] for key in ("val", "val_share", "form", "columns", "negatives")}
    env = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1" if offline else "0"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(defaults), *names],
        env=env | {"HF_HUB_DISABLE_TELEMETRY": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_data_set_of_the_hub(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    rows = "".join(f"question {i},answer {i}\n" for i in range(20))
    (repository / "train.csv").write_text(f"anchor,positive\n{rows}", encoding="utf-8")
    name = "hf:someone/pairs:train"
    with serve({"datasets/someone/pairs": repository}) as hub:
        commit = commit_id(hub.repositories["datasets/someone/pairs"].main)
        names = (name, f"{name}@{commit}", "hf:someone/none:train", "hf:someone/pairs:tests")
        found, pinned, missing, no_split = loaded(hub.url, tmp_path / "home", *names)
    assert found[:2] == pinned[:2] == [{name: commit}, 20]
    assert found[2] == [f"{name} row {found[2][0].split()[-1]}"]
    assert all(part in missing for part in ("data.train", "someone/none"))
    assert all(part in no_split for part in ("data.train", "tests"))
    names = (name, f"{name}@{commit}", f"{name}@{'f' * 40}", "hf:someone/none:train")
    cached, same, other, unknown = loaded(hub.url, tmp_path / "home", *names, offline=True)
    assert cached == found
    assert same == pinned
    assert all(part in other for part in ("f" * 40, commit, "network"))
    assert all(part in unknown for part in ("data.train", "someone/none", "Hugging Face Hub"))
