"""Cells of federated clustering with removals: settings, identity, rows, refusals."""

import pandas as pd
import pytest
from unlearning_cells import DATASET, SETTING, cell

from pkm.experiments.cell.cell import Cell
from pkm.experiments.cell.code_hash import code_hash
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.fit.central import Central
from pkm.experiments.fit.execute import execute
from pkm.experiments.fit.unlearning import Unlearning
from pkm.experiments.plan.plan import make_plan

pytestmark = pytest.mark.integration


def paper(**sweep):
    base = {
        "datasets": [DATASET],
        "methods": ["mufc"],
        "preprocessing": "public",
        "seeds": 2,
        "unlearning": SETTING,
    }
    return {"name": "test", "sweeps": {"only": base | sweep}}


def plan(**sweep):
    return make_plan(paper(**sweep), {"name": "paper", "seeds": 2})


def test_identity_has_the_setting_of_the_kind():
    plain = Cell(
        "kmeans",
        "pkm.methods.KMeansPlusPlus",
        {},
        "iris",
        "minmax",
        3,
        None,
        None,
        (0,),
        ("nicv",),
        kind=Central(),
    )
    assert plain.identity()["kind"] == ["Central", {"bounds_factor": 1.0}]
    assert cell().identity()["kind"] == ["Unlearning", SETTING]
    assert cell().key != cell(split_seed=1).key
    target = "pkm.methods.Unlearning"
    assert cell().code == code_hash(target, Unlearning.__module__)
    assert cell().code != code_hash(target)


def test_a_removal_that_is_discarded_warms_up(monkeypatch):
    served = []

    def record(model, grid, seed, kind, best):
        served.append((seed, kind.removals))
        return {}

    monkeypatch.setattr("pkm.experiments.fit.clients.measure_removals", record)
    execute(cell(removals=4, timing=True))
    assert served == [(0, 1), (0, 4), (1, 4)]


def test_rows_hold_losses_and_removal_times():
    rows = execute(cell(removals=4, batch=2, sparse=True, timing=True))
    assert rows["seed"].tolist() == [0, 1]
    assert (rows["clients"] == 5).all()
    assert (rows["loss_ratio"] >= rows["loss_ratio_nearest"]).all()
    assert (rows["loss_ratio_nearest"] > 0.99).all()
    for row in rows.to_dict("records"):
        # The times of the removals.
        series = pd.DataFrame(list(row["series"]))
        assert series["request"].tolist() == [1, 2, 3, 4]
        assert series["accumulated_s"].is_monotonic_increasing
        total_ms = series["accumulated_s"].iloc[-1] * 1e3
        assert total_ms == pytest.approx(4 * row["removal_mean_ms"])
        assert row["removal_p50_ms"] <= row["removal_p95_ms"]
        assert row["removal_p95_ms"] <= row["removal_p99_ms"]
        assert row["removal_p99_ms"] <= row["removal_max_ms"]
        parts_ms = row["removal_client_ms"] + row["removal_server_ms"]
        assert parts_ms == pytest.approx(row["removal_mean_ms"])
        assert row["deletions_per_second"] > 0
        assert row["retrain_ms"] > 0
        assert row["retrain_full_ms"] > 0

        # The probability of a new seeding, and the size of the sums.
        assert 0 <= row["reseeded"] <= 1
        assert 0 < row["reseeded_predicted"] < 1
        assert row["exact"]
        assert row["sparse_attempts"] == 1
        assert row["sparse_bytes"] > row["plain_bytes"] > 0

        # The losses after the removals.
        assert row["loss_ratio_after"] >= row["loss_ratio_after_nearest"] > 0.99
        assert row["optimum_after"] < row["optimum"]
    pd.testing.assert_series_equal(rows["optimum"], execute(cell())["optimum"])


@pytest.mark.parametrize("split", ["noniid", "iid"])
def test_k_fed_rows_have_losses_without_removals(split):
    rows = execute(cell("pkm.methods.KFed", split=split))
    assert (rows["loss_ratio"] > 0.99).all()
    assert not rows["exact"].any()
    assert "series" not in rows


def test_full_clients_retrain_at_every_request():
    rows = execute(cell(params={"client": "full"}, removals=3, timing=True))
    assert (rows["reseeded"] == 1).all() and (rows["reseeded_predicted"] == 1).all()
    assert rows["mean_untouched_ms"].isna().all()


def test_lazy_servers_are_not_exact():
    rows = execute(cell(params={"server": "lazy"}, removals=1, timing=True))
    assert not rows["exact"].any()


def test_plan_crosses_the_lists():
    lists = {"removals": 2, "requests": ["random", "adversarial"], "batch": [1, 3]}
    crossed = plan(unlearning=SETTING | lists, timing=True)
    assert len(crossed.cells) == 4
    assert not crossed.gaps
    settings = [planned.kind for planned in crossed.cells]
    combinations = {(setting.requests, setting.batch) for setting in settings}
    assert combinations == {("random", 1), ("random", 3), ("adversarial", 1), ("adversarial", 3)}


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
        ({"unlearning": SETTING | {"removals": 1}}, "timing=False"),
        ({"unlearning": SETTING | {"removals": 300}, "timing": True}, "removals=300"),
        ({"unlearning": SETTING | {"removals": 30, "batch": 10}, "timing": True}, "removals=30"),
        (
            {
                "unlearning": SETTING | {"removals": 3, "batch": 2, "requests": "clients"},
                "timing": True,
            },
            "fewer clients in all than clients=5",
        ),
        (
            {"unlearning": SETTING | {"removals": 1}, "timing": True, "methods": ["k_fed"]},
            "k_fed cannot forget",
        ),
        (
            {"unlearning": SETTING | {"sparse": True}, "methods": ["dc_kmeans"]},
            "dc_kmeans has no bins",
        ),
        ({"unlearning": SETTING, "methods": ["kmeans"]}, "method='kmeans'"),
        ({"unlearning": None}, "needs the sweep's key unlearning"),
        ({"federation": {"clients": 2}, "timing": True}, "null for a cell with federation"),
        ({"methods": [{"method": "mufc", "grid": {"gamma": [0.0]}}]}, "gamma=0.0"),
    ],
)
def test_invalid_sweeps_are_refused_when_planning(sweep, message):
    with pytest.raises(ConfigurationError, match=message):
        plan(**sweep)


def test_unpublished_split_is_refused():
    with pytest.raises(ValueError, match="split='published' is not allowed"):
        execute(cell(split="published"))
