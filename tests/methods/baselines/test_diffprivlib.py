"""diffprivlib out of process: what is handed over, what comes back, what is refused."""

import sys

import numpy as np
import pytest

from pkm.experiments.plan.sweep import find_method
from pkm.methods import DiffprivlibKMeans
from pkm.methods.baselines import diffprivlib
from pkm.privacy import SCALE, snap

# It stands for the library: as centers the first points, moved by epsilon and the seed.
PROGRAM = """
import json, sys
import numpy as np
folder = sys.argv[1]
points = np.load(folder + "/points.npy")
given = json.load(open(folder + "/arguments.json"))
first = points[: given["n_clusters"]]
centers = [first + given["epsilon"] / 8 + seed % 2 / 4 for seed in given["seeds"]]
np.save(folder + "/centers.npy", np.stack(centers))
"""
POINTS = snap(np.random.default_rng(0).uniform(-0.5, 0.5, (30, 2)))


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Put a program in place of the library's, to be run by this interpreter."""

    def write(text):
        path = tmp_path / "program.py"
        path.write_text(text)
        monkeypatch.setattr(diffprivlib, "PROGRAM", path)
        monkeypatch.setenv(diffprivlib.PYTHON_VARIABLE, sys.executable)

    return write


def test_points_and_arguments_are_handed_over(program):
    program(PROGRAM)
    method = DiffprivlibKMeans(3, epsilon=1.0)
    run = method.fit_batch(POINTS, [0, 1])
    seeds = method.noise_streams([0, 1], *POINTS.shape).public_seeds
    moves = [SCALE // 8 + SCALE // 4 * (seed % 2**32 % 2) for seed in seeds]
    assert (run.centers == np.stack([POINTS[:3] + move for move in moves])).all()
    assert run.ledger is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise SystemExit('no room')", "program.py ended with status 1: no room"),
        ("import no_such_module", "status 1: ModuleNotFoundError"),
        (PROGRAM.replace("np.stack(centers)", "first"), r"centers of shape \(3, 2\)"),
        (PROGRAM.replace("np.stack(centers)", "np.stack(centers) * np.nan"), "must be finite"),
    ],
)
def test_a_program_that_fails_is_named(program, text, message):
    program(text)
    with pytest.raises(RuntimeError, match=message):
        DiffprivlibKMeans(3).fit_batch(POINTS, [0])


def test_a_program_that_takes_too_long_is_ended(program, monkeypatch):
    program("import time; time.sleep(60)")
    monkeypatch.setattr(diffprivlib, "TIME_LIMIT", 0.5)
    with pytest.raises(RuntimeError, match=r"more than 0\.5 seconds"):
        DiffprivlibKMeans(3).fit_batch(POINTS, [0])


def test_without_the_environment_sweeps_say_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv(diffprivlib.PYTHON_VARIABLE, str(tmp_path / "python"))
    entry = {"name": "diffprivlib", "_target_": "pkm.methods.DiffprivlibKMeans"}
    method = find_method(entry)
    assert method.private
    assert "make diffprivlib" in method.missing
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
