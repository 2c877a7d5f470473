"""Losses for idiom-aware text embeddings: tensors in, tensors out.

| class | what it optimises | source |
|---|---|---|
| `InfoNCELoss` | positives against soft, hard and in-batch negatives | arXiv 2605.22247; arXiv 1807.03748 |

Knows no model, no config and no trainer, and imports nothing of `train`.
"""

from idiomloss.candidates import CandidateMasks, candidate_masks, flatten_tuples
from idiomloss.infonce import InfoNCELoss, infonce_terms
from idiomloss.similarity import cosine_similarity

__all__ = [
    "CandidateMasks",
    "InfoNCELoss",
    "candidate_masks",
    "cosine_similarity",
    "flatten_tuples",
    "infonce_terms",
]
