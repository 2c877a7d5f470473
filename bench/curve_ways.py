"""One way of the curve, in a process of its own: `python -m bench.curve_ways predecessor '{"seed": 42, …}'`.

Each way trains as its users run it, and is scored every few steps by one function (:class:`Scorer`). Seconds
are of training: from the end of the first step, in which libraries warm up, and without the scoring.
"""

from __future__ import annotations

import copy
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.measure import Time

WAYS = ("ours", "predecessor", "sentence_transformers")
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
        epochs: at most; None = as many as the way's recipe has.
        batch_size: None = the recipe's.
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
        data = ["data=sample"] if self.data == "sample" else ["data=public", f"data.root='{self.data}'"]
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
        line = ", ".join(f"{name} {score:.4f}" for name, score in found.items())
        print(f"step {step}: {seconds.wall:.0f} s, cpu {seconds.cpu:.0f} s, {line}", file=sys.stderr)


class Scorer:
    """The scores of the curve, and the data that are trained on."""

    def __init__(self, recipe: Recipe) -> None:
        from idiomtune.benchmarks import build_benchmarks
        from idiomtune.benchmarks.suite import Suite
        from idiomtune.config import TrainSettings, check
        from idiomtune.config.compose import compose_config
        from idiomtune.data.locations import idiolink_folder, idiolink_split
        from idiomtune.encoder.loading import resolve_model_path

        settings: Any = check(TrainSettings, compose_config("train", *recipe.overrides()))
        self.root = idiolink_folder(settings)
        self.train = idiolink_split(settings, self.root, settings.objective.split, training=True)
        self.model_path = resolve_model_path(settings.model.path)
        self._suite = Suite(build_benchmarks(settings)[0])

    def __call__(self, model: Any) -> dict[str, float]:
        """Scores of a sentence-transformers model, which stays as it is."""
        from idiomtune.encoder.encoder import Encoder

        return self._suite.run(Encoder.around(copy.deepcopy(model))).scores


def ours(recipe: Recipe, clock: Clock, folder: Path) -> None:
    """`python -m train +experiment=idiolink_ft`, in this process."""
    from idiomtune.benchmarks.suite import Suite
    from idiomtune.cli import main as program
    from idiomtune.training.run_folder import RunFolder

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
        program(["train", *options])


def predecessor(recipe: Recipe, clock: Clock, folder: Path) -> None:  # noqa: ARG001
    """The released recipe as its authors' code runs it.

    Three forward passes a step; InfoNCE at a temperature of 0.05 over the other queries' positives and a
    query's own negatives; batches of 32, the last incomplete one dropped; ten epochs at 2e-5, 100 steps of
    warm-up, clipping at 1 (docs/reproducing.md).
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from torch.nn import functional
    from transformers import get_linear_schedule_with_warmup

    from bench.predecessor import embed
    from idiomtune.data.idiolink import read_released, released_file

    scorer = Scorer(recipe)
    tuples = read_released(released_file(scorer.root, "train"), scorer.train)
    text_of = {record.id: record.sentence for record in (*scorer.train.documents, *scorer.train.queries)}
    model = SentenceTransformer(scorer.model_path, device="cpu")
    size, epochs = recipe.batch_size or 32, recipe.epochs or 10
    steps = len(tuples) // size
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    schedule = get_linear_schedule_with_warmup(optimizer, min(100, epochs * steps), epochs * steps)
    torch.manual_seed(recipe.seed)
    for epoch in range(epochs):
        order = torch.randperm(len(tuples)).tolist()
        for step in range(steps):
            model.train()
            batch = [tuples[i] for i in order[step * size : (step + 1) * size]]
            with torch.autocast("cpu", torch.bfloat16, enabled=recipe.precision == "bf16"):
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
            clock.step_ended()
            done = epoch * steps + step + 1
            if done % recipe.every == 0 or done == epochs * steps:
                with clock.paused():
                    scores = scorer(model.eval())
                clock.point(done, scores)


def sentence_transformers(recipe: Recipe, clock: Clock, folder: Path) -> None:
    """Its trainer, `MultipleNegativesRankingLoss`, `NO_DUPLICATES`.

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
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    scorer = Scorer(recipe)
    model = SentenceTransformer(scorer.model_path, device="cpu")

    class Scored(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            clock.step_ended()
            if state.global_step % recipe.every == 0 or state.global_step == state.max_steps:
                with clock.paused():
                    scores = scorer(model)
                    model.train()
                clock.point(state.global_step, scores)

    SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=recipe.batch_size or 64,
            num_train_epochs=recipe.epochs or 4,
            learning_rate=5e-5,
            weight_decay=0.01,
            warmup_steps=0.1,
            batch_sampler="no_duplicates",
            bf16=recipe.precision == "bf16",
            use_cpu=True,
            seed=recipe.seed,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,  # there is no device to copy to
        ),
        train_dataset=Dataset.from_dict(drawn_triplets(scorer.train, recipe.seed)),
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


def main(arguments: Sequence[str]) -> None:
    """Run a way and print its points."""
    way, recipe = arguments
    ways: dict[str, Callable[[Recipe, Clock, Path], None]] = {
        "ours": ours,
        "predecessor": predecessor,
        "sentence_transformers": sentence_transformers,
    }
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        ways[way](Recipe(**json.loads(recipe)), clock, Path(folder))
    print(json.dumps(clock.points))


if __name__ == "__main__":
    main(sys.argv[1:])
