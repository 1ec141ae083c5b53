"""Run methods on data sets from the command line and print a table: ``pkm run``."""

from collections.abc import Sequence

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from pkm.experiments.applications.application import call, run_task
from pkm.experiments.console.console import CellsFailed, make_console


@hydra.main(config_path=None, config_name="run", version_base="1.3")
def application(config: DictConfig) -> float:
    """Run one job.

    Returns
    -------
    float
        Its objective, for Hydra's sweepers.
    """
    return run_task(run_job, config, "run")


def run_job(config: DictConfig) -> float:
    """Run the cells of a checked configuration, and print their table.

    Raises
    ------
    CellsFailed
        If a cell failed.
    """
    # Imported here: it takes seconds, which a help text or a refusal need not.
    from pkm.experiments.commands.run_cells import run

    hydra_config = HydraConfig.get()
    is_job = hydra_config.mode == RunMode.MULTIRUN
    title = " ".join(hydra_config.overrides.task) if is_job else None
    (objective,) = run([config], make_console(), title)
    if objective is None:
        raise CellsFailed("cells failed")
    return objective


def main(argv: Sequence[str]) -> int:
    """Run the command line; ``options.yaml`` says what it takes.

    Parameters
    ----------
    argv : sequence of str
        Arguments.

    Returns
    -------
    int
        Exit code: 0, 1 if a cell failed, 2 if the request was refused.
    """
    return call(application, "run", argv)
