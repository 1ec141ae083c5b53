"""Rules on one parameter: what they allow, and how they print themselves."""

import math

import numpy as np
import pytest
from estimators import blobs

from pkm.methods import (
    FEDERATED,
    METHODS,
    DiffprivlibKMeans,
    FastLloyd,
    KMeansPlusPlus,
    KMedian,
    Lloyd,
    load_method,
)
from pkm.methods import __getattr__ as method_named
from pkm.methods.constraints import AUTO, FLAG, NONE, Integer, OneOf, Real, check_constraints


@pytest.mark.parametrize(
    ("rule", "text", "allowed", "refused"),
    [
        (Integer(1), "an integer of at least 1", [1, 10**30, np.int64(4)], [0, 1.0, True, "1"]),
        (Integer(1, 15), "an integer from 1 to 15", [1, 15], [0, 16]),
        (Real(), "a number", [-5, 0.0], [math.nan, math.inf, "a", None, True]),
        (Real(0), "a positive finite number", [1e-300, np.float32(2)], [0, -1.0, math.inf]),
        (Real(0, 1), "a number in (0, 1)", [0.5], [0, 1]),
        (Real(0, 1, "[)"), "a number in [0, 1)", [0, 0.5], [-0.1, 1]),
        (Real(0, 1, "(]"), "a number in (0, 1]", [1], [0]),
        (Real(0.1, ends="[)"), "a finite number of at least 0.1", [0.1, 9.0], [0, math.inf]),
        (Real(0, unit="metres"), "a positive finite number, in metres", [1], [0]),
        (OneOf("a", "b"), "one of 'a', 'b'", ["a"], ["c", None]),
        (FLAG, "one of True, False", [True, False], ["yes", None, 2]),
        (AUTO | Integer(1), "'auto' or an integer of at least 1", ["auto", 3], [0, "none"]),
        (AUTO | NONE | Real(0), "'auto' or None or a positive", ["auto", None, 3], [0]),
        (Real(0, unit="m") | OneOf("all"), "a positive finite number, in m, or 'all'", [1], [0]),
    ],
)
def test_rules(rule, allowed, refused, text):
    assert all(rule.allows(value) for value in allowed)
    assert not any(rule.allows(value) for value in refused)
    assert str(rule).startswith(text)


def test_refusals_have_the_name_the_value_and_the_rule():
    rules = {"n_init": Integer(1), "mode": OneOf("a", "b")}
    check_constraints(rules, {"n_init": 1, "mode": "a", "other": object()})
    with pytest.raises(ValueError, match=r"^n_init=0 must be an integer of at least 1$"):
        check_constraints(rules, {"n_init": 0})
    with pytest.raises(ValueError, match=r"^mode='c' is unknown, choose one of 'a', 'b'$"):
        check_constraints(rules, {"mode": "c"})


@pytest.mark.parametrize("name", [*METHODS, *FEDERATED])
def test_every_rule_is_of_a_parameter(name):
    """A rule with a misspelled name would never be tested."""
    method = load_method(name) if name in METHODS else method_named(name)
    common = {"epsilon", "delta", "variant"}  # rules of the contract on optional parameters
    names = {field for kind in method.__mro__ for field in vars(kind).get("__annotations__", ())}
    assert set(method.constraints) - common <= names


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_has_a_rule(name):
    """A value that no rule refuses fails later, with another message."""
    method = load_method(name)
    assert set(method._get_param_names()) <= set(method.constraints)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (KMeansPlusPlus(2, n_init=0), "n_init=0 must be an integer of at least 1"),
        (KMedian(2, n_init=0), "n_init=0 must be an integer of at least 1"),
        (DiffprivlibKMeans(2, variant="x"), "variant='x' is unknown, choose one of 'published'$"),
    ],
)
def test_baselines_refuse_bad_parameters(method, message):
    with pytest.raises(ValueError, match=message):
        method.fit(blobs())


def test_secure_noise_of_a_method_without_noise_is_refused():
    with pytest.raises(ValueError, match="secure=True has no effect: Lloyd claims no privacy"):
        Lloyd(3, secure=True).check_parameters()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"postprocessing": "mirror"},
            "postprocessing='mirror' is unknown, choose one of 'auto', 'none'",
        ),
        ({"radius_schedule": "late"}, "radius_schedule='late' is unknown"),
        ({"alpha": 0}, "alpha=0 must be a finite number of at least 1e-06"),
        (
            {"n_iterations": True},
            "n_iterations=True must be 'auto' or an integer",
        ),
        ({"secure": "x"}, "secure='x' is unknown, choose one of True, False"),
        ({"bounds": (-np.inf, 1)}, "must be finite with lower < upper"),
        (
            {"n_iterations": 0},
            "n_iterations=0 must be 'auto' or an integer of at least 1",
        ),
        (
            {"epsilon": "much"},
            "epsilon='much' must be a positive finite number",
        ),
        ({"epsilon": np.float16(0.1)}, r"must have 64 bits: give float\(epsilon\)"),
        ({"delta": np.float32(1e-6)}, r"must have 64 bits: give float\(delta\)"),
        ({"alpha": np.longdouble(0.5)}, r"must have 64 bits: give float\(alpha\)"),
        ({"epsilon": 1e300}, r"epsilon=1e\+300 must be at most 1e\+15: lower it"),
        ({"delta": 0.5}, r"delta=0.5 must be 'auto' or a number in \(0, 0.5\)"),
        ({"delta": 2}, r"delta=2 must be 'auto' or a number in \(0, 0.5\)"),
        ({"bounds": (1, -1)}, "must be finite with lower < upper"),
        (
            {"bounds": (0, 1, 2)},
            r"bounds=\(0, 1, 2\) must be \(lower, upper\): two numbers",
        ),
        ({"variant": "fast"}, "variant='fast' is unknown"),
        ({"random_state": 1.5}, "random_state=1.5 must be None or an integer of at least 0"),
        ({"random_state": -1}, "random_state=-1 must be None or an integer of at least 0"),
        ({"random_state": np.random.default_rng(0)}, "not drawn from a generator"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    estimator = FastLloyd(n_clusters=2).set_params(**parameters)
    with pytest.raises(ValueError, match=message):
        estimator.fit(blobs())
