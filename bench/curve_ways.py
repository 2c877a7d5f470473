"""One way of the curve, in a process of its own: `python -m bench.curve_ways predecessor --seed=42 …`.

Each way trains as its users run it, scores its checkpoints in its own way, and keeps them. The scores of the
curve are the project's (:class:`Scorer`), the same for all; where a way scores otherwise, they are made
beside it, and their time is taken out, with the reading of the data and what only they import.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

WAYS = ("ours", "predecessor", "sentence_transformers")
MODES = ("sentence", "span")
SPLIT = "val+train"
KEYS = [f"idiolink/{SPLIT}/{mode}/{metric}" for mode in MODES for metric in ("ndcg@10", "r_precision")]


@dataclass(frozen=True)
class Task:
    """What a way is run on.

    Attributes:
        data: `sample`, or the folder with IdioLink.
        model: a model folder; None = the packaged MiniLM.
        epochs: at most; None = as many as the way's recipe has.
        batch_size: None = the recipe's.
    """

    seed: int
    data: str
    model: str | None = None
    precision: str = "fp32"
    epochs: int | None = None
    batch_size: int | None = None

    def arguments(self) -> list[str]:
        """The same as arguments of the command line."""
        values = {name.replace("_", "-"): value for name, value in asdict(self).items()}
        return [f"--{name}={value}" for name, value in values.items() if value is not None]

    def overrides(self) -> list[str]:
        """Of our configuration: data and model."""
        data = ["data=sample"] if self.data == "sample" else ["data=public", f"data.root='{self.data}'"]
        model = [] if self.model is None else ["model=pretrained", f"model.path='{self.model}'"]
        return [*data, *model, "benchmark=[idiolink]", "device=cpu"]


class Clock:
    """Seconds since the command was started, without what is paused for; and of them, those of evaluations.

    Args:
        started: when the command was, in seconds of `time.time()`.
    """

    def __init__(self, started: float) -> None:
        self._started = started
        self._paused, self._evaluated = [0.0, 0.0], [0.0, 0.0]  # wall and processor
        self.points: list[dict[str, Any]] = []

    def _now(self) -> tuple[float, float]:
        """Wall and processor seconds so far."""
        wall, cpu = time.time() - self._started, time.process_time()
        return wall - self._paused[0], cpu - self._paused[1]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is done here does not count."""
        before = self._now()
        try:
            yield
        finally:
            after = self._now()
            self._paused = [p + b - a for p, a, b in zip(self._paused, before, after, strict=True)]

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """What is done here counts, and counts as evaluation."""
        before = self._now()
        try:
            yield
        finally:
            after = self._now()
            self._evaluated = [e + b - a for e, a, b in zip(self._evaluated, before, after, strict=True)]

    def seconds(self) -> dict[str, float]:
        """So far."""
        wall, cpu = self._now()
        return {
            "wall": wall,
            "cpu": cpu,
            "evaluation_wall": self._evaluated[0],
            "evaluation_cpu": self._evaluated[1],
        }

    def point(self, step: int, scores: dict[str, float]) -> None:
        """The model after so many steps has been scored."""
        self.points.append({"step": step, **self.seconds(), "scores": {key: scores[key] for key in KEYS}})
        last = self.points[-1]
        told = ", ".join(f"{key} {last['scores'][key]:.4f}" for key in KEYS)
        print(f"step {step}: {last['wall']:.0f} s, cpu {last['cpu']:.0f} s, {told}", file=sys.stderr)


class Scorer:
    """The scores of the curve: val's queries over the documents of val and train."""

    def __init__(self, task: Task) -> None:
        from idiomtune.benchmarks import build_benchmarks
        from idiomtune.benchmarks.suite import Suite
        from idiomtune.config import TrainSettings, check
        from idiomtune.config.compose import compose_config
        from idiomtune.data.locations import idiolink_folder
        from idiomtune.encoder.loading import resolve_model_path

        scored = [f"split={SPLIT}", "benchmark.idiolink.bm25_modes=[]"]
        modes = f"benchmark.idiolink.query_modes=[{','.join(MODES)}]"
        options = ["+experiment=idiolink_ft", *task.overrides(), *scored, modes]
        settings: TrainSettings = check(TrainSettings, compose_config("config", *options))
        self.root = idiolink_folder(settings)
        self.model_path = resolve_model_path(settings.model.path)
        self._suite = Suite(build_benchmarks(settings)[0])

    def __call__(self, model: Any) -> dict[str, float]:
        """Scores of a sentence-transformers model, which stays as it is."""
        from idiomtune.encoder.encoder import Encoder

        return self._suite.run(Encoder.around(copy.deepcopy(model))).scores


def ours(task: Task, clock: Clock, folder: Path) -> None:
    """`python -m train +experiment=idiolink_ft`, in this process; its own scores are the curve's.

    The cache is empty, so that nothing is known of runs before.
    """
    from idiomtune.benchmarks.suite import Suite
    from idiomtune.programs.run import main as program
    from idiomtune.training.run_folder import RunFolder

    score, log = Suite.run, RunFolder.log_metrics

    def timed(*arguments: Any, **options: Any) -> Any:
        with clock.evaluating():
            return score(*arguments, **options)

    def noted(run: RunFolder, record: dict[str, Any]) -> None:
        if "scores" in record:
            clock.point(record["step"], record["scores"])
        log(run, record)

    sizes = {"trainer.max_epochs": task.epochs, "trainer.batch_size": task.batch_size}
    sys.argv[1:] = [
        *("+experiment=idiolink_ft", *task.overrides(), f"run_dir='{folder / 'run'}'"),
        *(f"seed={task.seed}", f"precision={task.precision}", "eval.cache=false"),
        *(f"{option}={value}" for option, value in sizes.items() if value is not None),
    ]
    with (
        patch.object(Suite, "run", timed),
        patch.object(RunFolder, "log_metrics", noted),
        patch.dict(os.environ, {"IDIOM_CACHE": str(folder / "cache")}),
    ):
        program("train", sys.argv[1:])


def predecessor(task: Task, clock: Clock, folder: Path) -> None:
    """The released recipe as its authors' code runs it: the best epoch by nDCG@10 on val is kept.

    Three forward passes a step; InfoNCE at a temperature of 0.05 over the other queries' positives and a
    query's own negatives; batches of 32, the last incomplete one dropped; ten epochs at 2e-5, 100 steps of
    warm-up, clipping at 1 (docs/reproducing.md).
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from torch.nn import functional
    from transformers import get_linear_schedule_with_warmup

    with clock.paused():
        from bench.predecessor import embed, score_mode
        from idiomtune.data.idiolink import load_split, read_released, released_file

        scorer = Scorer(task)
        train, val = load_split(scorer.root, "train"), load_split(scorer.root, "val")
        tuples = read_released(released_file(scorer.root, "train"), train)
        text_of = {record.id: record.sentence for record in (*train.documents, *train.queries)}
    model = SentenceTransformer(scorer.model_path, device="cpu")
    size, epochs = task.batch_size or 32, task.epochs or 10
    steps = len(tuples) // size
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    schedule = get_linear_schedule_with_warmup(optimizer, min(100, epochs * steps), epochs * steps)
    torch.manual_seed(task.seed)
    best = -1.0
    for epoch in range(epochs):
        order = torch.randperm(len(tuples)).tolist()
        model.train()
        for step in range(steps):
            batch = [tuples[i] for i in order[step * size : (step + 1) * size]]
            with torch.autocast("cpu", torch.bfloat16, enabled=task.precision == "bf16"):
                queries = embed(model, [text_of[t.anchor] for t in batch])  # (B, D)
                positives = embed(model, [text_of[t.positives[0]] for t in batch])  # (B, D)
                negatives = embed(
                    model, [text_of[i] for t in batch for i in (*t.hard, *t.soft)]
                )  # (B · K, D)
                own = torch.einsum("bd,bkd->bk", queries, negatives.view(size, -1, negatives.shape[1]))
                logits = torch.cat([queries @ positives.T, own], 1) / 0.05
                loss = functional.cross_entropy(logits, torch.arange(size))
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        model.eval()
        with clock.evaluating():
            score = score_mode(model, val, "sentence")["idiolink/val/sentence/ndcg@10"]
        with clock.paused():
            scores = scorer(model)
        clock.point((epoch + 1) * steps, scores)
        if score > best:
            best = score
            model.save(str(folder / "best"))


def sentence_transformers(task: Task, clock: Clock, folder: Path) -> None:
    """Its trainer, `MultipleNegativesRankingLoss`, `NO_DUPLICATES`, `InformationRetrievalEvaluator`.

    On the sentences that `idiolink_ft` trains on: a triplet of each, with a positive and a hard negative that
    are drawn once. Batch, epochs, learning rate, warm-up and weight decay are those of `idiolink_ft`; all
    else is the library's default.
    """
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    with clock.paused():
        from idiomtune.data.idiolink import is_relevant, load_split

        scorer = Scorer(task)
        triplets = drawn_triplets(load_split(scorer.root, "train"), task.seed)
        scored = load_split(scorer.root, SPLIT)
        relevant = {q.id: {d.id for d in scored.documents if is_relevant(q, d)} for q in scored.queries}

    class Timed(InformationRetrievalEvaluator):
        def __call__(self, *arguments: Any, **options: Any) -> dict[str, float]:
            with clock.evaluating():
                return super().__call__(*arguments, **options)

    class Scored(TrainerCallback):  # type: ignore[misc]
        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            with clock.paused():
                scores = scorer(model)
            clock.point(state.global_step, scores)

    model = SentenceTransformer(scorer.model_path, device="cpu")
    SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=task.batch_size or 64,
            num_train_epochs=task.epochs or 4,
            learning_rate=5e-5,
            weight_decay=0.01,
            warmup_steps=0.1,
            batch_sampler="no_duplicates",
            bf16=task.precision == "bf16",
            use_cpu=True,
            seed=task.seed,
            eval_strategy="epoch",
            save_strategy="epoch",
            load_best_model_at_end=True,
            metric_for_best_model="eval_cosine_ndcg@10",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,  # there is no device to copy to
        ),
        train_dataset=Dataset.from_dict(triplets),
        loss=MultipleNegativesRankingLoss(model),
        evaluator=Timed(
            {q.id: q.sentence for q in scored.queries},
            {d.id: d.sentence for d in scored.documents},
            relevant,
        ),
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a way and print its points."""
    parser = argparse.ArgumentParser(prog="python -m bench.curve_ways", description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--started", type=float, default=time.time())
    for name, kind in (("seed", int), ("data", str), ("model", str), ("precision", str)):
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    options = vars(parser.parse_args(arguments))
    way, clock = options.pop("way"), Clock(options.pop("started"))
    ways: dict[str, Callable[[Task, Clock, Path], None]] = {
        "ours": ours,
        "predecessor": predecessor,
        "sentence_transformers": sentence_transformers,
    }
    with tempfile.TemporaryDirectory() as folder:
        ways[way](Task(**options), clock, Path(folder))
    print(json.dumps({"points": clock.points, "whole": clock.seconds()}))


if __name__ == "__main__":
    main()
