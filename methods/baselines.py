"""Baselines that a useful private method improves on: one center, and centers without data."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.initialization import starting_centers
from pkm.privacy import NO_CLAIM, SCALE, Curator, PrivacyClaim, SumsAndCounts, snap_centers


@dataclass(eq=False, repr=False)
class DataMean(PrivateKMeans):
    """The exact mean of the points as the only center; ``n_clusters`` has no effect."""

    label: ClassVar[str] = "data mean as only center"
    color: ClassVar[str] = "#8c8c8c"
    marker: ClassVar[str] = "x"
    claims: ClassVar[dict[str, PrivacyClaim]] = {"sound": NO_CLAIM}

    n_clusters: int = 1

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Sum and count all points; see :meth:`PrivateKMeans.cluster`."""
        center = np.zeros((curator.n_replicates, 1, curator.n_features), np.int64)
        answer = curator.release(SumsAndCounts(center), sums=None, counts=None)
        return snap_centers(answer["sums"] / (answer["counts"][:, :, None] / SCALE)), 1


@dataclass(eq=False, repr=False)
class PackingCenters(PrivateKMeans):
    """The sphere-packing starting centers, without a query to the data.

    Parameters
    ----------
    n_clusters : int, default=8
    radius_search : {"halving", "bisection"}, default="bisection"
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.
    """

    label: ClassVar[str] = "packing centers, no data"
    color: ClassVar[str] = "#8c8c8c"
    marker: ClassVar[str] = "+"
    claims: ClassVar[dict[str, PrivacyClaim]] = {"sound": NO_CLAIM}
    choices: ClassVar[dict[str, tuple]] = {
        **PrivateKMeans.choices,
        "radius_search": ("halving", "bisection"),
    }

    _: KW_ONLY
    radius_search: str = "bisection"

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Pack the spheres; see :meth:`PrivateKMeans.cluster`."""
        centers = starting_centers(
            curator.public_seeds, self.n_clusters, curator.n_features, "packing", self.radius_search
        )
        return centers, 0
