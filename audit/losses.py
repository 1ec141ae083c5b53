"""What a pair of neighbors costs at one draw, computed exactly from what the draw was made of.

Every mechanism has a law. For exact answers of two neighbors, ``realized`` says by how much that
law distinguishes them (in the unit that the mechanism is charged in), and ``loss`` is the
logarithm of the ratio of the two probabilities of one outcome. Nothing is estimated.
"""

import math
from collections import Counter
from functools import singledispatch
from typing import Any

import numpy as np
from scipy.special import log_ndtr, logsumexp

from pkm.compute.kernels.ldp import random_signs
from pkm.privacy.grid import SCALE
from pkm.privacy.mechanisms.additive import BoundedLaplace, BoundedValues, Cost, Gaussian, Laplace
from pkm.privacy.mechanisms.randomizers import (
    FrequencyOracle,
    LocalDomain,
    SignedSums,
    UserCells,
    UserVectors,
    VectorRandomizer,
)
from pkm.privacy.mechanisms.selection import (
    Exponential,
    OrderStatistics,
    Percentile,
    ScoreRange,
    selection_mu,
)
from pkm.privacy.mechanisms.stability_histogram import (
    OccupiedCells,
    ReleasedCells,
    StabilityHistogram,
)
from pkm.privacy.queries.moved_records import SortedGaussian, SortedRows
from pkm.privacy.queries.projection import CoverProblem, MaximumCover
from pkm.privacy.query import Sensitivity


@singledispatch
def realized(mechanism: Any, values: Any, others: Any, sensitivity: Any) -> Cost:
    """Cost of distinguishing two exact answers by a mechanism.

    Parameters
    ----------
    mechanism
        The dispatch is on its type.
    values, others
        Exact answers on neighbors, as the mechanism takes them.
    sensitivity
        That the release was charged for.

    Returns
    -------
    Cost
        mu for Gaussian noise, epsilon for pure mechanisms, delta for what only one can release.
    """
    raise ValueError(f"mechanism={mechanism!r} has no loss that an audit knows")


@singledispatch
def loss(mechanism: Any, outcome: Any, values: Any, others: Any, sensitivity: Any) -> float:
    """Privacy loss of an outcome: log of its probability on ``values`` over that on ``others``."""
    raise ValueError(f"mechanism={mechanism!r} has no loss that an audit knows")


# Additive noise


def _in_units(values: np.ndarray, others: np.ndarray, sensitivity: Sensitivity) -> np.ndarray:
    """Change of an answer, in the units of the noise's scale."""
    return (np.asarray(values, float) - np.asarray(others, float)) / sensitivity.unit


@realized.register
def _(
    mechanism: Gaussian, values: np.ndarray, others: np.ndarray, sensitivity: Sensitivity
) -> Cost:
    change = _in_units(values, others, sensitivity)
    return Cost(mu=float(np.linalg.norm(change.ravel())) / mechanism.scale)


@realized.register
def _(mechanism: Laplace, values: np.ndarray, others: np.ndarray, sensitivity: Sensitivity) -> Cost:
    change = _in_units(values, others, sensitivity)
    return Cost(epsilon=float(np.abs(change).sum()) / mechanism.scale)


@loss.register
def _(
    mechanism: Gaussian,
    outcome: np.ndarray,
    values: np.ndarray,
    others: np.ndarray,
    sensitivity: Sensitivity,
) -> float:
    near = _in_units(outcome, values, sensitivity) / mechanism.scale
    far = _in_units(outcome, others, sensitivity) / mechanism.scale
    return float((far**2 - near**2).sum() / 2)


@loss.register
def _(
    mechanism: Laplace,
    outcome: np.ndarray,
    values: np.ndarray,
    others: np.ndarray,
    sensitivity: Sensitivity,
) -> float:
    near = _in_units(outcome, values, sensitivity) / mechanism.scale
    far = _in_units(outcome, others, sensitivity) / mechanism.scale
    return float((np.abs(far) - np.abs(near)).sum())


# Laplace noise inside an interval


def _bounded_law(
    mechanism: BoundedLaplace, values: BoundedValues
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Center, scale and logarithm of the normalization of the law of every entry."""
    center = np.clip(values.exact, values.lower, values.upper).astype(np.float64)
    b = mechanism.scale(values.upper - values.lower)
    below = 0.5 * np.exp((values.lower - center) / b)
    above = 0.5 * np.exp((center - values.upper) / b)
    return center, b, np.log(1 - below - above)


def _bounded_losses(
    outcome: np.ndarray,
    law: tuple[np.ndarray, np.ndarray, np.ndarray],
    other_law: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> np.ndarray:
    """Losses of the entries of an outcome inside its interval."""
    center, b, log_inside = law
    other_center, other_b, other_log_inside = other_law
    density = -np.abs(outcome - center) / b - log_inside
    other_density = -np.abs(outcome - other_center) / other_b - other_log_inside
    return density - other_density


@realized.register
def _(
    mechanism: BoundedLaplace,
    values: BoundedValues,
    others: BoundedValues,
    sensitivity: Sensitivity,
) -> Cost:
    law = _bounded_law(mechanism, values)
    other_law = _bounded_law(mechanism, others)
    # The ratio of two densities is monotone between the two centers and constant outside of them.
    shape = np.shape(values.exact)
    largest = np.zeros(shape)
    for outcome in (values.lower, values.upper, values.exact, others.exact):
        inside = np.clip(np.broadcast_to(outcome, shape), values.lower, values.upper)
        largest = np.maximum(largest, np.abs(_bounded_losses(inside, law, other_law)))
    return Cost(epsilon=float(largest.sum()))


@loss.register
def _(
    mechanism: BoundedLaplace,
    outcome: np.ndarray,
    values: BoundedValues,
    others: BoundedValues,
    sensitivity: Sensitivity,
) -> float:
    law = _bounded_law(mechanism, values)
    return float(_bounded_losses(outcome, law, _bounded_law(mechanism, others)).sum())


# Selections


def log_probabilities(scores: np.ndarray, scale: float) -> np.ndarray:
    """Log probabilities of the candidates of an exponential mechanism."""
    exponents = np.asarray(scores, float) * scale
    if not np.isfinite(exponents).any():
        exponents = np.where(np.arange(len(exponents)) == 0, 0.0, -np.inf)
    return exponents - logsumexp(exponents)


@realized.register
def _(mechanism: Exponential, values: list, others: list, sensitivity: ScoreRange) -> Cost:
    scales = mechanism.epsilon / np.atleast_1d(sensitivity.change)
    total = 0.0
    for scores, other_scores, scale in zip(values, others, scales, strict=True):
        is_allowed = np.isfinite(scores) | np.isfinite(other_scores)
        if not is_allowed.any():
            continue
        change = (np.asarray(scores)[is_allowed] - np.asarray(other_scores)[is_allowed]) * scale
        # All candidates may change alike: what counts is the range of the changes.
        total += float(np.ptp(change))
    return Cost(mu=selection_mu(total)) if sensitivity.one_sided else Cost(epsilon=total)


@loss.register
def _(
    mechanism: Exponential,
    outcome: np.ndarray,
    values: list,
    others: list,
    sensitivity: ScoreRange,
) -> float:
    scales = mechanism.epsilon / np.atleast_1d(sensitivity.change)
    total = 0.0
    selections = zip(np.ravel(outcome).tolist(), values, others, scales, strict=True)
    for choice, scores, other_scores, scale in selections:
        total += log_probabilities(scores, scale)[choice]
        total -= log_probabilities(other_scores, scale)[choice]
    return float(total)


def _percentile_log_density(
    mechanism: Percentile, points: np.ndarray, values: OrderStatistics, sensitivity: ScoreRange
) -> np.ndarray:
    """Log density of the exponential mechanism for a percentile, at points of its range."""
    n_intervals = len(values.ordered) + 1
    edges = values.edges(0, n_intervals)
    utility = -np.abs(np.arange(n_intervals) - values.rank)
    exponents = mechanism.epsilon / float(np.max(sensitivity.change)) * utility
    lengths = np.maximum(np.diff(edges), 0.0)
    normalization = logsumexp(exponents[lengths > 0], b=lengths[lengths > 0])
    interval = np.clip(np.searchsorted(edges, points, side="right") - 1, 0, n_intervals - 1)
    return exponents[interval] - np.asarray(normalization)


@realized.register
def _(
    mechanism: Percentile, values: OrderStatistics, others: OrderStatistics, sensitivity: ScoreRange
) -> Cost:
    # Both densities are constant between neighboring edges of either.
    edges = np.union1d(
        values.edges(0, len(values.ordered) + 1), others.edges(0, len(others.ordered) + 1)
    )
    middles = (edges[:-1] + edges[1:]) / 2
    density = _percentile_log_density(mechanism, middles, values, sensitivity)
    other_density = _percentile_log_density(mechanism, middles, others, sensitivity)
    return Cost(epsilon=float(np.abs(density - other_density).max()))


@loss.register
def _(
    mechanism: Percentile,
    outcome: np.ndarray,
    values: OrderStatistics,
    others: OrderStatistics,
    sensitivity: ScoreRange,
) -> float:
    density = _percentile_log_density(mechanism, outcome, values, sensitivity)
    other_density = _percentile_log_density(mechanism, outcome, others, sensitivity)
    return float((density - other_density).sum())


# Histograms with a threshold


def _names(cells: np.ndarray) -> list[bytes]:
    return [np.ascontiguousarray(cell).tobytes() for cell in np.asarray(cells)]


def _counts_by_name(cells: OccupiedCells) -> dict[bytes, int]:
    return dict(zip(_names(cells.cells), np.asarray(cells.counts).tolist(), strict=True))


@realized.register
def _(
    mechanism: StabilityHistogram,
    values: OccupiedCells,
    others: OccupiedCells,
    sensitivity: Sensitivity,
) -> Cost:
    counts = _counts_by_name(values)
    other_counts = _counts_by_name(others)

    # Cells that occur on both sides differ in their noisy counts.
    both = counts.keys() & other_counts.keys()
    change = math.sqrt(sum((counts[name] - other_counts[name]) ** 2 for name in both))

    # A cell that occurs on one side alone tells it if it passes the threshold.
    log_stays = [0.0]
    for one, another in ((counts, other_counts), (other_counts, counts)):
        threshold = max(mechanism.threshold, values.min_count) - 0.5 / SCALE
        lone = np.array([one[name] for name in one.keys() - another.keys()], float)
        log_stays.append(float(log_ndtr((threshold - lone) / mechanism.stddev).sum()))
    return Cost(mu=change / mechanism.stddev, delta=-math.expm1(min(log_stays)))


@loss.register
def _(
    mechanism: StabilityHistogram,
    outcome: list[ReleasedCells],
    values: OccupiedCells,
    others: OccupiedCells,
    sensitivity: Sensitivity,
) -> float:
    released = dict(zip(_names(outcome[0].cells), outcome[0].counts.tolist(), strict=True))
    threshold = max(mechanism.threshold, values.min_count) - 0.5 / SCALE

    def log_probability(counts: dict[bytes, int]) -> float:
        total = 0.0
        for name, noisy in released.items():
            if name not in counts:
                return -math.inf
            total -= ((noisy / SCALE - counts[name]) / mechanism.stddev) ** 2 / 2
        hidden = np.array([counts[name] for name in counts.keys() - released.keys()], float)
        return total + float(log_ndtr((threshold - hidden) / mechanism.stddev).sum())

    return log_probability(_counts_by_name(values)) - log_probability(_counts_by_name(others))


# Rows with noise, sorted


@realized.register
def _(
    mechanism: SortedGaussian, values: np.ndarray, others: np.ndarray, sensitivity: Sensitivity
) -> Cost:
    # Records are matched before (see pkm.audit.replay.matched): a move changes one row.
    return realized(Gaussian(mechanism.scale), values, others, sensitivity)


@loss.register
def _(
    mechanism: SortedGaussian,
    outcome: list[SortedRows],
    values: np.ndarray,
    others: np.ndarray,
    sensitivity: Sensitivity,
) -> float:
    noised = np.empty_like(outcome[0].rows)
    noised[outcome[0].order] = outcome[0].rows
    return loss(Gaussian(mechanism.scale), noised[None], values, others, sensitivity)


# Maximum cover


@realized.register
def _(
    mechanism: MaximumCover, values: CoverProblem, others: CoverProblem, sensitivity: ScoreRange
) -> Cost:
    # The cost of a cover is derived for neighbors that differ in one point.
    points = Counter(_names(values.points[:]))
    other_points = Counter(_names(others.points[:]))
    n_changed = max((points - other_points).total(), (other_points - points).total())
    charged = mechanism.cost(sensitivity)
    return Cost(epsilon=n_changed * charged.epsilon, delta=n_changed * charged.delta)


@loss.register
def _(
    mechanism: MaximumCover,
    outcome: np.ndarray,
    values: CoverProblem,
    others: CoverProblem,
    sensitivity: ScoreRange,
) -> float:
    # The sum of weights over the lattice is not at hand: its loss is left out.
    return math.nan


# Reports of users


@realized.register
def _(
    mechanism: FrequencyOracle, values: UserCells, others: UserCells, sensitivity: LocalDomain
) -> Cost:
    symbols = mechanism.symbols_of(values.users, values.cells)
    other_symbols = mechanism.symbols_of(others.users, others.cells)
    n_changed = int((symbols != other_symbols).sum())
    return Cost(epsilon=n_changed * math.log(mechanism.p_true / mechanism.p_false))


@loss.register
def _(
    mechanism: FrequencyOracle,
    outcome: np.ndarray,
    values: UserCells,
    others: UserCells,
    sensitivity: LocalDomain,
) -> float:
    is_true = outcome[0] == mechanism.symbols_of(values.users, values.cells)
    is_other_true = outcome[0] == mechanism.symbols_of(others.users, others.cells)
    odds = math.log(mechanism.p_true / mechanism.p_false)
    return odds * (int(is_true.sum()) - int(is_other_true.sum()))


def signed_vectors(mechanism: VectorRandomizer, values: UserVectors) -> np.ndarray:
    """Vectors (m, d) that a randomizer takes, with the public signs of sums over cells."""
    if not isinstance(mechanism, SignedSums):
        return values.vectors
    return values.vectors * random_signs(mechanism.key, values.users, values.cells)[:, None]


@realized.register
def _(
    mechanism: VectorRandomizer, values: UserVectors, others: UserVectors, sensitivity: LocalDomain
) -> Cost:
    vectors = signed_vectors(mechanism, values)
    other_vectors = signed_vectors(mechanism, others)
    changed = (vectors != other_vectors).any(axis=1)
    flip = mechanism.flip_probability(np.linalg.norm(vectors[changed], axis=1))
    other_flip = mechanism.flip_probability(np.linalg.norm(other_vectors[changed], axis=1))
    # A direction may lie on the side of both vectors, of one of them, or of neither.
    probabilities = np.log(np.stack([flip, 1 - flip]))
    other_probabilities = np.log(np.stack([other_flip, 1 - other_flip]))
    ratios = np.abs(probabilities[:, None] - other_probabilities[None])
    return Cost(epsilon=float(ratios.max(axis=(0, 1), initial=0.0).sum()))


@loss.register
def _(
    mechanism: VectorRandomizer,
    outcome: np.ndarray,
    values: UserVectors,
    others: UserVectors,
    sensitivity: LocalDomain,
) -> float:
    density = mechanism.density(signed_vectors(mechanism, values), outcome[0])
    other_density = mechanism.density(signed_vectors(mechanism, others), outcome[0])
    return float(np.log(density / other_density).sum())
