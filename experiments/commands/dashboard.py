"""Serve MLflow's interface on the stored results: ``pkm dashboard``.

    pkm dashboard
    pkm dashboard --port 5001 results=results

What the server prints is in ``mlflow.log`` in the results folder. Ctrl-C ends it.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pkm.experiments.commands.sync import load_configuration
from pkm.experiments.console.console import (
    make_console,
    make_parser,
    run_action,
)
from pkm.experiments.mlflow.dashboard import serve
from pkm.experiments.store.store import Store

LOG = "mlflow.log"


def run(overrides: Sequence[str], port: int) -> None:
    """Serve the results of a configuration, and print where."""
    config = load_configuration("dashboard", overrides)
    Store(config.results).check_writable()
    log = Path(config.results) / LOG
    tracking = config.tracking
    with suppress(KeyboardInterrupt):
        serve(tracking.uri, tracking.artifacts, port, log, make_console())


def main(argv: Sequence[str]) -> int:
    """Run the command line; see the module's text.

    Returns
    -------
    int
        Exit code: 0, or 2 if the request was refused.
    """
    parser = make_parser("dashboard", __doc__)
    port = "where MLflow is served (default: 5000)"
    keys = "keys of `pkm reproduce`"
    parser.add_argument("--port", type=int, default=5000, help=port)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help=keys)
    words = parser.parse_intermixed_args(argv)
    return run_action(lambda: run(words.overrides, words.port))
