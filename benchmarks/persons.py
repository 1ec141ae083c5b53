"""Fits of a file with ids of persons, compared with fits of its rows alone."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pkm.benchmarks.files import (
    BOUNDS,
    N_COPIES,
    REPETITIONS,
    D,
    K,
    draw_copy,
    open_parquet,
    to_table,
    use_machine,
    write_copies,
)
from pkm.benchmarks.measurement import Measurement, min_times
from pkm.compute.storage.persons import count_persons
from pkm.methods import FastLloyd
from pkm.row_blocks import row_blocks

ROWS_PER_PERSON = 10
ID_TYPES = {"integers": pa.int64(), "texts": pa.string()}
#: Largest ratio for each type of ids. To read texts of eleven letters and to hash them
#: takes as long as to compute without ids.
MAX_RATIOS = {"integers": 2.5, "texts": 3.0}
MAX_BYTES = 12  # for each person


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
            write(path, points, id_type)
            fits.append(partial(model.fit, path, groups="user"))
        without, *times = min_times(time.process_time, *fits, repetitions=REPETITIONS)
        for id_type, seconds in zip(ID_TYPES, times, strict=True):
            yield Measurement(
                f"{title}, {id_type}: a fit",
                seconds / without,
                "of one without ids",
                at_most=MAX_RATIOS[id_type],
            )
        yield measure_memory_of_persons(path, title)


def write(path: Path, points: np.ndarray, id_type: str) -> None:
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
    return Measurement(f"{title}: memory", n_bytes, "bytes a person", MAX_BYTES)
