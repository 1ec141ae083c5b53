"""A method under add-remove adjacency: the number of records n is secret.

A share of the budget is spent on n. The method then runs with the rest of the budget,
and takes the released n for the exact one.

The method's releases are planned from the released n. So their costs are chosen
adaptively, and privacy needs a bound on them that holds for every n. If all noise of
the method is Gaussian, n has a share of mu squared, and the bound is the rest: Gaussian
releases may be chosen adaptively. Otherwise n has Laplace noise and a share of epsilon,
and the bound is the rest of epsilon and all of delta: basic composition. There Gaussian
noise on n would cost more. What a ledger says is spent is the cost of a schedule that
is fixed in advance; the guarantee is the budget.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from sklearn.base import clone

from pkm.methods.contract import ClusteringMethod
from pkm.methods.planned import PlannedMethod
from pkm.methods.report import CONFIDENCE
from pkm.methods.schedule import counting_noise, plan_release
from pkm.privacy import (
    SCALE,
    Adjacency,
    Budget,
    Charge,
    Curator,
    Gaussian,
    Laplace,
    Ledger,
    RecordCount,
    ScheduleError,
    gaussian_mu,
    gdp_epsilon,
)

SHARE = 0.02  # of the budget, for n
# A number of records with which a schedule has every kind of release that it may have.
MANY_RECORDS = 10**9


@dataclass(frozen=True)
class CountedMethod:
    """A method whose number of records is released first.

    Parameters
    ----------
    method : ClusteringMethod
        Under add-remove adjacency.
    n_features : int
    """

    method: ClusteringMethod
    n_features: int

    @cached_property
    def charges(self) -> tuple[Charge, Charge]:
        """Charge of n, and the bound on the cost of all later releases.

        Raises
        ------
        ValueError
            If the sensitivity of a release that may follow is derived for an exact n.
        """
        count, bound = self._divide_budget()
        labels = {charge.label for charge in self._list_charges(bound)}
        for query in self.method.curator.serves:
            if Adjacency.ADD_REMOVE in query.adjacencies:
                labels.discard(query.label)
        if labels:
            raise ValueError(
                f"adjacency={Adjacency.ADD_REMOVE} is not supported by "
                f"{type(self.method).__name__}: the sensitivity of "
                f"{', '.join(sorted(labels))} is derived for an exact n"
            )
        return count, bound

    @property
    def possible_charges(self) -> Sequence[Charge]:
        """Charge of n, and one of every kind of release that may follow."""
        count, bound = self.charges
        return count, *self._list_charges(bound)

    def release(self, curator: Curator, ledger: Ledger) -> PlannedMethod:
        """Release n, and plan the method from it; the ledger accepts nothing else.

        Raises
        ------
        ScheduleError
            If the method may cost more than its bound.
        """
        count, bound = self.charges
        # From here on the curator's n is the released one.
        curator.release(RecordCount(), counts=counting_noise(count))
        planned = self._plan(bound, curator.n_points)
        planned.method.check_parameters(curator.n_points)
        charges = planned.schedule.charges
        delta = ledger.budget.delta
        epsilon = gdp_epsilon(bound.mu, delta) if bound.mu > 0 else bound.epsilon
        # Costs that follow a released n are adaptive: a bound must hold for every n.
        is_bounded = planned.schedule.fits(Budget(epsilon, delta))
        if not is_bounded or (bound.mu > 0 and not _are_gaussian(charges)):
            raise ScheduleError(
                f"what follows n={curator.n_points} costs more than {bound.to_dict()}, "
                "its bound for every n"
            )
        ledger.schedule = [count, *charges]
        return planned

    def _divide_budget(self) -> tuple[Charge, Charge]:
        """Divide the budget: the charge of n, and the bound on later releases."""
        # Any n would do: methods whose delta follows from n are refused.
        budget = self.method.budget(MANY_RECORDS, self.n_features)
        assert budget is not None, "n is released by private methods"
        epsilon = budget.epsilon
        delta = budget.delta
        if delta > 0:
            mu = gaussian_mu(epsilon, delta)
            rest_mu = math.sqrt(1 - SHARE) * mu
            bound = Charge("rest", 0, "gaussian", mu=rest_mu)
            has_rest = gdp_epsilon(rest_mu, delta) > 0
            if has_rest and _are_gaussian(self._list_charges(bound)):
                count = plan_release(RecordCount, Gaussian, mu=math.sqrt(SHARE) * mu)
                return count, bound
        count = plan_release(RecordCount, Laplace, epsilon=SHARE * epsilon)
        rest = (1 - SHARE) * epsilon
        return count, Charge("rest", 0, "any", epsilon=rest, delta=delta)

    def _list_charges(self, bound: Charge) -> Sequence[Charge]:
        """Charges of the method after a large n, within a bound."""
        return self._plan(bound, MANY_RECORDS).schedule.charges

    def _plan(self, bound: Charge, n_points: int) -> PlannedMethod:
        """Plan the method after the release of n, within a bound."""
        method = self.method
        epsilon = (1 - SHARE) * method.epsilon
        if bound.mu > 0:
            epsilon = gdp_epsilon(bound.mu, method.resolved_delta(n_points))
        # With the released n the method runs as if n were public.
        rest = cast("ClusteringMethod", clone(method))
        rest.set_params(epsilon=epsilon, adjacency=Adjacency.ZERO_OUT.value)
        return PlannedMethod(rest, n_points, self.n_features)


def _are_gaussian(charges: Sequence[Charge]) -> bool:
    """Whether all noise is Gaussian, without a probability of failure."""
    return not any(charge.epsilon or charge.delta for charge in charges)


def count_interval(n_points: int, ledger: Ledger | None) -> tuple[float, float]:
    """Interval about a released number of records that holds the exact one in 95 %.

    Both ends are the number where it is public.

    Examples
    --------
    >>> count_interval(7, None)
    (7, 7)
    """
    if ledger is None or ledger.budget.adjacency != Adjacency.ADD_REMOVE:
        return n_points, n_points
    # Scales are public, so that the interval costs nothing.
    width = counting_noise(ledger.charges[0]).margin_of_error(CONFIDENCE) / SCALE
    # The number is rounded.
    return n_points - width - 0.5, n_points + width + 0.5
