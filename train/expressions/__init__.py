"""Where expressions stand in a sentence: capitalised, hyphenated, inflected."""

from train.expressions.inflections import inflections
from train.expressions.patterns import (
    KEEP,
    Replacement,
    expression_pattern,
    expression_words,
    insertion_pattern,
    is_expression,
    plain_expression,
    replacements,
    whole_pattern,
    word_end_patterns,
)
from train.expressions.search import ExpressionIndex, contained, find_expression

__all__ = [
    "KEEP",
    "ExpressionIndex",
    "Replacement",
    "contained",
    "expression_pattern",
    "expression_words",
    "find_expression",
    "inflections",
    "insertion_pattern",
    "is_expression",
    "plain_expression",
    "replacements",
    "whole_pattern",
    "word_end_patterns",
]
