"""The curator under rho-bounded adjacency: neighbors differ in one record, moved by at most rho.

The effect of a move is derived here query by query. A sum of the records changes by at most rho. A
count of the records in a cell changes as if one record were removed and another added, however
short the move, because it may cross the border of the cell. Where records are grouped by released
data, a move does not change the group of the record.

Records have no public order: they are released in the order of their noised values, and later
queries name them by their position in it. Noise is drawn independently for each record, so the
release is that of a mechanism on numbered records, without the numbers.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pkm.compute.hashing import clip_norms
from pkm.compute.quadtree import add_soft_counts, nearest_of_many, occupied_cells
from pkm.privacy.base import BaseCurator, PointsLike
from pkm.privacy.budget import Adjacency
from pkm.privacy.clipped_regions import TWO_RECORDS, ClippedRegions, group_sums
from pkm.privacy.grid import SCALE
from pkm.privacy.ledger import Ledger
from pkm.privacy.mechanisms import Gaussian
from pkm.privacy.noise import NoiseStreams
from pkm.privacy.stability_histogram import StabilityHistogram

MAX_NODES = 1 << 18  # of a grid of soft counts
MAX_FEATURES = 10  # of a grid: a point counts at 2^d nodes


class _Histogram(NamedTuple):
    """Exact counts of the occupied cells of one level of one shifted quadtree."""

    tree: int
    level: int
    cells: np.ndarray
    counts: np.ndarray


class RhoBoundedCurator(BaseCurator):
    """Curator of one replicate for neighbors that differ by the move of one record.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64, or Points, or a sequence of either
        Private points on the grid, whole or in shards; answers depend neither on their order nor on
        the shards.
    ledger : Ledger
        Its budget must be one under ``rho_bounded``; rho is in half-widths of the domain.
    streams : NoiseStreams
        Of one replicate.
    domain : array-like of shape (2, d), optional
        Public bounds, in the units of the data, that the grid represents. Default: -1 and 1.

    Attributes
    ----------
    n_points, n_features, n_replicates : int
        Public: neighbors have the same number of points.
    seeds : tuple of int
    domain : ndarray of shape (2, d), float64
    max_shift : float
        Largest move between grid points, in half-widths: a point that moves by rho before it is
        rounded to the grid moves by at most rho + sqrt(d) grid steps after, and nothing moves
        farther than the domain is wide.

    Raises
    ------
    ValueError
        If the ledger has another adjacency, rho exceeds the domain's diagonal 2 sqrt(d), a point
        lies off the domain, or there is more than one replicate.

    Examples
    --------
    >>> from pkm.privacy import Budget
    >>> ledger = Ledger(Budget(1.0, 1e-6, "rho_bounded", rho=0.25))
    >>> curator = RhoBoundedCurator(np.zeros((3, 2), np.int64), ledger, NoiseStreams([0]))
    >>> curator.noised_points(Gaussian(2.0 * SCALE)).shape, len(ledger.charges)
    ((3, 2), 1)
    """

    def __init__(
        self,
        points: PointsLike,
        ledger: Ledger | None,
        streams: NoiseStreams,
        domain: ArrayLike | None = None,
    ) -> None:
        adjacency = None if ledger is None else ledger.budget.adjacency
        if ledger is None or adjacency is not Adjacency.RHO_BOUNDED:
            raise ValueError(
                f"adjacency={adjacency} is not supported by this curator: it charges what "
                "rho_bounded costs"
            )
        if len(streams.seeds) != 1:
            raise ValueError(
                f"a curator serves one replicate at a time, not {len(streams.seeds)}: set "
                "batched = False"
            )
        super().__init__(points, ledger, streams, domain)

        rho = ledger.budget.rho
        assert rho is not None  # a budget under rho_bounded has it
        max_distance = diagonal(self.n_features)
        if rho > max_distance:
            raise ValueError(
                f"rho={rho} must be at most the diagonal {max_distance:.6g} of the domain, in "
                "half-widths: no point can move farther, that would be replace_one"
            )
        self.max_shift = min(rho + math.sqrt(self.n_features) / SCALE, max_distance)

        # A canonical order, so that seeded noise falls on the same point in whatever order the
        # points were given.
        rows = np.concatenate([shard.rows for shard in self._shards]).astype(np.int64)
        self._rows = rows[np.lexsort(rows.T[::-1])]
        self._released = False

    def noised_points(self, noise: Gaussian) -> np.ndarray:
        """Release every point with noise on each coordinate, once.

        Parameters
        ----------
        noise : Gaussian
            Scale in grid steps.

        Returns
        -------
        ndarray of shape (n, d), int64
            In grid steps and in lexicographic order, equal ones in random order. Later queries name
            records by their position in it.

        Raises
        ------
        BudgetExceeded
            If the release costs more than is left.
        ValueError
            If the points were released before.

        Notes
        -----
        A move changes one row by at most ``max_shift`` in L2: mu is ``max_shift`` over the scale.
        """
        if self._released:
            raise ValueError(
                "noised_points can be released once: its order is what later queries refer to"
            )
        mu = self.max_shift * SCALE / noise.scale
        key = self._charge("noised_points", noise.name, mu=mu, details=self._move_details(noise))
        noised = noise.draw(self._rows[None], self._streams, (*key, "noise"))[0]

        # Sort, equal values at random: their private order must not be released.
        ties = self._streams.uniform((*key, "ties"), (self.n_points,))[0]
        order = np.lexsort((ties, *noised.T[::-1]))
        self._rows = self._rows[order]
        self._released = True
        return noised[order]

    def total(self, noise: Gaussian) -> np.ndarray:
        """Noisy sum of all points, shape (d,), int64, in grid steps.

        A move changes it by at most ``max_shift``.
        """
        mu = self.max_shift * SCALE / noise.scale
        key = self._charge("total", noise.name, mu=mu, details=self._move_details(noise))
        exact = self._rows.sum(axis=0)
        return noise.draw(exact[None], self._streams, key)[0]

    def group_sums(self, groups: np.ndarray, n_groups: int, noise: Gaussian) -> np.ndarray:
        """Noisy sums of the true points of groups that released data define.

        Parameters
        ----------
        groups : ndarray of shape (n,), int
            Group of each released record, -1 for none: a function of released data. Group sizes are
            then public.
        n_groups : int
        noise : Gaussian
            Scale in grid steps.

        Returns
        -------
        ndarray of shape (n_groups, d), int64
            In grid steps.

        Notes
        -----
        A record keeps its group when it moves, so that one sum changes, by at most ``max_shift``:
        all groups together have that L2 sensitivity, whatever their extent.
        """
        groups = self._checked_groups(groups, n_groups)
        mu = self.max_shift * SCALE / noise.scale
        key = self._charge("group_sums", noise.name, mu=mu, details=self._move_details(noise))
        exact = group_sums(self._rows, groups, n_groups)
        return noise.draw(exact[None], self._streams, key)[0]

    def cell_counts(
        self, shifts: np.ndarray, levels: range, noise: StabilityHistogram
    ) -> list[tuple[int, int, np.ndarray, np.ndarray]]:
        """Noisy counts of the cells of public shifted quadtrees that pass the threshold.

        Parameters
        ----------
        shifts : ndarray of shape (r, d), int64
            Public; see :func:`pkm.compute.quadtree.occupied_cells`.
        levels : range
        noise : StabilityHistogram
            For all histograms together: its ``cells`` must be twice their number r * len(levels).

        Returns
        -------
        list of (tree, level, cells, counts)
            Positions (m, d), int64, in lexicographic order, and noisy counts (m,), float64, in
            records.

        Notes
        -----
        In each of H histograms a move takes one record out of a cell and puts it into another: at
        most 2 H counts change, by 1 each, hence L2 sensitivity sqrt(2 H). A cell that occurs for
        one neighbor only holds one record there.
        """
        shifts = np.asarray(shifts)
        max_changes = 2 * len(shifts) * len(levels)
        if noise.cells < max(max_changes, 1):
            raise ValueError(
                f"cells={noise.cells} of the noise must be at least {max_changes}: a move changes "
                "as many counts"
            )
        details = {
            "count_scale": noise.stddev,
            "count_sensitivity": math.sqrt(max_changes),
            "least": noise.threshold,
        }
        mu = math.sqrt(max_changes) / noise.stddev
        key = self._charge(
            "cell_counts", "gaussian_threshold", mu=mu, delta=noise.delta, details=details
        )

        # Count the occupied cells of all histograms, and release the large counts together.
        histograms = [
            _Histogram(tree, *level)
            for tree, shift in enumerate(shifts)
            for level in occupied_cells(self._rows, shift, levels)
        ]
        exact = np.concatenate([histogram.counts for histogram in histograms])
        selected, noisy = noise.release(exact, self._streams, key)

        # Separate the released cells of each histogram.
        answers = []
        start = 0
        for tree, level, cells, counts in histograms:
            stop = start + len(counts)
            part = slice(*np.searchsorted(selected, (start, stop)))
            answers.append((tree, level, cells[selected[part] - start], noisy[part]))
            start = stop
        return answers

    def soft_counts(self, intervals: int, noise: Gaussian) -> np.ndarray:
        """Noisy numbers of points at all nodes of a public grid; nearby nodes share a point.

        A point between nodes counts for each of the 2^d around it by how near it is, feature by
        feature: with weight 1 - a for the node below and a for the one above, at the fraction a of
        the way, multiplied over the features. Its weights add up to 1, and the weighted mean of the
        nodes is the point.

        Parameters
        ----------
        intervals : int
            Between the ends of the domain, per feature; at least 1.
        noise : Gaussian

        Returns
        -------
        ndarray of shape (intervals + 1, ..., intervals + 1), int64
            One axis per feature, in units of 2**-16 records. Node i of m intervals lies at -1 + 2 i
            / m.

        Notes
        -----
        Weights change gradually, so that a short move changes little: see :func:`soft_sensitivity`.
        """
        d = self.n_features
        shape = (intervals + 1,) * d
        if intervals < 1 or d > MAX_FEATURES or math.prod(shape) > MAX_NODES:
            raise ValueError(
                f"intervals={intervals} in {d} features must be at least 1, in at most "
                f"{MAX_FEATURES} features, and make at most {MAX_NODES} nodes"
            )
        sensitivity = soft_sensitivity(d, 2 / intervals, self.max_shift)
        details = {
            "count_scale": noise.scale / SCALE,
            "count_sensitivity": sensitivity,
            "intervals": intervals,
        }
        mu = sensitivity * SCALE / noise.scale
        key = self._charge("soft_counts", noise.name, mu=mu, details=details)
        counts = np.zeros(math.prod(shape), np.int64)
        add_soft_counts(self._rows, intervals, counts)
        return noise.draw(counts.reshape(1, *shape), self._streams, key)[0]

    def regions(
        self,
        centers: np.ndarray,
        radius: float,
        *,
        groups: np.ndarray | None = None,
        members: np.ndarray | None = None,
        charge_both: bool = True,
    ) -> ClippedRegions:
        """Assign records to regions around public centers, and clip them to balls.

        Parameters
        ----------
        centers : ndarray of shape (m, d), int64
            Released or public, in grid steps.
        radius : float
            Of the balls, in half-widths.
        groups : ndarray of shape (n,), int, optional
            Region of each released record, -1 for none. Default: the center nearest to the *true*
            point, so that a move may change the region.
        members : ndarray of shape (n,), bool, optional
            Released records that take part where regions follow from true points. Default: all.
        charge_both : bool, default=True
            Charge a move as two records. False charges one, as under add-remove adjacency; the
            charges carry the flaw.

        Returns
        -------
        ClippedRegions
        """
        centers = np.asarray(centers)
        if not np.issubdtype(centers.dtype, np.integer) or centers.ndim != 2 or not len(centers):
            raise ValueError(
                f"centers must be grid integers of shape (m, d), got {centers.dtype} of "
                f"{centers.shape}"
            )
        if not 0 < radius < math.inf:
            raise ValueError(f"radius={radius} must be positive and finite")

        # Assign records to regions, by released data or by the nearest center.
        rows = self._rows
        if groups is not None:
            groups = self._checked_groups(groups, len(centers))
            rows = rows[groups >= 0]
            region = groups[groups >= 0]
        else:
            if members is not None:
                rows = rows[self._checked_members(members)]
            region = nearest_of_many(rows, centers)[0] if len(rows) else np.empty(0, np.int64)

        clipped = clip_norms(rows - centers[region], radius * SCALE)
        return ClippedRegions(
            clipped,
            region,
            len(centers),
            radius,
            self.max_shift,
            charge_both,
            self._streams,
            self._charge,
        )

    def _move_details(self, noise: Gaussian) -> dict[str, float]:
        return {"scale": noise.scale / SCALE, "sensitivity": self.max_shift}

    def _checked_groups(self, groups: ArrayLike, n_groups: int) -> np.ndarray:
        groups = np.asarray(groups)
        self._check_released("groups")
        if groups.shape != (self.n_points,) or not np.issubdtype(groups.dtype, np.integer):
            raise ValueError(
                f"groups must be {self.n_points} integers, got {groups.dtype} of shape "
                f"{groups.shape}"
            )
        if groups.min(initial=-1) < -1 or groups.max(initial=-1) >= n_groups:
            raise ValueError(
                f"groups must be from -1 to {n_groups - 1}, got {groups.min()} to {groups.max()}"
            )
        return groups

    def _checked_members(self, members: ArrayLike) -> np.ndarray:
        members = np.asarray(members)
        self._check_released("members")
        if members.shape != (self.n_points,) or members.dtype != bool:
            raise ValueError(
                f"members must be {self.n_points} bools, got {members.dtype} of shape "
                f"{members.shape}"
            )
        return members

    def _check_released(self, parameter: str) -> None:
        # Before that, records have a private order alone, by which no query may name them.
        if not self._released:
            raise ValueError(f"{parameter} name released records; query noised_points first")


def diagonal(n_features: int) -> float:
    """Diagonal of the domain [-1, 1]^d, in half-widths.

    No point moves farther, so that moves up to it are replacements of a record.

    Examples
    --------
    >>> diagonal(4)
    4.0
    """
    return 2 * math.sqrt(n_features)


def soft_sensitivity(n_features: int, side: float, max_shift: float) -> float:
    """L2 sensitivity of soft counts if a point moves by at most ``max_shift``.

    Inside a cell the weights are products of 1 - a and a. Their derivatives by two features have
    inner products of at most 2 (the same feature) and 1 (two features) over the side squared, so
    that along a unit vector they change at a rate of at most sqrt(1 + d) / side; they are
    continuous across cells. The weights of two points, which add up to 1 each, differ by at most
    sqrt(2) in L2. Rounding to 2**-16 moves each of the 2^d weights of either point by half a unit
    at most.

    Parameters
    ----------
    n_features : int
    side : float
        Distance of neighboring nodes, in half-widths.
    max_shift : float
        In half-widths.

    Returns
    -------
    float
        In records.

    Examples
    --------
    >>> round(soft_sensitivity(2, 0.5, 0.05), 4), round(soft_sensitivity(2, 0.5, 1.0), 4)
    (0.1732, 1.4142)
    """
    rounding = math.sqrt(2.0**n_features) / SCALE
    return min(math.sqrt(1 + n_features) * max_shift / side, TWO_RECORDS) + rounding
