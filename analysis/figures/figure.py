"""Figures as data: what is drawn, read from ``conf/paper/<paper>/figures.yaml``.

The keys of a figure are the fields of `FigureSpec`; `docs/extending.md` lists them. A
figure passes through two functions: `figure_data.make_figure_data` summarizes the
selected rows in one tidy table, and `pkm.analysis.render.draw.render` draws and prints
it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any, Literal

import pandas as pd

from pkm import schema
from pkm.analysis.paper_files import (
    KnownNames,
    parse_entry,
    parse_fields,
    read,
)
from pkm.names import suggestion

Texts = tuple[str, ...]


def _empty() -> Any:
    return field(default_factory=dict)


@dataclass(frozen=True)
class FigureResult:
    """One figure (or a table alone) with its numbers.

    Attributes
    ----------
    table : DataFrame
        The numbers of the figure, full precision, one observation per line.
    formatted : DataFrame
        The same, formatted for the report.
    caption : str
        What is shown, over which data, and how limits and bands were chosen.
    missing : tuple of str
        What the paper's figure has and this one lacks, in words.
    substitutes : str
        Which generated data sets replace files that were not available, in words; empty
        if none do.
    drawing : Drawing or None
        Its panels, see `pkm.analysis.render.panel`; None for a table of the paper, and
        where nothing is stored.
    """

    table: pd.DataFrame
    formatted: pd.DataFrame
    caption: str
    missing: Texts
    substitutes: str
    drawing: Any


@dataclass(frozen=True)
class FigureSpec:
    """One declared figure; every field but `paper` and `name` is a key of figures.yaml.

    Examples
    --------
    >>> spec = FigureSpec("fastlloyd", "nicv", "NICV", panels={"iris": "Iris"})
    >>> spec.for_panel("iris").title, spec.for_panel("wine").title
    ('Iris', 'wine')
    """

    paper: str
    name: str
    title: str
    kind: Literal["lines", "heatmap", "forest", "table"] = "lines"
    in_paper: Any = False
    front_page: bool = False
    on_page: bool = False
    caption: Texts = ()

    # Rows
    sweep: Texts = ()
    metric: Texts = ("nicv",)
    where: Mapping = _empty()
    methods: Texts = ()
    curves: Mapping = _empty()
    compare: Mapping = _empty()
    # Names of functions in ``analysis/papers/<paper>.py``: `frame` makes the data of a
    # figure in place of the keys above, `transform` changes its table.
    frame: str = ""
    transform: str = ""
    columns: Mapping = _empty()
    expected: Mapping = _empty()
    reported: Texts = ()

    # Statistic
    value: Literal["mean", "median", "cost", "raw"] = "mean"
    interval: Literal["t95", "se3", "deviation", "bootstrap95", "none"] = "t95"

    # What goes where
    x: str = "epsilon"
    row: str = ""
    group: str = ""
    hue: str = "method"
    style: str = ""
    panel: Texts = ()
    panels: Mapping = _empty()
    order: tuple[Any, ...] = ()
    titles: Mapping = _empty()
    extra_columns: Texts = ()

    # Labels of axes
    x_label: str = ""
    y_label: str = ""
    share_y: bool = False

    # Look
    width: float = 0.0
    styles: Mapping = _empty()
    variants: Mapping = _empty()
    bands: Literal["area", "bars"] = "area"
    cut: Literal["", "point", "panel"] = ""
    level_bands: bool = False
    dodge: bool = False
    x_scale: Literal["linear", "log", "log2"] = "linear"
    x_reversed: bool = False
    x_ticks: tuple[float, ...] = ()
    y_scale: Literal["auto", "linear", "log", "symlog"] = "auto"
    y_zero: bool = False
    y_reversed: bool = False
    references: tuple[Any, ...] = ()
    exponents: bool = False
    stacked: Texts = ()
    span: Texts = ()
    row_label: str = "{}"
    sort_rows: bool = False
    label: str = ""
    colors: Literal["linear", "better", "log", "diverging"] = "linear"
    color_map: str = "YlGnBu"
    color_limits: tuple[float, ...] = ()
    color_group: str = ""
    color_label: str = ""

    # Printed table
    print_rows: Mapping = _empty()
    print_columns: str = "hue"
    print_lines: Mapping = _empty()
    text: str = "{interval}"

    def __str__(self) -> str:
        return f"figure {self.name} of {self.paper}"

    @property
    def file_name(self) -> str:
        """Name of its picture or table on the pages, without ending."""
        return f"{self.paper}-{self.name}".replace("_", "-")

    def for_panel(
        self,
        panel: str,
    ) -> "FigureSpec":
        """Return the specification of one panel: this one with what the panel changes.

        Keys of `compare` that the panel does not name stay.
        """
        entry = self.panels.get(panel, {})
        if not isinstance(entry, Mapping):
            entry = {"title": entry}
        changes = {"title": self.titles.get(panel, panel)}
        changes |= parse_fields(FigureSpec, entry, f"{self}")
        changes["compare"] = {**self.compare, **changes.get("compare", {})}
        return replace(self, **({"panels": {}} | changes))

    def in_style(
        self,
        style: str,
    ) -> "FigureSpec":
        """Return the specification in a style: ``paper`` has what `in_paper` changes.

        Styles of hues that it does not name stay.
        """
        if style != "paper" or not isinstance(self.in_paper, Mapping):
            return self
        changes = parse_fields(FigureSpec, self.in_paper, f"{self}: in_paper")
        changes["styles"] = {**self.styles, **changes.get("styles", {})}
        return replace(self, **changes)

    def function(
        self,
        name: str,
    ) -> Callable:
        """Return a function of ``analysis/papers/<paper>.py`` by its name."""
        module = f"pkm.analysis.papers.{self.paper.replace('-', '_')}"
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{self}: no function {name!r} in {module}") from error

    def format_name(
        self,
        value: Any,
    ) -> str:
        """Return how a data set, a metric or any other value is written."""
        if value in self.titles:
            return self.titles[value]
        if isinstance(value, float):
            return f"{value:.4g}" if abs(value) < 1000 else f"{value:g}"
        column = schema.BY_NAME.get(value)
        return column.label if column else str(value)


def in_order(
    names: Iterable[str],
    order: Iterable[str],
) -> list[str]:
    """Return names without duplicates: those of `order` in that order, then the others.

    Examples
    --------
    >>> in_order(["b", "z", "a", "b"], ("c", "b", "a"))
    ['b', 'a', 'z']
    """
    places = {name: place for place, name in enumerate(dict.fromkeys(order))}
    return sorted(set(names), key=lambda name: (places.get(name, len(places)), name))


def find_figure(name: str) -> FigureSpec:
    """Return the figure that ``PAPER/FIGURE`` names.

    Raises
    ------
    ValueError
        If there is none; the nearest known name is in the message.

    Examples
    --------
    >>> find_figure("fastlloyd/figure2").title
    'Figure 2: NICV on the real data sets'
    """
    paper = name.partition("/")[0]
    specs = {f"{paper}/{spec.name}": spec for spec in read_figures(paper)}
    if name not in specs:
        raise ValueError(f"no figure is called {name!r}{suggestion(name, specs)}")
    return specs[name]


_OPTIONAL = ("titles", "defaults", "derived", "shared")


@cache
def read_figures(paper: str) -> tuple[FigureSpec, ...]:
    """Read the figures of a paper.

    The file has `figures` (name to keys); for all of them `titles` (of data sets, in
    the order of panels) and `defaults` (keys); `derived`, the sweeps, methods and
    metrics that functions make; and `shared`, where parts that several figures use have
    anchors.

    Raises
    ------
    ValueError
        If there is no such file, it cannot be read, or a key or value is wrong.
    """
    content, file = read(paper, "figures.yaml", {"figures": Mapping}, _OPTIONAL)
    known = KnownNames(paper, content.get("derived", ()))
    common = {"titles": content.get("titles", {})} | content.get("defaults", {})
    specs = []
    for name, entry in content["figures"].items():
        location = f"{file}: figure {name}"
        entry = {"title": name} | common | entry | {"paper": paper, "name": name}
        spec = parse_entry(FigureSpec, entry, location)
        for styled in (spec, spec.in_style("paper")):
            of_panels = map(styled.for_panel, styled.panels)
            for panel_spec in (styled, *of_panels):
                curves = {"curves": list(panel_spec.curves.values())}
                known.check(vars(panel_spec) | curves, location)
                for function in filter(None, (panel_spec.frame, panel_spec.transform)):
                    panel_spec.function(function)
        specs.append(spec)
    return tuple(specs)
