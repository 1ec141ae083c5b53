"""The local aggregator: cohorts, reports, charges, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_users import aggregator_of, new_ledger, one_cohort, uniform_points

from pkm.compute import DIRECTION_SCALE
from pkm.privacy import (
    SCALE,
    Budget,
    BudgetExceeded,
    Charge,
    Curator,
    DisclosureError,
    Ledger,
    NoiseStreams,
)
from pkm.privacy.local_aggregator import (
    BLOCK_USERS,
    Boxes,
    LocalAggregator,
    LocalCounts,
    LocalPoints,
    LocalSums,
    NearestCenter,
    ReportReuseError,
    SingleCell,
    cohort_sizes,
)
from pkm.privacy.mechanisms.randomizers import (
    REPORT_SCALE,
    RandomizedResponse,
    SignedSums,
    VectorRandomizer,
    frequency_oracle,
)


def counts_of(cohort, rule, epsilon=1.0, domain_size=None):
    """Return the estimated counts of a cohort, in users."""
    oracle = frequency_oracle(epsilon, domain_size or rule.size, cohort.key)
    answer = cohort.release(LocalCounts(rule), counts=oracle)
    return answer["counts"] / SCALE


def sums_of(cohort, rule, cells, origins, radii):
    """Return the estimated sums of a cohort, in grid steps, at epsilon 1."""
    randomizer = SignedSums(1.0, cohort.n_features, cohort.key)
    query = LocalSums(rule, cells, origins, radii)
    return cohort.release(query, sums=randomizer)["sums"]


def sum_of_all(cohort):
    """Return the estimated sum of all points of a cohort about the domain's midpoint."""
    cell = np.zeros(1, int)
    origin = np.zeros((1, cohort.n_features), int)
    return sums_of(cohort, SingleCell(), cell, origin, np.ones(1))


def reports_of(cohort):
    """Return the directions that a cohort's users report at epsilon 1."""
    randomizer = VectorRandomizer(1.0, cohort.n_features)
    return cohort.release(LocalPoints(), points=randomizer)["points"]


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 5), min_size=1, max_size=8), st.integers(1, 5000))
def test_cohorts_partition_all_users(shares, n):
    try:
        sizes = cohort_sizes(n, shares)
    except ValueError as error:
        needed = int(str(error).split("empty; ")[1].split()[0])
        assert needed > n
        assert min(cohort_sizes(needed, shares)) >= 1
    else:
        assert sum(sizes) == n
        assert min(sizes) >= 1
        exact_sizes = n * np.array(shares) / sum(shares)
        assert np.abs(np.array(sizes) - exact_sizes).max() <= 1


def test_cohorts_are_disjoint_public_and_random():
    points = uniform_points(4000)
    shares = [0.3, 0.5, 0.2]

    def users(points, seed=0):
        return [cohort._users for cohort in aggregator_of(points, seed=seed).cohorts(shares)]

    members = users(points)
    assert [len(cohort) for cohort in members] == [1200, 2000, 800]
    assert (np.sort(np.concatenate(members)) == np.arange(4000)).all()

    # Whatever the data.
    different_points = uniform_points(4000, seed=9)
    for cohort, expected in zip(users(different_points), members, strict=True):
        assert (cohort == expected).all()

    # Another seed gives other cohorts; early and late users are chosen alike.
    assert (users(points, seed=1)[0] != members[0]).any()
    standard_error = 4000 / math.sqrt(12 * 1200)
    assert abs(np.mean(members[0]) - 2000) < 5 * standard_error


def test_each_user_reports_once():
    aggregator = aggregator_of(uniform_points())
    first, second = aggregator.cohorts([1, 1])
    oracle = frequency_oracle(0.5, 1, first.key)
    twice = [(LocalCounts(SingleCell()), {"counts": oracle})] * 2
    with pytest.raises(ValueError, match="LocalCounts is released alone, got 2 requests"):
        first.release_all(twice)
    counts_of(first, SingleCell())
    repeated_queries = (
        lambda: counts_of(first, SingleCell()),
        lambda: reports_of(first),
        lambda: sum_of_all(first),
    )
    for query in repeated_queries:
        with pytest.raises(
            ReportReuseError,
            match="cohort 0 has reported; a user reports once",
        ):
            query()
    with pytest.raises(ReportReuseError, match="partitioned into cohorts before"):
        aggregator.cohorts([1.0])
    reports_of(second)
    assert [charge.group for charge in aggregator._ledger.charges] == [0, 1]


def test_ledger_accepts_one_report_of_each_user():
    """Partitioned again by another aggregator, users would report twice; each cohort has the whole
    budget.
    """
    ledger = new_ledger()
    reports_of(aggregator_of(uniform_points(), ledger=ledger).cohorts([1.0])[0])
    with pytest.raises(ReportReuseError, match="the ledger has reports of users"):
        aggregator_of(uniform_points(), ledger=ledger, seed=1)

    shared = new_ledger()
    first = aggregator_of(uniform_points(), ledger=shared)
    second = aggregator_of(uniform_points(), ledger=shared, seed=1)
    reports_of(first.cohorts([1.0])[0])
    with pytest.raises(ReportReuseError, match="reports of another aggregator"):
        reports_of(second.cohorts([0.5, 0.5])[1])

    ledger.charge(Charge("another cohort", 0, "none", epsilon=1.0, group=1))
    with pytest.raises(BudgetExceeded):
        ledger.charge(Charge("again", 0, "none", epsilon=1e-3, group=0))


def test_a_cohort_is_charged_the_epsilon_of_its_reports():
    aggregator = aggregator_of(uniform_points(), epsilon=1.0)
    first, second = aggregator.cohorts([1, 1])
    with pytest.raises(BudgetExceeded):
        counts_of(first, SingleCell(), epsilon=1.1)
    counts_of(first, SingleCell(), epsilon=0.25)
    reports_of(second)
    assert [charge.epsilon for charge in aggregator._ledger.charges] == [0.25, 1.0]
    assert aggregator._ledger.spent() == 1.0


@pytest.mark.parametrize("query", ["counts", "sums", "reports"])
def test_nothing_is_drawn_beyond_the_budget(monkeypatch, query):
    ledger = new_ledger()
    ledger.charge(Charge("before", 0, "none", epsilon=0.5))
    (cohort,) = aggregator_of(uniform_points(), ledger=ledger).cohorts([1.0])
    for law in ("uniform", "normal"):
        monkeypatch.setattr(NoiseStreams, law, lambda *_: pytest.fail("randomness was drawn"))
    queries = {
        "counts": lambda: counts_of(cohort, SingleCell()),
        "sums": lambda: sum_of_all(cohort),
        "reports": lambda: reports_of(cohort),
    }
    with pytest.raises(BudgetExceeded):
        queries[query]()


def test_aggregator_accepts_only_the_local_model():
    points = uniform_points()
    streams = NoiseStreams([0])
    with pytest.raises(
        ValueError,
        match="adjacency=zero_out is not supported by this curator",
    ):
        LocalAggregator(points, Ledger(Budget(1.0)), streams)
    with pytest.raises(ValueError, match="adjacency=None is not supported"):
        LocalAggregator(points, None, streams)
    with pytest.raises(ValueError, match="adjacency=local is not supported by this curator"):
        Curator(points, new_ledger(), streams)
    with pytest.raises(ValueError, match="one replicate at a time, not 2"):
        LocalAggregator(points, new_ledger(), NoiseStreams([0, 1]))
    with pytest.raises(ValueError, match="epsilon=50"):
        aggregator_of(points, epsilon=50.0)


def test_bad_queries_are_refused_without_charge():
    aggregator = aggregator_of(uniform_points())
    with pytest.raises(
        ValueError,
        match=r"shares=\[1, 0\] must be one or more positive numbers",
    ):
        aggregator.cohorts([1, 0])
    with pytest.raises(ValueError, match="radius=0 must be positive"):
        aggregator.cohorts([1], radius=0)
    message = r"n=1000 users are too few for 2 disjoint cohorts .* 100002 users"
    with pytest.raises(ValueError, match=message):
        aggregator.cohorts([1, 1e-5])
    (cohort,) = aggregator.cohorts([1])

    class UnknownRule:
        size = 1

        def cells(self, points):
            pytest.fail("a rule of a method's making was evaluated on the points")

    class UntrustedOracle(RandomizedResponse):
        """Could report the truth for a small charge."""

    centers = NearestCenter(np.zeros((2, 3), int))
    with pytest.raises(TypeError, match="must be one of SingleCell, NearestCenter, Boxes"):
        counts_of(cohort, UnknownRule())
    with pytest.raises(
        ValueError,
        match="size=1 of the oracle must be at least the number of cells, 2",
    ):
        counts_of(cohort, centers, domain_size=1)
    with pytest.raises(TypeError, match="and no subclass"):
        cohort.release(LocalCounts(centers), counts=UntrustedOracle(1.0, 2))

    with pytest.raises(
        ValueError,
        match="dimensions=2 of the randomizer must be the number of features, 3",
    ):
        cohort.release(LocalPoints(), points=VectorRandomizer(1.0, 2))
    with pytest.raises(TypeError, match="is a query on Cohort, not on LocalAggregator"):
        aggregator.release(LocalPoints(), points=VectorRandomizer(1.0, 3))
    with pytest.raises(DisclosureError, match="local_points would return exact answers"):
        cohort.release(LocalPoints(), points=None)

    cell = np.zeros(1, int)
    bad_sums = (
        (
            cell[:0],
            np.zeros((0, 3), int),
            np.ones(0),
            "must name one or more cells",
        ),
        (np.array([1, 1]), np.zeros((2, 3), int), np.ones(2), "once each"),
        (cell + 2, np.zeros((1, 3), int), np.ones(1), "of the 2"),
        (cell, np.zeros((1, 2), int), np.ones(1), "origins, of shape"),
        (cell, np.zeros((1, 3), int), np.zeros(1), "positive radii"),
    )
    for cells, origins, radii, message in bad_sums:
        with pytest.raises(ValueError, match=message):
            sums_of(cohort, centers, cells, origins, radii)
    assert aggregator._ledger.charges == ()
    with pytest.raises(ValueError, match="width=0 must be positive"):
        Boxes(np.eye(2, dtype=int) * DIRECTION_SCALE, np.zeros(2), 0, 4)
    with pytest.raises(ValueError, match="at most 4194304 cells"):
        Boxes(np.eye(12, dtype=int) * DIRECTION_SCALE, np.zeros(12), 0.1, 4)


def test_a_user_changes_only_one_report():
    """Users move from one end of the domain to the other; all others send the same bits."""
    points = uniform_points(BLOCK_USERS + 500, 2)
    neighbor = points.copy()
    users = {3, BLOCK_USERS, BLOCK_USERS + 499}
    for user in users:
        points[user] = SCALE
        neighbor[user] = -SCALE
    reports = reports_of(one_cohort(points))
    neighbor_reports = reports_of(one_cohort(neighbor))
    changed = (reports != neighbor_reports).any(axis=1)
    assert set(np.flatnonzero(changed)) <= users
    assert changed.any()

    corners = np.array([[SCALE, SCALE], [-SCALE, -SCALE], [SCALE, -SCALE], [-SCALE, SCALE]])
    rule = NearestCenter(corners)
    counts = counts_of(one_cohort(points), rule)
    neighbor_counts = counts_of(one_cohort(neighbor), rule)
    oracle = frequency_oracle(1.0, 4)
    largest_change = 3 / (oracle.p_true - oracle.p_false_support)
    assert np.abs(counts - neighbor_counts).max() <= largest_change + 1e-6


@pytest.mark.parametrize("query", ["counts", "sums", "reports"])
def test_answers_do_not_depend_on_shards(query):
    points = uniform_points(2 * BLOCK_USERS + 77, 2)
    shards = [
        points[:5],
        points[5:5],
        points[5 : BLOCK_USERS + 9],
        points[BLOCK_USERS + 9 :],
    ]
    rule = NearestCenter(uniform_points(40, 2, seed=1))
    cells = np.array([7, 0])
    radii = np.array([0.5, 2.0])
    answers = []
    for data in (points, shards):
        cohort = aggregator_of(data).cohorts([0.9, 0.1], radius=1.0)[0]
        if query == "counts":
            answers.append(counts_of(cohort, rule, domain_size=50))
        elif query == "sums":
            answers.append(sums_of(cohort, rule, cells, rule.centers[cells], radii))
        else:
            answers.append(reports_of(cohort))
    assert (answers[0] == answers[1]).all()


def test_users_clip_their_point_to_the_ball():
    points = uniform_points(3000, 2) // 2 * 2
    lengths = np.linalg.norm(points, axis=1)
    radius = 0.25
    factors = np.minimum(1, radius * SCALE / np.maximum(lengths, 1))[:, None]
    clipped = np.where(factors < 1, np.rint(points * factors), points).astype(int)
    cohort = one_cohort(points, radius=radius)
    clipped_cohort = one_cohort(clipped, radius=radius)
    assert (cohort._users == clipped_cohort._users).all()
    differing = (reports_of(cohort) != reports_of(clipped_cohort)).any(axis=1)
    # Clipped twice, a point may round to the next step.
    assert differing.sum() <= 3
    assert one_cohort(points, radius=9.0).radius == math.sqrt(2)


@pytest.mark.statistical
def test_counts_and_sums_are_unbiased():
    """Against exact answers about the same users, in units of the declared deviations; steps are
    shortened to the radii.
    """
    points = uniform_points(100_000, 2)
    centers = uniform_points(12, 2, seed=5)
    rule = NearestCenter(centers)
    count_cohort, sum_cohort = aggregator_of(points).cohorts([1, 1])

    exact = np.bincount(rule.cells(points[count_cohort._users]), minlength=12)
    counts = counts_of(count_cohort, rule, domain_size=200)
    oracle = frequency_oracle(1.0, 200)
    deviations = [oracle.stddev(count_cohort.size, count) for count in exact]
    assert np.abs((counts - exact) / deviations).max() < 5

    queried = np.array([4, 0, 9])
    radii = np.array([0.2, 0.5, 3.0])
    sums = sums_of(sum_cohort, rule, queried, centers[queried], radii) / SCALE
    sum_stddev = SignedSums(1.0, 2).sum_stddev(sum_cohort.size)
    cohort_points = points[sum_cohort._users]
    cells = rule.cells(cohort_points)
    for cell, radius, noisy_sum in zip(queried, radii, sums, strict=True):
        steps = (cohort_points[cells == cell] - centers[cell]) / SCALE
        lengths = np.linalg.norm(steps, axis=1)
        steps *= np.minimum(1, radius / lengths)[:, None]
        errors = noisy_sum - steps.sum(axis=0)
        assert np.abs(errors).max() < 5 * sum_stddev * radius
    stddev = VectorRandomizer(1.0, 2).stddev
    assert sum_stddev == math.sqrt(sum_cohort.size) * stddev


def test_counts_are_exact_at_a_large_epsilon():
    """Metamorphic: at epsilon 30 no report is randomized, and the oracle returns the truth."""
    points = uniform_points(5000, 2)
    rule = NearestCenter(uniform_points(7, 2, seed=5))
    cohort = aggregator_of(points, epsilon=30.0).cohorts([0.5, 0.5])[0]
    exact = np.bincount(rule.cells(points[cohort._users]), minlength=7)
    np.testing.assert_allclose(counts_of(cohort, rule, epsilon=30.0), exact, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 6),
    st.integers(0, 10**6),
)
def test_boxes(m, extra, intervals, seed):
    """Cells of midpoints and of far points; clipping moves points along the directions only."""
    generator = np.random.default_rng(seed)
    d = m + extra
    width = 0.3
    basis = np.linalg.qr(generator.standard_normal((d, m)))[0].T
    directions = np.rint(basis * DIRECTION_SCALE).astype(int)
    boxes = Boxes(directions, generator.uniform(-1, 0, m), width, intervals)

    cells = np.arange(boxes.size)
    midpoints = boxes.midpoints(cells)
    snapped = np.rint(midpoints * SCALE).astype(int)
    assert (boxes.cells(snapped) == cells).all()

    points = generator.uniform(-2, 2, (boxes.size, d))
    clipped = boxes.clip(cells, points)
    lower = (midpoints @ basis.T) - width / 2
    projected = clipped @ basis.T
    # Entries of directions are rounded to 2**-16.
    assert (projected >= lower - 1e-3).all()
    assert (projected <= lower + width + 1e-3).all()
    np.testing.assert_allclose(boxes.clip(cells, clipped), clipped, atol=1e-3)
    complement = np.eye(d) - basis.T @ basis
    np.testing.assert_allclose(clipped @ complement, points @ complement, atol=1e-3)

    # Points beyond the border belong to the cells at the border.
    far = np.rint(basis.sum(axis=0) * 10 * SCALE).astype(int)
    assert boxes.cells(np.array([far, -far])).tolist() == [boxes.size - 1, 0]


def test_points_are_reported_as_whole_steps():
    aggregator = aggregator_of(uniform_points(500, 4))
    (cohort,) = aggregator.cohorts([1], radius=0.5)
    directions = reports_of(cohort)
    assert directions.dtype == np.int32
    assert directions.shape == (500, 4)
    assert np.abs(directions).max() <= REPORT_SCALE
    details = aggregator._ledger.charges[0].details
    assert details["point_radius"] == 0.5
    assert details["point_length"] == VectorRandomizer(1.0, 4).length
