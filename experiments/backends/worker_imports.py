"""Imports of workers, made once by the `server` that they are forked from.

These objects live until the end, so the garbage collector skips them, also in forks.
"""

import gc

gc.disable()
import pkm.experiments.fit.execute  # noqa: E402, F401

gc.freeze()
gc.enable()
