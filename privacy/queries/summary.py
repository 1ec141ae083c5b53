"""A summary of the records nearest to each released center, for a report on them.

Under zero-out or add-remove adjacency a record changes one count by 1; one sum by a
vector of at most the radius; the cost by at most the squared radius; and one bin of
every column of one histogram by 1.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from pkm.compute.kernels.shells import RADIUS_SCALE, summarize
from pkm.privacy.checks import check_grid_integers, check_positive
from pkm.privacy.grid import SCALE
from pkm.privacy.mechanisms.additive import Gaussian, Laplace
from pkm.privacy.queries.sums import (
    ONE_COUNT,
    entries_sensitivity,
    vector_sensitivity,
)
from pkm.privacy.query import Answer, Mechanisms, Query, Sensitivities


@dataclass(frozen=True, eq=False)
class ClusterSummary(Query):
    """Counts, sums, cost and histograms of the points nearest to each center.

    Parameters
    ----------
    centers : ndarray of shape (k, d), int64
        Released, in grid steps. Ties go to the lower index.
    radius : float
        Released or public, in half-widths: differences of points and their center are
        clipped to it in norm.
    thresholds : ndarray of shape (m,), int64
        Inner edges of the bins of every column, in grid steps, not decreasing, released
        or public. An edge belongs to the bin above it.

    Notes
    -----
    Its parts are ``counts`` (R, k), in units of 2**-16 records; ``sums`` (R, k, d) of
    the clipped differences, in 2**-24 radii; ``costs`` (R, 1), the sum of their squared
    norms, in 2**-24 squared radii; and ``histograms`` (R, k, d, m + 1), by column, in
    units of 2**-16 records; all int64. The noise of sums and costs has a scale in radii
    and squared radii, so that its cost does not depend on the radius. It serves one
    replicate.
    """

    label = "cluster_summary"
    mechanisms: ClassVar[Mechanisms] = dict.fromkeys(
        ("counts", "sums", "costs", "histograms"), (Gaussian, Laplace)
    )
    serves_weights = True

    centers: np.ndarray
    radius: float
    thresholds: np.ndarray

    def check(self, source: Any) -> None:
        """Refuse more than one replicate, and bad centers, radii or edges."""
        source.check_single(self.label)
        # Replicates may have found domains of their own.
        shape = ("k", source.n_features)
        check_grid_integers("centers", self.centers, shape, "; snap them first")
        if not len(self.centers):
            raise ValueError("centers must be one or more: there is none to be nearest")
        check_positive("radius", self.radius, ", in half-widths")
        check_grid_integers("thresholds", self.thresholds, ("m",))
        # Two equal ones have an empty bin between them.
        if (np.diff(self.thresholds) < 0).any():
            raise ValueError("thresholds must not decrease")

    def sensitivity(self, source: Any) -> Sensitivities:
        """One record in one count, in its sum, in the cost, in a bin of each column."""
        # The unit of sums is the radius, and that of the cost is its square: what is
        # charged does not depend on a released radius.
        d = source.n_features
        return {
            "counts": ONE_COUNT,
            "sums": vector_sensitivity(1.0, d, unit=float(RADIUS_SCALE)),
            "costs": vector_sensitivity(1.0, 1, unit=float(RADIUS_SCALE)),
            "histograms": entries_sensitivity(d),
        }

    def exact(self, source: Any) -> Answer:
        """Exact answers over all shards, in one pass."""
        add_up = partial(
            summarize,
            centers=self.centers,
            radius=self.radius * SCALE,
            thresholds=self.thresholds,
        )
        # The kernel has no axis of replicates.
        totals = source._shards.map_reduce(add_up)
        counts, sums, costs, histograms = (total[None] for total in totals)
        return {
            "counts": counts * source.count_factor,
            "sums": sums,
            "costs": costs,
            "histograms": histograms * source.count_factor,
        }
