"""Verdicts: second readings of a claim, and all claims on synthetic rows."""

import reports
from two_methods import ABLATION, DISAGREEING, ablation_study, evaluate_check

from pkm.analysis.claims.findings import HOLDS

AGREEING = {"high": (100.0, 90.0, 95.0), "low": (1.0, 0.8, 1.0)}


def test_second_interpretation_is_detailed_if_it_differs():
    check = ABLATION | {"type": "bound", "at_most": 1.0}
    check["variants"] = [{"text": "By the other average", "average": "mean_of_ratios"}]
    finding = evaluate_check(check, ablation_study(DISAGREEING))
    assert finding.verdict == HOLDS
    assert "By the other average: not reproduced instead. Ratio 1.43" in finding.summary
    finding = evaluate_check(check, ablation_study(AGREEING))
    assert finding.summary.endswith("By the other average: holds as well.")


def test_evidence_counts_the_comparisons():
    for verdict in reports.verdicts_of("fastlloyd"):
        if verdict.claim.check["type"] == "ordering":
            finding = verdict.finding
            assert finding.comparisons == len(finding.evidence)
