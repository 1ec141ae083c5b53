"""Gaussian differential privacy in closed form: from mu to (epsilon, delta) and back.

A query of L2 sensitivity D with Gaussian noise of standard deviation s is mu-GDP with
mu = D / s; mu composes as the root of the sum of squares, adaptively (Dong, Roth, Su).
Solving the trade-off for mu at given (epsilon, delta) is the analytic Gaussian
calibration (Balle, Wang 2018, Theorem 8).
"""

import math
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtr

from pkm.privacy.checks import check_positive

SAFETY = 1e-9  # relative margin against rounding in the solver and the error function

# Below this mu the two terms of delta cancel too much, and their difference is
# integrated instead.
SMALL_MU = 1e-3
# Beyond so many standard deviations, normal tails are below the smallest float64.
NEGLIGIBLE = 40.0
#: Nodes and weights of Gauss-Legendre integration, exact for polynomials of degree 5.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(3)


def gdp_delta(mu: float, epsilon: float) -> float:
    """Smallest delta for which mu-GDP implies (epsilon, delta)-DP.

    Parameters
    ----------
    mu, epsilon : float
        Non-negative.

    Returns
    -------
    float

    Examples
    --------
    >>> round(gdp_delta(1 / 3.730632, 1.0), 9)
    1e-05
    """
    if mu == 0:
        return 0.0
    if mu < SMALL_MU:
        delta = _small_mu_delta(mu, epsilon)
    else:
        # Balle and Wang 2018, Theorem 8; the second term in logarithms, because its
        # factors overflow and underflow.
        second = math.exp(epsilon + log_ndtr(-epsilon / mu - mu / 2))
        delta = float(ndtr(-epsilon / mu + mu / 2)) - second
    # The exact value is positive for every mu > 0, even if float64 rounds it to 0.
    return max(sys.float_info.min, delta)


def _small_mu_delta(mu: float, epsilon: float) -> float:
    """Delta for a small mu, without cancellation."""
    z = epsilon / mu
    if z > NEGLIGIBLE:
        return 0.0

    # With Mills' ratio M(x) = Q(x) / phi(x), of the normal tail and density, delta is
    # phi(z - mu / 2) (M(z - mu / 2) - M(z + mu / 2)). The difference is the integral of
    # -M'(x) = 1 - x M(x), which is positive. Over such a short interval it is a
    # polynomial of degree 5 up to rounding, so three nodes integrate it exactly.
    x = z + mu / 2 * NODES
    slopes = 1 - x * math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))
    density = math.exp(-((z - mu / 2) ** 2) / 2) / math.sqrt(2 * math.pi)
    return density * mu / 2 * float(WEIGHTS @ slopes)


@lru_cache(maxsize=4096, typed=True)
def gdp_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon >= 0 for which mu-GDP implies (epsilon, delta)-DP.

    Infinite for delta = 0 and mu > 0.
    """
    if mu == 0 or gdp_delta(mu, 0.0) <= delta:
        return 0.0
    if delta <= 0:
        return math.inf

    # Double the upper end until it brackets the root.
    high = 1.0
    while gdp_delta(mu, high) > delta:
        high *= 2
    return find_root(
        lambda epsilon: gdp_delta(mu, epsilon) - delta,
        0.0,
        high,
        xtol=1e-14,
        rtol=1e-13,
    )


@lru_cache(maxsize=4096, typed=True)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu for which mu-GDP implies (epsilon, delta)-DP, reduced by 1e-9.

    Parameters
    ----------
    epsilon : float
        Positive.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        The noise multiplier for sensitivity 1 is its inverse.

    Examples
    --------
    >>> round(1 / gaussian_mu(1.0, 1e-5), 6)
    3.730632
    """
    check_positive("epsilon", epsilon)
    if not sys.float_info.min <= delta < 1:
        raise ValueError(
            f"delta={delta} must be in (0, 1) for Gaussian noise, and 2.3e-308 at least"
        )

    # Double the interval until it brackets the root.
    low = 0.0
    high = 1.0
    while gdp_delta(high, epsilon) < delta:
        low = high
        high = 2 * high
    # Reduced by SAFETY, so that rounding never makes the noise too small.
    mu = find_root(
        lambda mu: gdp_delta(mu, epsilon) - delta, low, high, xtol=1e-300, rtol=1e-14
    )
    return mu * (1 - SAFETY)


def find_root(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    xtol: float,
    rtol: float,
) -> float:
    """Root of a function between two points of different signs (Brent's method)."""
    # The stubs of scipy ask for float64 tolerances and return a tuple, as for
    # full_output=True.
    tolerances: Any = {"xtol": xtol, "rtol": rtol}
    root: Any = brentq(function, low, high, **tolerances)
    return float(root)
