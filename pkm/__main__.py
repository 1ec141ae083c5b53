"""The command ``pkm``, and ``python -m pkm``: one verb for each entry point."""

import csv
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from pkm import __version__
from pkm.catalogue import CatalogueError, add_config_dirs
from pkm.names import suggestion

#: Verb to its module and its purpose.
VERBS = {
    verb: (module, purpose)
    for verb, module, purpose in csv.reader(
        Path(__file__).with_name("verbs.csv").read_text(encoding="utf-8").splitlines()
    )
}
#: Options that name a folder of configurations, which all verbs take.
CONFIG_DIR = ("--config-dir", "-cd")
#: Verbs that are Hydra applications, and Hydra's option for completion.
APPLICATIONS = ("run", "reproduce")
SHELL_COMPLETION = "-sc"


def make_usage() -> str:
    """Return the help text.

    Returns
    -------
    str
    """
    lines = [f"  {verb:<11}{purpose}" for verb, (_, purpose) in VERBS.items()]
    return "\n".join(
        ["usage: pkm VERB ...", "", *lines, "", "pkm VERB --help says more."]
    )


def complete(words: Sequence[str]) -> int:
    """Complete a command line in the shell: verbs here, the rest by Hydra.

    ``eval "$(pkm -sc install=bash)"`` installs it in bash; fish and zsh likewise.

    Parameters
    ----------
    words : sequence of str
        ``install=SHELL``, ``uninstall=SHELL`` or ``query=SHELL``.

    Returns
    -------
    int
        Exit code.
    """
    line = os.environ.get("COMP_LINE", "").split(maxsplit=2)
    is_query = " ".join(words).startswith("query=")
    if is_query and (len(line) < 2 or line[1] not in APPLICATIONS):
        print(" ".join(VERBS))
        return 0
    verb = line[1] if is_query else APPLICATIONS[0]
    # Hydra completes the line of an application without verbs.
    os.environ["COMP_LINE"] = " ".join(["pkm", *line[2:]])
    return import_module(VERBS[verb][0]).main([SHELL_COMPLETION, *words])


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; only the modules that it needs are imported.

    Parameters
    ----------
    argv : sequence of str, optional
        A verb and its arguments; those of the process by default.

    Returns
    -------
    int
        Exit code of the verb, 2 if the verb is unknown.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(make_usage())
        return 0 if words else 2
    if words[0] == "--version":
        print(__version__)
        return 0
    if words[0] == SHELL_COMPLETION:
        return complete(words[1:])
    if words[0] not in VERBS:
        print(
            f"error: verb {words[0]!r} is unknown{suggestion(words[0], VERBS)}",
            file=sys.stderr,
        )
        return 2
    verb = words[0]
    try:
        words, folders = split_config_dirs(words[1:])
        with add_config_dirs(folders):
            return import_module(VERBS[verb][0]).main(words)
    except CatalogueError as error:
        reason = str(error)
    except ModuleNotFoundError as error:
        reason = f"pkm {verb}: {error}; pip install '.[bench]' installs what it needs"
    print(f"error: {reason}", file=sys.stderr)
    return 2


def split_config_dirs(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into other words and the folders of ``--config-dir FOLDER``.

    Examples
    --------
    >>> split_config_dirs(["k=3", "--config-dir", "mine", "n=9", "--config-dir=my"])
    (['k=3', 'n=9'], ['mine', 'my'])
    """
    rest: list[str] = []
    folders: list[str] = []
    remaining = iter(words)
    for word in remaining:
        option, sign, value = word.partition("=")
        if option in CONFIG_DIR:
            folder = value if sign else next(remaining, "")
            if not folder:
                raise CatalogueError("--config-dir needs a folder")
            folders.append(folder)
        else:
            rest.append(word)
    return rest, folders


if __name__ == "__main__":
    sys.exit(main())
