"""What a check measures on the stored rows, and how that gives a verdict.

A check is one entry of ``conf/paper/<paper>/claims.yaml``. Its `type` names a function
that `check_type` registers, which returns a `Finding`. `decide` makes one of
`BootstrapValues` (a statistic of every case of the claim, on the sample and on
resamples of the seeds), `agree` one of exact equalities. A case is one comparison or
value that the claim is about.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from pkm.analysis.tables.inference import Estimates, estimate, holm, keep_finite
from pkm.names import list_names

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
#: A bound that is kept by such a factor tests nothing.
WIDE = 100
#: How many values a sentence lists; of more it gives the ends.
CASES_LISTED = 4
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
#: Keys of every check; `text` says of a variant what it interprets.
COMMON_KEYS = (
    "type",
    "text",
    "variants",
    "caveat",
    "upper_bound",
    "not_comparable",
    "quantifier",
    *BOUNDS,
)
#: The table of planned cells without rows, where there are none.
NONE_MISSING = pd.DataFrame(
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
    undecided : str, or sequence of str, one for each case
        Why these data can give no verdict on a case; empty where they can.
    is_cost : bool
        Whether the values are compared on a logarithmic scale where they are positive.
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
    undecided: str | Sequence[str] = ""
    is_cost: bool = True


@dataclass(frozen=True)
class Context:
    """Input of a check besides the rows.

    Attributes
    ----------
    missing_cells : DataFrame
        Planned cells without rows: `sweep`, `method`, `dataset`, `epsilon`, `reason`.
    reported : mapping
        Numbers that the paper reports.
    """

    missing_cells: pd.DataFrame = field(default_factory=NONE_MISSING.copy)
    reported: Mapping = field(default_factory=dict)

    def explain_missing(
        self,
        sweeps: str | Sequence[str],
    ) -> str:
        """Say why sweeps have no rows, with the commonest recorded reason."""
        sweeps = as_list(sweeps)
        names = list_names(sweeps, SWEEPS_NAMED, " or ")
        text = f"no stored rows of sweep {names} that this claim needs"
        cells = self.missing_cells
        reasons = cells.loc[cells["sweep"].isin(sweeps), "reason"].mode()
        return f"{text} ({reasons[0]})" if len(reasons) else text

    def describe_missing_cells(
        self,
        methods: str | Iterable | None = None,
        sweeps: str | Iterable | None = None,
    ) -> str:
        """Say how many planned cells of some methods and sweeps have no rows.

        A rule that holds on every stored row says nothing about these, even where it is
        deterministic.
        """
        cells = self.missing_cells
        for column, values in {"method": methods, "sweep": sweeps}.items():
            if values is not None:
                cells = cells[cells[column].isin(as_list(values))]
        if not len(cells):
            return ""
        datasets = cells["dataset"].astype(str).unique()
        listed = list_names(datasets, DATASETS_NAMED)
        return f"{len(cells)} planned cells without rows, of {listed}"


class MissingRows(LookupError):
    """The rows that a check needs are not stored; the message says which."""


#: Registered types of checks by name: what measures them, and the keys that it reads.
#: The parts of `all_of` are measured one by one.
CHECK_TYPES: dict[str, Callable[..., Finding]] = {}
CHECK_KEYS = {"all_of": {*COMMON_KEYS, "parts"}}


def check_type(*keys: str) -> Callable:
    """Register a function ``(study, check, context)`` as the type of check of its name.

    Parameters
    ----------
    *keys : str
        Keys of the check that the function reads, besides `COMMON_KEYS`.
    """

    def register(measure: Callable) -> Callable:
        CHECK_TYPES[measure.__name__] = measure
        CHECK_KEYS[measure.__name__] = {*COMMON_KEYS, *keys}
        return measure

    return register


def to_verdict(
    is_violated: bool,
    is_supported: bool,
) -> str:
    """Return the verdict on a claim that rows speak against, support or leave open."""
    if is_violated:
        return NOT_REPRODUCED
    return HOLDS if is_supported else INCONCLUSIVE


def weaken(
    verdict: str,
    missing: str,
    *,
    exists: bool = False,
    is_complete: bool = True,
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


def describe_case(case: Mapping) -> str:
    """Name a case by its columns, and its compared methods without a column name.

    Examples
    --------
    >>> describe_case({"dataset": "iris", "k": 3, "left": "lloyd", "right": "mean"})
    'dataset iris, k 3, lloyd'
    """
    others = [name for name in case if name not in ("left", "right", "method")]
    labels = [f"{name} {case[name]}" for name in others]
    labels += [str(case[name]) for name in ("method", "left") if name in case]
    return ", ".join(labels)


def describe_values(bootstrap: BootstrapValues) -> list[str]:
    """Write the value of each case on the sample, with its name."""
    cases = bootstrap.cases.to_dict("records")
    return [
        f"{value:.4g} ({describe_case(case)})"
        for value, case in zip(bootstrap.values[0], cases, strict=True)
    ]


def within(
    values: np.ndarray,
    bounds: Mapping[str, float],
) -> np.ndarray:
    """Tell which values meet bounds, up to rounding."""
    truth = np.isfinite(values)
    for name, bound in bounds.items():
        *_, holds = BOUNDS[name]
        truth &= holds(values, bound)
    return truth


def bounds_text(bounds: Mapping[str, float]) -> str:
    """Write bounds.

    Examples
    --------
    >>> bounds_text({"at_least": 1, "at_most": 2.5})
    '≥ 1 and ≤ 2.5'
    """
    return " and ".join(
        f"{BOUNDS[name][0]} {bound:g}" for name, bound in bounds.items()
    )


def as_list(values: str | Iterable) -> list:
    """Return one name as a list of it, and several as they are."""
    return [values] if isinstance(values, str) else list(values)


def join_texts(*texts: str) -> str:
    """Join those of the texts that are not empty by semicolons."""
    return "; ".join(filter(None, texts))


def describe_missing(
    expected: Iterable[object],
    stored: Iterable[object],
    what: str = "",
) -> str:
    """Say which of the expected values are not stored; empty if all are."""
    known = set(stored)
    missing = [str(value) for value in expected if value not in known]
    return f"no stored rows of {what}{', '.join(missing)}" if missing else ""


def percent(value: float) -> str:
    """Write a share as a percentage of three digits."""
    return f"{100 * value:.3g} %"


def describe_slack(slack: float) -> str:
    """Say by which factor a bound is kept; empty where it is violated.

    Examples
    --------
    >>> describe_slack(12.34)
    'Kept by a factor of 12.3 at least.'
    >>> describe_slack(4e7)
    'Kept by a factor of 4e+07 at least: so wide a bound tests nothing.'
    """
    if not slack >= 1:
        return ""
    wide = ": so wide a bound tests nothing" if slack >= WIDE else ""
    return f"Kept by a factor of {slack:.3g} at least{wide}."


def describe_seeds(seeds: int) -> str:
    """Say that the seeds do not suffice for a verdict; empty where they do."""
    if seeds >= MIN_SEEDS:
        return ""
    return f"Only {seeds} seeds: at least {MIN_SEEDS} are needed for a verdict."


# Findings


def decide(
    bootstrap: BootstrapValues,
    check: Mapping,
) -> Finding:
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
    truth = bootstrap.values
    bounds = {}
    estimates = None
    slack = ""
    if truth.dtype != bool:
        bounds = {name: check[name] for name in BOUNDS if check.get(name) is not None}
        if not bounds:
            raise ValueError(
                f"check {check['type']} needs one of the bounds {list(BOUNDS)}"
            )
        truth = within(truth, bounds)
        # Costs are compared by their logarithms where the bounds have some.
        is_log = bootstrap.is_cost and min(bounds.values()) > 0
        estimates = estimate(bootstrap.values, bootstrap.seeds, log=is_log)
        if is_log and check["type"] == "bound" and check.get("upper_bound"):
            slack = describe_slack(_measure_slack(bootstrap.values[0], bounds))
    on_sample = truth[0]
    n_cases = on_sample.size
    share = truth[1:].mean(axis=0)
    seeds = np.broadcast_to(bootstrap.seeds, n_cases)
    has_seeds = seeds >= MIN_SEEDS
    undecided = np.broadcast_to(bootstrap.undecided, n_cases)
    is_decidable = has_seeds & (undecided == "")

    # Decide every case: both the t test and the resamples must say so.
    p_kept, p_violated = _test_bounds(estimates, bounds, truth)
    is_kept = on_sample & (share >= 1 - LEVEL) & (p_kept <= LEVEL)
    # One violation decides: its level is that of all cases of all parts of the claim.
    level = LEVEL / check.get("n_parts", 1)
    is_violated = ~on_sample & (share <= LEVEL) & (holm(p_violated) <= level)
    decided = [is_violated & is_decidable, is_kept & is_decidable]
    violated, kept = decided
    outcome = np.select(decided, ["violated", "kept"], "open")

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
        is_shown = joint[0] and joint_share >= 1 - LEVEL
        if quantifier == "some":
            # One case suffices, chosen among all of them.
            is_shown = (kept & (holm(p_kept) <= LEVEL)).any()
        verdict = to_verdict(is_refuted, is_shown)
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
    verdict = weaken(
        verdict,
        missing,
        exists=exists,
        is_complete=is_complete,
    )
    if not is_decidable.any():
        verdict = INCONCLUSIVE

    n_seeds = int(seeds[has_seeds].min() if has_seeds.any() else seeds.max())
    values = _describe(bootstrap, bounds, estimates, violated)
    reasons = dict.fromkeys(undecided)
    texts = (values, text, slack, *reasons, describe_seeds(n_seeds))
    summary = " ".join(filter(None, texts))
    evidence = bootstrap.evidence
    if evidence is None:
        evidence = bootstrap.cases
        if estimates is not None:
            name = re.sub(r"\W+", "_", bootstrap.name.lower()).strip("_")
            low, high = estimates.interval()
            interval = {
                name: bootstrap.values[0],
                "low": low,
                "high": high,
            }
            evidence = evidence.assign(**interval)
        evidence = evidence.assign(**bootstrap.extra_columns)
    if len(evidence) == n_cases:
        evidence = evidence.assign(
            true_on_sample=on_sample,
            true_in_resamples=share,
            outcome=outcome,
        )
    return Finding(
        verdict,
        summary,
        n_cases,
        n_seeds,
        missing,
        evidence,
    )


def _measure_slack(
    values: np.ndarray,
    bounds: Mapping[str, float],
) -> float:
    """Compute the factor by which the value that is nearest to its bound keeps it."""
    factors = [(values / bound) ** BOUNDS[name][1] for name, bound in bounds.items()]
    return float(np.min(factors))


def _test_bounds(
    estimates: Estimates | None,
    bounds: Mapping[str, float],
    truth: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Test in every case that the bounds are kept, and that one is violated: p-values.

    Shares of the resamples, of which `truth` says whether they keep the bounds, take
    the place of t tests where values are no numbers or have no variance.
    """
    n_lines = len(truth)
    n_true = truth[1:].sum(axis=0)
    shares = (n_lines - n_true) / n_lines, (1 + n_true) / n_lines
    if estimates is None:
        return shares
    p_bounds = []
    for name, bound in bounds.items():
        p_above = estimates.p_above(bound)
        p_bounds.append(p_above if BOUNDS[name][1] > 0 else 1 - p_above)
    p_kept = np.max(p_bounds, axis=0)
    p_violated = 1 - p_kept
    return tuple(
        np.where(np.isnan(p), share, p)
        for p, share in zip((p_kept, p_violated), shares, strict=True)
    )


def _describe(
    bootstrap: BootstrapValues,
    bounds: Mapping[str, float],
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
        known = keep_finite(on_sample)
        ends = (np.nanargmin(known), np.nanargmax(known))
        text = f"{bootstrap.name} between {' and '.join(texts[end] for end in ends)}"
        named = [texts[case] for case in np.flatnonzero(violated)[:CASES_LISTED]]
        text += f", violated at {', '.join(named)}" if named else ""
    more = f", {bootstrap.text}" if bootstrap.text else ""
    return f"{text} (required: {bounds_text(bounds)}){more};"


def agree(
    table: pd.DataFrame,
    text: str,
    check: Mapping,
    missing: str = "",
    *,
    is_printed: bool = False,
) -> Finding:
    """Turn exact equalities into a finding; one that is not met speaks against it.

    With the quantifier ``some`` one equality that holds proves the claim.

    Parameters
    ----------
    table : DataFrame
        One row per equality or inequality, with a column `agrees`.
    text : str
        What was compared.
    check : mapping
    missing : str
        Rows that the claim is about and that are not stored.
    is_printed : bool
        Whether the table has numbers of the paper, which can refute its claim; stored
        ones do not reproduce it.

    Raises
    ------
    MissingRows
        If the table is empty, with the text as the message.
    """
    n_rows = len(table)
    if not n_rows:
        raise MissingRows(text)
    wrong = table[~table["agrees"].astype(bool)]
    n_wrong = len(wrong)
    text = f"{n_rows - n_wrong} of {n_rows} agree. {text}"

    exists = check.get("quantifier") == "some"
    is_violated = n_wrong == n_rows if exists else n_wrong > 0
    verdict = weaken(to_verdict(is_violated, True), missing, exists=exists)
    if is_violated and is_printed:
        verdict = REFUTED
    if n_wrong and not exists:
        first = wrong.iloc[0].drop("agrees")
        values = [f"{name} {value}" for name, value in first.items()]
        text += f" First that does not: {', '.join(values)}."
    return Finding(
        verdict,
        text.strip(),
        n_rows,
        None,
        missing,
        table,
    )
