"""Labels, distances and a score from released centers; no private data are read."""

import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.metrics import pairwise_distances_argmin, pairwise_distances_argmin_min
from sklearn.utils.validation import check_is_fitted

from pkm.compute import Points, labels, middle_and_half_width
from pkm.compute.storage.grid_file import GridFile, is_grid_file, open_grid
from pkm.methods.inputs import as_matrix, count_null, feature_names, refuse_null
from pkm.row_blocks import RowBlocks, RowsLike, row_blocks


class NearestCenters(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin):
    """Labels and distances by the released centers of a fitted estimator.

    It reads ``cluster_centers_``, ``n_features_in_``, ``feature_names_in_``, ``zoom_``,
    and the centers and bounds on the grid, which ``fit`` sets.
    """

    cluster_centers_: np.ndarray
    n_features_in_: int
    zoom_: Any
    _centers: np.ndarray
    _fitted_bounds: tuple[np.ndarray, np.ndarray]

    def predict(self, X: ArrayLike | RowsLike) -> np.ndarray:
        """Index of the nearest released center for each row of X, clipped to bounds."""
        return np.concatenate([self._label(block) for block in self._blocks(X)])

    def transform(self, X: ArrayLike | RowsLike) -> np.ndarray:
        """Distances to the released centers, in half-widths of the bounds.

        Rows are clipped to the bounds, and a half-width of a feature is half the gap of
        its bounds.

        Parameters
        ----------
        X : array-like of shape (n, d), or what is read in blocks

        Returns
        -------
        ndarray of shape (n, k), float64
            The distance is smallest at the center that :meth:`predict` gives, up to
            rounding to the grid. Public code on public centers, as there.

        Examples
        --------
        >>> from pkm.methods import Lloyd
        >>> model = Lloyd(1, bounds=(0, 10)).fit([[0.0, 5.0], [10.0, 5.0]])
        >>> model.transform([[10.0, 5.0]]).tolist(), model.score([[10.0, 5.0]])
        ([[1.0]], -1.0)
        """
        return np.concatenate([cdist(*self._scale(block)) for block in self._blocks(X)])

    def score(
        self,
        X: ArrayLike | RowsLike,
        y: object = None,
    ) -> float:
        """Minus the inertia of rows, in squared half-widths of the bounds.

        It is as of scikit-learn's KMeans, in the units of :meth:`transform`. A score of
        private rows is not covered by the claim: a search for parameters by it costs
        privacy that no ledger records.
        """
        inertias = []
        for block in self._blocks(X):
            _, distances = pairwise_distances_argmin_min(*self._scale(block))
            inertias.append(float((distances**2).sum()))
        return -math.fsum(inertias)

    @property
    def n_clusters_(self) -> int:
        """Number of centers; fewer than ``n_clusters`` if a fit found fewer."""
        return len(self.cluster_centers_)

    #: Number of columns of :meth:`transform`, for scikit-learn's names of them.
    _n_features_out = n_clusters_

    def _blocks(self, X: ArrayLike | RowsLike) -> Iterator[np.ndarray]:
        """Rows of X in blocks (m, d); refuse those that do not fit what was fitted."""
        check_is_fitted(self, "cluster_centers_")
        names = feature_names(X)
        fitted_names = [*getattr(self, "feature_names_in_", names)]
        if len(names) == len(fitted_names) and names != fitted_names:
            raise ValueError(
                "The feature names should match those that were passed during fit, in "
                f"their order: got {', '.join(names)}; fitted with "
                f"{', '.join(fitted_names)}"
            )
        is_file = is_grid_file(X)
        # An array in memory is one block.
        rows = _read_labeled(open_grid(cast("str", X))) if is_file else row_blocks(X)
        for block in [X] if rows is None else rows.blocks():
            matrix = as_matrix(block)
            if matrix.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"X has {matrix.shape[1]} features, but {type(self).__name__} is "
                    f"expecting {self.n_features_in_} features as input"
                )
            yield matrix

    def _label(self, rows: np.ndarray) -> np.ndarray:
        """Index (m,) of the nearest center of rows (m, d)."""
        if self.zoom_ is None:
            points, _ = Points.quantize(rows, *self._fitted_bounds)
            refuse_null(points.n_null)
            return labels(points, self._centers)[0]

        # Centers in a small part of the public domain are finer than its grid.
        return pairwise_distances_argmin(*self._scale(rows))

    def _scale(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows (m, d), clipped, and centers (k, d), in half-widths about the middle."""
        refuse_null(count_null(rows))
        # Half-widths differ between features, and the fit measured distances in them.
        middle, half_width = middle_and_half_width(*self._fitted_bounds)
        clipped = np.clip(rows, *self._fitted_bounds)
        centers = (self.cluster_centers_ - middle) / half_width
        return (clipped - middle) / half_width, centers


def _read_labeled(file: GridFile) -> RowBlocks:
    """Read a grid file in the units of the data; refuse one that leaves rows out."""
    if file.header.n_null:
        raise ValueError(
            f"{file.path} leaves out {file.header.n_null} null records, so labels "
            "would not be those of its rows: predict on the rows of the source file "
            "without NaN or infinite values"
        )
    return file.to_data_units()
