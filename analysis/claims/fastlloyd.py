"""Claims of the FastLloyd paper that need a formula of their own: charges, iterations, outliers,
protocol and more.
"""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
from scipy import optimize

from pkm.analysis import verdicts
from pkm.analysis.accounting import gaussian_delta
from pkm.analysis.charges import charges_of
from pkm.analysis.federation_costs import federated, transports
from pkm.analysis.findings import FAILS, INCONCLUSIVE, within
from pkm.analysis.reported import number
from pkm.analysis.tables import percentile_interval, resampled_means, resampling_weights
from pkm.analysis.verdicts import MissingRows, decide, exact

DEFAULT_ALPHA = 0.8
_TOLERANCE = 1e-6
_ROUNDING = 1e-12


@cache
def noise_multiplier(epsilon, delta):
    """Smallest sigma for which a query of sensitivity one is (epsilon, delta)-private."""
    mu = optimize.brentq(
        lambda value: gaussian_delta(value, epsilon) - delta, 1e-6, 100.0, xtol=1e-14
    )
    return 1 / mu


def iteration_bound(n, d, k, epsilon, delta, alpha=DEFAULT_ALPHA):
    """Number of iterations by the error bound of section 5.5, cut to [2, 7] and rounded down."""
    sigma = noise_multiplier(epsilon, delta)
    radius = alpha * math.sqrt(d) / k ** (1 / d)
    bound = 4 * n**2 * 0.004 / (k**3 * radius**2 * sigma**2 * (1 + math.sqrt(4 * d)) ** 2)
    return int(min(max(math.floor(bound), 2), 7))


def _fastlloyd_cells(study):
    """Distinct published FastLloyd cells, whichever sweeps they stand in."""
    cells = study.cells
    mine = (cells["target"].str.rsplit(".", n=1).str[-1] == "FastLloyd") & (
        cells["variant"] == "published"
    )
    chosen = cells[mine].drop_duplicates("cell").reset_index(drop=True)
    if not len(chosen):
        raise MissingRows("no stored rows of the published FastLloyd")
    return chosen


def _parameter(cell, name, default):
    value = cell.get(name)
    return default if value is None or (isinstance(value, float) and math.isnan(value)) else value


def _identity(cell):
    return {name: cell[name] for name in ("sweep", "method", "dataset", "n", "d", "k", "epsilon")}


def iterations(study, check, context):
    """T of every cell against the formula, where T was not fixed by hand."""
    lines = []
    for cell in _fastlloyd_cells(study).to_dict("records"):
        if _parameter(cell, "n_iterations", "auto") != "auto":
            continue
        alpha = _parameter(cell, "alpha", DEFAULT_ALPHA)
        asked = iteration_bound(
            cell["n"], cell["d"], cell["k"], cell["epsilon"], cell["delta"], alpha
        )
        lines.append(
            _identity(cell)
            | {
                "formula": asked,
                "stored": int(cell["iterations"]),
                "agrees": asked == cell["iterations"],
            }
        )
    table = pd.DataFrame(lines)
    if not len(table):
        raise MissingRows("no stored FastLloyd cell leaves T to the error bound")
    spread = f"T from {table['stored'].min()} to {table['stored'].max()}."
    return exact(table, spread)


def _charged_cells(study):
    """Distinct published FastLloyd cells that have charges of sums and counts, each with them."""
    cells = _fastlloyd_cells(study)
    charges = charges_of(cells)
    rounds = charges[charges["label"] == "sums_and_counts"]
    if not len(rounds):
        raise MissingRows("no charges stored")
    return [(cells.loc[index], group) for index, group in rounds.groupby(level=0)]


def noise_split(study, check, context):
    """Multipliers of sums and counts: ratio (4d)^(1/4), and together the mu charged for the round."""
    lines = []
    for cell, charges in _charged_cells(study):
        for charge in charges.to_dict("records"):
            sums = charge["sum_scale"] / charge["sum_sensitivity"]
            counts = charge["count_scale"] / charge["count_sensitivity"]
            ratio, asked = counts / sums, (4 * cell["d"]) ** 0.25
            together = math.hypot(1 / sums, 1 / counts)
            agrees = math.isclose(ratio, asked, rel_tol=_TOLERANCE) and math.isclose(
                together, charge["mu"], rel_tol=_TOLERANCE
            )
            lines.append(
                _identity(cell)
                | {
                    "round": charge["round"],
                    "ratio": ratio,
                    "formula": asked,
                    "mu_of_both": together,
                    "mu_charged": charge["mu"],
                    "agrees": agrees,
                }
            )
    return exact(pd.DataFrame(lines), "Read from the ledger's charges, one line per round.")


def radius(study, check, context):
    """Radius of the last round against alpha sqrt(d) / k^(1/d); the Step rule starts at sqrt(d)."""
    lines = []
    for cell, charges in _charged_cells(study):
        radii = charges["radius"].to_numpy()
        asked = (
            _parameter(cell, "alpha", DEFAULT_ALPHA)
            * math.sqrt(cell["d"])
            / cell["k"] ** (1 / cell["d"])
        )
        step = _parameter(cell, "radius_schedule", "step") == "step"
        first = math.sqrt(cell["d"]) if step else asked
        late = asked if len(radii) > 1 else first
        agrees = math.isclose(radii[-1], late, rel_tol=_TOLERANCE) and math.isclose(
            radii[0], first, rel_tol=_TOLERANCE
        )
        lines.append(
            _identity(cell)
            | {
                "first": radii[0],
                "last": radii[-1],
                "formula": late,
                "share_of_k_1": cell["k"] ** (-1 / cell["d"]),
                "agrees": agrees,
            }
        )
    table = pd.DataFrame(lines)
    high = table.loc[table["d"].idxmax()]
    return exact(
        table,
        f"At d = {high['d']} the bound for k = {high['k']} is {high['share_of_k_1']:.3f} of that for k = 1.",
    )


def composition(study, check, context):
    """All rounds together: delta at the declared epsilon by the closed form, and the ledger's own
    epsilon.
    """
    lines = []
    for cell, charges in _charged_cells(study):
        mu = math.sqrt(math.fsum(charges["mu"] ** 2))
        delta = gaussian_delta(mu, cell["epsilon"])
        agrees = (
            math.isclose(cell["epsilon_spent"], cell["epsilon"], rel_tol=_TOLERANCE)
            and math.isclose(delta, cell["delta"], rel_tol=1e-4)
            and delta <= cell["delta"] * (1 + _TOLERANCE)
        )
        lines.append(
            _identity(cell)
            | {
                "rounds": len(charges),
                "mu": mu,
                "delta_recomputed": delta,
                "delta": cell["delta"],
                "epsilon_spent": cell["epsilon_spent"],
                "agrees": agrees,
            }
        )
    table = pd.DataFrame(lines)
    rounds = f"{table['rounds'].min()} to {table['rounds'].max()} rounds."
    return exact(
        table,
        rounds + " Accounting only.",
        "the empirical audit (a lower bound on epsilon) is not part of this sweep",
    )


def single_cluster(study, check, context):
    """Rows with one non-empty cluster have silhouette -1 and an infinite Davies–Bouldin index (this
    direction only).
    """
    needed = ("empty_clusters", "silhouette", "davies_bouldin")
    rows = study.rows_with(needed)
    # The yardstick has one center by definition, so it has no clusters to lose.
    rows = rows[~rows["target"].str.endswith("DataMean")]
    if not len(rows):
        raise MissingRows(
            "no stored rows have empty clusters, silhouette and Davies–Bouldin index together"
        )
    single = rows[rows["empty_clusters"] == rows["k"] - 1]
    if not len(single):
        raise MissingRows(f"none of {len(rows)} stored rows ended with a single cluster")
    table = single[["method", "dataset", "epsilon", "seed", *needed]].assign(
        agrees=(single["silhouette"] == -1) & np.isinf(single["davies_bouldin"].astype(float))
    )
    return exact(
        table.reset_index(drop=True), f"{len(single)} of {len(rows)} rows ended with one cluster."
    )


def outliers(study, check, context):
    """Increase of a metric from `from` to `to` outliers: smaller for `bounded` than for
    `unbounded`, at each epsilon.

    A data set counts where both methods have it with both numbers of outliers; the mean is taken
    over the data sets. Paired bootstrap over seeds, one part of the claim per epsilon.
    """
    panel = study.panel(check["sweep"], check["metric"])
    if not len(panel.cells):
        raise MissingRows(context.why([check["sweep"]]))
    names = panel.cells["dataset"].str.extract(r"^(?P<base>.+)-o(?P<outliers>\d+)$")
    cells = panel.cells.assign(base=names["base"], outliers=names["outliers"].astype(float))
    cells = cells[cells["d"] <= check["most_d"]]
    ends, methods = (check["from"], check["to"]), (check["bounded"], check["unbounded"])
    means = resampled_means(panel, resampling_weights(len(panel.seeds)))
    lines, truth, relative_truth, seeds = [], [], [], []
    for epsilon in context.resolve(check["epsilon"]):
        at = {
            (method, count): dict(zip(inside["base"], inside.index, strict=True))
            for (method, count), inside in cells[cells["epsilon"] == epsilon].groupby(
                ["method", "outliers"]
            )
        }
        four = [(method, count) for method in methods for count in ends]
        bases = sorted(set.intersection(*(set(at.get(key, ())) for key in four)))
        if not bases:
            continue
        columns = [[at[key][base] for base in bases] for key in four]
        bounded_0, bounded_1, free_0, free_1 = (means[:, chosen].mean(axis=1) for chosen in columns)
        increase, free_increase = bounded_1 - bounded_0, free_1 - free_0
        relative, free_relative = bounded_1 / bounded_0 - 1, free_1 / free_0 - 1
        (low,), (high,) = percentile_interval((increase - free_increase)[:, None])
        truth.append(increase < free_increase)
        relative_truth.append(relative[0] < free_relative[0])
        seeds.append(np.isfinite(panel.values[:, np.concatenate(columns)]).all(axis=1).sum())
        values = (increase, free_increase, relative, free_relative)
        titles = [
            f"{kind}_{method}" for kind in ("increase", "relative_increase") for method in methods
        ]
        lines.append(
            {"epsilon": epsilon, "datasets": len(bases)}
            | dict(zip(titles, (value[0] for value in values), strict=True))
            | {"difference": increase[0] - free_increase[0], "low": low, "high": high}
        )
    if not lines:
        raise MissingRows(
            f"no data set of sweep {check['sweep']} has both methods with {ends[0]} and {ends[1]} outliers"
        )
    table = pd.DataFrame(lines)
    numbers = _outlier_numbers(table, methods, relative_truth)
    lacking = _outliers_lacking(context, check, table)
    return decide(np.column_stack(truth), table, int(min(seeds)), numbers, lacking, table)


def _outlier_numbers(table, methods, relative_truth):
    texts = []
    for method in methods:
        ends = (table.iloc[0], table.iloc[-1])
        texts.append(
            f"{method} "
            + " and ".join(
                f"{end[f'increase_{method}']:+.4g} ({100 * end[f'relative_increase_{method}']:+.3g} %) "
                f"at ε = {end['epsilon']:g}"
                for end in ends[: len(table)]
            )
        )
    return (
        f"Mean increase of NICV over {table['datasets'].min()} data sets: {'; '.join(texts)}. "
        f"The relative increase is smaller with the bound at {sum(relative_truth)} of {len(table)} epsilons;"
    )


def _outliers_lacking(context, check, table):
    epsilons, fewest = len(context.resolve(check["epsilon"])), table["datasets"].min()
    texts = [f"{len(table)} of {epsilons} epsilons at hand"] if len(table) < epsilons else []
    if fewest < check["datasets"]:
        texts.append(f"only {fewest} of {check['datasets']} data sets")
    gaps = int((context.missing["sweep"] == check["sweep"]).sum())
    if gaps:
        texts.append(f"{gaps} planned cells of sweep {check['sweep']} have no rows")
    return "; ".join(texts)


# --- protocol -------------------------------------------------------------------------------------


def _taken(study, sweep):
    """Say what our times of a sweep rest on."""
    cells = study.cells[study.cells["sweep"] == sweep]
    latency = " or ".join(f"{value:g}" for value in sorted(cells["latency_ms"].dropna().unique()))
    return f"Our times: {transports(cells)}, {latency} ms of simulated latency a send."


def timed(study, check, context):
    """Judge another check (`judged`) on our times, and say how these were taken."""
    judged = check["judged"]
    finding = verdicts.EVALUATORS[judged["type"]](study, judged, context)
    return replace(finding, numbers=f"{finding.numbers} {_taken(study, judged['sweep'])}")


def over_quoted(study, check, context):
    """Largest ratio of a number the paper quotes (`quoted`) to our `metric`, over data sets,
    against bounds.
    """
    asked = context.printed[check["numbers"]]
    quoted = {
        cell["dataset"]: number(cell[check["quoted"]])[0]
        for cell in asked["cells"]
        if check["quoted"] in cell
    }
    panel = study.panel(asked["sweep"], check["metric"])
    mine = (panel.cells["method"] == asked["method"]) & panel.cells["dataset"].isin(list(quoted))
    panel = panel.take(mine.to_numpy())
    if not len(panel.cells):
        raise MissingRows(context.why([asked["sweep"]]))
    theirs = panel.cells["dataset"].map(quoted).to_numpy(dtype=float)
    ours = resampled_means(panel, resampling_weights(len(panel.seeds)))
    ratios = theirs / ours
    evidence = panel.cells[["dataset", "transport"]].assign(
        quoted=theirs, ours=ours[0], ratio=ratios[0]
    )
    evidence = evidence.sort_values("ratio", ascending=False, ignore_index=True)
    last, first = evidence.iloc[-1], evidence.iloc[0]
    numbers = f"Factors from {last['ratio']:.4g} ({last['dataset']}) to {first['ratio']:.4g} ({first['dataset']}), "
    numbers += (
        f"{math.log10(last['ratio']):.1f} to {math.log10(first['ratio']):.1f} orders of magnitude;"
    )
    absent = [name for name in quoted if name not in set(evidence["dataset"])]
    lacking = f"no stored rows of {', '.join(absent)}" if absent else ""
    seeds = int(np.isfinite(panel.values).sum(axis=0).min())
    one = evidence.iloc[:1]
    found = decide(within(ratios.max(axis=1), check)[:, None], one, seeds, numbers, lacking, one)
    verdict = INCONCLUSIVE if lacking and found.verdict == FAILS else found.verdict
    text = f" {_taken(study, asked['sweep'])}" if check["metric"] == "iteration_ms" else ""
    return replace(found, verdict=verdict, numbers=found.numbers + text, evidence=evidence)


def _messages(study, check, context):
    """Rows of federated runs in some sweeps, with what shapes a message."""
    rows = federated(study.rows_with(["bytes_per_iteration"]))
    rows = rows[rows["sweep"].isin(check["sweeps"])]
    if not len(rows):
        raise MissingRows(context.why(check["sweeps"]))
    return rows.assign(entries=rows["k"] * (rows["d"] + 1))


def message_bytes(study, check, context):
    """Bytes of every run: `factor` times k (d + 1) an iteration, else 2 clients x word x k (d + 1)
    x T in all.

    `clients` lists the numbers of clients that the claim is about.
    """
    rows = _messages(study, check, context)
    if "factor" in check:
        rows = rows.assign(
            asked=check["factor"] * rows["entries"], found=rows["bytes_per_iteration"]
        )
    else:
        asked = 2 * rows["clients"] * rows["word_bytes"] * rows["entries"] * rows["iterations"]
        rows = rows.assign(asked=asked, found=rows["bytes_per_iteration"] * rows["iterations"])
    keys = ["sweep", "method", "dataset", "k", "d", "clients", "word_bytes", "iterations", "asked"]
    table = rows.groupby(keys)["found"].agg(["min", "max", "size"]).reset_index()
    table["agrees"] = (table["min"] == table["asked"]) & (table["max"] == table["asked"])
    stored = sorted(int(value) for value in rows["clients"].unique())
    absent = [str(value) for value in check.get("clients", ()) if value not in stored]
    numbers = f"{len(rows)} runs of {', '.join(map(str, stored))} clients, T = {rows['iterations'].min():g} to "
    numbers += f"{rows['iterations'].max():g}, {rows['bytes_per_iteration'].min():g} to "
    numbers += f"{rows['bytes_per_iteration'].max():g} bytes an iteration."
    return exact(table, numbers, f"no stored rows of {', '.join(absent)} clients" if absent else "")


def same_bytes(study, check, context):
    """Bytes of an iteration are the same for every n, at equal k, d, clients and word; in `groups`
    of them.
    """
    rows = _messages(study, check, context)
    keys = ["method", "k", "d", "clients", "word_bytes"]
    table = rows.groupby(keys).agg(
        sizes=("n", "nunique"),
        least=("bytes_per_iteration", "min"),
        most=("bytes_per_iteration", "max"),
    )
    table = table[table["sizes"] > 1].reset_index()
    if not len(table):
        raise MissingRows("no k and d are stored with two numbers of points")
    lacking = (
        f"{len(table)} of {check['groups']} k and d at hand" if len(table) < check["groups"] else ""
    )
    return exact(
        table.assign(agrees=table["least"] == table["most"]),
        "Compared: k and d with both sizes.",
        lacking,
    )


def central_twin(study, check, context):
    """NICV of federated runs equals that of the central run of the same method, data, budget and
    seed.
    """
    rows = study.rows_with(["nicv"])
    mine = federated(rows)
    central = rows.drop(mine.index)
    mine = mine[mine["sweep"].isin(check["sweeps"])]
    if not len(mine):
        raise MissingRows(context.why(check["sweeps"]))
    keys = ["method", "target", "variant", "params", "dataset", "preprocessing", "epsilon", "seed"]
    both = mine.merge(
        central[[*keys, "nicv"]].drop_duplicates(keys), on=keys, suffixes=("", "_central")
    )
    if not len(both):
        raise MissingRows(
            "no central run of the same method, data set, epsilon and seed is stored beside a federated one"
        )
    both["apart"] = (both["nicv"] / both["nicv_central"] - 1).abs()
    groups = ["sweep", "method", "dataset", "epsilon", "clients", "transport"]
    table = both.groupby(groups)["apart"].agg(runs="size", apart="max").reset_index()
    table["agrees"] = table["apart"] <= _ROUNDING
    alone = sorted(set(mine["dataset"]) - set(both["dataset"]))
    lacking = f"no central runs of {', '.join(alone)} at this epsilon" if alone else ""
    return exact(table, f"{len(both)} runs, at most {both['apart'].max():.2g} apart.", lacking)


EVALUATORS = {
    "timed": timed,
    "over_quoted": over_quoted,
    "message_bytes": message_bytes,
    "same_bytes": same_bytes,
    "central_twin": central_twin,
    "iterations": iterations,
    "noise_split": noise_split,
    "radius": radius,
    "composition": composition,
    "single_cluster": single_cluster,
    "outliers": outliers,
}
