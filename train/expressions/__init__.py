"""Where expressions are in a sentence: capitalised, hyphenated, inflected."""

from train.expressions.inflections import inflections
from train.expressions.patterns import (
    KEEP,
    Normalize,
    Step,
    expression_pattern,
    expression_words,
    has_placeholder,
    insertion_pattern,
    plain_expression,
    replacements,
    whole_pattern,
    word_end_patterns,
)
from train.expressions.search import ExpressionIndex, contained, find_expression

__all__ = [
    "KEEP",
    "ExpressionIndex",
    "Normalize",
    "Step",
    "contained",
    "expression_pattern",
    "expression_words",
    "find_expression",
    "has_placeholder",
    "inflections",
    "insertion_pattern",
    "plain_expression",
    "replacements",
    "whole_pattern",
    "word_end_patterns",
]
