"""The KMeans of diffprivlib, unmodified, in an environment and a process of its own.

It has access to the exact points and adds its own noise. So this project claims no
privacy for it: there is no curator, no ledger and no audit. It is a control for the
comparison.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.privacy import NO_CLAIM, SCALE, Curator, snap_centers

#: Environment variable that names the interpreter of the library's environment.
PYTHON_VARIABLE = "PKM_DIFFPRIVLIB_PYTHON"
# Where `make diffprivlib` puts it.
DEFAULT_PYTHON = Path(".venv-diffprivlib/bin/python")
PROGRAM = Path(__file__).with_name("diffprivlib_program.py")
TIME_LIMIT = 3600  # seconds


def library_python() -> Path | None:
    """Interpreter of the library's environment; None where there is none."""
    path = Path(os.environ.get(PYTHON_VARIABLE, DEFAULT_PYTHON)).absolute()
    return path if path.is_file() else None


class DiffprivlibKMeans(PrivateKMeans):
    """The KMeans of IBM's diffprivlib, out of process: a control without a claim.

    Parameters
    ----------
    n_clusters : int, default=8
    epsilon : float, default=1.0
        Epsilon of the library, whose guarantee is its own claim.
    bounds, clip, random_state
        As for :class:`pkm.methods.PrivateKMeans`.

    Notes
    -----
    ``make diffprivlib`` installs the library. Its privacy has known gaps (flaw F-05):
    clusters that are exactly empty are skipped, and the number of points is taken as
    public. Its input here are the bounds, and points that are clipped to them.
    :class:`pkm.methods.DPLloyd` is the same algorithm through a curator.

    References
    ----------
    Holohan, N., Braghin, S., Mac Aonghusa, P. and Levacher, K. (2019). Diffprivlib: the
    IBM differential privacy library. arXiv:1907.02444.
    """

    # Parentheses: figures draw it dashed, with a hollow marker.
    label = "diffprivlib (external)"
    color = "#8c510a"
    marker = "o"
    claims = {"published": NO_CLAIM}

    epsilon: float = 1.0
    variant: str = "published"

    @classmethod
    def unavailable(cls) -> str | None:
        """Say why the method cannot run here; None if it can."""
        if library_python() is None:
            return (
                "diffprivlib is not installed: make diffprivlib, or set "
                f"{PYTHON_VARIABLE} to an interpreter that has it"
            )
        return None

    def cluster(self, curator: Curator) -> tuple[np.ndarray, int]:
        """Run the library on the disclosed points, all seeds in one process."""
        points = curator.disclose().astype(np.float64) / SCALE
        arguments = {
            "n_clusters": self.n_clusters,
            "epsilon": self.epsilon,
            "seeds": [seed % 2**32 for seed in curator.public_seeds],
        }
        return snap_centers(run_program(PROGRAM, points, arguments) * SCALE), 1


def run_program(
    program: Path,
    points: np.ndarray,
    arguments: dict,
) -> np.ndarray:
    """Run a program in the library's environment on points and arguments.

    Parameters
    ----------
    program : Path
        Called with a folder that holds ``points.npy`` and ``arguments.json``; it writes
        ``centers.npy``.
    points : ndarray of shape (n, d), float64
    arguments : dict
        Of JSON values; ``seeds`` and ``n_clusters`` among them.

    Returns
    -------
    ndarray of shape (seeds, k, d), float64

    Raises
    ------
    RuntimeError
        If there is no such environment, the program fails or takes too long, or its
        centers have another shape.
    """
    python = library_python()
    if python is None:
        raise RuntimeError(str(DiffprivlibKMeans.unavailable()))
    with tempfile.TemporaryDirectory(prefix="pkm-diffprivlib-") as folder:
        np.save(Path(folder, "points.npy"), points)
        Path(folder, "arguments.json").write_text(json.dumps(arguments))
        # Isolated: neither this process's path nor the program's folder is searched for
        # imports.
        command = [str(python), "-I", str(program), folder]
        try:
            finished = subprocess.run(
                command, capture_output=True, text=True, timeout=TIME_LIMIT
            )
        except subprocess.TimeoutExpired as error:
            message = f"{program.name} took more than {TIME_LIMIT} seconds"
            raise RuntimeError(message) from error
        if finished.returncode:
            last = (finished.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(
                f"{program.name} ended with status {finished.returncode}: {last}"
            )
        centers = np.load(Path(folder, "centers.npy"), allow_pickle=False)
    expected = (len(arguments["seeds"]), arguments["n_clusters"], points.shape[1])
    if centers.shape != expected or not np.isfinite(centers).all():
        raise RuntimeError(
            f"{program.name} wrote centers of shape {centers.shape}: they must be "
            f"finite, of shape {expected}"
        )
    return centers
