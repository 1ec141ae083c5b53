"""The report on constant multiplicative error on fabricated rows: bounds, captures, claims that can
fail, figures.
"""

import math
from functools import partial

import charts
import numpy as np
import pytest
import reports
from fabricated.kaplan_stemmer import BASELINES, LOCAL, RIVALS, all_rows

from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.expressions import evaluate_expression
from pkm.analysis.claims.findings import (
    HOLDS,
    INCONCLUSIVE,
    NOT_COMPARABLE,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
)
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.tables.study import REQUIRED
from pkm.arrow import make_nested
from pkm.privacy import gaussian_mu, gdp_epsilon
from pkm.privacy.mechanisms.selection import selection_epsilon, selection_mu

PAPER = "kaplan-stemmer"
CONTENT = read_claims(PAPER)
SPECS = {spec.name: spec for spec in read_figures(PAPER)}
#: What is not comparable, or decides nothing by the growth of a bound, is measured all the same.
CAPTURE, GROWTH = (
    reports.check_of("kaplan-stemmer", name) | {"not_comparable": None, "upper_bound": None}
    for name in ("iterating-captures-smaller", "one-pass-captures-large-clusters")
)


evaluate_claim = partial(reports.evaluate_claim, PAPER)
draw = partial(reports.draw, PAPER)
figure = partial(reports.figure_of, PAPER)


def changed(column, change, **where):
    """Copy of all rows in which one column of selected rows changes; `change` takes those rows."""
    return reports.changed(all_rows(), column, change, **where)


# --- formulas -------------------------------------------------------------------------------------


def test_rows_have_the_schema(study):
    assert set(REQUIRED) <= set(all_rows().columns)
    assert {"radius", "rounds", "lloyd_steps"} <= set(study.cells)


def test_bounds_equal_the_reported_table():
    # Computed by hand from the table's text at n = e^2, k = 4 and d = 9, where log n = 2.
    n = math.exp(2)
    sizes = {"n": n, "k": 4.0, "d": 9.0}
    values = {}
    for row in CONTENT["reported"]["table1"]:
        key, bounds = row["key"], (row["factor_bound"], row["additive_bound"])
        values[key] = tuple(float(evaluate_expression(bound, sizes)) for bound in bounds)
    assert values["feldman2009"] == pytest.approx((3, 36.0**18))
    assert values["nock2016"] == pytest.approx((math.log(4), n / 4))
    assert values["feldman2017"] == pytest.approx((8, 24))
    assert values["balcan2017"] == pytest.approx((8, 25))
    assert values["nissim_stemmer2018"] == pytest.approx((4, 9**0.51 * 4**1.51))
    assert values["this_work"] == pytest.approx((1, 4**1.01 * 9**0.51 + 8))


def weight(n, d, k, epsilon):
    """The paper's w with its constant set to 1, beta 0.1 and delta 1e-6."""
    loglog = math.log(math.log(n))
    per_cluster = math.log(k / 0.1) * math.sqrt(math.log(loglog / 1e-6))
    return math.sqrt(d) * loglog / epsilon * per_cluster


@pytest.mark.slow
def test_weight_of_the_claim_is_the_papers(findings):
    evidence = findings["unassigned-shrink"].evidence
    sizes = evidence["dataset"].str.extract(r"(\d+)-(\d+)-(\d+)-0.05$").dropna().astype(int)
    assert len(sizes)
    for index, (n, d, k) in sizes.iterrows():
        expected = weight(n, d, k, evidence["epsilon"][index])
        assert evidence["weight"][index] == pytest.approx(expected)


# --- small balls ----------------------------------------------------------------------------------


def test_capture_shares_of_small_balls():
    table = figure("capture").table
    assert (table["seeds"] == 20).all()
    assert len(table) == 30
    assert (table["large"] % 10000 == 0).all()
    subset = table.query("method == 'kaplan_stemmer_candidates' and large == 10000")
    shares = subset.set_index("small")["value"]
    assert shares.to_dict() == {100: 0.15, 200: 1.0, 400: 1.0, 800: 1.0, 1600: 1.0}


def test_candidates_of_captured_balls_alone_have_no_cost():
    rows = all_rows().query("sweep == 'capture'").drop(columns="nicv_best_k")
    result = draw("candidates", rows)
    assert len(result.table) > 0
    assert result.table["nicv_best_k"].isna().all()


def test_a_ball_is_captured_within_five_radii():
    # On the boundary itself the share is 1, just beyond it 0.
    for factor, verdict in ((1 - 1e-9, HOLDS), (1 + 1e-9, NOT_REPRODUCED)):
        reach = 5 * (0.02 + 1 / 10100) * factor
        rows = changed("farthest_class", lambda rows, reach=reach: reach, n=10100, sweep="capture")
        check = {key: CAPTURE[key] for key in ("sweep", "metric", "columns", "share_of_runs")}
        check |= {"type": "bound", "left": ["kaplan_stemmer_candidates"], "at_least": 0.5}
        check |= {"over": {"large": [10000], "small": [100]}, "where": "n == 10100"}
        finding = reports.evaluate_check("kaplan-stemmer", check, rows)
        assert finding.verdict == verdict


def test_growth_is_inconclusive_if_nothing_is_captured():
    rows = changed("farthest_class", lambda rows: 0.9, sweep="capture", n=100000 + 1600)
    finding = reports.evaluate_check("kaplan-stemmer", GROWTH, rows)
    assert finding.verdict == INCONCLUSIVE
    assert "Not captured at all" in finding.summary


def test_growth_is_inconclusive_if_everything_is_captured():
    rows = changed("farthest_class", lambda rows: 0.01, sweep="capture")
    finding = reports.evaluate_check("kaplan-stemmer", GROWTH, rows)
    assert finding.verdict == INCONCLUSIVE
    assert "nothing is known" in finding.summary


def test_growth_of_captured_size_fails_the_claim():
    def distance(rows):
        small = rows["dataset"].str.split("-").str[-1].astype(int)
        return np.where(small >= rows["n"] // 100, 0.01, 0.9)

    rows = changed("farthest_class", distance, sweep="capture")
    finding = reports.evaluate_check("kaplan-stemmer", GROWTH, rows)
    assert finding.verdict == NOT_REPRODUCED
    assert "in 90 % of the runs 0.9" in finding.summary


def test_claim_fails_if_one_pass_captures_smaller_balls():
    where = {"sweep": "capture", "method": "kaplan_stemmer_candidates_one_pass"}
    rows = changed("farthest_class", lambda rows: 0.01, **where)
    finding = reports.evaluate_check("kaplan-stemmer", CAPTURE, rows)
    assert finding.verdict == NOT_REPRODUCED


# --- claims ---------------------------------------------------------------------------------------


def test_every_claim_has_a_verdict(findings):
    assert len(findings) == 23
    not_run = [name for name, finding in findings.items() if finding.verdict == NOT_RUN]
    failed = [name for name, finding in findings.items() if finding.verdict == NOT_REPRODUCED]
    assert not not_run
    assert not failed
    unlike = {name for name, finding in findings.items() if finding.verdict == NOT_COMPARABLE}
    # The number of passes is not the paper's, by design.
    assert unlike == {"iterations-loglog", "iterating-captures-smaller"}
    bounds = [claim for claim in CONTENT["claims"] if claim.check.get("upper_bound")]
    assert len(bounds) == 15
    assert {findings[claim.id.split("/")[1]].verdict for claim in bounds} <= {
        NOT_CONTRADICTED,
        INCONCLUSIVE,
    }
    assert sum(finding.verdict == HOLDS for finding in findings.values()) == 23 - 2 - 15


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "column", "change", "where"),
    [
        (
            "constant-factor-in-n",
            "nicv",
            lambda rows: 30 * rows["nicv"],
            {"method": "kaplan_stemmer_search", "sweep": "chosen", "n": 100000},
        ),
        (
            "constant-factor-in-n",
            "nicv",
            lambda rows: rows["nicv"] * rows["n"] ** 0.1 / 3,
            {"method": "kaplan_stemmer_search", "sweep": "chosen"},
        ),
        (
            "constant-factor-in-k",
            "nicv",
            lambda rows: rows["nicv"] * rows["k"] ** 0.5,
            {"method": "kaplan_stemmer_search", "sweep": "chosen_k"},
        ),
        (
            "constant-factor-in-d",
            "nicv",
            lambda rows: rows["nicv"] * rows["d"] ** 0.5,
            {"method": "kaplan_stemmer_search", "sweep": "chosen_d"},
        ),
        (
            "separated-clusters",
            "nicv",
            lambda rows: 1.1 * rows["nicv"],
            {"method": "kaplan_stemmer", "sweep": "separated_box", "d": 128},
        ),
        (
            "additive-polylog-n",
            "nicv",
            lambda rows: rows["nicv"] * rows["n"] ** 0.4,
            {"method": "kaplan_stemmer_search", "sweep": "chosen_n_points"},
        ),
        (
            "additive-beats-linear-baseline",
            "nicv",
            lambda rows: rows["nicv"] + 0.1,
            {"method": "kaplan_stemmer_search", "sweep": "chosen_n_points"},
        ),
        ("additive-lower-bound", "nicv", lambda rows: rows["nicv"] / 100, {"sweep": "lower_bound"}),
        ("candidate-count", "n_centers", lambda rows: 1e7, {"method": "kaplan_stemmer_candidates"}),
        (
            "candidates-contain-good-centres",
            "nicv_best_k",
            lambda rows: 20 * rows["nicv_best_k"],
            {"method": "kaplan_stemmer_candidates", "sweep": "candidates"},
        ),
        (
            "candidates-contain-good-centres",
            "nicv_best_k",
            lambda rows: rows["nicv_best_k"] * rows["n"] ** 0.4,
            {"sweep": "candidates_points"},
        ),
        (
            "unassigned-shrink",
            "unassigned_points",
            lambda rows: 0.7 * rows["n"],
            {"method": "kaplan_stemmer_candidates", "sweep": "candidates"},
        ),
        (
            "unassigned-shrink",
            "unassigned_points",
            lambda rows: np.where(rows["seed"] < 12, rows["n"], 0),
            {"method": "kaplan_stemmer_candidates_one_pass", "sweep": "capture"},
        ),
        ("local-constant-rounds", "iterations", lambda rows: 6, {"sweep": "local_k", "k": 8}),
        (
            "local-constant-factor",
            "nicv",
            lambda rows: 5 * rows["nicv"],
            {"method": "kaplan_stemmer_local", "n": 1000000},
        ),
        (
            "local-constant-factor",
            "nicv",
            lambda rows: rows["nicv"] * rows["k"] ** 0.5,
            {"method": "kaplan_stemmer_local", "sweep": "local_k"},
        ),
        (
            "local-worse-than-central",
            "nicv",
            lambda rows: 5 * rows["nicv"],
            {"sweep": "local_central"},
        ),
        (
            "privacy-central",
            "epsilon_spent",
            lambda rows: 1.01,
            {"method": "kaplan_stemmer", "sweep": "d"},
        ),
        (
            "privacy-central",
            "delta",
            lambda rows: 2e-6,
            {"method": "kaplan_stemmer_search", "sweep": "k"},
        ),
        (
            "runtime-polynomial",
            "fit_cpu_seconds",
            lambda rows: rows["fit_cpu_seconds"] ** 2.5,
            {"method": "kaplan_stemmer", "sweep": "timing"},
        ),
        (
            "runtime-polynomial",
            "fit_cpu_seconds",
            lambda rows: 2.0 ** rows["d"],
            {"method": "kaplan_stemmer", "sweep": "timing", "n": 25000},
        ),
    ],
)
def test_claims_can_fail(name, column, change, where):
    rows = changed(column, change, **where)
    is_bound = "upper_bound" in reports.check_of("kaplan-stemmer", name)
    assert evaluate_claim(name, rows).verdict == (INCONCLUSIVE if is_bound else NOT_REPRODUCED)


def test_bound_on_candidates_states_its_slack():
    def finding_at(share):
        def count(rows):
            return share * rows["epsilon"] * rows["n"] * np.log(rows["k"] / 0.1)

        rows = all_rows().copy()
        mask = rows["method"].str.startswith("kaplan_stemmer_candidates")
        rows.loc[mask, "n_centers"] = count(rows[mask])
        return evaluate_claim("candidate-count", rows)

    wide = finding_at(1 / 150)
    assert wide.verdict == NOT_CONTRADICTED
    assert "Kept by a factor of 150 at least: so wide a bound tests nothing." in wide.summary
    near = finding_at(1 / 5)
    assert near.verdict == NOT_CONTRADICTED
    assert "Kept by a factor of 5 at least." in near.summary
    above = finding_at(2)
    assert above.verdict == INCONCLUSIVE
    assert "Kept by" not in above.summary


def test_sufficient_condition_is_inconclusive_if_violated():
    rows = changed("nicv", lambda rows: rows["nicv"] * rows["k"], sweep="selection")
    finding = evaluate_claim("selection-guarantee", rows)
    assert finding.verdict == INCONCLUSIVE
    assert "The candidates' own noise" in finding.summary


def test_candidates_claim_reports_private_local_search(findings):
    finding = findings["candidates-contain-good-centres"]
    assert "By private local search: holds as well." in finding.summary
    where = {"method": "kaplan_stemmer_search", "sweep": "chosen"}
    rows = changed("nicv", lambda rows: 10 * rows["nicv"], **where)
    finding = evaluate_claim("candidates-contain-good-centres", rows)
    assert finding.verdict == NOT_CONTRADICTED
    assert "By private local search: not reproduced instead." in finding.summary


def test_unassigned_points_may_exceed_bound_rarely():
    def evaluate_expression(n_violations):
        def unassigned(rows):
            return np.where(rows["seed"] < n_violations, rows["n"], 0)

        where = {"method": "kaplan_stemmer_candidates", "sweep": "capture", "n": 10100}
        rows = changed("unassigned_points", unassigned, **where)
        check = reports.check_of("kaplan-stemmer", "unassigned-shrink")
        return reports.evaluate_check("kaplan-stemmer", check | {"upper_bound": False}, rows)

    # 1 run of 20 may be chance or not, 12 of 20 are not.
    rare = evaluate_expression(1)
    assert rare.verdict == INCONCLUSIVE
    assert evaluate_expression(12).verdict == NOT_REPRODUCED
    assert rare.evidence["largest_of_runs"].max() == 10100
    assert rare.evidence["share_of_runs"].min() == pytest.approx(0.95)


def test_vacuous_bounds_are_left_out(findings):
    complete = findings["unassigned-shrink"]
    rows = changed("epsilon", lambda rows: 0.3, sweep="candidates", n=10000)
    finding = evaluate_claim("unassigned-shrink", rows)
    assert finding.verdict == NOT_CONTRADICTED
    assert len(finding.evidence) == len(complete.evidence) - 2
    rows = all_rows().assign(epsilon=0.01)
    finding = evaluate_claim("unassigned-shrink", rows)
    assert finding.verdict == NOT_RUN
    assert "has allowed < n" in finding.summary


def test_unassigned_bound_of_each_pass(findings):
    evidence = findings["unassigned-shrink"].evidence
    allowed = evidence.set_index(["left", "dataset"])["allowed"]
    name = "planted-100000-8-8-0.05"
    first = allowed["kaplan_stemmer_candidates_one_pass", name]
    second = allowed["kaplan_stemmer_candidates", name]
    assert first == pytest.approx(2 * 8 * weight(100000, 8, 8, 1.0) * 100000**0.1)
    assert second == pytest.approx(first * 0.5**0.1)  # half of the points are left


def test_privacy_claim_reports_both_adjacencies(findings):
    finding = findings["privacy-central"]
    assert "if a record is left out" in finding.summary
    assert "if a record is replaced" in finding.summary
    evidence = finding.evidence.query("epsilon == 1.0")
    epsilon = evidence.set_index("method")["epsilon_replaced"]
    # Of four equal parts of mu squared, those of the first histogram, the sums and the counts or
    # the choice grow.
    mu = gaussian_mu(1.0, 5e-7) / 2
    thresholds_delta = 1 - (1 - 2.5e-7) ** 2
    gaussian_delta = 1e-6 - thresholds_delta - 2.5e-7
    last_squared = {
        "kaplan_stemmer": 2 * mu**2,
        "kaplan_stemmer_search": selection_mu(2 * selection_epsilon(mu)) ** 2,
    }
    for method, last in last_squared.items():
        total_mu = math.sqrt(2 * mu**2 + mu**2 + 4 * mu**2 + last)
        expected = gdp_epsilon(total_mu, gaussian_delta)
        assert epsilon[method].to_numpy() == pytest.approx(expected, rel=1e-6)


def test_runs_without_charges_are_counted():
    def no_charges(column):
        return make_nested("charges", [[]] * len(column))

    rows = changed("charges", no_charges, method="kaplan_stemmer", sweep="d")
    finding = evaluate_claim("privacy-central", rows)
    assert finding.verdict == NOT_CONTRADICTED
    assert finding.missing == "charges of 6 cells"


def test_decreasing_cost_is_below_every_bound(findings):
    where = {"method": "kaplan_stemmer_search", "sweep": "chosen_n_points"}
    rows = changed("nicv", lambda rows: rows["nicv"] / rows["n"], **where)
    assert evaluate_claim("additive-polylog-n", rows).verdict == NOT_CONTRADICTED
    assert "Slope over n" in findings["additive-polylog-n"].summary


def test_two_passes_are_not_what_the_formula_asks_for(findings):
    finding = findings["iterations-loglog"]
    assert finding.verdict == NOT_COMPARABLE
    assert set(finding.evidence["rounds"]) == {2}


def test_smaller_sizes_make_verdicts_partial():
    rows = all_rows().query("n <= 30000")
    finding = evaluate_claim("constant-factor-in-n", rows)
    assert finding.verdict == NOT_CONTRADICTED
    assert "n up to 30,000 instead of 100,000" in finding.missing
    linear = evaluate_claim("additive-beats-linear-baseline", rows)
    assert linear.verdict == NOT_CONTRADICTED
    assert "1 of 2 comparisons" in linear.missing


def test_few_seeds_are_inconclusive():
    rows = all_rows().query("seed < 3")
    for name in (
        "constant-factor-in-n",
        "additive-polylog-n",
        "local-worse-than-central",
    ):
        assert evaluate_claim(name, rows).verdict == INCONCLUSIVE


def test_claims_without_rows_report_the_reason():
    missing = reports.missing_cell("chosen", "kmeans", "planted", math.nan, "no such file")
    findings = reports.evaluate_claims("kaplan-stemmer", reports.foreign_rows(), missing)
    evaluated = {name for name, finding in findings.items() if finding.verdict != NOT_RUN}
    # What is not comparable is so without rows.
    assert evaluated == {
        "table1-new-not-worse",
        "table1-first-constant",
        "iterations-loglog",
        "iterating-captures-smaller",
    }
    assert "no such file" in findings["constant-factor-in-n"].summary


# --- figures and report ---------------------------------------------------------------------------


def test_table1_has_bounds_and_measured_slopes(study):
    result = figure("table1")
    table = result.formatted.set_index("method")
    assert len(table) == len(result.table) == 6
    assert not result.missing
    # The slope of a bound, then the measured one with its interval.
    this_work = table.loc["This work"]
    assert " / 0.14 [" in this_work["additive over n"]
    assert " / 1.30 [" in this_work["additive over k"]
    assert " / 0.40 [" in this_work["additive over d"]
    assert this_work["factor over k"].startswith("0.00 / ")
    # By hand: slopes of d + k^2 in k from 2 to 16 and in d from 2 to 64, at 8 of the other.
    balcan = table.loc["Balcan et al. (2017)"]
    slope_k = math.log((8 + 16**2) / (8 + 2**2)) / math.log(16 / 2)
    slope_d = math.log((64 + 8**2) / (2 + 8**2)) / math.log(64 / 2)
    assert balcan["additive over k"].startswith(f"{slope_k:.2f} / ")
    assert balcan["additive over d"].startswith(f"{slope_d:.2f} / ")
    assert balcan["factor over n"].split(" / ")[1].startswith(("-0.0", "0.0"))
    # Nothing is measured of what is not implemented.
    nissim = table.loc["Nissim and Stemmer (2018)"]
    assert nissim["additive over k"] == "1.51"
    assert nissim["additive over d"] == "0.51"
    assert nissim["factor over k"] == "1.00"


@pytest.mark.slow
def test_planted_figure_has_all_methods_and_exponents(study):
    result = figure("planted")
    first = result.table[result.table["panel"] == "factor_n"]
    variants = {"kaplan_stemmer", "kaplan_stemmer_boxed", "kaplan_stemmer_search"}
    assert set(first["hue"]) == {*variants, *RIVALS, *BASELINES}
    # The paper's choice of centers is measured up to 100,000 points.
    longest = set(first.loc[first["x"] == 1000000, "hue"])
    assert set(first["hue"]) - longest == {"kaplan_stemmer_search"}
    point = first.query("hue == 'kaplan_stemmer' and x == 10000")
    assert point["value"].item() == pytest.approx(1.05, rel=0.02)
    assert [panel.title for panel in charts.panels_of(result)] == [
        "(a) cost over the optimum, over n",
        "(b) cost over the optimum, over k",
        "(c) cost over the optimum, over d",
        "(d) optimum 0, over n",
        "(e) optimum 0, over k",
        "(f) optimum 0, over d",
    ]
    for panel, exponent in zip(charts.panels_of(result)[3:], ("0.13", "1.20", "0.40"), strict=True):
        assert exponent in panel.texts
        assert len(panel.texts) == 8  # all methods that may be fitted, and the bound
        assert panel.y.scale == "log"
    bound = result.table.query("hue == 'bound' and panel == 'additive_k'").sort_values("k")
    expected = bound["k"] ** 1.01 * bound["d"] ** 0.51 + bound["k"] ** 1.5
    np.testing.assert_allclose(bound["value"], expected)
    assert len(bound) > 1


def test_candidates_table_reports_quality(study):
    result = figure("candidates")
    assert {"points without a near one", "NICV of the best k"} <= set(result.formatted)
    subset = result.formatted.query("dataset == 'planted-10000-8-8-0.05'")
    row = subset.query("method == 'two passes'").iloc[0]
    assert row["NICV of the best k"] == "0.0022"
    assert row["points without a near one"] == "0"


@pytest.mark.slow
def test_central_and_local_have_separate_panels(study):
    local = figure("local")
    times = figure("times")
    for table in (local.table, times.table):
        for _, panel in table.groupby("panel"):
            assert panel["method"].isin(LOCAL).nunique() == 1
    first, second, *_ = charts.panels_of(local)
    assert (first.y.scale, first.y.low, first.y.high) == (
        second.y.scale,
        second.y.low,
        second.y.high,
    )


def test_capture_figure_has_a_panel_for_each_n(study):
    result = figure("capture")
    assert [panel.title for panel in charts.panels_of(result)] == [
        "(a) n = 10,000",
        "(b) n = 30,000",
        "(c) n = 100,000",
    ]
    assert result.table["value"].between(0, 1).all()
    assert len(result.table) == 30


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_figures_of_two_seeds(name):
    rows = all_rows().query("seed < 2").copy()
    rows["dataset"] = rows["dataset"].replace({"s1": "iris"})
    result = draw(name, rows)
    assert len(result.table)
    assert result.caption.rstrip().endswith(".")


@pytest.mark.slow
def test_report_is_built(tmp_path, monkeypatch):
    names = ("table1", "capture")
    page = reports.build_report("kaplan-stemmer", all_rows(), tmp_path, monkeypatch, names)
    html = page.read_text(encoding="utf-8")
    for name in names:
        assert f'id="{name}"' in html
        assert (tmp_path / "tables" / f"{name}.csv").is_file()
    for topic in ("What is reproduced", "Public ball", "Rows of Table 1"):
        assert topic in html
