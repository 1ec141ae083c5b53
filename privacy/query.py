"""Queries on private points, and what neighbors change in their answers.

A query is a frozen value. It knows its label, its public arguments, its exact answer,
and a bound on what neighbors under an adjacency change in each part of the answer. It
is released by :meth:`pkm.privacy.BaseCurator.release`, the only place that charges.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pkm.privacy.budget import Adjacency
from pkm.privacy.checks import own_fields

Mechanisms = Mapping[str, tuple[type, ...]]
"""Parts of an answer, with the types of mechanisms that may release them."""


ONE_RECORD_ADJACENCIES = (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE)
"""Adjacencies under which neighbors differ in the presence of one record."""


class Sensitivity(NamedTuple):
    """Bounds on what neighbors change in a part, in grid steps times ``unit``.

    Attributes
    ----------
    l1, l2, linf : float
        Norms of the change.
    l0 : float
        Number of entries that change.
    unit : float or ndarray
        Public factor of the norms and of the noise's scale, entry by entry where it is
        an array (it broadcasts against the answer). The norms are those of the change
        divided by it.
    """

    l1: float
    l2: float
    linf: float = np.inf
    l0: float = np.inf
    unit: float | np.ndarray = 1.0


Sensitivities = Mapping[str, Sensitivity]
"""What neighbors change in each part with additive noise."""

Answer = Mapping[str, np.ndarray]
"""Each part of an answer."""

Details = Mapping[str, float | None]
"""What the ledger notes of a release."""


class Query:
    """Base class of the queries: frozen dataclasses of public arguments.

    Attributes
    ----------
    label : str
        Name in the ledger, and in the keys of noise streams.
    mechanisms : mapping of str to tuple of type
        The parts of the answer in the order in which they are drawn, with the
        mechanisms that may release them; a subclass of a mechanism is not accepted.
    adjacencies : tuple of Adjacency
        Those that a sensitivity is derived for.
    view : type or None
        Of the points that it is put to; None for the curator itself.
    exact_without_ledger : bool
        Whether methods that claim no privacy may have the exact answer.
    """

    label: ClassVar[str]
    mechanisms: ClassVar[Mechanisms]
    adjacencies: ClassVar[tuple[Adjacency, ...]] = ONE_RECORD_ADJACENCIES
    view: ClassVar[type | None] = None
    exact_without_ledger: ClassVar[bool] = False

    def __post_init__(self) -> None:
        own_fields(self)

    def check(self, view: Any) -> None:
        """Refuse arguments that are ill-posed for a view, before anything is charged.

        Raises
        ------
        ValueError
            Naming the argument, its value and the rule.
        """

    def sensitivity(self, view: Any) -> Mapping[str, Any]:
        """Bound what neighbors change, from public values only.

        Parameters
        ----------
        view : BaseCurator or View
            For its public attributes.

        Returns
        -------
        mapping of str to Sensitivity
            One for each part.
        """
        raise NotImplementedError(f"{type(self).__name__} must define sensitivity")

    def exact(self, view: Any) -> Mapping[str, Any]:
        """Exact answer, int64 for each part with additive noise: private."""
        raise NotImplementedError(f"{type(self).__name__} must define exact")

    def details(self) -> Details:
        """Public arguments to record in the ledger, with scales and sensitivities."""
        return {}

    def mechanism_input(
        self, part: str, exact: Any, released: Mapping[str, np.ndarray]
    ) -> Any:
        """Values for the mechanism of a part; earlier parts are released already."""
        return exact

    def postprocess(
        self,
        view: Any,
        outcomes: dict[str, Any],
    ) -> dict[str, Any]:
        """Parts of the outcomes to release; the view may keep the rest."""
        return outcomes

    def n_changed_records(self, view: Any) -> int:
        """Number of records that neighbors differ in, 1 or 2, in separate entries.

        Where there are 2, the L1 norm is twice what either record changes. Entries have
        independent noise, so a pure release is the composition of two, one for each
        record, and is charged as two: that composes more tightly than one charge of
        twice the epsilon.
        """
        return 1

    def flaw(self, view: Any) -> str:
        """Id in ``analysis/flaws.yaml`` if a paper's sensitivity does not hold."""
        return ""
