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


def render(data: FigureData, spec: FigureSpec) -> FigureResult:
    """Draw a figure from its table.

    Panels without rows are not drawn; `missing` names them.
    """
    table = data.table
    styles = hue_styles(table, spec, data.source) if "hue" in table else {}
    labels = {hue: style.label for hue, style in styles.items()}
    fields = caption_fields(data, spec)
    notes: dict[str, str] = {}
    caption = [NOTHING]
    vega = None
    if spec.kind != "table" and len(data.drawn):
        vega, notes = _draw_panels(data, spec, styles, fields)
        fields.update(notes)
    if spec.kind == "table" or len(data.drawn):
        caption = sentences(spec.caption, fields)
    # Notes that the caption does not place follow it.
    named = "".join(spec.caption)
    caption += [text for name, text in notes.items() if f"{{{name}}}" not in named]

    hidden = set(HIDDEN)
    if not spec.frame:
        hidden = hidden.union(TOOLTIP).difference(spec.extra_columns)
    return FigureResult(
        table.drop(columns=list(hidden.intersection(table))),
        print_table(data, spec, labels),
        " ".join(caption),
        data.missing or (),
        substitutes(data.source),
        vega,
    )


def _draw_panels(
    data: FigureData, spec: FigureSpec, styles: Styles, fields: Mapping[str, Any]
) -> tuple[Json, dict[str, str]]:
    """Draw each panel that has rows; return the chart and notes for the caption."""
    drawn = data.drawn
    names = panel_names(drawn, spec)
    specs = [spec.part(name) if name else spec for name in names]
    tables = [drawn[drawn["panel"] == name] if name else drawn for name in names]
    draw_panel = KINDS[spec.kind]
    panels = [
        draw_panel(table, panel_spec, styles)
        for table, panel_spec in zip(tables, specs, strict=True)
    ]
    if spec.share_y:
        module = forest if spec.kind == "forest" else lines
        panels = module.share_values(panels)
    if spec.kind == "heatmap":
        panels = heatmap.colored(panels, tables, specs)

    titles = [("", "")] * len(panels)
    if not spec.share_labels:
        titles = [
            _axis_titles(table, panel_spec, data)
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
        title = ""
        if names[index]:
            title = _title(index, specs[index].title, len(panels))
        x = replace(panel.x, title=x_title)
        y = replace(panel.y, title=y_title)
        panels[index] = replace(panel, x=x, y=y, title=title)

    shared = ("", "")
    if spec.share_labels:
        shared = (_text(spec.x_label, fields), _text(spec.y_label, fields))
    vega = chart(panels, spec, _entries(drawn, spec, styles), *shared)
    by_kind: dict[str, dict[str, list[str]]] = {}
    for panel, panel_spec in zip(panels, specs, strict=True):
        for kind, note in panel.notes.items():
            titles_of_note = by_kind.setdefault(kind, {}).setdefault(note, [])
            titles_of_note.append(panel_spec.title)
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
    table: pd.DataFrame, spec: FigureSpec, data: FigureData
) -> tuple[str, str]:
    """Return the titles of the axes of a panel."""
    cells = None if "notion" in table else data.source
    fields = caption_fields(FigureData(table, cells, fields=data.fields), spec)
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
        is_row = spec.kind == "forest" and spec.row == spec.hue
        if is_row or not style.label or hue not in present.groups:
            continue
        is_level = present.get_group(hue)[place].isna().all()
        entries.append((style.label, _legend_line(hue, style, spec, is_level)))
    if spec.style:
        for variant in variant_styles(drawn, spec).values():
            entries.append((variant["label"], {"color": BLACK} | variant))
    specs = [spec.part(name) for name in panel_names(drawn, spec) if name] or [spec]
    for panel_spec in specs:
        for entry in panel_spec.references:
            if entry.get("label"):
                entries.append((entry["label"], reference_line(entry)))
    if "reported" in drawn and drawn["reported"].notna().any():
        entries.append((REPORTED, DIAMOND))
    return list(dict(entries).items())


def _legend_line(
    hue: Any, style: HueStyle, spec: FigureSpec, is_level: bool
) -> dict[str, Any]:
    """Return how a hue is drawn in the legend: a level line has no marker."""
    level = {"marker": None} if is_level else {}
    if spec.kind != "forest":
        return style.line | level
    line = forest.replace_method_color(style.line, BLACK)
    if hue in spec.stacked:
        return line | {
            "linestyle": "",
            "marker": "s",
            "markerfacecolor": style.color,
        }
    return line | (level or {"linestyle": ""})


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
