"""EUGkM: noisy counts of a uniform grid, clustered by weighted k-means (Su et al. 2016). Pure differential privacy.

One release, no iterations, any number of restarts. Few columns only: the grid has at least two intervals in each.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from pkm.methods.base import PrivateKMeans, is_integer
from pkm.methods.coreset import consistent
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import SCALE, Curator, Laplace, PrivacyClaim, snap_centers
from pkm.privacy.noise import INITIALIZATION, child

MIN_INTERVALS = 2
LARGEST_GRID = 1 << 22  # the curator counts no more cells than that
RECORDS_PER_CELL = 10  # of the published rule: it balances the noise of a cell against its width


def grid_intervals(
    n_points: int, n_features: int, n_clusters: int, epsilon: float, rule: str, most_cells: int
) -> int:
    """Intervals per column, from public numbers alone.

    Parameters
    ----------
    n_points, n_features, n_clusters : int
    epsilon : float
    rule : {"published", "balanced"}
        ``published``: (n epsilon / 10)^(2 / (d + 2)), whatever the number of clusters. ``balanced``: what minimizes the
        squared error of rounding to cells and that of noise in k equal clusters together,
        (n epsilon)^(2 / (d + 2)) / (d k^(1 - 2 / d))^(1 / (d + 2)).
    most_cells : int
        The grid is made coarser until it has no more.

    Returns
    -------
    int
        At least 2.

    Raises
    ------
    ValueError
        If a grid of two intervals per column has more than ``most_cells`` cells already.

    Examples
    --------
    >>> grid_intervals(5000, 2, 15, 1.0, "published", 2_000_000)
    22
    """
    d = n_features
    if MIN_INTERVALS**d > most_cells:
        raise ValueError(
            f"most_cells={most_cells} is too few for d={d} columns: two intervals in each make 2^{d} cells; EUGkM is a "
            "method for few columns"
        )
    if rule == "published":
        wanted = (n_points * epsilon / RECORDS_PER_CELL) ** (2 / (d + 2))
    else:
        wanted = ((n_points * epsilon) ** 2 / (d * n_clusters ** (1 - 2 / d))) ** (1 / (d + 2))
    intervals = max(MIN_INTERVALS, round(min(wanted, float(most_cells))))
    if intervals**d > most_cells:
        intervals = int(most_cells ** (1 / d)) + 1  # the root may be rounded either way
        while intervals**d > most_cells:
            intervals -= 1
    return intervals


@dataclass(eq=False, repr=False)
class EUGkM(PrivateKMeans):
    """Weighted k-means on the noisy counts of a uniform grid.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        All of it goes to the counts: a record lies in one cell and changes its count by 1 (zero-out adjacency).
    grid_rule : {"published", "balanced"}, default="published"
        How many intervals a column has, by the rule of Su et al. or by one of ours; see :func:`grid_intervals`.
    most_cells : int, default=2_000_000
        Largest grid; a rule that asks for a finer one gets this.
    consistent : bool, default=True
        Whether counts are shifted so that they sum to the public number of points; otherwise negative ones become zero.
    n_init : int, default=10
        Starts of the k-means on the cells; they cost no privacy.
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.
    secure : bool, default=False
        Draw noise from the operating system's entropy instead of the seed.

    Notes
    -----
    Where fewer than ``n_clusters`` cells have a positive count, those cells' middles are all that is released. More
    columns than the binary logarithm of ``most_cells`` are refused before anything is asked.

    References
    ----------
    Su, D., Cao, J., Li, N., Bertino, E. and Jin, H. (2016). Differentially private k-means clustering. CODASPY, 26-37.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = EUGkM(n_clusters=2, epsilon=1.0, random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    claims: ClassVar[dict[str, PrivacyClaim]] = {"sound": PrivacyClaim("pure")}
    choices: ClassVar[dict[str, tuple]] = {
        **PrivateKMeans.choices,
        "grid_rule": ("published", "balanced"),
        "consistent": (True, False),
        "secure": (True, False),
    }
    batched: ClassVar[bool] = False  # a grid of millions of cells for one replicate at a time

    _: KW_ONLY
    epsilon: float = 1.0
    grid_rule: str = "published"
    most_cells: int = 2_000_000
    consistent: bool = True
    n_init: int = 10
    secure: bool = False

    def check_parameters(self, n_points=None):
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if not (is_integer(self.most_cells) and MIN_INTERVALS <= self.most_cells <= LARGEST_GRID):
            raise ValueError(
                f"most_cells={self.most_cells!r} must be an integer from {MIN_INTERVALS} to {LARGEST_GRID}"
            )
        if not (is_integer(self.n_init) and self.n_init >= 1):
            raise ValueError(f"n_init={self.n_init!r} must be an integer of at least 1")

    def budget(self, n_points, n_features):
        """Budget of one run; refuses more columns than a grid can have."""
        self._intervals(n_points, n_features)
        return super().budget(n_points, n_features)

    def _intervals(self, n_points: int, n_features: int) -> int:
        return grid_intervals(
            n_points, n_features, self.n_clusters, self.epsilon, self.grid_rule, self.most_cells
        )

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Count the cells of the grid and cluster their middles; see :meth:`PrivateKMeans.cluster`."""
        intervals = self._intervals(curator.n_points, curator.n_features)
        counts = curator.grid_counts(intervals, Laplace(SCALE / self.epsilon))[0]
        weights = counts.ravel() / SCALE
        weights = (
            consistent(weights, float(curator.n_points))
            if self.consistent
            else np.maximum(weights, 0.0)
        )
        cells = np.flatnonzero(weights > 0)
        if not len(cells):  # every count is noise below zero: nothing is known of the points
            return np.zeros((1, 1, curator.n_features), np.int64), 1
        places = np.stack(np.unravel_index(cells, counts.shape), axis=1)
        middles = (2 * places + 1 - intervals) * (SCALE / intervals)
        state = int(np.random.default_rng(child(curator.seeds[0], INITIALIZATION)).integers(2**32))
        return snap_centers(
            weighted_kmeans(middles, weights[cells], self.n_clusters, self.n_init, state)
        )[None], 1
