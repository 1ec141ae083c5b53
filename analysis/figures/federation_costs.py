"""Table 3 of the FastLloyd paper and what this bench adds: time and bytes of its protocol, by clients and network."""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pkm.analysis import claims
from pkm.analysis.federation_costs import COSTS, PARTS, compare, costs, network, transports
from pkm.analysis.figures import FigureResult, FigureSpec
from pkm.analysis.figures.panels import NO_DATA, log_axis, say, wants_log
from pkm.analysis.figures.style import GREY, INK
from pkm.analysis.reported import NOT_COMPARABLE, NOT_STORED
from pkm.analysis.tables import METRIC_NAMES

PRINTED = claims.load("fastlloyd")["printed"]["table3"]
TITLES = {cell["dataset"]: cell["title"] for cell in PRINTED["cells"]}
CLIENTS, LATENCIES = (2, 4, 8), (0.25, 25.0)
_COLORS = dict(zip(PARTS, ("#0072b2", "#e69f00", "#009e73", "#9fd4f2", "#bdbdbd"), strict=True))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def _ordered(datasets):
    """Data sets in the order of Table 3, others after them."""
    known = [name for name in TITLES if name in set(datasets)]
    return known + sorted(set(datasets) - set(TITLES))


def _title(name):
    return TITLES.get(name, name)


def _runs(table):
    low, high = table["seeds"].min(), table["seeds"].max()
    return f"{high} runs" if low == high else f"{low} to {high} runs"


def _with_interval(mean, half_width, form="{:.4g}"):
    """Write ``mean ± half-width`` down to two digits of the half-width; the mean alone, in `form`, if there is none."""
    if not half_width > 0:
        return form.format(mean)
    places = max(1 - int(np.floor(np.log10(half_width))), 0)
    return f"{mean:.{places}f} ± {half_width:.{places}f}"


# --- tables ----------------------------------------------------------------------------------------------------------


def _table3(study):
    """Our times and bytes beside the printed and the quoted ones."""
    table = compare(study, PRINTED)
    stored = table[table["verdict"] != NOT_STORED]
    printed = pd.DataFrame([_line(cell, table) for cell in PRINTED["cells"]])
    caption = (
        "Two clients. Ours | printed: verdict, with our value over the printed one. Times: mean ± half width of the "
        "95 % interval (ours: Student t); faster or slower where they differ by more than both half-widths and half a "
        "printed digit. They come from another machine and other code, so a factor measures these together and no time "
        "counts as reproduced. Ours hold two simulated sends of 0.25 ms an iteration, one up and one down, while the "
        "authors' code sleeps 0.25 ms in all; the factor without latency leaves both out. Bytes of an iteration, all "
        "clients, both directions, must be equal. MohLloyd is quoted by the paper from its own authors, who give no "
        "value where a dash stands, and was run neither there nor here; speed-up and reduction divide its numbers by "
        "ours. A round is one message up and one down for every client."
    )
    if len(stored):
        caption += f" Ours: {transports(stored)}; {_runs(stored)}. "
        for quantity, name in (("iteration_ms", "Times"), ("bytes_per_iteration", "Bytes")):
            counts = stored.loc[stored["quantity"] == quantity, "verdict"].value_counts()
            caption += (
                f"{name}: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}. "
            )
    reasons = dict.fromkeys(stored.loc[stored["verdict"] == NOT_COMPARABLE, "reason"])
    caption += "".join(f"Not comparable (n. c.): {text}." for text in reasons)
    here = set(stored["dataset"])
    gaps = tuple(f"{title}: {NO_DATA}" for name, title in TITLES.items() if name not in here)
    return FigureResult(None, table, printed, caption.strip(), gaps)


def _line(cell, table):
    """One printed line of Table 3."""
    mine = table[table["dataset"] == cell["dataset"]].set_index("quantity")
    return {
        "data set": cell["title"],
        "ms per iteration": _beside(mine, "iteration_ms", "{:.4g}"),
        "MohLloyd ms (quoted)": cell.get("quoted_ms", "–"),
        "speed-up": _beside(mine, "speedup", "{:.4g}"),
        "bytes": _beside(mine, "bytes_per_iteration", "{:g}"),
        "MohLloyd bytes (quoted)": cell.get("quoted_bytes", "–"),
        "reduction": _beside(mine, "reduction", "{:.3g}"),
        "rounds": "–" if np.isnan(mine["rounds"].iloc[0]) else f"{mine['rounds'].iloc[0]:g}",
        "transport": mine["transport"].iloc[0] or "–",
    }


def _beside(mine, quantity, form):
    if quantity not in mine.index:
        return "–"
    line = mine.loc[quantity]
    if line["verdict"] == NOT_STORED:
        return f"– | {line['printed']}"
    ours = _with_interval(line["mean"], line["half_width"], form)
    text = f"{ours.replace('e+0', 'e')} | {line['printed']}: {line['verdict'].replace(NOT_COMPARABLE, 'n. c.')}"
    if quantity == "iteration_ms":
        text += f", ×{line['ratio']:.2f} (without latency ×{line['ratio_without_latency']:.2f})"
    return text


def _parties(study):
    """Every federated cell: time and bytes by network and number of clients."""
    table = costs(study)
    shown = [
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
    ]
    shown += ["word_bytes", "split", "transport", "iterations", "seeds"]
    shown += [name for cost in COSTS for name in (cost, f"{cost}_half_width")]
    caption = (
        "Milliseconds of an iteration, mean ± half width of the 95 % Student t interval over runs, and bytes of an "
        "iteration, all clients, both directions. LAN: every send waits 0.25 ms; WAN: 25 ms; all parties are on one "
        "host. The CSV has the parts of the time and the key agreement before the first iteration (setup_ms)."
    )
    wanted = [(latency, clients) for latency in LATENCIES for clients in CLIENTS]
    if not len(table):
        return FigureResult(
            None, table[shown], pd.DataFrame({"data set": []}), caption, (f"protocol: {NO_DATA}",)
        )
    times = zip(
        table["iteration_ms"],
        table["iteration_ms_half_width"],
        table["bytes_per_iteration"],
        strict=True,
    )
    text = table.assign(
        place=[_place(*pair) for pair in zip(table["latency_ms"], table["clients"], strict=True)],
        text=[
            f"{_with_interval(mean, half_width)} ms, {size:g} B" for mean, half_width, size in times
        ],
        word_bytes=table["word_bytes"].astype(int),
        dataset=pd.Categorical(table["dataset"], _ordered(table["dataset"])),
    ).sort_values(["method", "word_bytes", "dataset"], ascending=[True, False, True], kind="stable")
    keys = ["method", "dataset", "word_bytes", "split", "transport"]
    columns = [_place(*pair) for pair in wanted]
    columns += sorted(set(text["place"]) - set(columns))
    printed = text.pivot_table(
        index=keys, columns="place", values="text", aggfunc="first", sort=False, observed=True
    )
    printed = (
        printed.reindex(columns=[name for name in columns if name in printed])
        .fillna("–")
        .reset_index()
    )
    printed = printed.assign(dataset=[_title(name) for name in printed["dataset"]]).rename_axis(
        columns=None
    )
    printed = printed.rename(columns={"dataset": "data set", "word_bytes": "bytes a word"})
    caption += f" Parties: {transports(table)}; {_runs(table)}."
    return FigureResult(
        None,
        table[shown],
        printed,
        caption,
        _gaps(table[table["method"] == PRINTED["method"]], wanted),
    )


def _place(latency, clients):
    return f"{network(latency)}, {int(clients)} clients"


def _gaps(table, wanted):
    """Say which of the paper's data sets lack which network and number of clients."""
    gaps = []
    for latency, clients in wanted:
        here = table.loc[
            (table["latency_ms"] == latency) & (table["clients"] == clients), "dataset"
        ]
        absent = [title for name, title in TITLES.items() if name not in set(here)]
        if absent:
            names = (
                f"{len(absent)} of {len(TITLES)} data sets"
                if len(absent) > 2
                else "; ".join(absent)
            )
            gaps.append(f"{_place(latency, clients)}, {names}: {NO_DATA}")
    return tuple(gaps)


# --- figures ---------------------------------------------------------------------------------------------------------


def _main_cells(study):
    """FastLloyd with words of 8 bytes, and how these cells were run, in words."""
    table = costs(study)
    mine = table[
        (table["method"] == PRINTED["method"])
        & (table["word_bytes"] == 8)
        & (table["split"] == "balanced")
    ]
    # Where a cell was run both ways, processes come before threads.
    mine = mine.sort_values("transport", kind="stable").drop_duplicates(
        ["dataset", "clients", "latency_ms"]
    )
    taken = f"{transports(mine)}; {_runs(mine)} each" if len(mine) else ""
    return mine.reset_index(drop=True), taken


def _networks(figure, table):
    """Yield a panel, its title and its cells for LAN and WAN; a panel without cells says so."""
    axes = figure.subplots(1, 2)
    for place, (where, latency) in enumerate(zip(axes, LATENCIES, strict=True)):
        where.set_title(
            f"({chr(97 + place)}) {network(latency)}: every send waits {latency:g} ms", color=INK
        )
        mine = table[table["latency_ms"] == latency]
        if not len(mine):
            say(where, NO_DATA)
            continue
        yield where, mine


def _breakdown(study):
    """Stacked bars: where the time of an iteration goes."""
    table, taken = _main_cells(study)
    longest = max(
        (len(mine) + 0.7 * mine["dataset"].nunique() for _, mine in table.groupby("latency_ms")),
        default=8,
    )
    figure = Figure(figsize=(12.25, 1.6 + 0.21 * max(longest, 8)), layout="constrained")
    for axes, mine in _networks(figure, table):
        _bars(axes, mine, longest)
    if len(table):
        handles = [Patch(color=_COLORS[name]) for name in PARTS]
        labels = [METRIC_NAMES[name] for name in PARTS]
        figure.legend(handles, labels, loc="outside upper center", ncols=len(PARTS), fontsize=10)
        figure.supxlabel("ms per iteration", fontsize=11, color=INK)
    caption = (
        "Parts of an iteration, as means over the clients. Client: sums, counts and new centers, with the start shared "
        "out over the iterations; masking: putting masks on and taking them off; server: adding messages and noise "
        "(drawn ahead, while the clients work; its CPU time is in the table); waiting: for the slowest client; "
        "wire: the rest, transport and the simulated latency of two sends. Numbers "
        "and whiskers: the whole iteration with its 95 % Student t interval. The panels have different scales."
    )
    caption += f" Messages of 8-byte words, carried by {taken}." if taken else ""
    shown = table[
        ["sweep", "dataset", "n", "k", "d", "clients", "network", "transport", "seeds", *_numbers()]
    ]
    return FigureResult(figure, shown, _printed_parts(table), caption, _gaps(table, _pairs(table)))


def _numbers():
    return [
        name
        for cost in ("iteration_ms", *PARTS, "noise_ms")
        for name in (cost, f"{cost}_half_width")
    ]


def _pairs(table):
    """Networks and numbers of clients that some cell has, or the paper's two clients where there is none."""
    found = sorted(set(zip(table["latency_ms"], table["clients"].astype(int), strict=True)))
    return found or [(0.25, 2), (25.0, 2)]


def _bars(axes, cells, longest):
    """One bar per data set and number of clients, from the top down, data sets apart."""
    y, ticks, labels = 0.0, [], []
    reach = _reach(cells)
    for name in _ordered(cells["dataset"]):
        for place, line in enumerate(
            cells[cells["dataset"] == name].sort_values("clients").to_dict("records")
        ):
            start = 0.0
            for part in PARTS:
                # The rest can be a touch below zero where clocks disagree.
                width = max(line[part], 0)
                axes.barh(
                    y,
                    width,
                    0.82,
                    left=start,
                    color=_COLORS[part],
                    edgecolor="white",
                    linewidth=0.25,
                )
                start += width
            half_width = np.nan_to_num(line["iteration_ms_half_width"])
            axes.errorbar(
                line["iteration_ms"], y, xerr=half_width, color=INK, capsize=2, elinewidth=1
            )
            end = line["iteration_ms"] + half_width + 0.012 * reach
            axes.text(end, y, f"{line['iteration_ms']:#.3g}", va="center", fontsize=8, color=INK)
            clients = f"{int(line['clients'])} clients"
            labels.append(f"{_title(name)},  {clients}" if place == 0 else clients)
            ticks.append(y)
            y -= 1
        y -= 0.7
    axes.set_yticks(ticks, labels, fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_ylim(-max(longest, 8) + 0.3, 0.8)
    axes.set_xlim(0, 1.1 * reach)


def _reach(cells):
    """Upper end of the highest interval."""
    return (cells["iteration_ms"] + cells["iteration_ms_half_width"].fillna(0)).max()


def _printed_parts(table):
    titles = {"iteration_ms": "in all", **{name: METRIC_NAMES[name] for name in PARTS}}
    lines = [
        {
            "data set": _title(line["dataset"]),
            "network": line["network"],
            "clients": int(line["clients"]),
        }
        | {
            title: _with_interval(line[name], line[f"{name}_half_width"])
            for name, title in titles.items()
        }
        | {"transport": line["transport"]}
        for line in table.to_dict("records")
    ]
    return pd.DataFrame(
        lines, columns=["data set", "network", "clients", *titles.values(), "transport"]
    )


def _over_clients(study):
    """Time of an iteration over the number of clients, one line per data set."""
    table, taken = _main_cells(study)
    figure = Figure(figsize=(10.2, 4.6), layout="constrained")
    datasets = _ordered(table["dataset"])
    sizes = sorted(table["n"].unique())
    shades = dict(
        zip(sizes, colormaps["viridis"](np.linspace(0.0, 0.78, max(len(sizes), 1))), strict=False)
    )
    shapes = sorted(set(zip(table["k"], table["d"], strict=True)))
    markers = {shape: _MARKERS[i % len(_MARKERS)] for i, shape in enumerate(shapes)}
    looks = {}
    for axes, mine in _networks(figure, table):
        for name in datasets:
            line = mine[mine["dataset"] == name].sort_values("clients")
            if not len(line):
                continue
            first = line.iloc[0]
            looks[name] = {
                "color": shades[first["n"]],
                "marker": markers[first["k"], first["d"]],
                "linewidth": 1.6,
            }
            sized = "" if name.startswith("timesynth-") else f" (N {first['n']:,})"
            looks[name] |= {"markersize": 5, "label": _title(name) + sized}
            half_width = line["iteration_ms_half_width"].fillna(0)
            # Set a little apart, so that intervals do not cover each other.
            clients = line["clients"] * 2 ** (
                0.3 * (datasets.index(name) + 0.5) / len(datasets) - 0.15
            )
            axes.errorbar(
                clients, line["iteration_ms"], yerr=half_width, capsize=2.5, **looks[name]
            )
        axes.set_xscale("log", base=2)
        numbers = sorted(mine["clients"].unique())
        axes.set_xticks(numbers, [f"{value:g}" for value in numbers])
        axes.set_xlim(numbers[0] / 1.25, numbers[-1] * 1.25)
        axes.minorticks_off()
        axes.set_xlabel("clients")
        # Two sends an iteration, one up and one down.
        least = 2 * mine["latency_ms"].iloc[0]
        most = _reach(mine)
        axes.axhline(least, color=GREY, linestyle=":", linewidth=1.2, zorder=1)
        if wants_log(mine["iteration_ms"].to_numpy()):
            axes.set_yscale("log")
            axes.set_ylim(min(mine["iteration_ms"].min(), least) / 1.2, 1.2 * most)
            log_axis(axes.yaxis)
        else:
            axes.set_ylim(0, 1.05 * most)
    if looks:
        handles = [Line2D([], [], **looks[name]) for name in datasets if name in looks]
        handles.append(Line2D([], [], color=GREY, linestyle=":", label="simulated latency alone"))
        figure.legend(handles=handles, loc="outside right center", fontsize=9)
        figure.supylabel("ms per iteration", fontsize=11, color=INK)
    caption = (
        "Time of an iteration as clients join, with the same points dealt out to more of them. Color: number of "
        "points (darker: fewer); marker: clusters and dimensions. Bars: 95 % Student t intervals over runs. The time "
        "axis is logarithmic where times lie more than a factor 5 apart, else it starts at 0. All parties share one "
        "host, so more clients than cores compete for these: the slope is of that machine, not of the protocol."
    )
    caption += f" Carried by {taken}." if taken else ""
    shown = table[
        ["dataset", "n", "k", "d", "clients", "network", "transport", "seeds", *_numbers()[:2]]
    ]
    printed = _printed_parts(table)[["data set", "network", "clients", "in all", "transport"]]
    return FigureResult(figure, shown, printed, caption, _gaps(table, _pairs(table)))


TABLE3 = FigureSpec("table3", "Table 3: time and bytes of an iteration", True, _table3)
OWN = (
    FigureSpec("protocol_parties", "Time and bytes by clients, network and word", False, _parties),
    FigureSpec("protocol_parts", "Where the time of an iteration goes", False, _breakdown),
    FigureSpec(
        "protocol_clients", "Time of an iteration over the number of clients", False, _over_clients
    ),
)
