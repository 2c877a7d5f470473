"""Expressions in sentences: inflected, capitalised, hyphenated; and not where they only seem to be."""

from __future__ import annotations

import csv
import unicodedata
from pathlib import Path

import pytest

from train.data.idioms import ExpressionIndex, find_expression, inflections
from train.data.semeval2022 import FOLDER, TRAIN_FILE


@pytest.mark.parametrize(
    ("expression", "text", "stands_as"),
    [
        ("spill the beans", "She spilled the beans.", "spilled the beans"),
        ("spill the beans", "Who spilt the beans?", "spilt the beans"),
        ("make waves", "It is making waves again.", "making waves"),
        ("make waves", "He made waves.", "made waves"),
        ("carry the can", "He carries the can.", "carries the can"),
        ("carry the can", "He carried the can.", "carried the can"),
        ("rock the boat", "Don't Rock the Boat!", "Rock the Boat"),
        ("hit the road", "We were hitting the road.", "hitting the road"),
        ("tie the knot", "They are tying the knot.", "tying the knot"),
        ("take the cake", "That takes the cake.", "takes the cake"),
        ("take the cake", "It has taken the cake.", "taken the cake"),
        ("go to town", "They went to town on it.", "went to town"),
        ("guilt trip", "He guilt-tripped her.", "guilt-tripped"),
        ("baby blues", "the baby blues", "baby blues"),
        ("case study", "Two case studies.", "case studies"),
        ("contact lens", "my contact lenses", "contact lenses"),
        ("best man", "both best men", "best men"),
        ("loose leaf", "loose leaves", "loose leaves"),
        ("home run", "It was a HOME-RUN.", "HOME-RUN"),
        ("home run", "a home\u2011run", "home\u2011run"),
        ("home run", "a home  \n run", "home  \n run"),
        ("home run", "“home run”", "home run"),
        ("alto-falante", "um alto falante", "alto falante"),
        ("alto-falante", "dois Altos-Falantes", "Altos-Falantes"),
        ("rede social", "redes sociais", "redes sociais"),
        ("papel higiênico", "papéis higiênicos", "papéis higiênicos"),
        ("ar condicionado", "ares condicionados", "ares condicionados"),
        ("salão paroquial", "salões paroquiais", "salões paroquiais"),
        ("pé-frio", "uns pés-frios", "pés-frios"),
        ("luz verde", "luces verdes", "luces verdes"),
        ("devil's advocate", "a devil’s advocate", "devil’s advocate"),
        ("sacred cow", "the sacred cow's milk", "sacred cow"),
        ("pão-duro", unicodedata.normalize("NFD", "Que pão-duro!"), unicodedata.normalize("NFD", "pão-duro")),
        ("what's up?", "So what's up?", "what's up"),
    ],
)
def test_found_as_people_write_it(expression: str, text: str, stands_as: str) -> None:
    start = text.index(stands_as)
    assert find_expression(text, expression) == (start, start + len(stands_as))
    assert ExpressionIndex([expression]).find(text) == [(start, start + len(stands_as), expression)]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("in the bag", "There is air in the bagpipe."),
        ("in the bag", "She lost it in the baggage hall."),
        ("in the bag", "He slept in the bagged leaves."),  # no participle after "the"
        ("in the can", "She works in the canning factory."),
        ("in the can", "It was within the can."),
        ("con artist", "a cone artist"),
        ("big fish", "a bigger fish"),
        ("big fish", "a big fishmonger"),
        ("car park", "the carpet parks"),
        ("spill the beans", "Spill all the beans."),
        ("end user", "That is the end – user rights are next."),
        ("end user", "in the end, user rights"),
        ("on paper", "once paper was cheap"),
        ("not a chance", "not as chance had it"),
        ("ponto forte", "uma ponta forte"),
        ("home run", "homerun"),
        ("cafe society", unicodedata.normalize("NFD", "café society")),
        ("old cafe", unicodedata.normalize("NFD", "old café")),
    ],
)
def test_not_found_in_other_words(expression: str, text: str) -> None:
    assert find_expression(text, expression) is None
    assert ExpressionIndex([expression]).find(text) == []


def test_inflections_by_hand() -> None:
    assert set(inflections("carry")) == {"carry", "carrys", "carries", "carried", "carrying"}
    assert set(inflections("Bag", as_verb=False)) == {"bag", "bags"}
    assert inflections("the") == ["the"]
    assert {"took", "taken", "taking", "takes"} <= set(inflections("take"))


def test_of_several_expressions_the_first_and_there_the_longest_counts() -> None:
    index = ExpressionIndex(["big fish", "fish story", "big fish story", "home run"])
    text = "A big fish story, a fish story, two home-runs and a Big Fish."
    found = [(text[start:end], expression) for start, end, expression in index.find(text)]
    assert found == [
        ("big fish story", "big fish story"),
        ("fish story", "fish story"),
        ("home-runs", "home run"),
        ("Big Fish", "big fish"),
    ]


def test_an_expression_without_letters_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'\.\.\.' holds no letter or digit"):
        find_expression("...", "...")


def test_every_expression_of_the_real_training_rows_is_found(real_data: Path) -> None:
    """In all 6,572 rows, also in the 272 where it stands only inside a longer, inflected word."""
    with (real_data / FOLDER / TRAIN_FILE).open(encoding="utf-8", newline="") as file:
        rows = [(row["sentence_1"], row["MWE1"]) for row in csv.DictReader(file)]
    assert len(rows) == 6572
    num_inflected = 0
    for sentence, expression in rows:
        found = find_expression(sentence, expression)
        assert found is not None, (sentence, expression)
        padded = f" {sentence.lower()} "
        places = [i for i in range(len(padded)) if padded.startswith(expression.lower(), i)]
        ends = [(padded[i - 1], padded[i + len(expression)]) for i in places]
        num_inflected += not any(not a.isalnum() and not b.isalnum() for a, b in ends)
    assert num_inflected == 272


def test_an_index_finds_in_the_real_rows_what_a_search_for_each_finds(real_data: Path) -> None:
    with (real_data / FOLDER / TRAIN_FILE).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expressions = sorted({row["MWE1"] for row in rows})
    index = ExpressionIndex(expressions)
    for text in sorted({row["sentence_2"] for row in rows})[::40]:
        ours = {expression for _, _, expression in index.find(text)}
        naive = {e for e in expressions if find_expression(text, e)}
        assert ours <= naive
        assert bool(ours) == bool(naive)
