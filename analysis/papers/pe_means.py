"""What the PE-means paper's figures and claims share: areas under the loss beside printed ones."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pkm.analysis import claims
from pkm.analysis.figure import FigureSpec, in_order
from pkm.analysis.frames import Frame
from pkm.analysis.render.layout import gap_texts
from pkm.analysis.reported import number
from pkm.analysis.tables import (
    Study,
    area,
    column_statistics,
    panel_of_sweeps,
)

SWEEPS = (
    "reference",
    "published",
    "projected",
    "fastlloyd",
    "rivals",
    "synopsis",
    "grids",
    "generated",
)
#: A difference of more standard errors is no sampling error.
STANDARD_ERRORS = 3


def compared_areas(study: Study, sweeps: tuple[str, ...], reported: Mapping) -> pd.DataFrame:
    """Areas of stored cells, each beside the printed one.

    Parameters
    ----------
    study : Study
    sweeps : tuple of str
    reported : mapping
        `runs` of a printed mean, and `cells`: for each data set the area of each method, as text.

    Returns
    -------
    DataFrame
        `dataset`, `method`, `value`, `deviation` (between seeds), `seeds`, `printed` (text, a dash
        where nothing is printed), `margin` (three standard errors of both means, with the deviation
        of our runs for theirs, and half a printed digit) and `agrees`.
    """
    printed = {cell["dataset"]: cell for cell in reported["cells"]}
    # One panel of all sweeps: cells without epsilon have areas over the others' grid.
    stored = area(panel_of_sweeps(study, sweeps, "nicv"))
    mean, _, _, deviation, seeds = column_statistics(stored.values)
    lines = []
    for i, cell in enumerate(stored.cells.to_dict("records")):
        text = printed.get(cell["dataset"], {}).get(cell["method"], "–")
        line = {"dataset": cell["dataset"], "method": cell["method"], "value": mean[i]}
        line |= {"deviation": deviation[i], "seeds": int(seeds[i]), "printed": text}
        line |= {"margin": np.nan, "agrees": False}
        if text != "–":
            value, unit = number(text)
            squared_error = deviation[i] ** 2 * (1 / seeds[i] + 1 / reported["runs"])
            line["margin"] = STANDARD_ERRORS * np.sqrt(squared_error) + unit / 2
            line["agrees"] = abs(mean[i] - value) <= line["margin"]
        lines.append(line)
    columns = ["dataset", "method", "value", "deviation", "seeds", "printed", "margin", "agrees"]
    return pd.DataFrame(lines, columns=columns)


def areas(study: Study, spec: FigureSpec) -> Frame:
    """Every stored area, with the printed one in brackets."""
    reported = claims.load("pe-means")["reported"]["areas"]
    table = compared_areas(study, SWEEPS, reported)
    table = table[table["method"].isin(spec.order)]
    order = [cell["dataset"] for cell in reported["cells"]]
    places = in_order(table["dataset"], order)
    table = table.sort_values("dataset", key=lambda names: names.map(places.index), kind="stable")
    absent = [name for name in order if name not in set(table["dataset"])]
    gaps = gap_texts(absent) if len(table) else gap_texts([spec.title])
    return Frame(table.assign(hue=table["method"]), study.cells, gaps)
