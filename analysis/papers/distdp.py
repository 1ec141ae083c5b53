"""What the figures on distance-based privacy need beyond their figures.yaml.

Radii of a space in which rho stays, names of interpretations, and the strategies of the
sound variant.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.frames import FigureData
from pkm.analysis.tables.charges import read_charges
from pkm.analysis.tables.study import Study, matches, parse_parameters

DP_METHODS = ("lsh_splits_published", "lsh_splits")


def any_rho(table: pd.DataFrame) -> pd.DataFrame:
    """Put methods without rho in one column of a map."""
    rho = table["rho"].astype(float)
    x = rho.fillna(np.inf)
    return table.assign(rho=rho, x=x)


def over_radius(table: pd.DataFrame) -> pd.DataFrame:
    """Turn costs over rho into those of a space whose radius grows while rho stays.

    Costs are in units of the smallest space.
    """
    rho = table["x"].where(table["panel"] == "radius")
    radius = rho.max() / rho
    factor = (radius**2).fillna(1)
    names = ["value", "low", "high", "half_width", "median", "deviation"]
    costs = table[names].mul(factor, axis=0)
    x = radius.fillna(table["x"])
    return table.assign(x=x, **costs)


# Interpretations of what the paper leaves open

DEFAULT = "default interpretation"
SOUND = "sound variant"
#: Names of the values of parameters that choose an interpretation; none of the default
#: values.
INTERPRETATIONS: dict[str, dict[Any, str]] = {
    "regions": {"true": "", "noised": "regions by noised places"},
    "sizes": {"thresholded": "", "noisy": "noisy sizes of all regions"},
    "ball": {"capped": "", "printed": "printed radius"},
    "fine_counts": {"joint": "", "split": "fine counts split evenly"},
    "coreset_clusters": {"auto": "", 1: "trees for one cluster"},
    "size_share": {0.5: ""},
    "calibration": {"classical": "", "analytic": "exact Gaussian noise"},
    "replacement": {"charged": "", "uncharged": "one record charged (F-17)"},
}


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


def _interpretation(parameters: Mapping, method: str) -> str:
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

#: Cells of the sound variant and of its control.
SOUND_CELLS = {
    "sweep": ["figure1", "figure1_geo", "figure2", "figure2_geo"],
    "method": ["dist_dp", "dist_dp_any"],
}
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
    charges: Sequence[Mapping[str, Any]], d: int
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
    any_move = min(ratios.values()) >= 1 - 1e-9
    return strategy, ratios[decisive], any_move


def _over_replacement(charge: Mapping[str, Any], d: int) -> float:
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


def strategies(study: Study, spec: FigureSpec) -> FigureData:
    """Strategy of the sound variant by data set, k and rho, and its sensitivity."""
    cells = study.cells[matches(study.cells, SOUND_CELLS)].drop_duplicates("cell")
    found = _find_strategies(cells)
    table = cells.reindex(columns=["dataset", "n", "d", "k", "epsilon", "rho"])
    # The diagonal is no number, and the largest rho.
    rho = pd.to_numeric(table["rho"], errors="coerce")
    any_move = found["any_move"].map({True: "yes", False: "no"})

    # Sweeps of different seeds share their charges.
    keys = ["dataset", "k", "rho"]
    table = (
        table.join(found)
        .assign(
            rho=rho.fillna(np.inf),
            mark="\n" + found["strategy"],
            any_move=any_move,
            row=table["dataset"],
        )
        .drop_duplicates(keys)
        .sort_values(keys, ignore_index=True)
    )

    # One panel for each parameter that varies.
    over_rho = table.query("k == 8")
    over_rho = over_rho.assign(panel="rho", x=over_rho["rho"])
    over_k = table[np.isclose(table["rho"], 0.05)]
    over_k = over_k.assign(panel="k", x=over_k["k"].astype(float))
    panels = pd.concat([over_rho, over_k], ignore_index=True)
    return FigureData(panels, cells)


def _find_strategies(cells: pd.DataFrame) -> pd.DataFrame:
    """Return what `find_strategy` says of each cell."""
    charges = read_charges(cells)
    found = []
    for index, d in cells["d"].items():
        own_charges = charges[charges.index == index]
        found.append(find_strategy(own_charges.to_dict("records"), d))
    columns = ["strategy", "value", "any_move"]
    return pd.DataFrame(found, index=cells.index, columns=columns)
