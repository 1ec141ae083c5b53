"""Claims that follow from a formula; tested on the code that the bench runs."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import yaml
from scipy import optimize, special, stats

from pkm.analysis.claims import exact
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.expressions import evaluate_expression
from pkm.analysis.claims.findings import HOLDS, REFUTED
from pkm.analysis.papers.kaplan_stemmer import ROWS
from pkm.catalogue import CONF
from pkm.compute import Points
from pkm.datasets import Dataset, load, scale
from pkm.datasets.registry import find
from pkm.experiments.config.groups import choices
from pkm.experiments.plan.axes import expand_datasets
from pkm.federation.sparse import N_CHECK_SUMS, SparseCode
from pkm.methods import DPLloyd
from pkm.methods.trees.dpm import (
    DPM,
    EMPTINESS_WEIGHTS,
    GAP_CONSTANT,
    PUBLISHED_SHARES,
    SIGMA_STEP,
    interval_width,
    level_budgets,
)
from pkm.metrics import evaluate, reference_set
from pkm.metrics.matching import nearest_distances
from pkm.privacy import SCALE, SplitScore
from pkm.privacy.grid import snap

ALL_CLAIMS = [claim for paper in choices("paper") for claim in read_claims(paper)["claims"]]
PROVED = {claim.id: claim.check for claim in ALL_CLAIMS if claim.check["type"] == "proved_by"}


# The claims and the tests that they name


def test_named_tests_are_collected():
    names = sorted({check["test"] for check in PROVED.values()})
    assert pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *names]) == 0


@pytest.mark.parametrize("claim", PROVED)
def test_finding_reports_the_test(claim):
    check = PROVED[claim]
    finding = exact.proved_by(None, check, None)
    assert finding.verdict == check["verdict"]
    assert check["test"] in finding.summary


def test_proofs_must_be_conclusive():
    # A proof is of a claim or of its opposite.
    check = {"type": "proved_by", "verdict": "inconclusive", "test": "tests/x.py::test_x"}
    with pytest.raises(ValueError, match="verdict='inconclusive'"):
        exact.proved_by(None, check, None)
    assert {check["verdict"] for check in PROVED.values()} == {HOLDS, REFUTED}


# FastLloyd


def test_synthetic_grid_has_three_sets_of_45_combinations():
    sweeps = yaml.safe_load((CONF / "paper" / "fastlloyd" / "sweeps.yaml").read_text())
    (grid,) = sweeps["sweeps"]["synth"]["datasets"]
    names = [entry["name"] for entry in expand_datasets([grid])]
    combinations = Counter(tuple(name.split("-")[1:3]) for name in names)
    assert len(combinations) == 45
    assert set(combinations.values()) == {3}


# Distance-based privacy


def test_distance_from_new_york_to_toronto():
    entry = find("brightkite")
    domain = np.array([entry.lower, entry.upper])
    city_halls = np.array([[40.7127, -74.0060], [43.6535, -79.3839]])  # degrees
    dataset = Dataset("city halls", city_halls, None, domain, 2, "", "", "", "file")
    points = scale(dataset, "public").points
    distance = np.linalg.norm(points[1] - points[0])
    assert distance == pytest.approx(0.0443, abs=2e-4)
    assert distance <= 0.05


# DPM

SCORE = SplitScore(t=0.3, q=1 / 12, emptiness_weight=5.0, from_both_ends=True)


def exponential_mechanism(scores, factor):
    """Probabilities of choices with weights exp(factor * score)."""
    return special.softmax(factor * np.asarray(scores, float))


def draw_scores(rng):
    """Centreness and emptiness of 60 candidates, some of them nearly equal."""
    centreness = rng.uniform(0, 1, 60).round(1)
    emptiness = rng.uniform(0, 1, 60) ** rng.uniform(0.1, 3)
    return centreness, emptiness


def test_weights_of_definition_4_cost_up_to_twice_epsilon():
    """One score rises and a thousand fall by the sensitivity, which is 1."""
    before = np.array([0.0] + [1.0] * 1000)
    for epsilon in (0.1, 1.0, 4.0):
        for factor, lowest, highest in ((epsilon, 1.8, 2), (epsilon / 2, 0.9, 1)):
            first = exponential_mechanism(before, factor)[0]
            second = exponential_mechanism(1 - before, factor)[0]
            assert lowest < math.log(second / first) / epsilon <= highest


def test_selected_scores_are_near_the_best():
    """Theorem 2, with exact probabilities for random scores."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores = np.add(*draw_scores(rng))
        factor, omega, kappa = rng.uniform(1, 300), rng.uniform(0, 0.5), rng.uniform(0, 3)
        n_near = (scores >= scores.max() - omega).sum()
        least = scores.max() - omega - (math.log(60 / n_near) + kappa) / factor
        probabilities = exponential_mechanism(scores, factor)
        assert probabilities[scores <= least].sum() <= math.exp(-kappa)


def test_shifted_counts_are_near_the_exact_ones():
    """Lemma 8: the noisy count is shifted by ln(1 / (2 delta)) / epsilon."""
    for epsilon, delta in itertools.product((0.1, 1.0), (1e-3, 1e-6)):
        noise = stats.laplace(scale=1 / epsilon)
        shift = -math.log(2 * delta) / epsilon
        for kappa in shift * np.linspace(0, 4, 41):
            outside = noise.cdf(shift - kappa) + noise.sf(shift + kappa)
            bound = math.exp(-kappa * epsilon) / delta / 2
            assert outside <= bound * (1 + 1e-9)


def test_bound_on_the_emptiness_of_central_splits_leaves_out_candidates():
    """Lemma 9 as printed has omega inside the factor; in one of 100 columns an interval is empty.

    Points are in the outer thirds of each column, at equal numbers; 14 are in the middle third of
    all columns but the first.
    """
    n, n_columns, inside = 2000, 100, 14
    x = np.repeat([0.1, 0.9], n // 2)
    points = np.repeat(x[:, None], n_columns, axis=1)
    points[n // 2 - inside // 2 : n // 2, 1:] = 0.4
    points[n // 2 : n // 2 + inside // 2, 1:] = 0.6
    counts = [np.histogram(column, 3, (0, 1))[0] for column in points.T]
    centers = (np.arange(3) + 0.5) / 3
    below = (points[:, :, None] < centers).sum(axis=0).astype(float)
    emptiness = 1 - np.array(counts) / n
    scores = SCORE(below.ravel(), np.array(counts, float).ravel(), n, n).reshape(n_columns, 3)

    # The middle candidates are central (1-central), and within omega of the best.
    weight, epsilon, kappa = SCORE.emptiness_weight, 1.0, 1.0
    omega = weight * inside / n
    is_near = scores >= scores.max() - omega - 1e-9
    assert is_near.sum(axis=0).tolist() == [0, n_columns, 0]
    assert scores.max() == pytest.approx(1 + weight)

    # More probably than not the emptiness falls short by more than the bound allows.
    factor = n * epsilon / (2 * SCORE.sensitivity)
    central = exponential_mechanism(scores[:, 1], factor)
    short = emptiness[0, 1] - emptiness[:, 1]
    n_over = scores.size / is_near.sum()
    bound = (math.log(n_over) + kappa + omega) / (factor * weight)
    assert central[short < bound].sum() < 0.4 < 1 - math.exp(-kappa)


def test_bound_on_the_emptiness_of_central_splits_with_omega_outside():
    """What the proof of Lemma 9 gives: a shortfall and a central choice together are rare."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        centreness, emptiness = draw_scores(rng)
        scores = centreness + 5 * emptiness
        factor, omega, kappa = rng.uniform(1, 300), rng.uniform(0, 0.5), rng.uniform(0, 3)
        best = scores.argmax()
        least_central = rng.uniform(0, centreness[best])
        n_near = (scores >= scores[best] - omega).sum()
        bound = ((math.log(60 / n_near) + kappa) / factor + 1 - least_central + omega) / 5
        falls_short = emptiness[best] - emptiness >= bound
        is_central = centreness >= least_central
        probabilities = exponential_mechanism(scores, factor)
        assert probabilities[falls_short & is_central].sum() <= math.exp(-kappa)


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (10.0, False)])
def test_probability_of_central_splits_needs_scores_times_the_factor(factor, holds):
    """Lemma 10 takes exp(score) for a weight, which is exp(score times epsilon / 2 sensitivity)."""
    scores = np.array([2.0, 1.5, 1.0])
    is_central = np.array([True, False, False])
    exact = exponential_mechanism(scores, factor)[is_central].sum()

    def printed(weights):
        return 1 / (weights[~is_central].sum() / weights[is_central].sum() + 1)

    assert printed(np.exp(factor * scores)) == pytest.approx(exact)
    assert bool(printed(np.exp(scores)) == pytest.approx(exact)) is holds


def test_probability_of_outer_splits_is_below_its_bound():
    """Lemma 11, for 50 outer candidates of score 0 and a central one of the largest score."""
    weight = SCORE.emptiness_weight
    scores = np.array([1 + weight] + [0.0] * 50)
    for factor in (0.1, 1.0):
        outer = exponential_mechanism(scores, factor)[1:].sum()
        eta = 50 * math.exp(factor) / math.exp((1 + weight) * factor)
        assert outer < 1 - 1 / (eta + 1)


def test_separated_clusters_are_split_between_them():
    """Exact probabilities of one split of two normal clusters, as n grows (section 5.4)."""
    rng = np.random.default_rng(0)
    edges = np.arange(-10, 10.5, 0.5)
    middles = (edges[1:] + edges[:-1]) / 2
    level_epsilon = level_budgets(PUBLISHED_SHARES[2], 7)[0]
    for n, least in ((300, 0), (3000, 0.3), (100_000, 1 - 1e-6)):
        signs = rng.choice([-1, 1], (n, 1))
        points = 3 * signs + rng.standard_normal((n, 3))
        inside = [np.histogram(column, edges)[0] for column in points.T]
        inside = np.ravel(inside).astype(float)
        below = np.ravel([np.searchsorted(np.sort(x), middles) for x in points.T])
        scores = SCORE(below.astype(float), inside, n, n)
        emptiness = 1 - inside / n
        centreness = scores - SCORE.emptiness_weight * emptiness

        factor = n * level_epsilon / (2 * SCORE.sensitivity)
        probabilities = exponential_mechanism(scores, factor)
        for least_centreness in (0.3, 0.9):
            is_central = centreness >= least_centreness
            assert probabilities[is_central].sum() >= least
            shortfall = emptiness[is_central].max() - emptiness
            margin = (1 - least_centreness) / SCORE.emptiness_weight
            mean = np.average(shortfall[is_central], weights=probabilities[is_central])
            assert mean <= margin


def test_published_dpm_halts_on_one_cluster():
    """A leaf at the largest depth, 7, has seven splits above it, and so seven other leaves."""
    for seed in range(10):
        points = 10 * np.random.default_rng(seed).standard_normal((100_000, 2))
        model = DPM(variant="published", bounds=(-60, 60), random_state=seed).fit(points)
        assert len(model.cluster_centers_) < 8


def fullest_interval(n_points: float) -> tuple[float, float]:
    """Half-width of the interval around the mean of normal points, and the number of points in it.

    The half-width is in standard deviations of the points.
    """
    sigma = 10 * SIGMA_STEP
    width = interval_width(GAP_CONSTANT * sigma / n_points, n_points)
    half_width = width / 2 / sigma
    return half_width, n_points * normal_probability(half_width)


def normal_probability(half_width: float) -> float:
    """Probability of an interval around the mean, its half-width in standard deviations."""
    return stats.norm.cdf(half_width) - stats.norm.cdf(-half_width)


def emptiness_score(weight: float, inside: float, size: float) -> float:
    """Score of a candidate without a point below it: its weighted emptiness alone."""
    score = SplitScore(t=0.3, q=1 / 12, emptiness_weight=weight, from_both_ends=True)
    return float(score(np.zeros(1), np.array([inside]), size, size)[0])


def test_emptiness_of_the_fullest_interval():
    size = 1e6
    half_width, inside = fullest_interval(size)
    assert half_width == 0.25
    # The reported digits are cut, not rounded.
    assert math.floor(emptiness_score(1.0, inside, size) * 1e5) == 80258


def test_published_weight_equalizes_score_ranges():
    """Weighted emptiness has the range of centreness, which is 1.

    A mixture's probability of an interval is an average over its clusters, at most that of one
    cluster.
    """
    size = 1e6
    _, inside = fullest_interval(size)

    def score_range(weight):
        return emptiness_score(weight, 0.0, size) - emptiness_score(weight, inside, size)

    assert score_range(1.0) <= 0.2
    assert score_range(EMPTINESS_WEIGHTS["published"]) == pytest.approx(1, abs=0.05)


def test_interval_of_half_a_deviation_has_38_percent():
    half_width = 2 * fullest_interval(1e6)[0]
    assert half_width == 0.5
    assert normal_probability(half_width) == pytest.approx(0.38, abs=0.005)


@pytest.mark.parametrize(("t", "q"), [(0.3, 1 / 12), (0.2, 0.1), (1.0, 0.05), (1.0, 0.4)])
@pytest.mark.parametrize("size", [5, 12, 30, 100])
def test_sensitivity_of_the_published_score(t, q, size):
    """All ranks and counts; a record moves the rank by 0 or 1 and the count by 0 or 1,
    independently.

    The bound holds with the released size itself: the margin that the paper subtracts is not
    needed.
    """
    score = SplitScore(t, q, EMPTINESS_WEIGHTS["published"], from_both_ends=False)
    sizes = (2.0 * size, float(size))
    counts = np.arange(2 * size + 2.0)
    rank, inside = np.meshgrid(counts, counts, indexing="ij")
    before = score(rank, inside, *sizes)
    largest = 0.0
    for rank_shift, count_shift in ((0, 1), (1, 0), (1, 1)):
        after = score(rank + rank_shift, inside + count_shift, *sizes)
        largest = max(largest, np.abs(after - before).max())
    bound = (t / q + EMPTINESS_WEIGHTS["published"]) / size
    assert largest <= bound * (1 + 1e-12)
    if size == 100:
        assert largest >= bound * (1 - 1e-9)


@pytest.mark.parametrize("n_points", [18720, 36733, 60000, 100000])
def test_count_margin_fails_with_probability_delta(n_points):
    """A noisy count minus its margin exceeds the exact count with probability delta at most."""
    points = np.zeros((n_points, 1), int)
    charges = DPM(variant="published").fit_batch(points, [0]).ledger.charges
    counts = [charge for charge in charges if charge.label == "cell_counts"]
    splits = [charge for charge in charges if charge.label == "splits"]
    assert len(splits) == 7
    for count, split in zip(counts, splits, strict=False):
        scale = count.details["count_scale"]
        probability = stats.laplace.sf(split.details["margin"], scale=scale)
        assert probability <= split.delta * (1 + 1e-9)


@pytest.mark.parametrize("n_levels", [7, 8])
def test_level_budgets_minimize_total_noise(n_levels):
    """The sum of 2^i / epsilon_i at a fixed total epsilon.

    The objective as reported, the sum of 2^i epsilon_i, is linear.
    """
    weights = 2.0 ** np.arange(n_levels)

    def log_noise(logits):
        return np.log((weights / special.softmax(logits)).sum())

    logits = optimize.minimize(log_noise, np.zeros(n_levels), tol=1e-14).x
    optimum = special.softmax(logits)
    np.testing.assert_allclose(level_budgets(1.0, n_levels), optimum, atol=1e-5)


@pytest.mark.parametrize("n_levels", [7, 8])
def test_printed_objective_has_another_optimum(n_levels):
    """The sum of 2^i epsilon_i is linear: least with the whole budget on the first level."""
    weights = 2.0 ** np.arange(n_levels)
    on_first_level = np.eye(n_levels)[0]
    assert weights @ on_first_level < weights @ level_budgets(1.0, n_levels)
    optimum = optimize.linprog(weights, A_eq=np.ones((1, n_levels)), b_eq=[1.0])
    np.testing.assert_allclose(optimum.x, on_first_level, atol=1e-9)


@pytest.mark.parametrize("method", [DPM(variant="published"), DPLloyd(10)], ids=str)
def test_ten_references_give_nearly_the_distance_of_twenty(method, cache):
    points = scale(load("yeast"), "range").points
    references = reference_set(Points.from_grid(snap(points))).centers
    model = method.set_params(bounds=(-1, 1), random_state=0).fit(points)
    centers = [model.cluster_centers_]
    with_ten, _ = nearest_distances(centers, references[:10])
    with_twenty, _ = nearest_distances(centers, references)
    assert len(references) == 20
    assert with_ten == pytest.approx(with_twenty, rel=0.05)


def test_standard_metrics_ignore_centers_without_points(cache):
    """And so does the reverse distance, from the reference centers to the released ones."""
    rng = np.random.default_rng(0)
    means = rng.uniform(-0.5, 0.5, (5, 2))
    classes = np.repeat(np.arange(5), 60)
    positions = means[classes] + 0.01 * rng.normal(size=(300, 2))
    points = np.rint(positions * SCALE).astype(np.int64)
    centers = np.array([points[classes == label].mean(axis=0) for label in range(5)])
    centers = np.rint(centers).astype(np.int64)
    empty_centers = np.array([[SCALE, SCALE], [-SCALE, -SCALE]])
    more_centers = np.vstack([centers, empty_centers])
    equal = ["inertia", "silhouette", "accuracy", "reverse_kmeans_distance"]
    names = [*equal, "kmeans_distance"]
    expected = evaluate(points, centers[None], names, labels_true=classes)
    values = evaluate(points, more_centers[None], names, labels_true=classes)
    for name in equal:
        assert values[name] == expected[name], name
    assert values["kmeans_distance"] > expected["kmeans_distance"]


# Kaplan-Stemmer


def test_additive_bound_is_at_most_twice_the_best_earlier():
    """For all powers of two up to 2^20; the ratio of 2 is that of one cluster in one dimension."""
    bounds = {row["key"]: row["additive_bound"] for row in ROWS}
    ratio = f"({bounds['this_work']}) / ({bounds['nissim_stemmer2018']})"
    powers = [2.0**power for power in range(21)]
    ratios = {(k, d): evaluate_expression(ratio, {"k": k, "d": d}) for k in powers for d in powers}
    assert max(ratios.values()) == ratios[1.0, 1.0] == 2


def test_only_the_new_method_has_constant_factor():
    sizes = list(itertools.product((1e3, 1e6), (2.0, 32.0), (2.0, 64.0)))
    constant = []
    for row in ROWS:
        values = set()
        for n, k, d in sizes:
            names = {"n": n, "k": k, "d": d}
            values.add(float(evaluate_expression(row["factor_bound"], names)))
        if len(values) == 1:
            constant.append(row["key"])
    assert constant == ["this_work"]


# Machine unlearning of federated clusters


def test_sparse_message_size_is_logarithmic_in_bins():
    """Messages of the paper's construction, compared with one count for every bin.

    For 4 clusters and 100 clients.
    """
    n_bins = 4 * 100
    count_bits = math.ceil(math.log2(12009 + 1))
    sizes = {}
    for exponent in (4, 8, 12, 16, 20, 40, 60):
        code = SparseCode(1, 2**exponent, n_bins, "literal")
        sizes[exponent] = 8 * code.n_bytes
        # There is a prime below twice any number; the field has at least 61 bits.
        assert code.n_elements == 2 * n_bins + N_CHECK_SUMS
        assert sizes[exponent] <= code.n_elements * (max(exponent, 61) + 1) + 8
    smaller = [exponent for exponent, bits in sizes.items() if bits < 2**exponent * count_bits]
    assert smaller == [12, 16, 20, 40, 60]
    # Beyond the smallest field every doubling of the bins adds one bit to an element.
    smaller_code = SparseCode(2, 2**40, n_bins, "literal")
    larger_code = SparseCode(2, 2**60, n_bins, "literal")
    growth = 8 * larger_code.n_bytes - 8 * smaller_code.n_bytes
    assert growth <= 40 * (2 * n_bins + N_CHECK_SUMS) + 8
