"""The forms that a word of an expression may take: English inflections, Portuguese and Galician plurals."""

from __future__ import annotations

import unicodedata

# Determiners and prepositions have one form. The word after them is a noun or adjective: in "in the can" it
# is never "canning", in "to boot" never "booted".
_BEFORE_NOUNS_TEXT = """
a an the to of in on at by for from with off out up down over under round into onto through
my your his her its our their one's someone's somebody's
o os as um uma de do da dos das em no na nos nas por para com ao à sem
"""
# Other function words with one form.
_SMALL = """
and or but not if so than that this who what it he she we they you me him us them is are was were
someone somebody something e ou que se não mais
"""
# The base form, then the forms that no rule below gives.
_IRREGULAR_VERBS = """
be is are am was were been being, bear bore borne, beat beaten, become became, begin began begun, bend bent,
bind bound, bite bit bitten, bleed bled, blow blew blown, break broke broken, bring brought, build built,
burn burnt, buy bought, catch caught, choose chose chosen, come came, deal dealt, dig dug, do did done does,
draw drew drawn, dream dreamt, drink drank drunk, drive drove driven, eat ate eaten, fall fell fallen, feed
fed, feel felt, fight fought, find found, flee fled, fly flew flown, forget forgot forgotten, forgive
forgave forgiven, freeze froze frozen, get got gotten, give gave given, go went gone goes, grind ground,
grow grew grown, hang hung, have had has, hear heard, hide hid hidden, hold held, keep kept, kneel knelt,
know knew known, lay laid, lead led, leap leapt, learn learnt, leave left, lend lent, lie lay lain, light
lit, lose lost, make made, mean meant, meet met, pay paid, ride rode ridden, ring rang rung, rise rose
risen, run ran, say said, see saw seen, sell sold, send sent, shake shook shaken, shine shone, shoot shot,
show shown, shrink shrank shrunk, sing sang sung, sink sank sunk, sit sat, sleep slept, slide slid, smell
smelt, speak spoke spoken, spell spelt, spend spent, spill spilt, spin spun, spring sprang sprung, stand
stood, steal stole stolen, stick stuck, sting stung, strike struck stricken, swear swore sworn, sweep swept,
swim swam swum, swing swung, take took taken, teach taught, tear tore torn, tell told, think thought, throw
threw thrown, tread trod trodden, understand understood, wake woke woken, wear wore worn, weave wove woven,
weep wept, win won, wind wound, wring wrung, write wrote written
"""
_IRREGULAR_NOUNS = {
    "man": "men",
    "woman": "women",
    "child": "children",
    "foot": "feet",
    "tooth": "teeth",
    "goose": "geese",
    "mouse": "mice",
    "louse": "lice",
    "ox": "oxen",
    "person": "people",
}
BEFORE_NOUNS = frozenset(_BEFORE_NOUNS_TEXT.split())
_ONE_FORM = BEFORE_NOUNS | frozenset(_SMALL.split())
_VERB_FORMS = {base: forms for base, *forms in map(str.split, _IRREGULAR_VERBS.split(","))}


def inflections(word: str, *, as_verb: bool = True) -> list[str]:
    """The word in lower case, then its possible forms, too many rather than too few.

    These are English plurals, third persons, -ed and -ing forms, irregular verbs and nouns; Portuguese and
    Galician plurals. Not covered: degrees (a bigger fish is not a big fish), genders, Portuguese verbs.

    Args:
        as_verb: also give -ed and -ing forms, and those of irregular verbs.
    """
    word = unicodedata.normalize("NFC", word).lower()
    if word in _VERB_FORMS and as_verb:
        return list(dict.fromkeys([word, *_plurals(word), *_VERB_FORMS[word], *_participles(word)]))
    if word in _ONE_FORM or len(word) < 2 or not word.isalpha():
        return [word]
    return list(dict.fromkeys([word, *_plurals(word), *(_participles(word) if as_verb else ())]))


def _plurals(word: str) -> list[str]:
    """Plurals; for verbs, third persons."""
    stem, last = word[:-1], word[-1]
    forms = [] if last == "s" else [word + "s"]
    if word.endswith(("s", "x", "z", "sh", "ch", "o", "r")):
        forms.append(word + "es")
    if last == "y" and stem[-1] not in "aeiou":
        forms.append(stem + "ies")
    if word.endswith(("f", "fe")):
        forms.append(word.removesuffix("e")[:-1] + "ves")
    if word in _IRREGULAR_NOUNS:
        forms.append(_IRREGULAR_NOUNS[word])
    if word.endswith("ão"):
        forms += [word[:-2] + "ões", word[:-2] + "ães"]
    if word.endswith("ês"):
        forms.append(word[:-2] + "eses")
    if last == "m":
        forms.append(stem + "ns")
    if last == "z":  # Galician: luz, luces
        forms.append(stem + "ces")
    if last == "l" and stem[-1] in "aeiou":
        accented = {"e": "é", "o": "ó"}
        forms += [stem + "is", stem[:-1] + accented.get(stem[-1], stem[-1]) + "is"]
    return forms


def _participles(word: str) -> list[str]:
    stem, last = word[:-1], word[-1]
    if len(word) < 3:
        return [word + "ing"] if word in _VERB_FORMS else []
    if word.endswith("ie"):
        return [word + "d", word[:-2] + "ying"]
    if last == "e":
        return [word + "d", (word if stem[-1] in "eoy" else stem) + "ing"]
    forms = [word + "ed", word + "ing"]
    if last == "y" and stem[-1] not in "aeiou":
        forms[0] = stem + "ied"
    elif last not in "aeiouwxy" and stem[-1] in "aeiou":
        forms += [word + last + "ed", word + last + "ing"]
    return forms
