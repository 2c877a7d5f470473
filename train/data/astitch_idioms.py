"""AStitchInLanguageModels as external idiom data: compounds in literal and idiomatic use, and meanings."""

from __future__ import annotations

from collections.abc import Iterable

from train.data.astitch import SENSES_FILE, read_senses, read_usages
from train.data.datasets import ASTITCH
from train.data.external import ExternalIdioms
from train.data.names import AStitchFile
from train.data.sources import DataFiles
from train.errors import UserError
from train.expressions import plain_expression

# The other files hold sentences of the compounds of its dev and test split, which stay unseen.
_TRAINED: tuple[AStitchFile, ...] = ("train_zero_shot",)


def read_astitch_idioms(
    files: DataFiles, *, unseen: Iterable[str] = (), trained: Iterable[str] = ()
) -> ExternalIdioms:
    """Read and check its training sentences.

    A compound's only idiomatic meaning is a document of the usage `sense`. Where it has several, nothing
    tells which of them a sentence has, so that there is none.

    Args:
        files: of the data set.
        unseen: idioms that must not be trained on.
        trained: idioms of the training split.

    Raises:
        UserError: as :func:`~train.data.astitch.read_usages` and :func:`~train.data.astitch.read_senses`.
    """
    usages, senses_path = read_usages(files, _TRAINED), files(SENSES_FILE)
    meanings = read_senses(senses_path)
    corpus = ExternalIdioms(ASTITCH.title, [*usages.files, senses_path], unseen=unseen, trained=trained)
    idiomatic: dict[str, None] = {}
    for usage in usages.usages:
        name = plain_expression(usage.phrase)
        if corpus.excludes(name):
            continue
        if usage.span is None:
            corpus.num_without_span += 1
            continue
        span = usage.sentence[slice(*usage.span)]
        kind = "idiomatic" if usage.is_idiomatic else "literal"
        corpus.add(f"astitch_{usage.id}", usage.sentence, _idiom(name), span, kind)
        if usage.is_idiomatic:
            idiomatic[name] = None
    for name in idiomatic:
        of_compound = meanings[name].non_literal if name in meanings else ()
        if len(of_compound) == 1:
            corpus.add(f"astitch_{name}_sense", of_compound[0], _idiom(name), of_compound[0], "sense")
    if not corpus.documents:
        raise UserError(f"{usages.files[0]}: contains no usable sentence")
    return corpus


def _idiom(compound: str) -> str:
    return f"{compound} (AStitch)"
