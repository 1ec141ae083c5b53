"""Methods with public points as a parameter, and a baseline that uses them alone."""

import numpy as np

from pkm.compute import middle_and_half_width
from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import Integer
from pkm.methods.inputs import count_null, refuse_null, resolve_bounds
from pkm.methods.weighted_kmeans import weighted_kmeans
from pkm.privacy import NO_CLAIM, SCALE, Curator, snap_centers

UNIFORM_POINTS = 20  # for each cluster, if no public points are given


class PublicDataMethod(PrivateKMeans):
    """Base class of methods with public points as a parameter.

    Parameters
    ----------
    n_clusters : int, default=8
    public_data : ndarray of shape (m, d), optional
        Points that need no protection, in the units of the bounds, at least as many as
        clusters. Points outside of the bounds are clipped, or refused with
        ``clip=False``. Default: 20 uniform points of the domain for each cluster, which
        ignore the data.
    bounds, clip, random_state, zoom, require_zoom
        As for :class:`pkm.methods.PrivateKMeans`.
    """

    constraints = {"public_data": None}

    public_data: np.ndarray | None = None

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters, among them bad public data, or too few."""
        super().check_parameters(n_points)
        public_data = self.public_data
        if public_data is None:
            return
        is_array = isinstance(public_data, np.ndarray) and public_data.ndim == 2
        if not is_array or public_data.dtype.kind not in "iuf":
            raise ValueError(
                f"public_data={public_data!r:.60} must be None or an array of numbers "
                "of shape (m, d): give np.asarray(rows, float)"
            )
        if len(public_data) < self.n_clusters:
            raise ValueError(
                f"public_data has {len(public_data)} points, which must be at least "
                f"n_clusters={self.n_clusters}; give more, or leave public_data out"
            )
        refuse_null(count_null(public_data), "public_data")

    def check_features(self, n_features: int) -> None:
        """Refuse public data of another number of features, or out of bounds."""
        public_data = self.public_data
        if public_data is None:
            return
        width = public_data.shape[1]
        if width != n_features:
            raise ValueError(
                f"public_data of {width} features must have the {n_features} of the "
                "points: give the same columns in the same order"
            )
        # Without bounds the domain is not known yet.
        if self.clip or self.bounds is None:
            return
        lower, upper = resolve_bounds(self, n_features) or (-np.inf, np.inf)
        is_outside = (public_data < lower) | (public_data > upper)
        n_outside = int(is_outside.any(axis=1).sum())
        if n_outside:
            raise ValueError(
                f"public_data has {n_outside} points outside bounds={self.bounds}; "
                "widen bounds or set clip=True"
            )

    def public_positions(
        self, curator: Curator, generator: np.random.Generator
    ) -> np.ndarray:
        """Public points (m, d) in grid steps of the curator's domain, float64.

        Parameters
        ----------
        curator : Curator
        generator : numpy.random.Generator
            Public randomness, for uniform points.

        Returns
        -------
        ndarray
        """
        if self.public_data is None:
            shape = (UNIFORM_POINTS * self.n_clusters, curator.n_features)
            return generator.uniform(-SCALE, SCALE, shape)
        # Clip as private points are, and convert to grid steps.
        middle, half_width = middle_and_half_width(*curator.domain)
        clipped = np.clip(self.public_data, *curator.domain)
        return (clipped - middle) / half_width * SCALE


class PublicKMeans(PublicDataMethod):
    """k-means++ on the public points alone, without a query to the private ones.

    Where a method with a budget is worse, that method is of no use.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    public_data : ndarray of shape (m, d), optional
        As for :class:`FedDPKMeans`.
    n_init : int, default=10
        Number of starts, of which the best is kept.
    bounds, clip, random_state, missing
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, secure, adjacency
        For private methods: leave them out.

    See Also
    --------
    FedDPKMeans : Private records choose among the public points.
    PackingCenters : Needs no points at all.

    Examples
    --------
    >>> public = np.array([[0.0], [0.2], [0.9]])
    >>> model = PublicKMeans(2, public_data=public, bounds=(-1, 1), random_state=0)
    >>> model.fit([[5.0], [6.0]]).cluster_centers_.round(3).ravel().tolist()
    [0.1, 0.9]
    """

    label = "k-means on public data alone"
    color = "#8c8c8c"
    marker = "d"
    claims = {"sound": NO_CLAIM}
    batched = False
    supports_chunks = True

    constraints = {"n_init": Integer(1)}

    n_init: int = 10

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Cluster the public points; see :meth:`pkm.methods.PrivateKMeans.cluster`."""
        # No release: the centers follow from public values.
        generator = curator.public_rng()
        public = self.public_positions(curator, generator)
        weights = np.ones(len(public))
        k = self.n_clusters
        centers = weighted_kmeans(public, weights, k, self.n_init, generator)
        return snap_centers(centers)[None], 1
