"""The untrained model's scores, with which a run's scores are compared."""

from __future__ import annotations

import logging

from train.encoder.encoder import Encoder
from train.evaluation.suite import Suite
from train.factory import build_encoder
from train.io.files import write_json
from train.recipes.learning import sample_weights
from train.recipes.run_report import write_per_query
from train.runs.resume import read_mapping
from train.training.early_stopping import monitor_name, monitored_if_any
from train.training.setup import RunContext

log = logging.getLogger(__name__)


def score_untrained(context: RunContext, suite: Suite) -> tuple[dict[str, float], Encoder | None]:
    """The scores of the untrained model, kept in `baseline.json` for when the run is resumed.

    Returns:
        The scores, and the model as it was loaded; None if its scores were known.
    """
    settings, processes = context.settings, context.processes
    path = context.run.path / "baseline.json"
    if known := processes.from_main(lambda: read_mapping(path)):
        return known, None
    with context.accelerator.local_main_process_first():
        encoder = build_encoder(settings.model, context.placement)
    context.run.update(untrained_weights=sample_weights(encoder))
    scorecard = suite.run(encoder, keep=settings.eval.cache)
    score = monitored_if_any(scorecard.scores, settings.trainer)
    log.info(
        "untrained: %s %s (%d texts scored in %.1f s)",
        monitor_name(settings.trainer),
        "none" if score is None else f"{score:.4f}",
        scorecard.num_texts,
        scorecard.seconds,
    )

    def write() -> None:
        if settings.eval.per_query:  # first, since baseline.json marks this as done
            write_per_query(context.run.path / "per_query_baseline", scorecard)
        write_json(path, scorecard.scores)

    processes.from_main(write)
    encoder.cut_spans.clear()  # so that training tells of its own
    return scorecard.scores, encoder
