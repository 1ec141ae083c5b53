"""Attacks on the one release that must fail: shared noise, foreign code, leaks of refusals."""

import math

import numpy as np
import pytest

from pkm.compute import Points
from pkm.compute.kernels.hashing import Hash
from pkm.federation import Network, run_in_threads, split_points
from pkm.methods import DPM, FastLloyd, GLloyd, KaplanStemmer, LocalMean, NoisedPoints
from pkm.privacy import (
    SCALE,
    Account,
    Adjacency,
    BoxGrid,
    Budget,
    BudgetExceeded,
    CellSums,
    Charge,
    Curator,
    Exponential,
    Gaussian,
    Laplace,
    Ledger,
    NoiseStreams,
    Splits,
    SplitScore,
    StabilityHistogram,
)
from pkm.privacy.queries.hashed_queries import BucketCounts

KEY = ("sums_and_counts", 0, "counts")


def curator_of(points, budget=None, **arguments):
    budget = Budget(100.0, 1e-6) if budget is None else budget
    return Curator(points, Ledger(budget), NoiseStreams([0]), **arguments)


# Noise that two runs share


def noise_of(method, **where):
    return method.noise_streams([5], 100, 2, **where).normal(KEY, (3,))


def test_a_fit_and_a_coreset_share_no_noise():
    """With two scales of the same noise, exact counts would follow."""
    method = KaplanStemmer(2)
    assert (noise_of(method) != noise_of(method, purpose="coreset")).all()


def test_domains_share_no_noise():
    """The same points on two grids differ by known factors; the same noise would be taken off."""
    X = np.clip(np.random.default_rng(0).normal(0, 0.3, (300, 2)), -1, 1)
    method = GLloyd(2)
    wide = noise_of(method, domain=[[-2.0, -2.0], [2.0, 2.0]])
    assert (noise_of(method) != wide).all()
    # Bounds and the domain of the grid are the same thing, as is its default.
    assert (noise_of(method) == noise_of(method, domain=[[-1.0, -1.0], [1.0, 1.0]])).all()
    by_fit = GLloyd(2, random_state=5, bounds=(-1, 1)).fit(X)
    by_batch = GLloyd(2).fit_batch(Points.quantize(X, -np.ones(2), np.ones(2))[0], [5])
    assert (by_fit._centers == by_batch.centers).all()


def test_parameters_that_are_arrays_are_in_the_key_in_full():
    """An abbreviated array would let budgets differ and share noise."""
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    other = shares + np.array([0.0, 0.0, 1e-10, -1e-10])
    assert (noise_of(DPM(shares=shares)) != noise_of(DPM(shares=other))).all()


# Arguments that are code or prices


class CuriousHash(Hash):
    """A hash that looks at the points."""

    def codes(self, points):
        raise AssertionError("code of a method met private points")


class CheapScore(SplitScore):
    """A score that claims to change by almost nothing."""

    sensitivity = 1e-9


def test_hashes_of_other_types_are_refused():
    curator = curator_of(np.zeros((5, 2), np.int64))
    view = curator.hashed_points(1.0)
    directions = np.array([[1, 0]])
    hashing = CuriousHash(directions, np.zeros(1, np.int64), 4)
    with pytest.raises(TypeError, match=r"hashing=.* must be a Hash, and no subclass"):
        view.release(BucketCounts(hashing), counts=StabilityHistogram(1.0, 1e-9))
    assert curator._ledger.charges == ()


def test_scores_of_other_types_are_refused():
    curator = curator_of(np.zeros((5, 2), np.int64))
    tree = curator.partition(BoxGrid.of_intervals(0.5))
    query = Splits([0], [5.0], CheapScore(0.3, 1 / 12, 5.0, True))
    with pytest.raises(TypeError, match=r"score=.* must be a SplitScore, and no subclass"):
        tree.release(query, choices=Exponential(1e-6))
    assert curator._ledger.charges == ()


@pytest.mark.parametrize("thresholds", [(0, -60000, 50000), (0, 0), (0, SCALE + 1), (-SCALE - 1,)])
def test_grids_out_of_order_or_domain_are_refused(thresholds):
    """Boxes of cells would be too small, and with them the noise."""
    with pytest.raises(ValueError, match="must increase and lie in the domain"):
        BoxGrid(thresholds, False)


def test_grids_of_other_types_are_refused():
    class Grid(BoxGrid):
        def __post_init__(self):
            pass

    with pytest.raises(TypeError, match=r"grid=.* must be a BoxGrid"):
        curator_of(np.zeros((5, 2), np.int64)).partition(Grid((0, -60000), False))


# Refusals that follow the data


def test_sums_about_far_origins_are_refused_by_the_public_number_of_records():
    """A bound by the rows that are present would be a count for nothing."""
    outcomes = []
    for n_null in (0, 1):
        points = Points.prepare(np.zeros((500 - n_null, 1), np.int64), n_null)
        tree = curator_of(points).whole()
        limit = 2**60 // 500
        for origin in (limit - 1000, limit + 1000):
            query = CellSums([0], np.array([[origin]]))
            try:
                query.check(tree)
            except ValueError as error:
                outcomes.append((n_null, origin, str(error)))
    refused = [(origin, message) for _, origin, message in outcomes]
    assert len(refused) == 2
    assert refused[0] == refused[1]


def test_smallest_integers_are_not_in_the_domain():
    """Their absolute value is negative."""
    view = curator_of(np.zeros((5, 1), np.int64)).hashed_points(1.0)
    with pytest.raises(ValueError, match="must lie in the domain"):
        view.check_positions(np.array([[np.iinfo(np.int64).min]]))


@pytest.mark.parametrize(
    "value",
    [10**400, -(10**400), np.nan, np.inf, 1e308, np.longdouble("1e4000")],
    ids=["integer", "negative", "nan", "inf", "large", "longdouble"],
)
def test_no_number_of_one_record_makes_a_fit_fail(value):
    X = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(object)
    X[3, 1] = value
    model = FastLloyd(2, bounds=(-1, 1)).fit(X)
    assert np.isfinite(model.cluster_centers_).all()


# Budgets that are pure


@pytest.mark.parametrize("mu", [1e-9, 0.2])
def test_a_pure_budget_takes_no_gaussian_noise(mu):
    """The delta that it would need may be too small for a float."""
    ledger = Ledger(Budget(10.0))
    ledger.charge(Charge("a", 0, "laplace", epsilon=0.1))
    with pytest.raises(BudgetExceeded):
        ledger.charge(Charge("b", 0, "gaussian", mu=mu))
    assert ledger.spent() == pytest.approx(0.1)


def test_many_small_pure_charges_do_not_exceed_a_pure_budget():
    n = 2000
    ledger = Ledger(Budget(1.0))
    ledger.charges = tuple(Charge("a", i, "laplace", epsilon=1.05 / n) for i in range(n - 1))
    with pytest.raises(BudgetExceeded):
        ledger.charge(Charge("a", n, "laplace", epsilon=1.05 / n))


def test_a_pure_account_takes_no_gaussian_run():
    account = Account(Budget(10.0))
    with pytest.raises(BudgetExceeded):
        GLloyd(2, epsilon=1.0).fit_batch(np.zeros((50, 2), np.int64), [0], account=account)


# Null records where an adjacency has none


@pytest.mark.parametrize("method", [LocalMean(1), NoisedPoints(1)])
def test_null_records_are_refused_where_the_adjacency_has_none(method):
    points = Points.prepare(np.zeros((300, 2), np.int64), 1)
    with pytest.raises(ValueError, match=r"null records, which .* adjacency does not know"):
        method.fit_batch(points, [0])


# The protocol


@pytest.mark.parametrize("split", ["balanced", "unbalanced", "sorted"])
def test_a_null_record_counts_in_the_protocol(split):
    """Its presence must not show in n: delta and the schedule are computed from it."""
    rng = np.random.default_rng(0)
    rows = rng.integers(-SCALE, SCALE + 1, (40, 2))
    points = Points.prepare(rows[1:], 1)
    method = FastLloyd(4, variant="published")
    parts = split_points(points, 3, 0, split)
    assert sum(part.n_records for part in parts) == 40
    run, _ = run_in_threads(method, parts, [0], network=Network(3), simulated=True)
    central = method.fit_batch(points, [0])
    assert (run.centers == central.centers).all()
    assert run.ledger.budget.delta == 1 / (40 * math.log(40))


def test_a_client_does_not_release_what_the_server_does_not_noise():
    """The server draws by the schedule; the ledger would price a client's own mechanism."""

    class Understated(FastLloyd):
        def cluster(self, curator):
            release = curator.release

            def quiet(query, **noise):
                return release(query, **{part: Gaussian(2.0**40) for part in noise})

            curator.release = quiet
            return super().cluster(curator)

    points = Points.prepare(np.zeros((40, 2), np.int64))
    parts = split_points(points, 2, 0, "balanced")
    with pytest.raises(Exception, match="the server draws noise by the schedule"):
        run_in_threads(Understated(2), parts, [0], network=Network(2), simulated=True)


# Numbers of few bits


@pytest.mark.parametrize("mechanism", [Gaussian, Laplace])
def test_scales_are_floats_of_64_bits(mechanism):
    assert type(mechanism(np.float16(3.0)).scale) is float


def test_adjacencies_of_the_curators_are_those_of_their_queries():
    for query in Curator.serves:
        assert Adjacency.ZERO_OUT in query.adjacencies
