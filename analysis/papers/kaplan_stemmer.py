"""Special figures of the Kaplan-Stemmer paper: Table 1 and candidates."""

from contextlib import suppress

import numpy as np
import pandas as pd

from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.comparisons import measure_ratios
from pkm.analysis.claims.expressions import evaluate_columns, evaluate_expression
from pkm.analysis.claims.findings import BootstrapValues, Context, MissingRows
from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.figure_data import FigureData
from pkm.analysis.figures.texts import DASH, format_number, not_run_texts
from pkm.analysis.tables.statistics import percentile_interval
from pkm.analysis.tables.study import Study, matches

ROWS = read_claims("kaplan-stemmer")["reported"]["table1"]
#: Sizes at which the slope of a bound is taken, but for the one along which.
SIZES = {
    "n": 1e5,
    "k": 8,
    "d": 8,
}


# Table 1


def table1(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show reported bounds, their slopes over measured ranges, and measured slopes."""
    table = pd.DataFrame(ROWS)[["reference", "factor", "additive"]]
    ranges = []
    seeds = []
    missing = []
    over_bounds: dict[str, float] = {}
    for name in spec.panels:
        panel_spec = spec.for_panel(name)
        curves = _measure(study, panel_spec)
        longest = next(iter(curves.values()), None)
        texts = []
        for row in ROWS:
            own = curves.get(row["key"])
            error = name.partition(" ")[0]
            bound = row[f"{error}_bound"]
            of_bound = _bound_slope(bound, panel_spec.x, own or longest)
            slope = _slope_text(own, panel_spec.x)
            known = [text for text in (of_bound, slope) if text != DASH]
            texts.append(" / ".join(known) or DASH)
            if "times" in panel_spec.compare and slope != DASH:
                bounds = _evaluate_bound(bound, own.extra_columns)
                ratio = own.values[0] / bounds
                reference = row["reference"]
                largest = over_bounds.get(reference, 0.0)
                over_bounds[reference] = max(largest, ratio.max())
        table[name] = texts
        seeds += [int(curve.seeds.min()) for curve in curves.values()]
        if not curves:
            missing.append(name)
        if "this_work" in curves:
            x = curves["this_work"].extra_columns[panel_spec.x]
            ranges.append(f"{name} from {x.min():g} to {x.max():g}")
    over_texts = [
        f"{name} {format_number(ratio)}" for name, ratio in over_bounds.items()
    ]
    fields = {
        "over_bounds": ", ".join(over_texts),
        "min_seeds": min(seeds, default=""),
        "ranges": "; ".join(ranges),
    }
    return FigureData(
        table,
        study.cells,
        not_run_texts(missing),
        fields,
    )


def _measure(
    study: Study,
    spec: FigureSpec,
) -> dict[str, BootstrapValues]:
    """Measure the curves of the rows of Table 1 that are implemented and stored."""
    check = {
        "sweep": list(spec.sweep),
        "metric": "nicv",
        "over": {spec.x: "any"},
        "columns": {name: name for name in SIZES},
        **spec.compare,
    }
    curves = {}
    for key, selector in spec.curves.items():
        check["left"] = [selector]
        with suppress(MissingRows):
            curves[key] = measure_ratios(study, check, Context())
    return curves


def _slope_text(
    curve: BootstrapValues | None,
    along: str,
) -> str:
    """Fit a power to two points or more, all positive."""
    if curve is None or len(curve.cases) < 2:
        return DASH
    if not (curve.values[0] > 0).all():
        return DASH
    x = curve.extra_columns[along].to_numpy(dtype=float)
    slope = "slope(log(x), log(value), min_points=2)"
    names = {"x": x, "value": curve.values}
    slopes = evaluate_expression(slope, names)
    (low,), (high,) = percentile_interval(slopes[:, None])
    return f"{slopes[0]:.2f} [{low:.2f}, {high:.2f}]"


def _bound_slope(
    bound: str,
    along: str,
    curve: BootstrapValues | None,
) -> str:
    """Return the slope of a reported bound between the ends of a measured curve."""
    if curve is None or len(curve.cases) < 2:
        return DASH
    x = curve.extra_columns[along]
    ends = x.agg(["min", "max"]).to_numpy(np.longdouble)
    # One bound is exponential in d: it needs more than double precision's range.
    sizes = {name: np.longdouble(value) for name, value in SIZES.items()}
    values = []
    with np.errstate(divide="ignore", over="ignore"):
        for end in ends:
            sizes[along] = end
            values.append(evaluate_expression(bound, sizes))
        rise = np.diff(np.log(values))
        (slope,) = rise / np.diff(np.log(ends))
    return f"{slope:.2f}" if np.isfinite(slope) else DASH


def _evaluate_bound(
    bound: str,
    sizes: pd.DataFrame,
) -> np.ndarray:
    """Evaluate a bound at the sizes of some cells."""
    return evaluate_columns(sizes[list(SIZES)].astype(float), bound)


# Planted balls


def with_bound(table: pd.DataFrame) -> pd.DataFrame:
    """Add the additive error of the theorem where the optimum is 0.

    Its constant is 1, and logarithms are left out, as in the paper's Table 1.
    """
    is_additive = table["panel"].str.startswith("additive")
    rows = table[is_additive & (table["hue"] == "kaplan_stemmer")]
    (additive,) = (row["additive_bound"] for row in ROWS if row["key"] == "this_work")
    bound = _evaluate_bound(additive, rows)
    no_interval = dict.fromkeys(("low", "high", "half_width"), np.nan)
    bounds = rows.assign(
        hue="bound",
        value=bound,
        **no_interval,
    )
    return pd.concat([table, bounds], ignore_index=True)


# Candidates


def candidates(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show how many candidates there are, and what k of them cost."""
    rows = study.rows_with(["n_centers"])
    rows = rows[matches(rows, spec.where)]
    keys = ["method", "dataset", "n", "k", "epsilon"]
    means = ["unassigned_points", "nicv_best_k"]
    # A metric that no stored sweep has is missing everywhere.
    cells = rows.reindex(columns=[*keys, "n_centers", *means]).groupby(keys)
    counts = cells["n_centers"].agg(["mean", "max", "size"])
    counts = counts.set_axis(["mean", "largest", "seeds"], axis=1)
    table = counts.join(cells[means].mean()).reset_index()
    # The sets of the captured balls are in the file alone.
    listed = rows.query("sweep == 'candidates'")["dataset"]
    printed = table[table["dataset"].isin(listed)]
    return FigureData(table, rows, printed=printed)
