"""Targets of measurements, and how time and memory are taken."""

import time

import numpy as np
import pytest

from pkm.benchmarks.measurement import (
    Measurement,
    measure_memory,
    measure_time,
    min_seconds,
    min_times,
    peak_bytes,
)


@pytest.mark.parametrize(
    ("limits", "target", "is_met"),
    [
        pytest.param({}, "", True, id="none"),
        pytest.param({"at_most": 2}, "<= 2", True, id="at most"),
        pytest.param({"at_most": 1.5}, "<= 1.5", False, id="too much"),
        pytest.param({"at_least": 2}, ">= 2", True, id="at least"),
        pytest.param({"at_least": 2.5}, ">= 2.5", False, id="too little"),
    ],
)
def test_a_target_is_one_bound(limits, target, is_met):
    row = Measurement("fit", 2.0, "s", **limits)
    assert row.target == target
    assert row.is_met == is_met


def test_calls_take_turns_and_the_first_turn_does_not_count():
    now = 0
    calls = []

    def call(name, times):
        def run():
            nonlocal now
            calls.append(name)
            now += times[calls.count(name) - 1]

        return run

    first = call("a", [0, 7, 5, 6])
    second = call("b", [9, 3, 4, 2])
    times = min_times(lambda: now, first, second, repetitions=3)
    assert times.tolist() == [5, 2]
    assert calls == ["a", "b"] * 4


def test_each_of_several_clocks_has_its_least_time():
    clocks = iter(np.array([[0, 0], [9, 9], [0, 0], [1, 5], [0, 0], [4, 2]]))
    times = min_times(lambda: next(clocks), lambda: None, repetitions=2)
    assert times.tolist() == [[1, 2]]


def test_seconds_are_of_cpu():
    assert min_seconds(lambda: time.sleep(0.05), repetitions=1) < 0.04


def test_allocated_bytes_are_counted():
    assert 8_000_000 <= peak_bytes(lambda: np.ones(1_000_000)) < 8_100_000
    row = measure_memory("ones", lambda: np.ones(1_000_000), 1_000_000, at_most=8)
    assert row.value == pytest.approx(8, rel=0.01)
    assert row.title == "ones: memory"


def test_time_of_a_call_is_divided_among_its_fits(monkeypatch):
    monkeypatch.setattr("pkm.benchmarks.measurement.min_seconds", lambda *_, **__: 6.0)
    row = measure_time("trees", lambda: None, 1, n_fits=3)
    assert (row.value, row.is_met) == (2.0, False)
