"""Residuals: whether noise follows the law that it was charged for.

Every outcome is turned into uniform numbers by the distribution function of the law that its
mechanism declares, given the exact answer (the randomized probability integral transform, where
the law is discrete). Pooled over releases and runs they must be uniform, uncorrelated between
releases, and different in every run. Replay is blind to all of that: it never looks at how
outcomes are drawn.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import log_ndtr, ndtr, ndtri

from pkm.audit.losses import log_probabilities, signed_vectors
from pkm.audit.replay import Draw
from pkm.privacy.grid import SCALE
from pkm.privacy.mechanisms.additive import BoundedLaplace, BoundedValues, Gaussian, Laplace
from pkm.privacy.mechanisms.randomizers import (
    FrequencyOracle,
    LocalDomain,
    UserCells,
    UserVectors,
    VectorRandomizer,
)
from pkm.privacy.mechanisms.selection import Exponential, OrderStatistics, Percentile, ScoreRange
from pkm.privacy.mechanisms.stability_histogram import (
    OccupiedCells,
    ReleasedCells,
    StabilityHistogram,
)
from pkm.privacy.queries.moved_records import SortedGaussian, SortedRows
from pkm.privacy.queries.projection import MaximumCover
from pkm.privacy.query import Sensitivity

ALARM = 1e-9  # largest p-value that is an alarm: far below one in a million audits of a few tests
# Noise vectors of so many words, of so large a scale in grid steps, repeat by chance with
# probability below 1e-7 in a thousand runs.
MIN_WORDS = 4
MIN_SPREAD = 2.0**10
SMALLEST = 1e-16  # of uniform numbers, as float64 resolves them below 1
MIN_VALUES = 200  # fewer residuals of a law have no power against a factor of 2


@singledispatch
def uniforms(
    mechanism: Any, outcome: Any, values: Any, sensitivity: Any, rng: np.random.Generator
) -> np.ndarray:
    """Uniform numbers from an outcome, if it was drawn by its law from the exact answer.

    Parameters
    ----------
    mechanism
        The dispatch is on its type.
    outcome, values
        Of one draw.
    sensitivity
        That the release was charged for.
    rng : Generator
        For laws that are discrete.

    Returns
    -------
    ndarray of shape (replicates, m), float64
    """
    raise ValueError(f"mechanism={mechanism!r} has no law that an audit knows")


def _noise(outcome: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Noise of every replicate, shape (replicates, m), in grid steps."""
    return (np.asarray(outcome) - np.asarray(values)).reshape(len(outcome), -1).astype(float)


def _scales(outcome: np.ndarray, scale: float, sensitivity: Sensitivity) -> np.ndarray:
    scales = np.broadcast_to(scale * np.asarray(sensitivity.unit), np.shape(outcome))
    return scales.reshape(len(outcome), -1)


def _between(lower: np.ndarray, upper: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Uniform numbers between two values of a distribution function."""
    return lower + (upper - lower) * rng.random(np.shape(lower))


@uniforms.register
def _(
    mechanism: Gaussian,
    outcome: np.ndarray,
    values: np.ndarray,
    sensitivity: Sensitivity,
    rng: np.random.Generator,
) -> np.ndarray:
    noise = _noise(outcome, values)
    scales = _scales(outcome, mechanism.scale, sensitivity)
    return _between(ndtr((noise - 0.5) / scales), ndtr((noise + 0.5) / scales), rng)


@uniforms.register
def _(
    mechanism: Laplace,
    outcome: np.ndarray,
    values: np.ndarray,
    sensitivity: Sensitivity,
    rng: np.random.Generator,
) -> np.ndarray:
    noise = _noise(outcome, values)
    scales = _scales(outcome, mechanism.scale, sensitivity)
    lower = stats.laplace.cdf(noise - 0.5, scale=scales)
    return _between(lower, stats.laplace.cdf(noise + 0.5, scale=scales), rng)


@uniforms.register
def _(
    mechanism: BoundedLaplace,
    outcome: np.ndarray,
    values: BoundedValues,
    sensitivity: Sensitivity,
    rng: np.random.Generator,
) -> np.ndarray:
    center = np.clip(values.exact, values.lower, values.upper).astype(np.float64)
    b = mechanism.scale(values.upper - values.lower)

    def cdf(x: np.ndarray) -> np.ndarray:
        x = np.clip(x, values.lower, values.upper)
        below = stats.laplace.cdf((values.lower - center) / b)
        inside = stats.laplace.cdf((values.upper - center) / b) - below
        return (stats.laplace.cdf((x - center) / b) - below) / inside

    return _between(cdf(outcome - 0.5), cdf(outcome + 0.5), rng).reshape(len(outcome), -1)


@uniforms.register
def _(
    mechanism: Exponential,
    outcome: np.ndarray,
    values: list,
    sensitivity: ScoreRange,
    rng: np.random.Generator,
) -> np.ndarray:
    scales = mechanism.epsilon / np.atleast_1d(sensitivity.change)
    found = np.empty(len(values))
    choices = np.ravel(outcome).tolist()
    for i, (choice, scores, scale) in enumerate(zip(choices, values, scales, strict=True)):
        # From the likeliest candidate down: a law that is too sharp chooses too many of the first.
        order = np.argsort(-np.asarray(scores), kind="stable")
        probabilities = np.exp(log_probabilities(scores, scale))[order]
        position = int(np.flatnonzero(order == choice)[0])
        found[i] = probabilities[:position].sum() + rng.random() * probabilities[position]
    return found[None]


@uniforms.register
def _(
    mechanism: Percentile,
    outcome: np.ndarray,
    values: OrderStatistics,
    sensitivity: ScoreRange,
    rng: np.random.Generator,
) -> np.ndarray:
    n_intervals = len(values.ordered) + 1
    edges = values.edges(0, n_intervals)
    lengths = np.maximum(np.diff(edges), 0.0)
    utility = -np.abs(np.arange(n_intervals) - values.rank)
    exponents = mechanism.epsilon / float(np.max(sensitivity.change)) * utility
    masses = lengths * np.exp(exponents - exponents.max())
    interval = np.clip(np.searchsorted(edges, outcome, side="right") - 1, 0, n_intervals - 1)
    below = np.concatenate([[0.0], np.cumsum(masses)])[interval]
    fraction = (outcome - edges[interval]) / np.maximum(lengths[interval], 1e-300)
    return ((below + fraction * masses[interval]) / masses.sum()).reshape(len(outcome), -1)


@uniforms.register
def _(
    mechanism: StabilityHistogram,
    outcome: list[ReleasedCells],
    values: OccupiedCells,
    sensitivity: Sensitivity,
    rng: np.random.Generator,
) -> np.ndarray:
    released = {
        np.ascontiguousarray(cell).tobytes(): count
        for cell, count in zip(outcome[0].cells, outcome[0].counts.tolist(), strict=True)
    }
    threshold = max(mechanism.threshold, values.min_count) - 0.5 / SCALE
    found = []
    for cell, count in zip(values.cells, values.counts.tolist(), strict=True):
        noisy = released.get(np.ascontiguousarray(cell).tobytes())
        if noisy is None:
            hidden = math.exp(log_ndtr((threshold - count) / mechanism.stddev))
            found.append(rng.random() * hidden)
        elif noisy / SCALE < threshold:
            found.append(0.0)  # the law never releases it
        else:
            found.append(float(ndtr((noisy / SCALE - count) / mechanism.stddev)))
    return np.array([found])


@uniforms.register
def _(
    mechanism: SortedGaussian,
    outcome: list[SortedRows],
    values: np.ndarray,
    sensitivity: Sensitivity,
    rng: np.random.Generator,
) -> np.ndarray:
    noised = np.empty_like(outcome[0].rows)
    noised[outcome[0].order] = outcome[0].rows
    return uniforms(Gaussian(mechanism.scale), noised[None], values, sensitivity, rng)


@uniforms.register
def _(
    mechanism: MaximumCover,
    outcome: np.ndarray,
    values: Any,
    sensitivity: ScoreRange,
    rng: np.random.Generator,
) -> np.ndarray:
    # The law of a pick is tested against enumeration, in the tests of the mechanism.
    return np.empty((1, 0))


@uniforms.register
def _(
    mechanism: FrequencyOracle,
    outcome: np.ndarray,
    values: UserCells,
    sensitivity: LocalDomain,
    rng: np.random.Generator,
) -> np.ndarray:
    is_true = outcome[0] == mechanism.symbols_of(values.users, values.cells)
    p_false = 1 - mechanism.p_true
    lower = np.where(is_true, p_false, 0.0)
    upper = np.where(is_true, 1.0, p_false)
    return _between(lower, upper, rng)[None]


@uniforms.register
def _(
    mechanism: VectorRandomizer,
    outcome: np.ndarray,
    values: UserVectors,
    sensitivity: LocalDomain,
    rng: np.random.Generator,
) -> np.ndarray:
    products = np.einsum("ij,ij->i", outcome[0].astype(float), signed_vectors(mechanism, values))
    # A direction at a right angle to the vector, as any is to the vector 0, has no side.
    has_side = products != 0
    vectors = signed_vectors(mechanism, values)[has_side]
    p_flip = mechanism.flip_probability(np.linalg.norm(vectors, axis=1))
    on_side = products[has_side] > 0
    lower = np.where(on_side, p_flip, 0.0)
    upper = np.where(on_side, 1.0, p_flip)
    return _between(lower, upper, rng)[None]


@dataclass(frozen=True)
class LawTest:
    """Test of one property of the noise of all releases of a kind.

    Attributes
    ----------
    label : str
        Of the releases; of two kinds, where they are compared.
    what : {"law", "correlation", "repeats", "grid"}
        Distribution; correlation of two releases, or of the entries of one; noise that two runs
        share; outcomes between grid points.
    n_values : int
    p_value : float
    """

    label: str
    what: str
    n_values: int
    p_value: float

    @property
    def alarm(self) -> bool:
        """Whether the noise is not what was charged for."""
        return self.p_value < ALARM

    @property
    def powerless(self) -> bool:
        """Whether there were too few values to see a factor of 2."""
        return self.n_values < MIN_VALUES


def law_tests(runs: Iterable[Sequence[Draw]], seed: int) -> list[LawTest]:
    """Test the noise of runs whose seeds all differ.

    Parameters
    ----------
    runs : iterable of sequence of Draw
        Draws of each run in order.
    seed : int
        Of the random numbers that discrete laws need.

    Returns
    -------
    list of LawTest
    """
    rng = np.random.default_rng(seed)
    residuals: dict[str, list[np.ndarray]] = {}
    shared: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    seen: dict[str, list[bytes]] = {}
    off_grid: dict[str, int] = {}
    for draws in runs:
        rows: list[tuple[str, np.ndarray]] = []
        for draw in draws:
            found = uniforms(draw.mechanism, draw.outcome, draw.values, draw.sensitivity, rng)
            label = _label(draw)
            residuals.setdefault(label, []).append(found.ravel())
            rows.append((label, found))
            if found.shape[1] >= 2:
                size = found.shape[1] // 2
                halves = (found[:, : 2 * size : 2].ravel(), found[:, 1 : 2 * size : 2].ravel())
                shared.setdefault(f"{label}, its entries", []).append(halves)
            if isinstance(draw.mechanism, Gaussian | Laplace) and draw.outcome.dtype.kind != "i":
                off_grid[label] = off_grid.get(label, 0) + draw.outcome.size
            if found.shape[1] >= MIN_WORDS and isinstance(draw.mechanism, Gaussian | Laplace):
                if np.min(draw.mechanism.scale * np.asarray(draw.sensitivity.unit)) < MIN_SPREAD:
                    continue
                noise = _noise(draw.outcome, draw.values)
                key = f"{label} {draw.key}"
                seen.setdefault(key, []).extend(row.tobytes() for row in noise)
        for (label, one), (other_label, another) in _compared(rows):
            size = min(one.shape[1], another.shape[1])
            if size and len(one) == len(another):
                pair = (one[:, :size].ravel(), another[:, :size].ravel())
                shared.setdefault(f"{label}, {other_label}", []).append(pair)
    tests = [_law(label, np.concatenate(found)) for label, found in residuals.items()]
    tests += [_correlation(label, found) for label, found in shared.items()]
    tests += [_repeats(label, found) for label, found in seen.items()]
    tests += [LawTest(label, "grid", n, 0.0) for label, n in off_grid.items()]
    return [test for test in tests if test.n_values]


Row = tuple[str, np.ndarray]


def _compared(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Releases of a run that are compared: each with the one before, and that of its label."""
    last: dict[str, Row] = {}
    for number, row in enumerate(rows):
        if number > 0:
            yield rows[number - 1], row
        earlier = last.get(row[0])
        if earlier is not None and earlier is not rows[number - 1]:
            yield earlier, row
        last[row[0]] = row


def _label(draw: Draw) -> str:
    """Label of a release, and the part where there are several."""
    parts = [part for part in draw.key[2:] if isinstance(part, str)]
    return " ".join([draw.key[0], *parts])


def _law(label: str, found: np.ndarray) -> LawTest:
    """Whether uniform numbers are uniform: by Kolmogorov and Smirnov, and by their spread."""
    n = len(found)
    if not n:
        return LawTest(label, "law", 0, 1.0)
    uniform = np.clip(found, 0.0, 1.0)
    shape = float(stats.kstest(uniform, "uniform").pvalue)

    # Of the scale of noise the squares of normal scores tell far more.
    scores = ndtri(np.clip(uniform, SMALLEST, 1 - SMALLEST))
    squares = float(scores @ scores)
    spread = 2 * min(stats.chi2.cdf(squares, n), stats.chi2.sf(squares, n))
    return LawTest(label, "law", n, min(1.0, 2 * min(shape, float(spread))))


def _correlation(label: str, found: list[tuple[np.ndarray, np.ndarray]]) -> LawTest:
    """Whether neighboring releases share their noise."""
    one = np.concatenate([pair[0] for pair in found])
    another = np.concatenate([pair[1] for pair in found])
    n = len(one)
    if n < 3 or np.ptp(one) == 0 or np.ptp(another) == 0:
        return LawTest(label, "correlation", 0, 1.0)
    correlation = float(np.corrcoef(one, another)[0, 1])
    # Fisher's transformation; residuals are bounded, so that it is nearly normal.
    z = math.atanh(min(max(correlation, -1 + 1e-15), 1 - 1e-15)) * math.sqrt(max(n - 3, 1))
    return LawTest(label, "correlation", n, float(2 * stats.norm.sf(abs(z))))


def _repeats(label: str, rows: list[bytes]) -> LawTest:
    """Whether runs of different seeds share noise, which has a negligible probability."""
    repeated = len(rows) - len(set(rows))
    return LawTest(label, "repeats", len(rows), 0.0 if repeated else 1.0)
