"""One style per method for every figure: its label, color and marker come with the result rows.

Colors are based on those of Okabe and Ito, which people with any of the common color deficiencies
can tell apart; marker and line style carry the same information again for print in grey.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from pkm.analysis.figure import LINESTYLES, NO_LINE, FigureSpec, in_order

#: What charts have in common: configuration, layers, markers, colors, titles of facts.
COMMON = yaml.safe_load(Path(__file__).with_name("chart.yaml").read_text(encoding="utf-8"))

INK = "#222222"
GREY = "#8c8c8c"
POINT = 96 / 72  # pixels
#: Lengths of dashes and of gaps in line widths; none of a solid line.
Dashes = tuple[float, ...]
DOTTED = (1, 1.5)
# Markers without a face are those of baselines, which are thin broken lines.
BASELINE_LINESTYLES: dict[str, Dashes] = {"x": DOTTED, "+": (5, 2)}
SOUND_LINESTYLE = (4, 1.5)
VARIATION_LINESTYLE = (2, 1.2)
# Colors and markers of methods whose rows have none.
CYCLE = (
    ("#e69f00", "D"),
    ("#56b4e9", "v"),
    ("#7a3e9d", "P"),
    ("#8a6d1f", "X"),
    ("#b2182b", "*"),
    ("#009e73", "o"),
    ("#0072b2", "^"),
    ("#d55e00", "s"),
    ("#cc79a7", "h"),
    ("#222222", "8"),
)


@dataclass(frozen=True)
class MethodStyle:
    """Style of a method in every figure.

    Attributes
    ----------
    label : str
        A part in parentheses names a variation of a method: dashed, with a hollow marker.
    color : str
    marker : str
        Empty for a line without markers.
    """

    label: str
    color: str
    marker: str

    @property
    def baseline(self) -> bool:
        """Whether the method is one that no useful private method may lose to."""
        return self.marker in BASELINE_LINESTYLES

    @property
    def hollow(self) -> bool:
        """Whether the marker has no filling: a variation of a method."""
        return "(" in self.label

    @property
    def linestyle(self) -> str | Dashes:
        """Solid for methods as they are, broken for baselines and variations."""
        if self.baseline:
            return BASELINE_LINESTYLES[self.marker]
        if not self.hollow:
            return "-"
        return SOUND_LINESTYLE if self.label.endswith("(sound)") else VARIATION_LINESTYLE

    @property
    def short_label(self) -> str:
        """Label without the part in parentheses."""
        return self.label.split(" (")[0]

    def line(self) -> dict[str, Any]:
        """Return how a curve is drawn; lengths are in points."""
        return {
            "color": self.color,
            "linestyle": self.linestyle,
            "linewidth": 1.0 if self.baseline else 1.8,
            "marker": None if self.baseline else self.marker or None,
            "markersize": 5,
            "markerfacecolor": "white" if self.hollow else self.color,
            "markeredgewidth": 1.2,
            "label": self.label,
        }


class MethodStyles:
    """Styles of the methods of some rows.

    Methods whose rows have no style, and names without rows, get their name as label, and an
    unused color and marker of `CYCLE`.

    Parameters
    ----------
    cells : DataFrame
        Columns `method` and, where rows have them, `label`, `color` and `marker`.

    Examples
    --------
    >>> row = {"method": "dpm", "label": "DPM", "color": "#cc79a7", "marker": "D"}
    >>> styles = MethodStyles(pd.DataFrame([row]))
    >>> styles["dpm"].label, styles["own_method"].label, styles["own_method"].color
    ('DPM', 'own method', '#e69f00')
    """

    def __init__(self, cells: pd.DataFrame) -> None:
        self._styles: dict[str, MethodStyle] = {}
        rows = cells.drop_duplicates("method").sort_values("method").to_dict("records")
        for row in rows:
            if row.get("label"):
                style = MethodStyle(row["label"], row["color"], row["marker"])
                self._styles[row["method"]] = style
        for row in rows:
            if row["method"] not in self._styles:
                self._add(row["method"])

    def __getitem__(self, method: str) -> MethodStyle:
        if method not in self._styles:
            self._add(method)
        return self._styles[method]

    def label(self, method: str) -> str:
        """Return the label of a method."""
        return self[method].label

    def _add(self, method: str) -> None:
        used = {(style.color, style.marker) for style in self._styles.values()}
        unused = [pair for pair in CYCLE if pair not in used]
        color, marker = (unused or CYCLE)[0]
        self._styles[method] = MethodStyle(method.replace("_", " "), color, marker)


# --- styles of the hues of a figure -------------------------------------------------------------


@dataclass(frozen=True)
class HueStyle:
    """How one hue of a figure is drawn.

    Attributes
    ----------
    line : dict
        How its curve is drawn: `color`, `linestyle`, `linewidth`, `marker`, `markersize`,
        `markerfacecolor`, `markeredgewidth`, `alpha`, `zorder` and `label`; lengths in points.
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


def hue_styles(table: pd.DataFrame, spec: FigureSpec, cells: pd.DataFrame) -> dict[Any, HueStyle]:
    """Return the styles of the hues of a figure, in the order in which they are drawn.

    Methods have the label, color and marker of their rows. Numbers have a color between dark and
    light, other values one of `CYCLE`. `spec.styles` changes them; a hue without a style there
    (``null``) is in the table alone.
    """
    given = spec.styles
    changes = given if isinstance(given, Mapping) else spec.function(given)(table)
    hues = in_order(table["hue"].dropna(), [*spec.order, *spec.curves, *spec.methods, *changes])
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
            named = table.loc[table["hue"] == hue].get("method", pd.Series(dtype=object)).dropna()
            base = methods[named.iloc[0] if len(named) else hue]
        elif isinstance(hue, str):
            base = MethodStyle(spec.name_of(hue), *next(cycle))
        else:
            base = MethodStyle(spec.name_of(hue), next(colors), "o")
        if spec.hue_label:
            change.setdefault("label", spec.hue_label.format(hue))
        own = {key: change.pop(key) for key in ("label", "color", "marker") if key in change}
        base = replace(base, **own)
        line = base.line()
        if not of_method:
            line |= {"linestyle": "-", "markerfacecolor": base.color}
        shift = change.pop("shift", 0.0)
        styles[hue] = HueStyle(line | change, base.baseline and of_method, shift)
    return styles


def variant_styles(table: pd.DataFrame, spec: FigureSpec) -> dict[Any, dict[str, Any]]:
    """Return the changes that the values of `style` make to a curve."""
    default = ({}, {"linestyle": (3, 1.5), "hollow": True}, {"linestyle": ":"})
    values = in_order(table["style"].dropna(), spec.variants)
    variants = {}
    for value, changes in zip(values, itertools.cycle(default), strict=False):
        change = dict(spec.variants.get(value, changes))
        change.setdefault("label", spec.name_of(value))
        if change.pop("hollow", False):
            change["markerfacecolor"] = "white"
        variants[value] = change
    return variants


# --- looks and colors ---------------------------------------------------------------------------


def look_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the records of a chart say of their look; lengths are in pixels.

    Without a line there is no `width`, without a marker no `marker`.

    Examples
    --------
    >>> look_of({"color": "#222222", "linestyle": ":", "linewidth": 3})
    {'color': '#222222', 'face': '#222222', 'width': 4.0, 'dash': [4.0, 6.6]}
    """
    face = line.get("markerfacecolor", line["color"])
    look = {"color": line["color"], "face": "transparent" if face == "none" else face}
    style = line.get("linestyle", "-")
    if style != NO_LINE:
        look["width"] = round(POINT * line.get("linewidth", 1.8), 2)
        lengths = LINESTYLES[style] if isinstance(style, str) else style
        if lengths:
            look["dash"] = [round(look["width"] * length, 2) for length in lengths]
    if line.get("marker"):
        look["marker"] = line["marker"] if line["marker"] in COMMON["markers"] else "o"
        look["size"] = round((POINT * line.get("markersize", 5)) ** 2, 1)
        look["edge"] = round(POINT * line.get("markeredgewidth", 1.2), 2)
    if "alpha" in line:
        look["alpha"] = line["alpha"]
    return look


def shades(count: int, highest: float = 1.0, color_map: str = "viridis") -> list[str]:
    """Return colors of a map at equal distances, from its lowest to a share of its length.

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
    parts = np.array([channels(stop) for stop in stops]).T
    mixed = [round(float(np.interp(share, places, part))) for part in parts]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def channels(color: str) -> Sequence[int]:
    """Return red, green and blue of a color.

    Examples
    --------
    >>> channels("#ff0080")
    (255, 0, 128)
    """
    return tuple(int(color[start : start + 2], 16) for start in (1, 3, 5))
