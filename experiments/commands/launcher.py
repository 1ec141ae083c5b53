"""A launcher for Hydra's sweeps that runs the cells of all jobs as one plan."""

from collections.abc import Sequence

from hydra.core.utils import JobReturn, configure_log, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from pkm.experiments.applications.composition import check_configuration
from pkm.experiments.commands.run_cells import run
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.console.console import CellsFailed, make_console


def launch(
    context: HydraContext,
    config: DictConfig,
    job_overrides: Sequence[Sequence[str]],
    first: int,
) -> list[JobReturn]:
    """Run the jobs of a ``pkm run -m`` as one batch of cells, each distinct cell once.

    All jobs are checked before the first cell is run. A job returns its objective to
    the sweeper.

    Parameters
    ----------
    context : HydraContext
        From Hydra.
    config : DictConfig
        Configuration of the sweep, with Hydra's settings.
    job_overrides : sequence of sequence of str
        Overrides of each job.
    first : int
        Number of the first job.

    Returns
    -------
    list of JobReturn
        One per job, as from Hydra's own launchers.

    Raises
    ------
    ConfigurationError
        If the configuration of a job is not allowed; no cell has been run then.
    """
    setup_globals()
    configure_log(config.hydra.hydra_logging, config.hydra.verbose)
    if config.hydra.job.config_name != "run":
        raise ConfigurationError(
            "hydra/launcher=cells is for `pkm run`: use another launcher"
        )
    jobs = [
        compose_job(context, config, overrides, number)
        for number, overrides in enumerate(job_overrides, first)
    ]
    configs = []
    for job in jobs:
        settings = [name for name in job if name != "hydra"]
        configs.append(check_configuration(OmegaConf.masked_copy(job, settings), "run"))
    objectives = run(configs, make_console())
    return [
        run_job(
            hydra_context=context,
            task_function=make_task(objective),
            config=job,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        for job, objective in zip(jobs, objectives, strict=True)
    ]


def compose_job(
    context: HydraContext,
    config: DictConfig,
    overrides: Sequence[str],
    number: int,
) -> DictConfig:
    """Compose the configuration of one job of a sweep."""
    job = context.config_loader.load_sweep_config(config, list(overrides))
    with open_dict(job):
        job.hydra.job.id = f"{job.hydra.job.name}_{number}"
        job.hydra.job.num = number
    return job


def make_task(objective: float | None) -> TaskFunction:
    """Make the task function of a finished job; the objective None is a failure."""

    def task(config: DictConfig) -> float:
        if objective is None:
            raise CellsFailed("cells of this job failed")
        return objective

    return task
