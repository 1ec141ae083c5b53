"""What a plan holds and how far it has come, printed for people."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from pkm.experiments.backends import Backend, duration
from pkm.experiments.estimate import estimator, wall_seconds
from pkm.experiments.plan import Plan
from pkm.experiments.store import Store
from pkm.experiments.sweep import Gap, Substitution

#: How many names a printed line spells out.
NAMES_SHOWN = 10


def show(plan: Plan, store: Store, backend: Backend, console: Console) -> None:
    """Print a dry run: cells per sweep, what is stored already, what is lacking, and an estimate of the time.

    Parameters
    ----------
    plan : Plan
        What would be run.
    store : Store
        What has been run.
    backend : Backend
        Which the estimate is for.
    console : rich.console.Console
        Where to print.
    """
    estimate, jobs = estimator(store, backend), backend.jobs
    status = {cell.key: store.status(cell.key) for cell in plan.cells}
    table = Table(
        "sweep",
        "data sets",
        "methods",
        "cells",
        "stored",
        "failed",
        "gaps",
        "estimate",
        title=plan.paper,
    )
    for column in table.columns[1:]:
        column.justify = "right"
    guessed, waiting = 0, {}
    for sweep in plan.sweeps:
        cells = [cell for name, cell in plan.entries if name == sweep]
        gaps = sum(gap.sweep == sweep for gap in plan.gaps)
        open_cells = [cell for cell in cells if status[cell.key] != "done"]
        seconds = 0.0
        for cell in open_cells:
            cost, known = estimate(cell)
            seconds += cost
            # A cell that two sweeps share is run, and counted in the total, once.
            if cell.key not in waiting:
                waiting[cell.key] = cost
                guessed += not known
        counts = Counter(status[cell.key] for cell in cells)
        table.add_row(
            sweep,
            str(len({cell.dataset_name for cell in cells})),
            str(len({cell.method for cell in cells})),
            str(len(cells)),
            str(counts["done"]),
            str(counts["failed"]),
            str(gaps),
            duration(seconds) if open_cells else "-",
        )
    console.print(table)
    show_missing(plan, console)
    basis = f"{len(waiting) - guessed} cells from stored timings, {guessed} by the rough model"
    total = wall_seconds(waiting, [cell for cell in plan.cells if cell.key in waiting], jobs)
    console.print(
        f"{len(waiting)} of {len(status)} cells to run, about {duration(total)} with jobs={jobs} ({basis})"
    )


def show_missing(plan: Plan, console: Console) -> None:
    """Print what a plan lacks, one line per reason, and what stands in for something else, one line per family."""
    for line in gap_lines(plan.gaps):
        console.print(f"gap: {line}", style="yellow", markup=False, soft_wrap=True)
    for line in substitution_lines(plan.substitutions):
        console.print(f"substitute: {line}", markup=False, soft_wrap=True)


def gap_lines(gaps: Iterable[Gap]) -> list[str]:
    """Describe gaps, one line for those whose reasons differ in the data set's name alone.

    Examples
    --------
    >>> gap_lines([Gap("one", "lloyd", name, None, f"no file {name}.txt") for name in ("g2-2-10", "g2-2-20")])
    ['g2-2-10, g2-2-20 (2 cells): no file NAME.txt']
    """
    groups: dict[str, list[Gap]] = {}
    for gap in gaps:
        groups.setdefault(gap.reason.replace(gap.dataset, "NAME"), []).append(gap)
    lines = []
    for common, group in groups.items():
        names = list(dict.fromkeys(gap.dataset for gap in group))
        reason = group[0].reason if len(names) == 1 else common
        lines.append(f"{listed(names)} ({len(group)} cells): {reason}")
    return lines


def substitution_lines(substitutions: Iterable[Substitution]) -> list[str]:
    """Describe substitutions, one line per family.

    Examples
    --------
    >>> substitution_lines([Substitution("g2", "g2-2-10", "g2-2-10-generated", "g2-{d}-{sd} as g2-{d}-{sd}-generated")])
    ['g2-{d}-{sd} as g2-{d}-{sd}-generated, because the file is not at hand: g2-2-10']
    """
    families: dict[str, dict[str, None]] = {}
    for found in substitutions:
        families.setdefault(found.family, {})[found.dataset] = None
    return [
        f"{family}, because the file is not at hand: {listed(list(names))}"
        for family, names in families.items()
    ]


def listed(names: Sequence[str]) -> str:
    """Join names, the first ones only where there are many.

    Examples
    --------
    >>> listed([str(number) for number in range(12)])
    '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more'
    """
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more
