"""Runs of a method around a curator: batches of replicates, and their outcome."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from pkm.compute import SCALE
from pkm.methods.contract import ClusteringMethod
from pkm.methods.planned import PlannedMethod
from pkm.methods.record_count import CountedMethod
from pkm.methods.report import Report, ReportPlan, release_report
from pkm.methods.zoom import Zoom
from pkm.privacy import (
    AccountedRun,
    Adjacency,
    Charge,
    Curator,
    Ledger,
    NoiseScaleError,
    NoiseStreams,
    PrivacyAccountant,
    ScheduleError,
    Unit,
    to_half_widths,
    to_shards,
)
from pkm.privacy.base import PointsLike, full_domain

#: From a ledger (None where no privacy is claimed) and noise streams to a curator.
CuratorFactory = Callable[[Ledger | None, NoiseStreams], Curator]

# Parameters that are not in the context of noise (see `NoiseStreams`). The domain is in
# it instead of bounds; a zoom, a report and another adjacency are, where there are any.
# With `missing` complete rows have the result that they have without. So two fits with
# one seed that differ in it alone share noise: publish one of them.
EXCLUDED_FROM_NOISE_CONTEXT = (
    "bounds",
    "clip",
    "random_state",
    "secure",
    "zoom",
    "require_zoom",
    "report",
    "adjacency",
    "missing",
)

# With less, the scale of a release may be refused in the middle of a run, which an
# account has been charged for by then. Scales are about 2**40 at 1e-4 in 784 features,
# and at most MAX_SCALE.
MIN_ACCOUNTED_EPSILON = 1e-5


def check_account(account: object) -> None:
    """Refuse what is no account, such as the path of its file."""
    if not isinstance(account, PrivacyAccountant | None):
        raise TypeError(
            f"account={account!r} must be a PrivacyAccountant, which "
            "PrivacyAccountant.open(FILE) reads"
        )


@dataclass(frozen=True)
class Run:
    """Outcome of a batch of replicates.

    Attributes
    ----------
    centers : ndarray of shape (R, k, d), int64
        Released centers on the grid. Fewer than k are filled up with copies of the
        first center. Ties go to the lower index, so that no point is assigned to a
        copy.
    n_iter : int
        Number of iterations, a public quantity.
    ledger : Ledger or None
        Charges of each replicate; None where no privacy is claimed. Under add-remove
        adjacency they follow from the n that a replicate released, and are those of the
        first one.
    seeds : tuple of int
    n_centers : ndarray of shape (R,), int64
        Number of centers that each replicate released.
    remainders : ndarray of shape (R, k, d), int64, or None
        Remainders of rounding the centers of smaller domains to the grid, in units of
        2**-16 grid steps; None without a zoom.
    zooms : tuple of Zoom or None
        The domain that each replicate found; None for the public domain.
    n_points : tuple of int
        Number of records by each replicate: the public one, or the one it released.
    reports : tuple of Report or None
        Of each replicate, with positions in half-widths of the public domain.
    domain : ndarray of shape (2, d), float64, or None
        Public bounds; where there were none, those that the last replicate found.
    synopsis : object
        Of the last replicate: a private summary of the points, such as weighted boxes,
        or what else came with its centers; None for most methods.
    """

    centers: np.ndarray
    n_iter: int
    ledger: Ledger | None
    seeds: tuple[int, ...]
    n_centers: np.ndarray
    remainders: np.ndarray | None = None
    zooms: tuple[Zoom | None, ...] = ()
    n_points: tuple[int, ...] = ()
    reports: tuple[Report | None, ...] = ()
    domain: np.ndarray | None = None
    synopsis: Any = None

    @property
    def positions(self) -> np.ndarray:
        """Centers (R, k, d) in half-widths of the public domain, float64."""
        if self.remainders is None:
            return to_half_widths(self.centers)
        return to_half_widths(self.centers + self.remainders / SCALE)


class RepeatableNoiseWarning(UserWarning):
    """Noise is drawn from a seed: whoever knows the seed can take the noise off."""


class RunOptions(TypedDict, total=False):
    """Options of a run, most of them of its noise streams.

    Attributes
    ----------
    domain : array-like of shape (2, d), optional
        Public bounds that the grid represents. Default: -1 and 1.
    secure : bool, optional
        Draw noise from the operating system's entropy. Default: the parameter.
    public_seeds : sequence of int, optional
        Seeds of the public randomness, one per replicate. Default: from the seeds.
    purpose : str, optional
        Purpose of a run that is not a fit, such as "coreset".
    unit : Unit, optional
        What a record stands for: a row or a person. Default: a row.
    """

    domain: ArrayLike | None
    secure: bool | None
    public_seeds: Sequence[int] | None
    purpose: str
    unit: Unit


class BatchMethod(ClusteringMethod):
    """A method that clusters the same points once per seed; see `PrivateKMeans`."""

    def fit_batch(
        self,
        points: PointsLike,
        seeds: Sequence[int],
        domain: ArrayLike | None = None,
        *,
        account: PrivacyAccountant | None = None,
        secure: bool | None = None,
        schedule: Sequence[Charge] | None = None,
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
        account : PrivacyAccountant, optional
            Account of all runs on these points. It is charged for every replicate
            before the first draw.
        secure : bool, optional
            Draw noise from the operating system's entropy. False: from the seeds, which
            is for public data. Default: the parameter.
        schedule : sequence of Charge, optional
            The only releases that each replicate may make, of a run that an account has
            paid for. Default: any, or those that `account` pays for.

        Returns
        -------
        Run

        Raises
        ------
        BudgetExceeded
            If the run would exceed the account's budget; the account is as before then.

        Warns
        -----
        RepeatableNoiseWarning
            If noise is drawn from the seeds and `secure` is left out.
        """
        check_account(account)
        secure = self.decide_secure(secure, f"seeds={list(seeds)}")
        if account is not None and not secure:
            raise ValueError(
                "account takes secure noise alone: leave random_state out, or set "
                "secure=True"
            )
        shards = to_shards(points)
        make_curator = partial(self.curator, shards, domain=domain)
        shape = shards.n_records, shards.n_features
        if shards.has_weights:
            self.refuse_unweighted(*shape)
        unit = Unit.of(shards.n_persons)
        if account is not None:
            planned = self.planned_run(*shape, seeds, unit=unit)
            account.charge(planned)
            schedule = planned.schedule
        options = RunOptions(domain=domain, secure=secure, unit=unit)
        return self.fit_with(make_curator, *shape, seeds, schedule, **options)

    def refuse_unweighted(self, n_points: int, n_features: int) -> None:
        """Refuse rows with weights if a planned query has no bound for them."""
        reason = self.find_unweighted(n_points, n_features)
        if reason:
            raise ValueError(
                "groups and sample_weight are not supported by "
                f"{type(self).__name__}, for {reason}: leave them out, or take "
                "QuadtreeKMeans"
            )

    def find_unweighted(
        self,
        n_points: int,
        n_features: int,
    ) -> str:
        """Say why rows with weights are refused; empty if they are not.

        Some queries have no bound for them, and most methods without privacy no code.
        """
        if not self.claim.private:
            return "" if self.serves_weights else "it claims no privacy"
        served = {query.label for query in self.curator.serves if query.serves_weights}
        if self.hides_n:
            planned = CountedMethod(self, n_features).possible_charges
        else:
            planned = PlannedMethod(self, n_points, n_features).schedule.charges
        others = ", ".join(sorted({charge.label for charge in planned} - served))
        return others and f"{others}, whose sensitivity is that of whole records"

    def decide_secure(
        self,
        secure: bool | None,
        source: str,
        stacklevel: int = 3,
    ) -> bool:
        """Decide whether noise is secure; warn if it is repeatable by default."""
        if secure is not None:
            return secure
        if self.claim.private and not self.secure:
            warnings.warn(
                f"{source} makes noise repeatable: whoever knows or guesses it can "
                "take the noise off. Publish such a result only if the data are "
                "public; for others set secure=True",
                RepeatableNoiseWarning,
                stacklevel,
            )
        return self.secure

    def planned_run(
        self,
        n_points: int,
        n_features: int,
        seeds: Sequence[int],
        *,
        purpose: str = "",
        unit: Unit = Unit.ROW,
    ) -> AccountedRun:
        """Plan what an account is charged for a batch, before the first draw.

        Parameters
        ----------
        n_points, n_features : int
        seeds : sequence of int
            One per replicate.
        purpose : str, default=""
            A note for the readers of the account.
        unit : Unit, default=Unit.ROW
            What a record stands for: a row or a person.

        Returns
        -------
        AccountedRun
            With all releases, those of a zoom and a report among them. Under add-remove
            adjacency with that of n and a bound on the others, which follow from it.

        Raises
        ------
        ValueError
            If a parameter is out of its range, or the method claims no privacy.
        """
        self.check_parameters(n_points)
        budget = self.budget(n_points, n_features)
        if self.claim.private and self.epsilon < MIN_ACCOUNTED_EPSILON:
            raise ValueError(
                f"epsilon={self.epsilon!r} is too small: with an account it must be at "
                f"least {MIN_ACCOUNTED_EPSILON:g}, below which noise may not fit int64"
            )
        if budget is None:
            raise ValueError(
                f"{type(self).__name__} claims no privacy: an account adds up private "
                "runs only"
            )
        parameters = self.parameters
        parameters.pop("random_state", None)
        if self.hides_n:
            schedule = CountedMethod(self, n_features).charges
        else:
            schedule = PlannedMethod(self, n_points, n_features).schedule.charges
        return AccountedRun(
            replace(budget, unit=unit),
            schedule,
            n_replicates=len(NoiseStreams(seeds).seeds),  # refuses equal seeds
            method=type(self).__name__,
            parameters=parameters,
            purpose=purpose,
            flaws=self.claim.flaws,
        )

    def fit_with(
        self,
        make_curator: CuratorFactory,
        n_points: int,
        n_features: int,
        seeds: Sequence[int],
        schedule: Sequence[Charge] | None = None,
        **options: Unpack[RunOptions],
    ) -> Run:
        """Cluster through given curators, once per seed.

        Parameters
        ----------
        make_curator : callable
            From a ledger (None where no privacy is claimed) and the replicates'
            NoiseStreams to a curator.
        n_points, n_features : int
            Shape of all points together, whoever holds them.
        seeds : sequence of int
            One per replicate.
        schedule : sequence of Charge, optional
            The only releases that each replicate may make. Default: any.
        **options
            Options of the noise streams; see :class:`RunOptions`.

        Returns
        -------
        Run
        """
        prepared = self.prepare_runs(
            make_curator, n_points, n_features, seeds, schedule, **options
        )
        try:
            runs = [run.cluster() for run in prepared]
        except NoiseScaleError as error:
            message = f"epsilon={self.epsilon!r} is too small: {error}"
            raise ValueError(message) from None
        return merge_runs(runs, seeds)

    def prepare_runs(
        self,
        make_curator: CuratorFactory,
        n_points: int,
        n_features: int,
        seeds: Sequence[int],
        schedule: Sequence[Charge] | None = None,
        **options: Unpack[RunOptions],
    ) -> Iterator["PreparedRun"]:
        """Prepare the runs of a batch; parameters are as of :meth:`fit_with`."""
        self.check_parameters(n_points)
        budget = self.budget(n_points, n_features)
        streams = self.noise_streams(seeds, n_points, n_features, **options)

        # A method that is not batched runs once for each replicate, with a ledger for
        # each. So does one with a zoom, because replicates find different domains; with
        # a report, because they release different numbers of centers; and one that
        # releases n, because the schedule follows from it.
        planned = PlannedMethod(self, n_points, n_features)
        counted = CountedMethod(self, n_features) if self.hides_n else None
        if counted is not None and schedule not in (None, counted.charges):
            raise ScheduleError(
                "schedule must be that of planned_run: the release of n, and the bound "
                "on the others"
            )
        is_batch = self.batched and counted is None
        # Nothing is planned with a secret n: whether a plan is refused depends on n.
        if is_batch:
            plans = planned.bounds, planned.zoom, planned.report
            is_batch = plans == (None, None, None)
        for batch in [streams] if is_batch else streams.by_replicate():
            ledger = None
            if budget is not None:
                budget = replace(budget, unit=options.get("unit", Unit.ROW))
                ledger = Ledger(budget, schedule, repeatable=not streams.secure)
            public_curator = make_curator(ledger, batch)
            if counted is not None and ledger is not None:
                planned = counted.release(public_curator, ledger)
            method = planned.method_with_rest
            public_curator = planned.find_bounds(public_curator)
            curator, zoom = planned.find_domain(public_curator)
            yield PreparedRun(
                method,
                curator,
                ledger,
                zoom,
                planned.report,
                public_curator,
            )

    def noise_streams(
        self,
        seeds: Sequence[int],
        n_points: int,
        n_features: int,
        **options: Unpack[RunOptions],
    ) -> NoiseStreams:
        """Make the noise streams of a run.

        Runs that differ in the method, its parameters, the budget, shape, domain or
        purpose share no noise: comparing two runs with the same noise would remove it.
        Parameters in `EXCLUDED_FROM_NOISE_CONTEXT` are the exception.
        A class of this package is told by its name, which no other one has; a class of
        another package also by its module.

        Parameters
        ----------
        seeds : sequence of int
            One per replicate.
        n_points, n_features : int
        **options
            See :class:`RunOptions`.

        Returns
        -------
        NoiseStreams
        """
        parameters = {}
        for name, value in self.parameters.items():
            is_array = isinstance(value, np.ndarray)
            value = value.tolist() if is_array else value
            is_default = (name, value) in self.noise_context_defaults.items()
            if name not in EXCLUDED_FROM_NOISE_CONTEXT and not is_default:
                parameters[name] = value
        for name in ("zoom", "report"):
            if getattr(self, name):
                parameters[name] = getattr(self, name)
        if self.hides_n:
            parameters["adjacency"] = Adjacency.ADD_REMOVE.value
        budget = self.budget(n_points, n_features)
        domain = full_domain(options.get("domain"), n_features).tolist()
        purpose = options.get("purpose", "")
        method_class = type(self)
        name = method_class.__qualname__
        # A class of another package may have the name of one of this package.
        if method_class.__module__.partition(".")[0] != __name__.partition(".")[0]:
            name = f"{method_class.__module__}.{name}"
        context = (name, parameters, budget, n_points, n_features, domain, purpose)
        secure = options.get("secure")
        is_secure = self.secure if secure is None else secure
        public_seeds = options.get("public_seeds")
        return NoiseStreams(seeds, is_secure, repr(context), public_seeds)


class PartialRun(NamedTuple):
    """Result of one call of ``cluster``, for one or more replicates."""

    centers: Sequence[np.ndarray] | np.ndarray
    n_iter: int
    ledger: Ledger | None
    zoom: Zoom | None
    n_points: int
    report: Report | None
    domain: np.ndarray
    synopsis: Any


class PreparedRun(NamedTuple):
    """One or more replicates before their call of ``cluster``.

    Attributes
    ----------
    method : ClusteringMethod
        With the budget that a zoom and a report leave.
    curator : Curator
        Curator of the domain that the zoom found.
    ledger : Ledger or None
    zoom : Zoom or None
    report : ReportPlan or None
    public_curator : Curator
        Curator of the public domain, or of the bounds that were found.
    """

    method: Any
    curator: Curator
    ledger: Ledger | None
    zoom: Zoom | None
    report: ReportPlan | None
    public_curator: Curator

    def cluster(self) -> PartialRun:
        """Release the centers, and the report on them."""
        centers, n_iter, *synopsis = self.method.cluster(self.curator)
        report = None
        if self.report is not None:
            report = release_report(
                self.public_curator, self.report, centers[0], self.zoom
            )
        return PartialRun(
            centers,
            n_iter,
            self.ledger,
            self.zoom,
            self.curator.n_points,
            report,
            self.public_curator.domain,
            synopsis[0] if synopsis else None,
        )


def merge_runs(runs: Sequence[PartialRun], seeds: Sequence[int]) -> Run:
    """Merge the runs of one or more replicates to that of a batch.

    Parameters
    ----------
    runs : sequence of PartialRun
    seeds : sequence of int
        Seeds of all replicates.

    Returns
    -------
    Run

    Raises
    ------
    RuntimeError
        If charges differ between replicates: a schedule that depends on private data
        would disclose some. Under add-remove adjacency they follow from the released n.
    """
    charges = [
        run.ledger.charges
        for run in runs
        if run.ledger is not None
        and run.ledger.budget.adjacency != Adjacency.ADD_REMOVE
    ]
    if not all([_cost_the_same(other, charges[0]) for other in charges[1:]]):
        raise RuntimeError(
            "replicates were charged differently: a schedule must not depend on "
            "private data"
        )
    released = [centers for run in runs for centers in run.centers]
    zooms = [run.zoom for run in runs for _ in run.centers]
    n_centers = [len(centers) for centers in released]
    k = max(n_centers)
    remainders = None
    if any(zooms):
        released, rounded_off = _to_public_grid(released, zooms)
        remainders = _pad(rounded_off, k)
    return Run(
        _pad(released, k),
        max(run.n_iter for run in runs),
        runs[0].ledger,
        tuple(map(int, seeds)),
        np.array(n_centers),
        remainders,
        tuple(zooms),
        tuple([run.n_points for run in runs for _ in run.centers]),
        tuple([run.report for run in runs for _ in run.centers]),
        runs[-1].domain,
        runs[-1].synopsis,
    )


def _cost_the_same(charges: Sequence[Charge], others: Sequence[Charge]) -> bool:
    """Whether charges are for the same releases at the same costs, up to rounding."""
    # Notes of a charge, and the last bits of its cost, may depend on released values.
    same_length = len(charges) == len(others)
    return same_length and all(map(Charge.matches, charges, others))


def _to_public_grid(
    released: list[np.ndarray], zooms: list[Zoom | None]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Convert centers to public grid steps, and remainders in 2^-16 grid steps."""
    centers: list[np.ndarray] = []
    remainders: list[np.ndarray] = []
    for positions, zoom in zip(released, zooms, strict=True):
        # Coordinates in units of 2^-16 public grid steps.
        if zoom is None:
            scaled = positions * SCALE
        else:
            scaled = np.rint(zoom.to_public(positions) * SCALE * SCALE).astype(np.int64)
        steps = (scaled + SCALE // 2) // SCALE
        centers.append(steps)
        remainders.append(scaled - steps * SCALE)
    return centers, remainders


def _pad(released: list[np.ndarray], k: int) -> np.ndarray:
    """Stack sets of centers, each filled up to k with copies of its first center."""
    if min(map(len, released)) == k:
        return np.array(released, np.int64)
    n_features = released[0].shape[1]
    padded = np.empty((len(released), k, n_features), np.int64)
    for row, centers in zip(padded, released, strict=True):
        row[: len(centers)] = centers
        row[len(centers) :] = centers[0]
    return padded
