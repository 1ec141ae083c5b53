"""What the figures of the DPM paper need beyond their figures.yaml.

Tables 1 to 3, budget splits by rank, and ratios at matched spent budgets.
"""

import string
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pkm.analysis.claims import reported
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.expressions import item
from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.frames import Frame, absent, number_text, select
from pkm.analysis.figures.styles import MethodStyles
from pkm.analysis.figures.texts import count_text, gap_texts
from pkm.analysis.tables.charges import read_charges
from pkm.analysis.tables.statistics import percentile_interval, resampled_means
from pkm.analysis.tables.study import Study
from pkm.schema import BY_NAME, higher_is_better

REPORTED = read_claims("dpm")["reported"]

# --- tables -------------------------------------------------------------------------------------

#: Not in the paper, which has a part of them.
ALL_LETTERS = {"dataset": "letters"}


def sizes(study: Study, spec: FigureSpec) -> Frame:
    """Sizes of the data sets as the paper reports them and as stored."""
    cells = study.cells[study.cells["sweep"] == "table"] if "table" in study.sweeps else study.cells
    stored = cells.drop_duplicates("dataset")[["dataset", "n", "d", "k", "domain_half_width"]]
    table = pd.DataFrame([*REPORTED["sizes"], ALL_LETTERS])
    table = table.merge(stored, on="dataset", how="left", suffixes=("_reported", ""))
    absent_sets = table.loc[table["n"].isna(), "dataset"]
    return Frame(table, cells, gap_texts(map(spec.format_name, absent_sets)))


def quality(study: Study, spec: FigureSpec) -> Frame:
    """Every number of Table 2 or 3 next to the measured one, with the verdict."""
    styles = MethodStyles(study.cells)
    table = reported.compare(study, REPORTED["quality"])
    table = table[table["table"] == spec.where["table"]].reset_index(drop=True)
    texts = dict.fromkeys([*table["reason"], *table["note"]])
    # Verdicts say by themselves that rows or seeds are missing.
    reasons = [text for text in texts if text and not text.endswith(("seeds", "stored rows"))]
    letters = dict(zip(reasons, string.ascii_lowercase, strict=False))
    lines = []
    for (dataset, method), group in table.groupby(["dataset", "method"], sort=False):
        line = {"data set": spec.format_name(dataset), "method": styles.label(method)}
        for row in group.to_dict("records"):
            arrow = "↑" if higher_is_better(row["metric"]) else "↓"
            label = BY_NAME[row["metric"]].label
            line[f"{label} {arrow}"] = _quality_text(row, letters)
        spent = {"value": group["epsilon_spent"].max()}
        lines.append(line | {"ε spent": number_text("{value:.3g}", spent)})
    fields = {
        "verdicts": reported.counts_text(table["verdict"]),
        "reasons": " ".join(f"({letter}) {text}." for text, letter in letters.items()),
    }
    stored = table[(table["verdict"] != reported.NOT_STORED) & (table["seeds"] > 0)]
    cells = study.cells[study.cells["dataset"].isin(stored["dataset"])]
    return Frame(
        table, cells, absent(Frame(stored, study.cells), spec), fields, pd.DataFrame(lines)
    )


def _quality_text(row: Mapping[str, Any], letters: Mapping[str, str]) -> str:
    short = {reported.WITHIN: "within", reported.NOT_COMPARABLE: "n. c."}
    verdict = short.get(row["verdict"], row["verdict"])
    marks = "".join(
        f" ({letters[text]})" for text in (row["reason"], row["note"]) if text in letters
    )
    measured = number_text("{value:.3g} ± {deviation:.2g}", row | {"value": row["mean"]})
    return f"{measured} | {row['reported']}: {verdict}{marks}"


def with_reported(table: pd.DataFrame) -> pd.DataFrame:
    """Add the KMeans distances that the paper reports."""
    means = {
        (cell["dataset"], cell["method"]): reported.parse(cell["norm_kmeans_distance"]).mean
        for cell in REPORTED["quality"]["cells"]
    }
    keys = zip(table["dataset"], table["method"], strict=True)
    return table.assign(reported=[means.get(key, np.nan) for key in keys])


# --- times --------------------------------------------------------------------------------------


def fit_times(study: Study, spec: FigureSpec) -> Frame:
    """CPU times, and by how much wall-clock time exceeds them."""
    rows = study.rows_with(["fit_seconds", "fit_cpu_seconds"])
    rows = rows[rows["sweep"].isin(spec.sweep)]
    ratios = rows["fit_seconds"] / rows["fit_cpu_seconds"]
    fields = {"largest_ratio": f"{ratios.max():.3g}" if len(ratios) else ""}
    return replace(select(study, spec), fields=fields)


# --- budget splits ------------------------------------------------------------------------------

STEPS = ("interval", "counts", "splits", "averages")
PAPER_SHARES = (0.04, 0.18, 0.18, 0.6)
BEST_SHARE = 0.2


def budget_splits(study: Study, spec: FigureSpec) -> Frame:
    """Budget splits ranked by each metric: best and worst fifth, means, the paper's choice."""
    shown = select(study, spec).table
    if "shares" not in shown:
        return Frame(shown.iloc[:0])
    shares = {name: item(shown["shares"], place) for place, name in enumerate(STEPS)}
    splits = shown.assign(**shares).dropna(subset=[*STEPS, "value"])
    sign = np.where(splits["metric"].map(higher_is_better), -1, 1)
    by_panel = (sign * splits["value"]).groupby(splits["panel"], observed=True)
    rank, size = by_panel.rank(method="first"), by_panel.transform("size")
    count = (BEST_SHARE * size).round().clip(lower=1)
    splits["hue"] = np.select([rank <= count, rank > size - count], ["best", "worst"], "between")
    splits = splits.assign(rank=rank).rename(columns={"value": "mean"}).drop(columns="x")

    # The means of both fifths, and the paper's choice in each panel.
    by = splits[splits["hue"] != "between"].groupby(
        ["panel", "dataset", "metric", "hue"], observed=True
    )
    means = by[list(STEPS)].mean().reset_index()
    choice = dict(zip(STEPS, PAPER_SHARES, strict=True))
    table = pd.concat(
        [
            splits,
            means.assign(hue=means["hue"] + "_mean"),
            means[means["hue"] == "best"].assign(hue="paper", **choice),
        ]
    )
    table = table.assign(curve=np.arange(len(table)))
    table = table.melt([name for name in table if name not in STEPS], list(STEPS), "x", "value")
    table["x"] = pd.Categorical(table["x"], STEPS)
    fields = {
        "splits": splits.groupby("dataset")["shares"].nunique().max(),
        "seeds": count_text(splits["seeds"]),
    }
    names = {"panel": "panel", "hue": "part"} | {name: f"share of {name}" for name in STEPS}
    printed = means.round(dict.fromkeys(STEPS, 3))[list(names)].rename(columns=names)
    return Frame(table, splits, fields=fields, printed=printed)


# --- matched budgets ----------------------------------------------------------------------------

MATCHES = (
    ("dpm_published", "dpm"),
    ("dpm_published", "dpm_merged"),
    ("lsh_splits_published", "lsh_splits"),
    ("dp_lloyd_published", "dp_lloyd"),
)
BUDGET = {"epsilon": "epsilon", "spent": "epsilon_spent", "delta": "delta"}
SWEEPS = ("table", "em_mc", "em_mc_large", "sound")
NO_PAIR = "no pair of stored runs at matched budgets"


def matched(study: Study, spec: FigureSpec) -> Frame:
    """Inertia of the sound variants over the published ones, one panel per pair."""
    ratios = matched_ratios(study)
    table = ratios.rename(columns={"ratio": "value"}).assign(
        method=ratios["sound"], hue=ratios["sound"], panel=ratios["sound"], row=ratios["dataset"]
    )
    stored = set(zip(ratios["published"], ratios["sound"], ratios["dataset"], strict=True))
    without: dict[str, list[str]] = {}
    for published, sound in MATCHES:
        for name in spec.expected["dataset"]:
            if (published, sound, name) not in stored:
                without.setdefault(spec.part(sound).title, []).append(spec.format_name(name))
    gaps = tuple(f"{title} on {', '.join(names)}: {NO_PAIR}" for title, names in without.items())
    cells = study.cells[study.cells["method"].isin(ratios["sound"])]
    return Frame(table, cells, gaps)


def matched_ratios(study: Study, metric: str = "inertia") -> pd.DataFrame:
    """Sound over published, at matched budgets.

    The sound variant has the largest stored budget that is within what the published one spent.

    A pair counts where data set, scaling and adjacency agree, and neither epsilon spent nor delta
    of the sound variant is larger than the published one's.

    Returns
    -------
    DataFrame
        One line per pair and data set: both budgets (declared, spent, delta), `ratio` of means with
        a 95 % paired bootstrap interval over seeds, `seeds`, and `unproven`: flaws of charges of
        the published variant.
    """
    columns = ["published", "sound", "dataset", "ratio", "low", "high", "seeds", "unproven"]
    columns += [f"{name}_{side}" for side in ("published", "sound") for name in BUDGET]
    panel = study.matrix(SWEEPS, metric)
    cells = panel.cells
    if not len(cells):
        return pd.DataFrame(columns=columns)
    means = resampled_means(panel)
    charges = read_charges(cells)
    lines = []
    for published, sound in MATCHES:
        declared = (cells["method"] == published) & np.isclose(cells["epsilon"], 1.0)
        for index, published_cell in cells[declared].iterrows():
            affordable = _matching(cells[cells["method"] == sound], published_cell)
            if not len(affordable):
                continue
            sound_cell = affordable.iloc[-1]
            ratio = means[:, sound_cell.name] / means[:, index]
            (low,), (high,) = percentile_interval(ratio[:, None])
            both = np.isfinite(panel.values[:, [sound_cell.name, index]]).all(axis=1)
            line = {"published": published, "sound": sound, "dataset": published_cell["dataset"]}
            line |= {"ratio": ratio[0], "low": low, "high": high, "seeds": int(both.sum())}
            # Flaws of charges whose cost is what a paper claims and is known not to hold.
            flaws = set(charges.loc[charges.index == index, "flaw"]) - {""}
            line["unproven"] = " ".join(sorted(flaws))
            for side, cell in (("published", published_cell), ("sound", sound_cell)):
                line |= {f"{name}_{side}": cell[column] for name, column in BUDGET.items()}
            lines.append(line)
    return pd.DataFrame(lines, columns=columns)


def _matching(cells: pd.DataFrame, reference: pd.Series) -> pd.DataFrame:
    """Return the cells that spend no more than `reference`, by epsilon.

    Under the same adjacency and scaling, on the same data set.
    """
    same = np.logical_and.reduce(
        [cells[name] == reference[name] for name in ("dataset", "adjacency", "preprocessing")]
    )
    within_epsilon = cells["epsilon_spent"] <= reference["epsilon_spent"] * (1 + 1e-9)
    within_delta = cells["delta"] <= reference["delta"]
    return cells[same & within_epsilon & within_delta].sort_values("epsilon")
