"""The configuration, checked: types, ranges, and what must fit together. Imports nothing heavy.

Default values and what each option means stand in `conf/`, nowhere else; here is what is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from train.errors import UserError
from train.scorekeys import (
    CV_SPLIT,
    AdmireMode,
    AdmireSplit,
    Bm25Mode,
    EpsilonLanguage,
    MultivectorMode,
    QueryMode,
    SemEvalSplit,
    TrainDocumentMode,
    TrainQueryMode,
    admire_keys,
    epsilon_keys,
    idiolink_keys,
    semeval_keys,
    smaller_is_better,
)

BenchmarkName = Literal["idiolink", "semeval2022", "epsilon", "admire"]
_OWN_SPLITS = {"semeval2022": get_args(SemEvalSplit), "admire": get_args(AdmireSplit)}
_IDIOLINK_SPLITS = ("train", "val", "test")  # that others may have too


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Splits = Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1)]
Benchmarks = Annotated[list[BenchmarkName], BeforeValidator(_as_list), Field(min_length=1)]
Ratio = Annotated[float, Field(ge=0, le=1)]


class _Section(BaseModel):
    # Strict: `trainer.batch_size=true` or `seed="42"` is a slip, not a number.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ModelSettings(_Section):
    path: str
    revision: str | None
    pooling: str | None
    max_length: PositiveInt | None
    query_prompt: str | None
    document_prompt: str | None
    instruction_prompt: str | None
    trust_remote_code: bool
    tokens_per_forward: PositiveInt | None
    idiom_tokens: str | list[str] | None
    replace_expressions: bool | None

    @field_validator("idiom_tokens", mode="before")
    @classmethod
    def _expressions(cls, value: Any) -> Any:
        if value is None or (isinstance(value, str) and value.strip()):
            return value
        if not isinstance(value, list) or not value:
            raise ValueError(f"must be train, a list of expressions, or a text file of them, got {value!r}")
        for expression in value:
            if not isinstance(expression, str) or not any(c.isalnum() for c in expression):
                raise ValueError(f"{expression!r} holds no letter: it is no expression")
        return value


class DataSettings(_Section):
    sample: bool
    root: str | None
    semeval2022: str | None
    admire: str | None
    astitch: str | None
    ncimp: str | None
    extra: Literal["pie"] | None
    pie: str | None
    fold: NonNegativeInt | None
    folds: Annotated[int, Field(ge=2)]

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        for name in ("root", "semeval2022", "ncimp", "admire", "astitch"):
            if self.sample and getattr(self, name) is not None:
                raise ValueError(f"data=sample and data.{name} exclude each other: give one of them")
        return self

    @model_validator(mode="after")
    def _extra_is_real(self) -> Self:
        if self.sample and self.extra is not None:
            raise ValueError(f"data=sample holds no {self.extra} data: leave data.extra={self.extra} out")
        return self


class InfoNCESettings(_Section):
    temperature: PositiveFloat
    denominator: Literal["negatives", "own_positive", "all_positives"]
    in_batch: Literal["none", "positives", "all"]
    false_negatives: Literal["keep", "mask", "positive"]
    hard_weight: NonNegativeFloat
    soft_weight: NonNegativeFloat
    positives: Literal["mean", "hardest"]


class PositiveWeights(_Section):
    idiomatic: NonNegativeFloat
    simplification: NonNegativeFloat
    sense: NonNegativeFloat


class IdioLinkObjectiveSettings(_Section):
    name: Literal["idiolink"]
    split: str
    query_mode: Annotated[list[TrainQueryMode], BeforeValidator(_as_list), Field(min_length=1)]
    query_weights: list[PositiveFloat] | None
    document_mode: Annotated[list[TrainDocumentMode], BeforeValidator(_as_list), Field(min_length=1)]
    mask: Annotated[str, Field(min_length=1)]
    tuples: Literal["released", "drawn", "batch"]
    num_positives: PositiveInt
    num_hard: NonNegativeInt
    num_soft: NonNegativeInt
    redraw: bool
    documents_as_queries: bool
    idioms_per_batch: PositiveInt | None
    drop_last: bool
    positive_weights: PositiveWeights
    loss: InfoNCESettings

    @model_validator(mode="after")
    def _one_weight_a_query_mode(self) -> Self:
        if self.query_weights is not None and len(self.query_weights) != len(self.query_mode):
            raise ValueError(
                f"query_weights has {len(self.query_weights)} numbers for the {len(self.query_mode)} "
                "modes of query_mode"
            )
        return self

    @model_validator(mode="after")
    def _batch_is_all_there_is(self) -> Self:
        if self.tuples == "batch" and (self.loss.in_batch, self.loss.false_negatives) != ("all", "positive"):
            raise ValueError(
                "tuples=batch takes positives and negatives from the batch alone, which needs "
                "loss.in_batch=all and loss.false_negatives=positive"
            )
        return self

    @model_validator(mode="after")
    def _some_positive_counts(self) -> Self:
        if not any(self.positive_weights.model_dump().values()):
            raise ValueError("positive_weights: with all weights 0 idiomatic anchors would have no loss")
        return self

    @model_validator(mode="after")
    def _balanced_steps_are_of_any_size(self) -> Self:
        if self.drop_last and self.idioms_per_batch is not None:
            raise ValueError(
                "drop_last=true goes with shuffled batches only: with idioms_per_batch any batch of an "
                "epoch may be smaller than the others"
            )
        return self

    @model_validator(mode="after")
    def _released_are_fixed(self) -> Self:
        if self.tuples == "released":
            for field in ("redraw", "documents_as_queries"):
                if getattr(self, field):
                    raise ValueError(f"{field}=true needs tuples=drawn: the released ones are fixed")
        return self


class TripletLossSettings(_Section):
    margin: PositiveFloat
    mining_margin: NonNegativeFloat
    mining_distance: Literal["cosine", "euclidean"]
    triplets: Literal["all", "hard", "semihard", "easy"]
    scope: Literal["all", "within"]
    triplet_weight: NonNegativeFloat
    property_weight: NonNegativeFloat

    @model_validator(mode="after")
    def _some_term_counts(self) -> Self:
        if not self.triplet_weight and not self.property_weight:
            raise ValueError("with triplet_weight=0 and property_weight=0 there is no loss")
        return self


class AdaptiveTripletSettings(_Section):
    name: Literal["adaptive_triplet"]
    order: Literal["file", "shuffled"]
    groups: Literal["all", "usable"]
    one_shot: bool
    loss: TripletLossSettings


class JointSettings(_Section):
    name: Literal["joint"]
    proportions: Annotated[dict[str, PositiveFloat], Field(min_length=1)]
    idiolink: IdioLinkObjectiveSettings
    adaptive_triplet: AdaptiveTripletSettings

    @model_validator(mode="after")
    def _known_parts(self) -> Self:
        for name in self.proportions:
            if name not in ("idiolink", "adaptive_triplet"):
                raise ValueError(f"proportions: {name!r} is not one of idiolink, adaptive_triplet")
        return self


ObjectiveSettings = Annotated[
    IdioLinkObjectiveSettings | AdaptiveTripletSettings | JointSettings, Field(discriminator="name")
]


class TrainerSettings(_Section):
    batch_size: PositiveInt
    accumulation: PositiveInt
    max_epochs: PositiveInt
    max_steps: PositiveInt | None
    learning_rate: PositiveFloat
    weight_decay: NonNegativeFloat
    schedule: Literal["linear", "cosine", "constant"]
    warmup_ratio: Ratio
    warmup_steps: NonNegativeInt | None
    clip_norm: PositiveFloat | None
    monitor: Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1)]
    patience: PositiveInt | None
    min_delta: NonNegativeFloat
    max_empty_steps: PositiveInt
    keep_checkpoints: PositiveInt
    log_every: PositiveInt

    @model_validator(mode="after")
    def _whole_micro_batches(self) -> Self:
        if self.batch_size % self.accumulation:
            raise ValueError(
                f"batch_size={self.batch_size} cannot be cut into accumulation={self.accumulation} "
                "equal parts"
            )
        return self


class LoraSettings(_Section):
    rank: PositiveInt | None
    alpha: PositiveFloat | None
    dropout: Annotated[float, Field(ge=0, lt=1)]
    target_modules: Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1)] | None


class RetainSettings(_Section):
    interpolation: Ratio
    distillation: NonNegativeFloat
    lora: LoraSettings

    @model_validator(mode="after")
    def _adapters_are_saved_as_they_are(self) -> Self:
        if self.lora.rank is not None and self.interpolation != 1.0:
            raise ValueError(
                f"lora.rank={self.lora.rank} and interpolation={self.interpolation} exclude each other: the "
                "adapters in best/ would not be those of its model; how much adapters may change is "
                "lora.rank's and lora.alpha's to say"
            )
        return self

    @property
    def moves_back(self) -> bool:
        """Whether the model that is scored and saved has other weights than those that are trained."""
        return self.interpolation != 1.0 or self.lora.rank is not None

    @property
    def is_on(self) -> bool:
        """Whether there is any remedy."""
        return self.moves_back or self.distillation > 0


class IdioLinkBenchmarkSettings(_Section):
    split: Splits
    query_modes: list[QueryMode]
    bm25_modes: list[Bm25Mode]
    multivector_modes: Annotated[list[MultivectorMode], BeforeValidator(_as_list)]
    window_words: PositiveInt
    diagnosis: bool


class SemEvalBenchmarkSettings(_Section):
    split: Annotated[list[SemEvalSplit], BeforeValidator(_as_list), Field(min_length=1)]
    setting: Literal["pre_train", "fine_tune", "both"]


class AdmireBenchmarkSettings(_Section):
    split: Annotated[list[AdmireSplit], BeforeValidator(_as_list), Field(min_length=1)]
    modes: Annotated[list[AdmireMode], BeforeValidator(_as_list), Field(min_length=1)]


class EpsilonBenchmarkSettings(_Section):
    languages: Annotated[list[EpsilonLanguage], BeforeValidator(_as_list), Field(min_length=1)]
    classes: Literal["type", "token"]
    phrases: Literal["word", "compound"]
    versions: Literal["same_word", "any_word"]
    orders: PositiveInt

    @model_validator(mode="after")
    def _two_words_share_no_synonyms(self) -> Self:
        if self.versions == "any_word" and self.phrases == "word":
            raise ValueError("versions=any_word compares whole compounds: it needs phrases=compound")
        return self


class BenchmarkSettings(_Section):
    # One that `benchmark=[...]` leaves out is not there.
    idiolink: IdioLinkBenchmarkSettings | None = None
    semeval2022: SemEvalBenchmarkSettings | None = None
    epsilon: EpsilonBenchmarkSettings | None = None
    admire: AdmireBenchmarkSettings | None = None

    @property
    def names(self) -> list[str]:
        """Of the benchmarks that are there."""
        return [name for name in type(self).model_fields if getattr(self, name) is not None]


class EvalSettings(_Section):
    every: Literal["epoch", "end"] | PositiveInt
    benchmarks: Benchmarks | None
    per_query: bool
    predictions: bool


_ABOUT_FOLDS = (
    "cross-validation needs data.fold=<number>, split=cv and, in training, objective.split=cv together: "
    "add, after +experiment=, +protocol=cross_validation data.fold=0,1,2,3 (with -m)"
)


class Common(_Section):
    model: ModelSettings
    data: DataSettings
    benchmark: BenchmarkSettings
    device: Literal["auto", "cpu", "cuda", "mps"]
    precision: Literal["auto", "fp32", "bf16", "fp16"]
    split: Splits | None

    @model_validator(mode="after")
    def _split_is_someones(self) -> Self:
        for split in self.split or []:
            if not any(split in self.splits(name) for name in self.benchmark.names):
                raise ValueError(
                    f"split={split}: none of the benchmarks {', '.join(self.benchmark.names)} has that split"
                )
        return self

    @model_validator(mode="after")
    def _a_fold_is_scored(self) -> Self:
        if (self.data.fold is not None) != (CV_SPLIT in self.splits("idiolink")):
            raise ValueError(_ABOUT_FOLDS)
        return self

    def check_named(self, option: str, benchmarks: Sequence[str] | None) -> None:
        """Raises ValueError for a name that `benchmark=[...]` leaves out."""
        for name in benchmarks or []:
            if name not in self.benchmark.names:
                raise ValueError(
                    f"{option}: {name} is not among benchmark=[{', '.join(self.benchmark.names)}]"
                )

    @property
    def semeval_splits(self) -> list[SemEvalSplit]:
        """The splits that SemEval-2022 Task 2B is scored on."""
        return [split for split in get_args(SemEvalSplit) if split in self.splits("semeval2022")]

    @property
    def admire_splits(self) -> list[AdmireSplit]:
        """The splits that AdMIRe is scored on."""
        return [split for split in get_args(AdmireSplit) if split in self.splits("admire")]

    def splits(self, benchmark: str) -> list[str]:
        """The splits that a benchmark is scored on: those of `split=` that it has, else its own.

        IdioLink may have any (a user's own data too), but for those that only another one has.
        """
        own = getattr(self.benchmark, benchmark)
        if own is None or benchmark == "epsilon":  # it has no splits
            return []
        wanted = list(dict.fromkeys(self.split or []))
        if benchmark in _OWN_SPLITS:
            wanted = [split for split in wanted if split in _OWN_SPLITS[benchmark]]
        else:
            others = {s for name in self.benchmark.names for s in _OWN_SPLITS.get(name, ())}
            wanted = [split for split in wanted if split not in others or split in _IDIOLINK_SPLITS]
        return wanted or list(dict.fromkeys(own.split))

    def _scored_on(self, benchmark: str) -> str:
        splits = ", ".join(self.splits(benchmark))
        return f"{benchmark} on {splits}" if splits else benchmark

    def score_keys(self, benchmarks: Sequence[str] | None) -> list[str]:
        """Every score key that these settings can give."""
        keys: list[str] = []
        for name in self.benchmark.names:
            if benchmarks is not None and name not in benchmarks:
                continue
            if (idiolink := self.benchmark.idiolink) is not None and name == "idiolink":
                modes = [*idiolink.query_modes, *idiolink.bm25_modes, *idiolink.multivector_modes]
                keys += idiolink_keys(self.splits(name), modes)
            elif name == "semeval2022":
                keys += semeval_keys(self.splits(name))
            elif (epsilon := self.benchmark.epsilon) is not None and name == "epsilon":
                languages = list(dict.fromkeys(epsilon.languages))
                keys += epsilon_keys(languages, by_word=epsilon.versions == "same_word")
            elif (admire := self.benchmark.admire) is not None and name == "admire":
                keys += admire_keys(self.splits(name), admire.modes)
        return keys


class TrainSettings(Common):
    objective: ObjectiveSettings
    trainer: TrainerSettings
    retain: RetainSettings
    eval: EvalSettings
    seed: NonNegativeInt
    run_dir: str | None
    resume: str | None

    @property
    def idiolink_objective(self) -> IdioLinkObjectiveSettings | None:
        """The objective `idiolink`, alone or as a part of a joint one."""
        own = self.objective.idiolink if isinstance(self.objective, JointSettings) else self.objective
        return own if isinstance(own, IdioLinkObjectiveSettings) else None

    @model_validator(mode="after")
    def _new_tokens_are_trained(self) -> Self:
        if self.retain.lora.rank is not None and self.model.idiom_tokens is not None:
            raise ValueError(
                "retain.lora.rank and model.idiom_tokens exclude each other: adapters leave words' vectors "
                "as they are, so that the new tokens would learn nothing"
            )
        return self

    @model_validator(mode="after")
    def _whole_runs_of_idioms(self) -> Self:
        own = self.idiolink_objective
        idioms = own.idioms_per_batch if own else None
        if idioms is not None and self.trainer.batch_size % idioms:
            raise ValueError(
                f"objective.idioms_per_batch={idioms} idioms cannot have equally many of "
                f"trainer.batch_size={self.trainer.batch_size} anchors"
            )
        parts = self.trainer.accumulation
        if own and own.tuples == "batch" and idioms is not None and (idioms % parts or idioms // parts < 2):
            raise ValueError(
                f"trainer.accumulation={parts} cuts a batch of objective.idioms_per_batch={idioms} idioms so "
                "that a part has no two whole ones, and tuples=batch finds negatives in a part alone: "
                "choose an accumulation that leaves two idioms or more"
            )
        return self

    @model_validator(mode="after")
    def _external_data_is_trained_on(self) -> Self:
        own = self.idiolink_objective
        if self.data.extra and (own is None or own.tuples == "released" or not own.documents_as_queries):
            raise ValueError(
                f"data.extra={self.data.extra} adds sentences that serve as anchors: it needs the objective "
                "idiolink, documents_as_queries=true, and tuples that are not the released ones"
            )
        return self

    @model_validator(mode="after")
    def _a_fold_is_trained_and_scored(self) -> Self:
        wanted, own = self.data.fold is not None, self.idiolink_objective
        if (own is not None and own.split == CV_SPLIT) != wanted:
            raise ValueError(_ABOUT_FOLDS)
        if own and wanted and own.tuples == "released":
            raise ValueError("objective.tuples=released are of the train split, not of a fold's idioms")
        return self

    @model_validator(mode="after")
    def _monitor_is_scored(self) -> Self:
        self.check_named("eval.benchmarks", self.eval.benchmarks)
        known = self.score_keys(self.eval.benchmarks)
        for key in self.trainer.monitor:
            if key not in known:
                raise ValueError(
                    f"{_unknown_score(key, known)}. This run scores "
                    + "; ".join(self._scored_on(name) for name in self.benchmark.names)
                    + ": with split= set trainer.monitor= too"
                )
            if smaller_is_better(key):
                raise ValueError(
                    f"trainer.monitor={key}: the greatest is taken as the best, and of this score the "
                    "smallest is; choose another, as top1_accuracy or ndcg@5"
                )
        return self


class EvaluateSettings(Common):
    benchmarks: Benchmarks | None
    per_query: str | None
    predictions: str | None
    plots: str | None
    output: str | None

    @model_validator(mode="after")
    def _named_are_there(self) -> Self:
        self.check_named("benchmarks", self.benchmarks)
        return self

    @model_validator(mode="after")
    def _nothing_is_trained(self) -> Self:
        if self.model.idiom_tokens == "train":
            raise ValueError("model.idiom_tokens=train: there is no training data here; list the expressions")
        if self.data.extra is not None:
            raise ValueError(f"data.extra={self.data.extra} is training data: leave it out")
        return self


def check(kind: type[TrainSettings] | type[EvaluateSettings], config: dict[str, Any]) -> Any:
    """The composed configuration as settings.

    Raises:
        UserError: naming each option that is wrong, what it got, and what it takes.
    """
    try:
        return kind.model_validate(config)
    except ValidationError as error:
        lines = []
        for e in error.errors():
            # Union branches ("list[...]", "literal[...]") are pydantic's, not options of ours.
            path = [str(part) for part in e["loc"] if _is_option(part)]
            if path[:1] == ["objective"] and e["loc"][1:2] in _OBJECTIVES:
                del path[1]  # as which objective it was checked
            option = ".".join(path)
            if e["type"] == "missing":
                text = "is missing"
            elif e["type"] == "extra_forbidden":
                text = "there is no such option"
            elif e["type"] == "value_error":
                text = str(e["ctx"]["error"])
            elif e["type"] == "union_tag_invalid":
                text = f"name must be one of {e['ctx']['expected_tags']}, got {e['ctx']['tag']!r}"
            elif e["type"] == "literal_error":
                text = f"must be one of {e['ctx']['expected']}, got {e['input']!r}"
            else:
                text = f"{e['msg'].replace('Input should', 'must')}, got {e['input']!r}"
            line = f"  {option}: {text}" if option else f"  {text}"
            if line not in lines:
                lines.append(line)
        plural = "s are" if len(lines) > 1 else " is"
        raise UserError(f"{len(lines)} setting{plural} wrong:\n" + "\n".join(lines)) from None


_OBJECTIVES = [("idiolink",), ("adaptive_triplet",), ("joint",)]


def _is_option(part: int | str) -> bool:
    return isinstance(part, str) and part.replace("_", "").isalnum()


def _unknown_score(key: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(key, known, n=3, cutoff=0.3)
    return (
        f"trainer.monitor: this run has no score {key!r}; the nearest it has: {', '.join(close) or 'none'} "
        "(keys are as the table of scores shows them)"
    )
