"""Expected error of a fit of the synopsis, and what it can see, from public numbers.

The excess of a fit is its inertia over that of k-means, less 1. Fits to generated data
sets follow one law: the excess falls with the square of the records of a cluster times
the budget. The constants were fitted by
``tools/studies/price_law.py``. The budget is epsilon up to three columns, where noise
is Laplace's, and mu from four columns on, where it is Gaussian.
"""

import math
from dataclasses import dataclass

from pkm.methods.deltas import SOUND_DELTA
from pkm.methods.synthetic.synopsis import QUADTREE_FEATURES
from pkm.privacy import gaussian_mu
from pkm.privacy.calibration import gdp_epsilon
from pkm.scalars import is_positive

# Between-cluster over within-cluster sum of squares where a user cannot guess it: the
# median of the real sets of the comparison.
VARIANCE_RATIO = 3.0


@dataclass(frozen=True)
class PriceLaw:
    """Expected excess as a function of records, columns and variance ratio.

    Attributes
    ----------
    factor, columns, ratio : float
        The factor of the law, and its exponents of the number of columns and of the
        variance ratio.
    detected : float
        Records times budget of the smallest cluster that half of the fits find.
    """

    factor: float
    columns: float
    ratio: float
    detected: float

    def scale(self, n_features: int, variance_ratio: float) -> float:
        """Records of a cluster times budget at which the law's excess is 1."""
        difficulty = n_features**self.columns * variance_ratio**self.ratio
        return (self.factor * difficulty) ** 0.5

    def excess(
        self,
        records: float,
        n_features: int,
        variance_ratio: float,
    ) -> float:
        """Expected excess; never above that of the mean, which is the variance ratio.

        Parameters
        ----------
        records : float
            Records of a cluster times budget. Arrays are allowed.
        """
        unlimited = (self.scale(n_features, variance_ratio) / records) ** 2
        # With little budget the excess tends to the variance ratio.
        return unlimited / (1 + unlimited / variance_ratio)


GRIDS = PriceLaw(factor=600.0, columns=1.0, ratio=0.2, detected=40.0)
HASHING = PriceLaw(factor=180.0, columns=0.75, ratio=0.2, detected=15.0)


def expected_excess(
    n_samples: int,
    n_features: int,
    n_clusters: int,
    epsilon: float,
    *,
    delta: float = SOUND_DELTA,
    variance_ratio: float = VARIANCE_RATIO,
) -> float:
    """Expected excess of the inertia of :class:`pkm.methods.SynopsisKMeans`.

    Parameters
    ----------
    n_samples, n_features, n_clusters : int
        Shape of the data.
    epsilon : float
        Total, zero-out adjacency.
    delta : float, default=1e-6
        Without effect up to three columns.
    variance_ratio : float, default=3.0
        Sum of squares between clusters over that within clusters: a guess from public
        knowledge. It is the excess of the mean as only center.

    Returns
    -------
    float
        0.1 is an inertia a tenth above that of k-means.

    Raises
    ------
    ValueError
        If a number is not positive.

    Examples
    --------
    >>> round(expected_excess(2_000, 8, 10, epsilon=1.0), 2)
    0.41
    """
    law = _law(n_features)
    _check_positive(n_samples=n_samples, n_clusters=n_clusters)
    _check_positive(variance_ratio=variance_ratio)
    records = n_samples / n_clusters * noise_budget(n_features, epsilon, delta)
    return law.excess(records, n_features, variance_ratio)


def epsilon_for(
    excess: float,
    n_samples: int,
    n_features: int,
    n_clusters: int,
    *,
    delta: float = SOUND_DELTA,
    variance_ratio: float = VARIANCE_RATIO,
) -> float:
    """Epsilon at which :func:`expected_excess` is the wished one.

    Parameters
    ----------
    excess : float
        Between 0 and the variance ratio, the excess of the mean.
    n_samples, n_features, n_clusters, delta, variance_ratio
        As for :func:`expected_excess`.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If a number is not positive, or the excess is at least the variance ratio.

    Examples
    --------
    >>> round(epsilon_for(0.41, 2_000, 8, 10), 1)
    1.0
    """
    law = _law(n_features)
    _check_positive(n_samples=n_samples, n_clusters=n_clusters)
    _check_positive(excess=excess, variance_ratio=variance_ratio)
    if excess >= variance_ratio:
        raise ValueError(
            f"excess={excess:g} must be below variance_ratio={variance_ratio:g}: the "
            "mean as only center has no more"
        )
    # The inverse of PriceLaw.excess.
    unlimited = excess / (1 - excess / variance_ratio)
    records = law.scale(n_features, variance_ratio) / math.sqrt(unlimited)
    budget = records * n_clusters / n_samples
    if n_features <= QUADTREE_FEATURES:
        return budget
    return gdp_epsilon(budget, delta)


def detection_limit(
    n_features: int,
    epsilon: float,
    *,
    delta: float = SOUND_DELTA,
) -> float:
    """Number of records of the smallest cluster that half of the fits find.

    Smaller clusters get no center of their own, even if they lie apart from the others.
    Clusters of twice the size are found in nine of ten settings.

    Parameters
    ----------
    n_features : int
    epsilon, delta : float
        As for :func:`expected_excess`.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If a number is not positive.

    Examples
    --------
    >>> detection_limit(2, epsilon=0.5)
    80.0
    """
    law = _law(n_features)
    return law.detected / noise_budget(n_features, epsilon, delta)


def noise_budget(
    n_features: int,
    epsilon: float,
    delta: float = SOUND_DELTA,
) -> float:
    """Epsilon where the noise of the synopsis is Laplace's, mu where it is Gaussian."""
    _check_positive(epsilon=epsilon)
    if n_features <= QUADTREE_FEATURES:
        return epsilon
    return gaussian_mu(epsilon, delta)


def _law(n_features: int) -> PriceLaw:
    _check_positive(n_features=n_features)
    return GRIDS if n_features <= QUADTREE_FEATURES else HASHING


def _check_positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not is_positive(number):
            raise ValueError(f"{name}={number!r} must be a positive number")
