"""The audit of a method: its views, its verdicts, and the report of both.

A view of an audit is one kind of attack: the replay (:mod:`pkm.audit.replay`), the
residuals (:mod:`pkm.audit.residuals`) or the black box (:mod:`pkm.audit.blackbox`). The
`view` of a privacy claim is another thing: what an attacker is assumed to see.

An audit can refute a claim, and it never proves one. It says *violated* where a run has
shown that a release costs more than was charged. It says *consistent* where it had the
power to see a fault and saw none. It says *no power here* where it could have seen
nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from scipy import stats
from sklearn.base import clone

from pkm.audit.pairs import (
    PAIR_GENERATORS,
    Pair,
    add_missing,
    add_persons,
    draw_blobs,
    draw_pair,
    draw_pairs,
    move_record,
    perturb,
)
from pkm.audit.replay import Draw, Replay, replay, trace_run
from pkm.audit.residuals import MAX_P_VALUE, LawTest, run_law_tests
from pkm.methods import PrivateKMeans, load_method
from pkm.privacy import Adjacency, BudgetExceeded
from pkm.privacy.query import ONE_RECORD_ADJACENCIES

N_CLUSTERS = 3  # of a method that is loaded by its name
VIEWS = ("replay", "residuals", "blackbox")
MIN_RUNS = 100  # of the black-box view: fewer have no power
TOLERANCE = 1e-9  # relative: of sums of floats
DECLARED_TOLERANCE = 1e-6  # relative: of what a method spends
# A query whose realized cost never comes near its charge was not put to the test.
MIN_TIGHTNESS = 0.5
# Budgets that are tried in turn: small ones make schedules short, large ones trees
# deep.
EPSILONS = (1.0, 0.5, 4.0, 100.0)
RHOS = (None, 0.5, 1e-3)  # half-widths; None is the method's
# Smallest and largest number of records. A single record shows most where there are
# few. Cohorts need users, and regions that are released must pass a threshold.
SIZES = {
    Adjacency.LOCAL: (200, 400),
    Adjacency.RHO_BOUNDED: (20, 3000),
}
SMALL_SIZES = (4, 60)
#: Fits of each pair with other noise, for methods that are fast.
N_SEEDS = 4
LARGE_SIZES = (100, 300)  # of one pair in ten
#: Pairs after which kinds of data, numbers of records and of features repeat.
CYCLE = 20 * len(PAIR_GENERATORS)
ACCOUNT_EVERY = 4  # one fit in four charges an account
# Shares of the configurations of a method that have a zoom, a report, secure noise,
# another delta, and another value of a parameter.
ZOOM_SHARE = 0.25
REPORT_SHARE = 0.25
SECURE_SHARE = 0.1
DELTA_SHARE = 0.2
PARAMETER_SHARE = 0.15
#: The registered flaw of a method that spends more than it declares.
OVERSPENDING = "F-26"
#: Parameters that are not drawn by their rules.
UNVARIED = (
    "n_clusters",
    "max_clusters",
    "bounds",
    "clip",
    "random_state",
    "epsilon",
    "delta",
    "variant",
    "rho",
    "secure",
    "zoom",
    "require_zoom",
    "report",
    "adjacency",
    "missing",
)
RESIDUAL_RUNS = 60
#: Factor of the runs of a method that draws so little that these have no power.
MORE_RUNS = 4
RESIDUAL_POINTS = 400


@dataclass(frozen=True)
class Finding:
    """One thing that an audit saw and that a sound method does not do.

    Attributes
    ----------
    view : str
        One of `VIEWS`.
    label : str
        Of the release, or "run".
    flaw : str
        Id of the registered flaw that the charge names; empty where it names none.
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
        The black-box view has refuted every epsilon below, at the ledger's delta, with
        95 % confidence, from released centers; None where it was not tried.
    transcript_bound : float or None
        The same from all releases of a run; None where it was not tried or has no
        formula.
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
        return tuple(finding for finding in self.findings if not finding.flaw)


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
        If the method claims no privacy, or an argument is out of range; nothing was run
        then.

    Examples
    --------
    >>> from pkm.methods import SuLloyd
    >>> report = audit(SuLloyd(3), n_pairs=8)
    >>> report.verdicts["replay"], report.tightness["sums_and_counts"] <= 1.0
    ('consistent', True)
    """
    unknown = [view for view in views if view not in VIEWS]
    if unknown or not views:
        raise ValueError(
            f"view={','.join(unknown)!r} is unknown, choose of {', '.join(VIEWS)}"
        )
    if n_pairs < 1:
        raise ValueError(f"pairs={n_pairs} must be at least 1")
    if n_runs < MIN_RUNS:
        raise ValueError(
            f"runs={n_runs} must be at least {MIN_RUNS}: fewer have no power"
        )
    claim = method.claim
    name = type(method).__name__
    if not claim.private:
        raise ValueError(
            f"{name} ({method.variant}) claims no privacy: there is nothing to audit"
        )

    findings: dict[str, list[Finding]] = {}
    has_power: dict[str, bool] = {}
    tightness: dict[str, float] = {}
    details: dict[str, Any] = {}
    if "replay" in views:
        tightness, findings["replay"] = replay_pairs(method, n_pairs, seed)
        has_power["replay"] = max(tightness.values(), default=0.0) >= MIN_TIGHTNESS
        details["n_pairs"] = n_pairs
        violated = {finding.label for finding in findings["replay"]}
        details["query_verdicts"] = {
            label: _judge(label in violated, ratio >= MIN_TIGHTNESS)
            for label, ratio in tightness.items()
        }
    if "residuals" in views:
        tests = check_residuals(method, seed)
        findings["residuals"] = [
            Finding("residuals", test.label, "", f"{test.what}: p = {test.p_value:.2g}")
            for test in tests
            if test.is_refuted
        ]
        has_power["residuals"] = any(not test.powerless for test in tests)
        details["tests"] = tuple(tests)
    if "blackbox" in views:
        from pkm.audit.blackbox import bound_epsilon

        bound = bound_epsilon(method, n_runs, seed)
        findings["blackbox"] = []
        if bound.violated:
            message = (
                f"epsilon is at least {bound.largest:.3g}, the ledger says "
                f"{bound.spent:.3g}"
            )
            finding = Finding("blackbox", "run", ",".join(claim.flaws), message)
            findings["blackbox"].append(finding)
        has_power["blackbox"] = bound.largest > 0
        details["lower_bound"] = bound.epsilon
        details["transcript_bound"] = bound.transcript
        details["epsilon"] = bound.spent
        details["n_runs"] = n_runs
    return AuditReport(
        name,
        method.variant,
        str(claim.adjacency),
        tuple(claim.flaws),
        {view: _judge(bool(findings[view]), has_power[view]) for view in findings},
        tightness,
        tuple(finding for view in findings.values() for finding in view),
        **details,
    )


def _judge(is_violated: bool, has_power: bool) -> str:
    if is_violated:
        return "violated"
    return "consistent" if has_power else "no power here"


def configure(method: Any, **parameters: object) -> Any:
    """Copy a method, and change those of some parameters that it has."""
    known = method.get_params()
    chosen = {name: value for name, value in parameters.items() if name in known}
    return cast(Any, clone(method)).set_params(**chosen)


def load_method_class(target: str) -> type[PrivateKMeans]:
    """Load a class by its name; refuse one that declares no claims.

    Raises
    ------
    ValueError
        If there is none of that name, or it is no method.
    """
    method_class = load_method(target)
    if not hasattr(method_class, "claims"):
        raise ValueError(f"{target} is no method: it declares no `claims`")
    return method_class


def load_variants(target: str | type) -> list[Any]:
    """Build every variant of a method that claims privacy, with default parameters.

    Parameters
    ----------
    target : str or type
        Class name, import path, entry point, or the class itself.

    Raises
    ------
    ValueError
        If it is no method, claims no privacy, or does not build.
    """
    method_class = load_method_class(target) if isinstance(target, str) else target
    name = method_class.__name__
    claims: Mapping[str, Any] = method_class.claims
    variants = [variant for variant, claim in claims.items() if claim.private]
    if not variants:
        raise ValueError(f"{name} claims no privacy: there is nothing to audit")
    try:
        method = method_class(n_clusters=N_CLUSTERS)
        return [configure(method, variant=variant) for variant in variants]
    except Exception as error:  # a method of somebody else may fail in any way
        call = f"{name}(n_clusters={N_CLUSTERS})"
        raise ValueError(f"{call} does not build: {error}") from error


# Replay


def replay_pairs(
    method: Any,
    n_pairs: int,
    seed: int,
) -> tuple[dict[str, float], list[Finding]]:
    """Replay pairs of neighbors; then as many that are changed from the worst ones.

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
    replays: list[Replay] = []
    worst: dict[str, tuple[Any, Pair, int, Replay]] = {}  # by name of the pair

    def try_pair(
        configuration: Any,
        pair: Pair,
        number: int,
        forced: Sequence[Draw] | None = None,
    ) -> None:
        with_account = number % ACCOUNT_EVERY == 0
        result = replay(
            configuration, pair, number, with_account=with_account, forced=forced
        )
        # Draws can be large: those of the worst pairs are kept alone.
        replays.append(replace(result, partitions=(), draws=()))
        _add_costs(result, pair, tightness, findings)
        _add_overspending(result, configuration, pair, findings)
        known = worst.get(pair.name)
        if known is None or result.ratio > known[-1].ratio:
            worst[pair.name] = (configuration, pair, number, result)

    sizes = SIZES.get(adjacency, SMALL_SIZES)
    # Audits of few pairs and several seeds have the kinds of pairs of one long audit.
    first = seed * n_pairs % CYCLE
    configurations = list_configurations(method, n_pairs, first)
    for number, configuration in enumerate(configurations, first):
        rho = get_rho(configuration)
        is_large = number % 10 == 9 and adjacency not in SIZES
        (pair,) = draw_pairs(
            adjacency,
            1,
            (seed, number),
            n_points=LARGE_SIZES if is_large else sizes,
            rho=rho,
            first=number,
        )
        rng = np.random.default_rng((seed, number, 2))
        configuration = draw_parameters(configuration, pair.rows.shape, rng)
        if number % 3 == 1 and serves_weights(configuration, pair):
            pair = add_persons(pair, rng)
        if number % 6 == 5 and adjacency in ONE_RECORD_ADJACENCIES:
            pair = add_missing(pair, rng)
            configuration = draw_missing(configuration, rng)
        for repetition in range(N_SEEDS if method.batched else 1):
            try_pair(configuration, pair, number + repetition * n_pairs)
    _add_impossible(replays, findings)

    # Search for worse pairs from the worst of each name: change the pair or the noise.
    rng = np.random.default_rng((seed, n_pairs))
    names = list(worst)
    for step in range(n_pairs):
        configuration, pair, number, result = worst[names[step % len(names)]]
        change = rng.random()
        forced = None
        if change < 0.5:
            rho = get_rho(configuration)
            pair = move_record(pair, result.partitions, rng, rho)
            forced = result.draws or None
        elif change < 0.75:
            pair = perturb(pair, rng, get_rho(configuration))
        else:
            number = first + N_SEEDS * n_pairs + step
        try_pair(configuration, pair, number, forced)

    refusals = [result.refusal for result in replays]
    if all(refusals) and not findings:
        # Without a schedule, fits with an account or a zoom fail in any case.
        others = [
            error for error in refusals if not isinstance(error, NotImplementedError)
        ]
        reason = (others or refusals)[0]
        raise ValueError(f"{type(method).__name__} fails on every pair: {reason!r}")
    return tightness, list(findings.values())


def serves_weights(method: Any, pair: Pair) -> bool:
    """Tell whether a method takes the rows of a pair with persons and weights."""
    try:
        return not method.find_unweighted(*pair.rows.shape)
    except (ValueError, NotImplementedError, AttributeError):
        # The budget is too small, there is no schedule, or it is no method of this
        # project.
        return False


def list_configurations(method: Any, number: int, first: int = 0) -> list[Any]:
    """Copy a method with budgets, distances and numbers of clusters in turn."""
    configurations = []
    for i in range(first, first + number):
        # Each generator of pairs meets each epsilon.
        epsilon = EPSILONS[(i + i // len(PAIR_GENERATORS)) % len(EPSILONS)]
        parameters: dict[str, object] = {"epsilon": epsilon}
        if method.n_clusters != "auto":
            parameters["n_clusters"] = 2 + i % 3
        rho = RHOS[i // len(EPSILONS) % len(RHOS)]
        if rho is not None:
            parameters["rho"] = rho
        configurations.append(configure(method, **parameters))
    return configurations


def draw_parameters(
    method: Any, shape: tuple[int, ...], rng: np.random.Generator
) -> Any:
    """Copy a method with some other parameters, by their rules.

    A value that the method refuses for points of that shape is left out.
    """
    drawn: dict[str, dict[str, Any]] = {}
    is_one_record = method.claim.adjacency in ONE_RECORD_ADJACENCIES
    if is_one_record and rng.random() < ZOOM_SHARE:
        # Few records need a large budget for a zoom.
        share = float(rng.choice([0.1, 0.3]))
        drawn["zoom"] = {"zoom": share, "epsilon": max(EPSILONS)}
    if rng.random() < SECURE_SHARE:
        drawn["secure"] = {"secure": True}
    if rng.random() < DELTA_SHARE:
        drawn["delta"] = {"delta": float(rng.choice([1e-6, 1e-2]))}
    for name, rule in sorted(method.constraints.items()):
        if rule is None or name in UNVARIED:
            continue
        if rng.random() < PARAMETER_SHARE:
            drawn[name] = {name: rule.draw(rng)}
    # From a generator of its own: pairs do not follow from whether there is a report.
    (report_rng,) = rng.spawn(1)
    if is_one_record and report_rng.random() < REPORT_SHARE:
        drawn["report"] = {"report": float(report_rng.choice([0.1, 0.3]))}
    for parameters in drawn.values():
        changed = configure(method, **parameters)
        try:
            changed.check_parameters(shape[0])
            changed.budget(*shape)
        except ValueError:
            continue
        method = changed
    return method


def draw_missing(method: Any, rng: np.random.Generator) -> Any:
    """Copy a method with a treatment of missing entries; without one they are null."""
    rule = method.constraints.get("missing")
    if rule is None:
        return method
    return configure(method, missing=rule.second.draw(rng))


def get_rho(method: Any) -> float | None:
    """Get the distance of rho-bounded adjacency, in half-widths of one feature."""
    return method.budget(SMALL_SIZES[1], 1).rho


def _add_costs(
    result: Replay,
    pair: Pair,
    tightness: dict[str, float],
    findings: dict[str, Finding],
) -> None:
    """Write down what a pair has shown."""

    def note(label: str, message: str, flaw: str = "") -> Finding:
        return Finding("replay", label, flaw, f"{pair.name}: {message}")

    if result.mismatch:
        findings.setdefault("run", note("run", result.mismatch))
    for release in result.realized:
        label = release.label
        tightness[label] = max(tightness.get(label, 0.0), release.ratio)
        if release.ratio <= 1 + TOLERANCE:
            continue
        # The worst pair is reported, and one that no registered flaw explains before
        # others.
        known = findings.get(label)
        is_new = known is None or (known.flaw and not release.flaw)
        is_worst = release.ratio >= tightness[label]
        if is_new or (is_worst and known is not None and known.flaw == release.flaw):
            realized = format_cost(release.cost)
            message = f"realized {realized}, charged {format_cost(release.charged)}"
            findings[label] = note(label, message, release.flaw)

    n_groups = len(result.groups)
    if n_groups > 1:
        message = f"one record is in {n_groups} groups charged as disjoint"
        findings.setdefault("groups", note("groups", message))


def _add_impossible(replays: Sequence[Replay], findings: dict[str, Finding]) -> None:
    """Write down transcripts that neighbors cannot have: more than delta allows."""
    n_impossible = sum(math.isinf(result.loss) for result in replays)
    expected = math.fsum(result.delta for result in replays)
    if n_impossible and stats.poisson.sf(n_impossible - 1, expected) < MAX_P_VALUE:
        message = (
            f"{n_impossible} of {len(replays)} transcripts are impossible on the "
            f"neighbor; the deltas charged allow {expected:.2g}"
        )
        findings["delta"] = Finding("replay", "delta", "", message)


def _add_overspending(
    result: Replay,
    method: Any,
    pair: Pair,
    findings: dict[str, Finding],
) -> None:
    """Write down a run that spends more than its method claims."""
    flaw = OVERSPENDING if OVERSPENDING in method.claim.flaws else ""

    def note(message: str, flaw: str = "") -> None:
        findings.setdefault("budget", Finding("replay", "budget", flaw, message))

    if isinstance(result.refusal, BudgetExceeded):
        note(f"is stopped by its ledger: {result.refusal}")
    n, d = pair.rows.shape
    delta = method.budget(n, d).delta
    claimed_delta = PrivateKMeans.resolved_delta(method, n)
    if delta > claimed_delta * (1 + DECLARED_TOLERANCE):
        note(f"spends delta={delta:.4g}, claims {claimed_delta:.4g}")
    epsilon = method.epsilon
    if result.spent > epsilon * (1 + DECLARED_TOLERANCE):
        note(f"spends epsilon={result.spent:.4g}, claims {epsilon:.4g}", flaw)


def format_cost(cost: Any) -> str:
    """Write the parts of a cost that are not zero."""
    terms = [f"{name}={value:.4g}" for name, value in cost._asdict().items() if value]
    return " ".join(terms) or "nothing"


# Residuals


def check_residuals(method: Any, seed: int) -> list[LawTest]:
    """Test the noise of many runs against its declared law.

    Half of the runs draw from seeds. The others draw from the operating system, by the
    samplers that ``fit`` uses without a seed.
    """
    tests = _test_noise(method, seed, RESIDUAL_RUNS)
    if tests and all(test.powerless and not test.is_refuted for test in tests):
        tests = _test_noise(method, seed, MORE_RUNS * RESIDUAL_RUNS)
    return tests


def _test_noise(
    method: Any,
    seed: int,
    n_runs: int,
) -> list[LawTest]:
    adjacency = Adjacency(method.claim.adjacency)
    n = RESIDUAL_POINTS * (5 if adjacency is Adjacency.LOCAL else 1)
    rng = np.random.default_rng((seed, 1))
    pair = draw_pair(draw_blobs, Adjacency.ZERO_OUT, rng, n, 3)
    seeds = [1_000_000 * (seed + 1) + i for i in range(n_runs)]
    # Two batches, where a method runs in batches.
    is_batch = method.batched and not method.hides_n
    size = n_runs // 2 if is_batch else 1
    tests = []
    for secure in (False, True):
        sampled = configure(method, secure=secure)
        try:
            runs = [
                trace_run(sampled, pair.points, seeds[i : i + size], pair.domain).draws
                for i in range(0, n_runs, size)
            ]
        except BudgetExceeded:  # which the replay reports
            return []
        except Exception as error:  # a method of somebody else may fail in any way
            raise ValueError(
                f"{type(method).__name__} fails on {n} points: {error!r}"
            ) from error
        tests += run_law_tests(runs, seed)
    return tests
