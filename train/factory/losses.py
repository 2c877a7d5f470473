"""The losses, by their options."""

from __future__ import annotations

from idiomloss import AdaptiveTripletLoss, InfoNCELoss
from train.objectives.options import InfoNCESettings, TripletLossSettings


def info_nce(options: InfoNCESettings) -> InfoNCELoss:
    """InfoNCE with its options."""
    return InfoNCELoss(
        options.temperature, options.denominator, options.hard_weight, options.soft_weight, options.positives
    )


def triplet_loss(options: TripletLossSettings) -> AdaptiveTripletLoss:
    """The adaptive triplet loss with its options."""
    return AdaptiveTripletLoss(**options.model_dump())
