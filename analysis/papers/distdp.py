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
from pkm.analysis.tables.study import Study, parse_parameters

ANY = "dist_dp_any"
DP_METHODS = ("lsh_splits_published", "lsh_splits")


def any_rho(table: pd.DataFrame) -> pd.DataFrame:
    """Put methods without rho in one column of a map."""
    rho = table["rho"].astype(float)
    return table.assign(rho=rho, x=rho.fillna(np.inf))


def over_radius(table: pd.DataFrame) -> pd.DataFrame:
    """Turn costs over rho into those of a space whose radius grows while rho stays.

    Costs are in units of the smallest space.
    """
    rho = table["x"].where(table["panel"] == "radius")
    radius = rho.max() / rho
    names = ["value", "low", "high", "half_width", "median", "deviation"]
    scaled = table[names].mul((radius**2).fillna(1), axis=0)
    return table.assign(x=radius.fillna(table["x"]), **scaled)


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
    names = sorted(
        dict.fromkeys(name for name in rows if name),
        key=lambda name: (name == SOUND, name != DEFAULT),
    )
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
    return strategy, ratios[decisive], min(ratios.values()) >= 1 - 1e-9


def _over_replacement(charge: Mapping[str, Any], d: int) -> float:
    """Return the sensitivity of a release over that under replacement.

    It is 1 for counts of cells, which any move changes alike.
    """
    if charge["label"] == "noised_points":
        return charge["point_sensitivity"] / (2 * math.sqrt(d))
    if charge["label"] in ("group_sums", "total"):
        return charge["sum_sensitivity"] / (2 * math.sqrt(d))
    if charge["label"] == "soft_counts":
        return charge["count_sensitivity"] / (math.sqrt(2) + math.sqrt(2.0**d) / STEPS)
    return 1.0


def strategies(study: Study, spec: FigureSpec) -> FigureData:
    """Strategy of the sound variant by data set, k and rho, and its sensitivity."""
    cells = study.cells
    sweeps = ("figure1", "figure1_geo", "figure2", "figure2_geo")
    chosen = cells["sweep"].isin(sweeps) & cells["method"].isin(["dist_dp", ANY])
    cells = cells[chosen].drop_duplicates("cell")
    charges = read_charges(cells)
    triples = [
        find_strategy(charges[charges.index == index].to_dict("records"), d)
        for index, d in cells["d"].items()
    ]
    columns = ["strategy", "value", "any_move"]
    chosen_strategies = pd.DataFrame(triples, index=cells.index, columns=columns)
    table = cells.reindex(columns=["dataset", "n", "d", "k", "epsilon", "rho"])
    # The diagonal is no number, and the largest rho.
    rho = pd.to_numeric(table["rho"], errors="coerce").fillna(np.inf)
    table = table.join(chosen_strategies).assign(
        rho=rho,
        mark="\n" + chosen_strategies["strategy"],
        any_move=chosen_strategies["any_move"].map({True: "yes", False: "no"}),
    )
    # Sweeps of different seeds share their charges.
    keys = ["dataset", "k", "rho"]
    table = table.drop_duplicates(keys).sort_values(keys, ignore_index=True)
    table = table.assign(row=table["dataset"])
    over_rho = table[table["k"] == 8]
    over_k = table[np.isclose(table["rho"], 0.05)]
    over_rho = over_rho.assign(panel="rho", x=over_rho["rho"])
    over_k = over_k.assign(panel="k", x=over_k["k"].astype(float))
    return FigureData(pd.concat([over_rho, over_k], ignore_index=True), cells)
