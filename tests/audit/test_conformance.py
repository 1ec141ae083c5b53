"""The conformance suite refuses methods of others that do not keep to the contract."""

import re
from dataclasses import replace

import numpy as np
import pytest
from planted_faults import (
    HalvedSums,
    HasNoSchedule,
    LargerDelta,
    MomentsByNorm,
    ReadsRows,
    SharesAboveOne,
    StopsOnRows,
    broken,
)

from pkm.audit.conformance import CHECKS, _assert_refused, conformance, main
from pkm.compute import SCALE, Points
from pkm.methods import (
    FastLloyd,
    GLloyd,
    SuLloyd,
)
from pkm.methods.schedule import Schedule, plan_release
from pkm.privacy import Gaussian, SumsAndCounts


def errors_of(method, name):
    """What the check of that name says of each variant; no check depends on another."""
    checks = [check for check in CHECKS if check.__name__ == name]
    assert checks
    return [outcome.error for outcome in conformance(method, checks)]


class KeepsPoints(GLloyd):
    """Wrong: fit is its own, and keeps the points."""

    def fit(self, X, y=None, **kwargs):
        self.points_ = np.array(X)
        return super().fit(X, y, **kwargs)


class OwnBatch(GLloyd):
    """Wrong: fit_batch is its own."""

    def fit_batch(self, points, seeds, domain=None, **kwargs):
        return super().fit_batch(points, seeds, domain, **kwargs)


class OwnRun(GLloyd):
    """Wrong: fit_with is its own."""

    def fit_with(self, *arguments, **kwargs):
        return super().fit_with(*arguments, **kwargs)


class ExactLabels(GLloyd):
    """Wrong: fit_predict is its own."""

    def fit_predict(self, X, y=None, **kwargs):
        return super().fit_predict(X, y, **kwargs)


class OtherAdjacency(GLloyd):
    """Wrong: the budget is one under another adjacency."""

    def budget(self, n_points, n_features):
        return replace(super().budget(n_points, n_features), adjacency="add_remove")


class RefusesNaN(SuLloyd):
    """Wrong: raises for one value of a record."""

    def fit(self, X, y=None, **kwargs):
        if np.isnan(X).any():
            raise ValueError("X contains NaN")
        return super().fit(X, y, **kwargs)


class NaNPassesTheClip(SuLloyd):
    """Wrong: NaN is no number that a clip moves, and becomes an integer far off the grid."""

    def fit(self, X, y=None, **kwargs):
        super().fit(np.nan_to_num(X), y, **kwargs)
        with np.errstate(invalid="ignore"):
            rows = np.rint(np.clip(X, -1, 1) * SCALE).astype(np.int64)
        self.cluster_centers_ = self.fit_batch(Points.from_grid(rows), [0]).positions[0]
        return self


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "check"),
    [
        (KeepsPoints, "check_runs_as_declared"),
        (OwnBatch, "check_runs_as_declared"),
        (OwnRun, "check_runs_as_declared"),
        (ExactLabels, "check_runs_as_declared"),
        (LargerDelta, "check_runs_as_declared"),
        (OtherAdjacency, "check_runs_as_declared"),
        (SharesAboveOne, "check_ledger"),
        (RefusesNaN, "check_no_value_raises"),
        (NaNPassesTheClip, "check_no_value_raises"),
        (ReadsRows, "check_replay"),
        (StopsOnRows, "check_replay"),
        (MomentsByNorm, "check_replay"),
        (broken(GLloyd, queries=[HalvedSums]), "check_replay"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_broken_method_is_refused(method, check):
    assert any(errors_of(method, check))


def test_command_refuses_a_method_that_reads_rows(capsys):
    assert main(["planted_faults.ReadsRows"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("\n") == len(CHECKS) * len(ReadsRows.claims)
    assert "check_replay                   FAILED" in printed


class OrderDependent(FastLloyd):
    """Wrong: the result depends on the order of the points."""

    def cluster(self, curator):
        centers, n_iter = super().cluster(curator)
        return centers + int(curator._shards[0].rows[0, 0]), n_iter


class BatchDependent(FastLloyd):
    """Wrong: a replicate's result depends on the others."""

    def cluster(self, curator):
        centers, n_iter = super().cluster(curator)
        return centers + curator.n_replicates, n_iter


class Uncharged(FastLloyd):
    """Wrong: claims privacy and charges nothing."""

    def cluster(self, curator):
        shape = (curator.n_replicates, self.n_clusters, curator.n_features)
        return np.zeros(shape, np.int64), 0


@pytest.mark.parametrize(
    ("method", "failed_check"),
    [
        (OrderDependent, "check_order_and_shards"),
        (BatchDependent, "check_batch_is_loop"),
        (Uncharged, "check_ledger"),
    ],
)
def test_conformance_catches_a_broken_method(method, failed_check):
    assert any(errors_of(method, failed_check))


class ParameterWithoutRule(GLloyd):
    """Wrong: any value of its parameter passes."""

    step: float = 0.5


class NotABatch(FastLloyd):
    """Wrong: the centers of one replicate, without its axis."""

    batched = False

    def cluster(self, curator):
        centers, n_iter = super().cluster(curator)
        return centers[0], n_iter


class OtherSchedule(HasNoSchedule):
    """Wrong: the schedule says less than what is charged."""

    def schedule(self, n_points, n_features):
        return Schedule(plan_release(SumsAndCounts, Gaussian, mu=0.01))


@pytest.mark.parametrize(
    ("method", "check", "message"),
    [
        (ParameterWithoutRule, "check_bad_input", "constraints lack step: declare a rule on each"),
        (NotABatch, "check_shapes", r"must have shape \(replicate, cluster, 3\), got \(9, 3\)"),
        (OtherSchedule, "check_schedule", r"of round 0 gaussian mu=\S+ must be what the schedule"),
    ],
)
def test_a_failed_check_says_what_to_change(method, check, message):
    assert re.search(message, errors_of(method, check)[-1])


def test_another_error_than_a_refusal_is_said_with_its_case(monkeypatch):
    def fail(self, n_points=None):
        if self.n_clusters == 2.5:
            raise TypeError("no integer")

    monkeypatch.setattr(GLloyd, "check_parameters", fail)
    with pytest.raises(AssertionError, match=r"n_clusters=2.5 must be .*TypeError\('no integer'"):
        _assert_refused("n_clusters=2.5", GLloyd(2.5).check_parameters)


@pytest.mark.slow
def test_conformance_command(capsys):
    assert main(["pkm.methods.GLloyd"]) == 0
    assert capsys.readouterr().out.count(" ok") == 2 * len(CHECKS)
    assert main([f"{__name__}.Uncharged"]) == 1
    assert main(["no.such.Method"]) == 2
    assert "is its folder on PYTHONPATH?" in capsys.readouterr().err
    assert main(["os.path"]) == 2
    assert capsys.readouterr().err == "error: os.path is no method: it declares no `claims`\n"
