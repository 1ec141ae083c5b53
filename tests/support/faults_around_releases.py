"""Planted faults around a method's releases: at `fit`, in secure noise, in a zoom.

The faults of :mod:`planted_faults` are in releases. These are where an audit of grid points,
default parameters and seeded noise does not look.
"""

import logging
import warnings
from dataclasses import replace

import numpy as np
from planted_faults import rows_of

from pkm.compute import SCALE, Points
from pkm.methods import FastLloyd, GLloyd, SuLloyd
from pkm.privacy import (
    Budget,
    CellCounts,
    Curator,
    Gaussian,
    GridCounts,
    Laplace,
    Ledger,
    NoiseStreams,
    SecondMoments,
    SumsAndCounts,
)
from pkm.privacy.mechanisms.selection import Exponential, ScoreSensitivity
from pkm.privacy.queries.clipped_queries import NearestCounts, NearestSumsAndCounts
from pkm.privacy.queries.marginals import DependentColumns, WorstApproximated
from pkm.privacy.query import Sensitivity

# Queries


class RootOfFeatures(SumsAndCounts):
    """The L1 sensitivity of a sum is sqrt(d), where it is d."""

    def sensitivity(self, view):
        found = dict(super().sensitivity(view))
        found["sums"] = Sensitivity(found["sums"].l2, found["sums"].l2)
        return found


class DoubledFromHundred(SumsAndCounts):
    """Records count twice from n = 100 on."""

    def exact(self, view):
        factor = 2 if view.n_points >= 100 else 1
        return {part: factor * values for part, values in super().exact(view).items()}


class TieForTwo(NearestCounts):
    """A record between two centers counts for both."""

    def exact(self, view):
        counts = np.zeros(len(self.centers), np.int64)
        for rows in _shards_of(view):
            offsets = rows[:, None] - self.centers[None]
            squares = (offsets**2).sum(axis=2)
            counts += (squares == squares.min(axis=1, keepdims=True)).sum(axis=0)
        return {"counts": counts[None] * SCALE}


class RoundedAfterClipping(NearestSumsAndCounts):
    """Differences are shortened to the radius first, and rounded away from zero after that."""

    def exact(self, view):
        exact = super().exact(view)
        sums = np.zeros(self.centers.shape, np.int64)
        limit = self.radius * SCALE
        for rows in _shards_of(view):
            offsets = rows[:, None] - self.centers[None]
            nearest = (offsets**2).sum(axis=2).argmin(axis=1)
            for row, center in zip(rows, nearest, strict=True):
                change = (row - self.centers[center]).astype(float)
                length = np.linalg.norm(change)
                change *= min(1.0, limit / max(length, 1.0))
                sums[center] += (np.sign(change) * np.ceil(np.abs(change))).astype(np.int64)
        return {**exact, "sums": sums[None]}


class UnweightedRange(WorstApproximated):
    """The range of the scores without their weights."""

    def sensitivity(self, view):
        return {"choices": ScoreSensitivity(1.0)}


class HalfRange(DependentColumns):
    """Scores move in one direction only."""

    def sensitivity(self, view):
        return {"choices": ScoreSensitivity(1.0)}


class LevelsAsDisjoint(GridCounts):
    """The counts of three levels charged as if a record were in one of them only."""

    def sensitivity(self, view):
        found = super().sensitivity(view)["counts"]
        return {"counts": found._replace(l1=found.l1 / 3, l2=found.l2 / 3)}


class OffDiagonalHalved(SecondMoments):
    """Entries off the diagonal in half of the unit, where it is 1 / sqrt(2) of it."""

    def sensitivity(self, view):
        found = super().sensitivity(view)["moments"]
        halved = np.where(found.unit == found.unit.max(), found.unit, found.unit.max() / 2)
        return {"moments": found._replace(unit=halved)}


def _shards_of(view):
    rows = []
    view._shards.map_reduce(
        lambda points: (rows.append(points.rows.astype(np.int64)), np.zeros(1))[1:]
    )
    return rows


# Curators


class ExactTotal(Curator):
    """Released counts are scaled to the exact number of records that are present."""

    def _draw(self, query, exact, sensitivities, noise, key):
        released = super()._draw(query, exact, sensitivities, noise, key)
        factor = exact["counts"].sum() / max(released["counts"].sum(), 1)
        return {"counts": np.rint(factor * released["counts"]).astype(np.int64)}


class KeepsByExactCounts(Curator):
    """Cells have a large count if they hold a record, whatever the noise."""

    def _draw(self, query, exact, sensitivities, noise, key):
        released = super()._draw(query, exact, sensitivities, noise, key)
        if isinstance(query, CellCounts):
            released["counts"] = np.where(exact["counts"] == 0, 0, 2**40)
        return released


class FreeFirstRelease(Curator):
    """The first release is not charged."""

    def release_all(self, requests, source=None):
        ledger = self._ledger
        if not self._rounds[requests[0][0].label]:
            self._ledger = Ledger(Budget(1e6, 0.1))
        try:
            return super().release_all(requests, source)
        finally:
            self._ledger = ledger


# Secure noise


class HalfWhenSecure(Gaussian):
    """Half of the noise, from the operating system's entropy alone."""

    def secure_noise(self, scales):
        return super().secure_noise(scales / 2)


class HalfLaplaceWhenSecure(Laplace):
    """Half of the noise, from the operating system's entropy alone."""

    def secure_noise(self, scales):
        return super().secure_noise(scales / 2)


class ShiftedWhenSecure(Gaussian):
    """Noise whose mean is a fifth of its scale, in the secure sampler alone."""

    def secure_noise(self, scales):
        return super().secure_noise(scales) + np.rint(0.2 * scales).astype(np.int64)


class RepeatedWhenSecure(Gaussian):
    """The same secure noise in every run."""

    def secure_noise(self, scales):
        noise = np.random.default_rng(0).standard_normal(scales.shape)
        return np.rint(noise * scales).astype(np.int64)


class SharpWhenSecure(Exponential):
    """Exponents twice as large as charged, in secure choices alone."""

    def draw(self, values, streams, key, sensitivity):
        factor = 2 if streams.secure else 1
        return Exponential(factor * self.epsilon).draw(values, streams, key, sensitivity)


# Seeded noise


class NoNoiseOnZero(Gaussian):
    """Entries that are exactly zero get no noise."""

    def draw(self, values, streams, key, sensitivity=None):
        return np.where(values == 0, 0, super().draw(values, streams, key, sensitivity))


class OneStreamForReplicates(Gaussian):
    """All replicates have the noise of the first."""

    def draw(self, values, streams, key, sensitivity=None):
        return values + (super().draw(values, streams, key, sensitivity) - values)[:1]


class Argmax(Exponential):
    """The best candidate where it is far better than the next."""

    def draw(self, values, streams, key, sensitivity):
        choices = super().draw(values, streams, key, sensitivity)
        scales = self.epsilon / np.atleast_1d(sensitivity.difference)
        for i, (scores, scale) in enumerate(zip(values, scales, strict=True)):
            best = np.sort(np.asarray(scores, float))[::-1]
            if len(best) > 1 and (best[0] - best[1]) * scale > 0.5:
                choices[0, i] = int(np.argmax(scores))
        return choices


# `fit`


class DoesNotClip(GLloyd):
    """Rows outside the bounds stay there."""

    def fit_batch(self, points, seeds, domain=None, **kwargs):
        if hasattr(self, "_raw"):
            points = Points.from_grid(self._raw, n_null=self._n_null)
        return super().fit_batch(points, seeds, domain, **kwargs)

    def fit(self, X, y=None, **kwargs):
        lower, upper = np.asarray(self.bounds)
        steps = (2 * (X - lower) / (upper - lower) - 1) * SCALE
        is_finite = np.isfinite(X).all(axis=1)
        raw = np.rint(steps[is_finite]).astype(np.int64)
        self._n_null = int((~is_finite).sum())
        # Kernels take up to so many steps.
        self._raw = np.clip(raw, -3 * SCALE, 3 * SCALE)
        try:
            return super().fit(X, **kwargs)
        finally:
            del self._raw, self._n_null


class StoresLabels(FastLloyd):
    """Exact labels of the rows, as scikit-learn's KMeans has them."""

    def fit(self, X, y=None, **kwargs):
        super().fit(X, **kwargs)
        finite = X[np.isfinite(X).all(axis=1)]
        self.labels_ = self.predict(finite)
        return self


class StoresNumberOfNullRecords(GLloyd):
    """The number of rows with NaN."""

    def fit(self, X, y=None, **kwargs):
        super().fit(X, **kwargs)
        self.n_missing_ = int(np.isnan(X).any(axis=1).sum())
        return self


class BoundsFromData(GLloyd):
    """Bounds tightened to the extremes of the rows."""

    def fit(self, X, y=None, **kwargs):
        lower, upper = np.asarray(self.bounds)
        finite = np.clip(X[np.isfinite(X).all(axis=1)], lower, upper)
        if len(finite) and (finite.min(axis=0) < finite.max(axis=0)).all():
            self.bounds = (finite.min(axis=0), finite.max(axis=0))
        return super().fit(X, **kwargs)


class IterationsFromData(SuLloyd):
    """The number of iterations tells how many records there are."""

    def cluster(self, curator):
        centers, n_iter = super().cluster(curator)
        return centers, n_iter + len(rows_of(curator)) % 2


class _ActsOnSizes(SuLloyd):
    """Something happens with the exact number of records in the first quadrant."""

    def act(self, size):
        raise NotImplementedError

    def cluster(self, curator):
        outcome = super().cluster(curator)
        self.act(int((rows_of(curator) >= 0).all(axis=1).sum()))
        return outcome


class WarnsOfSize(_ActsOnSizes):
    """A warning with an exact number."""

    def act(self, size):
        warnings.warn(f"a cluster has {size} records", UserWarning, stacklevel=2)


class PrintsSize(_ActsOnSizes):
    """A line of text with an exact number."""

    def act(self, size):
        print("records:", size)


class LogsSize(_ActsOnSizes):
    """A log record with an exact number."""

    def act(self, size):
        logging.getLogger("pkm.clusters").warning("records: %d", size)


class LogsSizeAsInformation(_ActsOnSizes):
    """The same below the level that is shown by default."""

    def act(self, size):
        logging.getLogger("pkm.clusters").info("records: %d", size)


class RefusesEmptyQuadrant(_ActsOnSizes):
    """An error where an exact number is zero, after all releases."""

    def act(self, size):
        if size == 0:
            raise ValueError("no records in the first quadrant")


class ChargesAccountBySize(GLloyd):
    """An account gets a note of the number of rows without NaN."""

    def planned_run(self, n_points, n_features, seeds, *, purpose=""):
        purpose = f"{self._n_complete} rows"
        return super().planned_run(n_points, n_features, seeds, purpose=purpose)

    def fit(self, X, y=None, **kwargs):
        self._n_complete = int(np.isfinite(X).all(axis=1).sum())
        super().fit(X, **kwargs)
        del self._n_complete
        return self


class OneMoreRound(GLloyd):
    """A round more than the noise is made for, which fits the budget if the first is free."""

    def schedule(self, n_points, n_features):
        schedule = super().schedule(n_points, n_features)
        return replace(schedule, rounds=schedule.rounds + schedule.rounds[:1])


class WithoutContext(GLloyd):
    """Streams of noise from the seeds alone, whatever the method and its parameters."""

    def noise_streams(self, seeds, n_points, n_features, **options):
        return NoiseStreams(seeds)


# A zoom


class DoesNotClipAfterZoom(Curator):
    """Points outside of the domain that was found stay there."""

    def rescale(self, center, half_width, scale):
        inner = super().rescale(center, 2 * half_width, scale)
        narrow = super().rescale(center, half_width, scale)
        narrow._shards = inner._shards.map(_double)
        return narrow


def _double(points):
    return Points.from_grid(2 * points.rows.astype(np.int64), n_null=points.n_null)
