"""What a picture shows, read from the figure that matplotlib has drawn."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from matplotlib.figure import Figure

from pkm.analysis.render import plot
from pkm.analysis.render.panel import Panel


@dataclass(frozen=True)
class Axis:
    """Scale of a panel's axis: limits, and labels of its ticks."""

    scale: str
    low: float
    high: float
    reverse: bool
    title: str
    ticks: tuple
    labels: tuple


@dataclass(frozen=True)
class Shown:
    """One panel of a picture, with the rows behind it."""

    panel: Panel
    figure: Figure
    index: int

    @property
    def axes(self):
        return self.figure.axes[self.index]

    @property
    def title(self):
        return self.axes.get_title().replace("\n", " ").removesuffix(" (log)")

    @property
    def table(self):
        return self.panel.table

    @cached_property
    def x(self):
        return axis_of(self.axes.xaxis)

    @cached_property
    def y(self):
        return axis_of(self.axes.yaxis)

    @property
    def curves(self):
        """Hues of the curves and level lines."""
        return list(dict.fromkeys(self.table["hue"]))

    @property
    def texts(self):
        """Numbers that are written at marks, into cells, and as exponents."""
        legend = self.axes.get_legend()
        exponents = legend.get_texts() if legend else []
        return [text.get_text() for text in (*self.axes.texts, *exponents)]

    def marks(self, marker):
        """Places of the marks of one kind."""
        lines = [line for line in self.axes.lines if line.get_marker() == marker]
        return [place for line in lines for place in line.get_xydata().tolist()]


def axis_of(axis):
    low, high = axis.get_view_interval()
    ticks = [tick for tick in axis.get_majorticklocs() if min(low, high) <= tick <= max(low, high)]
    shown = axis.get_tick_params()["labelleft" if axis.axis_name == "y" else "labelbottom"]
    labels = axis.get_major_formatter().format_ticks(ticks) if shown else ()
    return Axis(
        axis.get_scale(),
        min(low, high),
        max(low, high),
        low > high,
        axis.get_label_text(),
        tuple(ticks),
        tuple(labels),
    )


def panels_of(result):
    """Panels of a drawn figure."""
    figure = plotted(result.drawing)
    return [Shown(panel, figure, index) for index, panel in enumerate(result.drawing.panels)]


#: Several tests in a row read the same picture.
plotted = lru_cache(maxsize=16)(plot.plot)


def legend_of(result):
    """Labels of the legend with the colors of their lines; empty without one."""
    entries = plot.legend_entries(result.drawing)
    return {label: line["color"] for label, line in entries.items()}
