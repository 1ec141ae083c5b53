"""Replay of methods whose number of records is secret: the neighbor lacks a row."""

import numpy as np
import pytest
from planted_faults import find_labels

from pkm.audit import audit, report
from pkm.audit.pairs import add_persons, draw_pairs
from pkm.audit.replay import replay
from pkm.methods import (
    Balcan,
    EUGkM,
    FastLloyd,
    GLloyd,
    HybridKMeans,
    KaplanStemmer,
    MSTKMeans,
    PEMeans,
    PrivateKMeans,
    QuadtreeKMeans,
    SuLloyd,
    SynopsisKMeans,
)
from pkm.methods import base as methods_base
from pkm.methods.planned import PlannedMethod
from pkm.methods.record_count import CountedMethod
from pkm.privacy import Adjacency, Curator
from pkm.privacy.queries.sums import RecordCount

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
N_PAIRS = 24


def hidden(method, n_clusters=2, **parameters):
    return method(n_clusters, bounds=(-1, 1), adjacency="add_remove", **parameters)


def test_the_neighbor_lacks_the_record():
    rng = np.random.default_rng(0)
    for pair in draw_pairs(Adjacency.ADD_REMOVE, 18, 0):
        n = len(pair.rows)
        kept = np.delete(pair.X, pair.index, axis=0)
        assert pair.reversed.X.tolist() == kept.tolist()
        assert (pair.points.n_records, pair.reversed.points.n_records) == (n, n - 1)
        for person in (add_persons(pair, rng), add_persons(pair, rng).reversed):
            for side in (person, person.reversed):
                n_rows = len(side.X)
                assert n_rows >= 1
                assert {len(values) for values in side.fit_arguments.values()} == {n_rows}
            if person.groups is not None:
                groups = set(person.fit_arguments["groups"])
                neighbor_groups = set(person.reversed.fit_arguments["groups"])
                assert groups ^ neighbor_groups == {person.groups[person.index]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        SuLloyd,
        GLloyd,
        FastLloyd,
        EUGkM,
        HybridKMeans,
        QuadtreeKMeans,
        SynopsisKMeans,
        MSTKMeans,
        PEMeans,
        KaplanStemmer,
        Balcan,
    ],
)
@pytest.mark.usefixtures("short_fits")
def test_nothing_but_the_answers_tells_n(method):
    """Persons, zooms and accounts are among the pairs, and the release of n shows the record."""
    tightness, findings = report.replay_pairs(hidden(method), N_PAIRS // 2, 0)
    assert not findings
    assert tightness["record_count"] == pytest.approx(1.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", [SuLloyd, FastLloyd])
def test_residuals_of_n_follow_the_declared_law(method):
    # At epsilon 1 one released n in 6,000 is below k, and its fit is refused.
    found = audit(hidden(method, 3, epsilon=4.0), ["residuals"])
    assert found.verdicts == {"residuals": "consistent"}
    assert any(test.label.startswith("record_count") for test in found.tests)


@pytest.mark.parametrize("method", [SuLloyd, QuadtreeKMeans])
def test_as_many_records_as_clusters_are_no_other_case(method):
    """One data set has as many rows as clusters, and its neighbor one less."""
    n_refused = 0
    for number, pair in enumerate(draw_pairs(Adjacency.ADD_REMOVE, 16, 0, n_points=(3, 3))):
        for side in (pair, pair.reversed):
            result = replay(hidden(method, 3), side, number)
            assert result.mismatch == ""
            n_refused += result.refusal is not None
    assert 0 < n_refused < 32


@pytest.mark.parametrize("parameters", [{"report": 0.3}, {"zoom": 0.3}])
def test_plans_are_refused_by_the_released_n(parameters):
    """With so few records there is no schedule: what is said names the number."""
    method = hidden(KaplanStemmer, epsilon=2.0, repetitions=2, widths=(0.5,), **parameters)
    n_refused = 0
    for number, pair in enumerate(draw_pairs(Adjacency.ADD_REMOVE, 4, 0, n_points=(8, 8))):
        result = replay(method, pair, number)
        assert result.mismatch == ""
        n_refused += "too little for one release" in str(result.refusal)
    assert n_refused >= 1


# Planted faults: one place takes the exact number.


def plan_by_exact_n(monkeypatch):
    """The schedule is that of the exact number."""

    def release(self, curator, ledger):
        planned = release_n(self, curator, ledger)
        exact = PlannedMethod(planned.method, curator._shards.n_records, planned.n_features)
        ledger.schedule = [ledger.charges[0], *exact.schedule.charges]
        curator.n_points = exact.n_points
        return exact

    release_n = CountedMethod.release
    monkeypatch.setattr(CountedMethod, "release", release)


def zoom_by_exact_n(monkeypatch):
    def find_domain(self, curator):
        exact = PlannedMethod(self.method, curator._shards.n_records, self.n_features)
        return find(exact, curator) if self.zoom is not None else find(self, curator)

    find = PlannedMethod.find_domain
    monkeypatch.setattr(PlannedMethod, "find_domain", find_domain)


def check_k_by_exact_n(monkeypatch):
    def release(self, curator, ledger):
        if self.method.n_clusters > curator._shards.n_records:
            raise ValueError("n_clusters must be at most the number of points")
        return release_n(self, curator, ledger)

    release_n = CountedMethod.release
    monkeypatch.setattr(CountedMethod, "release", release)


def keep_exact_n_in_a_zoom(monkeypatch):
    def rescale(self, *arguments):
        inner = rescale_points(self, *arguments)
        inner.n_points = inner._shards.n_records
        return inner

    rescale_points = Curator.rescale
    monkeypatch.setattr(Curator, "rescale", rescale)


def count_rows_of_persons(monkeypatch):
    def count(self, source):
        rows = sum(len(shard.rows) + shard.n_null for shard in source._shards)
        return np.array([rows * (2**16 // source.count_factor)])

    monkeypatch.setattr(RecordCount, "count", count)


def warn_by_exact_n(monkeypatch):
    numbers = []

    def read_points(*arguments):
        points, bounds = read(*arguments)
        numbers.append(points.n_records)
        return points, bounds

    read = methods_base.read_points
    warn = PrivateKMeans._warn_large_delta
    monkeypatch.setattr(methods_base, "read_points", read_points)
    monkeypatch.setattr(
        PrivateKMeans, "_warn_large_delta", lambda self, released: warn(self, numbers[-1])
    )


FAULTS = {
    "schedule": (plan_by_exact_n, QuadtreeKMeans, {}),
    "total of a grid": (plan_by_exact_n, EUGkM, {}),
    "plan of a zoom": (zoom_by_exact_n, GLloyd, {"zoom": 0.3, "epsilon": 100.0}),
    "k": (check_k_by_exact_n, SuLloyd, {"n_clusters": 4}),
    "after a zoom": (keep_exact_n_in_a_zoom, EUGkM, {"zoom": 0.3}),
    "rows of persons": (count_rows_of_persons, SuLloyd, {}),
    "warning": (warn_by_exact_n, GLloyd, {"delta": 0.1}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_an_exact_number_is_found(name, monkeypatch):
    plant, method, parameters = FAULTS[name]
    plant(monkeypatch)
    monkeypatch.setattr(report, "SECURE_SHARE", 0.0)
    assert find_labels(hidden(method, **parameters), N_PAIRS)
