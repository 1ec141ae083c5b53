"""One measured row of the table, and how times are taken."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """One row of the table; ``target`` is the bound that ``value`` must keep, ``at_most`` tells on which side."""

    what: str
    value: float
    unit: str
    target: float
    at_most: bool = False

    @property
    def kept(self) -> bool:
        """Whether the target is met."""
        return self.value <= self.target if self.at_most else self.value >= self.target


def least_seconds(call: Callable, repetitions: int = 5) -> float:
    """Least CPU time of a call after one warm-up."""
    call()
    seconds = []
    for _ in range(repetitions):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    return min(seconds)
