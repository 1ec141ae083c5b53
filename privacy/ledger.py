"""The ledger records what every release costs before its noise is drawn.

Gaussian releases compose in closed form, by mu. A pure release (with Laplace noise, for
example) is at worst randomized response; the privacy loss distribution of several is
computed by convolution. Their composition is exact for up to :data:`MAX_LOSSES` values
of the loss; with more, delta is overestimated, never underestimated.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_ndtr, ndtr

from pkm.privacy.budget import Budget
from pkm.privacy.calibration import find_root, gdp_delta, gdp_epsilon

SLACK = 1e-9  # relative tolerance for rounding in sums of charges
MAX_LOSSES = 1 << 17  # largest number of values of a privacy loss distribution
#: Fields of a charge that identify the release and state its cost.
COST_FIELDS = ("label", "round", "mechanism", "mu", "epsilon", "delta", "group")

StreamKey = tuple[str, int]
"""Label and round of a release (:class:`Charge`): the key of its noise stream."""


class BudgetExceeded(RuntimeError):
    """A release would exceed the budget; nothing was drawn."""


class StreamReuseError(RuntimeError):
    """A release would use a noise stream again; nothing was drawn."""


class ScheduleError(RuntimeError):
    """A release is not the schedule's next one; nothing was drawn."""


@dataclass(frozen=True)
class Charge:
    """The cost of one release.

    Parameters
    ----------
    label : str
        The query's name.
    round : int
        Number of earlier releases with this label: 0 for the first.
    mechanism : str
    mu : float, default=0
        Cost of Gaussian noise: L2 sensitivity over standard deviation.
    epsilon : float, default=0
        Cost of a pure mechanism.
    delta : float, default=0
        Probability with which the other costs may not hold, charged in addition.
    details : mapping
        Scales and sensitivities that the cost was computed from.
    flaw : str, default=""
        Id in ``analysis/flaws.yaml`` if the cost is a paper's claim that is known to be
        wrong.
    group : int, optional
        Number of the group of users that the release concerns, where users are
        partitioned into disjoint groups, such as the cohorts of the local model; None
        for all users. Releases of different groups compose in parallel.

    Raises
    ------
    ValueError
        If a cost is negative, infinite or NaN.
    """

    label: str
    round: int
    mechanism: str
    mu: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0
    details: Mapping[str, float | None] = field(default_factory=dict)
    flaw: str = ""
    group: int | None = None

    def __post_init__(self) -> None:
        for name in ("mu", "epsilon", "delta"):
            cost = getattr(self, name)
            limit = 1.0 if name == "delta" else sys.float_info.max
            if not 0 <= float(cost) <= limit:
                raise ValueError(
                    f"{name}={cost} of a charge must be between 0 and {limit:g}"
                )
            # A numpy scalar of fewer bits would lower the precision of all sums.
            object.__setattr__(self, name, float(cost))

    def to_dict(self) -> dict[str, str | float | None]:
        """Return a flat, JSON-ready record, always with mu, epsilon and delta."""
        names = ("mechanism", "label", "round", "mu", "epsilon", "delta")
        record = {name: getattr(self, name) for name in names} | dict(self.details)
        if self.flaw:
            record["flaw"] = self.flaw
        if self.group is not None:
            record["group"] = self.group
        return record

    @property
    def cost(self) -> tuple[Any, ...]:
        """Values of :data:`COST_FIELDS`: the release and its cost."""
        return tuple([getattr(self, name) for name in COST_FIELDS])

    def matches(self, other: "Charge") -> bool:
        """Whether two charges are for one release at one cost, up to rounding.

        After a zoom, costs are computed in the units of the released domain, which
        changes their last bits.

        Examples
        --------
        >>> charge = Charge("sums", 0, "gaussian", mu=0.3)
        >>> charge.matches(Charge("sums", 0, "gaussian", mu=0.1 + 0.2))
        True
        >>> charge.matches(Charge("sums", 1, "gaussian", mu=0.3))
        False
        """
        # Label, round, mechanism and group must be equal; mu, epsilon and delta close.
        if (*self.cost[:3], self.group) != (*other.cost[:3], other.group):
            return False
        pairs = zip(self.cost[3:6], other.cost[3:6], strict=True)
        return all(
            math.isclose(cost, other_cost, rel_tol=1e-12) for cost, other_cost in pairs
        )


class _Costs(NamedTuple):
    """Costs of all releases that concern one record, composed."""

    mu: float  # of all Gaussian releases
    epsilons: tuple[float, ...]  # of each pure release, increasing
    delta: float  # sum of the deltas of all releases

    def scale(self, factor: float) -> "_Costs":
        """Multiply the costs without the deltas by a positive factor."""
        epsilons = tuple([factor * epsilon for epsilon in self.epsilons])
        return self._replace(mu=factor * self.mu, epsilons=epsilons)


class Ledger:
    """Privacy accountant of one run: it records charges and enforces the budget.

    The replicates of a batch share it, because their schedules are the same.

    Parameters
    ----------
    budget : Budget
        The charges together must not exceed it.
    schedule : sequence of Charge, optional
        The only releases that are accepted, in this order: those that an
        :class:`~pkm.privacy.PrivacyAccountant` was charged for. Default: any.
    repeatable : bool, default=False
        Whether noise is drawn from a seed: the guarantee then holds only against those
        who do not know it.

    Attributes
    ----------
    charges : tuple of Charge
    notes : tuple of str
        Public facts about the run that its results should state.

    Notes
    -----
    The scales of all releases must be fixed before the first one, as they are in every
    method here; only Gaussian releases may also be chosen adaptively.

    Examples
    --------
    >>> ledger = Ledger(Budget(1.0))
    >>> ledger.charge(Charge("count", 0, "laplace", epsilon=0.75))
    >>> ledger.spent(), ledger.unspent()
    (0.75, 0.25)
    """

    def __init__(
        self,
        budget: Budget,
        schedule: Sequence[Charge] | None = None,
        repeatable: bool = False,
    ) -> None:
        self.budget = budget
        self.repeatable = repeatable
        self.schedule = schedule
        self.charges: tuple[Charge, ...] = ()
        self.notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Ledger({self.budget}, {len(self.charges)} releases, "
            f"spent epsilon={self.spent():.6g})"
        )

    def charge(self, *charges: Charge) -> None:
        """Record the charges of a release: all of them, or none.

        Raises
        ------
        BudgetExceeded
            If delta at the budget's epsilon would exceed the budget's delta.
        StreamReuseError
            If a release of the same label and round is on record: its noise stream is
            used up.
        ScheduleError
            If they are not the schedule's next ones.
        """
        recorded = self.charges
        streams_used = {(earlier.label, earlier.round) for earlier in recorded}
        for charge in charges:
            # Each label and round is charged once, so each noise stream is used once.
            stream = (charge.label, charge.round)
            if stream in streams_used:
                raise StreamReuseError(
                    f"release {charge.label!r} round {charge.round} was made before; "
                    "noise must be fresh"
                )
            streams_used.add(stream)
            self._check_scheduled(charge, len(recorded))
            recorded = (*recorded, charge)
            # Parallel composition: the budget must hold for each disjoint group of
            # users.
            for costs in _compose_costs(recorded):
                self._check_fits(charge, costs)
        # Last, so that a refused release leaves the ledger as it was.
        self.charges = recorded

    def note(self, text: str) -> None:
        """Add a public fact about the run."""
        self.notes = (*self.notes, text)

    def _check_scheduled(self, charge: Charge, position: int) -> None:
        """Refuse a charge that the schedule does not have at a position."""
        if self.schedule is None:
            return
        is_next = position < len(self.schedule) and charge.matches(
            self.schedule[position]
        )
        if not is_next:
            raise ScheduleError(
                f"release {charge.label!r} round {charge.round} is not release "
                f"{position} of the schedule that was paid for: a schedule must not "
                "depend on private data"
            )

    def _check_fits(
        self,
        charge: Charge,
        costs: _Costs,
    ) -> None:
        """Refuse a charge with which the costs exceed the budget."""
        budget = self.budget
        epsilon = budget.epsilon * (1 + SLACK)
        delta_left = budget.delta * (1 + SLACK) - costs.delta

        # Basic composition is cheaper to compute, and mostly enough for pure releases.
        has_pure = len(costs.epsilons) > 0 or costs.mu == 0
        may_fit = has_pure and delta_left >= 0
        if may_fit and _basic_epsilon(costs, delta_left) <= epsilon:
            return

        # Without a delta to spend, basic composition is optimal, and Gaussian noise has
        # no finite epsilon: the delta that it needs may be too small for float64.
        if budget.delta <= costs.delta:
            needed = f"epsilon={_basic_epsilon(costs, 0.0):.6g} and a delta"
        else:
            delta = _delta_at(costs, epsilon)
            if delta <= budget.delta * (1 + SLACK):
                return
            needed = f"delta={delta:.3g} at epsilon={budget.epsilon:.6g}"
        raise BudgetExceeded(
            f"release {charge.label!r} round {charge.round} would need {needed}, the "
            f"budget has delta={budget.delta:.3g} at epsilon={budget.epsilon:.6g}"
        )

    def delta_at(self, epsilon: float) -> float:
        """Delta that the releases so far need at ``epsilon``."""
        costs = _compose_costs(self.charges)
        return max(_delta_at(group, float(epsilon)) for group in costs)

    def spent(self) -> float:
        """Epsilon that the releases so far need at the budget's delta.

        The maximum over disjoint groups of users.
        """
        delta = self.budget.delta
        return max(_epsilon_at(costs, delta) for costs in _compose_costs(self.charges))

    def unspent(self) -> float:
        """Epsilon of the budget that is left at its delta."""
        return max(0.0, self.budget.epsilon - self.spent())


def largest_multiple(
    mus: Sequence[float], epsilons: Sequence[float], epsilon: float, delta: float
) -> float:
    """Largest factor by which a budget allows to multiply the costs of a schedule.

    Parameters
    ----------
    mus, epsilons : sequence of float
        Costs of the Gaussian and of the pure releases, up to the factor.
    epsilon, delta : float
        The budget; delta in (0, 1).

    Returns
    -------
    float
        At most the exact factor, with a relative error of at most 1e-6.

    Raises
    ------
    ValueError
        If there is nothing to multiply.

    Examples
    --------
    >>> factor = largest_multiple([0.2, 0.1], [], 1.0, 1e-6)
    >>> round(factor * math.hypot(0.2, 0.1), 4)  # gaussian_mu(1.0, 1e-6)
    0.2367
    """
    if not any((*mus, *epsilons)):
        raise ValueError("mus and epsilons must not all be zero")
    mu = math.sqrt(math.fsum(mu**2 for mu in mus))
    return _largest_multiple(_Costs(mu, tuple(sorted(epsilons)), 0.0), epsilon, delta)


@lru_cache(maxsize=1024, typed=True)
def _largest_multiple(costs: _Costs, epsilon: float, delta: float) -> float:
    def fits(factor: float) -> bool:
        return _delta_at(costs.scale(factor), epsilon) <= delta

    # Double the upper end until it does not fit.
    low = 0.0
    high = 1.0
    while fits(high):
        low = high
        high = 2 * high

    return bisect(fits, low, high, relative=1e-6)


def bisect(
    fits: Callable[[float], bool],
    low: float,
    high: float,
    relative: float = 0.0,
    absolute: float = 0.0,
) -> float:
    """Return almost the largest number that fits, never more; ``low`` must fit."""
    # Invariant: low fits and high does not.
    while high - low > relative * high + absolute:
        middle = (low + high) / 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def remaining_epsilon(
    mu: float, charges: Sequence[Charge], epsilon: float, delta: float
) -> float:
    """Epsilon that a schedule may have if other Gaussian releases share its budget.

    Parameters
    ----------
    mu : float
        Cost of the other releases together.
    charges : sequence of Charge
        Charges of the schedule when it has the whole budget.
    epsilon, delta : float
        The budget of all releases; delta in (0, 1).

    Returns
    -------
    float
        Epsilon of the schedule whose costs (without its deltas) are multiplied by a
        factor: the largest of at most 1 with which it stays within the budget together
        with the other releases. It is 0 if there is no such factor.

    Examples
    --------
    For Gaussian releases, a tenth of mu squared leaves nine tenths:

    >>> from pkm.privacy import gaussian_mu
    >>> mu = gaussian_mu(1.0, 1e-6)
    >>> charges = [Charge("sums", 0, "gaussian", mu=mu)]
    >>> rest = remaining_epsilon(mu * math.sqrt(0.1), charges, 1.0, 1e-6)
    >>> round(gaussian_mu(rest, 1e-6) ** 2 / mu**2, 6)
    0.9
    """
    costs = _add_up(charges)
    delta_left = delta - costs.delta
    if delta_left <= 0 or _composed_delta(mu, (), epsilon) > delta_left:
        return 0.0

    def fits(factor: float) -> bool:
        scaled = costs.scale(factor)
        # Gaussian releases of both compose by the root of the sum of squares.
        both = math.hypot(mu, scaled.mu)
        needed = _composed_delta(both, scaled.epsilons, epsilon)
        return needed <= delta_left * (1 + SLACK)

    factor = bisect(fits, 0.0, 1.0, absolute=1e-9)
    return _epsilon_at(costs.scale(factor), delta)


def split_groups(charges: Sequence[Charge]) -> list[list[Charge]]:
    """For each disjoint group, the charges that concern its users."""
    # A charge without a group concerns all users, hence belongs to every group.
    groups = {charge.group for charge in charges} - {None} or {None}
    return [
        [charge for charge in charges if charge.group in (None, group)]
        for group in groups
    ]


def _compose_costs(charges: Sequence[Charge]) -> list[_Costs]:
    """Composed costs for a record, for each disjoint group."""
    return [_add_up(of_group) for of_group in split_groups(charges)]


def _add_up(charges: Sequence[Charge]) -> _Costs:
    """Compose the costs of charges; the order of the charges does not matter."""
    # fsum rounds once. Equal schedules then have equal keys in the caches below.
    mu = math.sqrt(math.fsum([charge.mu**2 for charge in charges]))
    epsilons = sorted([charge.epsilon for charge in charges if charge.epsilon > 0])
    return _Costs(mu, tuple(epsilons), math.fsum([charge.delta for charge in charges]))


def _basic_epsilon(costs: _Costs, delta: float) -> float:
    """Sum of the pure epsilons and of that of the Gaussian releases at ``delta``."""
    return math.fsum(costs.epsilons) + gdp_epsilon(costs.mu, delta)


def _epsilon_at(costs: _Costs, delta: float) -> float:
    """Epsilon that releases need at ``delta``."""
    delta_left = delta - costs.delta
    basic = _basic_epsilon(costs, delta_left)
    if not costs.epsilons or delta_left <= 0:
        return basic
    return _composed_epsilon(costs.mu, costs.epsilons, delta_left, basic)


def _delta_at(costs: _Costs, epsilon: float) -> float:
    """Delta that releases need at ``epsilon``."""
    return costs.delta + _composed_delta(costs.mu, costs.epsilons, epsilon)


@lru_cache(maxsize=4096, typed=True)
def _composed_epsilon(
    mu: float, epsilons: tuple[float, ...], delta: float, basic: float
) -> float:
    """Smallest epsilon at ``delta``, between 0 and that of basic composition."""
    if _composed_delta(mu, epsilons, 0.0) <= delta:
        return 0.0
    # Basic composition is always enough; only rounding can make it seem not to be.
    if _composed_delta(mu, epsilons, basic) >= delta:
        return basic
    return find_root(
        lambda epsilon: _composed_delta(mu, epsilons, epsilon) - delta,
        0.0,
        basic,
        xtol=1e-14,
        rtol=1e-12,
    )


@lru_cache(maxsize=4096, typed=True)
def _composed_delta(
    mu: float,
    epsilons: tuple[float, ...],
    epsilon: float,
) -> float:
    """Delta at ``epsilon`` of Gaussian and pure releases together.

    Cached, because schedules are run many times.
    """
    if not epsilons:
        return gdp_delta(mu, epsilon)
    # A pure release is at worst randomized response: its answer is true with odds
    # exp(epsilon_i) : 1 (Kairouz, Oh, Viswanath 2015), and its privacy loss is
    # epsilon_i or -epsilon_i. Sums of such losses have few values. Given one of them,
    # the expectation delta = E[max(0, 1 - exp(epsilon - loss))] over the Gaussian loss
    # has a closed form.
    losses, probabilities = _pure_losses(epsilons)
    if mu == 0:
        deltas = -np.expm1(np.minimum(epsilon - losses, 0.0))
    else:
        remaining = epsilon - losses
        # Terms of gdp_delta at the remaining epsilons, which may be negative. Rounding
        # may make the difference negative, which is cut off below.
        first = ndtr(mu / 2 - remaining / mu)
        second = np.exp(np.minimum(remaining + log_ndtr(-remaining / mu - mu / 2), 0.0))
        deltas = first - second
    return math.fsum(probabilities * np.maximum(deltas, 0.0))


@lru_cache(maxsize=64)
def _pure_losses(epsilons: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Privacy loss distribution of worst-case pure releases: values, probabilities."""
    from scipy.stats import binom  # takes longer to import than all else here

    losses = np.zeros(1)
    probabilities = np.ones(1)
    for epsilon in sorted(set(epsilons)):
        # Convolve with the loss of n releases at the same epsilon: n_true of them
        # answer truly, which is binomial, and the loss is (n_true - (n - n_true))
        # epsilon.
        n = epsilons.count(epsilon)
        n_true = np.arange(n + 1)
        losses = np.add.outer(losses, epsilon * (2.0 * n_true - n)).ravel()
        probabilities = np.outer(
            probabilities, binom.pmf(n_true, n, expit(epsilon))
        ).ravel()

        # Round losses up to multiples of a small step: delta can only grow.
        if len(losses) > MAX_LOSSES:
            step = np.ptp(losses) / MAX_LOSSES
            levels = np.ceil((losses - losses.min()) / step).astype(np.int64)
            probabilities = np.bincount(levels, probabilities)
            losses = losses.min() + step * np.arange(len(probabilities))
    return losses, probabilities
