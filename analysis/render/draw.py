"""From the tidy table of a figure to the figure: panels, labels, legend, caption."""

import string
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from pkm.analysis.figures.figure import FigureResult, FigureSpec
from pkm.analysis.figures.frames import (
    HIDDEN,
    TOOLTIP,
    FigureData,
    caption_fields,
    make_figure_data,
    panel_names,
    print_table,
    sentences,
)
from pkm.analysis.render import forest, heatmap, lines
from pkm.analysis.render.axes import Json
from pkm.analysis.render.chart import Entry, chart
from pkm.analysis.render.style import BLACK, HueStyle, hue_styles, variant_styles
from pkm.analysis.render.subplot import DIAMOND, REPORTED, Subplot, reference_line
from pkm.analysis.tables.study import Study

Styles = Mapping[Any, HueStyle]
KINDS: dict[str, Callable[[pd.DataFrame, FigureSpec, Styles], Subplot]] = {
    "lines": lines.panel,
    "heatmap": heatmap.panel,
    "forest": forest.panel,
}
GENERATED = "-generated"
MAX_NAMES = 4
NOTHING = "No stored rows."


def draw(study: Study, spec: FigureSpec) -> FigureResult:
    """Draw a declared figure from the rows of a study."""
    return render(make_figure_data(study, spec), spec)


def render(frame: FigureData, spec: FigureSpec) -> FigureResult:
    """Draw a figure from its table.

    Panels without rows are not drawn; the gaps name them.
    """
    styles = hue_styles(frame.table, spec, frame.source) if "hue" in frame.table else {}
    fields = caption_fields(frame, spec)
    notes: dict[str, str] = {}
    vega = None
    if spec.kind != "table" and len(frame.drawn):
        vega, notes = _drawn(frame, spec, styles, fields)
    labels = {hue: style.label for hue, style in styles.items()}
    fields.update(notes)
    is_empty = spec.kind != "table" and not len(frame.drawn)
    caption = [NOTHING] if is_empty else sentences(spec.caption, fields)
    caption += [
        text
        for name, text in notes.items()
        if f"{{{name}}}" not in "".join(spec.caption)
    ]
    hidden = (
        HIDDEN if spec.frame else {*HIDDEN, *TOOLTIP}.difference(spec.extra_columns)
    )
    return FigureResult(
        frame.table.drop(columns=[name for name in hidden if name in frame.table]),
        print_table(frame, spec, labels),
        " ".join(caption),
        frame.gaps or (),
        substitutes(frame.source),
        vega,
    )


def _drawn(
    frame: FigureData, spec: FigureSpec, styles: Styles, fields: Mapping[str, Any]
) -> tuple[Json, dict[str, str]]:
    """Draw each panel that has rows; return the chart and notes for the caption."""
    drawn = frame.drawn
    names = panel_names(drawn, spec)
    specs = [spec.part(name) if name else spec for name in names]
    tables = [drawn[drawn["panel"] == name] if name else drawn for name in names]
    panels = [
        KINDS[spec.kind](table, panel_spec, styles)
        for table, panel_spec in zip(tables, specs, strict=True)
    ]
    if spec.share_y:
        panels = (forest if spec.kind == "forest" else lines).share_values(panels)
    if spec.kind == "heatmap":
        panels = heatmap.colored(panels, tables, specs)
    titles = [("", "")] * len(panels)
    if not spec.share_labels:
        titles = [
            _axis_titles(table, panel_spec, frame)
            for table, panel_spec in zip(tables, specs, strict=True)
        ]
    columns = min(spec.columns, len(panels))
    for index, panel in enumerate(panels):
        x_title, y_title = titles[index]
        # Panels of a row that share a label have it once.
        if index % columns and y_title == titles[index - 1][1]:
            y_title = ""
        for record in panel.records:
            record["panel"] = specs[index].title
        panels[index] = replace(
            panel,
            x=replace(panel.x, title=x_title),
            y=replace(panel.y, title=y_title),
            title=_title(index, specs[index].title, len(panels))
            if names[index]
            else "",
        )
    shared = ("", "")
    if spec.share_labels:
        shared = (_text(spec.x_label, fields), _text(spec.y_label, fields))
    vega = chart(panels, spec, _entries(drawn, spec, styles), *shared)
    by_kind: dict[str, dict[str, list[str]]] = {}
    for panel, panel_spec in zip(panels, specs, strict=True):
        for kind, note in panel.notes.items():
            by_kind.setdefault(kind, {}).setdefault(note, []).append(panel_spec.title)
    return vega, _notes(by_kind, len(panels))


def _title(
    index: int,
    title: str,
    count: int,
) -> str:
    """Return the title of a panel, with a letter where several panels have one."""
    letters = string.ascii_lowercase
    letter = f"({letters[index]}) " if 1 < count <= len(letters) else ""
    return f"{letter}{title}"


def _axis_titles(
    table: pd.DataFrame, spec: FigureSpec, frame: FigureData
) -> tuple[str, str]:
    """Return the titles of the axes of a panel."""
    cells = None if "notion" in table else frame.source
    fields = caption_fields(FigureData(table, cells, fields=frame.fields), spec)
    return _text(spec.x_label, fields), _text(spec.y_label, fields)


def _text(template: str, fields: Mapping[str, Any]) -> str:
    return " ".join(sentences([template], fields)) if template else ""


def _entries(
    drawn: pd.DataFrame,
    spec: FigureSpec,
    styles: Styles,
) -> list[Entry]:
    """Return the legend: hues, styles, reference lines, reported values."""
    if spec.kind == "heatmap":
        return []
    entries: list[Entry] = []
    present = drawn.dropna(subset=["hue"]).groupby("hue", observed=True)
    place = "row" if spec.kind == "forest" else "x"
    for hue, style in styles.items():
        # Rows that are hues are named at the left.
        named = style.label and not (spec.kind == "forest" and spec.row == spec.hue)
        if not named or hue not in present.groups:
            continue
        is_level = present.get_group(hue)[place].isna().all()
        absent = {"marker": None} if is_level else {}
        if spec.kind == "forest":
            line = {
                key: BLACK if item == "method" else item
                for key, item in style.line.items()
            }
            absent = absent or {"linestyle": ""}
            if hue in spec.stacked:
                absent = {
                    "linestyle": "",
                    "marker": "s",
                    "markerfacecolor": style.color,
                }
        else:
            line = style.line
        entries.append((style.label, line | absent))
    if spec.style:
        variants = variant_styles(drawn, spec)
        entries += [
            (variant["label"], {"color": BLACK} | variant)
            for variant in variants.values()
        ]
    specs = [spec.part(name) for name in panel_names(drawn, spec) if name] or [spec]
    references = [entry for panel_spec in specs for entry in panel_spec.references]
    entries += [
        (entry["label"], reference_line(entry))
        for entry in references
        if entry.get("label")
    ]
    if "reported" in drawn and drawn["reported"].notna().any():
        entries.append((REPORTED, DIAMOND))
    return list(dict(entries).items())


def _notes(
    by_kind: Mapping[str, Mapping[str, list[str]]], n_panels: int
) -> dict[str, str]:
    """Say once for all panels what was noted of their axes."""
    notes = {}
    for kind, panels_of_note in by_kind.items():
        if kind == "log":
            panels = panels_of_note.get("", [])
            where = "" if len(panels) == n_panels else f": {', '.join(panels)}"
            notes[kind] = (
                "The value axis is logarithmic where means lie more than a factor 5 "
                "apart" + where
            )
        elif kind == "outside":
            texts = [
                f"{', '.join(panels)}: {note}"
                for note, panels in panels_of_note.items()
            ]
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
        f"Substitutes: {len(generated)} of {len(names)} data sets were generated in "
        f"place of files that are not available ({listed})."
    )
