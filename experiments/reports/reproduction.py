"""One paper: what its plan lacks, running it, its report and its place in MLflow."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pkm.analysis.claims.claim import read_claims
from pkm.analysis.claims.findings import VERDICTS
from pkm.analysis.figures.figure import read_figures
from pkm.analysis.pages import audits
from pkm.audit.records import FILE
from pkm.experiments.backends.backends import check_backend, run_cells, select_cheapest
from pkm.experiments.cell.environment import describe_environment, describe_sources
from pkm.experiments.config.backend import Backend
from pkm.experiments.config.errors import require_choices
from pkm.experiments.config.settings import to_list
from pkm.experiments.console.console import format_duration, make_console, show
from pkm.experiments.plan.estimate import estimate_costs, estimate_wall_time
from pkm.experiments.plan.plan import Plan, make_plan, warn_seeded_noise
from pkm.experiments.plan.sweep import apply_profile
from pkm.experiments.reports.crate import write_crate, write_provenance
from pkm.experiments.reports.fetching import fetch
from pkm.experiments.reports.overview import (
    describe_substitutions,
    join_names,
    show_plan,
    show_status,
)
from pkm.experiments.store.store import Store

#: Verbs that run cells; None stands for run, then report.
RUN_VERBS = (None, "run", "retry")
#: Verbs that write reports.
REPORT_VERBS = (None, "report")
#: Verbs that print. Damaged files of the store are set aside on the way.
PRINT_VERBS = ("plan", "status")


@dataclass(frozen=True)
class Request:
    """A paper to reproduce.

    Parameters
    ----------
    paper : mapping
        As in ``conf/paper``.
    plan : Plan
        The plan of all its sweeps.
    selection : Plan
        The plan of the requested sweeps.
    """

    paper: Mapping
    plan: Plan
    selection: Plan


def make_requests(
    papers: Sequence[Mapping],
    config: DictConfig,
    console: Console,
) -> list[Request]:
    """Make the plans of papers; download missing data before a run.

    Parameters
    ----------
    papers : sequence of mapping
        As in ``conf/paper``.
    config : DictConfig
        All other settings, checked.
    console : rich.console.Console
        Where to print.

    Returns
    -------
    list of Request
        One per paper.

    Raises
    ------
    ConfigurationError
        If a configuration is wrong; nothing has been downloaded or written then.
    """
    requests = [make_request(paper, config) for paper in papers]
    plans = [request.selection for request in requests]
    is_run = config.fetch and config.verb in RUN_VERBS
    if is_run and fetch(plans, config.data, console):
        requests = [make_request(paper, config) for paper in papers]
    return requests


def make_request(paper: Mapping, config: DictConfig) -> Request:
    """Make the plan of a paper, and select the sweeps that ``sweeps`` names.

    Raises
    ------
    ConfigurationError
        If the paper has no sweep of a given name; the known ones are listed.
    """
    plan = make_plan(paper, config.profile, data_dir=config.data)
    if config.sweeps is None:
        return Request(paper, plan, plan)
    names = to_list(OmegaConf.to_container(config)["sweeps"])
    require_choices("sweep", names, list(paper["sweeps"]))
    selection = Plan(
        plan.paper,
        tuple(pair for pair in plan.sweep_cells if pair[0] in names),
        tuple(gap for gap in plan.gaps if gap.sweep in names),
        tuple(item for item in plan.substitutions if item.sweep in names),
    )
    return Request(paper, plan, selection)


def estimate_absent(
    requests: Sequence[Request], config: DictConfig
) -> dict[str, float]:
    """Estimate the seconds of the cells of papers that are neither done nor failed.

    Returns
    -------
    dict of str to float
        Key of a cell to seconds.
    """
    store = Store(config.results)
    attempted = store.list_attempted()
    cells = [cell for request in requests for cell in request.selection.cells]
    absent = [cell for cell in cells if cell.key not in attempted]
    return estimate_costs(absent, store, Backend(**config.backend))


def order_by_cost(
    requests: Sequence[Request],
    costs: Mapping[str, float],
    jobs: int,
) -> list[Request]:
    """Order papers by the time of their absent cells: the first report comes soon.

    Parameters
    ----------
    requests : sequence of Request
    costs : mapping of str to float
        From `estimate_absent`.
    jobs : int
        Number of workers.

    Returns
    -------
    list of Request
        Papers that take the same time keep their order.
    """

    def seconds(request: Request) -> float:
        absent = [cell for cell in request.selection.cells if cell.key in costs]
        return estimate_wall_time(costs, absent, jobs)

    return sorted(requests, key=seconds)


def run_cheapest(
    requests: Sequence[Request],
    costs: Mapping[str, float],
    config: DictConfig,
    console: Console,
) -> None:
    """Run the cheapest cells of several papers, before any paper is run to its end.

    So a run that is killed again and again makes progress while any cell is cheap.

    Parameters
    ----------
    requests : sequence of Request
    costs : mapping of str to float
        From `estimate_absent`.
    config : DictConfig
        Their settings.
    console : rich.console.Console
        Where to print.
    """
    backend = check_backend(Backend(**config.backend))
    store = Store(config.results)
    waiting = costs.keys() - set(store.list_interrupted())
    cells = {cell.key: cell for request in requests for cell in request.selection.cells}
    selected = select_cheapest(
        [cell for key, cell in cells.items() if key in waiting], costs
    )
    if selected:
        console.print(f"the {len(selected)} cheapest cells of all papers come first")
        run_cells(
            selected,
            store,
            backend,
            data_dir=config.data,
            costs=costs,
            console=console,
        )


def reproduce_papers(
    requests: Sequence[Request],
    config: DictConfig,
    console: Console,
) -> bool:
    """Carry out the key ``verb`` for papers; return whether a cell has failed.

    Raises
    ------
    ValueError
        If a report is requested, and a figure or a claim is malformed: before hours of
        work.
    """
    started = time.perf_counter()
    if config.verb in RUN_VERBS:
        cells = [cell for request in requests for cell in request.selection.cells]
        warn_seeded_noise(cells, console)
    if len(requests) > 1:
        costs = estimate_absent(requests, config)
        requests = order_by_cost(requests, costs, config.backend.jobs)
        if config.verb in (None, "run"):
            run_cheapest(requests, costs, config, console)
    papers = [request.plan.paper for request in requests]
    is_reported = config.verb in REPORT_VERBS
    if is_reported:
        # What is not well written is refused before anything runs.
        for paper in papers:
            read_figures(paper)
            read_claims(paper)
    failed = []
    at_once = nullcontext(partial(publish, config=config, console=console))
    with (
        at_once
        if len(requests) == 1
        else publish_in_background(config, console) as submit
    ):
        for number, request in enumerate(requests, 1):
            if len(requests) > 1:
                line = f"paper {number} of {len(papers)}: {request.plan.paper}"
                show(console, line, "bold")
            failed.append(run_verb(request, config, console))
            if config.verb not in PRINT_VERBS:
                submit(request)
    index_page = Path(config.results) / "reports" / "index.html"
    if is_reported and index_page.is_file():
        table = make_summary_table(index_page.parent, papers, config.profile.name)
        console.print(table)
        seconds = format_duration(time.perf_counter() - started)
        show(console, f"all reports, after {seconds}: {index_page.resolve()}")
    return any(failed)


def run_verb(
    request: Request,
    config: DictConfig,
    console: Console,
) -> bool:
    """Carry out the key ``verb`` for one paper, up to what `publish` does.

    Parameters
    ----------
    request : Request
    config : DictConfig
        From `pkm.experiments.applications.composition.check_configuration`.
    console : rich.console.Console
        Where to print.

    Returns
    -------
    bool
        Whether cells that were to run have failed.

    Raises
    ------
    PermissionError
        If the results folder cannot be written.
    """
    plan = request.selection
    store = Store(config.results)
    if config.verb == "plan":
        show_plan(plan, store, Backend(**config.backend), console)
    if config.verb == "status":
        show_status(plan, store, console)
    if config.verb in PRINT_VERBS:
        return False
    if config.verb in RUN_VERBS:
        run_missing(plan, store, config, console, again=config.verb == "retry")
    return any(store.status(cell.key) == "failed" for cell in plan.cells)


def publish(
    request: Request,
    config: DictConfig,
    console: Console,
) -> None:
    """Write the report of a paper, and bring MLflow up to date, as ``verb`` wants."""
    is_reported = config.verb in REPORT_VERBS
    folder = report(request, config, console) if is_reported else None
    store = Store(config.results)
    # Without a results folder there is nothing to show.
    if config.tracking.name == "mlflow" and store.root.is_dir():
        # Imported here: MLflow takes seconds.
        from pkm.experiments.mlflow.tracking import sync_after_run

        profile = config.profile.name
        sync_after_run(
            request.plan,
            store,
            config,
            console,
            profile=profile,
            report=folder,
        )


@contextmanager
def publish_in_background(
    config: DictConfig,
    console: Console,
) -> Iterator[Callable[[Request], None]]:
    """Publish papers while the cells of the next ones run, and wait for the last.

    Another process publishes one paper after the other. It gets the configuration as
    plain values, because its classes exist in this process alone.

    Yields
    ------
    callable
        Takes the request of a paper whose cells have run.
    """
    settings = OmegaConf.create(OmegaConf.to_container(config, resolve=True))
    started: list[Future[str]] = []

    def print_lines(future: Future[str]) -> None:
        """Print what the process has printed, if it has not failed."""
        if future.exception() is None and future.result():
            lines = future.result().rstrip()
            console.print(Text.from_ansi(lines), soft_wrap=True)

    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as publisher:

        def submit(request: Request) -> None:
            future = publisher.submit(publish_and_capture, request, settings)
            future.add_done_callback(print_lines)
            started.append(future)

        yield submit
    for future in started:
        future.result()


def publish_and_capture(request: Request, config: DictConfig) -> str:
    """Publish a paper in another process; return what that printed."""
    console = make_console()
    with console.capture() as printed:
        publish(request, config, console)
    return printed.get()


def run_missing(
    plan: Plan,
    store: Store,
    config: DictConfig,
    console: Console,
    *,
    again: bool,
) -> None:
    """Run the cells that are absent or, with `again`, those that failed before.

    A stored cell that cannot be read is set aside first, and so becomes absent.
    """
    backend = check_backend(Backend(**config.backend))
    store.check_writable()
    cells = plan.cells
    readable = store.filter_readable([cell.key for cell in cells])
    absent = [cell for cell in cells if cell.key not in readable]
    failed = {cell.key for cell in absent if store.status(cell.key) == "failed"}
    waiting = [cell for cell in absent if (cell.key in failed) == again]
    if failed and not again:
        show(
            console,
            f"{len(failed)} cells failed before and are left alone "
            "(`retry` runs them again)",
            "red",
        )
    if plan.gaps:
        names = join_names(gap.subject for gap in plan.gaps)
        show(
            console,
            f"not available: {names}; "
            "`status` and the report say what is missing and why",
            "yellow",
        )
    for line in describe_substitutions(plan.substitutions):
        show(console, f"substitute: {line}")
    costs = estimate_costs(waiting, store, backend)
    seconds = format_duration(estimate_wall_time(costs, waiting, backend.jobs))
    console.print(
        f"{plan.paper} ({config.profile.name}): {len(cells)} cells, "
        f"{len(readable)} stored, {len(waiting)} to run, "
        f"about {seconds} with jobs={backend.jobs}"
    )

    started = time.perf_counter()
    outcomes = run_cells(
        waiting,
        store,
        backend,
        data_dir=config.data,
        costs=costs,
        console=console,
    )
    counts = Counter(outcome.status for outcome in outcomes)
    elapsed = format_duration(time.perf_counter() - started)
    console.print(f"{counts['done']} done, {counts['failed']} failed in {elapsed}")
    labels = {cell.key: cell.label for cell in waiting}
    for outcome in outcomes:
        if outcome.status == "failed":
            failure = f"{labels[outcome.key]}: {outcome.error}"
            show(console, failure, "red")


def make_summary_table(
    folder: Path,
    papers: Sequence[str],
    profile: str,
) -> Table:
    """Make a table of the verdicts of papers' reports, and of what these lack."""
    from pkm.analysis.pages.index_page import read_summaries

    table = Table("paper", *VERDICTS, "what is missing")
    for summary in read_summaries(folder):
        if summary["paper"] in papers and summary["profile"] == profile:
            counts = [str(summary["counts"][verdict]) for verdict in VERDICTS]
            table.add_row(summary["title"], *counts, summary["lacking"])
    return table


def report(
    request: Request,
    config: DictConfig,
    console: Console,
) -> Path | None:
    """Write the report from the stored rows; return its folder, None without rows."""
    from pkm.analysis.pages import index_page
    from pkm.analysis.pages.report import build

    store = Store(config.results)
    plan = request.plan
    profile = config.profile
    rows = plan.read_rows(store)
    if rows.empty:
        show(console, "nothing is stored for this plan yet: no report", "yellow")
        return None
    store.check_writable()
    out = store.report_folder(plan.paper, profile.name)
    metadata = {
        "profile": profile.name,
        "seeds of the profile": str(profile.seeds),
    }
    if plan.substitutions:
        metadata["substitutes"] = "; ".join(describe_substitutions(plan.substitutions))
    metadata |= describe_sources(rows) | {"report made with": describe_environment()}
    index = build(
        rows,
        paper=plan.paper,
        missing=plan.list_missing(store),
        out=out,
        environment=metadata,
        profile=profile.name,
        audited=audits.read(store.root / FILE),
    )
    write_provenance(rows, plan.paper, profile.name, out / "figures")
    sweeps = OmegaConf.create(apply_profile(request.paper, profile))
    write_crate(
        out,
        rows,
        OmegaConf.to_yaml(sweeps),
        title=read_claims(plan.paper)["title"],
        paper=plan.paper,
        profile=profile.name,
        environment=metadata,
    )
    index_page.build(out.parent)
    show(console, f"report: {index.resolve()}")
    return out
