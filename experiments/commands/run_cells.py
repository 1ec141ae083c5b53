"""Ad hoc runs: the cells of some configurations as one batch, and their results."""

import gc
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
from omegaconf import DictConfig, OmegaConf
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from pkm.datasets.loading import FILE
from pkm.experiments.applications.options import RUN_KINDS
from pkm.experiments.backends.backends import check_backend, run_cells
from pkm.experiments.commands.account import charge_account
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.config.groups import FILE_KEYS, choices, fill_defaults
from pkm.experiments.config.settings import one_of, require, to_list
from pkm.experiments.console.console import show
from pkm.experiments.plan.estimate import estimate_costs
from pkm.experiments.plan.feasibility import find_dataset_info
from pkm.experiments.plan.plan import Plan, make_plan, warn_seeded_noise
from pkm.experiments.plan.sweep import SWEEP_KEYS
from pkm.experiments.store.columns import varying_settings
from pkm.experiments.store.store import Store
from pkm.methods import load_method
from pkm.privacy.budget import describe_large_delta

#: Names of the domain by preprocessing; with minmax no point is outside.
DOMAINS = {"public": "public domain", "range": "range of all columns"}


#: Keys that all jobs of a batch share.
SHARED_KEYS = ("results", "jobs", "scheduler", "data", "backend", "tracking", "account")


def run(
    configs: Sequence[DictConfig],
    console: Console,
    title: str | None = None,
) -> list[float | None]:
    """Run the cells of all jobs as one batch, and print their table.

    Parameters
    ----------
    configs : sequence of DictConfig
        One per job of a multirun, checked.
    console : rich.console.Console
        Where to print.
    title : str, optional
        Of the table: which job it is of, where each has its own.

    Returns
    -------
    list of float or None
        The objective of each job, see `find_objective`; None where one of its cells
        failed.

    Raises
    ------
    ConfigurationError
        If anything requested is unknown, not allowed or not available; nothing has been
        run or written then.
    """
    plans = [make_job_plan(config) for config in configs]
    metrics = [find_objective(config) for config in configs]
    sweep_cells = itertools.chain.from_iterable(plan.sweep_cells for plan in plans)
    plan = Plan("run", tuple(dict.fromkeys(sweep_cells)))
    settings = configs[0]
    for key in SHARED_KEYS:
        values = list(dict.fromkeys(str(config[key]) for config in configs))
        rule = "the same for all jobs of hydra/launcher=cells"
        require(len(values) == 1, key, values, rule)
    store = Store(settings.results)
    backend = check_backend(Backend(**settings.backend))
    with store.create_or_roll_back():
        files = dict.fromkeys(
            (cell.file, cell.bounds) for cell in plan.cells if cell.dataset == FILE
        )
        for file, bounds in files:
            summary = find_dataset_info(FILE, file, bounds).summary
            show(console, f"{file.path}: {summary}")
        # Cells that are not stored yet are run.
        stored = store.filter_readable([cell.key for cell in plan.cells])
        to_run = [cell for cell in plan.cells if cell.key not in stored]
        account = settings.account
        if account is not None:
            show(console, charge_account(account, plan.cells, stored, settings.data))

    costs = estimate_costs(to_run, store, backend)
    gc.enable()
    run_cells(
        to_run,
        store,
        backend,
        data_dir=settings.data,
        costs=costs,
        console=console,
    )

    # Print the results of all.
    rows = plan.read_rows(store)
    if not rows.empty:
        names = dict.fromkeys(metric for cell in plan.cells for metric in cell.metrics)
        table = make_result_table(rows, [name for name in names if name in rows])
        # One call: jobs of other processes print at the same time.
        console.print(table if title is None else Group(Text(title), table))
        for line in (*list_clipping_warnings(rows), *list_privacy_warnings(rows)):
            show(console, line, "yellow")
    warn_seeded_noise(plan.cells, console)
    for gap in plan.list_missing(store).itertuples():
        line = f"{gap.method} · {gap.dataset}: {gap.reason}"
        show(console, line, "red")
    console.print(
        f"{len(stored)} cells were stored already, {len(to_run)} were run; "
        f"results in {store.root}"
    )
    if settings.tracking.name == "mlflow":
        # Imported here: MLflow takes seconds, and is rarely wanted.
        from pkm.experiments.mlflow.tracking import sync_after_run

        sync_after_run(plan, store, settings, console)
    return [
        average_objective(plan, rows, metric)
        for plan, metric in zip(plans, metrics, strict=True)
    ]


def find_objective(config: DictConfig) -> str:
    """Find the metric that a job returns to Hydra's sweeper.

    Raises
    ------
    ValueError
        If it is not among the metrics of the job.
    """
    metrics = to_list(OmegaConf.to_container(config)["metrics"])
    if config.objective is None:
        return "nicv" if "nicv" in metrics else metrics[0]
    one_of(*metrics).require("objective", config.objective)
    return config.objective


def average_objective(
    plan: Plan,
    rows: pd.DataFrame,
    metric: str,
) -> float | None:
    """Average a metric over all rows of a job; None where a cell has none."""
    keys = {cell.key for cell in plan.cells}
    if rows.empty or not keys <= set(rows["cell"]):
        return None
    distinct = rows[rows["cell"].isin(keys)].drop_duplicates(["cell", "seed"])
    return float(distinct[metric].mean())


def make_job_plan(config: DictConfig) -> Plan:
    """Make the plan of one job: a paper of one sweep, in which nothing may be missing.

    Raises
    ------
    ConfigurationError
        If something is unknown, not allowed or not available.
    """
    values = OmegaConf.to_container(config, resolve=True)
    if values["dataset"]["name"] != "file":
        for name in FILE_KEYS:
            value = values[name]
            require(value is None, name, value, "left out unless dataset=file")
    if values["account"] is not None:
        values["noise"] = values["noise"] or "secure"
        rule = "secure with account=FILE, which adds up what nobody can repeat"
        require(values["noise"] == "secure", "noise", values["noise"], rule)
    sweep = {key: values[key] for key in SWEEP_KEYS if key in values}
    sweep["datasets"] = [values["dataset"]]
    sweep["methods"] = [fill_defaults(values["method"])]
    for key in RUN_KINDS:
        options = values[key].items()
        chosen = {name: value for name, value in options if value is not None}
        sweep[key] = chosen or None
    paper = {"name": "run", "sweeps": {"run": sweep}}
    profile = {"name": "run", "seeds": values["seeds"]}
    try:
        plan = make_plan(paper, profile, data_dir=values["data"])
    except ConfigurationError as error:
        # The name of the sweep is no word of the user's.
        raise ConfigurationError(str(error.__cause__ or error)) from error
    if plan.gaps:
        raise ConfigurationError(plan.gaps[0].reason)
    if values["account"] is None:
        return plan
    account = str(Path(values["account"]).resolve())
    sweep_cells = [
        (name, replace(cell, account=account)) for name, cell in plan.sweep_cells
    ]
    return replace(plan, sweep_cells=tuple(sweep_cells))


def make_result_table(
    rows: pd.DataFrame,
    metrics: Sequence[str],
) -> Table:
    """Make a table of means over seeds, one line per cell.

    Parameters
    ----------
    rows : DataFrame
        Rows as stored, one per seed.
    metrics : sequence of str
        Which columns to show.

    Returns
    -------
    rich.table.Table
        The settings that vary, then mean ± standard deviation of each metric. Further
        columns are shown if some cell needs them: the variant, epsilon spent if it is
        not epsilon, the number of centers if it is not k, the time of timing cells,
        clients, latency and time of protocols, flaws.
    """
    by = ["cell", "dataset"]
    cells = rows.groupby(by, sort=False)
    first_rows = cells.head(1)
    first = first_rows.set_index(by)
    shown_otherwise = ["variant"]
    spent = cells["epsilon_spent"].max()
    centers = cells["n_centers"].mean()
    milliseconds = 1000 * cells["fit_seconds"].mean()
    # Rows of central cells have no columns of a protocol.
    protocol = {}
    if "iteration_ms" in rows:
        protocol = {
            "clients": first["clients"].where(first["iteration_ms"].notna()),
            "latency (ms)": first["latency_ms"],
            "ms per iteration": cells["iteration_ms"].mean(),
        }
        shown_otherwise += ["clients", "latency_ms"]
    varying = varying_settings(rows).drop(columns=shown_otherwise, errors="ignore")
    columns = {
        "method": first["method"],
        "variant": first["variant"] if any(first["variant"]) else None,
        "data set": first_rows["dataset"],
        "k": first["k"],
        "ε": first["epsilon"],
        "ε spent": spent if differs(spent, first["epsilon"]) else None,
        **varying.loc[first_rows.index],
        "seeds": cells.size(),
        **{metric: cells[metric].apply(format_mean) for metric in metrics},
        "centers": centers if differs(centers, first["k"]) else None,
        "ms per seed": (
            milliseconds.where(first["timing"]) if any(first["timing"]) else None
        ),
        **protocol,
        "flaws": first["flaws"] if any(first["flaws"]) else None,
    }
    columns = {name: values for name, values in columns.items() if values is not None}
    table = Table(*columns, box=None, header_style="bold")
    for line in zip(*columns.values(), strict=True):
        table.add_row(*map(format_value, line))
    return table


def differs(values: pd.Series, declared: pd.Series) -> bool:
    """Tell whether some value is not the declared one, to three digits."""
    return bool(((values - declared).abs() > 1e-3 * declared).any())


def format_value(value: object) -> str:
    """Write a value for a table, numbers to four digits; a dash where there is none.

    Examples
    --------
    >>> list(map(format_value, (1.0, 0.00123456, math.nan, "fold", "")))
    ['1', '0.001235', '-', 'fold', '-']
    """
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.4g}"
    return "-" if value in (None, "") else str(value)


def format_mean(values: pd.Series) -> str:
    """Write the mean and standard deviation of the values that are known.

    Examples
    --------
    >>> format_mean(pd.Series([1.0, 2.0]))
    '1.5 ± 0.71'
    """
    if values.isna().all():
        return "-"
    if len(values) == 1:
        return f"{values.iloc[0]:.4g}"
    return f"{values.mean():.4g} ± {values.std(ddof=1):.2g}"


def list_privacy_warnings(rows: pd.DataFrame) -> list[str]:
    """List what the stated privacy does not cover: domains, delta, known flaws."""
    private = rows[rows["epsilon"].notna()]
    lines = []
    read_off = private.loc[private["private_bounds"], ["dataset", "preprocessing"]]
    for dataset, preprocessing in read_off.drop_duplicates().to_numpy():
        remedy = (
            "preprocessing=public takes the declared one; "
            "a file needs bounds=[lower,upper]"
        )
        if preprocessing == "public":
            remedy = "the data set comes scaled so"
        domain = "the domain is read off the points, which no budget pays for"
        lines.append(f"{dataset}: {domain} ({remedy})")
    # Under add-remove adjacency the number of records is secret: it says nothing here.
    counted = private.loc[
        private["adjacency"].ne("add_remove"), ["method", "dataset", "delta", "n"]
    ]
    for method, dataset, delta, n in counted.drop_duplicates().itertuples(index=False):
        warning = describe_large_delta(delta, n)
        if warning:
            lines.append(f"{method} · {dataset}: {warning}")
    flawed = private[private["variant"].eq("published") & private["flaws"].ne("")]
    flawed = flawed[["method", "target", "flaws"]].drop_duplicates()
    for method, target, flaws in flawed.to_numpy():
        remedy = ""
        if "sound" in load_method(target).claims:
            plain = method.removesuffix("_published")
            is_file = plain in choices("method")
            setting = f"method={plain}" if is_file else "method.variant=sound"
            remedy = f"; {setting} corrects them"
        flaw = f"the published variant has known flaws: {flaws}"
        lines.append(f"{method}: {flaw}{remedy}")
    return lines


def list_clipping_warnings(rows: pd.DataFrame) -> list[str]:
    """List data sets with the number of points moved to the border of the domain."""
    clipped = rows.loc[
        rows["clipped"] > 0, ["dataset", "preprocessing", "clipped", "n"]
    ]
    return [
        f"{row.dataset}: {row.clipped} of {row.n} points (number not protected) lie "
        f"outside the {DOMAINS[row.preprocessing]} and were moved to its border "
        "(clip=false refuses them)"
        for row in clipped.drop_duplicates().itertuples()
    ]
