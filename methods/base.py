"""Base class of the methods: an estimator that runs a method's code around a curator."""

import secrets
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from pkm.compute import middle_and_half_width
from pkm.compute.storage.blocks import Blocks
from pkm.compute.storage.dask_points import DaskPoints
from pkm.compute.storage.grid_file import unchanged
from pkm.methods.contract import ClusteringMethod, parameter_names
from pkm.methods.fitting import Part, Run, combine
from pkm.methods.inputs import feature_names, read_points
from pkm.methods.prediction import NearestCenters
from pkm.methods.zoomed import Zoomed
from pkm.privacy import (
    Account,
    AccountedRun,
    Charge,
    Curator,
    Ledger,
    NoiseStreams,
    shards_of,
)
from pkm.privacy.base import PointsLike, full_domain
from pkm.row_blocks import RowsLike

# Parameters that are not in the key of noise: the domain is, instead of bounds, and the
# others say where noise comes from. A zoom is, where there is one.
NOT_IN_NOISE_KEY = ("bounds", "clip", "random_state", "secure", "zoom", "require_zoom")


class RepeatableNoiseWarning(UserWarning):
    """Noise is drawn from a seed: whoever knows the seed can take the noise off."""


class PrivateKMeans(NearestCenters, ClusteringMethod):
    """Base class of a clustering method.

    A method declares what :class:`pkm.methods.contract.ClusteringMethod` asks for. This
    class runs it: the budget, batches of replicates, and the methods of a scikit-learn
    estimator.

    Parameters
    ----------
    n_clusters : int, default=8
    bounds : (lower, upper) or array of shape (2, d), optional
        Public domain, used by ``fit``: what is known of each feature without looking at
        the points. A private ``fit`` needs it. Methods that claim no privacy take the
        points' own extremes where it is left out.
    clip : bool, default=True
        Clip rows outside the bounds. Otherwise they are refused, which the privacy
        claim does not cover.
    random_state : int, optional
        Seed of the replicate that ``fit`` runs, noise included. Its result is
        repeatable, and private only as long as nobody knows the seed. Default: noise
        from the operating system.
    zoom : float, optional
        Fraction of the budget, in [0, 1), used to find tighter bounds first (try 0.1).
        Zero-out methods only; see :mod:`pkm.methods.zoom`. Too little budget for it, a
        public fact, leaves the whole budget to the method. Default: no zoom.
    require_zoom : bool, default=False
        Refuse a fit with too little budget for the zoom instead.
    secure : bool, default=False
        Draw noise from the operating system's entropy instead of the seed.
    """

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
            Private points on the grid (see :func:`pkm.privacy.snap`), prepared points,
            a list of shards of either, or Blocks, for methods with ``supports_chunks``.
        seeds : sequence of int
            One per replicate; a replicate's result does not depend on the others.
        domain : array-like of shape (2, d), optional
            Public bounds, in the units of the data, that the grid represents. Default:
            -1 and 1.
        account : Account, optional
            Of all runs on these points: it is charged for every replicate before the
            first draw.
        secure : bool, optional
            Draw noise from the operating system's entropy. Default: the parameter.

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

        shape = shards.n_records, shards.n_features
        schedule = None
        if account is not None:
            planned = self.planned_run(*shape, seeds)
            account.charge(planned)
            schedule = planned.schedule
        return self.fit_with(
            make_curator, *shape, seeds, schedule, domain=domain, secure=secure
        )

    def planned_run(
        self, n_points: int, n_features: int, seeds: Sequence[int], *, purpose: str = ""
    ) -> AccountedRun:
        """Plan what an account is charged for a batch, before the first draw.

        Parameters
        ----------
        n_points, n_features : int
        seeds : sequence of int
            One per replicate.
        purpose : str, default=""
            A note for the readers of the account.

        Returns
        -------
        AccountedRun
            With all releases, those of a zoom among them.

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
        streams = self.noise_streams(seeds, n_points, n_features)  # refuses equal seeds
        parameters = self.get_params(deep=False)
        parameters.pop("random_state", None)
        return AccountedRun(
            budget,
            Zoomed(self, n_points, n_features).schedule.charges,
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
            From a ledger (None where no privacy is claimed) and the replicates'
            NoiseStreams to a curator.
        n_points, n_features : int
            Of all points together, whoever holds them.
        seeds : sequence of int
            One per replicate.
        schedule : sequence of Charge, optional
            The only releases that each replicate may make. Default: any.
        domain : array-like of shape (2, d), optional
            Public bounds that the grid represents, for the streams of noise.
        secure : bool, optional
            Draw noise from the operating system's entropy. Default: the parameter.
        public_seeds : sequence of int, optional
            Of the randomness that may be known, one per replicate. Default: from the
            seeds.

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

        # A method that is not batched runs once for each replicate, each with a ledger
        # of its own. So does a zoom, because each replicate finds a domain of its own.
        zoomed = Zoomed(self, n_points, n_features)
        is_batch = self.batched and zoomed.plan is None
        parts = []
        for batch in [streams] if is_batch else streams.by_replicate():
            ledger = None
            if budget is not None:
                ledger = Ledger(budget, schedule, repeatable=not streams.secure)
            curator, zoom = zoomed.enter(make_curator(ledger, batch))
            centers, n_iter = zoomed.rest.cluster(curator)
            parts.append(Part(centers, n_iter, ledger, zoom))
        return combine(parts, streams.seeds)

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
        """Make the streams of noise of a run.

        No run of another method, other parameters, another budget, shape or domain, or
        another purpose shares them. Two runs with the same noise could be compared, and
        the noise taken off.

        Parameters
        ----------
        seeds : sequence of int
            One per replicate.
        n_points, n_features : int
        domain : array-like of shape (2, d), optional
            Default: -1 and 1.
        secure : bool, optional
            Default: the parameter.
        public_seeds : sequence of int, optional
            Default: from the seeds.
        purpose : str, default=""
            What the run is for, where it is not a fit.

        Returns
        -------
        NoiseStreams
        """
        parameters = {}
        for name in parameter_names(type(self)):
            value = getattr(self, name)
            is_newer = name in self.noise_key_defaults
            if name in NOT_IN_NOISE_KEY or (
                is_newer and value == self.noise_key_defaults[name]
            ):
                continue
            parameters[name] = (
                value.tolist() if isinstance(value, np.ndarray) else value
            )
        if self.zoom:
            parameters["zoom"] = self.zoom
        budget = self.budget(n_points, n_features)
        facts = (type(self).__qualname__, parameters, budget, n_points, n_features)
        key = repr((*facts, full_domain(domain, n_features).tolist(), purpose))
        is_secure = self.secure if secure is None else secure
        return NoiseStreams(seeds, is_secure, key, public_seeds)

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
            An array or a frame. Or, with the same result to the bit and some blocks in
            memory: a path of an NPY or Parquet file, of a folder or a pattern of
            Parquet files, an array that is mapped from a file, a
            ``pyarrow.dataset.Dataset``, an Arrow table or a polars frame, a
            ``dask.array`` (on its cluster, if there is one), or
            :class:`pkm.row_blocks.RowBlocks`. Blocks are for methods with
            ``supports_chunks``; others need all points at once, and refuse files. Rows
            are read once for every pass. Grid files, which ``pkm pack`` writes, are for
            all methods and have their bounds.

            Rows outside ``bounds`` are clipped to them, or refused with ``clip=False``.
            A row with NaN or an infinite value is the null record of zero-out
            adjacency: it counts in n and contributes nothing. Under other adjacencies
            NaN is the middle of the bounds, and infinite values are clipped. No value
            of one record makes a private fit raise; methods that claim no privacy
            refuse such rows.

            Without a ``random_state`` noise comes from the operating system's entropy.
        y : ignored
        account : Account, optional
            Of all runs on these points: it is charged before the first draw, or refuses
            the run.
        progress : bool, default=False
            Show a progress bar for every pass over blocks.

        Returns
        -------
        self
            With ``cluster_centers_`` (k, d) in the units of X, ``n_iter_``,
            ``ledger_``, ``n_features_in_``, ``feature_names_in_`` where X has names of
            columns that are texts, ``domain_`` (2, d), the bounds that the method ran
            in, and ``zoom_``, a :class:`pkm.methods.zoom.Zoom` where it found these
            itself, else None. There are no ``labels_``: exact labels are not covered by
            the claim. ``predict`` is public code on public centers.

        Warns
        -----
        RepeatableNoiseWarning
            If noise is drawn from a ``random_state``: whoever knows it can take the
            noise off.
        """
        self.check_parameters()
        names = feature_names(X)
        with unchanged(X) as source:
            points, bounds = read_points(self, source)
            if isinstance(points, Blocks | DaskPoints):
                points = replace(points, progress=progress)
            seed, secure = self._draw_seed()
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

    def _draw_seed(self) -> tuple[int, bool]:
        """Seed of a fit, and whether noise is secure; warn where it is repeatable."""
        seed = self.random_state
        if seed is None:
            return secrets.randbits(63), True
        if self.claim.private and not self.secure:
            warnings.warn(
                f"random_state={seed} makes noise repeatable: whoever knows or guesses it "
                "can take the noise off. Publish such a result only if the data are "
                "public; leave random_state out, or set secure=True where a method has it",
                RepeatableNoiseWarning,
                stacklevel=3,
            )
        return int(seed), self.secure
