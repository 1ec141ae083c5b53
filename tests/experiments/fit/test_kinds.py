"""The registry of kinds: one of them for a sweep; a fifth runs from its key to stored rows."""

from dataclasses import MISSING, dataclass
from pathlib import Path

import numpy as np
import pytest
from small_plans import PROFILE, cells, paper

from pkm.compute import Points
from pkm.experiments.cell import code_hash
from pkm.experiments.cell.kind import Kind
from pkm.experiments.config.settings import at_least, checked_field, to_list
from pkm.experiments.fit import kinds
from pkm.experiments.fit.execute import execute
from pkm.experiments.fit.kinds import expand_kinds
from pkm.experiments.fit.timing import timer
from pkm.experiments.plan import sweep
from pkm.experiments.plan.plan import make_plan
from pkm.experiments.store.store import Store
from pkm.schema import BY_NAME, Column

CLUSTERED = {"methods": ["fastlloyd"], "epsilon": 1.0}


@dataclass(frozen=True)
class Strided(Kind):
    """Every `stride`-th record is clustered; metrics are of all records."""

    key = "stride"

    stride: int = checked_field(MISSING, at_least(1))

    @classmethod
    def from_sweep(cls, value):
        return [] if value is None else [cls(stride) for stride in to_list(value)]

    def describe(self):
        return [f"stride {self.stride}"]

    def fit(self, resolved):
        method, data = resolved.method, resolved.data
        rows = data.points.rows[:: self.stride].astype(np.int64)
        with timer() as elapsed:
            run = method.fit_batch(
                Points.from_grid(rows), resolved.seeds, data.domain, secure=method.secure
            )
        return [(run, elapsed)], {}


@pytest.fixture
def fifth_kind(monkeypatch):
    """Add the line of the registry, and what follows from it and from a file when both are there.

    A setting that no other kind has is a line of `schema.csv`, too.
    """
    find_file = code_hash.find_source_file

    def find_source_file(module, *package):
        return Path(__file__) if module == __name__ else find_file(module, *package)

    monkeypatch.setattr(kinds, "KINDS", (*kinds.KINDS, Strided))
    monkeypatch.setattr(sweep, "SWEEP_KEYS", (*sweep.SWEEP_KEYS, Strided.key))
    monkeypatch.setattr(code_hash, "find_source_file", find_source_file)
    column = Column("stride", "integer", "every how many records", "", 1, 0, "", "setting", "all")
    monkeypatch.setitem(BY_NAME, column.name, column)


@pytest.mark.usefixtures("fifth_kind")
def test_a_fifth_kind_needs_a_file_and_a_line_of_the_registry(tmp_path):
    plan = make_plan(paper(**CLUSTERED, stride=[1, 2]), PROFILE)
    assert [cell.label for cell in plan.cells] == [
        f"fastlloyd · iris · ε=1 · stride {stride}" for stride in (1, 2)
    ]
    store = Store(tmp_path)
    for cell in plan.cells:
        store.write(cell, execute(cell).assign(git="", finished=0.0))
    rows = plan.read_rows(store)
    assert rows["stride"].tolist() == [1, 1, 2, 2]
    # Every first record is what a central cell clusters.
    (central,) = cells(**CLUSTERED)
    assert rows["nicv"].tolist()[:2] == execute(central)["nicv"].tolist()
    assert (rows["nicv"][2:] != rows["nicv"][:2].to_numpy()).all()
    assert rows["epsilon_spent"].tolist() == pytest.approx([1.0] * 4)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"coreset": 1}, "coreset=1 is not allowed"),
        ({"coreset": True, "unlearning": {}}, "null for a cell with unlearning"),
        ({"federation": {}, "unlearning": {}}, "null for a cell with federation"),
        ({"federation": {}, "bounds_factor": 10}, "1 for a cell with federation"),
        ({"federation": [("clients", 2)]}, "null or a mapping of clients"),
        ({"bounds_factor": 0.5}, "a number from 1 to 1,000,000"),
    ],
)
def test_a_sweep_asks_for_one_kind_of_cells(spec, message):
    with pytest.raises(ValueError, match=message):
        expand_kinds(spec)
