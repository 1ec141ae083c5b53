"""Grid files: the points of a box to the bit, found damaged where they are."""

import json
import os
from unittest import mock

import numpy as np
import pytest
from grid_rows import BOUNDS, matrix

from pkm import row_blocks as reading
from pkm.compute import SCALE, Points
from pkm.compute.storage import grid_file as module
from pkm.compute.storage.grid_file import open_grid, pack
from pkm.methods import DPM, FastLloyd, KaplanStemmer, KMeansPlusPlus, Lloyd
from pkm.methods.planned import PlannedMethod
from pkm.privacy.query import Query
from pkm.row_blocks import ChangedRows, RowBlocks


def blocks_of(X):
    return RowBlocks(*X.shape, lambda: iter(np.array_split(X, 7)))


@pytest.fixture
def packed(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_VALUES", 60)
    monkeypatch.setattr(reading, "BLOCK_VALUES", 60)
    return pack(blocks_of(matrix()), tmp_path / "x.grid", *BOUNDS)


def test_mapped_points_are_those_of_the_box(packed):
    expected, outside = Points.quantize(matrix(), *BOUNDS)
    points = packed.to_points()
    assert points == expected
    assert (points.n_null, points.n_records) == (2, 300)
    np.testing.assert_array_equal(points.squared_norms, expected.squared_norms)
    assert packed.header.outside is outside is True
    assert [bound.tolist() for bound in packed.bounds] == [bound.tolist() for bound in BOUNDS]
    assert packed.is_verified


def test_blocks_are_those_of_the_box(packed):
    expected, _ = Points.quantize(matrix(), *BOUNDS)
    blocks = packed.to_blocks()
    assert (blocks.n_records, blocks.n_features, blocks.has_null) == (300, 3, True)

    def sums(points):
        remainders = points.remainders.astype(np.int64)
        return points.rows.astype(np.int64).sum(axis=0), remainders.sum(axis=0)

    for total, part in zip(blocks.map_reduce(sums), sums(expected), strict=True):
        np.testing.assert_array_equal(total, part)


def test_rows_in_units_are_the_clipped_ones(packed):
    X = matrix()
    expected = np.clip(X[np.isfinite(X).all(axis=1)], *BOUNDS)
    found = reading.stacked(packed.to_data_units())
    # Half of a unit of remainders, or one at its end: 2^-32 half-widths.
    np.testing.assert_allclose(found, expected, rtol=0, atol=5 * 2.0**-32)


def released(model, X):
    model.fit(X)
    return model.cluster_centers_.tolist(), model.ledger_ and model.ledger_.charges


@pytest.mark.slow
@pytest.mark.parametrize("zoom", [None, 0.2])
@pytest.mark.parametrize("method", [FastLloyd, DPM, KaplanStemmer])
def test_fits_on_grid_files_give_the_bits_of_memory(packed, method, zoom):
    model = method(2, epsilon=8.0, bounds=np.array(BOUNDS), random_state=1, zoom=zoom)
    expected = released(model, matrix())
    assert released(model, packed.path) == expected
    model.set_params(bounds=None)
    assert released(model, packed) == expected


def test_methods_without_privacy_take_grid_files(tmp_path):
    X = np.random.default_rng(1).uniform(-1, 1, (200, 2))
    path = tmp_path / "x.grid"
    pack(blocks_of(X), path, -np.ones(2), np.ones(2))
    for method in (Lloyd, KMeansPlusPlus):
        model = method(3, bounds=(-1, 1), random_state=1)
        assert released(model, path) == released(model, X)
        np.testing.assert_array_equal(model.predict(path), model.predict(X))


def test_what_was_packed_decides_bounds_clipping_and_null_records(packed):
    with pytest.raises(ValueError, match=r"bounds=\(0, 9\) differ from those .* packed with"):
        FastLloyd(2, bounds=(0, 9)).fit(packed.path)
    rule = r"points lie outside the bounds that .* packed with, \[-1.0, -2.0, 0.5\] to .* wider"
    with pytest.raises(ValueError, match=rule):
        FastLloyd(2, clip=False).fit(packed.path)
    with pytest.raises(ValueError, match="X has 2 rows with NaN"):
        Lloyd(2).fit(packed.path)


def test_labels_of_a_file_that_leaves_out_records_are_refused(packed):
    model = FastLloyd(2, random_state=0).fit(packed)
    with pytest.raises(ValueError, match=r"leaves out 2 null records.*rows of the source file"):
        model.predict(packed.path)


def test_points_off_the_grid_are_refused(packed):
    with open(packed.path, "r+b") as stream:
        stream.seek(packed.begin)
        stream.write(np.float32(0.5).tobytes())
    with pytest.raises(ValueError, match="points off the grid; pack it again"):
        FastLloyd(2, random_state=0).fit(packed.path)
    with pytest.raises(ValueError, match="points off the grid; pack it again"):
        open_grid(packed.path).to_points()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lower": [-1.0, float("nan"), 0.5]}, "damaged header, lower: pack it again"),
        ({"lower": [-1.0, 3.0, 0.5]}, "damaged header, lower"),
        ({"upper": [1.0, 10**400, 9.0]}, "damaged header, upper"),
        ({"upper": [1.0, 3.0]}, "damaged header, upper"),
        ({"upper": None}, "damaged header, upper"),
        ({"n_records": 300.0}, "damaged header, n_records"),
        ({"n_null": -1}, "damaged header, n_null"),
        ({"n_null": 300}, "damaged header, n_null"),
        ({"n_features": 0}, "damaged header, n_features"),
        ({"remainders_at": 0}, "damaged header, remainders_at"),
        ({"outside": "no"}, "damaged header, outside"),
        ({"order": "C"}, "unknown or missing order: pack it again"),
        (None, "damaged header: pack it again"),
    ],
)
def test_headers_that_are_wrong_are_refused(packed, changes, message):
    begin = len(module.MAGIC) + module.LENGTH_BYTES
    with open(packed.path, "r+b") as stream:
        stream.seek(begin)
        text = stream.read(packed.begin - begin)
        changed = b"{" if changes is None else json.dumps(json.loads(text) | changes).encode()
        stream.seek(begin)
        stream.write(changed.ljust(len(text)))
    with pytest.raises(ValueError, match=message):
        open_grid(packed.path)


def test_a_file_that_changes_while_it_is_mapped_is_noticed(packed, monkeypatch):
    def touched(function):
        def changing(*arguments):
            os.utime(packed.path, ns=(0, 0))
            return function(*arguments)

        return changing

    with monkeypatch.context() as patch:
        patch.setattr(module, "square_norms", touched(module.square_norms))
        with pytest.raises(ChangedRows, match="has changed since it was opened"):
            packed.to_points()
    monkeypatch.setattr(PlannedMethod, "find_domain", touched(PlannedMethod.find_domain))
    model = KaplanStemmer(2, epsilon=8.0, random_state=1)
    for release in (model.fit, model.coreset):
        os.utime(packed.path, ns=(9, 9))
        with pytest.raises(ChangedRows, match="has changed since it was opened"):
            release(packed.path)


def test_the_owner_alone_can_read_a_packed_file(packed, tmp_path):
    assert [path.name for path in tmp_path.iterdir()] == ["x.grid"]
    assert os.stat(packed.path).st_mode & 0o777 == 0o600


def test_damaged_files_are_refused(packed, tmp_path):
    content = bytearray((tmp_path / "x.grid").read_bytes())

    def damaged(change):
        changed = bytearray(content)
        change(changed)
        (tmp_path / "y.grid").write_bytes(changed)
        return tmp_path / "y.grid"

    def first_coordinate(value):
        coordinate = slice(packed.begin, packed.begin + 4)
        return lambda changed: changed.__setitem__(coordinate, np.float32(value).tobytes())

    def cut(changed):
        del changed[-1:]

    # The last one is seen in the first pass, before an answer is complete.
    for value, message in [
        (2 * SCALE, "points outside the domain; pack it again"),
        (0.5, "points off the grid; pack it again"),
        (1, "its checksum differs; pack it again"),
    ]:
        path = damaged(first_coordinate(value))
        for model in (FastLloyd(2, random_state=0), DPM(2, random_state=0)):
            with (
                mock.patch.object(Query, "postprocess") as answer,
                pytest.raises(ValueError, match=message),
            ):
                model.fit(path)
            answer.assert_not_called()
    with pytest.raises(ValueError, match=r"instead of \d+: it is cut off"):
        open_grid(damaged(cut))
    with pytest.raises(ValueError, match="is no grid file"):
        open_grid(damaged(lambda changed: changed.__setitem__(0, 0)))
    version = content.index(b'"version": 1') + 11
    with pytest.raises(ValueError, match="has version 2 and scale 65536"):
        open_grid(damaged(lambda changed: changed.__setitem__(version, ord("2"))))
    with pytest.raises(FileNotFoundError, match="existing file"):
        open_grid(tmp_path / "none.grid")


def test_a_grid_file_that_is_replaced_is_noticed(packed, tmp_path):
    pack(blocks_of(matrix()), tmp_path / "x.grid", *BOUNDS)
    for read in (packed.to_points, lambda: list(packed.blocks())):
        with pytest.raises(ChangedRows, match="has changed since it was opened"):
            read()


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path, monkeypatch):
    X = matrix()
    rows = RowBlocks(len(X), 3, lambda: iter([X[:10]]))
    with pytest.raises(ChangedRows):
        pack(rows, tmp_path / "x.grid", *BOUNDS)
    null = np.full((3, 3), np.nan)
    with pytest.raises(ValueError, match="no row without NaN"):
        pack(blocks_of(null), tmp_path / "x.grid", *BOUNDS)
    rows = RowBlocks(10**14, 3, lambda: iter([]))
    with pytest.raises(OSError, match=r"needs [\d,]+ bytes, and [\d,]+ are free"):
        pack(rows, tmp_path / "x.grid", *BOUNDS)
    assert list(tmp_path.iterdir()) == []


def test_many_columns_have_room_in_the_header(tmp_path):
    d = 700
    lower = np.random.default_rng(0).normal(size=d) * 1e-300
    packed = pack(blocks_of(np.zeros((4, d))), tmp_path / "x.grid", lower, lower + 1)
    assert packed.bounds[0].tolist() == lower.tolist()
    assert packed.begin % module.PAGE == 0
