"""Values of delta: that of the sound variants, and those of the papers."""

import math

SOUND_DELTA = 1e-6  # fixed and public, whatever the data
# From here on half of all runs may disclose a record.
MAX_DELTA = 0.5


def inverse_n_log_n(n_points: int) -> float:
    """Delta of the FastLloyd paper, from the exact n."""
    _require_points(n_points, 3, "1/(n ln n)")
    return 1 / (n_points * math.log(n_points))


def inverse_n_root_n(n_points: int) -> float:
    """Delta of the DPM paper, from the exact n."""
    _require_points(n_points, 2, "1/(n sqrt n)")
    return n_points**-1.5


def inverse_power(n_points: int) -> float:
    """Delta of the PE-means paper, from the exact n."""
    _require_points(n_points, 2, "n^-1.1")
    return n_points**-1.1


def _require_points(
    n_points: int,
    minimum: int,
    formula: str,
) -> None:
    if n_points < minimum:
        raise ValueError(
            f"delta='auto' of the published variant is {formula}, which needs "
            f"n >= {minimum}, got {n_points}"
        )
