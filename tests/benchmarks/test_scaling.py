"""Rounds on several workers: what is predicted, what counts as measured, and what is drawn."""

import asyncio
import json
import math

import numpy as np
import pytest
import vl_convert

from pkm.benchmarks import dask_rounds, scaling
from pkm.benchmarks.dask_rounds import Cost, Rounds, between_processes
from pkm.benchmarks.scaling import Parts, Scaling

PARTS = Parts(work=0.1, serial=0.03, n_bytes=0.01 * scaling.RATE)


def made(n_cores, d=2, k=8):
    """A shape whose measured rounds take a tenth longer than predicted."""
    measured = {
        n_workers: Cost(0.01, 1.1 * PARTS.seconds(n_workers) - 0.01, 9.0, 0.0)
        for n_workers in scaling.worker_counts(n_cores)
    }
    return Scaling(d, k, PARTS, 0.02, 0.001, measured)


@pytest.mark.parametrize(
    ("n_workers", "seconds"), [(1, 1.64), (2, 0.84), (3, 0.64), (16, 0.14), (64, 0.14)]
)
def test_the_prediction_divides_the_work_alone(n_workers, seconds):
    """Whole chunks: of three workers one has six of sixteen."""
    assert math.isclose(PARTS.seconds(n_workers), seconds)


def test_the_error_is_relative_to_what_was_measured():
    each = made(2)
    assert math.isclose(each.error(1), 100 * (1 - 1 / 1.1))
    rows = scaling.rows_of([each])
    assert [row.at_most for row in rows if row.at_most] == [scaling.MAX_ERROR] * 2
    assert all(row.is_met for row in rows)


@pytest.mark.parametrize(("n_cores", "counts"), [(1, [1]), (2, [1, 2]), (3, [1, 2]), (64, None)])
def test_no_more_workers_are_measured_than_there_are_cores(n_cores, counts):
    assert scaling.worker_counts(n_cores) == (counts or list(scaling.WORKERS))


@pytest.mark.parametrize("n_cores", [1, 2, 5])
def test_measured_points_end_at_the_cores_and_the_prediction_goes_on(n_cores):
    scalings = [made(n_cores, d, k) for d, k in scaling.SHAPES]
    records = scaling.records_of(scalings)
    for each in scalings:
        by_kind = {
            kind: {
                record["workers"]: record["rate"]
                for record in records
                if record["shape"] == each.name and record["kind"] == kind
            }
            for kind in ("measured", "predicted")
        }
        assert max(by_kind["measured"]) <= n_cores
        assert list(by_kind["measured"]) == scaling.worker_counts(n_cores)
        assert list(by_kind["predicted"]) == list(scaling.WORKERS)
        for n_workers, rate in by_kind["predicted"].items():
            assert math.isclose(rate, each.n_points / PARTS.seconds(n_workers) / 1e6)
        for n_workers, rate in by_kind["measured"].items():
            assert math.isclose(1.1 * rate, by_kind["predicted"][n_workers])


def test_the_chart_draws_lines_of_predictions_and_markers_of_measurements():
    chart = scaling.chart([made(2, d, k) for d, k in scaling.SHAPES], 2)
    layers = [layer for layer in chart["layer"] if "transform" in layer]
    kinds = {
        layer["mark"]["type"]: layer["transform"][0]["filter"].split("'")[1] for layer in layers
    }
    assert kinds == {"line": "predicted", "point": "measured", "text": "measured"}
    (line,) = [layer for layer in layers if layer["mark"]["type"] == "line"]
    (dash,) = line["encoding"]["strokeDash"]["scale"]["range"]
    assert len(dash) == 2, "dots and gaps"
    vega = vl_convert.vegalite_to_vega(json.dumps(chart, allow_nan=False))
    named = [legend for legend in vega["legends"] if {"strokeDash", "shape"} & legend.keys()]
    scales = {each["name"]: each["domain"] for each in vega["scales"]}
    words = [scales[legend.get("strokeDash", legend.get("shape"))] for legend in named]
    assert sorted(words) == [["measured"], ["predicted"]]


def test_numbers_of_a_task_are_those_of_its_arrays():
    centers = np.zeros((1, 3, 5), np.int64)
    counts = np.zeros((1, 3), np.int64)
    assert scaling.bytes_of_task(5, 3) == 2 * centers.nbytes + counts.nbytes


def test_bytes_count_that_go_to_another_process():
    both_ends = {("a", "b"): 100, ("b", "a"): 50}
    assert between_processes(both_ends) == 0
    assert between_processes(both_ends | {("a", "c"): 7, ("d", "a"): 2}) == 9


def test_what_is_written_to_a_connection_is_counted():
    comm = pytest.importorskip("distributed.comm")
    dask_rounds.count_bytes()
    before = dask_rounds.written()
    received = []

    async def handle(connection):
        received.append(await connection.read())

    async def send():
        async with comm.listen("tcp://127.0.0.1:0", handle) as listener:
            connection = await comm.connect(listener.contact_address)
            n_bytes = await connection.write({"numbers": b"x" * 1000})
            while not received:
                await asyncio.sleep(0.001)
            await connection.close()
            return (connection.local_address, connection.peer_address), n_bytes

    ends, n_bytes = asyncio.run(send())
    counted = dask_rounds.written()
    assert received == [{"numbers": b"x" * 1000}]
    # Besides the message there is a handshake.
    assert counted[ends] >= n_bytes > 1000
    # Both ends are in this process.
    assert between_processes(counted) == between_processes(before)


def test_a_round_is_the_difference_of_the_least_costs_of_two_fits():
    fewer, more = dask_rounds.ROUNDS
    rounds = Rounds.__new__(Rounds)
    # Beside one second that every fit takes, a round takes 2, 3 and 4 seconds, and 500 bytes.
    once = np.array([1.0, 1.0, 1.0, 0.0])
    each = np.array([2.0, 3.0, 4.0, 500.0])
    rounds.costs = [
        [once + fewer * each, once + more * each + 9],
        [once + fewer * each + 9, once + more * each],
    ]
    assert rounds.cost() == Cost(2.0, 3.0, 4.0, 500.0)
    assert rounds.cost().cpu == 5.0
