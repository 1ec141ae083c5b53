"""Claims of a paper against the stored rows.

A claim *holds*, is *not contradicted so far*, *fails*, is *inconclusive* or was *not
run*.

The rules are the same for every claim. They are written once, in
``templates/verdict_rules.html.jinja``, which every report shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from pkm.analysis.claims.claim import Claim, adapt_study, list_variants, read_claims
from pkm.analysis.claims.decisions import agree, decide
from pkm.analysis.claims.federation_costs import time_conditions
from pkm.analysis.claims.findings import (
    CHECK_TYPES,
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    NO_GAPS,
    NOT_CONTRADICTED,
    NOT_RUN,
    Agreement,
    BootstrapValues,
    Context,
    Finding,
    MissingRows,
    join_texts,
)
from pkm.analysis.tables.study import Study

#: Columns of `overview`.
OVERVIEW = [
    "id",
    "section",
    "statement",
    "kind",
    "basis",
    "verdict",
    "partial",
    "comparisons",
    "seeds",
    "numbers",
    "missing",
    "reported",
]


@dataclass(frozen=True)
class Verdict:
    """A claim with its finding."""

    claim: Claim
    finding: Finding

    @property
    def partial(self) -> bool:
        """Whether the verdict rests on a part of the data only."""
        return bool(self.finding.missing) and self.finding.verdict != NOT_RUN


def evaluate_claims(
    study: Study,
    paper: str,
    gaps: pd.DataFrame = NO_GAPS,
) -> list[Verdict]:
    """Evaluate every claim of a paper.

    Parameters
    ----------
    study : Study
    paper : str
        Name of a paper with claims.
    gaps : DataFrame, optional
        Columns `sweep`, `method`, `dataset`, `epsilon`, `reason`.

    Returns
    -------
    list of Verdict
        In the order of the claims file.
    """
    study, context = prepare(study, paper, gaps)
    return [
        Verdict(claim, evaluate_check(study, claim.check, context))
        for claim in read_claims(paper)["claims"]
    ]


def prepare(
    study: Study,
    paper: str,
    gaps: pd.DataFrame = NO_GAPS,
) -> tuple[Study, Context]:
    """Return the study adapted to the paper, and the context that its checks need."""
    content = read_claims(paper)
    study, gaps = adapt_study(study, gaps, paper)
    return study, Context(content["sets"], gaps, content["reported"])


def evaluate_check(study: Study, check: Mapping, context: Context) -> Finding:
    """Evaluate one check, and state the verdicts of its variants."""
    finding = _evaluate_one(study, check, context)
    if finding.verdict == NOT_RUN:
        return finding
    texts = [finding.summary]
    for variant in list_variants(check):
        other = _evaluate_one(study, variant, context)
        is_same = other.verdict == finding.verdict
        comparison = "as well." if is_same else f"instead. {other.summary}"
        texts.append(f"{variant['text']}: {other.verdict} {comparison}")
    return replace(finding, summary=" ".join(texts))


def _evaluate_one(study: Study, check: Mapping, context: Context) -> Finding:
    """Evaluate one check without its variants."""
    if check["type"] == "all_of":
        findings = [evaluate_check(study, entry, context) for entry in check["parts"]]
        return _join_findings(findings)
    try:
        finding = CHECK_TYPES[check["type"]].measure(study, check, context)
        if isinstance(finding, Agreement):
            finding = agree(finding, check)
    except MissingRows as missing:
        # What was stopped gives a lower bound of its time.
        is_time = check.get("metric") == "fit_cpu_seconds" and "above" in check
        is_stopped = is_time and "time limit" in str(missing)
        return Finding(INCONCLUSIVE if is_stopped else NOT_RUN, str(missing))
    if isinstance(finding, BootstrapValues):
        finding = decide(finding, check)

    verdict = finding.verdict
    texts = [finding.summary]
    if verdict == FAILS and "caveat" in check:
        # A condition that is sufficient only: without it nothing is decided.
        verdict = INCONCLUSIVE
        texts.append(check["caveat"])
    if check.get("metric") == "iteration_ms":
        texts.append(time_conditions(study, check["sweep"]))
    return replace(finding, verdict=verdict, summary=" ".join(texts))


def _join_findings(findings: Sequence[Finding]) -> Finding:
    """Join findings: one failure fails, a part without rows makes the rest partial."""
    verdicts = {finding.verdict for finding in findings}
    if verdicts == {NOT_RUN}:
        return findings[0]
    if NOT_RUN in verdicts:
        verdicts.add(NOT_CONTRADICTED)
    weakest_first = (FAILS, INCONCLUSIVE, NOT_CONTRADICTED, HOLDS)

    texts = []
    missing = []
    seeds = []
    evidence = [pd.DataFrame()]
    for part, finding in enumerate(findings, 1):
        texts.append(f"({part}) {finding.verdict}: {finding.summary}")
        if finding.verdict == NOT_RUN:
            missing.append(finding.summary)
            continue
        missing += finding.missing.split("; ")
        if finding.seeds is not None:
            seeds.append(finding.seeds)
        if len(finding.evidence):
            evidence.append(finding.evidence.assign(part=part))
    return Finding(
        next(name for name in weakest_first if name in verdicts),
        summary=" ".join(texts),
        comparisons=sum(finding.comparisons for finding in findings),
        seeds=min(seeds, default=None),
        missing=join_texts(*dict.fromkeys(missing)),
        evidence=pd.concat(evidence, ignore_index=True),
    )


def overview(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """One row per claim with the columns `OVERVIEW`, for the table of verdicts."""
    rows = [
        vars(verdict.claim) | vars(verdict.finding) | {"partial": verdict.partial}
        for verdict in verdicts
    ]
    table = pd.DataFrame(rows).rename(columns={"summary": "numbers"})
    return table.reindex(columns=OVERVIEW)
