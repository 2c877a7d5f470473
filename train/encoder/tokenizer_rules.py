"""Idiom tokens and meanings in a saved tokenizer itself, so that any library reads texts as the model does.

A rule of the tokenizer's normaliser replaces an expression by its token or its meaning, or writes its meaning
behind it.
Only saved files have such rules: the encoder, which also has to know where spans come to lie, changes texts
itself.
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
from transformers import AutoTokenizer

from train.encoder.idiom_tokens import IdiomTokens
from train.encoder.meanings import Meanings
from train.expressions import (
    KEEP,
    ExpressionIndex,
    contained,
    insertion_pattern,
    replacements,
    whole_pattern,
    word_end_patterns,
)
from train.expressions.patterns import IN_A_WORD, expression_words

log = logging.getLogger(__name__)

_FILE, _CONFIG = "tokenizer.json", "tokenizer_config.json"
_MAX_PROBES = 20  # expressions that are tried, beside all that contain others or whose meanings do
# Stands behind words in which no expression is to be found, and is removed at the end. It joins a word as an
# accent does, is written nowhere, and has no width (combining grapheme joiner).
_MARK = "\u034f"
_WORD = re.compile(f"{IN_A_WORD}+")


def write_rules(
    folder: Path, tokenizer: Any, idioms: IdiomTokens | None = None, meanings: Meanings | None = None
) -> None:
    """Put rules for expressions into a tokenizer that was just saved.

    If the tokenizer would then not read a text as the model did in training (some turn spaces into pieces
    before they look for tokens), its files stay as they are, and the log says so.

    Args:
        folder: with `tokenizer.json`.
        tokenizer: that was saved, without rules.
        idioms: expressions that become tokens.
        meanings: what is written of expressions, before any becomes a token.
    """
    expressions = idioms.expressions if idioms is not None and idioms.replace else {}
    path = folder / _FILE
    content = json.loads(path.read_text(encoding="utf-8"))
    normalizer = tokenizer.backend_tokenizer.normalizer
    normalize: Callable[[str], str] = str if normalizer is None else normalizer.normalize_str
    existing = [] if content["normalizer"] is None else [content["normalizer"]]
    # After lower-casing, the rules need not ignore case, which makes them thirty times as fast.
    is_uncased = "ID" not in normalize("ID")
    as_read, flags = (normalize, "") if is_uncased else (str, "(?i)")
    rules = [*_meaning_rules(meanings, as_read, flags), *_token_rules(expressions, as_read, flags)]
    if not rules:
        return
    steps = [*existing, *rules] if is_uncased else [*rules, *existing]
    content["normalizer"] = {"type": "Sequence", "normalizers": steps}
    for added in content["added_tokens"]:
        if added["content"] in expressions:
            added["normalized"] = True  # looked for in what the rules have made
    config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    # The class of the model's family would build its own normaliser.
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": tokenizer.model_input_names}
    for added in config.get("added_tokens_decoder", {}).values():
        if added["content"] in expressions:
            added["normalized"] = True
    before = {name: (folder / name).read_text(encoding="utf-8") for name in (_FILE, _CONFIG)}
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    (folder / _CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False), encoding="utf-8")
    if not reads_alike(folder, tokenizer, IdiomTokens(expressions), meanings):
        for name, text in before.items():
            (folder / name).write_text(text, encoding="utf-8")
        log.info(
            "the saved tokenizer (%s) does not put %s into texts by itself: load it with Encoder",
            type(tokenizer).__name__,
            " and ".join(["meanings"] * (meanings is not None) + ["idiom tokens"] * bool(expressions)),
        )


def remove_rules(tokenizer: Any, tokens: Collection[str] = ()) -> None:
    """Take the rules out of a tokenizer that was loaded.

    Args:
        tokens: its idiom tokens.
    """
    backend = tokenizer.backend_tokenizer
    state = json.loads(backend.to_str())["normalizer"]
    if state is None or state["type"] != "Sequence":
        return
    normalize = backend.normalizer.normalize_str
    ours = {*tokens, *map(normalize, tokens)}
    kept = [step for step in state["normalizers"] if not _is_of(step, ours)]
    if len(kept) < len(state["normalizers"]):
        whole = kept[0] if len(kept) == 1 else {"type": "Sequence", "normalizers": kept}
        backend.normalizer = _normalizer(whole)


def _is_of(step: Mapping[str, Any], tokens: Collection[str]) -> bool:
    """Whether a step of a normaliser is a rule for one of the tokens, or for a meaning."""
    if step["type"] != "Replace":
        return False
    if _MARK in step["content"] or step["pattern"].get("String") == _MARK:
        return True
    pattern = step["pattern"].get("Regex", "")
    # A rule that removes the rest of an expression names the token before it.
    removes_rest = step["content"] == "" and KEEP in pattern
    return step["content"] in tokens or (
        removes_rest and any(re.escape(token) in pattern for token in tokens)
    )


def _meaning_rules(
    meanings: Meanings | None, normalize: Callable[[str], str], flags: str
) -> list[dict[str, Any]]:
    """Longer expressions first, marked so that those within them, and those in meanings, are passed over.

    Those with a placeholder, which any expression may fill, come before all others.
    """
    if meanings is None:
        return []
    names = [*meanings.senses, *meanings.left_out]
    has_placeholder = {name: any(word.stands_for for word in expression_words(name)) for name in names}
    outer = contained(names).keys()
    steps = []
    for name in sorted(names, key=lambda name: (not has_placeholder[name], -len(name))):
        is_left_out = name not in meanings.senses
        if is_left_out and not has_placeholder[name] and name not in outer:
            continue
        text = "" if is_left_out else meanings.written(name)
        written = _WORD.sub(rf"\g<0>{_MARK}", " ".join(normalize(text).split()))
        if meanings.form == "in_place" and not is_left_out:
            steps.append((whole_pattern(name, normalize), written))
            continue
        gloss = _MARK if is_left_out else f" {written}"
        steps.append((insertion_pattern(name, normalize), gloss))
        if has_placeholder[name] or name in outer:
            steps += [(pattern, _MARK) for pattern in word_end_patterns(name, gloss, normalize)]
    rules: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"Regex": flags + pattern}, "content": content}
        for pattern, content in steps
    ]
    return [*rules, {"type": "Replace", "pattern": {"String": _MARK}, "content": ""}]


def _token_rules(
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


def reads_alike(folder: Path, tokenizer: Any, idioms: IdiomTokens, meanings: Meanings | None) -> bool:
    """Whether the saved tokenizer, as libraries load it, reads expressions as the one in memory reads the
    changed text, wherever they stand. Of some families they take no normaliser but their own.

    Args:
        tokenizer: without rules.
    """
    try:
        saved: Any = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError):  # a family that is not known, or that comes with code of its own
        return False
    listed = [name for names in idioms.expressions.values() for name in names]
    probed = [*listed[:_MAX_PROBES], *contained(listed)]
    if meanings is not None:
        index = ExpressionIndex(meanings.senses)
        probed += [*list(meanings.senses)[:_MAX_PROBES], *contained([*meanings.senses, *meanings.left_out])]
        probed += [name for name in meanings.senses if index.find(meanings.meaning(name))]
    for name in dict.fromkeys(probed):
        text = f"{name} and a {name}, ({name})."
        read = text if meanings is None else meanings.added(text)[0]
        read, _ = idioms.replaced(read)
        if saved(text, truncation=False)["input_ids"] != tokenizer(read, truncation=False)["input_ids"]:
            return False
    return True


def _normalizer(state: dict[str, Any]) -> Any:
    """A normaliser from its description."""
    blank = json.loads(Tokenizer(WordLevel({}, unk_token="")).to_str())
    return Tokenizer.from_str(json.dumps(blank | {"normalizer": state})).normalizer
