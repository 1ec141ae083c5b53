"""Cells of federated clustering with removals: settings, identity, rows, refusals."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from pkm.compute import Points
from pkm.experiments.cell import Cell, to_hashable
from pkm.experiments.code_hash import code_hash
from pkm.experiments.configuration import ConfigurationError
from pkm.experiments.execute import execute
from pkm.experiments.plan import make_plan
from pkm.experiments.removals import adversarial, best_k_means, chance_of_a_seed, optimum_of, random
from pkm.experiments.sweep import UNLEARNING
from pkm.experiments.tracking import LOSSES, REMOVALS, child_record, measured_in
from pkm.methods.unlearning import mufc

pytestmark = pytest.mark.integration

SET = "gaussians-300-3-3"
SMALL = UNLEARNING | {"clients": 5, "clusters_per_client": 2}


def cell(target="pkm.methods.unlearning.Unlearning", params=(), timing=False, **changes):
    setting = to_hashable(SMALL | changes)
    return Cell(
        "mufc",
        target,
        params,
        SET,
        "public",
        3,
        None,
        None,
        (0, 1),
        ("nicv",),
        timing=timing,
        unlearning=setting,
    )


def paper(**sweep):
    base = {
        "datasets": [SET],
        "methods": ["mufc"],
        "preprocessing": "public",
        "seeds": 2,
        "unlearning": SMALL,
    }
    return {"name": "test", "sweeps": {"only": base | sweep}}


def test_mlflow_gets_what_people_compare_removals_by():
    asked = cell(removals=2, timing=True)
    record = child_record(asked, execute(asked).assign(git="g", finished=0.0), "parent", "1")
    assert record.params["removals"] == "2" and record.params["split"] == "noniid"
    assert {f"{name}_mean" for name in LOSSES + REMOVALS} <= set(record.metrics)
    assert measured_in(cell()) == LOSSES and measured_in(asked) == LOSSES + REMOVALS


def plan(**sweep):
    return make_plan(paper(**sweep), {"name": "paper", "seeds": 2})


def a_model(seed=0):
    rng = np.random.default_rng(seed)
    parts = [Points.prepare(rng.integers(-60000, 60000, (n, 2))) for n in (30, 10, 20)]
    return mufc(3).fit(parts, seed)


def test_the_setting_is_part_of_the_identity_only_where_it_is_given():
    plain = Cell(
        "kmeans",
        "pkm.methods.kmeans.KMeansPlusPlus",
        (),
        "iris",
        "minmax",
        3,
        None,
        None,
        (0,),
        ("nicv",),
    )
    assert "unlearning" not in plain.identity() and cell().identity()["unlearning"] == SMALL
    assert plain.harness == "central" and cell().harness == "removals"
    assert cell().key != cell(split_seed=1).key
    target = "pkm.methods.unlearning.Unlearning"
    assert cell().code == code_hash(target, "removals") != code_hash(target)


def test_rows_hold_what_was_measured():
    rows = execute(cell(removals=4, batch=2, sparse=True, timing=True))
    assert len(rows) == 2 and rows["seed"].tolist() == [0, 1] and (rows["clients"] == 5).all()
    assert (rows["loss_ratio"] >= rows["loss_ratio_nearest"]).all() and (
        rows["loss_ratio_nearest"] > 0.99
    ).all()
    for row in rows.to_dict("records"):
        series = json.loads(row["series"])
        assert series["request"] == [1, 2, 3, 4] and np.all(np.diff(series["accumulated_s"]) > 0)
        assert series["accumulated_s"][-1] * 1e3 == pytest.approx(4 * row["removal_mean_ms"])
        assert (
            row["removal_p50_ms"]
            <= row["removal_p95_ms"]
            <= row["removal_p99_ms"]
            <= row["removal_max_ms"]
        )
        assert row["removal_client_ms"] + row["removal_server_ms"] == pytest.approx(
            row["removal_mean_ms"]
        )
        assert 0 <= row["reseeded"] <= 1 and 0 < row["reseeded_predicted"] < 1 and row["exact"]
        assert row["sparse_attempts"] == 1 and row["sparse_bytes"] > row["plain_bytes"] > 0
        assert (
            row["loss_ratio_after"] >= row["loss_ratio_after_nearest"] > 0.99
            and row["optimum_after"] < row["optimum"]
        )
        assert (
            row["deletions_per_second"] > 0 and row["retrain_ms"] > 0 and row["retrain_full_ms"] > 0
        )
    pd.testing.assert_series_equal(rows["optimum"], execute(cell())["optimum"])


@pytest.mark.parametrize("split", ["noniid", "iid"])
def test_k_fed_is_measured_too(split):
    rows = execute(cell("pkm.methods.k_fed.KFed", split=split))
    assert (rows["loss_ratio"] > 0.99).all() and not rows["exact"].any() and "series" not in rows


def test_full_clients_retrain_at_every_request():
    rows = execute(cell(params=(("client", "full"),), removals=3, timing=True))
    assert (rows["reseeded"] == 1).all() and (rows["reseeded_predicted"] == 1).all()
    assert rows["mean_untouched_ms"].isna().all()


def test_lazy_servers_are_not_exact():
    assert not execute(cell(params=(("server", "lazy"),), removals=1, timing=True))["exact"].any()


def test_a_plan_crosses_the_lists():
    cells = plan(
        unlearning=SMALL | {"removals": 2, "requests": ["random", "adversarial"], "batch": [1, 3]},
        timing=True,
    )
    assert len(cells.cells) == 4 and not cells.gaps
    assert {(dict(c.unlearning)["requests"], dict(c.unlearning)["batch"]) for c in cells.cells} == {
        (requests, batch) for requests in ("random", "adversarial") for batch in (1, 3)
    }


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"unlearning": {"clients": 0}}, "clients=0"),
        ({"unlearning": {"batch": 0}}, "batch=0"),
        ({"unlearning": {"removals": -1}}, "removals=-1"),
        ({"unlearning": {"removals": 1.5}}, "removals=1.5"),
        ({"unlearning": {"split": "even"}}, "split='even'"),
        ({"unlearning": {"requests": "all"}}, "requests='all'"),
        ({"unlearning": {"sparse": 1.5}}, "sparse=1.5"),
        ({"unlearning": {"shards": 3}}, "shards"),
        ({"unlearning": 3}, "unlearning=3"),
        ({"unlearning": SMALL | {"removals": 1}}, "timing=False"),
        ({"unlearning": SMALL | {"removals": 300}, "timing": True}, "removals=300"),
        ({"unlearning": SMALL | {"removals": 30, "batch": 10}, "timing": True}, "removals=30"),
        (
            {"unlearning": SMALL | {"removals": 1}, "timing": True, "methods": ["k_fed"]},
            "k_fed cannot forget",
        ),
        (
            {"unlearning": SMALL | {"sparse": True}, "methods": ["dc_kmeans"]},
            "dc_kmeans has no bins",
        ),
        ({"unlearning": SMALL, "methods": ["kmeans"]}, "method='kmeans'"),
        ({"unlearning": None}, "needs the sweep's key unlearning"),
        ({"federation": {"clients": 2}, "timing": True}, "federation="),
        ({"methods": [{"method": "mufc", "grid": {"gamma": [0.0]}}]}, "gamma=0.0"),
    ],
)
def test_what_cannot_run_is_refused_when_planning(sweep, message):
    with pytest.raises(ConfigurationError, match=message):
        plan(**sweep)


def test_a_split_that_was_not_published_is_refused():
    with pytest.raises(ValueError, match="split='published' is not allowed"):
        execute(cell(split="published"))


def test_random_requests_take_points_of_one_client():
    model = a_model()
    generator = np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        ids = random(model, 3, generator)
        (client,) = set(model.clients_of(ids).tolist())
        seen.add(client)
        assert len(set(ids.tolist())) == 3
    assert seen == {0, 1, 2}  # clients alike, whatever their sizes
    model.remove(model.members(1)[:8])
    assert all(1 not in model.clients_of(random(model, 2, generator)) for _ in range(30))
    with pytest.raises(ValueError, match="batch=30"):
        random(model, 30, generator)


def test_adversarial_requests_take_what_costs_most():
    model = a_model()
    ids, squares = model.induced()
    first = adversarial(model, 1)
    assert squares[ids == first[0]] == squares.max()
    three = adversarial(model, 3)
    assert three[0] == first[0] and len(set(model.clients_of(three).tolist())) == 1


def test_the_chance_of_a_seed_is_that_of_drawing_one():
    model = a_model(1)
    generator = np.random.default_rng(1)
    members = model.members(1)
    hits = [
        bool(np.isin(generator.choice(members, 2, replace=False), model.seeds).any())
        for _ in range(20_000)
    ]
    expected = chance_of_a_seed(model, members[:2])
    assert expected == pytest.approx(1 - math.comb(7, 2) / math.comb(10, 2))
    assert abs(np.mean(hits) - expected) < 5 * math.sqrt(expected * (1 - expected) / 20_000)


def test_the_optimum_is_the_cost_of_its_labels():
    points = Points.prepare(np.random.default_rng(0).integers(-60000, 60000, (200, 3)))
    best = best_k_means(points, 4, 5)
    rows = points.rows / 2**16
    centers = np.array([rows[best.labels_ == j].mean(axis=0) for j in range(4)])
    assert best.inertia_ == pytest.approx(((rows - centers[best.labels_]) ** 2).sum(), rel=1e-6)
    # Going on from there without some of the points costs less, and no more than starting anew
    # does.
    left = rows[20:]
    again = optimum_of(left, best.cluster_centers_)
    assert (
        again < best.inertia_
        and again <= best_k_means(Points.prepare((left * 2**16).astype(int)), 4, 1).inertia_ * 1.1
    )
