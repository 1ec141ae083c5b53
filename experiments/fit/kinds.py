"""The kinds of cells, and which of them a sweep requests."""

from collections.abc import Mapping

from pkm.experiments.cell.kind import Kind
from pkm.experiments.config.settings import require
from pkm.experiments.fit.central import Central
from pkm.experiments.fit.coreset import Coreset
from pkm.experiments.fit.federation import Federation
from pkm.experiments.fit.unlearning import Unlearning

KINDS: tuple[type[Kind], ...] = (Central, Federation, Unlearning, Coreset)


def expand_kinds(spec: Mapping) -> list[Kind]:
    """Read the keys of all kinds in a sweep: combinations of the requested kind.

    Raises
    ------
    ValueError
        If a value breaks its rule, or keys of two kinds are given.

    Examples
    --------
    >>> [kind.clients for kind in expand_kinds({"federation": {"clients": [2, 4]}})]
    [2, 4]
    >>> expand_kinds({})
    [Central(bounds_factor=1.0)]
    """
    kinds = {kind.key: kind.from_sweep(spec.get(kind.key)) for kind in KINDS}
    central = kinds.pop(Central.key)
    requested = [key for key in kinds if spec.get(key) not in (None, False)]
    if not requested:
        return central
    first, *others = requested
    for key in others:
        require(False, key, spec[key], f"null for a cell with {first}")
    factor = spec.get(Central.key)
    require(central == [Central()], Central.key, factor, f"1 for a cell with {first}")
    return kinds[first]
