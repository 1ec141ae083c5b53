"""Federated clustering that forgets: seeding by a race, exact removals, refusals, traces.

Exactness is equality: a model from which points were removed is compared with a fit that never
saw them. Laws are compared with enumerations; statistical tests have fixed seeds and thresholds
at a p-value of 1e-6.
"""

import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pkm.compute import SCALE, Points, exponential_race
from pkm.methods.k_fed import KFed, client_centers
from pkm.methods.unlearning import Unlearning, dc_kmeans, mufc
from pkm.privacy.noise import INITIALIZATION, child

KINDS = [
    mufc(3),
    mufc(3, server_data="points"),
    mufc(3, client="full"),
    mufc(3, gamma=0.1),
    mufc(3, weights="unit"),
    dc_kmeans(3),
]


def grid(seed, n=40, d=2, step=1):
    rng = np.random.default_rng(seed)
    return rng.integers(-SCALE // step, SCALE // step + 1, (n, d)) * step


def dealt(points, sizes):
    """Parts of given sizes with their ids."""
    cuts = np.cumsum(sizes)[:-1]
    return [Points.prepare(part) for part in np.split(points, cuts)], np.split(
        np.arange(len(points)), cuts
    )


def without(parts, ids, gone):
    kept = [~np.isin(each, gone) for each in ids]
    return (
        [
            Points.prepare(part.rows[keep].astype(np.int64))
            for part, keep in zip(parts, kept, strict=True)
        ],
        [each[keep] for each, keep in zip(ids, kept, strict=True)],
    )


def state(model):
    """Everything that a model releases or sends."""
    sent = model.messages() if model.gamma is not None else []
    return (
        model.centers.tolist(),
        model.seeds.tolist(),
        model.sizes,
        [(b.tolist(), c.tolist()) for b, c in sent],
    )


def run_race(points, arrival_times, ids=None):
    n, k = arrival_times.shape
    seeds = np.zeros(k, np.int64)
    sizes = np.zeros(k, np.int64)
    ids = np.arange(n) if ids is None else ids
    found = exponential_race(points.astype(np.float32), arrival_times, ids, seeds, 0, sizes)
    return seeds[:found], sizes


# The race


def seeding_law(points, k):
    """Probability of every sequence of seeds of k-means++, exactly."""
    n = len(points)
    squares = [[int(((a - b) ** 2).sum()) for b in points] for a in points]
    law = {}
    for sequence in itertools.permutations(range(n), k):
        p = Fraction(1, n)
        for t in range(1, k):
            nearest = [min(squares[i][s] for s in sequence[:t]) for i in range(n)]
            p *= Fraction(nearest[sequence[t]], sum(nearest))
        law[sequence] = p
    return law


@pytest.mark.statistical
def test_the_race_has_the_law_of_k_means_plus_plus():
    points = np.array([[0, 0], [3, 0], [0, 4], [9, 1], [10, 1]])
    k = 3
    draws = 40_000
    law = seeding_law(points, k)
    rng = np.random.default_rng(0)
    seen = {}
    assert sum(law.values()) == 1
    for _ in range(draws):
        found = tuple(run_race(points, rng.standard_exponential((5, k)))[0].tolist())
        seen[found] = seen.get(found, 0) + 1
    expected = np.array([float(p) * draws for p in law.values()])
    observed = np.array([seen.get(sequence, 0) for sequence in law])
    assert observed.sum() == draws and stats.chisquare(observed, expected).pvalue > 1e-6


@pytest.mark.parametrize("gone", [0, 3, 4])
def test_keeping_the_prefix_of_seeds_is_exact_by_enumeration(gone):
    """The paper's algorithm 3: law after a removal, over all draws, is the law without the point;
    to the last digit.
    """
    points = np.array([[0, 0], [3, 0], [0, 4], [9, 1], [10, 1]])
    k = 3
    left = [i for i in range(5) if i != gone]
    target = {tuple(left[i] for i in s): p for s, p in seeding_law(points[left], k).items()}
    after = dict.fromkeys(target, Fraction(0))
    for sequence, p in seeding_law(points, k).items():
        prefix = sequence[: sequence.index(gone)] if gone in sequence else sequence
        matching = {s: q for s, q in target.items() if s[: len(prefix)] == prefix}
        for s, q in matching.items():
            after[s] += p * q / sum(matching.values())
    assert after == target


@pytest.mark.statistical
def test_fresh_arrival_times_give_the_law_of_a_fit_without_the_point():
    """The paper's algorithm as it stands: seeds after a removal, over many models, against the
    enumerated law.
    """
    points = 1000 * np.array([[0, 0], [3, 0], [0, 4], [9, 1], [10, 1]])
    gone = 3
    draws = 4000
    left = [i for i in range(5) if i != gone]
    law = seeding_law(points[left], 3)
    seen = {}
    parts = [Points.prepare(points)]
    for seed in range(draws):
        model = mufc(3, arrival_times="fresh").fit(parts, seed)
        model.remove([gone])
        client = model._clients[0]
        found = tuple(client.ids[client.seeds].tolist())
        seen[found] = seen.get(found, 0) + 1
    expected = np.array([float(p) * draws for p in law.values()])
    observed = np.array([seen.get(tuple(left[i] for i in s), 0) for s in law])
    assert observed.sum() == draws and stats.chisquare(observed, expected).pvalue > 1e-6
    kept = [mufc(3, arrival_times="fresh").fit(parts, seed).seeds.tolist() for seed in range(20)]
    assert kept == [
        mufc(3).fit(parts, seed).seeds.tolist() for seed in range(20)
    ]  # no difference until a removal


def test_restarting_all_seeds_is_not_exact():
    """What the published code does instead, by the same enumeration: the law differs."""
    points = np.array([[0, 0], [3, 0], [0, 4], [9, 1], [10, 1]])
    k = 3
    gone = 3
    left = [i for i in range(5) if i != gone]
    target = {tuple(left[i] for i in s): p for s, p in seeding_law(points[left], k).items()}
    after = dict.fromkeys(target, Fraction(0))
    for sequence, p in seeding_law(points, k).items():
        for s, q in target.items() if gone in sequence else [(sequence, 1)]:
            after[s] += p * q
    assert sum(abs(after[s] - target[s]) for s in target) / 2 > Fraction(1, 1000)


@given(st.integers(0, 10**6), st.sampled_from([1, 16384]))
@settings(max_examples=50, deadline=None)
def test_the_race_does_not_depend_on_the_order_of_points(seed, step):
    rng = np.random.default_rng(seed)
    points = grid(seed, step=step)
    arrival_times = rng.standard_exponential((40, 4))
    order = rng.permutation(40)
    seeds, sizes = run_race(points, arrival_times)
    again, sizes_again = run_race(points[order], arrival_times[order], order)
    # Points that coincide are one place; which of them is the seed is settled by the arrival times.
    assert order[again].tolist() == seeds.tolist() and sizes.tolist() == sizes_again.tolist()
    squares = ((points[:, None] - points[seeds]) ** 2).sum(axis=2)
    assert (
        sizes[: len(seeds)].tolist()
        == np.bincount(squares.argmin(axis=1), minlength=len(seeds)).tolist()
    )


def test_fewer_distinct_points_than_seeds():
    points = np.array([[1, 1]] * 5 + [[2, 2]] * 3)
    seeds, sizes = run_race(points, np.random.default_rng(0).standard_exponential((8, 4)))
    assert len(seeds) == 2 and sorted(sizes.tolist()) == [0, 0, 3, 5]


# Exact removal


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(seed=st.integers(0, 10**6), data=st.data())
@settings(max_examples=12, deadline=None)
def test_removal_equals_a_fit_without_the_points(kind, seed, data):
    """Any points, in any order, one by one or in batches, seeds included: bit for bit."""
    points = grid(seed, step=data.draw(st.sampled_from([1, 16384])))
    parts, ids = dealt(points, [15, 5, 20])
    model = kind.fit(parts, seed)
    gone = data.draw(st.permutations(range(40)))[: data.draw(st.integers(1, 30))]
    cuts = sorted(data.draw(st.lists(st.integers(1, len(gone)), max_size=4)))
    for batch in np.split(np.array(gone), cuts):
        if len(batch):
            model.remove(batch)
    parts, ids = without(parts, ids, gone)
    again = Unlearning(**(vars(kind) | {"gamma": model.gamma})).fit(parts, seed, ids=ids)
    assert state(model) == state(again)
    (i, s) = model.induced()
    (j, t) = again.induced()
    assert dict(zip(i.tolist(), s.tolist(), strict=True)) == dict(
        zip(j.tolist(), t.tolist(), strict=True)
    )


def lloyd_losses(points, centers, steps):
    """Losses of plain Lloyd's algorithm, step by step."""
    losses = []
    for _ in range(steps):
        squares = ((points[:, None] - centers) ** 2).sum(axis=2)
        losses.append(squares.min(axis=1).sum())
        labels = squares.argmin(axis=1)
        centers = np.array(
            [
                points[labels == j].mean(axis=0) if (labels == j).any() else c
                for j, c in enumerate(centers)
            ]
        )
    return losses


def test_full_clients_train_until_the_loss_stands_still():
    """From the seeds on as plain Lloyd's algorithm goes, until a step changes the loss by less than
    a thousandth.
    """
    points = grid(9, n=400)
    seeded, full = (
        kind.fit([Points.prepare(points)], 0) for kind in (mufc(6), mufc(6, client="full"))
    )
    start = points[seeded._clients[0].ids[seeded._clients[0].seeds]].astype(float)
    losses = lloyd_losses(points, start, 300)
    steps = next(t for t in range(1, 300) if losses[t] >= (1 - 1e-3) * losses[t - 1])
    assert steps > 3  # the first step is not the last
    trained = lloyd_losses(points, full._clients[0].centers, 1)[0]
    assert trained == pytest.approx(losses[steps + 1], rel=1e-9) and trained < losses[1]


def test_k_fed_clients_train_until_the_loss_stands_still():
    points = grid(10, n=400) / SCALE
    centers, _ = client_centers(points, 6, np.random.default_rng(0))
    losses = lloyd_losses(points, centers, 2)
    assert losses[1] >= (1 - 2e-3) * losses[0]


def test_seeds_are_removed_too():
    parts, ids = dealt(grid(1), [15, 5, 20])
    model = mufc(3).fit(parts, 4)
    rounds = 0
    gone = []
    while sum(model.sizes) > 12:
        victim = int(model.seeds[rounds % len(model.seeds)])
        assert model.remove([victim]).n_reseeded == 1
        gone.append(victim)
        rounds += 1
    parts, ids = without(parts, ids, gone)
    assert state(model) == state(Unlearning(3, gamma=model.gamma).fit(parts, 4, ids=ids))


def test_a_client_is_removed_without_work_for_the_others():
    parts, ids = dealt(grid(2), [15, 5, 20])
    model = mufc(3).fit(parts, 0)
    kept = [each for number, each in enumerate(model.messages()) if number != 1]
    removal = model.remove_clients([1])
    assert removal.n_points == 5 and model.sizes == [15, 0, 20]
    now = model.messages()
    assert len(now[1][0]) == 0
    assert all(
        (a[0] == b[0]).all() and (a[1] == b[1]).all()
        for a, b in zip(kept, [now[0], now[2]], strict=True)
    )
    parts, ids = without(parts, ids, range(15, 20))
    assert state(model) == state(Unlearning(3, gamma=model.gamma).fit(parts, 0, ids=ids))
    for bad in ([3], []):
        with pytest.raises(ValueError, match=r"clients=.* must be one or more of the 3"):
            model.remove_clients(bad)
    assert model.remove_clients([1]).n_points == 0  # it is empty already


def test_the_lazy_server_is_not_exact():
    """The published shortcut: without a hit on a seed the released centers still depend on the
    removed point.
    """
    parts, ids = dealt(grid(3), [15, 5, 20])
    lazy = mufc(3, server="lazy")
    exact = mufc(3)
    assert exact.exact and not lazy.exact
    model = lazy.fit(parts, 0)
    other = exact.fit(parts, 0)
    victim = next(i for i in range(40) if i not in model.seeds)
    before = model.centers.tolist()
    model.remove([victim])
    other.remove([victim])
    parts, ids = without(parts, ids, [victim])
    fresh = Unlearning(3, gamma=model.gamma).fit(parts, 0, ids=ids)
    assert model.centers.tolist() == before != fresh.centers.tolist() == other.centers.tolist()


@pytest.mark.parametrize(
    "kind", [mufc(3, gamma=0.01), mufc(3, client="full", gamma=0.01), dc_kmeans(3)], ids=str
)
def test_no_trace_of_a_removed_point_is_left_in_the_state(kind):
    parts, _ = dealt(grid(5), [15, 5, 20])
    model = kind.fit(parts, 0)
    arrival_times = {
        int(i): c.tobytes()
        for client in model._clients
        for i, c in zip(client.ids, client.arrival_times, strict=True)
    }
    rows = {
        int(i): r.tobytes()
        for client in model._clients
        for i, r in zip(client.ids, client.rows, strict=True)
    }
    bins = {}
    if model.gamma is not None:
        for i, row in rows.items():
            point = np.frombuffer(row, np.float32).astype(float)
            bins[i] = model._positions(point[None]).tobytes()
    gone = [int(model.seeds[0]), 17, 39, 0]
    gone = list(dict.fromkeys(gone))
    dump = pickle.dumps(model)
    assert all(
        rows[i] in dump and arrival_times[i] in dump for i in gone
    )  # the search finds what is there
    model.remove(gone[:2])
    model.remove(gone[2:])
    model.remove_clients([1])
    gone += range(15, 20)
    dump = pickle.dumps(model)
    assert model._clients[1].centers.base is None and not model._clients[1].seeds.any()
    # Nor does what draws fresh arrival times lead back to the seed, from which the old ones could
    # be drawn again.
    sequence = model._generator.bit_generator.seed_seq
    secret = child(0, INITIALIZATION)
    assert (sequence.entropy, sequence.spawn_key[:1]) != (secret.entropy, secret.spawn_key)
    for i in gone:
        assert rows[i] not in dump and arrival_times[i] not in dump
        assert bins.get(i, b"?" * 40) not in dump
    assert all(rows[i] in dump for i in model.ids.tolist())


# The server


def test_loss_by_way_of_the_clients_is_at_least_the_nearest_one():
    parts, _ = dealt(grid(6), [15, 5, 20])
    for kind in KINDS:
        model = kind.fit(parts, 1)
        ids, squares = model.induced()
        points = np.concatenate([part.rows for part in parts])[ids] / SCALE
        nearest = ((points[:, None] - model.centers) ** 2).sum(axis=2).min(axis=1)
        assert sorted(ids.tolist()) == list(range(40)) and (squares >= nearest - 1e-12).all()


def test_one_client_with_its_own_points_as_centers_costs_what_k_means_costs():
    """k distinct places, k clusters, fine bins: nothing is lost but the rounding to bins."""
    places = np.array([[-60000, 0], [0, 50000], [30000, -20000]])
    parts, _ = dealt(np.repeat(places, 10, axis=0), [30])
    model = mufc(3, gamma=2.0**-10).fit(parts, 0)
    assert model.induced()[1].max() <= 2 * (2.0**-11) ** 2
    assert [sizes.tolist() for _, sizes in model.messages()] == [[10, 10, 10]]


def test_bins_are_symmetric_and_inside_the_grid():
    parts, _ = dealt(np.array([[-SCALE, SCALE], [SCALE, -SCALE], [0, 0], [1, -1]]), [4])
    for gamma in (1.0, 0.3, 2 / 3, 0.011):
        model = mufc(4, gamma=gamma).fit(parts, 0)
        ((bins, _),) = model.messages()
        assert bins.min() >= 0 and bins.max() < model.n_bins
        centers = (bins - model.n_bins // 2) * gamma
        seeds = np.concatenate([c.centers for c in model._clients]) / SCALE
        assert np.abs(centers - seeds).max() <= gamma / 2 * (1 + 1e-12)


# Refusals


def test_bad_requests_are_refused_and_change_nothing():
    parts, _ = dealt(grid(7), [15, 5, 20])
    model = mufc(3).fit(parts, 0)
    model.remove([7])
    before = state(model)
    for asked, message in (
        ([40], r"ids=\[40\] are not in the model: unknown, or removed already"),
        ([-1], r"ids=\[-1\] are not in the model"),
        ([3, 7], r"ids=\[7\] are not in the model"),
        ([3, 3], r"ids=\[3, 3\] must name each point once"),
        ([], r"ids=\[\] must be one or more integers"),
        ([0.5], r"ids=\[0.5\] must be one or more integers"),
        ([i for i in range(40) if i != 7], "there is no model of none"),
    ):
        with pytest.raises(ValueError, match=message):
            model.remove(asked)
        assert state(model) == before
    model.remove([i for i in range(39) if i != 7])  # one point is left
    assert model.sizes == [0, 0, 1] and len(model.centers) == 1


@pytest.mark.parametrize(
    ("given_parameters", "message"),
    [
        ({"n_clusters": 0}, "n_clusters=0 must be"),
        ({"n_clusters": 3, "gamma": 0.0}, "gamma=0.0 must be"),
        ({"n_clusters": 3, "gamma": -0.1}, "gamma=-0.1 must be"),
        ({"n_clusters": 3, "gamma": math.nan}, "gamma=nan must be"),
        ({"n_clusters": 3, "gamma": "fine"}, "gamma='fine' must be"),
        ({"n_clusters": 3, "gamma": True}, "gamma=True must be"),
        ({"n_clusters": 3, "client": "half"}, "client='half' is unknown"),
        ({"n_clusters": 3, "server": "none"}, "server='none' is unknown"),
        (
            {"n_clusters": 3, "gamma": None, "server_data": "points"},
            "server_data='points' needs bins",
        ),
    ],
)
def test_bad_parameters_are_refused(given_parameters, message):
    with pytest.raises(ValueError, match=message):
        Unlearning(**given_parameters)


def test_bad_parts_are_refused():
    parts, ids = dealt(grid(8), [15, 25])
    with pytest.raises(ValueError, match="ids must be different"):
        mufc(3).fit(parts, 0, ids=[ids[0], ids[0][:15].repeat(2)[:25]])
    with pytest.raises(ValueError, match="ids must be different"):
        mufc(3).fit(parts, 0, ids=[ids[0], ids[1][:5]])
    with pytest.raises(ValueError, match="ids must be different"):
        mufc(3).fit(parts, 0, ids=[ids[0].astype(float), ids[1].astype(float)])
    with pytest.raises(
        ValueError, match="ids=10000000000000 must be at least 0 and less than 1000 times"
    ):
        mufc(3).fit(parts, 0, ids=[ids[0], np.append(ids[1][:-1], 10**13)])
    with pytest.raises(ValueError, match="gamma=None: centers are not rounded"):
        dc_kmeans(3).fit(parts, 0).n_bins  # noqa: B018
    with pytest.raises(ValueError, match="parts must hold at least one point"):
        mufc(3).fit([Points.prepare(np.empty((0, 2), np.int64))], 0)
    with pytest.raises(ValueError, match="points must lie in the domain"):
        Points.prepare(np.array([[SCALE + 1, 0]]))


# K-FED


def test_k_fed_by_hand():
    """Two far groups at one client: cores are the groups, means their middles; one server step
    averages clients.
    """
    groups = np.array([[-40000, 0], [-40000, 4000], [40000, 0], [40000, -4000]])
    centers, labels = client_centers(groups / SCALE, 2, np.random.default_rng(0))
    order = np.argsort(centers[:, 0])
    assert (centers[order] * SCALE).round(6).tolist() == [[-40000, 2000], [40000, -2000]]
    assert labels.tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    other = Points.prepare(groups + np.array([0, 8000]))
    found, labels = KFed(2).fit(
        [Points.prepare(groups), Points.prepare(np.empty((0, 2), np.int64)), other], 0
    )
    assert (found[np.argsort(found[:, 0])] * SCALE).round(6).tolist() == [
        [-40000, 6000],
        [40000, 2000],
    ]
    assert len(labels) == 8 and (labels[:4] == labels[4:]).all()


def test_k_fed_goes_on_with_the_farthest_centers():
    """Clients with one cluster each: the first one's center, then the farthest, then the next."""
    parts = [Points.prepare(np.full((5, 1), place)) for place in (0, 1000, 60000, 30000)]
    centers, labels = KFed(3, client_clusters=1).fit(parts, 0)
    assert (centers * SCALE).round(6).ravel().tolist() == [500, 60000, 30000]
    assert labels[::5].tolist() == [0, 0, 1, 2]


def test_k_fed_with_as_many_seeds_as_points():
    """Every core is a point of its own."""
    centers, labels = client_centers(np.array([[0.0], [0.5], [1.0]]), 3, np.random.default_rng(1))
    assert (
        sorted(centers.ravel().round(12).tolist()) == [0.0, 0.5, 1.0]
        and len(set(labels.tolist())) == 3
    )


@pytest.mark.parametrize(
    "given_parameters", [{"n_clusters": 0}, {"n_clusters": 2, "client_clusters": 0}]
)
def test_k_fed_refuses_bad_parameters(given_parameters):
    with pytest.raises(ValueError, match="clusters=0 must be an integer of at least 1"):
        KFed(**given_parameters)
