"""Heat maps: a value by two quantities, written into its cells."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from pkm.analysis.figure import FigureSpec, in_order
from pkm.analysis.frames import number_text
from pkm.analysis.render.layout import log_axis, plain_number, short_exponents
from pkm.analysis.render.style import GREY, INK, HueStyle
from pkm.schema import higher_is_better

LETTERS = 9  # of names and labels along an inch
DARK = 0.55  # luminance below which a cell has white text


def draw(
    axes: Axes, table: pd.DataFrame, spec: FigureSpec, styles: Mapping[Any, HueStyle]
) -> dict[str, str]:
    """Draw one map: `x` across, `row` upwards, or downwards where rows have names.

    A `mark` of the table is appended to its number; cells without a number have a dash.
    """
    columns = ordered(table["x"], spec)
    rows = ordered(table["row"], spec)
    rows = rows[::-1] if isinstance(rows[0], str) else rows
    matrix = table.pivot(index="row", columns="x", values="value").reindex(rows)[columns]
    texts = table.assign(text=[_text(line, spec) for line in table.to_dict("records")])
    words = texts.pivot(index="row", columns="x", values="text").reindex(rows)[columns]
    values = np.ma.masked_invalid(matrix.to_numpy(dtype=float))
    is_cost = spec.colors == "better" and not higher_is_better(table["metric"].iloc[0])
    color_map = f"{spec.color_map}_r" if is_cost else spec.color_map
    image = axes.imshow(values, cmap=color_map, aspect="auto", origin="lower")
    image.set_norm(_norm([values], spec))
    axes.set_facecolor("#f2f2f2")
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    names = [spec.name_of(value) for value in columns]
    slanted = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    is_long = max(map(len, names)) * len(names) > LETTERS * spec.width
    axes.set_xticks(range(len(columns)), names, **(slanted if is_long else {}))
    axes.set_yticks(range(len(rows)), [spec.name_of(value) for value in rows])
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(rows) + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0, labelsize=8.5)
    # Texts are colored when the scale is known, which panels may share.
    for i, j in np.ndindex(*matrix.shape):
        word = words.iloc[i, j]
        word = "–" if pd.isna(word) else word
        axes.text(j, i, word, ha="center", va="center", fontsize=8, color=GREY)
    return {}


def panel_height(drawn: pd.DataFrame, spec: FigureSpec) -> float:
    """Return the height of the panels in inches; the height of a specification is that of a row."""
    panels = drawn.groupby("panel") if "panel" in drawn else [("", drawn)]
    return spec.height * max(3, *(table["row"].nunique() for _, table in panels)) + 0.9


def ordered(values: pd.Series, spec: FigureSpec) -> list[Any]:
    """Return numbers sorted, categories in their order, and names in that of the specification."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return list(values.cat.remove_unused_categories().cat.categories)
    if pd.api.types.is_numeric_dtype(values):
        return sorted(values.dropna().unique())
    return in_order(values.dropna(), [*spec.order, *spec.titles])


def _text(line: Mapping[str, Any], spec: FigureSpec) -> str:
    template = spec.label or "{value:.3g}"
    text = plain_number(line["value"]) if template == "plain" else number_text(template, line)
    return f"{text}{line.get('mark') or ''}"


def _norm(matrices: Sequence[np.ma.MaskedArray], spec: FigureSpec) -> Normalize:
    """Return the color scale of some maps."""
    known = np.concatenate([values.compressed() for values in matrices])
    low, high = spec.color_limits or (known.min(), known.max())
    if spec.colors == "diverging":
        largest = max(abs(low), abs(high), 1.0)
        return TwoSlopeNorm(0, -largest, largest)
    if spec.colors == "log" and low < high:
        return LogNorm(low, high, clip=True)
    # A range that is nothing but rounding would show structure where there is none.
    pad = max(0.01 * max(abs(low), abs(high)) - (high - low), 0) / 2
    return Normalize(low - pad, high + pad or 1.0)


def color_bars(figure: Figure, grid: Sequence[Axes], parts: Sequence[FigureSpec]) -> None:
    """Give the panels of a `color_group` one scale, with a bar where asked, and color the texts."""
    groups: dict[str, list[int]] = {}
    for index, part in enumerate(parts):
        group = f"{index}" if part.color_group == "panel" else part.color_group
        groups.setdefault(group, []).append(index)
    for indices in groups.values():
        spec = parts[indices[0]]
        images = [grid[index].images[0] for index in indices]
        norm = _norm([np.ma.masked_invalid(image.get_array()) for image in images], spec)
        for image in images:
            image.set_norm(norm)
        if spec.color_bar:
            _color_bar(figure, [grid[index] for index in indices], spec)
    for axes in grid[: len(parts)]:
        _color_texts(axes)


def _color_bar(figure: Figure, grid: Sequence[Axes], spec: FigureSpec) -> None:
    image = grid[0].images[0]
    bar = figure.colorbar(image, ax=list(grid), shrink=0.9, pad=0.015, aspect=30)
    bar.outline.set_visible(False)
    # Lines no longer than the bar.
    letters = int(LETTERS * figure.get_figheight())
    bar.set_label(textwrap.fill(spec.color_label, letters), fontsize=9)
    bar.ax.tick_params(labelsize=8)
    if isinstance(image.norm, LogNorm):
        log_axis(bar.ax.yaxis)
    else:
        bar.ax.locator_params(axis="y", nbins=6)
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda x, _: short_exponents(f"{x:.3g}")))
    if spec.colors == "diverging":
        known = np.concatenate([axes.images[0].get_array().compressed() for axes in grid])
        bar.ax.set_ylim(min(known.min(), 0), max(known.max(), 0))


def _color_texts(axes: Axes) -> None:
    """Write numbers in white on dark cells."""
    image = axes.images[0]
    values = image.get_array()
    for text in axes.texts:
        x, y = text.get_position()
        value = values[int(y), int(x)]
        if value is np.ma.masked:
            continue
        red, green, blue, _ = image.cmap(image.norm(value))
        luminance = 0.299 * red + 0.587 * green + 0.114 * blue
        text.set_color("white" if luminance < DARK else INK)
