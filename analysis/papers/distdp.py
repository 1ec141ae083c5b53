"""What the figures on distance-based privacy need beyond their figures.yaml.

Names of interpretations, and the strategies of the sound variant (``distdp.yaml``).
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from pkm.analysis.claims.expressions import with_columns
from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.figure_data import FigureData
from pkm.analysis.tables.charges import read_charges
from pkm.analysis.tables.study import Study, matches, parse_parameters
from pkm.yaml_files import read_file

DP_METHODS = ("lsh_splits_published", "lsh_splits")


# Interpretations of what the paper leaves open

DEFAULT = "default interpretation"
SOUND = "sound variant"
_NAMES = read_file(Path(__file__).with_suffix(".yaml"))


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
        for name, names in _NAMES["interpretations"].items()
        if name in parameters
    ]
    return ", ".join(filter(None, texts)) or DEFAULT


# Strategies of the sound variant


def find_strategies(charges: pd.DataFrame) -> pd.DataFrame:
    """Return the strategies of sound runs, by their charges.

    Parameters
    ----------
    charges : DataFrame
        See `pkm.analysis.tables.charges.read_charges`; `d` are the columns of the data.

    Returns
    -------
    DataFrame
        One line per run: `strategy`, `value` (sensitivity of the most sensitive release
        over that under the replacement of a record) and `any_move` (whether every
        release has the noise that a replacement needs).

    Examples
    --------
    >>> points = {"label": "noised_points", "point_sensitivity": 1.0, "d": 4}
    >>> sums = {"label": "group_sums", "sum_sensitivity": 1.0, "d": 4}
    >>> find_strategies(pd.DataFrame([points, sums], [0, 0])).to_dict("records")
    [{'strategy': 'groups', 'value': 0.25, 'any_move': False}]
    """
    rules = _NAMES["over_replacement"]
    parts = [
        with_columns(releases, {"ratio": rules.get(label, "1.0")})
        for label, releases in charges.groupby("label")
    ]
    table = pd.concat(parts or [charges.assign(ratio=1.0)])
    ratios = table.set_index("label", append=True)["ratio"]
    ratios = ratios.groupby(level=[0, 1]).last()
    smallest = ratios.groupby(level=0).min()
    labels = charges["label"].groupby(level=0).first()
    first = labels.map(_NAMES["strategies"])
    values = [ratios[run, label] for run, (_, label) in first.items()]
    columns = {
        "strategy": first.str[0],
        "value": values,
        "any_move": smallest >= 1 - 1e-9,
    }
    return pd.DataFrame(columns)


def strategies(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show strategy and sensitivity of the sound variant by data set, k and rho."""
    is_shown = matches(study.cells, spec.where)
    cells = study.cells[is_shown].drop_duplicates("cell")
    charges = read_charges(cells).join(cells["d"])
    facts = ["dataset", "n", "d", "k", "epsilon", "rho"]
    table = cells.reindex(columns=facts)
    table = table.join(find_strategies(charges))

    # Sweeps of different seeds share their charges.
    keys = ["dataset", "k", "rho"]
    # The diagonal is no number, and the largest rho.
    rho = pd.to_numeric(table["rho"], errors="coerce")
    table = table.assign(
        rho=rho.fillna(np.inf),
        mark="\n" + table["strategy"],
        any_move=table["any_move"].map({True: "yes", False: "no"}),
        row=table["dataset"],
    )
    table = table.drop_duplicates(keys)
    table = table.sort_values(keys, ignore_index=True)

    # One panel for each parameter that varies.
    parts = {
        "rho": table["k"] == 8,
        "k": np.isclose(table["rho"], 0.05),
    }
    panels = [
        table[is_shown].assign(panel=name, x=table[name].astype(float))
        for name, is_shown in parts.items()
    ]
    return FigureData(pd.concat(panels, ignore_index=True), cells)
