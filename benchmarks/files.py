"""A fit of more points than memory holds: seconds, memory, and the sum of its shards.

    python -m pkm.benchmarks.files 1e8 file=points.parquet
    python -m pkm.benchmarks.files 1e9

With a file (.parquet, .npy or .grid), points are written to it (and kept) where it is not there
yet, read once without computing, entered and passed over once without reading, and fitted by
FastLloyd; the last lines compare the fit with its limits, the wall clock with reading, computing
and the work of both, which means little while other processes use the cores. Without a file points
come from a generator: one pass over all of them is compared with the sum of the passes over each
shard by itself.
"""

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numba
import numpy as np

from pkm.compute import Points, sums_and_counts
from pkm.compute.blocks import Blocks, Sums
from pkm.compute.grid_file import GridBlock, is_grid_file, open_grid, pack
from pkm.methods import FastLloyd
from pkm.row_blocks import RowBlocks, row_blocks

D = 10
K = 8
SHARD = 1_000_000
BOUND = 2.0
SPREAD = np.float32(0.1)
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
class RepeatedBlock:
    """A block that is read again and again without a file, as many times as a pass needs it.

    Attributes
    ----------
    block : object
        With a length.
    n_blocks, n_columns : int
    """

    block: Any
    n_blocks: int
    n_columns: int = D

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.n_blocks * len(self.block)

    def blocks(self) -> Iterator[Any]:
        """Read all rows once."""
        return (self.block for _ in range(self.n_blocks))


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


def measured(what: str, call: Callable[[], object]) -> tuple[float, float, float]:
    """Print and return seconds of CPU and clock, and the peak memory so far in GiB."""
    wall = time.perf_counter()
    cpu = time.process_time()
    call()
    wall = time.perf_counter() - wall
    cpu = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{what}: {cpu:.1f} s CPU, {wall:.1f} s, peak memory {peak:.2f} GiB", flush=True)
    return cpu, wall, peak


def written_apart(path: Path, n_rows: int) -> None:
    """Write points in a process of its own, whose memory does not count."""
    process = multiprocessing.get_context("spawn").Process(target=write, args=(path, n_rows))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"the points could not be written to {path}: see the error above")


def fit_file(path: Path, n_rows: int) -> None:
    """Read a file, compute on as many points without reading, and fit it."""
    if not path.exists():
        written_apart(path, n_rows)
    blocks = blocks_of(path)
    rows = blocks.rows
    reading_cpu, reading, _ = measured(
        "reading, one pass", lambda: max(largest(block) for block in rows.blocks())
    )
    block = next(iter(rows.blocks()))
    computing = replace(blocks, rows=RepeatedBlock(block, rows.n_rows // len(block)))
    centers = first_centers()
    # Without the first call's loading of compiled code.
    sums_of(blocks.enter(block), centers)
    computing_cpu, computed, _ = measured(
        "computing, one pass", lambda: computing.total(lambda p: sums_of(p, centers))
    )
    model = FastLloyd(K, epsilon=1.0, bounds=(-BOUND, BOUND))
    cpu, wall, peak = measured("FastLloyd, a fit", lambda: model.fit(path, progress=True))
    print(f"{model.n_iter_} passes over n={rows.n_rows:,}")

    # No pass is shorter than either alone, nor than the work of both on all cores.
    n_threads = numba.get_num_threads()
    alone = model.n_iter_ * max(reading, computed)
    least = max(alone, model.n_iter_ * (reading_cpu + computing_cpu) / n_threads)
    print(
        f"wall clock: {wall / alone:.2f} of the larger of reading and computing (<= {MAX_RATIO}), "
        f"{wall / least:.2f} of what the work of both takes {n_threads} cores"
    )
    print(f"CPU: {cpu / rows.n_rows * 1e8:.1f} s for 10^8 points (<= {MAX_CPU:g})")
    print(f"memory: {peak:.2f} GiB (<= {MAX_MEMORY:g})")


def largest(block: Any) -> Any:
    """Largest value of a block, so that all of a mapped file is read."""
    return (block.rows if isinstance(block, GridBlock) else block).max()


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
    measured(
        f"one pass over {n_rows:,} generated points",
        lambda: totals.append(blocks.total(lambda points: sums_of(points, centers))),
    )
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
    given = parser.parse_args(arguments)
    if given.file is None:
        sum_shards(int(given.n))
    elif given.file.startswith("file="):
        fit_file(Path(given.file.removeprefix("file=")), int(given.n))
    else:
        parser.error(f"{given.file!r} must be file=PATH")
    return 0


if __name__ == "__main__":
    main()
