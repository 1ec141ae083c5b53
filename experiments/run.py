"""Run methods on data sets from the command line and print a table.

    pkm run method=fastlloyd dataset=iris epsilon=[0.1,1.0] seeds=20
    pkm run -m method=fastlloyd,glloyd dataset=iris,s1
    pkm run dataset=file path=points.csv bounds=[0,1] k=3
    pkm run method._target_=package.Class dataset=iris

With -m, comma-separated values are expanded to every combination; all of them are checked before
the first one runs.
"""

import argparse
import sys
from collections.abc import Sequence

from pkm.experiments.cli import REFUSALS, consoles, known_choices
from pkm.experiments.configuration import expand, load


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; see the module's text.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; those of the process by default.

    Returns
    -------
    int
        Exit code: 0, 1 if a cell failed, 2 if the request was refused.
    """
    parser = argparse.ArgumentParser(
        prog="pkm run",
        description=__doc__,
        epilog=known_choices(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="expand comma-separated values"
    )
    parser.add_argument(
        "--cfg", action="store_true", help="print the composed configuration and stop"
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="changes to conf/config.yaml"
    )
    arguments = parser.parse_intermixed_args(argv)
    console, errors = consoles()
    try:
        overrides = arguments.overrides
        if not any(override.startswith("tracking=") for override in overrides):
            overrides = [*overrides, "tracking=none"]
        jobs = expand(overrides) if arguments.multirun else [overrides]
        configs = [load(job) for job in jobs]
        if arguments.cfg:
            from omegaconf import OmegaConf

            print("---\n".join(OmegaConf.to_yaml(config) for config in configs), end="")
            return 0
        # Imported here: it takes seconds, which a help text or a refusal need not.
        from pkm.experiments.ad_hoc import run

        return run(configs, console)
    except REFUSALS as error:
        errors.print(f"error: {error}", style="red", markup=False, highlight=False)
        return 2


if __name__ == "__main__":
    sys.exit(main())
