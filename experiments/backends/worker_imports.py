"""What workers need, imported once by the `server` that they are forked from.

It stays until the end: no reference cycles are looked for in it, neither here nor in a
fork.
"""

import gc

gc.disable()
import pkm.experiments.fit.execute  # noqa: E402, F401

gc.freeze()
gc.enable()
