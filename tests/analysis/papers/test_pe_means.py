"""The PE-means paper: areas beside printed ones, and the verdicts on them."""

import numpy as np
import pytest
from fabricated import pe_means as fabricated
from fabricated.studies import study_of
from reports import figure_of, verdicts_of

from pkm.analysis.claims import reported
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.findings import CHECK_TYPES, Context, MissingRows
from pkm.analysis.tables.study import Study

REPORTED = read_claims("pe-means")["reported"]["areas"]
EXACT = read_claims("pe-means")["sets"]["exact"]
STORED = list(fabricated.PRINTED)


def context():
    return Context(reported=read_claims("pe-means")["reported"])


def finding(study, **changes):
    check = {"numbers": "areas", "sweep": ["published"], "method": "pe_means_published"}
    check |= {"dataset": STORED} | changes
    return CHECK_TYPES["reported_values"](study, check, context())


def test_every_printed_row_is_there():
    """34 data sets, of which 21 can be had, and 15 with a variant for many columns."""
    cells = REPORTED["cells"]
    assert len({cell["dataset"] for cell in cells}) == 34
    assert sum("pe_means_published_projected" in cell for cell in cells) == 15
    assert len(EXACT) == 21
    assert set(EXACT) < {cell["dataset"] for cell in cells}


def test_margins_are_three_standard_errors_and_half_a_digit():
    table = reported.compare_reported(study_of("pe-means"), REPORTED | {"sweep": ["published"]})
    mask = (table["dataset"] == "iris") & (table["method"] == "pe_means_published")
    (line,) = table[mask].to_dict("records")
    deviation = 0.2894 * 1e-3 * np.linspace(-1, 1, fabricated.SEEDS).std(ddof=1)
    error = deviation * np.sqrt(1 / fabricated.SEEDS + 1 / 50)
    assert line["mean"] == pytest.approx(0.2894)
    assert line["margin"] == pytest.approx(3 * error + 0.00005)
    # Of PE-means; k-means and its rivals are in other sweeps.
    assert (table.loc[table["seeds"] > 0, "verdict"] == reported.WITHIN).all()
    assert set(table.loc[table["seeds"] > 0, "method"]) == {"pe_means_published"}


def test_printed_areas_are_met_or_not():
    met = finding(study_of("pe-means"))
    assert (met.verdict, met.comparisons, met.missing) == ("holds", 3, "")
    worse = Study(fabricated.all_rows(1.2))
    assert finding(worse).verdict == "not reproduced"
    assert finding(worse, dataset=EXACT).verdict == "not reproduced"
    near = Study(fabricated.all_rows(1.05))
    assert finding(near).verdict == "inconclusive"
    assert finding(study_of("pe-means"), dataset=EXACT).verdict == "not contradicted"


def measured(claim, **changes):
    (check,) = (each.check for each in read_claims("pe-means")["claims"] if each.id == claim)
    check = check | {"over": {"dataset": STORED}} | changes
    return CHECK_TYPES[check["type"]](study_of("pe-means"), check, context())


def test_ratios_are_to_the_smallest_printed_areas():
    of_sets = measured("pe-means/synopsis-on-every-set")
    found = of_sets.evidence.set_index("dataset")["measured_over_reported"]
    assert found.to_dict() == pytest.approx(fabricated.OURS, rel=1e-9)
    together = measured("pe-means/synopsis")
    assert together.summary.startswith("Geometric mean of measured over printed areas 0.8 [")
    assert together.missing == ""
    some = measured("pe-means/synopsis", over={"dataset": EXACT})
    assert some.missing.startswith("no stored rows of birch2")
    with pytest.raises(MissingRows, match="no stored rows of sweep synopsis"):
        measured("pe-means/synopsis", left=["em_mc"])


def test_figure_has_printed_numbers_in_brackets():
    result = figure_of("pe-means", "areas")
    table = result.table
    line = table[(table["dataset"] == "iris") & (table["method"] == "lsh_splits_published")]
    assert line["reported"].tolist() == [0.6892]
    assert table.loc[table["method"] == "kaplan_stemmer", "reported"].isna().all()
    (printed,) = result.formatted.query("`data set` == 'iris'").to_dict("records")
    assert any(text.endswith(" (0.6892)") for text in printed.values())
    assert any(text.endswith(" (–)") for text in printed.values())


def test_verdicts():
    verdicts = {v.claim.id.partition("/")[2]: v.finding.verdict for v in verdicts_of("pe-means")}
    assert verdicts["printed-areas"] == "not contradicted"
    assert verdicts["kaplan-stemmer"] == "not reproduced"
    # 0.8 in the mean of the stored sets, 1.1 on one.
    assert verdicts["synopsis"] == "not contradicted"
    assert verdicts["synopsis-on-every-set"] == "not reproduced"
