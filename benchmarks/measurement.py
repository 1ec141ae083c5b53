"""A row of the table of measurements, and how time and memory are measured."""

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """A row of the table.

    Attributes
    ----------
    what : str
    value : float
    unit : str
    at_most, at_least : float or None
        The target; a row without one informs only.
    """

    what: str
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
        if self.at_most is not None and self.value > self.at_most:
            return False
        return self.at_least is None or self.value >= self.at_least


def min_seconds(call: Callable[[], object], repetitions: int = 5) -> float:
    """Minimum CPU time of a call after a warm-up call."""
    call()
    seconds = []
    for _ in range(repetitions):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)


def peak_bytes(call: Callable[[], object]) -> int:
    """Peak of the memory that a call allocates."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
