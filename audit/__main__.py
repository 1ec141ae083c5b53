"""The command ``pkm audit``: attack a method, or all methods of this package."""

import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from pkm.arguments import Parser
from pkm.audit import records
from pkm.audit.report import VIEWS, AuditReport, audit
from pkm.methods import METHODS, load_method

DESCRIPTION = """Attack a method: replay its releases on neighbors with all outcomes forced, test
its noise against the declared law, and try to distinguish neighbors by the released centers. The
audit says violated, consistent, or no power here; it never proves privacy."""

N_CLUSTERS = 3
SETTINGS = {
    "view": "replay,residuals",
    "pairs": "60",
    "runs": "2000",
    "seed": "0",
    "results": "",  # folder that the reports are written to; empty: none
}
TEXTS = ("view", "results")  # all other settings are numbers
# Of `all`: a method whose replicates do not share an array gets that part of the runs.
UNBATCHED_SHARE = 10
MIN_RUNS = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each method and variant, and one for each finding.

    Returns
    -------
    int
        0 if nothing was found that no registered flaw explains, 1 otherwise, 2 if the command is
        wrong.
    """
    parser = Parser(prog="pkm audit", description=DESCRIPTION)
    parser.add_argument("method", help="class name, import path, entry point, or all")
    parser.add_argument(
        "settings",
        nargs="*",
        help="view=replay,residuals,blackbox pairs=60 runs=2000 (of all: a tenth where a method "
        "runs one replicate at a time) seed=0 results=FOLDER (for the reports of papers)",
        metavar="key=value",
    )
    parser.add_argument("--json", action="store_true", help="print reports as JSON lines")
    given = parser.parse_args(arguments)
    try:
        settings = _settings(given.settings)
        methods = _methods(given.method)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    views = settings["view"].split(",")
    failed = False
    for method in methods:
        runs = int(settings["runs"])
        if given.method == "all" and not method.batched:
            runs = min(runs, max(runs // UNBATCHED_SHARE, MIN_RUNS))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                report = audit(
                    method,
                    views,
                    n_pairs=int(settings["pairs"]),
                    n_runs=runs,
                    seed=int(settings["seed"]),
                )
            record = records.record_of(report, method)
            if settings["results"]:
                records.write([record], settings["results"])
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        print(json.dumps(record) if given.json else lines_of(report), flush=True)
        failed |= bool(report.unregistered)
    return int(failed)


def _settings(words: Sequence[str]) -> dict[str, str]:
    """Settings of the command line over the defaults."""
    settings = dict(SETTINGS)
    for word in words:
        name, equals, value = word.partition("=")
        if name not in SETTINGS or not equals:
            raise ValueError(f"{word!r} is unknown, set {', '.join(f'{key}=' for key in SETTINGS)}")
        if name not in TEXTS and not value.isdigit():
            raise ValueError(f"{name}={value!r} must be a whole number")
        settings[name] = value
    unknown = [view for view in settings["view"].split(",") if view not in VIEWS]
    if unknown:
        raise ValueError(f"view={','.join(unknown)!r} is unknown, choose of {', '.join(VIEWS)}")
    if int(settings["pairs"]) < 1:
        raise ValueError(f"pairs={settings['pairs']} must be at least 1")
    return settings


def _methods(target: str) -> list[Any]:
    """Every variant that claims privacy of a method, or of all methods of this package."""
    classes = [load_method(name) for name in (METHODS if target == "all" else [target])]
    methods = []
    for method_class in classes:
        if not hasattr(method_class, "claims"):
            raise ValueError(f"{target} is no method: it declares no claims")
        for variant, claim in method_class.claims.items():
            if claim.private:
                methods.append(_built(method_class, variant))
    if not methods:
        raise ValueError(f"{target} claims no privacy: there is nothing to audit")
    return methods


def _built(method_class: type, variant: str) -> Any:
    try:
        method = method_class(n_clusters=N_CLUSTERS)
        if "variant" in method.get_params():
            method.set_params(variant=variant)
    except Exception as error:  # a method of somebody else may fail in any way
        name = method_class.__name__
        raise ValueError(f"{name}(n_clusters={N_CLUSTERS}) does not build: {error}") from error
    return method


def lines_of(report: AuditReport) -> str:
    """Verdicts in a line, then what was found."""
    verdicts = "  ".join(f"{view} {verdict}" for view, verdict in report.verdicts.items())
    lines = [f"{report.method:20} {report.variant:10} {verdicts}"]
    if report.lower_bound is not None:
        lines.append(
            f"    epsilon is at least {report.lower_bound:.3g} by centers and "
            f"{_spelled(report.transcript_bound)} by transcripts (95 %); the ledger says "
            f"{report.epsilon:.3g}"
        )
    tightness = ", ".join(f"{label} {ratio:.3f}" for label, ratio in report.tightness.items())
    if tightness:
        lines.append(f"    realized over charged: {tightness}")
    for finding in report.findings:
        flaw = f" (registered: {finding.flaw})" if finding.flaw else ""
        lines.append(f"    {finding.view}: {finding.label}{flaw}: {finding.message}")
    return "\n".join(lines)


def _spelled(bound: float | None) -> str:
    return "unknown" if bound is None else f"{bound:.3g}"


if __name__ == "__main__":
    raise SystemExit(main())
