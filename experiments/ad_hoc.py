"""Ad hoc runs: the cells of one or more configurations as one batch, and the table of their results."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from pkm.experiments.backends import Backend, run_cells
from pkm.experiments.cell import require
from pkm.experiments.configuration import ConfigurationError
from pkm.experiments.estimate import estimator
from pkm.experiments.plan import Plan, make_plan
from pkm.experiments.store import Store

#: What points lie outside of, by preprocessing; none can by the data's own extremes.
DOMAINS = {"public": "public domain", "range": "range of all columns"}


def run(configs: Sequence[DictConfig], console: Console) -> int:
    """Run the cells of all jobs as one batch, and print their table.

    Parameters
    ----------
    configs : sequence of DictConfig
        One per job of a multirun, from `pkm.experiments.configuration.load`.
    console : rich.console.Console
        Where to print.

    Returns
    -------
    int
        0, or 1 if a cell failed.

    Raises
    ------
    ConfigurationError
        If anything asked for is unknown, not allowed or not at hand; nothing has been run or written then.
    """
    plans = [plan_of(config) for config in configs]
    plan = Plan("run", tuple(dict.fromkeys(entry for each in plans for entry in each.entries)))
    settings = configs[0]
    store, backend = Store(settings.results), Backend(**settings.backend)
    store.check_writable()
    stored = store.readable([cell.key for cell in plan.cells])
    waiting = [cell for cell in plan.cells if cell.key not in stored]
    estimate = estimator(store, backend)
    costs = {cell.key: estimate(cell)[0] for cell in waiting}
    run_cells(waiting, store, backend, mirror=settings.data, costs=costs, console=console)
    rows, missing = plan.rows(store), plan.missing(store)
    if not rows.empty:
        asked = dict.fromkeys(metric for cell in plan.cells for metric in cell.metrics)
        console.print(result_table(rows, [metric for metric in asked if metric in rows]))
        for line in clipping_lines(rows):
            console.print(line, style="yellow", markup=False)
    for line in missing.itertuples():
        console.print(f"{line.method} · {line.dataset}: {line.reason}", style="red", markup=False)
    console.print(
        f"{len(stored)} cells were stored already, {len(waiting)} were run; results in {Path(store.root)}"
    )
    if settings.tracking.name == "mlflow":
        from pkm.experiments.tracking import sync

        sync(plan, store, uri=settings.tracking.uri, artifacts=settings.tracking.artifacts)
    return 0 if missing.empty else 1


def plan_of(config: DictConfig) -> Plan:
    """Make the plan of one job: a paper of one sweep, in which nothing may be lacking.

    Raises
    ------
    ConfigurationError
        If something is unknown, not allowed or not at hand.
    """
    values = OmegaConf.to_container(config, resolve=True)
    for name in ("path", "bounds"):
        if values["dataset"]["name"] != "file":
            require(values[name] is None, name, values[name], "left out unless dataset=file")
    sweep = {
        name: values[name]
        for name in ("preprocessing", "clip", "metrics", "epsilon", "delta", "k", "timing")
    }
    for key in ("federation", "unlearning"):
        sweep[key] = {
            name: value for name, value in values[key].items() if value is not None
        } or None
    paper = {
        "name": "run",
        "sweeps": {"run": sweep | {"datasets": [values["dataset"]], "methods": [values["method"]]}},
    }
    plan = make_plan(paper, {"name": "run", "seeds": values["seeds"]}, mirror=values["data"])
    if plan.gaps:
        raise ConfigurationError(plan.gaps[0].reason)
    return plan


def result_table(rows: pd.DataFrame, metrics: Sequence[str]) -> Table:
    """Lay out the means over seeds, one line per cell.

    Parameters
    ----------
    rows : DataFrame
        Rows as stored, one per seed.
    metrics : sequence of str
        Which columns to show.

    Returns
    -------
    rich.table.Table
        Mean ± standard deviation of each metric; time per seed; where there are protocols, their parties and time.
    """
    protocol = ("clients", "latency (ms)", "ms per iteration") if rows["clients"].any() else ()
    headings = ("method", "data set", "k", "ε", "seeds", *metrics, "ms per seed", *protocol)
    table = Table(*headings, box=None, header_style="bold")
    for _, cell in rows.groupby(["cell", "dataset"], sort=False):
        first = cell.iloc[0]
        budget = "-" if pd.isna(first["epsilon"]) else f"{first['epsilon']:g}"
        shown = [
            "-"
            if cell[metric].isna().all()
            else f"{cell[metric].mean():.4g} ± {cell[metric].std(ddof=1):.2g}"
            for metric in metrics
        ]
        seconds = 1000 * cell["fit_seconds"].mean()
        label = (
            first["method"]
            if first["variant"] in ("", "published")
            else f"{first['method']} ({first['variant']})"
        )
        shown.append(f"{seconds:.3g}")
        if protocol and first["clients"]:
            shown += [
                str(first["clients"]),
                f"{first['latency_ms']:g}",
                f"{cell['iteration_ms'].mean():.3g}",
            ]
        table.add_row(label, first["dataset"], str(first["k"]), budget, str(len(cell)), *shown)
    return table


def clipping_lines(rows: pd.DataFrame) -> list[str]:
    """Say of which data sets points outside the domain were moved to its border, and how many."""
    moved = rows.loc[
        rows["clipped"] > 0, ["dataset", "preprocessing", "clipped", "n"]
    ].drop_duplicates()
    return [
        f"{each.dataset}: {each.clipped} of {each.n} points lie outside the {DOMAINS[each.preprocessing]} "
        "and were moved to its border (clip=false refuses them)"
        for each in moved.itertuples()
    ]
