"""Records of runs: what MLflow shows is computed from the rows."""

import math

import numpy as np
import pandas as pd
import pytest

from pkm.analysis.claims.claim import papers_with_claims, read_claims
from pkm.analysis.tables.study import SeedMatrix
from pkm.experiments.mlflow.run_records import Part, averages, identity_of, summaries, sweeps_of


@pytest.mark.statistical
def test_interval_has_the_stated_coverage():
    generator = np.random.default_rng(0)
    found = [summaries(["x"], generator.normal(size=(20, 1))) for _ in range(1000)]
    n_covered = sum(values["x_lo"] <= 0 <= values["x_hi"] for values in found)
    # A binomial(1000, 0.95) variable has standard deviation 6.9; 5 of them are left once in 10^6.
    assert abs(n_covered - 950) < 5 * 6.9


def test_summaries_leave_out_what_is_not_finite():
    values = np.array([[math.inf, math.inf, 1.0], [2.0, math.nan, 3.0]])
    found = summaries(["a", "b", "c"], values)
    assert {name for name in found if name[0] in "ab"} == {"a"}
    assert found["a"] == 2.0
    assert found["c"] == 2.0
    assert found["c_sd"] == pytest.approx(math.sqrt(2))
    # Student's t with one degree of freedom: 12.706 standard errors of 1.
    assert found["c_hi"] - found["c"] == pytest.approx(12.7062, abs=1e-4)
    assert found["c"] - found["c_lo"] == pytest.approx(found["c_hi"] - found["c"])


def test_summaries_equal_those_of_pandas():
    values = np.random.default_rng(1).exponential(size=(7, 5))
    frame = pd.DataFrame(values, columns=list("abcde"))
    found = summaries(list("abcde"), values)
    for name in "abcde":
        assert found[name] == pytest.approx(frame[name].mean())
        assert found[f"{name}_sd"] == pytest.approx(frame[name].std())


def panel_of(*pairs, values):
    cells = pd.DataFrame(pairs, columns=["method", "dataset"])
    return SeedMatrix("nicv", cells, np.arange(len(values)), np.array(values), np.zeros(len(pairs)))


def test_averages_are_over_the_data_sets_that_all_methods_have():
    panel = panel_of(("a", "iris"), ("a", "wine"), ("b", "iris"), values=[[1.0, 9.0, 4.0]])
    assert averages(panel, "nicv") == {"nicv/a": 1.0, "nicv/b": 4.0}
    both = panel_of(("a", "iris"), ("a", "wine"), values=[[1.0, 9.0], [3.0, 9.0]])
    found = averages(both, "nicv")
    assert found["nicv/a"] == 5.5
    # Over seeds: 5 and 6.
    assert found["nicv_sd/a"] == pytest.approx(math.sqrt(0.5))


def test_averages_are_none_where_a_method_has_several_cells_on_a_data_set():
    assert averages(panel_of(("a", "iris"), ("a", "iris"), values=[[1.0, 2.0]]), "nicv") == {}
    assert averages(panel_of(("a", "iris"), ("b", "wine"), values=[[1.0, 2.0]]), "nicv") == {}


def test_every_claim_names_sweeps_of_its_paper():
    for paper in papers_with_claims():
        for claim in read_claims(paper)["claims"]:
            assert all(isinstance(name, str) for name in sweeps_of(claim.check))
    named = {claim.id: sweeps_of(claim.check) for claim in read_claims("dpm")["claims"]}
    assert any(found == {"table", "em_mc", "em_mc_large"} for found in named.values())


def test_identities_tell_parts_apart():
    parts = [Part("dpm", "quick"), Part("dpm", "paper"), Part("dpm", "quick", "table")]
    assert len({part.identity for part in parts}) == 3
    assert Part("dpm", "quick").identity == Part("dpm", "quick").identity
    assert Part("dpm", "quick", "table").name == "table (quick)"
    assert identity_of("a", "b") != identity_of("ab")
