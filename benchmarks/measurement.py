"""Rows of the table of measurements, and how time and memory are measured."""

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Measurement:
    """A row of the table.

    Attributes
    ----------
    title : str
    value : float
    unit : str
    at_most, at_least : float or None
        The target; a row with neither has none.
    """

    title: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def target(self) -> str:
        """The target in words, empty if there is none."""
        if self.at_most is not None:
            return f"<= {self.at_most:g}"
        return f">= {self.at_least:g}" if self.at_least is not None else ""

    @property
    def is_met(self) -> bool:
        """Whether the target, if there is one, is met."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return self.at_least is None or self.value >= self.at_least


def min_seconds(call: Callable[[], object], repetitions: int = 5) -> float:
    """Return the smallest CPU seconds of a call, after a warm-up call."""
    return float(min_times(time.process_time, call, repetitions=repetitions)[0])


def min_times(
    clock: Callable[[], float | np.ndarray],
    *calls: Callable[[], object],
    repetitions: int = 5,
) -> np.ndarray:
    """Return the smallest time of each call, by one clock or by each of several.

    Calls alternate, so that the load of the machine affects all of them. The first
    repetition is a warm-up: it compiles and fills caches.
    """
    times = []
    for _ in range(repetitions + 1):
        turn = []
        for call in calls:
            start = clock()
            call()
            turn.append(clock() - start)
        times.append(turn)
    return np.min(times[1:], axis=0)


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the peak of the memory that a call allocates."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def measure_time(
    title: str, fit: Callable[[], object], at_most: float, n_fits: int = 1
) -> Measurement:
    """Measure the CPU seconds of a fit, where one call makes `n_fits` of them."""
    seconds = min_seconds(fit, repetitions=1) / n_fits
    return Measurement(
        f"{title}: a fit",
        seconds,
        "s CPU",
        at_most,
    )


def measure_memory(
    title: str, fit: Callable[[], object], n_values: int, at_most: float
) -> Measurement:
    """Measure what a fit allocates for each coordinate of its points."""
    peak = peak_bytes(fit) / n_values
    return Measurement(
        f"{title}: memory",
        peak,
        "bytes a value",
        at_most,
    )
