"""The model card of a model that has learnt a glossary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from huggingface_hub import ModelCardData

from train.encoder.glossary_files import Glossary
from train.hub.licences import Source, base_model, common_licence, glossary_sources
from train.reports.tables import cell

_TEXT = """
# {model}, with a glossary

The model `{model}`, which was taught {number} expressions by a glossary ({about}). Its scores are scores
*with a glossary*.
{how}

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
```

| expression | meaning |
|---|---|
"""


_HOW = {
    "tokens": """
Each expression is one token, taught so that a sentence with it embeds as with its meaning. Every sentence
without one of them embeds exactly as before.""",
    "weights": """
Its weights were trained on sentences until those with an expression embed about as they did with its meaning
read in; other texts embed about as before, not exactly.""",
}


def learnt_card(model: Mapping[str, Any], glossary: Glossary, into: str = "tokens") -> str:
    """The card of a learnt model: of what it was made, under which licence, and every expression.

    Args:
        model: the settings of the model that was taught, as plain containers.
        into: what of the model was taught, `tokens` or `weights`.
    """
    base, facts = base_model({"model": model}), glossary.describe()
    sources = [base, *glossary_sources(facts if glossary.senses else None)]
    if into == "weights":  # trained on them, as by `+experiment=own`
        sources.append(Source("the user's own sentences", None))
    metadata = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        license=common_licence(sources),
        base_model=base.repo_id,
    )
    named = [name for name in ("files", "sources", "licences") if facts.get(name)]
    text = _TEXT.format(
        model=base.name,
        how=_HOW[into],
        number=facts["expressions"],
        about="; ".join(f"{name}: {', '.join(facts[name])}" for name in named),
    )
    rows = (f"| {cell(name)} | {cell('; '.join(senses))} |\n" for name, senses in glossary.senses.items())
    return f"---\n{metadata.to_yaml()}\n---\n{text}" + "".join(rows)
