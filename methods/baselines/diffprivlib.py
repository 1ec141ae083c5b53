"""The KMeans of diffprivlib, unmodified, in an environment and a process of its own."""

import os
from pathlib import Path

import numpy as np

from pkm.methods.base import PrivateKMeans
from pkm.methods.baselines import diffprivlib_program
from pkm.methods.baselines.program import run_program
from pkm.privacy import NO_CLAIM, Curator

#: Environment variable that names the interpreter of the library's environment.
PYTHON_VARIABLE = "PKM_DIFFPRIVLIB_PYTHON"
# Where `make diffprivlib` puts it: in the repository, whatever the working folder is.
ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv-diffprivlib"


def library_python() -> Path | None:
    """Interpreter of the library's environment; None where there is none."""
    default = ENVIRONMENT / "bin" / "python"
    path = Path(os.environ.get(PYTHON_VARIABLE, default)).absolute()
    return path if path.is_file() else None


class DiffprivlibKMeans(PrivateKMeans):
    """The KMeans of IBM's diffprivlib, out of process: a control without a claim.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Epsilon of the library, whose guarantee is its own claim.
    variant : {"published"}, default="published"
        The library as it is; there is no sound variant.
    bounds, clip, random_state, missing
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, secure, adjacency
        For private methods: leave them out.

    See Also
    --------
    DPLloyd : The same algorithm through a curator, with a ledger.
    ProgramKMeans : Any other program outside of this process.

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

    def cluster(self, curator: Curator) -> tuple[list[np.ndarray], int, dict]:
        """Run the library on the disclosed points, all seeds in one process."""
        python = library_python()
        if python is None:
            raise RuntimeError(str(self.unavailable()))
        # Isolated: neither this process's path nor the program's folder is searched for
        # imports.
        command = [str(python), "-I", str(diffprivlib_program.__file__)]
        return run_program(command, curator, self.n_clusters, self.epsilon)
