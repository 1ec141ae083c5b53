"""A method with what takes a share of its budget: bounds and a zoom, a report."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from sklearn.base import clone

from pkm.methods.contract import ClusteringMethod
from pkm.methods.inputs import resolve_bounds
from pkm.methods.private_bounds import BoundsPlan, find_bounds, plan_bounds
from pkm.methods.report import ReportPlan, plan_report
from pkm.methods.schedule import Schedule, SharePlan
from pkm.methods.zoom import Zoom, ZoomPlan, find_domain
from pkm.privacy import Curator, remaining_epsilon
from pkm.privacy.ledger import bisect

EPSILON_TOLERANCE = 1e-4  # relative, of the bisection for the remaining epsilon


@dataclass(frozen=True)
class PlannedMethod:
    """A method on points of a given shape, with the releases before and after it.

    Bounds are found first, where there are none, and then a zoom. A report comes last.

    Parameters
    ----------
    method : ClusteringMethod
    n_points, n_features : int
    """

    method: ClusteringMethod
    n_points: int
    n_features: int

    @cached_property
    def bounds(self) -> BoundsPlan | None:
        """The releases that find bounds; None where all columns have some.

        Raises
        ------
        ValueError
            If the budget is too small.
        """
        method = self.method
        if method.bounds is None:
            return None
        declared = resolve_bounds(method, self.n_features)
        columns = () if declared is None else np.flatnonzero(np.isinf(declared[1]))
        if not len(columns):
            return None
        return plan_bounds(
            [int(column) for column in columns],
            self.n_points,
            method.epsilon,
            method.resolved_delta(self.n_points),
        )

    @cached_property
    def zoom(self) -> ZoomPlan | None:
        """The releases of the zoom; None without a zoom or without budget for it.

        Raises
        ------
        ValueError
            If the budget is too small and ``require_zoom`` is set.
        """
        method = self.method
        plan = method.zoom_plan(self.n_points, self.n_features)
        if plan is None or self._divide_budget(plan)[0] > 0:
            return plan
        if method.require_zoom:
            raise ValueError(
                f"zoom={method.zoom:g} leaves nothing of epsilon={method.epsilon:g} "
                "and its delta: take a smaller zoom, or require_zoom=False"
            )
        return None

    @property
    def report(self) -> ReportPlan | None:
        """The releases of the report; None without a report."""
        return self._division[1]

    @cached_property
    def method_with_rest(self) -> ClusteringMethod:
        """The method with the rest of the budget; itself if nothing else has a share.

        Raises
        ------
        ValueError
            If the report leaves nothing.
        """
        epsilon, report = self._division
        if self.bounds is None and self.zoom is None and report is None:
            return self.method
        if epsilon == 0:
            raise ValueError(
                f"report={self.method.report!r} leaves nothing of "
                f"epsilon={self.method.epsilon:g} and its delta: take a smaller report"
            )
        method = self._with_epsilon(epsilon)
        return method if self.zoom is None else method.freeze_schedule(self.zoom)

    @cached_property
    def schedule(self) -> Schedule:
        """All releases of a replicate: bounds, zoom, method, report."""
        return self._schedule_with(self.method_with_rest, self.zoom, self.report)

    def find_bounds(self, curator: Curator) -> Curator:
        """Find bounds where there are none; return a curator of the points in them.

        Parameters
        ----------
        curator : Curator
            Curator of one replicate, if there is a plan.
        """
        if self.bounds is None:
            return curator
        curator = find_bounds(curator, self.bounds)
        if curator._ledger is not None:
            numbers = ", ".join([str(column + 1) for column in self.bounds.columns])
            curator._ledger.note(
                f"the bounds of columns {numbers} are not public: they were released"
            )
        # With a zoom the points are quantized again, in the domain that it finds.
        if self.zoom is None:
            curator.persist_points()
        return curator

    def find_domain(self, curator: Curator) -> tuple[Curator, Zoom | None]:
        """Find the domain of a curator's points, if there is a zoom.

        Parameters
        ----------
        curator : Curator
            Curator of one replicate, if there is a zoom or a report.

        Returns
        -------
        curator : Curator
            Curator of the domain that was found, or of the public one.
        zoom : Zoom or None
            None if the domain is the public one.
        """
        method = self.method
        for name in ("zoom", "report"):
            is_planned = getattr(self, name) is not None
            if is_planned and not isinstance(curator, Curator):
                raise ValueError(
                    f"{name}={getattr(method, name):g} needs a curator that holds all "
                    f"points, and {type(curator).__name__} does not: leave {name} out"
                )
        if self.zoom is None:
            if method.zoom and curator._ledger is not None:
                curator._ledger.note(
                    f"zoom={method.zoom:g}: the public guard left it out, because "
                    f"epsilon={method.epsilon:g} is too little for n={self.n_points} "
                    "records"
                )
            return curator, None
        zoom = find_domain(curator, self.zoom, compress=method.compresses_tails)
        if zoom is None:
            curator.persist_points()
            return curator, None
        return curator.rescale(zoom.center, zoom.half_width, zoom.scale), zoom

    def _with_epsilon(self, epsilon: float) -> ClusteringMethod:
        """Copy the method with another epsilon, without a zoom and a report."""
        copied = cast("ClusteringMethod", clone(self.method))
        return copied.set_params(
            zoom=None,
            require_zoom=False,
            report=None,
            epsilon=epsilon,
        )

    def _schedule_with(
        self,
        method: ClusteringMethod,
        zoom: ZoomPlan | None,
        report: ReportPlan | None,
    ) -> Schedule:
        schedule = method.schedule(self.n_points, self.n_features)
        plans = self.bounds, zoom, report
        if plans == (None, None, None):
            return schedule
        # The order in which they are drawn: a charge out of order is refused.
        bounds, domain, after = [plan.releases if plan else () for plan in plans]
        return Schedule(*bounds, *domain, *schedule.releases, *after)

    @cached_property
    def _division(self) -> tuple[float, ReportPlan | None]:
        return self._divide_budget(self.zoom)

    def _divide_budget(self, zoom: ZoomPlan | None) -> tuple[float, ReportPlan | None]:
        """Epsilon of the method beside all else, and the plan of the report.

        It is 0 if nothing remains.
        """
        method = self.method
        report = None
        before: list[SharePlan] = [plan for plan in (self.bounds, zoom) if plan]
        if not before and not method.report:
            return method.epsilon, None
        shape = self.n_points, self.n_features
        budget = method.budget(*shape)
        assert budget is not None, "a zoom and a report are of private methods"
        charges = method.schedule(*shape).charges
        if method.report:
            # If other noise is Gaussian, that of the report is too: Gaussian costs
            # compose to less than their sum.
            others = [
                *charges,
                *[charge for plan in before for charge in plan.releases],
            ]
            report = plan_report(
                method.report,
                self.n_features,
                method.epsilon,
                method.resolved_delta(self.n_points),
                pure=not any(charge.mu for charge in others),
            )

        # Laplace noise: epsilons add up. Gaussian noise: costs are composed.
        plans = before if report is None else [*before, report]
        mu = math.hypot(*[plan.mu for plan in plans])
        if mu == 0:
            taken = math.fsum([plan.share for plan in plans])
            epsilon = max(0.0, (1 - taken) * method.epsilon)
        else:
            epsilon = remaining_epsilon(mu, charges, budget.epsilon, budget.delta)

        def fits(epsilon: float) -> bool:
            rest = self._with_epsilon(epsilon)
            return self._schedule_with(rest, zoom, report).fits(budget)

        # If costs are not proportional to epsilon, or the budget of a published variant
        # is another one, it must be less: bisect.
        if epsilon > 0 and not fits(epsilon):
            epsilon = bisect(fits, 0.0, epsilon, relative=EPSILON_TOLERANCE)
        return epsilon, report
