"""Releases of a run in order, with their costs, from public quantities alone."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pkm.privacy import SCALE, Budget, BudgetExceeded, Charge, Gaussian, Laplace, Ledger
from pkm.privacy.query import Query


class Schedule:
    """The releases of one replicate, in their order.

    A method that also fixes other values in advance defines a subclass. It is a
    dataclass of these values, with ``releases`` as a property.

    Parameters
    ----------
    *releases : Charge
        See :func:`plan_release`.

    Examples
    --------
    >>> from pkm.privacy import NearestCounts
    >>> schedule = Schedule(*[plan_release(NearestCounts, Gaussian, mu=0.1)] * 4)
    >>> [charge.round for charge in schedule.charges], schedule.fits(Budget(0.5, 1e-6))
    ([0, 1, 2, 3], False)
    >>> round(schedule.to_ledger(Budget(1.0, 1e-6)).spent(), 2)
    0.83
    """

    def __init__(self, *releases: Charge) -> None:
        self._releases = releases

    @property
    def releases(self) -> Sequence[Charge]:
        """Planned charges, in order; `charges` sets their rounds."""
        return self._releases

    @cached_property
    def charges(self) -> tuple[Charge, ...]:
        """Charges of all releases; the round counts the earlier ones of its query."""
        # Number the rounds of each query from 0.
        n_earlier: Counter[str] = Counter()
        charges = []
        for release in self.releases:
            charges.append(replace(release, round=n_earlier[release.label]))
            n_earlier[release.label] += 1
        return tuple(charges)

    def find(self, query: type[Query]) -> list[Charge]:
        """Return the releases of a query, in order."""
        return [release for release in self.releases if release.label == query.label]

    def to_ledger(self, budget: Budget) -> Ledger:
        """Charge all releases to a new ledger, which composes them.

        Raises
        ------
        BudgetExceeded
            If they cost more than the budget.
        """
        ledger = Ledger(budget)
        ledger.charge(*self.charges)
        return ledger

    def fits(self, budget: Budget) -> bool:
        """Tell whether all releases together are within a budget."""
        try:
            self.to_ledger(budget)
        except BudgetExceeded:
            return False
        return True


def plan_release(
    query: type[Query],
    *mechanisms: Any,
    mu: float = 0.0,
    epsilon: float = 0.0,
    delta: float = 0.0,
    group: int | None = None,
) -> Charge:
    """Return the charge of a planned release, with types in place of query and noise.

    Parameters
    ----------
    query : type
    *mechanisms : type or mechanism
        Mechanisms of the parts of the answer, without repetition.
    mu, epsilon, delta, group
        As of :class:`pkm.privacy.Charge`.

    Returns
    -------
    Charge
        Its round is 0.
    """
    names = "+".join(mechanism.name for mechanism in mechanisms)
    return Charge(
        query.label, 0, names, mu=mu, epsilon=epsilon, delta=delta, group=group
    )


def counting_noise(release: Charge) -> Gaussian | Laplace:
    """Return the noise of an answer that a record changes by 1, such as counts."""
    # Counts are in units of 1 / SCALE records.
    if release.mu > 0:
        return Gaussian(SCALE / release.mu)
    return Laplace(SCALE / release.epsilon)


@dataclass(frozen=True)
class SharePlan(Schedule):
    """Releases for a share of the budget, all of Gaussian or all of Laplace noise.

    Attributes
    ----------
    share : float
        Share of mu squared, or of epsilon if noise is Laplace.
    pure : bool
        Whether noise is Laplace.
    """

    share: float
    pure: bool

    @property
    def mu(self) -> float:
        """Cost of all releases together with Gaussian noise; 0 with Laplace noise."""
        return math.hypot(*[release.mu for release in self.releases])

    def plan(self, query: type[Query], cost: float) -> Charge:
        """Plan a release of a cost: mu of Gaussian noise, or epsilon of Laplace."""
        if self.pure:
            return plan_release(query, Laplace, epsilon=cost)
        return plan_release(query, Gaussian, mu=cost)

    def noise(
        self,
        cost: float,
        l1: float,
        l2: float,
    ) -> Gaussian | Laplace:
        """Noise of one release with given L1 and L2 sensitivities, in their units."""
        return Laplace(l1 / cost) if self.pure else Gaussian(l2 / cost)

    def stddev(
        self,
        cost: float,
        l1: float,
        l2: float,
    ) -> float:
        """Standard deviation of this noise."""
        return math.sqrt(2) * l1 / cost if self.pure else l2 / cost


def smallest_epsilon(
    epsilon: float,
    is_sufficient: Callable[[float], bool],
    max_epsilon: float = math.inf,
) -> float:
    """Find the smallest sufficient epsilon above an insufficient one, for messages.

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

    # Bisect on the logarithmic scale, to a percent; the digits add at most another one.
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        if is_sufficient(middle):
            high = middle
        else:
            low = middle

    return round_up(high)


def round_up(number: float) -> float:
    """Round a positive number up, to three digits.

    Examples
    --------
    >>> round_up(0.12341)
    0.124
    """
    digits = 10.0 ** (2 - math.floor(math.log10(number)))
    return math.ceil(number * digits) / digits
