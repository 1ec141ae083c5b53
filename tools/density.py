"""Print the tokens per line of folders, and violations of the structure's rules.

Tokens of docstrings and comments, indentation and line ends do not count.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from import_graph import (
    FUNCTIONS,
    ROOT,
    find_cycles,
    list_files,
    make_graph,
    parse,
    read_imports,
    read_modules,
    walk_statements,
)

LAYOUT_TOKENS = {
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
MAX_LENGTH = 60  # lines of a function
MAX_MODULES = 20  # of a folder
MAX_WORDS = 30  # of a sentence
TARGETS = "8 tokens a line at most, 5 % comments in algorithms"
#: Parts of a page that are not prose: code, tables, headings.
NON_PROSE = re.compile(r"```.*?```|^[|#].*?$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def summarize(paths: Iterable[Path]) -> dict[str, float]:
    """Return the columns of the table for some files together."""
    counts: Counter[str] = Counter()
    lengths = []
    for path in paths:
        file_counts, file_lengths = measure(path)
        counts += file_counts
        lengths += file_lengths
    code = max(counts["code"], 1)
    lines = max(counts["code"] + counts["comments"] + counts["docstrings"], 1)
    lengths = sorted(lengths) or [0]
    n_long = sum(length > MAX_LENGTH for length in lengths)
    return {
        "files": counts["files"],
        "tokens": counts["tokens"],
        "code lines": counts["code"],
        "tokens/line": counts["tokens"] / code,
        "comments %": 100 * counts["comments"] / lines,
        "docstrings %": 100 * counts["docstrings"] / lines,
        "function p50": lengths[len(lengths) // 2],
        "p90": lengths[len(lengths) * 9 // 10],
        f"> {MAX_LENGTH} %": 100 * n_long / len(lengths),
    }


@cache
def measure(path: Path) -> tuple[Counter[str], list[int]]:
    """Count the tokens and kinds of lines of a file, and the lines of each function."""
    docstrings: set[int] = set()
    lengths = []
    for node, _ in walk_statements(parse(path)):
        if isinstance(node, FUNCTIONS):
            lengths.append(node.end_lineno - node.lineno + 1)
        is_documented = isinstance(node, ast.Module | ast.ClassDef | FUNCTIONS)
        if is_documented and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            docstrings.update(range(docstring.lineno, docstring.end_lineno + 1))

    text = path.read_text(encoding="utf-8")
    counts = Counter(files=1)
    code = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            counts["comments"] += 1
        elif token.type not in LAYOUT_TOKENS and line not in docstrings:
            counts["tokens"] += 1
            code.add(line)
    counts["code"] = len(code)
    counts["docstrings"] = len(docstrings)
    return counts, lengths


def list_python_files(folder: str) -> list[Path]:
    """Return the Python files of a folder; exit if there is none."""
    paths = list_files(f"{folder.rstrip('/')}/*.py")
    if not paths:
        sys.exit(f"error: folder {folder!r} has no Python file; see density.py --help")
    return paths


def name_path(path: Path) -> str:
    """Return a path as seen from the repository."""
    return str(path.relative_to(ROOT))


def find_large_folders(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the folders with too many modules."""
    counts = Counter(path.parent for path in paths)
    for folder, n in counts.items():
        if n > MAX_MODULES:
            yield f"{name_path(folder)}: {n} modules; at most {MAX_MODULES} in a folder"


def describe_pages() -> str:
    """Say how long the pages are, and how many of their sentences are too long."""
    pages = list_files("docs/*.md")
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    text = re.sub("<!--.*?-->", "", text, flags=re.DOTALL)
    sentences = re.split(r"(?<=[.:;])\s+", NON_PROSE.sub(" ", text))
    long = sum(len(sentence.split()) > MAX_WORDS for sentence in sentences)
    size = f"{len(text) // 1000} KB"
    return f"pages: {size}, {long} sentences of more than {MAX_WORDS} words"


def find_violations() -> Iterator[str]:
    """Yield the violations of the rules in ``[tool.density]``."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    modules = read_modules()
    cycles = find_cycles(make_graph(read_imports()))
    for name, rule in settings["tool"]["density"].items():
        paths = list_python_files(name)
        row = summarize(paths)
        density = row["tokens/line"]
        comments = row["comments %"]
        if density > rule["max_tokens"]:
            yield f"{name}: {density:.2f} tokens a line; at most {rule['max_tokens']}"
        if comments < rule.get("min_comments", 0):
            yield f"{name}: {comments:.2f} % comments; at least {rule['min_comments']}"
        yield from find_large_folders(paths)
        for cycle in cycles:
            if any(modules[module] in paths for module in cycle):
                yield f"{name}: import cycle: {' '.join(sorted(cycle))}"


def print_table(rows: dict[str, dict[str, float]]) -> None:
    """Print a line for each row."""
    width = max(map(len, rows))
    columns = next(iter(rows.values()))
    print(" " * width, *(f"{name:>12}" for name in columns))
    for label, row in rows.items():
        numbers = (f"{value:>12,.{int(value % 1 > 0)}f}" for value in row.values())
        print(f"{label:<{width}}", *numbers)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folders",
        nargs="*",
        metavar="FOLDER",
        help="all by default",
    )
    parser.add_argument(
        "--files",
        action="store_true",
        help="print a row for each file",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="print only what breaks the rules in [tool.density] of pyproject.toml",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns
    -------
    int
        1 if a rule is broken, else 0.
    """
    options = make_parser().parse_args(arguments)
    if options.check:
        violations = list(find_violations())
        print("\n".join(violations) or "[tool.density] holds")
        return int(bool(violations))

    names = {path.relative_to(ROOT).parts[0] for path in list_files("*/*.py")}
    folders = options.folders or sorted(names)
    files = {name: list_python_files(name) for name in folders}
    code = [path for name in files if name != "tests" for path in files[name]]
    groups = {name_path(path): [path] for path in code} if options.files else files
    rows = {name: summarize(paths) for name, paths in groups.items()}
    print_table(rows | {"all but tests": summarize(code)})
    print(describe_pages(), f"targets: {TARGETS}", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
