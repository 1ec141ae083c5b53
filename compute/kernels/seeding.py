"""Starting centers: sphere packing, and k-means++ as an exponential race.

Sphere packing places centers far from each other and from the border of the box. They
do not depend on data, hence cost no privacy (FastLloyd, Sec. 5.3.1; Su et al.). A
radius a is tried by rejection: points uniform in [-1 + a, 1 - a]^d are accepted if they
are at least 2a from all accepted ones.

In the race every point has an arrival time for every step; the point that arrives first
is the seed. A standard exponential time divided by a rate is exponential with that
rate, and the first of several arrives with a probability in proportion to its rate. If
the rate is the squared distance to the nearest seed, seeds have the distribution of
k-means++. The race serves unlearning: if a point that is not a seed is removed, no
other point wins a step, and if a seed is removed, the steps before it stay.
"""

from typing import Protocol

import numpy as np
from numba import njit

MAX_REJECTIONS = 100  # in a row, after which a radius counts as too large
BISECTION_STEPS = 20  # the radius is found to one part in a million
MIN_DRAWS = 1024  # uniforms drawn at a time


class UniformGenerator(Protocol):
    """Source of uniforms in [0, 1), such as ``numpy.random.RandomState``."""

    def random_sample(self, size: int) -> np.ndarray:
        """Draw ``size`` uniforms."""
        ...


class _Uniforms:
    """Stream of uniforms, drawn on demand, and the position of its reader."""

    def __init__(self, generator: UniformGenerator):
        self._generator = generator
        self._values = np.empty(0)
        self.position = 0

    def peek(self, d: int) -> np.ndarray:
        """Return the next uniforms as rows (m, d), at least one; they stay unread."""
        if self.position + d > len(self._values):
            # Doubling bounds the number of copies.
            n_draws = max(d, len(self._values), MIN_DRAWS)
            draws = self._generator.random_sample(n_draws)
            self._values = np.concatenate([self._values, draws])
        values = self._values[self.position :][: max(d, MIN_DRAWS)]
        n_rows = len(values) // d
        return values[: n_rows * d].reshape(n_rows, d)


def largest_packing(
    generator: UniformGenerator,
    k: int,
    d: int,
    search: str,
) -> np.ndarray:
    """Place starting centers in [-1, 1]^d with a packing radius as large as possible.

    Parameters
    ----------
    generator : object with ``random_sample(size)``
        Source of uniforms; ``numpy.random.RandomState(seed)`` with ``halving`` gives
        the starting centers of the paper.
    k, d : int
        Number of centers and of features.
    search : {"halving", "bisection"}
        ``halving`` takes the first radius of 1, 1/2, 1/4, ... that can be placed (the
        published code); ``bisection`` approximates the largest one (the published
        text).

    Returns
    -------
    ndarray of shape (k, d), float64

    Examples
    --------
    >>> largest_packing(np.random.RandomState(0), 3, 2, "halving").round(6).tolist()
    [[0.554233, -0.068756], [-0.259949, -0.400884], [0.171697, -0.700388]]
    """
    uniforms = _Uniforms(generator)
    if search == "halving":
        return _search_by_halving(uniforms, k, d)
    if search == "bisection":
        return _search_by_bisection(uniforms, k, d)
    raise ValueError(
        f"radius_search={search!r} is unknown, choose 'halving' or 'bisection'"
    )


def ball_packing(
    generator: np.random.Generator,
    n_centers: int,
    d: int,
) -> np.ndarray:
    """Place points in the unit ball, far from each other and from its surface.

    The largest radius of 1/2, 1/4, ... is taken for which spheres can be placed by
    rejection.

    Parameters
    ----------
    generator : numpy.random.Generator
    n_centers, d : int

    Returns
    -------
    ndarray of shape (n_centers, d), float64

    Examples
    --------
    >>> centers = ball_packing(np.random.default_rng(0), 5, 3)
    >>> centers.shape, bool((np.linalg.norm(centers, axis=1) < 1).all())
    ((5, 3), True)
    """
    radius = 0.5
    while True:
        centers = np.empty((n_centers, d))
        n_placed = n_rejected = 0
        while n_placed < n_centers and n_rejected < MAX_REJECTIONS:
            # Uniform in the ball in which centers of spheres inside the unit ball lie.
            candidates = generator.standard_normal((max(n_centers, MIN_DRAWS), d))
            lengths = (1 - radius) * generator.random(len(candidates)) ** (1 / d)
            candidates *= (lengths / np.linalg.norm(candidates, axis=1))[:, None]
            n_placed, n_rejected, _ = _place(
                candidates,
                radius,
                centers,
                n_placed,
                n_rejected,
            )
        if n_placed == n_centers:
            return centers
        radius /= 2


def _search_by_halving(uniforms: _Uniforms, k: int, d: int) -> np.ndarray:
    # Each radius reads the stream on from where the last one stopped.
    radius = 1.0
    while (centers := place_spheres(uniforms, k, d, radius)) is None:
        radius /= 2
    return centers


def _search_by_bisection(uniforms: _Uniforms, k: int, d: int) -> np.ndarray:
    # Radius 0 accepts every candidate, so there is always an answer.
    low = 0.0
    high = 1.0
    best = place_spheres(uniforms, k, d, low)
    assert best is not None

    # Invariant: spheres of radius low were placed, at the centers ``best``; those of
    # radius high were not.
    for _ in range(BISECTION_STEPS):
        radius = (low + high) / 2
        centers = place_spheres(uniforms, k, d, radius)
        if centers is None:
            high = radius
        else:
            low = radius
            best = centers
    return best


def place_spheres(
    uniforms: _Uniforms,
    k: int,
    d: int,
    radius: float,
) -> np.ndarray | None:
    """Try to place k centers for a radius.

    Parameters
    ----------
    uniforms : _Uniforms
    k, d : int
    radius : float
        In half-widths, from 0 to 1.

    Returns
    -------
    ndarray of shape (k, d) or None
        None where a center was rejected :data:`MAX_REJECTIONS` times in a row.
    """
    centers = np.empty((k, d))
    n_placed = n_rejected = 0
    while n_placed < k and n_rejected < MAX_REJECTIONS:
        # Uniform in the cube of centers whose spheres lie in the box.
        candidates = radius - 1.0 + (2.0 - 2.0 * radius) * uniforms.peek(d)
        n_placed, n_rejected, n_read = _place(
            candidates,
            radius,
            centers,
            n_placed,
            n_rejected,
        )
        uniforms.position += n_read * d
    return centers if n_placed == k else None


@njit(cache=True)
def _place(
    candidates: np.ndarray,  # IN
    radius: float,
    centers: np.ndarray,  # IN and OUT, placed from n_placed on
    n_placed: int,
    n_rejected: int,
) -> tuple[int, int, int]:
    """Place candidates (m, d) one after the other, until all centers (k, d) are placed.

    Returns
    -------
    n_placed : int
    n_rejected : int
        Number of rejections in a row; the search ends at :data:`MAX_REJECTIONS`.
    n_read : int
        Number of candidates that were tried.
    """
    n_read = 0
    # Invariant: centers 0 .. n_placed - 1 are accepted, and n_rejected counts the
    # rejections since the last of them. The next candidate is written behind them.
    for candidate in candidates:
        if n_placed == centers.shape[0] or n_rejected == MAX_REJECTIONS:
            break
        n_read += 1
        # Entry by entry: the compiler takes four seconds for the assignment of a row.
        for h in range(candidate.size):
            centers[n_placed, h] = candidate[h]
        if _is_clear(centers, n_placed, 4.0 * radius * radius):
            n_placed += 1
            n_rejected = 0
        else:
            n_rejected += 1
    return n_placed, n_rejected, n_read


@njit(cache=True)
def _is_clear(
    centers: np.ndarray,  # IN (k, d), rows beyond the candidate are not read
    candidate: int,
    min_sq_dist: float,
) -> bool:
    """Whether the candidate is far enough from all centers before it."""
    for j in range(candidate):
        sq_dist = 0.0
        for h in range(centers.shape[1]):
            diff = centers[candidate, h] - centers[j, h]
            sq_dist += diff * diff
        if sq_dist < min_sq_dist:
            return False
    return True


@njit(cache=True, nogil=True)
def exponential_race(
    rows: np.ndarray,  # IN
    arrival_times: np.ndarray,  # IN
    ids: np.ndarray,  # IN
    seeds: np.ndarray,  # IN below first, OUT from there
    first: int,
    sizes: np.ndarray,  # OUT
) -> int:
    """Choose seeds from step ``first`` on; count the points of each.

    Parameters
    ----------
    rows : ndarray of shape (n, d), float32
        Integer-valued coordinates: squared distances are exact.
    arrival_times : ndarray of shape (n, k), float64
        Standard exponential variates.
    ids : ndarray of shape (n,), int64
        Ties go to the lower id, so that the order of rows does not matter.
    seeds : ndarray of shape (k,), int64
        Row numbers: read up to ``first``, written from there.
    first : int
        Step of the first seed to choose.
    sizes : ndarray of shape (k,), int64
        Written: points nearest to each seed, ties to the earlier one.

    Returns
    -------
    int
        Number of seeds: fewer than k where there are fewer distinct points.
    """
    n = rows.shape[0]
    sq_dists = np.full(n, np.inf)
    labels = np.zeros(n, np.int64)
    n_seeds = 0
    # Invariant: before step t, sq_dists and labels are those of the nearest of seeds
    # 0 .. t - 1. Steps below ``first`` take the given seeds.
    for t in range(len(seeds)):
        if t >= first:
            winner = _first_arrival(arrival_times[:, t], sq_dists, ids, t == 0)
            if winner < 0:
                break
            seeds[t] = winner
        n_seeds = t + 1
        for i in range(n):
            sq_dist = 0.0
            for h in range(rows.shape[1]):
                diff = np.float64(rows[i, h]) - np.float64(rows[seeds[t], h])
                sq_dist += diff * diff
            if sq_dist < sq_dists[i]:
                sq_dists[i] = sq_dist
                labels[i] = t

    # Labels are final: count the points of each seed.
    sizes[:] = 0
    for i in range(n):
        sizes[labels[i]] += 1
    return n_seeds


@njit(cache=True, nogil=True)
def _first_arrival(
    arrival_times: np.ndarray,  # IN (n,), of one step
    rates: np.ndarray,  # IN (n,)
    ids: np.ndarray,  # IN (n,)
    equal_rates: bool,
) -> int:
    """Index of the first arrival at a positive rate, -1 if there is none."""
    winner = -1
    earliest = np.inf
    for i in range(len(rates)):
        # A point on a seed has rate zero and never arrives.
        if rates[i] > 0:
            time = arrival_times[i] if equal_rates else arrival_times[i] / rates[i]
            tied = time == earliest and winner >= 0
            if time < earliest or (tied and ids[i] < ids[winner]):
                winner = i
                earliest = time
    return winner
