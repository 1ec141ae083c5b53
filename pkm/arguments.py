"""Parsers of command lines whose errors are one line."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser that refuses a command line without printing its usage.

    Examples
    --------
    >>> Parser(prog="pkm diff").parse_args(["--colour"])
    Traceback (most recent call last):
    SystemExit: 2
    """

    def error(self, message: str) -> NoReturn:
        """End the process with status 2 and one line that names the program's help."""
        self.exit(2, f"error: {message}; see {self.prog} --help\n")
