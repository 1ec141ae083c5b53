"""Released cells of nested grids, which weighted k-means clusters."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pkm.compute import Symlog
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import SCALE


@dataclass(frozen=True)
class Leaves:
    """Released cells of grids, with noisy numbers of their records.

    Attributes
    ----------
    midpoints : ndarray of shape (m, d), float64
        In grid steps.
    sides : ndarray of shape (m,), float64
        Sides of the cells, in grid steps.
    weights : ndarray of shape (m,), float64
        Noisy numbers of records, positive.
    """

    midpoints: np.ndarray
    sides: np.ndarray
    weights: np.ndarray

    @property
    def spread(self) -> np.ndarray:
        """Mean squared distances (m,) of uniform records of a leaf to its midpoint."""
        # A uniform coordinate has the variance side^2 / 12.
        return self.midpoints.shape[1] * self.sides**2 / 12

    def take(self, indices: np.ndarray) -> "Leaves":
        """Return the leaves at given indices."""
        return Leaves(
            self.midpoints[indices],
            self.sides[indices],
            self.weights[indices],
        )

    def append(self, others: "Leaves") -> "Leaves":
        """Return these leaves and others behind them."""
        return Leaves(
            np.concatenate([self.midpoints, others.midpoints]),
            np.concatenate([self.sides, others.sides]),
            np.concatenate([self.weights, others.weights]),
        )

    def or_domain(self, total: float) -> "Leaves":
        """Return the leaves; if there are none, the domain as a leaf of all records."""
        if len(self.weights):
            return self
        n_features = self.midpoints.shape[1]
        return Leaves(
            np.zeros((1, n_features)), np.full(1, 2.0 * SCALE), np.array([total])
        )

    def expand(self, scale: Symlog) -> "Leaves":
        """Return the leaves on a linear scale, in grid steps of its linear part."""
        # Far out the image of a cube is longer in some features: its longest side is
        # taken, so that the leaf holds the image.
        half_sides = self.sides[:, None] / 2 / SCALE
        middle = self.midpoints / SCALE
        lower = scale.expand(middle - half_sides)
        upper = scale.expand(middle + half_sides)
        return Leaves(
            scale.expand(middle) * SCALE,
            np.abs(upper - lower).max(axis=1) * SCALE,
            self.weights,
        )

    def cluster(
        self,
        k: int,
        n_init: int,
        generator: np.random.Generator,
    ) -> np.ndarray:
        """Find at most k centers (m, d), float64, by k-means on the midpoints."""
        return weighted_kmeans(self.midpoints, self.weights, k, n_init, generator)


def gather_leaves(grids: Sequence[tuple[int, np.ndarray, np.ndarray]]) -> Leaves:
    """Concatenate cells of several grids.

    Parameters
    ----------
    grids : sequence of tuple
        Number of intervals per feature, positions (m, d) and weights (m,) of the cells.

    Returns
    -------
    Leaves

    Examples
    --------
    >>> leaves = gather_leaves([(4, np.array([[0], [3]]), np.array([7.0, 2.0]))])
    >>> (leaves.midpoints / SCALE).ravel().tolist(), (leaves.sides / SCALE).tolist()
    ([-0.75, 0.75], [0.5, 0.5])
    """
    midpoints = []
    sides = []
    weights = []
    for intervals, positions, grid_weights in grids:
        half_side = SCALE / intervals
        # Odd multiples of half a side from the domain's midpoint.
        midpoints.append((2 * positions + 1 - intervals) * half_side)
        sides.append(np.full(len(positions), 2 * half_side))
        weights.append(grid_weights)
    return Leaves(*map(np.concatenate, (midpoints, sides, weights)))
