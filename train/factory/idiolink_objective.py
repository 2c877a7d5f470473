"""The objective `idiolink`: its split, its tuples, external data beside it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from train.config import TrainSettings
from train.data import astitch
from train.data.astitch_idioms import read_astitch_idioms
from train.data.external import ExternalIdioms
from train.data.idiolink import Split, available_splits, check_disjoint, load_split
from train.data.names import CV_SPLIT
from train.data.pie import pie_file, read_pie
from train.data.tuples import TrainingTuple, draw_tuples, read_released, released_file
from train.factory.data import data_files, idiolink_folder, idiolink_split
from train.factory.losses import info_nce
from train.objectives import Objective
from train.objectives.contrastive import ContrastiveOptions
from train.objectives.idiolink import IdioLinkData, IdioLinkObjective
from train.objectives.options import IdioLinkObjectiveSettings

log = logging.getLogger(__name__)


def idiolink_objective(settings: TrainSettings, options: IdioLinkObjectiveSettings) -> Objective:
    """The objective, its data checked against the splits that are scored."""
    root = idiolink_folder(settings)
    split = idiolink_split(settings, root, options.split, training=True)
    # All splits in the folder, scored now or not: what is trained on must be unseen in all others.
    check_disjoint([load_split(root, name) for name in available_splits(root)])
    for name in settings.splits("idiolink"):
        if name != CV_SPLIT and name.split("+")[0] in options.split.split("+"):
            log.warning(
                "objective.split=%s is trained on and its queries are scored (split=%s): these scores "
                "are of idioms that the model has seen",
                options.split,
                name,
            )
    released = released_file(root, options.split)
    idiom_records = [
        record for record in (*split.documents, *split.queries) if record.usage in ("literal", "idiomatic")
    ]
    extra_files, note = [released] if options.tuples == "released" else [], ""
    if settings.data.extra is not None:
        external = _external(settings, root, split)
        split = replace(split, documents=(*split.documents, *external.documents))
        extra_files, note = [*extra_files, *external.files], external.describe()
    weights = options.positive_weights.model_dump()
    return IdioLinkObjective(
        IdioLinkData(
            split, _tuples(options, split, released, settings.seed), options.plain_usages, idiom_records
        ),
        info_nce(options.loss),
        ContrastiveOptions(
            batch_size=settings.trainer.batch_size,
            seed=settings.seed,
            query_modes=options.query_mode,
            query_weights=options.query_weights,
            document_modes=options.document_mode,
            mask=options.mask,
            in_batch=options.loss.in_batch,
            false_negatives=options.loss.false_negatives,
            candidates_from_batch=options.tuples == "batch",
            groups_per_batch=options.idioms_per_batch,
            positive_weights=None if set(weights.values()) == {1.0} else weights,
            drop_last=options.drop_last,
        ),
        extra_files=extra_files,
        note=note,
    )


def _external(settings: TrainSettings, root: Path, split: Split) -> ExternalIdioms:
    """The corpus `data.extra` without the idioms of any other split."""
    corpus = settings.data.extra
    trained = {d.idiom for d in split.documents}
    names = available_splits(root)
    if "test" not in names:
        log.warning(
            "data.extra=%s: there is no test split in %s, so its idioms could not be left out of the "
            "external data; a model trained here must not be scored on test",
            corpus,
            root,
        )
    idioms = {document.idiom for name in names for document in load_split(root, name).documents}
    unseen, shared = sorted(idioms - trained), sorted(trained)
    if corpus == "pie":
        return read_pie(pie_file(settings.data.place("pie")), unseen=unseen, trained=shared)
    return read_astitch_idioms(data_files(settings, astitch.FILES), unseen=unseen, trained=shared)


def _tuples(
    options: IdioLinkObjectiveSettings, split: Split, released: Path, seed: int
) -> Callable[[int], list[TrainingTuple]]:
    """Epoch → training tuples."""
    if options.tuples == "released":
        fixed = read_released(released, split)
        return lambda _epoch: fixed
    anchors = [*split.queries, *(split.documents if options.documents_as_queries else ())]
    if options.tuples == "batch":
        anchors_only = [TrainingTuple(anchor.id, (), (), ()) for anchor in anchors]
        return lambda _epoch: anchors_only

    def draw(epoch: int) -> list[TrainingTuple]:
        return draw_tuples(
            anchors,
            split.documents,
            num_positives=options.num_positives,
            num_hard=options.num_hard,
            num_soft=options.num_soft,
            seed=[seed, epoch if options.redraw else 0, 1],
        )

    return draw
