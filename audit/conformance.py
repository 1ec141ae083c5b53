"""Conformance suite for methods: ``pkm check package.Class``.

The suite runs a method on small generated data and checks the contract of
:class:`pkm.methods.PrivateKMeans`. It checks the methods and attributes of an
estimator, the refusal of bad input, the ledger, and determinism. Batches must equal
runs of one seed at a time. On neighbors, releases must cost no more than was charged
for them. All methods of this package pass it.
"""

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from pkm.arguments import Parser
from pkm.audit.report import (
    N_CLUSTERS,
    configure,
    load_method_class,
    replay_pairs,
)
from pkm.compute import exact_limit
from pkm.compute.storage.blocks import Blocks
from pkm.methods.base import PrivateKMeans
from pkm.methods.fitting import RepeatableNoiseWarning, Run
from pkm.privacy import SCALE, BudgetExceeded, Charge, Ledger, gdp_epsilon, snap
from pkm.privacy.base import PointsLike
from pkm.privacy.query import ONE_RECORD_ADJACENCIES
from pkm.row_blocks import RowBlocks

N_POINTS = 600
N_FEATURES = 3
BOUNDS = (-1, 1)
SEEDS = (3, 1, 4)
N_PAIRS = 16  # two of each kind
# What runs a method: it decides what reaches the private points, and what is charged.
RUNNERS = ("fit", "fit_batch", "fit_with", "fit_predict", "planned_run")


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    Attributes
    ----------
    check, variant : str
    error : str or None
        None where it passed.
    """

    check: str
    variant: str
    error: str | None


def _draw_points() -> np.ndarray:
    """Draw three Gaussian blobs inside [-1, 1]^3, shape (600, 3), float64."""
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
    points = snap(_draw_points()) if points is None else points
    return method.fit_batch(points, seeds, secure=False)


def _assert_equal(actual: np.ndarray, expected: np.ndarray, case: str) -> None:
    """Compare centers bit for bit."""
    assert actual.shape == expected.shape, (
        f"{case}: shapes {actual.shape} and {expected.shape} differ"
    )
    n_different = (actual != expected).sum()
    assert not n_different, (
        f"{case}: centers differ in {n_different} of {actual.size} coordinates"
    )


def _require_ledger(run: Run) -> Ledger:
    assert run.ledger is not None, "a private method must have a ledger"
    return run.ledger


def check_estimator(method: PrivateKMeans) -> None:
    """Clone, fit and predict work, and no exact labels are stored."""
    points = _draw_points()
    fitted = configure(method, random_state=5).fit(points)
    centers = fitted.cluster_centers_
    assert centers.ndim == 2 and centers.shape[1] == N_FEATURES, (
        f"cluster_centers_ must have shape (k, {N_FEATURES}), got {centers.shape}"
    )
    assert np.isfinite(centers).all(), "cluster_centers_ must be finite"
    assert fitted.predict(points).shape == (N_POINTS,), (
        "predict must give one label per row"
    )
    assert not hasattr(fitted, "labels_"), "labels_ are exact and must not be stored"
    assert configure(fitted).get_params() == fitted.get_params(), (
        "clone must keep all parameters"
    )


def check_shapes(method: PrivateKMeans) -> None:
    """A batch has k grid centers per seed, filled up with copies of the first."""
    run = _run(method)
    assert run.centers.ndim == 3, (
        f"centers must have shape (replicate, cluster, {N_FEATURES}), got "
        f"{run.centers.shape}"
    )
    assert run.centers.dtype == np.int64, (
        f"centers must be int64 on the grid, got {run.centers.dtype}"
    )
    assert run.centers.shape[0] == len(SEEDS) and run.centers.shape[2] == N_FEATURES, (
        f"centers must have shape ({len(SEEDS)}, k, {N_FEATURES}), got "
        f"{run.centers.shape}"
    )
    assert run.seeds == SEEDS, (
        f"seeds must be those of the call, {SEEDS}, got {run.seeds}"
    )
    assert run.n_iter >= 0, f"n_iter={run.n_iter} must not be negative"
    for centers, n in zip(run.centers, run.n_centers, strict=True):
        assert 1 <= n <= len(centers) and (centers[n:] == centers[0]).all(), (
            f"n_centers={n} must be from 1 to {len(centers)}, then copies of the first "
            "center"
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
    reverse = _run(method, SEEDS[::-1])
    _assert_equal(batch.centers[::-1], reverse.centers, "seeds in reverse")


def check_order_and_shards(method: PrivateKMeans) -> None:
    """Private results depend neither on how points are split nor on their order.

    In the local model every user has a source of randomness: results may depend on the
    order.
    """
    if not method.claim.private:
        return
    points = snap(_draw_points())
    cases: dict[str, Any] = {
        "three shards": [points[:100], points[100:101], points[101:]],
    }
    if method.claim.trust != "local":
        rng = np.random.default_rng(1)
        cases["shuffled points"] = rng.permutation(points)
    if method.supports_chunks:
        d = points.shape[1]
        blocks = np.array_split(points / SCALE, 7)
        rows = RowBlocks(len(points), d, lambda: iter(blocks))
        read_anew = Blocks.quantize(rows, -np.ones(d), np.ones(d))
        cases["blocks that are read anew"] = read_anew
    whole = _run(method).centers
    for case, other in cases.items():
        _assert_equal(whole, _run(method, points=other).centers, case)


def check_schedule(method: PrivateKMeans) -> None:
    """Releases are those of the schedule, which an account is charged for."""
    if not method.claim.private:
        return
    try:
        planned = method.planned_run(N_POINTS, N_FEATURES, SEEDS[:1])
    except NotImplementedError:
        return  # it can be run without an account
    ledger = _require_ledger(_run(method, SEEDS[:1]))
    labels = [charge.label for charge in ledger.charges]
    assert labels == [charge.label for charge in planned.schedule], (
        "releases must be those of the schedule"
    )
    for planned_charge, charge in zip(planned.schedule, ledger.charges, strict=True):
        assert planned_charge.matches(charge), (
            f"{charge.label} of {_format_charge(charge)} must be what the schedule "
            f"says, {_format_charge(planned_charge)}"
        )


def _format_charge(charge: Charge) -> str:
    """Write a charge's round, noise and costs that are not zero."""
    costs = {name: getattr(charge, name) for name in ("mu", "epsilon", "delta")}
    terms = [f"{name}={value:.4g}" for name, value in costs.items() if value]
    return " ".join([f"round {charge.round}", charge.mechanism, *terms])


def check_ledger(method: PrivateKMeans) -> None:
    """A private method charges its releases, within its budget.

    Other methods have no ledger.
    """
    run = _run(method)
    if not method.claim.private:
        assert run.ledger is None, "a method without a claim must not have a ledger"
        return
    ledger = _require_ledger(run)
    assert ledger.charges, "a private method must charge what it releases"

    # The releases are within the budget, and the budget within epsilon.
    assert ledger.spent() <= ledger.budget.epsilon * (1 + 1e-9), (
        f"spent epsilon={ledger.spent()} must be at most the budget's "
        f"{ledger.budget.epsilon}"
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


def check_overspend_is_refused(method: PrivateKMeans) -> None:
    """A run that spends more than half of its budget cannot be charged twice."""
    if not method.claim.private:
        return
    ledger = _require_ledger(_run(method))
    if ledger.spent() <= method.epsilon / 2:
        return
    charges = ledger.charges
    n_charges = len(charges)
    again = [replace(charge, round=charge.round + n_charges) for charge in charges]
    try:
        ledger.charge(*again)
    except BudgetExceeded:
        return
    raise AssertionError("the ledger must refuse to charge every release twice")


def check_bad_input(method: PrivateKMeans) -> None:
    """Bad parameters and bad points are refused with a ValueError before any work."""
    without_rule = method.get_params().keys() - method.constraints.keys()
    assert not without_rule, (
        f"constraints lack {', '.join(sorted(without_rule))}: declare a rule on each, "
        "or None where check_parameters has it"
    )

    # Parameters out of their ranges.
    bad_values: dict[str, list[float]] = {"n_clusters": [0, N_POINTS + 1, 2.5]}
    if method.claim.private:
        bad_values["epsilon"] = [0, -1.0, math.inf]
    if "delta" in method.get_params():
        bad_values["delta"] = [0.0, 1.0]
    for name, values in bad_values.items():
        for value in values:
            invalid = configure(method, **{name: value})
            _assert_refused(f"{name}={value}", _run, invalid)

    # Points outside the bounds.
    points = _draw_points()
    unclipped = configure(method, clip=False)
    case = "points outside the bounds, clip=False"
    _assert_refused(case, unclipped.fit, 2 * points + 1)
    off_domain = snap(points) * 3
    _assert_refused("grid points off the domain", _run, method, SEEDS, off_domain)

    # Bounds that would have to be read off private points. Without a claim, points
    # that are not numbers.
    if method.claim.private:
        unbounded = configure(method, bounds=None)
        _assert_refused("a fit without bounds", unbounded.fit, points)
    else:
        for invalid_points in _insert_nonfinite():
            fit = configure(method).fit
            _assert_refused("a point with NaN or inf", fit, invalid_points)

    # Equal seeds, which would repeat a replicate.
    _assert_refused("equal seeds", _run, method, (1, 1))


def check_no_value_raises(method: PrivateKMeans) -> None:
    """No value of a record makes a private fit raise, which would release something."""
    if not method.claim.private:
        return
    models = [
        configure(method, random_state=5).fit(points) for points in _insert_nonfinite()
    ]
    if method.claim.adjacency in ONE_RECORD_ADJACENCIES:
        # Each of them is the null record.
        first = models[0].cluster_centers_
        for fitted in models[1:]:
            _assert_equal(fitted.cluster_centers_, first, "NaN and infinite values")


def _insert_nonfinite() -> list[np.ndarray]:
    """Draw the blobs with a value of one record that is NaN or infinite."""
    invalid_points = []
    for value in (math.nan, math.inf, -math.inf):
        points = _draw_points()
        points[7, 1] = value
        invalid_points.append(points)
    return invalid_points


def _assert_refused(
    case: str,
    function: Callable[..., object],
    *arguments: object,
) -> None:
    """Check that a call raises ValueError, with a message."""
    try:
        function(*arguments)
    except ValueError as error:
        assert str(error), f"{case} must be refused with a message"
        return
    except Exception as error:
        raise AssertionError(
            f"{case} must be refused with a ValueError, got {error!r}"
        ) from error
    raise AssertionError(f"{case} must be refused with a ValueError")


def check_degenerate_data(method: PrivateKMeans) -> None:
    """Degenerate points give centers on the grid.

    The data sets: identical points; as many points as clusters; points with one
    feature. The local model needs many users: each point has a hundred copies.
    """
    k = method.n_clusters
    copies = 100 if method.claim.trust == "local" else 1
    corner = np.full((5 * copies, 2), SCALE, np.int64)
    for points in (
        corner,
        corner[: k * copies],
        np.zeros((4 * copies, 1), np.int64),
        -corner,
    ):
        centers = _run(method, points=points).centers
        limit = exact_limit(points.shape[1])
        assert np.abs(centers).max() <= limit, (
            f"centers must be at most {limit} in size, got {np.abs(centers).max()}"
        )


def check_runs_as_declared(method: PrivateKMeans) -> None:
    """A private method does not replace what runs it, nor spend more than its claim."""
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
            f"delta={budget.delta} of the budget must be at most {delta}, what is "
            "claimed"
        )


def check_replay(method: PrivateKMeans) -> None:
    """Neighbors change exact answers alone, and by no more than was charged."""
    if not method.claim.private:
        return
    _, findings = replay_pairs(method, N_PAIRS, seed=0)
    for finding in findings:
        assert finding.flaw, f"{finding.label}: {finding.message}"


CHECKS = tuple(
    function
    for name, function in sorted(globals().items())
    if name.startswith("check_")
)


def conformance(
    method_class: type[PrivateKMeans],
    checks: Sequence[Callable[[PrivateKMeans], None]] = CHECKS,
) -> list[CheckResult]:
    """Run checks on every variant of a method.

    Parameters
    ----------
    method_class : type
    checks : sequence of callables, default=CHECKS
        By default all of them.

    Returns
    -------
    list of CheckResult
    """
    results = []
    for variant in method_class.claims:
        method = method_class(n_clusters=N_CLUSTERS, bounds=BOUNDS)
        results += run_checks(configure(method, variant=variant), checks)
    return results


def run_checks(
    method: PrivateKMeans,
    checks: Sequence[Callable[[PrivateKMeans], None]] = CHECKS,
) -> list[CheckResult]:
    """Run checks on a method with its parameters, bounds among them."""
    return [
        CheckResult(check.__name__, method.variant, _run_check(check, method))
        for check in checks
    ]


def _run_check(
    check: Callable[[PrivateKMeans], None], method: PrivateKMeans
) -> str | None:
    try:
        with warnings.catch_warnings():
            # Checks repeat noise on purpose, of few points.
            warnings.simplefilter("ignore", RepeatableNoiseWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            check(configure(method))
    except Exception as error:  # any exception of the method is the result of the check
        # pytest adds the values of a failed assertion in further lines.
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line per check.

    Returns
    -------
    int
        0 if all passed, 1 if one failed, 2 if there is no such method.
    """
    parser = Parser(
        prog="pkm check", description="Run the conformance suite on a method."
    )
    parser.add_argument(
        "method",
        help="class name, import path or entry point, such as pkm.methods.FastLloyd",
    )
    try:
        method_class = load_method_class(parser.parse_args(arguments).method)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    results = conformance(method_class)
    for result in results:
        verdict = "ok" if result.error is None else f"FAILED  {result.error}"
        print(f"{result.variant:10} {result.check:30} {verdict}")
    return int(any(result.error for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
