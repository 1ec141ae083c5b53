"""A domain that is found privately: exact points, the ledger, the guard, what it buys."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from pkm.audit.conformance import (
    check_batch_is_loop,
    check_determinism,
    check_ledger,
    check_order_and_shards,
)
from pkm.audit.pairs import draw_pairs
from pkm.audit.replay import replay
from pkm.compute import SCALE, Points, Symlog
from pkm.compute.kernels.clipping import clip_norms
from pkm.methods import (
    DPM,
    EMMC,
    AIMKMeans,
    Balcan,
    DPLloyd,
    EUGkM,
    FastLloyd,
    FedDPKMeans,
    GLloyd,
    KaplanStemmer,
    Lloyd,
    LSHSplits,
    MSTKMeans,
    PEMeans,
    QuadtreeKMeans,
    SuLloyd,
    SynopsisKMeans,
)
from pkm.methods.base import PrivateKMeans
from pkm.methods.planned import PlannedMethod
from pkm.methods.zoom import (
    MAX_COUNT_ERROR,
    MAX_MEAN_ERROR,
    MAX_ROUNDS,
    find_domain,
    plan_zoom,
)
from pkm.privacy import (
    Budget,
    BudgetExceeded,
    Curator,
    Ledger,
    NoiseStreams,
    PrivacyAccountant,
    gaussian_mu,
)

pytestmark = pytest.mark.usefixtures("short_fits")

ZERO_OUT = (
    FastLloyd, GLloyd, SuLloyd, DPLloyd, KaplanStemmer, Balcan, EUGkM, DPM, LSHSplits, EMMC,
    PEMeans, QuadtreeKMeans, MSTKMeans, AIMKMeans, FedDPKMeans,
)  # fmt: skip


def blobs(n=20_000, d=3, k=3, spread=0.03):
    """Clusters about fixed centers in [-0.6, 0.6]^d, and the centers."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(-0.6, 0.6, (k, d))
    return centers[np.arange(n) % k] + spread * rng.standard_normal((n, d)), centers


def per_point(points, centers):
    return ((points[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1).mean()


# Kernels


def clipped(d, *, by_norm):
    return Symlog(math.sqrt(d), 0.0, by_norm=by_norm)


def fine_points(rng, n, d, width):
    """Points on a grid 1 / width as fine as they are, and their coordinates, exactly."""
    given = rng.uniform(-1, 1, (n, d)) / width
    points, _ = Points.quantize(given, -np.ones(d), np.ones(d))
    steps = points.rows.astype(np.int64) * SCALE + points.remainders
    return points, steps / 2.0**32


@pytest.mark.parametrize("width", [1.0, 10.0, 1000.0, 20_000.0])
def test_points_entered_anew_are_as_fine_as_the_new_grid(width):
    """A zoom by 1,000 gives the grid of the small domain, not 1,000 times a step of the wide one.

    Coordinates are known to 2^-33 wide half-widths, so that a step is missed by at most
    2^-17 times the width.
    """
    rng = np.random.default_rng(1)
    points, x = fine_points(rng, 500, 3, width)
    inner = points.rescale(np.zeros(3), 1 / width, clipped(3, by_norm=False))
    np.testing.assert_array_equal(inner.rows, np.rint(x * width * SCALE))
    given = rng.uniform(-1, 1, (500, 3))
    wide, _ = Points.quantize(given / width, -np.ones(3), np.ones(3))
    inner = wide.rescale(np.zeros(3), 1 / width, clipped(3, by_norm=False))
    error = np.abs(inner.rows - given * SCALE)
    assert error.max() <= 0.5 + width * 2.0**-17


def test_points_outside_are_pulled_to_the_surface():
    points = Points.from_grid(np.array([[SCALE, 0], [SCALE, SCALE], [100, 0]]), n_null=2)
    ball = points.rescale(np.array([0.0, 0.0]), 0.5, clipped(2, by_norm=True))
    assert ball.rows.tolist() == [[SCALE, 0], [round(SCALE / math.sqrt(2))] * 2, [200, 0]]
    box = points.rescale(np.array([0.0, 0.0]), 0.5, clipped(2, by_norm=False))
    assert box.rows.tolist() == [[SCALE, 0], [SCALE, SCALE], [200, 0]]
    assert ball.n_null == box.n_null == 2
    assert points.rescale(np.zeros(2), 1.0, clipped(2, by_norm=False)) == points


@pytest.mark.parametrize("by_norm", [False, True])
@pytest.mark.parametrize("softness", [0.5, 2.0])
def test_points_outside_are_compressed_as_the_scale_says(by_norm, softness):
    """The kernel, the scale in numpy and its inverse agree; near points are in proportion."""
    rng = np.random.default_rng(2)
    center = np.array([0.25, -0.5, 0.125])
    half_width = 1 / 64
    given = np.concatenate([center + rng.normal(0, 0.01, (200, 3)), rng.uniform(-1, 1, (200, 3))])
    points, _ = Points.quantize(given, -np.ones(3), np.ones(3))
    lengths = (1 + np.abs(center)) / half_width
    largest = float(np.linalg.norm(lengths) if by_norm else lengths.max())
    scale = Symlog(largest, softness, by_norm=by_norm)
    inner = points.rescale(center, half_width, scale).rows / SCALE
    relative = (given - center) / half_width
    np.testing.assert_allclose(inner, scale.compress(relative), atol=2 / SCALE)
    np.testing.assert_allclose(scale.expand(scale.compress(relative)), relative, rtol=1e-9)
    size = np.linalg.norm(relative, axis=1) if by_norm else np.abs(relative).max(axis=1)
    near = size <= 1
    assert 20 < near.sum() < 300
    np.testing.assert_allclose(inner[near], relative[near] * scale.linear_part, atol=2 / SCALE)
    corner = np.array([[1.0, -1.0, 1.0]])
    assert np.abs(scale.compress((corner - center) / half_width)).max() <= 1 + 1e-9


@pytest.mark.parametrize("by_norm", [False, True])
@pytest.mark.parametrize("d", [1, 3, 10, 300])
def test_points_are_quantized_again_to_the_bit(d, by_norm):
    """In the order of these operations; half of the points, or of the values, are clipped."""
    rng = np.random.default_rng(d)
    center = rng.uniform(-0.5, 0.5, d)
    given = np.clip(rng.normal(0, 0.4, (777, d)), -1, 1)
    differences = np.abs(given - center)
    half_width = float(np.median(np.linalg.norm(differences, axis=1) if by_norm else differences))
    points, _ = Points.quantize(given, -np.ones(d), np.ones(d))
    scale = clipped(d, by_norm=by_norm)
    for outer in (points, replace(points, remainders=None)):
        remainders = 0.0 if outer.remainders is None else outer.remainders / SCALE
        steps = outer.rows.astype(np.float64) + remainders
        positions = (steps / SCALE - center) / half_width
        squares = np.cumsum(positions**2, axis=1)[:, -1:] if by_norm else positions**2
        lengths = np.maximum(np.sqrt(squares), 1.0)
        positions *= scale.linear_part * (1.0 / lengths)
        expected = np.rint(np.clip(positions, -1.0, 1.0) * SCALE)
        inner = outer.rescale(center, half_width, scale)
        assert (inner.rows == expected).all()
        assert (inner.squared_norms == (expected**2).sum(axis=1)).all()


def test_points_of_a_zoom_are_shortened_where_they_are():
    """The ball of the zoom takes no second copy of them; a smaller one leaves them as they are."""
    rows = np.random.default_rng(0).integers(-SCALE, SCALE, (40_000, 3))
    outer = Curator(rows, None, NoiseStreams([0]))
    inner = outer.rescale(np.zeros(3), 0.4, clipped(3, by_norm=True))
    entered = inner.disclose().astype(np.int64)
    assert ((entered**2).sum(axis=1) > SCALE**2).any()
    smaller = inner.clipped_points(0.5)._shards[0]
    assert np.array_equal(inner.disclose(), entered)
    shortened = inner.clipped_points(1.0)._shards[0]
    assert np.shares_memory(shortened.rows, inner._shards[0].rows)
    for radius, points in ((0.5, smaller), (1.0, shortened)):
        alone = Curator(entered, None, NoiseStreams([0])).clipped_points(radius)._shards[0]
        assert points == alone == Points.from_grid(clip_norms(entered, radius * SCALE))
        assert np.array_equal(points.squared_norms, alone.squared_norms)
        assert points.squared_norms.max() <= (radius * SCALE) ** 2
    assert np.array_equal(outer.disclose(), rows)


# The run


@pytest.mark.slow
@pytest.mark.parametrize("method", ZERO_OUT)
@pytest.mark.no_cover  # other tests run the same code
def test_zoomed_methods_keep_the_contract(method):
    """Batches, orders and shards change no bit; the ledger adds up to at most the budget."""
    # Enough budget for the guard: the blobs of the suite are 600 points.
    zoomed = method(n_clusters=3, epsilon=40.0, bounds=(-1, 1), zoom=0.1)
    assert zoomed.zoom_plan(600, 3) is not None
    for check in (check_determinism, check_batch_is_loop, check_order_and_shards, check_ledger):
        check(zoomed)


@pytest.mark.slow
@pytest.mark.parametrize("method", ZERO_OUT)
@pytest.mark.parametrize("epsilon", [1.5, 8.0])
def test_the_budget_is_spent(method, epsilon):
    """Zoom and method together cost what the method alone does, and the zoom its share."""
    points, _ = blobs(20_000)
    alone = method(n_clusters=3, epsilon=epsilon)
    plan = PrivateKMeans.zoom_plan(method(3, epsilon=epsilon, zoom=0.1), 20_000, 3)
    assert plan is not None
    grid = np.rint(points * SCALE).astype(np.int64)
    spent = alone.fit_batch(grid, [0]).ledger.spent()
    ledger = method(n_clusters=3, epsilon=epsilon, zoom=0.1).fit_batch(grid, [0]).ledger
    assert ledger.spent() <= epsilon * (1 + 1e-9)
    assert ledger.spent() >= spent * (1 - 2e-3)
    zoom = ledger.charges[: len(plan.releases)]
    if plan.pure:
        assert math.fsum(charge.epsilon for charge in zoom) == pytest.approx(0.1 * epsilon)
    else:
        share = 0.1 * gaussian_mu(epsilon, 1e-6) ** 2
        assert math.fsum(charge.mu**2 for charge in zoom) == pytest.approx(share)


@pytest.mark.slow
@pytest.mark.parametrize("method", [FastLloyd, SuLloyd, EUGkM, KaplanStemmer])
def test_replay_on_neighbors(method):
    """Queries, charges and centers depend on released values alone, and cost what is charged."""
    zoomed = method(n_clusters=2, epsilon=400.0, zoom=0.2)
    tried = 0
    for number, pair in enumerate(draw_pairs("zero_out", 24, 5, n_points=(40, 60))):
        if zoomed.zoom_plan(pair.points.n_records, pair.points.shape[1]) is None:
            continue
        outcome = replay(zoomed, pair, number)
        assert not outcome.mismatch
        assert outcome.refusal is None
        assert all(each.ratio <= 1 + 1e-9 for each in outcome.realized)
        tried += 1
    assert tried >= 12


@pytest.mark.slow
@pytest.mark.parametrize("method", [FastLloyd, KaplanStemmer, QuadtreeKMeans])
def test_a_zoom_by_1000_is_the_same_bits_in_any_batch_split_and_order(method):
    rows, _ = blobs(3000)
    ones = np.ones(3)
    zoomed = method(n_clusters=3, epsilon=20.0, zoom=0.1)

    def run(rows, seeds, *, split=()):
        parts = [
            Points.quantize(part, -1000 * ones, 1000 * ones)[0] for part in np.split(rows, split)
        ]
        return zoomed.fit_batch(parts, seeds)

    whole = run(rows, [0, 1])
    for zoom in whole.zooms:
        assert zoom.half_width < 2e-3
    # On the public grid the clusters are closer than a step: without the remainders all is lost.
    assert np.ptp(whole.centers) < 200
    alone = run(rows, [1])
    shuffled = run(np.random.default_rng(1).permutation(rows), [0, 1])
    shards = run(rows, [0, 1], split=[7, 1500])
    for other, place in ((alone, slice(1, 2)), (shuffled, slice(None)), (shards, slice(None))):
        np.testing.assert_array_equal(other.centers, whole.centers[place])
        np.testing.assert_array_equal(other.remainders, whole.remainders[place])


def test_replicates_that_find_nothing_smaller_cost_the_same():
    """Corners of a cube: some replicates find a ball, others stay in the public domain."""
    rng = np.random.default_rng(0)
    corners = rng.choice([-1, 1], (6000, 6)) * rng.uniform(0.9, 1, (6000, 1))
    grid = np.rint(0.85 * corners * SCALE).astype(np.int64)
    run = KaplanStemmer(3, epsilon=2.0, zoom=0.1).fit_batch(grid, range(6))
    assert {zoom is None for zoom in run.zooms} == {True, False}
    assert run.ledger.spent() <= 2.0


@pytest.mark.parametrize(
    ("method", "n_features"),
    [(FastLloyd(8, zoom=0.1), 4), (KaplanStemmer(3, zoom=0.1), 7), (SynopsisKMeans(3), 7)],
    ids=lambda value: type(value).__name__,
)
def test_schedule_is_the_same_whether_or_not_a_ball_is_found(method, n_features):
    """An account is charged before the first release, so costs may differ by rounding alone."""
    rng = np.random.default_rng(0)
    small = rng.uniform(-0.05, 0.05, (5000, n_features))
    corners = 0.85 * rng.choice([-1, 1], (5000, n_features))
    spent = []
    for points in (small, corners):
        account = PrivacyAccountant(Budget(2.0, 3e-6))
        model = clone(method).set_params(bounds=(-1, 1), secure=True)
        spent.append(len(model.fit(points, account=account).ledger_.charges))
    assert spent[0] == spent[1]


def test_replicates_of_fastlloyd_cost_the_same_with_and_without_a_ball():
    corners = np.random.default_rng(0).choice([-1, 1], (5000, 4))
    grid = np.rint(0.8 * corners * SCALE).astype(np.int64)
    run = FastLloyd(8, zoom=0.1).fit_batch(grid, range(6))
    assert run.ledger.spent() <= 1.0 + 1e-9
    assert {zoom is None for zoom in run.zooms} == {True, False}


def test_no_zoom_is_the_method_itself():
    points, _ = blobs(2000)
    for method in (FastLloyd, KaplanStemmer):
        plain = method(n_clusters=3, bounds=(-1, 1), random_state=1).fit(points)
        none = method(n_clusters=3, bounds=(-1, 1), random_state=1, zoom=0.0).fit(points)
        np.testing.assert_array_equal(plain.cluster_centers_, none.cluster_centers_)
        assert plain.ledger_.charges == none.ledger_.charges
        assert none.zoom_ is None
        np.testing.assert_array_equal(none.domain_, [[-1] * 3, [1] * 3])


@pytest.mark.parametrize("width", [10, 100, 1000])
@pytest.mark.parametrize("method", [FastLloyd, KaplanStemmer, EUGkM])
def test_wide_bounds_cost_little(method, width):
    """Bounds that are far too wide, off the middle: nearly as good as tight ones.

    Without a zoom centers are off by the order of the domain's noise, hundreds of times as much.
    """
    points, _ = blobs()
    units = 7.0 * points + 1000.0
    bounds = (1000.0 - 7 * width, 1000.0 + 7 * 1.5 * width)

    def cost(zoom, bounds):
        model = method(n_clusters=3, epsilon=2.0, bounds=bounds, random_state=3, zoom=zoom)
        model.fit(units)
        return per_point(units, model.cluster_centers_), model

    tight, _ = cost(0.1, (993.0, 1007.0))
    zoomed, model = cost(0.1, bounds)
    assert zoomed <= 1.1 * tight
    lower, upper = model.domain_
    outside = ((units < lower) | (units > upper)).any(axis=1).sum()
    assert outside <= 0.06 * len(units)
    assert (upper - lower).max() <= 4 * 14.0
    assert (model.predict(units) == model.predict(units)[:3][np.arange(len(units)) % 3]).all()


def test_constant_columns_and_equal_points():
    constant = np.tile([[0.25, -0.5, 0.125]], (20_000, 1))
    model = KaplanStemmer(2, epsilon=1.0, bounds=(-1, 1), zoom=0.1, random_state=0).fit(constant)
    np.testing.assert_allclose(model.cluster_centers_, constant[:2], atol=1e-3)
    points, _ = blobs()
    points[:, 1] = 0.5
    model = KaplanStemmer(3, epsilon=1.0, bounds=(-9, 9), zoom=0.1, random_state=0).fit(points)
    assert np.abs(model.cluster_centers_[:, 1] - 0.5).max() < 0.2


def test_bounds_that_contain_no_point():
    """All points are clipped to one corner, where the domain is found."""
    points, _ = blobs()
    model = KaplanStemmer(3, epsilon=1.0, bounds=(5, 9), zoom=0.1, random_state=0).fit(points)
    np.testing.assert_allclose(model.cluster_centers_, 5.0, atol=1e-2)
    assert (model.cluster_centers_ >= 5.0).all()


# The guard and bad input


def test_the_guard_is_public_and_told():
    points, _ = blobs(300)
    model = KaplanStemmer(3, epsilon=0.2, bounds=(-1, 1), zoom=0.1, random_state=0).fit(points)
    assert model.zoom_ is None
    assert "shell_counts" not in [charge.label for charge in model.ledger_.charges]
    (note,) = model.ledger_.notes
    assert note.startswith("zoom=0.1: the public guard left it out")
    assert model.ledger_.spent() == pytest.approx(0.2)


@pytest.mark.parametrize("method", [KaplanStemmer, EUGkM])
def test_a_required_zoom_names_what_would_do(method):
    points, _ = blobs(300)
    model = method(3, epsilon=0.2, bounds=(-1, 1), zoom=0.1, require_zoom=True)
    with pytest.raises(ValueError, match="about n=") as error:
        model.fit(points)
    words = str(error.value).replace(":", " ").split()
    numbers = [float(word.partition("=")[2]) for word in words if word[:2] in ("n=", "ep")]
    _, _, n, epsilon = numbers
    model.set_params(epsilon=0.2)
    assert model.zoom_plan(int(n), 3) is not None
    assert model.set_params(epsilon=1.01 * epsilon).zoom_plan(300, 3) is not None
    with pytest.raises(ValueError, match="is too little"):
        model.set_params(epsilon=0.9 * epsilon).zoom_plan(300, 3)


@pytest.mark.parametrize("zoom", [-0.1, 1.0, 2, math.nan, "0.1", True])
def test_shares_that_are_none_are_refused(zoom):
    with pytest.raises(ValueError, match=r"zoom=.* must be None or a share of the budget"):
        FastLloyd(3, zoom=zoom).check_parameters()


def test_methods_without_releases_for_it_are_refused():
    with pytest.raises(ValueError, match="under zero-out or add-remove adjacency"):
        Lloyd(3, zoom=0.1).check_parameters()
    with pytest.raises(ValueError, match="require_zoom=True has no effect"):
        FastLloyd(3, require_zoom=True).check_parameters()


def test_accounts_are_charged_for_the_zoom():
    points, _ = blobs()
    account = PrivacyAccountant(Budget(1.5, 2e-6))
    model = FastLloyd(3, epsilon=1.0, bounds=(-1, 1), zoom=0.1)
    model.fit(points, account=account)
    pairs = zip(account.runs[0].schedule, model.ledger_.charges, strict=True)
    assert all(planned.matches(charge) for planned, charge in pairs)
    with pytest.raises(BudgetExceeded):
        model.fit(points, account=account)


def test_a_coreset_is_in_the_domain_that_was_found():
    points, centers = blobs()
    model = KaplanStemmer(3, epsilon=2.0, bounds=(-100, 100), zoom=0.1, random_state=0)
    coreset = model.coreset(points)
    assert coreset.weights.sum() == pytest.approx(len(points))
    assert coreset.cost_estimate(centers) / len(points) < 0.01
    assert coreset.ledger.charges[0].label == "shell_counts"


@pytest.mark.parametrize("benefits_from_ball", [True, False])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_plans_are_of_public_quantities(benefits_from_ball, delta):
    plan = plan_zoom(0.2, 0.2, 10_000, 5, 2.0, delta, benefits_from_ball=benefits_from_ball)
    assert plan.ball == benefits_from_ball
    assert plan.pure == (delta == 0)
    total = math.fsum(charge.epsilon for charge in plan.releases) if plan.pure else plan.mu**2
    assert total == pytest.approx(0.4 if plan.pure else 0.2 * gaussian_mu(2.0, 1e-6) ** 2)


@pytest.mark.parametrize("ball", [True, False])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("d", [2, 3, 8, 64])
def test_a_zoom_is_never_noisier_than_its_guard(d, delta, ball):
    """With the least n that is served the noise is what the guard allows, and no more."""

    def plan(n):
        return plan_zoom(0.1, 0.5, n, d, 1.0, delta, benefits_from_ball=ball)

    n = 10
    while plan(n) is None:
        n += 1
    for n_points in (n, 2 * n, 100 * n):
        found = plan(n_points)
        assert 0.1 <= found.share <= 0.5
        step = found.stddev(found.mean_cost, math.sqrt(d), 1.0)
        assert math.sqrt(d) * step / n_points <= MAX_MEAN_ERROR * (1 + 1e-9)
        count = found.stddev(found.count_cost, 1.0, 1.0)
        assert count / n_points <= MAX_COUNT_ERROR * (1 + 1e-9)
        n_sides = d if found.has_sides else 1
        last = found.stddev(found.last_cost, n_sides, math.sqrt(n_sides))
        assert last / n_points <= MAX_COUNT_ERROR * (1 + 1e-9)
    assert plan(n).rounds <= plan(2 * n).rounds <= MAX_ROUNDS
    assert plan(10**7).rounds < MAX_ROUNDS


@pytest.mark.parametrize(("n_features", "width"), [(1, 1e5), (3, 1e4), (8, 1e3)])
def test_small_groups_far_away_are_kept(n_features, width):
    """Two groups of 0.4 % are 20 widths away: clipped to the domain they would be lost."""
    rng = np.random.default_rng(3)
    points, _ = blobs(20_000, n_features)
    side = np.ones(n_features)
    points[:80] = 20 * side + 0.01 * rng.standard_normal((80, n_features))
    points[80:160] = -20 * side + 0.01 * rng.standard_normal((80, n_features))
    model = SynopsisKMeans(5, epsilon=4.0, bounds=(-width, width), random_state=0).fit(points)
    assert model.zoom_.half_width * width < 4.0
    farthest = np.abs(model.cluster_centers_).min(axis=1)
    assert (farthest > 18.0).sum() == 2
    compared = KaplanStemmer(5, epsilon=4.0, bounds=(-width, width), zoom=0.1, random_state=0)
    clipping = FastLloyd(5, epsilon=4.0, bounds=(-width, width), zoom=0.1, random_state=0)
    assert compared.compresses_tails
    assert not clipping.compresses_tails


def test_a_domain_that_compresses_holds_the_bulk_of_the_points():
    """99 % of the points are inside; without compression nearly all are."""
    points, _ = blobs(20_000, 5)
    points[:150] *= 10
    grid = np.rint(points / 8 * SCALE).astype(np.int64)
    plan = plan_zoom(0.1, 0.1, 20_000, 5, 8.0, 1e-6, benefits_from_ball=True)
    widths = []
    for compress in (False, True):
        ledger = Ledger(Budget(9.0, 1e-6))
        zoom = find_domain(Curator(grid, ledger, NoiseStreams([0])), plan, compress=compress)
        outside = np.linalg.norm(grid / SCALE - zoom.center, axis=1) > zoom.half_width
        widths.append(zoom.half_width)
        assert outside.mean() < (0.012 if compress else 0.005)
    assert widths[1] < widths[0] / 3


def test_inner_curators_share_the_ledger_and_the_rounds():
    curator = Curator(np.zeros((4, 2), np.int64), None, NoiseStreams([0]))
    inner = curator.rescale(np.zeros(2), 0.5, clipped(2, by_norm=True))
    assert inner.n_points == 4
    assert inner.radius == 1.0
    assert curator.radius == math.sqrt(2)
    assert inner._rounds is curator._rounds


@pytest.mark.slow
def test_every_public_setting_has_a_zoom_that_fits_or_none():
    """A zoom whose rest of the budget is too small is left out: 288 settings."""
    grid = itertools.product(
        (0.5, 1.0, 8.0, 60.0), (1e-6, 1e-2, 0.2), (0.1, 0.3, 0.6), (1, 3, 4, 6), (20, 60)
    )
    has_zoom = []
    for epsilon, delta, zoom, d, n in grid:
        method = SynopsisKMeans(1, epsilon=epsilon, delta=delta, zoom=zoom, bounds=(-1, 1))
        planned = PlannedMethod(method, n, d)
        assert planned.schedule.fits(method.budget(n, d)), (epsilon, delta, zoom, d, n)
        has_zoom.append(planned.zoom is not None)
    assert len(has_zoom) == 288
    assert 0 < sum(has_zoom) < 288


@pytest.mark.parametrize("require_zoom", [False, True])
def test_a_zoom_that_leaves_nothing_is_left_out(require_zoom):
    """Thresholds of hashing take half of delta, and the Gaussian noise of the zoom the rest."""
    X = np.random.default_rng(0).uniform(-1, 1, (60, 4))
    method = SynopsisKMeans(
        1, epsilon=0.5, delta=0.2, zoom=0.6, require_zoom=require_zoom, bounds=(-1, 1)
    )
    if require_zoom:
        with pytest.raises(ValueError, match=r"zoom=0\.6 leaves nothing of epsilon=0\.5"):
            method.fit(X)
        return
    method.fit(X)
    assert method.zoom_ is None
    assert any("the public guard left it out" in note for note in method.ledger_.notes)
