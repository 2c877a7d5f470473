"""May a model replace another? `idiomtune gate <run> against=<run>|baseline margin=<…>`, for CI."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from idiomtune.errors import UserError
from idiomtune.io.files import printable, user_path, write_json
from idiomtune.io.outputs import check_output, reserved_output
from idiomtune.programs.failures import MISTAKE, names_and_options, run_plain, split_names

if TYPE_CHECKING:
    from idiomtune.reports.checks import Verdict

HELP = """Check whether one model can replace another.

  idiomtune gate <run>… [against=<run>|baseline] check… [option=value …]

A run is a run folder, a folder of runs (one recipe with several seeds: each query's mean counts), or the JSON
file that idiomtune evaluate wrote (output=) with its per_query= file. Checks, also several of a kind:

floor=<score>:<value>             the score is at least this (for errors and ranks: at most)
margin=[<score>:]<margin>         it is worse than before by at most this, in its own unit; without a score:
                                  the same for all compared scores but ranks and errors
cluster_margin=[<score>:]<margin> the same for each idiom, compound, expression or group separately

against=<run>       what to compare with; baseline: the run's own model before training
output=<file.json>  also write the table there
overwrite=true      replace the file of output=
extensions=<module>[,<module>…]  your own modules with benchmarks of these runs

Exit status: 0 it passes; 1 a check fails; 3 a check cannot tell: the margin is within the 95%
interval of the difference (idioms, compounds, expressions or groups are resampled); 2 the command is
wrong, or the program failed."""

_CHECKS = ("floor", "margin", "cluster_margin")
_BASELINE = "baseline"


@dataclass(frozen=True)
class GateArguments:
    """The command line.

    Attributes:
        limits: check → score key ("" for all) → floor or margin.
    """

    folders: list[Path]
    against: list[Path]
    untrained: bool
    limits: Mapping[str, Mapping[str, float]]
    output: Path | None
    overwrite: bool
    extensions: list[str]


def parse(arguments: Sequence[str]) -> GateArguments:
    """The command line, checked.

    Raises:
        UserError: for an unknown option or value, or if no run or no check is given.
    """
    folders, values_of = names_and_options(
        arguments, (*_CHECKS, "against", "output", "overwrite", "extensions")
    )
    limits: dict[str, dict[str, float]] = {kind: {} for kind in _CHECKS}
    for kind in _CHECKS:
        for value in values_of.get(kind, ()):
            key, limit = _limit(kind, value)
            if key in limits[kind]:
                raise UserError(f"{kind}={value}: {key or kind} is given twice")
            limits[kind][key] = limit
    against = values_of.get("against", [])
    if (overwrite := values_of.get("overwrite", ["false"])[-1]) not in ("true", "false"):
        raise UserError(f"overwrite={overwrite}: must be true or false")
    if not folders:
        raise UserError("give the run to check (see --help)")
    if not any(limits.values()):
        raise UserError("name a check: floor=<score>:<value>, margin=[<score>:]<margin> or cluster_margin=")
    if (limits["margin"] or limits["cluster_margin"]) and not against:
        raise UserError("margin= and cluster_margin= need against=<run>, or against=baseline")
    if _BASELINE in against and len(against) > 1:
        raise UserError("against=baseline: the untrained model and a run at once; name one of them")
    return GateArguments(
        folders=[user_path(folder, "run") for folder in folders],
        against=[user_path(path, "against") for path in against if path != _BASELINE],
        untrained=_BASELINE in against,
        limits=limits,
        output=user_path(values_of["output"][-1], "output") if "output" in values_of else None,
        overwrite=overwrite == "true",
        extensions=split_names(values_of.get("extensions", [""])[-1]),
    )


def _limit(kind: str, value: str) -> tuple[str, float]:
    """The score's key and its limit."""
    key, _, number = value.rpartition(":")
    try:
        limit = float(number)
    except ValueError:
        limit = math.nan
    if kind == "floor" and not (math.isfinite(limit) and key):
        raise UserError(f"{kind}={value}: must be <score>:<number>, as {kind}=idiolink/val/span/ndcg@10:0.85")
    if kind != "floor" and not 0 <= limit < math.inf:
        raise UserError(f"{kind}={value}: must be [<score>:]<number of 0 or more>")
    return key, limit


def gate(arguments: GateArguments) -> Verdict:
    """Check, print the table, and write the file.

    Returns:
        The verdict.

    Raises:
        UserError: if a run or score does not exist, or the file cannot be written.
    """
    if arguments.output is not None:
        check_output("output", arguments.output, overwrite=arguments.overwrite)
    # Pandas takes a second: not for --help and typos.
    from idiomtune.declarations.registry import load_extensions
    from idiomtune.reports import checks as checking
    from idiomtune.reports import frames, tables
    from idiomtune.reports.runs import find_runs, read_runs

    load_extensions(arguments.extensions)
    paths, read_notes = find_runs(arguments.folders)
    others, more = find_runs(arguments.against)
    if shared := sorted(set(paths) & set(others)):
        raise UserError(f"against={shared[0]}: that is the run to check")
    runs = read_runs([*paths, *others])
    candidate = frames.single_recipe(runs[: len(paths)])
    reference = frames.single_recipe(runs[len(paths) :]) if others else None
    if arguments.untrained and not any(run.baseline for run in candidate.runs):
        raise UserError(f"against={_BASELINE}: {candidate.name} has no scores of its untrained model")
    checks, of_checks = checking.run_checks(
        candidate, reference, arguments.limits, untrained=arguments.untrained
    )
    groups = [group for group in (candidate, reference) if group]
    notes = [*frames.notes_of(groups, runs, [*read_notes, *more]), *of_checks]
    verdict = checking.worst(check.verdict for check in checks)
    against = "its untrained model" if arguments.untrained else reference.name if reference else ""
    title = f"{candidate.name} against {against}" if against else candidate.name
    tables.print_table(checking.check_table(checks, title))
    tables.print_notes(notes)
    print(printable(f"{candidate.name}: {checking.summary(checks)}"))
    if arguments.output is not None:
        content = {
            "verdict": verdict,
            "status": checking.STATUS[verdict],
            "run": list(map(str, paths)),
            "against": _BASELINE if arguments.untrained else list(map(str, others)),
            "checks": [asdict(check) | {"score": check.key} for check in checks],
            "notes": notes,
        }
        with reserved_output("output", arguments.output, overwrite=arguments.overwrite) as file:
            write_json(file, content)
    return verdict


def main(arguments: Sequence[str]) -> int:
    """The command line; returns the exit status."""
    # Python's status would be 1, which says that a check failed.
    return run_plain(_run, arguments, HELP, unexpected=MISTAKE)


def _run(arguments: Sequence[str]) -> int:
    verdict = gate(parse(arguments))
    from idiomtune.reports.checks import STATUS

    return STATUS[verdict]
