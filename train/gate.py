"""May a model replace another? `python -m train.gate <run> against=<run>|baseline margin=<…>`, for CI."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from train.cli.ending import MISTAKE
from train.cli.plain import names_in, paths_and_options, run_plain
from train.errors import UserError
from train.io.paths import expanded
from train.io.text import printable

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
        limits: check → score key ("" for all) → floor or margin.
    """

    folders: list[Path]
    against: list[Path]
    untrained: bool
    limits: Mapping[str, Mapping[str, float]]
    output: Path | None
    extensions: list[str]


def parse(arguments: Sequence[str]) -> Arguments:
    """The command line, checked.

    Raises:
        UserError: for an unknown option or value, or if no run or no check is given.
    """
    folders, given = paths_and_options(arguments, _OPTIONS)
    limits: dict[str, dict[str, float]] = {kind: {} for kind in _CHECKS}
    for kind in _CHECKS:
        for value in given.get(kind, ()):
            key, limit = _limit(kind, value)
            if key in limits[kind]:
                raise UserError(f"{kind}={value}: {key or kind} is given twice")
            limits[kind][key] = limit
    against = given.get("against", [])
    if not folders:
        raise UserError("name the run that is to be checked (--help says more)")
    if not any(limits.values()):
        raise UserError("name a check: floor=<score>:<value>, margin=[<score>:]<margin> or cluster_margin=")
    if (limits["margin"] or limits["cluster_margin"]) and not against:
        raise UserError("margin= and cluster_margin= need against=<run>, or against=baseline")
    if _BASELINE in against and len(against) > 1:
        raise UserError("against=baseline: the untrained model and a run at once; name one of them")
    return Arguments(
        folders=folders,
        against=[expanded(path, "against") for path in against if path != _BASELINE],
        untrained=_BASELINE in against,
        limits=limits,
        output=expanded(given["output"][-1], "output") if "output" in given else None,
        extensions=names_in(given.get("extensions", [""])[-1]),
    )


def _limit(kind: str, value: str) -> tuple[str, float]:
    """The score's key and its limit."""
    key, _, number = value.rpartition(":")
    try:
        limit = float(number)
    except ValueError:
        limit = math.nan
    is_floor = kind == "floor"
    if not math.isfinite(limit) or (limit < 0 and not is_floor) or (is_floor and not key):
        form = "<score>:<number>" if is_floor else "[<score>:]<number of 0 or more>"
        example = f"idiolink/val/span/ndcg@10:{0.85 if is_floor else 0.02}"
        raise UserError(f"{kind}={value}: must be {form}, as {kind}={example}")
    return key, limit


def gate(arguments: Arguments) -> int:
    """Check, print the table, and write the file.

    Returns:
        The exit status.

    Raises:
        UserError: if a run or score does not exist, or the file cannot be written.
    """
    # Pandas and scipy take a second: not for --help and slips.
    from train.declarations.registry import load_extensions
    from train.io.files import write_json
    from train.reports.checks import STATUS, check_table, run_checks, worst
    from train.reports.frames import data_notes, one_group
    from train.reports.runs import find_runs, read_runs
    from train.reports.tables import print_notes, print_table

    load_extensions(arguments.extensions)
    paths, notes = find_runs(arguments.folders)
    others, more = find_runs(arguments.against)
    if both := sorted(set(paths) & set(others)):
        raise UserError(f"against={both[0]}: that is the run that is to be checked")
    runs = read_runs([*paths, *others])
    ours = one_group(runs[: len(paths)])
    theirs = one_group(runs[len(paths) :]) if others else None
    if arguments.untrained and not any(run.baseline for run in ours.runs):
        raise UserError(f"against={_BASELINE}: {ours.name} has no scores of its untrained model")
    notes = [*data_notes(runs), *notes, *more, *(f"{run.name}: {note}" for run in runs for note in run.notes)]
    notes += [note for group in (ours, theirs) if group for note in group.notes()]
    checks, of_checks = run_checks(ours, theirs, arguments.limits, untrained=arguments.untrained)
    notes = list(dict.fromkeys([*notes, *of_checks]))
    verdict = worst(check.verdict for check in checks)
    against = "its untrained model" if arguments.untrained else theirs.name if theirs else ""
    print_table(check_table(checks, f"{ours.name} against {against}" if against else ours.name))
    print_notes(notes)
    print(printable(f"{ours.name}: {verdict}"))
    if arguments.output is not None:
        against_paths = _BASELINE if arguments.untrained else list(map(str, others))
        content = {"verdict": verdict, "status": STATUS[verdict], "run": list(map(str, paths))}
        try:
            write_json(
                arguments.output,
                content
                | {"against": against_paths, "checks": [asdict(check) for check in checks], "notes": notes},
            )
        except OSError as error:
            raise UserError(f"output={arguments.output}: cannot be written ({error.strerror})") from None
    return STATUS[verdict]


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    # Python's status would be 1, which says that a check failed.
    return run_plain(lambda given: gate(parse(given)), arguments, HELP, unexpected=MISTAKE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
