"""Fits of a file with ids of persons, compared with fits of its rows alone."""

import tempfile
import time
from functools import partial
from pathlib import Path

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pkm.benchmarks.inputs import draw_mixture
from pkm.benchmarks.measurement import Measurement, min_times
from pkm.compute.storage.persons import count_persons
from pkm.experiments.fit.threads import limit_threads
from pkm.methods import FastLloyd
from pkm.row_blocks import row_blocks

D = 10
K = 8
N_ROWS = 10_000_000
ROWS_PER_PERSON = 10
N_COPIES = 10  # row groups of a file, with the same points
REPETITIONS = 3
#: Largest ratio for each type of ids. To read texts of eleven letters and to hash them
#: takes as long as to compute without ids.
MAX_RATIOS = {"integers": 2.5, "texts": 3.0}
MAX_BYTES = 12  # for each person


def measure_persons(scale: float) -> list[Measurement]:
    """Measure fits with ids in no order, in a temporary folder, on all threads."""
    n = round(scale * N_ROWS / N_COPIES)
    points = draw_mixture(np.arange(n) % K, D, spread=0.1).astype(np.float32)
    model = FastLloyd(K, epsilon=1.0, delta=1e-9, bounds=(-2.0, 2.0))
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        limit_threads(numba.config.NUMBA_NUM_THREADS),
    ):
        plain = Path(folder) / "none.parquet"
        write(plain, points, "none")
        fits = [partial(model.fit, plain)]
        for id_type in MAX_RATIOS:
            path = plain.with_stem(id_type)
            write(path, points, id_type)
            fits.append(partial(model.fit, path, groups="user"))
        without, *times = min_times(time.process_time, *fits, repetitions=REPETITIONS)
        title = f"{N_COPIES * n:,} x {D} with ids of persons"
        for (id_type, at_most), seconds in zip(MAX_RATIOS.items(), times, strict=True):
            rows.append(
                Measurement(
                    f"{title}, {id_type}: a fit",
                    seconds / without,
                    "of one without ids",
                    at_most=at_most,
                )
            )
        rows.append(measure_memory_of_persons(path, title))
    return rows


def write(path: Path, points: np.ndarray, id_type: str) -> None:
    """Write the same points a number of times to a file, with new ids each time."""
    generator = np.random.default_rng(0)
    n_persons = N_COPIES * len(points) // ROWS_PER_PERSON
    table = pa.table({f"x{h}": column for h, column in enumerate(points.T)})
    types = {"none": [], "integers": [("user", "int64")], "texts": [("user", "string")]}
    schema = pa.schema([*table.schema, *types[id_type]])
    options = {"compression": "none", "use_dictionary": ["user"]}
    with pq.ParquetWriter(path, schema, **options) as writer:
        for _ in range(N_COPIES):
            ids = pa.array(generator.integers(n_persons, size=len(points)))
            if id_type == "texts":
                ids = pc.binary_join_element_wise("user", ids.cast("string"), "-")
            columns = [*table.columns, ids][: len(schema)]
            writer.write_table(pa.table(columns, schema))


def measure_memory_of_persons(path: Path, title: str) -> Measurement:
    """Measure the memory that is kept for each person."""
    rows = row_blocks(path, "user")
    assert rows is not None, "it is a file"
    persons = count_persons(rows.ids())
    n_bytes = persons.hashes.nbytes + persons.packed.nbytes
    return Measurement(
        f"{title}: memory",
        n_bytes / persons.n_persons,
        "bytes a person",
        at_most=MAX_BYTES,
    )
