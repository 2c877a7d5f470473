"""Losses for idiom-aware text embeddings: tensors in, tensors out.

What each optimises, and its source:

- `AdaptiveTripletLoss`: mined triplets of relabelled groups. arXiv 2406.15175
- `InfoNCELoss`: positives against soft, hard and in-batch negatives. arXiv 2605.22247; arXiv 1807.03748
- `CoSENTLoss`: cosines in the order of graded similarities. Su 2022
- `CosineMSELoss`: cosines equal to graded similarities. arXiv 1908.10084
- `distillation_loss`: embeddings held to another model's. after arXiv 2004.09813
- `relational_distillation_loss`: similarities held to another model's. after arXiv 1904.05068
- `PairwiseHingeLoss`: the order of each pair of ranked candidates. AIMA, SemEval-2025 Task 1 (*)
- `ListwiseSoftmaxLoss`: a gold distribution over ranked candidates. Cao et al. 2007; AIMA (*)
- `Top1HingeLoss`: the best of ranked candidates against the others. AIMA (*)
- `PairwisePrintedLoss`, `Top1PrintedLoss`: two of these as AIMA prints them, without a minimum. AIMA

(*) in their standard forms. The listwise one is also what that paper prints (its appendix A).

Knows no model, no config and no trainer, and imports nothing of `train`.
"""

from idiomloss.groups import GroupLabels, group_steps, label_groups
from idiomloss.infonce import CandidateMasks, InfoNCELoss, candidate_masks, flatten_tuples
from idiomloss.ranking import (
    ListwiseSoftmaxLoss,
    PairwiseHingeLoss,
    PairwisePrintedLoss,
    Top1HingeLoss,
    Top1PrintedLoss,
    listwise_softmax,
    pairwise_hinge,
    pairwise_printed,
    top1_hinge,
    top1_printed,
)
from idiomloss.similarity import (
    CoSENTLoss,
    CosineMSELoss,
    cosine_similarity,
    distillation_loss,
    paired_cosine_similarity,
    relational_distillation_loss,
)
from idiomloss.triplet import AdaptiveTripletLoss, TripletResult, property_loss

__all__ = [
    "AdaptiveTripletLoss",
    "CandidateMasks",
    "CoSENTLoss",
    "CosineMSELoss",
    "GroupLabels",
    "InfoNCELoss",
    "ListwiseSoftmaxLoss",
    "PairwiseHingeLoss",
    "PairwisePrintedLoss",
    "Top1HingeLoss",
    "Top1PrintedLoss",
    "TripletResult",
    "candidate_masks",
    "cosine_similarity",
    "distillation_loss",
    "flatten_tuples",
    "group_steps",
    "label_groups",
    "listwise_softmax",
    "paired_cosine_similarity",
    "pairwise_hinge",
    "pairwise_printed",
    "property_loss",
    "relational_distillation_loss",
    "top1_hinge",
    "top1_printed",
]
