"""From settings to objects: the one place where both are known."""

from train.encoder.named import resolve_model_path
from train.factory.benchmarks import build_benchmarks
from train.factory.encoder import (
    build_encoder,
    build_retention,
    check_dimensions,
    embedding_width,
    glossary_path,
    idiom_expressions,
    named_glossary,
    without_transparent,
)
from train.factory.mining import build_objective, without_mining
from train.factory.modules import module_benchmarks, saved_modules
from train.factory.own import own_revisions
from train.objectives.own import forget_own_data

__all__ = [
    "build_benchmarks",
    "build_encoder",
    "build_objective",
    "build_retention",
    "check_dimensions",
    "embedding_width",
    "forget_own_data",
    "glossary_path",
    "idiom_expressions",
    "module_benchmarks",
    "named_glossary",
    "own_revisions",
    "resolve_model_path",
    "saved_modules",
    "without_mining",
    "without_transparent",
]
