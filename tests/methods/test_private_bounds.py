"""Private bounds: what is found, what it costs, and that nothing else is told."""

import math
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import pkm
from pkm.audit.replay import compare_traces, compose, trace_fit
from pkm.compute import Points
from pkm.compute.storage.octaves import OCTAVES, from_octaves, to_octaves
from pkm.methods import DPM, FastLloyd, Lloyd, LocalLloyd, QuadtreeKMeans, SynopsisKMeans
from pkm.methods.private_bounds import SHARE, plan_bounds
from pkm.privacy import Budget, PrivacyAccountant, SideCounts, gaussian_mu
from pkm.privacy.queries import shells
from pkm.privacy.queries.sums import entries_sensitivity

INF = math.inf
#: Two columns without bounds beside one that has some.
BOUNDS = ([-INF, 0.0, -INF], [INF, 1.0, INF])
N = 10_000


def draw_rows(n=N, seed=0):
    """Years, shares and amounts of money of three groups."""
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=n)
    return np.column_stack(
        [
            rng.normal(np.array([1950, 1980, 2010])[group], 5),
            rng.normal(np.array([0.2, 0.5, 0.8])[group], 0.05),
            rng.lognormal(np.array([3, 5, 8])[group], 0.4),
        ]
    )


def found_bounds(model):
    return np.array(model._fitted_bounds)


def test_the_scale_has_room_for_all_numbers():
    numbers = np.array([-1e30, -3.0, -1e-12, 0.0, 1e-300, 2.5, 1024.0, 1e18, 1e300])
    places = to_octaves(numbers)
    assert (np.diff(places) >= 0).all()
    assert np.abs(places).max() == 1
    inside = np.abs(numbers) < 2.0**OCTAVES
    large = np.abs(numbers) > 2.0**-OCTAVES
    np.testing.assert_allclose(
        from_octaves(places)[inside & large], numbers[inside & large], rtol=1e-12
    )
    ends = 2.0 ** np.arange(-OCTAVES, OCTAVES + 1)
    np.testing.assert_array_equal(from_octaves(to_octaves(ends))[1:], ends[1:])
    strange = to_octaves(np.array([math.nan, INF, -INF]))
    assert str(strange.tolist()) == "[nan, inf, -inf]"


@pytest.mark.parametrize("pure", [False, True])
def test_a_tenth_of_the_budget_is_for_bounds(pure):
    plan = plan_bounds([0, 2], N, 1.0, 0.0 if pure else 1e-6)
    if pure:
        assert math.isclose(plan.to_ledger(Budget(1.0)).spent(), SHARE)
    else:
        assert math.isclose(plan.mu, math.sqrt(SHARE) * gaussian_mu(1.0, 1e-6))


@pytest.mark.parametrize(
    "method",
    [
        SynopsisKMeans(3, bounds=BOUNDS),
        SynopsisKMeans(3, bounds=BOUNDS, zoom=None, report=0.1),
        FastLloyd(3, bounds=BOUNDS, epsilon=4.0),
        QuadtreeKMeans(3, bounds=BOUNDS),
        DPM(bounds=BOUNDS),
    ],
    ids=["zoom", "report", "approximate", "pure", "splits"],
)
def test_bounds_hold_nearly_all_records_and_little_else(method):
    """A cell without records is taken for one with records in one of 1,000 fits."""
    rows = draw_rows()
    model = clone(method).set_params(random_state=1).fit(rows)
    lower, upper = found_bounds(model)
    assert (lower[1], upper[1]) == (0, 1)
    inside = (rows >= lower) & (rows <= upper)
    assert inside.mean(axis=0).min() > 0.9
    assert 1700 < lower[0] < 1950
    assert 2010 < upper[0] <= 2048
    assert 0 <= lower[2] < 20
    assert 2_500 < upper[2] <= 8192

    planned = method.planned_run(N, 3, [1]).schedule
    pairs = zip(model.ledger_.charges, planned, strict=True)
    assert all(charge.matches(plan) for charge, plan in pairs)
    assert [charge.label for charge in planned[:2]] == ["side_counts"] * 2
    assert 0.99 * method.epsilon < model.ledger_.spent() <= method.epsilon * (1 + 1e-9)
    assert model.ledger_.notes[0].startswith("the bounds of columns 1, 3 are not public")


def test_a_method_finds_centers_as_in_public_bounds():
    rows = draw_rows(20_000)
    model = SynopsisKMeans(3, bounds=BOUNDS, random_state=0).fit(rows)
    years = np.sort(model.cluster_centers_[:, 0])
    np.testing.assert_allclose(years, [1950, 1980, 2010], atol=3)
    assert model.predict([[1951.0, 0.2, 20.0]]) == np.argmin(model.cluster_centers_[:, 0])


def test_blocks_persons_and_frames_have_the_same_bounds(tmp_path):
    rows = draw_rows()
    table = pd.DataFrame(rows, columns=["year", "share", "money"])
    table.to_parquet(tmp_path / "x.parquet")
    method = SynopsisKMeans(3, bounds=BOUNDS, random_state=1)
    first = clone(method).fit(rows)
    for X, groups in ((table, None), (tmp_path / "x.parquet", None), (rows, np.arange(N))):
        other = clone(method).fit(X, groups=groups)
        np.testing.assert_array_equal(found_bounds(other), found_bounds(first))
        np.testing.assert_array_equal(other.cluster_centers_, first.cluster_centers_)


def test_holes_and_null_records_are_in_no_cell():
    """Otherwise years with holes would reach down to zero, or to the middle."""
    rows = draw_rows()
    rng = np.random.default_rng(3)
    rows[rng.random(rows.shape) < 0.2] = math.nan
    rows[:50] = INF
    model = SynopsisKMeans(3, bounds=BOUNDS, missing="middle", random_state=1).fit(rows)
    assert found_bounds(model)[0, 0] > 1700


def test_a_column_without_numbers_has_some_bounds():
    rows = draw_rows()
    rows[:, 0] = math.nan
    model = SynopsisKMeans(3, bounds=BOUNDS, missing="middle", random_state=1).fit(rows)
    assert found_bounds(model)[:, 0].tolist() == [-1, 1]


def test_an_account_is_charged_for_bounds():
    account = PrivacyAccountant(Budget(1.0, 1e-6))
    SynopsisKMeans(3, bounds=BOUNDS).fit(draw_rows(), account=account)
    (run,) = account.runs
    assert [charge.label for charge in run.schedule[:2]] == ["side_counts"] * 2
    assert account.unspent() < 1e-6


def test_what_is_saved_has_the_bounds_that_were_found(tmp_path):
    model = SynopsisKMeans(3, bounds=BOUNDS, random_state=1, report=0.1).fit(draw_rows())
    model.save(tmp_path / "model")
    loaded = pkm.load(tmp_path / "model")
    np.testing.assert_array_equal(found_bounds(loaded), found_bounds(model))
    rows = draw_rows(100, seed=1)
    np.testing.assert_array_equal(loaded.predict(rows), model.predict(rows))
    assert "columns 1, 3 are not public" in (tmp_path / "model" / "statement.md").read_text()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (SynopsisKMeans(3, bounds=([-INF, 0, 0], [9, 1, 1])), "must be finite"),
        (SynopsisKMeans(3, bounds=BOUNDS, clip=False), "with clip=True"),
        (SynopsisKMeans(3, bounds=BOUNDS, adjacency="add_remove"), "zero-out adjacency"),
        (Lloyd(3, bounds=BOUNDS), "private methods"),
        (LocalLloyd(3, bounds=BOUNDS), "zero-out adjacency"),
        (SynopsisKMeans(3, bounds=BOUNDS, epsilon=0.05), "too little to find bounds of 2"),
    ],
)
def test_bounds_that_cannot_be_found_are_refused(method, message):
    account = PrivacyAccountant(Budget(1.0, 1e-6)) if method.claim.private else None
    with pytest.raises(ValueError, match=message):
        clone(method).fit(draw_rows(), account=account)
    assert account is None or not account.runs


def test_points_on_a_grid_have_its_bounds():
    points, _ = Points.quantize(draw_rows(), np.zeros(3), np.full(3, 3e3))
    with pytest.raises(TypeError, match="points on a grid have its bounds"):
        SynopsisKMeans(3, bounds=BOUNDS).fit_batch(points, [0], secure=True)


def replay_pair(record, groups=None):
    """Fit rows with a record and with a null one.

    Returned are a difference, if there is one, and the cost of each release on the pair over its
    charge.
    """
    rows = draw_rows(3_000)
    groups = np.arange(len(rows)) if groups is None else groups
    of_record = groups == groups[0]
    rows[of_record] = record
    neighbor = rows.copy()
    neighbor[of_record] = math.nan
    method = SynopsisKMeans(3, bounds=BOUNDS, random_state=5, report=0.1)
    persons = {"groups": groups}
    recorded = trace_fit(method, rows, fit_arguments=persons)
    replayed = trace_fit(method, neighbor, recorded.draws, fit_arguments=persons)
    costs = defaultdict(list)
    for draw, other in zip(recorded.draws, replayed.draws, strict=True):
        costs[draw.key[:2]].append(draw.law.measure_cost(draw.values, other.values))
    (ledger,) = recorded.ledgers
    charged = [charge.mu or charge.epsilon for charge in ledger.charges]
    realized = [compose(costs[charge.label, charge.round]) for charge in ledger.charges]
    ratios = [(cost.mu or cost.epsilon) / c for cost, c in zip(realized, charged, strict=True)]
    return compare_traces(recorded, replayed), ratios


@pytest.mark.parametrize(
    "record",
    [[1e300, 9.0, -1e300], [-5e-324, 0.5, 0.0], [1990.0, 1.0, 2.0**20], [INF, 1.0, 1.0]],
    ids=["huge", "tiny", "alone in its octave", "infinite"],
)
@pytest.mark.parametrize("n_rows", [1, 20], ids=["row", "person"])
def test_a_record_is_told_by_what_is_charged_alone(record, n_rows):
    groups = np.maximum(np.arange(3_000) - n_rows + 1, 0)
    mismatch, ratios = replay_pair(record, groups)
    assert not mismatch
    assert max(ratios) <= 1 + 1e-9
    if np.isfinite(record).all():
        assert ratios[0] > 0.99


def test_too_little_noise_is_found(monkeypatch):
    monkeypatch.setattr(SideCounts, "sensitivity", lambda *_: {"counts": entries_sensitivity(1)})
    _, ratios = replay_pair([3.0, 0.5, 5.0])
    assert ratios[0] == pytest.approx(math.sqrt(2))


def test_bounds_that_follow_the_data_are_found(monkeypatch):
    """The octaves are counted without noise about the largest record."""
    correct = shells.side_counts

    def tell(points, center, radii):
        counts = correct(points, center, radii)
        counts[0, 1, 1] += int(points.rows[:, 0].max())
        return counts

    monkeypatch.setattr(shells, "side_counts", tell)
    _, ratios = replay_pair([1e300, 0.5, 5.0])
    assert ratios[0] > 1.01
