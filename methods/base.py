"""Base class of the methods: a scikit-learn estimator."""

import secrets
import warnings
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from pkm.compute import middle_and_half_width
from pkm.compute.storage.blocks import Blocks
from pkm.compute.storage.dask_points import DaskPoints
from pkm.compute.storage.grid_file import open_unchanged
from pkm.methods.fitting import BatchMethod, check_account
from pkm.methods.inputs import feature_names, read_points
from pkm.methods.record_count import count_interval
from pkm.methods.released import ReleasedModel
from pkm.methods.report import REPORTED
from pkm.methods.statement import SOFTWARE
from pkm.methods.weights import weigh_rows
from pkm.privacy import PrivacyAccountant
from pkm.privacy.budget import describe_large_delta
from pkm.row_blocks import RowsLike


class PrivateKMeans(ReleasedModel, BatchMethod):
    """Base class of a clustering method.

    A method implements :class:`pkm.methods.contract.ClusteringMethod`.
    :class:`pkm.methods.fitting.BatchMethod` runs it, and this class makes it an
    estimator.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    bounds : (lower, upper) or array of shape (2, d), optional
        Public domain: bounds of each feature that are known without the points, as two
        numbers or two lists of d numbers. A list of tuples is refused: it looks like
        pairs by feature. A private ``fit`` needs bounds. If a feature has -inf and inf,
        a tenth of the budget is spent on finding its bounds. That needs a zero-out
        method and ``clip``; see :mod:`pkm.methods.private_bounds`. Default for methods
        that claim no privacy: the extremes of the points.
    clip : bool, default=True
        Clip rows outside the bounds. Otherwise they are refused, which the privacy
        claim does not cover.
    random_state : int, optional
        Seed of the replicate that ``fit`` runs, noise included; 0 or more. Its result
        is repeatable, and private only as long as nobody knows the seed. Default: noise
        from the operating system.
    zoom : float, optional
        Fraction of the budget, in [0, 1), used to find tighter bounds first (try 0.1).
        Zero-out and add-remove methods only; see :mod:`pkm.methods.zoom`. If the budget
        is too small for it, a public fact, the method has the whole budget. Default: no
        zoom.
    require_zoom : bool, default=False
        Refuse a fit with too little budget for the zoom.
    report : float, optional
        Fraction of the budget, in [0, 1), used to say how large the clusters are and
        what they cost, with errors (try 0.1). Methods as for a zoom; see
        :mod:`pkm.methods.report`. Default: no report.
    secure : bool, default=False
        Draw noise from the operating system's entropy instead of the seed.
    adjacency : {"zero_out", "add_remove"}, default="zero_out"
        With ``add_remove`` the number of records is secret: the method spends 2 % of
        the budget on it, and goes on with what it has released. Zero-out methods only;
        see :mod:`pkm.methods.record_count`. Others keep the adjacency of their claim.
    missing : {"middle"}, optional
        Treatment of missing entries, NaN in rows that have others: with ``middle`` the
        middle of the domain, which is that of the zoom if there is one. Lloyd's methods
        have ``k-pod`` instead. Default: such a row is the null record. A report takes
        the middle in either case.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (k, d), float64
        Released centers, in the units of X.
    n_iter_ : int
        Number of rounds or iterations; 1 where a method does not count them.
    n_ : int
        Number of records, public or released.
    n_interval_ : tuple of float
        Interval that holds the exact number of records in 95 % of fits. Both ends are
        ``n_`` where that is public.
    ledger_ : Ledger or None
        Charges of the fit; None without a privacy claim.
    domain_ : ndarray of shape (2, d), float64
        Bounds that the method ran in, in the units of X: public, or found by a zoom.
    zoom_ : Zoom or None
        The domain that a zoom found (:class:`pkm.methods.zoom.Zoom`), else None.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of str
        Names of the columns, if X has text names.

    See Also
    --------
    SynopsisKMeans : Where to start among the methods.
    ProgramKMeans : A method that is a program in any language.
    """

    def fit(
        self,
        X: ArrayLike | RowsLike,
        y: object = None,
        *,
        groups: ArrayLike | str | None = None,
        sample_weight: ArrayLike | None = None,
        max_weight: float = 1.0,
        account: PrivacyAccountant | None = None,
        progress: bool = False,
    ) -> Self:
        """Cluster points given in their own units.

        Parameters
        ----------
        X : array-like of shape (n, d), or what is read in blocks
            An array or a frame. Other sources are read in blocks, with the same result
            to the bit: a path of an NPY or Parquet file, or of a folder or a pattern of
            Parquet files; an array that is mapped from a file; a
            ``pyarrow.dataset.Dataset``, an Arrow table or a polars frame; a
            ``dask.array``, on its cluster if there is one; and
            :class:`pkm.row_blocks.RowBlocks`. Blocks are for methods with
            ``supports_chunks``; others need all points at once, and refuse files. Rows
            are read once for every pass. Grid files, which ``pkm pack`` writes, are for
            all methods and have their bounds.

            Rows outside ``bounds`` are clipped to them, or refused with ``clip=False``.
            A row with NaN or an infinite value is the null record of zero-out
            adjacency: it counts in n and contributes nothing. With ``missing`` a row of
            which only some entries are NaN is none. Under other adjacencies
            NaN is the middle of the bounds, and infinite values are clipped; grid files
            have the middle of all columns for such a row. No number of one record makes
            a private fit raise; methods that claim no privacy refuse such rows. Texts,
            even of digits, and dates are refused.

            Without a ``random_state`` noise comes from the operating system's entropy.
        y : ignored
        groups : array-like of shape (n,), or str, optional
            Person of every row, as integers or texts; a null is a person of one row. Or
            the name of a column of a frame, a Parquet file or an Arrow table, which is
            then no feature; or a ``dask.array`` with the chunks of X; or beside a file
            an array that is mapped from another one. Such ids are read in blocks, with
            12 bytes of memory for each person.

            Neighbors then differ in all rows of one person, and n is the number of
            persons. A row of a person with m rows weighs 1 / m, so that the cost is an
            average over persons. Methods with queries that have no bound for weighted
            rows refuse groups and weights, before anything is read.
        sample_weight : array-like of shape (n,), optional
            Weights, clipped to the interval from 0 to ``max_weight``; NaN is 0. The
            weight of a person's row is multiplied by 1 / m.
        max_weight : float, default=1.0
            Public bound of the weights. A row of that weight is one record.
        account : PrivacyAccountant, optional
            Account of all runs on these points. It is charged before the first draw, or
            refuses the run.
        progress : bool, default=False
            Show a progress bar for every pass over blocks; refused where n is secret.

        Returns
        -------
        self
            With the attributes of the class. With a ``report`` there are also
            ``cluster_sizes_``, ``centers_interval_``, ``cost_``, ``profile_`` and the
            other values of :class:`pkm.methods.report.Report`. Each has its name there
            and an underscore; positions are in the units of X. There are no
            ``labels_``: exact labels are not covered by the claim. ``predict`` is
            public code on public centers.

        Warns
        -----
        RepeatableNoiseWarning
            If noise is drawn from a ``random_state``: whoever knows it can take the
            noise off.
        ConvergenceWarning
            If there are fewer distinct centers than ``n_clusters``.
        UserWarning
            If delta is above 1/n.
        """
        self.check_parameters()
        check_account(account)
        if progress and self.hides_n:
            raise ValueError(
                "progress=True shows the number of blocks, and add_remove adjacency "
                "keeps n secret: leave progress out"
            )
        names = feature_names(X)
        if isinstance(groups, str):
            names = [name for name in names if name != groups]
        weigh = partial(
            weigh_rows,
            sample_weight=sample_weight,
            max_weight=max_weight,
        )
        with open_unchanged(X) as source:
            points, declared = read_points(self, source, groups, weigh)
            if isinstance(points, Blocks | DaskPoints):
                points = replace(points, progress=progress)
            seed, secure = self._draw_seed()
            domain = np.array(declared)
            run = self.fit_batch(points, [seed], domain, account=account, secure=secure)

        # Convert centers and bounds to the units of X.
        assert run.domain is not None, "a curator has a domain"
        domain = run.domain
        bounds = domain[0], domain[1]
        middle, half_width = middle_and_half_width(*bounds)
        self.cluster_centers_ = run.positions[0] * half_width + middle
        self.n_iter_ = run.n_iter
        self.ledger_ = run.ledger
        (self.n_,) = run.n_points
        self.n_interval_ = count_interval(self.n_, run.ledger)
        # Nothing is left of the report of an earlier fit.
        for name in REPORTED:
            vars(self).pop(name, None)
        if run.reports[0] is not None:
            report = run.reports[0].to_units(middle, half_width)
            vars(self).update(report.attributes)
        self.n_features_in_ = len(middle)
        if names:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.zoom_ = run.zooms[0]
        self.domain_ = domain
        if self.zoom_ is not None:
            self.domain_ = middle + half_width * self.zoom_.bounds
        # Rows to predict are clipped to these, and not to the domain of a zoom.
        self._fitted_bounds = bounds
        self._centers = run.centers
        self._software = SOFTWARE
        self._set_synopsis(run.synopsis)
        self._warn_few_centers()
        self._warn_large_delta(self.n_)
        return self

    def _set_synopsis(self, synopsis: Any) -> None:
        """Set the attributes of a private summary that a fit released, if any."""

    def fit_predict(
        self,
        X: ArrayLike | RowsLike,
        y: object = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """Fit, then predict the same rows, which must be finite."""
        groups = kwargs.get("groups")
        if isinstance(groups, str):
            raise ValueError(
                f"groups={groups!r} names a column of X, which is no feature: call "
                "fit, then predict with the other columns"
            )
        # `fit` refuses what it does not take.
        return self.fit(X, **kwargs).predict(X)

    def _warn_large_delta(self, n_points: int) -> None:
        """Warn of a delta that allows to publish a record."""
        budget = self.budget(n_points, self.n_features_in_)
        warning = budget and describe_large_delta(budget.delta, n_points)
        if warning:
            warnings.warn(warning, UserWarning, stacklevel=3)

    def _warn_few_centers(self) -> None:
        """Warn of fewer distinct centers than asked; the caller of ``fit`` is named."""
        # A number of released values only: it costs no privacy.
        n_distinct = len(np.unique(self.cluster_centers_, axis=0))
        if self.n_clusters == "auto" or n_distinct >= self.n_clusters:
            return
        reason = "the points have no more positions; lower n_clusters"
        if self.claim.private:
            reason = (
                "what was released has no more positions; raise epsilon, narrow bounds "
                "or lower n_clusters"
            )
        warnings.warn(
            f"the number of distinct centers, {n_distinct}, is smaller than "
            f"n_clusters={self.n_clusters}: {reason}",
            ConvergenceWarning,
            stacklevel=3,
        )

    def _draw_seed(self) -> tuple[int, bool]:
        """Seed of a fit, and whether noise is secure; warn if it is repeatable."""
        seed = self.random_state
        if seed is None:
            return secrets.randbits(63), True
        source = f"random_state={seed}"
        return int(seed), self.decide_secure(None, source, stacklevel=4)
