"""Fits of files, compared with reading or computing alone, and with ids of persons."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pkm.benchmarks.inputs import draw_mixture
from pkm.benchmarks.measurement import Measurement, min_times
from pkm.compute import sums_and_counts
from pkm.compute.storage.blocks import Blocks
from pkm.compute.storage.grid_file import open_grid, pack
from pkm.compute.storage.persons import count_persons
from pkm.experiments.fit.threads import limit_threads
from pkm.experiments.fit.timing import peak_memory
from pkm.methods import DPM, FastLloyd, KaplanStemmer, SynopsisKMeans
from pkm.row_blocks import RowBlocks, row_blocks

D = 10
K = 8
BOUNDS = (-2.0, 2.0)
BOX = np.repeat([BOUNDS], D, axis=0).T
N_POINTS = 10_000_000
N_COPIES = 10  # of the same rows in a file; another file holds them once
REPETITIONS = 3
BUFFER = 1 << 23  # bytes
METHODS = (DPM, KaplanStemmer, SynopsisKMeans)
MAX_RATIO = 1.15
MAX_SECONDS = 60.0  # of CPU, for 10^8 points
MAX_MEMORY = 1024  # MiB
ROWS_PER_PERSON = 10
ID_TYPES = {"integers": pa.int64(), "texts": pa.string()}
#: Largest ratio for each type of ids. To read texts of eleven letters and to hash them
#: takes as long as to compute without ids.
MAX_ID_RATIOS = {"integers": 2.5, "texts": 3.0}
MAX_ID_BYTES = 12  # for each person
#: A dictionary of ids is what pandas writes.
open_parquet = partial(
    pq.ParquetWriter,
    compression="none",
    use_dictionary=["user"],
)


def measure_files(scale: float) -> Iterator[Measurement]:
    """Measure fits of files of each format."""
    points = draw_copy(scale)
    with use_machine() as folder:
        for suffix in ("npy", "parquet", "grid"):
            path = folder / f"points.{suffix}"
            single_path = path.with_stem("single")
            write_copies(single_path, points, 1)
            write_copies(path, points, N_COPIES)
            yield from compare_with_reading(path, single_path)
        for method in METHODS:
            yield measure_method(method, folder / "points.npy")


def draw_copy(scale: float) -> np.ndarray:
    """Draw the rows that a file holds `N_COPIES` times."""
    n = round(scale * N_POINTS / N_COPIES)
    return draw_mixture(np.arange(n) % K, D, spread=0.1).astype(np.float32)


@contextmanager
def use_machine() -> Iterator[Path]:
    """Make a temporary folder for a block, which runs on all threads."""
    with (
        tempfile.TemporaryDirectory() as folder,
        limit_threads(numba.config.NUMBA_NUM_THREADS),
    ):
        yield Path(folder)


def write_copies(path: Path, points: np.ndarray, times: int) -> None:
    """Write the same rows a number of times to a file; its suffix tells the format."""
    n = len(points)
    if path.suffix == ".grid":
        rows = RowBlocks(times * n, D, lambda: iter([points] * times), "rows")
        pack(rows, path, *BOX)
    elif path.suffix == ".npy":
        array = np.lib.format.open_memmap(path, "w+", np.float32, (times * n, D))
        array.reshape(times, n, D)[:] = points
    else:
        table = to_table(points)
        with open_parquet(path, table.schema) as writer:
            for _ in range(times):
                writer.write_table(table)


def to_table(points: np.ndarray) -> pa.Table:
    """Return points as a table of columns x0, x1, ..."""
    return pa.table({f"x{h}": column for h, column in enumerate(points.T)})


def compare_with_reading(path: Path, single_path: Path) -> Iterator[Measurement]:
    """Compare a fit with reading all bytes, and with computing on each copy of rows."""
    blocks = open_blocks(path)
    single = open_blocks(single_path)
    centers = np.random.default_rng(2).integers(-30_000, 30_000, (1, K, D))
    model = FastLloyd(K, epsilon=1.0, bounds=BOUNDS)
    model.fit(single_path)

    def compute() -> None:
        for _ in range(N_COPIES * model.n_iter_):
            single.map_reduce(lambda points: sums_and_counts(points, centers))

    def read() -> None:
        for _ in range(model.n_iter_):
            read_bytes(path)

    def read_clocks() -> np.ndarray:
        return np.array([time.process_time(), time.perf_counter()])

    fit = partial(model.fit, path)
    times = min_times(read_clocks, fit, compute, read, repetitions=REPETITIONS)
    fitting, computing, reading = times[:, 1]
    ratio = fitting / max(computing, reading)
    seconds = times[0, 0] / blocks.n_records * 1e8
    with peak_memory() as peak:
        fit()
    title = f"{path.suffix} file, {blocks.n_records:,} x {D}: a fit"
    unit = "of reading or computing, the larger"
    yield Measurement(
        title,
        ratio,
        unit,
        at_most=MAX_RATIO,
    )
    yield Measurement(
        title,
        seconds,
        "s CPU for 10^8",
        at_most=MAX_SECONDS,
    )
    yield Measurement(
        title,
        peak.mebibytes,
        "MiB",
        at_most=MAX_MEMORY,
    )


def read_bytes(path: Path) -> None:
    """Read a file from its beginning to its end."""
    buffer = bytearray(BUFFER)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def open_blocks(path: Path) -> Blocks:
    """Return the points of a file, as a fit reads them."""
    if path.suffix == ".grid":
        return open_grid(path).to_blocks()
    return Blocks.quantize(row_blocks(path), *BOX, keep_remainders=False)


def measure_method(method: type, path: Path) -> Measurement:
    """Measure a fit by another method, and count its passes."""
    rows = row_blocks(path)
    n_passes = 0

    def read() -> Iterator[np.ndarray]:
        nonlocal n_passes
        n_passes += 1
        return rows.read()

    model = method(K, epsilon=1.0, bounds=BOUNDS)
    start = time.process_time()
    model.fit(RowBlocks(rows.n_rows, D, read))
    seconds = (time.process_time() - start) / rows.n_rows * 1e8
    title = f".npy file: {method.__name__}, {n_passes} passes"
    return Measurement(
        title,
        seconds,
        "s CPU for 10^8",
    )


def measure_persons(scale: float) -> Iterator[Measurement]:
    """Measure fits with ids in no order."""
    points = draw_copy(scale)
    title = f"{N_COPIES * len(points):,} x {D} with ids of persons"
    model = FastLloyd(K, epsilon=1.0, delta=1e-9, bounds=BOUNDS)
    with use_machine() as folder:
        plain = folder / "none.parquet"
        write_copies(plain, points, N_COPIES)
        fits = [partial(model.fit, plain)]
        for id_type in ID_TYPES:
            path = plain.with_stem(id_type)
            write_with_ids(path, points, id_type)
            fits.append(partial(model.fit, path, groups="user"))
        without, *times = min_times(time.process_time, *fits, repetitions=REPETITIONS)
        for id_type, seconds in zip(ID_TYPES, times, strict=True):
            yield Measurement(
                f"{title}, {id_type}: a fit",
                seconds / without,
                "of one without ids",
                at_most=MAX_ID_RATIOS[id_type],
            )
        yield measure_memory_of_persons(path, title)


def write_with_ids(path: Path, points: np.ndarray, id_type: str) -> None:
    """Write the same points a number of times to a file, with new ids each time."""
    generator = np.random.default_rng(0)
    n_persons = N_COPIES * len(points) // ROWS_PER_PERSON
    table = to_table(points)
    schema = table.schema.append(pa.field("user", ID_TYPES[id_type]))
    with open_parquet(path, schema) as writer:
        for _ in range(N_COPIES):
            ids = pa.array(generator.integers(n_persons, size=len(points)))
            if id_type == "texts":
                ids = pc.binary_join_element_wise("user", ids.cast("string"), "-")
            writer.write_table(table.append_column("user", ids))


def measure_memory_of_persons(path: Path, title: str) -> Measurement:
    """Measure the memory that is kept for each person."""
    rows = row_blocks(path, "user")
    assert rows is not None, "it is a file"
    persons = count_persons(rows.ids())
    n_bytes = persons.hashes.nbytes + persons.packed.nbytes
    n_bytes /= persons.n_persons
    return Measurement(
        f"{title}: memory",
        n_bytes,
        "bytes a person",
        MAX_ID_BYTES,
    )
