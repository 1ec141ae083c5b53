"""What one panel of a figure shows, whatever draws it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.render.hue_styles import Styles

MIN_WIDTH = 1.3  # inches of a panel, where a figure declares its width


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes
    ----------
    spec : FigureSpec
        That of the figure, with what the panel changes.
    table : DataFrame
        Its rows, with the places that its kind of figure adds.
    styles : mapping
        Hue to style, from back to front.
    log : bool
        Whether the axis of values is logarithmic.
    names : mapping of float to str
        Labels of places on the axis of names: x of lines, y of forests.
    title, x_label, y_label : str
    """

    spec: FigureSpec
    table: pd.DataFrame
    styles: Styles
    log: bool = False
    names: Mapping[float, str] = field(default_factory=dict)
    title: str = ""
    x_label: str = ""
    y_label: str = ""


@dataclass(frozen=True, eq=False)
class Drawing:
    """All panels of a figure, the figure's own specification and styles.

    Tables have no equality, so that a drawing equals itself alone.
    """

    spec: FigureSpec
    panels: tuple[Panel, ...]
    styles: Styles

    @property
    def columns(self) -> int:
        """How many panels are side by side: as many as leave the fewest places empty.

        Examples
        --------
        >>> spec = FigureSpec("fastlloyd", "figure2", "NICV")
        >>> panels = 10 * (Panel(spec, pd.DataFrame(), {}),)
        >>> Drawing(spec, panels, {}).columns
        5
        """
        count = len(self.panels)
        choices = [4, 5, 3] if self.spec.kind == "lines" else [3, 2]
        if self.spec.width:
            most = int(self.spec.width / MIN_WIDTH)
            choices = [columns for columns in choices if columns <= most] or [most]
        if self.spec.kind == "lines" and count <= choices[0]:
            return count
        return min(min(choices, key=lambda columns: -count % columns), count)

    def color_groups(self) -> list[list[int]]:
        """Return the indices of the maps that share a scale of colors."""
        groups: dict[str, list[int]] = {}
        for index, panel in enumerate(self.panels):
            group = panel.spec.color_group
            key = f"{index}" if group == "panel" else group
            groups.setdefault(key, []).append(index)
        return list(groups.values())


def ordered(
    values: pd.Series,
    spec: FigureSpec,
) -> list[Any]:
    """Return sorted numbers, or categories and names in their order."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return list(values.cat.remove_unused_categories().cat.categories)
    if pd.api.types.is_numeric_dtype(values):
        return sorted(values.dropna().unique())
    return in_order(values.dropna(), [*spec.order, *spec.titles])
