"""Styles of hues and of their variants, properties of marks, color maps."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from pkm.analysis.figures.figure import LINESTYLES, NO_LINE, FigureSpec, in_order
from pkm.analysis.figures.styles import CYCLE, MethodStyle, MethodStyles

#: What charts have in common: configuration, layers, markers, colors, titles of facts.
COMMON = yaml.safe_load(
    Path(__file__).with_name("chart.yaml").read_text(encoding="utf-8")
)

BLACK = "#222222"
GREY = "#8c8c8c"
POINT = 96 / 72  # pixels


# Styles of the hues of a figure


@dataclass(frozen=True)
class HueStyle:
    """How one hue of a figure is drawn.

    Attributes
    ----------
    line : dict
        How its curve is drawn: `color`, `linestyle`, `linewidth`, `marker`,
        `markersize`, `markerfacecolor`, `markeredgewidth`, `alpha`, `zorder` and
        `label`; lengths in points.
    baseline : bool
        Whether it is a level that sets no limits, see `MethodStyle.baseline`.
    shift : float
        How far down its marks are moved in a forest, in rows.
    """

    line: dict[str, Any]
    baseline: bool = False
    shift: float = 0.0

    @property
    def label(self) -> str:
        """Label in the legend; empty for none."""
        return self.line["label"]

    @property
    def short_label(self) -> str:
        """Label without a part in parentheses."""
        return self.label.split(" (")[0]

    @property
    def color(self) -> Any:
        """Color of lines and faces."""
        return self.line["color"]


def hue_styles(
    table: pd.DataFrame, spec: FigureSpec, cells: pd.DataFrame
) -> dict[Any, HueStyle]:
    """Return the styles of the hues of a figure, in the order in which they are drawn.

    Methods have the label, color and marker of their rows. Numbers have a color between
    dark and light, other values one of `CYCLE`. `spec.styles` changes them; a hue
    without a style there (``null``) is in the table alone.
    """
    changes = spec.styles
    if not isinstance(changes, Mapping):
        changes = spec.function(changes)(table)
    order = [*spec.order, *spec.curves, *spec.methods, *changes]
    hues = in_order(table["hue"].dropna(), order)
    of_method = spec.hue == "method" or bool(spec.curves)
    methods = MethodStyles(cells if "method" in cells else pd.DataFrame({"method": []}))
    colors = iter(shades(len(hues), 0.82))
    cycle = itertools.cycle(CYCLE)
    styles = {}
    for hue in hues:
        change = changes.get(hue, {})
        if change is None:
            continue
        change = dict(change)
        if of_method:
            base = methods[_find_method(table, hue)]
        elif isinstance(hue, str):
            base = MethodStyle(spec.format_name(hue), *next(cycle))
        else:
            base = MethodStyle(spec.format_name(hue), next(colors), "o")
        for key in ("label", "color", "marker"):
            if key in change:
                base = replace(base, **{key: change.pop(key)})
        line = base.line()
        if not of_method:
            line |= {"linestyle": "-", "markerfacecolor": base.color}
        shift = change.pop("shift", 0.0)
        styles[hue] = HueStyle(line | change, base.baseline and of_method, shift)
    return styles


def _find_method(table: pd.DataFrame, hue: Any) -> Any:
    """Find the method whose rows have a hue: the hue itself unless they name it."""
    if "method" not in table:
        return hue
    named = table.loc[table["hue"] == hue, "method"].dropna()
    return named.iloc[0] if len(named) else hue


def variant_styles(table: pd.DataFrame, spec: FigureSpec) -> dict[Any, dict[str, Any]]:
    """Return the changes that the values of `style` make to a curve."""
    default = ({}, {"linestyle": (3, 1.5), "hollow": True}, {"linestyle": ":"})
    values = in_order(table["style"].dropna(), spec.variants)
    variants = {}
    for value, changes in zip(values, itertools.cycle(default), strict=False):
        change = dict(spec.variants.get(value, changes))
        change.setdefault("label", spec.format_name(value))
        if change.pop("hollow", False):
            change["markerfacecolor"] = "white"
        variants[value] = change
    return variants


# Mark properties and colors


def mark_properties(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mark properties of a style for the records of a chart, in pixels.

    Without a line there is no `width`, without a marker no `marker`.

    Examples
    --------
    >>> mark_properties({"color": "#222222", "linestyle": ":", "linewidth": 3})
    {'color': '#222222', 'face': '#222222', 'width': 4.0, 'dash': [4.0, 6.6]}
    """
    face = line.get("markerfacecolor", line["color"])
    props = {"color": line["color"], "face": "transparent" if face == "none" else face}
    style = line.get("linestyle", "-")
    if style != NO_LINE:
        props["width"] = round(POINT * line.get("linewidth", 1.8), 2)
        lengths = LINESTYLES[style] if isinstance(style, str) else style
        if lengths:
            props["dash"] = [round(props["width"] * length, 2) for length in lengths]
    if line.get("marker"):
        props["marker"] = line["marker"] if line["marker"] in COMMON["markers"] else "o"
        props["size"] = round((POINT * line.get("markersize", 5)) ** 2, 1)
        props["edge"] = round(POINT * line.get("markeredgewidth", 1.2), 2)
    if "alpha" in line:
        props["alpha"] = line["alpha"]
    return props


def shades(
    count: int,
    highest: float = 1.0,
    color_map: str = "viridis",
) -> list[str]:
    """Return colors of a map at equal distances, up to a share of its length.

    Maps are those of chart.yaml; one with ``_r`` at its end is reversed.

    Examples
    --------
    >>> shades(2), shades(1, color_map="viridis_r")
    (['#440154', '#fde725'], ['#fde725'])
    """
    return [color_at(share, color_map) for share in np.linspace(0.0, highest, count)]


def color_at(share: float, color_map: str) -> str:
    """Return the color at a share of the length of a map."""
    stops = COMMON["color_maps"][color_map.removesuffix("_r")]
    if color_map.endswith("_r"):
        share = 1 - share
    places = np.linspace(0, 1, len(stops))
    by_channel = np.array([to_rgb(stop) for stop in stops]).T
    mixed = [round(float(np.interp(share, places, values))) for values in by_channel]
    return "#" + "".join(f"{level:02x}" for level in mixed)


def to_rgb(color: str) -> Sequence[int]:
    """Return red, green and blue of a color.

    Examples
    --------
    >>> to_rgb("#ff0080")
    (255, 0, 128)
    """
    return tuple(int(color[start : start + 2], 16) for start in (1, 3, 5))
