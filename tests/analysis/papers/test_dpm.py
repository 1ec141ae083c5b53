"""The DPM report on synthetic rows: claims, settings, formulas and figures."""

import re
from functools import partial

import charts
import numpy as np
import pytest
import reports
import yaml
from fabricated.dpm import SIZES, all_rows, dpm_cell, dpm_rows
from fabricated.rows import join_cells, with_charges, with_params

from pkm.analysis.claims import reported
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.findings import (
    HOLDS,
    INCONCLUSIVE,
    NOT_COMPARABLE,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    REFUTED,
    VERDICTS,
)
from pkm.analysis.claims.verdicts import count_verdicts, overview
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.papers.dpm import matched_ratios
from pkm.analysis.tables.study import Study
from pkm.catalogue import CONF
from pkm.datasets import why_unavailable

PAPER = "dpm"
NO_ROWS = "no stored rows"
SPECS = {spec.name: spec for spec in read_figures(PAPER)}
figure = partial(reports.figure_of, PAPER)
CONTENT = read_claims(PAPER)


evaluate_claim = partial(reports.evaluate_claim, PAPER)
evaluate_check = partial(reports.evaluate_check, PAPER)


def load_paper():
    """Configuration of the paper."""
    return yaml.safe_load((CONF / "paper/dpm/sweeps.yaml").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_table_values_claim_allows_for_chance_only(findings):
    # Rows near the reported numbers: no more of them are outside than two standard errors allow by
    # chance.
    finding = findings["table-values"]
    assert finding.verdict == INCONCLUSIVE
    assert "not comparable" in finding.summary
    assert finding.missing == "16 not run of 120 numbers"
    where = {"sweep": "table", "dataset": "synth-10d"}
    worse = reports.scaled(all_rows(), where, silhouette=0.8, inertia=1.5, accuracy=0.8)
    finding = evaluate_claim("table-values", worse)
    assert finding.verdict == NOT_REPRODUCED
    assert finding.evidence["verdict"].iloc[0] == reported.WORSE
    other_sweep = all_rows()[all_rows()["sweep"] == "budget"]
    assert evaluate_claim("table-values", other_sweep).verdict == NOT_RUN


# --- predicates on runs ---------------------------------------------------------------------------


def test_orderings_and_bounds():
    rows = all_rows()
    # As reported: behind LSH-Splits on two sets.
    printed, measured = reports.check_of("dpm", "sota-inertia")["parts"]
    assert evaluate_check(printed, rows).verdict == REFUTED
    assert evaluate_check(measured, rows).verdict == NOT_REPRODUCED
    where = {"sweep": "table", "method": "dpm_published"}
    better = reports.scaled(rows, where, inertia=0.3)
    assert evaluate_check(measured, better).verdict == NOT_CONTRADICTED
    # What the paper prints is the same, whatever is stored.
    assert evaluate_claim("sota-inertia", better).verdict == REFUTED
    # A difference of scores, not a ratio: 0.02 below k-means at every height.
    worse = reports.scaled(rows, where | {"dataset": "synth-10d"}, silhouette=0.9)
    finding = evaluate_claim("silhouette-near-nonprivate", worse)
    assert finding.verdict == NOT_REPRODUCED
    assert "Difference" in finding.summary
    assert finding.evidence["difference"].max() == pytest.approx(0.97 - 0.9 * 0.96, abs=0.02)


def test_numbers_of_centers_per_class():
    rows = all_rows()
    finding = evaluate_claim("n-clusters-close", rows)
    assert finding.verdict == HOLDS
    assert finding.evidence["ratio"].between(1.3, 1.6).all()
    where = {"sweep": "table", "method": "dpm_published", "dataset": "letters-18720"}
    many = reports.scaled(rows, where, n_centers=2.0)
    assert evaluate_claim("n-clusters-close", many).verdict == NOT_REPRODUCED
    assert evaluate_claim("n-clusters-max", rows).verdict == HOLDS
    single_run = rows.copy()
    mask = reports.row_mask(rows, method="dpm_published", sweep="centreness")
    single_run.loc[rows.index[mask][0], "n_centers"] = 129
    assert evaluate_claim("n-clusters-max", single_run).verdict == NOT_REPRODUCED


def judge_time(name, rows):
    """Finding on a claim about times, as if they were comparable."""
    check = dict(reports.check_of("dpm", name))
    assert "its own machine" in check.pop("not_comparable")
    return evaluate_check(check, rows)


def test_times_are_not_comparable():
    names = [claim.id.split("/")[1] for claim in CONTENT["claims"]]
    times = [name for name in names if name.startswith("time-")]
    verdicts = {evaluate_claim(name, all_rows()).verdict for name in times}
    assert verdicts == {NOT_COMPARABLE, NOT_CONTRADICTED, NOT_RUN}


def test_comparison_across_data_sets():
    rows = all_rows()
    finding = judge_time("time-dpm-dimension", rows)
    assert finding.verdict == HOLDS
    assert finding.evidence["ratio"][0] == pytest.approx(10, rel=0.15)
    where = {"sweep": "timing", "dataset": "synth-10d", "method": "dpm_published"}
    slow = reports.scaled(rows, where, fit_cpu_seconds=5.0)
    assert judge_time("time-dpm-dimension", slow).verdict == NOT_REPRODUCED
    assert judge_time("time-dpm-points", rows).verdict == HOLDS
    assert judge_time("time-dp-lloyd-gas", rows).verdict == NOT_REPRODUCED
    two_data_sets = rows[rows["dataset"].isin(["letters-18720", "gas"])]
    finding = judge_time("time-dpm-points", two_data_sets)
    assert finding.verdict == NOT_CONTRADICTED
    assert "1 of 5" in finding.missing


def test_slopes_of_running_time():
    rows = all_rows()
    finding = evaluate_claim("time-complexity", rows)
    # Slopes at some sizes show no bound on all of them, and refute none.
    assert finding.verdict == NOT_CONTRADICTED
    assert not finding.missing
    slopes = re.findall(r"Slope over \w (\S+)", finding.summary)
    assert list(map(float, slopes)) == pytest.approx([1.05, 1.0], abs=0.06)
    squared = rows.copy()
    mask = reports.row_mask(squared, sweep="scaling", method="dpm_published")
    squared.loc[mask, "fit_cpu_seconds"] *= squared.loc[mask, "n"]
    assert evaluate_claim("time-complexity", squared).verdict == INCONCLUSIVE
    # Below the sizes of the claim there is no verdict at any slope.
    for table in (rows, squared):
        small = table[(table["n"] < 200000) & (table["d"] < 80)]
        finding = evaluate_claim("time-complexity", small)
        assert finding.verdict == INCONCLUSIVE
        assert "4 of 5" in finding.missing
        assert "n = 200000" in finding.summary


def test_similar_times_are_bounded_in_both_directions():
    rows = all_rows()
    where = {"sweep": "timing", "method": "kmeans"}
    similar = reports.scaled(rows, where, fit_cpu_seconds=0.1)
    finding = judge_time("time-three-similar", similar)
    assert finding.verdict == HOLDS
    # Each pair is compared once.
    assert finding.comparisons == 15
    for factor in (0.001, 10):
        different = reports.scaled(similar, where, fit_cpu_seconds=factor)
        assert judge_time("time-three-similar", different).verdict == NOT_REPRODUCED


def test_time_claims_use_cpu_seconds():
    rows = all_rows()
    where = {"sweep": "timing", "method": "dpm_published"}
    slow_wall_clock = reports.scaled(rows, where, fit_seconds=1e6)
    assert judge_time("time-dpm-seconds", slow_wall_clock).verdict == HOLDS
    slow_cpu = reports.scaled(rows, where, fit_cpu_seconds=1e6)
    assert judge_time("time-dpm-seconds", slow_cpu).verdict == NOT_REPRODUCED


def test_claim_on_more_clusters_compares_steps():
    rows = all_rows()
    finding = evaluate_claim("inertia-accuracy-profit-from-k", rows)
    assert finding.verdict == HOLDS
    assert finding.comparisons == 30
    assert not finding.missing
    assert set(finding.evidence.query("dataset == 'letters-18720'")["k"]) == {26, 52, 104}
    worse = reports.scaled(rows, {"sweep": "clusters_letters", "k": 52}, inertia=2.0)
    assert evaluate_claim("inertia-accuracy-profit-from-k", worse).verdict == NOT_REPRODUCED
    fewer = rows[~rows["sweep"].str.startswith("clusters_embeddings")]
    finding = evaluate_claim("inertia-accuracy-profit-from-k", fewer)
    assert finding.missing.startswith("9 of 15 comparisons can be made; absent: dataset mnist")


def test_best_number_of_clusters_on_gas():
    rows = all_rows()
    assert evaluate_claim("gas-two-clusters", rows).verdict == HOLDS
    where = {"sweep": "clusters_gas", "k": 7}
    best_at_seven = reports.scaled(rows, where, silhouette=2.0)
    finding = evaluate_claim("gas-two-clusters", best_at_seven)
    assert finding.verdict == NOT_REPRODUCED
    assert "Largest score at k 7" in finding.summary
    without_seven = reports.without(rows, **where)
    assert "18 of 19" in evaluate_claim("gas-two-clusters", without_seven).missing


# --- grids of settings ----------------------------------------------------------------------------


def grid_rows(sweep, cost, settings, *, datasets=("letters-18720",), noise=0.002, seeds=12):
    """Rows whose inertia is `cost(dataset, setting)` with little noise."""
    rng = np.random.default_rng(3)
    parts = []
    for dataset in datasets:
        for params in settings:
            inertia = cost(dataset, params) * (1 + noise * rng.normal(size=seeds))
            cell = dpm_cell(
                sweep, "dpm_published", dataset, seeds=seeds, params=params, metrics=("inertia",)
            )
            parts.append(cell | {"inertia": inertia})
    return join_cells(parts)


def budget_rows(cost, settings, **options):
    """Rows of budget splits with inertia `cost(interval, counts, splits)`, with little noise."""

    def cost_of_setting(_, params):
        interval, counts, splits, _ = params["shares"]
        return cost(interval, counts, splits)

    return grid_rows("budget", cost_of_setting, settings, **options)


SHARES = [
    {"shares": [a, b, c, round(1 - a - b - c, 10)]}
    for a in (0.05, 0.1, 0.2)
    for b in (0.1, 0.2, 0.3)
    for c in (0.1, 0.2)
]
PARTS = ("interval", "counts", "splits", "averages")
BUDGET = reports.check_of("dpm", "budget-int-small") | {
    "metric": ["inertia"],
    "over": {"dataset": ["letters-18720"]} | dict.fromkeys(PARTS, "any"),
    "expected": 18,
}
BUDGET = {key: item for key, item in BUDGET.items() if key != "below"}
IN_BEST = BUDGET | {
    "name": "Share in the best fifth",
    "statistic": "mean(interval, lowest(loss, 0.2))",
}


def test_best_part_of_grid():
    # Cost rises with the interval's share alone, so the best fifth has the smallest ones.
    rows = budget_rows(lambda interval, counts, splits: 1 + interval, SHARES)
    check = IN_BEST
    below_worst = reports.check_of("dpm", "budget-int-small") | BUDGET | {"below": 0}
    finding = evaluate_check(below_worst, rows)
    assert finding.verdict == HOLDS
    assert not finding.missing
    assert "0.05 " in evaluate_check(check | {"at_most": 1}, rows).summary
    assert "-0.15 " in finding.summary
    falling = budget_rows(lambda interval, counts, splits: 2 - interval, SHARES)
    assert evaluate_check(below_worst, falling).verdict == NOT_REPRODUCED
    assert evaluate_check(check | {"above": 0.15}, falling).verdict == HOLDS
    assert evaluate_check(check | {"above": 0.25}, falling).verdict == NOT_REPRODUCED


def test_best_part_by_form_of_several_shares():
    rows = budget_rows(lambda interval, counts, splits: 1 + counts - splits, SHARES)
    check = IN_BEST | {"statistic": "mean(splits - counts, lowest(loss, 0.2))"}
    assert evaluate_check(check | {"at_least": 0}, rows).verdict == HOLDS
    assert evaluate_check(check | {"at_most": 0}, rows).verdict == NOT_REPRODUCED


def test_rank_of_one_setting():
    rows = budget_rows(lambda interval, counts, splits: 1 + interval + counts - splits, SHARES)
    check = BUDGET | {"name": "Share of better settings", "below": 0.4}

    def verdict_on(interval, counts, splits):
        setting = f"(interval == {interval}) & (counts == {counts}) & (splits == {splits})"
        return evaluate_check(check | {"statistic": f"mean(rank(loss), {setting})"}, rows).verdict

    assert verdict_on(0.05, 0.1, 0.2) == HOLDS
    assert verdict_on(0.2, 0.3, 0.1) == NOT_REPRODUCED
    assert verdict_on(0.25, 0.25, 0.25) == NOT_RUN


def planned_shares(profile=None):
    paper = load_paper()
    sweeps = paper["profiles"][profile] if profile else paper["sweeps"]
    grid = sweeps["budget"]["methods"][0]["grid"]
    return [{"shares": shares} for shares in grid["shares"]]


def cost_best_at_a_third(interval, counts, splits):
    """Cost of the distance of the counts' share of the rest after the interval from a third."""
    return 1 + abs(counts / (1 - interval) - 1 / 3)


OF_PLAN = {"metric": ["inertia"], "over": BUDGET["over"], "expected": 61}
COUNTS, SPLITS = (
    part | OF_PLAN for part in reports.check_of("dpm", "budget-cnt-exp-moderate")["parts"]
)


def test_interior_best_and_best_at_the_edge():
    shares = planned_shares()
    interior = budget_rows(cost_best_at_a_third, shares)
    finding = evaluate_check(COUNTS, interior)
    assert finding.verdict == HOLDS
    # The outer levels are a sixth and two thirds, the best inner one a third: costs 1 and 7 / 6.
    lead = finding.evidence["lead_of_the_best_inner_share_of_counts"][0]
    assert lead == pytest.approx((1 / 6) / (4 / 3), abs=0.005)
    assert not finding.missing
    edge = budget_rows(lambda interval, counts, splits: 1 + counts / (1 - interval), shares)
    assert evaluate_check(COUNTS, edge).verdict == NOT_REPRODUCED


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0, 1e-12, 0.002])
def test_interior_best_ignores_the_interval_share(noise):
    check = {"type": "all_of", "parts": [COUNTS, SPLITS]}
    rising = budget_rows(
        lambda interval, counts, splits: 2 + interval, planned_shares(), noise=noise
    )
    falling = budget_rows(
        lambda interval, counts, splits: 2 - interval, planned_shares(), noise=noise
    )
    for rows in (rising, falling):
        finding = evaluate_check(check, rows)
        assert finding.verdict == INCONCLUSIVE, finding.summary


def test_too_few_levels_are_inconclusive():
    def cost(interval, counts, splits):
        return 1 + counts

    # The smaller grid has three levels, one of them inside.
    finding = evaluate_check(COUNTS, budget_rows(cost, planned_shares("quick")))
    assert finding.verdict == INCONCLUSIVE
    assert "Fewer than 4 levels" in finding.summary
    # Unbalanced grids have no levels in common.
    finding = evaluate_check(COUNTS, budget_rows(cost, SHARES))
    assert finding.verdict == NOT_RUN
    assert "0 of 3 levels" in finding.summary


PAIRS = [{"t": t, "q": q} for t in (0.2, 0.6, 0.8, 1.0) for q in (0.025, 0.05, 0.1)]
TWO_SETS = ("letters-18720", "synth-10d")
CORNER = {
    "metric": ["inertia"],
    "over": {"dataset": TWO_SETS} | dict.fromkeys(("t", "q", "corner"), "any"),
    "expected": 24,
}
FLAT = reports.check_of("dpm", "tq-insensitive") | CORNER
WORST_IN_CORNER = reports.check_of("dpm", "tq-bad-corner") | CORNER
SAME_CORNER = reports.check_of("dpm", "tq-same-on-other-sets")["parts"][0] | CORNER


def cost_with_corner(_, params):
    t = params["t"]
    q = params["q"]
    if t >= 0.8 and q <= 0.05:
        return 1.2 + t - 2 * q
    return 1.0


def test_flat_except_for_a_corner():
    rows = grid_rows("centreness", cost_with_corner, PAIRS, datasets=TWO_SETS)
    finding = evaluate_check(FLAT, rows)
    assert finding.verdict == HOLDS
    assert (finding.evidence["relative_range"] < 0.01).all()
    assert evaluate_check(WORST_IN_CORNER, rows).verdict == HOLDS
    assert evaluate_check(SAME_CORNER, rows).verdict == HOLDS
    tilted = grid_rows("centreness", lambda _, p: 1 + 3 * p["q"], PAIRS, datasets=TWO_SETS)
    assert evaluate_check(FLAT, tilted).verdict == NOT_REPRODUCED
    assert evaluate_check(WORST_IN_CORNER, tilted).verdict == NOT_REPRODUCED

    def opposite_cost(dataset, params):
        sign = 1 if dataset == "synth-10d" else -1
        return sign * cost_with_corner(dataset, params) + 5

    opposite = grid_rows("centreness", opposite_cost, PAIRS, datasets=TWO_SETS)
    assert evaluate_check(SAME_CORNER, opposite).verdict == NOT_REPRODUCED


def test_incomplete_and_missing_grids_are_reported():
    rows = grid_rows("centreness", cost_with_corner, PAIRS[:6])
    finding = evaluate_check(FLAT, rows)
    assert "6 of 24 comparisons" in finding.missing
    assert "synth-10d" in finding.missing
    assert evaluate_check(IN_BEST | {"above": 0}, rows).verdict == NOT_RUN


# --- formulas -------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["shares", "charges", "spent", "delta", "failures", "gaussian"])
def test_total_budget_fails_on_excess(change):
    rows = dpm_rows("budget", "dpm_published", "gas", params={"shares": [0.04, 0.18, 0.18, 0.6]})
    assert evaluate_claim("total-budget", rows).verdict == HOLDS
    if change == "shares":
        rows = with_params(rows, {"shares": [0.04, 0.18, 0.18, 0.61]})
    elif change == "charges":
        rows = with_charges(rows, [{"mechanism": "laplace", "epsilon": 0.41}])
    elif change == "spent":
        rows = rows.assign(epsilon_spent=1.01)
    elif change == "delta":
        rows = rows.assign(delta=1.01 * rows["n"] ** -1.5)
    elif change == "failures":
        delta = 0.6 * rows["n"][0] ** -1.5
        charge = {"mechanism": "exponential", "epsilon": 0.1, "delta": delta}
        single = with_charges(rows, [charge])
        assert evaluate_claim("total-budget", single).verdict == HOLDS
        rows = with_charges(rows, [charge, charge])
    else:
        small = with_charges(rows, [{"mechanism": "gaussian", "mu": 0.1}])
        assert evaluate_claim("total-budget", small).verdict == HOLDS
        rows = with_charges(rows, [{"mechanism": "gaussian", "mu": 0.2}])
    assert evaluate_claim("total-budget", rows).verdict == NOT_REPRODUCED


# --- all claims, figures, configuration -----------------------------------------------------------


def test_verdicts_of_all_claims(findings):
    assert len(findings) == 53
    totals = count_verdicts(overview(reports.verdicts_of("dpm")))
    assert list(totals["paper"].values()) == [18, 9, 8, 0, 4, 9, 3]
    assert totals["code"] == dict.fromkeys(VERDICTS, 0) | {HOLDS: 2}
    not_run = {name for name, finding in findings.items() if finding.verdict == NOT_RUN}
    assert "outer-split-probability" in not_run
    assert len(not_run) == 3
    assert all(findings[name].summary for name in findings)


def test_claims_and_deviations_are_complete():
    for claim in CONTENT["claims"]:
        assert claim.statement.endswith(".")
    assert all({"topic", "paper", "here", "why"} <= set(line) for line in CONTENT["deviations"])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SPECS))
def test_figures_have_numbers(name, study):
    result = figure(name)
    assert len(result.table)
    assert len(result.formatted)
    assert result.caption.endswith(".")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SPECS))
def test_figures_of_a_single_cell(name):
    rows = dpm_rows("table", "dpm_published", "blobs-2000-4-8", seeds=3, size=(2000, 4, 8))
    result = reports.draw("dpm", name, rows)
    assert result.caption.endswith(".")
    reasons = {gap.rpartition(": ")[2] for gap in result.missing}
    assert reasons == {NO_ROWS}


def panels_of(result):
    """Drawn panels by title."""
    return {panel.title.split(") ", 1)[1]: panel for panel in charts.panels_of(result)}


def test_figure1_shows_reported_values_inside_its_axes(study):
    result = figure("figure1")
    table = result.table.set_index(["dataset", "method"])
    assert table.loc[("letters-18720", "em_mc_published"), "reported"] == 23.81
    assert table.loc[("gas", "dp_lloyd_published"), "value"] == pytest.approx(0.25, rel=0.05)
    # All panels share one axis, which holds a reported 0 and a mean a thousand times the others.
    panels = panels_of(result).values()
    ((low, high),) = {(panel.x.low, panel.x.high) for panel in panels}
    assert low < table["reported"].min() == 0
    assert high > table["value"].max() > 20
    diamonds = [
        line.get_xdata()[0]
        for panel in panels
        for line in panel.axes.lines
        if line.get_marker() == "D" and line.get_markerfacecolor() == "none"
    ]
    assert sorted(diamonds) == sorted(table["reported"].dropna())


def test_figure4_shows_cpu_seconds(study):
    result = figure("figure4")
    assert "largest ratio of wall-clock to CPU time of a fit is 1.25" in result.caption
    line = result.table.set_index(["dataset", "method"]).loc[("gas", "dpm_published")]
    rows = all_rows().query("sweep == 'timing' and dataset == 'gas' and method == 'dpm_published'")
    assert line["value"] == pytest.approx(rows["fit_cpu_seconds"].mean())
    # Every mark has its number, and absent methods have no row.
    (panel,) = charts.panels_of(result)
    assert len(panel.texts) == len(result.table)
    assert len(panel.y.ticks) == len(result.table)
    assert any(gap.startswith("EM-MC on MNIST embeddings, Fashion") for gap in result.missing)


def test_methods_of_another_adjacency_are_excluded():
    rows = all_rows()
    adjacency = rows["adjacency"].where(rows["method"] != "lsh_splits_published", "add_remove")
    rows = rows.assign(adjacency=adjacency)
    for name in ("figure1", "figure4", "directions"):
        result = reports.draw("dpm", name, rows)
        assert "lsh_splits_published" not in set(result.table["method"])
        assert any("another adjacency" in gap for gap in result.missing), name
    # No ratio across adjacencies either.
    assert "lsh_splits_published" not in set(matched_ratios(Study(rows))["published"])


def test_matched_ratios_bound_the_sound_budget(study):
    table = matched_ratios(study)
    spent = table["epsilon_spent_published"]
    assert (table["epsilon_spent_sound"] <= spent * (1 + 1e-9)).all()
    assert (table["delta_sound"] <= table["delta_published"]).all()
    epsilons = table.groupby("published")["epsilon_sound"].unique()
    expected = {"dpm_published": [0.75], "lsh_splits_published": [1.0], "dp_lloyd_published": [1.0]}
    assert {name: values.tolist() for name, values in epsilons.items()} == expected
    rows = all_rows().query("dataset == 'gas'")
    sound = rows.query("epsilon == 0.75 and method == 'dpm'")["inertia"]
    published = rows.query("sweep == 'table' and method == 'dpm_published'")["inertia"]
    pair = table.query("dataset == 'gas' and sound == 'dpm'").iloc[0]
    assert pair["value"] == pytest.approx(sound.mean() / published.mean())
    assert pair["low"] < pair["value"] < pair["high"]
    assert pair["unproven"] == "F-13"


def test_figure5_splits_best_and_worst_settings(study):
    table = figure("figure5").table
    table = table[table["dataset"] == "letters-18720"]
    for metric, sign in (("silhouette", -1), ("inertia", 1)):
        of_metric = table[(table["metric"] == metric) & (table["x"] == "averages")]
        means = of_metric.set_index("hue")["mean"]
        best = sign * means["best"]
        worst = sign * means["worst"]
        assert len(best) == len(worst) == 4
        assert best.max() < worst.min()
        shares = of_metric.set_index("hue")["value"]
        assert shares["best_mean"] == pytest.approx(shares["best"].mean())
        assert shares["paper"] == 0.6


def test_dark_is_better_in_every_panel_of_figure6(study):
    for panel in charts.panels_of(figure("figure6")):
        (drawn,) = panel.axes.collections
        low, high = (sum(drawn.get_cmap()(share)) for share in (0.0, 1.0))
        assert (low > high) == panel.title.endswith("↑"), panel.title


def test_directions_and_centers_have_rows_of_stored_methods_only(study):
    for name in ("directions", "centers"):
        result = figure(name)
        panels = panels_of(result)
        assert len(panels["Gas"].y.ticks) == 9
        assert len(panels["Synth-10d"].y.ticks) == 8
        assert result.missing == (
            "EM-MC on MNIST embeddings, Fashion embeddings, Synth-10d, Synth-100d: not run: "
            "no stored rows",
        )
    # The line at the number of classes is that of the panel's data set.
    (line,) = (line for line in panels["Gas"].axes.lines if line.get_linestyle() == "--")
    assert set(line.get_xdata()) == {2}


def test_table_captions_count_verdicts(study):
    result = figure("table3")
    assert len(result.formatted) == 10
    assert "(a) " in result.caption
    counts = result.table["verdict"].value_counts()
    for verdict, count in counts.items():
        assert f"{count} {verdict}" in result.caption


@pytest.mark.slow
def test_report_mentions_swapped_shares(tmp_path, monkeypatch):
    names = ("table2", "table3", "figure1")
    page = reports.build_report("dpm", all_rows(), tmp_path, monkeypatch, names)
    html = page.read_text(encoding="utf-8")
    texts = ("F-26", "swapped", "Deviations from the paper", "Table 3", "within sampling error")
    for text in texts:
        assert text in html, text
    assert "register (analysis/flaws.yaml)" not in html


def test_configuration_has_the_grids_of_claims():
    paper = load_paper()
    checks = [claim.check for claim in CONTENT["claims"]]
    n_settings = {
        check["sweep"]: check["expected"] // len(check["over"]["dataset"])
        for check in checks
        if check.get("sweep") in ("budget", "centreness")
    }

    # Budget splits sum to one, and the paper's split is one of them.
    for splits in (planned_shares(), planned_shares("quick")):
        shares = [split["shares"] for split in splits]
        assert all(abs(sum(split) - 1) < 1e-9 for split in shares)
        assert all(min(split) > 0 for split in shares)
        assert [0.04, 0.18, 0.18, 0.6] in shares
        assert len({tuple(split) for split in shares}) == len(shares)
    assert len(planned_shares()) == n_settings["budget"]

    # q is at most half of t.
    sweeps = [profile["centreness"] for profile in paper["profiles"].values()]
    sweeps.append(paper["sweeps"]["centreness"])
    for sweep in sweeps:
        for entry in sweep["methods"]:
            grid = entry["grid"]
            assert 2 * max(grid["q"]) <= min(grid["t"])
    grids = [entry["grid"] for entry in paper["sweeps"]["centreness"]["methods"]]
    n_pairs = sum(len(grid["t"]) * len(grid["q"]) for grid in grids)
    assert n_pairs == n_settings["centreness"]

    # Claims use configured sweeps only.
    configured = {name for name, sweep in paper["sweeps"].items() if sweep["methods"]}
    checks += [part for check in checks for part in check.get("parts", ())]
    for check in checks:
        sweeps = check.get("sweep", [])
        assert set([sweeps] if isinstance(sweeps, str) else sweeps) <= configured


def test_smoke_profile_needs_no_files(cache):
    paper = load_paper()
    for name in paper["sweeps"]:
        change = paper["profiles"]["smoke"].get(name, {})
        if change is not None:
            assert not any(map(why_unavailable, change["datasets"])), name


def test_synthetic_sizes_equal_the_paper():
    for name, size in CONTENT["claims"][-1].check["expected"].items():
        assert SIZES[name] == tuple(size)
