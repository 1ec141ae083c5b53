"""From the tidy table of a figure to its panels, labels and caption."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pandas as pd

from pkm.analysis.figures.figure import FigureResult, FigureSpec
from pkm.analysis.figures.figure_data import (
    HIDDEN,
    FigureData,
    fill,
    make_figure_data,
    panel_names,
    print_table,
)
from pkm.analysis.render import forest, heatmap, lines
from pkm.analysis.render.hue_styles import Styles, hue_styles
from pkm.analysis.render.panel import Drawing, Panel
from pkm.analysis.tables.study import Study
from pkm.names import list_names

KINDS: dict[str, Callable[[pd.DataFrame, FigureSpec, Styles], Panel]] = {
    "lines": lines.prepare,
    "heatmap": heatmap.prepare,
    "forest": forest.prepare,
}
GENERATED = "-generated"
MAX_NAMES = 4
NOTHING = "No stored rows."
#: What the labels and titles of logarithmic axes end with.
LOG = " (log)"


def draw(
    study: Study,
    spec: FigureSpec,
) -> FigureResult:
    """Draw a declared figure from the rows of a study."""
    return render(make_figure_data(study, spec), spec)


def render(
    data: FigureData,
    spec: FigureSpec,
) -> FigureResult:
    """Lay a figure out from its table.

    Panels without rows are not drawn; `missing` names them.
    """
    table = data.table
    styles = hue_styles(table, spec, data.source_cells) if "hue" in table else {}
    labels = {hue: style.label for hue, style in styles.items()}
    caption = NOTHING
    if spec.kind == "table":
        caption = fill(spec.caption, data, spec)
    drawing = None
    if spec.kind != "table" and len(data.drawn):
        panels = tuple(_panels(data, spec, styles))
        if spec.share_y:
            # Panels with one axis of values are logarithmic together.
            log = any(panel.log for panel in panels)
            panels = tuple(replace(panel, log=log) for panel in panels)
        panels = tuple(_mark_logarithms(panels))
        drawing = Drawing(spec, panels, styles)
        texts = [fill(spec.caption, data, spec), _outside(panels)]
        caption = " ".join(filter(None, texts))

    return FigureResult(
        table.drop(columns=list(HIDDEN), errors="ignore"),
        print_table(data, spec, labels),
        caption,
        data.missing or (),
        substitutes(data.source_cells),
        drawing,
    )


def _panels(
    data: FigureData,
    spec: FigureSpec,
    styles: Styles,
) -> Iterator[Panel]:
    """Yield each panel that has rows, with its labels."""
    if spec.kind == "lines":
        data = replace(data, table=lines.split_curves(data.table))
    drawn = data.drawn
    for name in panel_names(drawn, spec):
        panel_spec = spec.for_panel(name) if name else spec
        table = drawn[drawn["panel"] == name] if name else drawn
        if styles:
            table = table[table["hue"].isin(list(styles))]
        panel = KINDS[spec.kind](table, panel_spec, styles)
        # A comparison of several cells has no delta of its own.
        cells = None if {"notion", "delta"} <= {*table} else data.source_cells
        of_panel = FigureData(table, cells, fields=data.fields)
        labels = {
            axis: fill([getattr(panel_spec, axis)], of_panel, panel_spec)
            for axis in ("x_label", "y_label")
        }
        yield replace(panel, title=panel_spec.title if name else "", **labels)


def _mark_logarithms(panels: Sequence[Panel]) -> Iterator[Panel]:
    """Yield panels whose logarithmic axes are marked: in their labels.

    Panels whose axis of values is logarithmic, unlike that of others, have it in their
    titles.
    """
    kind = panels[0].spec.kind
    values = "x_label" if kind == "forest" else "y_label"
    is_shared = all(panel.log for panel in panels)
    marked = values if is_shared else "title"
    for panel in panels:
        fields = {marked} if panel.log and kind != "heatmap" else set()
        if kind == "lines" and panel.spec.x_scale != "linear" and not panel.names:
            fields.add("x_label")
        changes = {field: _mark(getattr(panel, field)) for field in fields}
        yield replace(panel, **changes)


def _mark(label: str) -> str:
    """Mark a label as logarithmic, unless it says so itself."""
    return label if "logarithmic" in label else f"{label}{LOG}"


def _outside(panels: Sequence[Panel]) -> str:
    """Name the levels outside their panels; empty without any."""
    by_note: dict[str, list[str]] = {}
    for panel in panels if panels[0].spec.kind == "lines" else ():
        by_note.setdefault(lines.outside(panel), []).append(panel.spec.title)
    by_note.pop("", None)
    if not by_note:
        return ""
    texts = [f"{', '.join(titles)}: {note}" for note, titles in by_note.items()]
    return f"Outside their panels: {'; '.join(texts)}."


def substitutes(cells: pd.DataFrame) -> str:
    """Name the generated data sets that replace a file; empty without any."""
    names = sorted(set(cells.get("dataset", ())))
    generated = [name for name in names if str(name).endswith(GENERATED)]
    if not generated:
        return ""
    return (
        f"Substitutes: {len(generated)} of {len(names)} data sets were generated in "
        "place of files that are not available "
        f"({list_names(generated, MAX_NAMES)})."
    )
