"""What a release is charged, from public values."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pkm.privacy.ledger import Charge, StreamKey
from pkm.privacy.query import Query

MAX_CACHED = 4096  # releases whose charges are kept

#: The sensitivity of each part of a release, and what the release is charged.
Charged = tuple[Mapping[str, Any], Sequence[Charge]]

#: Charges that a few public values fix, because schedules are run for many seeds.
_cache: dict[tuple[Hashable, ...], Charged] = {}


def charge_release(
    key: StreamKey,
    query: Query,
    view: Any,
    noise: Mapping[str, Any],
) -> Charged:
    """Compute what neighbors change in the parts of a release, and its charges.

    Raises
    ------
    ValueError
        If a mechanism's scale is out of range.
    """
    cache_key = query.cache_key(view)
    if cache_key is None:
        return _compute_charges(key, query, view, noise)
    values = (key, type(query), cache_key, view.group, *noise.values())
    charged = _cache.get(values)
    if charged is None:
        if len(_cache) >= MAX_CACHED:
            _cache.clear()
        charged = _compute_charges(key, query, view, noise)
        _cache[values] = charged
    return charged


def _compute_charges(
    key: StreamKey,
    query: Query,
    view: Any,
    noise: Mapping[str, Any],
) -> Charged:
    """Charge the parts together, each by its noise and sensitivity.

    There is one charge, or one for each record that neighbors differ in:
    :meth:`Query.n_changed_records`.
    """
    sensitivities = query.sensitivity(view)
    for part, mechanism in noise.items():
        mechanism.check(sensitivities[part])

    # The records share the L1 norm. Gaussian noise is charged once, by the L2 norm
    # of both.
    n_changed = query.n_changed_records(view)
    charged = dict(sensitivities)
    if n_changed > 1:
        for part, sensitivity in sensitivities.items():
            charged[part] = sensitivity._replace(l1=sensitivity.l1 / n_changed)

    costs = [mechanism.cost(charged[part]) for part, mechanism in noise.items()]
    details = {
        f"{part.removesuffix('s')}_{name}": value
        for part, mechanism in noise.items()
        for name, value in mechanism.details(charged[part]).items()
    }
    charge = Charge(
        *key,
        "+".join(dict.fromkeys(mechanism.name for mechanism in noise.values())),
        mu=math.hypot(*(cost.mu for cost in costs)),
        epsilon=math.fsum(cost.epsilon for cost in costs),
        delta=math.fsum(cost.delta for cost in costs),
        details={**details, **query.details()},
        flaw=query.flaw(view),
        group=view.group,
    )
    if n_changed == 1 or charge.epsilon == 0:
        return sensitivities, [charge]
    second = replace(charge, label=f"{query.label}_second_record")
    return sensitivities, [charge, second]
