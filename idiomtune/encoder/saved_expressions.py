"""Expressions in a model's folder: idiom tokens, meanings, and rules of the tokenizer for idiom tokens.

By these rules any library reads texts as the model does: a rule of the tokenizer's normaliser replaces an
expression by its token. Only saved files have such rules: the encoder, which also has to know where spans
come to be, changes texts itself. Meanings are put into texts by the encoder alone.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoTokenizer

from idiomtune.config import ModelSettings
from idiomtune.encoder.glossary import FILE as GLOSSARY_FILE
from idiomtune.encoder.glossary import Meanings, saved_meanings
from idiomtune.encoder.idiom_tokens import FILE as IDIOM_TOKENS_FILE
from idiomtune.encoder.idiom_tokens import IdiomTokens, normalization, saved_idiom_tokens
from idiomtune.encoder.loading import fetch_file
from idiomtune.errors import UserError
from idiomtune.expressions import KEEP, has_placeholder, replacements
from idiomtune.io.files import read_json, write_json
from idiomtune.io.hub import first_line

T = TypeVar("T")

log = logging.getLogger(__name__)

_CONFIG, _SAVED_WITH = "config_sentence_transformers.json", "idiomtune_files"
_TOKENIZER, _TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"


def load_expressions(
    path: str, model: SentenceTransformer, settings: ModelSettings, *, local_files_only: bool = False
) -> tuple[IdiomTokens | None, Meanings | None]:
    """A checkpoint's idiom tokens and meanings; its tokenizer's rules for tokens are taken out.

    Args:
        path: the folder, or name on the Hub, that `model` was loaded from.
        local_files_only: for a model on the Hub, use only what was downloaded before.

    Raises:
        UserError: if a file is damaged or missing; if expressions should be replaced, but there are no idiom
            tokens.
    """

    def read(name: str, make: Callable[[Any], T]) -> T | None:
        """The content of one of the files; None if it is missing."""
        file = fetch_file(path, name, settings.revision, local_files_only=local_files_only)
        if file is None:
            return None
        content = read_json(file)
        try:
            return make(content)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = f"is damaged ({type(error).__name__}: {first_line(error)})"
            message = f"{reason}: bring the file back as it was saved with the model"
            raise UserError(message, file=f"{path}/{name}") from None

    first: Any = model[0]
    idioms = read(IDIOM_TOKENS_FILE, lambda content: saved_idiom_tokens(content, model.tokenizer.get_vocab()))
    meanings = read(GLOSSARY_FILE, lambda content: saved_meanings(content, first.get_embedding_dimension()))
    for name in read(_CONFIG, lambda content: content.get(_SAVED_WITH, [])) or []:
        if (idioms if name == IDIOM_TOKENS_FILE else meanings) is None:
            raise UserError(f"model {path}: {name}, which it was saved with, is missing: bring the file back")
    if idioms is not None:
        _remove_rules(model.tokenizer, idioms.expressions)
    if idioms is not None and settings.replace_expressions is not None:
        idioms.replace = settings.replace_expressions
    elif settings.replace_expressions:
        raise UserError(
            f"the model {path} has no idiom tokens to replace them with",
            option="model.replace_expressions=true",
        )
    return idioms, meanings


def save_expressions(
    folder: Path, tokenizer: Any, idioms: IdiomTokens | None, meanings: Meanings | None
) -> None:
    """Write idiom tokens and meanings next to a saved model, and rules for the tokens into its tokenizer."""
    files = []
    for name, part in ((IDIOM_TOKENS_FILE, idioms), (GLOSSARY_FILE, meanings)):
        (folder / name).unlink(missing_ok=True)
        if part is not None:
            part.save(folder)
            files.append(name)
    if meanings is not None:
        log.info("the glossary is read by Encoder alone: other libraries embed texts without meanings")
    if idioms is not None and idioms.replace:
        _write_rules(folder, tokenizer, idioms)
    if files:
        write_json(folder / _CONFIG, read_json(folder / _CONFIG) | {_SAVED_WITH: files})


def _write_rules(folder: Path, tokenizer: Any, idioms: IdiomTokens) -> None:
    """Put rules into a saved tokenizer, by which expressions become tokens.

    Some families turn spaces into pieces before they look for tokens, or take no normaliser but their own:
    their tokenizer stays as it is, and the log says so.

    Args:
        tokenizer: that was saved, without rules.
    """
    before = (folder / _TOKENIZER).read_text("utf-8")
    content, config = json.loads(before), json.loads((folder / _TOKENIZER_CONFIG).read_text("utf-8"))
    normalize = normalization(tokenizer.backend_tokenizer)
    # After lower-casing, the rules need not ignore case, which makes them thirty times as fast.
    is_uncased = "ID" not in normalize("ID")
    as_read, flags = (normalize, "") if is_uncased else (str, "(?i)")
    # First those with a placeholder, since any other expression may fill it, and none of its words may be a
    # token yet: "take *the home run king* for a ride". Of others the longest, which may hold shorter ones.
    names = sorted(idioms.token_of, key=lambda name: (not has_placeholder(name), -len(name)))
    rules = [
        {"type": "Replace", "pattern": {"Regex": flags + pattern}, "content": new}
        for name in names
        for pattern, new in replacements(
            name, as_read(idioms.token_of[name]), as_read, idioms.forms.get(name, ())
        )
    ]
    existing = [] if content["normalizer"] is None else [content["normalizer"]]
    steps = [*existing, *rules] if is_uncased else [*rules, *existing]
    content["normalizer"] = {"type": "Sequence", "normalizers": steps}
    # The class of the model's family would build its own normaliser.
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": tokenizer.model_input_names}
    for added in (*content["added_tokens"], *config.get("added_tokens_decoder", {}).values()):
        if added["content"] in idioms.expressions:
            added["normalized"] = True  # looked for in what the rules have made
    (folder / _TOKENIZER).write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    (folder / _TOKENIZER_CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False), "utf-8")
    text = "{0} and a {0}, ({0}).".format(next(iter(idioms.token_of)))
    read = tokenizer(idioms.replace_expressions(text)[0])["input_ids"]
    try:
        is_read_alike = AutoTokenizer.from_pretrained(folder)(text)["input_ids"] == read
    except (ValueError, KeyError):  # of a family that comes with code of its own
        is_read_alike = False
    if not is_read_alike:
        (folder / _TOKENIZER).write_text(before, "utf-8")
        log.info(
            "the saved tokenizer (%s) does not put idiom tokens into texts by itself: load it with Encoder",
            type(tokenizer).__name__,
        )


def _remove_rules(tokenizer: Any, tokens: Collection[str]) -> None:
    """Take the rules for these tokens out of a tokenizer that was loaded."""
    backend = tokenizer.backend_tokenizer
    state = json.loads(backend.to_str())["normalizer"]
    if state is None or state["type"] != "Sequence":
        return
    as_written = {*tokens, *map(normalization(backend), tokens)}
    others = [step for step in state["normalizers"] if not _is_rule(step, as_written)]
    if len(others) < len(state["normalizers"]):
        normalizer = others[0] if len(others) == 1 else {"type": "Sequence", "normalizers": others}
        # A normaliser can be made of its description only within a tokenizer.
        blank = json.loads(Tokenizer(WordLevel({}, unk_token="")).to_str())
        backend.normalizer = Tokenizer.from_str(json.dumps(blank | {"normalizer": normalizer})).normalizer


def _is_rule(step: Mapping[str, Any], tokens: Collection[str]) -> bool:
    """Whether a step of a normaliser is a rule for one of these tokens."""
    if step["type"] != "Replace":
        return False
    pattern = step["pattern"].get("Regex", "")
    # A rule that removes the rest of an expression names the token before it.
    removes_rest = step["content"] == "" and KEEP in pattern
    return step["content"] in tokens or (removes_rest and any(re.escape(t) in pattern for t in tokens))
