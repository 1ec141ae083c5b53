"""Figures as data: what is drawn, read from ``conf/paper/<paper>/figures.yaml``.

The keys of a figure are the fields of `FigureSpec`; `docs/extending.md` lists them. A figure passes
through three functions: `frames.frame` selects rows and summarizes them in one tidy
table, `pkm.analysis.render.draw.render` draws that table, and the same table is printed and stored.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any, get_args, get_origin, get_type_hints

import pandas as pd

from pkm import schema
from pkm.analysis.paper_files import KnownNames, read, refuse_unknown

#: Legal values of the keys that have a few.
CHOICES = {
    "kind": ("lines", "heatmap", "forest", "table"),
    "value": ("mean", "median", "cost", "excess", "ratio", "raw"),
    "interval": ("t95", "se3", "deviation", "bootstrap95", "none"),
    "bands": ("area", "bars"),
    "cut": ("", "point", "panel"),
    "x_scale": ("linear", "log", "log2"),
    "y_scale": ("auto", "linear", "log", "symlog"),
    "colors": ("linear", "better", "log", "diverging"),
    "legend": ("above", "right", "none"),
}
#: Lines by the words that figures have for them: lengths of dashes and of gaps in line widths.
LINESTYLES: dict[str, tuple[float, ...]] = {"-": (), "--": (3.7, 1.6), ":": (1, 1.65)}
NO_LINE = ""


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
    gaps : tuple of str
        What the paper's figure has and this one lacks, in words.
    substitutes : str
        Which generated data sets replace files that were not available, in words; empty if none do.
    chart : mapping or None
        The figure as a Vega-Lite specification, see `pkm.analysis.render.chart`; None for a table
        of the paper, and where nothing is stored.
    """

    table: pd.DataFrame
    formatted: pd.DataFrame
    caption: str
    gaps: tuple[str, ...] = field(default=())
    substitutes: str = ""
    chart: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class FigureSpec:
    """One declared figure; every field but `paper` and `name` is a key of figures.yaml.

    Examples
    --------
    >>> spec = FigureSpec("fastlloyd", "nicv", "NICV", panels={"iris": "Iris"})
    >>> spec.part("iris").title, spec.part("wine").title
    ('Iris', 'wine')
    """

    paper: str
    name: str
    title: str
    kind: str = "lines"
    in_paper: bool = False
    front_page: bool = False
    caption: tuple[str, ...] = ()

    # Rows
    sweep: tuple[str, ...] = ()
    metric: tuple[str, ...] = ("nicv",)
    where: Mapping[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    curves: Mapping[str, Any] = field(default_factory=dict)
    compare: Mapping[str, Any] = field(default_factory=dict)
    frame: str = ""
    transform: str = ""
    expected: Mapping[str, Any] = field(default_factory=dict)

    # Statistic
    value: str = "mean"
    interval: str = "t95"
    optimum: str = "kmeans"

    # What goes where
    x: str = "epsilon"
    row: str = ""
    group: str = ""
    hue: str = "method"
    style: str = ""
    panel: tuple[str, ...] = ()
    panels: Mapping[str, Any] = field(default_factory=dict)
    order: tuple[Any, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    facts: tuple[str, ...] = ()

    # Layout
    columns: int = 4
    width: float = 3.1
    height: float = 2.6
    legend: str = "above"
    x_label: str = ""
    y_label: str = ""
    share_labels: bool = False
    share_y: bool = False

    # Look
    styles: Any = field(default_factory=dict)
    variants: Mapping[str, Any] = field(default_factory=dict)
    hue_label: str = ""
    bands: str = "area"
    cut: str = ""
    level_bands: bool = False
    dodge: bool = False
    x_scale: str = "linear"
    x_reversed: bool = False
    y_scale: str = "auto"
    linear_below: float = 0.01
    y_zero: bool = False
    y_reversed: bool = False
    references: tuple[Any, ...] = ()
    exponents: bool = False
    stacked: tuple[str, ...] = ()
    span: tuple[str, ...] = ()
    row_label: str = "{}"
    sort_rows: bool = False
    label: str = ""
    colors: str = "linear"
    color_map: str = "YlGnBu"
    color_limits: tuple[float, ...] = ()
    color_group: str = ""
    color_bar: bool = False
    color_label: str = ""

    # Printed table
    print_rows: Mapping[str, str] = field(default_factory=dict)
    print_columns: str = "hue"
    print_ends: bool = False
    print_lines: Mapping[str, str] = field(default_factory=dict)
    text: str = "{interval}"

    def __post_init__(self) -> None:
        for key, legal in CHOICES.items():
            given = getattr(self, key)
            if given not in legal:
                raise ValueError(f"{self}: {key}={given!r} must be one of {legal}")

    def __str__(self) -> str:
        return f"figure {self.name} of {self.paper}"

    def part(self, panel: str) -> "FigureSpec":
        """Return the specification of one panel: this one with what the panel changes.

        Keys of `compare` that the panel does not name stay.
        """
        entry = self.panels.get(panel, {})
        changes = checked(str(self), entry if isinstance(entry, Mapping) else {"title": entry})
        compare = {**self.compare, **changes.get("compare", {})}
        title = self.titles.get(panel, panel)
        return replace(self, **({"title": title, "panels": {}} | changes | {"compare": compare}))

    def function(self, name: str) -> Callable:
        """Return a function of ``analysis/papers/<paper>.py`` by its name."""
        module = f"pkm.analysis.papers.{self.paper.replace('-', '_')}"
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{self}: no function {name!r} in {module}") from error

    def format_name(self, value: Any) -> str:
        """Return how a data set, a metric or any other value is written."""
        if value in self.titles:
            return self.titles[value]
        if isinstance(value, float):
            return f"{value:.4g}" if abs(value) < 1000 else f"{value:g}"
        column = schema.BY_NAME.get(value)
        return column.label if column else str(value)


def in_order(names: Iterable[str], order: Sequence[str] | Mapping[str, object]) -> list[str]:
    """Return names without duplicates: those of `order` in that order, the rest sorted after them.

    Examples
    --------
    >>> in_order(["b", "z", "a", "b"], ("c", "b", "a"))
    ['b', 'a', 'z']
    """
    present = set(names)
    return [name for name in dict.fromkeys(order) if name in present] + sorted(present - set(order))


_HINTS = {name: hint for name, hint in get_type_hints(FigureSpec).items() if name != "paper"}


def checked(where: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a figure with the types of their fields.

    Raises
    ------
    ValueError
        If a key is unknown, or a value has another type than its field.

    Examples
    --------
    >>> checked("figure a", {"sweep": "real", "columns": 5})
    {'sweep': ('real',), 'columns': 5}
    """
    refuse_unknown(entry, _HINTS, f"{where}: key")
    return {key: _converted(f"{where}: {key}", of, _HINTS[key]) for key, of in entry.items()}


def _converted(where: str, value: Any, hint: Any) -> Any:
    origin = get_origin(hint)
    if hint is Any:
        return value
    if origin is tuple:
        items = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        return tuple(_converted(where, item, get_args(hint)[0]) for item in items)
    expected = {float: (int, float), Mapping: Mapping}.get(origin or hint, hint)
    if not isinstance(value, expected) or (isinstance(value, bool) and hint is not bool):
        raise ValueError(f"{where}={value!r} must be of type {getattr(hint, '__name__', hint)}")
    return dict(value) if origin is Mapping else value


def _linestyles(value: Any) -> Iterable[str]:
    """Words for line styles at any depth of a figure's keys."""
    items = value.items() if isinstance(value, Mapping) else ()
    for key, item in items:
        if key == "linestyle" and isinstance(item, str):
            yield item
        yield from _linestyles(item)
    for item in value if isinstance(value, list) else ():
        yield from _linestyles(item)


_OPTIONAL = ("titles", "defaults", "derived", "shared")


@cache
def read_figures(paper: str) -> tuple[FigureSpec, ...]:
    """Read the figures of a paper.

    The file has `figures` (name to keys); for all of them `titles` (of data sets, in the order of
    panels) and `defaults` (keys); `derived`, the sweeps, methods and metrics that functions make;
    and `shared`, where parts that several figures use have anchors.

    Raises
    ------
    ValueError
        If there is no such file, it cannot be read, or a key or value is wrong.
    """
    content = read(paper, "figures.yaml", {"figures": Mapping}, _OPTIONAL)
    known = KnownNames(paper, content.get("derived", ()))
    common = {"titles": content.get("titles", {})} | content.get("defaults", {})
    specs = []
    for name, entry in content["figures"].items():
        where = f"conf/paper/{paper}/figures.yaml: figure {name}"
        values = checked(where, common | {"title": name} | entry)
        refuse_unknown(_linestyles(entry), [*LINESTYLES, NO_LINE], f"{where}: linestyle")
        spec = FigureSpec(paper=paper, name=name, **values)
        for part in (spec, *map(spec.part, spec.panels)):
            known.check(vars(part) | {"curves": list(part.curves.values())}, where)
            for function in filter(None, (part.frame, part.transform)):
                part.function(function)
        specs.append(spec)
    return tuple(specs)
