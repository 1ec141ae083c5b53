"""Estimated running time of cells: from similar stored cells, else by a rough model."""

import math
from collections.abc import Callable, Iterable, Mapping

from pkm.experiments.cell.cell import Cell
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.method_parameters import get_defaults, get_method_class
from pkm.experiments.plan.feasibility import find_dataset_info
from pkm.experiments.store.store import Store
from pkm.scalars import is_integer

#: The rough model of a cell's seconds: a fixed part, then operations over rates
#: measured on an ordinary core.
SECONDS_PER_CELL = 0.01
DISTANCES_PER_SECOND = 5e10
PAIRS_PER_SECOND = 2e9
#: Seconds of a fit of a method that runs seed by seed: a fixed part, and a factor over
#: the work of batched iterations.
SECONDS_PER_FIT = 0.04
FIT_FACTOR = 8
#: How many stored cells are read for their timings.
MAX_TIMINGS = 2000
#: Cells that are equal in these columns take about the same time.
SIMILARITY_COLUMNS = (
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
CENTRAL_DEFAULTS = {"clients": 0, "latency_ms": 0.0, "transport": ""}


def estimate_without_timings(cell: Cell) -> float:
    """Estimate a cell's seconds without any measurement.

    The estimate is a sum: a fixed part, the distances from points to centers in seven
    iterations of every seed, and for the silhouette the distances among at most 10,000
    points and their sums for every seed. Each is divided by a rate of an ordinary core.
    Methods that fit seed by seed take longer, by a factor that is right to an order of
    magnitude. A timing cell makes one fit more.
    """
    info = find_dataset_info(cell.dataset, cell.file, cell.bounds)
    n = info.n or 2048
    d = info.d or 2
    fits = len(cell.seeds) + cell.timing
    per_center = 7 * n * (2 * d + 2) / DISTANCES_PER_SECOND
    seconds = fixed_seconds(cell) + fits * count_max_centers(cell) * per_center
    if not getattr(get_method_class(cell.target), "batched", True):
        seconds += fits * (SECONDS_PER_FIT + FIT_FACTOR * cell.k * per_center)
    if "silhouette" in cell.metrics:
        per_pair = 2 * d / DISTANCES_PER_SECOND + len(cell.seeds) / PAIRS_PER_SECOND
        seconds += min(n, 10_000) ** 2 * per_pair
    return seconds + fits * cell.kind.seconds_per_fit()


def fixed_seconds(cell: Cell) -> float:
    """Estimate the seconds that a cell takes apart from its fits."""
    return SECONDS_PER_CELL + cell.kind.fixed_seconds()


def count_max_centers(cell: Cell) -> int:
    """Return how many centers a cell may release: k, or the leaves of a whole tree."""
    values = get_defaults(cell.target) | dict(cell.params)
    depth = values.get("depth")
    unmerged = values.get("merge") is False
    return 2**depth if unmerged and is_integer(depth) else cell.k


def estimate_wall_time(
    costs: Mapping[str, float],
    cells: Iterable[Cell],
    jobs: int,
) -> float:
    """Estimate how long cells take together; timing cells are run one by one."""
    return sum(costs[cell.key] / (1 if cell.timing else jobs) for cell in cells)


def make_estimator(
    store: Store,
    backend: Backend,
) -> Callable[[Cell], tuple[float, bool]]:
    """Make the function that estimates a cell's seconds.

    The estimate uses similar stored cells, else the rough model. Cells are similar if
    they are equal in `SIMILARITY_COLUMNS`; their time is scaled to the number of seeds.
    Only the newest cells are read. No estimate exceeds the time limit of its cell.

    Parameters
    ----------
    store : Store
        The store that has timings.
    backend : Backend
        Its time limit holds for cells that have no limit of their own.

    Returns
    -------
    callable
        Cell to (seconds, whether measured).
    """
    columns = [*SIMILARITY_COLUMNS, "fit_seconds", "metric_seconds"]
    rows = store.read(store.keys()[:MAX_TIMINGS], columns)
    measured = {}
    if not rows.empty:
        rows["seconds"] = rows["fit_seconds"] + rows["metric_seconds"]
        rows["latency_ms"] = rows["latency_ms"].fillna(CENTRAL_DEFAULTS["latency_ms"])
        measured = rows.groupby(list(SIMILARITY_COLUMNS))["seconds"].median().to_dict()

    def estimate(cell: Cell) -> tuple[float, bool]:
        columns = CENTRAL_DEFAULTS | cell.planned_columns()
        per_fit = measured.get(tuple(columns[name] for name in SIMILARITY_COLUMNS))
        if per_fit is None:
            seconds = estimate_without_timings(cell)
        else:
            seconds = fixed_seconds(cell) + per_fit * (len(cell.seeds) + cell.timing)
        limit = backend.find_limit(cell) or math.inf
        return min(seconds, limit), per_fit is not None

    return estimate


def estimate_costs(
    cells: Iterable[Cell],
    store: Store,
    backend: Backend,
) -> dict[str, float]:
    """Estimate the seconds of each cell, by its key."""
    estimate = make_estimator(store, backend)
    return {cell.key: estimate(cell)[0] for cell in cells}
