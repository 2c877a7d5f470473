"""The model card: what a model is, how it was made, how it scores, how to use it. The README of `best/`, and
of what is pushed to the Hub.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCardData

from train.declarations.registry import benchmark_of, split_of
from train.hub.licences import base_model, common_licence, training_data
from train.runs.resume import read_config, read_run

FOLDER = "path/to/this/folder"  # how the card names the model before it has a name on the Hub

_TITLE = "# Idiom-aware text embeddings"
_SAMPLE = """
> **A trial, not a model to rely on.** It was trained on the small sample data that comes with the code, to
> see that everything works. Its scores say nothing about a model's quality.
"""
_USE = """
## Use

Whole sentences:

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer({reference})
embeddings = model.encode(["He broke the ice with a joke.", "He made everybody relax."])
print(model.similarity(embeddings, embeddings))
```

A span in its sentence is the mean of the embeddings of its tokens (late chunking):

```python
import torch
from sentence_transformers import SentenceTransformer

model = SentenceTransformer({reference})
text, span = "He broke the ice with a joke.", "broke the ice"
start = text.index(span)
end = start + len(span)
tokens = model.encode(text, output_value="token_embeddings")
offsets = model.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
inside = [t for t, (s, e) in zip(tokens, offsets) if s < end and e > start and s < e]
embedding = torch.nn.functional.normalize(torch.stack(inside).mean(0), dim=0)
```

With the code that trained it, both, and batches of them: `Encoder.from_pretrained({reference})` from `train`,
`.encode(texts, spans=spans)`.
"""
_PROMPTS = """
It was trained with prompts before its texts: `model.encode_query(…)` and `model.encode_document(…)` add them.
"""
_IDIOM_TOKENS = """
It reads the expressions in `idiom_tokens.json` as one token each, "home run" as `IDhomerunID`: its tokenizer
puts them into texts, and where a tokenizer cannot, `Encoder` does.
"""
_GLOSSARY = """
It reads what expressions mean behind them, from the glossary in `glossary.json` ({glossary}):
"broke the ice" as "broke the ice (made people relax)". Its tokenizer writes meanings into texts, and where
a tokenizer cannot, `Encoder` does. Its scores are scores *with a glossary*. `train.evaluate
model.glossary=<file>` scores the model with another one, `model.glossary=[]` with none.
"""
_EXPERTS = """
`experts/` holds what was trained beside the encoder for AdMIRe; `train.evaluate` scores it too.
"""
_ADAPTER = """
The weights are whole: the adapters that were trained are merged in. `adapter/` has them alone, in
peft's format.
"""
_LIMITS = """
## Limits

- What is measured are the benchmarks above: some hundred expressions of few languages. Others were not.
- Fine-tuning on idioms costs something elsewhere. Compare the untrained model's column, and measure on your
  own task what matters there, such as plain sentence similarity.
- Sentences that share an expression lie closer together than sentences that share only its meaning: another
  wording of what an idiom means is found far less often than the idiom itself.
- Whatever bias is in the base model and in the training data is in this model.
"""


def _glossary_in_words(glossary: Mapping[str, Any]) -> str:
    named = ("files", "sources", "licences")
    facts = [f"{name}: {', '.join(glossary[name])}" for name in named if glossary.get(name)]
    return "; ".join([f"{glossary.get('expressions', 0)} expressions", *facts])


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
    config = read_config(run)
    record = read_run(run)
    base, data = base_model(config), training_data(config)
    sample = bool(config["data"]["sample"])
    meta = (scores or {}).get("meta", {})
    trained_on = record.get("trained_on") or meta.get("trained_on")
    metadata = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "feature-extraction", "idioms"],
        license=licence or common_licence([base, *data]),
        base_model=base.repo_id,
        datasets=[source.repo_id for source in data if source.repo_id] or None,
        model_name=model.rpartition("/")[2] if model != FOLDER else record["experiment"],
        # A leaderboard cannot tell the sample from a benchmark.
        eval_results=[] if sample or scores is None else eval_results(scores["scores"]),
        widget=[{"source_sentence": examples[0], "sentences": list(examples[1:])}] if examples else None,
    )
    if not metadata.eval_results:
        metadata.eval_results = None
        metadata.pop("model_name")
    parts = [
        f"---\n{metadata.to_yaml()}\n---\n\n{_TITLE}\n",
        _SAMPLE if sample else "",
        f"\nFine-tuned from `{base.name}` so that it understands idioms: *He broke the ice with a joke* is "
        "to lie near *he made everybody relax*, not near *the ship broke the ice*.\n",
        _USE.format(reference=f'"{model}"' + (f', revision="{revision}"' if revision else "")),
        _PROMPTS if config["model"].get("query_prompt") or config["model"].get("document_prompt") else "",
        _IDIOM_TOKENS if idiom_tokens else "",
        _GLOSSARY.format(glossary=_glossary_in_words(glossary))
        if (glossary := record.get("glossary"))
        else "",
        _EXPERTS if config["objective"]["name"] in ("admire", "aima") else "",
        _ADAPTER if config.get("retain", {}).get("lora", {}).get("rank") is not None else "",
        _scores_section(scores, record.get("not_scored", {}), _baseline(run)),
        _LIMITS,
        "\n## How it was trained\n\n",
        f"- Base model: {base.describe()}\n",
        f"- Data: {'; '.join(source.describe() for source in data)}\n",
        f"- Objective: {trained_on}\n" if trained_on else "",
        "- Trained with external idiom data: not the published protocol\n"
        if config["data"].get("extra")
        else "",
        f"- Seed {record['seed']}, on {record['device']} in {record['precision']}; {_versions(record)}\n",
        f"- Checkpoint: {meta['checkpoint']}\n" if meta.get("checkpoint") else "",
        f"\n```sh\n{command(run)}\n```\n\n`config.yaml` has every option of the run"
        + (", also those that were changed when it was resumed.\n" if record.get("resumed") else ".\n"),
    ]
    return "".join(parts)


def command(run: Path) -> str:
    """The command line that started a run, as Hydra recorded it; without what decides nothing."""
    experiment = read_run(run)["experiment"]
    try:
        recorded = yaml.safe_load((run / ".hydra" / "overrides.yaml").read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError):
        recorded = None
    if not isinstance(recorded, list):  # a run that was started from Python
        recorded = [] if experiment == "default" else [f"+experiment={experiment}"]
    kept = [str(o) for o in recorded if not re.match(r"[+~]*(run_dir|resume|hub\.|hydra[./])", str(o))]
    return " ".join(["python -m train", *(shlex.quote(_shortened_override(o)) for o in kept)])


def eval_results(scores: Mapping[str, float]) -> list[EvalResult]:
    """The scorecard's headline as the Hub's `model-index` has it; scores in [0, 1], as everywhere here."""
    results = []
    for key, value in scores.items():
        if not is_headline(key) or not math.isfinite(value):
            continue
        benchmark, split = benchmark_of(key), split_of(key) or None
        *middle, metric = key.split("/")[2 if split else 1 :]
        results.append(
            EvalResult(
                task_type=benchmark.hub_task,
                dataset_type=benchmark.hub_dataset or benchmark.name,
                dataset_name=" ".join([benchmark.title or benchmark.name, split or "", *middle]).replace(
                    "  ", " "
                ),
                dataset_config="/".join(middle),
                dataset_split=split,
                metric_type=metric.replace("@", "_at_"),
                metric_name=key,
                metric_value=value,
            )
        )
    return results


def is_headline(key: str) -> bool:
    """Whether a score stands in the card: of all queries, pairs or items, and of the model."""
    return benchmark_of(key).is_headline(key)


def _scores_section(
    scores: Mapping[str, Any] | None, not_scored: Mapping[str, str], baseline: Mapping[str, float]
) -> str:
    if scores is None:
        return ""
    before = scores.get("baseline") or baseline
    lines = ["\n## Scores\n", "| | untrained | this model |", "|---|---|---|"]
    for key, value in scores["scores"].items():
        if is_headline(key):
            old = f"{before[key]:.4f}" if key in before else ""
            lines.append(f"| `{key}` | {old} | {value:.4f} |")
    lines.append("\nAll scores, also by usage, sense and language: `scores.json`.")
    lines += [f"Not scored: {name}." for name in not_scored]
    return "\n".join(lines) + "\n"


def _baseline(run: Path) -> dict[str, float]:
    """The untrained model's scores, of a run that is still going on."""
    try:
        scores: dict[str, float] = json.loads((run / "baseline.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return scores


def _versions(record: Mapping[str, Any]) -> str:
    code, packages = record.get("code", {}), record.get("packages", {})
    commit = f" ({code['commit'][:12]})" if code.get("commit") else ""
    named = [f"{name} {packages[name]}" for name in ("sentence-transformers", "torch") if name in packages]
    return ", ".join([f"idiomtune {code.get('version', '')}{commit}", *named])


def shortened_paths(content: Any) -> Any:
    """JSON or YAML without where things lie here: of absolute paths the last two parts are left."""
    if isinstance(content, dict):
        return {shortened_paths(key): shortened_paths(value) for key, value in content.items()}
    if isinstance(content, list):
        return [shortened_paths(value) for value in content]
    return _shortened(content) if isinstance(content, str) else content


def _shortened_override(override: str) -> str:
    key, equals, value = override.partition("=")
    plain = value.strip("'\"")
    short = _shortened(plain)
    return override if short == plain else f"{key}{equals}{short}"


def _shortened(text: str) -> str:
    if "\n" in text or not _is_absolute(text):
        return text
    parts: Iterable[str] = (
        PureWindowsPath(text).parts if PureWindowsPath(text).drive else PurePosixPath(text).parts
    )
    return "/".join(["…", *list(parts)[1:][-2:]])


def _is_absolute(text: str) -> bool:
    return text.startswith(("/", "~")) or bool(re.match(r"[A-Za-z]:[\\/]", text))
