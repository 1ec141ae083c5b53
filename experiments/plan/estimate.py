"""Estimated running time of cells: from similar stored cells, else by a rough model."""

import math
from collections.abc import Callable, Iterable, Mapping

from pkm.experiments.cell.cell import Cell
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.method_parameters import method_class, presets
from pkm.experiments.plan.feasibility import find_facts
from pkm.experiments.store.store import Store
from pkm.scalars import is_integer

#: The rough model of a cell's seconds: a fixed part, then operations over rates
#: measured on an ordinary core.
SECONDS_PER_CELL = 0.01
DISTANCE_RATE = 5e10
PAIR_RATE = 2e9
#: Seconds of a fit of a method that runs seed by seed: a fixed part, and a factor over
#: the work of batched iterations.
SECONDS_PER_FIT = 0.04
FIT_FACTOR = 8
#: How many stored cells are read for their timings.
TIMINGS_READ = 2000
#: Cells alike in these columns take about the same time.
SIMILAR = (
    "method",
    "dataset",
    "k",
    "metrics",
    "timing",
    "clients",
    "latency_ms",
    "transport",
)
#: Values of these columns for cells without parties.
CENTRAL = {"clients": 0, "latency_ms": 0.0, "transport": ""}


def rough_seconds(cell: Cell) -> float:
    """Estimate a cell's seconds without any measurement.

    A fixed part, the distances from points to centers in seven iterations of every
    seed, and for the silhouette the distances among at most 10,000 points and their
    sums for every seed, each over a rate of an ordinary core. Methods that grow trees
    or collect candidates for one seed after the other take longer, by a factor that is
    right to an order of magnitude. A timing cell makes one fit more.
    """
    facts = find_facts(cell.dataset, *cell.file)
    n = facts.n or 2048
    d = facts.d or 2
    fits = len(cell.seeds) + cell.timing
    per_center = 7 * n * (2 * d + 2) / DISTANCE_RATE
    seconds = fixed_seconds(cell) + fits * max_centers(cell) * per_center
    if not getattr(method_class(cell.target), "batched", True):
        seconds += fits * (SECONDS_PER_FIT + FIT_FACTOR * cell.k * per_center)
    if "silhouette" in cell.metrics:
        seconds_per_pair = 2 * d / DISTANCE_RATE + len(cell.seeds) / PAIR_RATE
        seconds += min(n, 10_000) ** 2 * seconds_per_pair
    return seconds + fits * cell.kind.seconds_per_fit()


def fixed_seconds(cell: Cell) -> float:
    """Estimate the seconds that a cell takes whatever its work."""
    return SECONDS_PER_CELL + cell.kind.fixed_seconds()


def max_centers(cell: Cell) -> int:
    """Return how many centers a cell may release: k, or the leaves of a whole tree."""
    values = presets(cell.target) | dict(cell.params)
    depth = values.get("depth")
    unmerged = values.get("merge") is False
    return 2**depth if unmerged and is_integer(depth) else cell.k


def wall_seconds(
    costs: Mapping[str, float],
    cells: Iterable[Cell],
    jobs: int,
) -> float:
    """Estimate how long cells take together; timing cells are run one by one."""
    times = {False: 0.0, True: 0.0}
    for cell in cells:
        times[cell.timing] += costs[cell.key]
    return times[False] / jobs + times[True]


def estimator(
    store: Store,
    backend: Backend | None = None,
) -> Callable[[Cell], tuple[float, bool]]:
    """Make the function that estimates a cell's seconds.

    From similar stored cells, else by the rough model. Similar are cells of the same
    method, data set, k and metrics, timed or not, with the same parties and latency,
    whatever their budget, parameters or code version; their time is scaled to the
    number of seeds. Only the newest cells are read. No cell takes longer than its time
    limit.

    Parameters
    ----------
    store : Store
        Where timings are looked for.
    backend : Backend, optional
        Whose time limit holds for cells that have none of their own.

    Returns
    -------
    callable
        Cell to (seconds, whether measured).
    """
    backend = backend or Backend()
    columns = [*SIMILAR, "fit_seconds", "metric_seconds"]
    rows = store.read(store.keys()[:TIMINGS_READ], columns)
    measured = {}
    if not rows.empty:
        rows["seconds"] = rows["fit_seconds"] + rows["metric_seconds"]
        rows["latency_ms"] = rows["latency_ms"].fillna(CENTRAL["latency_ms"])
        measured = rows.groupby(list(SIMILAR))["seconds"].median().to_dict()

    def estimate(cell: Cell) -> tuple[float, bool]:
        columns = CENTRAL | cell.known_columns()
        seconds_per_fit = measured.get(tuple(columns[name] for name in SIMILAR))
        if seconds_per_fit is None:
            seconds = rough_seconds(cell)
        else:
            n_fits = len(cell.seeds) + cell.timing
            seconds = fixed_seconds(cell) + seconds_per_fit * n_fits
        limit = backend.find_limit(cell) or math.inf
        return min(seconds, limit), seconds_per_fit is not None

    return estimate


def estimate_costs(
    cells: Iterable[Cell],
    store: Store,
    backend: Backend,
) -> dict[str, float]:
    """Estimate the seconds of each cell, by its key."""
    estimate = estimator(store, backend)
    return {cell.key: estimate(cell)[0] for cell in cells}
