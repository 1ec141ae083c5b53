"""Cells that are run as a protocol: identity, plans, and equality with central cells."""

import dataclasses
import math

import numpy as np
import pytest
from protocol_cells import CENTRAL_CELL, SETTING, TRANSPORTS, protocol

from pkm import federation
from pkm.experiments.applications.composition import load_config
from pkm.experiments.cell.code_hash import COMMON_MODULES, code_hash, find_dependencies
from pkm.experiments.commands import reproduce, run
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.config.groups import choices
from pkm.experiments.fit.central import Central
from pkm.experiments.fit.execute import execute
from pkm.experiments.fit.federation import SPLITS, Federation
from pkm.experiments.plan.estimate import estimate_without_timings, fixed_seconds, make_estimator
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.store.store import Store
from pkm.schema import names

pytestmark = pytest.mark.integration

MEASURED = names("metric", scope="federation")


def plan_of(**sweep):
    default = {"datasets": ["iris"], "methods": ["fastlloyd"], "epsilon": 1.0, "timing": True}
    content = {"name": "mini", "sweeps": {"only": default | sweep}}
    return make_plan(content, {"name": "tiny", "seeds": 2})


def settings_of(plan):
    return [cell.kind.columns() for cell in plan.cells]


def test_identity_holds_the_settings():
    kind = ["Federation", SETTING]
    assert protocol().identity() == CENTRAL_CELL.identity() | {"kind": kind}


@pytest.mark.parametrize(
    "change",
    [
        {"clients": 3},
        {"latency_ms": 0.25},
        {"word_bytes": 4},
        {"split": "sorted"},
        {"transport": "mpi"},
    ],
)
def test_key_depends_on_every_setting(change):
    assert protocol(**change).key not in (protocol().key, CENTRAL_CELL.key)


def test_key_does_not_depend_on_latency_notation():
    assert protocol(latency_ms=25).key == protocol(latency_ms=25.0).key


def test_only_federated_cells_hash_the_federation():
    method = "pkm.methods.lloyd.lloyd"
    central = set(find_dependencies((method, *COMMON_MODULES, "pkm.experiments.fit.central")))
    federated = set(find_dependencies((method, *COMMON_MODULES, "pkm.experiments.fit.federation")))
    added = {
        "pkm.experiments.fit.federation",
        "pkm.experiments.fit.protocol",
        "pkm.federation",
        "pkm.federation.mpi",
        "pkm.federation.parties",
    }
    assert added <= federated - central
    excluded = ("pkm.federation", "pkm.experiments.fit.federation", "pkm.experiments.fit.clients")
    assert not any(name.startswith(excluded) for name in central)
    assert CENTRAL_CELL.code == code_hash(CENTRAL_CELL.target)
    assert protocol().code == code_hash(CENTRAL_CELL.target, Federation.__module__)
    assert protocol().code != CENTRAL_CELL.code


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"clients": 0}, "clients=0 is not allowed: clients must be a whole number of at least 1"),
        ({"clients": 2.5}, r"clients=2\.5 is not allowed"),
        ({"clients": True}, "clients=True is not allowed"),
        (
            {"latency_ms": -1},
            "latency_ms=-1 is not allowed: latency_ms must be a number of milliseconds, at least 0",
        ),
        ({"latency_ms": math.inf}, "latency_ms=inf is not allowed"),
        ({"latency_ms": 60_000}, "latency_ms=60000 is not allowed"),
        ({"latency_ms": "LAN"}, "latency_ms='LAN' is not allowed"),
        ({"word_bytes": 2}, "word_bytes=2 is not allowed: word_bytes must be one of 4, 8"),
        (
            {"split": "random"},
            "split='random' is not allowed: split must be one of balanced, unbalanced, sorted",
        ),
        (
            {"transport": "pigeon"},
            "transport='pigeon' is not allowed: transport must be one of auto, threads, mpi",
        ),
    ],
)
def test_invalid_setting_is_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        protocol(**setting)
    with pytest.raises(ConfigurationError, match=f"mini, sweep only: {message}"):
        plan_of(federation=setting)


@pytest.mark.parametrize(
    "sweep, message",
    [
        (
            {"federation": {}, "timing": False},
            "timing=False is not allowed: timing must be true for a cell with feder",
        ),
        (
            {"federation": {"client": 2}},
            "federation: key='client' is unknown. Did you mean clients",
        ),
        (
            {"federation": 2},
            "federation=2 is not allowed: federation must be null or a mapping of clients",
        ),
        (
            {"federation": {"clients": []}},
            "at least one data set, .* and one value of each key of federation",
        ),
        ({"federation": {}, "methods": ["kmeans"]}, "KMeansPlusPlus cannot run as a protocol"),
        (
            {"federation": {"word_bytes": 4}, "datasets": ["timesynth-100000-2-2"]},
            "word_bytes=4 is too few",
        ),
    ],
)
def test_invalid_protocol_sweep_is_refused(sweep, message):
    with pytest.raises(ConfigurationError, match=message):
        plan_of(**sweep)


def test_lists_are_crossed_and_defaults_added():
    lists = {"clients": [2, 4], "latency_ms": [0.25, 25], "transport": "threads"}
    settings = settings_of(plan_of(federation=lists))
    crossed = [(setting["clients"], setting["latency_ms"]) for setting in settings]
    assert crossed == [(2, 0.25), (2, 25), (4, 0.25), (4, 25)]
    for setting in settings:
        assert setting["word_bytes"] == 8
        assert setting["split"] == "balanced"
        assert setting["transport"] == "threads"

    # For each number of clients: one cell without a budget and two with one.
    plan = plan_of(federation={"clients": [2, 4]}, methods=["lloyd", "glloyd"], epsilon=[0.1, 1.0])
    assert len(plan.cells) == 6
    assert {cell.kind for cell in plan_of().cells} == {Central()}


@pytest.mark.parametrize("is_available, transport", [(True, "mpi"), (False, "threads")])
def test_transport_is_chosen_when_planning(monkeypatch, is_available, transport):
    monkeypatch.setattr(federation, "mpi_available", lambda: is_available)
    default = settings_of(plan_of(federation={}))
    assert [setting["transport"] for setting in default] == [transport]
    assert settings_of(plan_of(federation={"transport": "auto"})) == default


def test_unavailable_mpi_is_a_gap(monkeypatch):
    monkeypatch.setattr(federation, "mpi_available", lambda: False)
    plan = plan_of(federation={"transport": ["threads", "mpi"]})
    assert [setting["transport"] for setting in settings_of(plan)] == ["threads"]
    assert [gap.reason for gap in plan.gaps] == [
        "transport=mpi needs mpi4py and mpirun: make protocol"
    ]


def test_names_equal_those_of_the_federation():
    assert SPLITS == federation.SPLITS
    costs = {field.name for field in dataclasses.fields(federation.FederationCosts)}
    assert costs == {"iterations", *MEASURED}
    assert set(SETTING) == {field.name for field in dataclasses.fields(Federation)}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_rows_hold_settings_and_costs(transport):
    rows = execute(protocol(transport=transport, latency_ms=2))
    central = execute(CENTRAL_CELL)
    different = {"cell", "code", "peak_memory_mb"}
    equal = [name for name in central if name not in different and not name.endswith("_seconds")]
    assert rows[equal].equals(central[equal])

    first = rows.iloc[0]
    setting = {
        "clients": 2,
        "latency_ms": 2.0,
        "word_bytes": 8,
        "split": "balanced",
        "transport": transport,
    }
    assert {name: first[name] for name in setting} == setting
    assert rows["latency_ms"].dtype == rows["bytes_per_iteration"].dtype == float

    # Two clients, both directions, three centers, five words per center.
    assert set(rows["bytes_per_iteration"]) == {2 * 2 * 3 * 5 * 8}
    # One exchange per round, with the latency of 2 ms in both directions.
    assert (rows["rounds_per_iteration"] == 1).all()
    assert (rows["iteration_ms"] >= 4).all()
    parts = rows[["client_ms", "masking_ms", "server_ms", "wire_ms", "waiting_ms"]].sum(axis=1)
    np.testing.assert_allclose(parts, rows["iteration_ms"])
    seconds = (rows["setup_ms"] + rows["iterations"] * rows["iteration_ms"]) / 1000
    np.testing.assert_allclose(rows["fit_seconds"], seconds)
    assert rows["fit_cpu_seconds"].isna().all()


def test_central_rows_have_empty_federation_columns(tmp_path):
    store = Store(tmp_path)
    store.write(CENTRAL_CELL, execute(CENTRAL_CELL))
    rows = store.read([CENTRAL_CELL.key])
    assert rows[["clients", "word_bytes"]].eq(0).all(axis=None)
    assert rows[["split", "transport"]].eq("").all(axis=None)
    assert rows["latency_ms"].isna().all()
    assert not set(MEASURED) & set(rows)


def test_estimate_depends_on_latency_and_processes(tmp_path):
    local = protocol()
    remote = protocol(latency_ms=100)
    # Three seeds and a run before them, of at most seven iterations, with two sends per iteration.
    difference = estimate_without_timings(remote) - estimate_without_timings(local)
    assert difference == pytest.approx(4 * 7 * 2 * 0.1)

    two_processes = fixed_seconds(protocol(transport="mpi"))
    eight_processes = fixed_seconds(protocol(transport="mpi", clients=8))
    assert eight_processes > two_processes > 1
    assert fixed_seconds(local) == fixed_seconds(CENTRAL_CELL)

    store = Store(tmp_path)
    rows = execute(local).assign(fit_seconds=3.0, metric_seconds=2.0)
    store.write(local, rows)
    central_rows = execute(CENTRAL_CELL).assign(fit_seconds=1.0, metric_seconds=0.0)
    store.write(CENTRAL_CELL, central_rows)
    estimate = make_estimator(store, Backend())
    assert estimate(local) == (pytest.approx(20, abs=0.1), True)
    assert estimate(CENTRAL_CELL) == (pytest.approx(4, abs=0.1), True)
    assert estimate(remote) == (estimate_without_timings(remote), False)


def test_protocol_from_the_command_line(tmp_path, capsys):
    words = [
        "method=fastlloyd",
        "dataset=iris",
        "epsilon=1.0",
        "seeds=2",
        f"results={tmp_path / 'results'}",
    ]
    assert run.main([*words, "federation.clients=0", "timing=true"]) == 2
    assert "clients=0 is not allowed" in capsys.readouterr().err
    assert run.main([*words, "federation.clients=2"]) == 2
    assert "timing=False is not allowed" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()
    valid = [*words, "timing=true", "federation.clients=[2,3]", "federation.transport=threads"]
    assert run.main(valid) == 0
    assert "ms per iteration" in capsys.readouterr().out
    store = Store(tmp_path / "results")
    rows = store.read(store.keys())
    assert sorted(rows["clients"]) == [2, 2, 3, 3]


@pytest.mark.slow
def test_selected_sweeps_of_a_paper_can_be_run(tmp_path, capsys):
    words = ["profile=smoke", f"results={tmp_path / 'results'}", "tracking=none", "backend=serial"]
    assert reproduce.main(["run", *words, "sweeps=[protocl]"]) == 2
    assert "sweep='protocl' is unknown. Did you mean protocol?" in capsys.readouterr().err
    assert reproduce.main(["run", *words, "sweeps=[protocol,parties]"]) == 0
    assert "1 cells, 0 stored, 1 to run" in capsys.readouterr().out
    store = Store(tmp_path / "results")
    rows = store.read(store.keys())
    assert set(rows["transport"]) == {"threads"}
    assert len(rows["charges"].iloc[0])


@pytest.mark.slow
@pytest.mark.parametrize("profile", choices("profile"))
def test_protocols_of_the_paper(profile, data_dir):
    config = load_config(["paper=fastlloyd", f"profile={profile}"])
    plan = make_plan(config.paper, config.profile, data_dir=str(data_dir))
    cells = {}
    for sweep, cell in plan.sweep_cells:
        if isinstance(cell.kind, Federation):
            cells.setdefault(sweep, []).append(cell)
    sizes = {
        sweep: (len(sweep_cells), len(sweep_cells[0].seeds)) for sweep, sweep_cells in cells.items()
    }
    assert sizes == {
        "smoke": {"protocol": (1, 2)},
        "quick": {
            "protocol": (10, 5), "parties": (2, 3), "wide_area": (1, 3), "narrow": (3, 3),
            "baselines": (4, 3),
        },
        "paper": {
            "protocol": (10, 100), "parties": (20, 100), "wide_area": (30, 20), "narrow": (3, 20),
            "baselines": (4, 20),
        },
    }[profile]  # fmt: skip
