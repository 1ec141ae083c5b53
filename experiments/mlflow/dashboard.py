"""MLflow's interface on this machine, and a page of links into it: ``pkm dashboard``.

    pkm dashboard
    pkm dashboard --port 5001 results=results

MLflow's own pages show neither parameters nor metrics until columns are chosen. The page
``dashboard.html`` in the results folder links to the views that `pkm sync` has prepared, to the
reports and to the documents; it is opened in the browser where there is one. What the server prints
is in ``mlflow.log`` beside it.
"""

import os
import socket
import subprocess
import sys
import time
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pkm.experiments.config.settings import require
from pkm.experiments.console.console import consoles, exit_code, parser_of
from pkm.experiments.mlflow.tracking import (
    VIEWS,
    TrackingError,
    check_reachable,
    configuration,
    failures_reported,
    open_client,
    view_tag,
)
from pkm.experiments.store.store import Store
from pkm.files import atomic_write

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from rich.console import Console

HOST = "127.0.0.1"
PAGE = "dashboard.html"
LOG = "mlflow.log"
#: Seconds within which the server has to answer.
START_SECONDS = 90
#: Seconds that the server and its workers have to end by themselves.
STOP_SECONDS = 10
ROOT = Path(__file__).resolve().parents[2]
#: Documents in the order of the page: the site where it is built, the files elsewhere.
DOCUMENTS = {
    "Documentation": "build/site/index.html",
    "Quick start": "docs/index.md",
    "Columns of a row": "docs/schema.md",
    "Glossary": "docs/glossary.md",
}


@dataclass(frozen=True)
class Link:
    """A link of the page; `made` says when its target was written."""

    name: str
    address: str
    made: str = ""


@dataclass(frozen=True)
class PaperLinks:
    """The views of a paper's experiment, by the kind of their runs, and its charts."""

    name: str
    links: dict[str, str]
    charts: str


def view_address(experiment: str, server: str, kind: str, mode: str = "TABLE") -> str:
    """Return the address of a prepared view of an experiment.

    Examples
    --------
    >>> view_address("1", "http://127.0.0.1:5000", "cell").partition("?")[0]
    'http://127.0.0.1:5000/#/experiments/1/runs'
    """
    query = f"viewStateShareKey={kind}&workflowType=machine_learning&compareRunsMode={mode}"
    return f"{server}/#/experiments/{experiment}/runs?{query}"


def papers_in(uri: str, server: str) -> list[PaperLinks]:
    """List the experiments that have prepared views.

    Raises
    ------
    TrackingError
        If MLflow's database or server is out of order.
    """
    with failures_reported(uri):
        check_reachable(uri)
        found = open_client(uri).search_experiments()
    return [
        PaperLinks(
            each.name,
            {kind: view_address(each.experiment_id, server, kind) for kind in VIEWS},
            view_address(each.experiment_id, server, "curve", "CHART"),
        )
        for each in sorted(found, key=lambda each: each.name)
        if view_tag("cell") in each.tags
    ]


def reports_in(results: Path) -> list[Link]:
    """List the reports of a results folder, the page over all papers first."""
    folder = results / "reports"
    pages = [folder / "index.html", *sorted(folder.glob("*/index.html"))]
    return [
        Link(
            "All papers" if page.parent == folder else page.parent.name,
            page.relative_to(results).as_posix(),
            f"{datetime.fromtimestamp(page.stat().st_mtime):%Y-%m-%d %H:%M}",
        )
        for page in pages
        if page.is_file()
    ]


def documents() -> list[Link]:
    """List the documents that are there."""
    files = {name: ROOT / path for name, path in DOCUMENTS.items()}
    return [Link(name, file.as_uri()) for name, file in files.items() if file.is_file()]


def write_page(results: Path, papers: Sequence[PaperLinks], server: str) -> Path:
    """Write the page of links; return its path."""
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    html = environment.get_template("dashboard.html.jinja").render(
        results=str(results),
        server=server,
        papers=papers,
        views=VIEWS,
        reports=reports_in(results),
        documents=documents(),
    )
    page = results / PAGE
    atomic_write(page, html.encode())
    return page


def dashboard(config: "DictConfig", port: int, browser: bool, console: "Console") -> int:
    """Serve MLflow's interface on this machine until stopped, and open the page of links.

    Parameters
    ----------
    config : DictConfig
        From `pkm.experiments.commands.composition.load`.
    port : int
        Port of the local server.
    browser : bool
        Whether to open the page in the browser.
    console : rich.console.Console
        Where to print.

    Returns
    -------
    int
        0 if the server was stopped from the keyboard, else its exit code.

    Raises
    ------
    ValueError
        If the port is none, or not free.
    PermissionError
        If the results folder cannot be written.
    TrackingError
        If MLflow's database or server is out of order, or its interface does not start.
    """
    require_free(port)
    Store(config.results).check_writable()
    results = Path(config.results).resolve()
    server = f"http://{HOST}:{port}"
    page = write_page(results, papers_in(config.tracking.uri, server), server)
    with start(config, port, results / LOG) as process:
        try:
            wait(process, port, results / LOG)
            console.print(f"dashboard: {page.as_uri()} (Ctrl-C ends it)", soft_wrap=True)
            if browser:
                webbrowser.open(page.as_uri())
            # MLflow imports polars, whose handler of Ctrl-C lets a blocking wait go on.
            while process.poll() is None:
                time.sleep(0.2)
            return process.returncode
        except KeyboardInterrupt:
            return 0
        finally:
            stop(process)


def start(config: "DictConfig", port: int, log: Path) -> subprocess.Popen:
    """Start MLflow's server; what it prints goes to a file."""
    artifacts = Path(config.tracking.artifacts).resolve().as_uri()
    command = [sys.executable, "-m", "mlflow", "server"]
    command += ["--host", HOST, "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", config.tracking.uri, "--default-artifact-root", artifacts]
    # MLflow's background jobs (scoring, roll-ups of traces) have nothing to do here.
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)


def stop(process: subprocess.Popen) -> None:
    """End the server and its workers; those that do not end in time are killed."""
    with suppress(psutil.NoSuchProcess):
        server = psutil.Process(process.pid)
        processes = [*server.children(recursive=True), server]
        for each in processes:
            with suppress(psutil.NoSuchProcess):
                each.terminate()
        _, alive = psutil.wait_procs(processes, timeout=STOP_SECONDS)
        for each in alive:
            each.kill()


def wait(process: subprocess.Popen, port: int, log: Path) -> None:
    """Wait until the server answers.

    Raises
    ------
    TrackingError
        If it ends, or does not answer within `START_SECONDS`.
    """
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.2)
    raise TrackingError(f"MLflow's server did not start on port {port}: see {log}")


def require_free(port: int) -> None:
    """Refuse a port that is none, or that another server listens to."""
    require(0 < port < 2**16, "port", port, "a number from 1 to 65535")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise ValueError(
                f"port={port} is not free ({error.strerror}): choose another one with --port, "
                "or make dashboard PORT="
            ) from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; see the module's text.

    Returns
    -------
    int
        Exit code: 0, or 2 if the request was refused.
    """
    parser = parser_of("dashboard", __doc__)
    parser.add_argument(
        "--port", type=int, default=5000, help="where MLflow is served (default: 5000)"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the page's address")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="keys of `pkm reproduce`")
    given = parser.parse_intermixed_args(argv)

    def run() -> int:
        # Without a display the browser may be one for terminals, which would wait for keys.
        has_display = sys.platform in ("darwin", "win32") or bool(
            os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        )
        config = configuration("dashboard", given.overrides)
        return dashboard(config, given.port, has_display and not given.no_browser, consoles()[0])

    return exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
