"""Black box: distinguish neighbors by what runs release, and bound epsilon from the errors.

The statistic and its threshold are chosen on one half of the runs. On the other half the rates of
both errors are bounded by Clopper and Pearson, so that the bound on epsilon holds with 95 %
confidence whatever the method does. It needs no knowledge of the code, which is why it sees a
method that goes around both the curator and the streams; and it is weak, because it sees only the
end.
"""

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pkm.audit.pairs import Pair, far_record, heavy_clusters, lone_record, replacement_of
from pkm.audit.replay import (
    Divergence,
    RecordingStreams,
    losses_by_replicate,
    replayed_on_neighbor,
    traced,
)
from pkm.compute import SCALE, Points
from pkm.privacy import Adjacency

CONFIDENCE = 0.95
SIZES = {Adjacency.LOCAL: 300, Adjacency.RHO_BOUNDED: 300}  # records; cohorts and regions need some
# Elsewhere numbers of records and of clusters: among few records a single one shows most.
SMALL_SIZES = ((3, 1), (4, 2), (6, 3))
N_FEATURES = 2
LOSS_DECIMALS = 6
MAX_LOSS = 1e9  # of a transcript that one side cannot have
BATCH = 500  # runs together where a method runs in batches
KINDS = (lone_record, far_record, heavy_clusters)


@dataclass(frozen=True)
class EpsilonBound:
    """Lower bound on epsilon.

    Attributes
    ----------
    epsilon : float
        With 95 % confidence, epsilon at the ledger's delta is at least that; 0 if nothing was seen.
    claimed : float
        Epsilon that the ledger has spent.
    pair : str
    n_runs : int
        On either data set.
    auc : float
        Area under the curve of the chosen statistic, on the half that it was not chosen on.
    transcript : float or None
        The same bound from all releases of a run, by their exact likelihood ratio; None where no
        formula gives it.
    """

    epsilon: float
    claimed: float
    pair: str
    n_runs: int
    auc: float
    transcript: float | None = None

    @property
    def largest(self) -> float:
        """The larger of the bounds from centers and from transcripts."""
        return max(self.epsilon, self.transcript or 0.0)

    @property
    def violated(self) -> bool:
        """Whether epsilon is larger than the ledger says."""
        return self.largest > self.claimed


def blackbox_view(method: Any, n_runs: int, seed: int) -> EpsilonBound:
    """Attack a method by its released centers and by its transcripts, on the pair that shows most.

    Parameters
    ----------
    method : pkm.methods.PrivateKMeans
    n_runs : int
        On either data set; a twentieth of them tries each pair.
    seed : int

    Returns
    -------
    EpsilonBound
    """
    # The pairs are chosen by other runs than the bounds are computed from.
    n_trials = max(n_runs // 20, 60)
    candidates = _candidates(method, seed)
    numbers = range(len(candidates))
    centers = [_attack_centers(*candidates[i], n_trials, (seed, i, 0)) for i in numbers]
    best = max(numbers, key=lambda i: (centers[i].epsilon, centers[i].auc))
    bound = _attack_centers(*candidates[best], n_runs, (seed, best, 1))

    transcripts = [_attack_transcripts(*candidates[i], n_trials, (seed, i, 2)) for i in numbers]
    if None in transcripts:
        return bound
    best = max(numbers, key=lambda i: (transcripts[i] or (0.0, 0.0))[1])
    transcript = _attack_transcripts(*candidates[best], n_runs, (seed, best, 3))
    return replace(bound, transcript=None if transcript is None else transcript[0])


def _candidates(method: Any, seed: int) -> list[tuple[Any, Pair]]:
    """Pairs of every kind, each with the method for a small number of clusters."""
    adjacency = Adjacency(method.claim.adjacency)
    domain = np.array([[-1.0] * N_FEATURES, [1.0] * N_FEATURES])
    sizes = SMALL_SIZES
    if adjacency in SIZES:
        sizes = ((SIZES[adjacency], 1), (SIZES[adjacency], method.n_clusters))
    candidates = []
    for number, (kind, (n, k)) in enumerate(itertools.product(KINDS, sizes)):
        variation = cast(Any, clone(method)).set_params(n_clusters=k)
        rng = np.random.default_rng((seed, number))
        rows, index = kind(rng, n, N_FEATURES)
        rho = variation.budget(n, N_FEATURES).rho
        replacement = replacement_of(adjacency, rng, rows[index], rho)
        candidates.append((variation, Pair(kind.__name__, rows, index, replacement, domain)))
    return candidates


def _attack_transcripts(
    method: Any, pair: Pair, n_runs: int, seed: tuple[int, ...]
) -> tuple[float, float] | None:
    """Bound epsilon on one pair by the exact likelihood ratio of all releases; bound and AUC."""
    losses = transcript_losses(method, pair, n_runs, (*seed, 0))
    other_losses = transcript_losses(method, pair.reversed, n_runs, (*seed, 1))
    if losses is None or other_losses is None:
        return None
    delta = method.budget(len(pair.rows), N_FEATURES).delta
    return _bound_on_half(losses[:, None], -other_losses[:, None], delta)


def transcript_losses(
    method: Any, pair: Pair, n_runs: int, seed: tuple[int, ...]
) -> np.ndarray | None:
    """Exact privacy losses of the transcripts of many runs, shape (n_runs,).

    Each run on the points is replayed on the neighbor. None where a loss has no formula, or where
    the runs differ in more than exact answers.
    """
    found = []
    for batch in _batches(method, n_runs, seed):
        public_seeds = [0] * len(batch)
        recorded = traced(method, pair.points, batch, pair.domain, RecordingStreams, public_seeds)
        try:
            replayed = replayed_on_neighbor(method, pair, batch, recorded, public_seeds)
        except Divergence:
            return None
        draws = list(zip(recorded.draws, replayed.draws, strict=True))
        found.append(losses_by_replicate(draws, len(batch)))
    losses = np.concatenate(found)
    if np.isnan(losses).any():
        return None
    # Discrete laws have losses with atoms. Computed from either side they differ in their last
    # bits, which would distinguish the sides.
    return np.round(np.clip(losses, -MAX_LOSS, MAX_LOSS), LOSS_DECIMALS)


def _attack_centers(method: Any, pair: Pair, n_runs: int, seed: tuple[int, ...]) -> EpsilonBound:
    """Bound epsilon on one pair by released centers."""
    here, claimed, delta = released(method, pair, pair.points, n_runs, (*seed, 0))
    there, _, _ = released(method, pair, pair.neighbor, n_runs, (*seed, 1))
    k = max(here.shape[1], there.shape[1])
    features = statistics(_padded(here, k), pair)
    other_features = statistics(_padded(there, k), pair)
    half = n_runs // 2

    # Choose the statistic and its threshold on the first half.
    learned = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    learned.fit(
        np.concatenate([features[:half], other_features[:half]]),
        np.repeat([1, 0], half),
    )
    scores = np.column_stack([features, learned.decision_function(features)])
    other_scores = np.column_stack([other_features, learned.decision_function(other_features)])
    epsilon, auc = _bound_on_half(scores, other_scores, delta)
    return EpsilonBound(epsilon, claimed, pair.name, n_runs, auc)


def _bound_on_half(
    scores: np.ndarray, other_scores: np.ndarray, delta: float
) -> tuple[float, float]:
    """Choose a rule on the first half of the runs; bound epsilon on the second, with the AUC."""
    half = len(scores) // 2
    rule = best_rule(scores[:half], other_scores[:half], delta)
    hits = int(rule.applies(scores[half:]).sum())
    other_hits = int(rule.applies(other_scores[half:]).sum())
    epsilon = float(epsilon_bound(hits, other_hits, len(scores) - half, delta))
    auc = _auc(scores[half:, rule.column], other_scores[half:, rule.column])
    return epsilon, auc


def released(
    method: Any, pair: Pair, points: Points, n_runs: int, seed: tuple[int, ...]
) -> tuple[np.ndarray, float, float]:
    """Released centers of many runs, with the public randomness held fixed.

    Returns
    -------
    centers : ndarray of shape (n_runs, k, d), float64
        In half-widths; where a run releases fewer than k, copies of its first follow.
    spent, delta : float
        Of one run, by the ledger.
    """
    centers = []
    spent = 0.0
    delta = 0.0
    for batch in _batches(method, n_runs, seed, together=n_runs):
        run = method.fit_with(
            lambda ledger, streams: method.curator([points], ledger, streams, pair.domain),
            points.n_records,
            points.shape[1],
            batch,
            public_seeds=[0] * len(batch),
        )
        spent = run.ledger.spent()
        delta = run.ledger.budget.delta
        centers.append(run.centers / SCALE)
    k = max(part.shape[1] for part in centers)
    return np.concatenate([_padded(part, k) for part in centers]), spent, delta


def _batches(method: Any, n_runs: int, seed: tuple[int, ...], together: int = 1) -> list[list[int]]:
    """Seeds of runs, in batches where the method takes them; else ``together`` at a time."""
    seeds = np.random.default_rng(seed).choice(2**62, n_runs, replace=False).tolist()
    size = BATCH if method.batched else together
    return [seeds[start : start + size] for start in range(0, n_runs, size)]


def _padded(centers: np.ndarray, k: int) -> np.ndarray:
    """Fill sets of centers, (n_runs, number, d), up to k with copies of the first of each."""
    copies = np.repeat(centers[:, :1], k - centers.shape[1], axis=1)
    return np.concatenate([centers, copies], axis=1)


def statistics(centers: np.ndarray, pair: Pair) -> np.ndarray:
    """Numbers that may distinguish neighbors, (n_runs, m), from released centers (n_runs, k, d).

    Coordinates, in the order of release and sorted; distances of the record to the centers; the
    number of different centers.
    """
    canary = pair.rows[pair.index] / SCALE
    distances = np.sort(np.linalg.norm(centers - canary, axis=2), axis=1)
    flat = centers.reshape(len(centers), -1)
    different = [[len(np.unique(run, axis=0))] for run in centers]
    return np.column_stack([flat, np.sort(flat, axis=1), distances, different])


@dataclass(frozen=True)
class Rule:
    """Guess the first data set where a statistic is above a threshold, or below it."""

    column: int
    threshold: float
    above: bool

    def applies(self, scores: np.ndarray) -> np.ndarray:
        """Whether the rule guesses so, for each run."""
        found = scores[:, self.column]
        return found > self.threshold if self.above else found < self.threshold


def best_rule(scores: np.ndarray, other_scores: np.ndarray, delta: float) -> Rule:
    """The rule whose bound on epsilon is largest on the runs given, bounds included."""
    n = len(scores)
    best = (-math.inf, Rule(0, 0.0, True))
    for column in range(scores.shape[1]):
        pooled = np.concatenate([scores[:, column], other_scores[:, column]])
        thresholds = np.unique(np.quantile(pooled, np.linspace(0.002, 0.998, 60)))
        for above in (True, False):
            rules = [Rule(column, float(t), above) for t in thresholds]
            hits = np.array([rule.applies(scores).sum() for rule in rules])
            other_hits = np.array([rule.applies(other_scores).sum() for rule in rules])
            # Without a bound above zero, the larger difference of the rates is better.
            values = epsilon_bound(hits, other_hits, n, delta)
            values = values + 1e-6 * np.abs(hits - other_hits) / n
            winner = int(values.argmax())
            if values[winner] > best[0]:
                best = (float(values[winner]), rules[winner])
    return best[1]


def epsilon_bound(
    hits: int | np.ndarray, other_hits: int | np.ndarray, n: int, delta: float
) -> np.ndarray:
    """Lower bound on epsilon from the rates of one event on both data sets.

    Parameters
    ----------
    hits, other_hits : int or ndarray
        Runs of the event on the two data sets.
    n : int
        Runs on each.
    delta : float

    Returns
    -------
    ndarray of the shape of the hits
        At least 0; with 95 % confidence, over both directions together.

    Examples
    --------
    >>> epsilon_bound(500, 0, 1000, 0.0).round(2).item(), epsilon_bound(500, 480, 1000, 0.0).item()
    (4.66, 0.0)
    """
    # Two directions, two rates each.
    level = (1 - CONFIDENCE) / 4
    best = np.zeros(np.shape(hits))
    for one, another in ((hits, other_hits), (other_hits, hits)):
        one = np.asarray(one)
        another = np.asarray(another)
        lower = np.where(one > 0, stats.beta.ppf(level, np.maximum(one, 1), n - one + 1), 0.0)
        upper = stats.beta.ppf(1 - level, another + 1, np.maximum(n - another, 1))
        upper = np.where(another < n, upper, 1.0)
        bound = np.log(np.maximum(lower - delta, 1e-300) / upper)
        best = np.maximum(best, bound)
    return best


def _auc(one: np.ndarray, another: np.ndarray) -> float:
    """Probability that a statistic is larger on one data set than on the other, at least 1/2."""
    statistic = stats.mannwhitneyu(one, another).statistic / (len(one) * len(another))
    return float(max(statistic, 1 - statistic))
