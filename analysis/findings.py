"""What a check finds, and the rules that turn truth under resampling, or a table of agreements,
into a verdict.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from pkm.analysis.inference import holm

HOLDS, FAILS, INCONCLUSIVE, NOT_RUN = "holds", "fails", "inconclusive", "not run"
LEVEL = 0.05
MIN_SEEDS = 10
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
        Fewest paired seeds behind a comparison; None where seeds play no part.
    lacking : str
        Data that the claim asks for and that are absent; empty if complete.
    evidence : DataFrame
        One line per comparison.
    """

    verdict: str
    numbers: str
    comparisons: int = 0
    seeds: int | None = None
    lacking: str = ""
    evidence: pd.DataFrame = field(default_factory=pd.DataFrame)


@dataclass(frozen=True)
class Context:
    """What an evaluator may look at besides the rows: named sets, what is missing, and the paper's
    printed numbers.
    """

    sets: Mapping
    missing: pd.DataFrame
    printed: Mapping = field(default_factory=dict)

    def resolve(self, values):
        """Return the members of a named set, or the values themselves as a list."""
        if isinstance(values, str):
            return list(self.sets[values])
        return list(values)

    def why(self, sweeps):
        """Say why sweeps have no rows, with the commonest recorded reason."""
        named = list(sweeps[:SWEEPS_NAMED]) + ["others"] * (len(sweeps) > SWEEPS_NAMED)
        text = f"no stored rows of sweep {' or '.join(named)} that this claim needs"
        reasons = (
            self.missing.loc[self.missing["sweep"].isin(sweeps), "reason"]
            if len(self.missing)
            else []
        )
        return f"{text} ({pd.Series(reasons).mode().iloc[0]})" if len(reasons) else text


class MissingRows(LookupError):
    """The rows that a check needs are not stored; the message says which."""


def decide(truth, keys, seeds, numbers, lacking, evidence, quantifier="all"):
    """Turn the truth of predicates under resampling into a finding; line 0 is the sample itself."""
    share = truth[1:].mean(axis=0)
    p_true = holm((1 + truth[1:].sum(axis=0)) / (len(truth)))
    kept = truth[0] & (share >= 1 - LEVEL)
    violated = ~truth[0] & (p_true <= LEVEL)
    evidence = evidence.assign(
        true_on_sample=truth[0],
        true_in_resamples=share,
        outcome=np.select([violated, kept], ["violated", "kept"], "open"),
    )
    if quantifier == "all":
        verdict = FAILS if violated.any() else HOLDS if kept.all() else INCONCLUSIVE
        counted = (
            f"{kept.sum()} kept, {(~kept & ~violated).sum()} open, {violated.sum()} violated of {len(keys)} parts."
            if len(keys) > 1
            else f"true in {percent(share[0])} of resamples."
        )
    else:
        joint = truth.any(axis=1) if quantifier == "some" else truth.mean(axis=1) > 0.5
        level = joint[1:].mean()
        verdict = INCONCLUSIVE
        if joint[0] and level >= 1 - LEVEL:
            verdict = HOLDS
        elif not joint[0] and level <= LEVEL and not (quantifier == "some" and lacking):
            verdict = FAILS
        counted = f"true for {truth[0].sum()} of {len(keys)} parts; “{quantifier}” true in {percent(level)} of resamples."
    if seeds < MIN_SEEDS:
        verdict = INCONCLUSIVE
    text = f"{numbers} {counted}{too_few(seeds)}"
    return Finding(verdict, text[0].upper() + text[1:], len(keys), seeds, lacking, evidence)


def exact(evidence, numbers, lacking="", agreed="agrees"):
    """Turn a table with a truth column into a finding: holds if every line agrees, fails otherwise."""
    if not len(evidence):
        raise MissingRows(numbers)
    wrong = evidence[~evidence[agreed].astype(bool)]
    text = f"{len(evidence) - len(wrong)} of {len(evidence)} agree. {numbers}"
    if len(wrong):
        shown = wrong.iloc[0].to_dict()
        text += (
            " First that does not: "
            + ", ".join(f"{name} {value}" for name, value in shown.items() if name != agreed)
            + "."
        )
    return Finding(
        FAILS if len(wrong) else HOLDS, text.strip(), len(evidence), None, lacking, evidence
    )


def within(values, check):
    """Tell which values meet the bounds `at_most`, `at_least`, `below`, `above` of a check, up to
    rounding.
    """
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


def percent(value):
    """Write a share as a percentage of three digits."""
    return f"{100 * value:.3g} %"


def too_few(seeds):
    """Say that the seeds do not suffice for a verdict; empty where they do."""
    return (
        f" Only {seeds} seeds: at least {MIN_SEEDS} are needed for a verdict."
        if seeds < MIN_SEEDS
        else ""
    )
