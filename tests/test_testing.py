"""The audit for others: assertions on methods, on noise calls, on foreign fits."""

import json
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import diffprivlib_guest
import faults_around_releases as around
import numpy as np
import planted_faults as planted
import pytest

from pkm.audit import report
from pkm.methods import DPM, FastLloyd, GLloyd, Lloyd, PrivateKMeans
from pkm.methods.baselines.diffprivlib import library_python
from pkm.privacy import SCALE, Budget, Gaussian, GridCounts, Laplace, PrivacyClaim
from pkm.privacy.mechanisms.additive import BoundedLaplace, BoundedValues
from pkm.testing import check_method, check_neighbors, check_noise

# Methods


@pytest.mark.slow
@pytest.mark.parametrize("method", [GLloyd(3), Lloyd(2), DPM(3, variant="published")], ids=str)
def test_methods_pass(method):
    """Without a claim the contract alone is checked; registered flaws are declared."""
    check_method(method, n_pairs=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "message"),
    [
        (planted.SharesAboveOne(3), "SharesAboveOne (sound): check_ledger: "),
        (
            planted.broken(FastLloyd, queries=[around.DoubledFromHundred])(3),
            "(sound): replay: sums_and_counts: ",
        ),
        (
            planted.broken(GLloyd, mechanisms=[planted.HalfNoise])(3),
            "(sound): residuals: sums_and_counts sums: law: p = ",
        ),
    ],
    ids=["contract", "replay", "residuals"],
)
def test_a_fault_of_a_method_is_one_line(method, message):
    with pytest.raises(AssertionError) as raised:
        check_method(method)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_audit_without_power_is_no_success(monkeypatch):
    monkeypatch.setattr(report, "MIN_TIGHTNESS", 2.0)
    with pytest.raises(AssertionError, match="replay: no power here"):
        check_method(GLloyd(3), n_pairs=8)


class OneCount(PrivateKMeans):
    """One center, and one noisy number a run."""

    claims: ClassVar = {"sound": PrivacyClaim("pure")}
    batched = False

    epsilon: float = 1.0

    def cluster(self, curator):
        query = GridCounts(1)
        curator.release(query, counts=Laplace(SCALE / self.epsilon))
        return np.zeros((1, 1, curator.n_features), np.int64), 1


@pytest.mark.slow
def test_a_method_of_few_numbers_is_run_more_often():
    tests = report.check_residuals(OneCount(3), seed=0)
    law = [test for test in tests if test.what == "law"]
    assert {test.n_values for test in law} == {report.MORE_RUNS * report.RESIDUAL_RUNS}
    assert not any(test.powerless for test in law)
    check_method(OneCount(3), n_pairs=8)


# Noise


def draw_on_grid(distribution, scale, step=2.0**-10):
    """A sound mechanism: exact values and noise are multiples of a step."""
    rng = np.random.default_rng(0)

    def randomise(value):
        return step * (round(value / step) + round(getattr(rng, distribution)(0, scale) / step))

    return randomise


@pytest.mark.parametrize(
    ("distribution", "mechanism", "claimed"),
    [
        ("laplace", Laplace(2.0), Budget(0.5)),
        ("normal", Gaussian(4.0), Budget(1.0, 1e-4)),
    ],
)
@pytest.mark.statistical
def test_sound_noise_passes(distribution, mechanism, claimed):
    randomise = draw_on_grid(distribution, mechanism.scale)
    check_noise(randomise, mechanism, 1.0, claimed, step=2.0**-10)
    check_noise(randomise, mechanism, 1.0, claimed)


def repeat(randomise, n):
    """The same n outcomes of noise again and again."""
    noises = [randomise(0.0) for _ in range(n)]
    numbers = iter(range(10**9))
    return lambda value: value + noises[next(numbers) % n]


def correlate(randomise):
    """Every other call has the noise of the last one."""
    state = {"number": 0, "noise": 0.0}

    def correlated(value):
        if state["number"] % 2 == 0:
            state["noise"] = randomise(0.0)
        state["number"] += 1
        return value + state["noise"]

    return correlated


GRID_NOISE = draw_on_grid("laplace", 2.0)
FLOATS = np.random.default_rng(0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("randomise", "sensitivity", "message"),
    [
        (draw_on_grid("laplace", 1.8), 1.0, "noise of the value: law"),
        (lambda value: GRID_NOISE(value) + 0.25 * (value > 0), 1.0, "neighbor's value: law"),
        (repeat(GRID_NOISE, 3992), 1.0, "repeats"),
        (correlate(GRID_NOISE), 1.0, "its entries: correlation"),
        (lambda value: value + FLOATS.laplace(0, 2.0), 1.0, "noise of the value: grid"),
        (GRID_NOISE, 2.0, "scale=2: epsilon=1 is declared, 0.5 is claimed"),
    ],
    ids=["law", "law by value", "repeats", "correlation", "grid", "sensitivity"],
)
@pytest.mark.statistical
def test_a_fault_of_noise_is_found(randomise, sensitivity, message):
    with pytest.raises(AssertionError, match=message):
        check_noise(randomise, Laplace(2.0), sensitivity, Budget(0.5), step=2.0**-10)


@pytest.mark.statistical
def test_last_bits_of_floats_tell_neighbors_apart():
    """The sum of a float and float noise: Mironov, CCS 2012."""
    with pytest.raises(AssertionError, match="outcomes tell 0 from 1: epsilon is at least"):
        check_noise(lambda value: value + FLOATS.laplace(0, 1.0), Laplace(1.0), 1.0, Budget(1.0))


# Foreign fits


def make_mean(*, skips_empty=False, sensitivity=1.0, shows_size=False, scale=4.0):
    """Return a fit that releases the number and the sum of the positive numbers."""

    def fit(X, wrap):
        rng = np.random.default_rng(0)
        positive = [x for x in X if x > 0]
        if skips_empty and not positive:
            return {"mean": 0.0}
        count = wrap(lambda value: value + rng.laplace(0, 2.0), Laplace(2.0), 1.0, "count")
        total = wrap(
            lambda value: value + rng.laplace(0, scale), Laplace(scale), sensitivity, "total"
        )
        shown = {"mean": total(sum(positive)) / max(count(len(positive)), 1.0)}
        return shown | ({"size": len(positive)} if shows_size else {})

    return fit


def test_a_sound_fit_passes():
    check_neighbors(make_mean(), [1.0, -1.0], [-1.0], Budget(0.75))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"skips_empty": True}, "only 0 of 2 draws: releases depend on data"),
        ({"sensitivity": 0.5}, "total: realized epsilon=0.25, declared epsilon=0.125"),
        ({"shows_size": True}, "size differs although all releases are equal, 1 and 0"),
        ({"scale": 1.0}, "record changes: epsilon=1.5 is declared, 0.75 is claimed"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_fault_of_a_fit_is_found(fault, message):
    with pytest.raises(AssertionError, match=message):
        check_neighbors(make_mean(**fault), [1.0, -1.0], [-1.0], Budget(0.75))


def fails(X, wrap):
    raise KeyError("nothing there")


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (fails, "the function fails: KeyError"),
        (lambda X, wrap: {}, "the function makes no call of noise"),
    ],
)
def test_a_fit_that_shows_nothing_is_no_success(fit, message):
    with pytest.raises(AssertionError, match=message):
        check_neighbors(fit, [1.0], [-1.0], Budget(1.0))


# diffprivlib, in its own environment

needs_library = pytest.mark.skipif(
    library_python() is None, reason="diffprivlib is not installed: make diffprivlib"
)


@contextmanager
def start_guest():
    """Yield a function that sends a request to the library's process and reads its answer."""
    command = [str(library_python()), "-I", "-W", "ignore", str(Path(diffprivlib_guest.__file__))]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:

        def ask(*requests):
            process.stdin.writelines(f"{json.dumps(request)}\n" for request in requests)
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        try:
            yield ask
        finally:
            process.kill()


def make_library_fit(shown=("cluster_centers", "n_iter"), **parameters):
    """Return a fit of the library's KMeans."""

    def fit(X, wrap):
        request = {"fit": X.tolist(), "parameters": parameters, "shown": shown}
        with start_guest() as ask:
            answer = ask(request)
            while "call" in answer:
                name, epsilon = answer["call"], answer["epsilon"]
                exact, sensitivity = answer["value"], answer["sensitivity"]
                mechanism = Laplace(sensitivity / epsilon)
                if name == "LaplaceBoundedDomain":
                    mechanism = BoundedLaplace(epsilon, sensitivity)
                    exact = BoundedValues(exact, answer["lower"], answer["upper"])
                noise = wrap(lambda _, drawn=answer: drawn["outcome"], mechanism, sensitivity, name)
                answer = ask({"outcome": noise(exact)})
        return answer

    return fit


def library_noise(ask, name, **parameters):
    """Return a mechanism of the library as a function."""
    started = iter([{"mechanism": name, "parameters": {"random_state": 0, **parameters}}])
    return lambda value: ask(*started, {"value": value})["outcome"]


@needs_library
@pytest.mark.statistical
def test_noise_of_the_library():
    with start_guest() as ask:
        geometric = library_noise(ask, "Geometric", epsilon=1 / 16)
        check_noise(geometric, Laplace(16.0), 1, Budget(1 / 16), value=0, step=1.0)
    with start_guest() as ask:
        laplace = library_noise(ask, "Laplace", epsilon=1.0, sensitivity=1.0)
        with pytest.raises(AssertionError, match="outcomes tell 0 from 1: epsilon is at least"):
            check_noise(laplace, Laplace(1.0), 1.0, Budget(1.0))


BLOB = np.clip(np.random.default_rng(0).normal(0, 0.3, (1581, 2)), -1, 1)
LONE = np.array([[1.0, 1.0]] + [[-1.0, -1.0]] * 60)
WIDE = np.clip(np.random.default_rng(0).normal(0, 0.3, (300, 8)), -1, 1)
CLUSTERS = ("cluster_centers",)


# The flaw F-05, and F-26 of its epsilon, by the calls that a record changes.
@needs_library
@pytest.mark.integration
@pytest.mark.parametrize(
    ("X", "k", "bounds", "shown", "message"),
    [
        (LONE, 2, (-1, 1), CLUSTERS, r"only 6 of \d+ draws"),
        (100.5 + BLOB[:300] / 2, 2, (100, 101), CLUSTERS, "Domain: realized epsilon=.*, declared"),
        (WIDE, 1, (-1, 1), CLUSTERS, "changes: epsilon=1.133 is declared, 1 is claimed"),
        (BLOB, 3, (-1, 1), CLUSTERS, r"draw 0 is Laplace.* and was Laplace"),
        (BLOB[:300], 2, (-1, 1), ("inertia",), "inertia differs although all releases are equal"),
    ],
    ids=["empty cluster", "bounds off the origin", "shares", "rounds by n", "inertia"],
)
def test_faults_of_the_library(X, k, bounds, shown, message):
    box = [[bound] * X.shape[1] for bound in bounds]
    fit = make_library_fit(shown, n_clusters=k, epsilon=1.0, bounds=box, random_state=1)
    with pytest.raises(AssertionError, match=message):
        check_neighbors(fit, X, X[1:], Budget(1.0))


@needs_library
@pytest.mark.integration
def test_the_library_passes_where_its_flaws_do_not_show():
    box = [[-1, -1], [1, 1]]
    fit = make_library_fit(CLUSTERS, n_clusters=2, epsilon=1.0, bounds=box, random_state=1)
    check_neighbors(fit, BLOB[:300], BLOB[1:300], Budget(1.0))
