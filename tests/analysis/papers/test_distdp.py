"""The report on distance-based privacy on fabricated rows: claims that can hold and fail,
figures.
"""

import math
import re
from functools import partial

import charts
import numpy as np
import pandas as pd
import pytest
import reports
from fabricated.distdp import DP, INTERPRETATIONS, KS, LEVELS, MOVED, RHOS, SIZES, all_rows
from fabricated.rows import change_charges

from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.findings import (
    HOLDS,
    INCONCLUSIVE,
    NOT_COMPARABLE,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
)
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.papers.distdp import find_strategies
from pkm.analysis.tables.study import REQUIRED
from pkm.methods.distance.dist_dp import DistDP
from pkm.privacy import SCALE
from pkm.privacy.queries.moved_records import soft_sensitivity

PAPER = "distdp"
CONTENT = read_claims(PAPER)
SPECS = {spec.name: spec for spec in read_figures(PAPER)}


evaluate_claim = partial(reports.evaluate_claim, PAPER)
draw = partial(reports.draw, PAPER)
figure = partial(reports.figure_of, PAPER)


def changed(column, change, **where):
    """Copy of all rows in which one column of selected rows changes; `change` takes its values."""
    return reports.changed(all_rows(), column, lambda rows: change(rows[column]), **where)


# --- slopes ---------------------------------------------------------------------------------------


def test_rows_have_the_schema(study):
    assert set(REQUIRED) <= set(all_rows().columns)
    assert "rho" in study.cells


# --- claims ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_claim_has_a_verdict(findings):
    assert len(findings) == 26
    unjudged = {
        "mpc-constant-rounds": NOT_RUN,
        "runtime-minutes": NOT_COMPARABLE,
        "bicriteria": NOT_RUN,  # a test says what is known
    }
    checks = {claim.id.split("/")[1]: claim.check for claim in CONTENT["claims"]}
    numbers = {name: finding.summary for name, finding in findings.items()}
    for name, finding in findings.items():
        # Some of the data sets have rows, so claims on all of them are partial.
        is_partial = finding.missing or checks[name].get("upper_bound")
        judged = NOT_CONTRADICTED if is_partial else HOLDS
        assert finding.verdict == unjudged.get(name, judged), numbers
    # Other interpretations hold like the default one; every claim on the method has the printed
    # radius among them.
    assert not [name for name, text in numbers.items() if "instead" in text]
    on_method = {
        name
        for name, check in checks.items()
        if "dist_dp_published" in str({**check, "variants": None})
    }
    with_printed_radius = {
        name
        for name, text in numbers.items()
        if re.search("With the printed radius: (holds|not contradicted) as well.", text)
    }
    without_printed_radius = {
        "lower-bound-k-rho2",
        "order-random-points-above-dp",
        "runtime-minutes",  # not comparable whatever the radius
    }
    assert with_printed_radius == on_method - without_printed_radius
    assert "dist_dp_printed" in checks["lower-bound-k-rho2"]["left"]


def test_missing_data_sets_make_verdicts_partial(findings):
    assert "20 of 55 comparisons" in findings["order-dist-below-dp"].missing
    assert "brightkite" in findings["dataset-shapes"].missing


def double_point_sensitivity(charges):
    for charge in charges:
        if charge.get("point_sensitivity") == 0.05:
            charge["point_sensitivity"] = 0.1


def rename_cell_counts(charges):
    for charge in charges:
        charge["label"] = charge["label"].replace("cell_counts", "something")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "column", "change", "where"),
    [
        (
            "order-dist-below-dp",
            "nicv",
            lambda x: 3 * x,
            {"method": "dist_dp_published", "sweep": "figure1"},
        ),
        (
            "order-nonprivate-lowest",
            "nicv",
            lambda x: 2 * x,
            {"method": "kmeans", "sweep": "figure1"},
        ),
        (
            "order-random-points-worst",
            "nicv",
            lambda x: x / 6,
            {"method": "dist_dp_random_points", "sweep": "figure1"},
        ),
        (
            "order-random-points-above-dp",
            "nicv",
            lambda x: x / 3,
            {"method": "dist_dp_random_points", "k": 16},
        ),
        ("order-all-four", "nicv", lambda x: 3 * x, {"method": "dist_dp_published", "k": 8}),
        (
            "slightly-worse-than-nonprivate",
            "nicv",
            lambda x: 1.4 * x,
            {"method": "dist_dp_published", "dataset": "s1"},
        ),
        (
            "closer-to-nonprivate-than-to-dp",
            "nicv",
            lambda x: 1.7 * x,
            {"method": "dist_dp_published", "dataset": "s1"},
        ),
        ("cost-falls-with-k", "nicv", lambda x: 5 * x, {"method": "dist_dp_published", "k": 16}),
        (
            "monotone-in-rho",
            "nicv",
            lambda x: 0 * x + 0.0125,
            {"cell": 'figure2|dist_dp|s1|8|1.0|{"rho": 1.0}'},
        ),
        (
            "small-rho-near-nonprivate",
            "nicv",
            lambda x: 1.1 * x,
            {"cell": 'figure2|dist_dp|s1|8|1.0|{"rho": 0.0001}'},
        ),
        (
            "rho-one-near-dp",
            "nicv",
            lambda x: x / 3,
            {"cell": 'figure2|dist_dp|s1|8|1.0|{"rho": 1.0}'},
        ),
        ("dataset-shapes", "d", lambda x: x + 1, {"dataset": "s1"}),
        (
            "additive-error-free-of-radius",
            "nicv",
            lambda x: x**0.5,
            {"sweep": "planted_radius", "method": "dist_dp_published"},
        ),
        (
            "additive-error-rho-squared",
            "nicv",
            lambda x: 0.0016 + (x - 0.0016) ** 2,
            {"sweep": "planted_rho", "method": "dist_dp_published"},
        ),
        (
            "lower-bound-k-rho2",
            "nicv",
            lambda x: 1e-5 * x,
            {"sweep": "lower_bound", "method": "dist_dp", "k": 64},
        ),
        (
            "constant-multiplicative",
            "nicv",
            lambda x: 20 * x,
            {"sweep": "planted_factor", "method": "dist_dp_published"},
        ),
        (
            "runtime-linear",
            "fit_cpu_seconds",
            lambda x: x**2,
            {"sweep": "timing", "method": "dist_dp_published"},
        ),
        (
            "extra-k-dependence",
            "nicv",
            lambda x: 0.0016 + 1e-6 / (x - 0.0016),
            {"sweep": "planted_k", "method": "dist_dp_published"},
        ),
        (
            "release-is-dist-dp",
            "charges",
            lambda x: change_charges(x, double_point_sensitivity),
            {"method": "dist_dp_published"},
        ),
        (
            "budget-three-parts",
            "charges",
            lambda x: change_charges(x, rename_cell_counts),
            {"method": "dist_dp_published"},
        ),
    ],
)
def test_claims_can_fail(name, column, change, where):
    rows = changed(column, change, **where)
    check = reports.check_of("distdp", name)
    is_weak = "upper_bound" in check or "caveat" in check
    assert evaluate_claim(name, rows).verdict == (INCONCLUSIVE if is_weak else NOT_REPRODUCED)


def test_a_bound_that_is_exceeded_is_open():
    rows = changed("mean_distance", lambda x: 20 * x, method="dist_dp_median_published")
    assert evaluate_claim("constant-multiplicative-median", rows).verdict == INCONCLUSIVE


def test_other_interpretations_are_reported(findings):
    assert (
        "With the sound variant: not contradicted as well"
        in findings["small-rho-near-nonprivate"].summary
    )
    rows = changed("nicv", lambda x: 3 * x, method="dist_dp", sweep="figure1")
    finding = evaluate_claim("order-dist-below-dp", rows)
    assert finding.verdict == NOT_CONTRADICTED
    assert "With the printed radius: not contradicted as well." in finding.summary
    assert "Sound variants: not reproduced instead. Ratio between" in finding.summary
    rows = changed("nicv", lambda x: 3 * x, method="dist_dp_printed", sweep="figure1")
    finding = evaluate_claim("order-all-four", rows)
    assert (
        "With the printed radius: not reproduced instead. (1) not contradicted" in finding.summary
    )
    assert finding.summary.endswith("Sound variants: not contradicted as well.")


def test_lower_bound_in_units_of_rho(findings):
    finding = findings["lower-bound-k-rho2"]
    evidence = finding.evidence
    assert len(evidence) == 8
    ratio = 1e-3 / (0.35 * 0.0005**2)
    for row in evidence.itertuples():
        assert row.ratio == pytest.approx(ratio, rel=0.05)
    # Kept by so much it tests nothing, which the finding says.
    assert finding.verdict == NOT_CONTRADICTED
    slack = f"Kept by a factor of {evidence['ratio'].min():.3g} at least: so wide a bound"
    assert slack in finding.summary
    rows = changed("nicv", lambda x: 10 / ratio * x, sweep="lower_bound", k=64)
    finding = evaluate_claim("lower-bound-k-rho2", rows)
    assert "Kept by a factor of" in finding.summary
    assert "tests nothing" not in finding.summary
    rows = changed("nicv", lambda x: 0.5e-3 / ratio * x / 1e-3, sweep="lower_bound", k=64)
    finding = evaluate_claim("lower-bound-k-rho2", rows)
    assert finding.verdict == INCONCLUSIVE
    assert "Kept by" not in finding.summary


def test_lower_bound_reports_refusing_methods():
    reason = "failed: epsilon=0.1 with n=32 points and rho=0.05 is too little"
    missing = reports.missing_cell(
        "lower_bound", "dist_dp_published", "half-8-32-0.05", 0.1, reason
    )
    rows = reports.without(all_rows(), sweep="lower_bound", method="dist_dp_published", k=32)
    finding = evaluate_claim("lower-bound-k-rho2", rows, missing)
    assert finding.verdict == NOT_CONTRADICTED
    assert finding.missing == "7 of 8 comparisons can be made"
    rows = reports.without(all_rows(), sweep="lower_bound")
    finding = evaluate_claim("lower-bound-k-rho2", rows, missing)
    assert finding.verdict == NOT_RUN
    assert reason in finding.summary


def test_shorter_sweep_reports_its_range(findings):
    missing = findings["constant-multiplicative"].missing
    assert "5 of 11 comparisons" in missing
    assert "n up to 300,000 instead of 1,000,000" in missing
    assert "k up to 8 instead of 32" in missing
    assert "d up to" not in missing


def test_budget_part_must_not_exceed_its_third():
    def double_second_mu(charges):
        charges[1]["mu"] *= 2

    def change(column):
        return change_charges(column, double_second_mu)

    rows = changed("charges", change, method="dist_dp_published", sweep="figure1")
    finding = evaluate_claim("budget-three-parts", rows)
    assert finding.verdict == NOT_REPRODUCED
    assert "cell_counts" not in finding.missing
    rows = changed("epsilon_spent", lambda x: 2 * x, method="dist_dp_published", sweep="grid")
    finding = evaluate_claim("budget-three-parts", rows)
    assert finding.verdict == NOT_REPRODUCED


def test_nonpositive_excess_has_no_slope():
    rows = changed("nicv", lambda x: 0 * x + 0.001, sweep="planted_rho", method="dist_dp_published")
    finding = evaluate_claim("additive-error-rho-squared", rows)
    assert finding.verdict == INCONCLUSIVE
    assert "what is not above zero" in finding.summary


def test_few_seeds_are_inconclusive():
    rows = all_rows().query("seed < 3")
    for name in (
        "order-dist-below-dp",
        "additive-error-rho-squared",
        "closer-to-nonprivate-than-to-dp",
    ):
        assert evaluate_claim(name, rows).verdict == INCONCLUSIVE


def test_claims_without_rows_report_the_reason():
    missing = reports.missing_cell("figure1", "dist_dp_published", "skin", 1.0, "no such file")
    findings = reports.evaluate_claims("distdp", reports.foreign_rows(), missing)
    evaluated = {name for name, finding in findings.items() if finding.verdict != NOT_RUN}
    assert evaluated == {"rho-005-meaning", "rho-zero-is-nonprivate", "runtime-minutes"}
    assert "no such file" in findings["order-dist-below-dp"].summary


# --- figures and report ---------------------------------------------------------------------------


def test_figure1_curves_and_labels(study):
    result = figure("figure1")
    panels = charts.panels_of(result)
    titles = [panel.title for panel in panels]
    assert titles[0] == "(a) cities (generated)"
    assert len(list(filter(None, titles))) == len(SIZES)
    # The generated map replaces no set of the paper.
    assert len(result.missing) == 11 - (len(SIZES) - 1)
    panel = panels[titles.index("(e) S1")]
    assert sum(line.get_linestyle() == ":" for line in panel.axes.lines) == 2
    assert len(panel.curves) == len(LEVELS) == 8
    marked = [title for title in titles if title.endswith("†")]
    assert marked == ["(b) Shuttle †", "(c) Shuttle, class a column †"]
    assert "tuned on that set" in result.caption
    assert "every move protected" in result.caption
    labels = charts.legend_of(result)
    assert any("zero-out, not ρ-bounded" in label for label in labels)
    point = result.table.query("dataset == 's1' and method == 'dist_dp_published' and x == 8").iloc[
        0
    ]
    rows = all_rows().query("sweep == 'figure1' and dataset == 's1'")
    costs = 5000 * rows.query("method == 'dist_dp_published' and k == 8")["nicv"]
    assert point["value"] == pytest.approx(costs.mean())
    standard_error = costs.std() / math.sqrt(12)
    assert point["high"] - point["value"] == pytest.approx(3 * standard_error)


def panel_of_s1(result):
    return next(panel for panel in charts.panels_of(result) if panel.title.endswith("S1"))


def test_figure2_reverses_rho_and_has_level_lines(study):
    result = figure("figure2")
    panel = panel_of_s1(result)
    assert panel.x.reverse
    assert panel.x.scale == "log"
    levels = result.table.query(
        "dataset == 's1' and method in ['kmeans', 'lsh_splits', 'dist_dp_any']"
    )
    assert levels["x"].isna().all()
    assert len(levels) == 3


def test_wide_bands_do_not_set_axis_limits():
    def widen(values):
        return values * np.tile([0.01, 2.9, 0.09], len(values) // 3)

    rows = changed("nicv", widen, method="dist_dp_published", dataset="s1")
    result = draw("figure1", rows)
    panel = panel_of_s1(result)
    subset = result.table.query("dataset == 's1'")
    wide = subset.query("method == 'dist_dp_published'")
    assert panel.y.scale == "log"
    # The table has the bands without any cut.
    assert (wide["low"] < 0).all()
    smallest = subset["value"].min()
    largest = subset["value"].max()
    low, high = panel.y.low, panel.y.high
    assert smallest / 3 < low < smallest
    assert largest < high < 4 * largest
    assert panel.table["shown_low"].min() >= smallest / 3


@pytest.mark.slow
def test_adjacencies_have_separate_panels(study):
    grid = figure("grid")
    planted = figure("planted")
    panels = charts.panels_of(grid)
    assert "(c) S1: DP (zero-out)" in [panel.title for panel in panels]
    labels = [panel.y.title for panel in panels[:3]]
    assert labels == ["ε (rho-bounded; δ = 1e-6)", "", "ε (zero-out; δ = 1e-6)"]
    assert panels[2].x.labels == ("any",)
    assert not grid.missing
    for result in (planted, figure("times")):
        for _, panel in result.table.groupby("panel"):
            methods = set(panel["method"]) - {"kmeans"}
            assert len({method in MOVED for method in methods}) <= 1
    exponents = [panel.texts for panel in charts.panels_of(planted)]
    assert exponents == [["2.00"] * 3, ["0.10"] * 3, ["2.00"] * 3, ["1.00"] * 2, *[[]] * 3]


def test_radius_grows_as_rho_shrinks_in_it(study):
    table = figure("planted").table.query("panel == 'radius' and hue == 'dist_dp_published'")
    assert sorted(table["x"]) == [1, 4, 16, 64]
    rows = all_rows().query("sweep == 'planted_radius' and method == 'dist_dp_published'")
    smallest = rows[rows["cell"].str.contains("0.000625")]["nicv"].mean()
    value = table.set_index("x").at[64, "value"]
    assert value == pytest.approx(20000 * smallest * 64**2)


def test_interpretations_are_labeled_by_difference(study):
    result = figure("interpretations")
    levels = result.table["row"].isna()
    assert set(result.table.loc[~levels, "row"]) == set(INTERPRETATIONS)
    assert set(result.table.loc[levels, "hue"]) == set(DP)
    panel = charts.panels_of(result)[0]
    dotted = [line.get_xdata()[0] for line in panel.axes.lines if line.get_linestyle() == ":"]
    assert sorted(dotted) == pytest.approx(sorted(LEVELS[method] for method in DP), rel=0.02)
    assert panel.y.labels[0] == "default interpretation"
    labels = list(charts.legend_of(result))
    assert labels[0] == "ρ = 0.05"
    assert len(labels) == 1 + len(DP)


def test_variants_with_equal_parameters_are_two_interpretations():
    rows = all_rows()
    published = rows.query("sweep == 'interpretations' and method == 'dist_dp_published'")
    sound = published.assign(
        method="dist_dp",
        variant="sound",
        cell=published["cell"] + "-sound",
    )
    result = reports.draw("distdp", "interpretations", pd.concat([rows, sound]))
    assert set(result.table["row"].dropna()) == {*INTERPRETATIONS, "sound variant"}


@pytest.mark.parametrize(
    ("d", "rho", "epsilon", "strategy", "any_move"),
    [
        (2, 0.0005, 1.0, "groups", False),
        (2, 0.02, 0.1, "grid", False),
        (2, 1.0, 0.1, "grid", True),
        (2, 0.02, 1.0, "cells", True),
        (6, 0.2, 1.0, "cells", True),
        (12, 1.0, 1.0, "tree", False),  # the mean that it splits about moves with the record
        (12, "diagonal", 1.0, "tree", True),
    ],
)
def test_strategies_follow_from_charges(d, rho, epsilon, strategy, any_move):
    """Against the curator's sensitivity of the same release where any move is protected."""
    pairs = np.random.default_rng(0).integers(-SCALE, SCALE, (20_000, 2))
    points = np.tile(pairs, d // 2)
    charges = DistDP(4, rho=rho, epsilon=epsilon).fit_batch(points, [0]).ledger.charges
    lines = pd.DataFrame([charge.to_dict() for charge in charges]).assign(d=d)
    (result,) = find_strategies(lines.set_axis([0] * len(lines))).itertuples(index=False)
    charged_strategy, ratio, protects_any_move = result
    assert charged_strategy == strategy
    assert protects_any_move == any_move
    diagonal = 2 * math.sqrt(d)
    rounding = math.sqrt(d) / SCALE
    if strategy == "groups":
        assert ratio == pytest.approx((rho + rounding) / diagonal)
    elif strategy == "grid":
        side = 2 / charges[0].details["intervals"]
        moved = soft_sensitivity(d, side, rho + rounding)
        replaced = soft_sensitivity(d, side, diagonal)
        assert ratio == pytest.approx(moved / replaced)
    else:
        assert ratio == 1


def test_table_of_strategies(study):
    result = figure("strategies")
    over_rho = [*RHOS, 0.05, "diagonal"]
    assert len(result.table) == len(SIZES) * (len(over_rho) + len(KS))
    assert len(result.formatted) == len(result.table)
    assert not result.table[["panel", "dataset", "k", "rho"]].duplicated().any()
    sound = result.table[np.isfinite(result.table["rho"]) & (result.table["d"] == 2)]
    assert sound["value"].to_numpy() == pytest.approx(0.5, abs=1e-4)
    assert set(sound["any_move"]) == {"no"}
    s1 = result.formatted[result.formatted["data set"] == "S1"]
    assert set(s1.loc[s1["ρ"] == "diagonal", "any move protected"]) == {"yes"}
    assert set(s1["strategy"]) == {"grid"}
    panel = charts.panels_of(result)[0]
    assert panel.x.labels[-1] == "diagonal"
    assert "0.5\ngrid" in panel.texts
    assert "1\ngrid" in panel.texts


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_figures_of_unlisted_data_sets(name):
    rows = all_rows().query("seed < 2").copy()
    rows["dataset"] = rows["dataset"].replace({"s1": "planted-2000-2-4-0.05"})
    result = draw(name, rows)
    assert len(result.table)
    assert result.caption.endswith((".", "place."))


@pytest.mark.slow
def test_report_is_built(tmp_path, monkeypatch):
    names = ("grid", "times")
    page = reports.build_report("distdp", all_rows(), tmp_path, monkeypatch, names)
    html = page.read_text(encoding="utf-8")
    for name in names:
        assert f'id="{name}"' in html
        assert (tmp_path / "tables" / f"{name}.csv").is_file()
    for topic in ("Readings of the algorithm", "Two notions on one axis", "DP k-means"):
        assert topic in html
