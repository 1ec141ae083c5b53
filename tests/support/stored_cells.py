"""Cells with stated values, as a store holds them."""

from fabricated.rows import make_rows

from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.central import Central


def cell_of(seed=0):
    return Cell(
        "lloyd",
        "pkm.methods.Lloyd",
        {},
        "iris",
        "minmax",
        3,
        None,
        None,
        (seed, seed + 1),
        ("nicv",),
        kind=Central(),
    )


def rows_of(cell, **columns):
    values = {"nicv": [0.25, 0.5]} | columns
    rows = make_rows("", cell.key, "lloyd", "iris", size=(150, 4, 3), seeds=2, **values)
    return rows.drop(columns="sweep").assign(seed=list(cell.seeds))
