"""The DPM paper's report on synthetic rows: printed numbers, grids of settings, formulas, figures,
configuration.
"""

import json
import math
from collections import Counter
from functools import partial

import numpy as np
import pandas as pd
import pytest
import reports
import yaml
from fabricated.dpm import HALF_RANGE, SIZES, all_rows, dpm_rows, printed_means
from fabricated.studies import study_of

from pkm.analysis import claims, hyperparameters, reported, verdicts
from pkm.analysis.figures import figures_of
from pkm.analysis.figures.dpm import matched_ratios
from pkm.analysis.figures.style import epsilon_label, styled
from pkm.analysis.tables import Study, raw_units, standard_deviations
from pkm.analysis.verdicts import FAILS, HOLDS, INCONCLUSIVE, NOT_RUN

NO_ROWS = "no stored rows"
SPECS = {spec.name: spec for spec in figures_of("dpm")}
figure = partial(reports.figure_of, "dpm")
CONTENT = claims.load("dpm")
CONF = claims._FOLDER.parents[1] / "conf"


@pytest.fixture(scope="module")
def study():
    return study_of("dpm")


@pytest.fixture(scope="module")
def findings():
    return reports.by_claim(reports.verdicts_of("dpm"))


claim_finding = partial(reports.finding, "dpm")
check_finding = partial(reports.check_finding, "dpm")


def changed(rows, where, **factors):
    """Copy of rows in which some metrics of some rows are multiplied."""
    rows, chosen = rows.copy(), reports.those(rows, **where)
    for name, factor in factors.items():
        rows.loc[chosen, name] *= factor
    return rows


# --- printed numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.61 ± 0.02", (0.61, 0.02, 0.01, 0.01)),
        ("1.4e06 ± 1.3e05", (1.4e6, 1.3e5, 1e5, 1e4)),
        ("1.0e06 ± 2.0e-10", (1e6, 2e-10, 1e5, 1e-11)),
        ("-0.10 ± 0.61", (-0.1, 0.61, 0.01, 0.01)),
        ("14.19 ± 43.27", (14.19, 43.27, 0.01, 0.01)),
    ],
)
def test_printed_texts_are_read_with_the_unit_of_their_last_digit(text, expected):
    value = reported.parse(text)
    assert (value.mean, value.deviation, value.unit, value.deviation_unit) == pytest.approx(
        expected
    )


def test_what_is_no_printed_number_is_refused():
    for text in ("about 3", "3", "1 ± 2 ± 3"):
        with pytest.raises(ValueError, match=f"{text}.*mean ± standard deviation"):
            reported.parse(text)


def test_raw_units_multiply_by_powers_of_half_the_range(study):
    for metric, power in (("inertia", 2), ("kmeans_distance", 1), ("silhouette", 0)):
        panel = study.panel("table", metric)
        raw = raw_units(panel)
        factor = [HALF_RANGE[name.split("-")[0]] ** power for name in panel.cells["dataset"]]
        np.testing.assert_allclose(raw.values, panel.values * factor, rtol=1e-12)
    inertia = raw_units(study.panel("table", "inertia"))
    at = inertia.cells.index[
        (inertia.cells["dataset"] == "gas") & (inertia.cells["method"] == "dpm")
    ][0]
    assert inertia.values[:, at].mean() == pytest.approx(3.7e7, rel=0.05)


def test_deviations_have_n_minus_one_and_ignore_missing_values():
    values = np.array([[1.0, 2.0], [2.0, np.nan], [4.0, np.nan]])
    found = standard_deviations(values)
    assert found[0] == pytest.approx(np.std([1, 2, 4], ddof=1)) and math.isnan(found[1])


def quality(rows):
    table = reported.compare(Study(rows), CONTENT["reported"]["quality"])
    return table.set_index(["dataset", "method", "metric"])


def test_verdicts_of_printed_cells_follow_the_margin_and_the_direction_of_the_metric():
    rows = all_rows()
    place = ("letters-18720", "dpm", "silhouette")
    line = quality(rows).loc[place]
    assert line["verdict"] == reported.WITHIN and not line["reason"]
    # Two standard errors of both runs (20 printed, 12 here), with half a digit more of the printed
    # deviation and the error of a sample of 10,000 points, and half a printed digit.
    error = math.sqrt(0.015**2 / 20 + line["deviation"] ** 2 / 12 + 0.002**2)
    assert line["margin"] == pytest.approx(2 * error + 0.005)
    zero = quality(rows).loc[("gas", "dpm", "norm_kmeans_distance")]
    error = math.sqrt(0.005**2 / 20 + zero["deviation"] ** 2 / 12)
    assert zero["margin"] == pytest.approx(2 * error + 0.005)
    where = {"sweep": "table", "dataset": "letters-18720", "method": "dpm"}
    for factor, scores, costs in (
        (2.0, reported.BETTER, reported.WORSE),
        (0.5, reported.WORSE, reported.BETTER),
    ):
        table = quality(changed(rows, where, silhouette=factor, inertia=factor))
        assert table.loc[place, "verdict"] == scores
        assert table.loc[("letters-18720", "dpm", "inertia"), "verdict"] == costs


def test_cells_that_cannot_be_compared_say_why_and_keep_their_numbers():
    table = quality(all_rows())
    expected = {
        ("mnist-embeddings", "dpm", "silhouette"): "network",
        ("letters-18720", "em_mc", "inertia"): "not private",
        ("letters-18720", "kmeans", "norm_kmeans_distance"): "101 to 128",
        ("gas", "dpm", "accuracy"): "reports no number",
    }
    for place, words in expected.items():
        line = table.loc[place]
        assert line["verdict"] == reported.NOT_COMPARABLE and words in line["reason"], place
    assert np.isfinite(
        table.loc[("mnist-embeddings", "dpm", "silhouette"), ["mean", "ratio"]].astype(float)
    ).all()
    assert "spends more" in table.loc[("gas", "dp_lloyd", "inertia"), "note"]
    assert len(table) == 120 and len(printed_means()) == 115


def test_few_seeds_and_absent_rows_are_not_judged():
    rows = all_rows()
    few = rows[(rows["dataset"] != "gas") | (rows["seed"] < 5)]
    few = few[
        ~((few["method"] == "dpm") & (few["dataset"] == "synth-10d") & (few["sweep"] == "table"))
    ]
    table = quality(few)
    assert table.loc[("gas", "dpm", "inertia"), "verdict"] == reported.FEW_SEEDS
    assert table.loc[("synth-10d", "dpm", "inertia"), "verdict"] == reported.NOT_STORED
    # What has no rows was not run, whatever else keeps its numbers from being compared.
    empty = quality(rows[(rows["dataset"] != "gas") & (rows["method"] != "kmeans")])
    for place in (("gas", "dpm", "accuracy"), ("letters-18720", "kmeans", "norm_kmeans_distance")):
        assert (
            empty.loc[place, "verdict"] == reported.NOT_STORED
            and empty.loc[place, "reason"] == "no stored rows"
        )
    assert table.loc[("synth-10d", "em_mc", "inertia"), "verdict"] == reported.NOT_STORED


def test_near_a_printed_zero_is_what_rounds_to_it():
    line = {"reported": "0.00 ± 0.03", "reported_mean": 0.0}
    assert reported.near(line | {"mean": 0.004}) and not reported.near(line | {"mean": 0.006})
    line = {"reported": "0.50 ± 0.03", "reported_mean": 0.5}
    assert reported.near(line | {"mean": 0.54}) and not reported.near(line | {"mean": 0.56})


def test_the_claim_on_printed_values_allows_for_chance_only(findings):
    # Rows near the printed numbers: what lies outside is no more than two standard errors let by
    # chance.
    assert findings["table-values"].verdict == INCONCLUSIVE
    assert "not comparable" in findings["table-values"].missing
    off = changed(
        all_rows(),
        {"sweep": "table", "dataset": "synth-10d"},
        silhouette=0.8,
        inertia=1.5,
        accuracy=0.8,
    )
    found = claim_finding("table-values", off)
    assert found.verdict == FAILS and found.evidence["verdict"].iloc[0] == reported.WORSE
    nothing = all_rows()[all_rows()["sweep"] == "budget"]
    assert claim_finding("table-values", nothing).verdict == NOT_RUN


# --- predicates on runs ---------------------------------------------------------------------------


def test_orderings_and_bounds_follow_the_rows():
    rows = all_rows()
    assert (
        claim_finding("sota-inertia", rows).verdict == FAILS
    )  # as printed: behind LSH-Splits on two sets
    where = {"sweep": "table", "method": "dpm"}
    assert claim_finding("sota-inertia", changed(rows, where, inertia=0.3)).verdict == HOLDS
    # A difference of scores, not a ratio: 0.02 below k-means, whatever the height.
    worse = changed(rows, where | {"dataset": "synth-10d"}, silhouette=0.9)
    found = claim_finding("silhouette-near-nonprivate", worse)
    assert found.verdict == FAILS and "Difference" in found.numbers
    assert found.evidence["difference"].max() == pytest.approx(0.97 - 0.9 * 0.96, abs=0.02)


def test_numbers_of_centers_are_judged_per_class():
    rows = all_rows()
    found = claim_finding("n-clusters-close", rows)
    assert found.verdict == HOLDS and found.evidence["ratio"].between(1.3, 1.6).all()
    many = changed(
        rows, {"sweep": "table", "method": "dpm", "dataset": "letters-18720"}, n_centers=2.0
    )
    assert claim_finding("n-clusters-close", many).verdict == FAILS
    assert claim_finding("n-clusters-max", rows).verdict == HOLDS
    one = rows.copy()
    one.loc[
        one.index[(one["method"] == "dpm") & (one["sweep"] == "centreness")][0], "n_centers"
    ] = 129
    assert claim_finding("n-clusters-max", one).verdict == FAILS


def test_data_sets_can_be_compared_with_each_other():
    rows = all_rows()
    found = claim_finding("time-dpm-dimension", rows)
    assert found.verdict == HOLDS and found.evidence["ratio"][0] == pytest.approx(10, rel=0.15)
    slow = changed(
        rows, {"sweep": "timing", "dataset": "synth-10d", "method": "dpm"}, fit_cpu_seconds=5.0
    )
    assert claim_finding("time-dpm-dimension", slow).verdict == FAILS
    assert claim_finding("time-dpm-points", rows).verdict == HOLDS
    assert claim_finding("time-dp-lloyd-gas", rows).verdict == FAILS
    few = claim_finding("time-dpm-points", rows[rows["dataset"].isin(["letters-18720", "gas"])])
    assert few.verdict == HOLDS and "1 of 5" in few.missing


def test_a_selector_of_two_data_sets_is_refused_across():
    check = {
        "type": "bound",
        "sweep": "timing",
        "metric": "fit_cpu_seconds",
        "across": True,
        "left": ["dpm"],
        "right": [{"method": "dpm", "dataset": "gas"}],
        "over": {},
        "at_most": 1,
    }
    with pytest.raises(ValueError, match="several data sets"):
        check_finding(check, all_rows())


def test_dispersion_is_the_coefficient_of_variation():
    check = {
        "type": "dispersion",
        "sweep": "table",
        "metric": "inertia",
        "left": ["dpm"],
        "over": {"dataset": ["gas"]},
    }
    rows = dpm_rows("table", "dpm", "gas", seeds=30)
    values = np.random.default_rng(0).lognormal(0, 1.5, 30)
    found = check_finding(check | {"above": 1}, rows.assign(inertia=values))
    assert found.evidence["relative"][0] == pytest.approx(values.std(ddof=1) / values.mean())
    assert check_finding(check | {"above": 1}, rows).verdict == FAILS
    assert check_finding(check | {"at_most": 0.1}, rows).verdict == HOLDS


def test_slopes_of_running_time():
    rows = all_rows()
    found = claim_finding("time-complexity", rows)
    assert found.verdict == HOLDS and not found.missing
    assert found.evidence["slope"].tolist() == pytest.approx([1.05, 1.0], abs=0.06)
    squared = rows.copy()
    mine = (squared["sweep"] == "scaling") & (squared["method"] == "dpm")
    squared.loc[mine, "fit_cpu_seconds"] *= squared.loc[mine, "n"]
    assert claim_finding("time-complexity", squared).verdict == FAILS
    # Below the sizes of the claim there is no verdict, whatever the slope.
    for few in (rows, squared):
        small = claim_finding("time-complexity", few[(few["n"] < 200000) & (few["d"] < 80)])
        assert (
            small.verdict == INCONCLUSIVE
            and "4 of 5" in small.missing
            and "n = 200000" in small.numbers
        )


def test_times_that_should_be_alike_are_bounded_in_both_directions_once_a_pair():
    rows = all_rows()
    where = {"sweep": "timing", "method": "kmeans"}
    level = changed(rows, where, fit_cpu_seconds=0.1)
    found = claim_finding("time-three-similar", level)
    assert found.verdict == HOLDS and found.comparisons == 15
    for factor in (0.001, 10):
        assert (
            claim_finding(
                "time-three-similar", changed(level, where, fit_cpu_seconds=factor)
            ).verdict
            == FAILS
        )


def test_claims_on_time_read_cpu_seconds():
    rows = all_rows()
    slow = changed(rows, {"sweep": "timing", "method": "dpm"}, fit_seconds=1e6)
    assert claim_finding("time-dpm-seconds", slow).verdict == HOLDS
    slow = changed(rows, {"sweep": "timing", "method": "dpm"}, fit_cpu_seconds=1e6)
    assert claim_finding("time-dpm-seconds", slow).verdict == FAILS


def test_more_clusters_step_by_step():
    rows = all_rows()
    found = claim_finding("inertia-accuracy-profit-from-k", rows)
    assert found.verdict == HOLDS and found.comparisons == 30 and not found.missing
    assert "13 to 26" in set(found.evidence["k"])
    up = changed(rows, {"sweep": "clusters_letters", "k": 52}, inertia=2.0)
    assert claim_finding("inertia-accuracy-profit-from-k", up).verdict == FAILS
    less = rows[~rows["sweep"].str.startswith("clusters_embeddings")]
    assert "9 of 15 steps" in claim_finding("inertia-accuracy-profit-from-k", less).missing


def test_the_best_number_of_clusters_on_gas():
    rows = all_rows()
    assert claim_finding("gas-two-clusters", rows).verdict == HOLDS
    found = claim_finding(
        "gas-two-clusters", changed(rows, {"sweep": "clusters_gas", "k": 7}, silhouette=2.0)
    )
    assert found.verdict == FAILS and "k = 7" in found.numbers
    without = rows[(rows["sweep"] != "clusters_gas") | (rows["k"] != 7)]
    assert "18 of 19" in claim_finding("gas-two-clusters", without).missing


def test_a_time_limit_is_a_lower_bound_only():
    missing = pd.DataFrame(
        [
            {
                "sweep": "em_mc_large",
                "method": "em_mc",
                "dataset": "synth-100d",
                "epsilon": 1.0,
                "reason": "failed: TimeLimitExceeded: time limit of 3600 s reached",
            }
        ]
    )
    rows = all_rows()
    stopped = claim_finding("time-em-mc-12h", rows, missing)
    assert stopped.verdict == INCONCLUSIVE and "3600 s" in stopped.numbers
    assert claim_finding("time-em-mc-12h", rows).verdict == NOT_RUN
    ran = dpm_rows("em_mc_large", "em_mc", "synth-100d", factors={"fit_cpu_seconds": 100.0})
    found = claim_finding("time-em-mc-12h", pd.concat([rows, ran], ignore_index=True), missing)
    assert found.verdict == HOLDS
    quick = dpm_rows("em_mc_large", "em_mc", "synth-100d", factors={"fit_cpu_seconds": 0.1})
    assert (
        claim_finding("time-em-mc-12h", pd.concat([rows, quick], ignore_index=True)).verdict
        == FAILS
    )


# --- grids of settings ----------------------------------------------------------------------------


def grid_rows(
    sweep, quality_of, settings_of, *, datasets=("letters-18720",), noise=0.002, seeds=12
):
    """Rows whose inertia is `quality_of(dataset, setting)` with little noise; other metrics follow
    it.
    """
    rng = np.random.default_rng(3)
    parts = []
    for dataset in datasets:
        for params in settings_of:
            level = quality_of(dataset, params) * (1 + noise * rng.normal(size=seeds))
            rows = dpm_rows(sweep, "dpm", dataset, seeds=seeds, params=params, metrics=("inertia",))
            parts.append(rows.assign(inertia=level))
    return pd.concat(parts, ignore_index=True)


SHARES = [
    {"shares": [a, b, c, round(1 - a - b - c, 10)]}
    for a in (0.05, 0.1, 0.2)
    for b in (0.1, 0.2, 0.3)
    for c in (0.1, 0.2)
]
BUDGET = {
    "sweep": "budget",
    "metrics": ["inertia"],
    "datasets": ["letters-18720"],
    "method": "dpm",
    "parameters": {"shares": ["interval", "counts", "splits", "averages"]},
    "settings": 18,
    "share": 0.2,
}


def test_the_best_part_of_a_grid_is_found_by_the_metric():
    # Cost rises with the interval's share alone, so the best fifth has the smallest ones.
    rows = grid_rows("budget", lambda _, p: 1 + p["shares"][0], SHARES)
    check = BUDGET | {"type": "best_part", "form": {"interval": 1}}
    found = check_finding(check | {"below_worst": True}, rows)
    assert found.verdict == HOLDS and not found.missing
    assert found.evidence[["best", "worst"]].iloc[0].tolist() == pytest.approx([0.05, 0.2])
    falling = grid_rows("budget", lambda _, p: 2 - p["shares"][0], SHARES)
    assert check_finding(check | {"below_worst": True}, falling).verdict == FAILS
    assert check_finding(check | {"above": 0.15}, falling).verdict == HOLDS
    assert check_finding(check | {"above": 0.25}, falling).verdict == FAILS


def test_a_form_of_several_shares():
    rows = grid_rows("budget", lambda _, p: 1 + p["shares"][1] - p["shares"][2], SHARES)
    check = BUDGET | {"type": "best_part", "form": {"splits": 1, "counts": -1}}
    assert check_finding(check | {"at_least": 0}, rows).verdict == HOLDS
    assert check_finding(check | {"at_most": 0}, rows).verdict == FAILS


def test_the_place_of_one_setting():
    rows = grid_rows(
        "budget", lambda _, p: 1 + p["shares"][0] + p["shares"][1] - p["shares"][2], SHARES
    )
    check = BUDGET | {"type": "among_best", "share": 0.4}
    best = {"interval": 0.05, "counts": 0.1, "splits": 0.2, "averages": 0.65}
    worst = {"interval": 0.2, "counts": 0.3, "splits": 0.1, "averages": 0.4}
    assert check_finding(check | {"setting": best}, rows).verdict == HOLDS
    assert check_finding(check | {"setting": worst}, rows).verdict == FAILS
    absent = dict.fromkeys(best, 0.25)
    assert check_finding(check | {"setting": absent}, rows).verdict == NOT_RUN


def planned_shares(profile=None):
    paper = yaml.safe_load((CONF / "paper/dpm.yaml").read_text(encoding="utf-8"))
    sweep = (paper["profiles"][profile] if profile else paper["sweeps"])["budget"]
    return [{"shares": shares} for shares in sweep["methods"][0]["grid"]["shares"]]


def of_the_rest(name):
    """Cost of a share's distance from a third of what the interval size leaves."""
    return lambda _, p: 1 + abs(p["shares"][name] / (1 - p["shares"][0]) - 1 / 3)


INNER = BUDGET | {
    "type": "interior_best",
    "along": ["counts"],
    "rest_of": "interval",
    "levels": 4,
    "settings": 61,
}


def test_an_inner_best_and_one_at_the_edge():
    shares = planned_shares()
    inner = check_finding(INNER, grid_rows("budget", of_the_rest(1), shares))
    assert inner.verdict == HOLDS and inner.evidence["best"][0] == pytest.approx(1 / 3, abs=1e-4)
    assert inner.evidence["levels"][0] == "0.167, 0.333, 0.5, 0.667" and not inner.missing
    edge = grid_rows("budget", lambda _, p: 1 + p["shares"][1] / (1 - p["shares"][0]), shares)
    assert check_finding(INNER, edge).verdict == FAILS


@pytest.mark.parametrize("noise", [0, 1e-12, 0.002])
def test_the_interval_share_alone_does_not_decide_on_the_others(noise):
    check = INNER | {"along": ["counts", "splits"]}
    for sign in (1, -1):
        rows = grid_rows(
            "budget",
            lambda _, p, sign=sign: 2 + sign * p["shares"][0],
            planned_shares(),
            noise=noise,
        )
        found = check_finding(check, rows)
        assert found.verdict == INCONCLUSIVE, found.numbers


def test_too_few_levels_decide_nothing():
    # The smaller grid has three levels, one of them inside; unbalanced grids have none in common.
    rows = grid_rows("budget", lambda _, p: 1 + p["shares"][1], planned_shares("quick"))
    found = check_finding(INNER, rows)
    assert (
        found.verdict == INCONCLUSIVE
        and "3 of 4 levels" in found.missing
        and "Too few" in found.numbers
    )
    found = check_finding(INNER, grid_rows("budget", lambda _, p: 1 + p["shares"][1], SHARES))
    assert found.verdict == INCONCLUSIVE and "0 of 4 levels" in found.missing


def test_best_settings_that_differ_between_metrics():
    rows = grid_rows(
        "budget", lambda _, p: 1 + p["shares"][0] + p["shares"][1] + p["shares"][2], SHARES
    )
    check = BUDGET | {"type": "best_differs", "metrics": ["inertia", "silhouette"]}
    # Silhouette is better high: the same order of settings makes the best one the same, the reverse
    # makes it differ.
    assert check_finding(check, rows.assign(silhouette=-rows["inertia"])).verdict == FAILS
    assert check_finding(check, rows.assign(silhouette=rows["inertia"])).verdict == HOLDS


PAIRS = [{"t": t, "q": q} for t in (0.2, 0.6, 0.8, 1.0) for q in (0.025, 0.05, 0.1)]
CORNER = {
    "sweep": "centreness",
    "metrics": ["inertia"],
    "datasets": ["letters-18720", "synth-10d"],
    "method": "dpm",
    "parameters": ["t", "q"],
    "settings": 12,
    "corner": {"t": {"at_least": 0.8}, "q": {"at_most": 0.05}},
}


def cornered(_, params):
    return (
        1.2 + params["t"] - 2 * params["q"] if params["t"] >= 0.8 and params["q"] <= 0.05 else 1.0
    )


def test_flat_but_for_a_corner():
    both = ("letters-18720", "synth-10d")
    rows = grid_rows("centreness", cornered, PAIRS, datasets=both)
    flat = check_finding(CORNER | {"type": "flat", "at_most": 0.05}, rows)
    assert flat.verdict == HOLDS and (flat.evidence["relative_range"] < 0.01).all()
    assert check_finding(CORNER | {"type": "worst_in_corner"}, rows).verdict == HOLDS
    assert check_finding(CORNER | {"type": "same_ranking", "above": 0.5}, rows).verdict == HOLDS
    tilted = grid_rows("centreness", lambda _, p: 1 + 3 * p["q"], PAIRS, datasets=both)
    assert check_finding(CORNER | {"type": "flat", "at_most": 0.05}, tilted).verdict == FAILS
    assert check_finding(CORNER | {"type": "worst_in_corner"}, tilted).verdict == FAILS
    opposite = grid_rows(
        "centreness",
        lambda d, p: (1 if d == "synth-10d" else -1) * cornered(d, p) + 5,
        PAIRS,
        datasets=both,
    )
    assert check_finding(CORNER | {"type": "same_ranking", "above": 0.5}, opposite).verdict == FAILS


def test_part_of_a_grid_is_marked_and_none_is_not_run():
    rows = grid_rows("centreness", cornered, PAIRS[:6])
    found = check_finding(CORNER | {"type": "flat", "at_most": 0.05}, rows)
    assert "6 of 12 settings" in found.missing and "synth-10d" in found.missing
    other = check_finding(BUDGET | {"type": "best_part", "form": {"interval": 1}, "above": 0}, rows)
    assert other.verdict == NOT_RUN


def test_settings_that_are_no_lists_are_left_out():
    cells = pd.DataFrame(
        {"shares": ["auto", "[0.1, 0.2, 0.3, 0.4]", None, "[1.0]"], "t": [0.3, "x", None, 1]}
    )
    table = hyperparameters.table_of_settings(cells, {"shares": ["a", "b", "c", "d"]})
    assert table.notna().all(axis=1).tolist() == [False, True, False, False]
    assert hyperparameters.table_of_settings(cells, ["t"])["t"].notna().tolist() == [
        True,
        False,
        False,
        True,
    ]
    assert hyperparameters.table_of_settings(cells, ["u"]) is None


# --- formulas -------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["shares", "charges", "spent", "delta", "failures", "gaussian"])
def test_total_budget_fails_on_a_share_a_charge_or_a_ledger_too_large(change):
    rows = dpm_rows("budget", "dpm", "gas", params={"shares": [0.04, 0.18, 0.18, 0.6]})
    assert check_finding({"type": "total_budget"}, rows).verdict == HOLDS
    if change == "shares":
        rows = rows.assign(params=json.dumps({"shares": [0.04, 0.18, 0.18, 0.61]}))
    elif change == "charges":
        rows = rows.assign(charges=json.dumps([{"mechanism": "laplace", "epsilon": 0.41}]))
    elif change == "spent":
        rows = rows.assign(epsilon_spent=1.01)
    elif change == "delta":
        rows = rows.assign(delta=1.01 * rows["n"] ** -1.5)
    elif change == "failures":
        charge = {"mechanism": "exponential", "epsilon": 0.1, "delta": 0.6 * rows["n"][0] ** -1.5}
        one, two = (rows.assign(charges=json.dumps([charge] * count)) for count in (1, 2))
        assert check_finding({"type": "total_budget"}, one).verdict == HOLDS
        rows = two
    else:
        small, large = (json.dumps([{"mechanism": "gaussian", "mu": mu}]) for mu in (0.1, 0.2))
        assert check_finding({"type": "total_budget"}, rows.assign(charges=small)).verdict == HOLDS
        rows = rows.assign(charges=large)
    assert check_finding({"type": "total_budget"}, rows).verdict == FAILS


# --- all claims, figures, configuration -----------------------------------------------------------


def test_every_claim_is_there_and_judged(findings):
    assert len(findings) == 48
    counts = Counter(finding.verdict for finding in findings.values())
    assert counts == {HOLDS: 27, FAILS: 9, INCONCLUSIVE: 5, NOT_RUN: 7}
    not_run = {name for name, finding in findings.items() if finding.verdict == NOT_RUN}
    assert {"kd-stable-10-refs", "halts-without-good-split"} <= not_run and len(not_run) == 7
    assert all(findings[name].numbers for name in findings)


def test_claims_and_deviations_have_what_the_report_prints():
    known = verdicts.EVALUATORS | claims.paper_evaluators("dpm")
    for claim in CONTENT["claims"]:
        assert {"id", "section", "statement", "kind", "basis", "check"} <= set(claim)
        parts = (
            claim["check"].get("parts", [])
            if claim["check"]["type"] == "all_of"
            else [claim["check"]]
        )
        assert parts and all(part["type"] in known for part in parts), claim["id"]
    assert all({"topic", "paper", "here", "why"} <= set(line) for line in CONTENT["deviations"])


@pytest.mark.parametrize("name", sorted(SPECS))
def test_figures_have_numbers_behind_them(name, study):
    drawn = figure(name)
    assert len(drawn.table) and len(drawn.formatted) and drawn.caption.endswith(".")


@pytest.mark.parametrize("name", sorted(SPECS))
def test_every_figure_survives_rows_of_one_cell_only(name):
    with styled():
        drawn = SPECS[name].draw(
            Study(dpm_rows("table", "dpm", "blobs-2000-4-8", seeds=3, size=(2000, 4, 8)))
        )
    assert drawn.caption.endswith(".")
    reasons = {gap.rpartition(": ")[2] for gap in drawn.gaps}
    expected = "no pair of stored runs at matched budgets" if name == "matched" else NO_ROWS
    assert reasons == {expected}


def words(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_figure1_shows_reported_values_and_cuts_what_lies_outside_the_box(study):
    drawn = figure("figure1")
    shown = drawn.table.set_index(["dataset", "method"])
    assert shown.loc[("letters-18720", "em_mc"), "reported"] == 23.81
    assert shown.loc[("gas", "dp_lloyd"), "mean"] == pytest.approx(0.25, rel=0.05)
    texts = words(drawn.figure)
    assert "reported 14.2" in texts and any(text.startswith("measured 23") for text in texts)
    # Bars end below the edge of their panel although one value is a hundred times higher.
    for axes in drawn.figure.axes:
        assert all(patch.get_height() < axes.get_ylim()[1] < 1 for patch in axes.patches)


def test_figure4_draws_cpu_seconds_with_labels_clear_of_their_bars(study):
    drawn = figure("figure4")
    assert "largest ratio of wall-clock to CPU time of a fit is 1.25" in drawn.caption
    line = drawn.table.set_index(["dataset", "method"]).loc[("gas", "dpm")]
    rows = all_rows()
    mine = rows[
        (rows["sweep"] == "timing") & (rows["dataset"] == "gas") & (rows["method"] == "dpm")
    ]
    assert line["mean"] == pytest.approx(mine["fit_cpu_seconds"].mean())
    ends = np.sort(drawn.table["mean"] + drawn.table["deviation"])
    assert (np.sort([text.get_position()[1] for text in drawn.figure.axes[0].texts]) > ends).all()


def test_methods_of_another_adjacency_are_kept_off_the_axes_and_named():
    rows = all_rows()
    rows = rows.assign(
        adjacency=rows["adjacency"].where(rows["method"] != "lsh_splits", "add_remove")
    )
    for name in ("figure1", "figure4", "directions"):
        with styled():
            drawn = SPECS[name].draw(Study(rows))
        assert "lsh_splits" not in set(drawn.table["method"])
        assert any("another adjacency" in gap for gap in drawn.gaps), name
    # No ratio across adjacencies either.
    assert "lsh_splits" not in set(matched_ratios(Study(rows))["published"])


def test_matched_ratios_never_give_the_sound_variant_more(study):
    table = matched_ratios(study)
    assert (table["spent_sound"] <= table["spent_published"] * (1 + 1e-9)).all()
    assert (table["delta_sound"] <= table["delta_published"]).all()
    chosen = table.groupby("published")["epsilon_sound"].unique()
    assert {name: values.tolist() for name, values in chosen.items()} == {
        "dpm": [0.75],
        "lsh_splits": [1.0],
        "dp_lloyd": [1.0],
    }
    rows = all_rows()
    mine = rows[
        (rows["dataset"] == "gas") & (rows["epsilon"] == 0.75) & (rows["method"] == "dpm_sound")
    ]
    theirs = rows[
        (rows["dataset"] == "gas") & (rows["sweep"] == "table") & (rows["method"] == "dpm")
    ]
    line = table[(table["dataset"] == "gas") & (table["sound"] == "dpm_sound")].iloc[0]
    assert line["ratio"] == pytest.approx(mine["inertia"].mean() / theirs["inertia"].mean())
    assert line["low"] < line["ratio"] < line["high"] and line["unproven"] == "F-13"


def test_figure5_splits_best_and_worst_by_the_metrics_direction(study):
    table = figure("figure5").table
    for metric, sign in (("silhouette", -1), ("inertia", 1)):
        mine = table[(table["metric"] == metric) & (table["dataset"] == "letters-18720")]
        best, worst = (sign * mine.loc[mine["group"] == name, "mean"] for name in ("best", "worst"))
        assert len(best) == len(worst) == 4 and best.max() < worst.min()


def test_tables_count_their_verdicts_and_explain_marks(study):
    drawn = figure("table3")
    assert len(drawn.formatted) == 10 and "(a) " in drawn.caption
    counts = drawn.table["verdict"].value_counts()
    for verdict, count in counts.items():
        assert f"{count} {verdict}" in drawn.caption


def test_the_axis_names_delta_by_n_to_the_three_halves(study):
    cells = study.panel("table", "inertia").cells
    assert epsilon_label(cells) == "ε (zero-out; δ = 1/(N √N), DP-Lloyd δ = 0)"


def test_older_rows_without_the_new_columns_are_accepted():
    rows = dpm_rows("table", "dpm", "gas").drop(columns=["half_width", "timing"])
    study = Study(rows)
    assert study.cells["domain_half_width"].isna().all() and not study.cells["timing"].any()
    assert np.isnan(raw_units(study.panel("table", "inertia")).values).all()


def test_the_report_builds_and_names_the_swapped_shares(tmp_path, monkeypatch):
    rows = all_rows(datasets=("letters-18720", "gas"))
    page = reports.built("dpm", rows, tmp_path, monkeypatch, ("table2", "table3", "figure1"))
    html = page.read_text(encoding="utf-8")
    for text in (
        "F-26",
        "swapped",
        "Deviations from the paper",
        "Table 3",
        "within sampling error",
    ):
        assert text in html, text
    assert "register (analysis/flaws.yaml)" not in html


def test_the_configuration_has_the_grids_that_claims_count():
    paper = yaml.safe_load((CONF / "paper/dpm.yaml").read_text(encoding="utf-8"))
    budget = [paper["sweeps"]["budget"], paper["profiles"]["quick"]["budget"]]
    counts = {
        claim["check"].get("sweep"): claim["check"]["settings"]
        for claim in CONTENT["claims"]
        if "settings" in claim["check"]
    }
    for sweep in budget:
        shares = sweep["methods"][0]["grid"]["shares"]
        assert all(abs(sum(split) - 1) < 1e-9 and min(split) > 0 for split in shares)
        assert [0.04, 0.18, 0.18, 0.6] in shares and len({tuple(split) for split in shares}) == len(
            shares
        )
    assert len(budget[0]["methods"][0]["grid"]["shares"]) == counts["budget"]
    for sweep in (
        paper["sweeps"]["centreness"],
        *(profile["centreness"] for profile in paper["profiles"].values()),
    ):
        grids = [entry["grid"] for entry in sweep["methods"]]
        assert all(2 * q <= t for grid in grids for t in grid["t"] for q in grid["q"])
    pairs = sum(
        len(entry["grid"]["t"]) * len(entry["grid"]["q"])
        for entry in paper["sweeps"]["centreness"]["methods"]
    )
    assert pairs == counts["centreness"]
    named = {name for name in paper["sweeps"] if paper["sweeps"][name]["methods"]}
    checks = [claim["check"] for claim in CONTENT["claims"]]
    checks += [part for check in checks for part in check.get("parts", ())]
    asked = [check["sweep"] for check in checks if "sweep" in check]
    for sweeps in asked:
        assert set([sweeps] if isinstance(sweeps, str) else sweeps) <= named


def test_the_smoke_profile_needs_generated_data_only():
    paper = yaml.safe_load((CONF / "paper/dpm.yaml").read_text(encoding="utf-8"))
    for name in paper["sweeps"]:
        change = paper["profiles"]["smoke"].get(name, {})
        if change is not None:
            assert all(dataset.startswith("blobs-") for dataset in change["datasets"]), name


def test_synthetic_sizes_are_the_papers():
    for name, size in CONTENT["claims"][-1]["check"]["expected"].items():
        assert SIZES[name] == tuple(size)
