"""Methods that are slow, fail, end their process, or record when and where they ran."""

import os
import signal
import time
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import numba
from numba import njit
from threadpoolctl import threadpool_info

from pkm.methods.baselines.baselines import DataMean


@dataclass(eq=False, repr=False)
class Marking(DataMean):
    """The mean of the points; leaves marks in a folder."""

    _: KW_ONLY
    folder: str = ""


class Slow(Marking):
    """Takes a fifth of a second."""

    def cluster(self, curator):
        time.sleep(0.2)
        return super().cluster(curator)


class Endless(Marking):
    """Takes a minute."""

    def cluster(self, curator):
        time.sleep(60)
        return super().cluster(curator)


@njit
def spin(rounds):
    """Keep a processor busy."""
    total = 0
    for number in range(rounds):
        total ^= number * total + 1
    return total


class Compiled(Marking):
    """Hangs in compiled code, where no interrupt is noticed."""

    def cluster(self, curator):
        spin(0)
        (Path(self.folder) / "spinning").touch()
        spin(2**62)
        return super().cluster(curator)


class Broken(Marking):
    """Fails."""

    def cluster(self, curator):
        raise ZeroDivisionError("by design")


class BrokenOnce(Marking):
    """Fails the first time."""

    def cluster(self, curator):
        tried = Path(self.folder) / "tried"
        if not tried.exists():
            tried.touch()
            raise OSError("the first time only")
        return super().cluster(curator)


class Deadly(Marking):
    """Ends its process."""

    def cluster(self, curator):
        os._exit(1)


class Watched(Marking):
    """Records when and where each fit ran."""

    def cluster(self, curator):
        start = time.time()
        time.sleep(0.05)
        threads = {pool["num_threads"] for pool in threadpool_info()} | {numba.get_num_threads()}
        with open(Path(self.folder) / "log", "a") as log:
            print(
                start,
                time.time(),
                os.getpid(),
                len(curator.public_seeds),
                type(self).__name__.lower(),
                max(threads),
                file=log,
            )
        return super().cluster(curator)


class Neighbor(Watched):
    """Runs at the same time as other methods."""


def kill_once(block, path):
    """Kill the process that calls this, the first time; later return the block."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return block
    os.kill(os.getpid(), signal.SIGKILL)
    return block
