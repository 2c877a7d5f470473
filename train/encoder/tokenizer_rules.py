"""Idiom tokens and meanings in a saved tokenizer itself, so that any library reads texts as the model does.

A rule of the tokenizer's normaliser replaces an expression by its token or its meaning, or writes its
meaning after it. Only saved files have such rules: the encoder, which also has to know where spans come to
be, changes texts itself.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    Normalize,
    Step,
    contained,
    has_placeholder,
    insertion_pattern,
    replacements,
    whole_pattern,
    word_end_patterns,
)
from train.expressions.patterns import IN_A_WORD

log = logging.getLogger(__name__)

_FILE, _CONFIG = "tokenizer.json", "tokenizer_config.json"
_MAX_PROBES = 20  # expressions that are tried, in addition to all that contain others or whose meanings do
# Comes after words in which no expression is to be found, and is removed at the end. It joins a word as an
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
    normalize = _normalization(tokenizer.backend_tokenizer)
    existing = [] if content["normalizer"] is None else [content["normalizer"]]
    # After lower-casing, the rules need not ignore case, which makes them thirty times as fast.
    is_uncased = "ID" not in normalize("ID")
    as_read = normalize if is_uncased else str
    flags = "" if is_uncased else "(?i)"

    def rules_of(steps: Iterable[Step]) -> Iterator[dict[str, Any]]:
        for pattern, new in steps:
            yield {"type": "Replace", "pattern": {"Regex": flags + pattern}, "content": new}

    rules: list[dict[str, Any]] = []
    if meanings is not None:
        rules += rules_of(_meaning_steps(meanings, as_read))
        rules.append({"type": "Replace", "pattern": {"String": _MARK}, "content": ""})
    rules += rules_of(_token_steps(expressions, as_read))
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
    ours = {*tokens, *map(_normalization(backend), tokens)}
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


def _by_priority(expressions: Iterable[str]) -> list[str]:
    """In the order in which a tokenizer has to look for them.

    Those with a placeholder come first, since any other may fill it, and what fills it is counted in words,
    none of which may be a token yet: "take *the home run king* for a ride". Then longer ones, since they may
    hold others: "in the dark about" before "in the dark".
    """
    return sorted(expressions, key=lambda name: (not has_placeholder(name), -len(name)))


def _meaning_steps(meanings: Meanings, normalize: Normalize) -> Iterator[Step]:
    """What writes meanings into a text.

    Each word of a meaning is marked, so that no later step finds an expression in it: of "tie the knot
    (marry)" the word "marry". So is each word of an expression that may hold others: "in the dark" within
    "in the dark about". An expression that is left out is marked, and gets no meaning.
    """
    names = [*meanings.senses, *meanings.left_out]
    outer = contained(names).keys()
    for name in _by_priority(names):
        may_hold_others = has_placeholder(name) or name in outer
        if name in meanings.senses:
            new = _WORD.sub(rf"\g<0>{_MARK}", " ".join(normalize(meanings.written(name)).split()))
            if meanings.form == "in_place":
                yield whole_pattern(name, normalize), new
                continue
            behind = f" {new}"
        elif may_hold_others:
            behind = _MARK
        else:
            continue
        yield insertion_pattern(name, normalize), behind
        if may_hold_others:
            yield from ((pattern, _MARK) for pattern in word_end_patterns(name, behind, normalize))


def _token_steps(expressions: Mapping[str, Sequence[str]], normalize: Normalize) -> Iterator[Step]:
    """What replaces expressions by their tokens: "spill the beans" by "IDspillthebeansID"."""
    token_of = {name: token for token, names in expressions.items() for name in names}
    for name in _by_priority(token_of):
        yield from replacements(name, normalize(token_of[name]), normalize)


def reads_alike(folder: Path, tokenizer: Any, idioms: IdiomTokens, meanings: Meanings | None) -> bool:
    """Whether the saved tokenizer, as libraries load it, reads expressions as the one in memory reads the
    changed text, wherever they are. Of some families they take no normaliser but their own.

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


def _normalization(tokenizer: Tokenizer) -> Normalize:
    """What the tokenizer makes of a text before it cuts it: texts that become the same are one to it."""
    normalizer = tokenizer.normalizer
    return str if normalizer is None else normalizer.normalize_str


def _normalizer(state: dict[str, Any]) -> Any:
    """A normaliser from its description."""
    blank = json.loads(Tokenizer(WordLevel({}, unk_token="")).to_str())
    return Tokenizer.from_str(json.dumps(blank | {"normalizer": state})).normalizer
