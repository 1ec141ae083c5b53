"""HST: k-means on a private tree of randomly cut boxes (Cohen-Addad et al. 2022).

Boxes are cut in two along one feature after the other, at random positions. Boxes with
large noisy counts form a hierarchically separated tree: a tree metric whose distances
are the diameters of boxes. A dynamic program finds the best k leaves of the tree, and a
noisy Lloyd step moves their midpoints.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtri

from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import Integer
from pkm.methods.lloyd.lloyd import FastLloyd
from pkm.methods.schedule import Schedule, plan_release
from pkm.methods.trees.splitting import count_children
from pkm.privacy import (
    SCALE,
    BoxGrid,
    CellCounts,
    Curator,
    Gaussian,
    PartitionTree,
    PrivacyClaim,
    snap_centers,
)

MAX_CUTS = 65_535  # positions of all features together: interval numbers have 16 bits
CUT_RANGE = (1 / 3, 2 / 3)  # of the width of a box
# Half of mu squared is for the tree, half for the first of two Lloyd rounds.
LLOYD_ROUNDS = 2
PENALTY = 2.0  # of a box without a center: its records are assigned outside of it
SMALLEST_CLUSTER = 50  # a box of fewer than n / (50 k) records is dropped


@dataclass(frozen=True)
class Box:
    """A released box of the tree.

    Attributes
    ----------
    midpoint : ndarray of shape (d,), int64
        In grid steps.
    diameter : float
        In half-widths.
    count : float
        Noisy number of records.
    children : list of int
        Indices of the boxes that it was cut into and that are kept; none for a leaf.
    """

    midpoint: np.ndarray
    diameter: float
    count: float
    children: list[int]


def random_cuts(
    generator: np.random.Generator,
    layers: int,
    n_features: int,
) -> list[np.ndarray]:
    """Draw the positions at which boxes are cut, per layer.

    Parameters
    ----------
    generator : numpy.random.Generator
        Public randomness.
    layers, n_features : int

    Returns
    -------
    list of ndarray of shape (d, 2**layer), int64
        In grid steps. In layer l, from 0, entry i of a feature cuts interval i of the
        2**l intervals of the layers before. All boxes of a layer are cut at the same
        fraction of their width in a feature.

    Examples
    --------
    >>> cuts = random_cuts(np.random.default_rng(0), 2, 1)
    >>> [layer.shape for layer in cuts]
    [(1, 1), (1, 2)]
    >>> bool(cuts[1][0, 0] < cuts[0][0, 0] < cuts[1][0, 1])
    True
    """
    # Ends of the intervals of every feature so far; a layer cuts each of them once.
    domain = np.array([-SCALE, SCALE], np.int64)
    ends = np.tile(domain, (n_features, 1))
    layers_of_cuts = []
    for _ in range(layers):
        fractions = generator.uniform(*CUT_RANGE, (n_features, 1))
        widths = np.diff(ends, axis=1)
        positions = ends[:, :-1] + fractions * widths
        cuts = np.floor(positions).astype(np.int64)
        layers_of_cuts.append(cuts)
        ends = np.concatenate([ends, cuts], axis=1)
        ends.sort(axis=1)
    return layers_of_cuts


def best_leaves(
    nodes: list[Box],
    k: int,
) -> list[int]:
    """Choose at most k leaves of least cost in the tree, by dynamic programming.

    Parameters
    ----------
    nodes : list of Box
        The first is the root; children come after their parents.
    k : int

    Returns
    -------
    list of int
        Indices of the chosen leaves, at least one.

    Notes
    -----
    A leaf with a center costs its count times its squared diameter, a box without a
    center twice as much. Another box costs the sum of the boxes that it was cut into,
    and twice its squared diameter for each record of those that were dropped.

    Examples
    --------
    >>> box = np.zeros(1, np.int64)
    >>> leaves = [Box(box, 1.0, 8.0, []), Box(box, 3.0, 1.0, [])]
    >>> tree = [Box(box, 4.0, 9.0, [1, 2]), *leaves]
    >>> best_leaves(tree, 1), best_leaves(tree, 2)
    ([2], [1, 2])
    """
    # Dynamic program from the leaves up: the least cost with at most 0 .. k centers,
    # and the number of centers in the first child.
    costs = np.empty((len(nodes), k + 1))
    n_first: dict[int, np.ndarray] = {}
    for i in range(len(nodes) - 1, -1, -1):
        node = nodes[i]
        leaf_cost = node.count * node.diameter**2
        costs[i, 0] = PENALTY * leaf_cost
        if not node.children:
            costs[i, 1:] = leaf_cost
            continue
        # Records of children that were dropped are assigned outside of the box.
        kept = sum(nodes[child].count for child in node.children)
        n_dropped = max(node.count - kept, 0.0)
        dropped_cost = PENALTY * n_dropped * node.diameter**2
        first, *others = (costs[child] for child in node.children)
        if not others:
            costs[i, 1:] = first[1:] + dropped_cost
            continue
        # Divide the centers between both children at the least cost.
        (second,) = others
        n_first[i] = np.zeros(k + 1, np.int64)
        for n_centers in range(1, k + 1):
            sums = first[: n_centers + 1] + second[n_centers::-1]
            n_first[i][n_centers] = sums.argmin()
            costs[i, n_centers] = sums.min() + dropped_cost

    # Follow the choices from the root down.
    leaves = []
    stack = [(0, k)]
    while stack:
        i, n_centers = stack.pop()
        if n_centers == 0:
            continue
        children = nodes[i].children
        if not children:
            leaves.append(i)
            continue
        in_first = n_centers
        if i in n_first:
            in_first = int(n_first[i][n_centers])
        divided = (in_first, n_centers - in_first)
        stack += zip(children, divided, strict=False)
    return sorted(leaves)


class HST(PrivateKMeans):
    """Take the best k boxes of a private tree of random boxes, and make a Lloyd step.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Total, zero-out adjacency; half of mu squared is for the tree, half for a step
        of :class:`pkm.methods.FastLloyd`.
    delta : float or "auto", default="auto"
        ``auto`` is 1e-6.
    layers : int, default=10
        How often every feature is cut, from 1 to 15.
    bounds, clip, random_state, zoom, require_zoom, report, secure, adjacency, missing
        As for :class:`pkm.methods.PrivateKMeans`.

    See Also
    --------
    QuadtreeKMeans : Cubes of public grids in place of random boxes; pure.
    DPM : Splits through sparse regions; their number follows from the data.
    FastLloyd : The whole budget for Lloyd steps.

    Notes
    -----
    A record lies in ``layers * d`` nested boxes, all of which are counted, so that
    noise grows with the root of their number. Boxes above a threshold are kept, and
    both children of a kept box are counted in the next level, whether they hold records
    or not. The published threshold hides which boxes hold records, at the price of a
    part of delta. Here it only selects boxes, and costs nothing. The count of the root
    is the public n. More than 64 features with ten layers are refused; the authors
    project them to fewer dimensions first.

    References
    ----------
    Cohen-Addad, V., Epasto, A., Lattanzi, S., Mirrokni, V., Munoz Medina, A., Saulpic,
    D., Schwiegelshohn, C. and Vassilvitskii, S. (2022). Scalable differentially private
    clustering via hierarchically separated trees. KDD. arXiv:2206.08646.

    Examples
    --------
    >>> X = np.repeat([[-0.5, 0.2], [0.5, 0.5]], 5000, axis=0)
    >>> model = HST(n_clusters=2, epsilon=4.0, bounds=(-1, 1), random_state=1).fit(X)
    >>> sorted(model.cluster_centers_.round(1).tolist())
    [[-0.5, 0.2], [0.5, 0.5]]
    """

    label = "HST"
    color = "#01665e"
    marker = "v"
    claims = {"sound": PrivacyClaim("approximate")}
    constraints = {
        "layers": Integer(1, int(math.log2(MAX_CUTS))),
    }
    batched = False  # each replicate has a tree of its own

    epsilon: float = 1.0
    delta: float | Literal["auto"] = "auto"
    layers: int = 10

    def check_features(self, n_features: int) -> None:
        """Refuse more cuts than numbers of 16 bits."""
        most = MAX_CUTS // (2**self.layers - 1)
        if n_features > most:
            raise ValueError(
                f"d={n_features} features are too many for layers={self.layers}: at "
                f"most {most} are served; lower layers, or take a method for more "
                "features"
            )

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """All releases; see :meth:`PrivateKMeans.schedule`."""
        n_levels = self.layers * n_features
        step = self._lloyd().schedule(n_points, n_features).releases[0]
        level_mu = step.mu / math.sqrt(n_levels)
        level = plan_release(CellCounts, Gaussian, mu=level_mu)
        return Schedule(*[level] * n_levels, step)

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Grow the tree, choose leaves, step; see :meth:`PrivateKMeans.cluster`."""
        k = self.n_clusters
        n = curator.n_points
        cuts = random_cuts(curator.public_rng(), self.layers, curator.n_features)
        levels = self.schedule(n, curator.n_features).find(CellCounts)
        delta = self.resolved_delta(n)
        nodes = release_tree(curator, cuts, k, levels[0].mu, delta)

        # The best k leaves, and a Lloyd step from their midpoints.
        leaves = best_leaves(nodes, k)
        midpoints = np.stack([nodes[i].midpoint for i in leaves])
        centers = snap_centers(midpoints)
        centers, n_steps = self._lloyd().iterate(curator, centers[None], n_rounds=1)
        return centers, len(levels) + n_steps

    def _lloyd(self) -> FastLloyd:
        """FastLloyd with two rounds: the first is the step, at half of mu squared."""
        return FastLloyd(
            self.n_clusters,
            epsilon=self.epsilon,
            delta=self.delta,
            n_iterations=LLOYD_ROUNDS,
            radius_schedule="constant",
        )


def release_tree(
    curator: Curator,
    cuts: list[np.ndarray],
    k: int,
    mu: float,
    delta: float,
) -> list[Box]:
    """Count the boxes of all levels, from the domain down; keep those of large counts.

    Parameters
    ----------
    curator : Curator
        Curator of one replicate.
    cuts : list of ndarray
        See :func:`random_cuts`.
    k : int
    mu : float
        Cost of one level.
    delta : float
        Probability that an empty box around a given position is kept on any level.

    Returns
    -------
    list of Box
        The root first, parents before their children.
    """
    # Threshold of a noisy count, in records.
    d = curator.n_features
    n_levels = len(cuts) * d
    deviation = 1 / mu
    threshold = 1 + deviation * float(-ndtri(delta / n_levels))
    threshold = max(threshold, curator.n_points / (SMALLEST_CLUSTER * k))
    noise = Gaussian(SCALE * deviation)

    # One grid for all features holds the cuts of each.
    positions = [layer.ravel() for layer in cuts]
    boundaries = np.unique(np.concatenate(positions))
    grid = BoxGrid(tuple(boundaries.tolist()), inside_cell=False)
    tree = curator.partition(grid)

    # Kept boxes of a level: the box, its cell, and its interval of each feature among
    # those of the layer.
    root = _make_box(tree, 0, float(curator.n_points))
    nodes = [root]
    level = [(root, 0, np.zeros(d, np.int64))]
    for layer, feature in itertools.product(cuts, range(d)):
        # Cut every kept box at the position of its interval.
        pairs = []
        for _, cell, intervals in level:
            position = layer[feature, intervals[feature]]
            boundary = int(np.searchsorted(boundaries, position)) + 1
            pairs.append(tree.split(cell, feature, boundary))

        # Count both children of all boxes; keep those above the threshold.
        counted = count_children(tree, pairs, noise)
        parents = level
        level = []
        for (parent, _, intervals), children in zip(parents, counted, strict=True):
            for side, (cell, count) in enumerate(children):
                if count < threshold:
                    continue
                node = _make_box(tree, cell, count)
                parent.children.append(len(nodes))
                nodes.append(node)
                child_intervals = intervals.copy()
                child_intervals[feature] = 2 * intervals[feature] + side
                level.append((node, cell, child_intervals))
    return nodes


def _make_box(
    tree: PartitionTree,
    cell: int,
    count: float,
) -> Box:
    """Return the box of a cell, without children."""
    lower, upper = tree.box(cell)
    diameter = float(np.linalg.norm((upper - lower) / SCALE))
    return Box(tree.midpoint(cell), diameter, float(count), [])
