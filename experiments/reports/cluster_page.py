"""The page of a clustering to publish: groups, sizes, profiles, what is promised.

All that it shows is released or public.
"""

import math
import re
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from pkm.analysis.figures.styles import CYCLE
from pkm.analysis.pages.html import embedded, render
from pkm.analysis.render.plot import save, style_path
from pkm.datasets.user_schema import Schema

STRONG = re.compile(r"\*\*(.+?)\*\*", re.DOTALL)
CHART_WIDTH = 7.0  # inches
PANELS_PER_ROW = 3
TICKS = 3  # of a panel
PANEL_HEIGHT = 1.9  # inches
LARGEST_CIRCLE = 2_000  # square points, of the largest cluster on the map


def build_page(model: Any, schema: Schema, smallest: float) -> str:
    """Build the page of a model that was fitted with a report.

    Parameters
    ----------
    model : estimator of a method
        With `cluster_sizes_`, `profile_` and the like.
    schema : Schema
        Of its columns.
    smallest : float
        Size of the smallest cluster that half of the fits find.

    Returns
    -------
    str
        HTML with its pictures inside.
    """
    statement = model.statement()
    groups = [f"Group {number}" for number in range(1, len(model.cluster_centers_) + 1)]
    charts = {
        "Sizes": draw_sizes(model, groups),
        "Which groups are alike": draw_map(model, groups),
        "Profiles": draw_profiles(model, schema, groups),
    }
    return render(
        "clusters.html.jinja",
        title=statement.curator.get("name", "Groups in the data"),
        groups=groups,
        rows=list(describe_centers(model, schema).T.items()),
        sizes=describe_sizes(model),
        charts={title: embedded(save(chart, "png")) for title, chart in charts.items()},
        width=round(CHART_WIDTH * matplotlib.rcParams["figure.dpi"]),
        smallest=round(smallest),
        statement=to_paragraphs(statement.to_markdown()),
        n_visible=int(model.profile_.is_visible.sum()),
        software=statement.software,
    )


def describe_sizes(model: Any) -> list[str]:
    """Write the sizes of clusters with their intervals."""
    intervals = model.cluster_sizes_interval_
    return [
        f"{size:,.0f} ({low:,.0f} to {high:,.0f})"
        for size, (low, high) in zip(model.cluster_sizes_, intervals, strict=True)
    ]


def describe_centers(model: Any, schema: Schema) -> pd.DataFrame:
    """Write centers in the table's words, with the interval of their means.

    Returns
    -------
    DataFrame of str
        A row for each column of the table, and a column for each cluster.
    """
    ends = np.moveaxis(model.centers_interval_, 2, 0)
    low, high = map(schema.inverse_transform, ends)
    centers = schema.inverse_transform(model.cluster_centers_)
    texts = centers.map(write_value)
    # The ends of a circle's two columns are no interval of a direction.
    for name in centers.columns.intersection(schema.get_feature_names_out()):
        texts[name] += " (" + low[name].map(write_value) + " to "
        texts[name] += high[name].map(write_value) + ")"
    return texts.T


def write_value(value: Any) -> str:
    """Write a value of a table for people.

    Examples
    --------
    >>> write_value(1234.5678), write_value(0.01234), write_value(61)
    ('1,235', '0.012', '61')
    """
    if isinstance(value, pd.Timestamp):
        return f"{value:%Y-%m-%d}"
    if not isinstance(value, float | np.floating):
        return str(value)
    digits = 0 if abs(value) >= 1000 else 3 if abs(value) < 1 else 1
    return f"{value:,.{digits}f}"


def draw_sizes(model: Any, groups: list[str]) -> Figure:
    """Draw sizes and their intervals, one row a group."""
    sizes = model.cluster_sizes_
    errors = np.abs(model.cluster_sizes_interval_.T - sizes)
    with matplotlib.rc_context(fname=style_path("bench")):
        figure = Figure((CHART_WIDTH, 0.8 + 0.3 * len(groups)))
        axes = figure.subplots()
        colors = [find_color(number) for number in range(len(groups))]
        axes.barh(groups, sizes, xerr=errors, color=colors, capsize=3)
        axes.invert_yaxis()
        axes.set_xlabel("records, with 95 % intervals of all together")
    return figure


def draw_map(model: Any, groups: list[str]) -> Figure:
    """Draw centers by their two main directions, with circles as large as groups."""
    lower, upper = model._fitted_bounds
    centers = 2 * model.cluster_centers_ / (np.asarray(upper) - lower)
    centers = centers - centers.mean(axis=0)
    directions = np.linalg.svd(centers, full_matrices=False)[2][:2]
    places = np.zeros((len(centers), 2))
    places[:, : len(directions)] = centers @ directions.T
    shares = model.cluster_sizes_ / max(model.cluster_sizes_.max(), 1.0)
    with matplotlib.rc_context(fname=style_path("bench")):
        figure = Figure((CHART_WIDTH, 0.6 * CHART_WIDTH))
        axes = figure.subplots()
        for number, (group, place) in enumerate(zip(groups, places, strict=True)):
            area = LARGEST_CIRCLE * shares[number]
            axes.scatter(*place, s=area, color=find_color(number), alpha=0.6)
            axes.annotate(group, tuple(place), ha="center", va="center")
        axes.margins(0.2)
        axes.set_aspect("equal", "datalim")
        axes.set_xticks([])
        axes.set_yticks([])
    return figure


def draw_profiles(model: Any, schema: Schema, groups: list[str]) -> Figure:
    """Draw the share of each group's records by the bins of a column.

    Groups that cannot be told from none are left out, and so are columns that are
    several on the schema's scale: their centers are shares.
    """
    profile = model.profile_
    words = schema.inverse_transform(profile.edges.T).map(write_value)
    places = list(schema.get_feature_names_out())
    names = [name for name in schema.columns if name in places]
    shares = profile.counts / np.maximum(model.cluster_sizes_, 1.0)[:, None, None]
    n_rows = max(1, math.ceil(len(names) / PANELS_PER_ROW))
    ticks = np.linspace(0, len(words) - 1, TICKS).round().astype(int)
    with matplotlib.rc_context(fname=style_path("bench")):
        size = (CHART_WIDTH, 0.5 + PANEL_HEIGHT * n_rows)
        figure = Figure(size, layout="constrained")
        panels = figure.subplots(n_rows, PANELS_PER_ROW, squeeze=False).ravel()
        for axes, name in zip(panels, names, strict=False):
            for number in np.flatnonzero(profile.is_visible).tolist():
                counts = shares[number, places.index(name)].clip(0)
                color = find_color(number)
                axes.stairs(counts, color=color, label=groups[number])
            # Bins are equally wide on the schema's scale.
            axes.set_xticks(ticks, words[name].iloc[ticks])
            axes.set_title(name)
        for axes in panels[len(names) :]:
            axes.set_axis_off()
        handles, labels = panels[0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def find_color(number: int) -> str:
    """Return the color of a group in all charts."""
    return CYCLE[number % len(CYCLE)][0]


def to_paragraphs(page: str) -> list[tuple[str, Markup]]:
    """Divide a statement in Markdown into blocks of HTML.

    Returns
    -------
    list of (str, Markup)
        The kind of a block (``h3``, ``p``, ``ul`` or ``table``), and its content.

    Examples
    --------
    >>> to_paragraphs("## Who" + chr(10) * 2 + "**All** & none")
    [('h3', Markup('Who')), ('p', Markup('<strong>All</strong> &amp; none'))]
    """
    blocks = []
    for block in page.strip().split("\n\n")[1:]:
        text = STRONG.sub(r"<strong>\1</strong>", str(escape(block)))
        kind = "p"
        if block.startswith("#"):
            kind = "h3"
            text = text.lstrip("# ")
        elif block.startswith("- "):
            kind = "ul"
            items = text.removeprefix("- ").split("\n- ")
            text = "".join([f"<li>{item}" for item in items])
        elif block.startswith("|"):
            kind = "table"
            # The second line of a table has dashes.
            header, _, *lines = text.splitlines()
            rows = [
                line.strip("| ").replace(" | ", "<td>") for line in (header, *lines)
            ]
            text = "".join([f"<tr><td>{row}" for row in rows])
        blocks.append((kind, Markup(text)))
    return blocks
