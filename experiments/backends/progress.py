"""Progress of a run: a bar on a terminal, lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pkm.experiments.backends.worker import Outcome
from pkm.experiments.console.console import duration

#: Seconds between two lines of progress where the output is no terminal.
LINE_SECONDS = 20.0


#: Estimated work that counts as done at the estimated speed: at most so many seconds,
#: and at most so much of the whole.
PRIOR_SECONDS = 5.0
PRIOR_SHARE = 0.1


@dataclass
class Tally:
    """What has been done of some cells; work is measured in estimated seconds.

    Parameters
    ----------
    costs : mapping of str to float
        Key of each cell to its work.
    jobs : int, default=1
        How many cells are run at once.
    """

    costs: Mapping[str, float]
    jobs: int = 1
    cells: int = 0
    failed: int = 0
    work: float = 0.0
    printed: float = field(default_factory=time.monotonic)
    first_work: float = 0.0
    first_ended: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count a cell."""
        self.cells += 1
        self.failed += outcome.status == "failed"
        self.work += self.costs[outcome.key]
        if self.cells == 1:
            self.first_work = self.work
            self.first_ended = time.monotonic()

    def remaining_seconds(self) -> float:
        """Estimate the time left from the speed since the first cell ended.

        Imports and most of the compilation are before that moment, and no sign of
        speed.
        """
        total = sum(self.costs.values())
        prior_work = min(PRIOR_SECONDS, PRIOR_SHARE * total)
        seconds = prior_work / self.jobs + time.monotonic() - self.first_ended
        work = prior_work + self.work - self.first_work
        return (total - self.work) * seconds / work

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        left = f"about {duration(self.remaining_seconds())} left"
        return f"{self.cells}/{len(self.costs)} cells{failed}, {left}"


@contextmanager
def show_progress(
    costs: Mapping[str, float],
    jobs: int,
    console: Console | None,
) -> Iterator[Callable[[Outcome], None]]:
    """Show the progress of a run; yields the function to call with each outcome.

    On a terminal a live bar whose length is estimated time, not cells; elsewhere a line
    every `LINE_SECONDS`.
    """
    tally = Tally(costs, jobs)
    if console is None or not costs:
        yield tally.add
        return
    if not console.is_terminal:
        yield partial(print_line, tally, console)
        return
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=sum(costs.values()))

        def advance(outcome: Outcome) -> None:
            tally.add(outcome)
            progress.update(task, completed=tally.work, description=str(tally))

        yield advance


def print_line(
    tally: Tally,
    console: Console,
    outcome: Outcome,
) -> None:
    """Count a cell, and print a line now and then, and one at the end."""
    tally.add(outcome)
    moment = time.monotonic()
    is_last = tally.cells == len(tally.costs)
    if is_last or moment - tally.printed >= LINE_SECONDS:
        tally.printed = moment
        console.print(str(tally))
