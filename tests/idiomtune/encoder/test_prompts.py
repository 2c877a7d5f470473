"""Rendering: what the model reads, and where the span then is."""

import pytest

from idiomtune.encoder.reading import Prompts
from idiomtune.requests import Request, find_span

INSTRUCTION = "Find the meaning of 'broke the ice' in {braces} and {query}."


@pytest.mark.parametrize(
    ("prompts", "instruction", "read"),
    [
        (Prompts(query="query: "), None, "query: He broke the ice."),
        (Prompts(query="query: "), INSTRUCTION, f"Instruct: {INSTRUCTION}\nQuery: He broke the ice."),
        (Prompts(instruction="{query} || {instruction}"), "do", "He broke the ice. || do"),
        (Prompts(instruction="search_query: {query}"), "do", "search_query: He broke the ice."),
    ],
)
def test_the_span_is_the_one_in_the_query(prompts: Prompts, instruction: str | None, read: str) -> None:
    text, span = prompts.render(Request("He broke the ice.", (3, 16), "query", instruction, "span"))
    assert text == read
    assert span == (read.rindex("broke the ice"), read.rindex("broke the ice") + 13)


@pytest.mark.parametrize(
    "template", ["{instruction}", "{query} {query}", "{query} {instruction} {instruction}"]
)
def test_template_without_the_query_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="exactly once"):
        Prompts(instruction=template)


@pytest.mark.parametrize(
    ("text", "span", "expected"),
    [
        ("The party loved art.", "art", (16, 19)),  # not the one inside "party"
        ("The party left.", "art", (5, 8)),  # nowhere as a word: inside one
        ("ice on ice", "ice", (0, 3)),  # repeated: the first
        ("They’re “in the bag”", "in the bag", (9, 19)),
        ("nothing", "ice", None),
        ("nothing", "", None),
    ],
)
def test_find_span(text: str, span: str, expected: tuple[int, int] | None) -> None:
    assert find_span(text, span) == expected
