"""Cells that are run as a protocol: what they are, how they are planned, and that they find what
central cells find.
"""

import dataclasses
import json
import math
import time

import numpy as np
import psutil
import pytest

from pkm import federation
from pkm.experiments import reproduce, run
from pkm.experiments import sweep as sweeping
from pkm.experiments.backends import Backend, run_cells
from pkm.experiments.cell import SPLITS, Cell, to_hashable
from pkm.experiments.central import timed_fits
from pkm.experiments.code_hash import ALWAYS, HARNESSES, closure, code_hash
from pkm.experiments.configuration import ConfigurationError, choices, load
from pkm.experiments.estimate import estimator, fixed_seconds, rough_seconds
from pkm.experiments.execute import execute
from pkm.experiments.federated import fits_of
from pkm.experiments.plan import make_plan
from pkm.experiments.prepared import build, prepare
from pkm.experiments.rows import CENTRAL, MEASURED
from pkm.experiments.store import Store
from pkm.experiments.sweep import FEDERATION
from pkm.experiments.tracking import child_record

pytestmark = pytest.mark.integration

SETTING = {
    "clients": 2,
    "latency_ms": 0.0,
    "word_bytes": 8,
    "split": "balanced",
    "transport": "threads",
}
TRANSPORTS = [
    "threads",
    pytest.param(
        "mpi",
        marks=[
            pytest.mark.slow,
            pytest.mark.skipif(not federation.mpi_available(), reason="no mpi4py and mpirun here"),
        ],
    ),
]
CENTER = Cell(
    method="fastlloyd",
    target="pkm.methods.lloyd.FastLloyd",
    params=to_hashable({"variant": "published"}),
    dataset="iris",
    preprocessing="minmax",
    k=3,
    epsilon=1.0,
    delta="auto",
    seeds=(3, 0, 1),
    metrics=("nicv",),
    timing=True,
)
#: Methods whose second client breaks, and whose clients never come to an end.
TROUBLE = """
import os
import threading
import time

from pkm.methods.lloyd import FastLloyd


class Broken(FastLloyd):
    def cluster(self, curator):
        rank = os.environ.get("OMPI_COMM_WORLD_RANK")
        if rank == "2" or threading.current_thread().name == "client 2":
            raise ValueError("the second client broke")
        return super().cluster(curator)


class Endless(FastLloyd):
    def cluster(self, curator):
        time.sleep(600)
"""


def protocol(cell=CENTER, **setting):
    return dataclasses.replace(cell, federation=to_hashable(SETTING | setting))


def plan_of(**sweep):
    general = {"datasets": ["iris"], "methods": ["fastlloyd"], "epsilon": 1.0, "timing": True}
    return make_plan(
        {"name": "mini", "sweeps": {"one": general | sweep}}, {"name": "tiny", "seeds": 2}
    )


def settings_of(plan):
    return [dict(cell.federation) for cell in plan.cells]


@pytest.fixture
def trouble(tmp_path, monkeypatch):
    (tmp_path / "trouble_at_a_party.py").write_text(TROUBLE)
    monkeypatch.syspath_prepend(tmp_path)

    def cell(name, **setting):
        return protocol(dataclasses.replace(CENTER, target=f"trouble_at_a_party.{name}"), **setting)

    return cell


def test_central_cell_has_no_trace_of_the_field_in_its_identity():
    assert sorted(CENTER.identity()) == [
        "bounds", "clip", "dataset", "delta", "epsilon", "k", "method", "metrics", "params",
        "preprocessing", "seeds", "target", "timing",
    ]  # fmt: skip
    assert protocol().identity() == CENTER.identity() | {"federation": SETTING}


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
def test_every_setting_counts(change):
    assert protocol(**change).key not in (protocol().key, CENTER.key)


def test_latency_is_the_same_however_it_is_written():
    assert protocol(latency_ms=25).key == protocol(latency_ms=25.0).key


def test_the_room_of_the_federation_belongs_to_the_code_of_such_cells_alone():
    method = CENTER.target.rpartition(".")[0]
    central = set(closure((method, *ALWAYS, HARNESSES["central"])))
    federated = set(closure((method, *ALWAYS, HARNESSES["federated"])))
    assert {
        "pkm.experiments.federated",
        "pkm.federation",
        "pkm.federation.mpi",
        "pkm.federation.parties",
    } <= federated - central
    assert not any(
        name.startswith(("pkm.federation", "pkm.experiments.federated", "pkm.experiments.removals"))
        for name in central
    )
    assert CENTER.code == code_hash(CENTER.target)
    assert protocol().code == code_hash(CENTER.target, "federated") != CENTER.code


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
            "transport='pigeon' is not allowed: transport must be one of threads, mpi",
        ),
    ],
)
def test_wrong_setting_is_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        protocol(**setting)
    with pytest.raises(ConfigurationError, match=f"mini, sweep one: {message}"):
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
def test_sweep_that_cannot_be_run_as_a_protocol_is_refused(sweep, message):
    with pytest.raises(ConfigurationError, match=message):
        plan_of(**sweep)


def test_incomplete_setting_is_refused():
    with pytest.raises(
        ValueError,
        match="federation must be given clients, latency_ms, split, transport, word_bytes",
    ):
        dataclasses.replace(CENTER, federation=to_hashable({"clients": 2}))


def test_lists_are_crossed_and_the_rest_is_filled_in():
    found = settings_of(
        plan_of(federation={"clients": [2, 4], "latency_ms": [0.25, 25], "transport": "threads"})
    )
    assert [(each["clients"], each["latency_ms"]) for each in found] == [
        (2, 0.25),
        (2, 25),
        (4, 0.25),
        (4, 25),
    ]
    assert {(each["word_bytes"], each["split"], each["transport"]) for each in found} == {
        (8, "balanced", "threads")
    }
    # Twice the one cell without a budget and the two with one.
    assert (
        len(
            plan_of(
                federation={"clients": [2, 4]}, methods=["lloyd", "glloyd"], epsilon=[0.1, 1.0]
            ).cells
        )
        == 6
    )
    assert {cell.federation for cell in plan_of().cells} == {None}


@pytest.mark.parametrize("at_hand, transport", [(True, "mpi"), (False, "threads")])
def test_transport_is_settled_when_planning(monkeypatch, at_hand, transport):
    monkeypatch.setattr(sweeping, "mpi_available", lambda: at_hand)
    assert [each["transport"] for each in settings_of(plan_of(federation={}))] == [transport]
    assert settings_of(plan_of(federation={"transport": "auto"})) == settings_of(
        plan_of(federation={})
    )


def test_processes_that_cannot_be_started_are_a_gap(monkeypatch):
    monkeypatch.setattr(sweeping, "mpi_available", lambda: False)
    plan = plan_of(federation={"transport": ["threads", "mpi"]})
    assert [each["transport"] for each in settings_of(plan)] == ["threads"]
    assert [gap.reason for gap in plan.gaps] == [
        "transport=mpi needs mpi4py and mpirun: make protocol"
    ]


def test_names_are_those_of_the_federation():
    assert SPLITS == federation.SPLITS
    assert {"iterations", *MEASURED} == {
        field.name for field in dataclasses.fields(federation.FederationCosts)
    }
    assert set(SETTING) == set(FEDERATION) == set(CENTRAL) - set(MEASURED)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("change", [{}, {"clients": 3, "split": "unbalanced", "word_bytes": 4}])
def test_protocol_finds_what_a_central_run_finds(transport, change):
    cell = protocol(transport=transport, **change)
    prepared = prepare(CENTER, None)
    central = timed_fits(build(CENTER), prepared, CENTER.seeds, alone=True)
    parties, _ = fits_of(cell, prepared, None)
    for (one, _), (other, _) in zip(central, parties, strict=True):
        np.testing.assert_array_equal(one.centers, other.centers)
        assert (one.seeds, one.n_iter) == (other.seeds, other.n_iter)
        assert one.ledger.charges == other.ledger.charges


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_rows_say_who_took_part_and_what_it_took(transport):
    rows = execute(protocol(transport=transport, latency_ms=2))
    central = execute(CENTER)
    equal = [name for name in central if name not in {"cell", "code", *CENTRAL, "peak_memory_mb"}]
    equal = [name for name in equal if not name.endswith("_seconds")]
    assert rows[equal].equals(central[equal])
    first = rows.iloc[0]
    told = {
        "clients": 2,
        "latency_ms": 2.0,
        "word_bytes": 8,
        "split": "balanced",
        "transport": transport,
    }
    assert {name: first[name] for name in told} == told
    assert rows["latency_ms"].dtype == rows["bytes_per_iteration"].dtype == float
    # Two clients, both ways, five words for each of three centers; one exchange a round, which
    # waits twice.
    assert set(rows["bytes_per_iteration"]) == {2 * 2 * 3 * 5 * 8}
    assert (rows["rounds_per_iteration"] == 1).all() and (rows["iteration_ms"] >= 4).all()
    parts = rows[["client_ms", "masking_ms", "server_ms", "wire_ms", "waiting_ms"]].sum(axis=1)
    np.testing.assert_allclose(parts, rows["iteration_ms"])
    seconds = (rows["setup_ms"] + rows["iterations"] * rows["iteration_ms"]) / 1000
    np.testing.assert_allclose(rows["fit_seconds"], seconds)
    assert rows["fit_cpu_seconds"].isna().all()


def test_central_rows_have_the_same_columns_empty():
    rows = execute(dataclasses.replace(CENTER, timing=False))
    assert rows[["clients", "word_bytes"]].eq(0).all(axis=None) and rows[["split", "transport"]].eq(
        ""
    ).all(axis=None)
    assert rows[["latency_ms", *MEASURED]].isna().all(axis=None)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_failure_of_a_party_is_the_failure_of_the_cell(trouble, tmp_path, transport):
    cell = trouble("Broken", transport=transport)
    store = Store(tmp_path / "results")
    (outcome,) = run_cells([cell], store, Backend(retries=0))
    assert outcome.status == "failed"
    told = "ProtocolError: client 2 stopped: ValueError: the second client broke"
    assert outcome.error == store.failure_record(cell.key)["error"] == told


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_time_limit_ends_all_parties(trouble, tmp_path, transport):
    cell = dataclasses.replace(trouble("Endless", transport=transport), time_limit=5.0)
    store = Store(tmp_path / "results")
    run_cells([cell], store, Backend())
    assert store.failure_record(cell.key)["error"] == "TimeLimitExceeded: time limit of 5 s reached"

    def running():
        commands = [
            " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])
        ]
        return [command for command in commands if str(tmp_path) in command]

    # The folder of the method is in the command of every process of the job.
    deadline = time.monotonic() + 20
    while running() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert running() == []


def test_estimate_knows_latency_and_processes(tmp_path):
    near = protocol()
    far = protocol(latency_ms=100)
    # Three seeds and a run before them, of at most seven iterations, with two sends each.
    assert rough_seconds(far) - rough_seconds(near) == pytest.approx(4 * 7 * 2 * 0.1)
    assert (
        fixed_seconds(protocol(transport="mpi", clients=8))
        > fixed_seconds(protocol(transport="mpi"))
        > 1
    )
    assert fixed_seconds(near) == fixed_seconds(CENTER)
    store = Store(tmp_path)
    store.write(near, execute(near).assign(fit_seconds=3.0, metric_seconds=2.0))
    # One from before there were protocols.
    store.write(
        CENTER,
        execute(CENTER).assign(fit_seconds=1.0, metric_seconds=0.0).drop(columns=list(CENTRAL)),
    )
    estimate = estimator(store)
    assert estimate(near) == (pytest.approx(20, abs=0.1), True)
    assert estimate(CENTER) == (pytest.approx(4, abs=0.1), True)
    assert estimate(far) == (rough_seconds(far), False)


def test_tracking_shows_parties_and_times():
    cell = protocol(latency_ms=0.25)
    rows = execute(cell).assign(git="", finished=0.0)
    record = child_record(cell, rows, "parent", "id")
    told = {
        "clients": "2",
        "latency_ms": "0.25",
        "word_bytes": "8",
        "split": "balanced",
        "transport": "threads",
    }
    assert record.params.items() >= told.items()
    assert record.metrics["iteration_ms_mean"] == pytest.approx(rows["iteration_ms"].mean())
    assert record.name == "fastlloyd · iris · ε=1 · 2 clients, 0.25 ms"
    central = child_record(CENTER, execute(CENTER).assign(git="", finished=0.0), "parent", "id")
    assert not {*told, "iteration_ms_mean"} & {*central.params, *central.metrics}


def test_protocol_from_the_command_line(tmp_path, capsys):
    words = [
        "method=fastlloyd",
        "dataset=iris",
        "epsilon=1.0",
        "seeds=2",
        f"results={tmp_path / 'r'}",
    ]
    assert run.main([*words, "federation.clients=0", "timing=true"]) == 2
    assert "clients=0 is not allowed" in capsys.readouterr().err
    assert run.main([*words, "federation.clients=2"]) == 2
    assert "timing=False is not allowed" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
    both = [*words, "timing=true", "federation.clients=[2,3]", "federation.transport=threads"]
    assert run.main(both) == 0
    assert "ms per iteration" in capsys.readouterr().out
    rows = Store(tmp_path / "r").read(Store(tmp_path / "r").keys())
    assert sorted(rows["clients"]) == [2, 2, 3, 3]


def test_some_sweeps_of_a_paper_can_be_run_alone(tmp_path, capsys):
    words = ["profile=smoke", f"results={tmp_path / 'r'}", "tracking=none", "backend=serial"]
    assert reproduce.main(["run", *words, "sweeps=[protocl]"]) == 2
    assert "sweep='protocl' is unknown. Did you mean protocol?" in capsys.readouterr().err
    assert reproduce.main(["run", *words, "sweeps=[protocol,parties]"]) == 0
    assert "1 cells, 0 stored, 1 to run" in capsys.readouterr().out
    rows = Store(tmp_path / "r").read(Store(tmp_path / "r").keys())
    assert set(rows["transport"]) == {"threads"} and json.loads(rows["charges"].iloc[0])


@pytest.mark.parametrize("profile", choices("profile"))
def test_protocols_of_the_paper(profile, mirror):
    config = load(["paper=fastlloyd", f"profile={profile}"])
    plan = make_plan(config.paper, config.profile, mirror=str(mirror))
    cells = {}
    for sweep, cell in plan.entries:
        if cell.federation is not None:
            cells.setdefault(sweep, []).append(cell)
    sizes = {sweep: (len(found), len(found[0].seeds)) for sweep, found in cells.items()}
    assert sizes == {
        "smoke": {"protocol": (1, 2)},
        "quick": {
            "protocol": (10, 10), "parties": (2, 5), "wide_area": (1, 3), "narrow": (3, 3),
            "baselines": (4, 3),
        },
        "paper": {
            "protocol": (10, 100), "parties": (20, 100), "wide_area": (30, 20), "narrow": (3, 20),
            "baselines": (4, 20),
        },
    }[profile]  # fmt: skip
