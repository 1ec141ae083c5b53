"""Records of runs: what MLflow shows is computed from the rows."""

import numpy as np
import pandas as pd
import pytest

from pkm.analysis.claims.claim import read_claims
from pkm.analysis.tables.study import SeedMatrix
from pkm.experiments.config.groups import choices
from pkm.experiments.mlflow.run_records import (
    average_methods,
    find_sweeps,
    list_values,
    name_runs,
)


@pytest.mark.statistical
def test_interval_has_the_stated_coverage():
    values = np.random.default_rng(0).normal(size=(20, 1000))
    cells = pd.DataFrame({"cell": range(1000), "epsilon": 1.0})
    matrix = SeedMatrix("x", cells, np.arange(20), values, np.zeros(1000))
    columns = list_values("x", matrix).pivot(index="cell", columns="metric", values="value")
    is_covered = (columns["x_lo"] <= 0) & (columns["x_hi"] >= 0)
    # A binomial(1000, 0.95) variable has standard deviation 6.9; 5 of them are left once in 10^6.
    assert abs(is_covered.sum() - 950) < 5 * 6.9


def test_equal_values_have_no_interval():
    # The mean of equal values may be rounded, and their deviation is then not zero.
    for value in (0.1, 1 / 3, 7.0, 0.0):
        values = np.column_stack([np.full(100, value), np.linspace(0, 1, 100)])
        cells = pd.DataFrame({"cell": ["equal", "other"], "epsilon": 1.0})
        listed = list_values("x", SeedMatrix("x", cells, np.arange(100), values, np.zeros(2)))
        metrics = listed.groupby("cell")["metric"].agg(list).to_dict()
        assert metrics == {"equal": ["x"], "other": ["x", "x_lo", "x_hi"]}


def matrix_of(*pairs, values):
    cells = pd.DataFrame(pairs, columns=["method", "dataset"])
    return SeedMatrix("nicv", cells, np.arange(len(values)), np.array(values), np.zeros(len(pairs)))


def averages(*pairs, values):
    found = average_methods(matrix_of(*pairs, values=values), "nicv")
    return dict(zip(found["metric"], found["value"], strict=True))


def test_averages_are_over_the_data_sets_that_all_methods_have():
    pairs = (("a", "iris"), ("a", "wine"), ("b", "iris"))
    found = averages(*pairs, values=[[1.0, 9.0, 4.0], [3.0, 9.0, 6.0]])
    assert (found["nicv/a"], found["nicv/b"]) == (2.0, 5.0)
    # Student's t with one degree of freedom: 12.7062 standard errors of 1.
    assert found["nicv_hi/a"] - found["nicv/a"] == pytest.approx(12.7062, abs=1e-4)


def test_averages_are_none_where_a_method_has_several_cells_on_a_data_set():
    assert averages(("a", "iris"), ("a", "iris"), values=[[1.0, 2.0]]) == {}
    assert averages(("a", "iris"), ("b", "wine"), values=[[1.0, 2.0]]) == {}


def test_names_tell_runs_apart():
    base = {"method": "lloyd", "dataset": "iris", "k": "3"}
    assert name_runs([base, base | {"dataset": "wine"}]) == ["lloyd · iris", "lloyd · wine"]


def test_every_claim_names_sweeps_of_its_paper():
    for paper in choices("paper"):
        for claim in read_claims(paper)["claims"]:
            assert all(isinstance(name, str) for name in find_sweeps(claim.check))
    named = [find_sweeps(claim.check) for claim in read_claims("dpm")["claims"]]
    assert {"table", "em_mc", "em_mc_large"} in named
