"""Idiom tokens in a saved tokenizer itself, so that any library reads idioms as the model does.

A rule of the tokenizer's normaliser replaces an expression by its token. Only saved files have such rules:
the encoder, which must also know where spans end up, replaces expressions itself.
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
_MAX_PROBES = 20  # expressions that are tried


def write_rules(folder: Path, tokenizer: Any, expressions: Mapping[str, Sequence[str]]) -> None:
    """Put a rule for each expression into a tokenizer that was just saved.

    If the tokenizer would then not read a text as the model did in training (some turn spaces into pieces
    before they look for tokens), its files stay as they are, and the log says so.

    Args:
        folder: with `tokenizer.json`.
        tokenizer: the one that was saved, without rules.
        expressions: token → the expressions that it stands for.
    """
    path = folder / _FILE
    content = json.loads(path.read_text(encoding="utf-8"))
    normalizer = tokenizer.backend_tokenizer.normalizer
    normalize: Callable[[str], str] = str if normalizer is None else normalizer.normalize_str
    existing = [] if content["normalizer"] is None else [content["normalizer"]]
    # After lower-casing, the rules need not ignore case, which makes them thirty times as fast.
    is_uncased = "ID" not in normalize("ID")
    rules = _rules(expressions, normalize if is_uncased else str, flags="" if is_uncased else "(?i)")
    steps = [*existing, *rules] if is_uncased else [*rules, *existing]
    content["normalizer"] = {"type": "Sequence", "normalizers": steps}
    for added in content["added_tokens"]:
        if added["content"] in expressions:
            added["normalized"] = True  # matched in the text that the rules give
    text = json.dumps(content, ensure_ascii=False)
    if not _reads_alike(Tokenizer.from_str(text), tokenizer, expressions):
        log.info(
            "the saved tokenizer (%s) does not put idiom tokens into texts by itself: load it with Encoder",
            type(tokenizer).__name__,
        )
        return
    path.write_text(text, encoding="utf-8")
    config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    # The class of the model's family would build its own normaliser.
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": tokenizer.model_input_names}
    for added in config.get("added_tokens_decoder", {}).values():
        if added["content"] in expressions:
            added["normalized"] = True
    (folder / _CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False), encoding="utf-8")


def remove_rules(tokenizer: Any, expressions: Mapping[str, Sequence[str]]) -> None:
    """Remove the rules from a tokenizer that was loaded."""
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
    # A rule that removes the rest of an expression names the token before it.
    removes_rest = step["content"] == "" and KEEP in pattern
    return step["content"] in tokens or (
        removes_rest and any(re.escape(token) in pattern for token in tokens)
    )


def _rules(
    expressions: Mapping[str, Sequence[str]], normalize: Callable[[str], str], flags: str
) -> list[dict[str, Any]]:
    """The rules, of longer expressions first, since these may hold others.

    Expressions with a placeholder, which take several steps, come before all others: what stands for it is
    counted in words, none of which may be a token yet.
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
        for expression_steps, _, token in sorted(steps, key=lambda entry: (len(entry[0]) == 1, -entry[1]))
        for step in expression_steps
    ]


def _reads_alike(saved: Tokenizer, tokenizer: Any, expressions: Mapping[str, Sequence[str]]) -> bool:
    """Whether it reads expressions as the tokenizer in memory reads their tokens, wherever they stand."""
    saved.no_padding()
    idioms = IdiomTokens(expressions)
    for token, (name, *_) in list(expressions.items())[:_MAX_PROBES]:
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
