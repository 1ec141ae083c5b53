"""Base class of the methods: a scikit-learn estimator that runs public code around a curator."""

import math
import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from scipy.spatial.distance import cdist
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
    clone,
)
from sklearn.metrics import pairwise_distances_argmin, pairwise_distances_argmin_min
from sklearn.utils.validation import check_is_fitted

from pkm.compute import SCALE, Points, labels, middle_and_half_width
from pkm.compute.storage.blocks import Blocks, array_blocks
from pkm.compute.storage.dask_points import DaskPoints
from pkm.compute.storage.grid_file import GridFile, is_grid_file, open_grid, unchanged
from pkm.methods.constraints import (
    AUTO,
    FLAG,
    NONE,
    Constraint,
    Integer,
    Real,
    check_constraints,
)
from pkm.methods.schedule import Schedule
from pkm.methods.zoom import Zoom, ZoomPlan, find_domain, insufficient_budget, plan_zoom
from pkm.privacy import (
    Account,
    AccountedRun,
    Adjacency,
    Budget,
    Charge,
    Curator,
    Ledger,
    NoiseStreams,
    PrivacyClaim,
    remaining_epsilon,
    shards_of,
    to_unit,
)
from pkm.privacy.base import PointsLike, full_domain
from pkm.privacy.query import PRESENCE
from pkm.row_blocks import (
    RowBlocks,
    RowsLike,
    is_dask_array,
    is_pandas_frame,
    row_blocks,
    stacked,
    without_mask,
)

# Parameters that are not in the context of noise streams: the domain is, instead of bounds, and the
# others say where noise comes from. A zoom is, where there is one.
NOT_IN_NOISE_KEY = ("bounds", "clip", "random_state", "secure", "zoom", "require_zoom")
FLOAT64_BYTES = 8
SOUND_DELTA = 1e-6  # fixed and public, whatever the data
EPSILON_TOLERANCE = 1e-4  # relative: of the epsilon that a zoom leaves, where it is searched


class RepeatableNoiseWarning(UserWarning):
    """Noise is drawn from a seed: whoever knows the seed can take the noise off."""


@dataclass(frozen=True)
class Run:
    """Outcome of a batch of replicates.

    Attributes
    ----------
    centers : ndarray of shape (R, k, d), int64
        Released centers on the grid. Where a replicate has fewer than k, copies of its first center
        follow: ties go to the lower index, so a copy is nearest to no point.
    n_iter : int
        Number of iterations, a public quantity.
    ledger : Ledger or None
        Charges of each replicate; None where no privacy is claimed.
    seeds : tuple of int
    n_centers : ndarray of shape (R,), int64
        Number of centers that each replicate released.
    remainders : ndarray of shape (R, k, d), int64, or None
        What rounding to the grid took from centers that were found in a smaller domain, in units of
        2**-16 grid steps; None without a zoom.
    zooms : tuple of Zoom or None
        The domain that each replicate found; None where it ran in the public one.
    """

    centers: np.ndarray
    n_iter: int
    ledger: Ledger | None
    seeds: tuple[int, ...]
    n_centers: np.ndarray
    remainders: np.ndarray | None = None
    zooms: tuple[Zoom | None, ...] = ()

    @property
    def positions(self) -> np.ndarray:
        """Centers (R, k, d) in half-widths of the public domain, float64."""
        if self.remainders is None:
            return to_unit(self.centers)
        return to_unit(self.centers + self.remainders / SCALE)


def inverse_n_log_n(n_points: int) -> float:
    """Delta of the FastLloyd paper, from the exact n."""
    if n_points < 3:
        raise ValueError(
            f"delta='auto' of the published variant is 1/(n ln n), which needs n >= 3, "
            f"got {n_points}"
        )
    return 1 / (n_points * math.log(n_points))


def inverse_n_root_n(n_points: int) -> float:
    """Delta of the DPM paper, from the exact n."""
    if n_points < 2:
        raise ValueError(
            f"delta='auto' of the published variant is 1/(n sqrt n), which needs n >= 2, "
            f"got {n_points}"
        )
    return n_points**-1.5


class _OptionalParameters:
    """Parameters that a method may declare, with their values where it does not.

    No dataclass: fields of a base would come first in the constructors of all methods.
    """

    epsilon: float = math.inf
    delta: float | Literal["auto"] = "auto"
    variant: str = "sound"


@dataclass(eq=False, repr=False)
class PrivateKMeans(
    _OptionalParameters,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClusterMixin,
    BaseEstimator,
):
    """Contract of a clustering method.

    A subclass declares ``claims`` and its parameters (as dataclass fields, or with an ``__init__``
    of its own) and writes ``cluster``, which queries a curator and has no access to points. This
    class has the other parts: parameter checks, the budget, batches of replicates, and the methods
    of a scikit-learn estimator.

    Parameters
    ----------
    n_clusters : int, default=8
    bounds : (lower, upper) or array of shape (2, d), optional
        Public domain, used by ``fit``: what is known of each feature without looking at the points.
        A private ``fit`` needs it. Methods that claim no privacy take the points' own extremes
        where it is left out.
    clip : bool, default=True
        Clip rows outside the bounds; otherwise they are refused, which the privacy claim does not
        cover.
    random_state : int, optional
        Seed of the replicate that ``fit`` runs, noise included: its result is repeatable, and
        private only as long as nobody knows the seed. Default: noise from the operating system.
    zoom : float, optional
        Share of the budget, in [0, 1), that buys a smaller domain before the method runs, for
        bounds that are wide: 0.1 is a good one. Of methods under zero-out adjacency; see
        :mod:`pkm.methods.zoom`. Too little budget for it, a public fact, leaves the whole budget to
        the method, in the public bounds. Default: no zoom.
    require_zoom : bool, default=False
        Refuse a fit with too little budget for the zoom instead.
    secure : bool, default=False
        Draw noise from the operating system's entropy instead of the seed.
    """

    # How figures draw the method: name in legends, color, marker (empty: none).
    label: ClassVar[str] = ""
    color: ClassVar[str] = ""
    marker: ClassVar[str] = ""
    claims: ClassVar[dict[str, PrivacyClaim]]
    #: Rule on the value of each parameter. Rules on several values are in `check_parameters`.
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_clusters": Integer(1),
        "random_state": NONE
        | Integer(0, note="it is a key of noise streams, not drawn from a generator"),
        "clip": FLAG,
        "secure": FLAG,
        "zoom": NONE | Real(0, 1, "[)", noun="a share of the budget"),
        "require_zoom": FLAG,
        "epsilon": Real(0),
        "delta": AUTO | Real(0, 1),
    }
    # What delta="auto" is where a paper takes it from n.
    published_delta: ClassVar[Callable[[int], float]] = staticmethod(inverse_n_log_n)
    # Class of the curator that serves the claim's adjacency.
    curator: ClassVar[type] = Curator
    # Whether ``cluster`` serves all replicates at once; otherwise it is called for each.
    batched: ClassVar[bool] = True
    # Whether a ball that holds all points (the curator's radius) makes noise smaller than a box.
    supports_ball: ClassVar[bool] = False
    # Whether all queries are sums over points: then ``fit`` takes points that are read in blocks.
    supports_chunks: ClassVar[bool] = False
    #: Parameters that a method has had only later, with the defaults at which its noise stays what
    #: it was: they are then not in the context of the noise streams.
    noise_key_defaults: ClassVar[dict[str, object]] = {}
    # Set on the copy that runs after a zoom whose plan, a public one, is for a ball.
    _is_after_ball_zoom = False

    n_clusters: int = 8
    _: KW_ONLY
    bounds: ArrayLike | None = None
    clip: bool = True
    random_state: int | None = None
    zoom: float | None = None
    require_zoom: bool = False
    secure: bool = False

    @classmethod
    def unavailable(cls) -> str | None:
        """Say why the method cannot run on this machine, and what to do; None if it can."""
        return None

    @property
    def claim(self) -> PrivacyClaim:
        """The claim of the chosen variant."""
        return self.claims[self.variant]

    def cluster(self, curator: Curator) -> tuple[np.ndarray | Sequence[np.ndarray], int]:
        """Run the curator's replicates.

        Returns
        -------
        centers : ndarray of shape (R, k, d), int64, or R of shape (k_r, d)
            On the grid.
        n_iter : int
            Number of iterations.
        """
        raise NotImplementedError(f"{type(self).__name__} must define cluster(curator)")

    def schedule(self, n_points: int, n_features: int) -> Schedule:
        """All releases of ``cluster`` for one replicate, from public quantities only.

        A zoom releases more: see :meth:`planned_run`. A private method needs a schedule for that,
        and for an account.
        """
        if not self.claim.private:
            return Schedule()
        raise NotImplementedError(
            f"{type(self).__name__} must define schedule(n_points, n_features): a zoom and an "
            "account need it"
        )

    def budget(self, n_points: int, n_features: int) -> Budget | None:
        """Budget of one run on points of that shape; None where no privacy is claimed."""
        claim = self.claim
        if not claim.private:
            return None
        return _budget(self.epsilon, self.resolved_delta(n_points), claim.adjacency)

    def resolved_delta(self, n_points: int) -> float:
        """Delta of one run: 0 for a pure claim, the parameter, or the variant's for ``"auto"``."""
        if self.claim.notion == "pure":
            return 0.0
        if self.delta != "auto":
            return self.delta
        if self.variant == "sound":
            return SOUND_DELTA
        return self.published_delta(n_points)

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters before any work.

        Raises
        ------
        ValueError
            With the parameter's name, its value and the rule.
        """
        values = {name: getattr(self, name) for name in _parameter_names(type(self))}
        check_constraints(self.constraints, values)
        if n_points is not None and self.n_clusters > n_points:
            raise ValueError(
                f"n_clusters={self.n_clusters} must be at most the number of points n={n_points}"
            )
        if self.claim.private and 1.0 + self.epsilon == 1.0:
            raise ValueError(f"epsilon={self.epsilon!r} is too small: in float64 exp(epsilon) is 1")
        if self.secure and not self.claim.private:
            raise ValueError(
                f"secure=True has no effect: {type(self).__name__} claims no privacy and draws no "
                "noise; leave it out"
            )
        self._check_zoom()

    def _check_zoom(self) -> None:
        """Refuse a zoom of methods that have no releases for it."""
        if not self.zoom:
            if self.require_zoom:
                raise ValueError(
                    f"require_zoom=True has no effect with zoom={self.zoom!r}: give zoom a share "
                    "of the budget, such as 0.1"
                )
            return
        is_zero_out = self.claim.adjacency == Adjacency.ZERO_OUT
        if not (self.claim.private and is_zero_out and issubclass(self.curator, Curator)):
            raise ValueError(
                f"zoom={self.zoom!r} is for private methods under zero-out adjacency, and "
                f"{type(self).__name__} is none: leave zoom out"
            )

    def fit_batch(
        self,
        points: PointsLike,
        seeds: Sequence[int],
        domain: ArrayLike | None = None,
        *,
        account: Account | None = None,
        secure: bool | None = None,
    ) -> Run:
        """Cluster the same points once per seed.

        Parameters
        ----------
        points : ndarray of shape (n, d), int64
            Private points on the grid (see :func:`pkm.privacy.snap`), prepared points, a list of
            shards of either, or Blocks, for methods with ``supports_chunks``.
        seeds : sequence of int
            One per replicate; a replicate's result does not depend on the others.
        domain : array-like of shape (2, d), optional
            Public bounds, in the units of the data, that the grid represents. Default: -1 and 1.
        account : Account, optional
            Of all runs on these points: it is charged for every replicate before the first draw.
        secure : bool, optional
            Draw noise from the operating system's entropy. Default: the method's parameter.

        Returns
        -------
        Run

        Raises
        ------
        BudgetExceeded
            If the run would exceed the account's budget; the account is as before then.
        """
        shards = shards_of(points)

        def make_curator(ledger: Ledger | None, streams: NoiseStreams) -> Curator:
            return self.curator(shards, ledger, streams, domain)

        n_points = shards.n_records
        n_features = shards.n_features
        schedule = None
        if account is not None:
            planned = self.planned_run(n_points, n_features, seeds, domain)
            account.charge(planned)
            schedule = planned.schedule
        return self.fit_with(
            make_curator, n_points, n_features, seeds, schedule, domain=domain, secure=secure
        )

    def planned_run(
        self,
        n_points: int,
        n_features: int,
        seeds: Sequence[int],
        domain: ArrayLike | None = None,
        *,
        purpose: str = "",
    ) -> AccountedRun:
        """What an account is charged for a batch: all releases, known before the first draw.

        Parameters
        ----------
        n_points, n_features : int
        seeds : sequence of int
            One per replicate.
        domain : array-like of shape (2, d), optional
            As for :meth:`fit_batch`.
        purpose : str, default=""
            A note for the readers of the account.

        Returns
        -------
        AccountedRun

        Raises
        ------
        ValueError
            If a parameter is out of its range, or the method claims no privacy.
        """
        self.check_parameters(n_points)
        budget = self.budget(n_points, n_features)
        if budget is None:
            raise ValueError(
                f"{type(self).__name__} claims no privacy: an account adds up private runs only"
            )

        schedule = self.schedule(n_points, n_features)
        plan = self.zoom_plan(n_points, n_features)
        if plan is not None:
            rest = self._beside(plan, n_points, n_features)
            schedule = Schedule(*plan.releases, *rest.schedule(n_points, n_features).releases)
        parameters = self.get_params(deep=False)
        parameters.pop("random_state", None)
        return AccountedRun(
            budget,
            schedule.charges,
            n_replicates=len(seeds),
            method=type(self).__name__,
            parameters=parameters,
            purpose=purpose,
            flaws=self.claim.flaws,
        )

    def fit_with(
        self,
        make_curator: Callable[[Ledger | None, NoiseStreams], Curator],
        n_points: int,
        n_features: int,
        seeds: Sequence[int],
        schedule: Sequence[Charge] | None = None,
        *,
        domain: ArrayLike | None = None,
        secure: bool | None = None,
        public_seeds: Sequence[int] | None = None,
    ) -> Run:
        """Cluster through a given kind of curator, once per seed.

        Parameters
        ----------
        make_curator : callable
            From a ledger (None where no privacy is claimed) and the replicates' NoiseStreams to a
            curator.
        n_points, n_features : int
            Of all points together, whoever holds them.
        seeds : sequence of int
            One per replicate.
        schedule : sequence of Charge, optional
            The only releases that each replicate may make. Default: any.
        domain : array-like of shape (2, d), optional
            Public bounds that the grid represents, for the streams of noise.
        secure : bool, optional
            Draw noise from the operating system's entropy. Default: the method's parameter.
        public_seeds : sequence of int, optional
            Of the randomness that may be known, one per replicate. Default: from the seeds.

        Returns
        -------
        Run
        """
        self.check_parameters(n_points)
        budget = self.budget(n_points, n_features)
        streams = self.noise_streams(
            seeds,
            n_points,
            n_features,
            domain=domain,
            secure=secure,
            public_seeds=public_seeds,
        )

        # A method that is not batched runs once for each replicate, each with a ledger of its own.
        # So does a zoom, because each has a domain of its own.
        released: list[np.ndarray] = []
        iterations: list[int] = []
        ledgers: list[Ledger | None] = []
        zooms: list[Zoom | None] = []
        is_batch = self.batched and self.zoom_plan(n_points, n_features) is None
        for batch in [streams] if is_batch else streams.by_replicate():
            ledger = None
            if budget is not None:
                ledger = Ledger(budget, schedule, repeatable=not streams.secure)
            method, curator, zoom = self.with_zoom(make_curator(ledger, batch))
            centers, n_iter = method.cluster(curator)
            released.extend(centers)
            iterations.append(n_iter)
            ledgers.append(ledger)
            zooms.extend([zoom] * len(centers))

        # Charges must be equal: a schedule that follows the data would release something itself.
        # Notes of a charge may follow from released values, and so may the last bits of its cost.
        charges = [ledger.charges for ledger in ledgers if ledger is not None]
        if not all([_cost_alike(charged, charges[0]) for charged in charges[1:]]):
            raise RuntimeError(
                "replicates were charged differently: a schedule must not depend on private data"
            )
        n_centers = [len(centers) for centers in released]
        most = max(n_centers)
        remainders = None
        if any(zooms):
            released, rests = _on_the_public_grid(released, zooms)
            remainders = _padded(rests, most)
        return Run(
            _padded(released, most),
            max(iterations),
            ledgers[0],
            streams.seeds,
            np.array(n_centers),
            remainders,
            tuple(zooms),
        )

    def zoom_plan(self, n_points: int, n_features: int) -> ZoomPlan | None:
        """The releases that find a domain; None without a zoom or with too little budget for it.

        Raises
        ------
        ValueError
            If the budget is too little and ``require_zoom`` is set.
        """
        if not self.zoom:
            return None

        def plan_of(n: int, epsilon: float) -> ZoomPlan:
            delta = self.resolved_delta(n)
            return plan_zoom(
                self.zoom or 0.0, n, n_features, epsilon, delta, supports_ball=self.supports_ball
            )

        plan = plan_of(n_points, self.epsilon)
        if plan.is_affordable:
            return plan
        if self.require_zoom:
            raise ValueError(insufficient_budget(plan_of, n_points, self.epsilon))
        return None

    def with_zoom(self, curator: Curator) -> "tuple[PrivateKMeans, Curator, Zoom | None]":
        """Find the domain of a curator's points, where a zoom is asked for.

        Parameters
        ----------
        curator : Curator
            Of one replicate, where there is a zoom.

        Returns
        -------
        method : PrivateKMeans
            This one with what is left of the budget; itself without a zoom.
        curator : Curator
            In the domain that was found; the same one without a zoom.
        zoom : Zoom or None
            None where the domain is still the public one.
        """
        n_points = curator.n_points
        n_features = curator.n_features
        plan = self.zoom_plan(n_points, n_features)
        if plan is None:
            if self.zoom and curator._ledger is not None:
                curator._ledger.note(
                    f"zoom={self.zoom:g}: the public guard left it out, because epsilon="
                    f"{self.epsilon:g} is too little for n={n_points} records"
                )
            return self, curator, None
        if not isinstance(curator, Curator):
            raise ValueError(
                f"zoom={self.zoom:g} needs a curator that holds all points, and "
                f"{type(curator).__name__} does not: leave zoom out"
            )
        method = self._beside(plan, n_points, n_features)
        zoom = find_domain(curator, plan)
        if zoom is None:
            curator.keep_points()
            return method, curator, None
        inner = curator.within(zoom.center, zoom.half_width, zoom.radius)
        return method, inner, zoom

    def _beside(self, plan: ZoomPlan, n_points: int, n_features: int) -> "PrivateKMeans":
        """Copy this method with the budget that a zoom leaves."""
        rest = self._copy(zoom=None, require_zoom=False)
        rest._is_after_ball_zoom = plan.ball
        if plan.pure:
            rest.epsilon = (1 - plan.share) * self.epsilon
            return rest

        budget = self.budget(n_points, n_features)
        assert budget is not None, "a zoom is of private methods"

        def fits(epsilon: float) -> bool:
            rest.epsilon = epsilon
            releases = rest.schedule(n_points, n_features).releases
            return Schedule(*plan.releases, *releases).fits(budget)

        charges = rest.schedule(n_points, n_features).charges
        epsilon = remaining_epsilon(plan.mu, charges, budget.epsilon, budget.delta)
        if not fits(epsilon):
            # A schedule that epsilon does not multiply evenly needs a little less: bisect.
            low = 0.0
            high = epsilon
            while high - low > EPSILON_TOLERANCE * high:
                middle = (low + high) / 2
                if fits(middle):
                    low = middle
                else:
                    high = middle
            epsilon = low
        rest.epsilon = epsilon
        return rest

    def _copy(self, **parameters: object) -> "PrivateKMeans":
        """A copy of this method without its fitted attributes, with parameters changed."""
        copied = clone(self)
        assert isinstance(copied, PrivateKMeans), "a clone is of the same class"
        copied.set_params(**parameters)
        copied._is_after_ball_zoom = self._is_after_ball_zoom
        return copied

    def noise_streams(
        self,
        seeds: Sequence[int],
        n_points: int,
        n_features: int,
        *,
        domain: ArrayLike | None = None,
        secure: bool | None = None,
        public_seeds: Sequence[int] | None = None,
        purpose: str = "",
    ) -> NoiseStreams:
        """Streams of noise of a run.

        No run of another method, other parameters, another budget, shape or domain, or another
        purpose shares them.

        Two runs with the same noise could be compared, and the noise taken off.

        Parameters
        ----------
        seeds : sequence of int
            One per replicate.
        n_points, n_features : int
        domain : array-like of shape (2, d), optional
            Default: -1 and 1.
        secure : bool, optional
            Default: the method's parameter.
        public_seeds : sequence of int, optional
            Default: from the seeds.
        purpose : str, default=""
            What the run is for, where it is not a fit.

        Returns
        -------
        NoiseStreams
        """
        parameters = {
            name: value.tolist() if isinstance(value := getattr(self, name), np.ndarray) else value
            for name in _parameter_names(type(self))
            if name not in NOT_IN_NOISE_KEY
        }
        for name, default in self.noise_key_defaults.items():
            if parameters[name] == default:
                del parameters[name]
        if self.zoom:
            parameters["zoom"] = self.zoom
        budget = self.budget(n_points, n_features)
        facts = (type(self).__qualname__, parameters, budget, n_points, n_features)
        context = repr((*facts, full_domain(domain, n_features).tolist(), purpose))
        is_secure = self.secure if secure is None else secure
        return NoiseStreams(seeds, is_secure, context, public_seeds)

    def fit(
        self,
        X: ArrayLike | RowsLike,
        y: object = None,
        *,
        account: Account | None = None,
        progress: bool = False,
    ) -> Self:
        """Cluster points given in their own units.

        Parameters
        ----------
        X : array-like of shape (n, d), or what is read in blocks
            An array or a frame; or, with the same result to the bit and some blocks in memory,
            a path of an NPY or Parquet file, of a folder or a pattern of Parquet files, an array
            that is mapped from a file, a ``pyarrow.dataset.Dataset``, an Arrow table or a polars
            frame, a ``dask.array`` (on its cluster, if there is one), or
            :class:`pkm.row_blocks.RowBlocks`. Blocks are for methods with ``supports_chunks``;
            others need all points at once, and refuse files. Rows are read once for every pass.
            Grid files, which ``pkm pack`` writes, are for all methods and have their bounds.
            Rows outside ``bounds`` are clipped to them, or refused with ``clip=False``. A row with
            NaN or an infinite value is the null record of zero-out adjacency: it counts in n and
            contributes nothing. Under other adjacencies NaN is the middle of the bounds, and
            infinite values are clipped. No value of one record makes a private fit raise; methods
            that claim no privacy refuse such rows.
            Without a ``random_state`` noise comes from the operating system's entropy.
        y : ignored
        account : Account, optional
            Of all runs on these points: it is charged before the first draw, or refuses the run.
        progress : bool, default=False
            Show a progress bar for every pass over blocks.

        Returns
        -------
        self
            With ``cluster_centers_`` (k, d) in the units of X, ``n_iter_``, ``ledger_``,
            ``n_features_in_``, ``feature_names_in_`` where X has names of columns that are texts,
            ``domain_`` (2, d), the bounds that the method ran in, and
            ``zoom_``, a :class:`pkm.methods.zoom.Zoom` where it found these itself, else None.
            There are no ``labels_``: exact labels are not covered by the claim. ``predict`` is
            public code on public centers.

        Warns
        -----
        RepeatableNoiseWarning
            If noise is drawn from a ``random_state``: whoever knows it can take the noise off.
        """
        names = _feature_names(X)
        with unchanged(X) as source:
            points, bounds, seed = self._prepared(source)
            if isinstance(points, Blocks | DaskPoints):
                points = replace(points, progress=progress)
            secure = self._draws_securely()
            domain = np.array(bounds)
            run = self.fit_batch(points, [seed], domain, account=account, secure=secure)
        middle, half_width = middle_and_half_width(*bounds)
        self.cluster_centers_ = run.positions[0] * half_width + middle
        self.n_iter_ = run.n_iter
        self.ledger_ = run.ledger
        self.n_features_in_ = len(middle)
        if names:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.zoom_ = run.zooms[0]
        self.domain_ = domain
        if self.zoom_ is not None:
            self.domain_ = middle + half_width * self.zoom_.bounds
        self._fitted_bounds = bounds
        self._centers = run.centers
        return self

    def predict(self, X: ArrayLike | RowsLike) -> np.ndarray:
        """Index of the nearest released center for each row of X, clipped to the bounds."""
        return np.concatenate([self._labels(block) for block in self._blocks(X)])

    def transform(self, X: ArrayLike | RowsLike) -> np.ndarray:
        """Distance of each row of X, clipped to the bounds, to each released center.

        Parameters
        ----------
        X : array-like of shape (n, d), or what is read in blocks

        Returns
        -------
        ndarray of shape (n, k), float64
            In half-widths of the bounds: the distance that is smallest at the center that
            :meth:`predict` gives. Public code on public centers, as there.

        Examples
        --------
        >>> from pkm.methods import Lloyd
        >>> model = Lloyd(1, bounds=(0, 10)).fit([[0.0, 5.0], [10.0, 5.0]])
        >>> model.transform([[10.0, 5.0]]).tolist(), model.score([[10.0, 5.0]])
        ([[1.0]], -1.0)
        """
        return np.concatenate([cdist(*self._in_half_widths(block)) for block in self._blocks(X)])

    def score(self, X: ArrayLike | RowsLike, y: object = None) -> float:
        """Minus the sum of squared distances to the nearest centers, as of scikit-learn's KMeans.

        In squared half-widths of the bounds. A score of private rows is not covered by the claim: a
        search for parameters by it costs privacy that no ledger records.
        """
        inertias = []
        for block in self._blocks(X):
            _, distances = pairwise_distances_argmin_min(*self._in_half_widths(block))
            inertias.append(float((distances**2).sum()))
        return -math.fsum(inertias)

    @property
    def _n_features_out(self) -> int:
        """Number of columns of :meth:`transform`, for scikit-learn's names of them."""
        return len(self.cluster_centers_)

    def _blocks(self, X: ArrayLike | RowsLike) -> Iterator[np.ndarray]:
        """Rows of X in blocks (m, d); refuse those that do not fit what was fitted."""
        check_is_fitted(self, "cluster_centers_")
        names = _feature_names(X)
        fitted_names = [*getattr(self, "feature_names_in_", names)]
        if len(names) == len(fitted_names) and names != fitted_names:
            raise ValueError(
                "The feature names should match those that were passed during fit, in their "
                f"order: got {', '.join(names)}; fitted with {', '.join(fitted_names)}"
            )
        rows = _labeled_rows(open_grid(cast("str", X))) if is_grid_file(X) else row_blocks(X)
        for block in [X] if rows is None else rows.blocks():
            matrix = _matrix(block)
            if matrix.shape[1] != self.n_features_in_:
                raise ValueError(
                    f"X has {matrix.shape[1]} features, but {type(self).__name__} is expecting "
                    f"{self.n_features_in_} features as input"
                )
            yield matrix

    def _labels(self, rows: np.ndarray) -> np.ndarray:
        """Index (m,) of the nearest center of rows (m, d)."""
        if self.zoom_ is None:
            points, _ = Points.from_box(rows, *self._fitted_bounds)
            _refuse_unlabeled(points.n_null)
            return labels(points, self._centers)[0]

        # Centers in a small part of the public domain are finer than its grid.
        return pairwise_distances_argmin(*self._in_half_widths(rows))

    def _in_half_widths(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows (m, d), clipped, and centers (k, d): in half-widths about the bounds' middle."""
        _refuse_unlabeled(len(rows) - int(np.isfinite(rows).all(axis=1).sum()))
        middle, half_width = middle_and_half_width(*self._fitted_bounds)
        clipped = np.clip(rows, *self._fitted_bounds)
        return (clipped - middle) / half_width, (self.cluster_centers_ - middle) / half_width

    def fit_predict(
        self,
        X: ArrayLike | RowsLike,
        y: object = None,
        *,
        account: Account | None = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """Fit, then predict the same rows; rows with NaN or infinite values have no label."""
        # `fit` refuses what it does not take, such as weights.
        return self.fit(X, account=account, **kwargs).predict(X)

    def _draws_securely(self) -> bool:
        """Whether ``fit`` draws noise from the operating system; warn where it does not."""
        is_secure = self.secure or self.random_state is None
        if self.claim.private and not is_secure:
            warnings.warn(
                f"random_state={self.random_state} makes noise repeatable: whoever knows or "
                "guesses it can take the noise off. Publish such a result only if the data are "
                "public; leave random_state out, or set secure=True where a method has it",
                RepeatableNoiseWarning,
                stacklevel=3,
            )
        return is_secure

    @property
    def needs_remainders(self) -> bool:
        """Whether a query reads what rounding to the grid took away; ``fit`` keeps no others."""
        return bool(self.zoom)

    def _prepared(
        self, X: ArrayLike | RowsLike
    ) -> tuple[Points | Blocks | DaskPoints, tuple[np.ndarray, np.ndarray], int]:
        """Check points in their own units; return them on the grid, its bounds, and a seed."""
        self.check_parameters()
        seed = secrets.randbits(63) if self.random_state is None else int(self.random_state)
        if is_grid_file(X):
            points, bounds = self._entered_grid(open_grid(cast("str | GridFile", X)))
            return points, bounds, seed
        rows = row_blocks(X)
        if rows is not None and self.supports_chunks:
            bounds = self._checked_bounds(rows)
            kept = self.needs_remainders
            if is_dask_array(X):
                points = DaskPoints.from_box(X, *bounds, keep_remainders=kept)
            else:
                points = Blocks.from_box(rows, *bounds, keep_remainders=kept)
        else:
            points, bounds = self._quantize(_matrix(X if rows is None else self._materialize(X)))
        return points, bounds, seed

    def _quantize(self, X: np.ndarray) -> tuple[Points | Blocks, tuple[np.ndarray, np.ndarray]]:
        """Points (n, d) in memory on the grid, and its bounds."""
        bounds = self._declared_bounds(X.shape[1])
        if bounds is None:
            _refuse_null(len(X) - np.isfinite(X).all(axis=1).sum())
            bounds = _widened(X.min(axis=0), X.max(axis=0))
        if self.claim.private and self.claim.adjacency not in PRESENCE:
            X = _replaced(X, *bounds)
        if self.claim.private and self.clip and self.zoom_plan(*X.shape) is not None:
            # Those of the domain that the zoom finds are kept; until then every pass enters them.
            return replace(Blocks.from_box(array_blocks(X), *bounds), in_memory=True), bounds
        points, outside = Points.from_box(X, *bounds, keep_remainders=self.needs_remainders)
        if not self.claim.private:
            _refuse_null(points.n_null)
        self._refuse_outside(outside)
        return points, bounds

    def _checked_bounds(self, rows: RowBlocks) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of rows that are read in blocks, and that are refused where they must be.

        A private fit that clips makes no pass of its own; others check the rows in one.
        """
        bounds = self._declared_bounds(rows.n_columns)
        if not self.claim.private or not self.clip:
            n_null, lowest, highest = _extremes_of_blocks(rows)
            if not self.claim.private:
                _refuse_null(n_null)
            bounds = bounds or _widened(lowest, highest)
            if n_null < rows.n_rows:
                self._refuse_outside(Points.from_box(np.array([lowest, highest]), *bounds)[1])
        assert bounds is not None, "a private fit has declared bounds"
        return bounds

    def _entered_grid(
        self, file: GridFile
    ) -> tuple[Points | Blocks, tuple[np.ndarray, np.ndarray]]:
        """Points of a grid file: in blocks, or mapped for methods that need all of them."""
        lower, upper = bounds = file.bounds
        declared = None if self.bounds is None else self._declared_bounds(file.n_columns)
        if declared is not None and not np.array_equal(declared, bounds):
            raise ValueError(
                f"bounds={self.bounds} differ from those that {file.path} was packed with, "
                f"{lower.tolist()} to {upper.tolist()}: leave them out, or pack it again"
            )
        if not self.claim.private:
            _refuse_null(file.header.n_null)
        if file.header.outside and not self.clip:
            raise ValueError(
                f"points lie outside the bounds that {file.path} was packed with, "
                f"{lower.tolist()} to {upper.tolist()}: pack it again with wider bounds or set "
                "clip=True"
            )
        return file.by_blocks() if self.supports_chunks else file.mapped(), bounds

    def _materialize(self, X: ArrayLike | RowsLike) -> np.ndarray:
        """Array (n, d) of rows that are in memory, or mapped to it, though they have blocks."""
        if isinstance(X, np.ndarray):
            return X
        rows = row_blocks(X)
        if rows is not None and hasattr(X, "__arrow_c_stream__"):
            return stacked(rows)
        raise ValueError(
            f"X={X!r}: {type(self).__name__} needs all points at once, and cannot read them in "
            "blocks: give it an array, write a grid file with pkm pack and give it that, or take a "
            "method that can (supports_chunks), such as FastLloyd"
        )

    def _refuse_outside(self, outside: bool) -> None:
        if outside and not self.clip:
            raise ValueError(
                f"points lie outside bounds={self.bounds}; widen bounds or set clip=True"
            )

    def _declared_bounds(self, d: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Lower and upper bound of every feature, each of shape (d,); None where there are none."""
        if self.bounds is None:
            if self.claim.private:
                raise ValueError(
                    "bounds=None: a private fit needs the public domain of the data, bounds="
                    f"(lower, upper) for all features or an array of shape (2, {d}); take it from "
                    "what is known without the data, not from their extremes"
                )
            return None
        declared = np.asarray(self.bounds, dtype=np.float64)
        if declared.shape != (2,) and declared.shape != (2, d):
            raise ValueError(
                f"bounds must be (lower, upper) or of shape (2, {d}), got shape {declared.shape}"
            )
        bounds = np.empty((2, d))
        bounds.T[:] = declared.T
        lower, upper = bounds
        # NaN is not below anything.
        pairs = zip(*bounds.tolist(), strict=True)
        if not all([-math.inf < low < high < math.inf for low, high in pairs]):
            raise ValueError(
                f"bounds={self.bounds} must be finite with lower < upper in every feature"
            )
        return lower, upper


def _cost_alike(charges: Sequence[Charge], others: Sequence[Charge]) -> bool:
    """Whether two lists of charges are for the same releases at the same costs, up to rounding."""
    same_length = len(charges) == len(others)
    return same_length and all(map(Charge.costs_like, charges, others))


# Typed: budgets of 1 and 1.0 are equal, but are not written alike in the keys of noise streams.
@lru_cache(maxsize=1024, typed=True)
def _budget(epsilon: float, delta: float, adjacency: Adjacency | str) -> Budget:
    """One object for all runs with the same budget."""
    return Budget(epsilon, delta, adjacency)


@lru_cache(maxsize=256)
def _parameter_names(method_class: type[PrivateKMeans]) -> list[str]:
    """Names of the constructor's parameters, in alphabetical order."""
    return method_class._get_param_names()


def _on_the_public_grid(
    released: list[np.ndarray], zooms: list[Zoom | None]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Centers of all replicates in public grid steps, and their remainders in 2^-16 of them."""
    centers: list[np.ndarray] = []
    remainders: list[np.ndarray] = []
    for found, zoom in zip(released, zooms, strict=True):
        if zoom is None:
            fine = found * SCALE
        else:
            fine = np.rint(zoom.outward(found) * SCALE * SCALE).astype(np.int64)
        steps = (fine + SCALE // 2) // SCALE
        centers.append(steps)
        remainders.append(fine - steps * SCALE)
    return centers, remainders


def _padded(released: list[np.ndarray], k: int) -> np.ndarray:
    """Stack sets of centers, each filled up to k with copies of its first."""
    if min(map(len, released)) == k:
        return np.array(released, np.int64)
    padded = np.empty((len(released), k, released[0].shape[1]), np.int64)
    for row, centers in zip(padded, released, strict=True):
        row[: len(centers)] = centers
        if len(centers) < k:
            row[len(centers) :] = centers[0]
    return padded


def _refuse_null(n_null: int) -> None:
    """Refuse rows that are null records, of methods that claim no privacy."""
    if n_null:
        raise ValueError(f"X has {n_null} rows with NaN or infinite values; remove or impute them")


def _refuse_unlabeled(n_null: int) -> None:
    """Refuse rows that no center is nearest to."""
    if n_null:
        raise ValueError(
            f"X has {n_null} rows with NaN or infinite values, which have no nearest center; "
            "remove or impute them"
        )


def _extremes_of_blocks(rows: RowBlocks) -> tuple[int, np.ndarray, np.ndarray]:
    """Number of rows that are not finite, smallest and largest values (d,) of the others."""
    n_null = 0
    lowest = np.full(rows.n_columns, np.inf)
    highest = np.full(rows.n_columns, -np.inf)
    for block in rows.blocks():
        finite = np.isfinite(block).all(axis=1)
        n_null += len(block) - int(finite.sum())
        kept = block if finite.all() else block[finite]
        if len(kept):
            lowest = np.minimum(lowest, kept.min(axis=0))
            highest = np.maximum(highest, kept.max(axis=0))
    return n_null, lowest, highest


def _widened(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Extremes of every feature as bounds, float64; a constant feature is given some width."""
    lower = lower.astype(np.float64)
    upper = upper.astype(np.float64)
    margin = np.where(lower == upper, np.maximum(np.abs(lower), 1.0), 0.0)
    return lower - margin, upper + margin


def _replaced(X: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Put finite numbers in the place of NaN, the middle, and of infinite values, the bounds."""
    if np.isfinite(X).all():
        return X
    X = np.where(np.isnan(X), upper / 2 + lower / 2, X)
    return np.clip(X, lower, upper)


def _labeled_rows(file: GridFile) -> RowBlocks:
    """Rows of a grid file in the units of the data, each with a label of its own."""
    if file.header.n_null:
        raise ValueError(
            f"{file.path} leaves out {file.header.n_null} null records, so labels would not be "
            "those of its rows: predict on the rows of the source file without NaN or infinite "
            "values"
        )
    return file.in_units()


def _as_float(value: Any) -> float:
    # pandas.NA has no float.
    if value is None or type(value).__name__ == "NAType":
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _feature_names(X: object) -> list[str]:
    """Names of the columns of a frame; none where they are not all texts, or X has none."""
    names: list = list(getattr(X, "columns", ()))
    return names if all([isinstance(name, str) for name in names]) else []


def _matrix(X: ArrayLike | RowsLike) -> np.ndarray:
    if issparse(X):
        raise ValueError("X is sparse, and the methods take dense points: give X.toarray()")
    matrix = _as_matrix(X)
    if matrix.ndim == 2 and 0 in matrix.shape:
        n, d = matrix.shape
        count = f"{n} sample(s)" if n == 0 else f"{d} feature(s)"
        raise ValueError(f"X has {count} (shape={matrix.shape}) while a minimum of 1 is required.")
    if matrix.ndim != 2:
        raise ValueError(
            f"X must have shape (n, d) with n, d >= 1, got {matrix.shape}. Reshape your data: "
            "X.reshape(-1, 1) is one feature, X.reshape(1, -1) one sample"
        )
    return matrix


def _as_matrix(X: ArrayLike | RowsLike) -> np.ndarray:
    if isinstance(X, np.ndarray):
        X = without_mask(X)
    if isinstance(X, np.ndarray) and X.dtype.kind in "iuf" and X.itemsize <= FLOAT64_BYTES:
        # It is converted block by block when it is entered, without a copy of the whole.
        return np.asarray(X)
    if np.iscomplexobj(np.asarray(X)):
        raise ValueError("Complex data not supported: X must hold real numbers")
    try:
        with np.errstate(over="ignore"):
            return _in_float64(X)
    except (TypeError, ValueError) as error:
        raise type(error)(f"X must be numeric: {error}") from error


def _in_float64(X: ArrayLike | RowsLike) -> np.ndarray:
    try:
        if is_pandas_frame(X):
            return cast("Any", X).to_numpy(dtype=np.float64, na_value=np.nan)
        return np.asarray(X, dtype=np.float64)
    except (OverflowError, TypeError):
        # An integer beyond the floats is as good as infinite, and pandas.NA as NaN.
        return np.vectorize(_as_float, otypes=[np.float64])(np.asarray(X, dtype=object))
