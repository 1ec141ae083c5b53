"""Points to measure with: data sets, or where the files are missing noise of the same shape."""

import numpy as np

from pkm import datasets


def scaled_points(name: str, n: int, d: int) -> tuple[np.ndarray, str]:
    """A data set in [-1, 1]^d, or uniform noise in its place, with a label that says which."""
    try:
        return datasets.scale(datasets.load(name), "minmax").points, name
    except datasets.DataUnavailable:
        return np.random.default_rng(0).uniform(-1, 1, (n, d)), f"{name} (noise of its shape)"


def raw_points(name: str, n: int, d: int, bounds: tuple[float, float]) -> tuple[np.ndarray, str]:
    """A data set in raw units clipped to bounds, or uniform noise, with a label that says which."""
    try:
        return np.clip(datasets.load(name).points, *bounds), name
    except datasets.DataUnavailable:
        noise = np.random.default_rng(0).uniform(*bounds, (n, d))
        return noise, f"{name} (noise of its shape)"
