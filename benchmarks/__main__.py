"""``pkm bench [PART ...]``: print speed ratios and times, with their targets.

Most times are CPU seconds on one thread of this process, so that load on the machine
affects them little. Wall-clock times are those of passes on two threads, and some of
files. ``first_calls`` measures another process.
"""

from collections.abc import Callable, Iterable, Sequence

from rich.console import Console
from rich.table import Table

from pkm.arguments import Parser
from pkm.benchmarks.dist_dp import measure_distance_based
from pkm.benchmarks.files import measure_files, measure_persons
from pkm.benchmarks.first_calls import measure_first_calls
from pkm.benchmarks.kaplan_stemmer import measure_kaplan_stemmer
from pkm.benchmarks.lloyd import measure_single_fits, measure_sweep
from pkm.benchmarks.local_dp import measure_local_model
from pkm.benchmarks.measurement import Measurement
from pkm.benchmarks.noise import measure_secure_noise
from pkm.benchmarks.passes import measure_passes
from pkm.benchmarks.protocol import measure_protocol
from pkm.benchmarks.trees import measure_trees
from pkm.benchmarks.unlearning import measure_unlearning
from pkm.experiments.fit.threads import limit_threads

PARTS: dict[str, Callable[[float], Iterable[Measurement]]] = {
    "first_calls": measure_first_calls,
    "sweep": measure_sweep,
    "single_fits": measure_single_fits,
    "passes": measure_passes,
    "trees": measure_trees,
    "protocol": measure_protocol,
    "unlearning": measure_unlearning,
    "dist_dp": measure_distance_based,
    "kaplan_stemmer": measure_kaplan_stemmer,
    "local_dp": measure_local_model,
    "secure_noise": measure_secure_noise,
    "files": measure_files,
    "persons": measure_persons,
}
MIN_SCALE = 0.1  # so that no cluster is empty


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts named, or all, and print a table.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the process by default.

    Returns
    -------
    int
        1 if a target is missed, else 0.
    """
    parser = Parser(prog="pkm bench", description="Measure speed.")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all by default"
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help=(
            "multiply the numbers of points, except of first_calls and of the memory "
            "in passes; targets are for 1, the default"
        ),
    )
    options = parser.parse_args(arguments)
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"part {name!r} is unknown; known are {', '.join(PARTS)}")
    if options.scale < MIN_SCALE:
        parser.error(f"scale={options.scale} must be at least {MIN_SCALE}")

    table = Table("what", "measured", "target", "", title="Speed")
    n_missed = 0
    for name in options.parts or PARTS:
        with limit_threads(1):
            rows = list(PARTS[name](options.scale))
        for row in rows:
            verdict = "ok" if row.is_met else "MISSED"
            measured = f"{row.value:.3g} {row.unit}"
            table.add_row(
                row.title, measured, row.target, verdict if row.target else ""
            )
            n_missed += not row.is_met
    Console().print(table)
    return int(n_missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
