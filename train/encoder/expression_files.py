"""What a model knows of expressions, in its folder: idiom tokens, meanings, and rules of its tokenizer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sentence_transformers import SentenceTransformer

from train.config import ModelSettings
from train.encoder.idiom_tokens import FILE as IDIOM_TOKENS_FILE
from train.encoder.idiom_tokens import IdiomTokens, saved_idiom_tokens
from train.encoder.loading import fetch_file
from train.encoder.meanings import FILE as GLOSSARY_FILE
from train.encoder.meanings import Meanings, saved_meanings
from train.encoder.tokenizer_rules import remove_rules, write_rules
from train.errors import UserError
from train.io.files import write_json
from train.io.hub import first_line
from train.io.records import read_json

T = TypeVar("T")

log = logging.getLogger(__name__)

_CONFIG, _SAVED_WITH = "config_sentence_transformers.json", "idiomtune_files"


def load_expressions(
    path: str, model: SentenceTransformer, settings: ModelSettings, *, local_files_only: bool = False
) -> tuple[IdiomTokens | None, Meanings | None]:
    """A checkpoint's idiom tokens and meanings; its tokenizer's rules for them are taken out.

    Args:
        path: the folder, or name on the Hub, that `model` was loaded from.
        local_files_only: for a model on the Hub, use only what was downloaded before.

    Raises:
        UserError: if a file is damaged or missing; if expressions should be replaced, but there are no idiom
            tokens.
    """

    def fetched(name: str) -> Any:
        """The content of one of its files; None if there is no such file."""
        file = fetch_file(path, name, settings.revision, local_files_only=local_files_only)
        return None if file is None else read_json(file)

    def read(name: str, make: Callable[[Any], T]) -> T | None:
        content = fetched(name)
        if content is None:
            if name in (fetched(_CONFIG) or {}).get(_SAVED_WITH, []):
                raise UserError(
                    f"model {path}: {name}, which it was saved with, is missing: bring the file back"
                )
            return None
        try:
            return make(content)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(
                f"{path}/{name} is damaged ({type(error).__name__}: {first_line(error)}): bring the file "
                "back as it was saved with the model"
            ) from None

    idioms = read(IDIOM_TOKENS_FILE, lambda content: saved_idiom_tokens(content, model.tokenizer.get_vocab()))
    width = model.get_embedding_dimension()
    meanings = read(GLOSSARY_FILE, lambda content: saved_meanings(content, width))
    if idioms is not None or meanings is not None:
        remove_rules(model.tokenizer, idioms.expressions if idioms is not None else ())
    if idioms is not None and settings.replace_expressions is not None:
        idioms.replace = settings.replace_expressions
    elif settings.replace_expressions:
        raise UserError(
            f"model.replace_expressions=true: the model {path} has no idiom tokens to replace them by"
        )
    return idioms, meanings


def save_expressions(
    folder: Path, tokenizer: Any, idioms: IdiomTokens | None, meanings: Meanings | None
) -> None:
    """Write both next to a model that was just saved, and rules for them into its tokenizer."""
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
