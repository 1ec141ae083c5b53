"""Tell the user once that the first fit compiles numba kernels (about 10 s)."""

import sys
from time import monotonic

from numba.core import event

PATIENCE = 2.0  # seconds of compilation before the notice
NOTICE = "compiling kernels, once on this machine: about 10 s"


class CompilationNotice(event.Listener):
    """Print one line if compilation of this package's kernels takes long.

    It goes to terminals and interactive sessions, never to files and pipes.

    Attributes
    ----------
    seconds : float
        Duration of finished compilations.
    depth : int
        Nesting depth: compiling a kernel also compiles the kernels that it calls.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.depth = 0
        self.begin = 0.0
        self.is_printed = False

    def on_start(self, event: event.Event) -> None:
        """Note the beginning of a compilation; numba calls it."""
        if not _is_own(event):
            return
        if self.depth == 0:
            self.begin = monotonic()
        self.depth += 1
        waited = self.seconds + monotonic() - self.begin
        if waited > PATIENCE and not self.is_printed:
            self.is_printed = True
            if sys.stderr.isatty() or hasattr(sys, "ps1"):
                print(NOTICE, file=sys.stderr, flush=True)

    def on_end(self, event: event.Event) -> None:
        """Note the end of a compilation; numba calls it."""
        if not _is_own(event):
            return
        self.depth -= 1
        if self.depth == 0:
            self.seconds += monotonic() - self.begin


def _is_own(event: event.Event) -> bool:
    assert event.data is not None, "numba says what it compiles"
    return event.data["dispatcher"].py_func.__module__.startswith("pkm.")


event.register("numba:compile", CompilationNotice())
