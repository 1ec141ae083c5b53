"""The content of a plan and its progress, printed on the console."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table

from pkm.experiments.config.backend import Backend
from pkm.experiments.console.console import format_duration, show
from pkm.experiments.plan.estimate import estimate_wall_time, make_estimator
from pkm.experiments.plan.plan import Plan
from pkm.experiments.plan.sweep import Gap, Substitution
from pkm.experiments.store.store import Store
from pkm.names import list_names

STATUS = ("done", "failed", "absent")
#: How many names a line spells out.
NAMES_SHOWN = 10


def show_plan(
    plan: Plan,
    store: Store,
    backend: Backend,
    console: Console,
) -> None:
    """Print a dry run: what is stored, what is missing, and an estimated time."""
    estimate = make_estimator(store, backend)
    cells = [cell for cell in plan.cells if store.status(cell.key) != "done"]
    estimates = {cell.key: estimate(cell) for cell in cells}
    costs = {key: seconds for key, (seconds, _) in estimates.items()}
    show_sweeps(plan, store, console, costs)
    n_known = sum(is_known for _, is_known in estimates.values())
    n_rough = len(cells) - n_known
    basis = f"{n_known} cells from stored timings, {n_rough} by the rough model"
    seconds = format_duration(estimate_wall_time(costs, cells, backend.jobs))
    console.print(
        f"{len(cells)} of {len(plan.cells)} cells to run, "
        f"about {seconds} with jobs={backend.jobs} ({basis})"
    )


def show_status(plan: Plan, store: Store, console: Console) -> None:
    """Print done, failed and absent cells per sweep, then gaps and why cells failed."""
    show_sweeps(plan, store, console)
    for cell in plan.cells:
        if store.status(cell.key) == "failed":
            record = store.read_failure(cell.key)
            text = (
                f"{cell.label}: {record.get('error')} "
                f"(attempts: {record.get('attempts')}; {store.failure_path(cell.key)})"
            )
            show(console, text, "red")


def show_sweeps(
    plan: Plan,
    store: Store,
    console: Console,
    costs: Mapping[str, float] | None = None,
) -> None:
    """Print a table of the sweeps, with estimated times by `costs`; then gaps."""
    headings = ["sweep", "data sets", "methods", "cells", *STATUS, "gaps"]
    if costs is not None:
        headings.append("estimate")
    table = Table(*headings, title=plan.paper)
    for column in table.columns[1:]:
        column.justify = "right"
    for sweep in plan.sweeps:
        cells = [cell for name, cell in plan.sweep_cells if name == sweep]
        counts = Counter(store.status(cell.key) for cell in cells)
        line = [
            len({cell.dataset_name for cell in cells}),
            len({cell.method for cell in cells}),
            len(cells),
            *(counts[name] for name in STATUS),
            sum(gap.sweep == sweep for gap in plan.gaps),
        ]
        if costs is not None:
            open_costs = [costs[cell.key] for cell in cells if cell.key in costs]
            line.append(format_duration(sum(open_costs)) if open_costs else "-")
        table.add_row(sweep, *map(str, line))
    console.print(table)
    # A line for each reason, then one for each family.
    for line in describe_gaps(plan.gaps):
        show(console, f"gap: {line}", "yellow")
    for line in describe_substitutions(plan.substitutions):
        show(console, f"substitute: {line}")


def describe_gaps(gaps: Iterable[Gap]) -> list[str]:
    """Describe gaps, in one line where reasons differ in the data set's name alone.

    Examples
    --------
    >>> fields = ("one", "lloyd")
    >>> names = ("g2-2-10", "g2-2-20")
    >>> gaps = [Gap(*fields, name, None, f"no file {name}.txt") for name in names]
    >>> describe_gaps(gaps)
    ['g2-2-10, g2-2-20 (2 cells): no file NAME.txt']
    """
    groups = group_by_reason((gap.dataset, gap.reason) for gap in gaps)
    return [
        f"{join_names(names)} ({len(names)} cells): {reason}"
        for names, reason in groups
    ]


def group_by_reason(reasons: Iterable[tuple[str, str]]) -> list[tuple[list[str], str]]:
    """Put names together whose reasons differ in the name alone.

    Examples
    --------
    >>> group_by_reason([("s1", "no file s1.txt"), ("s2", "no file s2.txt")])
    [(['s1', 's2'], 'no file NAME.txt')]
    """
    groups = defaultdict(list)
    for name, reason in reasons:
        groups[reason.replace(name, "NAME")].append(name)
    return [
        (names, common if len(set(names)) > 1 else common.replace("NAME", names[0]))
        for common, names in groups.items()
    ]


def describe_substitutions(substitutions: Iterable[Substitution]) -> list[str]:
    """Describe substitutions, one line per family.

    Examples
    --------
    >>> family = "g2-{d}-{sd} as g2-{d}-{sd}-generated"
    >>> substitution = Substitution("g2", "g2-2-10", family)
    >>> describe_substitutions([substitution])
    ['g2-{d}-{sd} as g2-{d}-{sd}-generated, because the file is not available: g2-2-10']
    """
    families = defaultdict(list)
    for substitution in substitutions:
        families[substitution.family].append(substitution.dataset)
    return [
        f"{family}, because the file is not available: {join_names(names)}"
        for family, names in families.items()
    ]


def join_names(names: Iterable[str]) -> str:
    """Join distinct names; of many, only the first ones.

    Examples
    --------
    >>> join_names([str(number) for number in range(12)])
    '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more'
    """
    return list_names(list(dict.fromkeys(names)), NAMES_SHOWN)
