"""Times of a block."""

import subprocess
import sys

from pkm.experiments.fit.timing import timer


def test_the_cpu_time_of_a_program_counts():
    """A method that is a program would seem to take none."""
    code = "import time\nwhile time.process_time() < 0.2: pass"
    with timer() as elapsed:
        subprocess.run([sys.executable, "-S", "-c", code], check=True)
    assert 0.2 <= elapsed.cpu < 0.2 + elapsed.wall
