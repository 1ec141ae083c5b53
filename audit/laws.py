"""The laws of mechanisms: what a draw costs on a pair, and how likely its output was.

The law of a mechanism is the probability distribution of its outputs, given the exact
answer. For exact answers of two neighbors, a law says by how much it distinguishes
them, in the unit that the mechanism is charged in. For an output it gives the privacy
loss: the logarithm of the ratio of the output's two probabilities. For the residuals it
turns an output into uniform numbers. Nothing is estimated.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import log_ndtr, logsumexp, ndtr

from pkm.compute.kernels.ldp import random_signs
from pkm.privacy.grid import SCALE
from pkm.privacy.mechanisms.additive import (
    ROUNDING,
    BoundedLaplace,
    BoundedValues,
    Cost,
    Gaussian,
    Laplace,
    rounding_factor,
)
from pkm.privacy.mechanisms.randomizers import (
    FrequencyOracle,
    SignedSums,
    UserCells,
    UserVectors,
    VectorRandomizer,
)
from pkm.privacy.mechanisms.selection import (
    Exponential,
    OrderStatistics,
    Percentile,
    selection_mu,
)
from pkm.privacy.mechanisms.stability_histogram import (
    OccupiedCells,
    ReleasedCells,
    StabilityHistogram,
)
from pkm.privacy.queries.moved_records import SortedGaussian, SortedRows
from pkm.privacy.queries.projection import CoverProblem, MaximumCover

#: Values of a distribution function before and after the entries of an output, arrays
#: of shape (replicates, m), or (m,) of a single replicate. They are equal where the law
#: is continuous.
Interval = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Law:
    """The law that a mechanism draws by.

    Parameters
    ----------
    mechanism
    sensitivity
        That the release was charged for.
    is_secure : bool, default=False
        Whether the noise comes from the operating system, by the integer samplers that
        ``fit`` uses without a seed. Additive noise then has a discrete law.
    """

    mechanism: Any
    sensitivity: Any
    is_secure: bool = False

    def measure_cost(
        self,
        values: Any,
        others: Any,
    ) -> Cost:
        """Measure the cost of distinguishing two exact answers.

        Parameters
        ----------
        values, others
            Exact answers on neighbors, as the mechanism takes them.

        Returns
        -------
        Cost
            mu for Gaussian noise, epsilon for pure mechanisms, delta for what only one
            of the two can release.
        """
        raise NotImplementedError

    def log_density(
        self,
        output: Any,
        values: Any,
    ) -> np.ndarray | float:
        """Compute the log density of the entries of an output, up to a constant."""
        raise NotImplementedError

    def cdf_bounds(
        self,
        output: Any,
        values: Any,
    ) -> Interval:
        """Evaluate the distribution function before and after an output."""
        raise NotImplementedError

    def measure_loss(
        self,
        output: Any,
        values: Any,
        others: Any,
    ) -> float:
        """Measure the privacy loss of an output.

        It is the log of the probability on ``values`` over that on ``others``.
        """
        return float(
            np.sum(self.log_density(output, values) - self.log_density(output, others))
        )

    def draw_residuals(
        self,
        output: Any,
        values: Any,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Draw residuals: uniform on [0, 1] if the law drew the output.

        They are values of the distribution function at the output (the probability
        integral transform). Where it jumps there, they are drawn within the jump.

        Returns
        -------
        ndarray of shape (replicates, m), float64
        """
        lower, upper = map(np.atleast_2d, self.cdf_bounds(output, values))
        return lower + (upper - lower) * rng.random(lower.shape)


# Additive noise


class AdditiveLaw(Law):
    """Noise that is added to an answer and rounded to the grid.

    Costs and losses are those of the continuous noise that is charged. Only the
    distribution function knows the discrete law of secure noise.
    """

    @property
    def scale(self) -> np.ndarray:
        """Scale of the noise that is charged, in grid steps."""
        return self.sensitivity.unit * np.float64(self.mechanism.scale)

    def to_steps(self, values: np.ndarray) -> np.ndarray:
        """Convert an exact answer to grid steps, float64."""
        return np.asarray(values, float) / self.sensitivity.resolution

    def standardize(
        self,
        output: np.ndarray,
        values: np.ndarray,
    ) -> np.ndarray:
        """Return the noise of an output, in scales of the noise."""
        noise = np.asarray(output, float) - self.to_steps(values)
        return noise / self.scale

    def cdf(self, noise: np.ndarray) -> np.ndarray:
        """Evaluate the distribution function between grid points."""
        raise NotImplementedError

    def cdf_bounds(
        self,
        output: np.ndarray,
        values: np.ndarray,
    ) -> Interval:
        """See :class:`Law`."""
        noise = np.asarray(output, float) - self.to_steps(values)
        shape = (len(output), -1)
        lower = self.cdf(noise - 0.5)
        upper = self.cdf(noise + 0.5)
        return lower.reshape(shape), upper.reshape(shape)


class GaussianLaw(AdditiveLaw):
    """Law of :class:`pkm.privacy.Gaussian`."""

    def cdf(self, noise: np.ndarray) -> np.ndarray:
        """See :class:`AdditiveLaw`."""
        # From a scale of some steps on, the discrete law is that of rounded noise.
        scale = self.scale
        if self.is_secure:
            scale = scale * rounding_factor(self.sensitivity, noise.size)
            scale = np.ceil(scale) + ROUNDING
        return ndtr(noise / scale)

    def measure_cost(
        self,
        values: np.ndarray,
        others: np.ndarray,
    ) -> Cost:
        """See :class:`Law`."""
        change = self.standardize(self.to_steps(values), others)
        return Cost(mu=float(np.linalg.norm(change.ravel())))

    def log_density(
        self,
        output: Any,
        values: np.ndarray,
    ) -> np.ndarray:
        """See :class:`Law`."""
        return -(self.standardize(output, values) ** 2) / 2


class LaplaceLaw(AdditiveLaw):
    """Law of :class:`pkm.privacy.Laplace`."""

    def cdf(self, noise: np.ndarray) -> np.ndarray:
        """See :class:`AdditiveLaw`."""
        if not self.is_secure:
            return stats.laplace.cdf(noise / self.scale)
        # Probabilities fall by a constant factor per step.
        scale = np.ceil(self.scale)
        steps = np.floor(noise)
        tail = 1 / (1 + np.exp(-1 / scale))
        below = tail * np.exp(np.minimum(steps, 0) / scale)
        steps_above = np.maximum(steps, 0) + 1
        above = tail * np.exp(-steps_above / scale)
        return np.where(steps < 0, below, 1 - above)

    def measure_cost(
        self,
        values: np.ndarray,
        others: np.ndarray,
    ) -> Cost:
        """See :class:`Law`."""
        change = self.standardize(self.to_steps(values), others)
        return Cost(epsilon=float(np.abs(change).sum()))

    def log_density(
        self,
        output: np.ndarray,
        values: np.ndarray,
    ) -> np.ndarray:
        """See :class:`Law`."""
        return -np.abs(self.standardize(output, values))


class SortedGaussianLaw(GaussianLaw):
    """Gaussian noise on rows that are then sorted.

    A cost is that of one row: :func:`pkm.audit.replay.match_records` has matched the
    records, so that a move changes one of them.
    """

    @staticmethod
    def _unsort(output: list[SortedRows]) -> np.ndarray:
        """Put released rows back into the order of the records."""
        (released,) = output
        rows = np.empty_like(released.rows)
        rows[released.order] = released.rows
        return rows[None]

    def log_density(
        self,
        output: list[SortedRows],
        values: np.ndarray,
    ) -> np.ndarray:
        """See :class:`Law`."""
        return super().log_density(self._unsort(output), values)

    def cdf_bounds(
        self,
        output: list[SortedRows],
        values: np.ndarray,
    ) -> Interval:
        """See :class:`Law`."""
        return super().cdf_bounds(self._unsort(output), values)


class BoundedLaplaceLaw(Law):
    """Laplace noise inside an interval."""

    def _describe(self, values: BoundedValues) -> tuple[np.ndarray, ...]:
        """Describe the law of every entry.

        Returns
        -------
        center, scale : ndarray
            Of the unbounded law.
        below, inside : ndarray
            Its probabilities below the interval and inside.
        """
        center = np.clip(values.exact, values.lower, values.upper)
        center = center.astype(np.float64)
        scale = self.mechanism.scale(values.upper - values.lower)
        below = 0.5 * np.exp((values.lower - center) / scale)
        above = 0.5 * np.exp((center - values.upper) / scale)
        return center, scale, below, 1 - below - above

    def measure_cost(
        self,
        values: BoundedValues,
        others: BoundedValues,
    ) -> Cost:
        """See :class:`Law`."""
        # The ratio of two densities is monotone between the two centers and constant
        # outside of them.
        largest = np.zeros(np.shape(values.exact))
        for extreme in (values.lower, values.upper, values.exact, others.exact):
            output = np.clip(extreme, values.lower, values.upper)
            density = self.log_density(output, values)
            losses = density - self.log_density(output, others)
            largest = np.maximum(largest, np.abs(losses))
        return Cost(epsilon=float(largest.sum()))

    def log_density(
        self,
        output: np.ndarray,
        values: BoundedValues,
    ) -> np.ndarray:
        """See :class:`Law`."""
        center, scale, _, inside = self._describe(values)
        return -np.abs(output - center) / scale - np.log(inside)

    def cdf_bounds(
        self,
        output: np.ndarray,
        values: BoundedValues,
    ) -> Interval:
        """See :class:`Law`."""
        center, scale, below, inside = self._describe(values)

        def cdf(x: np.ndarray) -> np.ndarray:
            x = np.clip(x, values.lower, values.upper)
            shares = stats.laplace.cdf((x - center) / scale)
            shares = (shares - below) / inside
            return shares.reshape(len(output), -1)

        return cdf(output - 0.5), cdf(output + 0.5)


# Selections


class ExponentialLaw(Law):
    """Choices with probabilities that grow with their scores."""

    @property
    def _scales(self) -> np.ndarray:
        """Factors of the scores, one per selection."""
        return self.mechanism.epsilon / np.atleast_1d(self.sensitivity.difference)

    def measure_cost(
        self,
        values: list,
        others: list,
    ) -> Cost:
        """See :class:`Law`."""
        total = 0.0
        selections = zip(values, others, self._scales, strict=True)
        for scores, other_scores, scale in selections:
            is_allowed = np.isfinite(scores) | np.isfinite(other_scores)
            if not is_allowed.any():
                continue
            change = np.asarray(scores)[is_allowed]
            change = (change - np.asarray(other_scores)[is_allowed]) * scale
            # All candidates may change alike: what counts is the range of the changes.
            total += float(np.ptp(change))
        if self.sensitivity.monotonic:
            return Cost(mu=selection_mu(total))
        return Cost(epsilon=total)

    def _pair_choices(
        self,
        output: np.ndarray,
        values: list,
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Pair each choice with the scores and log probabilities of its candidates."""
        choices = np.ravel(output).tolist()
        selections = zip(choices, values, self._scales, strict=True)
        for choice, scores, scale in selections:
            exponents = np.asarray(scores, float) * scale
            if not np.isfinite(exponents).any():
                exponents[0] = 0.0
            yield choice, scores, exponents - logsumexp(exponents)

    def log_density(
        self,
        output: np.ndarray,
        values: list,
    ) -> np.ndarray:
        """See :class:`Law`."""
        pairs = self._pair_choices(output, values)
        return np.array([log_p[choice] for choice, _, log_p in pairs])

    def cdf_bounds(
        self,
        output: np.ndarray,
        values: list,
    ) -> Interval:
        """See :class:`Law`."""
        lower = []
        upper = []
        for choice, scores, log_p in self._pair_choices(output, values):
            # From the likeliest candidate down: a law that is too sharp chooses too
            # many of the first.
            order = np.argsort(-np.asarray(scores), kind="stable")
            position = int(np.flatnonzero(order == choice)[0])
            probabilities = np.exp(log_p)[order]
            below = probabilities[:position].sum()
            lower.append(below)
            upper.append(below + probabilities[position])
        return np.array(lower), np.array(upper)


class PercentileLaw(Law):
    """The exponential mechanism for a percentile, on the reals of a range."""

    def _describe(self, values: OrderStatistics) -> tuple[np.ndarray, ...]:
        """Describe the density, which is constant between neighboring values.

        Returns
        -------
        edges, lengths : ndarray
            Of the intervals between the values.
        exponents : ndarray
            Log densities of the intervals, up to a constant.
        """
        n_intervals = len(values.ordered) + 1
        edges = values.edges(0, n_intervals)
        utility = -np.abs(np.arange(n_intervals) - values.rank)
        scale = self.mechanism.epsilon / float(np.max(self.sensitivity.difference))
        return edges, np.maximum(np.diff(edges), 0.0), scale * utility

    @staticmethod
    def _locate(
        output: np.ndarray,
        edges: np.ndarray,
    ) -> np.ndarray:
        """Find the interval of each number."""
        intervals = np.searchsorted(edges, output, side="right") - 1
        return np.clip(intervals, 0, len(edges) - 2)

    def measure_cost(
        self,
        values: OrderStatistics,
        others: OrderStatistics,
    ) -> Cost:
        """See :class:`Law`."""
        # Both densities are constant between neighboring edges of either.
        own_edges = self._describe(values)[0]
        other_edges = self._describe(others)[0]
        edges = np.union1d(own_edges, other_edges)
        middles = (edges[:-1] + edges[1:]) / 2
        losses = self.log_density(middles, values) - self.log_density(middles, others)
        return Cost(epsilon=float(np.abs(losses).max()))

    def log_density(
        self,
        output: np.ndarray,
        values: OrderStatistics,
    ) -> np.ndarray:
        """See :class:`Law`."""
        edges, lengths, exponents = self._describe(values)
        is_wide = lengths > 0
        normalization = logsumexp(exponents[is_wide], b=lengths[is_wide])
        return exponents[self._locate(output, edges)] - np.asarray(normalization)

    def cdf_bounds(
        self,
        output: np.ndarray,
        values: OrderStatistics,
    ) -> Interval:
        """See :class:`Law`."""
        edges, lengths, exponents = self._describe(values)
        masses = lengths * np.exp(exponents - exponents.max())
        interval = self._locate(output, edges)
        below = np.cumsum(masses)[interval] - masses[interval]
        length = np.maximum(lengths[interval], 1e-300)
        fraction = (output - edges[interval]) / length
        cdf = (below + fraction * masses[interval]) / masses.sum()
        cdf = cdf.reshape(len(output), -1)
        return cdf, cdf


class CoverLaw(Law):
    """Picks of a maximum cover: of their law an audit knows the cost alone."""

    def measure_cost(
        self,
        values: CoverProblem,
        others: CoverProblem,
    ) -> Cost:
        """See :class:`Law`."""
        # The cost of a cover is derived for neighbors that differ in one point.
        points = Counter(_name_cells(values.points[:]))
        other_points = Counter(_name_cells(others.points[:]))
        n_changed = max(
            (points - other_points).total(),
            (other_points - points).total(),
        )
        charged = self.mechanism.cost(self.sensitivity)
        return Cost(
            epsilon=n_changed * charged.epsilon,
            delta=n_changed * charged.delta,
        )

    def log_density(
        self,
        output: np.ndarray,
        values: CoverProblem,
    ) -> float:
        """Return NaN: the sum of weights over the lattice is not at hand."""
        return math.nan

    def cdf_bounds(
        self,
        output: np.ndarray,
        values: CoverProblem,
    ) -> Interval:
        """Return nothing: the mechanism's tests compare picks with enumeration."""
        nothing = np.empty(0)
        return nothing, nothing


# Histograms with a threshold


def _name_cells(cells: np.ndarray) -> list[bytes]:
    return [np.ascontiguousarray(cell).tobytes() for cell in np.asarray(cells)]


def _count_by_name(cells: OccupiedCells | ReleasedCells) -> dict[bytes, float]:
    """Map names of cells to their counts, in records."""
    factor = 1 if isinstance(cells, ReleasedCells) else cells.count_factor
    counts = np.asarray(cells.counts) * (factor / SCALE)
    names = _name_cells(cells.cells)
    return dict(zip(names, counts.tolist(), strict=True))


class HistogramLaw(Law):
    """Gaussian counts of occupied cells, released from a threshold on."""

    def _log_hidden(
        self,
        counts: np.ndarray | list[float],
        thresholds: np.ndarray,
    ) -> np.ndarray:
        """Compute the log probabilities that noisy counts stay below thresholds."""
        margin = thresholds - np.asarray(counts, float)
        return log_ndtr(margin / self._stddev)

    @property
    def _stddev(self) -> float:
        """Standard deviation of the noise that is drawn, in records."""
        if self.is_secure:
            return (math.ceil(self.mechanism.stddev * SCALE) + ROUNDING) / SCALE
        return self.mechanism.stddev

    def _find_thresholds(
        self,
        counts: np.ndarray | list[float],
        values: OccupiedCells,
    ) -> np.ndarray:
        """Find the thresholds of noisy counts before they are rounded to the grid."""
        counts = np.asarray(counts, float)
        # A cell that does not occur is never released.
        thresholds = np.where(counts > 0, self.mechanism.threshold, math.inf)
        for i in np.flatnonzero((counts > 0) & (counts < 1)):
            thresholds[i] = self.mechanism.find_threshold(counts[i], self.is_secure)
        return np.maximum(thresholds, values.min_count) - 0.5 / SCALE

    def measure_cost(
        self,
        values: OccupiedCells,
        others: OccupiedCells,
    ) -> Cost:
        """See :class:`Law`."""
        counts = _count_by_name(values)
        other_counts = _count_by_name(others)
        names = list(counts | other_counts)
        one, another = (
            np.array([count_of.get(name, 0.0) for name in names])
            for count_of in (counts, other_counts)
        )
        thresholds, other_thresholds = (
            self._find_thresholds(side, values) for side in (one, another)
        )

        # Cells that both sides can release differ in their noisy counts.
        both = np.isfinite(thresholds) & np.isfinite(other_thresholds)
        change = float(np.linalg.norm((one - another)[both]))

        # A noisy count that is above the threshold of one side alone tells the side.
        above = self._log_hidden(one, thresholds)
        above -= self._log_hidden(one, np.maximum(thresholds, other_thresholds))
        below = self._log_hidden(another, other_thresholds)
        below -= self._log_hidden(another, np.maximum(thresholds, other_thresholds))
        log_stays = float(min(above.sum(), below.sum()))
        return Cost(mu=change / self.mechanism.stddev, delta=-math.expm1(log_stays))

    def log_density(
        self,
        output: list[ReleasedCells],
        values: OccupiedCells,
    ) -> float:
        """See :class:`Law`."""
        released = _count_by_name(output[0])
        counts = _count_by_name(values)
        exact = np.array([counts.get(name, 0.0) for name in released])
        noisy = np.array(list(released.values()))
        if (noisy < self._find_thresholds(exact, values)).any():
            return -math.inf
        squares = float(((noisy - exact) ** 2).sum())
        total = -squares / (2 * self.mechanism.stddev**2)
        hidden = [counts[name] for name in counts.keys() - released.keys()]
        thresholds = self._find_thresholds(hidden, values)
        return total + float(self._log_hidden(hidden, thresholds).sum())

    def cdf_bounds(
        self,
        output: list[ReleasedCells],
        values: OccupiedCells,
    ) -> Interval:
        """See :class:`Law`."""
        released = _count_by_name(output[0])
        counts = _count_by_name(values)
        exact = np.array(list(counts.values()), float)
        noisy = np.array([released.get(name, -math.inf) for name in counts])
        # The law never releases a count below its threshold.
        thresholds = self._find_thresholds(exact, values)
        is_possible = noisy >= thresholds
        cdf = ndtr((noisy - exact) / self._stddev) * is_possible
        is_hidden = np.isinf(noisy)
        hidden = ndtr((thresholds - exact) / self._stddev)
        return cdf, np.where(is_hidden, hidden, cdf)


# Reports of users


class OracleLaw(Law):
    """Reports of users, each true or one of the false symbols."""

    def measure_cost(
        self,
        values: UserCells,
        others: UserCells,
    ) -> Cost:
        """See :class:`Law`."""
        oracle = self.mechanism
        symbols = oracle.encode(values.users, values.cells)
        other_symbols = oracle.encode(others.users, others.cells)
        n_changed = int((symbols != other_symbols).sum())
        return Cost(epsilon=n_changed * math.log(oracle.p_true / oracle.p_false))

    def _compare(
        self,
        output: np.ndarray,
        values: UserCells,
    ) -> np.ndarray:
        """Tell which reports are true."""
        return output[0] == self.mechanism.encode(values.users, values.cells)

    def log_density(
        self,
        output: np.ndarray,
        values: UserCells,
    ) -> np.ndarray:
        """See :class:`Law`."""
        odds = math.log(self.mechanism.p_true / self.mechanism.p_false)
        return odds * self._compare(output, values)

    def cdf_bounds(
        self,
        output: np.ndarray,
        values: UserCells,
    ) -> Interval:
        """See :class:`Law`."""
        return _bound_side(
            self._compare(output, values),
            1 - self.mechanism.p_true,
        )


class VectorLaw(Law):
    """Directions that lie on the side of a user's vector, or are flipped."""

    def _sign(self, values: UserVectors) -> np.ndarray:
        """Apply the public signs of sums over cells to the vectors (m, d)."""
        if not isinstance(self.mechanism, SignedSums):
            return values.vectors
        signs = random_signs(np.uint64(self.mechanism.key), values.users, values.cells)
        return values.vectors * signs[:, None]

    def measure_cost(
        self,
        values: UserVectors,
        others: UserVectors,
    ) -> Cost:
        """See :class:`Law`."""
        vectors = self._sign(values)
        other_vectors = self._sign(others)
        is_changed = (vectors != other_vectors).any(axis=1)
        sides = self._log_sides(vectors[is_changed])
        other_sides = self._log_sides(other_vectors[is_changed])
        # A direction may lie on the side of both vectors, of one, or of neither.
        losses = np.abs(sides[:, None] - other_sides[None])
        largest = losses.max(axis=(0, 1), initial=0.0)
        return Cost(epsilon=float(largest.sum()))

    def _log_sides(self, vectors: np.ndarray) -> np.ndarray:
        """Compute the log probabilities of either side of each vector, (2, m)."""
        p_flip = self.mechanism.flip_probability(np.linalg.norm(vectors, axis=1))
        return np.log(np.stack([p_flip, 1 - p_flip]))

    def log_density(
        self,
        output: np.ndarray,
        values: UserVectors,
    ) -> np.ndarray:
        """See :class:`Law`."""
        signs = self._sign(values)
        return np.log(self.mechanism.density(signs, output[0]))

    def cdf_bounds(
        self,
        output: np.ndarray,
        values: UserVectors,
    ) -> Interval:
        """See :class:`Law`."""
        vectors = self._sign(values)
        products = np.einsum("ij,ij->i", output[0].astype(float), vectors)
        # A direction at a right angle to the vector, as any is to the vector 0, has no
        # side.
        has_side = products != 0
        lengths = np.linalg.norm(vectors[has_side], axis=1)
        p_flip = self.mechanism.flip_probability(lengths)
        return _bound_side(products[has_side] > 0, p_flip)


def _bound_side(
    is_true: np.ndarray,
    p_false: np.ndarray | float,
) -> Interval:
    """Bound the distribution function of an answer of two sides, false before true."""
    lower = np.where(is_true, p_false, 0.0)
    upper = np.where(is_true, 1.0, p_false)
    return lower, upper


LAWS: dict[type, type[Law]] = {
    Gaussian: GaussianLaw,
    Laplace: LaplaceLaw,
    BoundedLaplace: BoundedLaplaceLaw,
    Exponential: ExponentialLaw,
    Percentile: PercentileLaw,
    StabilityHistogram: HistogramLaw,
    SortedGaussian: SortedGaussianLaw,
    MaximumCover: CoverLaw,
    FrequencyOracle: OracleLaw,
    VectorRandomizer: VectorLaw,
}


def find_law(
    mechanism: Any,
    sensitivity: Any,
    is_secure: bool = False,
) -> Law:
    """Find the law of a mechanism, by its type.

    Raises
    ------
    ValueError
        If the mechanism is of an unknown type.
    """
    for ancestor in type(mechanism).__mro__:
        if ancestor in LAWS:
            return LAWS[ancestor](mechanism, sensitivity, is_secure)
    raise ValueError(f"mechanism={mechanism!r} has no loss that an audit knows")
