"""One import for a loss, an objective, a benchmark or a data set of your own.

    from idiomtune.extend import BaseObjective, Batch, EmbeddingRequest, ObjectiveLoss, objective

A module with these is named by `extensions=`, which imports it before torch: so do your modules best, too.
"""

from idiomtune.benchmarks import Benchmark, Embed, Result
from idiomtune.benchmarks.kinds import PairsOptions, RetrievalOptions
from idiomtune.data.fields import Filled, FilledCell, TableRow
from idiomtune.data.locations import data_files, folder_of
from idiomtune.errors import DataMissingError, UserError
from idiomtune.io.tables import read_rows, read_table
from idiomtune.objectives import Batch, Mean, Objective, ObjectiveLoss
from idiomtune.objectives.base import BaseObjective
from idiomtune.plugins.benchmark import BenchmarkOptions, OptionsWithSplit
from idiomtune.plugins.dataset import DatasetType
from idiomtune.plugins.inputs import RunInputs
from idiomtune.plugins.objective import ObjectiveOptions, ObjectiveType
from idiomtune.plugins.options import ConfigSection, Count, Factor, Names, Ratio, Temperature, Text, Weight
from idiomtune.plugins.registry import benchmark, objective
from idiomtune.plugins.score import Metric, Score
from idiomtune.requests import EmbeddingRequest

__all__ = [
    "BaseObjective",
    "Batch",
    "Benchmark",
    "BenchmarkOptions",
    "ConfigSection",
    "Count",
    "DataMissingError",
    "DatasetType",
    "Embed",
    "EmbeddingRequest",
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
    "Result",
    "RetrievalOptions",
    "RunInputs",
    "Score",
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
