"""From per-seed rows to summaries: means with intervals, areas over epsilon, files to cite.

Everything downstream (figures, verdicts) reads a `Panel`: the values of one metric in one sweep as
a matrix with seeds down and cells across. Seeds are the replicate axis, so a paired comparison is a
difference of two columns and a paired bootstrap is one matrix product.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

IDENTITY = (
    "sweep",
    "method",
    "target",
    "variant",
    "params",
    "dataset",
    "preprocessing",
    "n",
    "d",
    "k",
)
DESCRIPTION = (
    *IDENTITY,
    "cell",
    "private_bounds",
    "epsilon",
    "delta",
    "notion",
    "adjacency",
    "trust",
    "view",
    "flaws",
    "epsilon_spent",
    "epsilon_unspent",
    "iterations",
    "charges",
)
# Columns that older rows lack, with the name they have in `Study.cells` and their value there;
# central cells have no clients.
OPTIONAL = {
    "half_width": ("domain_half_width", np.nan),
    "label": ("label", ""),
    "color": ("color", ""),
    "marker": ("marker", ""),
    "timing": ("timing", False),
    "clients": ("clients", 0),
    "latency_ms": ("latency_ms", np.nan),
    "word_bytes": ("word_bytes", 0),
    "transport": ("transport", ""),
    "split": ("split", ""),
    "clusters_per_client": ("clusters_per_client", np.nan),
    "largest_client": ("largest_client", np.nan),
    "removals": ("removals", 0),
    "batch": ("batch", np.nan),
    "requests": ("requests", ""),
}
METRIC_NAMES = {
    "nicv": "NICV",
    "silhouette": "silhouette score",
    "davies_bouldin": "Davies–Bouldin index",
    "centroid_mse": "centroid MSE",
    "centroid_distance": "mean centroid distance",
    "empty_clusters": "empty clusters",
    "accuracy": "accuracy by majority label",
    "inertia": "inertia",
    "kmeans_distance": "KMeans distance",
    "kmeans_distance_sum": "KMeans distance, summed over centers",
    "norm_kmeans_distance": "normalized KMeans distance",
    "reverse_kmeans_distance": "reverse KMeans distance",
    "norm_reverse_kmeans_distance": "normalized reverse KMeans distance",
    "n_centers": "released centers",
    "nonempty_centers": "non-empty centers",
    "mean_distance": "mean distance",
    "farthest_class": "distance to the class farthest from all centers",
    "unassigned_points": "points of classes that no center is near",
    "nicv_best_k": "NICV of the best k released centers",
    "iteration_ms": "ms per iteration",
    "setup_ms": "ms of key agreement",
    "bytes_per_iteration": "bytes per iteration",
    "rounds_per_iteration": "rounds per iteration",
    "client_ms": "client",
    "masking_ms": "masking",
    "server_ms": "server",
    "wire_ms": "wire",
    "waiting_ms": "waiting",
    "noise_ms": "noise, drawn ahead (CPU)",
    "optimum": "optimum",
    "loss_ratio": "loss ratio",
    "loss_ratio_nearest": "loss ratio, nearest centers",
    "loss_ratio_after": "loss ratio after removals",
    "loss_ratio_after_nearest": "loss ratio after removals, nearest centers",
    "fit_client_ms": "fit, slowest client (ms)",
    "fit_server_ms": "fit, server (ms)",
    "fit_all_ms": "fit, one process (ms)",
    "retrain_ms": "retraining (ms)",
    "retrain_full_ms": "full retraining (ms)",
    "removal_mean_ms": "request, mean (ms)",
    "removal_p50_ms": "request, median (ms)",
    "removal_p95_ms": "request, 95th percentile (ms)",
    "removal_p99_ms": "request, 99th percentile (ms)",
    "removal_max_ms": "request, longest (ms)",
    "removal_client_ms": "request, client (ms)",
    "removal_server_ms": "request, server (ms)",
    "mean_untouched_ms": "request that touches no seed (ms)",
    "deletions_per_second": "deletions per second",
    "reseeded": "share of requests that touch a seed",
    "reseeded_predicted": "predicted share of requests that touch a seed",
    "sparse_bytes": "bytes of a client, sparse",
    "plain_bytes": "bytes of a client, in the open",
    "sparse_encode_ms": "sparse encoding (ms)",
    "sparse_mask_ms": "sparse masking (ms)",
    "sparse_decode_ms": "sparse decoding (ms)",
    "sparse_attempts": "sparse rounds",
}
HIGHER_IS_BETTER = ("silhouette", "accuracy")
# Metrics measured in half-widths of the domain, with the power of the half-width that gives raw
# units.
RAW_POWERS = {
    "inertia": 2,
    "kmeans_distance": 1,
    "kmeans_distance_sum": 1,
    "reverse_kmeans_distance": 1,
}
BOOTSTRAP_REPEATS = 2000
_BOOTSTRAP_SEED = 20250601


@dataclass(frozen=True)
class Panel:
    """The values of one metric in one sweep.

    Attributes
    ----------
    metric : str
        Name of the metric, or ``"<metric>_area"``.
    cells : DataFrame
        One line per column of `values`: what the cell is (method, data set, epsilon, parameters).
    seeds : ndarray of shape (n_seeds,)
        The seed of every line of `values`.
    values : ndarray of shape (n_seeds, n_cells)
        float64; NaN where the seed was not run or the value is not finite.
    left_out : ndarray of shape (n_cells,)
        How many values of a cell were run but are not finite (an infinite Davies–Bouldin index).
    """

    metric: str
    cells: pd.DataFrame
    seeds: np.ndarray
    values: np.ndarray
    left_out: np.ndarray

    def take(self, chosen):
        """Return the panel of the chosen columns (mask or positions)."""
        chosen = (
            np.flatnonzero(chosen)
            if np.asarray(chosen).dtype == bool
            else np.asarray(chosen, dtype=int)
        )
        return replace(
            self,
            cells=self.cells.iloc[chosen].reset_index(drop=True),
            values=self.values[:, chosen],
            left_out=self.left_out[chosen],
        )

    @property
    def epsilons(self):
        """The epsilon grid: sorted declared epsilons of the private cells."""
        return np.unique(self.cells["epsilon"].dropna().to_numpy(dtype=float))

    def spread(self):
        """Return the panel with every cell that has no epsilon repeated at each epsilon of the
        grid.
        """
        grid, constant = self.epsilons, self.cells["epsilon"].isna().to_numpy()
        if not grid.size or not constant.any():
            return self
        private, repeated = (
            np.flatnonzero(~constant),
            np.repeat(np.flatnonzero(constant), grid.size),
        )
        spread = self.take(np.concatenate([private, repeated]))
        epsilon = spread.cells["epsilon"].to_numpy(dtype=float).copy()
        epsilon[private.size :] = np.tile(grid, constant.sum())
        return replace(spread, cells=spread.cells.assign(epsilon=epsilon))


class Study:
    """Per-seed rows of one paper, indexed once: which cells there are and which row belongs to
    which.

    Parameters
    ----------
    rows : DataFrame
        One row per sweep, cell and seed, as the store gives them (see `docs/architecture.md`).

    Attributes
    ----------
    cells : DataFrame
        One line per sweep and cell, parameters of the method expanded into columns of their own.

    Raises
    ------
    ValueError
        If a column is missing, or a seed stands twice in one cell of one sweep (it would count
        double).
    """

    def __init__(self, rows):
        absent = [name for name in (*DESCRIPTION, "seed") if name not in rows.columns]
        if absent:
            raise ValueError(
                f"rows lack the columns {absent}; they must come from the cell store with a sweep column"
            )
        self._rows = rows
        sweep, _ = pd.factorize(rows["sweep"])
        cell, names = pd.factorize(rows["cell"])
        key = sweep.astype(np.int64) * max(len(names), 1) + cell
        _, first, self._entry = np.unique(key, return_index=True, return_inverse=True)
        self._seed, self.seeds = pd.factorize(rows["seed"], sort=True)
        place = self._entry.astype(np.int64) * max(len(self.seeds), 1) + self._seed
        if np.unique(place).size != len(rows):
            twice = rows.loc[
                pd.Series(place, index=rows.index).duplicated(), ["sweep", "cell", "seed"]
            ].iloc[0]
            raise ValueError(
                f"seed {twice['seed']} stands twice in cell {twice['cell']} of sweep {twice['sweep']!r}"
            )
        described = [*DESCRIPTION, *(name for name in OPTIONAL if name in rows.columns)]
        cells = rows.iloc[first][described].reset_index(drop=True)
        cells = cells.rename(
            columns={name: OPTIONAL[name][0] for name in described if name in OPTIONAL}
        )
        cells = cells.assign(
            **{name: value for name, value in OPTIONAL.values() if name not in cells}
        )
        # Rows from before and after a column came to be may stand together.
        cells = cells.fillna({name: value for name, value in OPTIONAL.values() if value == value})
        self.cells = _expand_parameters(cells)
        self._panels = {}

    @property
    def sweeps(self):
        """Names of the sweeps that have rows, sorted."""
        return sorted(self.cells["sweep"].unique())

    @property
    def metrics(self):
        """Names of the metrics that some row has."""
        return [name for name in METRIC_NAMES if name in self._rows.columns]

    def panel(self, sweep, metric):
        """Return the `Panel` of one metric in one sweep; it has no columns where nothing was
        measured.
        """
        if (sweep, metric) not in self._panels:
            self._panels[sweep, metric] = self._build(sweep, metric)
        return self._panels[sweep, metric]

    def rows_with(self, metrics):
        """Rows that have all of the named metrics (infinite values included); empty if a metric was
        never asked for.
        """
        if any(name not in self._rows.columns for name in metrics):
            return self._rows.iloc[:0]
        return self._rows[self._rows[list(metrics)].notna().all(axis=1)].drop_duplicates(
            ["cell", "seed"]
        )

    def _build(self, sweep, metric):
        entries = np.flatnonzero((self.cells["sweep"] == sweep).to_numpy())
        column = np.full(len(self.cells), -1)
        column[entries] = np.arange(entries.size)
        rows = np.flatnonzero(column[self._entry] >= 0)
        if metric not in self._rows.columns:
            rows = rows[:0]
            measured = np.empty(0)
        else:
            measured = self._rows[metric].to_numpy(dtype=float)[rows]
        line, across = self._seed[rows], column[self._entry[rows]]
        values = np.full((len(self.seeds), entries.size), np.nan)
        values[line, across] = np.where(np.isfinite(measured), measured, np.nan)
        left_out = np.bincount(across[np.isinf(measured)], minlength=entries.size)
        used = np.isfinite(values).any(axis=1)
        panel = Panel(
            metric,
            self.cells.iloc[entries].reset_index(drop=True),
            np.asarray(self.seeds)[used],
            values[used],
            left_out,
        )
        return panel.take(np.isfinite(panel.values).any(axis=0) | (left_out > 0))


def _expand_parameters(cells):
    """Add one column per constructor parameter named in the JSON of `params`."""
    parsed = {text: json.loads(text) if text else {} for text in cells["params"].unique()}
    names = sorted(
        {name for parameters in parsed.values() for name in parameters} - set(cells.columns)
    )
    columns = {name: [_plain(parsed[text].get(name)) for text in cells["params"]] for name in names}
    return cells.assign(
        **{name: pd.Series(values, dtype=object) for name, values in columns.items()}
    )


def _plain(value):
    """Make a parameter comparable: floats without binary dust, lists as text."""
    if isinstance(value, float):
        return round(value, 10)
    return json.dumps(value) if isinstance(value, list | dict) else value


def raw_units(panel):
    """Return the panel in the raw units of the data; NaN where the columns of the data share no
    range.

    Metrics that have no unit, such as scores and counts, stay as they are.
    """
    power = RAW_POWERS.get(panel.metric, 0)
    if not power:
        return panel
    return replace(
        panel, values=panel.values * panel.cells["domain_half_width"].to_numpy(dtype=float) ** power
    )


def concatenate(panels):
    """Join panels of one metric side by side (several sweeps); seeds are matched, missing ones are
    NaN.
    """
    seeds = np.unique(np.concatenate([panel.seeds for panel in panels]))
    values = np.full((seeds.size, sum(panel.values.shape[1] for panel in panels)), np.nan)
    start = 0
    for panel in panels:
        stop = start + panel.values.shape[1]
        values[np.searchsorted(seeds, panel.seeds), start:stop] = panel.values
        start = stop
    cells = pd.concat([panel.cells for panel in panels], ignore_index=True)
    return Panel(
        panels[0].metric, cells, seeds, values, np.concatenate([panel.left_out for panel in panels])
    )


def summarize(panel):
    """Summarise a panel over its seeds.

    Returns
    -------
    DataFrame
        The cells with `mean`, `half_width` (95 % Student t interval of the mean; NaN below two
        seeds), `median`, `seeds` (finite values used) and `left_out` (values that are not finite).

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> cells = pd.DataFrame({"method": ["a"], "epsilon": [1.0]})
    >>> one = Panel("nicv", cells, np.arange(3), np.array([[1.0], [2.0], [3.0]]), np.array([0]))
    >>> summarize(one)[["mean", "median", "seeds"]].values.tolist()
    [[2.0, 2.0, 3.0]]
    """
    mean, half_width, median, count = column_statistics(panel.values)
    return panel.cells.assign(
        metric=panel.metric,
        mean=mean,
        half_width=half_width,
        median=median,
        seeds=count,
        left_out=panel.left_out,
    )


def standard_deviations(values):
    """Standard deviation of the finite values of each column, with n - 1; NaN below two of them."""
    finite = np.isfinite(values)
    count = finite.sum(axis=0)
    mean = np.where(finite, values, 0).sum(axis=0) / np.maximum(count, 1)
    squares = np.where(finite, (values - mean) ** 2, 0).sum(axis=0)
    return np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1)), np.nan)


def column_statistics(values):
    """Mean, 95 % t half-width, median and number of the finite values of each column."""
    finite = np.isfinite(values)
    count = finite.sum(axis=0)
    some, several = np.maximum(count, 1), np.maximum(count - 1, 1)
    mean = np.where(count > 0, np.where(finite, values, 0).sum(axis=0) / some, np.nan)
    spread = np.sqrt(np.where(finite, (values - mean) ** 2, 0).sum(axis=0) / several)
    half_width = np.where(count > 1, stats.t.ppf(0.975, several) * spread / np.sqrt(some), np.nan)
    if values.shape[0] == 0:
        return mean, half_width, mean.copy(), count
    ordered = np.sort(np.where(finite, values, np.inf), axis=0)
    columns = np.arange(values.shape[1])
    ordered[:, count == 0] = 0
    median = np.where(
        count > 0, (ordered[(some - 1) // 2, columns] + ordered[some // 2, columns]) / 2, np.nan
    )
    return mean, half_width, median, count


def area(panel):
    """Area under a metric over epsilon, per seed (trapezoids; FastLloyd paper, section 6.2.1).

    The grid is that of the whole panel. A curve that lacks one of its epsilons has no area and is
    left out rather than integrated over fewer points, because areas over different grids cannot be
    compared. A non-private cell repeats its value at every epsilon. Since the area is linear, the
    mean over seeds equals the area under the means.

    Returns
    -------
    Panel
        One column per curve; no columns if the grid has fewer than two epsilons.
    """
    grid = panel.epsilons
    identity = (
        panel.cells[list(IDENTITY)].astype(str).agg("\x1f".join, axis=1)
        if len(panel.cells)
        else pd.Series(dtype=str)
    )
    curve, _ = pd.factorize(identity)
    epsilon = panel.cells["epsilon"].to_numpy(dtype=float)
    keep, values, left_out = [], [], []
    for positions in (
        pd.Series(np.arange(len(curve))).groupby(curve).indices.values() if grid.size > 1 else ()
    ):
        at = epsilon[positions]
        if positions.size == 1 and np.isnan(at[0]):
            under = panel.values[:, positions[0]] * (grid[-1] - grid[0])
        elif positions.size == grid.size and np.array_equal(np.sort(at), grid):
            under = np.trapezoid(panel.values[:, positions[np.argsort(at)]], grid, axis=1)
        else:
            continue
        keep.append(positions[0])
        values.append(under)
        left_out.append(panel.left_out[positions].sum())
    collapsed = panel.take(np.array(keep, dtype=int))
    has_epsilon = collapsed.cells["epsilon"].notna()
    cells = collapsed.cells.assign(private=has_epsilon, epsilon=np.nan)
    matrix = np.column_stack(values) if values else np.empty((len(panel.seeds), 0))
    return Panel(f"{panel.metric}_area", cells, panel.seeds, matrix, np.array(left_out, dtype=int))


def resampling_weights(n_seeds, repeats=BOOTSTRAP_REPEATS):
    """Bootstrap counts of each seed, the first line being the sample itself.

    One draw of seeds serves every method, data set and epsilon, so whatever the replicates share
    (initialization, data stream) stays paired. The generator is fixed: a report built twice from
    the same rows is the same.

    Returns
    -------
    ndarray of shape (repeats + 1, n_seeds)
        float64 counts; every line sums to `n_seeds`.
    """
    rng = np.random.default_rng([_BOOTSTRAP_SEED, n_seeds])
    drawn = rng.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), size=repeats)
    return np.vstack([np.ones(n_seeds), drawn])


def resampled_means(panel, weights):
    """Mean of every column under every line of `weights`; NaN where a resample holds no finite
    value.

    Returns
    -------
    ndarray of shape (n_lines, n_cells)
    """
    finite = np.isfinite(panel.values)
    total = weights @ np.where(finite, panel.values, 0.0)
    count = (
        np.full(total.shape, float(len(panel.seeds)))
        if finite.all()
        else weights @ finite.astype(float)
    )
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def percentile_interval(resampled):
    """95 % percentile interval of each column of bootstrap values (the first line is the sample
    itself).
    """
    drawn = resampled[1:]
    low, high = np.full(resampled.shape[1], np.nan), np.full(resampled.shape[1], np.nan)
    known = np.isfinite(drawn).all(axis=0)
    if known.any():
        low[known], high[known] = np.quantile(drawn[:, known], [0.025, 0.975], axis=0)
    return low, high


def area_table(panel, by, relative_to=None):
    """Areas over epsilon, averaged over the data sets of a group, with bootstrap intervals over
    seeds.

    Parameters
    ----------
    panel : Panel
        A metric over epsilon (not yet an area).
    by : list of str
        Columns that make a group besides the method, e.g. ``["d"]``.
    relative_to : str, optional
        Method whose area divides the others', inside every resample. Only data sets on which this
        method has an area count then, for every method.

    Returns
    -------
    DataFrame
        `method`, the columns of `by`, `area`, `low`, `high` (95 % interval), `datasets`, `seeds`.
    """
    areas = area(panel)
    cells, means = (
        areas.cells,
        resampled_means(areas, resampling_weights(len(areas.seeds))) if areas.cells.size else None,
    )
    if means is None or not len(cells):
        return pd.DataFrame(columns=["method", *by, "area", "low", "high", "datasets", "seeds"])
    _, _, _, seeds = column_statistics(areas.values)
    common = _common_datasets(cells, relative_to)
    lines = []
    for group, inside in cells[cells["dataset"].isin(common)].groupby(by, sort=True):
        methods = {name: at.index.to_numpy() for name, at in inside.groupby("method")}
        shared = set.intersection(*({*cells.loc[at, "dataset"]} for at in methods.values()))
        if not shared:
            continue
        averaged = {
            name: means[:, at[cells.loc[at, "dataset"].isin(shared).to_numpy()]].mean(axis=1)
            for name, at in methods.items()
        }
        for name, at in methods.items():
            value = averaged[name] / averaged[relative_to] if relative_to else averaged[name]
            (low,), (high,) = percentile_interval(value[:, None])
            group_values = dict(zip(by, group, strict=True))
            lines.append(
                {
                    "method": name,
                    **group_values,
                    "area": value[0],
                    "low": low,
                    "high": high,
                    "datasets": len(shared),
                    "seeds": int(seeds[at].min()),
                }
            )
    return pd.DataFrame(lines, columns=["method", *by, "area", "low", "high", "datasets", "seeds"])


def _common_datasets(cells, method):
    return set(
        cells["dataset"] if method is None else cells.loc[cells["method"] == method, "dataset"]
    )


def wide(summary, rows, columns="method"):
    """Lay a summary out for print: ``mean ± half-width`` per method, at four significant digits."""
    text = [
        _interval_text(mean, half)
        for mean, half in zip(summary["mean"], summary["half_width"], strict=True)
    ]
    table = summary.assign(text=text).pivot_table(
        index=rows, columns=columns, values="text", aggfunc="first", sort=False, observed=True
    )
    return table.fillna("–").reset_index().rename_axis(columns=None)


def _interval_text(mean, half_width):
    if not np.isfinite(mean):
        return "–"
    return f"{mean:.4g} ± {half_width:.2g}" if np.isfinite(half_width) else f"{mean:.4g}"


def latex(table, caption, label):
    """Set a table of texts and numbers in LaTeX with booktabs rules; special characters are
    escaped.
    """
    texts = table.map(
        lambda value: _latex_escape(f"{value:.4g}" if isinstance(value, float) else str(value))
    )
    texts.columns = [_latex_escape(str(name)) for name in texts.columns]
    lines = [
        r"\begin{table}",
        r"\centering\small",
        rf"\caption{{{_latex_escape(caption)}}}",
        rf"\label{{{label}}}",
        rf"\begin{{tabular}}{{{'l' * texts.shape[1]}}}",
        r"\toprule",
        " & ".join(texts.columns) + r" \\",
        r"\midrule",
        *(" & ".join(line) + r" \\" for line in texts.itertuples(index=False, name=None)),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "α": r"$\alpha$",
    "–": "--",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "²": r"$^2$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "→": r"$\rightarrow$",
    "·": r"$\cdot$",
    "√": r"$\surd$",
    "×": r"$\times$",
}


def _latex_escape(text):
    return "".join(_LATEX.get(character, character) for character in text)


def write(table, folder, name, *, printed=None, caption=""):
    """Write one table as ``<name>.csv`` (full precision) and ``<name>.tex`` (booktabs).

    Parameters
    ----------
    table : DataFrame
        The numbers, one observation per line.
    folder : Path
        Must exist.
    name : str
        File name without ending; also the LaTeX label.
    printed : DataFrame, optional
        The same content laid out for print; `table` itself by default.
    caption : str
        Caption of the LaTeX table.

    Returns
    -------
    tuple of Path
        The CSV and the LaTeX file.
    """
    folder = Path(folder)
    csv, tex = folder / f"{name}.csv", folder / f"{name}.tex"
    table.to_csv(csv, index=False)
    tex.write_text(
        latex(table if printed is None else printed, caption, f"tab:{name}"), encoding="utf-8"
    )
    return csv, tex
