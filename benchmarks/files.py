"""A fit of more points than memory holds: seconds, memory, and the sum of its shards.

    python -m pkm.benchmarks.files 1e8 file=points.parquet
    python -m pkm.benchmarks.files 1e8 file=points.npy methods=KaplanStemmer,DPM
    python -m pkm.benchmarks.files 1e9

With a file (.parquet, .npy or .grid), points are written to it (and kept) where it is not there
yet, with the first 10^7 in a file of their own. Four things are done in turns:

- the file is fitted by FastLloyd,
- the first 10^7 are decoded, entered and passed over until there were as many (computing alone),
- the bytes of the file are read,
- its blocks are read and decoded.

The fastest of each is printed; the last lines compare the fit with its limits. With methods the
file (.parquet or .npy) is fitted by these instead, once, each in a process of its own.

Without a file points come from a generator: one pass over all of them is compared with the sum of
the passes over each shard by itself.
"""

import argparse
import multiprocessing
import resource
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pkm import methods
from pkm.compute import Points, sums_and_counts
from pkm.compute.storage.blocks import Blocks, Source, Sums
from pkm.compute.storage.grid_file import is_grid_file, open_grid, pack
from pkm.methods import FastLloyd
from pkm.row_blocks import RowBlocks, row_blocks

D = 10
K = 8
SHARD = 1_000_000
BOUND = 2.0
SPREAD = np.float32(0.1)
PART = 10 * SHARD
BUFFER = 1 << 23  # bytes
ROUNDS = 5
MAX_RATIO = 1.15
MAX_CPU = 60.0  # seconds for 10^8 points
MAX_MEMORY = 1.0  # GiB


def shard(number: int, n_rows: int) -> np.ndarray:
    """Rows (n_rows, 10), float32, of eight normal clusters: the same for the same number."""
    means = np.random.default_rng(0).uniform(-0.7, 0.7, (K, D)).astype(np.float32)
    generator = np.random.default_rng([1, number])
    rows = generator.standard_normal((n_rows, D), dtype=np.float32)
    rows *= SPREAD
    rows += means[generator.integers(K, size=n_rows)]
    return rows


def sizes(n_rows: int) -> list[int]:
    """Number of rows of every shard."""
    return [min(SHARD, n_rows - start) for start in range(0, n_rows, SHARD)]


def generated(n_rows: int) -> RowBlocks:
    """All shards, generated anew in every pass."""

    def read() -> Iterator[np.ndarray]:
        return (shard(number, size) for number, size in enumerate(sizes(n_rows)))

    return RowBlocks(n_rows, D, read, "generated rows")


@dataclass(frozen=True)
class Repeated:
    """Rows that are read again and again, as if they were many.

    Attributes
    ----------
    rows : RowBlocks or GridFile
    times : int
        How often a pass reads them.
    """

    rows: Source
    times: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.times * self.rows.n_rows

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.rows.n_columns

    def blocks(self) -> Iterator[Any]:
        """Read all rows once."""
        for _ in range(self.times):
            yield from self.rows.blocks()


def write(path: Path, n_rows: int) -> None:
    """Write all shards to a file of the kind that its name tells."""
    if path.suffix == ".npy":
        write_npy(path, n_rows)
    elif path.suffix == ".grid":
        box = np.full(D, BOUND)
        pack(generated(n_rows), path, -box, box)
    else:
        write_parquet(path, n_rows)


def write_npy(path: Path, n_rows: int) -> None:
    """Write all shards to an NPY file."""
    array = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, D))
    for number, size in enumerate(sizes(n_rows)):
        array[number * SHARD : number * SHARD + size] = shard(number, size)
        array.flush()


def write_parquet(path: Path, n_rows: int) -> None:
    """Write all shards to a Parquet file, a row group each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(f"x{h}", pa.float32()) for h in range(D)])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for number, size in enumerate(sizes(n_rows)):
            rows = shard(number, size)
            writer.write_table(pa.table([rows[:, h] for h in range(D)], schema=schema))


class Cost(NamedTuple):
    """What a call took: seconds of CPU and of the clock."""

    cpu: float
    wall: float


def cost_of(call: Callable[[], object]) -> Cost:
    """Call, and measure."""
    wall = time.perf_counter()
    cpu = time.process_time()
    call()
    return Cost(time.process_time() - cpu, time.perf_counter() - wall)


def peak_memory() -> float:
    """Largest memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def in_own_process(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function in a process of its own, whose memory does not count."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"{function.__name__} of {arguments[0]} failed: see the error above")


def fit_file(path: Path, n_rows: int) -> None:
    """Fit a file; compare with reading it and with computing on as many points in memory."""
    part = path.with_name(f"part-{path.name}") if n_rows > PART else path
    for file, size in ((path, n_rows), (part, PART)):
        if not file.exists():
            in_own_process(write, file, size)
    blocks = blocks_of(path)
    in_memory = blocks_of(part)
    n_times = max(1, blocks.n_records // in_memory.n_records)
    in_memory = replace(in_memory, rows=Repeated(in_memory.rows, n_times))
    centers = first_centers()
    model = FastLloyd(K, epsilon=1.0, bounds=(-BOUND, BOUND))
    # Compiled code is loaded.
    model.fit(part)

    def passes(one_pass: Callable[[], object]) -> None:
        for _ in range(model.n_iter_):
            one_pass()

    calls: dict[str, Callable[[], object]] = {
        "FastLloyd, a fit": lambda: model.fit(path, progress=True),
        "computing alone": lambda: passes(
            lambda: in_memory.total(lambda points: sums_of(points, centers))
        ),
        "reading bytes": lambda: passes(lambda: read_bytes(path)),
        "reading blocks": lambda: passes(lambda: deque(blocks.rows.blocks(), maxlen=0)),
    }
    # In turns, so that what slows the machine down slows all of them down.
    costs: dict[str, list[Cost]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            costs[name].append(cost_of(call))
    print(f"{model.n_iter_} passes over n={blocks.n_records:,}, the fastest of {ROUNDS} rounds")
    fastest = {name: Cost(*np.min(each, axis=0)) for name, each in costs.items()}
    for name, cost in fastest.items():
        print(f"{name}: {cost.cpu:.1f} s CPU, {cost.wall:.1f} s")

    fit, computing, reading, _ = fastest.values()
    ratio = fit.wall / max(computing.wall, reading.wall)
    print(f"wall clock: {ratio:.2f} of the larger of reading and computing (<= {MAX_RATIO})")
    print(f"CPU: {fit.cpu / blocks.n_records * 1e8:.1f} s for 10^8 points (<= {MAX_CPU:g})")
    print(f"memory: {peak_memory():.2f} GiB (<= {MAX_MEMORY:g})")


def fit_by_method(path: Path, name: str) -> None:
    """Fit a file by a method; print what it costs, and its passes."""
    rows = row_blocks(path)
    assert rows is not None, "a path has rows, or is refused"
    n_passes = 0

    def read() -> Iterator[np.ndarray]:
        nonlocal n_passes
        n_passes += 1
        return rows.read()

    counted = RowBlocks(rows.n_rows, rows.n_columns, read)
    model = getattr(methods, name)(K, epsilon=1.0, bounds=(-BOUND, BOUND))
    cost = cost_of(lambda: model.fit(counted, progress=True))
    print(
        f"{name}, a fit of n={rows.n_rows:,}: {n_passes} passes, {cost.cpu:.1f} s CPU, "
        f"{cost.wall:.1f} s, {peak_memory():.2f} GiB",
        flush=True,
    )


def read_bytes(path: Path) -> None:
    """Read a file from its beginning to its end."""
    buffer = bytearray(BUFFER)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def blocks_of(path: Path) -> Blocks:
    """Points of a file, as a fit reads them."""
    if is_grid_file(path):
        return open_grid(path).by_blocks()
    rows = row_blocks(path)
    assert rows is not None, "a path has rows, or is refused"
    box = np.full(D, BOUND)
    return Blocks.from_box(rows, -box, box, keep_remainders=False)


def sum_shards(n_rows: int) -> None:
    """Pass over all points, and over every shard by itself: the sums are equal."""
    box = np.full(D, BOUND)
    centers = first_centers()
    blocks = Blocks.from_box(generated(n_rows), -box, box, progress=True)
    totals: list[Sums] = []
    cost = cost_of(lambda: totals.append(blocks.total(lambda points: sums_of(points, centers))))
    print(f"one pass over {n_rows:,} generated points: {cost.cpu:.1f} s CPU, {cost.wall:.1f} s")
    print(f"memory: {peak_memory():.2f} GiB")
    ((sums, counts),) = totals
    for number, size in enumerate(sizes(n_rows)):
        points, _ = Points.from_box(shard(number, size), -box, box)
        shard_sums, shard_counts = sums_of(points, centers)
        sums -= shard_sums
        counts -= shard_counts
    assert not sums.any() and not counts.any(), "a pass is the sum of its shards"
    print("equal to the sum of the shards")


def sums_of(points: Points, centers: np.ndarray) -> Sums:
    """Sums and counts of the points nearest to each center."""
    return sums_and_counts(points, centers)


def first_centers() -> np.ndarray:
    """Centers (1, 8, 10), on the grid, for a pass."""
    return np.random.default_rng(2).integers(-30_000, 30_000, (1, K, D))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; see the module's text.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the process by default.

    Returns
    -------
    int
        0; an error says where sums differ.
    """
    parser = argparse.ArgumentParser(
        prog="python -m pkm.benchmarks.files",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("n", type=float, help="number of points, such as 1e8")
    parser.add_argument("file", nargs="?", help="file=PATH of a .parquet, .npy or .grid file")
    parser.add_argument("methods", nargs="?", help="methods=NAME,NAME, classes of pkm.methods")
    given = parser.parse_args(arguments)
    n_rows = int(given.n)
    if given.file is None:
        sum_shards(n_rows)
        return 0
    if not given.file.startswith("file="):
        parser.error(f"{given.file!r} must be file=PATH")
    path = Path(given.file.removeprefix("file="))
    if given.methods is None:
        fit_file(path, n_rows)
        return 0

    names = given.methods.removeprefix("methods=").split(",")
    if not given.methods.startswith("methods=") or not set(names) <= set(methods.__all__):
        parser.error(f"{given.methods!r} must be methods=NAME,NAME with classes of pkm.methods")
    if path.suffix == ".grid":
        parser.error(f"{given.file!r} must be a .parquet or .npy file, to count its passes")
    if not path.exists():
        in_own_process(write, path, n_rows)
    for name in names:
        in_own_process(fit_by_method, path, name)
    return 0


if __name__ == "__main__":
    main()
