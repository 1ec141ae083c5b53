"""Data of a figure: stored rows as a tidy table, the caption and the printed table.

The table has one row per value: `panel`, `hue` (curve or color), `style`, `row` and
`group` (of heat maps and forests), `x`, `value` with its interval `low` to `high`,
`half_width`, `median`, `deviation`, `seeds` and `left_out` (values that are not
finite), and columns of the cell.
"""

import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from pkm.analysis.claims.claim import adapt_study, read_claims
from pkm.analysis.claims.comparisons import divide_sides, find_comparisons
from pkm.analysis.claims.expressions import with_columns
from pkm.analysis.claims.findings import Context, MissingRows
from pkm.analysis.claims.reported import list_reported_cells, with_means
from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.figures.styles import MethodStyles
from pkm.analysis.figures.texts import (
    DASH,
    count_text,
    epsilon_label,
    find_unstored,
    interval_text,
    not_run_texts,
    short_exponents,
)
from pkm.analysis.paper_files import refuse_unknown
from pkm.analysis.tables.statistics import (
    column_statistics,
    percentile_interval,
    resampled_means,
)
from pkm.analysis.tables.study import SeedMatrix, Study, matches, raw_units
from pkm.names import suggestion

CHANNELS = ("panel", "group", "row", "hue", "style", "x")
STATISTICS = (
    "value",
    "low",
    "high",
    "half_width",
    "median",
    "deviation",
    "seeds",
    "left_out",
)
CELL_COLUMNS = (
    "sweep",
    "metric",
    "dataset",
    "n",
    "d",
    "k",
    "method",
    "variant",
    "epsilon",
    "delta",
    "epsilon_spent",
    "cell",
)
#: Columns that styles and the label of an epsilon axis need; not written to files.
HIDDEN = ("label", "color", "marker", "notion", "adjacency", "unit", "trust")
#: Fields of captions and labels, besides columns.
FIELDS = ("sets", "seeds", "runs", "left_out", "epsilon_axis", "privacy")
MOST_COMMON = "most_common"
MAX_VALUES = 8  # that a caption lists one by one


@dataclass(frozen=True)
class FigureData:
    """The tidy table of a figure, and what its caption and print need besides.

    Attributes
    ----------
    table : DataFrame
        See the module.
    cells : DataFrame, optional
        The cells behind it, from which styles, the label of an epsilon axis and the
        list of generated data sets come; by default `table`.
    missing : tuple of str, optional
        What is not shown, and why; by default the panels and curves without rows.
    fields : mapping
        Further fields of the caption and of axis labels.
    printed : DataFrame, optional
        What `print_lines` of the specification print in place of `table`.
    """

    table: pd.DataFrame
    cells: pd.DataFrame | None = None
    missing: tuple[str, ...] | None = None
    fields: Mapping = field(default_factory=dict)
    printed: pd.DataFrame | None = None

    @property
    def source_cells(self) -> pd.DataFrame:
        """The cells behind the table."""
        return self.table if self.cells is None else self.cells

    @property
    def drawn(self) -> pd.DataFrame:
        """The rows that have a value; all rows of a table without the column."""
        if "value" not in self.table:
            return self.table
        return self.table[np.isfinite(self.table["value"].astype(float))]


def make_figure_data(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Return what a figure shows of a study."""
    study = adapt_study(study, spec.paper)
    make = spec.function(spec.frame) if spec.frame else select
    data = make(study, spec)
    if spec.reported:
        # The means that the paper reports of the first metric, by data set and method.
        entries = read_claims(spec.paper)["reported"]
        refuse_unknown(spec.reported, entries, f"{spec}: reported")
        cells = []
        for name in spec.reported:
            cells += list_reported_cells(entries[name])
        table = with_means(data.table, cells, spec.metric[0])
        data = replace(data, table=table)
    if len(data.table):
        table = data.table
        if spec.transform:
            table = spec.function(spec.transform)(table)
        data = replace(data, table=with_columns(table, spec.columns))
    if data.missing is None:
        data = replace(data, missing=find_missing(data, spec))
    return data


# Selection


def select(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Select the rows of all panels: one selection cut by `panel`, or one a panel."""
    is_by_panel = spec.panels and not spec.panel
    tables = []
    cells = []
    missing = []
    for name in spec.panels if is_by_panel else [""]:
        panel_spec = spec.for_panel(name) if name else spec
        select_rows = compare if panel_spec.compare else summarize
        data = select_rows(study, panel_spec)
        tables.append(data.table.assign(panel=name) if name else data.table)
        cells.append(data.source_cells)
        # What rows cannot show.
        missing += data.missing or ()
    data = FigureData(_concat(tables), _concat(cells))
    missing = dict.fromkeys([*find_missing(data, spec), *missing])
    return replace(data, missing=tuple(missing))


def compare(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Compare cells as a claim does: `compare` has keys of a check.

    Left sides are by default the curves or methods of the figure. A comparison has the
    columns that all cells of its left side share, `datasets`, how many are behind each
    side, and `grid`, the epsilons of an area.
    """
    check = {
        "sweep": list(spec.sweep),
        "metric": spec.metric[0],
        "left": [*spec.curves.values()] or spec.methods,
        **spec.compare,
    }
    try:
        comparisons = find_comparisons(study, check, Context())
    except MissingRows:
        cells = study.cells.iloc[:0]
        empty = cells.assign(
            value=[],
            low=[],
            high=[],
        )
        return FigureData(assign_channels(empty, spec), cells)
    bootstrap = divide_sides(comparisons, check)
    low, high = percentile_interval(bootstrap.values)

    # Columns that differ within the left side of a comparison say nothing of it.
    cells = comparisons.matrix.cells
    left = comparisons.rows["left"]
    numbers = comparisons.rows["comparison"].to_numpy()
    described = cells.filter(CELL_COLUMNS).iloc[left]
    sides = described.groupby(numbers)
    varying = described.columns[sides.nunique().max() > 1]

    matrix = study.matrix(spec.sweep, spec.metric[0])
    table = comparisons.first_cells(cells.columns.difference(varying, sort=False))
    table = table.assign(
        value=bootstrap.values[0],
        low=low,
        high=high,
        half_width=(high - low) / 2,
        seeds=comparisons.shared_seeds,
        datasets=sides.size(),
        grid=values_text(matrix.cells["epsilon"]),
    )
    table = table[matches(table, _selector(table, spec))]
    used = sorted({*left, *comparisons.rows["right"]})
    is_missing = comparisons.missing and "left" in spec.compare
    missing = (comparisons.missing,) if is_missing else ()
    return FigureData(assign_channels(table, spec), cells.iloc[used], missing)


def _selector(
    table: pd.DataFrame,
    spec: FigureSpec,
) -> dict[str, Any]:
    """Return the values of columns that `where` asks for."""
    return {
        name: table[name].mode().tolist() if value == MOST_COMMON else value
        for name, value in spec.where.items()
    }


def summarize(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Summarize the cells that a specification selects.

    `missing` names the methods that may not share an axis with the others.
    """
    tables = []
    missing: tuple[str, ...] = ()
    for metric in spec.metric:
        matrix = study.matrix(spec.sweep, metric)
        if spec.value == "raw":
            matrix = raw_units(matrix)
        table = matrix.cells.assign(metric=metric, **statistics(matrix, spec))

        selector = _selector(table, spec)
        if spec.methods:
            selector["method"] = spec.methods
        table = table[matches(table, selector)]
        if not (spec.methods or spec.curves):
            # Others than the most common adjacency, unit and trust may not share an
            # axis.
            private = table[table["notion"] != "none"]
            models = private["adjacency"].str.cat(private[["unit", "trust"]], sep="/")
            common = models.mode().iloc[:1]
            is_other = ~models.isin(common)
            others = sorted(set(private["method"][is_other]))
            missing = tuple(
                f"{label}: another adjacency, unit or trust model, not on this axis"
                for label in map(MethodStyles(table).label, others)
            )
            table = table[~table["method"].isin(others)]
        tables.append(table)
    return FigureData(assign_channels(_concat(tables), spec), missing=missing)


def assign_channels(
    table: pd.DataFrame,
    spec: FigureSpec,
) -> pd.DataFrame:
    """Add the columns `CHANNELS`, by which each row of a table is drawn.

    Raises
    ------
    ValueError
        If the specification names a column that its rows do not have.
    """
    channels = {name: getattr(spec, name) for name in ("x", "row", "group", "style")}
    channels = {name: column for name, column in channels.items() if column}
    used = [*channels.values(), spec.hue, *spec.panel]
    if len(table):
        refuse_unknown(used, table, f"{spec}: column")
    table = table.reindex(columns=list(dict.fromkeys([*table, *used])))

    table = table.assign(hue=table[spec.hue])
    if spec.curves:
        curves = []
        for name, cells in spec.curves.items():
            curve = table[matches(table, cells)]
            curves.append(curve.assign(hue=name))
        table = _concat(curves)
    places = {name: table[column] for name, column in channels.items()}
    table = table.assign(**places).infer_objects()
    if spec.kind == "lines":
        table["x"] = pd.to_numeric(table["x"], errors="coerce")
    if len(spec.panel) == 1:
        table["panel"] = table[spec.panel[0]]
    elif spec.panel:
        # The values of several columns, in the order of the columns.
        names = [table[column].map(spec.format_name) for column in spec.panel]
        orders = [in_order(column, spec.titles.values()) for column in names]
        order = list(map(": ".join, product(*orders)))
        table["panel"] = pd.Categorical(names[0].str.cat(names[1:], sep=": "), order)
    names = [*CHANNELS, *CELL_COLUMNS, *used, *spec.extra_columns, *HIDDEN]
    columns = dict.fromkeys([*names, *STATISTICS])
    return table.filter(columns).reset_index(drop=True)


def _concat(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    stored = [table for table in tables if len(table)]
    return pd.concat(stored or [tables[0].iloc[:0]], ignore_index=True)


# Statistics


def statistics(
    matrix: SeedMatrix,
    spec: FigureSpec,
) -> pd.DataFrame:
    """Summarize every cell of a matrix over its seeds: columns `STATISTICS`."""
    summary = column_statistics(matrix.values)
    mean = summary["mean"]
    is_median = spec.value == "median"
    # All intervals are of means.
    interval = "none" if is_median else spec.interval
    if interval == "bootstrap95":
        low, high = percentile_interval(resampled_means(matrix))
        # With one or two seeds an interval may miss its own value.
        low = np.fmin(low, mean)
        high = np.fmax(high, mean)
        half_width = (high - low) / 2
    else:
        errors = (summary["deviation"] / np.sqrt(summary["seeds"])).fillna(0)
        half_widths = {
            "t95": summary["half_width"],
            "se3": 3 * errors,
            "deviation": summary["deviation"],
        }
        half_width = half_widths.get(interval, np.nan)
        low = mean - half_width
        high = mean + half_width
    table = summary.assign(
        value=summary["median"] if is_median else mean,
        low=low,
        high=high,
        half_width=half_width,
        left_out=matrix.left_out,
    )[list(STATISTICS)]
    if spec.value == "cost":
        costs = table.columns.difference(["seeds", "left_out"])
        table[costs] = table[costs].mul(matrix.cells["n"], axis=0)
    return table


def compare_sizes(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """List reported sizes of data sets, ``<name>_reported``, and what is stored."""
    reported = pd.DataFrame(read_claims(spec.paper)["reported"]["sizes"])
    cells = study.matrix(spec.sweep, spec.metric[0]).cells
    stored = cells[["dataset", *spec.extra_columns]].drop_duplicates("dataset")
    suffixes = ("_reported", "")
    table = reported.merge(stored, "left", "dataset", suffixes=suffixes)
    titles = {name: spec.format_name(name) for name in table["dataset"]}
    return FigureData(table, cells, find_unstored(titles, cells))


# What is not shown


def panel_names(
    table: pd.DataFrame,
    spec: FigureSpec,
) -> list[str]:
    """Return the panels of a table: those of the specification, then the others.

    Data sets are in the order of their titles, categories in their own.
    """
    if "panel" not in table:
        return [""]
    of_datasets = spec.titles if spec.panel == ("dataset",) else ()
    categories = getattr(table["panel"].dtype, "categories", ())
    return in_order(table["panel"], [*of_datasets, *expected_panels(spec), *categories])


def expected_panels(spec: FigureSpec) -> list[str]:
    """Return the panels that a figure has when everything is stored."""
    if not spec.panels and spec.panel == ("dataset",):
        return list(spec.expected.get("dataset", spec.titles))
    return list(spec.panels)


def find_missing(
    data: FigureData,
    spec: FigureSpec,
) -> tuple[str, ...]:
    """Say which panels have no rows, and which curves lack some of the others.

    With `expected`, the same of the values of its columns.
    """
    drawn = data.drawn
    if not len(drawn):
        return not_run_texts([spec.title])
    expected = spec.expected
    if not expected:
        by_method = spec.hue == "method" and "method" not in spec.panel
        hues = list(spec.curves) or (spec.methods if by_method else ())
        expected = {"panel": expected_panels(spec), "hue": hues}
    label = make_labels(data, spec, {})
    (first, values), *others = expected.items()
    places = drawn.get(first, pd.Series("", drawn.index))
    stored = panel_names(drawn, spec) if first == "panel" else list(places.unique())
    names = [label(first, value) for value in values if value not in stored]

    for column, values in others:
        for value in values:
            known = set(places[drawn[column] == value])
            lacks = [label(first, place) for place in stored if place not in known]
            if not known:
                names.append(label(column, value))
            elif lacks and (spec.expected or spec.panel):
                names.append(f"{label(column, value)} on {', '.join(lacks)}")
    return not_run_texts(names)


def make_labels(
    data: FigureData,
    spec: FigureSpec,
    hues: Mapping[Any, str],
) -> Callable[[str, Any], str]:
    """Return a function that names the value of a column; `hues` are in the legend."""
    styles = MethodStyles(data.source_cells)

    def label(
        column: str,
        value: Any,
    ) -> str:
        if column == "panel":
            return spec.for_panel(value).title
        if column == "hue":
            own = (spec.styles.get(value) or {}).get("label")
            if hues or own or spec.curves:
                return hues.get(value) or own or spec.format_name(value)
        if getattr(spec, column, column) == "method":
            return styles[value].label
        return DASH if pd.isna(value) else spec.format_name(value)

    return label


# Texts


def fill(
    templates: Iterable[str],
    data: FigureData,
    spec: FigureSpec,
) -> str:
    """Fill in the fields of sentences; one with an empty field is left out.

    Fields are `FIELDS`, those of `data`, and columns: ``{epsilon}`` lists its values.
    """
    filled = []
    for template in templates:
        parts = string.Formatter().parse(template)
        fields = {name: _look_up(name, data, spec) for _, name, _, _ in parts if name}
        if "" not in fields.values():
            filled.append(template.format(**fields).strip())
    return " ".join(filled)


def _look_up(
    name: str,
    data: FigureData,
    spec: FigureSpec,
) -> str:
    """Return what a field of a sentence stands for."""
    drawn = data.drawn
    cells = data.source_cells
    if name in data.fields:
        return data.fields[name]
    if name == "sets":
        n_panels = len(panel_names(drawn, spec)) if len(drawn) else 0
        n_expected = max(n_panels, len(expected_panels(spec)))
        of_expected = f" of {n_expected}" if n_panels < n_expected else ""
        plural = "" if n_expected == 1 else "s"
        return f"{n_panels}{of_expected} data set{plural}"
    if name in ("seeds", "runs") and ("seeds" in drawn or drawn.empty):
        seeds = drawn["seeds"].dropna() if len(drawn) else []
        return count_text(seeds, name)
    if name == "left_out":
        left_out = drawn["left_out"]
        n_cells = (left_out > 0).sum()
        text = f"{left_out.sum()} values in {n_cells} of {len(drawn)} cells"
        return text if n_cells else ""
    if name in ("epsilon_axis", "privacy"):
        label = epsilon_label(cells) if len(cells) else ""
        is_axis = name == "epsilon_axis"
        return label if is_axis else label.removeprefix("ε (").removesuffix(")")
    for columns in (drawn, cells):
        if name in columns:
            return values_text(columns[name])
    advice = suggestion(name, [*FIELDS, *data.fields, *drawn, *cells])
    raise ValueError(f"{spec}: field {{{name}}} is unknown{advice}")


def values_text(values: pd.Series) -> str:
    """List values, or their range where they are many; empty without any.

    Examples
    --------
    >>> values_text(pd.Series([0.5, 1.0, 0.5])), values_text(pd.Series(range(10)))
    ('0.5, 1', '0 to 9')
    """
    texts = [
        f"{value:g}" if isinstance(value, float | np.integer) else str(value)
        for value in sorted(values.dropna().unique())
    ]
    if len(texts) > MAX_VALUES:
        return f"{texts[0]} to {texts[-1]}"
    return ", ".join(texts)


# Print


class _Numbers(string.Formatter):
    """Formatter that writes a dash for what is not a finite number."""

    def format_field(
        self,
        value: Any,
        format_spec: str,
    ) -> str:
        if isinstance(value, float) and not np.isfinite(value):
            return DASH
        return super().format_field(value, format_spec)


def number_text(
    template: str,
    row: Mapping,
) -> str:
    """Format numbers of a row; intervals that are unknown are left out.

    ``{interval}`` is ``value ± half_width``, down to two digits of the half-width.

    Examples
    --------
    >>> row = {"value": 0.5, "low": np.nan, "high": 1}
    >>> number_text("{value:.3g} [{low:.2g}, {high:.2g}]", row)
    '0.5'
    >>> number_text("{interval}", {"value": 0.5123, "half_width": 0.01})
    '0.512 ± 0.010'
    """
    numbers = (row.get(name, np.nan) for name in ("value", "half_width"))
    interval = interval_text(*numbers)
    text = _Numbers().format(template, **{"interval": interval, **row})
    unknown_interval = rf" ± {DASH}| \[({DASH}, .*|.*, {DASH})\]"
    return re.sub(unknown_interval, "", short_exponents(text))


def print_table(
    data: FigureData,
    spec: FigureSpec,
    labels: Mapping[Any, str],
) -> pd.DataFrame:
    """Lay a table out for print: one column per hue, one row per panel and x.

    `labels` are those of hues in the legend.
    """
    if spec.print_lines:
        return _print_lines(data.table if data.printed is None else data.printed, spec)
    panel = "data set" if spec.panel == ("dataset",) else "panel"
    headings = spec.print_rows or {
        name: panel if name == "panel" else getattr(spec, name) or name
        for name in data.table.filter(CHANNELS)
        if name != spec.print_columns
    }
    index = list(headings.values())
    if not len(data.table):
        return pd.DataFrame(columns=index)
    table = data.table
    label = make_labels(data, spec, labels)
    printed = pd.DataFrame()
    for column, heading in headings.items():
        printed[heading] = [label(column, value) for value in table[column]]
    rows = table.to_dict("records")
    printed["value"] = [number_text(spec.text, row) for row in rows]

    across = spec.print_columns
    if across not in table:
        return printed
    printed["across"] = [label(across, value) for value in table[across]]
    wide = printed.pivot_table(
        "value",
        index,
        "across",
        aggfunc="first",
        sort=False,
    )
    return wide.fillna(DASH).reset_index().rename_axis(columns=None)


def _print_lines(
    table: pd.DataFrame,
    spec: FigureSpec,
) -> pd.DataFrame:
    """Print each row of a table by templates for its numbers and names."""
    rows = table.map(
        lambda value: spec.format_name(value) if isinstance(value, str) else value
    ).to_dict("records")
    lines = [
        [number_text(template, row) for template in spec.print_lines.values()]
        for row in rows
    ]
    return pd.DataFrame(lines, columns=list(spec.print_lines))
