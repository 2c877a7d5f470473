"""One import for a loss, an objective, a benchmark or a data set of your own.

    from idiomtune.extend import BaseObjective, Batch, ObjectiveLoss, ObjectiveOptions, Request, objective

A module with these is named by `extensions=`, which imports it before torch: so do your modules best, too.
"""

from idiomtune.benchmarks import Benchmark, Embed, Result
from idiomtune.benchmarks.kinds import PairsOptions, RetrievalOptions
from idiomtune.data.fields import Filled, FilledCell, TableRow
from idiomtune.data.locations import data_files, folder_of
from idiomtune.declarations.benchmark import BenchmarkOptions, OptionsWithSplit
from idiomtune.declarations.dataset import DatasetType
from idiomtune.declarations.objective import ObjectiveOptions, ObjectiveType
from idiomtune.declarations.options import Count, Factor, Names, Ratio, Section, Temperature, Text, Weight
from idiomtune.declarations.registry import benchmark, objective
from idiomtune.declarations.score import Metric, Score
from idiomtune.errors import DataMissingError, UserError
from idiomtune.io.tables import read_rows, read_table
from idiomtune.objectives import Batch, Mean, Objective, ObjectiveLoss
from idiomtune.objectives.base import BaseObjective
from idiomtune.requests import Request

__all__ = [
    "BaseObjective",
    "Batch",
    "Benchmark",
    "BenchmarkOptions",
    "Count",
    "DataMissingError",
    "DatasetType",
    "Embed",
    "Factor",
    "Filled",
    "FilledCell",
    "Mean",
    "Metric",
    "Names",
    "Objective",
    "ObjectiveLoss",
    "ObjectiveOptions",
    "ObjectiveType",
    "OptionsWithSplit",
    "PairsOptions",
    "Ratio",
    "Request",
    "Result",
    "RetrievalOptions",
    "Score",
    "Section",
    "TableRow",
    "Temperature",
    "Text",
    "UserError",
    "Weight",
    "benchmark",
    "data_files",
    "folder_of",
    "objective",
    "read_rows",
    "read_table",
]
