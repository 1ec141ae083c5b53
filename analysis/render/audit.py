"""The audit: realized over charged of every query, and black-box bounds under the ledger."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pkm.analysis.audits import CONSISTENT, NO_POWER, NOT_TRIED, VIOLATED, Audit, table
from pkm.analysis.figure import FigureResult
from pkm.analysis.render.layout import DASH, count_text, empty_panel, format_number
from pkm.analysis.render.style import GREY, INK, PALE

#: Marker and face of a verdict; edges have the same color.
MARKS = {
    CONSISTENT: ("o", "#0072b2", "#0072b2"),
    NO_POWER: ("o", "#8c8c8c", "white"),
    VIOLATED: ("X", "#d55e00", "#d55e00"),
}
#: Bounds from all releases.
DIAMOND = {"marker": "D", "color": INK, "markerfacecolor": "none"}
#: Marks above all lines, whole also at the border.
IN_FRONT = {"linestyle": "none", "zorder": 4, "clip_on": False}
#: Ratios beyond are drawn at the border with their value.
MAX_RATIO = 2.0
ROW_HEIGHT = 0.21  # inches
CAPTION = (
    "Audit of each method with default parameters. (a) Replay: for each query the largest cost "
    "that a pair of neighbors realized, over what was charged for it. At 1 the charge is exact; "
    "above it is too small; far below 1 no pair has put the query to the test, or its worst case "
    "is not reached by any. (b) Black box: lower bounds on ε, each with 95 % confidence, from "
    "released centers alone (circles) and from all releases of a run by their exact likelihood "
    "ratio (diamonds), and the ε of the ledger, which they must not exceed. A bound of 0 says "
    "nothing about a method, only that such runs show too little. Methods that were violated are "
    "orange, with the registered flaws that explain it; some are of a whole run and of no query. "
)


def draw_audit(audits: Sequence[Audit]) -> FigureResult:
    """Draw the ratios of the replay and the bounds of the black box, method by method.

    Parameters
    ----------
    audits : sequence of Audit
        At least one.

    Returns
    -------
    FigureResult
    """
    rows = _rows(audits)
    numbers = table(audits)
    n_rows = sum(map(len, rows))
    figure = Figure(figsize=(9.5, 1.3 + ROW_HEIGHT * n_rows), layout="constrained")
    has_bounds = numbers["lower_bound"].notna().any()
    widths = (1.25, 1.0 if has_bounds else 0.4)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=widths)
    middles = _draw_ratios(left, audits, rows)
    _draw_bounds(right, audits, middles)
    left.set_ylim(n_rows - 0.5, -0.5)
    edges = np.cumsum([len(queries) for queries in rows])[:-1] - 0.5
    for axes in (left, right) if right.axison else (left,):
        axes.hlines(edges, 0, 1, transform=axes.get_yaxis_transform(), color=PALE, linewidth=0.8)
    _legend(figure, has_bounds)
    counts = count_text(numbers["n_pairs"], "pairs")
    runs = numbers.loc[numbers["n_runs"] > 0, "n_runs"]
    caption = CAPTION + f"{counts} a method"
    caption += f"; {count_text(runs, 'runs')} on either data set." if len(runs) else "."
    if any(audit.stale for audit in audits):
        caption += " The code has changed since this audit."
    return FigureResult(figure, _numbers(audits), _formatted(numbers), caption, _gaps(audits))


def _rows(audits: Sequence[Audit]) -> list[list[str]]:
    """Queries of each audit, one row each; one empty row without any."""
    return [list(audit.tightness) or [""] for audit in audits]


def _draw_ratios(axes: Axes, audits: Sequence[Audit], rows: Sequence[Sequence[str]]) -> list[float]:
    """Draw a mark for each query, and return the middle of the rows of each audit."""
    axes.axvline(1.0, color=INK, linewidth=1.0, zorder=2)
    labels = []
    colors = []
    middles = []
    position = 0
    for audit, queries in zip(audits, rows, strict=True):
        for query in queries:
            if query:
                _draw_ratio(axes, audit, query, position)
            position += 1
        names = [query.replace("_", " ") for query in queries]
        title = ", ".join([audit.name, *audit.found_flaws])
        labels += [f"{title}   {names[0]}", *names[1:]]
        title_color = MARKS[VIOLATED][1] if audit.verdict == VIOLATED else INK
        colors += [title_color, *["#666666"] * (len(names) - 1)]
        middles.append(position - (len(queries) + 1) / 2)
    largest = max((ratio for audit in audits for ratio in audit.tightness.values()), default=1.0)
    axes.set_xlim(-0.04, max(1.25, min(1.1 * largest, 1.1 * MAX_RATIO)))
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.tick_params(axis="y", length=0)
    for label, color in zip(axes.get_yticklabels(), colors, strict=True):
        label.set_color(color)
    axes.grid(axis="y", visible=False)
    axes.set_title("(a) replay: realized over charged", color=INK, fontsize=10)
    return middles


def _draw_ratio(axes: Axes, audit: Audit, query: str, position: int) -> None:
    ratio = audit.tightness[query]
    marker, color, face = MARKS[audit.query_verdicts.get(query, NO_POWER)]
    look = {"marker": marker, "color": color, "markerfacecolor": face, "markersize": 5.5}
    axes.plot(min(ratio, MAX_RATIO), position, **look, **IN_FRONT)
    if ratio > MAX_RATIO:
        place = MAX_RATIO - 0.05
        text = _ratio_text(ratio)
        axes.text(place, position, text, ha="right", va="center", fontsize=8, color=color)


def _ratio_text(ratio: float) -> str:
    return "∞" if np.isposinf(ratio) else format_number(ratio)


def _draw_bounds(axes: Axes, audits: Sequence[Audit], middles: Sequence[float]) -> None:
    """Draw a bar from 0 to the bound, and the ledger's epsilon as a line across it."""
    axes.set_title("(b) black box: lower bound on ε", color=INK, fontsize=10)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    bounded = [audit for audit in audits if audit.lower_bound is not None]
    if not bounded:
        empty_panel(axes, NOT_TRIED)
        return
    for audit, middle in zip(audits, middles, strict=True):
        if audit.lower_bound is None or audit.epsilon is None:
            axes.text(0.02, middle, NOT_TRIED, va="center", fontsize=8, color=GREY, style="italic")
            continue
        marker, color, face = MARKS[audit.verdicts.get("blackbox", NO_POWER)]
        axes.plot([0, audit.lower_bound], [middle, middle], color=color, linewidth=2.2, zorder=3)
        look = {"marker": marker, "color": color, "markerfacecolor": face, "markersize": 5.5}
        axes.plot(audit.lower_bound, middle, **look, **IN_FRONT)
        if audit.transcript_bound is not None:
            axes.plot(audit.transcript_bound, middle, **DIAMOND, markersize=5.0, **IN_FRONT)
        ends = [middle - 0.36, middle + 0.36]
        axes.plot([audit.epsilon, audit.epsilon], ends, color=INK, linewidth=2.0, zorder=3)
    largest = max(
        max(audit.lower_bound or 0, audit.transcript_bound or 0, audit.epsilon or 0)
        for audit in bounded
    )
    axes.set_xlim(-0.03 * largest, 1.12 * largest)


def _legend(figure: Figure, has_bounds: bool) -> None:
    handles = [
        Line2D([], [], marker=marker, color=color, markerfacecolor=face, linestyle="none")
        for marker, color, face in MARKS.values()
    ]
    labels = list(MARKS)
    if has_bounds:
        handles.append(Line2D([], [], **DIAMOND, linestyle="none"))
        labels.append("from all releases (b)")
    handles.append(Line2D([], [], color=INK, linewidth=2.0, marker=None))
    labels.append("charged (a), ε of the ledger (b)" if has_bounds else "charged")
    figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=9)


def _numbers(audits: Sequence[Audit]) -> pd.DataFrame:
    """One line for each query, and one for each bound, in full precision."""
    lines = []
    for audit in audits:
        facts = {"method": audit.method, "variant": audit.variant}
        for query, ratio in audit.tightness.items():
            verdict = audit.query_verdicts.get(query, NO_POWER)
            lines.append(
                facts | {"view": "replay", "query": query, "value": ratio, "verdict": verdict}
            )
        if audit.lower_bound is not None:
            line = {"view": "blackbox", "value": audit.lower_bound, "ledger": audit.epsilon}
            lines.append(facts | line | {"verdict": audit.verdicts["blackbox"]})
        if audit.transcript_bound is not None:
            line = {"view": "transcripts", "value": audit.transcript_bound, "ledger": audit.epsilon}
            lines.append(facts | line | {"verdict": audit.verdicts["blackbox"]})
    columns = ["method", "variant", "view", "query", "value", "ledger", "verdict"]
    return pd.DataFrame(lines, columns=columns)


def _formatted(numbers: pd.DataFrame) -> pd.DataFrame:

    def spelled(column: str) -> list[str]:
        return [f"{value:.3g}" if pd.notna(value) else DASH for value in numbers[column]]

    return pd.DataFrame(
        {
            "method": numbers["method"],
            "variant": numbers["variant"],
            "adjacency": numbers["adjacency"].str.replace("_", "-"),
            "pairs": numbers["n_pairs"],
            "realized / charged": numbers["largest_ratio"].map(_ratio_text),
            "residuals": numbers["residuals"],
            "runs": numbers["n_runs"],
            "ε at least, by centers": spelled("lower_bound"),
            "by all releases": spelled("transcript_bound"),
            "of the ledger's": spelled("epsilon"),
            "verdict": numbers["verdict"],
            "flaws met": numbers["found_flaws"].replace("", DASH),
        }
    )


def _gaps(audits: Sequence[Audit]) -> tuple[str, ...]:
    """Say what was found and no registered flaw explains."""
    return tuple(
        f"{audit.name}: {found['view']}, {found['label']}: {found['message']}"
        for audit in audits
        for found in audit.findings
        if not found["flaw"]
    )
