"""Positions on a linear scale near an origin, and on a logarithmic one beyond."""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Symlog:
    """A scale that is linear up to length 1, and logarithmic beyond.

    A length r > 1 becomes ``1 + softness * log(1 + (r - 1) / softness)``; all is then
    divided by the image of the largest length, so that it fits into a grid.

    Parameters
    ----------
    largest : float
        Largest length that occurs, at least 1.
    softness : float
        The smaller, the more lengths beyond 1 are compressed. With 0 they are clipped
        to 1.
    by_norm : bool
        Whether a length is the Euclidean norm of a position. Otherwise every coordinate
        has a scale of its own.

    Examples
    --------
    >>> scale = Symlog(100.0, 0.5, by_norm=False)
    >>> compressed = scale.compress(np.array([[0.5, -1.0, 10.0, 100.0]]))
    >>> compressed.round(3).tolist()
    [[0.137, -0.274, 0.678, 1.0]]
    >>> scale.expand(compressed).round(3).tolist()
    [[0.5, -1.0, 10.0, 100.0]]
    """

    largest: float
    softness: float
    by_norm: bool

    @property
    def linear_part(self) -> float:
        """The image of length 1: the part of the grid that is linear."""
        if self.softness == 0:
            return 1.0
        beyond = math.log1p((self.largest - 1) / self.softness)
        return 1 / (1 + self.softness * beyond)

    def compress(self, positions: np.ndarray) -> np.ndarray:
        """Map positions (m, d), float64, to the grid's half-widths."""
        lengths = self._lengths(positions)
        beyond = np.maximum(lengths - 1, 0.0)
        if self.softness == 0:
            images = np.minimum(lengths, 1.0)
        else:
            images = lengths - beyond
            images += self.softness * np.log1p(beyond / self.softness)
        return positions * _quotients(images, lengths) * self.linear_part

    def expand(self, positions: np.ndarray) -> np.ndarray:
        """Map positions (m, d) in the grid's half-widths back, the inverse."""
        positions = positions / self.linear_part
        # Clipping has no inverse: lengths beyond 1 stay at 1.
        if self.softness == 0:
            return positions
        images = self._lengths(positions)
        beyond = np.maximum(images - 1, 0.0)
        lengths = images - beyond
        lengths += self.softness * np.expm1(beyond / self.softness)
        return positions * _quotients(lengths, images)

    def _lengths(self, positions: np.ndarray) -> np.ndarray:
        if self.by_norm:
            return np.linalg.norm(positions, axis=-1, keepdims=True)
        return np.abs(positions)


def _quotients(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Elementwise quotients; 1 where the denominator is 0."""
    ones = np.ones_like(denominators)
    return np.divide(numerators, denominators, out=ones, where=denominators > 0)
