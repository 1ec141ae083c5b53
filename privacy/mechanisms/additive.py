"""Additive noise mechanisms on the grid: integers in, integers out.

With ``secure=True`` noise is drawn from discrete distributions by exact integer
samplers (:mod:`pkm.privacy.mechanisms.samplers`), at integer scales that are rounded
up, because a larger scale costs less.

Seeded noise is continuous noise, rounded in this module only, by
:func:`pkm.compute.add_rounded`. Rounding it *to nearest* before it is added to an
integer is the same as rounding the noisy value. So it is post-processing of the
continuous mechanism. (Truncation toward zero is not: the interval that it maps to zero
is twice as wide.)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar, NamedTuple

import numpy as np

from pkm.compute import add_rounded
from pkm.privacy.checks import check_positive, freeze_fields
from pkm.privacy.grid import SCALE
from pkm.privacy.mechanisms import samplers
from pkm.privacy.mechanisms.noise import MAX_VARIATE, Key, NoiseStreams
from pkm.privacy.query import Sensitivity

# Largest scale of additive noise, in grid steps, that the samplers' arithmetic
# supports. (Above 2**53 float noise would be a multiple of a power of two, and the low
# bits of an answer would be released without noise.) The largest scale of a built-in
# schedule is about 2**40, at epsilon = 1e-4 in 784 features. It bounds a method's
# epsilon from below.
MAX_SCALE = 2.0**44

# Scale t of the random rounding in the proof at :class:`Gaussian`, in grid steps.
ROUNDING = 2


class NoiseScaleError(ValueError):
    """Noise of a scale that does not fit the integers: epsilon is too small."""


def _check_scale(name: str, scale: float) -> None:
    """Refuse a scale, in grid steps, whose noise does not fit int64."""
    if not scale <= MAX_SCALE:
        raise NoiseScaleError(
            f"scale={scale:.3g} of {name} noise must be at most {MAX_SCALE:.3g}, "
            "beyond which noise does not fit int64; raise epsilon"
        )


class Cost(NamedTuple):
    """Cost of a release or of a part of its answer, before composition.

    Attributes
    ----------
    mu : float
        Parameter of Gaussian differential privacy.
    epsilon : float
        Parameter of pure differential privacy.
    delta : float
        Probability with which the others may not hold.
    """

    mu: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0


@dataclass(frozen=True)
class _Additive:
    """Base class of additive noise.

    Attributes
    ----------
    scale : float
        Scale of the noise, in multiples of the sensitivity's unit.
    name : str
        Name in the ledger.
    distribution : str
        Method of :class:`NoiseStreams` that draws seeded noise.
    norm : str
        Norm of :class:`Sensitivity` by which a release is charged.
    """

    scale: float
    name: ClassVar[str]
    distribution: ClassVar[str]
    norm: ClassVar[str]

    def __post_init__(self) -> None:
        # A numpy scalar of fewer bits would round the products.
        object.__setattr__(self, "scale", float(self.scale))
        check_positive("scale", self.scale)

    @property
    def max_noise(self) -> int:
        """Bound on the absolute noise, in the unit of the scale.

        It holds for every seeded draw. Secure noise is unbounded. For a scale of 100 or
        more it exceeds the bound with probability below 2**-64 per draw. A small scale
        grows when it is rounded up for secure noise, which then exceeds the bound more
        often. A value that does not fit the integers, or
        the ring of a sum, then wraps around: the answer is wrong, and wrapping is
        post-processing.
        """
        return math.ceil(self.scale * MAX_VARIATE[self.distribution])

    def check(self, sensitivity: Sensitivity) -> None:
        """Refuse a scale that is too large for int64, before anything is charged.

        Raises
        ------
        NoiseScaleError
            If the scale, in grid steps, is above :data:`MAX_SCALE`.
        """
        # The scale of an entry is in multiples of its unit: check the largest product.
        largest = self.scale * float(np.max(sensitivity.unit, initial=0.0))
        _check_scale(self.name, largest)

    def secure_noise(self, scales: np.ndarray) -> np.ndarray:
        """Exact integer noise of given scales from the operating system's entropy."""
        raise NotImplementedError

    def margin_of_error(self, confidence: float) -> float:
        """Bound on the absolute noise that holds with a probability.

        It is in the unit of the scale.

        Examples
        --------
        >>> round(Gaussian(10.0).margin_of_error(0.95), 2)
        19.6
        >>> round(Laplace(10.0).margin_of_error(0.95), 2)
        29.96
        """
        raise NotImplementedError

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Cost of a release: the norm of what neighbors change, over the scale.

        Examples
        --------
        >>> change = Sensitivity(l1=60.0, l2=50.0)
        >>> Gaussian(200.0).cost(change).mu, Laplace(200.0).cost(change).epsilon
        (0.25, 0.3)
        """
        raise NotImplementedError

    def details(self, sensitivity: Sensitivity) -> dict[str, float]:
        """Scale and sensitivity, in half-widths or records, or in a unit of its own."""
        is_plain = isinstance(sensitivity.unit, float) and sensitivity.unit == 1.0
        steps = SCALE if is_plain else 1
        norm = getattr(sensitivity, self.norm)
        return {"scale": self.scale / steps, "sensitivity": norm / steps}

    def draw(
        self,
        values: np.ndarray,
        streams: NoiseStreams,
        key: Key,
        sensitivity: Sensitivity | None = None,
    ) -> np.ndarray:
        """Add integer noise to integer values.

        Parameters
        ----------
        values : ndarray of shape (replicates, ...), int64
            In grid steps.
        streams : NoiseStreams
        key : tuple
            Key of the stream that the noise is drawn from.
        sensitivity : Sensitivity, optional
            For its unit, a factor of the scale.

        Returns
        -------
        ndarray of the same shape, int64
            In grid steps.
        """
        # Scale and charge are in multiples of the unit: the noise has their product.
        unit = 1.0 if sensitivity is None else sensitivity.unit
        if streams.secure:
            return values + self.secure_noise(
                np.broadcast_to(self.scale * unit, values.shape)
            )
        noise = getattr(streams, self.distribution)(key, values.shape[1:])
        return add_rounded(values, noise, self.scale * unit)


class Gaussian(_Additive):
    """Gaussian mechanism.

    Parameters
    ----------
    scale : float
        Standard deviation, in multiples of the sensitivity's unit.

    Notes
    -----
    Secure noise has the discrete Gaussian distribution of scale ``s = ceil(scale) + 2``
    on the integers. It costs no more than the continuous noise that the ledger charges,
    N(0, scale^2). Proof:

    Round a continuous noisy value z at random to an integer y, with probability
    proportional to ``exp(-(y - z)^2 / (2 t^2))``: this is post-processing, so its cost
    is that of z. If z has variance ``s^2 - t^2`` about an exact integer x, then y has
    probability proportional to ``exp(-(y - x)^2 / (2 s^2))`` times the mean of ``1 /
    Z(z)``, where Z normalizes the rounding. By Poisson summation Z differs from its
    mean by a factor within ``1 +- 2.1 exp(-2 pi^2 t^2)``. With t = 2 that is ``1 +-
    2**-112``. So the discrete Gaussian costs no more than N(0, s^2 - 4), in any number
    of dimensions, up to 2**-110 in epsilon per entry of an answer. For answers that fit
    memory this is far below the relative margin of 1e-9 of the calibration. Finally,
    ``s^2 - 4 >= scale^2`` for every positive scale.
    """

    name = "gaussian"
    distribution = "normal"
    norm = "l2"

    def draw(
        self,
        values: np.ndarray,
        streams: NoiseStreams,
        key: Key,
        sensitivity: Sensitivity | None = None,
    ) -> np.ndarray:
        """Add integer noise; round answers of a finer resolution to whole steps."""
        if sensitivity is None or sensitivity.resolution == 1:
            return super().draw(values, streams, key, sensitivity)
        whole, rest = np.divmod(values, sensitivity.resolution)
        if streams.secure:
            rounded = whole + (2 * rest >= sensitivity.resolution)
            scale = self.scale * rounding_factor(sensitivity, values.size)
            return rounded + self.secure_noise(np.full(values.shape, scale))
        # The noisy answer is rounded once: the same bits where nothing is left over.
        noise = streams.normal(key, values.shape[1:])
        noise += rest / (sensitivity.resolution * self.scale)
        return add_rounded(whole, noise, self.scale)

    def draw_blocks(
        self, streams: NoiseStreams, key: Key
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Add the noise of :meth:`draw` block by block, for one replicate.

        Returns
        -------
        callable
            Function from int64 values of shape (m,), in grid steps, to noisy ones.
        """
        if streams.secure:
            return lambda values: self.draw(values[None], streams, key)[0]
        variates = streams.normal_blocks(key)
        return lambda values: add_rounded(values, variates(len(values)), self.scale)

    def margin_of_error(self, confidence: float) -> float:
        """Quantile of the normal distribution."""
        return self.scale * NormalDist().inv_cdf((1 + confidence) / 2)

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """L2 sensitivity over the standard deviation: mu."""
        return Cost(mu=sensitivity.l2 / self.scale)

    @staticmethod
    def secure_scale(scale: float | np.ndarray) -> np.ndarray:
        """Integer scale of the secure noise."""
        return np.ceil(scale).astype(np.int64) + ROUNDING

    def secure_noise(self, scales: np.ndarray) -> np.ndarray:
        """Discrete Gaussian noise."""
        return samplers.discrete_gaussian(self.secure_scale(scales))


def rounding_factor(sensitivity: Sensitivity, n_entries: int) -> float:
    """Factor of the scale of secure noise that pays for rounding before it is added.

    Rounding moves each entry by half a step at most, for either of two neighbors. So
    their difference grows by at most the root of the number of entries.

    Examples
    --------
    >>> rounding_factor(Sensitivity(l1=400.0, l2=200.0, resolution=1 << 16), 4)
    1.01
    """
    if sensitivity.resolution == 1:
        return 1.0
    return 1 + math.sqrt(n_entries) / sensitivity.l2


class Laplace(_Additive):
    """Laplace mechanism.

    Parameters
    ----------
    scale : float
        Scale b of the density exp(-|x| / b) / (2 b), in multiples of the sensitivity's
        unit.

    Notes
    -----
    Secure noise has the discrete Laplace distribution of scale ``ceil(b)`` on the
    integers. If an answer changes by an integer vector of L1 norm D, probabilities
    change by a factor of at most ``exp(D / b)``, exactly.
    """

    name = "laplace"
    distribution = "laplace"
    norm = "l1"

    def margin_of_error(self, confidence: float) -> float:
        """Quantile of the exponential distribution, that of the absolute noise."""
        return -self.scale * math.log1p(-confidence)

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """L1 sensitivity over the scale: epsilon."""
        return Cost(epsilon=sensitivity.l1 / self.scale)

    def secure_noise(self, scales: np.ndarray) -> np.ndarray:
        """Discrete Laplace noise."""
        return samplers.discrete_laplace(np.ceil(scales).astype(np.int64))


@dataclass(frozen=True)
class BoundedLaplace:
    """Laplace noise conditioned on the outcome lying in a public interval.

    Source: Holohan et al. 2018, "The bounded Laplace mechanism in differential
    privacy".

    Parameters
    ----------
    epsilon : float
        Cost of one value.
    sensitivity : float
        Bound on the change of one value between neighbors, in grid steps.

    Notes
    -----
    Secure noise has the discrete Laplace distribution, conditioned on the integers of
    the interval, at the continuous scale rounded up. It costs no more than the
    continuous one.
    """

    epsilon: float
    sensitivity: float
    name = "bounded_laplace"

    def __post_init__(self) -> None:
        freeze_fields(self)
        check_positive("epsilon", self.epsilon)
        check_positive("sensitivity", self.sensitivity)

    def check(self, sensitivity: Sensitivity) -> None:
        """Refuse a sensitivity below what neighbors change in a value."""
        if self.sensitivity < sensitivity.linf:
            raise ValueError(
                f"sensitivity={self.sensitivity} must be at least {sensitivity.linf}, "
                "what a record changes in a value"
            )
        _check_scale(self.name, self.sensitivity / self.epsilon)

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Sum over the values that neighbors change: epsilon."""
        return Cost(epsilon=sensitivity.l0 * self.epsilon)

    def details(self, sensitivity: Sensitivity) -> dict[str, float]:
        """Epsilon of a value, for the ledger."""
        return {"epsilon": self.epsilon}

    def scale(self, width: np.ndarray) -> np.ndarray:
        """Scale for intervals of given widths, in grid steps.

        It is larger than sensitivity / epsilon, because the normalization differs
        between neighbors, by a factor of at most C(b). It is the smallest fixed point
        of ``b = sensitivity / (epsilon - log C(b))``.
        """
        # m: width in sensitivities; at least 1, because values are clipped to it.
        m = np.maximum(np.asarray(width, np.float64) / self.sensitivity, 1.0)

        def next_scale(b: np.ndarray) -> np.ndarray:  # in units of the sensitivity
            # C(b): the normalization at the sensitivity over that at an end.
            tails = np.expm1(-1 / b) + np.expm1(-(m - 1) / b)
            change = tails / np.expm1(-m / b)
            return 1 / (self.epsilon - np.log(change))

        # Bisection from the scale without bounds. Invariant: the fixed point lies
        # between low and high.
        low = np.full(m.shape, 1 / self.epsilon)
        high = next_scale(low)
        for _ in range(60):
            middle = (low + high) / 2
            is_below = next_scale(middle) >= middle
            low = np.where(is_below, middle, low)
            high = np.where(is_below, high, middle)
        return high * self.sensitivity

    def draw(
        self,
        values: "BoundedValues",
        streams: NoiseStreams,
        key: Key,
        sensitivity: Sensitivity | None = None,
    ) -> np.ndarray:
        """Draw inside public intervals around integer values.

        Parameters
        ----------
        values : BoundedValues
        streams : NoiseStreams
        key : tuple
            Key of the stream that the noise is drawn from.
        sensitivity : ignored

        Returns
        -------
        ndarray of the shape of the values, int64
            In grid steps.
        """
        if streams.secure:
            return self._draw_securely(values)

        lower = values.lower
        upper = values.upper
        center = np.clip(values.exact, lower, upper).astype(np.float64)
        b = self.scale(upper - lower)

        # Invert the Laplace distribution function. below and above are the
        # probabilities outside the interval; p is uniform on what lies between them.
        below = 0.5 * np.exp((lower - center) / b)
        above = 0.5 * np.exp((center - upper) / b)
        uniforms = streams.uniform(key, center.shape[1:])
        p = below + uniforms * (1 - above - below)
        left_tail = np.log(2 * np.minimum(p, 0.5))
        right_tail = -np.log(2 * np.minimum(1 - p, 0.5))
        variate = np.where(p < 0.5, left_tail, right_tail)
        noisy = np.clip(center + b * variate, lower, upper)
        return np.rint(noisy).astype(np.int64)

    def _draw_securely(self, values: "BoundedValues") -> np.ndarray:
        """Draw from the discrete distribution on the integers of the intervals."""
        # It costs no more than the continuous mechanism. On the integers 0 to w the sum
        # of weights about the sensitivity D, over that about 0, is ``(1 + r - r (A +
        # B)) / (1 - r A B)`` with ``r = exp(-1 / b)``, ``A = exp(-D / b)`` and ``B =
        # exp(-(w - D) / b)``. It grows with r, and r = 1 gives the continuous ratio. A
        # larger scale costs less: if the center moves, the mean distance from it grows
        # by no more than that.

        # Integers inside the interval; if there is none, the first one above its start.
        lower = np.ceil(values.lower).astype(np.int64)
        upper = np.maximum(np.floor(values.upper).astype(np.int64), lower)
        center = np.clip(values.exact, lower, upper)
        scales = np.ceil(self.scale(upper - lower)).astype(np.int64)
        scales = np.broadcast_to(scales, center.shape)
        return center + samplers.bounded_laplace(scales, lower - center, upper - center)


class BoundedValues(NamedTuple):
    """Integer values with public intervals for the noisy values, in grid steps.

    Values are clipped to their interval. The ends broadcast against the values.
    """

    exact: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
