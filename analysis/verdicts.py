"""Claims of a paper against the stored rows: *holds*, *fails*, *inconclusive* or *not run*, with the numbers.

The rules, the same for every claim:

* **Orderings** ("A is at least as good as B") are paired one-sided t tests over seeds, one per comparison (data set,
  epsilon, ...), in both directions, each direction Holm-corrected over the comparisons of the claim at level 0.05. A
  comparison is *kept* or *violated* if its test says so, else *tied*. The claim fails if a comparison is violated. It
  holds if none is, some are kept, and no more ties lean the other way than comparisons are kept; ties count as kept
  then. A strict claim needs every comparison kept. Mere ties prove nothing (inconclusive), except where the claim
  itself says that there is no difference or comes with a margin for ties: ties suffice there. The rule of leaning ties
  is ours and stricter than the claims as recorded, which count every tie as kept.
* **Averages over data sets** are averages of the metric itself. Where a claim divides by the same average of another
  method it is the ratio of the two means, not the mean of the ratios per data set; the latter is stated beside it.
* **Thresholds, trends and magnitudes** are predicates on means. They are evaluated on 2000 paired bootstrap resamples
  of the seeds (one draw for all methods, data sets and epsilons). A part of the claim is *kept* if the predicate is
  true on the sample and in 95 % of the resamples, *violated* if it is false on the sample and true in so few resamples
  that the Holm-corrected share is at most 5 %. The claim holds if every part is kept, fails if one is violated. "Some"
  and "most" are decided on the joint predicate.
* **Counts and formulas** are compared exactly (up to rounding) with what the rows and the ledger's charges say.
* Fewer than `MIN_SEEDS` paired seeds decide nothing about means: such a comparison is left out of the verdict, and
  where no other is left the claim is inconclusive, whatever the numbers look like.
* Where part of the data is absent the claim is judged on the part at hand and marked *partial*, with what is lacking.
  What the absent part could still supply (a larger maximum, "some" case) is inconclusive instead of failed.

No correction is made across claims: with some fifty claims at 5 % one or two false verdicts must be expected. Both
kinds of test are approximate for heavy-tailed metrics at small numbers of seeds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import pandas as pd

from analysis import claims as claim_data
from analysis.inference import holm, paired_tests, rank_correlation
from analysis.tables import (
    area,
    column_statistics,
    concatenate,
    percentile_interval,
    resampled_means,
    resampling_weights,
)

HOLDS, FAILS, INCONCLUSIVE, NOT_RUN = "holds", "fails", "inconclusive", "not run"
LEVEL = 0.05
MIN_SEEDS = 10
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
class Verdict:
    """A claim with its finding."""

    claim: Mapping
    finding: Finding

    @property
    def partial(self):
        """Whether the verdict rests on a part of the data only."""
        return bool(self.finding.lacking) and self.finding.verdict != NOT_RUN


@dataclass(frozen=True)
class Context:
    """What an evaluator may look at besides the rows: named sets and the list of what is missing."""

    sets: Mapping
    missing: pd.DataFrame

    def resolve(self, values):
        """Return the members of a named set, or the values themselves as a list."""
        if isinstance(values, str):
            return list(self.sets[values])
        return list(values)

    def why(self, sweeps):
        """Say why sweeps have no rows, with the commonest recorded reason."""
        text = f"no stored rows of sweep {' or '.join(sweeps)} that this claim needs"
        reasons = self.missing.loc[self.missing["sweep"].isin(sweeps), "reason"] if len(self.missing) else []
        return f"{text} ({pd.Series(reasons).mode().iloc[0]})" if len(reasons) else text


class Absent(LookupError):
    """The rows that a check needs are not stored; the message says which."""


def evaluate(study, paper, missing=None):
    """Evaluate every claim of a paper.

    Parameters
    ----------
    study : analysis.tables.Study
    paper : str
        Name of a paper with claims.
    missing : DataFrame, optional
        Columns `sweep`, `method`, `dataset`, `epsilon`, `reason`.

    Returns
    -------
    list of Verdict
        In the order of the claims file.
    """
    content = claim_data.load(paper)
    missing = pd.DataFrame(columns=["sweep", "method", "dataset", "epsilon", "reason"]) if missing is None else missing
    context = Context(content["sets"], missing)
    evaluators = EVALUATORS | claim_data.own_evaluators(paper)
    return [Verdict(claim, _check(study, claim["check"], context, evaluators)) for claim in content["claims"]]


def _check(study, check, context, evaluators):
    """Evaluate one check; with `also` (`text` and options that replace its own) a second reading beside it."""
    if "also" not in check:
        return _evaluate_one(study, check, context, evaluators)
    plain = {name: value for name, value in check.items() if name != "also"}
    other = {name: value for name, value in check["also"].items() if name != "text"}
    finding = _evaluate_one(study, plain, context, evaluators)
    if finding.verdict == NOT_RUN:
        return finding
    beside = _evaluate_one(study, plain | other, context, evaluators)
    text = f" {check['also']['text']}: {beside.verdict}"
    text += " as well." if beside.verdict == finding.verdict else f" instead. {beside.numbers}"
    return replace(finding, numbers=finding.numbers + text)


def _evaluate_one(study, check, context, evaluators):
    kind = check["type"]
    if kind == "all_of":
        return _all_of([_check(study, part, context, evaluators) for part in check["parts"]])
    try:
        evaluator = evaluators[kind]
    except KeyError:
        raise ValueError(f"check type {kind!r} is unknown; known: {sorted(evaluators)} and all_of") from None
    try:
        return evaluator(study, check, context)
    except Absent as absent:
        return Finding(NOT_RUN, str(absent))


def _all_of(findings):
    """Join findings: one failure fails, a part that was not run makes the rest partial."""
    ran = [finding for finding in findings if finding.verdict != NOT_RUN]
    if not ran:
        return findings[0]
    verdicts = {finding.verdict for finding in ran}
    verdict = next(name for name in (FAILS, INCONCLUSIVE, HOLDS) if name in verdicts)
    seeds = [finding.seeds for finding in ran if finding.seeds is not None]
    lacking = [part for finding in ran for part in finding.lacking.split("; ")]
    lacking += [finding.numbers for finding in findings if finding.verdict == NOT_RUN]
    return Finding(
        verdict,
        " ".join(f"({i + 1}) {finding.verdict}: {finding.numbers}" for i, finding in enumerate(findings)),
        sum(finding.comparisons for finding in ran),
        min(seeds) if seeds else None,
        "; ".join(dict.fromkeys(text for text in lacking if text)),
        pd.concat([f.evidence.assign(part=i + 1) for i, f in enumerate(findings) if len(f.evidence)], ignore_index=True)
        if any(len(finding.evidence) for finding in findings)
        else pd.DataFrame(),
    )


# --- which cells are compared ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """Comparisons found in a panel: labels, matched columns of both sides, and what was expected but absent."""

    panel: object
    keys: pd.DataFrame
    left: list
    right: list
    scale: list | None
    lacking: str

    @property
    def seeds(self):
        """Fewest seeds that both sides of a comparison share."""
        finite = np.isfinite(self.panel.values)
        shared = [
            np.logical_and(finite[:, a], finite[:, b]).sum(axis=0).min()
            for a, b in zip(self.left, self.right, strict=True)
        ]
        return int(min(shared))


def _pairs(study, check, context):
    """Find the comparisons of a check.

    `left` and `right` list selectors (a method's name, or column values); `over` names the columns in which both sides
    must agree, with the expected values. Data sets that share these columns are averaged, over those that both have.
    """
    sweeps = [check["sweep"]] if isinstance(check["sweep"], str) else list(check["sweep"])
    found = [panel for panel in (study.panel(sweep, check["metric"]) for sweep in sweeps) if len(panel.cells)]
    if not found:
        raise Absent(context.why(sweeps))
    panel = concatenate(found)
    panel = area(panel) if check.get("area") else panel.spread()
    over = {name: values if values == "any" else context.resolve(values) for name, values in check["over"].items()}
    panel = panel.take(_allowed(panel.cells, over, check.get("at_least_d", 0)))
    selectors = list(check["left"]), _right_selectors(panel.cells, check)
    lefts, rights = ([(_label(s), _positions(panel.cells, s, list(over))) for s in side] for side in selectors)
    denominators = _denominators(panel.cells, check.get("relative_to"))
    lines, left, right, scale = [], [], [], []
    for (a, a_cells), (b, b_cells) in product(lefts, rights or [("1", None)]):
        for key, mine in a_cells.items():
            theirs = mine if b_cells is None else b_cells.get(key, {})
            datasets = [name for name in mine if name in theirs and (denominators is None or name in denominators)]
            if not datasets:
                continue
            lines.append(dict(zip(over, key, strict=True)) | {"left": a, "right": b})
            left.append([mine[name] for name in datasets])
            right.append([theirs[name] for name in datasets])
            scale.append([denominators[name] for name in datasets] if denominators is not None else [])
    if not lines:
        raise Absent(context.why(sweeps))
    keys = pd.DataFrame(lines)
    lacking = "; ".join(filter(None, [_lacking(check, over, keys, min(map(len, left))), _unseen(check, panel.cells)]))
    return Pairs(panel, keys, left, right, scale if denominators is not None else None, lacking)


def _right_selectors(cells, check):
    """Return the selectors of the right side; `best_of` splits each into one per combination of those columns."""
    selectors = list(check.get("right", ()))
    if "best_of" not in check:
        return selectors
    split = []
    for selector in selectors:
        chosen = cells[_matches(cells, selector)]
        if set(check["best_of"]) <= set(cells.columns):
            found = chosen[check["best_of"]].dropna().drop_duplicates()
            split += [_as_mapping(selector) | line for line in found.to_dict("records")]
    return split


def _as_mapping(selector):
    return {"method": selector} if isinstance(selector, str) else dict(selector)


def _matches(cells, selector):
    """Mask of the cells that a selector means; none if a column it names does not exist."""
    mask = np.ones(len(cells), dtype=bool)
    for name, value in _as_mapping(selector).items():
        values = value if isinstance(value, list) else [value]
        mask &= cells[name].isin(values).to_numpy() if name in cells else False
    return mask


def _allowed(cells, over, least_d):
    allowed = (cells["d"] >= least_d).to_numpy()
    for name, values in over.items():
        if name in cells and not isinstance(values, str):
            if name in ("dataset", "epsilon", "n", "d", "k"):
                listed = cells[name].isin(values) | ((name == "epsilon") & cells[name].isna())
                allowed = allowed & listed.to_numpy()
        elif name not in cells:
            raise Absent(f"no stored row has the parameter {name}")
    return allowed


def _positions(cells, selector, keys):
    """Map each combination of key values to its cells by data set, for one selector."""
    mask = _matches(cells, selector)
    positions = {}
    chosen = cells[mask]
    for at, line, name in zip(chosen.index, chosen[keys].to_numpy(dtype=object), chosen["dataset"], strict=True):
        key = tuple(line)
        inside = positions.setdefault(key, {})
        if name in inside:
            raise ValueError(f"selector {selector!r} matches two cells of data set {name!r} at {keys}={key}")
        inside[name] = at
    return positions


def _denominators(cells, selector):
    if selector is None:
        return None
    mask = _matches(cells, selector)
    return dict(zip(cells.loc[mask, "dataset"], cells.index[mask], strict=True))


def _label(selector):
    if isinstance(selector, str):
        return selector
    return ", ".join(f"{name}={value}" if name != "method" else str(value) for name, value in selector.items())


def _lacking(check, over, keys, fewest):
    """Say which comparisons, or data sets inside a comparison, the claim asks for and the rows lack."""
    expected, found = check.get("expected"), len(keys)
    if "best_of" in check:
        found = len(keys[[*over, "left"]].drop_duplicates())
    if expected is None:
        sides = len(check["left"]) * (1 if "best_of" in check else len(check.get("right", "1")))
        expected = np.prod([len(values) for values in over.values()], dtype=int) * sides
    texts = []
    if found < expected:
        gone = []
        for name, values in over.items():
            absent = [] if isinstance(values, str) else [value for value in values if value not in set(keys[name])]
            if absent:
                gone.append(f"{name} {', '.join(map(str, absent))}")
        texts.append(f"{found} of {expected} comparisons at hand" + (f"; absent: {'; '.join(gone)}" if gone else ""))
    each = check.get("datasets_each", 1)
    if fewest < each:
        texts.append(f"only {fewest} of {each} data sets behind some comparisons")
    return "; ".join(texts)


def _unseen(check, cells):
    """Say which listed values of a `best_of` column no stored cell has."""
    texts = []
    for selector, name in product(check.get("right", ()), check.get("best_of", ())):
        listed = _as_mapping(selector).get(name)
        if isinstance(listed, list) and name in cells:
            absent = [str(value) for value in listed if not (cells[name] == value).any()]
            texts += [f"{name} {', '.join(absent)} not stored"] if absent else []
    return "; ".join(texts)


def _scaled(means, at, scale, average):
    """Average of columns over data sets, relative to the columns `scale` of the same data sets where these are given.

    Parameters
    ----------
    means : ndarray of shape (n_lines, n_cells)
    at, scale : list of int
        Columns, data set by data set; an empty `scale` divides by nothing.
    average : str
        ``"ratio_of_means"`` or ``"mean_of_ratios"`` (every data set weighs the same, whatever its height).

    Returns
    -------
    ndarray of shape (n_lines,)
    """
    if not scale:
        return means[:, at].mean(axis=1)
    if average == "mean_of_ratios":
        return (means[:, at] / means[:, scale]).mean(axis=1)
    if average == "ratio_of_means":
        return means[:, at].mean(axis=1) / means[:, scale].mean(axis=1)
    raise ValueError(f"average={average!r} is unknown; known: 'ratio_of_means', 'mean_of_ratios'")


# --- orderings: paired t tests ---------------------------------------------------------------------------------------


def ordering(study, check, context):
    """Left at most right (at least, with `higher_is_better`), by paired one-sided t tests; see the module's rules.

    Options: `strict`; `ties_suffice` (the claim is that there is no difference in favour of the right side);
    `tolerated` with `within`: so many values of one key may be violated.
    """
    pairs = _pairs(study, check, context)
    values = pairs.panel.values
    sign = -1.0 if check.get("higher_is_better") else 1.0
    average = check.get("average", "ratio_of_means")
    means = column_statistics(values)[0][None]
    # The denominators are data of their own and the same on both sides; here they only set the scale.
    weights = [_weights(means[0, at], average) for at in pairs.scale or [[]] * len(pairs.left)]
    differences = np.column_stack(
        [
            ((values[:, a] - values[:, b]) * weight).mean(axis=1) * sign
            for a, b, weight in zip(pairs.left, pairs.right, weights, strict=True)
        ]
    )
    tests = paired_tests(differences)
    left, right = (_sides(means, side, pairs.scale, average)[0] for side in (pairs.left, pairs.right))
    violation, support = holm(tests["p_greater"]), holm(tests["p_less"])
    outcome = np.select(
        [tests["seeds"] < MIN_SEEDS, violation <= LEVEL, support <= LEVEL], ["few seeds", "violated", "kept"], "tied"
    )
    evidence = pairs.keys.assign(
        left_mean=left,
        right_mean=right,
        difference=sign * tests["difference"],
        half_width=tests["half_width"],
        seeds=tests["seeds"],
        p_violated=violation,
        p_kept=support,
        outcome=outcome,
    )
    return _judge_ordering(evidence, tests["difference"].to_numpy(), check, pairs)


def _weights(denominators, average):
    """What the difference on each data set is multiplied by before the mean over data sets is taken."""
    if not denominators.size:
        return 1.0
    return 1 / (denominators if average == "mean_of_ratios" else denominators.mean())


def _judge_ordering(evidence, toward_violation, check, pairs):
    counts = {name: int((evidence["outcome"] == name).sum()) for name in ("kept", "tied", "violated", "few seeds")}
    enough = evidence["outcome"] != "few seeds"
    seeds = int(evidence.loc[enough, "seeds"].min()) if enough.any() else int(evidence["seeds"].max())
    broken = counts["violated"] > 0
    leaning = (evidence["outcome"] == "tied").to_numpy() & (toward_violation > 0)
    if "within" in check and broken:
        violated = evidence[evidence["outcome"] == "violated"]
        others = [name for name in check["over"] if name != check["within"]]
        broken = violated.groupby(others)[check["within"]].nunique().max() > check["tolerated"]
    if not enough.any():
        verdict = INCONCLUSIVE
    elif broken:
        verdict = FAILS
    elif check.get("strict"):
        verdict = HOLDS if counts["kept"] == enough.sum() else INCONCLUSIVE
    elif not check.get("ties_suffice") and not 0 < counts["kept"] >= leaning.sum():
        verdict = INCONCLUSIVE
    else:
        verdict = HOLDS
    lacking = pairs.lacking
    if counts["few seeds"] and enough.any():
        few = f"{counts['few seeds']} comparisons have fewer than {MIN_SEEDS} paired seeds"
        lacking = "; ".join(filter(None, [lacking, few]))
    numbers = _ordering_numbers(evidence, toward_violation, leaning, counts, check)
    return Finding(verdict, numbers + _too_few(seeds), len(evidence), seeds, lacking, evidence)


def _ordering_numbers(evidence, toward_violation, leaning, counts, check):
    """Say how many comparisons are kept, which is violated most, and how much a tie could hide."""
    text = (
        f"{counts['kept']} kept, {counts['tied']} tied, {counts['violated']} violated of {len(evidence)} comparisons."
    )
    right = np.abs(evidence["right_mean"].to_numpy())
    relative = toward_violation / right
    violated, tied = ((evidence["outcome"] == name).to_numpy() for name in ("violated", "tied"))
    if violated.any():
        worst = np.where(violated, relative, -np.inf).argmax()
        text += f" Violated most: {_where(evidence, worst)} by {_percent(relative[worst])}"
        text += f"; violated in: {_spread(evidence[violated], check)}." if check["over"] else "."
    elif leaning.any():
        worst = np.where(leaning, relative, -np.inf).argmax()
        text += (
            f" {leaning.sum()} ties lean the other way, most {_where(evidence, worst)} by {_percent(relative[worst])}."
        )
    if tied.any():
        widest = (evidence["half_width"].to_numpy()[tied] / right[tied]).max()
        text += f" Widest interval of a tied difference: ±{_percent(widest)} of the right-hand mean."
    return text


def _spread(violated, check):
    """Name what is violated by its first key, with counts."""
    first = next(iter(check["over"]))
    return ", ".join(f"{value} ({count})" for value, count in violated[first].value_counts(sort=False).items())


def _where(evidence, position):
    line = evidence.iloc[position]
    names = evidence.columns[: list(evidence.columns).index("left")]
    where = ", ".join(f"{name} {line[name]}" for name in names)
    return f"{where} ({line['left']} against {line['right']})".strip()


def _percent(value):
    return f"{100 * value:.3g} %"


def _too_few(seeds):
    return f" Only {seeds} seeds: at least {MIN_SEEDS} are needed for a verdict." if seeds < MIN_SEEDS else ""


# --- predicates on means: paired bootstrap ---------------------------------------------------------------------------


def _ratios(study, check, context):
    """Resampled ratios left / right per comparison.

    Without `right` the left side itself (its mean relative to `relative_to`); with `best_of` the smallest right-hand
    side divides, chosen anew in every resample.

    Returns
    -------
    tuple
        Comparisons (DataFrame), ndarray of shape (repeats + 1, comparisons), seeds, what is lacking.
    """
    pairs = _pairs(study, check, context)
    weights = resampling_weights(len(pairs.panel.seeds))
    means = resampled_means(pairs.panel, weights)
    average = check.get("average", "ratio_of_means")
    left, right = (_sides(means, side, pairs.scale, average) for side in (pairs.left, pairs.right))
    keys = pairs.keys
    if "right" not in check:
        right = np.ones_like(left)
    if "best_of" in check:
        names = [*check["over"], "left"]
        groups = list(keys.groupby(names, sort=False).indices.values())
        left = np.column_stack([left[:, at[0]] for at in groups])
        right = np.column_stack([right[:, at].min(axis=1) for at in groups])
        keys = keys.iloc[[at[0] for at in groups]].assign(right="best of all").reset_index(drop=True)
    return keys, left / right, pairs.seeds, pairs.lacking


def _sides(means, side, scale, average):
    """One column per comparison: `_scaled` of every line of means."""
    scale = scale or [[]] * len(side)
    return np.column_stack([_scaled(means, at, by, average) for at, by in zip(side, scale, strict=True)])


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
            else f"true in {_percent(share[0])} of resamples."
        )
    else:
        joint = truth.any(axis=1) if quantifier == "some" else truth.mean(axis=1) > 0.5
        level = joint[1:].mean()
        verdict = INCONCLUSIVE
        if joint[0] and level >= 1 - LEVEL:
            verdict = HOLDS
        elif not joint[0] and level <= LEVEL and not (quantifier == "some" and lacking):
            verdict = FAILS
        counted = (
            f"true for {truth[0].sum()} of {len(keys)} parts; “{quantifier}” true in {_percent(level)} of resamples."
        )
    if seeds < MIN_SEEDS:
        verdict = INCONCLUSIVE
    text = f"{numbers} {counted}{_too_few(seeds)}"
    return Finding(verdict, text[0].upper() + text[1:], len(keys), seeds, lacking, evidence)


def bound(study, check, context):
    """Check the ratio left / right against `at_most`, `at_least`, `below`, `above`, for `all` or `some` comparisons."""
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    truth = _within(ratios, check)
    low, high = percentile_interval(ratios)
    evidence = keys.assign(ratio=ratios[0], low=low, high=high)
    numbers = f"Ratio between {_place(keys, ratios[0], np.argmin)} and {_place(keys, ratios[0], np.argmax)}"
    numbers += f" (asked: {_rule(check)});" if len(keys) > 1 else ""
    if len(keys) == 1:
        numbers = f"Ratio {ratios[0, 0]:.4g} [{low[0]:.4g}, {high[0]:.4g}] (asked: {_rule(check)});"
    return decide(truth, keys, seeds, numbers, lacking, evidence, check.get("quantifier", "all"))


def _within(values, check):
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


def _rule(check):
    signs = {"at_least": "≥", "above": ">", "at_most": "≤", "below": "<"}
    return " and ".join(f"{sign} {check[name]:g}" for name, sign in signs.items() if name in check)


def _place(keys, values, pick):
    at = int(pick(values))
    names = [name for name in keys.columns if name not in ("left", "right")]
    where = ", ".join(f"{name} {keys.iloc[at][name]}" for name in names)
    return f"{values[at]:.4g} ({where}{', ' if where else ''}{keys.iloc[at]['left']})"


def trend(study, check, context):
    """Check that the ratio left / right rises or falls along a key.

    Per group of the other keys: Spearman's correlation in `direction` above `above` or at least `at_least`, and with
    `ends` the last value beyond the first. `quantifier` over the groups: all (default) or most.
    """
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    along = check["along"]
    sign = 1.0 if check["direction"] == "rising" else -1.0
    names = [name for name in keys.columns if name not in (along, "right")]
    truth, lines = [], []
    for group, inside in keys.groupby(names, sort=False):
        at = inside.index.to_numpy()
        at = at[np.argsort(keys[along].to_numpy()[at])]
        if at.size < 3:
            lacking = "; ".join(
                filter(None, [lacking, f"{_plain_group(names, group)}: only {at.size} values of {along}"])
            )
            continue
        values = ratios[:, at]
        correlation = sign * rank_correlation(keys[along].to_numpy(dtype=float)[at], values)
        true = _within(correlation, check)
        if check.get("ends"):
            true &= sign * (values[:, -1] - values[:, 0]) > 0
        truth.append(true)
        lines.append(
            dict(zip(names, group, strict=True))
            | {
                "correlation": sign * correlation[0],
                "first": values[0, 0],
                "last": values[0, -1],
                "values": at.size,
            }
        )
    if not truth:
        raise Absent(f"a trend along {along} needs at least three stored values of it")
    evidence = pd.DataFrame(lines)
    direct = sign * evidence["correlation"].to_numpy()
    numbers = f"Spearman along {along} between {sign * direct.min():.3g} and {sign * direct.max():.3g}"
    if len(evidence) == 1:
        numbers = f"Spearman along {along} {evidence['correlation'][0]:.3g}"
    sharp = "at_least" not in check
    asked = sign * check["above" if sharp else "at_least"]
    numbers += f" (asked: {('>' if sharp else '≥') if sign > 0 else ('<' if sharp else '≤')} {asked + 0:g});"
    numbers += (
        f" mean ratio from {evidence['first'].mean():.4g} at the first to {evidence['last'].mean():.4g} at the last;"
    )
    return decide(np.column_stack(truth), evidence, seeds, numbers, lacking, evidence, check.get("quantifier", "all"))


def _plain_group(names, group):
    return ", ".join(f"{name} {value}" for name, value in zip(names, group, strict=True))


def ends(study, check, context):
    """Check that the ratio left / right, averaged over the other keys, is higher or lower at the end of `along`.

    Only groups that have both ends count. `first` and `last` name the ends; the outermost stored values stand in for
    them where they are absent, and the verdict is then partial.
    """
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    along = check["along"]
    values = keys[along].to_numpy(dtype=float)
    first, last = values.min(), values.max()
    if first == last:
        raise Absent(f"only one value of {along} is stored")
    others = [name for name in check["over"] if name != along]
    groups = keys[others].astype(str).agg("|".join, axis=1) if others else pd.Series("", index=keys.index)
    both = set(groups[values == first]) & set(groups[values == last])
    if not both:
        raise Absent(f"no group has both {along} = {first:g} and {along} = {last:g}")
    inside = groups.isin(both).to_numpy()
    low = ratios[:, inside & (values == first)].mean(axis=1)
    high = ratios[:, inside & (values == last)].mean(axis=1)
    sign = 1.0 if check["direction"] == "rising" else -1.0
    if (first, last) != (check["first"], check["last"]):
        lacking = "; ".join(filter(None, [lacking, f"ends are {along} = {first:g} and {last:g}"]))
    evidence = pd.DataFrame({along: [first, last], "ratio": [low[0], high[0]], "groups": len(both)})
    numbers = f"Mean ratio {low[0]:.4g} at {along} = {first:g}, {high[0]:.4g} at {along} = {last:g};"
    finding = decide((sign * (high - low) > 0)[:, None], evidence.iloc[:1], seeds, numbers, lacking, evidence.iloc[:1])
    return replace(finding, evidence=evidence)


def largest_gain(study, check, context):
    """Check that the largest reduction 1 - left / right over all comparisons lies in [`at_least`, `at_most`]."""
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    gains = 1 - ratios
    largest = gains.max(axis=1)
    (low,), (high,) = percentile_interval(largest[:, None])
    evidence = keys.assign(gain=gains[0]).sort_values("gain", ascending=False, ignore_index=True)
    at = int(gains[0].argmax())
    where = ", ".join(f"{name} {keys.iloc[at][name]}" for name in check["over"])
    interval = f"[{_percent(low)}, {_percent(high)}]"
    numbers = f"Largest reduction {_percent(largest[0])} {interval} at {where} (asked: {_rule(check)});"
    one = evidence.iloc[:1]
    found = decide(_within(largest, check)[:, None], one, seeds, numbers, lacking, one)
    if lacking and found.verdict == FAILS and largest[0] < check["at_least"]:
        found = replace(found, verdict=INCONCLUSIVE, numbers=f"{found.numbers} The absent part may hold a larger one.")
    return replace(found, evidence=evidence)


def best_value(study, check, context):
    """Check that the key value with the smallest ratio left / right lies in [`at_least`, `at_most`]."""
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    along = keys[check["along"]].to_numpy(dtype=float)
    best = along[ratios.argmin(axis=1)]
    evidence = keys.assign(ratio=ratios[0], best_in_resamples=[(best[1:] == value).mean() for value in along])
    numbers = f"Smallest at {check['along']} = {best[0]:g} (ratio {ratios[0].min():.4g}; asked: {_rule(check)});"
    one = evidence.iloc[:1]
    return replace(decide(_within(best, check)[:, None], one, seeds, numbers, lacking, one), evidence=evidence)


def crossing(study, check, context):
    """Check that the first left method comes within `level` of the right one no later than the others do.

    `left` lists the method in question first, then its rivals; for each `over` group but epsilon. Other `levels` are
    reported beside the verdict.
    """
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    groups = [name for name in check["over"] if name != "epsilon"]
    reached = {level: _first_epsilon(keys, ratios, level, groups) for level in (check["level"], *check["other_levels"])}
    mine = _label(check["left"][0])
    truth, lines, others = [], [], {}
    for level, found in reached.items():
        members = sorted({group for group, _ in found})
        earliest = [
            found[group, mine]
            <= np.min([at for (name, left), at in found.items() if name == group and left != mine], axis=0)
            for group in members
            if (group, mine) in found and any(name == group and left != mine for name, left in found)
        ]
        others[level] = sum(bool(true[0]) for true in earliest), len(earliest)
        if level == check["level"]:
            truth = earliest
            lines = [
                dict(zip(groups, group, strict=True))
                | {left: found[name, left][0] for name, left in found if name == group}
                for group in members
            ]
    evidence = pd.DataFrame(lines)
    numbers = "; ".join(
        f"within {_percent(level)}: first or level in {count} of {total}" for level, (count, total) in others.items()
    )
    return decide(np.column_stack(truth), evidence, seeds, numbers.capitalize() + ";", lacking, evidence)


def _first_epsilon(keys, ratios, level, groups):
    """Smallest epsilon at which a ratio is at most 1 + level, per group and method, under each resample."""
    found = {}
    for name, at in keys.groupby([*groups, "left"], sort=False).indices.items():
        at = at[np.argsort(keys["epsilon"].to_numpy(dtype=float)[at])]
        epsilon = keys["epsilon"].to_numpy(dtype=float)[at]
        near = ratios[:, at] <= 1 + level
        found[tuple(name[:-1]), name[-1]] = np.where(near.any(axis=1), epsilon[near.argmax(axis=1)], np.inf)
    return found


def contrast(study, check, context):
    """Check that the smallest reduction 1 - left / right inside `group` is above the median of all comparisons."""
    keys, ratios, seeds, lacking = _ratios(study, check, context)
    gains = 1 - ratios
    inside = keys["dataset"].isin(check["group"]).to_numpy()
    if not inside.any():
        raise Absent(f"no stored rows of {', '.join(check['group'])}")
    if inside.sum() < len(check["group"]):
        lacking = "; ".join(filter(None, [lacking, f"of {', '.join(check['group'])} only {inside.sum()} at hand"]))
    smallest, median = gains[:, inside].min(axis=1), np.median(gains, axis=1)
    evidence = keys.assign(gain=gains[0], in_group=inside).sort_values("gain", ascending=False, ignore_index=True)
    numbers = f"Smallest reduction in the group {_percent(smallest[0])}, median of all {_percent(median[0])};"
    one = evidence.iloc[:1]
    return replace(decide((smallest > median)[:, None], one, seeds, numbers, lacking, one), evidence=evidence)


# --- counts and printed numbers --------------------------------------------------------------------------------------


def exact(evidence, numbers, lacking="", agreed="agrees"):
    """Turn a table with a truth column into a finding: holds if every line agrees, fails otherwise."""
    if not len(evidence):
        raise Absent(numbers)
    wrong = evidence[~evidence[agreed].astype(bool)]
    text = f"{len(evidence) - len(wrong)} of {len(evidence)} agree. {numbers}"
    if len(wrong):
        shown = wrong.iloc[0].to_dict()
        text += (
            " First that does not: "
            + ", ".join(f"{name} {value}" for name, value in shown.items() if name != agreed)
            + "."
        )
    return Finding(FAILS if len(wrong) else HOLDS, text.strip(), len(evidence), None, lacking, evidence)


def sizes(study, check, context):
    """Compare N, d and k of the stored data sets with the printed ones (`expected`: data set to [N, d, k])."""
    stored = study.cells.drop_duplicates("dataset").set_index("dataset")[["n", "d", "k"]]
    lines = [
        {
            "dataset": name,
            "printed": str(tuple(size)),
            "stored": str(tuple(int(v) for v in stored.loc[name])),
            "agrees": tuple(stored.loc[name]) == tuple(size),
        }
        for name, size in check["expected"].items()
        if name in stored.index
    ]
    absent = [name for name in check["expected"] if name not in stored.index]
    lacking = f"no stored rows of {', '.join(absent)}" if absent else ""
    return exact(pd.DataFrame(lines), lacking or "Compared: N, d, k.", lacking)


def grid_count(study, check, context):
    """Count the combinations of `keys` and the data sets of a sweep against `combinations` and `datasets`.

    A thinned profile plans fewer; that says nothing about the generator, so it is inconclusive.
    """
    cells = study.cells[study.cells["sweep"] == check["sweep"]]
    planned = set(cells["dataset"]) | set(context.missing.loc[context.missing["sweep"] == check["sweep"], "dataset"])
    if not planned:
        raise Absent(context.why([check["sweep"]]))
    combinations = len(cells[check["keys"]].drop_duplicates())
    numbers = f"{combinations} combinations stored, {len(planned)} data sets planned"
    numbers += f" (printed: {check['combinations']} and {check['datasets']})."
    if len(planned) < check["datasets"]:
        return Finding(INCONCLUSIVE, numbers, 1, None, "the profile plans a part of the grid only")
    complete = combinations == check["combinations"] and len(planned) == check["datasets"]
    part = combinations < check["combinations"] and len(planned) == check["datasets"]
    lacking = f"{check['combinations'] - combinations} combinations without stored rows" if part else ""
    return Finding(HOLDS if complete else INCONCLUSIVE if part else FAILS, numbers, 1, None, lacking)


def quoted(study, check, context):
    """Check numbers that the paper itself quotes from elsewhere; nothing is measured here."""
    lines = [
        {
            "quantity": part["quantity"],
            "largest": max(part["values"]),
            "asked_at_least": part["at_least"],
            "agrees": max(part["values"]) >= part["at_least"],
        }
        for part in check["parts"]
    ]
    return exact(pd.DataFrame(lines), "Quoted numbers only, nothing measured here.")


def not_run(study, check, context):
    """Give the recorded reason why a claim is not evaluated here."""
    return Finding(NOT_RUN, check["reason"])


EVALUATORS = {
    "ordering": ordering,
    "bound": bound,
    "trend": trend,
    "ends": ends,
    "largest_gain": largest_gain,
    "best_value": best_value,
    "crossing": crossing,
    "contrast": contrast,
    "sizes": sizes,
    "grid_count": grid_count,
    "quoted": quoted,
    "not_run": not_run,
}


def overview(verdicts):
    """One line per claim, for the verdict table and as CSV.

    Returns
    -------
    DataFrame
        `id`, `section`, `statement`, `kind`, `basis`, `verdict`, `partial`, `comparisons`, `seeds`, `numbers`,
        `lacking`, `reported`.
    """
    return pd.DataFrame(
        [
            {
                "id": verdict.claim["id"],
                "section": verdict.claim["section"],
                "statement": verdict.claim["statement"],
                "kind": verdict.claim["kind"],
                "basis": verdict.claim["basis"],
                "verdict": verdict.finding.verdict,
                "partial": verdict.partial,
                "comparisons": verdict.finding.comparisons,
                "seeds": verdict.finding.seeds,
                "numbers": verdict.finding.numbers,
                "lacking": verdict.finding.lacking,
                "reported": verdict.claim.get("reported", ""),
            }
            for verdict in verdicts
        ]
    )
