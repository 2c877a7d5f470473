"""What a model knows of expressions, in its folder: idiom tokens, meanings, and rules of its tokenizer."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer

from train.encoder.files import fetch_file
from train.encoder.idiom_tokens import FILE as IDIOM_TOKENS_FILE
from train.encoder.idiom_tokens import IdiomTokens, load_idiom_tokens
from train.encoder.meanings import FILE as GLOSSARY_FILE
from train.encoder.meanings import Meanings, read_meanings
from train.encoder.tokenizer_rules import remove_rules, write_rules
from train.errors import UserError
from train.io.files import write_json
from train.io.records import read_json

log = logging.getLogger(__name__)

_CONFIG, _SAVED_WITH = "config_sentence_transformers.json", "idiomtune_files"


def load_expressions(
    path: str,
    model: SentenceTransformer,
    *,
    revision: str | None = None,
    local_files_only: bool = False,
    replace: bool | None = None,
) -> tuple[IdiomTokens | None, Meanings | None]:
    """A checkpoint's idiom tokens and meanings; its tokenizer's rules for them are taken out.

    Args:
        path: the folder, or name on the Hub, that `model` was loaded from.
        local_files_only: for a model on the Hub, use only what was downloaded before.
        replace: whether expressions are replaced by their idiom tokens; None = as in the checkpoint.

    Raises:
        UserError: if a file is damaged or missing; if expressions should be replaced, but there are no idiom
            tokens.
    """
    config = fetch_file(path, _CONFIG, revision, local_files_only=local_files_only)
    for name in read_json(config).get(_SAVED_WITH, []) if config is not None else []:
        if fetch_file(path, name, revision, local_files_only=local_files_only) is None:
            raise UserError(f"model {path}: {name}, which it was saved with, is missing: bring the file back")
    idioms = load_idiom_tokens(path, model, revision=revision, local_files_only=local_files_only)
    if idioms is not None and replace is not None:
        idioms.replace = replace
    elif replace:
        raise UserError(
            f"model.replace_expressions=true: the model {path} has no idiom tokens to replace them by"
        )
    glossary = fetch_file(path, GLOSSARY_FILE, revision, local_files_only=local_files_only)
    if idioms is not None or glossary is not None:
        remove_rules(model.tokenizer, idioms.expressions if idioms is not None else ())
    meanings = None if glossary is None else read_meanings(glossary)
    if meanings is not None and meanings.gate is not None:
        given, wanted = len(meanings.gate.direction), model.get_embedding_dimension()
        if given != wanted:
            raise UserError(
                f"{glossary}: field 'gate' has {given} numbers, and the model's embeddings {wanted}. Bring "
                "the file back as it was saved with the model"
            )
    return idioms, meanings


def save_expressions(
    folder: Path, tokenizer: Any, idioms: IdiomTokens | None, meanings: Meanings | None
) -> None:
    """Write both beside a model that was just saved, and rules for them into its tokenizer."""
    for name in (IDIOM_TOKENS_FILE, GLOSSARY_FILE):
        (folder / name).unlink(missing_ok=True)
    if meanings is not None:
        meanings.save(folder)
        if meanings.weight:
            log.info(
                "model.glossary_weight=%s: Encoder adds meanings to embeddings, plain sentence-transformers "
                "does not",
                meanings.weight,
            )
        if meanings.gate is not None:
            log.info(
                "model.glossary_gate=true: Encoder weighs meanings by usage, plain sentence-transformers "
                "does not"
            )
    if idioms is not None:
        idioms.save(folder)
    if meanings is not None or idioms is not None:
        write_rules(folder, tokenizer, idioms, meanings)
        files = [name for name in (IDIOM_TOKENS_FILE, GLOSSARY_FILE) if (folder / name).is_file()]
        write_json(folder / _CONFIG, read_json(folder / _CONFIG) | {_SAVED_WITH: files})
