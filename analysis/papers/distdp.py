"""What the figures on distance-based privacy need beyond their figures.yaml.

Radii of a space in which rho stays, names of interpretations (``distdp.yaml``), and the
strategies of the sound variant.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.frames import FigureData
from pkm.analysis.tables.charges import read_charges
from pkm.analysis.tables.study import Study, matches, parse_parameters
from pkm.yaml_files import read_file

DP_METHODS = ("lsh_splits_published", "lsh_splits")


def over_radius(table: pd.DataFrame) -> pd.DataFrame:
    """Turn costs over rho into those of a space whose radius grows while rho stays.

    Costs are in units of the smallest space.
    """
    rho = table["x"].where(table["panel"] == "radius")
    radius = rho.max() / rho
    costs = ["value", "low", "high", "half_width", "median", "deviation"]
    scaled = table[costs].mul((radius**2).fillna(1), axis=0)
    return table.assign(x=radius.fillna(table["x"]), **scaled)


# Interpretations of what the paper leaves open

DEFAULT = "default interpretation"
SOUND = "sound variant"
INTERPRETATIONS = read_file(Path(__file__).with_suffix(".yaml"))


def interpretations(table: pd.DataFrame) -> pd.DataFrame:
    """Name the interpretations, which are the rows; DP k-means is a level line."""
    pairs = zip(parse_parameters(table), table["method"], strict=True)
    rows = [
        None if method in DP_METHODS else _interpretation(parameters, method)
        for parameters, method in pairs
    ]
    # The default comes first, and the sound variant last; the others stay in order.
    others = dict.fromkeys(filter(None, rows))
    names = sorted(others, key=lambda name: (name == SOUND, name != DEFAULT))
    return table.assign(row=pd.Categorical(rows, names))


def _interpretation(
    parameters: Mapping,
    method: str,
) -> str:
    """Name an interpretation by the parameters that differ from the default."""
    if method == "dist_dp":
        return SOUND
    texts = [
        names.get(parameters[name], f"{name} = {parameters[name]}")
        for name, names in INTERPRETATIONS.items()
        if name in parameters
    ]
    return ", ".join(filter(None, texts)) or DEFAULT


# Strategies of the sound variant

#: Grid steps in a half-width: rounding adds to the sensitivity of soft counts.
STEPS = 2.0**16
#: Strategies by their first release, and the release of each that is most sensitive.
STRATEGIES = {
    "noised_points": ("groups", "noised_points"),
    "soft_counts": ("grid", "soft_counts"),
    "cell_counts": ("cells", "cell_counts"),
    "total": ("tree", "region_counts"),
}


def find_strategy(
    charges: Sequence[Mapping],
    d: int,
) -> tuple[str, float, bool]:
    """Return the strategy of a sound run, by its charges.

    Parameters
    ----------
    charges : list of dict
        As the ledger writes them.
    d : int
        Columns of the data.

    Returns
    -------
    strategy : str
    ratio : float
        Sensitivity of the most sensitive release over that under the replacement of a
        record.
    any_move : bool
        Whether every release has the noise that a replacement needs.

    Examples
    --------
    >>> points = {"label": "noised_points", "point_sensitivity": 1.0}
    >>> find_strategy([points, {"label": "group_sums", "sum_sensitivity": 1.0}], 4)
    ('groups', 0.25, False)
    """
    strategy, decisive = STRATEGIES[charges[0]["label"]]
    ratios = {charge["label"]: _over_replacement(charge, d) for charge in charges}
    return strategy, ratios[decisive], min(ratios.values()) >= 1 - 1e-9


def _over_replacement(
    charge: Mapping,
    d: int,
) -> float:
    """Return the sensitivity of a release over that under replacement.

    It is 1 for counts of cells, which any move changes alike.
    """
    diameter = 2 * math.sqrt(d)
    label = charge["label"]
    if label == "noised_points":
        return charge["point_sensitivity"] / diameter
    if label in ("group_sums", "total"):
        return charge["sum_sensitivity"] / diameter
    if label == "soft_counts":
        rounding = math.sqrt(2.0**d) / STEPS
        return charge["count_sensitivity"] / (math.sqrt(2) + rounding)
    return 1.0


def strategies(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Strategy of the sound variant by data set, k and rho, and its sensitivity."""
    cells = study.cells[matches(study.cells, spec.where)].drop_duplicates("cell")
    charges = read_charges(cells)
    found = [
        find_strategy(charges.loc[[index]].to_dict("records"), d)
        for index, d in cells["d"].items()
    ]
    columns = ["strategy", "value", "any_move"]
    table = cells.reindex(columns=["dataset", "n", "d", "k", "epsilon", "rho"])
    table[columns] = pd.DataFrame(found, cells.index, columns)

    # Sweeps of different seeds share their charges.
    keys = ["dataset", "k", "rho"]
    table = (
        table.assign(
            # The diagonal is no number, and the largest rho.
            rho=pd.to_numeric(table["rho"], errors="coerce").fillna(np.inf),
            mark="\n" + table["strategy"],
            any_move=table["any_move"].map({True: "yes", False: "no"}),
            row=table["dataset"],
        )
        .drop_duplicates(keys)
        .sort_values(keys, ignore_index=True)
    )

    # One panel for each parameter that varies.
    parts = {"rho": table["k"] == 8, "k": np.isclose(table["rho"], 0.05)}
    panels = [
        table[is_shown].assign(panel=name, x=table[name].astype(float))
        for name, is_shown in parts.items()
    ]
    return FigureData(pd.concat(panels, ignore_index=True), cells)
