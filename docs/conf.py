"""The documentation site: `make docs`, or `python -m sphinx -c docs . build/docs -W --keep-going`.

The pages are those that GitHub shows, as they are. `NAVIGATION` says in which order the site lists them;
`python docs/conf.py` writes the same list into llms.txt.
"""

from __future__ import annotations

import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NAVIGATION = {
    "Start": ("docs/tutorial", "docs/configuration", "docs/troubleshooting", "docs/faq"),
    "Data and models": (
        "docs/own-data",
        "docs/own-data-scoring",
        "docs/other-data",
        "docs/own-idioms",
        "docs/idioms",
        "docs/knowledge",
        "docs/another-language",
        "docs/dictionaries",
        "docs/models",
    ),
    "Training": (
        "docs/objectives",
        "docs/admire",
        "docs/training-options",
        "docs/runs",
        "docs/sweeps",
        "docs/cluster",
        "docs/speed",
    ),
    "Scores": ("docs/benchmarks", "docs/reports"),
    "Using a model": (
        "docs/using",
        "docs/python",
        "docs/explore",
        "docs/hub",
        "docs/ecosystem",
    ),
    "Results": (
        "RESULTS",
        "docs/reproducing",
        "docs/results/reference",
        "docs/results/idiolink",
        "docs/results/semeval",
        "docs/results/forgetting",
        "docs/results/epsilon",
        "docs/results/admire",
        "docs/results/knowledge",
        "docs/results/idioms",
        "docs/results/sizes",
        "docs/results/speed",
        "docs/results/trust",
    ),
    "Reference": (
        "docs/reference/options",
        "docs/reference/idiomtune",
        "docs/reference/extending",
        "docs/reference/idiomloss",
    ),
    "Development": (
        "CONTRIBUTING",
        "docs/words",
        "docs/losses",
        "docs/adding-a-loss",
        "docs/adding-an-objective",
        "docs/adding-a-benchmark",
        "docs/releasing",
        "CHANGELOG",
    ),
}

sys.path.insert(0, str(ROOT))  # this checkout, whatever is installed

project = "idiomtune"
html_title = project
html_theme = "furo"
html_show_copyright = False
html_copy_source = False
html_search_scorer = str(ROOT / "docs" / "search.js")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = ["*.md", "docs/**"]
exclude_patterns = ["docs/**/*.py"]

myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]  # the README's first picture has a width
suppress_warnings = ["misc.highlighting_failure"]  # JSON lines are no JSON document

default_role = "code"  # single backticks in docstrings
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_use_rtype = False
napoleon_use_ivar = True  # an attribute is listed once


def setup(app: Any) -> None:
    # Before autodoc: it evaluates annotations of pydantic's base class, which then refuses new models.
    for module in ("testing", "integrations.sentence_transformers", "integrations.mteb"):
        import_module(f"idiomtune.{module}")
    from docs import options

    options.write()

    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_index)


def add_navigation(_app: Any, page: str, source: list[str]) -> None:
    """Put the list of pages behind the first page, which is the README."""
    if page == root_doc:
        for caption, pages in NAVIGATION.items():
            entries = "\n".join(f"/{name}" for name in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n"


def add_index(app: Any, error: Exception | None) -> None:
    """`index.html`, which leads to the first page; beside the site its pages as Markdown, and llms.txt."""
    if error is None:
        redirect = f'<meta http-equiv="refresh" content="0; url={root_doc}.html">\n'
        Path(app.outdir, "index.html").write_text(redirect, encoding="utf-8")
        for name in ("llms.txt", *(f"{page}.md" for page in app.env.found_docs)):
            if (ROOT / name).is_file():
                shutil.copyfile(ROOT / name, Path(app.outdir, name))


def llms_text() -> str:
    """The pages for language models (llmstxt.org): each with its title and its first sentence."""
    parts = [f"# {project}", f"> {_first_sentence('README')[1]}"]
    for caption, pages in NAVIGATION.items():
        shown = [page for page in pages if (ROOT / f"{page}.md").is_file()]  # the others are generated
        lines = [f"- [{_first_sentence(p)[0]}]({p}.md): {_first_sentence(p)[1]}" for p in shown]
        parts += [f"## {caption}", "\n".join(lines)] if shown else []
    return "\n\n".join(parts) + "\n"


def _first_sentence(page: str) -> tuple[str, str]:
    """A page's title and the first sentence of its first paragraph, without links."""
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    title, *blocks = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE).split("\n\n")
    paragraph = next(" ".join(b.split()) for b in blocks if re.match(r"[\w`*ε]", b.strip()))
    plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", paragraph)
    return title.strip("# "), re.split(r"(?<=[.:!?]) (?=[A-Z`])", plain)[0].rstrip(":")


if __name__ == "__main__":
    (ROOT / "llms.txt").write_text(llms_text(), encoding="utf-8")
