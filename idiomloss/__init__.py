"""Losses for idiom-aware text embeddings: tensors in, tensors out.

| class | what it optimises | source |
|---|---|---|
| `AdaptiveTripletLoss` | mined triplets of relabelled groups | arXiv 2406.15175 |
| `InfoNCELoss` | positives against soft, hard and in-batch negatives | arXiv 2605.22247; arXiv 1807.03748 |
| `distillation_loss` | embeddings held to another model's | after arXiv 2004.09813 |

Knows no model, no config and no trainer, and imports nothing of `train`.
"""

from idiomloss.candidates import CandidateMasks, candidate_masks, flatten_tuples
from idiomloss.distillation import distillation_loss
from idiomloss.groups import GroupLabels, label_groups
from idiomloss.infonce import InfoNCELoss, infonce_terms
from idiomloss.similarity import cosine_similarity, paired_cosine_similarity
from idiomloss.triplet import AdaptiveTripletLoss, TripletResult, property_loss

__all__ = [
    "AdaptiveTripletLoss",
    "CandidateMasks",
    "GroupLabels",
    "InfoNCELoss",
    "TripletResult",
    "candidate_masks",
    "cosine_similarity",
    "distillation_loss",
    "flatten_tuples",
    "infonce_terms",
    "label_groups",
    "paired_cosine_similarity",
    "property_loss",
]
