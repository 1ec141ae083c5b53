"""The grid points of the unit ball: their number, uniform draws, grids of covers.

A grid point is an integer vector. Multiplied by the grid's side it lies in the ball.
"""

import itertools
import math
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

MAX_GRID_POINTS = 2.0**62  # numbers of grid points and keys of blocks are int64


class Lattice:
    """The integer points v with ``|v| side <= 1``: the grid points of the unit ball.

    Parameters
    ----------
    dimensions : int
    side : float
        In (0, infinity); at least so large that the grid points of the surrounding cube
        can be numbered.

    Attributes
    ----------
    max_squared_norm : int
        Largest squared norm, in squared grid steps.
    max_coordinate : int
        Largest coordinate.
    size : int
        Number of grid points, exact.

    Examples
    --------
    >>> Lattice(2, 0.5).size  # the origin, and four at distance 1, sqrt(2) and 2
    13
    """

    def __init__(self, dimensions: int, side: float):
        if dimensions < 1 or not 0 < side < math.inf:
            raise ValueError(
                f"dimensions={dimensions} must be at least 1, "
                f"side={side} positive and finite"
            )
        if (2 / side + 1) ** dimensions >= MAX_GRID_POINTS:
            raise ValueError(
                f"side={side} is too small in {dimensions} dimensions: "
                "more than 2^62 grid points"
            )
        self.dimensions = dimensions
        self.side = side
        self.max_squared_norm = int(1 / side**2 * (1 + 1e-12))
        self.max_coordinate = math.isqrt(self.max_squared_norm)

    @cached_property
    def _ball_sizes(self) -> np.ndarray:
        """Numbers of integer points with m coordinates and squared norm at most s."""
        # Indexed by m, from 0, and s; there is one point without coordinates.
        sizes = np.ones((self.dimensions, self.max_squared_norm + 1), np.int64)
        for smaller, larger in itertools.pairwise(sizes):
            # The added coordinate is 0, or v or -v, which leaves s - v^2 of a squared
            # norm s for the others.
            larger[:] = smaller
            for v in range(1, self.max_coordinate + 1):
                larger[v * v :] += 2 * smaller[: len(smaller) - v * v]
        return sizes

    def _continuations(
        self, max_square: int, n_after: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values of the next coordinate, and numbers of grid points with each of them.

        Parameters
        ----------
        max_square : int
            Largest squared norm of this and the later coordinates.
        n_after : int
            Number of later coordinates.
        """
        largest = math.isqrt(max_square)
        values = np.arange(-largest, largest + 1)
        return values, self._ball_sizes[n_after, max_square - values * values]

    @cached_property
    def size(self) -> int:
        """Number of grid points."""
        _, sizes = self._continuations(self.max_squared_norm, self.dimensions - 1)
        return int(sizes.sum())

    def draw(self, uniforms: np.ndarray) -> np.ndarray:
        """Turn uniforms in [0, 1], one per dimension, into a uniform grid point."""
        # Invariant: coordinates 0 .. h - 1 are drawn, and the rest may have the squared
        # norm max_square.
        point = np.empty(self.dimensions, np.int64)
        max_square = self.max_squared_norm
        for h, uniform in enumerate(uniforms):
            # Inversion: coordinate h has a value with the share of its grid points.
            values, sizes = self._continuations(max_square, self.dimensions - h - 1)
            ends = np.cumsum(sizes)
            rank = uniform_index(uniform, int(ends[-1]))
            point[h] = values[np.searchsorted(ends, rank, side="right")]
            max_square -= int(point[h]) ** 2
        return point


def uniform_index(uniform: float, n: int) -> int:
    """Turn a uniform in [0, 1] into an index of 0 .. n - 1."""
    return min(int(uniform * n), n - 1)


@lru_cache(maxsize=64)
def cached_lattice(dimensions: int, side: float) -> Lattice:
    """Return a shared lattice: its table takes longer to fill than all draws."""
    return Lattice(dimensions, side)


def cover_scales(
    n_points: int,
    dimensions: int,
    gamma: float,
    smallest_radius: float,
) -> Sequence[tuple[float, float]]:
    """Sides and radii of covers, from fine to coarse (Nguyen, Chaturvedi, Xu 2021).

    Radii are ``(1 + gamma)^i / n`` up to the first of at least 2, the diameter of the
    unit ball; those below the smallest are left out. A grid of side ``gamma r /
    sqrt(m)`` has a grid point within ``gamma r`` of every point, so a cover extends to
    ``(1 + gamma) r``.

    Examples
    --------
    >>> scales = cover_scales(100, 4, 0.99, 0.5)
    >>> [(round(side, 3), round(radius, 3)) for side, radius in scales]
    [(0.307, 1.236), (0.612, 2.459), (1.217, 4.894)]
    """
    n_radii = math.ceil(math.log(2 * n_points, 1 + gamma))
    radii = [(1 + gamma) ** i / n_points for i in range(1, n_radii + 1)]
    return [
        (gamma * radius / math.sqrt(dimensions), (1 + gamma) * radius)
        for radius in radii
        if radius >= smallest_radius
    ]
