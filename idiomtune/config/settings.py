"""All settings of each program, and what must fit together in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)

from idiomtune.config.sections import (
    BenchmarkNames,
    CheckedData,
    ChosenBenchmarks,
    EvalSettings,
    ForgettingSettings,
    TrackingSettings,
    TrainerSettings,
)
from idiomtune.config.validation import no_such_score
from idiomtune.io.files import user_path
from idiomtune.plugins.dataset import OWN_VAL
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.models import ModelSettings, model_settings_of
from idiomtune.plugins.options import (
    ConfigSection,
    Count,
    Dimensions,
    Factor,
    Names,
    NoEffect,
    Ratio,
    Text,
    Weight,
    as_list,
)
from idiomtune.plugins.registry import (
    ObjectiveSettings,
    benchmark_types,
    load_extensions,
    score_declaration,
)
from idiomtune.plugins.score import ScoreTable

ABOUT_FOLDS = (
    "cross-validation needs data.fold=<number>, split=cv and, in training, objective.split=cv together: "
    "add, after +experiment=, +protocol=cross_validation data.fold=0,1,2,3 (with -m). Over AdMIRe's "
    "compounds both splits are train_cv: +protocol=cross_validation_admire data.fold=0,1,2,3,4"
)


def require(example: str) -> BeforeValidator:
    """A validator for a required option; the error is `output: is needed: output=<file>`."""

    def not_empty(value: object) -> object:
        if not value:
            raise ValueError(f"is needed: {example}")
        return value

    return BeforeValidator(not_empty)


# Settings of a push to the Hugging Face Hub: those of `idiomtune push`, and a training's section `hub`.


def _is_identifier(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", value):
        raise ValueError(f"must be an identifier of the Hub's, such as apache-2.0, got {value!r}")
    return value


def _is_repository(repo_id: str) -> str:
    from huggingface_hub.errors import HFValidationError  # takes half a second to start
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    if repo_id.count("/") != 1:
        raise ValueError(f"must be <user or organisation>/<name>, got {repo_id!r}")
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"{error}") from None
    return repo_id


def _is_branch(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)*", value) or ".." in value:
        raise ValueError(f"must be the name of a branch (letters, digits, . _ - /), got {value!r}")
    if re.fullmatch(r"[0-9a-f]{40}", value):
        raise ValueError("is a commit, and a push makes a new one: give the name of a branch")
    return value


RepositoryName = Annotated[str, AfterValidator(_is_repository)]


class _Target(ConfigSection):
    """Options of an upload: visibility, licence, permissions."""

    private: bool
    license: Annotated[str, AfterValidator(_is_identifier)] | None
    overwrite: bool
    allow_sample: bool


class HubSettings(_Target):
    push: Literal["best", "every"] | None
    repo_id: RepositoryName | None

    def problems(self) -> Iterator[str]:
        if self.push is not None and self.repo_id is None:
            yield f"push={self.push} needs hub.repo_id=<user/name>"


class PushSettings(_Target):
    checkpoint: Annotated[str, require("checkpoint=<run folder>")]
    repo_id: Annotated[RepositoryName, require("repo_id=<user/name>")]
    revision: Annotated[str, AfterValidator(_is_branch)] | None
    dry_run: bool


class Common(ConfigSection):
    extensions: Annotated[list[Text], BeforeValidator(as_list), NoEffect]
    model: ModelSettings
    data: CheckedData
    benchmark: ChosenBenchmarks
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], NoEffect]
    precision: Literal["auto", "fp32", "bf16", "fp16"]
    split: Names | None
    scores: Annotated[Literal["main", "all"], NoEffect]

    @model_validator(mode="before")
    @classmethod
    def _extensions_come_first(cls, value: object) -> object:
        """Loads extensions first: all other sections can name what they declare."""
        modules = as_list(value.get("extensions", []) if isinstance(value, dict) else [])
        if isinstance(modules, list) and all(isinstance(module, str) for module in modules):
            load_extensions(modules)
        return value

    def problems(self) -> Iterator[str]:
        for split in self.split or []:
            if not any(split in self.splits(name) for name in self.benchmark):
                yield f"split={split}: none of the benchmarks {', '.join(self.benchmark)} has that split"
        given_by: dict[str, str] = {}
        for name, options in self.benchmark.items():
            for key in map(str, options.possible_scores(self.splits(name))):
                if given_by.setdefault(key, name) != name:
                    yield f"benchmark: {given_by[key]} and {name} both give the score {key!r}: rename one"
        if (self.data.fold is not None) != bool(self.scored_folds):
            yield ABOUT_FOLDS

    @property
    def scored_folds(self) -> list[str]:
        """The splits to score that belong to a fold."""
        sections = self.benchmark.items()
        return [options.fold_split for name, options in sections if options.fold_split in self.splits(name)]

    def check_named(self, option: str, benchmarks: Sequence[str] | None) -> None:
        """Raises ValueError for a name that `benchmark=[...]` leaves out."""
        for name in benchmarks or []:
            if name not in self.benchmark:
                raise ValueError(f"{option}: {name} is not among benchmark=[{', '.join(self.benchmark)}]")

    def splits(self, benchmark: str) -> list[str]:
        """The splits that a benchmark is scored on: those of `split=` that it has, else its options'.

        None of a benchmark that is not chosen.
        """
        if (section := self.benchmark.get(benchmark)) is None:
            return []
        others = {s for other in self.benchmark.values() if other is not section for s in other.known_splits}
        chosen = [
            split
            for split in dict.fromkeys(self.split or [])
            if split in section.known_splits or (section.has_others and split not in others)
        ]
        return chosen or section.default_splits

    @property
    def truncated_dimensions(self) -> list[int]:
        """Numbers of leading dimensions that are also scored."""
        return []

    @property
    def inputs(self) -> RunInputs:
        """What benchmarks, and in training the objective, are built from."""
        scored = {name: self.splits(name) for name in self.benchmark}
        own_data = {"": self.data.user_data} if OWN_VAL in self.benchmark else {}
        return RunInputs(self.data, self.model, self.device, self.precision, scored, own_data)

    @property
    def record(self) -> dict[str, Any]:
        """The settings as plain containers, for records."""
        return self.model_dump(mode="json", serialize_as_any=True)

    def possible_scores(self, benchmarks: Sequence[str] | None) -> ScoreTable:
        """Every score that these settings can give."""
        names = [name for name in self.benchmark if benchmarks is None or name in benchmarks]
        scores = (self.benchmark[name].possible_scores(self.splits(name)) for name in names)
        full = score_declaration(chain.from_iterable(scores))
        varying = [score for score in full.parts.values() if not score.is_constant]
        truncated = [replace(score, dimension=n) for n in self.truncated_dimensions for score in varying]
        return score_declaration([*full.parts.values(), *truncated])


# All settings of a training run, and what must fit together in them.


class TrainSettings(Common):
    objective: ObjectiveSettings
    trainer: TrainerSettings
    forgetting: ForgettingSettings
    eval: EvalSettings
    hub: Annotated[HubSettings, NoEffect]
    tracking: Annotated[TrackingSettings, NoEffect] = TrackingSettings()
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)]  # what torch and numpy take
    run_dir: Annotated[Text | None, NoEffect]
    overwrite: Annotated[bool, NoEffect] = False
    name: Annotated[Text | None, NoEffect] = None
    resume: Annotated[Text | None, NoEffect]

    def splits(self, benchmark: str) -> list[str]:
        """The splits that a benchmark is scored on; those that the objective brings come first."""
        brought = self.objective.splits(benchmark) if benchmark in self.benchmark else []
        return brought or super().splits(benchmark)

    def possible_scores(self, benchmarks: Sequence[str] | None) -> ScoreTable:
        """Every score that these settings can give, including those of an objective's modules."""

        def splits(benchmark: str) -> list[str]:
            is_left_out = benchmarks is not None and benchmark not in benchmarks
            return [] if is_left_out else self.splits(benchmark)

        of_modules = self.objective.possible_scores(splits)
        return score_declaration([*super().possible_scores(benchmarks).parts.values(), *of_modules])

    @property
    def checkpoint_benchmarks(self) -> list[str] | None:
        """The benchmarks that checkpoints are scored on while training; None = all."""
        if self.eval.benchmarks == "monitored":
            return list(dict.fromkeys(key.partition("/")[0] for key in self.trainer.monitor))
        return self.eval.benchmarks if isinstance(self.eval.benchmarks, list) else None

    @property
    def inputs(self) -> RunInputs:
        inputs = super().inputs
        return replace(
            inputs,
            own_data=self.objective.own_data(self.data) or inputs.own_data,
            seed=self.seed,
            batch_size=self.trainer.batch_size,
            accumulation=self.trainer.accumulation,
            max_epochs=self.trainer.max_epochs,
            is_resumed=self.resume is not None,
        )

    @property
    def truncated_dimensions(self) -> list[int]:
        dimensions = self.trainer.matryoshka if self.eval.dimensions is None else self.eval.dimensions
        return dimensions or []

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        objective, has_tokens = self.objective.name, self.model.idiom_tokens is not None
        if self.trainer.matryoshka and self.objective.trains_head:
            yield f"trainer.matryoshka: the objective {objective} trains modules that need full embeddings"
        if self.trainer.freeze_encoder and not self.objective.trains_head:
            yield f"trainer.freeze_encoder=true: the objective {objective} trains nothing but the encoder"
        if self.trainer.freeze_encoder and (self.forgetting.is_on or has_tokens):
            yield "trainer.freeze_encoder=true: forgetting.* and model.idiom_tokens have no effect"
        if self.hub.push is not None and self.data.sample and not self.hub.allow_sample:
            yield f"hub.push={self.hub.push} with data=sample publishes a test (hub.allow_sample=true)"
        if self.forgetting.lora.rank is not None and has_tokens:
            yield "forgetting.lora.rank and model.idiom_tokens: adapters do not change embeddings of tokens"
        if self.trainer.only_idiom_tokens and self.forgetting.is_on:
            yield "trainer.only_idiom_tokens=true changes nothing else: forgetting.* has no effect"
        if self.overwrite and self.run_dir is not None:
            folder = user_path(self.run_dir, "run_dir").resolve()
            if folder in user_path(self.model.path, "model.path").resolve().parents:
                yield f"overwrite=true would remove model.path={self.model.path}: name another run_dir="
        trained = self.objective.fold_split
        if (trained is None) != (self.data.fold is None) or (trained and self.scored_folds != [trained]):
            yield ABOUT_FOLDS
        if self.data.negatives.number is not None and self.objective.name not in ("own", "mixture"):
            yield f"data.negatives.number: is for your own pairs (+experiment=own), not for {objective}"
        self.objective.check_with(self.inputs)
        names = self.eval.benchmarks if isinstance(self.eval.benchmarks, list) else None
        self.check_named("eval.benchmarks", names)
        scores = self.possible_scores(names)
        for key in self.trainer.monitor:
            if key not in scores:
                benchmark = key.partition("/")[0]
                if benchmark in benchmark_types() and benchmark not in self.benchmark:
                    chosen = ",".join([*self.benchmark, benchmark])
                    problem = f"{key!r} is a score of {benchmark}, which is left out"
                    yield f"trainer.monitor: {problem}: benchmark=[{chosen}], or monitor another score"
                yield (
                    f"trainer.monitor: {no_such_score(key, list(scores))}. This run scores "
                    + "; ".join(self._scored_on(name) for name in self.benchmark)
                    + ": with split= set trainer.monitor= too"
                )
            elif scores.parts[key].better == "lower":
                yield f"trainer.monitor={key}: of this score the smallest is the best; choose another"

    def _scored_on(self, benchmark: str) -> str:
        splits = ", ".join(self.splits(benchmark))
        return f"{benchmark} on {splits}" if splits else benchmark


# All settings of an evaluation, and what must fit together in them.


class EvaluateSettings(Common):
    benchmarks: BenchmarkNames | None
    dimensions: Dimensions | None
    per_query: Annotated[Text | None, NoEffect]
    predictions: Annotated[Text | None, NoEffect]
    output: Annotated[Text | None, NoEffect]
    cache: Annotated[bool, NoEffect]
    overwrite: Annotated[bool, NoEffect]

    @property
    def truncated_dimensions(self) -> list[int]:
        return self.dimensions or []

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        self.check_named("benchmarks", self.benchmarks)
        tokens = self.model.idiom_tokens
        if isinstance(tokens, str) and tokens.partition("/")[0] == "train":
            yield f"model.idiom_tokens={tokens}: there is no training data here; list the expressions"


# Settings of `idiomtune learn`.


class LearnedModel(ModelSettings):
    """The section `model` of `idiomtune learn`, whose glossary options apply to the learned `glossary=`."""


class LearnSettings(ConfigSection):
    model: LearnedModel
    glossary: Annotated[list[Text], BeforeValidator(as_list)]
    output: Text | None
    corpus: Text | None
    into: Literal["tokens", "weights"]
    teacher: Text | None
    rank: Count | None
    weight_interpolation: Ratio
    sentences: Count | None
    steps: Count | None
    epochs: Count | None
    learning_rate: Factor | None
    literal: Ratio | None
    remove: Annotated[list[Text], BeforeValidator(as_list)]
    precision: Literal["auto", "fp32", "bf16"]
    device: Literal["auto", "cpu", "cuda", "mps"]

    def problems(self) -> Iterator[str]:
        try:
            _ = self.teacher and model_settings_of(self.teacher)
        except ValueError as error:
            yield f"teacher: {error}"
        if not self.glossary and not self.remove:
            yield "there is nothing to learn: give glossary=<file> (or remove=[<expression>])"
        if self.into == "weights" and self.remove:
            yield "remove: needs into=tokens; weights learn from the original model again, without them"
        needs = {"steps": "tokens", "epochs": "weights", "teacher": "weights", "rank": "weights"}
        for option, into in needs.items():
            if getattr(self, option) is not None and self.into != into:
                yield f"{option}: needs into={into}; this is into={self.into}"
        if self.weight_interpolation != 1.0 and (self.into == "tokens" or self.rank is not None):
            yield f"weight_interpolation={self.weight_interpolation}: needs into=weights without rank="
        if self.into == "tokens" and self.precision == "bf16":
            yield "precision=bf16: tokens are learned in fp32; into=weights takes both"
        if self.model.glossary:
            yield "model.glossary is what a model reads after expressions: here, give glossary="
        gate = ["glossary_gate"] if self.into == "tokens" else []
        for option in ("glossary_form", "glossary_dropout", *gate):
            if getattr(self.model, option):
                yield f"model.{option} is for meanings that are read from a glossary, not learned"


# Settings of the programs without a model or data of the configuration (conf/tools).

Percent = Annotated[float, Field(ge=0, le=100)]


def _user_path(value: object) -> object:
    return user_path(value, "output") if isinstance(value, str) else value


OutputPath = Annotated[Path, BeforeValidator(_user_path)]
TextList = Annotated[list[Text], BeforeValidator(as_list)]


class NewSettings(ConfigSection):
    folder: Annotated[Text, require("folder=<new folder>")]


def _margins(value: object) -> object:
    """Score key → margin, "" for all scores, of `0.01`, `<score>:0.01`, or several of them."""
    if isinstance(value, Mapping):
        return value
    margins: dict[str, float] = {}
    for part in value if isinstance(value, list) else [value]:
        key, _, number = str(part).rpartition(":")
        if key in margins:
            raise ValueError(f"{part}: {key or 'the margin of all scores'} is given twice")
        try:
            margins[key] = float(number)
        except ValueError:
            raise ValueError(f"must be [<score>:]<number of 0 or more>, got {part}") from None
    return margins


class ReportSettings(ConfigSection):
    runs: Annotated[list[Text], BeforeValidator(as_list), require("runs=<run or folder of runs>")]
    output: OutputPath | None
    against: Text | None
    fail_below: Annotated[dict[str, Weight], BeforeValidator(_margins)]
    overwrite: bool
    scores: Literal["main", "all"]
    extensions: TextList

    def problems(self) -> Iterator[str]:
        if self.fail_below and self.against is None:
            yield "fail_below= needs against=<run>, or against=baseline"


class ExploreSettings(ConfigSection):
    models: Annotated[list[Text], BeforeValidator(as_list), require("models=<run or model>")]
    corpus: Text | None
    split: Text | None
    glossary: TextList | None
    queries: Annotated[int, Field(ge=1, le=100_000)]
    neighbours: Annotated[int, Field(ge=1, le=100)]
    trust_remote_code: bool
    device: Literal["auto", "cpu", "cuda", "mps"]
    output: OutputPath | None
    overwrite: bool
    port: Annotated[int, Field(ge=1, le=65_535)] | None


class FindSettings(ConfigSection):
    texts: Annotated[list[Text], BeforeValidator(as_list), require("texts=<file>")]
    model: Text
    glossary: Annotated[list[Text], BeforeValidator(as_list), Field(min_length=1)]
    trust_remote_code: bool
    device: Literal["auto", "cpu", "cuda", "mps"]
    output: OutputPath | None
    overwrite: bool

    def problems(self) -> Iterator[str]:
        if self.output is not None and self.output.suffix not in (".csv", ".tsv", ".jsonl"):
            yield f"output={self.output}: must end in .csv, .tsv or .jsonl"


class TextSearchSettings(ConfigSection):
    model: Annotated[Text, require("model=<name, folder or Hub id>")]
    corpus: Annotated[Text, require("corpus=<file>")]
    query: TextList
    queries: Text | None
    top_k: Count
    glossary: TextList | None
    trust_remote_code: bool
    device: Literal["auto", "cpu", "cuda", "mps"]

    def problems(self) -> Iterator[str]:
        if not self.query and self.queries is None:
            yield 'query: is needed: query="<text>", in brackets for several, or queries=<file>'


def _is_variable(name: str) -> str:
    """The name of an environment variable. A key itself is refused, and not shown."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ValueError("must be the name of an environment variable, which has the key")
    return name


def _percent_range(value: object) -> object:
    """`25..75` as (25, 75)."""
    if not isinstance(value, str):
        return value
    try:
        return tuple(map(float, value.split("..")))
    except ValueError:
        raise ValueError(f"must be two shares in percent, such as 25..75, got {value!r}") from None


class WriteSettings(ConfigSection):
    expressions: Annotated[Text, require("expressions=<table>")]
    uses: bool
    output: Annotated[OutputPath, require("output=<folder>")]
    model: Annotated[Text, require("model=<name at the endpoint>")]
    query_model: Text | None
    judge_model: Text | None
    endpoint: Text | None
    key: Annotated[str, AfterValidator(_is_variable)]
    language: Text
    domains: Annotated[list[Text], BeforeValidator(as_list), Field(min_length=1)]
    prompts: OutputPath | None
    temperature: Annotated[float, Field(ge=0, le=2)]
    tries: Annotated[int, Field(ge=1, le=20)]
    votes: Annotated[int, Field(ge=1, le=21)]
    concurrency: Annotated[int, Field(ge=1, le=256)]
    timeout: Annotated[float, Field(gt=0, le=3600)]
    answer_tokens: Count
    max_calls: Count | None
    val: Annotated[float, Field(gt=0, lt=1)]
    test: Annotated[float, Field(ge=0, lt=1)]
    licence: str
    dry_run: bool

    def problems(self) -> Iterator[str]:
        if self.val + self.test >= 1:
            yield f"val={self.val:g} and test={self.test:g} leave no expression to train on"
        if len({domain.casefold() for domain in self.domains}) < len(self.domains):
            yield f"domains={','.join(self.domains)}: names one twice"

    def writer(self, *, is_query: bool) -> str:
        """The model that writes documents or queries."""
        return self.query_model or self.model if is_query else self.model

    @property
    def judge(self) -> str:
        """The model that judges."""
        return self.judge_model or self.writer(is_query=True)


class SelectSettings(ConfigSection):
    source: Annotated[Text, Field(alias="from"), require("from=magpie, or a table")]
    output: Annotated[OutputPath, require("output=<file>")]
    min_uses: Count
    idiomatic: Annotated[tuple[Percent, Percent], BeforeValidator(_percent_range)]
    confidence: Ratio
    overwrite: bool


class ReviewSettings(ConfigSection):
    folder: Annotated[OutputPath, require("folder=<data set>")]


# Settings of `idiomtune glossary`.


class GlossarySettings(ConfigSection):
    sources: Annotated[list[Text], Field(alias="from"), BeforeValidator(as_list), require("from=wordnet")]
    output: Annotated[Text, require("output=<file>")]
    texts: Annotated[Text | None, Field(alias="in")]
    language: Text | None
    path: Annotated[list[Text] | None, BeforeValidator(as_list)]
    all_senses: bool
    columns: dict[str, Text] | None
    licence: str
    max_similarity: Ratio | None
    similarity_model: Text
    bad_rows: Annotated[int, Field(ge=0)]
    overwrite: bool

    def problems(self) -> Iterator[str]:
        if self.path is not None and len(self.path) != len(self.sources):
            yield "path: give one for each source, or default for its own place"
        if not self.output.endswith((".tsv", ".csv", ".parquet")):
            yield f"output={self.output}: must end in .tsv, .csv or .parquet"
