"""Figures 1 and 2 of the paper on distance-based privacy, and the figures this bench adds to them."""

import json

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm
from matplotlib.lines import Line2D

from analysis.figures import Drawn, FigureSpec
from analysis.figures.lines import (
    COLUMNS,
    curves,
    draw,
    head,
    in_print,
    legend,
    line_of,
    most_common,
    number,
    panels,
    seeds_of,
    spread,
    together,
)
from analysis.figures.panels import NO_DATA, heat_map, log_axis, say
from analysis.figures.style import GREY, INK, look
from analysis.planted import joined
from analysis.tables import column_statistics

TITLES = {
    "brightkite": "Brightkite",
    "gowalla": "Gowalla",
    "generated-cities": "cities (generated)",
    "rangequeries": "range queries",
    "shuttle": "Shuttle",
    "shuttle-class": "Shuttle, class a column",
    "skin": "Skin",
    "skin-class": "Skin, class a column",
    "s1": "S1",
    "s2": "S2",
    "s3": "S3",
    "s4": "S4",
}
DP = "lsh_splits_sound"
DIST = ("dist_dp", "dist_dp_sound", "dist_dp_random_points")
ADJACENT = "ρ-bounded moves"
# The DP curves promise something else: they are dotted, and the legend says what.
STYLES = {
    "kmeans": line_of("kmeans"),
    "lsh_splits": line_of("lsh_splits", linestyle=":", label="DP (zero-out, not ρ-bounded): LSH-Splits (published)"),
    DP: line_of("lsh_splits", linestyle=":", markerfacecolor="white", label="DP (zero-out): LSH-Splits (sound)"),
    "dist_dp": line_of("dist_dp", label="dist-DP (published)"),
    "dist_dp_sound": line_of("dist_dp_sound"),
    "dist_dp_random_points": line_of("dist_dp_random_points"),
}
OTHER_NOTION = (
    "The paper draws curves of two notions of privacy together: dist-DP protects the move of a point by at most ρ, the "
    "dotted DP curves any change of one point (zero-out). At equal ε these are not the same promise."
)
READINGS = {"regions": "true", "ball": "capped", "calibration": "classical", "replacement": "charged"}


def _ordered(names, asked=tuple(TITLES)):
    """Data sets in a fixed order, those that are not listed after them."""
    return [*asked, *sorted(set(names) - set(asked))]


def _title(name):
    return TITLES.get(name, name)


def _gaps(parts):
    return tuple(f"{_title(name)}: {NO_DATA}" for name, table in parts.items() if table.empty)


def _at(panel, **values):
    """Part of a panel with these values; columns that are not there leave it as it is."""
    if not len(panel.cells):
        return panel
    mask = np.logical_and.reduce([np.isclose(panel.cells[name].astype(float), value) for name, value in values.items()])
    return panel.take(mask)


# --- figures of the paper --------------------------------------------------------------------------------------------


def _paper_figure(sweep, along, x_label, backwards, about):
    def figure_of(study):
        table = spread(joined(study, [sweep, f"{sweep}_geo"], "nicv"), along)
        if along == "rho" and len(table):
            # Methods without rho are level lines: their cells have no place on the axis.
            table = table.assign(x=table["x"].where(table["method"].isin(DIST)))
        names = _ordered(table["dataset"])
        figure, grid = panels(len(names), 4)
        parts = {}
        for place, (axes, name) in enumerate(zip(grid, names, strict=True)):
            head(axes, place, _title(name))
            mine = table[table["dataset"] == name]
            labels = {"x_label": x_label, "y_label": "k-means cost" if place % 4 == 0 else ""}
            parts[name] = draw(axes, mine, STYLES, log_x=along == "rho", backwards=backwards, **labels)
            if along == "k" and len(parts[name]):
                axes.set_xticks(sorted(parts[name]["x"].unique()))
        shown = together(parts)
        legend(figure, STYLES, shown["method"], columns=3)
        caption = (
            f"{about} Cost: sum of squared distances to the nearest centre, every column scaled to [-1, 1]; axes are "
            "logarithmic where costs lie far apart, and differ. Bands: three standard errors over "
            f"{seeds_of(shown)}, as in the paper. {OTHER_NOTION} Which S set the paper means, and whether it counts "
            "the class as a column, it does not say; the cities are made up and stand in nobody's place."
        )
        return Drawn(figure, shown, in_print(shown, label=_label), caption, _gaps(parts))

    return figure_of


def _label(name):
    return STYLES[name]["label"] if name in STYLES else look(name).label


# --- figures of our own ----------------------------------------------------------------------------------------------


def _ratio_to_kmeans(panel):
    """Mean cost of every cell over that of k-means on the same data with the same k; NaN without one."""
    mean, _, _, seeds = column_statistics(panel.values)
    table = panel.cells.assign(mean=mean, seeds=seeds)
    table = table if "rho" in table else table.assign(rho=np.nan)
    plain = table[table["method"] == "kmeans"].drop_duplicates(["dataset", "k"]).set_index(["dataset", "k"])["mean"]
    keys = pd.MultiIndex.from_frame(table[["dataset", "k"]])
    return table.assign(ratio=table["mean"].to_numpy() / plain.reindex(keys).to_numpy())


def _grid(study):
    """Heat maps of the cost over that of k-means, rho across and epsilon up; DP in a column of its own."""
    panel = joined(study, "grid", "nicv")
    table = _ratio_to_kmeans(panel) if len(panel.cells) else pd.DataFrame()
    names = _ordered(table["dataset"], ("s1", "generated-cities")) if len(table) else ["s1", "generated-cities"]
    kinds = {"dist_dp": "published", "dist_dp_sound": "sound", DP: "DP (zero-out)"}
    figure, axes = panels(3 * len(names), 3, width=4.3, height=2.9, legend=0.2)
    ratios = table.loc[table["method"] != "kmeans", "ratio"].dropna() if len(table) else pd.Series(dtype=float)
    norm = LogNorm(1, max(ratios.max(), 1.1)) if len(ratios) else None
    parts = {}
    for place, one in enumerate(axes):
        name, method = names[place // 3], list(kinds)[place % 3]
        head(one, place, f"{_title(name)}, {kinds[method]}")
        mine = table[(table["dataset"] == name) & (table["method"] == method)] if len(table) else table
        if not len(mine) or mine["ratio"].isna().all():
            say(one, NO_DATA)
            parts[f"{_title(name)}, {kinds[method]}"] = pd.DataFrame()
            continue
        rho = mine["rho"].astype(float) if method != DP else pd.Series(np.nan, index=mine.index)
        mine = mine.assign(rho=rho)
        matrix = mine.assign(rho=rho.fillna(0)).pivot(index="epsilon", columns="rho", values="ratio")
        columns = [f"{value:g}" for value in matrix.columns] if method != DP else ["any"]
        rows = [f"{value:g}" for value in matrix.index]
        heat_map(one, matrix.to_numpy(dtype=float), rows, columns, norm, "YlOrRd", lambda value: f"{value:.3g}")
        one.set_xlabel("ρ" if method != DP else "", fontsize=9)
        one.set_ylabel("ε", fontsize=9)
        facts = ["dataset", "method", "k", "rho", "epsilon", "mean", "ratio", "seeds"]
        parts[f"{_title(name)}, {kinds[method]}"] = mine[facts]
    shown = pd.concat([part for part in parts.values() if len(part)], ignore_index=True) if len(ratios) else table
    caption = (
        "Cost over that of k-means (one start) on the same data, on public bounds, over ρ and ε; one colour scale, "
        "darker is worse. DP k-means knows no ρ and has another notion of privacy, so it stands in maps of its own. "
        f"{seeds_of(shown)}, k = {', '.join(f'{k:g}' for k in sorted(shown['k'].unique())) if len(shown) else '8'}."
    )
    printed = shown.assign(ratio=shown["ratio"].map(number)) if len(shown) else pd.DataFrame(columns=["dataset"])
    printed = printed[[name for name in ("dataset", "method", "rho", "epsilon", "ratio") if name in printed]]
    return Drawn(figure, shown if len(shown) else printed, printed, caption, _gaps(parts))


MEDIANS = {
    "kmedian": line_of("mean", color=INK, linestyle=(0, (5, 2)), label="k-median (non-private)"),
    "kmeans": line_of("kmeans"),
    "dist_dp_median": line_of("dist_dp_median", label="dist-DP k-median (published)"),
    "dist_dp_median_sound": line_of("dist_dp_median_sound"),
    "dist_dp_random_points": line_of("dist_dp_random_points", label="random points, k-median"),
}


def _median(study):
    """Mean distance to the nearest centre over rho."""
    table = spread(joined(study, "median", "mean_distance"), "rho", cost=False)
    if len(table):
        table = table.assign(x=table["x"].where(table["method"].str.startswith("dist_dp")))
    names = _ordered(table["dataset"], ("s1", "generated-cities"))
    figure, grid = panels(len(names), len(names), width=4.2, height=3.2, legend=0.9)
    parts = {}
    for place, (axes, name) in enumerate(zip(grid, names, strict=True)):
        head(axes, place, _title(name))
        labels = {"x_label": "ρ", "y_label": "mean distance"}
        parts[name] = draw(axes, table[table["dataset"] == name], MEDIANS, backwards=True, **labels)
    shown = together(parts)
    legend(figure, MEDIANS, shown["method"], columns=2)
    caption = (
        "k-median, p = 1: mean distance of a point to its nearest centre over ρ, in half-widths of the domain; bands "
        f"of three standard errors over {seeds_of(shown)}. ε = 1, {ADJACENT}. The paper has the theorem alone."
    )
    label = {name: style["label"] for name, style in MEDIANS.items()}
    return Drawn(figure, shown, in_print(shown, label=lambda name: label.get(name, name)), caption, _gaps(parts))


SLOPE = {"color": GREY, "linestyle": (0, (1, 1.5)), "linewidth": 1.2}


def _selectors(methods, **values):
    return {name: {"method": name} | values for name in methods}


def _planted(study):
    """What is paid above the optimum over rho, radius and k; cost over the optimum over n, k and d."""
    figure, grid = panels(7, 4, height=2.8)
    two, plain = ("dist_dp", "dist_dp_sound"), {DP: DP}
    common = {"metric": "nicv"}
    small = {"rho": 0.01}
    factor = common | {"sweep": "planted_factor", "value": "ratio"}
    fixed = {name: most_common(study, "planted_factor", name) for name in ("n", "d", "k")}
    # name, selectors, check, label of x
    specs = [
        ("excess over ρ", _selectors(two), common | {"sweep": "planted_rho", "along": "rho", "value": "excess"}, "ρ"),
        ("cost over the radius", _selectors(two), None, "radius of the space, ρ fixed"),
        ("excess over k, ρ = 0.01", _selectors(two, **small), common | {"sweep": "planted_k", "value": "excess"}, "k"),
        ("excess over k, DP (zero-out)", plain, common | {"sweep": "planted_k", "value": "excess"}, "k"),
        ("cost over optimum, over n", _selectors(two), factor | {"where": fixed["d"] | fixed["k"], "along": "n"}, "n"),
        ("cost over optimum, over k", _selectors(two), factor | {"where": fixed["d"] | fixed["n"], "along": "k"}, "k"),
        ("cost over optimum, over d", _selectors(two), factor | {"where": fixed["n"] | fixed["k"], "along": "d"}, "d"),
    ]
    parts = {}
    for place, (axes, (name, selectors, check, x_label)) in enumerate(zip(grid, specs, strict=True)):
        head(axes, place, name)
        table, found = _over_radius(study) if check is None else curves(study, selectors, **({"along": "k"} | check))
        ratio = check is not None and check["value"] == "ratio"
        parts[name] = draw(
            axes, table, STYLES, x_label=x_label, y_label="ratio" if ratio else "cost", log_y=None if ratio else True
        )
        if len(parts[name]) and not ratio:
            _tell_slopes(axes, found)
    shown = together(parts)
    guide = Line2D([], [], **SLOPE, label="slope 2")
    legend(figure, STYLES, shown["method"], columns=4, extra=[guide])
    caption = (
        "Balls of equal size about well separated centres, whose optimum k-means with ten starts finds; all methods "
        "have ten. (a), (c), (d): cost less the optimum, with fitted exponents. (b): all points on k places, so the "
        "cost is the excess; the "
        "space grows by a factor while ρ stays, which is the same as a smaller ρ in a space of the same size, in other "
        "units. The cost of a method that knows no ρ has slope 2 there. (e) to (g): cost over the optimum at ρ = 0.01. "
        f"Bands: 95 % intervals over {seeds_of(shown)}. DP has axes of its own, as its notion of privacy is another."
    )
    return Drawn(figure, shown, in_print(shown, label=_label), caption, _gaps(parts))


def _over_radius(study):
    """Cost of a space whose radius grows while rho stays, in units of the smallest one."""
    table, found = curves(
        study, _selectors(("dist_dp", "dist_dp_sound")), sweep="planted_radius", metric="nicv", along="rho"
    )
    if not len(table):
        return table, {}
    largest = table["x"].max()
    radius = largest / table["x"]
    grown = {name: table[name] * radius**2 for name in ("value", "low", "high")}
    lines = {}
    for name, line in found.items():
        factor = line.x.max() / line.x
        lines[name] = type(line)("radius", factor, line.values * factor**2, line.cells, line.seeds)
    return table.assign(x=radius, **grown), lines


def _tell_slopes(axes, found):
    """Write the fitted exponents under the title, and draw a guide of slope 2 through the first curve's middle."""
    fitted = {name: line for name, line in found.items() if line.x.size > 1 and (line.values[0] > 0).all()}
    if not fitted:
        return
    short = {"dist_dp": "published", "dist_dp_sound": "sound", DP: "LSH-Splits"}
    texts = [f"{short[name]} {line.slopes()[0]:.2f}" for name, line in fitted.items()]
    axes.set_title(f"{axes.get_title()}\nslope: {', '.join(texts)}", color=INK, fontsize=10)
    line = next(iter(fitted.values()))
    middle = np.exp(np.log(line.x).mean()), np.exp(np.log(line.values[0]).mean())
    limits = axes.get_ylim()
    axes.plot(line.x, middle[1] * (line.x / middle[0]) ** 2, zorder=1, **SLOPE)
    axes.set_ylim(limits)


def _times(study):
    """CPU seconds of a fit over n."""
    figure, grid = panels(2, 2, width=4.4, height=3.2, legend=0.9)
    where = most_common(study, "timing", "d") | most_common(study, "timing", "k")
    check = {"sweep": "timing", "metric": "fit_cpu_seconds", "along": "n", "value": "mean", "where": where}
    sides = {"dist-DP": DIST, "not distance-based": ("kmeans", DP)}
    parts = {}
    for place, (axes, (name, methods)) in enumerate(zip(grid, sides.items(), strict=True)):
        head(axes, place, name)
        table, found = curves(study, _selectors(methods), **check)
        parts[name] = draw(axes, table, STYLES, log_y=True, x_label="n", y_label="CPU seconds of a fit")
        texts = [f"n^{line.slopes()[0]:.2f}" for line in found.values() if line.x.size > 1]
        for (method, line), text in zip(((m, f) for m, f in found.items() if f.x.size > 1), texts, strict=True):
            place_of = {"xytext": (-4, 6), "textcoords": "offset points", "ha": "right", "fontsize": 8}
            axes.annotate(text, (line.x[-1], line.values[0, -1]), color=STYLES[method]["color"], **place_of)
    shown = together(parts)
    legend(figure, STYLES, shown["method"], columns=2)
    caption = (
        "CPU time of one fit on one pinned thread, planted balls in four dimensions, eight clusters, ρ = 0.01, with "
        f"fitted exponents of n; 95 % intervals over {seeds_of(shown)}. Our implementations, not the paper's."
    )
    return Drawn(figure, shown, in_print(shown, label=_label), caption, _gaps(parts))


def _reading(params, method):
    """Name of a reading: what differs from the default."""
    if method == "dist_dp_sound":
        return "sound variant"
    given = json.loads(params or "{}")
    words = {
        "regions": {"noised": "regions by noised places"},
        "ball": {"printed": "printed radius"},
        "calibration": {"analytic": "exact Gaussian noise"},
        "replacement": {"uncharged": "one record charged (F-17)"},
    }
    apart = [words[name][given[name]] for name, usual in READINGS.items() if given.get(name, usual) != usual]
    return ", ".join(apart) or "default reading"


def _readings(study):
    """Cost over that of k-means for every reading of what the paper leaves open."""
    panel = joined(study, "readings", "nicv")
    table = _ratio_to_kmeans(panel) if len(panel.cells) else pd.DataFrame(columns=[*COLUMNS, "rho", "ratio", "params"])
    table = table[table["method"].isin(["dist_dp", "dist_dp_sound"])]
    table = table.assign(reading=[_reading(*pair) for pair in zip(table["params"], table["method"], strict=True)])
    names = _ordered(table["dataset"], ("s1", "generated-cities"))
    rhos = sorted(table["rho"].dropna().astype(float).unique(), reverse=True) or [0.05]
    figure, grid = panels(len(names), len(names), width=4.6, height=3.6, legend=0.7)
    readings = list(dict.fromkeys(table["reading"]))
    colours = ("#b2182b", "#e69f00", "#56b4e9")
    parts = {}
    for place, (axes, name) in enumerate(zip(grid, names, strict=True)):
        head(axes, place, _title(name))
        mine = table[table["dataset"] == name]
        parts[name] = mine
        if not len(mine) or mine["ratio"].isna().all():
            say(axes, NO_DATA)
            parts[name] = mine.iloc[:0]
            continue
        for order, rho in enumerate(rhos):
            at = mine[np.isclose(mine["rho"].astype(float), rho)]
            y = [readings.index(text) + 0.16 * (order - (len(rhos) - 1) / 2) for text in at["reading"]]
            axes.plot(at["ratio"], y, "o", color=colours[order % 3], markersize=6)
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, 0.95), high * 1.1)
        axes.axvline(1, color=GREY, linewidth=1)
        axes.set_yticks(range(len(readings)), readings if place == 0 else [""] * len(readings), fontsize=8)
        axes.set_ylim(len(readings) - 0.5, -0.5)
        axes.set_xlabel("cost over that of k-means", fontsize=9)
        log_axis(axes.xaxis)
    handles = [
        Line2D([], [], color=colours[order % 3], marker="o", linestyle="", label=f"ρ = {rho:g}")
        for order, rho in enumerate(rhos)
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), fontsize=9.5)
    shown = pd.concat([part for part in parts.values() if len(part)], ignore_index=True) if len(table) else table
    shown = shown[[name for name in ("dataset", "rho", "reading", "mean", "ratio", "seeds") if name in shown]]
    caption = (
        "What the paper leaves open, one reading beside the other: cost over that of k-means on public bounds, ε = 1, "
        f"{seeds_of(shown)}. Default: regions by true places with noisy sizes, the radius of a region capped by the "
        "domain's, the classical formula for the noise of points, both records of a move charged."
    )
    printed = shown.assign(ratio=shown["ratio"].map(number)) if len(shown) else shown
    printed = printed[[name for name in ("dataset", "rho", "reading", "ratio") if name in printed]]
    return Drawn(figure, shown, printed, caption, _gaps(parts))


FIGURES = (
    FigureSpec(
        "figure1",
        "Figure 1: cost over k",
        True,
        _paper_figure("figure1", "k", "k", False, "Cost over the number of clusters at ρ = 0.05, ε = 1, δ = 10⁻⁶."),
    ),
    FigureSpec(
        "figure2",
        "Figure 2: cost over ρ",
        True,
        _paper_figure(
            "figure2",
            "rho",
            "ρ",
            True,
            "Cost over ρ with k = 8, ε = 1, δ = 10⁻⁶. The paper's legend has a third curve, dx clustering, that it "
            "never explains; random points stand in its place.",
        ),
    ),
    FigureSpec("grid", "ρ and ε together", False, _grid),
    FigureSpec("readings", "What the paper leaves open", False, _readings),
    FigureSpec("median", "k-median", False, _median),
    FigureSpec("planted", "Known optimum: what is paid above it", False, _planted),
    FigureSpec("times", "Running time", False, _times),
)
