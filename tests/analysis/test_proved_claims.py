"""Claims that no stored row bears on: they follow from a formula, which is tested of the code that
the bench runs.
"""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from pkm.analysis import claims, verdicts
from pkm.analysis.claims.kaplan_stemmer import BOUNDS
from pkm.analysis.findings import FAILS, HOLDS
from pkm.analysis.reported import number
from pkm.datasets import Dataset, scale
from pkm.datasets.registry import find
from pkm.federation.sparse import N_CHECK_SUMS, SparseCode
from pkm.methods.dpm import (
    DPM,
    EMPTINESS_WEIGHTS,
    GAP_CONSTANT,
    SIGMA_STEP,
    interval_width,
    level_budgets,
)
from pkm.metrics import evaluate
from pkm.privacy import SCALE, SplitScore

PROVED = {
    claim["id"]: claim["check"]
    for paper in claims.papers()
    for claim in claims.load(paper)["claims"]
    if claim["check"]["type"] == "proved_by"
}


# The claims and the tests that they name


def test_every_named_test_is_collected():
    names = sorted({check["test"] for check in PROVED.values()})
    assert len(PROVED) == 13
    assert pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *names]) == 0


@pytest.mark.parametrize("claim", PROVED)
def test_the_finding_names_the_test(claim):
    check = PROVED[claim]
    finding = verdicts.EVALUATORS["proved_by"](None, check, None)
    assert finding.verdict == check["verdict"]
    assert check["test"] in finding.numbers


def test_a_proof_is_of_a_claim_or_of_its_opposite():
    check = {"type": "proved_by", "verdict": "inconclusive", "test": "tests/x.py::test_x"}
    with pytest.raises(ValueError, match="verdict='inconclusive'"):
        verdicts.EVALUATORS["proved_by"](None, check, None)
    assert {check["verdict"] for check in PROVED.values()} == {HOLDS, FAILS}


# Distance-based privacy


def test_new_york_and_toronto_are_less_than_rho_apart():
    entry = find("brightkite")
    city_halls = np.array([[40.7127, -74.0060], [43.6535, -79.3839]])  # degrees
    dataset = Dataset(
        "city halls", city_halls, None, np.array([entry.lower, entry.upper]), 2, "", "", "", "file"
    )
    distance = np.linalg.norm(np.diff(scale(dataset, "public").points, axis=0))
    assert distance == pytest.approx(0.0443, abs=2e-4)
    assert distance <= 0.05


# DPM


def fullest_interval(n_points: float) -> tuple[float, float]:
    """Half-width of an interval about the mean of normal points, over their deviation, and the
    points in it.
    """
    sigma = 10 * SIGMA_STEP
    width = interval_width(GAP_CONSTANT * sigma / n_points, n_points)
    half_width = width / 2 / sigma
    return half_width, n_points * (stats.norm.cdf(half_width) - stats.norm.cdf(-half_width))


def emptiness_score(weight: float, inside: float, size: float) -> float:
    """Score of a candidate without a point below it: its weighted emptiness alone."""
    score = SplitScore(t=0.3, q=1 / 12, emptiness_weight=weight, from_both_ends=True)
    return float(score(np.zeros(1), np.array([inside]), size, size)[0])


def test_the_fullest_interval_leaves_the_reported_emptiness():
    size = 1e6
    half_width, inside = fullest_interval(size)
    assert half_width == 0.25
    # The reported digits are cut, not rounded.
    assert math.floor(emptiness_score(1.0, inside, size) * 1e5) == 80258


def test_the_published_weight_makes_emptiness_range_as_far_as_centreness():
    # A mixture's share of an interval is an average of its clusters': none is above that of one
    # cluster.
    size = 1e6
    _, inside = fullest_interval(size)
    weight = EMPTINESS_WEIGHTS["published"]
    assert emptiness_score(1.0, 0.0, size) - emptiness_score(1.0, inside, size) <= 0.2
    weighted_range = emptiness_score(weight, 0.0, size) - emptiness_score(weight, inside, size)
    assert weighted_range == pytest.approx(1, abs=0.05)


def test_half_a_deviation_about_the_mean_holds_38_percent():
    half_width = 2 * fullest_interval(1e6)[0]
    share = stats.norm.cdf(half_width) - stats.norm.cdf(-half_width)
    assert half_width == 0.5
    assert share == pytest.approx(0.38, abs=0.005)


@pytest.mark.parametrize(("t", "q"), [(0.3, 1 / 12), (0.2, 0.1), (1.0, 0.05), (1.0, 0.4)])
@pytest.mark.parametrize("size", [5, 12, 30, 100])
def test_a_record_changes_a_published_score_by_at_most_its_sensitivity(t, q, size):
    """All ranks and counts; a record moves the rank by 0 or 1 and the count by 0 or 1,
    independently.

    The bound holds with the released size itself: the margin that the paper subtracts is not
    needed.
    """
    score = SplitScore(t, q, EMPTINESS_WEIGHTS["published"], from_both_ends=False)
    counts = np.arange(2 * size + 2.0)
    rank, inside = np.meshgrid(counts, counts, indexing="ij")
    before = score(rank, inside, 2.0 * size, float(size))
    moves = [(0, 1), (1, 0), (1, 1)]
    after = [score(rank + i, inside + j, 2.0 * size, float(size)) for i, j in moves]
    largest = max(np.abs(scores - before).max() for scores in after)
    bound = (t / q + EMPTINESS_WEIGHTS["published"]) / size
    assert largest <= bound * (1 + 1e-12)
    if size == 100:
        assert largest >= bound * (1 - 1e-9)


@pytest.mark.parametrize("n_points", [18720, 36733, 60000, 100000])
def test_a_count_less_its_margin_exceeds_the_exact_one_with_probability_delta(n_points):
    ledger = DPM(variant="published").fit_batch(np.zeros((n_points, 1), int), [0]).ledger
    counts = [charge for charge in ledger.charges if charge.label == "cell_counts"]
    splits = [charge for charge in ledger.charges if charge.label == "splits"]
    assert len(splits) == 7
    for count, split in zip(counts, splits, strict=False):
        chance = stats.laplace.sf(split.details["margin"], scale=count.details["count_scale"])
        assert chance <= split.delta * (1 + 1e-9)


@pytest.mark.parametrize("n_levels", [7, 8])
def test_level_budgets_minimize_the_noise_of_all_levels(n_levels):
    """The sum of 2^i / epsilon_i at a fixed sum; the objective as printed, of 2^i epsilon_i, is
    linear.
    """
    weights = 2.0 ** np.arange(n_levels)

    def log_noise(logits):
        shares = np.exp(logits - np.logaddexp.reduce(logits))
        return np.log((weights / shares).sum())

    logits = optimize.minimize(log_noise, np.zeros(n_levels), tol=1e-14).x
    best = np.exp(logits - np.logaddexp.reduce(logits))
    np.testing.assert_allclose(level_budgets(1.0, n_levels), best, atol=1e-5)


def test_standard_metrics_ignore_centers_without_points(cache):
    """And so does the reverse distance, from the reference centers to the released ones."""
    rng = np.random.default_rng(0)
    means = rng.uniform(-0.5, 0.5, (5, 2))
    classes = np.repeat(np.arange(5), 60)
    points = np.rint((means[classes] + 0.01 * rng.normal(size=(300, 2))) * SCALE).astype(np.int64)
    centers = np.array([points[classes == label].mean(axis=0) for label in range(5)])
    centers = np.rint(centers).astype(np.int64)
    far = np.array([[SCALE, SCALE], [-SCALE, -SCALE]])
    equal = ["inertia", "silhouette", "accuracy", "reverse_kmeans_distance"]
    names = [*equal, "kmeans_distance"]
    without, with_far = (
        evaluate(points, released[None], names, labels=classes)
        for released in (centers, np.vstack([centers, far]))
    )
    for name in equal:
        assert with_far[name] == without[name], name
    assert with_far["kmeans_distance"] > without["kmeans_distance"]


# FastLloyd


def test_the_quoted_protocol_needs_gigabytes_and_minutes():
    """In its largest cases, by the numbers that Table 3 quotes."""
    cells = claims.load("fastlloyd")["reported"]["table3"]["cells"]
    largest = {
        name: max(number(cell[name])[0] for cell in cells if name in cell)
        for name in ("cited_bytes", "cited_ms")
    }
    assert largest["cited_bytes"] >= 1e9
    assert largest["cited_ms"] >= 60_000


# Kaplan-Stemmer


def test_the_additive_bound_is_at_most_twice_the_best_earlier_one():
    """For all powers of two up to 2^20; the ratio of 2 is that of one cluster in one dimension."""
    bound = BOUNDS["this_work"][1]
    earlier = BOUNDS["nissim_stemmer2018"][1]
    powers = [2.0**power for power in range(21)]
    ratios = {(k, d): bound(2.0, k, d) / earlier(2.0, k, d) for k in powers for d in powers}
    assert max(ratios.values()) == ratios[1.0, 1.0] == 2


def test_only_the_new_method_has_a_constant_factor():
    sizes = list(itertools.product((1e3, 1e6), (2.0, 32.0), (2.0, 64.0)))
    n_values = {
        key: len({float(factor(*size)) for size in sizes}) for key, (factor, _) in BOUNDS.items()
    }
    assert [key for key, count in n_values.items() if count == 1] == ["this_work"]


# Machine unlearning of federated clusters


def test_sparse_messages_grow_with_the_logarithm_of_the_number_of_bins():
    """A message of the paper's construction, for 4 clusters and 100 clients, against a count for
    every bin.
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
    large = [8 * SparseCode(2, 2**exponent, n_bins, "literal").n_bytes for exponent in (40, 60)]
    assert large[1] - large[0] <= 40 * (2 * n_bins + N_CHECK_SUMS) + 8
