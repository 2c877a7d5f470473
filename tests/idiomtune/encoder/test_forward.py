"""What is read of a request, forward batches and pooling, by hand."""

import pytest
import torch

from idiomtune import Encoder
from idiomtune.encoder.forward import (
    ForwardBatch,
    PooledSpan,
    layer_features,
    split_batches,
)
from idiomtune.encoder.reading import Prompts, is_truncated
from idiomtune.requests import EmbeddingRequest, find_span

INSTRUCTION = "Find the meaning of 'broke the ice' in {braces} and {query}."


def test_the_span_is_the_one_in_the_query() -> None:
    for prompts, instruction, read in (
        (Prompts(query="query: "), None, "query: He broke the ice."),
        (Prompts(query="query: "), INSTRUCTION, f"Instruct: {INSTRUCTION}\nQuery: He broke the ice."),
        (Prompts(instruction="{query} || {instruction}"), "do", "He broke the ice. || do"),
    ):
        text, span = prompts.render(
            EmbeddingRequest("He broke the ice.", (3, 16), "query", instruction, "span")
        )
        assert text == read
        assert span == (read.rindex("broke the ice"), read.rindex("broke the ice") + 13)


def test_a_template_without_the_query_is_refused() -> None:
    for template in ("{instruction}", "{query} {query}", "{query} {instruction} {instruction}"):
        with pytest.raises(ValueError, match="query"):
            Prompts(instruction=template)


def test_find_span() -> None:
    for text, span, expected in (
        ("The party loved art.", "art", (16, 19)),  # not the one inside "party"
        ("The party left.", "art", (5, 8)),  # nowhere as a word: inside one
        ("“ice” on ice", "ice", (1, 4)),  # repeated: the first
        ("nothing", "", None),
    ):
        assert find_span(text, span) == expected


def test_texts_are_cut_by_their_padded_size() -> None:
    for lengths, budget, min_batches, batch_size, expected in (
        ([300] * 3, 10_000, 2, None, [[0], [1], [2]]),  # of 450 tokens a batch, but 512 are worth one
        ([100] * 6, 10_000, 9, None, [[0, 1, 2, 3, 4], [5]]),  # of 512 tokens at least
        ([300] * 4, 10_000, 1, 3, [[0, 1, 2], [3]]),
        ([10, 30, 20], 60, 1, None, [[1, 2], [0]]),  # the longest first, padded to its length
    ):
        assert split_batches(lengths, budget, min_batches, batch_size) == expected


def test_what_layers_say_of_a_usage() -> None:
    """The text, the expression (its second token) and what surrounds it; the fourth token is padding."""
    hidden = torch.tensor([[[1.0, 0.01], [0, 1], [1, 0.01], [9, 9]]])
    batch = ForwardBatch([[1, 2, 3]], [], [], layer_spans=[PooledSpan(0, 0, [1])])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer_features([hidden], batch)
    parts = torch.tensor([[2, 1.02], [0, 1], [2, 0.02]])
    expected = torch.nn.functional.normalize(parts, dim=1).view(1, 6)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_what_is_not_read_of_a_text(tiny: Encoder) -> None:
    """Nothing, without a limit or within it; blanks after the last token are nothing."""
    text = "He broke the ice there."
    (tokens,) = tiny.reader.tokenizer([text])
    number, (_, end) = len(tokens.input_ids), max(tokens.offsets, key=lambda offsets: offsets[1])
    assert end == len(text)
    assert not is_truncated(text, tokens, None)
    assert not is_truncated(f"{text} More.", tokens, number + 1)
    assert is_truncated(f"{text} More.", tokens, number)
    assert not is_truncated(f"{text} \n", tokens, number)
    requests = [EmbeddingRequest("He broke the ice."), EmbeddingRequest("ice " * 600)]
    tiny.forward_batches(requests)
    truncated = tiny.truncated
    assert truncated == {requests[1]}
