"""How resampled values and exact agreements give a finding."""

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from pkm.analysis.claims.findings import (
    BOUND_SIGNS,
    FAILS,
    HOLDS,
    INCONCLUSIVE,
    LEVEL,
    MIN_SEEDS,
    Agreement,
    Draws,
    Finding,
    MissingRows,
    bounds_text,
    describe_case,
    join_words,
    percent,
    too_few,
    weaken,
    within,
)
from pkm.analysis.tables.inference import holm
from pkm.analysis.tables.statistics import percentile_interval

#: How many values a sentence lists; of more it gives the ends.
CASES_LISTED = 4


def decide(draws: Draws, check: Mapping) -> Finding:
    """Turn resampled values into a finding.

    Parameters
    ----------
    draws : Draws
    check : mapping
        Bounds (`BOUND_SIGNS`) and `quantifier`: whether the claim is about all cases (default),
        some or most.

    Returns
    -------
    Finding
        Its evidence has, of each case, `true_on_sample`, `true_in_resamples` (a share) and
        `outcome`: kept, violated or open.
    """
    quantifier = check.get("quantifier", "all")
    if draws.values.dtype != bool and not bounds_text(check):
        raise ValueError(f"check {check['type']} needs one of the bounds {list(BOUND_SIGNS)}")
    truth = draws.values if draws.values.dtype == bool else within(draws.values, check)
    on_sample = truth[0]
    resampled = truth[1:]

    # Decide every case: kept, violated or neither.
    share = resampled.mean(axis=0)
    n_cases = truth.shape[1]
    decidable = draws.decidable
    if decidable is None:
        decidable = np.full(n_cases, not draws.undecided)
    p_true = holm((1 + resampled.sum(axis=0)) / len(truth))
    kept = on_sample & (share >= 1 - LEVEL) & decidable
    violated = ~on_sample & (p_true <= LEVEL) & decidable
    outcome = np.select([violated, kept], ["violated", "kept"], "open")

    # Decide the claim, from its cases or from the joint predicate.
    if quantifier == "all":
        verdict = FAILS if violated.any() else HOLDS if kept.all() else INCONCLUSIVE
        text = f"true in {percent(share[0])} of resamples."
        if n_cases > 1:
            n_open = np.count_nonzero(outcome == "open")
            text = f"{kept.sum()} kept, {n_open} open, {violated.sum()} violated of {n_cases}."
    else:
        joint = truth.any(axis=1) if quantifier == "some" else truth.mean(axis=1) > 0.5
        joint_share = joint[1:].mean()
        verdict = INCONCLUSIVE
        if joint[0] and joint_share >= 1 - LEVEL:
            verdict = HOLDS
        elif not joint[0] and joint_share <= LEVEL:
            verdict = FAILS
        text = f"true for {on_sample.sum()} of {n_cases}; "
        text += f"“{quantifier}” true in {percent(joint_share)} of resamples."

    # A part of the cases shows less than all of them.
    complete = np.ones(n_cases, dtype=bool) if draws.complete is None else draws.complete
    refuted = quantifier == "all" and bool((violated & complete).any())
    verdict = weaken(verdict, draws.missing, exists=quantifier == "some", refuted=refuted)
    if draws.seeds < MIN_SEEDS or not decidable.any():
        verdict = INCONCLUSIVE

    numbers = join_words(_describe(draws, check), text, draws.undecided, too_few(draws.seeds))
    evidence = _evidence(draws)
    if len(evidence) == n_cases:
        evidence = evidence.assign(
            true_on_sample=on_sample, true_in_resamples=share, outcome=outcome
        )
    return Finding(verdict, numbers, n_cases, draws.seeds, draws.missing, evidence)


def _describe(draws: Draws, check: Mapping) -> str:
    """Write the smallest and the largest value, the required bounds and the further sentence."""
    if draws.values.dtype == bool:
        return f"{draws.text};"
    on_sample = draws.values[0]
    labels = [describe_case(case) for _, case in draws.cases.iterrows()]
    if len(on_sample) == 1:
        (low,), (high,) = percentile_interval(draws.values)
        text = f"{draws.name} {on_sample[0]:.4g} [{low:.4g}, {high:.4g}]"
    elif len(on_sample) <= CASES_LISTED:
        pairs = zip(on_sample, labels, strict=True)
        values = [f"{value:.4g} ({label})" for value, label in pairs]
        text = f"{draws.name} {', '.join(values)}"
    else:
        known = np.isfinite(on_sample)
        ends = (
            np.where(known, on_sample, np.inf).argmin(),
            np.where(known, on_sample, -np.inf).argmax(),
        )
        values = [f"{on_sample[end]:.4g} ({labels[end]})" for end in ends]
        text = f"{draws.name} between {' and '.join(values)}"
    return f"{text} (required: {bounds_text(check)}){f', {draws.text}' if draws.text else ''};"


def _evidence(draws: Draws) -> pd.DataFrame:
    if draws.evidence is not None:
        return draws.evidence
    if draws.values.dtype == bool:
        return draws.cases.assign(**draws.facts)
    low, high = percentile_interval(draws.values)
    value = {re.sub(r"\W+", "_", draws.name.lower()).strip("_"): draws.values[0]}
    return draws.cases.assign(**value, low=low, high=high, **draws.facts)


def agree(agreement: Agreement, check: Mapping) -> Finding:
    """Turn a table of agreements into a finding: one line that does not agree refutes the claim.

    With the quantifier ``some`` one line that agrees shows it.

    Raises
    ------
    MissingRows
        If the table is empty, with the text as the message.
    """
    table = agreement.table
    n_lines = len(table)
    if not n_lines:
        raise MissingRows(agreement.text)
    wrong = table[~table["agrees"].astype(bool)]
    text = f"{n_lines - len(wrong)} of {n_lines} agree. {agreement.text}"
    exists = check.get("quantifier") == "some"
    refuted = len(wrong) == n_lines if exists else len(wrong) > 0
    verdict = weaken(FAILS if refuted else HOLDS, agreement.missing, exists=exists)
    if len(wrong) and not exists:
        first = wrong.iloc[0].drop("agrees").to_dict()
        values = ", ".join(f"{name} {value}" for name, value in first.items())
        text += f" First that does not: {values}."
    return Finding(verdict, text.strip(), n_lines, None, agreement.missing, table)
