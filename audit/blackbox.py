"""Black box: distinguish neighbors by what runs release, and bound epsilon.

A decision rule guesses the first of two neighbors where a statistic of the release is
above a threshold. One half of the runs chooses the rule. On the other half the
rates of both errors have Clopper and Pearson's bounds. The bound on epsilon therefore
holds with 95 % confidence whatever the method does. It needs no knowledge of the code,
so that it sees a method that goes around both the curator and the streams. It is weak,
because it sees only the end.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pkm.audit.pairs import (
    Pair,
    draw_far_record,
    draw_heavy_clusters,
    draw_lone_record,
    draw_pair,
)
from pkm.audit.replay import ReplayMismatch, measure_losses, trace_run
from pkm.compute import SCALE
from pkm.privacy import Adjacency

CONFIDENCE = 0.975  # of each of two bounds: both hold with 95 %
# Numbers of records and of clusters; None is the method's own. Cohorts and regions need
# many records. Elsewhere the change of one record shows most among few.
LARGE_SIZES = ((300, 1), (300, None))
SMALL_SIZES = ((3, 1), (4, 2), (6, 3))
SIZES = {Adjacency.LOCAL: LARGE_SIZES, Adjacency.RHO_BOUNDED: LARGE_SIZES}
N_FEATURES = 2
LOSS_DECIMALS = 6
MAX_LOSS = 1e9  # of a transcript that one side cannot have
BATCH = 500  # runs together where a method runs in batches
GENERATORS = (draw_lone_record, draw_far_record, draw_heavy_clusters)
Seed = tuple[int, ...]


@dataclass(frozen=True)
class EpsilonBound:
    """Lower bound on epsilon.

    Attributes
    ----------
    epsilon : float
        With 95 % confidence, epsilon at the ledger's delta is at least that; 0 if
        nothing was seen.
    spent : float
        Epsilon that the ledger has spent; NaN where it was not asked.
    auc : float
        Area under the curve of the chosen statistic, on the half that did not choose
        it.
    transcript : float or None
        The same bound from all releases of a run, by their exact likelihood ratio; None
        where no formula gives it.
    """

    epsilon: float
    spent: float
    auc: float
    transcript: float | None = None

    @property
    def largest(self) -> float:
        """The larger of the bounds from centers and from transcripts."""
        return max(self.epsilon, self.transcript or 0.0)

    @property
    def violated(self) -> bool:
        """Whether epsilon is larger than the ledger says."""
        return self.largest > self.spent


def bound_epsilon(
    method: Any,
    n_runs: int,
    seed: int,
) -> EpsilonBound:
    """Attack a method by its centers and transcripts, on the pair that shows most.

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
    candidates = _draw_candidates(method, seed)

    def attack_best(
        attack: Callable[..., EpsilonBound | None],
        stream: int,
        key: Callable[[EpsilonBound], Any],
    ) -> EpsilonBound | None:
        # Other runs choose the pair than those that the bound is computed from.
        n_trials = max(n_runs // 20, 60)
        trials = []
        for i, candidate in enumerate(candidates):
            trial = attack(*candidate, n_trials, (seed, i, stream))
            if trial is None:
                return None
            trials.append(key(trial))
        best = max(range(len(trials)), key=trials.__getitem__)
        return attack(*candidates[best], n_runs, (seed, best, stream + 1))

    bound = attack_best(_attack_centers, 0, lambda trial: (trial.epsilon, trial.auc))
    transcript = attack_best(_attack_transcripts, 2, lambda trial: trial.auc)
    assert bound is not None, "centers always give a bound"
    return replace(bound, transcript=transcript and transcript.epsilon)


def _draw_candidates(
    method: Any,
    seed: int,
) -> list[tuple[Any, Pair]]:
    """Draw pairs by each of `GENERATORS`, each with the method for few clusters."""
    adjacency = Adjacency(method.claim.adjacency)
    sizes = SIZES.get(adjacency, SMALL_SIZES)
    candidates = []
    cases = itertools.product(GENERATORS, sizes)
    for number, (generator, (n, k)) in enumerate(cases):
        k = k or method.n_clusters
        configuration = cast(Any, clone(method)).set_params(n_clusters=k)
        rng = np.random.default_rng((seed, number))
        rho = configuration.budget(n, N_FEATURES).rho
        pair = draw_pair(generator, adjacency, rng, n, N_FEATURES, rho)
        candidates.append((configuration, pair))
    return candidates


def _attack_transcripts(
    method: Any,
    pair: Pair,
    n_runs: int,
    seed: Seed,
) -> EpsilonBound | None:
    """Bound epsilon on one pair by the exact likelihood ratio of all releases."""
    sides = []
    for i, side in enumerate((pair, pair.reversed)):
        losses = measure_transcripts(method, side, n_runs, (*seed, i))
        if losses is None:
            return None
        sides.append(losses[:, None])
    delta = method.budget(len(pair.rows), N_FEATURES).delta
    return bound_by_rule(
        sides[0],
        -sides[1],
        delta,
        math.nan,
    )


def measure_transcripts(
    method: Any,
    pair: Pair,
    n_runs: int,
    seed: Seed,
) -> np.ndarray | None:
    """Measure the exact privacy losses of the transcripts of many runs.

    Each run on the points is replayed on the neighbor.

    Returns
    -------
    ndarray of shape (n_runs,) or None
        None where a loss has no formula, or where the runs differ in more than exact
        answers.
    """
    losses = []
    for batch in _batch_seeds(method, n_runs, seed):
        public_seeds = [0] * len(batch)
        recorded = trace_run(method, pair.points, batch, pair.domain, public_seeds)
        try:
            replayed = trace_run(
                method,
                pair.reversed.points,
                batch,
                pair.domain,
                public_seeds,
                recorded.draws,
            )
        except ReplayMismatch:
            return None
        draws = list(zip(recorded.draws, replayed.draws, strict=True))
        losses += measure_losses(draws, len(batch))
    if np.isnan(losses).any():
        return None
    # Discrete laws have losses with atoms. Computed from either side they differ in
    # their last bits, which would distinguish the sides.
    return np.round(np.clip(losses, -MAX_LOSS, MAX_LOSS), LOSS_DECIMALS)


def _attack_centers(
    method: Any,
    pair: Pair,
    n_runs: int,
    seed: Seed,
) -> EpsilonBound:
    """Bound epsilon on one pair by released centers."""
    sides = [
        _release(method, side, n_runs, (*seed, i))
        for i, side in enumerate((pair, pair.reversed))
    ]
    k = max(centers.shape[1] for centers, _ in sides)
    features, other_features = (
        compute_statistics(_pad(centers, k), pair) for centers, _ in sides
    )

    # Learn one more statistic on the first half.
    half = n_runs // 2
    learned = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    examples = np.concatenate([features[:half], other_features[:half]])
    learned.fit(examples, np.repeat([1, 0], half))
    scores, other_scores = (
        np.column_stack([table, learned.decision_function(table)])
        for table in (features, other_features)
    )
    delta = method.budget(len(pair.rows), N_FEATURES).delta
    return bound_by_rule(
        scores,
        other_scores,
        delta,
        sides[0][1],
    )


def bound_by_rule(
    scores: np.ndarray,
    other_scores: np.ndarray,
    delta: float,
    spent: float,
    confidence: float = CONFIDENCE,
) -> EpsilonBound:
    """Choose a decision rule on half of the runs; bound epsilon on the others."""
    # A statistic may be low on the first data set: try each with both signs.
    scores = np.concatenate([scores, -scores], axis=1)
    other_scores = np.concatenate([other_scores, -other_scores], axis=1)
    half = len(scores) // 2
    column, threshold = choose_rule(
        scores[:half],
        other_scores[:half],
        delta,
    )
    left = scores[half:, column]
    right = other_scores[half:, column]
    hits = int((left > threshold).sum())
    other_hits = int((right > threshold).sum())
    epsilon = float(
        compute_bound(
            hits,
            other_hits,
            len(left),
            delta,
            confidence,
        )
    )
    # The probability that the statistic is larger on one data set than on the other.
    n_larger = stats.mannwhitneyu(left, right).statistic
    auc = n_larger / (len(left) * len(right))
    return EpsilonBound(epsilon, spent, float(max(auc, 1 - auc)))


def _release(
    method: Any,
    pair: Pair,
    n_runs: int,
    seed: Seed,
) -> tuple[np.ndarray, float]:
    """Release the centers of many runs, with the public randomness held fixed.

    Returns
    -------
    centers : ndarray of shape (n_runs, k, d), float64
        In half-widths; where a run releases fewer than k, copies of its first follow.
    spent : float
        Epsilon of one run, by the ledger.
    """
    points = pair.points
    centers = []
    spent = 0.0
    for batch in _batch_seeds(method, n_runs, seed, together=n_runs):
        run = method.fit_with(
            lambda ledger, streams: method.curator(
                [points],
                ledger,
                streams,
                pair.domain,
            ),
            points.n_records,
            points.shape[1],
            batch,
            public_seeds=[0] * len(batch),
        )
        spent = run.ledger.spent()
        centers.append(run.centers / SCALE)
    k = max(batch.shape[1] for batch in centers)
    return np.concatenate([_pad(batch, k) for batch in centers]), spent


def _batch_seeds(
    method: Any,
    n_runs: int,
    seed: Seed,
    together: int = 1,
) -> list[list[int]]:
    """Draw seeds of runs, in batches where the method takes them.

    Else there are ``together`` at a time.
    """
    rng = np.random.default_rng(seed)
    seeds = rng.choice(2**62, n_runs, replace=False).tolist()
    is_batch = method.batched and not method.hides_n
    size = BATCH if is_batch else together
    return [seeds[start : start + size] for start in range(0, n_runs, size)]


def _pad(
    centers: np.ndarray,
    k: int,
) -> np.ndarray:
    """Fill sets of centers, (n_runs, number, d), up to k with copies of the first."""
    n_missing = k - centers.shape[1]
    copies = np.repeat(centers[:, :1], n_missing, axis=1)
    return np.concatenate([centers, copies], axis=1)


def compute_statistics(
    centers: np.ndarray,
    pair: Pair,
) -> np.ndarray:
    """Compute numbers that may distinguish neighbors from released centers.

    Parameters
    ----------
    centers : ndarray of shape (n_runs, k, d)
    pair : Pair

    Returns
    -------
    ndarray of shape (n_runs, m)
        Coordinates, in the order of release and sorted; distances of the record to the
        centers; the number of different centers.
    """
    canary = pair.rows[pair.index] / SCALE
    distances = np.linalg.norm(centers - canary, axis=2)
    flat = centers.reshape(len(centers), -1)
    n_different = [len(np.unique(run, axis=0)) for run in centers]
    return np.column_stack(
        [
            flat,
            np.sort(flat, axis=1),
            np.sort(distances, axis=1),
            n_different,
        ]
    )


def choose_rule(
    scores: np.ndarray,
    other_scores: np.ndarray,
    delta: float,
) -> tuple[int, float]:
    """Choose the decision rule whose bound on epsilon is largest on some runs.

    Returns
    -------
    column : int
        Of the statistic.
    threshold : float
    """
    n = len(scores)
    pooled = np.concatenate([scores, other_scores])
    levels = np.linspace(0.002, 0.998, 60)
    thresholds = np.quantile(pooled, levels, axis=0)
    hits = (scores[:, None] > thresholds).sum(axis=0)
    other_hits = (other_scores[:, None] > thresholds).sum(axis=0)
    values = compute_bound(hits, other_hits, n, delta)
    # Without a bound above zero, the larger difference of the rates is better.
    values = values + 1e-6 * np.abs(hits - other_hits) / n
    column, winner = np.unravel_index(values.T.argmax(), values.T.shape)
    return int(column), float(thresholds[winner, column])


def compute_bound(
    hits: int | np.ndarray,
    other_hits: int | np.ndarray,
    n: int,
    delta: float,
    confidence: float = CONFIDENCE,
) -> np.ndarray:
    """Compute a lower bound on epsilon from the rates of an event on both data sets.

    Parameters
    ----------
    hits, other_hits : int or ndarray
        Runs of the event on the two data sets.
    n : int
        Runs on each.
    delta : float
    confidence : float, default=0.975
        Over both directions together.

    Returns
    -------
    ndarray of the shape of the hits
        At least 0.

    Examples
    --------
    >>> compute_bound(500, 0, 1000, 0.0).round(2).item()
    4.51
    >>> compute_bound(500, 480, 1000, 0.0).item()
    0.0
    """
    # Two directions, two rates each.
    level = (1 - confidence) / 4
    best = np.zeros(np.shape(hits))
    for left, right in ((hits, other_hits), (other_hits, hits)):
        left = np.asarray(left)
        right = np.asarray(right)
        successes = np.maximum(left, 1)
        lower = stats.beta.ppf(level, successes, n - left + 1)
        lower = np.where(left > 0, lower, 0.0)
        failures = np.maximum(n - right, 1)
        upper = stats.beta.ppf(1 - level, right + 1, failures)
        upper = np.where(right < n, upper, 1.0)
        bound = np.log(np.maximum(lower - delta, 1e-300) / upper)
        best = np.maximum(best, bound)
    return best
