"""Orderings, bounds and statistics on two methods whose difference is known."""

import pytest
from two_methods import (
    BY_SET,
    FIGURE2,
    evaluate_check,
    make_study,
    rows_of,
    shifted_study,
    study_with_exception,
)

from pkm.analysis.claims.findings import HOLDS, INCONCLUSIVE, NOT_REPRODUCED, NOT_RUN
from pkm.analysis.tables.study import Study


def test_ordering_fails_if_one_cell_violates_it():
    assert evaluate_check(FIGURE2, shifted_study(-1.0)).verdict == HOLDS
    finding = evaluate_check(FIGURE2, study_with_exception(1.0, -1.0))
    assert finding.verdict == NOT_REPRODUCED
    assert "dataset s1, epsilon 0.1" in finding.summary
    assert finding.evidence["outcome"].tolist().count("violated") == 1


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


def test_higher_is_better_reverses_the_test():
    study = shifted_study(1.0)
    assert evaluate_check(FIGURE2, study).verdict == NOT_REPRODUCED
    finding = evaluate_check(FIGURE2 | {"higher_is_better": True}, study)
    assert finding.verdict == HOLDS
    assert (finding.evidence["ratio"] < 1).all()


def test_verdicts_of_bounds():
    check = FIGURE2 | {"type": "bound"}
    study = shifted_study(-5.0)  # ratio about one half
    finding = evaluate_check(check | {"at_most": 0.8}, study)
    assert finding.verdict == HOLDS
    assert evaluate_check(check | {"at_most": 0.3}, study).verdict == NOT_REPRODUCED
    largest = float(finding.evidence["ratio"].max())
    assert evaluate_check(check | {"at_most": largest}, study).verdict == INCONCLUSIVE
    mixed = make_study(lambda name, epsilon: -5.0 if name == "iris" else 0.0)
    assert evaluate_check(check | {"at_most": 0.8, "quantifier": "some"}, mixed).verdict == HOLDS
    assert evaluate_check(check | {"at_most": 0.8}, mixed).verdict == NOT_REPRODUCED


def test_undecided_group_neither_keeps_nor_violates():
    study = make_study(lambda name, epsilon: 5.0 if name == "iris" else 0.0)
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
    study = make_study(lambda name, epsilon: 5.0 if name == "iris" else 0.0)
    check = BY_SET | {"type": "statistic", "name": "Difference", "per": ["dataset"]}
    check |= {"statistic": "mean(value)", "joined": "largest(value) - smallest(value)"}
    finding = evaluate_check(check | {"at_least": 4}, study)
    assert finding.verdict == HOLDS
    assert list(finding.evidence["dataset"]) == ["iris", "s1"]
    assert list(finding.evidence["smallest_epsilon"]) == [0.1, 0.1]
    assert finding.evidence["value"].diff().iloc[1] == pytest.approx(-5, abs=0.5)


def test_trend_and_statistic_of_all_cases():
    epsilons = (0.1, 0.25, 0.5, 0.75, 1.0)
    falling = make_study(lambda name, epsilon: 2 - 2 * epsilon, epsilons=epsilons)
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
    gains = make_study(lambda name, epsilon: shifts[name], datasets=tuple(shifts))
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
