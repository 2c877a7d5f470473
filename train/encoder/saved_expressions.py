"""What a model knows of expressions, in its folder: idiom tokens, meanings, and rules of its tokenizer.

The rules make any library read texts as the model does. A rule of the tokenizer's normaliser replaces an
expression by its token or its meaning, or writes its meaning after it. Only saved files have such rules: the
encoder, which also has to know where spans come to be, changes texts itself.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoTokenizer

from train.config import ModelSettings
from train.encoder.glossary import FILE as GLOSSARY_FILE
from train.encoder.glossary import Meanings, saved_meanings
from train.encoder.idiom_tokens import FILE as IDIOM_TOKENS_FILE
from train.encoder.idiom_tokens import IdiomTokens, saved_idiom_tokens
from train.encoder.loading import fetch_file
from train.errors import UserError
from train.expressions import (
    IN_A_WORD,
    KEEP,
    ExpressionIndex,
    Normalize,
    Step,
    contained,
    has_placeholder,
    replacements,
    whole_pattern,
    word_end_patterns,
)
from train.io.files import read_json, write_json
from train.io.hub import first_line

T = TypeVar("T")

log = logging.getLogger(__name__)

_CONFIG, _SAVED_WITH = "config_sentence_transformers.json", "idiomtune_files"
_TOKENIZER, _TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
_MAX_PROBES = 20  # expressions that are tried, in addition to all that contain others or whose meanings do
# Comes after words in which no expression is to be found, and is removed at the end. It joins a word as an
# accent does, is written nowhere, and has no width (combining grapheme joiner).
_MARK = "\u034f"
_WORD = re.compile(f"{IN_A_WORD}+")


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
        """What is made of one of its files; None if there is no such file."""
        file = fetch_file(path, name, settings.revision, local_files_only=local_files_only)
        if file is None:
            return None
        content = read_json(file)
        try:
            return make(content)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(
                f"is damaged ({type(error).__name__}: {first_line(error)}): bring the file back as it was "
                "saved with the model",
                file=f"{path}/{name}",
            ) from None

    idioms = read(IDIOM_TOKENS_FILE, lambda content: saved_idiom_tokens(content, model.tokenizer.get_vocab()))
    width = model.get_embedding_dimension()
    meanings = read(GLOSSARY_FILE, lambda content: saved_meanings(content, width))
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
    """Write both next to a model that was just saved, and rules for them into its tokenizer."""
    files = []
    for name, part in ((IDIOM_TOKENS_FILE, idioms), (GLOSSARY_FILE, meanings)):
        (folder / name).unlink(missing_ok=True)
        if part is not None:
            part.save(folder)
            files.append(name)
    if meanings is not None and (meanings.weight or meanings.gate is not None):
        log.info(
            "model.glossary_weight, model.glossary_gate: Encoder adds or weighs meanings, plain "
            "sentence-transformers does not"
        )
    if files:
        _write_rules(folder, tokenizer, idioms, meanings)
        write_json(folder / _CONFIG, read_json(folder / _CONFIG) | {_SAVED_WITH: files})


def _write_rules(folder: Path, tokenizer: Any, idioms: IdiomTokens | None, meanings: Meanings | None) -> None:
    """Put rules for expressions into a tokenizer that was just saved.

    If the tokenizer would then not read a text as the model did in training (some turn spaces into pieces
    before they look for tokens), its files stay as they are, and the log says so.

    Args:
        tokenizer: that was saved, without rules.
        idioms: expressions that become tokens.
        meanings: what is written of expressions, before any becomes a token.
    """
    expressions = idioms.expressions if idioms is not None and idioms.replace else {}
    before = {name: (folder / name).read_text("utf-8") for name in (_TOKENIZER, _TOKENIZER_CONFIG)}
    content, config = map(json.loads, before.values())
    normalize = _normalization(tokenizer.backend_tokenizer)
    existing = [] if content["normalizer"] is None else [content["normalizer"]]
    # After lower-casing, the rules need not ignore case, which makes them thirty times as fast.
    is_uncased = "ID" not in normalize("ID")
    as_read = normalize if is_uncased else str
    flags = "" if is_uncased else "(?i)"

    def rules_of(steps: Iterable[Step]) -> list[dict[str, Any]]:
        return [
            {"type": "Replace", "pattern": {"Regex": flags + pattern}, "content": new}
            for pattern, new in steps
        ]

    rules: list[dict[str, Any]] = []
    if meanings is not None:
        rules += rules_of(_meaning_steps(meanings, as_read))
        rules.append({"type": "Replace", "pattern": {"String": _MARK}, "content": ""})
    rules += rules_of(_token_steps(expressions, as_read))
    if not rules:
        return
    steps = [*existing, *rules] if is_uncased else [*rules, *existing]
    content["normalizer"] = {"type": "Sequence", "normalizers": steps}
    # The class of the model's family would build its own normaliser.
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": tokenizer.model_input_names}
    for added in (*content["added_tokens"], *config.get("added_tokens_decoder", {}).values()):
        if added["content"] in expressions:
            added["normalized"] = True  # looked for in what the rules have made
    (folder / _TOKENIZER).write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    (folder / _TOKENIZER_CONFIG).write_text(json.dumps(config, indent=2, ensure_ascii=False), "utf-8")
    if not reads_alike(folder, tokenizer, IdiomTokens(expressions), meanings):
        for name, text in before.items():
            (folder / name).write_text(text, "utf-8")
        log.info(
            "the saved tokenizer (%s) does not put %s into texts by itself: load it with Encoder",
            type(tokenizer).__name__,
            " and ".join(["meanings"] * (meanings is not None) + ["idiom tokens"] * bool(expressions)),
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
    ours = {*tokens, *map(_normalization(backend), tokens)}
    others = [step for step in state["normalizers"] if not _is_of(step, ours)]
    if len(others) < len(state["normalizers"]):
        normalizer = others[0] if len(others) == 1 else {"type": "Sequence", "normalizers": others}
        # A normaliser can be made of its description only within a tokenizer.
        blank = json.loads(Tokenizer(WordLevel({}, unk_token="")).to_str())
        backend.normalizer = Tokenizer.from_str(json.dumps(blank | {"normalizer": normalizer})).normalizer


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
        yield whole_pattern(name, normalize) + KEEP, behind
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
