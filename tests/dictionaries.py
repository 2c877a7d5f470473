"""Small dictionaries in their published forms: Wiktionary as kaikki.org has it, and WordNet."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

CONJUGATED = {
    **{"no-table-tags": "table-tags", "pt-conj": "inflection-template", "perco o barco": "present"},
    **{"perdeu o barco": "preterite", "perdendo o barco": "gerund"},
    "tinha perdido o barco": "multiword-construction",
}


def word(
    name: str, *senses: dict[str, Any], pos: str = "verb", code: str = "en", **more: Any
) -> dict[str, Any]:
    """A line of the extract."""
    language = {"en": "English", "pt": "Portuguese"}[code]
    return {"pos": pos, "word": name, "lang": language, "lang_code": code, "senses": list(senses), **more}


def sense(gloss: str, *tags: str, **more: Any) -> dict[str, Any]:
    return {"glosses": [gloss], "tags": list(tags), **more}


def form(name: str, *tags: str) -> dict[str, Any]:
    return {"form": name, "tags": list(tags)}


ENGLISH = [
    word(
        "kick the bucket",
        sense("To die; to pass away (of people).", "idiomatic", "slang"),
        sense("Used other than figuratively: see kick, bucket.", "literally"),
        sense("[computing] To stop working.", "figuratively"),
        forms=[form("kicks the bucket", "present"), form("kicked the bucket", "past")],
    ),
    word("kicked the pail", sense("simple past", "form-of", form_of=[{"word": "kick the pail"}])),
    word("kick the pail", sense("Alternative form of it", "alt-of", alt_of=[{"word": "kick the bucket"}])),
    word("kick the can", sense("Synonym of kick the pail", "idiomatic")),
    word("buy the farm", sense("Synonym of die", "idiomatic")),
    word("lost to all", sense("Alternative form of nowhere to be found", "alt-of")),
    word("want to", sense("Should, ought to.", "idiomatic")),
    word("as well", sense("In addition.", "idiomatic"), pos="adv"),
    word("out of", sense("From the inside.", "idiomatic"), pos="prep"),
    word("bucket", sense("A fool.", "slang"), pos="noun"),
    word("Red Planet", sense("The planet Mars.", "idiomatic"), pos="name"),
    word("red planet", sense("A planet that is red."), pos="noun"),
    word("still waters run deep", sense("Quiet people think much."), pos="proverb"),
    {"title": "kick one's bucket", "redirect": "kick the bucket"},
]
PORTUGUESE = [
    word(
        "perder o barco",
        sense("to miss the boat (to miss an opportunity)", "idiomatic"),
        code="pt",
        forms=[form(name, tag) for name, tag in CONJUGATED.items()],
    ),
    word(
        "estrela cadente",
        sense("shooting star", "idiomatic"),
        pos="noun",
        code="pt",
        forms=[form("estrelas cadentes", "plural")],
    ),
]


def write_extract(path: Path, lines: Sequence[dict[str, Any] | str] = (*ENGLISH, *PORTUGUESE)) -> Path:
    """An extract; a text is written as it is."""
    text = "".join(
        (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)) + "\n" for one in lines
    )
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def many_words(number: int) -> Iterator[dict[str, Any]]:
    """Lines with as many different expressions, and what takes up most of a line and is not read."""
    parts = [f"{a}{b}{c}{d}" for a in "bcdfglmnprst" for b in "aeiou" for c in "bdklmnrstvz" for d in "aeo"]
    for i in range(number):
        name = f"{parts[i % 1980]} {parts[(i // 1980 + i) % 1980]} {parts[i // 400 % 1980]}"
        past = " ".join([parts[i % 1980] + "d", *name.split()[1:]])
        examples = [{"text": f"They {past} again, and nobody was surprised by it.", "type": "quotation"}] * 3
        yield word(
            name,
            sense(f"To do the thing number {i}.", "idiomatic", examples=examples),
            forms=[form(past, "past")],
        )


_LICENCE = [f"  {n} WordNet 3.0 Copyright 2006 by Princeton University.  " for n in range(1, 30)]
# Words of each synset, with the words of the licence before them: file, gloss, pointers, tags of its sense.
_SYNSETS: dict[str, list[tuple[list[str], str, str, list[str]]]] = {
    "noun": [
        (["red_herring"], "09", "any diversion intended to distract attention", []),
        (["red_herring", "smoked_herring"], "13", 'a dried and smoked herring; "a red herring"', []),
        (["Dutch_courage"], "07", "courage resulting from intoxication", []),
        (["New_York", "Big_Apple"], "15", "the largest city in New York State", ["@i 08524735 n 0000"]),
        (["Academy_Award"], "06", "an annual award", []),
        (["Canis_lupus"], "05", "a wolf", []),
        (["herring"], "13", "a fish", []),
    ],
    "verb": [
        (["kick_the_bucket", "die"], "30", 'pass from physical life; "She died"', []),
        (["blow_one's_nose"], "29", "expel mucus", []),
        (["want_to"], "31", "should", []),
    ],
    "adj": [(["over_the_moon(p)"], "00", "extremely happy (informal)", [])],
    "adv": [(["red_herring"], "02", "in the manner of a red herring", [])],
}


def write_wordnet(folder: Path) -> Path:
    """Its files, as wndb(5) describes them."""
    folder.mkdir(parents=True)
    for part, synsets in _SYNSETS.items():
        kind = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}[part]
        places: dict[str, list[str]] = {}
        data = "".join(f"{line}\n" for line in _LICENCE)
        for words, file, gloss, pointers in synsets:
            offset = f"{len(data.encode()):08d}"
            listed = " ".join(f"{name} 0" for name in words)
            data += f"{offset} {file} {kind} {len(words):02x} {listed} {len(pointers):03d} "
            data += "".join(f"{pointer} " for pointer in pointers) + f"| {gloss}  \n"
            for name in words:
                places.setdefault(name.partition("(")[0].lower(), []).append(offset)
        index = "".join(f"{line}\n" for line in _LICENCE)
        for lemma, offsets in sorted(places.items()):
            met = 3 if part == "noun" else 0
            index += f"{lemma} {kind} {len(offsets)} 1 @ {len(offsets)} {met} {' '.join(offsets)}  \n"
        (folder / f"data.{part}").write_text(data, encoding="utf-8")
        (folder / f"index.{part}").write_text(index, encoding="utf-8")
    (folder / "verb.exc").write_text("blew_one's_nose blow_one's_nose\nblows_one's_nose blow_one's_nose\n")
    return folder
