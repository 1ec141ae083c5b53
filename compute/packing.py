"""Sphere packing: k starting centers that keep their distance from each other and from the border of the box.

Data independent, hence free of privacy cost (FastLloyd, Sec. 5.3.1; Su et al.). A candidate radius a is tried by
rejection: points uniform in [-1 + a, 1 - a]^d are kept if they are at least 2a from all kept ones.
"""

import numpy as np
from numba import njit

REJECTIONS = 100  # consecutive ones, after which a radius counts as too large
PROBES = 20  # bisection steps: the radius is found to one part in a million

_PLACED, _FAILED, _STARVED = 0, 1, 2


@njit(cache=True)
def _place(uniforms, start, k, d, radius, centers):
    kept, rejected, used = 0, 0, start
    apart = 4.0 * radius * radius
    while kept < k:
        if rejected == REJECTIONS:
            return _FAILED, used
        if used + d > uniforms.shape[0]:
            return _STARVED, used
        for h in range(d):
            centers[kept, h] = (radius - 1.0) + (2.0 - 2.0 * radius) * uniforms[used + h]
        used += d
        clear = True
        for other in range(kept):
            distance = 0.0
            for h in range(d):
                step = centers[kept, h] - centers[other, h]
                distance += step * step
            if distance < apart:
                clear = False
                break
        if clear:
            kept += 1
            rejected = 0
        else:
            rejected += 1
    return _PLACED, used


class _Uniforms:
    """A stream of uniforms that grows on demand, so that compiled code can read it as an array."""

    def __init__(self, generator):
        self._generator = generator
        self.values = np.empty(0)

    def grow(self, least):
        more = max(least, len(self.values), 1024)
        self.values = np.concatenate([self.values, self._generator.random_sample(more)])


def place_spheres(
    uniforms: _Uniforms, start: int, k: int, d: int, radius: float
) -> tuple[np.ndarray | None, int]:
    """Try to place k centers for one radius.

    Parameters
    ----------
    uniforms : _Uniforms
        Stream of uniforms; reading begins at ``start``.
    start, k, d : int
    radius : float
        The a of the module's text, in [0, 1].

    Returns
    -------
    centers : ndarray of shape (k, d) or None
        None where a center was refused :data:`REJECTIONS` times in a row.
    end : int
        Where reading stopped.
    """
    centers = np.empty((k, d))
    while True:
        outcome, end = _place(uniforms.values, start, k, d, radius, centers)
        if outcome == _STARVED:
            uniforms.grow(d)
            continue
        return (centers, end) if outcome == _PLACED else (None, end)


def largest_packing(generator, k: int, d: int, search: str) -> np.ndarray:
    """Find starting centers in [-1, 1]^d that are as far apart as the search finds possible.

    Parameters
    ----------
    generator : object with ``random_sample(size)``
        Source of uniforms; ``numpy.random.RandomState(seed)`` with ``halving`` gives the paper's own starting centers.
    k, d : int
        Number of centers and of features.
    search : {"halving", "bisection"}
        ``halving`` takes the first of 1, 1/2, 1/4, ... that works (the published code); ``bisection`` looks for the
        largest that works (the published text).

    Returns
    -------
    ndarray of shape (k, d), float64

    Examples
    --------
    >>> largest_packing(np.random.RandomState(0), 3, 2, "halving").round(6).tolist()
    [[0.554233, -0.068756], [-0.259949, -0.400884], [0.171697, -0.700388]]
    """
    uniforms, position = _Uniforms(generator), 0
    if search == "halving":
        radius = 1.0
        while True:
            centers, position = place_spheres(uniforms, position, k, d, radius)
            if centers is not None:
                return centers
            radius /= 2
    if search != "bisection":
        raise ValueError(f"radius_search={search!r} is unknown, choose 'halving' or 'bisection'")
    low, high = 0.0, 1.0  # radius 0 keeps every candidate, so there is always an answer
    found, position = place_spheres(uniforms, position, k, d, low)
    for _ in range(PROBES):
        middle = (low + high) / 2
        centers, position = place_spheres(uniforms, position, k, d, middle)
        if centers is None:
            high = middle
        else:
            low, found = middle, centers
    return found
