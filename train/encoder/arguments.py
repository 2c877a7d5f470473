"""What people give `Encoder.encode` and `Encoder.similarity`, checked."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, get_args

import numpy as np
import torch
from torch import Tensor

from train.encoder.rewriting import Span
from train.errors import UserError
from train.io.progress import Advance, progress_bar
from train.requests import Request, Role, find_span

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
    texts = _listed("texts", texts)
    places = [None] * len(texts) if spans is None else _listed("spans", spans)
    if len(places) != len(texts):
        raise ValueError(f"{len(texts)} texts but {len(places)} spans: give one span a text")
    if role not in get_args(Role):
        raise ValueError(f"role: expected 'query' or 'document', got {role!r}")
    if not isinstance(instruction, str | None):
        raise _type_error("instruction", "one string, which holds for all texts", instruction)
    if batch_size is not None and (not isinstance(batch_size, int | np.integer) or batch_size < 1):
        raise ValueError(f"batch_size: expected a number of texts, 1 or more, got {batch_size!r}")
    requests = []
    for i, (text, place) in enumerate(zip(texts, places, strict=True)):
        if not isinstance(text, str):
            raise _type_error(f"text {i}", "a string", text)
        requests.append(
            Request(
                text,
                None if place is None else _span(i, text, place),
                role="query" if instruction is not None else role,
                instruction=instruction,
                pooling="sentence" if place is None else "span",
            )
        )
    return requests


def compared_embeddings(first: Any, second: Any) -> tuple[Tensor, Tensor]:
    """(N, D) and (M, D), on the CPU, the second the first where it is None; one embedding may be (D,).

    Raises:
        TypeError, ValueError: if they are not embeddings, or differ in length.
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
        raise _type_error(name, "embeddings, as encode gives them", given)
    if given.dim() not in (1, 2):
        raise ValueError(f"{name}: expected embeddings (N, D), got the shape {tuple(given.shape)}")
    return given.float().cpu().reshape(-1, given.shape[-1])


def _listed(name: str, given: Any) -> list[Any]:
    """A list, or what can become one; iterating a table would give the names of its columns."""
    is_table = isinstance(given, Mapping) or hasattr(given, "columns")
    if is_table or isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise _type_error(name, "a list, with one element a text", given)
    return list(given)


def _span(i: int, text: str, given: Any) -> Span:
    """The span of text `i` as character offsets."""
    if isinstance(given, str):
        place = find_span(text, given)
        if place is None:
            raise UserError(f"span {given!r} is not in text {i}: {text!r}")
        return place
    try:
        start, end = (int(offset) for offset in given)
        is_whole = (start, end) == tuple(given)
    except (TypeError, ValueError):
        is_whole = False
    if not is_whole:
        raise _type_error(f"span {i}", "words, or offsets (start, end)", given)
    if not 0 <= start < end <= len(text):
        raise UserError(
            f"span ({start}, {end}) is not in text {i}, which has {len(text)} characters: {text!r}"
        )
    return start, end


def _type_error(name: str, expected: str, given: Any) -> TypeError:
    return TypeError(f"{name}: expected {expected}, got the {type(given).__name__} {str(given)[:60]!r}")
