"""Verdicts: each rule on data whose truth is known, and all claims on synthetic rows."""

import itertools
import re
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import reports
import yaml
from fabricated.fastlloyd import (
    EPSILONS,
    SIZES,
    cell_rows,
    iteration_bound,
    lloyd_cell,
    small_rows,
)
from fabricated.rows import change_charges, join_cells, with_params
from hypothesis import given, settings
from hypothesis import strategies as st
from reports import NONE_MISSING
from scipy import stats

from pkm.analysis.claims import exact, verdicts
from pkm.analysis.claims.claim import check_keys, make_claim, read_claims
from pkm.analysis.claims.expressions import evaluate_expression
from pkm.analysis.claims.findings import (
    CHECK_TYPES,
    HOLDS,
    INCONCLUSIVE,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    REFUTED,
)
from pkm.analysis.paper_files import KnownNames
from pkm.analysis.tables.accounting import gaussian_delta, noise_multiplier
from pkm.analysis.tables.inference import estimate, holm
from pkm.analysis.tables.study import Study, matches
from pkm.arrow import read_parameters

FIGURE2 = {
    "type": "ordering",
    "sweep": "real",
    "metric": "nicv",
    "left": ["fastlloyd_published"],
    "right": ["glloyd_published"],
    "over": {"dataset": ["iris", "s1"], "epsilon": [0.1, 1.0]},
}


def rows_of(
    shift, *, seeds=20, spread=0.1, datasets=("iris", "s1"), epsilons=(0.1, 1.0), metric="nicv"
):
    """Two methods whose paired difference per cell is normal around `shift(dataset, epsilon)`."""
    rng = np.random.default_rng(0)
    parts = []
    for name, epsilon in itertools.product(datasets, epsilons):
        fabricate = partial(
            lloyd_cell, "real", dataset=name, epsilon=epsilon, seeds=seeds, size=SIZES[name]
        )
        common = rng.normal(10, 1, seeds)
        difference = shift(name, epsilon) + rng.normal(0, spread, seeds)
        glloyd = fabricate(method="glloyd_published", metrics=(metric,))
        glloyd[metric] = common
        fastlloyd = fabricate(method="fastlloyd_published", metrics=(metric,))
        fastlloyd[metric] = common + difference
        parts += [glloyd, fastlloyd]
    return join_cells(parts)


def study_of(shift, **options):
    """Study of the rows of `rows_of`."""
    return Study(rows_of(shift, **options))


def tied_rows(**options):
    """Rows in which no cell has a difference but noise."""
    return rows_of(lambda name, epsilon: 0.0, **options)


def shifted_study(shift, **options):
    """Two methods whose paired difference is normal around the same value in every cell."""
    return study_of(lambda name, epsilon: shift, **options)


def study_with_exception(exception, shift, **options):
    """Study with one shift on S1 at epsilon 0.1 and another one in all other cells."""
    return study_of(
        lambda name, epsilon: exception if (name, epsilon) == ("s1", 0.1) else shift, **options
    )


def evaluate_check(check, study, missing=NONE_MISSING):
    return verdicts.evaluate_check(study, check, verdicts.Context(missing))


def test_holm_equals_its_definition():
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert holm(p).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_between_no_correction_and_bonferroni(p):
    p = np.array(p)
    adjusted = holm(p)
    assert (adjusted >= p).all()
    assert (adjusted <= np.minimum(p * p.size, 1) + 1e-15).all()
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()


def resampled_columns(values, repeats=4000):
    """Means of every column, on the sample and on resamples of its lines."""
    rng = np.random.default_rng(2)
    n_seeds = len(values)
    counts = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), size=repeats)
    return np.vstack([np.ones(n_seeds), counts]) @ values / n_seeds


def test_estimates_of_means_equal_scipy():
    values = np.random.default_rng(2).normal(0.1, 1, (15, 3))
    estimates = estimate(resampled_columns(values), 15, log=False)
    expected = stats.ttest_1samp(values, 0.2, alternative="greater")
    np.testing.assert_allclose(estimates.p_above(0.2), expected.pvalue, atol=0.02)
    interval = stats.ttest_1samp(values, 0.2).confidence_interval()
    np.testing.assert_allclose(estimates.interval(), interval, rtol=0.06, atol=0.02)


def test_estimates_are_logarithms_of_what_is_above_zero():
    resampled = resampled_columns(np.random.default_rng(3).lognormal(0, 1, (15, 1)))
    low, high = estimate(resampled, 15, log=True).interval()
    center = np.log(resampled[0])
    np.testing.assert_allclose(np.log(low) - center, center - np.log(high))
    reverse = estimate(1 / resampled, 15, log=True)
    p = estimate(resampled, 15, log=True).p_above(2.0)
    np.testing.assert_allclose(reverse.p_above(0.5), 1 - p)


def test_estimates_of_constant_columns():
    resampled = np.tile([0.0, 2.0, -2.0, np.inf], (5, 1))
    p = estimate(resampled, 10, log=False).p_above(0.0)
    assert p[1:3].tolist() == [0.0, 1.0]
    assert np.isnan(p[[0, 3]]).all()


def test_rank_correlation_equals_scipy_with_ties():
    values = np.random.default_rng(3).integers(0, 4, (20, 6)).astype(float)
    values[0] = 2.0
    x = np.array([1, 2, 3, 5, 8, 13])
    found = evaluate_expression("correlation(x, value)", {"x": x, "value": values})
    expected = [stats.spearmanr(x, y).statistic if np.ptp(y) else 0.0 for y in values]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_ordering_fails_if_one_cell_violates_it():
    assert evaluate_check(FIGURE2, shifted_study(-1.0)).verdict == HOLDS
    finding = evaluate_check(FIGURE2, study_with_exception(1.0, -1.0))
    assert finding.verdict == NOT_REPRODUCED
    assert "dataset s1, epsilon 0.1" in finding.summary
    assert finding.evidence["outcome"].tolist().count("violated") == 1


def test_ordering_with_ties():
    # Ties keep a claim within its margin of 5 %, but not a strict one.
    half_tied = study_of(lambda name, epsilon: -1.0 if name == "iris" else 0.0)
    assert evaluate_check(FIGURE2, half_tied).verdict == HOLDS
    assert evaluate_check(FIGURE2 | {"strict": True}, half_tied).verdict == INCONCLUSIVE
    all_tied = shifted_study(0.0)
    assert evaluate_check(FIGURE2, all_tied).verdict == HOLDS
    assert evaluate_check(FIGURE2 | {"margin": 0.001}, all_tied).verdict == INCONCLUSIVE


def test_wide_intervals_keep_nothing():
    # Fewer seeds or more noise must not turn a tie into support.
    finding = evaluate_check(FIGURE2, shifted_study(0.0, spread=4))
    assert finding.verdict == INCONCLUSIVE
    assert "open" in set(finding.evidence["outcome"])


def test_differences_within_the_margin_are_no_violations():
    assert evaluate_check(FIGURE2, shifted_study(0.3)).verdict == HOLDS
    assert evaluate_check(FIGURE2 | {"margin": 0.02}, shifted_study(0.3)).verdict == (
        NOT_REPRODUCED
    )


def test_costs_that_are_many_times_as_large_violate():
    # On raw costs one large value hides what every seed shows.
    rows = tied_rows(seeds=10)
    mask = reports.row_mask(rows, method="fastlloyd_published")
    factors = np.where(rows["seed"] == 3, 200.0, 10.0)
    rows.loc[mask, "nicv"] *= factors[mask]
    assert evaluate_check(FIGURE2, Study(rows)).verdict == NOT_REPRODUCED


def test_many_cases_can_be_violated():
    # A share of 2,000 resamples is at least 1 in 2,001: too much for more than 100 cases.
    epsilons = tuple(np.linspace(0.1, 1, 60).round(3))
    over = {"dataset": ["iris", "s1"], "epsilon": list(epsilons)}
    study = shifted_study(1.0, epsilons=epsilons)
    finding = evaluate_check(FIGURE2 | {"over": over}, study)
    assert finding.verdict == NOT_REPRODUCED
    assert (finding.evidence["outcome"] == "violated").all()


def test_scores_that_are_not_positive_are_compared_by_differences():
    rows = rows_of(lambda name, epsilon: -1.0)
    rows["nicv"] -= 20
    higher = FIGURE2 | {"higher_is_better": True}
    assert evaluate_check(higher, Study(rows)).verdict == NOT_REPRODUCED
    assert evaluate_check(FIGURE2, Study(rows)).verdict == HOLDS


def test_maximum_over_partial_grid_is_inconclusive():
    check = {
        "type": "statistic",
        "name": "Largest reduction",
        "statistic": "largest(1 - value)",
        "grows": True,
        "sweep": "real",
        "metric": "nicv",
        "left": ["fastlloyd_published"],
        "right": ["glloyd_published"],
        "at_least": 0.8,
        "at_most": 0.95,
    }
    study = shifted_study(-3.0)
    stored = {"dataset": ["iris", "s1"], "epsilon": [0.1, 1.0]}
    larger = {"dataset": ["iris", "s1", "wine"], "epsilon": [0.1, 1.0]}
    assert evaluate_check(check | {"over": stored}, study).verdict == NOT_REPRODUCED
    assert evaluate_check(check | {"over": larger}, study).verdict == INCONCLUSIVE


ABLATION = {
    "sweep": "ablation",
    "metric": "nicv",
    "relative_to": "glloyd_published",
    "left": [{"method": "fastlloyd_published", "postprocessing": "fold"}],
    "right": [{"method": "fastlloyd_published", "postprocessing": "none"}],
    "over": {"alpha": [0.8]},
}


def ablation_study(levels, *, seeds=20):
    """Naive GLloyd, folding and no post-processing, with little noise.

    `levels` has their NICV by data set, in this order.
    """
    rng = np.random.default_rng(5)
    configurations = (
        ("glloyd_published", {"postprocessing": "none"}),
        ("fastlloyd_published", {"alpha": 0.8, "postprocessing": "fold"}),
        ("fastlloyd_published", {"alpha": 0.8, "postprocessing": "none"}),
    )
    shape = {"size": (100, 2, 2), "metrics": ("nicv",)}
    parts = []
    for name, nicv in levels.items():
        for (method, params), level in zip(configurations, nicv, strict=True):
            cell = lloyd_cell("ablation", method, name, 0.1, seeds, params=params, **shape)
            parts.append(cell | {"nicv": level * rng.normal(1, 0.001, seeds)})
    return Study(join_cells(parts))


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


# On the high set folding is a little better, on the low one much worse: the two averages disagree.
DISAGREEING = {"high": (100.0, 90.0, 95.0), "low": (1.0, 1.9, 1.0)}
AGREEING = {"high": (100.0, 90.0, 95.0), "low": (1.0, 0.8, 1.0)}


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


def test_second_interpretation_is_detailed_if_it_differs():
    check = ABLATION | {"type": "bound", "at_most": 1.0}
    check["variants"] = [{"text": "By the other average", "average": "mean_of_ratios"}]
    finding = evaluate_check(check, ablation_study(DISAGREEING))
    assert finding.verdict == HOLDS
    assert "By the other average: not reproduced instead. Ratio 1.43" in finding.summary
    finding = evaluate_check(check, ablation_study(AGREEING))
    assert finding.summary.endswith("By the other average: holds as well.")


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
    assert reports.evaluate_check("fastlloyd", two_sets, rows).verdict == NOT_REPRODUCED
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


def evaluate_single_cluster_convention(rows):
    return reports.evaluate_claim("fastlloyd", "other-single-cluster-convention", rows)


def test_single_cluster_convention_is_one_directional():
    rows = small_rows().copy()
    single = (rows["empty_clusters"] == rows["k"] - 1) & ~rows["target"].str.endswith("DataMean")
    several = (rows["empty_clusters"] == 0) & rows["silhouette"].notna()
    assert single.any()
    assert several.any()
    rows.loc[several.idxmax(), "silhouette"] = -1.0
    assert evaluate_single_cluster_convention(rows).verdict == HOLDS
    rows.loc[single.idxmax(), "silhouette"] = -0.5
    assert evaluate_single_cluster_convention(rows).verdict == NOT_REPRODUCED


def test_higher_is_better_reverses_the_test():
    study = shifted_study(1.0)
    assert evaluate_check(FIGURE2, study).verdict == NOT_REPRODUCED
    finding = evaluate_check(FIGURE2 | {"higher_is_better": True}, study)
    assert finding.verdict == HOLDS
    assert (finding.evidence["ratio"] < 1).all()


def test_few_seeds_are_inconclusive():
    finding = evaluate_check(FIGURE2, shifted_study(-5.0, seeds=5))
    assert finding.verdict == INCONCLUSIVE
    assert "Only 5 seeds" in finding.summary


def test_partial_data_are_reported():
    over = {"dataset": ["iris", "s1", "wine"], "epsilon": [0.1, 1.0]}
    finding = evaluate_check(FIGURE2 | {"over": over}, shifted_study(-1.0))
    assert finding.verdict == NOT_CONTRADICTED
    assert "4 of 6" in finding.missing
    assert "wine" in finding.missing
    # One stored comparison that is violated refutes a claim about all.
    violated = study_with_exception(1.0, -1.0)
    assert evaluate_check(FIGURE2 | {"over": over}, violated).verdict == NOT_REPRODUCED


def test_averages_over_a_part_of_the_data_sets():
    # An average over two data sets of three neither shows nor refutes that over all.
    check = FIGURE2 | {"over": {"epsilon": [0.1, 1.0]}, "datasets_each": 3}
    for kind, bounds in (("ordering", {}), ("bound", {"at_most": 0.99})):
        of_kind = check | {"type": kind} | bounds
        assert evaluate_check(of_kind, shifted_study(-1.0)).verdict == NOT_CONTRADICTED
        assert evaluate_check(of_kind, shifted_study(1.0)).verdict == INCONCLUSIVE
        complete = of_kind | {"datasets_each": 2}
        assert evaluate_check(complete, shifted_study(-1.0)).verdict == HOLDS
        assert evaluate_check(complete, shifted_study(1.0)).verdict == NOT_REPRODUCED


def test_existence_on_a_part_of_the_data():
    over = {"dataset": ["iris", "s1", "wine"], "epsilon": [0.1, 1.0]}
    check = FIGURE2 | {"type": "bound", "over": over, "at_most": 0.95, "quantifier": "some"}
    assert evaluate_check(check, shifted_study(-1.0)).verdict == HOLDS
    assert evaluate_check(check, shifted_study(1.0)).verdict == INCONCLUSIVE
    stored = check | {"over": over | {"dataset": ["iris", "s1"]}}
    assert evaluate_check(stored, shifted_study(1.0)).verdict == NOT_REPRODUCED
    most = check | {"quantifier": "most"}
    assert evaluate_check(most, shifted_study(-1.0)).verdict == NOT_CONTRADICTED
    assert evaluate_check(most, shifted_study(1.0)).verdict == INCONCLUSIVE


def test_deterministic_claims_on_a_part_of_the_data():
    check = {"type": "rows", "metric": ["nicv"], "sweep": ["real"], "rule": "nicv > 0"}
    study = shifted_study(0.0)
    missing = reports.missing_cell("real", "fastlloyd_published", "wine", 0.1, "no file")
    assert evaluate_check(check, study).verdict == HOLDS
    finding = evaluate_check(check, study, missing)
    assert finding.verdict == NOT_CONTRADICTED
    assert "1 planned cells without rows, of wine" in finding.missing
    assert evaluate_check(check | {"rule": "nicv > 10"}, study, missing).verdict == NOT_REPRODUCED
    elsewhere = reports.missing_cell("g2", "fastlloyd_published", "wine", 0.1, "no file")
    assert evaluate_check(check, study, elsewhere).verdict == HOLDS


def test_printed_numbers_are_cases():
    # The paper prints 1440 bytes; small stored messages do not make up for it.
    rows = small_rows().query("dataset == 'iris'")
    finding = reports.evaluate_claim("fastlloyd", "bytes-below-kilobyte", rows)
    assert finding.verdict == REFUTED
    assert finding.evidence["bytes_per_iteration"].max() == 1440


@pytest.mark.slow
def test_false_positive_rate():
    # Where all ratios are at the margin, a claim over many cases may fail in 5 % of the studies.
    n_studies = 100
    n_false_positives = 0
    over = {"dataset": ["iris", "s1"], "epsilon": [0.1, 0.5, 1.0]}
    rows = tied_rows(epsilons=(0.1, 0.5, 1.0))
    mask = reports.row_mask(rows, method="fastlloyd_published")
    reference = rows.loc[~mask, "nicv"].to_numpy()
    for seed in range(n_studies):
        rng = np.random.default_rng(seed)
        rows = rows.copy()
        rows.loc[mask, "nicv"] = reference * rng.normal(1.05, 0.1, mask.sum())
        finding = evaluate_check(FIGURE2 | {"over": over}, Study(rows))
        n_false_positives += finding.verdict == NOT_REPRODUCED
    standard_deviation = np.sqrt(n_studies * 0.05 * 0.95)
    assert n_false_positives <= n_studies * 0.05 + 3 * standard_deviation


def test_verdicts_of_bounds():
    check = FIGURE2 | {"type": "bound"}
    study = shifted_study(-5.0)  # ratio about one half
    finding = evaluate_check(check | {"at_most": 0.8}, study)
    assert finding.verdict == HOLDS
    assert evaluate_check(check | {"at_most": 0.3}, study).verdict == NOT_REPRODUCED
    largest = float(finding.evidence["ratio"].max())
    assert evaluate_check(check | {"at_most": largest}, study).verdict == INCONCLUSIVE
    mixed = study_of(lambda name, epsilon: -5.0 if name == "iris" else 0.0)
    assert evaluate_check(check | {"at_most": 0.8, "quantifier": "some"}, mixed).verdict == HOLDS
    assert evaluate_check(check | {"at_most": 0.8}, mixed).verdict == NOT_REPRODUCED


BY_SET = {
    "sweep": "real",
    "metric": "nicv",
    "left": ["fastlloyd_published"],
    "over": {"dataset": ["iris", "s1"], "epsilon": [0.1, 1.0]},
}


def test_share_of_runs_in_which_a_rule_holds():
    study = study_of(lambda name, epsilon: 5.0 if name == "iris" else 0.0)
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


def test_undecided_group_neither_keeps_nor_violates():
    study = study_of(lambda name, epsilon: 5.0 if name == "iris" else 0.0)
    check = BY_SET | {"type": "statistic", "name": "Largest value", "per": ["dataset"]}
    check |= {"statistic": "largest(value)", "at_most": 12}
    assert evaluate_check(check, study).verdict == NOT_REPRODUCED
    undecided = [{"when": "dataset == 'iris'", "text": "Nothing is known of iris."}]
    finding = evaluate_check(check | {"undecided": undecided}, study)
    assert finding.verdict == INCONCLUSIVE
    assert list(finding.evidence["outcome"]) == ["open", "kept"]
    assert "Nothing is known of iris." in finding.summary
    # A violation elsewhere still refutes the claim.
    undecided = [{"when": "dataset == 's1'", "text": "Nothing is known of s1."}]
    assert evaluate_check(check | {"undecided": undecided}, study).verdict == NOT_REPRODUCED
    # What has no logarithm decides nothing.
    logarithm = check | {"statistic": "largest(log(value - 100))"}
    assert evaluate_check(logarithm, study).verdict == INCONCLUSIVE


def test_joined_statistic_of_groups():
    study = study_of(lambda name, epsilon: 5.0 if name == "iris" else 0.0)
    check = BY_SET | {"type": "statistic", "name": "Difference", "per": ["dataset"]}
    check |= {"statistic": "mean(value)", "joined": "largest(value) - smallest(value)"}
    finding = evaluate_check(check | {"at_least": 4}, study)
    assert finding.verdict == HOLDS
    assert list(finding.evidence["dataset"]) == ["iris", "s1"]
    assert list(finding.evidence["smallest_epsilon"]) == [0.1, 0.1]
    assert finding.evidence["value"].diff().iloc[1] == pytest.approx(-5, abs=0.5)


def test_expressions_refuse_unknown_names():
    study = shifted_study(0.0)
    check = BY_SET | {"type": "statistic", "name": "x", "at_most": 1, "statistic": "largst(value)"}
    with pytest.raises(ValueError, match="'largst' is unknown; did you mean 'largest'"):
        evaluate_check(check, study)


def test_trend_and_statistic_of_all_cases():
    epsilons = (0.1, 0.25, 0.5, 0.75, 1.0)
    falling = study_of(lambda name, epsilon: 2 - 2 * epsilon, epsilons=epsilons)
    check = {
        "type": "statistic",
        "name": "Rank correlation",
        "per": ["dataset"],
        "statistic": "-correlation(epsilon, value)",
        "sweep": "real",
        "metric": "nicv",
        "left": ["fastlloyd_published"],
        "right": ["glloyd_published"],
        "over": {"dataset": ["iris", "s1"], "epsilon": list(epsilons)},
        "at_least": 0.8,
    }
    assert evaluate_check(check, falling).verdict == HOLDS
    rising = check | {"statistic": "correlation(epsilon, value)"}
    assert evaluate_check(rising, falling).verdict == NOT_REPRODUCED
    shifts = {"iris": -1.0, "s1": -5.0, "wine": -0.2}
    gains = study_of(lambda name, epsilon: shifts[name], datasets=tuple(shifts))
    check = {
        "type": "statistic",
        "name": "Reduction in the group less the median",
        "above": 0,
        "sweep": "real",
        "metric": "nicv",
        "area": True,
        "left": ["fastlloyd_published"],
        "right": ["glloyd_published"],
        "over": {"dataset": list(shifts)},
    }
    gain_in = "smallest(1 - value, {}) - median(1 - value)"
    either = gain_in.format("(dataset == 's1') | (dataset == 'wine')")
    assert evaluate_check(check | {"statistic": either}, gains).verdict == NOT_REPRODUCED
    one = "mean(1 - value, dataset == 's1') - median(1 - value)"
    assert evaluate_check(check | {"statistic": one}, gains).verdict == HOLDS
    absent = check | {"statistic": "mean(value, dataset == 'birch1')"}
    assert evaluate_check(absent, gains).verdict == NOT_RUN
    over = {"dataset": list(shifts), "epsilon": "any"}
    each = check | {"area": False, "over": over, "per": ["dataset"], "statistic": "mean(-value)"}
    finding = evaluate_check(each, gains)
    assert finding.comparisons == 3
    assert finding.verdict == NOT_REPRODUCED


def test_sweep_without_rows_reports_the_reason():
    missing = reports.missing_cell("g2", "lloyd_published", "g2-2-10", 0.1, "no file")
    finding = evaluate_check(FIGURE2 | {"sweep": "g2"}, shifted_study(0.0), missing)
    assert finding.verdict == NOT_RUN
    assert "g2" in finding.summary
    assert "no file" in finding.summary


@pytest.mark.slow
def test_verdicts_of_all_claims():
    paper_verdicts = reports.verdicts_of("fastlloyd")
    assert len(paper_verdicts) == 55
    table = verdicts.overview(paper_verdicts).set_index("id")
    counts = verdicts.count_verdicts(table)
    assert list(counts["paper"].values()) == [0, 25, 2, 2, 4, 4, 2]
    assert list(counts["code"].values()) == [11, 1, 0, 0, 0, 0, 4]
    assert table["numbers"].str.len().min() > 0
    # Three data sets of ten have rows, so a claim on all ten is partial.
    for name in ("real-fast-le-glloyd", "table2-sizes"):
        assert table.loc[f"fastlloyd/{name}", "partial"]
        assert table.loc[f"fastlloyd/{name}", "verdict"] == NOT_CONTRADICTED, name
    for name in ("noise-split", "iterations-2-to-7", "eta-formula", "gdp-total"):
        assert table.loc[f"fastlloyd/{name}", "verdict"] == HOLDS, name
    assert not table.loc[table["verdict"] == NOT_RUN, "partial"].any()


def test_evidence_counts_the_comparisons():
    for verdict in reports.verdicts_of("fastlloyd"):
        if verdict.claim.check["type"] == "ordering":
            finding = verdict.finding
            assert finding.comparisons == len(finding.evidence)


def test_claims_and_deviations_are_complete():
    content = read_claims("fastlloyd")
    for claim in content["claims"]:
        assert claim.basis in {"explicit", "implied", "cited", "theorem", "printed", "derived"}
        assert claim.kind in {"ordering", "threshold", "trend", "magnitude", "count"}
        assert claim.statement.endswith(".")
    assert all({"topic", "paper", "here", "why"} <= set(line) for line in content["deviations"])


def test_documented_claim_and_types():
    text = (Path(__file__).parents[3] / "docs" / "extending.md").read_text(encoding="utf-8")
    section = text[text.index("### A claim") : text.index("### Federated runs and removals")]
    example = section[section.index("```yaml") : section.index("```\n\n|")]
    (entry,) = yaml.safe_load(example.removeprefix("```yaml"))
    claim = make_claim(entry, "docs/extending.md", KnownNames("fastlloyd"))
    assert claim in read_claims("fastlloyd")["claims"]
    assert set(exact.__dict__) & set(CHECK_TYPES) <= set(re.findall(r"`(\w+)`", section))


def test_unknown_papers_and_checks_are_refused():
    with pytest.raises(ValueError, match="fastlloyd"):
        read_claims("nobody")
    with pytest.raises(ValueError, match="'orderin' is unknown; did you mean 'ordering'"):
        check_keys({"type": "orderin"}, "claim")
    with pytest.raises(
        ValueError, match="check bound: 'at_mots' is unknown; did you mean 'at_most'"
    ):
        check_keys({"type": "all_of", "parts": [{"type": "bound", "at_mots": 1}]}, "claim")
    with pytest.raises(ValueError, match="'lefd' is unknown"):
        check_keys(FIGURE2 | {"variants": [{"text": "Else", "lefd": ["lloyd_published"]}]}, "claim")
    entry = {"id": "paper/name", "check": FIGURE2, "statment": "None."}
    with pytest.raises(ValueError, match="'statment' is unknown; did you mean 'statement'"):
        make_claim(entry, "claims.yaml", KnownNames("fastlloyd"))
    with pytest.raises(ValueError, match="needs one of the bounds"):
        evaluate_check(FIGURE2 | {"type": "bound"}, shifted_study(0.0))


def change_last_charge(rows, change):
    """Change one charge of the first FastLloyd cell of sweep `real`."""
    rows = rows.copy()
    mask = reports.row_mask(rows, sweep="real", method="fastlloyd_published")
    first = rows["cell"] == rows.loc[mask, "cell"].iloc[0]
    charges = change_charges(rows.loc[first, "charges"], lambda charges: change(charges[-1]))
    rows.loc[first, "charges"] = charges
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("noise-split", lambda charge: charge.update(count_scale=charge["count_scale"] * 1.01)),
        ("eta-formula", lambda charge: charge.update(radius=charge["radius"] * 1.01)),
        ("gdp-total", lambda charge: charge.update(mu=charge["mu"] * 1.01)),
    ],
)
def test_formula_claims_fail_on_wrong_charges(claim, change):
    # A check that no stored value could ever fail would be worthless.
    rows = change_last_charge(small_rows(), change)
    assert reports.evaluate_claim("fastlloyd", claim, rows).verdict == NOT_REPRODUCED


def test_wrong_iterations_and_sizes_fail():
    rows = small_rows().copy()
    rows.loc[rows["method"] == "fastlloyd_published", "iterations"] += 1
    rows.loc[rows["dataset"] == "iris", "n"] = 151
    for claim in ("iterations-2-to-7", "table2-sizes"):
        assert reports.evaluate_claim("fastlloyd", claim, rows).verdict == NOT_REPRODUCED


def test_noise_multiplier_inverts_delta():
    sigma = noise_multiplier(1.0, 1e-5)
    assert sigma == pytest.approx(3.730632, abs=1e-5)  # analytic Gaussian, published example value
    assert gaussian_delta(1 / sigma, 1.0) == pytest.approx(1e-5, rel=1e-9)


def test_iteration_bound_is_clipped_on_both_sides():
    assert iteration_bound(150, 4, 3, 0.1, 1e-3) == 2
    assert iteration_bound(10**7, 2, 2, 1.0, 1e-8) == 7


def test_first_value_of_a_column_needs_the_method_and_a_rival():
    def rows_of(method, epsilon, nicv):
        rows = cell_rows("real", method, "iris", epsilon, 12, size=SIZES["iris"], metrics=("nicv",))
        return rows.assign(nicv=nicv + 0.001 * rows["seed"])

    check = {
        "type": "statistic",
        "name": "First or equal",
        "statistic": (
            "first(epsilon, value <= 1.1, left == 'fastlloyd_published')"
            " <= first(epsilon, value <= 1.1, left != 'fastlloyd_published')"
        ),
        "per": ["dataset"],
        "sweep": "real",
        "metric": "nicv",
        "left": ["fastlloyd_published", "glloyd_published"],
        "right": ["lloyd_published"],
        "over": {"dataset": ["iris"], "epsilon": [0.1, 1.0]},
    }
    parts = [
        rows_of("lloyd_published", None, 10),
        rows_of("fastlloyd_published", 0.1, 14),
        rows_of("fastlloyd_published", 1.0, 10.5),
    ]
    for nicv, verdict in ((10.5, NOT_REPRODUCED), (13, HOLDS)):
        rivals = [rows_of("glloyd_published", 0.1, nicv), rows_of("glloyd_published", 1.0, 10.5)]
        study = Study(pd.concat(parts + rivals, ignore_index=True))
        assert evaluate_check(check, study).verdict == verdict
    without_rivals = Study(pd.concat(parts, ignore_index=True))
    finding = evaluate_check(check, without_rivals)
    assert finding.verdict == NOT_RUN
    assert "dataset iris: none of the cases is stored" in finding.summary
