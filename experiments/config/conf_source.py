"""Source of Hydra's configurations: the catalogue and the registry of data sets."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from pkm.experiments.config.groups import GROUPS, choices, is_choice, read_choice


class ConfSource(ConfigSource):
    """The groups of `conf/`, under the scheme ``conf://``.

    Unlike Hydra's source for files, it has each paper's sweeps under the paper's name,
    each data set under its name, and with each method the defaults of its class.
    """

    @staticmethod
    def scheme() -> str:
        """Return the prefix of the addresses of this source."""
        return "conf"

    def available(self) -> bool:
        """Tell whether the source can be read."""
        return True

    def is_group(self, config_path: str) -> bool:
        """Tell whether a path is a group."""
        return config_path in ("", *GROUPS)

    def is_config(self, config_path: str) -> bool:
        """Tell whether a path is a choice of a group."""
        group, _, name = config_path.partition("/")
        return group in GROUPS and is_choice(group, name)

    def list(
        self,
        config_path: str,
        results_filter: ObjectType | None,
    ) -> list[str]:
        """List the groups, or the choices of a group."""
        if config_path == "":
            return [] if results_filter == ObjectType.CONFIG else sorted(GROUPS)
        is_group = config_path in GROUPS and results_filter != ObjectType.GROUP
        return choices(config_path) if is_group else []

    def load_config(self, config_path: str) -> ConfigResult:
        """Read a choice of a group."""
        group, _, name = config_path.partition("/")
        config = OmegaConf.create(read_choice(group, name))
        header: dict[str, str | None] = {"package": None}
        return ConfigResult(self.provider, self.full_path(), config, header)


class ConfSearchPath(SearchPathPlugin):
    """Lets Hydra look for configurations in `ConfSource`."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the source."""
        search_path.append("pkm", "conf://")
