"""k-means and k-median under distance-based privacy (Epasto, Mirrokni, Narayanan, Zhong 2023).

Neighbors differ in one record, moved by at most rho. Every point is released with noise in
proportion to rho; crude centers are cells of shifted quadtrees; points far from all of them remain
as released, and the other points are summarized region by region, as a few weighted points. See
docs/distance-based.md for what the paper says and what it leaves open.
"""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from pkm.methods.constraints import NONE, Real
from pkm.methods.distance.parameters import DistDPParameters
from pkm.methods.distance.published import PublishedSchedule, published_coreset, published_schedule
from pkm.methods.distance.rho_bounded import (
    MAX_NOISED,
    RhoBoundedMethod,
    noise_multiplier,
    sufficient_schedule,
)
from pkm.methods.distance.sound import SoundSchedule, sound_coreset, sound_schedule
from pkm.methods.schedule import Schedule, plan_release
from pkm.privacy import SCALE, PrivacyClaim
from pkm.privacy.budget import Adjacency
from pkm.privacy.queries.moved_records import AllPoints, SortedGaussian
from pkm.privacy.rho_bounded import RhoBoundedCurator


@dataclass(eq=False, repr=False)
class DistDP(DistDPParameters):
    """Clustering under distance-based privacy.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Total, for neighbors that differ by the move of one point by at most rho.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6, the paper's.
    rho : float or "diagonal", default=0.05
        In half-widths of the domain; at most its diagonal, 2 sqrt(d), given as ``diagonal``: then
        any move is protected, as the replacement of a record. A matter of policy, never
        taken from data.
    p : {2, 1}, default=2
        k-means or k-median.
    variant : {"published", "sound"}, default="sound"
        ``published`` is Algorithms 1 and 2 with the constants of Appendix E, in three equal parts
        of the budget. ``sound`` groups true points by their released positions, so that a move
        changes one sum by rho and nothing else. Where the noise on points is too large for that, by
        a public rule (:class:`pkm.methods.distance.sound.SoundSchedule`), it releases soft counts
        of a grid, or cells of quadtrees, or a tree of hyperplanes on all points.
    calibration : {"classical", "analytic"}, default="classical"
        ``published``: noise on the points by the paper's formula, or by the exact one (a quarter
        less noise).
    regions : {"true", "noised"}, default="true"
        ``published``: a point belongs to the crude center nearest to its true position (Appendix
        E), with sizes that need a threshold, or to the one nearest to its noised position
        (Algorithm 1), with public sizes.
    ball : {"capped", "printed"} or float, default="capped"
        ``published``: radius of a region's ball. ``capped``: the far distance, at most sqrt(d).
        ``printed``: min(S, sqrt(d)) rho, to the letter. A number: half-widths.
    replacement : {"charged", "uncharged"}, default="charged"
        ``published``: the summaries' noise covers both records that a move changes, or one as the
        library that the paper plugs in (flaw F-17).
    least_region : float or "auto", default="auto"
        ``published`` with ``regions="noised"``: smaller regions keep their noised points. ``auto``
        is the paper's T with constant 1: (k ln(n)^2 ln(1/delta) + k sqrt(d ln(1/delta))) / epsilon.
    sizes : {"thresholded", "noisy"}, default="thresholded"
        ``published`` with ``regions="true"``: only sizes above a threshold are released, or those
        of all regions, whose centers are public, with noise for the whole delta of their part;
        regions of a size up to 0 are dropped.
    size_share : float, default=0.5
        ``published`` with ``regions="true"``: share of the sizes in the third part's epsilon and
        delta; the rest is for the summaries.
    fine_counts : {"joint", "split"}, default="joint"
        ``published``: all histograms of fine cells as one release, or each at an even share of its
        part's epsilon and delta.
    coreset_clusters : int or "auto", default="auto"
        ``published``: the number of clusters that the summaries' trees are given, from which the
        smallest size of their cells follows; ``auto`` is k.
    quadtrees : int, default=5
    coarse, finest : int, default=5 and 10
        Levels 0 .. coarse are counted on noised points, the rest, to the finest, on true ones
        (``published``) or on noised ones as well (``sound``). Level l has cells of side 8 / 2^l
        half-widths.
    cells : int or "auto", default="auto"
        Number of fullest cells of each level of each tree that become crude centers; ``auto`` is 4
        k.
    depth : int, default=20
        Maximum number of levels of a tree of hyperplanes.
    points_share : float, default=0.9
        ``sound``: share of mu^2 for the noised points; the rest goes to the sums.
    n_init : int, default=1
        Starts of the final clustering.
    bounds, clip, random_state, secure
        As for :class:`pkm.methods.PrivateKMeans`.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.25], [0.5, 0.5]], 5000, axis=0)
    >>> model = DistDP(n_clusters=2, rho=0.01, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "dist-DP"
    color = "#e69f00"
    marker = "o"

    def cluster(self, curator: RhoBoundedCurator) -> tuple[np.ndarray, int]:
        """Release weighted points and cluster them; see :meth:`PrivateKMeans.cluster`."""
        generator = curator.public_rng()
        schedule = self.schedule(curator.n_points, curator.n_features)
        if isinstance(schedule, PublishedSchedule):
            points, weights = published_coreset(self, curator, schedule, generator)
        else:
            points, weights = sound_coreset(self, curator, schedule, generator)
            np.clip(points, -SCALE, SCALE, out=points)
        return self._cluster_released(points, weights, generator), 1

    def schedule(self, n_points: int, n_features: int) -> PublishedSchedule | SoundSchedule:
        """All releases; see :meth:`PrivateKMeans.schedule`.

        Raises
        ------
        ValueError
            If noise hides all releases.
        """
        is_published = self.variant == "published"
        make_schedule = published_schedule if is_published else sound_schedule
        return sufficient_schedule(self, n_points, n_features, make_schedule)


@dataclass(eq=False, repr=False)
class NoisedPoints(RhoBoundedMethod):
    """Cluster noised points, which take the whole budget: the paper's baseline ("random points").

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon, delta, rho, p, n_init, secure
        As for :class:`DistDP`.
    calibration : {"classical", "analytic"}, default="classical"
        The paper's formula, or the exact one.
    project : float or None, default=2.0
        Coordinates of noised points are moved into [-project, project], in half-widths, as Appendix
        E has it for those of the paper's main method; None does not move them. Centers are moved
        into the domain.
    bounds, clip, random_state
        As for :class:`pkm.methods.PrivateKMeans`.
    """

    label = "dist-DP random points"
    color = "#7a7a7a"
    marker = "X"
    claims = {"sound": PrivacyClaim("approximate", Adjacency.RHO_BOUNDED)}

    constraints = {
        **RhoBoundedMethod.constraints,
        "project": NONE | Real(0, unit="half-widths"),
    }

    _: KW_ONLY
    project: float | None = MAX_NOISED / SCALE

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters; see :meth:`PrivateKMeans.check_parameters`."""
        super().check_parameters(n_points)
        noise_multiplier(self.calibration, self.epsilon, self.resolved_delta(n_points or 1))

    def schedule(self, n_points: int, n_features: int) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`."""
        delta = self.resolved_delta(n_points)
        multiplier = noise_multiplier(self.calibration, self.epsilon, delta)
        return Schedule(plan_release(AllPoints, SortedGaussian, mu=1 / multiplier))

    def cluster(self, curator: RhoBoundedCurator) -> tuple[np.ndarray, int]:
        """Noise, project, cluster; see :meth:`PrivateKMeans.cluster`."""
        # Release all points with noise.
        (release,) = self.schedule(curator.n_points, curator.n_features).releases
        noise = SortedGaussian(curator.max_shift * SCALE / release.mu)
        noised = curator.release(AllPoints(), points=noise)["points"][0].astype(np.float64)
        if self.project is not None:
            noised = np.clip(noised, -self.project * SCALE, self.project * SCALE)

        # Cluster them, and move the centers into the domain.
        generator = curator.public_rng()
        centers = self._cluster_released(noised, np.ones(curator.n_points), generator)
        return np.clip(centers, -SCALE, SCALE), 1
