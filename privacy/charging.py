"""Sensitivities and charges of a release, computed from public values."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pkm.privacy.ledger import Charge, StreamKey
from pkm.privacy.query import Query, Sensitivities


def charge_release(
    key: StreamKey,
    query: Query,
    source: Any,
    noise: Mapping[str, Any],
) -> tuple[Sensitivities, list[Charge]]:
    """Compute the sensitivities of the parts of a release, and its charges.

    A charge covers all parts. Pure noise has one charge for each record that neighbors
    differ in, one or two: see :meth:`Query.n_changed_records`. Gaussian noise has one.

    Raises
    ------
    ValueError
        If a mechanism's scale is out of range.
    """
    sensitivities = query.sensitivity(source)
    for part, mechanism in noise.items():
        mechanism.check(sensitivities[part])

    # Pure noise is charged for each record, which changes half of the L1 norm. Gaussian
    # noise is charged once, by the L2 norm of both changes.
    n_changed = query.n_changed_records(source)
    charged = dict(sensitivities)
    if n_changed > 1:
        for part, sensitivity in sensitivities.items():
            charged[part] = sensitivity._replace(l1=sensitivity.l1 / n_changed)

    costs = [mechanism.cost(charged[part]) for part, mechanism in noise.items()]
    # Names of scales and sensitivities have their part in front: count_scale,
    # sum_scale.
    details = {
        f"{part.removesuffix('s')}_{name}": value
        for part, mechanism in noise.items()
        for name, value in mechanism.details(charged[part]).items()
    }
    # Parts have independent noise: mu composes as the root of the sum of squares,
    # epsilon and delta by addition.
    charge = Charge(
        *key,
        "+".join(dict.fromkeys(mechanism.name for mechanism in noise.values())),
        mu=math.hypot(*(cost.mu for cost in costs)),
        epsilon=math.fsum(cost.epsilon for cost in costs),
        delta=math.fsum(cost.delta for cost in costs),
        details={**details, **query.details()},
        flaw=query.flaw(source),
        group=source.group,
    )
    if n_changed == 1 or charge.epsilon == 0:
        return sensitivities, [charge]
    # It draws no noise, but each label and round may be charged once only.
    second = replace(charge, label=f"{query.label}_second_record")
    return sensitivities, [charge, second]
