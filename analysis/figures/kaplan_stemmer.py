"""Table 1 of the Kaplan-Stemmer paper, and figures of what it proves."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pkm.analysis import claims
from pkm.analysis.figures import FigureResult, FigureSpec
from pkm.analysis.figures.lines import (
    COLUMNS,
    Lines,
    concat_panels,
    curves,
    draw,
    empty_panels,
    end_labels,
    format_curves,
    legend,
    most_common,
    with_slope,
)
from pkm.analysis.figures.panels import epsilon_grid_figure
from pkm.analysis.frames import comparable_methods
from pkm.analysis.papers.kaplan_stemmer_checks import BOUNDS, capture_shares
from pkm.analysis.planted import Curve
from pkm.analysis.render.layout import (
    DASH,
    NO_DATA,
    Titles,
    count_text,
    format_number,
    gap_texts,
    in_order,
    incomparable_texts,
    log_axis,
    panel_grid,
    panel_title,
)
from pkm.analysis.render.style import DOTTED, GREY, MethodStyles
from pkm.analysis.tables import Study, percentile_interval, wide

CONTENT = claims.load("kaplan-stemmer")
METHOD = "kaplan_stemmer"
SEARCH = "kaplan_stemmer_search"
# The method is given the unit ball, or the box alone like the other methods.
BOXED = "kaplan_stemmer_boxed"
RIVALS = ("balcan", "sulloyd_sound", "lsh_splits_sound", "dpm_sound", "dpm_merged")
CENTRAL: dict[str, dict[str, Any]] = {
    METHOD: {"method": METHOD, "radius": 1.0},
    BOXED: {"method": METHOD, "radius": "auto"},
    SEARCH: {"method": SEARCH, "radius": 1.0},
    **{name: {"method": name} for name in (*RIVALS, "mean", "packing")},
}
LOCAL: dict[str, dict[str, Any]] = {
    name: {"method": name}
    for name in ("kaplan_stemmer_local", "ldp_lloyd", "ldp_noise", "ldp_mean")
}
PASSES = {
    "kaplan_stemmer_candidates": "two passes",
    "kaplan_stemmer_candidates_one_pass": "one pass",
}
IMPLEMENTED = {"balcan2017": "balcan", "this_work": METHOD}  # rows of Table 1
EXPONENTS = {  # of what is measured: sweeps, quantity along which, and value
    "factor over n": (("n", "n_rivals", "n_long"), "n", "ratio"),
    "factor over k": (("k",), "k", "ratio"),
    "factor over d": (("d",), "d", "ratio"),
    "additive over n": (("n_points", "n_points_rivals", "n_points_long"), "n", "cost"),
    "additive over k": (("k_points", "k_points_rivals"), "k", "cost"),
    "additive over d": (("d_points",), "d", "cost"),
}
TITLES = Titles(
    {
        "s1": "S1",
        "birch2": "Birch2",
        "letters": "Letters",
        "gas": "Gas",
        "adult": "Adult",
        "mnist-embeddings": "MNIST embeddings",
    }
)
RECONSTRUCTION = (
    "The method is a reconstruction: the abstract leaves hash family, averaging and constants open."
)
KNOWN = (
    "Kaplan-Stemmer and Balcan et al. are given the unit ball, in which the points lie; all "
    "others, and the variant named so, the box [-1, 1]^d"
)
_SHADES = ("#3b0f70", "#8c2981", "#de4968", "#fe9f6d", "#8a6d1f", "#56b4e9")


def _lines(study: Study) -> dict[str, dict[str, Any]]:
    """Return keywords of the curves of all methods.

    The variant that is given the box alone has rows under the name of the method.
    """
    styles = MethodStyles(study.cells)
    lines = styles.lines((METHOD, BOXED, SEARCH, *RIVALS, "mean", "packing", *LOCAL))
    method = styles[METHOD]
    boxed = replace(method, label=f"{method.label} (given the box only)", marker="v")
    lines[BOXED] = boxed.line() | {"markersize": 4.5}
    return lines


def _labels(lines: Lines) -> Callable[[str], str]:
    return lambda name: lines[name]["label"]


def _interval_text(values: np.ndarray) -> str:
    (low,), (high,) = percentile_interval(values[:, None])
    return f"{values[0]:.2f} [{low:.2f}, {high:.2f}]"


# --- Table 1 ------------------------------------------------------------------------------------


def _table1(study: Study) -> FigureResult:
    """The reported bounds, their slopes over the measured ranges, and the measured slopes."""
    selectors = {key: CENTRAL[method] for key, method in IMPLEMENTED.items()}
    measured = {
        name: curves(study, selectors, sweep=list(sweeps), metric="nicv", along=along, value=value)[
            1
        ]
        for name, (sweeps, along, value) in EXPONENTS.items()
    }
    rows = CONTENT["reported"]["table1"]
    lines, formatted = zip(*(_table1_line(row, measured) for row in rows), strict=True)
    caption = (
        "Bounds as reported, without ε and logarithms. Columns to the right: the exponent "
        "of each bound, as its slope on logarithmic axes over the measured range (8 for what stays "
        "fixed), and for what is implemented, after the slash, the measured one with its 95 % "
        "interval: of the cost over the optimum on balls, and of the cost on places, where the "
        "optimum is 0 (over k with 5,000 points on each). Bounds hold for the worst data and up to "
        "constants, measured exponents for planted data. An exponent above that of its bound does "
        "not break the bound, whose level may be far higher; it would in the end. What the noise "
        "of private means costs is in proportion to d and falls like 1/n. "
    )
    additive = {row["reference"]: _largest_over_bound(row["key"], measured) for row in rows}
    known = [f"{name} {format_number(value)}" for name, value in additive.items() if value]
    if known:
        caption += (
            "Largest additive error measured, over its bound with constant 1 and without "
            f"logarithms: {', '.join(known)}. "
        )
    caption += f"{RECONSTRUCTION} {_ranges_text(measured)}"
    gaps = gap_texts(name for name, by_method in measured.items() if not by_method)
    return FigureResult(
        None, pd.DataFrame(list(lines)), pd.DataFrame(list(formatted)), caption, gaps
    )


def _table1_line(
    row: dict[str, str], measured: dict[str, dict[str, Curve]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return one line of Table 1 in full, and formatted."""
    line = {
        "method": row["reference"],
        "factor (paper)": row["factor"],
        "additive error (paper)": row["additive"],
    }
    formatted = dict(line)
    factor, additive = BOUNDS[row["key"]]
    for name, (_, along, value) in EXPONENTS.items():
        curve = measured[name].get(row["key"])
        any_curve = curve or next(iter(measured[name].values()), None)
        several = any_curve is not None and any_curve.x.size > 1
        ends = (any_curve.x.min(), any_curve.x.max()) if several else None
        bound = _bound_slope(factor if value == "ratio" else additive, along, ends)
        fitted = curve is not None and with_slope({name: curve})
        slope = _interval_text(curve.slopes()) if fitted else DASH
        line |= {f"{name}: bound": bound, f"{name}: measured": slope}
        formatted[name] = bound if slope == DASH else f"{bound} / {slope}"
    return line, formatted


def _largest_over_bound(key: str, measured: dict[str, dict[str, Curve]]) -> float:
    """Return the largest additive error measured over its bound.

    0 for a method that is not implemented.
    """
    bound = BOUNDS[key][1]
    largest = 0.0
    for name, (_, _, value) in EXPONENTS.items():
        by_method = with_slope(measured[name])
        if value == "cost" and key in by_method:
            curve = by_method[key]
            sizes = curve.cells[["n", "k", "d"]].astype(float)
            ratio = curve.values[0] / bound(sizes["n"], sizes["k"], sizes["d"])
            largest = max(largest, ratio.max())
    return largest


def _ranges_text(measured: dict[str, dict[str, Curve]]) -> str:
    seeds = [curve.seeds for by_method in measured.values() for curve in by_method.values()]
    if not seeds:
        return "No stored rows."
    ranges = [
        f"{name} from {by_method['this_work'].x.min():g} to {by_method['this_work'].x.max():g}"
        for name, by_method in measured.items()
        if "this_work" in by_method
    ]
    return f"At least {min(seeds)} seeds; {'; '.join(ranges)}."


def _bound_slope(bound: Callable[..., Any], along: str, ends: tuple[float, float] | None) -> str:
    """Return the slope of a reported bound between two ends.

    At 8 for the other sizes and 100,000 points.
    """
    if ends is None:
        return DASH
    # One bound is exponential in d: it needs more than double precision's range.
    sizes = {name: np.longdouble(value) for name, value in (("n", 1e5), ("k", 8), ("d", 8))}
    with np.errstate(divide="ignore", over="ignore"):
        values = [np.log(bound(**(sizes | {along: np.longdouble(end)}))) for end in ends]
        slope = float(np.diff(values)[0] / np.diff(np.log(ends))[0])
    return f"{slope:.2f}" if np.isfinite(slope) else DASH


# --- planted data -------------------------------------------------------------------------------


def _planted(study: Study) -> FigureResult:
    """Cost over the optimum over n, k and d, and the cost where the optimum is 0."""
    figure, grid = panel_grid(6, 3, width=4.3, height=3.5, legend=1.1)
    values = {"ratio": "cost over the optimum", "cost": "cost where the optimum is 0"}
    lines = _lines(study)
    central = {name: lines[name] for name in CENTRAL}
    parts = {}
    for index, (axes, (sweeps, along, value)) in enumerate(
        zip(grid, EXPONENTS.values(), strict=True)
    ):
        title = f"{values[value]}, over {along}"
        panel_title(axes, index, title)
        table, fitted = curves(
            study, CENTRAL, sweep=list(sweeps), metric="nicv", along=along, value=value
        )
        part = draw(axes, table, central, log_y=True, x_label=along, y_label=values[value])
        if value == "cost" and len(part):
            _write_exponents(axes, with_slope(fitted), lines)
        parts[title] = part
    drawn = concat_panels(parts)
    legend(figure, central, drawn["method"], columns=4)
    caption = (
        "Planted balls in the unit ball, ε = 1, δ = 10⁻⁶, zero-out; 5,000 points in every ball "
        "over k. The optimum is that of k-means with five starts. (d) to (f): all points on k "
        "places, so all cost is additive error; numbers are fitted exponents, by height of the "
        "curves' ends. What costs as much as any centers do grows like n: one center for all "
        "(dotted grey), centers that ignore the data (dashed grey). DPM (sound) finds its own "
        f"number of centers. {KNOWN}. Bands: 95 % intervals over {count_text(drawn['seeds'])}. "
        f"{RECONSTRUCTION}"
    )
    formatted = format_curves(drawn, _labels(lines))
    return FigureResult(figure, drawn, formatted, caption, gap_texts(empty_panels(parts)))


def _write_exponents(axes: Axes, fitted: dict[str, Curve], lines: Lines) -> None:
    """Write the fitted exponents at the right end of a panel, behind their markers."""
    fitted = {name: curve for name, curve in fitted.items() if name not in ("mean", "packing")}
    left, right = axes.get_xlim()
    axes.set_xlim(left, right * (right / left) ** 0.22)
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = {
        name: to_axes.transform((curve.x[-1], curve.values[0, -1]))[1]
        for name, curve in fitted.items()
    }
    ordered = sorted(ends, key=ends.__getitem__)
    heights = _separated([ends[name] for name in ordered])
    for name, height in zip(ordered, heights, strict=True):
        line = dict(lines[name]) | {"linestyle": "none", "label": None}
        axes.plot(0.87, height, transform=axes.transAxes, **line)
        axes.text(
            0.9,
            height,
            f"{fitted[name].slopes()[0]:.2f}",
            transform=axes.transAxes,
            va="center",
            fontsize=8,
            color=line["color"],
        )


def _separated(heights: Sequence[float], gap: float = 0.055, top: float = 0.97) -> list[float]:
    """Move increasing heights up until they differ by `gap`.

    And down again from the top where they do not fit.

    Examples
    --------
    >>> [round(height, 3) for height in _separated([0.1, 0.11, 0.5, 0.96, 0.96])]
    [0.1, 0.155, 0.5, 0.915, 0.97]
    """
    placed = list(heights)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], top if i == len(placed) - 1 else placed[i + 1] - gap)
    return placed


def _local(study: Study) -> FigureResult:
    """The central method and the local ones on separate axes."""
    figure, grid = panel_grid(4, 4, width=3.6, height=3.2, legend=0.9)
    most_n = most_common(study, "local_epsilon", "n")
    central = {METHOD: {"method": METHOD}}
    panels = [
        ("central, over n", central, ["local_central", "local_n"], "n", {}),
        ("local, over n", LOCAL, ["local_n", "local_n_noise"], "n", {}),
        ("local, over ε", LOCAL, ["local_epsilon"], "epsilon", most_n),
        ("local, over k", LOCAL, ["local_k"], "k", {}),
    ]
    lines = _lines(study)
    parts = {}
    for index, (axes, (title, selectors, sweeps, along, where)) in enumerate(
        zip(grid, panels, strict=True)
    ):
        panel_title(axes, index, title)
        table, _ = curves(
            study, selectors, sweep=sweeps, along=along, where=where, metric="nicv", value="ratio"
        )
        x_label = "ε (local)" if along == "epsilon" else along
        parts[title] = draw(
            axes, table, lines, log_y=True, x_label=x_label, y_label="cost over the optimum"
        )
    drawn = concat_panels(parts)
    legend(figure, {name: lines[name] for name in (METHOD, *LOCAL)}, drawn["method"])
    if all(len(parts[title]) for title, *_ in panels[:2]):
        _share_y_limits(grid[:2])
    caption = (
        "Planted balls in the unit ball. (a) central model, ε = 1, δ = 10⁻⁶, zero-out; (b) to (d) "
        "local model: every user sends one noisy report, ε alone. Their guarantees differ "
        "at equal ε, so they have separate axes; (a) and (b) have equal scales. (d): as many users "
        "in every ball. The local mean is one center for all, the result without clustering. "
        f"Bands: 95 % intervals over {count_text(drawn['seeds'])}. Both are reconstructions."
    )
    formatted = format_curves(drawn, _labels(lines))
    return FigureResult(figure, drawn, formatted, caption, gap_texts(empty_panels(parts)))


def _share_y_limits(grid: Sequence[Axes]) -> None:
    """Give panels on a logarithmic axis the same limits."""
    limits = [axes.get_ylim() for axes in grid]
    for axes in grid:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        log_axis(axes.yaxis)


# --- candidates ---------------------------------------------------------------------------------


def _capture_check() -> dict[str, Any]:
    checks = {claim.id: claim.check for claim in CONTENT["claims"]}
    return checks["kaplan_stemmer/iterating-captures-smaller"]


def _capture(study: Study) -> FigureResult:
    """Share of runs that have a candidate near every ball, over the size of the small one."""
    check = _capture_check()
    cells, shares, seeds = capture_shares(study, check)
    sizes = sorted(cells["large"].unique()) if len(cells) else [10000]
    figure, grid = panel_grid(len(sizes), min(len(sizes), 3), width=3.9, height=3.0)
    low, high = percentile_interval(shares) if len(cells) else (np.empty(0), np.empty(0))
    table = cells.assign(x=cells["small"], value=cells["share"], low=low, high=high, seeds=seeds)
    lines = {
        name: line | {"label": PASSES[name]}
        for name, line in MethodStyles(study.cells).lines(PASSES).items()
    }
    parts = {}
    for index, (axes, n) in enumerate(zip(grid, sizes, strict=True)):
        title = f"n = {n:,.0f}"
        panel_title(axes, index, title)
        subset = table[table["large"] == n] if len(table) else pd.DataFrame(columns=COLUMNS)
        part = draw(
            axes,
            subset[COLUMNS],
            lines,
            log_y=False,
            x_label="points of the small ball",
            y_label="share of runs",
        )
        if len(part):
            axes.set_ylim(-0.04, 1.04)
            axes.axhline(check["level"], color=GREY, linestyle=DOTTED, linewidth=1.2)
        parts[title] = part
    drawn = concat_panels(parts)
    legend(figure, lines, drawn["method"])
    caption = (
        "Share of runs in which every ball, the small one above all, has a candidate within "
        f"{check['factor']:g} (r + 1/n) of its mean: one pass over all points against passes over "
        f"the farthest, at the same total budget (ε = 1). Dotted: {check['level']:g}. Bands: 95 % "
        f"intervals over {seeds} seeds. A bucket must hold a fixed part of n / k points to count, "
        "which the theory does not ask."
    )
    formatted = format_curves(drawn, lambda name: PASSES.get(name, name))
    return FigureResult(figure, drawn, formatted, caption, gap_texts(empty_panels(parts)))


def _selection(study: Study) -> FigureResult:
    """Cost of k candidates chosen by local search, over k and over epsilon."""
    figure, grid = panel_grid(2, 2, width=4.4, height=3.2, legend=0.7)
    symbols = {"k": "k", "epsilon": "ε"}
    search = MethodStyles(study.cells)[SEARCH].line() | {"markersize": 4.5}
    parts = {}
    styles = {}
    panels = (("over k", "k", "epsilon"), ("over ε", "epsilon", "k"))
    for index, (axes, (title, along, fixed)) in enumerate(zip(grid, panels, strict=True)):
        panel_title(axes, index, title)
        stored = study.cells.loc[study.cells["sweep"] == "selection", fixed]
        selectors = {
            f"{symbols[fixed]} = {value:g}": {"method": SEARCH, fixed: value}
            for value in sorted(stored.dropna().unique())
        }
        lines = {
            key: search | {"color": color, "markeredgecolor": color, "label": key}
            for key, color in zip(selectors, _SHADES, strict=False)
        }
        styles |= lines
        table, fitted = curves(
            study, selectors, along=along, sweep="selection", metric="nicv", value="cost"
        )
        y_label = "cost where the optimum is 0"
        parts[title] = draw(axes, table, lines, log_y=True, x_label=symbols[along], y_label=y_label)
        texts = [
            (curve.x[-1], curve.values[0, -1], f"{curve.slopes()[0]:.2f}", lines[key]["color"])
            for key, curve in with_slope(fitted).items()
        ]
        if texts:
            end_labels(axes, texts, 1.15)
    drawn = concat_panels(parts)
    methods = set(drawn["method"])
    handles = [Line2D([], [], **line) for key, line in styles.items() if key in methods]
    if handles:
        columns = min(len(handles), 4)
        figure.legend(handles=handles, loc="outside upper center", ncols=columns, fontsize=9)
    caption = (
        "k of the candidates by private local search, not moved again; all points on k places, "
        "5,000 on each, so all cost is additive error. Numbers: fitted exponents. The theorem has "
        "k^1.5 / ε for given candidates; these carry noise of their own. Bands: 95 % intervals "
        f"over {count_text(drawn['seeds'])}."
    )
    formatted = format_curves(drawn, str)
    return FigureResult(figure, drawn, formatted, caption, gap_texts(empty_panels(parts)))


# --- real data and times ------------------------------------------------------------------------


def _real(study: Study) -> FigureResult:
    """NICV over epsilon on the real data of the other papers."""
    panel = study.panel("real", "nicv")
    datasets = [*TITLES, *sorted(set(panel.cells["dataset"]) - set(TITLES))]
    methods, incomparable = comparable_methods(panel.cells)
    # The reference lies on top.
    methods = [name for name in in_order(methods, CENTRAL) if name != "kmeans"] + ["kmeans"]
    figure, summary, logarithmic, absent, outside = epsilon_grid_figure(
        panel, datasets, methods, titles=TITLES, value_name="NICV", columns=3
    )
    styles = MethodStyles(study.cells)
    gaps = gap_texts(map(TITLES.__getitem__, absent))
    gaps += incomparable_texts(map(styles.label, incomparable))
    caption = (
        "Mean squared distance to the nearest center over ε, δ = 10⁻⁶, on public bounds, where "
        "Kaplan-Stemmer is given the box like all others; 95 % bands over "
        f"{count_text(summary['seeds'])}. "
    )
    if logarithmic:
        caption += f"Logarithmic: {TITLES.join(logarithmic)}. "
    for name, levels in outside.items():
        values = ", ".join(f"{label} {value:.3g}" for label, value in levels.items())
        caption += f"Outside the panel of {TITLES[name]}: {values}. "
    columns = ["dataset", "method", "epsilon", "n", "d", "k", "mean", "half_width"]
    columns += ["median", "seeds"]
    table = summary[[name for name in columns if name in summary]]
    formatted = (
        wide(summary, ["dataset", "epsilon"]) if len(summary) else pd.DataFrame(columns=["dataset"])
    )
    return FigureResult(figure, table, formatted, f"{caption}{RECONSTRUCTION}", gaps)


def _times(study: Study) -> FigureResult:
    """CPU seconds of a fit over n and d, central and local."""
    figure, grid = panel_grid(3, 3, width=4.2, height=3.2, legend=1.1)
    fixed = {name: most_common(study, "timing", name) for name in ("n", "d")}
    central = {"kmeans": {"method": "kmeans"}}
    central |= {name: selector for name, selector in CENTRAL.items() if name != BOXED}
    panels = [
        ("central, over n", central, "timing", "n", fixed["d"]),
        ("central, over d", central, "timing", "d", fixed["n"]),
        ("local, over n", LOCAL, "timing_local", "n", {}),
    ]
    lines = MethodStyles(study.cells).lines(["kmeans"]) | _lines(study)
    parts = {}
    for index, (axes, (title, selectors, sweep, along, where)) in enumerate(
        zip(grid, panels, strict=True)
    ):
        panel_title(axes, index, title)
        table, _ = curves(
            study,
            selectors,
            sweep=sweep,
            metric="fit_cpu_seconds",
            along=along,
            value="mean",
            where=where,
        )
        parts[title] = draw(
            axes, table, lines, log_y=True, x_label=along, y_label="CPU seconds of a fit"
        )
    drawn = concat_panels(parts)
    legend(figure, lines, drawn["method"], columns=4)
    caption = (
        "CPU time of one fit on one pinned thread on planted balls, mean with 95 % intervals over "
        f"{count_text(drawn['seeds'])}. The local methods simulate all users in one process."
    )
    formatted = format_curves(drawn, _labels(lines))
    return FigureResult(figure, drawn, formatted, caption, gap_texts(empty_panels(parts)))


def _candidates(study: Study) -> FigureResult:
    """How many candidates there are, and what k of them cost."""
    rows = study.rows_with(["n_centers"])
    rows = rows[rows["method"].isin(PASSES) & rows["sweep"].isin(["candidates", "capture"])]
    keys = ["method", "dataset", "n", "k", "epsilon"]
    if not len(rows):
        empty = pd.DataFrame(columns=[*keys, "mean", "largest", "seeds"])
        return FigureResult(None, empty, empty, "No stored rows.", (f"candidates: {NO_DATA}",))
    groups = rows.groupby(keys)
    table = groups["n_centers"].agg(mean="mean", largest="max", seeds="size").reset_index()
    table = table.assign(over_k=table["mean"] / table["k"])
    titles = {
        "unassigned_points": "points without a near one",
        "nicv_best_k": "NICV of the best k",
    }
    titles = {name: title for name, title in titles.items() if name in rows}
    table = table.merge(groups[list(titles)].mean().reset_index(), on=keys)
    caption = (
        "Number of candidates of one pass and of all at the same total budget, ε = 1, points in "
        "balls without a candidate within 5 (r + 1/n), and the mean squared distance to the k "
        "candidates that local search without privacy finds best. The bound ε n log(k / β) of "
        "Lemma 3.5 on their number is hundreds of times as large, as every bucket must hold a "
        "fixed part of n / k points here."
    )
    listed = set(rows.loc[rows["sweep"] == "candidates", "dataset"])
    formatted = table[table["dataset"].isin(listed)]
    formatted = formatted.assign(
        method=formatted["method"].map(PASSES),
        **{name: formatted[name].map(format_number) for name in ("mean", *titles)},
    )
    columns = ["dataset", "method", "mean", "largest", *titles, "seeds"]
    return FigureResult(None, table, formatted[columns].rename(columns=titles), caption)


FIGURES = (
    FigureSpec("table1", "Table 1: bounds, and what is measured", True, _table1),
    FigureSpec("planted", "Factor and additive error", False, _planted),
    FigureSpec("local", "Central and local model", False, _local),
    FigureSpec("capture", "Small clusters: one pass and several", False, _capture),
    FigureSpec("candidates", "Candidates", False, _candidates),
    FigureSpec("selection", "Choosing k candidates", False, _selection),
    FigureSpec("real", "Real data of the other papers", False, _real),
    FigureSpec("times", "Running time", False, _times),
)
