"""Runs of cells in another process."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

SUPPORT = Path(__file__).parent


def start_command(folder, *arguments):
    """Start another process that runs cells."""
    (folder / "work").write_bytes(pickle.dumps(arguments))
    script = (
        "import pickle\n"
        "from pkm.experiments.backends.backends import run_cells\n"
        "run_cells(*pickle.load(open('work', 'rb')))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])},
        cwd=folder,
    )
