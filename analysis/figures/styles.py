"""One style per method for every figure: label, color and marker come with the rows.

Colors are based on those of Okabe and Ito, which people with any of the common color
deficiencies can tell apart; marker and line style carry the same information again for
print in grey.
"""

from dataclasses import dataclass
from typing import Any

import pandas as pd

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
        A part in parentheses names a variation of a method: dashed, with a hollow
        marker.
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
        return (
            SOUND_LINESTYLE if self.label.endswith("(sound)") else VARIATION_LINESTYLE
        )

    @property
    def short_label(self) -> str:
        """Label without the part in parentheses."""
        return self.label.split(" (")[0]

    def line(self) -> dict[str, Any]:
        """Return how a curve is drawn: properties of matplotlib's `Line2D`."""
        width = {"linewidth": 1.0} if self.baseline else {}
        return width | {
            "color": self.color,
            "linestyle": self.linestyle,
            "marker": None if self.baseline else self.marker or None,
            "markerfacecolor": "white" if self.hollow else self.color,
            "label": self.label,
        }


class MethodStyles:
    """Styles of the methods of some rows.

    Methods whose rows have no style, and names without rows, get their name as label,
    and an unused color and marker of `CYCLE`.

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
