"""The curator: what is charged, drawn and refused.

Seeds are fixed; thresholds are five standard errors (fewer than one false alarm in a
million) or a p-value of 1e-6.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from curators import EXACT, NOISE, ONE_CENTER, ForbiddenNoise, curator_of

from pkm.compute import Points, Symlog
from pkm.methods.weights import weigh_rows
from pkm.privacy import (
    SCALE,
    Adjacency,
    Budget,
    BudgetExceeded,
    Curator,
    DisclosureError,
    Gaussian,
    Laplace,
    Ledger,
    NoiseStreams,
    RecordCount,
    SumsAndCounts,
)


class UnitNoise(NoiseStreams):
    """A source whose every draw is 1: noise equals its scale."""

    def normal(self, key, shape):
        return np.ones((len(self.seeds), *shape))

    laplace = normal


def test_released_noise_has_the_charged_scale():
    points = np.zeros((10, 2), np.int64)
    curator = curator_of(points, streams=UnitNoise([0]))
    query = SumsAndCounts(ONE_CENTER, radius=0.5, relative=True)
    noise = {"sums": Gaussian(3.0 * SCALE), "counts": Gaussian(5.0 * SCALE)}
    answer = curator.release(query, **noise)
    assert (answer["sums"] == 3 * SCALE).all()
    assert (answer["counts"] == (10 + 5) * SCALE).all()
    (charge,) = curator._ledger.charges
    assert charge.mu == pytest.approx(math.hypot(0.5 / 3.0, 1 / 5.0))
    assert charge.details["sum_sensitivity"] == 0.5
    assert charge.details["sum_scale"] == 3.0


def test_laplace_release_is_charged_by_l1():
    curator = curator_of(np.zeros((4, 3), np.int64))
    centers = np.zeros((1, 2, 3), np.int64)
    noise = {"sums": Laplace(6.0 * SCALE), "counts": Laplace(2.0 * SCALE)}
    curator.release(SumsAndCounts(centers), **noise)
    (charge,) = curator._ledger.charges
    assert charge.epsilon == pytest.approx(3 / 6 + 1 / 2)


def test_noise_of_two_kinds_is_charged_as_a_mixture():
    curator = curator_of(np.zeros((4, 3), np.int64))
    centers = np.zeros((1, 2, 3), np.int64)
    noise = {"sums": Gaussian(6.0 * SCALE), "counts": Laplace(2.0 * SCALE)}
    curator.release(SumsAndCounts(centers), **noise)
    (charge,) = curator._ledger.charges
    assert charge.mu == pytest.approx(math.sqrt(3) / 6)
    assert charge.epsilon == pytest.approx(1 / 2)


def test_exact_answers_are_refused_to_private_methods():
    curator = curator_of(np.zeros((3, 2), np.int64))
    for disclose in (curator.disclose, curator.disclose_weights):
        with pytest.raises(DisclosureError, match="claims privacy"):
            disclose()
    # Nor a part of an answer.
    for partly in (EXACT, NOISE | {"counts": None}, NOISE | {"sums": None}):
        with pytest.raises(DisclosureError, match="claims privacy"):
            curator.release(SumsAndCounts(ONE_CENTER), **partly)
    assert curator._ledger.charges == ()


def test_noise_is_drawn_after_the_charge():
    points = np.zeros((3, 2), np.int64)
    curator = curator_of(points, Budget(0.1, 1e-9), ForbiddenNoise([0]))
    with pytest.raises(BudgetExceeded):
        curator.release(SumsAndCounts(ONE_CENTER), sums=Gaussian(1.0), counts=Gaussian(1.0))
    assert curator._ledger.charges == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"relative": True}, "relative sums need a radius"),
        ({"relative": True, "radius": -1.5}, "radius=-1.5 must be positive"),
        ({"radius": math.nan}, "radius=nan must be positive"),
        ({"radius": 0.0}, "radius=0.0 must be positive"),
        # Between grid points, a relative sum would carry the exact count in its fraction.
        ({"centers": np.full((1, 1, 2), 0.5)}, "centers must be grid integers"),
        ({"centers": np.zeros((2, 1, 2), np.int64)}, "for 1 replicates"),
        ({"centers": np.zeros((1, 1, 3), np.int64)}, r"of shape \(1, k, 2\)"),
    ],
)
def test_ill_posed_queries_are_refused(arguments, message):
    curator = curator_of(np.zeros((3, 2), np.int64))
    query = SumsAndCounts(**{"centers": ONE_CENTER} | arguments)
    with pytest.raises(ValueError, match=message):
        curator.release(query, **NOISE)


def test_curator_refuses_unsupported_adjacencies():
    """Sensitivities are those of one record's presence; a replacement costs more."""
    points = np.zeros((3, 2), np.int64)
    for adjacency in (Adjacency.REPLACE_ONE, Adjacency.LOCAL):
        with pytest.raises(ValueError, match=f"adjacency={adjacency} is not supported"):
            curator_of(points, Budget(1.0, 1e-6, adjacency))

    without_ledger = Curator(points, None, NoiseStreams([0]))
    with pytest.raises(ValueError, match="needs a ledger to be charged to"):
        without_ledger.release(SumsAndCounts(ONE_CENTER), **NOISE)


@pytest.mark.parametrize(
    "shards",
    [
        [],
        [np.zeros((2, 2), np.int64), np.zeros((2, 3), np.int64)],
    ],
)
def test_curator_refuses_bad_shards(shards):
    with pytest.raises(ValueError, match="one or more shards of one width"):
        Curator(shards, None, NoiseStreams([0]))


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.full((2, 2), SCALE + 1), "must lie in the domain"),
        (np.zeros((2, 2)), "grid integers"),
        (np.zeros(3, np.int64), r"\(n, d\)"),
    ],
)
def test_curator_refuses_bad_points(points, message):
    with pytest.raises(ValueError, match=message):
        curator_of(points)


@pytest.mark.statistical
def test_sum_and_count_noise_are_independent():
    """The published code seeds both from one number; in this implementation their correlation is
    within five standard errors of zero.
    """
    n_replicates = 4000
    point = np.zeros((1, 1), np.int64)
    centers = np.zeros((n_replicates, 1, 1), np.int64)
    ledger = Ledger(Budget(1e6, 0.9))
    curator = Curator(point, ledger, NoiseStreams(range(n_replicates)))
    mechanism = Gaussian(1e3 * SCALE)
    releases = []
    for _ in range(2):
        answer = curator.release(SumsAndCounts(centers), sums=mechanism, counts=mechanism)
        releases += [answer[part].ravel().astype(float) for part in ("sums", "counts")]

    pairs = np.triu_indices(4, 1)
    correlations = np.corrcoef(releases)[pairs]
    assert np.abs(correlations).max() < 5 / math.sqrt(n_replicates)


def test_adjacencies_of_the_curators_are_those_of_their_queries():
    for query in Curator.serves:
        assert (Adjacency.ZERO_OUT in query.adjacencies) == (query is not RecordCount)
        assert set(query.adjacencies) <= set(Curator.adjacencies)


def counting_curator(points, seed=0):
    return Curator(points, Ledger(Budget(1.0, 1e-6, "add_remove")), NoiseStreams([seed]))


def test_a_secret_number_of_records_is_unknown_before_its_release():
    """Nor may a view have it, or a curator of a smaller domain."""
    curator = counting_curator(np.zeros((300, 2), np.int64))
    inner = curator.rescale(np.zeros(2), 0.5, Symlog(2.0, 0.0, by_norm=False))
    for use in (
        lambda: curator.n_points,
        lambda: inner.n_points,
        lambda: curator.clipped_points(1.0),
        curator.whole,
    ):
        with pytest.raises(DisclosureError, match="n_points is secret under add_remove"):
            use()
    assert curator._ledger.charges == ()


def test_a_released_number_of_records_is_that_of_all_views():
    curator = counting_curator(np.zeros((300, 2), np.int64))
    answer = curator.release(RecordCount(), counts=Laplace(100.0 * SCALE))
    n = round(answer["counts"].item() / SCALE)
    inner = curator.rescale(np.zeros(2), 0.5, Symlog(2.0, 0.0, by_norm=False))
    views = [curator, inner, curator.whole(), inner.clipped_points(1.0)]
    assert [view.n_points for view in views] == [n] * 4
    assert n != 300
    (charge,) = curator._ledger.charges
    assert (charge.mechanism, charge.epsilon) == ("laplace", 0.01)


def test_a_released_number_of_records_is_at_least_one():
    curators = [counting_curator(np.zeros((1, 2), np.int64), seed) for seed in range(20)]
    for curator in curators:
        curator.release(RecordCount(), counts=Gaussian(100.0 * SCALE))
    numbers = [curator.n_points for curator in curators]
    assert min(numbers) == 1 < max(numbers)


def test_a_number_of_records_is_counted_as_such():
    """Null records count, and a person with all rows once; nothing else is of one record."""
    rows = np.zeros((5, 2), np.int64)
    weights, n_persons = weigh_rows(5, ["ann", "ann", "bob", "ann", None])
    cases = {
        7: [Points.from_grid(rows, n_null=1), Points.from_grid(rows[:1])],
        3: [replace(Points.from_grid(rows), weights=weights, n_persons=n_persons)],
    }
    for n, shards in cases.items():
        curator = Curator(shards, None, NoiseStreams([0]))
        assert RecordCount().exact(curator)["counts"].tolist() == [[n * SCALE]]


def test_a_number_of_records_is_released_for_one_replicate():
    ledger = Ledger(Budget(1.0, 1e-6, "add_remove"))
    curator = Curator(np.zeros((3, 2), np.int64), ledger, NoiseStreams([0, 1]))
    with pytest.raises(ValueError, match="record_count serves one replicate at a time"):
        curator.release(RecordCount(), counts=Gaussian(100.0 * SCALE))
