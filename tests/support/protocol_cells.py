"""A cell, central and between parties."""

import dataclasses

import pytest

from pkm import federation
from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.central import Central
from pkm.experiments.fit.federation import Federation

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
            pytest.mark.skipif(not federation.mpi_available(), reason="needs mpi4py and mpirun"),
        ],
    ),
]
CENTRAL_CELL = Cell(
    method="fastlloyd",
    target="pkm.methods.FastLloyd",
    params={"variant": "published"},
    dataset="iris",
    preprocessing="minmax",
    k=3,
    epsilon=1.0,
    delta="auto",
    seeds=(3, 0, 1),
    metrics=("nicv",),
    timing=True,
    kind=Central(),
)


def protocol(cell=CENTRAL_CELL, **setting):
    return dataclasses.replace(cell, kind=Federation(**(SETTING | setting)))
