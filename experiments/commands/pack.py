"""Points on the integer grid in a file, for many fits: ``pkm pack``.

    pkm pack data.parquet out.grid bounds=[0,1]
    pkm pack folder/ out.grid bounds=[[0,0],[1,9]]
    pkm pack out.grid

Rows of an NPY file, a Parquet file, a folder or a pattern of Parquet files are clipped
to the public bounds and rounded to the grid once, and so are those of a text file, as
``pkm run`` reads it. ``fit("out.grid")`` maps the file to memory and gives the bits of
a fit on the rows. All columns are features. With a grid file alone its checksum is
compared.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pkm.compute.storage.blocks import array_blocks
from pkm.compute.storage.grid_file import SUFFIX, is_grid_file, open_grid, pack
from pkm.datasets import load
from pkm.datasets.dataset import check_domain
from pkm.datasets.user_files import TEXT
from pkm.experiments.config.errors import ConfigurationError
from pkm.experiments.config.settings import require
from pkm.experiments.console.console import make_main
from pkm.row_blocks import RowBlocks, row_blocks
from pkm.yaml_files import read_value


def read_bounds(text: str | None, n_features: int) -> np.ndarray:
    """Read bounds, ``[lower,upper]`` or one list of each, for a number of columns.

    Raises
    ------
    ConfigurationError
        If there are none, or they are no finite numbers with lower below upper.

    Examples
    --------
    >>> read_bounds("[0,1]", 2).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    try:
        return check_domain(read_value(text or ""), n_features, "bounds")
    except ValueError as error:
        raise ConfigurationError(
            f"bounds={text!r} is not allowed: bounds must be [lower,upper] "
            f"or two lists of {n_features} numbers, finite, lower below upper"
        ) from error


def open_rows(path: str) -> RowBlocks:
    """Open the rows of a file; a text is read at once, as ``pkm run`` reads it."""
    if path.lower().endswith(TEXT):
        dataset = load(path=path)
        print(f"{path}: {dataset.summary}")
        return array_blocks(dataset.points)
    rows = row_blocks(path)
    assert rows is not None, "a path has rows, or is refused"
    return rows


def run(names: Sequence[str], options: Mapping[str, str]) -> None:
    """Pack rows, or compare the checksum of a grid file."""
    rule = "DATA OUT.grid, or OUT.grid alone"
    require(len(names) in (1, 2), "files", " ".join(names), rule)
    target = Path(names[-1])
    require(is_grid_file(target), "file", str(target), f"a name that ends in {SUFFIX}")
    if len(names) == 1:
        packed = open_grid(target)
        for _ in packed.blocks():  # a pass compares the checksum
            pass
        checked = ", checksum ok"
    else:
        rows = open_rows(names[0])
        bounds = read_bounds(options.get("bounds"), rows.n_columns)
        packed = pack(rows, target, *bounds)
        checked = ""
    header = packed.header
    clipped = ", some clipped to the bounds" if header.outside else ""
    null = f"{header.n_null} null records (number not protected)"
    size = f"n={header.n_records} d={header.n_features}"
    print(f"{target}: {size}, {null}{clipped}{checked}")


main = make_main("pack", __doc__, "FILE", ("bounds",), run)
