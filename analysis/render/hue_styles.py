"""Styles of hues and of their variants, in the words of matplotlib."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.colors import to_hex

from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.figures.styles import CYCLE, MethodStyle, MethodStyles

BLACK = "#222222"
GREY = "#8c8c8c"
#: What a paper reports.
DIAMOND = {
    "color": BLACK,
    "marker": "D",
    "markerfacecolor": "none",
    "markersize": 7,
    "linestyle": "",
    "zorder": 40,
}


Styles = Mapping[Any, "HueStyle"]


@dataclass(frozen=True)
class HueStyle:
    """How one hue of a figure is drawn.

    Attributes
    ----------
    line : dict
        How its curve is drawn: properties of matplotlib's `Line2D`.
    baseline : bool
        Whether it is a level that sets no limits, see `MethodStyle.baseline`.
    shift : float
        How far down its marks are moved in a forest, in rows.
    """

    line: dict
    baseline: bool = False
    shift: float = 0.0

    @property
    def label(self) -> str:
        """Label in the legend; empty for none."""
        return self.line["label"]


def hue_styles(
    table: pd.DataFrame,
    spec: FigureSpec,
    cells: pd.DataFrame,
) -> dict[Any, HueStyle]:
    """Return the styles of the hues of a figure, in the order in which they are drawn.

    Methods have the label, color and marker of their rows. Numbers have a color between
    dark and light, other values one of `CYCLE`. `spec.styles` changes them; a hue
    without a style there (``null``) is in the table alone.
    """
    order = [*spec.order, *spec.curves, *spec.methods, *spec.styles]
    hues = in_order(table["hue"].dropna(), order)
    of_method = spec.hue == "method" or bool(spec.curves)
    methods = MethodStyles(cells)
    # The first method whose rows have a hue; without any the hue names it.
    named = table.reindex(columns=["hue", "method"]).dropna().drop_duplicates("hue")
    method_of = dict(named.to_numpy())
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.82, len(hues)))
    colors = map(to_hex, shades)
    cycle = itertools.cycle(CYCLE)
    styles = {}
    for hue in hues:
        change = spec.styles.get(hue, {})
        if change is None:
            continue
        if of_method:
            base = methods[method_of.get(hue, hue)]
        elif isinstance(hue, str):
            base = MethodStyle(spec.format_name(hue), *next(cycle))
        else:
            base = MethodStyle(spec.format_name(hue), next(colors), "o")
        change = dict(change)
        shift = change.pop("shift", 0.0)
        own = {name: change.pop(name) for name in vars(base) if name in change}
        base = replace(base, **own)
        line = base.line()
        if not of_method:
            line |= {"linestyle": "-", "markerfacecolor": base.color}
        styles[hue] = HueStyle(line | change, base.baseline and of_method, shift)
    return styles


def variant_styles(
    table: pd.DataFrame,
    spec: FigureSpec,
) -> dict[Any, dict]:
    """Return the changes that the values of `style` make to a curve."""
    default = (
        {},
        {"linestyle": (3, 1.5), "hollow": True},
        {"linestyle": ":"},
    )
    values = in_order(table["style"].dropna(), spec.variants)
    variants = {}
    for value, changes in zip(values, itertools.cycle(default), strict=False):
        change = dict(spec.variants.get(value, changes))
        change.setdefault("label", spec.format_name(value))
        if change.pop("hollow", False):
            change["markerfacecolor"] = "white"
        variants[value] = change
    return variants


def artist(line: Mapping) -> dict:
    """Return the properties of a style as matplotlib's lines have them.

    Examples
    --------
    >>> artist({"color": "#222222", "linestyle": (4, 2), "label": "mean"})
    {'color': '#222222', 'linestyle': (0, (4, 2))}
    """
    properties = {key: value for key, value in line.items() if key != "label"}
    style = properties.get("linestyle", "-")
    if not isinstance(style, str):
        properties["linestyle"] = (0, tuple(style))
    return properties
