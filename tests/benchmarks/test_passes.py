"""Passes that are counted."""

import numpy as np

from pkm.benchmarks import files, inputs


def test_passes_of_a_method_are_counted(tmp_path):
    path = tmp_path / "points.npy"
    files.write_copies(
        path, inputs.draw_mixture(np.arange(3000) % 8, files.D).astype(np.float32), 1
    )
    row = files.measure_method(files.DPM, path)
    n_passes = int(row.title.split()[-2])
    assert row.title == f".npy file: DPM, {n_passes} passes"
    assert n_passes >= 2
