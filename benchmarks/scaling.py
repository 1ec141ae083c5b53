"""A round of a Lloyd method on W workers of dask: predicted from its parts, measured, drawn.

    python -m pkm.benchmarks.scaling docs/figures

writes ``scaling.png``. The prediction for S chunks of points on W workers is

    t(S, W) = ceil(S / W) * work + serial + bytes / rate,

and its parts are measured by themselves:

- the work is the CPU time of a worker for a chunk: in a round of a few chunks, less that of as many
  that hold hardly a point;
- the serial part is the CPU time of a round of S chunks that hold hardly a point. The process that
  calls ``fit`` makes and schedules tasks, charges, draws noise and moves centers; it is measured
  while tasks take their time, without computing. One worker takes tasks and sends results; it is
  measured while they take none, because a worker that has slept is slower;
- the bytes are all that processes of two workers and their scheduler write to each other in such a
  round, counted on dask's connections; the rate is assumed, a network's of one gigabit a second.

Measured are rounds of fits of a ``dask.array`` on as many workers as there are cores, and fewer:
the CPU time of the worker that takes longest, and that of the process that calls ``fit``. CPU time
holds for a machine with free cores whatever else runs on this one. It leaves out waiting, and what
workers and the caller do at the same time; the clock is printed beside it.
"""

import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pkm.analysis.figures.styles import CYCLE
from pkm.analysis.render.chart import pictures
from pkm.analysis.render.style import COMMON, GREY, INK
from pkm.arguments import Parser
from pkm.benchmarks.dask_rounds import (
    Cost,
    Maker,
    Rounds,
    chunks_on_workers,
    cluster_of,
    uniform_chunk,
    waiting_chunk,
)
from pkm.benchmarks.measurement import Measurement
from pkm.files import atomic_write

SHAPES = ((2, 8), (10, 8), (40, 16))  # numbers of features and of centers
CHUNKS = 16
CHUNK_VALUES = 1 << 23  # coordinates: 32 MB
FEW_CHUNKS = 4  # whose work is measured
FEW_ROWS = 64  # of a chunk that hardly takes work
WORKERS = (1, 2, 4, 8, 16)
MANY = 8  # workers for which overhead alone is measured, on any number of cores
TURNS = 6
RATE = 125e6  # bytes a second
INTEGER_BYTES = 8
MAX_ERROR = 10  # percent
FILE = "scaling.png"
TICKS = tuple(step * 10**decade for decade in range(5) for step in (1, 2, 5))


@dataclass(frozen=True)
class Parts:
    """Parts of a round, of which a prediction is made.

    Attributes
    ----------
    work : float
        CPU seconds of a chunk.
    serial : float
        CPU seconds of a round without work.
    n_bytes : float
        Sent between processes in a round.
    """

    work: float
    serial: float
    n_bytes: float

    def seconds(self, n_workers: int, n_chunks: int = CHUNKS) -> float:
        """Predicted seconds of a round.

        Examples
        --------
        >>> Parts(work=0.25, serial=0.5, n_bytes=125e6).seconds(3, n_chunks=4)
        2.0
        """
        return math.ceil(n_chunks / n_workers) * self.work + self.serial + self.n_bytes / RATE


@dataclass(frozen=True)
class Scaling:
    """Rounds of one shape, predicted and measured.

    Attributes
    ----------
    d, k : int
        Numbers of features and of centers.
    parts : Parts
    caller : float
        CPU seconds of the serial part that are those of the process that calls ``fit``.
    task : float
        CPU seconds by which one chunk more makes the serial part longer.
    measured : mapping of int to Cost
        By the number of workers.
    """

    d: int
    k: int
    parts: Parts
    caller: float
    task: float
    measured: Mapping[int, Cost]

    @property
    def name(self) -> str:
        """Shape in words."""
        return f"d = {self.d}, k = {self.k}"

    @property
    def n_points(self) -> int:
        """Points of all chunks."""
        return CHUNKS * rows_of_chunk(self.d)

    def error(self, n_workers: int) -> float:
        """Predicted over measured seconds less one, in percent and without sign."""
        return 100 * abs(self.parts.seconds(n_workers) / self.measured[n_workers].cpu - 1)


def scaling() -> list[Measurement]:
    """Work of a chunk, serial part, bytes, and the error of what they predict."""
    return [*rows_of(measured_scalings()), overhead_of_many()]


def rows_of(scalings: Sequence[Scaling]) -> list[Measurement]:
    """Rows of the table."""
    rows = []
    for each in scalings:
        label = f"round, {each.name}"
        parts = each.parts
        least = CHUNKS * bytes_of_task(each.d, each.k)
        rows += [
            Measurement(
                f"{label}: work of {rows_of_chunk(each.d):,} points", 1e3 * parts.work, "ms CPU"
            ),
            Measurement(f"{label}: serial part, {CHUNKS} chunks", 1e3 * parts.serial, "ms CPU"),
            Measurement(f"{label}: of it the caller's", 1e3 * each.caller, "ms CPU"),
            Measurement(f"{label}: serial part, a chunk more", 1e3 * each.task, "ms CPU"),
            Measurement(
                f"{label}: sent, {CHUNKS} chunks ({least / 1e3:.1f} kB of it numbers)",
                parts.n_bytes / 1e3,
                "kB",
            ),
        ]
        for n_workers, cost in each.measured.items():
            workers = "1 worker" if n_workers == 1 else f"{n_workers} workers"
            what = f"{label}, {each.n_points:,} points, {workers}: {1e3 * cost.cpu:.3g} ms CPU"
            what += f" ({1e3 * cost.clock:.3g} ms by the clock), error"
            rows.append(Measurement(what, each.error(n_workers), "%", at_most=MAX_ERROR))
    return rows


def measured_scalings() -> list[Scaling]:
    """Measure all shapes."""
    counts = worker_counts(len(os.sched_getaffinity(0)))
    with ExitStack() as stack:
        # Bytes are those of two workers, which is no matter of cores.
        clients = {
            n_workers: stack.enter_context(cluster_of(n_workers))
            for n_workers in sorted({*counts, 2})
        }
        return [measured_scaling(clients, counts, d, k) for d, k in SHAPES]


def measured_scaling(clients: Mapping[int, Any], counts: Sequence[int], d: int, k: int) -> Scaling:
    """Measure a shape on clusters of several numbers of workers."""

    def rounds(n_workers: int, n_chunks: int, n_rows: int, make: Maker = uniform_chunk) -> Rounds:
        client = clients[n_workers]
        return Rounds(client, chunks_on_workers(client, make, n_chunks, n_rows, d), k)

    n_rows = rows_of_chunk(d)
    fits = {n_workers: rounds(n_workers, CHUNKS, n_rows) for n_workers in counts}
    few = rounds(1, FEW_CHUNKS, n_rows)
    # Those without work.
    few_empty = rounds(1, FEW_CHUNKS, FEW_ROWS)
    empty = rounds(1, CHUNKS, FEW_ROWS)
    waiting = rounds(1, CHUNKS, FEW_ROWS, waiting_chunk)
    two_workers = rounds(2, CHUNKS, FEW_ROWS)

    # In turns, so that what slows the machine down slows all of them down.
    for _ in range(TURNS):
        for each in (few, few_empty, empty, waiting, two_workers, *fits.values()):
            each.turn()
    few_worker = few_empty.cost().worker
    caller = waiting.cost().caller
    serial = caller + empty.cost().worker
    parts = Parts(
        work=(few.cost().worker - few_worker) / FEW_CHUNKS,
        serial=serial,
        n_bytes=two_workers.cost().n_bytes,
    )
    task = (serial - few.cost().caller - few_worker) / (CHUNKS - FEW_CHUNKS)
    measured = {n_workers: each.cost() for n_workers, each in fits.items()}
    return Scaling(d, k, parts, caller, task, measured)


def overhead_of_many() -> Measurement:
    """CPU time of the caller where many workers share the cores: no prediction of their speed."""
    d, k = SHAPES[1]
    with cluster_of(MANY) as client:
        array = chunks_on_workers(client, waiting_chunk, CHUNKS, FEW_ROWS, d)
        rounds = Rounds(client, array, k)
        for _ in range(TURNS):
            rounds.turn()
    what = f"round, d = {d}, k = {k}: the caller's part, {CHUNKS} chunks, {MANY} workers"
    return Measurement(what, 1e3 * rounds.cost().caller, "ms CPU")


def worker_counts(n_cores: int) -> list[int]:
    """Numbers of workers that are measured: each has a core.

    Examples
    --------
    >>> worker_counts(6)
    [1, 2, 4]
    """
    return [n_workers for n_workers in WORKERS if n_workers <= n_cores]


def rows_of_chunk(d: int) -> int:
    """Points of a chunk in d features."""
    return CHUNK_VALUES // d


def bytes_of_task(d: int, k: int) -> int:
    """Bytes of the integers of a task: centers there, sums and counts back."""
    return INTEGER_BYTES * (k * d + k * (d + 1))


# The figure


def records_of(scalings: Sequence[Scaling]) -> list[dict[str, Any]]:
    """Points and curves of the figure, in millions of points a second."""
    records = []
    for each in scalings:
        seconds = {
            "predicted": {n_workers: each.parts.seconds(n_workers) for n_workers in WORKERS},
            "measured": {n_workers: cost.cpu for n_workers, cost in each.measured.items()},
        }
        records += [
            {"shape": each.name, "kind": kind, "workers": n_workers, "rate": rate}
            for kind, by_workers in seconds.items()
            for n_workers, rate in _rates(each.n_points, by_workers).items()
        ]
    return records


def _rates(n_points: int, seconds: Mapping[int, float]) -> dict[int, float]:
    return {n_workers: n_points / each / 1e6 for n_workers, each in seconds.items()}


def chart(scalings: Sequence[Scaling], n_cores: int) -> dict[str, Any]:
    """Vega-Lite chart: measured points up to the cores present, and a dotted prediction."""
    records = records_of(scalings)
    rates = [record["rate"] for record in records]
    names = [each.name for each in scalings]
    colors = [color for color, _ in CYCLE[-len(names) - 1 :]]
    x = {
        "field": "workers",
        "type": "quantitative",
        "scale": {"type": "log", "base": 2, "domain": [0.9, 1.1 * WORKERS[-1]], "nice": False},
        "axis": {"values": list(WORKERS), "format": "d", "grid": False},
        "title": "workers, one core each",
    }
    y = {
        "field": "rate",
        "type": "quantitative",
        "scale": {"type": "log", "domain": [min(rates) / 1.5, 1.5 * max(rates)], "nice": False},
        "axis": {"values": list(TICKS), "format": ",d"},
        "title": "points in a round, millions per second",
    }
    color = {
        "field": "shape",
        "type": "nominal",
        "scale": {"domain": names, "range": colors[: len(names)]},
        "legend": {"symbolType": "square", "symbolStrokeWidth": 0},
    }
    place = {"x": x, "y": y}

    def only(kind: str) -> list[dict[str, str]]:
        return [{"filter": f"datum.kind == '{kind}'"}]

    def named(kind: str, look: Any) -> dict[str, Any]:
        return {"field": "kind", "type": "nominal", "scale": {"domain": [kind], "range": [look]}}

    line = {
        "transform": only("predicted"),
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": place | {"color": color, "strokeDash": named("predicted", [2, 3])},
    }
    points = {
        "transform": only("measured"),
        "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
        "encoding": place | {"color": color, "shape": named("measured", COMMON["markers"]["o"])},
    }
    values = {
        "transform": only("measured"),
        "mark": {"type": "text", "align": "left", "dx": 6, "dy": 10, "color": INK},
        "encoding": place | {"text": {"field": "rate", "format": ".3~r"}},
    }
    cores = {
        "data": {"values": [{"workers": n_cores, "text": f"cores of this machine: {n_cores}"}]},
        "encoding": {"x": x},
        "layer": [
            {"mark": {"type": "rule", "color": GREY}},
            {
                "mark": {"type": "text", "align": "left", "dx": 5, "color": GREY},
                "encoding": {"y": {"value": 8}, "text": {"field": "text"}},
            },
        ],
    }
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "config": COMMON["config"],
        "width": 430,
        "height": 320,
        "data": {"values": records},
        "layer": [cores, line, points, values],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the rows and write the figure.

    Parameters
    ----------
    arguments : sequence of str, optional
        The folder; the arguments of the process by default.

    Returns
    -------
    int
        1 if a prediction is off by more than 10 %, else 0.
    """
    parser = Parser(
        prog="python -m pkm.benchmarks.scaling", description=f"Write {FILE} to a folder."
    )
    parser.add_argument("folder", type=Path, help="such as docs/figures")
    folder = parser.parse_args(arguments).folder
    scalings = measured_scalings()
    rows = [*rows_of(scalings), overhead_of_many()]
    for row in rows:
        print(f"{row.what}: {row.value:.4g} {row.unit}")
    drawn = chart(scalings, len(os.sched_getaffinity(0)))
    atomic_write(folder / FILE, pictures(drawn)[0])
    return int(not all(row.is_met for row in rows))


if __name__ == "__main__":
    sys.exit(main())
