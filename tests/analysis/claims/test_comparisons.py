"""What a check compares: averages, ratios, shares of runs and what is missing."""

import numpy as np
import pandas as pd
import pytest
import reports
from fabricated.fastlloyd import small_rows
from fabricated.rows import with_params
from fabricated.studies import ROWS, study_of
from two_methods import (
    ABLATION,
    BY_SET,
    DISAGREEING,
    FIGURE2,
    ablation_study,
    evaluate_check,
    make_study,
    rows_of,
    shifted_study,
)

from pkm.analysis.claims import verdicts
from pkm.analysis.claims.comparisons import measure_ratios
from pkm.analysis.claims.findings import (
    HOLDS,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    Context,
    MissingRows,
)
from pkm.analysis.tables.study import Study, matches
from pkm.arrow import read_parameters


@pytest.mark.parametrize("left, right, verdict", [(2, 0, NOT_REPRODUCED), (0, 2, HOLDS)])
def test_a_mean_of_zero_is_compared_by_the_larger_mean(left, right, verdict):
    rows = rows_of(lambda *cell: 0.0)
    is_left = rows["method"] == "fastlloyd_published"
    rows["nicv"] = np.where(is_left, left, right) * rows["nicv"]
    finding = evaluate_check(FIGURE2, Study(rows))
    assert finding.verdict == verdict
    expected = 2.0 if left else 0.0
    ratios = finding.evidence[["ratio", "low", "high"]].to_numpy()
    assert ratios == pytest.approx(np.full(ratios.shape, expected))


@pytest.mark.parametrize("kind", ["ordering", "bound"])
def test_relative_averages_default_to_ratios_of_means(kind):
    study = ablation_study(DISAGREEING)
    check = ABLATION | {"type": kind}
    if kind == "bound":
        check["at_most"] = 1.0
    default = evaluate_check(check, study)
    alternative = evaluate_check(check | {"average": "mean_of_ratios"}, study)
    assert default.verdict == HOLDS
    assert alternative.verdict == NOT_REPRODUCED
    ratio_of_means = default.evidence.iloc[0]
    mean_of_ratios = alternative.evidence.iloc[0]
    if kind == "ordering":
        assert ratio_of_means["left_mean"] == pytest.approx(91.9 / 101, rel=1e-3)
        assert mean_of_ratios["left_mean"] == pytest.approx((0.9 + 1.9) / 2, rel=1e-3)
        assert ratio_of_means["ratio"] == pytest.approx(91.9 / 96, rel=1e-3)
    else:
        assert ratio_of_means["ratio"] == pytest.approx(91.9 / 96, rel=1e-3)
        assert mean_of_ratios["ratio"] == pytest.approx(2.8 / 1.95, rel=1e-3)
    with pytest.raises(ValueError, match="mean_of_ratios"):
        evaluate_check(check | {"average": "median"}, study)


def test_missing_values_of_the_best_are_reported():
    check = reports.check_of("fastlloyd", "iterations-range-useful")
    three_sets = {"dataset": ["iris", "s1", "wine"]}
    parts = [part | {"over": part["over"] | three_sets} for part in check["parts"]]
    check = check | {"parts": parts}
    context = verdicts.Context()
    rows = small_rows()
    finding = verdicts.evaluate_check(Study(rows), check, context)
    assert "absent: n_iterations 4, 6" in finding.missing
    three = pd.Series([given == {"n_iterations": 3} for given in read_parameters(rows)])
    mask = reports.row_mask(rows, sweep="iterations") & three
    parts = [rows]
    for n_iterations in (4, 6):
        changed = with_params(rows[mask], {"n_iterations": n_iterations})
        parts.append(changed.assign(cell=rows.loc[mask, "cell"] + str(n_iterations)))
    complete = Study(pd.concat(parts, ignore_index=True))
    finding = verdicts.evaluate_check(complete, check, context)
    assert not finding.missing


def test_share_of_runs_in_which_a_rule_holds():
    study = make_study(lambda name, epsilon: 5.0 if name == "iris" else 0.0)
    rule = {"columns": {"allowed": "12 + 0 * n"}, "share_of_runs": "value <= allowed"}
    check = BY_SET | rule | {"type": "bound", "at_least": 0.8}
    finding = evaluate_check(check, study)
    panel = study.matrix("real", "nicv")
    case = {"method": "fastlloyd_published", "dataset": "s1", "epsilon": 1.0}
    measured = panel.values[:, matches(panel.cells, case)][:, 0]
    line = finding.evidence.query("dataset == 's1' and epsilon == 1.0").iloc[0]
    assert line["share_of_runs"] == np.mean(measured <= 12)
    assert line["largest_of_runs"] == measured.max()
    assert line["mean_of_runs"] == pytest.approx(measured.mean())
    assert line["allowed"] == 12
    assert finding.verdict == NOT_REPRODUCED

    # Planned runs without rows may break the rule.
    easy = check | {"share_of_runs": "value <= 100"}
    assert evaluate_check(easy, study).verdict == HOLDS
    absent = reports.missing_cell("real", "fastlloyd_published", "wine", 1.0, "not run")
    finding = evaluate_check(easy, study, absent)
    assert finding.verdict == NOT_CONTRADICTED
    assert "1 planned cells without rows, of wine" in finding.missing


def test_sweep_without_rows_reports_the_reason():
    missing = reports.missing_cell("g2", "lloyd_published", "g2-2-10", 0.1, "no file")
    finding = evaluate_check(FIGURE2 | {"sweep": "g2"}, shifted_study(0.0), missing)
    assert finding.verdict == NOT_RUN
    assert "g2" in finding.summary
    assert "no file" in finding.summary


PLANTED_K = {
    "sweep": "planted_k",
    "metric": "nicv",
    "left": [{"method": "dist_dp_published", "rho": 0.01}],
    "over": {"k": "any"},
}


def test_cost_excess_and_ratio():
    study = study_of("distdp")
    relative = {"relative_to": "kmeans"}
    difference = {**relative, "average": "difference"}
    mean, cost, excess, ratio = (
        measure_ratios(study, PLANTED_K | keys, Context()).values[0]
        for keys in ({}, {"times": "n"}, {"times": "n", **difference}, relative)
    )
    n = 2500 * np.array([4, 8, 16, 32])
    optimum = mean - excess / n
    assert cost == pytest.approx(mean * n)
    assert excess == pytest.approx([16, 64, 256, 1024], rel=0.02)
    assert ratio == pytest.approx(mean / optimum)


def test_values_are_compared_with_those_before():
    study = study_of("distdp")
    check = {
        "sweep": "figure1",
        "metric": "nicv",
        "left": ["dist_dp_published"],
        "over": {"dataset": "any", "k": "any"},
    }
    all_costs, steps = (
        by_case(measure_ratios(study, check | keys, Context())) for keys in ({}, {"along": "k"})
    )
    assert len(steps) == len(all_costs) - 1 >= 1
    pd.testing.assert_frame_equal(steps, (all_costs / all_costs.shift()).iloc[1:])
    first = f"k == {all_costs.index[0]}"
    with pytest.raises(MissingRows, match="only one value of k is stored"):
        measure_ratios(study, check | {"along": "k", "where": first}, Context())


def by_case(bootstrap):
    """Values on the sample: k down, data sets across."""
    cases = bootstrap.cases.assign(value=bootstrap.values[0])
    return cases.pivot(index="k", columns="dataset", values="value")


def test_ambiguous_selectors_are_refused():
    study = study_of("distdp")
    left = [{"method": ["dist_dp_published", "dist_dp"]}]
    check = {"sweep": "planted_rho", "metric": "nicv", "left": left, "over": {"rho": "any"}}
    with pytest.raises(ValueError, match="matches two cells"):
        measure_ratios(study, check, Context())


def test_selector_without_a_cell_is_missing():
    study = study_of("distdp")
    left = [{"method": "dist_dp_published", "n": 17}]
    with pytest.raises(MissingRows):
        measure_ratios(study, PLANTED_K | {"left": left}, Context())


def test_ambiguous_selector_across_data_sets_is_refused():
    check = {
        "type": "bound",
        "sweep": "timing",
        "metric": "fit_cpu_seconds",
        "across": True,
        "left": ["dpm_published"],
        "right": [{"method": "dpm_published", "dataset": "gas"}],
        "over": {},
        "at_most": 1,
    }
    with pytest.raises(ValueError, match="several data sets"):
        reports.evaluate_check("dpm", check, ROWS["dpm"]())
