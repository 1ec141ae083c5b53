"""The audit for tests of other packages: methods, noise of other libraries, neighbors.

A check returns nothing, or raises an AssertionError that says in one line what was
found. The plugin of pytest (:mod:`pkm.pytest_plugin`) gives a test every private
variant of a method.

Examples
--------
>>> from pkm.methods import SuLloyd
>>> from pkm.testing import check_method
>>> check_method(SuLloyd(3), n_pairs=8)
"""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pkm.audit.blackbox import bound_by_rule
from pkm.audit.conformance import BOUNDS, CHECKS, check_replay, run_checks
from pkm.audit.replay import (
    Draw,
    RealizedCost,
    RecordingStreams,
    ReplayingStreams,
    ReplayMismatch,
    Trace,
    compare_traces,
    compose,
    observe,
)
from pkm.audit.report import TOLERANCE, audit, configure, format_cost, load_variants
from pkm.audit.residuals import MAX_P_VALUE, run_law_tests
from pkm.privacy import Budget, gdp_epsilon
from pkm.privacy.mechanisms.additive import Cost
from pkm.privacy.query import Sensitivity

__all__ = ["check_method", "check_neighbors", "check_noise", "load_variants"]

N_PAIRS = 24
N_CALLS = 8000  # so many show a scale that is wrong by a tenth
CALLS_PER_RELEASE = 8  # calls of noise that are tested as one release
MAX_CHARACTERS = 400  # of a message
#: Grid steps of a scale, where a library declares no grid.
FINE_STEPS = 2.0**20


def check_method(method: Any, *, n_pairs: int = N_PAIRS, seed: int = 0) -> None:
    """Check the contract of a method and attack it, as the two commands do.

    Parameters
    ----------
    method : pkm.methods.PrivateKMeans or its class
        The method with its parameters and variant, or those of its defaults.
    n_pairs : int, default=24
        Pairs of neighbors that are replayed.
    seed : int, default=0
        Seed of the audit.

    Raises
    ------
    AssertionError
        If a check fails, if the audit finds what no registered flaw explains, or if it
        could have found nothing.
    """
    method = method() if isinstance(method, type) else method
    name = f"{type(method).__name__} ({method.variant})"
    # The audit replays more pairs.
    checks = [check for check in CHECKS if check is not check_replay]
    for outcome in run_checks(configure(method, bounds=BOUNDS), checks):
        _require(not outcome.error, f"{name}: {outcome.check}: {outcome.error}")
    if not method.claim.private:
        return
    report = audit(method, n_pairs=n_pairs, seed=seed)
    for finding in report.unregistered:
        _require(False, f"{name}: {finding.view}: {finding.label}: {finding.message}")
    for view, verdict in report.verdicts.items():
        _require(verdict != "no power here", f"{name}: {view}: {verdict}")


def check_noise(
    randomise: Callable[[float], float],
    mechanism: Any,
    sensitivity: float,
    claimed: Budget,
    *,
    value: float = 0.0,
    step: float | None = None,
    n_calls: int = N_CALLS,
) -> None:
    """Check a function that adds noise to a number.

    Half of the calls add noise to a value, the others to that of a neighbor. Noise of
    the declared distribution, its law, must cost no more than is claimed. The noise
    must have that law, without correlations, repetitions or values off the grid. The
    outcomes, their last bits included, must not tell the two values apart better than
    claimed.

    Parameters
    ----------
    randomise : callable
        Function from a float to the float with noise.
    mechanism : pkm.privacy.Laplace or pkm.privacy.Gaussian
        The declared law, with its scale in units of the value.
    sensitivity : float
    claimed : Budget
        Claimed cost of one call.
    value : float, default=0.0
    step : float, optional
        Step of the declared grid: outcomes are multiples of it.
    n_calls : int, default=8000

    Raises
    ------
    AssertionError

    Examples
    --------
    >>> from pkm.privacy import Laplace
    >>> rng = np.random.default_rng(0)
    >>> def add_noise(value):
    ...     return rng.laplace(value, 2.0)
    >>> try:
    ...     check_noise(add_noise, Laplace(1.0), 1.0, Budget(1.0))
    ... except AssertionError as error:
    ...     print(error)
    noise of the value: law: p = 0
    """
    change = _bound_change(sensitivity)
    _check_claim(f"noise of scale={mechanism.scale:g}", mechanism.cost(change), claimed)

    # Law, correlations, repetitions, grid.
    unit = 1 / (step or mechanism.scale / FINE_STEPS)
    in_steps = change._replace(unit=unit)
    values = {"the value": value, "the neighbor's value": value + sensitivity}
    outcomes = {
        name: np.array([randomise(exact) for _ in range(n_calls // 2)], float)
        for name, exact in values.items()
    }

    def read_draw(name: str, start: int) -> Draw:
        outcome = outcomes[name][None, start : start + CALLS_PER_RELEASE] * unit
        if (outcome == np.rint(outcome)).all():
            outcome = outcome.astype(np.int64)
        exact = np.full(outcome.shape, values[name] * unit)
        return Draw(mechanism, (f"noise of {name}",), in_steps, exact, outcome)

    runs = (
        [read_draw(name, start) for name in values]
        for start in range(0, n_calls // 2, CALLS_PER_RELEASE)
    )
    for test in run_law_tests(runs, 0):
        is_wrong = test.is_refuted and (step or test.what != "grid")
        _require(not is_wrong, f"{test.label}: {test.what}: p = {test.p_value:.2g}")

    # Neighbors.
    scores = [np.column_stack([one, _last_bit(one)]) for one in outcomes.values()]
    bound = bound_by_rule(*scores, claimed.delta, claimed.epsilon, 1 - MAX_P_VALUE)
    _require(
        not bound.violated,
        f"outcomes tell {value:g} from {value + sensitivity:g}: epsilon is at least "
        f"{bound.epsilon:.3g}, {claimed.epsilon:g} is claimed",
    )


def check_neighbors(
    fit: Callable[[Any, Callable], Mapping[str, Any]],
    X: Any,
    neighbor_X: Any,
    claimed: Budget,
) -> None:
    """Run a function on neighbors, with the outcomes of its noise calls forced.

    The calls must be the same, with changes of their exact values that the declared
    sensitivities cover. Everything that is returned, warned of or printed must be
    equal.

    Parameters
    ----------
    fit : callable
        Function of data and of ``wrap(randomise, mechanism, sensitivity, label)``. That
        turns a function that adds noise into one whose calls are recorded. The
        mechanism is the declared law, in units of the value. ``fit`` returns what
        others see, by name.
    X, neighbor_X
        Data that `fit` takes.
    claimed : Budget
        Claimed cost of the whole run.

    Raises
    ------
    AssertionError

    Examples
    --------
    >>> from pkm.privacy import Laplace
    >>> def count(X, wrap):
    ...     noisy = wrap(lambda value: value, Laplace(2.0), 1.0, "count")
    ...     return {"count": noisy(len(X)), "mean": sum(X) / len(X)}
    >>> try:
    ...     check_neighbors(count, [1, 2, 3], [1, 2], Budget(0.5))
    ... except AssertionError as error:
    ...     print(str(error).partition(",")[0])
    mean differs although all releases are equal
    """
    recorded = _trace(fit, X)
    failure = recorded.observed.get("exception")
    _require(not failure, f"the function fails: {failure!r}")
    _require(recorded.draws, "the function makes no call of noise")
    try:
        replayed = _trace(fit, neighbor_X, recorded.draws)
        difference = compare_traces(recorded, replayed)
    except ReplayMismatch as error:
        difference = str(error)
    _require(not difference, difference)
    charges = []
    for draw, other in zip(recorded.draws, replayed.draws, strict=True):
        cost = draw.law.measure_cost(draw.values, other.values)
        charged = draw.mechanism.cost(draw.sensitivity)
        release = RealizedCost(draw.key[0], charged, cost)
        texts = [format_cost(terms) for terms in (cost, charged)]
        _require(
            release.ratio <= 1 + TOLERANCE,
            f"{release.label}: realized {texts[0]}, declared {texts[1]}",
        )
        charges += [charged] if any(cost) else []
    _check_claim("the calls that the record changes", compose(charges), claimed)


class _ForeignNoise:
    """A function of another library that adds noise, in place of noise streams."""

    public_seeds = ()
    secure = False

    def __init__(self, randomise: Callable) -> None:
        self._randomise = randomise

    def release(self, mechanism: Any, values: Any, *_: Any) -> Any:
        """Add noise to values."""
        return self._randomise(values)


def _trace(fit: Callable, X: Any, recorded: Sequence[Draw] | None = None) -> Trace:
    """Run a function, and record its noise and what others see of it."""
    trace = Trace()

    def wrap(
        randomise: Callable, mechanism: Any, sensitivity: float, label: str = "noise"
    ) -> Callable:
        streams: Any = _ForeignNoise(randomise)
        if recorded is None:
            streams = RecordingStreams(streams, trace)
        else:
            streams = ReplayingStreams(streams, trace, recorded)
        change = _bound_change(sensitivity)
        return lambda value: streams.release(mechanism, value, (label,), change)

    with observe(trace.observed):
        trace.observed |= fit(X, wrap)
    return trace


def _bound_change(sensitivity: float) -> Sensitivity:
    """Bound the change of one number."""
    return Sensitivity(sensitivity, sensitivity, sensitivity, 1)


def _last_bit(numbers: np.ndarray) -> np.ndarray:
    """Find the exponent of the last bit, plus 53, of each number that is not zero."""
    mantissas, exponents = np.frexp(numbers)
    integers = (mantissas * 2.0**53).astype(np.int64)
    lowest = np.maximum(integers & -integers, 1)
    return exponents + np.log2(lowest)


def _check_claim(what: str, cost: Cost, claimed: Budget) -> None:
    """Check that a cost is within a budget."""
    epsilon = cost.epsilon + gdp_epsilon(cost.mu, claimed.delta)
    _require(
        epsilon <= claimed.epsilon * (1 + TOLERANCE),
        f"{what}: epsilon={epsilon:.4g} is declared, {claimed.epsilon:g} is claimed",
    )


def _require(holds: object, message: str) -> None:
    """Raise an AssertionError of one line, also where Python leaves assertions out."""
    if not holds:
        raise AssertionError(textwrap.shorten(message, MAX_CHARACTERS))
