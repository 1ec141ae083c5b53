"""Claims of the FastLloyd paper: charges, iterations, outliers, protocol and more."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
from scipy import optimize

from pkm.analysis import verdicts
from pkm.analysis.accounting import gaussian_delta
from pkm.analysis.charges import charges_of
from pkm.analysis.federation_costs import federated, transports
from pkm.analysis.findings import (
    FAILS,
    INCONCLUSIVE,
    Context,
    Finding,
    decide_joint,
    no_rows_of,
    within,
)
from pkm.analysis.reported import number
from pkm.analysis.tables import (
    Study,
    matches,
    percentile_interval,
    resampled_means,
)
from pkm.analysis.verdicts import MissingRows, decide, exact

DEFAULT_ALPHA = 0.8
_TOLERANCE = 1e-6
_ROUNDING = 1e-12


@cache
def noise_multiplier(epsilon: float, delta: float) -> float:
    """Smallest sigma for which a query of sensitivity 1 is (epsilon, delta)-private."""
    mu = optimize.brentq(
        lambda value: gaussian_delta(value, epsilon) - delta, 1e-6, 100.0, xtol=1e-14
    )
    return 1 / mu


def iteration_bound(
    n: int, d: int, k: int, epsilon: float, delta: float, alpha: float = DEFAULT_ALPHA
) -> int:
    """Number of iterations by the error bound of section 5.5, cut to [2, 7] and rounded down."""
    sigma = noise_multiplier(epsilon, delta)
    radius = alpha * math.sqrt(d) / k ** (1 / d)
    error_per_round = k**3 * radius**2 * sigma**2 * (1 + math.sqrt(4 * d)) ** 2
    bound = 4 * n**2 * 0.004 / error_per_round
    return int(min(max(math.floor(bound), 2), 7))


def _fastlloyd_cells(study: Study) -> pd.DataFrame:
    """Distinct published FastLloyd cells of all sweeps."""
    cells = study.cells
    is_fastlloyd = cells["target"].str.rsplit(".", n=1).str[-1] == "FastLloyd"
    cells = cells[is_fastlloyd & (cells["variant"] == "published")]
    cells = cells.drop_duplicates("cell").reset_index(drop=True)
    if not len(cells):
        raise MissingRows("no stored rows of the published FastLloyd")
    return cells


def _parameter(cell: pd.Series, name: str, default: float | str) -> float | str:
    """Value of a constructor parameter as configured, else its default."""
    value = cell.get(name)
    return default if pd.isna(value) else value


def _identity(cell: pd.Series) -> dict:
    """Columns of the evidence that tell which cell a line is about."""
    return {name: cell[name] for name in ("sweep", "method", "dataset", "n", "d", "k", "epsilon")}


def iterations(study: Study, check: Mapping, context: Context) -> Finding:
    """T of every cell against the formula, where T was not fixed by hand."""
    lines = []
    for _, cell in _fastlloyd_cells(study).iterrows():
        if _parameter(cell, "n_iterations", "auto") != "auto":
            continue
        alpha = _parameter(cell, "alpha", DEFAULT_ALPHA)
        formula = iteration_bound(
            cell["n"], cell["d"], cell["k"], cell["epsilon"], cell["delta"], alpha
        )
        stored = int(cell["iterations"])
        line = {"formula": formula, "stored": stored, "agrees": formula == cell["iterations"]}
        lines.append(_identity(cell) | line)
    table = pd.DataFrame(lines)
    if not len(table):
        raise MissingRows("no stored FastLloyd cell leaves T to the error bound")
    return exact(table, f"T from {table['stored'].min()} to {table['stored'].max()}.")


def _charged_cells(study: Study) -> list[tuple[pd.Series, pd.DataFrame]]:
    """Distinct published FastLloyd cells that have charges of sums and counts, each with them."""
    cells = _fastlloyd_cells(study)
    charges = charges_of(cells)
    rounds = charges[charges["label"] == "sums_and_counts"]
    if not len(rounds):
        raise MissingRows("no charges stored")
    return [(cells.loc[index], group) for index, group in rounds.groupby(level=0)]


def noise_split(study: Study, check: Mapping, context: Context) -> Finding:
    """Multipliers of sums and counts: ratio (4d)^(1/4), and together the mu of the round."""
    lines = []
    for cell, charges in _charged_cells(study):
        formula = (4 * cell["d"]) ** 0.25
        for charge in charges.to_dict("records"):
            sums = charge["sum_scale"] / charge["sum_sensitivity"]
            counts = charge["count_scale"] / charge["count_sensitivity"]
            ratio = counts / sums
            mu = math.hypot(1 / sums, 1 / counts)
            ratio_agrees = math.isclose(ratio, formula, rel_tol=_TOLERANCE)
            mu_agrees = math.isclose(mu, charge["mu"], rel_tol=_TOLERANCE)
            line = _identity(cell)
            line["round"] = charge["round"]
            line["ratio"] = ratio
            line["formula"] = formula
            line["mu_of_both"] = mu
            line["mu_charged"] = charge["mu"]
            line["agrees"] = ratio_agrees and mu_agrees
            lines.append(line)
    return exact(pd.DataFrame(lines), "Read from the ledger's charges, one line per round.")


def radius(study: Study, check: Mapping, context: Context) -> Finding:
    """Radius of the last round against alpha sqrt(d) / k^(1/d); the Step rule starts at sqrt(d)."""
    lines = []
    for cell, charges in _charged_cells(study):
        radii = charges["radius"].to_numpy()
        alpha = _parameter(cell, "alpha", DEFAULT_ALPHA)
        small = alpha * math.sqrt(cell["d"]) / cell["k"] ** (1 / cell["d"])
        is_step = _parameter(cell, "radius_schedule", "step") == "step"
        first = math.sqrt(cell["d"]) if is_step else small
        last = small if len(radii) > 1 else first
        first_agrees = math.isclose(radii[0], first, rel_tol=_TOLERANCE)
        last_agrees = math.isclose(radii[-1], last, rel_tol=_TOLERANCE)
        line = _identity(cell)
        line["first"] = radii[0]
        line["last"] = radii[-1]
        line["formula"] = last
        line["share_of_k_1"] = cell["k"] ** (-1 / cell["d"])
        line["agrees"] = first_agrees and last_agrees
        lines.append(line)
    table = pd.DataFrame(lines)
    high = table.loc[table["d"].idxmax()]
    numbers = f"At d = {high['d']} the bound for k = {high['k']} is {high['share_of_k_1']:.3f} of "
    return exact(table, f"{numbers}that for k = 1.")


def composition(study: Study, check: Mapping, context: Context) -> Finding:
    """All rounds composed: delta by the closed form, and the epsilon of the ledger."""
    lines = []
    for cell, charges in _charged_cells(study):
        mu = math.sqrt(math.fsum(charges["mu"] ** 2))
        delta = gaussian_delta(mu, cell["epsilon"])
        agrees = (
            math.isclose(cell["epsilon_spent"], cell["epsilon"], rel_tol=_TOLERANCE)
            and math.isclose(delta, cell["delta"], rel_tol=1e-4)
            and delta <= cell["delta"] * (1 + _TOLERANCE)
        )
        line = {"rounds": len(charges), "mu": mu, "delta_recomputed": delta}
        line |= {"delta": cell["delta"], "epsilon_spent": cell["epsilon_spent"], "agrees": agrees}
        lines.append(_identity(cell) | line)
    table = pd.DataFrame(lines)
    numbers = f"{table['rounds'].min()} to {table['rounds'].max()} rounds. Accounting only."
    missing = "the empirical audit (a lower bound on epsilon) is not part of this sweep"
    return exact(table, numbers, missing)


def single_cluster(study: Study, check: Mapping, context: Context) -> Finding:
    """Rows with one non-empty cluster: silhouette -1 and an infinite Davies–Bouldin index.

    The converse is not checked.
    """
    needed = ("empty_clusters", "silhouette", "davies_bouldin")
    rows = study.rows_with(needed)
    # The mean as only center has one cluster by definition.
    rows = rows[~rows["target"].str.endswith("DataMean")]
    if not len(rows):
        raise MissingRows(
            "no stored rows have empty clusters, silhouette and Davies–Bouldin index together"
        )
    single = rows[rows["empty_clusters"] == rows["k"] - 1]
    if not len(single):
        raise MissingRows(f"none of {len(rows)} stored rows ended with a single cluster")
    infinite = np.isinf(single["davies_bouldin"].astype(float))
    table = single[["method", "dataset", "epsilon", "seed", *needed]]
    table = table.assign(agrees=(single["silhouette"] == -1) & infinite).reset_index(drop=True)
    return exact(table, f"{len(single)} of {len(rows)} rows ended with one cluster.")


def outliers(study: Study, check: Mapping, context: Context) -> Finding:
    """Increase of a metric with the outliers: smaller for `bounded` than for `unbounded`.

    From `from` to `to` outliers, at each epsilon. A data set counts where both methods have it with
    both numbers of outliers; the mean is taken over the data sets. Paired bootstrap over seeds, one
    part of the claim per epsilon.
    """
    panel = study.panel(check["sweep"], check["metric"])
    if not len(panel.cells):
        raise MissingRows(context.why(check["sweep"]))
    names = panel.cells["dataset"].str.extract(r"^(?P<base>.+)-o(?P<outliers>\d+)$")
    cells = panel.cells.assign(base=names["base"], outliers=names["outliers"].astype(float))
    cells = cells[cells["d"] <= check["max_d"]]
    means = resampled_means(panel)
    methods = (check["bounded"], check["unbounded"])
    sides = list(product(methods, (check["from"], check["to"])))
    lines = []
    truth = []
    n_relative = 0
    seeds = []
    for epsilon in context.resolve(check["epsilon"]):
        # Columns of the data sets that both methods have with both numbers of outliers.
        of_epsilon = cells[cells["epsilon"] == epsilon].groupby(["method", "outliers"])
        columns = {
            side: dict(zip(group["base"], group.index, strict=True)) for side, group in of_epsilon
        }
        bases = sorted(set.intersection(*(set(columns.get(side, ())) for side in sides)))
        if not bases:
            continue
        used = [[columns[side][base] for base in bases] for side in sides]
        side_means = [means[:, columns_of_side].mean(axis=1) for columns_of_side in used]
        bounded_from, bounded_to, unbounded_from, unbounded_to = side_means

        # Both increases, absolute and relative.
        bounded_increase = bounded_to - bounded_from
        unbounded_increase = unbounded_to - unbounded_from
        bounded_relative = bounded_to / bounded_from - 1
        unbounded_relative = unbounded_to / unbounded_from - 1
        difference = bounded_increase - unbounded_increase

        truth.append(bounded_increase < unbounded_increase)
        n_relative += int(bounded_relative[0] < unbounded_relative[0])
        paired = np.isfinite(panel.values[:, np.concatenate(used)]).all(axis=1)
        seeds.append(paired.sum())
        (low,), (high,) = percentile_interval(difference[:, None])
        lines.append(
            {
                "epsilon": epsilon,
                "datasets": len(bases),
                f"increase_{check['bounded']}": bounded_increase[0],
                f"increase_{check['unbounded']}": unbounded_increase[0],
                f"relative_increase_{check['bounded']}": bounded_relative[0],
                f"relative_increase_{check['unbounded']}": unbounded_relative[0],
                "difference": difference[0],
                "low": low,
                "high": high,
            }
        )
    if not lines:
        raise MissingRows(
            f"no data set of sweep {check['sweep']} has both methods with {check['from']} and "
            f"{check['to']} outliers"
        )
    table = pd.DataFrame(lines)
    numbers = f"{_outlier_numbers(table, methods)} The relative increase is smaller with the bound "
    numbers += f"at {n_relative} of {len(table)} epsilons;"
    missing = _missing_outliers(context, check, table)
    return decide(np.column_stack(truth), int(min(seeds)), numbers, missing, table)


def _outlier_numbers(table: pd.DataFrame, methods: Sequence[str]) -> str:
    """Describe the increase of the metric at the first epsilon and at the last."""
    ends = table.iloc[[0, -1]] if len(table) > 1 else table
    texts = []
    for method in methods:
        parts = []
        for _, line in ends.iterrows():
            relative = 100 * line[f"relative_increase_{method}"]
            text = f"{line[f'increase_{method}']:+.4g} ({relative:+.3g} %)"
            parts.append(f"{text} at ε = {line['epsilon']:g}")
        texts.append(f"{method} {' and '.join(parts)}")
    n_datasets = table["datasets"].min()
    return f"Mean increase of NICV over {n_datasets} data sets: {'; '.join(texts)}."


def _missing_outliers(context: Context, check: Mapping, table: pd.DataFrame) -> str:
    n_epsilons = len(context.resolve(check["epsilon"]))
    n_datasets = table["datasets"].min()
    texts = []
    if len(table) < n_epsilons:
        texts.append(f"{len(table)} of {n_epsilons} epsilons available")
    if n_datasets < check["datasets"]:
        texts.append(f"only {n_datasets} of {check['datasets']} data sets")
    gaps = int((context.missing["sweep"] == check["sweep"]).sum())
    if gaps:
        texts.append(f"{gaps} planned cells of sweep {check['sweep']} have no rows")
    return "; ".join(texts)


# --- protocol -------------------------------------------------------------------------------------


def _time_conditions(study: Study, sweep: str) -> str:
    """Describe under which conditions the times of a sweep were measured."""
    cells = study.cells[study.cells["sweep"] == sweep]
    latencies = sorted(cells["latency_ms"].dropna().unique())
    latency = " or ".join(f"{value:g}" for value in latencies)
    return f"Measured times: {transports(cells)}, {latency} ms of simulated latency a send."


def timed(study: Study, check: Mapping, context: Context) -> Finding:
    """Judge another check (`judged`) on measured times, and describe their conditions."""
    judged = check["judged"]
    finding = verdicts.EVALUATORS[judged["type"]](study, judged, context)
    text = f"{finding.numbers} {_time_conditions(study, judged['sweep'])}"
    return replace(finding, numbers=text)


def over_cited(study: Study, check: Mapping, context: Context) -> Finding:
    """Check the largest ratio, over data sets, of a cited number to the measured `metric`.

    The paper takes that number (`cited`) from other work.
    """
    reported = context.reported[check["numbers"]]
    cited = {
        cell["dataset"]: number(cell[check["cited"]])[0]
        for cell in reported["cells"]
        if check["cited"] in cell
    }
    panel = study.panel(reported["sweep"], check["metric"])
    selector = {"method": reported["method"], "dataset": list(cited)}
    panel = panel.take(matches(panel.cells, selector))
    if not len(panel.cells):
        raise MissingRows(context.why(reported["sweep"]))
    values = panel.cells["dataset"].map(cited).to_numpy(dtype=float)
    measured = resampled_means(panel)
    ratios = values / measured
    evidence = panel.cells[["dataset", "transport"]].assign(
        cited=values, measured=measured[0], ratio=ratios[0]
    )
    evidence = evidence.sort_values("ratio", ascending=False, ignore_index=True)
    low = evidence.iloc[-1]
    high = evidence.iloc[0]
    numbers = f"Factors from {low['ratio']:.4g} ({low['dataset']}) to {high['ratio']:.4g} "
    numbers += f"({high['dataset']}), {math.log10(low['ratio']):.1f} to "
    numbers += f"{math.log10(high['ratio']):.1f} orders of magnitude;"
    missing = no_rows_of(cited, evidence["dataset"])
    truth = within(ratios.max(axis=1), check)
    finding = decide_joint(truth, panel.min_seeds, numbers, missing, evidence)
    if missing and finding.verdict == FAILS:
        finding = replace(finding, verdict=INCONCLUSIVE)
    if check["metric"] == "iteration_ms":
        text = f"{finding.numbers} {_time_conditions(study, reported['sweep'])}"
        finding = replace(finding, numbers=text)
    return finding


def _messages(study: Study, check: Mapping, context: Context) -> pd.DataFrame:
    """Rows of federated runs in some sweeps, with the number of entries of a message."""
    rows = federated(study.rows_with(["bytes_per_iteration"]))
    rows = rows[rows["sweep"].isin(check["sweeps"])]
    if not len(rows):
        raise MissingRows(context.why(check["sweeps"]))
    return rows.assign(entries=rows["k"] * (rows["d"] + 1))


def message_bytes(study: Study, check: Mapping, context: Context) -> Finding:
    """Bytes of every run against a formula.

    With `factor` it is factor x k (d + 1) an iteration, else 2 x clients x word x k (d + 1) x T in
    all. `clients` lists the numbers of clients that the claim is about.
    """
    rows = _messages(study, check, context)
    measured = rows["bytes_per_iteration"]
    if "factor" in check:
        rows = rows.assign(expected=check["factor"] * rows["entries"], measured=measured)
    else:
        one_way = rows["clients"] * rows["word_bytes"] * rows["entries"] * rows["iterations"]
        rows = rows.assign(expected=2 * one_way, measured=measured * rows["iterations"])
    keys = ["sweep", "method", "dataset", "k", "d", "clients", "word_bytes", "iterations"]
    keys = [*keys, "expected"]
    table = rows.groupby(keys)["measured"].agg(["min", "max", "size"]).reset_index()
    table["agrees"] = (table["min"] == table["expected"]) & (table["max"] == table["expected"])
    clients = sorted(int(value) for value in rows["clients"].unique())
    absent = [str(value) for value in check.get("clients", ()) if value not in clients]
    numbers = f"{len(rows)} runs of {', '.join(map(str, clients))} clients, T = "
    numbers += f"{rows['iterations'].min():g} to {rows['iterations'].max():g}, "
    numbers += f"{measured.min():g} to {measured.max():g} bytes an iteration."
    return exact(table, numbers, f"no stored rows of {', '.join(absent)} clients" if absent else "")


def same_bytes(study: Study, check: Mapping, context: Context) -> Finding:
    """Bytes of an iteration are the same for every n, at equal k, d, clients and word.

    The claim is about `groups` of these.
    """
    rows = _messages(study, check, context)
    grouped = rows.groupby(["method", "k", "d", "clients", "word_bytes"])
    table = grouped.agg(
        sizes=("n", "nunique"),
        smallest=("bytes_per_iteration", "min"),
        largest=("bytes_per_iteration", "max"),
    )
    table = table[table["sizes"] > 1].reset_index()
    if not len(table):
        raise MissingRows("no k and d are stored with two numbers of points")
    table["agrees"] = table["smallest"] == table["largest"]
    missing = ""
    if len(table) < check["groups"]:
        missing = f"{len(table)} of {check['groups']} k and d available"
    return exact(table, "Compared: k and d with both sizes.", missing)


def equals_central_run(study: Study, check: Mapping, context: Context) -> Finding:
    """NICV of federated runs equals that of the central run of the same cell and seed.

    The same cell: method, data, budget.
    """
    rows = study.rows_with(["nicv"])
    protocol = federated(rows)
    central = rows.drop(protocol.index)
    protocol = protocol[protocol["sweep"].isin(check["sweeps"])]
    if not len(protocol):
        raise MissingRows(context.why(check["sweeps"]))
    keys = ["method", "target", "variant", "params", "dataset", "preprocessing", "epsilon", "seed"]
    central = central[[*keys, "nicv"]].drop_duplicates(keys)
    both = protocol.merge(central, on=keys, suffixes=("", "_central"))
    if not len(both):
        raise MissingRows(
            "no central run of the same method, data set, epsilon and seed as a federated one is "
            "stored"
        )
    both["difference"] = (both["nicv"] / both["nicv_central"] - 1).abs()
    groups = ["sweep", "method", "dataset", "epsilon", "clients", "transport"]
    table = both.groupby(groups)["difference"].agg(runs="size", difference="max").reset_index()
    table["agrees"] = table["difference"] <= _ROUNDING
    unmatched = sorted(set(protocol["dataset"]) - set(both["dataset"]))
    missing = f"no central runs of {', '.join(unmatched)} at this epsilon" if unmatched else ""
    numbers = f"{len(both)} runs, relative differences of at most {both['difference'].max():.2g}."
    return exact(table, numbers, missing)


EVALUATORS = {
    "timed": timed,
    "over_cited": over_cited,
    "message_bytes": message_bytes,
    "same_bytes": same_bytes,
    "equals_central_run": equals_central_run,
    "iterations": iterations,
    "noise_split": noise_split,
    "radius": radius,
    "composition": composition,
    "single_cluster": single_cluster,
    "outliers": outliers,
}
