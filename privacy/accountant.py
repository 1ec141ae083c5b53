"""A privacy filter over all runs on one data set, which stay within a budget.

A run that would exceed the budget is refused. The guarantee holds although every run,
its method, parameters and budget may be chosen by what earlier runs released.
"""

import json
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from pkm.files import OWNER_FILE, atomic_write, locked, record_digest
from pkm.privacy.budget import Budget
from pkm.privacy.calibration import gdp_epsilon
from pkm.privacy.ledger import (
    COST_FIELDS,
    SLACK,
    BudgetExceeded,
    Charge,
    Ledger,
    split_groups,
)
from pkm.privacy.mechanisms.selection import selection_mu
from pkm.scalars import is_integer

FORMAT = "account of private runs, version 1"
COMPOSITIONS = ("basic", "gaussian")
#: Fields of a run that describe it and have no effect on its cost.
DESCRIPTION = ("date", "method", "purpose", "flaws")


class AccountError(ValueError):
    """An account cannot be read, written, or charged for a run; nothing was charged."""


@dataclass(frozen=True)
class AccountedRun:
    """A run that an account is charged for as a whole.

    Parameters
    ----------
    budget : Budget
        Budget of one replicate.
    schedule : sequence of Charge
        The releases of one replicate. The run must make no others: see :class:`Ledger`.
    n_replicates : int, default=1
        Number of replicates whose results are kept; each is charged.
    method : str, default=""
        Name of the method.
    parameters : mapping, optional
        Its parameters without seeds: whoever knows a seed can subtract the noise.
    purpose : str, default=""
        What the run is for, in words.
    flaws : sequence of str
        Known flaws of the method's claim: the run may cost more than is charged.
    date : str, default=""
        Set when the run is charged.

    Raises
    ------
    AccountError
        If there is no replicate or no release.
    BudgetExceeded
        If the schedule exceeds the budget.
    """

    budget: Budget
    schedule: Sequence[Charge]
    n_replicates: int = 1
    method: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    purpose: str = ""
    flaws: Sequence[str] = ()
    date: str = ""

    def __post_init__(self) -> None:
        if not is_integer(self.n_replicates) or self.n_replicates < 1:
            raise AccountError(
                f"n_replicates={self.n_replicates!r} must be an integer, 1 or more"
            )
        if not self.schedule:
            raise AccountError("schedule=() must list the releases of the run")
        # A ledger checks that the schedule fits the run's own budget.
        ledger = Ledger(self.budget)
        ledger.charge(*self.schedule)
        object.__setattr__(self, "schedule", ledger.charges)

    @cached_property
    def gaussian_cost(self) -> tuple[float, float]:
        """Cost of one replicate; see :func:`gaussian_cost`."""
        return gaussian_cost(self.schedule)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready record."""
        parameters = {name: _to_json(value) for name, value in self.parameters.items()}
        charges = [
            dict(zip(COST_FIELDS, charge.cost, strict=True)) for charge in self.schedule
        ]
        return {
            **{name: getattr(self, name) for name in DESCRIPTION},
            "parameters": parameters,
            "replicates": self.n_replicates,
            "budget": asdict(self.budget),
            "charges": charges,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "AccountedRun":
        """Make a run of its record."""
        return cls(
            Budget(**record["budget"]),
            [Charge(**charge) for charge in record["charges"]],
            record["replicates"],
            parameters=record["parameters"],
            **{name: record[name] for name in DESCRIPTION},
        )


@dataclass(frozen=True)
class _Terms:
    """The terms of an account, fixed when it is opened."""

    budget: Budget
    composition: str = "basic"
    failure_delta: float = 0.0

    def __post_init__(self) -> None:
        if self.composition not in COMPOSITIONS:
            raise AccountError(
                f"composition={self.composition!r} is unknown, choose one of "
                f"{', '.join(COMPOSITIONS)}"
            )
        if self.composition == "basic" and self.failure_delta != 0:
            raise AccountError(
                f"failure_delta={self.failure_delta} must be 0 with "
                "composition='basic', where all deltas add up"
            )
        # Gaussian noise needs some delta that no failure uses up.
        fits = 0 <= self.failure_delta < self.budget.delta
        if self.composition == "gaussian" and not fits:
            raise AccountError(
                f"failure_delta={self.failure_delta} must be at least 0 and below the "
                f"budget's delta={self.budget.delta}: composition='gaussian' needs the "
                "rest for noise"
            )

    def __str__(self) -> str:
        terms = asdict(self)
        terms = terms.pop("budget") | terms
        return ", ".join(f"{name}={value}" for name, value in terms.items())


class PrivacyAccountant:
    """Filter of all runs on one data set: together they stay within a budget.

    A run is charged as a whole, for every replicate that is kept, before anything is
    drawn; it is never refunded. What would exceed the budget is refused and changes
    nothing.

    Parameters
    ----------
    budget : Budget
        Budget of all runs together. All runs must have its adjacency, rho and
        unit.
    path : path-like, optional
        File that holds the account, readable by its owner alone; created if missing.
        Several processes may charge it at once. Default: the account is in memory.
    composition : {"basic", "gaussian"}, default="basic"
        How runs are added up; see Notes. It is fixed at creation: choosing it after
        seeing releases would invalidate both filters.
    failure_delta : float, default=0
        Part of the budget's delta that is reserved for probabilities of failure
        (``Charge.delta``), with ``composition="gaussian"``. It is fixed for the same
        reason.

    Attributes
    ----------
    runs : tuple of AccountedRun

    Raises
    ------
    AccountError
        If the composition does not fit the budget, or the file is damaged or holds an
        account with other terms.

    Notes
    -----
    Whatever is chosen by earlier releases (methods, parameters, budgets, the number of
    runs, when to stop), all runs together are (epsilon, delta)-private for the
    account's budget:

    * ``"basic"``: the sums of the runs' epsilons and of their deltas stay within the
      budget. This is a valid filter for (epsilon, delta)-private runs (Rogers, Roth,
      Ullman, Vadhan 2016), of any mechanisms.
    * ``"gaussian"``: a release is mu-GDP, except for a failure of probability
      ``Charge.delta``. A pure one is mu-GDP with ``mu = 2 probit(expit(epsilon))``,
      because a convex trade-off curve through the corner of the pure one lies below it.
      The sum of mu^2 stays within what ``epsilon`` and ``delta - failure_delta`` allow,
      and the sum of the failures within ``failure_delta``. That the sum of mu^2 is a
      valid filter is the theorem of Smith and Thakurta 2022 (also Koskela, Tobaben and
      Honkela 2023). Failures add to it by a union bound, as in Whitehouse, Ramdas,
      Rogers and Wu 2023.

      The proof is an induction from the last release. Let m be the sum of mu^2 that is
      left, and f the sum of failures that is left. Claim: for every event E, neighbors
      P and Q and gamma >= 0, P(E) - gamma Q(E) over all later releases is at most that
      of one Gaussian release with mu = sqrt(m), plus f. The next release adds at most
      its failure, and the claim holds after each of its outcomes for m - mu^2, whatever
      is chosen then.

    A common delta for failures and Gaussian noise would not be a valid filter. After a
    large privacy loss one could spend it on noise, after a small one on failures. The
    two together cost nearly twice that delta.

    A user (local adjacency) reports once per run. The cost of the most expensive group
    is added for all users.

    Runs at the same time, in several processes, are covered: a run is chosen when it is
    charged, given the results of runs that were charged before it.

    Examples
    --------
    >>> account = PrivacyAccountant(Budget(1.0))
    >>> charge = Charge("count", 0, "laplace", epsilon=0.75)
    >>> ledger = account.ledger(Budget(0.75), [charge])
    >>> ledger.charge(charge)
    >>> account.spent(), account.unspent()
    (0.75, 0.25)
    """

    def __init__(
        self,
        budget: Budget,
        path: str | os.PathLike[str] | None = None,
        *,
        composition: str = "basic",
        failure_delta: float = 0.0,
    ) -> None:
        self._terms = _Terms(budget, composition, failure_delta)
        self.budget = budget
        self.composition = composition
        self.failure_delta = failure_delta
        self.path = None if path is None else Path(path).expanduser().resolve()
        self._runs: tuple[AccountedRun, ...] = ()
        self._lock = threading.Lock()
        self._process = os.getpid()
        if self.path is not None:
            with self._locked():
                # Create the account, or check that the existing one has the same terms.
                if not self.path.exists():
                    self._write(())
                self._read()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "PrivacyAccountant":
        """Open the account in a file, with the terms that the file states.

        Raises
        ------
        AccountError
            If there is no file, or it is damaged.
        """
        path = Path(path).expanduser().resolve()
        terms, _ = _load(path)
        return cls(path=path, **vars(terms))

    def __getstate__(self) -> object:
        # Each copy would grant the whole budget.
        raise TypeError("an account cannot be copied or pickled: open its file")

    @property
    def runs(self) -> tuple[AccountedRun, ...]:
        """All runs so far, those of other processes included."""
        return self._runs if self.path is None else self._read()

    def charge(self, *runs: AccountedRun) -> None:
        """Charge runs before they begin: all of them, or none.

        Raises
        ------
        BudgetExceeded
            If they would exceed the budget.
        AccountError
            If a run has another adjacency, rho or unit, if the file cannot be read and
            written, or if an account without a file is charged in a forked process.
        """
        for run in runs:
            self._check_terms(run)
        if self.path is None and os.getpid() != self._process:
            raise AccountError(
                "path=None: other processes do not see this account; give it a file"
            )
        date = datetime.now(UTC).isoformat(timespec="seconds")
        # Read, check and write under one lock: no other process charges in between.
        with self._locked():
            earlier = self.runs
            after = (*earlier, *(replace(run, date=date) for run in runs))
            self._check_fits(earlier, after)
            if self.path is None:
                self._runs = after
                return
            # If the lock's file was removed, others may have charged under a new one.
            if len(self.runs) != len(earlier):
                raise AccountError(
                    f"account={str(self.path)!r} was changed while it was locked: "
                    "leave its .lock file where it is, and charge again"
                )
            self._write(after)
            # These runs are known from now on: an older copy of the file is noticed.
            self._read()

    def ledger(
        self, budget: Budget, schedule: Sequence[Charge], **about: Any
    ) -> Ledger:
        """Charge a run of one replicate, and return the ledger for its releases.

        Parameters
        ----------
        budget : Budget
            Budget of the run.
        schedule : sequence of Charge
            All its releases.
        **about
            Other fields of :class:`AccountedRun`.

        Returns
        -------
        Ledger
            It refuses releases that are not the schedule's.
        """
        run = AccountedRun(budget, schedule, **about)
        if run.n_replicates != 1:
            raise AccountError(
                f"n_replicates={run.n_replicates} must be 1: a ledger serves one run"
            )
        self.charge(run)
        return Ledger(budget, run.schedule)

    def spent(self) -> float:
        """Epsilon that all runs so far need, at the budget's delta.

        It is a guarantee for runs that were fixed in advance. For adaptively chosen
        runs under ``composition="gaussian"`` only the whole budget is one.
        """
        return self._compose(self.runs)[0]

    def unspent(self) -> float:
        """Epsilon of the budget that is left."""
        return max(0.0, self.budget.epsilon - self.spent())

    def spent_delta(self) -> float:
        """Sum of the runs' deltas: of their budgets, or of their failures.

        It counts against the budget's delta with ``composition="basic"``, otherwise
        against ``failure_delta``.
        """
        return self._compose(self.runs)[1]

    def _compose(self, runs: Sequence[AccountedRun]) -> tuple[float, float]:
        """Epsilon that runs need, and the sum of their deltas (:meth:`spent_delta`)."""
        is_basic = self.composition == "basic"
        # costs: epsilons with basic composition, mu^2 otherwise.
        costs = []
        deltas = []
        for run in runs:
            declared = (run.budget.epsilon, run.budget.delta)
            cost, delta = declared if is_basic else run.gaussian_cost
            costs.append(run.n_replicates * cost)
            deltas.append(run.n_replicates * delta)
        # From the sum of mu^2 to epsilon, at the delta that is reserved for noise.
        total = math.fsum(costs)
        if not is_basic:
            noise_delta = self.budget.delta - self.failure_delta
            total = gdp_epsilon(math.sqrt(total), noise_delta)
        return total, math.fsum(deltas)

    def _check_terms(self, run: AccountedRun) -> None:
        """Refuse a run under another adjacency, rho or unit than the account's."""
        if run.budget.terms != self.budget.terms:
            raise AccountError(
                f"a run under {run.budget.terms} cannot be added to an account under "
                f"{self.budget.terms}"
            )

    def _check_fits(
        self, earlier: Sequence[AccountedRun], after: Sequence[AccountedRun]
    ) -> None:
        """Refuse runs that would exceed the budget."""
        epsilon = self.budget.epsilon
        is_basic = self.composition == "basic"
        name = "delta" if is_basic else "failure_delta"
        delta = self.budget.delta if is_basic else self.failure_delta

        # SLACK allows for rounding in sums, not for a larger budget.
        total, total_delta = self._compose(after)
        fits = total <= epsilon * (1 + SLACK) and total_delta <= delta * (1 + SLACK)
        if not fits:
            runs = after[len(earlier) :]
            replicates = sum(run.n_replicates for run in runs)
            methods = ", ".join(dict.fromkeys(run.method or "a run" for run in runs))
            raise BudgetExceeded(
                f"{methods} ({replicates} replicates) would bring the account to "
                f"epsilon={total:.6g} {name}={total_delta:.3g}, of which "
                f"epsilon={epsilon:.6g} {name}={delta:.3g} is allowed and "
                f"epsilon={self._compose(earlier)[0]:.6g} spent"
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other threads out, and other processes if there is a file."""
        if self.path is None:
            with self._lock:
                yield
            return
        try:
            with locked(self.path.with_name(f"{self.path.name}.lock")):
                yield
        except OSError as error:
            raise AccountError(
                f"account={str(self.path)!r}: {error.strerror or error}"
            ) from error

    def _read(self) -> tuple[AccountedRun, ...]:
        """Return the runs in the file, whose terms must be this account's."""
        assert self.path is not None
        terms, runs = _load(self.path)
        if terms != self._terms:
            raise AccountError(
                f"account={str(self.path)!r} is on other terms: {terms}, not "
                f"{self._terms}"
            )
        if runs[: len(self._runs)] != self._runs:
            raise AccountError(
                f"account={str(self.path)!r} lacks runs that it had: an older copy was "
                "put back; nothing is charged until the last one is"
            )
        self._runs = runs
        return runs

    def _write(self, runs: Sequence[AccountedRun]) -> None:
        """Replace the file by one with these runs, and flush it to the disk."""
        assert self.path is not None
        # Each record has the epsilon that was spent once its run was charged.
        records = []
        for number, run in enumerate(runs):
            spent, _ = self._compose(runs[: number + 1])
            records.append(run.to_dict() | {"spent": spent})
        body = {"format": FORMAT, **asdict(self._terms), "runs": records}
        content = json.dumps(
            body | {"sha256": record_digest(body)}, indent=1, allow_nan=False
        )
        # The rename is durable only once the folder is flushed, too.
        atomic_write(self.path, content.encode() + b"\n", OWNER_FILE)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def gaussian_cost(schedule: Sequence[Charge]) -> tuple[float, float]:
    """Sums of mu^2 and of failure probabilities of a schedule's releases, per record.

    Parameters
    ----------
    schedule : sequence of Charge

    Returns
    -------
    mu_squared, failure : float
        The largest of each over disjoint groups of users.

    Examples
    --------
    >>> schedule = [Charge("a", i, "gaussian", mu=3.0 + i) for i in range(2)]
    >>> gaussian_cost(schedule)
    (25.0, 0.0)
    """
    groups = split_groups(schedule)
    # A pure mechanism's privacy loss lies in an interval of twice its epsilon.
    mu_squared = max(
        math.fsum(
            charge.mu**2 + selection_mu(2 * charge.epsilon) ** 2 for charge in group
        )
        for group in groups
    )
    # The maxima may be of two groups: their pair bounds the cost of any one group.
    failure = max(math.fsum(charge.delta for charge in group) for group in groups)
    return mu_squared, failure


def _load(path: Path) -> tuple[_Terms, tuple[AccountedRun, ...]]:
    """Read a file's terms and runs, and check all of them."""
    try:
        content = path.read_bytes()
        n_links = path.stat().st_nlink
    except OSError as error:
        remedy = "pkm account FILE epsilon=... delta=... opens a new one"
        raise AccountError(
            f"account={str(path)!r} cannot be read: {error.strerror}; {remedy}"
        ) from error
    if n_links > 1:
        raise AccountError(
            f"account={str(path)!r} has {n_links} hard links, each of which would "
            "become an account: leave one"
        )
    try:
        body = json.loads(content)
        if body.pop("sha256") != record_digest(body) or body["format"] != FORMAT:
            raise ValueError("its checksum or its format is another")
        budget = Budget(**body["budget"])
        terms = _Terms(budget, body["composition"], body["failure_delta"])
        # A schedule above its own budget raises BudgetExceeded, a RuntimeError.
        runs = tuple(AccountedRun.from_dict(record) for record in body["runs"])
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise AccountError(
            f"account={str(path)!r} is damaged ({error}): nothing is charged until "
            "its last undamaged copy is put back"
        ) from error
    return terms, runs


def _to_json(value: Any) -> Any:
    """Return a value as JSON represents it, else its text."""
    # Parameters describe a run and change no cost, so that a text is enough.
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return repr(value)
