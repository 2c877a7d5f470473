"""What people give `Encoder.encode` and `Encoder.similarity`, checked."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, get_args

import numpy as np
import torch
from torch import Tensor

from train.errors import UserError
from train.io.progress import Advance, progress_bar
from train.requests import Request, Role, find_span

Span = tuple[int, int]
Spans = Sequence[str | Span | None] | None


class EncodeOptions(TypedDict, total=False):
    """Options of `Encoder.encode` that do not change the type of what it returns."""

    role: Role
    instruction: str | None
    batch_size: int | None
    show_progress_bar: bool


def requests_for(
    texts: Iterable[str], spans: Spans, role: Role, instruction: str | None, batch_size: int | None
) -> list[Request]:
    """A request for each text, or for its span: see :meth:`~train.encoder.encoder.Encoder.encode`.

    Raises:
        TypeError, ValueError, UserError: naming the argument that is wrong, and what it takes.
    """
    texts = _listed("texts", "one text a row", texts)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts: expected a list of strings, but text {i} is {_shown(text)}")
    if role not in get_args(Role):
        near = difflib.get_close_matches(str(role), get_args(Role), n=1)
        guess = f": did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"role: expected 'query' or 'document', got {role!r}{guess}")
    if not isinstance(instruction, str | None):
        raise TypeError(
            f"instruction: expected one string, which holds for all texts, got {_shown(instruction)}"
        )
    if batch_size is not None and (not isinstance(batch_size, int | np.integer) or batch_size < 1):
        raise ValueError(f"batch_size: expected a number of texts, 1 or more, got {batch_size!r}")
    places = (
        [None] * len(texts) if spans is None else _places(texts, _listed("spans", "one span a text", spans))
    )
    return [
        Request(
            text,
            place,
            role="query" if instruction is not None else role,
            instruction=instruction,
            pooling="sentence" if place is None else "span",
        )
        for text, place in zip(texts, places, strict=True)
    ]


def compared_embeddings(first: Any, second: Any) -> tuple[Tensor, Tensor]:
    """(N, D) and (M, D), on the CPU, the second the first where it is None; one embedding may be (D,).

    Raises:
        TypeError, ValueError: if they are no embeddings, or of different length.
    """
    a = _embeddings("first", first)
    b = a if second is None else _embeddings("second", second)
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"embeddings of {a.shape[1]} and of {b.shape[1]} dimensions cannot be compared")
    return a, b


@contextmanager
def shown_progress(requests: Sequence[Request], *, show: bool) -> Iterator[Advance | None]:
    """A bar over the texts, on a terminal."""
    if not (show and sys.stderr.isatty()):
        yield None
        return
    with progress_bar("embedding", len({request.text for request in requests})) as advance:
        yield advance


def _embeddings(name: str, given: Any) -> Tensor:
    if isinstance(given, np.ndarray) and given.dtype.kind == "f":
        given = torch.from_numpy(given)
    if not isinstance(given, Tensor):
        raise TypeError(f"{name}: expected embeddings, as encode gives them, got {_shown(given)}")
    if given.dim() not in (1, 2):
        raise ValueError(f"{name}: expected embeddings (N, D), got the shape {tuple(given.shape)}")
    return given.float().cpu().reshape(-1, given.shape[-1])


def _listed(name: str, of: str, given: Any) -> list[Any]:
    """A list, or what can be one; a string or a table is none."""
    is_table = isinstance(given, Mapping) or hasattr(given, "columns")  # the latter would give their names
    if is_table or isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{name}: expected a list, {of}, got {_shown(given)}")
    return list(given)


def _places(texts: Sequence[str], spans: Sequence[Any]) -> list[Span | None]:
    if len(spans) != len(texts):
        raise ValueError(f"{len(texts)} texts but {len(spans)} spans: give one span a text")
    return [_place(i, text, span) for i, (text, span) in enumerate(zip(texts, spans, strict=True))]


def _place(i: int, text: str, span: Any) -> Span | None:
    """The span of text `i` as character offsets."""
    if span is None:
        return None
    if isinstance(span, str):
        found = find_span(text, span)
        if found is None:
            raise UserError(f"span {span!r} is not in text {i}: {text!r}")
        return found
    try:
        start, end = (int(offset) for offset in span)
        if (start, end) != tuple(span):
            raise ValueError
    except (TypeError, ValueError):
        raise TypeError(f"span {i}: expected words, or offsets (start, end), got {_shown(span)}") from None
    if not 0 <= start < end <= len(text):
        raise UserError(
            f"span ({start}, {end}) is not in text {i}, which has {len(text)} characters: {text!r}"
        )
    return start, end


def _shown(value: Any) -> str:
    return f"the {type(value).__name__} {str(value)[:60]!r}"
