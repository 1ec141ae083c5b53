"""Two yardsticks that no useful private method may lose to: one center for all, and centers that ignore the data."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.initialization import starting_centers
from pkm.privacy import NO_CLAIM, SCALE, PrivacyClaim, snap_centers


@dataclass(eq=False, repr=False)
class DataMean(PrivateKMeans):
    """The exact mean of the points as the only center; ``n_clusters`` is accepted and has no effect."""

    claims: ClassVar[dict[str, PrivacyClaim]] = {"sound": NO_CLAIM}

    n_clusters: int = 1

    def cluster(self, curator):
        """Ask for the sum and the count of one cell that holds everything."""
        middle = np.zeros((curator.n_replicates, 1, curator.n_features), np.int64)
        sums, counts = curator.sums_and_counts(middle, sum_noise=None, count_noise=None)
        return snap_centers(sums / (counts[:, :, None] / SCALE)), 1


@dataclass(eq=False, repr=False)
class PackingCenters(PrivateKMeans):
    """The sphere-packing starting centers themselves, untouched by data.

    Parameters
    ----------
    n_clusters : int, default=8
    radius_search : {"halving", "bisection"}, default="bisection"
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.
    """

    claims: ClassVar[dict[str, PrivacyClaim]] = {"sound": NO_CLAIM}
    choices: ClassVar[dict[str, tuple]] = {
        **PrivateKMeans.choices,
        "radius_search": ("halving", "bisection"),
    }

    _: KW_ONLY
    radius_search: str = "bisection"

    def cluster(self, curator):
        """Place the spheres; the curator is asked for nothing but its shape."""
        seeds = curator.seeds
        centers = starting_centers(
            seeds, self.n_clusters, curator.n_features, "packing", self.radius_search
        )
        return centers, 0
