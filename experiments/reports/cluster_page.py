"""The page of a clustering to publish: groups, sizes, profiles, what is promised.

All that it shows is released or public.
"""

import itertools
import math
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from markdown_it import MarkdownIt
from markupsafe import Markup
from matplotlib.figure import Figure

from pkm.analysis.figures.styles import CYCLE
from pkm.analysis.pages.html import PIXELS_PER_INCH, embedded, render
from pkm.analysis.render.plot import save, style_path
from pkm.datasets.user_schema import Schema

CHART_WIDTH = 7.0  # inches
PANELS_PER_ROW = 3
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
    n_groups = len(model.cluster_centers_)
    groups = [f"Group {number + 1}" for number in range(n_groups)]
    with matplotlib.rc_context(fname=style_path("bench")):
        charts = {
            "Sizes": draw_sizes(model, groups),
            "Which groups are alike": draw_map(model, groups),
            "Profiles": draw_profiles(model, schema, groups),
        }
    images = [embedded(save(chart, "png")) for chart in charts.values()]
    centers = describe_centers(model, schema)
    return render(
        "clusters.html.jinja",
        title=statement.curator.get("name", "Groups in the data"),
        groups=groups,
        sizes=describe_sizes(model),
        rows=list(centers.items()),
        charts=list(zip(charts, images, strict=True)),
        width=round(CHART_WIDTH * PIXELS_PER_INCH),
        unread=describe_unread(model),
        smallest=round(smallest),
        statement=to_html(statement.to_markdown()),
    )


def describe_sizes(model: Any) -> list[str]:
    """Write the sizes of clusters with their intervals."""
    table = pd.DataFrame(model.cluster_sizes_interval_, columns=["low", "high"])
    table["size"] = model.cluster_sizes_
    text = "{size:,.0f} ({low:,.0f} to {high:,.0f})"
    return [text.format_map(row) for row in table.to_dict("records")]


def describe_unread(model: Any) -> str:
    """Say how many records are in no group, if noise does not hide them.

    A record is in no group if a cell of it is missing or cannot be read.
    """
    n_read = float(model.cluster_sizes_.sum())
    n_unread = model.n_ - n_read
    if n_unread <= len(model.cluster_sizes_) * model.min_visible_size_:
        return ""
    return (
        f"The groups hold about {n_read:,.0f} of {model.n_:,} records. Of the others a "
        "cell is missing or cannot be read."
    )


def describe_centers(model: Any, schema: Schema) -> pd.DataFrame:
    """Write centers in the table's words, with the interval of their means.

    Returns
    -------
    DataFrame of str
        A row for each cluster.
    """
    low, high = np.moveaxis(model.centers_interval_, 2, 0)
    centers, low, high = [
        schema.inverse_transform(places).map(write_value)
        for places in (model.cluster_centers_, low, high)
    ]
    # The ends of a circle's two columns are no interval of a direction.
    names = centers.columns.intersection(schema.get_feature_names_out())
    centers[names] += " (" + low[names] + " to " + high[names] + ")"
    return centers


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
    if abs(value) < 1:
        return f"{value:.3f}"
    return f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def draw_sizes(model: Any, groups: list[str]) -> Figure:
    """Draw sizes and their intervals, one row a group."""
    sizes = model.cluster_sizes_
    errors = np.abs(model.cluster_sizes_interval_.T - sizes)
    height = 0.8 + 0.3 * len(groups)
    figure = Figure((CHART_WIDTH, height))
    axes = figure.subplots()
    axes.barh(
        groups,
        sizes,
        xerr=errors,
        color=find_colors(groups),
        capsize=3,
    )
    axes.invert_yaxis()
    axes.set_xlabel("records, with 95 % intervals of all together")
    return figure


def draw_map(model: Any, groups: list[str]) -> Figure:
    """Draw centers by their two main directions, with circles as large as groups."""
    centers = model.cluster_centers_ - model.cluster_centers_.mean(axis=0)
    _, _, directions = np.linalg.svd(centers, full_matrices=False)
    places = centers @ directions[:2].T
    if places.shape[1] == 1:
        places = np.column_stack([places, np.zeros(len(places))])

    sizes = model.cluster_sizes_
    largest = max(sizes.max(), 1.0)
    figure = Figure((CHART_WIDTH, 0.6 * CHART_WIDTH))
    axes = figure.subplots()
    axes.scatter(
        *places.T,
        s=LARGEST_CIRCLE * sizes / largest,
        color=find_colors(groups),
        alpha=0.6,
    )
    for group, place in zip(groups, places.tolist(), strict=True):
        axes.annotate(
            group,
            place,
            ha="center",
            va="center",
        )
    axes.margins(0.2)
    axes.set_aspect("equal", "datalim")
    axes.set_xticks([])
    axes.set_yticks([])
    return figure


def draw_profiles(model: Any, schema: Schema, groups: list[str]) -> Figure:
    """Draw the share of each group's records by the bins of a column.

    Groups that noise hides are left out. So are flags, and columns of the table that
    become several columns on the schema's scale: these have no range for bins.
    """
    profile = model.profile_
    words = schema.inverse_transform(profile.edges.T).map(write_value)
    places = list(schema.get_feature_names_out())
    names = [
        name
        for name, rule in schema.columns.items()
        if name in places and rule["kind"] != "flag"
    ]
    sizes = np.maximum(model.cluster_sizes_, 1.0)
    visible = np.flatnonzero(profile.is_visible)
    colors = find_colors(groups)
    n_rows = math.ceil(max(len(names), 1) / PANELS_PER_ROW)
    height = 0.5 + PANEL_HEIGHT * n_rows
    figure = Figure((CHART_WIDTH, height), layout="constrained")
    grid = figure.subplots(
        n_rows,
        PANELS_PER_ROW,
        squeeze=False,
    )
    panels = list(grid.flat)
    for axes, name in zip(panels, names, strict=False):
        counts = profile.counts[:, places.index(name)]
        for group in visible.tolist():
            axes.stairs(
                counts[group].clip(0) / sizes[group],
                color=colors[group],
                label=groups[group],
            )
        # Bins are equally wide on the schema's scale.
        last = len(words) - 1
        ticks = [0, last // 2, last]
        axes.set_xticks(ticks, words[name].iloc[ticks])
        axes.set_title(name)
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=4,
        )
    return figure


def find_colors(groups: list[str]) -> list[str]:
    """Return the color of each group, in all charts."""
    return [
        color for _, (color, _) in zip(groups, itertools.cycle(CYCLE), strict=False)
    ]


def to_html(statement: str) -> Markup:
    """Write a statement in Markdown as HTML, without its title, below a heading.

    Examples
    --------
    >>> page = ["# Title", "## Who", "**All** & none"]
    >>> print(to_html((chr(10) * 2).join(page)), end="")
    <h3>Who</h3>
    <p><strong>All</strong> &amp; none</p>
    """
    _, text = statement.split("\n", maxsplit=1)
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    html = markdown.render(text.replace("\n## ", "\n### "))
    # Wide tables scroll by themselves.
    html = html.replace("<table>", '<div class="scroll"><table>')
    return Markup(html.replace("</table>", "</table></div>"))
