"""Noise on the grid: integers in, integers out, rounded to nearest.

Rounding lives here and nowhere else. Noise is rounded *to nearest* before it is added to an integer, which is the same
as rounding the noisy value: post-processing of the continuous mechanism, with the same privacy curve. (Truncation
toward zero is not: it makes an atom of double width at zero.)
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privacy.noise import NoiseStreams

_MOST = 2.0**61  # noise saturates far beyond any sum, never wraps


@dataclass(frozen=True)
class _Additive:
    """What the mechanisms share; ``law`` names the draw of :class:`NoiseStreams`, ``norm`` that of the sensitivity."""

    scale: float
    name: ClassVar[str]
    law: ClassVar[str]
    norm: ClassVar[int]

    def __post_init__(self):
        if not (self.scale > 0 and math.isfinite(self.scale)):
            raise ValueError(f"scale={self.scale} must be positive and finite")

    def add(self, values: np.ndarray, streams: NoiseStreams, key: tuple) -> np.ndarray:
        """Add rounded noise from the stream of ``key`` to int64 values of shape (replicates, ...)."""
        noise = self.scale * getattr(streams, self.law)(key, values.shape[1:])
        return values + np.rint(np.minimum(np.maximum(noise, -_MOST), _MOST)).astype(np.int64)


class Gaussian(_Additive):
    """Gaussian mechanism.

    Parameters
    ----------
    scale : float
        Standard deviation, in grid steps.
    """

    name, law, norm = "gaussian", "normal", 2


class Laplace(_Additive):
    """Laplace mechanism.

    Parameters
    ----------
    scale : float
        Scale b of the density exp(-|x| / b) / (2 b), in grid steps.
    """

    name, law, norm = "laplace", "laplace", 1
