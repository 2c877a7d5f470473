"""The page: one HTML file, which asks a server on this machine or contains all answers itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from train.explorer.corpus import Text
from train.explorer.search import Explorer

FILE = "index.html"  # in a Space
_CARD = """---
{metadata}---

What models find for the queries of {corpus}: open the page, and choose a query. {note}Made with idiomtune.
"""


def page(explorer: Explorer, title: str, *, live: bool) -> str:
    """The page as HTML.

    Args:
        live: it asks the server that it came from; otherwise the answers to the corpus' queries are in it.
    """
    corpus = explorer.corpus
    data: dict[str, Any] = {
        "live": live,
        "models": [
            {"name": m.name, "about": m.about, "exact": m.encoder.averages_tokens} for m in explorer.models
        ],
        "corpus": {"name": corpus.name, "size": len(corpus.documents)},
        "modes": explorer.modes,
        "queries": [shown(query) for query in corpus.queries],
        "scores": explorer.scores(),
        "usages": list(dict.fromkeys(document.usage for document in corpus.documents if document.usage)),
        "documents": {},
    }
    if not live:
        data["answers"], data["words"] = explorer.answers()
        used = {document for words in data["words"] for document in words}
        data["documents"] = {document: shown(corpus.documents[document]) for document in sorted(used)}
    return _template().render(title=title, data=_embedded(data))


def space_card(title: str, corpus: str, metadata: Mapping[str, Any], note: str) -> str:
    """The README.md of a static Space.

    Args:
        metadata: what the Hub reads next to the title, such as a licence.
        note: a sentence on the texts.
    """
    facts = {"title": title, "sdk": "static", "pinned": False, **metadata}
    front = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)
    return _CARD.format(metadata=front, corpus=corpus, note=f"{note} " if note else "")


def shown(text: Text) -> dict[str, Any]:
    """What the page shows of a text."""
    return {name: value for name, value in asdict(text).items() if value not in (None, "")}


def _embedded(data: Any) -> Markup:
    """JSON for a page: no text in it can end the element that contains it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("page.html.j2")
