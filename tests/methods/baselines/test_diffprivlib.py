"""diffprivlib out of process; how a program is run is tested in test_program.py."""

import sys

import numpy as np
import pytest

from pkm.experiments.plan.sweep import find_method
from pkm.methods import DiffprivlibKMeans
from pkm.methods.baselines import diffprivlib
from pkm.privacy import SCALE, snap

# It stands for the library.
LIBRARY = """
class KMeans:
    def __init__(self, n_clusters, *, epsilon, bounds, random_state):
        self.k, self.move = n_clusters, epsilon / 8 + random_state % 2 / 4
        assert [list(bound) for bound in bounds] == [[-1, -1], [1, 1]]

    def fit(self, points):
        self.cluster_centers_ = points[: self.k] + self.move
        return self
"""
POINTS = snap(np.random.default_rng(0).uniform(-0.5, 0.5, (30, 2)))


def test_the_library_is_run_for_each_seed(tmp_path, monkeypatch):
    package = tmp_path / "diffprivlib"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "models.py").write_text(LIBRARY)
    # The interpreter of an environment, which is isolated from this process's path.
    python = tmp_path / "python"
    imports = f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); "
    run = "runpy.run_path(sys.argv[1], run_name='__main__')"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -c "{imports}{run}" "$2"\n')
    python.chmod(0o755)
    monkeypatch.setenv(diffprivlib.PYTHON_VARIABLE, str(python))

    method = DiffprivlibKMeans(3, epsilon=1.0)
    run = method.fit_batch(POINTS, [0, 1])
    seeds = method.noise_streams([0, 1], *POINTS.shape).public_seeds
    moves = [SCALE // 8 + SCALE // 4 * (seed % 2**32 % 2) for seed in seeds]
    assert (run.centers == np.stack([POINTS[:3] + move for move in moves])).all()
    assert run.ledger is None
    assert run.synopsis["notion"] == "pure"
    assert run.synopsis["epsilon"] == 1.0


def test_without_the_environment_sweeps_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv(diffprivlib.PYTHON_VARIABLE, str(tmp_path / "python"))
    entry = {"name": "diffprivlib", "_target_": "pkm.methods.DiffprivlibKMeans"}
    method = find_method(entry)
    assert method.private
    assert "make diffprivlib" in method.unavailable
    with pytest.raises(RuntimeError, match="make diffprivlib"):
        DiffprivlibKMeans(3).fit_batch(POINTS, [0])


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan")])
def test_a_bad_epsilon_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon="):
        DiffprivlibKMeans(3, epsilon=epsilon).fit_batch(POINTS, [0])


@pytest.mark.slow
def test_the_library_finds_separate_clusters():
    if DiffprivlibKMeans.unavailable():
        pytest.skip(str(DiffprivlibKMeans.unavailable()))
    middles = np.array([[-0.5, -0.5], [0.5, 0.5]])
    points = snap(np.repeat(middles, 5000, axis=0))
    (centers,) = DiffprivlibKMeans(2, epsilon=1000.0).fit_batch(points, [0]).centers
    assert np.sort(centers[:, 0]) / SCALE == pytest.approx([-0.5, 0.5], abs=0.01)
