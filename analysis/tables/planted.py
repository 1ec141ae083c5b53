"""Planted data sets: what their names say, and costs relative to a known optimum."""

import re

import numpy as np
import pandas as pd

from pkm.analysis.tables.statistics import resampled_means
from pkm.analysis.tables.study import SeedMatrix, matches

_NAME = re.compile(r"planted-(?:small-)?\d+-\d+-\d+-(?P<ball>0(?:\.\d+)?)(?:-(?P<small>\d+))?")


def parse_planted_names(cells: pd.DataFrame) -> pd.DataFrame:
    """Add the facts that the names of planted data sets encode.

    Returns
    -------
    DataFrame
        `cells` with `ball` (radius of the planted balls, NaN for other data) and `small` (points of
        the small one, NaN if none).

    Examples
    --------
    >>> names = ["planted-small-100-2-3-0.05-7", "s1"]
    >>> parse_planted_names(pd.DataFrame({"dataset": names})).values.tolist()
    [['planted-small-100-2-3-0.05-7', 0.05, 7.0], ['s1', nan, nan]]
    """
    parts = cells["dataset"].astype(str).str.extract(_NAME)
    return cells.assign(ball=parts["ball"].astype(float), small=parts["small"].astype(float))


def relative_means(
    matrix: SeedMatrix, value: str, optimum: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Resampled means of the cells of a matrix, relative to those of the optimum where asked.

    Parameters
    ----------
    matrix : SeedMatrix
        Its cells have the columns of `parse_planted_names`.
    value : str
        ``"excess"``: less the optimum on the same data set, which is 0 where all points of a ball
        coincide; ``"ratio"``: over it; any other: as they are.
    optimum : str
        The method whose cost stands for the optimum.

    Returns
    -------
    means : ndarray of shape (repeats + 1, n_cells)
        NaN where there is no optimum.
    seeds : ndarray of shape (n_cells,), int
        Those that the optimum has, too.
    known : ndarray of shape (n_cells,), bool
        Where there is one.
    """
    is_relative = np.full(len(matrix.cells), value == "ratio")
    if value == "excess":
        is_relative = (matrix.cells["ball"] != 0).to_numpy()
    optima = optimum_columns(matrix.cells, optimum)
    known = ~is_relative | (optima >= 0)
    base = np.where(is_relative & known, optima, np.arange(len(optima)))
    means = resampled_means(matrix)
    if value == "ratio":
        means = means / means[:, base]
    elif value == "excess":
        means = means - np.where(is_relative, means[:, base], 0.0)
    finite = np.isfinite(matrix.values)
    return np.where(known, means, np.nan), (finite & finite[:, base]).sum(axis=0), known


def optimum_columns(cells: pd.DataFrame, optimum: str) -> np.ndarray:
    """Position of the cell with the optimum of each cell's data set and k; -1 without one.

    Parameters
    ----------
    cells : DataFrame
        Of a matrix.
    optimum : str
        The method whose cost stands for the optimum.

    Returns
    -------
    ndarray of shape (n_cells,), int
    """
    keys = pd.Series(list(zip(cells["dataset"], cells["k"], strict=True)), dtype=object)
    positions = np.flatnonzero(matches(cells, optimum))
    first = {keys[position]: position for position in positions[::-1]}
    return keys.map(lambda key: first.get(key, -1)).to_numpy(dtype=int)
