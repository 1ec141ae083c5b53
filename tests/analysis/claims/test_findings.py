"""From resampled values to a verdict: ties, margins, few seeds, partial data."""

import numpy as np
import pytest
import reports
from two_methods import (
    FIGURE2,
    evaluate_check,
    make_study,
    shifted_study,
    study_with_exception,
    tied_rows,
)

from pkm.analysis.claims.findings import HOLDS, INCONCLUSIVE, NOT_CONTRADICTED, NOT_REPRODUCED
from pkm.analysis.tables.study import Study


def test_ordering_with_ties():
    # Ties keep a claim within its margin of 5 %, but not a strict one.
    half_tied = make_study(lambda name, epsilon: -1.0 if name == "iris" else 0.0)
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


def test_a_violation_is_corrected_over_the_parts_of_a_claim():
    check = FIGURE2 | {"margin": 0.0267}
    assert evaluate_check(check, shifted_study(0.3)).verdict == NOT_REPRODUCED
    parts = {"type": "all_of", "parts": [check] * 4}
    assert evaluate_check(parts, shifted_study(0.3)).verdict == INCONCLUSIVE


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


@pytest.mark.slow
def test_false_positive_rate():
    # Where all ratios are at the margin, a claim over many cases may fail in 5 % of the studies.
    n_studies = 100
    n_false_positives = 0
    n_shown = 0
    over = {"dataset": ["iris", "s1"], "epsilon": [0.1, 0.5, 1.0]}
    some = FIGURE2 | {"type": "bound", "over": over, "at_most": 1.05, "quantifier": "some"}
    rows = tied_rows(epsilons=(0.1, 0.5, 1.0))
    mask = reports.row_mask(rows, method="fastlloyd_published")
    reference = rows.loc[~mask, "nicv"].to_numpy()
    for seed in range(n_studies):
        rng = np.random.default_rng(seed)
        rows = rows.copy()
        rows.loc[mask, "nicv"] = reference * rng.normal(1.05, 0.1, mask.sum())
        finding = evaluate_check(FIGURE2 | {"over": over}, Study(rows))
        n_false_positives += finding.verdict == NOT_REPRODUCED
        # Nor may one of the cases seem to keep the bound in more of them.
        n_shown += evaluate_check(some, Study(rows)).verdict == HOLDS
    standard_deviation = np.sqrt(n_studies * 0.05 * 0.95)
    assert n_false_positives <= n_studies * 0.05 + 3 * standard_deviation
    assert n_shown <= n_studies * 0.05 + 3 * standard_deviation
