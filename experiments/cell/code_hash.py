"""The hash of the code that a result depends on, a part of a cell's key.

Comments, docstrings and layout do not count (`pkm.source`), so that explaining the code
makes no stored result stale.
"""

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path

from pkm.methods import load_method
from pkm.source import code_digest, read_source

#: Modules on which every row depends, whatever the method.
COMMON_MODULES = (
    "pkm.metrics",
    "pkm.privacy",
    "pkm.compute",
    "pkm.datasets.scaling",
    "pkm.experiments.fit.execute",
)
#: Imports that are not followed from `pkm.experiments` and `pkm.arrow`. The key has the
#: fingerprint of the data set, and the module of the cell's method is a root. Columns
#: determine no value: a stored row that does not fit them is set aside.
EXCLUDED_IMPORTS = ("pkm.datasets", "pkm.methods", "pkm.schema")


@cache
def code_hash(
    target: str,
    kind: str = "pkm.experiments.fit.central",
) -> str:
    """Hash the code that a result of `target` depends on.

    Parameters
    ----------
    target : str
        Import path of a method's class.
    kind : str, default="pkm.experiments.fit.central"
        Module that fits its kind of cell.

    Returns
    -------
    str
        SHA-256 (hex) over the names and the code of the files of `find_dependencies`.
    """
    module = load_method(target).__module__
    roots = (module, *COMMON_MODULES, kind)
    files = find_dependencies(roots, external_package=module.partition(".")[0])
    listing = [[name, code_digest(path)] for name, path in sorted(files.items())]
    return hashlib.sha256(json.dumps(listing).encode()).hexdigest()


def find_dependencies(
    modules: Iterable[str], external_package: str | None = None
) -> dict[str, Path]:
    """Find the files that some modules import, directly or through others.

    Imports anywhere in a file count, those inside functions as well. A package's
    ``__init__.py`` counts where it is imported by name (``from pkm.privacy import
    Budget``), not as the parent of another module. Some imports are not followed: see
    `EXCLUDED_IMPORTS`.

    Parameters
    ----------
    modules : iterable of str
        Dotted names to start from.
    external_package : str, optional
        A top-level package outside the project, with a method, whose files are followed
        as well.

    Returns
    -------
    dict of str to Path
        Dotted module name to its file.

    Raises
    ------
    ModuleNotFoundError
        If a starting module has no source file.
    """
    files: dict[str, Path] = {}
    roots = set(modules)
    queue = sorted(roots)
    while queue:
        name = queue.pop()
        if name in files:
            continue
        path = find_source_file(name, external_package)
        if path is None:
            # Most likely some module imports a class or function of this name.
            if name in roots:
                raise ModuleNotFoundError(
                    f"no Python source found for module {name!r}",
                    name=name,
                )
            continue
        files[name] = path
        imported = list_imports(path, name)
        makes_rows = name.startswith(("pkm.experiments.", "pkm.arrow"))
        skipped = EXCLUDED_IMPORTS if makes_rows else ()
        queue += [module for module in imported if not module.startswith(skipped)]
    return files


def find_source_file(
    module: str,
    external_package: str | None = None,
) -> Path | None:
    """Return the file of a module of the project or the external package, else None."""
    package, _, name = module.partition(".")
    # The project's root package has only the version and names that it imports from
    # other modules: no result depends on it.
    if package not in ("pkm", external_package) or module == "pkm":
        return None
    spec = find_spec(package)
    if spec is None or not spec.origin:
        return None
    origin = Path(spec.origin)
    if not name:
        return origin
    if not spec.submodule_search_locations:
        return None
    stem = origin.parent.joinpath(*name.split("."))
    candidates = (stem / "__init__.py", stem.with_name(f"{stem.name}.py"))
    return next((path for path in candidates if path.is_file()), None)


@cache
def list_imports(path: Path, module: str) -> tuple[str, ...]:
    """List the dotted names a file imports, relative ones resolved.

    ``from a import b`` yields both ``a`` and ``a.b``, because `b` may be a module.
    Names without a file are dropped later.
    """
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names: list[str] = []
    for statement in read_source(path).imports:
        if statement.base is None:
            names += statement.names
            continue
        base = resolve_name("." * statement.level + statement.base, package)
        names += [base, *(f"{base}.{name}" for name in statement.names)]
    return tuple(dict.fromkeys(names))
