"""The methods of the local model: accounting, quality, refusals."""

import math
import re

import numpy as np
import pytest
from local_users import one_cohort, planted, uniform_points

from pkm.compute import inertia
from pkm.methods import KMeansPlusPlus
from pkm.methods.initialization import starting_centers
from pkm.methods.local.kaplan_stemmer import KaplanStemmerLocal
from pkm.methods.local.local_dp import (
    LocalLloyd,
    LocalMean,
    NoisedReports,
    check_sufficient_users,
    min_users,
    shrunken_means,
    snap_to_ball,
)
from pkm.privacy import SCALE, snap
from pkm.privacy.mechanisms.randomizers import SignedSums, VectorRandomizer

METHODS = (KaplanStemmerLocal, LocalLloyd, NoisedReports, LocalMean)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize(
    ("method", "labels"),
    [
        (
            KaplanStemmerLocal(4),
            [
                "local_counts",
                "local_sums",
                "local_counts",
                "local_sums",
                "local_sums",
            ],
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
    """Epsilon of each release from its probabilities; a cohort is charged once; the most charged
    cohort is the total.
    """
    points = uniform_points(3000, 5)
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
            # The length that makes the report unbiased determines the bias of the sign sent.
            gamma_ratio = math.exp(math.lgamma((5 + 1) / 2) - math.lgamma(5 / 2))
            fair_length = gamma_ratio * math.sqrt(math.pi)
            length = details.get("sum_length", details.get("point_length"))
            loss = 2 * math.atanh(fair_length / length)
        assert loss == pytest.approx(epsilon, rel=1e-9)
        assert charge.epsilon == epsilon
        assert charge.mu == 0
        assert charge.delta == 0
    assert run.ledger.spent() == epsilon
    assert run.ledger.budget.delta == 0
    n_iter = 3 if isinstance(method, LocalLloyd) else len(labels)
    assert run.n_iter == n_iter


@pytest.mark.parametrize(("d", "k"), [(2, 4), (8, 4)])
def test_finds_planted_clusters(d, k):
    """At epsilon 4, n = 1e5: close to k-means; a single missed cluster would cost far more."""
    points, centers = planted(100_000, d, k)
    exact = KMeansPlusPlus(k, n_init=3).fit_batch(points, [0])
    best = inertia(points, exact.centers)[0]
    private = KaplanStemmerLocal(k, epsilon=4.0, radius=1.0).fit_batch(points, range(5))
    assert np.median(inertia(points, private.centers)) < 1.25 * best
    one_missed = inertia(points, snap(centers[1:])[None])[0]
    assert one_missed > 5 * best


@pytest.mark.slow
def test_methods_are_ordered_by_inertia():
    """Kaplan-Stemmer below Lloyd, Lloyd below its start and a single mean, noised points last."""
    points, _ = planted(60_000, 2, 5, seed=3)

    def median_inertia(method):
        run = method.fit_batch(points, range(5))
        return float(np.median(inertia(points, run.centers)))

    start_centers = starting_centers(range(5), 5, 2, "packing", "bisection")
    start = float(np.median(inertia(points, start_centers)))
    kaplan_stemmer = median_inertia(KaplanStemmerLocal(5, epsilon=4.0, radius=1.0))
    lloyd = median_inertia(LocalLloyd(5, epsilon=4.0, radius=1.0))
    mean = median_inertia(LocalMean(epsilon=4.0, radius=1.0))
    noised = median_inertia(NoisedReports(5, epsilon=4.0, radius=1.0))
    assert kaplan_stemmer < lloyd / 1.5
    assert lloyd < start
    assert lloyd < mean / 2
    assert noised > 3 * lloyd


@pytest.mark.statistical
def test_the_mean_is_unbiased():
    points = uniform_points(10_000, 3, seed=4) // 3 + SCALE // 4
    mean = points.mean(axis=0)
    method = LocalMean(epsilon=1.0)
    errors = []
    for seed in range(60):
        run = method.fit_batch(points, [seed])
        errors.append((run.centers[0, 0] - mean) / SCALE)
    deviation = math.sqrt(3) * VectorRandomizer(1.0, 3).stddev / math.sqrt(10_000)
    assert np.abs(np.mean(errors, axis=0)).max() < 5 * deviation / math.sqrt(60)
    assert 0.7 * deviation < np.std(errors) < 1.3 * deviation


def test_steps_are_shrunk_by_their_noise():
    cohort = one_cohort(uniform_points(10_000, 4), epsilon=2.0)
    sizes = np.array([5000.0, 1.0])
    radii = np.array([0.5, 0.5])
    sums = np.array([[5000.0, 0, 0, 0], [0.1, 0.1, 0, 0]])
    stddev = SignedSums(2.0, 4).sum_stddev(cohort.size)
    steps = shrunken_means(sums, sizes, radii, stddev)
    noise = 4 * (0.5 * stddev / 5000) ** 2
    np.testing.assert_allclose(steps[0], [1 - noise, 0, 0, 0])
    assert (steps[1] == 0).all()  # nothing but noise


def test_snapped_points_stay_in_ball_and_domain():
    points = np.random.default_rng(0).uniform(-3, 3, (200, 3))
    inside = snap_to_ball(points, 0.9)
    assert np.linalg.norm(inside, axis=1).max() <= 0.9 * SCALE + 1
    assert np.abs(snap_to_ball(points, 5.0)).max() == SCALE
    assert snap_to_ball(np.zeros((1, 3)), 1.0).tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("method", [KaplanStemmerLocal, LocalLloyd])
def test_refusal_names_a_sufficient_budget(method):
    """Too few users or too little epsilon: the message names n and epsilon that suffice."""
    small = method(3, epsilon=0.01)
    message = r"epsilon=0\.01 is too little for n=2000 users"
    with pytest.raises(ValueError, match=message) as refused:
        small.check_parameters(2000)
    pattern = r"n=(\d+) users or epsilon=(\S+) would suffice"
    users_text, epsilon_text = re.search(pattern, str(refused.value)).groups()
    users = int(users_text)
    epsilon = float(epsilon_text)
    small.check_parameters(users)
    method(3, epsilon=epsilon * 1.01).check_parameters(2000)
    with pytest.raises(ValueError, match="too little"):
        small.check_parameters(users - 1)
    with pytest.raises(ValueError, match="too little"):
        method(3, epsilon=epsilon * 0.98).check_parameters(2000)


def test_fewer_users_than_cohorts_are_refused():
    method = KaplanStemmerLocal(2, epsilon=10.0)
    message = r"n=4 users are too few for 5 disjoint cohorts .* 7 users"
    with pytest.raises(ValueError, match=message):
        method.fit_batch(uniform_points(4), [0])
    check_sufficient_users(1.0, math.ceil(min_users(1.0)), [1.0])


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            KaplanStemmerLocal(epsilon=41.0),
            "epsilon=41.0 of a local report must be from 9.5e-07 to 40",
        ),
        (
            KaplanStemmerLocal(radius=0),
            "radius=0 must be 'auto' or a positive finite number",
        ),
        (KaplanStemmerLocal(radius="wide"), "radius='wide'"),
        (
            KaplanStemmerLocal(projections=0),
            "projections=0 must be 'auto' or an integer of at least 1",
        ),
        (
            KaplanStemmerLocal(intervals=1),
            "intervals=1 must be 'auto' or an integer of at least 2",
        ),
        (
            KaplanStemmerLocal(passes=0),
            "passes=0 must be an integer of at least 1",
        ),
        (
            KaplanStemmerLocal(lloyd_steps=-1),
            "lloyd_steps=-1 must be an integer of at least 0",
        ),
        (
            KaplanStemmerLocal(shares=(0.5, 0.5)),
            "must be 'auto' or 5 positive numbers, one per round",
        ),
        (
            KaplanStemmerLocal(shares=(1, 1, 1, 1, 0)),
            "must be 'auto' or 5 positive numbers",
        ),
        (KaplanStemmerLocal(shares="even"), "shares='even'"),
        (KaplanStemmerLocal(secure="yes"), "secure='yes'"),
        (
            LocalLloyd(n_iterations=0),
            "n_iterations=0 must be an integer of at least 1",
        ),
        (LocalLloyd(count_share=1), "count_share=1 must be a number in"),
        (LocalLloyd(initialization="kmeans"), "initialization='kmeans'"),
        (
            NoisedReports(n_init=0),
            "n_init=0 must be an integer of at least 1",
        ),
    ],
)
def test_bad_parameters_are_refused(method, message):
    with pytest.raises(ValueError, match=message):
        method.fit_batch(uniform_points(), [0])


@pytest.mark.parametrize("method", METHODS)
def test_secure_reports_are_fresh(method):
    points = uniform_points(400, 2)
    secure = method(2, secure=True)
    first = secure.fit_batch(points, [0]).centers
    second = secure.fit_batch(points, [0]).centers
    assert (first != second).any()


@pytest.mark.parametrize("k", [1, 2, 30])
@pytest.mark.parametrize("d", [1, 6])
@pytest.mark.parametrize("method", [KaplanStemmerLocal, LocalLloyd])
def test_degenerate_data_have_defined_results(method, d, k):
    for coordinate in (SCALE, 0, -SCALE):
        points = np.full((200, d), coordinate)
        centers = method(k, epsilon=2.0).fit_batch(points, [0]).centers
        assert centers.shape[2] == d
        assert 1 <= centers.shape[1] <= k
        assert np.abs(centers).max() <= SCALE
