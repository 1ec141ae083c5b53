"""Explain what a method would release, from public numbers alone: ``pkm explain``.

    pkm explain SynopsisKMeans n=10000 d=4 k=5 epsilon=1
    pkm explain FastLloyd n=5000 d=2 k=15 variant=published

METHOD is a class name, an import path or an entry point. n, d and k are the numbers of
records, columns and clusters. All other keys are parameters of the method. No data are
read. Persons with several rows cost the same, where a method serves them.

Releases of a query that cost the same share a row: mu, epsilon and delta are of each,
the share is of all. Gaussian noise of standard deviation s costs mu = sensitivity / s,
Laplace noise of scale s costs epsilon = sensitivity / s.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from omegaconf import OmegaConf
from rich.table import Table

from pkm.audit.report import load_method_class
from pkm.experiments.config.method_parameters import get_parameter_names
from pkm.experiments.config.settings import at_least
from pkm.experiments.console.console import (
    make_console,
    make_main,
    require_one,
    show,
)
from pkm.methods.fitting import BatchMethod
from pkm.methods.schedule import Schedule
from pkm.methods.statement import TEXTS
from pkm.names import suggestion
from pkm.privacy import AccountedRun, Charge
from pkm.privacy.accountant import gaussian_cost
from pkm.privacy.ledger import split_groups

SHAPE = ("n", "d", "k")
HEADER = ("first", "last", "query", "mechanism", "times", "mu", "epsilon", "delta")


def run(
    names: Sequence[str],
    options: Mapping[str, str],
) -> None:
    """Print the planned releases, then what is promised and public."""
    target = require_one(names, "METHOD", "one method")
    method_class = load_method_class(target)
    # Values are written as for `pkm run`.
    dotlist = [f"{key}={text}" for key, text in options.items()]
    parameters = dict(OmegaConf.from_dotlist(dotlist))
    known = [*SHAPE, *get_parameter_names(target)]
    known.remove("n_clusters")
    for key in sorted(parameters.keys() - known):
        hint = suggestion(key, known)
        raise ValueError(f"{target} has no parameter {key!r}{hint}")
    shape = {name: parameters.pop(name, None) for name in SHAPE}
    for name, value in shape.items():
        at_least(1).require(name, value)
    n, d, k = shape.values()
    method = method_class(n_clusters=k, **parameters)
    try:
        planned = method.planned_run(n, d, [0])
    except NotImplementedError as error:
        raise ValueError(str(error)) from error

    console = make_console()
    header, *rows = list_releases(planned.schedule)
    title = f"{planned.method} {method.variant}, n={n} d={d} k={k}"
    table = Table(*header, title=title)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for line in describe(method, planned):
        show(console, line)


def list_releases(charges: Sequence[Charge]) -> list[list[str]]:
    """List planned releases below a header; equal ones of a query are one row.

    A user is in one of disjoint groups: their share is that of the release to it. In
    shares of mu squared, a cost epsilon counts as in :func:`gaussian_cost`.

    Examples
    --------
    >>> count = Charge("count", 0, "laplace", epsilon=0.1)
    >>> total = Charge("sum", 0, "laplace", epsilon=0.3)
    >>> for row in list_releases([count, total, count]):
    ...     print(row[0], row[1], row[2], row[8])
    first last query share of epsilon
    1 3 count 40.0%
    2 2 sum 60.0%
    """
    is_pure = not any(charge.mu for charge in charges)

    def weigh(charge: Charge) -> float:
        return charge.epsilon if is_pure else gaussian_cost([charge])[0]

    total = max(math.fsum(map(weigh, group)) for group in split_groups(charges))
    by_cost: dict[tuple, dict[int, Charge]] = defaultdict(dict)
    for position, charge in enumerate(charges, 1):
        costs = charge.mu, charge.epsilon, charge.delta
        by_cost[charge.label, charge.mechanism, *costs][position] = charge

    unit = "epsilon" if is_pure else "mu²"
    rows = [[*HEADER, f"share of {unit}"]]
    for (label, mechanism, *costs), equal in by_cost.items():
        n_groups = len({charge.group for charge in equal.values()})
        share = math.fsum(map(weigh, equal.values())) / n_groups / total
        numbers = [f"{cost:.4g}" for cost in costs]
        row = [
            f"{min(equal)}",
            f"{max(equal)}",
            label,
            mechanism,
            f"{len(equal)}",
            *numbers,
            f"{share:.1%}",
        ]
        rows.append(row)
    return rows


def describe(
    method: BatchMethod,
    planned: AccountedRun,
) -> list[str]:
    """Say what the queries of a plan are, what is promised to whom, what is public."""
    purposes = {query.label: query.__doc__ for query in method.curator.serves}
    purposes["rest"] = "All that follows the released number of records."
    lines = []
    for label in dict.fromkeys(charge.label for charge in planned.schedule):
        purpose, *_ = str(purposes.get(label)).splitlines()
        lines.append(f"{label}: {purpose}")

    budget = planned.budget
    spent = Schedule(*planned.schedule).to_ledger(budget).spent()
    unit = TEXTS["unit"][budget.unit]
    adjacency = TEXTS["adjacency"][budget.adjacency]
    neighbors = adjacency["neighbors"].format(who=unit["who"], budget=budget)
    trust = TEXTS["trust"][method.claim.trust]
    public = ", ".join(method.claim.public)
    flaws = ", ".join(planned.flaws) or "none known"
    return [
        *lines,
        f"together: epsilon {spent:.6g} of {budget.epsilon:g}, delta {budget.delta:g}",
        f"unit: {unit['unit']}",
        f"adjacency: {neighbors} {adjacency['count']}",
        f"trust: {trust['trust']}",
        f"public: {public}, all parameters",
        f"flaws: {flaws}",
    ]


main = make_main("explain", __doc__, "METHOD", (), run)
