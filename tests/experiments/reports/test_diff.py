"""Two stores compared cell by cell."""

import dataclasses

import numpy as np
import pytest
from compared_stores import CELL, NOISE, put

from pkm.datasets import FileOptions
from pkm.experiments.reports.diff import (
    MOVED,
    ONLY_A,
    ONLY_B,
    SAME,
    UNTESTED,
    WITHIN,
    compare,
    compare_verdicts,
)
from pkm.experiments.store.cell_tables import read_cells
from pkm.experiments.store.store import Store


@pytest.fixture
def stores(tmp_path):
    return Store(tmp_path / "a"), Store(tmp_path / "b")


def difference(stores):
    return compare(stores, [read_cells(store) for store in stores])


def state(stores):
    (line,) = difference(stores).to_dict("records")
    return line["state"]


def test_same_bits_whatever_the_code_and_the_times(stores):
    nicv = NOISE.random(20)
    put(stores[0], nicv)
    put(stores[1], nicv, code="other", fit_seconds=5.0)
    found = difference(stores)
    assert found["state"].tolist() == [SAME]
    assert found["provenance"].tolist() == ["code"]


@pytest.mark.parametrize(
    ("shift", "noise", "expected"),
    [(0.0, 0.0, SAME), (1e-12, 0.0, WITHIN), (0.0, 0.01, WITHIN), (0.1, 0.01, MOVED)],
)
def test_paired_by_seed(stores, shift, noise, expected):
    # Without pairing, a shift by a tenth of the deviation is not found on 20 seeds.
    nicv = 1 + NOISE.normal(size=20)
    change = noise * NOISE.normal(size=20)
    put(stores[0], nicv)
    put(stores[1], nicv + change - change.mean() + shift)
    assert state(stores) == expected


def test_rows_and_persons_are_two_experiments(stores):
    visits = dataclasses.replace(CELL, dataset="visits-100-2-4")
    by_person = dataclasses.replace(visits, file=FileOptions(groups="user"))
    for cell, unit in ((visits, "row"), (by_person, "person")):
        put(stores[0], NOISE.random(20), cell, unit=unit)
    assert sorted(read_cells(stores[0])["unit"]) == ["person", "row"]


def test_only_shared_seeds_are_compared(stores):
    nicv = NOISE.normal(size=20)
    put(stores[0], nicv)
    put(stores[1], np.append(nicv[5:], 1e3), dataclasses.replace(CELL, seeds=(*range(5, 20), 99)))
    assert state(stores) == SAME


def test_other_seeds_are_not_tested(stores):
    put(stores[0], NOISE.normal(size=20))
    other = dataclasses.replace(CELL, seeds=tuple(range(100, 115)))
    put(stores[1], NOISE.normal(size=15), other)
    assert state(stores) == UNTESTED


def test_one_seed_is_not_tested(stores):
    cell = dataclasses.replace(CELL, seeds=(3,))
    put(stores[0], 1.0, cell)
    put(stores[1], 2.0, cell)
    assert state(stores) == UNTESTED


def test_value_that_is_lost_has_moved(stores):
    put(stores[0], NOISE.random(20))
    put(stores[1], np.nan)
    assert state(stores) == MOVED


def test_correction_over_cells(stores):
    # One p of 0.01 among 20 is no surprise; alone it is.
    base = NOISE.normal(size=20)
    change = NOISE.normal(size=20)
    change += 0.62 * change.std(ddof=1) - change.mean()
    cells = [dataclasses.replace(CELL, k=k) for k in range(2, 22)]
    put(stores[0], base, cells[0])
    put(stores[1], base + change, cells[0])
    assert state(stores) == MOVED
    for cell in cells[1:]:
        put(stores[0], base, cell)
        put(stores[1], base + change - change.mean() + 1e-3, cell)
    assert set(difference(stores)["state"]) == {WITHIN}


def test_cells_of_one_store_only(stores):
    nicv = NOISE.random(20)
    wine = dataclasses.replace(CELL, dataset="wine")
    put(stores[0], nicv)
    put(stores[1], nicv)
    put(stores[0], nicv, wine)
    found = difference(stores)
    assert found["state"].tolist() == [SAME, ONLY_A]
    assert found["dataset"].tolist() == ["iris", "wine"]


def test_of_several_cells_the_one_with_most_seeds_counts(stores):
    nicv = NOISE.random(20)
    put(stores[0], nicv)
    put(stores[0], nicv[:5] + 1, dataclasses.replace(CELL, seeds=tuple(range(5))))
    put(stores[1], nicv)
    assert state(stores) == SAME


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"adjacency": "replace"}, "adjacency differs in 1 cells; fastlloyd published"),
        ({"metrics_code": "new"}, "metrics_code differs .*has old in A and new in B"),
        (
            {"delta": 1e-5},
            r"budget differs in 1 cells; .*\(1, 1e-06\) in A and \(1, 1e-05\)",
        ),
    ],
)
def test_unlike_stores_are_refused(stores, columns, message):
    put(stores[0], 1.0, metrics_code="old")
    put(stores[1], 1.0, **{"metrics_code": "old"} | columns)
    with pytest.raises(ValueError, match=message):
        difference(stores)


def test_shared_budget_suffices(stores):
    twice = dataclasses.replace(CELL, epsilon=2.0)
    thrice = dataclasses.replace(CELL, epsilon=3.0)
    for store, other in zip(stores, (twice, thrice), strict=True):
        put(store, 1.0)
        put(store, 1.0, other)
    found = difference(stores)
    assert found["state"].tolist() == [SAME, ONLY_A, ONLY_B]


def test_verdicts_that_reports_decide_differently(stores):
    for store, verdict in zip(stores, ("holds", "refuted"), strict=True):
        table = store.root / "reports" / "dpm-quick" / "tables" / "claims.csv"
        table.parent.mkdir(parents=True)
        table.write_text(f"id,verdict\ndpm/a,{verdict}\ndpm/b,holds\n")
    assert compare_verdicts(stores) == {"dpm-quick: dpm/a": ("holds", "refuted")}
