"""Expressions in sentences: inflected, capitalised, hyphenated; and not where they only seem to be."""

from __future__ import annotations

import csv
import pickle
import unicodedata
from pathlib import Path

import pytest
from tokenizers import Regex, normalizers

from idiomtune.data.semeval2022 import FOLDER, TRAIN_FILE
from idiomtune.encoder.idiom_tokens import IdiomTokens, token_name
from idiomtune.expressions import (
    ExpressionIndex,
    expression_pattern,
    expression_words,
    find_expression,
    find_with_adjectives,
    has_placeholder,
    inflections,
    move_span,
    replacements,
    rewrite,
)


def decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


# Expression → texts in which it is between brackets, or in which it is not.
TEXTS: dict[str, list[str]] = {
    "make waves": ["It is [making waves] again."],
    "carry the can": ["He [carries the can]."],
    "take the cake": ["It has [taken the cake]."],
    "guilt trip": ["He [guilt-tripped] her."],
    "best man": ["both [best men]"],
    "camponês rico": ["dois [camponeses ricos]"],
    "home run": ["It was a [HOME-RUN].", "a [home\u2011run]", "a [home  \n run]", "homerun"],
    "alto-falante": ["um [alto falante]", "dois [Altos-Falantes]"],
    "papel higiênico": ["[papéis higiênicos]"],
    "pé-frio": ["uns [pés-frios]"],
    "pão-duro": [decomposed("Que [pão-duro]!")],
    "what's up?": ["So [what's up]?"],
    "...and so on": ["this, that [and so on]"],
    "C++": ["We learn [C++].", "vitamin C"],
    "100%": ["I am [100%] sure", "100 people"],
    ".NET": ["the [.NET] runtime", "www.asp.net"],
    "the devil's advocate": ["as [the devil\u02bcs advocates] do"],
    "हिन्दी भाषा": ["यह [हिन्दी भाषा] है"],
    "in the bag": [
        *("There is air in the bagpipe.", "She lost it in the baggage hall."),
        "He slept in the bagged leaves.",  # no participle after "the"
    ],
    "spill the beans": [
        *("She [spilled the beans].", "Who [spilt the beans]?", "Spill all the beans."),
        "the beans that they spill the",  # all of its words, the last one first
        # U+02BC is a letter where it is no apostrophe within a word.
        *("as \u02bcspill the beans", "spill the beans\u02bc, and more", "spill the beans\u02bc"),
    ],
    "end user": ["That is the end – user rights are next."],
    "cafe society": [decomposed("café society")],
}
# In other languages: capitals, places in a word and encodings make no difference.
TEXTS |= {
    "ipin ucunu kaçırdı": [
        "[İpin ucunu kaçırdı].",
        "[İPİN UCUNU KAÇIRDI]",
        decomposed("İ: [İpin ucunu kaçırdı]"),
    ],
    "ışığı gördü": ["[Işığı gördü] ve", "Sonunda [ışığı gördü].", "[IŞIĞI GÖRDÜ]", "ışık gördü"],
    "auf der Straße stehen": [
        "ß: [AUF DER STRASSE STEHEN]",
        "[auf der Straße stehen] ß",
        "auf der Strafe stehen",
    ],
    "auf grossem Fuss": ["[auf großem Fuß] leben"],
    "σπάω τον πάγο": ["[ΣΠΑΩ ΤΟΝ ΠΑΓΟ]", decomposed("[Σπάω τον πάγο]"), "σπάω τον πάγκο"],
    "ίδιος δρόμος": ["[ΊΔΙΟΣ ΔΡΟΜΟΣ]"],
    "op glad ijs": ["[OP GLAD IJS]", "Hij staat [op glad ĳs]."],
    "į kailį": ["Gavo [Į KAILĮ].", "į kaili"],
}
RIDE = "take someone for a ride"
# The same with placeholders.
HELD: dict[str, list[str]] = {
    RIDE: [
        *("They [took the voters for a ride].", "[TAKING my older brother For A Ride]", f"[{RIDE}]"),
        *("it [took Zoë O’Neill-Smith for a ride]", "They take what they [take him for a ride]"),
        # Not over punctuation, into a clause, too far.
        *("Take it, then go for a ride.", "He took off because the dog went for a ride"),
        *("take one two three four five six for a ride", "take for a ride"),
    ],
    "lose one's temper": ["She [lost her temper].", "lost the temper"],
    "mind one’s business": ["[mind your own business]"],
    "pull the leg of someone": ["[pulling the leg of them] all"],
    "the apple of one's eye": ["[the apple of the old voters’ eyes]"],
    "make a fool of oneself": ["[made a fool of himself]"],
    "make someone one's slave": ["[made the old man her slave]", "made her slave"],
    "bring someone to one's knees": ["[brought the team to its knees]"],
    "one's cup of tea": ["not [my cup of tea]"],
    "fall for someone": ["She [fell for him] at once", "[falls for me]", "fall for tricks"],
    "something": ["[something] else"],
}


@pytest.mark.parametrize("expression", [*TEXTS, *HELD])
def test_found_as_people_write_it(expression: str) -> None:
    """And of those with placeholders, a saved tokenizer makes what the encoder makes."""
    index, tokens = ExpressionIndex([expression]), IdiomTokens({token_name(expression): [expression]})
    for marked in (TEXTS | HELD)[expression]:
        text = marked.replace("[", "").replace("]", "")
        span = (marked.index("["), marked.index("]") - 1) if "[" in marked else None
        assert find_expression(text, expression) == span
        assert index.find(text) == ([] if span is None else [(*span, expression)])
        if expression in HELD:
            assert by_rules(text, expression) == tokens.replace_expressions(text)[0]


def test_of_several_expressions_the_first_and_there_the_longest_counts() -> None:
    """Matches do not overlap, neither by a word that ends with the match before, nor by a sign in it."""
    index = ExpressionIndex(["big fish", "fish story", "big fish story", "home run"])
    text = "A big fish story, a fish story, two home-runs and a Big Fish."
    names = [expression for _, _, expression in index.find(text)]
    assert names == ["big fish story", "fish story", "home run", "big fish"]
    assert ExpressionIndex(["in the bag", "bag"]).find("in the bag") == [(0, 10, "in the bag")]
    assert ExpressionIndex(["plan .x", ".x"]).find("plan .x") == [(0, 7, "plan .x")]
    index = ExpressionIndex(["画蛇添足", "添足", "多此一举"])
    assert index.find("画蛇添足多此一举") == [(0, 4, "画蛇添足"), (4, 8, "多此一举")]
    # A form with an apostrophe beside one without.
    index = ExpressionIndex(["cant win"], {"cant win": ["can't win"]})
    assert index.find("You can't win, you cant win.") == [(4, 13, "cant win"), (19, 27, "cant win")]


ADJECTIVES = {
    "take a haircut": ["to [take an enormous\n haircut]", "take a really big haircut"],
    "break the ice": ["He [broke the paper-thin ice].", "broke the news. Ice", "broke the very ice"],
    "have an axe to grind": ["She [has a political axe to grind]."],
    "a bird in the hand": ["a bird in the left hand"],
}


def test_a_word_may_stand_between_article_and_object() -> None:
    index = ExpressionIndex(ADJECTIVES)
    for expression, texts in ADJECTIVES.items():
        for marked in texts:
            text = marked.replace("[", "").replace("]", "")
            span = [(marked.index("["), marked.index("]") - 1, expression)] if "[" in marked else []
            assert list(find_with_adjectives(index, text)) == span
            assert index.find(text) == []


FORMS = {"perder o barco": ["perdeu o barco", "perdi o barco"], "ins Gras bei\u00dfen": ["biss ins Gras"]}


def test_forms_of_a_dictionary_take_the_place_of_rules() -> None:
    index = ExpressionIndex(FORMS, FORMS)
    texts = {
        "Ele perdeu o barco.": ["perdeu o barco"],
        "PERDER O BARCO": ["PERDER O BARCO"],
        "Er biss ins Gras.": ["biss ins Gras"],
        "perdeu o navio, perders o barco": [],  # the latter is what the rules would give
    }
    for text, found in texts.items():
        assert [text[start:end] for start, end, _ in index.find(text)] == found
        assert pickle.loads(pickle.dumps(index)).find(text) == index.find(text)


RULES = {
    **{"try": "trys tries tried trying", "key": "keys keyed keying", "tie": "ties tied tying"},
    **{"lie": "lies lay lain lied lying", "agree": "agrees agreed agreeing", "ox": "oxs oxes oxen"},
    **{"beat": "beats beaten beated beating beatted beatting", "girl": "girls girled girling"},
    "papel": "papels papeis papéis papeled papeling papelled papelling",
    "canção": "cançãos cançãoes canções cançães cançãoed cançãoing",
}


def test_forms_by_rules() -> None:
    """Too many rather than too few: "papelled" costs nothing."""
    assert {word: " ".join(inflections(word.upper())) for word in RULES} == {
        word: f"{word} {forms}" for word, forms in RULES.items()
    }
    # After an article stands no verb.
    assert "bucketed" not in expression_words("kick the bucket")[2].forms
    assert "kicking" in expression_words("kick the bucket")[0].forms
    assert has_placeholder("take someone for a ride")
    assert not has_placeholder("something")


def test_an_expression_without_letters_is_refused() -> None:
    for use in (lambda: find_expression("...", "..."), lambda: ExpressionIndex(["red fish", "..."])):
        with pytest.raises(ValueError, match=r"'\.\.\.'"):
            use()


def test_every_expression_of_the_real_training_rows_is_found(real_data: Path) -> None:
    """In all 6,572 rows; by an index what a search for each finds."""
    with (real_data / FOLDER / TRAIN_FILE).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6572
    for row in rows:
        assert find_expression(row["sentence_1"], row["MWE1"]) is not None
    expressions = sorted({row["MWE1"] for row in rows})
    index = ExpressionIndex(expressions)
    for text in sorted({row["sentence_2"] for row in rows})[::80]:
        ours = {expression for _, _, expression in index.find(text)}
        naive = {e for e in expressions if find_expression(text, e)}
        assert ours <= naive
        assert bool(ours) == bool(naive)


PLACEHOLDERS = [RIDE, "lose one's temper", "pull the wool over someone's eyes"]
FOUR = "take someone the someone the someone for something the home"
ADVERSARIAL = {
    "letters": "take " + "s" * 50_000,
    "hyphens": "take " + "a-" * 25_000,
    "starts": "pull the wool over " * 2_500,
    "owners": "lose a b c d's " * 3_500,
    "nearly": "take a the b the c for d the house. " * 1_500,
}


@pytest.mark.parametrize("name", ADVERSARIAL)
@pytest.mark.timeout(300)  # half a second each; quadratic ones took minutes, or more than Oniguruma allows
def test_no_text_takes_long(name: str) -> None:
    text = ADVERSARIAL[name]
    for expression in [*PLACEHOLDERS, FOUR]:
        assert not list(expression_pattern(expression).finditer(text))
        assert by_rules(text, expression) == text
    assert ExpressionIndex([*PLACEHOLDERS, FOUR]).find(text) == []


def test_more_than_four_placeholders_are_refused() -> None:
    """Each multiplies the time of a text by up to five: ten of them took minutes."""
    expression = "take " + "the someone " * 5 + "home"
    with pytest.raises(ValueError, match="5 placeholders"):
        find_expression("take it home", expression)
    assert find_expression("they took it all home", "take something something home") is not None


def by_rules(text: str, *expressions: str) -> str:
    """As a saved tokenizer, which does not pass by case, has it."""
    for expression in expressions:
        for pattern, new in replacements(expression, token_name(expression), str):
            text = normalizers.Replace(Regex("(?i)" + pattern), new).normalize_str(text)
    return text


def test_spans_move_with_what_is_rewritten() -> None:
    new, edits = rewrite("one two three four", [(4, 7, "II"), (8, 13, "III")])
    assert (new, edits) == ("one II III four", [(4, 7, 4, 6), (8, 13, 7, 10)])
    spans = {(0, 3): "one", (4, 7): "II", (5, 6): "II", (7, 8): " ", (4, 13): "II III", (9, 18): "III four"}
    assert {span: new[slice(*move_span(span, edits))] for span in spans} == spans
    assert move_span((14, 18), edits) == (11, 15)
    new, edits = rewrite("ice cold", [(3, 3, "!!")])
    assert new[slice(*move_span((0, 3), edits))] == "ice!!"  # with what was inserted right behind it
    assert new[slice(*move_span((4, 8), edits))] == "cold"
