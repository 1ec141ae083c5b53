"""Claims of a paper against the stored rows, each with one of `VERDICTS`.

The rules are the same for every claim. They are written once, in
``templates/verdict_rules.html.jinja``, which every report shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from pkm.analysis.claims.claim import (
    Claim,
    adapt_study,
    list_variants,
    read_claims,
)
from pkm.analysis.claims.findings import (
    CHECK_TYPES,
    HOLDS,
    INCONCLUSIVE,
    NONE_MISSING,
    NOT_COMPARABLE,
    NOT_CONTRADICTED,
    NOT_REPRODUCED,
    NOT_RUN,
    REFUTED,
    UNJUDGED,
    VERDICTS,
    Context,
    Finding,
    MissingRows,
    join_texts,
)
from pkm.analysis.tables.removals import parent_sweep
from pkm.analysis.tables.study import Study

#: Columns of `overview`.
OVERVIEW = [
    "id",
    "section",
    "statement",
    "kind",
    "basis",
    "about",
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
        return bool(self.finding.missing) and self.finding.verdict not in UNJUDGED


def evaluate_claims(
    study: Study,
    paper: str,
    missing: pd.DataFrame = NONE_MISSING,
) -> list[Verdict]:
    """Evaluate every claim of a paper.

    Parameters
    ----------
    study : Study
    paper : str
        Name of a paper with claims.
    missing : DataFrame, optional
        Planned cells without rows: `sweep`, `method`, `dataset`, `epsilon`, `reason`.

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
    study: Study,
    paper: str,
    missing: pd.DataFrame = NONE_MISSING,
) -> tuple[Study, Context]:
    """Return the study adapted to the paper, and the context that its checks need."""
    content = read_claims(paper)
    if content["removals"]:
        # The missing cells of all parts of a sweep are under its name.
        missing = missing.assign(sweep=missing["sweep"].map(parent_sweep))
    return adapt_study(study, paper), Context(missing, content["reported"])


def evaluate_check(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Evaluate one check, and state the verdicts of its variants."""
    finding = _qualify(_evaluate_one(study, check, context), check)
    if finding.verdict == NOT_RUN:
        return finding
    texts = [finding.summary]
    for variant in list_variants(check):
        other = _qualify(_evaluate_one(study, variant, context), variant)
        is_same = other.verdict == finding.verdict
        comparison = "as well." if is_same else f"instead. {other.summary}"
        if is_same and finding.verdict == NOT_COMPARABLE:
            # Where there is no verdict, its numbers are all that a variant says.
            comparison = f"as well. {other.summary}"
        texts.append(f"{variant['text']}: {other.verdict} {comparison}")
    return replace(finding, summary=" ".join(texts))


def _evaluate_one(
    study: Study,
    check: Mapping,
    context: Context,
) -> Finding:
    """Evaluate one check without its variants."""
    if check["type"] == "all_of":
        shared = {"n_parts": check.get("n_parts", 1) * len(check["parts"])}
        findings = [
            evaluate_check(study, part | shared, context) for part in check["parts"]
        ]
        return _join_findings(findings)
    try:
        return CHECK_TYPES[check["type"]](study, check, context)
    except MissingRows as missing:
        return Finding(NOT_RUN, str(missing))


def _qualify(
    finding: Finding,
    check: Mapping,
) -> Finding:
    """Weaken a verdict where the check says what it cannot decide."""
    verdict = finding.verdict
    text = check.get("not_comparable")
    if text:
        verdict = NOT_COMPARABLE
    elif check.get("upper_bound") and verdict in (HOLDS, NOT_REPRODUCED):
        # A bound on the growth leaves constants and small sizes open.
        text = "What is measured at some sizes neither shows nor refutes a bound."
        if verdict == NOT_REPRODUCED:
            text = check.get("caveat", text)
        verdict = NOT_CONTRADICTED if verdict == HOLDS else INCONCLUSIVE
    elif "caveat" in check and verdict == NOT_REPRODUCED:
        # A condition that is sufficient only: without it nothing is decided.
        verdict = INCONCLUSIVE
        text = check["caveat"]
    if not text:
        return finding
    return replace(finding, verdict=verdict, summary=f"{finding.summary} {text}")


def _join_findings(findings: Sequence[Finding]) -> Finding:
    """Join findings: one against the claim decides, unjudged parts make it partial."""
    judged = [finding for finding in findings if finding.verdict not in UNJUDGED]
    if not judged:
        return findings[0]
    verdicts = {finding.verdict for finding in judged}
    if len(judged) < len(findings):
        verdicts.add(NOT_CONTRADICTED)
    weakest_first = (REFUTED, NOT_REPRODUCED, INCONCLUSIVE, NOT_CONTRADICTED, HOLDS)

    texts = []
    missing = []
    evidence = [pd.DataFrame()]
    for number, finding in enumerate(findings, 1):
        texts.append(f"({number}) {finding.verdict}: {finding.summary}")
        if finding.verdict in UNJUDGED:
            missing.append(finding.summary)
            continue
        missing += finding.missing.split("; ")
        if len(finding.evidence):
            evidence.append(finding.evidence.assign(part=number))
    seeds = [finding.seeds for finding in judged if finding.seeds is not None]
    return Finding(
        next(name for name in weakest_first if name in verdicts),
        summary=" ".join(texts),
        comparisons=sum(finding.comparisons for finding in findings),
        seeds=min(seeds, default=None),
        missing=join_texts(*dict.fromkeys(missing)),
        evidence=pd.concat(evidence, ignore_index=True),
    )


def overview(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Make the table of verdicts: a row for each claim with the columns `OVERVIEW`."""
    rows = [
        vars(verdict.claim) | vars(verdict.finding) | {"partial": verdict.partial}
        for verdict in verdicts
    ]
    table = pd.DataFrame(rows).rename(columns={"summary": "numbers"})
    return table.reindex(columns=OVERVIEW)


def count_verdicts(table: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Count the verdicts of an overview, apart by what its claims are about."""
    counts = pd.crosstab(table["about"], table["verdict"])
    counts = counts.reindex(
        ["paper", "code"],
        columns=list(VERDICTS),
        fill_value=0,
    )
    return counts.to_dict("index")
