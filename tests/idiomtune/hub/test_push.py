"""Pushing to the Hub: through the real client, to a local server that fails where it is told to."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import yaml
from huggingface_hub import HfApi, ModelCard, constants

import idiomtune as it
from idiomtune import Encoder
from idiomtune.config import PushSettings, TrainSettings, validate
from idiomtune.config.words import overrides_of
from idiomtune.data.sources import SAMPLE_ROOT
from idiomtune.hub.model_card import (
    LicensedSource,
    base_model,
    common_licence,
    glossary_sources,
    training_data,
)
from idiomtune.hub.push import MANIFEST, Upload, collect_data, collect_model, push_or_warn
from idiomtune.io.hub import why_unavailable, without_secrets
from idiomtune.programs.push import push as publish
from tests.chat_server import chat_server
from tests.fake_hub import Failure, FakeHub, Repository, serve
from tests.programs import refused
from tests.tiny_runs import KEY, composed, train

Captured = pytest.CaptureFixture[str]
Log = pytest.LogCaptureFixture
Patch = pytest.MonkeyPatch
TOKEN = "hf_averysecrettokenofmine"
REPO = "me/idioms"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """The server, a client that asks it and waits for nothing, and `me`, logged in."""
    with serve() as hub:
        hub.users[TOKEN] = "me"
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        # With hf_xet installed the client asks for nothing else, whatever the server offers.
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr("huggingface_hub.utils._http.time", SimpleNamespace(sleep=lambda _: None))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no_token"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, options: list[str]) -> Path:
    """A finished run of two checkpoints, with Hydra's record of how it was started."""
    folder = tmp_path_factory.mktemp("push") / "a run"
    train(folder, [*options, "trainer.max_steps=2", "eval.every=1"])
    (folder / ".hydra").mkdir()
    recorded = [*options, "trainer.max_steps=2", "run_dir='/home/me/somewhere'", "hub.private=true"]
    (folder / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(recorded), encoding="utf-8")
    return folder


@pytest.fixture
def finished(made: Path, tmp_path: Path) -> Path:
    """A copy of it to do anything to; its checkpoints do not keep what it was configured with."""
    folder = Path(shutil.copytree(made, tmp_path / "run"))
    for record in folder.glob("step_*/record.json"):
        record.unlink()
    return folder


def asked(checkpoint: Path, **options: Any) -> PushSettings:
    overrides = [f"checkpoint='{checkpoint}'", f"repo_id={REPO}", "license=mit", "allow_sample=true"]
    settings: PushSettings = validate(PushSettings, composed("push", *overrides) | options)
    return settings


def collected(checkpoint: Path, **options: Any) -> Upload:
    return collect_model(asked(checkpoint, **options))


def push(checkpoint: Path, **options: Any) -> str | None:
    return publish(asked(checkpoint, **options))


def configured(run: Path, *, sample: bool = False, **sections: dict[str, Any]) -> None:
    """Let the run look like one with other options, by default on the public data."""
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    config["data"]["sample"] = sample
    config |= {name: config[name] | section for name, section in sections.items()}
    (run / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")


def recorded(run: Path, **facts: Any) -> None:
    """Let `run.json` say something else."""
    (run / "run.json").write_text(json.dumps(read(run / "run.json") | facts), encoding="utf-8")


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def put(path: Path, content: bytes | None) -> None:
    """The file with this content, or without a file there."""
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (p for p in folder.rglob("*") if p.is_file())
    return {str(p): (p.read_bytes(), p.stat().st_mtime_ns) for p in files}


# ---- what is pushed


def test_a_dry_run_shows_all_and_touches_nothing(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(finished)
    assert push(finished, dry_run=True, license=None, allow_sample=False) is None
    said = capsys.readouterr().out
    size = (finished / "best" / "model.safetensors").stat().st_size
    assert re.search(rf"^ *{size:,}  model.safetensors$", said, flags=re.MULTILINE)
    shown = ("modules.json", "scores.json", "config.yaml", "# Idiom-aware", "licence: NOT KNOWN", "license=")
    assert all(part in said for part in (*shown, "allow_sample=true"))
    assert "optimizer" not in said
    assert contents(finished) == before


def test_what_arrives_is_the_model_and_its_cards_code_runs(
    finished: Path, hub: FakeHub, capsys: Captured
) -> None:
    address = push(finished, revision="trial")
    assert capsys.readouterr().out.splitlines()[-1] == address
    assert hub.repositories[REPO].private
    stored = hub.repositories[REPO].branches["trial"]
    assert {"README.md", "scores.json", "config.yaml", "model.safetensors", MANIFEST} <= stored.keys()
    assert not [name for name in stored if "optimizer" in name or "state" in name]
    assert json.loads(stored["scores.json"])["scores"] == read(finished / "scores.json")["scores"]
    assert yaml.safe_load(stored["config.yaml"])["seed"] == 42
    blocks = re.findall(r"```python\n(.*?)```", stored["README.md"].decode(), flags=re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    for block in blocks:
        assert f'SentenceTransformer("{REPO}", revision="trial")' in block
        exec(block, names)  # downloads from the server, with the client's own code
    encoder = Encoder.from_pretrained(finished / "best", device="cpu")
    text = "He broke the ice with a joke."
    (whole,), (span,) = encoder.encode([text]), encoder.encode([text], spans=["broke the ice"])
    torch.testing.assert_close(torch.tensor(names["embeddings"][0]), whole, atol=1e-6, rtol=0)
    torch.testing.assert_close(names["embedding"].cpu(), span, atol=1e-6, rtol=0)


def test_the_card_says_what_the_model_is(finished: Path) -> None:
    configured(finished, model={"path": "someone/base", "about": {"licence": "Apache-2.0"}})
    upload = collected(finished, license=None)
    assert not upload.problems
    card: Any = ModelCard(upload.card).data
    assert card.license == upload.licence == "cc-by-nc-sa-4.0"  # the data's: the base allows it
    assert (card.base_model, card.datasets) == ("someone/base", ["Intellexus/IdioLink"])
    scores = read(finished / "scores.json")
    results = {result.metric_name: result for result in card.eval_results}
    assert results[KEY].metric_value == scores["scores"][KEY]
    assert (results[KEY].dataset_split, results[KEY].metric_type) == ("val", "ndcg_at_10")
    assert results.keys() == {KEY, KEY.replace("ndcg@10", "r_precision")}  # no slices
    row = f"| `{KEY}` | {scores['baseline'][KEY]:.4f} | {scores['scores'][KEY]:.4f} |"
    assert all(part in upload.card for part in (row, "+experiment=idiolink_ft", "trainer.max_steps=2"))
    assert not any(part in upload.card for part in ("run_dir", "A trial"))


def test_the_card_of_the_run_is_pushed_without_training_texts_and_folders_of_this_machine(
    finished: Path, tiny_path: Path
) -> None:
    ours = (finished / "best" / "README.md").read_text(encoding="utf-8")
    upload = collected(finished)
    texts = {"README.md": upload.card}
    texts |= {n: bytes(f).decode() for n, f in upload.files.items() if isinstance(f, bytes)}
    folders = ("/home/me", *(str(folder.parent) for folder in (finished, tiny_path, SAMPLE_ROOT)))
    assert not [(name, folder) for name, text in texts.items() for folder in folders if folder in text]
    queries = read(SAMPLE_ROOT / "idiolink" / "train" / "queries.json")
    assert not [query for query in queries if query["sentence"] in upload.card]
    shutil.rmtree(finished / ".hydra")  # was put there after the run
    card = collected(finished).card.replace("license: mit\n", "").replace(REPO, "path/to/this/folder")
    assert card == ours
    assert "A trial" in ours
    assert "model-index" not in ours  # a leaderboard cannot tell the sample from a benchmark


def test_the_token_is_nowhere(finished: Path, hub: FakeHub, capfd: Captured, caplog: Log) -> None:
    caplog.set_level("DEBUG")
    hub.failures = [Failure("PUT /lfs", 503, times=1), Failure("/commit/", 500, times=1, text=f"{TOKEN}!")]
    said_first = refused(lambda: push(finished))
    push(finished)
    assert TOKEN not in str(said_first)
    said = capfd.readouterr()
    assert TOKEN not in said.out + said.err + caplog.text
    written = [*contents(finished).values(), *((c, 0) for c in hub.repositories[REPO].main.values())]
    assert not [content for content, _ in written if TOKEN.encode() in content]


# ---- where


def test_a_second_push_replaces_what_the_first_one_left_alone(finished: Path, hub: FakeHub) -> None:
    old = finished / "best" / "experts" / "old.json"
    old.parent.mkdir()
    old.write_text("{}", encoding="utf-8")
    push(finished)
    stored = hub.repositories[REPO]
    assert "experts/old.json" in stored.main
    stored.main["paper.pdf"] = b"put there by hand"
    old.unlink()
    uploads = hub.count("PUT /lfs")
    push(finished)
    assert "experts/old.json" not in stored.main
    assert stored.main["paper.pdf"] == b"put there by hand"
    assert hub.count("PUT /lfs") == uploads  # what is there is not sent again
    commits = hub.count("/commit/")
    push(finished)
    assert hub.count("/commit/") == commits  # nor is there an empty commit


def test_what_others_can_see_or_put_there_is_left_alone(finished: Path, hub: FakeHub) -> None:
    stored = hub.repositories[REPO] = Repository(private=False)
    stored.main["pytorch_model.bin"] = b"somebody's"
    refused(lambda: push(finished), "private=false")
    refused(lambda: push(finished, private=False), "pytorch_model.bin", "overwrite=true")
    assert not hub.count("/commit/")
    push(finished, private=False, overwrite=True)
    assert stored.main["pytorch_model.bin"] == b"somebody's"
    assert "model.safetensors" in stored.main
    assert not stored.private


def test_a_data_set_of_write_arrives_and_can_be_read(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-notakeyofanybodyatall")
    (tmp_path / "table.csv").write_text("expression,meaning\nbreak the ice,relax\nhit the road,leave\n")
    with chat_server() as chat:
        options: Any = {"endpoint": chat.address, "domains": ["Sport"], "judge_model": "judge", "votes": 1}
        folder = it.write("table.csv", "data", "author", **options)
    push(folder)
    files = hub.repositories[f"datasets/{REPO}"].main
    for name in ("train/indexes.json", "val/queries.json"):
        assert files[name] == (folder / name).read_bytes()
    assert yaml.safe_load(files["README.md"].decode().split("---")[1])["license"] == "mit"
    assert "answers.jsonl" not in files
    secrets = [name for name, content in files.items() if b"sk-nota" in content or b"127.0.0.1" in content]
    assert not secrets
    assert collect_data(asked(folder, license=None)).problems
    (tmp_path / "private.txt").write_text("secret")
    (folder / "prompts" / "judge.txt").unlink()
    (folder / "prompts" / "judge.txt").symlink_to(tmp_path / "private.txt")
    refused(lambda: push(folder), "checkpoint", "judge.txt")


def test_no_file_with_a_secret_is_published(finished: Path, hub: FakeHub, monkeypatch: Patch) -> None:
    """It may have come there from anywhere; the card is written for the push."""
    path, secret = finished / "best" / "config.json", "AbC-1234"
    good = path.read_bytes()
    monkeypatch.setenv("GITHUB_PAT", secret)
    path.write_bytes(good.replace(b"{", b'{"AbC-1234":"",', 1))
    for step in finished.glob("step_*"):
        shutil.rmtree(step)
    assert secret not in str(refused(lambda: push(finished, dry_run=True), "GITHUB_PAT"))
    path.write_bytes(good)
    configured(finished, sample=True, model={"path": f"me/{secret}/base"})
    assert secret not in str(refused(lambda: push(finished), "GITHUB_PAT"))
    assert not hub.repositories


# ---- what goes wrong


@pytest.mark.parametrize("failure", [Failure("/api/whoami-v2", 401), Failure("PUT /lfs", None)])
def test_a_failure_is_explained_and_can_be_mended(finished: Path, hub: FakeHub, failure: Failure) -> None:
    hub.failures = [failure]
    refused(lambda: push(finished), "HF_TOKEN" if failure.status == 401 else str(failure.status or REPO))
    assert all("model.safetensors" not in stored.main for stored in hub.repositories.values())
    num_uploads, num_stored = hub.count("PUT /lfs"), len(hub.objects)
    failure.times = 0
    push(finished)
    assert "model.safetensors" in hub.repositories[REPO].main
    if num_stored:  # uploaded before what failed
        assert hub.count("PUT /lfs") == num_uploads


def test_what_is_shown_holds_no_credentials(monkeypatch: Patch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    address = "PUT https://me:pa%20ss@s3/x?X-Signature=abc&y=1 failed"
    assert without_secrets(f"{address} {TOKEN}") == "PUT https://***@s3/x?*** failed ***"
    ordinary = "mail me@host.org, see https://host/x or hf_transfer"
    assert without_secrets(ordinary) == ordinary


def test_without_rights_nothing_is_made(finished: Path, hub: FakeHub, monkeypatch: Patch) -> None:
    refused(lambda: push(finished, repo_id="others/idioms"), "others/idioms", "403")
    with monkeypatch.context() as patched:
        patched.setattr("idiomtune.hub.push._QUESTION_TIMEOUT", 0.05)
        hub.failures = [Failure("/api/whoami-v2", 200, times=1, seconds=0.5)]
        refused(lambda: push(finished), "timed out")
        patched.setattr(constants, "HF_HUB_OFFLINE", True)
        refused(lambda: push(finished), "HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    refused(lambda: push(finished), "HF_TOKEN", "Invalid")
    monkeypatch.delenv("HF_TOKEN")
    refused(lambda: push(finished), "HF_TOKEN", "hf auth login")
    assert not hub.repositories


def test_a_checkpoint_that_is_not_whole_is_refused(finished: Path) -> None:
    weights = (finished / "best" / "model.safetensors").read_bytes()
    for name, content, *named in (
        ("best/pytorch_model.bin", b"", "pickle"),
        ("best/model.safetensors", None),
        ("best/model.safetensors", weights[:-1] + bytes([weights[-1] ^ 1]), "resume="),
        ("config.yaml", b"model: ["),
        ("scores.json", None),
    ):
        path = finished / name
        before = path.read_bytes() if path.exists() else None
        put(path, content)
        refused(lambda: collected(finished), path.name, *named)
        put(path, before)
    assert collected(finished).files


def test_a_folder_that_is_no_finished_run_is_refused(finished: Path) -> None:
    copy = shutil.copytree(finished / "best", finished / "plots" / "model")
    refused(lambda: collected(finished.parent), "1 runs", str(finished))
    for folder in (finished / "plots", finished / "nowhere", copy):
        refused(lambda folder=folder: collected(folder), f"checkpoint={folder}")  # type: ignore[misc]
    assert collected(finished / "best").files.keys() == collected(finished).files.keys()
    recorded(finished, status="interrupted")
    refused(lambda: collected(finished), "interrupted", "resume=")
    step = collected(finished / "step_1")  # a checkpoint of a run that goes on
    assert json.loads(bytes(step.files["scores.json"]))["meta"]["checkpoint"] == "step_1"
    assert not [name for name in step.files if name.startswith(("optimizer", "state", "checksums"))]


def test_other_files_are_not_published(finished: Path, tmp_path: Path, capsys: Captured) -> None:
    """Data and logs that lie there are left out and said; links that lead elsewhere are refused."""
    best = finished / "best"
    for name in ("train.log", "tuples.jsonl", "experts/queries.csv", ".lock"):
        (best / name).parent.mkdir(exist_ok=True)
        (best / name).write_text("private", encoding="utf-8")
    (best / "LICENSE").write_text("ours", encoding="utf-8")
    upload = collected(finished)
    assert set(upload.left_out) == {"train.log", "tuples.jsonl", "experts/queries.csv"}
    assert "LICENSE" in upload.files
    assert not {*upload.left_out, ".lock"} & upload.files.keys()
    push(finished, dry_run=True)
    assert re.search(r"left out +tuples\.jsonl", capsys.readouterr().out)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "notes.txt").write_text("private", encoding="utf-8")
    for target in (tmp_path / "secret" / "notes.txt", tmp_path / "secret", finished / "step_1"):
        link = best / "notes.txt"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        refused(lambda: collected(finished), str(link), str(target))


def test_a_bug_ends_no_run(finished: Path, hub: FakeHub, monkeypatch: Patch, caplog: Log) -> None:
    bug = Mock(side_effect=TypeError(f"a bug at {hub.url.replace('//', '//me:pass1234@')}"))
    monkeypatch.setattr(HfApi, "create_commit", bug)
    options = [f"hub.repo_id={REPO}", "hub.license=mit", "hub.push=best", "hub.allow_sample=true"]
    settings: TrainSettings = validate(TrainSettings, composed("train", *options))
    push_or_warn(settings.hub, finished)
    assert all(part in caplog.text for part in ("NOT pushed", "Traceback", "TypeError: a bug"))
    assert "pass1234" not in caplog.text


def test_a_password_in_the_hubs_address_is_not_shown(
    finished: Path, hub: FakeHub, monkeypatch: Patch, caplog: Log
) -> None:
    """HF_ENDPOINT of a mirror that asks for a user and a password."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url.replace("//", "//me:pass1234@"))
    hub.failures = [Failure("/api/whoami-v2", 404)]
    for module in ("hub.push", "io.hub"):
        monkeypatch.setattr(f"idiomtune.{module}.HfApi", lambda: HfApi(endpoint=constants.ENDPOINT))
    told = f"{refused(lambda: push(finished))} {why_unavailable('some/model', 'model')} {caplog.text}"
    assert "pass1234" not in told
    assert "***@127.0.0.1" in told


# ---- settings and licences


def test_options_are_checked(tmp_path: Path) -> None:
    cases = [("repo_id", "idioms"), ("repo_id", None), ("revision", "a..b"), ("revision", "0" * 40)]
    for option, value in (*cases, ("license", "My own"), ("token", TOKEN)):
        assert TOKEN not in str(refused(lambda: asked(tmp_path, **{option: value}), option))  # noqa: B023


def test_the_strictest_licence_counts() -> None:
    for licences, common in (
        (("mit", "apache-2.0", "cc-by-nc-sa-4.0"), "cc-by-nc-sa-4.0"),
        (("apache-2.0", "cc-by-nc-sa-4.0", "gpl-3.0"), None),
        (("apache-2.0", None), None),
        (("apache-2.0", "other"), None),  # nobody knows what it asks
    ):
        assert common_licence([LicensedSource("", licence) for licence in licences]) == common


def test_whose_models_glossaries_and_data_are(tmp_path: Path) -> None:
    """Licences are the Hub's identifiers, or not known."""
    minilm = "sentence-transformers/all-MiniLM-L6-v2"
    assert base_model(composed("train")) == LicensedSource(minilm, "apache-2.0", minilm)
    for name, licence in (("Gemma", "gemma"), ("Other", None), ("see there", None)):
        about = {"path": "org/name", "about": {"licence": name}}
        assert base_model({"model": about}) == LicensedSource("org/name", licence, "org/name")
        (tmp_path / "README.md").write_text(f"---\nlicense: {name}\n---\n", encoding="utf-8")
        assert base_model({"model": {"path": str(tmp_path)}}) == LicensedSource(tmp_path.name, licence)
    for facts, licence in (({}, "cc0-1.0"), ({"without_licence": 1}, None), ({"licences": []}, None)):
        sources = glossary_sources({"files": ["mine.tsv"], "licences": ["CC0-1.0"], **facts})
        assert sources[-1] == LicensedSource("the glossary mine.tsv", licence)
    joint = training_data(composed("train", "+experiment=joint"))
    assert [source.name for source in joint] == ["IdioLink", "SemEval-2022 Task 2B"]
    for *options, source in (
        ("joint", "data=sample", LicensedSource("the project's own sample data", "apache-2.0")),
        ("idiolink_ft", LicensedSource("IdioLink", "cc-by-nc-sa-4.0", "Intellexus/IdioLink")),
        ("idiolink_ft", "data.idiolink=/my/ones", LicensedSource("the idioms in ones", None)),
        ("own", "data.train=[/my/own.csv]", LicensedSource("the user's own data (own.csv)")),
    ):
        assert training_data(composed("train", f"+experiment={options[0]}", *options[1:])) == [source]


def test_the_data_of_an_objective_that_is_not_known_leaves_no_licence(finished: Path) -> None:
    """A permissive base model does not make its fine-tuned one permissive."""
    base = {"path": "someone/base", "about": {"licence": "MIT"}}
    configured(finished, sample=True, model=base, objective={"name": "somebodys_own"})
    upload = collected(finished, license=None)
    (problem,) = upload.problems
    assert all(part in problem for part in ("somebodys_own", "license="))
    card: Any = ModelCard(upload.card).data
    assert upload.licence is card.license is None
    assert not collected(finished, license="cc-by-4.0").problems


def test_the_card_says_how_meanings_are_read(finished: Path) -> None:
    for form, gate in (("append", None), ("replace", True)):
        recorded(finished, glossary={"form": form, "gate": gate})
        card = collected(finished).card
        assert ("(made people relax)" in card) == (form == "append")
        assert ('"He made people relax"' in card) == (form == "replace")
        assert "from idiomtune import Encoder" in card  # which alone reads meanings
        assert "model.similarity(" not in card
        assert ("weighs them by usage" in card) == (gate is not None)


# ---- from a training run

TRAINED = ["trainer.max_steps=2", "eval.every=1", f"hub.repo_id={REPO}", "hub.license=mit"]


def test_each_checkpoint_is_pushed_and_a_failure_does_not_harm_the_run(
    tmp_path: Path, options: list[str], hub: FakeHub, capsys: Captured, caplog: Log
) -> None:
    run = tmp_path / "run"
    hub.failures = [Failure("/api/whoami-v2", 503, times=1), Failure("/commit/step_1", 409)]
    train(run, [*options, *TRAINED, "hub.push=every", "hub.allow_sample=true"])
    assert read(run / "run.json")["status"] == "finished"
    assert hub.url not in capsys.readouterr().out  # the last line is the run folder's
    (command,) = re.findall(r"idiomtune push (.*)", caplog.text)
    assert "Traceback" not in caplog.text
    hub.failures = []
    overrides = overrides_of([a.strip("'") for a in command.split()], "push", "checkpoint")
    publish(validate(PushSettings, composed("push", *overrides)))  # the command that was named
    branches = hub.repositories[REPO].branches
    assert branches.keys() == {"main", "step_1", "step_2"}
    for branch, name in (("main", "best"), ("step_1", "step_1"), ("step_2", "step_2")):
        assert branches[branch]["model.safetensors"] == (run / name / "model.safetensors").read_bytes()
    for name in ("step_1", "step_2"):
        scores = read(run / name / "scores.json")["scores"]
        assert json.loads(branches[name]["scores.json"])["scores"] == scores
        assert f'revision="{name}"' in branches[name]["README.md"].decode()


def test_what_would_fail_is_said_at_the_start(tmp_path: Path, options: list[str], hub: FakeHub) -> None:
    def told(named: str, *more: str) -> None:
        refused(lambda: train(tmp_path / "run", [*options, "hub.push=best", *more]), named)
        assert not (tmp_path / "run" / "run.json").exists()

    told("hub.repo_id")
    told("hub.allow_sample=true", *TRAINED)
    meant = (*TRAINED, "hub.allow_sample=true")
    told("hub.license=<identifier>", *meant, "hub.license=null")
    (tmp_path / "mine.tsv").write_text("expression\tmeaning\nhome run\ta success\n")
    told("mine.tsv", *meant, "hub.license=null", f"model.glossary={tmp_path / 'mine.tsv'}")
    assert not hub.repositories
