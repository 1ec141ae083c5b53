"""Panels of curves over any quantity, with bands, and the tables behind them."""

import string

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from pkm.analysis.figures.panels import NO_DATA, log_axis, plain_number, say, wants_log
from pkm.analysis.figures.style import INK, look
from pkm.analysis.findings import Context, MissingRows
from pkm.analysis.planted import curve
from pkm.analysis.tables import column_statistics, standard_deviations

_EMPTY = Context({}, pd.DataFrame(columns=["sweep", "reason"]))
COLUMNS = ["method", "dataset", "x", "value", "low", "high", "seeds"]
TICKS = 8  # of an axis, at most
_APART = 0.05  # of the height of a panel, between the texts at the ends of curves


def spread(panel, along, errors=3.0, cost=True):
    """Mean of every cell with a band of so many standard errors; the cost (times n) unless told otherwise.

    Returns
    -------
    DataFrame
        `COLUMNS`; ``x`` is NaN for cells that lack the quantity.
    """
    if not len(panel.cells):
        return pd.DataFrame(columns=COLUMNS)
    scale = panel.cells["n"].to_numpy(dtype=float) if cost else 1.0
    mean, _, _, seeds = column_statistics(panel.values)
    band = np.nan_to_num(errors * standard_deviations(panel.values) / np.sqrt(np.maximum(seeds, 1)))
    x = pd.to_numeric(panel.cells[along]) if along in panel.cells else np.nan
    table = panel.cells[["method", "dataset"]].assign(x=x, value=mean * scale)
    return table.assign(low=(mean - band) * scale, high=(mean + band) * scale, seeds=seeds)


def curves(study, selectors, **check):
    """Curves of `pkm.analysis.planted.curve`, one for each named selector; those without rows are left out.

    Returns
    -------
    DataFrame, dict
        `COLUMNS` with the selectors' names as methods, bands being 95 % intervals; and the curves by name.
    """
    parts, found = [], {}
    for name, selector in selectors.items():
        try:
            found[name] = line = curve(
                study, check | {"places": check.get("places", 1)}, _EMPTY, selector
            )
        except MissingRows:
            continue
        table = line.evidence().rename(columns={check["along"]: "x"}).assign(method=name)
        counts = np.full(len(table), line.seeds)
        # With one or two seeds an interval may miss its own value.
        low, high = np.fmin(table["low"], table["value"]), np.fmax(table["high"], table["value"])
        parts.append(table.assign(low=low, high=high, seeds=counts)[COLUMNS])
    return (pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)), found


def most_common(study, sweep, column):
    """The value that most cells of a sweep have, as a condition on cells; no condition without rows."""
    values = study.cells.loc[study.cells["sweep"] == sweep, column]
    return {column: values.mode().iloc[0].item()} if len(values) else {}


def line_of(method, known=(), **changes):
    """Keywords of a method's curve."""
    keywords = look(method, known=known).line() | {"markersize": 4.5}
    return keywords | changes


def draw(axes, table, styles, *, log_x=True, log_y=None, x_label="", y_label="", backwards=False):
    """Draw the curves of a table; methods without an x are level lines. Words where there is nothing.

    Parameters
    ----------
    axes : Axes
    table : DataFrame
        `COLUMNS`.
    styles : dict
        Keywords by method; others are not drawn.
    log_x : bool
    log_y : bool, optional
        By default where positive means lie far apart.
    x_label, y_label : str
    backwards : bool
        Whether x falls from left to right.

    Returns
    -------
    DataFrame
        The part of the table that is drawn.
    """
    table = table[table["method"].isin(list(styles)) & np.isfinite(table["value"].astype(float))]
    grid = np.unique(table["x"].dropna().to_numpy(dtype=float))
    if not len(table) or not grid.size:
        say(axes, NO_DATA)
        return table.iloc[:0]
    log_y = wants_log(table["value"].to_numpy()) if log_y is None else log_y
    floor = table.loc[table["value"] > 0, "value"].min() / 3
    for method, keywords in styles.items():
        mine = table[table["method"] == method].sort_values("x")
        if not len(mine):
            continue
        if mine["x"].isna().all():
            axes.axhline(mine["value"].iloc[0], **(keywords | {"marker": None, "zorder": 2}))
            continue
        x, value, low, high = (
            mine[name].to_numpy(dtype=float) for name in ("x", "value", "low", "high")
        )
        axes.plot(x, value, **keywords)
        bottom = np.maximum(low, floor) if log_y else low
        axes.fill_between(
            x, bottom, np.maximum(high, bottom), color=keywords["color"], alpha=0.15, linewidth=0
        )
    if log_x:
        axes.set_xscale("log")
        ticks = grid if grid.size <= TICKS else grid[:: -(-grid.size // TICKS)]
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(short_number))
    if log_y and (table["value"] > 0).any():
        axes.set_yscale("log")
        low, high = table.loc[table["value"] > 0, "value"].min(), table["value"].max()
        axes.set_ylim(low / 1.6, max(high, 1.2 * low) * 1.6)
        log_axis(axes.yaxis)
    else:
        values = table["value"].to_numpy(dtype=float)
        low, high = min(0.0, values.min()), values.max()
        axes.set_ylim(low - 0.02 * (high - low), high + 0.18 * max(high - low, 1e-12))
        axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
        axes.locator_params(axis="y", nbins=5)
    if backwards:
        axes.invert_xaxis()
    axes.set_xlabel(x_label, fontsize=9)
    axes.set_ylabel(y_label, fontsize=9)
    axes.tick_params(labelsize=8)
    return table


def end_labels(axes, labels, room=1.6):
    """Write texts at the ends of curves, moved apart where they would cover each other.

    Parameters
    ----------
    axes : Axes
        With its final limits on a logarithmic or linear y axis.
    labels : list of (x, y, text, color)
    room : float
        Factor by which a logarithmic x axis is lengthened for them.
    """
    left, right = axes.get_xlim()
    axes.set_xlim(left, right * room)
    places = []
    for x, y, text, color in sorted(labels, key=lambda label: label[1]):
        at = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))[1]
        at = max(at, places[-1] + _APART) if places else at
        places.append(at)
        axes.annotate(
            text, (x, at), xycoords=("data", "axes fraction"), xytext=(6, 0), textcoords="offset points", va="center",
            fontsize=8, color=color,
        )  # fmt: skip


def short_number(value, _=None):
    """Format a tick: thousands as k, millions as M.

    Examples
    --------
    >>> [short_number(value) for value in (0.05, 8, 30000, 1e6)]
    ['0.05', '8', '30k', '1M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return plain_number(value)


def panels(count, columns, width=3.1, height=2.6, legend=0.8):
    """Figure with so many axes and room for a legend above them."""
    lines = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * lines + legend), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes in grid.flat[count:]:
        axes.set_axis_off()
    return figure, list(grid.flat[:count])


def head(axes, place, text):
    """Letter and title of a panel."""
    axes.set_title(f"({string.ascii_lowercase[place]}) {text}", color=INK, fontsize=10)


def legend(figure, styles, drawn, columns=None, extra=()):
    """One legend for all panels, of the methods that are drawn somewhere."""
    here = [name for name in styles if name in set(drawn)]
    handles = [Line2D([], [], **styles[name]) for name in here] + list(extra)
    if handles:
        width = figure.get_figwidth()
        longest = max(len(handle.get_label()) for handle in handles)
        columns = columns or max(1, min(len(handles), int(width / (0.085 * longest + 0.75))))
        figure.legend(
            handles=handles,
            loc="outside upper center",
            ncols=columns,
            fontsize=9.5,
            columnspacing=1.3,
        )


def together(parts):
    """Join the tables of panels (name to table) under a column `panel`."""
    known = [table.assign(panel=name) for name, table in parts.items() if len(table)]
    if not known:
        return pd.DataFrame(columns=["panel", *COLUMNS])
    table = pd.concat(known, ignore_index=True)
    return table[["panel", *[name for name in table if name != "panel"]]]


def seeds_of(table):
    """How many seeds there are behind a table, in words."""
    if not len(table):
        return "no seeds"
    low, high = int(table["seeds"].min()), int(table["seeds"].max())
    return f"{high} seeds" if low == high else f"{low} to {high} seeds"


def in_print(table, keys=("panel",), label=None):
    """Lay the curves out for print, one line per panel and x, one column per method."""
    if not len(table):
        return pd.DataFrame(columns=[*keys, "x"])
    texts = [number(value) for value in table["value"]]
    names = table["method"].map(label or (lambda name: look(name).label))
    shown = table.assign(
        text=texts, name=names, x=["–" if pd.isna(x) else f"{x:g}" for x in table["x"]]
    )
    wide = shown.pivot_table(
        index=[*keys, "x"],
        columns="name",
        values="text",
        aggfunc="first",
        sort=False,
        observed=True,
    )
    return wide.fillna("–").reset_index().rename_axis(columns=None)


def number(value):
    """Three digits, a dash for nothing."""
    return f"{value:.3g}" if np.isfinite(value) else "–"
