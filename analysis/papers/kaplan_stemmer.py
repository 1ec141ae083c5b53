"""Special figures of the Kaplan-Stemmer paper: Table 1 and candidates."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.comparisons import measure_ratios
from pkm.analysis.claims.expressions import evaluate_expression
from pkm.analysis.claims.findings import BootstrapValues, Context, MissingRows
from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.frames import FigureData
from pkm.analysis.figures.texts import DASH, format_number, not_run_texts
from pkm.analysis.tables.statistics import percentile_interval
from pkm.analysis.tables.study import Study, matches

CONTENT = read_claims("kaplan-stemmer")
PASSES = {
    "kaplan_stemmer_candidates": "two passes",
    "kaplan_stemmer_candidates_one_pass": "one pass",
}
# Table 1: factor and additive bound of every row, without logarithms, epsilon and
# constants, which the paper's table leaves out too.
BOUNDS = {
    "feldman2009": ("sqrt(d)", "(k * d) ** (2.0 * d)"),
    "nock2016": ("log(k)", "n / log(n) ** 2"),
    "feldman2017": ("k * log(n)", "sqrt(d) * k**1.5"),
    "balcan2017": ("log(n) ** 3", "d + k**2.0"),
    "nissim_stemmer2018": ("k", "d**0.51 * k**1.51"),
    "this_work": ("1.0", "k**1.01 * d**0.51 + k**1.5"),
}
#: Rows of Table 1 that are implemented.
IMPLEMENTED: dict[str, dict[str, Any]] = {
    "balcan2017": {"method": "balcan"},
    "this_work": {"method": "kaplan_stemmer", "radius": 1.0},
}
#: Of what is measured: sweeps, quantity along which, and value.
EXPONENTS = {
    "factor over n": (("n", "n_rivals", "n_long"), "n", "ratio"),
    "factor over k": (("k",), "k", "ratio"),
    "factor over d": (("d",), "d", "ratio"),
    "additive over n": (("n_points", "n_points_rivals", "n_points_long"), "n", "cost"),
    "additive over k": (("k_points", "k_points_rivals"), "k", "cost"),
    "additive over d": (("d_points",), "d", "cost"),
}
#: Sizes at which the slope of a bound is taken, but for the one along which.
SIZES = {"n": 1e5, "k": 8, "d": 8}

Measured = Mapping[str, Mapping[str, BootstrapValues]]


# Table 1


def table1(study: Study, spec: FigureSpec) -> FigureData:
    """Reported bounds, their slopes over the measured ranges, and measured slopes."""
    measured = {name: _measure(study, *what) for name, what in EXPONENTS.items()}
    rows = CONTENT["reported"]["table1"]
    table = pd.DataFrame([_lay_out(row, measured) for row in rows])

    printed = table[["method", "factor (paper)", "additive error (paper)"]]
    ranges = []
    for name, (_, along, _) in EXPONENTS.items():
        bound = table[f"{name}: bound"]
        slope = table[f"{name}: measured"]
        both = bound.where(slope == DASH, bound + " / " + slope)
        printed = printed.assign(**{name: both})
        if "this_work" in measured[name]:
            x = measured[name]["this_work"].extra_columns[along]
            ranges.append(f"{name} from {x.min():g} to {x.max():g}")

    over_bounds = []
    for row in rows:
        largest = _largest_over_bound(row["key"], measured)
        if largest:
            over_bounds.append(f"{row['reference']} {format_number(largest)}")
    curves_of_all = [curve for curves in measured.values() for curve in curves.values()]
    seeds = [int(curve.seeds.min()) for curve in curves_of_all]
    fields = {
        "over_bounds": ", ".join(over_bounds),
        "min_seeds": min(seeds, default=""),
        "ranges": "; ".join(ranges),
    }
    missing = not_run_texts(name for name, curves in measured.items() if not curves)
    return FigureData(table, study.cells, missing, fields, printed)


def _measure(
    study: Study, sweeps: tuple[str, ...], along: str, value: str
) -> dict[str, BootstrapValues]:
    """Curves of the implemented rows that have stored rows."""
    check = {
        "sweep": list(sweeps),
        "metric": "nicv",
        "over": {along: "any"},
        "columns": {name: name for name in SIZES},
    }
    if value == "ratio":
        check["relative_to"] = "kmeans"
    else:
        check["times"] = "n"
    curves = {}
    for key, selector in IMPLEMENTED.items():
        with suppress(MissingRows):
            own_check = check | {"left": [selector]}
            curves[key] = measure_ratios(study, own_check, Context())
    return curves


def _lay_out(row: Mapping[str, str], measured: Measured) -> dict[str, str]:
    """Return one row of Table 1."""
    texts = {
        "method": row["reference"],
        "factor (paper)": row["factor"],
        "additive error (paper)": row["additive"],
    }
    factor, additive = BOUNDS[row["key"]]
    for name, (_, along, value) in EXPONENTS.items():
        curves = measured[name]
        own = curves.get(row["key"])
        bound = factor if value == "ratio" else additive
        longest = own or next(iter(curves.values()), None)
        texts[f"{name}: bound"] = _bound_slope(bound, along, longest)
        texts[f"{name}: measured"] = _slope_text(own, along)
    return texts


def _has_slope(curve: BootstrapValues) -> bool:
    """Whether a power can be fitted: two points or more, all positive."""
    is_positive = curve.values[0] > 0
    return len(curve.cases) > 1 and bool(is_positive.all())


def _slope_text(curve: BootstrapValues | None, along: str) -> str:
    if curve is None or not _has_slope(curve):
        return DASH
    x = curve.extra_columns[along].to_numpy(dtype=float)
    slope = "slope(log(x), log(value), min_points=2)"
    slopes = evaluate_expression(slope, {"x": x, "value": curve.values})
    (low,), (high,) = percentile_interval(slopes[:, None])
    return f"{slopes[0]:.2f} [{low:.2f}, {high:.2f}]"


def _bound_slope(bound: str, along: str, curve: BootstrapValues | None) -> str:
    """Return the slope of a reported bound between the ends of a measured curve."""
    if curve is None or len(curve.cases) < 2:
        return DASH
    x = curve.extra_columns[along]
    ends = x.agg(["min", "max"]).to_numpy(np.longdouble)
    # One bound is exponential in d: it needs more than double precision's range.
    sizes = {name: np.longdouble(value) for name, value in SIZES.items()}
    with np.errstate(divide="ignore", over="ignore"):
        values = [evaluate_expression(bound, sizes | {along: end}) for end in ends]
        (slope,) = np.diff(np.log(values)) / np.diff(np.log(ends))
    return f"{slope:.2f}" if np.isfinite(slope) else DASH


def _largest_over_bound(key: str, measured: Measured) -> float:
    """Return the largest additive error over its bound; 0 where none is measured."""
    _, additive = BOUNDS[key]
    largest = 0.0
    for name, (_, _, value) in EXPONENTS.items():
        curve = measured[name].get(key)
        if value == "cost" and curve is not None and _has_slope(curve):
            sizes = curve.extra_columns[list(SIZES)].astype(float)
            ratio = curve.values[0] / evaluate_expression(additive, dict(sizes))
            largest = max(largest, ratio.max())
    return largest


# Planted balls


def with_bound(table: pd.DataFrame) -> pd.DataFrame:
    """Add the additive error of the theorem where the optimum is 0.

    Its constant is 1, and logarithms are left out, as in the paper's Table 1.
    """
    is_additive = table["panel"].str.startswith("additive")
    rows = table[is_additive & (table["hue"] == "kaplan_stemmer")]
    _, additive = BOUNDS["this_work"]
    bound = evaluate_expression(additive, dict(rows[list(SIZES)].astype(float)))
    no_interval = dict.fromkeys(("low", "high", "half_width"), np.nan)
    bounds = rows.assign(hue="bound", value=bound, **no_interval)
    return pd.concat([table, bounds], ignore_index=True)


# Candidates


def candidates(study: Study, spec: FigureSpec) -> FigureData:
    """How many candidates there are, and what k of them cost."""
    rows = study.rows_with(["n_centers"])
    selector = {"method": list(PASSES), "sweep": ["candidates", "capture"]}
    rows = rows[matches(rows, selector)]
    keys = ["method", "dataset", "n", "k", "epsilon"]
    if rows.empty:
        return FigureData(pd.DataFrame(columns=[*keys, "mean", "largest", "seeds"]))

    titles = {
        "unassigned_points": "points without a near one",
        "nicv_best_k": "NICV of the best k",
    }
    titles = {name: title for name, title in titles.items() if name in rows}
    groups = rows.groupby(keys)
    counts = groups["n_centers"].agg(mean="mean", largest="max", seeds="size")
    means = groups[list(titles)].mean()
    table = counts.join(means).reset_index()
    table = table.assign(over_k=table["mean"] / table["k"])

    # The sets of the captured balls are in the file alone.
    listed = rows.query("sweep == 'candidates'")["dataset"]
    columns = ["dataset", "method", "mean", "largest", *titles, "seeds"]
    printed = (
        table.loc[table["dataset"].isin(listed), columns]
        .replace({"method": PASSES})
        .rename(columns=titles)
    )
    numbers = ["mean", *titles.values()]
    printed[numbers] = printed[numbers].map(format_number)
    return FigureData(table, rows, (), printed=printed)
