"""Exact checks: rules of rows and printed numbers."""

import pandas as pd
import pytest
import reports
from fabricated.fastlloyd import small_rows
from fabricated.kaplan_stemmer import charges_of
from fabricated.rows import change_charges
from two_methods import evaluate_check, shifted_study

from pkm.analysis.claims.exact import replacement_costs
from pkm.analysis.claims.findings import HOLDS, NOT_CONTRADICTED, NOT_REPRODUCED, REFUTED
from pkm.privacy.mechanisms.selection import selection_mu


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


REPLACED = reports.check_of("kaplan-stemmer", "privacy-central")["replaced"]


@pytest.mark.parametrize(
    ("charge", "mu", "delta"),
    [
        (
            {"label": "bucket_counts", "delta": 1e-3, "count_scale": 10, "count_sensitivity": 1.0},
            2**0.5 / 10,
            1.999e-3,
        ),
        (
            {
                "label": "bucket_counts",
                "delta": 1e-3,
                "count_scale": 10,
                "count_sensitivity": 2**0.5,
            },
            2**0.5 / 10,
            1e-3,
        ),
        ({"label": "bucket_sums", "sum_scale": 5, "sum_sensitivity": 0.5, "radius": 0.5}, 0.2, 0.0),
        ({"label": "bucket_sums", "sum_scale": 5, "sum_sensitivity": 1.0, "radius": 0.5}, 0.2, 0.0),
        (
            {"label": "nearest_counts", "count_scale": 20, "count_sensitivity": 1.0},
            2**0.5 / 20,
            0.0,
        ),
        (
            {"label": "nearest_sums_and_counts", "sum_scale": 5, "count_scale": 1e9, "radius": 0.5},
            0.2,
            0.0,
        ),
        (
            {"label": "nearest_sums_and_counts", "sum_scale": 5, "count_scale": 10, "radius": 0.5},
            0.2,
            0.0,
        ),
        (
            {"label": "nearest_sums_and_counts", "sum_scale": 5, "count_scale": 5, "radius": 0.5},
            0.1**0.5,
            0.0,
        ),
        ({"label": "swaps", "choice_range": 0.4}, selection_mu(0.8), 0.0),
        ({"label": "sets", "choice_range": 3.0}, selection_mu(6.0), 0.0),
    ],
)
def test_replacement_cost_follows_from_sensitivity(charge, mu, delta):
    charge = {"delta": 0.0} | charge
    # One run has the charge once, the next twice.
    costs = replacement_costs(pd.DataFrame([charge] * 3, index=[0, 1, 1]), REPLACED)
    assert costs.loc[0].tolist() == pytest.approx([mu**2, delta], rel=1e-9)
    assert costs.loc[1].tolist() == pytest.approx([2 * mu**2, 2 * delta], rel=1e-9)


def test_unknown_charges_have_no_replacement_cost():
    charges = pd.DataFrame(charges_of("kaplan_stemmer", 1.0))
    unknown = pd.DataFrame({"label": ["histogram"], "delta": [0.0]})
    charged = pd.concat([charges, charges, unknown]).set_axis([0] * 4 + [1] * 5)
    assert replacement_costs(charged, REPLACED)["square"].isna().tolist() == [False, True]
