"""Accounting from stored charges alone, as an independent check of the ledger."""

import math
from collections.abc import Mapping
from functools import cache

import numpy as np
import pandas as pd
from scipy import optimize, special, stats


def gaussian_delta(
    mu: float,
    epsilon: float,
) -> float:
    """Compute delta of a mu-GDP mechanism at epsilon (Dong, Roth and Su, corollary 1).

    Examples
    --------
    >>> round(float(gaussian_delta(1.0, 1.0)), 6)
    0.126937
    """
    return special.ndtr(mu / 2 - epsilon / mu) - np.exp(
        epsilon + special.log_ndtr(-epsilon / mu - mu / 2)
    )


def gaussian_epsilon(
    mu: float,
    delta: float,
) -> float:
    """Compute the smallest epsilon of a mu-GDP mechanism at delta; infinite at 0.

    Examples
    --------
    >>> round(gaussian_epsilon(1.0, gaussian_delta(1.0, 1.0)), 9)
    1.0
    """
    if delta <= 0:
        return math.inf
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    # The bound by concentrated privacy is large enough.
    upper = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    return optimize.brentq(
        lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, upper, xtol=1e-12
    )


@cache
def noise_multiplier(
    epsilon: float,
    delta: float,
) -> float:
    """Compute the smallest (epsilon, delta)-private noise scale for sensitivity 1.

    Examples
    --------
    >>> round(noise_multiplier(1.0, gaussian_delta(0.5, 1.0)), 9)
    2.0
    """
    mu = optimize.brentq(
        lambda value: gaussian_delta(value, epsilon) - delta, 1e-6, 100.0, xtol=1e-14
    )
    return 1 / mu


def composed_delta(
    charges: pd.DataFrame,
    epsilon: float,
) -> float:
    """Compute delta of Gaussian releases at epsilon, with the delta charged directly.

    Parameters
    ----------
    charges : DataFrame
        As `charges.read_charges` returns them; their pure costs are not looked at.
    epsilon : float

    Examples
    --------
    >>> charges = pd.DataFrame({"mu": [0.6, 0.8], "delta": [0.0, 0.1]})
    >>> round(composed_delta(charges, 1.0), 6)
    0.226937
    """
    mu = math.sqrt(math.fsum(charges["mu"] ** 2))
    failures = math.fsum(charges["delta"])
    return failures + (float(gaussian_delta(mu, epsilon)) if mu else 0.0)


def min_released_count(charge: Mapping) -> float:
    """Compute the smallest noisy count that a stability histogram releases.

    A record changes as many cells as the squared sensitivity says, each by one; all
    that only one neighbor has must stay hidden with probability 1 - delta.

    Examples
    --------
    >>> charge = {"count_scale": 10.0, "count_sensitivity": 1.0, "delta": 1e-6}
    >>> round(min_released_count(charge), 2)
    48.53
    """
    n_cells = round(charge["count_sensitivity"] ** 2)
    failure = -math.expm1(math.log1p(-charge["delta"]) / n_cells)
    return 1 + charge["count_scale"] * float(stats.norm.isf(failure))
