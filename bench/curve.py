"""Score by seconds of training: ours and sentence-transformers' trainer.

Each way trains as its users run it, in a process of its own (`python -m bench.curve ours '{"seed": 42}'`),
and is scored every few steps by one suite. Seconds are of training: from the end of the first step, in which
libraries warm up, and without the scoring.
"""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any
from unittest.mock import patch

import matplotlib
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import TrainerCallback

matplotlib.use("Agg")  # no screen needed
from matplotlib import pyplot as plt

from bench.library import arguments
from bench.measure import ROOT, Time
from idiomtune.benchmarks import build_benchmarks
from idiomtune.benchmarks.suite import Suite
from idiomtune.cli import run as program
from idiomtune.config import TrainSettings, validate
from idiomtune.config.compose import compose_config
from idiomtune.data.locations import idiolink_folder, idiolink_split
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.loading import resolve_model_path
from idiomtune.training.run_folder import RunFolder

MODES = ("sentence", "span")
METRICS = {"ndcg@10": "nDCG@10", "r_precision": "R-Precision"}
KEYS = {(mode, metric): f"{mode}/{metric}" for mode in MODES for metric in METRICS}


@dataclass(frozen=True)
class Recipe:
    """What a way is run on.

    Attributes:
        data: `sample`, or the folder with IdioLink.
        model: a model folder; None = the packaged MiniLM.
        fold: of train's and val's idioms, by which it is trained and scored; None = trained on train, and
            val's queries are scored over the documents of both.
        epochs, batch_size: None = those of the way's recipe.
        every: steps between scores.
        options: of our configuration, besides.
    """

    seed: int
    data: str
    model: str | None = None
    precision: str = "fp32"
    fold: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    every: int = 20
    options: Sequence[str] = ()

    def overrides(self) -> list[str]:
        """Of our configuration: data, model, benchmark and what is scored."""
        data = ["data=sample"] if self.data == "sample" else ["data=public", f"data.idiolink='{self.data}'"]
        model = [] if self.model is None else ["model=pretrained", f"model.path='{self.model}'"]
        fold = ["+protocol=cross_validation", f"data.fold={self.fold}"]
        split = ["benchmark.idiolink.split=[val+train]"] if self.fold is None else fold
        modes = f"benchmark.idiolink.query_modes=[{','.join(MODES)}]"
        scored = ["benchmark=[idiolink]", "benchmark.idiolink.bm25_modes=[]", modes]
        return ["+experiment=idiolink_ft", *data, *model, *split, *scored, "device=cpu"]


class Clock:
    """Seconds of training, and the scores after so many of them."""

    def __init__(self) -> None:
        self._start: Time | None = None
        self.points: list[dict[str, Any]] = []

    def step_ended(self) -> None:
        """The first time: training is on its way."""
        if self._start is None:
            self._start = Time.now()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is done here does not count."""
        before = Time.now()
        try:
            yield
        finally:
            if self._start is not None:
                self._start += Time.now() - before

    def point(self, step: int, scores: dict[str, float]) -> None:
        """The model after so many steps has been scored."""
        seconds = Time.now() - self._start if self._start is not None else Time(0.0, 0.0)
        (prefix,) = {key.removesuffix(name) for key in scores for name in KEYS.values() if key.endswith(name)}
        found = {name: scores[prefix + name] for name in KEYS.values()}
        self.points.append({"step": step, **asdict(seconds), "scores": found})
        print(f"step {step}: cpu {seconds.cpu:.0f} s, {found}", file=sys.stderr)


# ------------------------------------------------------------------ the ways


def ours(recipe: Recipe, clock: Clock, folder: Path) -> None:
    """`python -m train +experiment=idiolink_ft`, in this process."""
    score, log = Suite.run, RunFolder.log_metrics

    def paused(*arguments: Any, **options: Any) -> Any:
        with clock.paused():
            return score(*arguments, **options)

    def logged(run: RunFolder, record: dict[str, Any]) -> None:
        if "scores" in record:
            clock.point(record["step"], record["scores"])
        clock.step_ended()
        log(run, record)

    sizes = {"trainer.max_epochs": recipe.epochs, "trainer.batch_size": recipe.batch_size}
    options = [
        *(*recipe.overrides(), f"run_dir='{folder / 'run'}'", f"seed={recipe.seed}", "trainer.patience=null"),
        *(f"precision={recipe.precision}", f"eval.every={recipe.every}", "trainer.keep_checkpoints=1"),
        *recipe.options,
        *(f"{option}={value}" for option, value in sizes.items() if value is not None),
    ]
    with (
        patch.object(Suite, "run", paused),
        patch.object(RunFolder, "log_metrics", logged),
        patch.dict(os.environ, {"IDIOM_CACHE": str(folder / "cache")}),
    ):
        program("train", options)


def sentence_transformers(recipe: Recipe, clock: Clock, folder: Path) -> None:
    """Its trainer, `MultipleNegativesRankingLoss`, `NO_DUPLICATES`.

    On the sentences that `idiolink_ft` trains on: a triplet of each, with a positive and a hard negative that
    are drawn once. Batch, epochs, learning rate, warm-up and weight decay are those of `idiolink_ft`; all
    else is the library's default.
    """
    settings: Any = validate(TrainSettings, compose_config("train", *recipe.overrides()))
    inputs = settings.inputs
    split = idiolink_split(inputs, idiolink_folder(inputs), settings.objective.split, training=True)
    suite = Suite(build_benchmarks(settings.benchmark, inputs)[0])
    model = SentenceTransformer(resolve_model_path(settings.model.path), device="cpu")

    class Scored(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            clock.step_ended()
            if state.global_step % recipe.every == 0 or state.global_step == state.max_steps:
                with clock.paused():
                    scores = suite.run(Encoder(copy.deepcopy(model))).scores
                    model.train()
                clock.point(state.global_step, scores)

    SentenceTransformerTrainer(
        model=model,
        args=arguments(
            str(folder),
            per_device_train_batch_size=recipe.batch_size or 64,
            num_train_epochs=recipe.epochs or 4,
            learning_rate=5e-5,
            weight_decay=0.01,
            warmup_steps=0.1,
            batch_sampler="no_duplicates",
            bf16=recipe.precision == "bf16",
            use_cpu=True,
            seed=recipe.seed,
        ),
        train_dataset=Dataset.from_dict(drawn_triplets(split, recipe.seed)),
        loss=MultipleNegativesRankingLoss(model),
        callbacks=[Scored()],
    ).train()


def drawn_triplets(split: Any, seed: int) -> dict[str, list[str]]:
    """Of each sentence of a split that has them a positive and a hard negative, as columns of texts."""
    draw = random.Random(seed)
    columns: dict[str, list[str]] = {"anchor": [], "positive": [], "negative": []}
    for record in (*split.documents, *split.queries):
        same_idiom = [d for d in split.documents if d.idiom == record.idiom and d.id != record.id]
        positives = [d.sentence for d in same_idiom if d.meaning == record.meaning]
        negatives = [d.sentence for d in same_idiom if d.meaning != record.meaning]
        if positives and negatives:
            texts = record.sentence, draw.choice(positives), draw.choice(negatives)
            for column, text in zip(columns.values(), texts, strict=True):
                column.append(text)
    return columns


WAYS: dict[str, Callable[[Recipe, Clock, Path], None]] = {
    "ours": ours,
    "sentence_transformers": sentence_transformers,
}


# ------------------------------------------------------------------ all of them, and what came of it


def curve(recipes: Sequence[Recipe], output: Path, ways: Sequence[str] = tuple(WAYS)) -> int:
    """Run what is not there yet, each way and seed in a process of its own, and tell of all.

    Args:
        recipes: one a seed.
        output: gets a file for each way and seed, `curve.json` and `curve.png`.

    Returns:
        The exit status: 1 if a run failed; what is there is kept.
    """
    folder = output / "curve"
    folder.mkdir(parents=True, exist_ok=True)
    runs: list[dict[str, Any]] = []
    for recipe in recipes:
        record = json.loads(json.dumps(asdict(recipe)))  # as a file has it
        for way in ways:
            path = folder / f"{way}_{recipe.seed}{'' if recipe.fold is None else f'_{recipe.fold}'}.json"
            run = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            if run.get("recipe") != record:
                print(f"{way}, seed {recipe.seed} …", file=sys.stderr, flush=True)
                if (points := _run(way, recipe)) is None:
                    return 1
                run = {"way": way, "recipe": record, "points": points}
                path.write_text(json.dumps(run, indent=1), encoding="utf-8")
            runs.append(run)
    (output / "curve.json").write_text(json.dumps(runs, indent=1), encoding="utf-8")
    draw(runs, output / "curve.png")
    print(f"{table(runs)}\n\nfigures in {output / 'curve.json'}, picture in {output / 'curve.png'}")
    return 0


def _run(way: str, recipe: Recipe) -> list[dict[str, Any]] | None:
    """Points of a way and seed; None if it failed."""
    command = [sys.executable, "-m", "bench.curve", way, json.dumps(asdict(recipe))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    return None if done.returncode else list(json.loads(done.stdout.splitlines()[-1]))


def seconds_to(points: Sequence[dict[str, Any]], key: str, score: float) -> float | None:
    """Processor seconds until a score is reached, between two points in proportion; None: never."""
    first = points[0]
    if first["scores"][key] >= score:
        return float(first["cpu"])
    for before, after in pairwise(points):
        low, high = before["scores"][key], after["scores"][key]
        if high >= score:
            share = (score - low) / (high - low)
            return float(before["cpu"] + share * (after["cpu"] - before["cpu"]))
    return None


def times_as_soon(runs: Sequence[dict[str, Any]], way: str, key: str) -> list[float]:
    """For each run of a way, the time of its best score over that of ours; 0: ours never comes there."""
    ratios = []
    for theirs in (run for run in runs if run["way"] == way):
        mine = next(run for run in runs if (run["way"], run["recipe"]) == ("ours", theirs["recipe"]))
        best = max(theirs["points"], key=lambda point: point["scores"][key])
        seconds = seconds_to(mine["points"], key, best["scores"][key])
        ratios.append(best["cpu"] / seconds if seconds else 0.0)
    return ratios


def table(runs: Sequence[dict[str, Any]]) -> str:
    """By metric: the best of each way and its time, means over runs; and how soon ours reaches it."""
    lines = ["seconds of training, without scoring; means over seeds"]
    for (mode, metric), key in KEYS.items():
        lines += ["", f"{f'{mode}, {METRICS[metric]}':<26}{'best':>8}{'cpu s':>9}{'wall s':>9}{'last':>9}"]
        for way in dict.fromkeys(run["way"] for run in runs):
            of_way = [run["points"] for run in runs if run["way"] == way]
            best = [max(points, key=lambda point: point["scores"][key]) for points in of_way]
            figures = [mean(point[clock] for point in best) for clock in ("cpu", "wall")]
            scores = [mean(p["scores"][key] for p in (*best,)), mean(p[-1]["scores"][key] for p in of_way)]
            lines.append(f"{way:<26}{scores[0]:>8.2%}{figures[0]:>9.0f}{figures[1]:>9.0f}{scores[1]:>9.2%}")
            if way != "ours":
                middle = median(times_as_soon(runs, way, key))
                lines.append(f"  ours is there {f'{middle:.2f} times as soon' if middle else 'never'}")
    return "\n".join(lines)


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel a metric and query mode; a line a run, by processor time."""
    figure, axes = plt.subplots(len(METRICS), len(MODES), figsize=(10, 7.2), constrained_layout=True)
    for axis, (mode, metric) in zip(axes.T.flat, KEYS, strict=True):
        for run in runs:
            number = list(WAYS).index(run["way"])
            seconds = [point["cpu"] for point in run["points"]]
            scores = [100 * point["scores"][KEYS[mode, metric]] for point in run["points"]]
            name = run["way"].replace("_", "-") if run["recipe"] == runs[0]["recipe"] else None
            axis.plot(seconds, scores, color=f"C{number}", marker="os^"[number], markersize=4, label=name)
        axis.set_xlim(left=0)
        axis.set_xlabel("processor seconds of training")
        axis.set_title(f"{METRICS[metric]}, {mode} queries, percent", loc="left", fontsize="medium")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small", loc="lower right")
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        WAYS[sys.argv[1]](Recipe(**json.loads(sys.argv[2])), clock, Path(folder))
    print(json.dumps(clock.points))
