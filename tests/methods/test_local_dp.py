"""The local aggregator and the methods of the local model.

Who reports what and how often, accounting, and what is found.
"""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pkm.compute import DIRECTION_SCALE, Points, inertia
from pkm.methods import KMeansPlusPlus
from pkm.audit.conformance import CHECKS, conformance
from pkm.methods.initialization import starting_centers
from pkm.methods.kaplan_stemmer_local import KaplanStemmerLocal
from pkm.methods.local_dp import (
    LocalLloyd,
    LocalMean,
    NoisedReports,
    check_sufficient_users,
    min_users,
    shrunken_means,
    snap_to_ball,
)
from pkm.privacy import (
    SCALE,
    Budget,
    BudgetExceeded,
    Charge,
    Curator,
    DisclosureError,
    Ledger,
    NoiseStreams,
    snap,
)
from pkm.privacy.local_aggregator import (
    CHUNK,
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
from pkm.privacy.randomizers import (
    REPORT_SCALE,
    DirectResponse,
    SignedSums,
    VectorRandomizer,
    frequency_oracle,
)

METHODS = (KaplanStemmerLocal, LocalLloyd, NoisedReports, LocalMean)


def ledger(epsilon=1.0):
    return Ledger(Budget(epsilon, 0.0, "local"))


def aggregator_of(points, epsilon=1.0, seed=0, book=None):
    return LocalAggregator(points, book or ledger(epsilon), NoiseStreams([seed]))


def counts_of(group, rule, epsilon=1.0, domain_size=None):
    """Estimated counts of a cohort, in users."""
    oracle = frequency_oracle(epsilon, domain_size or rule.size, group.key)
    return group.release(LocalCounts(rule), counts=oracle)["counts"] / SCALE


def sums_of(group, rule, cells, origins, radii):
    """Estimated sums of a cohort, in grid steps, at epsilon 1."""
    randomizer = SignedSums(1.0, group.n_features, group.key)
    return group.release(LocalSums(rule, cells, origins, radii), sums=randomizer)["sums"]


def reports_of(group):
    """Directions of a cohort's users, at epsilon 1."""
    randomizer = VectorRandomizer(1.0, group.n_features)
    return group.release(LocalPoints(), points=randomizer)["points"]


def sum_of_all(group):
    """Estimated sum of a cohort's points about the midpoint of the domain."""
    d = group.n_features
    return sums_of(group, SingleCell(), np.zeros(1, int), np.zeros((1, d), int), np.ones(1))


def cloud(n=1000, d=3, seed=0):
    return np.random.default_rng(seed).integers(-SCALE, SCALE + 1, (n, d))


def planted(n, d, k, seed=0, deviation=0.03):
    """Clusters of equal size about centers in the unit ball that keep apart, and the centers."""
    generator = np.random.default_rng(seed)
    centers = []
    while len(centers) < k:
        drawn = generator.uniform(-0.7, 0.7, d)
        if np.linalg.norm(drawn) < 0.8 and all(
            np.linalg.norm(drawn - each) > 0.5 for each in centers
        ):
            centers.append(drawn)
    centers = np.array(centers)
    points = centers[np.arange(n) % k] + deviation * generator.standard_normal((n, d))
    return Points.prepare(snap(np.clip(points, -1, 1))), centers


# Groups


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 5), min_size=1, max_size=8), st.integers(1, 5000))
def test_groups_share_out_all_users(shares, n):
    try:
        sizes = cohort_sizes(n, shares)
    except ValueError as error:
        needed = int(str(error).split("empty; ")[1].split()[0])
        assert needed > n and min(cohort_sizes(needed, shares)) >= 1
    else:
        assert sum(sizes) == n and min(sizes) >= 1
        assert np.abs(np.array(sizes) - n * np.array(shares) / sum(shares)).max() <= 1


def test_groups_are_disjoint_public_and_fair():
    points = cloud(4000)
    members = [group._users for group in aggregator_of(points).cohorts([0.3, 0.5, 0.2])]
    assert [len(each) for each in members] == [1200, 2000, 800]
    assert (np.sort(np.concatenate(members)) == np.arange(4000)).all()
    other = [group._users for group in aggregator_of(cloud(4000, seed=9)).cohorts([0.3, 0.5, 0.2])]
    assert all(
        (one == two).all() for one, two in zip(members, other, strict=True)
    )  # whatever the data
    another = aggregator_of(points, seed=1).cohorts([0.3, 0.5, 0.2])[0]._users
    assert (another != members[0]).any()
    assert abs(np.mean(members[0]) - 2000) < 5 * 4000 / math.sqrt(
        12 * 1200
    )  # early and late users alike


def test_each_user_reports_once():
    asked = aggregator_of(cloud())
    first, second = asked.cohorts([1, 1])
    counts_of(first, SingleCell())
    for again in (
        lambda: counts_of(first, SingleCell()),
        lambda: reports_of(first),
        lambda: sum_of_all(first),
    ):
        with pytest.raises(ReportReuseError, match="cohort 0 has reported; a user reports once"):
            again()
    with pytest.raises(ReportReuseError, match="partitioned into cohorts before"):
        asked.cohorts([1.0])
    reports_of(second)
    assert [charge.group for charge in asked._ledger.charges] == [0, 1]


def test_a_ledger_pays_for_one_report_of_each_user():
    """Split again by another aggregator, users would report twice; cohorts of one have a budget
    each.
    """
    book = ledger()
    reports_of(aggregator_of(cloud(), book=book).cohorts([1.0])[0])
    with pytest.raises(ReportReuseError, match="the ledger has reports of users"):
        aggregator_of(cloud(), book=book, seed=1)
    shared = ledger()
    one = aggregator_of(cloud(), book=shared)
    other = aggregator_of(cloud(), book=shared, seed=1)
    reports_of(one.cohorts([1.0])[0])
    with pytest.raises(ReportReuseError, match="reports of another aggregator"):
        reports_of(other.cohorts([0.5, 0.5])[1])
    book.charge(Charge("elsewhere", 0, "none", epsilon=1.0, group=1))
    with pytest.raises(BudgetExceeded):
        book.charge(Charge("again", 0, "none", epsilon=1e-3, group=0))


def test_a_cohort_is_charged_the_epsilon_of_its_reports():
    aggregator = aggregator_of(cloud(), epsilon=1.0)
    first, second = aggregator.cohorts([1, 1])
    with pytest.raises(BudgetExceeded):
        counts_of(first, SingleCell(), epsilon=1.1)
    counts_of(first, SingleCell(), epsilon=0.25)
    reports_of(second)
    assert [charge.epsilon for charge in aggregator._ledger.charges] == [0.25, 1.0]
    assert aggregator._ledger.spent() == 1.0


@pytest.mark.parametrize("question", ["counts", "sums", "reports"])
def test_nothing_is_drawn_that_is_not_paid_for(monkeypatch, question):
    book = ledger()
    book.charge(Charge("before", 0, "none", epsilon=0.5))
    group = aggregator_of(cloud(), book=book).cohorts([1.0])[0]
    for law in ("uniform", "normal"):
        monkeypatch.setattr(NoiseStreams, law, lambda *_: pytest.fail("randomness was drawn"))
    ask = {
        "counts": lambda: counts_of(group, SingleCell()),
        "sums": lambda: sum_of_all(group),
        "reports": lambda: reports_of(group),
    }[question]
    with pytest.raises(BudgetExceeded):
        ask()


def test_a_crowd_serves_the_local_model_alone():
    with pytest.raises(ValueError, match="adjacency=zero_out is not supported by this aggregator"):
        LocalAggregator(cloud(), Ledger(Budget(1.0)), NoiseStreams([0]))
    with pytest.raises(ValueError, match="adjacency=None is not supported"):
        LocalAggregator(cloud(), None, NoiseStreams([0]))
    with pytest.raises(ValueError, match="adjacency=local is not supported by this curator"):
        Curator(cloud(), ledger(), NoiseStreams([0]))
    with pytest.raises(ValueError, match="one replicate at a time, not 2"):
        LocalAggregator(cloud(), ledger(), NoiseStreams([0, 1]))
    with pytest.raises(ValueError, match="epsilon=50"):
        aggregator_of(cloud(), epsilon=50.0)


def test_ill_posed_questions_are_refused_and_cost_nothing():
    asked = aggregator_of(cloud())
    with pytest.raises(ValueError, match=r"shares=\[1, 0\] must be one or more positive numbers"):
        asked.cohorts([1, 0])
    with pytest.raises(ValueError, match="radius=0 must be positive"):
        asked.cohorts([1], radius=0)
    with pytest.raises(
        ValueError, match=r"n=1000 users are too few for 2 disjoint cohorts .* 100002 users"
    ):
        asked.cohorts([1, 1e-5])
    (group,) = asked.cohorts([1])

    class Spy:
        size = 1

        def cells(self, points):
            pytest.fail("a method saw points")

    class Truthful(DirectResponse):
        """Would report the truth for a small charge."""

    zero = np.zeros(1, int)
    centers = NearestCenter(np.zeros((2, 3), int))
    for ask, message in (
        (lambda: counts_of(group, Spy()), "must be one of SingleCell, NearestCenter, Boxes"),
        (
            lambda: counts_of(group, centers, domain_size=1),
            "size=1 of the oracle must be at least the number of cells, 2",
        ),
        (
            lambda: group.release(LocalCounts(centers), counts=Truthful(1.0, 2)),
            "and no subclass",
        ),
        (
            lambda: group.release(LocalPoints(), points=VectorRandomizer(1.0, 2)),
            "dimensions=2 of the randomizer must be the number of features, 3",
        ),
        (
            lambda: asked.release(LocalPoints(), points=VectorRandomizer(1.0, 3)),
            "is answered by a cohort, not by LocalAggregator",
        ),
        (
            lambda: sums_of(group, centers, zero[:0], np.zeros((0, 3), int), np.ones(0)),
            "must name one or more cells",
        ),
        (
            lambda: sums_of(group, centers, np.array([1, 1]), np.zeros((2, 3), int), np.ones(2)),
            "once each",
        ),
        (lambda: sums_of(group, centers, zero + 2, np.zeros((1, 3), int), np.ones(1)), "of the 2"),
        (lambda: sums_of(group, centers, zero, np.zeros((1, 2), int), np.ones(1)), "origins, of"),
        (lambda: sums_of(group, centers, zero, np.zeros((1, 3), int), zero), "positive radii"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            ask()
    with pytest.raises(DisclosureError, match="local_points would return exact answers"):
        group.release(LocalPoints(), points=None)
    assert asked._ledger.charges == ()
    with pytest.raises(ValueError, match="width=0 must be positive"):
        Boxes(np.eye(2, dtype=int) * DIRECTION_SCALE, np.zeros(2), 0, 4)
    with pytest.raises(ValueError, match="at most 4194304 cells"):
        Boxes(np.eye(12, dtype=int) * DIRECTION_SCALE, np.zeros(12), 0.1, 4)


# Reports


def test_a_user_changes_that_users_report_alone():
    """One user moves from one end of the domain to the other; all others send the same bits."""
    points = cloud(CHUNK + 500, 2)
    moved = points.copy()
    for user in (3, CHUNK, CHUNK + 499):
        points[user] = SCALE
        moved[user] = -SCALE
    (one,) = aggregator_of(points).cohorts([1])
    (other,) = aggregator_of(moved).cohorts([1])
    changed = (reports_of(one) != reports_of(other)).any(axis=1)
    assert set(np.flatnonzero(changed)) <= {3, CHUNK, CHUNK + 499} and changed.any()
    oracle = frequency_oracle(1.0, 4)
    rule = NearestCenter(
        np.array([[SCALE, SCALE], [-SCALE, -SCALE], [SCALE, -SCALE], [-SCALE, SCALE]])
    )
    (one,) = aggregator_of(points).cohorts([1])
    (other,) = aggregator_of(moved).cohorts([1])
    step = np.abs(counts_of(one, rule) - counts_of(other, rule))
    assert step.max() <= 3 / (oracle.p_true - oracle.p_false_support) + 1e-6


@pytest.mark.parametrize("question", ["counts", "sums", "reports"])
def test_answers_do_not_depend_on_shards(question):
    points = cloud(2 * CHUNK + 77, 2)
    shards = [points[:5], points[5:5], points[5 : CHUNK + 9], points[CHUNK + 9 :]]
    rule = NearestCenter(cloud(40, 2, seed=1))
    answers = []
    for data in (points, shards):
        group = aggregator_of(data).cohorts([0.9, 0.1], radius=1.0)[0]
        if question == "counts":
            answers.append(counts_of(group, rule, domain_size=50))
        elif question == "sums":
            answers.append(
                sums_of(group, rule, np.array([7, 0]), rule.centers[[7, 0]], np.array([0.5, 2.0]))
            )
        else:
            answers.append(reports_of(group))
    assert (answers[0] == answers[1]).all()


def test_users_pull_their_point_into_the_ball():
    points = cloud(3000, 2) // 2 * 2
    lengths = np.linalg.norm(points, axis=1)
    radius = 0.25
    factor = np.minimum(1, radius * SCALE / np.maximum(lengths, 1))[:, None]
    pulled = np.where(factor < 1, np.rint(points * factor), points).astype(int)
    one, other = (aggregator_of(data).cohorts([1], radius)[0] for data in (points, pulled))
    assert (one._users == other._users).all()
    differing = (reports_of(one) != reports_of(other)).any(axis=1)
    assert differing.sum() <= 3  # pulled twice, a point may round to the next step
    assert aggregator_of(points).cohorts([1], radius=9.0)[0].radius == math.sqrt(2)


@pytest.mark.statistical
def test_counts_and_sums_are_unbiased_through_the_door():
    """Against exact answers about the same users, in units of the declared deviations; steps are
    shortened as told.
    """
    points = cloud(100_000, 2)
    centers = cloud(12, 2, seed=5)
    rule = NearestCenter(centers)
    asked = np.array([4, 0, 9])
    counted, summed = aggregator_of(points).cohorts([1, 1])
    cells = rule.cells(points[counted._users])
    exact = np.bincount(cells, minlength=12)
    estimate = counts_of(counted, rule, domain_size=200)
    oracle = frequency_oracle(1.0, 200)
    assert (
        np.abs((estimate - exact) / [oracle.stddev(counted.size, count) for count in exact]).max()
        < 5
    )
    radii = np.array([0.2, 0.5, 3.0])
    sums = sums_of(summed, rule, asked, centers[asked], radii) / SCALE
    stddev = SignedSums(1.0, 2).sum_stddev(summed.size)
    own = points[summed._users]
    cells = rule.cells(own)
    for cell, radius, found in zip(asked, radii, sums, strict=True):
        steps = (own[cells == cell] - centers[cell]) / SCALE
        steps *= np.minimum(1, radius / np.linalg.norm(steps, axis=1))[:, None]
        assert np.abs(found - steps.sum(axis=0)).max() < 5 * stddev * radius
    assert stddev == math.sqrt(summed.size) * VectorRandomizer(1.0, 2).stddev


def test_counts_are_exact_where_epsilon_is_ample():
    """Metamorphic: at epsilon 30 nobody lies, and the oracle of a few values returns the truth."""
    points = cloud(5000, 2)
    rule = NearestCenter(cloud(7, 2, seed=5))
    group = aggregator_of(points, epsilon=30.0).cohorts([0.5, 0.5])[0]
    exact = np.bincount(rule.cells(points[group._users]), minlength=7)
    np.testing.assert_allclose(counts_of(group, rule, epsilon=30.0), exact, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(0, 3), st.integers(1, 6), st.integers(0, 10**6))
def test_boxes(m, more, intervals, seed):
    generator = np.random.default_rng(seed)
    d = m + more
    basis = np.linalg.qr(generator.standard_normal((d, m)))[0].T
    boxes = Boxes(
        np.rint(basis * DIRECTION_SCALE).astype(int), generator.uniform(-1, 0, m), 0.3, intervals
    )
    cells = np.arange(boxes.size)
    middles = boxes.midpoints(cells)
    snapped_middles = np.rint(middles * SCALE).astype(int)
    assert (boxes.cells(snapped_middles) == cells).all()
    points = generator.uniform(-2, 2, (boxes.size, d))
    inside = boxes.clip(cells, points)
    lower = (middles @ basis.T) - 0.15
    along = inside @ basis.T
    assert (along >= lower - 1e-3).all() and (along <= lower + 0.3 + 1e-3).all()
    np.testing.assert_allclose(
        boxes.clip(cells, inside), inside, atol=1e-3
    )  # entries are rounded to 2**-16
    across = np.eye(d) - basis.T @ basis
    np.testing.assert_allclose(inside @ across, points @ across, atol=1e-3)
    far = np.rint(basis.sum(axis=0) * 10 * SCALE).astype(int)
    assert boxes.cells(np.array([far, -far])).tolist() == [
        boxes.size - 1,
        0,
    ]  # clamped to the border


# The methods


@pytest.mark.parametrize("method", METHODS)
def test_methods_conform(method):
    results = conformance(method)
    assert len(results) == len(CHECKS)
    assert [result for result in results if result.error] == []


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize(
    ("method", "labels"),
    [
        (
            KaplanStemmerLocal(4),
            ["local_counts", "local_sums", "local_counts", "local_sums", "local_sums"],
        ),
        (
            KaplanStemmerLocal(4, passes=2, lloyd_steps=0),
            ["local_counts", "local_sums", "local_sums", "local_counts"],
        ),
        (LocalLloyd(4), ["local_counts", "local_sums"] * 3),
        (NoisedReports(4), ["local_points"]),
        (LocalMean(), ["local_sums"]),
    ],
)
def test_accounting_from_the_charges(method, labels, epsilon):
    """Epsilon of each release from its own probabilities; a group is charged once; the worst group
    is the total.
    """
    points = cloud(3000, 5)
    method = method.set_params(epsilon=epsilon)
    run = method.fit_batch(points, [0, 1])
    charges = run.ledger.charges
    assert [charge.label for charge in charges] == labels
    assert [charge.group for charge in charges] == list(range(len(labels)))
    for charge in charges:
        details = charge.details
        if "count_p_true" in details:
            p_true = details["count_p_true"]
            p_false = details["count_p_false"]
            n_false = details["count_symbols"] - 1
            assert p_true + n_false * p_false == pytest.approx(1, rel=1e-12)
            loss = math.log(p_true / p_false)
        else:
            # The length that makes the report unbiased tells the bias of the bit that was sent.
            fair = math.exp(math.lgamma((5 + 1) / 2) - math.lgamma(5 / 2)) * math.sqrt(math.pi)
            length = details.get("sum_length", details.get("point_length"))
            loss = 2 * math.atanh(fair / length)
        assert loss == pytest.approx(epsilon, rel=1e-9) and charge.epsilon == epsilon
        assert charge.mu == charge.delta == 0
    assert run.ledger.spent() == epsilon and run.ledger.budget.delta == 0
    assert run.n_iter == (len(labels) if not isinstance(method, LocalLloyd) else 3)


@pytest.mark.parametrize(("d", "k"), [(2, 4), (8, 4)])
def test_planted_clusters_are_found(d, k):
    """At epsilon 4, n = 1e5: close to k-means; a single missed cluster would cost far more."""
    points, centers = planted(100_000, d, k)
    best = inertia(points, KMeansPlusPlus(k, n_init=3).fit_batch(points, [0]).centers)[0]
    private = np.array(
        inertia(
            points,
            KaplanStemmerLocal(k, epsilon=4.0, radius=1.0).fit_batch(points, range(5)).centers,
        )
    )
    assert np.median(private) < 1.25 * best
    merged = inertia(points, snap(centers[1:])[None])[0]
    assert merged > 5 * best


def test_methods_order_as_they_should():
    """Kaplan-Stemmer below Lloyd, Lloyd below its own start, noise on points near a single mean."""
    points, _ = planted(60_000, 2, 5, seed=3)

    def cost(method):
        return float(np.median(inertia(points, method.fit_batch(points, range(5)).centers)))

    ours = cost(KaplanStemmerLocal(5, epsilon=4.0, radius=1.0))
    lloyd = cost(LocalLloyd(5, epsilon=4.0, radius=1.0))
    start = float(
        np.median(inertia(points, starting_centers(range(5), 5, 2, "packing", "bisection")))
    )
    mean = cost(LocalMean(epsilon=4.0, radius=1.0))
    noised = cost(NoisedReports(5, epsilon=4.0, radius=1.0))
    assert ours < lloyd / 1.5 and lloyd < start and lloyd < mean / 2
    assert noised > 3 * lloyd


@pytest.mark.statistical
def test_the_mean_is_unbiased():
    points = cloud(10_000, 3, seed=4) // 3 + SCALE // 4
    errors = [
        (LocalMean(epsilon=1.0).fit_batch(points, [seed]).centers[0, 0] - points.mean(axis=0))
        / SCALE
        for seed in range(60)
    ]
    deviation = math.sqrt(3) * VectorRandomizer(1.0, 3).stddev / math.sqrt(10_000)
    assert np.abs(np.mean(errors, axis=0)).max() < 5 * deviation / math.sqrt(60)
    assert 0.7 * deviation < np.std(errors) < 1.3 * deviation


def test_the_coreset_stands_for_the_points():
    points, centers = planted(100_000, 2, 4)
    method = KaplanStemmerLocal(4, epsilon=4.0, radius=1.0)
    coreset = method.coreset_of(points, 3)
    assert coreset.weights.sum() == pytest.approx(100_000) and coreset.weights.min() >= 0
    assert len(coreset.points) == len(coreset.weights) <= 16
    assert [charge.group for charge in coreset.ledger.charges] == [0, 1, 2]
    for k in (1, 2):
        asked = centers[:k]
        exact = inertia(points, snap(asked)[None])[0] / SCALE**2
        assert coreset.cost_estimate(asked) == pytest.approx(exact, rel=0.1)
    scaled = method.set_params(bounds=(0, 10), random_state=3).coreset(
        (points.rows / SCALE + 1) * 5
    )
    np.testing.assert_allclose(scaled.points, (coreset.points + 1) * 5, atol=1e-9)
    with pytest.raises(ValueError, match="points lie outside bounds"):
        method.set_params(bounds=(0, 1), clip=False).coreset(np.full((1000, 2), 3.0))


def test_candidates_lie_in_their_boxes_and_weights_are_shares():
    points, _ = planted(50_000, 2, 3)
    method = KaplanStemmerLocal(3, epsilon=4.0, radius=1.0, passes=2, lloyd_steps=0)
    for seed in range(5):
        coreset = method.coreset_of(points, seed)
        assert np.linalg.norm(coreset.points, axis=1).max() <= 1 + 1e-4
        assert (coreset.weights > 0).sum() >= 3


def test_steps_are_shrunk_by_their_noise():
    (group,) = aggregator_of(cloud(10_000, 4), epsilon=2.0).cohorts([1])
    sizes = np.array([5000.0, 1.0])
    radii = np.array([0.5, 0.5])
    sums = np.array([[5000.0, 0, 0, 0], [0.1, 0.1, 0, 0]]) * SCALE
    stddev = SignedSums(2.0, 4).sum_stddev(group.size)
    steps = shrunken_means(sums, sizes, radii, stddev)
    noise = 4 * (0.5 * stddev / 5000) ** 2
    np.testing.assert_allclose(steps[0], [1 - noise, 0, 0, 0])
    assert (steps[1] == 0).all()  # all noise


def test_snapped_points_stay_in_ball_and_domain():
    points = np.random.default_rng(0).uniform(-3, 3, (200, 3))
    inside = snap_to_ball(points, 0.9)
    assert np.linalg.norm(inside, axis=1).max() <= 0.9 * SCALE + 1
    assert np.abs(snap_to_ball(points, 5.0)).max() == SCALE
    assert snap_to_ball(np.zeros((1, 3)), 1.0).tolist() == [[0, 0, 0]]


# Too few users, too little budget, bad parameters


@pytest.mark.parametrize("method", [KaplanStemmerLocal, LocalLloyd])
def test_too_little_says_what_would_do(method):
    with pytest.raises(
        ValueError, match=r"epsilon=0\.01 is too little for n=2000 users"
    ) as refused:
        method(3, epsilon=0.01).check_parameters(2000)
    users, epsilon = re.search(
        r"n=(\d+) users or epsilon=(\S+) would suffice", str(refused.value)
    ).groups()
    users = int(users)
    epsilon = float(epsilon)
    method(3, epsilon=0.01).check_parameters(users)
    method(3, epsilon=epsilon * 1.01).check_parameters(2000)
    with pytest.raises(ValueError, match="too little"):
        method(3, epsilon=0.01).check_parameters(users - 1)
    with pytest.raises(ValueError, match="too little"):
        method(3, epsilon=epsilon * 0.98).check_parameters(2000)


def test_fewer_users_than_groups():
    with pytest.raises(
        ValueError, match=r"n=4 users are too few for 5 disjoint cohorts .* 7 users"
    ):
        KaplanStemmerLocal(2, epsilon=10.0).fit_batch(cloud(4), [0])
    check_sufficient_users(1.0, math.ceil(min_users(1.0)), [1.0])


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            KaplanStemmerLocal(epsilon=41.0),
            "epsilon=41.0 must be positive and, of a local report, at most 40",
        ),
        (KaplanStemmerLocal(radius=0), "radius=0 must be 'auto' or a positive finite number"),
        (KaplanStemmerLocal(radius="wide"), "radius='wide'"),
        (
            KaplanStemmerLocal(projections=0),
            "projections=0 must be 'auto' or an integer of at least 1",
        ),
        (KaplanStemmerLocal(intervals=1), "intervals=1 must be 'auto' or an integer of at least 2"),
        (KaplanStemmerLocal(passes=0), "passes=0 must be an integer of at least 1"),
        (KaplanStemmerLocal(lloyd_steps=-1), "lloyd_steps=-1 must be an integer of at least 0"),
        (
            KaplanStemmerLocal(shares=(0.5, 0.5)),
            "must be 'auto' or 5 positive numbers, one per round",
        ),
        (KaplanStemmerLocal(shares=(1, 1, 1, 1, 0)), "must be 'auto' or 5 positive numbers"),
        (KaplanStemmerLocal(shares="even"), "shares='even'"),
        (KaplanStemmerLocal(secure="yes"), "secure='yes'"),
        (LocalLloyd(n_iterations=0), "n_iterations=0 must be an integer of at least 1"),
        (LocalLloyd(count_share=1), "count_share=1 must be a number in"),
        (LocalLloyd(initialization="kmeans"), "initialization='kmeans'"),
        (NoisedReports(n_init=0), "n_init=0 must be an integer of at least 1"),
    ],
)
def test_bad_parameters_are_refused(method, message):
    with pytest.raises(ValueError, match=message):
        method.fit_batch(cloud(), [0])


@pytest.mark.parametrize("method", METHODS)
def test_secure_reports_are_fresh(method):
    points = cloud(400, 2)
    secure = method(2, secure=True)
    one = secure.fit_batch(points, [0]).centers
    other = secure.fit_batch(points, [0]).centers
    assert (one != other).any()


@pytest.mark.parametrize("k", [1, 2, 30])
@pytest.mark.parametrize("d", [1, 6])
@pytest.mark.parametrize("method", [KaplanStemmerLocal, LocalLloyd])
def test_degenerate_data_have_defined_results(method, d, k):
    for rows in (np.full((200, d), SCALE), np.zeros((200, d), int), np.full((200, d), -SCALE)):
        centers = method(k, epsilon=2.0).fit_batch(rows, [0]).centers
        assert (
            centers.shape[2] == d and 1 <= centers.shape[1] <= k and np.abs(centers).max() <= SCALE
        )


def test_points_are_reported_as_whole_steps():
    aggregator = aggregator_of(cloud(500, 4))
    directions = reports_of(aggregator.cohorts([1], radius=0.5)[0])
    assert directions.dtype == np.int32 and directions.shape == (500, 4)
    assert np.abs(directions).max() <= REPORT_SCALE
    details = aggregator._ledger.charges[0].details
    assert details["point_radius"] == 0.5
    assert details["point_length"] == VectorRandomizer(1.0, 4).length
