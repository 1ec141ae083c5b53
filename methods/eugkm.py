"""EUGkM: noisy counts of a uniform grid, clustered by weighted k-means (Su et al. 2016).

Pure differential privacy: one release, no iterations, any number of restarts. For few features
only: the grid has at least two intervals in each.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.coreset import consistent
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import (
    MAX_CELLS,
    SCALE,
    Budget,
    Curator,
    GridCounts,
    Laplace,
    PrivacyClaim,
    snap_centers,
)
from pkm.privacy.noise import INITIALIZATION, child
from pkm.scalars import is_integer

MIN_INTERVALS = 2
RECORDS_PER_CELL = 10  # of the published rule: balances the noise of a cell against its width


def grid_intervals(
    n_points: int, n_features: int, n_clusters: int, epsilon: float, rule: str, max_cells: int
) -> int:
    """Number of intervals per feature, from public quantities only.

    Parameters
    ----------
    n_points, n_features, n_clusters : int
    epsilon : float
    rule : {"published", "balanced"}
        ``published``: (n epsilon / 10)^(2 / (d + 2)), whatever the number of clusters.
        ``balanced``: the minimizer of the squared error of rounding to cells plus that of noise in
        k equal clusters, (n epsilon)^(2 / (d + 2)) / (d k^(1 - 2 / d))^(1 / (d + 2)).
    max_cells : int
        Of the grid, which is made coarser until it has no more.

    Returns
    -------
    int
        At least 2.

    Raises
    ------
    ValueError
        If a grid of two intervals per feature has more than ``max_cells`` cells already.

    Examples
    --------
    >>> grid_intervals(5000, 2, 15, 1.0, "published", 2_000_000)
    22
    """
    d = n_features
    if MIN_INTERVALS**d > max_cells:
        raise ValueError(
            f"max_cells={max_cells} is too few for d={d} features: two intervals in each make "
            f"2^{d} cells; EUGkM is a method for few features"
        )

    # Intervals by the rule, each a compromise between rounding to cells and noise per cell.
    if rule == "published":
        optimum = (n_points * epsilon / RECORDS_PER_CELL) ** (2 / (d + 2))
    else:
        optimum = ((n_points * epsilon) ** 2 / (d * n_clusters ** (1 - 2 / d))) ** (1 / (d + 2))
    intervals = max(MIN_INTERVALS, round(min(optimum, float(max_cells))))

    # The largest number of intervals that keeps to max_cells; the root may be rounded either way.
    if intervals**d > max_cells:
        intervals = int(max_cells ** (1 / d)) + 1
        while intervals**d > max_cells:
            intervals -= 1
    return intervals


@dataclass(eq=False, repr=False)
class EUGkM(PrivateKMeans):
    """Weighted k-means on the noisy counts of a uniform grid.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        All of it goes to the counts: a record lies in one cell and changes its count by 1 (zero-out
        adjacency).
    grid_rule : {"published", "balanced"}, default="published"
        Number of intervals per feature, by the rule of Su et al. or by that of this implementation;
        see :func:`grid_intervals`.
    max_cells : int, default=2_000_000
        Largest grid; where the rule gives a finer one, this is taken.
    consistent : bool, default=True
        Whether counts are shifted so that they sum to the public number of points; otherwise
        negative ones become zero.
    n_init : int, default=10
        Starts of the k-means on the cells; they cost no privacy.
    bounds, clip, random_state
        As for :class:`pkm.methods.base.PrivateKMeans`.
    secure : bool, default=False
        Draw noise from the operating system's entropy instead of the seed.

    Notes
    -----
    Where fewer than ``n_clusters`` cells have a positive count, the midpoints of those cells are
    all that is released. More features than the binary logarithm of ``max_cells`` are refused
    before any query.

    References
    ----------
    Su, D., Cao, J., Li, N., Bertino, E. and Jin, H. (2016). Differentially private k-means
    clustering. CODASPY, 26-37.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = EUGkM(n_clusters=2, epsilon=1.0, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label: ClassVar[str] = "EUGkM"
    color: ClassVar[str] = "#b2182b"
    marker: ClassVar[str] = "p"
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
    max_cells: int = 2_000_000
    consistent: bool = True
    n_init: int = 10
    secure: bool = False

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        if not (is_integer(self.max_cells) and MIN_INTERVALS <= self.max_cells <= MAX_CELLS):
            raise ValueError(
                f"max_cells={self.max_cells!r} must be an integer from {MIN_INTERVALS} to "
                f"{MAX_CELLS}"
            )
        if not (is_integer(self.n_init) and self.n_init >= 1):
            raise ValueError(f"n_init={self.n_init!r} must be an integer of at least 1")

    def budget(self, n_points: int, n_features: int) -> Budget | None:
        """Budget of one run; refuses more features than a grid can have."""
        self._intervals(n_points, n_features)
        return super().budget(n_points, n_features)

    def _intervals(self, n_points: int, n_features: int) -> int:
        return grid_intervals(
            n_points, n_features, self.n_clusters, self.epsilon, self.grid_rule, self.max_cells
        )

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Count the grid's cells, cluster their midpoints; see :meth:`PrivateKMeans.cluster`."""
        # Noisy counts of all cells of the grid.
        intervals = self._intervals(curator.n_points, curator.n_features)
        answer = curator.release(GridCounts(intervals), counts=Laplace(SCALE / self.epsilon))
        counts = answer["counts"][0]

        # Weights that are not negative; consistent ones add up to the public number of points.
        weights = counts.ravel() / SCALE
        if self.consistent:
            weights = consistent(weights, float(curator.n_points))
        else:
            weights = np.maximum(weights, 0.0)

        # Without a positive count nothing is known of the points.
        cells = np.flatnonzero(weights > 0)
        if not len(cells):
            return np.zeros((1, 1, curator.n_features), np.int64), 1

        # Weighted k-means on the midpoints of the cells.
        positions = np.stack(np.unravel_index(cells, counts.shape), axis=1)
        midpoints = (2 * positions + 1 - intervals) * (SCALE / intervals)
        generator = np.random.default_rng(child(curator.public_seeds[0], INITIALIZATION))
        seed = int(generator.integers(2**32))
        centers = weighted_kmeans(midpoints, weights[cells], self.n_clusters, self.n_init, seed)
        return snap_centers(centers)[None], 1
