"""Tables and figures of the MUFC paper, and latencies, speed-ups and bytes."""

import math
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pkm.analysis import claims, reported
from pkm.analysis.figures import FigureResult, FigureSpec
from pkm.analysis.removals import SPEEDUP_DEFINITIONS, View, curves, series, speedups
from pkm.analysis.render.layout import (
    DASH,
    Titles,
    count_text,
    empty_panel,
    gap_texts,
    in_order,
    log_axis,
    mean_text,
    panel_grid,
    panel_title,
    times_text,
    wants_log,
)
from pkm.analysis.render.style import GREY, INK, MethodStyles
from pkm.analysis.tables import (
    Panel,
    Study,
    column_statistics,
    percentile_interval,
    resampled_means,
    resampling_weights,
    standard_deviations,
)

CONTENT = claims.load("mufc")
REPORTED = CONTENT["reported"]
TITLES = Titles({line["dataset"]: line["title"] for line in REPORTED["sizes"]})
PUBLISHED = ("mufc", "k_fed", "dc_kmeans")
TIMED = ("mufc", "mufc_lazy", "dc_kmeans")
LOSS_METHODS = (*PUBLISHED, "mufc_points", "mufc_full")
MIN_DATASETS = 4  # of Figure 4
BATCHES = (("celltype", 10), ("celltype", 30), ("gaussian-10", 10), ("gaussian-10", 30))
# Quantiles of a request: name and marker.
QUANTILES = {"p50": "|", "p95": "o", "p99": "s", "max": ">"}
QUANTILE_TITLES = {"p50": "median", "p95": "95 %", "p99": "99 %", "max": "longest"}
RETRAINING = {
    "color": GREY,
    "linestyle": (0, (5, 1.5)),
    "linewidth": 1.6,
    "label": "complete retraining (MUFC)",
}
DEFAULT_GAMMA = {
    "color": "#d55e00",
    "linestyle": (0, (4, 2)),
    "linewidth": 1.2,
    "label": "default γ = 1/√n",
}
# Color and marker of each definition of the speed-up.
SPEEDUPS = {
    "best": ("#9fd4f2", "^"),
    "average": ("#56b4e9", "o"),
    "refit": ("#e69f00", "s"),
    "exact": ("#009e73", "D"),
    "dc_kmeans": ("#0072b2", "v"),
}
WHITE_DIAMOND = {"color": INK, "marker": "D", "markerfacecolor": "white", "linestyle": ""}
ALL_CLUSTERS = "K a client"
FEW_CLUSTERS = "K' a client"
LOSS_ROWS = (*((method, ALL_CLUSTERS) for method in LOSS_METHODS), ("k_fed", FEW_CLUSTERS))
LAZY_METRICS = (
    "removal_mean_ms",
    "loss_ratio",
    "loss_ratio_after",
    "loss_ratio_after_nearest",
    "reseeded",
    "reseeded_predicted",
    "deletions_per_second",
)
MESSAGE_METRICS = (
    "sparse_bytes",
    "plain_bytes",
    "sparse_encode_ms",
    "sparse_mask_ms",
    "sparse_decode_ms",
    "sparse_attempts",
)
CLOCK = (
    "Seconds of a request are those of its client and of the server; clients play in turn in one "
    "process, on one thread. No network, no secure aggregation"
)
ANEW = "dashed grey is what it had taken to fit anew at every request"


def _gaps(present: Iterable[str], wanted: Iterable[str] = tuple(TITLES)) -> tuple[str, ...]:
    stored = set(present)
    return gap_texts(TITLES[name] for name in wanted if name not in stored)


def _summary(panel: Panel) -> pd.DataFrame:
    """Return mean, deviation (n - 1) and seeds of every cell."""
    mean, _, _, seeds = column_statistics(panel.values)
    return panel.cells.assign(mean=mean, deviation=standard_deviations(panel.values), seeds=seeds)


def _two_line_label(styles: MethodStyles, method: str) -> str:
    return styles.label(method).replace(" (", "\n(")


# --- tables of the paper ------------------------------------------------------------------------


def _loss_table(number: int, methods: Sequence[str]) -> Callable[[Study], FigureResult]:
    printed = REPORTED[f"table{number}"]
    table1 = REPORTED["table1"]["cells"]
    repeated = [cell for cell in table1 if number == 2 and cell["method"] != "mufc"]
    # Two kinds of server data, one reported number.
    mufc = [cell for cell in printed["cells"] if cell["method"] == "mufc"]
    points = [cell | {"method": "mufc_points"} for cell in mufc]
    cells = [*printed["cells"], *points, *repeated]
    sweeps = list(dict.fromkeys([*printed["sweeps"], "table1"]))

    def draw(study: Study) -> FigureResult:
        styles = MethodStyles(study.cells)
        table = reported.compare(View(study), printed | {"cells": cells, "sweeps": sweeps})
        table = table.assign(table=number)
        lines = []
        for name, title in TITLES.items():
            by_method = table[table["dataset"] == name].set_index("method")
            line = {"data set": title}
            line |= {styles.label(method): _loss_text(by_method.loc[method]) for method in methods}
            lines.append(line)
        if number == 1:
            _add_speedups(lines, study)
        counts = table["verdict"].value_counts()
        caption = (
            "Induced cost over that of the best of 20 k-means starts. Measured (mean ± "
            "standard deviation over seeds) | reported, and the verdict: within (two standard "
            "errors of both and half a reported digit, where a reported deviation counts half a "
            "digit more), better or worse. "
            f"{'; '.join(f'{count} {name}' for name, count in counts.items())}. "
        )
        if number == 1:
            caption += (
                "MUFC clusters weighted bin centers at the server; with random points in the bins, "
                "as in the published code, it is judged against the same reported number. "
                "Speed-up: the paper's best case, lazy server against full retraining, on another "
                "machine and in other code; see the figure of speed-ups. "
            )
        else:
            caption += "K-FED and DC-KMeans are those of Table 1. "
        notes = [f"{TITLES[note['datasets'][0]]}: {note['reason']}. " for note in printed["notes"]]
        caption = f"{caption}{''.join(notes)}".strip()
        stored = table.loc[table["seeds"] > 0, "dataset"]
        return FigureResult(None, table, pd.DataFrame(lines), caption, _gaps(stored))

    return draw


def _add_speedups(lines: Sequence[dict[str, str]], study: Study) -> None:
    """Add the speed-up in the paper's best case to the lines of Table 1."""
    table = speedups(study)
    measured = table[table["definition"] == "best"].set_index("dataset")["speedup"]
    for line, name in zip(lines, TITLES, strict=True):
        ours = f"{times_text(measured[name])}x" if name in measured.index else DASH
        line["speed-up of MUFC, no seed touched"] = f"{ours} | {REPORTED['speedups'][name]}x"


def _loss_text(line: pd.Series) -> str:
    short = {reported.WITHIN: "within", reported.NOT_STORED: "not run"}
    verdict = short.get(line["verdict"], line["verdict"])
    return f"{mean_text(line['mean'], line['deviation'], '{:.3f}')} | {line['reported']}: {verdict}"


def _sizes(study: Study) -> FigureResult:
    """Data sets as reported and as stored."""
    cells = View(study).panel("table1", "loss_ratio").cells
    stored = cells.drop_duplicates("dataset").set_index("dataset")
    columns = {"n": "n", "d": "d", "k": "K", "clients": "clients"}
    lines = []
    for size in REPORTED["sizes"]:
        known = size["dataset"] in stored.index
        cell = stored.loc[size["dataset"]] if known else {}
        line = {"data set": size["title"]}
        line |= {f"{title} (paper)": size[name] for name, title in columns.items()}
        line |= {
            f"{title} (here)": f"{cell[name]:g}" if known else DASH
            for name, title in columns.items()
        }
        largest = cell["largest_client"] if known else np.nan
        lines.append(line | {"largest client": mean_text(largest, form="{:g}")})
    caption = (
        "Points, dimensions, clusters and clients of the data sets, as reported and as used here."
    )
    table = pd.DataFrame(lines)
    return FigureResult(None, table, table, caption, _gaps(stored.index))


# --- figures of the paper -----------------------------------------------------------------------


def _band(axes: Axes, curve: pd.DataFrame, x: str, positive: bool = False, **line: Any) -> None:
    """Draw a curve with a band of one standard deviation."""
    mean = curve["mean"].to_numpy(dtype=float)
    deviation = np.nan_to_num(curve["deviation"].to_numpy(dtype=float))
    position = curve[x].to_numpy(dtype=float)
    axes.plot(position, mean, **line)
    low = np.maximum(mean - deviation, mean / 3) if positive else mean - deviation
    axes.fill_between(position, low, mean + deviation, color=line["color"], alpha=0.16, linewidth=0)


def _timed_lines(study: Study) -> dict[str, dict[str, Any]]:
    return MethodStyles(study.cells).lines(TIMED, markersize=3.5)


def _checkpoints(study: Study, requests: str, batch: int) -> pd.DataFrame:
    table = series(study)
    return table[(table["requests"] == requests) & (table["batch"] == batch)]


def _accumulated(
    axes: Axes, checkpoints: pd.DataFrame, dataset: str, lines: Mapping[str, Mapping[str, Any]]
) -> pd.DataFrame:
    """Draw accumulated seconds of the methods on one data set; return the numbers drawn."""
    subset = checkpoints[checkpoints["dataset"] == dataset]
    by_method = {method: subset[subset["method"] == method] for method in TIMED}
    pairs = [(curves(by_method[name], "accumulated_s"), lines[name]) for name in TIMED]
    pairs.append((curves(by_method["mufc"], "retrain_s"), RETRAINING))
    drawn = []
    for curve, line in pairs:
        curve = curve[(curve["mean"] > 0) & (curve["request"] > 0)]
        if len(curve):
            _band(axes, curve, "request", positive=True, **line)
            drawn.append(curve)
    if not drawn:
        empty_panel(axes)
        return pd.DataFrame()
    axes.set_yscale("log")
    axes.set_xlabel("requests", fontsize=9)
    axes.set_ylabel("accumulated s", fontsize=9)
    log_axis(axes.yaxis)
    return pd.concat(drawn, ignore_index=True)


def _loss_over_requests(
    axes: Axes, checkpoints: pd.DataFrame, dataset: str, lines: Mapping[str, Mapping[str, Any]]
) -> pd.DataFrame:
    """Draw the loss ratio over requests of the methods on one data set."""
    subset = checkpoints[checkpoints["dataset"] == dataset]
    drawn = []
    for method in TIMED:
        curve = curves(subset[subset["method"] == method], "loss_ratio")
        curve = curve[np.isfinite(curve["mean"].astype(float))]
        if len(curve):
            _band(axes, curve, "request", **lines[method])
            drawn.append(curve)
    if not drawn:
        empty_panel(axes)
        return pd.DataFrame()
    axes.set_xlabel("requests", fontsize=9)
    axes.set_ylabel("loss ratio", fontsize=9)
    return pd.concat(drawn, ignore_index=True)


def _loss_over_setting(
    axes: Axes, study: Study, sweep: str, dataset: str, column: str, label: str
) -> pd.DataFrame:
    """Draw the loss ratio of MUFC over a setting, for both assignments of points."""
    line = _timed_lines(study)["mufc"]
    drawn = []
    for metric, linestyle in (("loss_ratio", "-"), ("loss_ratio_nearest", ":")):
        table = _summary(View(study).panel(sweep, metric))
        if not len(table):
            continue
        chosen = (table["dataset"] == dataset) & (table["method"] == "mufc")
        curve = table[chosen].dropna(subset=[column]).sort_values(column)
        if len(curve):
            _band(axes, curve, column, **(line | {"linestyle": linestyle}))
            columns = ["dataset", "method", column, "mean", "deviation", "seeds"]
            curve = curve[columns].rename(columns={"seeds": "runs"})
            drawn.append(curve.assign(quantity=metric))
    if not drawn:
        empty_panel(axes)
        return pd.DataFrame()
    axes.set_xlabel(label, fontsize=9)
    axes.set_ylabel("loss ratio", fontsize=9)
    table = pd.concat(drawn, ignore_index=True)
    if wants_log(table["mean"].to_numpy()):
        axes.set_yscale("log")
        log_axis(axes.yaxis)
    return table


def _legend(
    figure: Figure, lines: Mapping[str, Mapping[str, Any]], extra: Sequence[Line2D] = ()
) -> None:
    handles = [Line2D([], [], **line) for line in lines.values()]
    handles += [Line2D([], [], **RETRAINING), *extra]
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=len(handles),
        fontsize=9.5,
        columnspacing=1.3,
    )


def _concat_panels(parts: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the numbers of panels under their letters, and their ends, formatted."""
    lettered = [
        part.assign(panel=letter)
        for part, letter in zip(parts, string.ascii_lowercase, strict=False)
        if len(part)
    ]
    if not lettered:
        return pd.DataFrame(columns=["panel"]), pd.DataFrame(columns=["panel"])
    table = pd.concat(lettered, ignore_index=True)
    table = table[["panel", *table.columns.drop("panel")]]
    keys = [name for name in ("panel", "dataset", "method", "quantity") if name in table]
    ends = table.groupby(keys, sort=False)["mean"].agg(first="first", last="last").reset_index()
    texts = {name: ends[name].map("{:.4g}".format) for name in ("first", "last")}
    return table, ends.assign(**texts)


def _runs_text(parts: Iterable[pd.DataFrame]) -> str:
    return count_text(runs for part in parts if len(part) for runs in part["runs"])


def _figure3(study: Study) -> FigureResult:
    """Settings, loss during unlearning, accumulated times."""
    figure, grid = panel_grid(12, 4, height=2.5)
    lines = _timed_lines(study)
    random = _checkpoints(study, "random", 1)
    adversarial = _checkpoints(study, "adversarial", 1)
    dataset = next(iter(in_order(random["dataset"], TITLES)), "celltype")
    titles = ["clusters per client, Gaussian", "side of bins, Gaussian", "side of bins, Celltype"]
    titles += [f"loss while unlearning, {TITLES[dataset]}", f"adversarial, {TITLES['tmi']}"]
    titles += [f"random, {title}" for title in TITLES.values()]
    for index, (axes, title) in enumerate(zip(grid, titles, strict=True)):
        panel_title(axes, index, title)
    gamma = ("gamma_factor", "γ √n")
    parts = [
        _loss_over_setting(
            grid[0], study, "heterogeneity", "gaussian-10", "clusters_per_client", "K'"
        ),
        _loss_over_setting(grid[1], study, "gamma", "gaussian-10", *gamma),
        _loss_over_setting(grid[2], study, "gamma", "celltype", *gamma),
        _loss_over_requests(grid[3], random, dataset, lines),
        _accumulated(grid[4], adversarial, "tmi", lines),
    ]
    for axes, name in zip(grid[5:], TITLES, strict=True):
        parts.append(_accumulated(axes, random, name, lines))
    for axes, part in zip(grid[1:3], parts[1:3], strict=True):
        if len(part):
            axes.set_xscale("log", base=2)
            axes.axvline(1, zorder=1, **DEFAULT_GAMMA)
    nearest = lines["mufc"] | {"linestyle": ":", "label": "MUFC, nearest centers"}
    _legend(figure, lines, [Line2D([], [], **nearest), Line2D([], [], **DEFAULT_GAMMA)])
    caption = (
        "(a) to (d): induced cost over the optimum; (a) to (c) solid, with the cost "
        "by nearest centers dotted. (a): the most clusters that a client holds points of, of 10; "
        "the data set is inferred. (b), (c): the side of the bins over 1/√n. (d): on what is left, "
        "against an optimum found anew at every checkpoint (3 starts); the paper does not name its "
        f"set. (e) to (l): seconds of all requests so far, logarithmic; {ANEW}. {CLOCK}. Bands: "
        f"one standard deviation over {_runs_text(parts)}, on the logarithmic axes not below a "
        "third of the mean."
    )
    table, ends = _concat_panels(parts)
    gaps = gap_texts(
        f"({letter}) {title}"
        for letter, title, part in zip(string.ascii_lowercase, titles, parts, strict=False)
        if part.empty
    )
    return FigureResult(figure, table, ends, caption, gaps)


def _figure4(study: Study) -> FigureResult:
    """Loss while unlearning and adversarial times on four sets."""
    lines = _timed_lines(study)
    random = _checkpoints(study, "random", 1)
    adversarial = _checkpoints(study, "adversarial", 1)
    present = in_order([*random["dataset"], *adversarial["dataset"]], TITLES)
    absent = [name for name in TITLES if name not in present]
    names = [*present, *absent][: max(MIN_DATASETS, len(present))]
    figure, grid = panel_grid(2 * len(names), len(names), height=2.5)
    parts = []
    for index, axes in enumerate(grid):
        name = names[index % len(names)]
        if index < len(names):
            panel_title(axes, index, f"loss, random, {TITLES[name]}")
            parts.append(_loss_over_requests(axes, random, name, lines))
        else:
            panel_title(axes, index, f"adversarial, {TITLES[name]}")
            parts.append(_accumulated(axes, adversarial, name, lines))
    _legend(figure, lines)
    caption = (
        "Top: induced cost of the remaining points over an optimum found anew at every "
        "checkpoint (3 starts). Bottom: seconds of all requests so far, where each removes the "
        f"point that costs most at the time; {ANEW}. The paper does not name its four sets. "
        f"{CLOCK}. Bands: one standard deviation over {_runs_text(parts)}."
    )
    table, ends = _concat_panels(parts)
    return FigureResult(figure, table, ends, caption, _gaps(present, names))


def _figure5(study: Study) -> FigureResult:
    """Accumulated times of requests for many points."""
    figure, grid = panel_grid(len(BATCHES), 4, height=2.5)
    lines = _timed_lines(study)
    parts = []
    for index, (axes, (name, size)) in enumerate(zip(grid, BATCHES, strict=True)):
        panel_title(axes, index, f"{size} points a request, {TITLES[name]}")
        parts.append(_accumulated(axes, _checkpoints(study, "random", size), name, lines))
    _legend(figure, lines)
    caption = (
        f"Seconds of all requests so far, each for several random points of one client; {ANEW}. "
        f"The paper does not name its two sets. {CLOCK}. Bands: one standard deviation over "
        f"{_runs_text(parts)}."
    )
    table, ends = _concat_panels(parts)
    gaps = gap_texts(
        f"{TITLES[name]}, {size} points"
        for (name, size), part in zip(BATCHES, parts, strict=True)
        if part.empty
    )
    return FigureResult(figure, table, ends, caption, gaps)


# --- further figures ----------------------------------------------------------------------


def _means(
    study: Study,
    sweeps: Iterable[str],
    metrics: Sequence[str],
    methods: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return the mean of several metrics for every cell of some sweeps, one line a cell."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for sweep in sweeps:
        for metric in metrics:
            for line in _summary(View(study).panel(sweep, metric)).to_dict("records"):
                if methods is None or line["method"] in methods:
                    lines.setdefault((sweep, line["cell"]), line)[metric] = line["mean"]
    columns = ["sweep", "dataset", "method", "n", "d", "k", "clients"]
    columns += ["requests", "batch", "params", "seeds", *metrics]
    table = pd.DataFrame(list(lines.values())).reindex(columns=columns)
    datasets = pd.Categorical(table["dataset"], in_order(table["dataset"], TITLES))
    table = table.assign(dataset=datasets)
    return table.sort_values(["sweep", "dataset", "method"], ignore_index=True)


def _requests_text(line: Mapping[str, Any]) -> str:
    return f"{line['requests']}, {line['batch']:g} each"


def _latency(study: Study) -> FigureResult:
    """Distribution of the time of a request."""
    styles = MethodStyles(study.cells)
    methods = (*TIMED, "mufc_full")
    columns = {f"removal_{name}_ms": title for name, title in QUANTILE_TITLES.items()}
    columns["removal_mean_ms"] = "mean"
    metrics = [*columns, "retrain_ms", "deletions_per_second", "reseeded", "reseeded_predicted"]
    table = _means(study, ["removals", "adversarial", "batch"], metrics, methods)
    random = table[table["sweep"] == "removals"]
    names = in_order(random["dataset"].astype(str), TITLES) or ["celltype"]
    figure, grid = panel_grid(len(names), min(len(names), 4), width=4.1, height=2.5)
    for index, (axes, name) in enumerate(zip(grid, names, strict=True)):
        panel_title(axes, index, TITLES[name])
        by_method = random[random["dataset"].astype(str) == name].set_index("method")
        if not len(by_method):
            empty_panel(axes)
            continue
        present = [method for method in methods if method in by_method.index]
        for y, method in enumerate(present):
            _draw_quantiles(axes, y, by_method.loc[method], styles[method].color)
        labels = [_two_line_label(styles, method) for method in present]
        axes.set_xscale("log")
        axes.set_yticks(range(len(present)), labels, fontsize=8.5)
        axes.set_ylim(len(present) - 0.5, -0.5)
        axes.set_xlabel("ms a request", fontsize=9)
        low, high = axes.get_xlim()
        axes.set_xlim(low / 1.1, high * 1.1)
        log_axis(axes.xaxis)
    handles = [
        Line2D([], [], color=INK, marker=marker, linestyle="", label=QUANTILE_TITLES[name])
        for name, marker in QUANTILES.items()
    ]
    handles += [
        Line2D([], [], **WHITE_DIAMOND, label="mean"),
        Line2D([], [], color=GREY, marker="v", linestyle="", label="retraining of the same method"),
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=min(2 * len(names), 6), fontsize=9.5
    )
    caption = (
        "Milliseconds of one random request for one point, client and server; quantiles over the "
        f"requests of a run, means of these over {count_text(random['seeds'])}. With the lazy "
        "server most requests cost next to nothing and a few fit the server, so its mean says "
        f"little about either. The CSV has adversarial requests and batches as well. {CLOCK}."
    )
    lines = []
    for line in table.to_dict("records"):
        texts = {
            "data set": TITLES[line["dataset"]],
            "requests": _requests_text(line),
            "method": styles.label(line["method"]),
        }
        texts |= {f"{title} ms": mean_text(line[column]) for column, title in columns.items()}
        texts["retraining ms"] = mean_text(line["retrain_ms"])
        texts["points a second"] = mean_text(line["deletions_per_second"])
        lines.append(texts)
    drawn = table.drop(columns=["params"])
    return FigureResult(figure, drawn, pd.DataFrame(lines), caption, _gaps(random["dataset"]))


def _draw_quantiles(axes: Axes, y: int, line: pd.Series, color: str) -> None:
    values = [line[f"removal_{name}_ms"] for name in QUANTILES]
    axes.plot([min(values), max(values)], [y, y], color=color, linewidth=1.4)
    for value, marker in zip(values, QUANTILES.values(), strict=True):
        size = 9 if marker == "|" else 5.5
        axes.plot(value, y, marker, color=color, markersize=size, markeredgewidth=1.6)
    axes.plot(line["removal_mean_ms"], y, markersize=6, **WHITE_DIAMOND)
    axes.plot(line["retrain_ms"], y + 0.26, "v", color=GREY, markersize=6)


def _speedup_figure(study: Study) -> FigureResult:
    """Speed-ups by every definition, from the paper's to that of the exact method."""
    table = speedups(study)
    names = in_order(table["dataset"], TITLES) or ["celltype"]
    step = (
        len(SPEEDUP_DEFINITIONS) + 2.0
    )  # a row for the reported number, one between the data sets
    size = (9.6, 1.7 + 0.22 * step * len(names))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    caption = (
        "What a complete retraining takes over what a random request for one point takes; ratios "
        "of mean times with 95 % intervals over seeds, logarithmic. From the paper's definition to "
        "that of the exact method: the best case of Table 1, all requests with the lazy server, "
        "and the exact method against full retraining and against its own. Left of the line "
        "forgetting takes longer than fitting anew. "
    )
    if len(table):
        _draw_speedups(axes, table, names, step)
        means = table.groupby("definition", sort=False)["speedup"].mean()
        texts = [
            f"{SPEEDUP_DEFINITIONS[key].title}: {times_text(value)}" for key, value in means.items()
        ]
        caption += (
            f"Means over {len(names)} of 7 data sets (reported average: 84): "
            f"{'; '.join(texts)}. {CLOCK}."
        )
    else:
        empty_panel(axes)
    handles = [Line2D([], [], **WHITE_DIAMOND, label="reported: best case")]
    for key, (color, marker) in SPEEDUPS.items():
        edge = {"markeredgecolor": INK, "markeredgewidth": 0.5, "markersize": 7, "linestyle": ""}
        title = SPEEDUP_DEFINITIONS[key].title
        handles.append(Line2D([], [], color=color, marker=marker, label=title, **edge))
    figure.legend(handles=handles, loc="outside upper center", ncols=2, fontsize=9)
    texts = [
        f"{times_text(row.speedup)} [{times_text(row.low)}, {times_text(row.high)}]"
        for row in table.itertuples()
    ]
    formatted = table.assign(value=texts)[["dataset", "title", "value", "seeds"]]
    return FigureResult(figure, table, formatted, caption, _gaps(table["dataset"]))


def _draw_speedups(axes: Axes, table: pd.DataFrame, names: Sequence[str], step: float) -> None:
    """Draw a group of rows per data set: the reported number, then every definition."""
    order = list(SPEEDUPS)
    for index, name in enumerate(names):
        if name in REPORTED["speedups"]:
            reported_value = REPORTED["speedups"][name]
            axes.plot(reported_value, index * step, **WHITE_DIAMOND)
            _write_speedup(axes, reported_value, (reported_value, index * step), GREY)
        for row in table[table["dataset"] == name].itertuples():
            color, marker = SPEEDUPS[row.definition]
            y = index * step + 1 + order.index(row.definition)
            low = min(row.low, row.speedup)
            high = max(row.high, row.speedup)
            axes.plot([low, high], [y, y], "|-", color=INK, linewidth=1)
            edge = {"markeredgecolor": INK, "markeredgewidth": 0.5}
            axes.plot(row.speedup, y, marker, color=color, markersize=7, **edge)
            _write_speedup(axes, row.speedup, (high, y), INK)
    axes.set_xscale("log")
    axes.axvline(1, color=GREY, linewidth=1)
    centers = np.arange(len(names)) * step + len(SPEEDUP_DEFINITIONS) / 2
    axes.set_yticks(centers, [TITLES[name] for name in names])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.invert_yaxis()
    axes.set_xlabel("speed-up (times)")
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * 1.5)
    log_axis(axes.xaxis)


def _write_speedup(axes: Axes, value: float, position: tuple[float, float], color: str) -> None:
    """Write a number to the right of a position."""
    axes.annotate(
        times_text(value),
        position,
        fontsize=8.5,
        color=color,
        xytext=(8, 0),
        textcoords="offset points",
        va="center",
    )


def _lazy(study: Study) -> FigureResult:
    """Exact and lazy server compared."""
    table = _means(study, ["removals", "adversarial", "batch"], LAZY_METRICS, ("mufc", "mufc_lazy"))
    lines = []
    groups = table.groupby(["sweep", "dataset", "batch"], sort=False, observed=True)
    for (sweep, name, batch), group in groups:
        if len(group) < 2:
            continue
        by_method = group.set_index("method")
        exact = by_method.loc["mufc"]
        lazy = by_method.loc["mufc_lazy"]
        touched = mean_text(exact["reseeded"])
        predicted = mean_text(exact["reseeded_predicted"])
        loss = "{:.3f}"
        lines.append(
            {
                "data set": TITLES[name],
                "requests": _requests_text({"requests": exact["requests"], "batch": batch}),
                "seed touched (predicted)": f"{touched} ({predicted})",
                "ms, exact": mean_text(exact["removal_mean_ms"]),
                "ms, lazy": mean_text(lazy["removal_mean_ms"]),
                "exact over lazy": _paired_ratio(study, sweep, name, batch),
                "loss before": mean_text(exact["loss_ratio"], form=loss),
                "loss after, exact": mean_text(exact["loss_ratio_after"], form=loss),
                "loss after, lazy": mean_text(lazy["loss_ratio_after"], form=loss),
                "points a second, exact": mean_text(exact["deletions_per_second"]),
                "points a second, lazy": mean_text(lazy["deletions_per_second"]),
            }
        )
    caption = (
        "What exactness costs: the server fitted anew after every request (MUFC) against kept "
        "where no seed is touched, as the published code has it (lazy), which is not exact. Mean "
        "milliseconds of a request, their ratio with the 95 % interval over seeds, loss ratio "
        "(induced) before and after all requests, the share of requests that touch a seed with "
        "what is predicted for random requests (the chance that a batch holds a seed of its "
        f"client), and points forgotten a second. {count_text(table['seeds'])}."
    )
    formatted = pd.DataFrame(lines, columns=None if lines else ["data set"])
    gaps = _gaps(table["dataset"])
    return FigureResult(None, table.drop(columns=["params"]), formatted, caption, gaps)


def _paired_ratio(study: Study, sweep: str, dataset: str, batch: float) -> str:
    panel = View(study).panel(sweep, "removal_mean_ms")
    cells = panel.cells
    subset = cells[(cells["dataset"] == dataset) & (cells["batch"] == batch)]
    columns = [int(subset.index[subset["method"] == name][0]) for name in ("mufc", "mufc_lazy")]
    means = resampled_means(panel, resampling_weights(len(panel.seeds)))[:, columns]
    ratio = means[:, :1] / means[:, 1:]
    (low,), (high,) = percentile_interval(ratio)
    return f"{ratio[0, 0]:.3g} [{low:.3g}, {high:.3g}]"


def _literal_bytes(line: Mapping[str, Any]) -> float:
    """Return the bytes of the literal construction.

    2 K L words of a prime above n and above the number of bins.
    """
    # An axis has 2/γ + 1 bins.
    bins = line["d"] * math.log2(2 * math.floor(line["n"] ** 0.5 + 0.5) + 1)
    bits = math.ceil(max(bins, math.log2(line["n"])))
    return 2 * line["k"] * line["clients"] * bits / 8


def _messages(study: Study) -> FigureResult:
    """Bytes and times of secure aggregation."""
    table = _means(study, ["sparse"], MESSAGE_METRICS, ("mufc",)).dropna(subset=["sparse_bytes"])
    removals = _means(study, ["removals"], ["removal_mean_ms"], ("mufc",))
    requests = removals.set_index("dataset")["removal_mean_ms"]
    requests.index = requests.index.astype(str)
    literal = [_literal_bytes(line) for line in table.to_dict("records")]
    lines = [
        {
            "data set": TITLES[line["dataset"]],
            "clusters, clients, d": f"{line['k']:g}, {line['clients']:g}, {line['d']:g}",
            "kB a client, sparse": f"{line['sparse_bytes'] / 1000:.3g}",
            "kB, literal construction": f"{size / 1000:.3g}",
            "kB, in the open": f"{line['plain_bytes'] / 1000:.3g}",
            "sparse over open": f"{line['sparse_bytes'] / line['plain_bytes']:.3g}",
            "client: encode ms": mean_text(line["sparse_encode_ms"]),
            "client: mask ms": mean_text(line["sparse_mask_ms"]),
            "server: decode ms": mean_text(line["sparse_decode_ms"]),
            "rounds": mean_text(line["sparse_attempts"]),
            "a request without it, ms": mean_text(requests.get(line["dataset"], np.nan)),
        }
        for line, size in zip(table.to_dict("records"), literal, strict=True)
    ]
    caption = (
        "One round of sparse secure aggregation, masks included: bytes of a client, and "
        "milliseconds of a client and of the server. Literal construction: 2 K L words of a prime "
        "above the number of all bins, computed, not run. In the open: K centers of d 4-byte "
        "numbers and K sizes. Every decoded sum equalled what the clients had sent. Rounds: 1 "
        "where no two bins collided. Removal times elsewhere in this report, as in the paper, "
        "leave this out; the last column has them for comparison, and an exact removal needs such "
        f"a round each time. {count_text(table['seeds'])}."
    )
    drawn = table.assign(literal_bytes=literal).drop(columns=["params", "sweep"])
    formatted = pd.DataFrame(lines, columns=None if lines else ["data set"])
    return FigureResult(None, drawn, formatted, caption, _gaps(table["dataset"]))


def _losses(study: Study) -> FigureResult:
    """Both losses of every method, with the reported values."""
    styles = MethodStyles(study.cells)
    sweeps = ("table1", "table2", "client_clusters")
    table = _means(study, sweeps, ["loss_ratio", "loss_ratio_nearest"])
    few = table["sweep"] == "client_clusters"
    table = table.assign(variant=np.where(few, FEW_CLUSTERS, ALL_CLUSTERS))
    table = table[table["method"].isin(LOSS_METHODS)]
    printed = {
        (cell["dataset"], cell["method"]): reported.parse(cell["loss_ratio"]).mean
        for cell in [*REPORTED["table1"]["cells"], *REPORTED["table2"]["cells"]]
    }
    names = in_order(table["dataset"].astype(str), TITLES) or ["celltype"]
    figure, grid = panel_grid(len(names), min(len(names), 4), width=3.7, height=3.0)
    labels = [
        _two_line_label(styles, method) + ("" if variant == ALL_CLUSTERS else f"\n({variant})")
        for method, variant in LOSS_ROWS
    ]
    for index, (axes, name) in enumerate(zip(grid, names, strict=True)):
        panel_title(axes, index, TITLES[name])
        subset = table[table["dataset"].astype(str) == name]
        if not len(subset):
            empty_panel(axes)
            continue
        values = {method: printed.get((name, method)) for method in LOSS_METHODS}
        _draw_losses(axes, subset.set_index(["method", "variant"]), values, styles)
        row_labels = labels if index % 4 == 0 else [""] * len(labels)
        axes.set_yticks(range(len(LOSS_ROWS)), row_labels, fontsize=8.5)
        axes.set_ylim(len(LOSS_ROWS) - 0.5, -0.5)
        axes.set_xlabel("loss ratio", fontsize=9)
    point = {"color": INK, "marker": "o", "linestyle": ""}
    handles = [
        Line2D([], [], **point, label="induced (by the clients' assignment)"),
        Line2D([], [], **point, markerfacecolor="white", label="by nearest centers"),
        Line2D([], [], **WHITE_DIAMOND, label="reported (induced)"),
    ]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=min(len(names), 3), fontsize=9.5
    )
    caption = (
        "Cost over the optimum, mean over seeds: induced by the clients' assignment, as in Tables "
        "1 and 2, and by nearest centers, which is what a user of the centers gets; below 1 all 20 "
        "starts missed the optimum. K-FED also with K' = 3 clusters a client, as its own paper has "
        f"it. {count_text(table['seeds'])}."
    )
    lines = [
        {
            "data set": TITLES[line["dataset"]],
            "method": styles.label(line["method"]),
            "clusters a client": line["variant"].split()[0],
            "induced": f"{line['loss_ratio']:.3f}",
            "nearest": f"{line['loss_ratio_nearest']:.3f}",
            "printed": mean_text(printed.get((line["dataset"], line["method"]), np.nan)),
        }
        for line in table.to_dict("records")
    ]
    drawn = table.drop(columns=["params", "requests", "batch"])
    return FigureResult(figure, drawn, pd.DataFrame(lines), caption, _gaps(table["dataset"]))


def _draw_losses(
    axes: Axes,
    table: pd.DataFrame,
    printed: Mapping[str, float | None],
    styles: MethodStyles,
) -> None:
    """Draw one row per method: both losses, joined, and the reported value."""
    for y, (method, variant) in enumerate(LOSS_ROWS):
        if variant == ALL_CLUSTERS and printed[method] is not None:
            axes.plot(printed[method], y, markersize=7, zorder=3, **WHITE_DIAMOND)
        if (method, variant) not in table.index:
            continue
        line = table.loc[(method, variant)]
        color = styles[method].color
        induced = line["loss_ratio"]
        nearest = line["loss_ratio_nearest"]
        axes.plot([nearest, induced], [y, y], color=color, linewidth=1.2)
        axes.plot(nearest, y, "o", color=color, markerfacecolor="white", markersize=6, zorder=4)
        axes.plot(induced, y, "o", color=color, markersize=6, zorder=5)


FIGURES = (
    FigureSpec(
        "table1",
        "Table 1: loss ratio and speed-up",
        True,
        _loss_table(1, (*PUBLISHED, "mufc_points")),
    ),
    FigureSpec(
        "table2",
        "Table 2: full client training",
        True,
        _loss_table(2, ("mufc_full", "k_fed", "dc_kmeans")),
    ),
    FigureSpec("sizes", "Appendix M.1: data sets", True, _sizes),
    FigureSpec("figure3", "Figure 3: settings and removals", True, _figure3),
    FigureSpec("figure4", "Figure 4: loss and adversarial removals", True, _figure4),
    FigureSpec("figure5", "Figure 5: batches", True, _figure5),
    FigureSpec(
        "speedups",
        "Speed-ups: the paper's definition and the exact method's",
        False,
        _speedup_figure,
    ),
    FigureSpec("latency", "How long a request takes", False, _latency),
    FigureSpec("lazy", "Exact against lazy server", False, _lazy),
    FigureSpec("losses", "Induced and nearest loss", False, _losses),
    FigureSpec("messages", "Secure aggregation: bytes and times", False, _messages),
)
