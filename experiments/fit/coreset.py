"""Cells that release coresets, which must keep the cost of many sets of centers."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pkm.experiments.cell.kind import FitResults, Kind
from pkm.experiments.config.settings import FLAG, require
from pkm.experiments.fit.timing import timer

if TYPE_CHECKING:
    from pkm.experiments.cell.cell import Cell
    from pkm.experiments.fit.inputs import ResolvedCell


@dataclass(frozen=True)
class Coreset(Kind):
    """Coresets in place of centers; their costs are compared with the points'."""

    key = "coreset"

    @classmethod
    def from_sweep(cls, value: Any) -> list[Self]:
        """Read a flag."""
        FLAG.require(cls.key, bool(value) if value is None else value)
        return [cls()] if value else []

    def check_method(
        self,
        cell: "Cell",
        method: Any,
        n: int | None,
        d: int | None,
    ) -> None:
        """Refuse a method that releases no coresets."""
        from pkm.methods.coreset import CoresetMethod

        super().check_method(cell, method, n, d)
        rule = "one that releases coresets where coreset=true"
        require(isinstance(method, CoresetMethod), "method", cell.method, rule)

    def fit(self, resolved: "ResolvedCell") -> FitResults:
        """Release a coreset for each seed; its centers are all points of the coreset.

        The column `coreset_cost_ratio` is the largest ratio of costs over many sets of
        centers.
        """
        import numpy as np

        from pkm.compute import SCALE
        from pkm.methods import Run
        from pkm.metrics.coresets import (
            center_sets,
            central_additive_error,
            compute_costs,
            largest_cost_ratio,
            local_additive_error,
        )
        from pkm.privacy import snap_centers

        cell, method, data = resolved.cell, resolved.method, resolved.data
        is_local = method.claim.trust == "local"
        bound_error = local_additive_error if is_local else central_additive_error
        additive = bound_error(data.points.shape[0], cell.k)
        sets = center_sets(data.points, cell.k)
        costs = compute_costs(data.points, sets)

        fits = []
        ratios = []
        draw = partial(method.draw_coreset, domain=data.domain, secure=method.secure)
        for seed in resolved.seeds:
            with timer() as elapsed:
                coreset = draw(data.points, seed)
            estimates = [coreset.cost_estimate(centers / SCALE) for centers in sets]
            ratios.append(largest_cost_ratio(costs, np.array(estimates), additive))
            centers = snap_centers(coreset.points * SCALE)[None]
            n_centers = np.array([len(coreset.points)])
            fits.append((Run(centers, 1, coreset.ledger, (seed,), n_centers), elapsed))
        return fits, {"coreset_cost_ratio": ratios}
