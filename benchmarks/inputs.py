"""Points for the benchmarks: data sets, uniform noise of their shape, and clusters."""

import numpy as np

from pkm import datasets


def load_points(
    name: str,
    shape: tuple[int, int],
    scale: float,
    bounds: tuple[float, float] | None = None,
) -> tuple[np.ndarray, str]:
    """Load a data set, or draw uniform noise of its shape where its file is missing.

    Parameters
    ----------
    name : str
    shape : tuple of int
        Of the noise.
    scale : float
        Share of the rows.
    bounds : tuple of float, optional
        Values are clipped to them. Without them columns are scaled to [-1, 1].

    Returns
    -------
    points : ndarray of shape (n, d)
    label : str
        The name, and whether the points are noise.
    """
    n = round(scale * shape[0])
    try:
        dataset = datasets.load(name)
    except datasets.DataUnavailable:
        lower, upper = bounds or (-1, 1)
        generator = np.random.default_rng(0)
        uniform_points = generator.uniform(lower, upper, (n, shape[1]))
        return uniform_points, f"{name} (noise of its shape)"
    if bounds is None:
        points = datasets.scale(dataset, "minmax").points
    else:
        points = np.clip(dataset.points, *bounds)
    return points[:n], name


def draw_mixture(
    labels: np.ndarray, d: int, spread: float = 0.05, max_mean: float = 0.8
) -> np.ndarray:
    """Draw a normal cluster for each label, clipped to [-1, 1].

    Parameters
    ----------
    labels : ndarray of int
        Number of the cluster of each point.
    d : int
    spread : float
        Standard deviation of each coordinate.
    max_mean : float
        Largest coordinate of a cluster's mean.

    Returns
    -------
    ndarray of shape (*labels.shape, d)
    """
    generator = np.random.default_rng(7)
    means = generator.uniform(-max_mean, max_mean, (labels.max() + 1, d))
    noise = generator.normal(0, spread, (*labels.shape, d))
    return np.clip(means[labels] + noise, -1, 1)
