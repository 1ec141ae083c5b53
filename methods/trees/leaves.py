"""Released cells of nested grids, which weighted k-means clusters."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import SCALE, snap_centers


@dataclass(frozen=True)
class Leaves:
    """Released cells of grids, with noisy numbers of their records.

    Attributes
    ----------
    midpoints : ndarray of shape (m, d), float64
        In grid steps.
    sides : ndarray of shape (m,), float64
        Of the cells, in grid steps.
    weights : ndarray of shape (m,), float64
        Noisy numbers of records, positive.
    """

    midpoints: np.ndarray
    sides: np.ndarray
    weights: np.ndarray

    def take(self, numbers: np.ndarray) -> "Leaves":
        """Return some of the leaves."""
        return Leaves(
            self.midpoints[numbers],
            self.sides[numbers],
            self.weights[numbers],
        )

    def cluster(
        self,
        k: int,
        n_init: int,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Find centers (at most k, d), int64, by k-means on the weighted midpoints."""
        seed = int(generator.integers(2**32))
        centers = weighted_kmeans(self.midpoints, self.weights, k, n_init, seed)
        return snap_centers(centers)


def gather_leaves(
    grids: Sequence[tuple[int, np.ndarray, np.ndarray]],
    total: float,
) -> Leaves:
    """Put cells of several grids together; the domain is the leaf if there is none.

    Parameters
    ----------
    grids : sequence of tuple
        Number of intervals per feature, positions (m, d) and weights (m,) of the cells.
    total : float
        The public number of records.

    Returns
    -------
    Leaves

    Examples
    --------
    >>> leaves = gather_leaves([(4, np.array([[0], [3]]), np.array([7.0, 2.0]))], 9.0)
    >>> (leaves.midpoints / SCALE).ravel().tolist(), (leaves.sides / SCALE).tolist()
    ([-0.75, 0.75], [0.5, 0.5])
    """
    if not any(len(weights) for _, _, weights in grids):
        _, positions, _ = grids[0]
        domain = np.zeros((1, positions.shape[1]))
        grids = [(1, domain, np.array([total]))]
    midpoints = []
    sides = []
    weights = []
    for intervals, positions, grid_weights in grids:
        unit = SCALE / intervals  # half a side
        midpoints.append((2 * positions + 1 - intervals) * unit)
        sides.append(np.full(len(positions), 2 * unit))
        weights.append(grid_weights)
    return Leaves(*map(np.concatenate, (midpoints, sides, weights)))
