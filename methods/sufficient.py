"""How much budget would suffice, for the messages of methods that refuse less."""

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
        True from some epsilon on.
    max_epsilon : float, optional
        A sufficient one, above which none is tried.

    Returns
    -------
    float
        Sufficient, one or two percent too large at most, with three digits.

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
