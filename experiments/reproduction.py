"""One paper: what of its plan is missing, running it, its report and its place in MLflow."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from pkm.experiments.backends import Backend, checked_backend, run_cells
from pkm.experiments.configuration import ConfigurationError, unknown
from pkm.experiments.crate import write_crate
from pkm.experiments.environment import environment, origin_of
from pkm.experiments.estimate import estimator, wall_seconds
from pkm.experiments.fetching import fetch
from pkm.experiments.overview import listed, show, show_status, substitution_lines
from pkm.experiments.plan import Plan, make_plan
from pkm.experiments.progress import duration
from pkm.experiments.provenance import write_origins
from pkm.experiments.store import Store
from pkm.experiments.sweep import as_list, sized_sweeps


def plans_of(configs: Sequence[DictConfig], console: Console) -> list[Plan]:
    """Make the plans of papers; where cells are to be run, data that they lack are downloaded.

    Raises
    ------
    ConfigurationError
        If a configuration is wrong; nothing has been downloaded or written then.
    """
    plans = [make_plan(each.paper, each.profile, mirror=each.data) for each in configs]
    requested = [requested_part(plan, each) for plan, each in zip(plans, configs, strict=True)]
    settings = configs[0]
    runs = settings.fetch and settings.verb in (None, "run", "retry")
    if runs and fetch(requested, settings.data, console):
        plans = [make_plan(each.paper, each.profile, mirror=each.data) for each in configs]
    return plans


def cheapest_first(
    plans: Sequence[Plan], configs: Sequence[DictConfig]
) -> list[tuple[Plan, DictConfig]]:
    """Order papers by the estimated time of the cells that they lack: the first report comes soon.

    Parameters
    ----------
    plans : sequence of Plan
    configs : sequence of DictConfig
        Their configurations, which differ in the paper alone.

    Returns
    -------
    list of (Plan, DictConfig)
        In the given order where they take the same time.
    """
    pairs = list(zip(plans, configs, strict=True))
    if len(pairs) < 2:
        return pairs
    store = Store(configs[0].results)
    backend = Backend(**configs[0].backend)
    estimate = estimator(store, backend)

    def seconds(pair: tuple[Plan, DictConfig]) -> float:
        cells = requested_part(*pair).cells
        absent = [cell for cell in cells if store.status(cell.key) == "absent"]
        costs = {cell.key: estimate(cell)[0] for cell in absent}
        return wall_seconds(costs, absent, backend.jobs)

    return sorted(pairs, key=seconds)


def reproduce(plan: Plan, config: DictConfig, console: Console) -> int:
    """Do what the key ``verb`` says for one paper: by default run, then report.

    Parameters
    ----------
    plan : Plan
        Of all sweeps of the paper.
    config : DictConfig
        From `pkm.experiments.configuration.checked`.
    console : rich.console.Console
        Where to print.

    Returns
    -------
    int
        0, or 1 if cells of the plan have failed.

    Raises
    ------
    PermissionError
        If the results folder cannot be written.
    ValueError
        If a report is asked for, and the paper's figures or claims are not well written.
    """
    verb = config.verb
    requested = requested_part(plan, config)
    store = Store(config.results)
    if verb == "plan":
        show(requested, store, Backend(**config.backend), console)
        return 0
    if verb == "status":
        show_status(requested, store, console)
        return 0
    if verb in (None, "report"):
        # What a report is made of is refused before hours of work, not after them.
        from pkm.analysis.report import check_figures_and_claims

        check_figures_and_claims(plan.paper)
    if verb in (None, "run", "retry"):
        run_missing(requested, store, config, console, again=verb == "retry")
    folder = report(plan, store, config, console) if verb in (None, "report") else None
    if config.tracking.name == "mlflow":
        # Imported here: MLflow takes seconds.
        from pkm.experiments.tracking import project

        project(plan, store, config, console, profile=config.profile.name, report=folder)
    return 1 if any(store.status(cell.key) == "failed" for cell in requested.cells) else 0


def requested_part(plan: Plan, config: DictConfig) -> Plan:
    """Return the part of a plan that ``sweeps`` names: all of it where that is null.

    Raises
    ------
    ConfigurationError
        If the paper has no sweep of a given name; those it has are listed.
    """
    if config.sweeps is None:
        return plan
    names = as_list(OmegaConf.to_container(config, resolve=True)["sweeps"])
    for name in names:
        if name not in config.paper.sweeps:
            raise ConfigurationError(unknown("sweep", name, list(config.paper.sweeps)))
    return Plan(
        plan.paper,
        tuple(entry for entry in plan.entries if entry[0] in names),
        tuple(gap for gap in plan.gaps if gap.sweep in names),
        tuple(entry for entry in plan.substitutions if entry.sweep in names),
    )


def run_missing(
    plan: Plan, store: Store, config: DictConfig, console: Console, *, again: bool
) -> None:
    """Run the cells that are absent; those that failed before only on `again`, and then only those.

    A stored cell that cannot be read is set aside first, and so is among the absent ones.
    """
    backend = checked_backend(Backend(**config.backend))
    store.check_writable()
    cells = plan.cells
    readable = store.readable([cell.key for cell in cells])
    failed = {
        cell.key
        for cell in cells
        if cell.key not in readable and store.status(cell.key) == "failed"
    }
    if again:
        waiting = [cell for cell in cells if cell.key in failed]
    else:
        waiting = [cell for cell in cells if cell.key not in readable | failed]
        if failed:
            console.print(
                f"{len(failed)} cells failed before and are left alone (`retry` runs them again)",
                style="red",
            )
    if plan.gaps:
        names = listed(list(dict.fromkeys(gap.dataset for gap in plan.gaps)))
        console.print(
            f"not everything is available ({names}); `status` and the report say what is missing "
            "and why",
            style="yellow",
            markup=False,
        )
    for line in substitution_lines(plan.substitutions):
        console.print(f"substitute: {line}", markup=False, soft_wrap=True)
    estimate = estimator(store, backend)
    costs = {cell.key: estimate(cell)[0] for cell in waiting}
    estimated = duration(wall_seconds(costs, waiting, backend.jobs))
    console.print(
        f"{config.paper.name} ({config.profile.name}): {len(cells)} cells, {len(readable)} stored, "
        f"{len(waiting)} to run, about {estimated} with jobs={backend.jobs}"
    )
    started = time.perf_counter()
    outcomes = run_cells(waiting, store, backend, mirror=config.data, costs=costs, console=console)
    counts = Counter(outcome.status for outcome in outcomes)
    elapsed = duration(time.perf_counter() - started)
    console.print(f"{counts['done']} done, {counts['failed']} failed in {elapsed}")
    labels = {cell.key: cell.label for cell in waiting}
    for outcome in outcomes:
        if outcome.status == "failed":
            console.print(f"{labels[outcome.key]}: {outcome.error}", style="red", markup=False)


def report(plan: Plan, store: Store, config: DictConfig, console: Console) -> Path | None:
    """Write the report from the stored rows and say where it lies; without rows there is none."""
    from pkm.analysis import audits, claims, index_page
    from pkm.analysis.report import build
    from pkm.audit.records import FILE

    rows = plan.rows(store)
    if rows.empty:
        console.print("nothing is stored for this plan yet: no report", style="yellow")
        return None
    store.check_writable()
    out = store.report_folder(plan.paper, config.profile.name)
    described = {"profile": config.profile.name, "seeds of the profile": str(config.profile.seeds)}
    if plan.substitutions:
        described["substitutes"] = "; ".join(substitution_lines(plan.substitutions))
    described |= origin_of(rows) | {"report made with": environment()}
    index = build(
        rows,
        paper=plan.paper,
        missing=plan.missing(store),
        out=out,
        environment=described,
        profile=config.profile.name,
        audited=audits.read(store.root / FILE),
    )
    write_origins(rows, plan.paper, config.profile.name, out / "figures")
    write_crate(
        out,
        rows,
        OmegaConf.to_yaml(OmegaConf.create(sized_sweeps(config.paper, config.profile))),
        title=claims.load(plan.paper)["title"],
        paper=plan.paper,
        profile=config.profile.name,
        environment=described,
    )
    index_page.build(out.parent)
    console.print(f"report: {Path(index).resolve()}", soft_wrap=True)
    return Path(index).parent
