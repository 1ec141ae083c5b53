"""Base class of the methods: a scikit-learn estimator that runs public code around a curator."""

import math
import secrets
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.utils.validation import check_is_fitted

from pkm.compute import Points, labels
from pkm.privacy import (
    Account,
    AccountedRun,
    Budget,
    Charge,
    Curator,
    Ledger,
    NoiseStreams,
    PrivacyClaim,
    shards_of,
    to_unit,
)
from pkm.privacy.base import full_domain
from pkm.privacy.query import PRESENCE
from pkm.scalars import is_integer, is_number, is_positive

# Parameters that are not in the context of noise streams: the domain is, instead of bounds, and the
# others say where noise comes from.
NOT_IN_CONTEXT = ("bounds", "clip", "random_state", "secure")
SOUND_DELTA = 1e-6  # fixed and public, whatever the data


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
    """

    centers: np.ndarray
    n_iter: int
    ledger: Ledger | None
    seeds: tuple[int, ...]
    n_centers: np.ndarray


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
    secure: bool = False


@dataclass(eq=False, repr=False)
class PrivateKMeans(_OptionalParameters, ClusterMixin, BaseEstimator):
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
    """

    # How figures draw the method: name in legends, color, marker (empty: none).
    label: ClassVar[str] = ""
    color: ClassVar[str] = ""
    marker: ClassVar[str] = ""
    claims: ClassVar[dict[str, PrivacyClaim]]
    choices: ClassVar[dict[str, tuple]] = {"clip": (True, False)}
    # What delta="auto" is where a paper takes it from n.
    published_delta: ClassVar[Callable[[int], float]] = staticmethod(inverse_n_log_n)
    # Class of the curator that serves the claim's adjacency.
    curator: ClassVar[type] = Curator
    # Whether ``cluster`` serves all replicates at once; otherwise it is called for each.
    batched: ClassVar[bool] = True

    n_clusters: int = 8
    _: KW_ONLY
    bounds: ArrayLike | None = None
    clip: bool = True
    random_state: int | None = None

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

    def budget(self, n_points: int, n_features: int) -> Budget | None:
        """Budget of one run on points of that shape; None where no privacy is claimed."""
        if not self.claim.private:
            return None
        return Budget(self.epsilon, self.resolved_delta(n_points), self.claim.adjacency)

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
        k = self.n_clusters
        if not is_integer(k) or k < 1:
            raise ValueError(f"n_clusters={k!r} must be an integer of at least 1")
        if n_points is not None and k > n_points:
            raise ValueError(f"n_clusters={k} must be at most the number of points n={n_points}")

        for name, allowed in self.choices.items():
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(
                    f"{name}={value!r} is unknown, choose one of {', '.join(map(repr, allowed))}"
                )

        if not self.claim.private:
            return
        if not is_positive(self.epsilon):
            raise ValueError(f"epsilon={self.epsilon!r} must be a positive finite number")
        if 1.0 + self.epsilon == 1.0:
            raise ValueError(f"epsilon={self.epsilon!r} is too small: in float64 exp(epsilon) is 1")
        if self.delta != "auto" and not (is_number(self.delta) and 0 < self.delta < 1):
            raise ValueError(f"delta={self.delta!r} must be 'auto' or a number in (0, 1)")

    def fit_batch(
        self,
        points: np.ndarray | Points | Sequence[np.ndarray | Points],
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
            Private points on the grid (see :func:`pkm.privacy.snap`), prepared points, or a list of
            shards of either.
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

        n_points = sum(shard.n_records for shard in shards)
        n_features = shards[0].shape[1]
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

        A schedule depends on public values alone, so it is that of a rehearsal, in which all points
        are the middle of the domain. That takes about as long as one replicate.

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

        # Rehearse one replicate, on a copy that keeps what it computes for itself.
        streams = self.noise_streams(seeds, n_points, n_features, domain=domain)
        ledger = Ledger(budget)
        public_points = np.zeros((n_points, n_features), np.int64)
        curator = self.curator(public_points, ledger, streams.by_replicate()[0], domain)
        rehearsed = clone(self)
        assert isinstance(rehearsed, PrivateKMeans), "a clone is of the same class"
        rehearsed.cluster(curator)

        parameters = self.get_params(deep=False)
        parameters.pop("random_state", None)
        return AccountedRun(
            budget,
            ledger.charges,
            n_replicates=len(streams.seeds),
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
        released: list[np.ndarray] = []
        iterations: list[int] = []
        ledgers: list[Ledger | None] = []
        for batch in [streams] if self.batched else streams.by_replicate():
            ledger = None
            if budget is not None:
                ledger = Ledger(budget, schedule, repeatable=not streams.secure)
            centers, n_iter = self.cluster(make_curator(ledger, batch))
            released.extend(centers)
            iterations.append(n_iter)
            ledgers.append(ledger)

        # Charges must be equal: a schedule that follows the data would release something itself.
        charges = [ledger.charges for ledger in ledgers if ledger is not None]
        if any(charged != charges[0] for charged in charges):
            raise RuntimeError(
                "replicates were charged differently: a schedule must not depend on private data"
            )
        n_centers = np.array([len(centers) for centers in released])
        padded = _padded(released, n_centers.max())
        return Run(padded, max(iterations), ledgers[0], streams.seeds, n_centers)

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
            name: _in_full(getattr(self, name))
            for name in _parameter_names(type(self))
            if name not in NOT_IN_CONTEXT
        }
        budget = self.budget(n_points, n_features)
        facts = (type(self).__qualname__, parameters, budget, n_points, n_features)
        context = repr((*facts, full_domain(domain, n_features).tolist(), purpose))
        is_secure = self.secure if secure is None else secure
        return NoiseStreams(seeds, is_secure, context, public_seeds)

    def fit(self, X: ArrayLike, y: object = None, *, account: Account | None = None) -> Self:
        """Cluster points given in their own units.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows outside ``bounds`` are clipped to them, or refused with ``clip=False``. A row with
            NaN or an infinite value is the null record of zero-out adjacency: it counts in n and
            contributes nothing. Under other adjacencies NaN is the middle of the bounds, and
            infinite values are clipped. No value of one record makes a private fit raise; methods
            that claim no privacy refuse such rows.
            Without a ``random_state`` noise comes from the operating system's entropy.
        y : ignored
        account : Account, optional
            Of all runs on these points: it is charged before the first draw, or refuses the run.

        Returns
        -------
        self
            With ``cluster_centers_`` (k, d) in the units of X, ``n_iter_``, ``ledger_`` and
            ``n_features_in_``. There are no ``labels_``: exact labels are not covered by the claim.
            ``predict`` is public code on public centers.

        Warns
        -----
        RepeatableNoiseWarning
            If noise is drawn from a ``random_state``: whoever knows it can take the noise off.
        """
        points, bounds, seed = self._prepared(X)
        run = self.fit_batch(points, [seed], bounds, account=account, secure=self._draws_securely())
        lower, upper = bounds
        half_width = upper / 2 - lower / 2
        self.cluster_centers_ = to_unit(run.centers[0]) * half_width + (upper / 2 + lower / 2)
        self.n_iter_ = run.n_iter
        self.ledger_ = run.ledger
        self.n_features_in_ = points.shape[1]
        self._fitted_bounds = bounds
        self._centers = run.centers
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Index of the nearest released center for each row of X, clipped to the bounds."""
        check_is_fitted(self, "cluster_centers_")
        X = _matrix(X)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, the model was fitted with {self.n_features_in_}"
            )
        points, _ = Points.from_box(X, *self._fitted_bounds)
        if points.n_null:
            raise ValueError(
                f"X has {points.n_null} rows with NaN or infinite values, which have no nearest "
                "center; remove or impute them"
            )
        return labels(points, self._centers)[0]

    def fit_predict(
        self, X: ArrayLike, y: object = None, *, account: Account | None = None, **kwargs: object
    ) -> np.ndarray:
        """Fit, then predict the same rows; rows with NaN or infinite values have no label."""
        return self.fit(X, account=account).predict(X)

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

    def _prepared(self, X: ArrayLike) -> tuple[Points, tuple[np.ndarray, np.ndarray], int]:
        """Check points in their own units; return them on the grid, its bounds, and a seed."""
        self.check_parameters()
        X = _matrix(X)
        n_null = 0 if self.claim.private else len(X) - np.isfinite(X).all(axis=1).sum()
        if n_null:
            raise ValueError(
                f"X has {n_null} rows with NaN or infinite values; remove or impute them"
            )
        lower, upper = self._bounds_of(X)
        if self.claim.private and self.claim.adjacency not in PRESENCE:
            X = _replaced(X, lower, upper)
        points, outside = Points.from_box(X, lower, upper)
        if outside and not self.clip:
            raise ValueError(
                f"points lie outside bounds={self.bounds}; widen bounds or set clip=True"
            )
        seed = secrets.randbits(63) if self.random_state is None else int(self.random_state)
        return points, (lower, upper), seed

    def _bounds_of(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bound of every feature, each of shape (d,)."""
        d = X.shape[1]
        if self.bounds is None:
            if self.claim.private:
                raise ValueError(
                    "bounds=None: a private fit needs the public domain of the data, bounds="
                    f"(lower, upper) for all features or an array of shape (2, {d}); take it from "
                    "what is known without the data, not from their extremes"
                )
            return _extremes(X)
        bounds = np.asarray(self.bounds, dtype=np.float64)
        if bounds.shape not in {(2,), (2, d)}:
            raise ValueError(
                f"bounds must be (lower, upper) or of shape (2, {d}), got shape {bounds.shape}"
            )
        if bounds.ndim == 1:
            bounds = np.repeat(bounds[:, None], d, axis=1)
        lower, upper = bounds
        if not (np.isfinite(bounds).all() and (lower < upper).all()):
            raise ValueError(
                f"bounds={self.bounds} must be finite with lower < upper in every feature"
            )
        return lower, upper


def _in_full(value: object) -> object:
    """Return an array as nested lists, which are written out in full."""
    return value.tolist() if isinstance(value, np.ndarray) else value


@lru_cache(maxsize=256)
def _parameter_names(method_class: type[PrivateKMeans]) -> tuple[str, ...]:
    """Names of the constructor's parameters."""
    return tuple(method_class._get_param_names())


def _padded(released: list[np.ndarray], k: int) -> np.ndarray:
    """Stack sets of centers, each filled up to k with copies of its first."""
    padded = np.empty((len(released), k, released[0].shape[1]), np.int64)
    for row, centers in zip(padded, released, strict=True):
        row[: len(centers)] = centers
        row[len(centers) :] = centers[0]
    return padded


def _extremes(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest value of every feature; a constant feature is given some width."""
    lower = X.min(axis=0)
    upper = X.max(axis=0)
    margin = np.where(lower == upper, np.maximum(np.abs(lower), 1.0), 0.0)
    return lower - margin, upper + margin


def _replaced(X: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Put finite numbers in the place of NaN, the middle, and of infinite values, the bounds."""
    if np.isfinite(X).all():
        return X
    X = np.where(np.isnan(X), upper / 2 + lower / 2, X)
    return np.clip(X, lower, upper)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _matrix(X: ArrayLike) -> np.ndarray:
    matrix = _as_matrix(X)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(f"X must have shape (n, d) with n, d >= 1, got {matrix.shape}")
    return matrix


def _as_matrix(X: ArrayLike) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):
            return np.asarray(X, dtype=np.float64)
    except OverflowError:
        # An integer beyond the floats is as good as infinite.
        return np.vectorize(_as_float, otypes=[np.float64])(np.asarray(X, dtype=object))
    except (TypeError, ValueError) as error:
        raise ValueError(f"X must be numeric: {error}") from error
