"""From settings to objects: the one place where both are known."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from idiomloss import AdaptiveTripletLoss, InfoNCELoss
from train.adapters import Adapters
from train.benchmarks import Benchmark
from train.benchmarks.admire import AdmireBenchmark
from train.benchmarks.epsilon import EpsilonBenchmark
from train.benchmarks.idiolink import IdioLinkBenchmark
from train.benchmarks.semeval2022 import SemEvalBenchmark
from train.data import admire, astitch, ncimp, semeval2022
from train.data.admire import read_items
from train.data.astitch import AStitchFiles
from train.data.idiolink import Split, available_splits, check_disjoint, fold_splits, load_split
from train.data.ncimp import NcimpFiles, read_ncimp
from train.data.pie import PieCorpus, read_pie
from train.data.semeval2022 import SemEvalFiles, read_groups, read_pairs
from train.data.sources import cache_folder, dataset_folder, idiolink_root, pie_file
from train.data.tuples import TrainingTuple, draw_tuples, read_released, released_file
from train.device import Placement
from train.encoder import Encoder
from train.errors import DataMissingError, UserError
from train.idiom_tokens import read_expressions
from train.objectives import Objective
from train.objectives.adaptive_triplet import AdaptiveTripletObjective
from train.objectives.idiolink import IdioLinkObjective
from train.objectives.joint import JointObjective
from train.retention import Distillation, Retention, weights_digest
from train.scorekeys import CV_SPLIT
from train.settings import (
    AdaptiveTripletSettings,
    Common,
    IdioLinkObjectiveSettings,
    ModelSettings,
    TrainSettings,
)

log = logging.getLogger(__name__)


def build_encoder(
    model: ModelSettings,
    placement: Placement,
    saved: Path | None = None,
    *,
    expressions: Iterable[str] = (),
) -> Encoder:
    """The encoder, on its device, weights in float32; those of the checkpoint `saved`, if given.

    Args:
        expressions: to get idiom tokens; a saved checkpoint has its own.
    """
    encoder = Encoder.from_pretrained(
        saved or resolve_model_path(model.path),
        revision=None if saved else model.revision,
        device=placement.device,
        max_length=model.max_length,
        pooling=None if saved else model.pooling,  # a saved model carries its pooling
        query_prompt=model.query_prompt,
        document_prompt=model.document_prompt,
        instruction_prompt=model.instruction_prompt,
        trust_remote_code=model.trust_remote_code,
        tokens_per_forward=model.tokens_per_forward or placement.tokens_per_forward,
        # Before it has its tokens there may be nothing to replace expressions by.
        replace_expressions=model.replace_expressions if model.idiom_tokens is None else None,
    )
    if saved is None and (wanted := list(expressions)):
        encoder.add_idiom_tokens(wanted)
    if encoder.idiom_tokens is not None and model.replace_expressions is not None:
        encoder.idiom_tokens.replace = model.replace_expressions
    return encoder


def idiom_expressions(
    model: ModelSettings, objective: Objective | None = None
) -> tuple[list[str], list[Path]]:
    """The expressions that are to get idiom tokens, and the file that names them, if one does.

    Raises:
        UserError: if the file cannot be read or names none, or the training data names none.
    """
    named = model.idiom_tokens
    if isinstance(named, list):
        return named, []
    if named == "train":
        assert objective is not None  # settings of an evaluation refuse it
        own = list(dict.fromkeys(expression for expression, _ in objective.idiom_sentences))
        if not own:
            raise UserError("model.idiom_tokens=train: the training data names no expression")
        return own, []
    if named is None:
        return [], []
    path = Path(named).expanduser()
    if not path.is_file():
        raise UserError(
            f"model.idiom_tokens={named}: there is no such file; give train, a list of expressions, or a "
            "text file with one a line"
        )
    return read_expressions(path), [path]


def build_retention(
    settings: TrainSettings,
    placement: Placement,
    objective: Objective,
    checkpoint: Path | None,
    expressions: Sequence[str] = (),
) -> Retention:
    """The encoder to train, as the base model or the checkpoint has it, and the remedies around it.

    Args:
        expressions: to get idiom tokens; the base model then is the one with these tokens, untrained.
    """
    own = settings.retain
    if not own.is_on:
        return Retention(build_encoder(settings.model, placement, checkpoint, expressions=expressions))
    # The base model, also where a run goes on.
    encoder = build_encoder(settings.model, placement, expressions=expressions)
    base = weights_digest(encoder)
    distillation = None
    if own.distillation:
        distillation = Distillation(encoder, objective.plain_requests, own.distillation)
    if checkpoint is not None and not own.moves_back:
        encoder = build_encoder(settings.model, placement, checkpoint)
    adapters = None
    if own.lora.rank is not None:
        adapters = Adapters(
            encoder,
            rank=own.lora.rank,
            alpha=own.lora.alpha or 2 * own.lora.rank,
            dropout=own.lora.dropout,
            target_modules=own.lora.target_modules,
            seed=settings.seed,
            base_model=settings.model.path,
        )
    retention = Retention(
        encoder,
        interpolation=own.interpolation,
        adapters=adapters,
        distillation=distillation,
        base=base,
    )
    if checkpoint is not None and own.moves_back:
        retention.load(checkpoint)
    return retention


def resolve_model_path(path: str) -> str:
    """`package:<name>/<folder>` as the folder in that installed package; anything else as it is."""
    if not path.startswith("package:"):
        return path
    package, _, inside = path.removeprefix("package:").partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise UserError(
            f"model {path}: the package {package} is not installed: "
            f"pip install {package.replace('_', '-')}, or name another model with model=<folder or Hub id>"
        )
    return str(Path(spec.origin).parent / inside)


def build_benchmarks(
    settings: Common, names: Sequence[str] | None = None
) -> tuple[list[Benchmark], dict[str, str]]:
    """The benchmarks, their data read and checked.

    Args:
        names: those to build; by default all. One that is named must be there.

    Returns:
        The benchmarks, and for each whose data is missing the reason why it is not scored.

    Raises:
        UserError: if data is wrong, or that of a named benchmark, or of all of them, is missing.
    """
    builders: dict[str, Callable[[Common], Benchmark]] = {
        "idiolink": _idiolink_benchmark,
        "semeval2022": _semeval_benchmark,
        "epsilon": _epsilon_benchmark,
        "admire": _admire_benchmark,
    }
    benchmarks: list[Benchmark] = []
    missing: dict[str, str] = {}
    for name in settings.benchmark.names if names is None else names:
        try:
            benchmarks.append(builders[name](settings))
        except DataMissingError as error:
            if names is not None:
                raise
            missing[name] = str(error)
            log.warning("benchmark %s is NOT SCORED: %s", name, error)
    if not benchmarks:
        raise UserError("no benchmark could be scored:\n" + "\n".join(missing.values()))
    return benchmarks, missing


def _idiolink_benchmark(settings: Common) -> Benchmark:
    own = settings.benchmark.idiolink
    assert own is not None
    root = idiolink_root(settings.data.root, sample=settings.data.sample)
    splits = [_split(settings, root, name) for name in settings.splits("idiolink")]
    return IdioLinkBenchmark(
        *(splits, own.query_modes, own.bm25_modes, own.multivector_modes, own.window_words),
        diagnosis=own.diagnosis,
    )


def _semeval_benchmark(settings: Common) -> Benchmark:
    own = settings.benchmark.semeval2022
    assert own is not None
    files = semeval_files(settings)
    return SemEvalBenchmark([read_pairs(files, name) for name in settings.semeval_splits], own.setting)


def _epsilon_benchmark(settings: Common) -> Benchmark:
    own, data = settings.benchmark.epsilon, settings.data
    assert own is not None
    folder = dataset_folder(ncimp.FOLDER, data.ncimp, "data.ncimp", data.root, sample=data.sample)
    files = NcimpFiles(folder, cache_folder())
    read = [read_ncimp(files, language) for language in dict.fromkeys(own.languages)]
    for of_language in read:
        log.info("%s", of_language.describe())
    return EpsilonBenchmark(read, own.classes, own.phrases, own.versions, own.orders)


def semeval_files(settings: Common) -> SemEvalFiles:
    """Where the files of SemEval-2022 Task 2B are, or are downloaded to."""
    data = settings.data
    folder = dataset_folder(
        semeval2022.FOLDER, data.semeval2022, "data.semeval2022", data.root, sample=data.sample
    )
    return SemEvalFiles(folder, cache_folder())


def _admire_benchmark(settings: Common) -> Benchmark:
    own = settings.benchmark.admire
    assert own is not None
    folder = admire_folder(settings)
    return AdmireBenchmark([read_items(folder, name) for name in settings.admire_splits], own.modes)


def admire_folder(settings: Common) -> Path:
    """Where AdMIRe's tables and images are.

    Raises:
        DataMissingError: if no folder is named, or it is not there: it cannot be downloaded.
    """
    data = settings.data
    folder = dataset_folder(admire.FOLDER, data.admire, "data.admire", data.root, sample=data.sample)
    if folder is None:
        raise admire.not_here()
    return folder


def astitch_files(settings: Common) -> AStitchFiles:
    """Where the files of AStitchInLanguageModels are, or are downloaded to."""
    data = settings.data
    folder = dataset_folder(astitch.FOLDER, data.astitch, "data.astitch", data.root, sample=data.sample)
    return AStitchFiles(folder, cache_folder())


def build_objective(settings: TrainSettings) -> Objective:
    """The objective, its data read and checked against the splits that are scored."""
    own = settings.objective
    if isinstance(own, IdioLinkObjectiveSettings):
        return _idiolink_objective(settings, own)
    if isinstance(own, AdaptiveTripletSettings):
        return _triplet_objective(settings, own)
    parts = {
        "idiolink": lambda: _idiolink_objective(settings, own.idiolink),
        "adaptive_triplet": lambda: _triplet_objective(settings, own.adaptive_triplet),
    }
    return JointObjective({name: parts[name]() for name in own.proportions}, own.proportions, settings.seed)


def _triplet_objective(settings: TrainSettings, own: AdaptiveTripletSettings) -> Objective:
    files = semeval_files(settings)
    paths = [files(semeval2022.TRAIN_FILE)]
    if own.one_shot:
        paths.append(files(semeval2022.ONE_SHOT_FILE))
    groups = [group for path in paths for group in read_groups(path)]
    loss = own.loss
    return AdaptiveTripletObjective(
        groups,
        AdaptiveTripletLoss(
            *(loss.margin, loss.mining_margin, loss.mining_distance, loss.triplets, loss.scope),
            *(loss.triplet_weight, loss.property_weight),
        ),
        batch_size=settings.trainer.batch_size,
        seed=settings.seed,
        shuffled=own.order == "shuffled",
        only_usable=own.groups == "usable",
        files=paths,
    )


def _idiolink_objective(settings: TrainSettings, own: IdioLinkObjectiveSettings) -> Objective:
    root = idiolink_root(settings.data.root, sample=settings.data.sample)
    split = _split(settings, root, own.split, training=True)
    # Every split that lies there, scored now or not: what is trained on must be unseen in all others.
    check_disjoint([load_split(root, name) for name in available_splits(root)])
    for name in settings.splits("idiolink"):
        if name != CV_SPLIT and name.split("+")[0] in own.split.split("+"):
            log.warning(
                "objective.split=%s is trained on and its queries are scored (split=%s): these scores "
                "are of idioms that the model has seen",
                *(own.split, name),
            )
    released = released_file(root, own.split)
    of_split = (*split.documents, *split.queries)
    extra_files, note = [released] if own.tuples == "released" else [], ""
    if settings.data.extra == "pie":
        corpus, path = _pie(settings, root, split)
        split = replace(split, documents=(*split.documents, *corpus.documents))
        extra_files, note = [*extra_files, path], corpus.describe()
    weights = own.positive_weights.model_dump()
    return IdioLinkObjective(
        split,
        _tuples(own, split, released, settings.seed),
        query_modes=own.query_mode,
        query_weights=own.query_weights,
        document_modes=own.document_mode,
        mask=own.mask,
        loss=InfoNCELoss(
            own.loss.temperature,
            own.loss.denominator,
            own.loss.hard_weight,
            own.loss.soft_weight,
            own.loss.positives,
        ),
        batch_size=settings.trainer.batch_size,
        seed=settings.seed,
        in_batch=own.loss.in_batch,
        false_negatives=own.loss.false_negatives,
        candidates_from_batch=own.tuples == "batch",
        idioms_per_batch=own.idioms_per_batch,
        positive_weights=None if set(weights.values()) == {1.0} else weights,
        drop_last=own.drop_last,
        extra_files=extra_files,
        note=note,
        idiom_sentences=[(r.idiom, r.sentence) for r in of_split if r.usage in ("literal", "idiomatic")],
    )


def _pie(settings: TrainSettings, root: Path, split: Split) -> tuple[PieCorpus, Path]:
    """The corpus without the idioms of any other split, scored now or later."""
    path = pie_file(settings.data.pie)
    trained = {d.idiom for d in split.documents}
    names = available_splits(root)
    if "test" not in names:
        log.warning(
            "data.extra=pie: there is no test split in %s, so its idioms could not be left out of the "
            "external data; a model trained here must not be scored on test",
            root,
        )
    everything = [load_split(root, name).documents for name in names]
    unseen = {d.idiom for documents in everything for d in documents} - trained
    return read_pie(path, unseen=sorted(unseen), trained=sorted(trained)), path


def _split(settings: Common, root: Path, name: str, *, training: bool = False) -> Split:
    """A split on disk, or one side of a fold."""
    if name != CV_SPLIT:
        return load_split(root, name)
    if settings.data.fold is None:
        raise UserError("split=cv is a fold of the idioms of train and val: name it with data.fold=<number>")
    of_training, scored = fold_splits(root, settings.data.fold, settings.data.folds)
    return of_training if training else scored


def _tuples(
    own: IdioLinkObjectiveSettings, split: Split, released: Path, seed: int
) -> Callable[[int], list[TrainingTuple]]:
    """Epoch → training tuples."""
    if own.tuples == "released":
        fixed = read_released(released, split)
        return lambda _epoch: fixed
    anchors = [*split.queries, *(split.documents if own.documents_as_queries else ())]
    if own.tuples == "batch":
        alone = [TrainingTuple(anchor.id, (), (), ()) for anchor in anchors]
        return lambda _epoch: alone

    def draw(epoch: int) -> list[TrainingTuple]:
        return draw_tuples(
            anchors,
            split.documents,
            num_positives=own.num_positives,
            num_hard=own.num_hard,
            num_soft=own.num_soft,
            seed=[seed, epoch if own.redraw else 0, 1],
        )

    return draw
