"""EM-MC: the lattice, the cover's counts and draws against enumeration, its privacy outcome by
outcome, accounting.

Statistical tests use fixed seeds; their thresholds are five standard errors of the statistic
(fewer than one false alarm in a million) or a p-value of 1e-6.
"""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

from pkm.compute import Points, inertia
from pkm.compute.cover import BLOCK_SIDE, Cover
from pkm.compute.lattice import Lattice, cover_scales
from pkm.compute.unit_ball import label_sums, nearest_labels, project
from pkm.methods import KMeansPlusPlus
from pkm.audit.conformance import CHECKS, conformance
from pkm.methods.em_mc import EMMC, repeated, weighted_centers
from pkm.privacy import (
    SCALE,
    Budget,
    BudgetExceeded,
    CoverPicks,
    Curator,
    Gaussian,
    Laplace,
    Ledger,
    MaximumCover,
    NoiseStreams,
    ProjectedCounts,
    ProjectedSumsAndCounts,
    gaussian_mu,
    snap,
)
from pkm.privacy.projection import cover_epsilon, cover_weight, draw_cover
from pkm.privacy.selection import ScoreRange


def ball_points(n, m, seed, spread=0.35):
    points = spread * np.random.default_rng(seed).standard_normal((n, m))
    return points / np.maximum(1, np.linalg.norm(points, axis=1, keepdims=True))


def listed(lattice):
    """All grid points of a lattice, by trying every point of the cube around it."""
    steps = range(-int(1 / lattice.side) - 1, int(1 / lattice.side) + 2)
    cube = np.array(list(itertools.product(steps, repeat=lattice.dimensions)))
    return cube[(cube**2).sum(axis=1) <= 1 / lattice.side**2]


def covered(grid_points, points, side, radius):
    """Numbers of points within the radius of each grid point."""
    steps = grid_points[:, None, :] * side - points[None]
    return ((steps**2).sum(axis=2) <= radius**2).sum(axis=1)


# The lattice


@pytest.mark.parametrize(
    ("m", "side"), [(1, 0.3), (2, 0.21), (3, 0.4), (4, 0.45), (5, 0.9), (2, 1.5)]
)
def test_lattice_counts_its_points(m, side):
    lattice = Lattice(m, side)
    assert lattice.size == len(listed(lattice))


@pytest.mark.statistical
def test_lattice_draws_uniformly():
    lattice = Lattice(3, 0.5)
    rng = np.random.default_rng(0)
    points = [tuple(point) for point in listed(lattice)]
    drawn = [tuple(lattice.draw(rng.random(3))) for _ in range(100 * len(points))]
    assert set(drawn) == set(points)
    assert stats.chisquare([drawn.count(point) for point in points]).pvalue > 1e-6
    assert tuple(lattice.draw(np.zeros(3))) in points and tuple(lattice.draw(np.ones(3))) in points


def test_lattice_that_cannot_be_numbered_is_refused():
    with pytest.raises(ValueError, match="side=1e-05 is too small in 4 dimensions"):
        Lattice(4, 1e-5)


def test_scales_have_a_grid_point_within_reach_of_everything():
    for side, radius in cover_scales(5000, 4, 0.99, 0.01):
        assert side * math.sqrt(4) == pytest.approx(0.99 * radius / 1.99)
    radii = [radius / 1.99 for _, radius in cover_scales(5000, 4, 0.99, 0.01)]
    assert 0.01 <= radii[0] < 0.0199 and radii[-2] < 2 <= radii[-1]
    assert len(cover_scales(5000, 4, 0.99, 0.0)) == math.ceil(math.log(10_000, 1.99))


# Counts of the cover


@pytest.mark.parametrize("weight", [1e-6, 0.05, 5.0])
@pytest.mark.parametrize(("m", "side"), [(1, 0.02), (2, 0.07), (3, 0.22), (4, 0.4), (5, 0.6)])
def test_cover_agrees_with_enumeration(m, side, weight):
    """Every grid point is where the cover says, with its count or a bound on it, also after points
    were taken out.
    """
    points = ball_points(80, m, seed=m)
    radius = 1.99 / 0.99 * side * math.sqrt(m)
    cover = Cover(points, side, radius, weight)
    rng = np.random.default_rng(m)
    for taken in ([], [0, 7, 8, 50], list(range(20, 45))):
        cover.remove(np.array(taken, np.int64))
        grid_points = listed(cover.lattice)
        counts = covered(grid_points, cover.remaining(), side, radius)
        exact = {tuple(v): count for v, count in zip(grid_points, counts, strict=True)}
        counted = {}
        for count, multiplicity in zip(*cover.positive_counts(), strict=True):
            for rank in range(multiplicity):
                counted[tuple(cover.counted_point(count, rank))] = count
        assert len(counted) == cover.positive_counts()[1].sum()
        assert all(exact[v] == count for v, count in counted.items())
        blocks = [
            (b, i)
            for b, several in zip(cover.bounds, cover.n_bounded, strict=True)
            for i in range(several)
        ]
        places = list(itertools.product(blocks, range(BLOCK_SIDE**m)))
        some = (
            places
            if len(places) < 5000
            else [places[i] for i in rng.choice(len(places), 1000, replace=False)]
        )
        bounded = {tuple(cover.bounded_point(*block, at)): block[0] for block, at in some}
        assert len(bounded) == len(some) and not bounded.keys() & counted.keys()
        for v, bound in bounded.items():
            assert len(cover.covered(np.array(v))) == exact.get(v, 0) <= bound
        if some is places:
            assert {v for v, count in exact.items() if count} <= counted.keys() | bounded.keys()
    if m == 2:
        assert (len(cover.positive_counts()[0]) == 0) == (weight == 1e-6)
        assert (len(cover.bounds) == 0) == (weight == 5.0)


def test_cover_does_not_depend_on_the_order_of_points():
    points = ball_points(300, 3, seed=3)
    shuffled = np.random.default_rng(0).permutation(points)
    one = Cover(points, 0.1, 0.35, 0.05)
    other = Cover(shuffled, 0.1, 0.35, 0.05)
    for these, those in zip(
        (*one.positive_counts(), one.bounds), (*other.positive_counts(), other.bounds), strict=True
    ):
        assert (these == those).all()
    values, multiplicities = one.positive_counts()
    for count, multiplicity in zip(values, multiplicities, strict=True):
        assert (
            one.counted_point(count, multiplicity - 1)
            == other.counted_point(count, multiplicity - 1)
        ).all()


def test_a_record_changes_no_count_by_more_than_one():
    """And all in one direction, as the cost of the cover needs it."""
    rng = np.random.default_rng(5)
    for trial in range(20):
        points = ball_points(40, 3, seed=trial)
        without = np.delete(points, rng.integers(40), axis=0)
        grid_points = listed(Lattice(3, 0.3))
        one = Cover(points, 0.3, 1.0, 0.1)
        other = Cover(without, 0.3, 1.0, 0.1)
        change = [len(one.covered(v)) - len(other.covered(v)) for v in grid_points]
        assert set(change) <= {0, 1} and sum(change) > 0


# Draws of the cover


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("n", "weight", "kinds"), [(60, 0.005, "bounded"), (60, 0.05, "both"), (2, 2.2, "counted")]
)
def test_draws_follow_the_exponential_mechanism(n, weight, kinds):
    """Frequencies of all grid points against probabilities worked out by plain enumeration."""
    points = np.concatenate([ball_points(n, 2, seed=1, spread=0.1), ball_points(n // 2, 2, seed=2)])
    side = 0.18
    radius = 0.5
    cover = Cover(points, side, radius, weight)
    has = len(cover.positive_counts()[0]) > 0, len(cover.bounds) > 0
    assert has == {"bounded": (False, True), "both": (True, True), "counted": (True, False)}[kinds]
    grid_points = listed(cover.lattice)
    weights = np.exp(weight * covered(grid_points, points, side, radius))
    streams = NoiseStreams([7])
    draws = 8_000
    drawn = [tuple(draw_cover(cover, weight, streams, ("test", i))) for i in range(draws)]
    seen = np.array([drawn.count(tuple(v)) for v in grid_points])
    assert seen.sum() == draws  # nothing outside the ball
    expected = draws * weights / weights.sum()
    order = np.argsort(expected)
    rare = np.cumsum(expected[order]) < 20  # pooled, so that the chi-square law holds
    pool = lambda values: np.append(values[order][~rare], values[order][rare].sum())  # noqa: E731
    keep = pool(expected) > 0
    assert stats.chisquare(pool(seen)[keep], pool(expected)[keep]).pvalue > 1e-6


def test_draws_stand_weights_far_beyond_float64():
    points = np.repeat([[0.3, 0.1]], 50_000, axis=0)
    cover = Cover(points, 0.1, 0.3, 1.0)
    chosen = draw_cover(cover, 1.0, NoiseStreams([0]), ("test",)) * 0.1
    assert np.linalg.norm(chosen - points[0]) <= 0.3


# Privacy of the cover


def outcomes(points, grids, picks, weight):
    """Probabilities of all sequences of picks, by the definition and by enumeration."""
    laws = {(): (1.0, frozenset(range(len(points))))}
    for grid_points, radius in grids:
        for _ in range(picks):
            longer = {}
            for before, (probability, left) in laws.items():
                covers = [{i for i in left if abs(points[i] - g) <= radius} for g in grid_points]
                weights = np.exp(weight * np.array([len(cover) for cover in covers]))
                for j, share in enumerate(weights / weights.sum()):
                    longer[*before, j] = probability * share, left - covers[j]
            laws = longer
    return {outcome: probability for outcome, (probability, _) in laws.items()}


@pytest.mark.parametrize("delta", [0.3, 0.05, 1e-3])
@pytest.mark.parametrize("weight", [0.1, 0.5, 1.5])
def test_cover_costs_what_is_charged(weight, delta):
    """Outcome by outcome, both directions: delta at the charged epsilon is no more than charged."""
    grids = [(np.linspace(-1, 1, 5), 0.3), (np.linspace(-1, 1, 3), 0.6)]
    epsilon = cover_epsilon(weight, delta)
    rng = np.random.default_rng(0)
    closest = 0.0
    for trial in range(8):
        rest = rng.uniform(-1, 1, 6) if trial else np.empty(0)
        record = rng.uniform(-1, 1, 1) if trial % 2 else np.array([1.0])
        one = outcomes(np.append(rest, record), grids, 3, weight)
        other = outcomes(rest, grids, 3, weight)
        for p, q in ((one, other), (other, one)):
            needed = sum(max(0.0, p[each] - math.exp(epsilon) * q[each]) for each in p)
            assert needed <= delta
            closest = max(closest, *(math.log(p[each] / q[each]) for each in p))
    assert closest > 0.5 * weight  # the neighbors do tell the outcomes apart


def test_cover_weight_inverts_its_cost_and_beats_the_papers():
    for epsilon, delta in itertools.product((0.01, 0.2, 1.0, 5.0), (1e-3, 1e-6, 1e-12)):
        weight = cover_weight(epsilon, delta)
        assert cover_epsilon(weight, delta) == pytest.approx(epsilon)
        assert weight >= epsilon / (2 * math.log(math.e / delta))


# Sensitivities of the other two questions


def test_a_record_changes_one_cell_by_no_more_than_declared():
    rng = np.random.default_rng(1)
    for _ in range(50):
        d = rng.integers(1, 8)
        m = rng.integers(1, 5)
        k = rng.integers(1, 6)
        rows = rng.choice([-SCALE, SCALE, 0, 1234], (30, d))
        matrix = rng.integers(-SCALE, SCALE, (m, d))
        centers = ball_points(k, m, seed=rng.integers(1000))

        def answers(rows, matrix=matrix, centers=centers, k=k):
            points = Points.prepare(rows)
            return label_sums(
                points, nearest_labels(project(points, matrix, 3.0 * SCALE**2), centers), k
            )

        sums, counts = (
            one - other for one, other in zip(answers(rows), answers(rows[1:]), strict=True)
        )
        assert np.abs(counts).sum() == 1 and counts.min() >= 0
        assert (np.abs(sums).sum(axis=1) > 0).sum() <= 1
        assert np.linalg.norm(sums) <= math.sqrt(d) * SCALE


# The door


def curator(points, epsilon=1.0, delta=1e-6, seed=0):
    return Curator(points, Ledger(Budget(epsilon, delta)), NoiseStreams([seed]))


def projection(points, *args, **kwargs):
    matrix = np.rint(np.random.default_rng(9).standard_normal((2, points.shape[1])) * SCALE).astype(
        np.int64
    )
    return curator(points, *args, **kwargs).projection(matrix, 3.0 * SCALE**2)


@pytest.mark.statistical
def test_noise_has_the_declared_scale():
    points = np.random.default_rng(2).integers(-SCALE, SCALE, (500, 3))
    centers = np.array([[0.2, 0.0], [-0.2, 0.1]])
    query = ProjectedSumsAndCounts(centers)
    exact = query.exact(projection(points))
    sums = exact["sums"][0]
    sizes = exact["counts"][0]
    assert sizes.sum() == 500 * SCALE and (sums.sum(axis=0) == points.sum(axis=0)).all()
    gaussian = Gaussian(30.0 * SCALE)
    laplace = Laplace(9.0 * SCALE)
    noise = {"sums": [], "sizes": [], "counts": []}
    for seed in range(300):
        asked = projection(points, epsilon=5.0, seed=seed)
        noisy = asked.release(query, sums=gaussian, counts=gaussian)
        noise["sums"].append((noisy["sums"] - sums).ravel())
        noise["sizes"].append(noisy["counts"] - sizes)
        noisy = asked.release(ProjectedCounts(centers), counts=laplace)
        noise["counts"].append(noisy["counts"] - sizes)
    for name, law in (
        ("sums", stats.norm(0, 30)),
        ("sizes", stats.norm(0, 30)),
        ("counts", stats.laplace(0, 9)),
    ):
        values = np.concatenate(noise[name]) / SCALE
        assert stats.kstest(values, law.cdf).pvalue > 1e-6, name


def test_nothing_is_drawn_beyond_the_budget(monkeypatch):
    points = np.zeros((10, 3), np.int64)
    cover = CoverPicks([(0.5, 1.0)], 1)
    origin = np.zeros((1, 2))
    for query, noise in (
        (cover, {"picks": MaximumCover(1.0, 1e-7)}),
        (cover, {"picks": MaximumCover(1e-3, 1e-3)}),
        (ProjectedCounts(origin), {"counts": Laplace(SCALE / 2)}),
        (ProjectedSumsAndCounts(origin), {"sums": Gaussian(1.0), "counts": Gaussian(1.0)}),
    ):
        asked = projection(points)
        for law in ("gumbel", "normal", "laplace"):
            monkeypatch.setattr(NoiseStreams, law, lambda *_: pytest.fail("noise was drawn"))
        with pytest.raises(BudgetExceeded):
            asked.release(query, **noise)


@pytest.mark.parametrize(
    ("query", "noise", "message"),
    [
        (CoverPicks([], 1), {"picks": (1.0, 0.1)}, r"number of scales, 0, must be at least 1"),
        (CoverPicks([(0.5, 1.0)], 0), {"picks": (1.0, 0.1)}, r"n_picks=0"),
        (CoverPicks([(0.5, 1.0)], 1), {"picks": (0.0, 0.1)}, r"weight=0.0 must be positive"),
        (CoverPicks([(0.5, 1.0)], 1), {"picks": (1.0, 0.0)}, r"delta=0.0 must be in \(0, 1\)"),
        (
            ProjectedCounts(np.zeros((1, 3))),
            {"counts": (1.0,)},
            r"centers must have shape \(k, 2\)",
        ),
        (ProjectedCounts(np.full((1, 2), np.nan)), {"counts": (1.0,)}, r"centers must be finite"),
    ],
)
def test_ill_posed_questions_are_refused(query, noise, message):
    asked = projection(np.zeros((10, 3), np.int64))
    with pytest.raises(ValueError, match=message):
        asked.release(query, **{part: query.mechanisms[part][0](*noise[part]) for part in noise})


@pytest.mark.parametrize("change", [ScoreRange(1.0), ScoreRange(2.0, one_sided=True)])
def test_a_cover_refuses_scores_that_its_cost_is_not_derived_for(change):
    with pytest.raises(ValueError, match="numbers of covered points"):
        MaximumCover(1.0, 0.1).check(change)


def test_projections_are_exact_or_refused():
    points = Points.prepare(np.random.default_rng(3).integers(-SCALE, SCALE, (50, 5)))
    matrix = np.random.default_rng(4).integers(-(2**18), 2**18, (2, 5))
    length = 2.0**37
    exact = points.rows.astype(np.int64) @ matrix.T
    assert (project(points, matrix, length) == exact / length).all()
    assert np.linalg.norm(project(points, matrix, 1.0), axis=1) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="not exact"):
        project(points, matrix * 2**20, length)
    with pytest.raises(ValueError, match=r"integers of shape \(m, 5\)"):
        project(points, matrix[:, :3], length)


# The method


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_em_mc_conforms():
    results = conformance(EMMC)
    assert len(results) == 2 * len(CHECKS)
    assert [result for result in results if result.error] == []


def test_published_follows_the_paper():
    method = EMMC(n_clusters=26, epsilon=1.0, variant="published")
    schedule = method.plan(18_720, 16)
    delta = 18_720**-1.5
    assert method.resolved_delta(18_720) == delta and method.dimensions(18_720) == 4
    assert schedule.n_picks == 19  # 26 ln 2 = 18.02
    assert (
        schedule.cover.weight == 0.2 / (2 * math.log(math.e / (delta / 2)))
        and schedule.cover.delta == delta / 2
    )
    assert schedule.candidate_noise == Laplace(5 * SCALE)
    mu = math.hypot(4 * SCALE / schedule.sum_noise.scale, SCALE / schedule.count_noise.scale)
    assert mu == pytest.approx(gaussian_mu(0.6, delta / 2))
    assert [EMMC().dimensions(n) for n in (1, 600, 36_733, 82_000, 100_000, 10**9)] == [
        1,
        2,
        4,
        5,
        5,
        6,
    ]


@pytest.mark.parametrize("variant", ["published", "sound"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_accounting_from_the_charges(variant, epsilon):
    """Composes what was asked, from scales and weights alone, with an accountant of its own."""
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (500, 4))
    method = EMMC(n_clusters=2, epsilon=epsilon, variant=variant, smallest_radius=0.2)
    ledger = method.fit_batch(points, [0]).ledger
    assert [charge.label for charge in ledger.charges] == [
        "maximum_cover", "projected_counts", "projected_sums_and_counts",
    ]  # fmt: skip
    cover, counts, averages = (charge.details for charge in ledger.charges)
    delta = method.resolved_delta(500)
    assert (
        ledger.charges[0].delta == delta / 2
        and ledger.charges[1].delta == ledger.charges[2].delta == 0
    )
    cover_loss = math.expm1(cover["pick_weight"]) * math.log(2 / delta)
    gaussians = privacy_loss_distribution.from_gaussian_mechanism(
        averages["sum_scale"] / 2
    ).compose(privacy_loss_distribution.from_gaussian_mechanism(averages["count_scale"]))
    laplace = privacy_loss_distribution.from_laplace_mechanism(counts["count_scale"])
    cover_law = privacy_loss_distribution.from_laplace_mechanism(
        1 / cover_loss
    )  # no worse than randomized response
    total = gaussians.compose(laplace).compose(cover_law).get_delta_for_epsilon(epsilon)
    assert total <= delta / 2 * (1 + 1e-6)
    assert ledger.spent() <= epsilon * (1 + 1e-9)
    if variant == "sound":
        assert ledger.spent() == pytest.approx(
            epsilon, rel=0.02
        )  # the grid of the ledger's accountant
    else:
        assert cover_loss <= 0.2 * epsilon and 1 / counts["count_scale"] == pytest.approx(
            0.2 * epsilon
        )


def test_finds_separated_clusters():
    """An ample budget comes close to k-means; a cover whose draws ignore the data does not."""
    rng = np.random.default_rng(0)
    centers = np.array([[-0.7, -0.7, 0.0], [0.7, 0.0, 0.7], [0.0, 0.7, -0.7]])
    points = Points.prepare(
        snap(
            np.clip(centers[np.arange(20_000) % 3] + 0.05 * rng.standard_normal((20_000, 3)), -1, 1)
        )
    )
    best = inertia(points, KMeansPlusPlus(3, n_init=5).fit_batch(points, [0]).centers)[0]
    private = inertia(points, EMMC(3, epsilon=4.0).fit_batch(points, range(3)).centers)
    assert np.median(private) < 1.1 * best


@pytest.mark.parametrize("variant", ["published", "sound"])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0])
@pytest.mark.parametrize(
    ("rows", "k"),
    [
        (np.full((50, 3), SCALE), 4),
        (np.full((50, 3), -SCALE), 1),
        (np.zeros((7, 1), int), 7),
        (np.eye(12, dtype=int) * SCALE, 12),
    ],
)
def test_degenerate_data_have_defined_results(rows, k, variant, epsilon):
    """Small data: counts are mostly noise, negative ones included."""
    run = EMMC(k, epsilon=epsilon, variant=variant).fit_batch(rows, [0, 1])
    assert run.centers.shape == (2, k, rows.shape[1]) and np.abs(run.centers).max() <= SCALE


def test_one_point():
    centers = EMMC(1, epsilon=1.0).fit_batch(np.array([[SCALE, 0]]), range(3)).centers
    assert centers.shape == (3, 1, 2) and np.abs(centers).max() <= SCALE
    with pytest.raises(ValueError, match="needs n >= 2, got 1"):
        EMMC(1, variant="published").fit_batch(np.array([[SCALE, 0]]), [0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"smallest_radius": 0.001},
            r"smallest_radius=0.001 must be 'auto' or a number in \[0.002, 1\]",
        ),
        ({"smallest_radius": 1.5}, "smallest_radius=1.5"),
        ({"smallest_radius": "fine"}, "smallest_radius='fine'"),
        ({"n_dimensions": 0}, "n_dimensions=0 must be 'auto' or an integer from 1 to 6"),
        ({"n_dimensions": 7}, "n_dimensions=7"),
        ({"variant": "fast"}, "variant='fast'"),
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"n_clusters": 101}, "n_clusters=101"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        EMMC(**parameters).fit_batch(np.zeros((100, 2), np.int64), [0])


def test_grids_that_cannot_be_numbered_are_refused():
    with pytest.raises(ValueError, match="too small in 6 dimensions"):
        EMMC(n_dimensions=6, smallest_radius=0.002).check_parameters(10_000)


def test_candidates_without_weight():
    candidates = np.array([[0.0, 0.1], [0.5, 0.0], [0.0, 0.1], [0.2, 0.2]])
    assert repeated(candidates).tolist() == [False, False, True, False]
    generator = np.random.RandomState(0)
    chosen = weighted_centers(candidates, np.array([0.0, 3.0, 0.0, 5.0]), 3, generator)
    assert chosen.tolist() == [[0.2, 0.2], [0.5, 0.0], [0.0, 0.1]]
    assert len(weighted_centers(candidates[:2], np.zeros(2), 4, generator)) == 4


def test_secure_noise_is_fresh():
    points = np.random.default_rng(0).integers(-SCALE, SCALE, (300, 2))
    method = EMMC(3, secure=True)
    one = method.fit_batch(points, [0]).centers
    other = method.fit_batch(points, [0]).centers
    assert (one != other).any()
