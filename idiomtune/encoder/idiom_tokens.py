"""Idiom tokens: an expression in a text becomes one token `ID…ID`, which the model learns as a unit."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from tokenizers import AddedToken, Tokenizer
from tokenizers.pre_tokenizers import Metaspace
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from idiomtune.errors import UserError
from idiomtune.expressions import (
    ExpressionIndex,
    Forms,
    Normalize,
    Span,
    expression_words,
    move_span,
    plain_expression,
    rewrite,
)
from idiomtune.io.files import list_names, read_text, text_lines, write_json

FILE = "idiom_tokens.json"
_FORMAT = 1
_SIGNS = "+#%@$"
_INITIALIZER_RANGE = 0.02  # where a checkpoint's configuration has none

TokenStart = Literal["pieces", "random"]


class IdiomTokens:
    """The expressions that a model reads as one token each, and their replacement in texts.

    Of an expression with a placeholder only the fixed words are replaced: "took the voters for a ride"
    becomes "IDtakesomeoneforarideID the voters". The object is not a part of the idiom; inside the token it
    would be lost to the embedding, and with it what distinguishes two sentences with one idiom. The token
    takes the place of the first words, which keeps the order of verb and object.

    Args:
        expressions: token → the expressions that it stands for.
        replace: whether expressions in texts are replaced; otherwise the tokens are not used.
        forms: expression → its inflected forms, where a dictionary gives them.

    Attributes:
        token_of: expression → the token that stands for it.
    """

    def __init__(
        self, expressions: Mapping[str, Sequence[str]], *, replace: bool = True, forms: Forms | None = None
    ) -> None:
        self.expressions = {token: list(names) for token, names in expressions.items()}
        self.replace = replace
        self.token_of = {name: token for token, names in self.expressions.items() for name in names}
        self.forms = {name: list(of_name) for name, of_name in (forms or {}).items() if name in self.token_of}
        self._index = ExpressionIndex(self.token_of, self.forms)

    def replace_expressions(self, text: str, span: Span | None = None) -> tuple[str, Span | None]:
        """The text with a token for each known expression, and the span moved to its new offsets.

        A span keeps its words. If it touches a replaced expression, it includes the whole token and, for an
        expression in two pieces, what is between them, unless the span is entirely in the second piece.
        """
        matches = self._index.find_runs(text) if self.replace else []
        if not matches:
            return text, span
        firsts = [(*runs[0], self.token_of[name]) for runs, name in matches]
        # Start and end of what is removed with the space before it, and where its expression begins.
        rest = sorted(
            (_before_gap(text, start), end, runs[0][0]) for runs, _ in matches for start, end in runs[1:]
        )
        new, edits = rewrite(text, sorted([*firsts, *((start, end, "") for start, end, _ in rest)]))
        if span is None:
            return new, None
        new_span = move_span(span, edits)
        tokens = {edit.start: edit[2:] for edit in edits}
        for start, end, first in rest:
            token = tokens[first]
            if start + 1 < span[1] and span[0] < end:
                if start <= span[0] and span[1] <= end:  # of its second piece alone
                    return new, token
                new_span = min(new_span[0], token[0]), max(new_span[1], token[1])
        return new, new_span

    def in_text(self, text: str) -> set[str]:
        """The tokens of the expressions in a text."""
        return {self.token_of[name] for _, _, name in self._index.find(text)}

    def drop(self, expressions: Iterable[str]) -> IdiomTokens | None:
        """Without these expressions; None if no other is left. Case and hyphens do not matter."""
        gone = {plain_expression(name) for name in expressions}
        others: dict[str, list[str]] = {}
        for name, token in self.token_of.items():
            if plain_expression(name) not in gone:
                others.setdefault(token, []).append(name)
        return IdiomTokens(others, replace=self.replace, forms=self.forms) if others else None

    def describe(self, sentences: Iterable[tuple[str, str]]) -> list[str]:
        """For the log: the number of training sentences without their expression.

        Args:
            sentences: (expression, training sentence).

        Returns:
            A line with the counts, and one on tokens that no sentence holds, if there are any.
        """
        token_by_name = {token_name(name): token for name, token in self.token_of.items()}
        missing: Counter[str] = Counter()
        unseen = dict.fromkeys(self.expressions)
        num_known = 0
        for name, text in sentences:
            expected, tokens = token_by_name.get(token_name(name)), self.in_text(text)
            num_known += expected is not None
            missing.update([name] if expected is not None and expected not in tokens else [])
            for token in tokens:
                unseen.pop(token, None)
        names = list_names([f"{name} ({count})" for name, count in missing.most_common()])
        lines = [
            f"idiom tokens: {len(self.token_of)} expressions have {len(self.expressions)} tokens; of "
            f"{num_known} training sentences with one of them it was not found in {missing.total()}"
            + (f": {names}" if missing else "")
        ]
        if unseen:
            names = list_names([self.expressions[token][0] for token in unseen])
            lines.append(f"idiom tokens: in no training sentence, so not trained: {names}")
        return lines

    def save(self, folder: str | Path) -> None:
        """Write `idiom_tokens.json`: what :func:`saved_idiom_tokens` reads."""
        content = {"format": _FORMAT, "replace": self.replace, "expressions": self.expressions}
        write_json(Path(folder) / FILE, content | ({"forms": self.forms} if self.forms else {}))


def saved_idiom_tokens(content: dict[str, Any], vocabulary: Container[str]) -> IdiomTokens:
    """The idiom tokens that a checkpoint was saved with.

    Args:
        content: of its file.
        vocabulary: the tokens that its tokenizer has.

    Raises:
        ValueError, KeyError, TypeError: if the file is damaged, or names tokens that the tokenizer lacks.
    """
    if content["format"] != _FORMAT:
        raise ValueError(f"format {content['format']}, expected {_FORMAT}")
    forms = content.get("forms", {})
    idioms = IdiomTokens(content["expressions"], replace=content["replace"], forms=forms)
    if missing := [token for token in idioms.expressions if token not in vocabulary]:
        raise ValueError(f"the tokenizer has no token {list_names(missing)}")
    return idioms


def add_idiom_tokens(
    model: SentenceTransformer,
    present: IdiomTokens | None,
    expressions: Iterable[str],
    *,
    start: TokenStart = "pieces",
    seed: int = 0,
    forms: Forms | None = None,
) -> IdiomTokens:
    """Give each expression a token, in the tokenizer and in the embedding matrix.

    Expressions that differ only in case, spaces, hyphens and other punctuation (or in accents that the
    tokenizer drops) share a token.

    Args:
        model: gets the new tokens; those that it has stay as they are.
        present: its idiom tokens.
        expressions: as a dictionary lists them.
        start: a new embedding is the mean of those of the expression's word pieces (`pieces`), or drawn
            from a normal distribution with mean 0 and the checkpoint's `initializer_range` (`random`).
        seed: of what is drawn.
        forms: as for :class:`IdiomTokens`.

    Returns:
        All its idiom tokens.

    Raises:
        UserError: if one of them holds no letter or digit, or the tokenizer would not read a token as one.
    """
    tokenizer: PreTrainedTokenizerBase = model.tokenizer
    transformer: PreTrainedModel = model[0].auto_model
    normalize = normalization(tokenizer.backend_tokenizer)
    groups = {token: list(names) for token, names in present.expressions.items()} if present else {}
    by_normal = {normalize(token): token for token in groups}
    pieces: dict[str, list[int]] = {}
    for expression in dict.fromkeys(expressions):
        name = token_name(expression)
        token = by_normal.setdefault(normalize(name), name)
        if token not in groups:
            pieces[token] = tokenizer(expression, add_special_tokens=False)["input_ids"]
        if expression not in groups.setdefault(token, []):
            groups[token].append(expression)

    splitter = tokenizer.backend_tokenizer.pre_tokenizer
    if isinstance(splitter, Metaspace):  # else a full stop after a token is read as if a blank were before it
        splitter.prepend_scheme = "first"
    old = tokenizer.get_vocab()
    # Matched in the text before normalisation, unless that lower-cases: then in both, so that an uncased
    # model still reads capitals as lower case.
    uncased = "ID" not in normalize("ID")
    # Byte-level and sentence-piece tokenizers make a separate piece of a space before an added token.
    lstrip = len(tokenizer.tokenize("a ")) > len(tokenizer.tokenize("a"))
    tokenizer.add_tokens([AddedToken(t, normalized=uncased, lstrip=lstrip) for t in pieces if t not in old])
    vocabulary = tokenizer.get_vocab()
    for token in pieces:
        id_ = vocabulary.get(token)
        # At a start, within a sentence, in quotes and before punctuation.
        if id_ is None or tokenizer(f"{token} a {token} ({token}).")["input_ids"].count(id_) != 3:
            message = f"the tokenizer ({type(tokenizer).__name__}) does not read the new {token} as one token"
            raise UserError(message, option="model.idiom_tokens")
    ids = {token: vocabulary[token] for token in pieces if token not in old}
    rows = transformer.get_input_embeddings().weight.shape[0]
    if (needed := max(ids.values(), default=-1) + 1) > rows:
        transformer.resize_token_embeddings(needed, mean_resizing=False)
    weight = transformer.get_input_embeddings().weight.detach()
    spread = getattr(transformer.config, "initializer_range", _INITIALIZER_RANGE)
    generator = torch.Generator().manual_seed(seed)  # on the CPU, so that every device has the same
    for token, id_ in ids.items():
        if start == "random":
            weight[id_] = spread * torch.randn(weight.shape[1], generator=generator).to(weight)
        else:
            weight[id_] = weight[pieces[token]].mean(0)
    all_forms = (present.forms if present else {}) | dict(forms or {})
    return IdiomTokens(groups, replace=present.replace if present else True, forms=all_forms)


def normalization(tokenizer: Tokenizer) -> Normalize:
    """The tokenizer's normalisation of a text: texts with equal results are one text to it."""
    normalizer = tokenizer.normalizer
    return str if normalizer is None else normalizer.normalize_str


def token_name(expression: str) -> str:
    """`IDhomerunID` for "home run": its letters and digits in lower case.

    Signs that tell names apart, as in "C", "C++" and "C#", are written by their code points.

    Raises:
        UserError: if it has no letter or digit.
    """
    letters = unicodedata.normalize("NFC", expression).lower()
    readable = [c for c in letters if c in _SIGNS or unicodedata.category(c)[0] in "LNM"]
    if set(readable) <= set(_SIGNS):
        message = f"{expression!r} contains no letter or digit, so it cannot be an expression"
        raise UserError(message, option="model.idiom_tokens")
    name = "".join(f"x{ord(c):02x}" if c in _SIGNS else c for c in readable)
    # The only point that tells a name apart is one before it: ".NET".
    return f"IDx2e{name}ID" if re.match(r"\W*(?<!\.)\.\w", letters) else f"ID{name}ID"


def read_expressions(path: Path) -> list[str]:
    """The expressions of a text file, one a line; empty lines are ignored.

    Raises:
        UserError: if it cannot be read, or names no expression or one without a letter or digit.
    """
    expressions = []
    for number, line in enumerate(text_lines(read_text(path)), 1):
        if line.strip():
            try:
                expression_words(line)
            except ValueError as error:
                raise UserError(str(error), file=path, row=f"line {number}") from None
            expressions.append(line.strip())
    if not expressions:
        raise UserError("names no expression; one per line is expected", file=path)
    return expressions


def _before_gap(text: str, start: int) -> int:
    """Offset of the space or hyphen before a word."""
    before = len(text[:start].rstrip())
    return before if before < start else start - 1
