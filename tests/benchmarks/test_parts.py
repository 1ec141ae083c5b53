"""Every part of the benchmarks runs, small, and measures what it says."""

import numpy as np
import pytest

from pkm import datasets
from pkm.benchmarks import __main__ as bench
from pkm.benchmarks import files, inputs, passes
from pkm.benchmarks.measurement import Measurement
from pkm.compute import sums_and_counts
from pkm.compute.storage.grid_file import open_grid
from pkm.row_blocks import row_blocks, stacked


@pytest.mark.parametrize("part", ["protocol", "secure_noise"])
def test_a_part_runs(part, capsys):
    assert bench.main([part, "--scale", "0.1"]) in (0, 1)
    assert "ok" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("part", sorted(bench.PARTS.keys() - {"protocol", "secure_noise"}))
def test_a_long_part_runs(part, monkeypatch):
    monkeypatch.setattr(passes, "SHAPES", ((2, 8),))
    monkeypatch.setattr(passes, "N_PRODUCTS", 240_000)
    monkeypatch.setattr(files, "N_POINTS", 1_000_000)
    # Clients that remove points need some.
    rows = bench.PARTS[part](0.1 if part == "unlearning" else 0.02)
    assert rows
    assert all(np.isfinite(row.value) and row.value > 0 for row in rows)


@pytest.mark.parametrize(("value", "status"), [(1.0, 0), (3.0, 1)])
def test_a_missed_target_is_status_1(monkeypatch, capsys, value, status):
    scales = []

    def measure(scale):
        scales.append(scale)
        return [Measurement("a fit", value, "s", at_most=2), Measurement("a note", 9, "x")]

    monkeypatch.setattr(bench, "PARTS", {"fit": measure})
    assert bench.main([]) == status
    assert ("MISSED" in capsys.readouterr().out) == bool(status)
    assert scales == [1.0]


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["speed"], "part 'speed' is unknown; known are sweep, "),
        (["sweep", "--scale", "0"], "scale=0.0 must be at least 0.1"),
    ],
)
def test_what_cannot_be_measured_is_refused(words, rule, capsys):
    with pytest.raises(SystemExit):
        bench.main(words)
    assert rule in capsys.readouterr().err


def test_a_data_set_that_is_missing_is_noise_of_its_shape(monkeypatch):
    def load(name):
        raise datasets.DataUnavailable(name)

    monkeypatch.setattr(datasets, "load", load)
    points, label = inputs.load_points("gas", (200, 3), 0.5, (2.0, 5.0))
    assert label == "gas (noise of its shape)"
    assert points.shape == (100, 3)
    assert points.min() >= 2
    assert points.max() <= 5


def test_a_data_set_that_is_there_is_scaled_or_clipped():
    points, label = inputs.load_points("synth-10d", (100_000, 10), 0.001)
    assert (label, points.shape) == ("synth-10d", (100, 10))
    assert abs(points).max() <= 1
    raw, _ = inputs.load_points("synth-10d", (100_000, 10), 0.001, (-1.0, 1.0))
    assert set(np.unique(raw)) >= {-1.0, 1.0}


def test_points_of_a_label_are_near_its_mean():
    labels = np.array([[0, 1, 1], [2, 0, 2]])
    points = inputs.draw_mixture(labels, 4, spread=1e-3)
    assert points.shape == (2, 3, 4)
    assert abs(points[0, 0] - points[1, 1]).max() < 0.01
    assert abs(points[0, 1] - points[0, 2]).max() < 0.01
    assert abs(points[0, 0] - points[0, 1]).max() > 0.1


@pytest.mark.parametrize("kind", ["npy", "parquet", "grid"])
def test_a_file_has_the_rows_as_often_as_it_is_told(tmp_path, kind):
    tenth = inputs.draw_mixture(np.arange(1000) % files.K, files.D).astype(np.float32)
    path = tmp_path / f"points.{kind}"
    files.write(path, tenth, 3)
    rows = open_grid(path).to_data_units() if kind == "grid" else row_blocks(path)
    # A grid is as exact as float32 tells.
    np.testing.assert_allclose(stacked(rows), np.tile(tenth, (3, 1)), atol=1e-6)

    # A pass over the file is three passes over the rows.
    centers = np.random.default_rng(2).integers(-30_000, 30_000, (1, files.K, files.D))
    once = tmp_path / f"once.{kind}"
    files.write(once, tenth, 1)
    expected, sums = (
        files.open_blocks(file).map_reduce(lambda points: sums_and_counts(points, centers))
        for file in (once, path)
    )
    for times_one, times_three in zip(expected, sums, strict=True):
        np.testing.assert_array_equal(times_three, 3 * times_one)


def test_passes_of_a_method_are_counted(tmp_path):
    path = tmp_path / "points.npy"
    files.write(path, inputs.draw_mixture(np.arange(3000) % 8, files.D).astype(np.float32), 1)
    row = files.measure_method(files.DPM, path)
    n_passes = int(row.title.split()[-2])
    assert row.title == f".npy file: DPM, {n_passes} passes"
    assert n_passes >= 2
