"""A method with a zoom: first find a smaller domain, then run the method in it."""

from dataclasses import dataclass
from functools import cached_property
from typing import cast

from sklearn.base import clone

from pkm.methods.contract import ClusteringMethod
from pkm.methods.schedule import Schedule
from pkm.methods.zoom import Zoom, ZoomPlan, find_domain
from pkm.privacy import Curator, remaining_epsilon
from pkm.privacy.ledger import bisect

EPSILON_TOLERANCE = 1e-4  # relative, of the bisection for the remaining epsilon


@dataclass(frozen=True)
class ZoomedMethod:
    """A method on points of a given shape, with its zoom if it has one.

    Parameters
    ----------
    method : ClusteringMethod
    n_points, n_features : int
    """

    method: ClusteringMethod
    n_points: int
    n_features: int

    @cached_property
    def plan(self) -> ZoomPlan | None:
        """The releases of the zoom; None without a zoom or without budget for it.

        Raises
        ------
        ValueError
            If the budget is too small and ``require_zoom`` is set.
        """
        method = self.method
        plan = self._requested_plan
        if plan is None or self._remaining_epsilon > 0:
            return plan
        if method.require_zoom:
            raise ValueError(
                f"zoom={method.zoom:g} leaves nothing of epsilon={method.epsilon:g} "
                "and its delta: take a smaller zoom, or require_zoom=False"
            )
        return None

    @cached_property
    def method_after_zoom(self) -> ClusteringMethod:
        """The method with the rest of the budget; the method itself without a zoom."""
        if self.plan is None:
            return self.method
        return self._with_epsilon(self._remaining_epsilon).freeze_schedule(self.plan)

    @cached_property
    def schedule(self) -> Schedule:
        """All releases of a replicate: those of the zoom, then those of the method."""
        return self._schedule_with(self.method_after_zoom, self.plan)

    def find_domain(self, curator: Curator) -> tuple[Curator, Zoom | None]:
        """Find the domain of a curator's points, if there is a zoom.

        Parameters
        ----------
        curator : Curator
            Curator of one replicate, if there is a zoom.

        Returns
        -------
        curator : Curator
            Curator of the domain that was found, or of the public one.
        zoom : Zoom or None
            None if the domain is the public one.
        """
        method = self.method
        if self.plan is None:
            if method.zoom and curator._ledger is not None:
                curator._ledger.note(
                    f"zoom={method.zoom:g}: the public guard left it out, because "
                    f"epsilon={method.epsilon:g} is too little for n={self.n_points} "
                    "records"
                )
            return curator, None
        if not isinstance(curator, Curator):
            raise ValueError(
                f"zoom={method.zoom:g} needs a curator that holds all points, and "
                f"{type(curator).__name__} does not: leave zoom out"
            )
        zoom = find_domain(curator, self.plan, compress=method.compresses_tails)
        if zoom is None:
            curator.persist_points()
            return curator, None
        return curator.rescale(zoom.center, zoom.half_width, zoom.scale), zoom

    @cached_property
    def _requested_plan(self) -> ZoomPlan | None:
        """The zoom of the method, even if it leaves no budget."""
        return self.method.zoom_plan(self.n_points, self.n_features)

    def _with_epsilon(self, epsilon: float) -> ClusteringMethod:
        """Copy the method with another epsilon, and without a zoom."""
        copied = cast("ClusteringMethod", clone(self.method))
        return copied.set_params(zoom=None, require_zoom=False, epsilon=epsilon)

    def _schedule_with(
        self,
        method: ClusteringMethod,
        plan: ZoomPlan | None,
    ) -> Schedule:
        schedule = method.schedule(self.n_points, self.n_features)
        if plan is None:
            return schedule
        return Schedule(*plan.releases, *schedule.releases)

    @cached_property
    def _remaining_epsilon(self) -> float:
        """Epsilon of the method at the rest of the budget; 0 if nothing remains."""
        # Laplace noise: epsilons add up. Gaussian noise: costs are composed.
        method = self.method
        plan = self._requested_plan
        budget = method.budget(self.n_points, self.n_features)
        assert plan is not None, "there is a zoom"
        assert budget is not None, "a zoom is of private methods"
        if plan.pure:
            epsilon = (1 - plan.share) * method.epsilon
        else:
            charges = method.schedule(self.n_points, self.n_features).charges
            epsilon = remaining_epsilon(plan.mu, charges, budget.epsilon, budget.delta)
        if epsilon == 0:
            return 0.0

        def fits(epsilon: float) -> bool:
            return self._schedule_with(self._with_epsilon(epsilon), plan).fits(budget)

        if fits(epsilon):
            return epsilon

        # If costs are not proportional to epsilon, or the budget of a published variant
        # is another one, it must be less: bisect.
        return bisect(fits, 0.0, epsilon, relative=EPSILON_TOLERANCE)
