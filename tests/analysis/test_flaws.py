"""The register of flaws: its fields, its evidence, and sizes of effects by formulas."""

import math
import re
from pathlib import Path

import flaws as tool
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from pkm.analysis.flaws import PATH, READ, Flaw, read_flaws
from pkm.analysis.paper_files import parse_entry
from pkm.compute import Points, hyperplane_sides
from pkm.federation.masks import KeyStream
from pkm.methods import DPM, EMMC, DistDP, DPLloyd, FastLloyd, LSHSplits, PEMeans
from pkm.privacy import SCALE

ROOT = Path(__file__).parents[2]
REGISTER = read_flaws()
PAGE = (ROOT / "docs" / "for-authors.md").read_text(encoding="utf-8")


def test_evidence_names_tests_that_exist():
    for name, flaw in REGISTER.items():
        if flaw.evidence != READ:
            file, _, test = flaw.evidence.partition("::")
            text = (ROOT / file).read_text(encoding="utf-8")
            assert f"def {test}(" in text, name


def test_flaws_of_methods_here_are_shown_by_tests():
    """What a privacy claim here names is registered, and shown unless it is about the metrics."""
    private = [DPM, EMMC, DistDP, DPLloyd, FastLloyd, LSHSplits, PEMeans]
    named = {
        flaw for method in private for claim in method.claims.values() for flaw in claim.flaws
    } | {"F-10", "F-17", "F-28"}
    assert named <= set(REGISTER)
    assert not [name for name in named if REGISTER[name].evidence == READ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"titel": "x"}, "F-99: 'titel' is unknown; did you mean 'title'"),
        ({"quote": None}, "F-99: missing a required argument: 'quote'"),
        ({"told": False}, "F-99: told=False must be of type str"),
    ],
)
def test_bad_entries_are_refused(change, message):
    entry = vars(REGISTER["F-13"]) | change
    entry = {name: value for name, value in entry.items() if value is not None}
    with pytest.raises(ValueError, match=message) as raised:
        parse_entry(Flaw, entry, "F-99")
    assert "\n" not in str(raised.value)


def test_no_field_is_empty():
    assert all(all(vars(flaw).values()) for flaw in REGISTER.values())


def test_quotes_are_short():
    assert max(len(flaw.quote.split()) for flaw in REGISTER.values()) <= 16


def test_the_page_for_authors_shows_the_whole_register():
    shown = tool.on_page_markdown(PAGE)
    for name, flaw in REGISTER.items():
        assert f"**{name}.** {flaw.title}" in shown
        assert flaw.effect in shown
    assert "<!-- flaws" not in shown


def test_unknown_works_are_refused():
    with pytest.raises(ValueError, match="no flaw is registered of DMP"):
        tool.format_flaws(["DMP"])


def test_code_names_registered_ids_only():
    folders = ("analysis", "audit", "experiments", "methods", "privacy")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in files]
    ids = {name for text in texts for name in re.findall(r"\bF-\d\d\b", text)}
    assert {"F-13", "F-26"} <= ids <= set(REGISTER)
    assert PATH.is_file()


# Sizes of effects


def test_delta_from_n_is_large_for_small_data():
    # F-09: Iris has 150 records.
    method = FastLloyd(variant="published")
    assert method.budget(150, 4).delta == pytest.approx(1.3e-3, rel=0.03)
    assert method.budget(151, 4).delta < method.budget(150, 4).delta


@pytest.mark.parametrize("d", [1, 2, 10, 100])
def test_mean_distance_in_a_ball_is_above_half_the_radius(d):
    # F-11: the distance from the center has the distribution function (r / radius)^d.
    radii = (np.arange(100_000) + 0.5) / 100_000
    mean = np.mean(radii ** (1 / d))
    assert mean == pytest.approx(d / (d + 1), abs=1e-4)
    assert mean >= 0.4999


def test_exponential_mechanism_without_the_factor_two():
    # F-12: a record raises one score and lowers another one by the sensitivity.
    epsilon = 0.18

    def log_probability(scores):
        return epsilon * scores[0] - math.log(sum(math.exp(epsilon * score) for score in scores))

    # Of many candidates of low score, and of two.
    few = log_probability([1, -1]) - log_probability([0, 0])
    many = log_probability([1] + [-1] * 10**6) - log_probability([0] + [0] * 10**6)
    assert few > epsilon / 2
    assert many == pytest.approx(2 * epsilon, rel=1e-4)


def test_slips_of_the_lemmas_on_splits():
    # F-31: scores are centreness + weight * emptiness, probabilities those of exp(factor * score).
    weight, factor, kappa = 5.0, 20.0, 1.0

    # Lemma 9: a best candidate and a thousand that are worse by omega, all of centreness 1.
    omega = 0.2
    others = 1000 * math.exp(-factor * omega)
    probability = {0.0: 1 / (1 + others), omega / weight: others / (1 + others)}

    def probability_below(bound):
        return sum(share for shortfall, share in probability.items() if shortfall < bound)

    printed = (math.log(1) + kappa + omega) / (factor * weight)
    mended = (math.log(1) + kappa) / (factor * weight) + omega / weight
    claimed = 1 - math.exp(-kappa)
    assert claimed == pytest.approx(0.63, abs=0.005)
    assert probability_below(printed) == pytest.approx(0.05, abs=0.005)
    assert probability_below(mended) > claimed

    # Lemma 10: a central candidate is better by 0.1 than the only other one.
    def central(log_weight):
        return 1 / (math.exp(-log_weight) + 1)

    assert central(0.1) == pytest.approx(0.52, abs=0.005)
    assert central(100 * 0.1) == pytest.approx(1.00, abs=0.005)

    # Lemma 11 in the text: one formula for a choice and its complement, which add up to 1.
    outer = 1 - central(0.1)
    assert outer == pytest.approx(0.48, abs=0.005)
    assert central(0.1) + central(0.1) > 1


def test_the_scale_of_local_search_is_for_records_that_are_added():
    # F-04: an added record raises losses, by at most the sensitivity; a replaced one may
    # lower one loss, too. All but one of a million candidates have the same loss.
    epsilon = 0.1

    def log_ratio(first, others):
        """Change of the log-probability of the first candidate by its and the others' losses."""
        n_others = 10**6
        before = -math.log1p(n_others)
        after = -epsilon * first - math.log(
            math.exp(-epsilon * first) + n_others * math.exp(-epsilon * others)
        )
        return abs(after - before)

    added = max(log_ratio(first, others) for first in (0, 1) for others in (0, 1))
    assert added <= epsilon
    assert log_ratio(-1, 1) == pytest.approx(2 * epsilon, rel=1e-4)


def test_more_centers_than_clusters_lower_the_inertia():
    # F-16: on one blob DPM splits to the level that is set, whatever k.
    X = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
    method = DPM(2, epsilon=100.0, variant="published", bounds=(-1, 1), random_state=0)
    with pytest.warns(UserWarning):
        centers = method.fit(X).cluster_centers_
    assert len(centers) > 2
    two = KMeans(2, n_init=5, random_state=0).fit(X).inertia_
    assert cdist(X, centers, "sqeuclidean").min(axis=1).sum() < two


def test_hyperplanes_through_the_origin_do_not_divide_points_far_from_it():
    # F-20: 16 hyperplanes, points whose mean is 50 standard deviations from the origin.
    generator = np.random.default_rng(0)
    normals = generator.integers(-1000, 1001, (16, 8))
    noise = generator.normal(0, 0.01, (1000, 8))

    def count_buckets(X):
        sides = hyperplane_sides(
            Points.from_grid(np.rint(X * SCALE).astype(np.int64)), normals, np.zeros(8, np.int64)
        )
        return len(np.unique(sides, axis=0))

    assert count_buckets(noise) > 500
    assert count_buckets(noise + 0.5) < 5


def test_one_mask_for_sums_and_counts_shows_their_difference():
    # with one seed and one round number for both calls, the masks cancel.
    ring = np.dtype(np.uint64)
    sums = np.array([5, 2**40, 123], ring)
    counts = np.array([1, 7, 11], ring)

    def mask(key):
        return KeyStream(key).next((3,), ring)

    shared = (sums + mask(bytes(32))) - (counts + mask(bytes(32)))
    own = (sums + mask(bytes(32))) - (counts + mask(bytes([1]) * 32))
    assert (shared == sums - counts).all()
    assert (own != sums - counts).all()
