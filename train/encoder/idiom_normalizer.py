"""Idiom tokens in a saved tokenizer itself, so that any library reads idioms as the model learnt to.

A rule of the tokenizer's normaliser replaces an expression by its token. Only saved files have them:
the encoder, which also has to know where spans come to lie, replaces texts itself.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from train.encoder.idiom_tokens import IdiomTokens
from train.expressions import KEEP, replacements

log = logging.getLogger(__name__)

_FILE, _CONFIG = "tokenizer.json", "tokenizer_config.json"
_PROBED = 20  # expressions that are tried


def write_rules(folder: Path, tokenizer: Any, expressions: Mapping[str, Sequence[str]]) -> None:
    """Put a rule for each expression into a tokenizer that was just saved.

    Where the tokenizer then would not read a text as the model did in training (some make pieces of
    spaces before tokens are looked for), its files stay as they are, and the log says so.

    Args:
        folder: with `tokenizer.json`.
        tokenizer: that was saved, without rules.
        expressions: token → what it stands for.
    """
    path = folder / _FILE
    content = json.loads(path.read_text(encoding="utf-8"))
    normalizer = tokenizer.backend_tokenizer.normalizer
    normalize: Callable[[str], str] = str if normalizer is None else normalizer.normalize_str
    own = [] if content["normalizer"] is None else [content["normalizer"]]
    # After what lowers a text the rules can be plain, which is thirty times as fast as to pass by case.
    is_uncased = "ID" not in normalize("ID")
    rules = _rules(expressions, normalize if is_uncased else str, flags="" if is_uncased else "(?i)")
    steps = [*own, *rules] if is_uncased else [*rules, *own]
    content["normalizer"] = {"type": "Sequence", "normalizers": steps}
    for added in content["added_tokens"]:
        if added["content"] in expressions:
            added["normalized"] = True  # looked for in what the rules have made
    text = json.dumps(content, ensure_ascii=False)
    if not _reads_alike(Tokenizer.from_str(text), tokenizer, expressions):
        log.info(
            "the saved tokenizer (%s) does not put idiom tokens into texts by itself: load it with Encoder",
            type(tokenizer).__name__,
        )
        return
    path.write_text(text, encoding="utf-8")
    config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    # The class of the model's family would build a normaliser of its own.
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": tokenizer.model_input_names}
    for added in config.get("added_tokens_decoder", {}).values():
        if added["content"] in expressions:
            added["normalized"] = True
    (folder / _CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False), encoding="utf-8")


def remove_rules(tokenizer: Any, expressions: Mapping[str, Sequence[str]]) -> None:
    """Take the rules out of a tokenizer that was loaded."""
    backend = tokenizer.backend_tokenizer
    state = json.loads(backend.to_str())["normalizer"]
    if state is None or state["type"] != "Sequence":
        return
    normalize = backend.normalizer.normalize_str
    ours = {*expressions, *map(normalize, expressions)}
    kept = [step for step in state["normalizers"] if not _is_of(step, ours)]
    if len(kept) < len(state["normalizers"]):
        whole = kept[0] if len(kept) == 1 else {"type": "Sequence", "normalizers": kept}
        backend.normalizer = _normalizer(whole)


def _is_of(step: Mapping[str, Any], tokens: Collection[str]) -> bool:
    """Whether a step of a normaliser is a rule for one of the tokens."""
    if step["type"] != "Replace":
        return False
    pattern = step["pattern"].get("Regex", "")
    # A rule that takes the rest of an expression out names the token that stands before it.
    takes_out = step["content"] == "" and KEEP in pattern
    return step["content"] in tokens or (takes_out and any(re.escape(token) in pattern for token in tokens))


def _rules(
    expressions: Mapping[str, Sequence[str]], normalize: Callable[[str], str], flags: str
) -> list[dict[str, Any]]:
    """Longer expressions first: they may hold others.

    Before all of these come expressions with a placeholder, which take several steps: what stands for it is
    measured in words, of which none may have become a token yet.
    """
    steps = [
        (replacements(name, normalize(token), normalize), len(name), normalize(token))
        for token, names in expressions.items()
        for name in names
    ]
    return [
        {
            "type": "Replace",
            "pattern": {"Regex": flags + step.pattern},
            "content": token if step.by_token else "",
        }
        for of_one, _, token in sorted(steps, key=lambda one: (len(one[0]) == 1, -one[1]))
        for step in of_one
    ]


def _reads_alike(saved: Tokenizer, tokenizer: Any, expressions: Mapping[str, Sequence[str]]) -> bool:
    """Whether it makes of expressions what the one in memory makes of their tokens, wherever they stand."""
    saved.no_padding()
    idioms = IdiomTokens(expressions)
    for token, (name, *_) in list(expressions.items())[:_PROBED]:
        text = "{0} and a {0}, ({0})."
        read = text.format(token)
        if len(replacements(name, token, str)) > 1:  # what stands for a placeholder stays
            read, _ = idioms.replaced(text.format(name))
        if saved.encode(text.format(name)).ids != tokenizer(read)["input_ids"]:
            return False
    return True


def _normalizer(state: dict[str, Any]) -> Any:
    """A normaliser from its description."""
    blank = json.loads(Tokenizer(WordLevel({}, unk_token="")).to_str())
    return Tokenizer.from_str(json.dumps(blank | {"normalizer": state})).normalizer
