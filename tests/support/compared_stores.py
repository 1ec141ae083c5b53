"""A cell with stated values, for stores that are compared."""

import numpy as np
from fabricated.rows import make_rows

from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.central import Central

CELL = Cell(
    "fastlloyd", "pkm.methods.FastLloyd", {"variant": "published", "alpha": 0.8},
    "iris", "minmax", 3, 1.0, "auto", tuple(range(20)), ("nicv",), kind=Central()
)  # fmt: skip
NOISE = np.random.default_rng(0)


def put(store, nicv, cell=CELL, **columns):
    """Store a cell with the given values."""
    params = {name: value for name, value in cell.params.items() if name != "variant"}
    facts = {
        "target": cell.target,
        "variant": cell.variant,
        "preprocessing": cell.preprocessing,
        "metrics": " ".join(cell.metrics),
        "seed": cell.seeds,
        "nicv": nicv,
        "delta": 1e-6,
        "params": params,
    }
    rows = make_rows(
        "",
        cell.key,
        cell.method,
        cell.dataset,
        size=(150, 4, cell.k),
        seeds=len(cell.seeds),
        epsilon=cell.epsilon,
        **facts | columns,
    )
    store.write(cell, rows.drop(columns="sweep"))
