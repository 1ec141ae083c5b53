"""Progress of a run: a bar on a terminal, lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from pkm.experiments.backends.backends import Outcome

#: Seconds between two lines of progress where the output is no terminal.
LINE_SECONDS = 20.0


@dataclass
class Tally:
    """What has been done of some cells; work is measured in estimated seconds."""

    costs: Mapping[str, float]
    cells: int = 0
    failed: int = 0
    work: float = 0.0
    started: float = field(default_factory=time.monotonic)

    def add(self, outcome: "Outcome") -> None:
        """Count a cell."""
        self.cells += 1
        self.failed += outcome.status == "failed"
        self.work += self.costs[outcome.key]

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        elapsed = time.monotonic() - self.started
        remaining = elapsed * (sum(self.costs.values()) / self.work - 1)
        left = f"about {duration(remaining)} left"
        return f"{self.cells}/{len(self.costs)} cells{failed}, {left}"


@contextmanager
def progress_of(
    costs: Mapping[str, float], console: Console | None
) -> "Iterator[Callable[[Outcome], None]]":
    """Show the progress of a run; yields the function to call with each outcome.

    On a terminal a live bar whose length is estimated time, not cells, so that the remaining time
    is right although cells differ; elsewhere a line every `LINE_SECONDS`.
    """
    tally = Tally(costs)
    if console is None or not costs:
        yield tally.add
    elif console.is_terminal:
        with bar(tally, console) as advance:
            yield advance
    else:
        yield lines(tally, console)


def lines(tally: Tally, console: Console) -> "Callable[[Outcome], None]":
    """Make the function that prints a line now and then, and one at the end."""
    printed = tally.started

    def advance(outcome: "Outcome") -> None:
        nonlocal printed
        tally.add(outcome)
        moment = time.monotonic()
        if tally.cells == len(tally.costs) or moment - printed >= LINE_SECONDS:
            printed = moment
            console.print(str(tally))

    return advance


@contextmanager
def bar(tally: Tally, console: Console) -> "Iterator[Callable[[Outcome], None]]":
    """Show a live bar; yields the function that moves it."""
    columns = (
        TextColumn("cells"),
        BarColumn(),
        TextColumn("{task.fields[cells]}/{task.fields[of]}"),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Progress(*columns, console=console) as progress:
        total = sum(tally.costs.values())
        task = progress.add_task("", total=total, cells=0, of=len(tally.costs), note="")

        def advance(outcome: "Outcome") -> None:
            tally.add(outcome)
            note = f"[red]{tally.failed} failed[/red]" if tally.failed else ""
            progress.update(task, completed=tally.work, cells=tally.cells, note=note)

        yield advance


def duration(seconds: float) -> str:
    """Write a time span for people.

    Examples
    --------
    >>> duration(42), duration(95), duration(7300)
    ('42 s', '1 min 35 s', '2 h 01 min')
    """
    seconds = round(max(seconds, 0))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
