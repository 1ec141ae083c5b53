"""Entries of the arena: ``pkm arena verify`` and ``pkm arena leaderboard``."""

import sys
from collections.abc import Sequence

from pkm.arena import leaderboard, verify

ACTIONS = {"verify": verify.main, "leaderboard": leaderboard.main}


def main(argv: Sequence[str]) -> int:
    """Run an action on entries.

    Returns
    -------
    int
        Its exit code, 2 if there is no such action.
    """
    action = argv[0] if argv else "--help"
    if action in ACTIONS:
        return ACTIONS[action](argv[1:])
    print(
        f"usage: pkm arena {{{','.join(ACTIONS)}}} ... (--help says more)",
        file=sys.stderr,
    )
    return 0 if action in ("-h", "--help") else 2
