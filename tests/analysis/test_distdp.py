"""The report on distance-based privacy on fabricated rows: curves, claims that can hold and fail,
figures.
"""

import json
import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
import reports
from fabricated.distdp import (
    DP,
    INTERPRETATIONS,
    KS,
    LEVELS,
    MOVED,
    RHOS,
    SIZES,
    all_rows,
    foreign_rows,
    row_of,
)
from fabricated.studies import study_of
from reports import NO_GAPS

from pkm.analysis import claims, verdicts
from pkm.analysis.accounting import composed_delta, gaussian_delta
from pkm.analysis.figures import figures_of
from pkm.analysis.figures.distdp import strategy_of
from pkm.analysis.findings import FAILS, HOLDS, INCONCLUSIVE, NOT_RUN
from pkm.analysis.planted import curve, parse_planted_names, planted_panel
from pkm.analysis.tables import DESCRIPTION, Study
from pkm.methods.dist_dp import DistDP
from pkm.privacy import SCALE
from pkm.privacy.rho_bounded_queries import soft_sensitivity

CONTENT = claims.load("distdp")
SPECS = {spec.name: spec for spec in figures_of("distdp")}


@pytest.fixture(scope="module")
def study():
    return study_of("distdp")


@pytest.fixture(scope="module")
def findings():
    return reports.by_claim(reports.verdicts_of("distdp"))


finding = partial(reports.finding, "distdp")
drawn = partial(reports.drawn, "distdp")
figure = partial(reports.figure_of, "distdp")


def changed(column, change, **where):
    """Copy of all rows in which one column of some rows is changed; `change` takes its values."""
    return reports.changed(all_rows(), column, lambda rows: change(rows[column]), **where)


# --- curves ---------------------------------------------------------------------------------------


def test_rows_have_the_schema(study):
    assert set(DESCRIPTION) <= set(all_rows().columns) and "rho" in study.cells


def test_names_of_planted_sets_are_read():
    cells = parse_planted_names(
        pd.DataFrame({"dataset": ["planted-small-100-2-3-0-7", "planted-10-2-3-0.05", "shuttle"]})
    )
    assert cells["ball"].tolist()[:2] == [0.0, 0.05] and cells["small"].tolist()[0] == 7
    assert cells["ball"].isna().tolist() == [False, False, True]


def test_values_of_a_curve_are_cost_excess_and_ratio(study):
    base = {
        "sweep": "planted_k",
        "metric": "nicv",
        "method": {"method": "dist_dp", "rho": 0.01},
        "along": "k",
    }
    context = verdicts.Context({}, NO_GAPS)
    values = {
        value: curve(study, base | {"value": value}, context).values[0]
        for value in ("mean", "cost", "excess")
    }
    ratio = curve(study, base | {"value": "ratio"}, context).values[0]
    n = 2500 * np.array([4, 8, 16, 32])
    assert values["cost"] == pytest.approx(values["mean"] * n)
    assert values["excess"] == pytest.approx([16, 64, 256, 1024], rel=0.02)
    assert ratio == pytest.approx(values["mean"] / (values["mean"] - values["excess"] / n))


def test_where_points_coincide_the_optimum_is_zero(study):
    check = {"sweep": "planted_radius", "metric": "nicv", "method": "dist_dp", "along": "rho"}
    context = verdicts.Context({}, NO_GAPS)
    excess, cost = (
        curve(study, check | {"value": value}, context).values for value in ("excess", "cost")
    )
    assert (excess == cost).all()


def test_a_selector_of_several_cells_at_one_place_is_refused(study):
    check = {
        "sweep": "planted_rho",
        "metric": "nicv",
        "method": {"method": ["dist_dp", "dist_dp_sound"]},
        "along": "rho",
    }
    with pytest.raises(ValueError, match="several cells"):
        curve(study, check, verdicts.Context({}, NO_GAPS))
    with pytest.raises(ValueError, match="value='sum'"):
        curve(study, check | {"value": "sum"}, verdicts.Context({}, NO_GAPS))


def test_slopes_are_those_of_the_logarithms():
    rows = pd.concat(
        [
            row_of("one", "dist_dp", f"planted-{n}-2-2-0", size=(n, 2), level=3 * n**-0.6, spread=0)
            for n in (100, 1000, 10000)
        ]
    )
    check = {"sweep": "one", "metric": "nicv", "method": "dist_dp", "along": "n"}
    line = curve(Study(rows), check, verdicts.Context({}, NO_GAPS))
    assert line.slopes() == pytest.approx(0.4) and line.residuals() == pytest.approx(0, abs=1e-12)
    assert line.residuals(logarithmic=False).min() > 0.01
    assert planted_panel(Study(rows), "none", "nicv").values.shape[1] == 0


# --- claims ---------------------------------------------------------------------------------------


def test_every_claim_has_a_verdict(findings):
    assert len(findings) == 23
    told = {name for name, found in findings.items() if found.verdict == NOT_RUN}
    assert told == {"mpc-constant-rounds"}
    others = {name: found.verdict for name, found in findings.items() if name not in told}
    assert others == dict.fromkeys(others, HOLDS), {
        name: found.numbers for name, found in findings.items()
    }
    # Other interpretations hold like the default one; every claim on the method has the printed
    # radius among them.
    assert not [name for name, found in findings.items() if "instead" in found.numbers]
    checks = {claim["id"].split("/")[1]: claim["check"] for claim in CONTENT["claims"]}
    judged_on = {
        name for name, check in checks.items() if "dist_dp" in str({**check, "also": None})
    }
    literal = {
        name
        for name, found in findings.items()
        if "With the printed radius: holds as well." in found.numbers
    }
    assert literal == judged_on - {"lower-bound-k-rho2", "order-random-points-above-dp"}
    assert "dist_dp_printed" in checks["lower-bound-k-rho2"]["methods"]


def test_absent_data_sets_make_a_verdict_partial(findings):
    assert "20 of 55 comparisons" in findings["order-dist-below-dp"].missing
    assert "brightkite" in findings["dataset-shapes"].missing


@pytest.mark.parametrize(
    ("name", "column", "change", "where"),
    [
        ("order-dist-below-dp", "nicv", lambda x: 3 * x, {"method": "dist_dp", "sweep": "figure1"}),
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
        ("order-all-four", "nicv", lambda x: 3 * x, {"method": "dist_dp", "k": 8}),
        (
            "slightly-worse-than-nonprivate",
            "nicv",
            lambda x: 1.4 * x,
            {"method": "dist_dp", "dataset": "s1"},
        ),
        (
            "closer-to-nonprivate-than-to-dp",
            "nicv",
            lambda x: 1.7 * x,
            {"method": "dist_dp", "dataset": "s1"},
        ),
        ("cost-falls-with-k", "nicv", lambda x: 5 * x, {"method": "dist_dp", "k": 16}),
        (
            "monotone-in-rho",
            "nicv",
            lambda x: 0 * x + 0.0125,
            {"cell": 'figure2|dist_dp|s1|8|1.0|{"rho": 1.0}'},
        ),
        (
            "rho-zero-is-nonprivate",
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
        (
            "runtime-minutes",
            "fit_cpu_seconds",
            lambda x: 1000.0 + 0 * x,
            {"method": "dist_dp", "dataset": "skin-class"},
        ),
        ("dataset-shapes", "d", lambda x: x + 1, {"dataset": "s1"}),
        (
            "additive-error-free-of-radius",
            "nicv",
            lambda x: x**0.5,
            {"sweep": "planted_radius", "method": "dist_dp"},
        ),
        (
            "additive-error-rho-squared",
            "nicv",
            lambda x: 0.0016 + (x - 0.0016) ** 0.5,
            {"sweep": "planted_rho", "method": "dist_dp"},
        ),
        (
            "lower-bound-k-rho2",
            "nicv",
            lambda x: 1e-5 * x,
            {"sweep": "lower_bound", "method": "dist_dp_sound", "k": 64},
        ),
        (
            "constant-multiplicative",
            "nicv",
            lambda x: 20 * x,
            {"sweep": "planted_factor", "method": "dist_dp"},
        ),
        (
            "runtime-linear",
            "fit_cpu_seconds",
            lambda x: x**2,
            {"sweep": "timing", "method": "dist_dp"},
        ),
        (
            "extra-k-dependence",
            "nicv",
            lambda x: 0.0016 + 1e-6 / (x - 0.0016),
            {"sweep": "planted_k", "method": "dist_dp"},
        ),
        (
            "release-is-dist-dp",
            "charges",
            lambda x: x.str.replace('"point_sensitivity": 0.05', '"point_sensitivity": 0.1'),
            {"method": "dist_dp"},
        ),
        (
            "budget-three-parts",
            "charges",
            lambda x: x.str.replace("cell_counts", "something"),
            {"method": "dist_dp"},
        ),
    ],
)
def test_every_judged_claim_can_fail(name, column, change, where):
    assert finding(name, changed(column, change, **where)).verdict == FAILS


def test_other_readings_stand_beside_the_published_one(findings):
    assert "With the sound variant: holds as well" in findings["rho-zero-is-nonprivate"].numbers
    rows = changed("nicv", lambda x: 3 * x, method="dist_dp_sound", sweep="figure1")
    found = finding("order-dist-below-dp", rows)
    assert found.verdict == HOLDS and "With the printed radius: holds as well." in found.numbers
    assert "Sound variants: fails instead. 0 kept" in found.numbers
    rows = changed("nicv", lambda x: 3 * x, method="dist_dp_printed", sweep="figure1")
    found = finding("order-all-four", rows)
    assert "With the printed radius: fails instead. (1) holds" in found.numbers
    assert found.numbers.endswith("Sound variants: holds as well.")


def test_one_reading_needs_no_list(study):
    check = {claim["id"]: claim["check"] for claim in CONTENT["claims"]}[
        "distdp/order-dist-below-dp"
    ]
    alone = reports.check_finding("distdp", check | {"also": check["also"][1]}, all_rows())
    both = reports.check_finding("distdp", check, all_rows())
    assert both.numbers == alone.numbers.replace(
        " Sound", " With the printed radius: holds as well. Sound"
    )


def test_the_lower_bound_is_in_units_of_rho(findings):
    evidence = findings["lower-bound-k-rho2"].evidence
    assert len(evidence) == 8
    for line in evidence.itertuples():
        assert line.bound == pytest.approx(0.35 * line.k * 0.0005**2)
        assert line.cost == pytest.approx(1e-3 * line.k, rel=0.05)


def test_a_method_that_refuses_the_lower_bound_is_named():
    rows = reports.without(all_rows(), sweep="lower_bound", method="dist_dp", k=32)
    reason = "failed: epsilon=0.1 with n=32 points and rho=0.05 is too little"
    gap = {
        "sweep": "lower_bound",
        "method": "dist_dp",
        "dataset": "half-8-32-0.05",
        "epsilon": 0.1,
        "reason": reason,
    }
    found = finding("lower-bound-k-rho2", rows, pd.DataFrame([gap]))
    assert found.verdict == HOLDS and found.missing == f"dist_dp on half-8-32-0.05: {reason}"
    found = finding(
        "lower-bound-k-rho2", reports.without(all_rows(), sweep="lower_bound"), pd.DataFrame([gap])
    )
    assert found.verdict == NOT_RUN and reason in found.numbers


def test_a_shorter_sweep_says_how_far_it_reaches(findings):
    lacking = findings["constant-multiplicative"].missing
    assert "5 of 11 comparisons" in lacking and "n up to 300,000 instead of 1,000,000" in lacking
    assert "k up to 8 instead of 32" in lacking and "d up to" not in lacking


def test_a_budget_part_may_not_exceed_its_third():
    def larger(texts):
        charges = [json.loads(text) for text in texts]
        for each in charges:
            each[1]["mu"] *= 2
        return [json.dumps(each) for each in charges]

    found = finding(
        "budget-three-parts", changed("charges", larger, method="dist_dp", sweep="figure1")
    )
    assert found.verdict == FAILS and "cell_counts" not in found.missing
    whole = finding(
        "budget-three-parts",
        changed("epsilon_spent", lambda x: 2 * x, method="dist_dp", sweep="grid"),
    )
    assert whole.verdict == FAILS


def test_delta_of_gaussian_charges_is_that_of_their_common_mu():
    charges = pd.DataFrame({"mu": [0.3, 0.4], "delta": [0.0, 1e-3]})
    assert composed_delta(charges, 1.0) == pytest.approx(gaussian_delta(0.5, 1.0) + 1e-3)
    assert composed_delta(charges.assign(mu=0.0), 1.0) == 1e-3


def test_excess_that_is_not_positive_has_no_slope():
    rows = changed("nicv", lambda x: 0 * x + 0.001, sweep="planted_rho", method="dist_dp")
    found = finding("additive-error-rho-squared", rows)
    assert found.verdict == INCONCLUSIVE and "not above zero" in found.numbers


def test_few_seeds_decide_nothing_about_means():
    rows = all_rows().query("seed < 3")
    for name in (
        "order-dist-below-dp",
        "additive-error-rho-squared",
        "closer-to-nonprivate-than-to-dp",
    ):
        assert finding(name, rows).verdict == INCONCLUSIVE


def test_claims_without_rows_give_the_recorded_reason():
    gap = {
        "sweep": "figure1",
        "method": "dist_dp",
        "dataset": "skin",
        "epsilon": 1.0,
        "reason": "no such file",
    }
    found = verdicts.evaluate(Study(foreign_rows()), "distdp", pd.DataFrame([gap]))
    found = {verdict.claim["id"].removeprefix("distdp/"): verdict.finding for verdict in found}
    assert {name for name, one in found.items() if one.verdict != NOT_RUN} == {"rho-005-meaning"}
    assert "no such file" in found["order-dist-below-dp"].numbers


# --- figures and report ---------------------------------------------------------------------------


def test_figure1_has_the_papers_curves_and_names_the_other_notion(study):
    shown = figure("figure1")
    titles = [axes.get_title() for axes in shown.figure.axes]
    assert titles[2] == "(c) cities (generated)" and len(shown.gaps) == 12 - len(SIZES)
    axes = shown.figure.axes[titles.index("(i) S1")]
    assert [line.get_linestyle() for line in axes.lines].count(":") == 2 and len(axes.lines) == len(
        LEVELS
    ) == 8
    assert [title for title in titles if title.endswith("†")] == [
        "(e) Shuttle †",
        "(f) Shuttle, class a column †",
    ]
    assert "tuned on that set" in shown.caption and "every move protected" in shown.caption
    labels = [text.get_text() for text in shown.figure.legends[0].get_texts()]
    assert any("zero-out, not ρ-bounded" in label for label in labels)
    line = shown.table.query("dataset == 's1' and method == 'dist_dp' and x == 8").iloc[0]
    values = all_rows().query(
        "sweep == 'figure1' and dataset == 's1' and method == 'dist_dp' and k == 8"
    )["nicv"]
    assert line["value"] == pytest.approx(5000 * values.mean())
    assert line["high"] - line["value"] == pytest.approx(3 * 5000 * values.std() / math.sqrt(12))


def test_figure2_falls_from_left_to_right_and_has_level_lines(study):
    shown = figure("figure2")
    axes = next(axes for axes in shown.figure.axes if axes.get_title().endswith("S1"))
    low, high = axes.get_xlim()
    assert low > high and axes.get_xscale() == "log"
    levels = shown.table.query(
        "dataset == 's1' and method in ['kmeans', 'lsh_splits_sound', 'dist_dp_sound_any']"
    )
    assert levels["x"].isna().all() and len(levels) == 3


def test_wide_bands_leave_logarithmic_axes_to_the_curves():
    rows = changed(
        "nicv",
        lambda x: x * np.tile([0.01, 2.9, 0.09], len(x) // 3),
        method="dist_dp",
        dataset="s1",
    )
    shown = drawn("figure1", rows)
    axes = next(axes for axes in shown.figure.axes if axes.get_title().endswith("S1"))
    mine = shown.table.query("dataset == 's1'")
    wide = mine.query("method == 'dist_dp'")
    assert (
        axes.get_yscale() == "log" and (wide["low"] < 0).all()
    )  # the table has the bands as they are
    low, high = axes.get_ylim()
    assert (low, high) == pytest.approx((mine["value"].min() / 2, mine["value"].max() * 2))
    bottoms = [band.get_paths()[0].vertices[:, 1].min() for band in axes.collections]
    assert min(bottoms) >= mine["value"].min() / 3 * (1 - 1e-9)


def test_own_figures_keep_the_two_notions_apart(study):
    grid, planted, times = (figure(name) for name in ("grid", "planted", "times"))
    assert "(c) S1, DP (zero-out)" in [axes.get_title() for axes in grid.figure.axes]
    labels = [axes.get_ylabel() for axes in grid.figure.axes if axes.get_ylabel()]
    assert set(labels) == {"ε (rho-bounded; δ = 1e-06)", "ε (zero-out; δ = 1e-06)"}
    assert labels.index("ε (zero-out; δ = 1e-06)") == 2
    for shown in (planted, times):
        for _, panel in shown.table.groupby("panel"):
            notions = {method in MOVED for method in panel["method"] if method != "kmeans"}
            assert len(notions) <= 1
    titles = [" ".join(axes.get_title().split()) for axes in planted.figure.axes]
    assert titles[2].endswith("slope: published 2.00, printed 2.00, sound 2.00")
    assert titles[3].endswith("slope: published 1.00, sound 1.00")


def test_interpretations_are_named_by_what_differs(study):
    shown = figure("interpretations")
    dp = {
        "DP (zero-out, not ρ-bounded): LSH-Splits",
        "DP (zero-out, not ρ-bounded): LSH-Splits (sound)",
    }
    assert set(shown.table["interpretation"]) == {*INTERPRETATIONS, *dp}
    axes = shown.figure.axes[0]
    dotted = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"]
    assert dotted == pytest.approx([LEVELS[method] for method in DP], rel=0.02)
    assert axes.get_yticklabels()[0].get_text() == "default interpretation"


@pytest.mark.parametrize(
    ("d", "rho", "strategy", "any_move"),
    [
        (2, 0.0005, "groups", False),
        (2, 0.02, "grid", False),
        (2, 1.0, "grid", True),
        (6, 0.2, "cells", True),
        (12, 1.0, "tree", False),  # the mean that it splits about moves with the record
        (12, "diagonal", "tree", True),
    ],
)
def test_strategies_are_read_off_the_charges(d, rho, strategy, any_move):
    """Against what the curator says of the same release where any move is protected."""
    points = np.tile(np.random.default_rng(0).integers(-SCALE, SCALE, (20_000, 2)), d // 2)
    charges = DistDP(4, rho=rho).fit_batch(points, [0]).ledger.charges
    found, ratio, protected = strategy_of([charge.to_dict() for charge in charges], d)
    assert (found, protected) == (strategy, any_move)
    diagonal = 2 * math.sqrt(d)
    rounding = math.sqrt(d) / SCALE
    if strategy == "groups":
        assert ratio == pytest.approx((rho + rounding) / diagonal)
    elif strategy == "grid":
        side = 2 / charges[0].details["intervals"]
        replaced = soft_sensitivity(d, side, diagonal)
        assert ratio == pytest.approx(soft_sensitivity(d, side, rho + rounding) / replaced)
    else:
        assert ratio == 1


def test_strategies_stand_in_a_table_of_data_sets_k_and_rho(study):
    shown = figure("strategies")
    assert (
        len(shown.formatted)
        == len(shown.table)
        == len(SIZES) * (len(RHOS) + 1 + 2 * (len(KS) - 1) + 1)
    )
    assert not shown.table[["dataset", "k", "rho"]].duplicated().any()
    sound = shown.table[shown.table["rho"].notna() & (shown.table["d"] == 2)]
    assert sound["ratio"].to_numpy() == pytest.approx(0.5, abs=1e-4) and not sound["any_move"].any()
    printed = shown.formatted[shown.formatted["dataset"] == "s1"]
    assert set(printed.loc[printed["rho"] == "diagonal", "any_move"]) == {"yes"} and set(
        printed["strategy"]
    ) == {"grid"}
    texts = [text.get_text() for text in shown.figure.axes[0].texts]
    assert "0.5 grid" in texts and "1 grid" in texts


@pytest.mark.parametrize("name", SPECS)
def test_figures_without_rows_say_what_is_missing(name):
    reports.check_figure_without_rows("distdp", name, foreign_rows())


@pytest.mark.parametrize("name", SPECS)
def test_figures_of_other_data_sets_and_two_seeds_are_drawn(name):
    rows = all_rows().query("seed < 2").copy()
    rows["dataset"] = rows["dataset"].replace({"s1": "planted-2000-2-4-0.05"})
    shown = drawn(name, rows)
    assert len(shown.table) and shown.caption.endswith((".", "place."))


def test_the_report_is_built(tmp_path, monkeypatch):
    some = ("grid", "times")
    page = reports.built("distdp", all_rows(), tmp_path, monkeypatch, some)
    html = page.read_text(encoding="utf-8")
    for name in some:
        assert f'id="{name}"' in html and (tmp_path / "tables" / f"{name}.csv").is_file()
    for topic in ("Readings of the algorithm", "Two notions on one axis", "DP k-means"):
        assert topic in html
