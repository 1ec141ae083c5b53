"""Shared by all commands: consoles, parsers of words, and errors in one line."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pkm.arguments import Parser
from pkm.catalogue import describe_yaml_error
from pkm.datasets.sources import DataUnavailable
from pkm.experiments.config.settings import require

if TYPE_CHECKING:
    from rich.console import Console

#: Errors that the user can fix: shown as one line, without a traceback.
USER_ERRORS = (ValueError, OSError, DataUnavailable)
INTERRUPTED_MESSAGE = (
    "interrupted; finished cells are kept, the same command goes on from here"
)


class CellsFailed(RuntimeError):
    """Cells failed; the errors have been printed."""


def make_console(*, stderr: bool = False) -> "Console":
    """Make the console for output, or for errors; it is wide outside a terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 160
    return Console(width=width, stderr=stderr, soft_wrap=stderr)


def show(console: "Console", line: str, style: str = "") -> None:
    """Print a line as it is: it has no markup, and is not broken."""
    console.print(line, style=style, markup=False, soft_wrap=True)


def require_one(names: Sequence[str], name: str, rule: str) -> str:
    """Return the only one of some names; refuse none and several by a rule in words.

    Examples
    --------
    >>> require_one(["iris", "wine"], "FILE", "one file")
    Traceback (most recent call last):
    ValueError: FILE='iris wine' is not allowed: FILE must be one file
    """
    require(len(names) == 1, name, " ".join(names), rule)
    return names[0]


def make_parser(verb: str, description: str | None) -> Parser:
    """Make the parser of a verb of ``pkm``."""
    return Parser(
        prog=f"pkm {verb}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def make_main(
    verb: str,
    description: str | None,
    name: str,
    keys: Sequence[str],
    run: Callable[[list[str], dict[str, str]], Any],
) -> Callable[[Sequence[str]], int]:
    """Make the function that runs a verb from its command line of names and key=value.

    Parameters
    ----------
    verb : str
        Of ``pkm``.
    description : str
        The help text.
    name : str
        What the help text calls a name.
    keys : sequence of str
        The allowed keys; empty where `run` checks them.
    run : callable
        Takes the names, and the values by their keys.

    Returns
    -------
    callable
        From arguments to the exit code; see `run_action`.

    Examples
    --------
    >>> make_main("pack", "", "FILE", ["bounds"], print)(["a", "b", "bounds=[0,1]"])
    ['a', 'b'] {'bounds': '[0,1]'}
    0
    """
    rule = " or ".join(keys)

    def check_and_run(words: Sequence[str]) -> Any:
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        for key in options:
            require(not keys or key in keys, "option", key, rule)
        return run(names, options)

    def main(argv: Sequence[str]) -> int:
        parser = make_parser(verb, description)
        options = f"{rule or 'key'}=..."
        parser.add_argument("words", nargs="*", metavar=name, help=f"names, {options}")
        words = parser.parse_args(argv).words
        return run_action(lambda: check_and_run(words))

    return main


def run_action(action: Callable[[], Any]) -> int:
    """Run an action, and show errors that the user can fix as one line.

    Parameters
    ----------
    action : callable
        What to run.

    Returns
    -------
    int
        0, 1 if cells failed, 2 if the request was refused, 130 if it was interrupted. A
        number that the action returns, or exits with, counts instead of 0. A text that
        it exits with is printed, and the code is 1.
    """
    from yaml import MarkedYAMLError

    try:
        return action() or 0
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        # As Python does at the end of a process.
        print(stop.code, file=sys.stderr)
        return 1
    except CellsFailed:
        return 1
    except MarkedYAMLError as error:
        refusal = describe_yaml_error(error)
    except USER_ERRORS as error:
        refusal = str(error)
    except KeyboardInterrupt:
        make_console(stderr=True).print(INTERRUPTED_MESSAGE)
        return 130
    make_console(stderr=True).print(
        f"error: {refusal}",
        style="red",
        markup=False,
        highlight=False,
    )
    return 2


def format_duration(seconds: float) -> str:
    """Format a time span for people.

    Examples
    --------
    >>> format_duration(42), format_duration(95), format_duration(7300)
    ('42 s', '1 min 35 s', '2 h 01 min')
    """
    seconds = round(max(seconds, 0))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
