"""A card's figures, in 8 minutes at most and without a download: `make gpu`.

Models of real sizes have random weights, but for MiniLM (22M); texts are the sample's. What fails is a row of
its own, and the rest goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer, BertConfig, Qwen3Config

import idiomtune as it
from bench import library, ours
from bench.measure import ROOT
from bench.workload import Precision, Workload
from idiomtune.encoder.loading import resolve_model_path
from idiomtune.errors import UserError
from idiomtune.io.files import package_versions

PAGE = ROOT / "docs" / "results" / "gpu.md"
Rows = Iterator[tuple[str, str]]


class Bench:
    """What is measured on one device.

    Args:
        tiny: small models and few texts, to try the program itself.
        folder: for models and runs.
    """

    def __init__(self, device: str, folder: Path, *, tiny: bool) -> None:
        self.device, self.tiny, self._folder = device, tiny, folder
        self._steps = 4 if tiny else 20

    def sections(self) -> dict[str, Callable[[], Rows]]:
        """Title → its rows."""
        return {
            "the machine": self.machine,
            "parity with the CPU": self.parity,
            "training steps": self.steps,
            "batches of 1,024 pairs": self.large_batches,
            "the largest batch": self.largest_batch,
            "resumed after an interruption": self.resumed,
            "scoring": self.scoring,
        }

    def machine(self) -> Rows:
        is_cuda = self.device.startswith("cuda")
        yield "device", torch.cuda.get_device_name() if is_cuda else self.device
        if is_cuda:
            yield "memory", f"{torch.cuda.get_device_properties(0).total_memory / 2**30:.0f} GiB"
        yield "packages", ", ".join(f"{name} {version}" for name, version in package_versions().items())

    def parity(self) -> Rows:
        """Losses, scores and embeddings of the packaged MiniLM."""
        work = dataclasses.replace(self._workload(None, "fp32"), steps=3)
        devices = [dataclasses.replace(work, device=device) for device in ("cpu", self.device)]
        losses = [ours.run(work).losses for work in devices]
        scores = [ours.run(dataclasses.replace(work, task="scorecard")).scores for work in devices]
        apart = max(abs(a - b) for a, b in zip(*losses, strict=True))
        yield "losses of 3 steps, fp32", f"{apart:.1e} apart at most"
        apart = max(abs(value - scores[1][key]) for key, value in scores[0].items())
        yield f"{len(scores[0])} scores, fp32", f"{apart:.1e} apart at most"
        texts = self._texts(64)
        rows = [it.Encoder("minilm", device=d).encode(texts).cpu() for d in ("cpu", self.device)]
        yield f"{len(texts)} embeddings, fp32", f"{(rows[0] - rows[1]).abs().max():.1e} apart at most"

    def steps(self) -> Rows:
        """Steps in bfloat16, beside sentence-transformers' trainer."""
        for name, path in self._models():
            times: dict[str, float] = {}
            for way in (ours, library):
                self._reset_memory()
                run = way.run(self._workload(path, "bf16"))
                times[way.__name__] = statistics.median(step.wall for step in run.times)
                title = f"{name}, {way.__name__.removeprefix('bench.')}"
                yield title, f"{times[way.__name__]:.3f} s a step, {self._peak_memory()}"
            first, second = times.values()
            yield f"{name}, ours against the library", f"{second / first:.2f} times as fast"

    def large_batches(self) -> Rows:
        """With gradient caching, and without if the memory suffices."""
        for caching in (True, False):
            seconds = self._pairs(64 if self.tiny else 1024, caching=caching)
            name = f"gradient caching {'on' if caching else 'off'}"
            yield name, f"{seconds:.1f} s in all, {self._peak_memory()}"

    def largest_batch(self) -> Rows:
        """The largest power of two that the trial of the longest batch lets pass."""
        for name, path in self._models():
            size, last = 64, 128 if self.tiny else 2**15
            try:
                while size <= last:
                    self._pairs(size, model=path, caching=False)
                    size *= 2
            except (UserError, RuntimeError) as error:
                if "memory" not in str(error):
                    raise
            limit = " or more: larger ones were not tried" if size > last else ""
            yield name, f"{size // 2:,} pairs{limit}, {self._peak_memory()}"

    def _pairs(self, size: int, *, caching: bool, model: str | None = None) -> float:
        """Seconds of a short run on pairs, in a batch of this size."""
        self._reset_memory()
        texts = self._texts(2 * size)
        rows = [{"anchor": texts[i], "positive": texts[i + size]} for i in range(size)]
        trainer = {"max_steps": 2, "batch_size": size, "gradient_caching": caching}
        start = time.monotonic()
        said = StringIO()
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(said), redirect_stderr(said):
            options: dict[str, Any] = {"trainer": trainer, "device": self.device, "run_dir": f"{folder}/run"}
            it.train(data=rows, val=rows[:8], model=model or "minilm", **options)
        return time.monotonic() - start

    def resumed(self) -> Rows:
        """A run that is interrupted and resumed ends with the weights of one that is not."""
        command = [sys.executable, "-m", "idiomtune", "train", "idiolink_ft", "data=sample"]
        command += ["benchmarks=[idiolink]", f"device={self.device}", "trainer.max_steps=40", "eval.every=20"]
        folders = [self._folder / "whole", self._folder / "interrupted"]
        subprocess.run([*command, f"run_dir={folders[0]}"], check=True, capture_output=True)
        with subprocess.Popen(
            [*command, f"run_dir={folders[1]}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            metrics = folders[1] / "metrics.jsonl"
            while process.poll() is None and _num_lines(metrics) < 3:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
        if process.returncode == 0:
            raise RuntimeError("the run had ended before it could be interrupted")
        subprocess.run([*command[:4], f"resume={folders[1]}"], check=True, capture_output=True)
        weights = [load_file(folder / "best" / "model.safetensors") for folder in folders]
        apart = max(float((weights[0][name] - weights[1][name]).abs().max()) for name in weights[0])
        yield "weights", "the same, bit for bit" if apart == 0 else f"{apart:.1e} apart at most"

    def scoring(self) -> Rows:
        """Texts embedded in a second, by the packaged MiniLM."""
        texts = self._texts(500 if self.tiny else 100_000)
        encoder = it.Encoder("minilm", device=self.device)
        encoder.encode(texts[:64])
        start = time.monotonic()
        encoder.encode(texts)
        yield f"{len(texts):,} texts", f"{len(texts) / (time.monotonic() - start):,.0f} texts/s"

    # ---------------------------------------------------------------- parts

    def _models(self) -> Iterator[tuple[str, str | None]]:
        tokenizer = AutoTokenizer.from_pretrained(
            resolve_model_path(Workload("sample").settings().model.path)
        )
        if not self.tiny:
            yield "22M", None
        names = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
        small, bert, qwen = (
            dict(zip(names, sizes, strict=True))
            for sizes in ((2, 64, 128, 4), (12, 768, 3072, 12), (28, 1024, 3072, 16))
        )
        heads = {"num_key_value_heads": 2 if self.tiny else 8, "head_dim": 16 if self.tiny else 128}
        for name, config in {
            "110M": BertConfig(vocab_size=len(tokenizer), **(small if self.tiny else bert)),
            "0.6B": Qwen3Config(vocab_size=len(tokenizer), **heads, **(small if self.tiny else qwen)),
        }.items():
            path = self._folder / name
            if not path.exists():
                AutoModel.from_config(config).save_pretrained(path)
                tokenizer.save_pretrained(path)
            yield name, str(path)

    def _workload(self, model: str | None, precision: Precision) -> Workload:
        size = 8 if self.tiny else 32
        return Workload("sample", model, "tuples", self._steps, size, precision, device=self.device)

    def _texts(self, number: int) -> list[str]:
        file = ROOT / "idiomtune" / "data" / "sample" / "idiolink" / "train" / "indexes.json"
        texts = [record["sentence"] for record in json.loads(file.read_text(encoding="utf-8"))]
        return [f"{i // len(texts)} {texts[i % len(texts)]}" for i in range(number)]

    def _reset_memory(self) -> None:
        gc.collect()
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def _peak_memory(self) -> str:
        if not self.device.startswith("cuda"):
            return "memory not measured"
        return f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB at most"


def _num_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write the page; the exit status is 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models, to try the program itself")
    parser.add_argument("--minutes", type=float, default=8, help="no section begins after them")
    parser.add_argument("--output", type=Path, help=f"the page ({PAGE.relative_to(ROOT)}, if not tiny)")
    options = parser.parse_args(arguments)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("error: no CUDA device here; make gpu GPU='--device cpu --tiny' tries it", file=sys.stderr)
        return 2
    start, has_failed, lines = time.monotonic(), False, []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.device, Path(folder), tiny=options.tiny)
        for title, section in bench.sections().items():
            lines += ["", f"## {title[0].upper()}{title[1:]}", "", "| | |", "|---|---|"]
            if time.monotonic() - start > 60 * options.minutes:
                lines.append(f"| not measured | {options.minutes:g} minutes were over |")
                continue
            try:
                for name, value in section():
                    lines.append(f"| {name} | {value} |")
                    print(f"{title}: {name}: {value}", flush=True)
            except Exception as error:
                has_failed = True
                lines.append(f"| failed | {type(error).__name__}: {' '.join(str(error).split())[:300]} |")
                print(f"{title}: failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    page = options.output or (None if options.tiny else PAGE)
    if page is not None:
        took = f"{time.strftime('%Y-%m-%d')}, {time.monotonic() - start:.0f} s"
        head = f"# A card's figures\n\n`make gpu`, {took}."
        page.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
        print(page)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
