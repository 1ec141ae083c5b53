"""Points in a ball, and all grid points of a lattice, for brute force."""

import itertools

import numpy as np


def ball_points(n, m, seed, spread=0.35):
    points = spread * np.random.default_rng(seed).standard_normal((n, m))
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.maximum(1, norms)


def enumerated(lattice):
    """Return all grid points of a lattice, by trying every point of the cube around it."""
    largest = int(1 / lattice.side) + 1
    steps = range(-largest, largest + 1)
    cube = np.array(list(itertools.product(steps, repeat=lattice.dimensions)))
    inside = (cube**2).sum(axis=1) <= 1 / lattice.side**2
    return cube[inside]


def covered_counts(grid_points, points, side, radius):
    """Return the number of points within the radius of each grid point."""
    steps = grid_points[:, None, :] * side - points[None]
    squares = (steps**2).sum(axis=2)
    return (squares <= radius**2).sum(axis=1)
