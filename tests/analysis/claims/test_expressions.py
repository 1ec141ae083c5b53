"""Expressions against SciPy, and on values of which the answer is known."""

import math

import numpy as np
import pandas as pd
import pytest
from fabricated.fastlloyd import SIZES, cell_rows
from scipy import stats
from two_methods import BY_SET, evaluate_check, shifted_study

from pkm.analysis.claims.expressions import evaluate_expression, item
from pkm.analysis.claims.findings import HOLDS, NOT_REPRODUCED, NOT_RUN, MissingRows
from pkm.analysis.tables.study import Study


def test_rank_correlation_equals_scipy_with_ties():
    values = np.random.default_rng(3).integers(0, 4, (20, 6)).astype(float)
    values[0] = 2.0
    x = np.array([1, 2, 3, 5, 8, 13])
    found = evaluate_expression("correlation(x, value)", {"x": x, "value": values})
    expected = [stats.spearmanr(x, y).statistic if np.ptp(y) else 0.0 for y in values]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_expressions_refuse_unknown_names():
    study = shifted_study(0.0)
    check = BY_SET | {"type": "statistic", "name": "x", "at_most": 1, "statistic": "largst(value)"}
    with pytest.raises(ValueError, match="'largst' is unknown; did you mean 'largest'"):
        evaluate_check(check, study)


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


def test_slopes_of_logarithms():
    n = np.array([100.0, 1000.0, 10000.0])
    known = {"n": n, "value": np.array([3 * n**0.4, 0 * n])}
    slope = evaluate_expression("slope(log(n), log(value))", known)
    assert slope == pytest.approx([0.4, np.nan], nan_ok=True)
    assert evaluate_expression("rmse(log(n), log(value))", known)[0] == pytest.approx(0, abs=1e-12)
    assert evaluate_expression("rmse(log(log(n)), log(value))", known)[0] > 0.01
    two = {"n": n[:2], "value": np.array([[1.0, 10.0]])}
    slope = evaluate_expression("slope(log(n), log(value), min_points=2)", two)
    assert slope == pytest.approx(1)
    with pytest.raises(MissingRows, match="only 2 of 3 values"):
        evaluate_expression("slope(log(n), log(value))", two)


def test_what_holds_from_some_size_on():
    n = np.array([1.0, 2.0, 3.0])
    known = {"n": n, "value": np.array([[5, 1, 1], [1, 5, 1], [1, 1, 5], [5, 5, 5]])}
    assert evaluate_expression("first(n, value < 2)", known).tolist() == [2, 1, 1, math.inf]
    holds_from = evaluate_expression("holds_from(n, value < 2)", known)
    assert holds_from.tolist() == [2, 3, math.inf, math.inf]
    stays_true = evaluate_expression("stays_true(n, value < 2)", known)
    assert stays_true.tolist() == [True, False, False, False]


def test_items_of_what_is_no_list_are_not_numbers():
    shares = np.array(["auto", "[0.1, 0.2]", None, "[1.0]"], dtype=object)
    assert np.isnan(item(shares, 1)).tolist() == [True, False, True, True]


def test_smallest_captured_size():
    small = np.array([1.0, 2.0, 4.0, 8.0])
    shares = np.array([[0.95, 0.2, 0.9, 1.0], [1, 1, 1, 1], [1, 1, 1, 0.5]])
    known = {"small": small, "value": shares}
    found = evaluate_expression("holds_from(small, value >= 0.9)", known)
    assert found.tolist() == [4.0, 1.0, math.inf]
