"""Adjacency, privacy budgets, and the privacy claim of a method."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pkm.privacy.checks import check_positive, freeze_fields


class Unit(StrEnum):
    """Unit of privacy, what a record is: one row, or all rows of one person."""

    ROW = "row"
    PERSON = "person"

    @classmethod
    def of(cls, n_persons: int) -> "Unit":
        """Unit of points by their number of persons, which is 0 if rows have none.

        Examples
        --------
        >>> Unit.of(0), str(Unit.of(7))
        (<Unit.ROW: 'row'>, 'person')
        """
        return cls.PERSON if n_persons else cls.ROW


class Adjacency(StrEnum):
    """Which data sets count as neighbors."""

    # One record is replaced by a null that contributes nothing; n is public.
    ZERO_OUT = "zero_out"
    ADD_REMOVE = "add_remove"  # one record more or less; n is secret
    REPLACE_ONE = "replace_one"  # one record changed arbitrarily; n is public
    RHO_BOUNDED = "rho_bounded"  # one record moved by at most rho
    LOCAL = "local"  # any two values of one user's record


@dataclass(frozen=True)
class Budget:
    """A privacy budget: (epsilon, delta) under one adjacency.

    Parameters
    ----------
    epsilon : float
        Positive and finite.
    delta : float
        In [0, 1); 0 is pure differential privacy.
    adjacency : Adjacency or str, default="zero_out"
    rho : float, optional
        The distance of ``rho_bounded``; required there and nowhere else.
    unit : Unit or str, default="row"
        What a record is.

    Raises
    ------
    ValueError
        If a value is outside its range.

    Examples
    --------
    >>> Budget(1.0, 1e-6).split([3, 1])[0].epsilon
    0.75
    """

    epsilon: float
    delta: float = 0.0
    adjacency: Adjacency | str = Adjacency.ZERO_OUT
    rho: float | None = None
    # Left out of the text, which names noise streams: persons have the streams of rows.
    unit: Unit | str = field(default=Unit.ROW, repr=False)

    def __post_init__(self) -> None:
        # A numpy scalar of fewer bits would lower the precision of all costs.
        freeze_fields(self)
        check_positive("epsilon", self.epsilon)
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta={self.delta} must be in [0, 1)")
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        object.__setattr__(self, "unit", Unit(self.unit))
        if (self.rho is not None) != (self.adjacency is Adjacency.RHO_BOUNDED):
            raise ValueError(
                f"rho={self.rho} must be given for rho_bounded and only there, got "
                f"{self.adjacency}"
            )
        if self.rho is not None and not self.rho > 0:
            raise ValueError(f"rho={self.rho} must be positive")

    def __add__(self, other: "Budget") -> "Budget":
        """Basic composition of two budgets of the same adjacency."""
        if self.terms != other.terms:
            raise ValueError(
                f"budgets under {self.terms} and {other.terms} cannot be added; "
                "convert one of them first"
            )
        epsilon = self.epsilon + other.epsilon
        return replace(self, epsilon=epsilon, delta=self.delta + other.delta)

    @property
    def terms(self) -> str:
        """Terms of the guarantee: budgets under different terms do not add up."""
        rho = "" if self.rho is None else f" rho={self.rho}"
        return f"adjacency={self.adjacency}{rho} unit={self.unit}"

    def split(self, weights: Sequence[float]) -> tuple["Budget", ...]:
        """Divide epsilon and delta in proportion to positive weights."""
        # Shares by basic composition: they add up to the budget.
        total = math.fsum(weights)
        if not all(weight > 0 for weight in weights):
            raise ValueError(f"weights={list(weights)} must be positive")
        budgets = []
        for weight in weights:
            epsilon = self.epsilon * weight / total
            delta = self.delta * weight / total
            budgets.append(replace(self, epsilon=epsilon, delta=delta))
        return tuple(budgets)


NOTIONS = ("none", "pure", "approximate")
TRUSTS = ("none", "central", "federated", "local")
VIEWS = ("final", "transcript")


@dataclass(frozen=True)
class PrivacyClaim:
    """The privacy guarantee that a method claims, and values it assumes to be public.

    Parameters
    ----------
    notion : {"none", "pure", "approximate"}
        Epsilon-differential privacy, or (epsilon, delta).
    adjacency : Adjacency or str
    trust : {"none", "central", "federated", "local"}
        Who is trusted with raw data: one curator, each client with its own, or nobody
        but each user.
    view : {"final", "transcript"}
        The adversary's view, which the guarantee covers: the final centers only, or all
        releases.
    public : tuple of str
        Quantities derived from the data that are assumed to be public, such as n.
    flaws : tuple of str
        Ids of known flaws in ``analysis/flaws.yaml``, by which the claim is not fully
        met.
    """

    notion: str
    adjacency: Adjacency | str = Adjacency.ZERO_OUT
    trust: str = "central"
    view: str = "transcript"
    public: tuple[str, ...] = ("n", "domain", "k")
    flaws: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rules = {"notion": NOTIONS, "trust": TRUSTS, "view": VIEWS}
        for name, known in rules.items():
            value = getattr(self, name)
            if value not in known:
                raise ValueError(
                    f"{name}={value!r} is unknown, choose one of {', '.join(known)}"
                )
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))

    @property
    def private(self) -> bool:
        """Whether any privacy is claimed."""
        return self.notion != "none"


def describe_large_delta(delta: float, n_points: int) -> str:
    """Return a warning if delta permits publishing records at random, else no text.

    Examples
    --------
    >>> describe_large_delta(0.2, 60)[:33]
    'delta=0.2 is above 1/n=0.0167: su'
    >>> describe_large_delta(1e-6, 60)
    ''
    """
    # To publish each record with probability delta is (0, delta)-private, and publishes
    # delta n of them on average.
    if delta * n_points <= 1:
        return ""
    return (
        f"delta={delta:g} is above 1/n={1 / n_points:.3g}: such a promise is kept by "
        "who publishes a record at random; lower delta"
    )


NO_CLAIM = PrivacyClaim("none", trust="none", public=("everything",))
