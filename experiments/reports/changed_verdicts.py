"""Claims of a paper on two stores: which verdicts differ."""

from collections.abc import Iterator, Sequence

import pandas as pd

from pkm.analysis.claims import verdicts
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.findings import NOT_RUN
from pkm.analysis.tables.study import Study
from pkm.arrow import nested, read_parameters
from pkm.experiments.cell.cell import Cell
from pkm.experiments.plan.plan import Plan, gap_table, in_sweeps
from pkm.experiments.plan.sweep import Gap
from pkm.experiments.store.cell_tables import BUDGET, STATED, as_text
from pkm.experiments.store.store import Store
from pkm.scalars import is_number
from pkm.schema import COLUMNS

#: Settings of a cell without clients.
CENTRAL = {
    column.name: column.missing
    for column in COLUMNS
    if column.name in STATED and column.kind == "setting"
}


def changed_verdicts(
    plan: Plan, stores: Sequence[Store], cells: Sequence[pd.DataFrame]
) -> pd.DataFrame:
    """Evaluate the claims of a paper on two stores.

    Parameters
    ----------
    plan : Plan
        Of the paper: its sweeps say what the cells are for.
    stores : sequence of Store
        A and B.
    cells : sequence of DataFrame
        Their cells; see `pkm.experiments.store.cell_tables.Comparable`.

    Returns
    -------
    DataFrame
        Columns `claim`, `a`, `b`: the claims with another verdict on B than on A.
    """
    of_a, of_b = (verdicts_of(plan, *each) for each in zip(stores, cells, strict=True))
    changed = [(name, of_a[name], of_b[name]) for name in of_a if of_a[name] != of_b[name]]
    return pd.DataFrame(changed, columns=["claim", "a", "b"])


def verdicts_of(plan: Plan, store: Store, cells: pd.DataFrame) -> dict[str, str]:
    """Evaluate the claims of a plan's paper on the cells of a store, whatever code they are of."""
    keys = keys_by_identity(plan, cells)
    found = [
        (sweep, keys[cell.key], cell.dataset_name)
        for sweep, cell in plan.entries
        if cell.key in keys
    ]
    if not found:
        return {claim.id: NOT_RUN for claim in read_claims(plan.paper)["claims"]}
    rows = in_sweeps(store.read([key for _, key, _ in found]), found)
    absent = [
        Gap(sweep, cell.method, cell.dataset_name, cell.epsilon, "not run")
        for sweep, cell in plan.entries
        if cell.key not in keys
    ]
    missing = gap_table([*plan.gaps, *absent])
    evaluated = verdicts.evaluate(Study(rows), plan.paper, missing)
    return {each.claim.id: each.finding.verdict for each in evaluated}


def keys_by_identity(plan: Plan, cells: pd.DataFrame) -> dict[str, str]:
    """Find the stored cells of a plan by what they are, for a key changes with the code.

    Returns
    -------
    dict of str to str
        Key in the plan to key in the store.
    """
    stored: dict[tuple, list[tuple[float, str]]] = {}
    for line in cells[[*STATED, *BUDGET, "cell"]].to_dict("records"):
        identity = tuple(plain(line[name]) for name in (*STATED, "epsilon"))
        stored.setdefault(identity, []).append((line["delta"], line["cell"]))
    declared = {cell.delta for cell in plan.cells if is_number(cell.delta)}
    keys = {}
    for cell, identity in zip(plan.cells, identities(plan.cells), strict=True):
        candidates = stored.get(identity, [])
        if len(candidates) > 1 and is_number(cell.delta):
            candidates = [each for each in candidates if each[0] == cell.delta]
        elif len(candidates) > 1:
            # A delta that the method chose is none of those that other sweeps declare.
            candidates = [each for each in candidates if each[0] not in declared]
        if candidates:
            keys[cell.key] = candidates[0][1]
    return keys


def identities(cells: Sequence[Cell]) -> Iterator[tuple]:
    """What cells state of themselves, in the form of `keys_by_identity`."""
    given = [
        {name: value for name, value in cell.params.items() if name != "variant"} for cell in cells
    ]
    # As rows hold them.
    params = read_parameters(pd.DataFrame({"params": nested("params", given)}))
    for cell, stored in zip(cells, params, strict=True):
        values = (
            CENTRAL
            | cell.kind.columns()
            | {
                "method": cell.method,
                "target": cell.target,
                "variant": cell.variant,
                "params": as_text(stored),
                "dataset": cell.dataset_name,
                "preprocessing": cell.preprocessing,
                "k": cell.k,
                "timing": cell.timing,
                "metrics": " ".join(cell.metrics),
                "epsilon": cell.epsilon,
            }
        )
        yield tuple(plain(values[name]) for name in (*STATED, "epsilon"))


def plain(value: object) -> object:
    """Return a value that equals those of its kind: one for NaN and None, floats for numbers."""
    if value is None or value != value:
        return None
    return float(value) if is_number(value) else value
