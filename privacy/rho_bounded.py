"""The curator under rho-bounded adjacency: neighbors differ in one record, moved by at most rho.

What a move changes is worked out here, query by query. A statistic that adds up the records themselves moves by rho; a
statistic that says where records lie changes as if one record left and another came, however short the move, because
a border may be in between. Where records are grouped by released data the group of a record does not move with it.

Records have no public order: they leave in the order of their noised values, and later questions name them by their
place in it. Noise is drawn independently for each record, so that this is what a mechanism that keeps the records'
own numbers would release, with the numbers forgotten.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from pkm.compute.hashing import clip_norms
from pkm.compute.quadtree import add_soft_counts, nearest_of_many, occupied_cells
from pkm.privacy.budget import Adjacency
from pkm.privacy.base import shards_of
from pkm.privacy.grid import SCALE
from pkm.privacy.ledger import Charge, Ledger
from pkm.privacy.mechanisms import Gaussian, Laplace
from pkm.privacy.noise import NoiseStreams
from pkm.privacy.stability_histogram import StabilityHistogram

TWO_RECORDS = math.sqrt(2)  # L2 norm of one count less and another more
UNCHARGED = "F-17"
LARGEST_NORMAL = 1 << 20
MAX_NODES = 1 << 18
MAX_COLUMNS = 10  # of a grid: a point counts at 2^d nodes


class RhoBoundedCurator:
    """Curator of one replicate for neighbors that differ by the move of one record.

    Parameters
    ----------
    points : ndarray of shape (n, d), int64, or Points, or a sequence of either
        Private points on the grid, in one piece or in shards; answers depend neither on their order nor on the split.
    ledger : Ledger
        Its budget must be one under ``rho_bounded``; rho is in half-widths of the domain.
    streams : NoiseStreams
        Of one replicate.
    domain : array-like of shape (2, d), optional
        Public bounds, in the data's own units, that the grid stands for. Default: -1 and 1.

    Attributes
    ----------
    n_points, n_features, n_replicates : int
        Public: neighbors have the same number of points.
    seeds : tuple of int
    domain : ndarray of shape (2, d), float64
    max_shift : float
        Largest move between grid points, in half-widths: a point that moves by rho before it is rounded to the grid
        moves by at most rho + sqrt(d) steps after, and nothing moves farther than the domain is wide.

    Raises
    ------
    ValueError
        If the ledger's adjacency is another, rho exceeds the domain's diagonal 2 sqrt(d), a point lies off the domain,
        or there is more than one replicate.

    Examples
    --------
    >>> from pkm.privacy import Budget
    >>> ledger = Ledger(Budget(1.0, 1e-6, "rho_bounded", rho=0.25))
    >>> curator = RhoBoundedCurator(np.zeros((3, 2), np.int64), ledger, NoiseStreams([0]))
    >>> curator.noised_points(Gaussian(2.0 * SCALE)).shape, len(ledger.charges)
    ((3, 2), 1)
    """

    def __init__(self, points, ledger: Ledger, streams: NoiseStreams, domain=None):
        adjacency = None if ledger is None else ledger.budget.adjacency
        if adjacency is not Adjacency.RHO_BOUNDED:
            raise ValueError(
                f"adjacency={adjacency} is not supported here: this curator charges what rho_bounded costs"
            )
        if len(streams.seeds) != 1:
            raise ValueError(
                f"{len(streams.seeds)} replicates were asked for, one is served at a time: batched = False"
            )
        shards = shards_of(points)
        self.n_points, self.n_features = sum(shard.shape[0] for shard in shards), shards[0].shape[1]
        self.n_replicates, self.seeds = 1, streams.seeds
        farthest = diagonal(self.n_features)
        if ledger.budget.rho > farthest:
            raise ValueError(
                f"rho={ledger.budget.rho} must be at most the diagonal {farthest:.6g} of the domain, in half-widths: "
                "no point can move farther, that would be replace_one"
            )
        self.max_shift = min(ledger.budget.rho + math.sqrt(self.n_features) / SCALE, farthest)
        self.domain = np.empty((2, self.n_features))
        self.domain[:] = [[-1.0], [1.0]] if domain is None else domain
        rows = np.concatenate([shard.rows for shard in shards]).astype(np.int64)
        # A canonical order, so that seeded noise falls on the same point however the points came.
        self._rows = rows[np.lexsort(rows.T[::-1])]
        self._released = False
        self._ledger, self._streams, self._rounds = ledger, streams, Counter()

    def noised_points(self, noise: Gaussian) -> np.ndarray:
        """Release every point with noise on each coordinate; once.

        Parameters
        ----------
        noise : Gaussian
            Scale in grid steps.

        Returns
        -------
        ndarray of shape (n, d), int64
            In lexicographic order, equal ones in random order. Later questions name records by their place in it.

        Raises
        ------
        BudgetExceeded
            If the release costs more than is left.
        ValueError
            If the points were released before.

        Notes
        -----
        A move changes one row by at most ``max_shift`` in L2: mu is that over the scale.
        """
        if self._released:
            raise ValueError(
                "noised_points can be asked once: its order is what later questions refer to"
            )
        mu = self.max_shift * SCALE / noise.scale
        key = self._charge("noised_points", noise.name, mu=mu, details=self._move_details(noise))
        noised = noise.add(self._rows[None], self._streams, (*key, "noise"))[0]
        ties = self._streams.uniform((*key, "ties"), (self.n_points,))[0]
        # Equal values in their private order would tell which of them came first.
        order = np.lexsort((ties, *noised.T[::-1]))
        self._rows, self._released = self._rows[order], True
        return noised[order]

    def total(self, noise: Gaussian) -> np.ndarray:
        """Noisy sum of all points, shape (d,), int64, in grid steps; a move changes it by at most ``reach``."""
        mu = self.max_shift * SCALE / noise.scale
        key = self._charge("total", noise.name, mu=mu, details=self._move_details(noise))
        return noise.add(self._rows.sum(axis=0)[None], self._streams, key)[0]

    def group_sums(self, groups: np.ndarray, n_groups: int, noise: Gaussian) -> np.ndarray:
        """Noisy sums of the true points of groups that released data define.

        Parameters
        ----------
        groups : ndarray of shape (n,), int
            Cohort of each released record, -1 for none: a function of released data. Cohort sizes are then public.
        n_groups : int
        noise : Gaussian
            Scale in grid steps.

        Returns
        -------
        ndarray of shape (n_groups, d), int64
            In grid steps.

        Notes
        -----
        A record keeps its group when it moves, so that one sum changes, by at most ``max_shift``: all groups together have
        that L2 sensitivity, whatever their extent.
        """
        groups = self._checked_groups(groups, n_groups)
        mu = self.max_shift * SCALE / noise.scale
        key = self._charge("group_sums", noise.name, mu=mu, details=self._move_details(noise))
        return noise.add(_sums(self._rows, groups, n_groups)[None], self._streams, key)[0]

    def cell_counts(
        self, shifts: np.ndarray, levels: range, noise: StabilityHistogram
    ) -> list[tuple[int, int, np.ndarray, np.ndarray]]:
        """Noisy counts of the cells of public shifted quadtrees that are large enough to leave.

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
            Positions (m, d), int64, in lexicographic order, and noisy counts (m,), float64, in records.

        Notes
        -----
        In each of H histograms a move takes one record out of a cell and puts it into another: at most 2 H counts
        change, by one each, hence L2 sensitivity sqrt(2 H). A cell that only one neighbor has holds one record there.
        """
        shifts, most = np.asarray(shifts), 2 * len(shifts) * len(levels)
        if noise.cells < max(most, 1):
            raise ValueError(
                f"cells={noise.cells} of the noise must be at least {most}: a move changes as many counts"
            )
        details = {
            "count_scale": noise.stddev,
            "count_sensitivity": math.sqrt(most),
            "least": noise.threshold,
        }
        mu = math.sqrt(most) / noise.stddev
        key = self._charge(
            "cell_counts", "gaussian_threshold", mu=mu, delta=noise.delta, details=details
        )
        found = [
            (tree, *each)
            for tree, shift in enumerate(shifts)
            for each in occupied_cells(self._rows, shift, levels)
        ]
        kept, noisy = noise.release(np.concatenate([each[3] for each in found]), self._streams, key)
        ends = np.cumsum([len(each[3]) for each in found])
        answers = []
        for (tree, level, cells, counts), end in zip(found, ends, strict=True):
            some = slice(*np.searchsorted(kept, (end - len(counts), end)))
            answers.append((tree, level, cells[kept[some] - (end - len(counts))], noisy[some]))
        return answers

    def soft_counts(self, intervals: int, noise: Gaussian) -> np.ndarray:
        """Noisy numbers of points at all nodes of a public grid, where a point counts in parts for the nodes around it.

        A point between nodes counts for each of the 2^d around it by how near it is, column by column: with weight
        1 - a for the node below and a for the one above, at the fraction a of the way, multiplied over the columns. Its
        weights add up to 1, and the weighted mean of the nodes is the point.

        Parameters
        ----------
        intervals : int
            Between the ends of the domain, per column; at least 1.
        noise : Gaussian

        Returns
        -------
        ndarray of shape (intervals + 1, ..., intervals + 1), int64
            One axis per column, in units of 2**-16 records. Node i of m intervals lies at -1 + 2 i / m.

        Notes
        -----
        Weights change gradually, so that a short move changes little: see :func:`soft_sensitivity`.
        """
        d, shape = self.n_features, (intervals + 1,) * self.n_features
        if intervals < 1 or d > MAX_COLUMNS or math.prod(shape) > MAX_NODES:
            raise ValueError(
                f"intervals={intervals} in {d} columns must be at least 1, in at most {MAX_COLUMNS} columns, and make "
                f"at most {MAX_NODES} nodes"
            )
        sensitivity = soft_sensitivity(d, 2 / intervals, self.max_shift)
        details = {
            "count_scale": noise.scale / SCALE,
            "count_sensitivity": sensitivity,
            "intervals": intervals,
        }
        key = self._charge(
            "soft_counts", noise.name, mu=sensitivity * SCALE / noise.scale, details=details
        )
        counts = np.zeros(math.prod(shape), np.int64)
        add_soft_counts(self._rows, intervals, counts)
        return noise.add(counts.reshape(1, *shape), self._streams, key)[0]

    def regions(
        self,
        centers: np.ndarray,
        radius: float,
        *,
        groups: np.ndarray | None = None,
        members: np.ndarray | None = None,
        charged: bool = True,
    ) -> "ClippedRegions":
        """Sort records into regions about public centers, and clip them to a ball about their center.

        Parameters
        ----------
        centers : ndarray of shape (m, d), int64
            Released or public, in grid steps.
        radius : float
            Of the balls, in half-widths.
        groups : ndarray of shape (n,), int, optional
            Region of each released record, -1 for none. Default: the center nearest to the *true* point, so that a move
            may change the region.
        members : ndarray of shape (n,), bool, optional
            Released records that take part where regions follow from true points. Default: all.
        charged : bool, default=True
            Charge the two records that a move is. False charges one, as for neighbors of which one has a record more;
            the charges carry the flaw.

        Returns
        -------
        ClippedRegions
        """
        centers = np.asarray(centers)
        if not np.issubdtype(centers.dtype, np.integer) or centers.ndim != 2 or not len(centers):
            raise ValueError(
                f"centers must be grid integers of shape (m, d), got {centers.dtype} of {centers.shape}"
            )
        if not 0 < radius < math.inf:
            raise ValueError(f"radius={radius} must be positive and finite")
        if groups is not None:
            groups = self._checked_groups(groups, len(centers))
            rows, region = self._rows[groups >= 0], groups[groups >= 0]
        else:
            rows = self._rows if members is None else self._rows[self._checked_members(members)]
            region = nearest_of_many(rows, centers)[0] if len(rows) else np.empty(0, np.int64)
        return ClippedRegions(clip_norms(rows - centers[region], radius * SCALE), region, len(centers), radius, self.max_shift,
                       charged, self._streams, self._charge)  # fmt: skip

    def _move_details(self, noise: Gaussian) -> dict[str, float]:
        return {"scale": noise.scale / SCALE, "sensitivity": self.max_shift}

    def _checked_groups(self, groups, n_groups) -> np.ndarray:
        groups = np.asarray(groups)
        self._check_released("groups")
        if groups.shape != (self.n_points,) or not np.issubdtype(groups.dtype, np.integer):
            raise ValueError(
                f"groups must be {self.n_points} integers, got {groups.dtype} of shape {groups.shape}"
            )
        if groups.min(initial=-1) < -1 or groups.max(initial=-1) >= n_groups:
            raise ValueError(
                f"groups must be from -1 to {n_groups - 1}, got {groups.min()} to {groups.max()}"
            )
        return groups

    def _checked_members(self, members) -> np.ndarray:
        members = np.asarray(members)
        self._check_released("members")
        if members.shape != (self.n_points,) or members.dtype != bool:
            raise ValueError(
                f"members must be {self.n_points} bools, got {members.dtype} of shape {members.shape}"
            )
        return members

    def _check_released(self, what: str) -> None:
        # Before, records have no public names: to name them by their private order would leak it.
        if not self._released:
            raise ValueError(f"{what} name released records; ask for noised_points first")

    def _charge(self, label: str, mechanism: str, **cost) -> tuple[str, int]:
        """Charge a release and return its stream key."""
        key = label, self._rounds[label]
        self._ledger.charge(Charge(*key, mechanism, **cost))
        self._rounds[label] += 1
        return key


class ClippedRegions:
    """Clipped records in regions, which public hyperplanes split into cells; made by a :class:`RhoBoundedCurator`.

    Cells 0 .. m - 1 are the regions. A move takes a record out of one cell and puts it into another, in the same
    region or in two: it acts as the removal of one record and the addition of another, and is charged so. Given
    earlier answers each of the two lies in one of any disjoint cells.

    Attributes
    ----------
    n_cells : int
        Cells so far, those that were split included.
    sum_sensitivity : float
        L2 sensitivity of the sums of disjoint cells, in half-widths. Between two cells, one sum loses and another gains
        at most the radius: sqrt(2) radius. Inside a cell the sum moves with the record: by at most ``max_shift``, and a
        step of rounding per coordinate, or across the ball.
    """

    def __init__(
        self,
        points: np.ndarray,
        cell: np.ndarray,
        n_cells: int,
        radius: float,
        max_shift: float,
        charged: bool,
        streams: NoiseStreams,
        charge: Callable[..., tuple],
    ):
        self._points, self._cell, self._charged = points, cell, charged
        self._region = np.arange(n_cells)  # of each cell
        self._streams, self._charge = streams, charge
        self.n_cells = n_cells
        inside = min(max_shift + math.sqrt(points.shape[1]) / SCALE, 2 * radius)
        self.sum_sensitivity = max(TWO_RECORDS * radius, inside) if charged else radius

    def sizes(self, noise: StabilityHistogram | Gaussian) -> tuple[np.ndarray, np.ndarray]:
        """Noisy sizes of regions in records; to be asked before any split.

        Parameters
        ----------
        noise : StabilityHistogram or Gaussian
            StabilityHistogram: only regions that are large enough leave, and ``cells`` of the noise must be 2. Gaussian: the
            sizes of all regions leave, empty ones included; their names are public, for their centers are.

        Returns
        -------
        cells : ndarray of int64
            The regions whose sizes leave.
        noisy : ndarray of float64
            In records; those of Gaussian noise may be negative.

        Notes
        -----
        A move changes at most two sizes by one: L2 sensitivity sqrt(2).
        """
        if isinstance(noise, Gaussian):
            details = {"count_scale": noise.scale / SCALE, "count_sensitivity": TWO_RECORDS}
            key = self._charge(
                "region_sizes", noise.name, mu=TWO_RECORDS * SCALE / noise.scale, details=details
            )
            noisy = noise.add(self._counts()[None] * SCALE, self._streams, key)[0] / SCALE
            return np.arange(self.n_cells), noisy
        if noise.cells < 2:
            raise ValueError(
                f"cells={noise.cells} of the noise must be at least 2: a move changes two sizes"
            )
        details = {
            "count_scale": noise.stddev,
            "count_sensitivity": TWO_RECORDS,
            "least": noise.threshold,
        }
        mu = TWO_RECORDS / noise.stddev
        key = self._charge(
            "region_sizes", "gaussian_threshold", mu=mu, delta=noise.delta, details=details
        )
        exact = self._counts()
        present = np.flatnonzero(exact)  # an empty region is never looked at
        kept, noisy = noise.release(exact[present], self._streams, key)
        return present[kept], noisy

    def counts(self, cells: Sequence[int] | np.ndarray, noise: Gaussian | Laplace) -> np.ndarray:
        """Noisy numbers of records.

        Parameters
        ----------
        cells : sequence of int
            Different cells that are not split; may be empty, the release is paid for all the same.
        noise : Gaussian or Laplace

        Returns
        -------
        ndarray of shape (len(cells),), float64

        Notes
        -----
        Two of the counts change by one: mu is sqrt(2) over the scale; with Laplace noise two releases are charged.
        """
        cells = np.asarray(cells, np.int64)
        if len(np.unique(cells)) < len(cells) or (
            len(cells) and not 0 <= cells.min() <= cells.max() < self.n_cells
        ):
            raise ValueError(f"cells={cells.tolist()} must be different and below {self.n_cells}")
        details = {"count_scale": noise.scale / SCALE, "count_sensitivity": 1.0}
        flaw, share = "" if self._charged else UNCHARGED, SCALE / noise.scale
        if noise.norm == 2:
            share *= TWO_RECORDS if self._charged else 1.0
            details["count_sensitivity"] = TWO_RECORDS if self._charged else 1.0
            key = self._charge("region_counts", noise.name, mu=share, details=details, flaw=flaw)
        else:
            key = self._charge(
                "region_counts", noise.name, epsilon=share, details=details, flaw=flaw
            )
            if self._charged:
                self._charge(
                    "region_counts_second_record", noise.name, epsilon=share, details=details
                )
        exact = self._counts()[cells] * SCALE
        return noise.add(exact[None], self._streams, key)[0] / SCALE

    def split(self, cells: Sequence[int] | np.ndarray, normal: np.ndarray) -> np.ndarray:
        """Split cells by a public hyperplane through their region's center.

        Parameters
        ----------
        cells : sequence of int
            Different cells that are not split.
        normal : ndarray of shape (d,), int64
            At most 2**20 in size, so that products are exact.

        Returns
        -------
        ndarray of shape (len(cells), 2), int64
            The two parts of each; records on the side that the normal points to are in the second.
        """
        cells = np.asarray(cells, np.int64)
        if np.abs(normal).max(initial=0) > LARGEST_NORMAL:
            raise ValueError(
                f"normal must have entries of at most {LARGEST_NORMAL}, got {np.abs(normal).max()}"
            )
        first = np.full(self.n_cells, -1, np.int64)
        first[cells] = self.n_cells + 2 * np.arange(len(cells))
        target = first[self._cell]
        moving = np.flatnonzero(target >= 0)
        self._cell[moving] = target[moving] + (
            self._points[moving] @ np.asarray(normal, np.int64) >= 0
        )
        self.n_cells += 2 * len(cells)
        self._region = np.concatenate([self._region, np.repeat(self._region[cells], 2)])
        return first[cells][:, None] + [0, 1]

    def sums(self, owner: np.ndarray, n_owners: int, multiplier: float) -> np.ndarray:
        """Noisy sums of the clipped records about their region's center, over public unions of cells of one region.

        Parameters
        ----------
        owner : ndarray of shape (n_cells,), int
            Union that each cell belongs to, -1 for none.
        n_owners : int
        multiplier : float
            Standard deviation of the Gaussian noise per unit of :attr:`sum_sensitivity`.

        Returns
        -------
        ndarray of shape (n_owners, d), int64
            In grid steps.
        """
        owner = np.asarray(owner)
        if (
            owner.shape != (self.n_cells,)
            or owner.min(initial=-1) < -1
            or owner.max(initial=-1) >= n_owners
        ):
            raise ValueError(f"owner must have {self.n_cells} entries from -1 to {n_owners - 1}")
        owned = owner >= 0
        if len(np.unique(np.stack([owner[owned], self._region[owned]]), axis=1).T) > len(
            np.unique(owner[owned])
        ):
            # About two centers a move could change one sum by twice the radius.
            raise ValueError(
                "owner must not unite cells of different regions, whose records lie about other centers"
            )
        noise = Gaussian(multiplier)
        flaw = "" if self._charged else UNCHARGED
        # The cost is known before the regions are: the multiplier alone.
        key = self._charge(
            "region_sums",
            noise.name,
            mu=1 / multiplier,
            details={"multiplier": multiplier},
            flaw=flaw,
        )
        sums = _sums(self._points, owner[self._cell], n_owners)
        return noise.add(sums[None], self._streams, key, unit=self.sum_sensitivity * SCALE)[0]

    def _counts(self) -> np.ndarray:
        return np.bincount(self._cell, minlength=self.n_cells)


def diagonal(n_features: int) -> float:
    """Diagonal of the domain [-1, 1]^d: no point moves farther, so that moves up to it are replacements of a record.

    Examples
    --------
    >>> diagonal(4)
    4.0
    """
    return 2 * math.sqrt(n_features)


def soft_sensitivity(n_features: int, side: float, max_shift: float) -> float:
    """L2 sensitivity of soft counts: how far the weights of one point move if the point moves by ``reach``.

    Inside a cell the weights are products of 1 - a and a. Their derivatives by two columns have inner products of at
    most 2 (the same column) and 1 (two columns) over the side squared, so that along a unit vector they change at a
    rate of at most sqrt(1 + d) / side; they are continuous across cells. Two points' weights, each adding up to 1,
    are never more than sqrt(2) apart. Rounding to 2**-16 moves each of the 2^d weights of either point by half a unit
    at most.

    Parameters
    ----------
    n_features : int
    side : float
        Distance of neighboring nodes, in half-widths.
    max_shift : float

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


def _sums(rows: np.ndarray, groups: np.ndarray, n_groups: int) -> np.ndarray:
    """Exact sums of integer rows per group, (n_groups, d), int64; group -1 is left out."""
    inside = groups >= 0
    rows, groups = rows[inside], groups[inside]
    # Integers below 2**53: their float64 sums are exact in any order.
    columns = [np.bincount(groups, weights=column, minlength=n_groups) for column in rows.T]
    return np.stack(columns, axis=1).astype(np.int64)
