"""Weighted k-means on integer positions that is updated after weights have changed.

Seeds are chosen by an exponential race (k-means++), at a rate of weight times squared
distance; Lloyd's steps follow. Sums and weights of every step are kept as integers.
After some weights have changed, only what depends on them is computed again. The
centers are bit for bit those of a run from scratch: they follow from integer sums, and
assignments that are not checked cannot have changed. Reason (triangle inequality): no
position changes its center while its two smallest distances differ by more than twice
the distance that any center has moved since they were measured.

Units: positions are integers; squared distances are float64.
"""

import numpy as np
from numba import njit

from pkm.compute.kernels.ldp import GOLDEN_GAMMA, mix

_U12 = np.uint64(12)

#: Bound on the rounding of two distances, in multiples of the positions' extent.
TOLERANCE = 1e-9


@njit(cache=True)
def hashed_arrival_times(
    positions: np.ndarray,
    key: np.uint64,
    n: int,
) -> np.ndarray:
    """Exponential arrival times that depend on a position and a public key alone.

    Parameters
    ----------
    positions : ndarray of shape (m, d), int64
    key : uint64
    n : int
        Number of times for each position.

    Returns
    -------
    ndarray of shape (m, n), float64
        Standard exponential, from 52 bits each.
    """
    # SplitMix64 over the coordinates: each is mixed into the word before. So times
    # depend on the position, not on its row, and stay when other positions come or go.
    m, d = positions.shape
    times = np.empty((m, n))
    for i in range(m):
        word = mix(key + GOLDEN_GAMMA)
        for h in range(d):
            word = (
                mix(word ^ mix(np.uint64(positions[i, h]) * GOLDEN_GAMMA))
                + GOLDEN_GAMMA
            )
        for t in range(n):
            bits = mix(word + np.uint64(t + 1) * GOLDEN_GAMMA) >> _U12
            # Inversion; half a unit keeps the uniform away from 0 and 1.
            times[i, t] = -np.log((np.float64(bits) + 0.5) * 2.0**-52)
    return times


@njit(cache=True)
def weighted_race(
    positions: np.ndarray,
    weights: np.ndarray,
    times: np.ndarray,
    seeds: np.ndarray,
    arrivals: np.ndarray,
) -> int:
    """Choose seeds as the first arrivals: k-means++ on weighted positions.

    Parameters
    ----------
    positions : ndarray of shape (m, d), int64
        All different; ties go to the lexicographically first, so that their order does
        not matter.
    weights : ndarray of shape (m,), int64
        Positive.
    times : ndarray of shape (m, k), float64
        Standard exponential variates.
    seeds : ndarray of shape (k, d), int64
        Written: positions of the seeds.
    arrivals : ndarray of shape (k,), float64
        Written: when each arrived, infinite where there is none.

    Returns
    -------
    int
        Number of seeds: fewer than k where there are fewer positions.
    """
    m = len(positions)
    sq_dists = np.ones(m)
    seeds[:] = 0
    arrivals[:] = np.inf
    for t in range(len(seeds)):
        # The first arrival wins. Invariant: sq_dists hold the squared distances to the
        # nearest of seeds 0 .. t - 1; a position on a seed has rate 0.
        winner = -1
        for i in range(m):
            if sq_dists[i] > 0:
                time = times[i, t] / (weights[i] * sq_dists[i])
                if time < arrivals[t] or (
                    time == arrivals[t]
                    and winner >= 0
                    and _before(positions[i], positions[winner])
                ):
                    winner = i
                    arrivals[t] = time
        if winner < 0:
            return t
        seeds[t] = positions[winner]
        for i in range(m):
            sq_dist = _sq_dist(positions[i], seeds[t])
            if t == 0 or sq_dist < sq_dists[i]:
                sq_dists[i] = sq_dist
    return len(seeds)


@njit(cache=True)
def seeds_unchanged(
    positions: np.ndarray,
    old_weights: np.ndarray,
    weights: np.ndarray,
    times: np.ndarray,
    seeds: np.ndarray,
    arrivals: np.ndarray,
) -> bool:
    """Whether a new race would choose the same seeds after weights have changed.

    Parameters
    ----------
    positions : ndarray of shape (c, d), int64
        Positions whose weight changed.
    old_weights, weights : ndarray of shape (c,), int64
        Before and after; 0 for a position that is not there.
    times : ndarray of shape (c, k), float64
    seeds, arrivals
        What :func:`weighted_race` wrote. Arrivals of seeds whose weight rose are
        updated.

    Returns
    -------
    bool
        False also where a seed's weight fell: only a new race can tell.
    """
    # Invariant: sq_dist is the squared distance to the nearest of seeds 0 .. t - 1, by
    # which position i would race for seed t.
    for i in range(len(positions)):
        sq_dist = 1.0
        for t in range(len(seeds)):
            if sq_dist == 0.0:
                break
            is_seed = arrivals[t] < np.inf and _sq_dist(positions[i], seeds[t]) == 0.0
            if is_seed and weights[i] < old_weights[i]:
                return False
            if weights[i] > 0:
                time = times[i, t] / (weights[i] * sq_dist)
                if is_seed:
                    arrivals[t] = time
                elif time < arrivals[t] or (
                    time == arrivals[t] and _before(positions[i], seeds[t])
                ):
                    return False
            if arrivals[t] == np.inf:
                break
            to_seed = _sq_dist(positions[i], seeds[t])
            sq_dist = to_seed if t == 0 else min(sq_dist, to_seed)
    return True


@njit(cache=True)
def change_weights(
    positions: np.ndarray,
    rows: np.ndarray,
    changes: np.ndarray,
    n_steps: int,
    labels: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Add changes of weights of some rows to the sums and counts of all steps."""
    # IN: labels. OUT: sums and counts of each step; labels do not change here, because
    # centers are updated only afterwards, by :func:`update_steps`.
    for t in range(n_steps):
        for c in range(len(rows)):
            label = labels[t, rows[c]]
            counts[t, label] += changes[c]
            for h in range(positions.shape[1]):
                sums[t, label, h] += changes[c] * positions[rows[c], h]


@njit(cache=True)
def update_steps(
    positions: np.ndarray,
    weights: np.ndarray,
    n_seeds: int,
    n_valid: int,
    tolerance: float,
    labels: np.ndarray,
    slacks: np.ndarray,
    moved: np.ndarray,
    centers: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
) -> int:
    """Lloyd's steps from seeds until assignments repeat, reusing earlier steps.

    Parameters
    ----------
    positions : ndarray of shape (m, d), int64
    weights : ndarray of shape (m,), int64
    n_seeds : int
        Centers in use.
    n_valid : int
        Number of steps to reuse: their sums and counts include the weight of every row
        with a label of 0 or more, at that label. 0 computes all steps.
    tolerance : float
        Above the rounding of two distances.
    labels : ndarray of shape (T, at least m), int32
        Assignments of each step; -1 for a row that has none.
    slacks : ndarray of the same shape, float64
        Second-smallest less smallest distance, plus twice the `moved` at which they
        were measured.
    moved : ndarray of shape (T,), float64
        Upper bound on the distance that any center of the step has moved since the step
        was first computed.
    centers : ndarray of shape (T + 1, k, d), float64
        `centers[0]` are the seeds. The center of an empty cluster stays.
    sums : ndarray of shape (T, k, d), int64
    counts : ndarray of shape (T, k), int64

    Returns
    -------
    int
        Number of steps; the last centers are `centers[steps]`.
    """
    # IN: positions and weights. IN and OUT: all other arrays, step by step.
    m, d = positions.shape
    for t in range(len(labels)):
        # A step that is not reused starts without assignments.
        if t >= n_valid:
            labels[t, :m] = -1
            moved[t] = 0.0
            sums[t] = 0
            counts[t] = 0

        # Compute assignments that can have changed, and move their weights in the sums.
        # By the triangle inequality a label holds while its slack exceeds twice the
        # moves since it was measured; slacks include the moves before that.
        threshold = 2.0 * moved[t] + tolerance
        repeats = t > 0
        for i in range(m):
            old = labels[t, i]
            if old < 0 or slacks[t, i] <= threshold:
                label, slack = _two_nearest(positions[i], centers[t], n_seeds)
                slacks[t, i] = slack + 2.0 * moved[t]
                if label != old:
                    labels[t, i] = label
                    counts[t, label] += weights[i]
                    for h in range(d):
                        sums[t, label, h] += weights[i] * positions[i, h]
                    if old >= 0:
                        counts[t, old] -= weights[i]
                        for h in range(d):
                            sums[t, old, h] -= weights[i] * positions[i, h]
            if repeats and labels[t, i] != labels[t - 1, i]:
                repeats = False

        # Update the centers of the next step, and the bound on their moves.
        largest = 0.0
        for j in range(n_seeds):
            sq_dist = 0.0
            for h in range(d):
                mean = centers[t, j, h]
                if counts[t, j] > 0:
                    mean = sums[t, j, h] / counts[t, j]
                diff = mean - centers[t + 1, j, h]
                sq_dist += diff * diff
                centers[t + 1, j, h] = mean
            largest = max(largest, sq_dist)
        # Round up, so that the bound holds for the exact distances.
        if t + 1 < n_valid:
            moved[t + 1] += np.sqrt(largest) * (1 + TOLERANCE)
        if repeats:
            return t + 1
    return len(labels)


@njit(cache=True)
def _two_nearest(
    position: np.ndarray,
    centers: np.ndarray,
    k: int,
) -> tuple[int, float]:
    """Nearest center, ties to the first, and how much farther the second is."""
    nearest = 0
    smallest = np.inf
    second = np.inf
    for j in range(k):
        sq_dist = 0.0
        for h in range(len(position)):
            diff = position[h] - centers[j, h]
            sq_dist += diff * diff
        if sq_dist < smallest:
            nearest = j
            second = smallest
            smallest = sq_dist
        elif sq_dist < second:
            second = sq_dist
    return nearest, np.sqrt(second) - np.sqrt(smallest)


@njit(cache=True)
def _sq_dist(a: np.ndarray, b: np.ndarray) -> float:
    """Squared distance of two positions."""
    sq_dist = 0.0
    for h in range(len(a)):
        diff = np.float64(a[h] - b[h])
        sq_dist += diff * diff
    return sq_dist


@njit(cache=True)
def _before(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether a position is lexicographically before another."""
    for h in range(len(a)):
        if a[h] != b[h]:
            return a[h] < b[h]
    return False
