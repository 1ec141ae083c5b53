"""The audit of a method: its views, its verdicts, and the report of both.

An audit can refute a claim, and it never proves one. It says *violated* where a run has shown that
a release costs more than was charged, *consistent* where it had the power to see a fault and saw
none, and *no power here* where nothing could have been seen.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from scipy import stats
from sklearn.base import clone

from pkm.audit.pairs import KINDS, Pair, blobs, mutated, pairs
from pkm.audit.replay import RecordingStreams, Replay, replay, traced
from pkm.audit.residuals import ALARM, LawTest, law_tests
from pkm.methods import PrivateKMeans
from pkm.privacy import Adjacency, BudgetExceeded

VIOLATED = "violated"
CONSISTENT = "consistent"
NO_POWER = "no power here"

VIEWS = ("replay", "residuals", "blackbox")
TOLERANCE = 1e-9  # relative: of sums of floats
# A query whose realized cost never comes near its charge was not put to the test.
MIN_TIGHTNESS = 0.5
# Budgets that are tried in turn: small ones make schedules short, large ones trees deep.
EPSILONS = (1.0, 0.5, 4.0, 100.0)
RHOS = (None, 0.5, 1e-3)  # half-widths; None is the method's
# Smallest and largest number of records: small where a single one shows most, larger where cohorts
# need users or regions that are released must pass a threshold.
SIZES = {
    Adjacency.LOCAL: (200, 400),
    Adjacency.RHO_BOUNDED: (20, 3000),
}
SMALL_SIZES = (4, 60)
CLIMBS = 40  # steps of the search for worse pairs, from the worst that were found
OVERSPENDING = "F-26"  # the registered flaw of a method that spends more than it declares
RESIDUAL_RUNS = 60
RESIDUAL_POINTS = 400


@dataclass(frozen=True)
class Finding:
    """One thing that an audit saw and that a sound method does not do.

    Attributes
    ----------
    view : str
    label : str
        Of the release, or "run".
    flaw : str
        Id in the register of flaws that the charge names; empty where none is known.
    message : str
    """

    view: str
    label: str
    flaw: str
    message: str


@dataclass(frozen=True)
class AuditReport:
    """Outcome of an audit.

    Attributes
    ----------
    method, variant : str
    adjacency : str
    flaws : tuple of str
        That the claim declares.
    verdicts : mapping of str to str
        By view: "violated", "consistent" or "no power here".
    tightness : mapping of str to float
        By release: largest cost that a pair realized over what was charged for it.
    findings : tuple of Finding
    n_pairs : int
        That were replayed.
    tests : tuple of LawTest
    lower_bound : float or None
        Epsilon that the black-box view has refuted everything below of, at the ledger's delta, with
        95 % confidence, from released centers; None where it was not tried.
    transcript_bound : float or None
        The same from all releases of a run; None where it was not tried or has no formula.
    epsilon : float
        That the black-box runs spent, by the ledger.
    query_verdicts : mapping of str to str
        Of the replay, by release.
    n_runs : int
        Of the black-box view, on either data set.
    """

    method: str
    variant: str
    adjacency: str
    flaws: tuple[str, ...]
    verdicts: Mapping[str, str]
    tightness: Mapping[str, float]
    findings: tuple[Finding, ...]
    n_pairs: int = 0
    tests: tuple[LawTest, ...] = ()
    lower_bound: float | None = None
    transcript_bound: float | None = None
    epsilon: float = math.nan
    query_verdicts: Mapping[str, str] = field(default_factory=dict)
    n_runs: int = 0

    @property
    def unregistered(self) -> tuple[Finding, ...]:
        """Findings that no declared flaw explains."""
        return tuple(found for found in self.findings if not found.flaw)


def audit(
    method: Any,
    views: Sequence[str] = ("replay", "residuals"),
    *,
    n_pairs: int = 60,
    n_runs: int = 2000,
    seed: int = 0,
) -> AuditReport:
    """Attack a method.

    Parameters
    ----------
    method : pkm.methods.PrivateKMeans
        Claiming privacy.
    views : sequence of {"replay", "residuals", "blackbox"}
    n_pairs : int, default=60
        Pairs of neighbors that are replayed.
    n_runs : int, default=2000
        Of the black-box view, on either data set.
    seed : int, default=0
        Of the audit: data sets and noise.

    Returns
    -------
    AuditReport

    Raises
    ------
    ValueError
        If the method claims no privacy, or an argument is out of range; nothing was run then.

    Examples
    --------
    >>> from pkm.methods import SuLloyd
    >>> report = audit(SuLloyd(3), n_pairs=8)
    >>> report.verdicts["replay"], report.tightness["sums_and_counts"] <= 1.0
    ('consistent', True)
    """
    unknown = [view for view in views if view not in VIEWS]
    if unknown or not views:
        raise ValueError(f"view={','.join(unknown)!r} is unknown, choose of {', '.join(VIEWS)}")
    if n_pairs < 1:
        raise ValueError(f"pairs={n_pairs} must be at least 1")
    if n_runs < 100:
        raise ValueError(f"runs={n_runs} must be at least 100: fewer have no power")
    claim = method.claim
    name = type(method).__name__
    if not claim.private:
        raise ValueError(f"{name} ({method.variant}) claims no privacy: there is nothing to audit")

    verdicts: dict[str, str] = {}
    findings: list[Finding] = []
    tightness: dict[str, float] = {}
    tests: list[LawTest] = []
    lower_bound = None
    transcript_bound = None
    epsilon = math.nan
    if "replay" in views:
        tightness, found = replay_view(method, n_pairs, seed)
        findings += found
        verdicts["replay"] = _verdict(found, any(t >= MIN_TIGHTNESS for t in tightness.values()))
    if "residuals" in views:
        tests = residual_view(method, seed)
        found = [
            Finding("residuals", test.label, "", f"{test.what}: p = {test.p_value:.2g}")
            for test in tests
            if test.alarm
        ]
        findings += found
        verdicts["residuals"] = _verdict(found, any(not test.powerless for test in tests))
    if "blackbox" in views:
        from pkm.audit.blackbox import blackbox_view

        bound = blackbox_view(method, n_runs, seed)
        lower_bound = bound.epsilon
        transcript_bound = bound.transcript
        epsilon = bound.claimed
        found = []
        if bound.violated:
            message = f"epsilon is at least {bound.largest:.3g}, the ledger says {epsilon:.3g}"
            found = [Finding("blackbox", "run", ",".join(claim.flaws), message)]
        findings += found
        verdicts["blackbox"] = _verdict(found, bound.largest > 0)
    return AuditReport(
        name,
        method.variant,
        str(claim.adjacency),
        tuple(claim.flaws),
        verdicts,
        tightness,
        tuple(findings),
        n_pairs if "replay" in views else 0,
        tuple(tests),
        lower_bound,
        transcript_bound,
        epsilon,
        {label: _query_verdict(label, t, findings) for label, t in tightness.items()},
        n_runs if "blackbox" in views else 0,
    )


def _verdict(findings: Sequence[Finding], has_power: bool) -> str:
    if findings:
        return VIOLATED
    return CONSISTENT if has_power else NO_POWER


def _query_verdict(label: str, ratio: float, findings: Sequence[Finding]) -> str:
    """Verdict of the replay on the releases of one label."""
    found = [each for each in findings if (each.view, each.label) == ("replay", label)]
    return _verdict(found, ratio >= MIN_TIGHTNESS)


def configured(method: Any, **parameters: object) -> Any:
    """Copy a method with the parameters that it has of those given."""
    known = method.get_params()
    chosen = {name: value for name, value in parameters.items() if name in known}
    return cast(Any, clone(method)).set_params(**chosen)


# Replay


def replay_view(method: Any, n_pairs: int, seed: int) -> tuple[dict[str, float], list[Finding]]:
    """Replay pairs of neighbors; then climb from the worst pairs to worse ones.

    Returns
    -------
    tightness : dict of str to float
        By label.
    findings : list of Finding
        At most one for each label.
    """
    adjacency = Adjacency(method.claim.adjacency)
    tightness: dict[str, float] = {}
    findings: dict[str, Finding] = {}
    outcomes: list[Replay] = []
    worst: dict[str, tuple[float, Any, Pair, int]] = {}  # by kind of the data

    def tried(variation: Any, pair: Pair, number: int) -> float:
        outcome = replay(variation, pair, number)
        outcomes.append(outcome)
        _note(outcome, pair, tightness, findings)
        _note_overspending(outcome, variation, pair, findings)
        ratios = [each.ratio for each in outcome.realized if math.isfinite(each.ratio)]
        return max(ratios, default=0.0)

    sizes = SIZES.get(adjacency, SMALL_SIZES)
    for number, variation in enumerate(variations(method, n_pairs)):
        rho = rho_of(variation)
        (pair,) = pairs(adjacency, 1, (seed, number), n_points=sizes, rho=rho, first=number)
        ratio = tried(variation, pair, number)
        if pair.name not in worst or ratio > worst[pair.name][0]:
            worst[pair.name] = (ratio, variation, pair, number)
    _note_impossible(outcomes, findings)

    # Search for worse ones from the worst of each kind: the pair or the noise is changed.
    rng = np.random.default_rng((seed, n_pairs))
    kinds = list(worst)
    for step in range(min(CLIMBS, n_pairs)):
        kind = kinds[step % len(kinds)]
        ratio, variation, pair, number = worst[kind]
        if rng.random() < 0.5:
            pair = mutated(pair, rng, rho_of(variation))
        else:
            number = n_pairs + step
        found = tried(variation, pair, number)
        if found > ratio:
            worst[kind] = (found, variation, pair, number)

    refusals = [outcome.refusal for outcome in outcomes]
    if all(refusals) and not findings:
        raise ValueError(f"{type(method).__name__} fails on every pair: {refusals[0]!r}")
    return tightness, list(findings.values())


def variations(method: Any, number: int) -> list[Any]:
    """The method with budgets, distances and numbers of clusters in turn."""
    changed = []
    for i in range(number):
        parameters: dict[str, object] = {
            "epsilon": EPSILONS[(i + i // len(KINDS)) % len(EPSILONS)],  # all, for every kind
            "n_clusters": 2 + i % 3,
        }
        rho = RHOS[i // len(EPSILONS) % len(RHOS)]
        if rho is not None:
            parameters["rho"] = rho
        changed.append(configured(method, **parameters))
    return changed


def rho_of(method: Any) -> float | None:
    """Distance of rho-bounded adjacency, in half-widths of one feature."""
    if Adjacency(method.claim.adjacency) is not Adjacency.RHO_BOUNDED:
        return None
    return method.budget(SMALL_SIZES[1], 1).rho


def _note(
    outcome: Replay, pair: Pair, tightness: dict[str, float], findings: dict[str, Finding]
) -> None:
    """Write down what a pair has shown."""
    if outcome.divergence:
        message = f"{pair.name}: {outcome.divergence}"
        findings.setdefault("run", Finding("replay", "run", "", message))
    for each in outcome.realized:
        tightness[each.label] = max(tightness.get(each.label, 0.0), each.ratio)
        if each.ratio > 1 + TOLERANCE:
            message = (
                f"{pair.name}: realized {_spelled(each.cost)}, charged {_spelled(each.charged)}"
            )
            # The worst pair is reported, and one that no registered flaw explains before others.
            known = findings.get(each.label)
            is_worst = each.ratio >= tightness[each.label]
            is_new = known is None or (known.flaw and not each.flaw)
            if is_new or (is_worst and known is not None and known.flaw == each.flaw):
                findings[each.label] = Finding("replay", each.label, each.flaw, message)

    if len(outcome.groups) > 1:
        message = f"{pair.name}: one record is in {len(outcome.groups)} groups charged as disjoint"
        findings.setdefault("groups", Finding("replay", "groups", "", message))


def _note_impossible(outcomes: Sequence[Replay], findings: dict[str, Finding]) -> None:
    """Write down transcripts that neighbors cannot have: more of them than delta allows."""
    n_impossible = sum(math.isinf(outcome.loss) for outcome in outcomes)
    expected = math.fsum(outcome.delta for outcome in outcomes)
    if n_impossible and stats.poisson.sf(n_impossible - 1, expected) < ALARM:
        message = (
            f"{n_impossible} of {len(outcomes)} transcripts are impossible on the neighbor; the "
            f"deltas charged allow {expected:.2g}"
        )
        findings["delta"] = Finding("replay", "delta", "", message)


def _note_overspending(
    outcome: Replay, method: Any, pair: Pair, findings: dict[str, Finding]
) -> None:
    """Write down a run that spends more than its method claims, whatever its own budget says."""
    if isinstance(outcome.refusal, BudgetExceeded):
        message = f"is stopped by its ledger: {outcome.refusal}"
        findings.setdefault("budget", Finding("replay", "budget", "", message))
    n, d = pair.rows.shape
    budget = method.budget(n, d)
    claimed = PrivateKMeans.resolved_delta(method, n)
    messages = []
    if outcome.spent > method.epsilon * (1 + 1e-6):
        messages.append(f"spends epsilon={outcome.spent:.4g}, claims {method.epsilon:.4g}")
    if budget.delta > claimed * (1 + 1e-6):
        messages.append(f"spends delta={budget.delta:.4g}, claims {claimed:.4g}")
    for message in messages:
        flaw = OVERSPENDING if OVERSPENDING in method.claim.flaws else ""
        findings.setdefault("budget", Finding("replay", "budget", flaw, message))


def _spelled(cost: Any) -> str:
    parts = [f"{name}={value:.4g}" for name, value in cost._asdict().items() if value]
    return " ".join(parts) or "nothing"


# Residuals


def residual_view(method: Any, seed: int) -> list[LawTest]:
    """Test the noise of many runs against its declared law."""
    adjacency = Adjacency(method.claim.adjacency)
    n = RESIDUAL_POINTS * (5 if adjacency is Adjacency.LOCAL else 1)
    d = 3
    rng = np.random.default_rng((seed, 1))
    rows, _ = blobs(rng, n, d)
    pair = Pair("blobs", rows, 0, None, np.array([[-1.0] * d, [1.0] * d]))
    try:
        runs = [
            traced(method, pair.points, batch, pair.domain, RecordingStreams).draws
            for batch in _batches(method, seed)
        ]
    except BudgetExceeded:  # which the replay reports
        return []
    except Exception as error:  # a method of somebody else may fail in any way
        raise ValueError(f"{type(method).__name__} fails on {n} points: {error!r}") from error
    return law_tests(runs, seed)


def _batches(method: Any, seed: int) -> list[list[int]]:
    """Seeds of the runs: in two batches where a method runs in batches."""
    seeds = [1_000_000 * (seed + 1) + i for i in range(RESIDUAL_RUNS)]
    size = RESIDUAL_RUNS // 2 if method.batched else 1
    return [seeds[start : start + size] for start in range(0, RESIDUAL_RUNS, size)]
