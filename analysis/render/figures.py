"""From the tidy table of a figure to the figure: panels, labels, legend, caption."""

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pkm.analysis.figure import FigureResult, FigureSpec
from pkm.analysis.frames import (
    HIDDEN,
    OF_MARKS,
    Frame,
    caption_fields,
    frame,
    panel_names,
    printed,
    sentences,
)
from pkm.analysis.render import forest, heatmap, lines
from pkm.analysis.render.chart import chart
from pkm.analysis.render.layout import legend_columns, panel_grid
from pkm.analysis.render.style import INK, HueStyle, hue_styles, variant_styles
from pkm.analysis.tables import Study

#: Draws one panel; returns what the caption says of its axes: notes by kind.
Draw = Callable[[Axes, pd.DataFrame, FigureSpec, Mapping[Any, HueStyle]], Mapping[str, str]]
KINDS: dict[str, Draw] = {"lines": lines.draw, "heatmap": heatmap.draw, "forest": forest.draw}
MIN_WIDTH = 5.2  # of a figure, in inches, so that its labels fit
LEGEND_HEIGHT = 0.32  # of a row of the legend, in inches
GENERATED = "-generated"
MAX_NAMES = 4
NOTHING = "No stored rows."


def draw(study: Study, spec: FigureSpec) -> FigureResult:
    """Draw a declared figure from the rows of a study."""
    return render(frame(study, spec), spec)


def render(shown: Frame, spec: FigureSpec) -> FigureResult:
    """Draw a figure from its table.

    Panels without rows are not drawn; the gaps name them.
    """
    styles = hue_styles(shown.table, spec, shown.source) if "hue" in shown.table else {}
    fields = caption_fields(shown, spec)
    figure = None
    notes: dict[str, str] = {}
    interactive = None
    if spec.kind != "table" and len(shown.drawn):
        figure, notes = _panels(shown, spec, styles, fields)
        interactive = chart(figure, shown, spec, styles)
    labels = {hue: style.label for hue, style in styles.items()}
    fields.update(notes)
    is_empty = spec.kind != "table" and not len(shown.drawn)
    caption = [NOTHING] if is_empty else sentences(spec.caption, fields)
    caption += [text for name, text in notes.items() if f"{{{name}}}" not in "".join(spec.caption)]
    hidden = HIDDEN if spec.frame else {*HIDDEN, *OF_MARKS}.difference(spec.facts)
    return FigureResult(
        figure,
        shown.table.drop(columns=[name for name in hidden if name in shown.table]),
        printed(shown, spec, labels),
        " ".join(caption),
        shown.gaps or (),
        substitutes(shown.source),
        interactive,
    )


def _panels(
    shown: Frame,
    spec: FigureSpec,
    styles: Mapping[Any, HueStyle],
    fields: Mapping[str, Any],
) -> tuple[Figure, dict[str, str]]:
    """Draw one panel for each that has rows; return the figure and notes for the caption."""
    drawn = shown.drawn
    names = panel_names(drawn, spec)
    columns = min(spec.columns, len(names))
    handles = _handles(drawn, spec, styles)
    width = max(spec.width * columns, MIN_WIDTH)
    n_columns = legend_columns([str(handle.get_label()) for handle in handles], width)
    height = spec.height
    if spec.kind == "forest":
        height = forest.panel_height(drawn, spec)
    elif spec.kind == "heatmap":
        height = heatmap.panel_height(drawn, spec)
    above = spec.legend == "above" and handles
    legend_height = LEGEND_HEIGHT * -(-len(handles) // n_columns) if above else 0.0
    figure, grid = panel_grid(len(names), columns, width / columns, height, legend_height)
    by_kind: dict[str, dict[str, list[str]]] = {}
    y_label = ""
    for index, (axes, name) in enumerate(zip(grid, names, strict=True)):
        part = spec.part(name) if name else spec
        rows = drawn[drawn["panel"] == name] if name else drawn
        for kind, note in KINDS[spec.kind](axes, rows, part, styles).items():
            by_kind.setdefault(kind, {}).setdefault(note, []).append(part.title)
        if name:
            _title(axes, index, part.title, len(names))
        if not spec.share_labels:
            cells = None if "notion" in rows else shown.source
            of_panel = caption_fields(Frame(rows, cells, fields=shown.fields), part)
            axes.set_xlabel(_text(part.x_label, of_panel), fontsize=9)
            # Panels of a row that share a label have it once.
            before, y_label = y_label, _text(part.y_label, of_panel)
            axes.set_ylabel("" if index % columns and y_label == before else y_label, fontsize=9)
    if spec.kind == "forest":
        forest.share_row_labels(grid, columns)
    if spec.share_y and spec.kind == "forest":
        forest.share_value_axis(grid, spec)
    elif spec.share_y:
        _share_y(grid)
    if spec.kind == "heatmap":
        heatmap.color_bars(figure, grid, [spec.part(name) for name in names])
    if spec.share_labels:
        figure.supxlabel(_text(spec.x_label, fields), fontsize=11, color=INK)
        figure.supylabel(_text(spec.y_label, fields), fontsize=11, color=INK)
    if handles and spec.legend != "none":
        place = "outside upper center" if above else "outside right center"
        figure.legend(
            handles=handles,
            loc=place,
            ncols=n_columns if above else 1,
            fontsize=9.5,
            handlelength=2.6,
            columnspacing=1.5,
        )
    return figure, _notes(by_kind, len(names))


def _title(axes: Axes, index: int, title: str, count: int) -> None:
    """Write the title of a panel, with its letter where there are several, but not too many."""
    letters = string.ascii_lowercase
    letter = f"({letters[index]}) " if 1 < count <= len(letters) else ""
    axes.set_title(f"{letter}{title}", color=INK, fontsize=10)


def _text(template: str, fields: Mapping[str, Any]) -> str:
    return " ".join(sentences([template], fields)) if template else ""


def _share_y(grid: Sequence[Axes]) -> None:
    """Give all panels the same limits of the value axis."""
    limits = np.array([axes.get_ylim() for axes in grid])
    for axes in grid:
        axes.set_yscale("log" if any(other.get_yscale() == "log" for other in grid) else "linear")
        axes.set_ylim(limits[:, 0].min(), limits[:, 1].max())
        lines.value_ticks(axes)


def _handles(drawn: pd.DataFrame, spec: FigureSpec, styles: Mapping[Any, HueStyle]) -> list[Artist]:
    """Return the entries of the legend: hues, styles, reference lines, reported values."""
    if spec.kind == "heatmap":
        return []
    present = set(drawn["hue"].dropna())
    labeled = {hue: styles[hue] for hue in styles if hue in present and styles[hue].label}
    handles: list[Artist] = []
    if spec.kind == "forest":
        # Rows that are hues are named at the left.
        levels = forest.levels_of(drawn)
        named = {} if spec.row == spec.hue else labeled
        handles += [forest.handle(style, spec, hue, levels) for hue, style in named.items()]
    else:
        handles += [Line2D([], [], **style.line) for style in labeled.values()]
    if spec.style:
        variants = variant_styles(drawn, spec)
        handles += [Line2D([], [], **({"color": INK} | variant)) for variant in variants.values()]
    handles += [Line2D([], [], **lines.reference_line(entry)) for entry in _references(drawn, spec)]
    if "reported" in drawn and drawn["reported"].notna().any():
        handles.append(Line2D([], [], **lines.REPORTED, label="reported"))
    return handles


def _references(drawn: pd.DataFrame, spec: FigureSpec) -> list[Mapping[str, Any]]:
    """Return the reference lines of the drawn panels that have a label, each label once."""
    parts = [spec.part(name) for name in panel_names(drawn, spec) if name] or [spec]
    entries = [entry for part in parts for entry in part.references if entry.get("label")]
    return list({entry["label"]: entry for entry in entries}.values())


def _notes(by_kind: Mapping[str, Mapping[str, list[str]]], n_panels: int) -> dict[str, str]:
    """Say once for all panels what was noted of their axes."""
    notes = {}
    for kind, panels_of_note in by_kind.items():
        if kind == "log":
            panels = panels_of_note.get("", [])
            where = "" if len(panels) == n_panels else f": {', '.join(panels)}"
            notes[kind] = (
                "The value axis is logarithmic where means lie more than a factor 5 apart" + where
            )
        elif kind == "outside":
            texts = [f"{', '.join(panels)}: {note}" for note, panels in panels_of_note.items()]
            notes[kind] = f"Outside their panels: {'; '.join(texts)}"
        else:
            notes[kind] = next(iter(panels_of_note))
    return {kind: f"{note}." for kind, note in notes.items()}


def substitutes(cells: pd.DataFrame) -> str:
    """Name the generated data sets that replace a file; empty without any."""
    names = sorted(set(cells["dataset"])) if "dataset" in cells else []
    generated = [name for name in names if str(name).endswith(GENERATED)]
    if not generated:
        return ""
    listed = ", ".join(generated[:MAX_NAMES])
    if len(generated) > MAX_NAMES:
        listed += f" and {len(generated) - MAX_NAMES} more"
    return (
        f"Substitutes: {len(generated)} of {len(names)} data sets were generated in place of files "
        f"that are not available ({listed})."
    )
