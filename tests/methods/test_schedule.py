"""Schedules: a dry run on public points is charged what they say, whatever the shape and budget."""

import numpy as np
import pytest

from pkm.compute import Points
from pkm.methods import METHODS, AIMKMeans, PrivateKMeans, load_method
from pkm.methods.schedule import Schedule, counting_noise, plan_release
from pkm.privacy import (
    SCALE,
    Budget,
    BudgetExceeded,
    Gaussian,
    GridCounts,
    Laplace,
    Ledger,
    NearestCounts,
    PrivacyClaim,
)
from pkm.privacy.query import ONE_RECORD_ADJACENCIES

PRIVATE = {
    name: method
    for name in METHODS
    for method in [load_method(name)]
    if any(claim.private for claim in method.claims.values())
}
SETTINGS = [
    # (points, columns), epsilon
    ((40, 1), 8.0),
    ((300, 2), 1.0),
    ((2000, 4), 0.1),
    ((2000, 4), 8.0),
    ((5000, 9), 1.0),
    ((20_000, 16), 0.1),
    ((20_000, 16), 8.0),
]
#: Most columns: every pair and triple is a candidate of AIM in each of 2 (d - 1) rounds.
MOST_COLUMNS = {AIMKMeans: 9}
#: Parameters that change which releases there are.
CHANGES = {
    "PEMeans": [{"finish": 0.3}, {"dimensions": 3, "variant": "published"}],
    "FedDPKMeans": [{"dimensions": 2}],
    "DPM": [{"depth": 3}],
    "LSHSplits": [{"depth": 4}],
    "Balcan": [{"shifts": 3, "search_rounds": 5}],
    "KaplanStemmer": [
        {"select": "local_search", "search_rounds": 4},
        {"lloyd_steps": 3, "step_radius": "released"},
        {"lloyd_steps": 0},
        {"release": "candidates"},
        {"widths": [0.5], "projections": 20},
    ],
    "SynopsisKMeans": [{"radius": 1.0}],
    "NoisyMean": [{"spread_share": 0.0}],
    "HST": [{"layers": 2}],
    "QuadtreeKMeans": [{"step_share": 0.0}],
    "LocalLloyd": [{"n_iterations": 1}],
    "KaplanStemmerLocal": [{"passes": 2, "lloyd_steps": 0}],
    "NoisedPoints": [{"calibration": "analytic"}],
    "DistDP": [
        {"variant": "published", "regions": "noised", "depth": 3},
        {"variant": "published", "sizes": "noisy", "depth": 3},
        {"variant": "published", "replacement": "uncharged", "depth": 3},
        {"variant": "published", "fine_counts": "split", "quadtrees": 2, "depth": 3},
        {"rho": 1.0},
        {"rho": "diagonal"},
        {"rho": 0.001},
    ],
}


#: Share of the budget that is spent with a zoom. Noise of Laplace in few columns adds up plainly.
LEAST_SPENT = {"NoisyMean": 0.7}


def cases():
    """Every private method, variant by variant, then with the changes."""
    for name, method in PRIVATE.items():
        variants = [{"variant": variant} for variant in method.claims]
        named = variants if "variant" in method().get_params() else [{}]
        for parameters in [*named, *CHANGES.get(name, [])]:
            yield pytest.param(method, parameters, id=f"{name} {parameters}")


def dry_run(method, n_points, n_features):
    """Charges of one replicate on points that are nearly all null, or all alike."""
    budget = method.budget(n_points, n_features)
    n_rows = 1 if budget.adjacency in ONE_RECORD_ADJACENCIES else n_points
    rows = np.zeros((n_rows, n_features), np.int64)
    points = Points.from_grid(rows, n_null=n_points - n_rows)
    ledger = Ledger(budget)
    streams = method.noise_streams([0], n_points, n_features, secure=False)
    method.cluster(method.curator(points, ledger, streams))
    return ledger.charges


@pytest.mark.parametrize("n_features", [2, 9])
@pytest.mark.parametrize("name", PRIVATE)
def test_a_budget_of_numpy_plans_what_a_plain_one_does(name, n_features):
    """Searches over parameters give numbers of numpy."""
    plans = []
    for epsilon in (2.0, np.float64(2.0)):
        model = PRIVATE[name](n_clusters=3, epsilon=epsilon)
        charges = model.schedule(20_000, n_features).charges
        plans.append([charge.cost[:3] for charge in charges])
    assert plans[0] == plans[1]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "parameters"), list(cases()))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_dry_run_is_charged_what_the_schedule_says(method, parameters):
    compared = 0
    for (n_points, n_features), epsilon in SETTINGS:
        if n_features > MOST_COLUMNS.get(method, 16):
            continue
        model = method(n_clusters=3, epsilon=epsilon, **parameters)
        try:
            model.check_parameters(n_points)
            budget = model.budget(n_points, n_features)
        except ValueError:
            continue
        try:
            schedule = model.schedule(n_points, n_features)
        except ValueError:
            # What a schedule refuses, a run refuses too.
            with pytest.raises(ValueError, match="is too little"):
                dry_run(model, n_points, n_features)
            continue
        charges = dry_run(model, n_points, n_features)
        assert [c.cost[:3] for c in schedule.charges] == [c.cost[:3] for c in charges]
        assert all(
            planned.matches(charge)
            for planned, charge in zip(schedule.charges, charges, strict=True)
        )
        assert schedule.fits(budget)
        compared += 1
    assert compared >= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "shares",
    [{"zoom": 0.05}, {"zoom": 0.3}, {"zoom": None, "report": 0.1}, {"zoom": 0.1, "report": 0.3}],
    ids=str,
)
@pytest.mark.parametrize("name", PRIVATE)
def test_what_shares_leave_is_within_the_budget(name, shares):
    """For every method that takes one: the largest epsilon that fits, or nearly so."""
    method = PRIVATE[name]
    if method().claim.adjacency != "zero_out":
        pytest.skip("no zoom and no report under this adjacency")
    for n_points, n_features in ((3000, 1), (20_000, 3), (20_000, 12)):
        for epsilon in (0.2, 1.0, 8.0):
            model = method(n_clusters=3, epsilon=epsilon, **shares)
            if shares["zoom"] and model.zoom_plan(n_points, n_features) is None:
                continue
            try:
                alone = method(n_clusters=3, epsilon=epsilon, **no_zoom(method))
                spent = alone.planned_run(n_points, n_features, [0])
            except ValueError:
                continue
            planned = model.planned_run(n_points, n_features, [0])
            both = Schedule(*planned.schedule).to_ledger(planned.budget).spent()
            without = Schedule(*spent.schedule).to_ledger(spent.budget).spent()
            assert both <= planned.budget.epsilon * (1 + 1e-9)
            assert both >= LEAST_SPENT.get(name, 0.995) * without


def no_zoom(method):
    return {"zoom": None} if "zoom" in method().get_params() else {}


def test_rounds_count_the_earlier_releases_of_a_query():
    counts = plan_release(NearestCounts, Gaussian, mu=0.1)
    grid = plan_release(GridCounts, Laplace, epsilon=0.2)
    schedule = Schedule(counts, grid, counts)
    assert [(c.label, c.round) for c in schedule.charges] == [
        ("nearest_counts", 0),
        ("grid_counts", 0),
        ("nearest_counts", 1),
    ]
    assert schedule.find(NearestCounts) == [counts, counts]
    assert counting_noise(counts) == Gaussian(10.0 * SCALE)
    assert counting_noise(grid) == Laplace(5.0 * SCALE)


def test_a_schedule_knows_what_it_costs_together():
    schedule = Schedule(*[plan_release(GridCounts, Laplace, epsilon=0.25)] * 3)
    assert schedule.to_ledger(Budget(1.0)).spent() == pytest.approx(0.75)
    assert not schedule.fits(Budget(0.7))
    with pytest.raises(BudgetExceeded):
        schedule.to_ledger(Budget(0.7))


def test_methods_without_a_claim_release_nothing():
    assert load_method("Lloyd")(3).schedule(100, 2).charges == ()
    assert load_method("KMeansPlusPlus")(3).schedule(100, 2).charges == ()


def test_a_private_method_without_a_schedule_says_what_needs_it():
    class Unplanned(PrivateKMeans):
        claims = {"sound": PrivacyClaim("pure")}  # noqa: RUF012
        epsilon = 1.0

    with pytest.raises(NotImplementedError, match="Unplanned must define schedule"):
        Unplanned(3).planned_run(100, 2, [0])
