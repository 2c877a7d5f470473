"""Expressions as dictionaries print them, and what is looked for in texts."""

import re

from idiomtune.data.notation import clean_text, read_printed, split_senses
from idiomtune.expressions import ExpressionIndex
from idiomtune.glossaries.tables import GLOSSARIES, read_glossary

PRINTED = {
    "to bite the bullet": ["bite the bullet"],
    "to the letter": ["to the letter"],
    "burn your bridges": ["burn one's bridges"],
    "pull sb's leg": ["pull someone's leg"],
    "pull [pron] leg": ["pull one's leg"],
    "get sb./sth. off the ground": ["get someone off the ground"],
    "kick/boot up the backside": ["kick up the backside", "boot up the backside"],
    "kick the bucket / bite the dust": ["kick the bucket", "bite the dust"],
    "kick the bucket; bite the dust": ["kick the bucket", "bite the dust"],
    "kick the bucket\nbite the dust": ["kick the bucket", "bite the dust"],
    "(be) on thin ice": ["on thin ice"],
    "be over the moon": ["over the moon"],
    "be up on": ["be up on"],
    "jump the gun (informal)": ["jump the gun"],
    "jump the gun [US, idiom]": ["jump the gun"],
    "hit the nail (right) on the head": ["hit the nail on the head", "hit the nail right on the head"],
    "colour(s)": ["colour", "colours"],
    "1. kick the bucket": ["kick the bucket"],
    "run\u00b9": ["run"],
    "as \u2026 as a lamb": ["as something as a lamb"],
    "jmdm. auf die Nerven gehen (ugs.)": ["auf die Nerven gehen"],
    "tirer les vers du nez \u00e0 qqn": ["tirer les vers du nez \u00e0"],
    # What is no notation stays.
    "C++": ["C++"],
    "so far so good": ["so far so good"],
    "let alone": ["let alone"],
}


def test_an_expression_is_read_as_it_is_meant() -> None:
    assert {printed: list(read_printed(printed).forms) for printed in PRINTED} == PRINTED


def test_what_is_not_understood_is_named() -> None:
    assert read_printed("A > B").unread == ">"
    assert "river" in read_printed("sell down the river, sell someone down the river").unread
    assert not read_printed("easy come, easy go").unread
    assert not read_printed("break the ice").unread


def test_numbered_senses_are_apart() -> None:
    for meaning, senses in (
        ("1. to die 2. to stop working", ["to die", "to stop working"]),
        ("(1) to die; (2) to stop", ["to die", "to stop"]),
        ("1. to die", ["to die"]),
        ("version 2. of it", ["version 2. of it"]),
        ("7", ["7"]),
        ("(idiom)\nto make people relax\n2. to begin", ["to make people relax", "to begin"]),
        ("[US, informal] (psychiatry) a disorder", ["(psychiatry) a disorder"]),
        ("tell a secret\nExample: he told it\nz.B.: so", ["tell a secret"]),
        ("(informal)", ["(informal)"]),
        ("a sign: of luck", ["a sign: of luck"]),
    ):
        assert split_senses(meaning) == senses


CLEANED = {
    '<div style="text-align: left;"><span style="color: rgb(0, 0, 0);">to relax</span></div>\n'
    '<div><br></div><img src="ice_1.png">[sound:ice.mp3]': "to relax",
    "tell&nbsp;a&#32;secret &amp;amp; it&#39;s &lt;b&gt;mine&lt;/b&gt;": "tell a secret & it's mine",
    "<p title='a > b'>one</p><P>two<BR/>three</P><!-- no -->": "one\ntwo\nthree",
    "CO<sub>2</sub>, <script>x < 1</script><ruby>a<rt>b</rt></ruby>": "CO2, a",
    r"(idiom)\nto relax\tor so": "(idiom)\nto relax or so",
    "the {{c1::ice::cold}} [[bucket|the bucket]] [b]to[/b] [url=x.y]link[/url]": "the ice the bucket to link",
    "so\u00adft \ufeffze\u200bro Auf\u200clage \u202aleft\u202c": "soft zero Auflage left",
}
UNCHANGED = [
    *("x < y and y > z", "I <3 you", "a <b and c> d", "take <someone> home", "List<String>", "<me@x.y>"),
    *(
        "AT&T, R&D; &c",
        r"C:\new\table",
        r"$\theta \times \nu$",
        "a [sic] [Laughter]",
        "x[[1]] {y}",
        "  a \n b ",
    ),
    *("\u0645\u06cc\u200c\u0634\u0648\u062f", "\U0001f469\u200d\U0001f4bb"),  # spelling
]


def test_markup_and_invisible_signs_are_removed_and_nothing_else() -> None:
    for text in (*CLEANED, *UNCHANGED):
        assert clean_text(text) == CLEANED.get(text, text)
        assert clean_text(clean_text(text)) == clean_text(text)


def test_each_idiom_that_comes_with_the_project_is_found_of_two_persons() -> None:
    """Whoever it is of: *stick to one's guns* in *his guns* and *their guns*."""
    senses = read_glossary([GLOSSARIES / "english.tsv"]).senses
    assert not [name for name in senses if re.search(r"\b(your|yourself|sb|sth)\b", name)]
    index = ExpressionIndex(senses)
    persons = [
        {"one's": "his", "someone's": "Tom's", "someone": "him", "oneself": "himself"},
        {"one's": "their", "someone's": "their", "someone": "them", "oneself": "themselves"},
    ]
    lost = []
    for name in senses:
        for words in persons:
            text = " ".join(words.get(word, word) for word in name.split())
            if not index.find(f"You know: {text}, they say."):  # or what it is a variant of
                lost.append((name, text))
    assert not lost
