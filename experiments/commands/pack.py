"""Points on the integer grid in a file, for many fits: ``pkm pack``.

    pkm pack data.parquet out.grid bounds=[0,1]
    pkm pack folder/ out.grid bounds=[[0,0],[1,9]]
    pkm pack out.grid

Rows of an NPY file, a Parquet file, a folder or a pattern of Parquet files are clipped
to the public bounds and rounded to the grid once; ``fit("out.grid")`` maps the file to
memory and gives the bits of a fit on the rows. All columns are features. With a grid
file alone its checksum is compared.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pkm.compute.storage.grid_file import SUFFIX, is_grid_file, open_grid, pack
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.config.settings import require
from pkm.experiments.console.console import run_words
from pkm.row_blocks import row_blocks


def bounds_of(text: str | None, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Read bounds, ``[lower,upper]`` or one list of each, for a number of columns.

    Raises
    ------
    ConfigurationError
        If there are none, or they are no finite numbers with lower below upper.

    Examples
    --------
    >>> bounds_of("[0,1]", 2)[1].tolist()
    [1.0, 1.0]
    """
    import yaml

    rule = (
        f"[lower,upper] or two lists of {n_features} numbers, finite, lower below upper"
    )
    require(text is not None, "bounds", text, rule)
    try:
        given = np.asarray(yaml.safe_load(text or ""), np.float64)
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"bounds={text!r} must be {rule}") from error
    require(given.shape in {(2,), (2, n_features)}, "bounds", text, rule)
    bounds = given[:, None] * np.ones(n_features) if given.ndim == 1 else given
    require(
        bool(np.isfinite(bounds).all() and (bounds[0] < bounds[1]).all()),
        "bounds",
        text,
        rule,
    )
    return bounds[0], bounds[1]


def run(words: Sequence[str], options: Mapping[str, str]) -> None:
    """Pack rows, or compare the checksum of a grid file."""
    require(
        len(words) in (1, 2),
        "files",
        " ".join(words),
        "DATA OUT.grid, or OUT.grid alone",
    )
    target = Path(words[-1])
    require(is_grid_file(target), "file", str(target), f"a name that ends in {SUFFIX}")
    if len(words) == 1:
        packed = open_grid(target)
        packed.verify()
        checked = ", checksum ok"
    else:
        rows = row_blocks(words[0])
        assert rows is not None, "a path has rows, or is refused"
        packed = pack(rows, target, *bounds_of(options.get("bounds"), rows.n_columns))
        checked = ""
    header = packed.header
    clipped = ", some clipped to the bounds" if header.outside else ""
    print(
        f"{target}: n={header.n_records} d={header.n_features}, {header.n_null} null "
        f"records{clipped}{checked}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; see the module's text."""
    return run_words("pack", __doc__, "FILE", ("bounds",), run, argv)
