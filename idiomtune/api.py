"""The programs as functions: `import idiomtune as it`, then `it.train(...)`, `it.learn(...)`, ….

Each takes the options of its command by the same names, as nested dictionaries (`trainer={"max_epochs": 2}`)
or as on the command line (`"trainer.max_epochs=2"`), makes the same checks and writes the same files. Where
a command takes the path of a table, rows in memory will do (:func:`idiomtune.io.tables.write_table`). What
you can fix is a :class:`idiomtune.errors.UserError`. One runs at a time in a process. A function may leave
logging, random states, torch's switches and the environment changed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, wraps
from inspect import unwrap
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from idiomtune.errors import IN_PYTHON, UserError
from idiomtune.io.files import checked_count, describe_type, is_file, is_folder, path_text, user_path
from idiomtune.io.tables import has_columns, inputs_in, write_table, write_tables, write_texts

if TYPE_CHECKING:
    import pandas as pd

    from idiomtune.glossaries.encoder import GlossaryEncoder, Occurrence
    from idiomtune.reports import compare, frames, runs
    from idiomtune.reports.tables import Table


P = ParamSpec("P")
T = TypeVar("T")

_RUNNING = Lock()


def run_alone(function: Callable[P, T]) -> Callable[P, T]:
    """A program as a function that runs alone in this process.

    Raises:
        UserError: if another one runs.
    """

    @wraps(function)
    def run(*args: P.args, **options: P.kwargs) -> T:
        if not _RUNNING.acquire(blocking=False):
            raise UserError("another run is in progress in this process: wait for it, or use another one")
        in_python = IN_PYTHON.set(True)
        try:
            return function(*args, **options)
        except (UserError, KeyboardInterrupt) as error:
            raise error.with_traceback(None) from None  # whose message says all, without our insides
        finally:
            IN_PYTHON.reset(in_python)
            _RUNNING.release()

    return run


@run_alone
def train(experiment: str | Path | None = None, *overrides: str, data: Any = None, **options: object) -> Run:
    """Fine-tune a model: `idiomtune train`.

    Args:
        experiment: a name in `conf/experiment/`.
        overrides: options as on the command line.
        data: `sample`; your own training data, a path or in memory; or options of the section `data`.
        options: `val` (your own held-out data), `model` (a name, folder or Hub id, or options), `glossary`
            (what the model reads), `run_dir`, and every section of the configuration.

    Raises:
        UserError: for everything that you can fix.
        KeyboardInterrupt: at Ctrl-C; :func:`resume` goes on with the run.

    >>> people = ["He", "She", "The boss", "Anna", "Our team", "Everybody"]
    >>> rows = [{"anchor": f"{who} broke the ice.", "positive": f"{who} made us relax."} for who in people]
    >>> one_step = {"max_steps": 1}
    >>> run = it.train(data=rows[2:], val=rows[:2], model="minilm", trainer=one_step, run_dir="runs/rows")
    >>> assert run.status == "finished"
    >>> assert run.best.encode("He broke the ice.").shape == (384,)
    """
    from idiomtune.cli import run

    return Run(run("train", *training_options(experiment, overrides, data, options)))


@run_alone
def resume(run: Run | str | Path = "auto", *overrides: str, **options: object) -> Run:
    """Finish an interrupted run; without a name the newest unfinished one in `checkpoints/`.

    >>> run = it.resume("runs/a")

    Raises:
        UserError: if there is no such run, or an option differs from the run's.
    """
    from idiomtune.training.resume import newest_unfinished

    run = path_text(run, "run")
    if run == "auto" and "run_dir" not in options and not (run := str(newest_unfinished("*") or "")):
        raise UserError("there is no unfinished run in checkpoints/: name one, as it.resume(<run>)")
    trained: Run = unwrap(train)(None, *overrides, resume=run, **options)  # within this program
    return trained


@run_alone
def check(experiment: str | Path | None = None, *overrides: str, data: Any = None, **options: object) -> None:
    """Check a configuration and its data, in seconds: `idiomtune check`. Arguments as of :func:`train`.

    >>> it.check("own", data=rows)

    Raises:
        UserError: as the run would.
    """
    from idiomtune.cli import run as run_program

    with tempfile.TemporaryDirectory(prefix="idiomtune-") as folder, inputs_in(Path(folder)):
        run_program("check", *training_options(experiment, overrides, data, options))


@run_alone
def evaluate(
    model: str | Path | Run | GlossaryEncoder,
    benchmarks: str | Sequence[str] | None = None,
    *overrides: str,
    glossary: Any = None,
    **options: object,
) -> Scores:
    """Score any model: `idiomtune evaluate`.

    Args:
        model: a name, folder, Hub id, run (its best checkpoint) or encoder.
        benchmarks: their names; None = all whose data is there.
        glossary: what the model reads after expressions: a path, or expression → meaning.

    >>> scores = it.evaluate("minilm", ["idiolink"], "split=val", data="sample")
    >>> assert 0 < scores["idiolink/val/sentence/r_precision"] < scores["idiolink/val/sentence/ndcg@10"] < 1
    """
    from idiomtune.cli import run as run_program

    with tempfile.TemporaryDirectory(prefix="idiomtune-") as folder:
        path = _model_path(model, Path(folder))
        name = Path(path).name if path != folder else "encoder"
        overrides_ = evaluation_options(path, benchmarks, overrides, options, glossary)
        return Scores(run_program("evaluate", *overrides_), name)


@run_alone
def learn(model: str | Path | Run, glossary: Any, *overrides: str, **options: object) -> GlossaryEncoder:
    """A model that has learned what expressions mean: `idiomtune learn`.

    Args:
        glossary: a path, or expression → meaning.
        options: `corpus` (sentences: a path, or texts), `output`, `into`, and all others of the command.

    Returns:
        The new model, which is in `output`.

    >>> quick = {"sentences": 8, "epochs": 1}  # the defaults learn more, in minutes
    >>> model = it.learn("minilm", {"miss the boat": "be too late"}, output="models/mine", **quick)
    >>> before, after = (encoder.similarity("He missed the boat.", "He was too late.")
    ...                  for encoder in (it.Encoder("minilm"), model))
    >>> assert after > before
    """
    from idiomtune.config.words import word
    from idiomtune.glossaries.encoder import GlossaryEncoder

    if (corpus := options.get("corpus")) is not None:
        options["corpus"] = write_texts(corpus, "corpus")
    words = [f"model={word(path_text(model, 'model'))}", *_words(overrides)]
    return GlossaryEncoder.from_pretrained(_run("learn", {"glossary": glossary, **options}, words))


@run_alone
def glossary(sources: Any, output: str | Path, *overrides: str, texts: Any = None, **options: object) -> Path:
    """A glossary from dictionaries: `idiomtune glossary`.

    >>> path = it.glossary("wordnet", "idioms.tsv", texts=["He kicked the bucket."])

    Args:
        sources: what the command calls `from`: `wiktionary`, `wordnet`, a table or a data set of the Hub;
            several in order of preference.
        texts: what the command calls `in`: a path, or texts.
        options: `language`, `path`, and all others of the command.

    Returns:
        The file, which `glossary=` takes.
    """
    values = {"from": sources, "output": path_text(output, "output"), "in": texts, **options}
    path: Path = _run("glossary", values, _words(overrides))
    return path


@run_alone
def write(expressions: Any, output: str | Path, model: str, **options: object) -> Path:
    """A benchmark and training data for expressions of your own: `idiomtune write`.

    Args:
        expressions: a path, expression → meaning, or expressions.
        output: the folder, which `data={"idiolink": …}` takes. A second call goes on with it.
        model: a language model's name at the endpoint.
        options: `endpoint`, `query_model`, `judge_model`, and all others of the command.

    >>> folder = it.write({"break the ice": "make people relax"}, "data/mine", "some-model", dry_run=True)

    Raises:
        UserError: for everything that you can fix.
    """
    if isinstance(expressions, list | tuple) and all(isinstance(name, str) for name in expressions):
        expressions = [{"expression": name} for name in expressions]
    values = {"expressions": expressions, "output": path_text(output, "output"), "model": model, **options}
    last = _run("write", values)
    if options.get("dry_run"):
        print(last)
    return Path(values["output"])


@run_alone
def push(run: Run | str | Path, repo_id: str, **options: object) -> str | None:
    """Publish a run's best checkpoint on the Hugging Face Hub: `idiomtune push`.

    >>> it.push(run, "me/idioms", dry_run=True)                        # shows what would be pushed

    Returns:
        The address of the commit; None for a dry run.
    """
    address: str | None = _run("push", {"checkpoint": path_text(run, "run"), "repo_id": repo_id, **options})
    return address


@run_alone
def report(*runs: Run | str | Path, **options: object) -> Page:
    """Compare runs: tables here, and a page: `idiomtune report`.

    >>> page = it.report(run, other, against=other)
    >>> it.report(run, against="baseline", fail_below=0.01).outcome    # passes, fails or cannot tell

    Args:
        options: those of the command; of `fail_below` one value or a list.
    """
    from idiomtune.reports.page import PAGE

    values = {"runs": [_existing(run, "runs") for run in runs], **options}
    against = values.get("against")
    if against is not None and not (isinstance(against, str) and against == "baseline"):
        values["against"] = _existing(against, "against")
    folder, outcome = _run("report", values)
    return Page(folder / PAGE, outcome)


@run_alone
def usage(
    model: str | Path | Run | GlossaryEncoder,
    texts: Sequence[str],
    expressions: str | Sequence[str],
    labels: Sequence[bool | None] | None = None,
) -> list[float]:
    """Literal or idiomatic? Of each text from 0 = literal to 1 = idiomatic.

    Uses the model's gate; otherwise the shipped one (MiniLM) or one fitted once (minutes).

    Args:
        model: a name, folder, Hub id, run (its best checkpoint) or encoder.
        expressions: one for each text, or one for all, as a dictionary has them.
        labels: your own, as of :meth:`idiomtune.glossaries.encoder.GlossaryEncoder.usage`.

    Returns:
        (N,); NaN where the expression is not in its text.

    Raises:
        UserError: if the model has no hidden layers.

    >>> texts = ["The boy broke the ice on the pond.", "A joke broke the ice."]
    >>> literal, idiomatic = it.usage("minilm", texts, "break the ice")
    >>> assert literal < 0.5 < idiomatic
    """
    from idiomtune.glossaries.encoder import GlossaryEncoder
    from idiomtune.glossaries.usages import usage_requests

    requests = usage_requests(texts, expressions)
    encoder = model
    if not isinstance(encoder, GlossaryEncoder):
        encoder = GlossaryEncoder.from_pretrained(_model_path(model))
    usages: list[float] = encoder.usages(*requests, labels)
    return usages


@run_alone
def find(
    texts: str | Path | Iterable[str],
    glossary: Any = None,
    model: str | Path | Run | GlossaryEncoder = "minilm",
) -> list[Occurrence]:
    """Every expression of a glossary in texts, with meaning and usage: `idiomtune find`.

    Args:
        texts: a path (a text per line, or a table with a column `text`), or texts.
        glossary: a name, a path, or expression → meaning; several in a list; None = `english`.
        model: whose gate computes the usage. An encoder has its own glossary, so give no other.

    Returns:
        A row for each occurrence, in the order of the texts; `pd.DataFrame(rows)` is a concordance.

    Raises:
        UserError: for everything that you can fix.

    >>> row, = it.find(["At last a joke broke the ice."], {"break the ice": "make people relax"})
    >>> assert (row.span, row.meaning) == ((15, 28), "make people relax")
    """
    from idiomtune.data.user.texts import read_texts
    from idiomtune.glossaries.encoder import GlossaryEncoder
    from idiomtune.programs.find import find_in_lines

    if isinstance(model, GlossaryEncoder) and glossary is not None:
        message = "an encoder has its own: find(texts, model=Encoder(…, glossary=…)), or name a model"
        raise UserError(message, option="glossary")
    encoder = model
    if not isinstance(encoder, GlossaryEncoder):
        named = "english" if glossary is None else glossary
        encoder = GlossaryEncoder(_model_path(model), glossary=named)
    if isinstance(texts, str | os.PathLike):
        return find_in_lines(encoder, [*read_texts(path_text(texts, "texts"), "texts")])
    return encoder.find(texts)


@run_alone
def explore(*models: Run | str | Path, output: str | Path | None = None, **options: object) -> Page:
    """A page with the nearest texts of several models, side by side: `idiomtune explore`.

    >>> page = it.explore(run, corpus=["He broke the ice.", "The ice broke."])

    Args:
        output: the page; by default `explore.html` in the first run's folder, where it replaces an earlier
            one, or for other models in the current folder.
        options: `corpus` (a path, or texts), `glossary` (a path, or expression → meaning), and others.
    """
    if output is None and models and isinstance(models[0], Run):
        output, options["overwrite"] = models[0].path / "explore.html", True
    output = path_text("explore.html" if output is None else output, "output")
    values = {"models": [path_text(model, "models") for model in models], "output": output, **options}
    return Page(_run("explore", values))


def _run(program: str, values: Mapping[str, Any], words: Sequence[str] = ()) -> Any:
    """What the program returns, with data in memory written to files."""
    from idiomtune.cli import run

    return run(program, words, _in_memory(values))


# ------------------------------------------------------------------------- what they return


UNTRAINED = "untrained"


class _Shown:
    """Tables: as text on a terminal, as HTML in a notebook."""

    def _tables(self) -> Sequence[Table]:
        raise NotImplementedError

    def __str__(self) -> str:
        from idiomtune.reports.tables import plain_text

        return plain_text(self._tables())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from idiomtune.reports.tables import html

        return html(self._tables())


class Scores(_Shown, Mapping[str, float]):
    """Score → value, such as `scores["idiolink/val/span/ndcg@10"]`; shown as tables, one a benchmark.

    Args:
        values: of one model.
        model: its name.
    """

    def __init__(self, values: Mapping[str, float], model: str = "model") -> None:
        from idiomtune.plugins.registry import score_declaration
        from idiomtune.plugins.score import ScoreTable, read_scores

        self._values = (
            values if isinstance(values, ScoreTable) else score_declaration(read_scores(values, ()))
        )
        self._model = model

    def __getitem__(self, key: str) -> float:
        if not isinstance(key, str) or key not in self._values:
            from idiomtune.config.validation import no_such_score

            raise KeyError(no_such_score(str(key), list(self._values)))
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def to_pandas(self) -> pd.DataFrame:
        """A row a score: its key and value, and the parts of the key."""
        import pandas as pd

        parts = ("benchmark", "split", "mode", "metric", "slice", "dimension", "better")
        rows = [
            (key, self[key], *(getattr(score, part) for part in parts))
            for key, score in self._values.parts.items()
        ]
        return pd.DataFrame(rows, columns=["score", "value", *parts])

    def _tables(self) -> Sequence[Table]:
        from idiomtune.reports.score_tables import scorecard_tables

        return scorecard_tables(self._values, self._model)


class Comparison(_Shown):
    """Two models, or a run and its untrained model, score by score and query by query.

    Attributes:
        differences: score → its difference, intervals, p and verdict
            (:class:`idiomtune.reports.compare.Difference`).
    """

    def __init__(
        self,
        compared: compare.GroupComparison,
        candidate: frames.Group,
        reference: frames.Group | None = None,
    ) -> None:
        self._compared, self._candidate, self._reference = compared, candidate, reference
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
        worst = checked_count(worst, "worst")
        reference, untrained = self._reference or self._candidate, self._reference is None
        monitored = [key for run in self._candidate.runs for key in run.monitor]
        keys = [score] if score else [*monitored, *self.differences]
        for key in keys:
            if (False, key) in self._candidate.queries and (untrained, key) in reference.queries:
                results, others = self._candidate.queries[False, key], reference.queries[untrained, key]
                table = results[["text", "cluster", "value"]].rename(columns={"value": "after"})
                table = table.join(others["value"].rename("before"), how="inner")
                table["difference"] = table["after"] - table["before"]
                return table.sort_values("difference", kind="stable").head(worst)
        raise UserError(
            f"no results of each query for {score or 'any score'}: eval.per_query=true writes them",
            option="score",
        )

    def _tables(self) -> Sequence[Table]:
        from idiomtune.reports.score_tables import paired_table

        return [paired_table(self._compared)]


class Run(_Shown, os.PathLike[str]):
    """A run folder, which is taken where a path is.

    Args:
        path: the folder.

    Raises:
        UserError: if there is no run in it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from idiomtune.reports.runs import find_runs

        self.path, *others = find_runs([Path(_existing(path, "path"))])
        if others:
            raise UserError(f"{path}: contains {1 + len(others)} runs; name one of them")

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def _read(self) -> runs.RunResults:
        from idiomtune.reports.runs import read_run

        return read_run(self.path, self.path.name)

    @property
    def status(self) -> str:
        """`finished`, `interrupted`, `failed`, …"""
        return self._read.status

    @property
    def scores(self) -> Scores:
        """Scores of the best checkpoint."""
        return Scores(self._read.scores, self.path.name)

    @property
    def untrained(self) -> Scores:
        """Scores of the model before training."""
        return Scores(self._read.baseline, UNTRAINED)

    @cached_property
    def best(self) -> GlossaryEncoder:
        """The best checkpoint."""
        from idiomtune.glossaries.encoder import GlossaryEncoder

        return GlossaryEncoder.from_pretrained(self.path)

    def compare(self, other: str | Path | Run = UNTRAINED) -> Comparison:
        """With the model before training, or with another run.

        Raises:
            UserError: if there is no other run, or one of them has no scores.
        """
        from idiomtune.reports.compare import compare
        from idiomtune.reports.frames import single_recipe

        candidate = single_recipe([self._read])
        if other == UNTRAINED:
            return Comparison(compare(candidate), candidate)
        reference = single_recipe([Run(_existing(other, "other"))._read])
        return Comparison(compare(candidate, reference), candidate, reference)

    def examples(self, worst: int = 10, score: str | None = None) -> pd.DataFrame:
        """The queries that lost most by training, see :meth:`Comparison.examples`."""
        return self.compare().examples(worst, score)

    def plot(self) -> Any:
        """The learning curve, as an image (PIL); it is also `plots/learning_curve.png` in the folder."""
        from PIL import Image

        from idiomtune.reports.plots import draw_figures

        path = self.path / "plots" / "learning_curve.png"
        if not path.is_file():
            draw_figures(self._read)
        with Image.open(path) as image:
            return image.copy()

    def resume(self, *overrides: str, **options: object) -> Run:
        """Finish an interrupted run, or train a finished one on, as `trainer={"max_epochs": 9}`."""
        return resume(self, *overrides, **options)

    def push(self, repo_id: str, **options: object) -> str | None:
        """Publish the best checkpoint, see :func:`push`."""
        return push(self, repo_id, **options)

    def _tables(self) -> Sequence[Table]:
        from idiomtune.reports.score_tables import changeable, changes

        run = self._read
        scores = run.scores.only(run.monitor) or changeable(run.scores)
        return [changes(scores, run.baseline, f"{self.path.name} ({run.status})", (UNTRAINED, "trained"))]


class Page:
    """A page in a file, which a notebook shows inline; it needs neither server nor network.

    Args:
        path: the file.
        outcome: of a report's `fail_below`: `passes`, `fails` or `cannot tell`; None without it.
    """

    def __init__(self, path: str | Path, outcome: str | None = None) -> None:
        self.path, self.outcome = Path(path_text(path, "path")), outcome
        if not is_file(self.path):
            raise UserError("there is no such page", option="path", file=self.path)

    def __repr__(self) -> str:
        return f"Page({str(self.path)!r})"

    def _repr_html_(self) -> str:
        from html import escape

        name, content = escape(self.path.name), escape(self.path.read_text(encoding="utf-8"))
        return f'<iframe title="{name}" srcdoc="{content}" style="border:0;width:100%;height:44em"></iframe>'


# ------------------------------------------------------------------------- options, as words and values


_NAMES_OR_TABLES = ("glossary", "model.glossary", "from", "path")
Options = tuple[list[str], dict[str, Any]]  # words, for what is chosen by name; and values


def training_options(
    experiment: str | Path | None, overrides: Sequence[str], data: Any, options: Mapping[str, Any]
) -> Options:
    """The options of a run."""
    from idiomtune.config.words import config_names, word

    words, values = _declare(options)
    if isinstance(data, str) and data in config_names("data"):
        words, data = [f"data={word(data)}", *words], {}
    elif data is not None and (has_columns(data) or not isinstance(data, Mapping)):
        data = {"train": data}
        experiment = "own" if experiment is None and "~objective" not in words else experiment
    if (val := values.pop("val", None)) is not None:
        data = {**(data or {}), "val": val}
    if experiment is not None:
        words.insert(0, f"+experiment={word(path_text(experiment, 'experiment'))}")
    model, glossary = values.pop("model", None), values.pop("glossary", None)
    if model is not None and not isinstance(model, Mapping):
        words, model = [*words, f"model={word(path_text(model, 'model'))}"], {}
    if glossary is not None:
        model = {**(model or {}), "glossary": glossary}
    return [*words, *_words(overrides)], _in_memory({"data": data, "model": model, **values})


def evaluation_options(
    path: str, benchmarks: Any, overrides: Sequence[str], options: Mapping[str, Any], glossary: Any = None
) -> Options:
    """The options of an evaluation."""
    from idiomtune.config.words import word

    chosen = [benchmarks] if isinstance(benchmarks, str) else benchmarks
    words, values = _declare({**options, "benchmarks": chosen})
    read = {} if glossary is None else {"model": {"glossary": glossary}}
    return [f"model={word(path)}", *words, *_words(overrides)], _in_memory({**values, **read})


def _declare(options: Mapping[str, Any]) -> Options:
    """The options, an objective and benchmarks that are given as objects among them as their values."""
    from idiomtune.config.compose import merge_options
    from idiomtune.config.words import split_choices
    from idiomtune.plugins.benchmark import BenchmarkOptions
    from idiomtune.plugins.objective import ObjectiveOptions

    words, values, own = list[str](), dict(options), list[Any]()
    if isinstance(objective := values.get("objective"), ObjectiveOptions):
        own.append(objective)
        words.append("~objective")
        values["objective"] = objective.model_dump()
    for name in ("benchmark", "benchmarks"):
        chosen = values[name] if isinstance(values.get(name), list | tuple) else []
        if objects := [part for part in chosen if isinstance(part, BenchmarkOptions)]:
            words += split_choices({"benchmark": [part for part in values.pop(name) if part not in objects]})[
                0
            ]
            declared = {part.name: part.model_dump() for part in objects}
            values["benchmark"] = merge_options(values.get("benchmark") or {}, declared)
            own += objects
    if own:
        modules = values.get("extensions") or []
        modules = modules if isinstance(modules, list | tuple) else [modules]
        values["extensions"] = [*modules, *{type(part).__module__: 0 for part in own}]
    return words, values


def _model_path(model: object, folder: Path | None = None) -> str:
    """A name, folder or Hub id; of a run the best checkpoint; an encoder is saved in `folder`."""
    if folder is None or isinstance(model, type) or not (hasattr(model, "save") and hasattr(model, "encode")):
        return path_text(model, "model")
    model.save(folder)
    return str(folder)


def _words(overrides: Sequence[str]) -> Sequence[str]:
    """Options as on the command line, without its flags."""
    for word in overrides:
        if not isinstance(word, str) or word.startswith("-") or not ("=" in word or word.startswith("~")):
            raise UserError(f"must be a text name=value, got {describe_type(word)}", option="overrides")
    return overrides


def _in_memory(options: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Nested options, data in memory as files; None is left out at the top, where it says "by default"."""
    from idiomtune.config.compose import merge_options

    values: dict[str, Any] = {}
    for name, value in options.items():
        option = f"{section}{name}"
        value = _in_files(option, value)
        if isinstance(value, Mapping) and name not in ("columns", "path"):
            value = _in_memory(value, f"{option}.")
        if value is not None or section:
            for part in reversed(name.split(".") if isinstance(name, str) else [name]):
                value = {part: value}  # of "trainer.batch_size": 8, section by section
            values = merge_options(values, value)
    return values


def _in_files(option: str, value: Any) -> Any:
    """The value of an option, with data in memory written to files."""
    from idiomtune.config.words import PATHS
    from idiomtune.plugins.registry import is_data_path

    if value is None:
        return None
    if option in _NAMES_OR_TABLES:
        return write_tables(value, option)
    if option in ("corpus", "in"):
        return write_texts(value, option)
    if option.startswith("benchmark.") and isinstance(value, Mapping) and is_data_path(option):
        return {name: write_table(table, f"{option}.{name}") for name, table in value.items()}
    if option == "expressions" or is_data_path(option) or option.endswith("data.negatives.corpus"):
        return write_table(value, option)
    return path_text(value, option) if option in PATHS else value


def _existing(path: object, option: str) -> str:
    """A run, a folder of runs, or a file of scores."""
    text = path_text(path, option)
    if not is_folder(existing := user_path(text, option)) and not is_file(existing):
        raise UserError("there is no such file or folder", option=option, file=text)
    return text
