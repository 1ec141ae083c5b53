"""Private local search: k of the candidates, by swaps of the exponential mechanism.

Gupta, Ligett, McSherry, Roth, Talwar (SODA 2010). Balcan, Dick, Liang, Mou, Zhang (ICML
2017), and Kaplan and Stemmer (NeurIPS 2018, Theorem 2.1), use it for k-means. The
search starts from k random candidates. Each round draws a swap of a center for a
candidate by the exponential mechanism, with the inertia after the swap as loss. A last
draw selects one of the visited sets of centers. Differences: a record never lowers an
inertia, which halves the epsilon of a draw; a draw is charged by the mu of a mechanism
of bounded range; and there are far fewer rounds than the theory's hundreds per center.
"""

import math

import numpy as np

from pkm.compute import largest_packing
from pkm.methods.constraints import OneOf
from pkm.methods.schedule import plan_release
from pkm.privacy import (
    SCALE,
    CandidateSets,
    Charge,
    ClippedPoints,
    Exponential,
    Swaps,
)
from pkm.privacy.mechanisms.selection import selection_epsilon

MOVES = ("all", "round_robin")


def plan_search(n_swaps: int, mu: float) -> list[Charge]:
    """Plan all draws of a search, each with an equal share of mu squared."""
    draw_mu = mu / math.sqrt(n_swaps + 1)
    swap = plan_release(Swaps, Exponential, mu=draw_mu)
    return [swap] * n_swaps + [plan_release(CandidateSets, Exponential, mu=draw_mu)]


def fill_up(
    candidates: np.ndarray,
    points: ClippedPoints,
    k: int,
    directions: np.ndarray,
    generator: np.random.Generator,
) -> np.ndarray:
    """Complete candidates to at least k by points that ignore the data.

    Parameters
    ----------
    candidates : ndarray of shape (m, d), int64
    points : ClippedPoints
    k : int
    directions : ndarray of shape (m, d), float64
        Orthonormal. Points are packed into the cube inscribed in the ball, in their
        span.
    generator : numpy.random.Generator
        Public.

    Returns
    -------
    ndarray of shape (max(m, k), d), int64
    """
    # Centers of packed spheres in the cube [-1, 1]^m, scaled to the inscribed cube.
    n_dimensions = len(directions)
    source = np.random.RandomState(int(generator.integers(2**32)))
    packed = largest_packing(source, k, n_dimensions, "bisection")
    packed = packed * (points.uncompressed_radius / math.sqrt(n_dimensions))
    lifted = points.clip(packed @ directions * SCALE)
    return np.concatenate([candidates, lifted[: max(0, k - len(candidates))]])


def private_local_search(
    points: ClippedPoints,
    candidates: np.ndarray,
    k: int,
    *,
    n_swaps: int,
    mu: float,
    generator: np.random.Generator,
    moves: str = "all",
) -> np.ndarray:
    """Select k candidates by swaps.

    Parameters
    ----------
    points : ClippedPoints
        Queried for the draws.
    candidates : ndarray of shape (m, d), int64
        Released, in the ball and the domain, m at least k.
    k : int
    n_swaps : int
        At least 1.
    mu : float
        Privacy cost of each of the ``n_swaps + 1`` draws.
    generator : numpy.random.Generator
        Public: draws the first choice.
    moves : {"all", "round_robin"}, default="all"
        Whether a round may swap any center, or the rounds swap the centers in turn.

    Returns
    -------
    ndarray of shape (k, d), int64
    """
    if moves not in MOVES:
        raise ValueError(OneOf(*MOVES).refuse("moves", moves))
    if not 1 <= k <= len(candidates):
        raise ValueError(
            f"k={k} must be from 1 to the number of candidates, {len(candidates)}"
        )
    mechanism = Exponential(selection_epsilon(mu))

    # Start from k random candidates; indices of the candidates.
    current = generator.permutation(len(candidates))[:k]
    # All visited sets are kept, because a noisy swap may raise the inertia.
    visited = [current]
    for step in range(n_swaps):
        # Draw a swap of a center (slot) for a candidate, by the inertia after it.
        slots = range(k) if moves == "all" else [step % k]
        query = Swaps(candidates, current, slots)
        (choice,) = points.release(query, choices=mechanism)["choices"]
        slot, candidate = query.swap(choice)
        current = current.copy()
        current[slot] = candidate
        visited.append(current)

    # Draw one of the visited sets, by its inertia.
    query = CandidateSets(candidates, np.array(visited))
    (choice,) = points.release(query, choices=mechanism)["choices"]
    return candidates[visited[choice]]
