"""Small cells that several test files run, and what of their rows must be equal."""

from dataclasses import replace

from pkm.experiments.backends.backends import run_cells
from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.central import Central

#: Columns of times and memory; all other columns must be equal bit for bit.
MEASURED = [
    "fit_seconds",
    "fit_cpu_seconds",
    "compile_seconds",
    "metric_seconds",
    "metric_cpu_seconds",
    "peak_memory_mb",
    "finished",
]
BASE = Cell(
    "fastlloyd",
    "pkm.methods.FastLloyd",
    {"variant": "published"},
    "iris",
    "minmax",
    3,
    1.0,
    "auto",
    (0, 1, 2),
    ("nicv", "silhouette"),
    kind=Central(),
)
CELLS = [
    replace(BASE, epsilon=epsilon, dataset=name)
    for name in ("iris", "wine")
    for epsilon in (0.1, 0.5, 1.0)
] + [
    Cell(
        "kmeans",
        "pkm.methods.KMeansPlusPlus",
        {},
        "iris",
        "minmax",
        3,
        None,
        None,
        (0, 1, 2),
        ("nicv",),
        kind=Central(),
    )
]


def misbehaving_cell(folder, name, **changes):
    """Return a cell of a method of `trouble`, which leaves marks in a folder."""
    return replace(
        BASE,
        method=name.lower(),
        target=f"trouble.{name}",
        params={"folder": str(folder)},
        epsilon=None,
        delta=None,
        **changes,
    )


def stored_rows(store, cells):
    """Return the rows of cells without what is measured."""
    rows = store.read([cell.key for cell in cells])
    return rows.drop(columns=MEASURED)


def outcomes_by_key(cells, store, backend):
    """Run cells; return what came of each by its key."""
    return {outcome.key: outcome for outcome in run_cells(cells, store, backend)}
