"""What the figures of the FastLloyd paper need beyond their figures.yaml.

Areas over epsilon, the ablation's averages, Table 2, and time and bytes of the protocol.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps

from pkm.analysis import claims
from pkm.analysis.comparisons import average_sides
from pkm.analysis.federation_costs import COSTS, PARTS, compare, costs, network, transports
from pkm.analysis.figure import FigureSpec, in_order
from pkm.analysis.frames import Frame, values_text
from pkm.analysis.render.layout import DASH, count_text, gap_texts, interval_text
from pkm.analysis.reported import NOT_COMPARABLE, NOT_STORED
from pkm.analysis.tables import (
    Panel,
    Study,
    area_table,
    percentile_interval,
    resampled_means,
    resampling_weights,
)

REPORTED = claims.load("fastlloyd")["reported"]

# --- areas over epsilon -------------------------------------------------------------------------

N_CELLS = 45  # of Figure 4 in the paper


def relative_areas(study: Study, spec: FigureSpec) -> Frame:
    """Areas under NICV over epsilon relative to SuLloyd, over d on G2 and over k on Synth-K."""
    parts = []
    cells = []
    gaps: tuple[str, ...] = ()
    grids = {}
    axes = {"g2": ("d", 2 ** np.arange(1, 11)), "synthk": ("k", 2 ** np.arange(1, 8))}
    for sweep, (along, expected) in axes.items():
        panel = study.panel(sweep, "nicv")
        table = area_table(panel, [along], relative_to="sulloyd_published")
        absent = [str(value) for value in expected if value not in set(table[along])]
        if absent:
            gaps += gap_texts([f"{spec.part(along).title}, {along} = {', '.join(absent)}"])
        grids[f"grid_{along}"] = values_text(panel.cells["epsilon"])
        parts.append(table.assign(panel=along, sweep=sweep, x=table[along].astype(float)))
        cells.append(panel.cells)
    table = pd.concat(parts, ignore_index=True).rename(columns={"area": "value"})
    table = table[table["method"].isin(spec.order)].assign(hue=lambda kept: kept["method"])
    return Frame(table, pd.concat(cells), gaps, grids)


def areas(study: Study, spec: FigureSpec) -> Frame:
    """Areas of SuLloyd and FastLloyd by d and k, and by how much FastLloyd's are smaller."""
    panel = study.panel("synth", "nicv")
    table = area_table(panel, ["d", "k"]).rename(columns={"area": "value"})
    table = table[table["method"].isin(["sulloyd_published", "fastlloyd_published"])]
    means = table.pivot(index=["d", "k"], columns="method", values="value")
    means = means.reindex(columns=["sulloyd_published", "fastlloyd_published"]).dropna()
    improvement = 100 * (1 - means["fastlloyd_published"] / means["sulloyd_published"])
    parts = [
        table.assign(panel=table["method"]),
        improvement.rename("value").reset_index().assign(panel="improvement"),
    ]
    table = pd.concat(parts, ignore_index=True)
    table = table.assign(hue=table["panel"], row=table["d"], x=table["k"])
    n_missing = N_CELLS - len(means)
    gaps = gap_texts([f"{n_missing} of the paper's {N_CELLS} cells"]) if n_missing > 0 else ()
    cells = panel.cells[panel.cells["method"].isin(["sulloyd_published", "fastlloyd_published"])]
    return Frame(table, cells, gaps)


# --- ablation -----------------------------------------------------------------------------------

CONFIGURATION = ["alpha", "radius_schedule", "radius_clipping", "postprocessing"]
CHOSEN = {
    "alpha": 0.8,
    "radius_schedule": "step",
    "radius_clipping": True,
    "postprocessing": "fold",
}
AVERAGES = ("ratio_of_means", "mean_of_ratios")
N_ABLATION_SETS = 48


def relative_ablation(
    panel: Panel, weights: np.ndarray
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """NICV relative to GLloyd without post-processing, averaged over data sets in two definitions.

    Returns
    -------
    configurations : DataFrame
        One line each, with a column `datasets`.
    averages : dict of str to ndarray of shape (n_lines, n_configurations)
        ``ratio_of_means``, as the text defines it: the mean NICV over the data sets divided by the
        same mean of GLloyd. ``mean_of_ratios``, as the authors' code plots it: every data set
        weighs the same, whatever its NICV.
    """
    cells = panel.cells
    if not len(cells) or not set(CONFIGURATION) <= set(cells.columns):
        none = np.empty((len(weights), 0))
        return pd.DataFrame(columns=[*CONFIGURATION, "datasets"]), dict.fromkeys(AVERAGES, none)
    is_naive = cells["method"] == "glloyd_published"
    naive = dict(zip(cells["dataset"][is_naive], cells.index[is_naive], strict=True))
    variants = cells[~is_naive & cells["dataset"].isin(naive)]
    groups = variants.groupby(CONFIGURATION, sort=True)
    sides = [list(group.index) for _, group in groups]
    scale = [[naive[name] for name in group["dataset"]] for _, group in groups]
    means = resampled_means(panel, weights)
    averages = {name: average_sides(means, sides, scale, name) for name in AVERAGES}
    return groups.size().rename("datasets").reset_index(), averages


def ablation(study: Study, spec: FigureSpec) -> Frame:
    """Both averages of every configuration; the figure shows the one that its `y_label` names."""
    panel = study.panel("ablation", "nicv")
    table, averages = relative_ablation(panel, resampling_weights(max(len(panel.seeds), 1)))
    for name, values in averages.items():
        low, high = percentile_interval(values)
        table = table.assign(**{name: values[0], f"{name}_low": low, f"{name}_high": high})
    shown = spec.facts[0]
    table = table.assign(
        value=table[shown],
        low=table[f"{shown}_low"],
        high=table[f"{shown}_high"],
        x=table["alpha"].astype(float),
        hue=table["postprocessing"],
        style=table["radius_schedule"],
        panel=np.where(table["radius_clipping"].astype(bool), "with", "without"),
        seeds=len(panel.seeds),
    )
    n_sets = int(table["datasets"].max()) if len(table) else 0
    gaps = gap_texts([spec.title])
    if n_sets:
        n_missing = N_ABLATION_SETS - n_sets
        of_all = f"{n_missing} of {N_ABLATION_SETS} ablation data sets"
        gaps = gap_texts([of_all]) if n_missing else ()
    chosen = table[np.logical_and.reduce([table[name] == value for name, value in CHOSEN.items()])]
    fields: dict[str, Any] = {"n_sets": n_sets or ""}
    for name in AVERAGES:
        fields[name] = f"{chosen[name].iloc[0]:.4f}" if len(chosen) else ""
    return Frame(table, panel.cells, gaps, fields, _printed_ablation(table))


def _printed_ablation(table: pd.DataFrame) -> pd.DataFrame:
    texts = {}
    for name in AVERAGES:
        numbers = table[[name, f"{name}_low", f"{name}_high"]].to_numpy(dtype=float)
        texts[name] = [f"{mean:.4f} [{low:.4f}, {high:.4f}]" for mean, low, high in numbers]
    return table[[*CONFIGURATION, "datasets"]].assign(**texts)


# --- sizes of the data sets ---------------------------------------------------------------------


def sizes(study: Study, spec: FigureSpec) -> Frame:
    """Sizes of the data sets as stored and as the paper reports them."""
    stored = study.cells.drop_duplicates("dataset").set_index("dataset")[["n", "d", "k"]]
    # Sets with added outliers are not in the paper's table.
    stored = stored[~stored.index.str.contains(r"-o\d+$")]
    lines = []
    for row in REPORTED["table2"]:
        names = stored.index
        is_listed = (
            names.str.startswith(f"{row['dataset']}-") if row["family"] else names == row["dataset"]
        )
        listed = stored[is_listed]
        line = {"data set": row["title"]}
        line |= {f"{_symbol(name)} (paper)": row[name] for name in stored}
        line |= {f"{_symbol(name)} (here)": _range_text(listed[name]) for name in stored}
        lines.append(line | {"sets here": len(listed)})
    table = pd.DataFrame(lines)
    gaps = gap_texts(table.loc[table["sets here"] == 0, "data set"])
    return Frame(table, study.cells, gaps, printed=table)


def _symbol(name: str) -> str:
    return "N" if name == "n" else name


def _range_text(values: pd.Series) -> str:
    if not len(values):
        return DASH
    low, high = values.min(), values.max()
    return f"{low}" if low == high else f"{low}{DASH}{high}"


# --- time and bytes of the protocol -------------------------------------------------------------

TABLE3 = REPORTED["table3"]
TITLES = {cell["dataset"]: cell["title"] for cell in TABLE3["cells"]}
CLIENTS = (2, 4, 8)
LATENCIES = (0.25, 25.0)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SHAPE = ["n", "k", "d"]


def table3(study: Study, spec: FigureSpec) -> Frame:
    """Table 3: measured times and bytes, the reported ones and the quoted ones."""
    table = compare(study, TABLE3)
    stored = table[table["verdict"] != NOT_STORED]
    printed = pd.DataFrame([_table3_line(cell, table) for cell in TABLE3["cells"]])
    counts = {"times": "iteration_ms", "bytes": "bytes_per_iteration"}
    fields = {
        name: _counts_text(stored[stored["quantity"] == quantity])
        for name, quantity in counts.items()
    }
    fields["parties"] = transports(stored)
    reasons = dict.fromkeys(stored.loc[stored["verdict"] == NOT_COMPARABLE, "reason"])
    fields["reasons"] = "; ".join(reasons)
    present = set(stored["dataset"])
    gaps = gap_texts(title for name, title in TITLES.items() if name not in present)
    fields["runs"] = count_text(stored["seeds"], "runs")
    return Frame(table, gaps=gaps, fields=fields, printed=printed)


def _counts_text(table: pd.DataFrame) -> str:
    return ", ".join(f"{count} {name}" for name, count in table["verdict"].value_counts().items())


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
    measured = interval_text(line["mean"], line["half_width"], form).replace("e+0", "e")
    verdict = line["verdict"].replace(NOT_COMPARABLE, "n. c.")
    text = f"{measured} | {line['reported']}: {verdict}"
    if quantity == "iteration_ms":
        text += f", ×{line['ratio']:.2f} (without latency ×{line['ratio_without_latency']:.2f})"
    return text


def parties(study: Study, spec: FigureSpec) -> Frame:
    """Every federated cell: time and bytes by network and number of clients."""
    table = costs(study)
    if not len(table):
        empty = pd.DataFrame({"data set": []})
        return Frame(table, gaps=gap_texts([spec.title]), fields={"parties": ""}, printed=empty)
    table = table.assign(
        setting=[
            _setting(*pair) for pair in zip(table["latency_ms"], table["clients"], strict=True)
        ],
        dataset=pd.Categorical(table["dataset"], in_order(table["dataset"], TITLES)),
        word_bytes=table["word_bytes"].astype(int),
    ).sort_values(["method", "word_bytes", "dataset"], ascending=[True, False, True], kind="stable")
    table = table.assign(
        text=[
            f"{interval_text(row.iteration_ms, row.iteration_ms_half_width)} ms, "
            f"{row.bytes_per_iteration:g} B"
            for row in table.itertuples()
        ]
    )
    keys = ["method", "dataset", "word_bytes", "split", "transport"]
    printed = table.pivot_table(
        index=keys, columns="setting", values="text", aggfunc="first", sort=False, observed=True
    )
    wanted = [(latency, clients) for latency in LATENCIES for clients in CLIENTS]
    order = in_order(table["setting"], [_setting(*pair) for pair in wanted])
    printed = printed[order].fillna(DASH).reset_index().rename_axis(columns=None)
    printed["dataset"] = [TITLES.get(name, name) for name in printed["dataset"]]
    printed = printed.rename(columns={"dataset": "data set", "word_bytes": "bytes a word"})
    gaps = _lacking(table[table["method"] == TABLE3["method"]], wanted)
    names = ["sweep", "method", "dataset", *SHAPE, "epsilon", "clients", "network", "latency_ms"]
    names += ["word_bytes", "split", "transport", "iterations", "seeds"]
    names += [name for cost in COSTS for name in (cost, f"{cost}_half_width")]
    return Frame(table[names], gaps=gaps, fields={"parties": transports(table)}, printed=printed)


def _setting(latency: float, clients: float) -> str:
    return f"{network(latency)}, {int(clients)} clients"


def _lacking(table: pd.DataFrame, wanted: Iterable[tuple[float, int]]) -> tuple[str, ...]:
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


def iteration_costs(study: Study, spec: FigureSpec) -> Frame:
    """Milliseconds of FastLloyd's iterations with words of 8 bytes, whole and in parts."""
    table = costs(study)
    table = table[
        (table["method"] == TABLE3["method"])
        & (table["word_bytes"] == 8)
        & (table["split"] == "balanced")
    ]
    # Where a cell was run with both transports, processes come before threads.
    table = table.sort_values("transport", kind="stable")
    table = table.drop_duplicates(["dataset", "clients", "latency_ms"])
    quantities = [name for name in (*PARTS, "iteration_ms", "noise_ms") if name in spec.facts]
    facts = ["sweep", "dataset", *SHAPE, "clients", "network", "latency_ms", "transport", "seeds"]
    long = table.melt(facts, quantities, "quantity", "value")
    half_width = pd.concat([table[f"{name}_half_width"] for name in quantities]).to_numpy()
    long = long.assign(
        low=long["value"] - half_width, high=long["value"] + half_width, half_width=half_width
    )
    titles = [TITLES.get(name, name) for name in in_order(long["dataset"], TITLES)]
    named = [TITLES.get(name, name) for name in long["dataset"]]
    long = long.assign(
        panel=long["network"],
        group=pd.Categorical(named, titles),
        row=long["clients"],
        x=long["clients"].astype(float),
    )
    long = long.assign(hue=long[spec.hue])
    stored = sorted(set(zip(table["latency_ms"], table["clients"].astype(int), strict=True)))
    gaps = _lacking(table, stored) if stored else gap_texts([spec.title])
    how = f"{transports(table)}; {count_text(table['seeds'], 'runs')} each" if stored else ""
    return Frame(long, gaps=gaps, fields={"parties": how})


def dataset_styles(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Styles of data sets: color by number of points, marker by clusters and dimensions."""
    points = sorted(table["n"].unique())
    shades = dict(zip(points, colormaps["viridis"](np.linspace(0, 0.78, len(points))), strict=True))
    shapes = sorted(set(zip(table["k"], table["d"], strict=True)))
    markers = {shape: MARKERS[i % len(MARKERS)] for i, shape in enumerate(shapes)}
    facts = table.drop_duplicates("dataset").set_index("dataset")
    styles = {}
    for name in in_order(facts.index, TITLES):
        n, k, d = facts.loc[name, SHAPE]
        size = "" if name.startswith("timesynth-") else f" (N {n:,})"
        styles[name] = {
            "color": shades[n],
            "marker": markers[k, d],
            "label": TITLES.get(name, name) + size,
        }
    return styles
