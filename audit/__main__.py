"""The command ``pkm audit``: attack a method, or all methods of this package."""

import itertools
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from pkm.arguments import Parser
from pkm.audit import records
from pkm.audit.report import MIN_RUNS, AuditReport, audit, load_variants
from pkm.methods import METHODS, load_method

DESCRIPTION = """Attack a method: replay its releases on neighbors with all outcomes
forced, test its noise against the declared law, and try to distinguish neighbors by the
released centers. The audit says violated, consistent, or no power here; it never proves
privacy."""
SETTINGS_HELP = """view=replay,residuals,blackbox pairs=60 runs=2000 (of all: a tenth
where a method runs one replicate at a time) seed=0 results=FOLDER (for the reports of
papers)"""

SETTINGS: dict[str, Any] = {
    "view": "replay,residuals",
    "pairs": 60,
    "runs": 2000,
    "seed": 0,
    "results": "",  # folder that the reports are written to; empty: none
}
# With `all`, a method that fits its replicates one by one gets a tenth of the runs.
UNBATCHED_SHARE = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each method and variant, and one for each finding.

    Returns
    -------
    int
        0 if nothing was found that no registered flaw explains, 1 otherwise, 2 if the
        command is wrong.
    """
    parser = Parser(prog="pkm audit", description=DESCRIPTION)
    parser.add_argument("method", help="class name, import path, entry point, or all")
    parser.add_argument(
        "settings",
        nargs="*",
        help=SETTINGS_HELP,
        metavar="key=value",
    )
    parser.add_argument(
        "--json", action="store_true", help="print reports as JSON lines"
    )
    words = parser.parse_args(arguments)
    failed = False
    try:
        settings = _parse_settings(words.settings)
        targets = [words.method] if words.method != "all" else _name_private_methods()
        for method in itertools.chain(*map(load_variants, targets)):
            n_runs = settings["runs"]
            if words.method == "all" and not method.batched:
                n_runs = min(n_runs, max(n_runs // UNBATCHED_SHARE, MIN_RUNS))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                report = audit(
                    method,
                    settings["view"].split(","),
                    n_pairs=settings["pairs"],
                    n_runs=n_runs,
                    seed=settings["seed"],
                )
            record = records.make_record(report, method)
            if settings["results"]:
                records.write([record], settings["results"])
            text = json.dumps(record) if words.json else format_report(report)
            print(text, flush=True)
            failed |= bool(report.unregistered)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return int(failed)


def _parse_settings(words: Sequence[str]) -> dict[str, Any]:
    """Parse the settings of the command line, over the defaults."""
    settings = dict(SETTINGS)
    for word in words:
        name, equals, value = word.partition("=")
        if name not in SETTINGS or not equals:
            names = ", ".join(f"{key}=" for key in SETTINGS)
            raise ValueError(f"{word!r} is unknown, set {names}")
        is_number = isinstance(SETTINGS[name], int)
        if is_number and not value.isdigit():
            raise ValueError(f"{name}={value!r} must be a whole number")
        settings[name] = int(value) if is_number else value
    return settings


def _name_private_methods() -> list[str]:
    """Name the methods of this package of which a variant claims privacy."""
    claims = {name: load_method(name).claims.values() for name in METHODS}
    return [name for name in METHODS if any(claim.private for claim in claims[name])]


def format_report(report: AuditReport) -> str:
    """Format verdicts in a line, then what was found."""
    verdicts = [f"{view} {verdict}" for view, verdict in report.verdicts.items()]
    lines = [f"{report.method:20} {report.variant:10} {'  '.join(verdicts)}"]
    if report.lower_bound is not None:
        transcripts = "unknown"
        if report.transcript_bound is not None:
            transcripts = f"{report.transcript_bound:.3g}"
        lines.append(
            f"    epsilon is at least {report.lower_bound:.3g} by centers and "
            f"{transcripts} by transcripts (95 %); the ledger says {report.epsilon:.3g}"
        )
    ratios = [f"{label} {ratio:.3f}" for label, ratio in report.tightness.items()]
    if ratios:
        lines.append(f"    realized over charged: {', '.join(ratios)}")
    for finding in report.findings:
        flaw = f" (registered: {finding.flaw})" if finding.flaw else ""
        lines.append(f"    {finding.view}: {finding.label}{flaw}: {finding.message}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
