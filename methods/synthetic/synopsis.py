"""k-means on a private synopsis that suits the data's shape: this project's method.

A synopsis is a private summary of the points: weighted cells or candidates. Counts of
nested grids are best with few features, hashing and averages with many. The choice
follows from d alone, and the share of the budget for a zoom from n, d and the budget.
These are public, so that the choice costs nothing. See docs/synopsis.md.
"""

import math
from dataclasses import field
from typing import Literal

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import AUTO, Integer, Real
from pkm.methods.hashing.kaplan_stemmer import KaplanStemmer, Refinement
from pkm.methods.schedule import Schedule
from pkm.methods.synthetic.released_synopsis import (
    ReleasedSynopsis,
    Synopsis,
    cost_curve,
    find_knee,
    spread_clusters,
)
from pkm.methods.trees.leaves import Leaves
from pkm.methods.trees.quadtree import QuadtreeKMeans
from pkm.privacy import SCALE, Curator, PrivacyClaim

# These constants were chosen on generated sets and five real ones: celltype, letters,
# shuttle, s1 and yeast.

QUADTREE_FEATURES = 3  # a quadtree up to here, hashing beyond
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
# From this n mu / k on a second round hashes the farthest points. Below, its part of
# the budget is better spent on the first one.
SECOND_ROUND_SNR = 200.0
# Least and largest share of the budget for a zoom.
ZOOM_SHARE = 0.1
MAX_ZOOM_SHARE = 0.5
MAX_CLUSTERS = 20


def refinement() -> Refinement:
    """Return the options of the Lloyd steps after hashing, constants of this module."""
    return Refinement(
        share=LLOYD_SHARE,
        n_averaged=N_AVERAGED,
        min_count=MIN_COUNT,
        largest_radius=LARGEST_RADIUS,
    )


class SynopsisKMeans(ReleasedSynopsis, PrivateKMeans):
    """k-means on the private synopsis that suits the shape of the data.

    Parameters
    ----------
    n_clusters : int or "auto", default=8
        ``auto`` is the knee of ``cost_curve_``, the inertia of 1, 2, ... clusters on
        the synopsis. The fit sets ``n_clusters_``; the choice costs no privacy.
    max_clusters : int, default=20
        For ``auto``: largest number on the curve, which releases are planned for; at
        least 3, because the knee is below it.
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
        Without a ``radius`` the share is raised to what suffices, up to 0.5.
    bounds, clip, random_state, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    Attributes
    ----------
    n_clusters_ : int
        Number of centers.
    synopsis_, cost_curve_
        As of :class:`pkm.methods.synthetic.released_synopsis.ReleasedSynopsis`.

    See Also
    --------
    QuadtreeKMeans : Grids alone, and pure.
    KaplanStemmer : Hashing alone, for any number of features.
    KaplanStemmerLocal : Needs no trusted curator.

    Notes
    -----
    Up to three features the synopsis is that of :class:`pkm.methods.QuadtreeKMeans`.
    With more it is that of :class:`pkm.methods.KaplanStemmer`, in one round where
    n mu / k is below 200. There are six Lloyd steps, and the centers are averaged over
    the last three. The radius of the steps is
    released where n mu / k is at least 200. A run is private because each release is,
    and because the choice follows from a public value.

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
        "n_clusters": AUTO | Integer(1),
        "max_clusters": Integer(3),
        "radius": AUTO | Real(0),
    }
    noise_context_defaults = {"max_clusters": MAX_CLUSTERS}
    batched = False  # neither method of the synopsis is
    supports_chunks = True
    benefits_from_ball = True
    compresses_tails = True

    n_clusters: int | Literal["auto"] = field(default=8, kw_only=False)
    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    radius: float | Literal["auto"] = "auto"
    zoom: float | None = ZOOM_SHARE
    max_clusters: int = MAX_CLUSTERS

    @property
    def planned_clusters(self) -> int:
        """Public number of clusters that releases are planned for."""
        return self.max_clusters if self.n_clusters == "auto" else self.n_clusters

    @property
    def max_zoom(self) -> float:
        """Largest share of the budget for a zoom; a given ball is narrow already."""
        return MAX_ZOOM_SHARE if self.radius == "auto" else 0.0

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`."""
        if n_features <= QUADTREE_FEATURES:
            return self._quadtree().schedule(n_points, n_features)
        hashing = self._hashing(n_points)
        return hashing.schedule(n_points, n_features, refinement=refinement())

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int, Synopsis]:
        """Run one replicate; see :meth:`PrivateKMeans.cluster`."""
        n = curator.n_points
        d = curator.n_features
        # The cost curve by which k is chosen becomes part of the synopsis.
        curves = []

        def find_k(leaves: Leaves) -> int:
            curves.append(cost_curve(leaves, self.max_clusters, n))
            return find_knee(curves[0])

        finder = find_k if self.n_clusters == "auto" else None
        if d <= QUADTREE_FEATURES:
            centers, n_iter, leaves = self._quadtree().cluster(curator, finder)
            return centers, n_iter, Synopsis(leaves, *curves)

        # A ball is assumed to be filled by the points, even one given as a parameter.
        hashing = self._hashing(n)
        in_ball = hashing.resolved_radius(curator) < math.sqrt(d)
        schedule = hashing.schedule(n, d, in_ball=in_ball, refinement=refinement())
        run = hashing.run(curator, schedule, finder)
        assert run.candidates is not None, "candidates are counted"
        linear = curator.scale.expand(run.centers / SCALE) * SCALE
        step = SCALE / curator.scale.linear_part
        clusters = spread_clusters(run.candidates, linear, run.mean_square * step**2)
        return run.centers[None], schedule.rounds, Synopsis(clusters, *curves)

    def _quadtree(self) -> QuadtreeKMeans:
        return QuadtreeKMeans(self.planned_clusters, epsilon=self.epsilon)

    def _hashing(self, n_points: int) -> KaplanStemmer:
        hashing = KaplanStemmer(
            self.planned_clusters,
            epsilon=self.epsilon,
            delta=self.delta,
            radius=self.radius,
            lloyd_steps=LLOYD_STEPS,
        )
        is_large = hashing.signal_to_noise(n_points) >= SECOND_ROUND_SNR
        hashing.rounds = 2 if is_large else 1
        return hashing
