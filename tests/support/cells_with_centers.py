"""A cell of k-means that keeps its centers."""

from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.central import Central
from pkm.experiments.fit.execute import execute

CELL = Cell(
    "kmeans",
    "pkm.methods.KMeansPlusPlus",
    {"n_init": 2},
    "iris",
    "minmax",
    3,
    None,
    None,
    (4, 7),
    ("nicv",),
    keep_centers=True,
    kind=Central(),
)


def stored(store, *cells):
    for cell in cells:
        store.write(cell, execute(cell))
