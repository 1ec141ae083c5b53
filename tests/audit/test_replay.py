"""What a replay observes of a fit."""

import gc
import warnings

from pkm.audit import replay


class Unclosed:
    """In a cycle, so that it warns only when garbage is collected."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        warnings.warn("unclosed", ResourceWarning, stacklevel=1)


def test_garbage_of_other_code_warns_in_no_fit():
    """It would be collected in one of the two fits, whose warnings then differ."""
    observed = {}
    gc.collect()
    gc.disable()
    Unclosed()
    gc.enable()
    with replay.observe(observed):
        fills_a_generation = [[] for _ in range(2 * gc.get_threshold()[0])]
    assert fills_a_generation
    assert observed["warnings"] == []
    assert gc.isenabled()
