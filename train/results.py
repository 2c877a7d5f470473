"""What the functions of :mod:`train.verbs` return: runs, scores, comparisons, pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from train.encoder.encoder import Encoder
    from train.reports import compare, frames, runs
    from train.reports.tables import Table

UNTRAINED = "untrained"


class _Shown:
    """Tables: as text on a terminal, as HTML in a notebook."""

    def _tables(self) -> Sequence[Table]:
        raise NotImplementedError

    def __str__(self) -> str:
        from train.reports.tables import plain_text

        return plain_text(self._tables())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from train.reports.tables import html

        return html(self._tables())


class Scores(_Shown, Mapping[str, float]):
    """Score → value, such as `scores["idiolink/val/span/ndcg@10"]`; shown as tables, one a benchmark.

    Args:
        values: of one model.
        model: its name.
    """

    def __init__(self, values: Mapping[str, float], model: str = "model") -> None:
        self._values, self._model = dict(values), model

    def __getitem__(self, key: str) -> float:
        if key not in self._values:
            from train.config.validation import no_such_score

            raise KeyError(no_such_score(key, list(self._values)))
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def to_pandas(self) -> pd.DataFrame:
        """A row a score: its key and value, and the parts of the key."""
        import pandas as pd

        from train.declarations.registry import score_of

        parts = ("benchmark", "split", "mode", "metric", "slice", "dimension", "better")
        rows = [
            (key, value, *(getattr(score_of(key), part) for part in parts)) for key, value in self.items()
        ]
        return pd.DataFrame(rows, columns=["score", "value", *parts])

    def _tables(self) -> Sequence[Table]:
        from train.reports.frames import group_runs
        from train.reports.runs import Run as ReadRun
        from train.reports.score_tables import paper_tables

        run = ReadRun(Path(), self._model, "scored", scores=self._values, meta={"model": self._model})
        return paper_tables(group_runs([run]))


class Comparison(_Shown):
    """Two models, or a run and its untrained model, score by score and query by query.

    Attributes:
        differences: score → its difference, intervals, p and verdict
            (:class:`train.reports.compare.Difference`).
    """

    def __init__(
        self, compared: compare.Comparison, ours: frames.Group, theirs: frames.Group | None = None
    ) -> None:
        self._compared, self._ours, self._theirs = compared, ours, theirs
        self.differences = {difference.key: difference for difference in compared.differences}

    def examples(self, worst: int = 10, score: str | None = None) -> pd.DataFrame:
        """The queries that lost most: a row each, with the value on either side.

        Args:
            worst: how many.
            score: its key; by default the run's first monitored score, else the first that has results of
                each query.

        Raises:
            UserError: if the score has no results of each query.
        """
        theirs, untrained = self._theirs or self._ours, self._theirs is None
        monitored = [key for run in self._ours.runs for key in run.monitor]
        keys = [score] if score else [*monitored, *self.differences]
        for key in keys:
            if (False, key) in self._ours.queries and (untrained, key) in theirs.queries:
                ours, others = self._ours.queries[False, key], theirs.queries[untrained, key]
                table = ours[["cluster", "value"]].rename(columns={"value": "after"})
                table = table.join(others["value"].rename("before"), how="inner")
                table["difference"] = table["after"] - table["before"]
                return table.sort_values("difference", kind="stable").head(worst)
        raise UserError(
            f"no results of each query for {score or 'any score'}: eval.per_query=true writes them"
        )

    def _tables(self) -> Sequence[Table]:
        from train.reports.score_tables import paired_table

        return [paired_table(self._compared)]


class Run(_Shown):
    """A run folder.

    Args:
        path: the folder.

    Raises:
        UserError: if there is no run in it.
    """

    def __init__(self, path: str | Path) -> None:
        from train.reports.runs import find_runs

        (self.path, *others), _ = find_runs([Path(path)])
        if others:
            raise UserError(f"{path}: contains {1 + len(others)} runs; name one of them")

    @property
    def _read(self) -> runs.Run:
        from train.reports.runs import read_run

        return read_run(self.path, self.path.name)

    @property
    def status(self) -> str:
        """`finished`, `interrupted`, `failed`, …"""
        return self._read.status

    @property
    def scores(self) -> Scores:
        """Those of the best checkpoint."""
        return Scores(self._read.scores, self.path.name)

    @property
    def untrained(self) -> Scores:
        """Those of the model before training."""
        return Scores(self._read.baseline, UNTRAINED)

    @cached_property
    def best(self) -> Encoder:
        """The best checkpoint."""
        from train.encoder.encoder import Encoder

        return Encoder.from_pretrained(self.path / "best")

    def compare(self, other: str | Path | Run = UNTRAINED) -> Comparison:
        """With the model before training, or with another run.

        Raises:
            UserError: if there is no other run, or one of them has no scores.
        """
        from train.reports.compare import compare
        from train.reports.frames import one_group

        ours = one_group([self._read])
        if other == UNTRAINED:
            return Comparison(compare(ours), ours)
        theirs = one_group([(other if isinstance(other, Run) else Run(other))._read])
        return Comparison(compare(ours, theirs), ours, theirs)

    def examples(self, worst: int = 10, score: str | None = None) -> pd.DataFrame:
        """The queries that lost most by training, see :meth:`Comparison.examples`."""
        return self.compare().examples(worst, score)

    def plot(self) -> Any:
        """The learning curve, as an image (PIL); it is also `plots/learning_curve.png` in the folder."""
        from PIL import Image

        from train.reports.plots import draw_figures

        path = self.path / "plots" / "learning_curve.png"
        if not path.is_file():
            draw_figures(self._read)
        with Image.open(path) as image:
            return image.copy()

    def resume(self, *overrides: str, **options: Any) -> Run:
        """Finish an interrupted run, or train a finished one on, as `trainer={"max_epochs": 9}`."""
        from train.verbs import resume

        return resume(self, *overrides, **options)

    def push(self, repo_id: str, **options: Any) -> list[str | None]:
        """Publish the best checkpoint, see :func:`train.verbs.push`."""
        from train.verbs import push

        return push(self, repo_id, **options)

    def _tables(self) -> Sequence[Table]:
        from train.reports.score_tables import changeable, changes

        run = self._read
        scores = {key: run.scores[key] for key in run.monitor if key in run.scores} or changeable(run.scores)
        return [changes(scores, run.baseline, f"{self.path.name} ({run.status})", (UNTRAINED, "trained"))]


class Page:
    """A page in a file, which a notebook shows inline; it needs neither server nor network.

    Args:
        path: the file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"Page({str(self.path)!r})"

    def _repr_html_(self) -> str:
        from html import escape

        content = escape(self.path.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{content}" width="100%" height="600" style="border:0"></iframe>'
