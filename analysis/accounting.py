"""Accounting from stored charges alone, in a form of its own: what the ledger says is checked by
it, not repeated.
"""

import math

import numpy as np
import pandas as pd
from scipy import optimize, special, stats


def gaussian_delta(mu, epsilon):
    """Delta of a mu-GDP mechanism at epsilon (Dong, Roth and Su, corollary 1).

    Examples
    --------
    >>> round(float(gaussian_delta(1.0, 1.0)), 6)
    0.126937
    """
    return special.ndtr(mu / 2 - epsilon / mu) - np.exp(
        epsilon + special.log_ndtr(-epsilon / mu - mu / 2)
    )


def gaussian_epsilon(mu, delta):
    """Smallest epsilon of a mu-GDP mechanism at delta; infinite without a delta.

    Examples
    --------
    >>> round(gaussian_epsilon(1.0, gaussian_delta(1.0, 1.0)), 9)
    1.0
    """
    if delta <= 0:
        return math.inf
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    most = mu * mu / 2 + mu * math.sqrt(
        2 * math.log(1 / delta)
    )  # enough: the bound by concentrated privacy
    return optimize.brentq(
        lambda epsilon: gaussian_delta(mu, epsilon) - delta, 0.0, most, xtol=1e-12
    )


def composed_delta(charges: pd.DataFrame, epsilon: float) -> float:
    """Delta that the Gaussian noise of releases has together at epsilon, and the delta charged
    beside it.

    Parameters
    ----------
    charges : DataFrame
        As `pkm.analysis.charges.charges_of` returns them; their pure costs are not looked at.
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


def least_count(charge):
    """Least noisy count that leaves a histogram over unlisted cells, from what its charge says.

    A record changes as many cells as the squared sensitivity says, each by one; all that only one
    neighbor has must stay hidden with probability 1 - delta.

    Examples
    --------
    >>> round(least_count({"count_scale": 10.0, "count_sensitivity": 1.0, "delta": 1e-6}), 2)
    48.53
    """
    cells = round(charge["count_sensitivity"] ** 2)
    return 1 + charge["count_scale"] * float(
        stats.norm.isf(-math.expm1(math.log1p(-charge["delta"]) / cells))
    )
