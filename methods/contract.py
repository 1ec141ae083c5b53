"""The contract of a clustering method: what it declares, and what it implements."""

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from pkm.methods.constraints import (
    AUTO,
    FLAG,
    NONE,
    Constraint,
    Integer,
    OneOf,
    Parameters,
    Real,
)
from pkm.methods.deltas import MAX_DELTA, SOUND_DELTA, inverse_n_log_n
from pkm.methods.schedule import Schedule
from pkm.methods.zoom import ZoomPlan, insufficient_budget, plan_zoom
from pkm.privacy import Adjacency, Budget, Curator, PrivacyClaim
from pkm.privacy.query import ONE_RECORD_ADJACENCIES

# With a larger epsilon, rounding in float64 can raise the charges above the budget.
MAX_EPSILON = 1e15


class ClusteringMethod(Parameters):
    """Declarations of a method, and what follows from them; see :class:`PrivateKMeans`.

    A method declares ``claims`` and its parameters, as fields or with an ``__init__``
    of its own. It implements ``cluster``, which queries a curator and has no access to
    points, and ``schedule``, which lists the releases of ``cluster``.
    """

    # Style in figures: name in legends, color, marker (empty: none).
    label: ClassVar[str] = ""
    color: ClassVar[str] = ""
    marker: ClassVar[str] = ""
    #: Privacy claim of each variant.
    claims: ClassVar[dict[str, PrivacyClaim]]
    constraints: ClassVar[dict[str, Constraint | None]] = {
        "n_clusters": Integer(1),
        "bounds": None,
        "random_state": NONE | Integer(0, note="a key, not drawn from a generator"),
        "clip": FLAG,
        "secure": FLAG,
        "zoom": NONE | Real(0, 1, "[)", noun="a share of the budget"),
        "require_zoom": FLAG,
        "report": NONE | Real(0, 1, "[)", noun="a share of the budget"),
        "adjacency": OneOf(*map(str, ONE_RECORD_ADJACENCIES)),
        "missing": NONE | OneOf("middle"),
        "epsilon": Real(0),
        "delta": AUTO | Real(0, MAX_DELTA),
    }
    #: Value of delta="auto" for published variants, a function of n.
    published_delta: ClassVar[Callable[[int], float]] = staticmethod(inverse_n_log_n)
    #: Class of curator for the adjacency of the claim.
    curator: ClassVar[type] = Curator
    #: Whether one call of ``cluster`` runs all replicates; otherwise each has a call.
    batched: ClassVar[bool] = True
    #: Whether noise is smaller in a ball that holds all points than in a box.
    benefits_from_ball: ClassVar[bool] = False
    #: Whether a zoom compresses what is outside of the domain, and does not clip it.
    compresses_tails: ClassVar[bool] = False
    #: Whether a method without privacy serves rows with weights; of a private one its
    #: queries say so.
    serves_weights: ClassVar[bool] = False
    #: Whether all queries are sums over points: ``fit`` can then read points in chunks.
    supports_chunks: ClassVar[bool] = False
    #: Defaults of parameters that were added to the method later. At its default such a
    #: parameter is not in the context of the noise streams, so that noise is unchanged.
    noise_context_defaults: ClassVar[dict[str, object]] = {}

    n_clusters: int = field(default=8, kw_only=False)
    bounds: ArrayLike | None = None
    clip: bool = True
    random_state: int | None = None
    zoom: float | None = None
    require_zoom: bool = False
    report: float | None = None
    secure: bool = False
    adjacency: str = "zero_out"
    missing: str | None = None

    @classmethod
    def unavailable(cls) -> str | None:
        """Say why the method cannot run here, and what to do; None if it can."""
        return None

    @property
    def claim(self) -> PrivacyClaim:
        """The claim of the chosen variant."""
        if self.variant not in self.claims:
            self.check_values()
        claim = self.claims[self.variant]
        if not self.hides_n:
            return claim
        public = tuple(name for name in claim.public if name != "n")
        return replace(claim, adjacency=Adjacency.ADD_REMOVE, public=public)

    @property
    def planned_clusters(self) -> int:
        """Public number of clusters that releases are planned for."""
        return self.n_clusters

    @property
    def hides_n(self) -> bool:
        """Whether the number of records is secret, and released by the method."""
        return self.adjacency == Adjacency.ADD_REMOVE

    def cluster(
        self, curator: Curator
    ) -> tuple[np.ndarray | Sequence[np.ndarray], int, *tuple[Any, ...]]:
        """Run the curator's replicates.

        Returns
        -------
        centers : ndarray of shape (R, k, d), int64, or R of shape (k_r, d)
            On the grid.
        n_iter : int
            Number of iterations.
        synopsis : object, optional
            Of the last replicate: a private summary of the points, such as weighted
            boxes, or what else comes with its centers.
        """
        raise NotImplementedError(f"{type(self).__name__} must define cluster(curator)")

    def schedule(
        self,
        n_points: int,
        n_features: int,
    ) -> Schedule:
        """Plan all releases of ``cluster`` for one replicate, from public quantities.

        An account and a zoom need the schedule of a private method.
        """
        if not self.claim.private:
            return Schedule()
        raise NotImplementedError(
            f"{type(self).__name__} must define schedule(n_points, n_features): a zoom "
            "and an account need it"
        )

    def freeze_schedule(self, plan: ZoomPlan) -> Self:
        """Return a method whose schedule is the same for all domains of a zoom."""
        return self

    def budget(
        self,
        n_points: int,
        n_features: int,
    ) -> Budget | None:
        """Budget of a run on points of that shape; None without a privacy claim."""
        self.check_features(n_features)
        claim = self.claim
        if not claim.private:
            return None
        return _budget(self.epsilon, self.resolved_delta(n_points), claim.adjacency)

    def resolved_delta(self, n_points: int) -> float:
        """Delta of a run: 0 if pure, the parameter, or the variant's for ``"auto"``."""
        if self.claim.notion == "pure":
            return 0.0
        if self.delta != "auto":
            return self.delta
        if self.variant == "sound":
            return SOUND_DELTA
        return self.published_delta(n_points)

    @property
    def can_find_bounds(self) -> bool:
        """Whether bounds that are infinite are found privately."""
        claim = self.claim
        is_central = issubclass(self.curator, Curator)
        has_public_n = claim.adjacency == Adjacency.ZERO_OUT
        return claim.private and has_public_n and is_central and self.clip

    @property
    def max_zoom(self) -> float:
        """Largest share of the budget for a zoom, where ``zoom`` is too little."""
        return 0.0

    @property
    def needs_remainders(self) -> bool:
        """Whether a query reads the remainders of rounding points to the grid."""
        return bool(self.zoom)

    def check_features(self, n_features: int) -> None:
        """Refuse points of more features than the method serves, before any work."""

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters before any work.

        Raises
        ------
        ValueError
            With the parameter's name, its value and the rule.
        """
        self.check_values()
        if self.hides_n:
            self._refuse_exact_n()
            n_points = None
        planned = self.planned_clusters
        if n_points is not None and planned > n_points:
            name = "max_clusters" if self.n_clusters == "auto" else "n_clusters"
            raise ValueError(
                f"{name}={planned} must be at most the number of points n={n_points}"
            )
        is_private = self.claim.private
        if is_private and 1.0 + self.epsilon == 1.0:
            raise ValueError(
                f"epsilon={self.epsilon!r} is too small: in float64 exp(epsilon) is 1"
            )
        if is_private and self.epsilon > MAX_EPSILON:
            raise ValueError(
                f"epsilon={self.epsilon!r} must be at most {MAX_EPSILON:g}: lower it, "
                "or take a method without privacy, such as Lloyd"
            )
        if self.secure and not is_private:
            raise ValueError(
                f"secure=True has no effect: {type(self).__name__} claims no privacy "
                "and draws no noise; leave it out"
            )
        if self.require_zoom and not self.zoom:
            raise ValueError(
                f"require_zoom=True has no effect with zoom={self.zoom!r}: give zoom a "
                "share of the budget, such as 0.1"
            )
        is_one_record = self.claim.adjacency in ONE_RECORD_ADJACENCIES
        is_central = issubclass(self.curator, Curator)
        for name in ("zoom", "report"):
            share = getattr(self, name)
            if share and not (is_private and is_one_record and is_central):
                raise ValueError(
                    f"{name}={share!r} is for private methods under zero-out or "
                    f"add-remove adjacency, and {type(self).__name__} is none: leave "
                    f"{name} out"
                )

    def _refuse_exact_n(self) -> None:
        """Refuse variants that need the exact n."""
        claim = self.claims[self.variant]
        is_delta_fixed = claim.notion == "pure" or self.variant == "sound"
        if not claim.private:
            reason = "it claims no privacy"
        elif claim.adjacency != Adjacency.ZERO_OUT:
            reason = f"its claim is one of {claim.adjacency} adjacency"
        elif self.delta == "auto" and not is_delta_fixed:
            reason = "delta='auto' of its published variant follows from n: give delta"
        else:
            return
        raise ValueError(
            f"adjacency={Adjacency.ADD_REMOVE} is not supported by "
            f"{type(self).__name__}: {reason}"
        )

    def zoom_plan(
        self,
        n_points: int,
        n_features: int,
    ) -> ZoomPlan | None:
        """Plan the releases of the zoom; None without a zoom or budget for it.

        It is also None where n is secret: the zoom is then planned once n is released.

        Raises
        ------
        ValueError
            If the budget is too small and ``require_zoom`` is set.
        """
        if not self.zoom or self.hides_n:
            return None
        share = self.zoom
        max_share = max(share, self.max_zoom)

        def plan_for(n_points: int, epsilon: float) -> ZoomPlan | None:
            return plan_zoom(
                share,
                max_share,
                n_points,
                n_features,
                epsilon,
                self.resolved_delta(n_points),
                benefits_from_ball=self.benefits_from_ball,
            )

        plan = plan_for(n_points, self.epsilon)
        if plan is None and self.require_zoom:
            raise ValueError(
                insufficient_budget(plan_for, max_share, n_points, self.epsilon)
            )
        return plan


# One object for all runs that have the same. Typed: budgets of 1 and 1.0 are equal, but
# differ as text in contexts of streams.
_budget = lru_cache(maxsize=1024, typed=True)(Budget)
