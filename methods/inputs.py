"""Points given in their own units, checked and put on the grid of public bounds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from pkm.compute import Points
from pkm.compute.storage.blocks import Blocks, array_blocks
from pkm.compute.storage.dask_points import DaskPoints, count_chunks
from pkm.compute.storage.grid_file import GridFile, is_grid_file, open_grid
from pkm.compute.storage.persons import count_persons, make_type_error
from pkm.compute.storage.points import RowWeights
from pkm.methods.contract import ClusteringMethod
from pkm.methods.weights import weigh_rows
from pkm.privacy.query import ONE_RECORD_ADJACENCIES
from pkm.row_blocks import (
    ENCODING,
    RowBlocks,
    RowsLike,
    attach_ids,
    find_null,
    is_dask_array,
    is_pandas_frame,
    row_blocks,
    stacked,
    without_mask,
)

FLOAT64_BYTES = 8

#: The person of each row: ids in memory, the name of a column of X, or a dask.array.
Groups = ArrayLike | str | None
#: From the number of rows, and the persons' ids if they are in memory, to the weights
#: of the rows; None where each row is one record.
WeighRows = Callable[[int, ArrayLike | None], RowWeights | None]

GridPoints = Points | Blocks | DaskPoints
Bounds = tuple[np.ndarray, np.ndarray]
"""Lower and upper bound of every feature, each of shape (d,), float64."""


def read_points(
    method: ClusteringMethod,
    X: ArrayLike | RowsLike,
    groups: Groups = None,
    weigh: WeighRows = weigh_rows,
) -> tuple[GridPoints, Bounds]:
    """Check points in their own units; return them on the grid, and its bounds.

    Persons' ids that are no array in memory are read in a pass of their own, and again
    with the rows.
    """
    if is_grid_file(X):
        file = open_grid(cast("str | GridFile", X))
        if groups is not None or weigh(file.n_rows, None) is not None:
            raise ValueError(
                f"groups and sample_weight are not supported for {file.path}, whose "
                "null records are left out: give the array or the Parquet file itself"
            )
        if method.missing:
            raise ValueError(
                f"missing={method.missing!r} is not supported for {file.path}, whose "
                "rows have all entries: give the array or the Parquet file itself"
            )
        return _read_grid(method, file)
    _refuse_feature(X, groups)
    column = groups if isinstance(groups, str) else None
    rows = row_blocks(X, column)
    if rows is None:
        X, groups = _split_off_ids(X, groups)
        return _quantize(method, as_matrix(X), groups, weigh)
    if not method.supports_chunks:
        if column is not None:
            raise ValueError(
                f"groups={column!r} is read in blocks, and {type(method).__name__} "
                "needs all points at once: give arrays of the rows and of their ids"
            )
        return _quantize(
            method, as_matrix(_materialize(method, X, rows)), groups, weigh
        )
    bounds = _check_rows(method, rows)
    options = {
        "keep_remainders": method.needs_remainders,
        "keep_missing": method.missing is not None,
    }
    persons = None
    if is_dask_array(X):
        points = DaskPoints.quantize(X, *bounds, **options)
        if is_dask_array(groups):
            points = replace(points, ids=_divide_ids(groups, points.sizes))
            persons = count_chunks(points.ids, points.sizes)
    else:
        is_mapped = isinstance(groups, np.memmap)
        if is_mapped:
            rows = attach_ids(rows, groups)
        points = Blocks.quantize(rows, *bounds, **options)
        if column is not None or is_mapped:
            name = "groups" if column is None else f"groups={column!r}"
            persons = count_persons(rows.ids(), name)
    in_memory = None if persons else cast("ArrayLike | None", groups)
    weights = weigh(rows.n_rows, in_memory)
    if persons:
        weights = replace(persons, row_units=weights.units if weights else None)
    return replace(points, weights=weights), bounds


def _refuse_feature(X: object, groups: Groups) -> None:
    """Refuse persons' ids that are a column of X, and so a feature as well."""
    name = getattr(groups, "name", None)
    if name in feature_names(X):
        raise ValueError(
            f"groups is the column {name!r} of X, which is then a feature, too: drop "
            f"it from X, or give groups={name!r}"
        )


def _split_off_ids(
    X: ArrayLike | RowsLike, groups: Groups
) -> tuple[ArrayLike | RowsLike, ArrayLike | None]:
    """Split the column of persons off a pandas frame, if ``groups`` is its name."""
    if not isinstance(groups, str):
        return X, groups
    frame = cast("Any", X)
    if not (is_pandas_frame(X) and groups in frame.columns):
        listed = ", ".join(feature_names(X))
        known = f"which has {listed}" if listed else "and X has no names"
        raise ValueError(
            f"groups={groups!r} should name a column of X, {known}: name one, or give "
            "the ids of all rows"
        )
    return frame.drop(columns=groups), frame[groups]


def _divide_ids(groups: Any, sizes: Sequence[int]) -> list[Any]:
    """Divide a dask.array of ids into delayed chunks, one for each chunk of rows."""
    if groups.chunks != (tuple(sizes),):
        raise ValueError(
            f"groups of shape {groups.shape} in {groups.npartitions} chunks must have "
            f"the chunks of the rows, {sum(sizes)} in {len(sizes)}: give "
            "groups.rechunk((X.chunks[0],))"
        )
    if groups.dtype.kind == "f":
        raise make_type_error("groups", groups.dtype.name)
    return groups.to_delayed().ravel().tolist()


def resolve_bounds(method: ClusteringMethod, d: int) -> Bounds | None:
    """Bounds of every feature as a method has them; None where it has none.

    Those that are to be found privately are infinite.

    Raises
    ------
    ValueError
        If a private method has none, or they are no intervals of d features.
    """
    if method.bounds is None:
        if method.claim.private:
            raise ValueError(
                "bounds=None: a private fit needs the public domain of the data, "
                "bounds=(lower, upper) for all features or an array of shape "
                f"(2, {d}); take it from what is known without the data, not from "
                "their extremes"
            )
        return None
    declared = _read_bounds(method.bounds, d)
    lower, upper = bounds = np.empty((2, d))
    bounds.T[:] = declared.T
    is_open = np.isneginf(lower) & np.isposinf(upper) & method.can_find_bounds
    is_finite = np.isfinite(bounds).all(axis=0)
    if not ((is_finite | is_open).all() and (lower < upper).all()):
        raise ValueError(
            f"{_show_bounds(method.bounds)} must be finite with lower < upper in "
            "every feature: write all lower bounds, then all upper bounds; -inf and "
            "inf are for private methods under zero-out adjacency with clip=True"
        )
    return lower, upper


def _read_bounds(bounds: Any, d: int) -> np.ndarray:
    """Convert bounds to an array (2,) or (2, d), float64, or refuse them."""
    try:
        array = np.asarray(bounds)
        # Texts can be converted, but may be in any notation.
        is_number = array.dtype.kind in "biufO"
        declared = array.astype(np.float64) if is_number else np.empty(0)
    except (TypeError, ValueError, OverflowError):
        declared = np.empty(0)

    # For two features pairs by feature have the same shape as lower and upper bounds.
    are_tuples = isinstance(bounds, list) and any(
        [isinstance(item, tuple) for item in bounds]
    )
    if declared.shape == (d, 2) and (are_tuples or d != 2):
        lower, upper = declared.T
        if (lower < upper).all():
            raise ValueError(
                f"{_show_bounds(bounds)} are pairs by feature, and must be (lower, "
                f"upper): write ({lower.tolist()}, {upper.tolist()})"
            )
    if isinstance(bounds, tuple) and _may_be_pairs(bounds, declared):
        lower, upper = declared.tolist()
        first, second = declared.T.tolist()
        raise ValueError(
            f"{_show_bounds(bounds)} can be read in two ways, and must be lists: write "
            f"({lower}, {upper}) for lower and upper bounds, ({first}, {second}) for "
            "pairs by feature"
        )
    if are_tuples or declared.shape not in {(2,), (2, d)}:
        raise ValueError(
            f"{_show_bounds(bounds)} must be (lower, upper): two numbers for all "
            f"features, or two lists of {d} numbers, one for each feature"
        )
    return declared


def _may_be_pairs(bounds: Sequence[Any], declared: np.ndarray) -> bool:
    """Whether two tuples may be pairs by feature, or lower and upper bounds."""
    if declared.shape != (2, 2):
        return False
    are_tuples = all(isinstance(item, tuple) for item in bounds)
    ascends = (np.diff(declared, axis=0) > 0).all() and (np.diff(declared) > 0).all()
    return are_tuples and bool(ascends)


def _show_bounds(bounds: object) -> str:
    """Bounds for a message of one line."""
    return "bounds=" + " ".join(repr(bounds).split())


def _quantize(
    method: ClusteringMethod,
    X: np.ndarray,
    groups: ArrayLike | None,
    weigh: WeighRows,
) -> tuple[Points | Blocks, Bounds]:
    """Put points (n, d) in memory on the grid; return them and its bounds."""
    claim = method.claim
    n, d = X.shape
    bounds = resolve_bounds(method, d)
    weights = weigh(n, groups)
    keep_missing = method.missing is not None
    if bounds is None:
        refuse_null(int(find_null(X, keep_missing).sum()))
        bounds = _widen(np.fmin.reduce(X), np.fmax.reduce(X))
    if claim.private and claim.adjacency not in ONE_RECORD_ADJACENCIES:
        X = _replace_null(X, *bounds)
    can_zoom = claim.private and method.clip
    blocks = Blocks.quantize(array_blocks(X), *bounds, keep_missing=keep_missing)
    blocks = replace(blocks, in_memory=True, weights=weights)
    is_open = bool(np.isinf(bounds).any())
    if is_open or (can_zoom and method.zoom_plan(blocks.n_records, d) is not None):
        # Points of the domain that is found are kept in memory. Until then every pass
        # quantizes the rows.
        return blocks, bounds
    points, outside = Points.quantize(
        X,
        *bounds,
        keep_remainders=method.needs_remainders,
        keep_missing=keep_missing,
        weights=weights,
    )
    if not claim.private:
        refuse_null(points.n_null)
    _refuse_outside(method, outside)
    return points, bounds


def _check_rows(method: ClusteringMethod, rows: RowBlocks) -> Bounds:
    """Return the bounds of rows that are read in blocks; check the rows if needed.

    A private fit that clips makes no pass of its own; others check the rows in one.
    """
    is_private = method.claim.private
    bounds = resolve_bounds(method, rows.n_columns)
    if not is_private or not method.clip:
        keep_missing = method.missing is not None
        n_null, lowest, highest = _find_extremes(rows, keep_missing)
        if not is_private:
            refuse_null(n_null)
        bounds = bounds or _widen(lowest, highest)
        if n_null < rows.n_rows:
            _, outside = Points.quantize(np.array([lowest, highest]), *bounds)
            _refuse_outside(method, outside)
    assert bounds is not None, "a private fit has declared bounds"
    return bounds


def _read_grid(
    method: ClusteringMethod, file: GridFile
) -> tuple[Points | Blocks, Bounds]:
    """Read a grid file in blocks, or map it where a method needs all points at once."""
    lower, upper = bounds = file.bounds
    packed = f"{file.path} was packed with, {lower.tolist()} to {upper.tolist()}"
    declared = bounds
    if method.bounds is not None:
        declared = resolve_bounds(method, file.n_columns) or bounds
    if not np.array_equal(declared, bounds):
        raise ValueError(
            f"{_show_bounds(method.bounds)} differ from those that {packed}: leave "
            "them out, or pack it again"
        )
    n_null = file.header.n_null
    if not method.claim.private:
        refuse_null(n_null)
    if file.header.outside and not method.clip:
        raise ValueError(
            f"points lie outside the bounds that {packed}: pack it again with wider "
            "bounds or set clip=True"
        )
    if n_null and method.claim.adjacency not in ONE_RECORD_ADJACENCIES:
        # The file has no coordinates of null records: each is the middle of the bounds.
        rows = file.to_points().rows
        middles = np.zeros((n_null, file.n_columns), rows.dtype)
        return Points.from_grid(np.concatenate([rows, middles])), bounds
    return file.to_blocks() if method.supports_chunks else file.to_points(), bounds


def _materialize(
    method: ClusteringMethod,
    X: ArrayLike | RowsLike,
    rows: RowBlocks,
) -> np.ndarray:
    """Return the array (n, d) of rows in memory, or mapped to it; refuse others."""
    if isinstance(X, np.ndarray):
        return X
    if hasattr(X, "__arrow_c_stream__"):
        return stacked(rows)
    raise ValueError(
        f"X={X!r}: {type(method).__name__} needs all points at once, and cannot read "
        "them in blocks: give it an array, write a grid file with pkm pack and give it "
        "that, or take a method that can (supports_chunks), such as FastLloyd"
    )


def _refuse_outside(method: ClusteringMethod, outside: bool) -> None:
    if outside and not method.clip:
        raise ValueError(
            f"points lie outside {_show_bounds(method.bounds)}; widen bounds or set "
            "clip=True"
        )


def count_null(rows: np.ndarray) -> int:
    """Count the rows that are null records: those with NaN or an infinite value."""
    return int(find_null(rows).sum())


def refuse_null(n_null: int, name: str = "X") -> None:
    """Refuse null records, which no center is nearest to."""
    if n_null:
        raise ValueError(
            f"{name} has {n_null} rows with NaN or infinite values; remove or impute "
            "them"
        )


def _find_extremes(
    rows: RowBlocks, keep_missing: bool
) -> tuple[int, np.ndarray, np.ndarray]:
    """Count the null records; find the extremes (d,) of the other rows."""
    n_null = 0
    lowest = np.full(rows.n_columns, np.nan)
    highest = np.full(rows.n_columns, np.nan)
    for block in rows.blocks():
        null = find_null(block, keep_missing)
        kept = block[~null] if null.any() else block
        n_null += len(block) - len(kept)
        if len(kept):
            lowest = np.fmin(lowest, np.fmin.reduce(kept))
            highest = np.fmax(highest, np.fmax.reduce(kept))
    return n_null, lowest, highest


def _widen(lower: np.ndarray, upper: np.ndarray) -> Bounds:
    """Make bounds of the extremes of every feature; a constant one gets some width.

    A feature without a value is taken to be 0.
    """
    lower = np.nan_to_num(lower.astype(np.float64))
    upper = np.nan_to_num(upper.astype(np.float64))
    margin = np.where(lower == upper, np.maximum(np.abs(lower), 1.0), 0.0)
    return lower - margin, upper + margin


def _replace_null(
    X: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
) -> np.ndarray:
    """Replace NaN by the middle of the bounds, and infinite values by the bounds."""
    if np.isfinite(X).all():
        return X
    X = np.where(np.isnan(X), upper / 2 + lower / 2, X)
    return np.clip(X, lower, upper)


def feature_names(X: object) -> list[str]:
    """Names of the columns of a frame; none where not all are texts, or X has none."""
    names: list = list(getattr(X, "columns", ()))
    if not all([isinstance(name, str) for name in names]):
        return []
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        listed = ", ".join(map(repr, repeated))
        raise ValueError(
            f"X has several columns named {listed}: rename or remove some of them"
        )
    return names


def as_matrix(X: ArrayLike | RowsLike) -> np.ndarray:
    """Convert rows in memory to an array (n, d) of numbers, or refuse them."""
    if issparse(X):
        raise ValueError(
            "X is sparse, and the methods take dense points: give X.toarray()"
        )
    names = feature_names(X)
    matrix = _as_array(X)
    if matrix.ndim == 2 and 0 in matrix.shape:
        n, d = matrix.shape
        count = f"{n} sample(s)" if n == 0 else f"{d} feature(s)"
        raise ValueError(
            f"X has {count} (shape={matrix.shape}) while a minimum of 1 is required."
        )
    if matrix.ndim != 2:
        raise ValueError(
            f"X must have shape (n, d) with n, d >= 1, got {matrix.shape}. Reshape "
            "your data: X.reshape(-1, 1) is one feature, X.reshape(1, -1) one sample"
        )
    return _as_numbers(matrix, names or list(range(matrix.shape[1])))


def _as_array(X: ArrayLike | RowsLike) -> np.ndarray:
    """Convert rows to an array; frames of numbers to float64."""
    if isinstance(X, np.ndarray):
        return np.asarray(without_mask(X))
    if is_pandas_frame(X):
        frame = cast("Any", X)
        if {dtype.kind for dtype in frame.dtypes} <= set("iufb"):
            return frame.to_numpy(dtype=np.float64, na_value=np.nan)
        return frame.to_numpy(dtype=object)
    try:
        return np.asarray(X)
    except ValueError:
        raise ValueError("X must have rows of equal length, (n, d)") from None


def _as_numbers(matrix: np.ndarray, names: Sequence[str | int]) -> np.ndarray:
    """Convert a matrix to real numbers; messages show none of its private values."""
    kind = matrix.dtype.kind
    if kind in "iuf" and matrix.itemsize <= FLOAT64_BYTES:
        # It is converted block by block when it is quantized, without a copy.
        return matrix
    if kind == "c":
        raise ValueError("Complex data not supported: X must hold real numbers")
    if kind in "bf":
        with np.errstate(over="ignore"):
            return matrix.astype(np.float64)
    if kind != "O":
        raise ValueError(f"X must hold numbers, got type {matrix.dtype}: {ENCODING}")
    columns = []
    for name, values in zip(names, matrix.T, strict=True):
        try:
            columns.append([_as_float(value) for value in values])
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"X must hold numbers, in column {name!r} {error}: {ENCODING}"
            ) from None
    return np.array(columns).T


def _as_float(value: Any) -> float:
    """Convert a number to a float; None, pandas.NA and masked values are NaN."""
    is_null = type(value).__name__ in ("NAType", "NaTType")
    if is_null or value is None or value is np.ma.masked:
        return math.nan
    if isinstance(value, Decimal) and value.is_nan():
        return math.nan  # a signaling NaN has no float
    # These can be converted, but the result depends on their format or unit.
    if isinstance(value, str | bytes | np.datetime64 | np.timedelta64):
        raise ValueError(f"a value is of type {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
