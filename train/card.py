"""The README of `best/`: what the model is and how to use it."""

_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, sentence-similarity, idioms]
---

# Idiom-aware text embeddings

Fine-tuned from `{base}` by `{experiment}`{sample}. Scores: `scores.json` of the run.
Trained on {trained_on}.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
embeddings = model.encode(["He broke the ice with a joke.", "He made everybody relax."])
```

A span's embedding in its sentence is the mean of the span's token embeddings (late chunking):

```python
from train import Encoder

encoder = Encoder.from_pretrained("path/to/this/folder")
embeddings = encoder.encode(["He broke the ice with a joke."], spans=["broke the ice"])
```
"""
_IDIOM_TOKENS = """
It reads the expressions in `idiom_tokens.json` as one token each. `Encoder` replaces them by itself; in plain
sentence-transformers write the token yourself: `IDhomerunID` for "home run".
"""


def model_card(
    base: str, experiment: str, *, trained_on: str, sample: bool, idiom_tokens: bool = False
) -> str:
    """A short model card: base model, experiment, data in words, and how to use the folder."""
    note = " on the project's small sample data (a trial, not a model to rely on)" if sample else ""
    card = _CARD.format(base=base, experiment=experiment, trained_on=trained_on, sample=note)
    return card + _IDIOM_TOKENS if idiom_tokens else card
