"""The server process that workers are forked from."""

import multiprocessing
import signal
from multiprocessing import forkserver, resource_tracker

#: A fork of the server has all that cells need, imported once; the server has no
#: threads, so that a fork of it cannot hang, as one of this process could.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pkm.experiments.backends.worker_imports"])


def start_server() -> None:
    """Start the server, unless it runs: it imports while this process goes on."""
    # An interrupt at the keyboard is to reach neither the server nor its forks.
    # Starting Python's resource tracker unblocks interrupts, so that it comes first.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    forkserver.ensure_running()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
