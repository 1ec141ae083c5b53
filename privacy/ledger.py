"""The ledger: what every release costs, written down before the noise is drawn.

Gaussian releases are kept as mu and composed in closed form; a pure release is at worst a biased coin, and coins are
composed by listing the sums of their privacy losses. A mixture of both is exact for up to :data:`MAX_LOSSES` sums and
errs on the safe side beyond.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr, ndtr
from scipy.stats import binom

from pkm.privacy.budget import Budget
from pkm.privacy.calibration import gdp_delta, gdp_epsilon

SLACK = 1e-9  # relative room for rounding in sums of charges
MAX_LOSSES = 1 << 17


class BudgetExceeded(RuntimeError):
    """A release would cost more than is left; nothing was drawn."""


class StreamReuseError(RuntimeError):
    """A release asked for a noise stream that another release has used; nothing was drawn."""


@dataclass(frozen=True)
class Charge:
    """The cost of one release.

    Parameters
    ----------
    label : str
        The query's name.
    round : int
        How many releases of this label came before.
    mechanism : str
    mu : float, default=0
        Cost of Gaussian noise: L2 sensitivity over standard deviation.
    epsilon : float, default=0
        Cost of a pure mechanism.
    delta : float, default=0
        Probability of failure charged beside it.
    details : mapping
        Scales and sensitivities that the cost was computed from.
    flaw : str, default=""
        Where the cost is what a paper claims and is known not to hold: the flaw's id in ``analysis/flaws.yaml``.
    group : int, optional
        Number of the users that the release concerns, where users are dealt out into disjoint groups; None for all.

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

    def __post_init__(self):
        for name in ("mu", "epsilon", "delta"):
            cost = getattr(self, name)
            if not 0 <= cost < math.inf:
                raise ValueError(f"{name}={cost} of a charge must be finite and not negative")

    def to_dict(self) -> dict:
        """Return a flat, JSON-ready record; ``loss`` is mu or epsilon."""
        loss = {"loss": self.mu or self.epsilon, "delta": self.delta}
        flaw = {"flaw": self.flaw} if self.flaw else {}
        group = {} if self.group is None else {"group": self.group}
        return {
            **{"mechanism": self.mechanism, "label": self.label, "round": self.round},
            **loss, **self.details, **flaw, **group,
        }  # fmt: skip


class Ledger:
    """Account of one run; a batch of replicates shares it, because their schedules are the same.

    Parameters
    ----------
    budget : Budget
        What must not be exceeded.

    Attributes
    ----------
    charges : tuple of Charge

    Notes
    -----
    The scales of all releases must be fixed before the first one, as they are in every method here; Gaussian releases
    alone may also be chosen adaptively.

    Examples
    --------
    >>> ledger = Ledger(Budget(1.0))
    >>> ledger.charge(Charge("count", 0, "laplace", epsilon=0.75))
    >>> ledger.spent(), ledger.unspent()
    (0.75, 0.25)
    """

    def __init__(self, budget: Budget):
        self.budget = budget
        self.charges: tuple[Charge, ...] = ()

    def charge(self, charge: Charge) -> None:
        """Record a release, or refuse it.

        Raises
        ------
        BudgetExceeded
            If delta at the budget's epsilon would exceed the budget's delta.
        StreamReuseError
            If a release of the same label and round is on record: its noise stream is used up.
        """
        if any((c.label, c.round) == (charge.label, charge.round) for c in self.charges):
            raise StreamReuseError(
                f"release {charge.label!r} round {charge.round} was made before; noise must be fresh"
            )
        charges = (*self.charges, charge)
        if any(each.epsilon for each in charges) and self._fits_plainly(charges):
            self.charges = charges
            return
        needed = _delta_at(charges, self.budget.epsilon * (1 + SLACK))
        if not needed <= self.budget.delta * (1 + SLACK):
            raise BudgetExceeded(
                f"release {charge.label!r} round {charge.round} would need delta={needed:.3g} at "
                f"epsilon={self.budget.epsilon:.6g}, the budget has delta={self.budget.delta:.3g}"
            )
        self.charges = charges

    def _fits_plainly(self, charges) -> bool:
        """Tell whether the plain sum is within the budget: cheaper than a composition, and mostly enough."""
        return all(self._fits_one_plainly(*tally) for tally in _tallies(charges))

    def _fits_one_plainly(self, mu: float, epsilons: tuple[float, ...], delta: float) -> bool:
        room = self.budget.delta - delta
        if mu > 0 and room <= 0:
            return False
        return room >= 0 and math.fsum(epsilons) + gdp_epsilon(mu, room) <= self.budget.epsilon

    def delta_at(self, epsilon: float) -> float:
        """Delta that the releases so far need at ``epsilon``."""
        return _delta_at(self.charges, epsilon)

    def spent(self) -> float:
        """Epsilon that the releases so far need at the budget's delta; of disjoint groups, what the worst one needs."""
        return max(self._spent(*tally) for tally in _tallies(self.charges))

    def _spent(self, mu: float, epsilons: tuple[float, ...], delta: float) -> float:
        room = self.budget.delta - delta
        plain = math.fsum(epsilons) + gdp_epsilon(mu, room)
        return plain if not epsilons or room <= 0 else _composed_epsilon(mu, epsilons, room, plain)

    def unspent(self) -> float:
        """Epsilon of the budget that is left at its delta."""
        return max(0.0, self.budget.epsilon - self.spent())


def largest_multiple(
    mus: Sequence[float], epsilons: Sequence[float], epsilon: float, delta: float
) -> float:
    """Largest factor by which the costs of a schedule can be multiplied so that together they stay within a budget.

    Parameters
    ----------
    mus, epsilons : sequence of float
        Costs of the Gaussian and of the pure releases, up to the factor.
    epsilon, delta : float
        The budget; delta in (0, 1).

    Returns
    -------
    float
        To a relative precision of 1e-6, from below.

    Raises
    ------
    ValueError
        If there is nothing to multiply.

    Examples
    --------
    >>> round(largest_multiple([0.2, 0.1], [], 1.0, 1e-6) * math.hypot(0.2, 0.1), 4)  # gaussian_mu(1.0, 1e-6)
    0.2367
    """
    if not any((*mus, *epsilons)):
        raise ValueError("mus and epsilons must not all be zero")
    return _largest_multiple(
        math.sqrt(math.fsum(mu**2 for mu in mus)), tuple(epsilons), epsilon, delta
    )


@lru_cache(maxsize=1024)
def _largest_multiple(
    mu: float, epsilons: tuple[float, ...], epsilon: float, delta: float
) -> float:
    def fits(factor: float) -> bool:
        return (
            _composed_delta(factor * mu, tuple(sorted(factor * e for e in epsilons)), epsilon)
            <= delta
        )

    low, high = 0.0, 1.0
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@lru_cache(maxsize=4096)
def _composed_epsilon(mu: float, epsilons: tuple[float, ...], delta: float, plain: float) -> float:
    """Smallest epsilon at ``delta``, between 0 and the plain sum."""
    if _composed_delta(mu, epsilons, 0.0) <= delta:
        return 0.0
    if (
        _composed_delta(mu, epsilons, plain) >= delta
    ):  # only by rounding: the plain sum is always enough
        return plain
    return brentq(
        lambda epsilon: _composed_delta(mu, epsilons, epsilon) - delta,
        0.0,
        plain,
        xtol=1e-14,
        rtol=1e-12,
    )


def _tallies(charges) -> list[tuple[float, tuple[float, ...], float]]:
    """What concerns one record, for each disjoint group: mu, the pure epsilons, delta."""
    groups = {charge.group for charge in charges if charge.group is not None} or {None}
    return [_tally([each for each in charges if each.group in (None, group)]) for group in groups]


def _tally(charges) -> tuple[float, tuple[float, ...], float]:
    mu = math.sqrt(math.fsum(c.mu**2 for c in charges))
    return (
        mu,
        tuple(sorted(c.epsilon for c in charges if c.epsilon > 0)),
        math.fsum(c.delta for c in charges),
    )


def _delta_at(charges, epsilon: float) -> float:
    return max(
        delta + _composed_delta(mu, epsilons, epsilon) for mu, epsilons, delta in _tallies(charges)
    )


@lru_cache(maxsize=4096)
def _composed_delta(mu: float, epsilons: tuple[float, ...], epsilon: float) -> float:
    """Delta at ``epsilon`` of Gaussian and pure releases together; remembered, for schedules are run many times.

    A pure release is at worst a coin that shows the record with odds exp(epsilon_i) : 1 (Kairouz, Oh, Viswanath 2015),
    whose privacy loss is epsilon_i or -epsilon_i. Their sums have few values, and given one of them the rest is
    Gaussian in closed form.
    """
    if not epsilons:
        return gdp_delta(mu, epsilon)
    losses, probabilities = _coin_losses(epsilons)
    if mu == 0:
        deltas = -np.expm1(np.minimum(epsilon - losses, 0.0))
    else:
        rest = epsilon - losses
        # 1 - exp(log ...) would cancel where both terms are tiny; the difference of the two terms does not go negative.
        deltas = ndtr(mu / 2 - rest / mu) - np.exp(
            np.minimum(rest + log_ndtr(-rest / mu - mu / 2), 0.0)
        )
    return math.fsum(probabilities * np.maximum(deltas, 0.0))


@lru_cache(maxsize=64)
def _coin_losses(epsilons: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Values and probabilities of the summed privacy loss of worst-case pure releases."""
    losses, probabilities = np.zeros(1), np.ones(1)
    for value in sorted(set(epsilons)):
        times = epsilons.count(value)
        heads = np.arange(times + 1)
        losses = np.add.outer(losses, value * (2.0 * heads - times)).ravel()
        probabilities = np.outer(probabilities, binom.pmf(heads, times, expit(value))).ravel()
        if len(losses) > MAX_LOSSES:
            # Losses are rounded up to multiples of a small step: never in favor of the claim.
            step = np.ptp(losses) / MAX_LOSSES
            levels = np.ceil((losses - losses.min()) / step).astype(np.int64)
            probabilities = np.bincount(levels, probabilities)
            losses = losses.min() + step * np.arange(len(probabilities))
    return losses, probabilities
