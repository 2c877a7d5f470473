"""Arguments of an encoder's methods, checked: texts and spans as requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from math import isnan
from numbers import Integral
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from idiomtune.errors import ArgumentTypeError, ArgumentValueError, UserError
from idiomtune.expressions import Span, find_expression
from idiomtune.io.files import checked_count, checked_text, describe_type, has_lone_surrogate, one_line
from idiomtune.requests import EmbeddingRequest, Role, find_span

Spans = Sequence[str | Span | None] | None


def requests_for(
    texts: Iterable[str],
    spans: object = None,
    role: Role = "document",
    instruction: str | None = None,
    batch_size: int | None = None,
    *,
    names: tuple[str, str] = ("texts", "spans"),
) -> list[EmbeddingRequest]:
    """A request for each text, or for its span: see :meth:`~idiomtune.encoder.encoder.Encoder.encode`.

    Args:
        names: what the caller calls the texts and the spans.

    Raises:
        TypeError, ValueError, UserError: naming the wrong argument and what is allowed.
    """
    texts = checked_texts(names[0], texts)
    given_spans = [None] * len(texts) if spans is None else optional_list(names[1], spans)
    if len(given_spans) != len(texts):
        message = f"{len(texts)} texts but {len(given_spans)} {names[1]}: give one for each text"
        raise ArgumentValueError(message, option=names[1])
    if not isinstance(role, str) or role not in get_args(Role):
        raise ArgumentValueError(f"expected 'query' or 'document', got {describe_type(role)}", option="role")
    if instruction is not None:
        role, instruction = "query", checked_text(instruction, "instruction")
    if batch_size is not None:
        checked_count(batch_size, "batch_size")
    requests = []
    for i, (text, given_span) in enumerate(zip(texts, given_spans, strict=True)):
        span = None if given_span is None else _span(i, text, given_span, names[1])
        requests.append(
            EmbeddingRequest(text, span, role, instruction, "sentence" if span is None else "span")
        )
    return requests


def find_words(text: str, words: str) -> Span | None:
    """The first occurrence of words, or of an expression as a dictionary has it."""
    return find_span(text, words) or (find_expression(text, words) if words.strip() else None)


def text_list(name: str, values: object) -> list[Any]:
    """The elements of a list, a generator, an array, or a column of a table.

    Iterating a table would give the names of its columns, or rows.
    """
    if convert := getattr(values, "tolist", None) or getattr(values, "to_pylist", None):
        values = convert()  # of NumPy, torch, pandas; of Arrow: elements are Python's
    is_table = isinstance(values, Mapping) or hasattr(values, "columns") or hasattr(values, "column_names")
    if is_table or isinstance(values, str | bytes | Set) or not isinstance(values, Iterable):
        expected = "a list with one element per text" + " (of a table, one column)" * is_table
        raise type_error(name, expected, values)
    return list(values)


def optional_list(name: str, values: object) -> list[Any]:
    """As :func:`text_list`; NaN, which pandas has for a missing value, is None."""
    return [None if isinstance(value, float) and isnan(value) else value for value in text_list(name, values)]


def checked_texts(name: str, values: object) -> list[str]:
    """As :func:`text_list`, of texts.

    Raises:
        TypeError, ValueError: naming the first element that is no text.
    """
    texts = []
    for i, text in enumerate(text_list(name, values)):
        if not isinstance(text, str):
            raise type_error(name, "a string", text, f"text {i}: ")
        if has_lone_surrogate(text):
            raise ArgumentValueError(f"text {i}: is no valid Unicode: {text[:60]!a}", option=name)
        texts.append(str(text))  # of NumPy, or of an enumeration
    return texts


def embeddings_or_requests(
    name: str,
    values: Iterable[str] | Tensor | NDArray[np.float32],
    spans: object = None,
    role: Role = "document",
    *,
    span_name: str = "span",
) -> Tensor | list[EmbeddingRequest]:
    """Embeddings (N, D), float32, on the CPU, of which one may be (D,); of texts their requests.

    Args:
        name: what the caller calls the values; `span_name`: the spans.

    Raises:
        TypeError, ValueError, UserError: as :func:`requests_for`; if an embedding is not finite.
    """
    if isinstance(values, np.ndarray) and values.dtype.kind == "f" and values.size:
        values = torch.from_numpy(values)
    if not isinstance(values, Tensor):
        return requests_for(values, spans, role, names=(name, span_name))
    if spans is not None:
        raise ArgumentValueError(f"needs texts, and {name} has embeddings", option=span_name)
    if values.dim() not in (1, 2) or not values.shape[-1]:
        raise type_error(name, "texts, or embeddings as encode gives them", values)
    embeddings = values.float().cpu().reshape(-1, values.shape[-1])
    check_finite(name, embeddings)
    return embeddings


def check_finite(name: str, embeddings: Tensor, texts: Sequence[str] = ()) -> None:
    """Raises ValueError for an embedding that is not finite, naming it, or its text."""
    is_wrong = ~embeddings.isfinite().all(dim=1)  # (N,)
    if is_wrong.any():
        i = int(is_wrong.int().argmax())
        label = f"text {i} ({one_line(texts[i][:60])!r})" if texts else f"embedding {i}"
        message = f"{label} has NaN or infinity in its embedding ({int(is_wrong.sum())} of {len(is_wrong)})"
        raise ArgumentValueError(message, option=name)


def type_error(option: str, expected: str, value: object, prefix: str = "") -> ArgumentTypeError:
    """The error of an argument of another kind; `prefix` says which of its parts."""
    return ArgumentTypeError(f"{prefix}expected {expected}, got {describe_type(value)}", option=option)


def _span(i: int, text: str, span: object, option: str) -> Span:
    """The span of text `i` as character offsets."""
    if isinstance(span, str):
        if (match := find_words(text, span)) is None:
            raise UserError(f"span {span!r} is not in text {i}: {text!r}", option=option)
        return match
    match span:
        case [Integral() as first, Integral() as last]:
            start, end = int(first), int(last)
        case _:
            raise type_error(option, "words, or offsets (start, end)", span, f"span {i}: ")
    if not (0 <= start < end <= len(text) and text[start:end].strip()):
        problem = f"holds no words of text {i} of {len(text)} characters"
        raise UserError(f"span ({start}, {end}) {problem}: {text!r}", option=option)
    return start, end
