"""From rows to what a figure shows: one tidy table, the texts of its caption, and its print.

The table has one line per value: `panel`, `hue` (curve or color), `style`, `row` and `group` (of
heat maps and forests), `x`, `value` with its interval `low` to `high`, `half_width`, `median`,
`deviation`, `seeds` and `left_out` (values that are not finite), and facts of the cell.
"""

import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from pkm.analysis.claims.comparisons import divide_pairs, find_pairs
from pkm.analysis.claims.findings import Context, MissingRows
from pkm.analysis.figures.figure import FigureSpec, in_order
from pkm.analysis.figures.styles import MethodStyles
from pkm.analysis.figures.texts import (
    DASH,
    count_text,
    epsilon_label,
    gap_texts,
    incomparable_texts,
    interval_text,
    short_exponents,
)
from pkm.analysis.paper_files import refuse_unknown
from pkm.analysis.tables.planted import parse_planted_names, relative_means
from pkm.analysis.tables.statistics import column_statistics, percentile_interval
from pkm.analysis.tables.study import SeedMatrix, Study, matches, raw_units
from pkm.names import suggestion

PLACES = ("panel", "group", "row", "hue", "style", "x")
STATISTICS = ("value", "low", "high", "half_width", "median", "deviation", "seeds", "left_out")
FACTS = ("sweep", "metric", "dataset", "n", "d", "k", "method", "variant", "epsilon", "delta")
#: What styles and the label of an epsilon axis are made of; not written to files.
HIDDEN = ("label", "color", "marker", "notion", "adjacency", "trust")
#: What a chart says of a mark besides; not written to files unless a figure names it.
TOOLTIP = ("cell", "epsilon_spent")
MOST_COMMON = "most_common"
MAX_VALUES = 8  # that a caption lists one by one


@dataclass(frozen=True)
class Frame:
    """What a figure shows.

    Attributes
    ----------
    table : DataFrame
        See the module.
    cells : DataFrame, optional
        The cells behind it, from which styles, the label of an epsilon axis and the list of
        generated data sets come; by default `table`.
    gaps : tuple of str, optional
        What is not shown, and why; by default the panels and curves without rows.
    fields : mapping
        Further fields of the caption and of axis labels.
    printed : DataFrame, optional
        The table as it is printed; by default it is laid out by the specification.
    """

    table: pd.DataFrame
    cells: pd.DataFrame | None = None
    gaps: tuple[str, ...] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    printed: pd.DataFrame | None = None

    @property
    def source(self) -> pd.DataFrame:
        """The cells behind the table."""
        return self.table if self.cells is None else self.cells

    @property
    def drawn(self) -> pd.DataFrame:
        """The lines that have a value; all lines of a table without the column."""
        if "value" not in self.table:
            return self.table
        return self.table[np.isfinite(self.table["value"].astype(float))]


def frame(study: Study, spec: FigureSpec) -> Frame:
    """Return what a figure shows of a study."""
    if spec.frame:
        made = spec.function(spec.frame)(study, spec)
        shown = made if isinstance(made, Frame) else Frame(made)
    else:
        shown = selected(study, spec)
    if spec.transform and len(shown.table):
        shown = replace(shown, table=spec.function(spec.transform)(shown.table))
    if shown.gaps is None:
        shown = replace(shown, gaps=absent(shown, spec))
    return shown


# --- selection ----------------------------------------------------------------------------------


def selected(study: Study, spec: FigureSpec) -> Frame:
    """Select the rows of all panels: one selection cut by `panel`, or one for each panel."""
    if spec.panel or not spec.panels:
        parts = [_rows(study, spec)]
    else:
        parts = [_rows_of_panel(study, spec, name) for name in spec.panels]
    table = _concat([part.table for part in parts])
    cells = [part.cells for part in parts if part.cells is not None]
    shown = Frame(table, pd.concat(cells, ignore_index=True) if cells else None)
    gaps = dict.fromkeys(gap for part in parts for gap in part.gaps or ())
    return replace(shown, gaps=(*absent(shown, spec), *gaps))


def _rows(study: Study, spec: FigureSpec) -> Frame:
    """Select the rows of a figure or a panel; the gaps are those that rows do not show."""
    if spec.compare:
        return compared(study, spec)
    table, incomparable = summarized(study, spec)
    return Frame(table, gaps=incomparable_texts(incomparable))


def _rows_of_panel(study: Study, spec: FigureSpec, name: str) -> Frame:
    part = spec.part(name)
    shown = Frame(part.function(part.frame)(study, part)) if part.frame else _rows(study, part)
    return replace(shown, table=shown.table.assign(panel=name))


def compared(study: Study, spec: FigureSpec) -> Frame:
    """Compare cells as a claim does: `compare` has keys of a check (`comparisons.SELECTION`).

    A comparison has the facts that all cells of its left side share, `datasets` (behind each side)
    and `grid`, the epsilons of an area. Right sides are not joined (`best_of`, `mean_of_right`).
    """
    check = {"sweep": list(spec.sweep), "metric": spec.metric[0], **spec.compare}
    try:
        pairs = find_pairs(study, check, Context())
    except MissingRows:
        none = study.cells.iloc[:0]
        return Frame(placed(none.assign(value=[], low=[], high=[]), spec), none)
    draws = divide_pairs(pairs, check)
    low, high = percentile_interval(draws.values)
    cells = pairs.matrix.cells
    sides = [cells.iloc[columns] for columns in pairs.left]
    facts = [name for name in FACTS if name in cells]
    varying = [name for name in facts if any(side[name].nunique() > 1 for side in sides)]
    first_cells = cells.iloc[[columns[0] for columns in pairs.left]]
    table = first_cells.drop(columns=varying).assign(
        value=draws.values[0],
        low=low,
        high=high,
        half_width=(high - low) / 2,
        seeds=pairs.shared_seeds,
        datasets=[len(columns) for columns in pairs.left],
        grid=values_text(study.matrix(spec.sweep, spec.metric[0]).cells["epsilon"]),
    )
    used = sorted({column for side in (*pairs.left, *pairs.right) for column in side})
    return Frame(placed(table, spec), cells.iloc[used], (pairs.missing,) if pairs.missing else ())


def summarized(study: Study, spec: FigureSpec) -> tuple[pd.DataFrame, list[str]]:
    """Summarize the cells that a specification selects.

    Returns
    -------
    table : DataFrame
    incomparable : list of str
        Labels of the methods that were left out as they may not share an axis with the others.
    """
    tables = []
    incomparable: list[str] = []
    for metric in spec.metric:
        panel = study.matrix(spec.sweep, metric)
        panel = raw_units(panel) if spec.value == "raw" else panel
        panel = replace(panel, cells=parse_planted_names(panel.cells))
        table = panel.cells.assign(metric=metric, **statistics(panel, spec))
        table = table[matches(table, _resolved(spec.where, table))]
        if spec.methods:
            table = table[table["method"].isin(spec.methods)]
        elif not spec.curves and len(table):
            comparable, others = comparable_methods(table)
            incomparable = [MethodStyles(table).label(name) for name in others]
            table = table[table["method"].isin(comparable)]
        tables.append(table[~table["method"].isin(spec.without)])
    return placed(_concat(tables), spec), incomparable


def _resolved(where: Mapping[str, Any], table: pd.DataFrame) -> dict[str, Any]:
    """Replace `most_common` in conditions by the value that most cells have."""
    return {
        name: table[name].mode().iloc[0] if value == MOST_COMMON and len(table) else value
        for name, value in where.items()
    }


def placed(table: pd.DataFrame, spec: FigureSpec) -> pd.DataFrame:
    """Add the columns that say where each line goes.

    Raises
    ------
    ValueError
        If the specification names a column that its rows do not have.
    """
    places = (spec.x, spec.row, spec.group, spec.hue, spec.style, *spec.panel)
    if len(table):
        refuse_unknown(filter(None, places), table, f"{spec}: column")
    if spec.curves:
        parts = [
            table[matches(table, selector)].assign(hue=name)
            for name, selector in spec.curves.items()
        ]
        table = _concat(parts)
    else:
        table = table.assign(hue=table.get(spec.hue))
    if spec.kind == "lines":
        x = pd.to_numeric(table.get(spec.x), errors="coerce")
        table = table.assign(x=np.nan if x is None else x)
    elif spec.x in table:
        table = table.assign(x=table[spec.x].infer_objects())
    for place in ("row", "group", "style"):
        column = getattr(spec, place)
        if column:
            values = table.get(column)
            table = table.assign(**{place: None if values is None else values.infer_objects()})
    used = [spec.x, spec.row, spec.group, spec.hue, spec.style, *spec.panel, *spec.facts]
    if spec.panel:
        table = table.assign(panel=_joined(table, spec))
    names = [*PLACES, *FACTS, *used, *HIDDEN, *STATISTICS, *(() if spec.frame else TOOLTIP)]
    kept = [name for name in dict.fromkeys(names) if name in table]
    return table[kept].reset_index(drop=True)


def _joined(table: pd.DataFrame, spec: FigureSpec) -> pd.Series | None:
    """Name the panel of each line: a column's value, or the names of several in their order."""
    if len(spec.panel) == 1:
        return table.get(spec.panel[0])
    names = [table[column].map(spec.format_name) for column in spec.panel]
    joined = names[0].str.cat(names[1:], sep=": ")
    orders = [in_order(names[i], spec.titles.values()) for i in range(len(names))]
    return joined.astype(pd.CategoricalDtype([": ".join(pair) for pair in product(*orders)]))


def _concat(parts: list[pd.DataFrame]) -> pd.DataFrame:
    stored = [part for part in parts if len(part)]
    return pd.concat(stored, ignore_index=True) if stored else parts[0].iloc[:0]


def comparable_methods(cells: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Split methods by whether they may share an epsilon axis.

    Returns
    -------
    comparable : list of str
        Those under the most common adjacency and trust model, with the non-private ones.
    incomparable : list of str
        All others.
    """
    private = cells[cells["notion"] != "none"]
    if not len(private):
        return list(cells["method"].unique()), []
    models = private["adjacency"].str.cat(private["trust"], sep="/")
    incomparable = set(private.loc[models != models.mode().iloc[0], "method"])
    comparable = [name for name in cells["method"].unique() if name not in incomparable]
    return comparable, sorted(incomparable)


# --- statistics ---------------------------------------------------------------------------------


def statistics(panel: SeedMatrix, spec: FigureSpec) -> dict[str, np.ndarray]:
    """Summarize every cell of a panel over its seeds.

    Returns
    -------
    dict
        The columns `STATISTICS`.
    """
    mean, half_width, median, deviation, seeds = column_statistics(panel.values)
    resampled = spec.value in ("excess", "ratio") or spec.interval == "bootstrap95"
    if resampled and panel.seeds.size:
        means, seeds, _ = relative_means(panel, spec.value, spec.optimum)
        mean = means[0]
        low, high = percentile_interval(means)
        if spec.interval == "none":
            low, high = np.full((2, mean.size), np.nan)
        # With one or two seeds an interval may miss its own value.
        low, high = np.fmin(low, mean), np.fmax(high, mean)
        half_width = (high - low) / 2
    else:
        errors = np.nan_to_num(deviation / np.sqrt(np.maximum(seeds, 1)))
        half_widths = {"t95": half_width, "se3": 3 * errors, "deviation": deviation}
        half_width = half_widths.get(spec.interval, np.full(mean.shape, np.nan))
        low = mean - half_width
        high = mean + half_width
    scale = 1.0
    if spec.value in ("cost", "excess"):
        scale = panel.cells["n"].to_numpy(dtype=float)
    return {
        "value": (median if spec.value == "median" else mean) * scale,
        "low": low * scale,
        "high": high * scale,
        "half_width": half_width * scale,
        "median": median * scale,
        "deviation": deviation * scale,
        "seeds": seeds,
        "left_out": panel.left_out,
    }


# --- what is not shown --------------------------------------------------------------------------


def panel_names(table: pd.DataFrame, spec: FigureSpec) -> list[str]:
    """Return the panels of a table: those that the specification lists, then the others.

    Data sets are in the order of their titles, categories in their own.
    """
    if "panel" not in table:
        return [""]
    of_sets = spec.titles if spec.panel == ("dataset",) else ()
    categories = getattr(table["panel"].dtype, "categories", ())
    return in_order(table["panel"], [*of_sets, *expected_panels(spec), *categories])


def expected_panels(spec: FigureSpec) -> list[str]:
    """Return the panels that a figure has when everything is stored."""
    if not spec.panels and spec.panel == ("dataset",):
        return list(spec.expected.get("dataset", spec.titles))
    return list(spec.panels)


def absent(shown: Frame, spec: FigureSpec) -> tuple[str, ...]:
    """Say which panels have no rows, and which curves lack some of the others."""
    drawn = shown.drawn
    if not len(drawn):
        return gap_texts([spec.title])
    if spec.expected:
        return gap_texts(_missing_values(drawn, spec, MethodStyles(shown.source)))
    panels = panel_names(drawn, spec)
    names = [spec.part(name).title for name in expected_panels(spec) if name not in panels]
    by_method = spec.hue == "method" and "method" not in spec.panel
    expected_hues = spec.curves or (spec.methods if by_method else ())
    styles = MethodStyles(shown.source)
    for hue in expected_hues:
        present = drawn[drawn["hue"] == hue]
        without = []
        if spec.panel:
            without = [name for name in panels if name not in set(present["panel"])]
        if not len(present) or without:
            label = _given_label(hue, spec) or (hue if spec.curves else styles.label(hue))
            places = ", ".join(spec.part(name).title for name in without)
            names.append(f"{label} on {places}" if len(present) else label)
    return gap_texts(names)


def _missing_values(drawn: pd.DataFrame, spec: FigureSpec, styles: MethodStyles) -> list[str]:
    """Name expected values without rows: of a first column, and of others for each of it."""
    (first, wanted), *others = spec.expected.items()

    def named(column: str, value: Any) -> str:
        return styles.label(value) if column == "method" else spec.format_name(value)

    present = [value for value in wanted if value in set(drawn[first])]
    names = [named(first, value) for value in wanted if value not in present]
    for column, values in others:
        stored = set(zip(drawn[first], drawn[column], strict=True))
        for value in values:
            places = [named(first, place) for place in present if (place, value) not in stored]
            if places:
                names.append(f"{named(column, value)} on {', '.join(places)}")
    return names


def _given_label(hue: Any, spec: FigureSpec) -> str:
    given = spec.styles.get(hue) if isinstance(spec.styles, Mapping) else None
    return (given or {}).get("label", "")


# --- texts --------------------------------------------------------------------------------------


def caption_fields(shown: Frame, spec: FigureSpec) -> "Fields":
    """Return the fields that captions and axis labels may name."""
    drawn = shown.drawn
    panels = len(panel_names(drawn, spec)) if len(drawn) else 0
    n_expected = len(in_order(expected_panels(spec), panel_names(drawn, spec)))
    count = f"{panels}" if panels == n_expected else f"{panels} of {n_expected}"
    known: dict[str, Any] = {"sets": f"{count} data set{'' if n_expected == 1 else 's'}"}
    if "left_out" in drawn:
        n_cells = (drawn["left_out"] > 0).sum()
        count = drawn["left_out"].sum()
        known["left_out"] = f"{count} values in {n_cells} of {len(drawn)} cells" if count else ""
    if "seeds" in drawn:
        known["seeds"] = count_text(drawn["seeds"].dropna())
        known["runs"] = count_text(drawn["seeds"].dropna(), "runs")
    return Fields(known | dict(shown.fields), drawn, shown.source, str(spec))


class Fields(dict):
    """Fields of a caption: given ones, ``{epsilon_axis}``, and the values of any column.

    ``{privacy}`` is what the label of the axis has in parentheses.
    """

    def __init__(
        self, known: Mapping[str, Any], table: pd.DataFrame, cells: pd.DataFrame, where: str
    ) -> None:
        super().__init__(known)
        self._where = where
        self._table = table
        self._cells = cells

    def __missing__(self, name: str) -> str:
        if name in ("epsilon_axis", "privacy"):
            label = epsilon_label(self._cells) if len(self._cells) else ""
            return label if name == "epsilon_axis" else label.removeprefix("ε (").removesuffix(")")
        for table in (self._table, self._cells):
            if name in table:
                return values_text(table[name])
        known = [*self, "epsilon_axis", "privacy", *self._table, *self._cells]
        raise ValueError(f"{self._where}: field {{{name}}} is unknown{suggestion(name, known)}")


def values_text(values: pd.Series) -> str:
    """List values, or their range where they are many; empty without any.

    Examples
    --------
    >>> values_text(pd.Series([0.5, 1.0, 0.5])), values_text(pd.Series(range(10)))
    ('0.5, 1', '0 to 9')
    """
    found = sorted(values.dropna().unique())
    texts = [
        f"{value:g}" if isinstance(value, float | np.integer) else str(value) for value in found
    ]
    return ", ".join(texts) if len(texts) <= MAX_VALUES else f"{texts[0]} to {texts[-1]}"


def sentences(templates: Iterable[str], fields: Mapping[str, Any]) -> list[str]:
    """Fill in sentences; one with an empty field is left out.

    Examples
    --------
    >>> sentences(["Over {seeds}.", "Outside: {outside}."], {"seeds": "3 seeds", "outside": ""})
    ['Over 3 seeds.']
    """
    filled = []
    for template in templates:
        names = [name for _, name, _, _ in string.Formatter().parse(template) if name]
        values = {name: fields[name] for name in names}
        if all(value != "" for value in values.values()):
            filled.append(template.format(**values).strip())
    return filled


# --- print --------------------------------------------------------------------------------------


class _Numbers(string.Formatter):
    """Formatter that writes a dash for what is not a finite number."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, float) and not np.isfinite(value):
            return DASH
        return super().format_field(value, format_spec)


def number_text(template: str, line: Mapping[str, Any]) -> str:
    """Format numbers of a line; intervals that are unknown are left out.

    ``{interval}`` is ``value ± half_width``, down to two digits of the half-width.

    Examples
    --------
    >>> number_text("{value:.3g} [{low:.2g}, {high:.2g}]", {"value": 0.5, "low": np.nan, "high": 1})
    '0.5'
    >>> number_text("{interval}", {"value": 0.5123, "half_width": 0.01})
    '0.512 ± 0.010'
    """
    interval = interval_text(line.get("value", np.nan), line.get("half_width", np.nan))
    text = short_exponents(_Numbers().format(template, **(dict(line) | {"interval": interval})))
    return re.sub(rf" ± {DASH}| \[({DASH}, .*|.*, {DASH})\]", "", text)


def printed(shown: Frame, spec: FigureSpec, labels: Mapping[Any, str]) -> pd.DataFrame:
    """Lay a table out for print: one column per hue, one line per panel and place.

    `labels` are those of hues in the legend.
    """
    if shown.printed is not None:
        return shown.printed
    table = shown.table
    if spec.print_lines:
        return templated(table, spec)
    headings = dict(spec.print_rows) or {
        name: _heading(name, spec)
        for name in PLACES
        if name in table and name != spec.print_columns
    }
    if not len(table):
        return pd.DataFrame(columns=list(headings.values()))

    if spec.print_ends:
        curves = table.groupby([name for name in PLACES[:-1] if name in table], dropna=False)
        ends = [curves["x"].transform(end) for end in ("min", "max")]
        table = table[(table["x"] == ends[0]) | (table["x"] == ends[1])]

    def named(column: str) -> list[str]:
        if column != "hue" and getattr(spec, column, column) == "method":
            return [MethodStyles(shown.source).label(value) for value in table[column]]
        return [_name(spec, column, value, labels) for value in table[column]]

    texts = pd.DataFrame({heading: named(name) for name, heading in headings.items()})
    texts["value"] = [number_text(spec.text, line) for line in table.to_dict("records")]
    if spec.print_columns not in table:
        return texts
    wide = texts.assign(column=named(spec.print_columns)).pivot_table(
        index=list(headings.values()), columns="column", values="value", aggfunc="first", sort=False
    )
    return wide.fillna(DASH).reset_index().rename_axis(columns=None)


def templated(table: pd.DataFrame, spec: FigureSpec) -> pd.DataFrame:
    """Print one line for each of the table: columns are templates of its numbers and names."""
    lines = []
    for line in table.to_dict("records"):
        named = {
            key: spec.format_name(value) if isinstance(value, str) else value
            for key, value in line.items()
        }
        lines.append(
            {heading: number_text(text, named) for heading, text in spec.print_lines.items()}
        )
    return pd.DataFrame(lines, columns=list(spec.print_lines))


def _heading(place: str, spec: FigureSpec) -> str:
    if place == "panel":
        return "data set" if spec.panel == ("dataset",) else "panel"
    return getattr(spec, place) or place


def _name(spec: FigureSpec, place: str, value: Any, labels: Mapping[Any, str]) -> str:
    if place == "panel":
        return spec.part(value).title
    if place == "hue":
        return labels.get(value) or spec.format_name(value)
    return DASH if pd.isna(value) else spec.format_name(value)
