"""What one panel shows: its axes, and records, from which a chart draws its marks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.render.axes import Axis, Json, rounded
from pkm.analysis.render.style import BLACK, HueStyle, mark_properties

REFERENCE = "reference"  # what has no entry of its own in the legend
REPORTED = "reported"
DOTTED_GREY = {"color": "#8c8c8c", "linestyle": (1, 1.5), "linewidth": 1.2}
DIAMOND = {"color": BLACK, "marker": "D", "markerfacecolor": "none", "linestyle": ""}
#: Columns of a cell that its record has where they are known.
NUMBERS = ("seeds", "epsilon", "epsilon_spent")


@dataclass(frozen=True)
class Subplot:
    """One panel.

    Attributes
    ----------
    x, y : Axis
    records : list of dict
        Each has a value, its position, its description and its mark properties. Their
        fields decide which layers of chart.yaml show them.
    notes : dict of str to str
        For the caption: ``log`` where the values asked for a logarithmic axis,
        ``outside`` with the level lines outside the limits.
    colors : dict, optional
        Scale and legend of the colors of a map, as Vega-Lite has them.
    title : str
    """

    x: Axis
    y: Axis
    records: list[Json]
    notes: Mapping[str, str] = field(default_factory=dict)
    colors: Json | None = None
    title: str = ""


def hue_key(hue: Any, style: HueStyle) -> str:
    """Return what the data call a hue: its label, which the legend shows."""
    return style.label or f"{hue}"


def make_record(
    row: Mapping[str, Any],
    hue: str,
    text: str,
    spec: FigureSpec,
) -> Json:
    """Return what the pointer shows of one value; `text` says where it is."""
    record = {
        "hue": hue,
        "place": text,
        "value": rounded(row["value"]),
        "style": row.get("style"),
    }
    # Rows that a function of a paper makes are of no single cell.
    if isinstance(row.get("cell"), str):
        record["cell"] = row["cell"]
    if row.get("dataset"):
        record["dataset"] = spec.format_name(row["dataset"])
    low = row.get("low", np.nan)
    high = row.get("high", np.nan)
    if np.isfinite(low) and np.isfinite(high):
        record["interval"] = f"{low:.4g} to {high:.4g}"
    if row.get("notion") in ("pure", "approximate"):
        record["adjacency"] = row["adjacency"].replace("_", "-")
    for name in NUMBERS:
        value = row.get(name, np.nan)
        if np.isfinite(value):
            record[name] = rounded(value)
    return {name: item for name, item in record.items() if item not in (None, "")}


def reference_line(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a reference line is drawn: by default grey and dotted."""
    own = {key: value for key, value in entry.items() if key not in ("x", "y", "slope")}
    return DOTTED_GREY | own


def reference_record(entry: Mapping[str, Any], **place: Any) -> Json:
    """Return the record of a reference line."""
    hue = entry.get("label", REFERENCE)
    return {"hue": hue} | mark_properties(reference_line(entry)) | place
