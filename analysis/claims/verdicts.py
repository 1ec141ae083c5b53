"""Claims of a paper against the stored rows.

A claim *holds*, is *not contradicted so far*, *fails*, is *inconclusive* or was *not run*.

The rules are the same for every claim. They are written once, in
``templates/verdict_rules.html.jinja``, which every report shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from pkm.analysis.claims.claim import Claim, import_checks, read_claims, variants
from pkm.analysis.claims.decisions import agree, decide
from pkm.analysis.claims.federation_costs import time_conditions
from pkm.analysis.claims.findings import (
    CHECK_TYPES,
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    NOT_CONTRADICTED,
    NOT_RUN,
    Agreement,
    Context,
    Draws,
    Finding,
    MissingRows,
    join_texts,
    no_gaps,
)
from pkm.analysis.tables.removals import RemovalStudy
from pkm.analysis.tables.study import Study

#: Columns of `overview`.
OVERVIEW = [
    "id", "section", "statement", "kind", "basis", "verdict", "partial", "comparisons", "seeds",
    "numbers", "missing", "reported",
]  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """A claim with its finding."""

    claim: Claim
    finding: Finding

    @property
    def partial(self) -> bool:
        """Whether the verdict rests on a part of the data only."""
        return bool(self.finding.missing) and self.finding.verdict != NOT_RUN


def evaluate(study: Study, paper: str, missing: pd.DataFrame | None = None) -> list[Verdict]:
    """Evaluate every claim of a paper.

    Parameters
    ----------
    study : analysis.tables.study.Study
    paper : str
        Name of a paper with claims.
    missing : DataFrame, optional
        Columns `sweep`, `method`, `dataset`, `epsilon`, `reason`.

    Returns
    -------
    list of Verdict
        In the order of the claims file.
    """
    study, context = prepare(study, paper, missing)
    return [
        Verdict(claim, evaluate_check(study, claim.check, context))
        for claim in read_claims(paper)["claims"]
    ]


def prepare(
    study: Study, paper: str, missing: pd.DataFrame | None = None
) -> tuple[Study | RemovalStudy, Context]:
    """Return what the checks of a paper see of the rows, and besides them."""
    content = read_claims(paper)
    gaps = no_gaps() if missing is None else missing
    context = Context(content["sets"], gaps, content["reported"])
    special = import_checks(paper)
    return special.prepare(study, context) if hasattr(special, "prepare") else (study, context)


def evaluate_check(study: Study | RemovalStudy, check: Mapping, context: Context) -> Finding:
    """Evaluate one check, and state the verdicts of its variants; see `variants`."""
    main = {name: value for name, value in check.items() if name != "variants"}
    finding = _evaluate_one(study, main, context)
    if finding.verdict == NOT_RUN:
        return finding
    numbers = finding.numbers
    for variant in variants(check):
        options = {name: value for name, value in variant.items() if name != "text"}
        of_variant = _evaluate_one(study, main | options, context)
        numbers += f" {variant['text']}: {of_variant.verdict} "
        same = of_variant.verdict == finding.verdict
        numbers += "as well." if same else f"instead. {of_variant.numbers}"
    return replace(finding, numbers=numbers)


def _evaluate_one(study: Study | RemovalStudy, check: Mapping, context: Context) -> Finding:
    if check["type"] == "all_of":
        return _join_findings([evaluate_check(study, part, context) for part in check["parts"]])
    try:
        measured = CHECK_TYPES[check["type"]].measure(study, check, context)
        if isinstance(measured, Agreement):
            measured = agree(measured, check)
    except MissingRows as missing:
        return Finding(NOT_RUN, str(missing))
    finding = decide(measured, check) if isinstance(measured, Draws) else measured
    if finding.verdict == FAILS and "caveat" in check:
        # A condition that is sufficient only: without it nothing is decided.
        text = f"{finding.numbers} {check['caveat']}"
        finding = replace(finding, verdict=INCONCLUSIVE, numbers=text)
    if check.get("metric") == "iteration_ms":
        text = f"{finding.numbers} {time_conditions(study, check['sweep'])}"
        finding = replace(finding, numbers=text)
    return finding


def _join_findings(findings: Sequence[Finding]) -> Finding:
    """Join findings: one failure fails, a part that was not run makes the rest partial."""
    ran = [finding for finding in findings if finding.verdict != NOT_RUN]
    if not ran:
        return findings[0]
    verdicts = {finding.verdict for finding in ran}
    if len(ran) < len(findings):
        verdicts.add(NOT_CONTRADICTED)
    weakest_first = (FAILS, INCONCLUSIVE, NOT_CONTRADICTED, HOLDS)
    verdict = next(name for name in weakest_first if name in verdicts)
    numbers = [f"({i}) {part.verdict}: {part.numbers}" for i, part in enumerate(findings, 1)]
    evidence = [
        part.evidence.assign(part=i) for i, part in enumerate(findings, 1) if len(part.evidence)
    ]
    missing = [text for finding in ran for text in finding.missing.split("; ")]
    missing += [finding.numbers for finding in findings if finding.verdict == NOT_RUN]
    return Finding(
        verdict,
        numbers=" ".join(numbers),
        comparisons=sum(finding.comparisons for finding in ran),
        seeds=min((finding.seeds for finding in ran if finding.seeds is not None), default=None),
        missing=join_texts(*dict.fromkeys(missing)),
        evidence=pd.concat(evidence, ignore_index=True) if evidence else pd.DataFrame(),
    )


def overview(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """One line per claim, for the verdict table and as CSV.

    Returns
    -------
    DataFrame
        `id`, `section`, `statement`, `kind`, `basis`, `verdict`, `partial`, `comparisons`, `seeds`,
        `numbers`, `missing`, `reported`.
    """
    lines = [vars(each.claim) | vars(each.finding) | {"partial": each.partial} for each in verdicts]
    return pd.DataFrame(lines, columns=None if lines else OVERVIEW)[OVERVIEW]
