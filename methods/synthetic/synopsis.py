"""k-means on a private synopsis that a public rule chooses: this project's method.

No single private method is good everywhere: counts of nested grids are best in few
columns, hashing and averages in many. Which case it is, and what share of the budget a
smaller domain is worth, follows from the numbers of records, columns and centers and
from the budget, which are public, so the choice costs nothing. See docs/synopsis.md.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import AUTO, OneOf, Real
from pkm.methods.hashing.kaplan_stemmer import KaplanStemmer, LloydFinish
from pkm.methods.schedule import Schedule
from pkm.methods.trees.nonnegative_quadtree import nonnegative_leaves, trimmed_means
from pkm.methods.trees.quadtree import BALANCED, QuadtreeKMeans, TreeKind, TreeSchedule
from pkm.methods.zoom import ZoomPlan, insufficient_budget
from pkm.privacy import Curator, PrivacyClaim, gaussian_mu

# These constants were chosen on generated sets and five real ones: celltype, letters,
# shuttle, s1 and yeast.

# A quadtree up to three features, and in four where n mu / k, the ratio of signal to
# noise of a cluster's count, is below HASHING_RECORDS. Hashing elsewhere.
GRID_FEATURES = 3
MORE_GRID_FEATURES = 4
HASHING_RECORDS = 50.0
LLOYD_STEPS = 6  # after hashing
# Largest radius of a Lloyd step when the radius is released, in radii of the ball. A
# smaller one would bias the means of wide or skewed clusters.
LARGEST_RADIUS = 0.5
# Shares of the budget for a zoom: the default, the largest before a quadtree, and the
# largest before hashing, which gains more from a smaller domain.
ZOOM_SHARE = 0.1
LARGEST_SHARE_OF_GRIDS = 0.2
LARGEST_SHARE_OF_HASHING = 0.35
ZOOM_STEP = 0.05
# The public guard of a zoom before hashing, less strict than that of other methods:
# errors of a mean, in radii, and of a count, by n.
MAX_MEAN_ERROR = 0.2
MAX_COUNT_ERROR = 1 / 12
# Counts are made nonnegative with at least this many records times epsilon for each
# center, in up to two columns or in more; with fewer, one grid is better than a tree.
TREE_RECORDS_IN_FEW_COLUMNS = 40.0
TREE_RECORDS_IN_MORE_COLUMNS = 20.0
FEW_COLUMNS = 2
# A tree is deep from n epsilon / k = DEEP_RECORDS on. In one column it is finer first,
# and deep from MANY_RECORDS on. From there on counts are not made nonnegative. A deep
# tree finds small clusters by itself, which a zoom before it must not leave out: the
# error of the zoom's counts is at most MAX_COUNT_ERROR_OF_TREE of n / k.
DEEP_RECORDS = 100.0
FINER_RECORDS_IN_ONE_COLUMN = 150.0
MANY_RECORDS = 300.0
MAX_COUNT_ERROR_OF_TREE = 1 / 25

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
        ``quadtree`` in up to three columns, and in four with few records of a center,
        see :class:`pkm.methods.QuadtreeKMeans`; otherwise ``hashing``, see
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
    if n_features <= GRID_FEATURES:
        return "quadtree"
    records = n_points * gaussian_mu(epsilon, delta) / n_clusters
    if n_features <= MORE_GRID_FEATURES and records < HASHING_RECORDS:
        return "quadtree"
    return "hashing"


#: Half of mu squared is for Lloyd steps, the last of which are averaged. The noise of
#: steps is independent: the variance of an average over half of them is twice that of a
#: single step that costs as much as all of them, and its assignments are better. Counts
#: of less than twice their noise are not divided by.
FINISH = LloydFinish(
    share=0.5, n_averaged=3, min_count=2.0, largest_radius=LARGEST_RADIUS
)

#: One level or two beyond the balanced one, on which less is spent. Where records fill
#: a small part of the domain, or lie in clusters that are small and far apart, few
#: cells hold all of them, and their counts stand out of the noise of finer levels, too.
FINER = TreeKind(growth=1.3, peak=0.0, decay=0.5, finest=1.25, settle=trimmed_means)
#: Two levels or three, for more records of each center.
DEEP = TreeKind(growth=1.4, peak=-1.0, decay=0.7, finest=2.5, settle=trimmed_means)
#: The same with counts that are not negative, for fewer records: always a tree, never
#: one grid.
NONNEGATIVE = replace(FINER, min_records=0.0, read_leaves=nonnegative_leaves)
DEEP_NONNEGATIVE = replace(DEEP, min_records=0.0, read_leaves=nonnegative_leaves)


def _is_too_noisy(plan: ZoomPlan) -> bool:
    """Whether a zoom would find too little even for hashing."""
    return (
        plan.mean_error > MAX_MEAN_ERROR
        or plan.count_stddev > MAX_COUNT_ERROR * plan.n_points
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
        Of the public ball about the midpoint of the domain that points are moved into,
        in half-widths. ``auto`` is sqrt(d), the whole domain, or that of the ball that
        a zoom finds.
    zoom : float, optional, default=0.1
        Share of the budget that buys a smaller domain first; see
        :class:`pkm.methods.PrivateKMeans`. Where it is too little for that, the share
        that is enough, up to 0.35 (0.2 before a quadtree).
    tree : {"deep", "balanced"}, default="deep"
        Quadtrees with at least 40 records times epsilon for each center (20 in more
        than two columns): with levels beyond the balanced one, more of them from 100 on
        (300 in one column), and a zoom only where its counts show a part of a cluster;
        or up to that level after a zoom. ``deep`` is for clusters that are small and
        far apart and for bounds that are wide.
    bounds, clip, random_state, secure, require_zoom
        As for :class:`pkm.methods.PrivateKMeans`.

    Notes
    -----
    The rule is :func:`choose_synopsis`; :meth:`choose` says what it chooses. A run is
    private because each of its parts is, and because the choice follows from public
    quantities. After hashing come six Lloyd steps, and centers are the average of those
    after the last three. Their radius is released where Kaplan-Stemmer releases it:
    with at least 200 records of a center, in standard deviations of the noise that a
    count would have if it were all that is released.

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
        "tree": OneOf("deep", "balanced"),
    }
    noise_key_defaults = {"tree": "deep"}
    batched = False  # its parts are not
    supports_chunks = True
    supports_ball = True

    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    radius: float | Literal["auto"] = "auto"
    zoom: float | None = ZOOM_SHARE
    tree: str = "deep"

    def choose(
        self,
        n_points: int,
        n_features: int,
    ) -> Synopsis:
        """The synopsis of points of that shape; see :func:`choose_synopsis`.

        It decides about the zoom. After one the synopsis is chosen again, for the
        budget that is left: on the border between the two kinds that may be the other
        one.
        """
        delta = self.resolved_delta(n_points)
        return choose_synopsis(
            n_points, n_features, self.n_clusters, self.epsilon, delta
        )

    def zoom_plan(
        self,
        n_points: int,
        n_features: int,
    ) -> ZoomPlan | None:
        """The releases that find a domain; see :meth:`PrivateKMeans.zoom_plan`.

        Where the share is too little, the smallest one that is enough.
        """
        if not self.zoom:
            return None
        is_gridded = self.choose(n_points, n_features) == "quadtree"
        most = LARGEST_SHARE_OF_GRIDS if is_gridded else LARGEST_SHARE_OF_HASHING
        largest = max(self.zoom, most)
        steps = np.arange(self.zoom, largest, ZOOM_STEP)
        shares = [*steps.round(4).tolist(), largest]
        for share in shares:
            plan = self.plan_share(share, n_features, n_points, self.epsilon)
            if plan.is_affordable or not (is_gridded or _is_too_noisy(plan)):
                is_needed = self.require_zoom or not is_gridded
                return plan if is_needed or self._keeps_clusters(plan) else None
        if self.require_zoom:
            plan_for = partial(self.plan_share, largest, n_features)
            raise ValueError(insufficient_budget(plan_for, n_points, self.epsilon))
        return None

    def choose_tree(
        self,
        n_points: int,
        n_features: int,
    ) -> TreeKind:
        """The kind of quadtree for points of that shape, from public facts alone."""
        records = self.epsilon * n_points / self.n_clusters
        is_few = n_features <= FEW_COLUMNS
        fewest_of_tree = (
            TREE_RECORDS_IN_FEW_COLUMNS if is_few else TREE_RECORDS_IN_MORE_COLUMNS
        )
        if self.tree == "balanced" or records < fewest_of_tree:
            return BALANCED
        if records >= MANY_RECORDS:
            return DEEP
        if n_features == 1:
            return FINER if records >= FINER_RECORDS_IN_ONE_COLUMN else NONNEGATIVE
        return DEEP_NONNEGATIVE if records >= DEEP_RECORDS else NONNEGATIVE

    def _keeps_clusters(self, plan: ZoomPlan) -> bool:
        """Whether a zoom leaves no cluster out of a finer tree; others need it."""
        if self.choose_tree(plan.n_points, plan.n_features) is BALANCED:
            return True
        return (
            plan.count_stddev
            <= MAX_COUNT_ERROR_OF_TREE * plan.n_points / self.n_clusters
        )

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`."""
        if self.choose(n_points, n_features) == "quadtree":
            return self._plan_tree(n_points, n_features)
        return self._hashing().schedule(n_points, n_features, finish=FINISH)

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run one replicate; see :meth:`PrivateKMeans.cluster`."""
        n = curator.n_points
        d = curator.n_features
        if self.choose(n, d) == "quadtree":
            return self._quadtree().follow(curator, self._plan_tree(n, d))

        # Points are taken to fill a ball, also one that is given as a parameter.
        hashing = self._hashing()
        in_ball = hashing.resolved_radius(curator) < math.sqrt(d)
        schedule = hashing.schedule(n, d, in_ball=in_ball, finish=FINISH)
        return hashing.follow(curator, schedule)

    def _plan_tree(
        self,
        n_points: int,
        n_features: int,
    ) -> TreeSchedule:
        kind = self.choose_tree(n_points, n_features)
        return self._quadtree().schedule(n_points, n_features, kind)

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
