"""``hydra/launcher=cells``, in the package where Hydra looks for launchers.

Every Hydra application of the environment imports this module, so it imports Hydra
alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class CellsLauncherOptions:
    """Configuration of `CellsLauncher`, without any settings."""

    _target_: str = "hydra_plugins.pkm_cells.CellsLauncher"


ConfigStore.instance().store(
    group="hydra/launcher",
    name="cells",
    node=CellsLauncherOptions,
    provider="pkm_cells",
)


class CellsLauncher(Launcher):
    """Runs the jobs of a ``pkm run -m`` as one batch of cells."""

    def setup(
        self,
        *,
        hydra_context: HydraContext,
        task_function: TaskFunction,
        config: DictConfig,
    ) -> None:
        """Take what Hydra gives to a launcher."""
        self.hydra_context = hydra_context
        self.config = config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> list[JobReturn]:
        """Run jobs; one answer each."""
        from pkm.experiments.commands.launcher import launch

        return launch(self.hydra_context, self.config, job_overrides, initial_job_idx)
