"""The model card: what a model is, how it was made, how it scores, how to use it. The README of `best/`, and
of what is pushed to the Hub. Its text is in `model_card.md.j2`.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, EvalResultEntry, ModelCardData, eval_result_entries_to_yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from train.declarations.own_data import OWN
from train.declarations.registry import benchmark_of, is_headline, objective_types, split_of
from train.hub.licences import common_licence, sources_of
from train.hub.paths import shortened_override
from train.io.yaml_text import parse_yaml
from train.reports.score_tables import changes
from train.runs.resume import read_config, read_run

FOLDER = "path/to/this/folder"  # how the card names the model before it has a name on the Hub


def model_card(
    run: Path,
    *,
    scores: Mapping[str, Any] | None = None,
    model: str = FOLDER,
    revision: str | None = None,
    licence: str | None = None,
    idiom_tokens: bool = False,
    examples: Sequence[str] = (),
) -> str:
    """The card of a run's model, from what the run folder records. It quotes no training text.

    Args:
        run: the run folder, with `config.yaml` and `run.json`.
        scores: the content of a `scores.json`; None while nothing is scored.
        model: the model's name in the code that the card shows.
        revision: the branch that it is on, if not the main one.
        licence: of the model; by default what those of base model and data allow, where that is known.
        idiom_tokens: whether it has such.
        examples: sentences for the widget of the model's page.

    Raises:
        UserError: if the run's record is damaged.
    """
    config, record = read_config(run), read_run(run)
    base, *data = sources_of(config)
    objective = objective_types().get(config["objective"]["name"])
    meta = (scores or {}).get("meta", {})
    name = model.rpartition("/")[2] if model != FOLDER else record["experiment"]
    licence = licence or common_licence(sources_of(config, record.get("glossary")))
    metadata = _metadata(config, name, scores, licence, examples)
    return template("model_card.md.j2").render(
        metadata=metadata.to_yaml(),
        sample=config["data"]["sample"],
        base=base,
        data=data,
        reference=f'"{model}"' + (f', revision="{revision}"' if revision else ""),
        prompts=config["model"].get("query_prompt") or config["model"].get("document_prompt"),
        idiom_tokens=idiom_tokens,
        glossary=_glossary_in_words(record.get("glossary")),
        glossary_form=(record.get("glossary") or {}).get("form", "beside"),
        glossary_weight=(record.get("glossary") or {}).get("weight"),
        glossary_gate=(record.get("glossary") or {}).get("gate"),
        objective="" if objective is None else objective.card,
        is_own=_is_own(config),
        adapter=config.get("retain", {}).get("lora", {}).get("rank") is not None,
        scores=None if scores is None else _headline(run, scores),
        not_scored=record.get("not_scored", {}),
        warnings=meta.get("warnings", []),
        trained_on=record.get("trained_on") or meta.get("trained_on"),
        extra=config["data"].get("extra"),
        record=record,
        versions=_versions(record),
        checkpoint=meta.get("checkpoint"),
        command=command(run),
    )


@cache  # compiling it takes longer than filling it in
def template(name: str) -> Template:
    """A card's text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)


def _metadata(
    config: Mapping[str, Any],
    name: str,
    scores: Mapping[str, Any] | None,
    licence: str | None,
    examples: Sequence[str],
) -> ModelCardData:
    """The head of the card, which the Hub reads."""
    base, *data = sources_of(config)
    # A leaderboard cannot tell the sample from a benchmark.
    results = [] if scores is None or config["data"]["sample"] else eval_results(scores["scores"])
    return ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=[
            *("sentence-transformers", "sentence-similarity", "feature-extraction"),
            *([] if _is_own(config) else ["idioms"]),
        ],
        license=licence,
        base_model=base.repo_id,
        datasets=[source.repo_id for source in data if source.repo_id] or None,
        model_name=name if results else None,
        eval_results=results or None,
        widget=[{"source_sentence": examples[0], "sentences": list(examples[1:])}] if examples else None,
    )


def _is_own(config: Mapping[str, Any]) -> bool:
    """Whether it was trained on the user's own data alone, of which no idiom is known."""
    declared = objective_types().get(config["objective"]["name"])
    return (
        declared is not None
        and declared.datasets is not None
        and (set(declared.datasets(config["objective"])) == {OWN})
    )


def command(run: Path) -> str:
    """The command line that started a run, as Hydra recorded it; without what decides nothing."""
    experiment = read_run(run)["experiment"]
    try:
        recorded = parse_yaml((run / ".hydra" / "overrides.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        recorded = None
    if not isinstance(recorded, list):  # a run that was started from Python
        recorded = [] if experiment == "default" else [f"+experiment={experiment}"]
    kept = [str(o) for o in recorded if not re.match(r"[+~]*(run_dir|resume|hub\.|hydra[./])", str(o))]
    return " ".join(["python -m train", *(shlex.quote(shortened_override(o)) for o in _as_typed(kept))])


def _as_typed(overrides: Sequence[str]) -> list[str]:
    """Without what was added for Hydra: needless quotation marks, `model=pretrained` beside a path."""
    plain = [re.sub(r"^([^=]+=)'([\w./:@+-]+)'$", r"\1\2", override) for override in overrides]
    paths = [override for override in plain if override.startswith("model.path=") and "/" in override]
    if "model=pretrained" not in plain or len(paths) != 1:
        return plain
    return [o.replace("model.path=", "model=") if o in paths else o for o in plain if o != "model=pretrained"]


def eval_results(scores: Mapping[str, float]) -> list[EvalResult]:
    """The scorecard's headline as the Hub's `model-index` has it; scores in [0, 1], as everywhere here."""
    results = []
    for key, value in scores.items():
        benchmark, split = benchmark_of(key), split_of(key) or None
        if not is_headline(key) or not math.isfinite(value):
            continue
        *middle, metric = key.split("/")[2 if split else 1 :]
        results.append(
            EvalResult(
                task_type=benchmark.hub_task,
                dataset_type=benchmark.hub_dataset or benchmark.name,
                dataset_name=" ".join(filter(None, [benchmark.title or benchmark.name, split, *middle])),
                dataset_config="/".join(middle),
                dataset_split=split,
                metric_type=metric.replace("@", "_at_"),
                metric_name=key,
                metric_value=value,
            )
        )
    return results


def eval_result_files(scores: Mapping[str, float]) -> dict[str, bytes]:
    """The same in the form that the Hub's own leaderboards read: `.eval_results/<benchmark>.yaml`.

    Only of benchmarks whose data set is on the Hub. A score's `task_id` is its key without the benchmark.
    """
    entries: dict[str, list[EvalResultEntry]] = {}
    for result in eval_results(scores):
        if "/" in result.dataset_type:
            benchmark, _, task = str(result.metric_name).partition("/")
            entries.setdefault(benchmark, []).append(
                EvalResultEntry(result.dataset_type, task, result.metric_value, notes="a fraction")
            )
    return {
        f".eval_results/{name}.yaml": yaml.safe_dump(
            eval_result_entries_to_yaml(found), sort_keys=False
        ).encode()
        for name, found in entries.items()
    }


def _headline(run: Path, scores: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Rows of the table: key, the untrained model's score, the model's; of all queries, pairs or items."""
    untrained = scores.get("baseline") or _baseline(run)
    rows = changes(scores["scores"], untrained).rows
    return [(key, before, after) for key, before, after, _ in rows if is_headline(key)]


def _baseline(run: Path) -> dict[str, float]:
    """The untrained model's scores, of a run that is still going on."""
    try:
        scores: dict[str, float] = json.loads((run / "baseline.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return scores


def _glossary_in_words(glossary: Mapping[str, Any] | None) -> str:
    if not glossary:
        return ""
    named = ("files", "sources", "licences")
    facts = [f"{name}: {', '.join(glossary[name])}" for name in named if glossary.get(name)]
    return "; ".join([f"{glossary.get('expressions', 0)} expressions", *facts])


def _versions(record: Mapping[str, Any]) -> str:
    code, packages = record.get("code", {}), record.get("packages", {})
    commit = f" ({code['commit'][:12]})" if code.get("commit") else ""
    named = [f"{name} {packages[name]}" for name in ("sentence-transformers", "torch") if name in packages]
    return ", ".join([f"idiomtune {code.get('version', '')}{commit}", *named])
