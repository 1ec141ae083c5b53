"""Queries on private points, and what neighbors change in their answers.

A query is a frozen dataclass of public arguments. It computes its exact answer, and a
bound on the change of each part of the answer between neighbors: its sensitivity. It is
released by :meth:`pkm.privacy.BaseCurator.release`, the only place that charges.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pkm.compute import Points
from pkm.compute.storage.blocks import Arrays, Combine, add, map_reduce_all
from pkm.privacy.budget import Adjacency
from pkm.privacy.checks import freeze_fields

Mechanisms = Mapping[str, tuple[type, ...]]
"""Names of an answer's parts, with the types of mechanisms that may release them."""


ONE_RECORD_ADJACENCIES = (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE)
"""Adjacencies under which neighbors differ in the presence of one record."""

RHO_BOUNDED = (Adjacency.RHO_BOUNDED,)


class Sensitivity(NamedTuple):
    """Bounds on the change of a part between neighbors.

    Attributes
    ----------
    l1, l2, linf : float
        Norms of the change, in multiples of ``unit``.
    l0 : float
        Number of entries that change.
    unit : float or ndarray
        Public unit of the norms and of the noise's scale, in the integers of the noisy
        answer, such as grid steps. An array has one for each entry of the answer, whose
        change is divided by it.
    resolution : int
        Number of integers per grid step in the exact answer: 1, or 2**16 for sums of
        rows with weights. The noisy answer is rounded to whole steps.
    """

    l1: float
    l2: float
    linf: float = np.inf
    l0: float = np.inf
    unit: float | np.ndarray = 1.0
    resolution: int = 1


Sensitivities = Mapping[str, Any]
"""Sensitivity of each part: :class:`Sensitivity` for additive noise, or another type
that the part's mechanism takes."""

Answer = Mapping[str, Any]
"""Exact value of each part: int64 for additive noise, or another input that the part's
mechanism takes."""

Details = Mapping[str, float | None]
"""Public facts about a release that the ledger records."""


class Query:
    """Base class of the queries: frozen dataclasses of public arguments.

    An answer consists of parts, which are named arrays such as sums and counts. Each
    part has a sensitivity, a mechanism and noise of its own. Methods take the source
    that the query is asked on: a curator or a view of it.

    Attributes
    ----------
    label : str
        Name in the ledger, and in the keys of noise streams.
    mechanisms : mapping of str to tuple of type
        The parts of the answer in the order in which they are drawn, with the
        mechanisms that may release them; a subclass of a mechanism is not accepted.
    adjacencies : tuple of Adjacency
        Adjacencies for which the sensitivity is derived.
    view : type or None
        Type of :class:`pkm.privacy.base.View` that the query is asked on; None for the
        curator itself.
    exact_without_ledger : bool
        Whether methods that claim no privacy may have the exact answer.
    serves_weights : bool
        Whether rows may have weights. The answer must be a sum over rows, each times
        its weight, and norms must bound the change between neighbors. Rows whose
        weights add up to one record, such as those of a person, then change the answer
        by no more than one record.
    released_alone : bool
        Whether no other query of the type may be released with it, because its release
        changes what may be asked.
    """

    label: ClassVar[str]
    mechanisms: ClassVar[Mechanisms]
    adjacencies: ClassVar[tuple[Adjacency, ...]] = ONE_RECORD_ADJACENCIES
    view: ClassVar[type | None] = None
    exact_without_ledger: ClassVar[bool] = False
    serves_weights: ClassVar[bool] = False
    released_alone: ClassVar[bool] = False

    # Queries are frozen: what was checked and charged is what is computed.
    def __post_init__(self) -> None:
        freeze_fields(self)

    def check(self, source: Any) -> None:
        """Refuse arguments that are invalid for the source, before anything is charged.

        Raises
        ------
        ValueError
            Naming the argument, its value and the rule.
        """

    def sensitivity(self, source: Any) -> Sensitivities:
        """Bound the change between neighbors, from public values only.

        Parameters
        ----------
        source : BaseCurator or View
            Only its public attributes may be read.

        Returns
        -------
        mapping of str to object
            Sensitivity of each part: a :class:`Sensitivity` for additive noise.
        """
        raise NotImplementedError(f"{type(self).__name__} must define sensitivity")

    def exact(self, source: Any) -> Answer:
        """Compute the private exact answer; int64 for parts with additive noise."""
        raise NotImplementedError(f"{type(self).__name__} must define exact")

    @classmethod
    def exact_all(cls, source: Any, queries: Sequence[Any]) -> list[Answer]:
        """Compute the exact answers of several queries of this type."""
        return [query.exact(source) for query in queries]

    def details(self) -> Details:
        """Public arguments that the ledger records beside scales and sensitivities."""
        return {}

    def mechanism_input(
        self, part: str, exact: Any, released: Mapping[str, np.ndarray]
    ) -> Any:
        """Input of the mechanism of a part; ``released`` has the earlier parts."""
        return exact

    def postprocess(
        self,
        source: Any,
        outcomes: dict[str, Any],
    ) -> dict[str, Any]:
        """Choose what to release of the outcomes; the source may keep the rest."""
        return outcomes

    def n_changed_records(self, source: Any) -> int:
        """Number of records that neighbors differ in: 1, or 2 in separate entries.

        With 2, each record changes half of the L1 norm. Entries have independent noise,
        so a pure release is the composition of two, one for each record. It is charged
        as two, because two charges compose to less than one of twice the epsilon.
        """
        return 1

    def flaw(self, source: Any) -> str:
        """Id in ``analysis/flaws.yaml`` if a paper's sensitivity does not hold."""
        return ""


class BlockQuery(Query):
    """Base class of queries whose answers combine those of blocks of points.

    Several of one type are answered in one pass over the points.

    Attributes
    ----------
    combine : callable
        Combines the arrays of some blocks with those of others. Default: adds them.
    """

    combine: ClassVar[Combine] = staticmethod(add)

    def of_block(self, source: Any) -> Callable[[Points], Arrays]:
        """Return a picklable function from a block of points to its arrays."""
        raise NotImplementedError(f"{type(self).__name__} must define of_block")

    def answer(self, source: Any, totals: Arrays) -> Answer:
        """Make the exact answer of the combined arrays."""
        raise NotImplementedError(f"{type(self).__name__} must define answer")

    def exact(self, source: Any) -> Answer:
        """Compute the exact answer, in one pass."""
        return self.exact_all(source, [self])[0]

    @classmethod
    def exact_all(cls, source: Any, queries: Sequence["BlockQuery"]) -> list[Answer]:
        """Compute the exact answers of several queries, in one pass for all."""
        # Blocks are read once. A function of each query is computed on every block.
        functions = [query.of_block(source) for query in queries]
        totals = map_reduce_all(source._shards, functions, cls.combine)
        return [
            query.answer(source, total)
            for query, total in zip(queries, totals, strict=True)
        ]
