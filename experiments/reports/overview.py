"""The content of a plan and its progress, printed on the console."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from pkm.experiments.config.backend import Backend
from pkm.experiments.console.console import duration
from pkm.experiments.plan.estimate import estimator, wall_seconds
from pkm.experiments.plan.plan import Plan
from pkm.experiments.plan.sweep import Gap, Substitution
from pkm.experiments.store.store import Store

#: How many names a line spells out.
NAMES_SHOWN = 10


def show(plan: Plan, store: Store, backend: Backend, console: Console) -> None:
    """Print a dry run: cells per sweep, what is stored, what is missing, and an estimated time.

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
    estimate = estimator(store, backend)
    status = {cell.key: store.status(cell.key) for cell in plan.cells}
    headings = (
        "sweep",
        "data sets",
        "methods",
        "cells",
        "stored",
        "failed",
        "gaps",
        "estimate",
    )
    table = Table(*headings, title=plan.paper)
    for column in table.columns[1:]:
        column.justify = "right"
    waiting: dict[str, float] = {}
    n_rough = 0
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
                n_rough += not known
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
    cells = [cell for cell in plan.cells if cell.key in waiting]
    seconds = wall_seconds(waiting, cells, backend.jobs)
    basis = f"{len(waiting) - n_rough} cells from stored timings, {n_rough} by the rough model"
    console.print(
        f"{len(waiting)} of {len(status)} cells to run, "
        f"about {duration(seconds)} with jobs={backend.jobs} ({basis})"
    )


def show_status(plan: Plan, store: Store, console: Console) -> None:
    """Print done, failed and absent cells per sweep, then gaps and why cells failed."""
    table = Table("sweep", "done", "failed", "absent", "gaps", title=plan.paper)
    for column in table.columns[1:]:
        column.justify = "right"
    status = {cell.key: store.status(cell.key) for cell in plan.cells}
    for sweep in plan.sweeps:
        counts = Counter(
            status[cell.key] for name, cell in plan.entries if name == sweep
        )
        gaps = sum(gap.sweep == sweep for gap in plan.gaps)
        table.add_row(
            sweep,
            str(counts["done"]),
            str(counts["failed"]),
            str(counts["absent"]),
            str(gaps),
        )
    console.print(table)
    show_missing(plan, console)
    for cell in plan.cells:
        if status[cell.key] == "failed":
            record = store.failure_record(cell.key)
            text = (
                f"{cell.label}: {record.get('error')} "
                f"(attempts: {record.get('attempts')}; {store.failure_path(cell.key)})"
            )
            console.print(text, style="red", markup=False, soft_wrap=True)


def show_missing(plan: Plan, console: Console) -> None:
    """Print a plan's gaps, one line per reason, and its substitutions, one line per family."""
    for line in gap_lines(plan.gaps):
        console.print(f"gap: {line}", style="yellow", markup=False, soft_wrap=True)
    for line in substitution_lines(plan.substitutions):
        console.print(f"substitute: {line}", markup=False, soft_wrap=True)


def gap_lines(gaps: Iterable[Gap]) -> list[str]:
    """Describe gaps, one line for those whose reasons differ in the data set's name alone.

    Examples
    --------
    >>> names = ("g2-2-10", "g2-2-20")
    >>> gap_lines([Gap("one", "lloyd", name, None, f"no file {name}.txt") for name in names])
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
    >>> family = "g2-{d}-{sd} as g2-{d}-{sd}-generated"
    >>> substitution_lines([Substitution("g2", "g2-2-10", "g2-2-10-generated", family)])
    ['g2-{d}-{sd} as g2-{d}-{sd}-generated, because the file is not available: g2-2-10']
    """
    families: dict[str, dict[str, None]] = {}
    for substitution in substitutions:
        families.setdefault(substitution.family, {})[substitution.dataset] = None
    return [
        f"{family}, because the file is not available: {listed(list(names))}"
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
