"""One style per method for every figure: label, color and marker come with the rows.

Colors are based on those of Okabe and Ito, which people with any of the common color
deficiencies can tell apart; marker and line style carry the same information again for
print in grey.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pkm.yaml_files import read_file

_LOOKS = read_file(Path(__file__).with_suffix(".yaml"))
#: Colors and markers of methods whose rows have none.
CYCLE = _LOOKS["cycle"]


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
        return self.marker in _LOOKS["baselines"]

    @property
    def hollow(self) -> bool:
        """Whether the marker has no filling: a variation of a method."""
        return "(" in self.label

    @property
    def linestyle(self) -> str | list[float]:
        """Solid for methods as they are, broken for baselines and variations."""
        if self.baseline:
            return _LOOKS["baselines"][self.marker]
        if not self.hollow:
            return "-"
        return _LOOKS["sound" if self.label.endswith("(sound)") else "variation"]

    def line(self) -> dict:
        """Return how a curve is drawn: properties of matplotlib's `Line2D`."""
        width = {"linewidth": 1.0} if self.baseline else {}
        return width | {
            "color": self.color,
            "linestyle": self.linestyle,
            "marker": None if self.baseline else self.marker or None,
            "markerfacecolor": "white" if self.hollow else self.color,
            "label": self.label,
        }


def shorten(label: str) -> str:
    """Return a label without the part in parentheses."""
    return label.split(" (")[0]


class MethodStyles(dict[str, MethodStyle]):
    """Styles of the methods of some rows.

    Methods whose rows have no label or color, and names without rows, get their name as
    label, and an unused color and marker of `CYCLE`.

    Parameters
    ----------
    cells : DataFrame
        Columns `method`, `label`, `color` and `marker`, where rows have them.

    Examples
    --------
    >>> row = {"method": "dpm", "label": "DPM", "color": "#cc79a7", "marker": "D"}
    >>> styles = MethodStyles(pd.DataFrame([row]))
    >>> styles["dpm"].label, styles["own_method"].label, styles["own_method"].color
    ('DPM', 'own method', '#e69f00')
    """

    def __init__(
        self,
        cells: pd.DataFrame,
    ) -> None:
        looks = cells.reindex(columns=["method", "label", "color", "marker"])
        looks = looks.drop_duplicates("method").dropna(subset="method")
        looks = looks.astype(object).fillna("")
        looks = looks.sort_values("method").set_index("method")
        self._labels = looks["label"].to_dict()
        styled = looks[(looks["label"] != "") & (looks["color"] != "")]
        for method, *look in styled.itertuples():
            self[method] = MethodStyle(*look)
        for method in looks.index:
            self.label(method)

    def __missing__(
        self,
        method: str,
    ) -> MethodStyle:
        used = [[style.color, style.marker] for style in self.values()]
        unused = [pair for pair in CYCLE if pair not in used]
        color, marker = (unused or CYCLE)[0]
        label = self._labels.get(method) or method.replace("_", " ")
        self[method] = MethodStyle(label, color, marker)
        return self[method]

    def label(
        self,
        method: str,
    ) -> str:
        """Return the label of a method."""
        return self[method].label
