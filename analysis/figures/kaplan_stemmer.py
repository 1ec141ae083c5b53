"""Table 1 of the Kaplan-Stemmer paper with what is measured beside it, and figures of what it proves."""

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from pkm.analysis import claims
from pkm.analysis.claims.kaplan_stemmer import BOUNDS, capture_shares
from pkm.analysis.figures import FigureResult, FigureSpec
from pkm.analysis.figures.lines import (
    COLUMNS,
    curves,
    draw,
    end_labels,
    head,
    in_print,
    legend,
    line_of,
    most_common,
    number,
    panels,
    seeds_of,
    together,
)
from pkm.analysis.figures.panels import NO_DATA, epsilon_grid_figure, log_axis, on_one_axis
from pkm.analysis.figures.style import GREY, YARDSTICKS, look
from pkm.analysis.tables import percentile_interval, wide

CONTENT = claims.load("kaplan-stemmer")
OUR, CHOSEN = "kaplan_stemmer", "kaplan_stemmer_search"
# The method knows the unit ball or, like the others, the box alone.
CENTRAL = {
    OUR: {"method": OUR, "radius": 1.0},
    "kaplan_stemmer_boxed": {"method": OUR, "radius": "auto"},
    CHOSEN: {"method": CHOSEN, "radius": 1.0},
    **{
        name: {"method": name}
        for name in ("balcan", "sulloyd_sound", "lsh_splits_sound", "dpm_sound", "dpm_merged")
    },
    **{name: {"method": name} for name in ("mean", "packing")},
}
LOCAL = {
    "kaplan_stemmer_local": {"method": "kaplan_stemmer_local"},
    **{name: {"method": name} for name in ("ldp_lloyd", "ldp_noise", "ldp_mean")},
}
STYLES = {name: line_of(name) for name in CENTRAL}
LOCAL_STYLES = {name: line_of(name) for name in LOCAL}
PASSES = {
    "kaplan_stemmer_candidates": "two passes",
    "kaplan_stemmer_candidates_one_pass": "one pass",
}
PASS_COLORS = ("#7a3e9d", "#e69f00")
MEASURED = {"balcan2017": "balcan", "this_work": OUR}  # rows of Table 1 that are implemented
SCALING = {  # of what is measured: sweep, what it runs along, and the value
    "factor over n": (("n", "n_rivals", "n_long"), "n", "ratio"),
    "factor over k": (("k",), "k", "ratio"),
    "factor over d": (("d",), "d", "ratio"),
    "additive over n": (("n_points", "n_points_rivals", "n_points_long"), "n", "cost"),
    "additive over k": (("k_points", "k_points_rivals"), "k", "cost"),
    "additive over d": (("d_points",), "d", "cost"),
}
TITLES = {
    "s1": "S1",
    "birch2": "Birch2",
    "letters": "Letters",
    "gas": "Gas",
    "adult": "Adult",
    "mnist-embeddings": "MNIST embeddings",
}
RECONSTRUCTION = (
    "The method is a reconstruction: the abstract leaves hash family, averaging and constants open."
)
KNOWN = (
    "Kaplan-Stemmer and Balcan et al. know that the points lie in the unit ball; the others, and the variant named so, "
    "know the box [-1, 1]^d"
)


def _gaps(parts):
    return tuple(f"{name}: {NO_DATA}" for name, table in parts.items() if table.empty)


def _label(name):
    return look(name).label


def _slope_text(line):
    slope = line.slopes()
    (low,), (high,) = percentile_interval(slope[:, None])
    return f"{slope[0]:.2f} [{low:.2f}, {high:.2f}]"


def _table1(study):
    """The printed bounds, their slopes over the measured ranges, and the measured slopes."""
    lines, printed, found, largest = [], [], {}, {}
    for name, (sweeps, along, value) in SCALING.items():
        check = {"sweep": list(sweeps), "metric": "nicv", "along": along, "value": value}
        found[name] = curves(
            study, {key: CENTRAL[method] for key, method in MEASURED.items()}, **check
        )[1]
    for row in CONTENT["printed"]["table1"]:
        line = {
            "method": row["reference"],
            "factor (paper)": row["factor"],
            "additive error (paper)": row["additive"],
        }
        short = dict(line)
        factor, additive = BOUNDS[row["key"]]
        for name, (_, along, value) in SCALING.items():
            measured = found[name].get(row["key"])
            any_line = measured or next(iter(found[name].values()), None)
            ends = (
                (any_line.x.min(), any_line.x.max())
                if any_line is not None and any_line.x.size > 1
                else None
            )
            usable = measured is not None and measured.x.size > 1 and (measured.values[0] > 0).all()
            if usable and value == "cost":
                sizes = measured.cells[["n", "k", "d"]].astype(float)
                over = (measured.values[0] / additive(sizes["n"], sizes["k"], sizes["d"])).max()
                largest[row["reference"]] = max(over, largest.get(row["reference"], 0.0))
            bound = _bound_slope(factor if value == "ratio" else additive, along, ends)
            slope = _slope_text(measured) if usable else "–"
            line |= {f"{name}: bound": bound, f"{name}: measured": slope}
            short[name] = bound if slope == "–" else f"{bound} / {slope}"
        lines.append(line)
        printed.append(short)
    seeds = [line.seeds for lines_of in found.values() for line in lines_of.values()]
    ranges = "; ".join(
        f"{name} from {line.x.min():g} to {line.x.max():g}"
        for name, lines_of in found.items()
        if (line := lines_of.get("this_work")) is not None
    )
    caption = (
        "Bounds as printed, ε and logarithms left out as there. Columns to the right: the exponent of each bound, as "
        "its slope on logarithmic axes over the measured range (8 for what stays fixed), and for what is implemented "
        "behind the stroke the measured one with its 95 % interval: of the cost over the optimum on balls, and of the "
        "cost on places, where the optimum is 0 (over k with 5,000 points on each). Bounds hold for the worst data and "
        "up to constants, measured exponents for planted data. An exponent above that of its bound does not break the "
        "bound, whose level may be far higher; it would in the end. What the noise of private means costs is in "
        "proportion to d and falls like 1/n. "
    )
    if largest:
        told = ", ".join(f"{name} {number(value)}" for name, value in largest.items())
        caption += f"Largest additive error measured, over its bound with constant 1 and without logarithms: {told}. "
    caption += f"{RECONSTRUCTION} {f'At least {min(seeds)} seeds; {ranges}.' if seeds else 'No stored rows.'}"
    gaps = tuple(f"{name}: {NO_DATA}" for name, lines_of in found.items() if not lines_of)
    return FigureResult(None, pd.DataFrame(lines), pd.DataFrame(printed), caption, gaps)


def _bound_slope(bound, along, ends):
    """Slope of a printed bound between two ends, at 8 for the other sizes and 100,000 points; none without ends."""
    if ends is None:
        return "–"
    # One bound is exponential in d: it needs more than double precision's range.
    sizes = {name: np.longdouble(value) for name, value in (("n", 1e5), ("k", 8), ("d", 8))}
    with np.errstate(divide="ignore", over="ignore"):
        values = [np.log(bound(**(sizes | {along: np.longdouble(end)}))) for end in ends]
        slope = float(np.diff(values)[0] / np.diff(np.log(ends))[0])
    return f"{slope:.2f}" if np.isfinite(slope) else "–"


def _planted(study):
    """Cost over the optimum over n, k and d, and the cost where the optimum is 0."""
    figure, grid = panels(6, 3, width=4.3, height=3.5, legend=1.1)
    values = {"ratio": "cost over the optimum", "cost": "cost where the optimum is 0"}
    parts = {}
    for place, (axes, (sweeps, along, value)) in enumerate(
        zip(grid, SCALING.values(), strict=True)
    ):
        title = f"{values[value]}, over {along}"
        head(axes, place, title)
        check = {"sweep": list(sweeps), "metric": "nicv", "along": along, "value": value}
        table, found = curves(study, CENTRAL, **check)
        parts[title] = draw(axes, table, STYLES, log_y=True, x_label=along, y_label=values[value])
        if value == "cost" and len(parts[title]):
            _exponents(axes, found)
    shown = together(parts)
    legend(figure, STYLES, shown["method"], columns=5)
    caption = (
        "Planted balls in the unit ball, ε = 1, δ = 10⁻⁶, zero-out; 5,000 points in every ball over k. The optimum is "
        "that of k-means with five starts. (d) to (f): all points on k places, so all cost is additive error; numbers "
        "are fitted exponents, by height of the curves' ends. What costs as much as any centers do grows like n: one "
        "center for all (dotted grey), centers that ignore the data (dashed grey). DPM (sound) finds its own number of "
        "centers. "
        f"{KNOWN}. Bands: 95 % intervals over {seeds_of(shown)}. {RECONSTRUCTION}"
    )
    return FigureResult(figure, shown, in_print(shown), caption, _gaps(parts))


def _exponents(axes, found):
    """Write the fitted exponents of all curves but the yardsticks at the right end of a panel, behind their markers."""
    fitted = {
        name: line
        for name, line in found.items()
        if name not in YARDSTICKS and line.x.size > 1 and (line.values[0] > 0).all()
    }
    left, right = axes.get_xlim()
    axes.set_xlim(left, right * (right / left) ** 0.22)
    into = axes.transData + axes.transAxes.inverted()
    ends = {
        name: into.transform((line.x[-1], line.values[0, -1]))[1] for name, line in fitted.items()
    }
    ordered = sorted(ends, key=ends.get)
    for name, height in zip(ordered, _apart([ends[name] for name in ordered]), strict=True):
        style = STYLES[name] | {"linestyle": "none", "label": None}
        axes.plot(0.87, height, transform=axes.transAxes, **style)
        slope = f"{fitted[name].slopes()[0]:.2f}"
        axes.text(
            0.9,
            height,
            slope,
            transform=axes.transAxes,
            va="center",
            fontsize=8,
            color=style["color"],
        )


def _apart(heights, gap=0.055, top=0.97):
    """Move increasing heights up until they are `gap` apart, and down again from the top where they do not fit.

    Examples
    --------
    >>> [round(height, 3) for height in _apart([0.1, 0.11, 0.5, 0.96, 0.96])]
    [0.1, 0.155, 0.5, 0.915, 0.97]
    """
    placed = list(heights)
    for i in range(1, len(placed)):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    for i in reversed(range(len(placed))):
        placed[i] = min(placed[i], top if i == len(placed) - 1 else placed[i + 1] - gap)
    return placed


def _local(study):
    """The central method and the local ones on axes of their own."""
    figure, grid = panels(4, 4, width=3.6, height=3.2, legend=0.9)
    ratio = {"metric": "nicv", "value": "ratio"}
    most_n = most_common(study, "local_epsilon", "n")
    central = {OUR: {"method": OUR}}
    specs = [
        ("central, over n", central, ["local_central", "local_n"], "n", {}),
        ("local, over n", LOCAL, ["local_n", "local_n_noise"], "n", {}),
        ("local, over ε", LOCAL, ["local_epsilon"], "epsilon", most_n),
        ("local, over k", LOCAL, ["local_k"], "k", {}),
    ]
    parts = {}
    for place, (axes, (name, selectors, sweeps, along, where)) in enumerate(
        zip(grid, specs, strict=True)
    ):
        head(axes, place, name)
        table, _ = curves(study, selectors, sweep=sweeps, along=along, where=where, **ratio)
        labels = {
            "x_label": {"epsilon": "ε (local)"}.get(along, along),
            "y_label": "cost over the optimum",
        }
        parts[name] = draw(axes, table, STYLES | LOCAL_STYLES, log_y=True, **labels)
    shown = together(parts)
    legend(figure, {OUR: STYLES[OUR]} | LOCAL_STYLES, shown["method"])
    known = [
        axes for axes, part in zip(grid[:2], list(parts.values())[:2], strict=True) if len(part)
    ]
    if len(known) == 2:
        limits = [axes.get_ylim() for axes in known]
        for axes in known:
            axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
            log_axis(axes.yaxis)
    caption = (
        "Planted balls in the unit ball. (a) central model, ε = 1, δ = 10⁻⁶, zero-out; (b) to (d) local model: every "
        "user sends one noisy report, ε alone. The two promise different things at equal ε, so they have own axes; "
        "(a) and (b) have equal scales. (d): as many users in every ball. The local mean is one center for all, what "
        f"one gets without clustering. Bands: 95 % intervals over {seeds_of(shown)}. Both are reconstructions."
    )
    return FigureResult(figure, shown, in_print(shown), caption, _gaps(parts))


def _capture_check():
    found = {claim["id"]: claim["check"] for claim in CONTENT["claims"]}
    return found["kaplan_stemmer/iterating-captures-smaller"]


def _capture(study):
    """Share of runs that have a candidate near every ball, over the size of the small one."""
    check = _capture_check()
    cells, shares, seeds = capture_shares(study, check)
    sizes = sorted(cells["large"].unique()) if len(cells) else [10000]
    figure, grid = panels(len(sizes), min(len(sizes), 3), width=3.9, height=3.0)
    low, high = percentile_interval(shares) if len(cells) else (np.empty(0), np.empty(0))
    table = cells.assign(x=cells["small"], value=cells["share"], low=low, high=high, seeds=seeds)
    styles = {
        name: line_of(name, label=text, color=color, markeredgecolor=color, linestyle=dash)
        for (name, text), color, dash in zip(
            PASSES.items(), PASS_COLORS, ("-", (0, (4, 1.5))), strict=True
        )
    }
    parts = {}
    for place, (axes, n) in enumerate(zip(grid, sizes, strict=True)):
        name = f"n = {n:,.0f}"
        head(axes, place, name)
        mine = table[table["large"] == n] if len(table) else pd.DataFrame(columns=COLUMNS)
        labels = {"x_label": "points of the small ball", "y_label": "share of runs"}
        parts[name] = draw(axes, mine[COLUMNS], styles, log_y=False, **labels)
        if len(parts[name]):
            axes.set_ylim(-0.04, 1.04)
            axes.axhline(check["level"], color=GREY, linestyle=(0, (1, 1.5)), linewidth=1.2)
    shown = together(parts)
    legend(figure, styles, shown["method"])
    caption = (
        "Share of runs in which every ball, the small one above all, has a candidate within "
        f"{check['factor']:g} (r + 1/n) of its mean: one pass over all points against passes over the farthest, at the "
        f"same total budget (ε = 1). Dotted: {check['level']:g}. Bands: 95 % intervals over {seeds} seeds. A bucket "
        "must hold a fixed part of n / k points to count, which the theory does not ask."
    )
    return FigureResult(
        figure,
        shown,
        in_print(shown, label=lambda name: PASSES.get(name, name)),
        caption,
        _gaps(parts),
    )


def _selection(study):
    """Cost of k candidates chosen by local search, over k and over epsilon."""
    figure, grid = panels(2, 2, width=4.4, height=3.2, legend=0.7)
    base = {"sweep": "selection", "metric": "nicv", "value": "cost"}
    ks, epsilons = (_stored(study, "selection", name) for name in ("k", "epsilon"))
    parts, styles = {}, {}
    for place, (axes, name, along, other, values) in enumerate(
        zip(
            grid,
            ("over k", "over ε"),
            ("k", "epsilon"),
            ("epsilon", "k"),
            (epsilons, ks),
            strict=True,
        )
    ):
        head(axes, place, name)
        selectors = {
            f"{_short(other)} = {value:g}": {"method": CHOSEN, other: value} for value in values
        }
        mine = {
            key: line_of(CHOSEN, color=color, label=key)
            for key, color in zip(selectors, _SHADES, strict=False)
        }
        styles |= mine
        table, found = curves(study, selectors, along=along, **base)
        labels = {"x_label": _short(along), "y_label": "cost where the optimum is 0"}
        parts[name] = draw(axes, table, mine, log_y=True, **labels)
        fitted = {
            key: line
            for key, line in found.items()
            if line.x.size > 1 and (line.values[0] > 0).all()
        }
        if fitted:
            texts = [
                (line.x[-1], line.values[0, -1], f"{line.slopes()[0]:.2f}")
                for line in fitted.values()
            ]
            end_labels(
                axes,
                [(*text, mine[key]["color"]) for text, key in zip(texts, fitted, strict=True)],
                1.15,
            )
    shown = together(parts)
    handles = [
        Line2D([], [], **style) for key, style in styles.items() if key in set(shown["method"])
    ]
    if handles:
        figure.legend(
            handles=handles, loc="outside upper center", ncols=min(len(handles), 4), fontsize=9
        )
    caption = (
        "k of the candidates by private local search, not moved again; all points on k places, 5,000 on each, so all "
        "cost is additive error. Numbers: fitted exponents. The theorem has k^1.5 / ε for given candidates; these "
        f"carry noise of their own. Bands: 95 % intervals over {seeds_of(shown)}."
    )
    return FigureResult(figure, shown, in_print(shown, label=str), caption, _gaps(parts))


_SHADES = ("#3b0f70", "#8c2981", "#de4968", "#fe9f6d", "#8a6d1f", "#56b4e9")


def _short(name):
    return "ε" if name == "epsilon" else name


def _stored(study, sweep, column):
    return sorted(study.cells.loc[study.cells["sweep"] == sweep, column].dropna().unique())


def _real(study):
    """NICV over epsilon on the real data of the other papers."""
    panel = study.panel("real", "nicv")
    stored = [name for name in panel.cells["dataset"].unique() if name not in TITLES]
    names = [*TITLES, *sorted(stored)]
    methods, strangers = on_one_axis(panel.cells) if len(panel.cells) else ([], [])
    order = ["kmeans", *CENTRAL]
    methods = sorted(methods, key=lambda name: order.index(name) if name in order else len(order))
    figure, summary, logarithmic, absent, outside = epsilon_grid_figure(
        panel, names, methods[1:] + methods[:1], titles=TITLES, value_name="NICV", columns=3
    )
    gaps = [f"{TITLES.get(name, name)}: {NO_DATA}" for name in absent]
    gaps += [
        f"{_label(name)}: another adjacency or trust model, not on this axis" for name in strangers
    ]
    caption = (
        "Mean squared distance to the nearest center over ε, δ = 10⁻⁶, on public bounds, where Kaplan-Stemmer knows "
        f"the box as the others do; 95 % bands over {seeds_of(summary)}. "
    )
    if logarithmic:
        caption += f"Logarithmic: {', '.join(TITLES.get(name, name) for name in logarithmic)}. "
    for name, levels in outside.items():
        told = ", ".join(f"{label} {value:.3g}" for label, value in levels.items())
        caption += f"Outside the panel of {TITLES.get(name, name)}: {told}. "
    keep = ["dataset", "method", "epsilon", "n", "d", "k", "mean", "half_width", "median", "seeds"]
    shown = summary[[name for name in keep if name in summary]]
    printed = (
        wide(summary, ["dataset", "epsilon"]) if len(summary) else pd.DataFrame(columns=["dataset"])
    )
    return FigureResult(figure, shown, printed, f"{caption}{RECONSTRUCTION}", tuple(gaps))


def _times(study):
    """CPU seconds of a fit over n and d, central and local."""
    figure, grid = panels(3, 3, width=4.2, height=3.2, legend=1.1)
    names = ("n", "d")
    fixed = {name: most_common(study, "timing", name) for name in names}
    central = {"kmeans": {"method": "kmeans"}} | {
        name: CENTRAL[name] for name in CENTRAL if "boxed" not in name
    }
    specs = [
        ("central, over n", central, "timing", "n", fixed["d"]),
        ("central, over d", central, "timing", "d", fixed["n"]),
        ("local, over n", LOCAL, "timing_local", "n", {}),
    ]
    styles = {"kmeans": line_of("kmeans")} | STYLES | LOCAL_STYLES
    parts = {}
    for place, (axes, (name, selectors, sweep, along, where)) in enumerate(
        zip(grid, specs, strict=True)
    ):
        head(axes, place, name)
        check = {
            "sweep": sweep,
            "metric": "fit_cpu_seconds",
            "along": along,
            "value": "mean",
            "where": where,
        }
        table, _ = curves(study, selectors, **check)
        parts[name] = draw(
            axes, table, styles, log_y=True, x_label=along, y_label="CPU seconds of a fit"
        )
    shown = together(parts)
    legend(figure, styles, shown["method"], columns=4)
    caption = (
        "CPU time of one fit on one pinned thread on planted balls, mean with 95 % intervals over "
        f"{seeds_of(shown)}. The local methods play all users in one process."
    )
    return FigureResult(figure, shown, in_print(shown), caption, _gaps(parts))


def _candidates(study):
    """How many candidates there are, and what k of them cost."""
    rows = study.rows_with(["n_centers"])
    rows = rows[rows["method"].isin(PASSES) & rows["sweep"].isin(["candidates", "capture"])]
    keys = ["method", "dataset", "n", "k", "epsilon"]
    if not len(rows):
        nothing = pd.DataFrame(columns=[*keys, "mean", "largest", "seeds"])
        return FigureResult(None, nothing, nothing, "No stored rows.", (f"candidates: {NO_DATA}",))
    table = (
        rows.groupby(keys)["n_centers"].agg(mean="mean", largest="max", seeds="size").reset_index()
    )
    table = table.assign(over_k=table["mean"] / table["k"])
    measured = {
        "unassigned_points": "points without a near one",
        "nicv_best_k": "NICV of the best k",
    }
    measured = {name: text for name, text in measured.items() if name in rows}
    table = table.merge(rows.groupby(keys)[list(measured)].mean().reset_index(), on=keys)
    caption = (
        "Number of candidates of one pass and of all at the same total budget, ε = 1, points in balls without a "
        "candidate within 5 (r + 1/n), and the mean squared distance to the k candidates that local search without "
        "privacy finds best. The bound ε n log(k / β) of Lemma 3.5 on their number is hundreds of times as large, as "
        "every bucket must hold a fixed part of n / k points here."
    )
    shown = table[table["dataset"].isin(set(rows.loc[rows["sweep"] == "candidates", "dataset"]))]
    shown = shown.assign(method=shown["method"].map(PASSES), mean=shown["mean"].map(number))
    shown = shown.assign(**{name: shown[name].map(number) for name in measured})
    printed = shown[["dataset", "method", "mean", "largest", *measured, "seeds"]].rename(
        columns=measured
    )
    return FigureResult(None, table, printed, caption)


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
