"""Conformance suite for methods: ``pkm check package.Class``.

The suite that this repository's own methods pass. It runs a method on small generated data and looks at what any user
relies on: the scikit-learn face, refusal of bad input, the ledger, determinism, and that a batch is a loop.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from pkm.methods import load_method
from pkm.methods.base import PrivateKMeans, Run
from pkm.privacy import SCALE, BudgetExceeded, gdp_epsilon, snap

N_POINTS, N_FEATURES, N_CLUSTERS = 600, 3, 3
SEEDS = (3, 1, 4)


@dataclass(frozen=True)
class Outcome:
    """Result of one check; ``error`` is None where it passed."""

    check: str
    variant: str
    error: str | None


def _points() -> np.ndarray:
    """Three blobs inside [-1, 1]^3."""
    rng = np.random.default_rng(0)
    centers = np.array([[-0.5, -0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, -0.5]])
    return np.clip(
        centers[np.arange(N_POINTS) % 3] + 0.1 * rng.standard_normal((N_POINTS, N_FEATURES)), -1, 1
    )


def _run(method: PrivateKMeans, seeds=SEEDS, points=None) -> Run:
    return method.fit_batch(snap(_points()) if points is None else points, seeds)


def _same(one: np.ndarray, other: np.ndarray, what: str) -> None:
    assert one.shape == other.shape, f"{what}: shapes {one.shape} and {other.shape} differ"
    assert (one == other).all(), (
        f"{what}: centers differ in {(one != other).sum()} of {one.size} coordinates"
    )


def check_estimator(method: PrivateKMeans) -> None:
    """It is a scikit-learn estimator: clone, fit, predict, and the promised attributes, no exact labels."""
    points = _points()
    fitted = clone(method).set_params(random_state=5).fit(points)
    centers = fitted.cluster_centers_
    assert centers.ndim == 2 and centers.shape[1] == N_FEATURES, (
        f"cluster_centers_ has shape {centers.shape}"
    )
    assert np.isfinite(centers).all(), "cluster_centers_ are not finite"
    assert fitted.predict(points).shape == (N_POINTS,), "predict must give one label per row"
    assert not hasattr(fitted, "labels_"), "labels_ are exact and must not be kept"
    assert clone(fitted).get_params() == fitted.get_params(), "clone must keep all parameters"


def check_shapes(method: PrivateKMeans) -> None:
    """A batch gives one set of grid centers per seed, filled up with copies of the first where one has fewer."""
    run = _run(method)
    assert run.centers.dtype == np.int64, (
        f"centers must be int64 on the grid, got {run.centers.dtype}"
    )
    assert run.centers.shape[0] == len(SEEDS) and run.centers.shape[2] == N_FEATURES, (
        f"shape {run.centers.shape}"
    )
    assert run.seeds == SEEDS and run.n_iter >= 0
    for centers, n in zip(run.centers, run.n_centers, strict=True):
        assert 1 <= n <= len(centers) and (centers[n:] == centers[0]).all(), (
            f"{n} of {len(centers)} centers released"
        )


def check_determinism(method: PrivateKMeans) -> None:
    """The same seed gives the same bits."""
    _same(_run(method).centers, _run(method).centers, "same seeds twice")


def check_batch_is_loop(method: PrivateKMeans) -> None:
    """A replicate's result does not depend on its neighbors or their order."""
    batch = _run(method)
    for i, seed in enumerate(SEEDS):
        own = batch.centers[i, : batch.n_centers[i]]
        _same(own, _run(method, (seed,)).centers[0], f"seed {seed} alone and in a batch")
    _same(batch.centers[::-1], _run(method, SEEDS[::-1]).centers, "seeds in reverse")


def check_order_and_shards(method: PrivateKMeans) -> None:
    """Private results do not depend on how the points are split, nor, where a curator holds them, on their order.

    In the local model a point is a user's, who has randomness of the user's own: order is who is who.
    """
    if not method.claim.private:
        return
    points, whole = snap(_points()), _run(method).centers
    if method.claim.trust != "local":
        shuffled = np.random.default_rng(1).permutation(points)
        _same(whole, _run(method, points=shuffled).centers, "shuffled points")
    _same(
        whole,
        _run(method, points=[points[:100], points[100:101], points[101:]]).centers,
        "three shards",
    )


def check_ledger(method: PrivateKMeans) -> None:
    """A private method charges its releases and spends no more than declared; another one has no ledger."""
    run = _run(method)
    if not method.claim.private:
        assert run.ledger is None, "a method without a claim must not carry a ledger"
        return
    ledger = run.ledger
    assert ledger.charges, "a private method must charge what it releases"
    assert ledger.spent() <= ledger.budget.epsilon * (1 + 1e-9), (
        f"spent {ledger.spent()} of {ledger.budget.epsilon}"
    )
    declared = method.epsilon * (1 + 1e-9)
    assert ledger.budget.epsilon <= declared or method.claim.flaws, (
        "a budget above epsilon must be a declared flaw"
    )
    mu = math.sqrt(sum(charge.mu**2 for charge in ledger.charges))
    assert gdp_epsilon(mu, ledger.budget.delta) <= ledger.spent() * (1 + 1e-9), (
        "spent is less than its Gaussian part"
    )
    assert (method.claim.notion == "pure") == (ledger.budget.delta == 0), (
        "a pure claim has delta 0, no other has"
    )


def check_overspend_is_refused(method: PrivateKMeans) -> None:
    """What a run charges does not fit twice into its budget, where it is more than half of it."""
    if not method.claim.private:
        return
    ledger = _run(method).ledger
    if ledger.spent() <= method.epsilon / 2:
        return
    later = [
        type(c)(c.label, c.round + len(ledger.charges), c.mechanism, c.mu, c.epsilon)
        for c in ledger.charges
    ]
    try:
        for charge in later:
            ledger.charge(charge)
    except BudgetExceeded:
        return
    raise AssertionError("the ledger accepted every charge twice")


def check_bad_input(method: PrivateKMeans) -> None:
    """Bad parameters and bad points are refused with a ValueError before any work."""
    bad = [{"n_clusters": 0}, {"n_clusters": N_POINTS + 1}, {"n_clusters": 2.5}]
    if method.claim.private:
        bad += [{"epsilon": 0}, {"epsilon": -1.0}, {"epsilon": math.inf}]
    if "delta" in method.get_params():
        bad += [{"delta": 0.0}, {"delta": 1.0}]
    for parameters in bad:
        _refused(lambda p=parameters: _run(clone(method).set_params(**p)), parameters)
    for value in (math.nan, math.inf):
        points = _points()
        points[7, 1] = value
        _refused(lambda p=points: clone(method).fit(p), f"a point with {value}")
    _refused(
        lambda: clone(method).set_params(clip=False).fit(2 * _points() + 1),
        "points outside the bounds, clip=False",
    )
    _refused(lambda: _run(method, points=snap(_points()) * 3), "grid points off the domain")
    _refused(lambda: _run(method, seeds=(1, 1)), "equal seeds")


def _refused(call: Callable, what) -> None:
    try:
        call()
    except ValueError as error:
        assert str(error), f"{what}: refused without a word"
        return
    raise AssertionError(f"{what} was accepted")


def check_degenerate_data(method: PrivateKMeans) -> None:
    """All points identical, as many clusters as points, one feature: defined, finite results.

    A handful of users is no crowd: in the local model there are a hundred of each.
    """
    k, copies = method.n_clusters, 100 if method.claim.trust == "local" else 1
    corner = np.full((5 * copies, 2), SCALE, np.int64)
    for points in (corner, corner[: k * copies], np.zeros((4 * copies, 1), np.int64), -corner):
        centers = _run(method, points=points).centers
        assert np.isfinite(centers).all()


CHECKS = tuple(
    function for name, function in sorted(globals().items()) if name.startswith("check_")
)


def conformance(method_class: type[PrivateKMeans]) -> list[Outcome]:
    """Run every check on every variant of a method.

    Parameters
    ----------
    method_class : type

    Returns
    -------
    list of Outcome
    """
    outcomes = []
    for variant in method_class.claims:
        method = method_class(n_clusters=N_CLUSTERS)
        if "variant" in method.get_params():
            method.set_params(variant=variant)
        for check in CHECKS:
            outcomes.append(Outcome(check.__name__, variant, _error(check, method)))
    return outcomes


def _error(check: Callable, method: PrivateKMeans) -> str | None:
    try:
        check(clone(method))
    except Exception as error:  # whatever a foreign method raises is the finding
        return f"{type(error).__name__}: {error}"
    return None


def main(arguments=None) -> int:
    """Print a line per check; the exit status is 1 if one failed, 2 if the method is not found."""
    parser = argparse.ArgumentParser(prog="pkm check", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "method", help="class name, import path or entry point, such as methods.lloyd.FastLloyd"
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
