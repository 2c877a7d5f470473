"""Expressions in a model's folder: idiom tokens, meanings, and rules of the tokenizer.

The rules make any library read texts as the model does. A rule of the tokenizer's normaliser replaces an
expression by its token or its meaning, or writes its meaning after it. Only saved files have such rules: the
encoder, which also has to know where spans come to be, changes texts itself.
"""

from __future__ import annotations

import json
import logging
import re
import struct
import sys
from array import array
from base64 import b64encode
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
from idiomtune.expressions import KEEP, LAST, Forms, find_nested, has_placeholder, replacements, written_steps
from idiomtune.io.files import read_json, write_json
from idiomtune.io.hub import first_line

T = TypeVar("T")

log = logging.getLogger(__name__)

_CONFIG, _SAVED_WITH = "config_sentence_transformers.json", "idiomtune_files"
_TOKENIZER, _TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
_MAX_PROBES = 20  # expressions that are tried, in addition to all that contain others


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
    if idioms is not None or meanings is not None:
        _remove_rules(model.tokenizer, idioms.expressions if idioms is not None else ())
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
    """Write idiom tokens and meanings next to a saved model, and rules for them into its tokenizer."""
    files = []
    for name, part in ((IDIOM_TOKENS_FILE, idioms), (GLOSSARY_FILE, meanings)):
        (folder / name).unlink(missing_ok=True)
        if part is not None:
            part.save(folder)
            files.append(name)
    if meanings is not None and meanings.gate is not None:
        log.warning(
            "plain sentence-transformers does not weigh meanings (model.glossary_gate): it embeds texts with "
            "them in another way than Encoder"
        )
    if files:
        _write_rules(folder, tokenizer, idioms, meanings)
        write_json(folder / _CONFIG, read_json(folder / _CONFIG) | {_SAVED_WITH: files})


def _write_rules(folder: Path, tokenizer: Any, idioms: IdiomTokens | None, meanings: Meanings | None) -> None:
    """Put rules for expressions into a saved tokenizer.

    If the tokenizer would then not read a text as the model did in training (some turn spaces into pieces
    before they look for tokens), its files stay as they are, and the log says so.

    Args:
        tokenizer: that was saved, without rules.
        idioms: expressions that become tokens.
        meanings: what is written of expressions, before any becomes a token.
    """
    tokens = idioms if idioms is not None and idioms.replace else IdiomTokens({})
    before = {name: (folder / name).read_text("utf-8") for name in (_TOKENIZER, _TOKENIZER_CONFIG)}
    content, config = map(json.loads, before.values())
    normalize = normalization(tokenizer.backend_tokenizer)
    existing = [] if content["normalizer"] is None else [content["normalizer"]]
    # After lower-casing, the rules need not ignore case, which makes them thirty times as fast.
    is_uncased = "ID" not in normalize("ID")
    as_read = normalize if is_uncased else str
    flags = "" if is_uncased else "(?i)"

    def rule(pattern: str, new: str) -> dict[str, Any]:
        return {"type": "Replace", "pattern": {"Regex": flags + pattern}, "content": new}

    def written(meaning_of: Mapping[str, str | None], forms: Forms, *, in_place: bool) -> dict[str, Any]:
        """One rule, a sequence of others, by which it is recognised."""
        steps, table = written_steps(meaning_of, as_read, forms, in_place=in_place)
        table_rule = {"type": "Precompiled", "precompiled_charsmap": b64encode(_charsmap(table)).decode()}
        return {"type": "Sequence", "normalizers": [*(rule(*step) for step in steps), table_rule]}

    rules: list[dict[str, Any]] = []
    if meanings is not None and any(meanings.senses.values()):
        in_place = meanings.form == "in_place"
        meant = [name for name, senses in meanings.senses.items() if senses]
        texts = {name: " ".join(as_read(meanings.inserted_text(name)).split()) for name in meant}
        meaning_of = {name: texts[name] if in_place else f" {texts[name]}" for name in meant}
        rules.append(written(dict.fromkeys(meanings.senses) | meaning_of, meanings.forms, in_place=in_place))
    token_of, forms = {name: as_read(token) for name, token in tokens.token_of.items()}, tokens.forms
    held = sorted(filter(has_placeholder, token_of), key=len, reverse=True)
    # First, since any other expression may fill a placeholder, and none of its words may be a token yet:
    # "take *the home run king* for a ride".
    rules += [rule(*step) for n in held for step in replacements(n, token_of[n], as_read, forms.get(n, ()))]
    if others := {name: token for name, token in token_of.items() if name not in held}:
        rules.append(written(others, forms, in_place=True))
    if not rules:
        return
    steps = [*existing, *rules] if is_uncased else [*rules, *existing]
    content["normalizer"] = {"type": "Sequence", "normalizers": steps}
    # The class of the model's family would build its own normaliser.
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": tokenizer.model_input_names}
    for added in (*content["added_tokens"], *config.get("added_tokens_decoder", {}).values()):
        if added["content"] in tokens.expressions:
            added["normalized"] = True  # looked for in what the rules have made
    (folder / _TOKENIZER).write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    (folder / _TOKENIZER_CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False), "utf-8")
    if not _is_read_alike(folder, tokenizer, tokens, meanings):
        (folder / _TOKENIZER).write_text(before[_TOKENIZER], "utf-8")
        log.info(
            "the saved tokenizer (%s) does not put %s into texts by itself: load it with Encoder",
            type(tokenizer).__name__,
            " and ".join(["meanings"] * (meanings is not None) + ["idiom tokens"] * bool(token_of)),
        )


def _remove_rules(tokenizer: Any, tokens: Collection[str]) -> None:
    """Take the rules out of a tokenizer that was loaded.

    Args:
        tokens: its idiom tokens.
    """
    backend = tokenizer.backend_tokenizer
    state = json.loads(backend.to_str())["normalizer"]
    if state is None or state["type"] != "Sequence":
        return
    of_project = {*tokens, *map(normalization(backend), tokens)}
    others = [step for step in state["normalizers"] if not _is_of(step, of_project)]
    if len(others) < len(state["normalizers"]):
        normalizer = others[0] if len(others) == 1 else {"type": "Sequence", "normalizers": others}
        # A normaliser can be made of its description only within a tokenizer.
        blank = json.loads(Tokenizer(WordLevel({}, unk_token="")).to_str())
        backend.normalizer = Tokenizer.from_str(json.dumps(blank | {"normalizer": normalizer})).normalizer


def _is_of(step: Mapping[str, Any], tokens: Collection[str]) -> bool:
    """Whether a step of a normaliser is a rule of this project, for these tokens or for meanings."""
    if step["type"] == "Sequence":
        return any(rule.get("content") == LAST for rule in step["normalizers"])
    if step["type"] != "Replace":
        return False
    pattern = step["pattern"].get("Regex", "")
    # A rule that removes the rest of an expression names the token before it.
    removes_rest = step["content"] == "" and KEEP in pattern
    return step["content"] in tokens or (removes_rest and any(re.escape(t) in pattern for t in tokens))


def _charsmap(table: Mapping[str, str]) -> bytes:
    """A SentencePiece character map: replacements of short texts.

    A trie of the texts' bytes in a double array (the format of darts-clone), and what they become. A unit has
    the byte that leads to it, whether a text ends there, and the distance to its children.
    """
    nodes: dict[bytes, None] = {b"": None}  # in which texts go on
    values: dict[bytes, int] = {}
    written = b""
    for text, new in table.items():
        key = text.encode()
        nodes |= dict.fromkeys(key[:length] for length in range(len(key)))
        values[key] = len(written)
        written += new.encode() + b"\0"
    # A node's children are in 256 units of its own, at the place of their byte; a text's value is in one.
    blocks = {node: 256 * number for number, node in enumerate(nodes, 1)}
    blocks |= {key: 256 * (len(nodes) + 1) + number for number, key in enumerate(values)}
    units = array("I", bytes(4 * (256 * (len(nodes) + 1) + len(values))))
    for node, block in blocks.items():
        unit = blocks[node[:-1]] ^ node[-1] if node else 0
        units[unit] = (unit ^ block) << 10 | (node in values) << 8 | (node[-1] if node else 0)
        if node in values:
            units[block] = values[node] | 1 << 31
    if sys.byteorder == "big":
        units.byteswap()
    return struct.pack("<I", 4 * len(units)) + units.tobytes() + written


def _is_read_alike(folder: Path, tokenizer: Any, idioms: IdiomTokens, meanings: Meanings | None) -> bool:
    """Whether the saved tokenizer, as libraries load it, reads expressions as the one in memory reads the
    changed text, wherever they are. Of some families they take no normaliser but their own.

    Args:
        tokenizer: without rules.
    """
    try:
        saved: Any = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        if getattr(error, "errno", None):  # of the disk
            raise
        return False  # a family that is not known, or that comes with code of its own
    meanings = meanings or Meanings({})
    probed = [*list(idioms.token_of)[:_MAX_PROBES], *find_nested(idioms.token_of, idioms.forms)]
    probed += [*list(meanings.senses)[:_MAX_PROBES], *find_nested(meanings.senses, meanings.forms)]
    for name in dict.fromkeys(probed):
        text = f"{name} and a {name}, ({name})."
        read, _ = idioms.replace_expressions(meanings.insert(text)[0])
        if saved(text, truncation=False)["input_ids"] != tokenizer(read, truncation=False)["input_ids"]:
            return False
    return True
