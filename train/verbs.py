"""The programs as functions: `import idiomtune as it`, then `it.train(...)`, `it.learn(...)`, ….

Each takes the options of its command by the same names, as nested dictionaries (`trainer={"max_epochs": 2}`)
or as on the command line (`"trainer.max_epochs=2"`), makes the same checks and writes the same files. Where
a command takes the path of a table, rows in memory will do (:func:`train.io.tables.written_table`). What you
can fix is a :class:`train.errors.UserError`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.errors import UserError
from train.io.tables import written_table, written_texts
from train.results import Page, Run, Scores

if TYPE_CHECKING:
    from train.encoder.encoder import Encoder

_PLAIN = re.compile(r"[A-Za-z_./@:][\w./@:+-]*")  # what needs no quotation marks, and is no number
_WORDS = {"true", "false", "null", "nan", "inf"}  # which would be values of another type


def train(experiment: str | None = None, *overrides: str, data: Any = None, **options: Any) -> Run:
    """Fine-tune a model: `python -m train`.

    >>> run = it.train("idiolink_ft", data="sample", trainer={"max_epochs": 2}, run_dir="runs/a")
    >>> run = it.train(data=rows, model="minilm")                      # your own rows: the experiment `own`

    Args:
        experiment: a name in `conf/experiment/`.
        overrides: options as on the command line.
        data: `sample`; your own training data, a path or in memory; or options of the section `data`.
        options: `val` (your own held-out data), `model` (a name, folder or Hub id, or options), `glossary`
            (what the model reads), `run_dir`, and every section of the configuration.

    Raises:
        UserError: for everything that you can fix.
        KeyboardInterrupt: at Ctrl-C; :func:`resume` goes on with the run.
    """
    from train.__main__ import run
    from train.programs.ending import started
    from train.programs.launch import call

    def task(config: dict[str, Any]) -> Run:
        run(config)
        assert started.run is not None
        return Run(started.run.path)

    return call("config", task, _of_training(experiment, overrides, data, options))


def resume(run: Run | str | Path = "auto", *overrides: str, **options: Any) -> Run:
    """Finish an interrupted run; without a name the newest unfinished one in `checkpoints/`.

    >>> run = it.resume("runs/a")

    Raises:
        UserError: if there is no such run, or an option differs from the run's.
    """
    return train(None, *overrides, resume=run.path if isinstance(run, Run) else run, **options)


def check(experiment: str | None = None, *overrides: str, data: Any = None, **options: Any) -> None:
    """Check a configuration and its data, in seconds: `python -m train.check`. Arguments as of :func:`train`.

    >>> it.check("own", data=rows)

    Raises:
        UserError: as the run would.
    """
    from train.check import run, without_folder
    from train.programs.launch import call

    call("config", run, without_folder(_of_training(experiment, overrides, data, options)))


def evaluate(
    model: str | Path | Run | Encoder,
    benchmarks: str | Sequence[str] | None = None,
    *overrides: str,
    glossary: Any = None,
    **options: Any,
) -> Scores:
    """Score any model: `python -m train.evaluate`.

    >>> scores = it.evaluate("minilm", ["idiolink"], data="sample")

    Args:
        model: a name, folder, Hub id, run (its best checkpoint) or encoder.
        benchmarks: their names; None = all whose data is there.
        glossary: what the model reads after expressions: a path, or expression → meaning.
    """
    from train.config import EvaluateSettings
    from train.programs.launch import call, ready

    def task(config: dict[str, Any]) -> Scores:
        settings: EvaluateSettings = ready(EvaluateSettings, config)
        from train.programs.evaluate import score_model

        return Scores(score_model(settings, config), name)

    given = options | {"benchmarks": [benchmarks] if isinstance(benchmarks, str) else benchmarks}
    with tempfile.TemporaryDirectory(prefix="idiomtune-") as folder:
        path = _model_path(model, Path(folder))
        name = Path(path).name if path != folder else "encoder"
        return call("evaluate", task, [*_named(path, glossary), *overrides, *_arguments(given)])


def learn(model: str | Path | Run, glossary: Any, *overrides: str, **options: Any) -> Encoder:
    """Teach a model what expressions mean: `python -m train.learn`.

    >>> model = it.learn("minilm", {"miss the boat": "be too late for an opportunity"}, output="models/mine")

    Args:
        glossary: a path, or expression → meaning.
        options: `corpus` (sentences: a path, or texts), `output`, `into`, and all others of the command.

    Returns:
        The new model, which is in `output`.
    """
    from train.config import LearnSettings
    from train.programs.launch import call, ready

    def task(config: dict[str, Any]) -> Encoder:
        settings: LearnSettings = ready(LearnSettings, config)
        from train.encoder.encoder import Encoder
        from train.programs.learn import learn

        return Encoder.from_pretrained(learn(settings))

    given = {"glossary": [written_table(glossary)], **_with_corpus(options)}
    return call("learn", task, [*_named(_model_path(model)), *overrides, *_arguments(given)])


def export(model: str | Path | Run, format: str, output: str | Path, *overrides: str, **options: Any) -> Path:
    """A model for serving (`onnx`, `int8`, `static`), scored next to the model: `python -m train.export`.

    >>> folder = it.export(run, "static", "models/static", data="sample")
    """
    from train.config import ExportSettings
    from train.programs.launch import call, ready

    def task(config: dict[str, Any]) -> Path:
        settings: ExportSettings = ready(ExportSettings, config)
        from train.programs.export import export

        return export(settings)

    given = {"format": format, "output": output, **options}
    return call("export", task, [*_named(_model_path(model)), *overrides, *_arguments(given)])


def push(run: Run | str | Path, repo_id: str | None = None, **options: Any) -> list[str | None]:
    """Publish a run's best checkpoint on the Hugging Face Hub: `python -m train.push`.

    >>> it.push(run, "me/idioms", dry_run=True)                        # shows what would be pushed

    Returns:
        The addresses of the commits; None for a dry run's.
    """
    from train.config import PushSettings
    from train.config import check as checked
    from train.programs.launch import call

    def task(config: dict[str, Any]) -> list[str | None]:
        settings: PushSettings = checked(PushSettings, config)
        from train.programs.publish import publish

        return publish(settings)

    path = run.path if isinstance(run, Run) else run
    return call("push", task, _arguments({"checkpoint": path, "repo_id": repo_id, **options}))


def report(*runs: Run | str | Path, **options: Any) -> Page:
    """Compare runs: tables here, and a page: `python -m train.report`.

    >>> page = it.report(run, other, against=other)
    """
    from train.report import parse
    from train.report import report as write
    from train.reports.page import PAGE

    return Page(write(parse([*map(_path, runs), *_plain(options)])) / PAGE)


def gate(run: Run | str | Path, against: Run | str | Path | None = None, **options: Any) -> str:
    """May a run replace another model? `passes`, `fails` or `cannot tell`: `python -m train.gate`.

    >>> it.gate(run, against="baseline", margin=0.01)

    Args:
        options: `floor`, `margin`, `cluster_margin`: one value or a list; `output`, `extensions`.
    """
    from train.gate import gate as judge
    from train.gate import parse

    return judge(parse([_path(run), *_plain({"against": against, **options})]))


def explore(*models: Run | str | Path, output: str | Path | None = None, **options: Any) -> Page:
    """What models find in a corpus, side by side on a page: `python -m train.explore`.

    >>> page = it.explore(run, corpus=["He broke the ice.", "The ice broke."])

    Args:
        output: the page; by default a file in the first run's folder, which is replaced.
        options: `corpus` (a path, or texts), `glossary` (a path, or expression → meaning), and others.
    """
    from train.explore import parse
    from train.programs.explore import explore as write

    options = _with_corpus(options)
    if isinstance(options.get("glossary"), Mapping):
        options["glossary"] = written_table(options["glossary"])
    if output is None:
        first = models[0].path if models and isinstance(models[0], Run) else Path()
        output, options["overwrite"] = first / "explore.html", True
    write(parse([*map(_path, models), *_plain({"output": output, **options})]))
    return Page(output)


# ------------------------------------------------------------------------- from Python to the command line


def _of_training(
    experiment: str | None, overrides: Sequence[str], data: Any, options: Mapping[str, Any]
) -> list[str]:
    """The command line of a run."""
    from train.config.compose import config_names

    given = dict(options)
    model, val = given.pop("model", None), given.pop("val", None)
    is_name = isinstance(data, str) and data in config_names("data")
    is_own = data is not None and not isinstance(data, Mapping) and not is_name
    if experiment is None and is_own:
        experiment = "own"
    arguments = [] if experiment is None else [f"+experiment={experiment}"]
    if isinstance(data, Mapping):
        inside = {name: written_table(v) if name in ("train", "val") else v for name, v in data.items()}
        given["data"] = inside
    elif data is not None:
        arguments.append(_override("data.train", written_table(data)) if is_own else f"data={data}")
    if val is not None:
        arguments.append(_override("data.val", written_table(val)))
    if isinstance(model, Mapping):
        given["model"], model = model, None
    path = None if model is None else _model_path(model)
    named = _named(path, given.pop("glossary", None))
    return [*arguments, *named, *overrides, *_arguments(given)]


def _named(model: str | None, glossary: Any = None) -> list[str]:
    """`model=` and `model.glossary=`."""
    given = [] if model is None else [f"model={model}"]
    return given if glossary is None else [*given, _override("model.glossary", [written_table(glossary)])]


def _model_path(model: Any, folder: Path | None = None) -> str:
    """A name, folder or Hub id; of a run the best checkpoint; an encoder is saved in `folder`."""
    if isinstance(model, Run):
        return str(model.path / "best")
    if isinstance(model, str | Path):
        path = Path(model)
        return str(path / "best" if (path / "run.json").is_file() else model)
    if folder is None or not hasattr(model, "save"):
        raise UserError(f"model: must be a name, a folder, a Hub id or a run, got {type(model).__name__}")
    model.save(folder)
    return str(folder)


def _arguments(options: Mapping[str, Any], section: str = "") -> list[str]:
    """Nested options as `name.of.option=value`; None is left out at the top, where it says "by default"."""
    arguments = []
    for name, value in options.items():
        if isinstance(value, Mapping):
            arguments += _arguments(value, f"{section}{name}.")
        elif value is not None or section:
            arguments.append(_override(section + name, value))
    return arguments


def _override(name: str, value: Any) -> str:
    return f"{name}={_value(value)}"


def _value(value: Any) -> str:
    """A value in Hydra's grammar."""
    from train.programs.launch import quoted

    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_value(one)}" for name, one in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{','.join(map(_value, value))}]"
    text = str(value.path if isinstance(value, Run) else value)
    is_text = isinstance(value, str | Path | Run)
    is_bare = not is_text or (_PLAIN.fullmatch(text) and text.lower() not in _WORDS)
    return text if is_bare else quoted(text)


def _with_corpus(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, a corpus in memory as a file."""
    corpus = options.get("corpus")
    is_path = corpus is None or isinstance(corpus, str | Path)
    return dict(options) if is_path else {**options, "corpus": written_texts(corpus)}


def _path(run: Run | str | Path) -> str:
    return str(run.path if isinstance(run, Run) else run)


def _plain(options: Mapping[str, Any]) -> Iterator[str]:
    """Options of a program without a configuration."""
    for name, value in options.items():
        several = isinstance(value, Sequence) and not isinstance(value, str)
        for one in value if several else [value]:
            if one is not None:
                yield f"{name}={str(one).lower() if isinstance(one, bool) else _path(one)}"
