"""Conformance suite for methods: ``pkm check package.Class``.

The suite runs a method on small generated data and checks the contract of
:class:`pkm.methods.PrivateKMeans`: the methods and attributes of an estimator, refusal of bad
input, the ledger, determinism, batches that equal runs of one seed at a time, and that its releases
cost no more than was charged for them on neighbors. All methods of this package pass it.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from sklearn.base import clone

from pkm.arguments import Parser
from pkm.audit.report import replay_view
from pkm.compute import exact_limit
from pkm.compute.storage.blocks import Blocks
from pkm.methods import load_method
from pkm.methods.base import PrivateKMeans, RepeatableNoiseWarning, Run
from pkm.privacy import SCALE, BudgetExceeded, gdp_epsilon, snap
from pkm.privacy.base import PointsLike
from pkm.privacy.query import PRESENCE
from pkm.row_blocks import RowBlocks

N_POINTS = 600
N_FEATURES = 3
N_CLUSTERS = 3
BOUNDS = (-1, 1)
SEEDS = (3, 1, 4)
N_PAIRS = 16  # two of each kind
# What runs a method: it decides what reaches the private points, and what is charged.
RUNNERS = ("fit", "fit_batch", "fit_with", "fit_predict", "planned_run")


@dataclass(frozen=True)
class Outcome:
    """Result of one check; ``error`` is None where it passed."""

    check: str
    variant: str
    error: str | None


def _points() -> np.ndarray:
    """Three Gaussian blobs inside [-1, 1]^3, shape (600, 3), float64."""
    rng = np.random.default_rng(0)
    centers = np.array([[-0.5, -0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, -0.5]])
    labels = np.arange(N_POINTS) % 3
    noise = 0.1 * rng.standard_normal((N_POINTS, N_FEATURES))
    return np.clip(centers[labels] + noise, -1, 1)


def _run(
    method: PrivateKMeans,
    seeds: Sequence[int] = SEEDS,
    points: PointsLike | None = None,
) -> Run:
    """Run a method, by default on three blobs."""
    return method.fit_batch(snap(_points()) if points is None else points, seeds)


def _clone(method: PrivateKMeans, **parameters: object) -> PrivateKMeans:
    """Copy a method without its fitted attributes, with parameters changed."""
    return cast(PrivateKMeans, clone(method)).set_params(**parameters)


def _assert_equal(actual: np.ndarray, expected: np.ndarray, case: str) -> None:
    """Compare centers bit for bit."""
    assert actual.shape == expected.shape, (
        f"{case}: shapes {actual.shape} and {expected.shape} differ"
    )
    assert (actual == expected).all(), (
        f"{case}: centers differ in {(actual != expected).sum()} of {actual.size} coordinates"
    )


def check_estimator(method: PrivateKMeans) -> None:
    """Clone, fit and predict work; attributes are the documented ones, without exact labels."""
    points = _points()
    fitted = _clone(method, random_state=5).fit(points)
    centers = fitted.cluster_centers_
    assert centers.ndim == 2 and centers.shape[1] == N_FEATURES, (
        f"cluster_centers_ must have shape (k, {N_FEATURES}), got {centers.shape}"
    )
    assert np.isfinite(centers).all(), "cluster_centers_ must be finite"
    assert fitted.predict(points).shape == (N_POINTS,), "predict must give one label per row"
    assert not hasattr(fitted, "labels_"), "labels_ are exact and must not be stored"
    assert _clone(fitted).get_params() == fitted.get_params(), "clone must keep all parameters"


def check_shapes(method: PrivateKMeans) -> None:
    """A batch gives k grid centers per seed, copies of the first where a run has fewer."""
    run = _run(method)
    assert run.centers.dtype == np.int64, (
        f"centers must be int64 on the grid, got {run.centers.dtype}"
    )
    assert run.centers.shape[0] == len(SEEDS) and run.centers.shape[2] == N_FEATURES, (
        f"centers must have shape ({len(SEEDS)}, k, {N_FEATURES}), got {run.centers.shape}"
    )
    assert run.seeds == SEEDS, f"seeds must be those of the call, {SEEDS}, got {run.seeds}"
    assert run.n_iter >= 0, f"n_iter={run.n_iter} must not be negative"
    for centers, n in zip(run.centers, run.n_centers, strict=True):
        assert 1 <= n <= len(centers) and (centers[n:] == centers[0]).all(), (
            f"n_centers={n} must be from 1 to {len(centers)}, then copies of the first center"
        )


def check_determinism(method: PrivateKMeans) -> None:
    """The same seed gives the same bits."""
    _assert_equal(_run(method).centers, _run(method).centers, "same seeds twice")


def check_batch_is_loop(method: PrivateKMeans) -> None:
    """A replicate's result does not depend on the other replicates or their order."""
    batch = _run(method)
    for i, seed in enumerate(SEEDS):
        released = batch.centers[i, : batch.n_centers[i]]
        single = _run(method, (seed,)).centers[0]
        _assert_equal(released, single, f"seed {seed} alone and in a batch")
    _assert_equal(batch.centers[::-1], _run(method, SEEDS[::-1]).centers, "seeds in reverse")


def check_order_and_shards(method: PrivateKMeans) -> None:
    """Private results depend neither on how points are split nor on their order.

    In the local model every user has a source of randomness: results may depend on the order.
    """
    if not method.claim.private:
        return
    points = snap(_points())
    whole = _run(method).centers
    if method.claim.trust != "local":
        shuffled = np.random.default_rng(1).permutation(points)
        _assert_equal(whole, _run(method, points=shuffled).centers, "shuffled points")
    shards = [points[:100], points[100:101], points[101:]]
    _assert_equal(whole, _run(method, points=shards).centers, "three shards")
    if method.supports_chunks:
        rows = RowBlocks(
            len(points), points.shape[1], lambda: iter(np.array_split(points / SCALE, 7))
        )
        box = np.ones((1, points.shape[1])) * [[-1.0], [1.0]]
        blocks = Blocks.from_box(rows, box[0], box[1])
        _assert_equal(whole, _run(method, points=blocks).centers, "blocks that are read anew")


def check_ledger(method: PrivateKMeans) -> None:
    """A private method charges its releases, within its budget; other methods have no ledger."""
    ledger = _run(method).ledger
    if not method.claim.private:
        assert ledger is None, "a method without a claim must not have a ledger"
        return
    assert ledger is not None, "a private method must have a ledger"
    assert ledger.charges, "a private method must charge what it releases"

    # The releases are within the budget, and the budget within epsilon.
    assert ledger.spent() <= ledger.budget.epsilon * (1 + 1e-9), (
        f"spent epsilon={ledger.spent()} must be at most the budget's {ledger.budget.epsilon}"
    )
    declared = method.epsilon * (1 + 1e-9)
    assert ledger.budget.epsilon <= declared or method.claim.flaws, (
        "a budget above the parameter epsilon must be a declared flaw"
    )

    # The Gaussian charges alone, composed independently, are a lower bound of the cost.
    mu = math.sqrt(sum(charge.mu**2 for charge in ledger.charges))
    assert gdp_epsilon(mu, ledger.budget.delta) <= ledger.spent() * (1 + 1e-9), (
        "spent epsilon must be at least that of the Gaussian charges alone"
    )
    assert (method.claim.notion == "pure") == (ledger.budget.delta == 0), (
        f"delta={ledger.budget.delta} must be 0 for a pure claim, and only for one"
    )


def check_schedule(method: PrivateKMeans) -> None:
    """Releases are those of the schedule, which an account is charged for."""
    if not method.claim.private:
        return
    try:
        planned = method.planned_run(N_POINTS, N_FEATURES, SEEDS[:1])
    except NotImplementedError:
        return  # it can be run without an account
    ledger = _run(method, SEEDS[:1]).ledger
    assert ledger is not None, "a private method must have a ledger"
    assert [charge.label for charge in ledger.charges] == [
        charge.label for charge in planned.schedule
    ], "releases must be those of the schedule"
    for planned_charge, charge in zip(planned.schedule, ledger.charges, strict=True):
        assert planned_charge.costs_like(charge), (
            f"{charge.cost} must cost what the schedule says, {planned_charge.cost}"
        )


def check_overspend_is_refused(method: PrivateKMeans) -> None:
    """A run that spends more than half of its budget cannot be charged twice."""
    if not method.claim.private:
        return
    ledger = _run(method).ledger
    assert ledger is not None, "a private method must have a ledger"
    if ledger.spent() <= method.epsilon / 2:
        return
    charges = ledger.charges
    try:
        for charge in charges:
            ledger.charge(replace(charge, round=charge.round + len(charges)))
    except BudgetExceeded:
        return
    raise AssertionError("the ledger must refuse to charge every release twice")


def check_bad_input(method: PrivateKMeans) -> None:
    """Bad parameters and bad points are refused with a ValueError before any work."""
    # Parameters out of their ranges.
    bad_values: dict[str, list[float]] = {"n_clusters": [0, N_POINTS + 1, 2.5]}
    if method.claim.private:
        bad_values["epsilon"] = [0, -1.0, math.inf]
    if "delta" in method.get_params():
        bad_values["delta"] = [0.0, 1.0]
    for name, values in bad_values.items():
        for value in values:
            invalid = _clone(method, **{name: value})
            _assert_refused(lambda invalid=invalid: _run(invalid), f"{name}={value}")

    # Points that are not numbers, where no privacy is claimed; points outside the bounds.
    for points in [] if method.claim.private else _not_finite():
        _assert_refused(lambda points=points: _clone(method).fit(points), "a point with NaN or inf")
    _assert_refused(
        lambda: _clone(method, clip=False).fit(2 * _points() + 1),
        "points outside the bounds, clip=False",
    )
    _assert_refused(lambda: _run(method, points=snap(_points()) * 3), "grid points off the domain")

    # Bounds that would have to be read off the points.
    if method.claim.private:
        _assert_refused(lambda: _clone(method, bounds=None).fit(_points()), "a fit without bounds")

    # Equal seeds, which would repeat a replicate.
    _assert_refused(lambda: _run(method, seeds=(1, 1)), "equal seeds")


def check_no_value_raises(method: PrivateKMeans) -> None:
    """No value of one record makes a private fit raise: an exception would release something."""
    if not method.claim.private:
        return
    outcomes = [_clone(method, random_state=5).fit(points) for points in _not_finite()]
    if method.claim.adjacency in PRESENCE:
        # Each of them is the null record.
        first = outcomes[0].cluster_centers_
        for fitted in outcomes[1:]:
            _assert_equal(fitted.cluster_centers_, first, "NaN and infinite values")


def _not_finite() -> list[np.ndarray]:
    """The blobs with a value of one record that is NaN or infinite."""
    variants = [_points() for _ in range(3)]
    for points, value in zip(variants, (math.nan, math.inf, -math.inf), strict=True):
        points[7, 1] = value
    return variants


def _assert_refused(call: Callable[[], object], case: str) -> None:
    """Check that a call raises ValueError, with a message."""
    try:
        call()
    except ValueError as error:
        assert str(error), f"{case} must be refused with a message"
        return
    raise AssertionError(f"{case} must be refused with a ValueError")


def check_degenerate_data(method: PrivateKMeans) -> None:
    """Identical points, as many clusters as points, and one feature give centers on the grid.

    The local model needs many users: there are a hundred copies of each point.
    """
    k = method.n_clusters
    copies = 100 if method.claim.trust == "local" else 1
    corner = np.full((5 * copies, 2), SCALE, np.int64)
    for points in (corner, corner[: k * copies], np.zeros((4 * copies, 1), np.int64), -corner):
        centers = _run(method, points=points).centers
        limit = exact_limit(points.shape[1])
        assert np.abs(centers).max() <= limit, (
            f"centers must be at most {limit} in size, got {np.abs(centers).max()}"
        )


def check_runs_as_declared(method: PrivateKMeans) -> None:
    """A private method does not replace what runs it, and its budget is at most its claim."""
    if not method.claim.private:
        return
    for name in RUNNERS:
        assert getattr(type(method), name) is getattr(PrivateKMeans, name), (
            f"{name} is overridden: a method that claims privacy must leave it as it is"
        )
    for n_points in (N_POINTS, 20 * N_POINTS):
        budget = method.budget(n_points, N_FEATURES)
        assert budget is not None, "a method that claims privacy must have a budget"
        assert budget.adjacency == method.claim.adjacency, (
            f"adjacency={budget.adjacency} of the budget must be the claim's"
        )
        delta = PrivateKMeans.resolved_delta(method, n_points)
        assert budget.delta <= delta * (1 + 1e-9), (
            f"delta={budget.delta} of the budget must be at most {delta}, what is claimed"
        )


def check_replay(method: PrivateKMeans) -> None:
    """Neighbors change nothing but exact answers, and those by no more than was charged."""
    if not method.claim.private:
        return
    _, findings = replay_view(method, N_PAIRS, seed=0)
    for finding in findings:
        assert finding.flaw, f"{finding.label}: {finding.message}"


CHECKS = tuple(
    function for name, function in sorted(globals().items()) if name.startswith("check_")
)


def conformance(
    method_class: type[PrivateKMeans],
    checks: Sequence[Callable[[PrivateKMeans], None]] = CHECKS,
) -> list[Outcome]:
    """Run checks on every variant of a method.

    Parameters
    ----------
    method_class : type
    checks : sequence of callables, default=CHECKS
        By default all of them.

    Returns
    -------
    list of Outcome
    """
    outcomes = []
    for variant in method_class.claims:
        method = method_class(n_clusters=N_CLUSTERS, bounds=BOUNDS)
        if "variant" in method.get_params():
            method.set_params(variant=variant)
        for check in checks:
            outcomes.append(Outcome(check.__name__, variant, _error(check, method)))
    return outcomes


def _error(check: Callable[[PrivateKMeans], None], method: PrivateKMeans) -> str | None:
    try:
        with warnings.catch_warnings():
            # Checks repeat noise on purpose.
            warnings.simplefilter("ignore", RepeatableNoiseWarning)
            check(_clone(method))
    except Exception as error:  # any exception of the method is the result of the check
        return f"{type(error).__name__}: {error}"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line per check; the exit status is 1 if one failed, 2 if the method is not found."""
    description = "Run the conformance suite on a method."
    parser = Parser(prog="pkm check", description=description)
    parser.add_argument(
        "method",
        help="class name, import path or entry point, such as pkm.methods.FastLloyd",
    )
    try:
        method_class = load_method(parser.parse_args(arguments).method)
    except ValueError as error:
        print(error)
        return 2
    outcomes = conformance(method_class)
    for outcome in outcomes:
        verdict = "ok" if outcome.error is None else f"FAILED  {outcome.error}"
        print(f"{outcome.variant:10} {outcome.check:30} {verdict}")
    return int(any(outcome.error for outcome in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
