"""Rendering: what the model reads, and where the span then is."""

import pytest

from train.encoder.prompts import Prompts
from train.requests import Request, find_span


def test_span_moves_with_the_prompt() -> None:
    prompts = Prompts(query="query: ")
    text, span = prompts.render(Request("He broke the ice.", (3, 16), role="query", pooling="span"))
    assert text == "query: He broke the ice."
    assert span is not None
    assert text[slice(*span)] == "broke the ice"


def test_with_an_instruction_the_span_is_the_one_in_the_query() -> None:
    instruction = "Find the meaning of 'broke the ice' in {braces} and {query}."
    request = Request("He broke the ice.", (3, 16), "query", instruction, "span")
    text, span = Prompts(query="query: ").render(request)
    assert text == f"Instruct: {instruction}\nQuery: He broke the ice."
    assert span is not None
    assert text[slice(*span)] == "broke the ice"
    assert span[0] == text.rindex("broke the ice")


def test_template_with_the_query_first() -> None:
    prompts = Prompts(instruction="{query} || {instruction}")
    text, span = prompts.render(Request("a b", (2, 3), "query", "do", "span"))
    assert (text, span) == ("a b || do", (2, 3))


def test_a_model_that_knows_one_instruction_alone() -> None:
    prompts = Prompts(instruction="search_query: {query}")
    text, span = prompts.render(Request("a b", (2, 3), "query", "do", "span"))
    assert (text, span) == ("search_query: a b", (16, 17))


@pytest.mark.parametrize(
    "template", ["", "{instruction}", "{query} {query}", "{query} {instruction} {instruction}"]
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
