"""Noise on the grid: integers in, integers out, rounded to nearest.

Rounding lives here and nowhere else. Noise is rounded *to nearest* before it is added to an integer, which is the same
as rounding the noisy value: post-processing of the continuous mechanism, with the same privacy curve. (Truncation
toward zero is not: it makes an atom of double width at zero.)
"""

import math
from dataclasses import dataclass

import numpy as np

from privacy.noise import NoiseStreams

_MOST = 2.0**61  # noise saturates far beyond any sum, never wraps


def _add(values: np.ndarray, noise: np.ndarray) -> np.ndarray:
    return values + np.rint(np.minimum(np.maximum(noise, -_MOST), _MOST)).astype(np.int64)


@dataclass(frozen=True)
class Gaussian:
    """Gaussian mechanism.

    Parameters
    ----------
    scale : float
        Standard deviation, in grid steps.
    """

    scale: float
    name = "gaussian"
    norm = 2

    def __post_init__(self):
        _check_scale(self.scale)

    def add(self, values: np.ndarray, streams: NoiseStreams, key: tuple) -> np.ndarray:
        """Add rounded noise from the stream of ``key`` to int64 values of shape (replicates, ...)."""
        return _add(values, self.scale * streams.normal(key, values.shape[1:]))


@dataclass(frozen=True)
class Laplace:
    """Laplace mechanism.

    Parameters
    ----------
    scale : float
        Scale b of the density exp(-|x| / b) / (2 b), in grid steps.
    """

    scale: float
    name = "laplace"
    norm = 1

    def __post_init__(self):
        _check_scale(self.scale)

    def add(self, values: np.ndarray, streams: NoiseStreams, key: tuple) -> np.ndarray:
        """Add rounded noise from the stream of ``key`` to int64 values of shape (replicates, ...)."""
        return _add(values, self.scale * streams.laplace(key, values.shape[1:]))


def _check_scale(scale: float) -> None:
    if not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"scale={scale} must be positive and finite")
