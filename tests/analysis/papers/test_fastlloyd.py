"""FastLloyd's claims and figures on synthetic rows, and claims that can fail."""

import itertools
from functools import partial

import charts
import numpy as np
import pandas as pd
import pytest
import reports
from fabricated.fastlloyd import EPSILONS, SIZES, cell_rows, iteration_bound, lloyd_cell, small_rows
from fabricated.rows import join_cells

from pkm.analysis.claims import verdicts
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.findings import (
    HOLDS,
    INCONCLUSIVE,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
)
from pkm.analysis.figures.texts import missing_text
from pkm.arrow import read_parameters


def outlier_rows(
    increase, *, seeds=20, sizes=((2, 0), (8, 0), (16, 0)), epsilons=(0.1, 0.25, 0.5, 0.75, 1.0)
):
    """Synth sets with and without outliers; NICV goes up by `increase(method, d, epsilon)`."""
    rng = np.random.default_rng(6)
    methods = ("fastlloyd_published", "glloyd_published")
    parts = []
    for (d, replicate), epsilon, method in itertools.product(sizes, epsilons, methods):
        common = rng.normal(1, 0.05, seeds)
        for n_outliers in (0, 100):
            name = f"synth-4-{d}-{replicate}-o{n_outliers}"
            shape = {"size": (10000 + n_outliers, d, 4), "metrics": ("nicv",)}
            cell = lloyd_cell("outliers", method, name, epsilon, seeds, **shape)
            harm = increase(method, d, epsilon) if n_outliers else 0.0
            parts.append(cell | {"nicv": common + harm + rng.normal(0, 0.01, seeds)})
    return join_cells(parts)


evaluate_outliers = partial(reports.evaluate_claim, "fastlloyd", "radius-limits-outliers")


RIVAL_SETS = {
    "adult": SIZES["adult"],
    "wine": SIZES["wine"],
    "breast": SIZES["breast"],
    "yeast": SIZES["yeast"],
    "mnist": SIZES["mnist"],
    "drybean": (13611, 16, 7),
    "shuttle": (58000, 9, 7),
}
RIVALS = ("sulloyd_published", "lsh_splits_published", "balcan", "kaplan_stemmer", "eugkm")


def rival_rows(better="", dataset="shuttle"):
    """FastLloyd and its rivals, which are worse by half, or better by a fifth on one set."""
    parts = []
    for (name, size), epsilon in itertools.product(RIVAL_SETS.items(), EPSILONS):
        cell = lloyd_cell(
            "rivals", "fastlloyd_published", name, epsilon, 12, size=size, metrics=("nicv",)
        )
        parts.append(cell)
        for method in RIVALS:
            if (method, name) == ("eugkm", "mnist"):
                continue
            factor = 0.8 if (method, name) == (better, dataset) else 1.5
            facts = {"method": method, "cell": cell["cell"] + method, "nicv": factor * cell["nicv"]}
            sweep = "grid_rivals" if method == "eugkm" else "rivals"
            parts.append(cell | facts | {"sweep": sweep})
    return join_cells(parts)


@pytest.mark.slow
@pytest.mark.parametrize("rival", ["", *RIVALS])
def test_every_rival_can_contradict_the_state_of_the_art(rival):
    finding = reports.evaluate_claim("fastlloyd", "sota-d-gt-3", rival_rows(rival))
    if rival:
        assert finding.verdict == NOT_REPRODUCED
        violated = finding.evidence.query("outcome == 'violated'")
        assert violated[["dataset", "right"]].to_numpy().tolist() == [["shuttle", rival]]
    else:
        # The sets of the paper's own sweeps are not among these rows.
        assert finding.verdict == NOT_CONTRADICTED
        assert finding.comparisons == 28 + 6


def test_a_later_paper_prints_smaller_areas_of_a_rival():
    # The doubt of the claim says so; all of its sets but one have more than three columns.
    cells = read_claims("pe-means")["reported"]["areas"]["cells"]
    cells = [cell for cell in cells if cell["dataset"] != "birch2"]
    below = [
        cell
        for cell in cells
        if float(cell["lsh_splits_published"]) < float(cell["fastlloyd_published"])
    ]
    (claim,) = (
        claim for claim in read_claims("fastlloyd")["claims"] if claim.id == "fastlloyd/sota-d-gt-3"
    )
    assert f"on {len(below)} of {len(cells)} sets of more than three columns" in claim.doubt


def test_outliers_claim_uses_sets_of_few_dimensions():
    def smaller(method, d, epsilon):
        return (0.1 if method == "fastlloyd_published" else 0.4) * (17 - d)

    finding = evaluate_outliers(outlier_rows(smaller))
    evidence = finding.evidence
    assert finding.verdict == NOT_CONTRADICTED
    assert finding.comparisons == 5
    assert finding.seeds == 20
    (name,) = [name for name in evidence if name.startswith("increase")]
    assert evidence[name].to_numpy() == pytest.approx(-0.3 * (15 + 9) / 2, rel=0.02)
    assert "By the relative increase: not contradicted as well" in finding.summary

    # The set of 16 dimensions points the other way and must not count.
    def smaller_in_few_dimensions(method, d, epsilon):
        return 0.1 if (method == "fastlloyd_published") == (d <= 8) else 9.0

    finding = evaluate_outliers(outlier_rows(smaller_in_few_dimensions))
    assert finding.verdict == NOT_CONTRADICTED

    def larger_at_one_epsilon(method, d, epsilon):
        return 0.5 if method == "fastlloyd_published" and epsilon == 1.0 else 0.2

    finding = evaluate_outliers(outlier_rows(larger_at_one_epsilon))
    assert finding.verdict == INCONCLUSIVE
    two_sets = reports.check_of("fastlloyd", "radius-limits-outliers") | {"expected": 40}
    rows = outlier_rows(larger_at_one_epsilon)
    violated = reports.evaluate_check("fastlloyd", two_sets, rows)
    assert violated.verdict == INCONCLUSIVE
    assert "Only a fixed domain could decide it." in violated.summary
    assert finding.evidence["outcome"].tolist()[-1] == "violated"


def test_outliers_claim_on_missing_and_partial_sweeps():
    def increase(method, d, epsilon):
        return 0.1 if method == "fastlloyd_published" else 0.4

    assert evaluate_outliers(small_rows()).verdict == NOT_RUN
    rows = outlier_rows(increase, epsilons=(0.1, 1.0))
    finding = evaluate_outliers(rows)
    assert finding.verdict == NOT_CONTRADICTED
    assert finding.missing.startswith(
        "16 of 540 comparisons can be made; absent: epsilon 0.25, 0.5"
    )
    without_outliers = rows[~rows["dataset"].str.endswith("-o100")]
    assert evaluate_outliers(without_outliers).verdict == NOT_RUN


@pytest.mark.slow
def test_verdicts_of_all_claims():
    paper_verdicts = reports.verdicts_of("fastlloyd")
    assert len(paper_verdicts) == 55
    table = verdicts.overview(paper_verdicts).set_index("id")
    counts = verdicts.count_verdicts(table)
    assert list(counts["paper"].values()) == [0, 24, 2, 2, 5, 4, 2]
    assert list(counts["code"].values()) == [11, 1, 0, 0, 0, 0, 4]
    assert table["numbers"].str.len().min() > 0
    # Three data sets of ten have rows, so a claim on all ten is partial.
    for name in ("real-fast-le-glloyd", "table2-sizes"):
        assert table.loc[f"fastlloyd/{name}", "partial"]
        assert table.loc[f"fastlloyd/{name}", "verdict"] == NOT_CONTRADICTED, name
    for name in ("noise-split", "iterations-2-to-7", "eta-formula", "gdp-total"):
        assert table.loc[f"fastlloyd/{name}", "verdict"] == HOLDS, name
    assert not table.loc[table["verdict"] == NOT_RUN, "partial"].any()


def test_claims_and_deviations_are_complete():
    content = read_claims("fastlloyd")
    for claim in content["claims"]:
        assert claim.basis in {"explicit", "implied", "cited", "theorem", "printed", "derived"}
        assert claim.kind in {"ordering", "threshold", "trend", "magnitude", "count"}
        assert claim.statement.endswith(".")
    assert all({"topic", "paper", "here", "why"} <= set(line) for line in content["deviations"])


def test_iteration_bound_is_clipped_on_both_sides():
    assert iteration_bound(150, 4, 3, 0.1, 1e-3) == 2
    assert iteration_bound(10**7, 2, 2, 1.0, 1e-8) == 7


PAPER = "fastlloyd"
figure = partial(reports.figure_of, PAPER)


def draw(name, rows):
    """Draw one figure of the paper."""
    return reports.draw("fastlloyd", name, rows)


@pytest.mark.parametrize(
    "name", ["figure2", "figure3", "figure4", "figure5", "figure8", "sound_nicv", "iterations"]
)
def test_figures_have_numbers(name, study):
    result = figure(name)
    assert len(result.table)
    assert len(result.formatted)
    assert result.caption.endswith(".")


def test_panels_without_rows_are_not_drawn(study):
    result = figure("figure2")
    titles = [panel.title for panel in charts.panels_of(result)]
    assert titles == ["(a) Iris", "(b) S1", "(c) Wine"]
    assert len(result.missing) == 7
    assert missing_text(result.missing).startswith(
        "Not shown, no stored rows: Adult; Birch2; Breast;"
    )


def test_methods_of_another_adjacency_are_excluded():
    rows = small_rows()
    incomparable = cell_rows("real", "fastlloyd_published", "iris", 0.5, 12, size=SIZES["iris"])
    incomparable = incomparable.assign(
        method="other", cell="other", label="other", adjacency="replace_one"
    )
    result = draw("figure2_fold", pd.concat([rows, incomparable], ignore_index=True))
    assert "other" not in set(result.table["method"])
    assert any(gap.startswith("other") for gap in result.missing)


def test_relative_areas_are_over_shared_data_sets():
    areas = figure("figure3").table
    reference = areas[areas["method"] == "sulloyd_published"]
    assert (reference[["value", "low", "high"]] == 1).all(axis=None)
    # A data set without rows of one of the two counts for neither.
    rows = reports.without(small_rows(), method="glloyd_published", dataset="g2-16-60")
    one_less = draw("figure3", rows).table.set_index(["panel", "method", "x"])["value"]
    lines = ["sulloyd_published", "glloyd_published"]
    kept = rows[(rows["dataset"] == "g2-16-20") & rows["method"].isin(lines)]
    means = kept.groupby(["method", "epsilon"])["nicv"].mean().unstack()
    area = pd.Series(np.trapezoid(means, means.columns, axis=1), means.index)
    expected = area["glloyd_published"] / area["sulloyd_published"]
    assert one_less["d", "glloyd_published", 16] == pytest.approx(expected)


def ablation_of_rows(configuration):
    """Means of a configuration and of the naive method by data set."""
    rows = small_rows()
    rows = rows[rows["sweep"] == "ablation"]
    naive = rows[rows["method"] == "glloyd_published"].groupby("dataset")["nicv"].mean()
    subset = rows[[given == configuration for given in read_parameters(rows)]]
    return subset.groupby("dataset")["nicv"].mean(), naive


def test_figure5_has_one_plot_per_average(study):
    configuration = {"alpha": 0.4, "radius_schedule": "step", "postprocessing": "fold"}
    means, naive = ablation_of_rows(configuration | {"radius_clipping": True})
    expected = {
        "figure5": means.sum() / naive.sum(),
        "figure5_ratios": (means / naive).mean(),
    }
    assert expected["figure5"] != pytest.approx(expected["figure5_ratios"], rel=1e-3)
    for name, average in expected.items():
        table = figure(name).table
        mask = reports.row_mask(table, **configuration, panel="with")
        (line,) = table[mask].to_dict("records")
        assert line["value"] == pytest.approx(average)
        assert line["low"] <= line["value"] <= line["high"]
        assert line["datasets"] == len(naive) == 8
        assert "dataset" not in table


@pytest.mark.parametrize(
    "name", ["figure2", "figure2_fold", "figure6", "figure7", "figure8", "figure8_distance"]
)
def test_captions_count_data_sets(name, study):
    caption = figure(name).caption
    assert "on 3 of 10 data sets" in caption
    assert ("best of ten seeded k-means++ starts" in caption) == name.startswith("figure8")


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1e3, 1e6, 1e12])
def test_private_curves_are_inside_their_panels(factor):
    rows = small_rows().copy()
    rows.loc[rows["method"].isin(["sulloyd_published", "glloyd_published"]), "centroid_mse"] *= (
        factor
    )
    result = draw("figure8", rows)
    panels = charts.panels_of(result)
    assert len(panels) == 3
    for panel in panels:
        points = panel.table[panel.table["x"].notna()]
        assert points["hue"].nunique() == 3
        assert panel.y.scale == "log"
        assert points["value"].between(panel.y.low, panel.y.high).all()


def test_table2_excludes_sets_with_outliers():
    parts = [small_rows()]
    for n in (0, 100):
        name = f"synth-2-2-0-o{n}"
        size = (10000 + n, 2, 2)
        parts.append(cell_rows("outliers", "fastlloyd_published", name, 0.5, 12, size=size))
    rows = pd.concat(parts, ignore_index=True)
    table = draw("table2", rows).formatted.set_index("data set")
    assert table.loc["Synth", "N (here)"] == "10000"
    assert table.loc["Synth", "sets here"] == "9"
