"""Table 3 of the FastLloyd paper: time and bytes of its protocol, by clients and network."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pkm.analysis import claims
from pkm.analysis.federation_costs import COSTS, PARTS, compare, costs, network, transports
from pkm.analysis.figures import FigureResult, FigureSpec
from pkm.analysis.figures.layout import (
    DASH,
    Titles,
    count_text,
    empty_panel,
    gap_texts,
    in_order,
    log_axis,
    panel_title,
    wants_log,
)
from pkm.analysis.figures.style import GREY, INK
from pkm.analysis.reported import NOT_COMPARABLE, NOT_STORED
from pkm.analysis.tables import Study
from pkm.schema import label_of

REPORTED = claims.load("fastlloyd")["reported"]["table3"]
TITLES = Titles({cell["dataset"]: cell["title"] for cell in REPORTED["cells"]})
CLIENTS = (2, 4, 8)
LATENCIES = (0.25, 25.0)
MIN_ROWS = 8  # of a panel of bars
_COLORS = dict(zip(PARTS, ("#0072b2", "#e69f00", "#009e73", "#9fd4f2", "#bdbdbd"), strict=True))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def _with_interval(mean: float, half_width: float, form: str = "{:.4g}") -> str:
    """Write ``mean ± half-width`` down to two digits of the half-width.

    The mean alone, in `form`, if there is no half-width.
    """
    if not half_width > 0:
        return form.format(mean)
    places = max(1 - int(np.floor(np.log10(half_width))), 0)
    return f"{mean:.{places}f} ± {half_width:.{places}f}"


# --- tables -------------------------------------------------------------------------------------


def _table3(study: Study) -> FigureResult:
    """Measured times and bytes, the reported ones and the quoted ones."""
    table = compare(study, REPORTED)
    stored = table[table["verdict"] != NOT_STORED]
    formatted = pd.DataFrame([_table3_line(cell, table) for cell in REPORTED["cells"]])
    caption = (
        "Two clients. Measured | reported: verdict, with the measured value over the reported one. "
        "Times: mean ± half width of the 95 % interval (measured: Student t); faster or slower "
        "where they differ by more than both half-widths and half a reported digit. They come from "
        "another machine and other code, so a factor measures these together and no time counts as "
        "reproduced. The measured ones hold two simulated sends of 0.25 ms an iteration, one up "
        "and one down, while the authors' code sleeps 0.25 ms in all; the factor without latency "
        "leaves both out. Bytes of an iteration, all clients, both directions, must be equal. "
        "MohLloyd is quoted by the paper from its own authors, who give no value where a dash "
        "stands, and was run neither there nor here; speed-up and reduction divide its numbers by "
        "the measured ones. A round is one message up and one down for every client."
    )
    if len(stored):
        caption += f" Measured: {transports(stored)}; {count_text(stored['seeds'], 'runs')}. "
        for quantity, name in (("iteration_ms", "Times"), ("bytes_per_iteration", "Bytes")):
            counts = stored.loc[stored["quantity"] == quantity, "verdict"].value_counts()
            listed = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
            caption += f"{name}: {listed}. "
    reasons = dict.fromkeys(stored.loc[stored["verdict"] == NOT_COMPARABLE, "reason"])
    caption += "".join(f"Not comparable (n. c.): {text}." for text in reasons)
    present = set(stored["dataset"])
    gaps = gap_texts(title for name, title in TITLES.items() if name not in present)
    return FigureResult(None, table, formatted, caption.strip(), gaps)


def _table3_line(cell: Mapping[str, Any], table: pd.DataFrame) -> dict[str, str]:
    """Lay out one line of Table 3."""
    quantities = table[table["dataset"] == cell["dataset"]].set_index("quantity")
    rounds = quantities["rounds"].iloc[0]
    return {
        "data set": cell["title"],
        "ms per iteration": _measured_and_reported(quantities, "iteration_ms", "{:.4g}"),
        "MohLloyd ms (quoted)": cell.get("cited_ms", DASH),
        "speed-up": _measured_and_reported(quantities, "speedup", "{:.4g}"),
        "bytes": _measured_and_reported(quantities, "bytes_per_iteration", "{:g}"),
        "MohLloyd bytes (quoted)": cell.get("cited_bytes", DASH),
        "reduction": _measured_and_reported(quantities, "reduction", "{:.3g}"),
        "rounds": DASH if np.isnan(rounds) else f"{rounds:g}",
        "transport": quantities["transport"].iloc[0] or DASH,
    }


def _measured_and_reported(quantities: pd.DataFrame, quantity: str, form: str) -> str:
    if quantity not in quantities.index:
        return DASH
    line = quantities.loc[quantity]
    if line["verdict"] == NOT_STORED:
        return f"{DASH} | {line['reported']}"
    measured = _with_interval(line["mean"], line["half_width"], form).replace("e+0", "e")
    verdict = line["verdict"].replace(NOT_COMPARABLE, "n. c.")
    text = f"{measured} | {line['reported']}: {verdict}"
    if quantity == "iteration_ms":
        text += f", ×{line['ratio']:.2f} (without latency ×{line['ratio_without_latency']:.2f})"
    return text


COST_COLUMNS = [
    "sweep",
    "method",
    "dataset",
    "n",
    "k",
    "d",
    "epsilon",
    "clients",
    "network",
    "latency_ms",
    "word_bytes",
    "split",
    "transport",
    "iterations",
    "seeds",
    *(column for cost in COSTS for column in (cost, f"{cost}_half_width")),
]


def _parties(study: Study) -> FigureResult:
    """Every federated cell: time and bytes by network and number of clients."""
    table = costs(study)
    caption = (
        "Milliseconds of an iteration, mean ± half width of the 95 % Student t interval over runs, "
        "and bytes of an iteration, all clients, both directions. LAN: every send waits 0.25 ms; "
        "WAN: 25 ms; all parties are on one host. The CSV has the parts of the time and the key "
        "agreement before the first iteration (setup_ms)."
    )
    if not len(table):
        formatted = pd.DataFrame({"data set": []})
        gaps = gap_texts(["protocol"])
        return FigureResult(None, table[COST_COLUMNS], formatted, caption, gaps)
    caption += f" Parties: {transports(table)}; {count_text(table['seeds'], 'runs')}."
    wanted = [(latency, clients) for latency in LATENCIES for clients in CLIENTS]
    gaps = _gaps(table[table["method"] == REPORTED["method"]], wanted)
    formatted = _format_parties(table, wanted)
    return FigureResult(None, table[COST_COLUMNS], formatted, caption, gaps)


def _format_parties(table: pd.DataFrame, wanted: list[tuple[float, int]]) -> pd.DataFrame:
    """Format costs for the report, one column per network and number of clients."""
    texts = [
        f"{_with_interval(row.iteration_ms, row.iteration_ms_half_width)} ms, "
        f"{row.bytes_per_iteration:g} B"
        for row in table.itertuples()
    ]
    table = table.assign(
        setting=[_setting(row.latency_ms, row.clients) for row in table.itertuples()],
        text=texts,
        word_bytes=table["word_bytes"].astype(int),
        dataset=pd.Categorical(table["dataset"], in_order(table["dataset"], TITLES)),
    ).sort_values(["method", "word_bytes", "dataset"], ascending=[True, False, True], kind="stable")
    keys = ["method", "dataset", "word_bytes", "split", "transport"]
    settings = in_order(table["setting"], [_setting(*pair) for pair in wanted])
    formatted = table.pivot_table(
        index=keys, columns="setting", values="text", aggfunc="first", sort=False, observed=True
    )
    formatted = formatted[settings].fillna(DASH).reset_index().rename_axis(columns=None)
    formatted["dataset"] = [TITLES[name] for name in formatted["dataset"]]
    return formatted.rename(columns={"dataset": "data set", "word_bytes": "bytes a word"})


def _setting(latency: float, clients: float) -> str:
    return f"{network(latency)}, {int(clients)} clients"


def _gaps(table: pd.DataFrame, wanted: list[tuple[float, int]]) -> tuple[str, ...]:
    """Say which of the paper's data sets lack which network and number of clients."""
    gaps = []
    for latency, clients in wanted:
        stored = (table["latency_ms"] == latency) & (table["clients"] == clients)
        present = set(table.loc[stored, "dataset"])
        absent = [title for name, title in TITLES.items() if name not in present]
        if absent:
            several = f"{len(absent)} of {len(TITLES)} data sets"
            names = several if len(absent) > 2 else "; ".join(absent)
            gaps.append(f"{_setting(latency, clients)}, {names}")
    return gap_texts(gaps)


# --- figures ------------------------------------------------------------------------------------


def _main_cells(study: Study) -> tuple[pd.DataFrame, str]:
    """Return FastLloyd with words of 8 bytes, and how these cells were run, in words."""
    table = costs(study)
    chosen = table[
        (table["method"] == REPORTED["method"])
        & (table["word_bytes"] == 8)
        & (table["split"] == "balanced")
    ]
    # Where a cell was run with both transports, processes come before threads.
    chosen = chosen.sort_values("transport", kind="stable")
    chosen = chosen.drop_duplicates(["dataset", "clients", "latency_ms"])
    if not len(chosen):
        return chosen.reset_index(drop=True), ""
    how = f"{transports(chosen)}; {count_text(chosen['seeds'], 'runs')} each"
    return chosen.reset_index(drop=True), how


def _networks(figure: Figure, table: pd.DataFrame) -> Iterator[tuple[Axes, pd.DataFrame]]:
    """Yield a panel and its cells for LAN and WAN; a panel without cells says so."""
    grid = figure.subplots(1, 2)
    for index, (axes, latency) in enumerate(zip(grid, LATENCIES, strict=True)):
        title = f"{network(latency)}: every send waits {latency:g} ms"
        panel_title(axes, index, title, fontsize=11)
        cells = table[table["latency_ms"] == latency]
        if len(cells):
            yield axes, cells
        else:
            empty_panel(axes)


def _breakdown(study: Study) -> FigureResult:
    """Stacked bars: where the time of an iteration goes."""
    table, how = _main_cells(study)
    lengths = [
        len(cells) + 0.7 * cells["dataset"].nunique() for _, cells in table.groupby("latency_ms")
    ]
    length = max([*lengths, MIN_ROWS])
    figure = Figure(figsize=(12.25, 1.6 + 0.21 * length), layout="constrained")
    for axes, cells in _networks(figure, table):
        _bars(axes, cells, length)
    if len(table):
        handles = [Patch(color=_COLORS[name]) for name in PARTS]
        labels = [label_of(name) for name in PARTS]
        figure.legend(handles, labels, loc="outside upper center", ncols=len(PARTS), fontsize=10)
        figure.supxlabel("ms per iteration", fontsize=11, color=INK)
    caption = (
        "Parts of an iteration, as means over the clients. Client: sums, counts and new centers, "
        "with the start shared out over the iterations; masking: putting masks on and taking them "
        "off; server: adding messages and noise (drawn ahead, while the clients work; its CPU time "
        "is in the table); waiting: for the slowest client; wire: the rest, transport and the "
        "simulated latency of two sends. Numbers and whiskers: the whole iteration with its 95 % "
        "Student t interval. The panels have different scales."
    )
    caption += f" Messages of 8-byte words, carried by {how}." if how else ""
    costs_shown = ["iteration_ms", *PARTS, "noise_ms"]
    columns = ["sweep", "dataset", "n", "k", "d", "clients", "network", "transport", "seeds"]
    columns += [column for cost in costs_shown for column in (cost, f"{cost}_half_width")]
    gaps = _gaps(table, _stored_settings(table))
    return FigureResult(figure, table[columns], _format_parts(table), caption, gaps)


def _stored_settings(table: pd.DataFrame) -> list[tuple[float, int]]:
    """Return networks and numbers of clients with a cell.

    The paper's two clients where there is none.
    """
    stored = sorted(set(zip(table["latency_ms"], table["clients"].astype(int), strict=True)))
    return stored or [(0.25, 2), (25.0, 2)]


def _bars(axes: Axes, cells: pd.DataFrame, length: float) -> None:
    """Draw one bar per data set and number of clients, from the top down."""
    y = 0.0
    ticks = []
    labels = []
    highest = _highest(cells)
    for name in in_order(cells["dataset"], TITLES):
        subset = cells[cells["dataset"] == name].sort_values("clients")
        for index, line in enumerate(subset.to_dict("records")):
            _stacked_bar(axes, y, line)
            half_width = np.nan_to_num(line["iteration_ms_half_width"])
            total = line["iteration_ms"]
            axes.errorbar(total, y, xerr=half_width, color=INK, capsize=2, elinewidth=1)
            end = total + half_width + 0.012 * highest
            axes.text(end, y, f"{total:#.3g}", va="center", fontsize=8, color=INK)
            clients = f"{int(line['clients'])} clients"
            labels.append(f"{TITLES[name]},  {clients}" if index == 0 else clients)
            ticks.append(y)
            y -= 1
        y -= 0.7
    axes.set_yticks(ticks, labels, fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_ylim(-length + 0.3, 0.8)
    axes.set_xlim(0, 1.1 * highest)


def _stacked_bar(axes: Axes, y: float, line: Mapping[str, Any]) -> None:
    start = 0.0
    for part in PARTS:
        # The rest can be slightly below zero where clocks disagree.
        width = max(line[part], 0)
        color = _COLORS[part]
        axes.barh(y, width, 0.82, left=start, color=color, edgecolor="white", linewidth=0.25)
        start += width


def _highest(cells: pd.DataFrame) -> float:
    """Return the upper end of the highest interval."""
    return (cells["iteration_ms"] + cells["iteration_ms_half_width"].fillna(0)).max()


def _format_parts(table: pd.DataFrame) -> pd.DataFrame:
    titles = {"iteration_ms": "in all", **{name: label_of(name) for name in PARTS}}
    lines = []
    for cell in table.to_dict("records"):
        line = {"data set": TITLES[cell["dataset"]], "network": cell["network"]}
        line["clients"] = int(cell["clients"])
        for name, title in titles.items():
            line[title] = _with_interval(cell[name], cell[f"{name}_half_width"])
        line["transport"] = cell["transport"]
        lines.append(line)
    columns = ["data set", "network", "clients", *titles.values(), "transport"]
    return pd.DataFrame(lines, columns=columns)


def _over_clients(study: Study) -> FigureResult:
    """Time of an iteration over the number of clients, one line per data set."""
    table, how = _main_cells(study)
    figure = Figure(figsize=(10.2, 4.6), layout="constrained")
    lines = _dataset_lines(table)
    for axes, cells in _networks(figure, table):
        _draw_over_clients(axes, cells, lines)
    if lines:
        handles = [Line2D([], [], **line) for line in lines.values()]
        handles.append(Line2D([], [], color=GREY, linestyle=":", label="simulated latency alone"))
        figure.legend(handles=handles, loc="outside right center", fontsize=9)
        figure.supylabel("ms per iteration", fontsize=11, color=INK)
    caption = (
        "Time of an iteration as clients join, with the same points dealt out to more of them. "
        "Color: number of points (darker: fewer); marker: clusters and dimensions. Bars: 95 % "
        "Student t intervals over runs. The time axis is logarithmic where times lie more than a "
        "factor 5 apart, else it starts at 0. All parties share one host, so more clients than "
        "cores compete for these: the slope is of that machine, not of the protocol."
    )
    caption += f" Carried by {how}." if how else ""
    columns = ["dataset", "n", "k", "d", "clients", "network", "transport", "seeds"]
    columns += ["iteration_ms", "iteration_ms_half_width"]
    formatted = _format_parts(table)[["data set", "network", "clients", "in all", "transport"]]
    gaps = _gaps(table, _stored_settings(table))
    return FigureResult(figure, table[columns], formatted, caption, gaps)


def _dataset_lines(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return keywords of a curve by data set.

    Color by number of points, marker by clusters and dimensions.
    """
    sizes = sorted(table["n"].unique())
    shades = colormaps["viridis"](np.linspace(0.0, 0.78, max(len(sizes), 1)))
    colors = dict(zip(sizes, shades, strict=False))
    shapes = sorted(set(zip(table["k"], table["d"], strict=True)))
    markers = {shape: _MARKERS[i % len(_MARKERS)] for i, shape in enumerate(shapes)}
    drawn = table[table["latency_ms"].isin(LATENCIES)]
    facts = drawn.drop_duplicates("dataset").set_index("dataset")
    lines = {}
    for name in in_order(drawn["dataset"], TITLES):
        n, k, d = facts.loc[name, ["n", "k", "d"]]
        size = "" if name.startswith("timesynth-") else f" (N {n:,})"
        lines[name] = {
            "color": colors[n],
            "marker": markers[k, d],
            "linewidth": 1.6,
            "markersize": 5,
            "label": TITLES[name] + size,
        }
    return lines


def _draw_over_clients(
    axes: Axes, cells: pd.DataFrame, lines: Mapping[str, Mapping[str, Any]]
) -> None:
    for index, (name, line) in enumerate(lines.items()):
        curve = cells[cells["dataset"] == name].sort_values("clients")
        # Moved a little, so that intervals do not cover each other.
        clients = curve["clients"] * 2 ** (0.3 * (index + 0.5) / len(lines) - 0.15)
        half_width = curve["iteration_ms_half_width"].fillna(0)
        if len(curve):
            axes.errorbar(clients, curve["iteration_ms"], yerr=half_width, capsize=2.5, **line)
    numbers = sorted(cells["clients"].unique())
    axes.set_xscale("log", base=2)
    axes.set_xticks(numbers, [f"{value:g}" for value in numbers])
    axes.set_xlim(numbers[0] / 1.25, numbers[-1] * 1.25)
    axes.minorticks_off()
    axes.set_xlabel("clients")
    # Two sends an iteration, one up and one down.
    latency = 2 * cells["latency_ms"].iloc[0]
    axes.axhline(latency, color=GREY, linestyle=":", linewidth=1.2, zorder=1)
    highest = _highest(cells)
    if wants_log(cells["iteration_ms"].to_numpy()):
        axes.set_yscale("log")
        axes.set_ylim(min(cells["iteration_ms"].min(), latency) / 1.2, 1.2 * highest)
        log_axis(axes.yaxis)
    else:
        axes.set_ylim(0, 1.05 * highest)


TABLE3 = FigureSpec("table3", "Table 3: time and bytes of an iteration", True, _table3)
FURTHER_FIGURES = (
    FigureSpec("protocol_parties", "Time and bytes by clients, network and word", False, _parties),
    FigureSpec("protocol_parts", "Where the time of an iteration goes", False, _breakdown),
    FigureSpec(
        "protocol_clients", "Time of an iteration over the number of clients", False, _over_clients
    ),
)
