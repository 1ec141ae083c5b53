"""k-means on a private synopsis that a public rule chooses: this project's method.

Counts of nested grids are best with few features, hashing and averages with many. The
choice, and the share of the budget for a zoom, follow from n, d, k and the budget
alone. These are public, so that the choice costs nothing. See docs/synopsis.md.
"""

import math
from typing import Literal

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import AUTO, Real
from pkm.methods.hashing.kaplan_stemmer import KaplanStemmer, Refinement
from pkm.methods.schedule import Schedule
from pkm.methods.trees.quadtree import QuadtreeKMeans
from pkm.privacy import Curator, PrivacyClaim, gaussian_mu

# These constants were chosen on generated sets and five real ones: celltype, letters,
# shuttle, s1 and yeast.

# A quadtree up to three features, and in four where n mu / k is below HASHING_SNR;
# hashing elsewhere. n mu / k is the signal-to-noise ratio of a cluster's mean count:
# over the standard deviation of Gaussian noise at the whole budget.
QUADTREE_FEATURES = 3
MAX_QUADTREE_FEATURES = 4
HASHING_SNR = 50.0
# Lloyd steps after hashing, and their share of mu squared. The centers are averaged
# over the last of them. Their noise is independent: over half of the steps the average
# has twice the variance of one step at the cost of all, and better assignments.
LLOYD_STEPS = 6
LLOYD_SHARE = 0.5
N_AVERAGED = 3
# Smallest divisor of a sum, in standard deviations of the noise of a count.
MIN_COUNT = 2.0
# Upper limit of a released radius of Lloyd steps, in radii of the ball. A smaller
# limit would bias the means of wide or skewed clusters.
LARGEST_RADIUS = 0.5
# Least and largest share of the budget for a zoom.
ZOOM_SHARE = 0.1
MAX_ZOOM_SHARE = 0.5

Synopsis = Literal["quadtree", "hashing"]


def choose_synopsis(
    n_points: int,
    n_features: int,
    n_clusters: int,
    epsilon: float,
    delta: float,
) -> Synopsis:
    """Choose the synopsis, from public quantities only.

    Parameters
    ----------
    n_points, n_features, n_clusters : int
    epsilon, delta : float

    Returns
    -------
    {"quadtree", "hashing"}
        ``quadtree``, of :class:`pkm.methods.QuadtreeKMeans`, with up to three features,
        and with four where n mu / k is below 50; otherwise ``hashing``, of
        :class:`pkm.methods.KaplanStemmer`.

    Examples
    --------
    >>> choose_synopsis(5000, 2, 15, 1.0, 1e-6)
    'quadtree'
    >>> choose_synopsis(150, 4, 3, 1.0, 1e-6)
    'quadtree'
    >>> choose_synopsis(20_000, 16, 26, 1.0, 1e-6)
    'hashing'
    """
    if n_features <= QUADTREE_FEATURES:
        return "quadtree"
    snr = n_points * gaussian_mu(epsilon, delta) / n_clusters
    if n_features <= MAX_QUADTREE_FEATURES and snr < HASHING_SNR:
        return "quadtree"
    return "hashing"


def refinement() -> Refinement:
    """Options of the Lloyd steps after hashing: the constants of this module."""
    return Refinement(
        share=LLOYD_SHARE,
        n_averaged=N_AVERAGED,
        min_count=MIN_COUNT,
        largest_radius=LARGEST_RADIUS,
    )


class SynopsisKMeans(PrivateKMeans):
    """k-means on the private synopsis that suits the shape of the data.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Total, zero-out adjacency.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6.
    radius : float or "auto", default="auto"
        Radius of the public ball about the midpoint of the domain that points are
        clipped to, in half-widths. ``auto`` is sqrt(d), the whole domain, or the radius
        of the ball that a zoom finds.
    zoom : float, optional, default=0.1
        Smallest share of the budget for a zoom; see :class:`pkm.methods.PrivateKMeans`.
        The share is raised to what suffices, up to 0.5.
    bounds, clip, random_state, secure, require_zoom
        As for :class:`pkm.methods.PrivateKMeans`.

    Notes
    -----
    The rule is :func:`choose_synopsis`; :meth:`choose` says what it chooses. A run is
    private because each release is, and because the choice follows from public values.
    After hashing there are six Lloyd steps, and the centers are averaged over the last
    three. The radius of the steps is released where n mu / k is at least 200, as in
    :class:`pkm.methods.KaplanStemmer`.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = SynopsisKMeans(2, epsilon=1.0, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "synopsis"
    color = "#00441b"
    marker = "X"
    claims = {"sound": PrivacyClaim("approximate")}
    constraints = {
        **PrivateKMeans.constraints,
        "radius": AUTO | Real(0),
    }
    batched = False  # its parts are not
    supports_chunks = True
    benefits_from_ball = True
    compresses_tails = True
    max_zoom = MAX_ZOOM_SHARE

    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    radius: float | Literal["auto"] = "auto"
    zoom: float | None = ZOOM_SHARE

    def choose(
        self,
        n_points: int,
        n_features: int,
    ) -> Synopsis:
        """The synopsis of points of that shape; see :func:`choose_synopsis`.

        The zoom follows from it. After a zoom the synopsis is chosen again, for the
        budget that is left, and may be the other one.
        """
        delta = self.resolved_delta(n_points)
        return choose_synopsis(
            n_points, n_features, self.n_clusters, self.epsilon, delta
        )

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`."""
        if self.choose(n_points, n_features) == "quadtree":
            return self._quadtree().schedule(n_points, n_features)
        return self._hashing().schedule(n_points, n_features, refinement=refinement())

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run one replicate; see :meth:`PrivateKMeans.cluster`."""
        n = curator.n_points
        d = curator.n_features
        if self.choose(n, d) == "quadtree":
            return self._quadtree().cluster(curator)

        # A ball is assumed to be filled by the points, even one given as a parameter.
        hashing = self._hashing()
        in_ball = hashing.resolved_radius(curator) < math.sqrt(d)
        schedule = hashing.schedule(n, d, in_ball=in_ball, refinement=refinement())
        return hashing.run(curator, schedule)

    def _quadtree(self) -> QuadtreeKMeans:
        return QuadtreeKMeans(self.n_clusters, epsilon=self.epsilon)

    def _hashing(self) -> KaplanStemmer:
        return KaplanStemmer(
            self.n_clusters,
            epsilon=self.epsilon,
            delta=self.delta,
            radius=self.radius,
            lloyd_steps=LLOYD_STEPS,
        )
