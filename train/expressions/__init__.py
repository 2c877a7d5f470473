"""Where expressions stand in a sentence: capitalised, hyphenated, inflected."""

from train.expressions.inflections import inflections
from train.expressions.patterns import (
    KEEP,
    Replacement,
    expression_pattern,
    plain_expression,
    replacements,
)
from train.expressions.search import ExpressionIndex, find_expression

__all__ = [
    "KEEP",
    "ExpressionIndex",
    "Replacement",
    "expression_pattern",
    "find_expression",
    "inflections",
    "plain_expression",
    "replacements",
]
