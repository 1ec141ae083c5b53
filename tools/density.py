"""Print how densely each folder is written: tokens a code line, comments, lines, functions, types.

python tools/density.py [FOLDER ...]
"""

import ast
import io
import sys
import tokenize
from pathlib import Path
from statistics import quantiles

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "analysis", "audit", "benchmarks", "compute", "datasets", "experiments", "federation",
    "methods", "metrics", "privacy", "tests",
)  # fmt: skip
SKIPPED = (
    tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
)  # fmt: skip
LONG = 60


def measure(paths: list[Path]) -> dict[str, float]:
    """Measure some files together.

    Parameters
    ----------
    paths : list of Path
        Python files.

    Returns
    -------
    dict of str to float
        Shares are in percent. A docstring's lines are no code lines.
    """
    code_lines, comment_lines, doc_lines, wide = 0, 0, 0, 0
    tokens, assignments, tuples, arguments, typed = 0, 0, 0, 0, 0
    functions: list[int] = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        docstrings = docstring_lines(tree)
        doc_lines += len(docstrings)
        code: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                comment_lines += 1
            elif token.type not in SKIPPED and token.start[0] not in docstrings:
                tokens += 1
                code.add(token.start[0])
        code_lines += len(code)
        wide += sum(len(line) > 88 for line in text.splitlines())
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                assignments += 1
                both = (node.targets[0], node.value)
                tuples += all(isinstance(side, ast.Tuple) for side in both)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.append((node.end_lineno or node.lineno) - node.lineno + 1)
                given = [each for each in node.args.args if each.arg not in ("self", "cls")]
                arguments += len(given)
                typed += sum(each.annotation is not None for each in given)
    lines = code_lines + comment_lines + doc_lines
    deciles = quantiles(functions, n=10) if len(functions) > 1 else [0] * 9
    return {
        "files": len(paths),
        "code lines": code_lines,
        "tokens/line": tokens / max(code_lines, 1),
        "comments %": 100 * comment_lines / max(lines, 1),
        "docstrings %": 100 * doc_lines / max(lines, 1),
        "tuples %": 100 * tuples / max(assignments, 1),
        "> 88 %": 100 * wide / max(lines, 1),
        "function p50": deciles[4],
        "p90": deciles[8],
        f"> {LONG} %": 100 * sum(length > LONG for length in functions) / max(len(functions), 1),
        "typed %": 100 * typed / max(arguments, 1),
    }


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of all lines that belong to docstrings."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = node.body[0] if node.body else None
        if first is not None and ast.get_docstring(node, clean=False) is not None:
            found.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return found


def main() -> None:
    """Print one line per folder, or per file of the folders that are named."""
    if sys.argv[1:]:
        files = [path for folder in sys.argv[1:] for path in sorted((ROOT / folder).rglob("*.py"))]
        groups = {str(path.relative_to(ROOT)): [path] for path in files}
    else:
        groups = {folder: sorted((ROOT / folder).rglob("*.py")) for folder in FOLDERS}
        groups["all but tests"] = [p for folder in FOLDERS[:-1] for p in groups[folder]]
    rows = {name: measure(paths) for name, paths in groups.items()}
    names = list(next(iter(rows.values())))
    width = max(len(name) for name in rows)
    print(" " * width, *(f"{name:>12}" for name in names))
    for name, values in rows.items():
        print(f"{name:<{width}}", *(f"{values[column]:>12.4g}" for column in names))


if __name__ == "__main__":
    main()
