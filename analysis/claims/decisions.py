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
    REFUTED,
    Agreement,
    BootstrapValues,
    Finding,
    MissingRows,
    bounds_text,
    describe_seeds,
    describe_values,
    join_texts,
    join_words,
    percent,
    to_verdict,
    weaken,
    within,
)
from pkm.analysis.tables.inference import Estimates, estimate, holm

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
    check = check | bootstrap.bounds
    quantifier = check.get("quantifier", "all")
    is_truth = bootstrap.values.dtype == bool
    if not is_truth and not bounds_text(check):
        raise ValueError(
            f"check {check['type']} needs one of the bounds {list(BOUNDS)}"
        )
    truth = bootstrap.values if is_truth else within(bootstrap.values, check)
    on_sample = truth[0]
    n_cases = on_sample.size
    share = truth[1:].mean(axis=0)
    seeds = np.broadcast_to(bootstrap.seeds, n_cases)
    has_seeds = seeds >= MIN_SEEDS
    is_decidable = has_seeds & bootstrap.decidable

    # Decide every case: both the t test and the resamples must say so.
    p_kept, p_violated = _test_bounds(bootstrap, check, truth)
    is_kept = on_sample & (share >= 1 - LEVEL) & (p_kept <= LEVEL)
    is_violated = ~on_sample & (share <= LEVEL) & (holm(p_violated) <= LEVEL)
    cases = [is_violated & is_decidable, is_kept & is_decidable]
    violated, kept = cases
    outcome = np.select(cases, ["violated", "kept"], "open")

    # Decide the claim, from its cases or from the joint predicate.
    if quantifier == "all":
        verdict = to_verdict(violated.any(), kept.all())
        text = f"true in {percent(share[0])} of resamples."
        if n_cases > 1:
            n_open = (outcome == "open").sum()
            text = f"{kept.sum()} kept, {n_open} open, {violated.sum()} violated of "
            text += f"{n_cases}."
    else:
        shares = truth[:, has_seeds].sum(axis=1) / max(has_seeds.sum(), 1)
        joint = shares > (0 if quantifier == "some" else 0.5)
        joint_share = joint[1:].mean()
        is_refuted = not joint[0] and joint_share <= LEVEL
        verdict = to_verdict(is_refuted, joint[0] and joint_share >= 1 - LEVEL)
        text = f"true for {on_sample.sum()} of {n_cases}; “{quantifier}” true in "
        text += f"{percent(joint_share)} of resamples."

    # A part of the cases shows less than all of them.
    missing = bootstrap.missing
    n_few = (~has_seeds).sum()
    if 0 < n_few < n_cases:
        few = f"{n_few} comparisons have fewer than {MIN_SEEDS} paired seeds"
        missing = join_texts(missing, few)
    exists = quantifier == "some"
    is_complete = quantifier == "all" and (violated & bootstrap.complete).any()
    verdict = weaken(verdict, missing, exists=exists, is_complete=is_complete)
    if not is_decidable.any():
        verdict = INCONCLUSIVE

    n_seeds = int(seeds[has_seeds].min() if has_seeds.any() else seeds.max())
    estimates = None if is_truth else _estimate(bootstrap, check)
    values = _describe(bootstrap, check, estimates, violated)
    undecided = bootstrap.undecided
    summary = join_words(values, text, undecided, describe_seeds(n_seeds))
    evidence = _list_evidence(bootstrap, estimates)
    if len(evidence) == n_cases:
        evidence = evidence.assign(
            true_on_sample=on_sample,
            true_in_resamples=share,
            outcome=outcome,
        )
    return Finding(verdict, summary, n_cases, n_seeds, missing, evidence)


def _estimate(bootstrap: BootstrapValues, check: Mapping) -> Estimates:
    """Estimate the values, and logarithms of costs where the bounds have some."""
    bounds = [check[name] for name in BOUNDS if check.get(name) is not None]
    is_log = bootstrap.is_cost and min(bounds) > 0
    return estimate(bootstrap.values, bootstrap.seeds, log=is_log)


def _test_bounds(
    bootstrap: BootstrapValues, check: Mapping, truth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """p-values of every case that the bounds are kept, and that one is violated.

    Shares of the resamples, of which `truth` says whether they keep the bounds, take
    the place of t tests where values are no numbers or have no variance.
    """
    n_lines = len(truth)
    n_true = truth[1:].sum(axis=0)
    shares = (n_lines - n_true) / n_lines, (1 + n_true) / n_lines
    if bootstrap.values.dtype == bool:
        return shares
    estimates = _estimate(bootstrap, check)
    p_kept = np.zeros(truth.shape[1])
    p_violated = np.ones(truth.shape[1])
    for name, (_, direction, _) in BOUNDS.items():
        if check.get(name) is not None:
            p_above = estimates.p_above(check[name])
            p = p_above if direction > 0 else 1 - p_above
            p_kept = np.maximum(p_kept, p)
            p_violated = np.minimum(p_violated, 1 - p)
    return tuple(
        np.where(np.isnan(p), share, p)
        for p, share in zip((p_kept, p_violated), shares, strict=True)
    )


def _describe(
    bootstrap: BootstrapValues,
    check: Mapping,
    estimates: Estimates | None,
    violated: np.ndarray,
) -> str:
    """Write the ends of the values, the bounds, what violates them and the clause."""
    if estimates is None:
        return f"{bootstrap.text};"
    on_sample = bootstrap.values[0]
    texts = describe_values(bootstrap)
    if len(on_sample) == 1:
        (low,), (high,) = estimates.interval()
        text = f"{bootstrap.name} {on_sample[0]:.4g} [{low:.4g}, {high:.4g}]"
    elif len(on_sample) <= CASES_LISTED:
        text = f"{bootstrap.name} {', '.join(texts)}"
    else:
        known = np.where(np.isfinite(on_sample), on_sample, np.nan)
        ends = (np.nanargmin(known), np.nanargmax(known))
        text = f"{bootstrap.name} between {' and '.join(texts[end] for end in ends)}"
        named = [texts[place] for place in np.flatnonzero(violated)[:CASES_LISTED]]
        text += f", violated at {', '.join(named)}" if named else ""
    more = f", {bootstrap.text}" if bootstrap.text else ""
    return f"{text} (required: {bounds_text(check)}){more};"


def _list_evidence(
    bootstrap: BootstrapValues, estimates: Estimates | None
) -> pd.DataFrame:
    """Return the cases with their value, its interval and the further columns."""
    if bootstrap.evidence is not None:
        return bootstrap.evidence
    evidence = bootstrap.cases
    if estimates is not None:
        name = re.sub(r"\W+", "_", bootstrap.name.lower()).strip("_")
        low, high = estimates.interval()
        evidence = evidence.assign(**{name: bootstrap.values[0]}, low=low, high=high)
    return evidence.assign(**bootstrap.extra_columns)


def agree(agreement: Agreement, check: Mapping) -> Finding:
    """Turn exact equalities into a finding; one that is not met speaks against it.

    With the quantifier ``some`` one equality that holds proves the claim. Printed
    numbers refute the claim of their paper, stored ones do not reproduce it.

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
    if is_violated and agreement.is_printed:
        verdict = REFUTED
    if n_wrong and not exists:
        first = wrong.iloc[0].drop("agrees")
        values = [f"{name} {value}" for name, value in first.items()]
        text += f" First that does not: {', '.join(values)}."
    return Finding(verdict, text.strip(), n_rows, None, agreement.missing, table)
