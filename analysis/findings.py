"""The result of a check, and how resampled predicates or a table of agreements give a verdict."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from pkm.analysis.inference import holm

HOLDS = "holds"
FAILS = "fails"
INCONCLUSIVE = "inconclusive"
NOT_RUN = "not run"
#: Of every test and of every share of resamples.
LEVEL = 0.05
#: Fewer paired seeds give no verdict on means.
MIN_SEEDS = 10
#: How many sweeps a message spells out.
SWEEPS_NAMED = 4
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Finding:
    """Outcome of one check.

    Attributes
    ----------
    verdict : str
        ``"holds"``, ``"fails"``, ``"inconclusive"`` or ``"not run"``.
    numbers : str
        What was measured, in one or two sentences.
    comparisons : int
        How many single comparisons were made.
    seeds : int or None
        Fewest paired seeds of a comparison; None where no seeds are compared.
    missing : str
        Data that the claim needs and that are not stored; empty if complete.
    evidence : DataFrame
        One line per comparison.
    """

    verdict: str
    numbers: str
    comparisons: int = 0
    seeds: int | None = None
    missing: str = ""
    evidence: pd.DataFrame = field(default_factory=pd.DataFrame)


@dataclass(frozen=True)
class Context:
    """Input of an evaluator besides the rows.

    Attributes
    ----------
    sets : mapping of str to list
        Named sets of data sets or parameters.
    missing : DataFrame
        Planned runs without rows: `sweep`, `method`, `dataset`, `epsilon`, `reason`.
    reported : mapping
        Numbers that the paper reports.
    """

    sets: Mapping
    missing: pd.DataFrame
    reported: Mapping = field(default_factory=dict)

    def resolve(self, values: str | Iterable) -> list:
        """Return the members of a named set, or the values themselves as a list."""
        if isinstance(values, str):
            return list(self.sets[values])
        return list(values)

    def why(self, sweeps: str | Sequence[str]) -> str:
        """Say why sweeps have no rows, with the commonest recorded reason."""
        sweeps = [sweeps] if isinstance(sweeps, str) else list(sweeps)
        names = sweeps[:SWEEPS_NAMED]
        if len(sweeps) > SWEEPS_NAMED:
            names.append("others")
        text = f"no stored rows of sweep {' or '.join(names)} that this claim needs"
        of_sweeps = self.missing["sweep"].isin(sweeps)
        reasons = self.missing.loc[of_sweeps, "reason"]
        if not len(reasons):
            return text
        return f"{text} ({reasons.mode().iloc[0]})"


class MissingRows(LookupError):
    """The rows that a check needs are not stored; the message says which."""


BOUND_SIGNS = {"at_least": "≥", "above": ">", "at_most": "≤", "below": "<"}


def decide(
    truth: np.ndarray,
    seeds: int,
    numbers: str,
    missing: str,
    evidence: pd.DataFrame,
    quantifier: str = "all",
) -> Finding:
    """Turn the truth of predicates under resampling into a finding.

    Parameters
    ----------
    truth : ndarray of shape (repeats + 1, parts), bool
        Line 0 is the sample itself, the others are resamples.
    seeds : int
        Fewest seeds of a part.
    numbers : str
        What was measured, ending in a semicolon.
    missing : str
        Data that the claim needs and that are not stored.
    evidence : DataFrame
        One line per part.
    quantifier : {"all", "some", "most"}, default="all"
        How many of the parts the claim says to be true.

    Returns
    -------
    Finding
        Its evidence has, of each part, `true_on_sample`, `true_in_resamples` (a share) and
        `outcome`: kept, violated or open.
    """
    on_sample = truth[0]
    resampled = truth[1:]
    n_parts = len(evidence)

    # Decide every part: kept, violated or neither.
    share = resampled.mean(axis=0)
    p_true = holm((1 + resampled.sum(axis=0)) / len(truth))
    kept = on_sample & (share >= 1 - LEVEL)
    violated = ~on_sample & (p_true <= LEVEL)
    outcome = np.select([violated, kept], ["violated", "kept"], "open")
    evidence = evidence.assign(true_on_sample=on_sample, true_in_resamples=share, outcome=outcome)

    # Decide the claim, from its parts or from the joint predicate.
    if quantifier == "all":
        verdict = FAILS if violated.any() else HOLDS if kept.all() else INCONCLUSIVE
        text = f"true in {percent(share[0])} of resamples."
        if n_parts > 1:
            n_open = np.count_nonzero(outcome == "open")
            text = f"{kept.sum()} kept, {n_open} open, {violated.sum()} violated "
            text += f"of {n_parts} parts."
    else:
        joint = truth.any(axis=1) if quantifier == "some" else truth.mean(axis=1) > 0.5
        joint_share = joint[1:].mean()
        # A part that is not stored could be the one that makes "some" true.
        may_fail = not (quantifier == "some" and missing)
        verdict = INCONCLUSIVE
        if joint[0] and joint_share >= 1 - LEVEL:
            verdict = HOLDS
        elif not joint[0] and joint_share <= LEVEL and may_fail:
            verdict = FAILS
        text = f"true for {on_sample.sum()} of {n_parts} parts; "
        text += f"“{quantifier}” true in {percent(joint_share)} of resamples."
    if seeds < MIN_SEEDS:
        verdict = INCONCLUSIVE

    text = f"{numbers} {text}{too_few(seeds)}"
    text = text[0].upper() + text[1:]
    return Finding(verdict, text, n_parts, seeds, missing, evidence)


def decide_joint(
    truth: np.ndarray, seeds: int, numbers: str, missing: str, evidence: pd.DataFrame
) -> Finding:
    """Decide one predicate of shape (repeats + 1,) about all lines of the evidence together."""
    finding = decide(truth[:, None], seeds, numbers, missing, evidence.iloc[:1])
    return replace(finding, evidence=evidence)


def exact(evidence: pd.DataFrame, numbers: str, missing: str = "") -> Finding:
    """Turn a table with a column `agrees` into a finding: holds if all lines agree, else fails.

    Raises
    ------
    MissingRows
        If the table is empty, with `numbers` as the message.
    """
    n_lines = len(evidence)
    if not n_lines:
        raise MissingRows(numbers)
    wrong = evidence[~evidence["agrees"].astype(bool)]
    text = f"{n_lines - len(wrong)} of {n_lines} agree. {numbers}"
    verdict = HOLDS
    if len(wrong):
        verdict = FAILS
        first = wrong.iloc[0].drop("agrees").to_dict()
        values = ", ".join(f"{name} {value}" for name, value in first.items())
        text += f" First that does not: {values}."
    return Finding(verdict, text.strip(), n_lines, None, missing, evidence)


def within(values: np.ndarray, check: Mapping) -> np.ndarray:
    """Tell which values meet the bounds of a check (`BOUND_SIGNS`), up to rounding."""
    truth = np.isfinite(values)
    if "at_most" in check:
        truth &= values <= check["at_most"] + _ROUNDING
    if "at_least" in check:
        truth &= values >= check["at_least"] - _ROUNDING
    if "below" in check:
        truth &= values < check["below"]
    if "above" in check:
        truth &= values > check["above"]
    return truth


def bounds_text(check: Mapping) -> str:
    """Write the bounds of a check.

    Examples
    --------
    >>> bounds_text({"at_least": 1, "at_most": 2.5})
    '≥ 1 and ≤ 2.5'
    """
    bounds = [f"{sign} {check[name]:g}" for name, sign in BOUND_SIGNS.items() if name in check]
    return " and ".join(bounds)


def join_texts(*texts: str) -> str:
    """Join those of the texts that are not empty by semicolons."""
    return "; ".join(filter(None, texts))


def no_rows_of(expected: Iterable[str], stored: Iterable[str]) -> str:
    """Say which of the expected names are not among the stored ones; empty if all are."""
    known = set(stored)
    absent = [name for name in expected if name not in known]
    return f"no stored rows of {', '.join(absent)}" if absent else ""


def percent(value: float) -> str:
    """Write a share as a percentage of three digits."""
    return f"{100 * value:.3g} %"


def too_few(seeds: int) -> str:
    """Say that the seeds do not suffice for a verdict; empty where they do."""
    if seeds >= MIN_SEEDS:
        return ""
    return f" Only {seeds} seeds: at least {MIN_SEEDS} are needed for a verdict."
