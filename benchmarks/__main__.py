"""``pkm bench [PART ...]``: print speed ratios and their targets; exit with 1 if one is missed.

Times are the minimum CPU seconds of a few repetitions on one thread in one process, so that load on
the machine affects the ratios little.
"""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from pkm.arguments import Parser
from pkm.benchmarks.dist_dp import distance_based
from pkm.benchmarks.first_calls import first_calls
from pkm.benchmarks.kaplan_stemmer import kaplan_stemmer
from pkm.benchmarks.lloyd import single_fits, sweep
from pkm.benchmarks.local_dp import local_model
from pkm.benchmarks.measurement import Measurement
from pkm.benchmarks.noise import secure_noise
from pkm.benchmarks.passes import passes
from pkm.benchmarks.protocol import protocol
from pkm.benchmarks.scaling import scaling
from pkm.benchmarks.trees import trees
from pkm.benchmarks.unlearning import unlearning
from pkm.experiments.fit.threads import limit_threads

PARTS: dict[str, Callable[[], list[Measurement]]] = {
    "sweep": sweep,
    "single_fits": single_fits,
    "passes": passes,
    "scaling": scaling,
    "trees": trees,
    "protocol": protocol,
    "unlearning": unlearning,
    "dist_dp": distance_based,
    "kaplan_stemmer": kaplan_stemmer,
    "local_dp": local_model,
    "secure_noise": secure_noise,
    "first_calls": first_calls,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts named, or all, and print a table.

    Parameters
    ----------
    arguments : sequence of str, optional
        Names of parts; the arguments of the process by default.

    Returns
    -------
    int
        1 if a target is missed, else 0.
    """
    parser = Parser(prog="pkm bench", description="Measure speed.")
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all by default"
    )
    names = parser.parse_args(arguments).parts
    for name in names:
        if name not in PARTS:
            parser.error(f"part {name!r} is unknown; known are {', '.join(PARTS)}")
    rows = []
    with limit_threads(1):
        for name in names or PARTS:
            rows += PARTS[name]()
    Console().print(table_of(rows))
    return int(not all(row.is_met for row in rows))


def table_of(rows: Sequence[Measurement]) -> Table:
    """Table of measurements and their targets."""
    table = Table("what", "measured", "target", "", title="Speed")
    for row in rows:
        verdict = "ok" if row.is_met else "MISSED"
        table.add_row(
            row.what, f"{row.value:.3g} {row.unit}", row.target, verdict if row.target else ""
        )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
