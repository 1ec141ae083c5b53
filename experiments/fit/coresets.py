"""A cell that releases coresets: how well each keeps the cost of many sets of centers."""

import numpy as np

from pkm.compute import SCALE
from pkm.experiments.cell.cell import Cell
from pkm.experiments.config.settings import require
from pkm.experiments.fit.inputs import Prepared, build
from pkm.experiments.fit.timing import Timing, timer
from pkm.methods import Run
from pkm.methods.coreset import CoresetMethod
from pkm.metrics.coresets import (
    center_sets,
    central_error,
    compute_costs,
    largest_cost_ratio,
    local_error,
)
from pkm.privacy import snap_centers


def coreset_method(cell: Cell) -> CoresetMethod:
    """Build the cell's method.

    Raises
    ------
    ValueError
        If it releases no coresets.
    """
    method = build(cell)
    rule = "one that releases coresets where coreset=true"
    require(isinstance(method, CoresetMethod), "method", cell.method, rule)
    assert isinstance(method, CoresetMethod)
    return method


def fits_of(
    cell: Cell, prepared: Prepared, mirror: str | None
) -> tuple[list[tuple[Run, Timing]], dict[str, list[float]]]:
    """Release a coreset for each of a cell's seeds and compare costs with those of the points.

    Parameters
    ----------
    cell : Cell
        One with `coreset`.
    prepared : Prepared
        Its data.
    mirror : str or None
        Not used: the data are loaded.

    Returns
    -------
    fits : list of (Run, Timing)
        One per seed; centers are all points of the coreset.
    columns : dict
        `coreset_cost_ratio`, one value per seed.
    """
    method = coreset_method(cell)
    n_points = prepared.points.shape[0]
    is_local = method.claim.trust == "local"
    additive = (local_error if is_local else central_error)(n_points, cell.k)
    sets = center_sets(prepared.points, cell.k)
    costs = compute_costs(prepared.points, sets)

    fits = []
    ratios = []
    for seed in cell.seeds:
        with timer() as elapsed:
            coreset = method.coreset_of(prepared.points, seed, domain=prepared.domain)
        estimates = np.array([coreset.cost_estimate(centers / SCALE) for centers in sets])
        ratios.append(largest_cost_ratio(costs, estimates, additive))
        centers = snap_centers(coreset.points * SCALE)[None]
        n_centers = np.array([len(coreset.points)])
        fits.append((Run(centers, 1, coreset.ledger, (seed,), n_centers), elapsed))
    return fits, {"coreset_cost_ratio": ratios}
