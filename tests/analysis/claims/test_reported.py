"""Reported numbers of a paper beside stored ones."""

import math

import numpy as np
import pytest
import reports
from fabricated.dpm import all_rows, reported_means

from pkm.analysis.claims import reported
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.findings import NOT_COMPARABLE, NOT_RUN
from pkm.analysis.tables.study import Study


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
def test_parse_reported_numbers(text, expected):
    number = reported.parse(text)
    values = (number.mean, number.deviation, number.digit, number.deviation_digit)
    assert values == pytest.approx(expected)


def test_parse_refuses_other_texts():
    for text in ("about 3", "3 ±", "1 ± 2 ± 3"):
        with pytest.raises(ValueError, match=f"{text}.*mean ± standard deviation"):
            reported.parse(text)


def quality(rows):
    table = reported.compare_reported(Study(rows), read_claims("dpm")["reported"]["quality"])
    return table.set_index(["dataset", "method", "metric"])


def test_verdicts_of_reported_cells_follow_the_margin():
    rows = all_rows()
    table = quality(rows)
    silhouette = table.loc[("letters-18720", "dpm_published", "silhouette")]
    assert silhouette["verdict"] == reported.WITHIN
    assert not silhouette["reason"]
    # Two standard errors of both runs (20 reported, 12 fabricated), with half a digit more of the
    # reported deviation and the error of a sample of 10,000 points, and half a reported digit.
    error = math.sqrt(0.015**2 / 20 + silhouette["deviation"] ** 2 / 12 + 0.002**2)
    assert silhouette["margin"] == pytest.approx(2 * error + 0.005)
    zero = table.loc[("gas", "dpm_published", "norm_kmeans_distance")]
    error = math.sqrt(0.005**2 / 20 + zero["deviation"] ** 2 / 12)
    assert zero["margin"] == pytest.approx(2 * error + 0.005)
    where = {"sweep": "table", "dataset": "letters-18720", "method": "dpm_published"}
    for factor, score_verdict, cost_verdict in (
        (2.0, reported.BETTER, reported.WORSE),
        (0.5, reported.WORSE, reported.BETTER),
    ):
        table = quality(reports.scaled(rows, where, silhouette=factor, inertia=factor))
        verdict = table["verdict"]
        assert verdict["letters-18720", "dpm_published", "silhouette"] == score_verdict
        assert verdict["letters-18720", "dpm_published", "inertia"] == cost_verdict


def test_incomparable_cells_have_reason_and_numbers():
    table = quality(all_rows())
    expected = {
        ("mnist-embeddings", "dpm_published", "silhouette"): "network",
        ("letters-18720", "em_mc_published", "inertia"): "not private",
        ("letters-18720", "kmeans", "norm_kmeans_distance"): "101 to 128",
        ("gas", "dpm_published", "accuracy"): "reports no number",
    }
    for key, text in expected.items():
        assert table.loc[key, "verdict"] == NOT_COMPARABLE, key
        assert text in table.loc[key, "reason"], key
    silhouette = table.loc[("mnist-embeddings", "dpm_published", "silhouette")]
    assert np.isfinite(silhouette[["mean", "ratio"]].astype(float)).all()
    assert "spends more" in table.loc[("gas", "dp_lloyd_published", "inertia"), "note"]
    assert len(table) == 120
    assert len(reported_means()) == 115


def test_few_seeds_and_missing_rows_have_no_verdict():
    rows = all_rows()
    few = rows[(rows["dataset"] != "gas") | (rows["seed"] < 5)]
    few = reports.without(few, method="dpm_published", dataset="synth-10d", sweep="table")
    table = quality(few)
    assert table.loc[("gas", "dpm_published", "inertia"), "verdict"] == reported.FEW_SEEDS
    assert table.loc[("synth-10d", "dpm_published", "inertia"), "verdict"] == NOT_RUN
    assert table.loc[("synth-10d", "em_mc_published", "inertia"), "verdict"] == NOT_RUN
    # A cell without rows was not run, also if other reasons keep its numbers from being compared.
    table = quality(rows[(rows["dataset"] != "gas") & (rows["method"] != "kmeans")])
    for key in (
        ("gas", "dpm_published", "accuracy"),
        ("letters-18720", "kmeans", "norm_kmeans_distance"),
    ):
        assert table.loc[key, "verdict"] == NOT_RUN
        assert table.loc[key, "reason"] == "no stored rows"


def test_near_a_reported_zero_means_rounding_to_it():
    zero = {"reported": "0.00 ± 0.03", "reported_mean": 0.0}
    assert reported.is_near(zero | {"mean": 0.004})
    assert not reported.is_near(zero | {"mean": 0.006})
    half = {"reported": "0.50 ± 0.03", "reported_mean": 0.5}
    assert reported.is_near(half | {"mean": 0.54})
    assert not reported.is_near(half | {"mean": 0.56})
