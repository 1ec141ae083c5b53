"""Cells that release coresets."""

import dataclasses

import numpy as np
import pytest

from pkm.compute import SCALE
from pkm.experiments.cell.cell import Cell
from pkm.experiments.fit.coreset import Coreset
from pkm.experiments.fit.execute import execute
from pkm.experiments.fit.inputs import build_method, prepare_cell_data
from pkm.experiments.plan.feasibility import check_cell, find_dataset_info
from pkm.metrics.coresets import center_sets, compute_costs

CELL = Cell(
    "kaplan_stemmer_coreset", "pkm.methods.KaplanStemmer", {"radius": 1.0},
    "planted-2000-4-4-0.05", "public", 4, 1.0, 1e-6, (0, 1), ("nicv",), kind=Coreset(),
)  # fmt: skip


def test_ratio_is_that_of_the_released_coreset():
    rows = execute(CELL)
    prepared = prepare_cell_data(CELL, None)
    sets = center_sets(prepared.points, 4)
    additive = np.log(2000) ** 2
    costs = compute_costs(prepared.points, sets) + additive
    for _, row in rows.iterrows():
        coreset = build_method(CELL).draw_coreset(
            prepared.points, row["seed"], domain=prepared.domain
        )
        estimates = [coreset.cost_estimate(centers / SCALE) for centers in sets]
        logarithms = np.log((np.array(estimates) + additive) / costs)
        assert row["coreset_cost_ratio"] == pytest.approx(np.exp(np.abs(logarithms).max()))
        assert row["n_centers"] == len(coreset.points)
        assert row["epsilon_spent"] == pytest.approx(1.0)


def test_local_coreset_is_granted_the_local_error():
    local = "pkm.methods.KaplanStemmerLocal"
    rows = execute(dataclasses.replace(CELL, target=local, delta=None))
    assert (rows["coreset_cost_ratio"] >= 1).all()
    assert (rows["trust"] == "local").all()


def test_method_without_coresets_is_refused_before_it_runs():
    fastlloyd = "pkm.methods.FastLloyd"
    cell = dataclasses.replace(CELL, method="fastlloyd", target=fastlloyd, params={})
    with pytest.raises(ValueError, match="one that releases coresets where coreset=true"):
        check_cell(cell, find_dataset_info(cell.dataset, cell.file, None), None)
