"""Exact releases of a part of the synopsis, which show what its noise costs.

Charges are the same, so the other parts have the noise that they always have.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from families import replaced_constant

from pkm.privacy import NoiseStreams, StabilityHistogram

#: Labels of the queries of the synopsis, by its parts.
PARTS = {
    "nothing": set(),
    "the zoom": {"shell_counts", "side_counts", "clipped_sum"},
    "grids or buckets": {
        "grid_counts",
        "bucket_counts",
        "bucket_sums",
        "nearest_counts",
    },
    "Lloyd steps": {"nearest_shells", "nearest_sums_and_counts", "sums_and_counts"},
}
PARTS["all of them"] = set().union(*PARTS.values())
KEEP_SMALL_CELLS = "pkm.methods.trees.quadtree.MIN_COUNT=0"


@contextmanager
def exact_releases(part: str) -> Iterator[None]:
    """Release the queries of a part without noise for a while, at the same charges.

    A quadtree then keeps small cells, too: it leaves them out because of their noise.
    """
    labels = PARTS[part]
    release = NoiseStreams.release

    def release_exactly(
        streams: NoiseStreams,
        mechanism: Any,
        values: Any,
        key: tuple,
        sensitivity: Any = None,
    ) -> Any:
        if key[0] in labels:
            is_histogram = isinstance(mechanism, StabilityHistogram)
            name = "stddev" if is_histogram else "scale"
            scale = getattr(mechanism, name) / 1e6
            mechanism = replace(mechanism, **{name: scale})
        return release(streams, mechanism, values, key, sensitivity)

    constant = KEEP_SMALL_CELLS if "grid_counts" in labels else ""
    exactly = patch.object(NoiseStreams, "release", release_exactly)
    with exactly, replaced_constant(constant):
        yield
