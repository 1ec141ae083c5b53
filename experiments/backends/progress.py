"""Progress of a run: a bar on a terminal, lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pkm.experiments.backends.worker import Outcome
from pkm.experiments.console.console import format_duration

#: Seconds between two lines of progress where the output is no terminal.
LINE_SECONDS = 20.0


#: Work that is taken as done at the estimated speed, before any is measured: at most so
#: many estimated seconds, and at most such a share of the whole.
PRIOR_SECONDS = 5.0
PRIOR_SHARE = 0.1


@dataclass
class ProgressCounter:
    """Counts the finished cells; work is measured in estimated seconds.

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
    last_printed: float = field(default_factory=time.monotonic)
    first_work: float = 0.0
    first_end: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count a cell."""
        self.cells += 1
        self.failed += outcome.status == "failed"
        self.work += self.costs[outcome.key]
        if self.cells == 1:
            self.first_work = self.work
            self.first_end = time.monotonic()

    def remaining_seconds(self) -> float:
        """Estimate the time left from the speed since the first cell ended.

        Before that moment, imports and compilation take most of the time.
        """
        total = sum(self.costs.values())
        prior_work = min(PRIOR_SECONDS, PRIOR_SHARE * total)
        seconds = prior_work / self.jobs + time.monotonic() - self.first_end
        work = prior_work + self.work - self.first_work
        return (total - self.work) * seconds / work

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        left = f"about {format_duration(self.remaining_seconds())} left"
        return f"{self.cells}/{len(self.costs)} cells{failed}, {left}"


@contextmanager
def show_progress(
    costs: Mapping[str, float],
    jobs: int,
    console: Console | None,
) -> Iterator[Callable[[Outcome], None]]:
    """Show the progress of a run; yields the function to call with each outcome.

    On a terminal it is a bar in estimated time, elsewhere a line every `LINE_SECONDS`.
    """
    counter = ProgressCounter(costs, jobs)
    if console is None or not costs:
        yield counter.add
        return
    if not console.is_terminal:
        yield partial(print_line, counter, console)
        return
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=sum(costs.values()))

        def advance(outcome: Outcome) -> None:
            counter.add(outcome)
            progress.update(task, completed=counter.work, description=str(counter))

        yield advance


def print_line(
    counter: ProgressCounter,
    console: Console,
    outcome: Outcome,
) -> None:
    """Count a cell, and print a line now and then, and one at the end."""
    counter.add(outcome)
    moment = time.monotonic()
    is_last = counter.cells == len(counter.costs)
    if is_last or moment - counter.last_printed >= LINE_SECONDS:
        counter.last_printed = moment
        console.print(str(counter))
