"""The benchmarks as an evaluator of sentence-transformers, for its trainer or any of its models."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.model import BaseModel

from idiomtune.benchmarks import Benchmark, build_benchmarks
from idiomtune.benchmarks.suite import Suite
from idiomtune.config import EvaluateSettings, validate
from idiomtune.config.compose import compose_config
from idiomtune.config.validation import no_such_score
from idiomtune.encoder.encoder import Encoder
from idiomtune.encoder.forward import evaluation_mode
from idiomtune.errors import UserError

SCORES_FILE = "idiom_benchmarks.jsonl"


class SuiteEvaluator(BaseEvaluator):
    """Scores a model on benchmarks, with the keys and numbers of `idiomtune evaluate`.

    `SentenceTransformerTrainer(evaluator=…)` puts `eval_` before each key: it picks the best checkpoint by
    `metric_for_best_model="eval_idiolink/val/sentence/ndcg@10"`, for example.

    Args:
        benchmarks: :func:`from_overrides` makes them from options.
        primary_metric: key of the score that picks the best checkpoint.
        name: put before each key with `_`, if a model has several such evaluators.
        tokens_per_forward: see :class:`~idiomtune.encoder.encoder.Encoder`.
        dimensions: see :class:`~idiomtune.benchmarks.suite.Suite`.
        greater_is_better: whether the greatest value of the primary metric is the best.

    A call with an output folder appends a line to its `idiom_benchmarks.jsonl`.

    Example (runs on the sample)::

        evaluator = SuiteEvaluator.from_overrides(
            "data=sample", "split=val", primary_metric="idiolink/val/sentence/ndcg@10"
        )
        scores = evaluator(SentenceTransformer("sentence-transformers/all-MiniLM-L6-v2"))
    """

    def __init__(
        self,
        benchmarks: Sequence[Benchmark],
        primary_metric: str,
        *,
        name: str = "",
        tokens_per_forward: int = 8192,
        dimensions: Sequence[int] = (),
        greater_is_better: bool = True,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.suite = Suite(benchmarks, dimensions=dimensions)
        self.name = name
        self.tokens_per_forward = tokens_per_forward
        self.greater_is_better = greater_is_better
        self._key = primary_metric
        self.primary_metric = f"{name}_{primary_metric}" if name else primary_metric

    @classmethod
    def from_overrides(cls, *overrides: str, primary_metric: str, name: str = "") -> SuiteEvaluator:
        """All benchmarks, or those named, with the options of `idiomtune evaluate`.

        Args:
            overrides: such as `benchmark=[idiolink,semeval2022]`, `split=val`, `data=sample`.
            primary_metric, name: see the class.

        Raises:
            UserError: if an override is wrong, data is missing, or no benchmark gives the primary metric.
        """
        settings: EvaluateSettings = validate(EvaluateSettings, compose_config("evaluate", *overrides))
        possible = settings.possible_scores(settings.benchmarks).parts
        if primary_metric not in possible:
            message = no_such_score(primary_metric, list(possible), "this choice of benchmarks")
            raise UserError(f"primary_metric={primary_metric}: {message}")
        benchmarks, _ = build_benchmarks(settings.benchmark, settings.inputs, settings.benchmarks)
        return cls(
            benchmarks,
            primary_metric,
            name=name,
            dimensions=settings.truncated_dimensions,
            greater_is_better=possible[primary_metric].better != "lower",
        )

    def __call__(
        self, model: BaseModel, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        """The scores.

        Scores that are not finite are left out, with a warning. If the primary metric is one of them, it gets
        the worst possible value, so that a trainer continues and does not pick this checkpoint as the best.

        Args:
            model: keeps its mode (training or evaluation).
            output_path: folder for the file of scores; None = write none.
            epoch, steps: for that file and the model card.

        Raises:
            UserError: if the model gives no embeddings, or the primary metric is not among the scores.
        """
        if not isinstance(model, SentenceTransformer):
            raise UserError(f"a {type(model).__name__} gives no sentence embeddings to score")
        with evaluation_mode(model):
            scorecard = self.suite.run(Encoder(model, tokens_per_forward=self.tokens_per_forward))
        named: dict[str, float] = self.prefix_name_to_metrics(scorecard.scores, self.name)
        undefined = self.prefix_name_to_metrics(scorecard.undefined, self.name)
        if self.primary_metric not in {**named, **undefined}:
            message = no_such_score(str(self.primary_metric), list(named), "the suite")
            raise UserError(f"primary_metric={self.primary_metric}: {message}")
        score = (scorecard.scores.parts | scorecard.undefined.parts).get(self._key)
        if score is not None and self.greater_is_better != (score.better != "lower"):
            message = f"of {score}, the smallest is the best: give greater_is_better=False"
            raise UserError(message, option="greater_is_better")
        self.store_metrics_in_model_card_data(model, named, epoch, steps)  # type: ignore[arg-type]
        if output_path is not None:
            Path(output_path).mkdir(parents=True, exist_ok=True)
            with (Path(output_path) / SCORES_FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"epoch": epoch, "steps": steps, "scores": named}) + "\n")
        if self.primary_metric in undefined:
            return {**named, self.primary_metric: -math.inf if self.greater_is_better else math.inf}
        return named

    @property
    def description(self) -> str:
        """Heading in the model card."""
        return "Idiom Benchmarks"

    def get_config_dict(self) -> dict[str, Any]:
        """For the model card."""
        return {"benchmarks": [benchmark.name for benchmark in self.suite.benchmarks]}
