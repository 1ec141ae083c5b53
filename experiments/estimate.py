"""How long cells will take: from stored cells like them, else by a rough model."""

from collections.abc import Iterable, Mapping

from pkm.experiments.backends import Backend, limit_of
from pkm.experiments.cell import Cell
from pkm.experiments.prepared import method_class, presets
from pkm.experiments.store import Store
from pkm.experiments.sweep import facts_of
from pkm.methods.base import is_integer

#: The rough model of a cell's seconds: a fixed part, then operations over rates measured on an ordinary core.
SECONDS_PER_CELL = 0.01
DISTANCE_RATE = 5e10
PAIR_RATE = 2e9
#: What a method that runs seed by seed takes for each: a fixed part, and how many times the work of batched iterations.
SECONDS_PER_FIT, FIT_FACTOR = 0.1, 20
#: What every party costs that is a process of its own, and the most iterations that a paper's rule asks for.
SECONDS_PER_PROCESS = 1.5
MAX_ITERATIONS = 7
#: What federated clustering costs for each seed, and each request to remove points, with what is measured beside it.
SECONDS_PER_MODEL, SECONDS_PER_REQUEST = 0.3, 0.05
#: How many stored cells are read for their timings.
TIMINGS_READ = 2000


def rough_seconds(cell: Cell) -> float:
    """Estimate a cell's seconds without any measurement.

    A fixed part, the distances from points to centers in seven iterations of every seed, and for the silhouette the
    distances among at most 10,000 points and their sums for every seed, each over a rate of an ordinary core. Methods
    that grow trees or collect candidates for one seed after the other take longer, by a factor that is right to an
    order of magnitude. A timing cell makes one fit more.
    """
    facts = facts_of(cell.dataset, cell.path)
    n, d, fits = facts.n or 2048, facts.d or 2, len(cell.seeds) + cell.timing
    per_center = 7 * n * (2 * d + 2) / DISTANCE_RATE
    seconds = fixed_seconds(cell) + fits * most_centers(cell) * per_center
    if not getattr(method_class(cell.target), "batched", True):
        seconds += fits * (SECONDS_PER_FIT + FIT_FACTOR * cell.k * per_center)
    if "silhouette" in cell.metrics:
        seconds += min(n, 10_000) ** 2 * (2 * d / DISTANCE_RATE + len(cell.seeds) / PAIR_RATE)
    if cell.federation is not None:
        seconds += fits * MAX_ITERATIONS * 2 * dict(cell.federation)["latency_ms"] / 1000
    if cell.unlearning is not None:
        seconds += len(cell.seeds) * (
            SECONDS_PER_MODEL + SECONDS_PER_REQUEST * dict(cell.unlearning)["removals"]
        )
    return seconds


def fixed_seconds(cell: Cell) -> float:
    """Estimate the seconds that a cell takes whatever its work: more where its parties are processes to be started."""
    setting = dict(cell.federation or ())
    processes = setting["clients"] + 1 if setting.get("transport") == "mpi" else 0
    return SECONDS_PER_CELL + SECONDS_PER_PROCESS * processes


def most_centers(cell: Cell) -> int:
    """Return how many centers a cell's method may release: k, or all leaves of a tree that is not merged to k."""
    values = presets(cell.target) | dict(cell.params)
    return (
        2 ** values["depth"]
        if values.get("merge") is False and is_integer(values.get("depth"))
        else cell.k
    )


def wall_seconds(costs: Mapping[str, float], cells: Iterable[Cell], jobs: int) -> float:
    """Estimate how long cells take together: those that measure running time one by one, the others side by side."""
    times = {False: 0.0, True: 0.0}
    for cell in cells:
        times[cell.timing] += costs[cell.key]
    return times[False] / jobs + times[True]


def estimator(store: Store, backend: Backend | None = None):
    """Make the function that estimates a cell's seconds: from stored cells like it, else by the rough model.

    Alike are cells of the same method, data set, k and metrics, timed or not, with the same parties and latency,
    whatever their budget, parameters or code version; their time is scaled to the number of seeds. Only the newest
    cells are looked at. No cell takes longer than its time limit.

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
    alike = [
        "method",
        "dataset",
        "k",
        "metrics_asked",
        "timing",
        "clients",
        "latency_ms",
        "transport",
    ]
    rows = store.read(store.keys()[:TIMINGS_READ], [*alike, "fit_seconds", "metric_seconds"])
    measured = {}
    if not rows.empty:
        rows["seconds"] = rows["fit_seconds"] + rows["metric_seconds"]
        # Results of older versions do not say whether they were timed, or run as a protocol; they were not.
        for name, value in {
            "timing": False,
            "clients": 0,
            "latency_ms": 0.0,
            "transport": "",
        }.items():
            rows[name] = rows[name].where(rows[name].notna(), value) if name in rows else value
        measured = rows.groupby(alike)["seconds"].median().to_dict()

    def estimate(cell: Cell) -> tuple[float, bool]:
        setting = {"clients": 0, "latency_ms": 0.0, "transport": ""} | dict(cell.federation or ())
        parties = (setting["clients"], setting["latency_ms"], setting["transport"])
        found = measured.get(
            (cell.method, cell.dataset_name, cell.k, " ".join(cell.metrics), cell.timing, *parties)
        )
        seconds = rough_seconds(cell)
        if found is not None:
            seconds = fixed_seconds(cell) + found * (len(cell.seeds) + cell.timing)
        limit = limit_of(cell, backend)
        return seconds if limit is None else min(seconds, limit), found is not None

    return estimate
