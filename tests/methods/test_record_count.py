"""Methods whose number of records is secret: what it costs, and that nothing has the exact one.

Neighbors of different n are replayed in ``tests/audit/test_add_remove.py``.
"""

import math
import warnings

import numpy as np
import pytest

from pkm.audit.conformance import CHECKS, run_checks
from pkm.compute import Points
from pkm.methods import (
    DPM,
    EMMC,
    METHODS,
    DistDP,
    EUGkM,
    FastLloyd,
    GaussianEUGkM,
    GLloyd,
    KaplanStemmer,
    Lloyd,
    LocalMean,
    MSTKMeans,
    QuadtreeKMeans,
    SuLloyd,
    SynopsisKMeans,
    load_method,
)
from pkm.methods.record_count import MANY_RECORDS, CountedMethod, count_interval
from pkm.privacy import (
    SCALE,
    AccountError,
    Adjacency,
    Budget,
    BudgetExceeded,
    Curator,
    Gaussian,
    GridCounts,
    Laplace,
    Ledger,
    NoiseStreams,
    PrivacyAccountant,
    RecordCount,
    ScheduleError,
    gaussian_mu,
)

BOUNDS = (-1, 1)
N = 3000
#: Noise is 0 after rounding.
HUGE = 1e15


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    centers = np.array([[-0.5, -0.5], [0.5, 0.25], [-0.25, 0.5]])
    return np.clip(centers[np.arange(N) % 3] + 0.05 * rng.standard_normal((N, 2)), -1, 1)


def hidden(method, **parameters):
    """A method under add-remove adjacency, with bounds and a seed."""
    given = {"bounds": BOUNDS, "random_state": 0, "adjacency": "add_remove"} | parameters
    return method(3, **given)


def supported_methods():
    """A method of each class and variant that can run without an exact n."""
    found = []
    for name in METHODS:
        method_class = load_method(name)
        for variant in method_class.claims:
            method = hidden(method_class)
            if "variant" in method.get_params():
                method.set_params(variant=variant)
            if variant == "published" and "delta" in method.get_params():
                method.set_params(delta=1e-6)
            try:
                method.check_parameters()
                method.planned_run(N, 2, [0])
            except ValueError:
                continue
            found.append(pytest.param(method, id=f"{name}-{variant}"))
    return found


# What n costs


@pytest.mark.parametrize("zoom", [None, 0.1])
@pytest.mark.parametrize("method", [SuLloyd, EUGkM, QuadtreeKMeans])
def test_pure_methods_buy_n_with_laplace_noise(method, zoom, X):
    ledger = hidden(method, epsilon=2.0, zoom=zoom).fit(X).ledger_
    first, *others = ledger.charges
    assert (first.label, first.mechanism, first.mu, first.delta) == (
        "record_count",
        "laplace",
        0,
        0,
    )
    assert first.epsilon == pytest.approx(0.04, rel=1e-12)
    assert first.details["count_scale"] == pytest.approx(25.0, rel=1e-12)
    rest = math.fsum(charge.epsilon for charge in others)
    assert rest == pytest.approx(1.96, rel=1e-4 if zoom else 1e-12)
    assert ledger.spent() <= 2.0 * (1 + 1e-9)
    assert not any(charge.mu or charge.delta for charge in others)


@pytest.mark.parametrize("zoom", [None, 0.1])
@pytest.mark.parametrize("method", [FastLloyd, GLloyd, GaussianEUGkM])
def test_gaussian_methods_buy_n_with_gaussian_noise(method, zoom, X):
    ledger = hidden(method, delta=1e-5, zoom=zoom).fit(X).ledger_
    first, *others = ledger.charges
    whole = gaussian_mu(1.0, 1e-5)
    assert (first.label, first.mechanism) == ("record_count", "gaussian")
    assert first.mu == pytest.approx(math.sqrt(0.02) * whole, rel=1e-12)
    assert first.details["count_scale"] == pytest.approx(1 / first.mu, rel=1e-12)
    rest = math.fsum(charge.mu**2 for charge in others)
    assert rest == pytest.approx(0.98 * whole**2, rel=1e-3 if zoom else 1e-7)
    assert ledger.spent() <= 1.0
    assert not any(charge.epsilon or charge.delta for charge in others)


@pytest.mark.parametrize("method", [SynopsisKMeans, DPM, MSTKMeans])
def test_methods_of_several_mechanisms_buy_n_with_laplace_noise(method, X):
    """The others are within the rest of epsilon and all of delta, for every n."""
    ledger = hidden(method).fit(X).ledger_
    first, *others = ledger.charges
    assert (first.mechanism, first.mu, first.delta) == ("laplace", 0, 0)
    assert first.epsilon == pytest.approx(0.02)
    alone = Ledger(Budget(0.98, 1e-6))
    for charge in others:
        alone.charge(charge)
    assert ledger.spent() <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("method", supported_methods())
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
def test_what_follows_n_is_bounded_for_every_n(method, epsilon):
    """Its costs are chosen by the released n, and privacy needs a bound that holds for all.

    No query may follow that was not foreseen, and so not checked before n is released.
    """
    for d in (1, 2, 3, 6):
        counted = CountedMethod(method.set_params(epsilon=epsilon), d)
        try:
            foreseen = {charge.label for charge in counted.possible_charges}
        except ValueError:
            continue  # refused before n is released
        count, bound = counted.charges
        delta = method.budget(MANY_RECORDS, d).delta
        whole = Ledger(Budget(method.budget(MANY_RECORDS, d).epsilon, delta))
        whole.charge(count)
        whole.charge(bound)
        for n in (1, 2, 30, 1000, 30_000, 10**6, 10**12):
            charges = counted._plan(bound, n).schedule.charges
            assert {charge.label for charge in charges} <= foreseen
            if bound.mu > 0:
                mu = math.hypot(*[charge.mu for charge in charges])
                assert mu <= bound.mu * (1 + 1e-9)
                assert not any(charge.epsilon or charge.delta for charge in charges)
                continue
            alone = Ledger(Budget(bound.epsilon, delta))
            for charge in charges:
                alone.charge(charge)


def test_more_than_the_bound_is_not_released(X, monkeypatch):
    """A schedule that costs more for some n: its ledger would accept it, the proof does not."""

    class Greedy(SynopsisKMeans):
        def schedule(self, n_points, n_features):
            epsilon = self.epsilon if n_points > 10 * N else 1.01 * self.epsilon
            return QuadtreeKMeans(3, epsilon=epsilon).schedule(n_points, n_features)

    model = hidden(Greedy, zoom=None)
    curators = []
    make = Curator.__init__
    monkeypatch.setattr(
        Curator,
        "__init__",
        lambda self, *args, **options: curators.append(self) or make(self, *args, **options),
    )
    with pytest.raises(ScheduleError, match=r"what follows n=\d+ costs more than"):
        model.fit(X)
    assert [charge.label for charge in curators[0]._ledger.charges] == ["record_count"]


def test_other_releases_than_planned_from_the_released_n_are_refused(X):
    class PlansByAnotherNumber(QuadtreeKMeans):
        def cluster(self, curator):
            curator.n_points = N + 1
            return super().cluster(curator)

    with pytest.raises(ScheduleError, match="is not release 1 of the schedule"):
        hidden(PlansByAnotherNumber).fit(X)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("count", [Laplace(50.0 * SCALE), Gaussian(30.0 * SCALE)])
@pytest.mark.parametrize("n", [3, 1000])
def test_the_interval_holds_n_in_95_percent(count, n):
    """Within five standard errors; more often where the released number is raised to 1."""
    points = np.zeros((n, 1), np.int64)
    n_runs = 4000
    held = 0
    for seed in range(n_runs):
        curator = Curator(points, Ledger(Budget(1.0, 0.1, "add_remove")), NoiseStreams([seed]))
        curator.release(RecordCount(), counts=count)
        low, high = count_interval(curator.n_points, curator._ledger)
        held += low <= n <= high
    error = 5 * math.sqrt(0.05 * 0.95 / n_runs)
    assert 0.95 - error < held / n_runs < (1 if n < 50 else 0.95 + error)


def test_a_public_n_is_told_as_it_is(X):
    model = FastLloyd(3, bounds=BOUNDS, random_state=0).fit(X)
    assert (model.n_, model.n_interval_) == (N, (N, N))
    model.set_params(adjacency="add_remove").fit(X)
    low, high = model.n_interval_
    assert model.n_ != N
    assert low < model.n_ < high
    assert high - low == pytest.approx(1 + 2 * 1.96 / model.ledger_.charges[0].mu, rel=1e-4)


def test_the_claim_and_the_ledger_say_that_n_is_secret(X):
    model = hidden(FastLloyd).fit(X)
    assert model.claim.adjacency == "add_remove"
    assert model.claim.public == ("domain", "k")
    assert model.ledger_.budget.adjacency == "add_remove"
    public = model.set_params(adjacency="zero_out")
    assert public.claim is FastLloyd.claims["sound"]


# The result


@pytest.mark.slow
@pytest.mark.parametrize("zoom", [None, 0.1])
@pytest.mark.parametrize("method", supported_methods())
def test_without_noise_the_result_is_that_of_a_public_n(method, zoom, X):
    """Rounds, grids and totals are those of n, which is released as it is."""
    method.set_params(epsilon=HUGE, zoom=zoom)
    if "generations" in method.get_params():
        method.set_params(generations=2)
    model = method.fit(X)
    if {charge.mechanism for charge in model.ledger_.charges} & {"exponential", "maximum_cover"}:
        pytest.skip("it chooses among equals at random")
    assert model.n_ == N
    public = load_method(type(method).__name__)(3)
    public.set_params(**{**method.get_params(), "adjacency": "zero_out"}).fit(X)
    assert model.cluster_centers_.tolist() == public.cluster_centers_.tolist()
    assert model.n_iter_ == public.n_iter_


def test_persons_are_counted(X):
    groups = np.arange(N) // 3
    model = hidden(FastLloyd, epsilon=HUGE).fit(X, groups=groups)
    assert model.n_ == N // 3
    assert model.ledger_.budget.unit == "person"
    with pytest.raises(ValueError, match="groups and sample_weight are not supported by EMMC"):
        hidden(EMMC).fit(X, groups=groups)


def test_a_zoom_is_planned_from_the_released_n(X, tmp_path):
    """Whether rows are read in one piece or in blocks; and so is its refusal."""
    np.save(tmp_path / "points.npy", X)
    model = hidden(FastLloyd, epsilon=8.0, zoom=0.1, bounds=(-50, 50))
    whole = model.fit(X).cluster_centers_
    assert model.zoom_ is not None
    assert model.ledger_.charges[0].label == "record_count"
    assert model.fit(tmp_path / "points.npy").cluster_centers_.tolist() == whole.tolist()
    tight = hidden(FastLloyd, epsilon=0.05, zoom=0.1, require_zoom=True)
    with pytest.raises(ValueError, match=r"find a domain of n=(?!3000 )\d+ records"):
        tight.fit(X)


@pytest.mark.slow
@pytest.mark.parametrize("method", [FastLloyd, SynopsisKMeans])
def test_conformance(method):
    """But for two checks that expect a schedule without n, and a ledger without one."""
    left_out = ("check_schedule", "check_overspend_is_refused")
    checks = [check for check in CHECKS if check.__name__ not in left_out]
    model = method(3, bounds=BOUNDS, adjacency="add_remove", epsilon=1e4)
    assert not [result for result in run_checks(model, checks) if result.error]


# What is refused, and what a refusal tells


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (hidden(Lloyd), "it claims no privacy"),
        (hidden(FastLloyd, variant="published"), "delta='auto' of its published variant"),
        (hidden(DistDP), "its claim is one of rho_bounded adjacency"),
        (hidden(LocalMean), "its claim is one of local adjacency"),
        (hidden(EUGkM), "the sensitivity of grid_counts is derived for an exact n"),
    ],
)
def test_methods_that_need_the_exact_n_are_refused(method, message, X, monkeypatch):
    """Before anything is charged or drawn."""

    def forbidden(*arguments):
        raise AssertionError("something was charged or drawn")

    # A query that needs the exact n, of a method that is served otherwise.
    monkeypatch.setattr(GridCounts, "adjacencies", (Adjacency.ZERO_OUT,))
    monkeypatch.setattr(Ledger, "charge", forbidden)
    monkeypatch.setattr(NoiseStreams, "release", forbidden)
    account = PrivacyAccountant(Budget(9.0, 0.1, "add_remove"))
    fits = (
        lambda: method.fit(X),
        lambda: method.planned_run(N, 2, [0]),
        lambda: method.fit_batch(Points.from_grid(np.zeros((9, 2), np.int64)), [0], secure=True),
        lambda: method.set_params(random_state=None).fit(X, account=account),
    )
    for fit in fits:
        with pytest.raises(
            ValueError, match=f"adjacency=add_remove is not supported by.*{message}"
        ):
            fit()


def test_a_coreset_is_refused(X):
    with pytest.raises(ValueError, match="adjacency=add_remove is not supported for a coreset"):
        hidden(KaplanStemmer).coreset(X)


def test_a_published_variant_with_a_number_for_delta_is_supported(X):
    model = hidden(FastLloyd, variant="published", delta=1e-6).fit(X)
    assert model.ledger_.budget.adjacency == "add_remove"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_k_is_compared_with_the_released_n():
    """With more clusters than records, and with more records than a low released number."""
    X = np.zeros((100, 1))
    seen = set()
    for seed in range(12):
        for n_clusters in (90, 110):
            model = SuLloyd(n_clusters, bounds=BOUNDS, random_state=seed, adjacency="add_remove")
            try:
                model.fit(X)
            except ValueError as error:
                assert f"n_clusters={n_clusters} must be at most the number" in str(error)
                assert "n=100" not in str(error)
                seen.add((n_clusters, "refused"))
            else:
                assert model.n_ >= n_clusters
                seen.add((n_clusters, "fitted"))
    assert seen == {(k, end) for k in (90, 110) for end in ("refused", "fitted")}


def test_a_large_delta_is_compared_with_the_released_n():
    X = np.zeros((100, 1))
    model = FastLloyd(1, delta=0.01, bounds=BOUNDS, adjacency="add_remove")
    for _ in range(20):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X)
        messages = [str(item.message) for item in caught if "above 1/n" in str(item.message)]
        assert len(messages) == (0.01 * model.n_ > 1)


def test_progress_is_refused(X):
    with pytest.raises(ValueError, match="progress=True shows the number of blocks"):
        hidden(FastLloyd).fit(X, progress=True)


# Accounts


@pytest.mark.parametrize("method", [FastLloyd, SuLloyd, SynopsisKMeans])
def test_an_account_pays_for_n_and_a_bound_on_the_others(method, X, tmp_path):
    model = hidden(method, random_state=None)
    delta = model.budget(N, 2).delta
    path = tmp_path / "account.json"
    account = PrivacyAccountant(Budget(2.0, 2 * delta, "add_remove"), path)
    model.fit(X, account=account)
    (run,) = account.runs
    assert [charge.label for charge in run.schedule] == ["record_count", "rest"]
    assert account.spent() == 1.0
    assert '"adjacency": "add_remove"' in path.read_text()
    model.fit(X, account=account)
    with pytest.raises(BudgetExceeded):
        model.fit(X, account=account)
    with pytest.raises(AccountError, match="adjacency=zero_out"):
        model.set_params(adjacency="zero_out").fit(X, account=account)


@pytest.mark.parametrize("method", [FastLloyd, SuLloyd, DPM])
def test_a_gaussian_account_pays_no_less_than_the_ledger(method, X):
    """As much, for Gaussian noise; else what one release of the rest of epsilon would cost."""
    model = hidden(method, random_state=None)
    budget = Budget(100.0, 1e-3, "add_remove")
    account = PrivacyAccountant(budget, composition="gaussian", failure_delta=1e-4)
    model.fit(X, account=account)
    (run,) = account.runs
    mu_squared, failure = run.gaussian_cost
    actual = PrivacyAccountant(budget, composition="gaussian", failure_delta=1e-4)
    actual.ledger(model.ledger_.budget, model.ledger_.charges)
    (spent,) = actual.runs
    assert spent.gaussian_cost[0] <= mu_squared * (1 + 1e-9)
    assert spent.gaussian_cost[1] <= failure
    if method is FastLloyd:
        assert mu_squared == pytest.approx(spent.gaussian_cost[0], rel=1e-7)


def test_a_schedule_of_other_charges_is_refused(X):
    points = Points.from_grid((X * SCALE).astype(np.int64))
    model = FastLloyd(3, adjacency="add_remove", secure=True)
    planned = model.planned_run(N, 2, [0]).schedule
    model.fit_batch(points, [0], schedule=planned)
    cheaper = model.set_params(epsilon=0.5).planned_run(N, 2, [0]).schedule
    with pytest.raises(ScheduleError, match="schedule must be that of planned_run"):
        model.set_params(epsilon=1.0).fit_batch(points, [0], schedule=cheaper)


def test_replicates_have_schedules_of_their_own(X):
    points = Points.from_grid((X * SCALE).astype(np.int64))
    run = QuadtreeKMeans(3, adjacency="add_remove").fit_batch(points, [3, 1, 4], secure=False)
    assert len(set(run.n_points)) == 3
    assert abs(np.array(run.n_points) - N).max() < 1000
    public = QuadtreeKMeans(3).fit_batch(points, [3, 1, 4], secure=False)
    assert public.n_points == (N, N, N)
