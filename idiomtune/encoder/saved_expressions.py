"""Idiom tokens in a model's folder, and rules of the tokenizer for them.

By these rules any library reads texts as the model does: a rule of the tokenizer's normaliser replaces an
expression by its token. Only saved files have such rules: the encoder, which also has to know where spans
come to be, changes texts itself.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from idiomtune.encoder.idiom_tokens import FILE, IdiomTokens, normalization
from idiomtune.expressions import KEEP, has_placeholder, replacements
from idiomtune.io.files import read_json, write_json

log = logging.getLogger(__name__)

CONFIG, SAVED_WITH = "config_sentence_transformers.json", "idiomtune_files"
_TOKENIZER, _TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"


def save_idiom_tokens(folder: Path, tokenizer: PreTrainedTokenizerBase, idioms: IdiomTokens | None) -> None:
    """Write idiom tokens next to a saved model, and rules for them into its tokenizer."""
    (folder / FILE).unlink(missing_ok=True)
    if idioms is not None:
        idioms.save(folder)
        record_file(folder, FILE)
        if idioms.replace:
            _write_rules(folder, tokenizer, idioms)


def record_file(folder: Path, name: str) -> None:
    """Note in a saved model's configuration that it is incomplete without this file."""
    config = read_json(folder / CONFIG)
    write_json(folder / CONFIG, config | {SAVED_WITH: [*config.get(SAVED_WITH, []), name]})


def _write_rules(folder: Path, tokenizer: PreTrainedTokenizerBase, idioms: IdiomTokens) -> None:
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


def remove_rules(tokenizer: PreTrainedTokenizerBase, tokens: Collection[str]) -> None:
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
