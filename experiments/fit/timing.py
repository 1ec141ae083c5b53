"""Wall-clock and CPU seconds and peak memory of a block."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Timing:
    """Seconds inside a `timer`: wall clock, and CPU of all threads and programs."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def timer() -> Iterator[Timing]:
    """Measure the wall-clock and CPU seconds of a block."""
    elapsed = Timing()
    wall_start = time.perf_counter()
    cpu_start = read_cpu_seconds()
    yield elapsed
    elapsed.wall = time.perf_counter() - wall_start
    elapsed.cpu = read_cpu_seconds() - cpu_start


def read_cpu_seconds() -> float:
    """Return the CPU seconds of this process, and of programs it started that ended."""
    programs = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + programs.ru_utime + programs.ru_stime


@dataclass
class PeakMemory:
    """Peak resident memory of the process, in MiB."""

    mebibytes: float = 0.0


@contextmanager
def peak_memory() -> Iterator[PeakMemory]:
    """Measure the peak resident memory of the process during a block.

    Linux lets a process reset its own peak; elsewhere the peak since the process began
    is reported.
    """
    peak = PeakMemory()
    status = Path("/proc/self/status")
    try:
        Path("/proc/self/clear_refs").write_text("5")
        resettable = True
    except OSError:
        resettable = False
    yield peak
    if resettable:
        _, _, rest = status.read_text().partition("VmHWM:")
        peak.mebibytes = int(rest.split()[0]) / 1024
    else:
        unit = 1 if sys.platform == "darwin" else 1024
        usage = resource.getrusage(resource.RUSAGE_SELF)
        peak.mebibytes = usage.ru_maxrss * unit / 2**20
