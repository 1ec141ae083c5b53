"""Planted data sets: what their names say, and costs relative to a known optimum."""

import re

import numpy as np
import pandas as pd

from pkm.analysis.tables.statistics import resampled_means
from pkm.analysis.tables.study import SeedMatrix

_NAME = re.compile(
    r"planted-(?:small-)?\d+-\d+-\d+-(?P<ball>0(?:\.\d+)?)(?:-(?P<small>\d+))?"
)
#: The method whose cost stands for the optimum.
OPTIMUM = "kmeans"


def parse_planted_names(cells: pd.DataFrame) -> pd.DataFrame:
    """Add the facts that the names of planted data sets encode.

    Returns
    -------
    DataFrame
        `cells` with `ball` (radius of the planted balls, NaN for other data) and
        `small` (points of the small one, NaN if none).

    Examples
    --------
    >>> names = ["planted-small-100-2-3-0.05-7", "s1"]
    >>> parse_planted_names(pd.DataFrame({"dataset": names})).values.tolist()
    [['planted-small-100-2-3-0.05-7', 0.05, 7.0], ['s1', nan, nan]]
    """
    facts = cells["dataset"].astype(str).str.extract(_NAME)
    return cells.assign(**facts.astype(float))


def relative_means(
    matrix: SeedMatrix,
    value: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Resampled means of cells, relative to those of the optimum where asked.

    Parameters
    ----------
    matrix : SeedMatrix
        Its cells have the columns of `parse_planted_names`.
    value : str
        ``"excess"``: less the optimum on the same data set and k, which is 0 where all
        points of a ball coincide; ``"ratio"``: over it; any other: as they are.

    Returns
    -------
    means : ndarray of shape (repeats + 1, n_cells)
        NaN where there is no optimum.
    seeds : ndarray of shape (n_cells,), int
        Those that the optimum has, too.
    """
    cells = matrix.cells
    is_relative = np.full(len(cells), value == "ratio")
    if value == "excess":
        is_relative = (cells["ball"] != 0).to_numpy()

    # The first run of the optimum on the same data set with the same unit and k.
    places = pd.Series(np.arange(len(cells)))
    optima = places.where(cells["method"] == OPTIMUM)
    same = [cells[name] for name in ("dataset", "unit", "k")]
    optima = optima.groupby(same).transform("first")
    is_known = ~is_relative | optima.notna()
    base = optima.where(is_relative & is_known, places).to_numpy(dtype=int)

    means = resampled_means(matrix)
    if value == "ratio":
        means = means / means[:, base]
    elif value == "excess":
        means = means - np.where(is_relative, means[:, base], 0.0)
    finite = np.isfinite(matrix.values)
    shared_seeds = (finite & finite[:, base]).sum(axis=0)
    return np.where(is_known, means, np.nan), shared_seeds
