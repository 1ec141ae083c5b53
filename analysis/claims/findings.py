"""What a check measures on the stored rows, and how that gives a verdict.

A check is one entry of ``conf/paper/<paper>/claims.yaml``. Its `type` names a function
that `check_type` registers. The function returns `BootstrapValues` (a statistic of
every case of the claim, on the sample and on resamples of the seeds), `Agreement` (rows
of exact equalities) or a `Finding`. A case is one comparison or value that the claim is
about.
`pkm.analysis.claims.decisions` turns the first two into findings.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

HOLDS = "holds"
NOT_CONTRADICTED = "not contradicted"
REFUTED = "refuted"
NOT_REPRODUCED = "not reproduced"
INCONCLUSIVE = "inconclusive"
NOT_COMPARABLE = "not comparable"
NOT_RUN = "not run"
#: Every verdict, in the order of reports.
VERDICTS = (
    HOLDS,
    NOT_CONTRADICTED,
    REFUTED,
    NOT_REPRODUCED,
    INCONCLUSIVE,
    NOT_COMPARABLE,
    NOT_RUN,
)
#: Verdicts that say nothing about a claim.
UNJUDGED = frozenset((NOT_COMPARABLE, NOT_RUN))
#: Significance level of all tests; 1 minus it is the share of resamples needed.
LEVEL = 0.05
#: Paired seeds that a verdict on means needs at least.
MIN_SEEDS = 10
#: How many sweeps a message spells out.
SWEEPS_NAMED = 4
#: How many data sets without rows a text names.
DATASETS_NAMED = 8
#: Bounds that values may have up to rounding: their signs, the directions in which
#: values keep them, and the comparisons.
BOUNDS = {
    "at_least": ("≥", 1, lambda values, bound: values >= bound - 1e-9),
    "above": (">", 1, np.greater),
    "at_most": ("≤", -1, lambda values, bound: values <= bound + 1e-9),
    "below": ("<", -1, np.less),
}
#: Keys of every check.
COMMON_KEYS = (
    "type",
    "variants",
    "caveat",
    "upper_bound",
    "not_comparable",
    "quantifier",
    *BOUNDS,
)
#: Planned runs without rows, where there are none.
NO_GAPS = pd.DataFrame(
    columns=["sweep", "method", "dataset", "epsilon", "reason"], dtype=object
)


@dataclass(frozen=True)
class Finding:
    """Outcome of one check.

    Attributes
    ----------
    verdict : str
        One of `VERDICTS`.
    summary : str
        What was measured, in one or two sentences.
    comparisons : int
        How many single comparisons were made.
    seeds : int or None
        Fewest paired seeds of a comparison; None where no seeds are compared.
    missing : str
        Data that the claim needs and that are not stored; empty if complete.
    evidence : DataFrame
        One row per comparison.
    """

    verdict: str
    summary: str
    comparisons: int = 0
    seeds: int | None = None
    missing: str = ""
    evidence: pd.DataFrame = field(default_factory=pd.DataFrame)


@dataclass(frozen=True)
class BootstrapValues:
    """A statistic of the cases of a claim, on the sample and on resamples of its seeds.

    Attributes
    ----------
    values : ndarray of shape (repeats + 1, cases)
        Row 0 is the sample itself. Numbers are compared with the bounds of the check;
        truth values are taken as they are.
    cases : DataFrame
        One row per case, with the columns that name it.
    seeds : int, or ndarray of shape (cases,), int
        Seeds of each case.
    missing : str
        Cases, or parts of one, that the claim is about and that are not stored.
    name : str
        Name of the values, capitalized: ``"Ratio"``.
    complete : bool, or ndarray of shape (cases,), bool
        Which cases have all the data that they need.
    extra_columns : mapping of str to array
        Further columns of the evidence.
    evidence : DataFrame, optional
        Table for the report instead of `cases`, where one case summarizes many rows.
    text : str
        Clause that the report writes after the values, without a full stop.
    undecided : str
        Why these data can give no verdict on some case; empty where they can on all.
    decidable : bool, or ndarray of shape (cases,), bool
        Cases to which `undecided` does not apply.
    is_cost : bool
        Whether the values are compared on a logarithmic scale where they are positive.
    bounds : mapping of str to float
        Bounds that follow from the type of the check, not from its keys.
    """

    values: np.ndarray
    cases: pd.DataFrame
    seeds: np.ndarray | int
    missing: str = ""
    name: str = "Value"
    complete: np.ndarray | bool = True
    extra_columns: Mapping = field(default_factory=dict)
    evidence: pd.DataFrame | None = None
    text: str = ""
    undecided: str = ""
    decidable: np.ndarray | bool = True
    is_cost: bool = True
    bounds: Mapping = field(default_factory=dict)


@dataclass(frozen=True)
class Agreement:
    """Exact equalities and inequalities, one per row of a table.

    Attributes
    ----------
    table : DataFrame
        With a column `agrees`.
    text : str
        What was compared.
    missing : str
        Rows that the claim is about and that are not stored.
    is_printed : bool
        Whether the table has numbers of the paper; these can refute its claim.
    """

    table: pd.DataFrame
    text: str
    missing: str = ""
    is_printed: bool = False


@dataclass(frozen=True)
class Context:
    """Input of a check besides the rows.

    Attributes
    ----------
    sets : mapping of str to list
        Named sets of data sets or parameters.
    gaps : DataFrame
        Planned runs without rows: `sweep`, `method`, `dataset`, `epsilon`, `reason`.
    reported : mapping
        Numbers that the paper reports.
    """

    sets: Mapping = field(default_factory=dict)
    gaps: pd.DataFrame = field(default_factory=NO_GAPS.copy)
    reported: Mapping = field(default_factory=dict)

    def resolve(self, values: str | Iterable) -> list:
        """Return the members of a named set, or the values themselves as a list."""
        members = self.sets[values] if isinstance(values, str) else values
        return list(members)

    def explain_missing(self, sweeps: str | Sequence[str]) -> str:
        """Say why sweeps have no rows, with the commonest recorded reason."""
        sweeps = as_list(sweeps)
        names = sweeps[:SWEEPS_NAMED]
        if len(sweeps) > SWEEPS_NAMED:
            names.append("others")
        text = f"no stored rows of sweep {' or '.join(names)} that this claim needs"
        gaps = self.gaps[self.gaps["sweep"].isin(sweeps)]
        if not len(gaps):
            return text
        return f"{text} ({gaps['reason'].mode().iloc[0]})"

    def describe_gaps(
        self,
        methods: str | Iterable | None = None,
        sweeps: str | Iterable | None = None,
    ) -> str:
        """Say how many planned cells of some methods and sweeps have no rows.

        A rule that holds on every stored row says nothing about these, even where it is
        deterministic.
        """
        gaps = self.gaps
        for column, values in {"method": methods, "sweep": sweeps}.items():
            if values is not None:
                gaps = gaps[gaps[column].isin(as_list(values))]
        if not len(gaps):
            return ""
        datasets = gaps["dataset"].astype(str).unique()
        listed = ", ".join(datasets[:DATASETS_NAMED])
        n_others = len(datasets) - DATASETS_NAMED
        others = f" and {n_others} others" if n_others > 0 else ""
        return f"{len(gaps)} planned cells without rows, of {listed}{others}"


class MissingRows(LookupError):
    """The rows that a check needs are not stored; the message says which."""


@dataclass(frozen=True)
class CheckType:
    """A registered type of check: what it measures, and the keys that it reads."""

    measure: Callable[..., BootstrapValues | Agreement | Finding]
    keys: frozenset[str]


#: Registered types of checks by name.
CHECK_TYPES: dict[str, CheckType] = {}


def check_type(*keys: str) -> Callable:
    """Register a function ``(study, check, context)`` as the type of check of its name.

    Parameters
    ----------
    *keys : str
        Keys of the check that the function reads, besides `COMMON_KEYS`.
    """

    def register(measure: Callable) -> Callable:
        all_keys = frozenset((*COMMON_KEYS, *keys))
        CHECK_TYPES[measure.__name__] = CheckType(measure, all_keys)
        return measure

    return register


def to_verdict(is_violated: bool, is_supported: bool) -> str:
    """Return the verdict on a claim that rows speak against, support or leave open."""
    if is_violated:
        return NOT_REPRODUCED
    return HOLDS if is_supported else INCONCLUSIVE


def weaken(
    verdict: str, missing: str, *, exists: bool = False, is_complete: bool = True
) -> str:
    """Weaken a verdict that rests on a part of what the claim is about.

    Parameters
    ----------
    verdict : str
        What the stored part alone would give.
    missing : str
        What is not stored; the verdict stands where this is empty.
    exists : bool
        Whether the claim is that some case exists; one stored case then proves it.
    is_complete : bool
        Whether a case with complete data is violated; one suffices for all.

    Examples
    --------
    >>> missing = "no stored rows of s1"
    >>> weaken(HOLDS, missing), weaken(HOLDS, missing, exists=True)
    ('not contradicted', 'holds')
    >>> weaken(NOT_REPRODUCED, missing, is_complete=False)
    'inconclusive'
    """
    if missing and verdict == HOLDS and not exists:
        return NOT_CONTRADICTED
    if missing and verdict == NOT_REPRODUCED and (exists or not is_complete):
        return INCONCLUSIVE
    return verdict


def describe_case(case: pd.Series) -> str:
    """Name a case by its columns, and its compared methods without a column name.

    Examples
    --------
    >>> case = {"dataset": "iris", "k": 3, "left": "lloyd", "right": "mean"}
    >>> describe_case(pd.Series(case))
    'dataset iris, k 3, lloyd'
    """
    others = case.drop(["left", "right", "method"], errors="ignore")
    labels = [f"{name} {value}" for name, value in others.items()]
    labels += [str(case[name]) for name in ("method", "left") if name in case]
    return ", ".join(labels)


def describe_values(bootstrap: BootstrapValues) -> list[str]:
    """Write the value of each case on the sample, with its name."""
    cases = bootstrap.cases.iterrows()
    return [
        f"{value:.4g} ({describe_case(case)})"
        for value, (_, case) in zip(bootstrap.values[0], cases, strict=True)
    ]


def within(values: np.ndarray, check: Mapping) -> np.ndarray:
    """Tell which values meet the bounds of a check (`BOUNDS`), up to rounding."""
    truth = np.isfinite(values)
    for name, (*_, holds) in BOUNDS.items():
        if check.get(name) is not None:
            truth &= holds(values, check[name])
    return truth


def bounds_text(check: Mapping) -> str:
    """Write the bounds of a check.

    Examples
    --------
    >>> bounds_text({"at_least": 1, "at_most": 2.5})
    '≥ 1 and ≤ 2.5'
    """
    return " and ".join(
        f"{sign} {check[name]:g}"
        for name, (sign, *_) in BOUNDS.items()
        if check.get(name) is not None
    )


def as_list(values: str | Iterable) -> list:
    """Return one name as a list of it, and several as they are."""
    return [values] if isinstance(values, str) else list(values)


def join_texts(*texts: str) -> str:
    """Join those of the texts that are not empty by semicolons."""
    return "; ".join(filter(None, texts))


def join_words(*texts: str) -> str:
    """Join the texts that are not empty by spaces, beginning with a capital."""
    text = " ".join(filter(None, texts))
    return text[:1].upper() + text[1:]


def describe_missing(
    expected: Iterable[object], stored: Iterable[object], what: str = ""
) -> str:
    """Say which of the expected values are not stored; empty if all are."""
    known = set(stored)
    missing = [str(value) for value in expected if value not in known]
    return f"no stored rows of {what}{', '.join(missing)}" if missing else ""


def percent(value: float) -> str:
    """Write a share as a percentage of three digits."""
    return f"{100 * value:.3g} %"


def describe_seeds(seeds: int) -> str:
    """Say that the seeds do not suffice for a verdict; empty where they do."""
    if seeds >= MIN_SEEDS:
        return ""
    return f"Only {seeds} seeds: at least {MIN_SEEDS} are needed for a verdict."
