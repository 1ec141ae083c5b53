"""Search for a sufficient epsilon, for error messages on too small a budget."""

import math
from collections.abc import Callable


def smallest_epsilon(
    epsilon: float,
    is_sufficient: Callable[[float], bool],
    max_epsilon: float = math.inf,
) -> float:
    """Find the smallest sufficient epsilon above an insufficient one.

    Parameters
    ----------
    epsilon : float
        Insufficient.
    is_sufficient : callable
        Monotonic: True from some epsilon on.
    max_epsilon : float, optional
        A sufficient epsilon, the largest that is tried.

    Returns
    -------
    float
        Sufficient, at most two percent above the smallest, with three digits.

    Examples
    --------
    >>> 0.7 < smallest_epsilon(0.1, lambda epsilon: epsilon > 0.7) < 0.72
    True
    """
    # Double epsilon until it is sufficient.
    low = epsilon
    high = min(2 * epsilon, max_epsilon)
    while not is_sufficient(high):
        low = high
        high = min(2 * high, max_epsilon)

    # Bisect on the logarithmic scale.
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        if is_sufficient(middle):
            high = middle
        else:
            low = middle

    digits = 10.0 ** (2 - math.floor(math.log10(high)))
    return math.ceil(high * digits) / digits
