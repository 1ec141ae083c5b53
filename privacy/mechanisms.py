"""Noise on the grid: integers in, integers out, rounded to nearest.

Rounding lives here and nowhere else. Noise is rounded *to nearest* before it is added to an integer, which is the same
as rounding the noisy value: post-processing of the continuous mechanism, with the same privacy curve. (Truncation
toward zero is not: it makes an atom of double width at zero.)
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pkm.privacy.noise import MAX_VARIATE, NoiseStreams

_MOST = 2.0**61  # noise saturates far beyond any sum, never wraps


@dataclass(frozen=True)
class _Additive:
    """What the mechanisms share.

    ``law`` names the draw of :class:`NoiseStreams`, ``norm`` that of the sensitivity, ``loss`` the unit of a charge.
    """

    scale: float
    name: ClassVar[str]
    law: ClassVar[str]
    norm: ClassVar[int]
    loss: ClassVar[str]

    def __post_init__(self):
        if not (self.scale > 0 and math.isfinite(self.scale)):
            raise ValueError(f"scale={self.scale} must be positive and finite")

    @property
    def max_noise(self) -> int:
        """Bound on the size of the noise, in grid steps; see :data:`pkm.privacy.noise.MAX_VARIATE`."""
        return math.ceil(min(self.scale * MAX_VARIATE[self.law], _MOST))

    def cost(self, sensitivity: float) -> dict[str, float]:
        """What a release costs whose sensitivity, in grid steps and in the mechanism's norm, is given.

        Examples
        --------
        >>> Gaussian(200.0).cost(50.0), Laplace(200.0).cost(50.0)
        ({'mu': 0.25}, {'epsilon': 0.25})
        """
        return {self.loss: sensitivity / self.scale}

    def add(
        self, values: np.ndarray, streams: NoiseStreams, key: tuple, unit: float | np.ndarray = 1.0
    ) -> np.ndarray:
        """Add rounded noise from the stream of ``key`` to int64 values of shape (replicates, ...).

        ``unit`` multiplies the scale; an array of units broadcasts against the values.
        """
        noise = self.scale * unit * getattr(streams, self.law)(key, values.shape[1:])
        return values + np.rint(np.minimum(np.maximum(noise, -_MOST), _MOST)).astype(np.int64)


class Gaussian(_Additive):
    """Gaussian mechanism.

    Parameters
    ----------
    scale : float
        Standard deviation, in grid steps.
    """

    name, law, norm, loss = "gaussian", "normal", 2, "mu"


class Laplace(_Additive):
    """Laplace mechanism.

    Parameters
    ----------
    scale : float
        Scale b of the density exp(-|x| / b) / (2 b), in grid steps.
    """

    name, law, norm, loss = "laplace", "laplace", 1, "epsilon"


@dataclass(frozen=True)
class BoundedLaplace:
    """Laplace noise conditioned on the outcome lying in a public interval (Holohan et al. 2018, "bounded Laplace").

    Parameters
    ----------
    epsilon : float
        Cost of one value.
    sensitivity : float
        Of one value, in grid steps.
    """

    epsilon: float
    sensitivity: float
    name: ClassVar[str] = "bounded_laplace"

    def __post_init__(self):
        for name in ("epsilon", "sensitivity"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise ValueError(f"{name}={getattr(self, name)} must be positive and finite")

    def scale(self, width: np.ndarray) -> np.ndarray:
        """Scale for intervals of some widths: wider than sensitivity / epsilon, to make up for the lost tails.

        The smallest fixed point of ``b = sensitivity / (epsilon - log C(b))``, where C bounds by how much the
        normalization changes between neighbors.
        """
        m = np.maximum(np.asarray(width, np.float64) / self.sensitivity, 1.0)

        def wanted(b):  # in units of the sensitivity
            change = (np.expm1(-1 / b) + np.expm1(-(m - 1) / b)) / np.expm1(-m / b)
            return 1 / (self.epsilon - np.log(change))

        low = np.full(m.shape, 1 / self.epsilon)
        high = wanted(low)
        for _ in range(60):
            middle = (low + high) / 2
            more = wanted(middle) >= middle
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return high * self.sensitivity

    def add(
        self,
        values: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        streams: NoiseStreams,
        key: tuple,
    ) -> np.ndarray:
        """Draw around int64 values of shape (replicates, ...) inside intervals; values outside are first moved in."""
        middle = np.clip(values, lower, upper).astype(np.float64)
        b = self.scale(upper - lower)
        below, above = 0.5 * np.exp((lower - middle) / b), 0.5 * np.exp((middle - upper) / b)
        p = below + streams.uniform(key, values.shape[1:]) * (1 - above - below)
        drawn = np.where(
            p < 0.5, np.log(2 * np.minimum(p, 0.5)), -np.log(2 * np.minimum(1 - p, 0.5))
        )
        return np.rint(np.clip(middle + b * drawn, lower, upper)).astype(np.int64)
