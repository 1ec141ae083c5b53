"""Planted faults: broken queries, mechanisms, curators and methods, for the audit to find.

A fault is a small change of the real code. A broken query or mechanism is a subclass of the one
that it stands for, and ``broken`` makes a method whose curator takes it in its place.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np

from pkm.audit import audit
from pkm.compute import SCALE
from pkm.methods import EUGkM, FastLloyd, GLloyd, PrivateKMeans, SuLloyd
from pkm.methods.schedule import Schedule, plan_release
from pkm.privacy import (
    ClusterSummary,
    Curator,
    Gaussian,
    Laplace,
    NoiseStreams,
    PrivacyClaim,
    SumsAndCounts,
    gaussian_mu,
)
from pkm.privacy.local_aggregator import Cohort, LocalAggregator
from pkm.privacy.mechanisms.randomizers import SignedSums
from pkm.privacy.mechanisms.selection import Exponential
from pkm.privacy.mechanisms.stability_histogram import ReleasedCells, StabilityHistogram
from pkm.privacy.queries.clipped_queries import BucketCounts, BucketSums, CandidateSets, Swaps
from pkm.privacy.queries.clipped_regions import RegionCounts
from pkm.privacy.queries.sums import ONE_COUNT, nearest_sums_and_counts
from pkm.privacy.queries.tree import Splits
from pkm.privacy.query import Query, Sensitivity


def broken(method, *, queries=(), mechanisms=(), curator=None):
    """A method whose curator takes broken queries and mechanisms in the place of their bases."""
    base = curator or method.curator
    query_of = {query.__base__: query for query in queries}
    mechanism_of = {mechanism.__base__: mechanism for mechanism in mechanisms}
    served = {query: _served(query_of.get(query, query), mechanism_of) for query in base.serves}

    class Broken(base):
        serves = tuple(served.values())

        def release_all(self, requests, source=None):
            broken = [
                (_as(served, query), {part: _as(mechanism_of, own) for part, own in noise.items()})
                for query, noise in requests
            ]
            return super().release_all(broken, source)

    return type(method.__name__, (method,), {"curator": Broken})


def find_labels(method, n_pairs, n_tries=5, *, wanted=""):
    """Labels of unregistered findings of a replay: of the first with the wanted one, or with any.

    Of the seeds one in twenty misses a fault on a border, and which one depends on the processor.
    Of many pairs a quarter is tried first.
    """
    for seed in range(n_tries):
        for n_tried in sorted({n_pairs // 4, n_pairs} if n_pairs >= 24 else {n_pairs}):
            report = audit(method, ["replay"], n_pairs=n_tried, seed=seed)
            labels = {finding.label for finding in report.unregistered}
            if wanted in labels or (labels and not wanted):
                return labels
    return labels


def _served(query, mechanism_of):
    """A query that accepts broken mechanisms in the place of their bases."""
    mechanisms = {
        part: tuple(mechanism_of.get(mechanism, mechanism) for mechanism in allowed)
        for part, allowed in query.mechanisms.items()
    }
    return type(query.__name__, (query,), {"mechanisms": mechanisms})


def _as(classes, value):
    """The same value as one of another class."""
    known = classes.get(type(value), type(value))
    return known(*(getattr(value, each.name) for each in fields(value)))


# Broken queries: the exact answer and the declared sensitivity do not fit each other


class OffOriginSums(SumsAndCounts):
    """Sums about the data's origin, in widths of the domain: a record adds up to its far end."""

    def exact(self, view):
        exact = super().exact(view)
        lower, upper = view.domain
        origin = np.rint((upper + lower) / (upper - lower) * SCALE).astype(np.int64)
        records = exact["counts"][:, :, None] // SCALE
        return {**exact, "sums": (exact["sums"] + records * origin) // 2}


class PhantomRecord(SumsAndCounts):
    """An empty cluster has one record, at its old center."""

    def exact(self, view):
        exact = super().exact(view)
        is_empty = exact["counts"] == 0
        sums = np.where(is_empty[:, :, None], self.centers, exact["sums"])
        return {"sums": sums, "counts": np.where(is_empty, SCALE, exact["counts"])}


class HalvedSums(SumsAndCounts):
    """Half of what a record changes in a sum."""

    def sensitivity(self, view):
        found = dict(super().sensitivity(view))
        found["sums"] = Sensitivity(found["sums"].l1 / 2, found["sums"].l2 / 2)
        return found


class NothingInOneFeature(SumsAndCounts):
    """A sensitivity that is 0 for some parameters."""

    def sensitivity(self, view):
        found = dict(super().sensitivity(view))
        if view.n_features == 1:
            found["sums"] = Sensitivity(0.0, 0.0)
        return found


class NoRadius(SumsAndCounts):
    """Relative sums of all points, however far from their center."""

    def exact(self, view):
        return nearest_sums_and_counts(view, self.centers, self.centers)


class UnclippedCost(ClusterSummary):
    """Squared distances that are not clipped to the squared radius."""

    def exact(self, view):
        wide = ClusterSummary(self.centers, 16 * self.radius, self.thresholds).exact(view)
        return {**super().exact(view), "costs": 256 * wide["costs"]}


class UnclippedSums(BucketSums):
    """Sums of differences that are not shortened to the radius."""

    def of_block(self, view):
        return BucketSums(self.hashing, self.codes, self.origins, 100.0).of_block(view)


class ReplacedAsOne(BucketCounts):
    """A replacement among the remaining points charged as one record."""

    def sensitivity(self, view):
        return {"counts": ONE_COUNT}


class MovedAsOne(RegionCounts):
    """A move from one region to another charged as one record."""

    def sensitivity(self, view):
        return {"counts": ONE_COUNT}

    def n_changed_records(self, view):
        return 1


def _narrowed(found, factor):
    return {"choices": found["choices"]._replace(difference=found["choices"].difference / factor)}


class ThirdOfSwaps(Swaps):
    """A third of what a record adds to a cost."""

    def sensitivity(self, view):
        return _narrowed(super().sensitivity(view), 3)


class ThirdOfSets(CandidateSets):
    """A third of what a record adds to a cost."""

    def sensitivity(self, view):
        return _narrowed(super().sensitivity(view), 3)


class HalfOfSplits(Splits):
    """The factor 2 of the exponential mechanism left out."""

    def sensitivity(self, view):
        found = super().sensitivity(view)["choices"]
        return {"choices": found._replace(difference=found.difference / 2)}


@dataclass(frozen=True)
class SecondMoments(Query):
    """Sum of the outer products of all points."""

    label: ClassVar[str] = "second_moments"
    mechanisms: ClassVar[dict] = {"moments": (Gaussian,)}

    def sensitivity(self, view):
        norm = math.sqrt(view.n_features)  # its square is right
        return {"moments": Sensitivity(view.n_features * norm * SCALE, norm * SCALE)}

    def exact(self, view):
        rows = np.concatenate([shard.rows for shard in view._shards]).astype(np.int64)
        return {"moments": (rows.T @ rows // SCALE)[None]}


# Broken mechanisms: what is drawn does not follow the law that is charged


def multiplied(mechanism, factor, name):
    """A mechanism whose noise is multiplied by a factor."""

    def draw(self, values, streams, key, sensitivity=None):
        return mechanism(self.scale * factor).draw(values, streams, key, sensitivity)

    return type(name, (mechanism,), {"draw": draw})


HalfNoise = multiplied(Gaussian, 0.5, "HalfNoise")
HalfLaplace = multiplied(Laplace, 0.5, "HalfLaplace")
NineTenths = multiplied(Gaussian, 0.9, "NineTenths")
OverRootSeven = multiplied(Gaussian, 7**-0.5, "OverRootSeven")


class Variance(Gaussian):
    """The variance, in records, passed for the standard deviation."""

    def draw(self, values, streams, key, sensitivity=None):
        scale = (self.scale / SCALE) ** 2 * SCALE
        return Gaussian(scale).draw(values, streams, key, sensitivity)


class Truncated(Gaussian):
    """Noise truncated toward zero, to whole records."""

    def draw(self, values, streams, key, sensitivity=None):
        noise = super().draw(values, streams, key, sensitivity) - values
        return values + np.trunc(noise / SCALE).astype(np.int64) * SCALE


class OneScalar(Gaussian):
    """One value of noise for all entries of a vector."""

    def draw(self, values, streams, key, sensitivity=None):
        first = values[:, :1] * 0
        while first.ndim > 2:
            first = first[..., 0]
        return values + super().draw(first, streams, key).reshape(-1, *[1] * (values.ndim - 1))


class SharedStream(Gaussian):
    """Sums and counts of a round from one stream."""

    def draw(self, values, streams, key, sensitivity=None):
        return super().draw(values, streams, key[:2], sensitivity)


class OneStream(Gaussian):
    """One stream for all releases."""

    def draw(self, values, streams, key, sensitivity=None):
        return super().draw(values, streams, ("all",), sensitivity)


class SameEachRound(Gaussian):
    """The round left out of the key."""

    def draw(self, values, streams, key, sensitivity=None):
        return super().draw(values, streams, (key[0], *key[2:]), sensitivity)


class SameSeed(Gaussian):
    """The same seed in every run."""

    def draw(self, values, streams, key, sensitivity=None):
        fixed = NoiseStreams(range(len(values)))
        return super().draw(values, fixed, key, sensitivity)


class FixedFirstRound(Gaussian):
    """The same noise in the first round of every run."""

    def draw(self, values, streams, key, sensitivity=None):
        drawn = SameSeed if key[1] == 0 else Gaussian
        return drawn(self.scale).draw(values, streams, key, sensitivity)


class OffTheGrid(Laplace):
    """Noise between grid points."""

    def draw(self, values, streams, key, sensitivity=None):
        return values + self.scale * streams.laplace(key, values.shape[1:])


class Saturated(Gaussian):
    """A scale that integers do not carry: the noise is one of two values."""

    largest = 2**61

    def check(self, sensitivity):
        pass

    def draw(self, values, streams, key, sensitivity=None):
        signs = np.sign(streams.normal(key, values.shape[1:]))
        return values + signs.astype(np.int64) * self.largest


class TwiceAsSharp(Exponential):
    """Exponents twice as large as charged."""

    def draw(self, values, streams, key, sensitivity):
        return Exponential(2 * self.epsilon).draw(values, streams, key, sensitivity)


class WholeEpsilonPerLevel(SignedSums):
    """A report of two levels, each with the whole epsilon."""

    def draw(self, values, streams, key, sensitivity=None):
        twice = SignedSums(2 * self.epsilon, self.dimensions, self.key)
        return twice.draw(values, streams, key, sensitivity)


class LowThreshold(StabilityHistogram):
    """A threshold below every count."""

    threshold = -1e9


class NoThreshold(StabilityHistogram):
    """All occupied cells released, whatever the threshold."""

    def draw(self, values, streams, key, sensitivity):
        exact = np.asarray(values.counts, np.int64)[None] * SCALE
        noisy = Gaussian(self.stddev * SCALE).draw(exact, streams, key)[0]
        return [ReleasedCells(values.cells, noisy)]


# Broken curators


class SkipsEmpty(Curator):
    """Empty clusters and cells are released without noise."""

    def _draw(self, query, exact, sensitivities, noise, key):
        released = super()._draw(query, exact, sensitivities, noise, key)
        is_empty = exact["counts"] == 0
        return {
            part: np.where(
                is_empty.reshape(*is_empty.shape, *[1] * (outcome.ndim - is_empty.ndim)), 0, outcome
            )
            for part, outcome in released.items()
        }


class ExactDivisor(Curator):
    """Noisy sums are divided by exact counts."""

    def _draw(self, query, exact, sensitivities, noise, key):
        released = super()._draw(query, exact, sensitivities, noise, key)
        return {**released, "counts": exact["counts"]}


class TwoDraws(Curator):
    """Two draws, averaged, for one charge."""

    def _draw(self, query, exact, sensitivities, noise, key):
        first = super()._draw(query, exact, sensitivities, noise, key)
        second = super()._draw(query, exact, sensitivities, noise, (*key, "again"))
        return {part: (first[part] + second[part]) // 2 for part in first}


class OverlappingCohorts(LocalAggregator):
    """Every user reports in every cohort, as if cohorts were disjoint."""

    def cohorts(self, shares, radius=None):
        everybody = np.arange(self.n_points)
        return [
            Cohort(self, cohort.group, everybody, cohort.radius)
            for cohort in super().cohorts(shares, radius)
        ]


# Broken methods


def rows_of(curator):
    """The private points, which no method may read."""
    return np.concatenate([shard.rows for shard in curator._shards])


def squared_distances(curator, centers):
    """Exact squared distances of the points to the nearest of centers (k, d)."""
    rows = rows_of(curator).astype(float)
    return ((rows[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1)


class ReadsRows(SuLloyd):
    """The first center is a point."""

    def cluster(self, curator):
        centers, n_iter = super().cluster(curator)
        centers[:, 0] = rows_of(curator)[:1].sum(axis=0)
        return centers, n_iter


class StopsOnRows(SuLloyd):
    """One round is enough if all points are near the starting centers."""

    def cluster(self, curator):
        (start,) = self._starting_centers(curator)[:1]
        farthest = squared_distances(curator, start).max(initial=0.0)
        is_near = farthest < curator.n_features * (0.6 * SCALE) ** 2
        self.n_iterations = 1 if is_near else 2
        return super().cluster(curator)


class RoundsFromExactN(GLloyd):
    """Delta, and so the noise, from the number of records that are present."""

    def cluster(self, curator):
        self._n_present = len(rows_of(curator))
        return super().cluster(curator)

    def _noise_multiplier(self, n_points):
        delta = 1 / (self._n_present + 2) ** 2
        return 1 / gaussian_mu(self.epsilon, min(delta, 1e-6 * delta))


class RadiusFromData(FastLloyd):
    """The radius from the largest norm of the points."""

    def cluster(self, curator):
        lengths = np.linalg.norm(rows_of(curator), axis=1)
        self._largest = lengths.max(initial=0.0) / SCALE
        return super().cluster(curator)

    def radius(self, n_features, ball=None):
        return max(self._largest, 1e-3)


class GridFromData(EUGkM):
    """As many intervals as the first feature has values."""

    def cluster(self, curator):
        self._n_values = len(np.unique(rows_of(curator)[:, 0]))
        return super().cluster(curator)

    def intervals(self, n_points, n_features, share):
        intervals = super().intervals(n_points, n_features, share)
        return max(2, min(intervals, getattr(self, "_n_values", intervals)))


class NoiseByExactSize(GLloyd):
    """The noise of a sum divided by the number of records that are present."""

    def cluster(self, curator):
        self._factor = (curator.n_points + 1) / (len(rows_of(curator)) + 1)
        return super().cluster(curator)

    def _noise_multiplier(self, n_points):
        return super()._noise_multiplier(n_points) * self._factor


def _scaled(schedule, factor):
    rounds = [
        replace(
            noisy_round,
            sum_noise=Laplace(factor * noisy_round.sum_noise.scale),
            count_noise=Laplace(factor * noisy_round.count_noise.scale),
        )
        for noisy_round in schedule.rounds
    ]
    return replace(schedule, rounds=tuple(rounds))


class BestOfThree(SuLloyd):
    """The best of three runs, by the exact inertia."""

    def schedule(self, n_points, n_features):
        return _scaled(super().schedule(n_points, n_features), 3)

    def cluster(self, curator):
        runs = [SuLloyd.cluster(self, curator) for _ in range(3)]
        return min(runs, key=lambda run: squared_distances(curator, run[0][0]).sum())


class SharesAboveOne(SuLloyd):
    """Shares of the budget that add up to 17/12."""

    def budget(self, n_points, n_features):
        budget = super().budget(n_points, n_features)
        return replace(budget, epsilon=budget.epsilon * 17 / 12)

    def schedule(self, n_points, n_features):
        return _scaled(super().schedule(n_points, n_features), 12 / 17)


class StoppedByItsLedger(SuLloyd):
    """More noisy rounds than the budget pays for."""

    def schedule(self, n_points, n_features):
        return _scaled(super().schedule(n_points, n_features), 12 / 17)


class LargerDelta(GLloyd):
    """A budget whose delta is not the one claimed."""

    def budget(self, n_points, n_features):
        return replace(super().budget(n_points, n_features), delta=0.1)

    def _noise_multiplier(self, n_points):
        return 1 / gaussian_mu(self.epsilon, 0.1)


class _MomentsCurator(Curator):
    serves = (SecondMoments,)


@dataclass(eq=False, repr=False)
class MomentsByNorm(PrivateKMeans):
    """Centers along the second moments, whose noise is that of a norm, not of its square."""

    claims: ClassVar[dict] = {"sound": PrivacyClaim("approximate")}
    curator: ClassVar[type] = _MomentsCurator
    epsilon: float = 1.0
    delta: float = 1e-6

    def cluster(self, curator):
        scale = math.sqrt(curator.n_features) * SCALE / gaussian_mu(self.epsilon, self.delta)
        moments = curator.release(SecondMoments(), moments=Gaussian(scale))["moments"]
        return np.clip(moments, -SCALE, SCALE), 1


class _SaturatedSums(SumsAndCounts):
    mechanisms: ClassVar[dict] = {"sums": (Saturated,), "counts": (Saturated,)}


class _SaturatedCurator(Curator):
    serves = (_SaturatedSums,)


class DecodesSaturation(SuLloyd):
    """Exact sums and counts from noise that saturates, for a charge of nearly nothing."""

    claims: ClassVar[dict] = {"sound": PrivacyClaim("approximate")}
    curator: ClassVar[type] = _SaturatedCurator

    def cluster(self, curator):
        centers = self._starting_centers(curator)
        noise = Saturated(1e40)
        for _ in range(3):
            answer = curator.release(_SaturatedSums(centers), sums=noise, counts=noise)
            exact = {part: _decoded(released) for part, released in answer.items()}
            records = np.maximum(exact["counts"][:, :, None] // SCALE, 1)
            centers = exact["sums"] // records
        return centers, 3


def _decoded(released):
    return released - np.sign(released) * Saturated.largest


class FollowsTheData(PrivateKMeans):
    """A method with a fault: how much noise it asks for follows from what was released."""

    claims: ClassVar = {"sound": PrivacyClaim("approximate")}
    epsilon: float = 1.0

    def schedule(self, n_points, n_features):
        mu = math.hypot(math.sqrt(n_features), 1) * SCALE / 1e6
        return Schedule(plan_release(SumsAndCounts, Gaussian, mu=mu))

    def cluster(self, curator):
        centers = np.zeros((1, 1, curator.n_features), np.int64)
        query = SumsAndCounts(centers)
        answer = curator.release(query, sums=Gaussian(1e6), counts=Gaussian(1e6))
        if np.abs(answer["sums"]).max() > 1e7:
            curator.release(query, sums=Gaussian(1e9), counts=Gaussian(1e9))
        return centers, 1


class HasNoSchedule(PrivateKMeans):
    """A method that runs without an account and a zoom alone."""

    claims: ClassVar = {"sound": PrivacyClaim("approximate")}
    batched = False

    epsilon: float = 1.0

    def cluster(self, curator):
        centers = np.zeros((1, 1, curator.n_features), np.int64)
        query = SumsAndCounts(centers)
        curator.release(query, sums=Gaussian(1e6), counts=Gaussian(1e6))
        return centers, 1
