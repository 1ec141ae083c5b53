"""What a method is: public code around a curator, usable as a scikit-learn estimator and as a batch of replicates."""

import math
import numbers
import secrets
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted

from pkm.compute import Points, labels
from pkm.privacy import Budget, Curator, Ledger, NoiseStreams, PrivacyClaim, shards_of, to_unit

SOUND_DELTA = 1e-6  # fixed and public, whatever the data
MIN_EPSILON = 1e-4  # below, rounding of budgets and of random numbers begins to show


@dataclass(frozen=True)
class Run:
    """Outcome of a batch of replicates.

    Attributes
    ----------
    centers : ndarray of shape (R, k, d), int64
        Released centers on the grid. Where a replicate has fewer than k, copies of its first center follow: ties go to
        the lower index, so a copy is nearest to no point.
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
            f"delta='auto' of the published variant is 1/(n ln n), which needs n >= 3, got {n_points}"
        )
    return 1 / (n_points * math.log(n_points))


def inverse_n_root_n(n_points: int) -> float:
    """Delta of the DPM paper, from the exact n."""
    if n_points < 2:
        raise ValueError(
            f"delta='auto' of the published variant is 1/(n sqrt n), which needs n >= 2, got {n_points}"
        )
    return n_points**-1.5


@dataclass(eq=False, repr=False)
class PrivateKMeans(ClusterMixin, BaseEstimator):
    """Contract of a clustering method.

    A subclass declares ``claims`` and its parameters (as dataclass fields, or with an ``__init__`` of its own) and
    writes ``cluster``, which asks a curator and never sees a point. Everything else is here: checks, the budget, the
    batched path and the scikit-learn face.

    Parameters
    ----------
    n_clusters : int, default=8
    bounds : (lower, upper) or array of shape (2, d), default=(-1, 1)
        Public domain, used by ``fit``.
    clip : bool, default=True
        Clip rows outside the bounds; otherwise they are refused, which the privacy claim does not cover.
    random_state : int, optional
        Seed of the replicate that ``fit`` runs. Default: fresh.
    """

    claims: ClassVar[dict[str, PrivacyClaim]]
    choices: ClassVar[dict[str, tuple]] = {"clip": (True, False)}
    published_delta = staticmethod(
        inverse_n_log_n
    )  # what delta="auto" is where a paper takes it from n
    curator: ClassVar[type] = Curator  # the kind of curator that serves the claim's adjacency
    batched: ClassVar[bool] = (
        True  # whether ``cluster`` serves all replicates at once; else it is called for each
    )

    n_clusters: int = 8
    _: KW_ONLY
    bounds: tuple = (-1, 1)
    clip: bool = True
    random_state: int | None = None

    @property
    def claim(self) -> PrivacyClaim:
        """The claim of the chosen variant."""
        return self.claims[getattr(self, "variant", "sound")]

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run the curator's replicates; return centers (R, k, d) on the grid and the number of iterations."""
        raise NotImplementedError(f"{type(self).__name__} must define cluster(curator)")

    def budget(self, n_points: int, n_features: int) -> Budget | None:
        """Budget of one run on points of that shape; None where no privacy is claimed."""
        if not self.claim.private:
            return None
        return Budget(self.epsilon, self.resolved_delta(n_points), self.claim.adjacency)

    def resolved_delta(self, n_points: int) -> float:
        """Delta of one run: 0 for a pure claim, the parameter, or what the variant takes for ``"auto"``."""
        if self.claim.notion == "pure":
            return 0.0
        if self.delta != "auto":
            return self.delta
        if getattr(self, "variant", "sound") == "sound":
            return SOUND_DELTA
        return self.published_delta(n_points)

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters before any work.

        Raises
        ------
        ValueError
            Naming the parameter, its value and the rule.
        """
        k = self.n_clusters
        if not is_integer(k) or k < 1:
            raise ValueError(f"n_clusters={k!r} must be an integer of at least 1")
        if n_points is not None and k > n_points:
            raise ValueError(f"n_clusters={k} must be at most the number of points n={n_points}")
        for name, known in self.choices.items():
            value = getattr(self, name)
            if value not in known:
                raise ValueError(
                    f"{name}={value!r} is unknown, choose one of {', '.join(map(repr, known))}"
                )
        if self.claim.private:
            if not (is_number(self.epsilon) and MIN_EPSILON <= self.epsilon < math.inf):
                raise ValueError(
                    f"epsilon={self.epsilon!r} must be a positive finite number, at least {MIN_EPSILON}"
                )
            delta = getattr(self, "delta", "auto")
            if delta != "auto" and not (is_number(delta) and 0 < delta < 1):
                raise ValueError(f"delta={delta!r} must be 'auto' or a number in (0, 1)")

    def fit_batch(
        self, points: np.ndarray | Points | Sequence, seeds: Sequence[int], domain=None
    ) -> Run:
        """Cluster the same points once per seed.

        Parameters
        ----------
        points : ndarray of shape (n, d), int64
            Private points on the grid (see :func:`privacy.snap`), prepared points, or a list of shards of either.
        seeds : sequence of int
            One replicate each; a replicate's result does not depend on the others.
        domain : array-like of shape (2, d), optional
            Public bounds, in the data's own units, that the grid stands for. Default: -1 and 1.

        Returns
        -------
        Run
        """
        shards = shards_of(points)
        n_points, n_features = sum(shard.shape[0] for shard in shards), shards[0].shape[1]
        return self.fit_with(
            lambda *door: self.curator(shards, *door, domain), n_points, n_features, seeds
        )

    def fit_with(
        self, door: Callable[..., Curator], n_points: int, n_features: int, seeds: Sequence[int]
    ) -> Run:
        """Cluster through a curator of whatever kind, once per seed.

        Parameters
        ----------
        door : callable
            From a ledger (None where no privacy is claimed) and the replicates' NoiseStreams to a curator.
        n_points, n_features : int
            Of all points together, whoever holds them.
        seeds : sequence of int
            One replicate each.

        Returns
        -------
        Run
        """
        self.check_parameters(n_points)
        budget = self.budget(n_points, n_features)
        streams = NoiseStreams(seeds, secure=getattr(self, "secure", False))
        released, rounds, ledgers = [], [], []
        for some in [streams] if self.batched else streams.each():
            ledgers.append(None if budget is None else Ledger(budget))
            centers, n_iter = self.cluster(door(ledgers[-1], some))
            released += list(centers)
            rounds.append(n_iter)
        if any(ledger is not None and ledger.charges != ledgers[0].charges for ledger in ledgers):
            raise RuntimeError(
                "replicates were charged differently: a schedule must not depend on private data"
            )
        n_centers = np.array([len(centers) for centers in released])
        return Run(
            _padded(released, n_centers.max()), max(rounds), ledgers[0], streams.seeds, n_centers
        )

    def fit(self, X, y=None):
        """Cluster points given in their own units.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Numbers, finite. Rows outside ``bounds`` are clipped to them, or refused with ``clip=False``.
        y : ignored

        Returns
        -------
        self
            With ``cluster_centers_`` (k, d) in the units of X, ``n_iter_``, ``ledger_`` and ``n_features_in_``. There
            are no ``labels_``: exact labels are not covered by the claim. ``predict`` is public code on public centers.
        """
        X, points, (lower, upper), seed = self._entered(X)
        run = self.fit_batch(points, [seed], (lower, upper))
        self.cluster_centers_ = to_unit(run.centers[0]) * (upper / 2 - lower / 2) + (
            upper / 2 + lower / 2
        )
        self.n_iter_, self.ledger_, self.n_features_in_ = run.n_iter, run.ledger, X.shape[1]
        self._fitted_box, self._centers = (lower, upper), run.centers
        return self

    def predict(self, X) -> np.ndarray:
        """Index of the nearest released center for each row of X; rows outside the bounds are clipped to them."""
        check_is_fitted(self, "cluster_centers_")
        X = _matrix(X)
        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, the model was fitted with {self.n_features_in_}"
            )
        return labels(Points.from_box(X, *self._fitted_box)[0], self._centers)[0]

    def fit_predict(self, X, y=None, **kwargs) -> np.ndarray:
        """Fit, then predict the same rows."""
        return self.fit(X).predict(X)

    def _entered(self, X) -> tuple[np.ndarray, Points, tuple[np.ndarray, np.ndarray], int]:
        """Check points in their own units: the matrix, the same on the grid, the box it stands for, and a seed."""
        X = _matrix(X)
        lower, upper = self._box(X.shape[1])
        points, outside = Points.from_box(X, lower, upper)
        if outside and not self.clip:
            raise ValueError(
                f"points lie outside bounds={self.bounds}; widen bounds or set clip=True"
            )
        seed = secrets.randbits(63) if self.random_state is None else int(self.random_state)
        return X, points, (lower, upper), seed

    def _box(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        bounds = np.asarray(self.bounds, dtype=np.float64)
        if bounds.shape not in {(2,), (2, d)}:
            raise ValueError(
                f"bounds must be (lower, upper) or of shape (2, {d}), got shape {bounds.shape}"
            )
        lower, upper = (np.broadcast_to(bound, d) for bound in bounds)
        if not (np.isfinite(bounds).all() and (lower < upper).all()):
            raise ValueError(
                f"bounds={self.bounds} must be finite with lower < upper in every column"
            )
        return lower, upper


def _padded(released: list[np.ndarray], k: int) -> np.ndarray:
    """Stack sets of centers, filled up to k with copies of their first."""
    return np.stack(
        [np.concatenate([each, np.repeat(each[:1], k - len(each), axis=0)]) for each in released]
    )


def is_number(value) -> bool:
    """Tell a real number from anything else; a bool is none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_integer(value) -> bool:
    """Tell an integer from anything else; a bool is none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _matrix(X) -> np.ndarray:
    try:
        X = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"X must be numeric: {error}") from error
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"X must have shape (n, d) with n, d >= 1, got {X.shape}")
    return X
