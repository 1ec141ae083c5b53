"""Additive noise mechanisms on the grid: integers in, integers out, rounded to nearest.

Noise is rounded in this module only. It is rounded *to nearest* before it is added to an integer,
which is the same as rounding the noisy value: post-processing of the continuous mechanism, with the
same privacy curve. (Truncation toward zero is not: it makes an atom of double width at zero.)
"""

import math
from dataclasses import dataclass
from typing import ClassVar, TypedDict

import numpy as np

from pkm.privacy.noise import MAX_VARIATE, Key, NoiseStreams

_SATURATION = 2.0**61  # grid steps: noise saturates far beyond any sum and never wraps


class Cost(TypedDict, total=False):
    """Cost of a release, as keyword arguments of a charge: mu or epsilon."""

    mu: float
    epsilon: float


@dataclass(frozen=True)
class _Additive:
    """Additive noise of a scale.

    ``distribution`` names the draw of :class:`NoiseStreams`, ``norm`` that of the sensitivity.
    """

    scale: float
    name: ClassVar[str]
    distribution: ClassVar[str]
    norm: ClassVar[int]

    def __post_init__(self) -> None:
        if not (self.scale > 0 and math.isfinite(self.scale)):
            raise ValueError(f"scale={self.scale} must be positive and finite")

    @property
    def max_noise(self) -> int:
        """Bound on the absolute noise, in grid steps."""
        return math.ceil(min(self.scale * MAX_VARIATE[self.distribution], _SATURATION))

    def cost(self, sensitivity: float) -> Cost:
        """Cost of a release of a sensitivity, in grid steps and in the mechanism's norm.

        Examples
        --------
        >>> Gaussian(200.0).cost(50.0), Laplace(200.0).cost(50.0)
        ({'mu': 0.25}, {'epsilon': 0.25})
        """
        raise NotImplementedError(f"{type(self).__name__} must define cost(sensitivity)")

    def add(
        self,
        values: np.ndarray,
        streams: NoiseStreams,
        key: Key,
        unit: float | np.ndarray = 1.0,
    ) -> np.ndarray:
        """Add rounded noise to integer values.

        Parameters
        ----------
        values : ndarray of shape (replicates, ...), int64
            In grid steps.
        streams : NoiseStreams
        key : tuple
            Of the stream that the noise is drawn from.
        unit : float or ndarray, default=1
            Factor of the scale; an array broadcasts against the values.

        Returns
        -------
        ndarray of the same shape, int64
            In grid steps.
        """
        draw = getattr(streams, self.distribution)
        noise = self.scale * unit * draw(key, values.shape[1:])
        saturated = np.minimum(np.maximum(noise, -_SATURATION), _SATURATION)
        return values + np.rint(saturated).astype(np.int64)


class Gaussian(_Additive):
    """Gaussian mechanism.

    Parameters
    ----------
    scale : float
        Standard deviation, in grid steps.
    """

    name = "gaussian"
    distribution = "normal"
    norm = 2

    def cost(self, sensitivity: float) -> Cost:
        """Return mu of a release whose L2 sensitivity is given in grid steps."""
        return {"mu": sensitivity / self.scale}


class Laplace(_Additive):
    """Laplace mechanism.

    Parameters
    ----------
    scale : float
        Scale b of the density exp(-|x| / b) / (2 b), in grid steps.
    """

    name = "laplace"
    distribution = "laplace"
    norm = 1

    def cost(self, sensitivity: float) -> Cost:
        """Return epsilon of a release whose L1 sensitivity is given in grid steps."""
        return {"epsilon": sensitivity / self.scale}


@dataclass(frozen=True)
class BoundedLaplace:
    """Laplace noise conditioned on the outcome lying in a public interval.

    Source: Holohan et al. 2018, "The bounded Laplace mechanism in differential privacy".

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

    def __post_init__(self) -> None:
        for name in ("epsilon", "sensitivity"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name}={value} must be positive and finite")

    def scale(self, width: np.ndarray) -> np.ndarray:
        """Scale for intervals of given widths, in grid steps.

        Larger than sensitivity / epsilon, to make up for the lost tails: the smallest fixed point
        of ``b = sensitivity / (epsilon - log C(b))``, where C bounds by how much the normalization
        changes between neighbors.
        """
        m = np.maximum(np.asarray(width, np.float64) / self.sensitivity, 1.0)

        def next_scale(b: np.ndarray) -> np.ndarray:  # in units of the sensitivity
            parts = np.expm1(-1 / b) + np.expm1(-(m - 1) / b)
            change = parts / np.expm1(-m / b)
            return 1 / (self.epsilon - np.log(change))

        # Bisect, starting from the scale without bounds: the fixed point lies between low and high.
        low = np.full(m.shape, 1 / self.epsilon)
        high = next_scale(low)
        for _ in range(60):
            middle = (low + high) / 2
            is_below = next_scale(middle) >= middle
            low = np.where(is_below, middle, low)
            high = np.where(is_below, high, middle)
        return high * self.sensitivity

    def add(
        self,
        values: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        streams: NoiseStreams,
        key: Key,
    ) -> np.ndarray:
        """Draw inside intervals around integer values.

        Parameters
        ----------
        values : ndarray of shape (replicates, ...), int64
            In grid steps; values outside their interval are first moved to its nearer end.
        lower, upper : ndarray
            Ends of the intervals, in grid steps; they broadcast against the values.
        streams : NoiseStreams
        key : tuple
            Of the stream that the noise is drawn from.

        Returns
        -------
        ndarray of the same shape, int64
            In grid steps.
        """
        center = np.clip(values, lower, upper).astype(np.float64)
        b = self.scale(upper - lower)

        # Invert the Laplace distribution function on the part of [0, 1] that the interval covers.
        below = 0.5 * np.exp((lower - center) / b)
        above = 0.5 * np.exp((center - upper) / b)
        uniforms = streams.uniform(key, values.shape[1:])
        p = below + uniforms * (1 - above - below)
        left_tail = np.log(2 * np.minimum(p, 0.5))
        right_tail = -np.log(2 * np.minimum(1 - p, 0.5))
        variate = np.where(p < 0.5, left_tail, right_tail)
        noisy = np.clip(center + b * variate, lower, upper)
        return np.rint(noisy).astype(np.int64)
