"""Where configurations are: ``conf/``, the user's folders, installed packages."""

import copy
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pkm.names import suggestion

if TYPE_CHECKING:
    import yaml

#: The folder of this package.
CONF = Path(__file__).resolve().with_name("conf")
#: Environment variable with the user's folders, which worker processes inherit.
CONFIG_DIRS = "PKM_CONFIG_DIRS"
#: Groups of entry points. One has methods of installed packages. The other has packages
#: whose folders are in the search path.
ENTRY_POINTS = "pkm.methods"
FOLDERS = "pkm.conf"
#: The file that makes a folder a paper, and those that it may have.
SWEEPS = "sweeps.yaml"
PAPER_FILES = (SWEEPS, "figures.yaml", "claims.yaml")


class CatalogueError(ValueError):
    """A folder of configurations, or a name in it, is not valid."""


@dataclass(frozen=True)
class Catalogue:
    """Configurations by group and name, from some folders and entry points.

    A group holds the choices for one setting, such as ``method``. A choice is a file
    ``GROUP/NAME.yaml`` of one folder; a paper is a folder ``paper/NAME``. A method may
    also be declared by an installed package, or be given as ``package.module:Class``. A
    name has one meaning: two folders or packages may not share it.

    Parameters
    ----------
    search_path : tuple of Path, default=(CONF,)
        Folders, the package's own first.

    Raises
    ------
    CatalogueError
        If a folder is missing, a paper has no sweeps, or a name occurs twice.

    Examples
    --------
    >>> catalogue = Catalogue()
    >>> catalogue.choices("profile")
    ['paper', 'quick', 'smoke']
    >>> catalogue.read("method", "package.module:Class")
    {'name': 'class', '_target_': 'package.module.Class'}
    """

    search_path: tuple[Path, ...] = (CONF,)

    def __post_init__(self) -> None:
        for folder in self.search_path:
            _check_folder(folder)
        for group in self.groups():
            for name, places in self._find_places(group).items():
                if len(places) > 1:
                    raise CatalogueError(
                        f"{group}={name} is declared twice: {', '.join(places)}; "
                        "rename one"
                    )

    def groups(self) -> list[str]:
        """List the groups: folders of the search path."""
        folders = (path for root in self.search_path for path in root.iterdir())
        return sorted({path.name for path in folders if path.is_dir()})

    @cache  # noqa: B019 (one catalogue lives as long as the process)
    def choices(self, group: str) -> list[str]:
        """List the names of a group."""
        return sorted(self._find_places(group))

    def folder(self, paper: str) -> Path:
        """Return the folder of a paper.

        Raises
        ------
        ValueError
            If there is no such paper; the message has the nearest one.
        """
        for root in self.search_path:
            if (root / "paper" / paper / SWEEPS).is_file():
                return root / "paper" / paper
        known = suggestion(paper, self.choices("paper"))
        raise CatalogueError(f"paper={paper!r} is unknown{known}")

    def read(self, group: str, name: str) -> dict[str, Any]:
        """Read a choice of a group, with the files that its ``defaults`` name.

        Raises
        ------
        ValueError
            If there is no such choice, its file is no YAML mapping, or ``defaults``
            lead back to it.
        """
        return self._read(group, name, ())

    def _read(self, group: str, name: str, above: tuple[str, ...]) -> dict[str, Any]:
        """Read a choice; ``above`` names the files whose defaults led here."""
        if name in above:
            raise CatalogueError(
                f"{group}={name}: its defaults lead back to itself; remove "
                f"{above[-1]}'s defaults entry {name!r}"
            )
        if group == "paper":
            return read_mapping(self.folder(name) / SWEEPS)
        if group == "method" and ":" in name:
            module, _, qualified_name = name.partition(":")
            short_name = qualified_name.rpartition(".")[2].lower()
            return {"name": short_name, "_target_": f"{module}.{qualified_name}"}
        for root in self.search_path:
            path = root / group / f"{name}.yaml"
            if path.is_file():
                return self._merge_defaults(group, read_mapping(path), (*above, name))
        if group == "method" and name in declared_methods():
            target = declared_methods()[name].value.replace(":", ".")
            return {"name": name, "_target_": target}
        known = suggestion(name, self.choices(group))
        raise CatalogueError(f"{group}={name!r} is unknown{known}")

    def _merge_defaults(
        self, group: str, entry: Mapping, above: tuple[str, ...]
    ) -> dict[str, Any]:
        """Merge an entry over the entries that its ``defaults`` name."""
        bases = [base for base in entry.get("defaults", ()) if base != "_self_"]
        merged: dict[str, Any] = {}
        for base in bases:
            merged |= self._read(group, base, above)
        return merged | {
            key: value for key, value in entry.items() if key != "defaults"
        }

    def _find_places(self, group: str) -> dict[str, list[str]]:
        """Find the files and entry points that declare each name of a group."""
        places = defaultdict(list)
        pattern = f"*/{SWEEPS}" if group == "paper" else "*.yaml"
        for root in self.search_path:
            for path in (root / group).glob(pattern):
                name = path.parent.name if group == "paper" else path.stem
                places[name].append(str(path))
        if group == "method":
            for name, entry in declared_methods().items():
                places[name].append(f"entry point {entry.value}")
        return places


def current() -> Catalogue:
    """Return the catalogue of ``conf/``, installed packages and the environment."""
    return _catalogue(os.environ.get(CONFIG_DIRS, ""))


@contextmanager
def add_config_dirs(folders: Sequence[str]) -> Iterator[Catalogue]:
    """Add folders to the search path in a block, also for processes it starts.

    Raises
    ------
    CatalogueError
        If a folder is not valid.
    """
    before = os.environ.get(CONFIG_DIRS, "")
    paths = [str(Path(folder).resolve()) for folder in folders]
    os.environ[CONFIG_DIRS] = os.pathsep.join([*filter(None, [before]), *paths])
    try:
        yield current()
    finally:
        os.environ[CONFIG_DIRS] = before


@cache
def _catalogue(folders: str) -> Catalogue:
    paths = [Path(folder).resolve() for folder in folders.split(os.pathsep) if folder]
    return Catalogue((CONF, *dict.fromkeys([*declared_folders(), *paths])))


@cache
def declared_folders() -> tuple[Path, ...]:
    """Return the folders of the packages that installed packages declare.

    Raises
    ------
    CatalogueError
        If such a package is missing.
    """
    folders = []
    for entry in entry_points(group=FOLDERS):
        spec = None
        with suppress(ImportError, ValueError):
            spec = find_spec(entry.value)
        if spec is None or not spec.submodule_search_locations:
            raise CatalogueError(
                f"entry point {entry.name} of {FOLDERS}: {entry.value!r} must be a "
                "package with a folder; install it again, or uninstall it"
            )
        folders.append(Path(*spec.submodule_search_locations[:1]).resolve())
    return tuple(folders)


@cache
def declared_methods() -> dict[str, EntryPoint]:
    """Return the methods that installed packages declare, by name.

    Raises
    ------
    CatalogueError
        If two packages declare different methods under one name.
    """
    declared: dict[str, EntryPoint] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        other = declared.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise CatalogueError(
                f"two installed packages declare the method {entry.name}: "
                f"{other.value} and {entry.value}; uninstall one"
            )
    return declared


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping.

    Raises
    ------
    CatalogueError
        If it holds none; the message names the file, and the line if there is one.
    """
    import yaml  # optional: a method runs without it

    try:
        content = copy.deepcopy(_read_once(path, path.stat().st_mtime_ns))
    except yaml.MarkedYAMLError as error:
        raise CatalogueError(describe_yaml_error(error)) from error
    if not isinstance(content, dict) or not content:
        raise CatalogueError(f"{path}:1: the file must hold a mapping, key: value")
    return content


@cache
def _read_once(path: Path, modified: int) -> Any:
    """Read a file once until it is modified: Hydra reads a paper three times."""
    from pkm.yaml_files import read_file

    return read_file(path)


def describe_yaml_error(error: "yaml.MarkedYAMLError") -> str:
    """Describe an error of YAML with its file and line."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return str(error.problem)
    return f"{mark.name}:{mark.line + 1}: {error.problem}"


def _check_folder(root: Path) -> None:
    """Refuse a folder that is missing, or has a paper without sweeps."""
    if not root.is_dir():
        raise CatalogueError(f"config-dir={str(root)!r} must be a folder that exists")
    for folder in (root / "paper").glob("*/"):
        if not (folder / SWEEPS).is_file():
            known = ", ".join(PAPER_FILES)
            raise CatalogueError(
                f"{folder}: {SWEEPS} is missing; the files of a paper are {known}"
            )
