"""What the figures of the DPM paper need beyond their figures.yaml.

Tables 1 to 3, budget splits by rank, and ratios at matched spent budgets.
"""

import string
from dataclasses import replace

import numpy as np
import pandas as pd

from pkm.analysis.claims import reported
from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.expressions import item
from pkm.analysis.figures.figure import FigureSpec
from pkm.analysis.figures.figure_data import (
    FigureData,
    compare_sizes,  # noqa: F401, of figures.yaml
    find_missing,
    select,
)
from pkm.analysis.figures.texts import count_text, format_number
from pkm.analysis.tables.charges import read_charges
from pkm.analysis.tables.statistics import percentile_interval, resampled_means
from pkm.analysis.tables.study import Study
from pkm.schema import higher_is_better

REPORTED = read_claims("dpm")["reported"]

# Tables


def quality(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show every number of Table 2 or 3 next to the measured one, with the verdict."""
    table = reported.compare_reported(study, REPORTED["quality"])
    table = table[table["table"] == spec.where["table"]].reset_index(drop=True)
    # A letter for each reason and note; verdicts say that rows or seeds are missing.
    texts = pd.concat([table["reason"], table["note"]])
    is_said = texts.str.endswith(("seeds", "stored rows"))
    is_said |= texts == ""
    unsaid = texts[~is_said].unique()
    letters = dict(zip(unsaid, string.ascii_lowercase, strict=False))
    mark_of = {text: f" ({letter})" for text, letter in letters.items()}
    marks = texts.map(lambda text: mark_of.get(text, ""))
    runs = table.groupby(["dataset", "method"])
    spent = runs["epsilon_spent"].transform("max")
    table = table.assign(
        marks=marks.groupby(level=0).sum(),
        spent=spent.map(format_number),
    )

    reasons = [f"({letter}) {text}." for text, letter in letters.items()]
    fields = {
        "verdicts": reported.counts_text(table["verdict"]),
        "reasons": " ".join(reasons),
    }
    stored = table.query("seeds > 0")
    cells = study.cells
    missing = find_missing(FigureData(stored, cells), spec)
    is_stored = cells["dataset"].isin(stored["dataset"])
    return FigureData(
        table,
        cells[is_stored],
        missing,
        fields,
    )


# Times


def fit_times(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show CPU times, and by how much wall-clock time exceeds them."""
    rows = study.rows_with(["fit_seconds", "fit_cpu_seconds"])
    rows = rows[rows["sweep"].isin(spec.sweep)]
    ratio = rows["fit_seconds"] / rows["fit_cpu_seconds"]
    largest = f"{ratio.max():.3g}" if len(rows) else ""
    return replace(select(study, spec), fields={"largest_ratio": largest})


# Budget splits

PAPER_SHARES = {
    "interval": 0.04,
    "counts": 0.18,
    "splits": 0.18,
    "averages": 0.6,
}
STEPS = list(PAPER_SHARES)
BEST_SHARE = 0.2


def budget_splits(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show budget splits by each metric: best and worst fifth, means, the paper's."""
    table = select(study, spec).table
    if "shares" not in table:
        return FigureData(table.iloc[:0])
    # Rank the splits of each panel by the metric; `hue` names the fifths.
    shares = {name: item(table["shares"], place) for place, name in enumerate(STEPS)}
    splits = table.assign(**shares).dropna(subset=[*STEPS, "value"])
    signs = np.where(splits["metric"].map(higher_is_better), -1, 1)
    losses = (signs * splits["value"]).groupby(splits["panel"], observed=True)
    rank = losses.rank(method="first")
    size = losses.transform("size")
    fifth = (BEST_SHARE * size).round().clip(lower=1)
    is_end = [rank <= fifth, rank > size - fifth]
    fifths = np.select(is_end, ["best", "worst"], "between")
    splits = splits.drop(columns="x").rename(columns={"value": "mean"})
    splits = splits.assign(rank=rank, hue=fifths)

    # The means of both fifths, and the paper's choice in each panel.
    means = (
        splits.query("hue != 'between'")
        .groupby(["panel", "dataset", "metric", "hue"], observed=True)[STEPS]
        .mean()
        .reset_index()
    )
    chosen = means.query("hue == 'best'").assign(hue="paper", **PAPER_SHARES)
    mean_curves = means.assign(hue=means["hue"] + "_mean")

    # Each of these is a curve over the steps.
    curves = pd.concat([splits, mean_curves, chosen], ignore_index=True)
    curves = curves.assign(curve=curves.index)
    others = curves.columns.difference(STEPS)
    points = curves.melt(others, STEPS, "x", "value")
    points["x"] = pd.Categorical(points["x"], STEPS)

    n_splits = splits.groupby("dataset")["shares"].nunique()
    fields = {
        "splits": n_splits.max(),
        "seeds": count_text(splits["seeds"]),
    }
    return FigureData(
        points,
        splits,
        fields=fields,
        printed=means,
    )


# Matched budgets

MATCHES = pd.DataFrame(
    [
        ("dpm_published", "dpm"),
        ("dpm_published", "dpm_merged"),
        ("lsh_splits_published", "lsh_splits"),
        ("dp_lloyd_published", "dp_lloyd"),
    ],
    columns=["published", "sound"],
)
BUDGET = ["epsilon", "epsilon_spent", "delta"]
SWEEPS = ("table", "em_mc", "em_mc_large", "sound")


def matched(
    study: Study,
    spec: FigureSpec,
) -> FigureData:
    """Show inertia of sound over published variants, one panel per pair."""
    ratios = matched_ratios(study)
    sound = ratios["sound"]
    table = ratios.assign(
        method=sound,
        hue=sound,
        panel=sound,
        row=ratios["dataset"],
    )
    return FigureData(table, study.cells[study.cells["method"].isin(sound)])


def matched_ratios(study: Study) -> pd.DataFrame:
    """Compute the inertia of sound over published variants, at matched budgets.

    The sound variant has the largest stored budget that is within what the published
    one spent. A pair counts where data set, scaling and adjacency agree, and neither
    epsilon spent nor delta of the sound variant is larger than the published one's.

    Returns
    -------
    DataFrame
        One row per pair and data set: both budgets (declared, spent, delta), `value`,
        the ratio of means, with a 95 % paired bootstrap interval over seeds, `seeds`,
        and `unproven`: flaws of charges of the published variant.
    """
    matrix = study.matrix(SWEEPS, "inertia")
    pairs = _pair_budgets(matrix.cells)
    published = pairs["column_published"].to_numpy(int)
    sound = pairs["column_sound"].to_numpy(int)

    means = resampled_means(matrix)
    ratios = means[:, sound] / means[:, published]
    low, high = percentile_interval(ratios)
    finite = np.isfinite(matrix.values)
    is_shared = finite[:, published] & finite[:, sound]
    charges = read_charges(matrix.cells).query("flaw != ''")
    flaws = charges.groupby(level=0)["flaw"].unique()
    unproven = [sorted(flaws.get(column, ())) for column in published]

    pairs = pairs.drop(columns=["column_published", "column_sound"])
    return pairs.assign(
        value=ratios[0],
        low=low,
        high=high,
        seeds=is_shared.sum(axis=0),
        unproven=list(map(" ".join, unproven)),
    )


def _pair_budgets(cells: pd.DataFrame) -> pd.DataFrame:
    """Pair published cells with sound ones of the largest budget within theirs.

    `column_published` and `column_sound` are their columns of the matrix.
    """
    same = ["dataset", "adjacency", "preprocessing"]
    cells = cells[["method", *same, *BUDGET]]
    cells = cells.assign(column=cells.index)
    epsilon = cells["epsilon"].astype(float)
    published = cells[np.isclose(epsilon, 1.0)]
    published = published.rename(columns={"method": "published"})
    sound = cells.rename(columns={"method": "sound"})
    pairs = MATCHES.merge(published, on="published")
    suffixes = ("_published", "_sound")
    pairs = pairs.merge(
        sound,
        on=["sound", *same],
        suffixes=suffixes,
    )

    # Take the largest budget that the published variant spent, too.
    spent = pairs["epsilon_spent_published"]
    is_affordable = pairs["epsilon_spent_sound"] <= spent * (1 + 1e-9)
    is_affordable &= pairs["delta_sound"] <= pairs["delta_published"]
    last_first = pairs[is_affordable][::-1]
    choices = last_first.groupby(["sound", "column_published"])
    best = choices["epsilon_sound"].idxmax()
    return pairs.loc[best.sort_values()]
