"""Pictures of figures by matplotlib: the same bytes for the same table."""

import hashlib
import io
import string
import textwrap
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.texts import plain_number
from pkm.analysis.render import forest, heatmap, lines
from pkm.analysis.render.hue_styles import BLACK, DIAMOND, artist, variant_styles
from pkm.analysis.render.panel import Drawing

STYLES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.mplstyle")))
#: Entries of a legend beside a figure; fewer are above it.
MANY_ENTRIES = 14
CURVES_AND_ROWS = {"lines": lines.draw, "forest": forest.draw}
PANELS = 0.8  # width of panels, as a share of theirs with the labels of their axes
LETTER = 0.55  # width of a letter, as a share of the font size
HANDLE = 7.5  # width of a legend entry without its label, in letters
ROW = 1.9  # height of a row of a forest, in font sizes
TILE = 2.6  # height of a row of a map, in font sizes
AROUND = 3.5  # height of labels and title of a panel, in font sizes
SINGLE = 0.62  # width of a figure with one panel of curves, as a share of others'
TALLER = 1.4  # factor of the height where one or two panels are side by side
#: Where the metadata have the digest of a specification.
SOURCE = "Source"
#: Keys of a figure that its picture does not show.
NOT_DRAWN = {
    "in_paper",
    "front_page",
    "on_page",
    "caption",
    "extra_columns",
    "text",
    *(name for name in FigureSpec.__annotations__ if name.startswith("print_")),
}
#: What a file does not say: the version of matplotlib, and the date.
METADATA: dict[str, dict] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
}
#: Decades of a logarithmic axis whose ticks are those of a linear one.
FEW_DECADES = 0.6
#: Ticks of a logarithmic axis within a decade, by decades of the axis.
LOG_STEPS = (
    (2.2, (1.0, 2.0, 5.0)),
    (3.5, (1.0, 3.0)),
    (np.inf, (1.0,)),
)


def style_path(style: str) -> Path:
    """Return the file of a style.

    Raises
    ------
    ValueError
        If there is no such style.
    """
    if style not in STYLES:
        raise ValueError(f"style={style!r} must be one of {', '.join(STYLES)}")
    return Path(__file__).with_name(f"{style}.mplstyle")


def plot(
    drawing: Drawing,
    style: str = "bench",
) -> Figure:
    """Draw a figure.

    Parameters
    ----------
    drawing : Drawing
    style : {"bench", "paper"}, default="bench"
        The style sheet: sizes of fonts and lines, and of the figure.

    Returns
    -------
    Figure
        In no window and unknown to pyplot; `save` makes files of it.
    """
    with matplotlib.rc_context(fname=style_path(style)):
        figure = Figure(figsize=_size(drawing))
        entries = legend_entries(drawing)
        width = figure.get_figwidth()
        if len(entries) > MANY_ENTRIES:
            # A legend at the side takes a third.
            width *= 2 / 3
        kind = drawing.spec.kind
        columns = drawing.columns
        n_panels = len(drawing.panels)
        n_rows = -(-n_panels // columns)
        grid = figure.subplots(n_rows, columns, squeeze=False).ravel()
        for axes in grid[n_panels:]:
            axes.remove()
        all_axes = list(grid[:n_panels])
        for index, axes in enumerate(all_axes):
            # Maps follow when their common scale of colors is known.
            if kind in CURVES_AND_ROWS:
                CURVES_AND_ROWS[kind](axes, drawing.panels[index])
            axes.set_title(_panel_title(index, drawing, width))
        if kind == "heatmap":
            _draw_maps(figure, all_axes, drawing)
        if kind == "forest":
            # Rows are of equal height in panels side by side.
            for first in range(0, n_panels, columns):
                row = all_axes[first : first + columns]
                lowest = max(max(axes.get_ylim()) for axes in row)
                for axes in row:
                    axes.set_ylim(bottom=lowest)
        if drawing.spec.share_y:
            lines.share_limits(all_axes, "x" if kind == "forest" else "y")
        for axes in all_axes:
            _format_values(axes, kind)
        _label_axes(figure, all_axes, drawing, width)
        _add_legend(figure, entries)
    return figure


def digest(
    spec: FigureSpec,
    style: str,
) -> str:
    """Hash what a figure draws by its keys, and the style sheet.

    A picture with another one in its metadata is older than its figure. Keys with their
    default do not count, so that a new key leaves the others' pictures as they are. Nor
    does code: golden records tell whether it draws the same.
    """
    plain = FigureSpec(spec.paper, spec.name, spec.title)
    drawn = {
        name: value
        for name, value in vars(spec).items()
        if name not in NOT_DRAWN and value != getattr(plain, name)
    }
    content = f"{drawn!r}\n{style_path(style).read_text()}"
    return hashlib.sha256(content.encode()).hexdigest()


def save(
    figure: Figure,
    file_format: str,
    spec_digest: str | None = None,
) -> bytes:
    """Return a figure as PNG or PDF, the same bytes for the same figure.

    `spec_digest` is that of its specification, for the metadata; see `digest`.
    """
    stream = io.BytesIO()
    metadata = METADATA[file_format] | ({SOURCE: spec_digest} if spec_digest else {})
    # Text stays text in a PDF.
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(
            stream,
            format=file_format,
            dpi="figure",
            metadata=metadata,
            bbox_inches="tight",
            pad_inches=0.02,
        )
    return stream.getvalue()


def _size(drawing: Drawing) -> tuple[float, float]:
    """Return width and height in inches; those of a style are of one row of panels.

    A width that the figure declares, such as that of a column of its venue, is taken
    in place of that of the style.
    """
    width, height = matplotlib.rcParams["figure.figsize"]
    letter = matplotlib.rcParams["font.size"] / 72
    columns = drawing.columns
    kind = drawing.spec.kind
    if kind == "lines" and columns == 1:
        width *= SINGLE
    height *= TALLER if columns < 3 else 1.0
    total = 0.0
    for first in range(0, len(drawing.panels), columns):
        row = drawing.panels[first : first + columns]
        if kind == "forest":
            n_rows = max(max(panel.names) + 1.4 for panel in row)
            height = (ROW * max(n_rows, 3) + AROUND) * letter
        elif kind == "heatmap":
            n_rows = max(len(heatmap.sides(panel)[1]) for panel in row)
            height = (TILE * max(n_rows, 3) + AROUND) * letter
        total += height
    return drawing.spec.width or width, total + 2 * letter


def _panel_title(
    index: int,
    drawing: Drawing,
    width: float,
) -> str:
    """Return the title of a panel in as many lines as it takes; empty without one.

    It has a letter where there are several.
    """
    panel = drawing.panels[index]
    title = panel.title
    if not title:
        return ""
    letters = string.ascii_lowercase
    if 1 < len(drawing.panels) <= len(letters):
        title = f"({letters[index]}) {title}"
    column = PANELS * width / drawing.columns
    return _wrap(title, column, "axes.titlesize")


def _wrap(
    text: str,
    width: float,
    size: str,
) -> str:
    """Break a text of a font size, by its parameter, into lines of `width` inches."""
    letter = LETTER * matplotlib.rcParams[size] / 72
    return textwrap.fill(text, max(int(width / letter), 8))


def _draw_maps(
    figure: Figure,
    all_axes: list[Axes],
    drawing: Drawing,
) -> None:
    """Draw maps; those of a `color_group` have one scale and one bar."""
    for indices in drawing.color_groups():
        panels = [drawing.panels[index] for index in indices]
        scale = heatmap.norm(panels)
        members = [all_axes[index] for index in indices]
        for axes, panel in zip(members, panels, strict=True):
            image = heatmap.draw(axes, panel, scale)
        largest = max(panel.table["value"].max() for panel in panels)
        # A tip at the top says that some values are above the scale.
        is_cut = largest > scale.vmax
        bar = figure.colorbar(
            image,
            ax=members,
            label=panels[0].spec.color_label,
            aspect=30,
            extend="max" if is_cut else "neither",
        )
        bar.outline.set_visible(False)
        bar.ax.yaxis.set_major_formatter(plain_number)
        bar.ax.minorticks_off()


def _format_values(
    axes: Axes,
    kind: str,
) -> None:
    """Put round numbers at the ticks of the axis of values."""
    if kind == "heatmap":
        return
    axis = axes.xaxis if kind == "forest" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    decades = 0.0
    if axis.get_scale() == "log":
        decades = np.log10(high / low)
        steps = next(steps for most, steps in LOG_STEPS if decades < most)
        axis.set_major_locator(LogLocator(subs=steps, numticks=10))
        axis.set_minor_locator(NullLocator())
    if axis.get_scale() == "linear" or 0 < decades < FEW_DECADES:
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(plain_number)


def _label_axes(
    figure: Figure,
    all_axes: list[Axes],
    drawing: Drawing,
    width: float,
) -> None:
    """Label the axes in a width: once for the figure what all panels share."""
    panels = drawing.panels
    size = matplotlib.rcParams["axes.labelsize"]
    x_labels = {panel.x_label for panel in panels}
    y_labels = {panel.y_label for panel in panels}
    shared_x = len(x_labels) == 1 < len(panels)
    shared_y = len(y_labels) == 1 < len(panels)
    for index, (axes, panel) in enumerate(zip(all_axes, panels, strict=True)):
        if not shared_x:
            label = _wrap(panel.x_label, width / drawing.columns, "axes.labelsize")
            axes.set_xlabel(label)
        before = panels[index - 1] if index % drawing.columns else None
        # Panels of a row that share a label have it once.
        if not shared_y and (before is None or panel.y_label != before.y_label):
            axes.set_ylabel(panel.y_label)
        if panel.spec.kind == "forest" and before and panel.names == before.names:
            axes.tick_params(axis="y", labelleft=False)
    if shared_x:
        label = _wrap(*x_labels, width, "axes.labelsize")
        figure.supxlabel(label, size=size)
    if shared_y:
        figure.supylabel(*y_labels, size=size)


# Legend


def legend_entries(drawing: Drawing) -> dict[str, dict]:
    """Return the legend: hues, styles, reference lines, reported values."""
    spec = drawing.spec
    if spec.kind == "heatmap":
        return {}
    table = pd.concat([panel.table for panel in drawing.panels], ignore_index=True)
    is_forest = spec.kind == "forest"
    is_level = table["row" if is_forest else "x"].isna()
    level_hues = is_level.groupby(table["hue"], observed=True).all()
    entries: dict[str, dict] = {}
    for hue, style in drawing.styles.items():
        # Rows that are hues are named at the left.
        is_row = is_forest and spec.row == spec.hue
        if is_row or not style.label or hue not in level_hues:
            continue
        line = dict(style.line)
        if level_hues[hue]:
            line["marker"] = None
        elif hue in spec.stacked:
            line |= {
                "marker": "s",
                "markerfacecolor": line["color"],
                "linestyle": "",
            }
        elif is_forest:
            line = forest.in_method_color(line, BLACK) | {"linestyle": ""}
        entries[style.label] = line
    if spec.style:
        for variant in variant_styles(table, spec).values():
            entries[variant["label"]] = {"color": BLACK, "marker": "o"} | variant
    for panel in drawing.panels:
        for entry in panel.spec.references:
            if entry.get("label"):
                entries[entry["label"]] = lines.reference_line(entry)
    if "reported" in table and table["reported"].notna().any():
        entries["reported"] = DIAMOND
    return entries


def _add_legend(
    figure: Figure,
    entries: dict[str, dict],
) -> None:
    """Add the legend above a figure, or beside it where it is long."""
    if not entries:
        return
    # Lines are whole and opaque there.
    whole = {
        "alpha": None,
        "zorder": 2,
        "clip_on": True,
        "markevery": None,
    }
    handles = [Line2D([], [], **artist(line | whole)) for line in entries.values()]
    where: dict = {"loc": "outside right upper"}
    if len(entries) <= MANY_ENTRIES:
        columns = legend_columns(list(entries), figure.get_figwidth())
        where = {"loc": "outside upper center", "ncols": columns}
    figure.legend(handles, list(entries), **where)


def legend_columns(
    labels: list[str],
    width: float,
) -> int:
    """Return how many legend columns fit into `width` inches."""
    letter = LETTER * matplotlib.rcParams["font.size"] / 72
    for columns in range(len(labels), 1, -1):
        # As matplotlib fills them: each column has successive entries.
        widest = [max(map(len, column)) for column in np.array_split(labels, columns)]
        if letter * sum(length + HANDLE for length in widest) <= width:
            return columns
    return 1
