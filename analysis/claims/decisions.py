"""Turn resampled values and exact equalities into findings."""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from pkm.analysis.claims.findings import (
    BOUNDS,
    INCONCLUSIVE,
    LEVEL,
    MIN_SEEDS,
    Agreement,
    BootstrapValues,
    Finding,
    MissingRows,
    bounds_text,
    describe_seeds,
    describe_values,
    join_words,
    percent,
    to_verdict,
    weaken,
    within,
)
from pkm.analysis.tables.inference import holm
from pkm.analysis.tables.statistics import percentile_interval

#: How many values a sentence lists; of more it gives the ends.
CASES_LISTED = 4


def decide(bootstrap: BootstrapValues, check: Mapping) -> Finding:
    """Turn resampled values into a finding.

    Parameters
    ----------
    bootstrap : BootstrapValues
    check : mapping
        `BOUNDS` and `quantifier`: whether the claim is about all cases (default), some
        or most.

    Returns
    -------
    Finding
        Its evidence has, of each case, `true_on_sample`, `true_in_resamples` (a share)
        and `outcome`: kept, violated or open (neither).
    """
    quantifier = check.get("quantifier", "all")
    is_truth = bootstrap.values.dtype == bool
    if not is_truth and not bounds_text(check):
        raise ValueError(
            f"check {check['type']} needs one of the bounds {list(BOUNDS)}"
        )
    truth = bootstrap.values if is_truth else within(bootstrap.values, check)
    on_sample = truth[0]
    resampled = truth[1:]
    n_cases = on_sample.size

    # Decide every case: kept, violated or neither.
    share = resampled.mean(axis=0)
    decidable = bootstrap.decidable
    p_true = holm((1 + resampled.sum(axis=0)) / len(truth))
    kept = on_sample & (share >= 1 - LEVEL) & decidable
    violated = ~on_sample & (p_true <= LEVEL) & decidable
    outcome = np.select([violated, kept], ["violated", "kept"], "open")

    # Decide the claim, from its cases or from the joint predicate.
    if quantifier == "all":
        is_supported = kept.all()
        is_violated = violated.any()
        text = f"true in {percent(share[0])} of resamples."
        if n_cases > 1:
            n_open = (outcome == "open").sum()
            text = f"{kept.sum()} kept, {n_open} open, {violated.sum()} violated of "
            text += f"{n_cases}."
    else:
        shares = truth.mean(axis=1)
        joint = shares > (0 if quantifier == "some" else 0.5)
        joint_share = joint[1:].mean()
        is_supported = joint[0] and joint_share >= 1 - LEVEL
        is_violated = not joint[0] and joint_share <= LEVEL
        text = f"true for {on_sample.sum()} of {n_cases}; “{quantifier}” true in "
        text += f"{percent(joint_share)} of resamples."
    verdict = to_verdict(is_violated, is_supported)

    # A part of the cases shows less than all of them.
    refuted = quantifier == "all" and (violated & bootstrap.complete).any()
    exists = quantifier == "some"
    verdict = weaken(verdict, bootstrap.missing, exists=exists, refuted=refuted)
    if bootstrap.seeds < MIN_SEEDS or not np.any(decidable):
        verdict = INCONCLUSIVE

    seeds = describe_seeds(bootstrap.seeds)
    summary = join_words(_describe(bootstrap, check), text, bootstrap.undecided, seeds)
    evidence = _list_evidence(bootstrap)
    if len(evidence) == n_cases:
        evidence = evidence.assign(
            true_on_sample=on_sample,
            true_in_resamples=share,
            outcome=outcome,
        )
    return Finding(
        verdict, summary, n_cases, bootstrap.seeds, bootstrap.missing, evidence
    )


def _describe(bootstrap: BootstrapValues, check: Mapping) -> str:
    """Write the smallest and the largest value, the bounds and the further sentence."""
    if bootstrap.values.dtype == bool:
        return f"{bootstrap.text};"
    on_sample = bootstrap.values[0]
    texts = describe_values(bootstrap)
    if len(on_sample) == 1:
        (low,), (high,) = percentile_interval(bootstrap.values)
        text = f"{bootstrap.name} {on_sample[0]:.4g} [{low:.4g}, {high:.4g}]"
    elif len(on_sample) <= CASES_LISTED:
        text = f"{bootstrap.name} {', '.join(texts)}"
    else:
        known = np.where(np.isfinite(on_sample), on_sample, np.nan)
        ends = (np.nanargmin(known), np.nanargmax(known))
        text = f"{bootstrap.name} between {' and '.join(texts[end] for end in ends)}"
    more = f", {bootstrap.text}" if bootstrap.text else ""
    return f"{text} (required: {bounds_text(check)}){more};"


def _list_evidence(bootstrap: BootstrapValues) -> pd.DataFrame:
    """Return the cases with their value, its interval and the further columns."""
    if bootstrap.evidence is not None:
        return bootstrap.evidence
    evidence = bootstrap.cases
    if bootstrap.values.dtype != bool:
        name = re.sub(r"\W+", "_", bootstrap.name.lower()).strip("_")
        low, high = percentile_interval(bootstrap.values)
        evidence = evidence.assign(**{name: bootstrap.values[0]}, low=low, high=high)
    return evidence.assign(**bootstrap.extra_columns)


def agree(agreement: Agreement, check: Mapping) -> Finding:
    """Turn exact equalities into a finding; one that fails refutes the claim.

    With the quantifier ``some`` one equality that holds proves the claim.

    Raises
    ------
    MissingRows
        If the table is empty, with the text as the message.
    """
    table = agreement.table
    n_rows = len(table)
    if not n_rows:
        raise MissingRows(agreement.text)
    wrong = table[~table["agrees"].astype(bool)]
    n_wrong = len(wrong)
    text = f"{n_rows - n_wrong} of {n_rows} agree. {agreement.text}"

    exists = check.get("quantifier") == "some"
    is_violated = n_wrong == n_rows if exists else n_wrong > 0
    verdict = to_verdict(is_violated, is_supported=True)
    verdict = weaken(verdict, agreement.missing, exists=exists)
    if n_wrong and not exists:
        first = wrong.iloc[0].drop("agrees")
        values = [f"{name} {value}" for name, value in first.items()]
        text += f" First that does not: {', '.join(values)}."
    return Finding(verdict, text.strip(), n_rows, None, agreement.missing, table)
