"""Cells that take a moment: what the tests of the backends run."""

from dataclasses import replace

from pkm.experiments.cell import Cell, to_hashable

BASE = Cell(
    "fastlloyd",
    "pkm.methods.lloyd.FastLloyd",
    to_hashable({"variant": "published"}),
    "iris",
    "minmax",
    3,
    1.0,
    "auto",
    (0, 1, 2),
    ("nicv", "silhouette"),
)
CELLS = [
    replace(BASE, epsilon=epsilon, dataset=name)
    for name in ("iris", "wine")
    for epsilon in (0.1, 0.5, 1.0)
] + [
    Cell(
        "kmeans",
        "pkm.methods.kmeans.KMeansPlusPlus",
        (),
        "iris",
        "minmax",
        3,
        None,
        None,
        (0, 1, 2),
        ("nicv",),
    )
]
