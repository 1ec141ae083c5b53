"""A program in any language as a method: points go in, centers and a claim come out.

The program has the exact points and adds its own noise. So this project claims no
privacy for it: there is no ledger and no audit. What the program claims is kept beside
its centers.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from pkm import catalogue
from pkm.files import read_last_line, record_digest, sha256
from pkm.methods.base import PrivateKMeans
from pkm.methods.constraints import Real
from pkm.privacy import NO_CLAIM, SCALE, Budget, Curator, PrivacyClaim, snap_centers

#: Version of the files' format.
FORMAT = 1
POINTS = "points.parquet"
REQUEST = "request.json"
CENTERS = "centers.parquet"
CLAIM = "claim.json"
LOG = "output.txt"
CLAIM_KEYS = {"notion", "adjacency", "unit", "epsilon", "delta"}
#: What a program without privacy says.
NOTHING_CLAIMED = {"notion": "none"}
#: Relative excess of a claim over the request that is rounding.
TOLERANCE = 1e-9
TIME_LIMIT = 3600.0  # seconds


class ProgramKMeans(PrivateKMeans):
    """A program that is started once per batch, in a folder of its own.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of centers, at least 1.
    epsilon : float, default=1.0
        Requested of the program, whose guarantee is its own claim.
    delta : float or "auto", default="auto"
        Requested as well; ``auto`` is 1e-6.
    command : sequence of str, default=()
        The words of the command, one or more. A word that is the name of a file in a
        folder of ``--config-dir`` stands for that file. ``python3`` is this
        interpreter's.
    time_limit : float, default=3600.0
        Seconds that the program may take; positive.
    digest : str, optional
        SHA-256 of those files: results of changed files are other results. A sweep
        fills it in.
    bounds, clip, random_state, missing
        As for :class:`pkm.methods.PrivateKMeans`.
    zoom, require_zoom, report, secure, adjacency
        For private methods: leave them out.

    See Also
    --------
    PrivateKMeans : Base class of methods that a curator checks and charges.
    DiffprivlibKMeans : A library in a process of its own.

    Notes
    -----
    The command is started in a temporary folder with two files:

    - ``points.parquet``: columns x0, x1, ..., in [-1, 1];
    - ``request.json``: ``n_clusters``, ``epsilon``, ``delta``, ``seeds`` (one per
      replicate), ``bounds`` ([-1, 1]), and ``format``, the version of all this.

    There it writes two more:

    - ``centers.parquet``: columns replicate (0, 1, ...), x0, x1, ..., with at most
      ``n_clusters`` centers of each replicate;
    - ``claim.json``: ``notion``, ``adjacency``, ``unit``, ``epsilon``, ``delta`` of
      what it claims, or ``{"notion": "none"}``. It is the `Run`'s ``synopsis``.
    """

    label = "program (external)"
    color = "#8c510a"
    marker = "o"
    claims = {"sound": NO_CLAIM}
    constraints = {
        "command": None,
        "time_limit": Real(0, unit="seconds"),
        "digest": None,
    }

    epsilon: float = 1.0
    delta: float | str = "auto"
    command: Sequence[str] = ()
    time_limit: float = TIME_LIMIT
    digest: str | None = None

    @staticmethod
    def identify(parameters: Mapping[str, Any]) -> dict[str, str]:
        """Return the parameter that identifies the files of a command."""
        return {"digest": digest_files(find_files(parameters["command"]))}

    def check_parameters(self, n_points: int | None = None) -> None:
        """Refuse bad parameters, among them a command that cannot be started."""
        super().check_parameters(n_points)
        words = self.command
        if not (is_command(words) and find_program(words)):
            raise ValueError(
                f"command={words!r} must be a list of words that begins with a program "
                "on PATH, or with a file of --config-dir"
            )
        # The files may have changed since a sweep was planned.
        digest = self.identify(self.parameters)["digest"]
        if self.digest not in (None, digest):
            raise ValueError(
                f"digest={self.digest!r} must be that of the files of "
                f"command={words!r}, {digest!r}: leave it out"
            )

    def cluster(self, curator: Curator) -> tuple[list[np.ndarray], int, dict]:
        """Run the program on the disclosed points, all seeds in one process."""
        files = find_files(self.command)
        command = [str(files.get(word, word)) for word in self.command]
        command[0] = find_program(self.command) or command[0]
        return run_program(
            command,
            curator,
            self.n_clusters,
            self.epsilon,
            self.resolved_delta(curator.n_points),
            time_limit=self.time_limit,
        )


def is_command(words: Any) -> TypeGuard[Sequence[str]]:
    """Tell whether a value is a sequence of one text or more."""
    is_listed = isinstance(words, list | tuple) and len(words) > 0
    return is_listed and all(isinstance(word, str) and word for word in words)


def find_files(words: Any) -> dict[str, Path]:
    """Find the words of a command that name files in folders of ``--config-dir``."""
    if not is_command(words):
        return {}
    candidates = {
        word: [folder / word for folder in catalogue.current().search_path]
        for word in words
        if Path(word).name == word
    }
    # Of two files the one of the first folder counts.
    return {
        word: path
        for word, paths in candidates.items()
        for path in filter(Path.is_file, reversed(paths))
    }


def digest_files(files: Mapping[str, Path]) -> str:
    """Return the SHA-256 (hex) of the names and the content of files."""
    return record_digest(
        {name: sha256(path.read_bytes()) for name, path in files.items()}
    )


def search_path() -> str:
    """Return the folders in which programs are found, this interpreter's first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def find_program(words: Sequence[str]) -> str | None:
    """Find the program that a command begins with."""
    first = find_files(words).get(words[0], words[0])
    return shutil.which(first, path=search_path())


def run_program(
    command: Sequence[str],
    curator: Curator,
    n_clusters: int,
    epsilon: float,
    delta: float = 0.0,
    *,
    time_limit: float = TIME_LIMIT,
) -> tuple[list[np.ndarray], int, dict]:
    """Run a program on the points of a curator; see `ProgramKMeans` for its files.

    Parameters
    ----------
    command : sequence of str
    curator : Curator
        Without a ledger: it discloses the points.
    n_clusters, epsilon, delta
        What is requested.
    time_limit : float
        In seconds.

    Returns
    -------
    centers : list of ndarray of shape (k, d), int64
        On the grid, one array per replicate.
    n_iter : int
        Always 1.
    claim : dict
        What the program claims.

    Raises
    ------
    RuntimeError
        If the program fails or takes too long, or what it writes breaks a rule.
    """
    points = curator.disclose().astype(np.float64) / SCALE
    request = {
        "format": FORMAT,
        "n_clusters": n_clusters,
        "epsilon": epsilon,
        "delta": delta,
        "seeds": [seed % 2**32 for seed in curator.public_seeds],
        "bounds": [-1, 1],
    }
    with tempfile.TemporaryDirectory(prefix="pkm-program-") as temporary:
        folder = Path(temporary)
        write_points(points, folder / POINTS)
        (folder / REQUEST).write_text(json.dumps(request))
        start(command, folder, time_limit)
        for name in (CLAIM, CENTERS):
            if not (folder / name).is_file():
                raise RuntimeError(f"{name} is missing: a program must write it")
        claim = read_claim(folder / CLAIM, epsilon, delta)
        centers = read_centers(folder / CENTERS, request, points.shape[1])
    return [snap_centers(positions * SCALE) for positions in centers], 1, claim


def write_points(points: np.ndarray, path: Path) -> None:
    """Write points (n, d) with the columns x0, x1, ..."""
    # Optional: other methods do without.
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [f"x{column}" for column in range(points.shape[1])]
    pq.write_table(pa.table(list(points.T), names), path)


def start(
    command: Sequence[str],
    folder: Path,
    time_limit: float,
) -> None:
    """Start a program, and wait for its end."""
    name = " ".join(Path(word).name for word in command)
    # Output goes to a file: it may be longer than memory.
    with (folder / LOG).open("wb") as log:
        try:
            finished = subprocess.run(
                command,
                cwd=folder,
                env=os.environ | {"PATH": search_path()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=time_limit,
            )
        except subprocess.TimeoutExpired:
            message = f"{name} took more than {time_limit:g} seconds"
            raise RuntimeError(message) from None
        except OSError as error:
            message = f"{name} cannot be started: {error.strerror}"
            raise RuntimeError(message) from None
    if finished.returncode:
        last = read_last_line(folder / LOG) or "no message"
        raise RuntimeError(f"{name} ended with status {finished.returncode}: {last}")


def read_claim(path: Path, epsilon: float, delta: float) -> dict[str, Any]:
    """Read what a program claims, which must be no more than was requested."""
    try:
        claim = json.loads(path.read_text(encoding="utf-8"))
        if claim == NOTHING_CLAIMED:
            return claim
        if claim.keys() != CLAIM_KEYS:
            raise ValueError(f"its keys must be {', '.join(sorted(CLAIM_KEYS))}")
        PrivacyClaim(claim["notion"], claim["adjacency"])
        budget = Budget(
            claim["epsilon"],
            claim["delta"],
            claim["adjacency"],
            unit=claim["unit"],
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise RuntimeError(f"{CLAIM} is no claim: {error}") from None
    # A pure claim has no delta.
    limits = {"epsilon": epsilon, "delta": delta * (claim["notion"] != "pure")}
    for name, limit in limits.items():
        value = getattr(budget, name)
        if value > limit * (1 + TOLERANCE):
            raise RuntimeError(f"{CLAIM}: {name}={value:g} must be at most {limit:g}")
    return claim


def read_centers(
    path: Path, request: Mapping[str, Any], n_features: int
) -> list[np.ndarray]:
    """Read the centers of every replicate, in half-widths."""
    # Optional: other methods do without.
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [f"x{column}" for column in range(n_features)]
    try:
        table = pq.read_table(path)
        fields = [(name, pa.float64()) for name in columns]
        table = table.cast(pa.schema([("replicate", pa.int64()), *fields]))
    except (OSError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise RuntimeError(
            f"{CENTERS} must have the columns replicate and x0 to {columns[-1]}, all "
            f"numbers: {first}"
        ) from None

    # A null is NaN from here on.
    replicates = table["replicate"].to_numpy()
    rows = np.column_stack([table[name].to_numpy() for name in columns])
    if not np.isfinite(rows).all():
        raise RuntimeError(f"{CENTERS} has a coordinate that is not finite")
    centers = [
        rows[replicates == replicate] for replicate in range(len(request["seeds"]))
    ]
    k = request["n_clusters"]
    counts = [len(positions) for positions in centers]
    if sum(counts) != len(rows) or not all(1 <= count <= k for count in counts):
        raise RuntimeError(
            f"{CENTERS} has {counts} centers of replicates 0 to {len(counts) - 1}, "
            f"{len(rows)} in all: each must have 1 to n_clusters={k}"
        )
    return centers
