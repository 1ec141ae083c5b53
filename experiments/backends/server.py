"""The server process that workers are forked from."""

import multiprocessing
import signal
from multiprocessing import forkserver, resource_tracker

#: The server has imported all that cells need. It has no threads, so its forks cannot
#: hang, as forks of this process could.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pkm.experiments.backends.worker_imports"])


def start_server() -> None:
    """Start the server, unless it runs; it imports in parallel with this process."""
    # An interrupt at the keyboard must reach neither the server nor its forks. The
    # resource tracker starts first, because its start unblocks interrupts.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    forkserver.ensure_running()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
