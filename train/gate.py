"""May a model replace another? `python -m train.gate <run> against=<run>|baseline margin=<…>`, for CI."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from train.cli.ending import MISTAKE
from train.cli.plain import run_plain
from train.errors import UserError
from train.io.paths import expanded
from train.io.text import printable

if TYPE_CHECKING:
    from train.reports.groups import Group
    from train.reports.runs import Run

HELP = """Check whether a model may replace another.

  python -m train.gate <run>… [against=<run>|baseline] check… [option=value …]

A run is a run folder, a folder of runs (one recipe with several seeds: each query's mean counts), or the JSON
file that train.evaluate wrote (output=) with its per_query= file. Checks; each may be given several times:

floor=<score>:<value>             the score is at least that (of errors and ranks: at most)
margin=[<score>:]<margin>         it is worse than before by at most that, in its own unit; without a score:
                                  so are all scores by which models are compared
cluster_margin=[<score>:]<margin> so is each idiom, compound or expression by itself

against=<run>       what it is compared with; baseline: the run's own model before training
output=<file.json>  write the table there as well
extensions=<module>[,<module>…]  modules of your own that bring benchmarks of these runs

Exit status: 0 it passes; 1 a check fails; 3 a check cannot tell: the 95% interval of the difference (whole
idioms, compounds or expressions are resampled) reaches across the margin; 2 the command is wrong,
or the program failed."""

_CHECKS = ("floor", "margin", "cluster_margin")
_OPTIONS = (*_CHECKS, "against", "output", "extensions")
_BASELINE = "baseline"


@dataclass(frozen=True)
class Arguments:
    """The command line.

    Attributes:
        checks: option → score key ("" for all) → floor or margin.
    """

    folders: list[Path]
    against: list[Path]
    untrained: bool
    checks: dict[str, dict[str, float]]
    output: Path | None
    extensions: list[str]


def parse(arguments: Sequence[str]) -> Arguments:
    """The command line, checked.

    Raises:
        UserError: for an unknown option or value, or where no run or no check is named.
    """
    folders: list[Path] = []
    against: list[str] = []
    options: dict[str, str] = {}
    checks: dict[str, dict[str, float]] = {name: {} for name in _CHECKS}
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if equals and option in _CHECKS:
            key, limit = _limit(option, value)
            if key in checks[option]:
                raise UserError(f"{argument}: {key or option} is given twice")
            checks[option][key] = limit
        elif equals and option == "against":
            against.append(value)
        elif equals and option in _OPTIONS:
            options[option] = value
        elif (equals and not Path(argument).exists()) or argument.startswith("-"):
            raise UserError(f"{argument}: unknown option; there are {', '.join(f'{o}=' for o in _OPTIONS)}")
        else:
            folders.append(expanded(argument, "run"))
    if not folders:
        raise UserError("name the run that is to be checked (--help says more)")
    if not any(checks.values()):
        raise UserError("name a check: floor=<score>:<value>, margin=[<score>:]<margin> or cluster_margin=")
    if (checks["margin"] or checks["cluster_margin"]) and not against:
        raise UserError("margin= and cluster_margin= need against=<run>, or against=baseline")
    if _BASELINE in against and len(against) > 1:
        raise UserError("against=baseline: the untrained model and a run at once; name one of them")
    return Arguments(
        folders=folders,
        against=[expanded(path, "against") for path in against if path != _BASELINE],
        untrained=_BASELINE in against,
        checks=checks,
        output=expanded(options["output"], "output") if options.get("output") else None,
        extensions=[name for name in options.get("extensions", "").strip("[]").split(",") if name],
    )


def _limit(option: str, value: str) -> tuple[str, float]:
    """The score's key and its limit."""
    key, _, number = value.rpartition(":")
    try:
        limit = float(number)
    except ValueError:
        limit = math.nan
    is_margin = option != "floor"
    if not math.isfinite(limit) or (is_margin and limit < 0) or not (key or is_margin):
        form = "[<score>:]<number of 0 or more>" if is_margin else "<score>:<number>"
        example = "idiolink/val/span/ndcg@10:0.85" if option == "floor" else "idiolink/val/span/ndcg@10:0.02"
        raise UserError(f"{option}={value}: is to be {form}, as {option}={example}")
    return key, limit


def gate(arguments: Arguments) -> int:
    """Check, print the table, and write the file.

    Returns:
        The exit status.

    Raises:
        UserError: if a run or score is not there, or the file cannot be written.
    """
    # Scipy and pydantic take a second: not for --help and slips.
    from train.declarations.registry import load_extensions
    from train.io.files import write_json
    from train.reports.gate import STATUS, Limits, overall, run_checks
    from train.reports.groups import data_notes
    from train.reports.runs import find_runs, read_runs, sample_note
    from train.reports.terminal import print_checks, print_notes

    load_extensions(arguments.extensions)
    paths, notes = find_runs(arguments.folders)
    others, more = find_runs(arguments.against)
    if both := sorted(set(paths) & set(others)):
        raise UserError(f"against={both[0]}: that is the run that is to be checked")
    runs = read_runs([*paths, *others])
    notes = [*sample_note(runs), *notes, *more]
    notes += [f"{run.name}: {note}" for run in runs for note in run.notes]
    ours = _group(runs[: len(paths)])
    theirs = _group(runs[len(paths) :]) if others else None
    if arguments.untrained and not any(run.baseline for run in ours.runs):
        raise UserError(f"against={_BASELINE}: {ours.name} has no scores of its untrained model")
    for group in filter(None, (ours, theirs)):
        notes += group.notes()
    notes += data_notes([run for run in runs if run.is_scored])

    floors, margins, cluster_margins = (arguments.checks[name] for name in _CHECKS)
    limits = Limits(floors, margins, cluster_margins)
    checks, said = run_checks(ours, theirs, limits, untrained=arguments.untrained)
    notes = list(dict.fromkeys([*notes, *said]))
    verdict = overall(checks)
    against = "its untrained model" if arguments.untrained else theirs.name if theirs else ""
    print_checks(checks, f"{ours.name} against {against}" if against else ours.name)
    print_notes(notes)
    print(printable(f"{ours.name}: {verdict}"))
    if arguments.output is not None:
        content = {
            "verdict": verdict,
            "status": STATUS[verdict],
            "run": [str(path) for path in paths],
            "against": _BASELINE if arguments.untrained else [str(path) for path in others],
            "checks": [{"check": check.asked, **asdict(check)} for check in checks],
            "notes": notes,
        }
        try:
            write_json(arguments.output, content)
        except OSError as error:
            raise UserError(f"output={arguments.output}: cannot be written ({error.strerror})") from None
    return STATUS[verdict]


def _group(runs: Sequence[Run]) -> Group:
    """Runs of one recipe, under a name for people.

    Raises:
        UserError: if none has scores, or they are not of one recipe.
    """
    from train.reports.groups import group_runs

    groups = group_runs([run for run in runs if run.is_scored])
    if not groups:
        said = [f"{run.name} ({run.status}): {'; '.join(run.notes) or 'it has no scores'}" for run in runs]
        raise UserError("there are no scores to check:\n  " + "\n  ".join(said))
    if len(groups) > 1:
        names = "; ".join(group.name for group in groups)
        raise UserError(f"name runs of one recipe; these differ in more than the seed: {names}")
    (group,) = groups
    alone = len(group.runs) == 1
    return replace(group, name=group.runs[0].name if alone else f"{group.name}, {group.summary}")


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    # Python's status would be 1, which says that a check failed.
    return run_plain(lambda given: gate(parse(given)), arguments, HELP, unexpected=MISTAKE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
